//! AUTH packets: the exchange between CONNECT and CONNACK, and re-authentication.
//!
//! | step | CONNECT with an Authentication Method | re-authentication |
//! |---|---|---|
//! | the authenticator is asked | CONNECT waits and is paused | AUTH 0x19; traffic continues |
//! | its challenge is sent | CONNECT is kept here; [`Phase::Exchanging`] | AUTH 0x18 |
//! | the client answers | AUTH 0x18; anything but AUTH and DISCONNECT is refused | AUTH 0x18 |
//! | success | CONNECT is handled, CONNACK has the last data | AUTH 0x00 has the last data |
//! | failure | CONNACK with a reason | DISCONNECT with a reason |
//!
//! `network.connect_timeout` bounds an exchange: before CONNACK the time of CONNECT continues, and
//! a re-authentication has the same time of its own.

use crate::login::authentication::{AuthDecision, Authentication, Challenge};
use crate::login::pending_exchange::{
    EnhancedProof, ExchangeEnd, PendingExchange, check_method, protocol_error,
};
use crate::mqtt::codec::{self, Decoded, PacketType};
use crate::mqtt::packet::{Auth, Connect, Packet, ProtocolVersion, ReasonCode};
use crate::session::authentication::EnhancedMethod;
use crate::session::connect::ConnectRefusal;
use crate::session::{Violation, disconnect};
use crate::shard::Shard;
use crate::shard::clients::connect::ConnectRequest;
use crate::shard::clients::connection::{Leaves, Phase};
use crate::shard::core::Core;
use crate::shard::turn::flow::Flow;
use crate::slots::ConnectionId;
use crate::time::Instant;
use std::sync::Arc;

/// The largest AUTH packet before CONNACK in bytes. An unknown peer must not fill the memory.
const LARGEST_AUTH: u32 = 4_096;

/// Handles the next packet of a client that has been challenged. Returns the result with the
/// length of the packet, or `None` if the packet is not complete.
#[cold]
#[inline(never)]
pub(crate) fn continue_exchange(
    now: Instant,
    id: ConnectionId,
    bytes: &[u8],
    shard: &mut Shard,
) -> Option<(Flow, usize)> {
    let limit = shard.core.settings.session.connect.packet_size.min(LARGEST_AUTH);
    let refusal = match codec::decode(bytes, ProtocolVersion::V5, limit) {
        Ok(Decoded::Incomplete { .. }) => return None,
        Ok(Decoded::Packet { packet: Packet::Auth(auth), length }) => {
            match take_answer(now, id, &auth, shard) {
                Ok(flow) => return Some((flow, length)),
                Err(violation) => ConnectRefusal::new(violation.reason, violation.what),
            }
        }
        Ok(Decoded::Packet { packet: Packet::Disconnect(_), .. }) => {
            shard.core.begin_closing(now, id, Leaves::Client);
            return Some((Flow::Closed, 0));
        }
        // 5.0 [MQTT-3.1.2-30]
        Ok(Decoded::Packet { .. }) => ConnectRefusal::new(
            ReasonCode::PROTOCOL_ERROR,
            "only AUTH and DISCONNECT may come between a challenge and CONNACK",
        ),
        Err(error) => ConnectRefusal::new(
            disconnect::undecodable(&error),
            "the packet after a challenge is malformed, or longer than 4,096 bytes",
        ),
    };
    refuse_exchange(now, id, &refusal, shard);
    Some((Flow::Closed, 0))
}

/// Refuses a CONNECT whose exchange has failed.
pub(crate) fn refuse_exchange(now: Instant, id: ConnectionId, refusal: &ConnectRefusal, shard: &mut Shard) {
    let bytes = shard.core.connections.take_connect(id);
    if let Some(connect) = bytes.as_deref().and_then(|bytes| kept_connect(bytes)) {
        ConnectRequest::refuse_exchange(now, id, &connect, refusal, &mut shard.core);
    }
}

