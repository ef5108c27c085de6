//! A subscriber with a session of its own. The subscriber withholds acknowledgements, loses its
//! connection, and comes back.
//!
//! The subscriber goes through the phases that the scenario announces. If the broker closes the
//! connection, the subscriber comes back at once, because a broker may disconnect a client in order
//! to redeliver.

use super::args::Withhold;
use super::client::{
    self, Acks, Broken, ClientConnection, ClientSender, Event, Options, ReceivedPublish, SessionLife,
};
use super::plan::ClientRole;
use super::record::Latencies;
use super::run::LoadRun;
use super::verify::ArrivalVerdict;
use super::withhold::{AckChoice, Policy};
use crate::clock;
use homing_core::mqtt::packet::QoS;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::watch;

/// The wait before a return to a broker that closed the connection.
const PAUSE: Duration = Duration::from_millis(100);
/// Maximum wait for a broker that does not close the connection after DISCONNECT.
const GOODBYE: Duration = Duration::from_secs(2);
/// Maximum number of disconnects by the broker before the run fails.
const CUTS: u32 = 1000;

/// The phase of the scenario, shared by all subscribers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RedeliveryPhase {
    /// Subscribers acknowledge by plan.
    Live,
    /// Subscribers are disconnected.
    Away,
    /// Subscribers acknowledge everything.
    Back,
    /// Subscribers have disconnected in order and connected again. Nothing may arrive any more.
    Again,
    /// Subscribers have left for good.
    Done,
}

/// The observations of all subscribers together.
#[derive(Debug, Default)]
pub(super) struct Sightings {
    /// Messages that the broker resent on the same connection.
    pub resent_live: u64,
    /// The time between two transmissions of one message on one connection.
    pub gaps: Latencies,
    pub redelivered_at_return: u64,
    /// Messages that arrived after everything was acknowledged.
    pub after_the_end: u64,
    pub cut_by_broker: u64,
    /// Subscribers that are connected after they were away.
    pub returned: usize,
}

/// One subscriber of the scenario `redelivery`.
pub(super) struct RedeliverySubscriber {
    pub run: Rc<LoadRun>,
    pub receiver: usize,
    pub policy: Policy,
    /// With [`Withhold::Crash`]: the number of first transmissions after which the subscriber
    /// closes its own connection.
    pub crash_after: u64,
    pub phases: watch::Receiver<RedeliveryPhase>,
    pub sightings: Rc<RefCell<Sightings>>,
}

/// The subscriber's knowledge of its session.
#[derive(Default)]
struct SubscriberMemory {
    /// Every QoS 2 identifier of the session; see [`Options::known_ids`].
    ids: HashSet<u16>,
    /// The last arrival of each open message on this connection, by identifier.
    last: HashMap<u16, u64>,
    /// Identifiers whose late acknowledgement is under way.
    pending: Rc<RefCell<HashSet<u16>>>,
    firsts: u64,
    crashed: bool,
    returned: bool,
}

/// The reason why a connection is no longer run.
enum SubscriberStop {
    Phase,
    Crashed,
    Cut(Broken),
}

/// Returns the options of a subscriber with a session that outlives its connection.
pub(super) fn options(run: &LoadRun, receiver: usize, acks: Acks) -> Options {
    Options { session: SessionLife::Kept, acks, ..run.options(ClientRole::Subscriber, receiver) }
}

