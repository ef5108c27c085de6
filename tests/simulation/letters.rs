//! Dead letters under an operator who parks, republishes and deletes, while clients come and go,
//! the rules about topics change, memory and disk run out, the bounds on letters are lowered, and
//! the broker crashes, with preference where a letter is about to be committed or just was.
//!
//! | account | what must hold |
//! |---|---|
//! | of one command | what the answer says has happened, and nothing else has |
//! | of the letters | each one that comes was parked or dropped, and each one that goes is counted |
//! | of the totals | they are the sums over all shards |
//! | of the store (`custody`) | a message is in one place, and none that was told to be left |
//! | at the end | what is republished to its receiver comes once |
//!
//! All of it is drawn apart from all else, so a seed without it plays as it did before there was
//! any.

use crate::custody::{Custodies, Custody, Place};
use crate::gates::number_of;
use crate::operator::Seen;
use crate::plan::Plan;
use crate::republishing::Names;
use crate::rng::Rng;
use crate::trace::trace;
use crate::world::{Event, Phase, World};
use homing::operators::letters::LetterFilter;
use homing::operators::message_commands::RepublishTo;
use homing::operators::query::{Query, QueryAnswer, SessionName};
use homing::persistence::letter::{LetterNumber, StoredLetter};
use homing::persistence::records::{Committed, Lsn, Record};
use homing::session::drops::DropReason;
use homing::session::outbound::one_message::MessageName;
use homing::shard::{Input, LetterLimits, shard_of};
use homing::store::coalesce::CommitGroup;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Seeds that failed before there was this play without.
const LETTERS: u64 = 0x1A_0000_0000;

/// The random numbers from which the letters of a seed are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LetterStream {
    /// No seed plays with letters.
    Off,
    /// Most seeds with an operator do.
    Common,
    /// Every seed does, from the numbers of this stream.
    Own(u64),
}

/// What is known of the letters and their messages.
pub struct Letters {
    pub rng: Rng,
    custodies: Custodies,
    /// The letters that were in memory at the last look.
    known: BTreeMap<LetterNumber, Known>,
    /// Parked messages whose letters are not published yet, the oldest first.
    parked: Vec<Parked>,
    /// Letters, bytes and drops of the totals at the last look.
    totals: (usize, usize, usize),
    /// Letters that came since the process began, and those that went by themselves.
    arrived: u64,
    dropped: usize,
    /// Letters that were dropped and not seen before, and parked messages whose letters were not
    /// seen.
    unseen: usize,
    vanished: usize,
    /// Letters were only published, for some time of this process.
    was_off: bool,
    reloads: u64,
    /// How often the broker crashes where a letter is committed.
    crashes: u64,
    /// What an operator saw some time ago in this process.
    stale: Vec<(usize, Seen)>,
}

struct Known {
    shard: usize,
    /// The order in which letters came; 0 for those from the store.
    order: u64,
}

struct Parked {
    receiver: Box<str>,
    /// The message, if it was in the store.
    message: Option<usize>,
    custodies: Vec<usize>,
    /// The shard, and the batch in which the letter is.
    batch: (usize, Option<Lsn>),
    reloads: u64,
}

impl Letters {
    /// Draws the letters of a seed, and adapts the plan.
    pub fn new(seed: u64, stream: LetterStream, plan: &mut Plan) -> Option<Letters> {
        let (mut rng, percent) = match stream {
            LetterStream::Off => return None,
            LetterStream::Common => (Rng::new(seed ^ LETTERS), 60),
            LetterStream::Own(stream) => (Rng::new(seed ^ stream ^ LETTERS), 100),
        };
        if !rng.percent(percent) {
            return None;
        }
        plan.settings.letters = LetterLimits { letters: rng.pick(&[2, 8, 100, 100]), bytes: 1 << 20 };
        let causes: &[DropReason] = match rng.below(6) {
            0 => &[DropReason::Expired],
            1 => &[DropReason::QueueRefused, DropReason::QueueOverflow],
            2 => &[DropReason::SessionEnded],
            3 => &[DropReason::Expired, DropReason::QueueRefused, DropReason::SessionEnded],
            _ => &[],
        };
        plan.settings.session.send.redelivery.dead_letters = causes.iter().copied().collect();
        let crashes = if plan.store.is_some() { rng.pick(&[0, 1, 2, 3]) } else { 0 };
        Some(Letters {
            rng,
            custodies: Custodies::default(),
            known: BTreeMap::new(),
            parked: Vec::new(),
            totals: (0, 0, 0),
            arrived: 0,
            dropped: 0,
            unseen: 0,
            vanished: 0,
            was_off: false,
            reloads: 0,
            crashes,
            stale: Vec::new(),
        })
    }

