//! The clients of a run, as tasks: they connect, publish, receive and leave.

use super::client::{
    self, Acks, Broken, ClientConnection, ClientSender, Event, Options, OutgoingPublish, SessionLife,
};
use super::pace::{Alarm, Schedule};
use super::plan::ClientRole;
use super::progress::ProgressLine;
use super::run::LoadRun;
use super::subscriber::leave;
use bytes::Bytes;
use homing_core::mqtt::packet::QoS;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep_until};

/// Clients of a thread that connect at the same time.
const CONNECTING: usize = 100;
/// The interval of the display while clients connect.
const SHOWN: Duration = Duration::from_millis(250);
/// Maximum time in which all clients must have sent DISCONNECT.
const GOODBYE: Duration = Duration::from_secs(2);

/// A connected client.
pub(super) type ConnectedClient = (ClientSender, ClientConnection);

/// The times at which a publisher sends.
pub(super) enum Pace {
    /// After the wait, the publisher sends as soon as its flow is open.
    Closed { wait: Duration },
    /// The publisher sends the message `first` of the schedule, and then each `step`th one. The
    /// publisher does not wait for acknowledgements.
    Fixed { start: u64, schedule: Schedule, first: u64, step: u64, alarm: Alarm },
}

/// The times at which the clients of one call connect, by `--connect-rate`.
#[derive(Clone, Copy)]
pub(super) struct ConnectPace {
    start: Instant,
    every_s: f64,
}

impl ConnectPace {
    /// Returns the pace of clients from now on.
    pub(super) fn new(run: &LoadRun) -> ConnectPace {
        let every_s = run.wire.connect_rate.map_or(0.0, |rate| 1.0 / f64::from(rate));
        ConnectPace { start: Instant::now(), every_s }
    }

    /// Waits until the client may connect. `position` is its position among those of all threads.
    pub(super) async fn until(&self, position: u32) {
        if self.every_s > 0.0 {
            sleep_until(self.start + Duration::from_secs_f64(self.every_s * f64::from(position))).await;
        }
    }
}

/// Connects clients by their pace, and 100 at a time. A client with a filter also subscribes.
///
/// # Errors
/// The first client that fails, or the reason why the run was abandoned.
pub(super) async fn connect(
    run: &LoadRun,
    clients: Vec<(Options, Option<String>)>,
) -> Result<Vec<ConnectedClient>, Broken> {
    let (pace, places) = (ConnectPace::new(run), Rc::new(Semaphore::new(CONNECTING)));
    let mut tasks = JoinSet::new();
    for (index, (options, filter)) in clients.into_iter().enumerate() {
        let (qos, position, places) = (run.wire.qos, run.part.position(index), Rc::clone(&places));
        let (member, retain) = (run.member.clone(), run.wire.retain);
        tasks.spawn_local(async move {
            pace.until(position).await;
            let _place = places.acquire().await;
            let client = enter(&options, filter.as_deref(), qos, retain).await;
            if client.is_ok() {
                member.connected();
            }
            (index, client)
        });
    }
    let mut progress = ProgressLine::new("connecting", &run.member);
    let (all, mut shown) = (tasks.len(), interval(SHOWN));
    let mut connected = Vec::new();
    while !tasks.is_empty() {
        tokio::select! {
            joined = unless_abandoned(run, tasks.join_next()) => {
                let Some(joined) = joined? else { break };
                let (index, client) = joined.map_err(|error| Broken(error.to_string()))?;
                connected.push((index, client?));
            }
            // An absent broker is an error and no progress.
            _ = shown.tick() => if run.member.all_connected() > 0 {
                let text = format!("{} connected", run.member.all_connected());
                progress.say(connected.len() as f64 / all as f64, pace.start.elapsed().as_secs_f64(), &text);
            }
        }
    }
    connected.sort_by_key(|(index, _)| *index);
    Ok(connected.into_iter().map(|(_, client)| client).collect())
}

/// Waits for a future, unless the run is abandoned first.
///
/// # Errors
/// The run was abandoned; the text says why.
pub(super) async fn unless_abandoned<T>(run: &LoadRun, future: impl Future<Output = T>) -> Result<T, Broken> {
    tokio::select! {
        output = future => Ok(output),
        () = run.member.abandoned() => {
            Err(Broken(run.failure().unwrap_or_else(|| "interrupted while connecting".to_owned())))
        }
    }
}

