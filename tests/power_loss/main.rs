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

use homing::config::DurabilityLevel;
use homing::mqtt::message::{Message, Parts};
use homing::mqtt::packet::{ProtocolVersion, QoS};
use homing::mqtt::subscription_ids::SubscriptionIds;
use homing::persistence::letter::{LetterNumber, LetterPlace, StoredLetter};
use homing::persistence::records::{
    BodyNumber, EntryNumber, Record, SessionKey, StoredAccess, StoredEntry, StoredSession,
};
use homing::store::coalesce::CommitGroup;
use homing::store::logged::{LoggedStore, StoreOptions};
use homing::store::{Moment, Store, StoreError};
use homing::time::Instant;
use images::Images;
use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use support::operated::Operated;
use support::process::{Process, homing_serve};
use support::shim::shim;
use support::{until, work};

/// Messages in the queue at a time: as one comes, the one this many before becomes a dead letter.
const KEPT: u64 = 20;
/// Dead letters at a time: as one comes, the one this many before is deleted.
const LETTERS: u64 = 5;
/// Large enough that a file of the log is full after 15 commits, and that the database writes its
/// write-ahead log back after some hundred.
const PAYLOAD: usize = 64 * 1024;
/// Commits in a round at most: past a write-back.
const COMMITS: u64 = 450;
/// With `interval`, commits between two syncs.
const SYNC_EVERY: u64 = 7;
const ROUNDS: u64 = 4;

fn options(durability: &str) -> StoreOptions {
    let durability = match durability {
        "commit" => DurabilityLevel::Commit,
        "interval" => DurabilityLevel::Interval,
        _ => DurabilityLevel::Os,
    };
    // The files of the log are of 1 MiB then, so a round goes through many.
    StoreOptions { durability, size_limit: Some(64 << 20) }
}

/// The dead letter of the message of this number.
fn letter(number: u64, message: Message) -> StoredLetter {
    StoredLetter {
        place: LetterPlace { dropped_ms: number, number: LetterNumber(10 * number + 1) },
        receiver: "pigeon".into(),
        cause: "parked".into(),
        code: None,
        attempts: 0,
        sent_ms: None,
        message,
    }
}

fn message(number: u64) -> Message {
    let payload = vec![number as u8; PAYLOAD];
    let parts = Parts {
        qos: QoS::AtLeastOnce,
        retain: false,
        expires: Instant::NEVER,
        topic: "t",
        forwarded: b"",
        payload: &payload,
    };
    Message::new(parts, &mut Vec::new())
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
    group.fold(Record::Body { number: body, message: message(n) });
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
        group.fold(Record::Letter(Arc::new(letter(old, message(old)))));
        if let Some(older) = old.checked_sub(LETTERS).filter(|older| *older > 0) {
            group.fold(Record::LetterDone(letter(older, message(older)).place.number));
        }
    }
    group
}

