//! The view of a running broker for its operators.
//!
//! The view is cheap to clone and may live on any thread. Figures come from counters that the
//! shards report once a second, so reading them costs the shards nothing.

use super::bridges::status::BridgeDirectory;
use super::file_edits::{ClientFile, ClientFileContent, FileEdit, FileEdited, NotEdited};
use super::open_listener::ListenerDirectory;
use super::question::{AskShard, CommandShard, PublishInShard, ShardAnswer, TraceShard};
use super::reload::{ReloadMode, Reloaded};
use super::shard_actor::ShardActor;
use super::signals::Request;
use super::sinks::status::SinkDirectory;
use super::statistics::BrokerStatistics;
use crate::config::KeyInForce;
use crate::events::trace::TraceWatch;
use crate::expiry::actor::ExpiryActor;
use crate::expiry::message::CountKeys;
use crate::expiry::queue::WheelCount;
use crate::mqtt::packet::ReasonCode;
use crate::operators::command::Command;
use crate::operators::publish_command::{NotPublished, PublishCommand};
use crate::operators::query::Query;
use crate::shard::{SharedState, shard_of};
use crate::store::view::StoreView;
use actix::{Addr, Handler, Message};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::WeakSender;
use tokio::sync::oneshot;

/// Time for the answer of a shard.
const ANSWER: Duration = Duration::from_secs(2);

/// A view of a running broker.
#[derive(Clone)]
pub struct Observer {
    statistics: Arc<BrokerStatistics>,
    shared: Arc<SharedState>,
    listeners: Arc<ListenerDirectory>,
    shards: Arc<[Addr<ShardActor>]>,
    /// Requests to the supervisor. A weak sender, because the broker stops when the last strong
    /// sender is dropped. `None` before the start is done.
    requests: Option<WeakSender<Request>>,
    expiry: Addr<ExpiryActor>,
    /// `None` without a data directory.
    store: Option<Arc<StoreView>>,
}

/// The shard did not answer in time, or the broker stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoAnswer;

impl Observer {
    pub(super) fn new(
        statistics: Arc<BrokerStatistics>,
        shared: Arc<SharedState>,
        listeners: Arc<ListenerDirectory>,
        shards: &[Addr<ShardActor>],
        expiry: Addr<ExpiryActor>,
    ) -> Observer {
        Observer { statistics, shared, listeners, shards: shards.into(), expiry, requests: None, store: None }
    }

    /// Adds the way to the store.
    pub(super) fn with_store(self, store: Option<Arc<StoreView>>) -> Observer {
        Observer { store, ..self }
    }

    /// Adds the way to the supervisor.
    pub(super) fn with_requests(self, requests: WeakSender<Request>) -> Observer {
        Observer { requests: Some(requests), ..self }
    }

    /// Returns the states of the bridges.
    pub fn bridges(&self) -> &BridgeDirectory {
        &self.statistics.bridges
    }

    /// Returns the states of the sinks.
    pub fn sinks(&self) -> &SinkDirectory {
        &self.statistics.sinks
    }

    /// Reads the configuration and its files again, after the reloads that were asked for before.
    /// The inner error has all mistakes; then nothing changes.
    ///
    /// # Errors
    /// The broker stops.
    pub async fn reload(&self, mode: ReloadMode) -> Result<Result<Reloaded, Vec<String>>, NoAnswer> {
        self.request(|reply| Request::Reload(mode, reply)).await
    }

    /// Returns every key of the configuration with the value in force and its source, in the order
    /// of the file. Waits for a reload that is under way.
    ///
    /// # Errors
    /// The broker stops.
    pub async fn configuration(&self) -> Result<Vec<KeyInForce>, NoAnswer> {
        self.request(Request::Configuration).await
    }

    /// Changes a file about clients, and puts it in force, after the reloads that were asked for
    /// before.
    ///
    /// # Errors
    /// The broker stops. The inner error says why the file is not changed.
    pub async fn edit_file(&self, edit: FileEdit) -> Result<Result<FileEdited, NotEdited>, NoAnswer> {
        self.request(|reply| Request::EditFile(edit, reply)).await
    }

    /// Returns the content of a file about clients.
    ///
    /// # Errors
    /// The broker stops. The inner error says why the file is not read.
    pub async fn read_file(
        &self,
        file: ClientFile,
    ) -> Result<Result<ClientFileContent, NotEdited>, NoAnswer> {
        self.request(|reply| Request::ReadFile(file, reply)).await
    }

