//! The services of the sinks: each is tried as the sink does it, without a message.

#[cfg(feature = "sinks")]
use crate::broker::sinks::probe::{LookRequest, ProbedSink, probe};
use crate::config::Config;
use crate::finding::Finding;
#[cfg(feature = "sinks")]
use crate::{
    finding::Check,
    sink::answer::{ServiceAnswer, Verdict},
};

/// Returns a finding for each sink. `posts`: ask each service with a POST of an empty batch.
#[cfg(feature = "sinks")]
pub(super) fn findings(config: &Config, posts: bool) -> Vec<Finding> {
    if config.sinks.is_empty() {
        return Vec::new();
    }
    let request = if posts { LookRequest::EmptyPost } else { LookRequest::Options };
    match probe(&config.sinks, request) {
        Ok(all) => all.iter().map(|probed| of_sink(probed, request)).collect(),
        Err(error) => vec![Finding::warn(Check::Sink, format!("the sinks cannot be tried: {error}"))],
    }
}

/// Returns nothing: a build without the feature refuses a configuration with sinks.
#[cfg(not(feature = "sinks"))]
pub(super) fn findings(_: &Config, _: bool) -> Vec<Finding> {
    Vec::new()
}

#[cfg(feature = "sinks")]
fn of_sink(probed: &ProbedSink, request: LookRequest) -> Finding {
    let ProbedSink { sink, url, found } = probed;
    let place = format!("{sink}: {url}");
    match found {
        None => Finding::warn(Check::Sink, format!("{place}: not tried, because others took a minute")),
        Some(Err(why)) => Finding::fail(Check::Sink, format!("{place}: {why}"))
            .advise("Its messages wait in the queue of the sink, which tries again and again"),
        Some(Ok(answer)) => match request {
            LookRequest::Options => of_options(&place, answer),
            LookRequest::EmptyPost => of_post(&place, answer),
        },
    }
}

/// The service was reached. Only a POST shows what it says to one.
#[cfg(feature = "sinks")]
fn of_options(place: &str, answer: &ServiceAnswer) -> Finding {
    let status = answer.status;
    match status {
        status if Verdict::speaks_of_credentials(status) => {
            Finding::warn(Check::Sink, format!("{place}: asked by OPTIONS, {}", answer.complaint()))
                .advise("A service may answer so to OPTIONS alone: --post-to-sinks asks it as the sink does")
        }
        300..=399 => Finding::warn(Check::Sink, format!("{place}: asked by OPTIONS, {}", answer.complaint())),
        500..=599 => Finding::warn(Check::Sink, format!("{place}: asked by OPTIONS, {}", answer.complaint())),
        _ => {
            let text = format!("{place} is reached, and answers HTTP {status} to OPTIONS");
            Finding::ok(Check::Sink, format!("{text}; if it takes messages is not tried"))
        }
    }
}

#[cfg(feature = "sinks")]
fn of_post(place: &str, answer: &ServiceAnswer) -> Finding {
    let status = answer.status;
    match Verdict::of(status) {
        Verdict::Accepted => {
            Finding::ok(Check::Sink, format!("{place} accepts an empty batch with HTTP {status}"))
        }
        Verdict::Again => Finding::fail(Check::Sink, format!("{place}: {}", answer.complaint()))
            .advise("Its messages wait in the queue of the sink, which tries again and again"),
        Verdict::Refused => Finding::warn(
            Check::Sink,
            format!("{place}: asked by an empty batch, {}", answer.complaint()),
        )
        .advise("A service may refuse an empty batch alone. Messages that it refuses so become dead letters"),
    }
}

#[cfg(all(test, feature = "sinks"))]
mod tests {
    use super::*;
    use crate::finding::Severity;

    #[test]
    fn what_a_status_says_depends_on_the_request_that_it_answers() {
        let severity = |status, request| {
            let answer = ServiceAnswer { status, ..ServiceAnswer::default() };
            let probed =
                ProbedSink { sink: "data".to_owned(), url: "http://a/".to_owned(), found: Some(Ok(answer)) };
            of_sink(&probed, request).severity
        };
        for (status, to_options, to_post) in [
            (204, Severity::Ok, Severity::Ok),
            (301, Severity::Warn, Severity::Fail),
            (401, Severity::Warn, Severity::Fail),
            (400, Severity::Ok, Severity::Warn),
            (405, Severity::Ok, Severity::Warn),
            (429, Severity::Ok, Severity::Fail),
            (503, Severity::Warn, Severity::Fail),
        ] {
            assert_eq!(severity(status, LookRequest::Options), to_options, "{status}");
            assert_eq!(severity(status, LookRequest::EmptyPost), to_post, "{status}");
        }
    }
}
