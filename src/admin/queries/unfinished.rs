//! The unfinished messages of one client.

use super::ask::ask;
use super::target::ClientTarget;
use crate::admin::failed::Failed;
use crate::admin::state::AdminState;
use crate::operators::query::{Query, QueryAnswer};
use crate::operators::unfinished::{PagePayloads, UnfinishedMessage, UnfinishedPage, UnfinishedPart};
use crate::shard::clients::slots::SessionId;

/// Returns a page of the unfinished messages of a client.
///
/// # Errors
/// There is no such session, or its shard does not answer.
pub(crate) async fn unfinished(
    state: &AdminState,
    target: &ClientTarget,
    (part, payloads): (UnfinishedPart, PagePayloads),
    from: u64,
    most: usize,
) -> Result<UnfinishedPage, Failed> {
    let observer = state.running()?;
    let query = Query::Unfinished { client: target.session.clone(), part, payloads, from, most };
    match ask(state, observer, target.shard(observer), query).await?.answer {
        QueryAnswer::Unfinished(Some(page)) => Ok(*page),
        _ => Err(Failed::NoSuchClient),
    }
}

/// Returns the name of a message in URLs; `None` if it has none.
pub(crate) fn message_id(state: &AdminState, session: SessionId, row: &UnfinishedMessage) -> Option<String> {
    row.name.map(|name| state.process().message_name(session, name))
}
