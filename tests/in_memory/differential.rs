//! Our decoder against rumqttc's: what both accept means the same, and where only one accepts, a
//! table says why.

use bytes::BytesMut;
use homing::mqtt::codec::{DecodeError, Decoded, decode, encode, property};
use homing::mqtt::packet::{Packet, Properties, Property, ProtocolVersion};
use rumqttc::mqttbytes::v4;
use rumqttc::v5::mqttbytes::v5;
use std::collections::BTreeSet;

use crate::cases::{FIRST_PACKETS, LATER_PACKETS};

use ProtocolVersion::{V3_1_1, V5 as V5_0};

const LIMIT: u32 = 1 << 20;

/// Changes made to each wire case.
const CHANGES: u64 = 400;

/// Packets that rumqttc accepts and we refuse: our reason, and the versions.
struct Lax {
    what: &'static str,
    versions: &'static [ProtocolVersion],
    is: fn(&DecodeError) -> bool,
}

const ONLY_3: &[ProtocolVersion] = &[V3_1_1];
const ONLY_5: &[ProtocolVersion] = &[V5_0];
const BOTH: &[ProtocolVersion] = &[V3_1_1, V5_0];

const LAXNESS: &[Lax] = &[
    Lax {
        what: "reserved flags in the first byte",
        versions: BOTH,
        is: |e| matches!(e, DecodeError::FixedHeaderFlags { .. }),
    },
    Lax {
        what: "a Packet Identifier 0 in all but PUBLISH",
        versions: BOTH,
        is: |e| matches!(e, DecodeError::PacketIdentifierZero { .. }),
    },
    Lax { what: "U+0000 in strings", versions: BOTH, is: |e| matches!(e, DecodeError::NullCharacter { .. }) },
    Lax {
        what: "wildcards in a Topic Name",
        versions: BOTH,
        is: |e| matches!(e, DecodeError::WildcardInTopicName { .. }),
    },
    Lax {
        what: "an empty Topic Name",
        versions: BOTH,
        is: |e| matches!(e, DecodeError::EmptyTopicName { .. }),
    },
    Lax {
        what: "an empty Topic Filter",
        versions: ONLY_3,
        is: |e| matches!(e, DecodeError::EmptyTopicFilter { .. }),
    },
    Lax {
        what: "an UNSUBSCRIBE without a Topic Filter",
        versions: BOTH,
        is: |e| matches!(e, DecodeError::NoTopicFilter { .. }),
    },
    Lax {
        what: "reserved bits of the Connect Flags",
        versions: BOTH,
        is: |e| matches!(e, DecodeError::ReservedConnectFlag),
    },
    Lax {
        what: "reserved bits of CONNACK, Session Present with a refusal",
        versions: BOTH,
        is: |e| matches!(e, DecodeError::ConnackFlags { .. }),
    },
    Lax {
        what: "reserved bits of the Subscription Options",
        versions: BOTH,
        is: |e| matches!(e, DecodeError::ReservedSubscriptionOptions { .. }),
    },
    Lax {
        what: "bytes behind the last field",
        versions: BOTH,
        is: |e| matches!(e, DecodeError::TrailingBytes { .. }),
    },
    Lax {
        what: "a body where none may be, or a longer one",
        versions: BOTH,
        is: |e| matches!(e, DecodeError::RemainingLength { .. }),
    },
    Lax {
        what: "a password without a user name",
        versions: ONLY_3,
        is: |e| matches!(e, DecodeError::PasswordWithoutUserName),
    },
    Lax {
        what: "a topic that is not UTF-8",
        versions: ONLY_5,
        is: |e| matches!(e, DecodeError::InvalidUtf8 { field: "Topic Name" | "Will Topic" }),
    },
    Lax {
        what: "a PUBLISH with neither topic nor alias",
        versions: ONLY_5,
        is: |e| matches!(e, DecodeError::NeitherTopicNorAlias),
    },
    Lax { what: "Topic Alias 0", versions: ONLY_5, is: |e| matches!(e, DecodeError::TopicAliasZero) },
    Lax {
        what: "a Response Topic with wildcards",
        versions: ONLY_5,
        is: |e| matches!(e, DecodeError::ResponseTopic),
    },
    Lax {
        what: "lengths that are not in their shortest form",
        versions: ONLY_5,
        is: |e| matches!(e, DecodeError::VariableByteIntegerNotShortest { .. }),
    },
    Lax {
        what: "properties that reach beyond Property Length",
        versions: ONLY_5,
        is: |e| matches!(e, DecodeError::Truncated { .. }),
    },
    Lax {
        what: "properties behind a Subscription Identifier, whose length it counts wrongly",
        versions: ONLY_5,
        is: |e| matches!(e, DecodeError::UnknownProperty { .. }),
    },
    Lax {
        what: "properties that stand twice",
        versions: ONLY_5,
        is: |e| matches!(e, DecodeError::RepeatedProperty { .. }),
    },
    Lax {
        what: "properties that are 0 and may not be",
        versions: ONLY_5,
        is: |e| matches!(e, DecodeError::PropertyZero { .. }),
    },
    Lax {
        what: "properties that are neither 0 nor 1 and have to be",
        versions: ONLY_5,
        is: |e| matches!(e, DecodeError::PropertyNotBoolean { .. }),
    },
    Lax {
        what: "Authentication Data without a method",
        versions: ONLY_5,
        is: |e| matches!(e, DecodeError::AuthenticationDataWithoutMethod { .. }),
    },
];

