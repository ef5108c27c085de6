//! The real binary with a store that is full: what it refuses, in each version; that nothing
//! acknowledged is lost over `kill -9` there; and that whoever makes room can, after which new work
//! is taken again.
//!
//! The store is full at its size limit, or because its file system is: a small one of its own, in a
//! user namespace, which needs no privilege. Where the system does not allow that, the test says so
//! and plays at the size limit.

use crate::support::process::{Process, homing_serve};
use crate::support::{Connect, Kind, Message, PATIENCE, Property, RawClient, V5, V311, Will, now};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

const PAYLOAD: usize = 512 * 1024;

/// Where the store is.
struct Place {
    directory: TempDir,
    /// Keeps the namespace with the small file system.
    holder: Option<Child>,
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(holder) = &mut self.holder {
            let _ = holder.kill();
            let _ = holder.wait();
        }
    }
}

impl Place {
    fn with_size_limit() -> Place {
        Place { directory: tempfile::tempdir().expect("a directory"), holder: None }
    }

    /// A file system of 64 MiB.
    fn on_a_small_disk() -> Place {
        let mut place = Place::with_size_limit();
        place.holder = mount(place.directory.path());
        if place.holder.is_none() {
            println!(
                "NO SMALL FILE SYSTEM HERE (user namespaces are not allowed): the size limit stands in for it"
            );
        }
        place
    }

    fn start(&self) -> (Process, SocketAddr) {
        let mut serve = homing_serve();
        let data = self.directory.path().join("data");
        serve.arg("--data-dir").arg(data).args(["--set", "store.queue_bytes=1 GiB"]);
        // For the wills.
        serve.args(["--set", "limits.connect_size=1 MiB"]);
        let Some(holder) = &self.holder else {
            return Process::serve(serve.args(["--set", "store.size_limit=64 MiB"]));
        };
        let mut inside = Command::new("nsenter");
        inside.args(["--preserve-credentials", "-U", "-m", "-t", &holder.id().to_string(), "--"]);
        for (name, value) in serve.get_envs() {
            inside.env(name, value.unwrap_or_default());
        }
        Process::serve(inside.arg(serve.get_program()).args(serve.get_args()))
    }
}

/// Mounts a small file system there, in a namespace that lasts as long as the process.
fn mount(at: &Path) -> Option<Child> {
    let script = r#"mount -t tmpfs -o size=64m tmpfs "$1" && echo mounted && exec sleep 600"#;
    let mut holder = Command::new("unshare")
        .args(["-r", "-m", "sh", "-c", script, "sh"])
        .arg(at)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .ok()?;
    let mut said = String::new();
    BufReader::new(holder.stdout.take()?).read_line(&mut said).ok()?;
    if said.trim() == "mounted" {
        return Some(holder);
    }
    let _ = holder.wait();
    None
}

/// The answer to a CONNECT.
fn enter(address: SocketAddr, connect: &Connect) -> (RawClient, u8) {
    let mut client = RawClient::open(address, connect.version);
    client.send(&connect.encode());
    let code = client.expect_connack().code;
    (client, code)
}

fn connect(address: SocketAddr, connect: &Connect) -> RawClient {
    RawClient::connect(address, connect)
}

fn large(n: usize) -> Message {
    let mut payload = format!("{n} ").into_bytes();
    payload.resize(PAYLOAD, b'x');
    Message::new("t", payload).qos(1)
}

fn number(payload: &[u8]) -> usize {
    let digits = payload.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&payload[..digits]).expect("digits").parse().expect("a number")
}

/// Longer than the database takes to have what is in the log. It needs less room than that, so more
/// may be taken then.
const FOLLOWS: Duration = Duration::from_millis(1_500);

/// Offers one after the other until the answer is a refusal and stays one. Returns how many were
/// taken, and the last answer. `offer` has the number of the next one, and answers with its code.
fn offer_until_refused(mut offer: impl FnMut(usize) -> u8) -> (usize, u8) {
    let (mut taken, mut refused_since) = (0, None);
    loop {
        match offer(taken) {
            0 => (taken, refused_since) = (taken + 1, None),
            code if now() - *refused_since.get_or_insert_with(now) >= FOLLOWS => return (taken, code),
            _ => {}
        }
    }
}

/// Publishes until it is refused and stays refused. Returns the numbers of those that were taken.
fn fill(publisher: &mut RawClient) -> BTreeSet<usize> {
    let (taken, code) = offer_until_refused(|n| publisher.deliver(&large(n)));
    assert_eq!(code, 0x97);
    (0..taken).collect()
}

