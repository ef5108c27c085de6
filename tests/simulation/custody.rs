//! Where a message is that an operator moves between a queue and the dead letters: in the store it
//! is in exactly one place, whatever is committed and wherever the broker crashes.

use crate::gates::number_of;
use crate::memory_store::Image;
use homing::persistence::letter::LetterNumber;
use homing::persistence::records::{Committed, EntryNumber, Lsn};
use std::collections::BTreeSet;

/// A row of the store that has a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    Entry(EntryNumber),
    Letter(LetterNumber),
}

impl Place {
    fn is_in(self, image: &Image) -> bool {
        match self {
            Place::Entry(number) => image.pending_message(number).is_some(),
            Place::Letter(number) => image.has_letter(number),
        }
    }

    /// The simulation's number of the message that is there.
    fn message(self, image: &Image) -> Option<usize> {
        match self {
            Place::Entry(number) => image.pending_message(number).and_then(number_of),
            Place::Letter(number) => {
                let letter = image.letters().find(|letter| letter.place.number == number);
                letter.and_then(|letter| number_of(&letter.message))
            }
        }
    }
}

/// One message of one receiver, from when an operator first moved it.
#[derive(Clone, Debug)]
pub struct Custody {
    pub client: Box<str>,
    /// The places in which it was, the present one last.
    places: Vec<Place>,
    message: Option<usize>,
    /// The store has had it in one of these places.
    kept: bool,
    /// It is parked, and its letter is not published yet.
    moves: bool,
    /// It left the last place by no move of an operator: its receiver has it, it was dropped.
    ended: bool,
}

impl Custody {
    pub fn place(&self) -> Option<Place> {
        self.places.last().copied()
    }
}

#[derive(Default)]
pub struct Custodies {
    all: Vec<Custody>,
    /// Places that a message has left, and the batch of a shard that says so.
    leaving: Vec<(u8, Lsn, Place)>,
    /// Places whose end an operator was told of.
    left: BTreeSet<Place>,
}

impl Custodies {
    /// An operator takes a message out of a place. Returns the numbers under which its way goes on.
    pub fn leave(&mut self, client: &str, from: Place) -> Vec<usize> {
        let is_there = |custody: &Custody| custody.place() == Some(from) && !custody.ended;
        let found: Vec<usize> = (0..self.all.len()).filter(|at| is_there(&self.all[*at])).collect();
        if !found.is_empty() {
            return found;
        }
        let (client, places) = (client.into(), vec![from]);
        let custody = Custody { client, places, message: None, kept: false, moves: false, ended: false };
        self.all.push(custody);
        vec![self.all.len() - 1]
    }

    /// Its letter is to be published.
    pub fn begin_to_move(&mut self, of: &[usize]) {
        of.iter().for_each(|number| self.all[*number].moves = true);
    }

    /// It is in another place now. If it is in several, each is another way.
    pub fn arrive(&mut self, of: &[usize], at: &[(Box<str>, Place)]) {
        for number in of {
            let from = self.all[*number].clone();
            for (index, (client, place)) in at.iter().enumerate() {
                let mut custody = Custody { client: client.clone(), moves: false, ..from.clone() };
                custody.places.push(*place);
                match index {
                    0 => self.all[*number] = custody,
                    _ => self.all.push(custody),
                }
            }
        }
    }

    /// It is in no place any more, or in one that has no row.
    pub fn end(&mut self, of: &[usize]) {
        of.iter().for_each(|number| self.all[*number].ended = true);
    }

    /// What was in this place is dropped.
    pub fn end_at(&mut self, place: Place) {
        let there = self.all.iter_mut().filter(|custody| custody.place() == Some(place));
        there.for_each(|custody| custody.ended = true);
    }

    /// The operator is told that a message left a place as soon as this batch is committed.
    pub fn promise(&mut self, shard: usize, commit: Lsn, from: Place) {
        self.leaving.push((shard as u8, commit, from));
    }

    /// The operator is told of what is committed.
    pub fn committed(&mut self, upto: Committed, image: &Image) -> Result<(), String> {
        let is_told = |(shard, lsn, _): &mut (u8, Lsn, Place)| *shard == upto.shard && *lsn <= upto.lsn;
        let told: Vec<Place> = self.leaving.extract_if(.., is_told).map(|(.., place)| place).collect();
        for custody in &mut self.all {
            custody.kept |= custody.places.iter().any(|place| told.contains(place));
        }
        self.left.extend(told);
        self.check_left(image)
    }

    fn check_left(&self, image: &Image) -> Result<(), String> {
        match self.left.iter().find(|place| place.is_in(image)) {
            Some(place) => Err(format!("an operator was told that {place:?} is gone, and the store has it")),
            None => Ok(()),
        }
    }

    /// After a commit each message is in one place. `is_held` tells if memory has it in its last
    /// one.
    pub fn check(&mut self, image: &Image, is_held: impl Fn(&Custody) -> bool) -> Result<(), String> {
        for custody in &mut self.all {
            let there: Vec<Place> = custody.places.iter().copied().filter(|p| p.is_in(image)).collect();
            if there.len() > 1 && !custody.ended {
                return Err(format!("the store has a message twice: {custody:?}"));
            }
            match there.first() {
                _ if custody.ended => {}
                Some(place) => {
                    custody.kept = true;
                    let message = place.message(image);
                    if *custody.message.get_or_insert(message.unwrap_or_default())
                        != message.unwrap_or_default()
                    {
                        return Err(format!("{place:?} has message {message:?}, not that of {custody:?}"));
                    }
                }
                None if custody.kept && (custody.moves || is_held(custody)) => {
                    return Err(format!("the store has lost a message: {custody:?}"));
                }
                None => custody.ended |= custody.kept,
            }
        }
        Ok(())
    }

    /// Another process has what the store has.
    pub fn recovered(&mut self, image: &Image) -> Result<(), String> {
        self.leaving.clear();
        for custody in self.all.iter_mut().filter(|custody| !custody.ended) {
            match custody.places.iter().position(|place| place.is_in(image)) {
                Some(at) => custody.places.truncate(at + 1),
                None => custody.ended = true,
            }
            custody.moves = false;
        }
        self.check_left(image)
    }
}
