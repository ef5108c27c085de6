//! The export by OTLP, to a collector that understands the protocol, is away, hangs, or refuses.

use crate::api::ctl;
use crate::http::{LOCAL, answer_to, metric, request, serve_with};
use crate::support::http_server::read_request;
use crate::support::process::Process;
use crate::support::{Connect, Kind, Message, Property, RawClient, Version, until};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point;
use opentelemetry_proto::tonic::metrics::v1::{AggregationTemporality, Metric, NumberDataPoint};
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use std::io::{BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

/// What the collector does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Takes,
    /// It answers with this status.
    Answers(u16),
    /// It never answers.
    Hangs,
}

/// One request, as it came.
#[derive(Clone)]
struct Exported {
    head: String,
    body: Vec<u8>,
}

/// A collector. It ends with the process of the tests.
struct Collector {
    address: SocketAddr,
    mood: Arc<Mutex<Mood>>,
    /// Requests that were taken.
    taken: Arc<Mutex<Vec<Exported>>>,
    /// Requests that came.
    came: Arc<Mutex<Vec<String>>>,
}

impl Collector {
    fn start() -> Collector {
        Collector::at(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port"), Mood::Takes)
    }

    fn at(listener: TcpListener, mood: Mood) -> Collector {
        let address = listener.local_addr().expect("its address");
        let mood = Arc::new(Mutex::new(mood));
        let collector = Collector { address, mood, taken: Arc::default(), came: Arc::default() };
        let (mood, taken, came) =
            (Arc::clone(&collector.mood), Arc::clone(&collector.taken), Arc::clone(&collector.came));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (mood, taken, came) = (Arc::clone(&mood), Arc::clone(&taken), Arc::clone(&came));
                std::thread::spawn(move || collect(&stream, &mood, &taken, &came));
            }
        });
        collector
    }

    fn is(&self, mood: Mood) {
        *self.mood.lock().expect("nobody panics") = mood;
    }

    fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    fn taken<T: prost::Message + Default>(&self, path: &str) -> Vec<T> {
        let taken = self.taken.lock().expect("nobody panics");
        let of_path = taken.iter().filter(|one| one.head.starts_with(&format!("POST {path} ")));
        of_path.map(|one| T::decode(&*one.body).expect("a request of OTLP")).collect()
    }

    fn came(&self, path: &str) -> usize {
        self.came.lock().expect("nobody panics").iter().filter(|one| *one == path).count()
    }

    /// Returns the metrics of the last request that has them.
    fn metrics(&self) -> Vec<Metric> {
        let last = self.taken::<ExportMetricsServiceRequest>("/v1/metrics").pop().unwrap_or_default();
        let scopes = last.resource_metrics.into_iter().flat_map(|one| one.scope_metrics);
        scopes.flat_map(|scope| scope.metrics).collect()
    }

    fn logs(&self) -> Vec<LogRecord> {
        let all = self.taken::<ExportLogsServiceRequest>("/v1/logs").into_iter();
        let scopes = all.flat_map(|one| one.resource_logs).flat_map(|one| one.scope_logs);
        scopes.flat_map(|scope| scope.log_records).collect()
    }

    fn spans(&self) -> Vec<Span> {
        let all = self.taken::<ExportTraceServiceRequest>("/v1/traces").into_iter();
        let scopes = all.flat_map(|one| one.resource_spans).flat_map(|one| one.scope_spans);
        scopes.flat_map(|scope| scope.spans).collect()
    }

    /// Returns the first line of the log with this event that `is_right` accepts.
    fn line(&self, event: &str, is_right: impl Fn(&LogRecord) -> bool) -> LogRecord {
        until(&format!("the line {event}"), || {
            self.logs().into_iter().find(|line| line.event_name == event && is_right(line))
        })
    }
}

