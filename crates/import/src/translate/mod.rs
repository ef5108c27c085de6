//! The meaning of a mosquitto.conf in Homing's settings.
//!
//! Options follow the `listener` that they are for; options of the default listener come before the
//! first `listener`. With `per_listener_settings true` this holds for users and permissions, too.
//!
//! - `listener`: the options of one listener.
//! - `entrance`: users and permissions, for all listeners or for each.
//! - `bridge`: the options of a bridge.
//! - `broker`: all other options.
//! - `plugins`: plugins whose work Homing does.
//! - `conf_listener`: the options of a listener as mosquitto has them.
//! - `output`: the translated settings, and the notes.

mod bridge;
mod broker;
mod conf_listener;
mod entrance;
mod listener;
mod output;
mod plugins;

use super::HomingKeys;
use super::conf::ConfLine;
use super::options::{Fate, fate, is_of_bridge};
use super::value::{RefusedValue, boolean, quoted};
use bridge::ConfBridge;
use broker::{BrokerOptions, LineTaken};
use conf_listener::{ConfListener, DefaultReach, EntranceSettings};
use output::{Keys, place_of};
use plugins::Plugins;

pub(crate) use output::{BridgeSettings, ListenerSettings, Note, TranslatedSettings, Translation};

#[derive(Debug, Default)]
struct Translator {
    is_per_listener: bool,
    entrance: EntranceSettings,
    default: ConfListener,
    listeners: Vec<ConfListener>,
    bridges: Vec<ConfBridge>,
    broker: BrokerOptions,
    plugins: Plugins,
    /// The form of the client identifiers at every listener.
    client_id: Option<String>,
    /// The keys of the broker.
    keys: Keys,
    notes: Vec<Note>,
}

/// Translates the lines of a configuration.
pub(crate) fn translate(lines: &[ConfLine], homing: HomingKeys) -> Translation {
    let values: Vec<bool> = lines
        .iter()
        .filter(|line| line.name == "per_listener_settings")
        .filter_map(|line| boolean(line).ok())
        .collect();
    let is_per_listener = values.contains(&true);
    let mut translator = Translator { is_per_listener, ..Translator::default() };
    if is_per_listener && values.contains(&false) {
        let text = "per_listener_settings has two values; mosquitto 2.0 takes the last one, and 2.1 true";
        translator.notes.push(Note::loss(None, text));
    }
    for line in lines {
        translator.line(line);
    }
    translator.finish(homing)
}

impl Translator {
    fn line(&mut self, line: &ConfLine) {
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
        let place = Some(place_of(line));
        self.notes.push(if is_loss { Note::loss(place, &text) } else { Note::differs(place, &text) });
    }

    fn option(&mut self, line: &ConfLine) -> Result<(), RefusedValue> {
        match line.name.as_str() {
            "listener" => self.listener(line),
            "connection" => self.connection(line),
            name if is_of_bridge(name) => self.of_bridge(line),
            "clientid_prefixes" => self.client_id_prefix(line),
            "allow_anonymous" | "listener_allow_anonymous" | "password_file" | "acl_file" => {
                self.entrance(line)
            }
            name if name.contains("plugin") || name.starts_with("auth_opt_") => self.plugin(line),
            _ => match self.broker.take(line, &mut self.keys, &mut self.notes)? {
                LineTaken::Here => Ok(()),
                LineTaken::Not => self.of_listener(line),
            },
        }
    }

    fn finish(mut self, homing: HomingKeys) -> Translation {
        self.plugin_files();
        let has_listeners = !self.listeners.is_empty();
        let is_local_only = !has_listeners && self.default.port.is_none() && self.default.host.is_none();
        let reach = if is_local_only { DefaultReach::ThisMachine } else { DefaultReach::All };
        let mut listeners = std::mem::take(&mut self.listeners);
        let mut default = std::mem::take(&mut self.default);
        let aliases = default.topic_aliases;
        // The rule is a key of a listener, so the result needs the default listener.
        default.is_used |= is_local_only && self.client_id.is_some();
        if default.port.is_some() || default.host.is_some() || (is_local_only && default.is_used) {
            listeners.insert(0, default);
        } else if default.is_used {
            self.notes.push(Note::loss(None, "options of a listener stand before the first `listener`; move them behind the listener that they are for"));
        }
        self.entrances(&mut listeners, reach);
        self.topic_aliases(&listeners, aliases);
        self.broker.finish(&mut self.keys, &mut self.notes, homing);
        let mut translated: Vec<ListenerSettings> = Vec::new();
        for listener in listeners {
            translated.extend(self.translated(listener, reach));
        }
        let bridges = self.bridge_settings();
        let settings = TranslatedSettings { listeners: translated, bridges, keys: self.keys };
        Translation { settings, notes: self.notes }
    }

    /// Translates the topic aliases of the listeners and of the default one. Homing has one number
    /// for all listeners, so the lowest counts.
    fn topic_aliases(&mut self, listeners: &[ConfListener], default: Option<u16>) {
        // mosquitto's own number.
        const UNSET: u16 = 10;
        let of_listeners = listeners.iter().map(|listener| listener.topic_aliases);
        if of_listeners.clone().chain([default]).all(|aliases| aliases.is_none()) {
            return;
        }
        let all = of_listeners.map(|aliases| aliases.unwrap_or(UNSET)).chain(default);
        let Some(count) = all.clone().min() else { return };
        if all.max() != Some(count) {
            let text = format!(
                "max_topic_alias: Homing has one number for all listeners; the lowest counts, {count}"
            );
            self.notes.push(Note::differs(None, &text));
        }
        let count = if count == 0 { quoted("off") } else { count.to_string() };
        self.keys.push(("limits.topic_alias_maximum", count));
    }
}