/// Takes the client's answer. Handles CONNECT if the exchange has its result.
fn take_answer(
    now: Instant,
    id: ConnectionId,
    auth: &Auth<'_>,
    shard: &mut Shard,
) -> Result<Flow, Violation> {
    let connections = &mut shard.core.connections;
    let revocations = connections.revocations();
    // The exchange lasts as long as the phase in which this is called.
    let Some(pending) = connections.exchange_mut(id) else { return Ok(Flow::Closed) };
    shard.core.turn.spend_micros(pending.answer_us());
    // With a result, CONNECT has waited, and this AUTH has been answered already.
    if !pending.has_end()
        && let Some(data) = pending.answer(auth, revocations)?
    {
        let method = pending.method();
        put_auth(id, ReasonCode::CONTINUE_AUTHENTICATION, method, &data, &mut shard.core)?;
        return Ok(Flow::Continue);
    }
    let bytes = connections.take_connect(id).unwrap_or_default();
    // The CONNECT was kept when the client was challenged.
    let Some(connect) = kept_connect(&bytes) else { return Ok(Flow::Closed) };
    let flow = ConnectRequest::handle(now, id, &connect, shard);
    if matches!(flow, Flow::Wait) {
        shard.core.connections.keep_connect(id, bytes);
    }
    Ok(flow)
}

/// Handles an AUTH of an established connection.
pub(crate) fn take_auth(now: Instant, id: ConnectionId, auth: &Auth<'_>, shard: &mut Shard) -> Flow {
    match reauthenticate(now, id, auth, shard) {
        Ok(()) if shard.core.connections.get(id).is_some_and(|c| !c.is_closing()) => Flow::Continue,
        Ok(()) => Flow::Closed,
        Err(violation) => {
            shard.fail(now, id, violation);
            Flow::Closed
        }
    }
}

fn reauthenticate(
    now: Instant,
    id: ConnectionId,
    auth: &Auth<'_>,
    shard: &mut Shard,
) -> Result<(), Violation> {
    let revocations = shard.core.connections.revocations();
    // The packets before this one may have ended the connection.
    let Some(client) = shard.core.client(id) else { return Ok(()) };
    let Some(method) = client.connection.method else {
        // 5.0 [MQTT-4.12.0-7]
        return Err(protocol_error("AUTH without an Authentication Method in CONNECT"));
    };
    check_method(method, auth)?;
    if auth.reason == ReasonCode::RE_AUTHENTICATE {
        if client.connection.is_reauthenticating() {
            return Err(protocol_error("AUTH with 0x19 before the last re-authentication is complete"));
        }
        let from = (Arc::clone(&client.connection.listener), client.connection.reach);
        let client_id = &client.entry.session.client_id;
        let authentication = Authentication::begin(now, client.settings.connect_timeout);
        let data = auth.data.unwrap_or_default();
        let request = authentication.exchange_request(id, from, client_id, method, data);
        client.connection.begin_reauthentication(authentication);
        shard.core.effects.auth_requests.push(request);
        shard.core.connections.register_read_idle(id, &mut shard.core.effects);
        return Ok(());
    }
    let Some(pending) = client.connection.exchange_mut() else {
        return Err(protocol_error("AUTH without a challenge or a re-authentication"));
    };
    client.turn.spend_micros(pending.answer_us());
    if let Some(data) = pending.answer(auth, revocations)? {
        put_auth(id, ReasonCode::CONTINUE_AUTHENTICATION, method, &data, &mut shard.core)?;
    } else if let Some(ExchangeEnd { decision, proof, .. }) = pending.take_end() {
        end_reauthentication(now, id, decision, &proof, shard);
    }
    Ok(())
}

/// Takes in the authenticator's answer to a re-authentication. Does nothing if the connection does
/// not wait for it.
pub(crate) fn reauthentication_decided(
    now: Instant,
    id: ConnectionId,
    decision: AuthDecision,
    shard: &mut Shard,
) {
    let waiting = shard.core.connections.get_mut(id).filter(|connection| connection.awaits_challenge());
    // The connection has ended, or the time for the re-authentication is over.
    let Some((method, connection)) = waiting.and_then(|c| Some((c.method?, c))) else { return };
    match decision {
        AuthDecision::Challenge(Challenge { data, exchange }) => {
            connection.begin_exchange(PendingExchange::new(method, exchange));
            let reason = ReasonCode::CONTINUE_AUTHENTICATION;
            if let Err(violation) = put_auth(id, reason, method, &data, &mut shard.core) {
                shard.fail(now, id, violation);
            }
        }
        decision => {
            let proof = EnhancedProof { method, data: Box::default() };
            end_reauthentication(now, id, decision, &proof, shard);
        }
    }
}

