//! Listeners that a reload adds, removes and changes in the running program.

use crate::http::{LOCAL, request};
use crate::reload::{Configured, connect_unix};
use crate::support::{Connect, Kind, Message, RawClient, Version, until};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

/// Returns an address on which nobody listens.
fn free_address() -> SocketAddr {
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    socket.local_addr().expect("its address")
}

/// Returns a table of the file.
fn listener(address: impl std::fmt::Display, lines: &str) -> String {
    format!("[[listeners]]\naddress = \"{address}\"\n{lines}\n")
}

fn client(address: SocketAddr, client_id: &str) -> RawClient {
    RawClient::connect(address, &Connect::new(Version::V311, client_id))
}

/// Sends a message at QoS 1 from one client to the other, to the end of both exchanges.
fn pass(from: &mut RawClient, to: &mut RawClient, text: &str) {
    assert_eq!(from.deliver(&Message::new("t", text).qos(1)), 0);
    let publish = to.expect_publish();
    assert_eq!((publish.text(), publish.dup), (text, false));
    to.ack(Kind::Puback, publish.id);
}

/// Reloads, and returns the report without the line of the key `listeners`.
fn reload(broker: &Configured) -> String {
    let (code, text) = broker.ctl(&["reload"]);
    assert_eq!(code, Some(0), "{text}");
    let lines = text.lines().filter(|line| !line[9..].starts_with("listeners "));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_listener_is_added_and_removed_and_its_clients_stay_connected() {
    let mut broker = Configured::start("");
    let address = free_address();
    let mut old = broker.connect(Version::V311, "old");
    old.subscribe(&[("t", 1)]);
    broker.write(&listener(address, "name = \"added\""));
    assert_eq!(reload(&broker), "live     listener added added");
    let line = broker.broker.line("event=listener.opened").expect("a line");
    assert!(line.contains(&address.to_string()) && line.contains("everybody"), "{line}");
    let mut new = client(address, "new");
    pass(&mut new, &mut old, "to the old one");
    assert_eq!(broker.metric("homing_connections{listener=\"added\"}"), "1");

    broker.write("");
    assert_eq!(reload(&broker), "live     listener added removed");
    broker.broker.line("event=listener.closed").expect("a line");
    TcpStream::connect(address).expect_err("nobody listens");
    pass(&mut new, &mut old, "after the end of the listener");
    new.subscribe(&[("t", 1)]);
    old.deliver(&Message::new("t", "to both").qos(1));
    assert_eq!((old.expect_publish().text(), new.expect_publish().text()), ("to both", "to both"));
    assert_eq!(broker.metric("homing_connections{listener=\"added\"}"), "1");

    broker.write(&listener(address, "name = \"added\""));
    assert_eq!(reload(&broker), "live     listener added added");
    let _again = client(address, "again");
    new.settle();
    assert_eq!(broker.metric("homing_connections{listener=\"added\"}"), "2");
    assert_eq!(broker.metric("homing_connections_opened_total{listener=\"added\"}"), "2");
}

#[test]
fn a_change_that_holds_at_once_is_logged_with_the_new_settings() {
    let mut broker = Configured::start("");
    let address = free_address();
    broker.write(&listener(address, "name = \"before\""));
    reload(&broker);
    broker.write(&listener(address, "name = \"after\""));
    reload(&broker);
    let line = broker.broker.line("event=listener.changed").expect("a line");
    assert!(line.contains(&address.to_string()) && line.contains("after"), "{line}");
}

#[test]
fn a_taken_address_or_a_missing_file_refuses_the_whole_reload() {
    let broker = Configured::start("");
    let (free, taken) = (free_address(), TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port"));
    let address = taken.local_addr().expect("its address");
    let other = "[redelivery]\ninterval = \"5s\"\n";
    let mut both = [listener(free, ""), listener(address, "")];
    // Whichever comes first.
    for _ in 0..2 {
        broker.write(&format!("{other}{}", both.concat()));
        for command in [&["reload", "--dry-run"][..], &["reload"]] {
            let (code, text) = broker.ctl(command);
            assert_eq!(code, Some(2), "{text}");
            let what = format!("cannot listen on {address}: ");
            assert!(text.contains(&what) && text.contains("[[listeners]]"), "{text}");
        }
        both.reverse();
    }
    drop(taken);
    let tls = "[listeners.tls]\ncertificates = [{ certificate = \"/none.pem\", key = \"/none.key\" }]\n";
    broker.write(&format!("{other}{}{}", listener(free, ""), listener(address, tls)));
    let (code, text) = broker.ctl(&["reload"]);
    assert!(code == Some(2) && text.contains("/none.pem") && text.contains("[listeners.tls]"), "{text}");
    for address in [free, address] {
        TcpStream::connect(address).expect_err("nobody listens");
    }
    let (_, values) = broker.ctl(&["--json", "config"]);
    assert!(!values.contains("\"5s\""), "nothing has changed: {values}");
    broker.write(&format!("{other}{}", both.concat()));
    assert!(reload(&broker).contains("added"));
    for address in [free, address] {
        client(address, "c").settle();
    }
}

#[test]
fn a_port_of_a_listener_that_the_same_reload_removes_is_taken() {
    let address = free_address();
    let broker = Configured::start(&listener(address, "name = \"one\""));
    let everywhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port()));
    broker.write(&listener(everywhere, "name = \"two\""));
    let (code, text) = broker.ctl(&["reload"]);
    assert!(code == Some(2) && text.contains("the listener one has this port until"), "{text}");
    client(address, "c").settle();
    broker.write("");
    reload(&broker);
    broker.write(&listener(everywhere, "name = \"two\""));
    assert_eq!(reload(&broker), "live     listener two added");
}

