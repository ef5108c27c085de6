//! The change of each listener by a reload.
//!
//! A listener is known by its address. A listener changes as a whole. Otherwise a rule about client
//! ids could end at once, and the password that replaces the rule be demanded only after the
//! restart. For the same reason all listeners wait while a key of `auth` or `acl` does, because
//! those keys count on every listener.

use super::Config;
use super::listener::Listener;
use super::table::ReloadEffect;
use super::value::Field;
use config::{Map, Value, ValueKind};
use std::fmt;
use std::net::SocketAddr;

/// Keys that belong to the file of a Unix socket. These keys need a restart if the address stays.
const OF_SOCKET_FILE: [&str; 2] = ["mode", "group"];

/// Keys that no connection carries with it. A change of these alone holds at once.
const LIVE: [&str; 3] = ["name", "acl_file", "backlog"];

/// The change of one listener by a reload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerChange {
    /// The name, or the address of a listener without one.
    pub listener: String,
    /// The kind of change in the file.
    pub what: ListenerChangeKind,
    /// `Restart` if the listener does not change before the restart.
    pub effect: ReloadEffect,
}

/// The difference between a listener of a running broker and the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenerChangeKind {
    /// The listener is new.
    Added,
    /// The listener is gone. Its clients stay.
    Removed,
    /// These keys differ.
    Changed(Vec<&'static str>),
}

impl ListenerChangeKind {
    /// Returns the word of the report.
    pub fn name(&self) -> &'static str {
        match self {
            ListenerChangeKind::Added => "added",
            ListenerChangeKind::Removed => "removed",
            ListenerChangeKind::Changed(_) => "changed",
        }
    }

    /// Returns the keys that differ; none for a listener that is new or gone.
    pub fn keys(&self) -> &[&'static str] {
        match self {
            ListenerChangeKind::Changed(keys) => keys,
            ListenerChangeKind::Added | ListenerChangeKind::Removed => &[],
        }
    }
}

impl fmt::Display for ListenerChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "listener {} {}", self.listener, self.what.name())?;
        if !self.what.keys().is_empty() {
            write!(f, ": {}", self.what.keys().join(", "))?;
        }
        Ok(())
    }
}

/// The listeners of a broker after a reload.
#[derive(Debug, Default)]
pub(super) struct ReloadedListeners {
    /// `network.listen`.
    pub(super) listen: Vec<SocketAddr>,
    /// `[[listeners]]`.
    pub(super) listeners: Vec<Listener>,
    /// The differences, in the order of the file, those that are gone at the end.
    pub(super) changes: Vec<ListenerChange>,
}

/// Returns the changes of the listeners of `running` by a reload of a file with `new`.
pub(super) fn reloaded(running: &Config, new: &Config) -> ReloadedListeners {
    let (before, after) = (running.all_listeners(), new.all_listeners());
    let mut decided = ReloadedListeners::default();
    // Both sections count on every listener.
    let all_wait = running.waits_for_restart(new, &["auth", "acl"]);
    let predecessors = predecessors(&before, &after);
    for (place, listener) in after.iter().enumerate() {
        let old = predecessors[place].map(|at| &before[at]);
        let effect = match old {
            _ if all_wait => ReloadEffect::Restart,
            None => ReloadEffect::Live,
            Some(old) => effect_of(&changed_keys(old, listener)),
        };
        let what = match old {
            Some(old) if old == listener => None,
            Some(old) => Some(ListenerChangeKind::Changed(changed_keys(old, listener))),
            None => Some(ListenerChangeKind::Added),
        };
        let changed = what.map(|what| ListenerChange { listener: listener.label(), what, effect });
        decided.changes.extend(changed);
        let in_force = if effect == ReloadEffect::Restart { old } else { Some(listener) };
        if place >= new.network.listen.len() {
            decided.listeners.extend(in_force.cloned());
        }
    }
    let is_gone = |(at, _): &(usize, &Listener)| !predecessors.contains(&Some(*at));
    decided.changes.extend(before.iter().enumerate().filter(is_gone).map(|(_, listener)| ListenerChange {
        listener: listener.label(),
        what: ListenerChangeKind::Removed,
        effect: if all_wait { ReloadEffect::Restart } else { ReloadEffect::Live },
    }));
    match all_wait {
        true => {
            decided.listen.clone_from(&running.network.listen);
            decided.listeners.clone_from(&running.listeners);
        }
        false => decided.listen.clone_from(&new.network.listen),
    }
    decided
}