/// The child: commits until it is killed, and reports what the store said is safe.
#[test]
#[ignore = "the process whose power is lost; the tests beside it start it"]
fn drive_a_store() {
    let directory = std::env::var("POWER_LOSS_DIRECTORY").expect("started by a test");
    let durability = std::env::var("POWER_LOSS_DURABILITY").expect("started by a test");
    let mut store = LoggedStore::open(Path::new(&directory), options(&durability)).expect("opened");
    store.recover(Moment::now(), Duration::ZERO).expect("recovered");
    for n in 1.. {
        let mut group = group(n);
        // A busy machine may write the database more slowly than this.
        while let Err(error) = store.commit(&mut group) {
            assert!(matches!(error, StoreError::Behind(_)), "{error}");
        }
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

/// The fate of writes that were not synced.
#[derive(Clone, Copy, Debug)]
enum Unsynced {
    Lost,
    /// The first half of each is there.
    Torn,
}

impl Unsynced {
    fn tell(self, command: &mut Command) {
        if matches!(self, Unsynced::Torn) {
            command.env("POWER_LOSS_TORN", "1");
        }
    }
}

fn start_child(durability: &str, directory: &Path, images: &Path, unsynced: Unsynced) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    unsynced.tell(&mut command);
    command
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
    let mut store = LoggedStore::open(directory, options("commit")).map_err(|error| error.to_string())?;
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
    // Each message is in the queue or a dead letter.
    let first_letter = (last.saturating_sub(KEPT + LETTERS - 1)).max(1);
    let letters: Vec<u64> = recovered.letters.iter().map(|letter| letter.place.number.0 / 10).collect();
    if !letters.iter().copied().eq(first_letter..expected[0]) {
        return Err(format!("after {reported} commits the queue is {numbers:?}, the letters {letters:?}"));
    }
    if recovered.letters.iter().zip(&letters).any(|(l, n)| l.message.payload() != message(*n).payload()) {
        return Err("a letter is not what was stored".into());
    }
    let wanted: Vec<_> = numbers.iter().map(|n| (EntryNumber(*n), BodyNumber(10 * n))).collect();
    let read =
        store.reader().and_then(|mut reader| reader.entries(&wanted)).map_err(|error| error.to_string())?;
    let whole = read.iter().all(|e| e.message.payload() == vec![e.number.0 as u8; PAYLOAD]);
    if read.len() == wanted.len() && whole { Ok(()) } else { Err("a message is not what was stored".into()) }
}

/// One round: drive, lose power, look.
fn round(durability: &str, after: u64, unsynced: Unsynced) -> Result<(), String> {
    let work = tempfile::tempdir().expect("a directory");
    let images = Images::new(work.path());
    let child = start_child(durability, &images.directory, &images.images, unsynced);
    let reported = lose_power(child, after);
    let restored = images.restore();
    let outcome = check(&restored, durability, reported);
    println!("{durability}: killed after {after} commits, {unsynced:?}, {reported} reported: {outcome:?}");
    outcome
}

fn rounds(durability: &str) -> Vec<Result<(), String>> {
    let number = |name| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    let rounds = number("POWER_LOSS_ROUNDS").unwrap_or(ROUNDS);
    let seed = number("POWER_LOSS_SEED").unwrap_or_else(|| RandomState::new().hash_one(rounds));
    println!("POWER_LOSS_SEED={seed}");
    let step = |n: u64| (seed ^ n).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
    let unsynced = |n| [Unsynced::Lost, Unsynced::Torn][(n % 2) as usize];
    (0..rounds).map(|n| round(durability, 1 + step(n) % COMMITS, unsynced(n))).collect()
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

/// The proof that the test above can fail: without syncs of the log, commits that were reported are
/// lost, except those that the database had just taken.
#[test]
fn what_a_store_without_syncs_reported_is_seen_to_be_lost() {
    let lost = rounds("os").into_iter().filter(Result::is_err).count();
    assert!(lost > 0, "nothing was synced, and nothing is missing?");
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

/// The broker itself: a message that an operator moves is in one place, and where an answer said.
#[test]
fn a_message_is_in_its_queue_or_a_letter_exactly_one_over_a_power_loss() {
    for (round, unsynced) in [Unsynced::Lost, Unsynced::Torn, Unsynced::Torn].into_iter().enumerate() {
        let folder = tempfile::tempdir().expect("a directory");
        let images = Images::new(folder.path());
        let mut command = homing_serve();
        command.arg("--data-dir").arg(&images.directory).env("LD_PRELOAD", shim("power_loss"));
        command.env("POWER_LOSS_DIRECTORY", &images.directory).env("POWER_LOSS_IMAGES", &images.images);
        unsynced.tell(&mut command);
        let (mut broker, address) = Process::serve(&mut command);
        let mut pump = Operated::new("pump", RandomState::new().hash_one(round));
        pump.fill(address);
        let (acted, socket) = (AtomicU64::new(0), images.directory.join("homing.sock"));
        thread::scope(|scope| {
            scope.spawn(|| pump.operate(&socket, &acted));
            until("so many actions", || (acted.load(Ordering::Relaxed) >= 60).then_some(()));
            broker.kill();
        });
        let restored = images.restore();
        let (_broker, address) = Process::serve(homing_serve().arg("--data-dir").arg(&restored));
        let wrong = pump.check(address, &restored.join("homing.sock"));
        assert!(wrong.is_empty(), "{unsynced:?}:\n{}", wrong.join("\n"));
    }
}
