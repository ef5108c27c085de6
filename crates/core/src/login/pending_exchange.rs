//! An exchange of AUTH packets that waits for the client, and its result.

use crate::login::authentication::{AuthDecision, AuthExchange, Challenge, ExchangeStep};
use crate::mqtt::charge::{Charge, Recount, Recounted};
use crate::mqtt::packet::{Auth, ReasonCode};
use crate::session::Violation;
use crate::session::authentication::EnhancedMethod;
use std::sync::Arc;
use zeroize::Zeroizing;

/// An exchange of AUTH packets that waits for the client.
#[derive(Debug)]
pub(crate) struct PendingExchange {
    method: EnhancedMethod,
    exchange: Arc<dyn AuthExchange>,
    end: Option<ExchangeEnd>,
    /// The bytes of CONNECT, which is handled at the end of the exchange. Empty in a
    /// re-authentication, and while CONNECT is being handled.
    connect: Zeroizing<Vec<u8>>,
    charge: Charge,
}

/// The result of an exchange.
#[derive(Debug)]
pub(crate) struct ExchangeEnd {
    pub decision: AuthDecision,
    pub proof: EnhancedProof,
    /// The number of revocations at the time of the decision.
    pub revocations: u32,
}

/// The Authentication Method that a client has used, and the last data of the broker.
#[derive(Debug)]
pub(crate) struct EnhancedProof {
    pub method: EnhancedMethod,
    pub data: Box<[u8]>,
}

impl PendingExchange {
    /// Begins to wait for the client's answer.
    pub(crate) fn new(method: EnhancedMethod, exchange: Arc<dyn AuthExchange>) -> PendingExchange {
        let connect = Zeroizing::default();
        PendingExchange { method, exchange, end: None, connect, charge: Charge::NONE }
    }

    /// Returns the Authentication Method.
    pub(crate) fn method(&self) -> EnhancedMethod {
        self.method
    }

    /// Returns true if the exchange has its result.
    pub(crate) fn has_end(&self) -> bool {
        self.end.is_some()
    }

    /// Returns the user name that the client wants to prove.
    pub(crate) fn user(&self) -> &str {
        self.exchange.user()
    }

    /// Keeps the bytes of CONNECT until the end of the exchange.
    pub(crate) fn keep_connect(&mut self, bytes: Zeroizing<Vec<u8>>) {
        self.charge.set(bytes.capacity());
        self.connect = bytes;
    }

    /// Removes and returns the bytes of CONNECT.
    pub(crate) fn take_connect(&mut self) -> Zeroizing<Vec<u8>> {
        self.charge.set(0);
        std::mem::take(&mut self.connect)
    }

    /// Returns the length of the CONNECT that is kept.
    pub(crate) fn connect_len(&self) -> usize {
        self.connect.len()
    }

    /// Removes and returns the result, if there is one.
    pub(crate) fn take_end(&mut self) -> Option<ExchangeEnd> {
        self.end.take()
    }

    /// Returns the estimated time of [`Self::answer`] in microseconds.
    pub(crate) fn answer_us(&self) -> u64 {
        self.exchange.answer_us()
    }

    /// Takes the client's answer to the challenge. Returns the next challenge, or `None` if the
    /// exchange has its result. `revocations` is the number of revocations so far. Costs two HMACs
    /// with SCRAM.
    ///
    /// # Errors
    /// The packet is not an answer to this exchange.
    pub(crate) fn answer(
        &mut self,
        auth: &Auth<'_>,
        revocations: u32,
    ) -> Result<Option<Box<[u8]>>, Violation> {
        check_method(self.method, auth)?;
        if auth.reason != ReasonCode::CONTINUE_AUTHENTICATION {
            // 5.0 [MQTT-4.12.0-3]
            return Err(protocol_error("an answer to a challenge that is not AUTH with 0x18"));
        }
        match self.exchange.answer(auth.data.unwrap_or_default()) {
            ExchangeStep::Challenge(Challenge { data, exchange }) => {
                self.exchange = exchange;
                Ok(Some(data))
            }
            ExchangeStep::Decided { decision, data } => {
                let proof = EnhancedProof { method: self.method, data };
                self.end = Some(ExchangeEnd { decision, proof, revocations });
                Ok(None)
            }
        }
    }
}

impl Recount for PendingExchange {
    fn recount(&self) -> Recounted {
        Recounted { in_use: self.connect.capacity(), charged: self.charge.bytes() }
    }
}

/// Checks that an AUTH names the method of the connection.
// 5.0 [MQTT-4.12.0-5], [MQTT-4.12.1-1]
pub(crate) fn check_method(method: EnhancedMethod, auth: &Auth<'_>) -> Result<(), Violation> {
    if auth.method == Some(method.name()) {
        return Ok(());
    }
    Err(protocol_error("AUTH with another Authentication Method than CONNECT"))
}

pub(crate) fn protocol_error(what: &'static str) -> Violation {
    Violation { reason: ReasonCode::PROTOCOL_ERROR, what }
}
