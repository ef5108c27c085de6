//! The socket of a sink to its shard, and the requests that are open.

use super::service::Service;
use super::status::{AnswerFacts, RefusalFacts, SinkFacts, SinkReport};
use super::task::ConnectionEnd;
use crate::broker::bridges::door::{ShardDoor, await_close};
use crate::broker::bridges::running::{Beginning, Ending, chance};
use crate::clock;
use crate::mqtt::codec::encode;
use crate::mqtt::packet::{Disconnect, Packet, PacketId, ProtocolVersion, ReasonCode};
use crate::operators::bridge_command::NumberDeliveries;
use crate::sink::SinkState;
use crate::sink::answer::{ServiceAnswer, Verdict};
use crate::sink::dispatcher::{Dispatcher, RequestEnd, SinkCounts, SinkEnd, SinkNews};
use crate::time::{Instant, millis};
use bytes::{Buf, BytesMut};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tracing::{info, warn};

/// Bytes that are read at once.
const READ: usize = 64 << 10;

/// Time for open requests when the sink ends, and for its last bytes.
const LAST: Duration = Duration::from_secs(1);

/// Time until the shard is asked again, if it did not answer.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// The shard's answer about the numbers of deliveries; `None` if there is none.
type Numbers = Option<Vec<Option<u64>>>;

/// The number of a request, its end, and its time.
type EndedRequest = (u64, RequestEnd, Duration);

/// What happened while the sink waited.
enum Step {
    /// Bytes were read or written, or a deadline came.
    Bytes,
    /// The sink ends.
    Ends(Ending),
    /// A request ended.
    Request(Result<EndedRequest, JoinError>),
    /// The shard has answered, or not.
    Numbers(Result<Numbers, JoinError>),
}

/// One connection of a sink.
pub(super) struct Pump {
    socket: UnixStream,
    door: Rc<ShardDoor>,
    service: Rc<Service>,
    report: Arc<SinkReport>,
    filters: Vec<String>,
    dispatcher: Dispatcher,
    from_shard: BytesMut,
    out: Vec<u8>,
    requests: JoinSet<EndedRequest>,
    questions: JoinSet<Numbers>,
    /// The end of the sink, and the time at which open requests are given up.
    ending: Option<(Ending, Instant)>,
    /// The counts as last reported.
    reported: SinkCounts,
    /// Until the session has its subscriptions.
    beginning: Option<Beginning>,
}

/// The parts of a connection.
pub(super) struct PumpParts {
    pub(super) socket: UnixStream,
    pub(super) door: Rc<ShardDoor>,
    pub(super) service: Rc<Service>,
    pub(super) report: Arc<SinkReport>,
    pub(super) filters: Vec<String>,
    pub(super) dispatcher: Dispatcher,
    /// CONNECT and SUBSCRIBE.
    pub(super) out: Vec<u8>,
}

impl Pump {
    pub(super) fn new(parts: PumpParts) -> Pump {
        let PumpParts { socket, door, service, report, filters, dispatcher, out } = parts;
        Pump {
            socket,
            door,
            service,
            report,
            filters,
            dispatcher,
            from_shard: BytesMut::new(),
            out,
            requests: JoinSet::new(),
            questions: JoinSet::new(),
            ending: None,
            reported: SinkCounts::default(),
            beginning: None,
        }
    }

    /// Lets the start of the broker wait until the session has its subscriptions.
    pub(super) fn holding(self, beginning: Option<Beginning>) -> Pump {
        Pump { beginning, ..self }
    }

    /// Passes messages until the connection ends, and says so to the shard.
    pub(super) async fn run(mut self, ends: &mut watch::Receiver<Ending>) -> ConnectionEnd {
        let end = loop {
            if let Err(end) = self.handle() {
                break end.into();
            }
            self.tell();
            if let Some((ending, give_up)) = self.ending
                && (self.dispatcher.open_requests() == 0 || give_up <= clock::now())
            {
                break ConnectionEnd::Ended(ending);
            }
            let step = match self.step(ends).await {
                Ok(step) => step,
                Err(end) => break end,
            };
            if let Err(end) = self.take(step) {
                break end;
            }
        };
        self.tell();
        self.finish().await;
        self.report.change(|facts| (facts.unacknowledged, facts.open_requests) = (0, 0));
        end
    }

    /// Handles what came from the shard, and begins questions and requests.
    fn handle(&mut self) -> Result<(), SinkEnd> {
        let now = clock::now();
        let used = self.dispatcher.take((now, clock::unix_millis()), &self.from_shard, &mut self.out)?;
        self.from_shard.advance(used);
        self.from_shard.reserve(READ);
        if self.ending.is_some() {
            return Ok(());
        }
        if self.questions.is_empty()
            && let Some(ids) = self.dispatcher.question()
        {
            self.questions.spawn_local(ask(Rc::clone(&self.door), ids));
        }
        while let Some(request) = self.dispatcher.next_request(now) {
            let service = Rc::clone(&self.service);
            self.requests.spawn_local(async move {
                let number = request.number;
                let end = service.post(request).await;
                (number, end, clock::now().since(now))
            });
        }
        Ok(())
    }

