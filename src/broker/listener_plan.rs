//! The way from the listeners of a running broker to those of a configuration: a pure decision.
//!
//! A connection keeps the terms of the entrance by which it came. A reload that changes a listener
//! makes a new entrance behind the same socket, and the old one is *closed*. Its files are read
//! again for as long as it has clients.
//!
//! A new entrance shares its rules with its predecessor if the two differ only in keys that take
//! effect at once, such as the ACL file. If another key differs, the old entrance keeps its rules:
//! no configuration has a mixture of old and new settings.

use super::handshake::entrance::{Entrance, listener_name};
use crate::config::{Listener, is_live, predecessors};
use crate::login::listener_terms::LiveRules;
use std::sync::Arc;

/// The listeners after a reload, and the way to them.
#[derive(Debug)]
pub(super) struct ListenerPlan {
    /// The listeners that are open then, in the order of the configuration.
    pub(super) open: Vec<PlannedListener>,
    /// The entrances that are closed then: the entrances that this reload closes, and entrances
    /// that an earlier reload closed and that still have clients.
    pub(super) closed: Vec<Arc<Entrance>>,
    /// The entrances in `closed` whose sockets this reload closes.
    pub(super) removed: Vec<Arc<Entrance>>,
}

/// A listener that is open after a reload.
#[derive(Debug)]
pub(super) struct PlannedListener {
    pub(super) listener: Listener,
    /// The name for the log, and for stored sessions with rules of this listener.
    pub(super) name: Box<str>,
    /// The rules about topics of its clients.
    pub(super) rules: Arc<LiveRules>,
    /// The entrance whose socket the listener continues, if any.
    pub(super) before: Predecessor,
}

/// The entrance whose socket a listener continues.
#[derive(Debug)]
pub(super) enum Predecessor {
    /// A new socket is opened.
    None,
    /// The entrance does not change.
    Same(Arc<Entrance>),
    /// The socket goes on under another entrance with other settings.
    Changed(Arc<Entrance>),
}

impl ListenerPlan {
    /// Returns the plan of a broker that starts with these listeners.
    pub(super) fn at_start(wanted: &[Listener]) -> ListenerPlan {
        ListenerPlan::new(&[], &[], wanted)
    }

    /// Returns the way from the `running` entrances to the listeners of a configuration. Entrances
    /// in `closed` without clients are left out.
    pub(super) fn new(
        running: &[Arc<Entrance>],
        closed: &[Arc<Entrance>],
        wanted: &[Listener],
    ) -> ListenerPlan {
        let settings: Vec<Listener> = running.iter().map(|entrance| entrance.settings.clone()).collect();
        let predecessors = predecessors(&settings, wanted);
        let has_clients = |entrance: &&Arc<Entrance>| Arc::strong_count(&entrance.terms) > 1;
        let mut closed: Vec<_> = closed.iter().filter(has_clients).cloned().collect();
        let mut open = Vec::new();
        for (at, listener) in wanted.iter().enumerate() {
            let name = listener_name(at, listener);
            let (rules, before) = match predecessors[at].map(|old| &running[old]) {
                None => (Arc::default(), Predecessor::None),
                Some(old) if old.settings == *listener && old.name == name => {
                    (Arc::clone(&old.terms.rules), Predecessor::Same(Arc::clone(old)))
                }
                Some(old) => {
                    closed.push(Arc::clone(old));
                    let is_followed = is_live(&old.settings, listener);
                    let rules = if is_followed { Arc::clone(&old.terms.rules) } else { Arc::default() };
                    (rules, Predecessor::Changed(Arc::clone(old)))
                }
            };
            open.push(PlannedListener { listener: listener.clone(), name, rules, before });
        }
        let is_gone = |(at, _): &(usize, &Arc<Entrance>)| !predecessors.contains(&Some(*at));
        let removed: Vec<_> =
            running.iter().enumerate().filter(is_gone).map(|(_, old)| Arc::clone(old)).collect();
        closed.extend(removed.iter().cloned());
        ListenerPlan { open, closed, removed }
    }

    /// Returns the settings of the open listeners and the closed entrances.
    pub(super) fn settings(&self) -> impl Iterator<Item = &Listener> {
        let closed = self.closed.iter().map(|entrance| &entrance.settings);
        self.open.iter().map(|planned| &planned.listener).chain(closed)
    }

    /// Returns the closed entrances that share their rules with no open listener.
    pub(super) fn with_old_rules(&self) -> impl Iterator<Item = &Arc<Entrance>> {
        let is_shared = |rules| self.open.iter().any(|open| Arc::ptr_eq(&open.rules, rules));
        self.closed.iter().filter(move |entrance| !is_shared(&entrance.terms.rules))
    }
}

