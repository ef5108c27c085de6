//! Publications of the broker: wills, delayed messages, dead letters, `$SYS`.
//!
//! Such a publication is routed at once if it fits into the turn. Otherwise it waits in [`Fans`],
//! behind the others.

use crate::durability::publication::Publication;
use crate::mqtt::charge::Charge;
use crate::mqtt::outcome::Outcome;
use crate::peers::peer_batch::Publisher;
use crate::routing::subscription_tree::{Matches, SessionSlot, ShardId, ShardSet, Walk};
use crate::session::drops::{DropReason, Dropped};
use crate::shard::core::Core;
use crate::shard::delivery::fans::{
    DeliveryTurns, Fan, Fans, MatchExtent, OwnPublication, PublicationOrigin,
};
use crate::shard::subscriptions::routes::Routes;
use crate::slots::SessionId;
use crate::time::Instant;

/// Maximum number of the broker's publications that wait. Wills are exempt. A publication beyond
/// the bound is dropped, and counted like a QoS 0 message for a slow receiver. The loss is small:
/// the message carries a figure or an event, and the next one of its kind follows.
const OWN_AT_MOST: usize = 4_096;

/// The progress of a publication of the broker that was to be routed at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnProgress {
    /// The publication was delivered to the receivers of this shard, with this outcome. Peers and
    /// members of shared groups in other shards may have it, too, and report no outcome.
    Complete(Outcome),
    /// The publication is the large publication of the shard now.
    GoesOn,
    /// Nothing was routed, because the shard has a large publication already.
    Waits,
}

/// Returns a session of this shard as the publisher of a message.
pub(crate) fn publisher(here: ShardId, id: SessionId) -> Publisher {
    Publisher { shard: here, session: SessionSlot(id.slot) }
}

impl Fans {
    /// Returns true if the broker's next publication must wait for a later turn. `of` is the
    /// session of the will, if the publication is a will.
    pub(crate) fn own_waits(&self, of: Option<SessionId>, core: &Core) -> bool {
        core.turn.is_over() || self.own() > 0 || of.is_some_and(|id| self.fans_out_for(core.peers.here(), id))
    }

    /// Routes a publication of the broker, or lets it wait for a later turn. `of` is the session of
    /// the will, if the publication is a will. The publication waits if this turn is over, if
    /// others wait, if it needs several turns while another one does, or if the last PUBLISH of the
    /// session is not complete.
    pub(crate) fn route_own(
        &mut self,
        now: Instant,
        publication: &mut Publication<'_>,
        of: Option<SessionId>,
        routes: &mut Routes,
        core: &mut Core,
    ) {
        if !self.own_waits(of, core)
            && self.route_own_now(now, publication, routes, core) != OwnProgress::Waits
        {
            return;
        }
        if of.is_none() && self.own() >= OWN_AT_MOST {
            return core.drop_of_nobody(
                &Dropped::new(DropReason::OutboxFull, None).on(publication.outgoing.parts.topic),
            );
        }
        let message = publication.outgoing.message(&mut core.scratch.sending.bytes).clone();
        let _charge = Charge::new(size_of::<OwnPublication>());
        let (atomic, set_mark) = (publication.atomic, publication.set_mark);
        self.push_own(OwnPublication { message, of, atomic, set_mark, _charge });
    }

    /// Routes a publication of the broker at once. A publication that takes more than this turn
    /// becomes the large publication of the shard. Returns [`OwnProgress::Waits`], and routes
    /// nothing, if it takes more than this turn and the shard has a large publication already.
    pub(crate) fn route_own_now(
        &mut self,
        now: Instant,
        publication: &mut Publication<'_>,
        routes: &mut Routes,
        core: &mut Core,
    ) -> OwnProgress {
        let receivers = routes.receivers(publication.outgoing.parts.topic, core);
        let turns = if self.is_fanning() { DeliveryTurns::ThisOne } else { DeliveryTurns::Several };
        self.route_own_matched(now, publication, receivers, turns, routes, core)
    }

    /// Routes a publication whose receivers are known. Puts the matches back. `turns` is
    /// [`DeliveryTurns::ThisOne`] if the shard has a large publication already.
    pub(crate) fn route_own_matched(
        &mut self,
        now: Instant,
        publication: &mut Publication<'_>,
        receivers: (MatchExtent, Box<Matches>),
        turns: DeliveryTurns,
        routes: &mut Routes,
        core: &mut Core,
    ) -> OwnProgress {
        match routes.route(now, publication, receivers, turns, core) {
            Ok(routed) => OwnProgress::Complete(routed.outcome),
            Err((_, mut matches)) if self.is_fanning() => {
                matches.clear();
                routes.router.give_back_matches(matches);
                OwnProgress::Waits
            }
            Err((extent, matches)) => {
                self.fan_out(publication, extent, matches, PublicationOrigin::Broker, core);
                OwnProgress::GoesOn
            }
        }
    }

    /// Begins a large publication, which continues in later turns. `matched` and `matches` tell how
    /// far it came.
    pub(crate) fn fan_out(
        &mut self,
        publication: &mut Publication<'_>,
        matched: MatchExtent,
        matches: Box<Matches>,
        origin: PublicationOrigin,
        core: &mut Core,
    ) {
        let (at, outcome) = match matched {
            MatchExtent::Begun { at, outcome } => (at, outcome),
            _ => (0, Outcome::Unmatched),
        };
        self.begin(Fan {
            message: publication.outgoing.message(&mut core.scratch.sending.bytes).clone(),
            publisher: publication.publisher,
            gate: publication.gate,
            body: publication.outgoing.body.take(),
            atomic: publication.atomic,
            transaction: publication.transaction,
            set_mark: publication.set_mark,
            walk: (matched == MatchExtent::InPart).then(Walk::default),
            matches,
            at,
            ordered: at,
            outcome,
            forwarded: false,
            groups_served: 0,
            held: publication.held,
            gates: publication.held,
            full: ShardSet::EMPTY,
            origin,
        });
    }
}
