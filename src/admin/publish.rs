//! Messages that a program publishes by HTTP. Each goes to a shard as the PUBLISH that a client
//! would send, and is answered when the client would get its PUBACK.

use super::access::{Caller, Scope};
use super::audit::{AuditedAction, arguments};
use super::failed::Failed;
use super::operator::complete;
use super::problem_kind::ProblemKind;
use super::request::permit;
use super::state::{PublishSeat, State};
use crate::broker::observer::Observer;
use crate::clock;
use crate::mqtt::packet::ReasonCode;
use crate::operators::publish_command::{
    NotPublished, PublishCommand, TooManyUnanswered, UNANSWERED, UNANSWERED_OF_ONE,
};
use crate::time::Instant;
use std::time::Duration;
use tokio::sync::oneshot;

/// Time for the answers of one request. It has 10 s.
const TIME: Duration = Duration::from_secs(8);

/// The rest before a shard that was busy is asked again.
const AGAIN: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(super) struct OutgoingMessage {
    pub(super) topic: String,
    /// The parts for the audit log: QoS, RETAIN and the bytes of the payload.
    pub(super) facts: String,
    /// The command, or why no client could send such a PUBLISH.
    pub(super) command: Result<PublishCommand, PublishVerdict>,
}

/// The answer to one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PublishVerdict {
    /// The reason code that a PUBACK would have, and more about a refusal.
    Reason(ReasonCode, Option<String>),
    /// The message was not published, because the broker is busy.
    Busy,
    /// The message was not published, because too many messages have no answer yet.
    TooMany(TooManyUnanswered),
    /// The outcome is not known yet. The message may be published all the same.
    Unconfirmed,
}

impl PublishVerdict {
    /// Returns the answer in one word.
    pub(super) fn word(&self) -> String {
        match self {
            PublishVerdict::Reason(reason, _) => reason.name().to_ascii_lowercase().replace(' ', "_"),
            no_outcome => no_outcome.kind().facts().slug.to_owned(),
        }
    }

    /// Returns the kind of the error, if there is no outcome or a bad one.
    fn kind(&self) -> ProblemKind {
        match self {
            PublishVerdict::Reason(ReasonCode::QUOTA_EXCEEDED, _) => ProblemKind::QuotaExceeded,
            PublishVerdict::Reason(..) => ProblemKind::MessageRefused,
            PublishVerdict::Busy | PublishVerdict::TooMany(TooManyUnanswered::OfAll) => ProblemKind::Busy,
            PublishVerdict::TooMany(TooManyUnanswered::OfPublisher) => ProblemKind::ShareUsed,
            PublishVerdict::Unconfirmed => ProblemKind::Unconfirmed,
        }
    }

    /// Returns the reason code of the answer; `None` if there is no outcome.
    pub(super) fn code(&self) -> Option<ReasonCode> {
        match self {
            PublishVerdict::Reason(reason, _) => Some(*reason),
            PublishVerdict::Busy | PublishVerdict::TooMany(_) | PublishVerdict::Unconfirmed => None,
        }
    }

    /// Returns true if the broker has the message.
    pub(super) fn is_published(&self) -> bool {
        self.code().is_some_and(|code| !code.is_error())
    }

    /// Returns more about an answer that is no success.
    pub(super) fn detail(&self) -> Option<String> {
        match self {
            PublishVerdict::Reason(reason, _) if !reason.is_error() => None,
            PublishVerdict::Reason(_, Some(detail)) => Some(detail.clone()),
            PublishVerdict::Reason(..) => {
                Some("no receiver had room for the message, or the broker had none to retain it".to_owned())
            }
            PublishVerdict::Busy => Some("the broker is busy, and has not published it".to_owned()),
            PublishVerdict::TooMany(of) => {
                let (most, whose) = match of {
                    TooManyUnanswered::OfPublisher => (UNANSWERED_OF_ONE, "of this publisher"),
                    TooManyUnanswered::OfAll => (UNANSWERED, "of all publishers"),
                };
                Some(format!(
                    "not published: {most} messages {whose} have no answer yet, as many as may wait; \
                     a receiver holds them (limits.queue_policy), or the disk hangs"
                ))
            }
            PublishVerdict::Unconfirmed => Some(format!(
                "no acknowledgement within {} s, perhaps of the disk; the message may be published all the same",
                TIME.as_secs()
            )),
        }
    }

