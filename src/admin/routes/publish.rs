//! /api/v1/publish: messages that a program publishes.

use super::json_answer::JsonAnswer;
use crate::admin::access::Caller;
use crate::admin::failed::Failed;
use crate::admin::publish::{OutgoingMessage, PublishVerdict, publish, publisher};
use crate::admin::request::{Asker, Object, read_body};
use crate::admin::state::{PublishSeat, State};
use crate::mqtt::codec::property;
use crate::mqtt::packet::{Property, Publish, PublishProperties, QoS, ReasonCode};
use crate::operators::publish_command::{NoPublish, PublishCommand};
use actix_web::dev::Payload;
use actix_web::web::{Bytes, Json};
use actix_web::{FromRequest, HttpMessage, HttpRequest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::future::{Ready, ready};
use utoipa::ToSchema;

/// Bytes of the body at most. With base64, a payload has three quarters of it.
pub(crate) const BODY: usize = 1 << 20;

/// Messages of one request at most.
const MESSAGES: usize = 256;

/// A message to publish.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "topic": "pumps/7/set", "payload": "on", "qos": 1 }))]
pub(crate) struct MessageOrder {
    /// A topic name, or `$delayed/<seconds>/<topic>`.
    #[schema(min_length = 1)]
    topic: String,
    #[serde(default)]
    payload: String,
    /// `text` for UTF-8 text, or `base64` for other bytes.
    #[serde(default)]
    payload_encoding: PayloadEncoding,
    /// The QoS of the message, as a client's PUBLISH has it.
    #[serde(default = "at_least_once")]
    #[schema(maximum = 2, default = 1)]
    qos: u8,
    /// True to keep the message as the retained message of its topic. An empty payload deletes it.
    #[serde(default)]
    retain: bool,
    #[serde(default)]
    #[schema(value_type = MessageProperties)]
    properties: Object<MessageProperties>,
}

fn at_least_once() -> u8 {
    1
}

/// The form of a payload in JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum PayloadEncoding {
    #[default]
    Text,
    Base64,
}

/// The properties of MQTT 5.0 that go to the subscribers.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
struct MessageProperties {
    /// 1 for a payload that is UTF-8 text, 0 for bytes.
    #[schema(maximum = 1)]
    payload_format_indicator: Option<u8>,
    /// Seconds after which the message is not delivered any more.
    message_expiry_interval: Option<u32>,
    content_type: Option<String>,
    /// A topic name.
    response_topic: Option<String>,
    /// Bytes, as base64.
    correlation_data: Option<String>,
    /// In their order. A name may come more than once.
    #[schema(default = json!([]), value_type = Vec<UserProperty>)]
    user_properties: Vec<Object<UserProperty>>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct UserProperty {
    name: String,
    value: String,
}

/// Messages to publish: at most 256.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "messages": [{ "topic": "pumps/7/set", "payload": "on" }] }))]
pub(crate) struct Messages {
    #[schema(min_items = 1, max_items = 256, value_type = Vec<MessageOrder>)]
    #[serde(deserialize_with = "few_messages")]
    messages: Vec<Object<MessageOrder>>,
}

/// Reads a list of messages up to its bound. Short messages take ten times the memory of their
/// JSON. Errors: the list is longer.
fn few_messages<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Object<MessageOrder>>, D::Error> {
    struct Few;
    impl<'de> Visitor<'de> for Few {
        type Value = Vec<Object<MessageOrder>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of messages")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let mut messages = Vec::new();
            while let Some(message) = list.next_element()? {
                if messages.len() >= MESSAGES {
                    return Err(A::Error::custom(format!("messages has more than {MESSAGES} messages")));
                }
                messages.push(message);
            }
            Ok(messages)
        }
    }
    from.deserialize_seq(Few)
}

/// The answer to a message.
#[derive(Deserialize, Serialize, ToSchema)]
#[schema(as = Published)]
pub(crate) struct PublishedAnswer {
    /// The name of the reason code in lower case, such as `success` or `no_matching_subscribers`.
    /// `busy` if the broker was too busy to publish it, `share-used` if too many messages of this
    /// publisher have no answer yet, and `unconfirmed` if the outcome is not known.
    #[schema(example = "success")]
    pub(crate) reason: String,
    /// The reason code that PUBACK would have; null for `busy`, `share-used` and `unconfirmed`.
    #[schema(required)]
    pub(crate) reason_code: Option<u8>,
    /// More about an answer that is no success.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) detail: Option<String>,
}

/// The answers to messages, in their order.
#[derive(Deserialize, Serialize, ToSchema)]
#[schema(as = PublishedMessages)]
pub(crate) struct PublishedMany {
    /// The number of messages that the broker has.
    pub(crate) published: usize,
    pub(crate) results: Vec<PublishedAnswer>,
}

impl FromRequest for PublishSeat {
    type Error = Failed;
    type Future = Ready<Result<PublishSeat, Failed>>;

    /// Takes the seat before the body is read, so that the bodies in memory are bounded, too.
    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let caller = request.extensions().get::<Caller>().cloned();
        let seat = match (request.app_data::<State>(), caller) {
            (Some(state), Some(caller)) => state.publish_seat(&caller),
            _ => Err(Failed::Unauthorized),
        };
        ready(seat)
    }
}

