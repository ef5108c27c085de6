//! The operator's rules: which redelivery settings hold for which client, user and topic.
//!
//! For each setting, the first matching rule in file order wins, by whatever it matches. Client and
//! user are compared once, at CONNECT. Topics are compared for each message, if the session has
//! rules for topics.

use crate::bridge;
use crate::session::drops::DropReasons;
use crate::session::outbound::retry::OnExhausted;
use crate::session::redelivery_policy::RedeliveryPolicy;
use crate::session::redelivery_rule::{MOST, RedeliveryRule};
use crate::session::session_redelivery::SessionRedelivery;
use crate::sink;
use hashbrown::HashMap;
use std::sync::{Arc, Weak};

/// Number of rule sets after which sets without sessions are forgotten.
const REMEMBERED: usize = 1024;

/// All rules, and the settings computed from them. Sessions with the same rules share their
/// settings.
#[derive(Debug)]
pub struct Rules {
    defaults: RedeliveryPolicy,
    rules: Vec<Arc<RedeliveryRule>>,
    /// Settings of a client that no rule names. `common` has the bits of the rules that name no
    /// client.
    nobody: Arc<SessionRedelivery>,
    common: u64,
    /// Settings by the bits of the rules behind them.
    known: HashMap<u64, Weak<SessionRedelivery>, foldhash::fast::FixedState>,
}

/// The rules that set the settings of a session as a whole: their numbers in file order, from 1.
/// `None` if no rule does, so that the section `[redelivery]` holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleSources {
    /// The rule that set the interval.
    pub interval: Option<usize>,
    /// The rule that set the ack timeout.
    pub ack_timeout: Option<usize>,
    /// The rule that set the number of resends.
    pub attempts: Option<usize>,
    /// The rule that set the action once a packet is exhausted.
    pub on_exhausted: Option<usize>,
    /// The rule that set the action after the ack timeout.
    pub on_ack_timeout: Option<usize>,
    /// The rules for some topics of the session. These rules win for the messages of these topics.
    pub by_topic: Vec<usize>,
}

impl Rules {
    /// Creates the rules. Rules beyond [`MOST`] are left out; the configuration refuses them.
    pub fn new(defaults: &RedeliveryPolicy, rules: &[RedeliveryRule]) -> Rules {
        let rules: Vec<Arc<RedeliveryRule>> = rules.iter().take(MOST).cloned().map(Arc::new).collect();
        let names_nobody = |r: &RedeliveryRule| r.client_id.is_none() && r.user_name.is_none();
        let common = bits(&rules, names_nobody);
        let nobody = Arc::new(SessionRedelivery::new(defaults, chosen(&rules, common)));
        Rules { defaults: defaults.clone(), rules, nobody, common, known: HashMap::default() }
    }

    /// Returns the settings of no client in particular: for a session before its client is known,
    /// and for a shared group as a whole.
    pub fn nobody(&self) -> &Arc<SessionRedelivery> {
        &self.nobody
    }

    /// Returns the settings of a client. Costs one match for each rule with a client or user.
    pub fn resolve(&mut self, client_id: &str, user_name: Option<&str>) -> Arc<SessionRedelivery> {
        let bits = bits(&self.rules, |rule| rule.concerns(client_id, user_name));
        if client_id.starts_with(sink::CLIENT_ID_PREFIX) {
            return Arc::new(SessionRedelivery::new(&self.defaults.for_sinks(), chosen(&self.rules, bits)));
        }
        if client_id.starts_with(bridge::CLIENT_ID_PREFIX) {
            return Arc::new(SessionRedelivery::new(&self.defaults.for_bridges(), chosen(&self.rules, bits)));
        }
        if bits == self.common {
            return Arc::clone(&self.nobody);
        }
        if let Some(known) = self.known.get(&bits).and_then(Weak::upgrade) {
            return known;
        }
        let redelivery = Arc::new(SessionRedelivery::new(&self.defaults, chosen(&self.rules, bits)));
        if self.known.len() >= REMEMBERED {
            self.known.retain(|_, redelivery| redelivery.strong_count() > 0);
        }
        self.known.insert(bits, Arc::downgrade(&redelivery));
        redelivery
    }

    /// Returns the rules behind the settings of a client. Costs as much as [`Self::resolve`].
    pub fn sources(&self, client_id: &str, user_name: Option<&str>) -> RuleSources {
        let concerned = self.rules.iter().zip(1..).filter(|(rule, _)| rule.concerns(client_id, user_name));
        let mut sources = RuleSources::default();
        for (rule, number) in concerned {
            if rule.topic.is_some() {
                sources.by_topic.push(number);
                continue;
            }
            let RuleSources { interval, ack_timeout, attempts, on_exhausted, on_ack_timeout, .. } =
                &mut sources;
            for (source, is_set) in [
                (interval, rule.interval.is_some()),
                (ack_timeout, rule.ack_timeout.is_some()),
                (attempts, rule.attempts.is_some()),
                (on_exhausted, rule.on_exhausted.is_some()),
                (on_ack_timeout, rule.on_ack_timeout.is_some()),
            ] {
                // The first rule that sets a setting wins.
                *source = source.or(is_set.then_some(number));
            }
        }
        sources
    }

    /// True if any settings may make a dead letter.
    pub fn keep_dead_letters(&self) -> bool {
        let makes = |negative_ack: bool, on_exhausted: OnExhausted, causes: DropReasons| {
            negative_ack || on_exhausted == OnExhausted::DeadLetter || !causes.is_empty()
        };
        let RedeliveryPolicy { retry, negative_ack, dead_letters, .. } = &self.defaults;
        makes(*negative_ack, retry.on_exhausted, *dead_letters)
            || self.rules.iter().any(|r| {
                let on_exhausted = r.on_exhausted.unwrap_or(OnExhausted::Keep);
                makes(r.negative_ack == Some(true), on_exhausted, r.dead_letters.unwrap_or_default())
            })
    }
}

fn bits(rules: &[Arc<RedeliveryRule>], applies: impl Fn(&RedeliveryRule) -> bool) -> u64 {
    rules.iter().enumerate().fold(0, |bits, (at, rule)| bits | u64::from(applies(rule)) << at)
}

fn chosen(rules: &[Arc<RedeliveryRule>], bits: u64) -> Vec<Arc<RedeliveryRule>> {
    rules.iter().enumerate().filter(|(at, _)| bits >> at & 1 == 1).map(|(_, rule)| Arc::clone(rule)).collect()
}

#[cfg(test)]
#[path = "redelivery_rules_tests.rs"]
mod tests;
