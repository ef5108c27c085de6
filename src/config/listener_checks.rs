//! The checks of `[[listeners]]`. A problem in a listener is reported with the number of the
//! listener.

use super::Config;
use super::choices::has;
use super::listener::{CertificatePair, Listener, ListenerAddress, ListenerTls};
use super::problem::Problem;
use super::rule::ValueRule;
use super::value::{self, Field, origin, written};
use config::{Map, Value, ValueKind};

/// Maximum number of listeners.
const MOST: usize = 256;

/// Collects the problems of one source.
pub(super) struct Problems {
    pub(super) source: String,
    pub(super) found: Vec<Problem>,
}

impl Problems {
    pub(super) fn refuse(&mut self, key: &str, value: &Value, allowed: &str) {
        self.found.push(Problem::NotAllowed {
            source_name: self.source.clone(),
            key: key.to_owned(),
            value: written(value),
            allowed: allowed.to_owned(),
        });
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
                None => self.found.push(Problem::UnknownKey {
                    source_name: self.source.clone(),
                    key: format!("{name}: {key}"),
                    hint: format!(
                        "{what} holds {}",
                        known.iter().map(|(field, _)| *field).collect::<Vec<_>>().join(", ")
                    ),
                }),
            }
        }
    }
}

/// Returns every problem with the value of `listeners`.
pub(super) fn problems(value: &Value) -> Vec<Problem> {
    let mut problems = Problems { source: origin(value), found: Vec::new() };
    let ValueKind::Array(items) = &value.kind else {
        problems.refuse("listeners", value, "tables in a file, each [[listeners]]");
        return problems.found;
    };
    if items.len() > MOST {
        let allowed = format!("{MOST} listeners at most; here are {}", items.len());
        problems.refuse("listeners", value, &allowed);
    }
    for (at, item) in items.iter().enumerate() {
        let name = format!("listeners, listener {}", at + 1);
        match &item.kind {
            ValueKind::Table(fields) => {
                check_listener(&mut problems, &name, item, fields);
                check_unique(&mut problems, &name, fields, &items[..at]);
            }
            _ => problems.refuse(&name, item, "a table, [[listeners]] with its keys below it"),
        }
    }
    problems.found
}

/// Refuses an address or name that an earlier listener has. Port 0 may stand twice, because each
/// takes a free port of its own.
fn check_unique(problems: &mut Problems, name: &str, fields: &Map<String, Value>, earlier: &[Value]) {
    for key in ["address", "name"] {
        let Some(value) = fields.get(key) else { continue };
        let Some(text) = value::text(value) else { continue };
        // Port 0 takes a free port each time.
        if key == "address" && text.ends_with(":0") {
            continue;
        }
        let number = text.strip_prefix("listener-").and_then(|number| number.parse::<usize>().ok());
        if key == "name" && number.is_some_and(|number| number != earlier.len() + 1) {
            let allowed = format!(
                "another name: \"{text}\" is that of the listener at this place of the list, if it has none"
            );
            problems.refuse(&format!("{name}: {key}"), value, &allowed);
        }
        let same = earlier.iter().position(|other| match &other.kind {
            ValueKind::Table(other) => other.get(key).and_then(value::text) == Some(text),
            _ => false,
        });
        if let Some(at) = same {
            let allowed = format!("another {key} than that of listener {}", at + 1);
            problems.refuse(&format!("{name}: {key}"), value, &allowed);
        }
    }
}

fn check_listener(problems: &mut Problems, name: &str, item: &Value, fields: &Map<String, Value>) {
    problems.check(name, fields, Listener::FIELDS, "a listener");
    if !fields.contains_key("address") {
        problems.refuse(name, item, "a listener with an address, such as address = \"0.0.0.0:8883\"");
    }
    check_transport(problems, name, fields);
    if let Some(tls) = fields.get("tls")
        && let ValueKind::Table(fields) = &tls.kind
    {
        check_tls(problems, &format!("{name}: tls"), tls, fields);
    }
}

