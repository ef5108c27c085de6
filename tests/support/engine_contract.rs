//! What an engine must do, whichever it is: the model in memory and the real one are held to it.

use bytes::Bytes;
use homing::cluster::engine::{Append, Engine, EngineError, MAX_FRAME, MAX_ROW, SnapshotError};
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::Duration;

/// Makes a node of one cluster, which no other case uses.
pub type Nodes<'a> = &'a dyn Fn() -> Arc<dyn Engine>;

/// A case: its name, and what it does with the nodes of a cluster that was not initialized.
pub type Case = (&'static str, fn(Nodes<'_>));

pub const CASES: [Case; 9] = [
    ("init", a_cluster_is_made_once),
    ("append", an_append_is_applied_behind_the_last_position_alone),
    ("claim", of_two_appends_at_one_position_one_is_applied),
    ("purge", a_purge_removes_the_beginning_and_never_reaches_behind_the_end),
    ("base", a_log_begins_behind_its_base),
    ("full", a_full_log_refuses_until_it_is_purged),
    ("rows", a_row_changes_by_its_revision),
    ("snapshots", a_snapshot_is_whole_or_not_there),
    ("tip", an_announcement_reaches_the_other_node),
];

/// The room of most logs, in bytes.
const ROOM: u64 = 64 * 1024 * 1024;
/// Attempts of what may need some, because a server lags or elects.
const ATTEMPTS: u32 = 200;

