//! The digest of each row of the database. SQLite has no checksums, and a bit that flipped in a row
//! would be a wrong message in silence.
//!
//! A digest has two halves of 31 bits: one of the columns that change while the row lives, or that
//! a start reads alone, and one of the rest. So an UPDATE computes one half, and neither reads a
//! large payload nor makes a damaged row look sound. A row whose bits flipped goes unnoticed with a
//! probability of 2^-31. The digest is no protection against somebody who changes the file: that
//! person could compute it, too.
//!
//! SQL computes digests by two functions:
//!
//! | function | value |
//! |---|---|
//! | `row_digest(n, value, ...)` | the digest of a row, whose first half is of the first `n` values |
//! | `moved_digest(digest, n, old, ..., new, ...)` | the digest after the `n` old values of its first half became the new ones |
//!
//! `moved_digest` leaves a digest that does not fit the old values as it is.

use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::types::{ToSqlOutput, Type, ValueRef};
use rusqlite::{Connection, Error, Result, Row, Statement, ToSql};
use std::fmt;

/// Bits of a half.
const HALF: u32 = 31;
const MASK: u64 = (1 << HALF) - 1;
/// With this bit, a digest takes eight bytes in its row. An UPDATE of a row that keeps its length
/// is made in place and needs no room.
const LONG: u64 = 1 << (2 * HALF);

/// A table whose rows have a digest.
#[derive(Debug)]
pub(super) struct Table {
    /// Its name.
    pub(super) name: &'static str,
    /// What a row is to an operator.
    pub(super) what: &'static str,
    /// The columns in their order, without `digest`.
    columns: &'static [&'static str],
    /// The places of the columns of the first half of the digest, in their order.
    first: &'static [usize],
    /// Number of columns of the primary key, which are the first ones of the table.
    keys: usize,
}

pub(super) const META: Table = Table {
    name: "meta",
    what: "a figure of the store",
    columns: &["name", "value"],
    first: &[0, 1],
    keys: 1,
};

pub(super) const SESSION: Table = Table {
    name: "session",
    what: "a session, with its subscriptions and its queue",
    columns: &[
        "number",
        "client_id",
        "version",
        "expiry_seconds",
        "connected",
        "ends_ms",
        "will_due_ms",
        "retry_interval_ms",
        "ack_timeout_ms",
        "will_topic",
        "will_qos",
        "will_retain",
        "will_delay_ms",
        "will_expiry_seconds",
        "will_properties",
        "will_payload",
        "user_name",
        "claimed_name",
        "rules",
        "listener",
        "mount_point",
    ],
    first: &[0, 4, 5, 6],
    keys: 1,
};

pub(super) const SUBSCRIPTION: Table = Table {
    name: "subscription",
    what: "a subscription",
    columns: &["session", "filter", "options", "subscription_id"],
    first: &[0, 1, 2, 3],
    keys: 2,
};

pub(super) const INCOMING: Table = Table {
    name: "incoming",
    what: "the packet identifier of an incoming message",
    columns: &["session", "packet_id"],
    first: &[0, 1],
    keys: 2,
};

/// The first half is of what a start reads: not the payload.
pub(super) const BODY: Table = Table {
    name: "body",
    what: "a message in the queues that have it",
    columns: &[
        "number",
        "size",
        "expires_ms",
        "recorded_ms",
        "qos",
        "retain",
        "topic",
        "properties",
        "payload",
        "publisher",
    ],
    first: &[0, 1, 2],
    keys: 1,
};

pub(super) const ENTRY: Table = Table {
    name: "entry",
    what: "a message in one queue",
    columns: &[
        "number",
        "session",
        "body",
        "qos",
        "retain",
        "packet_number",
        "transmissions",
        "subscription_ids",
        "share",
    ],
    first: &[0, 2, 5, 6],
    keys: 1,
};

pub(super) const RETAINED: Table = Table {
    name: "retained",
    what: "a retained message",
    columns: &[
        "topic",
        "expires_ms",
        "qos",
        "retain",
        "properties",
        "payload",
        "source_client",
        "source_user",
        "source_listener",
        "owner_client",
        "owner_listener",
    ],
    first: &[0],
    keys: 1,
};

