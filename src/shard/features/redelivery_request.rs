//! What a client asks for about its own redelivery, in CONNECT or by a publish, and how it is told
//! what holds.
//!
//! A publish to `$homing/session/...` acts on its publisher's session and is never routed.

use crate::mqtt::message::{Message, Parts};
use crate::mqtt::packet::{Connect, QoS};
use crate::session::ack_wait;
use crate::session::ack_wait::RequestedTime;
use crate::shard::Shard;
use crate::shard::admission::{Change, Want};
use crate::shard::observe::client_events::{ClientEvent, Occurrence};
use crate::shard::slots::{ConnectionId, SessionId};
use crate::time::Instant;

const PREFIX: &str = "$homing/session/";

/// What a client subscribes to in order to read what holds.
const GRANTED: &str = "$homing/session/granted";

/// Characters of an unreadable request that are logged.
const LOGGED: usize = 64;

/// Characters of the client id that are logged with it.
const CLIENT_ID: usize = 256;

fn shortened(client_id: &str) -> Box<str> {
    client_id.chars().take(CLIENT_ID).collect()
}

/// What became of a publish to the session's own topics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::shard) enum RequestedTimes {
    Granted,
    /// It is one, and there is no room to remember it.
    Refused(Want),
    InvalidRequest,
    /// It is none.
    NotRequested,
}

impl Shard {
    /// What a 5.0 CONNECT asks for: its answers, for CONNACK. Before the connection's ack wait
    /// begins.
    pub(in crate::shard) fn take_connect_requests(
        &mut self,
        id: SessionId,
        connect: &Connect<'_>,
    ) -> Vec<(&'static str, String)> {
        let mut asked = [None; 2];
        for (name, text) in &connect.properties.user_properties {
            if let Some(time) = RequestedTime::from_name(name) {
                asked[time as usize] = Some((time, *text));
            }
        }
        let mut answers = Vec::new();
        for (time, text) in asked.into_iter().flatten() {
            let Some(session_entry) = self.sessions.get_mut(id) else { continue };
            let session = &mut session_entry.session;
            let (read, granted) = session.request_time_at_connect(time, text);
            answers.push((time.name(), granted));
            if read.is_err() {
                let client_id = shortened(&session.client_id);
                self.note_unreadable(client_id, time, text);
            }
        }
        answers
    }

    /// A publish to a topic of the broker's own: a request for a time, perhaps. It holds for what is sent from
    /// here on.
    pub(in crate::shard) fn ask_by_publish(
        &mut self,
        now: Instant,
        id: ConnectionId,
        session_id: SessionId,
        topic: &str,
        payload: &[u8],
    ) -> RequestedTimes {
        let Some(time) = topic.strip_prefix(PREFIX).and_then(RequestedTime::from_name) else {
            return RequestedTimes::NotRequested;
        };
        if let Err(want) = self.admits(Change::RequestedTime { stored: self.is_stored(session_id) }) {
            return RequestedTimes::Refused(want);
        }
        let Shard { connections, sessions, .. } = self;
        let (Some(connection), Some(session_entry)) = (connections.get_mut(id), sessions.get_mut(session_id))
        else {
            return RequestedTimes::NotRequested;
        };
        let session = &mut session_entry.session;
        let text = std::str::from_utf8(payload).unwrap_or("");
        let before = session.requested_times();
        if session.request_time(time, text).is_err() {
            // One line for all that one read holds: thousands fit in it.
            let rare = connection.rare_mut();
            if rare.unreadable != Some(now) {
                rare.unreadable = Some(now);
                let client_id = shortened(&session.client_id);
                self.note_unreadable(client_id, time, text);
            }
            return RequestedTimes::InvalidRequest;
        }
        session.set_ack_wait(&mut connection.wire);
        if session.requested_times() != before {
            self.record_session(session_id);
        }
        RequestedTimes::Granted
    }

    /// What holds, as a retained message for who asks for it; `None` where the filter is another.
    pub(in crate::shard) fn granted_message(&mut self, id: ConnectionId, filter: &str) -> Option<Message> {
        if filter != GRANTED {
            return None;
        }
        let wire = &self.connections.get(id)?.wire;
        // Its messages of topics that have a rule of their own aside.
        let holds = wire.ack_wait();
        let time = RequestedTime::of(wire.version);
        let text = format!("{}={}", time.name(), ack_wait::format(holds));
        let parts = Parts {
            qos: QoS::AtLeastOnce,
            retain: true,
            expires: Instant::NEVER,
            topic: GRANTED,
            forwarded: &[],
            payload: text.as_bytes(),
        };
        Some(Message::new(parts, &mut self.scratch.bytes))
    }

    fn note_unreadable(&mut self, client_id: Box<str>, time: RequestedTime, text: &str) {
        let text: String = text.chars().take(LOGGED).collect();
        self.note(ClientEvent {
            connection: None,
            client_id: Some(client_id),
            version: None,
            occurrence: Occurrence::RequestUnreadable { setting: time.name(), text: text.into() },
            detail: None,
        });
    }
}
