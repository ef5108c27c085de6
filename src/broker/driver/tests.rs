//! A driver with a real shard and real sockets. Its peers are actors that keep what they get.

use super::*;
use crate::broker::connection::ConnectionDriver;
use crate::broker::events::{EventListeners, EventLog};
use crate::broker::fixture;
use crate::broker::message::{Adopt, PeerAddresses, PeerTurn};
use crate::login::arrival::Arrival;
use crate::login::listener_terms::ListenerConnections;
use crate::shard::shard_of;
use actix::{Actor, Context, Handler};
use std::sync::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A 3.1.1 CONNECT of client "c" with Clean Session and no Keep Alive.
const CONNECT: &[u8] = b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01c";
const CONNACK: [u8; 4] = [0x20, 2, 0, 0];

/// Keeps the sockets that a driver sends to a peer.
#[derive(Clone, Default)]
struct Elsewhere(Arc<Mutex<Vec<Incoming>>>);

impl Actor for Elsewhere {
    type Context = Context<Elsewhere>;
}

impl Handler<Adopt> for Elsewhere {
    type Result = ();

    fn handle(&mut self, adopt: Adopt, _: &mut Context<Elsewhere>) {
        self.0.lock().expect("one thread").extend(adopt.0);
    }
}

impl Handler<PeerTurn> for Elsewhere {
    type Result = ();

    fn handle(&mut self, _: PeerTurn, _: &mut Context<Elsewhere>) {}
}

/// Returns the driver of shard 0 of `shards`. Every socket of the test counts against its counters.
fn driver(shards: u8) -> Rc<ShardDriver> {
    let shared = fixture::shared();
    let statistics = fixture::statistics(&shared);
    let log = Arc::new(EventLog::new(1_000));
    let listeners = EventListeners::new(log, Arc::clone(&statistics));
    ShardDriver::new(fixture::shard(shards, shared), statistics, listeners)
}

/// Returns the message that makes one actor all the peers of a driver.
fn peers(elsewhere: &Elsewhere, shards: u8) -> ConnectPeers {
    let address = elsewhere.clone().start();
    let peer = PeerAddresses { sockets: address.clone().recipient(), batches: address.recipient() };
    ConnectPeers { peers: vec![peer; usize::from(shards)], store: None, authenticator: None }
}

/// Connects the driver with its peers, and starts its flusher.
fn connect_peers(driver: &Rc<ShardDriver>, shards: u8) -> Elsewhere {
    let elsewhere = Elsewhere::default();
    driver.connect_peers(peers(&elsewhere, shards));
    actix_rt::spawn(Rc::clone(driver).run_flusher());
    elsewhere
}

/// Gives a socket to the driver. Returns the client's end.
fn adopt(driver: &Rc<ShardDriver>) -> TcpStream {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let client = std::net::TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
    let (server, peer) = listener.accept().expect("a connection");
    server.set_nonblocking(true).expect("a socket");
    client.set_nonblocking(true).expect("a socket");
    assert!(
        driver.statistics.open_connection(&ListenerConnections::default(), usize::MAX, usize::MAX).is_ok()
    );
    let peer = PeerAddress::ip(peer);
    driver.adopt(Incoming::accepted(server.into(), peer, clock::now(), Arrival::local()));
    TcpStream::from_std(client).expect("a reactor")
}

/// Lets the other tasks of this thread and the reactor run until `done`.
async fn until(done: impl Fn() -> bool) {
    while !done() {
        tokio::task::yield_now().await;
    }
}

/// Connects client "c" to the driver, whose flusher runs.
async fn connect(driver: &Rc<ShardDriver>) -> TcpStream {
    connect_with(driver, CONNECT).await
}

async fn connect_with(driver: &Rc<ShardDriver>, packet: &[u8]) -> TcpStream {
    let mut client = adopt(driver);
    client.write_all(packet).await.expect("open");
    let mut connack = [0; 4];
    client.read_exact(&mut connack).await.expect("a CONNACK");
    assert_eq!(connack, CONNACK);
    client
}

fn run(test: impl Future<Output = ()>) {
    actix_rt::System::new().block_on(test);
}

#[test]
fn the_flusher_writes_nothing_before_the_peers_are_known() {
    run(async {
        let driver = driver(1);
        let mut client = adopt(&driver);
        client.write_all(CONNECT).await.expect("open");
        until(|| driver.look(|shard| shard.snapshot().connected == 1)).await;
        assert!(driver.flusher_turn(Waker::noop()).is_pending());
        assert!(driver.look(Shard::has_work), "the CONNACK is still pending");
        driver.connect_peers(peers(&Elsewhere::default(), 1));
        assert!(driver.flusher.is_awake());
        while driver.flusher_turn(Waker::noop()).is_ready() {}
        let mut connack = [0; 4];
        client.read_exact(&mut connack).await.expect("a CONNACK");
        assert_eq!(connack, CONNACK);
        assert!(!driver.flusher.is_awake());
    });
}

