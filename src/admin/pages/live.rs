//! Live updates: server-sent events for the pages and for tools.
//!
//! | stream | events |
//! |---|---|
//! | `overview` | the figures of the broker and its worst problem, once a second |
//! | `wheel` | the deadlines by the time in which they are due, once a second |
//! | `timeline` | each moment of redelivery, with its number as the id of the event |
//!
//! Each stream has a buffer of 64 events. If the reader is too slow for it, events are left out.
//! Then the reader gets `lagged` and the present state. The figures are made only while somebody
//! reads.

use super::entry::PageReader;
use super::frame::{PageFigure, Status};
use super::gauges::OverviewGauges;
use super::overview::totals;
use super::views::{clock_time, link_of};
use crate::admin::caller_seats::CallerSeat;
use crate::admin::event_stream::{event, event_stream};
use crate::admin::failed::Failed;
use crate::admin::state::State;
use crate::admin::timeline::NumberedMoment;
use actix_web::web::{Bytes, Query, ReqData};
use actix_web::{HttpRequest, HttpResponse};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, mpsc};
use tokio::time::MissedTickBehavior;
use utoipa::ToSchema;

/// Events that wait for a slow reader.
const BUFFERED: usize = 64;

/// The time between two states of the broker.
const PACE: Duration = Duration::from_secs(1);

/// The number of states after which the login of the reader is looked up again.
const LOOK_UP: u32 = 10;

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LiveParameters {
    /// `overview`, `wheel` and `timeline`, with commas between.
    #[schema(default = "overview", example = "overview,wheel")]
    streams: Option<String>,
}

/// The streams that a reader wants.
#[derive(Clone, Copy, Debug, Default)]
struct WantedStreams {
    overview: StreamChoice,
    wheel: StreamChoice,
    timeline: StreamChoice,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum StreamChoice {
    #[default]
    No,
    Yes,
}

impl WantedStreams {
    fn read(names: &str) -> Result<WantedStreams, Failed> {
        let mut wanted = WantedStreams::default();
        for name in names.split(',') {
            *match name {
                "overview" => &mut wanted.overview,
                "wheel" => &mut wanted.wheel,
                "timeline" => &mut wanted.timeline,
                _ => {
                    let what = format!("streams has {name:?}, and must be of overview, wheel, timeline");
                    return Err(Failed::Parameter(what));
                }
            } = StreamChoice::Yes;
        }
        Ok(wanted)
    }
}

/// Answers with the live updates, until the reader goes or its login ends.
pub(crate) async fn events(
    request: HttpRequest,
    reader: ReqData<PageReader>,
    asked: Query<LiveParameters>,
    state: State,
) -> Result<HttpResponse, Failed> {
    let reader = reader.into_inner();
    let wanted = WantedStreams::read(asked.streams.as_deref().unwrap_or("overview"))?;
    state.running()?;
    let caller = reader.caller(&state).ok_or(Failed::Unauthorized)?;
    let seat = state.stream_seat(&caller)?;
    let last = request.headers().get("last-event-id").and_then(|id| id.to_str().ok());
    let last = last.map(|id| state.timeline.number_of(id));
    let (answer, to) = event_stream(BUFFERED);
    actix_web::rt::spawn(LiveWriter { state, wanted, reader, to, lagged: None, _seat: seat }.run(last));
    Ok(answer)
}

/// Writes the events of one reader.
struct LiveWriter {
    state: State,
    wanted: WantedStreams,
    reader: PageReader,
    to: mpsc::Sender<Bytes>,
    /// True if events were left out since the reader was told last.
    lagged: Option<Lagged>,
    /// Held until the stream ends.
    _seat: CallerSeat,
}

/// Events were left out.
struct Lagged;

impl LiveWriter {
    async fn run(mut self, last: Option<u64>) {
        let mut moments = (self.wanted.timeline == StreamChoice::Yes).then(|| self.state.timeline.watch());
        self.put(Bytes::from_static(b"retry: 2000\n\n"));
        if moments.is_some()
            && let Some(last) = last
        {
            for entry in self.state.timeline.since(last) {
                self.put_entry(&entry);
            }
        }
        let mut ticks = tokio::time::interval(PACE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut until_look = LOOK_UP;
        loop {
            tokio::select! {
                () = self.to.closed() => return,
                entry = next(&mut moments) => match entry {
                    Ok(entry) => self.put_entry(&entry),
                    Err(RecvError::Lagged(_)) => self.lagged = Some(Lagged),
                    Err(RecvError::Closed) => return,
                },
                _ = ticks.tick() => {
                    until_look -= 1;
                    if until_look == 0 {
                        until_look = LOOK_UP;
                        self.state.credentials.look().await;
                        if !self.reader.may_still_read(&self.state) {
                            return;
                        }
                    }
                    self.put_state().await;
                }
            }
        }
    }

    /// Writes the present state of the broker.
    async fn put_state(&mut self) {
        // Four events at most follow.
        if self.lagged.is_some() && self.to.capacity() >= 4 {
            self.lagged = None;
            self.put_event("lagged", None, &json!({}));
        }
        let state = self.state.clone();
        let Some(observer) = state.observer() else { return };
        if self.wanted.overview == StreamChoice::Yes {
            let status = Status::of(&state, observer).await;
            let groups = totals(observer);
            let figures = status.figures.iter().chain(groups.iter().flat_map(|(_, figures)| figures));
            let gauges = OverviewGauges::of(&state, observer).await;
            let mut values = values(figures);
            gauges.add_values(&mut values);
            let data = json!({
                "ready": status.is_ready,
                "readiness": status.readiness,
                "values": values,
                "kinds": status.kinds,
                "problem": status.problem.map(|problem| json!({ "text": problem.text, "link": problem.link })),
            });
            self.put_event("overview", None, &data);
        }
        if self.wanted.wheel == StreamChoice::Yes
            && let Ok(wheel) = state.wheel.now(observer).await
        {
            self.put_event("wheel", None, &wheel.live());
        }
    }

    fn put_entry(&mut self, entry: &NumberedMoment) {
        let NumberedMoment { number, moment } = entry;
        let data = json!({
            "unix_ms": moment.unix_ms,
            "time": clock_time(moment.unix_ms),
            "client_id": &*moment.client_id,
            "link": link_of(&moment.client_id),
            "kind": moment.kind.name(),
            "text": &*moment.text,
        });
        let id = self.state.timeline.id_of(*number);
        self.put_event("timeline", Some(&id), &data);
    }

    fn put_event(&mut self, name: &str, id: Option<&str>, data: &Value) {
        self.put(event(name, id, data));
    }

    fn put(&mut self, event: Bytes) {
        if self.to.try_send(event).is_err() {
            self.lagged = Some(Lagged);
        }
    }
}

/// Returns the next moment; waits for ever if none is wanted.
async fn next(
    moments: &mut Option<broadcast::Receiver<Arc<NumberedMoment>>>,
) -> Result<Arc<NumberedMoment>, RecvError> {
    match moments {
        Some(moments) => moments.recv().await,
        None => std::future::pending().await,
    }
}

/// Returns the texts of the figures that have a key.
fn values<'a>(figures: impl Iterator<Item = &'a PageFigure>) -> Map<String, Value> {
    let live = figures.filter(|figure| !figure.key.is_empty());
    live.map(|figure| (figure.key.to_owned(), figure.value.as_str().into())).collect()
}
