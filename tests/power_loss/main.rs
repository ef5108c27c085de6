//! Batches that the store reported as committed survive a power loss.
//!
//! `kill -9` alone does not show this, since the system still has the bytes that were never synced:
//! 12 kills with `synchronous=OFF` lost nothing here.
//!
//! A child drives a store with `shim.c` preloaded, which keeps for each file the image as of its
//! last sync. The child reports each commit, is killed at a random one, and the store is opened
//! again on the images. `POWER_LOSS_ROUNDS` sets how often, `POWER_LOSS_SEED` repeats the places;
//! the moment within a commit is the system's choice.

#[path = "../support/mod.rs"]
mod support;

mod images;

use homing::config::Durability;
use homing::mqtt::message::{Message, Parts};
use homing::mqtt::packet::{ProtocolVersion, QoS};
use homing::mqtt::subscription_ids::SubscriptionIds;
use homing::persistence::records::{
    BodyNumber, EntryNumber, Record, SessionKey, StoredAccess, StoredEntry, StoredSession,
};
use homing::store::coalesce::CommitGroup;
use homing::store::sqlite::{Sqlite, SqliteOptions};
use homing::store::{Moment, Store};
use homing::time::Instant;
use images::Images;
use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use support::process::{Process, homing_serve};
use support::shim::shim;
use support::work;

/// Messages in the queue at a time: as one comes, the one this many before goes.
const KEPT: u64 = 20;
/// Large enough that the write-ahead log is written back after some hundred commits.
const PAYLOAD: usize = 64 * 1024;
/// Commits in a round at most: past a write-back.
const COMMITS: u64 = 450;
/// With `interval`, commits between two syncs.
const SYNC_EVERY: u64 = 7;
const ROUNDS: u64 = 4;

fn options(durability: &str) -> SqliteOptions {
    let durability = match durability {
        "commit" => Durability::Commit,
        "interval" => Durability::Interval,
        _ => Durability::Os,
    };
    SqliteOptions { durability, size_limit: None }
}

/// The changes of the commit of this number.
fn group(n: u64) -> CommitGroup {
    let mut group = CommitGroup::default();
    let (body, entry) = (BodyNumber(10 * n), EntryNumber(n));
    if n == 1 {
        group.fold(Record::Session(Box::new(StoredSession {
            key: SessionKey(1),
            client_id: "pigeon".into(),
            version: ProtocolVersion::V5,
            expiry: 3600,
            connected: true,
            ends: Instant::NEVER,
            will: None,
            will_due: Instant::NEVER,
            retry_interval: None,
            ack_timeout: None,
            user_name: None,
            access: StoredAccess::default(),
        })));
    }
    let payload = vec![n as u8; PAYLOAD];
    let parts = Parts {
        qos: QoS::AtLeastOnce,
        retain: false,
        expires: Instant::NEVER,
        topic: "t",
        forwarded: b"",
        payload: &payload,
    };
    group.fold(Record::Body { number: body, message: Message::new(parts, &mut Vec::new()) });
    group.fold(Record::Entry(Box::new(StoredEntry {
        number: entry,
        session: SessionKey(1),
        body,
        qos: QoS::AtLeastOnce,
        retain: false,
        ids: SubscriptionIds::None,
        share: None,
        flight: None,
    })));
    if let Some(old) = n.checked_sub(KEPT).filter(|old| *old > 0) {
        group.fold(Record::EntryDone(EntryNumber(old)));
        group.fold(Record::BodyDone(BodyNumber(10 * old)));
    }
    group
}

/// The child: commits until it is killed, and reports what the store said is safe.
#[test]
#[ignore = "the process whose power is lost; the tests beside it start it"]
fn drive_a_store() {
    let directory = std::env::var("POWER_LOSS_DIRECTORY").expect("started by a test");
    let durability = std::env::var("POWER_LOSS_DURABILITY").expect("started by a test");
    let mut store = Sqlite::open(Path::new(&directory), options(&durability)).expect("opened");
    store.recover(Moment::now(), Duration::ZERO).expect("recovered");
    for n in 1.. {
        store.commit(&group(n)).expect("committed");
        let is_safe = durability != "interval" || n % SYNC_EVERY == 0;
        if durability == "interval" && is_safe {
            store.sync().expect("synced");
        }
        if is_safe {
            // Not `println!`, which the test harness may keep to itself.
            writeln!(std::io::stdout().lock(), "\ncommitted {n}").expect("the parent reads");
        }
        store.tidy().expect("tidied");
    }
}

fn start_child(durability: &str, directory: &Path, images: &Path) -> Child {
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "drive_a_store", "--ignored", "--nocapture"])
        .env("LD_PRELOAD", shim("power_loss"))
        .env("POWER_LOSS_DIRECTORY", directory)
        .env("POWER_LOSS_IMAGES", images)
        .env("POWER_LOSS_DURABILITY", durability)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("this program starts")
}