/// Publishes one message.
pub(crate) async fn one(
    caller: Asker,
    seat: PublishSeat,
    body: Bytes,
    state: State,
) -> JsonAnswer<PublishedAnswer> {
    let order: MessageOrder = read_body(&body, r#"{"topic": "pumps/7/set", "payload": "on", "qos": 1}"#)?;
    let message = order.outgoing(&publisher(&caller)).map_err(Failed::Parameter)?;
    let verdicts = publish(&state, &caller, vec![message], seat).await?;
    let verdict = verdicts.into_iter().next().unwrap_or(PublishVerdict::Busy);
    Ok(Json(PublishedAnswer::of(&verdict.alone()?)))
}

/// Publishes several messages.
pub(crate) async fn many(
    caller: Asker,
    seat: PublishSeat,
    body: Bytes,
    state: State,
) -> JsonAnswer<PublishedMany> {
    let Messages { messages } =
        read_body(&body, r#"{"messages": [{"topic": "pumps/7/set", "payload": "on"}]}"#)?;
    if messages.is_empty() {
        return Err(Failed::Parameter(format!("messages is empty, and must have 1 to {MESSAGES} messages")));
    }
    let publisher = publisher(&caller);
    let outgoing = |(at, Object(order)): (usize, Object<MessageOrder>)| {
        order.outgoing(&publisher).map_err(|what| Failed::Parameter(format!("messages[{at}]: {what}")))
    };
    let messages = messages.into_iter().enumerate().map(outgoing).collect::<Result<_, _>>()?;
    let verdicts = publish(&state, &caller, messages, seat).await?;
    let results: Vec<_> = verdicts.iter().map(PublishedAnswer::of).collect();
    let published = verdicts.iter().filter(|verdict| verdict.is_published()).count();
    Ok(Json(PublishedMany { published, results }))
}

impl PublishedAnswer {
    fn of(verdict: &PublishVerdict) -> PublishedAnswer {
        let reason_code = verdict.code().map(ReasonCode::byte);
        PublishedAnswer { reason: verdict.word(), reason_code, detail: verdict.detail() }
    }
}

impl MessageOrder {
    /// Returns the message for the broker. Errors: a field has a value that it cannot have.
    fn outgoing(self, publisher: &str) -> Result<OutgoingMessage, String> {
        let MessageOrder { topic, payload, payload_encoding, qos, retain, properties: Object(properties) } =
            self;
        let payload = match payload_encoding {
            PayloadEncoding::Text => payload.into_bytes(),
            PayloadEncoding::Base64 => decoded("payload", &payload)?,
        };
        if topic.is_empty() {
            return Err("the topic is empty".to_owned());
        }
        if let Some(other @ 2..) = properties.payload_format_indicator {
            return Err(format!("payload_format_indicator is {other}, and must be 0 or 1"));
        }
        let level = QoS::from_bits(qos).ok_or_else(|| format!("qos is {qos}, and must be 0, 1 or 2"))?;
        let facts = format!("qos={qos}, retain={retain}, bytes={}", payload.len());
        if properties.payload_format_indicator == Some(1) && std::str::from_utf8(&payload).is_err() {
            let what = "payload_format_indicator is 1, and the payload is not UTF-8 text";
            let refused = PublishVerdict::Reason(ReasonCode::PAYLOAD_FORMAT_INVALID, Some(what.to_owned()));
            return Ok(OutgoingMessage { topic, facts, command: Err(refused) });
        }
        let forwarded = properties.forwarded()?;
        let publish = Publish {
            dup: false,
            qos: level,
            retain,
            topic: &topic,
            packet_id: None,
            properties: PublishProperties {
                message_expiry: properties.message_expiry_interval,
                forwarded: forwarded.into(),
                ..PublishProperties::default()
            },
            payload: &payload,
        };
        let command = match PublishCommand::new(publisher, publish) {
            Err(NoPublish::Encode(error)) => return Err(error.to_string()),
            Err(NoPublish::Decode(error)) => {
                Err(PublishVerdict::Reason(error.reason_code(), Some(error.to_string())))
            }
            Ok(command) => Ok(command),
        };
        Ok(OutgoingMessage { topic, facts, command })
    }
}

impl MessageProperties {
    /// Returns the properties as they are in a packet, without Message Expiry Interval. Errors: a
    /// property has a value that no packet can have.
    fn forwarded(&self) -> Result<Vec<u8>, String> {
        let correlation = self.correlation_data.as_deref();
        let correlation = correlation.map(|text| decoded("correlation_data", text)).transpose()?;
        let user = self
            .user_properties
            .iter()
            .map(|Object(UserProperty { name, value })| Property::UserProperty(name, value));
        let given = [
            self.payload_format_indicator.map(Property::PayloadFormatIndicator),
            self.content_type.as_deref().map(Property::ContentType),
            self.response_topic.as_deref().map(Property::ResponseTopic),
            correlation.as_deref().map(Property::CorrelationData),
        ];
        let mut bytes = Vec::new();
        for property in given.into_iter().flatten().chain(user) {
            property::put(&mut bytes, property).map_err(|error| error.to_string())?;
        }
        Ok(bytes)
    }
}

fn decoded(field: &str, text: &str) -> Result<Vec<u8>, String> {
    STANDARD.decode(text).map_err(|error| format!("{field} is not base64: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_messages_is_read_up_to_its_bound() {
        let read = |count: usize| {
            let list = vec![r#"{"topic": "t"}"#; count].join(",");
            read_body::<Messages>(format!(r#"{{"messages": [{list}]}}"#).as_bytes(), "{}")
        };
        assert!(read(MESSAGES).is_ok_and(|read| read.messages.len() == MESSAGES));
        let Err(Failed::Parameter(what)) = read(MESSAGES + 1) else { panic!("it is too long") };
        assert!(what.contains("more than 256 messages"), "{what}");
    }
}
