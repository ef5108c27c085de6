//! The messages between the shard and the service: what is sent when, what is sent again, and what
//! is acknowledged.
//!
//! A message passes four places, in its order: it has *arrived*, and its number is asked for; it is
//! *ready*; it is in a batch whose request is *open*; and if that failed, in one that is sent
//! *again*, before anything that is ready. After a failure one request at a time probes the service.

use super::answer::{ServiceAnswer, Verdict};
use super::batch::{Batch, Item, SinkRequest};
use super::{SinkFormat, encoding};
use crate::bridge::backoff::Backoff;
use crate::mqtt::codec::{DecodeError, Decoded, EncodeError, LARGEST_PACKET, decode, encode, property};
use crate::mqtt::packet::{
    Acknowledgement, Packet, PacketId, Properties, Property, ProtocolVersion, Publish, QoS, ReasonCode,
};
use crate::mqtt::topic::first_chars;
use crate::time::Instant;
use std::collections::VecDeque;
use std::time::Duration;
use thiserror::Error;

/// Characters of a complaint that become the Reason String of a negative acknowledgement.
const REASON: usize = 200;

/// Bytes of messages that a sink holds in any case. Above these, and two batches beside those in
/// flight, the shard is not read.
const LEAST_HELD: usize = 1 << 20;

/// The terms of a sink.
#[derive(Clone, Copy, Debug)]
pub struct SinkTerms {
    /// The form of requests.
    pub format: SinkFormat,
    /// The most requests at a time.
    pub in_flight: usize,
    /// The most messages of one request.
    pub batch_messages: usize,
    /// The most bytes of the body of a request. One message may have more.
    pub batch_bytes: usize,
    /// The time for which the first message of a batch waits for others.
    pub batch_wait: Duration,
    /// The shortest and the longest time between two attempts.
    pub waits: (Duration, Duration),
}

/// The end of the connection to the shard.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SinkEnd {
    /// The shard refused the session.
    #[error("the session here is refused: {0}")]
    Refused(ReasonCode),
    /// The shard ended the connection.
    #[error("the session here is disconnected: {0}")]
    Disconnected(ReasonCode),
    /// The shard sent bytes that are no packet.
    #[error("a fault of the broker: its own bytes are no packet: {0}")]
    Fault(DecodeError),
    /// An acknowledgement cannot be written.
    #[error("a packet cannot be written: {0}")]
    Encode(#[from] EncodeError),
}

/// The end of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestEnd {
    /// The service answered.
    Answered(ServiceAnswer),
    /// There was no answer, for this reason.
    Failed(String),
}

/// What an operator is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SinkNews {
    /// The session has its subscriptions; the reason codes are those of SUBACK.
    Subscribed(Vec<ReasonCode>),
    /// A request failed, and is sent again.
    Failed {
        /// What the service did.
        cause: String,
        /// The status of its answer; `None` without an answer.
        status: Option<u16>,
        /// The time until the next attempt.
        wait: Duration,
    },
    /// The service takes messages again.
    Recovered,
    /// The service refused a message for good.
    Refused {
        /// The topic.
        topic: String,
        /// The identifier of the message.
        id: String,
        /// What the service answered.
        cause: String,
        /// The status of its answer.
        status: u16,
    },
}

/// The messages of a sink since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SinkCounts {
    /// Messages that the service accepted.
    pub delivered: u64,
    /// Messages that the service refused for good.
    pub refused: u64,
    /// Requests, repetitions included.
    pub requests: u64,
    /// Requests that the service accepted, each with its batch of messages.
    pub accepted: u64,
    /// Requests that failed, and were sent again.
    pub failed: u64,
}

impl SinkCounts {
    /// Adds what came between two looks at a connection.
    pub fn add(&mut self, now: &SinkCounts, before: &SinkCounts) {
        self.delivered += now.delivered - before.delivered;
        self.refused += now.refused - before.refused;
        self.requests += now.requests - before.requests;
        self.accepted += now.accepted - before.accepted;
        self.failed += now.failed - before.failed;
    }
}

