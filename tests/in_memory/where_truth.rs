//! `where` against the truth: a thousand messages in random states, as their clients know them, and
//! what the questions of operators find of each.
//!
//! A client knows which messages it got and acknowledged, and a publisher which ones the broker
//! took. So the truth comes from outside of the broker. Its seeds are fixed, and a failure names
//! its seed.

use crate::access::acl;
use crate::client::{V5, connect, encoded, enter, publication, publish, send, subscribe, take_packets};
use crate::driver::{self, LinkId, MemoryDriver};
use crate::memory_store::Memory;
use crate::rng::Rng;
use homing::events::refusals::{Refusal, RefusedKind};
use homing::mqtt::charge::Charge;
use homing::mqtt::packet::{
    Acknowledgement, Connect, ConnectProperties, Packet, PacketId, Properties, ProtocolVersion, Publish,
    PublishProperties, QoS, ReasonCode, Subscribe, SubscribeFilter, SubscriptionOptions,
};
use homing::operators::client_commands::{MessageOf, OperatorAction, OperatorCommand};
use homing::operators::command::Command;
use homing::operators::letters::LetterFilter;
use homing::operators::message_search::{MessageSearch, RECEIVERS, SearchStep, Searched};
use homing::operators::query::{Query, QueryAnswer, ROWS, SessionName};
use homing::operators::session_rows::SessionFilter;
use homing::operators::unfinished::{PagePayloads, UnfinishedMessage, UnfinishedPart};
use homing::operators::wait_reason::WaitReason;
use homing::operators::wanted::{Wanted, WantedTopic};
use homing::persistence::records::Record;
use homing::session::drops::DropReason;
use homing::session::outbound::one_message::MessageName;
use homing::session::outbound::queue::QueuePolicy;
use homing::session::outbound::retry::OnExhausted;
use homing::session::outbound::stall::{Holder, SocketView};
use homing::session::redelivery_rule::RedeliveryRule;
use homing::shard::recovery::{in_flight, placement::share_out};
use homing::shard::{LetterLimits, ShardSettings, shard_of};
use homing::store::coalesce::CommitGroup;
use homing::store::view::look;
use homing::store::{Moment, Store, StoreReader};
use homing::time::Instant;
use homing::time::age::Age;
use std::ops::Bound;
use std::sync::atomic::Ordering;
use std::time::Duration;

const SHARDS: u8 = 2;
const MESSAGES: usize = 1_000;
const SEEDS: [u64; 3] = [1, 7, 28];

/// Messages in the queue of a receiver at most: 64 in memory, the others in the store alone.
const QUEUE: usize = 72;

/// What a message has become, as its clients know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Truth {
    /// The receiver got it, and has not acknowledged it.
    Sent,
    /// The receiver did not get it yet.
    Waiting,
    /// The receiver's socket takes no bytes, so the message is in its queue, or on its way.
    Unread,
    /// The receiver got it and acknowledged it, or got it at QoS 0.
    Acknowledged,
    Delayed,
    Parked,
    Dropped(DropReason),
    /// The rules forbade the PUBLISH.
    Denied,
}

/// What a receiver does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Habit {
    /// Is away, and comes for a moment now and then.
    Visits,
    /// Takes five messages at a time, and acknowledges a few.
    Slow,
    Quick,
    ReadsNothing,
    /// Acknowledges with an error.
    Refuses,
    /// Has a small Maximum Packet Size.
    Small,
    /// Is away for so long that messages expire.
    Late,
    /// Is away, and its session is ended by an operator.
    Ended,
    /// Is away, and nobody may write to its topics.
    Forbidden,
    /// Takes all messages, as a 3.1.1 client, and acknowledges none.
    Forgetful,
    /// Has a subscription of QoS 0, and a socket that takes no bytes.
    AtMostOnce,
    /// Is away, and the store loses some of its messages.
    Damaged,
}

/// [`World::new`] forbids the topics of the ninth, and has a rule for the tenth.
const HABITS: [Habit; 12] = [
    Habit::Visits,
    Habit::Slow,
    Habit::Quick,
    Habit::ReadsNothing,
    Habit::Refuses,
    Habit::Small,
    Habit::Late,
    Habit::Ended,
    Habit::Forbidden,
    Habit::Forgetful,
    Habit::AtMostOnce,
    Habit::Damaged,
];

/// The receiver that is late.
const LATE: usize = 6;

/// The receiver whose session is ended.
const ENDED: usize = 7;

/// The resends to the forgetful client.
const ATTEMPTS: u16 = 2;

struct Receiver {
    name: String,
    habit: Habit,
    /// `None` while it is away.
    link: Option<LinkId>,
    /// The messages that it got and did not acknowledge.
    got: Vec<(PacketId, usize)>,
}

