//! Writes Prometheus' text format, version 0.0.4.
//!
//! Every family has its HELP and TYPE lines once, followed by its samples. Names and label names
//! come from this program. Label values are escaped, whatever they hold.

use std::fmt::{Display, Write};

/// The content type of the format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The type of a family of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows, and begins at 0 with the process. The name ends in `_total`.
    Counter,
    /// May grow and shrink.
    Gauge,
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
        let word = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        self.family = format!("homing_{name}");
        let family = &self.family;
        // Writing to a string cannot fail.
        let _ = write!(self.text, "# HELP {family} {help}\n# TYPE {family} {word}\n");
        self
    }

    /// Writes a sample of the present family.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) -> &mut MetricsText {
        self.text.push_str(&self.family);
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

    /// Returns the whole text.
    pub fn into_text(self) -> String {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
