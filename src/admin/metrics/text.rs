//! Writes Prometheus' text format, version 0.0.4.
//!
//! Every family has its HELP and TYPE lines once, followed by its samples. Names and label names
//! come from this program. Label values are escaped, whatever they hold.

use crate::named_enum::named_enum;
use crate::time::histogram::{Distribution, bound_ms};
use std::fmt::{Display, Write};

/// The content type of the format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

named_enum! {
    /// The type of a family of metrics.
    pub enum Kind {
        /// Only grows, and begins at 0 with the process. The name ends in `_total`.
        Counter = "counter",
        /// May grow and shrink.
        Gauge = "gauge",
        /// Counts durations below bounds. The name ends in `_seconds`.
        Histogram = "histogram",
    }
}

/// A text that grows by families.
#[derive(Debug, Default)]
pub struct MetricsText {
    text: String,
    /// The name of the family that the next samples belong to.
    family: String,
}

impl MetricsText {
    /// Begins a family. `name` is without the prefix `homing_`; `help` is one sentence.
    pub fn family(&mut self, kind: Kind, name: &str, help: &str) -> &mut MetricsText {
        self.begin(kind, format!("homing_{name}"), help)
    }

    /// Begins a family whose name all programs share. Such a name has no prefix.
    pub fn common_family(&mut self, kind: Kind, name: &str, help: &str) -> &mut MetricsText {
        self.begin(kind, name.to_owned(), help)
    }

    fn begin(&mut self, kind: Kind, family: String, help: &str) -> &mut MetricsText {
        // Writing to a string cannot fail.
        let _ = write!(self.text, "# HELP {family} {help}\n# TYPE {family} {kind}\n");
        self.family = family;
        self
    }

    /// Writes a sample of the present family.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) -> &mut MetricsText {
        self.line("", labels, value)
    }

    /// Writes the samples of a histogram: one for each bound in seconds, the sum and the count.
    /// `label` is the label that all of them have, if there is one.
    pub fn histogram(&mut self, label: Option<(&str, &str)>, counts: &Distribution) -> &mut MetricsText {
        let mut seen = 0;
        for (bucket, count) in counts.counts.iter().enumerate() {
            seen += count;
            let bound = bound_ms(bucket).map_or("+Inf".to_owned(), seconds);
            let labels: Vec<_> = label.into_iter().chain([("le", bound.as_str())]).collect();
            self.line("_bucket", &labels, seen);
        }
        let labels: Vec<_> = label.into_iter().collect();
        self.line("_sum", &labels, counts.sum.as_secs_f64()).line("_count", &labels, seen)
    }

    fn line(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl Display) -> &mut MetricsText {
        self.text.push_str(&self.family);
        self.text.push_str(suffix);
        for (index, (name, value)) in labels.iter().enumerate() {
            self.text.push(if index == 0 { '{' } else { ',' });
            self.text.push_str(name);
            self.text.push_str("=\"");
            value.chars().for_each(|c| match c {
                '\\' => self.text.push_str("\\\\"),
                '"' => self.text.push_str("\\\""),
                '\n' => self.text.push_str("\\n"),
                c => self.text.push(c),
            });
            self.text.push('"');
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
        self
    }

    /// Writes a family with one sample.
    pub fn single(&mut self, kind: Kind, name: &str, help: &str, value: impl Display) {
        self.family(kind, name, help).sample(&[], value);
    }

    /// Writes a family with one label, and a sample for each of its values.
    pub fn by<'a, V: Display>(
        &mut self,
        kind: Kind,
        name: &str,
        label: &str,
        help: &str,
        values: impl IntoIterator<Item = (&'a str, V)>,
    ) {
        self.family(kind, name, help);
        for (of, value) in values {
            self.sample(&[(label, of)], value);
        }
    }

    /// Returns the whole text.
    pub fn into_text(self) -> String {
        self.text
    }
}

/// Returns milliseconds as seconds, exactly.
fn seconds(ms: u64) -> String {
    format!("{}.{:03}", ms / 1_000, ms % 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::histogram::Histogram;
    use proptest::prelude::*;

    #[test]
    fn a_label_value_is_escaped_and_stays_on_its_line() {
        let mut text = MetricsText::default();
        text.family(Kind::Gauge, "g", "A gauge.")
            .sample(&[("a", "back\\slash"), ("b", "quo\"te\nline")], 1)
            .sample(&[], 2.5);
        let expected = "# HELP homing_g A gauge.\n# TYPE homing_g gauge\n\
                        homing_g{a=\"back\\\\slash\",b=\"quo\\\"te\\nline\"} 1\nhoming_g 2.5\n";
        assert_eq!(text.into_text(), expected);
    }

    #[test]
    fn a_histogram_has_growing_buckets_a_sum_and_a_count() {
        let mut histogram = Histogram::default();
        [0, 1, 3, u64::MAX / 2].into_iter().for_each(|ms| histogram.add(ms));
        let mut text = MetricsText::default();
        text.family(Kind::Histogram, "h_seconds", "A histogram.")
            .histogram(Some(("qos", "1")), &histogram.distribution());
        let text = text.into_text();
        for line in [
            "homing_h_seconds_bucket{qos=\"1\",le=\"0.001\"} 1\n",
            "homing_h_seconds_bucket{qos=\"1\",le=\"0.002\"} 2\n",
            "homing_h_seconds_bucket{qos=\"1\",le=\"1048.576\"} 3\n",
            "homing_h_seconds_bucket{qos=\"1\",le=\"+Inf\"} 4\n",
            "homing_h_seconds_count{qos=\"1\"} 4\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
    }

    /// Reads the label value of the one sample of a text, as a reader of the format does.
    fn read_value(text: &str) -> Option<String> {
        let sample = text.lines().nth(2)?;
        let mut rest = sample.strip_prefix("homing_g{l=\"")?.chars();
        let mut value = String::new();
        loop {
            value.push(match rest.next()? {
                '"' => break,
                '\\' => match rest.next()? {
                    'n' => '\n',
                    c @ ('\\' | '"') => c,
                    _ => return None,
                },
                c => c,
            });
        }
        (rest.as_str() == "} 1" && text.lines().count() == 3).then_some(value)
    }

    proptest! {
        #[test]
        fn any_label_value_is_read_as_it_was_written(value in "(\\PC|\\\\|\"|\n|n|\\}){0,40}") {
            let mut text = MetricsText::default();
            text.family(Kind::Gauge, "g", "A gauge.").sample(&[("l", &value)], 1);
            prop_assert_eq!(read_value(&text.into_text()), Some(value));
        }
    }
}
