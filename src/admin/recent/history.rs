//! The last hour and the last day of seven figures, for the charts of the overview. 56 KiB.
//!
//! The history is made of the figures that the shards report anyway, and of the processor time of
//! the process. It begins with the process. Prometheus keeps more.

use crate::named_enum::named_enum;
use crate::time::Instant;
use std::array;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The way of a figure from its looks to a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::admin) enum FigureKind {
    /// A value of the moment. A point has the highest one.
    Level,
    /// A count since the start. A point has its growth in a second.
    Rate,
    /// A count since the start. A point has its growth.
    Growth,
}

named_enum! {
    /// A figure of the history, with the name of its chart.
    pub(in crate::admin) enum HistoryFigure {
        /// Clients that are connected.
        Connections = "connections",
        /// PUBLISH packets that came.
        Received = "messages in",
        /// PUBLISH packets that were sent.
        Sent = "messages out",
        /// Messages in queues.
        Queued = "queued",
        /// Messages that were sent and not acknowledged to the end.
        InFlight = "in flight",
        /// Messages that a receiver will not get.
        Dropped = "dropped",
        /// Processor time of the process: 1 is one core.
        Cpu = "CPU (of one core)",
    }
}

impl HistoryFigure {
    /// Returns the way of the figure to a point.
    pub(in crate::admin) fn kind(self) -> FigureKind {
        match self {
            HistoryFigure::Connections | HistoryFigure::Queued | HistoryFigure::InFlight => FigureKind::Level,
            HistoryFigure::Received | HistoryFigure::Sent | HistoryFigure::Cpu => FigureKind::Rate,
            HistoryFigure::Dropped => FigureKind::Growth,
        }
    }
}

/// The present values, in the order of [`HistoryFigure::ALL`].
pub(super) type Look = [f64; HistoryFigure::ALL.len()];

/// The figures of a stretch of time. NaN stands for a stretch without a look.
pub(in crate::admin) type HistoryPoint = [f32; HistoryFigure::ALL.len()];

const NO_LOOK: HistoryPoint = [f32::NAN; HistoryFigure::ALL.len()];

/// The time that a chart shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::admin) enum Span {
    #[default]
    Hour,
    Day,
}

impl Span {
    /// Returns the time between two points: three looks of an hour, and a minute of a day.
    pub(in crate::admin) fn pace(self) -> Duration {
        match self {
            Span::Hour => Duration::from_secs(6),
            Span::Day => Duration::from_mins(1),
        }
    }

    /// Returns the whole time.
    pub(in crate::admin) fn length(self) -> Duration {
        match self {
            Span::Hour => Duration::from_hours(1),
            Span::Day => Duration::from_hours(24),
        }
    }

    /// Returns the number of points.
    fn most(self) -> usize {
        usize::try_from(self.length().as_millis() / self.pace().as_millis()).unwrap_or(0)
    }
}

/// The points of one span, the newest last.
#[derive(Debug, Default)]
struct Series {
    span: Span,
    points: VecDeque<HistoryPoint>,
    open: Option<OpenPoint>,
}

/// The point of the present stretch.
#[derive(Debug)]
struct OpenPoint {
    /// The number of the stretch since the start.
    number: u64,
    began: Instant,
    /// The first look of the stretch.
    first: Look,
    highest: Look,
}

impl OpenPoint {
    /// Returns the point. `next` is the first look behind the stretch.
    #[expect(clippy::cast_possible_truncation, reason = "a chart shows three digits")]
    fn close(&self, now: Instant, next: &Look) -> HistoryPoint {
        let secs = now.since(self.began).as_secs_f64();
        array::from_fn(|at| {
            let growth = (next[at] - self.first[at]).max(0.0);
            let value = match HistoryFigure::ALL[at].kind() {
                FigureKind::Level => self.highest[at],
                FigureKind::Growth => growth,
                FigureKind::Rate => growth / secs.max(f64::MIN_POSITIVE),
            };
            value as f32
        })
    }
}

impl Series {
    fn of(span: Span) -> Series {
        Series { span, ..Series::default() }
    }

    fn take(&mut self, now: Instant, look: &Look) {
        let number = now.as_millis() / self.span.pace().as_millis() as u64;
        if let Some(open) = self.open.as_mut().filter(|open| open.number == number) {
            open.highest.iter_mut().zip(look).for_each(|(highest, value)| *highest = highest.max(*value));
            return;
        }
        let opened = OpenPoint { number, began: now, first: *look, highest: *look };
        let Some(before) = self.open.replace(opened) else { return };
        self.put(before.close(now, look));
        // Nobody looked while the machine slept.
        let missed = number.saturating_sub(before.number + 1).min(self.span.most() as u64);
        (0..missed).for_each(|_| self.put(NO_LOOK));
    }

