//! A session as a row.

use super::message::MessageRow;
use super::refused::RefusedRow;
use crate::admin::human::sent_age;
use crate::admin::listing::ListedRow;
use crate::admin::queries::sessions::reference_of;
use crate::admin::queries::stuck::STUCK;
use crate::admin::queries::waits::until;
use crate::admin::sourced_redelivery::ClientRedelivery;
use crate::admin::state::AdminState;
use crate::broker::question::SocketFacts;
use crate::clock;
use crate::mqtt::packet::ProtocolVersion;
use crate::operators::query::{InFlightSummary, OwnSubscription, SessionSummary};
use crate::routing::shared_group::Presence;
use crate::session::outbound::stall::{Holder, Stall};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use utoipa::ToSchema;

/// A session. Times are in seconds.
#[derive(Deserialize, Serialize, ToSchema)]
pub(crate) struct ClientRow {
    pub(crate) client_id: String,
    /// Names the session in this process, for a client id that is too long for a URL.
    #[serde(rename = "ref")]
    pub(crate) reference: String,
    #[schema(required)]
    pub(crate) user: Option<String>,
    /// The version of MQTT.
    pub(crate) version: ProtocolVersion,
    pub(crate) state: Presence,
    #[schema(required)]
    pub(crate) address: Option<String>,
    #[schema(required)]
    pub(crate) listener: Option<String>,
    /// Seconds since CONNECT; null while the client is away.
    #[schema(required)]
    pub(crate) connected_for: Option<f64>,
    /// Seconds since the client left; null while it is connected.
    #[schema(required)]
    pub(crate) away_for: Option<f64>,
    /// The Keep Alive in seconds, 0 for none; null while the client is away.
    #[schema(required)]
    pub(crate) keep_alive: Option<u16>,
    /// True if CONNECT asked for a new session: Clean Start, or Clean Session in 3.x. Null while
    /// the client is away.
    #[schema(required)]
    pub(crate) clean_start: Option<bool>,
    /// Seconds since the last whole packet of the client.
    #[schema(required)]
    pub(crate) last_packet_ago: Option<f64>,
    /// PUBLISH packets of the client on this connection, with repetitions; null while the client is
    /// away.
    #[schema(required)]
    pub(crate) received_messages: Option<u64>,
    /// Bytes of MQTT that came on this connection, of packets of all kinds.
    #[schema(required)]
    pub(crate) received_bytes: Option<u64>,
    /// PUBLISH packets that were written to the client on this connection, with repetitions.
    #[schema(required)]
    pub(crate) sent_messages: Option<u64>,
    /// Bytes of MQTT that the client's side took on this connection, of packets of all kinds.
    #[schema(required)]
    pub(crate) sent_bytes: Option<u64>,
    /// Seconds; 4294967295 for never.
    pub(crate) session_expiry: u32,
    /// Seconds until the session ends; null while the client is connected, and for never.
    #[schema(required)]
    pub(crate) ends_in: Option<f64>,
    pub(crate) in_flight: usize,
    pub(crate) queued: usize,
    pub(crate) queued_bytes: usize,
    /// Seconds for which the oldest message of the queue waits; null without one, and if the store
    /// does not answer in time.
    #[schema(required)]
    pub(crate) oldest_queued_age: Option<f64>,
    pub(crate) held: usize,
    pub(crate) subscription_count: usize,
    #[schema(required)]
    pub(crate) oldest_unacknowledged: Option<StallRow>,
    /// Seconds.
    #[schema(required)]
    pub(crate) next_deadline_in: Option<f64>,
    /// In the answer for one client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) in_flight_messages: Option<Vec<InFlightMessage>>,
    /// In the answer for one client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) queue: Option<Vec<MessageRow>>,
    /// In the answer for one client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) subscriptions: Option<Vec<OwnSubscriptionRow>>,
    /// In the answer for one client: the redelivery settings that hold for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) redelivery: Option<ClientRedelivery>,
    /// In the answer for one client: its last refused requests, the newest first, at most 16.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) refused: Option<Vec<RefusedRow>>,
}

impl ClientRow {
    pub(crate) fn of_row(state: &AdminState, row: &ListedRow) -> ClientRow {
        ClientRow::of(state, row.shard, &row.session, row.socket.as_ref())
    }

    /// Returns a session without its messages.
    pub(crate) fn of(
        state: &AdminState,
        shard: usize,
        row: &SessionSummary,
        socket: Option<&SocketFacts>,
    ) -> ClientRow {
        let now = clock::now();
        let diagnosed = socket.and_then(|socket| socket.stall);
        ClientRow {
            client_id: row.client_id.to_string(),
            reference: reference_of(state, shard, row.id),
            user: row.user.as_deref().map(str::to_owned),
            version: row.version,
            state: row.presence(),
            address: socket.map(|socket| socket.address.to_string()),
            listener: row.listener.as_ref().map(|listener| listener.label().to_owned()),
            connected_for: row.connected.map(|facts| now.since(facts.since).as_secs_f64()),
            away_for: row.away.map(|away| away.as_secs_f64()),
            keep_alive: row.connected.map(|facts| facts.keep_alive_secs),
            clean_start: row.connected.map(|facts| facts.clean_start),
            last_packet_ago: row.connected.map(|facts| now.since(facts.last_packet).as_secs_f64()),
            received_messages: row.connected.map(|facts| facts.traffic.received_publishes),
            received_bytes: row.connected.map(|facts| facts.traffic.received_bytes),
            sent_messages: row.connected.map(|facts| facts.traffic.sent_publishes),
            sent_bytes: row.connected.map(|facts| facts.sent_bytes),
            session_expiry: row.expiry,
            ends_in: until(now, row.ends),
            in_flight: row.in_flight,
            queued: row.queued,
            queued_bytes: row.queued_bytes,
            oldest_queued_age: row.oldest_queued.map(|age| age.as_secs_f64()),
            held: row.held,
            subscription_count: row.subscriptions,
            oldest_unacknowledged: row
                .oldest
                .map(|oldest| StallRow::of(&diagnosed.unwrap_or(oldest), diagnosed.is_some())),
            next_deadline_in: until(now, row.due),
            in_flight_messages: None,
            queue: None,
            subscriptions: None,
            redelivery: None,
            refused: None,
        }
    }
}

