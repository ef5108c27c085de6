//! The actions of operators: a line of the log target `homing::audit` each, and the last 1,000.

use super::access::{Caller, Scope};
use crate::clock;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use tracing::info;
use utoipa::ToSchema;

/// Actions that are kept, and as many requests that publish.
pub(super) const KEPT: usize = 1_000;

/// Characters of a text of a client or an operator in an entry at most.
const TEXT: usize = 256;

#[derive(Clone, Debug)]
pub(super) struct AuditedAction<'a> {
    pub(super) action: &'static str,
    /// The client, topic or other subject of the action.
    pub(super) target: &'a str,
    /// Its parameters, and the note of the operator: see [`arguments`].
    pub(super) arguments: String,
    /// The action, or the slug of the error that the caller got.
    pub(super) result: String,
}

/// A parameter of an action, under its name in the interface.
pub(super) type Parameter = (&'static str, String);

/// Returns the parameters of an action as one text, such as `by=auto, note=it is repaired`.
pub(super) fn arguments(parameters: &[Option<Parameter>]) -> String {
    let given = parameters.iter().flatten().map(|(name, value)| format!("{name}={value}"));
    given.collect::<Vec<_>>().join(", ")
}

/// An action in the log.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub(crate) struct AuditEntry {
    /// Counts up from 1.
    pub(crate) n: u64,
    pub(crate) unix_ms: u64,
    /// The name of the caller.
    pub(crate) who: String,
    pub(crate) scope: Scope,
    /// The address of the caller, or "unix socket".
    pub(crate) source: String,
    /// The number of the request since the start: `X-Request-Id` of its answer.
    pub(crate) request: u64,
    /// The name of the action.
    pub(crate) action: Cow<'static, str>,
    /// The client, topic or other thing that the action is about.
    pub(crate) target: String,
    pub(crate) arguments: String,
    pub(crate) result: String,
}

/// The last actions, the newest last.
#[derive(Debug, Default)]
pub(super) struct AuditLog(Mutex<AuditEntries>);

#[derive(Debug, Default)]
struct AuditEntries {
    /// The number of the next entry; they begin at 1.
    next: u64,
    entries: VecDeque<AuditEntry>,
    /// The entries about messages that programs publish. They are many, and would push the other
    /// entries out.
    published: VecDeque<AuditEntry>,
}

impl AuditLog {
    /// Logs an action and keeps it.
    pub(super) fn note(&self, caller: &Caller, action: &AuditedAction<'_>) {
        self.keep(caller, action, |kept| &mut kept.entries);
    }

    /// As [`Self::note`], for published messages.
    pub(super) fn note_publish(&self, caller: &Caller, action: &AuditedAction<'_>) {
        self.keep(caller, action, |kept| &mut kept.published);
    }

    fn keep(
        &self,
        caller: &Caller,
        action: &AuditedAction<'_>,
        list: fn(&mut AuditEntries) -> &mut VecDeque<AuditEntry>,
    ) {
        let AuditedAction { action: name, target, arguments, result } = action;
        let (target, arguments) = (shortened(target), shortened(arguments));
        let (who, scope) = (&caller.name, caller.scope);
        let source = caller.origin.address.map_or_else(|| "unix socket".to_owned(), |ip| ip.to_string());
        let request = caller.origin.request;
        info!(
            target: "homing::audit", event = "audit.action", who = who.as_str(), scope = %scope, source, request,
            action = name, on = target.as_str(), arguments = arguments.as_str(), %result, "an operator acted"
        );
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.next += 1;
        let entry = AuditEntry {
            n: kept.next,
            unix_ms: clock::unix_millis(),
            who: who.clone(),
            scope,
            source,
            request,
            action: (*name).into(),
            target,
            arguments,
            result: result.clone(),
        };
        let entries = list(&mut kept);
        if entries.len() >= KEPT {
            entries.pop_front();
        }
        entries.push_back(entry);
    }

    /// Returns the last actions without published messages, the newest first, at most `most`.
    pub(super) fn last(&self, most: usize) -> Vec<AuditEntry> {
        self.newest(most, |kept| &kept.entries)
    }

    /// Returns the last requests that published messages, the newest first, at most `most`.
    pub(super) fn last_published(&self, most: usize) -> Vec<AuditEntry> {
        self.newest(most, |kept| &kept.published)
    }

    fn newest(&self, most: usize, list: fn(&AuditEntries) -> &VecDeque<AuditEntry>) -> Vec<AuditEntry> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        list(&kept).iter().rev().take(most).cloned().collect()
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(TEXT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::access::Origin;

    #[test]
    fn the_newest_action_comes_first_and_the_oldest_goes() {
        let audit = AuditLog::default();
        let origin = Origin { address: None, request: 7 };
        let caller = Caller { name: "me".to_owned(), scope: Scope::Operator, credential: None, origin };
        for n in 0..=KEPT {
            let (arguments, result) = (String::new(), "done".to_owned());
            audit.note(&caller, &AuditedAction { action: "skip", target: &n.to_string(), arguments, result });
        }
        let last = audit.last(usize::MAX);
        assert_eq!(last.len(), KEPT);
        assert_eq!((last[0].target.as_str(), last[0].n), ("1000", 1_001));
        assert_eq!(last[KEPT - 1].target, "1");
        assert_eq!((last[0].source.as_str(), last[0].request), ("unix socket", 7));
    }

    #[test]
    fn published_messages_push_no_other_action_out() {
        let (audit, origin) = (AuditLog::default(), Origin::default());
        let caller = Caller { name: "me".to_owned(), scope: Scope::Operator, credential: None, origin };
        let action = |action, target| {
            let (arguments, result) = (String::new(), "done".to_owned());
            AuditedAction { action, target, arguments, result }
        };
        audit.note(&caller, &action("skip", "pump"));
        (0..=KEPT).for_each(|_| audit.note_publish(&caller, &action("publish", "t")));
        assert_eq!((audit.last(KEPT).len(), audit.last_published(usize::MAX).len()), (1, KEPT));
        assert_eq!(audit.last_published(1)[0].n, KEPT as u64 + 2, "all have numbers of one row");
    }
}