/// Takes the requests of one connection.
fn collect(
    stream: &TcpStream,
    mood: &Mutex<Mood>,
    taken: &Mutex<Vec<Exported>>,
    came: &Mutex<Vec<String>>,
) -> Option<()> {
    let (mut reader, mut out) = (BufReader::new(stream), stream);
    loop {
        let (head, body) = read_request(&mut reader)?;
        came.lock().ok()?.push(head.split(' ').nth(1)?.to_owned());
        let mood = *mood.lock().ok()?;
        match mood {
            Mood::Takes => {
                taken.lock().ok()?.push(Exported { head, body });
                write!(out, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").ok()?;
            }
            Mood::Answers(status) => {
                write!(out, "HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n").ok()?;
            }
            Mood::Hangs => {
                // Until the broker gives up.
                let _ = reader.read(&mut [0]);
                return None;
            }
        }
    }
}

/// A broker with an export, an ACL file and a Unix socket.
struct Exporting {
    process: Process,
    mqtt: SocketAddr,
    admin: SocketAddr,
    directory: tempfile::TempDir,
}

impl Exporting {
    fn start(endpoint: &str, otlp: &str) -> Exporting {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join("acl"), "topic readwrite open/#\n").expect("a file");
        write_file(directory.path(), endpoint, otlp);
        let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--ephemeral", "--config"]);
        command.arg(directory.path().join("homing.toml"));
        command.args(["--set", "admin.addresses=127.0.0.1:0", "--set", "runtime.threads=2"]);
        command.arg("--set").arg(format!("admin.socket={}", directory.path().join("s").display()));
        command.arg("--set").arg(format!("acl.file={}", directory.path().join("acl").display()));
        let (process, mqtt, admin) = serve_with(&mut command);
        Exporting { process, mqtt, admin, directory }
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("s")
    }

    fn reload(&self, endpoint: &str, otlp: &str) -> (Option<i32>, String) {
        write_file(self.directory.path(), endpoint, otlp);
        ctl(&self.socket(), &["reload"])
    }

    fn connect(&self, client_id: &str) -> RawClient {
        RawClient::connect(self.mqtt, &Connect::new(Version::V5, client_id))
    }

    /// Publishes a message that no rule allows.
    fn publish_denied(&self, client_id: &str) {
        let mut client = self.connect(client_id);
        client.deliver(&Message::new("closed/door", "x").qos(1));
        client.disconnect();
    }

    /// Returns true if the thread of the export runs.
    fn has_thread(&self) -> bool {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.process.id())).expect("its threads");
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
        names.into_iter().any(|name| name.trim() == "homing-otlp")
    }

    fn metric(&self, name: &str) -> Option<f64> {
        metric(self.admin, name)
    }

    /// Returns the kinds of the present problems.
    fn problems(&self) -> Vec<String> {
        let (_, text) = ctl(&self.socket(), &["--json", "status"]);
        let body: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let rows = body["problems"].as_array().expect("problems");
        rows.iter().filter_map(|row| row["kind"].as_str().map(str::to_owned)).collect()
    }
}

fn write_file(directory: &Path, endpoint: &str, otlp: &str) {
    let text = format!("[otlp]\nendpoint = \"{endpoint}\"\ninterval = \"1s\"\n{otlp}\n");
    std::fs::write(directory.join("homing.toml"), text).expect("a file");
}

fn text(attributes: &[KeyValue], key: &str) -> String {
    let found = attributes.iter().find(|attribute| attribute.key == key);
    match found.and_then(|attribute| attribute.value.as_ref()?.value.clone()) {
        Some(Value::StringValue(text)) => text,
        other => format!("{other:?}"),
    }
}

/// Returns the sum of a metric with this label value.
fn sum(metrics: &[Metric], name: &str, label: (&str, &str)) -> Option<i64> {
    let metric = metrics.iter().find(|metric| metric.name == name)?;
    let Some(Data::Sum(sum)) = &metric.data else { panic!("{metric:?}") };
    assert!(sum.is_monotonic && sum.aggregation_temporality() == AggregationTemporality::Cumulative);
    let is_wanted = |point: &&NumberDataPoint| text(&point.attributes, label.0) == label.1;
    match sum.data_points.iter().find(is_wanted)?.value {
        Some(number_data_point::Value::AsInt(value)) => Some(value),
        other => panic!("{other:?}"),
    }
}

