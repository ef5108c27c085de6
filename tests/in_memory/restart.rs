//! The rules that hold for sessions after a restart, and by which listener their clients came.

use crate::client::{V5, connect, enter, publish, send, subscribe, take, take_packets};
use crate::driver::{self, LinkId, MemoryDriver};
use crate::memory_store::Memory;
use homing::access::grant::{Grant, SessionRules};
use homing::access::identity::{Identity, IdentitySource};
use homing::auth::acl_file;
use homing::config::DurabilityLevel;
use homing::login::acl_files::AclFiles;
use homing::login::arrival::Arrival;
use homing::login::authentication::AuthDecision;
use homing::login::listener_terms::{ListenerRules, ListenerTerms, LiveRules};
use homing::mqtt::packet::{Acknowledgement, Connect, ConnectProperties, Packet, PacketId, Publish, QoS};
use homing::persistence::records::Record;
use homing::session::authentication::{Anonymous, AuthMethod};
use homing::session::drops::DropReason;
use homing::session::outbound::queue::QueueBounds;
use homing::shard::ShardSettings;
use homing::shard::recovery::placement::share_out;
use homing::store::coalesce::CommitGroup;
use homing::store::logged::{LoggedStore, StoreOptions};
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
    settings.access.files.broker = Some(Arc::new(acl));
    settings
}

/// One shard that has what the shard of `before` had stored. No client is connected.
fn restarted(before: MemoryDriver, settings: &ShardSettings) -> MemoryDriver {
    let memory = Memory::default();
    restarted_from(|| Box::new(memory.clone()), before, settings)
}

