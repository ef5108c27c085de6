//! The last things that happened, for whoever looks at a failure. Formatting costs more than
//! simulating, so a seed is played without and, where it fails, once more with it: the same seed
//! does the same.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// Shared with who plays the seed: it survives a panic.
#[derive(Clone, Default)]
pub struct Trace {
    kept: usize,
    lines: Rc<RefCell<VecDeque<String>>>,
}

impl Trace {
    /// Keeps so many lines.
    pub fn keeping(kept: usize) -> Trace {
        Trace { kept, lines: Rc::default() }
    }

    pub fn is_on(&self) -> bool {
        self.kept > 0
    }

    pub fn push(&self, now: u64, line: String) {
        let mut lines = self.lines.borrow_mut();
        if lines.len() == self.kept {
            lines.pop_front();
        }
        lines.push_back(format!("{now:>8} {line}"));
    }

    pub fn last(&self, count: usize) -> String {
        let lines = self.lines.borrow();
        let skip = lines.len().saturating_sub(count);
        lines.iter().skip(skip).map(|l| format!("{l}\n")).collect()
    }
}

/// Notes something, if anybody will read it.
macro_rules! trace {
    ($world:expr, $($arg:tt)*) => {
        if $world.trace.is_on() {
            $world.trace.push($world.now, format!($($arg)*));
        }
    };
}
pub(crate) use trace;
