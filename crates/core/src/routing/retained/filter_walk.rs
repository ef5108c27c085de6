//! The walk of a filter through the ordered topics.
//!
//! For each topic the walk decides if the topic matches, and if not, which topic is the next that
//! can match. Topics are in the order of the retained messages: levels separated by U+0000,
//! compared as bytes.

/// The result of a filter for one topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The topic matches. The walk continues with the next topic.
    Matches,
    /// The topic does not match, and no topic before the key written to `next` does. That key is
    /// greater than the topic.
    Seek,
    /// Neither this nor any later topic matches.
    Done,
}

/// One level of a filter.
enum Level<'a> {
    Literal(&'a [u8]),
    /// `+`
    Single,
    /// `#`
    Multi,
}

/// A filter, split into levels.
pub(super) struct FilterWalk<'a> {
    levels: Vec<Level<'a>>,
}

impl<'a> FilterWalk<'a> {
    /// Splits a filter.
    pub(super) fn new(filter: &'a str) -> FilterWalk<'a> {
        let level = |level: &'a str| match level {
            "+" => Level::Single,
            "#" => Level::Multi,
            literal => Level::Literal(literal.as_bytes()),
        };
        FilterWalk { levels: filter.split('/').map(level).collect() }
    }

    /// Writes the least key that can match to `at`: the levels before the first wildcard.
    pub(super) fn start(&self, at: &mut Vec<u8>) {
        at.clear();
        for (i, level) in self.levels.iter().enumerate() {
            let Level::Literal(literal) = level else { break };
            if i > 0 {
                at.push(0);
            }
            at.extend_from_slice(literal);
        }
    }

    /// Compares a topic with the filter. If the result is [`Step::Seek`], writes the next key to
    /// `next`.
    pub(super) fn step(&self, topic: &[u8], next: &mut Vec<u8>) -> Step {
        // 5.0 and 3.1.1 [MQTT-4.7.2-1]: skips all topics that begin with `$`.
        if topic.first() == Some(&b'$') && !matches!(self.levels.first(), Some(Level::Literal(_))) {
            return seek(next, &[], &[b'$' + 1]);
        }
        let mut levels = topic.split(|b| *b == 0);
        // The offset of the present level, and of the end of the last level that a `+` accepted.
        let mut start = 0;
        let mut single_end = None;
        for wanted in &self.levels {
            if matches!(wanted, Level::Multi) {
                return Step::Matches;
            }
            let Some(level) = levels.next() else {
                // The topic is too short. Topics below it can match.
                let literal = if let Level::Literal(literal) = wanted { literal } else { &[][..] };
                return seek_below(next, topic, literal);
            };
            match wanted {
                Level::Literal(literal) if level < *literal => return seek(next, &topic[..start], literal),
                Level::Literal(literal) if level > *literal => return pass(next, topic, single_end),
                Level::Literal(_) | Level::Multi => {}
                Level::Single => single_end = Some(start + level.len()),
            }
            start += level.len() + 1;
        }
        if levels.next().is_none() { Step::Matches } else { pass(next, topic, single_end) }
    }
}

/// Seeks to the key `prefix` + `suffix`.
fn seek(next: &mut Vec<u8>, prefix: &[u8], suffix: &[u8]) -> Step {
    next.clear();
    next.extend_from_slice(prefix);
    next.extend_from_slice(suffix);
    Step::Seek
}

/// Seeks to a level directly below a topic.
fn seek_below(next: &mut Vec<u8>, topic: &[u8], level: &[u8]) -> Step {
    seek(next, topic, &[0]);
    next.extend_from_slice(level);
    Step::Seek
}

/// Skips everything below the level that the last `+` accepted. Without a `+`, the walk is
/// complete.
fn pass(next: &mut Vec<u8>, topic: &[u8], single_end: Option<usize>) -> Step {
    // All keys below the level continue with 0. So 1 is greater than all of them, and less than the
    // sibling.
    single_end.map_or(Step::Done, |end| seek(next, &topic[..end], &[1]))
}
