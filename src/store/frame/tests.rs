use super::*;
use crate::mqtt::packet::PacketId;
use crate::persistence::records::{BodyNumber, EntryNumber, Flight, Record, SessionKey};
use crate::store::tests::{body, entry, letter, message, session};
use crate::time::Instant;
use std::sync::Arc;

fn head() -> Head {
    Head {
        position: 7,
        moment: Heartbeat {
            file_millis: 1_700_000_000_000,
            unix_millis: 1_700_000_000_500,
            boot: Some(Boot { id: 3, millis: 9 }),
        },
        next_number: 1 << 20,
        synced: 6,
        log: 5,
        predecessor: Digest::of(b"before"),
    }
}

fn group() -> CommitGroup {
    let mut group = CommitGroup::default();
    group.fold(Record::Session(Box::new(session(4, "pump"))));
    group.fold(body(5, message("pumps/7", Instant::from_millis(99), b"on")));
    group.fold(Record::Entry(Box::new(entry(6, 4, 5))));
    group.fold(Record::Sent { number: EntryNumber(6), flight: Flight { running: 1, transmissions: 1 } });
    group.fold(Record::Received(EntryNumber(2)));
    group.fold(Record::Incoming { session: SessionKey(4), packet_id: PacketId::new(9).unwrap() });
    group.fold(Record::BodyDone(BodyNumber(1)));
    group.fold(Record::Letter(Arc::new(letter(8))));
    group.retain(RetainedRecord::Set(message("state", Instant::NEVER, b"x").into()));
    group.retain(RetainedRecord::Removed("old".into()));
    group.seal();
    group
}

fn bytes() -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut bytes, &head(), &group(), FileTime::default());
    bytes
}

/// Encodes what was decoded, which has file times already.
fn again(frame: &Frame) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_with(&mut bytes, &frame.head, |to| {
        operations::put_all(to, frame.operations.iter(), frame.retained.iter(), FileTime::default())
    });
    bytes
}

#[test]
fn a_frame_comes_back_with_its_fields_and_operations() {
    let bytes = bytes();
    let frame = decode(&bytes).unwrap();
    assert_eq!(frame.head, head());
    assert_eq!((frame.operations.len(), frame.retained.len(), frame.copies.len()), (7, 2, 0));
    assert_eq!(again(&frame), bytes);
}

#[test]
fn copies_of_bodies_come_back() {
    let copy =
        BodyCopy { from: BodyNumber(1), to: BodyNumber(2), entries: vec![EntryNumber(3), EntryNumber(4)] };
    let mut bytes = Vec::new();
    encode_copies(&mut bytes, &head(), std::slice::from_ref(&copy));
    assert_eq!(decode(&bytes).unwrap().copies, [copy]);
}

#[test]
fn a_frame_that_is_cut_anywhere_is_incomplete() {
    let bytes = bytes();
    for length in 0..bytes.len() {
        assert_eq!(decode(&bytes[..length]).unwrap_err(), FrameError::Incomplete, "{length}");
    }
}

#[test]
fn every_bit_of_a_frame_counts() {
    let bytes = bytes();
    for bit in 0..8 * bytes.len() {
        let mut broken = bytes.clone();
        broken[bit / 8] ^= 1 << (bit % 8);
        assert!(decode(&broken).is_err(), "bit {bit}");
    }
}

#[test]
fn a_digest_has_two_halves() {
    let digest = Digest::of(b"x");
    assert_eq!(Digest::from_halves(digest.halves()), digest);
}
