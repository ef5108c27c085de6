//! `[[slo]]`: delivery objectives. A problem in an objective is reported with the number of the
//! objective.

use super::listener::NAME;
use super::problem::Problem;
use super::rule::{ValueRule, ValueType, days};
use super::table_list::TableList;
use super::value::Field;
use crate::session::objectives::{self, Objective};
use config::{Value, ValueKind};

/// The fields of an objective, each with its allowed values.
const FIELDS: [(&str, ValueRule); 5] = [
    ("name", NAME.only()),
    ("topic", ValueType::TopicFilter.only()),
    ("client_id", ValueType::Glob.only()),
    ("within", ValueType::Duration(10, days(1)).only()),
    ("target", ValueType::Number(0.5, 1.0).only()),
];

impl Field for Objective {
    fn read(value: &Value) -> Option<Objective> {
        let ValueKind::Table(fields) = &value.kind else { return None };
        let client_id = fields.get("client_id").map(Field::read);
        Some(Objective {
            name: Field::read(fields.get("name")?)?,
            topic: Field::read(fields.get("topic")?)?,
            client_id: client_id.map_or(Some(None), |glob| glob.map(Some))?,
            within: Field::read(fields.get("within")?)?,
            target: Field::read(fields.get("target")?)?,
        })
    }

    fn write(&self) -> ValueKind {
        let Objective { name, topic, client_id, within, target } = self;
        let fields = [
            ("name", Some(name.write())),
            ("topic", Some(topic.write())),
            ("client_id", client_id.as_ref().map(Field::write)),
            ("within", Some(within.write())),
            ("target", Some(target.write())),
        ];
        let written = fields.into_iter().filter_map(|(name, kind)| Some((name, kind?)));
        ValueKind::Table(written.map(|(name, kind)| (name.to_owned(), Value::new(None, kind))).collect())
    }
}

/// The fields that each objective has.
const NEEDED: [&str; 4] = ["name", "topic", "within", "target"];

const LIST: TableList = TableList { key: "slo", item: "objective", most: objectives::MOST };

/// Returns every problem with the value of `slo`.
pub(super) fn problems(value: &Value) -> Vec<Problem> {
    LIST.problems(value, |problems, table| {
        problems.check(&table.name, table.fields, &FIELDS, "an objective");
        let missing: Vec<&str> = NEEDED.into_iter().filter(|key| !table.fields.contains_key(*key)).collect();
        if !missing.is_empty() {
            let allowed = format!("an objective with {}", missing.join(" and "));
            problems.refuse(&table.name, table.value, &allowed);
        }
        LIST.refuse_repeated("name", table, problems);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objective(fields: &[(&str, &str)]) -> Value {
        let text = |(key, text): &(&str, &str)| ((*key).to_owned(), Value::new(None, *text));
        Value::new(None, ValueKind::Table(fields.iter().map(text).collect()))
    }

    fn found(items: Vec<Value>) -> Vec<String> {
        let list = Value::new(None, ValueKind::Array(items));
        problems(&list).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_objective_needs_a_name_of_its_own_a_topic_a_time_and_a_target() {
        let only = [("name", "a"), ("topic", "a/#")];
        let missing = found(vec![objective(&only)]);
        assert!(missing[0].contains("an objective with within and target"), "{missing:?}");
        let twice = found(vec![objective(&only), objective(&only)]);
        assert!(twice.iter().any(|p| p.contains("another name than that of objective 1")), "{twice:?}");
        let wrong = found(vec![objective(&[("name", "a b"), ("topic", "a/#/b"), ("what", "1")])]);
        assert_eq!(wrong.len(), 4, "{wrong:?}");
    }

    #[test]
    fn more_than_sixteen_objectives_are_refused() {
        let many = found((0..17).map(|_| objective(&[])).collect());
        assert!(many.iter().any(|p| p.contains("16 objectives at most; here are 17")), "{many:?}");
    }
}
