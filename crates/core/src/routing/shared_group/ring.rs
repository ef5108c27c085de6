//! Members in the order of their addresses, and the turn among them.
//!
//! The members are in sorted runs of at most [`RUN`]. So a member that joins or leaves moves at
//! most `RUN` others (40 KB), however many members there are. A group with fewer members is one
//! run.
//!
//! A member has a *place*: the number of members before it. To find the run of a place takes one
//! addition for each run: 0.3 us among 1,000,000 members.

use crate::routing::member::{Member, MemberAddress};

/// The largest number of members in one run.
pub(super) const RUN: usize = 2_048;

/// Members in ascending order of their addresses, and the place of the turn. If a member joins or
/// leaves, the turn moves with the members. So no member is skipped or chosen twice because another
/// joined or left.
#[derive(Debug, Default)]
pub(super) struct Ring {
    /// No run is empty.
    runs: Vec<Vec<Member>>,
    /// The number of members.
    len: usize,
    /// The place of the next member to try. Less than the number of members, or 0.
    turn: usize,
}

impl Ring {
    /// Returns the number of members.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the members in ascending order of their addresses.
    pub(super) fn members(&self) -> impl Iterator<Item = &Member> {
        self.runs.iter().flatten()
    }

    /// Returns the member with this address.
    pub(super) fn find(&self, address: MemberAddress) -> Option<&Member> {
        let run = self.runs.get(self.run_of(address))?;
        run.get(run.binary_search_by_key(&address, Member::address).ok()?)
    }

    /// Returns the member at a place.
    pub(super) fn at(&self, place: usize) -> Option<&Member> {
        let (run, index) = self.locate(place);
        self.runs.get(run)?.get(index)
    }

    /// Returns the place of the next member to try.
    pub(super) fn turn(&self) -> usize {
        self.turn
    }

    /// Gives the turn to the member at this place, or to the first if the place has none.
    pub(super) fn set_turn(&mut self, place: usize) {
        self.turn = if place < self.len { place } else { 0 };
    }

    /// Returns the number of members before the first member for which `is_before` is false.
    /// `is_before` is true for all members before that one.
    pub(super) fn count_before(&self, is_before: impl Fn(&Member) -> bool) -> usize {
        if let [run] = &self.runs[..] {
            return run.partition_point(is_before);
        }
        let at = self.runs.partition_point(|run| run.last().is_some_and(&is_before));
        self.place(at, self.runs.get(at).map_or(0, |run| run.partition_point(is_before)))
    }

    /// Adds a member. Returns the replaced member of the same session, if any.
    pub(super) fn put(&mut self, member: Member) -> Option<Member> {
        if self.runs.is_empty() {
            self.runs = vec![Vec::new()];
        }
        let at = self.run_of(member.address());
        let index = match self.runs[at].binary_search_by_key(&member.address(), Member::address) {
            Ok(index) => return Some(std::mem::replace(&mut self.runs[at][index], member)),
            Err(index) => index,
        };
        self.turn += usize::from(self.place(at, index) < self.turn);
        self.len += 1;
        let (at, index) = if self.runs[at].len() < RUN { (at, index) } else { self.split(at, index) };
        self.runs[at].insert(index, member);
        None
    }

    /// Removes the member with this address and returns it.
    pub(super) fn remove(&mut self, address: MemberAddress) -> Option<Member> {
        let at = self.run_of(address);
        let run = self.runs.get_mut(at)?;
        let index = run.binary_search_by_key(&address, Member::address).ok()?;
        let member = run.remove(index);
        if run.len() * 4 <= run.capacity() {
            run.shrink_to(run.len() * 2);
        }
        self.len -= 1;
        if self.place(at, index) < self.turn {
            self.turn -= 1;
        }
        self.set_turn(self.turn);
        self.merge(at);
        Some(member)
    }

    /// Chooses the next member in turn that `accepts` takes, among at most `most` members. The turn
    /// passes to the member after it, or to the first that was not tried.
    pub(super) fn next(&mut self, most: usize, mut accepts: impl FnMut(&Member) -> bool) -> Option<Member> {
        let (mut at, mut index) = self.locate(self.turn);
        for tried in 1..=most.min(self.len) {
            let run = &self.runs[at];
            let member = &run[index];
            if accepts(member) {
                self.turn = self.after_turn(tried);
                return Some(*member);
            }
            index += 1;
            if index == run.len() {
                (at, index) = (if at + 1 < self.runs.len() { at + 1 } else { 0 }, 0);
            }
        }
        if most < self.len {
            self.turn = self.after_turn(most);
        }
        None
    }

