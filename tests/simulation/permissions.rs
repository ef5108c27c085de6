//! Rules about topics that change while clients publish and receive, and a naive reading of them.
//!
//! The reading knows nothing of `crates/core/src/access`. A message is forbidden if all rules that
//! were in force in the time in question forbid it, and it must come if all rules of the plan allow
//! it. In between nobody knows, because a change and a packet may pass each other.

use crate::oracle::{Message, Oracle};
use crate::plan::Plan;
use crate::rng::Rng;
use crate::taken::Arrival;
use crate::topics::{self, Topic};
use crate::trace::trace;
use crate::world::{Event, World};
use homing::auth::acl_file;
use homing::login::access_rules::DeniedSubscribe;
use homing::login::acl_files::AclFiles;
use std::path::Path;
use std::sync::Arc;

/// The seeds that failed before there were rules (`FOUND`) play without them.
const PERMISSIONS: u64 = 0x40D_0000_0000;

/// The random numbers from which the rules of a seed are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleStream {
    /// A fifth of the seeds has rules.
    Common,
    /// Every seed has rules, from the numbers of this stream.
    Own(u64),
}

/// Filters of rules.
const FILTERS: [&str; 11] = ["#", "t/#", "t/+", "t/00", "t/1", "t/2", "s/#", "s/0", "s/1", "w/#", "w/0"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
}

/// The clients that a line is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Anonymous,
    User(usize),
    Everybody,
}

#[derive(Clone, Copy, Debug)]
struct Line {
    whose: Whose,
    word: &'static str,
    filter: &'static str,
}

impl Line {
    fn covers(&self, topic: Topic) -> bool {
        self.filter == "#" || topics::matches(self.filter, topic)
    }
}

/// One ACL file.
#[derive(Debug, Default)]
struct RuleSet(Vec<Line>);

impl RuleSet {
    fn new(rng: &mut Rng, clients: usize) -> RuleSet {
        let mut lines = Vec::new();
        let words = ["read", "write", "readwrite", "readwrite", "deny"];
        let mut draw = |whose, rng: &mut Rng| {
            // Most may do most.
            if whose != Whose::Everybody && rng.percent(60) {
                lines.push(Line { whose, word: "readwrite", filter: "#" });
            }
            for _ in 0..rng.below(3) {
                lines.push(Line { whose, word: rng.pick(&words), filter: rng.pick(&FILTERS) });
            }
        };
        draw(Whose::Anonymous, rng);
        (0..clients).for_each(|client| draw(Whose::User(client), rng));
        draw(Whose::Everybody, rng);
        RuleSet(lines)
    }

    fn text(&self) -> String {
        let mut text = String::new();
        let mut last = Whose::Anonymous;
        for Line { whose, word, filter } in &self.0 {
            match whose {
                Whose::User(client) if *whose != last => text += &format!("user {}\n", name(*client)),
                _ => {}
            }
            last = *whose;
            let keyword = if *whose == Whose::Everybody { "pattern" } else { "topic" };
            text += &format!("{keyword} {word} {filter}\n");
        }
        text
    }

    /// A client's own lines come first, then those for everybody; within each, what denies.
    fn allow(&self, user: Option<usize>, topic: Topic, access: Access) -> bool {
        let own = user.map_or(Whose::Anonymous, Whose::User);
        for whose in [own, Whose::Everybody] {
            let words = || self.0.iter().filter(|l| l.whose == whose && l.covers(topic)).map(|l| l.word);
            if words().any(|word| word == "deny") {
                return false;
            }
            let wanted = if access == Access::Read { "read" } else { "write" };
            if words().any(|word| word == wanted || word == "readwrite") {
                return true;
            }
        }
        false
    }

    fn files(&self) -> AclFiles {
        let acl = acl_file::parse(Path::new("acl"), self.text().as_bytes()).expect("lawful rules");
        AclFiles::from(Arc::new(acl))
    }
}

pub fn name(client: usize) -> String {
    format!("user-{client}")
}

/// The rules of a seed, and when each were in force.
#[derive(Default)]
pub struct Permissions {
    /// Empty if the seed has no rules.
    sets: Vec<RuleSet>,
    /// From when on each set is in force.
    since: Vec<(u64, usize)>,
    /// The set that is in force.
    current: usize,
    /// The user of each client.
    users: Vec<Option<usize>>,
}

