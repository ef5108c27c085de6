//! The checks that all lists of tables have in common: `[[listeners]]`, `[[slo]]`,
//! `[[bridges]]`, `[[sinks]]` and `[[redelivery.rules]]`. A problem is reported with the number of its table.

use super::problem::{Problem, nearest};
use super::rule::ValueRule;
use super::value::{self, origin, written};
use config::{Map, Value, ValueKind};

pub(super) struct TableList {
    /// The key of the list.
    pub(super) key: &'static str,
    /// The word for one table.
    pub(super) item: &'static str,
    /// Maximum number of tables.
    pub(super) most: usize,
}

pub(super) struct ListedTable<'a> {
    /// The name in problems, such as `slo, objective 2`.
    pub(super) name: String,
    pub(super) value: &'a Value,
    pub(super) fields: &'a Map<String, Value>,
    /// The tables before it.
    pub(super) earlier: &'a [Value],
}

/// Collects the problems of one source.
pub(super) struct Problems {
    source: String,
    found: Vec<Problem>,
}

impl TableList {
    /// Returns every problem with the value of the list. `check` finds the problems of one table.
    pub(super) fn problems(
        &self,
        value: &Value,
        check: impl Fn(&mut Problems, &ListedTable<'_>),
    ) -> Vec<Problem> {
        let TableList { key, item, most } = self;
        let mut problems = Problems::of(value);
        let ValueKind::Array(tables) = &value.kind else {
            problems.refuse(key, value, &format!("tables in a file, each [[{key}]]"));
            return problems.found;
        };
        if tables.len() > *most {
            problems.refuse(key, value, &format!("{most} {item}s at most; here are {}", tables.len()));
        }
        for (at, table) in tables.iter().enumerate() {
            let name = format!("{key}, {item} {}", at + 1);
            match &table.kind {
                ValueKind::Table(fields) => {
                    check(&mut problems, &ListedTable { name, value: table, fields, earlier: &tables[..at] });
                }
                _ => problems.refuse(&name, table, &format!("a table, [[{key}]] with its keys below it")),
            }
        }
        problems.found
    }

    /// Refuses a text that an earlier table has in the same field.
    pub(super) fn refuse_repeated(&self, field: &str, table: &ListedTable<'_>, problems: &mut Problems) {
        let Some(value) = table.fields.get(field) else { return };
        let Some(text) = value::text(value) else { return };
        let same = table.earlier.iter().position(|other| match &other.kind {
            ValueKind::Table(other) => other.get(field).and_then(value::text) == Some(text),
            _ => false,
        });
        if let Some(at) = same {
            let allowed = format!("another {field} than that of {} {}", self.item, at + 1);
            problems.refuse(&format!("{}: {field}", table.name), value, &allowed);
        }
    }
}

impl Problems {
    /// Returns an empty collection for the source of this value.
    fn of(value: &Value) -> Problems {
        Problems { source: origin(value), found: Vec::new() }
    }

    /// Records a value that `key` does not take.
    pub(super) fn refuse(&mut self, key: &str, value: &Value, allowed: &str) {
        self.found.push(Problem::NotAllowed {
            source_name: self.source.clone(),
            key: key.to_owned(),
            value: written(value),
            allowed: allowed.to_owned(),
        });
    }

    /// Records a key that the table `name` does not have. `what` is the kind of table, and `known`
    /// has its keys.
    pub(super) fn refuse_unknown<'a>(
        &mut self,
        name: &str,
        key: &str,
        what: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) {
        let known: Vec<&str> = known.into_iter().collect();
        let hint = match nearest(key, known.iter().copied()) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("{what} holds {}", known.join(", ")),
        };
        let key = format!("{name}: {key}");
        self.found.push(Problem::UnknownKey { source_name: self.source.clone(), key, hint });
    }

    /// Checks each field of a table by itself.
    pub(super) fn check(
        &mut self,
        name: &str,
        table: &Map<String, Value>,
        known: &[(&str, ValueRule)],
        what: &str,
    ) {
        let mut present: Vec<&String> = table.keys().collect();
        present.sort();
        for key in present {
            let value = &table[key];
            match known.iter().find(|(field, _)| field == key) {
                Some((_, rule)) if rule.admits(value) => {}
                Some((_, rule)) => self.refuse(&format!("{name}: {key}"), value, &rule.instead_of(value)),
                None => {
                    self.refuse_unknown(name, key, what, known.iter().map(|(field, _)| *field));
                }
            }
        }
    }
}
