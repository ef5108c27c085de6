//! An operator who acts: who it is, with which note, and the line of the audit log of each action.

use super::access::{Caller, Scope};
use super::audit::{AuditedAction, Parameter, arguments};
use super::failed::Failed;
use super::request::{parse_query, permit};
use super::state::State;
use crate::broker::reload::ReloadMode;
use actix_web::dev::Payload;
use actix_web::{FromRequest, HttpMessage, HttpRequest};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::future::{Ready, ready};
use utoipa::ToSchema;

/// Characters of a note at most.
pub(super) const NOTE: usize = 256;

/// An operator who acts.
#[derive(Clone)]
pub(super) struct Operator {
    pub(super) state: State,
    pub(super) caller: Caller,
    /// The note for the audit log; empty for none.
    pub(super) note: String,
}

impl Operator {
    /// Checks that the operator may do what needs this scope. Errors: the scope is too small, or
    /// the note is too long.
    pub(super) fn permit(&self, needed: Scope) -> Result<(), Failed> {
        permit(&self.caller, needed)?;
        if self.note.chars().count() > NOTE {
            return Err(Failed::Parameter(format!("note has more than {NOTE} characters")));
        }
        Ok(())
    }

    /// Returns the note as a parameter of an action; `None` without a note.
    pub(super) fn note_parameter(&self) -> Option<Parameter> {
        (!self.note.is_empty()).then(|| ("note", self.note.clone()))
    }

    /// Does an action to its end, and writes a line of the audit log with these parameters and the
    /// note. `words` returns the result for that line. Errors: those of the action; its line has
    /// the slug. The interface stops.
    pub(super) async fn act<T: 'static>(
        &self,
        (action, target): (&'static str, &str),
        parameters: &[Option<Parameter>],
        work: impl Future<Output = Result<T, Failed>> + 'static,
        words: impl FnOnce(&T) -> String + 'static,
    ) -> Result<T, Failed> {
        let arguments = arguments(&[parameters, &[self.note_parameter()]].concat());
        let (operator, target) = (self.clone(), target.to_owned());
        complete(async move {
            let done = work.await;
            let result = done.as_ref().map_or_else(|failed| failed.slug().to_owned(), words);
            operator.audit((action, &target), arguments, result);
            done
        })
        .await?
    }

    /// Does an action as [`Self::act`], or only checks it: a check changes nothing, so it leaves no
    /// line.
    pub(super) async fn act_or_check<T: 'static>(
        &self,
        mode: ReloadMode,
        action: (&'static str, &str),
        parameters: &[Option<Parameter>],
        work: impl Future<Output = Result<T, Failed>> + 'static,
        words: impl FnOnce(&T) -> String + 'static,
    ) -> Result<T, Failed> {
        match mode {
            ReloadMode::Apply => self.act(action, parameters, work, words).await,
            ReloadMode::Check => complete(work).await?,
        }
    }

    /// Writes a line of the audit log.
    pub(super) fn audit(&self, (action, target): (&'static str, &str), arguments: String, result: String) {
        self.state.audit.note(&self.caller, &AuditedAction { action, target, arguments, result });
    }
}

/// Makes a change to its end, even if its request ends before: its time is over, or its connection
/// is lost. Otherwise the change would be made, and be missing from the audit log. Errors: the
/// interface stops.
pub(super) async fn complete<T: 'static>(change: impl Future<Output = T> + 'static) -> Result<T, Failed> {
    actix_web::rt::spawn(change).await.map_err(|_| Failed::Busy)
}

/// The request of a program for an action. The parameter `note` belongs to the operator.
pub(super) struct OperatorRequest<T = NoParameters> {
    pub(super) operator: Operator,
    /// The other parameters.
    pub(super) asked: T,
}

/// The parameters of an action that has none but the note.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NoParameters {}

/// The parameter that every action has.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NoteParameter {
    note: Option<String>,
}

impl<T: DeserializeOwned> OperatorRequest<T> {
    /// Reads the caller, whom the table of routes has admitted, and the query string.
    fn read(request: &HttpRequest) -> Result<OperatorRequest<T>, Failed> {
        let is_note = |pair: &&str| pair.split('=').next() == Some("note");
        let (note, others): (Vec<&str>, Vec<&str>) = request.query_string().split('&').partition(is_note);
        let NoteParameter { note } = parse_query(&note.join("&"))?;
        let asked = parse_query(&others.join("&")).map_err(|failed| match failed.to_string() {
            // serde knows the other parameters alone.
            what if what.ends_with("there are no fields") => {
                Failed::Parameter(what.replace("there are no fields", "expected `note`"))
            }
            what if what.starts_with("unknown field") => Failed::Parameter(what + " or `note`"),
            what => Failed::Parameter(what),
        })?;
        let caller = request.extensions().get::<Caller>().cloned().ok_or(Failed::Unauthorized)?;
        let state = request.app_data::<State>().ok_or(Failed::Unauthorized)?.clone();
        Ok(OperatorRequest { operator: Operator { state, caller, note: note.unwrap_or_default() }, asked })
    }
}

impl<T: DeserializeOwned> FromRequest for OperatorRequest<T> {
    type Error = Failed;
    type Future = Ready<Result<OperatorRequest<T>, Failed>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(OperatorRequest::read(request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::sync::oneshot;

    #[test]
    fn a_change_is_made_to_its_end_though_its_request_ends_before() {
        actix_rt::System::new().block_on(async {
            let (shard, answer) = oneshot::channel::<u64>();
            let (noted, is_noted) = oneshot::channel();
            let change = async move {
                let number = answer.await.expect("the shard answers");
                noted.send(number).expect("the test waits");
            };
            let request = tokio::time::timeout(Duration::ZERO, complete(change)).await;
            assert!(request.is_err(), "the request ends first");
            shard.send(7).expect("the change is still being made");
            assert_eq!(is_noted.await, Ok(7));
        });
    }
}
