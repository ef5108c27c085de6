//! The state that the clients of one thread share: the deliveries, the record, the flows of the
//! publishers, and the request to stop.
//!
//! Cells suffice, because each thread has a run of its own. No cell is borrowed across an await.
//! [`super::crew`] has what the threads share.

use super::client::{Options, ReceivedPublish};
use super::crew::{CrewMember, ThreadTotals};
use super::flow::{FlowBounds, PublishFlow};
use super::plan::{ClientRole, Extent, LoadPart, LoadPlan, LoadWire, Topology};
use super::progress::ProgressLine;
use super::record::{Latencies, RunRecord};
use super::verify::{ArrivalVerdict, DeliveryLog, LoggedArrival, Stamp};
use crate::clock;
use bytes::Bytes;
use homing_core::mqtt::packet::QoS;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Notify;

/// Maximum time that a QoS 0 publisher waits for messages under way before it continues without
/// them.
const WRITE_OFF: Duration = Duration::from_secs(1);

/// A run in progress, as far as one thread has part in it.
pub(super) struct LoadRun {
    pub member: CrewMember,
    pub wire: LoadWire,
    pub extent: Extent,
    pub topology: Topology,
    pub part: LoadPart,
    pub deliveries: RefCell<DeliveryLog>,
    pub record: RefCell<RunRecord>,
    /// The time by which messages of a fixed rate were sent late.
    pub lateness: RefCell<Latencies>,
    flows: Vec<(RefCell<PublishFlow>, Notify)>,
    ending: Cell<bool>,
    changed: Notify,
    /// Counts all progress, for the check of `--patience`.
    moved: Cell<u64>,
}

impl LoadRun {
    /// Returns a run whose clients have sent nothing. `end_to_end` bounds the messages of a
    /// publisher under way. The run stops when the crew does.
    pub(super) fn new(plan: LoadPlan, member: CrewMember, end_to_end: Option<u32>) -> Rc<LoadRun> {
        let LoadPlan { wire, extent, topology, part } = plan;
        let bounds = FlowBounds {
            messages: extent.messages,
            window: u32::from(wire.window),
            end_to_end,
            copies: topology.copies,
        };
        let flow = |_: &String| (RefCell::new(PublishFlow::new(bounds)), Notify::new());
        let run = Rc::new(LoadRun {
            deliveries: RefCell::new(DeliveryLog::new(
                wire.version,
                wire.qos,
                topology.copies,
                &topology.audiences,
            )),
            record: RefCell::new(RunRecord::new(clock::nanos(), extent.warmup)),
            lateness: RefCell::default(),
            flows: topology.topics.iter().map(flow).collect(),
            ending: Cell::new(false),
            changed: Notify::new(),
            moved: Cell::new(0),
            member,
            wire,
            extent,
            topology,
            part,
        });
        let stopped = Rc::clone(&run);
        tokio::task::spawn_local(async move {
            stopped.member.abandoned().await;
            stopped.stop();
        });
        run
    }

    /// Waits for all threads, then starts the measurement. Everything before was preparation.
    /// Returns the time of the start, which is the same in all threads.
    pub(super) async fn start(&self) -> u64 {
        self.member.together().await;
        let start = self.member.start();
        self.record.replace(RunRecord::new(start, self.extent.warmup));
        start
    }

    /// Waits for all threads, then forgets what was measured, and measures from now on.
    pub(super) async fn start_again(&self) {
        self.member.together().await;
        self.record.replace(RunRecord::new(clock::nanos(), Duration::ZERO));
    }

    /// Returns the options of a client of this thread.
    pub(super) fn options(&self, role: ClientRole, index: usize) -> Options {
        self.wire.options(role, self.part.number(index))
    }

    /// Returns the number of publishers of all threads, 1 at least.
    pub(super) fn all_publishers(&self) -> u32 {
        // With several threads, each publisher has its subscriber.
        let own = u32::try_from(self.topology.topics.len()).unwrap_or(u32::MAX);
        if self.member.threads() == 1 { own.max(1) } else { self.part.whole }
    }

    /// Reports to the board. The leading thread also closes the slot and shows it. `done` is the
    /// finished part of the run, from 0 to 1.
    pub(super) fn tick(&self, progress: &mut ProgressLine, done: f64) {
        self.report();
        if self.member.leads() {
            progress.show(done, &self.member.close_slot(clock::nanos()));
        }
    }

    /// Reports to the board.
    pub(super) fn report(&self) {
        let deliveries = self.deliveries.borrow();
        let totals = ThreadTotals { delivered: deliveries.delivered(), overdue: deliveries.overdue() };
        self.member.report(&mut self.record.borrow_mut().slot, totals);
    }

    /// Ends the publishing. No more messages are sent.
    pub(super) fn stop(&self) {
        self.ending.set(true);
        self.changed.notify_waiters();
        for (_, wake) in &self.flows {
            wake.notify_one();
        }
    }

    /// Returns true if no more messages are sent.
    pub(super) fn is_ending(&self) -> bool {
        self.ending.get()
    }

    /// Waits until the run is ending.
    pub(super) async fn stopped(&self) {
        let changed = self.changed.notified();
        if !self.is_ending() {
            changed.await;
        }
    }

    /// Returns true after ctrl-c.
    pub(super) fn interrupted(&self) -> bool {
        self.member.interrupted()
    }

