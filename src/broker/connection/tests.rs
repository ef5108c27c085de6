//! A connection actor on a real socket, with a driver that records its calls.

use super::*;
use crate::login::arrival::Arrival;
use crate::login::listener_terms::ListenerTerms;
use crate::routing::subscription_tree::ShardId;
use crate::session::outbound::stall::SocketView;
use crate::shard::clients::deadlines::IdleConnection;
use crate::shard::{ConnectionId, ReadProgress};
use crate::time::Instant;
use std::cell::{Cell, RefCell, RefMut};
use std::rc::Rc;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;

/// One call of the actor. Calls that only read are not recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Call {
    Turn,
    TakeIn(Vec<u8>),
    Flush,
    /// With the number of bytes that are not read.
    AcknowledgementDue(usize),
    DisconnectIfDue,
    Release,
    Moved(ShardId, Vec<u8>),
    Closed(String),
}

/// A driver of one connection. Its flags are the answers to the actor.
struct Recorder {
    calls: RefCell<Vec<Call>>,
    called: Notify,
    handle: RefCell<Option<ConnectionHandle<Recorder>>>,
    buffer: RefCell<Vec<u8>>,
    opened: RefCell<Vec<u8>>,
    reads: Cell<bool>,
    is_silent: Cell<bool>,
    has_unread: Cell<bool>,
    has_waiting: Cell<bool>,
    is_owed: Cell<bool>,
    is_stuck: Cell<bool>,
    home: Cell<Option<ShardId>>,
}

const ID: ConnectionId = ConnectionId::new(0, 0);

impl Recorder {
    /// Starts an actor whose driver reads this many bytes at once. Returns the driver and the
    /// client's end of the socket.
    async fn start(read_size: usize) -> (Rc<Recorder>, TcpStream) {
        let (server, client, peer) = pair();
        let recorder = Rc::new(Recorder {
            calls: RefCell::default(),
            called: Notify::new(),
            handle: RefCell::default(),
            buffer: RefCell::new(vec![0; read_size]),
            opened: RefCell::default(),
            reads: Cell::new(true),
            is_silent: Cell::new(false),
            has_unread: Cell::new(false),
            has_waiting: Cell::new(false),
            is_owed: Cell::new(false),
            is_stuck: Cell::new(false),
            home: Cell::default(),
        });
        let transport = Transport::new(server.into()).expect("a reactor");
        let handle = ConnectionHandle::start(Rc::clone(&recorder), ID, peer, transport);
        *recorder.handle.borrow_mut() = Some(handle);
        (recorder, TcpStream::from_std(client).expect("a reactor"))
    }

    fn call(&self, call: Call) {
        self.calls.borrow_mut().push(call);
        self.called.notify_one();
    }

    fn notify(&self, notice: ConnectionNotice) {
        self.handle.borrow().as_ref().expect("a connection").notify(notice);
    }

    /// Returns the calls so far, without the beginnings of turns.
    fn calls(&self) -> Vec<Call> {
        self.calls.borrow().iter().filter(|call| **call != Call::Turn).cloned().collect()
    }

    /// Waits until a call has come.
    async fn until(&self, done: impl Fn(&Call) -> bool) {
        while !self.calls.borrow().iter().any(&done) {
            self.called.notified().await;
        }
    }

    /// Waits until the socket is closed. Returns all calls.
    async fn until_closed(&self) -> Vec<Call> {
        self.until(|call| matches!(call, Call::Closed(_))).await;
        self.calls()
    }

    /// Returns all bytes that the shard got.
    fn taken(&self) -> Vec<u8> {
        let bytes = |call| if let Call::TakeIn(bytes) = call { bytes } else { Vec::new() };
        self.calls().into_iter().flat_map(bytes).collect()
    }
}

impl ConnectionDriver for Recorder {
    fn begin_turn(&self) {
        self.call(Call::Turn);
    }

