//! The store at the start: what it had is shared out among the shards, and its threads are started.

use super::StartError;
use super::message::{Looked, Page};
use super::shard::ShardActor;
use crate::mqtt::message::Message;
use crate::routing::shard::Common;
use crate::routing::shard::commit::PageRequest;
use crate::routing::shard::delayed::HORIZON;
use crate::routing::shard::homes::{Share, rehome, share_out};
use crate::routing::shard::recover::in_flight;
use crate::routing::shard::slots::Id;
use crate::store::writer::{Notice, Options, SessionToken, Writer};
use crate::store::{Moment, Store, StoreError};
use actix::Addr;
use std::mem;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use tokio::sync::oneshot;
use tracing::{error, info, warn};

/// A store that was read and has no threads yet.
pub struct Opened {
    store: Box<dyn Store>,
    pub shares: Vec<Share>,
    pub retained: Vec<Message>,
}

/// Reads what is kept, for this number of shards.
pub fn open(mut store: Box<dyn Store>, shards: u8) -> Result<Opened, StoreError> {
    let now = Moment::now();
    let mut recovered = twice_if_full(|| store.recover(now, HORIZON))?;
    let copies = rehome(&mut recovered, shards);
    if !copies.is_empty() {
        twice_if_full(|| store.copy_bodies(&copies))?;
    }
    let wanted = in_flight(&recovered.sessions);
    let read = if wanted.is_empty() { Vec::new() } else { store.reader()?.entries(&wanted)? };
    let entries: usize = recovered.sessions.iter().map(|s| s.entries.len()).sum();
    info!(
        sessions = recovered.sessions.len(),
        messages = entries,
        in_flight = wanted.len(),
        retained = recovered.retained.len(),
        down_ms = u64::try_from(recovered.down.as_millis()).unwrap_or(u64::MAX),
        "recovered"
    );
    let retained = mem::take(&mut recovered.retained);
    let shares = share_out(recovered, read, now.monotonic + HORIZON, shards);
    Ok(Opened { store, shares, retained })
}

/// A broker that starts on a full disk starts: the first attempt has opened the reserve.
fn twice_if_full<T>(mut attempt: impl FnMut() -> Result<T, StoreError>) -> Result<T, StoreError> {
    match attempt() {
        Err(StoreError::Full(why)) => {
            warn!(why, "the store has no room; trying again with what is in reserve");
            attempt()
        }
        other => other,
    }
}

impl Opened {
    /// Starts the committing and the reading thread. `failed` is told when what is kept is not known any more.
    pub fn start(
        self,
        options: Options,
        shards: Vec<Addr<ShardActor>>,
        common: Arc<Common>,
        failed: oneshot::Sender<StoreError>,
    ) -> Result<Writer, StartError> {
        let failed = Mutex::new(Some(failed));
        let budget = Arc::clone(&common.budget);
        let on = move |notice| match notice {
            Notice::Committed(committed) => {
                if let Some(shard) = shards.get(usize::from(committed.shard)) {
                    shard.do_send(committed);
                }
            }
            Notice::Page { shard, session, wanted, entries } => {
                let SessionToken { slot, generation } = session;
                let request = PageRequest { session: Id::new(slot, generation), wanted };
                if let Some(shard) = shards.get(usize::from(shard)) {
                    shard.do_send(Page { request, entries });
                }
            }
            Notice::Delayed { shard, request, delayed } => {
                if let Some(shard) = shards.get(usize::from(shard)) {
                    shard.do_send(Looked { request, delayed });
                }
            }
            Notice::Full(full) => common.store_full.store(full, Ordering::Relaxed),
            Notice::Room(bytes) => common.store_room.store(bytes, Ordering::Relaxed),
            Notice::Failed(cause) => {
                error!(%cause, "the store failed: nothing more is acknowledged");
                let taken = failed.lock().ok().and_then(|mut failed| failed.take());
                if let Some(failed) = taken {
                    let _ = failed.send(cause);
                }
            }
        };
        Ok(Writer::start(self.store, options, budget, on)?)
    }
}
