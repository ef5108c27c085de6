//! Checks that every test can fail: none passes against a listener that is no broker.

use crate::SUITES;
use crate::harness::{Case, Target};
use crate::support::{Connect, V5, V31, V311};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// More than a listener in the same process needs, and little enough for hundreds of runs.
const PATIENCE: Duration = Duration::from_millis(300);
/// The runs wait most of the time.
const AT_ONCE: usize = 24;

#[derive(Clone, Copy, Debug)]
enum Fake {
    /// Accepts, reads, says nothing.
    Silent,
    /// Answers a CONNECT by a CONNACK of its version, and drops everything else.
    ConnackOnly,
}

impl Fake {
    /// Listens until the process ends.
    fn start(self) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("its address");
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                thread::spawn(move || self.serve(stream));
            }
        });
        address
    }

    /// Closes when the client does, as anything would.
    fn serve(self, mut stream: TcpStream) {
        let (mut said, mut scratch) = (Vec::new(), [0; 4096]);
        let mut connected = matches!(self, Fake::Silent);
        while let Ok(count @ 1..) = stream.read(&mut scratch) {
            if connected {
                continue;
            }
            said.extend_from_slice(&scratch[..count]);
            if let Some(level) = level(&said) {
                connected = true;
                let connack: &[u8] = if level == 5 { &[0x20, 3, 0, 0, 0] } else { &[0x20, 2, 0, 0] };
                let _ = stream.write_all(connack);
            }
        }
    }
}

/// The protocol level of a CONNECT, once that much of it is there.
fn level(connect: &[u8]) -> Option<u8> {
    if *connect.first()? != 0x10 {
        return None;
    }
    let name = 2 + connect.iter().skip(1).position(|byte| byte & 0x80 == 0)?;
    let length = u16::from_be_bytes([*connect.get(name)?, *connect.get(name + 1)?]);
    connect.get(name + 2 + usize::from(length)).copied()
}

/// The cases that pass against a fake, and against which.
fn pass_without_a_broker(cases: &[&Case]) -> Vec<String> {
    let mut runs: Vec<(&Case, Fake, SocketAddr)> = Vec::new();
    for fake in [Fake::Silent, Fake::ConnackOnly] {
        let address = fake.start();
        runs.extend(cases.iter().map(|case| (*case, fake, address)));
    }
    let (next, passed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some((case, fake, address)) = runs.get(next.fetch_add(1, Relaxed)) {
                    let target = Target::fake(*address, PATIENCE);
                    if catch_unwind(AssertUnwindSafe(|| (case.run)(&target))).is_ok() {
                        passed.lock().expect("no panic in here").push(format!("{} ({fake:?})", case.title()));
                    }
                }
            });
        }
    });
    passed.into_inner().expect("no panic in there")
}

#[test]
fn no_test_passes_against_a_listener_that_is_no_broker() {
    let cases: Vec<&Case> = SUITES.iter().flat_map(|suite| suite.cases.iter().copied().flatten()).collect();
    let passed = pass_without_a_broker(&cases);
    assert!(passed.is_empty(), "these pass without a broker, so they show nothing: {passed:#?}");
}

#[test]
fn tests_that_show_nothing_are_caught() {
    let case = |name, run| Case { module: "fake", name, version: V311, statements: &[], run };
    let empty = case("empty", |_| {});
    let no_control = case("nothing_comes", |target| {
        target.client(V311, "c").expect_nothing_for(Duration::from_millis(50))
    });
    let mut passed = pass_without_a_broker(&[&empty, &no_control]);
    passed.sort();
    assert_eq!(
        passed,
        ["fake::empty (ConnackOnly)", "fake::empty (Silent)", "fake::nothing_comes (ConnackOnly)"]
    );
}

#[test]
fn the_fakes_are_what_they_claim() {
    for version in [V31, V311, V5] {
        let connect = Connect::new(version, "c");
        let connacks = Target::fake(Fake::ConnackOnly.start(), PATIENCE);
        connacks.connect(&connect).vanish();
        let silent = Target::fake(Fake::Silent.start(), PATIENCE);
        let mut client = silent.open(version);
        client.send(&connect.encode());
        client.expect_nothing_for(PATIENCE);
    }
}
