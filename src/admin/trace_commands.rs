//! The beginning and the end of traces, for programs and for the pages.

use super::access::Scope;
use super::audit::arguments;
use super::failed::Failed;
use super::operator::{Operator, complete};
use super::payloads::PayloadPermit;
use super::request::DurationText;
use super::traces::book::TraceOrder;
use crate::events::trace::{LONGEST_CLIENT_ID, TracedPayloads};
use crate::mqtt::topic::TopicFilter;
use crate::time::duration;
use serde::Deserialize;
use std::time::Duration;
use utoipa::ToSchema;

/// The time of a trace if the operator names none.
const DEFAULT: Duration = Duration::from_secs(600);

/// The longest time of a trace.
const LONGEST: Duration = Duration::from_secs(3_600);

/// The wish for a trace, as the body of a request has it. The order names at least one client or
/// topic filter. All traces that run follow 16 clients and 4 topic filters together.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = TraceOrder)]
#[schema(example = json!({ "clients": ["app-1"], "topics": ["alarms/#"], "for": "5m" }))]
pub(super) struct TraceWish {
    #[schema(value_type = Vec<TracedClient>)]
    pub(super) clients: Vec<Box<str>>,
    /// Topic filters, such as `alarms/#`, without `$share`.
    #[schema(value_type = Vec<TracedFilter>)]
    pub(super) topics: Vec<Box<str>>,
    /// The duration of the trace, `1s` to `1h`; `10m` by default.
    #[serde(rename = "for")]
    #[schema(value_type = Option<DurationText>)]
    pub(super) lasts: Option<String>,
    /// Adds the first 256 bytes of payloads.
    pub(super) payload: bool,
}

/// A topic filter.
#[derive(ToSchema)]
#[schema(min_length = 1)]
struct TracedFilter(#[expect(dead_code, reason = "only its schema is used")] String);

/// A client identifier.
#[derive(ToSchema)]
#[schema(min_length = 1, max_length = 1024)]
struct TracedClient(#[expect(dead_code, reason = "only its schema is used")] String);

impl TraceWish {
    fn order(self) -> Result<TraceOrder, Failed> {
        let refuse = |what: String| Err(Failed::Parameter(what));
        let TraceWish { clients, topics, lasts, payload } = self;
        if clients.is_empty() && topics.is_empty() {
            return refuse("a trace needs a client or a topic filter".to_owned());
        }
        if clients.iter().any(|client| client.is_empty() || client.len() > LONGEST_CLIENT_ID) {
            return refuse(format!("a client identifier must have 1 to {LONGEST_CLIENT_ID} bytes"));
        }
        let is_plain =
            |text: &str| TopicFilter::parse(text, usize::MAX).is_ok_and(|filter| !filter.is_shared());
        if let Some(filter) = topics.iter().find(|filter| !is_plain(filter)) {
            return refuse(format!(
                "{filter:?} is not a topic filter, such as \"alarms/#\", or is a shared one"
            ));
        }
        let lasts = match lasts {
            None => DEFAULT,
            Some(text) => duration::parse(&text)
                .ok()
                .filter(|time| (Duration::from_secs(1)..=LONGEST).contains(time))
                .ok_or_else(|| {
                    Failed::Parameter(format!("for is {text:?}, and must be 1s to 1h, such as \"5m\""))
                })?,
        };
        let payloads = if payload { TracedPayloads::Shown } else { TracedPayloads::Hidden };
        Ok(TraceOrder { clients, filters: topics, lasts, payloads })
    }
}

/// Begins a trace, and writes a line of the audit log. Returns its number. Errors: the operator's
/// scope is too small, or nobody may see payloads and the trace wants them. A part of the wish is
/// not valid, or there is no room for the trace.
pub(super) async fn begin_trace(operator: &Operator, wish: TraceWish) -> Result<u64, Failed> {
    operator.permit(Scope::Operator)?;
    if wish.payload {
        PayloadPermit::of(&operator.state, &operator.caller)?;
    }
    complete(begin_and_note(operator.clone(), wish.order()?)).await?
}

async fn begin_and_note(operator: Operator, order: TraceOrder) -> Result<u64, Failed> {
    let state = &operator.state;
    let topics = (!order.filters.is_empty()).then(|| ("topics", order.filters.join(" ")));
    // First, because a long list of topics is cut.
    let payload = matches!(order.payloads, TracedPayloads::Shown).then(|| ("payload", "true".to_owned()));
    let target = order.clients.join(", ");
    let arguments = arguments(&[payload, operator.note_parameter(), topics]);
    let begun = state.traces.begin(state.running()?, order).await;
    // A reload since the permit may have found no trace to hide.
    state.hide_traced_payloads();
    let result = begun.as_ref().map_or_else(|_| "refused".to_owned(), |number| format!("trace {number}"));
    operator.audit(("begin_trace", &target), arguments, result);
    begun.map_err(|full| Failed::Parameter(full.to_string()))
}

/// Ends a trace, forgets its steps, and writes a line of the audit log. Errors: the operator's
/// scope is too small, or there is no such trace.
pub(super) async fn end_trace(operator: &Operator, number: u64) -> Result<(), Failed> {
    operator.permit(Scope::Operator)?;
    let state = operator.state.clone();
    let work = async move {
        // Nothing is traced before the start of the broker.
        let observer = state.observer().ok_or(Failed::NoSuchTrace)?;
        state.traces.end(observer, number).await.then_some(()).ok_or(Failed::NoSuchTrace)
    };
    operator.act(("end_trace", &number.to_string()), &[], work, |()| "done".to_owned()).await
}
