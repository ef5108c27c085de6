//! What a test is given, and how it comes to be run twice: on the broker, and on listeners that only look like one.

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
    /// The numbered statements that the test is for, each as `MQTT-3.1.2-24`. Empty for a rule without a number.
    pub statements: &'static [&'static str],
    pub run: fn(&Target),
}

impl Case {
    /// How `COVERAGE.md` and failures name the test: file and function, and the version if the suite has two.
    pub fn title(&self) -> String {
        let file = self.module.rsplit("::").next().unwrap_or(self.module);
        let version = if self.version == V31 { " (3.1)" } else { "" };
        format!("{file}::{}{version}", self.name)
    }
}

/// What a test talks to. Its names are its own: client ids and topics of other tests, on the same broker at the same
/// time, are others.
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

    /// Something that listens there; what it has not said within `ack_wait` it never will.
    pub fn fake(address: SocketAddr, ack_wait: Duration) -> Target {
        Target::new(Peer::Fake(address), ack_wait)
    }

    fn new(peer: Peer, ack_wait: Duration) -> Target {
        static TARGETS: AtomicU32 = AtomicU32::new(0);
        // The process is named too, for the day the broker is one that runs on.
        let scope = format!("p{:x}n{}", std::process::id(), TARGETS.fetch_add(1, Relaxed));
        Target { peer, scope, ack_wait }
    }

    /// A broker for this test alone, with other settings; a fake stays the fake it is.
    pub fn configured(&self, configure: impl FnOnce(&mut Config)) -> Target {
        let peer = match self.peer {
            Peer::Fake(address) => Peer::Fake(address),
            _ => Peer::Own(Arc::new(start_broker(configure))),
        };
        Target { peer, scope: self.scope.clone(), ack_wait: self.ack_wait }
    }

    /// A broker for this test alone: for filters, such as `#`, that meet the topics of other tests.
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

    /// How long what must come may take.
    pub fn ack_wait(&self) -> Duration {
        self.ack_wait
    }

    /// This test's own client id of that name; letters and digits, and short, if the name is.
    pub fn id(&self, name: &str) -> String {
        format!("{}{name}", self.scope)
    }

    /// This test's own topic of that name, one level below its scope; a filter where the name is one.
    pub fn topic(&self, name: &str) -> String {
        format!("{}/{name}", self.scope)
    }

    /// A connection on which nothing has been said.
    pub fn open(&self, version: Version) -> RawClient {
        RawClient::open_with(self.address(), version, self.ack_wait)
    }

    /// Connected and accepted. The client id is taken as it is: see [`Target::id`].
    pub fn connect(&self, connect: &Connect) -> RawClient {
        self.open(connect.version).accepted(connect)
    }

    /// A client whose session ends with its connection.
    pub fn client(&self, version: Version, name: &str) -> RawClient {
        self.connect(&Connect::new(version, &self.id(name)))
    }

    /// A client that takes up its session, which outlives the connection.
    pub fn persistent(&self, version: Version, name: &str) -> RawClient {
        self.connect(&Connect::persistent(version, &self.id(name)))
    }

    /// These bytes, on a connection that has been served so far, end it; a fresh one is then served as ever.
    pub fn assert_closes(&self, version: Version, bytes: &[u8]) {
        let mut client = self.client(version, "violator");
        client.settle();
        client.send(bytes);
        client.expect_closed();
        self.client(version, "violator").settle();
    }

    /// These bytes, instead of a lawful CONNECT, are answered by the close alone.
    pub fn closes_unanswered(&self, version: Version, bytes: &[u8]) {
        let mut client = self.open(version);
        client.send(bytes);
        assert_eq!(client.read_to_end(), [], "{bytes:02X?}");
    }

    /// The positive control: the peer serves an ordinary exchange. Before a test that then waits for a close, or for
    /// nothing; and after one, to show that nobody else was hurt.
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