/// Nothing that has to be stored gets in, and what needs no room goes on. `known` and the session
/// `older` are known.
fn refuses_and_goes_on(address: SocketAddr, publisher: &mut RawClient, known: &mut RawClient) {
    for n in 0..40 {
        publisher.publish(&Message::new(format!("ret/{n}"), vec![b'y'; 900_000]).retained());
    }
    publisher.ping();
    publisher.wait_for(Kind::Pingresp);
    for qos in [1, 2] {
        assert_eq!(publisher.deliver(&Message::new("ret/x", vec![b'y'; PAYLOAD]).qos(qos).retained()), 0x97);
    }
    assert_eq!(enter(address, &Connect::persistent(V5, "new")).1, 0x97);
    assert_eq!(enter(address, &Connect::persistent(V311, "new")).1, 3);
    let mut clean = connect(address, &Connect::new(V311, "clean"));
    assert_eq!(clean.subscribe(&[("news", 0)]), [0]);
    publisher.publish(&Message::new("news", "of the day"));
    assert_eq!(clean.expect_publish().text(), "of the day");
    clean.publish(&large(0));
    assert_eq!(clean.expect_closed(), None);
    assert_eq!(known.subscribe(&[("new", 1)]), [0x97]);
    assert_eq!(known.subscribe(&[("known", 1)]), [1]);
    assert_eq!(known.unsubscribe(&["known"]), [0]);
    let mut older = connect(address, &Connect::persistent(V311, "older"));
    assert!(older.session_present());
    assert_eq!(older.subscribe(&[("new", 1)]), [0x80]);
    older.disconnect();
}

/// A session, a filter, a message and a retained message are taken, as soon as the broker has seen
/// that there is room.
fn takes_new_work(address: SocketAddr, client_id: &str) {
    let deadline = now() + PATIENCE;
    let (mut client, mut code) = enter(address, &Connect::persistent(V5, client_id));
    while code != 0 {
        assert!(code == 0x97 && now() < deadline, "{code}: new sessions are never taken again");
        (client, code) = enter(address, &Connect::persistent(V5, client_id));
    }
    assert_eq!(client.subscribe(&[("again", 1)]), [1]);
    assert_eq!(client.deliver(&Message::new("again", "x").qos(1).retained()), 0);
    let publish = client.expect_publish();
    client.complete(&publish);
    assert_eq!(publish.text(), "x");
    let mut reader = connect(address, &Connect::new(V311, "reader"));
    reader.subscribe(&[("again", 0)]);
    assert_eq!(reader.expect_publish().text(), "x");
}

fn is_filled_with_retained_messages(place: &Place) {
    let (mut homing, address) = place.start();
    for (version, client_id) in [(V5, "away"), (V311, "older")] {
        let mut client = connect(address, &Connect::persistent(version, client_id));
        client.subscribe(&[(if client_id == "away" { "t" } else { "other" }, 1)]);
        client.disconnect();
    }
    let mut known = connect(address, &Connect::persistent(V5, "known"));
    known.subscribe(&[("known", 1)]);
    let mut publisher = connect(address, &Connect::new(V5, "publisher"));
    let taken = fill(&mut publisher);
    assert!(taken.len() * PAYLOAD > 8 << 20, "{} were taken", taken.len());
    refuses_and_goes_on(address, &mut publisher, &mut known);
    homing.kill();

    let (_homing, address) = place.start();
    let mut away = connect(address, &Connect::persistent(V5, "away"));
    assert!(away.session_present());
    let mut came = BTreeSet::new();
    while came != taken {
        let publish = away.expect_publish();
        away.complete(&publish);
        came.insert(number(&publish.payload));
    }
    takes_new_work(address, "new");
}

#[test]
fn retained_messages_fill_the_store_up_to_its_size_limit_and_wedge_nothing() {
    is_filled_with_retained_messages(&Place::with_size_limit());
}

#[test]
fn retained_messages_fill_the_disk_and_wedge_nothing() {
    is_filled_with_retained_messages(&Place::on_a_small_disk());
}

/// A client with a will of 780 kB that waits for an hour.
fn with_will(n: usize) -> Connect {
    let will = Will::new("will", vec![b'w'; 60_000]).qos(1).with(Property::WillDelay(3600));
    let will = (0..12).fold(will, |will, _| will.with(Property::User("k".into(), "v".repeat(60_000))));
    Connect::persistent(V5, &format!("will {n}")).will(will)
}

fn is_filled_with_wills(place: &Place) {
    let (mut homing, address) = place.start();
    let mut clients = Vec::new();
    let (held, code) = offer_until_refused(|n| {
        let (client, code) = enter(address, &with_will(n));
        clients.extend((code == 0).then_some(client));
        code
    });
    assert_eq!(code, 0x97);
    assert!((10..100).contains(&held), "{held} wills fit");
    // A smaller will may fit where that one did not. Then the next ones use up the room.
    let mut older = Vec::new();
    let (_, code) = offer_until_refused(|n| {
        let small = Connect::persistent(V311, &format!("older {n}"));
        let (client, code) = enter(address, &small.will(Will::new("will", vec![b'w'; 60_000])));
        older.extend((code == 0).then_some(client));
        code
    });
    assert_eq!(code, 3);
    // It is held already.
    clients[0] = connect(address, &with_will(0));
    assert!(clients[0].session_present());
    homing.kill();

    let (_homing, address) = place.start();
    for n in (0..held).rev().step_by(5) {
        assert!(connect(address, &with_will(n)).session_present(), "{n} of {held}");
    }
    for n in 0..held / 2 {
        connect(address, &Connect::new(V5, &format!("will {n}"))).disconnect();
    }
    takes_new_work(address, "new");
}

#[test]
fn wills_fill_the_store_up_to_its_size_limit_and_all_their_clients_return_after_a_restart() {
    is_filled_with_wills(&Place::with_size_limit());
}

#[test]
fn wills_fill_the_disk_and_all_their_clients_return_after_a_restart() {
    is_filled_with_wills(&Place::on_a_small_disk());
}
