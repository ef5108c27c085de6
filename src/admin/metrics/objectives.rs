//! The metrics of delivery objectives. Without `[[slo]]` the page has no such metrics.

use super::text::Kind::{Counter, Gauge};
use super::text::MetricsText;
use crate::session::objectives::{Objective, ObjectiveCounts, Objectives};

pub(super) fn write(text: &mut MetricsText, objectives: &Objectives) {
    let all: Vec<(&Objective, ObjectiveCounts)> = objectives.counts().collect();
    if all.is_empty() {
        return;
    }
    let help = "Decided deliveries to receivers that were connected at the publish, by result.";
    text.family(Counter, "slo_deliveries_total", help);
    for (objective, counts) in &all {
        let results = [("in_time", counts.in_time), ("late", counts.late), ("dropped", counts.dropped)];
        for (result, count) in results {
            text.sample(&[("slo", &objective.name), ("result", result)], count);
        }
    }
    let help = "Deliveries that do not count, because their receivers were away at the publish.";
    text.family(Counter, "slo_excluded_total", help);
    for (objective, counts) in &all {
        text.sample(&[("slo", &objective.name)], counts.excluded);
    }
    text.family(Gauge, "slo_open_deliveries", "Deliveries that are not decided yet.");
    for (objective, counts) in &all {
        text.sample(&[("slo", &objective.name)], counts.open);
    }
    text.family(Gauge, "slo_target_ratio", "The share of deliveries that has to be in time.");
    for (objective, _) in &all {
        text.sample(&[("slo", &objective.name)], objective.target);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::drops::ReceiverState;
    use crate::time::Instant;
    use std::time::Duration;

    #[test]
    fn each_objective_has_its_results_and_without_one_there_are_no_families() {
        let mut text = MetricsText::default();
        write(&mut text, &Objectives::default());
        assert_eq!(text.into_text(), "");
        let one = Objective {
            name: "alarms".into(),
            topic: "#".into(),
            client_id: None,
            within: Duration::from_secs(5),
            target: 0.999,
        };
        let mut one = Objectives::new(&vec![one].into());
        let now = Instant::from_millis(1);
        let (topic, client) = (one.of_topic("a"), one.of_client("c"));
        let mark = one.begin(now, topic, client, ReceiverState::Connected);
        one.begin(now, topic, client, ReceiverState::Connected);
        one.begin(now, topic, client, ReceiverState::Away);
        one.acknowledged(now, mark);
        let mut text = MetricsText::default();
        write(&mut text, &one);
        let text = text.into_text();
        for line in [
            "homing_slo_deliveries_total{slo=\"alarms\",result=\"in_time\"} 1\n",
            "homing_slo_deliveries_total{slo=\"alarms\",result=\"late\"} 0\n",
            "homing_slo_excluded_total{slo=\"alarms\"} 1\n",
            "homing_slo_open_deliveries{slo=\"alarms\"} 1\n",
            "homing_slo_target_ratio{slo=\"alarms\"} 0.999\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
    }
}
