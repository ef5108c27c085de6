//! The attempts of the bridge and its pump, as `src/broker/bridges` has them.

mod pump;

use crate::client::take_packets;
use crate::plan::Plan;
use crate::world::{Event, Owner, World};
use homing::bridge::backoff::Backoff;
use homing::bridge::deadlines::Patience;
use homing::bridge::hello::{Hello, HelloHere, TermsThere};
use homing::bridge::link::{FRESH_SESSION, Link, LinkTerms, Output, put_filters_here};
use homing::bridge::rules::TopicRules;
use homing::bridge::{self, BridgeState};
use homing::mqtt::codec::{Decoded, decode, encode};
use homing::mqtt::packet::{Disconnect, Packet, ProtocolVersion, QoS, ReasonCode};
use homing::operators::bridge_command::{BridgeSession, SessionThere};
use homing::persistence::records::Lsn;
use std::sync::Arc;
use std::time::Duration;

/// The time for CONNACK, PINGRESP and SUBACK, in milliseconds.
const ANSWER_MS: u64 = 2_000;

const PATIENCE: Patience = Patience {
    keep_alive: Duration::from_secs(10),
    answer: Duration::from_millis(ANSWER_MS),
    acknowledgement: Duration::from_secs(5),
};

enum Stage {
    /// The process does not run.
    Down,
    Waiting,
    /// The session gets its filters.
    Filters {
        socket: usize,
        unread: Vec<u8>,
        accepted: Option<Accepted>,
    },
    Dialling,
    /// CONNECT is sent.
    AwaitsConnack {
        line: usize,
        unread: Vec<u8>,
    },
    /// The shard forgets what the other broker has lost.
    Prepares(Accepted),
    Linked(Box<Pump>),
}

struct Accepted {
    line: usize,
    rest: Vec<u8>,
    is_over: bool,
    terms: TermsThere,
    session: BridgeSession,
    commit: Option<(usize, Lsn)>,
}

/// An established connection, and the bytes that nobody has read.
struct Pump {
    line: usize,
    socket: usize,
    link: Link,
    unread_there: Vec<u8>,
    unread_here: Vec<u8>,
    from_there: Vec<u8>,
    from_here: Vec<u8>,
    is_over_there: bool,
    is_over_here: bool,
    /// The bytes of the other broker that were looked at and are no whole packet.
    seen: usize,
    out: Output,
}

pub struct Bridge {
    /// The number of the last time that is waited for.
    attempt: u64,
    stage: Stage,
    is_fresh: Option<bool>,
    /// The time of the last connection.
    pub connected: u64,
    backoff: Backoff,
    rules: Arc<TopicRules>,
}

fn backoff() -> Backoff {
    Backoff::new(Duration::from_millis(50), Duration::from_secs(1))
}

impl Bridge {
    pub fn new(plan: &Plan) -> Bridge {
        Bridge {
            attempt: 0,
            stage: Stage::Down,
            is_fresh: None,
            connected: 0,
            backoff: backoff(),
            rules: Arc::new(plan.rules()),
        }
    }

    pub fn is_established(&self) -> bool {
        matches!(&self.stage, Stage::Linked(pump) if pump.link.state() == BridgeState::Established)
    }

    fn line(&self) -> Option<usize> {
        match &self.stage {
            Stage::AwaitsConnack { line, .. } | Stage::Prepares(Accepted { line, .. }) => Some(*line),
            Stage::Filters { accepted: Some(accepted), .. } => Some(accepted.line),
            Stage::Linked(pump) => Some(pump.line),
            _ => None,
        }
    }
}

impl World {
    /// The process dies. What the kernel has still reaches the other broker.
    pub fn bridge_dies(&mut self) {
        self.leave_line();
        self.bridge.stage = Stage::Down;
        self.bridge.attempt += 1;
    }

    fn leave_line(&mut self) {
        if let Some(line) = self.bridge.line() {
            self.lines[line].down_is_open = false;
            self.send_to_far(line, &[]);
        }
    }

    pub fn bridge_starts(&mut self) {
        self.bridge.is_fresh = None;
        self.bridge.backoff = backoff();
        self.begin_attempt();
    }

    /// The configuration of the bridge changes: it ends in order, and begins anew.
    pub fn reload(&mut self) {
        match std::mem::replace(&mut self.bridge.stage, Stage::Waiting) {
            Stage::Down => self.bridge.stage = Stage::Down,
            Stage::Linked(pump) => {
                self.oracle.totals.reloads += 1;
                self.finish(*pump, None);
                self.bridge_starts();
            }
            stage => {
                self.bridge.stage = stage;
                self.leave_line();
                self.bridge_starts();
            }
        }
    }

    /// Waits for a time. Times that were waited for before do not count any more.
    fn arm(&mut self, at: u64) {
        self.bridge.attempt += 1;
        let attempt = self.bridge.attempt;
        self.at(at, Event::BridgeWake { attempt });
    }