#[test]
fn a_unix_socket_comes_and_goes_with_its_file() {
    let broker = Configured::start("");
    let path = broker.directory.path().join("l");
    let file = listener(format_args!("unix:{}", path.display()), "mode = \"0600\"");
    broker.write(&file);
    let (code, _) = broker.ctl(&["reload", "--dry-run"]);
    assert!(code == Some(0) && !path.exists(), "a check opens nothing");
    reload(&broker);
    let (mut old, code) = connect_unix(&path, b'1');
    assert_eq!(code, Some(0));
    broker.write("");
    reload(&broker);
    assert!(!path.exists());
    old.write_all(&[0xC0, 0]).expect("it is connected");
    old.read_exact(&mut [0; 2]).expect("it is connected");
    broker.write(&file);
    reload(&broker);
    assert_eq!(connect_unix(&path, b'2').1, Some(0));
}

#[test]
fn a_changed_listener_refuses_no_connect_and_its_clients_keep_their_settings() {
    let address = free_address();
    let broker = Configured::start(&listener(address, "name = \"a\""));
    let mut old = client(address, "old");
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let connects = scope.spawn(|| {
            let mut connects = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                client(address, "stormy").settle();
                connects += 1;
            }
            connects
        });
        for most in 100..110 {
            broker.write(&listener(address, &format!("name = \"a\"\nconnections = {most}")));
            assert_eq!(reload(&broker), "new      listener a changed: connections");
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(connects.join().expect("each connect is accepted") > 0);
    });
    broker.write(&listener(address, "name = \"a\"\nversions = [\"5.0\"]\npacket_size = \"1 KiB\""));
    assert_eq!(reload(&broker), "new      listener a changed: versions, packet_size, connections");
    let large = "x".repeat(2_000);
    assert_eq!(old.deliver(&Message::new("t", &large).qos(1)), 0);
    let mut refused = RawClient::open(address, Version::V311);
    refused.send(&Connect::new(Version::V311, "new").encode());
    assert_eq!(refused.expect_connack().code, 1);
    let mut new = RawClient::connect(address, &Connect::new(Version::V5, "new"));
    new.publish(&Message::new("t", &large).qos(1));
    new.expect_disconnected(0x95);
    old.settle();
    let mut socket = UnixStream::connect(broker.directory.path().join("s")).expect("it listens");
    let path = "/api/v1/clients?listener=a";
    write!(socket, "GET {path} HTTP/1.1\r\nConnection: close\r\n{LOCAL}\r\n").expect("it reads");
    let mut clients = String::new();
    socket.read_to_string(&mut clients).expect("text");
    assert!(clients.contains("\"old\""), "it came before the changes: {clients}");
}

