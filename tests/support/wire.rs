//! The few encodings that all packets are made of, and their strict reading.

/// The protocol versions, by the level byte of their CONNECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    V31 = 3,
    V311 = 4,
    V5 = 5,
}

impl Version {
    pub fn level(self) -> u8 {
        self as u8
    }

    pub fn protocol_name(self) -> &'static str {
        if self == Version::V31 { "MQIsdp" } else { "MQTT" }
    }
}

/// Appends MQTT's encodings to a byte vector.
pub trait Put {
    fn put_u16(&mut self, value: u16);
    fn put_u32(&mut self, value: u32);
    fn put_varint(&mut self, value: u32);
    /// Two bytes of length and the bytes: a string, valid or not, or binary data.
    fn put_binary(&mut self, bytes: &[u8]);
}

impl Put for Vec<u8> {
    fn put_u16(&mut self, value: u16) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn put_u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn put_varint(&mut self, mut value: u32) {
        assert!(value < 1 << 28, "{value} does not fit a variable byte integer");
        while value > 0x7F {
            self.push((value & 0x7F) as u8 | 0x80);
            value >>= 7;
        }
        self.push(value as u8);
    }

    fn put_binary(&mut self, bytes: &[u8]) {
        self.put_u16(u16::try_from(bytes.len()).expect("two bytes of length"));
        self.extend_from_slice(bytes);
    }
}

/// A whole packet: first byte, remaining length, body.
pub fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(body.len() + 5);
    bytes.push(first);
    bytes.put_varint(u32::try_from(body.len()).expect("four bytes of length"));
    bytes.extend_from_slice(body);
    bytes
}

/// The length of the first packet in `bytes` as (fixed header, body), once its fixed header is
/// whole.
pub fn frame(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut length = 0;
    for (at, byte) in bytes.iter().skip(1).take(4).enumerate() {
        length |= usize::from(byte & 0x7F) << (7 * at);
        if byte & 0x80 == 0 {
            assert!(at == 0 || *byte != 0, "remaining length is not in its shortest form: {bytes:02X?}");
            return Some((at + 2, length));
        }
        assert!(at < 3, "remaining length of more than four bytes: {bytes:02X?}");
    }
    None
}

/// Reads the body of one packet from the front; whatever is not there, or not lawful, panics.
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at_checked(count).expect("the packet is cut short");
        self.0 = rest;
        taken
    }

    pub fn byte(&mut self) -> u8 {
        self.bytes(1)[0]
    }

    pub fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.bytes(2).try_into().expect("two bytes"))
    }

    pub fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.bytes(4).try_into().expect("four bytes"))
    }

    pub fn varint(&mut self) -> u32 {
        let mut value = 0;
        for at in 0..4 {
            let byte = self.byte();
            value |= u32::from(byte & 0x7F) << (7 * at);
            if byte & 0x80 == 0 {
                // 5.0 [MQTT-1.5.5-1]
                assert!(at == 0 || byte != 0, "variable byte integer is not in its shortest form");
                return value;
            }
        }
        panic!("variable byte integer of more than four bytes");
    }

    pub fn binary(&mut self) -> &'a [u8] {
        let length = self.u16();
        self.bytes(usize::from(length))
    }

    pub fn text(&mut self) -> String {
        // 5.0 [MQTT-1.5.4-1], [MQTT-1.5.4-2]; 3.1.1 [MQTT-1.5.3-1], [MQTT-1.5.3-2]. Rust's UTF-8
        // has no surrogates.
        let text = std::str::from_utf8(self.binary()).expect("a string that is not UTF-8");
        assert!(!text.contains('\0'), "a string with U+0000: {text:?}");
        text.to_owned()
    }

    /// An identifier of a QoS 1 or 2 exchange, or of a request: never 0.
    pub fn packet_id(&mut self) -> u16 {
        let id = self.u16();
        // 5.0 [MQTT-2.2.1-4]; 3.1.1 [MQTT-2.3.1-1]
        assert_ne!(id, 0, "packet identifier 0");
        id
    }
}
