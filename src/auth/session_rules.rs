//! The rules of one session, as tokens and HTTP services write them.
//!
//! The format is that of EMQX: an object of lists, `{"pub": [..], "sub": [..], "all": [..]}`, or an
//! array of rules, `[{"permission": "allow", "action": "publish", "topic": ".."}]`. The first rule
//! that matches decides, and the rest is denied.
//!
//! A rule that the broker does not understand refuses the login: skipping a rule that denies would
//! grant something.

use crate::access::grant::SessionRules;
use crate::access::ordered::{Direction, OrderedRule, OrderedRules};
use crate::access::permit::{Permit, UserRules};
use crate::access::rule::RuleFilter;
use crate::named_enum::named_enum;
use serde_json::{Map, Value};
use std::sync::Arc;

/// The largest number of rules of one session. A check looks at each of them.
const RULES: usize = 256;

named_enum! {
    /// The reason why rules cannot be used, as a text.
    pub enum SessionRulesError {
        /// Neither an object nor an array.
        Form = "acl is neither an array of rules nor an object with pub, sub and all",
        /// A list has something else than topic filters.
        List = "pub, sub and all of acl are lists of topic filters",
        /// A rule of an array is not understood.
        Rule = "a rule of acl needs permission (allow, deny), action (publish, subscribe, all) and topic, and nothing else",
        /// A filter is not understood.
        Filter = "a filter of acl is not valid; ${username}, ${clientid}, %u and %c stand for whole levels",
        /// Too many rules.
        TooMany = "acl has more than 256 rules",
    }
}

/// Reads the members `is_superuser` and `acl` of a token or a reply. Returns `None` if neither says
/// anything: then the ACL file counts.
///
/// # Errors
/// The rules are not understood.
pub fn session_rules(object: &Map<String, Value>) -> Result<Option<SessionRules>, SessionRulesError> {
    if object.get("is_superuser") == Some(&Value::Bool(true)) {
        return Ok(Some(SessionRules::Superuser));
    }
    let rules = match object.get("acl") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Object(lists)) => of_lists(lists)?,
        Some(Value::Array(rules)) if rules.len() > RULES => return Err(SessionRulesError::TooMany),
        Some(Value::Array(rules)) => rules.iter().map(of_rule).collect::<Result<Vec<_>, _>>()?,
        Some(_) => return Err(SessionRulesError::Form),
    };
    let rules = Arc::new(UserRules::ordered(OrderedRules::new(rules)));
    Ok(Some(SessionRules::Permit(Permit::Rules(rules))))
}

fn of_lists(lists: &Map<String, Value>) -> Result<Vec<OrderedRule>, SessionRulesError> {
    let mut rules = Vec::new();
    for (name, list) in lists {
        let direction = match name.as_str() {
            "pub" => Some(Direction::Write),
            "sub" => Some(Direction::Read),
            "all" => None,
            _ => return Err(SessionRulesError::Form),
        };
        for text in list.as_array().ok_or(SessionRulesError::List)? {
            let filter = filter(text.as_str().ok_or(SessionRulesError::List)?)?;
            rules.push(OrderedRule { grants: true, direction, filter });
            if rules.len() > RULES {
                return Err(SessionRulesError::TooMany);
            }
        }
    }
    Ok(rules)
}

fn of_rule(rule: &Value) -> Result<OrderedRule, SessionRulesError> {
    let rule = rule.as_object().ok_or(SessionRulesError::Rule)?;
    let member = |name| rule.get(name).and_then(Value::as_str).ok_or(SessionRulesError::Rule);
    let grants = match member("permission")? {
        "allow" => true,
        "deny" => false,
        _ => return Err(SessionRulesError::Rule),
    };
    let direction = match member("action")? {
        "publish" => Some(Direction::Write),
        "subscribe" => Some(Direction::Read),
        "all" => None,
        _ => return Err(SessionRulesError::Rule),
    };
    let filter = filter(member("topic")?)?;
    // A condition such as `qos` would make the rule narrower.
    if rule.len() > 3 {
        return Err(SessionRulesError::Rule);
    }
    Ok(OrderedRule { grants, direction, filter })
}

