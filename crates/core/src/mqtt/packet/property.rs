//! MQTT 5.0 properties.

/// One property with its value, named as in the standard.
///
/// `conformance/properties.csv` lists the packets in which each property may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Property<'a> {
    /// 0x01 Payload Format Indicator, 0 or 1.
    PayloadFormatIndicator(u8),
    /// 0x02 Message Expiry Interval, in seconds.
    MessageExpiryInterval(u32),
    /// 0x03 Content Type.
    ContentType(&'a str),
    /// 0x08 Response Topic, a Topic Name.
    ResponseTopic(&'a str),
    /// 0x09 Correlation Data.
    CorrelationData(&'a [u8]),
    /// 0x0B Subscription Identifier, 1 to 268,435,455.
    SubscriptionIdentifier(u32),
    /// 0x11 Session Expiry Interval, in seconds.
    SessionExpiryInterval(u32),
    /// 0x12 Assigned Client Identifier.
    AssignedClientIdentifier(&'a str),
    /// 0x13 Server Keep Alive, in seconds.
    ServerKeepAlive(u16),
    /// 0x15 Authentication Method.
    AuthenticationMethod(&'a str),
    /// 0x16 Authentication Data.
    AuthenticationData(&'a [u8]),
    /// 0x17 Request Problem Information, 0 or 1.
    RequestProblemInformation(u8),
    /// 0x18 Will Delay Interval, in seconds.
    WillDelayInterval(u32),
    /// 0x19 Request Response Information, 0 or 1.
    RequestResponseInformation(u8),
    /// 0x1A Response Information.
    ResponseInformation(&'a str),
    /// 0x1C Server Reference.
    ServerReference(&'a str),
    /// 0x1F Reason String.
    ReasonString(&'a str),
    /// 0x21 Receive Maximum, 1 or more.
    ReceiveMaximum(u16),
    /// 0x22 Topic Alias Maximum.
    TopicAliasMaximum(u16),
    /// 0x23 Topic Alias, 1 or more.
    TopicAlias(u16),
    /// 0x24 Maximum QoS, 0 or 1.
    MaximumQoS(u8),
    /// 0x25 Retain Available, 0 or 1.
    RetainAvailable(u8),
    /// 0x26 User Property, a name and a value.
    UserProperty(&'a str, &'a str),
    /// 0x27 Maximum Packet Size, in bytes, 1 or more.
    MaximumPacketSize(u32),
    /// 0x28 Wildcard Subscription Available, 0 or 1.
    WildcardSubscriptionAvailable(u8),
    /// 0x29 Subscription Identifier Available, 0 or 1.
    SubscriptionIdentifierAvailable(u8),
    /// 0x2A Shared Subscription Available, 0 or 1.
    SharedSubscriptionAvailable(u8),
}

/// A sequence of encoded properties, without the length in front: identifiers and values as on the
/// wire.
///
/// Only the codec makes one from the bytes of a peer, after it has checked every property in them.
/// So [`crate::mqtt::codec::property::iter`] never meets a malformed property in one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Properties<'a>(pub(crate) &'a [u8]);

impl<'a> Properties<'a> {
    /// No properties.
    pub const EMPTY: Properties<'static> = Properties(&[]);

    /// Returns the encoded properties.
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.0
    }

    /// True if there is no property.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