/// Kills the child after this many commits; answers the last one that it reported.
fn lose_power(mut child: Child, after: u64) -> u64 {
    let mut reported = 0;
    let output = child.stdout.take().expect("piped");
    for line in BufReader::new(output).lines() {
        let line = line.expect("text");
        let Some(n) = line.strip_prefix("committed ") else { continue };
        reported = n.parse().expect("a number");
        if reported >= after {
            // A commit that it reports before it dies counts too.
            child.kill().expect("killed");
        }
    }
    child.wait().expect("ended");
    assert!(reported >= after, "it ended by itself after {reported} commits");
    reported
}

/// Checks that all that was reported is there, and nothing that was deleted.
fn check(directory: &Path, durability: &str, reported: u64) -> Result<(), String> {
    let mut store = Sqlite::open(directory, options("commit")).map_err(|error| error.to_string())?;
    let recovered = store.recover(Moment::now(), Duration::ZERO).map_err(|error| error.to_string())?;
    let session = recovered.sessions.first().ok_or("the session is gone")?;
    let numbers: Vec<u64> = session.entries.iter().map(|entry| entry.number.0).collect();
    let last = *numbers.last().ok_or("the queue is empty")?;
    // A commit may be safe before it is reported.
    let ahead = if durability == "interval" { SYNC_EVERY } else { 1 };
    if !(reported..=reported + ahead).contains(&last) {
        return Err(format!("{reported} commits were reported, the last entry is {last}"));
    }
    let expected: Vec<u64> = (last.saturating_sub(KEPT - 1).max(1)..=last).collect();
    if numbers != expected {
        return Err(format!("after {reported} commits the queue is {numbers:?}"));
    }
    let wanted: Vec<_> = numbers.iter().map(|n| (EntryNumber(*n), BodyNumber(10 * n))).collect();
    let read =
        store.reader().and_then(|mut reader| reader.entries(&wanted)).map_err(|error| error.to_string())?;
    let whole = read.iter().all(|e| e.message.payload() == vec![e.number.0 as u8; PAYLOAD]);
    if read.len() == wanted.len() && whole { Ok(()) } else { Err("a message is not what was stored".into()) }
}

/// One round: drive, lose power, look.
fn round(durability: &str, after: u64) -> Result<(), String> {
    let work = tempfile::tempdir().expect("a directory");
    let images = Images::new(work.path());
    let child = start_child(durability, &images.directory, &images.images);
    let reported = lose_power(child, after);
    let restored = images.restore();
    let outcome = check(&restored, durability, reported);
    println!("{durability}: killed after {after} commits, {reported} reported: {outcome:?}");
    outcome
}

fn rounds(durability: &str) -> Vec<Result<(), String>> {
    let number = |name| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    let rounds = number("POWER_LOSS_ROUNDS").unwrap_or(ROUNDS);
    let seed = number("POWER_LOSS_SEED").unwrap_or_else(|| RandomState::new().hash_one(rounds));
    println!("POWER_LOSS_SEED={seed}");
    let step = |n: u64| (seed ^ n).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
    (0..rounds).map(|n| round(durability, 1 + step(n) % COMMITS)).collect()
}

#[test]
fn what_a_committing_store_reported_survives_a_power_loss() {
    for outcome in rounds("commit") {
        assert_eq!(outcome, Ok(()));
    }
}

#[test]
fn what_an_interval_store_synced_survives_a_power_loss() {
    for outcome in rounds("interval") {
        assert_eq!(outcome, Ok(()));
    }
}

/// The proof that the test above can fail: `synchronous=OFF` loses what it reported, and that is
/// seen each time.
#[test]
fn what_a_store_without_syncs_reported_is_seen_to_be_lost() {
    for outcome in rounds("os") {
        assert!(outcome.is_err(), "nothing was synced, and nothing is missing?");
    }
}

/// The broker itself: a shared message is not acknowledged on the word of a member that passes it
/// on.
#[test]
fn work_that_was_acknowledged_while_its_member_left_survives_a_power_loss() {
    for (leaves, threads) in work::WAYS {
        let folder = tempfile::tempdir().expect("a directory");
        let images = Images::new(folder.path());
        let mut command = homing_serve();
        work::slowly(&mut command, shim("power_loss"), &images.directory, threads);
        command.env("POWER_LOSS_DIRECTORY", &images.directory).env("POWER_LOSS_IMAGES", &images.images);
        let (mut broker, address) = Process::serve(&mut command);
        work::prepare(address);
        let promised = work::hand_out(address, leaves, || broker.kill());
        let restored = images.restore();
        let (_broker, address) = Process::serve(homing_serve().arg("--data-dir").arg(&restored));
        let had = work::collect(address, &promised);
        assert!(
            promised.is_subset(&had),
            "{leaves:?} with {threads}: {promised:?} acknowledged, {had:?} there"
        );
    }
}
