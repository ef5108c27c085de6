//! The number by which a trace of an operator follows a message.

/// The number of a traced message, from 1 to 65,535. The numbers begin anew after the last one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AuditTag(u16);

impl AuditTag {
    /// The tag of a message that no trace follows.
    pub const NONE: AuditTag = AuditTag(0);

    /// Returns the tag with this number; 0 gives [`AuditTag::NONE`].
    pub const fn new(number: u16) -> AuditTag {
        AuditTag(number)
    }

    /// Returns the number; 0 for [`AuditTag::NONE`].
    pub const fn number(self) -> u16 {
        self.0
    }

    /// True if a trace follows the message.
    #[inline]
    pub const fn is_some(self) -> bool {
        self.0 != 0
    }
}
