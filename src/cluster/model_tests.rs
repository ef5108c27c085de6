//! The model of the engine does what an engine must do, and has the faults that it names.

use super::engine::{Append, Engine, EngineError};
use super::engine_contract::CASES;
use super::memory_engine::{Fate, MemoryCluster};
use bytes::Bytes;
use std::sync::Arc;

fn frame(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

fn is_unknown(outcome: &Append) -> bool {
    matches!(outcome, Append::Unknown(_))
}

#[test]
fn the_model_does_what_an_engine_must_do() {
    for (_, case) in CASES {
        let cluster = MemoryCluster::new();
        case(&|| Arc::new(cluster.node(0)));
    }
}

#[test]
fn cells_have_logs_of_their_own_and_share_the_rows() {
    let cluster = MemoryCluster::initialized();
    let (first, second) = (cluster.node(0), cluster.node(1));
    assert!(matches!(second.bounds(), Err(EngineError::Missing(_))));
    second.init(1000).expect("made");
    assert_eq!(first.append(0, &frame("a")), Append::Applied(1));
    assert_eq!(second.append(0, &frame("b")), Append::Applied(1));
    first.put_row("alarm", frame("c")).expect("written");
    assert_eq!(second.row("alarm").expect("an answer").expect("a row").value, frame("c"));
}

#[test]
fn an_append_without_an_answer_is_applied_or_not() {
    let cluster = MemoryCluster::initialized();
    let node = cluster.node(0);
    cluster.decide(0, &[Fate::LostRequest, Fate::LostAnswer]);
    assert!(is_unknown(&node.append(0, &frame("a"))));
    assert_eq!(node.read(0, 10), Ok(vec![]));
    assert!(is_unknown(&node.append(0, &frame("a"))));
    assert_eq!(node.append(0, &frame("a")), Append::NotLast);
    assert_eq!(node.read(0, 10), Ok(vec![(1, frame("a"))]));
}

#[test]
fn a_pending_frame_refuses_its_own_retry_until_it_is_settled() {
    let cluster = MemoryCluster::initialized();
    let node = cluster.node(0);
    for (is_applied, last) in [(false, 0), (true, 1)] {
        cluster.decide(0, &[Fate::Pending]);
        assert!(is_unknown(&node.append(0, &frame("a"))));
        assert_eq!(node.append(0, &frame("a")), Append::NotLast);
        assert!(is_unknown(&node.append(1, &frame("b"))), "the leader counts it");
        assert_eq!(node.read(0, 10), Ok(vec![]));
        cluster.settle(0, is_applied);
        assert_eq!(node.bounds().expect("both ends").last, last);
    }
    assert_eq!(node.append(1, &frame("b")), Append::Applied(2));
}

#[test]
fn without_a_leader_only_frames_are_read() {
    let cluster = MemoryCluster::initialized();
    let node = cluster.node(0);
    assert_eq!(node.append(0, &frame("a")), Append::Applied(1));
    cluster.set_leaderless(true);
    assert!(is_unknown(&node.append(1, &frame("b"))));
    assert!(matches!(node.bounds(), Err(EngineError::Unavailable(_))));
    assert!(matches!(node.rows(), Err(EngineError::Unavailable(_))));
    assert_eq!(node.read(0, 10), Ok(vec![(1, frame("a"))]));
    cluster.set_leaderless(false);
    assert_eq!(node.append(1, &frame("b")), Append::Applied(2));
}

#[test]
fn a_replica_lags_and_frames_are_lost_and_changed() {
    let cluster = MemoryCluster::initialized();
    let node = cluster.node(0);
    for last in 0..3 {
        assert_eq!(node.append(last, &frame("a")), Append::Applied(last + 1));
    }
    cluster.set_lag(2);
    assert_eq!(node.read(0, 10).expect("a read").len(), 1);
    assert_eq!(node.bounds().expect("both ends").last, 3);
    cluster.set_lag(0);
    cluster.change(0, 2, frame("b"));
    assert_eq!(node.read(1, 1), Ok(vec![(2, frame("b"))]));
    cluster.lose(0, 2);
    assert_eq!(node.bounds().expect("both ends").last, 1);
    assert_eq!(node.append(1, &frame("c")), Append::Applied(2));
}
