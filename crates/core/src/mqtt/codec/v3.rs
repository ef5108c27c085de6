//! Packet bodies of 3.1 and 3.1.1. CONNECT, PUBLISH and the acknowledgements have files of their
//! own.

use super::error::{DecodeError, EncodeError};
use super::frame;
use super::packet_type::PacketType;
use super::primitive::{self, ByteReader};
use crate::mqtt::packet::{
    Connack, ConnackProperties, ConnectReturnCode, Properties, ProtocolVersion, QoS, ReasonCode, Suback,
    Subscribe, SubscribeFilter, SubscriptionOptions, Unsuback, Unsubscribe,
};

pub(super) fn connack(body: &[u8], version: ProtocolVersion) -> Result<Connack<'_>, DecodeError> {
    let packet = PacketType::Connack;
    let &[flags, code] = body else {
        return Err(DecodeError::RemainingLength { packet, length: body.len(), expected: 2 });
    };
    let reason = ConnectReturnCode::to_reason(code).ok_or(DecodeError::ReturnCode { code })?;
    // 3.1 has no Session Present: the byte is reserved there and ignored.
    let flags = if version == ProtocolVersion::V3_1 { 0 } else { flags };
    // 3.1.1 [MQTT-3.2.2-4]
    if flags > 1 || (flags == 1 && reason != ReasonCode::SUCCESS) {
        return Err(DecodeError::ConnackFlags { flags });
    }
    Ok(Connack { session_present: flags == 1, reason, properties: ConnackProperties::default() })
}

pub(super) fn put_connack(
    connack: &Connack<'_>,
    version: ProtocolVersion,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let reason = connack.reason;
    let code = ConnectReturnCode::from_reason(reason).ok_or(EncodeError::NoReturnCode { reason, version })?;
    let session_present = connack.session_present && version != ProtocolVersion::V3_1;
    out.extend_from_slice(&[PacketType::Connack.first_byte(), 2, session_present.into(), code as u8]);
    Ok(())
}

pub(super) fn subscribe(body: &[u8]) -> Result<Subscribe<'_>, DecodeError> {
    let packet = PacketType::Subscribe;
    let mut reader = ByteReader::new(body);
    let packet_id = reader.packet_id(packet)?;
    let mut filters = Vec::new();
    while !reader.is_empty() {
        // 3.1.1 [MQTT-3.8.3-1]
        let filter = reader.topic_filter(packet)?;
        let options = subscription_options(reader.byte("Requested QoS")?)?;
        filters.push(SubscribeFilter { filter, options });
        bound_filters(packet, filters.len())?;
    }
    if filters.is_empty() {
        // 3.1.1 [MQTT-3.8.3-3]
        return Err(DecodeError::NoTopicFilter { packet });
    }
    Ok(Subscribe { packet_id, subscription_id: None, properties: Properties::EMPTY, filters })
}

fn subscription_options(options: u8) -> Result<SubscriptionOptions, DecodeError> {
    // 3.1.1 [MQTT-3.8.3-4]
    if options & 0xFC != 0 {
        return Err(DecodeError::ReservedSubscriptionOptions { options });
    }
    let qos = QoS::from_bits(options).ok_or(DecodeError::QoSThree { field: "Requested QoS" })?;
    Ok(SubscriptionOptions { qos, ..SubscriptionOptions::default() })
}

pub(super) fn put_subscribe(subscribe: &Subscribe<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    frame::put(PacketType::Subscribe, out, |out| {
        primitive::put_packet_id(out, subscribe.packet_id);
        subscribe.filters.iter().try_for_each(|filter| {
            primitive::put_string(out, filter.filter, "Topic Filter")?;
            out.push(filter.options.qos.bits());
            Ok(())
        })
    })
}

