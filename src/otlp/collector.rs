//! One collector: its address, its files, and a request to it.

use super::OtlpError;
use super::attributes::resource;
use crate::auth::http::headers::HttpHeaders;
use crate::config::{Otlp, OtlpSignal, ServiceUrl};
use crate::http_client::{HttpReply, HttpTarget, TargetError, TlsFiles};
use bytes::Bytes;
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use std::fmt;
use std::time::Duration;

/// A collector, with a connection for each signal.
pub(super) struct Collector {
    config: Otlp,
    resource: Resource,
    /// By [`OtlpSignal`].
    targets: [HttpTarget; OtlpSignal::ALL.len()],
}

/// The reason why a collector has not taken a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotTaken {
    /// The same request may be taken later, after this time if the collector says one.
    NotNow(String, Option<Duration>),
    /// The collector will never take the request.
    Refused(String),
}

/// The records of a taken request that the collector has left out, and why. Every signal answers
/// with a message of this form.
#[derive(Clone, PartialEq, Message)]
struct Answer {
    #[prost(message, optional, tag = "1")]
    partial_success: Option<PartialSuccess>,
}

/// The records that were left out.
#[derive(Clone, PartialEq, Message)]
pub(super) struct PartialSuccess {
    #[prost(int64, tag = "1")]
    pub(super) rejected: i64,
    #[prost(string, tag = "2")]
    pub(super) error_message: String,
}

impl Collector {
    /// Reads the files of a configuration. Returns `None` if nothing is exported.
    ///
    /// # Errors
    /// A file cannot be used, or the host is no name that a certificate can have.
    pub(super) fn load(config: &Otlp) -> Result<Option<Collector>, OtlpError> {
        let Some(base) = config.collector() else { return Ok(None) };
        let headers = config.headers_path().map(|path| HttpHeaders::load(&path)).transpose();
        let headers = headers.map_err(OtlpError::Headers)?.unwrap_or_default();
        let target = |signal: OtlpSignal| {
            let path = format!("{}{}", base.target.trim_end_matches('/'), signal.path());
            let url = ServiceUrl { target: path.into(), ..base.clone() };
            let ca = config.ca_path();
            let files = TlsFiles { ca: ca.as_deref(), identity: None };
            let target = HttpTarget::new(url, files, &headers, "application/x-protobuf");
            target.map_err(|error| match error {
                TargetError::Ca(error) => OtlpError::Ca(error),
                TargetError::Name => OtlpError::Name,
            })
        };
        let [metrics, logs, traces] = [OtlpSignal::Metrics, OtlpSignal::Logs, OtlpSignal::Traces].map(target);
        let targets = [metrics?, logs?, traces?];
        Ok(Some(Collector { config: config.clone(), resource: resource(config), targets }))
    }

    /// Returns the configuration.
    pub(super) fn config(&self) -> &Otlp {
        &self.config
    }

    /// Returns the attributes of this broker.
    pub(super) fn resource(&self) -> &Resource {
        &self.resource
    }

    /// Sends one request. Returns the records that the collector has left out, if it has.
    ///
    /// # Errors
    /// The collector has not taken the request, or has not answered within `otlp.timeout`.
    pub(super) async fn send(
        &self,
        signal: OtlpSignal,
        request: &impl Message,
    ) -> Result<Option<PartialSuccess>, NotTaken> {
        let body = Bytes::from(request.encode_to_vec());
        let (timeout, target) = (self.config.timeout, &self.targets[signal as usize]);
        match tokio::time::timeout(timeout, target.ask(body)).await {
            Ok(Ok(reply)) => read(&reply),
            Ok(Err(error)) => Err(NotTaken::NotNow(error.to_string(), None)),
            Err(_) => {
                let why = format!("no answer within {} ms (otlp.timeout)", timeout.as_millis());
                Err(NotTaken::NotNow(why, None))
            }
        }
    }
}

impl fmt::Display for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.config.endpoint)
    }
}

/// Reads an answer, as the specification of OTLP says which requests may be sent again.
fn read(reply: &HttpReply) -> Result<Option<PartialSuccess>, NotTaken> {
    let status = reply.status;
    match status {
        200..300 => {
            // A collector may answer with nothing, or in JSON.
            let answer = Answer::decode(&*reply.body).ok().and_then(|answer| answer.partial_success);
            Ok(answer.filter(|answer| answer.rejected > 0 || !answer.error_message.is_empty()))
        }
        429 | 502 | 503 | 504 => {
            let after = reply.retry_after.map(Duration::from_secs);
            Err(NotTaken::NotNow(format!("it answered with status {status}"), after))
        }
        300..=399 => Err(NotTaken::Refused(format!(
            "it answered with a redirect ({status}), and redirects are not followed; set the final address in otlp.endpoint"
        ))),
        401 | 403 => Err(NotTaken::Refused(format!("it answered with status {status}; see otlp.headers"))),
        404 => Err(NotTaken::Refused(format!(
            "it answered with status {status}: otlp.endpoint is not the address of a collector that takes this signal"
        ))),
        _ => Err(NotTaken::Refused(format!("it answered with status {status}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(status: u16, retry_after: Option<u64>, body: Vec<u8>) -> HttpReply {
        HttpReply { status, retry_after, body: body.into() }
    }

    #[test]
    fn an_answer_says_if_the_request_may_be_sent_again_and_what_was_left_out() {
        let left_out = PartialSuccess { rejected: 3, error_message: "too old".to_owned() };
        let body = Answer { partial_success: Some(left_out.clone()) }.encode_to_vec();
        assert_eq!(read(&reply(200, None, body)), Ok(Some(left_out)));
        for body in [
            Vec::new(),
            b"{}".to_vec(),
            Answer { partial_success: Some(PartialSuccess::default()) }.encode_to_vec(),
        ] {
            assert_eq!(read(&reply(200, None, body)), Ok(None));
        }
        let after = |status, after| read(&reply(status, after, Vec::new()));
        assert!(
            matches!(after(503, Some(7)), Err(NotTaken::NotNow(_, Some(wait))) if wait == Duration::from_secs(7))
        );
        for status in [429, 502, 504] {
            assert!(matches!(after(status, None), Err(NotTaken::NotNow(_, None))));
        }
        for status in [301, 400, 401, 404, 413, 500] {
            assert!(matches!(after(status, None), Err(NotTaken::Refused(_))), "{status}");
        }
    }
}
