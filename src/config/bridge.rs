//! `[[bridges]]`: other brokers that this broker connects to. A problem in a bridge is reported with
//! the number of the bridge.

use super::bounds::{LARGEST_PACKET, ONE_BILLION, ONE_KIB, ONE_TIB};
use super::bridge_address::BridgeAddress;
use super::listener::{NAME, are_texts, fields};
use super::problem::Problem;
use super::rule::{ValueRule, ValueType, days, millis, seconds};
use super::size::ByteSize;
use super::table_list::{ListedTable, Problems, TableList};
use super::value::{self, Field, named_fields};
use crate::bridge::rules::{Direction, RetainedAtStart, TopicRule};
use crate::bridge::{ConnectWhen, notification_topic};
use crate::mqtt::packet::{ProtocolVersion, QoS};
use crate::mqtt::topic::{TopicFilter, is_topic_name};
use crate::named_enum::{Named, named_enum};
use crate::session::outbound::queue::QueueBounds;
use config::{Map, Value, ValueKind};
use std::time::Duration;

named_enum! {
    /// The versions of MQTT that a bridge speaks.
    #[derive(Default)]
    pub enum BridgeVersion {
        /// 5.0, then 3.1.1 if the other broker refuses it.
        #[default]
        Auto = "auto",
        /// 5.0 alone.
        V5 = "5.0",
        /// 3.1.1 alone.
        V3_1_1 = "3.1.1",
    }

    /// The address with which a bridge begins.
    #[derive(Default)]
    pub enum Balance {
        /// The first of the list, each time.
        #[default]
        First = "first",
        /// The one behind that of the attempt before.
        RoundRobin = "round_robin",
    }
}

named_fields!(BridgeVersion, Balance, ConnectWhen, Direction, RetainedAtStart);

impl BridgeVersion {
    /// Returns the version with which a bridge begins.
    pub fn first(self) -> ProtocolVersion {
        match self {
            BridgeVersion::Auto | BridgeVersion::V5 => ProtocolVersion::V5,
            BridgeVersion::V3_1_1 => ProtocolVersion::V3_1_1,
        }
    }
}

