//! `limits.memory` bounds the process: what clients make it hold, whatever it is, and what a restart finds.
//!
//! Each test tries to fill a real broker with one thing, far beyond its limit, and reads the most that it ever had resident.

#[expect(dead_code, unused_imports, reason = "shared with the broker's tests, which use all of it")]
mod support;

#[expect(dead_code, reason = "shared with other tests, which use all of it")]
#[path = "support/process.rs"]
mod process;

use process::{Process, homing_serve};
use rustix::process::Signal;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use support::client::subscribe_packet;
use support::{Connect, Kind, Message, Property, RawClient, V5, Will};

const MIB: u64 = 1024 * 1024;

/// `limits.memory` of every broker here.
const LIMIT: u64 = 16 * MIB;

/// As long as a topic, a filter, or a user property may be, about.
const LONG: usize = 65_000;

struct Homing {
    process: Process,
    address: SocketAddr,
}

impl Homing {
    fn serve(extra: &[&str]) -> Homing {
        let mut command = homing_serve();
        command.args(["--set", "limits.memory=16 MiB", "--set", "runtime.arbiters=2"]).args(extra);
        let (process, address) = Process::serve(&mut command);
        Homing { process, address }
    }

    fn ephemeral(extra: &[&str]) -> Homing {
        Homing::serve(&[&["--ephemeral"], extra].concat())
    }

    fn client(&self, name: &str) -> RawClient {
        RawClient::connect(self.address, &Connect::new(V5, name))
    }

    /// The broker answers, and never took more than it may with so many connections: half as much again as its limit, 64 MiB,
    /// and 2 KiB for each.
    fn is_bounded(&self, connections: u64) {
        let mut witness = self.client("witness");
        witness.ping();
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).expect("it runs");
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a figure");
        let kib: u64 = peak.trim().trim_end_matches(" kB").parse().expect("a number");
        let bound = LIMIT + LIMIT / 2 + 64 * MIB + connections * 2048;
        println!("{} KiB of {}", kib, bound / 1024);
        assert!(kib * 1024 <= bound, "{kib} KiB of {} KiB", bound / 1024);
    }
}

fn long(n: usize) -> String {
    format!("{n}/{}", "x".repeat(LONG))
}

/// A will of 0.9 MB.
fn large_will() -> Will {
    (0..14).fold(Will::new("w", "x"), |will, n| will.with(Property::user(&n.to_string(), &"x".repeat(LONG))))
}

#[test]
fn wills_of_sessions_without_number() {
    let homing = Homing::ephemeral(&[]);
    let mut refused = 0;
    for n in 0..120 {
        let will = large_will().with(Property::WillDelay(3600));
        let connect = Connect::persistent(V5, &format!("c{n}")).will(will);
        let mut client = RawClient::open(homing.address, V5);
        client.send(&connect.encode());
        refused += u32::from(client.expect_connack().code == 0x97);
    }
    assert!((1..120).contains(&refused), "{refused}");
    homing.is_bounded(120);
}

#[test]
fn long_filters_of_one_client() {
    let homing = Homing::ephemeral(&[]);
    let mut client = homing.client("c");
    let refused = (0..1_500).filter(|n| client.subscribe(&[(&long(*n), 0)]) == [0x97]).count();
    assert!((1..1_500).contains(&refused), "{refused}");
    homing.is_bounded(1);
}

#[test]
fn nodes_of_the_subscription_index() {
    let homing = Homing::ephemeral(&["--set", "limits.topic_levels=256"]);
    let mut client = homing.client("c");
    let mut refused = 0;
    for n in 0..4_096u32 {
        let mut filter: String = (0..12).map(|bit| if n >> bit & 1 == 0 { "a/" } else { "+/" }).collect();
        filter.push_str(&"a/".repeat(240));
        filter.push('a');
        refused += usize::from(client.subscribe(&[(&filter, 0)]) == [0x97]);
    }
    assert!((1..4_096).contains(&refused), "{refused}");
    homing.is_bounded(1);
}

#[test]
fn outboxes_of_clients_that_do_not_read() {
    let homing = Homing::ephemeral(&["--set", "limits.outbox=8 MiB"]);
    let mut deaf: Vec<_> = (0..40).map(|n| homing.client(&format!("deaf{n}"))).collect();
    for client in &mut deaf {
        client.subscribe(&[("t", 0)]);
    }
    let mut publisher = homing.client("p");
    let payload = "x".repeat(8_000);
    for _ in 0..1_200 {
        publisher.publish(&Message::new("t", &payload));
    }
    publisher.ping();
    homing.is_bounded(42);
}

