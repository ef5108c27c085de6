//! A storm of logins: many clients with slow hashes (argon2id), right and wrong passwords, all at
//! once, on the real binary. Others must hardly notice. Each client gets an answer in bounded time:
//! accepted, refused, or busy (0x89), and busy clients try again until they are through.
//!
//! The figures are printed (`--nocapture`). In a development build fewer clients come, and the bound
//! on latency only separates slow from stuck; `cargo test --release --test login_storm` holds it to
//! the figure that is promised.

mod support;

use homing::auth::password::argon2::Argon2Hash;
use homing::auth::password::hash::PasswordHash;
use std::cell::RefCell;
use std::io::Write;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use support::pair::{PairLatency, assert_responsive, stand_aside};
use support::process::Homing;
use support::{Connect, V5, now};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::{LocalSet, spawn_local};

/// A hash takes 20 ms. So the last of 2,000 clients is through after 40 s.
const CLIENTS: usize = if cfg!(debug_assertions) { 150 } else { 2_000 };
/// `auth.timeout`. Fewer clients need less time to be too many.
const TIMEOUT: Duration = Duration::from_secs(if cfg!(debug_assertions) { 1 } else { 5 });
/// The time after which a client tries again.
const RETRY: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(240);
/// The time by which an answer may be late, on a machine that others use.
const SLACK: Duration = Duration::from_secs(10);

/// The answers that all clients together got.
#[derive(Debug, Default)]
struct Answers {
    accepted: usize,
    refused: usize,
    busy: usize,
    unavailable: usize,
    longest: Duration,
}

impl Answers {
    fn count(&mut self, code: u8, time: Duration) {
        self.longest = self.longest.max(time);
        match code {
            0 => self.accepted += 1,
            0x87 => self.refused += 1,
            0x89 => self.busy += 1,
            0x88 => self.unavailable += 1,
            other => panic!("{other:#x}"),
        }
    }
}

/// Tries to log in until the answer is not "busy". Clients with an odd number have a wrong password.
async fn client(address: SocketAddr, number: usize, answers: Rc<RefCell<Answers>>, done: Rc<Semaphore>) {
    let password: &[u8] = if number.is_multiple_of(2) { b"secret" } else { b"Secret" };
    let connect = Connect::new(V5, &format!("c{number}")).user_name(&format!("u{number}")).password(password);
    loop {
        let began = now();
        let mut stream = TcpStream::connect(address).await.expect("accepted");
        stream.write_all(&connect.encode()).await.expect("written");
        let mut connack = [0; 4];
        stream.read_exact(&mut connack).await.expect("an answer in each case");
        answers.borrow_mut().count(connack[3], now() - began);
        if connack[3] < 0x88 {
            break;
        }
        drop(stream);
        // The backoff of this client. The test waits for `done`.
        tokio::time::sleep(RETRY).await;
    }
    done.add_permits(1);
}

#[test]
fn a_storm_of_logins_leaves_others_responsive_and_everybody_gets_an_answer() {
    let hash = PasswordHash::Argon2(Argon2Hash::create(b"secret", &[2; 16]).expect("a hash")).to_text();
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    for number in 0..CLIENTS {
        writeln!(file, "u{number}:{hash}").expect("a writable file");
    }
    let passwords = format!("auth.password_file={}", file.path().display());
    let timeout = format!("auth.timeout={}s", TIMEOUT.as_secs());
    // Each client of the storm would make a line.
    let homing = Homing::serve(&[
        "--log-level",
        "error",
        "--set",
        &passwords,
        "--set",
        &timeout,
        "--set",
        "auth.workers=1",
    ]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    LocalSet::new().block_on(&runtime, async {
        tokio::time::timeout(PATIENCE, storm(&homing)).await.expect("in time");
    });
}

async fn storm(homing: &Homing) {
    let address = homing.address;
    let calm =
        tokio::task::spawn_blocking(move || PairLatency::measure(address, "2s")).await.expect("measured");
    let (answers, done) = (Rc::new(RefCell::new(Answers::default())), Rc::new(Semaphore::new(0)));
    let begun = now();
    let others = tokio::task::spawn_blocking(move || PairLatency::measure(address, "3s"));
    // The thread of the pair exists already, and keeps its priority.
    stand_aside();
    for number in 0..CLIENTS {
        spawn_local(client(address, number, Rc::clone(&answers), Rc::clone(&done)));
    }
    let report = others.await.expect("measured");
    let all = u32::try_from(CLIENTS).expect("a small number");
    done.acquire_many(all).await.expect("open").forget();
    let (answers, took) = (answers.borrow(), now() - begun);
    println!("{CLIENTS} clients with argon2id, all through in {took:.1?}: {answers:?}");
    assert_responsive(&calm, &report);
    assert_eq!((answers.accepted, answers.refused), (CLIENTS.div_ceil(2), CLIENTS / 2));
    assert!(answers.busy > 0, "so many at once do not fit into auth.timeout");
    assert!(answers.longest < TIMEOUT + SLACK, "an answer took {:?}", answers.longest);
}
