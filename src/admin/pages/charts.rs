//! The charts of the last hour and day. Each is an SVG drawing that needs no JavaScript: a line,
//! the scale and the times beside it, and the value of each column as its title.
//!
//! A chart that is not seen misses nothing: its words have the present and the highest value, and a
//! table has all figures of the span in twelve rows.

use super::views::{clock_time, count};
use crate::admin::human::{per_second, rounded};
use crate::admin::recent::history::{FigureKind, History, HistoryFigure, HistoryPoint, Span};
use crate::clock;
use std::fmt::Write;

/// Columns of a chart: 30 s each in an hour, and 12 minutes in a day.
const COLUMNS: usize = 120;

/// Columns that share a title.
const TITLED: usize = 2;

/// The width of a column, and the height of a chart, in units of the drawing.
const COLUMN: usize = 5;
const HEIGHT: f32 = 100.0;

/// Rows of the table.
const ROWS: usize = 12;

/// All charts of a span.
pub(super) struct Charts {
    pub(super) is_day: bool,
    /// The times below each chart, the oldest first.
    pub(super) axis: [&'static str; 3],
    pub(super) charts: Vec<Chart>,
    /// The time of each row of the table, and the values in the order of the charts.
    pub(super) rows: Vec<(String, Vec<String>)>,
}

/// A chart of one figure.
pub(super) struct Chart {
    pub(super) name: &'static str,
    /// The newest value.
    pub(super) now: String,
    /// The highest value and its time, as a sentence.
    pub(super) words: String,
    /// The value at the top of the scale, with its unit.
    pub(super) top: String,
    pub(super) line: String,
    pub(super) area: String,
    /// The left edge of each titled stretch, and its title.
    pub(super) titles: Vec<(usize, String)>,
}

impl Charts {
    /// The width of a chart in units of the drawing.
    pub(super) const WIDTH: usize = COLUMNS * COLUMN;
    /// The width of a titled stretch.
    pub(super) const STRETCH: usize = TITLED * COLUMN;

    /// Returns the charts of a span that ends now.
    pub(super) fn of(history: &History, span: Span) -> Charts {
        let end = clock::unix_millis();
        let (columns, table) = (history.view(span, COLUMNS), history.view(span, ROWS));
        let row = |(at, point): (usize, &HistoryPoint)| {
            let values = HistoryFigure::ALL.map(|figure| text(figure, point[figure as usize]));
            (time_of(end, span, at, ROWS), values.to_vec())
        };
        Charts {
            is_day: span == Span::Day,
            axis: match span {
                Span::Hour => ["1 h ago", "30 min ago", "now"],
                Span::Day => ["24 h ago", "12 h ago", "now"],
            },
            charts: HistoryFigure::ALL.map(|figure| Chart::of(figure, &columns, (end, span))).into(),
            rows: table.iter().enumerate().rev().map(row).collect(),
        }
    }

    /// Returns the words of the span.
    pub(super) fn title(&self) -> &'static str {
        if self.is_day { "Last day" } else { "Last hour" }
    }
}

/// Returns the time at which a group of a span begins, in UTC, such as `14:05`.
fn time_of(end: u64, span: Span, group: usize, groups: usize) -> String {
    let ago = span.length().as_millis() as u64 * (groups - group) as u64 / groups as u64;
    let mut time = clock_time(end.saturating_sub(ago));
    time.truncate("14:05".len());
    time
}

/// Returns a value with its unit; a dash where nobody looked.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts, which are not negative")]
fn text(figure: HistoryFigure, value: f32) -> String {
    if value.is_nan() {
        return "-".to_owned();
    }
    let value = f64::from(value);
    match (figure, figure.kind()) {
        (HistoryFigure::Cpu, _) => format!("{} %", rounded(value * 100.0)),
        (_, FigureKind::Rate) => per_second(value),
        (_, FigureKind::Level | FigureKind::Growth) => count(value.round() as u64),
    }
}

/// Returns the next number from 1, 2, 5, 10, 20 and so on, also below 1, that is not smaller. A
/// count begins at 1.
fn scale(figure: HistoryFigure, highest: f32) -> f32 {
    let least = if figure == HistoryFigure::Cpu { 0.01 } else { 1.0 };
    let mut step = least;
    for factor in [2.0, 2.5, 2.0].into_iter().cycle().take(60) {
        if step >= highest {
            break;
        }
        step *= factor;
    }
    step
}

