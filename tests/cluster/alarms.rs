//! A log that lost frames, that was changed or that was purged: an alarm, at which nobody claims and no
//! node ends again and again. `homing cluster reseed` heals it, and sessions and messages are there.

use crate::fleet::{Fleet, LOST, expect_all};
use crate::servers::Servers;
use crate::support::now;
use bytes::Bytes;
use homing::cluster::engine::{Append, Engine};
use std::thread;
use std::time::Duration;

/// Waits until all nodes show the alarm, and checks that nobody serves, and that no node ends again and
/// again.
fn await_alarm(fleet: &mut Fleet, why: &str) {
    let mut ended = 0;
    fleet.await_that("an alarm", |fleet| {
        // As the service manager does.
        let codes = fleet.begin_ended();
        assert!(codes.iter().all(|code| *code == LOST), "{codes:?}");
        ended += codes.len();
        let (code, status) = fleet.ask(0, &["status"]);
        let is_alarmed = status.contains("ALARM") && status.matches(" alarmed ").count() == fleet.nodes.len();
        assert!(
            !is_alarmed || code == 1 && status.contains(why) && status.contains("NOBODY SERVES"),
            "{status}"
        );
        is_alarmed
    });
    assert!(ended <= 1, "only a node that has lost its cell ends: {ended}");
    assert_eq!(fleet.serving(), None);
    assert!(fleet.begin_ended().is_empty(), "a node has ended");
}

/// Asks for the confirmation of a reseed. A process that has more than its store is stopped for it.
fn confirmation(fleet: &mut Fleet, node: usize) -> String {
    let mut attempts = 0..20;
    let begun = now();
    loop {
        assert!(begun.elapsed() < Duration::from_secs(120), "no confirmation");
        let (code, asked) = fleet.ask(node, &["reseed"]);
        assert_eq!(code, 2, "{asked}");
        if asked.contains("nothing is done yet") {
            return asked.trim_end().rsplit(' ').next().expect("a word").to_owned();
        }
        let has_more = asked.contains("stop it (systemctl stop homing)");
        assert!(has_more || asked.contains("does not show the alarm yet"), "{asked}");
        // A standby writes the rest within seconds. What an owner has more are signs of life.
        if has_more && attempts.next().is_none() {
            fleet.stop(node);
            fleet.begin(node);
            attempts = 0..20;
        }
        thread::sleep(Duration::from_millis(500));
    }
}

/// Makes the store of a node the base, and waits until all nodes follow.
fn reseed(fleet: &mut Fleet, node: usize) {
    let confirm = confirmation(fleet, node);
    let running = fleet.nodes.iter().filter(|node| node.process.is_some()).count();
    let (code, done) = fleet.ask(node, &["reseed", "--confirm", &confirm]);
    assert!(code == 0 && done.contains("goes on with the store of"), "{done}");
    let (code, again) = fleet.ask(node, &["reseed", "--confirm", &confirm]);
    assert!(code == 2 && (again.contains("has no alarm") || again.contains("of the log before")), "{again}");
    let mut ended = 0;
    fleet.await_that("nodes that follow", |fleet| {
        let codes = fleet.begin_ended();
        assert!(codes.iter().all(|code| *code == LOST), "{codes:?}");
        ended += codes.len();
        let (code, status) = fleet.ask(0, &["status"]);
        code == 0 && !status.contains(" alarmed ") && !status.contains(" silent ")
    });
    assert_eq!(ended, running, "each has ended once");
}

#[test]
fn an_alarm_stops_all_nodes_and_a_reseed_heals_with_sessions_and_messages() {
    let servers = Servers::start_at_once();
    let mut fleet = Fleet::new(&servers, "alarms", &["a", "b", "c"], "");
    assert_eq!(fleet.ask(0, &["init"]).0, 0);
    servers.keep();
    fleet.begin_ended();
    let mut subscriber = fleet.connect("subscriber");
    assert_eq!(subscriber.subscribe(&[("plant/#", 1)]), [1]);
    subscriber.disconnect();
    fleet.publish(0..50);
    // The base of a reseed is any node, so each must have all of it.
    fleet.await_caught_up(&*servers.node("alarms").engine);

    // The disks of all servers go back. All frames are lost, and the nodes have them.
    servers.go_back();
    await_alarm(&mut fleet, "the engine has fewer frames than a node has applied");
    // An alarmed node ends in time, and is alarmed again.
    for node in 0..3 {
        let begun = now();
        fleet.stop(node);
        println!("an alarmed node ends after {:?}", begun.elapsed());
    }
    await_alarm(&mut fleet, "the engine has fewer frames than a node has applied");
    reseed(&mut fleet, 1);
    fleet.publish(50..100);

    // A frame whose bytes were changed. The owner finds it in the place of its own, and loses its cell.
    let node = servers.node("alarms");
    let begun = now();
    loop {
        let last = node.engine.bounds().expect("both ends").last;
        let frames = node.engine.read(last - 1, 1).expect("a frame");
        let Some((_, frame)) = frames.first() else { continue };
        let mut changed = frame.to_vec();
        *changed.last_mut().expect("a byte") ^= 1;
        if let Append::Applied(_) = node.engine.append(last, &Bytes::from(changed)) {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "the owner is always faster");
    }
    await_alarm(&mut fleet, "its digest does not fit its bytes");
    reseed(&mut fleet, 2);
    fleet.publish(100..150);

    // All frames are purged, and no snapshot has them.
    let last = node.engine.bounds().expect("both ends").last;
    // Those that a standby may not have read yet stay.
    node.engine.purge(last - 5).expect("purged");
    await_alarm(&mut fleet, "the log was purged");
    reseed(&mut fleet, 0);
    fleet.publish(150..200);

    let mut subscriber = fleet.connect("subscriber");
    assert!(subscriber.session_present());
    expect_all(&mut subscriber, 0..200);
    subscriber.disconnect();
    let (code, verified) = fleet.ask(0, &["verify"]);
    assert!(code == 0 && !verified.contains("PROBLEM"), "{verified}");
    for node in &fleet.nodes {
        let aside = std::fs::read_dir(&node.data).expect("a directory").flatten();
        let aside = aside.filter(|file| file.file_name().to_string_lossy().starts_with("homing-")).count();
        assert!(aside >= 3, "{} has set {aside} files aside", node.name);
    }
}