/// Packets that we accept and rumqttc refuses: packet, beginning of its error, and our reason.
const STRICTNESS: &[(&str, &str, &str)] = &[
    ("CONNECT", "TopicNotUtf8", "a password is binary"),
    ("AUTH", "InvalidPacketType", "it does not know AUTH on the way in"),
    ("DISCONNECT", "PayloadRequired", "a DISCONNECT of two bytes"),
    ("DISCONNECT", "InsufficientBytes", "a DISCONNECT without Property Length"),
    ("DISCONNECT", "InvalidConnectReturnCode", "a reason code of DISCONNECT that it does not know"),
];

/// The content of a packet, in one form for both codecs.
type Meaning = String;

trait Theirs {
    const VERSION: ProtocolVersion;
    type Packet: PartialEq + std::fmt::Debug;
    /// The packet, or its error.
    fn read(bytes: &[u8]) -> Result<Self::Packet, String>;
    fn meaning(packet: &Self::Packet) -> Meaning;
}

struct V4;
struct V5;

impl Theirs for V4 {
    const VERSION: ProtocolVersion = ProtocolVersion::V3_1_1;
    type Packet = v4::Packet;

    fn read(bytes: &[u8]) -> Result<v4::Packet, String> {
        v4::Packet::read(&mut BytesMut::from(bytes), LIMIT as usize).map_err(|error| format!("{error:?}"))
    }

    fn meaning(packet: &v4::Packet) -> Meaning {
        match packet {
            v4::Packet::Connect(c) => {
                let will = c.last_will.as_ref();
                let will = will.map(|w| (w.topic.clone(), w.message.to_vec(), w.qos as u8, w.retain));
                let login = c.login.as_ref().map(|l| (l.username.clone(), l.password.clone().into_bytes()));
                connect(c.clean_session, c.keep_alive, &c.client_id, will, login.unwrap_or_default())
            }
            v4::Packet::ConnAck(c) => format!("CONNACK {} {}", c.session_present, c.code as u8),
            v4::Packet::Publish(p) => publish(p.dup, p.qos as u8, p.retain, &p.topic, p.pkid, &p.payload),
            v4::Packet::PubAck(a) => ack("PUBACK", a.pkid, 0),
            v4::Packet::PubRec(a) => ack("PUBREC", a.pkid, 0),
            v4::Packet::PubRel(a) => ack("PUBREL", a.pkid, 0),
            v4::Packet::PubComp(a) => ack("PUBCOMP", a.pkid, 0),
            v4::Packet::Subscribe(s) => {
                let filters = s.filters.iter().map(|f| (f.path.clone(), f.qos as u8, false, false, 0));
                subscribe(s.pkid, filters.collect())
            }
            v4::Packet::SubAck(s) => {
                let code = |code: &v4::SubscribeReasonCode| match code {
                    v4::SubscribeReasonCode::Success(qos) => *qos as u8,
                    v4::SubscribeReasonCode::Failure => 0x80,
                };
                suback("SUBACK", s.pkid, s.return_codes.iter().map(code).collect())
            }
            v4::Packet::Unsubscribe(u) => unsubscribe(u.pkid, u.topics.clone()),
            v4::Packet::UnsubAck(u) => suback("UNSUBACK", u.pkid, Vec::new()),
            v4::Packet::PingReq => "PINGREQ".into(),
            v4::Packet::PingResp => "PINGRESP".into(),
            v4::Packet::Disconnect => "DISCONNECT 0".into(),
        }
    }
}

