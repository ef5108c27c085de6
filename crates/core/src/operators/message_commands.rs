//! Commands of operators about messages that no session has: retained and delayed messages, and
//! stored dead letters.

use crate::mqtt::outcome::Outcome;
use crate::mqtt::packet::QoS;
use crate::mqtt::subscription_ids::SubscriptionIds;
use crate::mqtt::topic::is_reserved;
use crate::mqtt::topic::{self, TopicFilter};
use crate::named_enum::named_enum;
use crate::operators::command::{CarriedOut, Command, CommandOutcome};
use crate::persistence::letter::{LetterPlace, StoredLetter};
use crate::routing::shared_group::{Member, Presence, SharedGroup};
use crate::routing::subscription_tree::{ShardId, Subscriber};
use crate::session::outbound::stall::SocketView;
use crate::shard::Shard;
use crate::shard::control::{MatchExtent, OwnProgress, ShardControl, Target, merge};
use crate::shard::features::delayed::DelayedPlace;
use crate::shard::view::ShardView;
use crate::slots::SessionId;
use crate::time::Instant;

/// Members of a shared group among which a receiver is looked for at most.
const MEMBERS: usize = 1_024;

/// The reason if a turn is too short to find the receivers.
const TOO_MANY: &str = "too many filters match the topic, so its subscribers are not known at once";

/// A command about a message that no session has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageCommand {
    /// Deletes the retained message of a topic. Every shard can do it.
    DeleteRetained(Box<str>),
    /// Deletes a delayed message that is in memory in this shard.
    DeleteDelayed(DelayedPlace),
    /// Deletes a dead letter of this shard.
    DeleteLetter(LetterPlace),
    /// Publishes the message of a dead letter again, and removes the letter.
    Republish(LetterPlace, RepublishTo),
}

named_enum! {
    /// The receivers of a republished message.
    pub enum RepublishTo {
        /// The receiver that did not get the message, if it is still subscribed to the topic.
        Receiver = "receiver",
        /// Every subscriber of the topic, with those that got the message before.
        Topic = "topic",
    }
}

impl Command for MessageCommand {
    type Outcome = CommandOutcome;

    fn carry_out(&self, now: Instant, _: SocketView, shard: &mut Shard) -> CarriedOut<CommandOutcome> {
        let mut shard = shard.control(now);
        let outcome = match self {
            MessageCommand::DeleteRetained(topic) if is_reserved(topic) => CommandOutcome::Reserved,
            MessageCommand::DeleteRetained(topic) => found(shard.erase_retained(topic)),
            MessageCommand::DeleteDelayed(place) => found(shard.delete_delayed(*place)),
            MessageCommand::DeleteLetter(place) => found(shard.remove_letter(*place)),
            MessageCommand::Republish(place, to) => republish(*place, *to, &mut shard),
        };
        CarriedOut::new(outcome, &mut shard)
    }
}

/// Returns the outcome for a message that was there, or was not.
pub(super) fn found(is_there: bool) -> CommandOutcome {
    if is_there { CommandOutcome::Done } else { CommandOutcome::NoSuchMessage }
}

/// Publishes the message of a letter again. The end of the letter is in the batch, or in the
/// transaction, that records the deliveries. So after a crash the message is either in the queues
/// of its receivers or still a letter.
pub(super) fn republish(place: LetterPlace, to: RepublishTo, shard: &mut ShardControl<'_>) -> CommandOutcome {
    let Some(letter) = shard.view().letters().find(place).cloned() else {
        return CommandOutcome::NoSuchMessage;
    };
    if !shard.has_room_for(letter.message.header().qos, letter.message.size()) {
        return CommandOutcome::NoRoom;
    }
    // The receivers' packets wait for the commit of this batch.
    shard.begin_batch();
    let done = match to {
        RepublishTo::Receiver => match shard.view().find(&letter.receiver) {
            Some(id) => deliver_to_receiver(id, &letter, shard),
            None => return CommandOutcome::NoSuchClient,
        },
        RepublishTo::Topic => publish_to_topic(&letter, shard),
    };
    if let Err(why) = done {
        return CommandOutcome::CannotRepublish(why);
    }
    shard.remove_letter(place);
    CommandOutcome::Done
}

/// Delivers the message of a letter to its receiver.
///
/// # Errors
/// The reason why the receiver does not get it.
fn deliver_to_receiver(
    id: SessionId,
    letter: &StoredLetter,
    shard: &mut ShardControl<'_>,
) -> Result<(), &'static str> {
    let mut ids = Vec::new();
    let target = target(id, letter.message.topic(), &mut ids, shard)?;
    make_room(id, &target, letter, shard)?;
    let letters_before = shard.dead_letters();
    let is_taken = shard.deliver_letter(letter, &target);
    // A message that was dropped again stays one dead letter: the new letter is removed.
    shard.take_back_dead_letters(letters_before);
    if is_taken { Ok(()) } else { Err("the receiver does not take the message now") }
}