#[test]
fn listeners_wait_while_a_key_of_auth_does() {
    let (address, added) = (free_address(), free_address());
    let broker = Configured::start(&listener(address, "name = \"a\"\nclient_id = \"dev-*\""));
    broker.write(&format!(
        "[auth]\nanonymous = \"never\"\n{}{}",
        listener(address, "name = \"a\""),
        listener(added, "name = \"b\"")
    ));
    let report = reload(&broker);
    for line in ["restart  listener a changed: client_id (pending)", "restart  listener b added (pending)"] {
        assert!(report.contains(line), "{report}");
    }
    let mut other = RawClient::open(address, Version::V311);
    other.send(&Connect::new(Version::V311, "other").encode());
    assert_eq!(other.expect_connack().code, 2, "the rule about client ids holds");
    TcpStream::connect(added).expect_err("nobody listens");
    let (_, values) = broker.ctl(&["config", "--changed"]);
    let line = values.lines().find(|line| line.starts_with("listeners ")).unwrap_or_default();
    assert!(line.contains("dev-*") && line.contains(&added.to_string()), "in force, and pending: {values}");
}

/// Two sets of listeners in turn: descriptors and messages stay.
#[test]
fn fifty_reloads_leak_no_descriptor_and_lose_no_message() {
    let [kept, one, two] = [free_address(), free_address(), free_address()];
    let broker = Configured::start("");
    let path = broker.directory.path().join("l");
    let sets = [
        format!("{}{}", listener(kept, "name = \"k\""), listener(one, "name = \"one\"")),
        format!(
            "{}{}{}",
            listener(kept, "name = \"k\"\nconnections = 50"),
            listener(two, "protocol = \"websocket\""),
            listener(format_args!("unix:{}", path.display()), "")
        ),
    ];
    let descriptors = || {
        let folder = format!("/proc/{}/fd", broker.broker.id());
        std::fs::read_dir(folder).expect("a process").count()
    };
    broker.write(&sets[0]);
    reload(&broker);
    let (mut from, mut to) = (client(one, "from"), client(kept, "to"));
    to.subscribe(&[("t", 1)]);
    let mut before = [0; 2];
    for turn in 1..=50 {
        let id = from.publish(&Message::new("t", format!("{turn} in flight")).qos(1));
        broker.write(&sets[turn % 2]);
        let (status, answer) = (broker.ctl(&["reload"]), turn);
        assert_eq!(status.0, Some(0), "{answer}: {}", status.1);
        from.expect_ack(Kind::Puback, id);
        let publish = to.expect_publish();
        assert_eq!((publish.text(), publish.dup), (format!("{turn} in flight").as_str(), false));
        to.ack(Kind::Puback, publish.id);
        pass(&mut from, &mut to, &format!("{turn} after the reload"));
        if (3..5).contains(&turn) {
            // The handshake threads have started. The connection of ctl may still be open.
            before[turn % 2] = descriptors();
        } else if turn > 5 {
            let most = before[turn % 2];
            until("no more descriptors than before", || (descriptors() <= most).then_some(()));
        }
    }
    let (_, metrics) = request(broker.admin, "GET", "/metrics", LOCAL);
    let lines = metrics.lines().filter(|line| line.starts_with("homing_connections{"));
    let open: Vec<&str> = lines.collect();
    assert!(open.contains(&"homing_connections{listener=\"one\"} 1"), "{open:?}");
    assert_eq!(open.len(), 5, "a line for each: {open:?}");
}

/// At one connect a second, the clients would wait for a minute.
#[test]
fn connects_that_wait_for_a_rate_are_accepted_when_a_reload_takes_it_away() {
    let address = free_address();
    let of_listener = |rate: &str| listener(address, &format!("name = \"a\"\nconnects_per_second = {rate}"));
    let of_broker = |rate: &str| format!("[limits]\nconnects_per_second = {rate}\n{}", listener(address, ""));
    let files: [&dyn Fn(&str) -> String; 2] = [&of_listener, &of_broker];
    for file in files {
        let broker = Configured::start(&file("1"));
        let mut clients: Vec<_> = (0..60).map(|_| RawClient::open(address, Version::V311)).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            client.send(&Connect::new(Version::V311, &number.to_string()).encode());
        }
        clients[0].expect_connack();
        broker.write(&file("\"unlimited\""));
        let text = reload(&broker);
        assert!(text.starts_with("new ") || text.starts_with("live "), "{text}");
        clients[1..].iter_mut().for_each(|client| assert_eq!(client.expect_connack().code, 0));
    }
}
