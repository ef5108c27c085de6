//! The HTTP interface of a running broker: health, metrics, and requests that it refuses.

use crate::support::process::Process;
use crate::support::{Connect, RawClient, Version, until};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

/// Starts a broker with the HTTP interface on a free port. Returns both addresses.
fn serve() -> (Process, SocketAddr, SocketAddr) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
    command.args(["serve", "--ephemeral", "--listen", "127.0.0.1:0", "--set", "admin.addresses=127.0.0.1:0"]);
    serve_with(&mut command)
}

/// Starts this broker. Returns the address for MQTT and that of the HTTP interface.
pub fn serve_with(command: &mut Command) -> (Process, SocketAddr, SocketAddr) {
    let (mut process, mqtt) = Process::serve(command);
    let line = process.line("administration").expect("the address of the interface");
    let address = line.split("://").nth(1).and_then(|rest| rest.split(": ").next());
    let admin = address.and_then(|address| address.parse().ok()).expect("an address");
    (process, mqtt, admin)
}

/// Sends a request without a body, and returns the status and the whole answer.
pub fn request(admin: SocketAddr, method: &str, path: &str, headers: &str) -> (u16, String) {
    let mut socket = TcpStream::connect(admin).expect("it listens");
    let head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n");
    answer_to(&mut socket, &head)
}

/// Returns the value of a metric, which is named with its labels; `None` if the scrape lacks it.
pub fn metric(admin: SocketAddr, name: &str) -> Option<f64> {
    let (_, metrics) = request(admin, "GET", "/metrics", LOCAL);
    let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value?.parse().ok()
}

/// Sends a request with a body, and returns the status and the whole answer.
pub fn request_with_body(
    admin: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> (u16, String) {
    let mut socket = TcpStream::connect(admin).expect("it listens");
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nConnection: close\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
    );
    answer_to(&mut socket, &head)
}

/// Sends a request. Returns the status and the whole answer; the head alone of a stream of events,
/// which has no end.
pub fn answer_to(socket: &mut (impl Read + Write), request: &str) -> (u16, String) {
    socket.write_all(request.as_bytes()).expect("it reads");
    let (mut lines, mut answer) = (BufReader::new(socket), String::new());
    while !answer.ends_with("\r\n\r\n") && lines.read_line(&mut answer).expect("text") > 0 {}
    if !answer.contains("content-type: text/event-stream") {
        lines.read_to_string(&mut answer).expect("text");
    }
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, answer)
}

/// Connections that the interface serves at once.
pub const PLACES: usize = 256;

pub const LOCAL: &str = "Host: localhost\r\n";

#[test]
fn a_running_broker_is_healthy_and_ready() {
    let (_broker, _, admin) = serve();
    assert_eq!(request(admin, "GET", "/healthz", LOCAL).0, 200);
    let (status, answer) = request(admin, "GET", "/readyz", LOCAL);
    assert_eq!(status, 200);
    assert!(answer.contains(r#""phase":"ready""#), "{answer}");
}

#[test]
fn metrics_show_a_connected_client_and_each_family_once() {
    let (_broker, mqtt, admin) = serve();
    let _client = RawClient::connect(mqtt, &Connect::new(Version::V311, "metered"));
    // The shards report their figures once a second.
    let metrics = until("a connected session", || {
        let (status, metrics) = request(admin, "GET", "/metrics", LOCAL);
        assert_eq!(status, 200);
        metrics.contains("homing_sessions{state=\"connected\"} 1\n").then_some(metrics)
    });
    assert!(metrics.contains("content-type: text/plain; version=0.0.4; charset=utf-8"), "{metrics}");
    assert!(!metrics.contains("metered"), "a client identifier has no place in a metric");
    let mut families: Vec<&str> = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    let all = families.len();
    families.sort_unstable();
    families.dedup();
    assert!(all > 20 && families.len() == all, "{families:?}");
}

#[test]
fn a_foreign_host_another_method_and_an_unknown_path_are_refused_with_a_problem() {
    let (_broker, _, admin) = serve();
    let cases = [
        ("GET", "/metrics", "Host: attacker.example\r\n", 403, "foreign-host"),
        ("GET", "/metrics", "Host: localhost\r\nX-Forwarded-For: 127.0.0.1\r\n", 401, "unauthorized"),
        ("POST", "/readyz", "Host: localhost\r\nContent-Length: 0\r\n", 405, "method-not-allowed"),
        ("GET", "/nothing", LOCAL, 404, "not-found"),
    ];
    for (method, path, headers, status, slug) in cases {
        let (got, answer) = request(admin, method, path, headers);
        assert_eq!(got, status, "{method} {path}: {answer}");
        assert!(answer.contains("application/problem+json") && answer.contains(slug), "{answer}");
    }
}

#[test]
fn connections_that_ask_nothing_more_hold_no_place() {
    let (_broker, _, admin) = serve();
    let idle: Vec<TcpStream> = (0..PLACES)
        .map(|_| {
            let mut socket = TcpStream::connect(admin).expect("it listens");
            // No "Connection: close", and the first byte of a second request behind the answer.
            socket.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nG").expect("it reads");
            socket
        })
        .collect();
    assert_eq!(request(admin, "GET", "/healthz", LOCAL).0, 200);
    drop(idle);
}
