//! The deadlines of one established connection: PINGREQ, its answer, acknowledgements, and messages.

use crate::time::Instant;
use std::time::Duration;

/// The times that the other broker is given.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// The Keep Alive of the connection; zero is none.
    pub keep_alive: Duration,
    /// The time for PINGRESP and SUBACK.
    pub answer: Duration,
    /// The time without any acknowledgement while messages wait for one.
    pub acknowledgement: Duration,
}

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing yet.
    Nothing,
    /// A PINGREQ.
    Ping,
    /// The end: PINGRESP or SUBACK did not come.
    Unanswered,
    /// The end: the other broker acknowledges nothing.
    Unacknowledged,
    /// The end: no message passes.
    Idle,
}

/// The deadlines of one connection.
#[derive(Debug)]
pub struct Deadlines {
    patience: Patience,
    sent: Instant,
    heard: Instant,
    /// The time until which PINGRESP, or another packet, has to come; [`Instant::NEVER`] if none is
    /// expected.
    answer: Instant,
    /// The time until which SUBACK has to come; [`Instant::NEVER`] behind it.
    suback: Instant,
    /// The time of the last acknowledgement; [`Instant::NEVER`] while none is expected.
    progress: Instant,
    /// The time of the last message or acknowledgement of either side.
    passed: Instant,
    /// The time without one after which the connection is not needed; `None` if it stays.
    idle: Option<Duration>,
}

impl Deadlines {
    /// Returns the deadlines of a connection on which SUBACK is expected.
    pub fn new(now: Instant, patience: Patience) -> Deadlines {
        Deadlines {
            patience,
            sent: now,
            heard: now,
            answer: Instant::NEVER,
            suback: now + patience.answer,
            progress: Instant::NEVER,
            passed: now,
            idle: None,
        }
    }

    /// Sets the time without a message of either side after which the connection has to end.
    pub fn set_idle(&mut self, idle: Duration) {
        self.idle = Some(idle);
    }

    /// Notes that packets were sent.
    pub fn sent(&mut self, now: Instant) {
        self.sent = now;
    }

    /// Notes that packets came. A packet of any kind shows that the other broker is there.
    pub fn heard(&mut self, now: Instant) {
        (self.heard, self.answer) = (now, Instant::NEVER);
    }

    /// Notes that bytes move, of a packet that has not come whole or that stands before what has to be
    /// answered. On a slow line a large packet takes longer than any answer, so each time that runs
    /// begins anew.
    pub fn moved(&mut self, now: Instant) {
        for answer in [&mut self.answer, &mut self.suback] {
            if !answer.is_never() {
                *answer = now + self.patience.answer;
            }
        }
        if !self.progress.is_never() {
            self.progress = now;
        }
    }

    /// Notes that a message or an acknowledgement passed, in any direction.
    pub fn passed(&mut self, now: Instant) {
        self.passed = now;
    }

    /// Notes that another SUBSCRIBE was sent.
    pub fn subscribes(&mut self, now: Instant) {
        self.suback = now + self.patience.answer;
    }

    /// Notes that the last SUBACK came, or that there is nothing to subscribe to. No other packet is an answer
    /// to SUBSCRIBE: messages may come for the filters of an earlier connection.
    pub fn subscribed(&mut self) {
        self.suback = Instant::NEVER;
    }

    /// Notes that a message was sent that the other broker has to acknowledge.
    pub fn expects_acknowledgement(&mut self, now: Instant) {
        if self.progress == Instant::NEVER {
            self.progress = now;
        }
    }

    /// Notes an acknowledgement. `are_more` is true if others are expected.
    pub fn acknowledged(&mut self, now: Instant, are_more: bool) {
        self.progress = if are_more { now } else { Instant::NEVER };
    }

    /// Returns the next time at which [`Self::due`] has something to say.
    pub fn next(&self) -> Instant {
        let answers = self.answer.min(self.suback);
        self.ping_at().min(answers).min(self.acknowledgement_at()).min(self.idle_at())
    }

    /// Returns what is due. A PINGREQ counts as sent.
    pub fn due(&mut self, now: Instant) -> Due {
        if self.answer.min(self.suback) <= now {
            return Due::Unanswered;
        }
        if self.acknowledgement_at() <= now {
            return Due::Unacknowledged;
        }
        if self.idle_at() <= now {
            return Due::Idle;
        }
        if self.ping_at() <= now {
            (self.sent, self.answer) = (now, now + self.patience.answer);
            return Due::Ping;
        }
        Due::Nothing
    }

