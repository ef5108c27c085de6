//! Shared subscriptions: the members of a group, and the choice among them.
//!
//! Every shard knows the members of all shards; the publisher's shard chooses, and after a refusal the shard of who refused,
//! so two shards choose independently and fairness holds per choosing shard. Not here: whether a member can take more (the
//! caller answers), and what becomes of a refused or unacknowledged message.

use super::subscription_tree::{PackedOptions, SessionSlot, ShardId};

/// Where a member lives. A session is in a group once, whatever its generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberAddress {
    pub shard: ShardId,
    pub session: SessionSlot,
}

/// One session's subscription through a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    pub shard: ShardId,
    pub session: SessionSlot,
    /// Of the slot: the member's shard drops what is meant for the slot's former session.
    pub generation: u32,
    // 5.0 [MQTT-4.8.2-3]: the QoS granted is each member's own.
    pub options: PackedOptions,
    /// 5.0 Subscription Identifier; 0 is none.
    pub subscription_id: u32,
    /// Whether the session has a Network Connection. One that has none and is still here outlives its
    /// connection.
    pub online: bool,
}

impl Member {
    pub fn address(&self) -> MemberAddress {
        MemberAddress { shard: self.shard, session: self.session }
    }
}

/// Whether a member's session has a Network Connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    Online,
    Offline,
}

/// The members of one `$share/NAME/FILTER`.
///
/// Online and offline members are kept apart, so that a choice costs nothing for those who are away.
#[derive(Debug, Default)]
pub struct Group {
    online: Ring,
    offline: Ring,
}

impl Group {
    pub fn len(&self) -> usize {
        self.online.members.len() + self.offline.members.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Online ones first, each part ascending by address.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.online.members.iter().chain(&self.offline.members)
    }

    pub fn member(&self, address: MemberAddress) -> Option<&Member> {
        self.online.find(address).or_else(|| self.offline.find(address))
    }

    /// Adds a member, or answers the one of the same session that it takes the place of.
    pub fn join(&mut self, member: Member) -> Option<Member> {
        let (into, other) = if member.online {
            (&mut self.online, &mut self.offline)
        } else {
            (&mut self.offline, &mut self.online)
        };
        let moved = other.remove(member.address());
        into.put(member).or(moved)
    }

    pub fn leave(&mut self, address: MemberAddress) -> Option<Member> {
        self.online.remove(address).or_else(|| self.offline.remove(address))
    }

    /// Whether there is such a member.
    pub fn set_presence(&mut self, address: MemberAddress, presence: Presence) -> bool {
        let (from, to) = match presence {
            Presence::Online => (&mut self.offline, &mut self.online),
            Presence::Offline => (&mut self.online, &mut self.offline),
        };
        match from.remove(address) {
            Some(member) => {
                to.put(Member { online: presence == Presence::Online, ..member });
                true
            }
            None => to.find(address).is_some(),
        }
    }

    /// The next online member in turn that accepts; each is asked once at most.
    pub fn choose(&mut self, accepts: impl FnMut(&Member) -> bool) -> Option<Member> {
        self.online.next(accepts)
    }

    /// For when no member is online: the next offline one in turn whose queue accepts. Its session outlives
    /// its connection, else it would have left.
    pub fn choose_offline(&mut self, accepts: impl FnMut(&Member) -> bool) -> Option<Member> {
        self.offline.next(accepts)
    }

    /// Bytes on the heap.
    pub fn memory(&self) -> usize {
        (self.online.members.capacity() + self.offline.members.capacity()) * size_of::<Member>()
    }
}

/// Members sorted by address, and whose turn it is. Joining and leaving move the turn with the members, so
/// that nobody is passed over or served twice because another came or went.
#[derive(Debug, Default)]
struct Ring {
    members: Vec<Member>,
    /// Index of the next to be asked; below the number of members, or 0.
    turn: usize,
}

impl Ring {
    fn position(&self, address: MemberAddress) -> Result<usize, usize> {
        self.members.binary_search_by_key(&address, Member::address)
    }

    fn find(&self, address: MemberAddress) -> Option<&Member> {
        self.position(address).ok().and_then(|at| self.members.get(at))
    }

    fn put(&mut self, member: Member) -> Option<Member> {
        match self.position(member.address()) {
            Ok(at) => Some(std::mem::replace(&mut self.members[at], member)),
            Err(at) => {
                self.members.insert(at, member);
                if at < self.turn {
                    self.turn += 1;
                }
                None
            }
        }
    }