#[test]
fn topic_aliases_of_many_clients() {
    let homing = Homing::ephemeral(&[]);
    let mut clients = Vec::new();
    for n in 0..200 {
        let client = homing.client(&format!("c{n}"));
        for alias in 1..=10 {
            let message = Message::new(long(alias.into()), "").with(Property::TopicAlias(alias));
            // It may be cut in the midst of it.
            let _ = client.stream().write_all(&message.encode(V5, 0));
        }
        clients.push(client);
    }
    homing.is_bounded(201);
}

#[test]
fn packets_that_are_never_finished() {
    let homing = Homing::ephemeral(&[]);
    let mut hoarders = Vec::new();
    for n in 0..120 {
        let client = homing.client(&format!("c{n}"));
        let mut whole = Message::new("t", "x".repeat(1_000_000)).encode(V5, 0);
        whole.truncate(990_000);
        let _ = client.stream().write_all(&whole);
        hoarders.push(client);
    }
    let mut honest = homing.client("honest");
    let whole = Message::new("t", "x".repeat(200_000)).encode(V5, 0);
    honest.send(&whole[..150_000]);
    homing.client("other").ping();
    honest.send(&whole[150_000..]);
    honest.ping();
    homing.is_bounded(122);
}

/// Sends a publish many times, by a Topic Alias, in few reads.
fn repeat(mut stream: &TcpStream, topic: &str, payloads: &[&str], times: usize) {
    let alias = Property::TopicAlias(1);
    let first = Message::new(topic, payloads[0]).with(alias.clone()).encode(V5, 0);
    stream.write_all(&first).expect("sent");
    let mut all = Vec::new();
    for n in 0..times {
        all.extend(Message::new("", payloads[n % payloads.len()]).with(alias.clone()).encode(V5, 0));
    }
    stream.write_all(&all).expect("sent");
}

#[test]
fn wishes_of_a_stored_session_with_a_large_will() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().to_str().expect("a path");
    let homing = Homing::serve(&["--data-dir", path]);
    let mut client = RawClient::connect(
        homing.address,
        &Connect::persistent(V5, "c").will(large_will().with(Property::WillDelay(60))),
    );
    repeat(client.stream(), "$homing/session/ack-timeout", &["5s", "6s"], 1_000);
    client.ping();
    homing.is_bounded(2);
}

#[test]
fn unreadable_wishes_of_a_client_with_a_long_id() {
    let homing = Homing::ephemeral(&[]);
    let mut client = homing.client(&"c".repeat(LONG));
    repeat(client.stream(), "$homing/session/ack-timeout", &["?"], 6_000);
    client.ping();
    homing.is_bounded(2);
}

#[test]
fn subscription_identifiers_of_a_client_that_is_away() {
    let homing = Homing::ephemeral(&["--set", "limits.queue_messages=100000"]);
    let mut client = RawClient::connect(homing.address, &Connect::persistent(V5, "c"));
    for n in 0..4_096u32 {
        let levels: Vec<_> = (0..12).map(|bit| if n >> bit & 1 == 0 { "a" } else { "+" }).collect();
        let packet = subscribe_packet(V5, 1, &[Property::SubscriptionId(n + 1)], &[(&levels.join("/"), 1)]);
        client.send(&packet);
        client.expect_packet(Kind::Suback);
    }
    client.disconnect();
    let mut publisher = homing.client("p");
    let topic = ["a"; 12].join("/");
    let refused = (0..1_200).filter(|_| publisher.deliver(&Message::new(&topic, "x").qos(1)) == 0x97).count();
    assert!((1..1_200).contains(&refused), "{refused}");
    homing.is_bounded(2);
}

#[test]
fn what_a_restart_finds_is_on_the_account() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().to_str().expect("a path");
    let payload = "x".repeat(200_000);
    let fill = |homing: &Homing, round: usize| {
        let mut publisher = homing.client("p");
        let refused = |n: &usize| {
            let message = Message::new(format!("{round}/{n}"), &payload).qos(1).retained();
            publisher.deliver(&message) == 0x97
        };
        (0..200).find(refused).expect("the memory is bounded")
    };
    let mut homing = Homing::serve(&["--data-dir", path]);
    assert!(fill(&homing, 1) > 50);
    homing.process.signal(Signal::TERM);
    homing.process.end();
    let again = fill(&Homing::serve(&["--data-dir", path]), 2);
    // The rounding of tables apart.
    assert!(again <= 2, "{again} more");
}