#[test]
fn housekeeping_reports_the_clients_of_this_thread() {
    run(async {
        let driver = driver(1);
        connect_peers(&driver, 1);
        let _client = connect(&driver).await;
        assert_eq!(driver.statistics.total().connected, 0);
        driver.housekeeping(Duration::from_secs(1));
        assert_eq!(driver.statistics.total().connected, 1);
        assert_eq!(driver.inspect().open, 1);
        let statistics = &driver.statistics;
        let bytes = (statistics.received_bytes(), statistics.sent_bytes());
        assert_eq!(bytes, (CONNECT.len() as u64, CONNACK.len() as u64));
    });
}

#[test]
fn a_closed_connection_frees_its_place_and_its_handle() {
    run(async {
        let driver = driver(1);
        connect_peers(&driver, 1);
        let client = connect(&driver).await;
        assert!(
            driver.statistics.open_connection(&ListenerConnections::default(), 1, usize::MAX).is_err(),
            "the place is taken"
        );
        drop(client);
        driver.emptied().await;
        assert!(
            driver.statistics.open_connection(&ListenerConnections::default(), 1, usize::MAX).is_ok(),
            "the place is free"
        );
        assert_eq!(driver.look(|shard| shard.connection_ids().len()), 0);
    });
}

#[test]
fn a_stop_disconnects_every_client_and_closes_later_sockets() {
    run(async {
        let driver = driver(1);
        connect_peers(&driver, 1);
        let mut client = connect(&driver).await;
        driver.stop();
        assert_eq!(client.read(&mut [0; 8]).await.expect("no reset"), 0);
        let mut late = adopt(&driver);
        assert_eq!(late.read(&mut [0; 8]).await.expect("no reset"), 0);
        drop(client);
        driver.emptied().await;
        assert!(
            driver.statistics.open_connection(&ListenerConnections::default(), 1, usize::MAX).is_ok(),
            "both places are free"
        );
    });
}

#[test]
fn a_socket_goes_to_the_shard_of_its_session_with_its_connect() {
    run(async {
        let driver = driver(2);
        let elsewhere = connect_peers(&driver, 2);
        let away = ('a'..='z').find(|name| shard_of(&name.to_string(), 2) == ShardId(1));
        let mut packet = CONNECT.to_vec();
        *packet.last_mut().expect("a client id") = away.expect("one of 26") as u8;
        let mut client = adopt(&driver);
        client.write_all(&packet).await.expect("open");
        until(|| !elsewhere.0.lock().expect("one thread").is_empty()).await;
        let moved = elsewhere.0.lock().expect("one thread").pop().expect("a socket");
        assert_eq!(moved.unread, packet);
        assert_eq!(moved.peer.socket_address(), client.local_addr().ok());
        // The connection is not closed, so nothing is reported, and its place stays taken.
        assert_eq!(driver.handles.borrow().open(), 0);
        assert!(driver.statistics.open_connection(&ListenerConnections::default(), 1, usize::MAX).is_err());
    });
}

#[test]
fn a_notice_for_an_earlier_connection_of_a_slot_reaches_nobody() {
    run(async {
        let driver = driver(1);
        connect_peers(&driver, 1);
        let mut client = connect(&driver).await;
        let id = driver.look(|shard| shard.connection_ids()[0]);
        let earlier = ConnectionId::new(id.slot, id.generation.wrapping_sub(1));
        assert!(driver.handles.borrow().find(earlier).is_none());
        driver.notify(earlier, ConnectionNotice::Close);
        assert_eq!(driver.forget(earlier), None);
        // PINGREQ is answered, so the connection lives.
        client.write_all(&[0xC0, 0]).await.expect("open");
        let mut pingresp = [0; 2];
        client.read_exact(&mut pingresp).await.expect("a PINGRESP");
        assert_eq!(pingresp, [0xD0, 0]);
        driver.notify(id, ConnectionNotice::Close);
        assert_eq!(client.read(&mut [0; 8]).await.expect("no reset"), 0);
    });
}

#[test]
fn partial_packets_are_reported_without_a_turn_of_the_flusher() {
    run(async {
        let driver = driver(1);
        connect_peers(&driver, 1);
        let mut clients = Vec::new();
        for name in b"ab" {
            let mut packet = CONNECT.to_vec();
            *packet.last_mut().expect("a client id") = *name;
            clients.push(connect_with(&driver, &packet).await);
        }
        // Each begins a PUBLISH of 1,000,000 bytes.
        for id in driver.look(|shard| shard.connection_ids()) {
            driver.take_in(id, b"\x30\xC0\x84\x3D\x00\x01t");
            driver.take_in(id, &[0; 800_000]);
        }
        assert!(driver.statistics.memory() > 1_600_000, "{}", driver.statistics.memory());
    });
}
