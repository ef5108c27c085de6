//! Questions of operators about one shard, and their answers.
//!
//! A question changes nothing. Its cost is bounded by a [`QuestionBudget`] and by [`ROWS`],
//! whatever the number of sessions and messages: a listing of many sessions takes many questions,
//! between which the shard does its work. An answer that is not complete has the place at which
//! the next question goes on.

use crate::operators::budget::{Question, QuestionBudget, Rows};
use crate::operators::by_filter;
use crate::operators::dropped::{self, FoundDrops};
use crate::operators::letters::{self, LetterFilter};
use crate::operators::receivers::{self, MatchedReceivers};
use crate::operators::session_order::{self, RankRange, RankedSessions};
use crate::operators::session_rows;
use crate::operators::stored::{self, PagedOutPart};
use crate::operators::unfinished::{self, PagePayloads, UnfinishedPage, UnfinishedPart};
use crate::operators::wanted::{Wanted, WantedTopic};
use crate::operators::whereabouts::{self, FoundMessages, SearchPlace};
use crate::persistence::letter::{LetterPlace, StoredLetter};
use crate::persistence::records::EntryNumber;
use crate::routing::subscription_tree::SurveyPlace;
use crate::session::outbound::stall::SocketView;
use crate::session::slow_deliveries::SlowDelivery;
use crate::shard::Shard;
use crate::shard::clients::session_entry::SessionEntry;
use crate::shard::features::delayed::DelayedPlace;
use crate::shard::view::ShardView;
use crate::slots::{ConnectionId, SessionId};
use crate::time::Instant;
use std::ops::Bound;
use std::sync::Arc;

pub use crate::operators::budget::{BYTES, Part, ROWS};
pub use crate::operators::message_summary::MessageSummary;
pub use crate::operators::session_rows::{
    ConnectionFacts, InFlightSummary, OwnSubscription, SessionDetail, SessionFilter, SessionSummary,
};

/// Steps of one row of a delayed message.
const ROW: usize = 8;

/// A question.
#[derive(Clone, Debug)]
pub enum Query {
    /// The sessions in the slots from `from` on that `filter` admits, at most `most`.
    Sessions {
        /// The first slot; 0 at the beginning.
        from: u32,
        /// Maximum number of sessions in the answer.
        most: usize,
        /// The sessions that are wanted.
        filter: SessionFilter,
    },
    /// The sessions of the shard that are in a part of an order, in the slots from `from` on.
    RankedSessions {
        /// The first slot; 0 at the beginning.
        from: u32,
        /// The sessions that are wanted.
        filter: SessionFilter,
        /// The part of the order.
        range: Box<RankRange>,
    },
    /// The sessions of these clients, from a place in the list on. A client without a session in
    /// this shard is left out.
    NamedSessions {
        /// The client identifiers.
        clients: Vec<Box<str>>,
        /// The first place in the list; 0 at the beginning.
        from: u32,
    },
    /// The session of a client, with its first messages and filters.
    Session {
        /// The session.
        client: SessionName,
    },
    /// A page of the unfinished messages of a client.
    Unfinished {
        /// The session.
        client: SessionName,
        /// The part of the messages.
        part: UnfinishedPart,
        /// The payloads in the answer.
        payloads: PagePayloads,
        /// The place at which the page begins; 0 at the beginning.
        from: u64,
        /// Maximum number of messages in the answer; at most [`ROWS`].
        most: usize,
    },
    /// The receivers of a topic in this shard.
    Receivers {
        /// The Topic Name.
        topic: Box<str>,
        /// The place at which the part begins.
        from: SurveyPlace,
    },
    /// The sessions of this shard that have a filter, as a SUBSCRIBE names it.
    Subscribers {
        /// The Topic Filter, of a shared subscription with its `$share/...`.
        filter: Box<str>,
    },
    /// The shared groups of all shards, in the places from `from` on.
    SharedGroups {
        /// The first place; 0 at the beginning.
        from: u32,
        /// Maximum number of groups in the answer; at most [`ROWS`].
        most: usize,
    },
    /// The messages in windows and queues, from a place on.
    Messages {
        /// The messages that are looked for.
        wanted: Wanted,
        /// The place at which the part begins.
        from: SearchPlace,
    },
    /// The places of messages that are in the store alone.
    PagedOut {
        /// The sessions, each with the number from which on its messages are wanted.
        sessions: Vec<(SessionId, EntryNumber)>,
    },
    /// The delayed messages in memory, the next due first.
    Delayed {
        /// The topic; `None` for any.
        topic: Option<WantedTopic>,
        /// The place at which the part begins.
        from: Bound<DelayedPlace>,
        /// Maximum number of messages in the answer; at most [`ROWS`].
        most: usize,
    },
    /// The last dropped messages and refused requests, the newest first.
    Dropped {
        /// The messages that are looked for. The publisher counts for refused messages alone.
        wanted: Wanted,
        /// Maximum number of rows of each kind in the answer; at most [`ROWS`].
        most: usize,
    },
    /// The rows with a slow delivery in the last hour, the slowest first.
    SlowDeliveries {
        /// The Topic Name; `None` for any.
        topic: Option<Box<str>>,
        /// The Client Identifier of the receiver; `None` for any.
        receiver: Option<Box<str>>,
        /// Maximum number of rows in the answer. A thousand rows cost 0.2 ms.
        most: usize,
    },
    /// The stored dead letters of the shard, the newest first.
    Letters {
        /// The place before which the letters are; `None` at the beginning.
        before: Option<LetterPlace>,
        /// Maximum number of letters in the answer; at most [`ROWS`].
        most: usize,
        /// The letters that are wanted.
        filter: LetterFilter,
    },
    /// One stored dead letter.
    Letter(LetterPlace),
}

