//! The schemas of parameters and fields that are one of some words, for the description of the HTTP
//! interface. Only a crate that defines a type can give it a schema, so those of the core are here.

use crate::bridge::BridgeState;
use crate::events::refusals::RefusedKind;
use crate::mqtt::packet::ProtocolVersion;
use crate::named_enum::Named;
use crate::operators::client_commands::RedeliverBy;
use crate::operators::message_commands::RepublishTo;
use crate::operators::session_order::SessionOrder;
use crate::operators::wait_reason::{AtDeadline, WaitKind};
use crate::routing::shared_group::Presence;
use crate::session::drops::DropReason;
use crate::session::outbound::stall::Holder;
use crate::session::trace_steps::StepKind;
use crate::sink::SinkState;
use std::fmt::Display;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};

/// Returns the schema of a field: the names of its type.
pub fn of_field<T: Named>() -> RefOr<Schema> {
    words::<T>().into()
}

/// Returns the schema of a parameter: the names of its type, an example and a default.
pub fn of_parameter<T: Named + Display>(example: T, default: Option<T>) -> RefOr<Schema> {
    let words = words::<T>().examples([example.to_string()]);
    words.default(default.map(|value| value.to_string().into())).into()
}

fn words<T: Named>() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(T::NAMES.iter().copied()))
}

#[doc(hidden)]
#[macro_export]
macro_rules! __words {
    ($($name:ident;)*) => {
        $(impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
                $crate::schema::of_field::<$name>()
            }
        }

        impl utoipa::ToSchema for $name {})*
    };
    ($($name:ident: $example:expr, $default:expr;)*) => {
        $(impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
                $crate::schema::of_parameter::<$name>($example, $default)
            }
        }

        impl utoipa::ToSchema for $name {})*
    };
}

/// Gives enums with names a schema: [`of_field`], or [`of_parameter`] with an example and a
/// default.
pub use __words as words;

words! {
    ProtocolVersion: ProtocolVersion::V5, None;
    Holder: Holder::Application, None;
    RedeliverBy: RedeliverBy::Auto, Some(RedeliverBy::Auto);
    RepublishTo: RepublishTo::Receiver, Some(RepublishTo::Receiver);
    SessionOrder: SessionOrder::Queued, None;
}

words! {
    AtDeadline;
    BridgeState;
    DropReason;
    Presence;
    RefusedKind;
    SinkState;
    StepKind;
    WaitKind;
}