    /// The operator keeps what was seen for later.
    pub fn remember(&mut self, client: usize, seen: Seen) {
        const KEPT: usize = 8;
        if self.stale.len() == KEPT {
            self.stale.remove(0);
        }
        self.stale.push((client, seen));
    }

    /// Returns something that was seen before, now and then.
    pub fn recall(&mut self) -> Option<(usize, Seen)> {
        let wanted = self.rng.percent(25) && !self.stale.is_empty();
        wanted.then(|| self.stale[self.rng.below(self.stale.len() as u64) as usize].clone())
    }

    /// An operator parked a message.
    pub fn parked(
        &mut self,
        client: &str,
        name: MessageName,
        batch: (usize, Option<Lsn>),
        message: Option<usize>,
    ) {
        let (shard, commit) = batch;
        let custodies = match name {
            MessageName::Stored(entry) => {
                let from = Place::Entry(entry);
                commit.into_iter().for_each(|lsn| self.custodies.promise(shard, lsn, from));
                self.custodies.leave(client, from)
            }
            MessageName::InFlight(_) | MessageName::Queued(_) => Vec::new(),
        };
        self.custodies.begin_to_move(&custodies);
        let receiver = client.into();
        self.parked.push(Parked { receiver, message, custodies, batch, reloads: self.reloads });
    }

    /// An operator skipped a message.
    pub fn skipped(&mut self, name: MessageName) {
        if let MessageName::Stored(entry) = name {
            self.custodies.end_at(Place::Entry(entry));
        }
    }

    /// An operator had a letter's message go to these places, or to none.
    pub fn left(
        &mut self,
        letter: &StoredLetter,
        (shard, commit): (usize, Option<Lsn>),
        to: &[(Box<str>, Place)],
    ) {
        self.known.remove(&letter.place.number);
        let from = Place::Letter(letter.place.number);
        let custodies = self.custodies.leave(&letter.receiver, from);
        match to {
            [] => self.custodies.end(&custodies),
            to => self.custodies.arrive(&custodies, to),
        }
        commit.into_iter().for_each(|lsn| self.custodies.promise(shard, lsn, from));
    }

    /// Accounts for a difference between the letters in memory and those at the last look.
    fn compare(
        &mut self,
        now: &BTreeMap<LetterNumber, (usize, Arc<StoredLetter>)>,
        counted: usize,
    ) -> Result<(), String> {
        let gone: Vec<LetterNumber> = self.known.keys().filter(|n| !now.contains_key(n)).copied().collect();
        for number in gone {
            let Some(known) = self.known.remove(&number) else { continue };
            let is_older = |other: &Known| other.shard == known.shard && other.order < known.order;
            if self.known.values().any(is_older) {
                return Err(format!("{number:?} is dropped before an older letter"));
            }
            self.dropped += 1;
            self.custodies.end_at(Place::Letter(number));
        }
        for (number, (shard, letter)) in now {
            if self.known.contains_key(number) {
                continue;
            }
            self.arrived += 1;
            self.known.insert(*number, Known { shard: *shard, order: self.arrived });
            if &*letter.cause == DropReason::Parked.name() {
                let is_its = |parked: &Parked, message| {
                    parked.receiver == letter.receiver && parked.message == message
                };
                let at = |message| self.parked.iter().position(|parked| is_its(parked, message));
                let Some(at) = at(number_of(&letter.message)).or_else(|| at(None)) else {
                    return Err(format!("nobody parked {letter:?}"));
                };
                let parked = self.parked.remove(at);
                let place = (letter.receiver.clone(), Place::Letter(*number));
                self.custodies.arrive(&parked.custodies, &[place]);
            }
        }
        if self.dropped > counted {
            return Err(format!("{} letters are gone, and {counted} are counted as dropped", self.dropped));
        }
        // A letter may come and go within one turn.
        let unseen = counted - self.dropped;
        if unseen > std::mem::replace(&mut self.unseen, unseen) {
            self.give_up_parked();
        }
        Ok(())
    }

    /// The batches of a shard up to this one are committed, and so are the letters in them.
    fn committed(&mut self, upto: Committed) {
        let is_over = |parked: &mut Parked| {
            parked.batch.0 == usize::from(upto.shard) && parked.batch.1.is_some_and(|lsn| lsn <= upto.lsn)
        };
        for parked in self.parked.extract_if(.., is_over) {
            self.custodies.end(&parked.custodies);
            self.vanished += usize::from(parked.reloads == self.reloads);
        }
    }

