//! Questions of operators about a shard that holds much: each one ends within its steps, and the
//! parts together are the whole answer.

use crate::access::{acl, user};
use crate::client::{V5, client, connect, encoded, enter, publication, publish, subscribe};
use crate::driver::{self, MemoryDriver};
use homing::mqtt::packet::{ConnectProperties, Packet, PacketId, Publish, QoS};
use homing::operators::budget::{QuestionBudget, STEPS};
use homing::operators::query::{Part, Query, QueryAnswer, SessionFilter, SessionName};
use homing::operators::receivers::MatchedReceivers;
use homing::operators::session_order::{RankRange, SessionOrder};
use homing::operators::stored::PLACES;
use homing::operators::unfinished::{PagePayloads, UnfinishedPart};
use homing::operators::wanted::{Wanted, WantedTopic};
use homing::operators::whereabouts::SearchPlace;
use homing::shard::ShardSettings;
use std::ops::Bound;

/// Steps by which the last thing that a question looks at may exceed the budget: a row with a text
/// of 64 KiB.
const BEYOND: u32 = 1_100;

/// Levels of the topic that the filters of the gateways match.
const LEVELS: usize = 14;

const MANY: usize = 10_000;

fn settings() -> ShardSettings {
    let mut settings = driver::settings();
    let send = &mut settings.session.send;
    (send.queue.messages, send.queue.bytes) = (2 * MANY, 1 << 30);
    settings.session.subscriptions.filters = 1_000;
    settings.delayed.messages = 2 * MANY;
    settings.delayed.bytes = 1 << 30;
    settings
}

/// Answers a question, and asserts that it stays within its steps. Returns them with the answer.
fn answer(driver: &MemoryDriver, query: &Query) -> (QueryAnswer, u32) {
    let mut budget = QuestionBudget::default();
    let answer = query.answer_within(driver.now, &driver.shards[0], &mut budget);
    assert!(budget.spent() <= STEPS + BEYOND, "{query:?} took {} steps", budget.spent());
    (answer, budget.spent())
}

/// Opens a session, and leaves its client away.
fn away(driver: &mut MemoryDriver, name: &str, filters: &[&str]) {
    let properties = ConnectProperties { session_expiry: Some(3_600), ..Default::default() };
    let link = enter(driver, homing::mqtt::packet::Connect { properties, ..connect(name) });
    subscribe(driver, link, filters, QoS::AtLeastOnce);
    driver.close(link);
}

/// Publishes to many topics.
fn fill(driver: &mut MemoryDriver, count: usize, topic: impl Fn(usize) -> String) {
    let link = client(driver, "filler", 100);
    for n in 0..count {
        publish(driver, link, &topic(n), QoS::AtLeastOnce, (n % 100 + 1) as u16);
    }
    driver.close(link);
}

fn wanted(topic: &str) -> WantedTopic {
    WantedTopic::read(topic).expect("a topic")
}

/// Returns a filter that matches the topic of all levels `a`, another one for each number.
fn hostile_filter(number: usize) -> String {
    let level = |at: usize| if number >> at & 1 == 1 { "+" } else { "a" };
    (0..LEVELS).map(level).chain(["#"]).collect::<Vec<_>>().join("/")
}

#[test]
fn the_receivers_of_a_topic_come_in_portions_with_their_filters() {
    let (sessions, filters) = (64, 200);
    let mut driver = MemoryDriver::new(&settings(), 1);
    for n in 0..sessions {
        let link = client(&mut driver, &format!("gateway {n}"), 10);
        let own: Vec<String> = (0..filters).map(hostile_filter).collect();
        subscribe(&mut driver, link, &own.iter().map(String::as_str).collect::<Vec<_>>(), QoS::AtMostOnce);
        subscribe(&mut driver, link, &["$share/g/a/#"], QoS::AtMostOnce);
    }
    let late = client(&mut driver, "late", 10);
    let topic = vec!["a"; LEVELS].join("/");
    subscribe(&mut driver, late, &[&topic, "+/#", "b/#"], QoS::ExactlyOnce);
    let (mut all, mut from, mut portions) = (MatchedReceivers::default(), Some(Default::default()), 0);
    while let Some(place) = from {
        let query = Query::Receivers { topic: topic.clone().into(), from: place };
        let (QueryAnswer::Receivers(part), _) = answer(&driver, &query) else { panic!("no receivers") };
        from = all.take(*part, usize::MAX);
        portions += 1;
    }
    assert!(portions > sessions * filters * 8 / STEPS as usize, "{portions}");
    assert_eq!((all.sessions().len(), all.more), (sessions + 1, false));
    assert_eq!(all.groups, [("$share/g/a/#".into(), sessions)]);
    let late = all.sessions().iter().find(|session| &*session.client_id == "late").expect("a receiver");
    assert_eq!((late.qos, &late.filters[..]), (QoS::ExactlyOnce, &[topic.into(), "+/#".into()][..]));
    let others = all.sessions().iter().filter(|session| &*session.client_id != "late");
    assert!(others.into_iter().all(|session| session.filters.len() == 4 && session.qos == QoS::AtMostOnce));
}

