//! The state that all clients share: time, counts, violations, and the names of messages.

use crate::link::{Came, Link};
use crate::support::wire::{self, Put};
use crate::support::{Kind, PATIENCE, Packet, Version, now};
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The longest time between the start of clients and the end of their connections. It includes what a
/// cluster has to do before the kill.
const LONGEST: Duration = Duration::from_secs(300);

/// Publishes last, to everybody.
pub const MARKER: u64 = 99;

/// The receivers of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Sessions that subscribe once.
    Shared,
    /// Sessions that subscribe and unsubscribe.
    Changing,
    /// Many sessions that are mostly away.
    Fleet,
    /// Nobody, but it is retained.
    Retained,
}

impl Class {
    pub fn letter(self) -> char {
        match self {
            Class::Shared => 'c',
            Class::Changing => 'd',
            Class::Fleet => 'f',
            Class::Retained => 'r',
        }
    }

    pub fn filter(self) -> String {
        format!("{}/#", self.letter())
    }
}

/// One publisher's messages on one topic at one QoS: what has an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Series {
    pub class: Class,
    pub publisher: u64,
    pub qos: u8,
}

impl Series {
    pub fn topic(self) -> String {
        format!("{}/{}/{}", self.class.letter(), self.publisher, self.qos)
    }
}

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stamp {
    pub series: Series,
    pub number: usize,
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} #{}", self.series.topic(), self.number)
    }
}

impl Stamp {
    /// Of some length; every fifth retained one erases.
    pub fn payload(self) -> Vec<u8> {
        if self.erases() {
            return Vec::new();
        }
        let mut payload = format!("{} {} ", self.series.topic(), self.number).into_bytes();
        payload.resize(payload.len() + self.number * 37 % 400, b'.');
        payload
    }

    pub fn erases(self) -> bool {
        self.series.class == Class::Retained && self.number % 5 == 4
    }

    pub fn of(topic: &str, payload: &[u8]) -> Option<Stamp> {
        let text = std::str::from_utf8(payload).ok()?;
        let (named, rest) = text.split_once(' ')?;
        let number = rest.split(' ').next()?.parse().ok()?;
        let mut levels = topic.split('/');
        let classes = [Class::Shared, Class::Changing, Class::Fleet, Class::Retained];
        let letter = levels.next()?;
        let class = classes.into_iter().find(|c| letter.chars().eq([c.letter()]))?;
        let (publisher, qos) = (levels.next()?.parse().ok()?, levels.next()?.parse().ok()?);
        (named == topic).then_some(Stamp { series: Series { class, publisher, qos }, number })
    }
}

/// Requests that were unanswered when the broker was killed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pending {
    pub connects: u64,
    pub subscriptions: u64,
    /// Without PUBACK or PUBREC.
    pub publishes: u64,
    /// Without PUBCOMP.
    pub releases: u64,
    /// PUBRECs of subscribers without PUBREL.
    pub receipts: u64,
}

impl Pending {
    pub fn and(self, other: Pending) -> Pending {
        Pending {
            connects: self.connects + other.connects,
            subscriptions: self.subscriptions + other.subscriptions,
            publishes: self.publishes + other.publishes,
            releases: self.releases + other.releases,
            receipts: self.receipts + other.receipts,
        }
    }

    pub fn total(self) -> u64 {
        self.connects + self.subscriptions + self.publishes + self.releases + self.receipts
    }
}

impl fmt::Display for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Pending { connects, subscriptions, publishes, releases, receipts } = self;
        write!(
            f,
            "{} ({publishes} publishes, {releases} releases, {receipts} receipts, {subscriptions} subscriptions, {connects} connects)",
            self.total()
        )
    }
}

#[derive(Debug)]
pub struct Trial {
    clock: AtomicU64,
    acknowledged: AtomicU64,
    is_doomed: AtomicBool,
    /// Clients that have something to do before the marker.
    busy: AtomicUsize,
    /// When the clients of now began.
    begun: Mutex<Instant>,
    address: Mutex<SocketAddr>,
    round: AtomicU64,
    violations: Mutex<Vec<String>>,
}

