//! `homing trace`: begins a trace in a running broker, and prints its steps as they come.

use super::endpoint::{BrokerEndpoint, EndpointArguments};
use super::error::CtlError;
use super::http::{NoteFlag, done, noted, read, request, send};
use super::listings::given;
use crate::admin::routes::traces::TraceNumber;
use crate::admin::traces::TraceRow;
use crate::admin::traces::step::StepRow;
use crate::escape;
use crate::session::trace_steps::StepKind;
use clap::Args;
use serde_json::json;
use std::io::Write;

/// Flags of `homing trace`.
#[derive(Args, Clone, Debug)]
pub struct TraceArguments {
    /// The broker that is asked.
    #[command(flatten)]
    pub endpoint: EndpointArguments,
    /// Follow the packets of this client, and the messages that it publishes; may be repeated
    #[arg(long = "client", value_name = "ID", required_unless_present = "topics")]
    clients: Vec<String>,
    /// Follow the messages that clients publish to this topic filter; may be repeated
    #[arg(long = "topic", value_name = "FILTER")]
    topics: Vec<String>,
    /// The time for which the trace lasts, 1s to 1h
    #[arg(long = "for", value_name = "TIME", default_value = "10m")]
    lasts: String,
    /// Show the first 256 bytes of the payloads
    #[arg(long)]
    payload: bool,
    /// Print each step as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    note: NoteFlag,
}

/// Begins a trace, and prints its steps until it ends. The broker ends it half a minute after this
/// command was stopped.
///
/// # Errors
/// Nobody answers, the broker refuses, or an answer cannot be read.
pub fn run(arguments: &TraceArguments, broker: &BrokerEndpoint) -> Result<(), CtlError> {
    let TraceArguments { clients, topics, lasts, payload, .. } = arguments;
    let body = json!({ "clients": clients, "topics": topics, "for": lasts, "payload": payload });
    let begun = done(send(broker, "POST", &noted("/api/v1/traces", &arguments.note), &body.to_string())?)?;
    let (TraceNumber { trace }, mut after) = (read(begun)?, 0);
    loop {
        let path = format!("/api/v1/traces/{trace}?after={after}&wait=5s");
        let page: TraceRow = read(request(broker, "GET", &path)?)?;
        let steps = page.steps.unwrap_or_default();
        for step in &steps {
            let text = if arguments.json { as_json(step) } else { line(step) };
            let mut out = std::io::stdout().lock();
            // Nobody reads the steps any more.
            if writeln!(out, "{text}").and_then(|()| out.flush()).is_err() {
                return Ok(());
            }
        }
        after = page.next.unwrap_or(after);
        if page.ended && steps.is_empty() {
            return Ok(());
        }
    }
}

/// Returns a step as JSON on one line. Characters that act on a terminal are escaped.
fn as_json(step: &StepRow) -> String {
    escape::json(&json!(step).to_string()).into_owned()
}

/// Returns a step as one line for people.
fn line(step: &StepRow) -> String {
    let arrow = match step.step {
        StepKind::Received | StepKind::Acknowledged | StepKind::Pubrec | StepKind::PacketIn => "<-",
        StepKind::Sent | StepKind::Resent | StepKind::PublisherAcknowledged | StepKind::PacketOut => "->",
        _ => "  ",
    };
    let mut out = format!("{} {arrow} {}", time(step.unix_ms), given(&step.client));
    match (arrow, &step.packet) {
        ("  ", _) => out += &format!(" {}", step.step.name().replace('_', " ")),
        (_, Some(packet)) => out += &format!(" {}", escape::visible(packet)),
        _ => {}
    }
    if let Some(id) = step.packet_id {
        out += &format!(" id={id}");
    }
    if let Some(qos) = step.qos {
        out += &format!(" qos={qos}");
    }
    if step.dup == Some(true) {
        out += " dup";
    }
    if let Some(topic) = &step.topic {
        out += &format!(" {}", escape::visible(topic));
    }
    if let Some(bytes) = step.payload_bytes {
        out += &format!(" {bytes} B");
    }
    if let Some(code) = step.reason_code.filter(|code| *code > 0) {
        out += &format!(" reason {code:#04x}");
    }
    for text in [&step.detail, &step.traceparent, &step.payload].into_iter().flatten() {
        if !text.is_empty() {
            out += &format!("; {}", escape::visible(text));
        }
    }
    if let Some(message) = step.message {
        out += &format!("  #{message}");
    }
    out
}

/// Returns the time of day, in UTC.
fn time(unix_ms: u64) -> String {
    let (seconds, millis) = (unix_ms / 1_000 % 86_400, unix_ms % 1_000);
    format!("{:02}:{:02}:{:02}.{millis:03}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(step: serde_json::Value) -> StepRow {
        serde_json::from_value(step).expect("a step")
    }

    #[test]
    fn a_step_is_one_line_with_its_direction() {
        let received = json!({
            "n": 1, "unix_ms": 32_531_004_u64, "step": "received", "message": 7, "client": "app-1",
            "packet": "PUBLISH", "packet_id": 9, "qos": 1, "payload_bytes": 41, "dup": false,
            "topic": "alarms/7", "traceparent": "00-ab",
        });
        assert_eq!(line(&row(received)), "09:02:11.004 <- app-1 PUBLISH id=9 qos=1 alarms/7 41 B; 00-ab  #7");
        let queued = json!({
            "n": 2, "unix_ms": 0, "step": "queued", "message": 7, "client": "pump", "packet": "PUBLISH",
            "qos": 1, "payload_bytes": 41, "topic": "alarms/7", "detail": "the receiver is away",
        });
        assert_eq!(
            line(&row(queued)),
            "00:00:00.000    pump queued qos=1 alarms/7 41 B; the receiver is away  #7"
        );
    }

    #[test]
    fn a_hostile_client_writes_nothing_on_the_terminal() {
        let step = json!({ "n": 1, "unix_ms": 0, "step": "packet_in", "client": "a\u{1b}[2J\n\u{202e}", "packet": "PINGREQ" });
        let step = row(step);
        assert_eq!(line(&step), "00:00:00.000 <- a\\u{1b}[2J\\n\\u{202e} PINGREQ");
        assert!(as_json(&step).contains("\\u202e"));
    }
}
