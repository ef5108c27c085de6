//! What the answers of a service lead to.

use crate::broker::{Broker, sink};
use crate::service::{OK, Reply, Request, Service};
use crate::support::{Connect, Message, Property, RawClient, V5, now};
use std::time::Duration;

#[test]
fn a_request_is_repeated_with_its_key_until_the_service_accepts_it() {
    let service = Service::start(|number, _| match number {
        0 => Reply::Answer("500 Broken", ""),
        1 => Reply::Answer("408 Late", ""),
        2 => Reply::Close,
        3 => Reply::Answer("401 Who", ""),
        4 => Reply::Answer("502 Gone", ""),
        _ => OK,
    });
    let broker = Broker::start(&sink(&service.url, ""));
    broker.client("writer").deliver(&Message::new("t/1", "1").qos(1));
    let requests = service.expect(6);
    let first = &requests[0];
    assert!(requests.iter().all(|request| request.key() == first.key() && request.body == first.body));
}

#[test]
fn retry_after_is_waited_for_within_max_backoff() {
    let service = Service::start(|number, _| match number {
        0 => Reply::Answer("429 Slow\r\nRetry-After: 1", ""),
        1 => Reply::Answer("503 Slow\r\nRetry-After: 3600", ""),
        _ => OK,
    });
    let mut broker =
        Broker::start(&sink(&service.url, "").replace("max_backoff = \"200ms\"", "max_backoff = \"2s\""));
    let begin = now();
    broker.client("writer").deliver(&Message::new("t/1", "1").qos(1));
    let line = broker.says("sink.request_failed");
    assert!(line.contains("1000"), "{line}");
    service.expect(3);
    let took = begin.elapsed();
    assert!((Duration::from_secs(3)..Duration::from_secs(60)).contains(&took), "{took:?}");
}

#[test]
fn the_one_refused_message_of_a_batch_becomes_a_dead_letter_with_the_answer() {
    let service = Service::start(|number, request| {
        // The first request holds up the others, so that they make a batch.
        if number < 2 {
            return Reply::Answer("503 Busy", "");
        }
        if request.text().contains("bad") { Reply::Answer("422 Unprocessable", "no such sensor") } else { OK }
    });
    let mut broker = Broker::start(&sink(&service.url, "batch_wait = \"300ms\"\n"));
    let mut letters = RawClient::connect(broker.address(), &Connect::new(V5, "letters"));
    letters.subscribe(&[("$dead/#", 1)]);
    let mut client = broker.client("writer");
    for n in 0..40 {
        let text = if n == 17 { "bad".to_owned() } else { n.to_string() };
        client.deliver(&Message::new("t/1", text).qos(1));
    }
    let letter = letters.expect_publish();
    assert_eq!(
        (letter.topic.as_str(), &letter.payload[..]),
        ("$dead/%24sink%2Fs/t/1".replace("%24", "$").as_str(), &b"bad"[..])
    );
    let has = |name: &str, value: &str| letter.properties.contains(&Property::user(name, value));
    assert!(has("cause", "negatively_acknowledged"), "{letter:?}");
    assert!(has("reason-string", "the service answers HTTP 422: no such sensor"), "{letter:?}");
    let line = broker.says("sink.message_refused");
    assert!(line.contains("HTTP 422: no such sensor"), "{line}");
    client.deliver(&Message::new("t/1", "last").qos(1));
    let accepted = || {
        let all = service.requests();
        let accepted = all.iter().skip(2).filter(|request| !request.text().contains("bad"));
        accepted.flat_map(Request::payloads).collect::<Vec<_>>()
    };
    let payloads = crate::support::until("the others", || Some(accepted()).filter(|all| all.len() >= 40));
    let mut expected: Vec<String> = (0..40).filter(|n| *n != 17).map(|n| n.to_string()).collect();
    expected.push("last".to_owned());
    assert_eq!(payloads, expected, "all others come once, in their order");
    let listed = broker.ctl(&["dead-letters", "list"]);
    assert!(listed.contains("negatively_acknowledged"), "{listed}");
}

#[test]
fn a_redirect_is_not_followed_and_its_location_is_named() {
    let elsewhere = Service::accepting();
    let service = Service::start(|number, _| match number {
        0 => Reply::Answer("307 Elsewhere\r\nLocation: http://127.0.0.1:9/elsewhere", ""),
        _ => OK,
    });
    let mut broker = Broker::start(&sink(&service.url, ""));
    broker.client("writer").deliver(&Message::new("t/1", "1").qos(1));
    let line = broker.says("sink.request_failed");
    assert!(line.contains("redirects to http://127.0.0.1:9/elsewhere (HTTP 307)"), "{line}");
    service.expect(2);
    assert!(elsewhere.requests().is_empty());
}