fields! {
    /// One bridge. A field that is `None` was left out, and has the default of its method.
    Bridge {
        /// The name: that of the session `$bridge/NAME`, and in the log. Each bridge has one.
        name: String, NAME.only();
        /// The addresses of the other broker, tried in their order.
        addresses: Vec<BridgeAddress>, ValueType::Checked(are_addresses, ADDRESSES).only();
        /// The address with which an attempt begins: "first" (the default) or "round_robin".
        balance: Balance, ValueType::OneOf(Balance::NAMES).only();
        /// The client identifier at the other broker; `homing-NAME` by default.
        client_id: String, ValueType::Checked(value::is_mqtt_text, "1 to 1024 characters").only();
        /// The version of MQTT: "auto" (the default: 5.0, then 3.1.1 if it is refused), "5.0" or
        /// "3.1.1".
        version: BridgeVersion, ValueType::OneOf(BridgeVersion::NAMES).only();
        /// The user name at the other broker.
        user: String, ValueType::Checked(value::is_mqtt_text, "1 to 1024 characters").only();
        /// The file with the password at the other broker. Its last line break does not count.
        password_file: String, ValueType::Path.only();
        /// The file with the authorities of the other broker's certificate; those of the system by
        /// default.
        ca: String, ValueType::Path.only();
        /// The file with the bridge's own certificate.
        certificate: String, ValueType::Path.only();
        /// The file with the key of this certificate.
        key: String, ValueType::Path.only();
        /// The name in the other broker's certificate; that of the address by default.
        server_name: String, ValueType::Checked(value::is_mqtt_text, "a host name").only();
        /// The names that the bridge offers in the ALPN extension of TLS; none by default.
        alpn: Vec<String>, ValueType::Checked(are_alpn, "a list of 1 to 16 protocol names: [\"mqtt\"]").only();
        /// The Keep Alive, 60 s by default.
        keep_alive: Duration, ValueType::WholeSeconds(1, 65_535).only();
        /// The time for which both brokers keep the session without a connection, 7 days by
        /// default.
        session_expiry: Duration, ValueType::WholeSeconds(1, 4_294_967_294).only();
        /// True to begin a new session at the other broker with each connection.
        clean_start: bool, ValueType::Boolean.only();
        /// The most messages that the other broker has not acknowledged, 100 by default;
        /// `limits.in_flight` holds too.
        in_flight: u16, ValueType::Integer(1, 65_535).only();
        /// The most messages in the queue; `store.queue_messages`, or `limits.queue_messages`
        /// without a store, by default.
        queue_messages: u32, ValueType::Integer(1, ONE_BILLION).only();
        /// The most bytes in the queue; `store.queue_bytes`, or `limits.queue_bytes` without a
        /// store, by default.
        queue_bytes: ByteSize, ValueType::Size(ONE_KIB, ONE_TIB).only();
        /// The largest packet in bytes that leaves, for brokers that announce no Maximum Packet Size:
        /// none by default. The lower one of the two holds.
        max_packet_size: ByteSize, ValueType::Size(128, LARGEST_PACKET).only();
        /// The time for address, TCP, TLS, WebSocket and CONNACK together, 10 s by default. PINGREQ and
        /// SUBSCRIBE have to be answered in the same time.
        connect_timeout: Duration, ValueType::Duration(millis(100), seconds(600)).only();
        /// The time without an acknowledgement of the other broker, 60 s by default. Then the
        /// bridge connects again, and sends what is not acknowledged again.
        ack_timeout: Duration, ValueType::Duration(seconds(1), days(1)).only();
        /// The time at which the bridge connects: "always" (the default), "on_demand" from the first
        /// message of the queue on, or "manual" by `homing ctl bridge connect`.
        connect: ConnectWhen, ValueType::OneOf(ConnectWhen::NAMES).only();
        /// The time without a message of either side after which a bridge on demand disconnects,
        /// 60 s by default.
        idle_timeout: Duration, ValueType::Duration(seconds(1), days(1)).only();
        /// The time until the second attempt, 1 s by default. It doubles with each attempt.
        backoff: Duration, ValueType::Duration(millis(10), days(1)).only();
        /// The longest time between two attempts, 5 min by default.
        max_backoff: Duration, ValueType::Duration(millis(10), days(1)).only();
        /// The user whose rules in `acl.file` hold for the session here. Without it, the topics of
        /// the bridge alone decide.
        acl_user: String, ValueType::Checked(value::is_mqtt_text, "a user name").only();
        /// True to connect by 3.1.1 as bridges of mosquitto do: the other broker then keeps RETAIN,
        /// and sends the bridge no message of its own.
        bridge_bit: bool, ValueType::Boolean.only();
        /// True to tell the state of the bridge as mosquitto does: `1` or `0`, retained, here and at
        /// the other broker.
        notifications: bool, ValueType::Boolean.only();
        /// The topic of these notifications, `$SYS/broker/connection/CLIENT_ID/state` by default.
        notification_topic: String, ValueType::Checked(is_topic, "a topic without wildcards").only();
        /// The messages that pass.
        topics: Vec<BridgeTopic>, ValueType::Checked(are_tables, "tables, [[bridges.topics]] with their keys below them").only();
    }
}

fields! {
    /// One rule about the messages that pass a bridge.
    BridgeTopic {
        /// The way of the messages: "out", "in" or "both".
        direction: Direction, ValueType::OneOf(Direction::NAMES).only();
        /// The topic filter of the messages, behind the prefix of either side.
        filter: String, ValueType::TopicFilter.only();
        /// The highest QoS with which they pass, 1 by default.
        qos: QoS, ValueType::Integer(0, 2).only();
        /// The beginning of their topics here; none by default.
        local_prefix: String, ValueType::Checked(is_prefix, PREFIX).only();
        /// The beginning of their topics at the other broker; none by default.
        remote_prefix: String, ValueType::Checked(is_prefix, PREFIX).only();
        /// The treatment of messages that are retained when the bridge subscribes: "new" (the
        /// default) if the subscription is new, "always" or "never".
        retain: RetainedAtStart, ValueType::OneOf(RetainedAtStart::NAMES).only();
    }
}

const ADDRESSES: &str =
    "a list of mqtt://HOST[:PORT], tls://, ws://HOST[:PORT][/PATH] and wss://, without user and password";

const PREFIX: &str = "the beginning of a topic, without wildcards, such as \"plant-7/\"";

impl Field for QoS {
    fn read(value: &Value) -> Option<QoS> {
        QoS::from_bits(u16::read(value)?.try_into().ok()?)
    }

    fn write(&self) -> ValueKind {
        ValueKind::I64(self.bits().into())
    }
}