    /// Returns the place that is so many members after the turn: at most as many as there are.
    fn after_turn(&self, members: usize) -> usize {
        let place = self.turn + members;
        if place < self.len { place } else { place - self.len }
    }

    /// Removes the members `go` and adds the members `come` in one pass, and flips the presence of
    /// the latter. Both are in ascending order of addresses. The turn stays with its member.
    pub(super) fn swap(&mut self, go: &[Member], come: &[Member]) {
        let turn = self.at(self.turn).map(Member::address);
        let (mut go, mut come) = (go.iter().peekable(), come.iter().peekable());
        let mut left = self.len + come.len() - go.len();
        let runs = std::mem::take(&mut self.runs);
        self.len = left;
        let mut push = |member: Member| {
            if self.runs.last().is_none_or(|run| run.len() == RUN) {
                self.runs.push(Vec::with_capacity(left.min(RUN)));
            }
            left -= 1;
            if let Some(run) = self.runs.last_mut() {
                run.push(member);
            }
        };
        for member in runs.iter().flatten() {
            while let Some(new) = come.next_if(|new| new.address() < member.address()) {
                push(Member { online: !new.online, ..*new });
            }
            if go.next_if(|gone| gone.address() == member.address()).is_none() {
                push(*member);
            }
        }
        come.for_each(|new| push(Member { online: !new.online, ..*new }));
        self.set_turn(turn.map_or(0, |turn| self.count_before(|member| member.address() < turn)));
    }

    /// Returns the bytes on the heap.
    pub(super) fn memory(&self) -> usize {
        self.runs.capacity() * size_of::<Vec<Member>>()
            + self.runs.iter().map(Vec::capacity).sum::<usize>() * size_of::<Member>()
    }

    /// Returns the index of the run that has the address, or into which the address belongs.
    fn run_of(&self, address: MemberAddress) -> usize {
        let begins = |run: &Vec<Member>| run.first().is_some_and(|first| first.address() <= address);
        self.runs.partition_point(begins).saturating_sub(1)
    }

    /// Returns the place of an index in a run.
    fn place(&self, run: usize, index: usize) -> usize {
        self.runs.iter().take(run).map(Vec::len).sum::<usize>() + index
    }

    /// Returns the run of a place, and the index in the run.
    fn locate(&self, place: usize) -> (usize, usize) {
        let (mut at, mut index) = (0, place);
        while let Some(run) = self.runs.get(at).filter(|run| run.len() <= index) {
            index -= run.len();
            at += 1;
        }
        (at, index)
    }

    /// Makes room in a full run for a member at this index. Returns the run and the index of the
    /// member's new place.
    fn split(&mut self, at: usize, index: usize) -> (usize, usize) {
        // A full last run is followed by a new one, so that ascending addresses fill every run.
        // Others are halved.
        let is_append = index == RUN && at + 1 == self.runs.len();
        let half = if is_append { RUN } else { RUN / 2 };
        let upper = self.runs[at].split_off(half);
        self.runs.insert(at + 1, upper);
        if index < half || index == half && !is_append { (at, index) } else { (at + 1, index - half) }
    }

