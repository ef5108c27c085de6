//! The clients of a run, as tasks: they connect, publish, receive and leave.

use super::client::{self, Broken, ClientConnection, ClientSender, Event, Options};
use super::pace::Alarm;
use super::run::LoadRun;
use crate::mqtt::packet::QoS;
use std::rc::Rc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Clients that connect at the same time.
const CONNECTING: usize = 100;
/// Maximum time in which all clients must have sent DISCONNECT.
const GOODBYE: Duration = Duration::from_secs(2);

/// A connected client.
pub(super) type ConnectedClient = (ClientSender, ClientConnection);

/// The times at which a publisher sends.
pub(super) enum Pace {
    /// The publisher sends as soon as its flow is open.
    Closed,
    /// The publisher sends at `first`, and then every `every` nanoseconds. The publisher does not
    /// wait for acknowledgements.
    Fixed { first: u64, every: f64, alarm: Alarm },
}

/// Connects clients, 100 at a time. A client with a filter also subscribes.
///
/// # Errors
/// The first client that fails, or the reason why the run was abandoned.
pub(super) async fn connect(
    run: &LoadRun,
    clients: Vec<(Options, Option<String>)>,
) -> Result<Vec<ConnectedClient>, Broken> {
    let mut connected = Vec::new();
    let mut waiting = clients.into_iter();
    loop {
        let mut tasks = JoinSet::new();
        for (index, (options, filter)) in waiting.by_ref().take(CONNECTING).enumerate() {
            let qos = run.wire.qos;
            tasks.spawn_local(async move { (index, enter(&options, filter.as_deref(), qos).await) });
        }
        if tasks.is_empty() {
            return Ok(connected);
        }
        let mut batch = Vec::new();
        while let Some(joined) = unless_abandoned(run, tasks.join_next()).await? {
            let (index, client) = joined.map_err(|error| Broken(error.to_string()))?;
            batch.push((index, client?));
        }
        batch.sort_by_key(|(index, _)| *index);
        connected.extend(batch.into_iter().map(|(_, client)| client));
    }
}

/// Waits for a future, unless the run is abandoned first.
///
/// # Errors
/// The run was abandoned; the text says why.
pub(super) async fn unless_abandoned<T>(run: &LoadRun, future: impl Future<Output = T>) -> Result<T, Broken> {
    tokio::select! {
        output = future => Ok(output),
        () = run.abandoned() => {
            Err(Broken(run.failure().unwrap_or_else(|| "interrupted while connecting".to_owned())))
        }
    }
}

async fn enter(options: &Options, filter: Option<&str>, qos: QoS) -> Result<ConnectedClient, Broken> {
    let (sender, mut connection, _) = client::connect(options).await?;
    if let Some(filter) = filter {
        subscribe(&sender, &mut connection, filter, qos).await?;
    }
    Ok((sender, connection))
}

async fn subscribe(
    sender: &ClientSender,
    connection: &mut ClientConnection,
    filter: &str,
    qos: QoS,
) -> Result<(), Broken> {
    sender.subscribe(filter, qos).await.map_err(|gone| Broken(gone.to_string()))?;
    loop {
        match connection.next().await {
            Ok(Event::Subscribed { refused: false }) => return Ok(()),
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
    let mut ticks = 0_u64;
    while run.may_send(publisher).await {
        let due = match &pace {
            Pace::Closed => None,
            Pace::Fixed { first, every, alarm } => {
                let due = first + (ticks as f64 * every) as u64;
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
        if sender.publish(&topic, run.wire.qos, payload).await.is_err() {
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
        let clients = filters.map(|(index, filter)| (run.wire.options("s", index), Some(filter.clone())));
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
        let clients = (0..run.topology.topics.len()).map(|index| (run.wire.options("p", index), None));
        for (index, (sender, connection)) in connect(run, clients.collect()).await?.into_iter().enumerate() {
            self.senders.push(sender);
            self.connections.spawn_local(run_publisher(Rc::clone(run), index, connection));
        }
        Ok(())
    }

    /// Lets the publishers send, each at its own pace.
    pub(super) fn publish(&mut self, run: &Rc<LoadRun>, mut pace: impl FnMut(usize) -> Pace) {
        let first = self.senders.len().saturating_sub(run.topology.topics.len());
        for (index, sender) in self.senders.iter().skip(first).enumerate() {
            self.producers.spawn_local(produce(Rc::clone(run), index, sender.clone(), pace(index)));
        }
    }

    /// Sends DISCONNECT from every client. Connections that take too long are closed.
    pub(super) async fn leave(mut self) {
        for sender in &self.senders {
            // An error only means that the connection has ended before.
            let _ = sender.disconnect();
        }
        let all = async { while self.connections.join_next().await.is_some() {} };
        drop(tokio::time::timeout(GOODBYE, all).await);
    }
}
