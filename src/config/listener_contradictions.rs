//! The keys of `[[listeners]]` that contradict keys of other sections.

use super::listener::Listener;
use super::listener_checks::LIST;
use super::problem::Problem;
use super::{AuthMethod, Config};
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
    for &method in listener.auth.iter().flatten() {
        let (key, what) = match method {
            AuthMethod::Certificate => continue,
            AuthMethod::Password | AuthMethod::Scram => ("auth.password_file", "a password file"),
            AuthMethod::Jwt => ("auth.jwt_keys", "a file of keys"),
            AuthMethod::Http => ("auth.http_url", "the address of a service"),
        };
        let has_own = method.reads_passwords() && listener.password_file.is_some();
        if !has_own && !config.auth.equips(method) {
            found.push(("auth", format!("beside {key}: the method \"{method}\" needs {what}")));
        }
    }
    // Without `auth`, the methods of the broker hold; if none are listed, a file is read.
    let methods = listener.auth.as_ref().or(Some(&config.auth.methods).filter(|all| !all.is_empty()));
    if methods.is_some_and(|methods| !methods.iter().any(|method| method.reads_passwords())) {
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
