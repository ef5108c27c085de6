//! The door through which the commands of [`crate::operators`] change a shard. Each method is one
//! step of a command, and decides nothing.

use crate::durability::publication::Publication;
use crate::events::client_counts::SessionEnd;
use crate::events::client_events::DisconnectCause;
use crate::mqtt::message::Parts;
use crate::mqtt::outcome::Outcome;
use crate::mqtt::packet::{Publish, QoS, ReasonCode};
use crate::peers::peer_batch::PublicationNumber;
use crate::persistence::letter::{LetterPlace, StoredLetter};
use crate::persistence::records::Lsn;
use crate::routing::subscription_tree::{Matches, SessionSlot};
use crate::session::drops::DropReason;
use crate::session::outbound::one_message::{MessageName, NoMessage};
use crate::session::outbound::stall::SocketView;
use crate::session::outbound::window::Quota;
use crate::shard::Shard;
use crate::shard::admission::Change;
use crate::shard::clients::deadlines::OverdueAcknowledgement;
use crate::shard::core::Core;
use crate::shard::delivery::fans::DeliveryTurns;
use crate::shard::delivery::operator_publish::OperatorPublish;
use crate::shard::delivery::own_messages::own_parts;
use crate::shard::features::delayed::DelayedPlace;
use crate::shard::features::letter_keeping;
use crate::shard::view::ShardView;
use crate::slots::{ConnectionId, SessionId};
use crate::time::Instant;
use std::sync::Arc;

pub(crate) use crate::shard::delivery::fans::MatchExtent;
pub use crate::shard::delivery::operator_publish::NotPublished;
pub(crate) use crate::shard::delivery::own_publications::OwnProgress;
pub(crate) use crate::shard::delivery::target::{Target, merge};

/// One shard, borrowed to carry out a command at one time.
#[derive(Debug)]
pub(crate) struct ShardControl<'a> {
    pub now: Instant,
    shard: &'a mut Shard,
}

impl Shard {
    /// Returns the shard to an operator who changes it.
    pub(crate) fn control(&mut self, now: Instant) -> ShardControl<'_> {
        ShardControl { now, shard: self }
    }
}

/// The turn, its batch, and the commit that the command must wait for.
impl ShardControl<'_> {
    pub(crate) fn view(&self) -> ShardView<'_> {
        self.shard.view()
    }

    /// Returns the batch that must be committed before the command is answered; `None` if nothing
    /// waits. Dead letters are published with the open batch.
    pub(crate) fn commit(&mut self) -> Option<Lsn> {
        self.shard.core.begin_for_dead_letters();
        self.shard.core.durability.pending()
    }

    /// Lets the open batch be committed. Later packets wait for the commit.
    pub(crate) fn begin_batch(&mut self) {
        self.shard.core.durability.begin();
    }

    /// Spends steps of the turn.
    pub(crate) fn spend(&mut self, steps: u32) {
        self.shard.core.turn.spend(steps);
    }

    pub(crate) fn is_turn_over(&self) -> bool {
        self.shard.core.turn.is_over()
    }

    /// Returns the number of dead letters that wait to be published at the end of the turn.
    pub(crate) fn dead_letters(&self) -> usize {
        self.shard.core.dead_letters.len()
    }

    /// Takes back the dead letters behind the first `len`: their message stays the stored letter.
    pub(crate) fn take_back_dead_letters(&mut self, len: usize) {
        self.shard.core.dead_letters.take_back(len);
    }

    /// Returns true if a publication takes more than one turn, and is not complete.
    pub(crate) fn is_fanning(&self) -> bool {
        self.shard.fans.is_fanning()
    }

    /// Returns true if memory and disk have room for a message of this size.
    pub(crate) fn has_room_for(&self, qos: QoS, bytes: usize) -> bool {
        self.shard.core.admits(Change::Publish { qos, bytes, frees: 0 }).is_ok()
    }
}

