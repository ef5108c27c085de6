//! The context and the task of a connection actor: actix's mailbox and life cycle, without room for
//! other futures.
//!
//! A context here is a weak address and a state, where `actix::Context` takes some 350 bytes. The
//! reason and the measurement are in the documentation of the folder. This file does not know what
//! the actor does: it polls an actor of the trait [`Polled`].

use actix::dev::{Envelope, Mailbox, ToEnvelope};
use actix::fut::ActorFuture;
use actix::{Actor, ActorContext, ActorState, Addr, AsyncContext, Handler, Message, SpawnHandle, WeakAddr};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// An actor whose task polls it besides its mailbox.
pub(super) trait Polled: Actor<Context = ConnectionContext<Self>> {
    /// Called first in each poll. Returns true if the mailbox may hold messages. The task then polls
    /// the mailbox.
    fn begin_turn(&mut self) -> bool;

    /// Does the work of this poll, after the mailbox.
    fn drive(&mut self, cx: &mut Context<'_>);

    /// Returns true if the actor is to end.
    fn is_gone(&self) -> bool;
}

/// The life cycle of one actor, and its address.
pub struct ConnectionContext<A: Actor<Context = ConnectionContext<A>>> {
    address: WeakAddr<A>,
    state: ActorState,
}

impl<A: Actor<Context = ConnectionContext<A>>> ActorContext for ConnectionContext<A> {
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

impl<A: Actor<Context = ConnectionContext<A>>> AsyncContext<A> for ConnectionContext<A> {
    /// Returns an address of the actor. The address is not connected if the actor is gone.
    fn address(&self) -> Addr<A> {
        self.address.upgrade().unwrap_or_else(|| Mailbox::default().address())
    }

    /// # Panics
    /// Always: the only future of a connection is its socket, which its task polls.
    fn spawn<F>(&mut self, _: F) -> SpawnHandle
    where
        F: ActorFuture<A, Output = ()> + 'static,
    {
        unreachable!("a connection actor has no futures but its socket")
    }

    /// # Panics
    /// Always, as `spawn` does.
    fn wait<F>(&mut self, _: F)
    where
        F: ActorFuture<A, Output = ()> + 'static,
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

impl<A, M> ToEnvelope<A, M> for ConnectionContext<A>
where
    A: Actor<Context = ConnectionContext<A>> + Handler<M>,
    M: Message + Send + 'static,
    M::Result: Send,
{
    fn pack(message: M, answer: Option<tokio::sync::oneshot::Sender<M::Result>>) -> Envelope<A> {
        Envelope::new(message, answer)
    }
}

/// The actor as a task of its thread.
struct Task<A: Polled> {
    actor: A,
    context: ConnectionContext<A>,
    mailbox: Mailbox<A>,
}

/// Starts an actor on the current thread, and returns its address.
pub(super) fn spawn<A: Polled>(actor: A) -> WeakAddr<A> {
    let mailbox = Mailbox::default();
    let address = mailbox.address().downgrade();
    let context = ConnectionContext { address: address.clone(), state: ActorState::Running };
    actix_rt::spawn(Task { actor, context, mailbox });
    address
}

impl<A: Polled> Future for Task<A> {
    type Output = ();

    /// Polls the mailbox first and then the socket, because a notice may ask something of the
    /// socket.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Task { actor, context, mailbox } = self.get_mut();
        if actor.begin_turn() {
            mailbox.poll(actor, context, cx);
        }
        actor.drive(cx);
        if actor.is_gone() {
            context.terminate();
            actor.stopped(context);
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

impl<A: Polled> Drop for Task<A> {
    /// The thread stops while the connection is open.
    fn drop(&mut self) {
        self.actor.stopped(&mut self.context);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    struct Idle;

    impl Actor for Idle {
        type Context = ConnectionContext<Idle>;
    }

    fn context() -> ConnectionContext<Idle> {
        // The mailbox is gone at once.
        let address = Mailbox::default().address().downgrade();
        ConnectionContext { address, state: ActorState::Running }
    }

    #[test]
    fn the_address_of_an_actor_that_is_gone_is_not_connected() {
        assert!(!context().address().connected());
        let mailbox = Mailbox::<Idle>::default();
        let context =
            ConnectionContext { address: mailbox.address().downgrade(), state: ActorState::Running };
        assert!(context.address().connected());
    }

    #[test]
    fn a_stopped_context_polls_no_mailbox() {
        let mut context = context();
        assert!(!context.waiting());
        context.stop();
        assert_eq!(context.state(), ActorState::Stopping);
        assert!(context.waiting());
        context.terminate();
        assert_eq!(context.state(), ActorState::Stopped);
    }

    #[test]
    fn futures_and_timers_cannot_be_spawned() {
        let spawn = || context().spawn(actix::fut::ready(()));
        assert!(catch_unwind(AssertUnwindSafe(spawn)).is_err());
        let wait = || context().wait(actix::fut::ready(()));
        assert!(catch_unwind(AssertUnwindSafe(wait)).is_err());
    }
}
