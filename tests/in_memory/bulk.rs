//! Commands of operators about many things: the portion of one turn, and what is left of a queue.

use crate::client::{self, connect, enter, publish, subscribe};
use crate::driver::{self, LinkId, MemoryDriver};
use homing::mqtt::packet::{Connect, ConnectProperties, QoS};
use homing::operators::bulk_commands::{BulkCommand, BulkPortion};
use homing::operators::command::Command;
use homing::operators::letters::LetterFilter;
use homing::operators::query::{Query, QueryAnswer, SessionName};
use homing::persistence::records::Record;
use homing::session::drops::DropReason;
use homing::session::outbound::stall::SocketView;
use homing::shard::{LetterLimits, ShardSettings};

fn subscriber(driver: &mut MemoryDriver, name: &str) -> LinkId {
    let properties = ConnectProperties { session_expiry: Some(3600), ..Default::default() };
    let link = enter(driver, Connect { properties, ..connect(name) });
    subscribe(driver, link, &["t"], QoS::AtLeastOnce);
    link
}

/// A client `pump` that is away, with this many messages in its stored queue.
fn with_queue(settings: &ShardSettings, messages: u16) -> MemoryDriver {
    let mut driver = MemoryDriver::new(settings, 1);
    driver.keep_in_store();
    let link = subscriber(&mut driver, "pump");
    driver.close(link);
    let publisher = client::client(&mut driver, "app", 10);
    (1..=messages).for_each(|id| publish(&mut driver, publisher, "t", QoS::AtLeastOnce, id));
    driver.batches.clear();
    driver
}

fn portion(driver: &mut MemoryDriver, command: &BulkCommand) -> Option<BulkPortion> {
    driver.shards[0].begin_turn();
    let portion = command.carry_out(driver.now, SocketView::default(), &mut driver.shards[0]).outcome;
    driver.settle();
    portion
}

fn purge(driver: &mut MemoryDriver, most: usize) -> BulkPortion {
    let command = BulkCommand::Purge(SessionName::Client("pump".into()), most);
    portion(driver, &command).expect("a session")
}

#[test]
fn a_purge_drops_the_oldest_messages_in_portions_and_each_leaves_the_store() {
    let settings = ShardSettings { steps_per_turn: 400, ..driver::settings() };
    let mut driver = with_queue(&settings, 300);
    let mut left = 300;
    while left > 0 {
        let done = purge(&mut driver, left);
        assert!((1..=128).contains(&done.done), "a turn has 400 steps: {done:?}");
        assert_eq!(done.queued, left - done.done);
        left = done.queued;
    }
    let records = driver.batches.iter().flat_map(|batch| &batch.records);
    assert_eq!(records.filter(|record| matches!(record, Record::EntryDone(_))).count(), 300);
    assert_eq!(purge(&mut driver, 1), BulkPortion::default(), "nothing is left");
    let nobody = BulkCommand::Purge(SessionName::Client("nobody".into()), 1);
    assert_eq!(portion(&mut driver, &nobody), None);
}

#[test]
fn a_purge_drops_no_more_messages_than_it_is_asked_for() {
    let mut driver = with_queue(&driver::settings(), 100);
    assert_eq!((purge(&mut driver, 70).done, purge(&mut driver, 1_000).done), (70, 30));
}

#[test]
fn purged_messages_become_dead_letters_where_a_rule_says_so() {
    let mut settings = driver::settings();
    settings.letters = LetterLimits { letters: 1_000, bytes: 1 << 20 };
    settings.session.send.redelivery.dead_letters = [DropReason::Skipped].into_iter().collect();
    let mut driver = with_queue(&settings, 100);
    assert_eq!(purge(&mut driver, 100).done, 64, "the next ones wait until these are published");
    assert_eq!(purge(&mut driver, 36).done, 36);
    let query = Query::Letters { before: None, most: 256, filter: LetterFilter::default() };
    let QueryAnswer::Letters(page) = query.answer(driver.now, &driver.shards[0]) else { panic!("no page") };
    assert_eq!(page.rows.len(), 100);
    assert!(page.rows.iter().all(|letter| &*letter.cause == "skipped"));
    // They are deleted in portions, too.
    let places: Vec<_> = page.rows.iter().map(|letter| letter.place).collect();
    let done = portion(&mut driver, &BulkCommand::DeleteLetters(places.into())).expect("a portion");
    assert_eq!((done.done, done.looked_at), (100, 100));
}

#[test]
fn a_portion_closes_as_many_connections_as_its_turn_has_steps_for() {
    let settings = ShardSettings { steps_per_turn: 250, ..driver::settings() };
    let mut driver = MemoryDriver::new(&settings, 1);
    let links: Vec<LinkId> = (0..5).map(|n| subscriber(&mut driver, &format!("c{n}"))).collect();
    let ids: Vec<_> = links.iter().map(|link| driver.id(*link)).collect();
    let done = portion(&mut driver, &BulkCommand::Disconnect(ids.clone().into())).expect("a portion");
    assert!((1..=3).contains(&done.looked_at) && done.done == done.looked_at, "{done:?}");
    for (at, link) in links.iter().enumerate() {
        assert_eq!(driver.is_open(*link), at >= done.looked_at, "{at}");
    }
    // Those that are gone are not counted again.
    let again = portion(&mut driver, &BulkCommand::Disconnect(ids[..1].into())).expect("a portion");
    assert_eq!((again.done, again.looked_at), (0, 1));
}
