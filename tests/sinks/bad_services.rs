//! Services that hang, reset, never end, or are somebody else. None of them harms anybody, and the
//! log says what they do.

use crate::broker::{Broker, sink};
use crate::kit::Pki;
use crate::service::{OK, Reply, Service};
use crate::support::http_server::read_request;
use crate::support::{Message, PATIENCE, RawClient, until};
use rustix::net::{AddressFamily, SocketType, bind, listen, socket};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};
use std::time::Duration;

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
        8 => Reply::Endless(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
        9 => Reply::Bytes(b"HTTP/1.1 500 X\r\nTransfer-Encoding: chunked\r\n\r\nZZZ\r\n"),
        10 => Reply::Bytes(b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n"),
        11 => Reply::Bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"),
        12 => Reply::Last(b"HTTP/1.0 500 Old\r\n\r\nan old one"),
        13 => Reply::Last(b"HTTP/1.1 502 Short\r\nContent-Length: 100\r\n\r\nshort"),
        14 => Reply::Answer("429 Slow\r\nRetry-After: -1", ""),
        15 => Reply::Answer("429 Slow\r\nRetry-After: 99999999999999999999999", ""),
        16 => Reply::Answer("429 Slow\r\nRetry-After: Sun, 06 Nov 1994 08:49:37 GMT", ""),
        17 => Reply::Answer("429 Slow\r\nRetry-After: Fri, 31 Dec 9999 23:59:59 GMT", ""),
        _ => OK,
    });
    let mut broker = Broker::start(&sink(&service.url, "timeout = \"2s\"\n"));
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
        "no answer within timeout",
        "HTTP 500",
        "the connection failed: invalid content-length",
        "the connection failed: invalid content-length",
        "HTTP 500: an old one",
        "HTTP 502",
        "HTTP 429",
        "HTTP 429",
        "HTTP 429",
        "HTTP 429",
    ] {
        let line = broker.says("sink.request_failed");
        assert!(line.contains(reason), "{reason}: {line}");
        is_served(&mut client);
    }
    let requests = service.expect(19);
    assert!(requests.iter().all(|request| request.key() == requests[0].key()));
    let memory = broker.process.as_ref().expect("it runs").memory("VmHWM");
    assert!(memory < 300 << 20, "{memory} bytes");
}

/// Binds a listener that accepts nobody, and fills the queue of its kernel.
fn unaccepting() -> (OwnedFd, u16, Vec<TcpStream>) {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listen(&socket, 0).expect("a listener");
    let address = TcpListener::from(socket.try_clone().expect("a descriptor"));
    let address = address.local_addr().expect("an address");
    let wait = Duration::from_millis(200);
    let waiting = std::iter::from_fn(|| TcpStream::connect_timeout(&address, wait).ok()).take(10).collect();
    (socket, address.port(), waiting)
}

#[test]
fn a_service_that_hangs_before_http_says_at_which_step() {
    let pki = Pki::new();
    let (_socket, port, waiting) = unaccepting();
    assert!(waiting.len() < 10, "the queue is full");
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let secured = silent.local_addr().expect("an address").port();
    let keys = "timeout = \"300ms\"\n";
    let mut broker = Broker::start(&sink(&format!("http://127.0.0.1:{port}/"), keys));
    let mut client = broker.client("bystander");
    client.subscribe(&[("u", 0)]);
    broker.client("writer").deliver(&Message::new("t/1", "1").qos(1));
    let line = broker.says("sink.request_failed");
    assert!(line.contains("no TCP connection within timeout"), "{line}");
    is_served(&mut client);
    let ca = format!("{keys}ca = \"{}\"\n", pki.text_path("ca.pem"));
    broker.reload(&sink(&format!("https://localhost:{secured}/"), &ca));
    let line = broker.says("the TLS handshake does not end within timeout");
    assert!(line.contains("sink.request_failed"), "{line}");
    is_served(&mut client);
    let service = Service::accepting();
    broker.reload(&sink(&service.url, ""));
    assert_eq!(service.expect_payloads(1), ["1"]);
}

