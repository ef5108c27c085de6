//! The unfinished messages of one client.

use super::ask::ask;
use super::target::ClientTarget;
use crate::admin::failed::Failed;
use crate::admin::state::AdminState;
use crate::operators::query::{Query, QueryAnswer};
use crate::operators::stored::{StoreLooked, StoreLookup};
use crate::operators::unfinished::{PagePayloads, UnfinishedMessage, UnfinishedPage, UnfinishedPart};
use crate::operators::wanted::Wanted;
use crate::slots::SessionId;
use crate::store::view::StoreView;
use crate::time::Instant;

/// A page of unfinished messages, and what the store said.
pub(crate) struct FoundPage {
    pub(crate) page: UnfinishedPage,
    /// The reason why messages that are in the store alone are not in the page; `None` if the store
    /// answered, or was not asked.
    pub(crate) store_error: Option<String>,
}

/// Returns a page of the unfinished messages of a client. What is in the store alone is read from
/// there. Errors: there is no such session, or its shard does not answer.
pub(crate) async fn unfinished(
    state: &AdminState,
    target: &ClientTarget,
    (part, payloads): (UnfinishedPart, PagePayloads),
    from: u64,
    most: usize,
) -> Result<FoundPage, Failed> {
    let observer = state.running()?;
    let query = Query::Unfinished { client: target.session.clone(), part, payloads, from, most };
    match ask(state, target.shard(observer), query).await?.answer {
        QueryAnswer::Unfinished(Some(mut page)) => {
            let read = match observer.store() {
                Some(store) => read_back(store, &mut page, (part, payloads)).await,
                None => Ok(()),
            };
            Ok(FoundPage { page: *page, store_error: read.err() })
        }
        _ => Err(Failed::NoSuchClient),
    }
}

/// Reads what is missing in the rows from the store: for how long queued messages wait, messages
/// that are in the store alone, and their payloads if they are shown. Errors: the store does not
/// answer. Says why.
async fn read_back(
    store: &StoreView,
    page: &mut UnfinishedPage,
    (part, payloads): (UnfinishedPart, PagePayloads),
) -> Result<(), String> {
    let places = if part == UnfinishedPart::Queue { page.places() } else { Vec::new() };
    if places.is_empty() {
        return Ok(());
    }
    let lookup = StoreLookup { rows: places.len(), places, wanted: Wanted::default() };
    let StoreLooked { found, rows, .. } = store.look(lookup, Instant::NEVER).await?;
    page.add_stored(&found, rows);
    let places = page.places_without_body();
    if payloads == PagePayloads::Shown && !places.is_empty() {
        page.add_bodies(store.bodies(places).await?);
    }
    Ok(())
}

/// Returns the name of a message in URLs; `None` if it has none.
pub(crate) fn message_id(state: &AdminState, session: SessionId, row: &UnfinishedMessage) -> Option<String> {
    row.name.map(|name| state.process.message_name(session, name))
}
