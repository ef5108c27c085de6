//! Services that hang, reset, never end, or are somebody else. None of them harms anybody, and the
//! log says what they do.

use crate::broker::{Broker, sink};
use crate::kit::Pki;
use crate::service::{OK, Reply, Service};
use crate::support::{Message, RawClient};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{BufReader, Write};
use std::net::TcpListener;
use std::sync::Arc;

/// A client that is served while the service misbehaves.
fn is_served(client: &mut RawClient) {
    client.deliver(&Message::new("u", "still served").qos(1));
    assert_eq!(client.expect_publish().topic, "u");
}

#[test]
fn a_service_that_fails_in_any_way_gets_the_message_again_and_nobody_else_notices() {
    const HEAD: &[u8] = b"HTTP/1.1 500 Endless\r\n";
    const CHUNKED: &[u8] = b"HTTP/1.1 500 Endless\r\nTransfer-Encoding: chunked\r\n\r\n";
    let service = Service::start(|number, _| match number {
        0 => Reply::Silence,
        1 => Reply::Close,
        2 => Reply::Bytes(b"SSH-2.0-OpenSSH_9.6\r\n"),
        3 => Reply::Bytes(b"\xFF\0\xFF\0\r\n\r\n"),
        4 => Reply::Endless(HEAD, b"X-Header: more\r\n"),
        5 => Reply::Endless(CHUNKED, b"400\r\n"),
        6 => Reply::Bytes(b"HTTP/1.1 100 Continue\r\n\r\n"),
        7 => Reply::Bytes(b"HTTP/1.1 500 Slow\r\nContent-Length: 2000000000\r\n\r\nbegins"),
        _ => OK,
    });
    let mut broker = Broker::start(&sink(&service.url, "timeout = \"500ms\"\n"));
    let mut client = broker.client("bystander");
    client.subscribe(&[("u", 0)]);
    broker.client("writer").deliver(&Message::new("t/1", "1").qos(1));
    for reason in [
        "no answer within timeout",
        "the connection failed: connection",
        "the connection failed: invalid HTTP",
        "the connection failed: invalid HTTP",
        "the connection failed: message head is too large",
        "HTTP 500",
        "no answer within timeout",
        "HTTP 500",
    ] {
        let line = broker.says("sink.request_failed");
        assert!(line.contains(reason), "{reason}: {line}");
        is_served(&mut client);
    }
    let requests = service.expect(9);
    assert!(requests.iter().all(|request| request.key() == requests[0].key()));
    let memory = broker.process.as_ref().expect("it runs").memory("VmHWM");
    assert!(memory < 300 << 20, "{memory} bytes");
}

#[test]
fn a_status_counts_although_its_body_never_ends() {
    const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let service = Service::start(|number, _| match number {
        0 => Reply::Endless(HEAD, b"1\r\n \r\n"),
        1 => Reply::Bytes(HEAD),
        _ => OK,
    });
    let mut broker = Broker::start(&sink(&service.url, ""));
    let mut client = broker.client("writer");
    client.deliver(&Message::new("t/1", "1").qos(1));
    broker.says("sink.body_cut");
    client.deliver(&Message::new("t/1", "2").qos(1));
    client.deliver(&Message::new("t/1", "3").qos(1));
    assert_eq!(service.expect_payloads(3), ["1", "2", "3"]);
}

#[test]
fn a_service_that_is_not_there_or_has_no_name_is_tried_again() {
    let gone = TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("an address");
    let mut broker = Broker::start(&sink(&format!("http://{gone}/"), ""));
    let mut client = broker.client("writer");
    client.deliver(&Message::new("t/1", "1").qos(1));
    let line = broker.says("sink.request_failed");
    assert!(line.contains("cannot connect: Connection refused"), "{line}");
    broker.reload(&sink("http://no-such-host.invalid/", ""));
    // The sink before may have failed once more meanwhile.
    broker.says("sink.ready");
    let line = broker.says("sink.request_failed");
    assert!(line.contains("no-such-host.invalid"), "{line}");
    let service = Service::accepting();
    broker.reload(&sink(&service.url, ""));
    assert_eq!(service.expect_payloads(1), ["1"]);
}

/// Answers one request on each connection, and returns the address.
fn secure_service(pki: &Pki, name: &str) -> u16 {
    let chain = rustls_pki_pem(&pki.path(&format!("{name}.pem")));
    let key = rustls_key_pem(&pki.path(&format!("{name}.key")));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("a certificate");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("its address").port();
    let config = Arc::new(config);
    std::thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            let connection = ServerConnection::new(Arc::clone(&config)).expect("a connection");
            let mut reader = BufReader::new(StreamOwned::new(connection, socket));
            while crate::support::http_server::read_request(&mut reader).is_some() {
                let _ = reader.get_mut().write_all(b"HTTP/1.1 204 No Content\r\n\r\n");
            }
        }
    });
    port
}

fn rustls_pki_pem(path: &std::path::Path) -> Vec<rustls::pki_types::CertificateDer<'static>> {
    use rustls::pki_types::pem::PemObject;
    rustls::pki_types::CertificateDer::pem_file_iter(path)
        .expect("a file")
        .map(|one| one.expect("a certificate"))
        .collect()
}

fn rustls_key_pem(path: &std::path::Path) -> rustls::pki_types::PrivateKeyDer<'static> {
    use rustls::pki_types::pem::PemObject;
    rustls::pki_types::PrivateKeyDer::from_pem_file(path).expect("a key")
}

#[test]
fn a_certificate_of_another_authority_or_name_is_refused_and_the_right_one_is_taken() {
    let (pki, other) = (Pki::new(), Pki::named("another"));
    pki.server("elsewhere", &["elsewhere.example"]);
    let (right, wrong) = (secure_service(&pki, "server"), secure_service(&pki, "elsewhere"));
    let keys = |ca: &Pki| format!("ca = \"{}\"\n", ca.text_path("ca.pem"));
    let mut broker = Broker::start(&sink(&format!("https://localhost:{right}/"), &keys(&other)));
    broker.client("writer").deliver(&Message::new("t/1", "1").qos(1));
    let line = broker.says("sink.request_failed");
    assert!(line.contains("the TLS handshake failed: invalid peer certificate: UnknownIssuer"), "{line}");
    broker.reload(&sink(&format!("https://localhost:{wrong}/"), &keys(&pki)));
    let line = broker.says("not valid for name");
    assert!(line.contains("sink.request_failed"), "{line}");
    broker.reload(&sink(&format!("https://localhost:{right}/"), &keys(&pki)));
    let done = || Some(broker.ctl(&["sinks"])).filter(|table| table.contains("ready"));
    crate::support::until("the message is delivered", || done().filter(|table| !table.contains("invalid")));
}
