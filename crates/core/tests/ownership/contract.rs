//! What every log of a cluster does, the model as the real engine. `ask` sends a request of a node,
//! and waits for the answer. The log is empty, and nothing else writes to it.

use crate::replicated_log::{LogAnswer, LogRequest, LogSnapshot};
use bytes::Bytes;
use homing_core::persistence::ownership::{AppendReply, Position};

pub fn check(mut ask: impl FnMut(usize, LogRequest) -> LogAnswer) {
    let frame = |number: u8| Bytes::from(vec![number; 40]);
    let append = |after, number| LogRequest::Append { after: Position(after), frame: frame(number) };
    let read = |from, bytes| LogRequest::Read { from: Position(from), bytes };
    let frames =
        |of: &[u64]| LogAnswer::Frames(of.iter().map(|at| (Position(*at), frame(*at as u8))).collect());

    assert_eq!(ask(0, LogRequest::Last), LogAnswer::Last(Position(0)));
    assert_eq!(ask(0, append(0, 1)), LogAnswer::Append(AppendReply::Stored));
    // Only who names the last position appends, and the same frame is not stored twice.
    for (node, after) in [(1, 0), (0, 0), (1, 2)] {
        assert_eq!(ask(node, append(after, 1)), LogAnswer::Append(AppendReply::WrongLast));
    }
    for number in 2..=5 {
        let node = usize::from(number) % 2;
        assert_eq!(ask(node, append(u64::from(number) - 1, number)), LogAnswer::Append(AppendReply::Stored));
    }
    assert_eq!(ask(1, LogRequest::Last), LogAnswer::Last(Position(5)));
    // Frames come in order, as many as fit, and one at least.
    assert_eq!(ask(1, read(2, 1000)), frames(&[2, 3, 4, 5]));
    assert_eq!(ask(1, read(2, 80)), frames(&[2, 3]));
    assert_eq!(ask(1, read(2, 1)), frames(&[2]));
    assert_eq!(ask(1, read(6, 1000)), frames(&[]));
    // A trim moves the beginning and not the end.
    assert_eq!(ask(0, LogRequest::Trim(Position(4))), LogAnswer::Done);
    assert_eq!(ask(1, read(2, 1000)), frames(&[4, 5]));
    assert_eq!(ask(0, append(5, 6)), LogAnswer::Append(AppendReply::Stored));
    // The newest snapshot stays.
    assert_eq!(ask(0, LogRequest::GetSnapshot), LogAnswer::Snapshot(None));
    let snapshot = |at| LogSnapshot { position: Position(at), state: frame(at as u8) };
    for at in [3, 5, 4] {
        assert_eq!(ask(1, LogRequest::PutSnapshot(snapshot(at))), LogAnswer::Done);
    }
    assert_eq!(ask(0, LogRequest::GetSnapshot), LogAnswer::Snapshot(Some(snapshot(5))));
}
