//! The pages of traces, for operators: begin one, all of them, and the steps of one.

use super::entry::{NoFields, SubmittedForm, Visit};
use super::frame::PageFrame;
use super::page::{PageResult, render, render_form};
use super::views::{clock_time, count, in_sentence, link_of, long, shown};
use crate::admin::access::Scope;
use crate::admin::failed::Failed;
use crate::admin::payloads::PayloadPermit;
use crate::admin::request::permit;
use crate::admin::trace_commands::{TraceWish, begin_trace, end_trace};
use crate::admin::traces::TraceRow;
use crate::admin::traces::step::StepRow;
use actix_web::HttpResponse;
use actix_web::web::Path;
use askama::Template;
use serde::Deserialize;
use std::time::Duration;

/// Steps on one page.
const STEPS: u64 = 100;

/// The client and the topic that the form of a new trace begins with.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct TracesForm {
    client: String,
    topic: String,
    note: String,
}

/// The form of a new trace. An empty field counts as missing.
#[derive(Deserialize)]
pub(super) struct BeginForm {
    #[serde(default)]
    client: Box<str>,
    #[serde(default)]
    topic: Box<str>,
    #[serde(default, rename = "for")]
    lasts: String,
    payload: Option<PayloadBox>,
}

/// The value of the box for payloads, if it is checked.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum PayloadBox {
    True,
}

/// The steps of a page: those behind a number. Without a number: the last steps.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct StepsAsked {
    after: Option<u64>,
}

#[derive(Template)]
#[template(path = "traces.html", config = "src/admin/askama.toml")]
struct TracesPage {
    frame: PageFrame,
    mistake: Option<String>,
    form: TracesForm,
    /// True if a trace may have payloads.
    may_see: bool,
    /// The newest first.
    traces: Vec<ShownTrace>,
}

#[derive(Template)]
#[template(path = "trace.html", config = "src/admin/askama.toml")]
struct TracePage {
    frame: PageFrame,
    trace: ShownTrace,
    /// Sentences about steps and messages that are missing.
    missing: Vec<String>,
    steps: Vec<ShownStep>,
    /// The numbers behind which the earlier steps begin, and the later ones.
    earlier: Option<u64>,
    later: Option<u64>,
}

/// A trace in the list, and at the top of its page.
struct ShownTrace {
    number: u64,
    clients: String,
    topics: String,
    has_payloads: bool,
    has_ended: bool,
    /// "ended", or the time that it still runs.
    state: String,
    steps: String,
}

struct ShownStep {
    number: u64,
    time: String,
    step: String,
    name: String,
    link: Option<String>,
    message: String,
    packet: String,
    topic: String,
    circumstances: String,
}

pub(super) async fn list(visit: Visit) -> PageResult {
    permit(&visit.login.caller, Scope::Operator)?;
    let form = visit.read()?;
    Ok(traces(&visit, form, None).await)
}

async fn traces(visit: &Visit, form: TracesForm, mistake: Option<String>) -> HttpResponse {
    let listed = visit.state.traces.list();
    let is_mistaken = mistake.is_some();
    let page = TracesPage {
        frame: PageFrame::of(visit, "/traces").await,
        mistake,
        form,
        may_see: PayloadPermit::of(&visit.state, &visit.login.caller).is_ok(),
        traces: listed.traces.iter().rev().map(ShownTrace::of).collect(),
    };
    render_form(&page, is_mistaken)
}

/// Begins a trace, and shows it.
pub(super) async fn begin(form: SubmittedForm<BeginForm>) -> PageResult {
    let SubmittedForm { visit, operator, fields: form } = form;
    let given = |text: &str| (!text.is_empty()).then(|| Box::from(text));
    let wish = TraceWish {
        clients: given(&form.client).into_iter().collect(),
        topics: given(&form.topic).into_iter().collect(),
        lasts: (!form.lasts.is_empty()).then(|| form.lasts.clone()),
        payload: form.payload.is_some(),
    };
    match begin_trace(&operator, wish).await {
        Ok(number) => {
            let said = "The trace runs. Steps appear below as they happen.";
            Ok(visit.answered(&format!("/traces/{number}"), said))
        }
        Err(Failed::Parameter(mistake)) => {
            let BeginForm { client, topic, .. } = form;
            let form = TracesForm { client: client.into(), topic: topic.into(), note: operator.note };
            Ok(traces(&visit, form, Some(mistake)).await)
        }
        Err(other) => Err(other.into()),
    }
}

