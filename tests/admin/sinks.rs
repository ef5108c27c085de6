//! Sinks, as operators see them: the API, `homing ctl`, the pages, problems and checks.

use crate::api::{Administered, json_of};
use crate::pages::{get, log_in};
use crate::support::http_server::read_request;
use crate::support::until;
use serde_json::Value;
use std::cell::Cell;
use std::io::{BufReader, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;

/// A broker with a sink "data", and the service of the sink.
struct Sinking {
    broker: Administered,
    url: String,
    /// The status of the service's answers.
    status: Arc<AtomicU16>,
    file: tempfile::NamedTempFile,
}

/// Starts a service that answers every request with this status. Returns its URL.
fn serve(status: Arc<AtomicU16>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}/in", listener.local_addr().expect("an address"));
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let status = Arc::clone(&status);
            thread::spawn(move || {
                let mut reader = BufReader::new(stream);
                while read_request(&mut reader).is_some() {
                    let status = status.load(Ordering::SeqCst);
                    let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: 4\r\n\r\nbusy");
                    let _ = reader.get_mut().write_all(answer.as_bytes());
                }
            });
        }
    });
    url
}

impl Sinking {
    fn start(status: u16, more: &str) -> Sinking {
        let status = Arc::new(AtomicU16::new(status));
        let (url, file) = (serve(Arc::clone(&status)), tempfile::NamedTempFile::new().expect("a file"));
        let text = format!(
            "[[sinks]]\nname = \"data\"\nurl = \"{url}?key=of-the-service\"\nfilters = [\"sensors/#\"]\nbackoff = \"200ms\"\n\
             max_backoff = \"1s\"\n{more}"
        );
        std::fs::write(file.path(), text).expect("a file");
        let path = file.path().to_str().expect("text");
        Sinking { broker: Administered::start_with(&["--config", path]), url, status, file }
    }

    fn answer(&self, status: u16) {
        self.status.store(status, Ordering::SeqCst);
    }

    /// Returns what the API says at a path.
    fn get(&self, path: &str) -> Value {
        let (status, answer) = self.broker.ask("GET", path, &self.broker.viewer);
        assert_eq!(status, 200, "{answer}");
        json_of(&answer)
    }

    /// Waits until the sink is as wanted, and returns it as the API has it.
    fn await_sink(&self, what: &str, is_wanted: impl Fn(&Value) -> bool) -> Value {
        let sink = || self.get("/api/v1/sinks")["sinks"][0].clone();
        until(what, || Some(sink()).filter(|sink| is_wanted(sink)))
    }

    /// Waits until `homing ctl` says these words, and returns the whole.
    fn await_said(&self, arguments: &[&str], words: &str) -> String {
        until(words, || Some(self.broker.ctl(arguments).1).filter(|text| text.contains(words)))
    }
}

