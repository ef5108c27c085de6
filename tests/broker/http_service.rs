//! Logins that an HTTP service decides, over real sockets.

use crate::support::http_server::read_request;
use crate::support::launch::{TestBroker, on_configured_threads, start_broker};
use crate::support::{Connect, Message, Packet, V5, V311, password_file};
use homing::config::{Anonymous, AuthMethod, Config};
use std::io::{BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tempfile::NamedTempFile;

/// A service that answers each request as its script says. It ends with the process.
struct Service {
    url: String,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    connections: usize,
    requests: Vec<Request>,
}

#[derive(Clone, Debug)]
struct Request {
    /// The first line and the headers.
    head: String,
    body: String,
}

enum Reply {
    /// A status with these headers, and a body.
    Answer(&'static str, String),
    /// The connection is closed without an answer.
    Close,
    /// There is no answer, and the connection stays open.
    Silence,
    /// A body that never ends.
    Endless,
}

impl Service {
    fn start(script: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Service {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let url = format!("http://{}/mqtt/auth", listener.local_addr().expect("its address"));
        let (seen, script) = (Arc::<Mutex<Seen>>::default(), Arc::new(script));
        let service = Service { url, seen: Arc::clone(&seen) };
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                seen.lock().unwrap().connections += 1;
                let (seen, script) = (Arc::clone(&seen), Arc::clone(&script));
                std::thread::spawn(move || serve(&stream, &seen, &*script));
            }
        });
        service
    }

    /// Returns a service that answers with this JSON.
    fn saying(json: &str) -> Service {
        let json = json.to_owned();
        Service::start(move |_| Reply::Answer("200 OK", json.clone()))
    }

    fn use_in(&self, config: &mut Config) {
        config.auth.http_url = self.url.clone();
        config.auth.anonymous = Anonymous::Never;
    }

    fn connections(&self) -> usize {
        self.seen.lock().unwrap().connections
    }

    fn requests(&self) -> Vec<Request> {
        self.seen.lock().unwrap().requests.clone()
    }
}

/// Answers the requests of one connection.
fn serve(stream: &TcpStream, seen: &Mutex<Seen>, script: &dyn Fn(&Request) -> Reply) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut out = stream;
    loop {
        let (head, body) = read_request(&mut reader)?;
        let request = Request { head, body: String::from_utf8(body).ok()? };
        seen.lock().unwrap().requests.push(request.clone());
        match script(&request) {
            Reply::Answer(head, body) => {
                write!(out, "HTTP/1.1 {head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).ok()?;
            }
            Reply::Close => return None,
            Reply::Silence => drop(reader.read(&mut [0])),
            Reply::Endless => {
                write!(out, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").ok()?;
                while write!(out, "1\r\n \r\n").is_ok() {
                    std::thread::yield_now();
                }
            }
        }
    }
}

fn unix_secs() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "an answer names the time of the wall clock")]
    let now = SystemTime::now();
    now.duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}

fn file(text: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().expect("a file");
    file.write_all(text.as_bytes()).expect("a writable file");
    file
}

fn passwords(user: &str, password: &str) -> NamedTempFile {
    file(&password_file(&[(user, password)]))
}

fn user(name: &str) -> Connect {
    Connect::new(V5, &format!("of-{name}")).user_name(name).password(b"secret")
}

/// Returns the reason code of a refusal, which has no Reason String.
fn refusal(broker: &TestBroker, connect: &Connect) -> u8 {
    let mut client = broker.open(connect.version);
    client.send(&connect.encode());
    match &client.read_to_end()[..] {
        [Packet::Connack(connack)] => {
            assert_eq!(connack.properties, [], "the client learns no reason");
            connack.code
        }
        other => panic!("one CONNACK and the end: {other:?}"),
    }
}