impl Chart {
    fn of(figure: HistoryFigure, columns: &[HistoryPoint], (end, span): (u64, Span)) -> Chart {
        let values: Vec<f32> = columns.iter().map(|point| point[figure as usize]).collect();
        let highest = (0..).zip(&values).filter(|(_, value)| !value.is_nan());
        // Of equal ones the last.
        let highest = highest.max_by(|(_, a), (_, b)| a.total_cmp(b));
        let top = scale(figure, highest.map_or(0.0, |(_, value)| *value));
        let when = |column| time_of(end, span, column, COLUMNS);
        let (line, area) = drawing(&values, top);
        let titles = values.chunks(TITLED).enumerate().filter_map(|(at, some)| {
            let value = some.iter().copied().fold(f32::NAN, f32::max);
            let title = || (at * Charts::STRETCH, format!("{} {}", when(at * TITLED), text(figure, value)));
            (!value.is_nan()).then(title)
        });
        Chart {
            name: figure.name(),
            now: text(figure, values.last().copied().unwrap_or(f32::NAN)),
            words: highest.map_or_else(
                || "no figure yet".to_owned(),
                |(at, value)| format!("highest {} at {}", text(figure, *value), when(at)),
            ),
            top: text(figure, top),
            line,
            area,
            titles: titles.collect(),
        }
    }
}

/// Returns the path of a line through values, and that of the area below it. Both have a gap where
/// nobody looked. `top` is the value at the upper edge.
fn drawing(values: &[f32], top: f32) -> (String, String) {
    let (mut line, mut area) = (String::new(), String::new());
    let columns: Vec<(usize, f32)> = values.iter().copied().enumerate().collect();
    for part in columns.chunk_by(|(_, a), (_, b)| a.is_nan() == b.is_nan()) {
        let (Some(&(first, value)), Some(&(end, last))) = (part.first(), part.last()) else { continue };
        if value.is_nan() {
            continue;
        }
        let height = |value: f32| HEIGHT - value / top * HEIGHT;
        let points: Vec<String> =
            part.iter().map(|(at, value)| format!("{},{:.1}", at * COLUMN, height(*value))).collect();
        // The last column is as wide as the others, so that one alone is seen.
        let (path, left, right, last) = (points.join("L"), first * COLUMN, (end + 1) * COLUMN, height(last));
        // Writing to a string cannot fail.
        let _ = write!(line, "M{path}L{right},{last:.1}");
        let _ = write!(area, "M{left},{HEIGHT}L{path}L{right},{last:.1}L{right},{HEIGHT}Z");
    }
    (line, area)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_a_gap_where_nobody_looked_and_its_area_ends_at_the_axis() {
        let (line, area) = drawing(&[f32::NAN, 1.0, 2.0, f32::NAN, 4.0], 4.0);
        assert_eq!(line, "M5,75.0L10,50.0L15,50.0M20,0.0L25,0.0");
        assert_eq!(area, "M5,100L5,75.0L10,50.0L15,50.0L15,100ZM20,100L20,0.0L25,0.0L25,100Z");
        assert_eq!(drawing(&[f32::NAN; 3], 1.0), (String::new(), String::new()));
    }

    #[test]
    fn a_scale_is_round_and_not_below_the_highest_value() {
        let of = |highest| scale(HistoryFigure::Queued, highest);
        assert_eq!(
            [0.0, 1.0, 1.5, 3.0, 7.0, 11.0, 199_999.0].map(of),
            [1.0, 1.0, 2.0, 5.0, 10.0, 20.0, 200_000.0]
        );
        assert_eq!(text(HistoryFigure::Cpu, scale(HistoryFigure::Cpu, 0.013)), "2 %");
        assert!(scale(HistoryFigure::Queued, f32::MAX).is_finite());
    }

    #[test]
    fn a_chart_says_its_newest_and_its_highest_value_with_units() {
        let mut columns = vec![[f32::NAN; HistoryFigure::ALL.len()]; COLUMNS];
        columns[60][HistoryFigure::Received as usize] = 8_100.0;
        columns[119][HistoryFigure::Received as usize] = 12.0;
        // 1970-01-01 14:00:00.
        let end = (14 * 3_600_000, Span::Hour);
        let chart = Chart::of(HistoryFigure::Received, &columns, end);
        assert_eq!((&*chart.now, &*chart.top), ("12/s", "10k/s"));
        assert_eq!(chart.words, "highest 8.1k/s at 13:30");
        assert_eq!(chart.titles, [(300, "13:30 8.1k/s".to_owned()), (590, "13:59 12/s".to_owned())]);
        let none = Chart::of(HistoryFigure::Queued, &columns, end);
        assert_eq!((&*none.now, &*none.words), ("-", "no figure yet"));
    }
}
