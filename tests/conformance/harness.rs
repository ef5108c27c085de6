//! The target of a test: the broker, or a listener that only looks like one.

use crate::support::launch::{TestBroker, start_broker};
use crate::support::{Connect, Message, PATIENCE, RawClient, V31, Version};
use homing::config::Config;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// One test: an entry of a module's `cases!`.
pub struct Case {
    /// The module's path, whose last part is the file's name.
    pub module: &'static str,
    /// The function's name, which states the behaviour.
    pub name: &'static str,
    pub version: Version,
    /// The numbered statements that the test is for, each as `MQTT-3.1.2-24`. Empty for a rule
    /// without a number.
    pub statements: &'static [&'static str],
    pub run: fn(&Target),
}

impl Case {
    /// Returns file and function, as `COVERAGE.md` and failures name the test. 3.1 is marked.
    pub fn title(&self) -> String {
        let file = self.module.rsplit("::").next().unwrap_or(self.module);
        let version = if self.version == V31 { " (3.1)" } else { "" };
        format!("{file}::{}{version}", self.name)
    }
}

/// The peer that a test talks to. Client identifiers and topics are the test's own, since other
/// tests use the same broker at the same time.
pub struct Target {
    peer: Peer,
    scope: String,
    ack_wait: Duration,
}

#[derive(Clone)]
enum Peer {
    /// One broker with the defaults, for all tests that can share it.
    Shared,
    Own(Arc<TestBroker>),
    /// No broker at all.
    Fake(SocketAddr),
}

impl Target {
    pub fn broker() -> Target {
        Target::new(Peer::Shared, PATIENCE)
    }

    /// A listener at this address. It sends within `ack_wait` or never.
    pub fn fake(address: SocketAddr, ack_wait: Duration) -> Target {
        Target::new(Peer::Fake(address), ack_wait)
    }

    fn new(peer: Peer, ack_wait: Duration) -> Target {
        static TARGETS: AtomicU32 = AtomicU32::new(0);
        // The process is part of the name, since the broker may outlive this process.
        let scope = format!("p{:x}n{}", std::process::id(), TARGETS.fetch_add(1, Relaxed));
        Target { peer, scope, ack_wait }
    }

    /// Starts a broker for this test alone, with other settings. A fake stays the same fake.
    pub fn configured(&self, configure: impl FnOnce(&mut Config)) -> Target {
        let peer = match self.peer {
            Peer::Fake(address) => Peer::Fake(address),
            _ => Peer::Own(Arc::new(start_broker(configure))),
        };
        Target { peer, scope: self.scope.clone(), ack_wait: self.ack_wait }
    }

    /// Starts a broker for this test alone: for filters, such as `#`, that match topics of other
    /// tests.
    pub fn alone(&self) -> Target {
        self.configured(|_| {})
    }

    pub fn address(&self) -> SocketAddr {
        static SHARED: OnceLock<TestBroker> = OnceLock::new();
        match &self.peer {
            Peer::Shared => {
                SHARED.get_or_init(|| start_broker(|config| config.runtime.threads = 2)).address()
            }
            Peer::Own(broker) => broker.address(),
            Peer::Fake(address) => *address,
        }
    }

    /// Time within which an expected packet must come.
    pub fn ack_wait(&self) -> Duration {
        self.ack_wait
    }

    /// Returns this test's own client identifier of that name. It is short, and of letters and
    /// digits, if the name is.
    pub fn id(&self, name: &str) -> String {
        format!("{}{name}", self.scope)
    }

    /// Returns this test's own topic of that name, one level below its scope. If the name is a
    /// filter, it is a filter.
    pub fn topic(&self, name: &str) -> String {
        format!("{}/{name}", self.scope)
    }

    /// Opens a connection. Nothing has been sent on it.
    pub fn open(&self, version: Version) -> RawClient {
        RawClient::open_with(self.address(), version, self.ack_wait)
    }

    /// Connects, and is accepted. The client identifier is taken as it is: see [`Target::id`].
    pub fn connect(&self, connect: &Connect) -> RawClient {
        self.open(connect.version).accepted(connect)
    }

    /// Connects a client whose session ends with its connection.
    pub fn client(&self, version: Version, name: &str) -> RawClient {
        self.connect(&Connect::new(version, &self.id(name)))
    }

    /// Connects a client that takes up its session, which outlives the connection.
    pub fn persistent(&self, version: Version, name: &str) -> RawClient {
        self.connect(&Connect::persistent(version, &self.id(name)))
    }

    /// Asserts that these bytes end a connection that was served so far. A new connection is then
    /// served.
    pub fn assert_closes(&self, version: Version, bytes: &[u8]) {
        let mut client = self.client(version, "violator");
        client.settle();
        client.send(bytes);
        client.expect_closed();
        self.client(version, "violator").settle();
    }

    /// Asserts that these bytes, in place of a CONNECT, are answered by the close alone.
    pub fn closes_unanswered(&self, version: Version, bytes: &[u8]) {
        let mut client = self.open(version);
        client.send(bytes);
        assert_eq!(client.read_to_end(), [], "{bytes:02X?}");
    }

    /// The positive control: asserts that the peer serves an ordinary exchange. It comes before a
    /// test that waits for a close or for silence, and after one, to show that no other client was
    /// affected.
    pub fn serves(&self, version: Version) {
        let mut client = self.client(version, "control");
        let topic = self.topic("control");
        assert_eq!(client.subscribe(&[(&topic, 1)]), [1]);
        assert_eq!(client.deliver(&Message::new(&topic, "control").qos(1)), 0);
        let publish = client.expect_publish();
        assert_eq!(publish.text(), "control");
        client.complete(&publish);
        client.disconnect();
    }
}