#[test]
fn a_sink_has_its_messages_its_service_and_what_is_wrong_in_the_api_in_ctl_and_on_its_page() {
    let own = Sinking::start(204, "");
    own.broker.publish("sensors/1", &["1", "2", "3"], 1);
    own.await_sink("the messages", |sink| sink["delivered"] == 3);
    let sent = Cell::new(3);
    own.await_sink("a rate", |sink| {
        own.broker.publish("sensors/1", &["more"], 1);
        sent.set(sent.get() + 1);
        sink["delivered_per_second"].as_f64() > Some(0.0)
    });
    let sink = own.await_sink("all of them", |sink| sink["delivered"] == sent.get());
    assert_eq!(
        (&sink["state"], &sink["last_accepted"]["status"]),
        (&"ready".into(), &204.into()),
        "{sink:#}"
    );
    assert!(sink["batches"].as_u64() >= Some(1) && sink["messages_per_batch"].is_f64(), "{sink:#}");
    assert!(sink["request_p99"].is_f64() && sink["last_error"].is_null(), "{sink:#}");
    assert_eq!(sink["url"], own.url, "without its query");
    let delivered = format!("homing_sink_messages_delivered_total{{sink=\"data\"}} {}", sent.get());
    own.answer(503);
    own.broker.publish("sensors/1", &["4", "5"], 1);
    let sink = own.await_sink("a failure", |sink| sink["state"] == "failing" && sink["in_flight"] == 2);
    assert_eq!(sink["last_error"], "the service answers HTTP 503: busy", "{sink:#}");
    assert_eq!(
        (&sink["last_answer"]["status"], &sink["last_accepted"]["status"]),
        (&503.into(), &204.into())
    );
    assert!(sink["failed"].as_u64() > Some(0) && sink["oldest_unacknowledged"].is_object(), "{sink:#}");
    assert_eq!(sink["oldest_unacknowledged"]["detail"], "the service has not accepted it", "{sink:#}");
    let text = own.await_said(&["sinks"], "the service answers HTTP 503: busy");
    assert!(text.contains("failing") && text.contains("HTTP 503, "), "{text}");
    let cookie = log_in(&own.broker, &own.broker.viewer);
    let (status, page) = get(&own.broker, "/sinks", &cookie);
    let link = r#"href="/clients/%24sink%2Fdata""#;
    for part in [link, "the service answers HTTP 503: busy", "HTTP 503, ", "requests sent again: ", &own.url]
    {
        assert!(status == 200 && page.contains(part), "{part}: {page}");
    }
    assert!(!page.contains("of-the-service") && !text.contains("of-the-service"), "{page}");
    assert_eq!(get(&own.broker, "/clients/%24sink%2Fdata", &cookie).0, 200);
    let metrics = own.broker.ask("GET", "/metrics", &own.broker.viewer).1;
    for line in [
        "homing_sink_ready{sink=\"data\"} 0",
        &delivered,
        "homing_sink_unacknowledged_messages{sink=\"data\"} 2",
        "homing_sink_credentials_refused{sink=\"data\"} 0",
        "homing_sink_request_seconds_count{sink=\"data\"}",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
}

#[test]
fn a_broker_without_sinks_says_how_to_set_one() {
    let broker = Administered::start();
    let cookie = log_in(&broker, &broker.viewer);
    let (_, page) = get(&broker, "/sinks", &cookie);
    assert!(page.contains("No sink is set"), "{page}");
    assert!(broker.ctl(&["sinks"]).1.contains("no sinks"));
}

#[test]
fn where_says_that_the_service_accepts_refuses_or_lets_a_message_wait() {
    let own = Sinking::start(503, "");
    let place = ["where", "--topic", "sensors/1"];
    own.await_said(&place, "nothing waits for it. The service has accepted nothing yet.");
    own.broker.publish("sensors/1", &["1"], 1);
    let text = own.await_said(&place, "the service answers HTTP 503: busy. ");
    let until_then = format!("Until the service accepts it: requests to {} have failed for ", own.url);
    assert!(text.contains("$sink/data (sensors/#, QoS 1)  unacknowledged: packet 1,"), "{text}");
    assert!(text.contains(&until_then) && text.to_lowercase().contains("next attempt"), "{text}");
    assert!(!text.contains("client's host"), "{text}");
    let text = own.await_said(&["inflight", "$sink/data"], "the service accepts it: ");
    assert!(text.contains("HTTP 503"), "{text}");
    own.answer(204);
    let text = own.await_said(&place, "The service accepted all that it was sent, the last with HTTP 204 ");
    assert!(text.contains(" ago, at 20") && text.contains(" UTC."), "{text}");
    own.answer(400);
    own.broker.publish("sensors/1", &["2"], 1);
    let text = own.await_said(&place, "It is a dead letter");
    assert!(text.contains("The last refusal of this topic, ") && text.contains("HTTP 400: busy"), "{text}");
    let sink = own.await_sink("a refusal", |sink| sink["refused"] == 1);
    assert_eq!(
        (&sink["refused_with"][0]["status"], &sink["last_refused"][0]["topic"]),
        (&400.into(), &"sensors/1".into())
    );
    own.answer(503);
    own.broker.publish("sensors/1", &["3"], 1);
    own.await_sink("a failure", |sink| sink["state"] == "failing");
    std::fs::write(own.file.path(), "").expect("a file");
    assert_eq!(own.broker.ctl(&["reload"]).0, Some(0));
    own.await_said(&place, "Until the configuration has this sink again; its session ends in");
}

#[test]
fn a_sink_whose_credentials_are_refused_and_a_bridge_that_is_down_are_problems_with_what_to_do() {
    let bridge = "[[bridges]]\nname = \"cloud\"\naddresses = [\"mqtt://127.0.0.1:1\"]\n\
                  topics = [{ direction = \"out\", filter = \"orders/#\" }]\n";
    let own = Sinking::start(401, bridge);
    own.broker.publish("sensors/1", &["1"], 1);
    let problems = || own.get("/api/v1/overview")["problems"].as_array().expect("a list").clone();
    let of_kind = |kind: &str| until(kind, || problems().into_iter().find(|problem| problem["kind"] == kind));
    let refused = of_kind("sink_refused");
    let (text, advice) = (refused["text"].as_str().expect("text"), refused["advice"].as_str().expect("text"));
    assert!(
        text.starts_with("The service has refused the credentials of the sink data with HTTP 401 for "),
        "{text}"
    );
    assert!(advice.contains("header_files"), "{advice}");
    let down = of_kind("bridge_down");
    let text = down["text"].as_str().expect("text");
    assert!(
        text.contains("The bridge cloud has not been connected for ") && text.contains("Connection refused"),
        "{text}"
    );
    assert!(problems().iter().all(|problem| problem["kind"] != "stuck_clients"), "the sink is no client");
    let status = own.await_said(&["status"], "! The service has refused the credentials");
    assert!(status.contains("! The bridge cloud has not been connected"), "{status}");
    let checks = own.get("/api/v1/doctor");
    let far = |row: &&Value| row["name"] == "far sides" && row["result"] == "warn";
    assert_eq!(checks["checks"].as_array().expect("rows").iter().filter(far).count(), 2, "{checks:#}");
    let cookie = log_in(&own.broker, &own.broker.viewer);
    let (_, page) = get(&own.broker, "/", &cookie);
    for part in
        ["refused the credentials of the sink data", "All sinks", "The bridge cloud has", "All bridges"]
    {
        assert!(page.contains(part), "{part}: {page}");
    }
    own.answer(204);
    until("the problem ends", || {
        problems().iter().all(|problem| problem["kind"] != "sink_refused").then_some(())
    });
}
