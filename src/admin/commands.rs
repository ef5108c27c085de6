//! Actions: on one client and its messages, on messages that no session has, and on the
//! configuration.

use super::access::Scope;
use super::audit::Parameter;
use super::failed::Failed;
use super::operator::Operator;
use super::problem_kind::ProblemKind;
use super::queries::letters::find_letter;
use super::queries::target::ClientTarget;
use super::request::named;
use super::state::AdminState;
use crate::broker::observer::NoAnswer;
use crate::broker::reload::{ReloadMode, Reloaded};
use crate::config::KeyInForce;
use crate::mqtt::topic::is_topic_name;
use crate::named_enum::named_enum;
use crate::operators::client_commands::{OperatorAction, OperatorCommand, RedeliverBy};
use crate::operators::command::CommandOutcome;
use crate::operators::message_commands::{MessageCommand, RepublishTo};
use crate::persistence::letter::LetterPlace;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use utoipa::ToSchema;

named_enum! {
    /// The result of an action.
    pub(crate) enum ActionKind {
        Done = "done",
        /// Packets were sent again.
        Resent = "resent",
        /// The connection was closed, so that packets are sent again when the client returns.
        Disconnected = "disconnected",
    }
}

/// The result of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[schema(as = Action)]
pub(crate) struct ActionDone {
    pub(crate) action: ActionKind,
    /// The packets that were sent again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) packets: Option<u32>,
}

impl ActionDone {
    pub(super) const DONE: ActionDone = ActionDone { action: ActionKind::Done, packets: None };

    /// Returns the result for the audit log.
    fn words(&self) -> String {
        match self.packets {
            None => self.action.name().to_owned(),
            Some(packets) => format!("{} {packets} packets", self.action),
        }
    }
}

/// Reads the way of a redelivery. Errors: the word is not one of the three.
pub(super) fn redeliver_by(word: &str) -> Result<RedeliverBy, Failed> {
    named("by", word, &RedeliverBy::ALL, RedeliverBy::name)
}

/// Returns the action on a message: `skip` or `park`. Errors: the name is that of no message, or
/// the verb is another.
pub(super) fn message_action(
    state: &AdminState,
    verb: &str,
    message: &str,
) -> Result<OperatorAction, Failed> {
    let message = state.process.message(message).ok_or(Failed::NoSuchMessage)?;
    match verb {
        "skip" => Ok(OperatorAction::Skip(message)),
        "park" => Ok(OperatorAction::Park(message)),
        other => Err(Failed::Parameter(format!("the action is {other:?}, and must be skip or park"))),
    }
}

/// Time for the answer to a reload: less than a request has. Files that hang are refused before.
const RELOAD: Duration = Duration::from_secs(8);

/// The answer to a reload that takes longer.
pub(super) const UNDER_WAY: &str = "the reload is under way, and is not given up: the log says how it ends (config.reloaded or config.reload_refused), and homing_config_reloads_total counts it";

/// The end of a reload, as its caller sees it.
pub(super) enum ReloadEnd {
    Done(Reloaded),
    /// All mistakes. Nothing changed.
    Refused(Vec<String>),
    /// The reload goes on, and holds later or is refused.
    UnderWay,
}

/// Acts on a client, and writes a line of the audit log. Returns the result. Errors: the operator's
/// scope is too small, the client or message is not there, the action does not fit, or the shard
/// does not answer.
pub(super) async fn carry_out(
    operator: &Operator,
    target: &ClientTarget,
    action: OperatorAction,
) -> Result<ActionDone, Failed> {
    operator.permit(Scope::Operator)?;
    let (name, parameter) = words(&operator.state, action);
    let (observer, of) = (operator.state.running()?.clone(), target.clone());
    let work = async move {
        let command = OperatorCommand { client: of.session.clone(), action };
        done(observer.command(of.shard(&observer), command).await)
    };
    operator.act((name, &target.shown), &[parameter], work, ActionDone::words).await
}

/// Reads the receivers of a republication. Errors: the word is neither of the two.
pub(super) fn republish_to(word: &str) -> Result<RepublishTo, Failed> {
    named("to", word, &RepublishTo::ALL, RepublishTo::name)
}