fn filter(text: &str) -> Result<RuleFilter, SessionRulesError> {
    // EMQX: this exact filter, without its wildcards. No rule of ours means that.
    if text.starts_with("eq ") {
        return Err(SessionRulesError::Filter);
    }
    let text = text.replace("${username}", "%u").replace("${clientid}", "%c");
    if text.contains("${") {
        return Err(SessionRulesError::Filter);
    }
    RuleFilter::pattern(&text).map_err(|_| SessionRulesError::Filter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::rule::ClientNames;

    const ANN: ClientNames<'_> = ClientNames::new(Some("ann"), "c");

    fn read(json: &str) -> Result<Option<SessionRules>, SessionRulesError> {
        session_rules(serde_json::from_str::<Value>(json).unwrap().as_object().unwrap())
    }

    fn permit(json: &str) -> Permit {
        match read(json) {
            Ok(Some(SessionRules::Permit(permit))) => permit,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn lists_grant_and_the_rest_is_denied() {
        let permit = permit(r#"{"acl": {"pub": ["out/${clientid}"], "sub": ["in/%u/#"], "all": ["both"]}}"#);
        assert!(permit.may_write("out/c", ANN) && !permit.may_read("out/c", ANN));
        assert!(permit.may_read("in/ann/x", ANN) && !permit.may_write("in/ann/x", ANN));
        assert!(permit.may_read("both", ANN) && permit.may_write("both", ANN) && !permit.may_read("x", ANN));
    }

    #[test]
    fn the_first_rule_of_an_array_decides() {
        let permit = permit(
            r##"{"acl": [{"permission": "allow", "action": "publish", "topic": "t/${username}"},
                        {"permission": "deny", "action": "all", "topic": "t/#"},
                        {"permission": "allow", "action": "subscribe", "topic": "#"}]}"##,
        );
        assert!(permit.may_write("t/ann", ANN) && !permit.may_write("t/bob", ANN));
        assert!(permit.may_read("x", ANN) && !permit.may_read("t/ann", ANN) && !permit.may_write("x", ANN));
    }

    #[test]
    fn only_true_makes_a_superuser() {
        assert!(matches!(read(r#"{"is_superuser": true}"#), Ok(Some(SessionRules::Superuser))));
        for json in ["{}", r#"{"is_superuser": false}"#, r#"{"is_superuser": "true"}"#, r#"{"acl": null}"#] {
            assert!(matches!(read(json), Ok(None)), "{json}");
        }
    }

    #[test]
    fn rules_that_are_not_understood_are_refused() {
        use SessionRulesError::{Filter, Form, List, Rule, TooMany};
        let many = format!("{{\"acl\": {{\"pub\": [{}\"a\"]}}}}", "\"a\",".repeat(256));
        for (json, error) in [
            (r#"{"acl": "all"}"#, Form),
            (r#"{"acl": {"publish": ["a"]}}"#, Form),
            (r#"{"acl": {"pub": "a"}}"#, List),
            (r#"{"acl": {"pub": [1]}}"#, List),
            (r##"{"acl": {"pub": ["a/#/b"]}}"##, Filter),
            (r#"{"acl": {"pub": ["dev-${clientid}"]}}"#, Filter),
            (r#"{"acl": {"pub": ["${peerhost}"]}}"#, Filter),
            (r#"{"acl": {"pub": ["eq a/+"]}}"#, Filter),
            (r#"{"acl": [{"permission": "allow", "action": "publish"}]}"#, Rule),
            (r#"{"acl": [{"permission": "yes", "action": "publish", "topic": "a"}]}"#, Rule),
            (r#"{"acl": [{"permission": "allow", "action": "all", "topic": "a", "qos": [1]}]}"#, Rule),
            (&many, TooMany),
        ] {
            assert_eq!(read(json).unwrap_err(), error, "{json}");
        }
    }
}
