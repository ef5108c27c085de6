//! Shared subscriptions: the members of a group, and the choice among them.
//!
//! Each shard knows the members of all shards. The publisher's shard chooses a member. If that
//! member refuses, the member's shard chooses the next. So shards choose independently, and a
//! choice is fair only among the choices of one shard.
//!
//! This file does not check if a member can take more: the caller passes that check in. The fate of
//! a message that a member refused or did not acknowledge is decided elsewhere, too.

mod ring;

pub use crate::routing::member::{Member, MemberAddress, Presence};

use crate::routing::presence::Presences;
use crate::routing::subscription_tree::{ShardId, ShardSet};
use ring::Ring;
use std::ops::Range;

/// The members of one `$share/NAME/FILTER`.
///
/// Online and offline members are kept apart, so that offline members do not slow a choice.
#[derive(Debug, Default)]
pub struct SharedGroup {
    online: Ring,
    offline: Ring,
    /// The number of the last change of [`Presences`] that is applied here.
    seen: u64,
}

/// The largest number of presence changes that are applied one after the other. Each may move all
/// members of the group in memory, so more changes are applied in one pass over the members.
const FEW_CHANGES: usize = 4;

/// The largest number of presence changes that are applied for one choice: about 1 ms.
const MOST_CHANGES: usize = 8_192;

/// A group with more members is large: a pass over its members takes longer than 1 ms.
const LARGE: usize = 65_536;

/// The largest number of presence changes that are applied to a large group for one choice, one
/// after the other: about 1 ms.
const MOST_CHANGES_OF_LARGE: usize = 256;

/// Look-ups that take as long as the move of a member from one ring of a large group to the other.
const MOVE: usize = 16;

impl SharedGroup {
    /// Returns the number of members, online and offline.
    pub fn len(&self) -> usize {
        self.online.len() + self.offline.len()
    }

