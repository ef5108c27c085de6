//! What comes to a service, and in which form.

use crate::broker::{Broker, sink};
use crate::service::{OK, Reply, Request, Service};
use crate::support::{Connect, Kind, Message, Property, RawClient, V5, V311, until};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

#[test]
fn messages_come_as_a_list_with_their_topics_payloads_and_properties() {
    let service = Service::accepting();
    let broker = Broker::start(&sink(&service.url, "qos = 2\nheaders = { X-Site = \"north\" }\n"));
    let mut client = broker.client("writer");
    let message = Message::new("t/1", "22.5").qos(1);
    client
        .deliver(&message.with(Property::ContentType("text/plain".into())).with(Property::user("unit", "C")));
    client.deliver(&Message::new("t/2", [0xFF, 0]).qos(2).retained());
    client.deliver(&Message::new("t/3", "none").qos(0));
    client.deliver(&Message::new("other", "not this").qos(1));
    let messages: Vec<serde_json::Value> = until("three messages", || {
        let all: Vec<_> = service.requests().iter().flat_map(Request::messages).collect();
        (all.len() == 3).then_some(all)
    });
    let request = &service.requests()[0];
    assert!(request.head.starts_with("POST /in HTTP/1.1\r\n"), "{}", request.head);
    assert_eq!(request.headers("content-type"), ["application/json"]);
    assert_eq!(request.headers("x-site"), ["north"]);
    let [one, two, three] = &messages[..] else { panic!("{messages:?}") };
    assert_eq!((&one["topic"], &one["payload"], &one["qos"]), (&"t/1".into(), &"22.5".into(), &1.into()));
    assert_eq!(one["properties"]["content_type"], "text/plain");
    assert_eq!(one["properties"]["user_properties"][0][1], "C");
    assert_eq!(
        (&two["payload_base64"], &two["qos"], &two["retain"]),
        (&"/wA=".into(), &2.into(), &true.into())
    );
    assert_eq!((&three["payload"], &three["qos"]), (&"none".into(), &0.into()));
    assert!(one["timestamp"].as_u64() > Some(1_600_000_000_000));
    let table = until("all are acknowledged", || {
        Some(broker.ctl(&["sinks"])).filter(|table| table.lines().any(|line| line.contains(" 3 ")))
    });
    assert!(table.contains("ready"), "{table}");
    let client = broker.ctl(&["client", "$sink/s"]);
    assert!(client.contains("$sink/s"), "{client}");
}

#[test]
fn a_raw_request_has_one_message_and_its_topic_in_a_header() {
    let service = Service::accepting();
    let broker = Broker::start(&sink(&service.url, "format = \"raw\"\n"));
    let mut client = broker.client("writer");
    client.deliver(&Message::new("t/gr\u{fc}n", "hello").qos(1));
    client.deliver(&Message::new("t/2", vec![b'x'; 300_000]).qos(1));
    let requests = service.expect(2);
    assert_eq!(requests[0].text(), "hello");
    assert_eq!(requests[0].headers("mqtt-topic"), ["t/gr%C3%BCn"]);
    assert_eq!(requests[0].headers("mqtt-qos"), ["1"]);
    assert_eq!(requests[0].headers("content-type"), ["application/octet-stream"]);
    assert_eq!(requests[1].body.len(), 300_000);
    assert_ne!(requests[0].key(), requests[1].key());
}

