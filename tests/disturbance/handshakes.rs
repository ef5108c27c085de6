//! Connections before CONNACK: silent and slow ones at every stage, and many in TLS.

use crate::kit::{self, Pki};
use crate::slow_socket::{PACE, SlowSocket};
use crate::support::pair::{Stage, disturb};
use crate::support::process::{Homing, memory_of};
use crate::support::{Connect, RawClient, V311, now};
use crate::{by_build, turn};
use rcgen::{KeyPair, PKCS_RSA_SHA256};
use rustls::client::Resumption;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

/// Slow sockets at each of the four stages.
const SLOW: usize = by_build(100, 1_024);

/// `network.connect_timeout`. Slow sockets end when it is over.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(by_build(4, 10) as u64);

/// The time for which the pair is measured while they are open.
const WHILE_OPEN: &str = if cfg!(debug_assertions) { "2s" } else { "8s" };

/// The time by which their ends may be late, on a machine that others use.
const SLACK: Duration = Duration::from_secs(10);

/// The memory of one slow socket, at most.
const MEMORY: u64 = 64 << 10;

/// The beginnings of what clients send at a listener for MQTT, TLS, WebSocket and PROXY.
const BEGINNINGS: [&[u8]; 4] = [
    b"\x10\x7f\0\x04MQTT\x04\x02\0\x3c\0\x71a client identifier that never ends",
    b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03a random number of 32 bytes and",
    b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n",
    b"PROXY TCP4 192.0.2.1 192.0.2.2 4567 1883\r\n",
];

/// TLS connects a second, all threads together. Two cores shared with the clients reach less.
const TLS_RATE: usize = by_build(100, 2_000);
const TLS_TIME: &str = if cfg!(debug_assertions) { "2s" } else { "10s" };
const CONNECTORS: usize = 2;

/// A broker with a listener for each of [`BEGINNINGS`], and the addresses.
pub struct Listeners {
    pub homing: Homing,
    pub addresses: Vec<SocketAddr>,
}

impl Listeners {
    /// Starts the broker with this level of its log and more arguments.
    pub fn serve(pki: &Pki, log_level: &str, more: &[&str]) -> Listeners {
        let [addresses, certificate, key] =
            ["addresses", "server.pem", "server.key"].map(|name| pki.text_path(name));
        let free = "[[listeners]]\naddress = \"127.0.0.1:0\"\n";
        let timeout = CONNECT_TIMEOUT.as_secs();
        pki.write(
            "homing.toml",
            &format!(
                "network.addresses_file = {addresses:?}\nnetwork.connect_timeout = \"{timeout}s\"\n{free}[listeners.tls]\n\
                 certificates = [{{ certificate = {certificate:?}, key = {key:?} }}]\n\
                 {free}protocol = \"websocket\"\n{free}proxy_protocol = \"v1\"\n"
            ),
        );
        let config = pki.text_path("homing.toml");
        let arguments = ["--ephemeral", "--log-level", log_level, "--config", &config];
        let homing = Homing::serve(&[&arguments, more].concat());
        let text = fs::read_to_string(addresses).expect("the addresses of the broker");
        let addresses: Vec<SocketAddr> = text.lines().map(|line| line.parse().expect("an address")).collect();
        assert_eq!(addresses.len(), BEGINNINGS.len());
        Listeners { homing, addresses }
    }

    fn tls(&self) -> SocketAddr {
        self.addresses[1]
    }
}

/// Connects a client of this name in TLS.
fn enter(address: SocketAddr, config: &ClientConfig, name: &str) -> StreamOwned<ClientConnection, TcpStream> {
    let mut client = kit::tls_client(config.clone(), "localhost", kit::dial(address));
    client.write_all(&Connect::new(V311, name).keep_alive(0).encode()).expect("open");
    assert_eq!(kit::read(&mut client, 4), kit::CONNACK);
    client
}

/// Connects a client without TLS and one with it. Returns the longest time that one took.
fn connect_others(addresses: &[SocketAddr], config: &ClientConfig) -> Duration {
    let begun = now();
    RawClient::connect(addresses[0], &Connect::new(V311, "calm")).disconnect();
    let plain = begun.elapsed();
    enter(addresses[1], config, "in TLS");
    plain.max(begun.elapsed() - plain)
}

