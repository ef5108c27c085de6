//! The texts that the pages show of a session and its messages.

use crate::admin::listing::ListedRow;
use crate::admin::queries::waiting_receiver::WaitingReceiver;
use crate::admin::queries::waits::ends_with;
use crate::admin::rows::client::{ClientRow, StallRow};
use crate::admin::segment::segment;
use crate::admin::state::AdminState;
use crate::escape::is_harmful;
use crate::mqtt::topic::first_chars;
use crate::operators::unfinished::UnfinishedMessage;
use crate::session::outbound::stall::Stall;
use std::time::Duration;

pub(super) use crate::admin::human::{bytes, clock_time, count, date_time, long, seconds};

/// Characters of a client identifier that a page shows. The shards cut topics and filters there,
/// too.
const SHOWN: usize = 256;

/// Bytes of a client identifier above which a link has the place of the session instead.
pub(super) const LONG: usize = 1_000;

/// A session in a list.
pub(super) struct ClientView {
    /// The Client Identifier, its first 256 characters.
    pub(super) name: String,
    /// The Client Identifier as one segment of a path.
    pub(super) path: String,
    /// The query string of a session whose identifier is too long for a path.
    pub(super) suffix: String,
    /// The time for which the oldest message is unacknowledged; empty without one.
    pub(super) oldest: String,
    /// The place of that message.
    pub(super) detail: String,
    /// All that is known of the session.
    pub(super) client: ClientRow,
}

pub(super) struct MessageView {
    /// Its name, as `homing ctl` shows it; empty for none.
    pub(super) name: String,
    /// Its name, for the form; `None` if nothing can be done with it.
    pub(super) mid: Option<String>,
    pub(super) packet_id: String,
    pub(super) topic: String,
    pub(super) qos: String,
    pub(super) bytes: String,
    pub(super) age: String,
    pub(super) sent: String,
    pub(super) reason: &'static str,
    pub(super) ends_with: String,
}

impl ClientView {
    pub(super) fn queued(&self) -> String {
        count(self.client.queued as u64)
    }

    pub(super) fn in_flight(&self) -> String {
        count(self.client.in_flight as u64)
    }

    pub(super) fn of(client: ClientRow) -> ClientView {
        let oldest = client.oldest_unacknowledged.as_ref();
        let is_long = client.client_id.len() > LONG;
        ClientView {
            name: shown(&client.client_id),
            path: if is_long { "-".to_owned() } else { segment(&client.client_id) },
            suffix: if is_long { format!("?ref={}", client.reference) } else { String::new() },
            oldest: oldest.map(StallRow::age).unwrap_or_default(),
            detail: oldest
                .map_or("", |stall| stall.detail.as_deref().unwrap_or("the client is away"))
                .to_owned(),
            client,
        }
    }
}

impl MessageView {
    pub(super) fn of(
        row: &UnfinishedMessage,
        mid: Option<String>,
        receiver: &WaitingReceiver,
    ) -> MessageView {
        let message = row.message.as_ref();
        let without = if row.packet_id.is_some() { "(PUBREL)" } else { "(in the store)" };
        MessageView {
            name: mid.clone().unwrap_or_default(),
            // Its receiver has the message of a PUBREL.
            mid: mid.filter(|_| message.is_some() || row.packet_id.is_none()),
            packet_id: row.packet_id.map(|id| id.get().to_string()).unwrap_or_default(),
            topic: message.map_or_else(|| without.to_owned(), |message| message.topic.to_string()),
            qos: message.map(|message| (message.qos as u8).to_string()).unwrap_or_default(),
            bytes: message.map(|message| message.payload.to_string()).unwrap_or_default(),
            age: match row.age {
                Some(age) => age.to_string(),
                None => row.queued_for.map(seconds).unwrap_or_default(),
            },
            sent: format!("{}x", row.transmissions),
            reason: row.wait.name(),
            ends_with: ends_with(&row.wait, receiver),
        }
    }
}

pub(super) fn view_of(state: &AdminState, row: &ListedRow) -> ClientView {
    ClientView::of(ClientRow::of_row(state, row))
}

/// Returns the holder of the oldest message, and the time, as one sentence.
pub(super) fn sentence(stall: &Stall) -> String {
    let Stall { packet_id, age, transmissions, cause, .. } = stall;
    let (id, detail) = (packet_id.get(), stall.detail());
    format!(
        "Packet {id} has been unacknowledged for {age}, sent {transmissions}x: {detail} ({}).",
        cause.holder()
    )
}

/// Returns the time from now in seconds as a text, or nothing for never.
pub(super) fn until(then: Option<f64>) -> String {
    then.map(|secs| format!("in {}", seconds(Duration::from_secs_f64(secs)))).unwrap_or_default()
}

/// Returns the characters of a name that a page shows. The mark shows that the text is cut.
pub(super) fn shown(name: &str) -> String {
    let first = first_chars(name, SHOWN);
    if first.len() == name.len() { first.to_owned() } else { format!("{first}...") }
}

/// Returns a text with names of clients, without the characters that would turn or end its line.
pub(super) fn in_sentence(text: &str) -> String {
    text.replace(is_harmful, "\u{FFFD}")
}

/// Returns the page of a client; `None` if the identifier may be cut.
pub(super) fn link_of(client_id: &str) -> Option<String> {
    (client_id.len() <= LONG).then(|| format!("/clients/{}", segment(client_id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_turn_the_sentence_that_it_stands_in() {
        assert_eq!(in_sentence("\u{202e}gnp.7\n is ünï 客"), "\u{fffd}gnp.7\u{fffd} is ünï 客");
    }
}