impl Theirs for V5 {
    const VERSION: ProtocolVersion = ProtocolVersion::V5;
    type Packet = v5::Packet;

    fn read(bytes: &[u8]) -> Result<v5::Packet, String> {
        v5::Packet::read(&mut BytesMut::from(bytes), Some(LIMIT)).map_err(|error| format!("{error:?}"))
    }

    fn meaning(packet: &v5::Packet) -> Meaning {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match packet {
            v5::Packet::Connect(c, will, login) => {
                let will = will.as_ref();
                let will = will.map(|w| (text(&w.topic), w.message.to_vec(), w.qos as u8, w.retain));
                let login = login.as_ref().map(|l| (l.username.clone(), l.password.clone().into_bytes()));
                connect(c.clean_start, c.keep_alive, &c.client_id, will, login.unwrap_or_default())
            }
            v5::Packet::ConnAck(c) => format!("CONNACK {} {}", c.session_present, code(&c.code)),
            v5::Packet::Publish(p) => {
                let head = publish(p.dup, p.qos as u8, p.retain, &text(&p.topic), p.pkid, &p.payload);
                let q = p.properties.clone().unwrap_or_default();
                let ids: Vec<u32> = q.subscription_identifiers.iter().map(|id| *id as u32).collect();
                let correlation = q.correlation_data.map(|data| data.to_vec());
                let forwarded = (q.payload_format_indicator, q.content_type, q.response_topic, correlation);
                let fresh = (q.topic_alias, q.message_expiry_interval, ids);
                format!("{head} {fresh:?} {forwarded:?} {:?}", q.user_properties)
            }
            v5::Packet::PubAck(a) => ack("PUBACK", a.pkid, code(&a.reason)),
            v5::Packet::PubRec(a) => ack("PUBREC", a.pkid, code(&a.reason)),
            v5::Packet::PubRel(a) => ack("PUBREL", a.pkid, code(&a.reason)),
            v5::Packet::PubComp(a) => ack("PUBCOMP", a.pkid, code(&a.reason)),
            v5::Packet::Subscribe(s) => {
                let filter = |f: &v5::Filter| {
                    let handling = f.retain_forward_rule.clone() as u8;
                    (f.path.clone(), f.qos as u8, f.nolocal, f.preserve_retain, handling)
                };
                subscribe(s.pkid, s.filters.iter().map(filter).collect())
            }
            v5::Packet::SubAck(s) => {
                let code = |reason: &v5::SubscribeReasonCode| match reason {
                    v5::SubscribeReasonCode::Success(qos) => *qos as u8,
                    other => code(other),
                };
                suback("SUBACK", s.pkid, s.return_codes.iter().map(code).collect())
            }
            v5::Packet::Unsubscribe(u) => unsubscribe(u.pkid, u.filters.clone()),
            v5::Packet::UnsubAck(u) => suback("UNSUBACK", u.pkid, u.reasons.iter().map(code).collect()),
            v5::Packet::PingReq(_) => "PINGREQ".into(),
            v5::Packet::PingResp(_) => "PINGRESP".into(),
            v5::Packet::Disconnect(d) => format!("DISCONNECT {}", d.reason_code as u8),
            v5::Packet::Auth(_) => unreachable!("it cannot read AUTH"),
        }
    }
}