/// Carries out a command about a message that no session has, in a shard, and writes a line of the
/// audit log. Errors: as [`carry_out`].
pub(super) async fn command_on_message(
    operator: &Operator,
    action: (&'static str, &str),
    (shard, command): (usize, MessageCommand),
) -> Result<(), Failed> {
    operator.permit(Scope::Operator)?;
    let to = match &command {
        MessageCommand::Republish(_, to) => Some(("to", to.name().to_owned())),
        _ => None,
    };
    let observer = operator.state.running()?.clone();
    let work = async move { done(observer.command(shard, command).await) };
    operator.act(action, &[to], work, ActionDone::words).await.map(drop)
}

/// Acts on a stored dead letter, and writes a line of the audit log. `name` is that of the letter.
/// Errors: there is no such letter, or as [`carry_out`].
pub(super) async fn command_on_letter(
    operator: &Operator,
    (action, name): (&'static str, &str),
    command: impl FnOnce(LetterPlace) -> MessageCommand,
) -> Result<(), Failed> {
    operator.permit(Scope::Operator)?;
    let (shard, letter) = find_letter(&operator.state, name).await?;
    let target = format!("{name} of {} on {}", letter.receiver, letter.message.topic());
    let place = letter.place;
    // The shard must have the last reference, because it settles the released memory at once.
    drop(letter);
    command_on_message(operator, (action, &target), (shard, command(place))).await
}

/// Deletes the retained message of a topic, and writes a line of the audit log. Errors: the
/// operator's scope is too small, the topic is no topic name or is reserved, it has no retained
/// message, or the shard does not answer.
pub(super) async fn delete_retained(operator: &Operator, topic: &str) -> Result<(), Failed> {
    operator.permit(Scope::Operator)?;
    if !is_topic_name(topic) {
        return Err(Failed::Parameter("name a topic without wildcards: topic=a/b".to_owned()));
    }
    // All shards share the retained messages.
    let command = (0, MessageCommand::DeleteRetained(topic.into()));
    command_on_message(operator, ("delete_retained", topic), command).await
}

/// Returns every key of the configuration with the value in force, also on a node that stands by.
/// Errors: the broker starts or stops.
pub(super) async fn configuration(state: &AdminState) -> Result<Vec<KeyInForce>, Failed> {
    match state.observer() {
        Some(observer) => observer.configuration().await.map_err(|_| Failed::Busy),
        None => Ok(state.standby_config()?.in_force()),
    }
}

/// Reads the configuration and its files again, and writes a line of the audit log. Errors: the
/// operator's scope is too small, the broker starts or stops, or a check takes too long.
pub(super) async fn reload(operator: &Operator, mode: ReloadMode) -> Result<ReloadEnd, Failed> {
    operator.permit(Scope::Admin)?;
    let state = operator.state.clone();
    if state.observer().is_none() {
        state.standby_config()?;
    }
    let reload = async move {
        match state.observer() {
            Some(observer) => observer.reload(mode).await.map_err(|_| Failed::Busy),
            None => Ok(state.standby_config()?.reload(mode).await),
        }
    };
    let words = |result: &Result<_, _>| {
        if result.is_ok() { "done" } else { ProblemKind::ConfigInvalid.facts().slug }.to_owned()
    };
    let reload = operator.act_or_check(mode, ("reload", "configuration"), &[], reload, words);
    end_of(mode, reload).await
}

/// Waits for the end of a reload, as long as the answer has time. Errors: as the reload; also if a
/// check takes longer.
async fn end_of(
    mode: ReloadMode,
    reload: impl Future<Output = Result<Result<Reloaded, Vec<String>>, Failed>>,
) -> Result<ReloadEnd, Failed> {
    match (tokio::time::timeout(RELOAD, reload).await, mode) {
        (Ok(result), _) => Ok(result?.map_or_else(ReloadEnd::Refused, ReloadEnd::Done)),
        (Err(_), ReloadMode::Apply) => Ok(ReloadEnd::UnderWay),
        (Err(_), ReloadMode::Check) => Err(Failed::Late),
    }
}

/// Returns the name of an action in the audit log, and its parameter.
fn words(state: &AdminState, action: OperatorAction) -> (&'static str, Option<Parameter>) {
    match action {
        OperatorAction::Disconnect => ("disconnect", None),
        OperatorAction::EndSession => ("end", None),
        OperatorAction::Redeliver(by) => ("redeliver", Some(("by", by.name().to_owned()))),
        OperatorAction::Skip(message) => ("skip", Some(("mid", state.process.name_of(message)))),
        OperatorAction::Park(message) => ("park", Some(("mid", state.process.name_of(message)))),
    }
}

/// Returns the effect of a command.
fn done(outcome: Result<CommandOutcome, NoAnswer>) -> Result<ActionDone, Failed> {
    let conflict = |kind, detail: &str| Err(Failed::Conflict(kind, detail.to_owned()));
    match outcome.map_err(|_| Failed::Unconfirmed)? {
        CommandOutcome::Done => Ok(ActionDone::DONE),
        CommandOutcome::Resent(packets) => {
            Ok(ActionDone { action: ActionKind::Resent, packets: Some(packets) })
        }
        CommandOutcome::Disconnected => Ok(ActionDone { action: ActionKind::Disconnected, packets: None }),
        CommandOutcome::NoSuchClient => Err(Failed::NoSuchClient),
        CommandOutcome::NoSuchMessage => Err(Failed::NoSuchMessage),
        CommandOutcome::NotConnected => Err(Failed::NotConnected),
        CommandOutcome::NoRoom => Err(Failed::NoRoom),
        CommandOutcome::ResendForbidden => conflict(
            ProblemKind::ResendForbidden,
            "MQTT 5.0 forbids to send a packet again on its connection [MQTT-4.4.0-1]; redeliver by disconnect instead",
        ),
        CommandOutcome::EndsWithConnection => conflict(
            ProblemKind::SessionEnds,
            "the session ends with its connection, so a disconnect would drop its messages",
        ),
        CommandOutcome::AlreadyReceived => conflict(
            ProblemKind::AlreadyReceived,
            "the receiver has the message: PUBREC came, and only PUBCOMP is awaited",
        ),
        CommandOutcome::CannotPark(why) => conflict(ProblemKind::CannotPark, why),
        CommandOutcome::CannotRepublish(why) => conflict(ProblemKind::CannotRepublish, why),
        CommandOutcome::Reserved => conflict(
            ProblemKind::ReservedTopic,
            "the broker itself publishes this topic, and would publish it again",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_without_an_answer_may_have_been_carried_out() {
        let failed = done(Err(NoAnswer)).expect_err("no answer");
        assert_eq!(failed.kind(), ProblemKind::Unconfirmed);
    }

    #[test]
    fn a_reload_that_takes_longer_than_a_request_may_is_under_way_and_a_check_is_late() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("an event loop").block_on(async {
            let end = end_of(ReloadMode::Apply, std::future::pending()).await;
            assert!(matches!(end, Ok(ReloadEnd::UnderWay)));
            let end = end_of(ReloadMode::Check, std::future::pending()).await;
            assert!(matches!(end, Err(Failed::Late)));
            let end = end_of(ReloadMode::Apply, std::future::ready(Ok(Err(Vec::new())))).await;
            assert!(matches!(end, Ok(ReloadEnd::Refused(_))));
        });
    }
}