    fn read_buffer(&self) -> RefMut<'_, Vec<u8>> {
        self.buffer.borrow_mut()
    }

    fn opened(&self) -> RefMut<'_, Vec<u8>> {
        self.opened.borrow_mut()
    }

    fn read_size(&self, _: ConnectionId) -> usize {
        if self.reads.get() { usize::MAX } else { 0 }
    }

    fn await_rest(&self, _: ConnectionId, _: bool) {}

    fn is_silent(&self, _: ConnectionId) -> bool {
        self.is_silent.get()
    }

    fn has_unread(&self, _: ConnectionId) -> bool {
        self.has_unread.get()
    }

    fn has_waiting(&self, _: ConnectionId) -> bool {
        self.has_waiting.get()
    }

    fn take_in(&self, _: ConnectionId, bytes: &[u8]) -> ReadProgress {
        self.call(Call::TakeIn(bytes.to_vec()));
        self.home
            .get()
            .map_or(ReadProgress::All, |shard| ReadProgress::Home { shard, unread: bytes.to_vec() })
    }

    fn flush_connection(&self, _: ConnectionId) {
        self.call(Call::Flush);
    }

    fn half_close(&self, _: ConnectionId) -> bool {
        self.is_owed.get()
    }

    fn acknowledgement_due(&self, _: ConnectionId, view: SocketView) {
        self.call(Call::AcknowledgementDue(view.arrived));
    }

    fn keys_used_up(&self, _: ConnectionId) {}

    fn disconnect_if_due(&self, _: ConnectionId) -> IdleConnection {
        self.call(Call::DisconnectIfDue);
        if self.is_stuck.get() { IdleConnection::Abandon } else { IdleConnection::NotYet }
    }

    fn release(&self, _: ConnectionId) -> Option<Released> {
        self.call(Call::Release);
        self.handle.take().map(|handle| Released {
            peer: handle.peer,
            accepted: Instant::ZERO,
            arrival: Arrival::local(),
        })
    }

    fn move_to_shard(&self, shard: ShardId, socket: Result<Incoming, Arc<ListenerTerms>>) {
        let unread = socket.expect("the socket is whole").unread;
        self.call(Call::Moved(shard, unread));
    }

    fn closed(&self, _: ConnectionId, why: &str) {
        drop(self.handle.take());
        self.call(Call::Closed(why.to_owned()));
    }
}

/// Returns a connected pair of non-blocking sockets: the broker's, the client's, and the client's
/// address.
fn pair() -> (std::net::TcpStream, std::net::TcpStream, PeerAddress) {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let client = std::net::TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
    let (server, peer) = listener.accept().expect("a connection");
    for socket in [&server, &client] {
        socket.set_nonblocking(true).expect("a socket");
    }
    (server, client, PeerAddress::ip(peer))
}

fn run(test: impl Future<Output = ()>) {
    actix_rt::System::new().block_on(test);
}

#[test]
fn bytes_go_to_the_shard_until_the_client_closes() {
    run(async {
        let (driver, mut client) = Recorder::start(1024).await;
        client.write_all(b"one two").await.expect("open");
        drop(client);
        let calls = driver.until_closed().await;
        assert_eq!(driver.taken(), b"one two");
        // The outbox is written once more: the client may have closed its side alone.
        assert_eq!(calls[calls.len() - 2..], [Call::Flush, Call::Closed("closed by the peer".into())]);
    });
}

#[test]
fn a_client_that_closes_its_side_is_kept_until_it_has_what_it_is_owed() {
    run(async {
        let (driver, mut client) = Recorder::start(1024).await;
        driver.is_owed.set(true);
        client.shutdown().await.expect("open");
        driver.until(|call| *call == Call::Flush).await;
        driver.notify(ConnectionNotice::Retransmit);
        driver.until(|call| matches!(call, Call::AcknowledgementDue(_))).await;
        assert!(!driver.calls().iter().any(|call| matches!(call, Call::Closed(_))), "{:?}", driver.calls());
        // The shard has the connection closed when all is written.
        driver.notify(ConnectionNotice::Close);
        assert_eq!(driver.until_closed().await.last(), Some(&Call::Closed("closed by the peer".into())));
    });
}

