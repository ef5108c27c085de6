//! Secrets in files, and reloads.

use crate::broker::{Broker, sink};
use crate::service::{OK, Reply, Service};
use crate::support::Message;
use std::fs;

#[test]
fn a_secret_comes_from_its_file_and_a_new_one_counts_after_a_refusal() {
    let directory = tempfile::tempdir().expect("a directory");
    let token = directory.path().join("token");
    fs::write(&token, "Bearer old\n").expect("a file");
    let service = Service::start(|_, request| match request.headers("authorization")[..] {
        ["Bearer new"] => OK,
        _ => Reply::Answer("401 Unauthorized", ""),
    });
    let keys = format!("header_files = {{ Authorization = \"{}\" }}\n", token.display());
    let mut broker = Broker::start(&sink(&service.url, &keys));
    broker.client("writer").deliver(&Message::new("t/1", "1").qos(1));
    let line = broker.says("sink.request_failed");
    assert!(line.contains("refuses the credentials of the sink (HTTP 401)"), "{line}");
    assert!(!line.contains("Bearer"), "{line}");
    fs::remove_file(&token).expect("a file");
    let line = broker.says("cannot be read");
    assert!(line.contains("header_files") && line.contains("token"), "{line}");
    fs::write(&token, "two\nlines\n").expect("a file");
    broker.says("the value of a header is one line of visible ASCII");
    fs::write(&token, "Bearer new\n").expect("a file");
    broker.says("sink.recovered");
    let all = service.requests();
    assert_eq!(all.last().expect("a request").headers("authorization"), ["Bearer new"]);
    assert!(all.iter().all(|request| request.key() == all[0].key()));
}

#[test]
fn a_reload_begins_changes_and_ends_sinks_and_what_waits_stays() {
    let (first, second) = (Service::accepting(), Service::accepting());
    let mut broker = Broker::start(&sink(&first.url, ""));
    let mut client = broker.client("writer");
    client.deliver(&Message::new("t/1", "1").qos(1));
    assert_eq!(first.expect_payloads(1), ["1"]);
    broker.reload("");
    broker.says("sink.removed");
    client.deliver(&Message::new("t/1", "2").qos(1));
    client.deliver(&Message::new("v/1", "nobody").qos(1));
    let other = sink(&second.url, "").replace("\"t/#\"", "\"t/1\", \"v/#\"");
    broker.reload(&other);
    broker.says("sink.ready");
    client.deliver(&Message::new("t/2", "not any more").qos(1));
    client.deliver(&Message::new("v/1", "3").qos(1));
    assert_eq!(second.expect_payloads(2), ["2", "3"]);
    assert_eq!(first.requests().len(), 1);
    assert_eq!(broker.ctl(&["sinks"]).lines().count(), 2);
}

#[test]
fn the_rules_of_acl_user_hold_for_the_session_also_after_a_reload_names_another() {
    let directory = tempfile::tempdir().expect("a directory");
    let acl = directory.path().join("acl");
    fs::write(&acl, "topic readwrite #\nuser reader\ntopic read t/open/#\n").expect("a file");
    let service = Service::accepting();
    let keys = "acl_user = \"nobody\"\n";
    let text = format!("[acl]\nfile = \"{}\"\n{}", acl.display(), sink(&service.url, keys));
    let mut broker = Broker::start(&text);
    broker.client("writer").deliver(&Message::new("t/1", "1").qos(1));
    broker.reload(&text.replace("nobody", "reader"));
    broker.says("sink.ready");
    let mut client = broker.client("writer");
    client.deliver(&Message::new("t/closed", "not for it").qos(1));
    client.deliver(&Message::new("t/open/1", "2").qos(1));
    assert_eq!(service.expect_payloads(1).last().map(String::as_str), Some("2"));
}
