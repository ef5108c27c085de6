//! What a client publishes.

use crate::client::Outgoing;
use crate::oracle::Message;
use crate::topics::{PUBLISHED, Topic};
use crate::trace::trace;
use crate::world::World;
use homing::mqtt::packet::{Packet, PacketId, Publish, PublishProperties, QoS};
use std::borrow::Cow;
use std::num::NonZeroU16;

/// Unfinished publishes of a client at most, whatever the broker allows.
pub(crate) const MOST_UNFINISHED: usize = 8;

impl World {
    pub(crate) fn publish(&mut self, client: usize) {
        if self.plan.work.is_some() {
            return self.publish_work(client);
        }
        let c = &self.clients[client];
        let Some(connection) = &c.connection else { return };
        let qos = self.rng.pick(&[
            QoS::AtMostOnce,
            QoS::AtLeastOnce,
            QoS::AtLeastOnce,
            QoS::ExactlyOnce,
            QoS::ExactlyOnce,
        ]);
        let room = usize::from(connection.receive_maximum).min(MOST_UNFINISHED);
        if qos != QoS::AtMostOnce && c.unfinished.len() >= room {
            return;
        }
        let v5 = c.manners.version.is_v5();
        let retain = self.rng.percent(c.manners.retains);
        let empty = retain && self.rng.percent(15);
        let expiry = if v5 { self.rng.pick(&[None, None, None, Some(1), Some(3), Some(60)]) } else { None };
        let delay = (self.plan.delays > 0 && self.rng.percent(self.plan.delays))
            .then(|| 1_000 * self.rng.pick(&self.plan.delay_seconds));
        let message = self.oracle.enter(Message {
            publisher: client,
            topic: Topic(self.rng.below(PUBLISHED) as u8),
            qos,
            retain,
            empty,
            is_will: false,
            expiry,
            delay,
            first_sent: self.now + delay.unwrap_or(0),
            first_event: delay.is_none().then_some(self.events),
            sends: 0,
            acknowledged: None,
            refused: false,
        });
        let roomy = self.plan.send_buffer.min(self.plan.receive_buffer) >= 1_000;
        let padding = match self.rng.below(40) {
            0 if roomy => 9_000,
            1..10 if roomy => 300,
            10..20 => 20,
            _ => 0,
        };
        let id = if qos == QoS::AtMostOnce { 0 } else { self.clients[client].id() };
        self.clients[client].unfinished.push(Outgoing {
            id,
            message,
            qos,
            released: false,
            padding,
            sent: self.now,
        });
        let at = self.clients[client].unfinished.len() - 1;
        self.send_publish(client, at, false);
        if qos == QoS::AtMostOnce {
            self.clients[client].unfinished.pop();
        }
    }

    pub(crate) fn send_publish(&mut self, client: usize, at: usize, dup: bool) {
        let Outgoing { id, message, qos, padding, .. } = self.clients[client].unfinished[at];
        let topic = self.oracle.messages[message].topic;
        let later = self.oracle.messages[message].delay;
        let name: Cow<'static, str>;
        let mut topic_alias = None;
        if let Some(delay) = later {
            name = format!("$delayed/{}/{}", delay / 1_000, topic.name()).into();
        } else {
            let named = self.name_topic(client, topic);
            (name, topic_alias) = (named.0.into(), named.1);
        }
        let m = &mut self.oracle.messages[message];
        if let Some(delay) = later {
            m.first_sent = m.first_sent.min(self.now + delay);
        }
        let mut payload = (message as u32).to_be_bytes().to_vec();
        payload.resize(if m.empty { 0 } else { 4 + padding }, b'.');
        m.sends += 1;
        let properties =
            PublishProperties { topic_alias, message_expiry: m.expiry, ..PublishProperties::default() };
        let publish = Publish {
            dup,
            qos,
            retain: m.retain,
            topic: &name,
            packet_id: PacketId::new(id),
            properties,
            payload: &payload,
        };
        trace!(self, "client {client} publishes message {message}");
        self.send(client, &Packet::Publish(publish));
    }

    /// How a topic goes into a PUBLISH: in full, in full and setting an alias, or by its alias
    /// alone.
    // 5.0 [MQTT-3.3.2-9], [MQTT-3.3.2-12]
    fn name_topic(&mut self, client: usize, topic: Topic) -> (&'static str, Option<NonZeroU16>) {
        let Some(connection) = self.clients[client].connection.as_mut() else { return (topic.name(), None) };
        let most = connection.own_alias_maximum;
        if most == 0 || self.rng.percent(30) {
            return (topic.name(), None);
        }
        let alias = self.rng.between(1, u64::from(most)) as u16;
        let set = connection.own_aliases.insert(alias, topic) == Some(topic);
        let name = if set && self.rng.percent(80) { "" } else { topic.name() };
        if name.is_empty() {
            self.saw("a client names a topic by its alias alone");
        }
        (name, NonZeroU16::new(alias))
    }
}