#[test]
fn a_fast_publisher_has_three_reads_of_a_turn() {
    run(async {
        let (driver, mut client) = Recorder::start(4).await;
        client.write_all(&[7; 64]).await.expect("open");
        drop(client);
        driver.until_closed().await;
        assert_eq!(driver.taken(), [7; 64]);
        for turn in driver.calls.borrow().split(|call| *call == Call::Turn) {
            let reads = turn.iter().filter(|call| matches!(call, Call::TakeIn(_))).count();
            assert!(reads <= 3, "{turn:?}");
        }
    });
}

#[test]
fn a_paused_connection_is_read_after_a_notice() {
    run(async {
        let (driver, mut client) = Recorder::start(1024).await;
        driver.reads.set(false);
        client.write_all(b"later").await.expect("open");
        driver.notify(ConnectionNotice::Retransmit);
        driver.until(|call| *call == Call::AcknowledgementDue(5)).await;
        assert_eq!(driver.taken(), b"");
        driver.reads.set(true);
        driver.notify(ConnectionNotice::Read);
        driver.until(|call| *call == Call::TakeIn(b"later".into())).await;
    });
}

#[test]
fn what_came_is_read_before_a_decision_about_acknowledgements() {
    run(async {
        let (driver, mut client) = Recorder::start(1024).await;
        driver.reads.set(false);
        client.write_all(b"ack").await.expect("open");
        // The reactor reports the bytes, and nobody reads them.
        tokio::task::yield_now().await;
        driver.reads.set(true);
        driver.notify(ConnectionNotice::Retransmit);
        driver.until(|call| matches!(call, Call::AcknowledgementDue(_))).await;
        assert_eq!(driver.calls(), [Call::TakeIn(b"ack".into()), Call::AcknowledgementDue(0)]);
    });
}

#[test]
fn a_client_that_closes_while_its_packets_wait_ends_when_they_are_handled() {
    run(async {
        let (driver, mut client) = Recorder::start(1024).await;
        driver.has_waiting.set(true);
        client.write_all(b"publish").await.expect("open");
        drop(client);
        driver.until(|call| *call == Call::TakeIn(b"publish".into())).await;
        driver.notify(ConnectionNotice::Retransmit);
        driver.until(|call| matches!(call, Call::AcknowledgementDue(_))).await;
        assert_eq!(driver.calls().len(), 2, "{:?}", driver.calls());
        driver.has_waiting.set(false);
        driver.notify(ConnectionNotice::Read);
        assert_eq!(driver.until_closed().await.last(), Some(&Call::Closed("closed by the peer".into())));
    });
}

#[test]
fn bytes_that_the_shard_kept_are_handled_after_a_notice() {
    run(async {
        let (driver, _client) = Recorder::start(1024).await;
        driver.has_unread.set(true);
        driver.notify(ConnectionNotice::Read);
        driver.until(|call| *call == Call::TakeIn(Vec::new())).await;
    });
}

#[test]
fn a_lingering_connection_discards_bytes_until_the_client_closes() {
    run(async {
        let (driver, mut client) = Recorder::start(1024).await;
        driver.notify(ConnectionNotice::Linger);
        assert_eq!(client.read(&mut [0; 8]).await.expect("no reset"), 0, "the broker's side is closed");
        client.write_all(b"too late").await.expect("the client's side is open");
        drop(client);
        driver.until_closed().await;
        assert_eq!(driver.taken(), b"");
    });
}

#[test]
fn the_reason_of_an_end_is_reported_once() {
    for (notice, why) in
        [(ConnectionNotice::Close, "closed"), (ConnectionNotice::Broken, "cannot be written to")]
    {
        run(async {
            let (driver, mut client) = Recorder::start(1024).await;
            driver.notify(notice);
            driver.notify(notice);
            assert_eq!(driver.until_closed().await, [Call::Closed(why.into())]);
            assert_eq!(client.read(&mut [0; 8]).await.expect("no reset"), 0);
            assert_eq!(driver.calls().len(), 1);
        });
    }
}

#[test]
fn a_silent_client_is_read_before_its_deadline_counts() {
    run(async {
        let (driver, mut client) = Recorder::start(1024).await;
        driver.reads.set(false);
        driver.is_silent.set(true);
        client.write_all(b"ping").await.expect("open");
        driver.notify(ConnectionNotice::Disconnect);
        driver.until(|call| *call == Call::DisconnectIfDue).await;
        assert_eq!(driver.calls(), [Call::TakeIn(b"ping".into()), Call::DisconnectIfDue]);
    });
}

