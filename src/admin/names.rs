//! The names of sessions and messages in URLs.
//!
//! A name that is valid in this process alone carries the tag of the process. So a name from before
//! a restart never refers to another session or message.

use crate::operators::client_commands::MessageOf;
use crate::persistence::letter::{LetterNumber, LetterPlace};
use crate::persistence::records::{DelayedNumber, EntryNumber};
use crate::session::outbound::one_message::MessageName;
use crate::shard::features::delayed::DelayedPlace;
use crate::slots::SessionId;
use crate::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProcessTag(u32);

/// The place of a session: the number of its shard, and its slot there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SessionPlace {
    pub(super) shard: u8,
    pub(super) id: SessionId,
}

impl ProcessTag {
    /// Returns the tag for a start at this time, in milliseconds since 1970.
    pub(super) fn of_start(unix_millis: u64) -> ProcessTag {
        // Two starts are never 49 days and no millisecond apart in practice.
        ProcessTag(unix_millis as u32)
    }

    pub(super) fn session_name(self, place: SessionPlace) -> String {
        let SessionPlace { shard, id } = place;
        format!("{shard:x}-{:x}-{:x}-{:x}", id.slot, id.generation, self.0)
    }

    /// Parses the name of a session's place; `None` if it is invalid or of another process.
    pub(super) fn session(self, name: &str) -> Option<SessionPlace> {
        let [shard, slot, generation, tag] = hex_parts(name)?;
        let shard = u8::try_from(shard).ok()?;
        (tag == u64::from(self.0)).then_some(SessionPlace { shard, id: session_id(slot, generation)? })
    }

    pub(super) fn delayed_name(self, shard: u8, DelayedPlace { due, number }: DelayedPlace) -> String {
        format!("{shard:x}-{:x}-{:x}-{:x}", due.as_millis(), number.0, self.0)
    }

    /// Parses the name of a delayed message: its shard, and its place there. `None` if it is
    /// invalid or of another process.
    pub(super) fn delayed(self, name: &str) -> Option<(u8, DelayedPlace)> {
        let [shard, due, number, tag] = hex_parts(name)?;
        let place = DelayedPlace { due: Instant::from_millis(due), number: DelayedNumber(number) };
        Some((u8::try_from(shard).ok()?, place)).filter(|_| tag == u64::from(self.0))
    }

    pub(super) fn message_name(self, session: SessionId, name: MessageName) -> String {
        let (kind, number) = match name {
            MessageName::Stored(EntryNumber(number)) => return format!("e{number:x}"),
            MessageName::InFlight(number) => ('f', number),
            MessageName::Queued(number) => ('q', number),
        };
        format!("{kind}{number:x}-{:x}-{:x}-{:x}", session.slot, session.generation, self.0)
    }

    /// Returns the name by which a caller named an unfinished message.
    pub(super) fn name_of(self, MessageOf { session, name }: MessageOf) -> String {
        // The name of a stored delivery says nothing of a session.
        self.message_name(session.unwrap_or(SessionId::new(0, 0)), name)
    }

    /// Parses the name of an unfinished message; `None` if it is invalid or of another process.
    pub(super) fn message(self, name: &str) -> Option<MessageOf> {
        let (kind, rest) = (name.get(..1)?, name.get(1..)?);
        if kind == "e" {
            let number = u64::from_str_radix(rest, 16).ok()?;
            return Some(MessageOf { session: None, name: MessageName::Stored(EntryNumber(number)) });
        }
        let [number, slot, generation, tag] = hex_parts(rest)?;
        let name = match kind {
            "f" => MessageName::InFlight(number),
            "q" => MessageName::Queued(number),
            _ => return None,
        };
        (tag == u64::from(self.0)).then_some(MessageOf { session: Some(session_id(slot, generation)?), name })
    }
}

/// Returns the name of a dead letter. The name outlasts the process.
pub(super) fn letter_name(place: LetterPlace) -> String {
    format!("{:x}-{:x}", place.dropped_ms, place.number.0)
}

/// Parses a dead-letter name; `None` if it is invalid.
pub(super) fn read_letter_name(name: &str) -> Option<LetterPlace> {
    let (dropped_ms, number) = name.split_once('-')?;
    let dropped_ms = u64::from_str_radix(dropped_ms, 16).ok()?;
    Some(LetterPlace { dropped_ms, number: LetterNumber(u64::from_str_radix(number, 16).ok()?) })
}

fn session_id(slot: u64, generation: u64) -> Option<SessionId> {
    Some(SessionId::new(u32::try_from(slot).ok()?, u32::try_from(generation).ok()?))
}

fn hex_parts(text: &str) -> Option<[u64; 4]> {
    let mut parts = text.split('-').map(|part| u64::from_str_radix(part, 16).ok());
    let four = [parts.next()??, parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(four)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_back_in_its_own_process_alone() {
        let (tag, later) = (ProcessTag::of_start(1_000), ProcessTag::of_start(2_000));
        let id = SessionId::new(70_000, 3);
        let place = SessionPlace { shard: 2, id };
        assert_eq!(tag.session(&tag.session_name(place)), Some(place));
        assert_eq!(later.session(&tag.session_name(place)), None);
        for name in [MessageName::InFlight(9), MessageName::Queued(0)] {
            let text = tag.message_name(id, name);
            assert_eq!(tag.message(&text), Some(MessageOf { session: Some(id), name }));
            assert_eq!(tag.name_of(MessageOf { session: Some(id), name }), text);
            assert_eq!(later.message(&text), None);
        }
    }

    #[test]
    fn the_name_of_a_stored_delivery_outlasts_the_process() {
        let name = MessageName::Stored(EntryNumber(77));
        let text = ProcessTag::of_start(1).message_name(SessionId::new(0, 0), name);
        let read = MessageOf { session: None, name };
        assert_eq!(ProcessTag::of_start(2).message(&text), Some(read));
        assert_eq!(ProcessTag::of_start(2).name_of(read), text);
    }

    #[test]
    fn the_name_of_a_dead_letter_outlasts_the_process_and_that_of_a_delayed_message_does_not() {
        let place = LetterPlace { dropped_ms: 1_700_000_000_000, number: LetterNumber(65) };
        assert_eq!(read_letter_name(&letter_name(place)), Some(place));
        let place = DelayedPlace { due: Instant::from_millis(9_000), number: DelayedNumber(64) };
        let name = ProcessTag::of_start(1).delayed_name(3, place);
        assert_eq!(ProcessTag::of_start(1).delayed(&name), Some((3, place)));
        assert_eq!(ProcessTag::of_start(2).delayed(&name), None);
        for other in ["", "-", "1", "x-1", "1-x", "1-2-3"] {
            assert_eq!(read_letter_name(other), None, "{other}");
        }
    }

    #[test]
    fn anything_else_is_no_name() {
        let tag = ProcessTag::of_start(1);
        for other in ["", "é", "e", "ex", "f1-1-1", "f1-1-1-1-1", "g1-1-1-1", "f1-fffffffff-1-1"] {
            assert_eq!(tag.message(other), None, "{other}");
            assert_eq!(tag.session(other), None, "{other}");
        }
    }
}