    /// Waits until something happens.
    async fn step(&mut self, ends: &mut watch::Receiver<Ending>) -> Result<Step, ConnectionEnd> {
        let deadline = self.ending.map_or_else(|| self.dispatcher.deadline(), |(_, give_up)| give_up);
        let wait = deadline.since(clock::now());
        let reads = self.dispatcher.has_room() && self.ending.is_none();
        let (mut read, mut write) = self.socket.split();
        tokio::select! {
            changed = ends.changed(), if self.ending.is_none() => {
                return Ok(Step::Ends(changed.map_or(Ending::Stopped, |()| *ends.borrow())));
            }
            Some(ended) = self.requests.join_next() => return Ok(Step::Request(ended)),
            Some(numbers) = self.questions.join_next() => return Ok(Step::Numbers(numbers)),
            read = read.read_buf(&mut self.from_shard), if reads => {
                if read? == 0 {
                    return Err(ConnectionEnd::ClosedHere);
                }
            }
            written = write.write(&self.out), if !self.out.is_empty() => {
                self.out.drain(..written?);
            }
            () = tokio::time::sleep(wait), if !deadline.is_never() => {}
        }
        Ok(Step::Bytes)
    }

    fn take(&mut self, step: Step) -> Result<(), ConnectionEnd> {
        let now = clock::now();
        match step {
            Step::Bytes => {}
            Step::Ends(ending) => self.ending = Some((ending, now + LAST)),
            Step::Request(ended) => {
                let (number, end, took) = ended?;
                self.report.change(|facts| note_end(facts, now, &end, took));
                self.dispatcher.ended(now, number, &end, chance(), &mut self.out)?;
            }
            Step::Numbers(numbers) => match numbers? {
                Some(numbers) => self.dispatcher.named(&numbers),
                None => self.dispatcher.not_named(),
            },
        }
        Ok(())
    }

    /// Sends the last acknowledgements, and waits until the shard has read them.
    async fn finish(&mut self) {
        self.requests.abort_all();
        let end = Packet::Disconnect(Disconnect::new(ReasonCode::NORMAL_DISCONNECTION));
        // A DISCONNECT without properties is always encoded.
        let _ = encode(&end, ProtocolVersion::V5, &mut self.out);
        let last = async {
            if self.socket.write_all(&self.out).await.is_ok() {
                let _ = self.socket.shutdown().await;
            }
        };
        let _ = tokio::time::timeout(LAST, last).await;
        await_close(&mut self.socket).await;
    }

    /// Reports counts and news.
    fn tell(&mut self) {
        let counts = self.dispatcher.counts();
        let before = std::mem::replace(&mut self.reported, counts);
        let dispatcher = &self.dispatcher;
        self.report.change(|facts| {
            facts.counts.add(&counts, &before);
            facts.unacknowledged = dispatcher.unacknowledged();
            facts.open_requests = dispatcher.open_requests();
        });
        for news in self.dispatcher.take_news() {
            self.tell_news(news);
        }
    }

    fn tell_news(&mut self, news: SinkNews) {
        let now = clock::now();
        let (sink, url) = self.report.change(|facts| (Arc::clone(&facts.name), facts.url.clone()));
        match news {
            SinkNews::Subscribed(reasons) => {
                self.beginning = None;
                let refused = self.filters.iter().zip(reasons).filter(|(_, reason)| reason.is_error());
                for (filter, reason) in refused {
                    warn!(event = "sink.filter_refused", %sink, filter, "this broker does not let the sink subscribe: {reason}; see acl_user of the sink");
                    self.report.change(|facts| facts.refused_filters.push(filter.clone()));
                }
                info!(event = "sink.ready", %sink, url, "the sink has its subscriptions");
                self.enter_ready(now);
            }
            SinkNews::Failed { cause, status, wait } => {
                let next_ms = millis(wait);
                warn!(event = "sink.request_failed", %sink, url, next_ms, "a request failed, and is sent again: {cause}");
                self.report.enter(now, SinkState::Failing);
                self.report.change(|facts| {
                    (facts.next_attempt, facts.last_error) = (now + wait, cause);
                    facts.failing_with = status;
                });
            }
            SinkNews::Recovered => {
                info!(event = "sink.recovered", %sink, url, "the service takes messages again");
                self.enter_ready(now);
            }
            SinkNews::Refused { topic, id, cause, status } => {
                warn!(event = "sink.message_refused", %sink, url, topic, id, "the service refuses a message for good, so it becomes a dead letter: {cause}");
                self.report.change(|facts| facts.refuse(RefusalFacts { topic, cause, at: now }, status));
            }
        }
    }

    fn enter_ready(&self, now: Instant) {
        self.report.enter(now, SinkState::Ready);
        self.report.change(|facts| {
            facts.last_error.clear();
            facts.failing_with = None;
        });
    }
}

/// Notes the end of a request.
fn note_end(facts: &mut SinkFacts, now: Instant, end: &RequestEnd, took: Duration) {
    facts.times.add(now, took);
    let RequestEnd::Answered(ServiceAnswer { status, .. }) = end else { return };
    let answer = AnswerFacts { status: *status, at: now };
    facts.last_answer = Some(answer);
    if Verdict::of(*status) == Verdict::Accepted {
        facts.last_accepted = Some(answer);
    }
}

/// Asks the shard for the numbers of deliveries.
async fn ask(door: Rc<ShardDoor>, ids: Vec<PacketId>) -> Numbers {
    let client_id = door.client_id.as_str().into();
    let numbers = door.command(NumberDeliveries { client_id, ids }).await.ok();
    if numbers.is_none() {
        tokio::time::sleep(ASK_AGAIN).await;
    }
    numbers
}