    /// Merges a short run with a neighbour, if both fit in half a run. Removes an empty run.
    fn merge(&mut self, at: usize) {
        let len = self.runs[at].len();
        if len >= RUN / 4 {
            return;
        }
        let len_at = |at: usize| self.runs.get(at).map_or(RUN, Vec::len);
        if at > 0 && len_at(at - 1) + len <= RUN / 2 {
            let run = self.runs.remove(at);
            self.runs[at - 1].extend(run);
        } else if len_at(at + 1) + len <= RUN / 2 {
            let next = self.runs.remove(at + 1);
            self.runs[at].extend(next);
        } else if len == 0 {
            self.runs.remove(at);
        }
        if self.runs.len() * 4 <= self.runs.capacity() {
            self.runs.shrink_to(self.runs.len() * 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::subscription_tree::{PackedOptions, SessionSlot, ShardId};

    fn member(n: u32) -> Member {
        Member {
            shard: ShardId((n % 3) as u8),
            session: SessionSlot(n),
            generation: 0,
            options: PackedOptions::default(),
            subscription_id: 0,
            online: true,
        }
    }

    /// Returns the numbers below `n`, each once, in an order that is neither ascending nor
    /// descending.
    fn scattered(n: u32) -> impl Iterator<Item = u32> {
        (0..n).map(move |i| (u64::from(i) * 7_919 % u64::from(n)) as u32)
    }

    /// A change moves members of the runs that it touches, and the list of runs.
    #[test]
    fn no_run_has_more_than_its_bound_of_200_000_members() {
        const MEMBERS: u32 = 200_000;
        let mut ring = Ring::default();
        for n in scattered(MEMBERS) {
            assert_eq!(ring.put(member(n)), None);
        }
        let largest = |ring: &Ring| ring.runs.iter().map(Vec::capacity).max().unwrap_or(0);
        assert!(largest(&ring) <= RUN && ring.runs.len() < 4 * MEMBERS as usize / RUN);
        assert!(ring.memory() < 2 * MEMBERS as usize * size_of::<Member>(), "{}", ring.memory());
        for n in scattered(MEMBERS) {
            assert_eq!(ring.remove(member(n).address()), Some(member(n)));
        }
        assert_eq!((ring.len(), ring.memory()), (0, 0));
    }

    /// A ring as one list.
    #[derive(Default)]
    struct Model {
        members: Vec<Member>,
        turn: usize,
    }

    impl Model {
        fn put(&mut self, member: Member) -> Option<Member> {
            match self.members.binary_search_by_key(&member.address(), Member::address) {
                Ok(at) => Some(std::mem::replace(&mut self.members[at], member)),
                Err(at) => {
                    self.members.insert(at, member);
                    self.turn += usize::from(at < self.turn);
                    None
                }
            }
        }

        fn remove(&mut self, address: MemberAddress) -> Option<Member> {
            let at = self.members.binary_search_by_key(&address, Member::address).ok()?;
            self.turn -= usize::from(at < self.turn);
            let removed = self.members.remove(at);
            self.turn = if self.turn < self.members.len() { self.turn } else { 0 };
            Some(removed)
        }

        fn next(&mut self, most: usize, accepts: impl Fn(&Member) -> bool) -> Option<Member> {
            let len = self.members.len();
            let mut places = (self.turn..len).chain(0..self.turn).take(most);
            let found = places.find(|at| accepts(&self.members[*at]));
            match found {
                Some(at) => self.turn = (at + 1) % len,
                None if most < len => self.turn = (self.turn + most) % len,
                None => {}
            }
            found.map(|at| self.members[at])
        }
    }

    #[test]
    fn many_runs_are_as_one_list_with_a_turn() {
        let (mut ring, mut model) = (Ring::default(), Model::default());
        // Some come, then others come while some leave, then the rest leaves.
        let comes = scattered(7_000).map(|n| (n, true));
        let both = scattered(7_000).flat_map(|n| [(n + 7_000, true), (n, n % 3 > 0)]);
        let goes = scattered(7_000).flat_map(|n| [(n, false), (n + 7_000, false)]);
        for (step, (n, comes)) in comes.chain(both).chain(goes).enumerate() {
            let (new, address) = (member(n), member(n).address());
            match comes {
                true => assert_eq!(ring.put(new), model.put(new)),
                false => assert_eq!(ring.remove(address), model.remove(address)),
            }
            let accepts = |m: &Member| m.session.0.is_multiple_of(4);
            assert_eq!(ring.next(2, accepts), model.next(2, accepts));
            assert_eq!((ring.len(), ring.turn()), (model.members.len(), model.turn));
            if step % 500 == 0 {
                assert!(ring.members().eq(&model.members));
                (0..=ring.len()).for_each(|place| assert_eq!(ring.at(place), model.members.get(place)));
                for shard in 0..4 {
                    let is_before = |m: &Member| m.shard < ShardId(shard);
                    assert_eq!(ring.count_before(is_before), model.members.partition_point(is_before));
                }
            }
        }
        assert_eq!((ring.len(), ring.memory()), (0, 0));
    }

    #[test]
    fn many_members_swapped_in_one_pass_fill_runs() {
        let mut ring = Ring::default();
        (0..10_000).for_each(|n| _ = ring.put(member(n)));
        let in_order = |of: &mut dyn Iterator<Item = u32>| {
            let mut members: Vec<_> = of.map(member).collect();
            members.sort_unstable_by_key(Member::address);
            members
        };
        let (go, come) = (in_order(&mut (0..9_000)), in_order(&mut (10_000..16_000)));
        ring.set_turn(ring.count_before(|m| m.address() < member(9_500).address()));
        ring.swap(&go, &come);
        let left: Vec<_> = ring.members().map(Member::address).collect();
        let expected = in_order(&mut (9_000..16_000));
        assert!(left.iter().eq(expected.iter().map(Member::address).collect::<Vec<_>>().iter()));
        assert_eq!((ring.len(), ring.runs.len()), (7_000, 7_000_usize.div_ceil(RUN)));
        assert_eq!(ring.at(ring.turn()).map(Member::address), Some(member(9_500).address()));
    }
}