async fn enter(
    options: &Options,
    filter: Option<&str>,
    qos: QoS,
    retain: bool,
) -> Result<ConnectedClient, Broken> {
    if retain && let Some(filter) = filter {
        refuse_retained(options, filter, qos).await?;
    }
    let (sender, mut connection, _) = client::connect(options).await?;
    if let Some(filter) = filter {
        subscribe(&sender, &mut connection, filter, qos).await?;
    }
    Ok((sender, connection))
}

/// Refuses topics with a retained message. The client that looks leaves no session.
async fn refuse_retained(options: &Options, filter: &str, qos: QoS) -> Result<(), Broken> {
    let options = Options { session: SessionLife::Clean, acks: Acks::AtOnce, ..options.clone() };
    let (sender, mut connection, _) = client::connect(&options).await?;
    // A retained message comes after the first SUBACK and before the second one.
    subscribe(&sender, &mut connection, filter, qos).await?;
    let retained = subscribe(&sender, &mut connection, filter, qos).await?;
    leave((sender, connection)).await;
    if retained {
        return Err(Broken(format!(
            "a topic of {filter} has a retained message, which --retain would overwrite and remove; use other topics"
        )));
    }
    Ok(())
}

/// Subscribes, and waits for SUBACK. Returns true if a retained message came meanwhile.
async fn subscribe(
    sender: &ClientSender,
    connection: &mut ClientConnection,
    filter: &str,
    qos: QoS,
) -> Result<bool, Broken> {
    sender.subscribe(filter, qos).await.map_err(|gone| Broken(gone.to_string()))?;
    let mut retained = false;
    loop {
        match connection.next().await {
            Ok(Event::Message(message)) => retained |= message.retain,
            Ok(Event::Subscribed { refused: false }) => return Ok(retained),
            Ok(Event::Subscribed { refused: true }) => {
                return Err(Broken(format!("the broker refuses the subscription to {filter}")));
            }
            Ok(_) => {}
            Err(Broken(cause)) => return Err(Broken(format!("no answer to SUBSCRIBE {filter}: {cause}"))),
        }
    }
}

/// Gives a publisher's messages to its client until its flow or the run ends.
pub(super) async fn produce(run: Rc<LoadRun>, publisher: usize, sender: ClientSender, pace: Pace) {
    let Some(topic) = run.topology.topics.get(publisher).cloned() else { return };
    if let Pace::Closed { wait } = &pace
        && !wait.is_zero()
    {
        tokio::select! {
            () = tokio::time::sleep(*wait) => {}
            () = run.stopped() => return,
        }
    }
    let mut ticks = 0_u64;
    while run.may_send(publisher).await {
        let due = match &pace {
            Pace::Closed { .. } => None,
            Pace::Fixed { start, schedule, first, step, alarm } => {
                let due = start + schedule.due(first + ticks * step);
                tokio::select! {
                    rung = alarm.until(due) => if let Err(error) = rung {
                        return run.fail(format!("no timer: {error}"));
                    },
                    () = run.stopped() => return,
                }
                ticks += 1;
                Some(due)
            }
        };
        let Some(payload) = run.take(publisher, due) else { return };
        let message = OutgoingPublish { topic: &topic, qos: run.wire.qos, retain: run.wire.retain, payload };
        if sender.publish(message).await.is_err() {
            // The task of the connection has reported the reason.
            return;
        }
    }
}

/// Runs a publisher's connection.
pub(super) async fn run_publisher(run: Rc<LoadRun>, publisher: usize, mut connection: ClientConnection) {
    loop {
        match connection.next().await {
            Ok(Event::Sent { id }) => run.sent(publisher, id),
            Ok(Event::Finished { id, refused: false }) => run.finished(publisher, id),
            Ok(Event::Finished { id, refused: true }) => run.refused(publisher, id),
            Ok(Event::Left) => return,
            Ok(_) => {}
            Err(Broken(cause)) => return broke(&run, "publisher", publisher, &cause),
        }
    }
}

