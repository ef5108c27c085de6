//! The metrics as families of samples, and their form in Prometheus' text format, version 0.0.4.
//!
//! Every family has its HELP and TYPE lines once, followed by its samples. Names and label names
//! come from this program. Label values are escaped, whatever they hold. The export by OTLP takes
//! the same families.

use crate::named_enum::named_enum;
use crate::time::histogram::{Distribution, bound_ms};
use std::fmt::{self, Display, Write};

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

/// The value of a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A count.
    Whole(u64),
    /// Any other figure.
    Real(f64),
}

impl Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Number::Whole(value) => value.fmt(f),
            Number::Real(value) => value.fmt(f),
        }
    }
}

/// A type that the value of a sample may have.
pub trait Figure {
    /// Returns the value.
    fn number(&self) -> Number;
}

macro_rules! figures {
    ($($from:ty, $value:ident => $number:expr;)*) => {
        $(impl Figure for $from {
            fn number(&self) -> Number {
                let $value = *self;
                $number
            }
        })*
    };
}

figures! {
    u64, value => Number::Whole(value);
    u32, value => Number::Whole(value.into());
    u8, value => Number::Whole(value.into());
    usize, value => Number::Whole(value as u64);
    f64, value => Number::Real(value);
}

impl<T: Figure> Figure for &T {
    fn number(&self) -> Number {
        (*self).number()
    }
}

/// What a sample says.
#[derive(Clone, Debug, PartialEq)]
pub enum Reading {
    /// One value.
    Single(Number),
    /// The counts of a histogram.
    Distribution(Distribution),
}

/// One sample of a family.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The labels, each with its name.
    pub labels: Vec<(String, String)>,
    /// The value or values.
    pub reading: Reading,
}

/// A family of metrics.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// The type.
    pub kind: Kind,
    /// The whole name.
    pub name: String,
    /// One sentence.
    pub help: String,
    /// The samples, in their order.
    pub samples: Vec<Sample>,
}

/// The metrics: a list that grows by families.
#[derive(Debug, Default)]
pub struct MetricsText {
    families: Vec<Family>,
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

    fn begin(&mut self, kind: Kind, name: String, help: &str) -> &mut MetricsText {
        self.families.push(Family { kind, name, help: help.to_owned(), samples: Vec::new() });
        self
    }

    /// Adds a sample to the present family.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: impl Figure) -> &mut MetricsText {
        self.add(labels, Reading::Single(value.number()))
    }

    /// Adds the counts of a histogram. `label` is the label that all of them have, if there is one.
    pub fn histogram(&mut self, label: Option<(&str, &str)>, counts: &Distribution) -> &mut MetricsText {
        self.add(label.as_slice(), Reading::Distribution(counts.clone()))
    }

    fn add(&mut self, labels: &[(&str, &str)], reading: Reading) -> &mut MetricsText {
        let owned = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
        let sample = Sample { labels: labels.iter().map(owned).collect(), reading };
        // A sample follows the beginning of its family.
        if let Some(family) = self.families.last_mut() {
            family.samples.push(sample);
        }
        self
    }

    /// Adds a family with one sample.
    pub fn single(&mut self, kind: Kind, name: &str, help: &str, value: impl Figure) {
        self.family(kind, name, help).sample(&[], value);
    }

    /// Adds a family with one label, and a sample for each of its values.
    pub fn by<'a, V: Figure>(
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

    /// Returns the families, in their order.
    pub fn into_families(self) -> Vec<Family> {
        self.families
    }

    /// Returns the whole text.
    pub fn into_text(self) -> String {
        let mut text = String::new();
        self.families.iter().for_each(|family| family.write(&mut text));
        text
    }
}

impl Family {
    /// Writes the family. Writing to a string cannot fail.
    fn write(&self, text: &mut String) {
        let Family { kind, name, help, samples } = self;
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        for Sample { labels, reading } in samples {
            match reading {
                Reading::Single(value) => line(text, name, "", labels, value),
                Reading::Distribution(counts) => histogram(text, name, labels, counts),
            }
        }
    }
}

/// Writes one line for each bound in seconds, the sum and the count.
fn histogram(text: &mut String, name: &str, labels: &[(String, String)], counts: &Distribution) {
    let mut seen = 0;
    for (bucket, count) in counts.counts.iter().enumerate() {
        seen += count;
        let bound = bound_ms(bucket).map_or("+Inf".to_owned(), seconds);
        let labels = [labels, &[("le".to_owned(), bound)]].concat();
        line(text, name, "_bucket", &labels, seen);
    }
    line(text, name, "_sum", labels, counts.sum.as_secs_f64());
    line(text, name, "_count", labels, seen);
}

fn line(text: &mut String, name: &str, suffix: &str, labels: &[(String, String)], value: impl Display) {
    text.push_str(name);
    text.push_str(suffix);
    for (index, (name, value)) in labels.iter().enumerate() {
        text.push(if index == 0 { '{' } else { ',' });
        text.push_str(name);
        text.push_str("=\"");
        value.chars().for_each(|c| match c {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            c => text.push(c),
        });
        text.push('"');
    }
    if !labels.is_empty() {
        text.push('}');
    }
    let _ = writeln!(text, " {value}");
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
            .sample(&[("a", "back\\slash"), ("b", "quo\"te\nline")], 1_u8)
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
            text.family(Kind::Gauge, "g", "A gauge.").sample(&[("l", &value)], 1_u8);
            prop_assert_eq!(read_value(&text.into_text()), Some(value));
        }
    }
}
