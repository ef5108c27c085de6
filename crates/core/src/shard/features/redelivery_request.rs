//! Requests of a client about its own redelivery, and the answers to them. A request comes in
//! CONNECT or in a PUBLISH to `$homing/session/...`, which is never routed. A bridge asks in CONNECT
//! for the name of this broker.

use crate::bridge::path;
use crate::events::client_events::{ClientEvent, Occurrence};
use crate::mqtt::message::{Message, Parts};
use crate::mqtt::packet::{Connect, QoS};
use crate::mqtt::topic::first_chars;
use crate::session::ack_wait;
use crate::session::ack_wait::RequestedTime;
use crate::session::granted_topic::GRANTED_TOPIC;
use crate::session::trace_steps::cut;
use crate::shard::admission::{Change, Want};
use crate::shard::core::Core;
use crate::slots::{ConnectionId, SessionId};
use crate::time::Instant;

const PREFIX: &str = "$homing/session/";

/// Maximum number of characters of an unreadable request that are logged.
const LOGGED: usize = 64;

/// The result of a PUBLISH to a topic that is reserved for the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestedTimes {
    /// The session has the requested time.
    Granted,
    /// The memory or the disk has no room to store the request.
    Refused(Want),
    /// The payload is not a valid time.
    InvalidRequest,
    /// The PUBLISH is not a request: the topic names no time.
    NotRequested,
}

/// Applies the requests in a 5.0 CONNECT to the session, before the ack wait of the connection
/// begins. Returns the User Properties for CONNACK, which name the granted times, and this broker to
/// a bridge.
pub(crate) fn take_connect_requests(
    id: SessionId,
    connect: &Connect<'_>,
    core: &mut Core,
) -> Vec<(&'static str, String)> {
    let (mut requested, mut answers) = ([None; 2], Vec::new());
    for (name, text) in &connect.properties.user_properties {
        if *name == path::PROPERTY && answers.is_empty() {
            answers.extend(core.shared.name.as_ref().map(|own| (path::PROPERTY, own.to_string())));
        }
        if let Some(time) = RequestedTime::from_name(name) {
            requested[time as usize] = Some((time, *text));
        }
    }
    for (time, text) in requested.into_iter().flatten() {
        let Some(session_entry) = core.sessions.get_mut(id) else { continue };
        let session = &mut session_entry.session;
        let (read, granted) = session.request_time_at_connect(time, text);
        answers.push((time.name(), granted));
        if read.is_err() {
            let client_id = cut(&session.client_id);
            note_unreadable(&client_id, time, text, core);
        }
    }
    answers
}

/// Applies a PUBLISH to a reserved topic, if it requests a time for its publisher's session. The
/// time holds for packets that are sent from now on.
pub(crate) fn request_time(
    now: Instant,
    (id, session_id): (ConnectionId, SessionId),
    topic: &str,
    payload: &[u8],
    core: &mut Core,
) -> RequestedTimes {
    let Some(time) = topic.strip_prefix(PREFIX).and_then(RequestedTime::from_name) else {
        return RequestedTimes::NotRequested;
    };
    if let Err(want) = core.admits(Change::RequestedTime { stored: core.sessions.is_stored(session_id) }) {
        return RequestedTimes::Refused(want);
    }
    let Core { connections, sessions, .. } = &mut *core;
    let (Some(connection), Some(session_entry)) = (connections.get_mut(id), sessions.get_mut(session_id))
    else {
        return RequestedTimes::NotRequested;
    };
    let session = &mut session_entry.session;
    let text = std::str::from_utf8(payload).unwrap_or("");
    let before = session.requested_times();
    if session.request_time(time, text).is_err() {
        // One event covers all unreadable requests of one read, because thousands of them fit into
        // a read.
        let rare = connection.rare_mut();
        if rare.unreadable != Some(now) {
            rare.unreadable = Some(now);
            let client_id = cut(&session.client_id);
            note_unreadable(&client_id, time, text, core);
        }
        return RequestedTimes::InvalidRequest;
    }
    session.set_ack_wait(&mut connection.wire);
    if session.requested_times() != before {
        core.record_session(session_id);
    }
    RequestedTimes::Granted
}

/// Returns the granted time as a retained message, if `filter` is the topic of the granted time.
pub(crate) fn granted_message(id: ConnectionId, filter: &str, core: &mut Core) -> Option<Message> {
    if filter != GRANTED_TOPIC {
        return None;
    }
    let wire = &core.connections.get(id)?.wire;
    // The granted time is the general ack wait. A topic with a rule of its own may have another
    // one.
    let in_force = wire.ack_wait();
    let time = RequestedTime::of(wire.version);
    let text = format!("{}={}", time.name(), ack_wait::format(in_force));
    let parts = Parts {
        qos: QoS::AtLeastOnce,
        retain: true,
        expires: Instant::NEVER,
        topic: GRANTED_TOPIC,
        forwarded: &[],
        payload: text.as_bytes(),
    };
    Some(Message::new(parts, &mut core.scratch.sending.bytes))
}

fn note_unreadable(client_id: &str, time: RequestedTime, text: &str, core: &mut Core) {
    let (setting, text) = (time.name(), first_chars(text, LOGGED).into());
    core.note(ClientEvent::new(Some(client_id), Occurrence::RequestUnreadable { setting, text }));
}
