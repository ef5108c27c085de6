//! The text of `homing ctl wheel`.

use crate::admin::wheel::Deadlines;
use std::fmt::Write as _;

/// Lines for one round of the ring at most.
const LINES: f64 = 32.0;

/// Marks of the longest line.
const MARKS: u64 = 40;

/// Returns the answer of `/api/v1/expiry` as lines with marks: one line for each part of the next
/// round that has deadlines, and the totals.
pub(super) fn text(body: Deadlines) -> String {
    let each = (body.span / LINES).max(f64::MIN_POSITIVE);
    let mut parts: Vec<(u64, u64)> = Vec::new();
    for bucket in body.buckets {
        let part = (bucket.ends_in / each).floor().clamp(0.0, LINES) as u64;
        let keys = bucket.keys;
        match parts.last_mut().filter(|(last, _)| *last == part) {
            Some((_, sum)) => *sum += keys,
            None => parts.push((part, keys)),
        }
    }
    let most = parts.iter().map(|(_, keys)| *keys).max().unwrap_or(0).max(1);
    let mut out = String::new();
    let mut line = |name: &str, value: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{name:<14} {value}");
    };
    for (part, keys) in parts {
        let (from, to) = (part as f64 * each, (part + 1) as f64 * each);
        let marks = "#".repeat((keys * MARKS).div_ceil(most) as usize);
        line(&format!("{from:.0} to {to:.0} s"), &format!("{keys:>9} {marks}"));
    }
    let totals = [("later", body.later), ("overdue", body.overdue), ("keys", body.keys)];
    for (name, keys) in totals {
        line(name, &format!("{keys:>9}"));
    }
    for (kind, keys) in body.kinds {
        line(&kind, &format!("{keys:>9}"));
    }
    out.truncate(out.trim_end().len());
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn neighbouring_buckets_share_a_line_and_the_longest_line_is_full() {
        let bucket = |ends_in: f64, keys: u64| json!({ "ends_in": ends_in, "keys": keys, "kinds": {} });
        let body = json!({
            "tick": 0.25, "span": 256.0, "keys": 107, "later": 2, "overdue": 0, "kinds": { "session": 107 },
            "buckets": [bucket(0.25, 60), bucket(0.5, 40), bucket(60.0, 5)],
        });
        let text = text(serde_json::from_value(body).expect("deadlines"));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], format!("0 to 8 s             100 {}", "#".repeat(40)));
        assert_eq!(lines[1], "56 to 64 s             5 ##");
        assert!(lines.contains(&"keys                 107"), "{text}");
    }
}