#[test]
fn the_rules_that_say_why_a_subscriber_may_not_read_are_steps_of_the_question() {
    let (sessions, rules) = (64, 1_000);
    let mut settings = settings();
    let denied: String = (0..rules).map(|n| format!("topic deny keys/{n}\n")).collect();
    settings.access.files.broker = Some(acl(&format!("user ann\ntopic read b\n{denied}")));
    settings.access.counts_claims = true;
    let mut driver = MemoryDriver::new(&settings, 1);
    for n in 0..sessions {
        let link = user(&mut driver, "ann", &format!("lamp {n}"), 0);
        subscribe(&mut driver, link, &["+"], QoS::AtMostOnce);
    }
    let (mut all, mut from, mut portions) = (MatchedReceivers::default(), Some(Default::default()), 0);
    while let Some(place) = from {
        let query = Query::Receivers { topic: "t".into(), from: place };
        let (QueryAnswer::Receivers(part), _) = answer(&driver, &query) else { panic!("no receivers") };
        from = all.take(*part, usize::MAX);
        portions += 1;
    }
    let of_one = STEPS as usize / rules + 1;
    assert!(portions >= sessions / of_one, "{portions}");
    assert!(all.sessions().len() == sessions && all.sessions().iter().all(|one| one.denied.is_some()));
}

#[test]
fn a_search_goes_on_in_the_midst_of_a_long_queue_and_finds_each_message_once() {
    let mut driver = MemoryDriver::new(&settings(), 1);
    away(&mut driver, "first", &["q/#"]);
    away(&mut driver, "second", &["q/+/x"]);
    fill(&mut driver, MANY, |n| if n % 100 == 7 { format!("q/{n}/x") } else { format!("q/{n}") });
    let search = |wanted: &Wanted| {
        let (mut found, mut from, mut portions) = (Vec::new(), Some(SearchPlace::default()), 0);
        while let Some(place) = from {
            let query = Query::Messages { wanted: wanted.clone(), from: place };
            let (QueryAnswer::Messages(part), _) = answer(&driver, &query) else { panic!("no messages") };
            found.extend(part.messages.into_iter().map(|row| (row.receiver, row.message.name)));
            (from, portions) = (part.next, portions + 1);
        }
        (found, portions)
    };
    let of = |topic: &str, receiver: Option<&str>| Wanted {
        topic: Some(wanted(topic)),
        receiver: receiver.map(Into::into),
        ..Wanted::default()
    };
    let (found, portions) = search(&of("q/+/x", None));
    assert_eq!(found.len(), 2 * MANY / 100);
    assert!(portions > MANY / STEPS as usize, "{portions}");
    let mut once = found.clone();
    once.dedup();
    assert_eq!(once.len(), found.len(), "no message twice");
    assert_eq!(search(&of("q/+/x", Some("second"))).0.len(), MANY / 100);
    assert_eq!(search(&of("q/none", Some("first"))).0.len(), 0);
    assert_eq!(search(&of("q/9999", Some("nobody"))), (Vec::new(), 1));
}

