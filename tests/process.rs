//! The program as the operating system sees it: signals, exit codes, a process that was stopped for
//! a while.

mod support;

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};
use rustix::process::Signal;
use std::net::SocketAddr;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;
use support::client::Event;
use support::process::{Homing, Process, address_in, homing_serve};
use support::{Connect, Kind, Message, PATIENCE, Packet, Property, RawClient, V5, V311, Will, now};

/// Starts a broker without a data directory.
fn serve(arguments: &[&str]) -> Homing {
    Homing::serve(&[&["--ephemeral"], arguments].concat())
}

fn orderly_stop_on(signal: Signal) {
    let mut homing = serve(&[]);
    let mut newer: Vec<RawClient> =
        (0..5).map(|n| homing.connect(&Connect::new(V5, &format!("newer{n}")))).collect();
    let mut older = homing.connect(&Connect::new(V311, "older"));
    // One client has sent nothing yet, and one is in the middle of its CONNECT.
    let _stranger = RawClient::open(homing.address, V5);
    let mut half = RawClient::open(homing.address, V5);
    half.send(&[0x10, 30, 0]);
    homing.signal(signal);
    for client in &mut newer {
        client.expect_disconnected(0x8B);
    }
    assert_eq!(older.expect_closed(), None);
    assert_eq!(homing.exit_code(), Some(0));
}

#[test]
fn sigterm_tells_5_0_clients_and_exits_with_0() {
    orderly_stop_on(Signal::TERM);
}

#[test]
fn sigint_tells_5_0_clients_and_exits_with_0() {
    orderly_stop_on(Signal::INT);
}

