//! The HTTP interface with a certificate of its own.

use crate::api::{Administered, json_of};
use crate::http::{LOCAL, answer_to};
use crate::kit::{Pki, dial, is_closed, tls_client};
use crate::support::process::{Process, homing_serve};
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use rustix::process::Signal;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::TcpStream;

/// A broker whose HTTP interface has the certificate `server` of a test authority.
pub struct Https {
    pub broker: Administered,
    pub pki: Pki,
}

impl Https {
    pub fn start() -> Https {
        let pki = Pki::new();
        let [certificate, key] = certificate_keys(&pki);
        let arguments = ["--ephemeral", "--log-level", "info", "--set", &certificate, "--set", &key];
        Https { broker: Administered::start_with(&arguments), pki }
    }

    fn client(&self, config: ClientConfig) -> StreamOwned<ClientConnection, TcpStream> {
        tls_client(config, "localhost", dial(self.broker.admin))
    }

    /// Sends a request over TLS. Returns the status and the whole answer.
    fn request(&self, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nConnection: close\r\n{LOCAL}{headers}Content-Length: {length}\r\n\r\n{body}"
        );
        answer_to(&mut self.client(self.pki.client_config(None)), &head)
    }

    pub fn get(&self, path: &str, token: &str) -> (u16, String) {
        self.request("GET", path, &format!("Authorization: Bearer {token}\r\n"), "")
    }

    /// Returns the certificate that a new client gets, in DER.
    fn certificate(&self) -> Vec<u8> {
        let mut client = self.client(self.pki.client_config(None));
        client.conn.complete_io(&mut client.sock).expect("a handshake");
        client.conn.peer_certificates().expect("a chain")[0].to_vec()
    }

    /// Writes another certificate for the interface. Returns it in DER.
    fn renew(&self) -> Vec<u8> {
        self.pki.server("server", &["localhost", "127.0.0.1"]).to_vec()
    }
}

/// Returns the assignments of the two keys of HTTPS.
fn certificate_keys(pki: &Pki) -> [String; 2] {
    ["certificate=server.pem", "key=server.key"].map(|pair| {
        let (key, file) = pair.split_once('=').expect("a pair");
        format!("admin.{key}={}", pki.text_path(file))
    })
}

