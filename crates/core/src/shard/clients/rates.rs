//! The rates of a client: its traffic is metered, and its requests wait while it is in debt.
//!
//! Nothing is dropped: the bytes wait in the client's buffers and in the kernel's. The pause ends
//! with the connection's read-idle deadline, which is registered for the end of the debt. Until
//! then the deadline passes once a second, to look whether the client is gone.
//!
//! Acknowledgements are handled during the pause, so that a client in debt gets no message twice.
//! Acknowledgements are metered, too. Alone they have the same rate in bytes, so a flood of them is
//! slowed.
//!
//! The debt at the end of a connection is kept in [`crate::login::debts`], and the next
//! connection begins with it.

use crate::login::debts::Debtor;
use crate::shard::clients::metered_traffic::MeteredTraffic;
use crate::shard::clients::pause::Pause;
use crate::shard::clients::receive::PUBLISH;
use crate::shard::core::Core;
use crate::slots::ConnectionId;
use crate::time::Instant;
use std::net::IpAddr;

/// Charges a whole packet that was handled, and pauses the client if it is in debt. Called only
/// where some listener has rates.
#[inline(never)]
pub(crate) fn meter(now: Instant, id: ConnectionId, packet: &[u8], core: &mut Core) {
    // The packet may have ended its connection.
    let Some(connection) = core.connections.get_mut(id) else { return };
    let rates = core.settings.rates_of(&connection.listener);
    let messages = u64::from(packet.first().is_some_and(|byte| byte >> 4 == PUBLISH));
    let counts = messages > 0 && rates.messages.is_some() || rates.bytes.is_some();
    if !counts || !connection.is_established() {
        return;
    }
    let begin = || Box::new(MeteredTraffic::new(now));
    let metered = connection.rare_mut().metered.get_or_insert_with(begin);
    let due = metered.meter.meter(now, rates, messages, packet.len() as u64);
    pause_until(now, id, due, core);
}

/// Pauses a client until its debt is paid; does nothing without a debt.
fn pause_until(now: Instant, id: ConnectionId, due: Instant, core: &mut Core) {
    let metered = core.connections.get_mut(id).and_then(|connection| connection.rare_mut().metered.as_mut());
    if let Some(metered) = metered.filter(|_| due > now) {
        metered.pause(now, due);
        core.counters.rate_pauses += u64::from(core.connections.pause(id, Pause::Rate, now));
        core.connections.register_read_idle(id, &mut core.effects);
    }
}

/// Meters an acknowledgement that is handled during a pause. Returns false if it has to wait,
/// because the acknowledgements alone are above the rate of the client.
pub(crate) fn meter_ahead(now: Instant, id: ConnectionId, bytes: usize, core: &mut Core) -> bool {
    // The packets before this one may have ended the connection.
    let Some(connection) = core.connections.get_mut(id) else { return false };
    let rates = core.settings.rates_of(&connection.listener);
    if !connection.is_metered() || !connection.pauses.has(Pause::Rate) {
        return true;
    }
    let Some(metered) = &mut connection.rare_mut().metered else { return true };
    let may_pass = metered.meter_ahead(now, rates, bytes);
    if !may_pass {
        core.connections.register_read_idle(id, &mut core.effects);
    }
    may_pass
}

/// Begins to measure a client whose CONNECT is accepted, with its earlier debt. Does nothing where
/// no rate holds. `host` is that of the client.
pub(crate) fn begin(now: Instant, id: ConnectionId, host: Option<IpAddr>, core: &mut Core) {
    let Some(connection) = core.connections.get_mut(id) else { return };
    let rates = core.settings.rates_of(&connection.listener);
    let session_entry = connection.session.and_then(|session| core.sessions.get(session));
    let Some(session_entry) = session_entry.filter(|_| !rates.are_unlimited()) else { return };
    let user = session_entry.user().map(|user| &**user);
    let debtor =
        Debtor::new(connection.listener.connections.label(), &session_entry.session.client_id, user, host);
    let owed = core.shared.debts.of(now, debtor);
    let mut metered = MeteredTraffic::new(now);
    metered.debtor = Some(debtor);
    metered.meter = owed.unwrap_or(metered.meter);
    connection.rare_mut().metered = Some(Box::new(metered));
    if let Some(owed) = owed {
        pause_until(now, id, owed.due(rates), core);
    }
}

/// Keeps the debt of a client whose connection ends.
pub(crate) fn end(now: Instant, id: ConnectionId, core: &Core) {
    let metered = core.connections.get(id).and_then(|connection| connection.rare()?.metered.as_deref());
    if let Some(MeteredTraffic { meter, debtor: Some(debtor), .. }) = metered {
        core.shared.debts.keep(now, *debtor, *meter);
    }
}
