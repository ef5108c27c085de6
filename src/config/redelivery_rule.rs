//! `[[redelivery.rules]]`: exceptions by client id, user name and topic, and what is wrong with one, told by its number.

use super::layer::{origin, written};
use super::problem::Problem;
use super::redelivery::{DEAD_LETTER_CAUSES, ON_ACK_TIMEOUT, ON_EXHAUSTED, OnAckTimeout, OnExhausted};
use super::schema::{Rule, days};
use crate::mqtt::session::rules::{self, Pattern};
use crate::mqtt::topic::TopicFilter;
use config::{Map, Value, ValueKind};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::time::Duration;

/// One rule. What it does not say it does not ask for, and leaves to the rules and settings below it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RedeliveryRule {
    /// A glob over client ids.
    pub client_id: Option<Glob>,
    /// A glob over user names; a client that names no user is none of those.
    pub user_name: Option<Glob>,
    /// A topic filter.
    pub topic: Option<String>,
    /// Whether a client's own wish beats the `interval` and `ack_timeout` of a rule with a `topic`. It always beats those of
    /// a rule without.
    pub client_may_override: bool,
    #[serde(with = "super::duration::option")]
    pub interval: Option<Duration>,
    pub backoff: Option<f64>,
    /// For whole sessions: not with `topic`.
    #[serde(with = "super::duration::option")]
    pub min_interval: Option<Duration>,
    #[serde(with = "super::duration::option")]
    pub max_interval: Option<Duration>,
    pub jitter: Option<f64>,
    pub attempts: Option<u16>,
    pub on_exhausted: Option<OnExhausted>,
    /// For whole sessions: not with `topic`.
    pub resends_per_tick: Option<u32>,
    #[serde(with = "super::duration::option")]
    pub ack_timeout: Option<Duration>,
    #[serde(with = "super::duration::option")]
    pub max_ack_timeout: Option<Duration>,
    pub on_ack_timeout: Option<OnAckTimeout>,
    pub negative_ack: Option<bool>,
    pub dead_letters: Option<Vec<String>>,
}

/// A glob that was read, written as it was.
#[derive(Clone, Debug, PartialEq)]
pub struct Glob(pub Pattern);

impl Serialize for Glob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.as_str())
    }
}

impl<'de> Deserialize<'de> for Glob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Glob, D::Error> {
        String::deserialize(deserializer)?.parse().map(Glob).map_err(serde::de::Error::custom)
    }
}

/// What a rule may be asked by; one that asks for nothing concerns all.
const CONDITIONS: [(&str, Rule); 3] =
    [("client_id", Rule::Glob), ("user_name", Rule::Glob), ("topic", Rule::TopicFilter)];

const OVERRIDE: (&str, Rule) = ("client_may_override", Rule::Boolean);

/// What it may set; each takes what the key of this name in `[redelivery]` takes.
const SETTINGS: [(&str, Rule); 13] = [
    ("interval", Rule::DurationOrOff(0, days(1))),
    ("backoff", Rule::Number(1.0, 10.0)),
    ("min_interval", Rule::Duration(1, days(1))),
    ("max_interval", Rule::Duration(0, days(7))),
    ("jitter", Rule::Number(0.0, 1.0)),
    ("attempts", Rule::Integer(0, 65_535)),
    ("on_exhausted", Rule::OneOf(ON_EXHAUSTED)),
    ("resends_per_tick", Rule::Integer(1, 65_535)),
    ("ack_timeout", Rule::DurationOrOff(0, days(1))),
    ("max_ack_timeout", Rule::Duration(0, days(7))),
    ("on_ack_timeout", Rule::OneOf(ON_ACK_TIMEOUT)),
    ("negative_ack", Rule::Boolean),
    ("dead_letters", Rule::SomeOf(DEAD_LETTER_CAUSES)),
];

/// Settings of a session as a whole.
const OF_SESSIONS: [&str; 2] = ["min_interval", "resends_per_tick"];

