//! The operator's rules: which settings of redelivery hold for which client, user and topic.
//!
//! For each setting the first rule in file order that names it and matches counts, whatever it matches by. Client and user
//! are compared once, at CONNECT; topics for each message, where the session has rules for topics at all.

use super::loss::LossCauses;
use super::retry::{OnAckTimeout, OnExhausted};
use super::terms::{SessionTerms, SetBy, Terms};
use globset::{GlobBuilder, GlobMatcher};
use hashbrown::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Rules at most: a set of them is the bits of one number.
pub const MOST: usize = 64;

/// Sets of rules beyond which those that no session has any more are forgotten.
const REMEMBERED: usize = 1024;

/// A glob over client ids or user names: `*` any run, `?` one byte, `[a-z]` one of these, `{one,other}` either, `\` takes
/// the next as it is.
///
/// A client names itself, so the time to match is linear in what it says: the glob becomes an automaton.
#[derive(Clone)]
pub struct Pattern {
    text: Box<str>,
    glob: GlobMatcher,
}

/// A glob that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidPattern(Box<str>);

impl Pattern {
    pub fn matches(&self, text: &str) -> bool {
        self.glob.is_match(text)
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl FromStr for Pattern {
    type Err = InvalidPattern;

    fn from_str(text: &str) -> Result<Pattern, InvalidPattern> {
        let built = GlobBuilder::new(text).literal_separator(false).backslash_escape(true).build();
        let glob = built.map_err(|error| InvalidPattern(error.kind().to_string().into()))?;
        Ok(Pattern { text: text.into(), glob: glob.compile_matcher() })
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Pattern) -> bool {
        self.text == other.text
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pattern({:?})", self.text)
    }
}

/// One rule: whom and what it concerns, and what it sets. `None` concerns all, and sets nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rule {
    pub client_id: Option<Pattern>,
    /// Matches no client that names no user.
    pub user_name: Option<Pattern>,
    /// A Topic Filter.
    pub topic: Option<Box<str>>,
    /// Whether a client's wish beats the interval and ack timeout that it sets for a topic.
    pub client_may_override: bool,
    pub interval: Option<Duration>,
    pub backoff: Option<f64>,
    /// For the whole session alone.
    pub min_interval: Option<Duration>,
    pub max_interval: Option<Duration>,
    pub jitter: Option<f64>,
    pub attempts: Option<u16>,
    pub on_exhausted: Option<OnExhausted>,
    /// For the whole session alone.
    pub resends_per_tick: Option<usize>,
    pub ack_timeout: Option<Duration>,
    pub max_ack_timeout: Option<Duration>,
    pub on_ack_timeout: Option<OnAckTimeout>,
    pub negative_ack: Option<bool>,
    pub dead_letters: Option<LossCauses>,
}

impl Rule {
    fn concerns(&self, client_id: &str, user_name: Option<&str>) -> bool {
        self.client_id.as_ref().is_none_or(|p| p.matches(client_id))
            && self.user_name.as_ref().is_none_or(|p| user_name.is_some_and(|name| p.matches(name)))
    }

    /// `defaults` with the first of the rules, in their order, for each setting.
    pub(super) fn settle<'a>(defaults: &Terms, rules: impl DoubleEndedIterator<Item = &'a Rule>) -> Terms {
        let mut terms = defaults.clone();
        // From the last to the first: what the first sets stands.
        rules.rev().for_each(|rule| rule.put(&mut terms));
        terms
    }

