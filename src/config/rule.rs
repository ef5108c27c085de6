//! The values that a key takes, in the same words in a refusal and in the documents.

use super::duration;
use super::listener::are_networks;
use super::problem::Problem;
use super::size::ByteSize;
use crate::access::glob::Pattern;
use crate::mqtt::topic::TopicFilter;
use config::{Source, Value, ValueKind};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;
use tracing_subscriber::filter::{EnvFilter, LevelFilter};

/// The values of a key: a type of value within bounds, or a word in place of a zero that would mean
/// something else.
pub(super) struct ValueRule {
    pub(super) kind: ValueType,
    pub(super) word: Option<Word>,
}

/// A word that a key takes besides its kind of value. The field then holds the zero of its type.
#[derive(Clone, Copy)]
pub(super) struct Word {
    /// The spelling: `auto`, `unlimited`, `off`.
    pub(super) text: &'static str,
    /// The meaning of the word, in a few words.
    pub(super) meaning: &'static str,
}

/// A kind of value. Bounds are inclusive; durations are in milliseconds unless they are whole
/// seconds.
pub(super) enum ValueType {
    Boolean,
    Integer(i64, i64),
    Number(f64, f64),
    Duration(u64, u64),
    /// A duration that crosses the wire as a number of seconds; the bounds are in seconds.
    WholeSeconds(u64, u64),
    Size(u64, u64),
    /// The path of a file or directory.
    Path,
    OneOf(&'static [&'static str]),
    /// A list of some of these words, none twice. The list may be empty.
    SomeOf(&'static [&'static str]),
    Addresses,
    /// A list of host names without ports. The list may be empty.
    HostNames,
    /// A list of addresses or networks. The list may be empty.
    Networks,
    LogLevel,
    Glob,
    TopicFilter,
    /// Values that a function admits; the text says which, as the end of "must be ...".
    Checked(fn(&Value) -> bool, &'static str),
    /// Tables in a file with this name, checked by a function that returns every problem with them.
    Tables(&'static str, fn(&Value) -> Vec<Problem>),
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

impl ValueType {
    /// This kind and no word.
    pub(super) const fn only(self) -> ValueRule {
        ValueRule { kind: self, word: None }
    }

    /// This kind or a word.
    pub(super) const fn or(self, text: &'static str, meaning: &'static str) -> ValueRule {
        ValueRule { kind: self, word: Some(Word { text, meaning }) }
    }
}

impl ValueRule {
    /// True if `value`, typed as it stood in a file, is allowed.
    pub(super) fn admits(&self, value: &Value) -> bool {
        self.is_word(value) || self.kind.admits(value)
    }

    /// True if `value` is the word of this key.
    pub(super) fn is_word(&self, value: &Value) -> bool {
        matches!((&self.word, &value.kind), (Some(word), ValueKind::String(text)) if text.eq_ignore_ascii_case(word.text))
    }

    /// Returns a text from the environment or a flag as the type that the key has. A list or a
    /// quoted text is read as the file has it. A text of another type stays a text, so that
    /// [`ValueRule::admits`] refuses it with its original spelling.
    pub(super) fn read(&self, text: &str) -> ValueKind {
        if let Some(kind) = as_in_file(text) {
            return kind;
        }
        let typed = match self.kind {
            ValueType::Boolean => text.parse().ok().map(ValueKind::Boolean),
            ValueType::Integer(..) => text.parse().ok().map(ValueKind::I64),
            ValueType::Number(..) => text.parse().ok().map(ValueKind::Float),
            ValueType::Addresses if !self.is_word(&Value::new(None, text)) => {
                let items = text.split(',').map(|item| Value::new(None, item.trim()));
                Some(ValueKind::Array(items.collect()))
            }
            ValueType::SomeOf(_) | ValueType::HostNames | ValueType::Networks
                if !self.is_word(&Value::new(None, text)) =>
            {
                let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
                Some(ValueKind::Array(items.map(|item| Value::new(None, item)).collect()))
            }
            _ => None,
        };
        typed.unwrap_or_else(|| ValueKind::String(text.to_owned()))
    }

    /// Returns the values allowed in place of `value`, as the end of "must be ...". The word comes
    /// first if the key has a word for zero, and zero was written.
    pub(super) fn instead_of(&self, value: &Value) -> String {
        match &self.word {
            Some(word) if is_zero(value) => {
                format!("\"{}\" ({}), or {}", word.text, word.meaning, self.kind)
            }
            _ => self.to_string(),
        }
    }

    /// Returns the values in short, for the documents: "10ms to 1h, or "off": never".
    pub(super) fn span(&self) -> String {
        let span = self.kind.span();
        match &self.word {
            Some(word) => format!("{span}, or \"{}\": {}", word.text, word.meaning),
            None => span,
        }
    }
}

/// Returns a list or a quoted text as TOML has it. Returns `None` for every other text:
/// `[::1]:1883` is an address.
fn as_in_file(text: &str) -> Option<ValueKind> {
    if !text.starts_with(['[', '"', '\'']) {
        return None;
    }
    let line = format!("value = {text}");
    let parsed = config::File::from_str(&line, config::FileFormat::Toml).collect().ok()?;
    let [("value", value)] = parsed.iter().map(|(key, value)| (key.as_str(), value)).collect::<Vec<_>>()[..]
    else {
        return None;
    };
    matches!(value.kind, ValueKind::Array(_) | ValueKind::String(_)).then(|| value.kind.clone())
}

/// True for a host name: letters, digits, hyphens and dots.
fn is_host_name(value: &Value) -> bool {
    let is_allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'.';
    matches!(&value.kind, ValueKind::String(name) if !name.is_empty() && name.len() <= 253 && name.bytes().all(is_allowed))
}

/// True for operators' spellings of "none": 0, "0", "0s", "0 B" and "".
fn is_zero(value: &Value) -> bool {
    match &value.kind {
        ValueKind::I64(n) => *n == 0,
        ValueKind::Float(n) => *n == 0.0,
        ValueKind::String(text) => {
            let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == ' ');
            digits.chars().all(|c| c == '0' || c == '.') && (text.is_empty() || !digits.is_empty())
        }
        _ => false,
    }
}

impl ValueType {
    fn admits(&self, value: &Value) -> bool {
        match (self, &value.kind) {
            (ValueType::Boolean, ValueKind::Boolean(_)) => true,
            (ValueType::Integer(low, high), ValueKind::I64(n)) => (low..=high).contains(&n),
            (ValueType::Number(low, high), ValueKind::Float(n)) => (low..=high).contains(&n),
            #[expect(clippy::cast_precision_loss, reason = "bounds of numbers are far below 2^52")]
            (ValueType::Number(low, high), ValueKind::I64(n)) => (*low..=*high).contains(&(*n as f64)),
            (ValueType::Addresses, ValueKind::Array(items)) => are_addresses(items),
            (ValueType::HostNames, ValueKind::Array(items)) => items.iter().all(is_host_name),
            (ValueType::Networks, _) => are_networks(value),
            (ValueType::SomeOf(words), ValueKind::Array(items)) => are_words(words, items),
            (ValueType::Checked(admits, _), _) => admits(value),
            (ValueType::Tables(_, problems), _) => problems(value).is_empty(),
            (kind, ValueKind::String(text)) => kind.admits_text(text),
            _ => false,
        }
    }

    fn admits_text(&self, text: &str) -> bool {
        match self {
            ValueType::Duration(low, high) => is_duration_within(text, millis_range(*low, *high)),
            ValueType::WholeSeconds(low, high) => {
                is_duration_within(text, seconds_range(*low, *high))
                    && duration::parse(text).is_ok_and(|d| d.subsec_millis() == 0)
            }
            ValueType::Size(low, high) => text.parse().is_ok_and(|ByteSize(n)| (low..=high).contains(&&n)),
            ValueType::Path => !text.is_empty() && !text.contains('\0'),
            ValueType::OneOf(words) => words.contains(&text),
            ValueType::LogLevel => is_log_level(text),
            ValueType::Glob => text.parse::<Pattern>().is_ok(),
            ValueType::TopicFilter => is_topic_filter(text),
            ValueType::Boolean | ValueType::Integer(..) | ValueType::Number(..) => false,
            ValueType::Addresses
            | ValueType::HostNames
            | ValueType::Networks
            | ValueType::SomeOf(_)
            | ValueType::Checked(..)
            | ValueType::Tables(..) => false,
        }
    }

    /// Returns the range or the words, without examples.
    fn span(&self) -> String {
        let durations = |(low, high)| format!("{} to {}", duration::format(low), duration::format(high));
        match self {
            ValueType::Integer(low, high) => format!("{} to {}", grouped(*low), grouped(*high)),
            ValueType::Number(low, high) => format!("{low:.1} to {high:.1}"),
            ValueType::Duration(low, high) => durations(millis_range(*low, *high)),
            ValueType::WholeSeconds(low, high) => {
                format!("{}, in whole seconds", durations(seconds_range(*low, *high)))
            }
            ValueType::Size(low, high) => format!("{} to {}", ByteSize(*low), ByteSize(*high)),
            ValueType::Path => "a path".to_owned(),
            ValueType::SomeOf(words) => format!("a list of some of {}", quoted(words, ", ")),
            ValueType::LogLevel => {
                "error, warn, info, debug, trace, or directives such as info,homing::broker=debug".to_owned()
            }
            ValueType::Addresses => "one or more IP:PORT".to_owned(),
            ValueType::OneOf(words) => quoted(words, ", "),
            other => other.to_string(),
        }
    }
}

impl fmt::Display for ValueRule {
    /// Writes the allowed values, as the end of "must be ...".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)?;
        match &self.word {
            Some(word) => write!(f, ", or \"{}\" ({})", word.text, word.meaning),
            None => Ok(()),
        }
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueType::Boolean => write!(f, "true or false"),
            ValueType::Integer(..) => write!(f, "a whole number from {}", self.span()),
            ValueType::Number(..) => write!(f, "a number from {}", self.span()),
            ValueType::Duration(..) => {
                write!(f, "a duration with a unit, such as \"20s\" (ms, s, m, h, d), from {}", self.span())
            }
            ValueType::WholeSeconds(low, high) => {
                let (low, high) = seconds_range(*low, *high);
                let (low, high) = (duration::format(low), duration::format(high));
                write!(
                    f,
                    "a duration of whole seconds with a unit, such as \"20s\" (s, m, h, d), from {low} to {high}"
                )
            }
            ValueType::Size(..) => {
                let span = self.span();
                write!(f, "a size with a unit, such as \"64 KiB\" (B, KiB, MiB, GiB, TiB), from {span}")
            }
            ValueType::Path => write!(f, "a path"),
            ValueType::OneOf(words) => f.write_str(&quoted(words, " or ")),
            ValueType::SomeOf(words) => write!(f, "a list of some of {}, none twice", quoted(words, ", ")),
            ValueType::Glob => {
                write!(
                    f,
                    "a glob, such as \"sensor-*\": * any run, ? one byte, [a-z] one of these, {{a,b}} either"
                )
            }
            ValueType::TopicFilter => write!(f, "a topic filter, such as \"alarms/#\", and no shared one"),
            ValueType::Checked(_, words) => f.write_str(words),
            ValueType::Tables(name, _) => write!(f, "tables in a file, each [[{name}]]"),
            ValueType::Addresses => {
                write!(
                    f,
                    "one or more different IP:PORT, such as \"127.0.0.1:1883\" or \"[::1]:1883\" (port 0: a free one)"
                )
            }
            ValueType::HostNames => {
                write!(f, "a list of host names without ports, such as [\"broker.example.com\"]")
            }
            ValueType::Networks => {
                write!(f, "a list of addresses or networks, those of IPv4 in its own form: [\"10.0.0.0/8\"]")
            }
            ValueType::LogLevel => {
                write!(
                    f,
                    "\"error\", \"warn\", \"info\", \"debug\", \"trace\" or directives such as \"info,homing=debug\""
                )
            }
        }
    }
}

