//! The connections of one sink to its shard, one after the other.

use super::pump::{Pump, PumpParts};
use super::service::Service;
use super::status::SinkReport;
use crate::auth::random::random;
use crate::bridge::backoff::Backoff;
use crate::broker::bridges::BridgeParts;
use crate::broker::bridges::door::{DoorError, FarSide, ShardDoor};
use crate::broker::bridges::running::{Beginning, Ending, chance};
use crate::clock;
use crate::config::Sink;
use crate::operators::bridge_command::SessionThere;
use crate::sink::dispatcher::{Dispatcher, SinkEnd};
use crate::sink::hello::SinkHello;
use crate::sink::{self, SinkState};
use crate::time::millis;
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinError;
use tracing::warn;

/// The waits between two connections to the shard.
const WAITS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));

/// The end of a connection to the shard.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectionEnd {
    #[error("{0}")]
    Here(#[from] DoorError),
    #[error("{0}")]
    Sink(#[from] SinkEnd),
    #[error("the connection to the shard failed: {0}")]
    Socket(#[from] io::Error),
    #[error("the shard closed the connection")]
    ClosedHere,
    #[error("a fault of the broker: {0}")]
    Fault(#[from] JoinError),
    #[error("the sink ends")]
    Ended(Ending),
}

/// One sink.
pub(in crate::broker) struct SinkTask {
    sink: Sink,
    /// The most messages that the shard sends ahead.
    window: u16,
    door: Rc<ShardDoor>,
    service: Rc<Service>,
    report: Arc<SinkReport>,
    ends: watch::Receiver<Ending>,
    beginning: Cell<Option<Beginning>>,
}

impl SinkTask {
    /// `in_flight` is the most messages in flight to any client.
    pub(in crate::broker) fn new(
        parts: BridgeParts,
        sink: Sink,
        in_flight: u16,
        ends: watch::Receiver<Ending>,
    ) -> SinkTask {
        let far_side = FarSide {
            client_id: sink::client_id(sink.label()),
            acl_user: sink.acl_user.as_deref(),
            label: format!("sink {}", sink.label()),
        };
        let report = parts.observer.sinks().report_of(sink.label(), clock::now());
        SinkTask {
            window: sink.window().min(in_flight),
            door: Rc::new(ShardDoor::new(parts, far_side)),
            service: Rc::new(Service::new(sink.clone(), Some(Arc::clone(&report)))),
            report,
            sink,
            ends,
            beginning: Cell::default(),
        }
    }

    /// Lets the start of the broker wait until the session has its subscriptions.
    pub(in crate::broker) fn holding(self, beginning: Option<Beginning>) -> SinkTask {
        SinkTask { beginning: Cell::new(beginning), ..self }
    }

    /// Connects again and again, until the sink ends.
    pub(in crate::broker) async fn run(self) {
        let mut ends = self.ends.clone();
        let mut backoff = Backoff::new(WAITS.0, WAITS.1);
        let ending = loop {
            let delivered = self.report.change(|facts| facts.counts.delivered);
            let connected = self.connect().await;
            let beginning = self.beginning.take();
            let end = match connected {
                Ok(pump) => pump.holding(beginning).run(&mut ends).await,
                Err(end) => {
                    // The start of the broker does not wait for the next try.
                    drop(beginning);
                    end
                }
            };
            if let ConnectionEnd::Ended(ending) = end {
                break ending;
            }
            if self.report.change(|facts| facts.counts.delivered) > delivered {
                backoff.reset();
            }
            let wait = backoff.next(chance());
            self.tell_of_end(&end, wait);
            tokio::select! {
                _ = ends.changed() => break *ends.borrow(),
                () = tokio::time::sleep(wait) => {}
            }
        };
        if ending == Ending::Removed {
            self.report_removed().await;
        }
    }

    /// Opens the session, and returns what passes its messages.
    async fn connect(&self) -> Result<Pump, ConnectionEnd> {
        self.report.enter(clock::now(), SinkState::Starting);
        self.report.change(|facts| {
            facts.url = self.sink.url.as_ref().map(ToString::to_string).unwrap_or_default();
            facts.refused_filters.clear();
            facts.failing_with = None;
        });
        let session = self.door.prepare(SessionThere::Kept).await?;
        let filters = self.sink.own_filters();
        let is_stale = |own: &String| !filters.contains(&own.as_str());
        let stale: Vec<String> = session.filters.into_iter().filter(is_stale).collect();
        let (mut out, salt) = (Vec::new(), salt());
        SinkHello {
            client_id: &self.door.client_id,
            session_expiry: self.sink.session_expiry_secs(),
            window: self.window,
            filters: &filters,
            qos: self.sink.highest_qos(),
            stale: &stale,
            salt,
        }
        .put(&mut out)?;
        Ok(Pump::new(PumpParts {
            socket: self.door.open(None, None)?,
            door: Rc::clone(&self.door),
            service: Rc::clone(&self.service),
            report: Arc::clone(&self.report),
            filters: filters.into_iter().map(str::to_owned).collect(),
            dispatcher: Dispatcher::new(self.sink.terms(self.window), salt),
            out,
        }))
    }

    fn tell_of_end(&self, end: &ConnectionEnd, wait: Duration) {
        let now = clock::now();
        self.report.enter(now, SinkState::Starting);
        self.report.change(|facts| (facts.last_error, facts.next_attempt) = (end.to_string(), now + wait));
        let (sink, next_ms) = (self.sink.label(), millis(wait));
        warn!(event = "sink.not_connected", sink, next_ms, "the sink has no session: {end}");
    }

    /// Says what is left of a sink that the configuration has no more.
    async fn report_removed(&self) {
        let Ok(session) = self.door.prepare(SessionThere::Kept).await else { return };
        let (queued, in_flight, client_id) = (session.queued, session.in_flight, &self.door.client_id);
        let sink = self.sink.label();
        warn!(
            event = "sink.removed",
            sink,
            queued,
            in_flight,
            client_id,
            "the configuration has this sink no more: its session stays until it expires, with its messages"
        );
    }
}

/// Returns a number by chance that is a Subscription Identifier.
fn salt() -> u32 {
    const BITS: u32 = (1 << 28) - 1;
    let number =
        random::<4>().map_or_else(|_| clock::unix_millis() as u32, |bytes| u32::from_le_bytes(*bytes));
    (number & BITS).max(1)
}
