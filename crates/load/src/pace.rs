//! The times at which messages of a fixed rate are due (pure), and a precise timer for them. The
//! timers of tokio count in milliseconds.

use crate::clock;
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

const NANOS_PER_S: f64 = 1e9;

/// The times of the messages of all publishers together, in nanoseconds since the start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    per_s: f64,
    /// The seconds in which the rate grows from 0 to its full height.
    ramp_s: f64,
}

impl Schedule {
    /// Returns the schedule of a rate that has its full height after `ramp_up`.
    pub(super) fn new(per_s: u32, ramp_up: Duration) -> Schedule {
        Schedule { per_s: f64::from(per_s), ramp_s: ramp_up.as_secs_f64() }
    }

    /// Returns the time of message `index`, from 0. The rate grows in a straight line, so the
    /// number of messages grows with the square of the time, up to half of `per_s * ramp_s`.
    pub(super) fn due(&self, index: u64) -> u64 {
        let index = index as f64;
        let of_ramp = self.per_s * self.ramp_s / 2.0;
        let at_s = if index < of_ramp {
            (2.0 * index * self.ramp_s / self.per_s).sqrt()
        } else {
            self.ramp_s + (index - of_ramp) / self.per_s
        };
        (at_s * NANOS_PER_S) as u64
    }
}

/// A timer of the kernel. The timer takes one file descriptor, and two system calls for each wait.
pub(super) struct Alarm(AsyncFd<OwnedFd>);

impl Alarm {
    /// Returns a timer that is not set.
    ///
    /// # Errors
    /// The system refuses a descriptor.
    pub(super) fn new() -> io::Result<Alarm> {
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        #[expect(
            deprecated,
            reason = "unsound for a type that changes its descriptor, which OwnedFd does not; the new way is unsafe"
        )]
        let timer = AsyncFd::with_interest(timer, Interest::READABLE)?;
        Ok(Alarm(timer))
    }

    /// Waits until `due`, in [`clock::nanos`]. Returns at once if `due` is past.
    ///
    /// # Errors
    /// The timer cannot be set or read.
    pub(super) async fn until(&self, due: u64) -> io::Result<()> {
        let Some(rest) = due.checked_sub(clock::nanos()).filter(|rest| *rest > 0) else { return Ok(()) };
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let wait = Duration::from_nanos(rest);
        let value = Timespec::try_from(wait).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        timerfd_settime(
            self.0.get_ref(),
            TimerfdTimerFlags::empty(),
            &Itimerspec { it_interval: never, it_value: value },
        )?;
        loop {
            let mut ready = self.0.readable().await?;
            let mut expirations = [0; 8];
            match rustix::io::read(self.0.get_ref(), &mut expirations) {
                Ok(_) => return Ok(()),
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_grows_in_a_straight_line_and_then_stays() {
        let steady = Schedule::new(1000, Duration::ZERO);
        assert_eq!([steady.due(0), steady.due(1), steady.due(1000)], [0, 1_000_000, 1_000_000_000]);
        let ramp = Schedule::new(1000, Duration::from_secs(2));
        let before = |at_ns: u64| (0..).find(|index| ramp.due(*index) >= at_ns).unwrap();
        let seconds = [1, 2, 3, 4].map(|second| before(second * 1_000_000_000));
        assert_eq!(seconds, [250, 1000, 2000, 3000]);
    }

    #[test]
    fn an_alarm_never_rings_early() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            let alarm = Alarm::new().unwrap();
            for wait in [0, 1_000, 300_000, 2_000_000] {
                let due = clock::nanos() + wait;
                alarm.until(due).await.unwrap();
                assert!(clock::nanos() >= due);
            }
        });
    }
}