#[test]
fn metrics_arrive_with_the_values_of_a_scrape_and_the_names_of_the_broker() {
    let collector = Collector::start();
    let headers = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(headers.path(), "Authorization: Bearer secret\n").expect("a file");
    let keys = format!(
        "signals = [\"metrics\"]\nservice_name = \"plant\"\ninstance_id = \"north\"\nheaders = \"{}\"",
        headers.path().display()
    );
    let broker = Exporting::start(&collector.endpoint(), &keys);
    let mut receiver = broker.connect("pump-7");
    receiver.subscribe(&[("open/#", 1)]);
    let mut app = broker.connect("app");
    for _ in 0..3 {
        app.deliver(&Message::new("open/door", "x").qos(1));
        let publish = receiver.expect_publish();
        receiver.ack(Kind::Puback, publish.id);
    }
    let metrics = until("the acknowledgements", || {
        let metrics = collector.metrics();
        let received = sum(&metrics, "homing_packets_received_total", ("type", "puback"));
        (received == Some(3)).then_some(metrics)
    });
    assert_eq!(sum(&metrics, "homing_publishes_received_total", ("qos", "1")), Some(3));
    let find = |name: &str| metrics.iter().find(|metric| metric.name == name).expect(name);
    let Some(Data::Histogram(histogram)) = &find("homing_delivery_ack_seconds").data else { panic!() };
    let point = &histogram.data_points[0];
    assert_eq!((point.count, point.bucket_counts.iter().sum::<u64>()), (3, 3));
    assert_eq!(find("homing_delivery_ack_seconds").unit, "s");
    let Some(Data::Gauge(gauge)) = &find("homing_sessions").data else { panic!() };
    assert_eq!(text(&gauge.data_points[0].attributes, "state"), "connected");
    assert_eq!(gauge.data_points[0].value, Some(number_data_point::Value::AsInt(2)));
    // Each family of a scrape is there.
    let (_, scrape) = request(broker.admin, "GET", "/metrics", LOCAL);
    let families = scrape.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    for name in families.filter(|name| !name.contains("admin_request")) {
        assert!(metrics.iter().any(|metric| metric.name == name), "{name}");
    }
    let request = collector.taken::<ExportMetricsServiceRequest>("/v1/metrics").pop().expect("a request");
    let resource = request.resource_metrics[0].resource.clone().expect("a resource").attributes;
    assert_eq!(
        (text(&resource, "service.name"), text(&resource, "service.instance.id")),
        ("plant".into(), "north".into())
    );
    let head = collector.taken.lock().expect("nobody panics")[0].head.to_lowercase();
    assert!(
        head.contains("authorization: bearer secret") && head.contains("application/x-protobuf"),
        "{head}"
    );
    assert_eq!((collector.came("/v1/logs"), collector.came("/v1/traces")), (0, 0), "they are not exported");
    let (_, shown) = ctl(&broker.socket(), &["config"]);
    assert!(shown.contains("otlp.headers") && !shown.contains("Bearer"), "{shown}");
}

#[test]
fn a_denied_publish_arrives_as_a_log_line_and_a_traced_message_as_spans() {
    let collector = Collector::start();
    let broker = Exporting::start("off", "");
    assert!(!broker.has_thread(), "nothing is exported");
    let (code, said) = broker.reload(&collector.endpoint(), "");
    assert_eq!(code, Some(0), "{said}");
    collector.line("config.reloaded", |_| true);
    assert!(broker.has_thread());
    broker.publish_denied("ann1");
    let line = collector.line("client.publish_refused", |_| true);
    assert_eq!((line.severity_text.as_str(), text(&line.attributes, "client_id").as_str()), ("WARN", "ann1"));
    assert_eq!(text(&line.attributes, "topic"), "closed/door");
    let connected = collector.line("client.connected", |_| true);
    assert_eq!(connected.severity_text, "INFO");
    assert!(connected.time_unix_nano <= line.time_unix_nano);

    let wanted = r#"{"topics": ["open/#", "closed/#"], "for": "5m", "payload": true}"#;
    let (code, answer) = begin_trace(&broker, wanted);
    assert_eq!(code, 201, "{answer}");
    let mut receiver = broker.connect("pump-7");
    receiver.subscribe(&[("open/#", 1)]);
    let mut app = broker.connect("app");
    let parent = Property::User(
        "traceparent".into(),
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into(),
    );
    app.deliver(&Message::new("open/door", "sesame").qos(1).with(parent));
    let publish = receiver.expect_publish();
    receiver.ack(Kind::Puback, publish.id);
    broker.publish_denied("ann2");
    let spans = until("three spans", || Some(collector.spans()).filter(|spans| spans.len() >= 3));
    let find = |name: &str, client: &str| {
        let found = spans
            .iter()
            .find(|span| span.name == name && text(&span.attributes, "messaging.client.id") == client);
        found.unwrap_or_else(|| panic!("{name} of {client}: {spans:#?}"))
    };
    let (publish, deliver, denied) =
        (find("publish", "app"), find("deliver", "pump-7"), find("publish", "ann2"));
    assert_eq!((publish.trace_id[0], publish.parent_span_id[0]), (0x0a, 0xb7), "the trace of the publisher");
    assert_eq!((&deliver.trace_id, &deliver.parent_span_id), (&publish.trace_id, &publish.span_id));
    assert_eq!(text(&deliver.attributes, "messaging.destination.name"), "open/door");
    let events: Vec<&str> = deliver.events.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(events, ["sent", "acknowledged"]);
    assert_eq!(text(&deliver.attributes, "homing.outcome"), "acknowledged");
    let status = denied.status.clone().expect("an error");
    assert_eq!((status.code(), status.message.as_str()), (StatusCode::Error, "not_authorized"));
    assert!(!format!("{spans:?}").contains("sesame"), "no payload is exported");
}