/// One session.
impl ShardControl<'_> {
    /// Closes a connection. Returns false if it is gone or closing already. Messages that are sent
    /// again for it, when the client returns, had no attempt more.
    pub(crate) fn disconnect(&mut self, id: ConnectionId) -> bool {
        let Core { connections, sessions, .. } = &mut self.shard.core;
        let Some(connection) = connections.get(id) else { return false };
        let is_open = !connection.is_closing();
        if let Some(entry) = connection.session.and_then(|id| sessions.get_mut(id)) {
            entry.session.sender.ask_at_return();
        }
        let reason = Some(ReasonCode::ADMINISTRATIVE_ACTION);
        self.shard.disconnect(self.now, id, reason, DisconnectCause::Operator);
        is_open
    }

    /// Ends a session without a connection.
    pub(crate) fn end_session(&mut self, id: SessionId) {
        self.shard.end_session(self.now, id, SessionEnd::Operator);
    }

    /// Forgets the QoS 2 identifiers of a session's client, which has lost its session. Returns
    /// their number.
    pub(crate) fn forget_incoming(&mut self, id: SessionId) -> usize {
        let entry = self.shard.core.sessions.get_mut(id);
        entry.map_or(0, |entry| entry.session.receiver.release_all())
    }

    /// Sends the unacknowledged packets again now, on the connection of the session. Returns their
    /// number.
    pub(crate) fn resend(&mut self, id: SessionId, connection: ConnectionId, view: SocketView) -> u32 {
        let (now, shard) = (self.now, &mut *self.shard);
        if let Some(entry) = shard.core.sessions.get_mut(id) {
            entry.session.sender.hasten(now);
        }
        let before = shard.core.counters.redelivered.total();
        OverdueAcknowledgement { now, connection, view }.handle(shard);
        let packets = shard.core.counters.redelivered.total() - before;
        u32::try_from(packets).unwrap_or(u32::MAX)
    }

    /// Drops a message of a session. The next messages move up.
    ///
    /// # Errors
    /// The session does not have the message, or the receiver has it.
    pub(crate) fn drop_message(
        &mut self,
        id: SessionId,
        name: MessageName,
        cause: DropReason,
    ) -> Result<(), NoMessage> {
        let Core { connections, sessions, counters, .. } = &mut self.shard.core;
        let entry = sessions.get_mut(id).ok_or(NoMessage::Gone)?;
        let connection = entry.connection.and_then(|id| connections.get(id));
        // 5.0 [MQTT-3.3.4-9]: the client may still count the message against its Receive Maximum.
        let is_v5 = connection.is_some_and(|connection| connection.wire.version.is_v5());
        let quota = if is_v5 { Quota::Forfeited } else { Quota::Free };
        let sender = &mut entry.session.sender;
        sender.drop_message(name, quota, cause, &mut counters.drops)?;
        if let Some(mut client) = self.shard.core.client_of(id) {
            client.pump(self.now);
        }
        self.shard.after_session_change(self.now, id);
        Ok(())
    }

    /// Drops the oldest messages of the queue of a session, this many at most. Returns their
    /// number. [`Self::queue_has_room`] follows the last call.
    pub(crate) fn drop_oldest(&mut self, id: SessionId, most: usize) -> usize {
        let Core { sessions, counters, .. } = &mut self.shard.core;
        let Some(entry) = sessions.get_mut(id) else { return 0 };
        let queue = entry.session.sender.queue.get_mut();
        let dropped =
            queue.map_or(0, |queue| queue.drop_oldest(most, DropReason::Skipped, &mut counters.drops));
        self.shard.core.report_drops(id);
        dropped
    }

    /// Lets messages that waited for room enter the queue of a session.
    pub(crate) fn queue_has_room(&mut self, id: SessionId) {
        let (now, shard) = (self.now, &mut *self.shard);
        shard.after_session_change(now, id);
        shard.routes.has_room_for_orphaned_queues(now, id, &mut shard.core);
    }

    /// Makes room for a message in the queue of a session, and reports the expired messages that
    /// are dropped for it. No other message leaves the queue. Returns false if there is no room.
    pub(crate) fn make_room(&mut self, id: SessionId, size: usize) -> bool {
        let Core { sessions, settings, counters, .. } = &mut self.shard.core;
        let Some(entry) = sessions.get_mut(id) else { return false };
        let has_room = entry.make_room(self.now, size, &settings.session.send, &mut counters.drops);
        self.shard.core.report_drops(id);
        has_room
    }

    /// Returns true if the rules allow the session in this slot to read the topic.
    pub(crate) fn may_read(&mut self, session: SessionSlot, topic: &str) -> bool {
        self.shard.core.may_read(session, topic)
    }
}