/// Compares a running listener with a new one, each with its place in the list.
type IsSame = fn((usize, &Listener), (usize, &Listener)) -> bool;

/// Returns for each new listener the index of the running listener at the same address, if any. The
/// new listener continues it. Each running listener is continued once.
pub(crate) fn predecessors(running: &[Listener], new: &[Listener]) -> Vec<Option<usize>> {
    let mut found = vec![None; new.len()];
    let mut is_free = vec![true; running.len()];
    // Several listeners may have port 0. Then the name decides, and after it the place in the list.
    let rules: [IsSame; 3] = [
        |(_, old), (_, new)| old.name.is_some() && old.name == new.name,
        |(old, _), (new, _)| old == new,
        |_, _| true,
    ];
    for is_same in rules {
        for (at, listener) in new.iter().enumerate() {
            if found[at].is_some() {
                continue;
            }
            let continues = |&old: &usize| {
                let other = &running[old];
                is_free[old] && other.address == listener.address && is_same((old, other), (at, listener))
            };
            found[at] = (0..running.len()).find(continues);
            if let Some(old) = found[at] {
                is_free[old] = false;
            }
        }
    }
    found
}

fn effect_of(keys: &[&str]) -> ReloadEffect {
    if keys.iter().any(|key| OF_SOCKET_FILE.contains(key)) {
        ReloadEffect::Restart
    } else if are_live(keys) {
        ReloadEffect::Live
    } else {
        ReloadEffect::NewConnections
    }
}

/// Returns true if a change of these keys alone holds at once.
fn are_live(keys: &[&str]) -> bool {
    keys.iter().all(|key| LIVE.contains(key))
}

/// Returns true if a change of one listener to another holds at once, also for clients that are
/// connected.
pub(crate) fn is_live(old: &Listener, new: &Listener) -> bool {
    are_live(&changed_keys(old, new))
}

