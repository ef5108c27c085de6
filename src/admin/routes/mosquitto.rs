//! /api/v1/version, /api/v1/listeners and /api/v1/systree: the paths and answers of mosquitto 2.1's
//! `http_api`, for tools that know it.

use super::json_answer::JsonAnswer;
use crate::admin::https::Scheme;
use crate::admin::queries::retained::find_retained;
use crate::admin::state::State;
use crate::broker::OpenListener;
use crate::broker::statistics::BrokerStatistics;
use crate::config::ListenerAddress;
use crate::net::tls::settings::ClientCertificates;
use actix_web::HttpResponse;
use actix_web::web::Json;
use serde_json::{Map, Value, json};
use std::net::SocketAddr;

/// Topics of `$SYS` in an answer at most. The broker publishes some 200.
const TOPICS: usize = 1_000;

/// Returns the version of the broker, as text.
pub(crate) async fn version() -> HttpResponse {
    HttpResponse::Ok().content_type("text/plain; charset=utf-8").body(env!("CARGO_PKG_VERSION"))
}

/// Lists what is open: the listeners of MQTT in their order, and the addresses of this interface.
pub(crate) async fn listeners(state: State) -> JsonAnswer {
    let observer = state.running()?;
    let open = observer.listeners().open();
    let of_mqtt = open.iter().map(|listener| mqtt_listener(observer.statistics(), listener));
    let of_admin = state.addresses().iter().map(|address| admin_listener(*address, state.scheme()));
    Ok(Json(json!({ "listeners": of_mqtt.chain(of_admin).collect::<Vec<_>>() })))
}

/// Returns mosquitto's fields of a listener, and behind them our own.
fn mqtt_listener(statistics: &BrokerStatistics, listener: &OpenListener) -> Value {
    let mut row = json!({
        "protocol": if listener.is_websocket { "websockets" } else { "mqtt" },
        "tls": listener.has_tls,
        "mtls": listener.client_certificates == ClientCertificates::Required,
        "allow_anonymous": listener.admits_anonymous(),
        "name": listener.name,
        "address": listener.address.to_string(),
        "proxy": listener.has_proxy,
        "connections": statistics.listeners().open_of(&listener.label()),
    });
    match &listener.address {
        ListenerAddress::Ip(address) => row["port"] = address.port().into(),
        ListenerAddress::Unix(path) => row["path"] = path.to_string_lossy().into(),
    }
    row
}

fn admin_listener(address: SocketAddr, scheme: Scheme) -> Value {
    json!({
        "port": address.port(),
        "protocol": "httpapi",
        "tls": scheme == Scheme::Https,
        "mtls": false,
        "allow_anonymous": false,
        "name": null,
        "address": address.to_string(),
        "proxy": false,
        "connections": null,
    })
}

/// Returns the topics of `$SYS` with their values, as the broker published them last. Without
/// `sys.publish_interval` there are none.
pub(crate) async fn systree(state: State) -> JsonAnswer {
    let found = find_retained(&state, "$SYS/#", None, TOPICS).await?;
    let figure = |payload: &[u8]| value_of(&String::from_utf8_lossy(payload));
    let all = found.messages.iter().map(|message| (message.topic().to_owned(), figure(message.payload())));
    Ok(Json(Value::Object(all.collect::<Map<_, _>>())))
}

/// Returns a value of `$SYS`: a number, without the unit of the uptime, or else its text.
fn value_of(text: &str) -> Value {
    let number = text.strip_suffix(" seconds").unwrap_or(text);
    let number = serde_json::from_str::<Value>(number).ok().filter(Value::is_number);
    number.unwrap_or_else(|| text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_a_number_if_it_is_one_and_a_text_otherwise() {
        for (text, value) in [
            ("42", json!(42)),
            ("42 seconds", json!(42)),
            ("0.53", json!(0.53)),
            ("homing version 0.1.0", json!("homing version 0.1.0")),
            ("true", json!("true")),
            ("", json!("")),
        ] {
            assert_eq!(value_of(text), value, "{text}");
        }
    }
}
