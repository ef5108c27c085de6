//! The retained messages that match a topic filter.

use crate::admin::failed::Failed;
use crate::admin::state::AdminState;
use crate::clock;
use crate::mqtt::message::Message;
use crate::mqtt::topic::TopicFilter;
use crate::operators::budget::QuestionBudget;
use crate::operators::query::BYTES;
use crate::routing::retained::{Cursor, SearchProgress};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::time::Duration;

/// Topics that one part of a search looks at under the lock: 0.05 to 0.1 ms. Every PUBLISH of a
/// retained message needs this lock.
const PORTION: u32 = 250;

/// Time for a search.
const TIME: Duration = Duration::from_millis(500);

/// Bytes of a key that fits into the URL of a request as a cursor.
const KEY: usize = 16 << 10;

/// Retained messages that match a filter.
pub(crate) struct FoundRetained {
    /// The messages, in the order of the topic tree.
    pub(crate) messages: Vec<Message>,
    /// The place of the next page; `None` at the end.
    next: Option<Cursor>,
}

impl FoundRetained {
    /// Returns false if there are more than these, or the time was over.
    pub(crate) fn is_complete(&self) -> bool {
        self.next.is_none()
    }

    /// Returns the cursor of the next page; `None` at the end, and if its topic is too long for a
    /// URL.
    pub(crate) fn cursor(&self) -> Option<String> {
        let key = self.next.as_ref()?.key();
        (key.len() <= KEY).then(|| URL_SAFE_NO_PAD.encode(key))
    }
}

/// Returns at most `most` retained messages that match a filter, in the order of the topic tree,
/// from a cursor on. There are fewer with long topics. The lock is free between two portions, for
/// longer than it was held. Errors: the topic filter or the cursor is invalid. Too many callers
/// wait.
pub(crate) async fn find_retained(
    state: &AdminState,
    filter: &str,
    cursor: Option<&str>,
    most: usize,
) -> Result<FoundRetained, Failed> {
    TopicFilter::parse(filter, usize::MAX)
        .map_err(|error| Failed::Parameter(format!("filter {filter:?} is no topic filter: {error}")))?;
    let key = cursor.map(|text| URL_SAFE_NO_PAD.decode(text)).transpose().map_err(|_| Failed::Cursor)?;
    let mut at = Cursor::at(key.unwrap_or_default());
    let (observer, started) = (state.running()?, clock::now());
    let (mut messages, mut bytes, mut progress) = (Vec::<Message>::new(), 0, SearchProgress::More);
    let mut portion = Vec::new();
    while progress == SearchProgress::More && clock::now().since(started) < TIME {
        let turn = state.retained_turn().await.ok_or(Failed::Busy)?;
        turn.rested().await;
        {
            let mut left = QuestionBudget::of(PORTION).left() as usize;
            let retained = observer.shared().retained();
            progress = retained.matching_from(&mut at, filter, clock::now(), &mut left, &mut portion);
        }
        drop(turn);
        for message in portion.drain(..) {
            if messages.len() >= most || bytes >= BYTES {
                let next = messages.last().map(|last| Cursor::behind(last.topic()));
                return Ok(FoundRetained { messages, next });
            }
            bytes += message.topic().len();
            messages.push(message);
        }
    }
    let next = (progress == SearchProgress::More).then_some(at);
    Ok(FoundRetained { messages, next })
}
