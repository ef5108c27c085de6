//! Bounds that more than one section of the configuration uses.

/// A Remaining Length counts to one byte below 256 MiB (5.0 section 1.5.5, 3.1.1 section 2.2.3).
/// The last of these MiB are for additions of the broker to a message: the topic where the client
/// sent an alias, Subscription Identifiers, the properties of a dead letter.
pub(super) const LARGEST_PACKET: u64 = 255 << 20;

pub(super) const ONE_KIB: u64 = 1 << 10;
pub(super) const ONE_TIB: u64 = 1 << 40;
pub(super) const SIXTEEN_TIB: u64 = 16 << 40;
pub(super) const ONE_BILLION: i64 = 1_000_000_000;

/// One second below 2^32 - 1, which on the wire means "never expires" (5.0 section 3.1.2.11.2).
pub(super) const LONGEST_EXPIRY: u64 = u32::MAX as u64 - 1;
