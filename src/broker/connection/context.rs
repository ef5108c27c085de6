//! The context and the task of a connection actor: actix's mailbox and life cycle, without room for
//! other futures.
//!
//! A context here is a weak address and a state, where `actix::Context` takes some 350 bytes. The
//! reason and the measurement are in the documentation of the folder.

use super::{ConnectionActor, ConnectionHandle, ConnectionNotice, Endpoint, Transport};
use crate::broker::driver::ShardDriver;
use crate::shard::ConnectionId;
use actix::dev::{Envelope, Mailbox, ToEnvelope};
use actix::fut::ActorFuture;
use actix::{Actor, ActorContext, ActorState, Addr, AsyncContext, SpawnHandle, WeakAddr};
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::OnceLock;
use std::task::{Context, Poll};

/// The life cycle of one connection actor, and its address.
pub struct ConnectionContext {
    address: WeakAddr<ConnectionActor>,
    state: ActorState,
}

impl ActorContext for ConnectionContext {
    fn stop(&mut self) {
        self.state = ActorState::Stopping;
    }

    fn terminate(&mut self) {
        self.state = ActorState::Stopped;
    }

    fn state(&self) -> ActorState {
        self.state
    }
}

impl AsyncContext<ConnectionActor> for ConnectionContext {
    /// An address of the actor; one that is not connected once the actor is gone.
    fn address(&self) -> Addr<ConnectionActor> {
        static NOBODY: OnceLock<Addr<ConnectionActor>> = OnceLock::new();
        let nobody = || NOBODY.get_or_init(|| Mailbox::default().address()).clone();
        self.address.upgrade().unwrap_or_else(nobody)
    }

    /// Connections spawn nothing: their socket is polled by their task.
    fn spawn<F>(&mut self, _: F) -> SpawnHandle
    where
        F: ActorFuture<ConnectionActor, Output = ()> + 'static,
    {
        unreachable!("a connection actor has no futures but its socket")
    }

    fn wait<F>(&mut self, _: F)
    where
        F: ActorFuture<ConnectionActor, Output = ()> + 'static,
    {
        unreachable!("a connection actor has no futures but its socket")
    }

    fn waiting(&self) -> bool {
        self.state != ActorState::Running
    }

    fn cancel_future(&mut self, _: SpawnHandle) -> bool {
        false
    }
}

impl ToEnvelope<ConnectionActor, ConnectionNotice> for ConnectionContext {
    fn pack(
        notice: ConnectionNotice,
        answer: Option<tokio::sync::oneshot::Sender<()>>,
    ) -> Envelope<ConnectionActor> {
        Envelope::new(notice, answer)
    }
}

/// The actor as a task of its arbiter.
struct Task {
    connection: ConnectionActor,
    context: ConnectionContext,
    mailbox: Mailbox<ConnectionActor>,
}

/// Starts the actor of a connection on the current arbiter. Returns the driver's way to it.
pub fn start(
    driver: Rc<ShardDriver>,
    id: ConnectionId,
    peer: SocketAddr,
    transport: Transport,
) -> ConnectionHandle {
    let endpoint = Endpoint::new(transport);
    let connection = ConnectionActor::new(driver, id, Rc::clone(&endpoint));
    let mailbox = Mailbox::default();
    let address = mailbox.address().downgrade();
    let context = ConnectionContext { address: address.clone(), state: ActorState::Running };
    actix_rt::spawn(Task { connection, context, mailbox });
    ConnectionHandle::new(id, peer, endpoint, address)
}

impl Future for Task {
    type Output = ();

    /// The mailbox first, then the socket: a notice may ask something of it.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Task { connection, context, mailbox } = self.get_mut();
        connection.begin_turn();
        if connection.has_mail() {
            mailbox.poll(connection, context, cx);
        }
        connection.drive(cx);
        if connection.is_gone() {
            context.terminate();
            connection.stopped(context);
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

impl Drop for Task {
    /// The arbiter stops with the connection open.
    fn drop(&mut self) {
        self.connection.stopped(&mut self.context);
    }
}
