//! The progress of a run on standard error: a bar on a terminal, elsewhere one line each second.

use super::record::RunSlot;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{self, IsTerminal, Write};

/// Steps of a whole bar.
const STEPS: u64 = 1000;

/// A running display.
pub(super) enum ProgressLine {
    Bar(ProgressBar),
    Lines { phase: &'static str, next_at_s: f64 },
}

impl ProgressLine {
    /// Starts a display with the name of the phase.
    pub(super) fn new(phase: &'static str) -> ProgressLine {
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
        self.say(done, slot.at_s, &describe(slot));
    }

    /// Shows `text`. `done` is from 0 to 1, and `at_s` is the time since the start in seconds.
    pub(super) fn say(&mut self, done: f64, at_s: f64, text: &str) {
        match self {
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

    /// Removes the bar, so that only the report remains.
    pub(super) fn finish(&mut self) {
        if let ProgressLine::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

fn describe(slot: &RunSlot) -> String {
    let rate = format!("{:8.0}/s", slot.per_s);
    match (slot.p50_ms, slot.p99_ms) {
        (Some(p50), Some(p99)) => format!("{rate}  p50 {p50:.3} ms  p99 {p99:.3} ms"),
        _ => rate,
    }
}
