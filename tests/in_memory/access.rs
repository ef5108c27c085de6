//! The rules of an ACL over whole shards: shared messages that some members may not read, sessions
//! that get another user, and rules that change.

use crate::client::{connect, enter, named_at, publish, send, subscribe};
use crate::driver::{self, LinkId, MemoryDriver};
use homing::access::acl::Acl;
use homing::auth::acl_file;
use homing::mqtt::codec::{self, Decoded};
use homing::mqtt::packet::{
    Acknowledgement, Connect, ConnectProperties, Packet, ProtocolVersion, Publish, QoS,
};
use homing::session::drops::DropReason;
use homing::shard::ShardSettings;
use std::path::Path;
use std::sync::Arc;

/// `reader` may read everything, `other` nothing but its own topics. All may publish.
const RULES: &str = "\
user reader
topic read #
user other
topic read own/#
pattern write #
";

fn acl(text: &str) -> Arc<Acl> {
    Arc::new(acl_file::parse(Path::new("acl"), text.as_bytes()).expect("lawful rules"))
}

fn settings(queue: usize) -> ShardSettings {
    let mut settings = driver::settings();
    settings.access.acl = Some(acl(RULES));
    settings.session.send.queue.messages = queue;
    settings
}

/// A client of a user whose name nothing verifies, with one message in flight at most.
fn user(driver: &mut MemoryDriver, user_name: &str, client_id: &str, session_expiry: u32) -> LinkId {
    let properties = ConnectProperties {
        receive_maximum: Some(1),
        session_expiry: Some(session_expiry),
        ..Default::default()
    };
    enter(driver, Connect { properties, user_name: Some(user_name), ..connect(client_id) })
}

/// Returns the topics that came since the last call, and acknowledges them if asked to.
fn take(driver: &mut MemoryDriver, link: LinkId, acknowledges: bool) -> Vec<String> {
    let mut topics = Vec::new();
    loop {
        let received = std::mem::take(&mut driver.links[link].received);
        let (mut at, mut ids) = (0, Vec::new());
        while let Ok(Decoded::Packet { packet, length }) =
            codec::decode(&received[at..], ProtocolVersion::V5, u32::MAX)
        {
            at += length;
            if let Packet::Publish(Publish { packet_id: Some(id), topic, .. }) = packet {
                ids.push(id);
                topics.push(topic.to_owned());
            }
        }
        if ids.is_empty() || !acknowledges {
            return topics;
        }
        for id in ids {
            send(driver, link, &Packet::Puback(Acknowledgement::success(id)));
        }
    }
}

fn dropped(driver: &MemoryDriver, reason: DropReason) -> u64 {
    driver.shards.iter().map(|shard| shard.snapshot().counters.drops.of(reason)).sum()
}

/// The shards of the leaving member and of the others, and the number of shards.
const PLACES: [(u8, u8, u8, u8); 6] =
    [(0, 0, 0, 1), (0, 1, 1, 2), (1, 0, 0, 2), (0, 1, 2, 3), (0, 0, 1, 2), (0, 1, 0, 2)];

#[test]
fn a_message_of_an_ended_session_that_no_member_may_read_is_dropped() {
    for (leaving, one, another, shards) in PLACES {
        for stored in [false, true] {
            let mut driver = MemoryDriver::new(&settings(10), shards);
            if stored {
                driver.keep_in_store();
            }
            let leaver_id = named_at("leaver", leaving, shards);
            let leaver = user(&mut driver, "reader", &leaver_id, 3_600);
            subscribe(&mut driver, leaver, &["$share/g/#"], QoS::AtLeastOnce);
            let publisher = user(&mut driver, "publisher", "publisher", 0);
            for id in 1..=3 {
                publish(&mut driver, publisher, "t", QoS::AtLeastOnce, id);
            }
            for (shard, name) in [(one, "one"), (another, "another")] {
                let member = user(&mut driver, "other", &named_at(name, shard, shards), 3_600);
                subscribe(&mut driver, member, &["$share/g/#"], QoS::AtLeastOnce);
            }
            assert_eq!(take(&mut driver, leaver, false), ["t"]);
            // The same client, with a new session.
            user(&mut driver, "reader", &leaver_id, 0);
            while driver.read_pages() > 0 {}
            assert_eq!(
                dropped(&driver, DropReason::NotAuthorized),
                3,
                "{leaving} {one} {another} of {shards}"
            );
        }
    }
}

#[test]
fn a_message_of_an_ended_session_waits_for_the_member_that_may_read_it() {
    for (leaving, denied, full, shards) in PLACES {
        for stored in [false, true] {
            let case = format!("{leaving} {denied} {full} of {shards}, stored: {stored}");
            let mut driver = MemoryDriver::new(&settings(1), shards);
            if stored {
                driver.keep_in_store();
            }
            let leaver_id = named_at("leaver", leaving, shards);
            let leaver = user(&mut driver, "reader", &leaver_id, 3_600);
            subscribe(&mut driver, leaver, &["$share/g/#"], QoS::AtLeastOnce);
            let publisher = user(&mut driver, "publisher", "publisher", 0);
            for id in 1..=2 {
                publish(&mut driver, publisher, "t", QoS::AtLeastOnce, id);
            }
            let member = user(&mut driver, "other", &named_at("denied", denied, shards), 3_600);
            subscribe(&mut driver, member, &["$share/g/#"], QoS::AtLeastOnce);
            let reader = user(&mut driver, "reader", &named_at("full", full, shards), 3_600);
            subscribe(&mut driver, reader, &["$share/g/#", "full"], QoS::AtLeastOnce);
            for id in 3..=4 {
                publish(&mut driver, publisher, "full", QoS::AtLeastOnce, id);
            }
            user(&mut driver, "reader", &leaver_id, 0);
            while driver.read_pages() > 0 {}
            let mut topics = Vec::new();
            while let more @ [_, ..] = &take(&mut driver, reader, true)[..] {
                topics.extend_from_slice(more);
                while driver.read_pages() > 0 {}
            }
            topics.sort();
            assert_eq!(topics, ["full", "full", "t", "t"], "{case}");
            assert!(take(&mut driver, member, true).is_empty(), "{case}");
        }
    }
}

#[test]
fn a_shared_message_that_no_member_may_read_has_no_subscriber() {
    for shards in [1, 2] {
        let mut driver = MemoryDriver::new(&settings(1), shards);
        for shard in 0..shards {
            let member = user(&mut driver, "other", &named_at("member", shard, shards), 0);
            subscribe(&mut driver, member, &["$share/g/#"], QoS::AtLeastOnce);
        }
        let publisher = user(&mut driver, "publisher", "publisher", 0);
        driver.links[publisher].received.clear();
        publish(&mut driver, publisher, "t", QoS::AtLeastOnce, 1);
        // 0x10, No matching subscribers.
        assert!(driver.links[publisher].received.ends_with(&[0x40, 3, 0, 1, 0x10]), "{shards} shards");
        assert_eq!(driver.shards.iter().map(|s| s.snapshot().counters.drops.total()).sum::<u64>(), 0);
    }
}