/// A broker with its store, its clients, and the truth about each message.
struct World {
    driver: MemoryDriver,
    disk: Memory,
    /// Batches of the driver that are on the disk.
    written: usize,
    rng: Rng,
    publisher: LinkId,
    receivers: Vec<Receiver>,
    /// Sessions that a search looked at once more, because messages came into memory meanwhile.
    again: usize,
    /// The receiver of each message, and what it has become. The topic has both numbers.
    messages: Vec<(usize, Truth)>,
    /// How often the receiver got each message.
    received: Vec<u16>,
    /// The topics of messages that the broker refused for reasons that are nobody's queue.
    refused: Vec<(String, DropReason)>,
    policy: QueuePolicy,
    /// Messages in flight that a blocked socket holds.
    held_by_network: usize,
}

fn topic(receiver: usize, message: usize) -> String {
    format!("r{receiver}/{message}")
}

/// Returns the version of a client with this habit.
fn version(habit: Habit) -> ProtocolVersion {
    if habit == Habit::Forgetful { ProtocolVersion::V3_1_1 } else { V5 }
}

fn number_of(topic: &str) -> usize {
    topic.rsplit('/').next().and_then(|number| number.parse().ok()).expect("one of ours")
}

fn settings(policy: QueuePolicy) -> ShardSettings {
    let mut settings = driver::settings();
    settings.session.send.queue.messages = QUEUE;
    settings.session.send.queue.policy = policy;
    settings.session.send.outbox = 600;
    settings.session.send.rules = vec![RedeliveryRule {
        client_id: Some("r9".parse().expect("a pattern")),
        interval: Some(Duration::from_secs(1)),
        backoff: Some(1.0),
        jitter: Some(0.0),
        attempts: Some(ATTEMPTS),
        on_exhausted: Some(OnExhausted::DeadLetter),
        ..RedeliveryRule::default()
    }];
    settings.letters = LetterLimits { letters: 1_000, bytes: 1 << 20 };
    settings.delayed.messages = 1_000;
    settings.session.send.redelivery.negative_ack = true;
    settings.access.files.broker = Some(acl("topic deny r8/#\ntopic readwrite #\n"));
    settings
}

/// Returns a moment of a process, the second of which is this one by the wall clock.
fn moment(second: u64) -> Moment {
    Moment { unix_millis: 1_700_000_000_000 + second * 1_000, ..Moment::default() }
}

impl World {
    fn new(seed: u64, policy: QueuePolicy) -> World {
        let mut driver = MemoryDriver::new(&settings(policy), SHARDS);
        driver.keep_in_store();
        let publisher = enter(&mut driver, connect("app"));
        let mut disk = Memory::default();
        disk.recover(moment(0), Duration::ZERO).expect("a new store");
        let mut world = World {
            driver,
            disk,
            written: 0,
            rng: Rng::new(seed),
            publisher,
            receivers: Vec::new(),
            again: 0,
            messages: Vec::new(),
            received: Vec::new(),
            refused: Vec::new(),
            policy,
            held_by_network: 0,
        };
        for (number, habit) in HABITS.into_iter().enumerate() {
            let name = format!("r{number}");
            world.receivers.push(Receiver { name, habit, link: None, got: Vec::new() });
            world.come(number, true);
            let link = world.receivers[number].link.expect("it is there");
            world.subscribe(habit, link, &format!("r{number}/#"));
            match habit {
                Habit::Visits | Habit::Late | Habit::Ended | Habit::Forbidden | Habit::Damaged => {
                    world.leave(number);
                }
                Habit::ReadsNothing | Habit::AtMostOnce => world.driver.make_room(link, 0),
                Habit::Slow | Habit::Quick | Habit::Refuses | Habit::Small | Habit::Forgetful => {}
            }
        }
        world
    }

    /// The broker ends, and another process goes on with the store at this second. All clients are
    /// away then.
    fn restart(&mut self, second: u64) {
        self.write();
        let mut driver = MemoryDriver::new(&settings(self.policy), SHARDS);
        // The pages of queues are read from the records.
        driver.batches = std::mem::take(&mut self.driver.batches);
        driver.keep_in_store();
        driver.now = Instant::from_millis(200);
        let recovered = self.disk.recover(moment(second), Duration::ZERO).expect("a sound store");
        let read = self.disk.entries(&in_flight(&recovered.sessions)).expect("memory does not fail");
        let shares = share_out(recovered, read, Instant::ZERO, SHARDS);
        for (shard, share) in driver.shards.iter_mut().zip(shares) {
            shard.take_up(driver.now, share);
        }
        driver.settle();
        self.publisher = enter(&mut driver, connect("app"));
        self.driver = driver;
        for receiver in &mut self.receivers {
            (receiver.link, receiver.got) = (None, Vec::new());
        }
    }

    /// Returns the ages of a message in flight or in a queue, as a search finds them.
    fn ages(&mut self, message: usize) -> Vec<Option<Age>> {
        let topic = topic(self.messages[message].0, message);
        let wanted = Wanted { topic: WantedTopic::read(&topic).ok(), ..Wanted::default() };
        let Searched { messages, .. } = self.search(&wanted, |_| {});
        messages.into_iter().map(|found| found.message.age).collect()
    }

    /// Returns the clients whose oldest message is unacknowledged for this long.
    fn stuck_for(&self, least: Duration) -> Vec<String> {
        let filter = SessionFilter { min_unacked_age: least, ..SessionFilter::default() };
        let sessions = self.ask(&Query::Sessions { from: 0, most: 256, filter }, |answer| match answer {
            QueryAnswer::Sessions(part) => part.rows,
            _ => panic!("no sessions"),
        });
        sessions.into_iter().map(|row| row.client_id.to_string()).collect()
    }

