//! The texts that `homing ctl` prints.

use super::error::CtlError;
use super::http::read;
use crate::escape;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The form in which a command prints its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Print {
    /// The JSON of the interface.
    Json,
    /// Text for people.
    Text,
}

impl Print {
    /// Returns an answer, or the rows of a listing, as JSON, or as `text` makes them. Errors: the
    /// answer has another form than its type.
    pub(super) fn answer<T: DeserializeOwned>(
        self,
        body: Value,
        text: impl FnOnce(T) -> String,
    ) -> Result<String, CtlError> {
        match self {
            Print::Json => Ok(pretty(&body)),
            Print::Text => read(body).map(text),
        }
    }
}

/// Returns the JSON in lines.
pub(super) fn pretty(value: &Value) -> String {
    escape::json(&serde_json::to_string_pretty(value).unwrap_or_default()).into_owned()
}

/// Returns facts, each on a line behind its name.
pub(super) fn fact_lines(facts: &[(&'static str, String)]) -> String {
    let width = facts.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let line = |(name, value): &(&str, String)| format!("{name:<width$}  {}", escape::visible(value));
    facts.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// A column of a table: its name, the side of its texts, and the text of a row.
pub(super) struct TextColumn<R> {
    name: &'static str,
    side: Side,
    cell: fn(&R) -> String,
}

/// The side to which the texts of a column are aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}

pub(super) const fn left<R>(name: &'static str, cell: fn(&R) -> String) -> TextColumn<R> {
    TextColumn { name, side: Side::Left, cell }
}

pub(super) const fn right<R>(name: &'static str, cell: fn(&R) -> String) -> TextColumn<R> {
    TextColumn { name, side: Side::Right, cell }
}

/// Returns a table whose columns are as wide as their widest cell. The last column is not filled.
pub(super) fn table<R, const N: usize>(rows: &[R], columns: [TextColumn<R>; N]) -> String {
    let cells = |row: &R| columns.each_ref().map(|column| (column.cell)(row));
    let rows: Vec<[String; N]> = rows.iter().map(cells).collect();
    let mut widths = columns.each_ref().map(|column| column.name.chars().count());
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut out = line(&columns, &widths, columns.each_ref().map(|column| column.name));
    for row in &rows {
        out.push('\n');
        out += &line(&columns, &widths, row.each_ref().map(String::as_str));
    }
    out
}

fn line<R, const N: usize>(columns: &[TextColumn<R>; N], widths: &[usize; N], cells: [&str; N]) -> String {
    let mut out = String::new();
    for ((column, width), cell) in columns.iter().zip(widths).zip(cells) {
        let filled = match column.side {
            Side::Left => format!("{cell:<width$}  "),
            Side::Right => format!("{cell:>width$}  "),
        };
        out += &filled;
    }
    out.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::segment::segment;
    use serde_json::json;

    #[test]
    fn a_client_identifier_is_one_segment_of_a_url_and_writes_nothing_on_a_terminal() {
        assert_eq!(segment("a/b c?%é"), "a%2Fb%20c%3F%25%C3%A9");
        assert_eq!(escape::visible("a\u{1b}[31mb\n\u{202e}"), "a\\u{1b}[31mb\\n\\u{202e}");
        assert_eq!(pretty(&json!("a\u{9b}b")), "\"a\\u009bb\"");
    }

    #[test]
    fn the_numbers_of_a_table_stand_below_each_other() {
        let rows = [("a", 1), ("longer", 1_000)];
        let client = |(client, _): &(&str, u64)| (*client).to_owned();
        let table = table(&rows, [left("client", client), right("queued", |(_, queued)| queued.to_string())]);
        assert_eq!(table, "client  queued\na            1\nlonger    1000");
    }
}
