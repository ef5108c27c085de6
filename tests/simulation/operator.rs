//! An operator looks at clients and acts on them, while everything else goes on.
//!
//! What the operator does is drawn apart from all else, and only in some plans, so a seed without
//! an operator plays as it did before there was one. `letters` has what the operator does with dead
//! letters.
//!
//! An operator acts on what a page showed, which may be some time ago: the message may be finished
//! or sent again by then, the session over, and its slot that of another client. Then the answer
//! says so, and no other message or client is touched.

use crate::gates::number_of;
use crate::letters::LetterStream;
use crate::rng::Rng;
use crate::trace::trace;
use crate::world::{Event, Phase, World};
use homing::events::client_events::DisconnectCause;
use homing::operators::client_commands::{MessageOf, OperatorAction, OperatorCommand, RedeliverBy};
use homing::operators::command::{Command, CommandOutcome};
use homing::operators::query::{Query, QueryAnswer, SessionName};
use homing::operators::unfinished::{PagePayloads, UnfinishedPart};
use homing::session::outbound::one_message::MessageName;
use homing::session::outbound::stall::SocketView;
use homing::shard::{LetterLimits, SessionId, shard_of};

/// Drawn apart from all else.
const OPERATOR: u64 = 0x18_0000_0000;

/// Few, so that the oldest letters go at times.
pub const LETTERS: LetterLimits = LetterLimits { letters: 8, bytes: 1 << 20 };

/// The most between two looks, in milliseconds; and that of an operator with dead letters.
const PAUSE_MS: u64 = 400;
const BUSY_MS: u64 = 120;

/// Returns what an operator of this seed draws from; `None` if there is no operator.
pub fn of_seed(seed: u64, letters: LetterStream, has_work: bool) -> Option<Rng> {
    let mut rng = Rng::new(seed ^ OPERATOR);
    let percent = if matches!(letters, LetterStream::Own(_)) { 100 } else { 30 };
    // A work queue has an account of its own, which knows of no skip.
    (rng.percent(percent) && !has_work).then_some(rng)
}

/// What an operator saw of a client.
#[derive(Clone)]
pub struct Seen {
    session: SessionId,
    messages: Vec<MessageName>,
}

/// When an operator saw what is acted on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sight {
    Now,
    Before,
}

impl World {
    /// The operator looks at a client, and may do something.
    pub fn operate(&mut self) {
        let Some(mut rng) = self.operator.take() else { return };
        if self.phase == Phase::Chaos {
            let pause = if self.letters.is_some() { BUSY_MS } else { PAUSE_MS };
            self.schedule(self.now + rng.between(1, pause), Event::Operate);
            let client = rng.below(self.clients.len() as u64) as usize;
            let name: Box<str> = self.clients[client].manners.name.as_str().into();
            let shard = self.shard_of_client(client);
            // While the broker is down nobody answers.
            if shard < self.nodes.len()
                && let Some(seen) = self.look(shard, &name, &mut rng)
            {
                let action = action(&mut rng, &seen);
                if let Some(letters) = &mut self.letters {
                    letters.remember(client, seen);
                }
                if let Some(action) = action {
                    let command = OperatorCommand { client: SessionName::Client(name), action };
                    self.command(client, shard, command, Sight::Now);
                }
            }
            self.act_on_what_was_seen(&mut rng);
            let busy = if self.letters.is_some() { 40 } else { 20 };
            if shard < self.nodes.len() && rng.percent(busy) {
                self.act_on_letter(shard, &mut rng);
            }
        }
        self.operator = Some(rng);
    }

    fn shard_of_client(&self, client: usize) -> usize {
        usize::from(shard_of(&self.clients[client].manners.name, self.plan.shards).0)
    }

    /// The operator acts on a page that is not new.
    fn act_on_what_was_seen(&mut self, rng: &mut Rng) {
        let Some((client, seen)) = self.letters.as_mut().and_then(|letters| letters.recall()) else { return };
        let shard = self.shard_of_client(client);
        if shard >= self.nodes.len() {
            return;
        }
        if let Some(action) = action(rng, &seen) {
            let name = self.clients[client].manners.name.as_str().into();
            let by_place = rng.percent(50);
            let target = if by_place { SessionName::At(seen.session) } else { SessionName::Client(name) };
            // The name of a stored message says nothing of its session.
            let action = match action {
                OperatorAction::Skip(of) if is_stored(of) => OperatorAction::Skip(of_any_session(of)),
                OperatorAction::Park(of) if is_stored(of) => OperatorAction::Park(of_any_session(of)),
                action => action,
            };
            let command = OperatorCommand { client: target, action };
            self.command_late(client, shard, seen.session, command);
        }
    }

