//! Commands of operators about many things: connections, dead letters, or a whole queue.
//!
//! A command does a portion, which ends with the turn. The caller sends the rest again. So sockets
//! have their turn between two portions, and the work of a turn is bounded whatever an operator
//! asks for.

use crate::operators::command::{CarriedOut, Command, CommandOutcome};
use crate::operators::message_commands::{RepublishTo, found, republish};
use crate::operators::query::SessionName;
use crate::persistence::letter::LetterPlace;
use crate::session::outbound::stall::SocketView;
use crate::shard::Shard;
use crate::shard::control::ShardControl;
use crate::slots::ConnectionId;
use crate::time::Instant;

/// Steps of one closed connection: its session's records and its will, without the will's
/// receivers.
const DISCONNECT: u32 = 100;

/// Steps of one dead letter, beside those of its publication.
const LETTER: u32 = 20;

/// Messages of a queue that are dropped for one look at the turn.
const DROPPED: usize = 64;

/// Steps of one dropped message: its record, its counters and its dead letter.
const DROP: u32 = 4;

/// A command about many things.
#[derive(Clone, Debug)]
pub enum BulkCommand {
    /// Closes connections. The sessions stay as long as after any other loss of the connection.
    Disconnect(Box<[ConnectionId]>),
    /// Deletes dead letters of this shard.
    DeleteLetters(Box<[LetterPlace]>),
    /// Publishes the messages of dead letters again, and removes the letters.
    Republish(Box<[LetterPlace]>, RepublishTo),
    /// Drops the oldest messages of the queue of a session, this many at most. Messages in flight
    /// stay.
    Purge(SessionName, usize),
}

/// The part of a command that one turn did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BulkPortion {
    /// Connections closed, letters done with, or messages dropped.
    pub done: usize,
    /// Letters that are not republished, and stay.
    pub refused: usize,
    /// The reason why the first of them stays.
    pub refusal: Option<&'static str>,
    /// The number of things at the front of the command that were looked at. Some may have been
    /// gone.
    pub looked_at: usize,
    /// Messages that are left in the queue, after a purge.
    pub queued: usize,
}

impl BulkPortion {
    fn note(&mut self, outcome: CommandOutcome) {
        let why = match outcome {
            CommandOutcome::Done => return self.done += 1,
            CommandOutcome::NoSuchMessage => return,
            CommandOutcome::CannotRepublish(why) => why,
            CommandOutcome::NoSuchClient => "the receiver has no session any more",
            _ => "memory or disk has no room for it",
        };
        self.refused += 1;
        self.refusal.get_or_insert(why);
    }
}

impl Command for BulkCommand {
    /// The portion; `None` if the shard has no such session.
    type Outcome = Option<BulkPortion>;

    /// Does a portion of the command. Does nothing while dead letters wait to be published, so that
    /// a fast operator cannot pile up letters.
    fn carry_out(&self, now: Instant, _: SocketView, shard: &mut Shard) -> CarriedOut<Option<BulkPortion>> {
        let mut shard = shard.control(now);
        let shard = &mut shard;
        let portion = match self {
            _ if shard.dead_letters() > 0 => Some(BulkPortion::default()),
            BulkCommand::Republish(..) if shard.is_fanning() => Some(BulkPortion::default()),
            BulkCommand::Disconnect(connections) => {
                Some(each(connections, DISCONNECT, shard, |id, shard| found(shard.disconnect(*id))))
            }
            BulkCommand::DeleteLetters(letters) => {
                Some(each(letters, LETTER, shard, |place, shard| found(shard.remove_letter(*place))))
            }
            BulkCommand::Republish(letters, to) => {
                Some(each(letters, LETTER, shard, |place, shard| republish(*place, *to, shard)))
            }
            BulkCommand::Purge(session, most) => purge(session, *most, shard),
        };
        CarriedOut { outcome: portion, commit: shard.commit() }
    }
}

/// Calls `act` for one thing after the other until the turn is over.
fn each<T>(
    things: &[T],
    steps: u32,
    shard: &mut ShardControl<'_>,
    mut act: impl FnMut(&T, &mut ShardControl<'_>) -> CommandOutcome,
) -> BulkPortion {
    let mut portion = BulkPortion::default();
    for thing in things {
        // The next letter may have to wait for the large publication of the last one.
        if shard.is_turn_over() || shard.is_fanning() && portion.looked_at > 0 {
            break;
        }
        shard.spend(steps);
        portion.looked_at += 1;
        portion.note(act(thing, shard));
    }
    portion
}

/// Drops the oldest messages of a queue. Returns `None` if the shard has no such session.
fn purge(session: &SessionName, most: usize, shard: &mut ShardControl<'_>) -> Option<BulkPortion> {
    let (id, _) = session.find(shard.view())?;
    let mut portion = BulkPortion::default();
    while portion.done < most && !shard.is_turn_over() && shard.dead_letters() == 0 {
        let chunk = DROPPED.min(most - portion.done);
        let dropped = shard.drop_oldest(id, chunk);
        portion.done += dropped;
        shard.spend(DROP * dropped as u32);
        if dropped < chunk {
            break;
        }
    }
    portion.queued = shard.view().session(id)?.session.sender.queue.len();
    if portion.done > 0 {
        shard.queue_has_room(id);
    }
    Some(portion)
}
