//! A node that follows: its database is a prefix of the log, whatever the frames come in.

use super::follower::{Arrival, Follower, Next};
use super::tail::{Made, Tail, Unfit};
use crate::config::DurabilityLevel;
use crate::ownership::{ChainBreak, Claim, Fitness};
use crate::persistence::records::Record;
use crate::store::coalesce::CommitGroup;
use crate::store::database::Database;
use crate::store::frame::cluster::{FrameKind, GroupBody};
use crate::store::replicated::NextGroup;
use crate::store::sqlite::base::adopt;
use crate::store::sqlite::directory::database_in;
use crate::store::sqlite::{Mark, Sqlite, SqliteOptions};
use crate::store::tests::{body, entry, message, rows, session};
use crate::store::wall::{FileTime, Heartbeat, resume};
use crate::store::{Boot, Moment};
use crate::time::Instant;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

pub(super) const LOG: u64 = 77;
/// A time at which what the node has read is old enough to be written.
const LATER: Instant = Instant::from_millis(60_000);

/// A frame of the past, which is read at this moment.
pub(super) const LATE: Arrival =
    Arrival::Late(Moment { monotonic: Instant::ZERO, unix_millis: 1_800_000_000_000, boot: None });

pub(super) fn open(data: &Path) -> Sqlite {
    let options = SqliteOptions { durability: DurabilityLevel::Os, size_limit: None };
    Sqlite::open(data, options).expect("a database")
}

/// A node that follows.
pub(super) struct Node {
    pub(super) follower: Follower,
    tail: Tail,
}

impl Node {
    pub(super) fn start(data: &Path) -> Node {
        let follower = Follower::new(open(data)).expect("a follower");
        let tail = Tail::new(LOG, 0, follower.mark());
        Node { follower, tail }
    }

    fn read(&self, position: u64, bytes: &[u8]) -> Result<Next, Unfit> {
        self.follower.read(&self.tail, position, bytes)
    }

    /// Takes the frames behind the end that it has.
    pub(super) fn follow(&mut self, frames: &[Made], arrival: Arrival) -> Result<(), Unfit> {
        let from = self.tail.mark().position as usize;
        for (index, made) in frames.iter().enumerate().skip(from) {
            let next = self.read(index as u64 + 1, &made.bytes)?;
            let now = Instant::from_millis(1);
            self.follower.take(&mut self.tail, next, &made.bytes, arrival, now);
        }
        Ok(())
    }

    /// Writes what it has read into its database.
    pub(super) fn write(&mut self) {
        self.follower.write_due(LATER).expect("written");
    }
}

pub(super) fn claim(epoch: u64) -> FrameKind {
    FrameKind::Claim(Claim { node: 1, directory: 5, boot: 6, epoch, lease: Duration::from_secs(4) })
}

fn at(file_millis: u64) -> Heartbeat {
    Heartbeat { file_millis, unix_millis: 1, boot: Some(Boot { id: 9, millis: 2 }) }
}

/// A session, and a message for it.
fn group(number: u64) -> CommitGroup {
    let mut group = CommitGroup::default();
    if number == 10 {
        group.fold(Record::Session(Box::new(session(1, "pump"))));
    }
    group.fold(body(number, message("pumps/7", Instant::NEVER, b"on")));
    group.fold(Record::Entry(Box::new(entry(number + 1, 1, number))));
    group.seal();
    group
}

fn next(number: u64) -> NextGroup {
    next_of(&group(number), number)
}

/// Returns a group on its way into the log, as of so many milliseconds after its beginning.
fn next_of(group: &CommitGroup, number: u64) -> NextGroup {
    let body = GroupBody::of(group, FileTime::default());
    NextGroup { body, next_number: number + 2, moment: at(1_700_000_000_000 + number) }
}

/// A log as its owner writes it.
pub(super) struct Owner {
    tail: Tail,
    pub(super) frames: Vec<Made>,
}

impl Owner {
    pub(super) fn new() -> Owner {
        let mut owner = Owner { tail: Tail::new(LOG, 0, Mark::default()), frames: Vec::new() };
        owner.sign(claim(1));
        owner
    }

    fn add(&mut self, made: Made) {
        self.tail.advance_made(&made);
        self.frames.push(made);
    }

    pub(super) fn sign(&mut self, kind: FrameKind) {
        self.add(self.tail.make_sign(kind, at(1_700_000_000_000)));
    }

    pub(super) fn group(&mut self, number: u64, piece: usize) {
        self.store(&group(number), number, piece);
    }

    /// Stores a group, as of so many milliseconds after the beginning, in pieces of so many bytes.
    pub(super) fn store(&mut self, group: &CommitGroup, millis: u64, piece: usize) {
        let next = next_of(group, millis);
        for part in 0..next.body.pieces(piece) {
            self.add(self.tail.make_piece(&next, part, piece));
        }
    }

    /// Stores the first piece of a group, if it has several.
    pub(super) fn begin_to_store(&mut self, group: &CommitGroup, millis: u64, piece: usize) {
        let next = next_of(group, millis);
        if next.body.pieces(piece) > 1 {
            self.add(self.tail.make_piece(&next, 0, piece));
        }
    }
}

