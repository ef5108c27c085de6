//! `kill -9` at random moments: acknowledged requests survive it.
//!
//! The real binary runs on one data directory, with one and two threads by turns. Lawful clients
//! publish, subscribe and acknowledge by changing plans. They keep their own side of every session,
//! as the standard says. The broker is killed under this load, sometimes again while it recovers,
//! and then started again. Each client checks what it can see at once. After the last round the
//! queues are drained up to a marker, and the deliveries of each session are compared with what was
//! promised:
//!
//! - A message that was answered by PUBACK or PUBREC reached every session whose subscription was
//!   in force from before the first PUBLISH until after the answer. It reached no session without
//!   a subscription at that time.
//! - QoS 2 came once. A PUBLISH repeated before its PUBREL has the same identifier, the same
//!   message and DUP.
//! - The messages of one publisher on one topic at one QoS first came in their order, at each
//!   session that was subscribed before they were sent.
//! - A session whose CONNACK came exists. A session that Clean Start began has nothing of the one
//!   before.
//! - A will without delay goes out once for each connection that the broker's death ended.
//! - A retained message is the one that was answered last, or one that was sent after it.
//! - The client's unacknowledged messages come again, in order, before anything new, with DUP and
//!   their identifiers. At QoS 1 an identifier is recorded while the message is already on its way.
//!   So this is checked only for messages that came before a new QoS 2 PUBLISH on the same
//!   connection: that PUBLISH waits until all before it is recorded.
//! - To a 5.0 client nothing comes twice on one connection.
//!
//! `copy` loses the whole data directory, and brings it back from its copy.
//!
//! `letters` tests what operators do with messages and dead letters.
//!
//! `work` tests a shared message whose member ends its session between the message and its commit.
//!
//! `CRASH_SEED` repeats the plans (not the scheduler), `CRASH_ROUNDS` sets the number of kills
//! under load.

#[path = "../support/mod.rs"]
mod support;

mod clients;
mod copy;
mod judge;
mod letters;
mod link;
mod mortal;
mod publisher;
mod retained;
mod subscriber;
mod trial;

use clients::{Clients, await_moment_of_kill};
use std::path::Path;
use std::thread;
use std::time::Duration;
use support::now;
use support::process::{Process, homing_serve};
use support::rng::Rng;
use support::{shim, work};
use trial::{Pending, Trial};

const ROUNDS: u64 = 60;
/// Starts the real binary on a data directory. It listens when [`Process::address`] returns.
fn spawn(directory: &Path, threads: u64) -> Process {
    let mut command = homing_serve();
    command
        .args(["--log-level", "warn", "--set", &format!("runtime.threads={threads}")])
        // Nothing may be refused: what is refused was not promised.
        .args(["--set", "store.queue_messages=1000000", "--set", "store.queue_bytes=1 GiB"])
        .arg("--data-dir")
        .arg(directory);
    if threads == 1 {
        // The files of the log are of 4 MiB then, and some fill up.
        command.args(["--set", "store.size_limit=256 MiB"]);
    }
    Process::spawn(&mut command)
}

/// Starts it and kills it, mostly before it has taken up what it had.
fn kill_in_recovery(directory: &Path, threads: u64, rng: &mut Rng) -> u64 {
    let mut homing = spawn(directory, threads);
    // Or when wills that were due have gone out.
    let after = if rng.percent(20) { rng.between(200, 400) } else { rng.between(0, 60) };
    thread::sleep(Duration::from_millis(after));
    homing.kill();
    after
}

/// One load, one kill. What waited for an answer at it.
fn round(number: u64, directory: &Path, clients: &mut Clients, trial: &Trial, rng: &mut Rng) -> Pending {
    let threads = 1 + number % 2;
    let mut again = Vec::new();
    while rng.percent(30) {
        again.push(kill_in_recovery(directory, 1 + rng.below(2), rng));
    }
    let mut homing = spawn(directory, threads);
    trial.serve(number, homing.address().expect("it listens"));
    retained::check(trial, &clients.publishers);
    clients.draw_plans();
    // Few, so that it is killed while sessions are taken up, or many.
    let count = if rng.percent(25) { rng.between(0, 8) } else { rng.between(10, 400) };
    let then = Duration::from_micros(rng.below(3_000));
    let (began, from) = (now(), trial.acknowledged());
    let pending = clients.run(trial, || {
        await_moment_of_kill(|| trial.acknowledged() >= from + count, then);
        trial.about_to_kill();
        homing.kill();
    });
    println!(
        "round {number}: {threads} threads, killed {again:?} ms into recoveries, then after {} acknowledgements in {} ms; pending: {pending}",
        trial.acknowledged() - from,
        began.elapsed().as_millis(),
    );
    pending
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

fn any_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0) >> 32
}

#[test]
fn what_was_acknowledged_survives_kill_9() {
    let seed = variable("CRASH_SEED").unwrap_or_else(any_seed);
    let rounds = variable("CRASH_ROUNDS").unwrap_or(ROUNDS);
    println!("CRASH_SEED={seed} CRASH_ROUNDS={rounds}");
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let mut rng = Rng::new(seed);
    let (trial, mut clients) = (Trial::default(), Clients::new(&mut rng));
    {
        let mut homing = spawn(directory.path(), 2);
        trial.serve(0, homing.address().expect("it listens"));
        clients.subscribe_the_fleet(&trial);
        trial.about_to_kill();
        homing.kill();
    }
    let (mut within, mut sum) = (0, Pending::default());
    for number in 0..rounds {
        let pending = round(number, directory.path(), &mut clients, &trial, &mut rng);
        within += u64::from(pending.total() > 0);
        sum = sum.and(pending);
        if trial.has_violations() {
            break;
        }
    }
    if !trial.has_violations() {
        let mut homing = spawn(directory.path(), 1 + rounds % 2);
        trial.serve(rounds, homing.address().expect("it listens"));
        clients.finish(&trial);
        clients.judge(&trial);
    }
    clients.print_concerned(&trial);
    println!("{within} of {rounds} kills met acknowledgements under way, in all: {sum}");
    let violations = trial.violations();
    if !violations.is_empty() {
        // The data directory stays for inspection.
        println!("its data: {}", directory.keep().display());
    }
    assert!(violations.is_empty(), "CRASH_SEED={seed}:\n{}", violations.join("\n"));
    assert!(within * 4 >= rounds * 3, "most kills have to fall between a request and its acknowledgement");
}

#[test]
fn work_that_was_acknowledged_while_its_member_left_survives_kill_9() {
    for (leaves, threads) in work::WAYS {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        let mut command = homing_serve();
        work::slowly(&mut command, shim::shim("power_loss"), directory.path(), threads);
        let (mut broker, address) = Process::serve(&mut command);
        work::prepare(address);
        let promised = work::hand_out(address, leaves, || broker.kill());
        let mut homing = spawn(directory.path(), threads);
        let had = work::collect(homing.address().expect("it listens"), &promised);
        assert!(
            promised.is_subset(&had),
            "{leaves:?} with {threads}: {promised:?} acknowledged, {had:?} there"
        );
    }
}
