//! An operator looks at clients and acts on them, while everything else goes on.
//!
//! What the operator does is drawn apart from all else, and only in some plans, so a seed without
//! an operator plays as it did before there was one.

use crate::rng::Rng;
use crate::trace::trace;
use crate::world::{Event, Phase, World};
use homing::persistence::letter::LetterPlace;
use homing::session::outbound::one_message::MessageName;
use homing::session::outbound::stall::SocketView;
use homing::shard::features::administration::{
    CommandOutcome, MessageOf, OperatorAction, OperatorCommand, RedeliverBy,
};
use homing::shard::features::message_commands::MessageCommand;
use homing::shard::observe::letters::LetterFilter;
use homing::shard::observe::query::{Query, QueryAnswer, SessionName};
use homing::shard::observe::unfinished::UnfinishedPart;
use homing::shard::{LetterLimits, SessionId, shard_of};

/// Drawn apart from all else.
const OPERATOR: u64 = 0x18_0000_0000;

/// Few, so that the oldest letters go at times.
pub const LETTERS: LetterLimits = LetterLimits { letters: 8, bytes: 1 << 20 };

/// The most between two looks, in milliseconds.
const PAUSE_MS: u64 = 400;

/// Returns what an operator of this seed draws from; `None` if there is no operator.
pub fn of_seed(seed: u64, has_work: bool) -> Option<Rng> {
    let mut rng = Rng::new(seed ^ OPERATOR);
    // A work queue has an account of its own, which knows of no skip.
    (rng.percent(30) && !has_work).then_some(rng)
}

/// What an operator saw of a client.
struct Seen {
    session: SessionId,
    messages: Vec<MessageName>,
}

impl World {
    /// The dead letters of a shard, in pages.
    pub fn letters_of(&self, shard: usize) -> Vec<LetterPlace> {
        let (mut places, mut before) = (Vec::new(), None);
        loop {
            let query = Query::Letters { before, most: 5, filter: LetterFilter::default() };
            let QueryAnswer::Letters(page) = self.nodes[shard].core.answer(self.instant(), &query) else {
                return places;
            };
            places.extend(page.letters.iter().map(|letter| letter.place));
            before = page.next;
            if before.is_none() {
                return places;
            }
        }
    }

    /// Deletes all dead letters.
    pub fn delete_letters(&mut self) {
        for shard in 0..self.nodes.len() {
            for place in self.letters_of(shard) {
                let command = MessageCommand::DeleteLetter(place);
                let now = self.instant();
                self.nodes[shard].core.carry_out_on_message(now, &command);
            }
            self.after_core(shard);
        }
    }

    /// The operator deletes a dead letter of a shard.
    fn act_on_letter(&mut self, shard: usize, rng: &mut Rng) {
        let places = self.letters_of(shard);
        if places.is_empty() {
            return;
        }
        let place = places[rng.below(places.len() as u64) as usize];
        let answer = self.nodes[shard].core.answer(self.instant(), &Query::Letter(place));
        let QueryAnswer::Letter(Some(letter)) = answer else {
            return self.fail(format!("a listed letter is not there: {place:?}"));
        };
        // A republished message would be one that the oracle does not know.
        let command = MessageCommand::DeleteLetter(place);
        let now = self.instant();
        let done = self.nodes[shard].core.carry_out_on_message(now, &command);
        trace!(self, "shard {shard}: the operator: {command:?} for {}: {done:?}", letter.receiver);
        let is_done = done.outcome == CommandOutcome::Done;
        if self.letters_of(shard).contains(&place) == is_done {
            self.fail(format!("{command:?} is {:?}, and its letter says otherwise", done.outcome));
        }
        if is_done {
            self.saw("an operator deletes a dead letter");
        }
        self.after_core(shard);
    }

    /// The operator looks at a client, and may do something.
    pub fn operate(&mut self) {
        let Some(mut rng) = self.operator.take() else { return };
        if self.phase == Phase::Chaos {
            self.schedule(self.now + rng.between(1, PAUSE_MS), Event::Operate);
            let client = rng.below(self.clients.len() as u64) as usize;
            let name: Box<str> = self.clients[client].manners.name.as_str().into();
            let shard = usize::from(shard_of(&name, self.plan.shards).0);
            // While the broker is down nobody answers.
            if shard < self.nodes.len()
                && let Some(seen) = self.look(shard, &name, &mut rng)
                && let Some(action) = action(&mut rng, &seen)
            {
                self.command(client, shard, OperatorCommand { client: SessionName::Client(name), action });
            }
            if shard < self.nodes.len() && rng.percent(20) {
                self.act_on_letter(shard, &mut rng);
            }
        }
        self.operator = Some(rng);
    }

    /// Lists the messages of a client page by page. All of them are there, each once.
    fn look(&mut self, shard: usize, name: &str, rng: &mut Rng) -> Option<Seen> {
        let now = self.instant();
        let client = SessionName::Client(name.into());
        let core = &self.nodes[shard].core;
        let QueryAnswer::Session(Some(detail)) = core.answer(now, &Query::Session { client: client.clone() })
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
                let query = Query::Unfinished { client: client.clone(), part, from: at, most };
                let QueryAnswer::Unfinished(Some(page)) = self.nodes[shard].core.answer(now, &query) else {
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

    fn command(&mut self, client: usize, shard: usize, command: OperatorCommand) {
        let now = self.instant();
        let connection = self.nodes[shard].core.connection_of(&command.client);
        let socket = connection.and_then(|id| self.socket_of(shard, id));
        let unsent = socket.map_or(0, |socket| self.sockets[socket].send_queue.len());
        let view = SocketView { unsent, ..SocketView::default() };
        let done = self.nodes[shard].core.carry_out(now, &command, view);
        trace!(self, "shard {shard}: the operator: {command:?}: {done:?}");
        let drops = matches!(command.action, OperatorAction::Skip(_) | OperatorAction::Park(_));
        if drops
            && done.outcome == CommandOutcome::Done
            && let Some(live) = &self.oracle.live[client]
        {
            self.oracle.sessions[live.number].skipped += 1;
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
            (OperatorAction::Skip(_) | OperatorAction::Park(_), CommandOutcome::NoSuchMessage) => {
                self.fail(format!("a listed message is not there: {command:?}"));
            }
            _ => {}
        }
        self.after_core(shard);
    }
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
