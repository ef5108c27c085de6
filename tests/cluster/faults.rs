//! Faults of the servers while a node appends.

use crate::proxy::Passage;
use crate::servers::{Node, SERVERS, Servers};
use crate::writer::{Progress, write_while};
use bytes::Bytes;
use homing::cluster::engine::{Append, Engine};
use std::thread;
use std::time::Duration;

/// Bound of a gap for which the engine has to elect, on a busy machine. It is 6 to 8 s on an idle one.
const ELECTION: Duration = Duration::from_secs(45);
/// Time for which two servers are away: the time of nats-server's issue 8519.
const AWAY: Duration = Duration::from_secs(15);

/// Plays a fault in each round. Prints and bounds the gap.
fn play(name: &str, fault: impl Fn(&Servers, &Node, &Progress)) {
    let servers = Servers::start();
    let node = servers.initialized(name);
    let rounds = std::env::var("CLUSTER_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(1);
    for round in 0..rounds {
        let gap = write_while(&*node.engine, |progress| fault(&servers, &node, progress));
        println!("{name}, round {round}: the longest gap is {gap:?}");
        assert!(gap < ELECTION, "{name}: {gap:?}");
    }
}

#[test]
fn the_log_is_what_was_acknowledged_after_the_leader_was_killed() {
    play("killed", |servers, node, progress| {
        let leader = servers.leader(node);
        servers.kill(leader);
        progress.more(20);
        servers.restart(leader);
    });
}

#[test]
fn the_log_is_what_was_acknowledged_after_the_leader_was_stopped() {
    play("stopped", |servers, node, progress| {
        let leader = servers.leader(node);
        servers.stop(leader);
        progress.more(20);
        servers.resume(leader);
    });
}

#[test]
fn the_log_is_what_was_acknowledged_after_the_leader_was_cut_off() {
    play("cut", |servers, node, progress| {
        let leader = servers.leader(node);
        servers.isolate(leader, Passage::Hole);
        progress.more(20);
        servers.isolate(leader, Passage::Open);
    });
}

#[test]
fn the_log_is_what_was_acknowledged_after_all_were_killed() {
    play("all", |servers, _, _| {
        (0..SERVERS).for_each(|number| servers.kill(number));
        (0..SERVERS).for_each(|number| servers.restart(number));
    });
}

#[test]
fn writes_go_on_after_two_of_three_were_killed_and_came_back() {
    play("two", |servers, node, _| {
        let leader = servers.leader(node);
        let others = (0..SERVERS).filter(|number| *number != leader);
        others.clone().for_each(|number| servers.kill(number));
        thread::sleep(AWAY);
        others.for_each(|number| servers.restart(number));
    });
}

#[test]
fn what_is_cut_off_with_the_leader_acknowledges_nothing() {
    let servers = Servers::start();
    let (old, new) = (servers.initialized("split"), servers.node("split"));
    write_while(&*old.engine, |_| {});
    let last = old.engine.bounds().expect("both ends").last;
    let leader = servers.leader(&old);
    servers.isolate(leader, Passage::Hole);
    let others = (0..SERVERS).filter(|number| *number != leader);
    others.clone().for_each(|number| old.doors[number].set(Passage::Hole));
    new.doors[leader].set(Passage::Hole);
    let append =
        |node: &Node, name: &'static str| node.engine.append(last, &Bytes::from_static(name.as_bytes()));
    let outcomes = thread::scope(|scope| {
        let claim = scope.spawn(|| {
            (0..200).find(|_| {
                thread::sleep(Duration::from_millis(150));
                append(&new, "new") == Append::Applied(last + 1)
            })
        });
        let mut outcomes = Vec::new();
        while !claim.is_finished() {
            outcomes.push(append(&old, "old"));
            thread::sleep(Duration::from_millis(150));
        }
        assert!(claim.join().expect("a claim").is_some(), "the majority takes the claim");
        outcomes
    });
    assert!(outcomes.len() > 1);
    let was_acknowledged = |outcome: &Append| matches!(outcome, Append::Applied(_));
    assert!(!outcomes.iter().any(was_acknowledged), "{outcomes:?}");
    servers.isolate(leader, Passage::Open);
    old.doors.iter().for_each(|door| door.set(Passage::Open));
    let found = crate::engine_contract::read(&*old.engine, last, last + 1);
    assert_eq!(found, [(last + 1, Bytes::from_static(b"new"))]);
    assert_eq!(append(&old, "old"), Append::NotLast);
    write_while(&*new.engine, |_| {});
}
