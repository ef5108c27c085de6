//! Certificates, authorities, revocation lists, passwords and rules are renewed while many clients
//! are connected, on the real binary. No client is lost, the new files hold at once, and one broken
//! file changes nothing.
//!
//! Half of the clients have a certificate, half a password. Broker and clients are two processes, so
//! that each needs a descriptor for each client once. The figures are printed (`--nocapture`). A
//! development build has fewer clients; `RENEWAL_CLIENTS=10000 cargo test --test renewal` has more.

#[path = "transport/kit.rs"]
#[expect(dead_code, reason = "other tests use the rest of the kit")]
mod kit;
mod support;

use kit::{Identity, Pki};
use rustix::process::Signal;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;
use support::process::Homing;
use support::{Connect, V311, now, password_file};

/// The clients that nothing may disconnect, unless `RENEWAL_CLIENTS` is another number.
const CLIENTS: usize = if cfg!(debug_assertions) { 400 } else { 10_000 };

/// Threads that connect clients.
const CONNECTORS: usize = 4;

/// The longest time without an answer that is slow and not stuck. The figure itself is printed.
const STUCK: Duration = Duration::from_secs(5);

/// The files that are renewed. `server.pem` has its key beside it.
const FILES: [&str; 6] = ["server.pem", "server.key", "ca.pem", "ca.crl", "passwd", "acl"];

type Tls = StreamOwned<ClientConnection, TcpStream>;

/// A connected client.
enum Client {
    Plain(TcpStream),
    Tls(Box<Tls>),
}

impl Read for Client {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Client::Plain(stream) => stream.read(to),
            Client::Tls(stream) => stream.read(to),
        }
    }
}

impl Write for Client {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Client::Plain(stream) => stream.write(bytes),
            Client::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Client::Plain(stream) => stream.flush(),
            Client::Tls(stream) => stream.flush(),
        }
    }
}

impl Client {
    fn ping(&mut self) {
        self.write_all(&[0xC0, 0]).expect("the client is connected");
        self.flush().expect("the client is connected");
    }

    fn pong(&mut self) {
        assert_eq!(kit::packet(self), (0xD0, Vec::new()), "the client is connected");
    }

    /// Returns the code of SUBACK for a filter of one character.
    fn subscribe(&mut self, filter: u8) -> u8 {
        self.write_all(&[0x82, 6, 0, 1, 0, 1, filter, 0]).expect("the client is connected");
        self.flush().expect("the client is connected");
        kit::packet(self).1[2]
    }

    /// Waits until the broker closes the connection.
    fn ends(mut self) {
        loop {
            match self.read(&mut [0; 64]) {
                Ok(1..) => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    panic!("the client is still connected");
                }
                Ok(0) | Err(_) => return,
            }
        }
    }
}

/// The addresses of the broker, and what TLS clients trust.
#[derive(Clone, Copy)]
struct Target<'a> {
    plain: SocketAddr,
    tls: SocketAddr,
    pki: &'a Pki,
}

impl Target<'_> {
    /// Returns the code of CONNACK, and the client.
    fn login(&self, client_id: &str, user: &str, password: &str) -> (u8, Client) {
        let mut stream = kit::dial(self.plain);
        stream.write_all(&kit::login(client_id, user, password)).expect("open");
        (kit::packet(&mut stream).1[1], Client::Plain(stream))
    }

    /// Returns a client with a certificate, and the certificate of the broker.
    fn enter(&self, client_id: &str, config: ClientConfig) -> (Client, CertificateDer<'static>) {
        let mut stream = kit::tls_client(config, "localhost", kit::dial(self.tls));
        let connect = Connect::new(V311, client_id).keep_alive(0);
        stream.write_all(&connect.encode()).expect("open");
        assert_eq!(kit::packet(&mut stream), (0x20, vec![0, 0]), "{client_id}");
        let chain = stream.conn.peer_certificates().expect("a chain");
        let certificate = chain[0].clone().into_owned();
        (Client::Tls(Box::new(stream)), certificate)
    }

    /// Connects all clients of the fleet.
    fn connect_fleet(&self, clients: usize, identity: &Identity) -> Vec<Client> {
        let config = self.pki.client_config(Some(identity));
        let one = |number: usize| match number % 2 {
            0 => self.enter(&format!("t{number}"), config.clone()).0,
            _ => {
                let (code, client) = self.login(&format!("p{number}"), "fleet", "f");
                assert_eq!(code, 0);
                client
            }
        };
        let part = |from: usize| (from..clients).step_by(CONNECTORS).map(one).collect::<Vec<_>>();
        thread::scope(|scope| {
            let threads: Vec<_> = (0..CONNECTORS).map(|from| scope.spawn(move || part(from))).collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("all connect")).collect()
        })
    }
}

/// Asserts that each client is connected and gets answers.
fn assert_all_answer(fleet: &mut [Client]) {
    fleet.iter_mut().for_each(Client::ping);
    fleet.iter_mut().for_each(Client::pong);
}

/// Pings until the sender of `stop` is gone, 1 ms after each answer: that leaves most of the processor
/// to the broker. Returns the longest time of an answer.
fn longest_answer(mut client: Client, stop: &Receiver<()>) -> Duration {
    let mut longest = Duration::ZERO;
    while stop.recv_timeout(Duration::from_millis(1)) == Err(RecvTimeoutError::Timeout) {
        let sent = now();
        client.ping();
        client.pong();
        longest = longest.max(now() - sent);
    }
    longest
}

