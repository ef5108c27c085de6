//! The bridges: what follows `connection`.

use super::Translator;
use super::listener::MQTT_PORT;
use super::output::{BridgeSettings, BridgeTopic, Note, place_of};
use crate::conf::ConfLine;
use crate::value::{RefusedValue, boolean, number, path, text};
use homing_core::mqtt::topic::{TopicFilter, is_topic_name};

/// A bridge as mosquitto has it.
#[derive(Debug, Default)]
pub(super) struct ConfBridge {
    place: String,
    /// Each `HOST:PORT`.
    addresses: Vec<String>,
    has_tls: bool,
    /// True where mosquitto would publish the state of the bridge.
    notifies: Option<bool>,
    try_private: Option<bool>,
    settings: BridgeSettings,
}

impl Translator {
    pub(super) fn connection(&mut self, line: &ConfLine) -> Result<(), RefusedValue> {
        let name = self.bridge_name(line)?;
        let settings = BridgeSettings { name, ..BridgeSettings::default() };
        self.bridges.push(ConfBridge { place: place_of(line), settings, ..ConfBridge::default() });
        Ok(())
    }

    /// Returns the name of a bridge, in the letters that Homing allows.
    fn bridge_name(&mut self, line: &ConfLine) -> Result<String, RefusedValue> {
        let given = text(line)?;
        let allowed = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
        let name: String = given.chars().map(allowed).take(64).collect();
        if name != given {
            let text = format!("the name of the bridge is {name} in Homing");
            self.notes.push(Note::differs(Some(place_of(line)), &text));
        }
        Ok(name)
    }

    pub(super) fn of_bridge(&mut self, line: &ConfLine) -> Result<(), RefusedValue> {
        let Some(bridge) = self.bridges.last_mut() else {
            return Err("stands before the first `connection`".to_owned());
        };
        let settings = &mut bridge.settings;
        match line.name.as_str() {
            "address" | "addresses" => bridge.addresses = addresses(&text(line)?)?,
            "topic" => settings.topics.push(topic(&line.value)?),
            "remote_clientid" | "clientid" => settings.client_id = Some(text(line)?),
            "remote_username" | "username" => settings.user = Some(text(line)?),
            "remote_password" | "password" => {
                return Err("Homing reads the password from a file: write it there, and add password_file to the bridge".to_owned());
            }
            "cleansession" => settings.clean_start = boolean(line)?,
            "keepalive_interval" => settings.keep_alive = Some(number::<u16>(&line.value)?.max(1)),
            "round_robin" => settings.round_robin = boolean(line)?,
            "restart_timeout" => settings.backoff = Some(restart_timeout(&line.value)?),
            "local_username" => settings.acl_user = Some(text(line)?),
            "bridge_cafile" => (bridge.has_tls, settings.ca) = (true, Some(path(line)?)),
            "bridge_certfile" => settings.certificate = Some(path(line)?),
            "bridge_keyfile" => settings.key = Some(path(line)?),
            "bridge_tls_use_os_certs" => bridge.has_tls |= boolean(line)?,
            "bridge_session_expiry_interval" => {
                settings.session_expiry = Some(number::<u32>(&line.value)?.clamp(1, u32::MAX - 1))
            }
            "bridge_protocol_version" => settings.version = Some(version(&text(line)?)?),
            "try_private" => bridge.try_private = Some(boolean(line)?),
            "notifications" => bridge.notifies = Some(boolean(line)?),
            "notification_topic" => settings.notification_topic = Some(topic_name(&text(line)?)?),
            "bridge_max_packet_size" => settings.max_packet_size = packet_size(&line.value)?,
            "bridge_alpn" => settings.alpn = Some(text(line)?),
            "idle_timeout" => settings.idle_timeout = Some(number::<u32>(&line.value)?.clamp(1, 86_400)),
            "start_type" => match line.value.as_str() {
                "automatic" => settings.connect = None,
                "lazy" => settings.connect = Some("on_demand"),
                "manual" => settings.connect = Some("manual"),
                "once" => {
                    return Err("Homing connects again when a connection ends; connect = \"manual\" waits for homing ctl bridge connect".to_owned());
                }
                other => return Err(format!("{other:?} is not automatic, lazy, manual or once")),
            },
            name => return self.bridge_note(name, line),
        }
        Ok(())
    }

