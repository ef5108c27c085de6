//! The numbers of the listeners of a running broker: a pure decision.
//!
//! Connections, settings and counters know a listener by its number. A reload that changes a
//! listener gives it a new number under the same socket. The connections that it accepted before
//! keep the old number, and with it the old settings: the number is *closed*. A closed number
//! without connections is *vacant*, and has no settings and no files any more.
//!
//! A closed number *follows* the open one in its place while the two differ in keys that hold at
//! once, such as the ACL file. It then has the settings of the open one. If another key differs, it
//! keeps what it has: a part of the new settings without the rest is what no configuration says.
//!
//! A number is never used again. So no message about an earlier listener, which may still be on its
//! way to a shard, can be taken for one about a later listener. 65,536 numbers are enough for a
//! change every hour for seven years. After the last one, a reload that needs more is refused.

use super::handshake::entrance::listener_name;
use crate::config::{Listener, holds_at_once, predecessors};
use crate::net::tls::reload::INTERFACE;
use crate::shard::arrival::ListenerNumber;

/// Every listener that a broker has or had, by number.
#[derive(Clone, Debug, Default)]
pub(super) struct ListenerPlaces {
    /// `None` for a vacant number.
    places: Vec<Option<Box<ListenerPlace>>>,
}

/// What has one number.
#[derive(Clone, Debug)]
pub(super) struct ListenerPlace {
    /// The settings.
    pub(super) listener: Listener,
    /// The name for the log, and for stored sessions with rules of this listener.
    pub(super) name: Box<str>,
    /// The state of the listener under this number.
    pub(super) state: PlaceState,
    /// The number that a closed one follows, or followed until that one was closed; `None` if it
    /// never did.
    follows: Option<ListenerNumber>,
}

/// The state of a listener under one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlaceState {
    /// It accepts connections, and stands at this place of the configuration.
    Open(usize),
    /// It accepts none. Clients of it may be connected.
    Closed,
}

/// A difference between two reloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListenerMove {
    /// A new socket is opened.
    Open(ListenerNumber),
    /// A socket goes on under another number with other settings.
    Change {
        /// The number before.
        from: ListenerNumber,
        /// The number from now on.
        to: ListenerNumber,
    },
    /// A socket is closed.
    Close(ListenerNumber),
}

/// The listeners after a reload, and the way to them.
#[derive(Debug)]
pub(super) struct ListenerPlan {
    /// All listeners, by number.
    pub(super) places: ListenerPlaces,
    /// The differences. Listeners that stay as they are have none.
    pub(super) moves: Vec<ListenerMove>,
}

/// There is no number left for a new or changed listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("65,536 listeners were added or changed since the start ([[listeners]]); restart the broker")]
pub(super) struct NoNumberLeft;

impl ListenerPlaces {
    /// Returns the places of the listeners at the start: their numbers are their places in the
    /// configuration.
    pub(super) fn at_start(listeners: &[Listener]) -> ListenerPlaces {
        let place = |(at, listener)| Some(ListenerPlace::open(at, listener));
        ListenerPlaces { places: listeners.iter().enumerate().map(place).collect() }
    }

    /// Returns what each number has, in the order of the numbers; `None` for a vacant one.
    pub(super) fn by_number(&self) -> impl Iterator<Item = Option<&ListenerPlace>> {
        self.places.iter().map(Option::as_deref)
    }

