//! Queues that are checked in portions, because the rules of the ACL or the user have changed.

use crate::access::{acl, change_rules, dropped, settings, user};
use crate::client::{
    V5, connect, encoded, enter, named_at, publication, publish, subscribe, take, take_packets, unsubscribe,
};
use crate::driver::{LinkId, MemoryDriver};
use homing::mqtt::packet::{Connect, ConnectProperties, Packet, PacketId, ProtocolVersion, Publish, QoS};
use homing::session::drops::DropReason;

const STEPS: u32 = 100;

/// The messages of a queue, half of them to `a/N` and half to `b/N`, in turns.
const MESSAGES: u16 = 600;

/// `reader` may read everything, `ann` and `bob` a part.
const PARTS: &str = "\
user reader
topic read #
user ann
topic read a/#
user bob
topic read b/#
pattern write #
";

/// The session `reader` with a long queue, and its connection.
fn with_queue(shards: u8) -> (MemoryDriver, LinkId) {
    let mut settings = settings(usize::from(MESSAGES));
    settings.steps_per_turn = STEPS;
    settings.access.files.broker = Some(acl(PARTS));
    let mut driver = MemoryDriver::new(&settings, shards);
    let reader = user(&mut driver, "reader", "reader", 3_600);
    subscribe(&mut driver, reader, &["#"], QoS::AtLeastOnce);
    let publisher = user(&mut driver, "publisher", "publisher", 0);
    for n in 0..MESSAGES {
        let half = if n % 2 == 0 { "a" } else { "b" };
        publish(&mut driver, publisher, &format!("{half}/{n}"), QoS::AtLeastOnce, n + 1);
    }
    (driver, reader)
}