    /// A command about something that may be over: it reaches what it names, or nothing.
    fn command_late(&mut self, client: usize, shard: usize, seen: SessionId, command: OperatorCommand) {
        let name = SessionName::Client(self.clients[client].manners.name.as_str().into());
        let present = self.unfinished_of(shard, &name);
        let is_same = present.as_ref().is_some_and(|(session, _)| *session == seen);
        let by_place = matches!(command.client, SessionName::At(_));
        let action = command.action;
        let outcome = self.command(client, shard, command, Sight::Before);
        let of = match action {
            OperatorAction::Skip(of) | OperatorAction::Park(of) => Some(of),
            _ => None,
        };
        let is_done = matches!(
            outcome,
            CommandOutcome::Done | CommandOutcome::Resent(_) | CommandOutcome::Disconnected
        );
        let is_listed =
            of.is_none_or(|of| present.as_ref().is_some_and(|(_, names)| names.contains(&of.name)));
        let is_bound = by_place || of.is_some_and(|of| of.session.is_some());
        if is_done && (!is_listed || is_bound && !is_same) {
            self.fail(format!("{action:?} on a page of {seen:?} is {outcome:?}: the session is {present:?}"));
        }
        if by_place && !is_same && outcome != CommandOutcome::NoSuchClient {
            self.fail(format!("{action:?} on {seen:?}, which is over, is {outcome:?}"));
        }
        if is_done {
            self.saw("an operator acts on an old page");
        } else if !is_same {
            self.saw("an operator acts on a session that is over");
        } else if !is_listed {
            self.saw("an operator acts on a message that is over");
        }
    }

    /// A connection ended: by an operator only if that was commanded for its client.
    pub fn check_operated(&self, client_id: Option<&str>, why: &DisconnectCause) -> Result<(), String> {
        let client = self.clients.iter().position(|c| Some(c.manners.name.as_str()) == client_id);
        let is_commanded = client.is_some_and(|client| self.oracle.commanded.contains(&client));
        if matches!(why, DisconnectCause::Operator) && !is_commanded {
            return Err(format!("an operator disconnected {client_id:?}, for which nothing was commanded"));
        }
        Ok(())
    }

    /// The unfinished messages of a session that have names; none if there is no such session.
    pub fn unfinished_of(&self, shard: usize, client: &SessionName) -> Option<(SessionId, Vec<MessageName>)> {
        let (mut session, mut names) = (None, Vec::new());
        for part in [UnfinishedPart::InFlight, UnfinishedPart::Queue] {
            let mut from = Some(0);
            while let Some(at) = from {
                let query = Query::Unfinished {
                    client: client.clone(),
                    part,
                    payloads: PagePayloads::Hidden,
                    from: at,
                    most: 50,
                };
                let QueryAnswer::Unfinished(page) = query.answer(self.instant(), &self.nodes[shard].core)
                else {
                    return None;
                };
                let page = page?;
                names.extend(page.rows.iter().filter_map(|row| row.name));
                (session, from) = (Some(page.session), page.next);
            }
        }
        session.map(|session| (session, names))
    }

    /// Lists the messages of a client page by page. All of them are there, each once.
    fn look(&mut self, shard: usize, name: &str, rng: &mut Rng) -> Option<Seen> {
        let now = self.instant();
        let client = SessionName::Client(name.into());
        let core = &self.nodes[shard].core;
        let QueryAnswer::Session(Some(detail)) =
            (Query::Session { client: client.clone() }).answer(now, core)
        else {
            return None;
        };
        let mut seen = Seen { session: detail.row.id, messages: Vec::new() };
        let parts = [
            (UnfinishedPart::InFlight, detail.row.in_flight),
            (UnfinishedPart::Queue, detail.row.queued + detail.row.held),
        ];
        for (part, expected) in parts {
            let (mut from, mut found, most) = (Some(0), 0, rng.between(1, 50) as usize);
            while let Some(at) = from {
                let query = Query::Unfinished {
                    client: client.clone(),
                    part,
                    payloads: PagePayloads::Hidden,
                    from: at,
                    most,
                };
                let QueryAnswer::Unfinished(Some(page)) = query.answer(now, &self.nodes[shard].core) else {
                    self.fail(format!("the session of {name} is gone between two pages"));
                    return None;
                };
                found += page.rows.len();
                seen.messages.extend(page.rows.iter().filter_map(|row| row.name));
                from = page.next;
            }
            if found != expected {
                self.fail(format!("{found} messages of {name} are listed, and it has {expected}: {part:?}"));
                return None;
            }
        }
        self.saw("an operator lists messages");
        Some(seen)
    }

