//! The log: one stream with one subject. A position is the sequence in the stream.

use super::client::Nats;
use super::failure::Failure;
use super::link::{Answerer, LONG_REQUEST, REQUEST};
use super::wire::{self, Done, Range};
use crate::cluster::engine::{Append, Bounds, EngineError, MAX_FRAME};
use async_nats::HeaderMap;
use bytes::Bytes;

pub(super) fn append(nats: &Nats, last: u64, frame: &Bytes) -> Append {
    if frame.len() > MAX_FRAME {
        let size = frame.len();
        return Append::Refused(format!("a frame of {size} bytes is larger than {MAX_FRAME}"));
    }
    let mut headers = HeaderMap::new();
    headers.insert("Nats-Expected-Last-Sequence", last.to_string());
    headers.insert("Nats-Expected-Stream", nats.names.log.as_str());
    let what = (nats.names.frames.clone(), headers, frame.clone());
    match wire::publish(nats, Answerer::Majority, REQUEST, what) {
        Ok(stored) if stored.seq == last + 1 && stored.stream == nats.names.log => {
            Append::Applied(stored.seq)
        }
        Ok(stored) => Append::Unknown(format!("stored as {} of {}", stored.seq, stored.stream)),
        Err(failure) if failure.is_wrong_last() => Append::NotLast,
        Err(failure) if failure.is_full() => Append::Full,
        Err(failure) => {
            // A server drops what it forbids, and says so beside.
            if let Some(why) = nats.link.take_forbidden(&nats.names.frames) {
                return Append::Refused(why);
            }
            let is_final = failure.is_final();
            let text = nats.explain(failure, &format!("an append to {}", nats.names.log)).to_string();
            if is_final { Append::Refused(text) } else { Append::Unknown(text) }
        }
    }
}

pub(super) fn read(nats: &Nats, after: u64, bytes: usize) -> Result<Vec<(u64, Bytes)>, EngineError> {
    let range = Range { stream: &nats.names.log, from: after.saturating_add(1), subject: None, bytes };
    let explain = |failure: Failure| nats.explain(failure, &format!("a read of {}", nats.names.log));
    let mut frames = wire::read(nats, &range).map_err(explain)?;
    if frames.is_empty() {
        return read_at_leader(nats, after).map_err(explain);
    }
    frames.truncate(without_gap(after, &frames).min(within(bytes, &frames)));
    Ok(frames)
}

/// Reads one frame at the leader. A replica that has none may lag, and some lag for ever
/// (nats-server 8319): then our own append would never be decided.
fn read_at_leader(nats: &Nats, after: u64) -> Result<Vec<(u64, Bytes)>, Failure> {
    let which = serde_json::json!({"seq": after.saturating_add(1), "next_by_subj": nats.names.frames});
    match wire::find(nats, &nats.names.log, &which)? {
        Some(found) => Ok(vec![(found.seq, found.content()?)]),
        None => Ok(Vec::new()),
    }
}

/// Returns how many frames have at most so many bytes, or 1. The server ends a batch behind the
/// message that exceeds the bytes.
fn within(bytes: usize, frames: &[(u64, Bytes)]) -> usize {
    let mut sum = 0_usize;
    let fits = |(_, frame): &&(u64, Bytes)| {
        sum = sum.saturating_add(frame.len());
        sum <= bytes
    };
    frames.iter().take_while(fits).count().max(1)
}

/// Returns how many of the frames follow each other. A message that was lost on the way leaves a
/// gap, and the frames behind it come with the next read.
fn without_gap(after: u64, frames: &[(u64, Bytes)]) -> usize {
    let mut before = None;
    let follows = |&&(position, _): &&(u64, Bytes)| {
        let fits = before.map_or(position > after, |before: u64| position == before + 1);
        before = Some(position);
        fits
    };
    frames.iter().take_while(follows).count()
}

pub(super) fn bounds(nats: &Nats) -> Result<Bounds, EngineError> {
    let info = wire::info(nats, &nats.names.log, "")
        .map_err(|failure| nats.explain(failure, &format!("the log {}", nats.names.log)))?;
    let last = info.state.last_seq;
    Ok(Bounds {
        first: if info.state.messages == 0 { last + 1 } else { info.state.first_seq },
        last,
        bytes: info.state.bytes,
        capacity: u64::try_from(info.config.max_bytes).unwrap_or(u64::MAX),
        leader: info.cluster.and_then(|cluster| cluster.leader),
    })
}

pub(super) fn purge(nats: &Nats, up_to: u64) -> Result<(), EngineError> {
    let last = bounds(nats)?.last;
    if up_to > last {
        return Err(EngineError::Refused(format!(
            "frames up to {up_to} were to be purged, and the log {} ends at {last}: frames are lost",
            nats.names.log
        )));
    }
    purge_before(nats, up_to + 1)
}

/// Moves the end of the log forward, if `position` is behind it: JetStream does that with a purge.
pub(super) fn begin_behind(nats: &Nats, position: u64) -> Result<(), EngineError> {
    purge_before(nats, position + 1)
}

/// Removes the frames before a sequence, which is the first that stays.
fn purge_before(nats: &Nats, sequence: u64) -> Result<(), EngineError> {
    let body = serde_json::json!({"seq": sequence});
    let purged: Result<Done, Failure> = wire::ask(nats, LONG_REQUEST, "STREAM.PURGE", &nats.names.log, &body);
    purged.map(drop).map_err(|failure| nats.explain(failure, &format!("a purge of {}", nats.names.log)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_behind_a_gap_are_left_for_the_next_read() {
        let frames = |positions: &[u64]| -> Vec<(u64, Bytes)> {
            positions.iter().map(|position| (*position, Bytes::new())).collect()
        };
        assert_eq!(without_gap(4, &frames(&[5, 6, 7])), 3);
        assert_eq!(without_gap(4, &frames(&[9, 10])), 2);
        assert_eq!(without_gap(4, &frames(&[5, 7, 8])), 1);
        assert_eq!(without_gap(4, &frames(&[4, 5])), 0);
        assert_eq!(without_gap(4, &[]), 0);
    }

    #[test]
    fn frames_beyond_the_bytes_are_left_but_for_the_first() {
        let frames = [(1, Bytes::from(vec![0; 10])), (2, Bytes::from(vec![0; 10]))];
        let cases = [(0, 1), (9, 1), (10, 1), (19, 1), (20, 2), (usize::MAX, 2)];
        cases.iter().for_each(|(bytes, count)| assert_eq!(within(*bytes, &frames), *count, "{bytes}"));
    }
}
