//! `homing ctl`: asks a running broker through its Unix socket, and acts on clients.

mod settings;

use super::segment::segment;
use clap::{Args, Subcommand};
use serde_json::Value;
use settings::SettingsCommand;
use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time for one answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The largest answer, in bytes.
const ANSWER: u64 = 16 << 20;

/// Headers of an answer at most.
const HEADERS: usize = 32;

/// Flags of `homing ctl`.
#[derive(Args, Clone, Debug)]
pub struct CtlArguments {
    /// The Unix socket of the broker [default: admin.socket of the configuration]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    command: CtlCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum CtlCommand {
    /// Totals of the broker
    Status,
    /// List clients
    Clients {
        /// Only client identifiers that begin with this
        #[arg(long, default_value = "")]
        prefix: String,
        /// all, connected or away
        #[arg(long, default_value = "all")]
        state: String,
        /// Only clients whose oldest message is unacknowledged for this long, such as 10s
        #[arg(long, value_name = "AGE")]
        stuck: Option<String>,
        /// Number of clients at most
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Show a client: its messages in flight, its queue, and why it waits
    Client {
        /// The client identifier
        id: String,
    },
    /// Disconnect a client; its session stays
    Disconnect {
        /// The client identifier
        id: String,
    },
    /// End the session of a client; its queue is dropped
    End {
        /// The client identifier
        id: String,
    },
    #[command(flatten)]
    Settings(SettingsCommand),
}

/// The reasons why a command has no result.
#[derive(Debug, thiserror::Error)]
pub enum CtlError {
    /// Nobody answers.
    #[error("{}: {cause}; does the broker run, with this admin.socket?", .socket.display())]
    NotReachable {
        /// The Unix socket.
        socket: PathBuf,
        /// The system's answer.
        cause: io::Error,
    },
    /// The broker refused.
    #[error("{0}")]
    Refused(String),
    /// The answer is not HTTP or JSON.
    #[error("the answer cannot be read: {0}")]
    Answer(String),
}

/// Runs a command, and returns what to print.
///
/// # Errors
/// Nobody answers, the broker refuses, or the answer cannot be read.
pub fn run(arguments: &CtlArguments, socket: &Path) -> Result<String, CtlError> {
    match &arguments.command {
        CtlCommand::Status => {
            let body = request(socket, "GET", "/api/v1/overview")?;
            Ok(if arguments.json { pretty(&body) } else { flat(&body) })
        }
        CtlCommand::Clients { prefix, state, stuck, limit } => {
            let rows = clients(socket, (prefix, state, stuck.as_deref()), *limit)?;
            Ok(if arguments.json { pretty(&Value::Array(rows)) } else { table(&rows) })
        }
        CtlCommand::Client { id } => {
            let body = request(socket, "GET", &format!("/api/v1/clients/{}", segment(id)))?;
            Ok(if arguments.json { pretty(&body) } else { flat(&body) })
        }
        CtlCommand::Disconnect { id } => {
            request(socket, "POST", &format!("/api/v1/clients/{}/disconnect", segment(id)))?;
            Ok("disconnected".to_owned())
        }
        CtlCommand::End { id } => {
            request(socket, "DELETE", &format!("/api/v1/clients/{}", segment(id)))?;
            Ok("the session has ended".to_owned())
        }
        CtlCommand::Settings(command) => settings::run(command, socket),
    }
}

/// Returns up to `limit` clients, over as many pages as it takes.
fn clients(
    socket: &Path,
    (prefix, state, stuck): (&str, &str, Option<&str>),
    limit: usize,
) -> Result<Vec<Value>, CtlError> {
    let stuck = stuck.map(|age| format!("&min_unacked_age={}", segment(age))).unwrap_or_default();
    let filter = format!("state={}&prefix={}{stuck}", segment(state), segment(prefix));
    let (mut rows, mut cursor) = (Vec::new(), String::new());
    while rows.len() < limit {
        let page = (limit - rows.len()).min(1_000);
        let body = request(socket, "GET", &format!("/api/v1/clients?{filter}&limit={page}{cursor}"))?;
        rows.extend(body["clients"].as_array().cloned().unwrap_or_default());
        match body["next"].as_str() {
            Some(next) => cursor = format!("&cursor={}", segment(next)),
            None => break,
        }
    }
    Ok(rows)
}

/// Sends one request without a body, and returns the JSON of the answer; null without a body.
fn request(socket: &Path, method: &str, path: &str) -> Result<Value, CtlError> {
    done(send(socket, method, path, "")?)
}

/// Returns the body of an answer.
///
/// # Errors
/// The status is no success.
fn done((status, body): (u16, Value)) -> Result<Value, CtlError> {
    match status {
        200..=299 => Ok(body),
        _ => Err(CtlError::Refused(body["detail"].as_str().unwrap_or("the broker refused").to_owned())),
    }
}

/// Sends one request with this body. Returns the status, and the JSON of the answer; null without
/// a body.
fn send(socket: &Path, method: &str, path: &str, body: &str) -> Result<(u16, Value), CtlError> {
    let length = body.len();
    let exchange = || {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(head.as_bytes())?;
        let mut answer = Vec::new();
        stream.take(ANSWER).read_to_end(&mut answer)?;
        Ok(answer)
    };
    let answer = exchange().map_err(|cause| CtlError::NotReachable { socket: socket.to_owned(), cause })?;
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let unreadable = |what: &str| CtlError::Answer(what.to_owned());
    let head = match response.parse(&answer) {
        Ok(httparse::Status::Complete(head)) => head,
        _ => return Err(unreadable("it is no HTTP answer")),
    };
    let body = answer.get(head..).unwrap_or_default();
    let body = if body.is_empty() { Ok(Value::Null) } else { serde_json::from_slice(body) };
    let body: Value = body.map_err(|error| CtlError::Answer(error.to_string()))?;
    Ok((response.code.unwrap_or_default(), body))
}

/// Returns the JSON in lines. Characters that act on a terminal are escaped, which JSON allows.
fn pretty(value: &Value) -> String {
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.chars().fold(String::new(), |mut out, c| {
        if acts_on_terminal(c) && c != '\n' {
            // Writing to a string cannot fail.
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
        out
    })
}

/// True for control characters, and for those that change the direction of text.
fn acts_on_terminal(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns an object as lines of `key: value`, deeper ones indented. What is null is left out.
fn flat(value: &Value) -> String {
    let mut out = String::new();
    put(&mut out, value, 0);
    out.trim_end().to_owned()
}

fn put(out: &mut String, value: &Value, depth: usize) {
    let Value::Object(fields) = value else { return };
    for (key, value) in fields {
        let indent = "  ".repeat(depth);
        let _ = match value {
            Value::Null => Ok(()),
            Value::Object(_) => {
                let _ = writeln!(out, "{indent}{key}:");
                put(out, value, depth + 1);
                Ok(())
            }
            Value::Array(items) if items.is_empty() => writeln!(out, "{indent}{key}: none"),
            Value::Array(items) => {
                let _ = writeln!(out, "{indent}{key}:");
                items.iter().try_for_each(|item| writeln!(out, "{indent}  - {}", short(item)))
            }
            Value::String(text) => writeln!(out, "{indent}{key}: {}", safe(text)),
            other => writeln!(out, "{indent}{key}: {other}"),
        };
    }
}

/// Returns a value on one line.
fn short(value: &Value) -> String {
    match value {
        Value::String(text) => safe(text),
        Value::Object(fields) => {
            let parts = fields.iter().filter(|(_, value)| !value.is_null());
            let parts: Vec<String> = parts.map(|(key, value)| format!("{key} {}", short(value))).collect();
            parts.join(", ")
        }
        other => other.to_string(),
    }
}

/// Returns a text of a client without control characters, which could write on the terminal.
fn safe(text: &str) -> String {
    text.chars()
        .flat_map(|c| if acts_on_terminal(c) { c.escape_default().collect() } else { vec![c] })
        .collect()
}

fn table(rows: &[Value]) -> String {
    let mut out = format!(
        "{:<32} {:<6} {:<10} {:>9} {:>9} {:>9}  {}\n",
        "client", "ver", "state", "in flight", "queued", "oldest", "cause"
    );
    for row in rows {
        let text = |key: &str| safe(row[key].as_str().unwrap_or_default());
        let oldest = &row["oldest_unacknowledged"];
        let age = oldest["age"].as_f64().map(|age| format!("{age:.1} s")).unwrap_or_default();
        let cause = oldest["detail"].as_str().unwrap_or_default();
        let (flight, queued) = (&row["in_flight"], &row["queued"]);
        let _ = writeln!(
            out,
            "{:<32} {:<6} {:<10} {flight:>9} {queued:>9} {age:>9}  {cause}",
            text("client_id"),
            text("version"),
            text("state")
        );
    }
    out.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_client_identifier_is_one_segment_of_a_url_and_writes_nothing_on_a_terminal() {
        assert_eq!(segment("a/b c?%é"), "a%2Fb%20c%3F%25%C3%A9");
        assert_eq!(safe("a\u{1b}[31mb\n\u{202e}"), "a\\u{1b}[31mb\\n\\u{202e}");
        assert_eq!(pretty(&json!("a\u{9b}b")), "\"a\\u009bb\"");
    }

    #[test]
    fn an_object_is_written_without_what_is_null() {
        let value = json!({ "a": 1, "b": null, "c": { "d": "x" }, "e": [], "f": [{ "g": 1, "h": null }] });
        assert_eq!(flat(&value), "a: 1\nc:\n  d: x\ne: none\nf:\n  - g 1");
    }
}
