//! One request to the broker.

use super::endpoint::BrokerEndpoint;
use super::error::CtlError;
use crate::admin::problem::ProblemAnswer;
use crate::admin::routes::doctor::DoctorAnswer;
use crate::admin::segment::segment;
use crate::escape;
use clap::Args;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::io::{self, Read, Write};

/// The largest answer, in bytes.
const ANSWER: u64 = 16 << 20;

/// Headers of an answer at most.
const HEADERS: usize = 32;

/// The note of an action.
#[derive(Args, Clone, Debug)]
pub(super) struct NoteFlag {
    /// A note for the audit log
    #[arg(long)]
    pub(super) note: Option<String>,
}

pub(super) fn path_with(path: &str, parameters: &[(&str, &Option<String>)]) -> String {
    let given = parameters.iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
    let given: Vec<String> = given.map(|(name, value)| format!("{name}={}", segment(value))).collect();
    format!("{path}?{}", given.join("&"))
}

/// Returns the path of a client in the interface. `rest` follows the client identifier.
pub(super) fn client_path(id: &str, rest: &str) -> String {
    format!("/api/v1/clients/{}{rest}", segment(id))
}

/// Sends one request without a body, and returns the JSON of the answer; null without a body.
pub(super) fn request(broker: &BrokerEndpoint, method: &str, path: &str) -> Result<Value, CtlError> {
    done(send(broker, method, path, "")?)
}

/// Has the broker act, with a note for its audit log. Returns the JSON of the answer. Errors: as
/// [`request`].
pub(super) fn act(
    broker: &BrokerEndpoint,
    method: &str,
    path: &str,
    note: &NoteFlag,
) -> Result<Value, CtlError> {
    request(broker, method, &noted(path, note))
}

pub(super) fn noted(path: &str, NoteFlag { note }: &NoteFlag) -> String {
    let Some(note) = note else { return path.to_owned() };
    let joint = if path.contains('?') { '&' } else { '?' };
    format!("{path}{joint}note={}", segment(note))
}

/// Returns the totals of a running broker: `GET /api/v1/overview`.
pub(crate) fn overview(broker: &BrokerEndpoint) -> Result<Value, CtlError> {
    request(broker, "GET", "/api/v1/overview")
}

/// Returns the checks that a running broker makes of itself and its machine: `GET /api/v1/doctor`.
pub(crate) fn checks(broker: &BrokerEndpoint) -> Result<DoctorAnswer, CtlError> {
    read(request(broker, "GET", "/api/v1/doctor")?)
}

/// Reads an answer, or one row of an answer, as its type. Errors: the answer has another form,
/// because the broker has another version, for example.
pub(super) fn read<T: DeserializeOwned>(answer: Value) -> Result<T, CtlError> {
    serde_json::from_value(answer).map_err(|error| {
        CtlError::Answer(format!("{error}; the broker may be of another version than this program"))
    })
}

/// Returns the body of an answer. Errors: the status is no success.
pub(super) fn done((status, body): (u16, Value)) -> Result<Value, CtlError> {
    if let 200..=299 = status {
        return Ok(body);
    }
    let (detail, mistakes) = match read(body) {
        Ok(ProblemAnswer { detail, mistakes, .. }) => (detail, mistakes),
        // A proxy on the way may have answered.
        Err(_) => ("the broker refused".to_owned(), None),
    };
    Err(match (mistakes, status) {
        (Some(mistakes), _) => {
            let mistakes: Vec<String> = mistakes.iter().map(|mistake| escape::visible(mistake)).collect();
            CtlError::Configuration(mistakes.join("\n"))
        }
        // A word or a name that does not exist is a mistake of the arguments.
        (None, 400 | 404) => CtlError::Argument(detail),
        (None, _) => CtlError::Refused(detail),
    })
}

/// Sends one request with this body. Returns the status, and the JSON of the answer; null without a
/// body. Errors: nobody answers, or the answer cannot be read.
pub(super) fn send(
    broker: &BrokerEndpoint,
    method: &str,
    path: &str,
    body: &str,
) -> Result<(u16, Value), CtlError> {
    let (headers, length) = (broker.headers(), body.len());
    let exchange = || {
        let mut stream = broker.open()?;
        let request = format!(
            "{method} {path} HTTP/1.1\r\n{headers}Connection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        stream.take(ANSWER).read_to_end(&mut answer)?;
        match answer.starts_with(b"HTTP/") {
            true => Ok(answer),
            false => Err(io::Error::other("what answers there does not speak HTTP")),
        }
    };
    let answer = exchange().map_err(|cause| broker.not_reachable(cause))?;
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
