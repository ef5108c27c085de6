//! The context of a connection actor: actix's mailbox and life cycle without room for futures that it never has.
//!
//! `actix::Context` keeps some 350 bytes inline for spawned futures, timers and waits, and an `Addr` that is held costs two
//! allocations more. A connection polls its own socket and nothing else, so its context is a weak address and a flag;
//! at ten thousand idle connections that is four and a half megabytes.

use super::{Connection, Notice};
use actix::dev::{Envelope, Mailbox, ToEnvelope};
use actix::fut::ActorFuture;
use actix::{Actor, ActorContext, ActorState, Addr, AsyncContext, SpawnHandle, WeakAddr};
use std::future::Future;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll};

/// See the module's text.
pub struct ConnectionContext {
    address: WeakAddr<Connection>,
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

impl AsyncContext<Connection> for ConnectionContext {
    /// An address of the actor; one that is not connected once the actor is gone.
    fn address(&self) -> Addr<Connection> {
        static NOBODY: OnceLock<Addr<Connection>> = OnceLock::new();
        let nobody = || NOBODY.get_or_init(|| Mailbox::default().address()).clone();
        self.address.upgrade().unwrap_or_else(nobody)
    }

    /// Connections spawn nothing: their socket is polled by their task.
    fn spawn<F>(&mut self, _: F) -> SpawnHandle
    where
        F: ActorFuture<Connection, Output = ()> + 'static,
    {
        unreachable!("a connection actor has no futures but its socket")
    }

    fn wait<F>(&mut self, _: F)
    where
        F: ActorFuture<Connection, Output = ()> + 'static,
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

impl ToEnvelope<Connection, Notice> for ConnectionContext {
    fn pack(notice: Notice, answer: Option<tokio::sync::oneshot::Sender<()>>) -> Envelope<Connection> {
        Envelope::new(notice, answer)
    }
}

/// The actor as a task of its arbiter.
struct Task {
    connection: Connection,
    context: ConnectionContext,
    mailbox: Mailbox<Connection>,
}

/// Starts a connection actor on the current arbiter.
pub fn start(connection: Connection) -> WeakAddr<Connection> {
    let mailbox = Mailbox::default();
    let address = mailbox.address().downgrade();
    let context = ConnectionContext { address: address.clone(), state: ActorState::Running };
    actix_rt::spawn(Task { connection, context, mailbox });
    address
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
