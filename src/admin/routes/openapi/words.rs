//! The words that a parameter of a request can be.

use crate::mqtt::packet::ProtocolVersion;
use crate::shard::features::message_commands::RepublishTo;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

/// Makes schemas of texts that are one of some words.
macro_rules! words {
    ($($name:ident: $words:expr, $example:literal, $default:expr;)*) => {
        $(pub(in crate::admin) struct $name;

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                let default: Option<&str> = $default;
                let words = ObjectBuilder::new().enum_values(Some($words)).examples([$example]);
                words.default(default.map(Into::into)).into()
            }
        }

        impl ToSchema for $name {})*
    };
}

words! {
    ListState: ["all", "connected", "away"], "away", Some("all");
    VersionWord: ProtocolVersion::ALL.map(|version| version.to_string()), "5.0", None;
    HolderWord: ["application", "network"], "application", None;
    TopWord: ["oldest_unacked", "queued", "queued_bytes", "in_flight"], "queued", None;
    RedeliverWord: ["auto", "resend", "disconnect"], "auto", Some("auto");
    RepublishWord: RepublishTo::ALL.map(RepublishTo::name), "receiver", Some("receiver");
}

/// A time, such as `10s`.
pub(in crate::admin) struct DurationText;

impl PartialSchema for DurationText {
    fn schema() -> RefOr<Schema> {
        let text = ObjectBuilder::new().schema_type(Type::String).examples(["1ms"]);
        text.pattern(Some("^([0-9]+(ms|s|m|h|d) ?)+$")).into()
    }
}

impl ToSchema for DurationText {}