/// Begins a trace by the Unix socket, whose user is an administrator.
fn begin_trace(broker: &Exporting, wanted: &str) -> (u16, String) {
    let mut socket = UnixStream::connect(broker.socket()).expect("it listens");
    let length = wanted.len();
    let head = format!(
        "POST /api/v1/traces HTTP/1.1\r\nConnection: close\r\n{LOCAL}Content-Length: {length}\r\n\r\n{wanted}"
    );
    answer_to(&mut socket, &head)
}

#[test]
fn a_collector_that_hangs_or_refuses_delays_nothing_and_gets_what_waited_once_it_answers() {
    let collector = Collector::start();
    collector.is(Mood::Hangs);
    let mut broker = Exporting::start(&collector.endpoint(), "timeout = \"300ms\"");
    until("a request", || (collector.came("/v1/logs") > 0).then_some(()));
    broker.publish_denied("while-it-hangs");
    until("the count", || {
        (broker.metric("homing_otlp_failed_requests_total{signal=\"logs\"}")? > 0.0).then_some(())
    });
    assert_eq!(broker.problems(), ["export_fails"]);
    collector.is(Mood::Answers(503));
    broker.publish_denied("while-it-refuses");
    until("another request", || (collector.came("/v1/logs") > 2).then_some(()));
    collector.is(Mood::Takes);
    for client in ["while-it-hangs", "while-it-refuses"] {
        collector.line("client.publish_refused", |line| text(&line.attributes, "client_id") == client);
    }
    broker.process.line("event=otlp.recovered").expect("the broker runs");
    until("no problem", || broker.problems().is_empty().then_some(()));
    assert_eq!(
        broker.metric("homing_otlp_records_lost_total{signal=\"logs\"}"),
        Some(0.0),
        "the queue had room"
    );
    assert!(
        broker.metric("homing_otlp_records_lost_total{signal=\"metrics\"}") > Some(0.0),
        "metrics are not repeated"
    );
    // The lines of the export itself are written, and not exported.
    let is_own = |line: &LogRecord| line.event_name.starts_with("otlp.") && line.event_name != "otlp.started";
    assert_eq!(collector.logs().into_iter().filter(is_own).count(), 0);
}

#[test]
fn a_refused_request_is_lost_and_counted_and_a_reload_goes_to_another_collector() {
    let (wrong, right) = (Collector::start(), Collector::start());
    wrong.is(Mood::Answers(401));
    let broker = Exporting::start(&wrong.endpoint(), "signals = [\"logs\"]");
    until("the loss", || {
        (broker.metric("homing_otlp_records_lost_total{signal=\"logs\"}")? > 0.0).then_some(())
    });
    let (_, status) = ctl(&broker.socket(), &["status"]);
    assert!(status.contains("401; see otlp.headers"), "{status}");
    let (code, text) = broker.reload("127.0.0.1:4318", "");
    assert_eq!(code, Some(2), "{text}");
    assert!(
        text.contains("otlp.endpoint = \"127.0.0.1:4318\"") && text.contains("http://127.0.0.1:4318"),
        "{text}"
    );
    let missing = broker.directory.path().join("missing").display().to_string();
    let (code, text) = broker.reload(&right.endpoint(), &format!("headers = \"{missing}\""));
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("otlp.headers") && text.contains(&missing), "{text}");
    assert_eq!(right.came("/v1/logs"), 0);
    let (code, text) = broker.reload(&right.endpoint(), "");
    assert_eq!(code, Some(0), "{text}");
    broker.publish_denied("after-the-reload");
    right.line("client.publish_refused", |_| true);
    until("the metrics", || (!right.metrics().is_empty()).then_some(()));
    let (code, text) = broker.reload("off", "");
    assert_eq!(code, Some(0), "{text}");
    until("no problem", || broker.problems().is_empty().then_some(()));
}

#[test]
fn a_collector_that_is_away_costs_nothing_and_the_last_lines_come_before_the_end() {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = port.local_addr().expect("its address");
    drop(port);
    let mut broker = Exporting::start(&format!("http://{address}"), "signals = [\"logs\"]");
    until("a failure", || {
        (broker.metric("homing_otlp_failed_requests_total{signal=\"logs\"}")? > 0.0).then_some(())
    });
    broker.publish_denied("while-it-is-away");
    let collector = Collector::at(TcpListener::bind(address).expect("the same port"), Mood::Takes);
    collector.line("client.publish_refused", |_| true);
    broker.process.signal(rustix::process::Signal::TERM);
    assert_eq!(broker.process.end().0, Some(0));
    assert!(
        collector.logs().iter().any(|line| line.event_name == "broker.stopping"),
        "{:#?}",
        collector.logs()
    );
}
