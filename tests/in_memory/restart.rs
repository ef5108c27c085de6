//! Stored sessions after a restart: their queued messages are judged as before.

use crate::client::{V5, connect, enter, publish, send, subscribe, take};
use crate::driver::{self, LinkId, MemoryDriver};
use homing::access::grant::{Grant, SessionRules};
use homing::access::identity::{Identity, IdentitySource};
use homing::auth::acl_file;
use homing::mqtt::packet::{Connect, ConnectProperties, Packet, QoS};
use homing::persistence::records::Record;
use homing::session::authentication::{Anonymous, AuthMethod};
use homing::session::drops::DropReason;
use homing::shard::ShardSettings;
use homing::shard::authentication::AuthDecision;
use homing::shard::durability::placement::share_out;
use homing::store::coalesce::CommitGroup;
use homing::store::memory::Memory;
use homing::store::{Moment, Store};
use homing::time::Instant;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Anonymous clients may read `public`, `ann` only her own topics. All may publish.
const RULES: &str = "\
topic read public
user ann
topic read own/#
pattern write #
";

fn settings(rules: &str) -> ShardSettings {
    let mut settings = driver::settings();
    let acl = acl_file::parse(Path::new("acl"), rules.as_bytes()).expect("lawful rules");
    settings.access.acl = Some(Arc::new(acl));
    settings
}

/// One shard that has what the shard of `before` had stored. No client is connected.
fn restarted(before: MemoryDriver, settings: &ShardSettings) -> MemoryDriver {
    let mut store = Memory::default();
    let at = |seconds: u64| Moment { unix_millis: 1_700_000_000_000 + seconds * 1_000, ..Moment::default() };
    store.recover(at(0), Duration::ZERO).expect("a new store");
    for batch in &before.batches {
        let mut group = CommitGroup::default();
        batch.records.iter().cloned().for_each(|record| group.fold(record));
        group.seal();
        store.commit(&group).expect("a store in memory takes everything");
    }
    let recovered = store.recover(at(1), Duration::ZERO).expect("a sound store");
    let mut after = MemoryDriver::new(settings, 1);
    // The pages of queues are read from the records.
    after.batches = before.batches;
    after.keep_in_store();
    let mut shares = share_out(recovered, Vec::new(), Instant::ZERO, 1);
    after.shards[0].take_up(Instant::ZERO, shares.remove(0));
    after.settle();
    after
}

/// The topics that a client gets when it is back, from memory and from the store.
fn all(driver: &mut MemoryDriver, link: LinkId) -> Vec<String> {
    let mut topics = take(driver, link, true);
    while driver.read_pages() > 0 {
        topics.extend(take(driver, link, true));
    }
    topics
}

fn dropped(driver: &MemoryDriver) -> u64 {
    driver.shards[0].snapshot().counters.drops.of(DropReason::NotAuthorized)
}

fn kept(user_name: Option<&'static str>, client_id: &'static str) -> Connect<'static> {
    let properties = ConnectProperties { session_expiry: Some(3_600), ..Default::default() };
    Connect { properties, clean_start: false, user_name, ..connect(client_id) }
}

#[test]
fn a_claimed_name_counts_after_a_restart_as_before() {
    let mut settings = settings(RULES);
    settings.access.counts_claims = true;
    let mut driver = MemoryDriver::new(&settings, 1);
    driver.keep_in_store();
    let ann = enter(&mut driver, kept(Some("ann"), "ann"));
    subscribe(&mut driver, ann, &["own/x", "own/y"], QoS::AtLeastOnce);
    driver.close(ann);
    let publisher = enter(&mut driver, connect("publisher"));
    publish(&mut driver, publisher, "own/x", QoS::AtLeastOnce, 1);
    let mut driver = restarted(driver, &settings);
    // Messages before and after the restart, and before the client returns.
    let publisher = enter(&mut driver, connect("publisher"));
    publish(&mut driver, publisher, "own/y", QoS::AtLeastOnce, 2);
    let ann = enter(&mut driver, kept(Some("ann"), "ann"));
    assert_eq!(all(&mut driver, ann), ["own/x", "own/y"]);
    assert_eq!(dropped(&driver), 0);
}

#[test]
fn the_rules_of_a_token_hold_after_a_restart() {
    let mut settings = settings(RULES);
    settings.auth.methods = vec![AuthMethod::Password];
    settings.auth.anonymous = Anonymous::Always;
    for (rules, expected) in [
        ("allow read token/#\n", vec!["token/x", "token/y"]),
        ("superuser", vec!["own/x", "token/x", "own/y", "token/y"]),
    ] {
        let connected = |driver: &mut MemoryDriver| {
            let connect = Connect { password: Some(b"token"), ..kept(Some("ann"), "ann") };
            let link = driver.open();
            send(driver, link, &Packet::Connect(Box::new(connect)));
            let identity = Arc::new(Identity::new("ann", IdentitySource::Jwt));
            let rules = Some(SessionRules::of_text(rules));
            driver.decide(AuthDecision::Allow(Grant { identity, rules, ends: Instant::NEVER }));
            link
        };
        let mut driver = MemoryDriver::new(&settings, 1);
        driver.keep_in_store();
        let ann = connected(&mut driver);
        subscribe(&mut driver, ann, &["#"], QoS::AtLeastOnce);
        driver.close(ann);
        let publisher = enter(&mut driver, connect("publisher"));
        for (id, topic) in [(1, "own/x"), (2, "token/x")] {
            publish(&mut driver, publisher, topic, QoS::AtLeastOnce, id);
        }
        let mut driver = restarted(driver, &settings);
        let publisher = enter(&mut driver, connect("publisher"));
        for (id, topic) in [(1, "own/y"), (2, "token/y")] {
            publish(&mut driver, publisher, topic, QoS::AtLeastOnce, id);
        }
        let ann = connected(&mut driver);
        assert_eq!(all(&mut driver, ann), expected, "{rules}");
        // The rules are stored again as soon as they change.
        driver.batches.clear();
        let connect = Connect { password: Some(b"token"), ..kept(Some("ann"), "ann") };
        let link = driver.open();
        send(&mut driver, link, &Packet::Connect(Box::new(connect)));
        driver.decide(AuthDecision::Allow(Arc::new(Identity::new("ann", IdentitySource::Jwt)).into()));
        let records = driver.batches.iter().flat_map(|batch| &batch.records);
        let stored = records.filter_map(|record| match record {
            Record::Session(session) => Some(session.access.rules.clone()),
            _ => None,
        });
        assert_eq!(stored.collect::<Vec<_>>(), [None], "{rules}");
        assert_eq!(driver.links[link].version, Some(V5));
    }
}
