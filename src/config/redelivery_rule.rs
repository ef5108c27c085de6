//! `[[redelivery.rules]]`: exceptions by client id, user name and topic. A problem in a rule is
//! reported with the number of the rule.
//!
//! A rule has the settings of `[redelivery]` itself. Each takes the values of the key of this name.

use super::keys::redelivery;
use super::problem::Problem;
use super::rule::{ValueRule, ValueType};
use super::table_list::{ListedTable, Problems, TableList};
use super::value::{self, Field};
use crate::access::glob::Pattern;
use crate::session::drops::{DropReason, DropReasons};
use crate::session::redelivery_rule::{self, RedeliveryRule};
use config::{Map, Value, ValueKind};

impl Field for Pattern {
    fn read(value: &Value) -> Option<Pattern> {
        value::text(value)?.parse().ok()
    }

    fn write(&self) -> ValueKind {
        ValueKind::String(self.as_str().to_owned())
    }
}

impl Field for DropReasons {
    fn read(value: &Value) -> Option<DropReasons> {
        Some(Vec::<DropReason>::read(value)?.into_iter().collect())
    }

    fn write(&self) -> ValueKind {
        self.iter().collect::<Vec<_>>().write()
    }
}

/// Reads and writes the settings of a rule. The values of a setting are those of the key with its
/// name in `[redelivery]`.
macro_rules! settings {
    ($($setting:ident,)*) => {
        /// The settings of a rule.
        const SETTINGS: &[&str] = &[$(stringify!($setting)),*];

        /// Returns the rule of a table. Returns `None` where a field has another type.
        fn from_fields(fields: &Map<String, Value>) -> Option<RedeliveryRule> {
            Some(RedeliveryRule {
                client_id: plain(fields, "client_id")?,
                user_name: plain(fields, "user_name")?,
                topic: plain(fields, "topic")?,
                client_may_override: plain(fields, OVERRIDE)?.unwrap_or(false),
                $($setting: setting(fields, stringify!($setting))?,)*
            })
        }

        /// The reverse of `from_fields`; missing fields stay missing.
        fn to_fields(rule: &RedeliveryRule) -> Map<String, Value> {
            let RedeliveryRule { client_id, user_name, topic, client_may_override, $($setting),* } = rule;
            let written = [
                ("client_id", client_id.as_ref().map(Field::write)),
                ("user_name", user_name.as_ref().map(Field::write)),
                ("topic", topic.as_ref().map(Field::write)),
                (OVERRIDE, client_may_override.then(|| true.write())),
                $({
                    let name = stringify!($setting);
                    let rule = rule_of(name);
                    (name, $setting.as_ref().zip(rule).map(|(field, rule)| value::write(rule, field)))
                },)*
            ];
            let written = written.into_iter().filter_map(|(name, kind)| Some((name, kind?)));
            written.map(|(name, kind)| (name.to_owned(), Value::new(None, kind))).collect()
        }
    };
}

settings! {
    interval,
    backoff,
    min_requested,
    max_backoff,
    jitter,
    attempts,
    on_exhausted,
    resends_per_tick,
    ack_timeout,
    max_ack_timeout,
    on_ack_timeout,
    negative_ack,
    dead_letters,
}

/// Returns the allowed values of the key of this name in `[redelivery]`.
fn rule_of(setting: &str) -> Option<&'static ValueRule> {
    redelivery::SECTION.keys.iter().find(|key| key.name() == setting).map(|key| &key.rule)
}

impl Field for RedeliveryRule {
    fn read(value: &Value) -> Option<RedeliveryRule> {
        match &value.kind {
            ValueKind::Table(fields) => from_fields(fields),
            _ => None,
        }
    }

    fn write(&self) -> ValueKind {
        ValueKind::Table(to_fields(self))
    }
}

/// Reads a field that may be left out. `None`: wrong type. `Some(None)`: missing.
fn plain<T: Field>(fields: &Map<String, Value>, name: &str) -> Option<Option<T>> {
    match fields.get(name) {
        Some(value) => T::read(value).map(Some),
        None => Some(None),
    }
}

/// As [`plain`], for a field that may have a word.
fn setting<T: Field + Default>(fields: &Map<String, Value>, name: &str) -> Option<Option<T>> {
    match fields.get(name) {
        Some(value) => value::read(rule_of(name)?, value).map(Some),
        None => Some(None),
    }
}

