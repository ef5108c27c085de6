//! Commands of operators about messages that no session has: retained and delayed messages, and
//! stored dead letters.

use crate::mqtt::message::Parts;
use crate::mqtt::outcome::Outcome;
use crate::mqtt::packet::QoS;
use crate::mqtt::subscription_ids::SubscriptionIds;
use crate::mqtt::topic::{self, TopicFilter};
use crate::named_enum::named_enum;
use crate::persistence::letter::{LetterPlace, StoredLetter};
use crate::routing::shared_group::{Member, Presence, SharedGroup};
use crate::routing::subscription_tree::{ShardId, Subscriber};
use crate::shard::Shard;
use crate::shard::admission::Change;
use crate::shard::core::Core;
use crate::shard::fans::{DeliveryTurns, MatchExtent};
use crate::shard::features::administration::{CarriedOut, CommandOutcome};
use crate::shard::features::delayed::DelayedPlace;
use crate::shard::features::letter_keeping;
use crate::shard::own_publications::OwnProgress;
use crate::shard::publication::{Publication, Target, merge};
use crate::shard::settings::is_reserved;
use crate::shard::slots::SessionId;
use crate::time::Instant;

/// Members of a shared group among which a receiver is looked for at most.
const MEMBERS: usize = 1_024;

/// Why a message is not republished whose receivers cannot be found within a turn.
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

/// Carries out a command.
pub(crate) fn carry_out(now: Instant, command: &MessageCommand, shard: &mut Shard) -> CarriedOut {
    let outcome = match command {
        MessageCommand::DeleteRetained(topic) => delete_retained(now, topic, &mut shard.core),
        MessageCommand::DeleteDelayed(place) => {
            found(shard.delayed.delete(now, *place, &mut shard.core).then_some(()))
        }
        MessageCommand::DeleteLetter(place) => found(letter_keeping::remove(*place, &mut shard.core)),
        MessageCommand::Republish(place, to) => republish(now, *place, *to, shard),
    };
    if outcome != CommandOutcome::Done {
        return CarriedOut { outcome, commit: None };
    }
    CarriedOut { outcome, commit: shard.core.durability.pending() }
}

fn found<T>(removed: Option<T>) -> CommandOutcome {
    if removed.is_some() { CommandOutcome::Done } else { CommandOutcome::NoSuchMessage }
}

fn delete_retained(now: Instant, topic: &str, core: &mut Core) -> CommandOutcome {
    if is_reserved(topic) {
        return CommandOutcome::Reserved;
    }
    if core.shared.retained().find(topic, now).is_none() {
        return CommandOutcome::NoSuchMessage;
    }
    let (qos, expires) = (QoS::AtMostOnce, Instant::NEVER);
    let parts = Parts { qos, retain: true, expires, topic, forwarded: &[], payload: &[] };
    core.retain(now, &mut Publication::new(parts, None, core.here), None, None);
    CommandOutcome::Done
}

/// Publishes the message of a letter again. The end of the letter is in the batch, or in the
/// transaction, that records the deliveries. So after a crash the message is either in the queues
/// of its receivers or still a letter.
pub(super) fn republish(
    now: Instant,
    place: LetterPlace,
    to: RepublishTo,
    shard: &mut Shard,
) -> CommandOutcome {
    let Some(letter) = shard.core.letters.find(place).cloned() else { return CommandOutcome::NoSuchMessage };
    let message = &letter.message;
    let change = Change::Publish { qos: message.header().qos, bytes: message.size(), frees: 0 };
    if shard.core.admits(change).is_err() {
        return CommandOutcome::NoRoom;
    }
    // The receivers' packets wait for the commit of this batch.
    shard.core.durability.begin();
    let outcome = match to {
        RepublishTo::Receiver => deliver_to_receiver(now, &letter, shard),
        RepublishTo::Topic => publish_to_topic(now, &letter, shard),
    };
    if outcome == CommandOutcome::Done {
        letter_keeping::remove(place, &mut shard.core);
    }
    outcome
}

/// Returns the message of a letter as a publication: not retained, and without a Message Expiry
/// Interval, because that of an expired message would end it again.
fn publication<'a>(letter: &'a StoredLetter, core: &Core) -> Publication<'a> {
    let message = &letter.message;
    let parts = Parts { retain: false, expires: Instant::NEVER, ..message.parts() };
    let mut publication = Publication::new(parts, None, core.here);
    publication.publisher_name = message.shared_publisher();
    publication.atomic = true;
    publication
}

