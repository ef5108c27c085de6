//! The keys of `[[listeners]]` that contradict keys of other sections.

use super::Config;
use super::choices::has;
use super::listener::Listener;
use super::listener_checks::LIST;
use super::problem::Problem;
use config::Value;

/// Returns the problems of listeners with keys of other sections. `value` is the value of
/// `listeners` as the operator wrote it.
pub(super) fn contradictions(config: &Config, value: &Value) -> Vec<Problem> {
    LIST.problems(value, |problems, table| {
        let Some(listener) = config.listeners.get(table.earlier.len()) else { return };
        for (key, allowed) in contradictions_of(config, listener) {
            if let Some(value) = table.fields.get(key) {
                problems.refuse(&format!("{}: {key}", table.name), value, &allowed);
            }
        }
    })
}

/// Returns the keys of one listener that contradict other sections, each with a correct value.
fn contradictions_of(config: &Config, listener: &Listener) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    let asks = |method| listener.auth.as_ref().is_some_and(|methods| has(methods, method));
    let has_passwords = listener.password_file.is_some() || config.auth.password_path().is_some();
    let needed = [
        ("password", has_passwords, "auth.password_file", "a password file"),
        ("scram", has_passwords, "auth.password_file", "a password file"),
        ("jwt", config.auth.jwt_keys_path().is_some(), "auth.jwt_keys", "a file of keys"),
        ("http", config.auth.http_service().is_some(), "auth.http_url", "the address of a service"),
    ];
    for (method, _, key, what) in needed.into_iter().filter(|(method, has, ..)| asks(method) && !has) {
        found.push(("auth", format!("beside {key}: the method \"{method}\" needs {what}")));
    }
    // Without `auth`, the methods of the broker hold; if none are listed, a file is read.
    let methods = listener.auth.as_ref().or(Some(&config.auth.methods).filter(|all| !all.is_empty()));
    if methods.is_some_and(|methods| !has(methods, "password") && !has(methods, "scram")) {
        let allowed = "beside auth = [\"password\"]: only the methods \"password\" and \"scram\" read it";
        found.push(("password_file", allowed.to_owned()));
    }
    let has_no_maximum = listener.keep_alive_maximum.is_some_and(|maximum| maximum.is_zero());
    if has_no_maximum && !config.keep_alive.allow_never {
        let allowed = "a duration beside keep_alive.allow_never = false: clients that may not ask for \"never\" need one to be held to";
        found.push(("keep_alive_maximum", allowed.to_owned()));
    }
    if listener.packet_size.is_some_and(|size| size > config.limits.memory) {
        let allowed = "at most limits.memory, which must hold one packet at least";
        found.push(("packet_size", allowed.to_owned()));
    }
    found
}