#[test]
fn the_places_of_messages_in_the_store_come_in_parts_and_each_once() {
    let mut driver = MemoryDriver::new(&settings(), 1);
    driver.keep_in_store();
    away(&mut driver, "first", &["q/#"]);
    away(&mut driver, "second", &["q/#"]);
    fill(&mut driver, MANY, |n| format!("q/{n}"));
    let wanted = Wanted { topic: Some(wanted("none")), ..Wanted::default() };
    let (mut in_store, mut from) = (Vec::new(), Some(SearchPlace::default()));
    while let Some(place) = from {
        let query = Query::Messages { wanted: wanted.clone(), from: place };
        let (QueryAnswer::Messages(part), _) = answer(&driver, &query) else { panic!("no messages") };
        in_store.extend(part.in_store);
        from = part.next;
    }
    let counts: Vec<usize> = in_store.iter().map(|one| one.messages).collect();
    assert_eq!(counts, [MANY - 64, MANY - 64]);
    let mut sessions: Vec<_> = in_store.iter().map(|one| (one.session, one.first)).collect();
    let mut places = Vec::new();
    while !sessions.is_empty() {
        let query = Query::PagedOut { sessions: sessions.clone() };
        let (QueryAnswer::PagedOut(parts), _) = answer(&driver, &query) else { panic!("no places") };
        assert!(parts.iter().map(|part| part.places.len()).sum::<usize>() <= PLACES);
        let next = parts.iter().filter_map(|part| Some((part.session, part.next?)));
        sessions = next.chain(sessions.iter().copied().skip(parts.len())).collect();
        places.extend(parts.into_iter().flat_map(|part| part.places));
    }
    let all = places.len();
    places.sort_unstable();
    places.dedup();
    assert_eq!((all, places.len()), (2 * (MANY - 64), all));
}

#[test]
fn a_page_far_behind_in_a_queue_costs_no_more_than_its_rows() {
    let mut driver = MemoryDriver::new(&settings(), 1);
    away(&mut driver, "pump", &["q/#"]);
    fill(&mut driver, MANY, |n| format!("q/{n}"));
    let page = |from: u64, most: usize| {
        let (client, part) = (SessionName::Client("pump".into()), UnfinishedPart::Queue);
        let query = Query::Unfinished { client, part, payloads: PagePayloads::Hidden, from, most };
        let (QueryAnswer::Unfinished(Some(page)), steps) = answer(&driver, &query) else {
            panic!("no page");
        };
        (page, steps)
    };
    let (far, steps) = page(MANY as u64 - 3, 10);
    assert_eq!((far.rows.len(), far.next), (3, None));
    assert!(steps < 100, "{steps}");
    let (mut topics, mut from) = (Vec::new(), Some(0));
    while let Some(place) = from {
        let (page, _) = page(place, 256);
        topics.extend(page.rows.iter().filter_map(|row| Some(row.message.as_ref()?.topic.clone())));
        from = page.next;
    }
    assert!(topics.iter().enumerate().all(|(n, topic)| **topic == format!("q/{n}")));
    assert_eq!(topics.len(), MANY);
}

#[test]
fn a_page_of_long_topics_ends_after_256_kib_and_has_them_in_full() {
    let mut driver = MemoryDriver::new(&settings(), 1);
    away(&mut driver, "pump", &["#"]);
    fill(&mut driver, 12, |n| format!("{n:02}{}", "t".repeat(65_000)));
    let (mut pages, mut topics, mut from) = (0, 0, Some(0));
    while let Some(place) = from {
        let (client, part) = (SessionName::Client("pump".into()), UnfinishedPart::Queue);
        let query =
            Query::Unfinished { client, part, payloads: PagePayloads::Hidden, from: place, most: 256 };
        let (QueryAnswer::Unfinished(Some(page)), _) = answer(&driver, &query) else { panic!("no page") };
        let lengths: Vec<usize> =
            page.rows.iter().filter_map(|row| Some(row.message.as_ref()?.topic.len())).collect();
        assert!(lengths.iter().sum::<usize>() <= (256 << 10) + 65_002, "{lengths:?}");
        assert!(lengths.iter().all(|length| *length == 65_002));
        (pages, topics, from) = (pages + 1, topics + lengths.len(), page.next);
    }
    assert_eq!((topics, pages > 2), (12, true));
}

#[test]
fn the_delayed_messages_of_a_topic_are_looked_for_in_portions() {
    let mut driver = MemoryDriver::new(&settings(), 1);
    fill(&mut driver, MANY, |n| format!("$delayed/{}/d/{n}", 600 + n % 7));
    let search = |topic: &str| {
        let (mut topics, mut from, mut portions) = (Vec::new(), Some(Bound::Unbounded), 0);
        while let Some(place) = from {
            let query = Query::Delayed { topic: Some(wanted(topic)), from: place, most: 256 };
            let (QueryAnswer::Delayed(part), _) = answer(&driver, &query) else { panic!("no part") };
            topics.extend(part.rows.into_iter().map(|(_, message)| message.topic));
            (from, portions) = (part.next.map(Bound::Excluded), portions + 1);
        }
        (topics, portions)
    };
    let (none, portions) = search("d/none");
    assert!(none.is_empty() && portions > MANY / STEPS as usize, "{portions}");
    let (mut all, _) = search("d/#");
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), MANY);
}

