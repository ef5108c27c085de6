//! The few topics and filters of the simulation, and the naive answer to which match.

/// `t/00` to `t/2` for everybody, `s/0` and `s/1` for shared groups alone, `w/0` and `w/1` for
/// wills. `t/00` is long enough for a Topic Alias of the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Topic(pub u8);

pub const TOPICS: [&str; 7] = ["t/00", "t/1", "t/2", "s/0", "s/1", "w/0", "w/1"];
pub const FILTERS: [&str; 11] =
    ["t/00", "t/1", "t/2", "t/+", "t/#", "$share/g/s/0", "$share/g/s/+", "$share/h/s/0", "w/0", "w/+", "w/#"];

/// Topics that clients publish to themselves: all before those of wills.
pub const PUBLISHED: u64 = 5;

/// Topics of wills.
pub const WILLS: [Topic; 2] = [Topic(5), Topic(6)];

impl Topic {
    pub fn all() -> impl Iterator<Item = Topic> {
        (0..TOPICS.len() as u8).map(Topic)
    }

    pub fn name(self) -> &'static str {
        TOPICS[usize::from(self.0)]
    }

    pub fn of(name: &str) -> Option<Topic> {
        TOPICS.iter().position(|t| *t == name).map(|at| Topic(at as u8))
    }

    pub fn is_shared(self) -> bool {
        self.name().starts_with('s')
    }
}

pub fn is_share(filter: &str) -> bool {
    filter.starts_with("$share/")
}

pub fn matches(filter: &str, topic: Topic) -> bool {
    let plain = match filter.strip_prefix("$share/") {
        Some(rest) => rest.split_once('/').map_or("", |(_, filter)| filter),
        None => filter,
    };
    plain == topic.name() || (plain.ends_with('+') || plain.ends_with('#')) && plain[..2] == topic.name()[..2]
}

/// Shared groups that a topic may go to.
pub fn groups_of(topic: Topic) -> usize {
    FILTERS.iter().filter(|f| is_share(f) && matches(f, topic)).count()
}
