//! The options that are not about a listener or about users.

use super::{Note, Translator};
use crate::import::mosquitto::conf::ConfLine;
use crate::import::mosquitto::value::{
    RefusedValue, boolean, bounded, bytes, expiration, number, quoted, quoted_seconds, text,
};

/// mosquitto's sessions never expire unless told. This is the longest that Homing takes.
const FOREVER: &str = "49710d";

impl Translator {
    pub(super) fn of_broker(&mut self, line: &ConfLine) -> Result<(), RefusedValue> {
        match line.name.as_str() {
            "max_inflight_messages" => {
                let messages = bounded(&line.value, 65_535)?;
                self.keys.push(("limits.in_flight", messages.to_string()));
            }
            "max_queued_messages" => {
                let messages = bounded(&line.value, 1_000_000_000)?.to_string();
                self.keys.push(("limits.queue_messages", messages.clone()));
                self.keys.push(("store.queue_messages", messages));
            }
            "max_queued_bytes" => {
                let bytes = bytes(line)?;
                self.keys.extend(bytes.clone().map(|bytes| ("limits.queue_bytes", bytes)));
                self.keys.extend(bytes.map(|bytes| ("store.queue_bytes", bytes)));
            }
            "max_packet_size" | "message_size_limit" => {
                self.keys.extend(bytes(line)?.map(|bytes| ("limits.packet_size", bytes)));
                self.has_packet_size = true;
            }
            "memory_limit" => self.keys.extend(bytes(line)?.map(|bytes| ("limits.memory", bytes))),
            "max_keepalive" if line.value == "0" => {}
            "max_keepalive" => {
                self.keys.push(("keep_alive.maximum", quoted_seconds(number(&line.value)?)));
                self.keys.push(("keep_alive.allow_never", "false".to_owned()));
            }
            "max_topic_alias" => {
                self.keys.push(("limits.topic_alias_maximum", number::<u16>(&line.value)?.to_string()));
            }
            "global_max_connections" | "global_max_clients" if line.value == "-1" => {}
            "global_max_connections" => {
                self.keys.push(("limits.connections", number::<u32>(&line.value)?.to_string()));
            }
            "global_max_clients" => {
                self.keys.push(("limits.sessions", number::<u32>(&line.value)?.to_string()));
            }
            "persistent_client_expiration" => {
                self.keys.push(("limits.session_expiry", expiration(&line.value)?));
                self.has_expiry = true;
            }
            "retry_interval" => self.keys.push(("redelivery.interval", quoted_seconds(number(&line.value)?))),
            "sys_interval" if line.value == "0" => self.keys.push(("sys.publish_interval", quoted("off"))),
            "sys_interval" => self.keys.push(("sys.publish_interval", quoted_seconds(number(&line.value)?))),
            "persistence" => self.persistence = boolean(line)?,
            "persistence_location" => self.location = Some(text(line)?),
            "log_type" => self.log_type(&line.value),
            "log_dest" if line.value == "stderr" => {}
            "log_dest" => self
                .differs(line, "Homing logs to standard error; let systemd or the shell write it elsewhere"),
            // It was read before all other lines.
            "per_listener_settings" => {}
            _ => return self.of_listener(line),
        }
        Ok(())
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

    pub(super) fn broker_defaults(&mut self) {
        match (self.persistence, self.location.take()) {
            (true, Some(location)) => {
                // mosquitto's directory has files of mosquitto's.
                let directory = format!("{}/homing", location.trim_end_matches('/'));
                self.keys.push(("store.path", quoted(&directory)));
            }
            (true, None) => {}
            (false, _) => self.keys.push(("store.durability", quoted("none"))),
        }
        if self.persistence {
            let text = "persistence: the sessions and retained messages of mosquitto.db are not carried over";
            self.notes.push(Note { place: None, text: text.to_owned(), is_loss: false });
        }
        if !self.has_expiry {
            self.keys.push(("limits.session_expiry", quoted(FOREVER)));
        }
        if !self.has_packet_size {
            let text = "max_packet_size is not set: mosquitto has no limit, Homing refuses packets above limits.packet_size, 2 MiB";
            self.notes.push(Note { place: None, text: text.to_owned(), is_loss: false });
        }
        if let Some(level) = self.level {
            self.keys.push(("log.level", quoted(level)));
        }
    }
}