    /// The letters of parked messages may never be seen.
    fn give_up_parked(&mut self) {
        let Letters { parked, custodies, .. } = self;
        parked.iter().for_each(|parked| custodies.end(&parked.custodies));
    }
}

impl World {
    pub fn plan_letter_bounds(&mut self) {
        let Some(mut letters) = self.letters.take() else { return };
        for _ in 0..letters.rng.below(4) {
            let at = letters.rng.below(self.plan.chaos_ms);
            self.schedule(at, Event::LetterBounds);
        }
        self.letters = Some(letters);
    }

    /// Other bounds on letters come into force, lower ones as a rule.
    pub fn change_letter_bounds(&mut self) {
        let Some(letters) = &mut self.letters else { return };
        letters.reloads += 1;
        letters.give_up_parked();
        let bounds = LetterLimits {
            letters: letters.rng.pick(&[0, 1, 1, 2, 3, 5, 100]),
            bytes: letters.rng.pick(&[2_000, 1 << 20, 1 << 20]),
        };
        letters.was_off |= bounds.letters == 0;
        trace!(self, "== {bounds:?}");
        self.saw("the bounds on dead letters change");
        self.plan.settings.letters = bounds;
        for shard in 0..self.nodes.len() {
            let settings = self.shard_settings();
            self.nodes[shard].core.replace_settings(settings);
            self.after_core(shard);
        }
    }

    /// The dead letters of a shard, in pages.
    pub fn letters_of(&self, shard: usize) -> Vec<Arc<StoredLetter>> {
        let (mut letters, mut before) = (Vec::new(), None);
        loop {
            let query = Query::Letters { before, most: 5, filter: LetterFilter::default() };
            let QueryAnswer::Letters(page) = query.answer(self.instant(), &self.nodes[shard].core) else {
                return letters;
            };
            letters.extend(page.rows);
            before = page.next;
            if before.is_none() {
                return letters;
            }
        }
    }

    fn all_letters(&self) -> BTreeMap<LetterNumber, (usize, Arc<StoredLetter>)> {
        let of = |shard| self.letters_of(shard).into_iter().map(move |l| (l.place.number, (shard, l)));
        (0..self.nodes.len()).flat_map(of).collect()
    }

    /// After a call of a shard: letters may have come and gone.
    pub fn note_letters(&mut self) {
        let Some(mut letters) = self.letters.take() else { return };
        let totals = &self.shared.totals;
        let totals = (totals.letters.get(), totals.letter_bytes.get(), totals.letters_dropped.get());
        if letters.totals != totals {
            letters.totals = totals;
            let now = self.all_letters();
            let counted = (now.len(), now.values().map(|(_, letter)| letter.size()).sum::<usize>());
            if counted != (totals.0, totals.1) {
                self.fail(format!(
                    "the shards have {counted:?} letters and bytes, the totals say {totals:?}"
                ));
            }
            let compared = letters.compare(&now, totals.2);
            self.check(compared);
        }
        self.letters = Some(letters);
    }

    /// Whether memory has a message in the last place of its way.
    fn holds(&self, known: &BTreeMap<LetterNumber, Known>, custody: &Custody) -> bool {
        match custody.place() {
            None => false,
            Some(Place::Letter(number)) => known.contains_key(&number),
            Some(Place::Entry(number)) => {
                let shard = usize::from(shard_of(&custody.client, self.plan.shards).0);
                let client = SessionName::Client(custody.client.clone());
                let unfinished = (shard < self.nodes.len()).then(|| self.unfinished_of(shard, &client));
                let unfinished = unfinished.flatten();
                unfinished.is_some_and(|(_, names)| names.contains(&MessageName::Stored(number)))
            }
        }
    }

    /// After a commit, and after a shard was told of one.
    pub fn check_custodies(&mut self, told: Option<Committed>) {
        let Some(mut letters) = self.letters.take() else { return };
        told.into_iter().for_each(|told| letters.committed(told));
        if let Some(disk) = &self.disk {
            let Letters { custodies, known, .. } = &mut letters;
            let result = disk.memory.look(|image| {
                told.map_or(Ok(()), |told| custodies.committed(told, image))?;
                custodies.check(image, |custody| self.holds(known, custody))
            });
            self.check(result);
        }
        self.letters = Some(letters);
    }

    /// Whether the broker crashes now, before or after a commit of a letter.
    pub fn crashes_at_letter(&mut self) -> bool {
        let is_chaos = self.phase == Phase::Chaos;
        let Some(letters) = self.letters.as_mut().filter(|letters| is_chaos && letters.crashes > 0) else {
            return false;
        };
        let crashes = letters.rng.percent(15);
        letters.crashes -= u64::from(crashes);
        crashes
    }

