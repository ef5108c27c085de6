//! The progress of a run on standard error: on a terminal one line that is written again and again,
//! elsewhere one line each second.

use super::crew::CrewMember;
use super::record::RunSlot;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{self, IsTerminal, Write};

/// Steps of a whole bar.
const STEPS: u64 = 1000;

/// A running display.
pub(super) enum ProgressLine {
    /// The threads that do not lead show nothing.
    Silent,
    Bar(ProgressBar),
    Lines {
        phase: &'static str,
        next_at_s: f64,
    },
}

impl ProgressLine {
    /// Starts a display with the name of the phase, if the thread of this member leads.
    pub(super) fn new(phase: &'static str, member: &CrewMember) -> ProgressLine {
        if !member.leads() {
            return ProgressLine::Silent;
        }
        if !io::stderr().is_terminal() {
            return ProgressLine::Lines { phase, next_at_s: 1.0 };
        }
        let bar = ProgressBar::new(STEPS);
        if let Ok(style) = ProgressStyle::with_template("{prefix} [{bar:30}] {elapsed} {msg}") {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_prefix(phase);
        ProgressLine::Bar(bar)
    }

    /// Shows rate and latency. `done` is the finished part of the run, from 0 to 1.
    pub(super) fn show(&mut self, done: f64, slot: &RunSlot) {
        self.say(done, slot.at_s, &describe(done, slot));
    }

    /// Shows `text`. `done` is from 0 to 1, and `at_s` is the time since the start in seconds.
    pub(super) fn say(&mut self, done: f64, at_s: f64, text: &str) {
        match self {
            ProgressLine::Silent => {}
            ProgressLine::Bar(bar) => {
                bar.set_position((done.clamp(0.0, 1.0) * STEPS as f64) as u64);
                bar.set_message(text.to_owned());
            }
            ProgressLine::Lines { phase, next_at_s } => {
                if at_s >= *next_at_s {
                    *next_at_s = at_s.floor() + 1.0;
                    let line = format!("{phase} {at_s:6.1} s  {text}");
                    // An error only means that standard error was closed.
                    drop(writeln!(io::stderr().lock(), "{line}"));
                }
            }
        }
    }
}

impl Drop for ProgressLine {
    /// Removes the bar, so that only the report or the error remains.
    fn drop(&mut self) {
        if let ProgressLine::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

fn describe(done: f64, slot: &RunSlot) -> String {
    let mut text = format!("{:8.0}/s  {} delivered", slot.per_s, slot.delivered);
    if let (Some(p50), Some(p99)) = (slot.p50_ms, slot.p99_ms) {
        text += &format!("  p50 {p50:.3} ms  p99 {p99:.3} ms");
    }
    text += &format!("  {} overdue", slot.overdue);
    if let Some(left_s) = left(done, slot.at_s) {
        text += &format!("  {left_s} s left");
    }
    text
}

/// Returns the whole seconds to the end, if the rest goes on as the part before; `None` before that
/// can be said, and at the end.
fn left(done: f64, at_s: f64) -> Option<u64> {
    (done > 0.01 && done < 1.0).then(|| (at_s * (1.0 - done) / done).ceil() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_rate_deliveries_latency_what_is_overdue_and_the_rest() {
        let slot = RunSlot {
            at_s: 2.0,
            per_s: 512.4,
            p50_ms: Some(0.25),
            p99_ms: Some(1.0),
            delivered: 9,
            overdue: 1,
        };
        assert_eq!(
            describe(0.25, &slot),
            "     512/s  9 delivered  p50 0.250 ms  p99 1.000 ms  1 overdue  6 s left"
        );
        assert_eq!((left(0.0, 1.0), left(1.0, 1.0)), (None, None));
    }
}