/// The name of a session in its shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionName {
    /// The Client Identifier.
    Client(Box<str>),
    /// The place of the session, for client identifiers that are too long for a URL.
    At(SessionId),
}

impl SessionName {
    /// Returns the session; `None` if the shard does not have it.
    pub(super) fn find<'a>(&self, shard: ShardView<'a>) -> Option<(SessionId, &'a SessionEntry)> {
        let id = match self {
            SessionName::Client(client_id) => shard.find(client_id)?,
            SessionName::At(id) => *id,
        };
        Some((id, shard.session(id)?))
    }

    /// Returns the connection of the session; `None` while the client is away.
    pub fn connection(&self, shard: &Shard) -> Option<ConnectionId> {
        self.find(shard.view())?.1.connection
    }
}

/// An answer, in the order of [`Query`]. A part that is not complete has the place at which the
/// next question goes on.
#[derive(Clone, Debug)]
pub enum QueryAnswer {
    /// Sessions, and the slot, or the place in the list, with which the next question begins.
    Sessions(Part<SessionSummary, u32>),
    /// Sessions with their places in an order.
    RankedSessions(Box<RankedSessions>),
    /// The session; `None` if the shard has none of this client.
    Session(Option<Box<SessionDetail>>),
    /// The page; `None` if the shard has no session of this client.
    Unfinished(Option<Box<UnfinishedPage>>),
    /// The receivers of a topic, or the sessions with a filter.
    Receivers(Box<MatchedReceivers>),
    /// The full filters of shared groups, each with its number of members in all shards.
    SharedGroups(Part<(Box<str>, usize), u32>),
    /// The messages.
    Messages(Box<FoundMessages>),
    /// The places of the first sessions, in the order of the question.
    PagedOut(Vec<PagedOutPart>),
    /// The delayed messages, each with its place, and the last place that was looked at: the next
    /// part begins behind it.
    Delayed(Part<(DelayedPlace, MessageSummary), DelayedPlace>),
    /// The dropped messages, and the refused requests.
    Dropped(Box<FoundDrops>),
    /// The slow deliveries.
    SlowDeliveries(Vec<SlowDelivery>),
    /// The letters, and the place before which the next question looks.
    Letters(Part<Arc<StoredLetter>, LetterPlace>),
    /// The letter; `None` if the shard does not have it.
    Letter(Option<Arc<StoredLetter>>),
}

