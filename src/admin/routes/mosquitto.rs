//! /api/v1/version, /api/v1/listeners and /api/v1/systree: the paths and answers of mosquitto 2.1's
//! `http_api`, for tools that know it.

use super::json_answer::JsonAnswer;
use crate::admin::https::Scheme;
use crate::admin::queries::retained::find_retained;
use crate::admin::state::State;
use crate::broker::OpenListener;
use crate::broker::statistics::BrokerStatistics;
use crate::config::ClientCertificates;
use crate::config::ListenerAddress;
use crate::named_enum::named_enum;
use actix_web::HttpResponse;
use actix_web::web::Json;
use serde::{Deserialize, Serialize};
use serde_json::Number;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, SchemaType, Type};
use utoipa::{PartialSchema, ToSchema};

/// Topics of `$SYS` in an answer at most. The broker publishes some 200.
const TOPICS: usize = 1_000;

named_enum! {
    /// The protocol of a listener, in mosquitto's words.
    pub(crate) enum MosquittoProtocol {
        Mqtt = "mqtt",
        WebSockets = "websockets",
        /// This interface itself.
        HttpApi = "httpapi",
    }
}

/// The open listeners.
#[derive(Deserialize, Serialize, ToSchema)]
pub(crate) struct Listeners {
    pub(crate) listeners: Vec<ListenerRow>,
}

/// A listener: mosquitto's fields, and behind them our own.
#[derive(Deserialize, Serialize, ToSchema)]
#[schema(as = Listener)]
pub(crate) struct ListenerRow {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) port: Option<u16>,
    /// The path of a Unix socket, in place of the port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) path: Option<String>,
    /// `httpapi` is this interface itself.
    pub(crate) protocol: MosquittoProtocol,
    pub(crate) tls: bool,
    /// True if each client needs a certificate.
    pub(crate) mtls: bool,
    /// True if clients need no credentials.
    pub(crate) allow_anonymous: bool,
    #[schema(required)]
    pub(crate) name: Option<String>,
    pub(crate) address: String,
    /// True if each connection begins with a PROXY header.
    pub(crate) proxy: bool,
    /// Open connections; null for this interface.
    #[schema(required)]
    pub(crate) connections: Option<usize>,
}

/// Topics with their values. A figure is a number, and the uptime is in seconds.
#[derive(Serialize, ToSchema)]
pub(crate) struct SysTree(BTreeMap<String, SysValue>);

#[derive(Serialize)]
#[serde(untagged)]
enum SysValue {
    Number(Number),
    Text(String),
}

impl PartialSchema for SysValue {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new().schema_type(SchemaType::from_iter([Type::Number, Type::String])).into()
    }
}

impl ToSchema for SysValue {}

/// Returns the version of the broker, as text.
pub(crate) async fn version() -> HttpResponse {
    HttpResponse::Ok().content_type("text/plain; charset=utf-8").body(env!("CARGO_PKG_VERSION"))
}

/// Lists the open listeners of MQTT in their order, and the addresses of this interface.
pub(crate) async fn listeners(state: State) -> JsonAnswer<Listeners> {
    let observer = state.running()?;
    let open = observer.listeners().open();
    let of_mqtt = open.iter().map(|listener| mqtt_listener(observer.statistics(), listener));
    let of_admin = state.addresses.iter().map(|address| admin_listener(*address, state.scheme));
    Ok(Json(Listeners { listeners: of_mqtt.chain(of_admin).collect() }))
}

fn mqtt_listener(statistics: &BrokerStatistics, listener: &OpenListener) -> ListenerRow {
    let (port, path) = match &listener.address {
        ListenerAddress::Ip(address) => (Some(address.port()), None),
        ListenerAddress::Unix(path) => (None, Some(path.to_string_lossy().into_owned())),
    };
    ListenerRow {
        port,
        path,
        protocol: if listener.is_websocket { MosquittoProtocol::WebSockets } else { MosquittoProtocol::Mqtt },
        tls: listener.has_tls,
        mtls: listener.client_certificates == ClientCertificates::Required,
        allow_anonymous: listener.admits_anonymous(),
        name: listener.name.clone(),
        address: listener.address.to_string(),
        proxy: listener.has_proxy,
        connections: statistics.listeners().of_label(&listener.label()).map(|counts| counts.open()),
    }
}

fn admin_listener(address: SocketAddr, scheme: Scheme) -> ListenerRow {
    ListenerRow {
        port: Some(address.port()),
        path: None,
        protocol: MosquittoProtocol::HttpApi,
        tls: scheme == Scheme::Https,
        mtls: false,
        allow_anonymous: false,
        name: None,
        address: address.to_string(),
        proxy: false,
        connections: None,
    }
}

/// Returns the topics of `$SYS` with their values, as the broker published them last. Without
/// `sys.publish_interval` the list is empty.
pub(crate) async fn systree(state: State) -> JsonAnswer<SysTree> {
    let found = find_retained(&state, "$SYS/#", None, TOPICS).await?;
    let figure = |payload: &[u8]| value_of(&String::from_utf8_lossy(payload));
    let all = found.messages.iter().map(|message| (message.topic().to_owned(), figure(message.payload())));
    Ok(Json(SysTree(all.collect())))
}

/// Returns a value of `$SYS`: a number, without the unit of the uptime, or else its text.
fn value_of(text: &str) -> SysValue {
    let number = text.strip_suffix(" seconds").unwrap_or(text);
    let number = serde_json::from_str::<Number>(number);
    number.map_or_else(|_| SysValue::Text(text.to_owned()), SysValue::Number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
            assert_eq!(serde_json::to_value(value_of(text)).ok(), Some(value), "{text}");
        }
    }
}