    /// Returns the open and the closed listeners with their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ListenerNumber, &ListenerPlace)> {
        (0..=u16::MAX)
            .map(ListenerNumber)
            .zip(self.by_number())
            .filter_map(|(number, place)| Some((number, place?)))
    }

    /// Returns the settings of the open and the closed listeners.
    pub(super) fn settings(&self) -> impl Iterator<Item = &Listener> {
        self.iter().map(|(_, place)| &place.listener)
    }

    /// Returns the listeners that are open, in the order of the configuration.
    pub(super) fn open(&self) -> Vec<(ListenerNumber, &ListenerPlace)> {
        let mut open: Vec<_> = self.iter().filter(|(_, place)| place.is_open()).collect();
        open.sort_by_key(|(_, place)| match place.state {
            PlaceState::Open(at) => at,
            PlaceState::Closed => usize::MAX,
        });
        open
    }

    /// Returns what has a number; `None` if it is vacant, or nothing had it yet.
    pub(super) fn get(&self, number: ListenerNumber) -> Option<&ListenerPlace> {
        self.places.get(usize::from(number.0))?.as_deref()
    }

    /// Returns the way to the listeners of a configuration. `has_clients` says if connections of a
    /// closed listener are left.
    ///
    /// # Errors
    /// There is no number left.
    pub(super) fn plan(
        &self,
        wanted: &[Listener],
        has_clients: impl Fn(ListenerNumber) -> bool,
    ) -> Result<ListenerPlan, NoNumberLeft> {
        let mut plan = ListenerPlan { places: self.clone(), moves: Vec::new() };
        for (number, place) in self.iter() {
            if place.state == PlaceState::Closed && !has_clients(number) {
                plan.places.set(number, None);
            }
        }
        let open = self.open();
        let running: Vec<Listener> = open.iter().map(|(_, place)| place.listener.clone()).collect();
        let predecessors = predecessors(&running, wanted);
        for (at, listener) in wanted.iter().enumerate() {
            let place = ListenerPlace::open(at, listener);
            let old = predecessors[at].and_then(|old| open.get(old));
            match old {
                Some((number, old)) if old.listener == *listener && old.name == place.name => {
                    plan.places.set(*number, Some(place));
                }
                Some((from, _)) => {
                    plan.places.close(*from);
                    let to = plan.places.push(place)?;
                    plan.places.follow(*from, to);
                    plan.moves.push(ListenerMove::Change { from: *from, to });
                }
                None => plan.moves.push(ListenerMove::Open(plan.places.push(place)?)),
            }
        }
        for (at, (number, _)) in open.iter().enumerate() {
            if !predecessors.contains(&Some(at)) {
                plan.places.close(*number);
                plan.moves.push(ListenerMove::Close(*number));
            }
        }
        Ok(plan)
    }

    fn push(&mut self, place: Box<ListenerPlace>) -> Result<ListenerNumber, NoNumberLeft> {
        let next = u16::try_from(self.places.len()).ok();
        let number = next.filter(|number| *number != INTERFACE).ok_or(NoNumberLeft)?;
        self.places.push(Some(place));
        Ok(ListenerNumber(number))
    }

    /// Gives a closed number, and all that follow it, the settings of its successor, if the two
    /// differ in nothing but keys that hold at once. A number that is closed never gets a successor
    /// again, so numbers that followed it otherwise keep their settings.
    fn follow(&mut self, from: ListenerNumber, to: ListenerNumber) {
        let (Some(old), Some(new)) = (self.get(from), self.get(to)) else { return };
        if !holds_at_once(&old.listener, &new.listener) {
            return;
        }
        let (listener, name) = (new.listener.clone(), new.name.clone());
        for (number, place) in (0..=u16::MAX).map(ListenerNumber).zip(&mut self.places) {
            if let Some(place) = place.as_mut().filter(|place| number == from || place.follows == Some(from))
            {
                (place.listener, place.name) = (listener.clone(), name.clone());
                place.follows = Some(to);
            }
        }
    }

    fn set(&mut self, number: ListenerNumber, place: Option<Box<ListenerPlace>>) {
        if let Some(at) = self.places.get_mut(usize::from(number.0)) {
            *at = place;
        }
    }

    fn close(&mut self, number: ListenerNumber) {
        if let Some(Some(place)) = self.places.get_mut(usize::from(number.0)) {
            place.state = PlaceState::Closed;
        }
    }
}

impl ListenerPlace {
    fn open(at: usize, listener: &Listener) -> Box<ListenerPlace> {
        let name = listener_name(at, listener);
        let (listener, state) = (listener.clone(), PlaceState::Open(at));
        Box::new(ListenerPlace { listener, name, state, follows: None })
    }

    /// Returns true if the listener accepts connections.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, PlaceState::Open(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: fn(u16) -> ListenerNumber = ListenerNumber;

    fn listener(port: u16) -> Listener {
        Listener::plain(([127, 0, 0, 1], port).into())
    }

    fn limited(port: u16, connections: u32) -> Listener {
        Listener { connections: Some(connections), ..listener(port) }
    }

    fn named(port: u16) -> Listener {
        Listener { name: Some(format!("port-{port}")), ..listener(port) }
    }

    /// Returns the open listeners by port, each with its number.
    fn open(places: &ListenerPlaces) -> Vec<(u16, Listener)> {
        places.open().into_iter().map(|(number, place)| (number.0, place.listener.clone())).collect()
    }

