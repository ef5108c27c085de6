//! A look at the service of a sink, for `homing doctor`: its files, its name, the socket, TLS, and a
//! request without a message.

use super::service::Service;
use crate::broker::bridges::turns::{PATIENCE, look_in_turns};
use crate::config::Sink;
use crate::sink::SinkFormat;
use crate::sink::answer::ServiceAnswer;
use bytes::Bytes;
use hyper::Method;
use std::io;

/// The request of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookRequest {
    /// OPTIONS, which HTTP defines as safe: a service does nothing for it.
    // RFC 9110 sections 9.2.1 and 9.3.7
    Options,
    /// POST with an empty list, or an empty body for `format = "raw"`. A service may act on it.
    EmptyPost,
}

/// The result of a look at a sink.
#[derive(Debug)]
pub struct ProbedSink {
    /// The name of the sink.
    pub sink: String,
    /// The address of its service, without the query.
    pub url: String,
    /// The answer of the service, or why there is none; `None` if there was no time for the look.
    pub found: Option<Result<ServiceAnswer, String>>,
}

/// Looks at the service of each sink, and returns the results in their order. Takes the timeout of
/// the sink for one, 10 s at most, and a minute for all.
///
/// # Errors
/// The system refuses a thread or a socket for the look.
pub fn probe(sinks: &[Sink], request: LookRequest) -> io::Result<Vec<ProbedSink>> {
    let looked = look_in_turns(sinks.iter().cloned(), |sink| look(sink, request))?;
    let probed = |(sink, found): (Sink, _)| ProbedSink {
        sink: sink.label().to_owned(),
        url: sink.url.as_ref().map(ToString::to_string).unwrap_or_default(),
        found,
    };
    Ok(looked.into_iter().map(probed).collect())
}

async fn look(mut sink: Sink, request: LookRequest) -> Result<ServiceAnswer, String> {
    sink.timeout = Some(sink.patience().min(PATIENCE));
    let body = match (request, sink.format.unwrap_or_default()) {
        (LookRequest::EmptyPost, SinkFormat::Json) => Bytes::from_static(b"[]"),
        _ => Bytes::new(),
    };
    let method = match request {
        LookRequest::Options => Method::OPTIONS,
        LookRequest::EmptyPost => Method::POST,
    };
    Service::new(sink, None).look(&method, body).await
}