/// The byte of one of rumqttc's reasons, which it keeps to itself: by name.
fn code(reason: &impl std::fmt::Debug) -> u8 {
    let name = format!("{reason:?}");
    let known = REASONS.iter().find(|(known, _)| *known == name);
    known.unwrap_or_else(|| panic!("{name} is not in the table")).1
}

const REASONS: &[(&str, u8)] = &[
    ("Success", 0x00),
    ("NoMatchingSubscribers", 0x10),
    ("NoSubscriptionExisted", 0x11),
    ("UnspecifiedError", 0x80),
    ("Unspecified", 0x80),
    ("MalformedPacket", 0x81),
    ("ProtocolError", 0x82),
    ("ImplementationSpecificError", 0x83),
    ("ImplementationSpecific", 0x83),
    ("UnsupportedProtocolVersion", 0x84),
    ("ClientIdentifierNotValid", 0x85),
    ("BadUserNamePassword", 0x86),
    ("NotAuthorized", 0x87),
    ("ServerUnavailable", 0x88),
    ("ServerBusy", 0x89),
    ("Banned", 0x8A),
    ("BadAuthenticationMethod", 0x8C),
    ("TopicFilterInvalid", 0x8F),
    ("TopicNameInvalid", 0x90),
    ("PacketIdentifierInUse", 0x91),
    ("PkidInUse", 0x91),
    ("PacketIdentifierNotFound", 0x92),
    ("PacketTooLarge", 0x95),
    ("QuotaExceeded", 0x97),
    ("PayloadFormatInvalid", 0x99),
    ("RetainNotSupported", 0x9A),
    ("QoSNotSupported", 0x9B),
    ("UseAnotherServer", 0x9C),
    ("ServerMoved", 0x9D),
    ("SharedSubscriptionsNotSupported", 0x9E),
    ("ConnectionRateExceeded", 0x9F),
    ("SubscriptionIdNotSupported", 0xA1),
    ("WildcardSubscriptionsNotSupported", 0xA2),
];

fn connect(
    clean: bool,
    keep_alive: u16,
    client_id: &str,
    will: Option<(String, Vec<u8>, u8, bool)>,
    login: (String, Vec<u8>),
) -> Meaning {
    format!("CONNECT {clean} {keep_alive} {client_id:?} {will:?} {login:?}")
}

fn publish(dup: bool, qos: u8, retain: bool, topic: &str, id: u16, payload: &[u8]) -> Meaning {
    format!("PUBLISH {dup} {qos} {retain} {topic:?} {id} {payload:?}")
}

fn ack(name: &str, id: u16, reason: u8) -> Meaning {
    format!("{name} {id} {reason}")
}

/// Filter, QoS, No Local, Retain As Published, Retain Handling.
fn subscribe(id: u16, filters: Vec<(String, u8, bool, bool, u8)>) -> Meaning {
    format!("SUBSCRIBE {id} {filters:?}")
}

fn unsubscribe(id: u16, filters: Vec<String>) -> Meaning {
    format!("UNSUBSCRIBE {id} {filters:?}")
}

fn suback(name: &str, id: u16, reasons: Vec<u8>) -> Meaning {
    format!("{name} {id} {reasons:?}")
}

