//! The options that are not about a listener or about users.

use super::output::{Keys, Note, place_of};
use crate::import::mosquitto::conf::ConfLine;
use crate::import::mosquitto::value::{
    RefusedValue, boolean, bounded, bytes, expiration, number, quoted, quoted_seconds, text,
};
use std::path::Path;

/// mosquitto's sessions never expire unless told. This is the longest that Homing takes.
const FOREVER: &str = "49710d";

/// The options of the broker that are translated together, when all lines are read.
#[derive(Debug, Default)]
pub(super) struct BrokerOptions {
    persistence: bool,
    location: Option<String>,
    has_expiry: bool,
    has_packet_size: bool,
    /// The place of `retain_available false`, if this is its last value.
    retains_nothing: Option<String>,
    /// The most verbose `log_type`.
    level: Option<&'static str>,
}

/// Tells if a line was an option of the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// The line is translated.
    Here,
    /// The line is no option of the broker.
    Not,
}

impl BrokerOptions {
    /// Translates a line, if it is an option of the broker.
    ///
    /// # Errors
    /// What is wrong with the value.
    pub(super) fn take(
        &mut self,
        line: &ConfLine,
        keys: &mut Keys,
        notes: &mut Vec<Note>,
    ) -> Result<Taken, RefusedValue> {
        match line.name.as_str() {
            "max_inflight_messages" => {
                let messages = bounded(&line.value, 65_535)?;
                keys.push(("limits.in_flight", messages.to_string()));
            }
            "max_queued_messages" => {
                let messages = bounded(&line.value, 1_000_000_000)?.to_string();
                keys.push(("limits.queue_messages", messages.clone()));
                keys.push(("store.queue_messages", messages));
            }
            "max_queued_bytes" => {
                let bytes = bytes(line)?;
                keys.extend(bytes.clone().map(|bytes| ("limits.queue_bytes", bytes)));
                keys.extend(bytes.map(|bytes| ("store.queue_bytes", bytes)));
            }
            "max_packet_size" | "message_size_limit" => {
                keys.extend(bytes(line)?.map(|bytes| ("limits.packet_size", bytes)));
                self.has_packet_size = true;
            }
            "memory_limit" => keys.extend(bytes(line)?.map(|bytes| ("limits.memory", bytes))),
            "max_keepalive" if line.value == "0" => {}
            "max_keepalive" => {
                keys.push(("keep_alive.maximum", quoted_seconds(number(&line.value)?)));
                keys.push(("keep_alive.allow_never", "false".to_owned()));
            }
            "max_topic_alias" => {
                keys.push(("limits.topic_alias_maximum", number::<u16>(&line.value)?.to_string()));
            }
            "global_max_connections" | "global_max_clients" if line.value == "-1" => {}
            "global_max_connections" => {
                keys.push(("limits.connections", number::<u32>(&line.value)?.to_string()));
            }
            "global_max_clients" => {
                keys.push(("limits.sessions", number::<u32>(&line.value)?.to_string()));
            }
            "persistent_client_expiration" => {
                keys.push(("limits.session_expiry", expiration(&line.value)?));
                self.has_expiry = true;
            }
            "retry_interval" => keys.push(("redelivery.interval", quoted_seconds(number(&line.value)?))),
            "sys_interval" if line.value == "0" => keys.push(("sys.publish_interval", quoted("off"))),
            "sys_interval" => keys.push(("sys.publish_interval", quoted_seconds(number(&line.value)?))),
            "check_retain_source" => {
                keys.push(("acl.check_retain_source", boolean(line)?.to_string()));
            }
            "retain_available" => self.retains_nothing = (!boolean(line)?).then(|| place_of(line)),
            "persistence" | "retained_persistence" => self.persistence = boolean(line)?,
            "persistence_location" => self.location = Some(text(line)?),
            "log_type" => self.log_type(&line.value),
            "log_dest" if line.value == "stderr" => {}
            "log_dest" => {
                let text = "Homing logs to standard error; let systemd or the shell write it elsewhere";
                notes.push(Note::differs(Some(place_of(line)), text));
            }
            // It was read before all other lines.
            "per_listener_settings" => {}
            _ => return Ok(Taken::Not),
        }
        Ok(Taken::Here)
    }

    /// Stores what mosquitto's plugin stores, in a directory beside its database.
    pub(super) fn persist_beside(&mut self, database: Option<&str>) {
        self.persistence = true;
        let directory = database.and_then(|file| Path::new(file).parent()?.to_str());
        if let Some(directory) = directory.filter(|directory| !directory.is_empty()) {
            self.location = Some(directory.to_owned());
        }
    }

    fn log_type(&mut self, value: &str) {
        const LEVELS: [&str; 5] = ["off", "error", "warn", "info", "debug"];
        let level = match value {
            "all" | "debug" | "subscribe" | "unsubscribe" => "debug",
            "information" | "notice" => "info",
            "warning" => "warn",
            "error" => "error",
            _ => "off",
        };
        let place = |level: &str| LEVELS.iter().position(|known| *known == level);
        if place(level) >= self.level.and_then(place) {
            self.level = Some(level);
        }
    }

    /// Adds the keys that depend on several lines, or on an option that is missing.
    pub(super) fn finish(&mut self, keys: &mut Keys, notes: &mut Vec<Note>) {
        match (self.persistence, self.location.take()) {
            (true, Some(location)) => {
                // mosquitto's directory has files of mosquitto's.
                let directory = format!("{}/homing", location.trim_end_matches('/'));
                keys.push(("store.path", quoted(&directory)));
            }
            (true, None) => {}
            (false, _) => keys.push(("store.durability", quoted("none"))),
        }
        if self.persistence {
            let text = "persistence: the sessions and retained messages of mosquitto.db, or of the database of \
                        mosquitto_persist_sqlite, are not carried over";
            notes.push(Note::differs(None, text));
        }
        if !self.has_expiry {
            keys.push(("limits.session_expiry", quoted(FOREVER)));
        }
        if !self.has_packet_size {
            let text = "max_packet_size is not set: mosquitto 2.0 has no limit, and 2.1 refuses packets above 2,000,000 B; Homing refuses packets above limits.packet_size, 2 MiB";
            notes.push(Note::differs(None, text));
        }
        if self.retains_nothing.is_some() {
            keys.push(("limits.retained_messages", quoted("off")));
            let text = "mosquitto disconnects a client that sets Retain; Homing retains nothing, and delivers the message";
            notes.push(Note::differs(self.retains_nothing.take(), text));
        }
        if let Some(level) = self.level {
            keys.push(("log.level", quoted(level)));
        }
    }
}
