//! The options that are not about a listener or about users.

use super::output::{Keys, Note, place_of};
use crate::HomingKeys;
use crate::conf::ConfLine;
use crate::value::{
    RefusedValue, boolean, expiration, limit, number, quoted, quoted_bytes, quoted_seconds, text,
};
use std::path::Path;

/// mosquitto's sessions never expire unless told. The value is the longest that Homing takes.
const FOREVER: &str = "49710d";

/// Bytes beside the payload for which there is room in a packet with the largest payload: a topic
/// of 64 KiB, and as many bytes of properties.
const BESIDE_PAYLOAD: u64 = 128 << 10;

/// The largest payload of mosquitto: the largest Remaining Length.
const LARGEST_PAYLOAD: u64 = 268_435_455;

/// The smallest and largest value of a key of Homing. The check of the whole result reports a bound
/// that differs from the key's own bound.
pub(super) type KeySpan = (u64, u64);

const PACKET_SIZE: KeySpan = (1 << 10, 255 << 20);
const QUEUE_BYTES: KeySpan = (1 << 10, 1 << 40);
const QUEUE_MESSAGES: KeySpan = (1, 1_000_000_000);
const IN_FLIGHT: KeySpan = (1, 65_535);
const MEMORY: KeySpan = (1 << 10, 16 << 40);
pub(super) const CONNECTIONS: KeySpan = (1, 100_000_000);
const SESSIONS: KeySpan = (1, 1_000_000_000);

/// The options of the broker that are translated together, when all lines are read.
#[derive(Debug, Default)]
pub(super) struct BrokerOptions {
    persistence: bool,
    location: Option<String>,
    has_expiry: bool,
    packet_size: Option<u64>,
    /// The largest payload.
    payload: Option<u64>,
    memory: Option<u64>,
    /// The longest Keep Alive in seconds.
    keep_alive: Option<u16>,
    /// The place of `retain_available false`, if this is its last value.
    retains_nothing: Option<String>,
    /// The most verbose `log_type`.
    level: Option<&'static str>,
}

/// Tells if a line was an option of the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineTaken {
    /// The line is translated.
    Here,
    /// The line is no option of the broker.
    Not,
}

impl BrokerOptions {
    /// Translates a line, if it is an option of the broker.
    ///
    /// # Errors
    /// The value is not valid.
    pub(super) fn take(
        &mut self,
        line: &ConfLine,
        keys: &mut Keys,
        notes: &mut Vec<Note>,
    ) -> Result<LineTaken, RefusedValue> {
        match line.name.as_str() {
            "max_inflight_messages" => {
                let messages = within(limit(line)?.or(Some(IN_FLIGHT.1)), IN_FLIGHT, line, notes)?;
                put(keys, &["limits.in_flight"], messages);
            }
            "max_queued_messages" => {
                let messages = within(limit(line)?.or(Some(QUEUE_MESSAGES.1)), QUEUE_MESSAGES, line, notes)?;
                put(keys, &["limits.queue_messages", "store.queue_messages"], messages);
            }
            "max_queued_bytes" => {
                let bytes = within(limit(line)?, QUEUE_BYTES, line, notes)?;
                put(keys, &["limits.queue_bytes", "store.queue_bytes"], bytes.map(quoted_bytes));
            }
            "max_packet_size" => self.packet_size = within(limit(line)?, PACKET_SIZE, line, notes)?,
            "message_size_limit" => match limit(line)? {
                Some(bytes) if bytes > LARGEST_PAYLOAD => {
                    return Err(format!("{bytes} is no size of a message"));
                }
                payload => self.payload = payload,
            },
            "memory_limit" => self.memory = within(limit(line)?, MEMORY, line, notes)?,
            "max_keepalive" => {
                self.keep_alive = Some(number(&line.value)?).filter(|seconds| *seconds > 0);
                if self.keep_alive.is_some() {
                    let text = "mosquitto 2.0 does not bound the Keep Alive of 3.x clients; Homing, as mosquitto 2.1, refuses those with a longer one or none (return code 2)";
                    notes.push(Note::differs(Some(place_of(line)), text));
                }
            }
            "global_max_connections" => {
                put(keys, &["limits.connections"], within(limit(line)?, CONNECTIONS, line, notes)?);
            }
            "global_max_clients" => {
                put(keys, &["limits.sessions"], within(limit(line)?, SESSIONS, line, notes)?);
            }
            "persistent_client_expiration" => {
                keys.push(("limits.session_expiry", expiration(&line.value)?));
                self.has_expiry = true;
            }
            "sys_interval" => {
                let interval = match number::<u16>(&line.value)? {
                    0 => quoted("off"),
                    seconds => quoted_seconds(seconds.into()),
                };
                keys.push(("sys.publish_interval", interval));
            }
            "allow_zero_length_clientid" if !boolean(line)? => {
                return Err(
                    "Homing gives a client without identifier one, where mosquitto refuses it".to_owned()
                );
            }
            "max_qos" | "maximum_qos" if number::<u8>(&line.value)? != 2 => {
                return Err("Homing accepts every QoS".to_owned());
            }
            "allow_zero_length_clientid" | "max_qos" | "maximum_qos" => {}
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
            // Its value was read before all other lines.
            "per_listener_settings" => {
                boolean(line)?;
            }
            _ => return Ok(LineTaken::Not),
        }
        Ok(LineTaken::Here)
    }

