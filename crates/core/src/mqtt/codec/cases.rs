//! Annotated packets on the wire, and the expected result of a decoder for each.
//!
//! Plain data without a dependency, so that tests of the broker can take it in with `#[path =
//! "../src/mqtt/codec/cases.rs"] mod cases;` and send the bytes to a socket. The names lead with
//! the normative statement where there is one.

/// One packet, or the beginning of one.
pub(super) struct WireCase {
    pub name: &'static str,
    /// Protocol level of the connection; for [`FIRST_PACKETS`] the level in a CONNECT, 0 without
    /// one.
    pub level: u8,
    pub bytes: &'static [u8],
    pub expected: Expected,
}

pub(super) enum Expected {
    /// A whole packet with this name; in the other direction it encodes to the same bytes.
    Packet(&'static str),
    /// A whole packet with this name, which we would write otherwise.
    Tolerated(&'static str),
    /// An error with this 5.0 reason code.
    Error(u8),
    /// More bytes are needed: so many in all, as far as can be said.
    Incomplete(usize),
}

const fn packet(level: u8, name: &'static str, packet: &'static str, bytes: &'static [u8]) -> WireCase {
    WireCase { name, level, bytes, expected: Expected::Packet(packet) }
}

const fn tolerated(level: u8, name: &'static str, packet: &'static str, bytes: &'static [u8]) -> WireCase {
    WireCase { name, level, bytes, expected: Expected::Tolerated(packet) }
}

const fn error(level: u8, name: &'static str, code: u8, bytes: &'static [u8]) -> WireCase {
    WireCase { name, level, bytes, expected: Expected::Error(code) }
}

const fn incomplete(level: u8, name: &'static str, needed: usize, bytes: &'static [u8]) -> WireCase {
    WireCase { name, level, bytes, expected: Expected::Incomplete(needed) }
}

const MALFORMED: u8 = 0x81;
const PROTOCOL: u8 = 0x82;
const VERSION: u8 = 0x84;
const TOPIC: u8 = 0x90;
const ALIAS: u8 = 0x94;

/// Packets that may or may not open a connection.
#[rustfmt::skip]
pub(super) const FIRST_PACKETS: &[WireCase] = &[
    packet(3, "connect_3_1", "CONNECT", b"\x10\x0F\0\x06MQIsdp\x03\x02\0\x3C\0\x01a"),
    packet(4, "connect_3_1_1", "CONNECT", b"\x10\x0D\0\x04MQTT\x04\x02\0\x3C\0\x01a"),
    packet(5, "connect_5_0", "CONNECT", b"\x10\x0E\0\x04MQTT\x05\x02\0\x3C\0\0\x01a"),
    packet(4, "connect_with_empty_client_id_is_the_sessions_matter", "CONNECT", b"\x10\x0C\0\x04MQTT\x04\x00\0\x3C\0\0"),
    packet(4, "connect_with_everything_3_1_1", "CONNECT",
        b"\x10\x1A\0\x04MQTT\x04\xEE\0\x3C\0\x01a\0\x01w\0\x02hi\0\x01u\0\x01p"),
    packet(5, "connect_with_everything_5_0", "CONNECT",
        b"\x10\x26\0\x04MQTT\x05\xF6\0\x3C\
          \x05\x11\0\0\0\x0A\
          \0\x01a\
          \x05\x18\0\0\0\x05\0\x01w\0\x02hi\0\x01u\0\x01p"),
    packet(5, "mqtt5_3_1_2_19_password_without_user_name_is_fine", "CONNECT", b"\x10\x11\0\x04MQTT\x05\x40\0\x3C\0\0\x01a\0\x01p"),
    tolerated(3, "mqtt31_user_name_flag_without_user_name", "CONNECT", b"\x10\x0F\0\x06MQIsdp\x03\x82\0\x3C\0\x01a"),
    tolerated(3, "mqtt31_password_flag_without_password", "CONNECT", b"\x10\x12\0\x06MQIsdp\x03\xC2\0\x3C\0\x01a\0\x01u"),
    tolerated(4, "mqtt311_remaining_length_may_be_longer_than_needed", "CONNECT", b"\x10\x8D\0\0\x04MQTT\x04\x02\0\x3C\0\x01a"),
    error(5, "mqtt5_1_5_5_1_remaining_length_is_shortest", MALFORMED, b"\x10\x8E\0\0\x04MQTT\x05\x02\0\x3C\0\0\x01a"),

    incomplete(0, "nothing_yet", 2, b""),
    incomplete(0, "first_byte_of_connect", 2, b"\x10"),
    incomplete(0, "half_a_remaining_length", 3, b"\x10\x8D"),
    incomplete(0, "half_a_protocol_name", 15, b"\x10\x0D\0\x04MQ"),
    incomplete(4, "all_but_the_last_byte", 15, b"\x10\x0D\0\x04MQTT\x04\x02\0\x3C\0\x01"),

    error(0, "mqtt311_3_1_0_1_publish_first", PROTOCOL, b"\x30"),
    error(0, "mqtt5_3_1_0_1_connack_first", PROTOCOL, b"\x20"),
    error(0, "tls_client_hello_is_refused_by_its_first_byte", MALFORMED, b"\x16\x03"),
    error(0, "http_request_is_refused_by_its_first_byte", PROTOCOL, b"GET / HTTP/1.1\r\n"),
    error(0, "mqtt311_2_2_2_2_connect_flags", MALFORMED, b"\x11"),
    error(0, "mqtt311_3_1_2_1_other_protocol_name", VERSION, b"\x10\x0D\0\x04AMQP"),
    error(0, "other_protocol_name_length_shows_at_once", VERSION, b"\x10\x0D\0\x05"),
    error(0, "protocol_name_is_case_sensitive", VERSION, b"\x10\x0D\0\x04mq"),
    error(0, "mqtt311_3_1_2_2_level_6", VERSION, b"\x10\x0D\0\x04MQTT\x06"),
    error(0, "level_3_belongs_to_the_other_name", VERSION, b"\x10\x0D\0\x04MQTT\x03"),
    error(0, "level_4_belongs_to_the_other_name", VERSION, b"\x10\x0D\0\x06MQIsdp\x04"),
    error(0, "mosquitto_bridge_level_is_not_ours", VERSION, b"\x10\x0D\0\x04MQTT\x84"),
    error(0, "remaining_length_of_five_bytes", MALFORMED, b"\x10\x80\x80\x80\x80"),
    error(0, "remaining_length_ends_within_protocol_name", MALFORMED, b"\x10\x04\0\x04MQ"),

    error(4, "mqtt311_3_1_2_3_reserved_connect_flag", MALFORMED, b"\x10\x0D\0\x04MQTT\x04\x03\0\x3C\0\x01a"),
    error(5, "mqtt5_3_1_2_3_reserved_connect_flag", MALFORMED, b"\x10\x0E\0\x04MQTT\x05\x03\0\x3C\0\0\x01a"),
    error(4, "mqtt311_3_1_2_13_will_qos_without_will", MALFORMED, b"\x10\x0D\0\x04MQTT\x04\x0A\0\x3C\0\x01a"),
    error(5, "mqtt5_3_1_2_11_will_qos_without_will", MALFORMED, b"\x10\x0E\0\x04MQTT\x05\x0A\0\x3C\0\0\x01a"),
    error(4, "mqtt311_3_1_2_15_will_retain_without_will", MALFORMED, b"\x10\x0D\0\x04MQTT\x04\x22\0\x3C\0\x01a"),
    error(5, "mqtt5_3_1_2_13_will_retain_without_will", MALFORMED, b"\x10\x0E\0\x04MQTT\x05\x22\0\x3C\0\0\x01a"),
    error(4, "mqtt311_3_1_2_14_will_qos_3", MALFORMED, b"\x10\x14\0\x04MQTT\x04\x1E\0\x3C\0\x01a\0\x01w\0\x02hi"),
    error(5, "mqtt5_3_1_2_12_will_qos_3", MALFORMED, b"\x10\x16\0\x04MQTT\x05\x1E\0\x3C\0\0\x01a\0\0\x01w\0\x02hi"),
    error(4, "mqtt311_3_1_2_9_will_missing", MALFORMED, b"\x10\x0D\0\x04MQTT\x04\x06\0\x3C\0\x01a"),
    error(4, "mqtt311_3_1_2_9_will_message_missing", MALFORMED, b"\x10\x10\0\x04MQTT\x04\x06\0\x3C\0\x01a\0\x01w"),
    error(5, "mqtt5_3_1_2_9_will_missing", MALFORMED, b"\x10\x0E\0\x04MQTT\x05\x06\0\x3C\0\0\x01a"),
    error(4, "mqtt311_3_1_2_11_will_fields_without_will", MALFORMED, b"\x10\x14\0\x04MQTT\x04\x02\0\x3C\0\x01a\0\x01w\0\x02hi"),
    error(4, "mqtt311_3_1_2_18_user_name_without_flag", MALFORMED, b"\x10\x10\0\x04MQTT\x04\x02\0\x3C\0\x01a\0\x01u"),
    error(5, "mqtt5_3_1_2_16_user_name_without_flag", MALFORMED, b"\x10\x11\0\x04MQTT\x05\x02\0\x3C\0\0\x01a\0\x01u"),
    error(4, "mqtt311_3_1_2_19_user_name_missing", MALFORMED, b"\x10\x0D\0\x04MQTT\x04\x82\0\x3C\0\x01a"),
    error(5, "mqtt5_3_1_2_17_user_name_missing", MALFORMED, b"\x10\x0E\0\x04MQTT\x05\x82\0\x3C\0\0\x01a"),
    error(4, "mqtt311_3_1_2_20_password_without_flag", MALFORMED, b"\x10\x13\0\x04MQTT\x04\x82\0\x3C\0\x01a\0\x01u\0\x01p"),
    error(4, "mqtt311_3_1_2_21_password_missing", MALFORMED, b"\x10\x10\0\x04MQTT\x04\xC2\0\x3C\0\x01a\0\x01u"),
    error(5, "mqtt5_3_1_2_19_password_missing", MALFORMED, b"\x10\x0E\0\x04MQTT\x05\x42\0\x3C\0\0\x01a"),
    error(4, "mqtt311_3_1_2_22_password_without_user_name", MALFORMED, b"\x10\x10\0\x04MQTT\x04\x42\0\x3C\0\x01a\0\x01p"),
    error(3, "mqtt31_password_without_user_name", MALFORMED, b"\x10\x12\0\x06MQIsdp\x03\x42\0\x3C\0\x01a\0\x01p"),
    error(4, "mqtt311_3_1_3_3_client_id_missing", MALFORMED, b"\x10\x0A\0\x04MQTT\x04\x02\0\x3C"),
    error(5, "mqtt5_3_1_3_3_client_id_missing", MALFORMED, b"\x10\x0B\0\x04MQTT\x05\x02\0\x3C\0"),
    error(4, "mqtt311_3_1_3_4_client_id_not_utf8", MALFORMED, b"\x10\x0D\0\x04MQTT\x04\x02\0\x3C\0\x01\xFF"),
    error(5, "mqtt5_3_1_3_4_client_id_not_utf8", MALFORMED, b"\x10\x0E\0\x04MQTT\x05\x02\0\x3C\0\0\x01\xFF"),
    error(4, "mqtt311_1_5_3_2_null_in_client_id", MALFORMED, b"\x10\x0D\0\x04MQTT\x04\x02\0\x3C\0\x01\0"),
    error(4, "mqtt311_3_1_3_10_will_topic_not_utf8", MALFORMED, b"\x10\x14\0\x04MQTT\x04\x06\0\x3C\0\x01a\0\x01\xFF\0\x02hi"),
    error(5, "will_topic_with_wildcard", TOPIC, b"\x10\x16\0\x04MQTT\x05\x06\0\x3C\0\0\x01a\0\0\x01#\0\x02hi"),
    error(5, "mqtt5_4_7_3_1_empty_will_topic", TOPIC, b"\x10\x15\0\x04MQTT\x05\x06\0\x3C\0\0\x01a\0\0\0\0\x02hi"),
    error(4, "mqtt311_3_1_3_11_user_name_not_utf8", MALFORMED, b"\x10\x10\0\x04MQTT\x04\x82\0\x3C\0\x01a\0\x01\xFF"),
    error(5, "authentication_data_without_method", PROTOCOL, b"\x10\x12\0\x04MQTT\x05\x02\0\x3C\x04\x16\0\x01d\0\x01a"),
    error(5, "receive_maximum_0", PROTOCOL, b"\x10\x11\0\x04MQTT\x05\x02\0\x3C\x03\x21\0\0\0\x01a"),
    error(5, "maximum_packet_size_0", PROTOCOL, b"\x10\x13\0\x04MQTT\x05\x02\0\x3C\x05\x27\0\0\0\0\0\x01a"),
    error(5, "request_problem_information_2", PROTOCOL, b"\x10\x10\0\x04MQTT\x05\x02\0\x3C\x02\x17\x02\0\x01a"),
    error(5, "request_response_information_2", PROTOCOL, b"\x10\x10\0\x04MQTT\x05\x02\0\x3C\x02\x19\x02\0\x01a"),
    error(5, "session_expiry_twice", PROTOCOL, b"\x10\x18\0\x04MQTT\x05\x02\0\x3C\x0A\x11\0\0\0\x01\x11\0\0\0\x01\0\x01a"),
];

/// Packets after the version is settled, from either side.
#[rustfmt::skip]
pub(super) const LATER_PACKETS: &[WireCase] = &[
    packet(4, "publish_qos_0", "PUBLISH", b"\x30\x05\0\x01thi"),
    packet(4, "publish_without_payload", "PUBLISH", b"\x31\x03\0\x01t"),
    packet(4, "publish_qos_1_repeated_and_retained", "PUBLISH", b"\x3B\x07\0\x01t\x12\x34hi"),
    packet(5, "publish_qos_2_without_properties", "PUBLISH", b"\x34\x08\0\x01t\x12\x34\0hi"),
    packet(5, "publish_by_alias_alone", "PUBLISH", b"\x30\x08\0\0\x03\x23\0\x01hi"),
    packet(5, "publish_with_subscription_identifiers_and_forwarded_properties", "PUBLISH",
        b"\x30\x14\0\x01t\x0E\x0B\x01\x0B\x80\x01\x01\x01\x26\0\x01k\0\x01vhi"),
    packet(4, "mqtt311_1_5_3_3_byte_order_mark_stays", "PUBLISH", b"\x30\x05\0\x03\xEF\xBB\xBF"),
    packet(5, "mqtt5_1_5_4_3_byte_order_mark_stays", "PUBLISH", b"\x30\x06\0\x03\xEF\xBB\xBF\0"),
    error(4, "mqtt311_3_3_1_4_qos_3", MALFORMED, b"\x36"),
    error(5, "mqtt5_3_3_1_4_qos_3", MALFORMED, b"\x3E"),
    error(4, "mqtt311_3_3_1_2_dup_with_qos_0", MALFORMED, b"\x38"),
    error(5, "mqtt5_3_3_1_2_dup_with_qos_0", MALFORMED, b"\x39"),
    error(4, "mqtt311_2_3_1_1_publish_with_packet_id_0", PROTOCOL, b"\x32\x05\0\x01t\0\0"),
    error(5, "mqtt5_2_2_1_3_publish_with_packet_id_0", PROTOCOL, b"\x32\x06\0\x01t\0\0\0"),
    error(4, "mqtt311_4_7_3_1_empty_topic", TOPIC, b"\x30\x02\0\0"),
    error(5, "empty_topic_without_alias", PROTOCOL, b"\x30\x03\0\0\0"),
    error(4, "mqtt311_3_3_2_2_topic_with_plus", TOPIC, b"\x30\x05\0\x03a/+"),
    error(5, "mqtt5_3_3_2_2_topic_with_hash", TOPIC, b"\x30\x04\0\x01#\0"),
    error(4, "mqtt311_4_7_3_2_null_in_topic", MALFORMED, b"\x30\x03\0\x01\0"),
    error(5, "mqtt5_4_7_3_2_null_in_topic", MALFORMED, b"\x30\x04\0\x01\0\0"),
    error(4, "mqtt311_1_5_3_1_surrogate_in_topic", MALFORMED, b"\x30\x05\0\x03\xED\xA0\x80"),
    error(5, "mqtt5_1_5_4_1_surrogate_in_topic", MALFORMED, b"\x30\x06\0\x03\xED\xA0\x80\0"),
    error(5, "mqtt5_1_5_4_1_overlong_utf8_in_topic", MALFORMED, b"\x30\x05\0\x02\xC0\xAF\0"),
    error(4, "publish_ends_within_topic", MALFORMED, b"\x30\x03\0\x02t"),
    error(4, "publish_ends_within_packet_id", MALFORMED, b"\x32\x04\0\x01t\0"),
    error(5, "publish_without_property_length", MALFORMED, b"\x30\x03\0\x01t"),
    error(5, "publish_ends_within_properties", MALFORMED, b"\x30\x05\0\x01t\x02\x01"),
    error(5, "mqtt5_1_5_5_1_property_length_is_shortest", MALFORMED, b"\x30\x05\0\x01t\x80\0"),
    error(5, "property_length_of_five_bytes", MALFORMED, b"\x30\x08\0\x01t\x80\x80\x80\x80\x01"),
    error(5, "mqtt5_3_3_2_8_alias_0", ALIAS, b"\x30\x07\0\x01t\x03\x23\0\0"),
    error(5, "payload_format_indicator_2", PROTOCOL, b"\x30\x06\0\x01t\x02\x01\x02"),
    error(5, "subscription_identifier_0_in_publish", PROTOCOL, b"\x30\x06\0\x01t\x02\x0B\0"),
    error(5, "mqtt5_3_3_2_14_response_topic_with_wildcard", PROTOCOL, b"\x30\x08\0\x01t\x04\x08\0\x01#"),
    error(5, "mqtt5_3_3_2_13_response_topic_not_utf8", MALFORMED, b"\x30\x08\0\x01t\x04\x08\0\x01\xFF"),
    error(5, "mqtt5_3_3_2_19_content_type_not_utf8", MALFORMED, b"\x30\x08\0\x01t\x04\x03\0\x01\xFF"),
    error(5, "mqtt5_1_5_7_1_user_property_value_not_utf8", MALFORMED, b"\x30\x0B\0\x01t\x07\x26\0\x01k\0\x01\xFF"),
    error(5, "unknown_property", MALFORMED, b"\x30\x06\0\x01t\x02\x04\0"),
    error(5, "property_identifier_of_two_bytes", MALFORMED, b"\x30\x07\0\x01t\x03\x81\x01\0"),

    packet(3, "puback_3_1", "PUBACK", b"\x40\x02\x12\x34"),
    packet(4, "pubrec_3_1_1", "PUBREC", b"\x50\x02\x12\x34"),
    packet(4, "mqtt311_3_6_1_1_pubrel", "PUBREL", b"\x62\x02\x12\x34"),
    packet(5, "pubcomp_5_0", "PUBCOMP", b"\x70\x02\x12\x34"),
    packet(5, "puback_with_reason", "PUBACK", b"\x40\x03\x12\x34\x10"),
    packet(5, "puback_with_reason_string", "PUBACK", b"\x40\x08\x12\x34\x87\x04\x1F\0\x01x"),
    tolerated(5, "puback_with_needless_reason", "PUBACK", b"\x40\x03\x12\x34\0"),
    tolerated(5, "puback_with_needless_property_length", "PUBACK", b"\x40\x04\x12\x34\0\0"),
    tolerated(3, "mqtt31_pubrel_repeated", "PUBREL", b"\x6A\x02\x12\x34"),
    error(4, "mqtt311_3_6_1_1_pubrel_repeated", MALFORMED, b"\x6A"),
    error(4, "mqtt311_3_6_1_1_pubrel_without_flags", MALFORMED, b"\x60"),
    error(3, "mqtt31_pubrel_with_qos_2", MALFORMED, b"\x64"),
    error(5, "mqtt5_3_6_1_1_pubrel_repeated", MALFORMED, b"\x6A"),
    error(4, "mqtt311_2_2_2_2_puback_with_flags", MALFORMED, b"\x42"),
    error(5, "mqtt5_2_1_3_1_puback_with_flags", MALFORMED, b"\x41"),
    error(4, "puback_with_packet_id_0", PROTOCOL, b"\x40\x02\0\0"),
    error(5, "pubrel_with_packet_id_0_and_reason", PROTOCOL, b"\x62\x03\0\0\x92"),
    error(4, "puback_of_one_byte", MALFORMED, b"\x40\x01\x12"),
    error(4, "puback_of_three_bytes", MALFORMED, b"\x40\x03\x12\x34\0"),
    error(5, "puback_of_no_bytes", MALFORMED, b"\x40\0"),
    error(5, "mqtt5_3_4_2_1_puback_with_reason_of_pubrel", PROTOCOL, b"\x40\x03\x12\x34\x92"),
    error(5, "mqtt5_3_6_2_1_pubrel_with_reason_of_puback", PROTOCOL, b"\x62\x03\x12\x34\x10"),
    error(5, "mqtt5_3_5_2_1_pubrec_with_undefined_reason", PROTOCOL, b"\x50\x03\x12\x34\xFF"),
    error(5, "puback_with_bytes_after_its_properties", MALFORMED, b"\x40\x05\x12\x34\0\0\0"),

    packet(4, "subscribe_3_1_1", "SUBSCRIBE", b"\x82\x08\0\x01\0\x03a/#\x02"),
    packet(5, "subscribe_5_0_with_identifier_and_all_options", "SUBSCRIBE", b"\x82\x0B\0\x01\x02\x0B\x01\0\x03a/#\x2E"),
    tolerated(3, "mqtt31_subscribe_repeated", "SUBSCRIBE", b"\x8A\x08\0\x01\0\x03a/#\x01"),
    tolerated(5, "subscribe_with_identifier_behind_a_user_property", "SUBSCRIBE",
        b"\x82\x12\0\x01\x09\x26\0\x01k\0\x01v\x0B\x01\0\x03a/#\0"),
    error(4, "mqtt311_3_8_1_1_subscribe_repeated", MALFORMED, b"\x8A"),
    error(5, "mqtt5_3_8_1_1_subscribe_without_flags", MALFORMED, b"\x80"),
    error(4, "mqtt311_3_8_3_3_subscribe_without_filter", PROTOCOL, b"\x82\x02\0\x01"),
    error(5, "mqtt5_3_8_3_2_subscribe_without_filter", PROTOCOL, b"\x82\x03\0\x01\0"),
    error(4, "subscribe_with_packet_id_0", PROTOCOL, b"\x82\x08\0\0\0\x03a/#\x02"),
    error(4, "mqtt311_3_8_3_4_requested_qos_3", MALFORMED, b"\x82\x08\0\x01\0\x03a/#\x03"),
    error(4, "mqtt311_3_8_3_4_reserved_bits", MALFORMED, b"\x82\x08\0\x01\0\x03a/#\x04"),
    error(5, "requested_qos_3", PROTOCOL, b"\x82\x09\0\x01\0\0\x03a/#\x03"),
    error(5, "retain_handling_3", PROTOCOL, b"\x82\x09\0\x01\0\0\x03a/#\x30"),
    error(5, "mqtt5_3_8_3_5_reserved_bits", MALFORMED, b"\x82\x09\0\x01\0\0\x03a/#\x40"),
    error(5, "subscription_identifier_0", PROTOCOL, b"\x82\x0B\0\x01\x02\x0B\0\0\x03a/#\0"),
    error(5, "subscription_identifier_twice_in_subscribe", PROTOCOL, b"\x82\x0D\0\x01\x04\x0B\x01\x0B\x02\0\x03a/#\0"),
    error(4, "subscribe_ends_before_qos", MALFORMED, b"\x82\x07\0\x01\0\x03a/#"),
    error(4, "mqtt311_3_8_3_1_filter_not_utf8", MALFORMED, b"\x82\x06\0\x01\0\x01\xFF\0"),
    error(5, "mqtt5_3_8_3_1_filter_not_utf8", MALFORMED, b"\x82\x07\0\x01\0\0\x01\xFF\0"),

    packet(4, "suback_3_1_1", "SUBACK", b"\x90\x04\0\x01\x02\x80"),
    packet(5, "suback_5_0", "SUBACK", b"\x90\x05\0\x01\0\x02\x97"),
    error(4, "mqtt311_3_9_3_2_suback_with_other_code", PROTOCOL, b"\x90\x03\0\x01\x03"),
    error(5, "mqtt5_3_9_3_2_suback_with_other_code", PROTOCOL, b"\x90\x04\0\x01\0\x11"),
    error(4, "suback_without_codes", MALFORMED, b"\x90\x02\0\x01"),
    packet(4, "unsubscribe_3_1_1", "UNSUBSCRIBE", b"\xA2\x05\0\x01\0\x01a"),
    packet(5, "unsubscribe_5_0", "UNSUBSCRIBE", b"\xA2\x09\0\x01\0\0\x01a\0\x01b"),
    tolerated(3, "mqtt31_unsubscribe_repeated", "UNSUBSCRIBE", b"\xAA\x05\0\x01\0\x01a"),
    error(4, "mqtt311_3_10_1_1_unsubscribe_repeated", MALFORMED, b"\xAA"),
    error(5, "mqtt5_3_10_1_1_unsubscribe_without_flags", MALFORMED, b"\xA0"),
    error(4, "mqtt311_3_10_3_2_unsubscribe_without_filter", PROTOCOL, b"\xA2\x02\0\x01"),
    error(5, "mqtt5_3_10_3_2_unsubscribe_without_filter", PROTOCOL, b"\xA2\x03\0\x01\0"),
    error(4, "mqtt311_3_10_3_1_filter_not_utf8", MALFORMED, b"\xA2\x05\0\x01\0\x01\xFF"),
    error(5, "mqtt5_3_10_3_1_filter_not_utf8", MALFORMED, b"\xA2\x06\0\x01\0\0\x01\xFF"),
    error(5, "unsubscribe_with_packet_id_0", PROTOCOL, b"\xA2\x06\0\0\0\0\x01a"),
    packet(4, "unsuback_3_1_1", "UNSUBACK", b"\xB0\x02\0\x01"),
    packet(5, "unsuback_5_0", "UNSUBACK", b"\xB0\x05\0\x01\0\0\x11"),
    error(5, "mqtt5_3_11_3_2_unsuback_with_other_code", PROTOCOL, b"\xB0\x04\0\x01\0\x01"),
    error(4, "unsuback_of_three_bytes", MALFORMED, b"\xB0\x03\0\x01\0"),

    packet(4, "pingreq", "PINGREQ", b"\xC0\0"),
    packet(4, "pingresp", "PINGRESP", b"\xD0\0"),
    tolerated(4, "mqtt311_remaining_length_of_two_bytes", "PINGREQ", b"\xC0\x80\0"),
    error(5, "mqtt5_1_5_5_1_remaining_length_of_two_bytes", MALFORMED, b"\xC0\x80\0"),
    error(4, "pingreq_with_a_body", MALFORMED, b"\xC0\x01\0"),
    error(4, "mqtt311_2_2_2_2_pingreq_with_flags", MALFORMED, b"\xC1"),
    error(5, "mqtt5_2_1_3_1_pingreq_with_flags", MALFORMED, b"\xC8"),
    incomplete(4, "pingreq_begun", 2, b"\xC0"),
    incomplete(4, "length_not_known", 3, b"\x30\x80"),
    incomplete(4, "length_known", 2 + 5, b"\x30\x05\0"),
    error(4, "remaining_length_of_five_bytes", MALFORMED, b"\x30\xFF\xFF\xFF\xFF"),

    packet(4, "disconnect_3_1_1", "DISCONNECT", b"\xE0\0"),
    packet(5, "disconnect_5_0", "DISCONNECT", b"\xE0\0"),
    packet(5, "disconnect_with_will", "DISCONNECT", b"\xE0\x01\x04"),
    packet(5, "disconnect_with_session_expiry", "DISCONNECT", b"\xE0\x07\0\x05\x11\0\0\0\x0A"),
    tolerated(5, "disconnect_with_needless_reason", "DISCONNECT", b"\xE0\x01\0"),
    tolerated(5, "disconnect_with_needless_property_length", "DISCONNECT", b"\xE0\x02\x04\0"),
    error(4, "mqtt311_3_14_1_1_disconnect_with_flags", MALFORMED, b"\xE1"),
    error(5, "mqtt5_3_14_1_1_disconnect_with_flags", MALFORMED, b"\xE2"),
    error(4, "disconnect_3_1_1_with_a_body", MALFORMED, b"\xE0\x01\0"),
    error(5, "mqtt5_3_14_2_1_disconnect_with_other_code", PROTOCOL, b"\xE0\x01\x01"),
    error(5, "disconnect_with_bytes_after_its_properties", MALFORMED, b"\xE0\x03\0\0\0"),

    packet(4, "connack_3_1_1", "CONNACK", b"\x20\x02\x01\0"),
    packet(4, "connack_3_1_1_refusing", "CONNACK", b"\x20\x02\0\x05"),
    packet(5, "connack_5_0", "CONNACK", b"\x20\x06\x01\0\x03\x21\0\x0A"),
    error(4, "connack_3_1_1_with_reserved_flags", MALFORMED, b"\x20\x02\x02\0"),
    error(5, "mqtt5_3_2_2_1_connack_with_reserved_flags", MALFORMED, b"\x20\x03\x02\0\0"),
    error(4, "mqtt311_3_2_2_4_refusal_with_session_present", MALFORMED, b"\x20\x02\x01\x05"),
    error(5, "mqtt5_3_2_2_6_refusal_with_session_present", MALFORMED, b"\x20\x03\x01\x87\0"),
    error(4, "connack_with_return_code_6", MALFORMED, b"\x20\x02\0\x06"),
    error(5, "mqtt5_3_2_2_8_connack_with_other_code", PROTOCOL, b"\x20\x03\0\x8E\0"),
    error(5, "connack_without_property_length", MALFORMED, b"\x20\x02\0\0"),

    packet(5, "auth_continue", "AUTH", b"\xF0\x06\x18\x04\x15\0\x01m"),
    tolerated(5, "auth_success_left_out", "AUTH", b"\xF0\0"),
    error(4, "auth_is_reserved_in_3_1_1", MALFORMED, b"\xF0"),
    error(5, "mqtt5_3_15_1_1_auth_with_flags", MALFORMED, b"\xF1"),
    error(5, "mqtt5_3_15_2_1_auth_with_other_code", PROTOCOL, b"\xF0\x06\x80\x04\x15\0\x01m"),
    error(5, "auth_without_method", PROTOCOL, b"\xF0\x02\x18\0"),
    error(5, "packet_type_0", MALFORMED, b"\0\0"),
    error(4, "packet_type_0_in_3_1_1", MALFORMED, b"\0\0"),
];