impl Bridge {
    /// Returns the name. Every bridge that passed the checks has one.
    pub fn label(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// Returns the client identifier at the other broker.
    pub fn client_id_there(&self) -> String {
        self.client_id.clone().unwrap_or_else(|| format!("homing-{}", self.label()))
    }

    /// Returns the version of MQTT.
    pub fn version(&self) -> BridgeVersion {
        self.version.unwrap_or_default()
    }

    /// Returns true if each connection begins a new session at the other broker.
    pub fn is_clean(&self) -> bool {
        self.clean_start.unwrap_or(false)
    }

    /// Returns the most messages that the other broker has not acknowledged.
    pub fn most_in_flight(&self) -> u16 {
        self.in_flight.unwrap_or(100)
    }

    /// Returns the topic of notifications; `None` if there are none.
    pub fn notifications(&self) -> Option<String> {
        let topic = || notification_topic(&self.client_id_there());
        self.notifications?.then(|| self.notification_topic.clone().unwrap_or_else(topic))
    }

    /// Returns the bounds of the queue that differ from those of other sessions.
    pub fn queue_bounds(&self) -> QueueBounds {
        QueueBounds {
            messages: self.queue_messages.map(|messages| messages as usize),
            bytes: self.queue_bytes.map(ByteSize::as_usize),
        }
    }

    /// Returns the largest packet that leaves, if the other broker takes larger ones.
    pub fn largest_packet(&self) -> Option<u32> {
        self.max_packet_size.map(|size| u32::try_from(size.bytes()).unwrap_or(u32::MAX))
    }

    /// Returns the Keep Alive in seconds.
    pub fn keep_alive_secs(&self) -> u16 {
        self.keep_alive.map_or(60, |time| u16::try_from(time.as_secs()).unwrap_or(u16::MAX))
    }

    /// Returns the Session Expiry Interval in seconds.
    pub fn session_expiry_secs(&self) -> u32 {
        self.session_expiry.map_or(7 * 86_400, |time| u32::try_from(time.as_secs()).unwrap_or(u32::MAX - 1))
    }

    /// Returns the time for a connection.
    pub fn patience(&self) -> Duration {
        self.connect_timeout.unwrap_or(Duration::from_secs(10))
    }

    /// Returns the time without an acknowledgement.
    pub fn ack_patience(&self) -> Duration {
        self.ack_timeout.unwrap_or(Duration::from_secs(60))
    }

    /// Returns the time at which the bridge connects.
    pub fn connect_when(&self) -> ConnectWhen {
        self.connect.unwrap_or_default()
    }

    /// Returns the time without a message after which a bridge on demand disconnects.
    pub fn idle_patience(&self) -> Duration {
        self.idle_timeout.unwrap_or(Duration::from_secs(60))
    }

    /// Returns the shortest and the longest time between two attempts.
    pub fn waits(&self) -> (Duration, Duration) {
        let first = self.backoff.unwrap_or(Duration::from_secs(1));
        (first, self.max_backoff.unwrap_or(Duration::from_secs(300)).max(first))
    }

    /// Returns the rules about topics.
    pub fn rules(&self) -> impl Iterator<Item = TopicRule> {
        self.topics.iter().flatten().map(|topic| TopicRule {
            direction: topic.direction.unwrap_or_default(),
            filter: topic.filter.clone().unwrap_or_default(),
            qos: topic.qos.unwrap_or(QoS::AtLeastOnce),
            local_prefix: topic.local_prefix.clone().unwrap_or_default(),
            remote_prefix: topic.remote_prefix.clone().unwrap_or_default(),
            retain: topic.retain.unwrap_or_default(),
        })
    }
}

const LIST: TableList = TableList { key: "bridges", item: "bridge", most: 1_000 };

/// Returns every problem with the value of `bridges`.
pub(super) fn problems(value: &Value) -> Vec<Problem> {
    LIST.problems(value, |problems, table| {
        let mut fields = table.fields.clone();
        check_addresses(problems, table, &mut fields);
        problems.check(&table.name, &fields, Bridge::FIELDS, "a bridge");
        let missing: Vec<&str> = ["name", "addresses", "topics"]
            .into_iter()
            .filter(|key| !table.fields.contains_key(*key))
            .collect();
        if !missing.is_empty() {
            problems.refuse(&table.name, table.value, &format!("a bridge with {}", missing.join(" and ")));
        }
        LIST.refuse_repeated("name", table, problems);
        check_pairs(problems, table);
        if let Some(ValueKind::Array(topics)) = table.fields.get("topics").map(|topics| &topics.kind) {
            for (at, topic) in topics.iter().enumerate() {
                check_topic(problems, &format!("{}: topic {}", table.name, at + 1), topic);
            }
        }
    })
}

/// Refuses an address that may have a password, without showing it, and takes the addresses away
/// from the other checks.
fn check_addresses(problems: &mut Problems, table: &ListedTable<'_>, fields: &mut Map<String, Value>) {
    let Some(addresses) = fields.get("addresses") else { return };
    let has_secret = |value: &Value| value.to_string().contains('@');
    let is_secret = match &addresses.kind {
        ValueKind::Array(items) => items.iter().any(has_secret),
        _ => has_secret(addresses),
    };
    if is_secret {
        let allowed = "addresses without user and password: the keys user and password_file have them";
        problems.refuse(&format!("{}: addresses", table.name), &Value::new(None, "..."), allowed);
        fields.remove("addresses");
    }
}

/// Checks the keys that need another key beside them.
fn check_pairs(problems: &mut Problems, table: &ListedTable<'_>) {
    let has = |key: &str| table.fields.contains_key(key);
    let has_tls = match table.fields.get("addresses").map(|value| &value.kind) {
        Some(ValueKind::Array(items)) => {
            items.iter().any(|item| BridgeAddress::read(item).is_none_or(|address| address.is_tls))
        }
        _ => true,
    };
    let version = table.fields.get("version").and_then(BridgeVersion::read).unwrap_or_default();
    let connect = table.fields.get("connect").and_then(ConnectWhen::read).unwrap_or_default();
    let client_id = table.fields.get("client_id").and_then(value::text).unwrap_or_default();
    let has_plain_client_id = is_topic_name(&notification_topic(client_id));
    let is_on = |key: &str| table.fields.get(key).and_then(bool::read) == Some(true);
    for (key, is_right, allowed) in [
        ("password_file", has("user"), "beside user"),
        ("certificate", has("key"), "beside key, the key of the certificate"),
        ("key", has("certificate"), "beside certificate, the certificate of the key"),
        ("ca", has_tls, "beside an address tls://HOST or wss://HOST"),
        ("certificate", has_tls, "beside an address tls://HOST or wss://HOST"),
        ("server_name", has_tls, "beside an address tls://HOST or wss://HOST"),
        ("alpn", has_tls, "beside an address tls://HOST or wss://HOST"),
        ("notification_topic", is_on("notifications"), "beside notifications = true"),
        (
            "notifications",
            !is_on("notifications") || has("notification_topic") || has_plain_client_id,
            "beside notification_topic: no topic can have the client_id",
        ),
        ("idle_timeout", connect == ConnectWhen::OnDemand, "beside connect = \"on_demand\""),
        (
            "connect",
            connect != ConnectWhen::OnDemand || has_waiting_topic(table),
            "beside a topic with direction out or both and qos 1 or 2: a message of QoS 0 does not wait",
        ),
        (
            "bridge_bit",
            !is_on("bridge_bit") || version == BridgeVersion::V3_1_1,
            "beside version = \"3.1.1\": 5.0 says the same by itself",
        ),
    ] {
        if let Some(value) = table.fields.get(key).filter(|_| !is_right) {
            problems.refuse(&format!("{}: {key}", table.name), value, allowed);
        }
    }
}

/// Returns true if a topic lets messages wait here: they leave, and have QoS 1 or 2. A topic with
/// another mistake counts.
fn has_waiting_topic(table: &ListedTable<'_>) -> bool {
    let Some(ValueKind::Array(topics)) = table.fields.get("topics").map(|topics| &topics.kind) else {
        return true;
    };
    topics.iter().any(|topic| {
        let ValueKind::Table(fields) = &topic.kind else { return true };
        let direction = fields.get("direction").and_then(Direction::read);
        let qos = fields.get("qos").and_then(QoS::read);
        direction != Some(Direction::In) && qos != Some(QoS::AtMostOnce)
    })
}

fn check_topic(problems: &mut Problems, name: &str, topic: &Value) {
    let ValueKind::Table(fields) = &topic.kind else { return };
    problems.check(name, fields, BridgeTopic::FIELDS, "a topic of a bridge");
    let missing: Vec<&str> =
        ["direction", "filter"].into_iter().filter(|key| !fields.contains_key(*key)).collect();
    if !missing.is_empty() {
        problems.refuse(name, topic, &format!("a topic with {}", missing.join(" and ")));
    }
    let text = |key: &str| fields.get(key).and_then(value::text).unwrap_or_default();
    for prefix in ["local_prefix", "remote_prefix"] {
        let filter = format!("{}{}", text(prefix), text("filter"));
        let is_filter = TopicFilter::parse(&filter, usize::MAX).is_ok_and(|filter| !filter.is_shared());
        if let Some(value) = fields.get(prefix).filter(|_| !is_filter && fields.contains_key("filter")) {
            problems.refuse(
                &format!("{name}: {prefix}"),
                value,
                "a prefix that makes a topic filter with filter",
            );
        }
    }
}

fn are_addresses(value: &Value) -> bool {
    matches!(&value.kind, ValueKind::Array(items)
        if !items.is_empty() && items.len() <= 16 && items.iter().all(|item| BridgeAddress::read(item).is_some()))
}

fn are_alpn(value: &Value) -> bool {
    are_texts(value) && <Vec<String>>::read(value).is_some_and(|names| names.len() <= 16)
}

fn are_tables(value: &Value) -> bool {
    let is_table = |item: &Value| matches!(item.kind, ValueKind::Table(_));
    matches!(&value.kind, ValueKind::Array(items) if !items.is_empty() && items.iter().all(is_table))
}

fn is_topic(value: &Value) -> bool {
    value::text(value).is_some_and(is_topic_name)
}

fn is_prefix(value: &Value) -> bool {
    value::text(value).is_some_and(|text| text.is_empty() || text.len() <= 1_024 && is_topic_name(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::sources::load_text as load;

    #[test]
    fn a_bridge_is_read_with_its_topics_and_has_defaults_for_the_rest() {
        let config = load(
            "[[bridges]]\nname = \"cloud\"\naddresses = [\"tls://cloud.example\", \"mqtt://[::1]:1884\", \
             \"ws://cloud.example\", \"wss://[::1]:9001/a/b?key=c\"]\n\
             [[bridges.topics]]\ndirection = \"out\"\nfilter = \"sensors/#\"\nremote_prefix = \"plant-7/\"\n\
             [[bridges.topics]]\ndirection = \"in\"\nfilter = \"orders\"\nqos = 2\nretain = \"never\"\n",
        )
        .expect("a lawful bridge");
        let [bridge] = &config.bridges[..] else { panic!("{:?}", config.bridges) };
        let addresses: Vec<String> = bridge.addresses.iter().flatten().map(ToString::to_string).collect();
        assert_eq!(
            addresses,
            [
                "tls://cloud.example:8883",
                "mqtt://[::1]:1884",
                "ws://cloud.example:80/mqtt",
                "wss://[::1]:9001/a/b?key=c"
            ]
        );
        let rules: Vec<TopicRule> = bridge.rules().collect();
        assert_eq!((rules[0].qos, rules[0].remote_filter()), (QoS::AtLeastOnce, "plant-7/sensors/#".into()));
        assert_eq!((rules[1].direction, rules[1].retain), (Direction::In, RetainedAtStart::Never));
        assert_eq!((bridge.client_id_there(), bridge.keep_alive_secs()), ("homing-cloud".into(), 60));
    }

    #[test]
    fn every_mistake_is_told_at_once_and_no_password_is_shown() {
        let refusal = load(
            "[[bridges]]\nname = \"a b\"\naddresses = [\"mqtt://ann:secret@host\"]\nkey = \"k\"\nbridge_bit = true\nalpn = [\"\"]\n\
             [[bridges.topics]]\ndirection = \"up\"\nfilter = \"a/#\"\nlocal_prefix = \"+/\"\nqos = 3\n\
             [[bridges]]\nname = \"c\"\naddresses = [\"mqtt://host/mqtt\"]\npassword_file = \"p\"\nwhat = 1\nnotification_topic = \"t\"\nidle_timeout = \"5s\"\n\
             [[bridges]]\nname = \"d\"\naddresses = [\"mqtt://host\"]\nconnect = \"on_demand\"\nclient_id = \"a+b\"\nnotifications = true\nqueue_bytes = 5\nqueue_messages = 0\n\
             [[bridges.topics]]\ndirection = \"out\"\nfilter = \"a\"\nqos = 0\n",
        )
        .expect_err("mistakes");
        for mistake in [
            "bridges, bridge 1: name",
            "bridges, bridge 1: addresses",
            "bridges, bridge 1: key",
            "bridges, bridge 1: bridge_bit",
            "bridges, bridge 1: alpn",
            "bridges, bridge 1: topic 1: direction",
            "bridges, bridge 1: topic 1: local_prefix",
            "bridges, bridge 1: topic 1: qos",
            "bridges, bridge 2: addresses",
            "bridges, bridge 2: password_file",
            "bridges, bridge 2: what",
            "bridges, bridge 2: idle_timeout",
            "bridges, bridge 2: notification_topic",
            "bridges, bridge 3: connect",
            "bridges, bridge 3: notifications",
            "bridges, bridge 3: queue_bytes",
            "bridges, bridge 3: queue_messages",
            "a bridge with topics",
        ] {
            assert!(refusal.contains(mistake), "{mistake}: {refusal}");
        }
        assert!(!refusal.contains("secret"), "{refusal}");
    }
}