/// Half of the sockets send a byte a second, and half of them nothing.
#[test]
fn slow_sockets_at_every_stage_end_at_the_connect_timeout_and_others_connect() {
    let _turn = turn();
    let pki = Pki::new();
    let Listeners { homing, addresses } = Listeners::serve(&pki, "error", &[]);
    let (process, config) = (homing.process.id(), pki.client_config(None));
    let hold = |stage: &Stage<'_>| {
        let (before, begun) = (memory_of(process, "VmRSS"), now());
        let mut open: Vec<SlowSocket> = Vec::new();
        for _ in 0..SLOW / 2 {
            for (address, bytes) in addresses.iter().zip(BEGINNINGS) {
                open.extend([SlowSocket::open(*address, bytes), SlowSocket::open(*address, &[])]);
            }
        }
        let all = open.len() as u64;
        let opened = now();
        stage.begun();
        let (mut held, mut longest) = (0, Duration::ZERO);
        while !open.is_empty() && opened.elapsed() < CONNECT_TIMEOUT + SLACK {
            open.retain_mut(SlowSocket::go_on);
            longest = longest.max(connect_others(&addresses, &config));
            held = held.max(memory_of(process, "VmRSS").saturating_sub(before));
            // A pace, no wait: one byte a second.
            thread::sleep(PACE);
        }
        (open.len(), begun.elapsed(), held / all, longest)
    };
    let (left, took, memory, longest) =
        disturb("slow sockets at every stage", addresses[0], WHILE_OPEN, hold);
    println!("  {} sockets, all gone after {took:.1?}, {memory} B for each", SLOW * BEGINNINGS.len());
    println!("  another client connected within {longest:.1?}");
    assert_eq!(left, 0, "sockets that are open after network.connect_timeout");
    // In the small numbers of a development build, a page of another thread weighs much.
    assert!(memory < if cfg!(debug_assertions) { 4 * MEMORY } else { MEMORY }, "{memory} B for each");
    assert!(longest < SLACK, "{longest:?}");
}

/// Connects with whole handshakes, and leaves, at a share of [`TLS_RATE`]. Returns the number.
fn connect_again_and_again(
    address: SocketAddr,
    config: &ClientConfig,
    stage: &Stage<'_>,
    thread: usize,
) -> u32 {
    let pace = Duration::from_secs(1) * CONNECTORS as u32 / TLS_RATE as u32;
    let (begun, mut count) = (now(), 0);
    while stage.goes_on() {
        enter(address, config, &format!("{thread}-{count}"));
        count += 1;
        // The pace of the rate.
        thread::sleep((begun + pace * count).saturating_duration_since(now()));
    }
    count
}

/// Sends key updates until the broker closes the connection, again and again. Returns the number of
/// connections that it closed.
fn flood_with_key_updates(address: SocketAddr, config: &ClientConfig, stage: &Stage<'_>) -> usize {
    let mut closed = 0;
    while stage.goes_on() {
        let mut client = enter(address, config, "flood");
        let mut update = || {
            client.conn.refresh_traffic_keys().map_err(std::io::Error::other)?;
            client.flush()
        };
        let sent = (0..100_000).take_while(|_| update().is_ok()).count();
        assert!(sent < 100_000, "the broker counts key updates");
        closed += 1;
    }
    closed
}

/// Sends a record of 16 KiB byte by byte.
fn drip_a_record(address: SocketAddr, config: &ClientConfig, stage: &Stage<'_>) {
    let mut client = enter(address, config, "drip");
    let mut record = [0x17, 3, 3, 0x40, 0].into_iter().chain(std::iter::repeat(7));
    while stage.goes_on() && client.sock.write_all(&[record.next().unwrap_or(0)]).is_ok() {
        // A pace, no wait.
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn tls_handshakes_and_floods_of_tls_leave_the_pair_alone() {
    let _turn = turn();
    let pki = Pki::new();
    let key = KeyPair::generate_for(&PKCS_RSA_SHA256).expect("a key");
    pki.server_with_key("server", &["localhost", "127.0.0.1"], key);
    let listeners = Listeners::serve(&pki, "error", &[]);
    let (address, plain) = (listeners.tls(), listeners.addresses[0]);
    let mut config = pki.client_config(None);
    config.resumption = Resumption::disabled();
    let (connects, time, closed) =
        disturb("TLS connects (RSA), key updates, a record that drips", plain, TLS_TIME, |stage| {
            thread::scope(|scope| {
                let (config, begun) = (&config, now());
                let connector =
                    |thread| scope.spawn(move || connect_again_and_again(address, config, stage, thread));
                let connectors: Vec<_> = (0..CONNECTORS).map(connector).collect();
                let flood = scope.spawn(|| flood_with_key_updates(address, config, stage));
                scope.spawn(|| drip_a_record(address, config, stage));
                stage.begun();
                let connects: u32 =
                    connectors.into_iter().map(|thread| thread.join().expect("it connects")).sum();
                (connects, begun.elapsed(), flood.join().expect("it connects"))
            })
        });
    let rate = f64::from(connects) / time.as_secs_f64();
    println!("  {rate:.0} TLS connects a second, {closed} floods that the broker ended");
    assert!(closed > 0 && connects > 0);
    let mut last = enter(address, &config, "last");
    last.write_all(&[0xC0, 0]).and_then(|()| last.read_exact(&mut [0; 2])).expect("the broker serves");
}
