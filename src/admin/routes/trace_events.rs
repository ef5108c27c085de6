//! /api/v1/traces/{number}/events: the steps of a trace as server-sent events.

use crate::admin::access::Caller;
use crate::admin::event_stream::{event, event_stream};
use crate::admin::failed::Failed;
use crate::admin::request::Asker;
use crate::admin::state::{AdminState, State};
use actix_web::web::{Bytes, Path};
use actix_web::{HttpRequest, HttpResponse};
use std::time::Duration;
use tokio::sync::mpsc::Sender;

/// Events that wait for a slow reader. The trace itself keeps the steps behind them.
const BUFFERED: usize = 64;

/// Steps that are taken from the trace at once.
const STEPS: usize = 64;

/// The time after which a reader gets a comment if there was no step. Proxies close a silent
/// stream.
const SILENCE: Duration = Duration::from_secs(5);

/// Answers with the steps behind `Last-Event-ID`, or all of them, as they come. The stream ends
/// with the event `end` once the trace has ended. A slow reader misses no step that the trace still
/// has: the numbers of the steps show a gap.
pub(crate) async fn events(
    request: HttpRequest,
    caller: Asker,
    path: Path<u64>,
    state: State,
) -> Result<HttpResponse, Failed> {
    let number = *path;
    // The first page shows that there is such a trace.
    state.traces.watch(number, (0, 0), Duration::ZERO).await.ok_or(Failed::NoSuchTrace)?;
    let last = request.headers().get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let caller = caller.into_inner();
    let seat = state.stream_seat(&caller)?;
    let (answer, to) = event_stream(BUFFERED);
    actix_web::rt::spawn(async move {
        let _seat = seat;
        // An error says that the reader is gone.
        let _ = write(&state, &caller, (number, last.unwrap_or(0)), &to).await;
    });
    Ok(answer)
}

struct ReaderGone;

/// Writes the steps of a trace behind a number until the trace ends, the reader goes, or its token
/// leaves the file.
async fn write(
    state: &AdminState,
    caller: &Caller,
    (number, mut after): (u64, u64),
    to: &Sender<Bytes>,
) -> Result<(), ReaderGone> {
    loop {
        state.credentials.look().await;
        if !state.still_admits(caller) {
            return Ok(());
        }
        let page = tokio::select! {
            () = to.closed() => return Err(ReaderGone),
            page = state.traces.watch(number, (after, STEPS), SILENCE) => page,
        };
        let Some(mut page) = page else { return Ok(()) };
        let steps = page.steps.take().unwrap_or_default();
        for step in &steps {
            after = step.n;
            put(to, event("step", Some(&after.to_string()), step)).await?;
        }
        if steps.is_empty() && page.ended {
            return put(to, event("end", None, &page)).await;
        }
        if steps.is_empty() {
            put(to, Bytes::from_static(b":\n\n")).await?;
        }
    }
}

/// Waits until the reader has room for an event.
async fn put(to: &Sender<Bytes>, event: Bytes) -> Result<(), ReaderGone> {
    to.send(event).await.map_err(|_| ReaderGone)
}