/// As [`restarted`], by a store that is opened twice.
fn restarted_from(
    open: impl Fn() -> Box<dyn Store>,
    before: MemoryDriver,
    settings: &ShardSettings,
) -> MemoryDriver {
    let at = |seconds: u64| Moment { unix_millis: 1_700_000_000_000 + seconds * 1_000, ..Moment::default() };
    let mut store = open();
    store.recover(at(0), Duration::ZERO).expect("a new store");
    for batch in &before.batches {
        let mut group = CommitGroup::default();
        batch.records.iter().cloned().for_each(|record| group.fold(record));
        group.seal();
        store.commit(&mut group).expect("a new store takes everything");
    }
    drop(store);
    let recovered = open().recover(at(1), Duration::ZERO).expect("a sound store");
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
fn a_recovered_queue_has_the_bounds_of_its_own_from_the_start_and_a_change_reaches_it() {
    let bounded = |own: Option<usize>| {
        let mut settings = driver::settings();
        settings.session.send.queue.messages = 2;
        let own = own.map(|messages| ("long".into(), QueueBounds { messages: Some(messages), bytes: None }));
        settings.own_queues = Arc::new(own.into_iter().collect());
        settings
    };
    let taken_of_ten = |driver: &mut MemoryDriver| {
        let refused =
            |driver: &MemoryDriver| driver.shards[0].snapshot().counters.drops.of(DropReason::QueueRefused);
        let (before, publisher) = (refused(driver), enter(driver, connect("publisher")));
        (1..=10).for_each(|id| publish(driver, publisher, "t", QoS::AtLeastOnce, id));
        10 - (refused(driver) - before)
    };
    let mut driver = MemoryDriver::new(&bounded(Some(5)), 1);
    driver.keep_in_store();
    let long = enter(&mut driver, kept(None, "long"));
    subscribe(&mut driver, long, &["t"], QoS::AtLeastOnce);
    driver.close(long);
    assert_eq!(taken_of_ten(&mut driver), 5);
    let mut driver = restarted(driver, &bounded(Some(7)));
    assert_eq!(taken_of_ten(&mut driver), 2);
    for (own, taken) in [(Some(8), 1), (None, 0), (Some(9), 1)] {
        let mut settings = bounded(own);
        settings.session.send.stored_queue = settings.session.send.queue.clone();
        driver.shards[0].replace_settings(settings);
        assert_eq!(taken_of_ten(&mut driver), taken, "{own:?}");
    }
    let long = enter(&mut driver, kept(None, "long"));
    assert_eq!(all(&mut driver, long).len(), 9);
}

/// The Packet Identifiers of the PUBLISH packets that came since the last call.
fn packet_ids(driver: &mut MemoryDriver, link: LinkId) -> Vec<u16> {
    let mut ids = Vec::new();
    take_packets(driver, link, V5, |packet| {
        if let Packet::Publish(Publish { packet_id: Some(id), .. }) = packet {
            ids.push(id.get());
        }
    });
    ids
}

/// Restarts from a file, and publishes three messages to `ann`. Returns their Packet Identifiers.
fn first_ids(before: MemoryDriver, settings: &ShardSettings) -> (MemoryDriver, LinkId, Vec<u16>) {
    let directory = tempfile::tempdir().expect("a directory");
    let options = StoreOptions { durability: DurabilityLevel::None, size_limit: None };
    let open =
        || -> Box<dyn Store> { Box::new(LoggedStore::open(directory.path(), options).expect("opened")) };
    let mut driver = restarted_from(open, before, settings);
    let ann = enter(&mut driver, kept(Some("ann"), "ann"));
    assert!(packet_ids(&mut driver, ann).is_empty(), "nothing waits for the client");
    let publisher = enter(&mut driver, connect("other publisher"));
    for packet_id in 1..=3 {
        publish(&mut driver, publisher, "own/next", QoS::AtLeastOnce, packet_id);
    }
    let ids = packet_ids(&mut driver, ann);
    for id in ids.iter().filter_map(|id| PacketId::new(*id)) {
        send(&mut driver, ann, &Packet::Puback(Acknowledgement::success(id)));
    }
    (driver, ann, ids)
}

#[test]
fn the_identifier_of_a_dropped_message_is_withheld_over_a_restart() {
    let mut settings = settings("user ann\ntopic read #\npattern write #\n");
    settings.access.counts_claims = true;
    let mut driver = MemoryDriver::new(&settings, 1);
    driver.keep_in_store();
    let ann = enter(&mut driver, kept(Some("ann"), "ann"));
    subscribe(&mut driver, ann, &["#"], QoS::ExactlyOnce);
    let publisher = enter(&mut driver, connect("publisher"));
    publish(&mut driver, publisher, "own/x", QoS::AtLeastOnce, 1);
    publish(&mut driver, publisher, "secret", QoS::ExactlyOnce, 2);
    let ids = packet_ids(&mut driver, ann);
    send(&mut driver, ann, &Packet::Puback(Acknowledgement::success(PacketId::new(ids[0]).expect("not 0"))));
    let secret = ids[1];
    driver.close(ann);
    settings.access.files = crate::access::acl(RULES).into();
    driver.shards[0].permission_changes().replace_acls(settings.access.files.clone());
    driver.settle();
    assert_eq!(dropped(&driver), 1);
    let (mut driver, mut ann, mut ids) = first_ids(driver, &settings);
    assert!(ids.len() == 3 && !ids.contains(&secret), "{secret} is withheld: {ids:?}");
    // The client has not answered, so the identifier is withheld over another restart.
    driver.close(ann);
    (driver, ann, ids) = first_ids(driver, &settings);
    assert!(ids.len() == 3 && !ids.contains(&secret), "{secret} is withheld: {ids:?}");
    // The client finishes the exchange.
    let id = PacketId::new(secret).expect("not 0");
    send(&mut driver, ann, &Packet::Pubcomp(Acknowledgement::success(id)));
    driver.close(ann);
    let (.., ids) = first_ids(driver, &settings);
    assert!(ids.len() == 3 && ids.contains(&secret), "{secret} is free: {ids:?}");
}

#[test]
fn a_crash_cuts_the_check_of_a_queue_short_and_the_rest_is_checked_after_it() {
    const MESSAGES: u16 = 60;
    let mut settings = settings("user ann\ntopic read #\npattern write #\n");
    settings.access.counts_claims = true;
    let mut driver = MemoryDriver::new(&ShardSettings { steps_per_turn: 20, ..settings.clone() }, 1);
    driver.keep_in_store();
    let ann = enter(&mut driver, kept(Some("ann"), "ann"));
    subscribe(&mut driver, ann, &["#"], QoS::AtLeastOnce);
    driver.close(ann);
    let publisher = enter(&mut driver, connect("publisher"));
    for n in 0..MESSAGES {
        let half = if n % 2 == 0 { "secret" } else { "own" };
        publish(&mut driver, publisher, &format!("{half}/{n}"), QoS::AtLeastOnce, n + 1);
    }
    settings.access.files = crate::access::acl(RULES).into();
    driver.shards[0].permission_changes().replace_acls(settings.access.files.clone());
    driver.turn();
    driver.turn();
    let first = dropped(&driver);
    assert!(first > 0 && first < u64::from(MESSAGES) / 2, "{first} are dropped");
    let mut driver = restarted(driver, &settings);
    let ann = enter(&mut driver, kept(Some("ann"), "ann"));
    let own: Vec<String> = (1..MESSAGES).step_by(2).map(|n| format!("own/{n}")).collect();
    assert_eq!(all(&mut driver, ann), own);
    assert_eq!(dropped(&driver) + first, u64::from(MESSAGES) / 2);
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

/// Returns the rules of an open listener, which has these of its own if some are given.
fn rules_of(name: &str, rules: Option<&str>) -> ListenerRules {
    let own =
        |rules: &str| Arc::new(acl_file::parse(Path::new("acl"), rules.as_bytes()).expect("lawful rules"));
    ListenerRules { name: name.into(), is_open: true, acl: rules.map(own), ..ListenerRules::default() }
}

fn listener(rules: ListenerRules) -> Arc<ListenerTerms> {
    let rules = Arc::new(LiveRules::from_pointee(rules));
    Arc::new(ListenerTerms { rules, ..ListenerTerms::default() })
}

/// Rules of their own for the second listener.
fn two_listeners(second: Option<&str>, names: [&str; 2]) -> [Arc<ListenerTerms>; 2] {
    [listener(rules_of(names[0], None)), listener(rules_of(names[1], second))]
}

fn with_listeners(listeners: &[Arc<ListenerTerms>]) -> ShardSettings {
    let mut settings = settings("topic read broker/#\npattern write #\n");
    settings.access.files.listeners = listeners.iter().map(|listener| listener.rules.load_full()).collect();
    settings
}

fn files_of(listeners: &[Arc<ListenerTerms>]) -> AclFiles {
    with_listeners(listeners).access.files
}

fn enter_by(driver: &mut MemoryDriver, listener: &Arc<ListenerTerms>, connect: Connect<'_>) -> LinkId {
    let link = driver.open_from(Arrival { listener: Arc::clone(listener), ..Arrival::local() });
    send(driver, link, &Packet::Connect(Box::new(connect)));
    link
}

const DEVICES: &str = "topic read devices/#\npattern write #\n";

/// The topics that a client who came by the second listener gets when it is back there. It was away
/// while one message came for each rule, before and after a restart with other listeners.
fn received_after(after: &[Arc<ListenerTerms>], settings: &ShardSettings) -> Vec<String> {
    let before = two_listeners(Some(DEVICES), ["plain", "devices"]);
    let mut driver = MemoryDriver::new(&with_listeners(&before), 1);
    driver.keep_in_store();
    let link = enter_by(&mut driver, &before[1], kept(None, "c"));
    subscribe(&mut driver, link, &["#"], QoS::AtLeastOnce);
    driver.close(link);
    let publish_both = |driver: &mut MemoryDriver, listeners: &[Arc<ListenerTerms>], name: &str| {
        let publisher = enter_by(driver, &listeners[0], connect("publisher"));
        for (id, topic) in [(1, "broker"), (2, "devices")] {
            publish(driver, publisher, &format!("{topic}/{name}"), QoS::AtLeastOnce, id);
        }
    };
    publish_both(&mut driver, &before, "before");
    let mut driver = restarted(driver, settings);
    publish_both(&mut driver, after, "after");
    let link = enter_by(&mut driver, &after[1], kept(None, "c"));
    all(&mut driver, link)
}

#[test]
fn a_session_that_is_away_keeps_the_rules_of_the_listener_by_which_its_client_came() {
    let same = two_listeners(Some(DEVICES), ["plain", "devices"]);
    assert_eq!(received_after(&same, &with_listeners(&same)), ["devices/before", "devices/after"]);
    // The places of listeners do not matter, but their names do.
    let [another, devices] = two_listeners(Some(DEVICES), ["another", "devices"]);
    another.rules.store(Arc::new(rules_of("another", Some(DEVICES))));
    let moved = [listener(rules_of("new", None)), another, devices];
    assert_eq!(received_after(&moved, &with_listeners(&moved)), ["devices/before", "devices/after"]);
}

#[test]
fn a_new_name_and_a_new_acl_file_of_a_listener_are_stored_for_its_clients_that_are_away() {
    let after = two_listeners(Some(DEVICES), ["plain", "things"]);
    let renamed = two_listeners(Some(DEVICES), ["plain", "devices"]);
    let without_file = two_listeners(None, ["plain", "things"]);
    for before in [renamed, without_file] {
        let mut driver = MemoryDriver::new(&with_listeners(&before), 1);
        driver.keep_in_store();
        let link = enter_by(&mut driver, &before[1], kept(None, "c"));
        subscribe(&mut driver, link, &["#"], QoS::AtLeastOnce);
        driver.close(link);
        before[1].rules.store(after[1].rules.load_full());
        driver.shards[0].permission_changes().replace_acls(files_of(&before));
        driver.settle();
        // The same rules again are no news for the store.
        let stored = driver.batches.len();
        driver.shards[0].permission_changes().replace_acls(files_of(&before));
        driver.settle();
        assert_eq!(driver.batches.len(), stored);
        let mut driver = restarted(driver, &with_listeners(&after));
        let publisher = enter_by(&mut driver, &after[0], connect("publisher"));
        for (id, topic) in [(1, "broker/x"), (2, "devices/x")] {
            publish(&mut driver, publisher, topic, QoS::AtLeastOnce, id);
        }
        let link = enter_by(&mut driver, &after[1], kept(None, "c"));
        assert_eq!(all(&mut driver, link), ["devices/x"]);
    }
}

#[test]
fn a_session_whose_listener_is_gone_has_the_rules_of_the_broker_and_without_any_none() {
    // By its new listener, it is judged by the rules of that one.
    let gone = two_listeners(Some("topic read #\n"), ["plain", "new"]);
    let mut settings = with_listeners(&gone);
    assert_eq!(received_after(&gone, &settings), ["devices/before", "broker/after"]);
    settings.access.files.broker = None;
    assert_eq!(received_after(&gone, &settings), ["devices/before"]);
    let without_file = two_listeners(None, ["plain", "devices"]);
    assert_eq!(received_after(&without_file, &with_listeners(&without_file)), ["broker/after"]);
}

#[test]
fn a_client_has_the_rules_of_its_listener_and_a_change_reaches_it() {
    let listeners = two_listeners(Some(DEVICES), ["plain", "devices"]);
    let mut driver = MemoryDriver::new(&with_listeners(&listeners), 2);
    for (listener, codes) in listeners.iter().zip([[1, 0x87], [0x87, 1]]) {
        let link = enter_by(&mut driver, listener, kept(None, "c"));
        driver.links[link].received.clear();
        subscribe(&mut driver, link, &["broker/x", "devices/x"], QoS::AtLeastOnce);
        assert!(driver.links[link].received.ends_with(&codes), "{listener:?}");
    }
    let link = enter_by(&mut driver, &listeners[1], kept(None, "d"));
    subscribe(&mut driver, link, &["devices/x", "devices/y"], QoS::AtLeastOnce);
    listeners[1].rules.store(Arc::new(rules_of("devices", Some("topic devices/y\n"))));
    let changed = files_of(&listeners);
    driver.shards.iter_mut().for_each(|shard| shard.permission_changes().replace_acls(changed.clone()));
    driver.settle();
    let publisher = enter_by(&mut driver, &listeners[0], connect("publisher"));
    for (id, topic) in [(1, "devices/x"), (2, "devices/y")] {
        publish(&mut driver, publisher, topic, QoS::AtLeastOnce, id);
    }
    assert_eq!(take(&mut driver, link, true), ["devices/y"]);
}

#[test]
fn rules_of_a_listener_that_gets_an_acl_file_hold_for_its_clients_that_are_away() {
    let [plain, devices] = two_listeners(None, ["plain", "devices"]);
    let mut driver = MemoryDriver::new(&with_listeners(&[Arc::clone(&plain), Arc::clone(&devices)]), 1);
    let link = enter_by(&mut driver, &devices, kept(None, "c"));
    subscribe(&mut driver, link, &["#"], QoS::AtLeastOnce);
    driver.close(link);
    // Its clients come by other terms from now on, which share the rules.
    let rules = Arc::clone(&devices.rules);
    rules.store(Arc::new(rules_of("devices", Some(DEVICES))));
    let open = [plain, Arc::new(ListenerTerms { rules, ..ListenerTerms::default() })];
    let publisher = enter_by(&mut driver, &open[0], connect("publisher"));
    let mut closed = Some(devices);
    for turn in 0..2 {
        driver.shards[0].permission_changes().replace_acls(files_of(&open));
        driver.settle();
        for (id, topic) in [(1, "broker"), (2, "devices")] {
            publish(&mut driver, publisher, &format!("{topic}/{turn}"), QoS::AtLeastOnce, id);
        }
        // Then the terms before are gone, and the name counts.
        drop(closed.take());
    }
    let link = enter_by(&mut driver, &open[1], kept(None, "c"));
    assert_eq!(all(&mut driver, link), ["devices/0", "devices/1"]);
}

#[test]
fn a_closed_listener_keeps_its_rules_beside_an_open_one_of_the_same_name() {
    let closed = ListenerRules { is_open: false, ..rules_of("devices", Some(DEVICES)) };
    let listeners = [listener(rules_of("devices", None)), listener(closed)];
    let mut driver = MemoryDriver::new(&with_listeners(&listeners), 1);
    let link = enter_by(&mut driver, &listeners[1], kept(None, "c"));
    subscribe(&mut driver, link, &["devices/x", "broker/x"], QoS::AtLeastOnce);
    assert!(driver.links[link].received.ends_with(&[1, 0x87]), "the rules of its own");
}
