//! The redelivery settings of a session in the words of the configuration.

use crate::named_enum::named_enum;
use crate::operators::redelivery::{SettingSource, SourcedRedelivery, SourcedSetting};
use crate::session::ack_wait::format;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use utoipa::ToSchema;

/// A setting, its value, and the place that the value comes from.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RuleFact {
    /// The key in `[redelivery]` and in its rules.
    pub(super) setting: &'static str,
    /// The value, as the configuration has it.
    pub(super) value: String,
    source: SettingSource,
}

impl RuleFact {
    fn of<T: Copy>(
        setting: &'static str,
        sourced: SourcedSetting<T>,
        value: impl Fn(T) -> String,
    ) -> RuleFact {
        RuleFact { setting, value: value(sourced.value), source: sourced.source }
    }

    /// Returns the source for people.
    pub(super) fn source(&self) -> String {
        match self.source {
            SettingSource::Client => {
                format!("the client's own request, $homing/session/{}", self.requested())
            }
            SettingSource::Rule(number) => format!("rule {number} of redelivery.rules"),
            SettingSource::Section => "section [redelivery]".to_owned(),
        }
    }

    /// Returns the name of the setting in requests of clients.
    fn requested(&self) -> &'static str {
        if self.setting == "interval" { "retry-interval" } else { "ack-timeout" }
    }
}

/// Returns the settings that act on the connections of the session's protocol version.
pub(super) fn rule_facts(rule: &SourcedRedelivery) -> Vec<RuleFact> {
    let is_v5 = rule.version.is_v5();
    let mut facts = vec![RuleFact::of(if is_v5 { "ack_timeout" } else { "interval" }, rule.wait, format)];
    if is_v5 {
        facts.push(RuleFact::of("on_ack_timeout", rule.on_ack_timeout, |value| value.to_string()));
    }
    facts.push(RuleFact::of("attempts", rule.attempts, |attempts| match attempts {
        0 => "unlimited".to_owned(),
        some => some.to_string(),
    }));
    facts.push(RuleFact::of("on_exhausted", rule.on_exhausted, |value| value.to_string()));
    facts
}

/// Returns the rules for topics for people; `None` for an empty list.
pub(super) fn topic_rules(rule: &SourcedRedelivery) -> Option<String> {
    let numbers: Vec<String> = rule.by_topic.iter().map(usize::to_string).collect();
    match &*numbers {
        [] => None,
        [one] => Some(format!("Rule {one} has other settings for the messages of its topic.")),
        several => {
            let all = several.join(", ");
            Some(format!("Rules {all} have other settings for the messages of their topics."))
        }
    }
}

named_enum! {
    /// The source of a setting.
    pub(super) enum SourceKind {
        Client = "client",
        Rule = "rule",
        Section = "section",
    }
}

/// The redelivery settings of a client.
#[derive(Deserialize, Serialize, ToSchema)]
pub(crate) struct ClientRedelivery {
    pub(crate) settings: Vec<RedeliverySetting>,
    /// The numbers of the rules that hold for some topics of the client.
    pub(crate) topic_rules: Vec<usize>,
}

#[derive(Deserialize, Serialize, ToSchema)]
pub(crate) struct RedeliverySetting {
    /// The key in `[redelivery]` and in its rules.
    pub(crate) setting: Cow<'static, str>,
    /// As the configuration has it.
    pub(crate) value: String,
    /// `rule`: `redelivery.rules`; `section`: `[redelivery]`; `client`: its own request.
    pub(crate) source: SourceKind,
    /// The number of the rule, from 1.
    #[schema(required, minimum = 1)]
    pub(crate) rule: Option<usize>,
}

impl ClientRedelivery {
    pub(crate) fn of(rule: &SourcedRedelivery) -> ClientRedelivery {
        let row = |RuleFact { setting, value, source }| {
            let (source, rule) = match source {
                SettingSource::Client => (SourceKind::Client, None),
                SettingSource::Rule(number) => (SourceKind::Rule, Some(number)),
                SettingSource::Section => (SourceKind::Section, None),
            };
            RedeliverySetting { setting: setting.into(), value, source, rule }
        };
        ClientRedelivery {
            settings: rule_facts(rule).into_iter().map(row).collect(),
            topic_rules: rule.by_topic.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqtt::packet::ProtocolVersion;
    use crate::session::outbound::retry::{OnAckTimeout, OnExhausted};
    use serde_json::json;
    use std::time::Duration;

    #[test]
    fn a_client_has_the_settings_of_its_version_each_with_its_source() {
        let sourced = |source| SourcedSetting { value: Duration::from_secs(5), source };
        let mut rule = SourcedRedelivery {
            version: ProtocolVersion::V3_1_1,
            wait: sourced(SettingSource::Rule(2)),
            attempts: SourcedSetting { value: 0, source: SettingSource::Section },
            on_exhausted: SourcedSetting { value: OnExhausted::DeadLetter, source: SettingSource::Rule(1) },
            on_ack_timeout: SourcedSetting { value: OnAckTimeout::Alarm, source: SettingSource::Section },
            by_topic: vec![3],
        };
        let row = |setting: &str, value: &str, source: &str, rule: Option<u8>| json!({ "setting": setting, "value": value, "source": source, "rule": rule });
        let last = [
            row("attempts", "unlimited", "section", None),
            row("on_exhausted", "dead_letter", "rule", Some(1)),
        ];
        let [attempts, exhausted] = last.clone();
        let settings = [row("interval", "5s", "rule", Some(2)), attempts, exhausted];
        let rule_json =
            |rule: &SourcedRedelivery| serde_json::to_value(ClientRedelivery::of(rule)).expect("JSON");
        assert_eq!(rule_json(&rule), json!({ "settings": settings, "topic_rules": [3] }));
        rule.version = ProtocolVersion::V5;
        rule.wait = sourced(SettingSource::Client);
        let [attempts, exhausted] = last;
        let settings = [
            row("ack_timeout", "5s", "client", None),
            row("on_ack_timeout", "alarm", "section", None),
            attempts,
            exhausted,
        ];
        assert_eq!(rule_json(&rule)["settings"], json!(settings));
        assert!(rule_facts(&rule)[0].source().ends_with("$homing/session/ack-timeout"));
        assert_eq!(
            topic_rules(&rule).as_deref(),
            Some("Rule 3 has other settings for the messages of its topic.")
        );
    }
}
