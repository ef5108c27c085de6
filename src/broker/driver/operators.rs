//! The questions and commands of operators: the shard's answers, with facts of its sockets.

use super::ShardDriver;
use super::commits::AwaitedCommit;
use crate::broker::dump::{Diagnosis, SESSIONS, ShardInspection};
use crate::broker::question::{ShardAnswer, SocketFacts};
use crate::clock;
use crate::mqtt::packet::ReasonCode;
use crate::operators::command::Command;
use crate::operators::longest_wait::LongestWait;
use crate::operators::publish_command::{NotPublished, PublishCommand};
use crate::operators::query::{Query, QueryAnswer, SessionSummary};
use tokio::sync::oneshot;

impl ShardDriver {
    /// Returns the part of a dump that is about this shard. Diagnoses the socket of each listed
    /// session: one or two system calls each, for [`SESSIONS`] sessions at most.
    pub fn inspect(&self) -> ShardInspection {
        let (now, shard, handles) = (clock::now(), self.shard.borrow(), self.handles.borrow());
        let mut waiting = Vec::new();
        for mut found in LongestWait::find(now, SESSIONS, &shard) {
            let handle = found.session.connection.and_then(|id| handles.find(id));
            let stall = handle
                .and_then(|handle| shard.connection(handle.id).diagnose(now, handle.transport().view()));
            let diagnosis = if stall.is_some() { Diagnosis::Done } else { Diagnosis::NoSocket };
            found.stall = stall.unwrap_or(found.stall);
            waiting.push((found, diagnosis));
        }
        ShardInspection { snapshot: shard.snapshot(), open: handles.open(), waiting }
    }

    /// Answers a question of an operator. Costs two system calls for each connected session in the
    /// answer that has something unacknowledged.
    pub fn answer(&self, query: &Query) -> ShardAnswer {
        let (now, shard, handles) = (clock::now(), self.shard.borrow(), self.handles.borrow());
        let mut answer = query.answer(now, &shard);
        answer.diagnose(|id| Some(handles.find(id)?.transport().view()));
        let facts = |row: &SessionSummary| {
            let handle = handles.find(row.connection?)?;
            let stall =
                row.oldest.and_then(|_| shard.connection(handle.id).diagnose(now, handle.transport().view()));
            Some(SocketFacts { session: row.id, address: handle.peer.to_string(), stall })
        };
        let sockets = match &answer {
            QueryAnswer::Sessions(part) => part.rows.iter().filter_map(facts).collect(),
            QueryAnswer::RankedSessions(ranked) => {
                ranked.part.rows.iter().filter_map(|(_, row)| facts(row)).collect()
            }
            QueryAnswer::Session(detail) => detail.iter().filter_map(|detail| facts(&detail.row)).collect(),
            _ => Vec::new(),
        };
        ShardAnswer { answer, sockets }
    }

    /// Publishes a message of an operator. Returns the answer, which comes when a client would get
    /// its PUBACK.
    ///
    /// # Errors
    /// The message is not published.
    pub fn publish(&self, command: &PublishCommand) -> Result<oneshot::Receiver<ReasonCode>, NotPublished> {
        let (number, _) = self.carry_out(command);
        Ok(self.answers.wait_for(number?))
    }

    /// Carries out a command of an operator. The caller answers once the returned commit has
    /// happened.
    pub fn carry_out<C: Command>(&self, command: &C) -> (C::Outcome, AwaitedCommit) {
        let view = {
            let handles = self.handles.borrow();
            let connection = self.look(|shard| command.client()?.connection(shard));
            let handle = connection.and_then(|id| handles.find(id));
            handle.map(|handle| handle.transport().view()).unwrap_or_default()
        };
        let done = self.in_new_turn(|shard, now| command.carry_out(now, view, shard));
        (done.outcome, self.commits.wait_for(done.commit))
    }
}
