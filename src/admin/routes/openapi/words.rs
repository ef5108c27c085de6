//! The schemas of parameters that are one of some words.

use crate::admin::queries::sessions::ListState;
use crate::admin::queries::top::TopFigure;
use crate::mqtt::packet::ProtocolVersion;
use crate::named_enum::Named;
use crate::session::outbound::stall::Holder;
use crate::shard::features::administration::RedeliverBy;
use crate::shard::features::message_commands::RepublishTo;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema};
use utoipa::{PartialSchema, ToSchema};

/// Gives enums with names a schema: their names, an example and a default.
macro_rules! words {
    ($($name:ident: $example:expr, $default:expr;)*) => {
        $(impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                let (example, default): ($name, Option<$name>) = ($example, $default);
                let words = ObjectBuilder::new().enum_values(Some($name::NAMES.iter().copied())).examples([example.name()]);
                words.default(default.map(|value| value.name().into())).into()
            }
        }

        impl ToSchema for $name {})*
    };
}

words! {
    ListState: ListState::Away, Some(ListState::All);
    ProtocolVersion: ProtocolVersion::V5, None;
    Holder: Holder::Application, None;
    TopFigure: TopFigure::Queued, None;
    RedeliverBy: RedeliverBy::Auto, Some(RedeliverBy::Auto);
    RepublishTo: RepublishTo::Receiver, Some(RepublishTo::Receiver);
}
