//! What may be written: every key with its rule. The structs say what a key means; the rules say which values it takes, and
//! say so to the operator in the same words whatever the value came from.

use super::size::ByteSize;
use super::{
    duration, expiry, keep_alive, limits, listeners, log, redelivery, redelivery_rule, runtime, store, sys,
};
use crate::mqtt::session::rules::Pattern;
use config::{Value, ValueKind};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;
use tracing_subscriber::filter::{EnvFilter, LevelFilter};

/// One key by its dotted path, `section.key`.
pub(super) struct Key {
    pub(super) path: &'static str,
    pub(super) rule: Rule,
}

impl Key {
    pub(super) const fn new(path: &'static str, rule: Rule) -> Key {
        Key { path, rule }
    }
}

/// The values a key takes; bounds are inclusive, durations in milliseconds unless they are whole seconds.
pub(super) enum Rule {
    Boolean,
    Integer(i64, i64),
    Number(f64, f64),
    Duration(u64, u64),
    /// As `Duration`; zero, also written "off", turns the thing off.
    DurationOrOff(u64, u64),
    /// A duration that crosses the wire as a number of seconds; the bounds are in seconds.
    WholeSeconds(u64, u64),
    Size(u64, u64),
    /// As `Size`; "0 B" sets none.
    SizeOrNone(u64, u64),
    /// A path, or nothing.
    Directory,
    OneOf(&'static [&'static str]),
    /// A list of some of these words, none twice; it may be empty.
    SomeOf(&'static [&'static str]),
    Addresses,
    LogLevel,
    Glob,
    TopicFilter,
    /// [`redelivery_rule::problems`] says what is wrong with them.
    RedeliveryRules,
}

pub(super) const fn millis(n: u64) -> u64 {
    n
}

pub(super) const fn seconds(n: u64) -> u64 {
    n * 1000
}

pub(super) const fn days(n: u64) -> u64 {
    n * 86_400_000
}

/// Every key there is, section by section.
pub(super) fn keys() -> impl Iterator<Item = &'static Key> {
    let sections = [
        runtime::KEYS,
        listeners::KEYS,
        limits::KEYS,
        keep_alive::KEYS,
        expiry::KEYS,
        redelivery::KEYS,
        store::KEYS,
        sys::KEYS,
        log::KEYS,
    ];
    sections.into_iter().flatten()
}

impl Rule {
    /// Whether `value`, typed as it stood in a file, is one of those allowed.
    pub(super) fn admits(&self, value: &Value) -> bool {
        match (self, &value.kind) {
            (Rule::Boolean, ValueKind::Boolean(_)) => true,
            (Rule::Integer(low, high), ValueKind::I64(n)) => (low..=high).contains(&n),
            (Rule::Number(low, high), ValueKind::Float(n)) => (low..=high).contains(&n),
            #[expect(clippy::cast_precision_loss, reason = "bounds of numbers are far below 2^52")]
            (Rule::Number(low, high), ValueKind::I64(n)) => (*low..=*high).contains(&(*n as f64)),
            (Rule::Addresses, ValueKind::Array(items)) => are_addresses(items),
            (Rule::SomeOf(words), ValueKind::Array(items)) => are_words(words, items),
            (Rule::RedeliveryRules, _) => redelivery_rule::problems(value).is_empty(),
            (rule, ValueKind::String(text)) => rule.admits_text(text),
            _ => false,
        }
    }

    fn admits_text(&self, text: &str) -> bool {
        match self {
            Rule::Duration(low, high) => {
                !text.eq_ignore_ascii_case("off") && is_duration_within(text, millis_range(*low, *high))
            }
            Rule::DurationOrOff(low, high) => is_duration_within(text, millis_range(*low, *high)),
            Rule::WholeSeconds(low, high) => {
                let range = (Duration::from_secs(*low), Duration::from_secs(*high));
                is_duration_within(text, range) && duration::parse(text).is_ok_and(|d| d.subsec_millis() == 0)
            }
            Rule::Size(low, high) => text.parse().is_ok_and(|ByteSize(n)| (low..=high).contains(&&n)),
            Rule::SizeOrNone(low, high) => {
                text.parse().is_ok_and(|ByteSize(n)| n == 0 || (low..=high).contains(&&n))
            }
            Rule::Directory => !text.contains('\0'),
            Rule::OneOf(words) => words.contains(&text),
            Rule::LogLevel => is_log_level(text),
            Rule::Glob => text.parse::<Pattern>().is_ok(),
            Rule::TopicFilter => redelivery_rule::is_topic_filter(text),
            Rule::Boolean | Rule::Integer(..) | Rule::Number(..) => false,
            Rule::Addresses | Rule::SomeOf(_) | Rule::RedeliveryRules => false,
        }
    }

