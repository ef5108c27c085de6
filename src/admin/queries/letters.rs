//! Stored dead letters of all shards: a listing, one letter, and those that `where` looks for.

use super::ask::ask;
use super::one_page::cut_page;
use crate::admin::failed::Failed;
use crate::admin::names::{letter_name, read_letter_name};
use crate::admin::request::{DurationText, limit_of};
use crate::admin::state::AdminState;
use crate::clock;
use crate::mqtt::topic::TopicFilter;
use crate::operators::letters::LetterFilter;
use crate::operators::query::{Part, Query, QueryAnswer, ROWS};
use crate::operators::wanted::Wanted;
use crate::persistence::letter::{LetterNumber, LetterPlace, StoredLetter};
use crate::session::drops::DropReason;
use crate::time::{Instant, duration, millis};
use serde::Deserialize;
use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;
use utoipa::ToSchema;

/// Time for a page. A page that is not full by then is short.
const TIME: Duration = Duration::from_secs(2);

/// The parameters of a listing.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LetterParameters {
    /// Number of rows at most.
    #[schema(minimum = 1, maximum = 256, default = 100, example = 10)]
    pub(crate) limit: Option<usize>,
    pub(crate) cursor: Option<String>,
    /// The cause of the drop.
    #[schema(example = "expired")]
    pub(crate) cause: Option<String>,
    /// The client id of the receiver, or `$share/` and the name of a shared group.
    #[schema(example = "pump-7")]
    pub(crate) receiver: Option<String>,
    /// A topic filter.
    #[schema(example = "pumps/#")]
    pub(crate) topic: Option<String>,
    /// Only letters that were dropped at least this long ago.
    #[schema(value_type = Option<DurationText>)]
    pub(crate) min_age: Option<String>,
    /// Only letters that were dropped at most this long ago.
    #[schema(value_type = Option<DurationText>)]
    pub(crate) max_age: Option<String>,
}

impl LetterParameters {
    /// Returns the letters that are wanted. Errors: the cause, the topic filter or an age is not
    /// valid.
    pub(crate) fn filter(&self) -> Result<LetterFilter, Failed> {
        if let Some(cause) = &self.cause
            && DropReason::ALL.iter().all(|known| known.name() != cause)
        {
            let causes: Vec<&str> = DropReason::ALL.iter().map(|cause| cause.name()).collect();
            let what = format!("cause is {cause:?}, and must be one of {}", causes.join(", "));
            return Err(Failed::Parameter(what));
        }
        if let Some(topic) = &self.topic {
            TopicFilter::parse(topic, usize::MAX)
                .map_err(|error| Failed::Parameter(format!("topic {topic:?} is no topic filter: {error}")))?;
        }
        let owned = |text: &Option<String>| text.as_deref().map(Into::into);
        Ok(LetterFilter {
            cause: owned(&self.cause),
            receiver: owned(&self.receiver),
            topic: owned(&self.topic),
            from_ms: ago("max_age", &self.max_age)?.unwrap_or(0),
            until_ms: ago("min_age", &self.min_age)?,
        })
    }
}

/// Returns the time that was so long ago, in milliseconds since 1970. Errors: the text is no
/// duration.
fn ago(name: &str, age: &Option<String>) -> Result<Option<u64>, Failed> {
    let Some(text) = age else { return Ok(None) };
    let age = duration::parse(text).map_err(|error| Failed::Parameter(format!("{name}: {error}")))?;
    let millis = millis(age);
    Ok(Some(clock::unix_millis().saturating_sub(millis)))
}

/// A page of the letters of all shards, the newest first.
#[derive(Debug, Default)]
pub(crate) struct ListedLetters {
    pub(crate) letters: Vec<Arc<StoredLetter>>,
    /// The cursor of the next page; `None` at the end.
    pub(crate) next: Option<String>,
}

/// Returns a page of the letters of all shards, the newest first. A letter that stays is listed
/// exactly once over all pages. Errors: a parameter or the cursor is not valid, or a shard does not
/// answer.
pub(crate) async fn list_letters(
    state: &AdminState,
    parameters: &LetterParameters,
) -> Result<ListedLetters, Failed> {
    let (limit, filter) = (limit_of(parameters.limit, 100, ROWS)?, parameters.filter()?);
    let before = match &parameters.cursor {
        None => None,
        Some(text) => Some(read_letter_name(text).ok_or(Failed::Cursor)?),
    };
    let (mut letters, mut reached, end) = (Vec::new(), None, clock::now() + TIME);
    for shard in 0..state.running()?.shards() {
        let found = of_shard(state, shard, before, (limit, end), &filter).await?;
        reached = reached.max(found.next);
        letters.extend(found.rows);
    }
    let bytes = |letter: &Arc<StoredLetter>| letter.message.topic().len() + letter.receiver.len();
    let next = cut_page(&mut letters, limit, |letter| Reverse(letter.place), bytes, reached.map(Reverse));
    Ok(ListedLetters { letters, next: next.map(|Reverse(place)| letter_name(place)) })
}