/// The conditions of a rule. A rule without conditions concerns all clients and topics.
static CONDITIONS: [(&str, ValueRule); 3] = [
    ("client_id", ValueType::Glob.only()),
    ("user_name", ValueType::Glob.only()),
    ("topic", ValueType::TopicFilter.only()),
];

const OVERRIDE: &str = "client_may_override";

static IS_OVERRIDE: ValueRule = ValueType::Boolean.only();

/// Returns the allowed values of a field of a rule, or `None` if a rule has no such field.
fn takes(name: &str) -> Option<&'static ValueRule> {
    CONDITIONS
        .iter()
        .find(|(condition, _)| *condition == name)
        .map(|(_, rule)| rule)
        .or_else(|| (name == OVERRIDE).then_some(&IS_OVERRIDE))
        .or_else(|| SETTINGS.contains(&name).then(|| rule_of(name)).flatten())
}

/// Returns the names of all fields of a rule.
fn names() -> impl Iterator<Item = &'static str> {
    CONDITIONS.iter().map(|(name, _)| *name).chain(SETTINGS.iter().copied()).chain([OVERRIDE])
}

/// Settings that concern a session as a whole, and so do not go with a topic.
const OF_SESSIONS: [&str; 2] = ["min_requested", "resends_per_tick"];

/// Pairs of a first duration and the duration to which it grows at most.
const GROWTH: [(&str, &str); 2] = [("interval", "max_backoff"), ("ack_timeout", "max_ack_timeout")];

const LIST: TableList = TableList { key: "redelivery.rules", item: "rule", most: redelivery_rule::MOST };

/// Returns every problem with the value of `redelivery.rules`.
pub(super) fn problems(value: &Value) -> Vec<Problem> {
    LIST.problems(value, check_rule)
}

fn check_rule(problems: &mut Problems, table: &ListedTable<'_>) {
    let ListedTable { name, fields, .. } = table;
    let mut refuse =
        |key: &str, value: &Value, allowed: &str| problems.refuse(&format!("{name}: {key}"), value, allowed);
    let mut present: Vec<&String> = fields.keys().collect();
    present.sort();
    let has = |key: &str| fields.contains_key(key);
    for key in &present {
        let value = &fields[*key];
        match takes(key) {
            None => {}
            Some(rule) if !rule.admits(value) => refuse(key, value, &rule.instead_of(value)),
            Some(_) if has("topic") && OF_SESSIONS.contains(&key.as_str()) => {
                refuse(key, value, "in a rule without topic: it is a session's as a whole");
            }
            Some(_) if *key == OVERRIDE && !(has("topic") && (has("interval") || has("ack_timeout"))) => {
                refuse(
                    key,
                    value,
                    "in a rule with topic and interval or ack_timeout: elsewhere a client's own request wins in any case",
                );
            }
            Some(_) => {}
        }
    }
    for (first, most) in GROWTH {
        let duration = |key: &str| super::duration::parse(value::text(fields.get(key)?)?).ok();
        if let (Some(from), Some(to), Some(value)) = (duration(first), duration(most), fields.get(most))
            && to < from
        {
            refuse(most, value, &format!("at least the {first} of the same rule"));
        }
    }
    if !SETTINGS.iter().any(|key| has(key)) {
        problems.refuse(name, table.value, &format!("one that sets something: {}", SETTINGS.join(", ")));
    }
    for key in present.into_iter().filter(|key| takes(key).is_none()) {
        problems.refuse_unknown(name, key, "a rule", names());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_rule_may_set_every_key_of_redelivery_but_the_rules() {
        let all = redelivery::SECTION.keys.iter().map(|key| key.name());
        assert_eq!(all.filter(|name| *name != "rules").collect::<Vec<_>>(), SETTINGS);
    }

    #[test]
    fn a_rule_is_written_as_it_was_read() {
        let rule = RedeliveryRule {
            client_id: "pump-*".parse().ok(),
            client_may_override: true,
            interval: Some(Duration::ZERO),
            attempts: Some(0),
            dead_letters: Some([DropReason::Expired].into_iter().collect()),
            ..RedeliveryRule::default()
        };
        let fields = to_fields(&rule);
        assert_eq!(fields.get("interval").and_then(value::text), Some("off"));
        assert_eq!(fields.get("attempts").and_then(value::text), Some("unlimited"));
        assert_eq!(from_fields(&fields), Some(rule));
    }
}