impl PlannedListener {
    /// Returns the entrance whose socket the listener continues; `None` for a new one.
    pub(super) fn predecessor(&self) -> Option<&Arc<Entrance>> {
        match &self.before {
            Predecessor::None => None,
            Predecessor::Same(old) | Predecessor::Changed(old) => Some(old),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::login::listener_terms::ListenerTerms;

    fn listener(port: u16) -> Listener {
        Listener::plain(([127, 0, 0, 1], port).into())
    }

    fn limited(port: u16, connections: u32) -> Listener {
        Listener { connections: Some(connections), ..listener(port) }
    }

    fn named(port: u16) -> Listener {
        Listener { name: Some(format!("port-{port}")), ..listener(port) }
    }

    /// Returns the entrances of the open listeners after a reload.
    fn entrances(plan: &ListenerPlan) -> Vec<Arc<Entrance>> {
        let entrance = |planned: &PlannedListener| match &planned.before {
            Predecessor::Same(old) => Arc::clone(old),
            _ => {
                let rules = Arc::clone(&planned.rules);
                let terms = Arc::new(ListenerTerms { rules, ..ListenerTerms::default() });
                Arc::new(Entrance::new(&planned.name, &planned.listener, terms, None))
            }
        };
        plan.open.iter().map(entrance).collect()
    }

    /// Returns the open listeners of a plan: the place of the predecessor of each, and if the
    /// listener changes.
    fn ways(plan: &ListenerPlan, running: &[Arc<Entrance>]) -> Vec<Option<(usize, bool)>> {
        let way = |planned: &PlannedListener| {
            let old = planned.predecessor()?;
            let at = running.iter().position(|entrance| Arc::ptr_eq(entrance, old)).expect("it runs");
            Some((at, matches!(planned.before, Predecessor::Changed(_))))
        };
        plan.open.iter().map(way).collect()
    }

    fn names(entrances: &[Arc<Entrance>]) -> Vec<&str> {
        entrances.iter().map(|entrance| &*entrance.name).collect()
    }

    #[test]
    fn a_listener_that_stays_keeps_its_entrance_at_another_place_of_the_list() {
        let running = entrances(&ListenerPlan::at_start(&[named(1), named(2)]));
        let plan = ListenerPlan::new(&running, &[], &[named(2), named(3)]);
        assert_eq!(ways(&plan, &running), [Some((1, false)), None]);
        assert_eq!((names(&plan.removed), names(&plan.closed)), (vec!["port-1"], vec!["port-1"]));
        let running = entrances(&plan);
        let again = ListenerPlan::new(&running, &plan.closed, &[named(2), named(3)]);
        assert_eq!(ways(&again, &running), [Some((0, false)), Some((1, false))]);
        assert!(again.removed.is_empty() && again.closed.is_empty());
    }

    #[test]
    fn a_changed_listener_has_a_new_entrance_and_its_clients_keep_the_old_one() {
        let start = entrances(&ListenerPlan::at_start(&[limited(1, 7)]));
        let client = Arc::clone(&start[0].terms);
        let plan = ListenerPlan::new(&start, &[], &[limited(1, 8)]);
        assert_eq!((ways(&plan, &start), plan.removed.len()), (vec![Some((0, true))], 0));
        let connections =
            |plan: &ListenerPlan| -> Vec<_> { plan.settings().map(|l| l.connections).collect() };
        assert_eq!(connections(&plan), [Some(8), Some(7)]);
        let running = entrances(&plan);
        let with_client = ListenerPlan::new(&running, &plan.closed, &[limited(1, 8)]);
        assert_eq!(connections(&with_client), [Some(8), Some(7)]);
        drop(client);
        let without = ListenerPlan::new(&running, &with_client.closed, &[limited(1, 8)]);
        assert_eq!(connections(&without), [Some(8)]);
    }

    /// Its place once was its name. Then a removal gave its sessions the rules of its neighbour.
    #[test]
    fn a_listener_without_a_name_is_named_by_its_address() {
        let running = entrances(&ListenerPlan::at_start(&[listener(1), listener(2)]));
        let plan = ListenerPlan::new(&running, &[], &[listener(2), listener(3)]);
        assert_eq!(names(&entrances(&plan)), ["127.0.0.1:2", "127.0.0.1:3"]);
        assert_eq!(ways(&plan, &running), [Some((1, false)), None]);
        assert_eq!(names(&plan.removed), ["127.0.0.1:1"]);
    }

    /// Their addresses may be the same.
    #[test]
    fn listeners_with_port_0_and_without_a_name_are_named_by_their_places() {
        let running = entrances(&ListenerPlan::at_start(&[listener(0), listener(0)]));
        let plan = ListenerPlan::new(&running, &[], &[listener(1), listener(0)]);
        assert_eq!(names(&entrances(&plan)), ["127.0.0.1:1", "listener-2"]);
        assert_eq!(
            (ways(&plan, &running), names(&plan.removed)),
            (vec![None, Some((1, false))], vec!["listener-1"])
        );
    }

    #[test]
    fn a_closed_entrance_shares_the_rules_of_its_successors_until_more_than_live_keys_differ() {
        let acl = |file: &str| Listener { acl_file: Some(file.to_owned()), ..named(1) };
        let mounted = |file: &str| Listener { mount_point: Some("tenant/".to_owned()), ..acl(file) };
        let (mut running, mut closed) = (entrances(&ListenerPlan::at_start(&[named(1)])), Vec::new());
        let client = Arc::clone(&running[0].terms);
        let mut shares = |listener: Listener| {
            let plan = ListenerPlan::new(&running, &closed, &[listener]);
            (running, closed) = (entrances(&plan), plan.closed);
            Arc::ptr_eq(&client.rules, &running[0].terms.rules)
        };
        let live = [acl("one"), Listener { name: None, ..acl("two") }, acl("three")];
        assert!(live.into_iter().all(&mut shares));
        for unlike in [mounted("three"), mounted("four"), acl("four"), named(1)] {
            assert!(!shares(unlike), "the rules that it had belong to its topics");
        }
    }
}