impl Permissions {
    /// Draws rules, and users for clients that have none because nothing authenticates.
    pub fn new(
        (seed, stream): (u64, RuleStream),
        plan: &mut Plan,
        users: &mut [Option<String>],
        authenticates: bool,
    ) -> Permissions {
        let (mut rng, percent) = match stream {
            RuleStream::Common => (Rng::new(seed ^ PERMISSIONS), 20),
            RuleStream::Own(stream) => (Rng::new(seed ^ stream), 100),
        };
        // A work queue has an account of its own.
        if !rng.percent(percent) || plan.work.is_some() {
            return Permissions::default();
        }
        for (client, user) in users.iter_mut().enumerate().filter(|_| !authenticates) {
            *user = rng.percent(75).then(|| name(client));
        }
        let sets: Vec<_> = (0..rng.between(1, 4)).map(|_| RuleSet::new(&mut rng, users.len())).collect();
        let mut since = vec![(0, 0)];
        since.extend((1..sets.len()).map(|set| (rng.below(plan.chaos_ms), set)));
        since.sort();
        let access = &mut plan.settings.access;
        access.files = sets[since[0].1].files();
        access.counts_claims = !authenticates;
        access.on_denied_subscribe = DeniedSubscribe::Filter;
        let users = users.iter().enumerate().map(|(client, user)| user.as_ref().map(|_| client)).collect();
        Permissions { current: since[0].1, sets, since, users }
    }

    /// Whether some rules in force from `from` to `to` allow it.
    fn ever(&self, client: usize, topic: Topic, access: Access, from: u64, to: u64) -> bool {
        let ends = self.since.iter().skip(1).map(|(at, _)| *at).chain([u64::MAX]);
        let mut in_force =
            self.since.iter().zip(ends).filter(|((begin, _), end)| *begin <= to && *end >= from);
        self.sets.is_empty()
            || in_force.any(|((_, set), _)| self.sets[*set].allow(self.users[client], topic, access))
    }

    /// Whether the rules that are in force now let a client read a topic.
    pub fn may_read_now(&self, client: usize, topic: Topic) -> bool {
        let set = self.sets.get(self.current);
        set.is_none_or(|set| set.allow(self.users[client], topic, Access::Read))
    }

    /// Whether all rules of the plan allow it.
    pub fn always(&self, client: usize, topic: Topic, access: Access) -> bool {
        self.sets.iter().all(|set| set.allow(self.users[client], topic, access))
    }
}

impl Oracle {
    /// Whether the message is routed for certain, as far as rules go.
    pub fn may_always_be_sent(&self, message: &Message) -> bool {
        self.permissions.always(message.publisher, message.topic, Access::Write)
    }

    /// Whether a client gets messages of a topic for certain, as far as rules go.
    pub fn may_always_read(&self, client: usize, topic: Topic) -> bool {
        self.permissions.always(client, topic, Access::Read)
    }
}

impl World {
    pub fn plan_rule_changes(&mut self) {
        for (at, set) in self.oracle.permissions.since.clone().into_iter().skip(1) {
            self.schedule(at, Event::Rules { set });
        }
    }

    /// Other rules are in force in every shard.
    pub fn change_rules(&mut self, set: usize) {
        trace!(self, "rules: {}", self.oracle.permissions.sets[set].text());
        self.saw("the rules about topics change");
        let files = self.oracle.permissions.sets[set].files();
        self.plan.settings.access.files = files.clone();
        self.oracle.permissions.current = set;
        for shard in 0..self.nodes.len() {
            self.nodes[shard].core.permission_changes().replace_acls(files.clone());
            self.after_core(shard);
        }
    }

    /// A copy came: its publisher may write to its topic, and its receiver may read it.
    pub fn check_permitted(&mut self, client: usize, topic: Topic, copy: &Arrival) -> Result<(), String> {
        let permissions = &self.oracle.permissions;
        if permissions.sets.is_empty() {
            return Ok(());
        }
        // A change reaches what waits in a queue within some turns.
        let late = self.plan.late_ms() + 8 * self.plan.store_ms() + 2_000;
        let from = copy.appended.saturating_sub(late);
        // What was sent before may be sent again.
        if !copy.dup && !permissions.ever(client, topic, Access::Read, from, copy.appended) {
            return Err(format!("{copy:?} of {} may not be read", topic.name()));
        }
        if let Some(message) = self.oracle.messages.get(copy.message) {
            let from = message.first_sent.saturating_sub(message.delay.unwrap_or(0));
            let from = from.saturating_sub(self.oracle.unmeasured);
            if !permissions.ever(message.publisher, topic, Access::Write, from, copy.appended) {
                return Err(format!("{copy:?} of {} was not to be published: {message:?}", topic.name()));
            }
        }
        self.saw("a message comes that the rules allow");
        Ok(())
    }
}