fn our_meaning(packet: &Packet<'_>, version: ProtocolVersion) -> Meaning {
    match packet {
        Packet::Connect(c) => {
            let will = c.will.as_ref();
            let will = will.map(|w| (w.topic.to_owned(), w.payload.to_vec(), w.qos as u8, w.retain));
            let login = (c.user_name.unwrap_or("").to_owned(), c.password.unwrap_or(b"").to_vec());
            connect(c.clean_start, c.keep_alive, c.client_id, will, login)
        }
        Packet::Connack(c) => {
            let code = match homing::mqtt::packet::ConnectReturnCode::from_reason(c.reason) {
                Some(code) if !version.is_v5() => code as u8,
                _ => c.reason.byte(),
            };
            format!("CONNACK {} {code}", c.session_present)
        }
        Packet::Publish(p) => {
            let id = p.packet_id.map_or(0, |id| id.get());
            let head = publish(p.dup, p.qos as u8, p.retain, p.topic, id, p.payload);
            if !version.is_v5() {
                return head;
            }
            let fresh =
                (p.properties.topic_alias, p.properties.message_expiry, &p.properties.subscription_ids);
            let (forwarded, user) = forwarded(p.properties.forwarded());
            format!("{head} {fresh:?} {forwarded:?} {user:?}")
        }
        Packet::Puback(a) => ack("PUBACK", a.packet_id.get(), a.reason.byte()),
        Packet::Pubrec(a) => ack("PUBREC", a.packet_id.get(), a.reason.byte()),
        Packet::Pubrel(a) => ack("PUBREL", a.packet_id.get(), a.reason.byte()),
        Packet::Pubcomp(a) => ack("PUBCOMP", a.packet_id.get(), a.reason.byte()),
        Packet::Subscribe(s) => {
            let filter = |f: &homing::mqtt::packet::SubscribeFilter<'_>| {
                let o = f.options;
                (f.filter.to_owned(), o.qos as u8, o.no_local, o.retain_as_published, o.retain_handling as u8)
            };
            subscribe(s.packet_id.get(), s.filters.iter().map(filter).collect())
        }
        Packet::Suback(s) => {
            suback("SUBACK", s.packet_id.get(), s.reasons.iter().map(|r| r.byte()).collect())
        }
        Packet::Unsubscribe(u) => {
            unsubscribe(u.packet_id.get(), u.filters.iter().map(|f| (*f).to_owned()).collect())
        }
        Packet::Unsuback(u) => {
            suback("UNSUBACK", u.packet_id.get(), u.reasons.iter().map(|r| r.byte()).collect())
        }
        Packet::Pingreq | Packet::Pingresp | Packet::Auth(_) => packet.name().into(),
        Packet::Disconnect(d) => format!("DISCONNECT {}", d.reason.byte()),
    }
}

type Forwarded = (Option<u8>, Option<String>, Option<String>, Option<Vec<u8>>);

fn forwarded(properties: Properties<'_>) -> (Forwarded, Vec<(String, String)>) {
    let mut out = (None, None, None, None);
    let mut user = Vec::new();
    for each in property::iter(properties) {
        match each {
            Property::PayloadFormatIndicator(format) => out.0 = Some(format),
            Property::ContentType(text) => out.1 = Some(text.to_owned()),
            Property::ResponseTopic(text) => out.2 = Some(text.to_owned()),
            Property::CorrelationData(data) => out.3 = Some(data.to_vec()),
            Property::UserProperty(key, value) => user.push((key.to_owned(), value.to_owned())),
            other => panic!("{other:?} does not travel"),
        }
    }
    (out, user)
}

