//! Listeners that a reload gives TLS, WebSocket or authentication.

use crate::kit::{self, Pki};
use crate::support::password_file;
use homing::broker::Broker;
use homing::config::{Anonymous, AuthMethod, Config, KeySources, Listener, ListenerAddress, Sources};
use homing::net::tls::live::LiveTls;
use homing::net::tls::settings::{CertificateFiles, TlsSettings};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// A broker whose reloads take their configuration from here.
struct Reloaded {
    broker: Broker,
    next: Arc<Mutex<Config>>,
}

impl Reloaded {
    /// Starts a broker with these listeners.
    fn start(listeners: Vec<Listener>) -> Reloaded {
        let next = Arc::new(Mutex::new(Config::default()));
        let broker = kit::start_with(listeners, |config| next.lock().unwrap().clone_from(config));
        let new = Arc::clone(&next);
        let reader = move || {
            let mut loaded = Sources::new().load()?;
            loaded.config.clone_from(&new.lock().unwrap());
            Ok(loaded)
        };
        broker.read_again_by(Arc::new(reader), KeySources::default());
        Reloaded { broker, next }
    }

    /// Reloads with these listeners.
    fn reload(&self, listeners: Vec<Listener>) -> Result<String, String> {
        self.next.lock().unwrap().listeners = listeners;
        self.broker.reload()
    }

    /// Returns the address of an open listener.
    fn address(&self, at: usize) -> SocketAddr {
        match self.broker.observer().listeners().open()[at].address {
            ListenerAddress::Ip(address) => address,
            ListenerAddress::Unix(_) => panic!("a Unix socket"),
        }
    }

    /// Returns the code of the CONNACK of a 3.1.1 client at a listener.
    fn code(&self, at: usize, connect: &[u8]) -> u8 {
        let mut socket = kit::dial(self.address(at));
        socket.write_all(connect).expect("open");
        let (first, body) = kit::packet(&mut socket);
        assert_eq!(first, 0x20);
        body[1]
    }
}

fn named(name: &str) -> Listener {
    Listener { name: Some(name.to_owned()), ..kit::listener() }
}

/// Sends a PINGREQ, and waits for the answer.
fn ping(stream: &mut (impl std::io::Read + Write)) {
    stream.write_all(&[0xC0, 0]).expect("open");
    assert_eq!(kit::read(stream, 2), [0xD0, 0]);
}

#[test]
fn tls_is_switched_on_and_off_under_the_same_address() {
    let pki = Pki::new();
    let broker = Reloaded::start(vec![named("a")]);
    let address = broker.address(0);
    let mut plain = kit::dial(address);
    kit::connect(&mut plain);
    // The handshake threads start now.
    broker.reload(vec![Listener { tls: Some(pki.tls()), ..named("a") }]).expect("a right listener");
    assert_eq!(broker.address(0), address);
    let mut secure = kit::tls_client(pki.client_config(None), "localhost", kit::dial(address));
    kit::exchange(&mut secure, 100_000);
    let mut wrong = kit::dial(address);
    wrong.write_all(kit::CONNECT).expect("open");
    assert!(kit::is_closed(&mut wrong), "MQTT without TLS");
    assert!(kit::is_closed(&mut plain), "the same client came again");
    broker.reload(vec![named("a")]).expect("a right listener");
    let mut again = kit::dial(address);
    again.write_all(&kit::login("other", "", "")).expect("open");
    assert_eq!(kit::read(&mut again, 4), kit::CONNACK);
    ping(&mut secure);
}

#[test]
fn a_client_of_a_removed_listener_is_checked_against_its_revocation_lists() {
    let pki = Pki::new();
    pki.revoke("ca.crl", &[]);
    let mut tls = pki.mutual_tls();
    tls.crl = Some(vec![pki.text_path("ca.crl")]);
    let broker = Reloaded::start(vec![Listener { tls: Some(tls.clone()), ..named("a") }, named("b")]);
    let identity = pki.client_of_serial(7);
    let config = pki.client_config(Some(&identity));
    let mut client = kit::tls_client(config, "localhost", kit::dial(broker.address(0)));
    kit::connect(&mut client);
    broker.reload(vec![named("b")]).expect("right listeners");
    ping(&mut client);
    // Files that are gone do not refuse a reload: the ones that were read count.
    let key = pki.path("server.key");
    let away = pki.path("away");
    std::fs::rename(&key, &away).expect("a file");
    broker.reload(vec![named("b")]).expect("nobody needs it");
    ping(&mut client);
    std::fs::rename(&away, &key).expect("a file");
    pki.revoke("ca.crl", &[7]);
    broker.reload(vec![named("b")]).expect("right listeners");
    assert!(kit::is_closed(&mut client));
}