impl QueryAnswer {
    /// Finds the holders of the sent packets in the answer. `socket` looks at the bytes written to
    /// a connection.
    pub fn diagnose(&mut self, socket: impl Fn(ConnectionId) -> Option<SocketView>) {
        match self {
            QueryAnswer::Unfinished(Some(page)) => {
                if let Some(view) = page.connection.and_then(socket) {
                    page.rows.iter_mut().for_each(|row| row.wait.diagnose(view));
                }
            }
            QueryAnswer::Messages(found) => {
                for found in &mut found.messages {
                    if let Some(view) = found.connection.and_then(&socket) {
                        found.message.wait.diagnose(view);
                    }
                }
            }
            _ => {}
        }
    }
}

impl Query {
    /// Answers the question. Changes nothing.
    pub fn answer(&self, now: Instant, shard: &Shard) -> QueryAnswer {
        self.answer_within(now, shard, &mut QuestionBudget::default())
    }

    /// Answers the question, and spends its steps.
    pub fn answer_within(&self, now: Instant, shard: &Shard, budget: &mut QuestionBudget) -> QueryAnswer {
        let question = &mut Question { now, shard: shard.view(), budget };
        match self {
            Query::Receivers { topic, from } => {
                QueryAnswer::Receivers(Box::new(receivers::receivers(question, topic, from)))
            }
            Query::Subscribers { filter } => {
                QueryAnswer::Receivers(Box::new(by_filter::subscribers(question, filter)))
            }
            Query::SharedGroups { from, most } => {
                QueryAnswer::SharedGroups(by_filter::shared_groups(question, *from, *most))
            }
            Query::Messages { wanted, from } => {
                QueryAnswer::Messages(Box::new(whereabouts::messages(question, wanted, *from)))
            }
            Query::PagedOut { sessions } => QueryAnswer::PagedOut(stored::paged_out(question, sessions)),
            Query::Delayed { topic, from, most } => {
                QueryAnswer::Delayed(delayed(question, topic.as_ref(), *from, *most))
            }
            Query::Dropped { wanted, most } => {
                QueryAnswer::Dropped(Box::new(dropped::dropped(question, wanted, *most)))
            }
            Query::SlowDeliveries { topic, receiver, most } => {
                let slow = question.shard.slow_deliveries();
                question.budget.spend(slow.len());
                QueryAnswer::SlowDeliveries(slow.find(now, topic.as_deref(), receiver.as_deref(), *most))
            }
            Query::Letters { before, most, filter } => {
                QueryAnswer::Letters(letters::letters(question, *before, *most, filter))
            }
            Query::Letter(place) => QueryAnswer::Letter(question.shard.letters().find(*place).cloned()),
            Query::Sessions { from, most, filter } => {
                QueryAnswer::Sessions(session_rows::sessions(question, *from, *most, filter))
            }
            Query::NamedSessions { clients, from } => {
                QueryAnswer::Sessions(session_rows::named(question, clients, *from))
            }
            Query::RankedSessions { from, filter, range } => {
                let ranked = session_order::ranked(question, *from, filter, range);
                QueryAnswer::RankedSessions(Box::new(ranked))
            }
            Query::Session { client } => {
                let found = client.find(question.shard);
                QueryAnswer::Session(found.map(|found| Box::new(session_rows::detail(question, found))))
            }
            Query::Unfinished { client, part, payloads, from, most } => {
                let (part, place) = ((*part, *payloads), (*from, *most));
                let found = client.find(question.shard);
                let page = |found| Box::new(unfinished::page(question, part, place, found));
                QueryAnswer::Unfinished(found.map(page))
            }
        }
    }
}

fn delayed(
    question: &mut Question<'_>,
    topic: Option<&WantedTopic>,
    from: Bound<DelayedPlace>,
    most: usize,
) -> Part<(DelayedPlace, MessageSummary), DelayedPlace> {
    let (mut messages, mut reached, budget) = (Rows::new(most), None, &mut *question.budget);
    for (place, message) in question.shard.delayed().view_from(from) {
        budget.spend(1);
        let bytes = message.topic().len();
        if topic.is_none_or(|topic| topic.is_within(message.topic(), budget)) {
            budget.spend(ROW);
            budget.spend_bytes(bytes);
            messages.push((place, MessageSummary::of_message(message)), bytes);
        }
        if messages.is_full(budget) {
            reached = Some(place);
            break;
        }
    }
    messages.part(reached)
}
