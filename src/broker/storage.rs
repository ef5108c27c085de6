//! The store at the start: its contents are shared out among the shards, and its threads are
//! started.

use super::message::{DelayedPage, Page, StoredUpTo};
use super::start_error::StartError;
use crate::broker::shard_actor::ShardActor;
use crate::durability::read_requests::PageRequest;
use crate::mqtt::retained_message::RetainedMessage;
use crate::shard::SharedState;
use crate::shard::features::delayed::HORIZON;
use crate::shard::recovery::in_flight;
use crate::shard::recovery::placement::{RecoveredShard, repartition, share_out};
use crate::slots::Id;
use crate::store::view::StoreView;
use crate::store::writer::{SessionToken, Writer, WriterNotice, WriterOptions};
use crate::store::{Moment, Store, StoreError};
use crate::time::millis;
use actix::Addr;
use std::mem;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use tokio::sync::oneshot;
use tracing::{error, info, warn};

/// A store that was read and whose threads do not run yet.
pub(super) struct OpenedStore {
    store: Box<dyn Store>,
    /// The recovered sessions and messages of each shard.
    pub sessions: Vec<RecoveredShard>,
    /// The recovered retained messages of the whole broker.
    pub retained: Vec<RetainedMessage>,
}

/// Reads the store and shares its contents out among this number of shards.
///
/// # Errors
/// The store cannot be read, or has no room for the changes of the start.
pub(super) fn open(mut store: Box<dyn Store>, shards: u8) -> Result<OpenedStore, StoreError> {
    let now = Moment::now();
    let mut recovered = twice_if_full(|| store.recover(now, HORIZON))?;
    let copies = repartition(&mut recovered, shards);
    if !copies.is_empty() {
        twice_if_full(|| store.copy_bodies(&copies))?;
    }
    let wanted = in_flight(&recovered.sessions);
    let read = if wanted.is_empty() { Vec::new() } else { store.reader()?.entries(&wanted)? };
    let entries: usize = recovered.sessions.iter().map(|s| s.entries.len()).sum();
    info!(
        event = "store.recovered",
        sessions = recovered.sessions.len(),
        messages = entries,
        in_flight = wanted.len(),
        retained = recovered.retained.len(),
        down_ms = millis(recovered.down),
        "recovered"
    );
    let retained = mem::take(&mut recovered.retained);
    let sessions = share_out(recovered, read, now.monotonic + HORIZON, shards);
    Ok(OpenedStore { store, sessions, retained })
}

/// Makes two attempts, so that a broker starts on a full disk: the first attempt opens the reserve
/// of the store.
fn twice_if_full<T>(mut attempt: impl FnMut() -> Result<T, StoreError>) -> Result<T, StoreError> {
    match attempt() {
        Err(StoreError::Full(why)) => {
            warn!(
                event = "store.opened_with_reserve",
                why,
                "the store has no room: trying again with its reserve; make room on the disk, or raise store.size_limit"
            );
            attempt()
        }
        other => other,
    }
}

impl OpenedStore {
    /// Returns the way of operators to the store.
    pub(super) fn view(&self, shared: &SharedState) -> StoreView {
        StoreView::new(self.store.opener(), self.store.directory(), Arc::clone(&shared.budget))
    }

    /// Starts the committing and the reading thread. `failed` receives the cause when the store
    /// fails. Errors: the store cannot be read from a second thread, or the system refuses a
    /// thread.
    pub(super) fn start(
        self,
        options: WriterOptions,
        shards: Vec<Addr<ShardActor>>,
        shared: Arc<SharedState>,
        failed: oneshot::Sender<StoreError>,
    ) -> Result<Writer, StartError> {
        let failed = Mutex::new(Some(failed));
        let budget = Arc::clone(&shared.budget);
        let on = move |notice| match notice {
            WriterNotice::Committed(committed) => {
                if let Some(shard) = shards.get(usize::from(committed.shard)) {
                    shard.do_send(StoredUpTo(committed.lsn));
                }
            }
            WriterNotice::Page { shard, session, wanted, entries } => {
                let SessionToken { slot, generation } = session;
                let request = PageRequest { session: Id::new(slot, generation), wanted };
                if let Some(shard) = shards.get(usize::from(shard)) {
                    shard.do_send(Page { request, entries });
                }
            }
            WriterNotice::Delayed { shard, request, delayed } => {
                if let Some(shard) = shards.get(usize::from(shard)) {
                    shard.do_send(DelayedPage { request, delayed });
                }
            }
            WriterNotice::Full(full) => shared.store_full.store(full, Ordering::Relaxed),
            WriterNotice::Room(bytes) => shared.store_room.store(bytes, Ordering::Relaxed),
            WriterNotice::Failed(cause) => {
                error!(event = "store.failed", %cause, "the store failed: no message is acknowledged from here on");
                let taken = failed.lock().ok().and_then(|mut failed| failed.take());
                if let Some(failed) = taken {
                    let _ = failed.send(cause);
                }
            }
        };
        Ok(Writer::start(self.store, options, budget, on)?)
    }
}
