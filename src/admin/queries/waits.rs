//! The ends of waits, for people and for programs.

use crate::clock;
use crate::session::outbound::stall::StallCause;
use crate::shard::observe::wait_reason::{SentPacket, WaitReason};
use crate::time::Instant;

/// Returns the seconds until a time, or null for never.
pub(crate) fn until(now: Instant, then: Instant) -> Option<f64> {
    (!then.is_never()).then(|| then.since(now).as_secs_f64())
}

/// Returns what ends a wait, for people.
pub(crate) fn ends_with(wait: &WaitReason) -> String {
    let within = |then| match until(clock::now(), then) {
        Some(seconds) => format!(" in {seconds:.1} s"),
        None => String::new(),
    };
    match wait {
        WaitReason::ReceiverAway(ends) if ends.is_never() => "the client returns".to_owned(),
        WaitReason::ReceiverAway(ends) => {
            format!("the client returns; its session ends{}, and the message is dropped then", within(*ends))
        }
        WaitReason::WindowFull(Some((packet_id, age))) => {
            let age = age.as_secs_f64();
            format!(
                "an acknowledgement; packet {} is the oldest without one, for {age:.1} s",
                packet_id.get()
            )
        }
        WaitReason::WindowFull(None) => "an acknowledgement".to_owned(),
        WaitReason::Behind(0) => "the next turn of the broker".to_owned(),
        WaitReason::Behind(ahead) => format!("{ahead} messages before it in the queue are sent"),
        WaitReason::SocketBlocked(closes) => {
            format!("the client reads; the connection is closed{} otherwise", within(*closes))
        }
        WaitReason::OlderFirst(older) => format!("{older} older messages are sent again"),
        WaitReason::Unacknowledged(sent) => {
            format!("an acknowledgement; {}. {}", sent.cause.detail(), next_step(sent))
        }
        WaitReason::AwaitingPubcomp(sent) => {
            format!("PUBCOMP; {}. {}", sent.cause.detail(), next_step(sent))
        }
        WaitReason::Committing => "the store commits".to_owned(),
        WaitReason::ReadingBack => "the store reads the message back".to_owned(),
        WaitReason::Held(then) => {
            format!("room in the queue; the message is refused{} otherwise", within(*then))
        }
    }
}

fn next_step(sent: &SentPacket) -> String {
    let Some(seconds) = until(clock::now(), sent.due) else {
        return "Nothing is done about it before the client returns.".to_owned();
    };
    if sent.cause == StallCause::Application {
        format!("Next: {} in {seconds:.1} s.", sent.then.name())
    } else {
        format!("Next look in {seconds:.1} s.")
    }
}