/// Appends with the care that an owner takes.
pub fn append(engine: &dyn Engine, last: u64, frame: &Bytes) {
    for _ in 0..ATTEMPTS {
        match engine.append(last, frame) {
            Append::Applied(position) => return assert_eq!(position, last + 1),
            Append::NotLast | Append::Unknown(_) => {
                if engine.read(last, 1).is_ok_and(|frames| frames.first() == Some(&(last + 1, frame.clone())))
                {
                    return;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
            other => panic!("append behind {last}: {other:?}"),
        }
    }
    panic!("the append behind {last} was never decided");
}

/// Makes the cluster, and waits until each node is told that it is there.
fn make(nodes: &[&Arc<dyn Engine>], room: u64) {
    patiently(|| nodes[0].init(room)).expect("made");
    let knows = |node: &dyn Engine| node.bounds().is_ok() && node.rows().is_ok() && node.snapshots().is_ok();
    for node in nodes {
        let mut attempts = 0..ATTEMPTS;
        while !knows(&***node) {
            attempts.next().expect("it is there some time");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Makes an attempt that must be refused, until its outcome is known.
pub fn refuse(engine: &dyn Engine, last: u64, frame: &Bytes, outcome: &Append) {
    let known = (0..ATTEMPTS).map(|_| engine.append(last, frame));
    let known = { known }.find(|outcome| !matches!(outcome, Append::Unknown(_)));
    assert_eq!(known.as_ref(), Some(outcome), "behind {last}");
}

/// Repeats a call that may be repeated, until it is answered in time.
pub fn patiently<T>(call: impl Fn() -> Result<T, EngineError>) -> Result<T, EngineError> {
    let is_late =
        |error: &EngineError| matches!(error, EngineError::TimedOut(_) | EngineError::Unavailable(_));
    let answers = (0..ATTEMPTS).map(|_| call());
    { answers }.find(|answer| !answer.as_ref().is_err_and(is_late)).expect("it is answered some time")
}

/// Swaps a row. Where the answer is lost, the row says whether it was swapped.
fn swap(engine: &dyn Engine, key: &str, expected: u64, value: &Bytes) -> Option<u64> {
    match engine.swap_row(key, expected, value.clone()) {
        Ok(revision) => revision,
        Err(_) => {
            std::thread::sleep(Duration::from_secs(5));
            let row = patiently(|| engine.row(key)).expect("an answer");
            row.filter(|row| row.value == *value).map(|row| row.revision)
        }
    }
}

/// Reads until the position `to` is reached.
pub fn read(engine: &dyn Engine, after: u64, to: u64) -> Vec<(u64, Bytes)> {
    let mut frames: Vec<(u64, Bytes)> = Vec::new();
    for _ in 0..ATTEMPTS {
        let from = frames.last().map_or(after, |frame| frame.0);
        if from >= to {
            return frames;
        }
        match engine.read(from, 1024 * 1024) {
            Ok(more) if !more.is_empty() => frames.extend(more),
            _ => std::thread::sleep(Duration::from_millis(50)),
        }
    }
    panic!("the read ends at {:?}, and {to} is there", frames.last());
}

fn a_cluster_is_made_once(nodes: Nodes<'_>) {
    let (a, b) = (nodes(), nodes());
    assert!(
        matches!(patiently(|| a.bounds()), Err(EngineError::Missing(_))),
        "{:?}",
        patiently(|| a.bounds())
    );
    assert!(matches!(patiently(|| a.row("alarm")), Err(EngineError::Missing(_))));
    assert!(matches!(patiently(|| a.snapshots()), Err(EngineError::Missing(_))));
    assert!(matches!(patiently(|| a.check()), Err(EngineError::Missing(_))));
    make(&[&a, &b], ROOM);
    for node in [&a, &b] {
        assert_eq!(patiently(|| node.check()).expect("settings").problems, Vec::<String>::new());
    }
    let bounds = patiently(|| b.bounds()).expect("both ends");
    assert_eq!((bounds.first, bounds.last, bounds.bytes, bounds.capacity), (1, 0, 0, ROOM));
    assert_eq!(patiently(|| b.snapshots()), Ok(Vec::new()));
    assert_eq!(patiently(|| b.rows()), Ok(Vec::new()));
    // As if the first one was killed before it wrote anything.
    patiently(|| b.init(ROOM)).expect("again");
    patiently(|| a.put_row("cluster", Bytes::new())).expect("written");
    for node in [&a, &b] {
        assert!(matches!(patiently(|| node.init(ROOM)), Err(EngineError::Refused(_))), "a second init");
    }
}

fn an_append_is_applied_behind_the_last_position_alone(nodes: Nodes<'_>) {
    let (a, b) = (nodes(), nodes());
    make(&[&a, &b], ROOM);
    assert_eq!(patiently(|| b.read(0, 1000)).expect("a read"), Vec::new());
    refuse(&*a, 1, &Bytes::from_static(b"x"), &Append::NotLast);
    let frames =
        [vec![1; 1], vec![2; 100], vec![3; MAX_FRAME], vec![4; 4096], vec![5; 4096]].map(Bytes::from);
    for (last, frame) in frames.iter().enumerate() {
        append(&*a, last as u64, frame);
    }
    for wrong in [0, 1, 4, 6, 1_000_000, u64::MAX / 2] {
        refuse(&*b, wrong, &frames[0], &Append::NotLast);
    }
    let large = Bytes::from(vec![0; MAX_FRAME + 1]);
    assert!(matches!(a.append(5, &large), Append::Refused(_)));
    let expected: Vec<(u64, Bytes)> = (1..).zip(frames).collect();
    assert!(read(&*b, 0, 5) == expected);
    assert!(read(&*a, 3, 5) == expected[3..]);
    // The last two fit together, and never less than one comes.
    for (after, bytes, to) in [(3, 12_000, 5), (3, 5_000, 4), (3, 1, 4), (2, 1, 3), (4, 1, 5)] {
        // A server that lags returns fewer.
        let is_all = |frames: &Vec<(u64, Bytes)>| frames.last().is_some_and(|frame| frame.0 >= to);
        let answers = (0..ATTEMPTS).filter_map(|_| a.read(after, bytes).ok());
        let frames = { answers }.find(is_all).expect("a whole answer");
        assert!(frames == expected[after as usize..to as usize], "{bytes} bytes behind {after}");
    }
    for end in [5, 6, u64::MAX - 1, u64::MAX] {
        assert_eq!(patiently(|| b.read(end, 1000)).expect("a read"), Vec::new(), "behind {end}");
    }
    let bounds = patiently(|| b.bounds()).expect("both ends");
    assert_eq!((bounds.first, bounds.last), (1, 5));
    assert!(bounds.bytes > MAX_FRAME as u64 && bounds.bytes < 2 * MAX_FRAME as u64, "{bounds:?}");
}

fn of_two_appends_at_one_position_one_is_applied(nodes: Nodes<'_>) {
    let claimants = [nodes(), nodes()];
    make(&[&claimants[0], &claimants[1]], ROOM);
    let rounds = rounds();
    for last in 0..rounds {
        let outcomes: Vec<Append> = std::thread::scope(|scope| {
            let claim = |name: u8| {
                let claimant = &claimants[usize::from(name)];
                scope.spawn(move || claimant.append(last, &Bytes::from(vec![name; 20])))
            };
            [claim(0), claim(1)].map(|claim| claim.join().expect("an outcome")).into()
        });
        let frame = read(&*claimants[0], last, last + 1).remove(0).1;
        let winner = usize::from(frame[0]);
        // A busy machine may delay an answer, and then the log says it.
        let is_known = |outcome: &Append| !matches!(outcome, Append::Unknown(_));
        assert!(
            !is_known(&outcomes[winner]) || outcomes[winner] == Append::Applied(last + 1),
            "{outcomes:?}"
        );
        let loser = &outcomes[1 - winner];
        assert!(!is_known(loser) || *loser == Append::NotLast, "{outcomes:?}");
    }
    assert_eq!(patiently(|| claimants[1].bounds()).expect("both ends").last, rounds);
}

/// Rounds in which two claim: 100, or as the environment says.
fn rounds() -> u64 {
    std::env::var("CLAIM_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(100)
}

fn a_purge_removes_the_beginning_and_never_reaches_behind_the_end(nodes: Nodes<'_>) {
    let a = nodes();
    make(&[&a], ROOM);
    assert!(matches!(patiently(|| a.purge(1)), Err(EngineError::Refused(_))), "of an empty log");
    (0..10).for_each(|last| append(&*a, last, &Bytes::from(vec![last as u8; 10])));
    patiently(|| a.purge(4)).expect("purged");
    let bounds = patiently(|| a.bounds()).expect("both ends");
    assert_eq!((bounds.first, bounds.last), (5, 10));
    // A replica may show the purged frames a little longer.
    let begins = (0..ATTEMPTS).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        a.read(0, 1).is_ok_and(|frames| frames.first().is_some_and(|frame| frame.0 == 5))
    });
    assert!(begins, "the first frame that is left is returned");
    patiently(|| a.purge(3)).expect("nothing to do");
    assert!(matches!(patiently(|| a.purge(11)), Err(EngineError::Refused(_))), "behind the end");
    patiently(|| a.purge(10)).expect("purged");
    let bounds = patiently(|| a.bounds()).expect("both ends");
    assert_eq!((bounds.first, bounds.last, bounds.bytes), (11, 10, 0));
    append(&*a, 10, &Bytes::from_static(b"next"));
    assert_eq!(read(&*a, 10, 11), [(11, Bytes::from_static(b"next"))]);
}

fn a_log_begins_behind_its_base(nodes: Nodes<'_>) {
    let a = nodes();
    make(&[&a], ROOM);
    let bounds = || patiently(|| a.bounds()).map(|bounds| (bounds.first, bounds.last)).expect("both ends");
    (0..5).for_each(|last| append(&*a, last, &Bytes::from(vec![last as u8; 10])));
    (0..2).for_each(|_| patiently(|| a.begin_behind(1 << 20)).expect("moved"));
    assert_eq!(bounds(), ((1 << 20) + 1, 1 << 20));
    refuse(&*a, 5, &Bytes::from_static(b"late"), &Append::NotLast);
    append(&*a, 1 << 20, &Bytes::from_static(b"next"));
    append(&*a, (1 << 20) + 1, &Bytes::from_static(b"and"));
    patiently(|| a.begin_behind(1 << 20)).expect("nothing to do");
    assert_eq!(bounds(), ((1 << 20) + 1, (1 << 20) + 2));
    let frames = read(&*a, 1 << 20, (1 << 20) + 2);
    assert_eq!(frames.first(), Some(&((1 << 20) + 1, Bytes::from_static(b"next"))));
}

fn a_full_log_refuses_until_it_is_purged(nodes: Nodes<'_>) {
    let a = nodes();
    make(&[&a], 1024 * 1024);
    let frame = Bytes::from(vec![7; 200 * 1024]);
    let mut last = 0;
    while last < 10 && a.append(last, &frame) != Append::Full {
        append(&*a, last, &frame);
        last += 1;
    }
    assert!((4..=5).contains(&last), "{last} frames of 200 KiB fill a log of 1 MiB");
    refuse(&*a, last, &frame, &Append::Full);
    assert_eq!(patiently(|| a.bounds()).expect("both ends").last, last, "nothing was applied");
    patiently(|| a.purge(2)).expect("purged");
    append(&*a, last, &frame);
}

fn a_row_changes_by_its_revision(nodes: Nodes<'_>) {
    let (a, b) = (nodes(), nodes());
    make(&[&a, &b], ROOM);
    let value = |text: &'static str| Bytes::from_static(text.as_bytes());
    let row = |key: &str| patiently(|| b.row(key)).expect("an answer").map(|row| (row.value, row.revision));
    assert_eq!(row("node/a"), None);
    let first = swap(&*a, "node/a", 0, &value("one")).expect("it was not there");
    assert_eq!(row("node/a"), Some((value("one"), first)));
    assert_eq!(swap(&*b, "node/a", 0, &value("again")), None);
    let second = swap(&*b, "node/a", first, &value("two")).expect("the revision");
    assert!(second > first && first > 0);
    assert_eq!(swap(&*a, "node/a", first, &value("late")), None);
    let other = patiently(|| a.put_row("alarm", Bytes::new())).expect("written");
    let stored = patiently(|| b.row("alarm")).expect("an answer").and_then(|row| row.stored_ms);
    let (stored, clock) = (stored.expect("its time"), patiently(|| b.clock_ms()).expect("an answer"));
    let age = clock.expect("a time").saturating_sub(stored);
    assert!(stored > 0 && age < 60_000, "the row was stored {age} ms ago");
    let third = patiently(|| a.put_row("node/a", value("three"))).expect("written");
    assert!(third > other && other > second);
    let all = patiently(|| b.rows()).expect("all").into_iter().map(|(key, row)| (key, row.value));
    assert_eq!(
        all.collect::<Vec<_>>(),
        [("alarm".to_owned(), Bytes::new()), ("node/a".to_owned(), value("three"))]
    );
    (0..2).for_each(|_| patiently(|| a.remove_row("node/a")).expect("gone"));
    assert_eq!(row("node/a"), None);
    assert_eq!(swap(&*b, "node/a", third, &value("late")), None);
    assert!(swap(&*b, "node/a", 0, &value("anew")).is_some_and(|revision| revision > third));
    for key in ["", ".", "a..b", "a b", "a*", ">", "\u{e9}", &"k".repeat(129)] {
        assert!(
            matches!(patiently(|| a.put_row(key, Bytes::new())), Err(EngineError::Refused(_))),
            "{key:?}"
        );
    }
    patiently(|| a.put_row(&"k".repeat(128), Bytes::from(vec![0; MAX_ROW]))).expect("the largest");
    let large = Bytes::from(vec![0; MAX_ROW + 1]);
    assert!(matches!(patiently(|| a.put_row("large", large.clone())), Err(EngineError::Refused(_))));
}

/// A source that fails after some bytes.
struct Broken(usize);

impl Read for Broken {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = into.len().min(self.0);
        self.0 -= count;
        if count == 0 { Err(io::Error::other("a bad sector")) } else { Ok(count) }
    }
}

/// A sink without room.
struct Full;

impl Write for Full {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::StorageFull.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn a_snapshot_is_whole_or_not_there(nodes: Nodes<'_>) {
    let (a, b) = (nodes(), nodes());
    make(&[&a, &b], ROOM);
    let content = |size: usize| -> Vec<u8> { (0..size).map(|at| (at / 251 + at) as u8).collect() };
    let get = |position: u64| {
        let mut into = Vec::new();
        b.get_snapshot(position, &mut into).map(|()| into)
    };
    assert!(matches!(get(5), Err(SnapshotError::Missing(5))));
    let sizes = [(5, 0), (70, 1), (800, 1_500_003)];
    for (position, size) in sizes {
        a.put_snapshot(position, &mut content(size).as_slice()).expect("stored");
    }
    for (position, size) in sizes {
        assert!(get(position).expect("fetched") == content(size), "the content of {position}");
    }
    let broken = a.put_snapshot(900, &mut Broken(400_000));
    assert!(matches!(broken, Err(SnapshotError::File(_))), "{broken:?}");
    assert!(matches!(get(900), Err(SnapshotError::Missing(900))));
    let full = b.get_snapshot(800, &mut Full);
    assert!(matches!(full, Err(SnapshotError::File(_))), "{full:?}");
    a.put_snapshot(70, &mut content(300_000).as_slice()).expect("replaced");
    assert!(get(70).expect("fetched") == content(300_000), "the content that replaced another");
    assert_eq!(patiently(|| b.snapshots()), Ok(vec![5, 70, 800]));
    patiently(|| b.remove_snapshots(800)).expect("removed");
    assert_eq!(patiently(|| a.snapshots()), Ok(vec![800]));
    assert!(matches!(get(70), Err(SnapshotError::Missing(70))));
    assert!(get(800).expect("fetched") == content(1_500_003), "the others stay");
}

fn an_announcement_reaches_the_other_node(nodes: Nodes<'_>) {
    let (a, b) = (nodes(), nodes());
    make(&[&a, &b], ROOM);
    // A node that has just connected may miss what is announced in its first moments.
    let heard = (0..ATTEMPTS).find_map(|_| {
        a.announce(7);
        b.wait_for_tip(6, Duration::from_millis(100))
    });
    assert_eq!(heard, Some(7));
    a.announce(9);
    let later = (0..ATTEMPTS).find_map(|_| b.wait_for_tip(7, Duration::from_millis(100)));
    assert_eq!(later, Some(9));
    assert_eq!(b.wait_for_tip(9, Duration::from_millis(1)), None);
}