/// Writes a number as TOML takes it, from six digits on in groups of three: 1_000_000.
pub(super) fn grouped(number: i64) -> String {
    let digits = number.to_string();
    if digits.len() < 6 || number < 0 {
        return digits;
    }
    let ends = (digits.len() % 3..=digits.len()).step_by(3).filter(|end| *end > 0);
    let mut start = 0;
    let groups = ends.map(|end| &digits[std::mem::replace(&mut start, end)..end]);
    groups.collect::<Vec<_>>().join("_")
}

fn quoted(words: &[&str], between: &str) -> String {
    words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(between)
}

fn millis_range(low: u64, high: u64) -> (Duration, Duration) {
    (Duration::from_millis(low), Duration::from_millis(high))
}

fn seconds_range(low: u64, high: u64) -> (Duration, Duration) {
    (Duration::from_secs(low), Duration::from_secs(high))
}

/// Returns true for a duration within the bounds. "off" is no word: it is zero only in the times
/// that clients request.
fn is_duration_within(text: &str, (low, high): (Duration, Duration)) -> bool {
    !text.eq_ignore_ascii_case("off") && duration::parse(text).is_ok_and(|d| low <= d && d <= high)
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

/// Returns true for a list of at least one IP address with port, none twice. Port 0 may be
/// repeated, because each takes a free port of its own.
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

/// Returns true for a topic filter that is not shared. No message matches a shared filter, which is
/// only for subscriptions.
fn is_topic_filter(text: &str) -> bool {
    TopicFilter::parse(text, usize::MAX).is_ok_and(|filter| !filter.is_shared())
}

/// Returns true for a log level or directives. A bare word must be a level, because the filter
/// would take a mistyped level for the name of a module, and log nothing.
pub fn is_log_level(text: &str) -> bool {
    let directive_or_level = |part: &str| part.contains(['=', '[']) || part.parse::<LevelFilter>().is_ok();
    !text.is_empty()
        && text.split(',').all(|part| directive_or_level(part.trim()))
        && EnvFilter::builder().parse(text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_numbers_are_written_in_groups() {
        let written =
            [(0, "0"), (65_535, "65535"), (100_000, "100_000"), (1_234_567, "1_234_567"), (-1, "-1")];
        for (number, text) in written {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn zero_is_seen_in_whatever_form_it_is_written() {
        for text in ["", "0", "0s", "0 B", "0.0", "00ms"] {
            assert!(is_zero(&Value::new(None, text)), "{text:?}");
        }
        for text in ["s", "off", "10s", "1", "0x1", "/0"] {
            assert!(!is_zero(&Value::new(None, text)), "{text:?}");
        }
    }
}
