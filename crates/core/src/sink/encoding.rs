//! A message as JSON, or as the headers and the body of a request.

use crate::mqtt::codec::property;
use crate::mqtt::packet::{Property, Publish};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::{Serialize, Serializer};
use std::fmt::Write;

/// A header of a request: its name in lower case, and its value in visible ASCII.
pub type Header = (&'static str, String);

/// The longest header value that is made of text of a publisher, in bytes. Longer text is left out,
/// because services refuse requests with large heads.
const LONGEST_HEADER: usize = 4 << 10;

/// User Properties that become headers.
const USER_HEADERS: usize = 32;

/// The properties of a message that its publisher set.
#[derive(Default, Serialize)]
struct Forwarded<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_topic: Option<&'a str>,
    #[serde(
        rename = "correlation_data_base64",
        skip_serializing_if = "Option::is_none",
        serialize_with = "base64"
    )]
    correlation_data: Option<&'a [u8]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_expiry: Option<u32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    user_properties: Vec<(&'a str, &'a str)>,
    #[serde(skip)]
    is_text: bool,
}

impl<'a> Forwarded<'a> {
    fn of(publish: &'a Publish<'_>) -> Forwarded<'a> {
        let message_expiry = publish.properties.message_expiry;
        let mut all = Forwarded { message_expiry, ..Forwarded::default() };
        for property in property::iter(publish.properties.forwarded()) {
            match property {
                Property::ContentType(text) => all.content_type = Some(text),
                Property::ResponseTopic(topic) => all.response_topic = Some(topic),
                Property::CorrelationData(data) => all.correlation_data = Some(data),
                Property::UserProperty(name, value) => all.user_properties.push((name, value)),
                Property::PayloadFormatIndicator(format) => all.is_text = format == 1,
                _ => {}
            }
        }
        all
    }

    fn is_empty(&self) -> bool {
        let Forwarded {
            content_type, response_topic, correlation_data, message_expiry, user_properties, ..
        } = self;
        content_type.is_none()
            && response_topic.is_none()
            && correlation_data.is_none()
            && message_expiry.is_none()
            && user_properties.is_empty()
    }
}

#[derive(Serialize)]
struct Members<'a> {
    topic: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "base64")]
    payload_base64: Option<&'a [u8]>,
    qos: u8,
    retain: bool,
    timestamp: u64,
    #[serde(skip_serializing_if = "Forwarded::is_empty")]
    properties: Forwarded<'a>,
}

fn base64<S: Serializer>(bytes: &Option<&[u8]>, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&BASE64_STANDARD.encode(bytes.unwrap_or_default()))
}

/// Returns a message as a JSON object without its first character. `unix_ms` is the time of its
/// arrival. [`put_json`] adds the beginning, with the identifier, which is known later.
pub(super) fn json(publish: &Publish<'_>, unix_ms: u64) -> Vec<u8> {
    let text = std::str::from_utf8(publish.payload).ok();
    let members = Members {
        topic: publish.topic,
        payload: text,
        payload_base64: text.is_none().then_some(publish.payload),
        qos: publish.qos.bits(),
        retain: publish.retain,
        timestamp: unix_ms,
        properties: Forwarded::of(publish),
    };
    // Texts, numbers and lists are always written.
    let mut out = serde_json::to_vec(&members).unwrap_or_default();
    if !out.is_empty() {
        out.remove(0);
    }
    out
}

/// Appends the object of a message. `rest` is that of [`json`], and `id` needs no escapes.
pub(super) fn put_json(id: &str, rest: &[u8], out: &mut Vec<u8>) {
    out.extend(b"{\"id\":\"");
    out.extend(id.as_bytes());
    out.extend(b"\",");
    out.extend(rest);
}

