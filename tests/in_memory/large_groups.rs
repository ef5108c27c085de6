//! Shared groups with very many members that may not read a message.

use crate::client::{connect, enter, named_at, publish, subscribe, take};
use crate::driver::{self, MemoryDriver};
use homing::auth::acl_file;
use homing::mqtt::packet::{Connect, ConnectProperties, ProtocolVersion, QoS};
use homing::persistence::records::{
    RecoveredSession, SessionKey, StoredAccess, StoredSession, StoredSubscription,
};
use homing::session::drops::DropReason;
use homing::shard::recovery::placement::RecoveredShard;
use homing::shard::turn::STEPS_PER_TURN;
use homing::time::Instant;
use std::path::Path;
use std::sync::Arc;

/// More members than one round looks at.
const MANY: usize = 2_100;

/// `reader` may read everything, `other` nothing but its own topics. All may publish.
const RULES: &str = "\
user reader
topic read #
user other
topic read own/#
pattern write #
";

/// A member of the group that is away.
fn away(number: usize, shard: u8, shards: u8, user: &str) -> RecoveredSession {
    let session = StoredSession {
        key: SessionKey(number as u64 + 1),
        client_id: named_at(&format!("{user} {number}"), shard, shards).into(),
        version: ProtocolVersion::V5,
        expiry: u32::MAX,
        connected: false,
        ends: Instant::NEVER,
        will: None,
        will_due: Instant::NEVER,
        retry_interval: None,
        ack_timeout: None,
        user_name: None,
        access: StoredAccess { claimed_name: Some(user.into()), ..StoredAccess::default() },
    };
    let subscription = StoredSubscription {
        session: session.key,
        filter: "$share/g/#".into(),
        options: 1,
        subscription_id: 0,
    };
    RecoveredSession { session, subscriptions: vec![subscription], incoming: Vec::new(), entries: Vec::new() }
}

/// In each shard a group of this many members that may not read `t`, all away, and after them the
/// readers in the last shard.
fn group(shards: u8, others: usize, readers: usize) -> MemoryDriver {
    let mut settings = driver::settings();
    let acl = acl_file::parse(Path::new("acl"), RULES.as_bytes()).expect("lawful rules");
    settings.access.files.broker = Some(Arc::new(acl));
    settings.access.counts_claims = true;
    settings.session.send.queue.messages = 1;
    settings.sessions = 100_000;
    let mut driver = MemoryDriver::new(&settings, shards);
    for shard in 0..shards {
        let mut sessions: Vec<_> = (0..others).map(|number| away(number, shard, shards, "other")).collect();
        if shard + 1 == shards {
            sessions.extend((0..readers).map(|number| away(others + number, shard, shards, "reader")));
        }
        let share = RecoveredShard { next_number: 1_000_000, sessions, ..RecoveredShard::default() };
        driver.shards[usize::from(shard)].take_up(Instant::ZERO, share);
    }
    driver.settle();
    driver
}

fn dropped(driver: &MemoryDriver, reason: DropReason) -> u64 {
    driver.shards.iter().map(|shard| shard.snapshot().counters.drops.of(reason)).sum()
}

fn longest_queue(driver: &MemoryDriver) -> usize {
    driver.shards.iter().map(|shard| shard.usage().longest_queue).max().unwrap_or(0)
}

#[test]
fn a_message_reaches_the_last_of_very_many_members_if_only_that_one_may_read_it() {
    for shards in [1, 2] {
        let mut driver = group(shards, MANY, 1);
        let publisher = enter(&mut driver, connect("publisher"));
        driver.links[publisher].received.clear();
        driver.shards.iter_mut().for_each(|shard| _ = shard.take_longest_turn());
        publish(&mut driver, publisher, "t", QoS::AtLeastOnce, 1);
        assert!(driver.links[publisher].received.ends_with(&[0x40, 2, 0, 1]), "{shards} shards");
        assert_eq!((longest_queue(&driver), dropped(&driver, DropReason::NotAuthorized)), (1, 0));
        let longest = driver.shards.iter_mut().map(|shard| shard.take_longest_turn().0).max();
        assert!(longest < Some(2 * STEPS_PER_TURN), "{longest:?} steps");
    }
}

#[test]
fn a_message_that_none_of_the_members_that_were_asked_may_read_is_dropped_with_a_reason() {
    // The turn passes on, so the second message reaches the reader.
    let mut driver = group(1, 8_300, 1);
    let publisher = enter(&mut driver, connect("publisher"));
    driver.links[publisher].received.clear();
    publish(&mut driver, publisher, "t", QoS::AtLeastOnce, 1);
    assert_eq!(dropped(&driver, DropReason::NotAuthorized), 1);
    assert!(driver.links[publisher].received.ends_with(&[0x40, 3, 0, 1, 0x97]));
    publish(&mut driver, publisher, "t", QoS::AtLeastOnce, 2);
    assert_eq!((longest_queue(&driver), dropped(&driver, DropReason::NotAuthorized)), (1, 1));
}

#[test]
fn a_message_of_an_ended_session_waits_for_one_of_very_many_members_and_nobody_spins() {
    for shards in [1, 2] {
        let mut driver = group(shards, MANY, 1);
        let user = |driver: &mut MemoryDriver, client_id: &str, session_expiry| {
            let session_expiry = Some(session_expiry);
            let properties =
                ConnectProperties { receive_maximum: Some(1), session_expiry, ..Default::default() };
            let user_name = Some("reader");
            enter(driver, Connect { properties, user_name, clean_start: false, ..connect(client_id) })
        };
        // The member that is there takes two messages, and the reader that is away one.
        let leaver = user(&mut driver, &named_at("leaver", 0, shards), 0);
        subscribe(&mut driver, leaver, &["$share/g/#"], QoS::AtLeastOnce);
        let publisher = enter(&mut driver, connect("publisher"));
        for id in 1..=3 {
            publish(&mut driver, publisher, "t", QoS::AtLeastOnce, id);
        }
        assert_eq!(take(&mut driver, leaver, false).len(), 1, "{shards} shards");
        // The driver panics if the shards find something to do in every turn.
        driver.close(leaver);
        assert_eq!(dropped(&driver, DropReason::NotAuthorized), 0, "{shards} shards");
        let reader = user(&mut driver, &named_at(&format!("reader {MANY}"), shards - 1, shards), 3_600);
        assert_eq!(take(&mut driver, reader, true), ["t", "t", "t"], "{shards} shards");
    }
}