    fn subscribe(&mut self, habit: Habit, link: LinkId, filter: &str) {
        let qos = if habit == Habit::AtMostOnce { QoS::AtMostOnce } else { QoS::AtLeastOnce };
        let options = SubscriptionOptions { qos, ..Default::default() };
        let subscribe = Subscribe {
            packet_id: PacketId::new(1).expect("not 0"),
            subscription_id: None,
            properties: Properties::EMPTY,
            filters: [SubscribeFilter { filter, options }].into_iter().collect(),
        };
        self.driver.send(link, &encoded(&Packet::Subscribe(subscribe), version(habit)));
    }

    fn come(&mut self, receiver: usize, clean_start: bool) {
        let Receiver { name, habit, .. } = &self.receivers[receiver];
        let properties = ConnectProperties {
            session_expiry: Some(3_600),
            receive_maximum: Some(5),
            maximum_packet_size: (*habit == Habit::Small).then_some(100),
            ..Default::default()
        };
        let version = version(*habit);
        // A session of 3.1.1 outlives its connection only without Clean Session.
        let clean_start = clean_start && version == V5;
        let link = enter(&mut self.driver, Connect { version, properties, clean_start, ..connect(name) });
        self.receivers[receiver].link = Some(link);
        self.take(receiver);
    }

    fn leave(&mut self, receiver: usize) {
        let link = self.receivers[receiver].link.take().expect("it is there");
        self.driver.close(link);
        self.receivers[receiver].got.clear();
    }

    /// The receiver reads what came. Returns true if it got something.
    fn take(&mut self, receiver: usize) -> bool {
        let Some(link) = self.receivers[receiver].link else { return false };
        let mut got = Vec::new();
        let version = version(self.receivers[receiver].habit);
        let (messages, received) = (&mut self.messages, &mut self.received);
        take_packets(&mut self.driver, link, version, |packet| {
            let Packet::Publish(Publish { packet_id, topic, .. }) = packet else { return };
            let message = number_of(topic);
            received[message] += 1;
            messages[message].1 = if packet_id.is_some() { Truth::Sent } else { Truth::Acknowledged };
            got.extend(packet_id.map(|id| (id, message)));
        });
        let is_new = !got.is_empty();
        self.receivers[receiver].got.extend(got);
        is_new
    }

    /// The receiver acknowledges its oldest messages, at most so many, and reads on.
    fn acknowledge(&mut self, receiver: usize, most: usize) {
        let Some(link) = self.receivers[receiver].link else { return };
        let refuses = self.receivers[receiver].habit == Habit::Refuses;
        for _ in 0..most {
            if self.receivers[receiver].got.is_empty() && !self.take(receiver) {
                return;
            }
            let (id, message) = self.receivers[receiver].got.remove(0);
            let reason = if refuses { ReasonCode::QUOTA_EXCEEDED } else { ReasonCode::SUCCESS };
            let answer = Acknowledgement { reason, ..Acknowledgement::success(id) };
            send(&mut self.driver, link, &Packet::Puback(answer));
            self.messages[message].1 = if refuses {
                Truth::Dropped(DropReason::NegativelyAcknowledged)
            } else {
                Truth::Acknowledged
            };
            self.take(receiver);
        }
    }

    /// Publishes the next message to some receiver.
    fn publish(&mut self) {
        let mut receiver = self.rng.below(HABITS.len() as u64) as usize;
        if self.policy == QueuePolicy::DropOldest {
            // Enough messages for one queue, so that those in memory are dropped, and then those in
            // the store. What a socket holds in place of a queue is not known from outside.
            if HABITS[receiver] == Habit::ReadsNothing || self.rng.percent(30) {
                receiver = LATE;
            }
        }
        self.publish_to(receiver);
    }

    fn publish_to(&mut self, receiver: usize) {
        let message = self.messages.len();
        let habit = HABITS[receiver];
        let (is_delayed, is_special) = (self.rng.percent(5), self.rng.percent(30));
        let own = topic(receiver, message);
        let topic = if is_delayed { format!("$delayed/600/{own}") } else { own };
        let payload = vec![b'x'; if habit == Habit::Small && is_special { 200 } else { 10 }];
        let message_expiry = (habit == Habit::Late && is_special).then_some(5);
        let truth = match habit {
            Habit::Forbidden => Truth::Denied,
            _ if is_delayed => Truth::Delayed,
            Habit::Small if is_special => Truth::Dropped(DropReason::TooLarge),
            Habit::ReadsNothing | Habit::AtMostOnce => Truth::Unread,
            _ => Truth::Waiting,
        };
        if self.policy == QueuePolicy::DropOldest && truth == Truth::Waiting {
            let waiting = self.of(receiver, Truth::Waiting);
            if waiting.len() >= QUEUE {
                self.messages[waiting[0]].1 = Truth::Dropped(DropReason::QueueOverflow);
            }
        }
        self.messages.push((receiver, truth));
        self.received.push(0);
        let publish = Publish {
            qos: QoS::AtLeastOnce,
            packet_id: PacketId::new(1),
            properties: PublishProperties { message_expiry, ..Default::default() },
            ..publication(&topic, &payload)
        };
        let answer = self.answer_to(publish);
        if answer == ReasonCode::QUOTA_EXCEEDED {
            let is_at_most_once = habit == Habit::AtMostOnce;
            let cause = if is_at_most_once { DropReason::OutboxFull } else { DropReason::QueueRefused };
            self.messages[message].1 = Truth::Dropped(cause);
        }
        assert_eq!(answer == ReasonCode::NOT_AUTHORIZED, truth == Truth::Denied);
        match habit {
            Habit::Quick | Habit::Refuses | Habit::Small => self.acknowledge(receiver, 10),
            _ => drop(self.take(receiver)),
        }
    }

