//! A step as JSON.

use crate::shard::observe::trace::TraceStep;
use serde_json::{Value, json};
use std::fmt::Write;

/// Returns a step. What a step does not have is left out.
pub(super) fn written(number: u64, unix_ms: u64, step: &TraceStep) -> Value {
    let mut value = json!({ "n": number, "unix_ms": unix_ms, "step": step.kind.name() });
    if step.audit.is_some() {
        value["message"] = step.audit.number().into();
    }
    if !step.client_id.is_empty() {
        value["client"] = step.client_id.as_ref().into();
    }
    if let Some(packet) = &step.packet {
        value["packet"] = packet.name.into();
        if let Some(id) = packet.packet_id {
            value["packet_id"] = id.get().into();
        }
        if let Some(qos) = packet.qos {
            value["qos"] = (qos as u8).into();
            value["payload_bytes"] = packet.payload.into();
            value["dup"] = packet.dup.into();
        }
        if !packet.topic.is_empty() {
            value["topic"] = packet.topic.as_ref().into();
        }
        if let Some(reason) = packet.reason {
            value["reason_code"] = reason.byte().into();
        }
    }
    if !step.detail.is_empty() {
        value["detail"] = step.detail.as_ref().into();
    }
    if let Some(traceparent) = &step.traceparent {
        value["traceparent"] = traceparent.as_ref().into();
    }
    if let Some(payload) = &step.payload {
        value["payload"] = text(payload).into();
    }
    value
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
    use crate::session::packet_notes::PacketNote;
    use crate::shard::observe::trace::StepKind;
    use crate::time::Instant;
    use std::borrow::Cow;

    #[test]
    fn a_step_has_what_is_known_and_nothing_else() {
        let packet = PacketNote {
            name: "PUBLISH",
            packet_id: PacketId::new(9),
            qos: Some(QoS::AtLeastOnce),
            topic: "a".into(),
            payload: 3,
            ..PacketNote::default()
        };
        let step = TraceStep {
            at: Instant::ZERO,
            kind: StepKind::Received,
            audit: AuditTag::new(7),
            client_id: "<b>".into(),
            packet: Some(packet),
            detail: Cow::Borrowed(""),
            traceparent: Some("00-ab".into()),
            payload: Some(Box::new([0xff, 1])),
        };
        let expected = json!({
            "n": 1, "unix_ms": 5, "step": "received", "message": 7, "client": "<b>", "packet": "PUBLISH",
            "packet_id": 9, "qos": 1, "payload_bytes": 3, "dup": false, "topic": "a",
            "traceparent": "00-ab", "payload": "0xff01",
        });
        assert_eq!(written(1, 5, &step), expected);
        let bare = TraceStep { audit: AuditTag::NONE, client_id: "".into(), packet: None, ..step };
        let bare = TraceStep { kind: StepKind::Committed, traceparent: None, payload: None, ..bare };
        assert_eq!(written(2, 5, &bare), json!({ "n": 2, "unix_ms": 5, "step": "committed" }));
        assert_eq!(text("é".as_bytes()), "é");
    }
}
