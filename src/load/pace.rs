//! A precise timer for messages at a fixed rate. The timers of tokio count in milliseconds.

use crate::clock;
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::io;
use std::os::fd::OwnedFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

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
        let wait = std::time::Duration::from_nanos(rest);
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
