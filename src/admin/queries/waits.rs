//! The ends of waits, for people and for programs.

use super::waiting_receiver::WaitingReceiver;
use crate::clock;
use crate::operators::wait_reason::{SentPacket, WaitReason};
use crate::session::outbound::stall::{FarSide, StallCause};
use crate::time::Instant;
use crate::time::duration::seconds;

/// Returns the seconds until a time, or `None` for never.
pub(crate) fn until(now: Instant, then: Instant) -> Option<f64> {
    (!then.is_never()).then(|| then.since(now).as_secs_f64())
}

/// Returns the event that ends a wait, for people.
pub(crate) fn ends_with(wait: &WaitReason, receiver: &WaitingReceiver) -> String {
    let within = |then: Instant| match then.is_never() {
        true => String::new(),
        false => format!(" in {}", seconds(then.since(clock::now()))),
    };
    match wait {
        WaitReason::ReceiverAway(ends) if ends.is_never() => receiver.returns(),
        WaitReason::ReceiverAway(ends) => {
            let (returns, ends) = (receiver.returns(), within(*ends));
            format!("{returns}; its session ends{ends}, and the message is dropped then")
        }
        WaitReason::WindowFull(Some((packet_id, age))) => {
            let id = packet_id.get();
            let service = receiver.service().map(|service| format!("; {service}")).unwrap_or_default();
            format!("an acknowledgement; packet {id} is the oldest without one, for {age}{service}")
        }
        WaitReason::WindowFull(None) => "an acknowledgement".to_owned(),
        WaitReason::Behind(0) => "the next turn of the broker".to_owned(),
        WaitReason::Behind(ahead) => format!("{ahead} messages before it in the queue are sent"),
        WaitReason::SocketBlocked(closes) => {
            format!("{}; the connection is closed{} otherwise", receiver.reads(), within(*closes))
        }
        WaitReason::OlderFirst(older) => format!("{older} older messages are sent again"),
        WaitReason::Unacknowledged(sent) => match receiver.service() {
            Some(service) => format!("the service accepts it: {service}"),
            None => format!("an acknowledgement; {}. {}", sent.detail(), next_step(sent)),
        },
        WaitReason::AwaitingPubcomp(sent) => {
            format!("PUBCOMP; {}. {}", sent.detail(), next_step(sent))
        }
        WaitReason::Committing => "the store commits".to_owned(),
        WaitReason::ReadingBack => "the store reads the message back".to_owned(),
        WaitReason::Held(then) => {
            format!("room in the queue; the message is refused{} otherwise", within(*then))
        }
    }
}

fn next_step(sent: &SentPacket) -> String {
    if sent.due.is_never() {
        let returns = match sent.far_side {
            FarSide::Client => "the client returns",
            FarSide::Broker => "the bridge connects again",
            FarSide::Service => "the service accepts it",
        };
        return format!("Nothing is done about it before {returns}.");
    }
    let due = seconds(sent.due.since(clock::now()));
    if sent.cause == StallCause::Application {
        format!("Next: {} in {due}.", sent.then.name())
    } else {
        format!("Next look in {due}.")
    }
}
