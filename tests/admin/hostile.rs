//! Hostile callers of the HTTP interface, and hostile names of clients. Each is refused, bounded or
//! escaped, and the clients of MQTT go on.

use crate::api::{Administered, json_of};
use crate::http::{LOCAL, PLACES, request};
use crate::live::{Live, bearer};
use crate::pages::{get, log_in, post};
use crate::support::bystander::others_wait_little;
use crate::support::{Connect, Message, PATIENCE, RawClient, V5, V311, now, until};
use serde_json::{Value, json};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Bytes by which the most memory of a broker may grow while it refuses requests.
const GROWTH: u64 = 32 << 20;

/// Time within which a place is free again, whatever its client does.
const FREED: Duration = Duration::from_secs(30);

/// Returns a number of the environment: the nightly tests do more.
pub fn number_of(variable: &str, usual: usize) -> usize {
    std::env::var(variable).ok().map_or(usual, |text| text.parse().expect("a number"))
}

/// A client that sends the head of a request byte by byte.
struct SlowHead {
    socket: TcpStream,
    sent: usize,
}

impl SlowHead {
    fn open(address: SocketAddr) -> SlowHead {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let socket = socket.expect("a socket");
        socket.set_nonblocking(true).expect("a mode");
        // It is under way.
        let _ = socket.connect(&address.into());
        SlowHead { socket: socket.into(), sent: 0 }
    }

