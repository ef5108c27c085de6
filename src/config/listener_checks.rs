//! The checks of `[[listeners]]`. A problem in a listener is reported with the number of the
//! listener.

use super::choices::{ListenerProtocol, ProxyProtocol};
use super::listener::{CertificatePair, Listener, ListenerAddress, ListenerTls};
use super::problem::Problem;
use super::table_list::{ListedTable, Problems, TableList};
use super::tls_choices::ClientCertificates;
use super::value::{self, Field};
use config::{Map, Value, ValueKind};

pub(super) const LIST: TableList = TableList { key: "listeners", item: "listener", most: 256 };

/// Returns every problem with the value of `listeners`.
pub(super) fn problems(value: &Value) -> Vec<Problem> {
    LIST.problems(value, |problems, table| {
        check_listener(problems, &table.name, table.value, table.fields);
        check_unique(problems, table);
    })
}

/// Refuses an address or name that an earlier listener has.
fn check_unique(problems: &mut Problems, table: &ListedTable<'_>) {
    let text = |key: &str| table.fields.get(key).and_then(value::text);
    // Port 0 takes a free port each time.
    let address = table.fields.get("address").and_then(ListenerAddress::read);
    if !matches!(address, Some(ListenerAddress::Ip(address)) if address.port() == 0) {
        LIST.refuse_repeated("address", table, problems);
    }
    let number = |text: &str| text.strip_prefix("listener-")?.parse::<usize>().ok();
    if let Some(name) = text("name")
        && number(name).is_some_and(|number| number != table.earlier.len() + 1)
    {
        let allowed = format!(
            "another name: \"{name}\" is that of the listener at this place of the list, if it has none"
        );
        problems.refuse(&format!("{}: name", table.name), &table.fields["name"], &allowed);
    }
    LIST.refuse_repeated("name", table, problems);
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
    let address = fields.get("address").and_then(ListenerAddress::read);
    let is_unix = matches!(address, Some(ListenerAddress::Unix(_)));
    let protocol = fields.get("protocol").and_then(Field::read);
    let is_websocket = protocol == Some(ListenerProtocol::WebSocket);
    let proxy = fields.get("proxy_protocol").and_then(Field::read).filter(|it| *it != ProxyProtocol::Off);
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
        !is_on("proxy_tls") || matches!(proxy, Some(ProxyProtocol::V2 | ProxyProtocol::Any)),
        "beside proxy_protocol = \"v2\" or \"any\": version 1 says nothing of TLS",
    );
    let has_versions = fields.get("versions").is_none_or(|value| value.kind != ValueKind::Array(Vec::new()));
    needs("versions", has_versions, "a list of at least one version: no client could connect otherwise");
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
    let asks = fields.get("client_certificates").and_then(ClientCertificates::read);
    let asks = asks.filter(|asks| *asks != ClientCertificates::Off);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listeners_with_a_free_port_may_have_one_address() {
        for (address, allowed) in [
            ("127.0.0.1:0", true),
            ("[::1]:0", true),
            ("127.0.0.1:1883", false),
            ("unix:/run/mqtt.sock", false),
            ("unix:/run/mqtt:0", false),
        ] {
            let listener = || {
                let fields = [("address".to_owned(), Value::new(None, address))];
                Value::new(None, ValueKind::Table(fields.into_iter().collect()))
            };
            let found = problems(&Value::new(None, ValueKind::Array(vec![listener(), listener()])));
            assert_eq!(found.is_empty(), allowed, "{address}: {found:?}");
        }
    }
}