/// Returns the keys whose values differ.
fn changed_keys(old: &Listener, new: &Listener) -> Vec<&'static str> {
    let fields = |listener: &Listener| match listener.write() {
        ValueKind::Table(fields) => fields,
        _ => Map::new(),
    };
    let (old, new) = (fields(old), fields(new));
    let kind = |fields: &Map<String, Value>, key: &str| fields.get(key).map(|value| value.kind.clone());
    let differs = |key: &&'static str| kind(&old, key) != kind(&new, key);
    Listener::FIELDS.iter().map(|(key, _)| *key).filter(differs).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Anonymous, AuthMethod};

    fn listener(address: &str) -> Listener {
        Listener { address: address.parse().ok(), ..Listener::default() }
    }

    fn config(listeners: Vec<Listener>) -> Config {
        let mut config = Config { listeners, ..Config::default() };
        config.network.listen.clear();
        config
    }

    /// Returns the lines of the report, each with its effect.
    fn lines(decided: &ReloadedListeners) -> Vec<String> {
        let line = |change: &ListenerChange| format!("{} {change}", change.effect.name());
        decided.changes.iter().map(line).collect()
    }

    const A: &str = "127.0.0.1:1";
    const B: &str = "127.0.0.1:2";
    const C: &str = "127.0.0.1:3";

    #[test]
    fn listeners_are_added_and_removed_and_others_stay() {
        let running = config(vec![listener(A), listener(B)]);
        let new = config(vec![listener(B), listener(C)]);
        let decided = reloaded(&running, &new);
        assert_eq!(lines(&decided), ["live listener 127.0.0.1:3 added", "live listener 127.0.0.1:1 removed"]);
        assert_eq!(decided.listeners, new.listeners);
        assert_eq!(lines(&reloaded(&new, &new)), [""; 0]);
    }

    #[test]
    fn a_listener_of_network_listen_may_get_settings_of_its_own() {
        let mut running = config(Vec::new());
        running.network.listen = vec![A.parse().unwrap(), B.parse().unwrap()];
        let new = config(vec![Listener { connections: Some(7), ..listener(A) }]);
        let decided = reloaded(&running, &new);
        assert_eq!(
            lines(&decided),
            ["new listener 127.0.0.1:1 changed: connections", "live listener 127.0.0.1:2 removed"]
        );
        assert_eq!((decided.listen, decided.listeners), (Vec::new(), new.listeners));
    }

    #[test]
    fn the_permissions_of_a_socket_file_wait_and_with_them_the_rest_of_the_listener() {
        let socket = |mode: &str, connections| Listener {
            mode: Some(mode.to_owned()),
            connections: Some(connections),
            ..listener("unix:/run/homing.sock")
        };
        let running = config(vec![socket("0600", 1)]);
        let new = config(vec![socket("0660", 2), listener(A)]);
        let decided = reloaded(&running, &new);
        assert_eq!(
            lines(&decided),
            [
                "restart listener unix:/run/homing.sock changed: mode, connections",
                "live listener 127.0.0.1:1 added"
            ]
        );
        assert_eq!(decided.listeners, [socket("0600", 1), listener(A)]);
    }

    #[test]
    fn the_effect_is_that_of_the_keys_that_differ() {
        let effect = |change: Listener| {
            let new = Listener { address: A.parse().ok(), ..change };
            let decided = reloaded(&config(vec![listener(A)]), &config(vec![new]));
            decided.changes[0].effect
        };
        let file = || Some("acl".to_owned());
        let live = Listener { acl_file: file(), backlog: Some(7), ..Listener::default() };
        assert_eq!(effect(live), ReloadEffect::Live);
        let new = Listener { acl_file: file(), auth: Some(Vec::new()), ..Listener::default() };
        assert_eq!(effect(new), ReloadEffect::NewConnections);
    }

    /// A reload once took the rule away at once, and demanded the password after the restart.
    #[test]
    fn all_listeners_wait_while_a_key_of_auth_or_acl_does() {
        let guarded = Listener {
            anonymous: Some(Anonymous::Always),
            client_id: Some("dev-*".to_owned()),
            ..listener(A)
        };
        let running = config(vec![guarded.clone(), listener(B)]);
        let demanding: fn(&mut Config) = |new| new.auth.methods = vec![AuthMethod::Password];
        for wait in [demanding, |new| new.acl.file = "acl".to_owned()] {
            let mut new = config(vec![Listener { client_id: None, ..guarded.clone() }, listener(C)]);
            new.network.listen = vec!["127.0.0.1:4".parse().unwrap()];
            wait(&mut new);
            let decided = reloaded(&running, &new);
            assert_eq!(
                lines(&decided),
                [
                    "restart listener 127.0.0.1:4 added",
                    "restart listener 127.0.0.1:1 changed: client_id",
                    "restart listener 127.0.0.1:3 added",
                    "restart listener 127.0.0.1:2 removed"
                ]
            );
            assert_eq!((decided.listen, decided.listeners), (Vec::new(), running.listeners.clone()));
        }
    }

    #[test]
    fn of_listeners_with_port_0_the_name_decides_and_then_the_place() {
        let free = |name: Option<&str>| Listener { name: name.map(str::to_owned), ..listener("127.0.0.1:0") };
        let (a, b, none) = (free(Some("a")), free(Some("b")), free(None));
        let [both, unnamed] = [[a.clone(), b.clone()], [none.clone(), none.clone()]];
        assert_eq!(predecessors(&both, &both[1..]), [Some(1)]);
        assert_eq!(predecessors(&unnamed, &[none, a.clone()]), [Some(0), Some(1)]);
        assert_eq!(predecessors(&both[..1], &unnamed), [Some(0), None]);
        assert_eq!(predecessors(&[a, listener(B)], &[listener(B), b]), [Some(1), Some(0)]);
    }
}