/// The wire cases, and each with a byte of its body changed, put in or taken out.
fn inputs() -> impl Iterator<Item = Vec<u8>> {
    FIRST_PACKETS.iter().chain(LATER_PACKETS).flat_map(|case| {
        (0..CHANGES).map(|change| {
            let mut bytes = case.bytes.to_vec();
            let mut random = change.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            random = (random ^ (random >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            random ^= random >> 27;
            let (kind, at, byte) = (random % 4, (random >> 8) as usize, (random >> 40) as u8);
            let small = bytes.get(1).is_some_and(|length| usize::from(*length) + 2 == bytes.len());
            if change == 0 || !small || bytes.len() < 3 {
                return bytes;
            }
            let at = 2 + at % (bytes.len() - 2);
            match kind {
                0 => bytes[at] = byte,
                1 => bytes[at] = byte % 4,
                2 => bytes.insert(at, byte),
                _ => drop(bytes.remove(at)),
            }
            bytes[1] = (bytes.len() - 2) as u8;
            bytes
        })
    })
}

/// Returns the version that a CONNECT names; `None` for other packets and for other names.
fn connect_version(bytes: &[u8]) -> Option<ProtocolVersion> {
    let body = match bytes {
        [0x10, rest @ ..] => rest.iter().position(|byte| *byte < 0x80).and_then(|at| rest.get(at + 1..))?,
        _ => return None,
    };
    let names: [(&[u8], _); 3] = [
        (b"\0\x06MQIsdp\x03", ProtocolVersion::V3_1),
        (b"\0\x04MQTT\x04", ProtocolVersion::V3_1_1),
        (b"\0\x04MQTT\x05", ProtocolVersion::V5),
    ];
    names.iter().find(|(name, _)| body.starts_with(name)).map(|(_, version)| *version)
}

/// Compares the two on all inputs, and that every row of the tables was needed.
fn compare<T: Theirs>() {
    let mut lax = BTreeSet::new();
    let mut both = 0;
    // A CONNECT says itself which decoder it is for.
    for bytes in inputs().filter(|bytes| connect_version(bytes).is_none_or(|version| version == T::VERSION)) {
        match (decode(&bytes, T::VERSION, LIMIT), T::read(&bytes)) {
            (Ok(Decoded::Packet { packet, .. }), Ok(theirs)) => {
                assert_eq!(our_meaning(&packet, T::VERSION), T::meaning(&theirs), "{bytes:02X?}");
                check_encoded::<T>(&packet, &theirs);
                both += 1;
            }
            (Ok(Decoded::Packet { packet, .. }), Err(error)) => {
                assert!(is_too_strict(&packet, &error), "{bytes:02X?}: {packet:?}, but {error}");
            }
            (Err(error), Ok(theirs)) => {
                let row = LAXNESS.iter().find(|row| (row.is)(&error) && row.versions.contains(&T::VERSION));
                let row = row.unwrap_or_else(|| panic!("{bytes:02X?}: {error:?}, but {theirs:?}"));
                lax.insert(row.what);
            }
            (Ok(Decoded::Incomplete { .. }), Ok(theirs)) => panic!("{bytes:02X?}: no end, but {theirs:?}"),
            (Ok(Decoded::Incomplete { .. }) | Err(_), Err(_)) => {}
        }
    }
    assert!(both > 5_000, "{both} were accepted by both");
    let listed = LAXNESS.iter().filter(|row| row.versions.contains(&T::VERSION)).map(|row| row.what);
    assert_eq!(lax, listed.collect(), "the table says what was seen");
}

/// Asserts that rumqttc reads our encoding of a packet as the same, with its properties.
fn check_encoded<T: Theirs>(packet: &Packet<'_>, theirs: &T::Packet) {
    let mut bytes = Vec::new();
    encode(packet, T::VERSION, &mut bytes).expect("what was decoded fits the protocol");
    match T::read(&bytes) {
        Ok(again) if again == *theirs => {}
        Ok(again) => {
            // A Will Delay Interval of 0 is as good as none.
            let delay = matches!(packet, Packet::Connect(c) if c.will.as_ref().is_some_and(|w| w.delay == 0));
            assert!(delay, "{bytes:02X?}: {theirs:?} became {again:?}");
        }
        Err(error) => assert!(is_too_strict(packet, &error), "{bytes:02X?}: {error}"),
    }
}

fn is_too_strict(packet: &Packet<'_>, error: &str) -> bool {
    STRICTNESS.iter().any(|(name, begins, _)| packet.name() == *name && error.starts_with(begins))
}

#[test]
fn what_rumqttc_reads_as_3_1_1_we_read_the_same() {
    compare::<V4>();
}

#[test]
fn what_rumqttc_reads_as_5_0_we_read_the_same() {
    compare::<V5>();
}