    /// Returns the reason code of the PUBACK.
    fn answer_to(&mut self, publish: Publish<'_>) -> ReasonCode {
        self.driver.send(self.publisher, &encoded(&Packet::Publish(publish), V5));
        let mut answer = None;
        take_packets(&mut self.driver, self.publisher, V5, |packet| {
            if let Packet::Puback(Acknowledgement { reason, .. }) = packet {
                answer = Some(reason);
            }
        });
        answer.expect("an answer")
    }

    /// Publishes to a topic, and expects that the broker refuses the message for this reason.
    fn refuse(&mut self, topic: &str, retain: bool, cause: DropReason) -> bool {
        let (qos, packet_id) = (QoS::AtLeastOnce, PacketId::new(1));
        let answer = self.answer_to(Publish { qos, packet_id, retain, ..publication(topic, b"x") });
        let is_refused = answer.is_error();
        if is_refused {
            self.refused.push((topic.to_owned(), cause));
        }
        is_refused
    }

    /// One message is refused for each reason that no receiver has.
    fn refuse_some(&mut self) {
        let deep = format!("deep{}", "/1".repeat(16));
        assert!(self.refuse("$SYS/x", false, DropReason::ReservedTopic));
        assert!(self.refuse(&deep, false, DropReason::TopicTooDeep));
        assert!(self.refuse("$delayed/4000000000/late", false, DropReason::DelayedFull));
        let is_full = |n| self.refuse(&format!("kept/{n}"), true, DropReason::RetainedFull);
        assert!((0..60).any(is_full), "the retained messages have a bound");
        // The receiver's session is stored.
        let stored = |what| format!("r{ENDED}/{what}");
        self.driver.shared.store_full.store(true, Ordering::Relaxed);
        assert!(self.refuse(&stored("disk"), false, DropReason::StoreFull));
        self.driver.shared.store_full.store(false, Ordering::Relaxed);
        let _held = Charge::new(1 << 20);
        self.driver.shared.budget.limit(1);
        assert!(self.refuse(&stored("memory"), false, DropReason::MemoryBudget));
        self.driver.shared.budget.limit(u64::MAX);
    }

    /// Asks where each of these messages is, and compares the cause.
    fn check_refused(&self) {
        for (topic, cause) in &self.refused {
            let wanted = Wanted { topic: WantedTopic::read(topic).ok(), ..Wanted::default() };
            let found = self.ask(&Query::Dropped { wanted, most: 256 }, |answer| match answer {
                QueryAnswer::Dropped(found) => found.refused,
                _ => panic!("no refusals"),
            });
            let is_own = |one: &&Refusal| one.topic.to_string() == *topic && one.cause == cause.name();
            assert_eq!(found.iter().filter(is_own).count(), 1, "{topic} is {cause:?}, {found:?}");
        }
    }

    /// Something happens that is not a PUBLISH.
    fn act(&mut self) {
        match self.rng.below(7) {
            0 if self.receivers[0].link.is_none() => self.come(0, false),
            0 => self.leave(0),
            1 => {
                let most = self.rng.below(4) as usize;
                self.acknowledge(1, most);
            }
            2 => drop(self.driver.read_pages()),
            3 => self.on_some_message(Truth::Parked, OperatorAction::Park),
            4 => self.on_some_message(Truth::Dropped(DropReason::Skipped), OperatorAction::Skip),
            5 => self.keep_house(),
            _ => self.write(),
        }
    }

    /// An operator acts on a message in memory of a random receiver that has some.
    fn on_some_message(&mut self, becomes: Truth, action: impl FnOnce(MessageOf) -> OperatorAction) {
        let receiver = self.rng.pick(&[0, 1, 3]);
        // What a blocked socket has in flight stays.
        let part = if self.rng.percent(50) && receiver != 3 {
            UnfinishedPart::InFlight
        } else {
            UnfinishedPart::Queue
        };
        let client = SessionName::Client(self.receivers[receiver].name.as_str().into());
        let shard = self.shard_of(receiver);
        let payloads = PagePayloads::Hidden;
        let query = Query::Unfinished { client: client.clone(), part, payloads, from: 0, most: 256 };
        let QueryAnswer::Unfinished(Some(page)) = query.answer(self.driver.now, &self.driver.shards[shard])
        else {
            panic!("there is a session")
        };
        let known: Vec<_> =
            page.rows.iter().filter_map(|row| Some((row.name?, row.message.as_ref()?))).collect();
        if known.is_empty() {
            return;
        }
        let (name, message) = known[self.rng.below(known.len() as u64) as usize];
        let message = number_of(&message.topic);
        let action = action(MessageOf { session: Some(page.session), name });
        let command = OperatorCommand { client, action };
        command.carry_out(self.driver.now, SocketView::default(), &mut self.driver.shards[shard]);
        self.driver.settle();
        self.receivers[receiver].got.retain(|(_, got)| *got != message);
        self.messages[message].1 = becomes;
        self.take(receiver);
    }