    pub fn bridge_wakes(&mut self, attempt: u64) {
        if attempt != self.bridge.attempt {
            return;
        }
        match &self.bridge.stage {
            Stage::Down | Stage::Prepares(_) => {}
            Stage::Waiting => self.begin_attempt(),
            Stage::Filters { .. } => panic!("the shard does not answer SUBSCRIBE"),
            Stage::Dialling => self.connect(),
            Stage::AwaitsConnack { .. } => self.fails("no CONNACK"),
            Stage::Linked(_) => self.pump(),
        }
    }

    fn fails(&mut self, why: &str) {
        self.leave_line();
        self.wait(why);
    }

    fn wait(&mut self, why: &str) {
        self.trace(|| format!("the bridge waits: {why}"));
        let chance = self.rng.below(100) as f64 / 100.0;
        let wait = self.bridge.backoff.next(chance);
        self.bridge.stage = Stage::Waiting;
        self.arm(self.now + wait.as_millis() as u64 + 1);
    }

    /// Gives the session its filters if it has them not, and dials.
    fn begin_attempt(&mut self) {
        if self.bridge.is_fresh.is_some() {
            return self.start_dialling();
        }
        let (session, _) = self.prepare(SessionThere::Kept);
        let rules = Arc::clone(&self.bridge.rules);
        let filters = rules.subscriptions_here();
        let has = |filter: &str| session.filters.iter().any(|own| own == filter);
        self.bridge.is_fresh = Some(session.is_fresh);
        if filters.iter().all(|(filter, _)| has(filter)) {
            return self.start_dialling();
        }
        self.give_filters(session.is_fresh.then_some(FRESH_SESSION), None);
    }

    fn give_filters(&mut self, mark: Option<u32>, accepted: Option<Accepted>) {
        let rules = Arc::clone(&self.bridge.rules);
        let filters = rules.subscriptions_here();
        let mut bytes = Vec::new();
        self.hello_here(TermsThere::UNKNOWN, 0, &mut bytes);
        put_filters_here(&filters, &[], QoS::ExactlyOnce, mark, &mut bytes).expect("short filters");
        let socket = self.open(Owner::Bridge, &bridge::client_id("x"));
        self.bridge.stage = Stage::Filters { socket, unread: Vec::new(), accepted };
        self.arm(self.now + 10_000);
        self.send_up(socket, &bytes);
    }

    fn hello_here(&self, there: TermsThere, growth: usize, out: &mut Vec<u8>) {
        let client_id = bridge::client_id("x");
        let in_flight = self.plan.in_flight;
        let hello = HelloHere { client_id: &client_id, session_expiry: 86_400, in_flight, growth, there };
        hello.put(out).expect("a short name");
    }

    fn start_dialling(&mut self) {
        if !self.far.listens(self.now) || !self.is_calm && self.rng.percent(15) {
            return self.wait("cannot connect");
        }
        self.bridge.stage = Stage::Dialling;
        let at = self.now + self.rng.between(1, 20);
        self.arm(at);
    }

    fn connect(&mut self) {
        if !self.far.listens(self.now) {
            return self.wait("cannot connect");
        }
        let version = self.plan.version;
        let line = self.dial();
        let mut bytes = Vec::new();
        Hello {
            name: None,
            notification_topic: None,
            retains_will: true,
            version,
            client_id: "homing-x",
            clean_start: false,
            keep_alive: 10,
            session_expiry: 86_400,
            receive_maximum: self.plan.receive_maximum,
            packet_size: 1 << 20,
            user: None,
            password: None,
            bridge_bit: true,
        }
        .put(&mut bytes)
        .expect("short names");
        self.bridge.stage = Stage::AwaitsConnack { line, unread: Vec::new() };
        self.arm(self.now + ANSWER_MS);
        self.send_to_far(line, &bytes);
    }

    /// Bytes of the other broker, or the end of its stream.
    pub fn bridge_reads(&mut self, line: usize, bytes: Vec<u8>) {
        let is_end = bytes.is_empty();
        if self.bridge.line() != Some(line) || !is_end && !self.lines[line].down_is_open {
            return;
        }
        match &mut self.bridge.stage {
            Stage::AwaitsConnack { .. } if is_end => self.fails("closed before CONNACK"),
            Stage::AwaitsConnack { unread, .. } => {
                unread.extend(bytes);
                self.look_for_connack();
            }
            Stage::Prepares(accepted) | Stage::Filters { accepted: Some(accepted), .. } => {
                accepted.rest.extend(bytes);
                accepted.is_over |= is_end;
            }
            Stage::Linked(pump) => {
                pump.unread_there.extend(bytes);
                pump.is_over_there |= is_end;
                self.pump();
            }
            _ => {}
        }
    }

