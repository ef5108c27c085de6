//! An operator deletes dead letters and publishes their messages again. What an answer says has
//! happened, and nothing else has.

use crate::client::Client;
use crate::custody::Place;
use crate::gates::number_of;
use crate::rng::Rng;
use crate::topics::Topic;
use crate::trace::trace;
use crate::world::World;
use homing::mqtt::packet::QoS;
use homing::operators::command::{Command, CommandOutcome};
use homing::operators::message_commands::{MessageCommand, RepublishTo};
use homing::operators::query::{Query, QueryAnswer, SessionName};
use homing::persistence::letter::{LetterPlace, StoredLetter};
use homing::persistence::records::Lsn;
use homing::session::outbound::one_message::MessageName;
use homing::session::outbound::stall::SocketView;
use homing::shard::{SessionId, shard_of};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A session's unfinished messages, by client.
pub type Names = BTreeMap<usize, (SessionId, Vec<MessageName>)>;

/// Which copies of its message a republication makes in one shard.
struct Republished {
    place: LetterPlace,
    to: RepublishTo,
    letter: Arc<StoredLetter>,
    before: Names,
    after: Names,
    outcome: CommandOutcome,
}

impl Republished {
    /// Names of messages that were not there before, with their clients. If a message leaves the
    /// midst of a queue, those that are not stored have other names, so these are only counted.
    fn fresh(&self) -> Vec<(usize, MessageName)> {
        let is_counted = |name: &&MessageName| matches!(name, MessageName::Queued(_));
        let mut fresh = Vec::new();
        for (client, (_, names)) in &self.after {
            let before = self.before.get(client).map_or(&[][..], |(_, names)| names);
            let counted = before.iter().filter(is_counted).count();
            fresh.extend(names.iter().filter(is_counted).skip(counted).map(|name| (*client, *name)));
            let others = names.iter().filter(|name| !is_counted(name) && !before.contains(name));
            fresh.extend(others.map(|name| (*client, *name)));
        }
        fresh
    }

    /// Whether a client's queue may have a new message in place of an expired one.
    fn may_have_replaced(&self, client: Option<usize>) -> bool {
        let names = |names: &Names| client.and_then(|client| names.get(&client).cloned());
        names(&self.before) != names(&self.after)
    }
}

impl World {
    /// Deletes all dead letters.
    pub fn delete_letters(&mut self) {
        for shard in 0..self.nodes.len() {
            for letter in self.letters_of(shard) {
                self.delete_letter(shard, &letter);
            }
        }
    }

    /// The operator does something with a dead letter of a shard.
    pub fn act_on_letter(&mut self, shard: usize, rng: &mut Rng) {
        let all = self.letters_of(shard);
        if all.is_empty() {
            return;
        }
        let letter = Arc::clone(&all[rng.below(all.len() as u64) as usize]);
        let answer = Query::Letter(letter.place).answer(self.instant(), &self.nodes[shard].core);
        if !matches!(answer, QueryAnswer::Letter(Some(_))) {
            return self.fail(format!("a listed letter is not there: {letter:?}"));
        }
        // Without this play a republished message would be one that the oracle does not know.
        let chance = if self.letters.is_some() { rng.below(100) } else { 0 };
        match chance {
            0..15 => self.delete_letter(shard, &letter),
            15..65 => self.republish(shard, letter, RepublishTo::Receiver),
            _ => self.republish(shard, letter, RepublishTo::Topic),
        }
    }

    fn delete_letter(&mut self, shard: usize, letter: &StoredLetter) {
        let (now, place) = (self.instant(), letter.place);
        let command = MessageCommand::DeleteLetter(place);
        let done = command.carry_out(now, SocketView::default(), &mut self.nodes[shard].core);
        trace!(self, "shard {shard}: the operator: {command:?} for {}: {done:?}", letter.receiver);
        let is_there = self.letters_of(shard).iter().any(|letter| letter.place == place);
        if done.outcome != CommandOutcome::Done || is_there {
            self.fail(format!("{command:?} is {done:?}, and the letter is there: {is_there}"));
        }
        self.letter_left(shard, letter, done.commit, &[]);
        self.saw("an operator deletes a dead letter");
        self.after_core(shard);
    }

    /// The operator had a letter's message go to these places, or to none.
    fn letter_left(
        &mut self,
        shard: usize,
        letter: &StoredLetter,
        commit: Option<Lsn>,
        to: &[(Box<str>, Place)],
    ) {
        if self.disk.is_some() && commit.is_none() {
            self.fail(format!("the end of {:?} waits for no commit", letter.place));
        }
        if let Some(letters) = &mut self.letters {
            letters.left(letter, (shard, commit), to);
        }
    }

