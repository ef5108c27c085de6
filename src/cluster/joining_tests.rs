//! A node that joins by a snapshot has what a node has that followed all along.

use super::engine::{Append, Engine};
use super::follower_tests::{LATE, LOG, Node, Owner, claim, directories, open};
use super::memory_engine::MemoryCluster;
use super::row::{ClusterRow, Pointer, SNAPSHOT};
use super::snapshots::catch_up;
use super::tail::Made;
use crate::store::coalesce::tests::any_groups;
use crate::store::frame::cluster::FrameKind;
use crate::store::sqlite::base::{copy_database, mark_of};
use crate::store::sqlite::directory::database_in;
use crate::store::tests::rows;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use std::fs::File;
use std::path::Path;

/// The kinds of the steps of a history: all, and more of those of a delivery of QoS 2. Else most would end
/// before they have been sent and received.
const KINDS: [u8; 36] = [
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, //
    5, 7, 7, 7, 7, 7, 8, 8, 8, 8, 8, 9, 9, 9, 12, 13,
];

/// What an owner does before a group.
#[derive(Clone, Copy, Debug)]
enum Before {
    Nothing,
    Beat,
    /// Another owner begins.
    Claim,
    /// The same, when the first piece of the group was stored.
    ClaimWithin,
}

/// Returns the frames of a log with these groups.
fn log_of(steps: Vec<(u8, usize)>, cuts: &[usize], before: &[Before], piece: usize) -> Vec<Made> {
    let (mut owner, mut epoch) = (Owner::new(), 1);
    for ((at, group), before) in (1..).zip(any_groups(steps, cuts)).zip(before.iter().cycle()) {
        match before {
            Before::Nothing => {}
            Before::Beat => owner.sign(FrameKind::Beat),
            Before::Claim | Before::ClaimWithin => {
                if let Before::ClaimWithin = before {
                    owner.begin_to_store(&group, at, piece);
                }
                epoch += 1;
                owner.sign(claim(epoch));
            }
        }
        owner.store(&group, at, piece);
    }
    owner.frames
}

/// A node follows a log frame by frame, and writes each of these times. Its database is copied behind two
/// frames. Returns the positions of the copies.
fn follow_all_along(data: &Path, frames: &[Made], writes: &[bool], copied: [(usize, &Path); 2]) -> [u64; 2] {
    let mut database = open(data);
    database.set_log_id(LOG).expect("written");
    database.join_cluster(1).expect("written");
    drop(database);
    let (mut node, mut positions) = (Node::start(data), [0; 2]);
    for (end, writes) in (1..=frames.len()).zip(writes.iter().cycle()) {
        node.follow(&frames[..end], LATE).expect("the log continues");
        // Nobody makes a snapshot of an empty database.
        if *writes || end == 1 {
            node.write();
        }
        for (position, (_, to)) in positions.iter_mut().zip(copied).filter(|(_, (at, _))| *at == end) {
            copy_database(&database_in(data), to, || true).expect("copied");
            *position = mark_of(to).expect("a database").1.position;
        }
    }
    drop(node.follower.finish().expect("written"));
    positions
}

proptest! {
    // Each case makes four databases.
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn a_node_that_joined_past_a_damaged_snapshot_has_what_one_has_that_followed_all_along(
        steps in prop::collection::vec((select(&KINDS[..]), 0_usize..64), 0..400),
        cuts in prop::collection::vec(1_usize..20, 1..20),
        before in prop::collection::vec(
            select(&[Before::Nothing, Before::Nothing, Before::Beat, Before::Claim, Before::ClaimWithin][..]),
            1..20,
        ),
        piece in select(&[40, 200, 1 << 20][..]),
        writes in prop::collection::vec(any::<bool>(), 1..20),
        copies in any::<[Index; 2]>(),
        restart in any::<Index>(),
    ) {
        let [followed, joined, snapshots] = directories();
        let frames = log_of(steps, &cuts, &before, piece);
        let mut copies = copies.map(|index| index.index(frames.len()) + 1);
        copies.sort_unstable();
        let paths = ["older.db", "newer.db"].map(|name| snapshots.path().join(name));
        let copied = [(copies[0], paths[0].as_path()), (copies[1], paths[1].as_path())];
        let [older, newer] = follow_all_along(followed.path(), &frames, &writes, copied);

        let engine = MemoryCluster::initialized().node(0);
        for (position, made) in (1..).zip(&frames) {
            prop_assert_eq!(engine.append(position - 1, &made.bytes), Append::Applied(position));
        }
        engine.put_snapshot(newer, &mut &b"no database"[..]).expect("stored");
        engine.put_snapshot(older, &mut File::open(&paths[0]).expect("a file")).expect("stored");
        let pointer = Pointer { position: newer, before: older };
        engine.put_row(SNAPSHOT, pointer.bytes()).expect("written");
        engine.purge(older).expect("purged");

        let cluster =
            ClusterRow { name: "plant".into(), log: LOG, cells: 1, begins: None, previous: Vec::new() };
        catch_up(&engine, joined.path(), &cluster, 9).expect("the older snapshot");
        prop_assert_eq!(mark_of(&database_in(joined.path())).expect("a database").1.position, older);
        // It is ended once on its way.
        let mut first = Node::start(joined.path());
        let end = older as usize + restart.index(frames.len() - older as usize + 1);
        first.follow(&frames[..end], LATE).expect("the log continues");
        first.write();
        drop(first);
        let mut node = Node::start(joined.path());
        node.follow(&frames, LATE).expect("the log continues");
        drop(node.follower.finish().expect("written"));
        prop_assert_eq!(rows(joined.path()), rows(followed.path()));
    }
}