#[test]
fn a_connection_that_closes_in_the_middle_of_a_batch_loses_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}/", listener.local_addr().expect("an address"));
    let (count, came) = mpsc::channel();
    std::thread::spawn(move || {
        for (number, mut stream) in listener.incoming().map_while(Result::ok).enumerate() {
            if number < 3 {
                // Bytes that nobody has read make the end a reset.
                let _ = stream.read(&mut [0; 1_000]);
                continue;
            }
            let mut reader = BufReader::new(stream);
            while let Some((_, body)) = read_request(&mut reader) {
                let messages: Vec<serde_json::Value> = serde_json::from_slice(&body).expect("JSON");
                let _ = count.send(messages.len());
                let _ = reader.get_mut().write_all(b"HTTP/1.1 204 No Content\r\n\r\n");
            }
        }
    });
    let mut broker = Broker::start(&sink(&url, "batch_wait = \"100ms\"\n"));
    let mut client = broker.client("writer");
    for _ in 0..5 {
        client.deliver(&Message::new("t/1", vec![b'x'; 200_000]).qos(1));
    }
    let line = broker.says("sink.request_failed");
    assert!(line.contains("the connection failed: "), "{line}");
    broker.says("sink.recovered");
    let mut messages = 0;
    while messages < 5 {
        messages += came.recv_timeout(PATIENCE).expect("the others");
    }
    assert_eq!(messages, 5);
}

#[test]
fn a_kept_connection_that_closes_as_a_request_comes_is_no_failure() {
    // The second request comes on the connection of the first one, and the third on a new one.
    let service = Service::start(|number, _| if number == 1 { Reply::Close } else { OK });
    let mut broker = Broker::start(&sink(&service.url, ""));
    let mut client = broker.client("writer");
    client.deliver(&Message::new("t/1", "1").qos(1));
    service.expect(1);
    let sinks = |broker: &Broker| broker.ctl(&["--json", "sinks"]);
    until("the first is accepted", || sinks(&broker).contains("\"delivered\": 1").then_some(()));
    client.deliver(&Message::new("t/1", "2").qos(1));
    let requests = service.expect(3);
    assert_eq!(requests[1].key(), requests[2].key());
    until("both are accepted", || sinks(&broker).contains("\"delivered\": 2").then_some(()));
    let table = sinks(&broker);
    assert!(table.contains("\"failed\": 0") && table.contains("\"state\": \"ready\""), "{table}");
    broker.kill();
}

#[test]
fn a_status_counts_although_its_body_never_ends() {
    const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let service = Service::start(|number, _| match number {
        0 => Reply::Endless(HEAD, b"1\r\n \r\n"),
        1 => Reply::Bytes(HEAD),
        2 => Reply::Last(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort"),
        _ => OK,
    });
    let mut broker = Broker::start(&sink(&service.url, ""));
    let mut client = broker.client("writer");
    client.deliver(&Message::new("t/1", "1").qos(1));
    broker.says("sink.body_cut");
    client.deliver(&Message::new("t/1", "2").qos(1));
    client.deliver(&Message::new("t/1", "3").qos(1));
    assert_eq!(service.expect_payloads(3), ["1", "2", "3"]);
    client.deliver(&Message::new("t/1", "4").qos(1));
    assert_eq!(service.expect_payloads(4), ["1", "2", "3", "4"]);
}

#[test]
fn a_service_that_is_not_there_or_has_no_name_is_tried_again() {
    // Nobody listens there. A port that was free a moment ago may be that of another test by now.
    let mut broker = Broker::start(&sink("http://127.0.0.1:1/", ""));
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

#[test]
fn a_name_server_that_hangs_holds_up_its_sinks_alone() {
    /// More sinks than threads that an ordinary pool has, and each tries again and again.
    const HANGING: usize = 70;
    let service = Service::accepting();
    let hanging: String = (0..HANGING)
        .map(|number| {
            format!(
                "[[sinks]]\nname = \"hangs-{number}\"\nurl = \"http://hangs-{number}.example/\"\n\
                 filters = [\"hangs\"]\ntimeout = \"100ms\"\nbackoff = \"50ms\"\nmax_backoff = \"100ms\"\n"
            )
        })
        .collect();
    let named = sink(&service.url.replace("127.0.0.1", "localhost"), "");
    let mut broker = Broker::start(&format!("{hanging}{named}"));
    let mut client = broker.client("writer");
    client.deliver(&Message::new("hangs", "1").qos(1));
    for _ in 0..HANGING * 3 {
        let line = broker.says("sink.request_failed");
        assert!(line.contains("the name is not resolved within timeout"), "{line}");
    }
    client.deliver(&Message::new("t/1", "1").qos(1));
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
            while read_request(&mut reader).is_some() {
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
