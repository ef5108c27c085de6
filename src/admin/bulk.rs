//! Actions of operators on many connections, messages or dead letters, in portions.

use super::access::Scope;
use super::audit::{Parameter, arguments};
use super::failed::Failed;
use super::names::{letter_name, read_letter_name};
use super::operator::Operator;
use super::queries::ask::ask;
use super::queries::letters::{LetterParameters, places_of};
use super::queries::sessions::connected_of;
use super::queries::target::ClientTarget;
use super::state::State;
use crate::broker::observer::Observer;
use crate::clock;
use crate::operators::bulk_commands::{BulkCommand, BulkPortion};
use crate::operators::message_commands::RepublishTo;
use crate::operators::query::{Part, Query, QueryAnswer, ROWS};
use crate::persistence::letter::LetterPlace;
use crate::time::Instant;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::time::Duration;
use utoipa::ToSchema;

/// Time after which an action answers with its progress. The time is shorter than that of a
/// request.
const TIME: Duration = Duration::from_secs(5);

/// Time that an action on dead letters has once the letters are found, however long the search
/// took. So each request makes progress, also with a million letters.
const LEAST: Duration = Duration::from_secs(2);

/// Time until a shard is asked again that could do nothing.
const AGAIN: Duration = Duration::from_millis(5);

/// The answer to an action on many things.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[schema(as = Many)]
pub(crate) struct ManyDone {
    /// Connections closed, messages dropped, or dead letters done with; with `confirm` the dead
    /// letters that would be.
    pub(crate) count: usize,
    /// Dead letters that were not republished, and stay.
    pub(crate) refused: usize,
    /// Why the first of them stays.
    #[schema(required)]
    pub(crate) refusal: Option<Cow<'static, str>>,
    /// False if more is left: ask again.
    pub(crate) complete: bool,
    /// Dead letters that are left. Of connections and queues the number is not known, and null.
    #[schema(required)]
    pub(crate) left: Option<usize>,
    /// Nothing is done yet. The same request with this value does it.
    #[schema(required)]
    pub(crate) confirm: Option<String>,
}

impl ManyDone {
    /// Returns what was done with dead letters, as a sentence without its end. `verb` names the
    /// action, such as `deleted`.
    pub(crate) fn of_letters(&self, verb: &str) -> String {
        let (letters, are) = if self.count == 1 { ("dead letter", "is") } else { ("dead letters", "are") };
        let mut said = format!("{} {letters} {are} {verb}", self.count);
        if let (refused @ 1.., Some(why)) = (self.refused, &self.refusal) {
            said += &format!("; {refused} stay, the first because {why}");
        }
        if let Some(left @ 1..) = self.left {
            said += &format!("; {left} are left, so do it again");
        }
        said
    }
}

/// The progress of an action.
#[derive(Debug, Default)]
struct ActedSoFar {
    count: usize,
    refused: usize,
    refusal: Option<&'static str>,
    /// True if the time was over before the end.
    is_cut: bool,
    /// Dead letters that were not looked at; `None` for other actions.
    left: Option<usize>,
}

impl ActedSoFar {
    fn add(&mut self, portion: &BulkPortion) {
        self.count += portion.done;
        self.refused += portion.refused;
        self.refusal = self.refusal.or(portion.refusal);
        self.left = self.left.map(|left| left.saturating_sub(portion.looked_at));
    }

    fn answer(&self) -> ManyDone {
        let ActedSoFar { count, refused, refusal, is_cut, left } = *self;
        let refusal = refusal.map(Cow::Borrowed);
        ManyDone { count, refused, refusal, complete: !is_cut, left, confirm: None }
    }

    /// Returns the result for the audit log.
    fn words(&self) -> String {
        let ActedSoFar { count, refused, is_cut, .. } = self;
        let refused = if *refused > 0 { format!(", {refused} refused") } else { String::new() };
        let cut = if *is_cut { ", more are left" } else { "" };
        format!("done {count}{refused}{cut}")
    }
}