    fn acknowledgement_at(&self) -> Instant {
        match self.progress {
            Instant::NEVER => Instant::NEVER,
            progress => progress + self.patience.acknowledgement,
        }
    }

    /// Returns the time at which the connection is not needed any more. While an acknowledgement of
    /// the other broker is expected, the connection is needed.
    fn idle_at(&self) -> Instant {
        match self.idle {
            Some(idle) if self.progress == Instant::NEVER => self.passed + idle,
            _ => Instant::NEVER,
        }
    }

    /// Returns the time of the next PINGREQ. A connection on which only one side speaks gets one,
    /// too: the other side may be gone.
    fn ping_at(&self) -> Instant {
        if self.patience.keep_alive.is_zero() || self.answer != Instant::NEVER {
            return Instant::NEVER;
        }
        // 3.1.1 [MQTT-3.1.2-23], 5.0 [MQTT-3.1.2-20]: within the Keep Alive.
        self.sent.min(self.heard) + self.patience.keep_alive.mul_f32(0.9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deadlines() -> Deadlines {
        let seconds = Duration::from_secs;
        let patience =
            Patience { keep_alive: seconds(100), answer: seconds(10), acknowledgement: seconds(30) };
        let mut deadlines = Deadlines::new(Instant::ZERO, patience);
        deadlines.subscribed();
        deadlines
    }

    fn at(seconds: u64) -> Instant {
        Instant::from_millis(seconds * 1_000)
    }

    #[test]
    fn a_silent_side_gets_a_ping_and_then_ten_seconds() {
        let mut deadlines = deadlines();
        deadlines.sent(at(50));
        assert_eq!(deadlines.next(), at(90), "nothing was heard since 0 s");
        assert_eq!(deadlines.due(at(90)), Due::Ping);
        assert_eq!((deadlines.due(at(99)), deadlines.next()), (Due::Nothing, at(100)));
        assert_eq!(deadlines.due(at(100)), Due::Unanswered);
        deadlines.heard(at(99));
        assert_eq!((deadlines.due(at(100)), deadlines.next()), (Due::Nothing, at(180)));
    }

    #[test]
    fn no_other_packet_is_an_answer_to_subscribe() {
        let patience = Patience { keep_alive: Duration::ZERO, ..deadlines().patience };
        let mut deadlines = Deadlines::new(Instant::ZERO, patience);
        deadlines.heard(at(9));
        assert_eq!((deadlines.next(), deadlines.due(at(10))), (at(10), Due::Unanswered));
        deadlines.subscribed();
        assert!(deadlines.next().is_never());
    }

    #[test]
    fn bytes_that_move_begin_each_time_anew_that_runs_and_no_other() {
        let patience = Patience { keep_alive: Duration::ZERO, ..deadlines().patience };
        let mut deadlines = Deadlines::new(Instant::ZERO, patience);
        deadlines.expects_acknowledgement(at(1));
        deadlines.moved(at(9));
        assert_eq!((deadlines.due(at(18)), deadlines.next()), (Due::Nothing, at(19)));
        deadlines.subscribed();
        assert_eq!((deadlines.due(at(38)), deadlines.next()), (Due::Nothing, at(39)));
        deadlines.acknowledged(at(38), false);
        deadlines.moved(at(38));
        assert!(deadlines.next().is_never());
    }

    #[test]
    fn acknowledgements_count_from_the_last_one() {
        let mut deadlines = deadlines();
        deadlines.expects_acknowledgement(at(1));
        deadlines.expects_acknowledgement(at(20));
        deadlines.acknowledged(at(25), true);
        assert_eq!((deadlines.due(at(54)), deadlines.due(at(55))), (Due::Nothing, Due::Unacknowledged));
        deadlines.acknowledged(at(55), false);
        assert_eq!(deadlines.due(at(89)), Due::Nothing);
    }

    #[test]
    fn a_connection_is_idle_if_nothing_passes_and_nothing_is_expected() {
        let mut deadlines = deadlines();
        deadlines.set_idle(Duration::from_secs(20));
        deadlines.passed(at(5));
        assert_eq!((deadlines.due(at(24)), deadlines.next()), (Due::Nothing, at(25)));
        deadlines.expects_acknowledgement(at(24));
        assert_eq!(deadlines.due(at(25)), Due::Nothing);
        deadlines.acknowledged(at(40), false);
        deadlines.passed(at(40));
        assert_eq!((deadlines.due(at(59)), deadlines.due(at(60))), (Due::Nothing, Due::Idle));
    }
}
