//! What a client asks for about its own redelivery, in CONNECT or by a publish, and how it is told what holds.
//!
//! A publish to `$homing/session/...` acts on its publisher's session and is never routed.

use super::admission::{Change, Want};
use super::effects::Event;
use super::{ConnectionId, SessionId, Shard};
use crate::mqtt::message::{Message, Parts};
use crate::mqtt::packet::{Connect, QoS};
use crate::mqtt::session::patience::{self, Wish};
use crate::time::Instant;

const PREFIX: &str = "$homing/session/";

/// What a client subscribes to in order to read what holds.
const GRANTED: &str = "$homing/session/granted";

/// Characters of an unreadable wish that are logged.
const LOGGED: usize = 64;

/// Characters of the client id that are logged with it.
const CLIENT_ID: usize = 256;

fn shortened(client_id: &str) -> Box<str> {
    client_id.chars().take(CLIENT_ID).collect()
}

/// What became of a publish to the session's own topics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Granted,
    /// It is one, and there is no room to remember it.
    Refused(Want),
    Unreadable,
    /// It is none.
    NoWish,
}

impl Shard {
    /// What a 5.0 CONNECT asks for: its answers, for CONNACK. Before the connection's patience begins.
    pub(super) fn learn_wishes(
        &mut self,
        id: SessionId,
        connect: &Connect<'_>,
    ) -> Vec<(&'static str, String)> {
        let mut asked = [None; 2];
        for (name, text) in &connect.properties.user_properties {
            if let Some(wish) = Wish::from_name(name) {
                asked[wish as usize] = Some((wish, *text));
            }
        }
        let mut answers = Vec::new();
        for (wish, text) in asked.into_iter().flatten() {
            let Some(resident) = self.sessions.get_mut(id) else { continue };
            let session = &mut resident.session;
            if wish == Wish::RetryInterval {
                // 5.0 [MQTT-4.4.0-1]: there is none.
                answers.push((wish.name(), "off".to_owned()));
                continue;
            }
            let read = session.ask(wish, text);
            answers.push((wish.name(), patience::format(session.granted(wish))));
            if read.is_err() {
                let client_id = shortened(&session.client_id);
                self.note_unreadable(client_id, wish, text);
            }
        }
        answers
    }

    /// A publish to a topic of the broker's own: a wish, perhaps. It holds for what is sent from here on.
    pub(super) fn ask_by_publish(
        &mut self,
        now: Instant,
        id: ConnectionId,
        session_id: SessionId,
        topic: &str,
        payload: &[u8],
    ) -> Asked {
        let Some(wish) = topic.strip_prefix(PREFIX).and_then(Wish::from_name) else { return Asked::NoWish };
        if let Err(want) = self.admits(Change::Wish { stored: self.is_stored(session_id) }) {
            return Asked::Refused(want);
        }
        let Shard { connections, sessions, .. } = self;
        let (Some(connection), Some(resident)) = (connections.get_mut(id), sessions.get_mut(session_id))
        else {
            return Asked::NoWish;
        };
        let session = &mut resident.session;
        let text = std::str::from_utf8(payload).unwrap_or("");
        let before = session.wishes();
        if session.ask(wish, text).is_err() {
            // One line for all that one read holds: thousands fit in it.
            if connection.unreadable != Some(now) {
                connection.unreadable = Some(now);
                let client_id = shortened(&session.client_id);
                self.note_unreadable(client_id, wish, text);
            }
            return Asked::Unreadable;
        }
        session.set_patience(&mut connection.wire);
        if session.wishes() != before {
            self.record_session(session_id);
        }
        Asked::Granted
    }

    /// What holds, as a retained message for who asks for it; `None` where the filter is another.
    pub(super) fn granted_message(&mut self, id: ConnectionId, filter: &str) -> Option<Message> {
        if filter != GRANTED {
            return None;
        }
        let wire = &self.connections.get(id)?.wire;
        // Its messages of topics that have a rule of their own aside.
        let holds = wire.patience;
        let wish = if wire.version.is_v5() { Wish::AckTimeout } else { Wish::RetryInterval };
        let text = format!("{}={}", wish.name(), patience::format(holds));
        let parts = Parts {
            qos: QoS::AtLeastOnce,
            retain: true,
            expires: Instant::NEVER,
            topic: GRANTED,
            forwarded: &[],
            payload: text.as_bytes(),
        };
        Some(Message::new(parts, &mut self.scratch))
    }

    fn note_unreadable(&mut self, client_id: Box<str>, wish: Wish, text: &str) {
        let text: String = text.chars().take(LOGGED).collect();
        self.note(Event::WishUnreadable { client_id, wish: wish.name(), text: text.into() });
    }
}
