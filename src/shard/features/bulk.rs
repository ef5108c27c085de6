//! Commands of operators about many things: connections, dead letters, or a whole queue.
//!
//! A command does a portion, which ends with the turn. The caller sends the rest again. So sockets
//! have their turn between two portions, and the work of a turn is bounded whatever an operator asks
//! for.

use crate::persistence::letter::LetterPlace;
use crate::persistence::records::Lsn;
use crate::session::drops::DropReason;
use crate::shard::Shard;
use crate::shard::features::administration::{CommandOutcome, disconnect};
use crate::shard::features::letter_keeping;
use crate::shard::features::message_commands::{RepublishTo, republish};
use crate::shard::observe::query::SessionName;
use crate::shard::slots::ConnectionId;
use crate::time::Instant;

/// Steps of one closed connection: its session's records and its will, without the will's receivers.
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
pub struct Portion {
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

impl Portion {
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

/// Does a portion of a command; `None` if the shard has no such session. Returns it with the batch
/// that must be committed before the answer. Does nothing while dead letters wait to be published,
/// so that a fast operator makes no heap of them.
pub(crate) fn carry_out(
    now: Instant,
    command: &BulkCommand,
    shard: &mut Shard,
) -> (Option<Portion>, Option<Lsn>) {
    let portion = match command {
        _ if !shard.core.dead_letters.is_empty() => Some(Portion::default()),
        BulkCommand::Republish(..) if shard.fans.is_fanning() => Some(Portion::default()),
        BulkCommand::Disconnect(connections) => Some(each(connections, DISCONNECT, shard, |id, shard| {
            let connection = shard.core.connections.get(*id);
            let is_gone = connection.is_none_or(|connection| connection.is_closing());
            disconnect(now, *id, shard);
            if is_gone { CommandOutcome::NoSuchMessage } else { CommandOutcome::Done }
        })),
        BulkCommand::DeleteLetters(letters) => Some(each(letters, LETTER, shard, |place, shard| {
            let removed = letter_keeping::remove(*place, &mut shard.core);
            removed.map_or(CommandOutcome::NoSuchMessage, |_| CommandOutcome::Done)
        })),
        BulkCommand::Republish(letters, to) => {
            Some(each(letters, LETTER, shard, |place, shard| republish(now, *place, *to, shard)))
        }
        BulkCommand::Purge(session, most) => purge(now, session, *most, shard),
    };
    // A dead letter is published with the open batch.
    shard.core.has_dead_letters();
    (portion, shard.core.durability.pending())
}

/// Calls `act` for one thing after the other until the turn is over.
fn each<T>(
    things: &[T],
    steps: u32,
    shard: &mut Shard,
    mut act: impl FnMut(&T, &mut Shard) -> CommandOutcome,
) -> Portion {
    let mut portion = Portion::default();
    for thing in things {
        // The next letter may have to wait for the large publication of the last one.
        if shard.core.turn.is_over() || shard.fans.is_fanning() && portion.looked_at > 0 {
            break;
        }
        shard.core.turn.charge(steps);
        portion.looked_at += 1;
        portion.note(act(thing, shard));
    }
    portion
}

/// Drops the oldest messages of a queue. Returns `None` if the shard has no such session.
fn purge(now: Instant, session: &SessionName, most: usize, shard: &mut Shard) -> Option<Portion> {
    let id = session.find(&shard.core)?;
    let mut portion = Portion::default();
    while portion.done < most && !shard.core.turn.is_over() && shard.core.dead_letters.is_empty() {
        let queue = shard.core.sessions.get_mut(id)?.session.sender.queue.get_mut();
        let chunk = DROPPED.min(most - portion.done);
        let drops = &mut shard.core.counters.drops;
        let dropped = queue.map_or(0, |queue| queue.drop_oldest(chunk, DropReason::Skipped, drops));
        shard.core.report_drops(id);
        portion.done += dropped;
        shard.core.turn.charge(DROP * dropped as u32);
        if dropped < chunk {
            break;
        }
    }
    portion.queued = shard.core.sessions.get(id)?.session.sender.queue.len();
    if portion.done > 0 {
        shard.after_session_change(now, id);
        shard.routes.has_room_for_orphaned_queues(now, id, &mut shard.core);
    }
    Some(portion)
}