#[test]
fn a_client_that_takes_no_bytes_is_abandoned() {
    run(async {
        let (driver, _client) = Recorder::start(1024).await;
        driver.is_stuck.set(true);
        driver.notify(ConnectionNotice::Disconnect);
        let calls = driver.until_closed().await;
        assert_eq!(calls, [Call::DisconnectIfDue, Call::Closed("takes no bytes".into())]);
    });
}

#[test]
fn the_outbox_is_flushed_when_the_socket_takes_bytes_again() {
    run(async {
        let (driver, _client) = Recorder::start(1024).await;
        driver.notify(ConnectionNotice::AwaitWritable);
        driver.until(|call| *call == Call::Flush).await;
        assert_eq!(driver.calls(), [Call::Flush], "once");
    });
}

#[test]
fn a_socket_moves_to_its_shard_with_the_bytes_that_were_read() {
    run(async {
        let (driver, mut client) = Recorder::start(1024).await;
        driver.home.set(Some(ShardId(3)));
        client.write_all(b"connect").await.expect("open");
        driver.until(|call| matches!(call, Call::Moved(..))).await;
        let moved = Call::Moved(ShardId(3), b"connect".into());
        assert_eq!(driver.calls(), [Call::TakeIn(b"connect".into()), Call::Release, moved]);
    });
}

#[test]
fn an_open_connection_is_closed_when_its_thread_stops() {
    let system = actix_rt::System::new();
    let (driver, client) = system.block_on(Recorder::start(1024));
    assert_eq!(driver.calls(), []);
    drop(system);
    assert_eq!(driver.calls(), [Call::Closed("the thread stops".into())]);
    drop(client);
}

#[test]
fn the_flag_of_notices_is_set_at_first_and_cleared_by_a_look() {
    run(async {
        let (server, client, _) = pair();
        let endpoint = Endpoint::new(Transport::new(server.into()).expect("a reactor"));
        assert!(endpoint.take_noticed());
        assert!(!endpoint.take_noticed());
        // The driver still has its handle.
        assert!(Rc::clone(&endpoint).into_transport().is_none());
        assert!(endpoint.into_transport().is_some());
        drop(client);
    });
}

#[test]
fn a_short_read_shows_that_the_socket_is_empty() {
    run(async {
        let (server, client, _) = pair();
        let (transport, mut buffer) = (Transport::new(server.into()).expect("a reactor"), [0; 4]);
        let mut client = TcpStream::from_std(client).expect("a reactor");
        assert!(matches!(transport.try_read(&mut buffer, usize::MAX), Ok(SocketRead::Nothing)));
        client.write_all(b"sixsix").await.expect("open");
        // The kernel has the bytes before the reactor reports them.
        assert_eq!(transport.unread(), 6);
        assert!(matches!(transport.read_now(&mut buffer, usize::MAX), Ok(SocketRead::Some(4))));
        std::future::poll_fn(|cx| transport.poll_read_ready(cx)).await.expect("open");
        assert!(matches!(transport.try_read(&mut buffer, usize::MAX), Ok(SocketRead::Last(2))));
        assert!(matches!(transport.try_read(&mut buffer, usize::MAX), Ok(SocketRead::Nothing)));
        drop(client);
        assert!(matches!(transport.read_now(&mut buffer, usize::MAX), Ok(SocketRead::End)));
    });
}

#[test]
fn a_full_socket_takes_no_bytes_and_shows_what_its_peer_does_not_have() {
    run(async {
        let (server, client, _) = pair();
        let transport = Transport::new(server.into()).expect("a reactor");
        assert_eq!(transport.view().unsent, 0);
        let chunk = [0; 64 * 1024];
        std::future::poll_fn(|cx| transport.poll_write_ready(cx)).await.expect("open");
        let error = loop {
            match transport.try_write(&chunk) {
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
        assert!(transport.view().unsent > 0);
        drop(client);
    });
}
