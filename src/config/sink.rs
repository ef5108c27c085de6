//! `[[sinks]]`: HTTP services that get messages. A problem in a sink is reported with the number of
//! the sink.

use super::bounds::{ONE_BILLION, ONE_KIB, ONE_TIB};
use super::http_header::{HeaderTable, is_name, is_own, is_value};
use super::listener::{NAME, fields};
use super::problem::Problem;
use super::rule::{ValueRule, ValueType, days, millis, seconds};
use super::service_url::{ServiceUrl, is_service_url};
use super::size::ByteSize;
use super::table_list::{ListedTable, Problems, TableList};
use super::value::{self, Field, named_fields};
use crate::mqtt::packet::QoS;
use crate::mqtt::topic::TopicFilter;
use crate::named_enum::Named;
use crate::session::outbound::queue::QueueBounds;
use crate::sink::SinkFormat;
use crate::sink::dispatcher::SinkTerms;
use config::{Map, Value, ValueKind};
use std::time::Duration;

named_fields!(SinkFormat);

const URL: &str = "http://HOST[:PORT][/PATH] or https://HOST[:PORT][/PATH], without user and password";

const FILTERS: &str = "a list of 1 to 100 topic filters, without $share/";

fields! {
    /// One sink. A field that is `None` was left out, and has the default of its method.
    Sink {
        /// The name: that of the session `$sink/NAME`, and in the log. Each sink has one.
        name: String, NAME.only();
        /// The address of the service.
        url: ServiceUrl, ValueType::Checked(is_service_url, URL).only();
        /// Further headers of each request.
        headers: HeaderTable, ValueType::Checked(are_headers, "a table of names and values in visible ASCII, { X-Site = \"north\" }").only();
        /// Further headers with secret values: the name of each, and the file that has its value.
        header_files: HeaderTable, ValueType::Checked(are_header_files, "a table of names and files, { Authorization = \"/etc/homing/token\" }").only();
        /// The topic filters of the messages.
        filters: Vec<String>, ValueType::Checked(are_filters, FILTERS).only();
        /// The highest QoS with which messages come to the sink, 1 by default.
        qos: QoS, ValueType::Integer(0, 2).only();
        /// The form of a request: "json" (the default), a list of messages, or "raw", one message.
        format: SinkFormat, ValueType::OneOf(SinkFormat::NAMES).only();
        /// Requests at a time, 1 by default. More than one do not keep the order of messages.
        in_flight: u16, ValueType::Integer(1, 64).only();
        /// The most messages of a request, 100 by default; `limits.in_flight` holds too.
        batch_messages: u16, ValueType::Integer(1, 10_000).only();
        /// The most bytes of a request with several messages, 1 MiB by default.
        batch_bytes: ByteSize, ValueType::Size(1 << 10, 64 << 20).only();
        /// The time for which a message waits for others of its batch, 0 s by default.
        batch_wait: Duration, ValueType::Duration(0, seconds(60)).only();
        /// The time for a request: name, TCP, TLS and answer together, 10 s by default.
        timeout: Duration, ValueType::Duration(millis(100), seconds(600)).only();
        /// The time until the second attempt of a request, 1 s by default. It doubles with each
        /// attempt.
        backoff: Duration, ValueType::Duration(millis(10), days(1)).only();
        /// The longest time between two attempts, 1 min by default.
        max_backoff: Duration, ValueType::Duration(millis(10), days(1)).only();
        /// The file with the authorities of the service's certificate; those of the system by
        /// default.
        ca: String, ValueType::Path.only();
        /// The file with the sink's own certificate.
        certificate: String, ValueType::Path.only();
        /// The file with the key of this certificate.
        key: String, ValueType::Path.only();
        /// The time for which the session stays when the configuration has the sink no more, or
        /// while the broker is down; 7 days by default.
        session_expiry: Duration, ValueType::WholeSeconds(1, 4_294_967_294).only();
        /// The most messages in the queue; `store.queue_messages`, or `limits.queue_messages`
        /// without a store, by default.
        queue_messages: u32, ValueType::Integer(1, ONE_BILLION).only();
        /// The most bytes in the queue; `store.queue_bytes`, or `limits.queue_bytes` without a
        /// store, by default.
        queue_bytes: ByteSize, ValueType::Size(ONE_KIB, ONE_TIB).only();
        /// The user whose rules in `acl.file` hold for the session. Without it, the filters alone
        /// decide.
        acl_user: String, ValueType::Checked(value::is_mqtt_text, "a user name").only();
    }
}

