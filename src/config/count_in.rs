//! "15 in 1m for 5m": a number of events within a time, and the time for which the one who exceeds
//! it is refused.

use super::duration;
use super::value::{self, Field};
use crate::access::strikes::StrikeRule;
use config::{Value, ValueKind};
use std::time::Duration;

/// The words of a refusal, as the end of "must be ...".
pub(super) const WORDS: &str = "a number within a time, such as \"100 in 10s\", or with the time of the refusal, \
                                such as \"15 in 1m for 5m\" (1 to 1000000; times from 1s to 1d)";

/// Returns true if the value is such a text.
pub(super) fn is_rule(value: &Value) -> bool {
    StrikeRule::read(value).is_some()
}

impl Field for StrikeRule {
    fn read(value: &Value) -> Option<StrikeRule> {
        let time = |text: &str| {
            let times = Duration::from_secs(1)..=Duration::from_secs(86_400);
            duration::parse(text).ok().filter(|time| times.contains(time))
        };
        let words: Vec<&str> = value::text(value)?.split_whitespace().collect();
        let (limit, window, block) = match *words.as_slice() {
            [limit, "in", window] => (limit, window, window),
            [limit, "in", window, "for", block] => (limit, window, block),
            _ => return None,
        };
        let limit = limit.parse().ok().filter(|limit| (1..=1_000_000).contains(limit))?;
        Some(StrikeRule { limit, window: time(window)?, block: time(block)? })
    }

    fn write(&self) -> ValueKind {
        let window = duration::format(self.window);
        let block = match self.block == self.window {
            true => String::new(),
            false => format!(" for {}", duration::format(self.block)),
        };
        ValueKind::String(format!("{} in {window}{block}", self.limit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_written_as_it_is_read() {
        for text in ["100 in 10s", "15 in 1m for 5m"] {
            let rule = StrikeRule::read(&Value::new(None, text)).expect(text);
            assert_eq!(rule.write(), ValueKind::String(text.to_owned()));
        }
        for text in ["", "15", "15 in", "0 in 1m", "15 in 1m for", "15 in 0s", "15 in 1m for 2d", "x in 1m"] {
            assert!(!is_rule(&Value::new(None, text)), "{text}");
        }
    }
}