    /// Stores the data of mosquitto's plugin, in a directory beside its database.
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
    pub(super) fn finish(&mut self, keys: &mut Keys, notes: &mut Vec<Note>, homing: HomingKeys) {
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
        self.sizes(keys, notes, homing);
        if let Some(seconds) = self.keep_alive {
            keys.push(("keep_alive.maximum", quoted_seconds(seconds.into())));
            keys.push(("keep_alive.allow_never", "false".to_owned()));
        }
        if self.retains_nothing.is_some() {
            keys.push(("limits.retained_messages", quoted("off")));
            let text = "mosquitto disconnects a 3.x client that sets Retain; Homing retains nothing, and delivers the message";
            notes.push(Note::differs(self.retains_nothing.take(), text));
        }
        if let Some(level) = self.level {
            keys.push(("log.level", quoted(level)));
        }
    }

    /// Adds the sizes of packets, payloads and memory. Homing's memory holds one packet at least.
    fn sizes(&mut self, keys: &mut Keys, notes: &mut Vec<Note>, homing: HomingKeys) {
        let needed = self.payload.map_or(0, |payload| payload + BESIDE_PAYLOAD);
        let memory = self.memory.unwrap_or(homing.memory);
        let wanted = self.packet_size.unwrap_or(needed.max(homing.packet_size));
        let packet_size = wanted.min(PACKET_SIZE.1).min(memory);
        let (size, key) = ((homing.size)(packet_size), "limits.packet_size");
        if self.packet_size.is_none() {
            let text = format!(
                "max_packet_size is not set: mosquitto 2.0 has no limit, and 2.1 refuses packets above 2,000,000 B; Homing refuses packets \
                 above {key}, {size}"
            );
            notes.push(Note::differs(None, &text));
        } else if packet_size < wanted {
            notes.push(Note::differs(None, &format!("{key} is at most limits.memory in Homing: {size}")));
        }
        if self.packet_size.is_some() || packet_size != homing.packet_size {
            keys.push(("limits.packet_size", quoted_bytes(packet_size)));
        }
        put(keys, &["limits.memory"], self.memory.map(quoted_bytes));
        put(keys, &["limits.payload_size"], self.payload.map(|bytes| quoted_bytes(bytes.min(PACKET_SIZE.1))));
    }
}

/// Adds a value for each of these keys, if there is one.
fn put(keys: &mut Keys, names: &[&'static str], value: Option<impl ToString>) {
    let Some(value) = value.map(|value| value.to_string()) else { return };
    keys.extend(names.iter().map(|name| (*name, value.clone())));
}

/// Returns a limit of mosquitto within the span of Homing's key. If Homing's is stricter, a note
/// says so.
///
/// # Errors
/// The smallest value of the key would be less strict.
pub(super) fn within(
    limit: Option<u64>,
    (least, most): KeySpan,
    line: &ConfLine,
    notes: &mut Vec<Note>,
) -> Result<Option<u64>, RefusedValue> {
    match limit {
        Some(count) if count < least => Err(format!("{count} is below {least}, the least that Homing takes")),
        Some(count) if count > most => {
            notes.push(Note::differs(Some(place_of(line)), &format!("Homing takes {most} at most")));
            Ok(Some(most))
        }
        limit => Ok(limit),
    }
}