pub(super) fn directories<const N: usize>() -> [TempDir; N] {
    [(); N].map(|()| tempfile::tempdir().expect("a directory"))
}

#[test]
fn a_database_has_what_the_log_says_whatever_the_pieces_and_the_restarts() {
    let [whole, pieces, restarted] = directories();
    let mut owners = [Owner::new(), Owner::new()];
    for (owner, piece) in owners.iter_mut().zip([usize::MAX >> 1, 7]) {
        owner.group(10, piece);
        owner.sign(FrameKind::Beat);
        owner.group(20, piece);
    }
    let mut one = Node::start(whole.path());
    one.follow(&owners[0].frames, LATE).expect("the log continues");
    let (database, mark) = one.follower.finish().expect("applied");
    assert_eq!((mark.position, mark.owner.map(|owner| owner.claim.epoch)), (4, Some(1)));
    drop(database);
    let wanted = rows(whole.path());
    assert!(wanted.iter().any(|row| row.starts_with("entry")), "{wanted:?}");

    let mut other = Node::start(pieces.path());
    other.follow(&owners[1].frames, LATE).expect("the log continues");
    drop(other.follower.finish().expect("applied"));
    assert_eq!(rows(pieces.path()), wanted);

    // A process that ends anywhere goes on from its database, and reads the pieces of a group again.
    let frames = &owners[1].frames;
    for stop in 1..frames.len() {
        let mut first = Node::start(restarted.path());
        first.follow(&frames[..stop], LATE).expect("the log continues");
        first.write();
    }
    let mut last = Node::start(restarted.path());
    last.follow(frames, LATE).expect("the log continues");
    drop(last.follower.finish().expect("applied"));
    assert_eq!(rows(restarted.path()), wanted);
}

#[test]
fn a_group_is_taken_up_to_the_bound_that_its_owner_keeps_and_not_beyond() {
    let mut owner = Owner::new();
    owner.group(10, 7);
    let bytes = next(10).body.len();
    // However many pieces it comes in: the last one counts, too.
    for (most, is_taken) in [(bytes, true), (bytes - 1, false)] {
        let data = tempfile::tempdir().expect("a directory");
        let mut node = Node::start(data.path());
        node.follower.bound_groups(most);
        assert_eq!(node.follow(&owner.frames, LATE).is_ok(), is_taken, "{most}");
    }
}

#[test]
fn pieces_of_an_owner_that_is_gone_are_dropped() {
    let [data] = directories();
    let mut owner = Owner::new();
    owner.group(10, 1 << 20);
    let next = next(20);
    owner.add(owner.tail.make_piece(&next, 0, 7));
    owner.sign(claim(2));
    owner.group(30, 1 << 20);
    let mut node = Node::start(data.path());
    node.follow(&owner.frames, LATE).expect("the log continues");
    let (_, mark) = node.follower.finish().expect("applied");
    assert_eq!(mark.owner.map(|owner| owner.claim.epoch), Some(2));
    let bodies = rows(data.path()).iter().filter(|row| row.starts_with("body")).count();
    assert_eq!(bodies, 2, "those of the groups 10 and 30");
}

#[test]
fn a_frame_that_does_not_continue_the_log_is_not_taken() {
    let [data] = directories();
    let (mut owner, mut other) = (Owner::new(), Owner::new());
    owner.sign(FrameKind::Beat);
    other.group(10, 1 << 20);
    other.sign(FrameKind::Beat);
    let mut node = Node::start(data.path());
    node.follow(&owner.frames, LATE).expect("the log continues");
    let changed = node.read(3, &other.frames[2].bytes).expect_err("another predecessor");
    assert!(matches!(changed, Unfit::Broken(ChainBreak::AnotherPredecessor(_))), "{changed}");
    let moved = node.read(4, &other.frames[1].bytes).expect_err("another position");
    assert!(matches!(moved, Unfit::Broken(ChainBreak::AnotherPosition { .. })), "{moved}");
    let foreign = Tail::new(LOG + 1, 0, owner.tail.mark()).make_sign(FrameKind::Beat, at(1));
    let foreign = node.read(3, &foreign.bytes).expect_err("another log");
    assert!(matches!(foreign, Unfit::Broken(ChainBreak::AnotherLog { .. })), "{foreign}");
    assert!(matches!(node.read(3, b"no frame"), Err(Unfit::Unreadable(_))));
    assert_eq!(node.tail.mark().position, 2);
}

/// The boot of the machine of a node.
const BOOT: Boot = Boot { id: 1, millis: 500 };

/// Returns an owner that has written one group, and a node that has read it at once.
fn one_frame_just_now(data: &Path) -> (Owner, Node) {
    let mut owner = Owner::new();
    owner.group(10, 1 << 20);
    let mut node = Node::start(data);
    let now = Moment { monotonic: Instant::ZERO, unix_millis: 42, boot: Some(BOOT) };
    node.follow(&owner.frames, Arrival::Now(now)).expect("the log continues");
    (owner, node)
}

