//! Attributes, and the resource and the scope that all signals have.

use crate::config::Otlp;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;

/// Nanoseconds of a millisecond.
const NANOS: u64 = 1_000_000;

/// Returns milliseconds since 1970 in the unit of the protocol.
pub(super) fn unix_nanos(unix_ms: u64) -> u64 {
    unix_ms.saturating_mul(NANOS)
}

/// Returns a text as a value.
pub(super) fn text(text: impl Into<String>) -> AnyValue {
    AnyValue { value: Some(Value::StringValue(text.into())) }
}

/// Returns a number as a value. The protocol has no numbers of 2^63 and more.
pub(super) fn number(number: impl TryInto<i64>) -> AnyValue {
    AnyValue { value: Some(Value::IntValue(number.try_into().unwrap_or(i64::MAX))) }
}

/// Returns true or false as a value.
pub(super) fn flag(flag: bool) -> AnyValue {
    AnyValue { value: Some(Value::BoolValue(flag)) }
}

/// Returns a fraction as a value.
pub(super) fn fraction(fraction: f64) -> AnyValue {
    AnyValue { value: Some(Value::DoubleValue(fraction)) }
}

/// Returns an attribute.
pub(super) fn attribute(key: impl Into<String>, value: AnyValue) -> KeyValue {
    KeyValue { key: key.into(), value: Some(value), ..KeyValue::default() }
}

/// Returns the attributes of this broker.
pub(super) fn resource(config: &Otlp) -> Resource {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim();
    let instance = if config.instance_id.is_empty() { host } else { &config.instance_id };
    let attributes = vec![
        attribute("service.name", text(&config.service_name)),
        attribute("service.instance.id", text(instance)),
        attribute("service.version", text(env!("CARGO_PKG_VERSION"))),
        attribute("host.name", text(host)),
        attribute("process.pid", number(std::process::id())),
    ];
    Resource { attributes, ..Resource::default() }
}

/// Returns the scope of all records: this program.
#[expect(clippy::unnecessary_wraps, reason = "the messages of the protocol have it optional")]
pub(super) fn scope() -> Option<InstrumentationScope> {
    let (name, version) = ("homing".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    Some(InstrumentationScope { name, version, ..InstrumentationScope::default() })
}