/// Returns the headers of a message whose payload is the body of its request.
pub(super) fn headers(publish: &Publish<'_>, unix_ms: u64) -> Vec<Header> {
    let forwarded = Forwarded::of(publish);
    let is_visible = |text: &str| text.bytes().all(|byte| (0x20..0x7F).contains(&byte));
    let content_type = forwarded.content_type.filter(|text| !text.is_empty() && is_visible(text));
    let default = if forwarded.is_text { "text/plain; charset=utf-8" } else { "application/octet-stream" };
    let mut all = vec![
        ("content-type", content_type.unwrap_or(default).to_owned()),
        ("mqtt-topic", percent_encoded(publish.topic)),
        ("mqtt-qos", publish.qos.bits().to_string()),
        ("mqtt-retain", publish.retain.to_string()),
        ("mqtt-timestamp", unix_ms.to_string()),
    ];
    let expiry = forwarded.message_expiry.map(|seconds| seconds.to_string());
    let correlation = forwarded.correlation_data.map(|data| BASE64_STANDARD.encode(data));
    for (name, value) in [
        ("mqtt-message-expiry", expiry),
        ("mqtt-response-topic", forwarded.response_topic.map(percent_encoded)),
        ("mqtt-correlation-data", correlation),
    ] {
        all.extend(value.map(|value| (name, value)));
    }
    let user = forwarded.user_properties.iter().take(USER_HEADERS);
    all.extend(user.map(|(name, value)| {
        ("mqtt-user-property", format!("{}={}", percent_encoded(name), percent_encoded(value)))
    }));
    all.retain(|(name, value)| *name == "mqtt-topic" || value.len() <= LONGEST_HEADER);
    all
}

/// Returns a text in visible ASCII: every other byte of its UTF-8, `%` and `=` as `%XX`.
fn percent_encoded(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut out, byte| {
        if (0x21..0x7F).contains(&byte) && !b"%=".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqtt::packet::{PublishProperties, QoS};

    fn publish<'a>(payload: &'a [u8], properties: &[Property<'_>]) -> Publish<'a> {
        let mut forwarded = Vec::new();
        for property in properties {
            property::put(&mut forwarded, *property).expect("short");
        }
        Publish {
            dup: false,
            qos: QoS::AtLeastOnce,
            retain: true,
            topic: "a/\u{fc} \"1\"",
            packet_id: None,
            properties: PublishProperties { forwarded: forwarded.into(), ..PublishProperties::default() },
            payload,
        }
    }

    fn written(publish: &Publish<'_>) -> String {
        let mut out = Vec::new();
        put_json("7-1", &json(publish, 5), &mut out);
        let value: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
        assert_eq!(value["id"], "7-1");
        String::from_utf8(out).expect("JSON is UTF-8")
    }

    #[test]
    fn a_payload_that_is_text_is_a_string_and_another_is_base64() {
        assert_eq!(
            written(&publish(b"22.5", &[])),
            r#"{"id":"7-1","topic":"a/ü \"1\"","payload":"22.5","qos":1,"retain":true,"timestamp":5}"#
        );
        assert_eq!(
            written(&publish(b"\xFF\0", &[])),
            r#"{"id":"7-1","topic":"a/ü \"1\"","payload_base64":"/wA=","qos":1,"retain":true,"timestamp":5}"#
        );
    }

    #[test]
    fn properties_are_an_object_and_user_properties_keep_their_order() {
        let all = [
            Property::PayloadFormatIndicator(1),
            Property::UserProperty("b", "1"),
            Property::ContentType("text/csv"),
            Property::UserProperty("b", "2"),
            Property::CorrelationData(&[0xFF]),
            Property::ResponseTopic("r"),
        ];
        let text = written(&publish(b"", &all));
        let properties = r#""properties":{"content_type":"text/csv","response_topic":"r","correlation_data_base64":"/w==","user_properties":[["b","1"],["b","2"]]}}"#;
        assert!(text.ends_with(properties), "{text}");
    }

    #[test]
    fn headers_have_visible_ascii_alone() {
        let all = [
            Property::UserProperty("a=b", "c\r\nHost: x"),
            Property::ContentType("text/html\r\nX: y"),
            Property::UserProperty("long", &"x".repeat(5_000)),
        ];
        let headers = headers(&publish(b"", &all), 5);
        let expected = [
            ("content-type", "application/octet-stream"),
            ("mqtt-topic", "a/%C3%BC%20\"1\""),
            ("mqtt-qos", "1"),
            ("mqtt-retain", "true"),
            ("mqtt-timestamp", "5"),
            ("mqtt-user-property", "a%3Db=c%0D%0AHost:%20x"),
        ];
        let found: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        assert_eq!(found, expected);
    }
}
