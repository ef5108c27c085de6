//! Log lines in the messages of the protocol.

use super::attributes::{attribute, flag, fraction, number, scope, text, unix_nanos};
use crate::log::tap::TappedLine;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::AnyValue;
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs, SeverityNumber};
use opentelemetry_proto::tonic::resource::v1::Resource;
use serde_json::Value;
use tracing::Level;

/// Returns the request with these lines.
pub(super) fn request(lines: &[TappedLine], resource: &Resource) -> ExportLogsServiceRequest {
    let log_records = lines.iter().map(record).collect();
    let scope_logs = vec![ScopeLogs { scope: scope(), log_records, ..ScopeLogs::default() }];
    let resource = Some(resource.clone());
    ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs { resource, scope_logs, ..ResourceLogs::default() }],
    }
}

fn record(line: &TappedLine) -> LogRecord {
    let head = [attribute("event", text(&line.event)), attribute("target", text(line.target))];
    let fields = line.fields.iter().map(|(name, value)| attribute(*name, any(value)));
    LogRecord {
        time_unix_nano: unix_nanos(line.unix_ms),
        observed_time_unix_nano: unix_nanos(line.unix_ms),
        severity_number: severity(line.level).into(),
        severity_text: line.level.as_str().to_owned(),
        body: Some(text(&line.message)),
        attributes: head.into_iter().chain(fields).collect(),
        event_name: line.event.clone(),
        ..LogRecord::default()
    }
}

fn severity(level: Level) -> SeverityNumber {
    match level {
        Level::ERROR => SeverityNumber::Error,
        Level::WARN => SeverityNumber::Warn,
        Level::INFO => SeverityNumber::Info,
        Level::DEBUG => SeverityNumber::Debug,
        Level::TRACE => SeverityNumber::Trace,
    }
}

fn any(value: &Value) -> AnyValue {
    match value {
        Value::String(value) => text(value),
        Value::Bool(value) => flag(*value),
        Value::Number(value) => match (value.as_i64(), value.as_f64()) {
            (Some(value), _) => number(value),
            (None, Some(value)) => fraction(value),
            (None, None) => text(value.to_string()),
        },
        other => text(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_its_severity_its_event_and_its_fields_with_their_types() {
        let line = TappedLine {
            unix_ms: 7,
            level: Level::WARN,
            target: "homing::broker",
            event: "client.refused".to_owned(),
            message: "refused".to_owned(),
            fields: vec![
                ("client_id", "pump-7".into()),
                ("times", 3.into()),
                ("late", true.into()),
                ("ratio", 0.5.into()),
            ],
        };
        let request = request(&[line], &Resource::default());
        let record = &request.resource_logs[0].scope_logs[0].log_records[0];
        assert_eq!((record.severity_number(), record.severity_text.as_str()), (SeverityNumber::Warn, "WARN"));
        assert_eq!((record.body.clone(), record.time_unix_nano), (Some(text("refused")), 7_000_000));
        let expected = [
            attribute("event", text("client.refused")),
            attribute("target", text("homing::broker")),
            attribute("client_id", text("pump-7")),
            attribute("times", number(3)),
            attribute("late", flag(true)),
            attribute("ratio", fraction(0.5)),
        ];
        assert_eq!(record.attributes, expected);
    }
}