#[test]
fn messages_of_a_publisher_come_in_their_order_in_batches_and_each_once() {
    let (open, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (at_once, highest) = (Arc::clone(&open), Arc::clone(&most));
    let service = Service::start(move |_, _| {
        let now = at_once.fetch_add(1, Ordering::SeqCst) + 1;
        highest.fetch_max(now, Ordering::SeqCst);
        std::thread::yield_now();
        at_once.fetch_sub(1, Ordering::SeqCst);
        OK
    });
    let broker = Broker::start(&sink(&service.url, "batch_messages = 50\n"));
    let mut client = broker.client("writer");
    // Receive Maximum of the broker is 100.
    for hundred in 0..10 {
        let numbers = hundred * 100..(hundred + 1) * 100;
        let ids: Vec<u16> =
            numbers.map(|n: u32| client.publish(&Message::new("t/1", n.to_string()).qos(1))).collect();
        ids.into_iter().for_each(|id| drop(client.expect_ack(Kind::Puback, id)));
    }
    let payloads = service.expect_payloads(1_000);
    let expected: Vec<String> = (0..1_000).map(|n| n.to_string()).collect();
    assert_eq!(payloads, expected);
    assert_eq!(most.load(Ordering::SeqCst), 1, "one request at a time keeps the order");
    let requests = service.requests();
    assert!(requests.iter().all(|request| request.messages().len() <= 50));
    assert!(requests.len() < 500, "batches grow while a request is open: {}", requests.len());
}

#[test]
fn several_requests_at_a_time_bring_each_message_once() {
    let service = Service::accepting();
    let broker = Broker::start(&sink(&service.url, "in_flight = 4\nbatch_messages = 3\nqos = 2\n"));
    let mut client = broker.client("writer");
    for n in 0..200 {
        client.deliver(&Message::new("t/1", n.to_string()).qos(1 + n % 2));
    }
    let mut payloads: Vec<u32> =
        service.expect_payloads(200).iter().map(|text| text.parse().expect("a number")).collect();
    payloads.sort_unstable();
    assert_eq!(payloads, (0..200).collect::<Vec<_>>());
}

#[test]
fn what_was_sent_while_the_service_was_away_comes_in_order_when_it_is_back() {
    let is_there = Arc::new(Mutex::new(false));
    let there = Arc::clone(&is_there);
    let service = Service::start(move |_, _| {
        if *there.lock().expect("no panic") { OK } else { Reply::Answer("503 Busy", "come back") }
    });
    let mut broker = Broker::start(&sink(&service.url, ""));
    let mut client = broker.client("writer");
    for n in 0..300 {
        client.deliver(&Message::new("t/1", n.to_string()).qos(1));
    }
    let line = broker.says("sink.request_failed");
    assert!(line.contains("the service answers HTTP 503: come back"), "{line}");
    let table = broker.ctl(&["sinks"]);
    assert!(table.contains("failing") && table.contains("HTTP 503"), "{table}");
    broker.ctl(&["queue", "$sink/s"]);
    let before = service.requests().len();
    *is_there.lock().expect("no panic") = true;
    broker.says("sink.recovered");
    let payloads = until("all messages", || {
        // The request that was open when the service came back may have been refused.
        let accepted = service.requests().into_iter().skip(before);
        let mut all: Vec<String> = accepted.flat_map(|request| request.payloads()).collect();
        all.dedup();
        (all.last().map(String::as_str) == Some("299")).then_some(all)
    });
    let mut once: Vec<u32> = Vec::new();
    for number in payloads.iter().map(|text| text.parse().expect("a number")) {
        if !once.contains(&number) {
            once.push(number);
        }
    }
    assert_eq!(once, (0..300).collect::<Vec<_>>());
}

#[test]
fn no_client_takes_the_session_of_a_sink() {
    let service = Service::accepting();
    let broker = Broker::start(&sink(&service.url, ""));
    for (version, refused) in [(V5, 0x85), (V311, 2)] {
        let mut client = RawClient::open(broker.address(), version);
        client.send(&Connect::new(version, "$sink/s").encode());
        assert_eq!(client.expect_connack().code, refused);
    }
    broker.client("writer").deliver(&Message::new("t/1", "still there").qos(1));
    assert_eq!(service.expect_payloads(1), ["still there"]);
}

#[test]
fn client_events_come_to_a_sink_of_their_topics() {
    let service = Service::accepting();
    let configuration = format!("[sys]\nevents = true\n{}", sink(&service.url, ""));
    let broker = Broker::start(&configuration.replace("t/#", "$homing/events/#"));
    // A publish to a reserved topic is refused, and the refusal is an event.
    let mut client = broker.client("writer");
    assert!(client.deliver(&Message::new("$SYS/x", "1").qos(1)) >= 0x80);
    let requests = service.expect(1);
    let message = &requests[0].messages()[0];
    assert_eq!(message["topic"], "$homing/events/publish_refused/writer");
    let event: serde_json::Value =
        serde_json::from_str(message["payload"].as_str().expect("text")).expect("JSON");
    assert_eq!(event["client_id"], "writer");
}

#[test]
fn a_message_of_the_first_moment_comes_to_every_sink() {
    const SINKS: usize = 30;
    let service = Service::accepting();
    let sinks: String = (0..SINKS)
        .map(|number| {
            format!("[[sinks]]\nname = \"s{number}\"\nurl = \"{}\"\nfilters = [\"t/#\"]\n", service.url)
        })
        .collect();
    let broker = Broker::start_at_once(&sinks);
    broker.client("writer").deliver(&Message::new("t/1", "first").qos(1));
    assert_eq!(service.expect_payloads(SINKS), ["first"; SINKS]);
}