/// Writes a password file.
fn passwords(folder: &Path, name: &str, users: &[(&str, &str)]) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, password_file(users)).expect("a writable folder");
    path
}

#[test]
fn passwords_are_demanded_from_a_reload_on_and_clients_stay_until_they_leave_the_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = passwords(folder.path(), "passwd", &[("ann", "secret"), ("bob", "hidden")]);
    let with_passwords = |name: &str| Listener {
        auth: Some(vec![AuthMethod::Password]),
        anonymous: Some(Anonymous::Never),
        password_file: Some(file.to_str().expect("UTF-8").to_owned()),
        ..named(name)
    };
    let broker = Reloaded::start(vec![named("a"), named("b")]);
    let mut anonymous = kit::dial(broker.address(0));
    kit::connect(&mut anonymous);
    // The authenticator starts now.
    broker.reload(vec![with_passwords("a"), named("b")]).expect("right listeners");
    assert_eq!(broker.code(0, kit::CONNECT), 5);
    assert_eq!(broker.code(0, &kit::login("x", "ann", "wrong")), 5);
    assert_eq!(broker.code(1, &kit::login("x", "", "")), 0);
    ping(&mut anonymous);
    let enter = |client_id: &str, user: &str, password: &str| {
        let mut socket = kit::dial(broker.address(0));
        socket.write_all(&kit::login(client_id, user, password)).expect("open");
        assert_eq!(kit::read(&mut socket, 4), kit::CONNACK);
        socket
    };
    let (mut ann, mut bob) = (enter("ann", "ann", "secret"), enter("bob", "bob", "hidden"));
    // Another listener gets the file, and this one is removed.
    broker.reload(vec![named("b"), with_passwords("c")]).expect("right listeners");
    assert_eq!(broker.code(1, &kit::login("x", "ann", "secret")), 0);
    ping(&mut ann);
    ping(&mut bob);
    passwords(folder.path(), "passwd", &[("bob", "hidden")]);
    broker.reload(vec![named("b"), with_passwords("c")]).expect("right listeners");
    assert!(kit::is_closed(&mut ann), "the user is gone");
    ping(&mut bob);
    // Without the file the listener cannot stay, and one that is gone needs it no more.
    std::fs::remove_file(&file).expect("a file");
    let error = broker.reload(vec![named("b"), with_passwords("c")]).expect_err("no file");
    assert!(error.contains("passwd") && error.contains("password_file of [[listeners]]"), "{error}");
    broker.reload(vec![named("b")]).expect("right listeners");
    ping(&mut bob);
    ping(&mut anonymous);
}

/// Writes an ACL file. Returns a listener with it.
fn with_rules(folder: &Path, name: &str, rules: &str, listener: Listener) -> Listener {
    let path = folder.join(name);
    std::fs::write(&path, rules).expect("a writable folder");
    Listener { acl_file: Some(path.to_str().expect("UTF-8").to_owned()), ..listener }
}

/// Subscribes to `t`. Returns the code of the SUBACK.
fn subscribe(stream: &mut TcpStream) -> u8 {
    stream.write_all(&[0x82, 6, 0, 1, 0, 1, b't', 1]).expect("open");
    kit::read(stream, 5)[4]
}

const GRANTED: u8 = 1;
const REFUSED: u8 = 0x80;

/// Connects a client to the first listener.
fn first_client(broker: &Reloaded) -> TcpStream {
    let mut client = kit::dial(broker.address(0));
    kit::connect(&mut client);
    client
}

