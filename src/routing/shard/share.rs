//! Shared subscriptions: one member of the group gets the message.
//!
//! The publisher's shard chooses, among all members of all shards: those online in turn that can take more, then the other
//! ones online, whose queue decides, then, for QoS 1 and 2, those whose session waits for them. The shard of a member that
//! refuses chooses the next, and so it goes on, in the same move where it is one; only when all have refused it is it
//! lost, and counted.

use super::exchange::{Gate, Item, Share};
use super::route::{Publication, Routed, Target};
use super::{SessionId, Shard};
use crate::mqtt::message::Message;
use crate::mqtt::packet::QoS;
use crate::mqtt::session::loss::LossCause;
use crate::mqtt::session::receiver::Outcome;
use crate::mqtt::topic::TopicFilter;
use crate::routing::shared::{Member, MemberAddress, Presence};
use crate::routing::subscription_tree::{GroupId, SessionSlot, Subscribed, Unsubscribed};
use crate::time::Instant;
use std::sync::Arc;

/// How far a shared delivery has come.
pub(super) enum Shared {
    /// It is settled here.
    Settled(Outcome),
    /// It is on its way to another shard, whose ticket or late answer tells.
    Underway { peer_full: bool },
}

impl Shard {
    /// Delivers a publication to one member of a group that matched.
    pub(super) fn share(
        &mut self,
        now: Instant,
        group: GroupId,
        publication: &mut Publication<'_>,
        gate: Option<Gate>,
        routed: &mut Routed,
    ) {
        let nobody = (Vec::new(), LossCause::QueueRefused);
        match self.share_to_next(now, group, publication, nobody, gate) {
            Shared::Settled(outcome) => routed.outcome = routed.outcome.or(outcome),
            Shared::Underway { peer_full } => {
                routed.gates += u32::from(gate.is_some());
                routed.peer_full |= peer_full;
            }
        }
    }

    /// Tries members until one takes the message or it is underway to one elsewhere.
    fn share_to_next(
        &mut self,
        now: Instant,
        group: GroupId,
        publication: &mut Publication<'_>,
        (mut tried, cause): (Vec<MemberAddress>, LossCause),
        gate: Option<Gate>,
    ) -> Shared {
        let Some(share) = self.shares.get(&group).cloned() else {
            return Shared::Settled(Outcome::Unmatched);
        };
        while let Some(member) = self.choose(group, publication.parts.qos, &tried) {
            tried.push(member.address());
            let qos = publication.parts.qos.min(member.options.qos());
            let retain = publication.parts.retain && member.options.retain_as_published();
            if member.shard == self.here {
                let ids = [member.subscription_id];
                let target = Target {
                    session: member.session,
                    qos,
                    retain_as_published: retain,
                    ids: if member.subscription_id == 0 { &[] } else { &ids },
                };
                match self.deliver_shared(now, &target, publication, Some(&share)) {
                    Outcome::Taken => return Shared::Settled(Outcome::Taken),
                    _ => continue,
                }
            }
            let part_of = self.next_part(publication);
            let message = publication.message(&mut self.scratch).clone();
            let share = Share {
                message,
                filter: share,
                tried,
                owed: publication.owed,
                session: member.session,
                generation: member.generation,
                qos,
                retain,
                subscription_id: member.subscription_id,
                part_of,
            };
            return self.send_share(member, share, gate);
        }
        if tried.is_empty() {
            return Shared::Settled(Outcome::Unmatched);
        }
        // QoS 0 waits in no queue.
        let at_most_once = publication.parts.qos == QoS::AtMostOnce;
        let cause = if at_most_once { LossCause::OutboxFull } else { cause };
        let wanted = self.rules.nobody().of(publication.parts.topic).wants_letter(cause);
        let message = wanted.then(|| publication.message(&mut self.scratch).clone());
        self.lose_of_group(&share, cause, message, publication.whole);
        Shared::Settled(Outcome::Refused)
    }

    fn send_share(&mut self, member: Member, share: Share, gate: Option<Gate>) -> Shared {
        let Some(peer) = self.peers.get_mut(usize::from(member.shard.0)) else {
            return Shared::Settled(Outcome::Refused);
        };
        let size = share.message.size();
        peer.publish(Item::Share(share), size, gate);
        Shared::Underway { peer_full: peer.is_full() }
    }

    fn choose(&mut self, group: GroupId, qos: QoS, tried: &[MemberAddress]) -> Option<Member> {
        let Shard { tree, sessions, connections, settings, here, .. } = self;
        let policy = &settings.session.send;
        let members = tree.group_mut(group)?;
        let takes_more = |m: &Member| {
            if tried.contains(&m.address()) {
                return false;
            }
            if m.shard != *here {
                return true;
            }
            let Some((_, resident)) = sessions.at(m.session.0) else { return false };
            let Some(connection) = resident.connection.and_then(|c| connections.get(c)) else { return false };
            connection.wire.outbox.len() < policy.outbox
                && resident.session.sender.queued() < policy.queue.messages
        };
        let untried = |m: &Member| !tried.contains(&m.address());
        let online = members.choose(takes_more).or_else(|| members.choose(untried));
        if online.is_some() || qos == QoS::AtMostOnce {
            return online;
        }
        members.choose_offline(untried)
    }