/// Messages that no session has.
impl ShardControl<'_> {
    /// Erases the retained message of a topic. Returns false if the topic has no such message.
    pub(crate) fn erase_retained(&mut self, topic: &str) -> bool {
        let Shard { core, routes, .. } = &mut *self.shard;
        if core.shared.retained().find(topic, self.now).is_none() {
            return false;
        }
        let mut erasure =
            Publication::new(Parts { retain: true, ..own_parts(topic, &[]) }, None, core.peers.here());
        routes.retain(self.now, &mut erasure, None, None, core);
        true
    }

    /// Deletes a delayed message. Returns false if it is not in memory.
    pub(crate) fn delete_delayed(&mut self, place: DelayedPlace) -> bool {
        self.shard.delayed.delete(self.now, place, &mut self.shard.core)
    }

    /// Removes a dead letter. Returns false if it is not there.
    pub(crate) fn remove_letter(&mut self, place: LetterPlace) -> bool {
        letter_keeping::remove(place, &mut self.shard.core).is_some()
    }

    /// Returns the receivers of a topic, as far as this turn finds them. The matches go back with
    /// [`Self::give_back`] or [`Self::publish_letter`].
    pub(crate) fn match_topic(&mut self, topic: &str) -> (MatchExtent, Box<Matches>) {
        let Shard { core, routes, .. } = &mut *self.shard;
        routes.receivers(topic, core)
    }

    pub(crate) fn give_back(&mut self, matches: Box<Matches>) {
        self.shard.routes.router.give_back_matches(matches);
    }

    /// Delivers the message of a letter to one session of this shard. Returns false if the session
    /// does not take it, or has dropped it again.
    pub(crate) fn deliver_letter(&mut self, letter: &StoredLetter, target: &Target<'_>) -> bool {
        let core = &mut self.shard.core;
        let mut publication = publication(letter, core);
        let drops_before = core.counters.drops.total();
        let outcome = core.deliver(self.now, target, &mut publication);
        outcome == Outcome::Taken && core.counters.drops.total() == drops_before
    }

    /// Publishes a message of the operator `publisher`.
    pub(crate) fn publish(
        &mut self,
        publish: &Publish<'_>,
        publisher: &Arc<str>,
    ) -> Result<PublicationNumber, NotPublished> {
        OperatorPublish::publish(self.now, publish, publisher, self.shard)
    }

    /// Publishes the message of a letter to the receivers of its topic.
    pub(crate) fn publish_letter(
        &mut self,
        letter: &StoredLetter,
        receivers: (MatchExtent, Box<Matches>),
    ) -> OwnProgress {
        let Shard { core, routes, fans, .. } = &mut *self.shard;
        let mut publication = publication(letter, core);
        let turns = DeliveryTurns::ThisOne;
        fans.route_own_matched(self.now, &mut publication, receivers, turns, routes, core)
    }
}

/// Returns the message of a letter as a publication: not retained, and without a Message Expiry
/// Interval, because that of an expired message would end it again.
fn publication<'a>(letter: &'a StoredLetter, core: &Core) -> Publication<'a> {
    let message = &letter.message;
    let parts = Parts { retain: false, expires: Instant::NEVER, ..message.parts() };
    let mut publication = Publication::new(parts, None, core.peers.here());
    publication.outgoing.publisher_name = message.shared_publisher();
    publication.atomic = true;
    publication
}