    /// The shards keep house, and read the topics of messages that were dropped in the store.
    fn keep_house(&mut self) {
        self.driver.advance(Duration::ZERO);
        self.driver.read_pages();
    }

    /// An absent receiver comes and takes all that it is still to get. Returns the others.
    fn drain(&mut self, receiver: usize) -> Vec<usize> {
        self.come(receiver, false);
        for _ in 0..MESSAGES {
            self.acknowledge(receiver, 10);
            let has_more = self.driver.read_pages() > 0 || self.take(receiver);
            if !has_more && self.receivers[receiver].got.is_empty() {
                break;
            }
        }
        self.of(receiver, Truth::Waiting)
    }

    fn all_are(&mut self, messages: Vec<usize>, cause: DropReason) {
        messages.into_iter().for_each(|message| self.messages[message].1 = Truth::Dropped(cause));
    }

    /// Messages to one receiver expire, the attempts for another one are used up, a third one finds
    /// some of its messages unreadable, a socket takes bytes again, and a session ends.
    fn end_some(&mut self) {
        self.driver.advance(Duration::from_secs(10));
        self.refuse_some();
        let at = |wanted: Habit| HABITS.iter().position(|habit| *habit == wanted).expect("one");
        self.take(at(Habit::Forgetful));
        let mut sent = self.of(at(Habit::Forgetful), Truth::Sent);
        sent.retain(|message| self.received[*message] == ATTEMPTS + 1);
        self.all_are(sent, DropReason::Exhausted);
        // A full queue makes room with what has expired, in memory and in the store.
        if self.policy == QueuePolicy::Refuse {
            (0..QUEUE / 2).for_each(|_| self.publish_to(LATE));
        }
        let expired = self.drain(LATE);
        self.all_are(expired, DropReason::Expired);
        let damaged = at(Habit::Damaged);
        let lost = self.of(damaged, Truth::Waiting).into_iter().step_by(3);
        self.driver.unreadable = lost.map(|message| topic(damaged, message)).collect();
        let unreadable = self.drain(damaged);
        self.driver.unreadable.clear();
        self.all_are(unreadable, DropReason::Unreadable);
        let at_most_once = at(Habit::AtMostOnce);
        self.driver.make_room(self.receivers[at_most_once].link.expect("it is there"), usize::MAX);
        self.take(at_most_once);
        let lost = self.of(at_most_once, Truth::Unread);
        self.all_are(lost, DropReason::OutboxFull);
        let client = SessionName::Client(self.receivers[ENDED].name.as_str().into());
        let (now, shard) = (self.driver.now, self.shard_of(ENDED));
        let command = OperatorCommand { client, action: OperatorAction::EndSession };
        command.carry_out(now, SocketView::default(), &mut self.driver.shards[shard]);
        self.driver.settle();
        let waiting = self.of(ENDED, Truth::Waiting);
        self.all_are(waiting, DropReason::SessionEnded);
        self.keep_house();
    }

    /// A receiver comes or leaves, and its queue is read back, while an operator searches.
    fn meanwhile(&mut self, receiver: usize) {
        match self.receivers[receiver].link {
            None => self.come(receiver, false),
            Some(_) if self.rng.percent(20) => self.leave(receiver),
            Some(_) => self.acknowledge(receiver, 50),
        }
        self.driver.read_pages();
    }

    /// Returns the names of all messages of a receiver that are not finished.
    fn unfinished(&self, receiver: usize) -> Vec<Option<MessageName>> {
        let client = SessionName::Client(self.receivers[receiver].name.as_str().into());
        let shard = &self.driver.shards[self.shard_of(receiver)];
        let names = |part| {
            let payloads = PagePayloads::Hidden;
            let query = Query::Unfinished { client: client.clone(), part, payloads, from: 0, most: 256 };
            let QueryAnswer::Unfinished(Some(page)) = query.answer(self.driver.now, shard) else {
                panic!("there is a session")
            };
            page.rows.into_iter().map(|row| row.name)
        };
        names(UnfinishedPart::InFlight).chain(names(UnfinishedPart::Queue)).collect()
    }

    fn of(&self, receiver: usize, truth: Truth) -> Vec<usize> {
        let is_one = |message: &usize| self.messages[*message] == (receiver, truth);
        (0..self.messages.len()).filter(is_one).collect()
    }