/// The CONNECT of this user, who uses the session `reader` and has one message in flight at most.
fn connect_as(user_name: &'static str, clean_start: bool) -> Connect<'static> {
    let properties =
        ConnectProperties { receive_maximum: Some(1), session_expiry: Some(3_600), ..Default::default() };
    Connect { properties, clean_start, user_name: Some(user_name), ..connect("reader") }
}

/// The user connects on this link. One turn follows.
fn begin_to_enter(driver: &mut MemoryDriver, link: LinkId, user_name: &'static str) {
    let connect = Packet::Connect(Box::new(connect_as(user_name, false)));
    driver.send_unsettled(link, &encoded(&connect, ProtocolVersion::V5));
    driver.turn();
}

/// Another client takes the session of `older` over, as soon as the broker has read `older`.
fn take_over(driver: &mut MemoryDriver, older: LinkId, newer: LinkId, connect: Connect<'static>) {
    driver.send_unsettled(newer, &encoded(&Packet::Connect(Box::new(connect)), ProtocolVersion::V5));
    while driver.is_open(older) {
        driver.turn();
    }
}

/// The topics of the messages of one half, from this number on.
fn half(name: &str, numbers: std::ops::Range<u16>) -> Vec<String> {
    let first = if name == "a" { 0 } else { 1 };
    numbers.filter(|n| n % 2 == first).map(|n| format!("{name}/{n}")).collect()
}

fn denied(driver: &MemoryDriver) -> usize {
    usize::try_from(dropped(driver, DropReason::NotAuthorized)).expect("few")
}

/// As [`denied`], in the midst of a check.
fn denied_so_far(driver: &MemoryDriver) -> usize {
    let first = denied(driver);
    assert!(first > 0 && first < usize::from(MESSAGES) / 4, "{first} are dropped");
    first
}

#[test]
fn a_change_of_the_rules_checks_a_long_queue_over_several_turns() {
    for is_connected in [false, true] {
        let (mut driver, mut reader) = with_queue(1);
        assert_eq!(take(&mut driver, reader, false), ["a/0"]);
        if !is_connected {
            driver.close(reader);
        }
        driver.shards[0].take_longest_turn();
        change_rules(&mut driver, "user reader\ntopic read b/#\npattern write #\n");
        let (longest, _) = driver.shards[0].take_longest_turn();
        assert!(longest <= 3 * STEPS, "a turn of {longest} steps");
        // The message in flight stays with its client.
        assert_eq!(denied(&driver), usize::from(MESSAGES) / 2 - usize::from(is_connected));
        if is_connected {
            driver.close(reader);
        }
        reader = enter(&mut driver, connect_as("reader", false));
        let in_flight = if is_connected { vec!["a/0".to_owned()] } else { Vec::new() };
        assert_eq!(take(&mut driver, reader, true), [in_flight, half("b", 0..MESSAGES)].concat());
    }
}

#[test]
fn a_change_of_the_rules_during_a_check_begins_it_anew() {
    let (mut driver, reader) = with_queue(1);
    driver.close(reader);
    let only_a = acl("user reader\ntopic read a/#\npattern write #\n");
    driver.shards[0].permission_changes().replace_acls(only_a.into());
    driver.turn();
    driver.turn();
    let first = denied_so_far(&driver);
    change_rules(&mut driver, "user reader\ntopic read b/#\npattern write #\n");
    let reader = enter(&mut driver, connect_as("reader", false));
    let left = take(&mut driver, reader, true);
    assert_eq!(left, half("b", first as u16 * 2..MESSAGES));
    assert_eq!(denied(&driver) + left.len(), usize::from(MESSAGES));
}

#[test]
fn a_client_gets_no_message_before_its_queue_is_checked() {
    let (mut driver, reader) = with_queue(1);
    driver.close(reader);
    driver.shards[0].take_longest_turn();
    let bob = driver.open();
    begin_to_enter(&mut driver, bob, "bob");
    denied_so_far(&driver);
    take_packets(&mut driver, bob, V5, |packet| assert!(!matches!(packet, Packet::Publish(_)), "{packet:?}"));
    // A message that comes during the check goes behind the others.
    let publisher = user(&mut driver, "publisher", "other publisher", 0);
    publish(&mut driver, publisher, "b/last", QoS::AtLeastOnce, 1);
    let mut expected = half("b", 0..MESSAGES);
    expected.push("b/last".to_owned());
    assert_eq!(take(&mut driver, bob, true), expected);
    assert_eq!(denied(&driver), usize::from(MESSAGES) / 2);
    let (longest, _) = driver.shards[0].take_longest_turn();
    assert!(longest <= 3 * STEPS, "a turn of {longest} steps");
}

#[test]
fn a_take_over_during_a_check_begins_it_anew_for_the_new_user() {
    let (mut driver, reader) = with_queue(2);
    driver.close(reader);
    let (ann, bob) = (driver.open(), driver.open());
    begin_to_enter(&mut driver, ann, "ann");
    take_over(&mut driver, ann, bob, connect_as("bob", false));
    driver.settle();
    let left = take(&mut driver, bob, true);
    assert!(left.len() > usize::from(MESSAGES) / 4, "{} are left", left.len());
    assert!(half("b", 1..MESSAGES).ends_with(&left), "ann's check took the first away: {left:?}");
    assert_eq!(denied(&driver) + left.len(), usize::from(MESSAGES));
}

#[test]
fn a_session_may_end_during_the_check_of_its_queue() {
    let (mut driver, reader) = with_queue(1);
    driver.close(reader);
    let (first_link, ann) = (driver.open(), driver.open());
    begin_to_enter(&mut driver, first_link, "ann");
    take_over(&mut driver, first_link, ann, connect_as("ann", true));
    let first = denied_so_far(&driver);
    driver.settle();
    assert!(take(&mut driver, ann, true).is_empty());
    let ended = dropped(&driver, DropReason::SessionEnded) as usize;
    assert_eq!(denied(&driver) + ended, usize::from(MESSAGES));
    assert_eq!(denied(&driver), first);
    // The new session in the same slot is not withheld.
    subscribe(&mut driver, ann, &["a/#"], QoS::AtLeastOnce);
    let publisher = user(&mut driver, "publisher", "publisher", 0);
    publish(&mut driver, publisher, "a/new", QoS::AtLeastOnce, 1);
    assert_eq!(take(&mut driver, ann, true), ["a/new"]);
}

#[test]
fn a_shared_message_for_a_member_that_has_left_is_checked_by_the_new_rules() {
    let mut driver = MemoryDriver::new(&settings(100), 2);
    let reader = user(&mut driver, "reader", &named_at("reader", 1, 2), 3_600);
    subscribe(&mut driver, reader, &["$share/g/t"], QoS::AtLeastOnce);
    let publisher = user(&mut driver, "publisher", &named_at("publisher", 0, 2), 0);
    driver.delays_peer_batches = true;
    publish(&mut driver, publisher, "t", QoS::AtLeastOnce, 1);
    driver.send(reader, &unsubscribe("$share/g/t"));
    // The session has no filter now, so the walk finds nothing that it may not read.
    change_rules(&mut driver, "user reader\ntopic read own/#\npattern write #\n");
    driver.delays_peer_batches = false;
    driver.settle();
    assert!(take(&mut driver, reader, true).is_empty(), "the message was on its way to the reader");
}

#[test]
fn a_large_publication_for_a_session_that_has_left_is_checked_by_the_new_rules() {
    const OTHERS: usize = 300;
    const PINGREQ: [u8; 2] = [0xC0, 0];
    let rules = |of_reader: &str| {
        acl(&format!("user other\ntopic read #\nuser reader\ntopic read {of_reader}\npattern write #\n"))
    };
    let mut settings = settings(100);
    settings.steps_per_turn = STEPS;
    settings.access.files.broker = Some(rules("#"));
    let mut driver = MemoryDriver::new(&settings, 1);
    let (publisher, busy) =
        (user(&mut driver, "publisher", "publisher", 0), user(&mut driver, "publisher", "busy", 0));
    // The session that began last is the last receiver.
    let names = (0..OTHERS).map(|n| ("other", format!("other {n}"))).chain([("reader", "reader".to_owned())]);
    let mut receivers: Vec<LinkId> = Vec::new();
    for (user_name, client_id) in names {
        let receiver = user(&mut driver, user_name, &client_id, 0);
        subscribe(&mut driver, receiver, &["secret/#"], QoS::AtLeastOnce);
        receivers.push(receiver);
    }
    let reader = receivers.pop().expect("the reader");
    let (qos, packet_id) = (QoS::AtLeastOnce, PacketId::new(1));
    let publish = Packet::Publish(Publish { qos, packet_id, ..publication("secret/x", b"x") });
    driver.send_unsettled(publisher, &encoded(&publish, ProtocolVersion::V5));
    driver.shards[0].permission_changes().replace_acls(rules("own/#").into());
    driver.send_unsettled(reader, &unsubscribe("secret/#"));
    // The packets of another client take the part of each turn that the publication would have. So
    // the walk comes to the reader first, and finds no filter.
    while driver.shards[0].usage().jobs > 0 {
        driver.send_unsettled(busy, &PINGREQ.repeat(STEPS as usize * 8 / 10));
        let now = driver.now;
        driver.shards[0].work(now);
    }
    assert!(driver.shards[0].is_fanning(), "the publication is still on its way");
    driver.settle();
    assert!(take(&mut driver, reader, true).is_empty(), "the rules forbid it");
    assert!(receivers.iter().all(|other| take(&mut driver, *other, true) == ["secret/x"]));
}