/// Returns a session as the target of a message, with the QoS and the Subscription Identifiers of
/// its subscriptions that match. A shared subscription counts if no other one matches.
///
/// # Errors
/// The reason why there is no target: no subscription matches, or too many filters do.
fn target<'a>(
    id: SessionId,
    topic: &str,
    ids: &'a mut Vec<u32>,
    shard: &mut ShardControl<'_>,
) -> Result<Target<'a>, &'static str> {
    const UNSUBSCRIBED: &str = "the receiver is not subscribed to the topic any more";
    let (extent, matches) = shard.match_topic(topic);
    let own = matches.subscribers.iter().filter(|subscriber| subscriber.session.0 == id.slot);
    let own: Vec<Subscriber> = own.copied().collect();
    shard.give_back(matches);
    if extent == MatchExtent::InPart {
        return Err(TOO_MANY);
    }
    if !own.is_empty() {
        return merge(&own, None, shard.view().here(), ids).ok_or(UNSUBSCRIBED);
    }
    let member = shared_member(id, topic, shard.view()).ok_or(UNSUBSCRIBED)?;
    if member.subscription_id != 0 {
        ids.push(member.subscription_id);
    }
    let (session, qos) = (member.session, member.options.qos());
    Ok(Target { session, qos, retain_as_published: false, ids, share: None })
}

/// Returns the session as a member of a shared group whose filter matches. Looks at [`MEMBERS`]
/// members of each such group at most.
fn shared_member(id: SessionId, topic: &str, shard: ShardView<'_>) -> Option<Member> {
    let (session, router) = (&shard.session(id)?.session, shard.router());
    session.subscriptions.iter().find_map(|full| {
        let filter = TopicFilter::parse(full, usize::MAX).ok()?;
        if !filter.is_shared() || !topic::matches(filter.filter, topic) {
            return None;
        }
        let group = router.group_of(full).and_then(|group| router.group(group))?;
        [Presence::Online, Presence::Offline].into_iter().find_map(|presence| {
            let places = group.of_shard(presence, shard.here()).0.take(MEMBERS);
            places.filter_map(|place| group.at(presence, place)).find(|member| member.session.0 == id.slot)
        })
    })
}

/// Makes room for the message in the queue of its receiver.
///
/// # Errors
/// The reason why the receiver cannot take the message.
fn make_room(
    id: SessionId,
    target: &Target<'_>,
    letter: &StoredLetter,
    shard: &mut ShardControl<'_>,
) -> Result<(), &'static str> {
    let message = &letter.message;
    if !shard.may_read(target.session, message.topic()) {
        return Err("the rules of the ACL do not allow the receiver to read the topic");
    }
    let Some(entry) = shard.view().session(id) else { return Err("the session of the receiver is gone") };
    if message.header().qos.min(target.qos) == QoS::AtMostOnce {
        if entry.connection.is_none() {
            return Err("the receiver is away, and would get the message at QoS 0");
        }
        if !entry.session.sender.queue.has_at_most_once() {
            // The message goes into the outbox.
            return Ok(());
        }
    }
    if shard.make_room(id, message.size() + SubscriptionIds::from_several(target.ids).size()) {
        Ok(())
    } else {
        Err("the queue of the receiver is full; let it take messages, or skip some")
    }
}

/// Publishes the message of a letter to every subscriber of its topic.
///
/// # Errors
/// The reason why it is not published.
fn publish_to_topic(letter: &StoredLetter, shard: &mut ShardControl<'_>) -> Result<(), &'static str> {
    let (extent, receivers) = shard.match_topic(letter.message.topic());
    let refusal = match extent {
        MatchExtent::InPart => Some(TOO_MANY),
        _ if receivers.is_empty() => Some("nobody is subscribed to the topic, so the message would be lost"),
        _ => None,
    };
    if let Some(why) = refusal {
        shard.give_back(receivers);
        return Err(why);
    }
    let (here, router) = (shard.view().here(), shard.view().router());
    let mut groups = receivers.groups.iter().filter_map(|group| router.group(*group));
    let are_all_here = receivers.peers.is_empty() && groups.all(|group| is_of_one_shard(group, here));
    let letters_before = shard.dead_letters();
    match shard.publish_letter(letter, (extent, receivers)) {
        OwnProgress::Complete(Outcome::Unmatched | Outcome::Refused) if are_all_here => {
            // The message stays one dead letter, and becomes no second one.
            shard.take_back_dead_letters(letters_before);
            Err(
                "no subscriber of the topic can take it now: all are away at QoS 0, have a full queue, or may not read the topic",
            )
        }
        OwnProgress::Complete(_) | OwnProgress::GoesOn => Ok(()),
        OwnProgress::Waits => Err("another publication with very many receivers is under way; try again"),
    }
}

/// Returns true if all members of a group live in the shard `here`.
fn is_of_one_shard(group: &SharedGroup, here: ShardId) -> bool {
    let own = |presence| group.of_shard(presence, here).0.len();
    group.len() == own(Presence::Online) + own(Presence::Offline)
}