/// Drops the present queue of a client. Messages in flight stay. Errors: the caller's
/// scope is too small, there is no such session, or its shard does not answer.
pub(super) async fn purge(operator: &Operator, target: &ClientTarget) -> Result<ManyDone, Failed> {
    let of = target.clone();
    let work = async move |state: State, mut done: ActedSoFar| {
        let observer = state.running()?;
        // Messages that arrive meanwhile are not dropped.
        let (end, mut left) = (clock::now() + TIME, usize::MAX);
        while left > 0 && !done.is_cut {
            let command = BulkCommand::Purge(of.session.clone(), left);
            let portion = portion(observer, of.shard(observer), command).await?;
            let Some(portion) = portion else {
                return (done.count > 0).then_some(done).ok_or(Failed::NoSuchClient);
            };
            done.add(&portion);
            left = left.min(portion.done + portion.queued) - portion.done;
            pause(portion.done).await;
            done.is_cut = left > 0 && clock::now() >= end;
        }
        Ok(done)
    };
    audited(operator, ("purge", &target.shown), &[], work).await
}

/// Closes the connections of all clients that a filter admits. Errors: the caller's
/// scope is too small, the filter admits everybody or names no listener, or a shard does not
/// answer.
pub(super) async fn disconnect(operator: &Operator, wanted: ConnectionFilter) -> Result<ManyDone, Failed> {
    operator.permit(Scope::Operator)?;
    let ConnectionFilter { user, listener, prefix } = wanted;
    let named = [("user", &user), ("listener", &listener), ("prefix", &prefix)];
    let target = words(named)?;
    let filter = connected_of(operator.state.running()?, user, listener, prefix)?;
    let work = async move |state: State, mut done: ActedSoFar| {
        let (observer, end) = (state.running()?, clock::now() + TIME);
        for shard in 0..observer.shards() {
            let mut from = Some(0);
            while let Some(slot) = from.filter(|_| !done.is_cut) {
                let query = Query::Sessions { from: slot, most: ROWS, filter: filter.clone() };
                let QueryAnswer::Sessions(Part { rows, next }) = ask(&state, shard, query).await?.answer
                else {
                    return Err(Failed::Busy);
                };
                let open: Vec<_> = rows.iter().filter_map(|row| row.connection).collect();
                in_portions((observer, shard), &open, BulkCommand::Disconnect, (&mut done, end)).await?;
                from = next;
            }
        }
        Ok(done)
    };
    audited(operator, ("disconnect", &target), &[], work).await
}

/// The clients that are disconnected. At least one field is given.
#[derive(Debug, Default)]
pub(super) struct ConnectionFilter {
    pub(super) user: Option<String>,
    /// The name of a listener, or its address.
    pub(super) listener: Option<String>,
    /// The beginning of the client identifier.
    pub(super) prefix: Option<String>,
}

/// The action on dead letters.
#[derive(Clone, Copy, Debug)]
pub(super) enum LetterAction {
    Delete,
    Republish(RepublishTo),
}

/// The dead letters of a request, and its confirmation.
#[derive(Debug, Default)]
pub(super) struct LetterWish {
    pub(super) filter: LetterParameters,
    /// True if the request wants all letters, without a filter.
    pub(super) all: bool,
    /// The confirmation that the count of the letters came with; `None` to count them.
    pub(super) confirm: Option<String>,
}

/// Deletes or republishes the dead letters that a filter admits. Without a
/// confirmation it counts them, and returns the confirmation: the name of the newest one. With it,
/// no newer letter is touched. The oldest letter of each receiver comes first. Errors: the caller's
/// scope is too small, the filter is invalid or empty, the confirmation is invalid, or a shard does
/// not answer.
pub(super) async fn act_on_letters(
    operator: &Operator,
    wish: LetterWish,
    action: LetterAction,
) -> Result<ManyDone, Failed> {
    operator.permit(Scope::Operator)?;
    let target = match wish.filter.words() {
        Ok(_) if wish.all => Err(Failed::Parameter("all has no filter beside it".to_owned())),
        Err(_) if wish.all => Ok("all".to_owned()),
        named => named,
    }?;
    let filter = wish.filter.filter()?;
    let Some(confirm) = wish.confirm else {
        return counted(&places_of(&operator.state, &filter, None).await?);
    };
    let newest = read_letter_name(&confirm).ok_or_else(|| {
        Failed::Parameter("confirm is no confirmation; ask without it, and repeat with what comes".to_owned())
    })?;
    let (name, to) = match action {
        LetterAction::Delete => ("delete_dead_letters", None),
        LetterAction::Republish(to) => ("republish_dead_letters", Some(("to", to.name().to_owned()))),
    };
    let work = async move |state: State, mut done: ActedSoFar| {
        let (observer, end) = (state.running()?, clock::now() + TIME);
        let all = places_of(&state, &filter, Some(newest)).await?;
        let end = end.max(clock::now() + LEAST);
        done.left = Some(all.iter().map(Vec::len).sum());
        for (shard, places) in all.iter().enumerate() {
            let command = |places| match action {
                LetterAction::Delete => BulkCommand::DeleteLetters(places),
                LetterAction::Republish(to) => BulkCommand::Republish(places, to),
            };
            in_portions((observer, shard), places, command, (&mut done, end)).await?;
        }
        Ok(done)
    };
    audited(operator, (name, &target), &[to], work).await
}