pub(super) const DELAYED: Table = Table {
    name: "delayed",
    what: "a delayed message",
    columns: &[
        "number",
        "due_ms",
        "expires_ms",
        "qos",
        "retain",
        "topic",
        "properties",
        "payload",
        "owner_client",
        "owner_listener",
    ],
    first: &[0],
    keys: 1,
};

pub(super) const LETTER: Table = Table {
    name: "letter",
    what: "a dead letter",
    columns: &[
        "number",
        "dropped_ms",
        "receiver",
        "cause",
        "reason_code",
        "attempts",
        "first_sent_ms",
        "last_sent_ms",
        "qos",
        "topic",
        "properties",
        "payload",
        "publisher",
    ],
    first: &[0],
    keys: 1,
};

/// All tables.
pub(super) const TABLES: [&Table; 9] =
    [&META, &SESSION, &SUBSCRIPTION, &INCOMING, &BODY, &ENTRY, &RETAINED, &DELAYED, &LETTER];

impl Table {
    /// Returns the columns, without `digest`, as a list.
    pub(super) fn list(&self) -> String {
        self.columns.join(", ")
    }

    /// Returns the name of the table, and the order of its rows in the file where it has one.
    pub(super) fn in_order(&self) -> String {
        let is_by_number = self.columns[0] == "number";
        format!("{}{}", self.name, if is_by_number { " ORDER BY number" } else { "" })
    }

    /// Returns the order of the rows in the file, for `ORDER BY`.
    pub(super) fn order(&self, direction: &str) -> String {
        // Other rows with a key of text have an order of their own.
        let keys = if self.name == "retained" { &["rowid"] } else { &self.columns[..self.keys] };
        keys.iter().map(|key| format!("{key} {direction}")).collect::<Vec<_>>().join(", ")
    }

    /// Returns the statement that inserts a row, for [`Table::put`].
    pub(super) fn insert(&self) -> String {
        let values = vec!["?"; self.columns.len() + 1].join(", ");
        format!("INSERT INTO {} ({}, digest) VALUES ({values})", self.name, self.list())
    }

    /// As [`Table::insert`], unless there is a row with the same key.
    pub(super) fn insert_missing(&self) -> String {
        self.insert().replacen("INSERT", "INSERT OR IGNORE", 1)
    }

    /// As [`Table::insert`], in place of a row with the same key.
    pub(super) fn replace(&self) -> String {
        self.insert().replacen("INSERT", "INSERT OR REPLACE", 1)
    }

    /// Inserts a row with its digest. The values are those of the columns in their order.
    ///
    /// # Errors
    /// Returns the error of SQLite.
    pub(super) fn put(&self, statement: &mut Statement<'_>, values: &[&dyn ToSql]) -> Result<usize> {
        let mut halves = [SEED; 2];
        for (at, value) in values.iter().enumerate() {
            let value = value.to_sql()?;
            let half = &mut halves[self.half_of(at)];
            *half = match &value {
                ToSqlOutput::Borrowed(value) => take(*half, *value),
                ToSqlOutput::Owned(value) => take(*half, value.into()),
                // No row has a value of another kind.
                _ => *half,
            };
            statement.raw_bind_parameter(at + 1, value)?;
        }
        statement.raw_bind_parameter(values.len() + 1, joined(halves))?;
        statement.raw_execute()
    }

    /// Returns the columns and the digest as a list, for [`Table::fits`]. `of` is the name of the
    /// row in the statement, with a point; or empty.
    pub(super) fn select(&self, of: &str) -> String {
        let columns = self.columns.iter().chain(&["digest"]);
        columns.map(|column| format!("{of}{column}")).collect::<Vec<_>>().join(", ")
    }

    /// Returns true if a row of [`Table::select`] fits its digest. `first` is the place of its
    /// first column.
    pub(super) fn fits(&self, row: &Row<'_>, first: usize) -> bool {
        let value = |at| row.get_ref(first + at).unwrap_or(ValueRef::Null);
        value(self.columns.len()) == ValueRef::Integer(self.digest_of(value))
    }