    fn remove(&mut self, address: MemberAddress) -> Option<Member> {
        let at = self.position(address).ok()?;
        let member = self.members.remove(at);
        if at < self.turn {
            self.turn -= 1;
        }
        if self.turn >= self.members.len() {
            self.turn = 0;
        }
        if self.members.len() * 4 <= self.members.capacity() {
            self.members.shrink_to(self.members.len() * 2);
        }
        Some(member)
    }

    fn next(&mut self, mut accepts: impl FnMut(&Member) -> bool) -> Option<Member> {
        let n = self.members.len();
        let at = (self.turn..n).chain(0..self.turn).find(|at| accepts(&self.members[*at]))?;
        self.turn = if at + 1 == n { 0 } else { at + 1 };
        self.members.get(at).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(shard: u8, session: u32) -> Member {
        Member {
            shard: ShardId(shard),
            session: SessionSlot(session),
            generation: 1,
            options: PackedOptions::default(),
            subscription_id: 0,
            online: true,
        }
    }

    fn group(sessions: u32) -> Group {
        let mut group = Group::default();
        for session in 0..sessions {
            group.join(member((session % 2) as u8, session));
        }
        group
    }

    /// How often each session was chosen.
    fn tally(sessions: u32, mut choose: impl FnMut() -> Option<Member>, times: usize) -> Vec<usize> {
        let mut counts = vec![0; sessions as usize];
        for _ in 0..times {
            counts[choose().unwrap().session.0 as usize] += 1;
        }
        counts
    }

    #[test]
    fn each_member_gets_its_share() {
        let mut group = group(7);
        assert!(tally(7, || group.choose(|_| true), 7_000).iter().all(|n| *n == 1_000));
    }

    #[test]
    fn a_member_that_cannot_take_more_is_passed_over_and_the_others_share_evenly() {
        let mut group = group(5);
        let counts = tally(5, || group.choose(|m| m.session.0 != 2), 4_000);
        assert_eq!(counts, [1_000, 1_000, 0, 1_000, 1_000]);
        assert_eq!(group.choose(|_| false), None);
    }

    #[test]
    fn shares_stay_even_while_members_come_and_go() {
        let mut group = group(10);
        let mut counts = [0_usize; 10];
        for round in 0..10_000_u32 {
            // Session 10 and above join and leave around the ten that are counted.
            let passer = member(0, 10 + round % 3);
            if round % 2 == 0 {
                group.join(passer);
            } else {
                group.leave(member(0, 10 + (round - 1) % 3).address());
            }
            if let Some(count) = counts.get_mut(group.choose(|_| true).unwrap().session.0 as usize) {
                *count += 1;
            }
        }
        let mean = counts.iter().sum::<usize>() / 10;
        for count in counts {
            assert!(count.abs_diff(mean) * 10 <= mean, "{counts:?}");
        }
    }

    #[test]
    fn subscribing_again_replaces_the_member() {
        let mut group = group(3);
        let again = Member { generation: 2, subscription_id: 9, ..member(1, 1) };
        assert_eq!(group.join(again).map(|m| m.generation), Some(1));
        assert_eq!(group.len(), 3);
        assert_eq!(group.join(Member { online: false, ..again }), Some(again));
        assert_eq!(group.len(), 3);
        assert!(!group.member(again.address()).unwrap().online);
    }

    #[test]
    fn offline_members_are_chosen_only_when_asked_for_and_in_turn() {
        let mut group = group(4);
        for session in 0..4 {
            let address = member((session % 2) as u8, session).address();
            assert!(group.set_presence(address, Presence::Offline));
        }
        assert_eq!(group.choose(|_| true), None);
        assert!(tally(4, || group.choose_offline(|_| true), 400).iter().all(|n| *n == 100));
        assert!(group.set_presence(member(1, 3).address(), Presence::Online));
        assert_eq!(group.choose(|_| true).map(|m| (m.session.0, m.online)), Some((3, true)));
        assert!(!group.set_presence(member(9, 9).address(), Presence::Online));
    }

    #[test]
    fn a_group_everyone_left_holds_nothing() {
        let mut group = group(100);
        for session in 0..100 {
            assert!(group.leave(member((session % 2) as u8, session).address()).is_some());
        }
        assert!(group.is_empty() && group.memory() == 0);
        assert_eq!(group.leave(member(0, 0).address()), None);
    }
}