    /// Ends the run of all threads after a failure. The first cause is kept.
    pub(super) fn fail(&self, cause: String) {
        self.member.crew().fail(cause);
        self.stop();
    }

    /// Returns the first failure of all threads, if there is one.
    pub(super) fn failure(&self) -> Option<String> {
        self.member.failure()
    }

    /// Returns a counter that grows with each progress.
    pub(super) fn moved(&self) -> u64 {
        self.moved.get()
    }

    fn moves(&self) {
        self.moved.set(self.moved.get() + 1);
    }

    /// Takes the next message of a publisher for sending. `due` is the time at which the message
    /// should leave; `None` means now.
    pub(super) fn take(&self, publisher: usize, due: Option<u64>) -> Option<Bytes> {
        let mut flow = self.flows.get(publisher)?.0.borrow_mut();
        let qos0 = self.wire.qos == QoS::AtMostOnce;
        let sequence = if qos0 { flow.take_unacknowledged() } else { flow.take() };
        self.deliveries.borrow_mut().sent();
        let now = clock::nanos();
        if let Some(due) = due {
            self.lateness.borrow_mut().add(now.saturating_sub(due));
        }
        let publisher = self.part.number(publisher);
        let stamp = Stamp { run: self.wire.run, publisher, sequence, time: due.unwrap_or(now) };
        Some(stamp.payload(self.wire.payload.of(publisher, sequence)))
    }

    /// Waits until the publisher may send. Returns false if it must not send any more.
    pub(super) async fn may_send(&self, publisher: usize) -> bool {
        let Some((flow, wake)) = self.flows.get(publisher) else { return false };
        loop {
            if self.is_ending() || flow.borrow().exhausted() {
                return false;
            }
            if flow.borrow().is_open() {
                return true;
            }
            if self.wire.qos != QoS::AtMostOnce {
                wake.notified().await;
            } else if tokio::time::timeout(WRITE_OFF, wake.notified()).await.is_err() {
                flow.borrow_mut().write_off();
            }
        }
    }

    /// Records that a message of a publisher is on the wire.
    pub(super) fn sent(&self, publisher: usize, id: u16) {
        self.with_flow(publisher, |flow| flow.sent(id));
    }

    /// Records that the broker acknowledged the message of a publisher to the end.
    pub(super) fn finished(&self, publisher: usize, id: u16) {
        self.with_flow(publisher, |flow| {
            flow.finished(id);
        });
    }

    /// Records that the broker refused the message of a publisher.
    pub(super) fn refused(&self, publisher: usize, id: u16) {
        self.with_flow(publisher, |flow| {
            if let Some(sequence) = flow.finished(id) {
                flow.refused(sequence);
                self.deliveries.borrow_mut().refused();
            }
        });
    }

    fn with_flow(&self, publisher: usize, change: impl FnOnce(&mut PublishFlow)) {
        if let Some((flow, wake)) = self.flows.get(publisher) {
            let mut flow = flow.borrow_mut();
            change(&mut flow);
            self.moves();
            if flow.is_open() {
                wake.notify_one();
            }
        }
    }

    /// Records an arrival. Returns its meaning and its stamp, or `None` if the message is not of
    /// this run.
    pub(super) fn arrived(
        &self,
        receiver: usize,
        message: &ReceivedPublish,
    ) -> Option<(ArrivalVerdict, Stamp)> {
        let now = clock::nanos();
        let ours = |stamp: &Stamp| {
            let size = self.wire.payload.of(stamp.publisher, stamp.sequence);
            stamp.run == self.wire.run && message.payload.len() == size
        };
        let stamp = Stamp::read(&message.payload).filter(ours);
        let Some((stamp, publisher)) =
            stamp.and_then(|stamp| Some((stamp, self.part.index(stamp.publisher)?)))
        else {
            self.deliveries.borrow_mut().foreign();
            return None;
        };
        let verdict = self.deliveries.borrow_mut().arrived(LoggedArrival {
            receiver,
            publisher: stamp.publisher,
            sequence: stamp.sequence,
            qos: message.qos,
            dup: message.dup,
            id: message.id,
        });
        if verdict == ArrivalVerdict::First {
            self.record.borrow_mut().arrived(stamp, now);
            self.with_flow(publisher, |flow| flow.arrived(stamp.sequence));
        }
        self.moves();
        Some((verdict, stamp))
    }

    /// Records the end of the handshake of a received message.
    pub(super) fn closed(&self, receiver: usize, id: u16) {
        self.deliveries.borrow_mut().closed(receiver, id);
        self.moves();
    }

    /// Returns true if everything has arrived and every publisher has its acknowledgements.
    pub(super) fn complete(&self) -> bool {
        self.deliveries.borrow().complete() && self.settled()
    }

    /// Returns true if every publisher has its acknowledgements.
    pub(super) fn settled(&self) -> bool {
        self.flows.iter().all(|(flow, _)| flow.borrow().is_settled())
    }

    /// Returns the part of all messages that is sent, from 0 to 1. Each publisher sends `messages`.
    pub(super) fn sent_of(&self, messages: u64) -> f64 {
        let all = messages.saturating_mul(self.flows.len() as u64);
        self.deliveries.borrow().counts().sent as f64 / all as f64
    }
}