    /// Another process has the letters that the store has, and nothing of what was under way.
    pub fn letters_recovered(&mut self) {
        let Some(mut letters) = self.letters.take() else { return };
        let now = self.all_letters();
        letters.known =
            now.iter().map(|(number, (shard, _))| (*number, Known { shard: *shard, order: 0 })).collect();
        letters.parked.clear();
        letters.stale.clear();
        (letters.totals, letters.arrived, letters.dropped) = ((0, 0, 0), 0, 0);
        (letters.unseen, letters.vanished) = (0, 0);
        letters.was_off = self.plan.settings.letters.letters == 0;
        for shard in 0..self.nodes.len() {
            // The wall clock may be set to anything.
            let (instant, unix_ms) = (self.instant(), letters.rng.below(4_000_000));
            self.nodes[shard].core.input(instant, Input::WallClock(unix_ms));
        }
        if let Some(disk) = &self.disk {
            let result = disk.memory.look(|image| {
                let stored: Vec<_> = image.letters().map(|letter| letter.place.number).collect();
                if !stored.iter().eq(letters.known.keys()) {
                    return Err(format!("letters {:?} come of {stored:?}", letters.known.keys()));
                }
                letters.custodies.recovered(image)
            });
            self.check(result.map_err(|what| format!("after a start {what}")));
        }
        self.letters = Some(letters);
    }

    /// All is quiet: every letter is accounted for and within the bounds. What is republished to
    /// its receiver comes, and comes once.
    pub fn settle_letters(&mut self) -> Result<(), String> {
        if self.letters.is_none() {
            return Ok(());
        }
        for shard in 0..self.nodes.len() {
            self.housekeeping(shard);
        }
        self.check_letters_settled()?;
        let mut expected: BTreeMap<(usize, usize), u32> = BTreeMap::new();
        for (_, (shard, letter)) in self.all_letters() {
            let client = self.clients.iter().position(|c| *c.manners.name == *letter.receiver);
            let live = client.and_then(|client| self.oracle.live[client].as_ref());
            let session = live.map(|live| live.number);
            let before = self.names_in(shard);
            let message = number_of(&letter.message);
            self.republish(shard, letter, RepublishTo::Receiver);
            let after = self.names_in(shard);
            // At QoS 0 it may be lost.
            let is_new = client.is_some_and(|client| {
                let names = |names: &Names| names.get(&client).map(|(_, names)| names.clone());
                names(&before) != names(&after)
            });
            if let Some(of) = session.zip(message).filter(|_| is_new) {
                let first = self.taken(of);
                *expected.entry(of).or_insert(first) += 1;
            }
        }
        self.run_until(self.now + self.plan.settling_ms / 2)?;
        for (of, due) in expected {
            let (log, taken) = (&self.oracle.sessions[of.0], self.taken(of));
            if log.is_sure() && taken != due {
                return Err(format!("republished: session and message {of:?} came {taken} times, not {due}"));
            }
        }
        self.check_settled()
    }

    fn taken(&self, (session, message): (usize, usize)) -> u32 {
        self.oracle.sessions[session].taken.get(&message).map_or(0, |taken| taken.iter().sum())
    }

    fn check_letters_settled(&self) -> Result<(), String> {
        let Some(letters) = &self.letters else { return Ok(()) };
        let bounds = self.plan.settings.letters;
        let (count, bytes, _) = letters.totals;
        let most = bounds.letters.max(self.nodes.len());
        if bounds.letters > 0 && (count > most || bytes > bounds.bytes) {
            return Err(format!("{count} letters of {bytes} bytes are above {bounds:?}"));
        }
        let unseen = letters.unseen;
        let missing = letters.parked.iter().filter(|parked| parked.reloads == letters.reloads).count();
        let missing = missing + letters.vanished;
        if missing > unseen {
            return Err(format!("{missing} parked messages are no letters, {unseen} letters were dropped"));
        }
        let published = |node: &crate::broker::Node| node.core.snapshot().counters.dead_letters.total();
        let published: u64 = self.nodes.iter().map(published).sum();
        if !letters.was_off && published != letters.arrived + unseen as u64 {
            return Err(format!("{published} letters, {} came and {unseen} were dropped", letters.arrived));
        }
        Ok(())
    }
}

/// Whether a transaction begins or ends a dead letter.
pub fn concerns_letters(group: &CommitGroup) -> bool {
    group.operations().any(|o| matches!(o.record, Record::Letter(_) | Record::LetterDone(_)))
}
