//! Quality of service.

/// The quality of service of a delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum QoS {
    /// QoS 0: no acknowledgement and no resend.
    #[default]
    AtMostOnce = 0,
    /// QoS 1: acknowledged by PUBACK.
    AtLeastOnce = 1,
    /// QoS 2: PUBREC, PUBREL and PUBCOMP.
    ExactlyOnce = 2,
}

impl QoS {
    /// Returns the QoS of the two bits on the wire; `None` for 3 and above.
    pub const fn from_bits(bits: u8) -> Option<QoS> {
        match bits {
            0 => Some(QoS::AtMostOnce),
            1 => Some(QoS::AtLeastOnce),
            2 => Some(QoS::ExactlyOnce),
            _ => None,
        }
    }

    /// Returns the two bits on the wire.
    pub const fn bits(self) -> u8 {
        self as u8
    }
}