    fn shard_of(&self, receiver: usize) -> usize {
        usize::from(shard_of(&self.receivers[receiver].name, SHARDS).0)
    }

    /// The writer comes to what the shards have recorded.
    fn write(&mut self) {
        let new = &self.driver.batches[self.written..];
        let parts = new.iter().flat_map(|batch| batch.participants.iter().flat_map(|part| &part.records));
        let records: Vec<Record> =
            new.iter().flat_map(|batch| &batch.records).chain(parts).cloned().collect();
        self.written = self.driver.batches.len();
        let mut group = CommitGroup::default();
        records.into_iter().for_each(|record| group.fold(record));
        group.seal();
        self.disk.commit(&mut group).expect("memory does not fail");
    }

    /// Searches. `between` happens between two steps.
    fn search(&mut self, wanted: &Wanted, mut between: impl FnMut(&mut World)) -> Searched {
        let mut search = MessageSearch::new(wanted, 0..usize::from(SHARDS));
        while let Some(step) = search.next_step(|_| false) {
            match step {
                SearchStep::Ask(shard, query) => {
                    self.again += usize::from(matches!(
                        &query,
                        Query::Messages { wanted, .. } if wanted.receiver.is_some()
                    ));
                    let mut answer = query.answer(self.driver.now, &self.driver.shards[shard]);
                    // Each kernel has passed on what it took. A blocked socket took nothing.
                    answer.diagnose(|_| Some(SocketView::default()));
                    search.answered(answer);
                }
                SearchStep::Look(lookup) => {
                    let reader: &mut dyn StoreReader = &mut self.disk;
                    let looked = look(reader, &lookup, self.driver.now, || true);
                    search.looked(looked.expect("memory does not fail"));
                }
            }
            between(self);
        }
        search.finish()
    }

    fn ask<T>(&self, query: &Query, read: impl Fn(QueryAnswer) -> Vec<T>) -> Vec<T> {
        self.driver.shards.iter().flat_map(|shard| read(query.answer(self.driver.now, shard))).collect()
    }

    /// Asks where a message is, and compares the answer with the truth.
    fn check(&mut self, message: usize) {
        let (receiver, truth) = self.messages[message];
        let topic = topic(receiver, message);
        let wanted = Wanted { topic: WantedTopic::read(&topic).ok(), ..Wanted::default() };
        let Searched { messages, in_store, unseen_of_others, is_complete, .. } = self.search(&wanted, |_| {});
        let unseen = unseen_of_others + in_store.iter().map(|one| one.unseen).sum::<usize>();
        assert!(is_complete && unseen == 0, "all was looked at, and {unseen} was not");
        let rows: Vec<UnfinishedMessage> = messages.into_iter().map(|found| found.message).collect();
        let query = Query::Dropped { wanted: wanted.clone(), most: 256 };
        let dropped = self.ask(&query, |answer| match answer {
            QueryAnswer::Dropped(found) => [found.drops, found.without_topic].concat(),
            _ => panic!("no drops"),
        });
        let mut refused = self.ask(&query, |answer| match answer {
            QueryAnswer::Dropped(found) => found.refused,
            _ => panic!("no refusals"),
        });
        refused.retain(|one| one.kind == RefusedKind::Publish);
        // The first refusals of a client within ten seconds have their topics. Those behind them are
        // counted, and may be any.
        assert!(
            refused.iter().all(|one| [&topic, ""].contains(&one.topic.to_string().as_str())),
            "{refused:?}"
        );
        let causes_on = |topic: &str| -> Vec<DropReason> {
            let of_topic = dropped.iter().filter(|drop| drop.topic.to_string() == topic);
            of_topic.map(|drop| drop.cause).collect()
        };
        let (drops, unknown) = (causes_on(&topic), causes_on(""));
        let filter = LetterFilter { topic: Some(topic.as_str().into()), ..LetterFilter::default() };
        let letters = self.ask(&Query::Letters { before: None, most: 256, filter }, |answer| match answer {
            QueryAnswer::Letters(part) => part.rows,
            _ => panic!("no letters"),
        });
        let query = Query::Delayed { topic: wanted.topic, from: Bound::Unbounded, most: 256 };
        let delayed = self.ask(&query, |answer| match answer {
            QueryAnswer::Delayed(part) => part.rows,
            _ => panic!("no delayed messages"),
        });
        let is_sent = rows.first().is_some_and(|row| row.packet_id.is_some());
        let found = (rows.len(), &drops[..], letters.len(), delayed.len());
        let is_right = match truth {
            Truth::Sent => found == (1, &[], 0, 0) && is_sent,
            Truth::Waiting => found == (1, &[], 0, 0) && !is_sent,
            Truth::Unread => {
                let by_network = |row: &UnfinishedMessage| match row.wait {
                    WaitReason::Unacknowledged(sent) => {
                        assert_eq!(sent.cause.holder(), Holder::Network, "the client has {topic}");
                        true
                    }
                    WaitReason::SocketBlocked(_) => true,
                    _ => false,
                };
                self.held_by_network += rows.iter().filter(|row| by_network(row)).count();
                found == (1, &[], 0, 0)
            }
            Truth::Acknowledged => found == (0, &[], 0, 0),
            Truth::Delayed => found == (0, &[], 0, 1),
            Truth::Parked => found == (0, &[DropReason::Parked], 1, 0),
            Truth::Denied => {
                let by_rule = refused.iter().any(|one| one.cause == DropReason::NotAuthorized.name());
                found == (0, &[], 0, 0) && by_rule
            }
            // Nobody has its topic any more.
            Truth::Dropped(cause @ DropReason::Unreadable) => {
                found == (0, &[], 0, 0) && unknown.contains(&cause)
            }
            // A message that only the store had leaves a full queue without its topic.
            Truth::Dropped(cause @ DropReason::QueueOverflow) => {
                let drop: &[DropReason] = if drops.is_empty() { &[] } else { &[cause] };
                found == (0, drop, 0, 0) && (!drop.is_empty() || unknown.contains(&cause))
            }
            Truth::Dropped(cause) => {
                let is_letter = matches!(cause, DropReason::NegativelyAcknowledged | DropReason::Exhausted);
                found == (0, &[cause], usize::from(is_letter), 0)
            }
        };
        let habit = HABITS[receiver];
        assert!(is_right, "{topic} of the receiver that is {habit:?} is {truth:?}, and {found:?} was found");
    }
}