    /// A share came for a session here, which has it, or another member does. `gate`: whom to tell, if that is elsewhere.
    pub(super) fn take_share(
        &mut self,
        now: Instant,
        share: &Share,
        publication: &mut Publication<'_>,
        gate: Gate,
    ) -> Shared {
        publication.owed = share.owed;
        let mut tried = share.tried.clone();
        let current = self.sessions.at(share.session.0).map(|(id, _)| id.generation);
        let mut cause = LossCause::SessionEnded;
        if current == Some(share.generation) {
            match self.take_share_alone(now, share, publication) {
                Outcome::Taken => return Shared::Settled(Outcome::Taken),
                Outcome::Unmatched => {}
                _ => cause = LossCause::QueueRefused,
            }
        } else {
            // Who has the slot now was not asked, and may be a member too.
            tried.pop();
        }
        let gate = Some(gate).filter(|_| publication.parts.qos != QoS::AtMostOnce);
        self.share_by_name(now, &share.filter, publication, (tried, cause), gate)
    }

    fn take_share_alone(
        &mut self,
        now: Instant,
        share: &Share,
        publication: &mut Publication<'_>,
    ) -> Outcome {
        let ids = [share.subscription_id];
        let target = Target {
            session: share.session,
            qos: share.qos,
            retain_as_published: share.retain,
            ids: if share.subscription_id == 0 { &[] } else { &ids },
        };
        self.deliver_shared(now, &target, publication, Some(&share.filter))
    }

    /// A member's session ended with a message that it had not acknowledged: another member gets it.
    // 5.0 [MQTT-4.8.2-5] forbids it for QoS 2 alone.
    /// `stored`: that it is no longer this one's is recorded with who has it now.
    pub(super) fn share_again(
        &mut self,
        now: Instant,
        message: Message,
        share: &Arc<Box<str>>,
        stored: bool,
    ) -> Shared {
        // 5.0 [MQTT-3.3.2-5]: delivery to that member has not begun, whatever this one had.
        if message.is_expired(now) {
            self.lose_of_group(share, LossCause::Expired, Some(message), stored);
            return Shared::Settled(Outcome::Refused);
        }
        let mut publication = Publication::of(&message, None);
        (publication.whole, publication.owed) = (stored, true);
        let nobody = (Vec::new(), LossCause::SessionEnded);
        self.share_by_name(now, share, &mut publication, nobody, None)
    }

    /// As [`Self::share_to_next`], of a group that may have gone with its last member: then nobody is subscribed any more, and
    /// what was owed is lost.
    fn share_by_name(
        &mut self,
        now: Instant,
        share: &str,
        publication: &mut Publication<'_>,
        tried: (Vec<MemberAddress>, LossCause),
        gate: Option<Gate>,
    ) -> Shared {
        let went = match self.group_of(share) {
            Some(group) => self.share_to_next(now, group, publication, tried, gate),
            None => Shared::Settled(Outcome::Unmatched),
        };
        // What was refused is counted already.
        if publication.owed && matches!(went, Shared::Settled(Outcome::Unmatched)) {
            let message = publication.message(&mut self.scratch).clone();
            self.lose_of_group(share, LossCause::SessionEnded, Some(message), publication.whole);
            return Shared::Settled(Outcome::Refused);
        }
        went
    }

    /// Whether some member of a group may take a message above QoS 0; of other shards' that is not known. Of a group that is gone
    /// there is nothing to wait for.
    pub(super) fn has_room_in_group(&self, share: &str) -> bool {
        let Some(members) = self.group_of(share).and_then(|id| self.tree.group(id)) else { return true };
        let most = self.settings.session.send.queue.messages;
        members.members().any(|m| {
            m.shard != self.here
                || self.sessions.at(m.session.0).is_some_and(|(_, r)| r.session.sender.queued() < most)
        })
    }

    fn group_of(&self, full: &str) -> Option<GroupId> {
        let filter = TopicFilter::parse(full, usize::MAX).ok()?;
        self.tree.group_id(filter.share_name?, filter.filter)
    }

    /// A member joins a group, or changes its options; from here or from a peer.
    pub(super) fn join_group(&mut self, group: &str, filter: &str, member: Member) -> Subscribed {
        let joined = self.tree.join(group, filter, member);
        if let Some(id) = self.tree.group_id(group, filter) {
            self.shares.entry(id).or_insert_with(|| Arc::new(format!("$share/{group}/{filter}").into()));
        }
        joined
    }

    /// A member of this shard leaves a group; whether it was in it.
    pub(super) fn leave_group(&mut self, group: &str, filter: &str, address: MemberAddress) -> bool {
        let left = self.drop_member(group, filter, address);
        if left {
            for peer in self.other_peers() {
                peer.tell(Item::Leave { group: group.into(), filter: filter.into(), address });
            }
        }
        left
    }

    pub(super) fn drop_member(&mut self, group: &str, filter: &str, address: MemberAddress) -> bool {
        let id = self.tree.group_id(group, filter);
        match self.tree.leave(group, filter, address) {
            Unsubscribed::Removed { last_here } => {
                if last_here && let Some(id) = id {
                    self.shares.remove(&id);
                }
                true
            }
            Unsubscribed::NotFound => false,
        }
    }

    /// The session came or went: its groups choose accordingly, here and elsewhere.
    pub(super) fn set_presence(&mut self, id: SessionId, presence: Presence) {
        let Some(resident) = self.sessions.get(id) else { return };
        let shared = resident.session.subscriptions.iter().filter(|f| f.starts_with("$share/"));
        let filters: Vec<Box<str>> = shared.map(Into::into).collect();
        let address = MemberAddress { shard: self.here, session: SessionSlot(id.slot) };
        for full in &filters {
            let Ok(filter) = TopicFilter::parse(full, usize::MAX) else { continue };
            let Some(group) = filter.share_name else { continue };
            self.tree.set_online(group, filter.filter, address, presence);
            for peer in self.other_peers() {
                let (group, filter) = (group.into(), filter.filter.into());
                peer.tell(Item::Presence { group, filter, address, presence });
            }
        }
    }
}