    fn command(
        &mut self,
        client: usize,
        shard: usize,
        command: OperatorCommand,
        sight: Sight,
    ) -> CommandOutcome {
        if matches!(command.action, OperatorAction::Disconnect | OperatorAction::Redeliver(_)) {
            self.oracle.commanded.insert(client);
        }
        let now = self.instant();
        let connection = command.client.connection(&self.nodes[shard].core);
        let socket = connection.and_then(|id| self.socket_of(shard, id));
        let unsent = socket.map_or(0, |socket| self.sockets[socket].send_queue.len());
        let unread = socket.map_or(0, |socket| self.sockets[socket].up.len());
        let view = SocketView { unsent, arrived: unread, ..SocketView::default() };
        let done = command.carry_out(now, view, &mut self.nodes[shard].core);
        trace!(self, "shard {shard}: the operator: {command:?}: {done:?}");
        let drops = matches!(command.action, OperatorAction::Skip(_) | OperatorAction::Park(_));
        if drops
            && done.outcome == CommandOutcome::Done
            && let Some(live) = &self.oracle.live[client]
        {
            self.oracle.sessions[live.number].skipped += 1;
        }
        if done.outcome == CommandOutcome::Done {
            let shown = self.clients[client].manners.name.as_str();
            let stored = |name| match (name, &self.disk) {
                (MessageName::Stored(entry), Some(disk)) => {
                    disk.memory.look(|image| image.pending_message(entry).and_then(number_of))
                }
                _ => None,
            };
            match (command.action, &mut self.letters) {
                (OperatorAction::Skip(of), Some(letters)) => letters.skipped(of.name),
                (OperatorAction::Park(of), Some(letters)) => {
                    letters.parked(shown, of.name, (shard, done.commit), stored(of.name));
                }
                _ => {}
            }
        }
        match (command.action, done.outcome) {
            (OperatorAction::Skip(_), CommandOutcome::Done) => self.saw("an operator skips a message"),
            (OperatorAction::Park(_), CommandOutcome::Done) => self.saw("an operator parks a message"),
            (_, CommandOutcome::Resent(packets)) => {
                if packets > 0 {
                    self.saw("an operator has packets sent again");
                }
                // A packet that the network still has is sent again later.
                if let Some(socket) = socket {
                    self.sockets[socket].hastened.push(self.now);
                }
            }
            (_, CommandOutcome::Disconnected) => self.saw("an operator redelivers by a disconnect"),
            // The message was listed just now.
            (OperatorAction::Skip(_) | OperatorAction::Park(_), CommandOutcome::NoSuchMessage)
                if sight == Sight::Now =>
            {
                self.fail(format!("a listed message is not there: {command:?}"));
            }
            (OperatorAction::Park(_), CommandOutcome::NoRoom) if !self.shortage.is() => {
                self.fail(format!("there is room: {command:?}"));
            }
            _ => {}
        }
        self.after_core(shard);
        done.outcome
    }
}

fn is_stored(of: MessageOf) -> bool {
    matches!(of.name, MessageName::Stored(_))
}

fn of_any_session(of: MessageOf) -> MessageOf {
    MessageOf { session: None, ..of }
}

fn action(rng: &mut Rng, seen: &Seen) -> Option<OperatorAction> {
    let message = |rng: &mut Rng| {
        let name = *seen.messages.get(rng.below(seen.messages.len().max(1) as u64) as usize)?;
        Some(MessageOf { session: Some(seen.session), name })
    };
    match rng.below(100) {
        0..40 => None,
        40..50 => Some(OperatorAction::Disconnect),
        50..70 => Some(OperatorAction::Redeliver(rng.pick(&[
            RedeliverBy::Auto,
            RedeliverBy::Resend,
            RedeliverBy::Disconnect,
        ]))),
        70..85 => message(rng).map(OperatorAction::Skip),
        _ => message(rng).map(OperatorAction::Park),
    }
}