/// Runs the connection of a subscriber whose client acknowledges at once.
pub(super) async fn run_subscriber(run: Rc<LoadRun>, receiver: usize, mut connection: ClientConnection) {
    loop {
        match connection.next().await {
            Ok(Event::Message(message)) => {
                run.arrived(receiver, &message);
                if message.qos == QoS::AtLeastOnce {
                    run.closed(receiver, message.id);
                }
            }
            Ok(Event::Released { id }) => run.closed(receiver, id),
            Ok(Event::Left) => return,
            Ok(_) => {}
            Err(Broken(cause)) => return broke(&run, "subscriber", receiver, &cause),
        }
    }
}

fn broke(run: &LoadRun, role: &str, index: usize, cause: &str) {
    run.fail(format!("the connection of {role} {index} broke: {cause}"));
}

/// The tasks and senders of a run's clients.
#[derive(Default)]
pub(super) struct RunningClients {
    senders: Vec<ClientSender>,
    connections: JoinSet<()>,
    pub producers: JoinSet<()>,
}

impl RunningClients {
    /// Connects all subscribers, then all publishers; the publishers are idle until
    /// [`RunningClients::publish`].
    ///
    /// # Errors
    /// As [`connect`].
    pub(super) async fn assemble(run: &Rc<LoadRun>) -> Result<RunningClients, Broken> {
        let mut running = RunningClients::default();
        let filters = run.topology.filters.iter().enumerate();
        let options = |index| run.options(ClientRole::Subscriber, index);
        let clients = filters.map(|(index, filter)| (options(index), Some(filter.clone())));
        running.receive(run, clients.collect()).await?;
        running.publishers(run).await?;
        Ok(running)
    }

    /// Connects subscribers that acknowledge at once.
    ///
    /// # Errors
    /// As [`connect`].
    pub(super) async fn receive(
        &mut self,
        run: &Rc<LoadRun>,
        clients: Vec<(Options, Option<String>)>,
    ) -> Result<(), Broken> {
        for (index, (sender, connection)) in connect(run, clients).await?.into_iter().enumerate() {
            self.senders.push(sender);
            self.connections.spawn_local(run_subscriber(Rc::clone(run), index, connection));
        }
        Ok(())
    }

    /// Connects the publishers. Their senders are the last in the list.
    ///
    /// # Errors
    /// As [`connect`].
    pub(super) async fn publishers(&mut self, run: &Rc<LoadRun>) -> Result<(), Broken> {
        let options = |index| run.options(ClientRole::Publisher, index);
        let clients = (0..run.topology.topics.len()).map(|index| (options(index), None));
        for (index, (sender, connection)) in connect(run, clients.collect()).await?.into_iter().enumerate() {
            self.senders.push(sender);
            self.connections.spawn_local(run_publisher(Rc::clone(run), index, connection));
        }
        Ok(())
    }

    /// Lets the publishers send, each at its own pace.
    pub(super) fn publish(&mut self, run: &Rc<LoadRun>, mut pace: impl FnMut(usize) -> Pace) {
        let publishers = self.senders.len().saturating_sub(run.topology.topics.len());
        for (index, sender) in self.senders.iter().skip(publishers).enumerate() {
            self.producers.spawn_local(produce(Rc::clone(run), index, sender.clone(), pace(index)));
        }
    }

    /// Removes retained messages of the run, and sends DISCONNECT from every client. Connections
    /// that take too long are closed.
    pub(super) async fn leave(mut self, run: &LoadRun) {
        if run.wire.retain {
            let publishers = self.senders.len().saturating_sub(run.topology.topics.len());
            for (sender, topic) in self.senders.iter().skip(publishers).zip(&run.topology.topics) {
                let payload = Bytes::new();
                let empty = OutgoingPublish { topic, qos: QoS::AtMostOnce, retain: true, payload };
                // An error only means that the connection has ended before.
                let _ = sender.publish(empty).await;
            }
        }
        for sender in &self.senders {
            // An error only means that the connection has ended before.
            let _ = sender.disconnect();
        }
        let all = async { while self.connections.join_next().await.is_some() {} };
        drop(tokio::time::timeout(GOODBYE, all).await);
    }
}