    /// Sends a request to the supervisor. Returns the reply.
    pub(super) async fn request<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<T>) -> Request,
    ) -> Result<T, NoAnswer> {
        let requests = self.requests.as_ref().and_then(WeakSender::upgrade).ok_or(NoAnswer)?;
        let (reply, result) = oneshot::channel();
        requests.send(request(reply)).await.map_err(|_| NoAnswer)?;
        drop(requests);
        result.await.map_err(|_| NoAnswer)
    }

    /// Returns the number of shards.
    pub fn shards(&self) -> usize {
        self.shards.len()
    }

    /// Returns the number of the shard in which the session of a client lives.
    pub fn shard_of(&self, client_id: &str) -> usize {
        usize::from(shard_of(client_id, self.shards.len() as u8).0)
    }

    /// Carries out a command in a shard. Answers once the store has committed the change.
    ///
    /// # Errors
    /// There is no such shard, it does not answer within two seconds, or the broker stops. The
    /// command may be carried out all the same.
    pub async fn command<C>(&self, shard: usize, command: C) -> Result<C::Outcome, NoAnswer>
    where
        C: Command<Outcome: Send> + Send + 'static,
    {
        self.send(shard, CommandShard(command)).await?.ok_or(NoAnswer)
    }

    /// Publishes a message of an operator in a shard. Returns once the message is routed there. The
    /// returned answer comes when a client would get its PUBACK, and fails if the broker ends.
    ///
    /// # Errors
    /// There is no such shard, it does not answer within two seconds, or the broker stops. The
    /// message may be published all the same. The inner error says why it is not published.
    pub async fn publish(
        &self,
        shard: usize,
        command: PublishCommand,
    ) -> Result<Result<oneshot::Receiver<ReasonCode>, NotPublished>, NoAnswer> {
        self.send(shard, PublishInShard(command)).await
    }

    /// Asks a shard. Ask one question at a time: a mailbox takes any number of them, and the shard
    /// answers all before it reads a socket.
    ///
    /// # Errors
    /// There is no such shard, it does not answer within two seconds, or the broker stops.
    pub async fn ask(&self, shard: usize, query: Query) -> Result<ShardAnswer, NoAnswer> {
        self.send(shard, AskShard(query)).await
    }

    /// Sets the clients and topics that a shard traces. Its steps go to
    /// [`BrokerStatistics::trace_steps`].
    ///
    /// # Errors
    /// There is no such shard, it does not answer within two seconds, or the broker stops. The
    /// change may be made all the same.
    pub async fn trace(&self, shard: usize, watch: Option<Arc<TraceWatch>>) -> Result<(), NoAnswer> {
        self.send(shard, TraceShard(watch)).await
    }

    /// Counts the deadlines by bucket and kind. Costs the expiry actor 5 ms for each million keys,
    /// in stretches; so ask once a second at most.
    ///
    /// # Errors
    /// The actor does not answer within two seconds, or the broker stops.
    pub async fn count_deadlines(&self) -> Result<Arc<WheelCount>, NoAnswer> {
        let (reply, answer) = oneshot::channel();
        self.expiry.do_send(CountKeys { reply });
        let answer = tokio::time::timeout(ANSWER, answer).await;
        answer.map_err(|_| NoAnswer)?.map_err(|_| NoAnswer)
    }

    /// Sends a message to a shard, and waits for the answer. Settles first the memory that this
    /// thread has released: an earlier answer may have had the last reference to a message that a
    /// shard has removed meanwhile.
    async fn send<M>(&self, shard: usize, message: M) -> Result<M::Result, NoAnswer>
    where
        M: Message<Result: Send> + Send + 'static,
        ShardActor: Handler<M>,
    {
        self.shared.budget.report();
        let shard = self.shards.get(shard).ok_or(NoAnswer)?;
        let answer = tokio::time::timeout(ANSWER, shard.send(message)).await;
        answer.map_err(|_| NoAnswer)?.map_err(|_| NoAnswer)
    }

    /// Returns the counters of the broker, as of the shards' last reports.
    pub fn statistics(&self) -> &BrokerStatistics {
        &self.statistics
    }

    /// Returns the state that all shards share.
    pub fn shared(&self) -> &SharedState {
        &self.shared
    }

    /// Returns the way to the store; `None` without a data directory.
    pub fn store(&self) -> Option<&StoreView> {
        self.store.as_deref()
    }

    /// Returns the listeners.
    pub fn listeners(&self) -> &ListenerDirectory {
        &self.listeners
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::fixture;
    use crate::mqtt::charge::Charge;
    use crate::persistence::letter::{LetterNumber, LetterPlace};
    use actix::{AsyncContext, Context};
    use std::pin::pin;
    use std::task::{self, Poll, Waker};

    #[test]
    fn memory_that_this_thread_released_leaves_the_account_at_its_next_question() {
        let shared = fixture::shared();
        let expiry = Context::<ExpiryActor>::new().address();
        let statistics = fixture::statistics(&shared);
        let observer = Observer::new(statistics, Arc::clone(&shared), Arc::default(), &[], expiry);
        let letter = Charge::new(1_000);
        shared.budget.report();
        let of_all_threads = || {
            let in_use = std::thread::scope(|scope| scope.spawn(|| shared.budget.in_use()).join());
            in_use.expect("the thread ends")
        };
        let before = of_all_threads();
        drop(letter);
        assert_eq!(of_all_threads(), before, "no other thread knows of it yet");
        let place = LetterPlace { dropped_ms: 1, number: LetterNumber(1) };
        let mut question = pin!(observer.ask(0, Query::Letter(place)));
        let answer = question.as_mut().poll(&mut task::Context::from_waker(Waker::noop()));
        assert!(matches!(answer, Poll::Ready(Err(NoAnswer))), "there is no shard");
        assert_eq!(of_all_threads() + 1_000, before);
    }
}