/// Shows the steps of a trace.
pub(super) async fn one(visit: Visit, path: Path<u64>) -> PageResult {
    permit(&visit.login.caller, Scope::Operator)?;
    let StepsAsked { after } = visit.read()?;
    let page = |after, most| visit.state.traces.watch(*path, (after, most), Duration::ZERO);
    let facts = page(0, 0).await.ok_or(Failed::NoSuchTrace)?;
    let after = after.unwrap_or_else(|| facts.last.saturating_sub(STEPS));
    let found = page(after, STEPS as usize).await.ok_or(Failed::NoSuchTrace)?;
    let next = found.next.unwrap_or_default();
    Ok(render(&TracePage {
        frame: PageFrame::of(&visit, "/traces").await,
        missing: missing(&found),
        steps: found.steps.iter().flatten().map(ShownStep::of).collect(),
        earlier: (after > found.steps_dropped).then(|| after.saturating_sub(STEPS)),
        later: (next < found.last).then_some(next),
        trace: ShownTrace::of(&found),
    }))
}

/// Ends a trace, and goes back to the list.
pub(super) async fn end(path: Path<u64>, form: SubmittedForm<NoFields>) -> PageResult {
    let SubmittedForm { visit, operator, .. } = form;
    let said = match end_trace(&operator, *path).await {
        Ok(()) => format!("Trace {path} has ended, and its steps are deleted."),
        Err(Failed::NoSuchTrace) => format!("Trace {path} is already gone. Nothing was done."),
        Err(failed) => return Err(failed.into()),
    };
    Ok(visit.answered("/traces", said))
}

/// Returns sentences about the parts that a trace does not have.
fn missing(trace: &TraceRow) -> Vec<String> {
    let sentences = [
        (trace.steps_dropped, "earlier steps made room for later ones."),
        (trace.unfollowed_messages, "messages were not followed, because there were too many."),
        (trace.lost.unwrap_or_default(), "steps of all traces since the start found no room."),
    ];
    let some = sentences.into_iter().filter(|(number, _)| *number > 0);
    some.map(|(number, what)| format!("{} {what}", count(number))).collect()
}

impl ShownTrace {
    fn of(trace: &TraceRow) -> ShownTrace {
        let texts =
            |all: &[String]| all.iter().map(|one| in_sentence(&shown(one))).collect::<Vec<_>>().join(", ");
        let left = Duration::from_secs_f64(trace.left.max(0.0));
        ShownTrace {
            number: trace.trace,
            clients: texts(&trace.clients),
            topics: texts(&trace.topics),
            has_payloads: trace.payload,
            has_ended: trace.ended,
            state: if trace.ended { "ended".to_owned() } else { format!("runs for {} more", long(left)) },
            steps: count(trace.last),
        }
    }
}

impl ShownStep {
    fn of(step: &StepRow) -> ShownStep {
        let client = step.client.as_deref().unwrap_or_default();
        let joined =
            |parts: &[Option<String>]| parts.iter().flatten().cloned().collect::<Vec<_>>().join(", ");
        let packet = [
            step.packet.as_deref().map(ToOwned::to_owned),
            step.packet_id.map(|id| format!("packet {id}")),
            step.qos.map(|qos| format!("QoS {qos}")),
            (step.dup == Some(true)).then(|| "DUP".to_owned()),
            step.payload_bytes.map(|bytes| format!("{bytes} bytes")),
            step.reason_code.map(|reason| format!("reason code {reason}")),
        ];
        let circumstances = [
            step.detail.clone(),
            step.traceparent.as_ref().map(|traceparent| format!("traceparent {traceparent}")),
            step.payload.as_ref().map(|payload| format!("payload {payload}")),
        ];
        ShownStep {
            number: step.n,
            time: format!("{}.{:03}", clock_time(step.unix_ms), step.unix_ms % 1_000),
            step: step.step.name().replace('_', " "),
            name: shown(client),
            link: if client.is_empty() { None } else { link_of(client) },
            message: step.message.map(|tag| tag.to_string()).unwrap_or_default(),
            packet: joined(&packet),
            topic: step.topic.clone().unwrap_or_default(),
            circumstances: joined(&circumstances),
        }
    }
}
