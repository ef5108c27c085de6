//! A node whose disk hangs, though all its other parts work.

use crate::fleet::{Fleet, LOST, expect_all};
use crate::servers::Servers;
use crate::support::client::Event;
use crate::support::{Connect, Message, RawClient, V5, now};
use homing::cluster::engine::Engine;
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

/// Bound of a fail-over on a busy machine. 10 s until the disk counts as one that hangs, and 6 s
/// without a frame.
const FAIL_OVER: Duration = Duration::from_secs(90);
/// Bytes of a message, and messages whose bytes are half as many again as the log holds.
const LARGE: usize = 128 << 10;
const MANY: u32 = 768;
/// The time between two of them: about 2 MiB/s, so that a snapshot that is due has half a minute.
const PACE: Duration = Duration::from_millis(50);
/// The time between two messages of the others.
const PAUSE: Duration = Duration::from_millis(500);

/// Makes two nodes, of which the first serves on a disk that hangs while there is the file that is
/// returned. The session `reader` has messages that only the database has.
fn serving_on_disk(servers: &Servers, name: &str) -> (Fleet, PathBuf) {
    let mut fleet = Fleet::new(servers, name, &["a", "b"], "");
    assert_eq!(fleet.ask(0, &["init"]).0, 0);
    fleet.begin(0);
    let mut reader = fleet.connect("reader");
    reader.subscribe(&[("plant/pump", 1)]);
    reader.disconnect();
    fleet.publish(0..50);
    // What was stored before the start is in the database, and not in memory.
    fleet.stop(0);
    let hangs = fleet.directory.path().join("hangs");
    fleet.begin_on_disk(0, &hangs);
    fleet.await_that("a owns its cell", |fleet| fleet.serving() == Some(0));
    fleet.begin(1);
    fleet.await_that("b stands by", |fleet| fleet.ask(0, &["status"]).1.contains(" following "));
    (fleet, hangs)
}

#[test]
fn an_owner_whose_disk_hangs_loses_its_cell_though_it_stores_messages_of_others() {
    let servers = Servers::start_at_once();
    let (mut fleet, hangs) = serving_on_disk(&servers, "hung-disk");
    fs::write(&hangs, "").expect("a file");
    // It gets no message, since the disk has them all.
    let reader = RawClient::connect(fleet.nodes[0].address, &Connect::persistent(V5, "reader"));
    let begun = now();
    let publisher = thread::spawn({
        let address = fleet.nodes[0].address;
        move || {
            // Each group is a frame. None of them may count as a sign of life.
            let mut publisher = RawClient::connect(address, &Connect::persistent(V5, "others"));
            for number in 0.. {
                publisher.publish(&Message::new("others", number.to_string()).qos(1).retained());
                // One message each half of a second, acknowledged or not.
                let until = now() + PAUSE;
                while let Event::Packet(_) = publisher.next(until) {}
                if matches!(publisher.next(until), Event::Closed) {
                    return;
                }
            }
        }
    });
    let other = fleet.nodes[1].process.as_mut().expect("it runs");
    assert!(other.line("event=cluster.serves").is_some(), "{:#?}", other.end());
    println!("a disk that hangs: another node serves after {:?}", begun.elapsed());
    assert!(begun.elapsed() < FAIL_OVER);
    drop(reader);
    publisher.join().expect("no panic");
    let mut reader = RawClient::connect(fleet.nodes[1].address, &Connect::persistent(V5, "reader"));
    expect_all(&mut reader, 0..50);
    fs::remove_file(&hangs).expect("it is there");
    let mut old = fleet.nodes[0].process.take().expect("it runs");
    assert!(old.line("event=cluster.hangs").is_some(), "it says why");
    assert_eq!(old.end().0, Some(LOST));
}

#[test]
fn a_standby_whose_disk_hangs_does_not_fill_the_log() {
    let servers = Servers::start_at_once();
    let mut fleet = Fleet::new(&servers, "hung-standby", &["a", "b", "c"], "");
    assert_eq!(fleet.ask(0, &["init"]).0, 0);
    fleet.begin(0);
    fleet.await_that("a owns its cell", |fleet| fleet.serving() == Some(0));
    let hangs = fleet.directory.path().join("hangs");
    // The first that stands by makes the snapshots.
    fleet.begin_on_disk(1, &hangs);
    fleet.begin(2);
    fleet.await_that("two nodes that stand by", |fleet| {
        fleet.ask(0, &["status"]).1.matches(" following ").count() == 2
    });
    fs::write(&hangs, "").expect("a file");
    let mut publisher = fleet.connect("publisher");
    for number in 0..MANY {
        let message = Message::new("plant/pump", vec![0; LARGE]).qos(1).retained();
        // Without a subscriber the answer is 0x10.
        let code = publisher.deliver(&message);
        assert!(code < 0x80, "message {number}: 0x{code:02X}: {}", fleet.ask(0, &["status"]).1);
        thread::sleep(PACE);
    }
    let (_, status) = fleet.ask(0, &["status"]);
    println!("{status}");
    assert!(servers.node("hung-standby").engine.bounds().expect("both ends").first > 1, "{status}");
    fs::remove_file(&hangs).expect("it is there");
}