/// Names the seed if a test fails.
struct OnFailure(u64);

impl Drop for OnFailure {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("seed {}", self.0);
        }
    }
}

/// Returns a world in which all messages are published.
fn world(seed: u64, policy: QueuePolicy) -> World {
    let mut world = World::new(seed, policy);
    while world.messages.len() < MESSAGES {
        world.publish();
        if world.rng.percent(20) {
            world.act();
        }
    }
    world
}

#[test]
fn where_says_of_each_of_a_thousand_messages_what_has_become_of_it() {
    let (mut seen, mut held_by_network) = (Vec::new(), 0);
    let policies = [QueuePolicy::Refuse, QueuePolicy::DropOldest];
    for (seed, policy) in SEEDS.into_iter().flat_map(|seed| policies.map(|policy| (seed, policy))) {
        let _seed = OnFailure(seed);
        let mut world = world(seed, policy);
        world.end_some();
        world.write();
        (0..world.messages.len()).for_each(|message| world.check(message));
        world.check_refused();
        held_by_network += world.held_by_network;
        seen.extend(world.messages.iter().map(|(_, truth)| *truth));
        seen.extend(world.refused.iter().map(|(_, cause)| Truth::Dropped(*cause)));
    }
    let kinds =
        [Truth::Sent, Truth::Waiting, Truth::Unread, Truth::Acknowledged, Truth::Delayed, Truth::Denied];
    // Who parked a message and who was forbidden one is in `kinds`.
    let is_own_kind = |cause: &DropReason| matches!(cause, DropReason::Parked | DropReason::NotAuthorized);
    let causes = DropReason::ALL.into_iter().filter(|cause| !is_own_kind(cause)).map(Truth::Dropped);
    for truth in kinds.into_iter().chain([Truth::Parked]).chain(causes) {
        assert!(seen.contains(&truth), "no message is {truth:?}");
    }
    assert!(held_by_network > 0, "no message is held by the network");
}

#[test]
fn the_age_of_a_message_that_was_sent_before_a_restart_is_longer_than_the_process_runs() {
    for seed in SEEDS {
        let _seed = OnFailure(seed);
        let mut world = world(seed, QueuePolicy::Refuse);
        let is_sent =
            |(message, (_, truth)): (usize, &(usize, Truth))| (*truth == Truth::Sent).then_some(message);
        let sent =
            |world: &World| -> Vec<usize> { world.messages.iter().enumerate().filter_map(is_sent).collect() };
        let mut before = sent(&world);
        assert!(!before.is_empty(), "some are in flight");
        for restart in 1..=2 {
            world.restart(restart * 60);
            let after = |millis| Duration::from_millis(millis);
            world.driver.advance(after(3_000));
            let over = |least| vec![Some(Age { least, is_over: true })];
            for message in &before {
                assert_eq!(world.ages(*message), over(after(3_200)), "{message}");
            }
            for message in world.of(0, Truth::Waiting) {
                assert_eq!(world.ages(message), [None], "{message} was not sent");
            }
            // The client is back. What comes again keeps its age, and what is new has its own.
            world.come(1, false);
            let (mut new, begun) = (Vec::new(), world.messages.len());
            while new.is_empty() {
                world.publish_to(1);
                world.acknowledge(1, 2);
                world.driver.read_pages();
                world.take(1);
                new = sent(&world);
                new.retain(|message| !before.contains(message));
                assert!(world.messages.len() < begun + 100, "a new message is sent");
            }
            before.retain(|message| world.messages[*message].1 == Truth::Sent);
            world.driver.advance(after(1_000));
            for message in &before {
                assert_eq!(world.ages(*message), over(after(4_200)), "{message}");
            }
            for message in &new {
                let exact = Age { least: after(1_000), is_over: false };
                assert_eq!(world.ages(*message), [Some(exact)], "{message}");
            }
            let owner = format!("r{}", world.messages[before[0]].0);
            assert!(world.stuck_for(after(4_200)).contains(&owner), "at least for so long");
            assert!(world.stuck_for(after(4_201)).is_empty(), "nobody knows more");
            before = sent(&world);
        }
    }
}

