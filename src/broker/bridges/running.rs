//! The tasks of a list in the configuration: one for each bridge, one for each sink.

use super::parts::OwnLimits;
use crate::auth::random::random;
use std::collections::HashMap;
use std::sync::mpsc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_local};

/// Time for tasks that end to say so to both sides.
const END: Duration = Duration::from_secs(3);

/// The end of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::broker) enum Ending {
    /// The task goes on.
    NotYet,
    /// Its configuration has changed, so it begins anew.
    Changed,
    /// The configuration has it no more.
    Removed,
    /// The broker stops.
    Stopped,
}

/// Kept by a task until its session has its subscriptions, or the first try has failed. A broker that
/// starts lets no client in before, because a message of a client would not come to that session.
pub(in crate::broker) type Beginning = mpsc::Sender<()>;

/// An item of the configuration that has a task.
pub(in crate::broker) trait Configured: Clone + PartialEq {
    /// Returns the name, which no other item of its list has.
    fn label(&self) -> &str;
}

/// A task that runs.
struct Running<S> {
    item: S,
    ending: watch::Sender<Ending>,
    task: JoinHandle<()>,
}

/// The tasks of one list, by name.
pub(in crate::broker) struct RunningTasks<S> {
    running: HashMap<String, Running<S>>,
    own: Option<OwnLimits>,
}

impl<S: Configured> RunningTasks<S> {
    pub(in crate::broker) fn new() -> RunningTasks<S> {
        RunningTasks { running: HashMap::new(), own: None }
    }

    /// Ends the tasks whose item has changed or is gone, and waits for them. Then begins those that
    /// are wanted and do not run.
    pub(in crate::broker) async fn change<T>(
        &mut self,
        wanted: Vec<S>,
        own: OwnLimits,
        begin: impl Fn(S, watch::Receiver<Ending>) -> T,
    ) where
        T: Future<Output = ()> + 'static,
    {
        let keeps = |item: &S| self.own == Some(own) && wanted.contains(item);
        let mut ended = Vec::new();
        self.running.retain(|name, running| {
            let is_named = wanted.iter().any(|item| item.label() == name);
            keeps(&running.item) || {
                let _ = running.ending.send(if is_named { Ending::Changed } else { Ending::Removed });
                ended.push(std::mem::replace(&mut running.task, spawn_local(async {})));
                false
            }
        });
        join(ended).await;
        self.own = Some(own);
        for item in wanted {
            let name = item.label().to_owned();
            self.running.entry(name).or_insert_with(|| {
                let (ending, ends) = watch::channel(Ending::NotYet);
                let task = spawn_local(begin(item.clone(), ends));
                Running { item, ending, task }
            });
        }
    }

    /// Ends all tasks, and waits for them.
    pub(in crate::broker) async fn stop(self) {
        let tasks = self.running.into_values().map(|running| {
            let _ = running.ending.send(Ending::Stopped);
            running.task
        });
        join(tasks.collect()).await;
    }
}

/// Waits for the end of tasks, for a bounded time.
async fn join(tasks: Vec<JoinHandle<()>>) {
    let all = async {
        for task in tasks {
            let _ = task.await;
        }
    };
    let _ = tokio::time::timeout(END, all).await;
}

/// Returns a number from 0 to 1.
pub(in crate::broker) fn chance() -> f64 {
    random::<2>().map_or(1.0, |bytes| f64::from(u16::from_le_bytes(*bytes)) / f64::from(u16::MAX))
}