#[test]
fn the_service_decides_who_enters() {
    let service = Service::start(|request| {
        let is_ann = request.body.contains(r#""username":"ann""#);
        let result = if is_ann { r#"{"result":"allow"}"# } else { r#"{"result":"deny"}"# };
        match request.body.contains(r#""username":"bob""#) {
            true => Reply::Answer("204 No Content", String::new()),
            false => Reply::Answer("200 OK", result.to_owned()),
        }
    });
    on_configured_threads(
        |config| service.use_in(config),
        |broker| {
            for _ in 0..3 {
                broker.connect(&user("ann")).ping();
                broker.connect(&user("bob")).ping();
                assert_eq!(refusal(broker, &user("eve")), 0x87);
                let old = Connect::new(V311, "old").user_name("eve").password(b"secret");
                assert_eq!(refusal(broker, &old), 5);
            }
            assert_eq!(refusal(broker, &Connect::new(V5, "nobody")), 0x87, "without a name nobody is asked");
        },
    );
    assert_eq!(service.requests().len(), 2 * 12, "no answer is remembered");
    assert_eq!(service.connections(), 2, "a connection of each broker is used again");
    let Request { head, body } = service.requests().remove(0);
    assert!(head.starts_with("POST /mqtt/auth HTTP/1.1\r\n"), "{head}");
    assert!(head.to_lowercase().contains("\r\ncontent-type: application/json\r\n"), "{head}");
    let expected = r#"{"clientid":"of-ann","username":"ann","password":"secret","peerhost":"127.0.0.1"}"#;
    assert_eq!(body, expected);
}

#[test]
fn a_service_without_an_answer_lets_nobody_in_and_holds_nobody_up() {
    let service = Service::start(|request| {
        let is = |name: &str| request.body.contains(&format!(r#""username":"{name}""#));
        let allow = || r#"{"result":"allow"}"#.to_owned();
        match () {
            () if is("fault") => Reply::Answer("500 Internal Server Error", allow()),
            () if is("unknown") => Reply::Answer("404 Not Found", allow()),
            () if is("elsewhere") => Reply::Answer("307 Temporary Redirect\r\nLocation: /other", allow()),
            () if is("words") => Reply::Answer("200 OK", "allow".to_owned()),
            () if is("large") => Reply::Answer("200 OK", format!("{}{}", " ".repeat(64 << 10), allow())),
            () if is("closed") => Reply::Close,
            () if is("silent") => Reply::Silence,
            () if is("endless") => Reply::Endless,
            () => Reply::Answer("200 OK", allow()),
        }
    });
    let broker = start_broker(|config| {
        service.use_in(config);
        config.auth.http_timeout = Duration::from_secs(2);
    });
    for name in ["fault", "unknown", "elsewhere", "words", "large", "closed", "silent", "endless"] {
        let mut waits = broker.open(V5);
        waits.send(&user(name).encode());
        broker.connect(&user("ann")).ping();
        let Some(Packet::Connack(connack)) = waits.read_to_end().pop() else { panic!("{name}: no CONNACK") };
        assert_eq!((connack.code, &connack.properties[..]), (0x88, &[][..]), "{name}");
    }
    let old = Connect::new(V311, "old").user_name("fault");
    assert_eq!(refusal(&broker, &old), 3);
    let heads: Vec<String> = service.requests().into_iter().map(|request| request.head).collect();
    assert!(heads.iter().all(|head| head.starts_with("POST /mqtt/auth ")), "redirects are not followed");
}

#[test]
fn a_service_that_is_down_is_left_alone_for_a_while() {
    let down = Arc::new(Mutex::new(true));
    let is_down = Arc::clone(&down);
    let service = Service::start(move |_| match *is_down.lock().unwrap() {
        true => Reply::Close,
        false => Reply::Answer("204 No Content", String::new()),
    });
    let broker = start_broker(|config| service.use_in(config));
    for _ in 0..20 {
        assert_eq!(refusal(&broker, &user("ann")), 0x88);
    }
    let asked = service.requests().len();
    assert!(asked < 20, "the service was asked {asked} times");
    *down.lock().unwrap() = false;
    let returns = std::iter::repeat_with(|| {
        let mut client = broker.open(V5);
        client.send(&user("ann").encode());
        client.expect_connack().code
    });
    assert!(returns.take(100_000).any(|code| code == 0), "a probe finds that the service is back");
    broker.connect(&user("bob")).ping();
}

#[test]
fn a_client_that_the_service_ignores_is_left_to_the_next_method() {
    let service = Service::start(|request| match request.body.contains(r#""username":"cat""#) {
        true => Reply::Answer("204 No Content", String::new()),
        false => Reply::Answer("200 OK", r#"{"result":"ignore"}"#.to_owned()),
    });
    let passwords = passwords("ann", "secret");
    for order in
        [&[AuthMethod::Http, AuthMethod::Password][..], &[AuthMethod::Password, AuthMethod::Http], &[]]
    {
        let broker = start_broker(|config| {
            service.use_in(config);
            config.auth.password_file = passwords.path().display().to_string();
            config.auth.methods = order.to_vec();
        });
        for _ in 0..2 {
            broker.connect(&user("ann")).ping();
            broker.connect(&user("cat")).ping();
            assert_eq!(refusal(&broker, &user("bob")), 0x87, "{order:?}");
            let wrong = Connect::new(V5, "c").user_name("ann").password(b"Secret");
            assert_eq!(refusal(&broker, &wrong), 0x87, "{order:?}");
        }
    }
}

#[test]
fn a_client_without_a_user_name_never_becomes_one_that_the_service_verified() {
    let service = Service::saying(r#"{"result":"allow"}"#);
    let passwords = passwords("ann", "secret");
    let keys = file(r#"{"keys":[{"kty":"oct","k":"c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA"}]}"#);
    let broker = start_broker(|config| {
        service.use_in(config);
        config.auth.password_file = passwords.path().display().to_string();
        config.auth.jwt_keys = keys.path().display().to_string();
        config.auth.methods = vec![AuthMethod::Jwt, AuthMethod::Password, AuthMethod::Http];
    });
    let unnamed = Connect::new(V5, "c").password(b"no token");
    for connect in [&unnamed, &unnamed.clone().user_name(""), &Connect::new(V5, "c").user_name("")] {
        assert_eq!(refusal(&broker, connect), 0x87);
    }
    assert!(service.requests().is_empty(), "{:?}", service.requests());
    broker.connect(&user("bob")).ping();
}

#[test]
fn a_service_that_hangs_delays_no_other_method() {
    let service = Service::start(|_| Reply::Silence);
    let passwords = passwords("ann", "secret");
    let broker = start_broker(|config| {
        service.use_in(config);
        config.auth.password_file = passwords.path().display().to_string();
        config.auth.methods = vec![AuthMethod::Password, AuthMethod::Http];
        config.auth.timeout = Duration::from_secs(60);
    });
    let mut waiting = Vec::new();
    for number in 0..300 {
        let mut client = broker.open(V5);
        client.send(&Connect::new(V5, &format!("c{number}")).user_name("bob").encode());
        waiting.push(client);
    }
    broker.connect(&user("ann")).ping();
}

#[test]
fn the_answer_may_have_the_rules_of_the_session() {
    let rules = r#"{"result":"allow","acl":[{"permission":"allow","action":"publish","topic":"out/${username}"},
        {"permission":"allow","action":"subscribe","topic":"in/${clientid}"}]}"#;
    let service = Service::start(move |request| match request.body.contains(r#""username":"root""#) {
        true => Reply::Answer("200 OK", r#"{"result":"allow","is_superuser":true}"#.to_owned()),
        false => Reply::Answer("200 OK", rules.to_owned()),
    });
    let broker = start_broker(|config| service.use_in(config));
    let mut client = broker.connect(&user("ann"));
    assert_eq!(client.subscribe(&[("in/of-ann", 1), ("out/ann", 1), ("in/d", 1)]), [1, 0x87, 0x87]);
    let mut all = broker.connect(&user("root"));
    assert_eq!(all.subscribe(&[("out/#", 0), ("$homing/clients/#", 0)]), [0, 0]);
    for (topic, payload) in [("out/bob", "no"), ("out/ann", "yes")] {
        client.publish(&Message::new(topic, payload));
    }
    let seen =
        std::iter::repeat_with(|| all.expect_publish()).find(|publish| !publish.topic.starts_with('$'));
    assert_eq!(seen.map(|publish| publish.payload), Some(b"yes".to_vec()));
}

#[test]
fn a_connection_ends_when_the_service_says() {
    let service = Service::saying(&format!(r#"{{"result":"allow","expire_at":{}}}"#, unix_secs() + 3));
    let broker = start_broker(|config| service.use_in(config));
    let mut client = broker.connect(&user("ann").keep_alive(0));
    let Some(Packet::Disconnect(disconnect)) = client.read_to_end().pop() else { panic!("no DISCONNECT") };
    assert_eq!(disconnect.code, 0xA0);
    assert_eq!(refusal(&broker, &user("ann")), 0x87, "the time has passed");
}

#[test]
fn a_reload_reads_the_headers_again() {
    let service =
        Service::start(|request| match request.head.contains("\r\nauthorization: Bearer two\r\n") {
            true => Reply::Answer("204 No Content", String::new()),
            false => Reply::Answer("200 OK", r#"{"result":"deny"}"#.to_owned()),
        });
    let headers = file("Authorization: Bearer one\n");
    let broker = start_broker(|config| {
        service.use_in(config);
        config.auth.http_headers = headers.path().display().to_string();
    });
    let TestBroker::InProcess(running) = &broker else { panic!("a broker in this process") };
    assert_eq!(refusal(&broker, &user("ann")), 0x87);
    std::fs::write(headers.path(), "Authorization Bearer two\n").unwrap();
    let error = running.reload().unwrap_err();
    assert!(
        error.ends_with(":1: a header is written `Name: value`, in visible ASCII (auth.http_headers)"),
        "{error}"
    );
    std::fs::write(headers.path(), "Authorization: Bearer two\n").unwrap();
    let named = format!("http_service (auth.http_headers, {})", headers.path().display());
    assert_eq!(running.reload().unwrap(), format!("{named} changed; no client disconnected"));
    assert_eq!(running.reload().unwrap(), format!("{named} as before; no client disconnected"));
    broker.connect(&user("ann")).ping();
}
