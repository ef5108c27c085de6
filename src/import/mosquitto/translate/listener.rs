//! The options of one listener.

use super::Translator;
use super::conf_listener::{ConfListener, DefaultReach};
use super::output::{ListenerSettings, Note, place_of};
use crate::import::mosquitto::conf::ConfLine;
use crate::import::mosquitto::value::{RefusedValue, boolean, number, text};
use crate::session::client_id_rule::ClientIdRule;
use crate::session::mount_point::MountPoint;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const MQTT_PORT: u16 = 1883;

impl Translator {
    pub(super) fn listener(&mut self, line: &ConfLine) -> Result<(), RefusedValue> {
        let (port, host) = line.value.split_once(' ').unwrap_or((&line.value, ""));
        let port: u16 = number(port)?;
        let host = host.trim();
        let place = Some(place_of(line));
        let listener = match (port, host) {
            (0, path) if path.starts_with('/') => {
                ConfListener { path: Some(path.to_owned()), ..ConfListener::default() }
            }
            (0, _) => return Err("port 0 needs the path of a Unix socket".to_owned()),
            (_, "") => ConfListener { port: Some(port), ..ConfListener::default() },
            (_, host) => {
                ConfListener { port: Some(port), host: Some(host.to_owned()), ..ConfListener::default() }
            }
        };
        self.listeners.push(ConfListener { place, ..listener });
        Ok(())
    }

    pub(super) fn of_listener(&mut self, line: &ConfLine) -> Result<(), RefusedValue> {
        let listener = match self.listeners.last_mut() {
            Some(listener) => listener,
            None => {
                self.default.is_used = true;
                &mut self.default
            }
        };
        let settings = &mut listener.settings;
        match line.name.as_str() {
            "port" => self.default.port = Some(number(&line.value)?),
            "bind_address" => self.default.host = Some(text(line)?),
            "socket_domain" => listener.is_ipv6 = line.value == "ipv6",
            "max_connections" if line.value == "-1" => settings.connections = None,
            "max_connections" => settings.connections = Some(number(&line.value)?),
            "protocol" => match line.value.as_str() {
                "mqtt" => {}
                "websockets" => settings.is_websocket = true,
                _ => return Err("must be mqtt or websockets".to_owned()),
            },
            "websockets_origin" => settings.origins.push(text(line)?),
            "enable_proxy_protocol" => match line.value.as_str() {
                "1" => settings.proxy = Some("v1"),
                "2" => settings.proxy = Some("v2"),
                _ => return Err("must be 1 or 2".to_owned()),
            },
            "accept_protocol_versions" => settings.versions = versions(&line.value)?,
            "mount_point" => settings.mount_point = Some(mount_point(&line.value)?),
            "proxy_protocol_v2_require_tls" => settings.proxy_tls = boolean(line)?,
            "cafile" => listener.ca_file = Some(text(line)?),
            "certfile" => settings.certificate = Some(text(line)?),
            "keyfile" => settings.key = Some(text(line)?),
            "crlfile" => settings.crl = Some(text(line)?),
            "require_certificate" => settings.needs_certificate = boolean(line)?,
            "use_identity_as_username" => listener.uses_identity = boolean(line)?,
            "use_subject_as_username" => listener.uses_subject = boolean(line)?,
            "disable_client_cert_date_checks" => settings.ignores_dates = boolean(line)?,
            "tls_version" => match line.value.as_str() {
                "tlsv1.3" => settings.minimum = Some("1.3"),
                "tlsv1.2" => settings.minimum = Some("1.2"),
                _ => {
                    let text = "Homing offers TLS 1.2 and 1.3 only, so older clients cannot connect";
                    self.notes.push(Note::differs(Some(place_of(line)), text));
                }
            },
            _ => return Err("is not translated".to_owned()),
        }
        Ok(())
    }

