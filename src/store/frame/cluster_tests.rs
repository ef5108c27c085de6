//! Frames of a cluster: what comes back, and what is refused.

use super::cluster::*;
use super::tests::{group, head};
use super::*;
use crate::ownership::Claim;
use std::time::Duration;

const CLAIM: Claim = Claim {
    node: u16::MAX,
    directory: u64::MAX,
    boot: 7,
    epoch: 1 << 40,
    lease: Duration::from_millis(4_000),
};

fn in_cell() -> Head {
    Head { cell: 3, epoch: 9, ..head() }
}

fn signs() -> [FrameKind; 3] {
    [FrameKind::Claim(CLAIM), FrameKind::Beat, FrameKind::Release]
}

#[test]
fn a_sign_comes_back_with_its_cell_and_epoch() {
    for kind in signs() {
        let mut bytes = Vec::new();
        let digest = put_sign(&mut bytes, &in_cell(), kind);
        let ((frame, head, own), found) = check_sign(&bytes).expect("a frame");
        assert_eq!((frame.len(), head, own, found), (bytes.len(), in_cell(), digest, kind));
    }
}

#[test]
fn a_group_comes_back_from_pieces_of_any_size() {
    let body = GroupBody::of(&group(), FileTime::default());
    let whole = {
        let mut bytes = Vec::new();
        encode(&mut bytes, &head(), &group(), FileTime::default());
        format!("{:?}", read(check(&bytes, head().log).expect("whole")).expect("a group").operations)
    };
    for piece in [1, 7, body.len() - 1, body.len(), body.len() + 1] {
        let mut before = Vec::new();
        let pieces = body.pieces(piece);
        assert_eq!(pieces, body.len().div_ceil(piece));
        for number in 0..pieces {
            let mut bytes = Vec::new();
            body.put_piece(&mut bytes, &in_cell(), number, piece);
            let (checked, kind) = check_sign(&bytes).expect("a frame");
            if number + 1 < pieces {
                assert_eq!(kind, FrameKind::Fragment);
                before.extend_from_slice(body_of(checked.0));
            } else {
                assert_eq!(kind, FrameKind::Group);
                let frame = read_group(&before, checked).expect("a group");
                assert_eq!(format!("{:?}", frame.operations), whole);
            }
        }
    }
}

#[test]
fn an_empty_group_is_one_frame() {
    let body = GroupBody::of(&CommitGroup::default(), FileTime::default());
    assert!(body.is_empty() && body.pieces(10) == 1);
    let mut bytes = Vec::new();
    body.put_piece(&mut bytes, &in_cell(), 0, 10);
    let (checked, kind) = check_sign(&bytes).expect("a frame");
    assert_eq!(kind, FrameKind::Group);
    assert!(read_group(&[], checked).expect("a group").operations.is_empty());
}

#[test]
fn a_broker_by_itself_refuses_the_frames_of_a_cluster() {
    for kind in signs() {
        let mut bytes = Vec::new();
        put_sign(&mut bytes, &in_cell(), kind);
        let refused = check(&bytes, head().log).expect_err("it is refused");
        assert_eq!(refused.to_string(), "it has a kind that only the log of a cluster has");
    }
}

#[test]
fn what_is_cut_changed_or_too_long_is_refused() {
    let mut bytes = Vec::new();
    put_sign(&mut bytes, &in_cell(), FrameKind::Claim(CLAIM));
    for at in 0..bytes.len() {
        assert!(check_sign(&bytes[..at]).is_err(), "cut at {at}");
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x10;
        assert!(check_sign(&flipped).is_err(), "flipped at {at}");
    }
    bytes.push(0);
    assert_eq!(check_sign(&bytes).map(drop), Err(FrameError::Content("bytes behind its end")));
}

#[test]
fn a_claim_of_no_node_is_refused() {
    let long = Claim { lease: Duration::MAX, ..CLAIM };
    let mut bytes = Vec::new();
    put_sign(&mut bytes, &in_cell(), FrameKind::Claim(long));
    let (_, kind) = check_sign(&bytes).expect("the longest lease stands for it");
    assert_eq!(kind, FrameKind::Claim(Claim { lease: Duration::from_secs(86_400), ..CLAIM }));
    let mut empty = Vec::new();
    encode_with(&mut empty, &in_cell(), 1, |_| 0);
    assert!(matches!(check_sign(&empty), Err(FrameError::Content(_))));
}