/// The oldest unacknowledged message.
#[derive(Deserialize, Serialize, ToSchema)]
#[schema(as = Stall)]
pub(crate) struct StallRow {
    #[schema(minimum = 1, maximum = 65535)]
    pub(crate) packet_id: u16,
    /// Seconds since the first transmission.
    pub(crate) age: f64,
    /// True if the message was first sent before the start of the broker. `age` is the time since
    /// the start then, and the message is older.
    pub(crate) sent_before_start: bool,
    pub(crate) transmissions: u16,
    /// The holder of the packet; null while the client is away.
    #[schema(required)]
    pub(crate) cause: Option<Holder>,
    #[schema(required)]
    pub(crate) detail: Option<Cow<'static, str>>,
    #[schema(required)]
    pub(crate) unsent_bytes: Option<usize>,
}

impl StallRow {
    /// Returns the age, for people.
    pub(crate) fn age(&self) -> String {
        sent_age(self.age, self.sent_before_start)
    }

    /// Returns the packet, its age and its holder as a sentence without its full stop; `None` while
    /// the wait is short.
    pub(super) fn overdue(&self) -> Option<String> {
        let detail = self.detail.as_deref().map(|detail| format!(": {detail}")).unwrap_or_default();
        let text = || format!("packet {} unacknowledged for {}{detail}", self.packet_id, self.age());
        (self.age >= STUCK.as_secs_f64()).then(text)
    }

    pub(super) fn of(stall: &Stall, diagnosed: bool) -> StallRow {
        StallRow {
            packet_id: stall.packet_id.get(),
            age: stall.age.least.as_secs_f64(),
            sent_before_start: stall.age.is_over,
            transmissions: stall.transmissions,
            cause: diagnosed.then(|| stall.cause.holder()),
            detail: diagnosed.then(|| stall.detail().into()),
            unsent_bytes: diagnosed.then_some(stall.view.unsent),
        }
    }
}

/// A subscription of a client.
#[derive(Deserialize, Serialize, ToSchema)]
#[schema(as = Subscription)]
pub(crate) struct OwnSubscriptionRow {
    /// The topic filter, of a shared subscription with its `$share/...`.
    pub(crate) filter: String,
    #[schema(maximum = 2)]
    pub(crate) qos: u8,
    pub(crate) no_local: bool,
    pub(crate) retain_as_published: bool,
    #[schema(required)]
    pub(crate) subscription_id: Option<u32>,
}

impl OwnSubscriptionRow {
    pub(crate) fn of(own: &OwnSubscription) -> OwnSubscriptionRow {
        OwnSubscriptionRow {
            filter: own.filter.to_string(),
            qos: own.options.qos() as u8,
            no_local: own.options.no_local(),
            retain_as_published: own.options.retain_as_published(),
            subscription_id: Some(own.id).filter(|id| *id > 0),
        }
    }

    /// Returns the options that are set, for people.
    pub(crate) fn options(&self) -> String {
        let identifier = self.subscription_id.map(|id| format!("Subscription Identifier {id}"));
        let set = [
            self.no_local.then(|| "No Local".to_owned()),
            self.retain_as_published.then(|| "Retain As Published".to_owned()),
            identifier,
        ];
        set.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// A message in flight.
#[derive(Deserialize, Serialize, ToSchema)]
pub(crate) struct InFlightMessage {
    #[schema(minimum = 1, maximum = 65535)]
    pub(crate) packet_id: u16,
    /// `PUBACK`, `PUBREC` or `PUBCOMP`.
    pub(crate) waits_for: Cow<'static, str>,
    /// Seconds since the first transmission.
    pub(crate) age: f64,
    /// True if the message was first sent before the start of the broker. `age` is the time since
    /// the start then, and the message is older.
    pub(crate) sent_before_start: bool,
    pub(crate) transmissions: u16,
    pub(crate) sent_on_this_connection: bool,
    #[schema(required)]
    pub(crate) next_deadline_in: Option<f64>,
    #[schema(required)]
    pub(crate) message: Option<MessageRow>,
}

impl InFlightMessage {
    pub(crate) fn of(row: &InFlightSummary) -> InFlightMessage {
        InFlightMessage {
            packet_id: row.packet_id.get(),
            waits_for: row.waits_for().into(),
            age: row.age.least.as_secs_f64(),
            sent_before_start: row.age.is_over,
            transmissions: row.transmissions,
            sent_on_this_connection: row.sent_here,
            next_deadline_in: until(clock::now(), row.due),
            message: row.message.as_ref().map(MessageRow::of),
        }
    }
}
