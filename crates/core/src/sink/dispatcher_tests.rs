//! Tests of the dispatcher: a shard and a service as tables.

use super::SinkFormat;
use super::answer::ServiceAnswer;
use super::batch::SinkRequest;
use super::dispatcher::{Dispatcher, RequestEnd, SinkNews, SinkTerms};
use crate::mqtt::codec::{Decoded, decode, encode};
use crate::mqtt::packet::{
    Acknowledgement, Packet, PacketId, ProtocolVersion, Publish, PublishProperties, QoS, ReasonCode,
};
use crate::time::Instant;
use std::time::Duration;

const TERMS: SinkTerms = SinkTerms {
    format: SinkFormat::Json,
    in_flight: 1,
    batch_messages: 4,
    batch_bytes: 1 << 20,
    batch_wait: Duration::ZERO,
    waits: (Duration::from_secs(1), Duration::from_secs(60)),
};

struct Trial {
    dispatcher: Dispatcher,
    now: Instant,
    out: Vec<u8>,
    sent: u16,
}

impl Trial {
    fn new(terms: SinkTerms) -> Trial {
        Trial { dispatcher: Dispatcher::new(terms, 0xF), now: Instant::ZERO, out: Vec::new(), sent: 0 }
    }

    fn publish(&mut self, qos: QoS, payload: &str) {
        self.sent += 1;
        let publish = Publish {
            dup: false,
            qos,
            retain: false,
            topic: "a",
            packet_id: PacketId::new(self.sent).filter(|_| qos != QoS::AtMostOnce),
            properties: PublishProperties { subscription_ids: vec![0xE], ..PublishProperties::default() },
            payload: payload.as_bytes(),
        };
        let mut bytes = Vec::new();
        encode(&Packet::Publish(publish), ProtocolVersion::V5, &mut bytes).expect("short");
        let taken = self.dispatcher.take((self.now, 5), &bytes, &mut self.out);
        assert_eq!(taken, Ok(bytes.len()));
    }

    /// Publishes at QoS 1, and answers the question about the number: 100 and the identifier.
    fn send(&mut self, payloads: &[&str]) {
        for payload in payloads {
            self.publish(QoS::AtLeastOnce, payload);
        }
        let ids = self.dispatcher.question().expect("a question");
        let numbers: Vec<_> = ids.iter().map(|id| Some(0x100 + u64::from(id.get()))).collect();
        self.dispatcher.named(&numbers);
    }

    fn request(&mut self) -> Option<SinkRequest> {
        self.dispatcher.next_request(self.now)
    }

    /// Returns the payloads of the next request, and its number.
    fn payloads(&mut self) -> (String, u64) {
        let request = self.request().expect("a request");
        let list: serde_json::Value = serde_json::from_slice(&request.body).expect("JSON");
        let payloads = list.as_array().expect("a list").iter().map(|one| one["payload"].as_str().unwrap());
        (payloads.collect::<Vec<_>>().join(" "), request.number)
    }

    fn end(&mut self, number: u64, end: &RequestEnd) {
        self.dispatcher.ended(self.now, number, end, 1.0, &mut self.out).expect("lawful");
    }

    fn answer(&mut self, number: u64, status: u16) {
        self.end(number, &answer(status));
    }

    /// Returns what the shard got: packet type, identifier and reason.
    fn acknowledged(&mut self) -> Vec<(&'static str, u16, ReasonCode)> {
        let bytes = std::mem::take(&mut self.out);
        let (mut rest, mut all) = (&bytes[..], Vec::new());
        while let Ok(Decoded::Packet { packet, length }) = decode(rest, ProtocolVersion::V5, 1 << 20) {
            let (Packet::Puback(ack) | Packet::Pubrec(ack) | Packet::Pubcomp(ack)) = &packet else {
                panic!("{packet:?}")
            };
            all.push((packet.name(), ack.packet_id.get(), ack.reason));
            rest = &rest[length..];
        }
        all
    }

    fn pass(&mut self, seconds: f64) {
        self.now = self.now + Duration::from_secs_f64(seconds);
    }
}

fn answer(status: u16) -> RequestEnd {
    RequestEnd::Answered(ServiceAnswer { status, ..ServiceAnswer::default() })
}