    /// A text from the environment or a flag as the type the key has; left as text where it does not read as that type,
    /// so that [`Rule::admits`] refuses it and the operator sees what was written.
    pub(super) fn read(&self, text: &str) -> ValueKind {
        let typed = match self {
            Rule::Boolean => text.parse().ok().map(ValueKind::Boolean),
            Rule::Integer(..) => text.parse().ok().map(ValueKind::I64),
            Rule::Number(..) => text.parse().ok().map(ValueKind::Float),
            Rule::Addresses => {
                let items = text.split(',').map(|item| Value::new(None, item.trim()));
                Some(ValueKind::Array(items.collect()))
            }
            Rule::SomeOf(_) => {
                let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
                Some(ValueKind::Array(items.map(|item| Value::new(None, item)).collect()))
            }
            _ => None,
        };
        typed.unwrap_or_else(|| ValueKind::String(text.to_owned()))
    }
}

fn millis_range(low: u64, high: u64) -> (Duration, Duration) {
    (Duration::from_millis(low), Duration::from_millis(high))
}

fn is_duration_within(text: &str, (low, high): (Duration, Duration)) -> bool {
    duration::parse(text).is_ok_and(|d| low <= d && d <= high)
}

fn are_words(words: &[&str], items: &[Value]) -> bool {
    let text = |item: &Value| match &item.kind {
        ValueKind::String(text) => Some(text.clone()),
        _ => None,
    };
    let once = |at: usize| !items[..at].iter().any(|other| text(other) == text(&items[at]));
    let is_word = |item: &Value| text(item).is_some_and(|text| words.contains(&text.as_str()));
    items.iter().enumerate().all(|(at, item)| is_word(item) && once(at))
}

/// At least one, each an IP address with a port, none twice (port 0 may be: each takes a port of its own).
fn are_addresses(items: &[Value]) -> bool {
    let mut seen = Vec::with_capacity(items.len());
    for item in items {
        let ValueKind::String(text) = &item.kind else { return false };
        let Ok(address) = text.parse::<SocketAddr>() else { return false };
        if address.port() != 0 && seen.contains(&address) {
            return false;
        }
        seen.push(address);
    }
    !seen.is_empty()
}

/// A bare word must be a level: the filter would take a mistyped one for the name of a module, and log nothing.
fn is_log_level(text: &str) -> bool {
    let directive_or_level = |part: &str| part.contains(['=', '[']) || part.parse::<LevelFilter>().is_ok();
    !text.is_empty()
        && text.split(',').all(|part| directive_or_level(part.trim()))
        && EnvFilter::builder().parse(text).is_ok()
}

impl fmt::Display for Rule {
    /// What is allowed, as the end of "must be ...".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let span = |(low, high)| format!("from {} to {}", duration::format(low), duration::format(high));
        match self {
            Rule::Boolean => write!(f, "true or false"),
            Rule::Integer(low, high) => write!(f, "a whole number from {low} to {high}"),
            Rule::Number(low, high) => write!(f, "a number from {low:.1} to {high:.1}"),
            Rule::Duration(low, high) => {
                write!(
                    f,
                    "a duration with a unit, such as \"20s\" (ms, s, m, h, d), {}",
                    span(millis_range(*low, *high))
                )
            }
            Rule::DurationOrOff(low, high) => {
                let span = span(millis_range(*low, *high));
                write!(f, "a duration with a unit, such as \"20s\" (ms, s, m, h, d), {span}, or \"off\"")
            }
            Rule::WholeSeconds(low, high) => {
                let span = span((Duration::from_secs(*low), Duration::from_secs(*high)));
                write!(f, "a duration of whole seconds with a unit, such as \"20s\" (s, m, h, d), {span}")
            }
            Rule::Size(low, high) => {
                let (low, high) = (ByteSize(*low), ByteSize(*high));
                write!(
                    f,
                    "a size with a unit, such as \"64 KiB\" (B, KiB, MiB, GiB, TiB), from {low} to {high}"
                )
            }
            Rule::SizeOrNone(low, high) => {
                let (low, high) = (ByteSize(*low), ByteSize(*high));
                write!(
                    f,
                    "a size with a unit, such as \"1 GiB\" (B, KiB, MiB, GiB, TiB), from {low} to {high}, or \"0 B\" for none"
                )
            }
            Rule::Directory => write!(f, "the path of a directory, or \"\" for the default"),
            Rule::OneOf(words) => {
                let words: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
                write!(f, "{}", words.join(" or "))
            }
            Rule::SomeOf(words) => {
                let words: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
                write!(f, "a list of some of {}, none twice", words.join(", "))
            }
            Rule::Glob => {
                write!(
                    f,
                    "a glob, such as \"sensor-*\": * any run, ? one byte, [a-z] one of these, {{a,b}} either"
                )
            }
            Rule::TopicFilter => {
                write!(f, "a topic filter, such as \"alarms/#\", and no shared one")
            }
            Rule::RedeliveryRules => write!(f, "tables in a file, each [[redelivery.rules]]"),
            Rule::Addresses => {
                write!(
                    f,
                    "one or more different IP:PORT, such as \"127.0.0.1:1883\" or \"[::1]:1883\" (port 0: a free one)"
                )
            }
            Rule::LogLevel => {
                write!(
                    f,
                    "\"error\", \"warn\", \"info\", \"debug\", \"trace\" or directives such as \"info,homing=debug\""
                )
            }
        }
    }
}