/// Returns the number of letters, and the confirmation to act on them.
fn counted(all: &[Vec<LetterPlace>]) -> Result<ManyDone, Failed> {
    let newest = all.iter().flatten().max().map(|place| letter_name(*place));
    let count = all.iter().map(Vec::len).sum::<usize>();
    Ok(ManyDone {
        count,
        refused: 0,
        refusal: None,
        complete: count == 0,
        left: Some(count),
        confirm: newest,
    })
}

impl LetterParameters {
    /// Returns the filter as one text. Errors: no filter is given.
    pub(super) fn words(&self) -> Result<String, Failed> {
        let LetterParameters { cause, receiver, topic, min_age, max_age, .. } = self;
        words([
            ("cause", cause),
            ("receiver", receiver),
            ("topic", topic),
            ("min_age", min_age),
            ("max_age", max_age),
        ])
    }
}

/// Returns the parameters of a filter as one text. Errors: none is given. Then everything would be
/// wanted.
fn words<const N: usize>(named: [(&'static str, &Option<String>); N]) -> Result<String, Failed> {
    let given = named.map(|(name, value)| value.as_ref().map(|value| (name, value.clone())));
    if given.iter().all(Option::is_none) {
        let names = named.map(|(name, _)| name).join(", ");
        return Err(Failed::Parameter(format!("name what is meant, by one of {names}")));
    }
    Ok(arguments(&given))
}

/// Does an action on many things to its end, and writes a line of the audit log.
async fn audited(
    operator: &Operator,
    action: (&'static str, &str),
    parameters: &[Option<Parameter>],
    work: impl AsyncFnOnce(State, ActedSoFar) -> Result<ActedSoFar, Failed> + 'static,
) -> Result<ManyDone, Failed> {
    operator.permit(Scope::Operator)?;
    let state = operator.state.clone();
    let work = async move { work(state, ActedSoFar::default()).await };
    operator.act(action, parameters, work, ActedSoFar::words).await.map(|done| done.answer())
}

/// Has a shard act on things, in portions, until `end`.
async fn in_portions<T: Copy>(
    (observer, shard): (&Observer, usize),
    things: &[T],
    command: impl Fn(Box<[T]>) -> BulkCommand,
    (done, end): (&mut ActedSoFar, Instant),
) -> Result<(), Failed> {
    let mut rest = things;
    while !rest.is_empty() {
        if clock::now() >= end {
            done.is_cut = true;
            break;
        }
        let next = &rest[..rest.len().min(ROWS)];
        let portion = portion(observer, shard, command(next.into())).await?.unwrap_or_default();
        done.add(&portion);
        rest = rest.get(portion.looked_at..).unwrap_or_default();
        pause(portion.looked_at).await;
    }
    Ok(())
}

async fn portion(
    observer: &Observer,
    shard: usize,
    command: BulkCommand,
) -> Result<Option<BulkPortion>, Failed> {
    observer.command(shard, command).await.map_err(|_| Failed::Unconfirmed)
}

/// Waits a moment if a shard could do nothing.
async fn pause(looked_at: usize) {
    if looked_at == 0 {
        tokio::time::sleep(AGAIN).await;
    }
}