#[test]
fn the_pages_the_api_and_the_metrics_are_there_over_tls() {
    let https = Https::start();
    for version in [&TLS12, &TLS13] {
        let mut client = https.client(https.pki.client_of(version));
        let (status, answer) = answer_to(&mut client, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!((status, client.conn.protocol_version()), (200, Some(version.version)), "{answer}");
    }
    assert_eq!(https.request("GET", "/login", "", "").0, 200);
    assert_eq!(https.request("GET", "/api/v1/overview", "", "").0, 401);
    assert_eq!(https.get("/api/v1/overview", &https.broker.viewer).0, 200);
    let (status, listeners) = https.get("/api/v1/listeners", &https.broker.viewer);
    let listeners = json_of(&listeners);
    let rows = listeners["listeners"].as_array().expect("rows").iter();
    let tls: Vec<_> = rows.map(|row| (row["protocol"].as_str(), row["tls"].as_bool())).collect();
    assert_eq!((status, &tls[..]), (200, &[(Some("mqtt"), Some(false)), (Some("httpapi"), Some(true))][..]));
    // Without a token, because the client is on this machine.
    let (status, metrics) = https.request("GET", "/metrics", "", "");
    assert!(status == 200 && metrics.contains("homing_sessions"), "{metrics}");
}

#[test]
fn clients_agree_on_http_1_1_and_one_that_speaks_only_another_protocol_is_refused() {
    let https = Https::start();
    let with = |protocols: &[&str]| {
        let mut config = https.pki.client_config(None);
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let mut client = https.client(config);
        let done = client.conn.complete_io(&mut client.sock);
        done.map(|_| client.conn.alpn_protocol().map(<[u8]>::to_vec)).ok()
    };
    assert_eq!(with(&["h2", "http/1.1"]), Some(Some(b"http/1.1".to_vec())));
    assert_eq!(with(&[]), Some(None));
    assert_eq!(with(&["h2"]), None);
}

#[test]
fn a_client_without_tls_and_one_that_never_ends_its_handshake_are_closed() {
    let https = Https::start();
    let mut silent = dial(https.broker.admin);
    silent.write_all(b"\x16\x03\x01").expect("open");
    let mut plain = dial(https.broker.admin);
    plain.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("open");
    let mut answer = Vec::new();
    // The system may report that the connection was reset.
    drop(plain.read_to_end(&mut answer));
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    assert!(is_closed(&mut silent));
}

#[test]
fn links_are_https_and_a_browser_sends_the_cookie_of_a_login_over_tls_alone() {
    let https = Https::start();
    let (code, text) = https.broker.ctl(&["dashboard"]);
    assert!(code == Some(0) && text.starts_with(&format!("https://{}/", https.broker.admin)), "{text}");
    let form = format!("token={}", https.broker.viewer);
    let headers = "Content-Type: application/x-www-form-urlencoded\r\n";
    let (status, answer) = https.request("POST", "/login", headers, &form);
    assert_eq!(status, 303, "{answer}");
    let cookie = answer.lines().find(|line| line.starts_with("set-cookie: ")).expect("a cookie");
    assert!(cookie.contains("; Secure") && cookie.contains(" __Host-homing_login_"), "{cookie}");
}

#[test]
fn a_renewed_certificate_holds_after_sighup_and_after_a_reload_without_a_restart() {
    let mut https = Https::start();
    let first = https.certificate();
    let second = https.renew();
    assert_eq!(https.certificate(), first, "nothing was read again yet");
    https.broker.process().signal(Signal::HUP);
    let lines = https.broker.lines_until("config.reloaded");
    let line = lines.last().expect("a line");
    assert!(line.contains("tls (admin.certificate) changed: certificate "), "{line}");
    assert_eq!(https.certificate(), second);
    let third = https.renew();
    assert_eq!(https.broker.ctl(&["reload"]).0, Some(0));
    assert_eq!(https.certificate(), third);
}

#[test]
fn a_broken_certificate_changes_nothing_and_is_reported() {
    let https = Https::start();
    let first = https.certificate();
    https.pki.write("server.pem", "no certificate");
    let (code, text) = https.broker.ctl(&["reload"]);
    assert_eq!(code, Some(2), "{text}");
    for part in ["nothing is changed", "the HTTP interface", "server.pem", "admin.certificate"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert_eq!(https.certificate(), first);
    // A certificate without its key is broken, too.
    let key = std::fs::read_to_string(https.pki.path("server.key")).expect("a key");
    let new = https.renew();
    let new_key = std::fs::read_to_string(https.pki.path("server.key")).expect("a key");
    https.pki.write("server.key", &key);
    let (code, text) = https.broker.ctl(&["reload"]);
    assert!(code == Some(2) && text.contains("server.key"), "{text}");
    https.pki.write("server.key", &new_key);
    assert_eq!(https.broker.ctl(&["reload"]).0, Some(0));
    assert_eq!(https.certificate(), new);
}

/// Starts a broker with these settings, which must not start. Returns what it says.
fn refusal(settings: &[&str]) -> String {
    let mut command = homing_serve();
    command.arg("--ephemeral").env_remove("HOMING_ADMIN__ADDRESSES");
    settings.iter().for_each(|setting| {
        command.args(["--set", setting]);
    });
    let (code, lines) = Process::spawn(&mut command).end();
    assert!(code.is_some_and(|code| code != 0), "{lines:#?}");
    lines.join("\n")
}

#[test]
fn an_address_beyond_loopback_needs_https_or_a_permission_and_the_refusal_names_both() {
    let text = refusal(&["admin.addresses=0.0.0.0:0"]);
    for part in ["0.0.0.0:0", "admin.certificate and admin.key", "admin.allow_plain_http = true"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let pki = Pki::new();
    let [certificate, key] = certificate_keys(&pki);
    let mut command = homing_serve();
    command.args(["--ephemeral", "--set", "admin.addresses=0.0.0.0:0", "--set", &certificate, "--set", &key]);
    let (mut process, _) = Process::serve(&mut command);
    let line = process.line("administration").expect("the address of the interface");
    assert!(line.contains("https://0.0.0.0:"), "{line}");
}

#[test]
fn a_certificate_without_a_key_is_refused_and_so_is_a_file_that_cannot_be_used() {
    let pki = Pki::new();
    let [certificate, key] = certificate_keys(&pki);
    assert!(refusal(&[&certificate]).contains("admin.key is missing"));
    assert!(refusal(&[&key]).contains("admin.certificate is missing"));
    pki.write("server.pem", "no certificate");
    let text = refusal(&[&certificate, &key, "admin.addresses=127.0.0.1:0"]);
    assert!(text.contains("admin.certificate") && text.contains("server.pem"), "{text}");
}

#[test]
fn an_ended_certificate_is_a_warning_at_the_start() {
    let pki = Pki::new();
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1));
    let own = KeyPair::generate().expect("a key");
    pki.write("server.pem", &params.self_signed(&own).expect("a certificate").pem());
    pki.write("server.key", &own.serialize_pem());
    let [certificate, key] = certificate_keys(&pki);
    let mut command = homing_serve();
    command.args([
        "--ephemeral",
        "--set",
        "admin.addresses=127.0.0.1:0",
        "--set",
        &certificate,
        "--set",
        &key,
    ]);
    command.env_remove("HOMING_ADMIN__ADDRESSES");
    // The warning may come before the message of the start, or behind it.
    let mut process = Process::spawn(&mut command);
    let line = process.line("tls.ends_soon").expect("a warning");
    assert!(line.contains("the HTTP interface") && line.contains("expired"), "{line}");
}