impl Default for Trial {
    fn default() -> Trial {
        Trial {
            clock: AtomicU64::new(1),
            acknowledged: AtomicU64::default(),
            is_doomed: AtomicBool::default(),
            busy: AtomicUsize::default(),
            begun: Mutex::new(now()),
            address: Mutex::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))),
            round: AtomicU64::default(),
            violations: Mutex::default(),
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Trial {
    /// Returns a moment. Later calls on any thread return later moments.
    pub fn moment(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// Counts an acknowledgement that came.
    pub fn count_acknowledgement(&self) -> u64 {
        self.acknowledged.fetch_add(1, Ordering::Relaxed);
        self.moment()
    }

    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// A broker is there for this round.
    pub fn serve(&self, round: u64, address: SocketAddr) {
        *locked(&self.address) = address;
        self.round.store(round, Ordering::SeqCst);
        self.is_doomed.store(false, Ordering::SeqCst);
    }

    pub fn address(&self) -> SocketAddr {
        *locked(&self.address)
    }

    pub fn round(&self) -> u64 {
        self.round.load(Ordering::SeqCst)
    }

    /// From here on a connection may end.
    pub fn about_to_kill(&self) {
        self.is_doomed.store(true, Ordering::SeqCst);
    }

    /// A connection ended: it must have been by the kill.
    pub fn must_be_killed(&self, whom: &str) {
        let deadline = now() + PATIENCE;
        while !self.is_doomed.load(Ordering::SeqCst) {
            if now() > deadline {
                return self.violated(format!("{whom}: the broker closed the connection"));
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// A packet came that nothing asks for. A broker that is about to end may say so.
    pub fn unexpected(&self, whom: &str, packet: &Packet) {
        const SERVER_SHUTTING_DOWN: u8 = 0x8B;
        let says_the_end =
            matches!(packet, Packet::Disconnect(disconnect) if disconnect.code == SERVER_SHUTTING_DOWN);
        if !says_the_end || !self.is_doomed.load(Ordering::SeqCst) {
            self.violated(format!("{whom}: unexpected {packet:?}"));
        }
    }

    /// So many clients begin.
    pub fn begin(&self, clients: usize) {
        self.busy.store(clients, Ordering::SeqCst);
        *locked(&self.begun) = now();
    }

    /// Returns what comes next on a connection of this client. One that neither brings what the client
    /// waits for nor ends counts as ended after a while, as a violation: the clients would stay for ever.
    pub fn next(&self, link: &mut Link, whom: &str) -> Came {
        let came = link.next();
        if matches!(came, Came::Nothing) && locked(&self.begun).elapsed() > LONGEST {
            self.violated(format!("{whom}: its connection does not end"));
            self.about_to_kill();
            return Came::End;
        }
        came
    }

    /// One of them is through with what comes before the marker.
    pub fn through(&self) {
        self.busy.fetch_sub(1, Ordering::SeqCst);
    }

    /// Waits until all are.
    pub fn wait_until_through(&self) {
        let deadline = now() + 4 * PATIENCE;
        while self.busy.load(Ordering::SeqCst) > 0 && now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
    }

    pub fn violated(&self, what: String) {
        locked(&self.violations).push(format!("round {}: {what}", self.round()));
    }

    pub fn has_violations(&self) -> bool {
        !locked(&self.violations).is_empty()
    }

    /// Returns true if a violation is about the client of this name.
    pub fn concerns(&self, name: &str) -> bool {
        let text = format!(": {name}: ");
        locked(&self.violations).iter().any(|violation| violation.contains(&text))
    }

    pub fn violations(&self) -> Vec<String> {
        let mut all = locked(&self.violations).clone();
        let count = all.len();
        all.truncate(40);
        if count > all.len() {
            all.push(format!("and {} more", count - all.len()));
        }
        all
    }
}

/// A packet with nothing but an identifier.
pub fn acknowledge(link: &mut Link, kind: Kind, id: u16) {
    let mut body = Vec::new();
    body.put_u16(id);
    link.put(&wire::packet((kind as u8) << 4 | if kind == Kind::Pubrel { 2 } else { 0 }, &body));
}

/// An UNSUBSCRIBE of one filter.
pub fn unsubscribe(version: Version, id: u16, filter: &str) -> Vec<u8> {
    let mut body = Vec::new();
    body.put_u16(id);
    if version == Version::V5 {
        body.push(0);
    }
    body.put_binary(filter.as_bytes());
    wire::packet(0xA2, &body)
}