/// Returns the newest letters of a shard before a place, as many as `most` if there are as many,
/// and fewer at the time `end`.
async fn of_shard(
    state: &AdminState,
    shard: usize,
    before: Option<LetterPlace>,
    (most, end): (usize, Instant),
    filter: &LetterFilter,
) -> Result<Part<Arc<StoredLetter>, LetterPlace>, Failed> {
    let (mut all, mut before) = (Part::empty(None), before);
    loop {
        let query = Query::Letters { before, most: most - all.rows.len(), filter: filter.clone() };
        let QueryAnswer::Letters(page) = ask(state, shard, query).await?.answer else {
            return Err(Failed::Busy);
        };
        all.rows.extend(page.rows);
        all.next = page.next;
        if all.rows.len() >= most || page.next.is_none() || clock::now() >= end {
            return Ok(all);
        }
        before = page.next;
    }
}

/// Returns the places of all letters that a filter admits, for each shard, the oldest first. None
/// is newer than `newest`. A million letters are a thousand questions and 16 MB.
pub(crate) async fn places_of(
    state: &AdminState,
    filter: &LetterFilter,
    newest: Option<LetterPlace>,
) -> Result<Vec<Vec<LetterPlace>>, Failed> {
    let observer = state.running()?;
    // Behind the newest one. A number is unique, so no letter is there.
    let behind =
        |place: LetterPlace| LetterPlace { number: LetterNumber(place.number.0.saturating_add(1)), ..place };
    let mut all = Vec::new();
    for shard in 0..observer.shards() {
        let (mut places, mut before, mut has_more) = (Vec::new(), newest.map(behind), true);
        while has_more {
            let query = Query::Letters { before, most: ROWS, filter: filter.clone() };
            let QueryAnswer::Letters(page) = ask(state, shard, query).await?.answer else {
                return Err(Failed::Busy);
            };
            places.extend(page.rows.iter().map(|letter| letter.place));
            (before, has_more) = (page.next, page.next.is_some());
        }
        places.reverse();
        all.push(places);
    }
    Ok(all)
}

/// Returns the letters that an operator looks for, the newest first and at most [`ROWS`], and true
/// if these are all. Ends at `end`.
pub(super) async fn find_letters(
    state: &AdminState,
    (wanted, end): (&Wanted, Instant),
) -> Result<(Vec<Arc<StoredLetter>>, bool), Failed> {
    let observer = state.running()?;
    // The publisher is compared below.
    let topic = wanted.topic.as_ref().map(|topic| topic.text().into());
    let filter = LetterFilter { receiver: wanted.receiver.clone(), topic, ..LetterFilter::default() };
    let (mut letters, mut is_complete) = (Vec::new(), true);
    for shard in 0..observer.shards() {
        let (mut before, mut has_more) = (None, true);
        while has_more && letters.len() < ROWS && clock::now() < end {
            let query = Query::Letters { before, most: ROWS, filter: filter.clone() };
            let QueryAnswer::Letters(page) = ask(state, shard, query).await?.answer else {
                return Err(Failed::Busy);
            };
            letters.extend(page.rows.into_iter().filter(|letter| wanted.is(&letter.message)));
            (before, has_more) = (page.next, page.next.is_some());
        }
        is_complete &= !has_more;
    }
    letters.sort_by_key(|letter: &Arc<StoredLetter>| Reverse(letter.place));
    is_complete &= letters.len() <= ROWS;
    letters.truncate(ROWS);
    Ok((letters, is_complete))
}

/// Returns the letter with a name, and the number of its shard. Errors: there is no such letter, or
/// a shard does not answer.
pub(crate) async fn find_letter(
    state: &AdminState,
    name: &str,
) -> Result<(usize, Arc<StoredLetter>), Failed> {
    let place = read_letter_name(name).ok_or(Failed::NoSuchMessage)?;
    let observer = state.running()?;
    for shard in 0..observer.shards() {
        let answer = ask(state, shard, Query::Letter(place)).await?.answer;
        if let QueryAnswer::Letter(Some(letter)) = answer {
            return Ok((shard, letter));
        }
    }
    Err(Failed::NoSuchMessage)
}