/// A message without its number.
#[derive(Debug)]
struct Arrived {
    at: Instant,
    /// The Subscription Identifier: the salt of the connection on which the message was queued.
    salt: u32,
    item: Item,
}

/// The messages of one connection to the shard.
#[derive(Debug)]
pub struct Dispatcher {
    terms: SinkTerms,
    /// The salt of this connection.
    salt: u32,
    arrived: VecDeque<Arrived>,
    /// Messages at the front of `arrived` whose numbers are asked for.
    asked: usize,
    ready: VecDeque<(Instant, Item)>,
    /// Messages that left `ready`.
    cut: u64,
    again: VecDeque<Batch>,
    open: Vec<(u64, Batch)>,
    requests: u64,
    /// QoS 0 messages so far, which have no number.
    unnumbered: u64,
    backoff: Backoff,
    fails: bool,
    /// The time of the next attempt.
    resume: Instant,
    /// Bytes of all messages here.
    held: usize,
    counts: SinkCounts,
    news: Vec<SinkNews>,
}

impl Dispatcher {
    /// Returns the dispatcher of a connection on which CONNECT and SUBSCRIBE were sent, with this
    /// salt.
    pub fn new(terms: SinkTerms, salt: u32) -> Dispatcher {
        let (first, most) = terms.waits;
        Dispatcher {
            terms,
            salt,
            arrived: VecDeque::new(),
            asked: 0,
            ready: VecDeque::new(),
            cut: 0,
            again: VecDeque::new(),
            open: Vec::new(),
            requests: 0,
            unnumbered: 0,
            backoff: Backoff::new(first, most),
            fails: false,
            resume: Instant::ZERO,
            held: 0,
            counts: SinkCounts::default(),
            news: Vec::new(),
        }
    }

    /// Returns the messages so far.
    pub fn counts(&self) -> SinkCounts {
        self.counts
    }

    /// Returns the requests without an answer.
    pub fn open_requests(&self) -> usize {
        self.open.len()
    }

    /// Returns the messages that are here and not acknowledged.
    pub fn unacknowledged(&self) -> usize {
        let batches = self.again.iter().chain(self.open.iter().map(|(_, batch)| batch));
        self.arrived.len() + self.ready.len() + batches.map(|batch| batch.items.len()).sum::<usize>()
    }

    /// Returns what happened since the last call.
    pub fn take_news(&mut self) -> Vec<SinkNews> {
        std::mem::take(&mut self.news)
    }

    /// Returns true if more messages of the shard should be read.
    pub fn has_room(&self) -> bool {
        let SinkTerms { in_flight, batch_bytes, .. } = self.terms;
        self.held < batch_bytes.saturating_mul(in_flight + 2).max(LEAST_HELD)
    }

