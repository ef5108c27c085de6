//! The answer of a stream of server-sent events: a body that a task writes.

use actix_web::HttpResponse;
use actix_web::body::{BodySize, MessageBody};
use actix_web::web::Bytes;
use serde::Serialize;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// The events of one reader, as its task has written them. The stream ends when the task has ended.
struct EventBody(mpsc::Receiver<Bytes>);

impl MessageBody for EventBody {
    type Error = Infallible;

    fn size(&self) -> BodySize {
        BodySize::Stream
    }

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Infallible>>> {
        self.get_mut().0.poll_recv(cx).map(|event| event.map(Ok))
    }
}

/// Returns an answer that takes up to `buffered` events which wait for a slow reader, and the way
/// of the events to it.
pub(super) fn event_stream(buffered: usize) -> (HttpResponse, mpsc::Sender<Bytes>) {
    let (to, from) = mpsc::channel(buffered);
    (HttpResponse::Ok().content_type("text/event-stream").body(EventBody(from)), to)
}

/// Returns an event. JSON has no line break, so one line of data is enough.
pub(super) fn event(name: &str, id: Option<&str>, data: &impl Serialize) -> Bytes {
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    let data = serde_json::to_string(data).expect("the types of events have names as keys");
    format!("event: {name}\n{id}data: {data}\n\n").into()
}