    /// Notes an option of a bridge that Homing's bridges do not have.
    fn bridge_note(&mut self, name: &str, line: &ConfLine) -> Result<(), RefusedValue> {
        let differs = match name {
            "local_password" | "bridge_reload_type" | "bridge_attempt_unsubscribe" => return Ok(()),
            "local_cleansession" if boolean(line) == Ok(false) => return Ok(()),
            "bridge_insecure" | "bridge_require_ocsp" if boolean(line) == Ok(false) => return Ok(()),
            "bridge_outgoing_retain" if boolean(line) == Ok(true) => return Ok(()),
            "threshold" => "a bridge of Homing with connect = \"on_demand\" connects for the first message",
            "local_clientid" => "the client identifier of a bridge's session here is $bridge/NAME",
            "notifications_local_only" if boolean(line) == Ok(false) => return Ok(()),
            "notifications_local_only" => "Homing tells the other broker the state of the bridge, too",
            "bridge_max_topic_alias" | "bridge_receive_maximum" => {
                "Homing takes the limit that the other broker announces, and announces those of [limits]"
            }
            "bridge_tcp_keepalive" | "bridge_tcp_user_timeout" | "bridge_tls_version" => {
                "Homing does not set it for bridges"
            }
            "bridge_insecure" => {
                return Err("Homing always checks the certificate; server_name says another name".to_owned());
            }
            "bridge_outgoing_retain" => return Err("Homing passes RETAIN on".to_owned()),
            _ => {
                return Err("Homing's bridges have no such option; docs/bridges.md has their keys".to_owned());
            }
        };
        self.notes.push(Note::differs(Some(place_of(line)), differs));
        Ok(())
    }

    /// Returns the bridges of the result.
    pub(super) fn bridge_settings(&mut self) -> Vec<BridgeSettings> {
        let bridges = std::mem::take(&mut self.bridges);
        bridges.into_iter().filter_map(|bridge| self.bridge(bridge)).collect()
    }

    /// Returns a bridge of the result, unless it would forward nothing.
    fn bridge(&mut self, bridge: ConfBridge) -> Option<BridgeSettings> {
        let ConfBridge { place, addresses, has_tls, notifies, try_private, mut settings } = bridge;
        if addresses.is_empty() || settings.topics.is_empty() {
            self.notes.push(Note::loss(Some(place), "a bridge needs an address and a topic"));
            return None;
        }
        if settings.certificate.is_some() != settings.key.is_some() {
            let text = "Homing needs both bridge_certfile and bridge_keyfile";
            self.notes.push(Note::loss(Some(place.clone()), text));
            (settings.certificate, settings.key) = (None, None);
        }
        let scheme = if has_tls { "tls" } else { "mqtt" };
        settings.addresses = addresses.iter().map(|address| format!("{scheme}://{address}")).collect();
        settings.bridge_bit = settings.version == Some("3.1.1") && try_private != Some(false);
        if settings.client_id.is_none() {
            let text = "without remote_clientid mosquitto is HOST.NAME at the other broker, and Homing homing-NAME: its session there begins anew";
            self.notes.push(Note::differs(Some(place.clone()), text));
        }
        settings.alpn = settings.alpn.filter(|_| has_tls);
        settings.notifies = notifies != Some(false);
        settings.notification_topic = settings.notification_topic.filter(|_| notifies != Some(false));
        if settings.notifies && settings.notification_topic.is_none() && has_wildcard(&settings.client_id) {
            let text = "no topic can have the remote_clientid, so there are no notifications";
            self.notes.push(Note::differs(Some(place.clone()), text));
            settings.notifies = false;
        }
        let waits = |topic: &BridgeTopic| topic.direction != "in" && topic.qos > 0;
        if settings.connect == Some("on_demand") && !settings.topics.iter().any(waits) {
            let text = "start_type lazy: a message of QoS 0 waits for no connection in Homing, so the bridge is always connected";
            self.notes.push(Note::differs(Some(place), text));
            settings.connect = None;
        }
        settings.idle_timeout = settings.idle_timeout.filter(|_| settings.connect == Some("on_demand"));
        Some(settings)
    }
}