#[test]
fn rules_about_topics_hold_at_once_and_clients_of_a_removed_listener_keep_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let acl = |name: &str, rules: &str| with_rules(folder.path(), name, rules, named("a"));
    let (own, all) = (acl("own", "topic readwrite own/#\n"), acl("all", "topic readwrite #\n"));
    let broker = Reloaded::start(vec![own.clone(), named("b")]);
    let mut client = first_client(&broker);
    assert_eq!(subscribe(&mut client), REFUSED);
    broker.reload(vec![all, named("b")]).expect("right listeners");
    assert_eq!(subscribe(&mut client), GRANTED);
    // A client of a listener that is gone keeps the rules of its own.
    broker.reload(vec![own, named("b")]).expect("right listeners");
    broker.reload(vec![named("b")]).expect("right listeners");
    assert_eq!(subscribe(&mut client), REFUSED);
    let mut free = kit::dial(broker.address(0));
    free.write_all(&kit::login("free", "", "")).expect("open");
    assert_eq!(kit::read(&mut free, 4), kit::CONNACK);
    assert_eq!(subscribe(&mut free), GRANTED, "no file counts here");
}

#[test]
fn an_acl_file_that_a_reload_adds_holds_for_connected_clients_until_a_reload_takes_it_away() {
    let folder = tempfile::tempdir().expect("a folder");
    let own = with_rules(folder.path(), "own", "topic readwrite own/#\n", named("a"));
    let broker = Reloaded::start(vec![named("a")]);
    let mut client = first_client(&broker);
    assert_eq!(subscribe(&mut client), GRANTED);
    broker.reload(vec![own]).expect("a right listener");
    assert_eq!(subscribe(&mut client), REFUSED);
    broker.reload(vec![named("a")]).expect("a right listener");
    assert_eq!(subscribe(&mut client), GRANTED);
}

/// The mount point once made the ACL file needless for new clients alone. The others then had
/// neither.
#[test]
fn clients_of_a_listener_that_changed_otherwise_keep_its_rules_about_topics() {
    let folder = tempfile::tempdir().expect("a folder");
    let own = with_rules(folder.path(), "own", "topic readwrite own/#\n", named("a"));
    let mounted = Listener { mount_point: Some("tenant/".to_owned()), ..named("a") };
    let broker = Reloaded::start(vec![own]);
    let mut client = first_client(&broker);
    for _ in 0..2 {
        broker.reload(vec![mounted.clone()]).expect("a right listener");
        assert_eq!(subscribe(&mut client), REFUSED);
    }
    let all = with_rules(folder.path(), "all", "topic readwrite #\n", mounted);
    broker.reload(vec![all]).expect("a right listener");
    assert_eq!(subscribe(&mut client), REFUSED);
}

/// Returns a listener without a name at an address on which nobody listens.
fn unnamed() -> Listener {
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    Listener::plain(socket.local_addr().expect("its address"))
}

#[test]
fn clients_of_a_listener_without_a_name_keep_its_rules_when_another_takes_its_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let own = with_rules(folder.path(), "own", "topic readwrite own/#\n", unnamed());
    let (second, third) = (unnamed(), unnamed());
    let broker = Reloaded::start(vec![own, second.clone()]);
    let mut client = first_client(&broker);
    for listener in [second, third] {
        broker.reload(vec![listener]).expect("a right listener");
        assert_eq!(subscribe(&mut client), REFUSED);
    }
}

#[test]
fn the_certificate_of_the_http_interface_is_renewed_with_those_of_the_listeners() {
    let pki = Pki::new();
    pki.server("interface", &["localhost"]);
    let (certificate, key) = (pki.path("interface.pem"), pki.path("interface.key"));
    let files = CertificateFiles { certificate, chain: None, key };
    let interface = LiveTls::load(&TlsSettings::new(vec![files])).expect("a certificate");
    let serial = || interface.newest().certificates()[0].serial.clone();
    let broker = kit::start(vec![Listener { tls: Some(pki.tls()), ..kit::listener() }]);
    // Before the broker knows the interface, which starts first.
    let first = serial();
    pki.server("interface", &["localhost"]);
    broker.renew_also(Arc::clone(&interface));
    broker.check_tls_files();
    let second = serial();
    assert_ne!(second, first);
    // One broken file of a listener, and the interface keeps its certificate, too.
    pki.server("interface", &["localhost"]);
    pki.write("server.pem", "no certificate");
    broker.check_tls_files();
    assert_eq!(serial(), second);
    pki.server("server", &["localhost"]);
    broker.check_tls_files();
    assert_ne!(serial(), second);
}