    #[test]
    fn a_listener_that_stays_keeps_its_number_at_another_place_of_the_list() {
        let start = ListenerPlaces::at_start(&[named(1), named(2)]);
        let plan = start.plan(&[named(2), named(3)], |_| true).unwrap();
        assert_eq!(plan.moves, [ListenerMove::Open(N(2)), ListenerMove::Close(N(0))]);
        assert_eq!(open(&plan.places), [(1, named(2)), (2, named(3))]);
        let again = plan.places.plan(&[named(2), named(3)], |_| true).unwrap();
        assert_eq!(again.moves, []);
    }

    #[test]
    fn a_changed_listener_has_a_new_number_and_its_clients_keep_the_old_one() {
        let start = ListenerPlaces::at_start(&[limited(1, 7)]);
        let plan = start.plan(&[limited(1, 8)], |_| true).unwrap();
        assert_eq!(plan.moves, [ListenerMove::Change { from: N(0), to: N(1) }]);
        let connections = |places: &ListenerPlaces| -> Vec<_> {
            places.by_number().map(|place| place.map(|place| place.listener.connections)).collect()
        };
        assert_eq!(connections(&plan.places), [Some(Some(7)), Some(Some(8))]);
        let with_clients = plan.places.plan(&[limited(1, 8)], |number| number == N(0)).unwrap();
        assert_eq!(connections(&with_clients.places), [Some(Some(7)), Some(Some(8))]);
        let without = with_clients.places.plan(&[limited(1, 8)], |_| false).unwrap();
        assert_eq!(connections(&without.places), [None, Some(Some(8))]);
        assert_eq!(without.moves, []);
    }

    fn names(places: &ListenerPlaces) -> Vec<&str> {
        places.open().iter().map(|(_, place)| &*place.name).collect()
    }

    /// Its place once was its name. Then a removal gave its sessions the rules of its neighbour.
    #[test]
    fn a_listener_without_a_name_is_named_by_its_address() {
        let start = ListenerPlaces::at_start(&[listener(1), listener(2)]);
        let plan = start.plan(&[listener(2), listener(3)], |_| true).unwrap();
        assert_eq!(names(&plan.places), ["127.0.0.1:2", "127.0.0.1:3"]);
        assert_eq!(plan.moves, [ListenerMove::Open(N(2)), ListenerMove::Close(N(0))]);
    }

    /// Their addresses may be the same.
    #[test]
    fn listeners_with_port_0_and_without_a_name_are_named_by_their_places() {
        let start = ListenerPlaces::at_start(&[listener(0), listener(0)]);
        let plan = start.plan(&[listener(1), listener(0)], |_| true).unwrap();
        assert_eq!(names(&plan.places), ["127.0.0.1:1", "listener-2"]);
        assert_eq!(plan.moves, [ListenerMove::Open(N(2)), ListenerMove::Close(N(0))]);
    }

    #[test]
    fn a_closed_number_follows_its_successors_until_more_than_live_keys_differ() {
        let acl = |file: &str| Listener { acl_file: Some(file.to_owned()), ..named(1) };
        let mounted = |file: &str| Listener { mount_point: Some("tenant/".to_owned()), ..acl(file) };
        let mut places = ListenerPlaces::at_start(&[named(1)]);
        let mut reload = |listener: Listener| {
            // No client comes by any number but the first.
            places = places.plan(&[listener], |number| number == N(0)).unwrap().places;
            places.get(N(0)).unwrap().listener.clone()
        };
        assert_eq!(reload(acl("one")), acl("one"));
        assert_eq!(reload(Listener { name: None, ..acl("two") }), Listener { name: None, ..acl("two") });
        assert_eq!(reload(acl("three")), acl("three"));
        for unlike in [mounted("three"), mounted("four"), acl("four"), named(1)] {
            assert_eq!(reload(unlike), acl("three"), "the rules that it had belong to its topics");
        }
    }

    #[test]
    fn a_number_is_never_used_again_and_after_the_last_one_a_change_is_refused() {
        let last = INTERFACE - 1;
        let mut places = ListenerPlaces { places: vec![None; usize::from(last) - 1] };
        let sets = [vec![named(1)], vec![named(2)]];
        for (turn, number) in [(0, last - 1), (1, last)] {
            let plan = places.plan(&sets[turn], |_| false).unwrap();
            assert_eq!(plan.moves[0], ListenerMove::Open(N(number)));
            places = plan.places;
        }
        assert_eq!(places.plan(&sets[0], |_| false).unwrap_err(), NoNumberLeft);
        assert_eq!(places.plan(&sets[1], |_| false).unwrap().moves, [], "what stays needs no number");
    }
}
