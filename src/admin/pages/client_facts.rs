//! The facts about a client, on its page and in `homing ctl client`.

use super::views::{bytes, count, date_time, long, seconds, until};
use crate::admin::rows::client::ClientRow;
use crate::clock;
use crate::mqtt::packet::ProtocolVersion;
use crate::time::millis;
use std::time::Duration;

/// Returns the facts about a session, each with its name, without empty ones.
pub(in crate::admin) fn facts(client: &ClientRow) -> Vec<(&'static str, String)> {
    let ClientRow { version, session_expiry, .. } = client;
    let clean = if version.is_v5() { "Clean Start" } else { "Clean Session" };
    let facts = vec![
        ("state", client.state.to_string()),
        ("connected since", since(client.connected_for)),
        ("away since", since(client.away_for)),
        ("last packet", client.last_packet_ago.map(ago).unwrap_or_default()),
        ("address", client.address.clone().unwrap_or_default()),
        ("listener", client.listener.clone().unwrap_or_default()),
        ("user", client.user.as_deref().unwrap_or("anonymous").to_owned()),
        ("version", version.to_string()),
        ("Keep Alive", client.keep_alive.map(keep_alive).unwrap_or_default()),
        (clean, client.clean_start.map(yes_or_no).unwrap_or_default().to_owned()),
        ("messages in", traffic(client.received_messages, client.received_bytes)),
        ("messages out", traffic(client.sent_messages, client.sent_bytes)),
        ("session expiry", expiry(*session_expiry, *version)),
        ("session ends", until(client.ends_in)),
        ("in flight", count(client.in_flight as u64)),
        ("queued", queued(client)),
        ("next deadline", until(client.next_deadline_in)),
    ];
    facts.into_iter().filter(|(_, value)| !value.is_empty()).collect()
}

/// Returns the messages of a connection in one direction, and its bytes; empty without a
/// connection.
fn traffic(messages: Option<u64>, size: Option<u64>) -> String {
    let (Some(messages), Some(size)) = (messages, size) else { return String::new() };
    format!("{}, {}", count(messages), bytes(size))
}

fn queued(client: &ClientRow) -> String {
    let oldest = client.oldest_queued_age.and_then(|secs| Duration::try_from_secs_f64(secs).ok());
    let oldest = oldest.map(|age| format!(", the oldest for {}", long(age))).unwrap_or_default();
    let (messages, size) = (count(client.queued as u64), bytes(client.queued_bytes as u64));
    format!("{messages} messages, {size}{oldest}")
}

/// Returns the time that was so many seconds ago, and how long ago it was.
fn since(secs: Option<f64>) -> String {
    let Some(past) = secs.and_then(|secs| Duration::try_from_secs_f64(secs).ok()) else {
        return String::new();
    };
    let at = clock::unix_millis().saturating_sub(millis(past));
    format!("{} UTC, for {}", date_time(at), long(past))
}

fn ago(secs: f64) -> String {
    format!("{} ago", seconds(Duration::try_from_secs_f64(secs).unwrap_or_default()))
}

fn keep_alive(secs: u16) -> String {
    if secs == 0 { "off".to_owned() } else { long(Duration::from_secs(secs.into())) }
}

fn yes_or_no(value: bool) -> &'static str {
    if value { "yes" } else { "no" }
}

fn expiry(secs: u32, version: ProtocolVersion) -> String {
    match secs {
        u32::MAX => "never".to_owned(),
        0 if version.is_v5() => "0: the session ends with the connection".to_owned(),
        0 => "the session ends with the connection".to_owned(),
        secs => long(Duration::from_secs(secs.into())),
    }
}