    /// Sends one byte of the head. Returns false if the broker has closed the connection.
    fn send(&mut self, head: &[u8]) -> bool {
        match self.socket.write(&head[self.sent..=self.sent]) {
            Ok(_) => self.sent += 1,
            Err(error) => return [ErrorKind::WouldBlock, ErrorKind::NotConnected].contains(&error.kind()),
        }
        // An answer such as 408 may come first.
        loop {
            match self.socket.read(&mut [0; 512]) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
    }
}

/// `SLOW_HEADS=1000` opens more connections than the interface has places. Then others may have to
/// wait for one, but not for long.
#[test]
fn heads_of_one_byte_a_second_free_their_places_in_time() {
    let broker = Administered::start();
    let head = format!("GET /healthz HTTP/1.1\r\n{LOCAL}X: {}", "x".repeat(1_000)).into_bytes();
    let slow = number_of("SLOW_HEADS", PLACES);
    let mut heads: Vec<SlowHead> = (0..slow).map(|_| SlowHead::open(broker.admin)).collect();
    let (admin, begun) = (broker.admin, now());
    let longest = others_wait_little("slow heads", broker.mqtt, || {
        let asker = std::thread::spawn(move || {
            let mut longest = Duration::ZERO;
            while begun.elapsed() < FREED / 6 {
                let asked = now();
                assert_eq!(request(admin, "GET", "/healthz", LOCAL).0, 200);
                longest = longest.max(asked.elapsed());
            }
            longest
        });
        while !(heads.is_empty() && asker.is_finished()) && begun.elapsed() < FREED {
            heads.retain_mut(|one| one.send(&head));
            // A pace, no wait: one byte a second.
            std::thread::sleep(Duration::from_secs(1));
        }
        asker.join().expect("an answer")
    });
    println!("{slow} slow heads: another request took {longest:?} at most");
    assert!(longest < FREED, "{longest:?}");
    // Connections beyond the places wait in the kernel, which may take minutes to tell their clients.
    assert!(slow > PLACES || heads.is_empty(), "{} are open", heads.len());
}

/// Sends a head, and then parts of a body. Returns the answer once the broker has closed the
/// connection.
fn upload(admin: SocketAddr, head: &str, part: &[u8], parts: usize) -> String {
    let mut socket = TcpStream::connect(admin).expect("it listens");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    socket.set_write_timeout(Some(PATIENCE)).expect("a timeout");
    // The broker may close the connection meanwhile.
    let mut is_open = socket.write_all(head.as_bytes()).is_ok();
    for _ in 0..parts {
        is_open = is_open && socket.write_all(part).is_ok();
    }
    let (mut answer, begun) = (Vec::new(), now());
    // The kernel resets a connection whose bytes nobody has read.
    let _ = socket.read_to_end(&mut answer);
    assert!(now() - begun < PATIENCE, "the connection stays open: {head}");
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn a_large_head_and_a_large_body_are_refused_and_take_no_memory() {
    let broker = Administered::start();
    broker.ask("GET", "/api/v1/overview", &broker.viewer);
    let before = broker.process().memory("VmHWM");
    let key = bearer(&broker.operator);
    let head = |rest: &str| format!("POST /api/v1/traces HTTP/1.1\r\n{LOCAL}{key}{rest}\r\n");
    // A length of 1 GiB is refused before the body comes.
    let answer = upload(broker.admin, &head("Content-Length: 1073741824\r\n"), &[], 0);
    assert!(answer.starts_with("HTTP/1.1 413") && answer.contains("application/problem+json"), "{answer}");
    // A body that no handler reads.
    let get = format!("GET /api/v1/overview HTTP/1.1\r\n{LOCAL}{key}Content-Length: 1073741824\r\n\r\n");
    upload(broker.admin, &get, &[b'x'; 0x10000], 64);
    let long = format!("GET /healthz HTTP/1.1\r\n{LOCAL}X: {}\r\n\r\n", "x".repeat(128 << 10));
    let answer = upload(broker.admin, &long, &[], 0);
    assert!(!answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(broker.ask("GET", "/api/v1/overview", &broker.viewer).0, 200);
    let grown = broker.process().memory("VmHWM").saturating_sub(before);
    assert!(grown < GROWTH, "{grown} bytes");
}

/// The HTTP server itself would wait for the end of a body in chunks, without an end.
#[test]
fn a_body_that_never_ends_holds_no_place() {
    let broker = Administered::start();
    let paths = [("GET", "/healthz"), ("POST", "/api/v1/traces"), ("POST", "/login"), ("GET", "/nothing")];
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    std::thread::scope(|scope| {
        let (admin, chunk) = (broker.admin, &chunk);
        for (method, path) in paths {
            for (host, part) in [("localhost", ""), ("localhost", chunk.as_str()), ("foreign", "")] {
                scope.spawn(move || {
                    let head = format!(
                        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n"
                    );
                    let answer = upload(admin, &head, part.as_bytes(), 8);
                    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 411"), "{answer}");
                });
            }
        }
    });
}

/// Returns a hostile client id: markup, quotes, line breaks, text that turns, one of 60 KB.
fn hostile_id(n: usize) -> String {
    match n % 6 {
        0 => format!("<script>alert({n})</script>"),
        1 => format!("\"'`;--\\{n}"),
        2 => format!("line\u{2028}break\u{85}{n}"),
        3 => format!("\u{202e}gnp.{n}"),
        4 => format!("{{homing_up=\"1\"}} {n}"),
        _ => format!("{n}{}", "\u{1d573}".repeat(if n == 5 { 15_000 } else { 100 })),
    }
}

/// Clients that are connected at once. The others come before them and leave their sessions.
const CONNECTED: usize = 2_000;

/// `HOSTILE_CLIENTS=100000` connects more of them.
#[test]
fn hostile_client_ids_become_no_markup_no_label_and_no_line() {
    let broker = Administered::start_with(&["--ephemeral", "--set", "limits.client_id=60 KiB"]);
    let scrape = || {
        let (_, scrape) = request(broker.admin, "GET", "/metrics", LOCAL);
        scrape.lines().filter(|line| line.starts_with("homing_")).count()
    };
    // The scrape itself is counted from the second one on.
    scrape();
    let (before, ids) =
        (scrape(), (0..number_of("HOSTILE_CLIENTS", 300)).map(hostile_id).collect::<Vec<_>>());
    let subscribe = |id: &String| {
        let mut client = RawClient::connect(broker.mqtt, &Connect::persistent(V5, id));
        client.subscribe(&[("pumps/#", 1)]);
        client
    };
    let (away, connected) = ids.split_at(ids.len().saturating_sub(CONNECTED));
    away.iter().for_each(|id| subscribe(id).disconnect());
    let mut clients: Vec<RawClient> = connected.iter().map(subscribe).collect();
    broker.publish("pumps/1", &["on"], 1);
    clients.iter_mut().for_each(|client| drop(client.expect_publish()));
    assert_eq!(scrape(), before, "no name of a client is a label");
    let cookie = log_in(&broker, &broker.viewer);
    for path in ["/", "/clients", "/topics?filter=pumps%2F%23", "/where?topic=pumps%2F1"] {
        let (status, page) = get(&broker, path, &cookie);
        assert_eq!(status, 200, "{path}");
        assert!(!page.contains("<script>alert") && !page.contains("\"'`"), "{path}: {page}");
    }
    let most = (2 * ids.len()).to_string();
    let (_, text) = broker.ctl(&["clients", "--limit", &most]);
    assert_eq!(text.lines().count(), 1 + ids.len(), "one line for each client");
    assert!(!text.contains(['\u{202e}', '\u{85}', '\u{1b}']), "{text}");
    let (_, text) = broker.ctl(&["--json", "clients", "--limit", &most]);
    let rows: Vec<Value> = serde_json::from_str(&text).expect("JSON");
    let listed: std::collections::BTreeSet<&str> =
        rows.iter().filter_map(|row| row["client_id"].as_str()).collect();
    assert!(ids.iter().all(|id| listed.contains(id.as_str())), "each is listed as it is");
}

#[test]
fn a_hundred_dashboards_and_a_hundred_searches_at_once_get_places_or_503() {
    let broker = Administered::start();
    let key = bearer(&broker.viewer);
    let open_all = |key: &str| -> Vec<(Live, u16)> {
        (0..50).map(|_| Live::open(&broker, "/api/v1/events", key)).collect()
    };
    let mut streams = open_all(&key);
    let are_open = |streams: &[(Live, u16)]| streams.iter().filter(|(_, status)| *status == 200).count();
    assert_eq!(are_open(&streams), 16, "a credential has half of the places");
    streams.extend(open_all(&bearer(&broker.operator)));
    assert_eq!(are_open(&streams), 32);
    assert!(streams.iter().all(|(_, status)| [200, 429, 503].contains(status)));
    let (admin, headers) = (broker.admin, format!("{LOCAL}{key}"));
    let statuses = others_wait_little("searches", broker.mqtt, || {
        std::thread::scope(|scope| {
            let ask = || request(admin, "GET", "/api/v1/messages/where?topic=t", &headers).0;
            let all: Vec<_> = (0..100).map(|_| scope.spawn(ask)).collect();
            all.into_iter().map(|one| one.join().expect("an answer")).collect::<Vec<u16>>()
        })
    });
    assert!(statuses.iter().all(|status| [200, 503].contains(status)), "{statuses:?}");
    assert!(statuses.iter().filter(|status| **status == 200).count() >= 8, "{statuses:?}");
    drop(streams);
}

#[test]
fn from_the_fifth_on_failed_logins_in_a_minute_get_429_and_a_valid_token_still_enters() {
    let mut broker = Administered::start();
    let try_one = |n: usize| post(&broker, "/login", "", &format!("token=hmg_{n}"));
    // The fifth failure begins the block.
    let statuses: Vec<u16> = (0..20).map(|n| try_one(n).0).collect();
    assert_eq!(statuses[..4], [200; 4]);
    assert_eq!(statuses[4..], [429; 16]);
    let (_, answer) = try_one(0);
    assert!(answer.contains("retry-after: 300") && answer.contains("Too many logins"), "{answer}");
    let (status, answer) = post(&broker, "/login/code", "", "code=guessed");
    assert_eq!(status, 429, "{answer}");
    let cookie = log_in(&broker, &broker.viewer);
    assert_eq!(get(&broker, "/", &cookie).0, 200);
    let lines = broker.lines_until("who=");
    let refused = |what: &str| lines.iter().filter(|line| line.contains(what)).count();
    assert_eq!((refused("audit.login_refused"), refused("refused for 5 minutes")), (5, 1), "{lines:#?}");
}

#[test]
fn the_cookie_of_an_ended_login_opens_no_stream_and_reads_no_document() {
    let broker = Administered::start();
    let cookie = log_in(&broker, &broker.viewer);
    let headers = format!("Cookie: {cookie}\r\n");
    let paths =
        ["/api/v1/events", "/api/v1/docs", "/api/v1/openapi.json", "/api/problems/busy", "/api/v1/clients"];
    for path in paths {
        assert_eq!(Live::open(&broker, path, &headers).1, 200, "{path}");
    }
    let (_, page) = get(&broker, "/", &cookie);
    let (_, rest) = page.split_once(r#"name="csrf" value=""#).expect("a form");
    let csrf = rest.split('"').next().expect("the end");
    assert_eq!(post(&broker, "/logout", &cookie, &format!("csrf={csrf}")).0, 303);
    for path in paths {
        assert_eq!(Live::open(&broker, path, &headers).1, 401, "{path}");
    }
}

#[test]
fn a_trace_of_everything_is_bounded_and_ends() {
    let broker = Administered::start();
    let mut receiver = RawClient::connect(broker.mqtt, &Connect::new(V311, "receiver"));
    receiver.subscribe(&[("#", 0)]);
    let path = broker.trace(&json!({ "topics": ["#"], "clients": ["sender"], "for": "5s" }));
    let mut sender = RawClient::connect(broker.mqtt, &Connect::new(V311, "sender"));
    let packets = Message::new("pumps/7/set", "on").encode(V311, 0).repeat(100);
    others_wait_little("a trace of everything", broker.mqtt, || {
        for _ in 0..150 {
            sender.send(&packets);
            sender.settle();
            receiver.drain();
        }
    });
    let trace = until("the end of the trace", || {
        let (status, answer) = broker.ask("GET", &path, &broker.operator);
        assert_eq!(status, 200, "{answer}");
        let trace = json_of(&answer);
        (trace["ended"] == true).then_some(trace)
    });
    let number = |name: &str| trace[name].as_u64().unwrap_or(0);
    // 15,000 packets of the sender alone.
    let kept = number("last") - number("steps_dropped");
    assert!(kept <= 10_000, "{kept} steps are kept");
    let beyond = number("steps_dropped") + number("unfollowed_messages") + number("lost");
    assert!(beyond > 0, "what is left out is counted: {trace}");
}

#[test]
fn a_reference_to_a_reused_slot_never_names_the_new_client() {
    let broker = Administered::start_with(&["--ephemeral", "--set", "runtime.threads=1"]);
    let reference = |name: &str| {
        let (_, answer) = broker.ask("GET", &format!("/api/v1/clients/{name}"), &broker.viewer);
        json_of(&answer)["ref"].as_str().expect("a ref").to_owned()
    };
    let first = RawClient::connect(broker.mqtt, &Connect::new(V311, "first"));
    let old = reference("first");
    first.disconnect();
    until("the end of the session", || {
        (broker.ask("GET", "/api/v1/clients/first", &broker.viewer).0 == 404).then_some(())
    });
    let mut second = RawClient::connect(broker.mqtt, &Connect::new(V311, "second"));
    let new = reference("second");
    let slot = |reference: &str| reference.split('-').take(2).map(ToOwned::to_owned).collect::<Vec<_>>();
    assert_eq!(slot(&old), slot(&new), "the slot is used again");
    for (method, path) in [("POST", "/disconnect"), ("POST", "/redeliver"), ("DELETE", "")] {
        let path = format!("/api/v1/clients/-{path}?ref={old}");
        assert_eq!(broker.ask(method, &path, &broker.operator).0, 404, "{method} {path}");
    }
    second.settle();
    assert_eq!(
        broker.ask("POST", &format!("/api/v1/clients/-/disconnect?ref={new}"), &broker.operator).0,
        204
    );
}

#[test]
fn a_message_that_is_skipped_while_it_is_sent_again_is_not_sent_once_more() {
    let mut settings = vec!["--ephemeral"];
    for assignment in
        ["redelivery.interval=100ms", "redelivery.attempts=unlimited", "redelivery.ack_timeout=off"]
    {
        settings.extend(["--set", assignment]);
    }
    let broker = Administered::start_with(&settings);
    let mut client = RawClient::connect(broker.mqtt, &Connect::persistent(V311, "pump"));
    client.subscribe(&[("pumps/#", 1)]);
    broker.publish("pumps/1", &["stuck", "next"], 1);
    let [first, second] = [client.expect_publish(), client.expect_publish()];
    let (_, answer) = broker.ask("GET", "/api/v1/clients/pump/inflight", &broker.viewer);
    let mid = json_of(&answer)["messages"][0]["mid"].as_str().expect("a name").to_owned();
    // It is being sent again and again.
    until("a repetition", || (client.expect_publish().id == first.id).then_some(()));
    let skip = format!("/api/v1/clients/pump/messages/{mid}/skip");
    assert_eq!(broker.ask("POST", &skip, &broker.operator).0, 200);
    assert_eq!(broker.ask("POST", &skip, &broker.operator).0, 404, "it is gone");
    // Repetitions that were written before the skip come first.
    let mut repetitions = 0;
    while repetitions < 5 {
        let publish = client.expect_publish();
        repetitions = if publish.id == second.id { repetitions + 1 } else { 0 };
    }
    client.complete(&second);
    client.settle();
}

#[test]
fn a_disconnect_during_take_overs_hits_no_other_client() {
    let broker = Administered::start();
    let mut bystander = RawClient::connect(broker.mqtt, &Connect::new(V5, "bystander"));
    let connect = Connect::persistent(V311, "pump").keep_alive(0);
    let has_closed_one = AtomicBool::new(false);
    let statuses = std::thread::scope(|scope| {
        let racing = scope.spawn(|| {
            // Each connection takes over from the one before, if the operator has not closed it.
            let mut last = None;
            // On a busy machine a hundred of them may be faster than one request.
            let goes_on = |number| number < 100 || !has_closed_one.load(Ordering::Relaxed);
            for _ in (0..100_000).take_while(|number| goes_on(*number)) {
                let client = RawClient::connect(broker.mqtt, &connect);
                drop(last.replace(client));
            }
        });
        let mut statuses = Vec::new();
        while !racing.is_finished() {
            let path = "/api/v1/clients/pump/disconnect";
            let (status, _) = broker.ask("POST", path, &broker.operator);
            has_closed_one.fetch_or(status == 204, Ordering::Relaxed);
            statuses.push(status);
        }
        racing.join().expect("every connection is accepted");
        statuses
    });
    assert!(statuses.iter().all(|status| [204, 404, 409].contains(status)), "{statuses:?}");
    assert!(statuses.contains(&204), "{statuses:?}");
    bystander.settle();
    let mut client = RawClient::connect(broker.mqtt, &connect);
    assert!(client.session_present());
    client.settle();
}

#[test]
fn each_type_of_an_error_is_a_path_that_explains_it() {
    let broker = Administered::start();
    let errors = [
        ("GET", "/api/v1/clients/nobody"),
        ("GET", "/api/v1/clients?limit=0"),
        ("GET", "/api/v1/clients?cursor=AAAAAAAAAAAA"),
        ("GET", "/api/v1/traces/7"),
        ("GET", "/api/v1/nothing"),
        ("POST", "/api/v1/overview"),
        ("POST", "/api/v1/config/reload"),
    ];
    for (method, path) in errors {
        let (status, answer) = broker.ask(method, path, &broker.operator);
        let problem = json_of(&answer);
        let kind = problem["type"].as_str().unwrap_or_else(|| panic!("{method} {path}: {answer}"));
        let (explained, text) = broker.ask("GET", kind, &broker.viewer);
        assert!(explained == 200 && text.contains(&status.to_string()), "{kind}: {text}");
    }
    assert_eq!(broker.ask("GET", "/api/problems/nothing", &broker.viewer).0, 404);
}
