//! A PUBLISH to be sent: lawful by default, unlawful on demand.

use super::property::{self, Property};
use super::wire::{self, Put, Version};

#[derive(Clone, Debug)]
pub struct Message {
    pub topic: Vec<u8>,
    pub payload: Vec<u8>,
    pub qos: u8,
    pub retain: bool,
    pub dup: bool,
    pub properties: Vec<Property>,
}

impl Message {
    pub fn new(topic: impl AsRef<[u8]>, payload: impl AsRef<[u8]>) -> Message {
        Message {
            topic: topic.as_ref().to_vec(),
            payload: payload.as_ref().to_vec(),
            qos: 0,
            retain: false,
            dup: false,
            properties: Vec::new(),
        }
    }

    /// Any two bits; 3 is malformed.
    pub fn qos(mut self, qos: u8) -> Message {
        self.qos = qos;
        self
    }

    pub fn retained(mut self) -> Message {
        self.retain = true;
        self
    }

    pub fn duplicate(mut self) -> Message {
        self.dup = true;
        self
    }

    pub fn with(mut self, property: Property) -> Message {
        self.properties.push(property);
        self
    }

    /// The packet; `id` is left out at QoS 0, as the standards have it.
    pub fn encode(&self, version: Version, id: u16) -> Vec<u8> {
        let mut body = Vec::with_capacity(self.topic.len() + self.payload.len() + 16);
        body.put_binary(&self.topic);
        if self.qos > 0 {
            body.put_u16(id);
        }
        if version == Version::V5 {
            property::put_all(&mut body, &self.properties);
        }
        body.extend_from_slice(&self.payload);
        wire::packet(0x30 | u8::from(self.dup) << 3 | self.qos << 1 | u8::from(self.retain), &body)
    }
}
