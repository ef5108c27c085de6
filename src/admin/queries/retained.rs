//! The retained messages that match a topic filter.

use crate::admin::failed::Failed;
use crate::broker::observer::Observer;
use crate::clock;
use crate::mqtt::message::Message;
use crate::mqtt::topic::TopicFilter;
use crate::routing::retained::{Cursor, SearchProgress};
use std::time::Duration;

/// Topics that one part of a search looks at, while it holds the lock of the retained messages:
/// 0.1 ms.
const PORTION: usize = 500;

/// Time for a search.
const TIME: Duration = Duration::from_millis(500);

/// Retained messages that match a filter.
pub(crate) struct FoundRetained {
    pub(crate) messages: Vec<Message>,
    /// False if there are more than these, or the time was over.
    pub(crate) is_complete: bool,
}

/// Returns at most `most` retained messages that match a filter, in the order of the topic tree.
///
/// # Errors
/// The text is no topic filter.
pub(crate) fn find_retained(observer: &Observer, filter: &str, most: usize) -> Result<FoundRetained, Failed> {
    TopicFilter::parse(filter, usize::MAX)
        .map_err(|error| Failed::Parameter(format!("filter {filter:?} is no topic filter: {error}")))?;
    let (mut messages, mut cursor, started) = (Vec::<Message>::new(), Cursor::default(), clock::now());
    let mut progress = SearchProgress::More;
    while progress == SearchProgress::More && messages.len() <= most && clock::now().since(started) < TIME {
        // Locked for one portion.
        let retained = observer.shared().retained();
        progress = retained.matching_from(&mut cursor, filter, clock::now(), &mut { PORTION }, &mut messages);
    }
    let is_complete = progress == SearchProgress::Done && messages.len() <= most;
    messages.truncate(most);
    Ok(FoundRetained { messages, is_complete })
}