    /// Handles the whole packets at the front of what came from the shard. Returns their bytes.
    /// `unix_ms` is the time of day.
    ///
    /// # Errors
    /// The connection has to end.
    pub fn take(
        &mut self,
        (now, unix_ms): (Instant, u64),
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<usize, SinkEnd> {
        let mut used = 0;
        loop {
            let rest = bytes.get(used..).unwrap_or_default();
            match decode(rest, ProtocolVersion::V5, LARGEST_PACKET).map_err(SinkEnd::Fault)? {
                Decoded::Incomplete { .. } => return Ok(used),
                Decoded::Packet { packet, length } => {
                    self.came((now, unix_ms), packet, out)?;
                    used += length;
                }
            }
        }
    }

    fn came(
        &mut self,
        (now, unix_ms): (Instant, u64),
        packet: Packet<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), SinkEnd> {
        match packet {
            Packet::Publish(publish) => self.arrive(now, unix_ms, &publish),
            Packet::Pubrel(ack) => {
                put(&Packet::Pubcomp(Acknowledgement::success(ack.packet_id)), out)?;
            }
            Packet::Connack(connack) if connack.reason != ReasonCode::SUCCESS => {
                return Err(SinkEnd::Refused(connack.reason));
            }
            Packet::Suback(suback) => self.news.push(SinkNews::Subscribed(suback.reasons.to_vec())),
            Packet::Disconnect(disconnect) => return Err(SinkEnd::Disconnected(disconnect.reason)),
            _ => {}
        }
        Ok(())
    }

    fn arrive(&mut self, now: Instant, unix_ms: u64, publish: &Publish<'_>) {
        let (encoded, headers) = match self.terms.format {
            SinkFormat::Json => (encoding::json(publish, unix_ms), Vec::new()),
            SinkFormat::Raw => (publish.payload.to_vec(), encoding::headers(publish, unix_ms)),
        };
        let item = Item {
            packet_id: publish.packet_id,
            qos: publish.qos,
            id: String::new(),
            topic: publish.topic.to_owned(),
            encoded: encoded.into(),
            headers,
        };
        self.held += item.encoded.len();
        let salt = publish.properties.subscription_ids.first().copied().unwrap_or_default();
        self.arrived.push_back(Arrived { at: now, salt, item });
    }

    /// Returns the Packet Identifiers whose deliveries the shard should name, if there are some and
    /// no earlier question is open. [`Self::named`] or [`Self::not_named`] has to follow.
    pub fn question(&mut self) -> Option<Vec<PacketId>> {
        if self.asked > 0 || self.arrived.is_empty() {
            return None;
        }
        self.asked = self.arrived.len();
        let ids: Vec<PacketId> = self.arrived.iter().filter_map(|arrived| arrived.item.packet_id).collect();
        if ids.is_empty() {
            self.named(&[]);
            return None;
        }
        Some(ids)
    }

    /// Takes the numbers of the deliveries that [`Self::question`] asked for. A delivery without a
    /// number is no longer one: an operator dropped it, for example.
    pub fn named(&mut self, numbers: &[Option<u64>]) {
        let mut numbers = numbers.iter();
        let asked = std::mem::take(&mut self.asked);
        for Arrived { at, salt, mut item } in self.arrived.drain(..asked) {
            item.id = match item.packet_id {
                Some(_) => match numbers.next().copied().flatten() {
                    Some(number) => format!("{salt:x}-{number:x}"),
                    None => {
                        self.held -= item.encoded.len();
                        continue;
                    }
                },
                None => {
                    self.unnumbered += 1;
                    format!("{:x}-0-{:x}", self.salt, self.unnumbered)
                }
            };
            self.ready.push_back((at, item));
        }
    }

    /// Notes that the shard did not answer, so the question is asked again.
    pub fn not_named(&mut self) {
        self.asked = 0;
    }

    /// Returns the next request that is to be sent now.
    pub fn next_request(&mut self, now: Instant) -> Option<SinkRequest> {
        if !self.may_send() || now < self.resume {
            return None;
        }
        let batch = self.again.pop_front().or_else(|| self.cut(now))?;
        self.requests += 1;
        self.counts.requests += 1;
        let request = batch.request(self.requests, self.terms.format);
        self.open.push((self.requests, batch));
        Some(request)
    }

    /// Returns the next time at which [`Self::next_request`] may have one.
    pub fn deadline(&self) -> Instant {
        match (self.again.is_empty(), self.ready.front()) {
            _ if !self.may_send() => Instant::NEVER,
            (false, _) => self.resume,
            (true, Some((at, _))) => self.resume.max(*at + self.terms.batch_wait),
            (true, None) => Instant::NEVER,
        }
    }

    fn may_send(&self) -> bool {
        self.open.len() < if self.fails { 1 } else { self.terms.in_flight }
    }

    /// Takes the messages of the next batch, if it is full or its first message has waited enough.
    fn cut(&mut self, now: Instant) -> Option<Batch> {
        let SinkTerms { format, batch_messages, batch_bytes, batch_wait, .. } = self.terms;
        let most = if format == SinkFormat::Raw { 1 } else { batch_messages };
        let (mut count, mut bytes, mut is_full) = (0, 2, false);
        for (_, item) in self.ready.iter().take(most) {
            bytes += item.size();
            is_full = count > 0 && bytes > batch_bytes;
            if is_full {
                break;
            }
            count += 1;
        }
        let (oldest, _) = self.ready.front()?;
        if !is_full && count < most && now < *oldest + batch_wait {
            return None;
        }
        let items = self.ready.drain(..count).map(|(_, item)| item).collect();
        let first = self.cut;
        self.cut += count as u64;
        Some(Batch::new(first, items, format))
    }

    /// Handles the end of a request. `chance` from 0 to 1 spreads the attempts of many brokers.
    ///
    /// # Errors
    /// The connection has to end.
    pub fn ended(
        &mut self,
        now: Instant,
        number: u64,
        end: &RequestEnd,
        chance: f64,
        out: &mut Vec<u8>,
    ) -> Result<(), SinkEnd> {
        let Some(at) = self.open.iter().position(|(open, _)| *open == number) else { return Ok(()) };
        let (_, batch) = self.open.swap_remove(at);
        let (verdict, cause, status, retry_after) = match end {
            RequestEnd::Answered(answer) => {
                let verdict = Verdict::of(answer.status);
                let cause = if verdict == Verdict::Accepted { String::new() } else { answer.complaint() };
                (verdict, cause, Some(answer.status), answer.retry_after)
            }
            RequestEnd::Failed(cause) => (Verdict::Again, cause.clone(), None, None),
        };
        match verdict {
            Verdict::Accepted => {
                self.recover(now);
                self.counts.accepted += 1;
                self.counts.delivered += batch.items.len() as u64;
                self.finish(&batch, ReasonCode::SUCCESS, "", out)?;
            }
            Verdict::Refused if batch.items.len() > 1 => {
                // One of them is to blame. The service has taken none.
                self.recover(now);
                for half in batch.halves(self.terms.format) {
                    self.put_again(half);
                }
            }
            Verdict::Refused => {
                self.recover(now);
                self.counts.refused += 1;
                self.finish(&batch, ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR, &cause, out)?;
                if let Some(Item { topic, id, .. }) = batch.items.into_iter().next() {
                    let status = status.unwrap_or_default();
                    self.news.push(SinkNews::Refused { topic, id, cause, status });
                }
            }
            Verdict::Again => {
                self.put_again(batch);
                let wait = self.fail(now, retry_after, chance);
                self.news.push(SinkNews::Failed { cause, status, wait });
            }
        }
        Ok(())
    }

    /// Notes that the service took or judged a request. One that was open when another failed says
    /// nothing about the wait that followed, which the service may have asked for.
    fn recover(&mut self, now: Instant) {
        if now < self.resume {
            return;
        }
        self.backoff.reset();
        self.resume = Instant::ZERO;
        if std::mem::take(&mut self.fails) {
            self.news.push(SinkNews::Recovered);
        }
    }

    /// Returns the time until the next attempt.
    fn fail(&mut self, now: Instant, retry_after: Option<Duration>, chance: f64) -> Duration {
        let (_, most) = self.terms.waits;
        let wait = self.backoff.next(chance).max(retry_after.unwrap_or_default().min(most));
        (self.fails, self.resume) = (true, now + wait);
        self.counts.failed += 1;
        wait
    }

    /// Puts a batch to those that are sent again, in the order of the messages.
    fn put_again(&mut self, batch: Batch) {
        let at = self.again.partition_point(|other| other.first < batch.first);
        self.again.insert(at, batch);
    }

    /// Acknowledges the messages of a batch.
    fn finish(
        &mut self,
        batch: &Batch,
        reason: ReasonCode,
        cause: &str,
        out: &mut Vec<u8>,
    ) -> Result<(), SinkEnd> {
        let mut properties = Vec::new();
        if !cause.is_empty() {
            property::put(&mut properties, Property::ReasonString(first_chars(cause, REASON)))?;
        }
        for item in &batch.items {
            self.held -= item.encoded.len();
            let Some(packet_id) = item.packet_id else { continue };
            let ack = Acknowledgement { packet_id, reason, properties: Properties(&properties) };
            put(&if item.qos == QoS::ExactlyOnce { Packet::Pubrec(ack) } else { Packet::Puback(ack) }, out)?;
        }
        Ok(())
    }
}

fn put(packet: &Packet<'_>, out: &mut Vec<u8>) -> Result<(), SinkEnd> {
    Ok(encode(packet, ProtocolVersion::V5, out)?)
}