pub(super) fn suback(body: &[u8]) -> Result<Suback<'_>, DecodeError> {
    let packet = PacketType::Suback;
    let mut reader = ByteReader::new(body);
    let packet_id = reader.packet_id(packet)?;
    if reader.is_empty() {
        return Err(DecodeError::Truncated { field: "Return Codes" });
    }
    // 3.1.1 [MQTT-3.9.3-2]
    let reason = |&code: &u8| match code {
        0x00 | 0x01 | 0x02 | 0x80 => {
            ReasonCode::from_byte(code).ok_or(DecodeError::ReasonCodeNotAllowed { packet, code })
        }
        _ => Err(DecodeError::ReasonCodeNotAllowed { packet, code }),
    };
    let reasons = reader.rest().iter().map(reason).collect::<Result<_, _>>()?;
    Ok(Suback { packet_id, properties: Properties::EMPTY, reasons })
}

pub(super) fn put_suback(suback: &Suback<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    frame::put(PacketType::Suback, out, |out| {
        primitive::put_packet_id(out, suback.packet_id);
        // 3.1.1 [MQTT-3.9.3-2]
        out.extend(suback.reasons.iter().map(|reason| reason.byte().min(0x80)));
        Ok(())
    })
}

pub(super) fn unsubscribe(body: &[u8]) -> Result<Unsubscribe<'_>, DecodeError> {
    let packet = PacketType::Unsubscribe;
    let mut reader = ByteReader::new(body);
    let packet_id = reader.packet_id(packet)?;
    let filters = unsubscribe_filters(&mut reader)?;
    Ok(Unsubscribe { packet_id, properties: Properties::EMPTY, filters })
}

/// Largest number of filters in one packet. More would take too long to decode within one turn.
const MOST_FILTERS: usize = 65_535;

pub(super) fn bound_filters(packet: PacketType, filters: usize) -> Result<(), DecodeError> {
    if filters > MOST_FILTERS {
        return Err(DecodeError::TooManyFilters { packet, maximum: MOST_FILTERS });
    }
    Ok(())
}

/// Reads the payload of UNSUBSCRIBE, which is the same in every version.
pub(super) fn unsubscribe_filters<'a>(reader: &mut ByteReader<'a>) -> Result<Vec<&'a str>, DecodeError> {
    let packet = PacketType::Unsubscribe;
    let mut filters = Vec::new();
    while !reader.is_empty() {
        // 3.1.1 [MQTT-3.10.3-1], 5.0 [MQTT-3.10.3-1]
        filters.push(reader.topic_filter(packet)?);
        bound_filters(packet, filters.len())?;
    }
    if filters.is_empty() {
        // 3.1.1 [MQTT-3.10.3-2], 5.0 [MQTT-3.10.3-2]
        return Err(DecodeError::NoTopicFilter { packet });
    }
    Ok(filters)
}

pub(super) fn put_unsubscribe_filters(out: &mut Vec<u8>, filters: &[&str]) -> Result<(), EncodeError> {
    filters.iter().try_for_each(|filter| primitive::put_string(out, filter, "Topic Filter"))
}

pub(super) fn put_unsubscribe(unsubscribe: &Unsubscribe<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    frame::put(PacketType::Unsubscribe, out, |out| {
        primitive::put_packet_id(out, unsubscribe.packet_id);
        put_unsubscribe_filters(out, &unsubscribe.filters)
    })
}

pub(super) fn unsuback(body: &[u8]) -> Result<Unsuback<'_>, DecodeError> {
    let packet = PacketType::Unsuback;
    if body.len() != 2 {
        return Err(DecodeError::RemainingLength { packet, length: body.len(), expected: 2 });
    }
    let packet_id = ByteReader::new(body).packet_id(packet)?;
    Ok(Unsuback { packet_id, properties: Properties::EMPTY, reasons: Vec::new() })
}

pub(super) fn put_unsuback(unsuback: &Unsuback<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let [high, low] = unsuback.packet_id.get().to_be_bytes();
    out.extend_from_slice(&[PacketType::Unsuback.first_byte(), 2, high, low]);
    Ok(())
}