/// Reads a size in bytes, within the bounds of Homing; 0 is none.
fn packet_size(value: &str) -> Result<Option<u32>, RefusedValue> {
    let size = number::<u32>(value)?;
    Ok((size > 0).then(|| size.clamp(128, 255 << 20)))
}

/// Reads `HOST[:PORT] HOST[:PORT]`.
fn addresses(text: &str) -> Result<Vec<String>, RefusedValue> {
    let with_port = |word: &str| match word.rsplit_once(':') {
        Some((_, port)) => number::<u16>(port).map(|_| word.to_owned()),
        None => Ok(format!("{word}:{MQTT_PORT}")),
    };
    text.split_whitespace().map(with_port).collect()
}

/// Reads `PATTERN [DIRECTION [QOS [LOCAL [REMOTE]]]]`, where `""` is empty.
fn topic(text: &str) -> Result<BridgeTopic, RefusedValue> {
    let mut words = text.split_whitespace().map(|word| if word == "\"\"" { "" } else { word });
    let filter = words.next().unwrap_or_default();
    if filter.is_empty() {
        return Err("Homing needs a filter: write the topic as `filter`, and only what differs as prefixes"
            .to_owned());
    }
    let direction = match words.next().unwrap_or("out") {
        direction @ ("out" | "in" | "both") => direction,
        other => return Err(format!("{other:?} is no direction: out, in or both")),
    };
    let qos: u8 = words.next().map_or(Ok(0), number)?;
    if qos > 2 {
        return Err("the QoS must be 0, 1 or 2".to_owned());
    }
    let (local_prefix, remote_prefix) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    for prefix in [local_prefix, remote_prefix] {
        let whole = format!("{prefix}{filter}");
        if prefix.contains(['+', '#']) || TopicFilter::parse(&whole, usize::MAX).is_err() {
            return Err(format!("{whole:?} is no topic filter"));
        }
    }
    Ok(BridgeTopic {
        filter: filter.to_owned(),
        direction: direction.to_owned(),
        qos,
        local_prefix: local_prefix.to_owned(),
        remote_prefix: remote_prefix.to_owned(),
    })
}

/// Reads `SECONDS`, or `BASE CAP`.
fn restart_timeout(text: &str) -> Result<(u32, u32), RefusedValue> {
    let mut words = text.split_whitespace();
    let base = words.next().map_or(Err("has no value".to_owned()), number)?;
    let cap = words.next().map_or(Ok(base), number)?;
    let (base, cap): (u32, u32) = (base, cap);
    Ok((base.clamp(1, 86_400), cap.clamp(1, 86_400)))
}

/// Reads a topic without wildcards.
fn topic_name(text: &str) -> Result<String, RefusedValue> {
    match is_topic_name(text) {
        true => Ok(text.to_owned()),
        false => Err(format!("{text:?} is no topic")),
    }
}

fn has_wildcard(client_id: &Option<String>) -> bool {
    client_id.as_ref().is_some_and(|id| id.contains(['+', '#']))
}

fn version(text: &str) -> Result<&'static str, RefusedValue> {
    match text {
        "mqttv50" => Ok("5.0"),
        "mqttv311" => Ok("3.1.1"),
        other => Err(format!("{other:?}: Homing's bridges speak mqttv50 and mqttv311")),
    }
}
