//! Secrets in files, and reloads.

use crate::broker::{Broker, sink};
use crate::service::{OK, Reply, Service};
use crate::support::{Message, until};
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
    for (content, why) in [
        (b"two\nlines\n".to_vec(), "the value of a header is one line of visible ASCII"),
        (b" \n".to_vec(), "is empty, and should have the value of the header"),
        (vec![b'x'; 70 << 10], "it is larger than 64"),
        (b"\xFF\xFE\0\x01".to_vec(), "the value of a header is one line of visible ASCII"),
    ] {
        fs::write(&token, content).expect("a file");
        // An attempt may have met the file while it was written.
        broker.says(why);
    }
    fs::write(&token, "Bearer new\n").expect("a file");
    broker.says("sink.recovered");
    let all = service.requests();
    assert_eq!(all.last().expect("a request").headers("authorization"), ["Bearer new"]);
    assert!(all.iter().all(|request| request.key() == all[0].key()));
}

#[test]
fn a_reload_reads_the_file_of_a_header_again_and_the_next_request_has_its_value() {
    let directory = tempfile::tempdir().expect("a directory");
    let token = directory.path().join("token");
    fs::write(&token, "Bearer old").expect("a file");
    let service = Service::accepting();
    let keys = format!("header_files = {{ Authorization = \"{}\" }}\n", token.display());
    let text = sink(&service.url, &keys);
    let mut broker = Broker::start(&text);
    let mut client = broker.client("writer");
    client.deliver(&Message::new("t/1", "1").qos(1));
    service.expect(1);
    fs::write(&token, "Bearer new").expect("a file");
    broker.reload(&text);
    broker.says("config.reloaded");
    // The thread of the sinks hears of the reload a moment later.
    until("a request with the new value", || {
        client.deliver(&Message::new("t/1", "2").qos(1));
        let all = service.requests();
        let is_new = all.last().expect("a request").headers("authorization") == ["Bearer new"];
        (is_new || all.len() > 100).then_some(())
    });
    assert!(service.requests().len() <= 100, "it is not read again for a while");
}

#[test]
fn no_value_of_a_header_and_no_query_comes_out_anywhere() {
    let directory = tempfile::tempdir().expect("a directory");
    let token = directory.path().join("token");
    fs::write(&token, "Bearer s3cret-of-a-file\n").expect("a file");
    let service = Service::start(|number, _| match number % 3 {
        0 => Reply::Echo("401 Unauthorized\r\nLocation: http://127.0.0.1/?s3cret-of-a-location"),
        1 => Reply::Echo("302 Found\r\nLocation: http://127.0.0.1/?s3cret-of-a-location"),
        _ => Reply::Echo("422 Unprocessable"),
    });
    let keys = format!(
        "header_files = {{ Authorization = \"{}\" }}\nheaders = {{ X-Key = \"s3cret-of-a-value\" }}\n",
        token.display()
    );
    let url = format!("{}?key=s3cret-of-a-query", service.url);
    let mut broker = Broker::start(&sink(&url, &keys));
    broker.client("writer").deliver(&Message::new("t/1", "1").qos(1));
    let lines = broker.lines_until("sink.message_refused");
    assert!(lines.len() > 2 && lines.iter().any(|line| line.contains("POST /in?...")), "{lines:#?}");
    let mut said = lines;
    for command in [
        &["sinks"][..],
        &["--json", "sinks"],
        &["--json", "config"],
        &["--json", "status"],
        &["where", "--topic", "t/1"],
        &["--json", "dead-letters", "list"],
        &["--json", "client", "$sink/s"],
        &["reload", "--dry-run"],
    ] {
        said.push(broker.ctl(command));
    }
    for arguments in [
        &["check-config", "--without-files"][..],
        &["check-config"],
        &["doctor"],
        &["doctor", "--post-to-sinks"],
    ] {
        said.push(broker.run(arguments));
    }
    for text in &said {
        assert!(!text.contains("s3cret"), "{text}");
    }
    broker.configure(&sink("http://ann:s3cret@127.0.0.1/", "headers = { \"X Y\" = \"s3cret\" }\n"));
    let refused = broker.run(&["check-config"]);
    assert!(refused.contains("without user and password") && !refused.contains("s3cret"), "{refused}");
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
