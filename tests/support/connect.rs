//! A CONNECT to be sent.

use super::property::{self, Property};
use super::wire::{self, Put, Version};

#[derive(Clone, Debug)]
pub struct Connect {
    pub version: Version,
    pub protocol_name: Vec<u8>,
    pub level: u8,
    pub client_id: Vec<u8>,
    pub clean: bool,
    pub keep_alive: u16,
    pub will: Option<Will>,
    pub user_name: Option<Vec<u8>>,
    pub password: Option<Vec<u8>>,
    pub properties: Vec<Property>,
    /// Flag bits to set beside, or against, what the fields above ask for.
    pub extra_flags: u8,
}

#[derive(Clone, Debug)]
pub struct Will {
    pub topic: Vec<u8>,
    pub payload: Vec<u8>,
    pub qos: u8,
    pub retain: bool,
    pub properties: Vec<Property>,
}

impl Will {
    pub fn new(topic: impl AsRef<[u8]>, payload: impl AsRef<[u8]>) -> Will {
        let (topic, payload) = (topic.as_ref().to_vec(), payload.as_ref().to_vec());
        Will { topic, payload, qos: 0, retain: false, properties: Vec::new() }
    }

    pub fn qos(mut self, qos: u8) -> Will {
        self.qos = qos;
        self
    }

    pub fn retained(mut self) -> Will {
        self.retain = true;
        self
    }

    pub fn with(mut self, property: Property) -> Will {
        self.properties.push(property);
        self
    }
}

impl Connect {
    /// Clean, 60 s of keep alive, nothing else.
    pub fn new(version: Version, client_id: &str) -> Connect {
        Connect {
            version,
            protocol_name: version.protocol_name().as_bytes().to_vec(),
            level: version.level(),
            client_id: client_id.as_bytes().to_vec(),
            clean: true,
            keep_alive: 60,
            will: None,
            user_name: None,
            password: None,
            properties: Vec::new(),
            extra_flags: 0,
        }
    }

    /// A session that is taken up, and outlives its connection by an hour at least.
    pub fn persistent(version: Version, client_id: &str) -> Connect {
        let connect = Connect::new(version, client_id).clean(false);
        if version == Version::V5 { connect.with(Property::SessionExpiry(3600)) } else { connect }
    }

    pub fn clean(mut self, clean: bool) -> Connect {
        self.clean = clean;
        self
    }

    pub fn keep_alive(mut self, seconds: u16) -> Connect {
        self.keep_alive = seconds;
        self
    }

    pub fn will(mut self, will: Will) -> Connect {
        self.will = Some(will);
        self
    }

    pub fn user_name(mut self, name: &str) -> Connect {
        self.user_name = Some(name.as_bytes().to_vec());
        self
    }

    pub fn password(mut self, password: &[u8]) -> Connect {
        self.password = Some(password.to_vec());
        self
    }

    pub fn with(mut self, property: Property) -> Connect {
        self.properties.push(property);
        self
    }

    pub fn flags(mut self, extra: u8) -> Connect {
        self.extra_flags = extra;
        self
    }

    fn connect_flags(&self) -> u8 {
        let mut flags = u8::from(self.clean) << 1 | self.extra_flags;
        if let Some(will) = &self.will {
            flags |= 0x04 | will.qos << 3 | u8::from(will.retain) << 5;
        }
        flags | u8::from(self.password.is_some()) << 6 | u8::from(self.user_name.is_some()) << 7
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        body.put_binary(&self.protocol_name);
        body.push(self.level);
        body.push(self.connect_flags());
        body.put_u16(self.keep_alive);
        if self.version == Version::V5 {
            property::put_all(&mut body, &self.properties);
        }
        body.put_binary(&self.client_id);
        if let Some(will) = &self.will {
            if self.version == Version::V5 {
                property::put_all(&mut body, &will.properties);
            }
            body.put_binary(&will.topic);
            body.put_binary(&will.payload);
        }
        for field in [&self.user_name, &self.password].into_iter().flatten() {
            body.put_binary(field);
        }
        wire::packet(0x10, &body)
    }
}