/// A first spacing, and what the spacing grows to at most.
const GROWTH: [(&str, &str); 2] = [("interval", "max_interval"), ("ack_timeout", "max_ack_timeout")];

/// Whether it is a topic filter that a message can match: shares are subscriptions'.
pub(super) fn is_topic_filter(text: &str) -> bool {
    TopicFilter::parse(text, usize::MAX).is_ok_and(|filter| !filter.is_shared())
}

/// All that is wrong with the value of `redelivery.rules`.
pub(super) fn problems(value: &Value) -> Vec<Problem> {
    let source = || origin(value);
    let ValueKind::Array(items) = &value.kind else {
        return vec![not_allowed(
            source(),
            "redelivery.rules",
            value,
            "tables in a file, each [[redelivery.rules]]",
        )];
    };
    let mut problems = Vec::new();
    if items.len() > rules::MOST {
        let allowed = format!("{} rules at most; here are {}", rules::MOST, items.len());
        problems.push(not_allowed(source(), "redelivery.rules", value, &allowed));
    }
    for (at, item) in items.iter().enumerate() {
        let name = format!("redelivery.rules, rule {}", at + 1);
        match &item.kind {
            ValueKind::Table(fields) => problems.extend(problems_of(&name, &source(), item, fields)),
            _ => problems.push(not_allowed(
                source(),
                &name,
                item,
                "a table, [[redelivery.rules]] with its keys below it",
            )),
        }
    }
    problems
}

fn problems_of(name: &str, source: &str, item: &Value, fields: &Map<String, Value>) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut refuse = |key: &str, value: &Value, allowed: &str| {
        problems.push(not_allowed(source.to_owned(), &format!("{name}: {key}"), value, allowed));
    };
    let mut names: Vec<&String> = fields.keys().collect();
    names.sort();
    let has = |key: &str| fields.contains_key(key);
    for key in names {
        let value = &fields[key];
        let known = CONDITIONS.iter().chain(&SETTINGS).chain([&OVERRIDE]).find(|(name, _)| name == key);
        match known {
            None => {}
            Some((_, rule)) if !rule.admits(value) => refuse(key, value, &rule.to_string()),
            Some(_) if has("topic") && OF_SESSIONS.contains(&key.as_str()) => {
                refuse(key, value, "in a rule without topic: it is a session's as a whole");
            }
            Some(_) if key == OVERRIDE.0 && !(has("topic") && (has("interval") || has("ack_timeout"))) => {
                refuse(
                    key,
                    value,
                    "in a rule with topic and interval or ack_timeout: elsewhere a wish counts in any case",
                );
            }
            Some(_) => {}
        }
    }
    for (first, most) in GROWTH {
        let duration = |key: &str| super::duration::parse(&fields.get(key)?.clone().into_string().ok()?).ok();
        if let (Some(from), Some(to), Some(value)) = (duration(first), duration(most), fields.get(most))
            && to < from
        {
            refuse(most, value, &format!("at least the {first} of the same rule"));
        }
    }
    if !SETTINGS.iter().any(|(key, _)| has(key)) {
        let all: Vec<&str> = SETTINGS.iter().map(|(key, _)| *key).collect();
        problems.push(not_allowed(
            source.to_owned(),
            name,
            item,
            &format!("one that sets something: {}", all.join(", ")),
        ));
    }
    let known: Vec<&str> =
        CONDITIONS.iter().chain(&SETTINGS).chain([&OVERRIDE]).map(|(key, _)| *key).collect();
    let mut unknown: Vec<&String> = fields.keys().filter(|key| !known.contains(&key.as_str())).collect();
    unknown.sort();
    for key in unknown {
        problems.push(Problem::UnknownKey {
            source_name: source.to_owned(),
            key: format!("{name}: {key}"),
            hint: format!("a rule holds {}", known.join(", ")),
        });
    }
    problems
}

fn not_allowed(source_name: String, key: &str, value: &Value, allowed: &str) -> Problem {
    Problem::NotAllowed {
        source_name,
        key: key.to_owned(),
        value: written(value),
        allowed: allowed.to_owned(),
    }
}