#[test]
fn a_frame_that_came_just_now_has_the_clocks_of_this_node() {
    let [data] = directories();
    let (_, node) = one_frame_just_now(data.path());
    let (database, _) = node.follower.finish().expect("applied");
    let heartbeat = database.heartbeat().expect("read").expect("one");
    assert_eq!((heartbeat.unix_millis, heartbeat.boot), (42, Some(BOOT)));
    assert_eq!(heartbeat.file_millis, 1_700_000_000_010, "the time of the file is that of the log");
}

#[test]
fn a_late_frame_counts_on_by_the_clocks_of_this_node() {
    let [data] = directories();
    let (mut owner, node) = one_frame_just_now(data.path());
    drop(node.follower.finish().expect("applied"));
    // The process starts again, and the log has gone on. Then the node claims.
    owner.group(2_010, 1 << 20);
    let mut node = Node::start(data.path());
    node.follow(&owner.frames, LATE).expect("the log continues");
    let claim = node.tail.make_sign(claim(2), node.follower.mark().moment);
    node.tail.advance_made(&claim);
    let (database, _) = node.follower.end_with(&node.tail, &claim, LATER).expect("applied");
    let heartbeat = database.heartbeat().expect("read").expect("one");
    assert_eq!((heartbeat.unix_millis, heartbeat.boot), (2_042, Some(Boot { id: 1, millis: 2_500 })));
    assert_eq!(heartbeat.file_millis, 1_700_000_002_010);
}

#[test]
fn a_node_that_begins_with_the_database_of_another_counts_no_time_by_its_clocks() {
    let [data] = directories();
    let (mut owner, node) = one_frame_just_now(data.path());
    drop(node.follower.finish().expect("applied"));
    adopt(&database_in(data.path()), 8).expect("written");
    // A week ahead of the other machine.
    let read = Moment { monotonic: Instant::from_millis(9), unix_millis: 42 + 604_800_000, boot: None };
    let claims = |node: &Node| resume(Some(node.follower.mark().moment), read).down;
    let mut node = Node::start(data.path());
    assert_eq!(claims(&node), Duration::ZERO, "it claims before it has read a frame");
    // One that is old already: it counts from when it was read.
    owner.group(2_010, 1 << 20);
    node.follow(&owner.frames, Arrival::Late(read)).expect("the log continues");
    assert_eq!(node.follower.mark().moment.unix_millis, read.unix_millis);
    assert_eq!(claims(&node), Duration::ZERO);
}

#[test]
fn frames_that_come_during_a_write_are_in_the_next_one() {
    let [whole, data] = directories();
    let mut owner = Owner::new();
    owner.group(10, 1 << 20);
    let first = owner.frames.len();
    owner.group(20, 1 << 20);
    owner.sign(claim(2));
    owner.group(30, 1 << 20);
    let mut at_once = Node::start(whole.path());
    at_once.follow(&owner.frames, LATE).expect("the log continues");
    drop(at_once.follower.finish().expect("applied"));

    let mut node = Node::start(data.path());
    node.follow(&owner.frames[..first], LATE).expect("the log continues");
    assert_eq!(node.follower.writes().fitness().expect("figures"), Fitness::Fit);
    let write = node.follower.writes().next(LATER).expect("it is due");
    node.follow(&owner.frames, LATE).expect("the log continues");
    assert_eq!(node.follower.mark().position, owner.frames.len() as u64, "the node goes on reading");
    assert!(node.follower.writes().next(LATER).is_none(), "one write at a time");
    assert_eq!(node.follower.writes().fitness().expect("figures"), Fitness::Unfit);
    let database = write.run().expect("written");
    assert_eq!(database.mark().expect("a mark").position, first as u64, "a prefix of the log");
    node.follower.writes().done(database);
    let write = node.follower.writes().next(LATER).expect("it is due");
    node.follower.writes().done(write.run().expect("written"));
    assert!(node.follower.writes().next(LATER).is_none(), "nothing is left");
    drop(node);
    assert_eq!(rows(data.path()), rows(whole.path()));
}

#[test]
fn a_process_that_ends_within_a_write_leaves_a_prefix_of_the_log() {
    let [whole, data] = directories();
    let mut owner = Owner::new();
    owner.group(10, 1 << 20);
    owner.sign(claim(2));
    owner.group(20, 1 << 20);
    let mut at_once = Node::start(whole.path());
    at_once.follow(&owner.frames, LATE).expect("the log continues");
    drop(at_once.follower.finish().expect("applied"));

    // The Claims are the frames 1 and 3, and each is a part of its own.
    for position in 1..=4 {
        let mut node = Node::start(data.path());
        node.follow(&owner.frames, LATE).expect("the log continues");
        let mut write = node.follower.writes().next(LATER).expect("it is due");
        assert!(write.step().expect("written"));
        drop((node, write));
        assert_eq!(open(data.path()).mark().expect("a mark").position, position);
    }
    assert_eq!(rows(data.path()), rows(whole.path()));
}
