//! The latest position that another node has announced.

use crate::clock;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// What was announced and not returned yet.
#[derive(Default)]
pub(super) struct Tip {
    announced: Mutex<Option<u64>>,
    news: Condvar,
}

impl Tip {
    /// Notes an announcement, in place of an older one.
    pub(super) fn announce(&self, position: u64) {
        *self.announced.lock().unwrap_or_else(PoisonError::into_inner) = Some(position);
        self.news.notify_all();
    }

    /// Waits for an announcement behind `after`, and takes it. Others are dropped: each wakes its
    /// reader once, so that a wrong one cannot make the reader busy.
    pub(super) fn wait(&self, after: u64, limit: Duration) -> Option<u64> {
        let deadline = clock::nanos().saturating_add(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
        let mut announced = self.announced.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(position) = announced.take_if(|position| *position > after) {
                return Some(position);
            }
            let left = deadline.saturating_sub(clock::nanos());
            if left == 0 {
                return None;
            }
            announced = self
                .news
                .wait_timeout(announced, Duration::from_nanos(left))
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_announcement_is_returned_once_and_only_if_it_is_behind_what_is_known() {
        let tip = Tip::default();
        assert_eq!(tip.wait(0, Duration::ZERO), None);
        tip.announce(5);
        assert_eq!(tip.wait(5, Duration::ZERO), None);
        assert_eq!(tip.wait(4, Duration::ZERO), Some(5));
        assert_eq!(tip.wait(4, Duration::from_millis(1)), None);
        std::thread::scope(|scope| {
            scope.spawn(|| tip.announce(6));
            assert_eq!(tip.wait(5, Duration::from_secs(60)), Some(6));
        });
    }
}