    fn look_for_connack(&mut self) {
        let version = self.plan.version;
        let Stage::AwaitsConnack { line, unread } = &mut self.bridge.stage else { return };
        let line = *line;
        let (terms, length) = match decode(unread, version, 1_000).expect("a lawful CONNACK") {
            Decoded::Packet { packet: Packet::Connack(connack), length } => {
                (TermsThere::of(&connack), length)
            }
            Decoded::Packet { packet, .. } => panic!("{packet:?} in place of CONNACK"),
            Decoded::Incomplete { .. } => return,
        };
        let rest = unread.split_off(length);
        let Ok(terms) = terms else { return self.fails("refused") };
        let accepted =
            Accepted { line, rest, is_over: false, terms, session: BridgeSession::default(), commit: None };
        if self.bridge.is_fresh == Some(true) && !self.must_free(&terms) {
            return self.give_filters(None, Some(accepted));
        }
        self.prepare_link(accepted);
    }

    fn must_free(&self, terms: &TermsThere) -> bool {
        terms.session_present && self.bridge.rules.highest_qos_out() == QoS::ExactlyOnce
    }

    /// The other broker has freed all identifiers of an earlier session, so this one has been connected.
    fn is_freed(&mut self) {
        self.bridge.is_fresh = Some(false);
        self.give_filters(None, None);
    }

    fn prepare_link(&mut self, mut accepted: Accepted) {
        if !self.must_free(&accepted.terms) {
            self.bridge.is_fresh = Some(false);
        }
        let terms = accepted.terms;
        let lost = if terms.session_present { SessionThere::Kept } else { SessionThere::Lost };
        let (session, commit) = self.prepare(lost);
        let has_commit = commit.is_none();
        (accepted.session, accepted.commit) = (session, commit);
        self.bridge.stage = Stage::Prepares(accepted);
        if has_commit {
            self.begin_link();
        }
    }

    pub fn bridge_has_commit(&mut self, here: usize, committed: Lsn) {
        let Stage::Prepares(Accepted { commit: Some((shard, lsn)), .. }) = &self.bridge.stage else { return };
        if *shard == here && *lsn <= committed {
            self.begin_link();
        }
    }

    fn begin_link(&mut self) {
        let Stage::Prepares(accepted) = std::mem::replace(&mut self.bridge.stage, Stage::Down) else {
            return;
        };
        let Accepted { line, rest, is_over, terms, session, .. } = accepted;
        let rules = Arc::clone(&self.bridge.rules);
        let mut out = Output::default();
        self.hello_here(terms, rules.growth_out(), &mut out.here);
        let filters = rules.subscriptions_here();
        let is_stale = |own: &&String| !filters.iter().any(|(filter, _)| filter == own);
        let stale = session.filters.iter().filter(is_stale).cloned().collect();
        let version = self.plan.version;
        let link_terms = LinkTerms {
            version,
            there: terms,
            patience: PATIENCE,
            packet_size_here: 1 << 20,
            takes_retained_here: true,
        };
        let link = Link::begin(self.instant(), Arc::clone(&rules), link_terms, stale, &mut out);
        let mut link = link.expect("short filters");
        if self.bridge.is_fresh == Some(true) {
            self.oracle.totals.freed += 1;
            link.free_identifiers(self.instant(), &mut out);
        }
        let socket = self.open(Owner::Bridge, &bridge::client_id("x"));
        self.oracle.totals.connections += 1;
        self.bridge.connected = self.now;
        self.oracle.totals.resumed += u64::from(terms.session_present);
        self.trace(|| format!("the bridge is accepted, {terms:?}"));
        self.bridge.stage = Stage::Linked(Box::new(Pump {
            line,
            socket,
            link,
            unread_there: rest,
            unread_here: Vec::new(),
            from_there: Vec::new(),
            from_here: Vec::new(),
            is_over_there: is_over,
            is_over_here: false,
            seen: 0,
            out,
        }));
        self.pump();
    }

    /// Bytes of the shard.
    pub fn bridge_reads_here(&mut self, socket: usize, bytes: &[u8]) {
        match &mut self.bridge.stage {
            Stage::Linked(pump) if pump.socket == socket => {
                pump.unread_here.extend_from_slice(bytes);
                self.pump();
            }
            Stage::Filters { socket: own, unread, accepted } if *own == socket => {
                unread.extend_from_slice(bytes);
                let mut has_suback = false;
                take_packets(unread, ProtocolVersion::V5, |packet| {
                    has_suback |= matches!(packet, Packet::Suback(_));
                });
                let accepted = if has_suback { accepted.take() } else { None };
                self.has_read(socket, bytes.len());
                if has_suback {
                    let mut end = Vec::new();
                    let normal = Packet::Disconnect(Disconnect::new(ReasonCode::NORMAL_DISCONNECTION));
                    encode(&normal, ProtocolVersion::V5, &mut end).expect("no properties");
                    self.send_up(socket, &end);
                    match accepted {
                        Some(accepted) => self.prepare_link(accepted),
                        None => self.start_dialling(),
                    }
                }
            }
            _ => self.has_read(socket, bytes.len()),
        }
    }

    pub fn bridge_is_closed_here(&mut self, socket: usize) {
        match &mut self.bridge.stage {
            Stage::Linked(pump) if pump.socket == socket => {
                pump.is_over_here = true;
                self.pump();
            }
            Stage::Filters { socket: own, .. } if *own == socket => {
                panic!("the shard closes the first connection")
            }
            _ => {}
        }
    }
}
