//! The keys of `[[listeners]]` that contradict keys of other sections.

use super::Config;
use super::choices::has;
use super::problem::Problem;
use super::table_list::Problems;
use config::{Value, ValueKind};

/// Returns the problems of listeners with keys of other sections. `value` is the value of
/// `listeners` as the operator wrote it.
pub(super) fn contradictions(config: &Config, value: &Value) -> Vec<Problem> {
    let mut problems = Problems::of(value);
    let ValueKind::Array(items) = &value.kind else { return Vec::new() };
    for (at, (listener, item)) in config.listeners.iter().zip(items).enumerate() {
        let ValueKind::Table(fields) = &item.kind else { continue };
        let mut refuse = |key: &str, allowed: &str| {
            if let Some(value) = fields.get(key) {
                problems.refuse(&format!("listeners, listener {}: {key}", at + 1), value, allowed);
            }
        };
        let asks = |method| listener.auth.as_ref().is_some_and(|methods| has(methods, method));
        let needed = [
            ("password", config.auth.password_path().is_some(), "auth.password_file", "a password file"),
            ("scram", config.auth.password_path().is_some(), "auth.password_file", "a password file"),
            ("jwt", config.auth.jwt_keys_path().is_some(), "auth.jwt_keys", "a file of keys"),
            ("http", config.auth.http_service().is_some(), "auth.http_url", "the address of a service"),
        ];
        for (method, _, key, what) in needed.into_iter().filter(|(method, has, ..)| asks(method) && !has) {
            refuse("auth", &format!("beside {key}: the method \"{method}\" needs {what}"));
        }
        if listener.keep_alive_maximum.is_some_and(|maximum| maximum.is_zero())
            && !config.keep_alive.allow_never
        {
            refuse(
                "keep_alive_maximum",
                "a duration beside keep_alive.allow_never = false: clients that may not ask for \"never\" need one to be held to",
            );
        }
        if listener.packet_size.is_some_and(|size| size > config.limits.memory) {
            refuse("packet_size", "at most limits.memory, which must hold one packet at least");
        }
    }
    problems.into_found()
}