    /// Returns true if the columns of the first half fit the digest. They stand first in the row,
    /// and the digest follows.
    pub(super) fn fits_first(&self, row: &Row<'_>) -> bool {
        let value = |at| row.get_ref(at).unwrap_or(ValueRef::Null);
        let half = half((0..self.first.len()).map(value));
        matches!(value(self.first.len()), ValueRef::Integer(digest) if digest as u64 >> HALF == half | 1 << HALF)
    }

    /// Returns the digest of a row.
    fn digest_of<'a>(&self, value: impl Fn(usize) -> ValueRef<'a>) -> i64 {
        let mut halves = [SEED; 2];
        for at in 0..self.columns.len() {
            let half = &mut halves[self.half_of(at)];
            *half = take(*half, value(at));
        }
        joined(halves)
    }

    /// Returns the half of the digest that has a column: 0 or 1.
    fn half_of(&self, column: usize) -> usize {
        usize::from(!self.first.contains(&column))
    }

    /// Returns the digest of a row as an expression. `of` as for [`Table::select`].
    pub(super) fn digest(&self, of: &str) -> String {
        let rest = (0..self.columns.len()).filter(|at| !self.first.contains(at));
        let places = self.first.iter().copied().chain(rest);
        let values: Vec<String> = places.map(|at| format!("{of}{}", self.columns[at])).collect();
        format!("row_digest({}, {})", self.first.len(), values.join(", "))
    }

    /// Returns the condition that a row fits its digest. `of` as for [`Table::select`].
    pub(super) fn is_sound(&self, of: &str) -> String {
        format!("{of}digest IS {}", self.digest(of))
    }

    /// Returns the digest after a change of columns of the first half, as an expression. `change`
    /// is the new value of a column; `None` if it stays.
    pub(super) fn moved(&self, change: impl Fn(&str) -> Option<&'static str>) -> String {
        let old: Vec<&str> = self.first.iter().map(|at| self.columns[*at]).collect();
        let new: Vec<&str> = old.iter().map(|column| change(column).unwrap_or(column)).collect();
        format!("moved_digest(digest, {}, {}, {})", old.len(), old.join(", "), new.join(", "))
    }

    /// Returns the text for a row: its table, its key and what it is. The key stands in the first
    /// columns of the row.
    pub(super) fn key_of(&self, row: &Row<'_>) -> String {
        let key = |at| row.get_ref(at).map_or_else(|_| "?".to_owned(), text);
        let key: Vec<String> = (0..self.keys).map(key).collect();
        format!("{} {} ({})", self.name, key.join(", "), self.what)
    }

    /// Returns the error for a row that does not fit its digest.
    pub(super) fn damaged(&self, row: &Row<'_>) -> Damaged {
        Damaged(self.key_of(row))
    }
}

/// A row that does not fit its digest.
#[derive(Debug)]
pub(super) struct Damaged(String);

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a row is damaged, and does not fit its digest: {}", self.0)
    }
}

impl std::error::Error for Damaged {}

impl From<Damaged> for Error {
    fn from(damaged: Damaged) -> Error {
        Error::FromSqlConversionFailure(0, Type::Null, Box::new(damaged))
    }
}

/// Returns a value for a person.
fn text(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => "NULL".to_owned(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => number.to_string(),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => format!("{:?}", String::from_utf8_lossy(bytes)),
    }
}

/// Gives the functions to a connection.
///
/// # Errors
/// SQLite refuses them.
pub(super) fn register(connection: &Connection) -> Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    connection.create_scalar_function("row_digest", -1, flags, |call| {
        let values = 1..call.len();
        let first = usize::try_from(call.get::<i64>(0)?).unwrap_or(0).min(values.len());
        Ok(joined([1..1 + first, 1 + first..values.end].map(|places| hash(call, places))))
    })?;
    connection.create_scalar_function("moved_digest", -1, flags, |call| {
        let (digest, count) = (call.get::<i64>(0)?, (call.len() - 2) / 2);
        let [old, new] = [2..2 + count, 2 + count..call.len()].map(|places| hash(call, places));
        let is_sound = (digest as u64) >> HALF & MASK == old;
        Ok(if is_sound { joined([new, digest as u64]) } else { digest })
    })
}