#[test]
fn a_listing_of_sessions_counts_what_a_row_costs() {
    let mut driver = MemoryDriver::new(&settings(), 1);
    let mut connected = Vec::new();
    for n in 0..600 {
        let link = client(&mut driver, &format!("s {n}"), 100);
        subscribe(&mut driver, link, &["t"], QoS::AtLeastOnce);
        connected.push(link);
    }
    // Each has a message that it does not acknowledge, so its socket is looked at.
    let link = client(&mut driver, "app", 10);
    let packet_id = PacketId::new(1);
    let message = Publish { qos: QoS::AtLeastOnce, packet_id, ..publication("t", b"x") };
    driver.send(link, &encoded(&Packet::Publish(message), V5));
    let (mut rows, mut from, mut questions) = (0, Some(0), 0);
    while let Some(slot) = from {
        let query = Query::Sessions { from: slot, most: 256, filter: SessionFilter::default() };
        let (QueryAnswer::Sessions(Part { rows: found, next }), _) = answer(&driver, &query) else {
            panic!("no rows")
        };
        (rows, from, questions) = (rows + found.len(), next, questions + 1);
    }
    assert_eq!(rows, 601);
    assert!(questions > 600 / 256 + 1, "{questions}");
}

/// Returns the pages of an order, each as a caller collects it: the first rows behind the last one.
fn ranked(driver: &MemoryDriver, order: SessionOrder, most: usize) -> (Vec<String>, usize) {
    let (mut names, mut after, mut questions) = (Vec::new(), None, 0);
    loop {
        let (mut page, mut from, mut admitted, mut before) = (Vec::new(), Some(0), 0, 0);
        let mut range = RankRange { order, after: after.clone(), until: None };
        while let Some(slot) = from {
            let filter = SessionFilter { prefix: "s ".into(), ..SessionFilter::default() };
            let query = Query::RankedSessions { from: slot, filter, range: Box::new(range.clone()) };
            let (QueryAnswer::RankedSessions(ranked), _) = answer(driver, &query) else { panic!("no rows") };
            page.extend(ranked.part.rows);
            page.sort_by(|(one, _), (other, _)| one.cmp(other));
            page.truncate(most);
            range.until = page.last().filter(|_| page.len() == most).map(|(rank, _)| rank.clone());
            (from, questions) = (ranked.part.next, questions + 1);
            (admitted, before) = (admitted + ranked.admitted, before + ranked.before);
        }
        assert_eq!((admitted, before), (700, names.len()));
        let Some((last, _)) = page.last() else { return (names, questions) };
        after = Some(last.clone());
        names.extend(page.into_iter().map(|(_, row)| row.client_id.into()));
    }
}

#[test]
fn sessions_come_in_an_order_whatever_their_slots_and_each_once() {
    let mut driver = MemoryDriver::new(&settings(), 1);
    // Neither the names nor the queues rise with the slots. Long names begin alike.
    let name = |n: usize| {
        format!("s {:03}{}", n * 327 % 700, if n.is_multiple_of(9) { "x".repeat(200) } else { String::new() })
    };
    for n in 0..700 {
        away(&mut driver, &name(n), &[if n.is_multiple_of(7) { "q/#" } else { "none" }]);
    }
    away(&mut driver, "other", &["q/#"]);
    fill(&mut driver, 3, |n| format!("q/{n}"));
    let mut expected: Vec<(usize, String)> =
        (0..700).map(|n: usize| (if n.is_multiple_of(7) { 3 } else { 0 }, name(n))).collect();
    let names = |rows: &[(usize, String)]| rows.iter().map(|(_, name)| name.clone()).collect::<Vec<_>>();
    expected.sort_by(|one, other| one.1.cmp(&other.1));
    let (found, questions) = ranked(&driver, SessionOrder::ClientId, 250);
    assert_eq!(found, names(&expected));
    assert!(questions < 30, "{questions} questions for three pages of 700 sessions");
    expected.sort_by_key(|(queued, _)| usize::MAX - queued);
    assert_eq!(ranked(&driver, SessionOrder::Queued, 90).0, names(&expected));
}