/// Writes all files anew: another certificate of the broker, a further authority, a list that
/// revokes the number 7, the user `new` in place of `gone`, and the topic b in place of a. Returns
/// the certificate.
fn renew(pki: &Pki, next: &Pki) -> CertificateDer<'static> {
    let certificate = pki.server("server", &["localhost", "127.0.0.1"]);
    let authorities = [pki, next].map(|pki| fs::read_to_string(pki.path("ca.pem")).expect("a file"));
    pki.write("ca.pem", &authorities.concat());
    pki.revoke("ca.crl", &[7, 99]);
    pki.write("passwd", &password_file(&[("fleet", "f"), ("new", "n")]));
    pki.write("acl", "user fleet\ntopic readwrite b\n");
    certificate
}

/// Starts a broker with these files. Returns it with the address of its TLS listener.
fn serve(pki: &Pki, next: &Pki) -> (Homing, SocketAddr) {
    let path = |name| pki.text_path(name);
    pki.revoke("ca.crl", &[99]);
    next.revoke("ca.crl", &[99]);
    let next_crl = next.text_path("ca.crl");
    pki.write("passwd", &password_file(&[("fleet", "f"), ("gone", "g")]));
    pki.write("acl", "user fleet\ntopic readwrite a\n");
    let [addresses, passwd, acl] = ["addresses", "passwd", "acl"].map(path);
    let [certificate, key, ca, crl] = ["server.pem", "server.key", "ca.pem", "ca.crl"].map(path);
    pki.write(
        "homing.toml",
        &format!(
            "network.addresses_file = {addresses:?}\nauth.password_file = {passwd:?}\nacl.file = {acl:?}\n\
             auth.anonymous = \"never\"\n[[listeners]]\naddress = \"127.0.0.1:0\"\n[listeners.tls]\n\
             certificates = [{{ certificate = {certificate:?}, key = {key:?} }}]\n\
             client_certificates = \"required\"\nclient_ca = {ca:?}\ncrl = [{crl:?}, {next_crl:?}]\n"
        ),
    );
    let homing = Homing::serve(&["--ephemeral", "--config", &path("homing.toml")]);
    let text = fs::read_to_string(addresses).expect("the addresses of the broker");
    let tls = text.lines().nth(1).expect("two listeners").parse().expect("an address");
    (homing, tls)
}

#[test]
fn renewed_files_hold_at_once_and_lose_no_client() {
    let (pki, next) = (Pki::new(), Pki::named("the next authority"));
    let (mut homing, tls) = serve(&pki, &next);
    let target = Target { plain: homing.address, tls, pki: &pki };
    let identity = pki.client("fleet");
    let clients = std::env::var("RENEWAL_CLIENTS").map_or(CLIENTS, |text| text.parse().expect("a number"));
    let begun = now();
    let mut fleet = target.connect_fleet(clients, &identity);
    let connected = now() - begun;
    let (revoked, before) = target.enter("revoked", pki.client_config(Some(&pki.client_of_serial(7))));
    let gone = target.login("gone", "gone", "g").1;
    let (running, stop) = mpsc::channel();
    let witness = target.login("witness", "fleet", "f").1;
    thread::scope(|scope| {
        let answers = scope.spawn(move || longest_answer(witness, &stop));
        // Dropped also where the test fails.
        let running = running;
        let renewed = renew(&pki, &next);
        // All files are new, and one of them is broken: nothing of the others may hold.
        for name in FILES {
            let sound = fs::read(pki.path(name)).expect("a file");
            pki.write(name, "nonsense\n");
            homing.signal(Signal::HUP);
            homing.line_with("nothing is changed, because of a mistake");
            let codes = [target.login("x", "gone", "g").0, target.login("y", "new", "n").0];
            assert_eq!(codes, [0, 5], "{name} is broken");
            fs::write(pki.path(name), sound).expect("a writable folder");
        }
        assert_eq!([fleet[0].subscribe(b'a'), fleet[1].subscribe(b'b')], [0, 0x80]);
        let (_, presented) = target.enter("z", pki.client_config(Some(&identity)));
        assert_eq!(presented, before);
        assert_all_answer(&mut fleet);
        let signalled = now();
        homing.signal(Signal::HUP);
        homing.line_with("configuration and files were read again");
        let in_force = now() - signalled;
        revoked.ends();
        gone.ends();
        let disconnected = now() - signalled;
        assert_eq!([target.login("x", "gone", "g").0, target.login("y", "new", "n").0], [5, 0]);
        assert_eq!([fleet[0].subscribe(b'a'), fleet[1].subscribe(b'b')], [0x80, 0]);
        let (_, presented) = target.enter("z", pki.client_config(Some(&identity)));
        assert_eq!(presented, renewed);
        // An identity of the further authority, which trusts the broker by the first one.
        target.enter("next", pki.client_config(Some(&next.client("fleet"))));
        assert_all_answer(&mut fleet);
        drop(running);
        let longest = answers.join().expect("it was never disconnected");
        println!(
            "{clients} clients in {connected:.1?}; a reload in force after {in_force:.1?}, the last client that it \
             revokes disconnected after {disconnected:.1?}; longest answer to another client {longest:.1?}"
        );
        assert!(longest < STUCK, "{longest:?}");
    });
}
