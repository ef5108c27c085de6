//! A node whose disk hangs, though all its other parts work.

use crate::fleet::{Fleet, LOST, expect_all};
use crate::servers::Servers;
use crate::support::client::Event;
use crate::support::{Connect, Message, RawClient, V5, now};
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

/// Bound of a fail-over on a busy machine. 10 s until the disk counts as one that hangs, and 6 s without
/// a frame.
const FAIL_OVER: Duration = Duration::from_secs(90);
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
