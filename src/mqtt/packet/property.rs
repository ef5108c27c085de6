//! MQTT 5.0 properties.

/// One property with its value; `conformance/properties.csv` names the packets each may be in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Property<'a> {
    PayloadFormatIndicator(u8),
    MessageExpiryInterval(u32),
    ContentType(&'a str),
    ResponseTopic(&'a str),
    CorrelationData(&'a [u8]),
    SubscriptionIdentifier(u32),
    SessionExpiryInterval(u32),
    AssignedClientIdentifier(&'a str),
    ServerKeepAlive(u16),
    AuthenticationMethod(&'a str),
    AuthenticationData(&'a [u8]),
    RequestProblemInformation(u8),
    WillDelayInterval(u32),
    RequestResponseInformation(u8),
    ResponseInformation(&'a str),
    ServerReference(&'a str),
    ReasonString(&'a str),
    ReceiveMaximum(u16),
    TopicAliasMaximum(u16),
    TopicAlias(u16),
    MaximumQoS(u8),
    RetainAvailable(u8),
    UserProperty(&'a str, &'a str),
    MaximumPacketSize(u32),
    WildcardSubscriptionAvailable(u8),
    SubscriptionIdentifierAvailable(u8),
    SharedSubscriptionAvailable(u8),
}

/// A run of encoded properties, without the length in front: identifiers and values as on the wire.
///
/// Only the codec makes one from a peer's bytes, after it has checked every property in it; so
/// [`crate::mqtt::codec::property::iter`] over one never meets a malformed property.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Properties<'a>(pub(crate) &'a [u8]);

impl<'a> Properties<'a> {
    pub const EMPTY: Properties<'static> = Properties(&[]);

    pub const fn as_bytes(&self) -> &'a [u8] {
        self.0
    }

    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
