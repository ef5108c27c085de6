//! Shared subscriptions: the members of a group, and the choice among them.
//!
//! Every shard knows the members of all shards; the publisher's shard chooses, and after a refusal the shard of who refused,
//! so two shards choose independently and fairness holds per choosing shard. Not here: whether a member can take more (the
//! caller answers), and what becomes of a refused or unacknowledged message.

use super::presence::Presences;
use super::subscription_tree::{PackedOptions, SessionSlot, ShardId, ShardSet};
use std::ops::Range;

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
    /// The last of the [`Presences`]' changes that these two know of.
    seen: u64,
}

/// Changes of presence that are taken in one after the other. Each moves up to all members of the group in memory, so more
/// than these are taken in by one pass over the members.
const FEW_CHANGES: usize = 4;

/// Changes of presence that are taken in for one choice: about a millisecond's worth.
const MOST_CHANGES: usize = 8_192;

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

    /// Takes in whose sessions came and went since the last call, `MOST_CHANGES` of them: if there are more, the group
    /// learns of the others at the next calls. Costs a comparison if none did; else a look-up for each that did, or for each
    /// member if those are fewer, and a pass over the members. Returns the number of look-ups.
    pub fn catch_up(&mut self, presences: &Presences) -> usize {
        if self.seen == presences.latest() {
            return 0;
        }
        let members = self.len();
        let most = members.min(MOST_CHANGES);
        let mut changed: Vec<_> = presences.changed_after(self.seen).take(most + 1).collect();
        let beyond = changed.len() > most;
        let moves = |m: &Member| m.online != (presences.of(m.address()) == Presence::Online);
        self.seen = presences.latest();
        let (mut moving, steps): (Vec<Member>, usize) = if beyond && members <= MOST_CHANGES {
            (self.members().filter(|m| moves(m)).copied().collect(), members)
        } else {
            changed.truncate(most);
            if let Some((last, _)) = changed.last().filter(|_| beyond) {
                self.seen = *last;
            }
            let of_group = changed.iter().filter_map(|(_, address)| self.member(*address));
            (of_group.filter(|m| moves(m)).copied().collect(), changed.len())
        };
        if moving.len() <= FEW_CHANGES {
            for member in moving {
                self.join(Member { online: !member.online, ..member });
            }
            return steps;
        }
        moving.sort_unstable_by_key(Member::address);
        let (go, come): (Vec<Member>, Vec<Member>) = moving.into_iter().partition(|m| m.online);
        self.online.exchange(&go, &come);
        self.offline.exchange(&come, &go);
        steps
    }

    /// No change of presence before this one concerns the group: it is new.
    pub fn begins_at(&mut self, change: u64) {
        self.seen = change;
    }

    /// The next online member in turn that accepts; each is asked once at most, and `most` of them. If none of those accepts,
    /// the turn is the next one's.
    pub fn choose(&mut self, most: usize, accepts: impl FnMut(&Member) -> bool) -> Option<Member> {
        self.online.next(most, accepts)
    }

    /// For when no member is online: the next offline one in turn whose queue accepts. Its session outlives
    /// its connection, else it would have left.
    pub fn choose_offline(&mut self, most: usize, accepts: impl FnMut(&Member) -> bool) -> Option<Member> {
        self.offline.next(most, accepts)
    }

    /// Returns where the members of one shard stand among those who are online, or away, and the one of them whose turn it is.
    pub fn of_shard(&self, presence: Presence, shard: ShardId) -> (Range<usize>, usize) {
        let ring = self.ring(presence);
        let begin = ring.members.partition_point(|m| m.shard < shard);
        let end = ring.members.partition_point(|m| m.shard <= shard);
        let turn = if (begin..end).contains(&ring.turn) { ring.turn } else { begin };
        (begin..end, turn)
    }

    /// Returns a member by its place among those who are online, or away.
    pub fn at(&self, presence: Presence, place: usize) -> Option<Member> {
        self.ring(presence).members.get(place).copied()
    }

    /// The turn of those who are online, or away, is the one's at this place, or the first's if there is none.
    pub fn set_turn(&mut self, presence: Presence, place: usize) {
        let ring = match presence {
            Presence::Online => &mut self.online,
            Presence::Offline => &mut self.offline,
        };
        ring.turn = if place < ring.members.len() { place } else { 0 };
    }

    /// Returns a shard with members who are online, or away, that is not among those. Costs a search for each shard.
    pub fn shard_beside(&self, presence: Presence, seen: ShardSet) -> Option<ShardId> {
        let members = &self.ring(presence).members;
        let mut next = members.first();
        while let Some(shard) = next.map(|m| m.shard).filter(|shard| seen.contains(*shard)) {
            next = members.get(members.partition_point(|m| m.shard <= shard));
        }
        next.map(|m| m.shard)
    }

    fn ring(&self, presence: Presence) -> &Ring {
        match presence {
            Presence::Online => &self.online,
            Presence::Offline => &self.offline,
        }
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

    fn next(&mut self, most: usize, mut accepts: impl FnMut(&Member) -> bool) -> Option<Member> {
        let n = self.members.len();
        let mut places = (self.turn..n).chain(0..self.turn).take(most);
        let Some(at) = places.find(|at| accepts(&self.members[*at])) else {
            self.turn = if most < n { (self.turn + most) % n } else { self.turn };
            return None;
        };
        self.turn = if at + 1 == n { 0 } else { at + 1 };
        self.members.get(at).copied()
    }

    /// Takes members out and others in, both sorted by address, in one pass. The turn stays with its member.
    fn exchange(&mut self, go: &[Member], come: &[Member]) {
        let turn = self.members.get(self.turn).map(Member::address);
        let (mut go, mut come) = (go.iter().peekable(), come.iter().peekable());
        let mut members = Vec::with_capacity(self.members.len() + come.len() - go.len());
        for member in &self.members {
            while let Some(new) = come.next_if(|new| new.address() < member.address()) {
                members.push(Member { online: !new.online, ..*new });
            }
            if go.next_if(|gone| gone.address() == member.address()).is_none() {
                members.push(*member);
            }
        }
        members.extend(come.map(|new| Member { online: !new.online, ..*new }));
        self.members = members;
        let place = turn.map_or(0, |turn| self.members.partition_point(|m| m.address() < turn));
        self.turn = if place < self.members.len() { place } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: usize = usize::MAX;

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
        assert!(tally(7, || group.choose(ALL, |_| true), 7_000).iter().all(|n| *n == 1_000));
    }

    #[test]
    fn a_member_that_cannot_take_more_is_passed_over_and_the_others_share_evenly() {
        let mut group = group(5);
        let counts = tally(5, || group.choose(ALL, |m| m.session.0 != 2), 4_000);
        assert_eq!(counts, [1_000, 1_000, 0, 1_000, 1_000]);
        assert_eq!(group.choose(ALL, |_| false), None);
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
            if let Some(count) = counts.get_mut(group.choose(ALL, |_| true).unwrap().session.0 as usize) {
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

    fn known(group: &Group) -> Presences {
        let mut presences = Presences::default();
        group.members().for_each(|m| presences.join(m.address(), Presence::Online));
        presences
    }

    #[test]
    fn offline_members_are_chosen_only_when_asked_for_and_in_turn() {
        let mut group = group(4);
        let mut presences = known(&group);
        for session in 0..4 {
            assert!(presences.set(member((session % 2) as u8, session).address(), Presence::Offline));
        }
        group.catch_up(&presences);
        assert_eq!(group.choose(ALL, |_| true), None);
        assert!(tally(4, || group.choose_offline(ALL, |_| true), 400).iter().all(|n| *n == 100));
        assert!(presences.set(member(1, 3).address(), Presence::Online));
        group.catch_up(&presences);
        assert_eq!(group.choose(ALL, |_| true).map(|m| (m.session.0, m.online)), Some((3, true)));
        assert!(!presences.set(member(9, 9).address(), Presence::Online));
    }

    #[test]
    fn many_changes_of_presence_at_once_come_to_the_same_as_one_after_the_other() {
        for changes in [1, FEW_CHANGES, FEW_CHANGES + 1, 60] {
            let (mut late, mut prompt) = (group(100), group(100));
            let mut presences = known(&late);
            late.catch_up(&presences);
            prompt.catch_up(&presences);
            for round in 0..20 {
                for n in 0..changes as u32 {
                    let session = (n * 7 + round * 13) % 100;
                    let presence =
                        if (session + round) % 3 == 0 { Presence::Online } else { Presence::Offline };
                    presences.set(member((session % 2) as u8, session).address(), presence);
                    prompt.catch_up(&presences);
                }
                late.catch_up(&presences);
                assert!(late.members().eq(prompt.members()));
                assert!(late.members().all(|m| m.online == (presences.of(m.address()) == Presence::Online)));
            }
        }
    }

    #[test]
    fn a_large_group_learns_of_very_many_changes_in_portions() {
        const MEMBERS: u32 = 3 * MOST_CHANGES as u32;
        let mut group = group(MEMBERS);
        let mut presences = known(&group);
        group.begins_at(presences.latest());
        let addresses: Vec<_> = group.members().map(Member::address).collect();
        addresses.iter().for_each(|address| _ = presences.set(*address, Presence::Offline));
        let online = |group: &Group| group.members().filter(|m| m.online).count();
        for left in [2, 1, 0] {
            assert_eq!(group.catch_up(&presences), MOST_CHANGES);
            assert_eq!(online(&group), left * MOST_CHANGES);
        }
        assert_eq!(group.catch_up(&presences), 0);
    }

    #[test]
    fn the_turn_stays_with_its_member_when_many_come_and_go() {
        let mut group = group(40);
        let mut presences = known(&group);
        let next = |group: &mut Group| group.choose(ALL, |_| true).map(|m| m.address());
        let row: Vec<_> = (0..40).filter_map(|_| next(&mut group)).collect();
        (0..20).for_each(|n| assert_eq!(next(&mut group), Some(row[n])));
        // All but every third leave, and come back.
        for presence in [Presence::Offline, Presence::Online] {
            let away = row.iter().enumerate().filter(|(n, _)| n % 3 != 2);
            away.for_each(|(_, address)| assert!(presences.set(*address, presence)));
            group.catch_up(&presences);
        }
        (20..40).for_each(|n| assert_eq!(next(&mut group), Some(row[n])));
    }

    #[test]
    fn a_choice_that_asks_only_some_goes_on_with_the_others_the_next_time() {
        let mut group = group(10);
        let mut asked = Vec::new();
        for _ in 0..5 {
            let mut ask = |m: &Member| {
                asked.push(m.session.0);
                false
            };
            assert_eq!(group.choose(4, &mut ask), None);
        }
        asked.sort_unstable();
        assert!((0..10).all(|n| asked.iter().filter(|a| **a == n).count() == 2), "{asked:?}");
    }

    #[test]
    fn members_are_found_by_their_shard() {
        let mut group = group(9);
        assert_eq!(group.of_shard(Presence::Online, ShardId(0)), (0..5, 0));
        assert_eq!(group.of_shard(Presence::Online, ShardId(1)), (5..9, 5));
        assert_eq!(group.of_shard(Presence::Online, ShardId(2)), (9..9, 9));
        group.set_turn(Presence::Online, 7);
        assert_eq!(group.of_shard(Presence::Online, ShardId(1)).1, 7);
        assert_eq!(group.at(Presence::Online, 7).map(|m| m.shard), Some(ShardId(1)));
        let mut seen = ShardSet::EMPTY;
        for shard in 0..2 {
            assert_eq!(group.shard_beside(Presence::Online, seen), Some(ShardId(shard)));
            seen.insert(ShardId(shard));
        }
        assert_eq!(group.shard_beside(Presence::Online, seen), None);
        assert_eq!(group.shard_beside(Presence::Offline, ShardSet::EMPTY), None);
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
