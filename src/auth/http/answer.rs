//! The answer of the service about a client.

use crate::access::grant::SessionRules;
use crate::auth::session_rules::{SessionRulesError, session_rules};
use serde_json::Value;

/// The largest answer in bytes.
pub const LARGEST_ANSWER: usize = 64 << 10;

/// The decision of the service.
#[derive(Clone, Debug)]
pub enum HttpAnswer {
    /// The client may enter.
    Allow {
        /// The rules of the session; `None` if the ACL file counts.
        rules: Option<SessionRules>,
        /// The milliseconds until the client has to leave; `None` if the service sets no end.
        remaining_ms: Option<u64>,
    },
    /// The client may not enter.
    Deny,
    /// The time that the service set (`expire_at`) has passed.
    Expired,
    /// The service leaves the client to the next method.
    Ignore,
}

/// The reason why an answer is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// Another address was named.
    #[error("it answered with a redirect ({0}), and redirects are not followed; set the final address")]
    Redirect(u16),
    /// Another status than 200 and 204.
    #[error("it answered with status {0} in place of 200 or 204")]
    Status(u16),
    /// The body is not a JSON object.
    #[error("its answer is not a JSON object")]
    NotJson,
    /// The member `result` is missing or unknown.
    #[error("its answer has no \"result\" of \"allow\", \"deny\" or \"ignore\"")]
    NoResult,
    /// The member `expire_at` is not a number.
    #[error("expire_at of its answer is not a number of seconds since 1970")]
    ExpireAt,
    /// The rules cannot be used.
    #[error("its answer has rules that cannot be used: {0}")]
    Rules(SessionRulesError),
}

/// Reads an answer. `unix_ms` is the time: milliseconds since 1970. Members that the broker does
/// not know are skipped, `client_attrs` among them.
///
/// # Errors
/// The answer is invalid, so the client is not admitted.
pub fn read_answer(unix_ms: u64, status: u16, body: &[u8]) -> Result<HttpAnswer, AnswerError> {
    match status {
        200 => {}
        204 => return Ok(HttpAnswer::Allow { rules: None, remaining_ms: None }),
        300..400 => return Err(AnswerError::Redirect(status)),
        _ => return Err(AnswerError::Status(status)),
    }
    let Ok(Value::Object(object)) = serde_json::from_slice(body) else { return Err(AnswerError::NotJson) };
    match object.get("result").and_then(Value::as_str) {
        Some("allow") => {}
        Some("deny") => return Ok(HttpAnswer::Deny),
        Some("ignore") => return Ok(HttpAnswer::Ignore),
        _ => return Err(AnswerError::NoResult),
    }
    let remaining_ms = match object.get("expire_at") {
        None | Some(Value::Null) => None,
        Some(expires) => {
            let expires = expires.as_f64().ok_or(AnswerError::ExpireAt)?;
            let remaining = expires * 1e3 - unix_ms as f64;
            if remaining < 1.0 {
                return Ok(HttpAnswer::Expired);
            }
            // A cast of a large number saturates.
            Some(remaining as u64)
        }
    };
    let rules = session_rules(&object).map_err(AnswerError::Rules)?;
    Ok(HttpAnswer::Allow { rules, remaining_ms })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::rule::ClientNames;

    const NOW: u64 = 1_000_000;

    fn read(body: &str) -> Result<HttpAnswer, AnswerError> {
        read_answer(NOW, 200, body.as_bytes())
    }

    #[test]
    fn the_result_decides() {
        let plain = |answer| matches!(answer, Ok(HttpAnswer::Allow { rules: None, remaining_ms: None }));
        assert!(plain(read(r#"{"result": "allow"}"#)));
        assert!(plain(read(r#"{"result": "allow", "is_superuser": false, "client_attrs": {"role": "x"}}"#)));
        assert!(plain(read_answer(NOW, 204, b"anything")));
        assert!(matches!(read(r#"{"result": "deny", "is_superuser": true}"#), Ok(HttpAnswer::Deny)));
        assert!(matches!(read(r#"{"result": "ignore"}"#), Ok(HttpAnswer::Ignore)));
    }

    #[test]
    fn anything_else_is_no_answer() {
        use AnswerError::{ExpireAt, NoResult, NotJson, Redirect, Rules, Status};
        for (status, error) in [
            (302, Redirect(302)),
            (308, Redirect(308)),
            (201, Status(201)),
            (401, Status(401)),
            (500, Status(500)),
        ] {
            assert_eq!(read_answer(NOW, status, br#"{"result": "allow"}"#).unwrap_err(), error);
        }
        for (body, error) in [
            ("", NotJson),
            ("allow", NotJson),
            ("[]", NotJson),
            (r#"{"result": "allow"} x"#, NotJson),
            ("{}", NoResult),
            (r#"{"result": true}"#, NoResult),
            (r#"{"result": "Allow"}"#, NoResult),
            (r#"{"result": "allow", "expire_at": "soon"}"#, ExpireAt),
            (r#"{"result": "allow", "acl": "all"}"#, Rules(SessionRulesError::Form)),
        ] {
            assert_eq!(read(body).unwrap_err(), error, "{body}");
        }
    }

    #[test]
    fn an_end_is_counted_in_seconds_since_1970() {
        let remaining = |body: &str| match read(body) {
            Ok(HttpAnswer::Allow { remaining_ms, .. }) => remaining_ms,
            other => panic!("{other:?}"),
        };
        assert_eq!(remaining(r#"{"result": "allow", "expire_at": 1060}"#), Some(60_000));
        assert_eq!(remaining(r#"{"result": "allow", "expire_at": 1e300}"#), Some(u64::MAX));
        assert_eq!(remaining(r#"{"result": "allow", "expire_at": null}"#), None);
        for past in ["1000", "0", "-5"] {
            let body = format!(r#"{{"result": "allow", "expire_at": {past}}}"#);
            assert!(matches!(read(&body), Ok(HttpAnswer::Expired)), "{past}");
        }
    }

    #[test]
    fn an_answer_may_have_the_rules_of_the_session() {
        let rules = |body: &str| match read(body) {
            Ok(HttpAnswer::Allow { rules, .. }) => rules,
            other => panic!("{other:?}"),
        };
        let all = rules(r#"{"result": "allow", "is_superuser": true}"#);
        assert!(matches!(all, Some(SessionRules::Superuser)));
        let some = rules(
            r#"{"result": "allow", "acl": [{"permission": "allow", "action": "publish", "topic": "a/${clientid}"}]}"#,
        );
        let Some(SessionRules::Permit(permit)) = some else { panic!("{some:?}") };
        let names = ClientNames::new(Some("ann"), "c");
        assert!(permit.may_write("a/c", names) && !permit.may_write("a/d", names));
    }
}