    /// Returns the answer to a request with this one message. Errors: the broker does not have the
    /// message, or nobody knows yet.
    pub(super) fn alone(self) -> Result<PublishVerdict, Failed> {
        let detail = self.detail().unwrap_or_default();
        match &self {
            _ if self.is_published() => Ok(self),
            PublishVerdict::Reason(reason, _) => {
                let code = reason.byte();
                Err(Failed::Conflict(self.kind(), format!("{} ({code:#04x}): {detail}", self.word())))
            }
            _ => Err(Failed::Conflict(self.kind(), detail)),
        }
    }
}

/// Returns the name under which the messages of a caller are traced and kept.
pub(super) fn publisher(caller: &Caller) -> String {
    format!("http:{}", caller.name)
}

/// Publishes messages for a caller, one after the other, and writes a line of the audit log.
/// Returns the answers in the order of the messages. The messages behind one that the broker was
/// too busy for are not published either, so that their order is kept. Errors: the caller's scope
/// is too small, or the broker starts or stops.
pub(super) async fn publish(
    state: &State,
    caller: &Caller,
    messages: Vec<OutgoingMessage>,
    seat: PublishSeat,
) -> Result<Vec<PublishVerdict>, Failed> {
    permit(caller, Scope::Publisher)?;
    let (state, caller) = (state.clone(), caller.clone());
    complete(async move {
        // Until the end, also if the caller goes.
        let _seat = seat;
        let observer = state.running()?;
        let (target, facts) = match &messages[..] {
            [only] => (only.topic.clone(), only.facts.clone()),
            all => {
                let first = all.first().map(|first| first.topic.clone()).unwrap_or_default();
                (first, arguments(&[Some(("messages", all.len().to_string()))]))
            }
        };
        let verdicts = publish_all(observer, &publisher(&caller), messages).await;
        let result = match &verdicts[..] {
            [only] => only.word(),
            all => format!("{} published", all.iter().filter(|one| one.is_published()).count()),
        };
        let action = AuditedAction { action: "publish", target: &target, arguments: facts, result };
        state.audit.note_publish(&caller, &action);
        Ok(verdicts)
    })
    .await?
}

/// An answer, or the wait for it.
enum SentPublish {
    Answered(PublishVerdict),
    Waits(oneshot::Receiver<ReasonCode>),
}

async fn publish_all(
    observer: &Observer,
    publisher: &str,
    messages: Vec<OutgoingMessage>,
) -> Vec<PublishVerdict> {
    let end = clock::now() + TIME;
    // All messages of a publisher go through one shard, which keeps their order.
    let shard = observer.shard_of(publisher);
    let (mut sent, mut stopped) = (Vec::with_capacity(messages.len()), None::<PublishVerdict>);
    for message in messages {
        let one = match (&stopped, message.command) {
            (_, Err(refusal)) => SentPublish::Answered(refusal),
            (Some(why), Ok(_)) => SentPublish::Answered(why.clone()),
            (None, Ok(command)) => send(observer, shard, command, end).await,
        };
        stopped = match one {
            SentPublish::Answered(PublishVerdict::Busy | PublishVerdict::Unconfirmed) => {
                Some(PublishVerdict::Busy)
            }
            SentPublish::Answered(PublishVerdict::TooMany(of)) => Some(PublishVerdict::TooMany(of)),
            _ => stopped,
        };
        sent.push(one);
    }
    let mut verdicts = Vec::with_capacity(sent.len());
    for one in sent {
        verdicts.push(match one {
            SentPublish::Answered(verdict) => verdict,
            SentPublish::Waits(answer) => {
                let left = end.since(clock::now());
                match tokio::time::timeout(left, answer).await {
                    Ok(Ok(reason)) => PublishVerdict::Reason(reason, None),
                    Ok(Err(_)) | Err(_) => PublishVerdict::Unconfirmed,
                }
            }
        });
    }
    verdicts
}

/// Sends one message to its shard. Asks a busy shard again until `end`.
async fn send(observer: &Observer, shard: usize, command: PublishCommand, end: Instant) -> SentPublish {
    loop {
        match observer.publish(shard, command.clone()).await {
            Ok(Ok(answer)) => return SentPublish::Waits(answer),
            Ok(Err(NotPublished::Refused(reason, cause))) => {
                let detail = Some(format!("the broker refused it: {}", cause.name()));
                return SentPublish::Answered(PublishVerdict::Reason(reason, detail));
            }
            Ok(Err(NotPublished::Busy | NotPublished::TooMany(_))) if clock::now() < end => {
                tokio::time::sleep(AGAIN).await;
            }
            Ok(Err(NotPublished::TooMany(of))) => return SentPublish::Answered(PublishVerdict::TooMany(of)),
            Ok(Err(NotPublished::Busy)) => return SentPublish::Answered(PublishVerdict::Busy),
            Err(_) => return SentPublish::Answered(PublishVerdict::Unconfirmed),
        }
    }
}