/// Checks the keys that need another key beside them.
fn check_transport(problems: &mut Problems, name: &str, fields: &Map<String, Value>) {
    let text = |key: &str| fields.get(key).and_then(value::text);
    let address = fields.get("address").and_then(ListenerAddress::read);
    let is_unix = matches!(address, Some(ListenerAddress::Unix(_)));
    let is_websocket = text("protocol") == Some("websocket");
    let proxy = text("proxy_protocol").filter(|versions| *versions != "off");
    let is_on = |key: &str| fields.get(key).and_then(bool::read) == Some(true);
    let mut needs = |key: &str, has: bool, allowed: &str| {
        if let Some(value) = fields.get(key).filter(|_| !has) {
            problems.refuse(&format!("{name}: {key}"), value, allowed);
        }
    };
    for key in ["mode", "group"] {
        needs(key, is_unix, "beside an address unix:/path");
    }
    for key in ["websocket_path", "origins"] {
        needs(key, is_websocket, "beside protocol = \"websocket\"");
    }
    needs(
        "trusted_proxies",
        proxy.is_some() || is_websocket,
        "beside proxy_protocol, or protocol = \"websocket\" for X-Forwarded-For",
    );
    needs(
        "proxy_tls",
        !is_on("proxy_tls") || matches!(proxy, Some("v2" | "any")),
        "beside proxy_protocol = \"v2\" or \"any\": version 1 says nothing of TLS",
    );
    let is_local = address.is_none_or(|address| address.is_local());
    needs(
        "proxy_protocol",
        proxy.is_none() || is_local || fields.contains_key("trusted_proxies"),
        "beside trusted_proxies = [\"10.0.0.0/8\"]: anybody could send a forged address otherwise",
    );
}

/// Keys of TLS that concern the certificates of clients.
const OF_CLIENTS: [&str; 5] = ["client_ca", "crl", "crl_check", "certificate_dates", "certificate_user"];

fn check_tls(problems: &mut Problems, name: &str, item: &Value, fields: &Map<String, Value>) {
    problems.check(name, fields, ListenerTls::FIELDS, "[listeners.tls]");
    match fields.get("certificates").map(|value| &value.kind) {
        None => problems.refuse(
            name,
            item,
            "a table with certificates = [{ certificate = \"server.pem\", key = \"server.key\" }]",
        ),
        Some(ValueKind::Array(pairs)) => {
            for (at, pair) in pairs.iter().enumerate() {
                let ValueKind::Table(fields) = &pair.kind else { continue };
                let name = format!("{name}: certificate {}", at + 1);
                problems.check(&name, fields, CertificatePair::FIELDS, "a certificate");
                if !["certificate", "key"].iter().all(|key| fields.contains_key(*key)) {
                    problems.refuse(&name, pair, "a table with both a certificate and its key");
                }
            }
        }
        Some(_) => {}
    }
    let asks = fields.get("client_certificates").and_then(value::text).filter(|text| *text != "off");
    match asks {
        None => {
            for key in OF_CLIENTS {
                if let Some(value) = fields.get(key) {
                    let allowed = "beside client_certificates = \"optional\" or \"required\": clients are not asked for a certificate otherwise";
                    problems.refuse(&format!("{name}: {key}"), value, allowed);
                }
            }
        }
        Some(_) if !fields.contains_key("client_ca") => problems.refuse(
            &format!("{name}: client_certificates"),
            &fields["client_certificates"],
            "beside client_ca = \"ca.pem\", the authorities that issue the clients' certificates",
        ),
        Some(_) => {}
    }
    if fields.get("crl_check").is_some() && !fields.contains_key("crl") {
        problems.refuse(&format!("{name}: crl_check"), &fields["crl_check"], "beside crl = [\"ca.crl\"]");
    }
}

/// Returns the problems of listeners with keys of other sections. `value` is the value of
/// `listeners` as the operator wrote it.
pub(super) fn contradictions(config: &Config, value: &Value) -> Vec<Problem> {
    let mut problems = Problems { source: origin(value), found: Vec::new() };
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
    problems.found
}
