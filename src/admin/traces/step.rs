//! A step as a row of an answer.

use crate::mqtt::packet::ReasonCode;
use crate::session::trace_steps::{StepKind, TraceStep};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt::Write;
use utoipa::ToSchema;

/// A step of a trace. Absent fields are left out.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[schema(as = TraceStep)]
pub(crate) struct StepRow {
    pub(crate) n: u64,
    pub(crate) unix_ms: u64,
    pub(crate) step: StepKind,
    /// A number that the steps of one message share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) client: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) packet: Option<Cow<'static, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 65535)]
    pub(crate) packet_id: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 2)]
    pub(crate) qos: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) payload_bytes: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dup: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) topic: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 255)]
    pub(crate) reason_code: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) detail: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) traceparent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) payload: Option<String>,
}

impl StepRow {
    pub(super) fn of(n: u64, unix_ms: u64, step: &TraceStep) -> StepRow {
        let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let publish = step.qos.map(|_| step);
        StepRow {
            n,
            unix_ms,
            step: step.kind,
            message: step.audit.is_some().then(|| step.audit.number()),
            client: given(&step.client_id),
            packet: Some(step.packet).filter(|name| !name.is_empty()).map(Cow::from),
            packet_id: step.packet_id.map(|id| id.get()),
            qos: step.qos.map(|qos| qos as u8),
            payload_bytes: publish.map(|step| step.payload_bytes),
            dup: publish.map(|step| step.dup),
            topic: given(&step.topic),
            reason_code: step.reason.map(ReasonCode::byte),
            detail: given(&step.detail),
            traceparent: step.traceparent.as_deref().map(str::to_owned),
            payload: step.payload.as_deref().map(text),
        }
    }
}

/// Returns bytes as a text if they are one, else as hexadecimal digits with 0x before them.
fn text(bytes: &[u8]) -> String {
    std::str::from_utf8(bytes).map_or_else(
        |_| {
            bytes.iter().fold("0x".to_owned(), |mut digits, byte| {
                // Writing to a string cannot fail.
                let _ = write!(digits, "{byte:02x}");
                digits
            })
        },
        ToOwned::to_owned,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqtt::audit::AuditTag;
    use crate::mqtt::packet::{PacketId, QoS};
    use serde_json::json;

    #[test]
    fn a_step_has_what_is_known_and_nothing_else() {
        let step = TraceStep {
            client_id: "<b>".into(),
            packet_id: PacketId::new(9),
            qos: Some(QoS::AtLeastOnce),
            traceparent: Some("00-ab".into()),
            payload: Some(Box::new([0xff, 1])),
            ..TraceStep::of_message(StepKind::Received, AuditTag::new(7), "a", b"abc")
        };
        let expected = json!({
            "n": 1, "unix_ms": 5, "step": "received", "message": 7, "client": "<b>", "packet": "PUBLISH",
            "packet_id": 9, "qos": 1, "payload_bytes": 3, "dup": false, "topic": "a",
            "traceparent": "00-ab", "payload": "0xff01",
        });
        let written = |n, step: &TraceStep| serde_json::to_value(StepRow::of(n, 5, step)).expect("JSON");
        assert_eq!(written(1, &step), expected);
        let bare = TraceStep::new(StepKind::Committed, AuditTag::NONE);
        assert_eq!(written(2, &bare), json!({ "n": 2, "unix_ms": 5, "step": "committed" }));
        assert_eq!(text("é".as_bytes()), "é");
    }
}
