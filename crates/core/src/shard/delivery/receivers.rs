//! From a publication to its receivers: the sessions of this shard, the peers, and one member of
//! each shared group.

use crate::durability::publication::{Publication, Routed};
use crate::mqtt::outcome::Outcome;
use crate::peers::peer_batch::{Item, ReportTo};
use crate::routing::subscription_tree::{Matches, ShardSet};
use crate::shard::core::Core;
use crate::shard::delivery::fans::{DeliveryTurns, MatchExtent};
use crate::shard::delivery::target::{Target, merge};
use crate::shard::subscriptions::routes::Routes;
use crate::time::Instant;

impl Routes {
    /// Finds the receivers of a topic within the steps of this turn, and returns how far that went.
    /// `All` means that the caller can deliver to the receivers now. For `Many` and `InPart` the
    /// publication continues in later turns, as a [`Fan`](crate::shard::delivery::fans::Fan). The
    /// matches are complete for `All` and `Many`, and empty for `InPart`. They go back with
    /// [`Self::route`] or [`Router::give_back_matches`](crate::routing::router::Router).
    // With `#[inline]` alone the function stays a call, because it has five callers. With
    // `route` that is 72 instructions a message.
    #[inline(always)]
    pub(crate) fn receivers(&mut self, topic: &str, core: &mut Core) -> (MatchExtent, Box<Matches>) {
        let mut matches = self.router.take_matches();
        let most = core.turn.at_once();
        // A visit of two nodes costs one step.
        let all = self.router.tree().matches_within(topic, most.saturating_mul(2), &mut matches);
        core.turn.spend(matches.visited / 2);
        // The rules may decide about each receiver. Without rules nothing is divided: that costs as
        // much as the rest of this function.
        let most = match core.access.are_on() {
            true => most / core.access.most_steps(topic).saturating_add(1),
            false => most,
        };
        let extent = match all {
            false => MatchExtent::InPart,
            true if matches.subscribers.len() + matches.groups.len() > most as usize => MatchExtent::Many,
            true => MatchExtent::All,
        };
        (extent, matches)
    }

    /// Delivers a publication to every receiver that [`Self::receivers`] found: to the sessions of
    /// this shard, to the peers, and to one member of each shared group. `publication.gate` is the
    /// gate of the publisher. Returns the outcome so far, and the number of answers that are
    /// pending.
    ///
    /// # Errors
    /// The progress and the matches, if the rest must wait for a later turn. Only sessions of this
    /// shard have the message then.
    // As above.
    #[inline(always)]
    pub(crate) fn route(
        &mut self,
        now: Instant,
        publication: &mut Publication<'_>,
        (extent, mut matches): (MatchExtent, Box<Matches>),
        turns: DeliveryTurns,
        core: &mut Core,
    ) -> Result<Routed, (MatchExtent, Box<Matches>)> {
        if extent != MatchExtent::All {
            return Err((extent, matches));
        }
        let outcome = match deliver_matches(now, publication, &mut matches, turns, core) {
            Ok(outcome) => outcome,
            Err(extent) => return Err((extent, matches)),
        };
        let mut routed = Routed { outcome, gates: publication.held, full: ShardSet::EMPTY };
        if !matches.peers.is_empty() || !matches.groups.is_empty() {
            self.route_on(now, publication, &matches, &mut routed, core);
        }
        self.router.give_back_matches(matches);
        Ok(routed)
    }

    /// Sends the publication to the peers and to the shared groups.
    fn route_on(
        &mut self,
        now: Instant,
        publication: &mut Publication<'_>,
        matches: &Matches,
        routed: &mut Routed,
        core: &mut Core,
    ) {
        // The gate is taken out, because a message that one member of a group has no room for is
        // offered to another member before it is held.
        let gate = publication.gate.take();
        if !matches.peers.is_empty() {
            forward(publication, matches, gate, routed, core);
        }
        for group in &matches.groups {
            self.share(now, *group, publication, gate, routed, core);
        }
    }
}

/// Delivers the publication to the sessions of this shard in `matches`, to each session once.
/// Spends one step for each subscriber. Drops from a full queue spend steps, too: if they take
/// more than a portion of the turn, the other deliveries wait.
///
/// # Errors
/// The progress, if the other deliveries must wait for a later turn.
pub(crate) fn deliver_matches(
    now: Instant,
    publication: &mut Publication<'_>,
    matches: &mut Matches,
    turns: DeliveryTurns,
    core: &mut Core,
) -> Result<Outcome, MatchExtent> {
    let subscribers = &matches.subscribers;
    if let [only] = &subscribers[..] {
        // Nothing has to be sorted or counted for one receiver, and most messages have one.
        core.turn.spend(1);
        let target = Target::of(only, publication.publisher, core.peers.here());
        return Ok(target.map_or(Outcome::Unmatched, |target| core.deliver(now, &target, publication)));
    }
    core.turn.spend(u32::try_from(subscribers.len()).unwrap_or(u32::MAX));
    let most = match turns {
        DeliveryTurns::ThisOne => u32::MAX,
        DeliveryTurns::Several => core.turn.portion_from_now(),
    };
    // The subscribers of one filter are in ascending order of their slots. Two filters that
    // overlap may name a session twice, and then the order is broken.
    if !subscribers.is_sorted_by(|a, b| a.session.0 < b.session.0) {
        return deliver_merged(now, publication, matches, most, core);
    }
    let mut outcome = Outcome::Unmatched;
    for (at, only) in subscribers.iter().enumerate() {
        if core.turn.is_beyond(most) {
            return Err(MatchExtent::Begun { at, outcome });
        }
        if let Some(target) = Target::of(only, publication.publisher, core.peers.here()) {
            outcome = outcome.or(core.deliver(now, &target, publication));
        }
    }
    Ok(outcome)
}

/// As [`deliver_matches`], where overlapping filters may name a session twice. Sorts the
/// subscribers and merges the subscriptions of each session. Stops beyond `most` steps of the turn.
#[inline(never)]
fn deliver_merged(
    now: Instant,
    publication: &mut Publication<'_>,
    matches: &mut Matches,
    most: u32,
    core: &mut Core,
) -> Result<Outcome, MatchExtent> {
    let Matches { subscribers, ids, .. } = matches;
    subscribers.sort_unstable_by_key(|s| s.session.0);
    let (mut outcome, mut at) = (Outcome::Unmatched, 0);
    for same in subscribers.chunk_by(|a, b| a.session == b.session) {
        if core.turn.is_beyond(most) {
            return Err(MatchExtent::Begun { at, outcome });
        }
        at += same.len();
        if let Some(target) = merge(same, publication.publisher, core.peers.here(), ids) {
            outcome = outcome.or(core.deliver(now, &target, publication));
        }
    }
    Ok(outcome)
}

/// Adds the publication to the peer batch of every interested peer.
pub(crate) fn forward(
    publication: &mut Publication<'_>,
    matches: &Matches,
    gate: Option<ReportTo>,
    routed: &mut Routed,
    core: &mut Core,
) {
    let message = publication.outgoing.message(&mut core.scratch.sending.bytes).clone();
    for shard in matches.peers.iter() {
        let transaction = core.durability.next_participant(publication);
        let Some(peer) = core.peers.peer(shard) else { continue };
        routed.gates += u32::from(gate.is_some());
        let item = Item::Publish {
            message: message.clone(),
            publisher: publication.publisher,
            transaction,
            set_mark: publication.set_mark,
        };
        peer.publish(item, message.size(), gate);
        if peer.is_full() {
            routed.full.insert(shard);
        }
    }
}