fn deliver_to_receiver(now: Instant, letter: &StoredLetter, shard: &mut Shard) -> CommandOutcome {
    let Some(id) = shard.core.sessions.find(&letter.receiver) else { return CommandOutcome::NoSuchClient };
    let mut ids = Vec::new();
    let target = match target(id, letter.message.topic(), &mut ids, shard) {
        Ok(target) => target,
        Err(why) => return CommandOutcome::CannotRepublish(why),
    };
    let mut publication = publication(letter, &shard.core);
    if let Err(why) = make_room(now, id, &target, &mut publication, &mut shard.core) {
        return CommandOutcome::CannotRepublish(why);
    }
    let letters_before = shard.core.dead_letters.len();
    let drops_before = shard.core.counters.drops.total();
    let outcome = shard.core.deliver(now, &target, &mut publication);
    // A message that was dropped again stays the letter that it is, and becomes no second one.
    shard.core.dead_letters.take_back(letters_before);
    if outcome != Outcome::Taken || shard.core.counters.drops.total() > drops_before {
        return CommandOutcome::CannotRepublish("the receiver does not take the message now");
    }
    CommandOutcome::Done
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
    shard: &mut Shard,
) -> Result<Target<'a>, &'static str> {
    const UNSUBSCRIBED: &str = "the receiver is not subscribed to the topic any more";
    let mut matches = shard.routes.router.take_matches();
    let extent = shard.routes.match_at_once(topic, &mut matches, &mut shard.core);
    let own = matches.subscribers.iter().filter(|subscriber| subscriber.session.0 == id.slot);
    let own: Vec<Subscriber> = own.copied().collect();
    shard.routes.router.give_back_matches(matches);
    if extent == MatchExtent::InPart {
        return Err(TOO_MANY);
    }
    if !own.is_empty() {
        return merge(&own, None, shard.core.here, ids).ok_or(UNSUBSCRIBED);
    }
    let member = shared_member(id, topic, shard).ok_or(UNSUBSCRIBED)?;
    if member.subscription_id != 0 {
        ids.push(member.subscription_id);
    }
    Ok(Target { session: member.session, qos: member.options.qos(), retain_as_published: false, ids })
}

/// Returns the session as a member of a shared group whose filter matches. Looks at [`MEMBERS`]
/// members of each such group at most.
fn shared_member(id: SessionId, topic: &str, shard: &mut Shard) -> Option<Member> {
    let Shard { core, routes, .. } = shard;
    let session = &core.sessions.get(id)?.session;
    session.subscriptions.iter().find_map(|full| {
        let filter = TopicFilter::parse(full, usize::MAX).ok()?;
        if !filter.is_shared() || !topic::matches(filter.filter, topic) {
            return None;
        }
        let group = routes.router.group_of(full).and_then(|group| routes.router.group(group))?;
        [Presence::Online, Presence::Offline].into_iter().find_map(|presence| {
            let places = group.of_shard(presence, core.here).0.take(MEMBERS);
            places.filter_map(|place| group.at(presence, place)).find(|member| member.session.0 == id.slot)
        })
    })
}

/// Makes room for the message in the queue of its receiver, and reports the expired messages that
/// are dropped for it. No other message leaves the queue.
///
/// # Errors
/// The reason why the receiver cannot take the message.
fn make_room(
    now: Instant,
    id: SessionId,
    target: &Target<'_>,
    publication: &mut Publication<'_>,
    core: &mut Core,
) -> Result<(), &'static str> {
    if !core.may_read(target.session, publication.parts.topic) {
        return Err("the rules of the ACL do not allow the receiver to read the topic");
    }
    let Core { sessions, settings, counters, scratch, .. } = &mut *core;
    let Some(entry) = sessions.get_mut(id) else { return Err("the session of the receiver is gone") };
    if publication.parts.qos.min(target.qos) == QoS::AtMostOnce {
        if entry.connection.is_none() {
            return Err("the receiver is away, and would get the message at QoS 0");
        }
        if !entry.session.sender.queue.has_at_most_once() {
            // The message goes into the outbox.
            return Ok(());
        }
    }
    let message = publication.message(&mut scratch.bytes);
    let size = message.size() + SubscriptionIds::from_several(target.ids).size();
    let has_room = entry.make_room(now, size, &settings.session.send, &mut counters.drops);
    core.report_drops(id);
    if has_room {
        Ok(())
    } else {
        Err("the queue of the receiver is full; let it take messages, or skip some")
    }
}

fn publish_to_topic(now: Instant, letter: &StoredLetter, shard: &mut Shard) -> CommandOutcome {
    let mut receivers = shard.routes.router.take_matches();
    let extent = shard.routes.match_at_once(letter.message.topic(), &mut receivers, &mut shard.core);
    let refusal = match extent {
        MatchExtent::InPart => Some(TOO_MANY),
        _ if receivers.is_empty() => Some("nobody is subscribed to the topic, so the message would be lost"),
        _ => None,
    };
    if let Some(why) = refusal {
        shard.routes.router.give_back_matches(receivers);
        return CommandOutcome::CannotRepublish(why);
    }
    let here = shard.core.here;
    let mut groups = receivers.groups.iter().filter_map(|group| shard.routes.router.group(*group));
    let are_all_here = receivers.peers.is_empty() && groups.all(|group| is_of_one_shard(group, here));
    let mut publication = publication(letter, &shard.core);
    let letters_before = shard.core.dead_letters.len();
    let turns = DeliveryTurns::ThisOne;
    match shard.fans.route_own_matched(
        now,
        &mut publication,
        (extent, receivers),
        turns,
        &mut shard.routes,
        &mut shard.core,
    ) {
        OwnProgress::Complete(Outcome::Unmatched | Outcome::Refused) if are_all_here => {
            // The message stays the letter that it is, and becomes no second one.
            shard.core.dead_letters.take_back(letters_before);
            CommandOutcome::CannotRepublish(
                "no subscriber of the topic can take it now: all are away at QoS 0, have a full queue, or may not read the topic",
            )
        }
        OwnProgress::Complete(_) | OwnProgress::GoesOn => CommandOutcome::Done,
        OwnProgress::Waits => CommandOutcome::CannotRepublish(
            "another publication with very many receivers is under way; try again",
        ),
    }
}

/// Returns true if all members of a group live in the shard `here`.
fn is_of_one_shard(group: &SharedGroup, here: ShardId) -> bool {
    let own = |presence| group.of_shard(presence, here).0.len();
    group.len() == own(Presence::Online) + own(Presence::Offline)
}
