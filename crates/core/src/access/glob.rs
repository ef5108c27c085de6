//! Globs over names that clients choose.

use globset::{GlobBuilder, GlobMatcher};
use std::fmt;
use std::str::FromStr;

/// A glob over Client Identifiers or User Names. `*` matches any run, `?` one byte, `[a-z]` one of
/// these, `{one,other}` either, and `\` takes the next byte literally.
///
/// The client chooses its own name, so matching must be linear in the name's length. The glob is
/// compiled to an automaton.
#[derive(Clone)]
pub struct Pattern {
    text: Box<str>,
    glob: GlobMatcher,
}

/// The glob has a syntax error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidPattern(Box<str>);

impl Pattern {
    /// True if the whole text matches.
    pub fn matches(&self, text: &str) -> bool {
        self.glob.is_match(text)
    }

    /// Returns the glob as the operator wrote it.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl FromStr for Pattern {
    type Err = InvalidPattern;

    fn from_str(text: &str) -> Result<Pattern, InvalidPattern> {
        let built = GlobBuilder::new(text).literal_separator(false).backslash_escape(true).build();
        let glob = built.map_err(|error| InvalidPattern(error.kind().to_string().into()))?;
        Ok(Pattern { text: text.into(), glob: glob.compile_matcher() })
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Pattern) -> bool {
        self.text == other.text
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pattern({:?})", self.text)
    }
}