    fn put(&self, terms: &mut Terms) {
        fn set<T: Clone>(place: &mut T, value: &Option<T>) {
            if let Some(value) = value {
                place.clone_from(value);
            }
        }
        let by = match (&self.topic, self.client_may_override) {
            (None, _) => SetBy::Session,
            (Some(_), false) => SetBy::Topic,
            (Some(_), true) => SetBy::TopicUnlessAsked,
        };
        let Terms { retry, ack, negative_ack, dead_letters, interval_by, ack_timeout_by } = terms;
        set(interval_by, &self.interval.map(|_| by));
        set(ack_timeout_by, &self.ack_timeout.map(|_| by));
        set(&mut retry.interval, &self.interval);
        set(&mut retry.backoff, &self.backoff);
        set(&mut retry.min_interval, &self.min_interval);
        set(&mut retry.max_interval, &self.max_interval);
        set(&mut retry.jitter, &self.jitter);
        set(&mut retry.attempts, &self.attempts);
        set(&mut retry.on_exhausted, &self.on_exhausted);
        set(&mut retry.resends_per_tick, &self.resends_per_tick);
        set(&mut ack.timeout, &self.ack_timeout);
        set(&mut ack.max_timeout, &self.max_ack_timeout);
        set(&mut ack.on_timeout, &self.on_ack_timeout);
        set(negative_ack, &self.negative_ack);
        set(dead_letters, &self.dead_letters);
    }
}

/// All rules, and the terms they have led to so far: sessions that the same rules concern share theirs.
#[derive(Debug)]
pub struct Rules {
    defaults: Terms,
    rules: Vec<Arc<Rule>>,
    /// Of a client that is named by no rule: `common` are the bits of those that name nobody.
    nobody: Arc<SessionTerms>,
    common: u64,
    /// By the bits of the rules that concern them.
    known: HashMap<u64, Weak<SessionTerms>, foldhash::fast::FixedState>,
}

impl Rules {
    /// Rules beyond [`MOST`] are left out: configuration refuses them.
    pub fn new(defaults: &Terms, rules: &[Rule]) -> Rules {
        let rules: Vec<Arc<Rule>> = rules.iter().take(MOST).cloned().map(Arc::new).collect();
        let names_nobody = |r: &Rule| r.client_id.is_none() && r.user_name.is_none();
        let common = bits(&rules, names_nobody);
        let nobody = Arc::new(SessionTerms::new(defaults, chosen(&rules, common)));
        Rules { defaults: defaults.clone(), rules, nobody, common, known: HashMap::default() }
    }

    /// The terms of nobody in particular: of a new session before its client is known, of a shared group as a whole.
    pub fn nobody(&self) -> &Arc<SessionTerms> {
        &self.nobody
    }

    /// The terms of a client.
    pub fn resolve(&mut self, client_id: &str, user_name: Option<&str>) -> Arc<SessionTerms> {
        let bits = bits(&self.rules, |rule| rule.concerns(client_id, user_name));
        if bits == self.common {
            return Arc::clone(&self.nobody);
        }
        if let Some(known) = self.known.get(&bits).and_then(Weak::upgrade) {
            return known;
        }
        let terms = Arc::new(SessionTerms::new(&self.defaults, chosen(&self.rules, bits)));
        if self.known.len() >= REMEMBERED {
            self.known.retain(|_, terms| terms.strong_count() > 0);
        }
        self.known.insert(bits, Arc::downgrade(&terms));
        terms
    }

    /// Whether any terms may ask for a dead letter.
    pub fn keep_dead_letters(&self) -> bool {
        let makes = |negative_ack: bool, on_exhausted: OnExhausted, causes: LossCauses| {
            negative_ack || on_exhausted == OnExhausted::DeadLetter || !causes.is_empty()
        };
        let Terms { retry, negative_ack, dead_letters, .. } = &self.defaults;
        makes(*negative_ack, retry.on_exhausted, *dead_letters)
            || self.rules.iter().any(|r| {
                let on_exhausted = r.on_exhausted.unwrap_or(OnExhausted::Keep);
                makes(r.negative_ack == Some(true), on_exhausted, r.dead_letters.unwrap_or_default())
            })
    }
}

fn bits(rules: &[Arc<Rule>], holds: impl Fn(&Rule) -> bool) -> u64 {
    rules.iter().enumerate().fold(0, |bits, (at, rule)| bits | u64::from(holds(rule)) << at)
}

fn chosen(rules: &[Arc<Rule>], bits: u64) -> Vec<Arc<Rule>> {
    rules.iter().enumerate().filter(|(at, _)| bits >> at & 1 == 1).map(|(_, rule)| Arc::clone(rule)).collect()
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