#[test]
fn an_accepted_batch_is_acknowledged_and_the_next_one_has_what_came_meanwhile() {
    let mut trial = Trial::new(TERMS);
    trial.send(&["1"]);
    let (payloads, first) = trial.payloads();
    assert_eq!(payloads, "1");
    trial.send(&["2", "3", "4", "5", "6"]);
    assert!(trial.request().is_none(), "one request at a time");
    assert!(trial.acknowledged().is_empty(), "nothing is acknowledged before the service has it");
    trial.answer(first, 204);
    assert_eq!(trial.acknowledged(), [("PUBACK", 1, ReasonCode::SUCCESS)]);
    let (payloads, second) = trial.payloads();
    assert_eq!(payloads, "2 3 4 5", "batch_messages is the most");
    trial.answer(second, 200);
    assert_eq!(trial.payloads().0, "6");
    assert_eq!(trial.acknowledged().len(), 4);
    assert_eq!(trial.dispatcher.unacknowledged(), 1);
}

#[test]
fn a_request_that_fails_is_sent_again_unchanged_and_before_what_came_later() {
    let mut trial = Trial::new(TERMS);
    trial.send(&["1", "2"]);
    let before = trial.request().expect("a request");
    trial.send(&["3"]);
    for (attempt, status) in [(0, 503), (1, 429), (2, 500), (3, 401)] {
        trial.answer(before.number + attempt, status);
        assert!(trial.request().is_none(), "it waits");
        trial.now = trial.dispatcher.deadline();
        let again = trial.request().expect("the request again");
        assert_eq!((&again.body, &again.key), (&before.body, &before.key));
    }
    let waits: Vec<u64> = trial
        .dispatcher
        .take_news()
        .into_iter()
        .map(|news| match news {
            SinkNews::Failed { wait, .. } => wait.as_secs(),
            news => panic!("{news:?}"),
        })
        .collect();
    assert_eq!(waits, [1, 2, 4, 8]);
    trial.answer(before.number + 4, 200);
    assert_eq!(trial.dispatcher.take_news(), [SinkNews::Recovered]);
    assert_eq!(trial.payloads().0, "3");
}

#[test]
fn retry_after_counts_within_the_longest_wait() {
    let mut trial = Trial::new(TERMS);
    trial.send(&["1"]);
    for (asks, waits) in [(7, 7), (3_600, 60), (0, 4)] {
        let number = trial.request().expect("a request").number;
        let retry_after = Some(Duration::from_secs(asks));
        trial.end(
            number,
            &RequestEnd::Answered(ServiceAnswer { status: 429, retry_after, ..ServiceAnswer::default() }),
        );
        assert_eq!(trial.dispatcher.deadline(), trial.now + Duration::from_secs(waits));
        trial.now = trial.dispatcher.deadline();
    }
}

#[test]
fn the_one_message_that_a_service_refuses_is_found_by_halves() {
    let mut trial = Trial::new(TERMS);
    trial.send(&["1", "2", "bad", "4"]);
    let (mut requests, mut delivered) = (0, Vec::new());
    while let Some(request) = trial.request() {
        requests += 1;
        let body = String::from_utf8(request.body.to_vec()).expect("JSON");
        let is_bad = body.contains("bad");
        if !is_bad {
            delivered.push(body);
        }
        trial.answer(request.number, if is_bad { 422 } else { 200 });
    }
    let bad = ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR;
    assert_eq!(
        trial.acknowledged(),
        [
            ("PUBACK", 1, ReasonCode::SUCCESS),
            ("PUBACK", 2, ReasonCode::SUCCESS),
            ("PUBACK", 3, bad),
            ("PUBACK", 4, ReasonCode::SUCCESS)
        ]
    );
    assert_eq!((requests, delivered.len()), (5, 2));
    let [SinkNews::Refused { id, cause, .. }] = &trial.dispatcher.take_news()[..] else {
        panic!("one message is refused")
    };
    assert_eq!((id.as_str(), cause.as_str()), ("e-103", "the service answers HTTP 422"));
    let counts = trial.dispatcher.counts();
    assert_eq!((counts.delivered, counts.refused, counts.failed), (3, 1, 0));
}

#[test]
fn a_batch_is_cut_at_its_bytes_and_waits_for_others_no_longer_than_batch_wait() {
    let wait = Duration::from_secs(1);
    let mut trial = Trial::new(SinkTerms { batch_wait: wait, batch_bytes: 300, ..TERMS });
    trial.send(&["1"]);
    assert!(trial.request().is_none());
    assert_eq!(trial.dispatcher.deadline(), trial.now + wait);
    trial.pass(1.0);
    let (payloads, number) = trial.payloads();
    assert_eq!(payloads, "1");
    trial.answer(number, 200);
    let large = "x".repeat(200);
    trial.send(&["2", &large, "3"]);
    let (payloads, number) = trial.payloads();
    assert_eq!(payloads, "2", "the next one would be too much");
    trial.answer(number, 200);
    assert_eq!(trial.payloads().0, large, "a message alone may have more than batch_bytes");
}

