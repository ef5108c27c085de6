//! A client that withholds acknowledgements by plan, and a record of what came to it and when.

use crate::support::client::Event;
use crate::support::packet::Disconnect;
use crate::support::{Kind, Packet, Publish, RawClient, now};
use std::time::{Duration, Instant};

/// The acknowledgements that a client sends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Plan {
    /// Nothing.
    Never,
    /// Every nth message at once, the others never.
    EveryNth(usize),
    /// Each so long after it first came.
    Late(Duration),
    /// Each when it has come again so many times.
    AfterResends(usize),
    /// PUBREC at once, PUBCOMP never. At QoS 1: nothing.
    NoPubcomp,
    /// Everything that it reads, but it reads nothing for so long.
    ReadsNothing(Duration),
    /// Everything, as soon as it has read it: so many bytes, every so often.
    ReadsSlowly { bytes: usize, every: Duration },
}

/// A message that came, once or several times.
#[derive(Clone, Debug)]
pub struct Message {
    pub first: Publish,
    /// When its PUBLISH came, each time.
    pub publishes: Vec<Instant>,
    /// When it was first acknowledged: PUBACK or PUBREC.
    pub answered: Option<Instant>,
    /// When its PUBREL came, each time.
    pub releases: Vec<Instant>,
    /// True if nothing more is to come.
    pub finished: bool,
}

/// A connected client that follows a plan.
#[derive(Debug)]
pub struct Scripted {
    pub client: RawClient,
    plan: Plan,
    /// In the order of their first arrivals.
    pub messages: Vec<Message>,
    /// The end of the connection by the broker, if it ended, with its last packet and its time.
    pub ended: Option<(Option<Disconnect>, Instant)>,
    farewell: Option<Disconnect>,
}

impl Scripted {
    pub fn new(client: RawClient, plan: Plan) -> Scripted {
        Scripted { client, plan, messages: Vec::new(), ended: None, farewell: None }
    }

    /// Follows the plan until then, or until the broker ends the connection.
    pub fn run(&mut self, until: Instant) {
        if let Plan::ReadsNothing(time) = &mut self.plan {
            std::thread::sleep(std::mem::take(time));
        }
        while self.ended.is_none() && now() < until {
            match self.plan {
                Plan::ReadsSlowly { bytes, every } => self.read_slowly(bytes, every),
                _ => self.read(until),
            }
            self.answer_late();
        }
    }

    fn read(&mut self, until: Instant) {
        match self.client.next(self.next_late().map_or(until, |late| late.min(until))) {
            Event::Packet(packet) => self.take(packet),
            Event::Closed => self.ended = Some((self.farewell.take(), now())),
            Event::Silence => {}
        }
    }

    fn read_slowly(&mut self, bytes: usize, every: Duration) {
        std::thread::sleep(every);
        if !self.client.read_some(bytes) {
            self.ended = Some((self.farewell.take(), now()));
        }
        while let Event::Packet(packet) = self.client.next(now()) {
            self.take(packet);
        }
    }

    fn take(&mut self, packet: Packet) {
        match packet {
            Packet::Publish(publish) => self.take_publish(publish),
            Packet::Ack(ack) if ack.kind == Kind::Pubrel => self.take_release(ack.id, ack.at),
            Packet::Disconnect(disconnect) => self.farewell = Some(disconnect),
            other => panic!("nobody asked for {other:?}"),
        }
    }

    fn take_publish(&mut self, publish: Publish) {
        let known = self.messages.iter().position(|m| m.first.id == publish.id);
        let at = known.unwrap_or_else(|| {
            assert!(!publish.dup, "DUP at the first arrival: {publish:?}");
            let (publishes, releases) = (Vec::new(), Vec::new());
            let first = publish.clone();
            self.messages.push(Message { first, publishes, answered: None, releases, finished: false });
            self.messages.len() - 1
        });
        let message = &mut self.messages[at];
        assert_eq!(publish.dup, known.is_some(), "{publish:?}");
        assert_eq!((&publish.topic, &publish.payload), (&message.first.topic, &message.first.payload));
        message.publishes.push(publish.at);
        let answer = match self.plan {
            Plan::Never | Plan::Late(_) => false,
            Plan::EveryNth(n) => at % n == n - 1,
            Plan::AfterResends(times) => message.publishes.len() > times,
            Plan::NoPubcomp => message.first.qos == 2,
            Plan::ReadsNothing(_) | Plan::ReadsSlowly { .. } => true,
        };
        if answer {
            self.answer(at);
        }
    }

    /// PUBACK or PUBREC.
    fn answer(&mut self, at: usize) {
        let message = &mut self.messages[at];
        let kind = if message.first.qos == 1 { Kind::Puback } else { Kind::Pubrec };
        message.finished = message.first.qos == 1;
        message.answered.get_or_insert_with(now);
        self.client.ack(kind, message.first.id);
    }

    fn take_release(&mut self, id: u16, at: Instant) {
        let message = self.messages.iter_mut().find(|m| m.first.id == id);
        let message = message.unwrap_or_else(|| panic!("PUBREL {id} of nothing"));
        assert!(message.answered.is_some(), "PUBREL {id} before its PUBREC");
        message.releases.push(at);
        if self.plan != Plan::NoPubcomp {
            message.finished = true;
            self.client.ack(Kind::Pubcomp, id);
        }
    }

    fn next_late(&self) -> Option<Instant> {
        let Plan::Late(late) = self.plan else { return None };
        self.messages.iter().find(|m| m.answered.is_none()).map(|m| m.first.at + late)
    }

    fn answer_late(&mut self) {
        while self.next_late().is_some_and(|late| late <= now()) {
            let at = self.messages.iter().position(|m| m.answered.is_none()).expect("just found");
            self.answer(at);
        }
    }
}
