//! Headers of requests to an HTTP service, as an operator writes them.

use super::value::{self, Field};
use config::{Map, Value, ValueKind};

/// Headers that the broker writes itself.
const OWN: [&str; 6] =
    ["host", "content-type", "content-length", "transfer-encoding", "connection", "expect"];

/// Headers of one table, by name: each with its value, or with the file of its value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderTable(Vec<(String, String)>);

impl HeaderTable {
    /// Returns name and text of each header, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, text)| (name.as_str(), text.as_str()))
    }
}

impl Field for HeaderTable {
    fn read(value: &Value) -> Option<HeaderTable> {
        let ValueKind::Table(fields) = &value.kind else { return None };
        let pair = |(name, value)| Some((String::clone(name), value::text(value)?.to_owned()));
        let mut all: Vec<(String, String)> = fields.iter().map(pair).collect::<Option<_>>()?;
        all.sort();
        Some(HeaderTable(all))
    }

    fn write(&self) -> ValueKind {
        let pair = |(name, text): &(String, String)| (name.clone(), Value::new(None, text.as_str()));
        ValueKind::Table(self.0.iter().map(pair).collect::<Map<_, _>>())
    }
}

/// Returns true if the broker writes this header itself.
pub fn is_own(name: &str) -> bool {
    OWN.iter().any(|own| name.eq_ignore_ascii_case(own))
}

/// Returns true for a name that HTTP allows.
// RFC 9110 section 5.6.2
pub fn is_name(name: &str) -> bool {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(is_token)
}

/// Returns true for a value in visible ASCII.
pub fn is_value(value: &str) -> bool {
    !value.is_empty() && value.bytes().all(|byte| byte == b'\t' || (0x20..0x7F).contains(&byte))
}
