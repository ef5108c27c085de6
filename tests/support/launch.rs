//! Starts the broker under test: in this process on a free port, or another one by the environment.
//!
//! - `HOMING_TEST_COMMAND="mosquitto -p {port}"` starts that program for each test, on a free port,
//!   and ends it with the test.
//! - `HOMING_TEST_ADDRESS=127.0.0.1:1883` uses a broker that runs already; run such tests on one
//!   thread.
//! - `HOMING_TEST_STORE=memory` gives the brokers in this process a store.
//!
//! The first two cannot be configured from here: a test that needs a setting fails against them,
//! which is to be expected.

use super::memory_store::Memory;
use crate::support::{Connect, PATIENCE, RawClient, Version, now};
use homing::broker::Broker;
use homing::config::Config;
use homing::store::Store;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A running broker. It ends when dropped.
pub enum TestBroker {
    InProcess(Broker),
    Command(Child, SocketAddr),
    Elsewhere(SocketAddr),
}

/// Starts a broker with the defaults, as changed by `configure`. It costs a few threads and one
/// socket.
pub fn start_broker(configure: impl FnOnce(&mut Config)) -> TestBroker {
    if let Ok(address) = std::env::var("HOMING_TEST_ADDRESS") {
        let address = address.parse().expect("HOMING_TEST_ADDRESS is ADDRESS:PORT");
        return TestBroker::Elsewhere(address);
    }
    if let Ok(command) = std::env::var("HOMING_TEST_COMMAND") {
        return start_command(&command);
    }
    start_in_process(store_in_memory(), configure)
}

/// Starts a broker with this store, in this process whatever the environment.
pub fn start_stored(store: Box<dyn Store>, configure: impl FnOnce(&mut Config)) -> TestBroker {
    start_in_process(Some(store), configure)
}

fn start_in_process(store: Option<Box<dyn Store>>, configure: impl FnOnce(&mut Config)) -> TestBroker {
    let mut config = Config::default();
    config.runtime.threads = 1;
    config.network.listen = vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))];
    configure(&mut config);
    TestBroker::InProcess(Broker::start_with(config, store).expect("the broker starts"))
}

/// With `HOMING_TEST_STORE=memory` every broker has a store that lasts as long as it does: every
/// gate is in force, and nothing else may differ.
fn store_in_memory() -> Option<Box<dyn Store>> {
    let wanted = std::env::var("HOMING_TEST_STORE").ok()?;
    assert_eq!(wanted, "memory", "HOMING_TEST_STORE is \"memory\" or not set");
    Some(Box::new(Memory::default()))
}

/// Starts a broker in this process with this store.
pub fn start_broker_on(memory: &Memory, configure: impl FnOnce(&mut Config)) -> TestBroker {
    start_stored(Box::new(memory.clone()), configure)
}

/// Stops a broker in order, and starts another on the content of its store. Returns that store too.
pub fn restart_on(
    broker: TestBroker,
    memory: &Memory,
    configure: impl FnOnce(&mut Config),
) -> (TestBroker, Memory) {
    drop(broker);
    let memory = Memory::from_image(memory.image());
    (start_broker_on(&memory, configure), memory)
}

/// Starts a broker with one thread and all defaults.
pub fn default_broker() -> TestBroker {
    start_broker(|_| {})
}

/// Runs a test with 1 and with 3 threads: what holds in one thread must hold across several.
pub fn with_one_and_three_threads(test: impl Fn(u8)) {
    for threads in [1, 3] {
        // Shown if the test fails.
        println!("{threads} threads");
        test(threads);
    }
}

/// Runs a test against brokers of one and of three threads, with the defaults.
pub fn on_one_and_three_threads(test: impl Fn(&TestBroker)) {
    on_configured_threads(|_| {}, test);
}

/// Runs a test against brokers of one and of three threads, with the defaults as changed by
/// `configure`.
pub fn on_configured_threads(configure: impl Fn(&mut Config), test: impl Fn(&TestBroker)) {
    with_one_and_three_threads(|threads| {
        test(&start_broker(|config| {
            configure(config);
            config.runtime.threads = usize::from(threads);
        }));
    });
}

fn start_command(command: &str) -> TestBroker {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = free.local_addr().expect("its address");
    drop(free);
    let command = command.replace("{port}", &address.port().to_string());
    let mut words = command.split_whitespace();
    let child = Command::new(words.next().expect("HOMING_TEST_COMMAND names a program"))
        .args(words)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("HOMING_TEST_COMMAND starts");
    let deadline = now() + PATIENCE;
    while TcpStream::connect(address).is_err() {
        assert!(now() < deadline, "{command} does not listen");
        std::thread::sleep(Duration::from_millis(5));
    }
    TestBroker::Command(child, address)
}

impl TestBroker {
    pub fn address(&self) -> SocketAddr {
        match self {
            TestBroker::InProcess(broker) => broker.addresses()[0],
            TestBroker::Command(_, address) | TestBroker::Elsewhere(address) => *address,
        }
    }

    /// Opens a connection. Nothing has been sent on it.
    pub fn open(&self, version: Version) -> RawClient {
        RawClient::open(self.address(), version)
    }

    pub fn connect(&self, connect: &Connect) -> RawClient {
        RawClient::connect(self.address(), connect)
    }

    /// Connects a client whose session ends with its connection.
    pub fn client(&self, version: Version, client_id: &str) -> RawClient {
        self.connect(&Connect::new(version, client_id))
    }

    /// Connects a client that takes up its session, which outlives the connection.
    pub fn persistent(&self, version: Version, client_id: &str) -> RawClient {
        self.connect(&Connect::persistent(version, client_id))
    }
}

impl Drop for TestBroker {
    fn drop(&mut self) {
        if let TestBroker::Command(child, _) = self {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Makes a `#[test]` of a function for each version that it is tried with, in a module of the
/// function's name.
macro_rules! versions {
    ($body:ident: $($version:ident),+) => {
        mod $body {
            $(#[test] fn $version() { super::$body($crate::support::launch::version!($version)); })+
        }
    };
}
pub(crate) use versions;

/// The version that a test of [`versions`] is named after.
macro_rules! version {
    (v31) => {
        $crate::support::V31
    };
    (v311) => {
        $crate::support::V311
    };
    (v5) => {
        $crate::support::V5
    };
}
pub(crate) use version;
