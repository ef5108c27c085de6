//! The life of a node: it joins the cluster with its data directory, stands by, and serves when the
//! cell is its own.

use super::drift;
use super::driver::{self, DriverStart};
use super::engine::Engine;
use super::membership::{JoinError, Membership};
use super::messages::{DriverDoor, DriverInput, End, IsAlive, NodeEvent, NodeFacts};
use super::row::{self, ClusterView, RowsStart};
use super::snapshots;
use crate::broker::owner_door::OwnerDoor;
use crate::config::{Cluster, IsolationAction};
use crate::store::StoreError;
use crate::store::log::new_id;
use crate::store::sqlite::base::{mark_of, move_mark};
use crate::store::sqlite::directory::database_in;
use std::path::Path;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tracing::info;

/// A node that has joined its cluster.
pub struct Node {
    driver: DriverDoor,
    /// What it has to do.
    pub events: UnboundedReceiver<NodeEvent>,
    /// The cluster as it sees it.
    pub view: Arc<ClusterView>,
}

/// The way to a node that runs.
#[derive(Clone)]
pub struct NodeDoor(DriverDoor);

impl Node {
    /// Joins with this data directory, and stands by. Waits as long as the engine is away.
    ///
    /// # Errors
    /// The settings, the engine or the directory are not as they have to be.
    pub fn join(settings: &Cluster, engine: Arc<dyn Engine>, data: &Path) -> Result<Node, JoinError> {
        let Membership { core, database } = Membership::take(settings, &*engine, data)?;
        let facts = Arc::new(Mutex::new(NodeFacts::at_start(&core.start)));
        let (events, received) = unbounded_channel();
        let ((wake_rows, wakes), (to_digests, of_config)) = (channel(), channel());
        let view = ClusterView::new(settings, Arc::clone(&facts), to_digests, wake_rows.clone());
        let view = Arc::new(view);
        let driver = driver::start(DriverStart {
            engine: Arc::clone(&engine),
            core,
            database,
            keeps_clients: settings.isolation == IsolationAction::Keep,
            facts,
            events,
            wake_rows,
            append_times: Arc::clone(&view.appends),
        })?;
        let rows = row::start(RowsStart {
            engine: Arc::clone(&engine),
            view: Arc::clone(&view),
            directory: core.node.directory,
            process: new_id(),
            log: core.log,
            driver: driver.clone(),
            wakes,
        });
        let drift = rows.and_then(|()| drift::start(Arc::clone(&view), of_config));
        let snapshots =
            drift.and_then(|()| snapshots::start(engine, Arc::clone(&view), data.to_owned(), core.log));
        snapshots.map_err(|error| StoreError::Failed(format!("a thread for the cluster: {error}")))?;
        let (Cluster { name: cluster, node, .. }, position) = (settings, core.start.position.0);
        info!(event = "cluster.joined", cluster, node, position, "this node stands by");
        Ok(Node { driver, events: received, view })
    }

    /// Returns the way to the node.
    pub fn door(&self) -> NodeDoor {
        NodeDoor(self.driver.clone())
    }
}

impl NodeDoor {
    /// Says that the broker has recovered its store, and can let clients in.
    pub fn recovered(&self, door: OwnerDoor, is_alive: IsAlive) {
        self.0.tell(DriverInput::Recovered(door, is_alive));
    }

    /// Says that the node is to leave.
    pub fn leave(&self) {
        self.0.tell(DriverInput::Drain);
    }

    /// Says that the broker has ended, and that nothing is left to store.
    pub fn flushed(&self) {
        self.0.tell(DriverInput::Flushed);
    }
}

/// Writes the end of a node into the database that its broker has closed: the frames behind the last
/// group change nothing.
///
/// # Errors
/// The file cannot be read or written.
pub fn write_end(data: &Path, end: &End) -> Result<(), StoreError> {
    let database = database_in(data);
    let has = mark_of(&database)?.1.position;
    if has < end.mark.position && has >= end.groups { move_mark(&database, &end.mark) } else { Ok(()) }
}
