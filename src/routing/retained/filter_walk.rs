//! A filter's way through the ordered topics: does this topic match, and if not, which is the next that
//! could?
//!
//! Topics are in the order of the retained store: levels parted by U+0000, compared as bytes.

/// What a topic says to a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Look at the next topic.
    Matches,
    /// No topic before the one written to `next` matches; it is after the topic looked at.
    Seek,
    /// Neither this nor any later topic matches.
    Done,
}

enum Level<'a> {
    Literal(&'a [u8]),
    Single,
    Multi,
}

pub(super) struct FilterWalk<'a> {
    levels: Vec<Level<'a>>,
}

impl<'a> FilterWalk<'a> {
    pub fn new(filter: &'a str) -> FilterWalk<'a> {
        let level = |level: &'a str| match level {
            "+" => Level::Single,
            "#" => Level::Multi,
            literal => Level::Literal(literal.as_bytes()),
        };
        FilterWalk { levels: filter.split('/').map(level).collect() }
    }

    /// The least key that could match: the levels before the first wildcard.
    pub fn start(&self, at: &mut Vec<u8>) {
        at.clear();
        for (i, level) in self.levels.iter().enumerate() {
            let Level::Literal(literal) = level else { break };
            if i > 0 {
                at.push(0);
            }
            at.extend_from_slice(literal);
        }
    }

    pub fn step(&self, topic: &[u8], next: &mut Vec<u8>) -> Step {
        // 5.0 and 3.1.1 [MQTT-4.7.2-1]: past all that begins with `$`.
        if topic.first() == Some(&b'$') && !matches!(self.levels.first(), Some(Level::Literal(_))) {
            return seek(next, &[], &[b'$' + 1]);
        }
        let mut levels = topic.split(|b| *b == 0);
        // Where the level looked at begins, and where the last one that `+` stands for ends.
        let mut start = 0;
        let mut single_end = None;
        for wanted in &self.levels {
            if matches!(wanted, Level::Multi) {
                return Step::Matches;
            }
            let Some(level) = levels.next() else {
                // Too short: what could match is below it.
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

fn seek(next: &mut Vec<u8>, prefix: &[u8], suffix: &[u8]) -> Step {
    next.clear();
    next.extend_from_slice(prefix);
    next.extend_from_slice(suffix);
    Step::Seek
}

fn seek_below(next: &mut Vec<u8>, topic: &[u8], level: &[u8]) -> Step {
    seek(next, topic, &[0]);
    next.extend_from_slice(level);
    Step::Seek
}

/// Past everything under the level that the last `+` stands for; without a `+`, there is nothing more.
fn pass(next: &mut Vec<u8>, topic: &[u8], single_end: Option<usize>) -> Step {
    // Below the level all keys go on with 0, so 1 is past them and not past the next sibling.
    single_end.map_or(Step::Done, |end| seek(next, &topic[..end], &[1]))
}