#[test]
fn a_search_misses_no_message_that_waits_while_queues_are_read_back() {
    for seed in SEEDS {
        let _seed = OnFailure(seed);
        let (mut world, mut moved) = (world(seed, QueuePolicy::Refuse), 0);
        for round in 0..10 {
            if world.receivers[0].link.is_some() {
                world.leave(0);
            }
            while world.unfinished(0).len() < QUEUE {
                world.publish_to(0);
            }
            world.write();
            let before = world.unfinished(0);
            // The second filter finds more than an answer lists.
            let filter = if round % 2 == 0 { "r0/#" } else { "#" };
            let wanted = Wanted { topic: WantedTopic::read(filter).ok(), ..Wanted::default() };
            let Searched { messages, unlisted, in_store, .. } = world.search(&wanted, |world| {
                if world.rng.percent(50) {
                    world.meanwhile(0);
                }
            });
            let after = world.unfinished(0);
            let of_r0 = messages.iter().filter(|found| &*found.receiver == "r0");
            let names: Vec<_> = of_r0.map(|found| found.message.name).collect();
            let in_store = in_store.iter().find(|one| &*one.receiver == "r0").map_or(0, |one| one.unlisted);
            let unlisted = unlisted.get("r0").copied().unwrap_or_default() + in_store;
            let stayed = before.iter().filter(|name| after.contains(name)).count();
            let found = names.len() + unlisted;
            assert!((stayed..=before.len()).contains(&found), "{stayed} to {} are {found}", before.len());
            for name in before.iter().filter(|name| after.contains(name) && unlisted == 0) {
                assert_eq!(names.iter().filter(|found| *found == name).count(), 1, "{name:?}");
            }
            moved += usize::from(before != after);
        }
        assert!(moved > 0 && world.again > 0, "the searches met changes");
    }
}

#[test]
fn messages_whose_commit_is_pending_are_counted_and_not_denied() {
    let mut world = World::new(SEEDS[0], QueuePolicy::Refuse);
    while world.of(0, Truth::Waiting).len() < QUEUE {
        world.publish();
    }
    let wanted = Wanted { topic: WantedTopic::read("r0/#").ok(), ..Wanted::default() };
    let counted = |world: &mut World| {
        let Searched { messages, in_store, .. } = world.search(&wanted, |_| {});
        let of = in_store.iter().find(|one| &*one.receiver == "r0").expect("some are in the store");
        (messages.len(), of.messages, of.found, of.unseen)
    };
    let (in_memory, in_store) = (64, QUEUE - 64);
    assert_eq!(counted(&mut world), (in_memory, in_store, 0, in_store));
    world.write();
    assert_eq!(counted(&mut world), (QUEUE, in_store, in_store, 0));
}

#[test]
fn each_message_of_each_receiver_is_counted_if_there_are_more_than_an_answer_lists() {
    let (receivers, each) = (400, 5);
    let Searched { messages, unlisted, is_complete, .. } = search_of_lamps(receivers, each);
    let mut counts = unlisted.clone();
    messages.iter().for_each(|found| *counts.entry(found.receiver.clone()).or_default() += 1);
    assert!(is_complete && counts.values().all(|count| *count == usize::from(each)), "{counts:?}");
    assert_eq!((counts.len(), messages.len()), (receivers, 2 * ROWS));
}

#[test]
fn receivers_beyond_a_bound_are_counted_together() {
    let found = search_of_lamps(2 * ROWS + RECEIVERS + 9, 1);
    let counts = (found.messages.len(), found.unlisted.len(), found.unlisted_of_others);
    assert_eq!(counts, (2 * ROWS, RECEIVERS, 9));
}

/// Searches for a topic of which this number of absent receivers has `each` messages.
fn search_of_lamps(receivers: usize, each: u16) -> Searched {
    let settings = ShardSettings { sessions: 10_000, ..driver::settings() };
    let mut driver = MemoryDriver::new(&settings, SHARDS);
    for number in 0..receivers {
        let name = format!("lamp {number}");
        let properties = ConnectProperties { session_expiry: Some(3_600), ..Default::default() };
        let link = enter(&mut driver, Connect { properties, ..connect(&name) });
        subscribe(&mut driver, link, &["t"], QoS::AtLeastOnce);
        driver.close(link);
    }
    let publisher = enter(&mut driver, connect("app"));
    (1..=each).for_each(|id| publish(&mut driver, publisher, "t", QoS::AtLeastOnce, id));
    let wanted = Wanted { topic: WantedTopic::read("t").ok(), ..Wanted::default() };
    let mut search = MessageSearch::new(&wanted, 0..usize::from(SHARDS));
    while let Some(step) = search.next_step(|_| false) {
        let SearchStep::Ask(shard, query) = step else { panic!("nothing is stored") };
        search.answered(query.answer(driver.now, &driver.shards[shard]));
    }
    search.finish()
}
