//! `[[slo]]`: delivery objectives. A problem in an objective is reported with the number of the
//! objective.

use super::listener::{fields, is_name};
use super::problem::Problem;
use super::redelivery_rule::Glob;
use super::rule::{ValueRule, ValueType, days};
use super::table_list::TableList;
use super::value::{self, Field};
use crate::session::objectives;
use config::{Map, Value, ValueKind};
use std::time::Duration;

fields! {
    /// One objective. Each that passed the checks has all fields but `client_id`.
    Slo {
        /// The name, which metrics have as a label.
        name: String, ValueType::Checked(is_name, "a name of 1 to 64 letters, digits, \"-\", \"_\" and \".\"").only();
        /// The topic filter of the deliveries that count.
        topic: String, ValueType::TopicFilter.only();
        /// A glob over the client ids of receivers; all if left out.
        client_id: Glob, ValueType::Glob.only();
        /// The time that a receiver has for its acknowledgement.
        within: Duration, ValueType::Duration(10, days(1)).only();
        /// The share of deliveries that has to be in time.
        target: f64, ValueType::Number(0.5, 1.0).only();
    }
}

/// The fields that each objective has.
const NEEDED: [&str; 4] = ["name", "topic", "within", "target"];

const LIST: TableList = TableList { key: "slo", item: "objective", most: objectives::MOST };

/// Returns every problem with the value of `slo`.
pub(super) fn problems(value: &Value) -> Vec<Problem> {
    LIST.problems(value, |problems, table| {
        problems.check(&table.name, table.fields, Slo::FIELDS, "an objective");
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