/// Returns the half of a digest that is of these arguments of a function.
fn hash(call: &Context<'_>, places: std::ops::Range<usize>) -> u64 {
    half(places.map(|place| call.get_raw(place)))
}

/// Returns the half of a digest that is of these values.
fn half<'a>(values: impl Iterator<Item = ValueRef<'a>>) -> u64 {
    values.fold(SEED, take) & MASK
}

/// Returns the digest with these halves.
fn joined([first, rest]: [u64; 2]) -> i64 {
    (LONG | (first & MASK) << HALF | rest & MASK) as i64
}

fn take(hash: u64, value: ValueRef<'_>) -> u64 {
    match value {
        ValueRef::Null => step(hash, 1),
        ValueRef::Integer(number) => step(step(hash, 2), number as u64),
        ValueRef::Real(number) => step(step(hash, 3), number.to_bits()),
        ValueRef::Text(bytes) => step_bytes(step(hash, 4), bytes),
        ValueRef::Blob(bytes) => step_bytes(step(hash, 5), bytes),
    }
}

/// The first digits of the fractions of the golden ratio and of pi.
const SEED: u64 = 0x9E37_79B9_7F4A_7C15;
const FACTOR: u64 = 0x243F_6A88_85A3_08D3;

/// Takes a word into a hash: multiplies it to twice its length, and folds the halves. The files
/// have its results, so it must never change.
fn step(hash: u64, word: u64) -> u64 {
    let product = u128::from(hash ^ word) * u128::from(FACTOR);
    (product as u64 ^ (product >> 64) as u64).wrapping_add(SEED)
}

fn step_bytes(hash: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let hash =
        words.iter().fold(step(hash, bytes.len() as u64), |hash, word| step(hash, u64::from_le_bytes(*word)));
    step(hash, u64::from_le_bytes(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(expression: &str) -> i64 {
        let connection = Connection::open_in_memory().unwrap();
        register(&connection).unwrap();
        connection.query_row(&format!("SELECT {expression}"), [], |row| row.get(0)).unwrap()
    }

    /// The files have them.
    #[test]
    fn digests_never_change() {
        assert_eq!(
            digest("row_digest(2, 7, 'site', NULL, x'00ff', 'a longer text of more than a word')"),
            7_526_558_241_096_999_680
        );
        assert_eq!(digest("row_digest(0)"), 9_197_826_030_927_772_693);
    }

    #[test]
    fn each_flip_of_a_bit_changes_the_half_that_has_it() {
        let of = |number: i64, text: &str| {
            let digest = digest(&format!("row_digest(1, {number}, '{text}')")) as u64;
            (digest >> HALF, digest & MASK)
        };
        let (first, rest) = of(5, "abcdefghijk");
        for bit in 0..63 {
            let (other, same) = of(5 ^ 1 << bit, "abcdefghijk");
            assert!(other != first && same == rest);
        }
        for text in ["abcdefghijj", "abcdefghik", "abcdefghijk\u{1}", "Abcdefghijk", ""] {
            let (same, other) = of(5, text);
            assert!(same == first && other != rest, "{text}");
        }
    }

    #[test]
    fn a_digest_moves_with_its_row_and_not_with_a_damaged_one() {
        let whole = digest("row_digest(2, 7, NULL, 'text')");
        assert_eq!(
            digest(&format!("moved_digest({whole}, 2, 7, NULL, 7, 3)")),
            digest("row_digest(2, 7, 3, 'text')")
        );
        assert_eq!(digest(&format!("moved_digest({whole}, 2, 7, 1, 7, 3)")), whole);
    }

    #[test]
    fn a_digest_takes_eight_bytes() {
        for n in 0..1000 {
            assert!(digest(&format!("row_digest(1, {n})")) >= 1 << 62);
        }
    }
}
