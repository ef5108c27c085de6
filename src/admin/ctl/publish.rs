//! The command of `homing ctl` that publishes a message.

use super::endpoint::BrokerEndpoint;
use super::error::CtlError;
use super::http::{done, send};
use super::text::Print;
use crate::admin::routes::publish::PublishedAnswer;
use crate::mqtt::packet::ReasonCode;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use serde_json::json;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Bytes of a payload, and of the text of an ACL, at most. With base64 the body has 1 MiB.
const CONTENT: u64 = 768 << 10;

#[derive(Args, Clone, Debug)]
pub(super) struct PublishFlags {
    /// The topic name, or $delayed/SECONDS/TOPIC
    topic: String,
    /// The payload as text; "" with --retain deletes the retained message
    #[arg(long, value_name = "TEXT", required_unless_present = "payload_file")]
    payload: Option<String>,
    /// The file with the payload; - for standard input
    #[arg(long, value_name = "FILE", conflicts_with = "payload")]
    payload_file: Option<PathBuf>,
    /// The QoS of the message
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=2))]
    qos: u8,
    /// Keep it as the retained message of its topic
    #[arg(long)]
    retain: bool,
    /// Seconds after which the message is not delivered any more
    #[arg(long, value_name = "SECONDS")]
    expiry: Option<u32>,
}

/// Publishes a message, and returns the output. Errors: the payload cannot be read, nobody answers,
/// or the broker refuses.
pub(super) fn run(flags: &PublishFlags, broker: &BrokerEndpoint, print: Print) -> Result<String, CtlError> {
    let PublishFlags { topic, payload, payload_file, qos, retain, expiry } = flags;
    let bytes = match (payload, payload_file) {
        (Some(text), _) => text.clone().into_bytes(),
        (None, Some(file)) => content(file)?,
        (None, None) => Vec::new(),
    };
    let (payload, encoding) = match String::from_utf8(bytes) {
        Ok(text) => (text, "text"),
        Err(other) => (STANDARD.encode(other.as_bytes()), "base64"),
    };
    let properties = json!({ "message_expiry_interval": expiry });
    let body = json!({
        "topic": topic, "payload": payload, "payload_encoding": encoding, "qos": qos, "retain": retain,
        "properties": properties,
    });
    let answer = done(send(broker, "POST", "/api/v1/publish", &body.to_string())?)?;
    print.answer(answer, |PublishedAnswer { reason_code, .. }| {
        let nobody = reason_code == Some(ReasonCode::NO_MATCHING_SUBSCRIBERS.byte());
        if nobody { "published; nobody is subscribed to the topic" } else { "published" }.to_owned()
    })
}

/// Returns the content of a file, or of standard input for `-`. Errors: the file cannot be read, or
/// is too large.
pub(super) fn content(file: &Path) -> Result<Vec<u8>, CtlError> {
    let mut bytes = Vec::new();
    let read = match file.as_os_str() == "-" {
        true => std::io::stdin().lock().take(CONTENT + 1).read_to_end(&mut bytes),
        false => std::fs::File::open(file).and_then(|file| file.take(CONTENT + 1).read_to_end(&mut bytes)),
    };
    let name = file.display();
    match read {
        Ok(length) if length as u64 <= CONTENT => Ok(bytes),
        Ok(_) => Err(CtlError::Argument(format!("{name}: it has more than {CONTENT} bytes"))),
        Err(error) => Err(CtlError::Argument(format!("{name}: {error}"))),
    }
}
