//! Rate and latency over time as an SVG: two panels with a common time axis, without scripts and
//! without fonts.

use super::record::RunSlot;
use super::report::LoadReport;
use std::fmt::Write;

const WIDTH: f64 = 900.0;
const PANEL: f64 = 200.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 50.0;
const GAP: f64 = 50.0;
const HEIGHT: f64 = TOP + 2.0 * PANEL + GAP + 40.0;
/// Number of horizontal lines of a panel, with the axis.
const LINES: u32 = 4;

/// A curve: its name, its colour, and its value in a slot.
type PlottedCurve = (&'static str, &'static str, fn(&RunSlot) -> Option<f64>);

/// Returns the SVG of a report.
pub(super) fn draw(report: &LoadReport) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let title = format!(
        "{} on {}, MQTT {}, QoS {}, {} B",
        report.scenario, report.broker, report.mqtt, report.qos, report.payload
    );
    text(&mut svg, LEFT, 20.0, "start", &escaped(&title));
    let rate: [PlottedCurve; 1] = [("delivered per second", "#1f77b4", |slot| Some(slot.per_s))];
    let latency: [PlottedCurve; 2] =
        [("p50, ms", "#2ca02c", |slot| slot.p50_ms), ("p99, ms", "#d62728", |slot| slot.p99_ms)];
    panel(&mut svg, &report.slots, TOP, &rate);
    panel(&mut svg, &report.slots, TOP + PANEL + GAP, &latency);
    svg + "</svg>\n"
}

fn panel(svg: &mut String, slots: &[RunSlot], top: f64, curves: &[PlottedCurve]) {
    let end = slots.last().map_or(1.0, |slot| slot.at_s.max(0.001));
    let values = curves.iter().flat_map(|(_, _, value)| slots.iter().filter_map(value));
    let most = ceiling(values.fold(0.0, f64::max));
    let y = |value: f64| top + PANEL * (1.0 - value / most);
    let x = |at_s: f64| LEFT + (WIDTH - LEFT - RIGHT) * at_s / end;
    for line in 0..=LINES {
        let value = most * f64::from(line) / f64::from(LINES);
        let (y, right) = (y(value), WIDTH - RIGHT);
        push(svg, format_args!("<path d=\"M{LEFT} {y:.1}H{right}\" stroke=\"#ddd\"/>\n"));
        text(svg, LEFT - 6.0, y + 4.0, "end", &number(value));
        let at_s = end * f64::from(line) / f64::from(LINES);
        text(svg, x(at_s), top + PANEL + 16.0, "middle", &format!("{at_s:.1} s"));
    }
    let mut name_x = LEFT;
    for (name, colour, value) in curves {
        push(svg, format_args!("<path fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\" d=\""));
        let mut pen = 'M';
        for slot in slots {
            match value(slot) {
                Some(value) => {
                    push(svg, format_args!("{pen}{:.1} {:.1}", x(slot.at_s), y(value)));
                    pen = 'L';
                }
                // No message arrived in this slot: the curve has a gap.
                None => pen = 'M',
            }
        }
        push(
            svg,
            format_args!("\"/>\n<text x=\"{name_x}\" y=\"{}\" fill=\"{colour}\">{name}</text>\n", top - 8.0),
        );
        name_x += 150.0;
    }
}

/// Returns the smallest of 1, 2, 5, 10, 20 ... that is not below `value`.
fn ceiling(value: f64) -> f64 {
    if value <= 0.0 || !value.is_finite() {
        return 1.0;
    }
    let power = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0];
    steps.into_iter().map(|step| step * power).find(|ceiling| *ceiling >= value).unwrap_or(10.0 * power)
}

fn number(value: f64) -> String {
    if value >= 100.0 || value == 0.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, text: &str) {
    push(svg, format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>\n"));
}

/// Escapes a text for XML, because a host name may have any character.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Appends a formatted text. Writing to a string cannot fail.
fn push(svg: &mut String, arguments: std::fmt::Arguments<'_>) {
    let _ = svg.write_fmt(arguments);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_ends_at_a_round_number() {
        let cases =
            [(0.0, 1.0), (0.7, 1.0), (1.0, 1.0), (1.1, 2.0), (30.0, 50.0), (51.0, 100.0), (f64::NAN, 1.0)];
        for (value, expected) in cases {
            assert!((ceiling(value) - expected).abs() < 1e-9, "{value}");
        }
    }

    #[test]
    fn a_slot_without_latency_is_a_gap() {
        let slot = |at_s, p50_ms| RunSlot { at_s, per_s: 1.0, p50_ms, ..RunSlot::default() };
        let slots = [slot(1.0, Some(1.0)), slot(2.0, None), slot(3.0, Some(1.0))];
        let mut svg = String::new();
        panel(&mut svg, &slots, 0.0, &[("p50", "red", |slot| slot.p50_ms)]);
        let curve = svg.lines().find(|line| line.contains("stroke=\"red\"")).unwrap();
        assert_eq!((curve.matches('M').count(), curve.matches('L').count()), (2, 0), "{curve}");
    }
}
