//! Client ids and topics as patterns with variables. Pure.

use super::refused::Refused;

/// A text with variables.
#[derive(Clone, Debug)]
pub(super) struct NamePattern(Vec<PatternPart>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum PatternPart {
    Text(String),
    /// `%i`: the number of the client.
    Number,
    /// `%r`: the number of the run.
    Run,
    /// `%u`: the user name; empty without one.
    User,
    /// `%c`: the client id.
    ClientId,
}

/// The values of the variables for one client.
#[derive(Clone, Copy, Debug)]
pub(super) struct PatternValues<'a> {
    pub number: u32,
    pub run: u32,
    pub user: &'a str,
    /// Empty in the pattern of the client id itself.
    pub client_id: &'a str,
}

impl NamePattern {
    /// Reads a pattern. `option` is its option on the command line.
    ///
    /// # Errors
    /// A `%` with another letter behind it, or `%c` in the pattern of a client id.
    pub(super) fn parse(option: &str, text: &str) -> Result<NamePattern, Refused> {
        let topic = option == "--topic";
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut letters = text.chars();
        while let Some(letter) = letters.next() {
            if letter != '%' {
                plain.push(letter);
                continue;
            }
            let part = match letters.next() {
                Some('%') => {
                    plain.push('%');
                    continue;
                }
                Some('i') => PatternPart::Number,
                Some('r') => PatternPart::Run,
                Some('u') => PatternPart::User,
                Some('c') if topic => PatternPart::ClientId,
                other => {
                    let other = other.map(String::from).unwrap_or_default();
                    let client = if topic { ", %c (client id)" } else { "" };
                    return Err(Refused(format!(
                        "{option} {text}: %{other} has no meaning; use %i (number of the client), %u (user){client}, \
                         %r (run) or %% (a percent sign)"
                    )));
                }
            };
            if !plain.is_empty() {
                parts.push(PatternPart::Text(std::mem::take(&mut plain)));
            }
            parts.push(part);
        }
        if !plain.is_empty() {
            parts.push(PatternPart::Text(plain));
        }
        Ok(NamePattern(parts))
    }

    /// Returns the text for one client.
    pub(super) fn fill(&self, values: PatternValues<'_>) -> String {
        let mut text = String::new();
        for part in &self.0 {
            match part {
                PatternPart::Text(plain) => text += plain,
                PatternPart::Number => text += &values.number.to_string(),
                PatternPart::Run => text += &format!("{:08x}", values.run),
                PatternPart::User => text += values.user,
                PatternPart::ClientId => text += values.client_id,
            }
        }
        text
    }

    /// Returns the filter for the topics of all clients: a level that differs between them is `+`.
    ///
    /// # Errors
    /// A level has such a variable and something else.
    pub(super) fn filter(&self, option: &str, run: u32) -> Result<String, Refused> {
        const PLUS: &str = "+";
        let wild = [PatternPart::Number, PatternPart::User, PatternPart::ClientId];
        let mut text = String::new();
        for part in &self.0 {
            match part {
                PatternPart::Text(plain) => text += plain,
                PatternPart::Run => text += &format!("{run:08x}"),
                part if wild.contains(part) => text += PLUS,
                _ => {}
            }
        }
        if text.split('/').all(|level| level == PLUS || !level.contains('+')) {
            return Ok(text);
        }
        Err(Refused(format!(
            "{option}: with --layout fan-in, %i, %c and %u must each be a whole level, as in site/%i/up, because the \
             subscribers use + in their place"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUES: PatternValues<'_> =
        PatternValues { number: 7, run: 0xBEEF, user: "ann", client_id: "meter-7" };

    #[test]
    fn variables_are_filled_in() {
        let cases = [
            ("site/%i/up", "site/7/up"),
            ("%c/%u/%r", "meter-7/ann/0000beef"),
            ("100%%/%i%i", "100%/77"),
            ("plain", "plain"),
            ("", ""),
        ];
        for (text, expected) in cases {
            assert_eq!(NamePattern::parse("--topic", text).unwrap().fill(VALUES), expected, "{text}");
        }
    }

    #[test]
    fn an_unknown_variable_is_refused_with_those_that_exist() {
        for (option, text, has) in [
            ("--topic", "a/%x", "%x has no meaning"),
            ("--client-id", "%c", "%c has"),
            ("--topic", "50%", "%% ("),
        ] {
            let refused = NamePattern::parse(option, text).unwrap_err().0;
            assert!(
                refused.contains(has) && refused.contains("%i") && refused.starts_with(option),
                "{refused}"
            );
        }
    }

    #[test]
    fn a_filter_has_a_plus_for_each_level_that_differs() {
        let filter = |text: &str| NamePattern::parse("--topic", text).unwrap().filter("--topic", 0xBEEF);
        assert_eq!(filter("a/%i/%r/%c").unwrap(), "a/+/0000beef/+");
        assert_eq!(filter("a/b").unwrap(), "a/b");
        for text in ["a/dev-%i", "a/%i%u"] {
            assert!(filter(text).unwrap_err().0.contains("whole level"), "{text}");
        }
    }
}