/// Ends a re-authentication. Disconnects the client if it failed, or if it is another user.
fn end_reauthentication(
    now: Instant,
    id: ConnectionId,
    decision: AuthDecision,
    proof: &EnhancedProof,
    shard: &mut Shard,
) {
    // The connection has ended.
    let Some(client) = shard.core.client(id) else { return };
    client.connection.end_reauthentication();
    let user = client.entry.user();
    let violation = match decision.into_grant() {
        Ok(grant) if user.is_some_and(|user| user.is_same_user(&grant.identity)) => {
            match put_auth(id, ReasonCode::SUCCESS, proof.method, &proof.data, &mut shard.core) {
                Ok(()) => return,
                Err(violation) => violation,
            }
        }
        Ok(_) => Violation { reason: ReasonCode::NOT_AUTHORIZED, what: "re-authentication as another user" },
        Err(refusal) => match refusal.reason {
            ReasonCode::SERVER_BUSY | ReasonCode::SERVER_UNAVAILABLE => Violation {
                reason: ReasonCode::SERVER_BUSY,
                what: "re-authentication failed: the authenticator cannot decide now",
            },
            // The client is not told more, and a wrong name and a wrong password look alike.
            _ => Violation { reason: ReasonCode::NOT_AUTHORIZED, what: "re-authentication failed" },
        },
    };
    // 5.0 [MQTT-4.12.1-2]
    shard.fail(now, id, violation);
}

/// Begins an exchange with a client that has sent CONNECT, and writes the challenge.
///
/// # Errors
/// The client's Maximum Packet Size is too small for it.
pub(crate) fn challenge(
    id: ConnectionId,
    method: EnhancedMethod,
    challenge: Challenge,
    core: &mut Core,
) -> Result<(), ConnectRefusal> {
    // 5.0 [MQTT-4.12.0-2]
    put_auth(id, ReasonCode::CONTINUE_AUTHENTICATION, method, &challenge.data, core)
        .map_err(|violation| ConnectRefusal::new(violation.reason, violation.what))?;
    if let Some(connection) = core.connections.get_mut(id) {
        connection.enter(Phase::Exchanging);
        connection.begin_exchange(PendingExchange::new(method, challenge.exchange));
    }
    Ok(())
}

/// Returns the CONNECT that was kept during an exchange; `None` for invalid bytes, which never
/// happens.
fn kept_connect(bytes: &[u8]) -> Option<Box<Connect<'_>>> {
    match codec::decode_connect(bytes, codec::LARGEST_PACKET) {
        Ok(Decoded::Packet { packet: Packet::Connect(connect), .. }) => Some(connect),
        _ => None,
    }
}

/// Writes an AUTH. The AUTH never has a Reason String or a User Property. Does nothing if the
/// connection is gone, which never happens.
///
/// # Errors
/// The AUTH exceeds the client's Maximum Packet Size. Then nothing is written.
// 5.0 [MQTT-3.15.2-1], [MQTT-3.15.2-2], [MQTT-3.15.2-3], [MQTT-4.12.0-5]
fn put_auth(
    id: ConnectionId,
    reason: ReasonCode,
    method: EnhancedMethod,
    data: &[u8],
    core: &mut Core,
) -> Result<(), Violation> {
    let auth = Auth {
        reason,
        method: Some(method.name()),
        data: (!data.is_empty()).then_some(data),
        reason_string: None,
        user_properties: Vec::new(),
    };
    let fits = core.write(id, |wire, counters| {
        let fits = wire.put(&Packet::Auth(auth)).is_ok();
        counters.packets_sent.add(PacketType::Auth, u64::from(fits));
        fits
    });
    if fits != Some(false) {
        return Ok(());
    }
    Err(Violation {
        reason: ReasonCode::PACKET_TOO_LARGE,
        what: "the client's Maximum Packet Size is too small for an AUTH",
    })
}