    fn put(&mut self, point: HistoryPoint) {
        if self.points.len() >= self.span.most() {
            self.points.pop_front();
        }
        self.points.push_back(point);
    }

    /// Returns the points in groups, as many as `groups`, the oldest first. A group has the highest
    /// value of its points, and of growth the sum.
    fn grouped(&self, groups: usize) -> Vec<HistoryPoint> {
        let each = self.span.most().div_ceil(groups.max(1));
        let mut all = vec![NO_LOOK; groups];
        for (from_end, point) in self.points.iter().rev().enumerate() {
            let group = groups.checked_sub(from_end / each + 1).and_then(|at| all.get_mut(at));
            for ((sum, value), figure) in group.into_iter().flatten().zip(point).zip(HistoryFigure::ALL) {
                // The larger one of a number and NaN is the number.
                *sum = match figure.kind() {
                    FigureKind::Growth if !sum.is_nan() && !value.is_nan() => *sum + value,
                    _ => sum.max(*value),
                };
            }
        }
        all
    }
}

/// The last hour and the last day.
#[derive(Debug)]
pub(in crate::admin) struct History(Mutex<[Series; 2]>);

impl Default for History {
    fn default() -> History {
        History(Mutex::new([Series::of(Span::Hour), Series::of(Span::Day)]))
    }
}

impl History {
    /// Takes the present values in.
    pub(super) fn take(&self, now: Instant, look: &Look) {
        let mut series = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        series.iter_mut().for_each(|series| series.take(now, look));
    }

    /// Returns the points of a span in as many groups, the oldest first.
    pub(in crate::admin) fn view(&self, span: Span, groups: usize) -> Vec<HistoryPoint> {
        let series = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = series.iter().find(|series| series.span == span);
        found.map(|series| series.grouped(groups)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUED: usize = HistoryFigure::Queued as usize;
    const RECEIVED: usize = HistoryFigure::Received as usize;
    const DROPPED: usize = HistoryFigure::Dropped as usize;

    /// Returns a look at which so many messages are queued, and twice as many came and were dropped
    /// since the start.
    fn look(queued: f64, counted: f64) -> Look {
        let mut look = [0.0; HistoryFigure::ALL.len()];
        (look[QUEUED], look[RECEIVED], look[DROPPED]) = (queued, counted, counted);
        look
    }

    fn at(secs: u64) -> Instant {
        Instant::from_millis(secs * 1_000)
    }

    #[test]
    fn a_point_has_the_highest_level_and_the_growth_of_its_stretch() {
        let history = History::default();
        for (secs, queued, counted) in [(0, 1.0, 0.0), (2, 9.0, 4.0), (4, 3.0, 8.0), (6, 2.0, 12.0)] {
            history.take(at(secs), &look(queued, counted));
        }
        let points = history.view(Span::Hour, 600);
        let last = points.last().expect("a point");
        assert_eq!((last[QUEUED], last[RECEIVED], last[DROPPED]), (9.0, 2.0, 12.0));
        assert!(points[598][QUEUED].is_nan(), "before the start");
        assert!(history.view(Span::Day, 72).iter().all(|point| point[0].is_nan()), "the minute is not over");
    }

    #[test]
    fn a_group_has_the_highest_of_its_points_and_a_stretch_without_a_look_is_empty() {
        let history = History::default();
        let mut counted = 0.0;
        for minute in (0..10).chain(40..=60) {
            counted += 60.0;
            history.take(at(minute * 60), &look(minute as f64, counted));
        }
        let points = history.view(Span::Day, 144);
        let queued: Vec<f32> = points.iter().rev().take(7).map(|point| point[QUEUED]).collect();
        assert_eq!(queued[..2], [59.0, 49.0]);
        assert!(queued[2..5].iter().all(|value| value.is_nan()), "{queued:?}");
        assert_eq!(points[143][DROPPED], 600.0, "the sum of ten minutes");
        assert_eq!(points[143][RECEIVED], 1.0, "in a second");
    }

    #[test]
    fn the_history_has_a_bound_and_forgets_the_oldest() {
        let history = History::default();
        for n in 0..100_000 {
            history.take(at(n * 2), &look(if n < 10 { 1e9 } else { 1.0 }, 0.0));
        }
        let points = history.view(Span::Day, 72);
        assert!(points.iter().all(|point| point[QUEUED] == 1.0), "{points:?}");
        let series = history.0.lock().expect("nobody panics");
        let kept: usize = series.iter().map(|series| series.points.len()).sum();
        assert_eq!(kept, 600 + 1_440);
        assert!(kept * size_of::<HistoryPoint>() <= 56 << 10);
        drop(series);
        history.take(at(100_000_000), &look(1.0, 0.0));
        assert!(history.view(Span::Hour, 60).iter().all(|point| point[QUEUED].is_nan()), "a long sleep");
    }
}