    /// Returns true if the group has no member.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the online members, then the offline members, both in ascending order of their
    /// addresses.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.online.members().chain(self.offline.members())
    }

    /// Returns the member with this address.
    pub fn member(&self, address: MemberAddress) -> Option<&Member> {
        self.online.find(address).or_else(|| self.offline.find(address))
    }

    /// Adds a member. Returns the replaced member of the same session, if any.
    pub fn join(&mut self, member: Member) -> Option<Member> {
        let (into, other) = if member.online {
            (&mut self.online, &mut self.offline)
        } else {
            (&mut self.offline, &mut self.online)
        };
        let moved = other.remove(member.address());
        into.put(member).or(moved)
    }

    /// Removes the member with this address and returns it.
    pub fn leave(&mut self, address: MemberAddress) -> Option<Member> {
        self.online.remove(address).or_else(|| self.offline.remove(address))
    }

    /// Applies the presence changes since the last call. Returns the cost in look-ups.
    ///
    /// At most `MOST_CHANGES` changes are applied, or `MOST_CHANGES_OF_LARGE` if the group is
    /// large. The next calls apply the rest. If nothing changed, a call costs one comparison.
    /// Otherwise a call costs one look-up for each change, or for each member if there are fewer
    /// members, and one pass over the members, if the group is not large.
    pub fn catch_up(&mut self, presences: &Presences) -> usize {
        if self.seen == presences.latest() {
            return 0;
        }
        let members = self.len();
        let is_large = members > LARGE;
        let most = if is_large { MOST_CHANGES_OF_LARGE } else { members.min(MOST_CHANGES) };
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
        if moving.len() <= FEW_CHANGES || is_large {
            let moves = moving.len();
            for member in moving {
                self.join(Member { online: !member.online, ..member });
            }
            return if is_large { steps + moves * MOVE } else { steps };
        }
        moving.sort_unstable_by_key(Member::address);
        let (go, come): (Vec<Member>, Vec<Member>) = moving.into_iter().partition(|m| m.online);
        self.online.swap(&go, &come);
        self.offline.swap(&come, &go);
        steps
    }

    /// Marks the presence changes up to this number as applied. For a new group.
    pub fn begins_at(&mut self, change: u64) {
        self.seen = change;
    }

    /// Chooses the next online member in turn that `accepts` takes.
    ///
    /// At most `most` members are tried, each once. If none accepts, the turn passes to the first
    /// member that was not tried.
    pub fn choose(&mut self, most: usize, accepts: impl FnMut(&Member) -> bool) -> Option<Member> {
        self.online.next(most, accepts)
    }

    /// Chooses the next offline member in turn that `accepts` takes. For messages that no online member
    /// has taken.
    pub fn choose_offline(&mut self, most: usize, accepts: impl FnMut(&Member) -> bool) -> Option<Member> {
        self.offline.next(most, accepts)
    }

    /// Returns the range of one shard's members among the online or offline members, and the place
    /// of the next member in turn.
    pub fn of_shard(&self, presence: Presence, shard: ShardId) -> (Range<usize>, usize) {
        let ring = self.ring(presence);
        let begin = ring.count_before(|m| m.shard < shard);
        let end = ring.count_before(|m| m.shard <= shard);
        let turn = if (begin..end).contains(&ring.turn()) { ring.turn() } else { begin };
        (begin..end, turn)
    }

    /// Returns a member by its place among the online or offline members.
    pub fn at(&self, presence: Presence, place: usize) -> Option<Member> {
        self.ring(presence).at(place).copied()
    }

    /// Gives the turn to the member at this place, or to the first if the place has none.
    pub fn set_turn(&mut self, presence: Presence, place: usize) {
        match presence {
            Presence::Online => self.online.set_turn(place),
            Presence::Offline => self.offline.set_turn(place),
        }
    }

    /// Returns a shard that has online or offline members and is not in `seen`. Costs one search
    /// for each shard.
    pub fn shard_beside(&self, presence: Presence, seen: ShardSet) -> Option<ShardId> {
        let ring = self.ring(presence);
        let mut next = ring.at(0);
        while let Some(shard) = next.map(|m| m.shard).filter(|shard| seen.contains(*shard)) {
            next = ring.at(ring.count_before(|m| m.shard <= shard));
        }
        next.map(|m| m.shard)
    }

    fn ring(&self, presence: Presence) -> &Ring {
        match presence {
            Presence::Online => &self.online,
            Presence::Offline => &self.offline,
        }
    }

    /// Returns the bytes on the heap.
    pub fn memory(&self) -> usize {
        self.online.memory() + self.offline.memory()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::subscription_tree::{PackedOptions, SessionSlot};

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

    fn group(sessions: u32) -> SharedGroup {
        let mut group = SharedGroup::default();
        for session in 0..sessions {
            group.join(member((session % 2) as u8, session));
        }
        group
    }

    /// Returns the number of times that each session was chosen.
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

    fn known(group: &SharedGroup) -> Presences {
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
        let online = |group: &SharedGroup| group.members().filter(|m| m.online).count();
        for left in [2, 1, 0] {
            assert_eq!(group.catch_up(&presences), MOST_CHANGES);
            assert_eq!(online(&group), left * MOST_CHANGES);
        }
        assert_eq!(group.catch_up(&presences), 0);
    }

    #[test]
    fn a_very_large_group_learns_of_changes_in_small_portions() {
        let mut group = group(LARGE as u32 + 1);
        let mut presences = known(&group);
        group.begins_at(presences.latest());
        let addresses: Vec<_> = group.members().map(Member::address).take(1_000).collect();
        addresses.iter().for_each(|address| _ = presences.set(*address, Presence::Offline));
        for applied in [256, 512, 768, 1_000] {
            group.catch_up(&presences);
            assert_eq!(group.members().filter(|m| !m.online).count(), applied);
        }
        assert_eq!(group.catch_up(&presences), 0);
    }

    #[test]
    fn the_turn_stays_with_its_member_when_many_come_and_go() {
        let mut group = group(40);
        let mut presences = known(&group);
        let next = |group: &mut SharedGroup| group.choose(ALL, |_| true).map(|m| m.address());
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
