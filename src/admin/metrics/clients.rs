//! The metrics of connections, sessions and logins.

use super::text::Kind::{Counter, Gauge};
use super::text::MetricsText;
use crate::broker::handshake_counts::HandshakeEnd;
use crate::broker::observer::Observer;
use crate::events::client_counts::{LoginResult, SessionEnd};
use crate::events::client_events::DisconnectKind;
use crate::session::subscriptions::FilterCause;
use crate::shard::ShardSnapshot;
use crate::shard::clients::pause::Pause;

pub(super) fn write(text: &mut MetricsText, observer: &Observer, total: &ShardSnapshot) {
    connections(text, observer, total);
    sessions(text, total);
}

fn connections(text: &mut MetricsText, observer: &Observer, total: &ShardSnapshot) {
    let (statistics, clients, counters) = (observer.statistics(), &total.clients, &total.counters);
    let listeners = statistics.listeners().all();
    let help = "Open sockets, with those that have not sent CONNECT.";
    let open = listeners.iter().map(|listener| (listener.label(), listener.open()));
    text.by(Gauge, "connections", "listener", help, open);
    let opened = listeners.iter().map(|listener| (listener.label(), listener.opened()));
    text.by(Counter, "connections_opened_total", "listener", "Sockets accepted.", opened);
    let help = "Results of CONNECT, by the reason of CONNACK.";
    text.by(Counter, "connect_results_total", "reason", help, clients.connects());
    let refused = [
        ("limit", counters.refused_connects),
        ("owner", counters.foreign_sessions),
        ("ban", counters.banned_connects),
        ("address", statistics.refused_addresses()),
    ];
    let help = "Refused connects whose cause is a limit, an owner or a ban.";
    text.by(Counter, "connects_refused_total", "cause", help, refused);
    let handshakes = HandshakeEnd::ALL.map(|end| (end.name(), statistics.handshakes_refused().of(end)));
    let help = "Connections refused before CONNECT, in their PROXY header, TLS or WebSocket upgrade.";
    text.by(Counter, "handshakes_refused_total", "cause", help, handshakes);
    text.by(Counter, "disconnects_total", "cause", "Connections that ended.", clients.disconnects());
    let logins = LoginResult::ALL.map(|result| (result.name(), clients.logins(result)));
    let help = "Decisions about the credentials of a CONNECT.";
    text.by(Counter, "auth_results_total", "result", help, logins);
    let help = "Bans that began because a client connected too often.";
    text.single(Counter, "flapping_bans_total", help, counters.flapping_bans);
    let paused = Pause::ALL.map(|cause| (cause.name(), total.session_totals.paused(cause)));
    text.by(Gauge, "paused_connections", "cause", "Connections that are not read now.", paused);
    let help = "Times that a client was not read because it was above its rate.";
    text.single(Counter, "rate_pauses_total", help, counters.rate_pauses);
}

fn sessions(text: &mut MetricsText, total: &ShardSnapshot) {
    let (clients, counters) = (&total.clients, &total.counters);
    let states = [("connected", total.connected), ("away", total.away())];
    text.by(Gauge, "sessions", "state", "Sessions.", states);
    text.single(Counter, "sessions_created_total", "Sessions that began.", clients.sessions_created);
    let help = "Sessions to which their clients returned.";
    text.single(Counter, "sessions_resumed_total", help, clients.sessions_resumed);
    let help = "Connections that another connection of the same client replaced.";
    let taken_over = clients.disconnects().nth(DisconnectKind::TakenOver as usize);
    let taken_over = taken_over.map_or(0, |(_, times)| times);
    text.single(Counter, "sessions_taken_over_total", help, taken_over);
    let ended = SessionEnd::ALL.map(|cause| (cause.name(), clients.sessions_ended(cause)));
    text.by(Counter, "sessions_ended_total", "cause", "Sessions that ended.", ended);
    let help = "Sessions without an owner that got one.";
    text.single(Counter, "sessions_adopted_total", help, counters.adopted_sessions);
    let shared = total.shared_subscriptions;
    let kinds = [("plain", total.subscriptions.saturating_sub(shared)), ("shared", shared)];
    text.by(Gauge, "subscriptions", "kind", "Subscriptions of all sessions.", kinds);
    let help = "Topic Filters of SUBSCRIBE packets that were refused, or by which nothing comes.";
    let refused =
        FilterCause::ALL.map(|cause| (cause.name(), counters.refused_subscriptions[cause as usize]));
    text.by(Counter, "subscriptions_refused_total", "cause", help, refused);
}