impl RedeliverySubscriber {
    /// Goes through all phases, from a connection that has its subscription.
    pub(super) async fn live(mut self, sender: ClientSender, connection: ClientConnection) {
        let mut memory = SubscriberMemory::default();
        let mut client = Some((sender, connection));
        let mut cuts = 0;
        loop {
            let phase = *self.phases.borrow_and_update();
            let away = phase == RedeliveryPhase::Away || (phase == RedeliveryPhase::Live && memory.crashed);
            if phase == RedeliveryPhase::Done {
                return;
            }
            if away {
                client = None;
                if self.phases.changed().await.is_err() {
                    return;
                }
                continue;
            }
            let stop = match client.as_mut() {
                Some((sender, connection)) => {
                    if phase == RedeliveryPhase::Back && !std::mem::replace(&mut memory.returned, true) {
                        self.sightings.borrow_mut().returned += 1;
                    }
                    let stop = self.attend(phase, sender, connection, &mut memory).await;
                    self.catch_up(phase, connection, &mut memory);
                    stop
                }
                None => match self.come_back(&memory).await {
                    Ok(back) => {
                        client = Some(back);
                        memory.last.clear();
                        memory.pending = Rc::default();
                        continue;
                    }
                    Err(Broken(cause)) => return self.run.fail(cause),
                },
            };
            match stop {
                SubscriberStop::Crashed => memory.crashed = true,
                SubscriberStop::Phase => {
                    if matches!(*self.phases.borrow(), RedeliveryPhase::Again | RedeliveryPhase::Done)
                        && let Some(client) = client.take()
                    {
                        leave(client).await;
                    }
                }
                SubscriberStop::Cut(Broken(cause)) => {
                    client = None;
                    cuts += 1;
                    self.sightings.borrow_mut().cut_by_broker += 1;
                    if cuts > CUTS {
                        let receiver = self.receiver;
                        return self.run.fail(format!("subscriber {receiver} was cut {cuts} times: {cause}"));
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    async fn come_back(&self, memory: &SubscriberMemory) -> Result<(ClientSender, ClientConnection), Broken> {
        let known_ids = memory.ids.iter().copied().collect();
        let options = Options { known_ids, ..options(&self.run, self.receiver, Acks::ByHand) };
        let (sender, connection, present) = client::connect(&options).await?;
        if !present {
            return Err(Broken(format!("the broker has forgotten the session of {}", options.client_id)));
        }
        self.run.deliveries.borrow_mut().reconnected(self.receiver);
        Ok((sender, connection))
    }

    /// Runs one connection until the phase changes or the connection ends.
    async fn attend(
        &mut self,
        phase: RedeliveryPhase,
        sender: &ClientSender,
        connection: &mut ClientConnection,
        memory: &mut SubscriberMemory,
    ) -> SubscriberStop {
        loop {
            let event = tokio::select! {
                event = connection.next() => event,
                _ = self.phases.changed() => return SubscriberStop::Phase,
            };
            match event {
                Ok(Event::Message(message)) => {
                    self.receive(phase, sender, &message, memory);
                    let crash = self.policy.plan == Withhold::Crash && phase == RedeliveryPhase::Live;
                    if crash && memory.firsts >= self.crash_after {
                        return SubscriberStop::Crashed;
                    }
                }
                Ok(Event::Released { id }) => self.released(id, memory),
                Ok(_) => {}
                Err(broken) => return SubscriberStop::Cut(broken),
            }
        }
    }

    /// Records the events that rumqttc has read and not reported. These messages are not
    /// acknowledged.
    fn catch_up(
        &self,
        phase: RedeliveryPhase,
        connection: &mut ClientConnection,
        memory: &mut SubscriberMemory,
    ) {
        while let Some(event) = connection.buffered() {
            match event {
                Event::Message(message) => {
                    self.take(phase, &message, memory);
                }
                Event::Released { id } => self.released(id, memory),
                _ => {}
            }
        }
    }

    fn released(&self, id: u16, memory: &mut SubscriberMemory) {
        memory.last.remove(&id);
        self.run.closed(self.receiver, id);
    }

    fn receive(
        &self,
        phase: RedeliveryPhase,
        sender: &ClientSender,
        message: &ReceivedPublish,
        memory: &mut SubscriberMemory,
    ) {
        let Some((verdict, sequence)) = self.take(phase, message, memory) else {
            // A message of somebody else on a topic that the user chose must not take a place of
            // the broker's window.
            return acknowledge(&self.run, self.receiver, sender, message);
        };
        let live = phase == RedeliveryPhase::Live;
        let answer = if live { self.policy.answer(sequence, verdict) } else { AckChoice::Now };
        match answer {
            AckChoice::Now => acknowledge(&self.run, self.receiver, sender, message),
            AckChoice::Withheld => {}
            AckChoice::After(late) => self.acknowledge_late(late, sender, message, memory),
        }
    }

    /// Records a message. Returns its meaning and its sequence number, or `None` if the message is
    /// not of this run.
    fn take(
        &self,
        phase: RedeliveryPhase,
        message: &ReceivedPublish,
        memory: &mut SubscriberMemory,
    ) -> Option<(ArrivalVerdict, u64)> {
        memory.ids.insert(message.id);
        let (verdict, stamp) = self.run.arrived(self.receiver, message)?;
        self.book(phase, verdict, message.id, memory);
        memory.firsts += u64::from(verdict == ArrivalVerdict::First);
        Some((verdict, stamp.sequence))
    }

    fn book(&self, phase: RedeliveryPhase, verdict: ArrivalVerdict, id: u16, memory: &mut SubscriberMemory) {
        let now = clock::nanos();
        let before = memory.last.insert(id, now);
        let mut seen = self.sightings.borrow_mut();
        if phase == RedeliveryPhase::Again {
            seen.after_the_end += 1;
        }
        if verdict != ArrivalVerdict::Redelivered {
            return;
        }
        match before {
            Some(before) => {
                seen.resent_live += 1;
                seen.gaps.add(now.saturating_sub(before));
            }
            None => seen.redelivered_at_return += 1,
        }
    }

    /// Acknowledges a message after `late`. A message that comes again meanwhile is acknowledged
    /// once.
    fn acknowledge_late(
        &self,
        late: Duration,
        sender: &ClientSender,
        message: &ReceivedPublish,
        memory: &SubscriberMemory,
    ) {
        if !memory.pending.borrow_mut().insert(message.id) {
            return;
        }
        let (run, receiver, sender) = (Rc::clone(&self.run), self.receiver, sender.clone());
        let (message, pending) = (message.clone(), Rc::clone(&memory.pending));
        tokio::task::spawn_local(async move {
            tokio::time::sleep(late).await;
            pending.borrow_mut().remove(&message.id);
            acknowledge(&run, receiver, &sender, &message);
        });
    }
}

/// Sends PUBACK, which ends the handshake, or PUBREC, which does not.
fn acknowledge(run: &LoadRun, receiver: usize, sender: &ClientSender, message: &ReceivedPublish) {
    // If the connection has ended, the message comes again on the next one.
    if sender.acknowledge(message.qos, message.id).is_ok() && message.qos == QoS::AtLeastOnce {
        run.closed(receiver, message.id);
    }
}

/// Sends DISCONNECT after all earlier requests, and waits until the broker closes the connection.
///
/// The broker has then read every acknowledgement. A client that returned before might take the
/// session over while acknowledgements are still on the old connection, and would get their
/// messages again.
pub(super) async fn leave((sender, mut connection): (ClientSender, ClientConnection)) {
    if sender.disconnect().is_err() {
        return;
    }
    let closed = async { while connection.next().await.is_ok() {} };
    drop(tokio::time::timeout(GOODBYE, closed).await);
}

/// Ends the sessions of all subscribers, so that the run leaves nothing in the broker.
///
/// # Errors
/// The broker cannot be reached.
pub(super) async fn clear_sessions(run: &LoadRun) -> Result<(), Broken> {
    for receiver in 0..run.topology.filters.len() {
        let (sender, connection, _) = client::connect(&run.options(ClientRole::Subscriber, receiver)).await?;
        leave((sender, connection)).await;
    }
    Ok(())
}
