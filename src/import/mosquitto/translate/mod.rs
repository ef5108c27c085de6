//! The meaning of a mosquitto.conf in Homing's settings.
//!
//! Options stand behind the `listener` that they are for, or before the first one for the default
//! listener. With `per_listener_settings true` this holds for users and permissions, too.
//!
//! - `listener`: the options of one listener.
//! - `entrance`: users and permissions, for all listeners or for each.
//! - `broker`: all other options.

mod broker;
mod entrance;
mod listener;

use super::conf::ConfLine;
use super::options::{Fate, fate};
use super::value::RefusedValue;
use entrance::EntranceSettings;
use listener::ConfListener;
use std::fmt;

/// The settings for Homing. `None` and empty are left to Homing's defaults.
#[derive(Debug, Default, PartialEq)]
pub struct TranslatedSettings {
    /// Listeners with addresses of their own.
    pub listeners: Vec<ListenerSettings>,
    /// Keys of the form `section.key`, with values in TOML, in the order of the output.
    pub keys: Vec<(&'static str, String)>,
}

/// A listener of Homing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListenerSettings {
    /// The address, as Homing's file has it.
    pub address: String,
    /// True for MQTT over WebSocket.
    pub is_websocket: bool,
    /// The origins of web pages that may connect; any if empty.
    pub origins: Vec<String>,
    /// The version of the PROXY protocol.
    pub proxy: Option<&'static str>,
    /// True if the proxy must have used TLS.
    pub proxy_tls: bool,
    /// True if every address counts as a proxy, as in mosquitto.
    pub trusts_all_proxies: bool,
    /// The largest number of connections.
    pub connections: Option<u32>,
    /// The methods of authentication; `None` if those of all listeners hold.
    pub auth: Option<Vec<&'static str>>,
    /// The word for anonymous clients; `None` if that of all listeners holds.
    pub anonymous: Option<&'static str>,
    /// The ACL file of this listener alone.
    pub acl_file: Option<String>,
    /// The certificate of the broker.
    pub certificate: Option<String>,
    /// The key of the certificate.
    pub key: Option<String>,
    /// The authorities of client certificates.
    pub client_ca: Option<String>,
    /// True if clients must have a certificate.
    pub needs_certificate: bool,
    /// The list of revoked certificates.
    pub crl: Option<String>,
    /// The lowest version of TLS.
    pub minimum: Option<&'static str>,
    /// The part of the certificate that is the user name.
    pub certificate_user: Option<&'static str>,
    /// False if the dates of client certificates do not count.
    pub ignores_dates: bool,
}

/// A line for standard error.
#[derive(Debug, PartialEq, Eq)]
pub struct Note {
    place: Option<String>,
    text: String,
    /// True if something that protects or delivers would be lost.
    pub is_loss: bool,
}

/// A translated configuration.
#[derive(Debug, Default)]
pub struct Translation {
    /// The settings.
    pub settings: TranslatedSettings,
    /// The options that do not mean the same.
    pub notes: Vec<Note>,
}

#[derive(Debug, Default)]
struct Translator {
    is_per_listener: bool,
    entrance: EntranceSettings,
    default: ConfListener,
    listeners: Vec<ConfListener>,
    keys: Vec<(&'static str, String)>,
    persistence: bool,
    location: Option<String>,
    has_expiry: bool,
    has_packet_size: bool,
    /// The most verbose `log_type`.
    level: Option<&'static str>,
    notes: Vec<Note>,
}

/// Translates the lines of a configuration.
pub fn translate(lines: &[ConfLine]) -> Translation {
    let is_per_listener =
        lines.iter().any(|line| line.name == "per_listener_settings" && line.value == "true");
    let mut translator = Translator { is_per_listener, ..Translator::default() };
    for line in lines {
        translator.line(line);
    }
    translator.finish()
}

impl Translator {
    fn line(&mut self, line: &ConfLine) {
        let place = format!("{}:{}: {}", line.file.display(), line.number, line.name);
        let (text, is_loss) = match fate(&line.name) {
            None => ("mosquitto has no such option".to_owned(), true),
            Some(Fate::Needless) => return,
            Some(Fate::Differs(text)) => (text.to_owned(), false),
            Some(Fate::Lost(text)) => (text.to_owned(), true),
            Some(Fate::Translated) => match self.option(line) {
                Ok(()) => return,
                Err(text) => (text, true),
            },
        };
        self.notes.push(Note { place: Some(place), text, is_loss });
    }

    fn differs(&mut self, line: &ConfLine, text: &str) {
        let place = format!("{}:{}: {}", line.file.display(), line.number, line.name);
        self.notes.push(Note { place: Some(place), text: text.to_owned(), is_loss: false });
    }

    fn option(&mut self, line: &ConfLine) -> Result<(), RefusedValue> {
        match line.name.as_str() {
            "listener" => self.listener(line),
            "allow_anonymous" | "listener_allow_anonymous" | "password_file" | "acl_file" => {
                self.entrance(line)
            }
            _ => self.of_broker(line),
        }
    }

    fn loss(&mut self, place: Option<String>, text: &str) {
        self.notes.push(Note { place, text: text.to_owned(), is_loss: true });
    }

    fn finish(mut self) -> Translation {
        let has_listeners = !self.listeners.is_empty();
        let is_local_only = !has_listeners && self.default.port.is_none() && self.default.host.is_none();
        let mut listeners = std::mem::take(&mut self.listeners);
        let default = std::mem::take(&mut self.default);
        if default.port.is_some() || default.host.is_some() || (is_local_only && default.is_used) {
            listeners.insert(0, default);
        } else if default.is_used {
            self.loss(None, "options of a listener stand before the first `listener`; move them behind the listener that they are for");
        }
        self.entrances(&mut listeners, is_local_only);
        self.broker_defaults();
        let mut translated: Vec<ListenerSettings> = Vec::new();
        for listener in listeners {
            translated.extend(self.translated(listener, is_local_only));
        }
        let settings = TranslatedSettings { listeners: translated, keys: self.keys };
        Translation { settings, notes: self.notes }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_loss { "LOST" } else { "differs" };
        match &self.place {
            Some(place) => write!(f, "{kind}: {place}: {}", self.text),
            None => write!(f, "{kind}: {}", self.text),
        }
    }
}