#[test]
fn sigterm_flushes_what_is_on_its_way() {
    let mut homing = serve(&[]);
    let mut subscriber = homing.connect(&Connect::new(V5, "s"));
    subscriber.subscribe(&[("t", 0)]);
    let mut publisher = homing.connect(&Connect::new(V5, "p"));
    for n in 0..200 {
        publisher.publish(&Message::new("t", n.to_string()));
    }
    publisher.deliver(&Message::new("t", "last").qos(1));
    homing.signal(Signal::TERM);
    let mut received = Vec::new();
    for packet in subscriber.read_to_end() {
        match packet {
            Packet::Publish(publish) => received.push(publish.text().to_owned()),
            Packet::Disconnect(disconnect) => assert_eq!(disconnect.code, 0x8B),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((received.len(), received.last().map(String::as_str)), (201, Some("last")));
    assert_eq!(homing.exit_code(), Some(0));
}

#[test]
fn sigterm_ends_in_time_though_a_client_reads_nothing() {
    let mut homing = serve(&[]);
    let mut stuck = homing.connect(&Connect::new(V5, "stuck"));
    stuck.subscribe(&[("t", 0)]);
    let mut publisher = homing.connect(&Connect::new(V5, "p"));
    let payload = vec![b'x'; 500_000];
    for _ in 0..30 {
        publisher.deliver(&Message::new("t", &payload).qos(1));
    }
    homing.signal(Signal::TERM);
    assert_eq!(homing.exit_code(), Some(0));
}

#[test]
fn after_sigterm_nobody_new_is_accepted() {
    let mut homing = serve(&[]);
    let mut client = homing.connect(&Connect::new(V5, "c"));
    homing.signal(Signal::TERM);
    client.expect_disconnected(0x8B);
    homing.exit_code();
    assert!(std::net::TcpStream::connect(homing.address).is_err());
}

#[test]
fn sighup_without_a_change_changes_nothing() {
    let mut homing = serve(&[]);
    let mut client = homing.connect(&Connect::new(V5, "c"));
    homing.signal(Signal::HUP);
    homing.line_with("configuration and files were read again: nothing changed");
    client.settle();
    homing.connect(&Connect::new(V311, "d")).settle();
}

#[test]
fn a_reload_that_hangs_does_not_hold_up_a_stop() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("bans");
    std::fs::write(&path, "").expect("a file");
    let mut homing = serve(&["--set", &format!("bans.file={}", path.display())]);
    // A pipe in the place of the file, as slow as a dead network file system.
    std::fs::remove_file(&path).expect("the file");
    let mode = Mode::from_raw_mode(0o600);
    mknodat(CWD, &path, FileType::Fifo, mode, 0).expect("a pipe");
    homing.signal(Signal::HUP);
    let writer = OFlags::WRONLY | OFlags::NONBLOCK;
    let _held = support::until("the broker reads the pipe", || open(&path, writer, Mode::empty()).ok());
    homing.signal(Signal::TERM);
    homing.line_with("stopping; a second signal exits at once");
    assert_eq!(homing.exit_code(), Some(0));
}

#[test]
fn sigusr1_says_what_the_broker_waits_for_whatever_the_log_level() {
    let mut homing = serve(&["--set", "runtime.threads=2", "--log-level", "error"]);
    homing.signal(Signal::USR1);
    let text = homing.says("no session has anything unacknowledged").join("\n");
    assert!(text.contains("thread 0: ") && text.contains("thread 1: "), "{text}");

    let mut away = homing.connect(&Connect::persistent(V5, "away"));
    let mut here = homing.connect(&Connect::new(V311, "he\nre"));
    away.subscribe(&[("a/b", 1)]);
    here.subscribe(&[("a/b", 2)]);
    let mut publisher = homing.connect(&Connect::new(V5, "p"));
    for _ in 0..3 {
        publisher.deliver(&Message::new("a/b", "x").qos(2));
    }
    let held = here.expect_publishes(3);
    away.expect_publishes(3);
    away.vanish();
    let released = &held[1];
    here.ack(Kind::Pubrec, released.id);
    here.expect_ack(Kind::Pubrel, released.id);
    // Two dumps, since the two lines are of one moment and come in either order.
    homing.signal(Signal::USR1);
    let mut lines = homing.says("  away (away): ");
    homing.signal(Signal::USR1);
    lines.extend(homing.says("  he\\nre (3.1.1): "));
    let away = lines.iter().find(|line| line.starts_with("  away (away): PUBLISH ")).expect("a line");
    assert!(away.contains("QoS 1, topic a/b, for ") && away.ends_with("; 3 in flight, 0 queued"), "{away}");
    let here = lines.iter().find(|line| line.starts_with("  he\\nre (3.1.1): PUBLISH ")).expect("a line");
    assert!(here.contains("; application: the client's host has it"), "{here}");
    assert!(here.contains("; next deadline in ") && here.ends_with("; 3 in flight, 0 queued"), "{here}");
    let retransmit = lines.iter().find(|line| line.starts_with("  retransmit ")).expect("a line");
    assert!(retransmit.contains(" keys, the first in "), "{retransmit}");
}

#[test]
fn several_listeners_serve_one_broker() {
    let mut homing = serve(&["--listen", "[::1]:0"]);
    let line = homing.line_with("[::1]:");
    let second = line.split_whitespace().find_map(|word| word.parse().ok()).expect("the second address");
    let mut receiver = homing.connect(&Connect::new(V5, "receiver"));
    receiver.subscribe(&[("t", 1)]);
    let mut publisher = RawClient::connect(second, &Connect::new(V5, "publisher"));
    assert_eq!(publisher.deliver(&Message::new("t", "across listeners").qos(1)), 0);
    assert_eq!(receiver.expect_publish().text(), "across listeners");
}

/// A pause of the whole process is nobody's silence: who pinged meanwhile finds its packet read
/// first.
#[test]
fn pinging_clients_survive_a_broker_that_was_stopped() {
    let homing = serve(&[]);
    let keep_alive = |id: &str| Connect::new(V5, id).keep_alive(1);
    let mut pinging: Vec<RawClient> =
        (0..20).map(|n| homing.connect(&keep_alive(&format!("c{n}")))).collect();
    let mut watcher = homing.connect(&Connect::new(V5, "watcher"));
    watcher.subscribe(&[("gone", 1)]);
    let will = Will::new("gone", "silent").with(Property::WillDelay(0));
    let mut silent = homing.connect(&keep_alive("silent").will(will));
    pinging.iter_mut().for_each(|client| client.settle());

    homing.signal(Signal::STOP);
    for _ in 0..6 {
        pinging.iter_mut().for_each(|client| client.ping());
        watcher.expect_nothing_for(Duration::from_millis(500));
    }
    homing.signal(Signal::CONT);

    for client in &mut pinging {
        for _ in 0..6 {
            let packet = client.receive();
            assert_eq!(packet, Packet::Pingresp);
        }
    }
    // The positive control: a client that did not ping is disconnected.
    assert_eq!(watcher.expect_publish().text(), "silent");
    silent.expect_disconnected(0x8D);
    for client in &mut pinging {
        client.ping();
        assert!(matches!(client.next(now() + PATIENCE), Event::Packet(Packet::Pingresp)));
    }
}

#[test]
fn drops_are_logged_by_client_with_their_reasons_and_not_each() {
    let mut homing = serve(&["--set", "limits.queue_messages=1", "--log-format", "json"]);
    let mut subscriber = homing.connect(&Connect::persistent(V311, "s"));
    subscriber.subscribe(&[("t", 1)]);
    subscriber.disconnect();
    let mut publisher = homing.connect(&Connect::new(V5, "p"));
    for _ in 0..5 {
        publisher.deliver(&Message::new("t", "x").qos(1));
    }
    homing.connect(&Connect::new(V311, "s")).disconnect();
    // At once, or within ten seconds, in one line or in two.
    let (mut refused, mut ended, mut lines) = (0, 0, 0);
    while refused + ended < 5 {
        let line: serde_json::Value =
            serde_json::from_str(&homing.line_with("messages dropped")).expect("JSON");
        assert_eq!(line["client_id"], "s", "{line}");
        for cause in line["reasons"].as_str().expect("reasons").split(", ") {
            let (name, count) = cause.split_once(' ').expect("a name and a number");
            let count: u64 = count.parse().expect("a number");
            match name {
                "queue_refused" => refused += count,
                "session_ended" => ended += count,
                other => panic!("{other}"),
            }
        }
        lines += 1;
    }
    assert!((refused, ended) == (4, 1) && lines <= 2, "{refused} {ended} in {lines} lines");
}

/// Finding 18. The pipe holds 64 KiB and the broker as much as it may: the rest is dropped, and
/// everybody is served.
#[test]
fn a_standard_error_that_nobody_reads_stops_no_client() {
    let mut command = homing_serve();
    command.args([
        "--ephemeral",
        "--set",
        "sys.publish_interval=200ms",
        "--set",
        "log.events_per_second=100000",
    ]);
    let (mut process, address) = Process::serve_unread(&mut command);
    let mut watcher = RawClient::connect(address, &Connect::new(V5, "watcher"));
    watcher.subscribe(&[("$SYS/broker/log/dropped", 0)]);
    while watcher.expect_publish().text() == "0" {
        for n in 0..150 {
            let client_id = format!("{n}-{}", "x".repeat(1_000));
            RawClient::connect(address, &Connect::new(V311, &client_id)).disconnect();
        }
    }
    watcher.settle();
    // It is read again, and the number of dropped lines is reported.
    process.read_log();
    let report = process.line("log lines dropped").expect("it says so");
    assert!(report.contains("standard error was not read"), "{report}");
    // Stopped in order, to the last line.
    process.signal(Signal::TERM);
    let (code, said) = process.end();
    assert_eq!(code, Some(0));
    assert!(said.iter().any(|line| line.contains("stopping")), "{said:?}");
    let longest = said.iter().map(String::len).max();
    assert!(longest < Some(1_000), "client ids are shortened: {longest:?}");
}

#[test]
fn lines_for_the_journal_begin_with_their_priority() {
    let mut homing = serve(&["--log-format", "journal"]);
    homing.connect(&Connect::new(V5, "c")).disconnect();
    let line = homing.line_with("event=client.connected client_id=c ");
    assert!(line.starts_with("<6>homing::"), "{line}");
}

/// Returns the next message to the service manager that is no sign of life and no request for time.
fn next_told(manager: &UnixDatagram) -> String {
    loop {
        let mut buffer = [0; 512];
        let read = manager.recv(&mut buffer).expect("a message in time");
        let message = String::from_utf8(buffer[..read].to_vec()).expect("text");
        if message != "WATCHDOG=1" && !message.starts_with("EXTEND_TIMEOUT_USEC=") {
            return message;
        }
    }
}

#[test]
fn the_service_manager_is_told_of_start_reload_and_stop_in_this_order() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("notify");
    let manager = UnixDatagram::bind(&path).expect("a socket");
    manager.set_read_timeout(Some(PATIENCE)).expect("a time");
    let mut command = homing_serve();
    command.arg("--ephemeral").env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "150000");
    let (mut process, address) = Process::serve(&mut command);
    let mut first = [0; 512];
    let read = manager.recv(&mut first).expect("a message");
    assert!(first[..read].starts_with(b"EXTEND_TIMEOUT_USEC="));
    assert_eq!(next_told(&manager), "READY=1");
    let mut client = RawClient::connect(address, &Connect::new(V5, "c"));
    let read = manager.recv(&mut first).expect("a sign of life");
    assert_eq!(&first[..read], b"WATCHDOG=1");
    process.signal(Signal::HUP);
    assert_eq!(next_told(&manager), "RELOADING=1");
    assert_eq!(next_told(&manager), "READY=1");
    client.settle();
    process.signal(Signal::TERM);
    assert_eq!(next_told(&manager), "STOPPING=1");
    assert_eq!(process.end().0, Some(0));
}

#[test]
fn address_is_found_in_what_is_printed() {
    let address = Some(SocketAddr::from(([127, 0, 0, 1], 4711)));
    assert_eq!(address_in("listening on 127.0.0.1:4711."), address);
    assert_eq!(address_in(r#"{"message":"listening","address":"127.0.0.1:4711"}"#), address);
    assert_eq!(address_in("asked for 127.0.0.1:0"), None);
    assert_eq!(address_in("nothing"), None);
}