    /// Translates the beginning of the client identifiers, which holds for all listeners.
    pub(super) fn client_id_prefix(&mut self, line: &ConfLine) -> Result<(), RefusedValue> {
        let prefix = text(line)?;
        let rule = format!("{prefix}*");
        // Both characters would mean something else in Homing's rule.
        if prefix.contains(['*', '%']) || rule.parse::<ClientIdRule>().is_err() {
            return Err("must be a text without * and %, of at most 255 bytes".to_owned());
        }
        let text = "Homing answers 0x85 to other client identifiers (3.x: 2), where mosquitto answers 0x87 (3.x: 5), and lets a \
                    client without one in, with an identifier of its own making";
        self.notes.push(Note::differs(Some(place_of(line)), text));
        self.client_id = Some(rule);
        Ok(())
    }

    /// Returns the address of a listener for Homing, and true if only this machine can reach it.
    fn address(&mut self, listener: &ConfListener, reach: DefaultReach) -> Option<(String, bool)> {
        if let Some(path) = &listener.path {
            return Some((format!("unix:{path}"), true));
        }
        let place = listener.place.clone();
        let address = match listener.host.as_deref() {
            None if reach == DefaultReach::ThisMachine => IpAddr::V4(Ipv4Addr::LOCALHOST),
            None if listener.is_ipv6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            None => {
                let text = "mosquitto also listens on IPv6; for that, repeat the listener in Homing's file with [::]";
                self.notes.push(Note::differs(place, text));
                IpAddr::V4(Ipv4Addr::UNSPECIFIED)
            }
            Some("localhost") => IpAddr::V4(Ipv4Addr::LOCALHOST),
            Some(host) => match host.parse() {
                Ok(address) => address,
                Err(_) => {
                    let text = format!("{host} is not an IP address; Homing listens on addresses only");
                    self.notes.push(Note::loss(place, &text));
                    return None;
                }
            },
        };
        let socket = SocketAddr::new(address, listener.port.unwrap_or(MQTT_PORT));
        Some((socket.to_string(), address.is_loopback()))
    }

    pub(super) fn translated(
        &mut self,
        listener: ConfListener,
        reach: DefaultReach,
    ) -> Option<ListenerSettings> {
        let (address, is_local) = self.address(&listener, reach)?;
        let certificate_user = listener.certificate_user();
        let ConfListener { place, mut settings, ca_file, .. } = listener;
        settings.address = address;
        settings.client_id = self.client_id.clone();
        if settings.proxy.is_some() && !is_local {
            let text =
                "mosquitto believes the PROXY header of every address; put your proxies into trusted_proxies";
            self.notes.push(Note::differs(place.clone(), text));
            settings.trusts_all_proxies = true;
        }
        match (&settings.certificate, &settings.key) {
            (Some(_), Some(_)) => {}
            (None, None) if ca_file.is_none() && !settings.needs_certificate => {}
            _ => self.notes.push(Note::loss(place.clone(), "TLS needs both certfile and keyfile")),
        }
        if settings.needs_certificate {
            if ca_file.is_none() {
                self.notes.push(Note::loss(place.clone(), "require_certificate needs a cafile"));
            }
            settings.client_ca = ca_file;
            // Without one of the two options, mosquitto takes no name from a certificate.
            settings.certificate_user = Some(certificate_user.unwrap_or("none"));
        } else if certificate_user.is_some() {
            self.notes.push(Note::loss(place, "use_identity_as_username needs require_certificate true"));
        } else {
            // mosquitto asks for no certificate then, so neither file has an effect.
            settings.crl = None;
        }
        Some(settings)
    }
}

/// Returns the mount point of a text, if Homing takes it.
///
/// # Errors
/// Homing does not take the text.
fn mount_point(text: &str) -> Result<String, RefusedValue> {
    match text.parse::<MountPoint>() {
        Ok(mount_point) => Ok(mount_point.to_string()),
        Err(_) => Err("must be the beginning of topics, with / at its end and without wildcards".to_owned()),
    }
}

/// Returns the versions of a list of protocol levels, such as `4, 5`.
///
/// # Errors
/// A level is not one of MQTT.
fn versions(levels: &str) -> Result<Vec<&'static str>, RefusedValue> {
    let version = |level: &str| match level.trim() {
        "3" => Ok("3.1"),
        "4" => Ok("3.1.1"),
        "5" => Ok("5.0"),
        _ => Err("must be a list of 3, 4 and 5".to_owned()),
    };
    levels.split(',').map(version).collect()
}
