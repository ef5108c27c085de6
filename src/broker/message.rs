//! What the actors say to each other, apart from what the expiry actor says.

use super::shard::ShardActor;
use crate::expiry::actor::ExpiryActor;
use crate::routing::shard::exchange::Parcel;
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
    pub expiry: Addr<ExpiryActor>,
}

impl Message for Introduce {
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
