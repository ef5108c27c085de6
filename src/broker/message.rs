//! What the actors say to each other, apart from what the expiry actor says.

use super::shard::ShardActor;
use crate::expiry::actor::ExpiryActor;
use crate::journal::record::{Committed, ReadEntry};
use crate::routing::shard::commit::PageRequest;
use crate::routing::shard::exchange::Parcel;
use crate::store::writer::ToStore;
use actix::{Addr, Message};
use std::net::{SocketAddr, TcpStream};

/// A socket on its way to a shard: just accepted, or from the shard where its CONNECT was read.
#[derive(Debug)]
pub struct Incoming {
    /// Non-blocking.
    pub socket: TcpStream,
    pub peer: SocketAddr,
    /// What was read of it and not handled.
    pub unread: Vec<u8>,
}

/// Sockets for a shard; the listener sends what it could accept at once as one.
#[derive(Debug)]
pub struct Adopt(pub Vec<Incoming>);

impl Message for Adopt {
    type Result = ();
}

/// Who else there is, once all have started.
pub struct Introduce {
    /// In the order of their numbers, oneself included.
    pub shards: Vec<Addr<ShardActor>>,
    pub store: Option<ToStore>,
}

impl Message for Introduce {
    type Result = ();
}

impl Message for Committed {
    type Result = ();
}

/// What a queue had in the store.
#[derive(Debug)]
pub struct Page {
    pub request: PageRequest,
    pub entries: Vec<ReadEntry>,
}

impl Message for Page {
    type Result = ();
}

/// All have been introduced, and what they told each other is handled: from here on deadlines fire. What is due at once, a will
/// that was stored, has to meet every subscription.
pub struct Settle {
    pub expiry: Addr<ExpiryActor>,
}

impl Message for Settle {
    type Result = ();
}

impl Message for Parcel {
    type Result = ();
}

/// Tell every client that the broker stops, and close. Answered when no connection is left.
#[derive(Debug)]
pub struct Stop;

impl Message for Stop {
    type Result = ();
}
