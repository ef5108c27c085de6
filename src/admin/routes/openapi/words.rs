//! The schemas of parameters and fields that are one of some words.

use crate::admin::access::Scope;
use crate::admin::commands::ActionKind;
use crate::admin::pages::problems::BrokerProblemKind;
use crate::admin::queries::sessions::ListState;
use crate::admin::queries::top::TopFigure;
use crate::admin::readiness::{Phase, StoreCheck, ThreadCheck};
use crate::admin::routes::health::ReadinessStatus;
use crate::admin::routes::mosquitto::ListenerProtocol;
use crate::admin::session_rule::SourceKind;
use crate::broker::events::moments::MomentKind;
use crate::broker::file_news::FileKind;
use crate::config::ReloadEffect;
use crate::finding::Severity;
use crate::mqtt::packet::ProtocolVersion;
use crate::named_enum::Named;
use crate::routing::shared_group::Presence;
use crate::session::drops::DropReason;
use crate::session::outbound::stall::Holder;
use crate::session::trace_steps::StepKind;
use crate::shard::features::administration::RedeliverBy;
use crate::shard::features::message_commands::RepublishTo;
use crate::shard::observe::wait_reason::{AtDeadline, WaitKind};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

/// Gives enums with names a schema: their names; for a parameter an example and a default, too.
macro_rules! words {
    ($($name:ident;)*) => {
        $(impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                let words = ObjectBuilder::new().schema_type(Type::String);
                words.enum_values(Some($name::NAMES.iter().copied())).into()
            }
        }

        impl ToSchema for $name {})*
    };
    ($($name:ident: $example:expr, $default:expr;)*) => {
        $(impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                let (example, default): ($name, Option<$name>) = ($example, $default);
                let words = ObjectBuilder::new().schema_type(Type::String).examples([example.name()]);
                let words = words.enum_values(Some($name::NAMES.iter().copied()));
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

words! {
    ActionKind;
    AtDeadline;
    BrokerProblemKind;
    DropReason;
    FileKind;
    ListenerProtocol;
    MomentKind;
    Phase;
    Presence;
    ReadinessStatus;
    ReloadEffect;
    Scope;
    Severity;
    StepKind;
    StoreCheck;
    SourceKind;
    ThreadCheck;
    WaitKind;
}