    pub fn republish(&mut self, shard: usize, letter: Arc<StoredLetter>, to: RepublishTo) {
        let (now, place) = (self.instant(), letter.place);
        let before = self.names_in(shard);
        let command = MessageCommand::Republish(place, to);
        let done = command.carry_out(now, SocketView::default(), &mut self.nodes[shard].core);
        trace!(self, "shard {shard}: the operator: {command:?} for {}: {done:?}", letter.receiver);
        let after = self.names_in(shard);
        let republished = Republished { place, to, letter, before, after, outcome: done.outcome };
        let result = self.check_republished(shard, &republished);
        self.check(result.map_err(|what| format!("{command:?} is {:?}: {what}", done.outcome)));
        if done.outcome == CommandOutcome::Done {
            self.went_again(shard, &republished, done.commit);
        }
        self.after_core(shard);
    }

    /// What the answer says has happened, and nothing else has.
    fn check_republished(&self, shard: usize, republished: &Republished) -> Result<(), String> {
        let Republished { place, to, letter, before, outcome, .. } = republished;
        let fresh = republished.fresh();
        let is_there = self.letters_of(shard).iter().any(|letter| letter.place == *place);
        if is_there == (*outcome == CommandOutcome::Done) {
            return Err(format!("and its letter is there: {is_there}"));
        }
        let qos = letter.message.header().qos;
        let has_none = self.shortage.has_none_for(qos);
        let receiver = self.clients.iter().position(|c| *c.manners.name == *letter.receiver);
        let may_read = receiver
            .zip(Topic::of(letter.message.topic()))
            .is_some_and(|(client, topic)| self.oracle.permissions.may_read_now(client, topic));
        let has_session = receiver.is_some_and(|client| before.contains_key(&client));
        match outcome {
            CommandOutcome::Done if has_none => Err("there is no room".into()),
            CommandOutcome::Done if *to == RepublishTo::Topic => Ok(()),
            CommandOutcome::Done if !may_read || !has_session => {
                Err(format!("may read: {may_read}, has a session: {has_session}"))
            }
            CommandOutcome::Done => match fresh[..] {
                [(client, _)] if Some(client) == receiver => Ok(()),
                [] if qos == QoS::AtMostOnce || self.wants_at_most_once(receiver, letter) => Ok(()),
                [] if republished.may_have_replaced(receiver) => Ok(()),
                _ => Err(format!("new messages: {fresh:?}")),
            },
            _ if !fresh.is_empty() => Err(format!("new messages: {fresh:?}")),
            CommandOutcome::NoRoom if !self.shortage.is() => Err("there is room".into()),
            CommandOutcome::NoSuchClient if has_session => Err("there is a session".into()),
            CommandOutcome::CannotRepublish(why) if why.contains("rules of the ACL") && may_read => {
                Err("the rules allow it".into())
            }
            CommandOutcome::NoRoom | CommandOutcome::NoSuchClient | CommandOutcome::CannotRepublish(_) => {
                Ok(())
            }
            other => Err(format!("{other:?} is no answer")),
        }
    }

    /// Whether a client has a subscription at QoS 0 to the topic of a letter, or may have one.
    fn wants_at_most_once(&self, client: Option<usize>, letter: &StoredLetter) -> bool {
        let live = client.and_then(|client| self.oracle.live[client].as_ref());
        let (Some(live), Some(topic)) = (live, Topic::of(letter.message.topic())) else { return false };
        let log = &self.oracle.sessions[live.number];
        log.vague || log.subscriptions.iter().any(|s| s.covers(topic) && s.options.qos == QoS::AtMostOnce)
    }

    /// The message of a letter went to its receivers.
    fn went_again(&mut self, shard: usize, republished: &Republished, commit: Option<Lsn>) {
        let Republished { to, letter, .. } = republished;
        if let Some(message) = number_of(&letter.message) {
            *self.oracle.republished.entry(message).or_default() += 1;
        }
        let stored = republished.fresh().into_iter().filter_map(|(client, name)| match name {
            MessageName::Stored(entry) => {
                Some((self.clients[client].manners.name.as_str().into(), Place::Entry(entry)))
            }
            MessageName::InFlight(_) | MessageName::Queued(_) => None,
        });
        let stored: Vec<_> = stored.collect();
        self.saw(match to {
            RepublishTo::Receiver => "an operator republishes to the receiver",
            RepublishTo::Topic => "an operator republishes to the topic",
        });
        self.letter_left(shard, letter, commit, &stored);
    }

    /// The unfinished messages of every session of a shard.
    pub fn names_in(&self, shard: usize) -> Names {
        let here = |(_, client): &(usize, &Client)| {
            usize::from(shard_of(&client.manners.name, self.plan.shards).0) == shard
        };
        let clients = self.clients.iter().enumerate().filter(here);
        let names = clients.filter_map(|(number, client)| {
            let name = SessionName::Client(client.manners.name.as_str().into());
            Some((number, self.unfinished_of(shard, &name)?))
        });
        names.collect()
    }
}