#[test]
fn a_message_has_the_same_identifier_over_connections_and_another_than_every_other_message() {
    let key = |payloads: &[&str]| {
        let mut trial = Trial::new(SinkTerms { format: SinkFormat::Raw, ..TERMS });
        trial.send(payloads);
        trial.request().expect("a request").key
    };
    assert_eq!(key(&["1"]), key(&["1", "2"]));
    assert_eq!(key(&["1"]), "e-101");
    let mut trial = Trial::new(TERMS);
    trial.publish(QoS::AtMostOnce, "1");
    trial.send(&["2"]);
    assert_eq!(trial.request().expect("a request").key, "f-0-1_e-102_2");
}

#[test]
fn qos_2_is_received_and_completed_and_qos_0_needs_no_number() {
    let mut trial = Trial::new(TERMS);
    trial.publish(QoS::AtMostOnce, "0");
    assert_eq!(trial.dispatcher.question(), None);
    let (payloads, number) = trial.payloads();
    assert_eq!(payloads, "0");
    trial.answer(number, 200);
    assert!(trial.acknowledged().is_empty());
    trial.publish(QoS::ExactlyOnce, "2");
    assert_eq!(trial.dispatcher.question().map(|ids| ids.len()), Some(1));
    assert_eq!(trial.dispatcher.question(), None, "one question at a time");
    trial.dispatcher.not_named();
    assert_eq!(trial.dispatcher.question().map(|ids| ids.len()), Some(1));
    trial.dispatcher.named(&[Some(9)]);
    let (_, number) = trial.payloads();
    trial.answer(number, 200);
    assert_eq!(trial.acknowledged(), [("PUBREC", 2, ReasonCode::SUCCESS)]);
    let mut bytes = Vec::new();
    let pubrel = Packet::Pubrel(Acknowledgement::success(PacketId::new(2).expect("not 0")));
    encode(&pubrel, ProtocolVersion::V5, &mut bytes).expect("short");
    trial.dispatcher.take((trial.now, 5), &bytes, &mut trial.out).expect("lawful");
    assert_eq!(trial.acknowledged(), [("PUBCOMP", 2, ReasonCode::SUCCESS)]);
}

#[test]
fn a_message_that_the_session_has_no_more_is_not_sent() {
    let mut trial = Trial::new(TERMS);
    for payload in ["1", "2", "3"] {
        trial.publish(QoS::AtLeastOnce, payload);
    }
    trial.dispatcher.question().expect("a question");
    trial.dispatcher.named(&[Some(1), None, Some(3)]);
    assert_eq!(trial.payloads().0, "1 3");
}

#[test]
fn several_requests_at_a_time_become_one_while_the_service_fails() {
    let mut trial = Trial::new(SinkTerms { in_flight: 3, batch_messages: 1, ..TERMS });
    trial.send(&["1", "2", "3", "4"]);
    let (first, second, third) = (trial.payloads(), trial.payloads(), trial.payloads());
    assert!(trial.request().is_none());
    trial.end(third.1, &RequestEnd::Failed("reset".to_owned()));
    trial.end(first.1, &RequestEnd::Failed("reset".to_owned()));
    trial.answer(second.1, 200);
    assert!(trial.request().is_none(), "what was open before the failures does not end the wait");
    trial.now = trial.dispatcher.deadline();
    let (payloads, probe) = trial.payloads();
    assert_eq!(payloads, "1");
    assert!(trial.request().is_none(), "one of them probes the service");
    trial.answer(probe, 200);
    // The service is there: the others go out, in their order, before what is new.
    assert_eq!(trial.payloads().0, "3");
    let (payloads, last) = trial.payloads();
    assert_eq!(payloads, "4");
    trial.answer(last, 503);
    assert_eq!(trial.dispatcher.deadline(), Instant::NEVER, "the other one probes the service");
}

#[test]
fn a_sink_that_holds_much_reads_no_more() {
    let mut trial = Trial::new(SinkTerms { batch_bytes: 1_000, ..TERMS });
    let large = "x".repeat(600_000);
    trial.send(&[&large]);
    assert!(trial.dispatcher.has_room());
    trial.send(&[&large]);
    assert!(!trial.dispatcher.has_room());
    let (_, number) = trial.payloads();
    trial.answer(number, 200);
    assert!(trial.dispatcher.has_room());
}