impl Sink {
    /// Returns the name. Every sink that passed the checks has one.
    pub fn label(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// Returns the topic filters, each once.
    pub fn own_filters(&self) -> Vec<&str> {
        let mut all: Vec<&str> = Vec::new();
        for filter in self.filters.iter().flatten() {
            if !all.contains(&filter.as_str()) {
                all.push(filter);
            }
        }
        all
    }

    /// Returns the highest QoS.
    pub fn highest_qos(&self) -> QoS {
        self.qos.unwrap_or(QoS::AtLeastOnce)
    }

    /// Returns the time for a request.
    pub fn patience(&self) -> Duration {
        self.timeout.unwrap_or(Duration::from_secs(10))
    }

    /// Returns the Session Expiry Interval in seconds.
    pub fn session_expiry_secs(&self) -> u32 {
        self.session_expiry.map_or(7 * 86_400, |time| u32::try_from(time.as_secs()).unwrap_or(u32::MAX - 1))
    }

    /// Returns the bounds of the queue.
    pub fn queue_bounds(&self) -> QueueBounds {
        QueueBounds {
            messages: self.queue_messages.map(|messages| messages as usize),
            bytes: self.queue_bytes.map(ByteSize::as_usize),
        }
    }

    /// Returns the terms of the requests. `window` is the most messages that the shard sends ahead.
    pub fn terms(&self, window: u16) -> SinkTerms {
        let first = self.backoff.unwrap_or(Duration::from_secs(1));
        SinkTerms {
            format: self.format.unwrap_or_default(),
            in_flight: usize::from(self.in_flight.unwrap_or(1)),
            batch_messages: usize::from(self.batch_messages.unwrap_or(100).min(window)),
            batch_bytes: self.batch_bytes.map_or(1 << 20, ByteSize::as_usize),
            batch_wait: self.batch_wait.unwrap_or_default(),
            waits: (first, self.max_backoff.unwrap_or(Duration::from_secs(60)).max(first)),
        }
    }

    /// Returns the most messages that the shard sends ahead: those of all requests, and those of
    /// the next ones.
    pub fn window(&self) -> u16 {
        let of_request = match self.format.unwrap_or_default() {
            SinkFormat::Json => self.batch_messages.unwrap_or(100),
            SinkFormat::Raw => 1,
        };
        let ahead = u32::from(of_request) * (u32::from(self.in_flight.unwrap_or(1)) + 1);
        u16::try_from(ahead).unwrap_or(u16::MAX).max(LEAST_AHEAD)
    }
}

/// Messages that the shard sends ahead in any case.
const LEAST_AHEAD: u16 = 20;

const LIST: TableList = TableList { key: "sinks", item: "sink", most: 1_000 };

/// Returns every problem with the value of `sinks`.
pub(super) fn problems(value: &Value) -> Vec<Problem> {
    LIST.problems(value, |problems, table| {
        if cfg!(not(feature = "sinks")) {
            problems.refuse(&table.name, table.value, "left out: this build has no feature sinks");
        }
        let mut fields = table.fields.clone();
        check_secrets(problems, table, &mut fields);
        problems.check(&table.name, &fields, Sink::FIELDS, "a sink");
        let missing: Vec<&str> =
            ["name", "url", "filters"].into_iter().filter(|key| !table.fields.contains_key(*key)).collect();
        if !missing.is_empty() {
            problems.refuse(&table.name, table.value, &format!("a sink with {}", missing.join(" and ")));
        }
        LIST.refuse_repeated("name", table, problems);
        check_pairs(problems, table);
    })
}

/// Refuses an address and headers that are wrong, without showing their values: they may have a
/// secret. Takes them away from the other checks.
fn check_secrets(problems: &mut Problems, table: &ListedTable<'_>, fields: &mut Map<String, Value>) {
    let hidden = Value::new(None, "...");
    for key in ["headers", "header_files"] {
        let Some(headers) = fields.get(key).and_then(HeaderTable::read) else { continue };
        for (name, text) in headers.iter() {
            if let Some(allowed) = header_fault(name, text, key) {
                problems.refuse(&format!("{}: {key}.{name}", table.name), &hidden, allowed);
                fields.remove(key);
            }
        }
    }
    for key in ["url", "headers"] {
        let Some((_, rule)) = Sink::FIELDS.iter().find(|(field, _)| *field == key) else { continue };
        if let Some(value) = fields.remove(key).filter(|value| !rule.admits(value)) {
            problems.refuse(&format!("{}: {key}", table.name), &hidden, &rule.instead_of(&value));
        }
    }
}

/// Checks the keys that need another key beside them, or exclude one.
fn check_pairs(problems: &mut Problems, table: &ListedTable<'_>) {
    let has = |key: &str| table.fields.contains_key(key);
    let url = table.fields.get("url").and_then(ServiceUrl::read);
    let has_tls = url.is_none_or(|url| url.is_tls);
    let is_raw = table.fields.get("format").and_then(SinkFormat::read) == Some(SinkFormat::Raw);
    let batch = "beside format = \"json\": a raw request has one message";
    for (key, is_right, allowed) in [
        ("certificate", has("key"), "beside key, the key of the certificate"),
        ("key", has("certificate"), "beside certificate, the certificate of the key"),
        ("ca", has_tls, "beside a url https://HOST"),
        ("certificate", has_tls, "beside a url https://HOST"),
        ("batch_messages", !is_raw, batch),
        ("batch_bytes", !is_raw, batch),
        ("batch_wait", !is_raw, batch),
    ] {
        if let Some(value) = table.fields.get(key).filter(|_| !is_right) {
            problems.refuse(&format!("{}: {key}", table.name), value, allowed);
        }
    }
    let names = |key: &str| table.fields.get(key).and_then(HeaderTable::read).unwrap_or_default();
    let (literal, files) = (names("headers"), names("header_files"));
    for (name, file) in files.iter() {
        if literal.iter().any(|(other, _)| other.eq_ignore_ascii_case(name)) {
            let value = Value::new(None, file);
            problems.refuse(
                &format!("{}: header_files.{name}", table.name),
                &value,
                "without the same name in headers",
            );
        }
    }
}

/// Returns what a header, or the file of one, has to be, if it is not.
fn header_fault(name: &str, text: &str, key: &str) -> Option<&'static str> {
    if !is_name(name) {
        return Some("under a name that HTTP allows, such as X-Site");
    }
    if is_own(name) || name.eq_ignore_ascii_case("idempotency-key") {
        return Some("left out: Homing writes this header itself");
    }
    match key {
        "headers" => (!is_value(text)).then_some("one line of visible ASCII"),
        _ => text.is_empty().then_some("the path of a file"),
    }
}

