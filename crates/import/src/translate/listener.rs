//! The options of one listener.

use super::Translator;
use super::broker::{CONNECTIONS, within};
use super::conf_listener::{ConfListener, DefaultReach};
use super::output::{ListenerSettings, Note, place_of};
use crate::conf::ConfLine;
use crate::value::{RefusedValue, boolean, limit, number, text};
use homing_core::session::client_id_rule::ClientIdRule;
use homing_core::session::mount_point::MountPoint;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

pub(super) const MQTT_PORT: u16 = 1883;

impl Translator {
    pub(super) fn listener(&mut self, line: &ConfLine) -> Result<(), RefusedValue> {
        let port: u16 = number(&line.value)?;
        let host = line.value.split(' ').skip(1).find(|word| !word.is_empty() && !word.starts_with('#'));
        let place = Some(place_of(line));
        let listener = match (port, host) {
            (0, Some(path)) => {
                ConfListener { path: Some(self.socket_path(path, line)), ..ConfListener::default() }
            }
            (0, None) => return Err("port 0 needs the path of a Unix socket".to_owned()),
            (_, host) => ConfListener {
                port: Some(port),
                host: host.map(ToOwned::to_owned),
                ..ConfListener::default()
            },
        };
        self.listeners.push(ConfListener { place, ..listener });
        Ok(())
    }

    /// Returns the path of a Unix socket in the form that Homing takes.
    fn socket_path(&mut self, path: &str, line: &ConfLine) -> String {
        if path.starts_with('/') {
            return path.to_owned();
        }
        let text = "the socket is in the directory in which Homing is started, as with mosquitto; write the whole path if that \
                    is another one";
        self.notes.push(Note::differs(Some(place_of(line)), text));
        format!("./{path}")
    }

    pub(super) fn of_listener(&mut self, line: &ConfLine) -> Result<(), RefusedValue> {
        let listener = match self.listeners.last_mut() {
            Some(listener) => listener,
            None => {
                // The aliases hold for all listeners, so they may come before the first one.
                self.default.is_used |= line.name != "max_topic_alias";
                &mut self.default
            }
        };
        let settings = &mut listener.settings;
        match line.name.as_str() {
            "port" => match number(&line.value)? {
                0 => return Err("must be 1 to 65535".to_owned()),
                port => self.default.port = Some(port),
            },
            "bind_address" => self.default.host = Some(text(line)?),
            "socket_domain" => match line.value.as_str() {
                "ipv4" => listener.is_ipv6 = false,
                "ipv6" => listener.is_ipv6 = true,
                _ => return Err("must be ipv4 or ipv6".to_owned()),
            },
            "max_connections" => {
                settings.connections = within(limit(line)?, CONNECTIONS, line, &mut self.notes)?;
            }
            "max_topic_alias" => listener.topic_aliases = Some(number(&line.value)?),
            "protocol" => match line.value.as_str() {
                "mqtt" => settings.is_websocket = false,
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
        let ConfListener { place, mut settings, ca_file, uses_identity, uses_subject, .. } = listener;
        settings.address = address;
        settings.client_id = self.client_id.clone();
        if settings.proxy.is_some() && !is_local {
            let text =
                "mosquitto believes the PROXY header of every address; put your proxies into trusted_proxies";
            self.notes.push(Note::differs(place.clone(), text));
            settings.trusts_all_proxies = true;
        }
        if settings.proxy.is_some() {
            if let Err(text) = certificates_of_proxy(&mut settings, uses_identity, uses_subject) {
                self.notes.push(Note::loss(place, text));
            }
            return Some(settings);
        }
        match (&settings.certificate, &settings.key) {
            (Some(_), Some(_)) => {}
            (None, None) if ca_file.is_none() && !settings.needs_certificate => {}
            _ => self.notes.push(Note::loss(place.clone(), "TLS needs both certfile and keyfile")),
        }
        settings.chain.clone_from(&ca_file);
        if settings.needs_certificate {
            if ca_file.is_none() {
                self.notes.push(Note::loss(place.clone(), "require_certificate needs a cafile"));
            }
            settings.client_ca = ca_file;
            // Without one of the two options, mosquitto takes no name from a certificate.
            settings.certificate_user = Some(certificate_user.unwrap_or("none"));
        } else {
            // mosquitto asks for no certificate then: nothing that is said of one has an effect.
            settings.crl = None;
            settings.ignores_dates = false;
            if certificate_user.is_some() {
                self.notes.push(Note::loss(place, "use_identity_as_username needs require_certificate true"));
            }
        }
        Some(settings)
    }
}

/// Translates the certificates of a listener behind a proxy, which does the TLS. Its header says
/// which certificate the client has.
///
/// # Errors
/// The settings have no equal.
fn certificates_of_proxy(
    settings: &mut ListenerSettings,
    uses_identity: bool,
    uses_subject: bool,
) -> Result<(), &'static str> {
    let has_own_tls = settings.certificate.take().is_some() || settings.key.take().is_some();
    let is_required = std::mem::take(&mut settings.needs_certificate);
    let says_nothing = settings.proxy == Some("v1");
    settings.proxy_tls &= !says_nothing;
    match (is_required, uses_identity) {
        _ if has_own_tls || uses_subject => Err(
            "mosquitto takes no certfile, keyfile and use_subject_as_username beside enable_proxy_protocol",
        ),
        (false, false) => Ok(()),
        _ if says_nothing => Err("version 1 of the PROXY protocol says nothing of certificates"),
        (true, true) => {
            settings.proxy_tls = true;
            Ok(())
        }
        _ => Err("behind a proxy Homing demands a certificate only where its name is the user name: \
                  require_certificate and use_identity_as_username need each other"),
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
    let mut versions = levels.split(',').map(version).collect::<Result<Vec<_>, _>>()?;
    versions.sort_unstable();
    versions.dedup();
    Ok(versions)
}