fn are_headers(value: &Value) -> bool {
    has_no_fault(value, "headers")
}

fn are_header_files(value: &Value) -> bool {
    has_no_fault(value, "header_files")
}

fn has_no_fault(value: &Value, key: &str) -> bool {
    HeaderTable::read(value)
        .is_some_and(|table| table.iter().all(|(name, text)| header_fault(name, text, key).is_none()))
}

fn are_filters(value: &Value) -> bool {
    let is_filter = |item: &Value| {
        let text = value::text(item).unwrap_or_default();
        TopicFilter::parse(text, usize::MAX).is_ok_and(|filter| !filter.is_shared())
    };
    matches!(&value.kind, ValueKind::Array(items)
        if (1..=100).contains(&items.len()) && items.iter().all(is_filter))
}

#[cfg(all(test, feature = "sinks"))]
mod tests {
    use super::*;
    use crate::config::sources::load_text as load;

    #[test]
    fn a_sink_is_read_and_has_defaults_for_the_rest() {
        let config = load(
            "[[sinks]]\nname = \"a\"\nurl = \"https://[::1]:8443/in?key=1\"\nfilters = [\"b/#\", \"c\", \"c\"]\n\
             headers = { X-B = \"2\", X-A = \"1\" }\nbatch_messages = 500\n",
        )
        .expect("a lawful sink");
        let [sink] = &config.sinks[..] else { panic!("{:?}", config.sinks) };
        assert_eq!((sink.label(), sink.own_filters()), ("a", vec!["b/#", "c"]));
        let headers: Vec<_> = sink.headers.as_ref().expect("headers").iter().collect();
        assert_eq!(headers, [("X-A", "1"), ("X-B", "2")]);
        assert_eq!((sink.window(), sink.terms(100).batch_messages), (1_000, 100));
        assert_eq!(sink.url.as_ref().map(Field::write), Some("https://[::1]:8443/in?key=1".into()));
    }

    #[test]
    fn every_mistake_is_told_at_once_and_no_secret_is_shown() {
        let refusal = load(
            "[[sinks]]\nname = \"a b\"\nurl = \"http://ann:secret@host/\"\nfilters = []\nkey = \"k\"\nqos = 3\n\
             headers = { \"X Y\" = \"secret\", content-length = \"secret\", X-Z = \"\", X-Good = \"secret\" }\n\
             [[sinks]]\nname = \"c\"\nurl = \"http://host/\"\nfilters = [\"$share/g/a\"]\nca = \"ca.pem\"\nformat = \"raw\"\n\
             batch_wait = \"1s\"\nheaders = { X-A = \"secret\" }\nheader_files = { x-a = \"f\", Host = \"f\" }\nwhat = 1\n\
             [[sinks]]\nname = \"c\"\nurl = \"ftp://secret\"\nheader_files = { x-b = \"f\" }\nheaders = { X-B = \"secret\" }\n",
        )
        .expect_err("mistakes");
        for mistake in [
            "sinks, sink 1: name",
            "sinks, sink 1: url",
            "sinks, sink 1: filters",
            "sinks, sink 1: key",
            "sinks, sink 1: qos",
            "sinks, sink 1: headers.X Y = \"...\" is not allowed; must be under a name that HTTP allows",
            "sinks, sink 1: headers.content-length = \"...\" is not allowed; must be left out: Homing writes",
            "sinks, sink 1: headers.X-Z = \"...\" is not allowed; must be one line of visible ASCII",
            "sinks, sink 2: filters",
            "sinks, sink 2: ca",
            "sinks, sink 2: batch_wait",
            "sinks, sink 2: header_files.Host",
            "sinks, sink 2: what",
            "sinks, sink 3: name",
            "sinks, sink 3: url",
            "sinks, sink 3: header_files.x-b",
            "a sink with filters",
        ] {
            assert!(refusal.contains(mistake), "{mistake}: {refusal}");
        }
        assert!(!refusal.contains("secret"), "{refusal}");
    }
}
