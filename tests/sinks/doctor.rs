//! What `homing doctor` says of the service of a sink.

use crate::broker::sink;
use crate::service::{OK, Reply, Service};
use std::net::TcpListener;
use std::process::Command;

/// Runs the doctor with these sinks. Returns what it says of services.
fn doctor(sinks: &str, flags: &[&str]) -> Vec<String> {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("homing.toml");
    std::fs::write(&file, sinks).expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
    command.arg("doctor").args(flags).arg("--config").arg(&file);
    command.args(["--set", "network.listen=127.0.0.1:0", "--set", "admin.addresses=off"]);
    command.args(["--set", "store.durability=none", "--set", "admin.socket=off"]);
    let output = command.output().expect("it runs");
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines().filter(|line| line[6..].starts_with("sink ")).map(str::to_owned).collect()
}

#[test]
fn a_service_is_reached_without_a_message_unless_the_flag_asks_for_a_post() {
    let service = Service::start(|_, request| match request.head.starts_with("OPTIONS ") {
        true => Reply::Answer("405 Method", ""),
        false => OK,
    });
    let lines = doctor(&sink(&service.url, ""), &[]);
    let expected =
        format!("ok    sink           s: {} is reached, and answers HTTP 405 to OPTIONS", service.url);
    assert!(lines.len() == 1 && lines[0].starts_with(&expected), "{lines:#?}");
    let lines = doctor(&sink(&service.url, ""), &["--post-to-sinks"]);
    assert_eq!(
        lines,
        [format!("ok    sink           s: {} accepts an empty batch with HTTP 204", service.url)]
    );
    let requests = service.requests();
    let [options, post] = &requests[..] else { panic!("{requests:?}") };
    assert!(options.head.starts_with("OPTIONS /in HTTP/1.1\r\n") && options.body.is_empty(), "{options:?}");
    assert!(post.head.starts_with("POST /in HTTP/1.1\r\n") && post.text() == "[]", "{post:?}");
}

#[test]
fn a_service_that_is_away_hangs_or_refuses_says_so_in_time() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let hangs = format!("http://{}/", silent.local_addr().expect("an address"));
    let refuses = Service::start(|_, _| Reply::Answer("403 Forbidden", "who are you"));
    for (url, flags, begins, why) in [
        ("http://127.0.0.1:1/", &[][..], "fail", "cannot connect: Connection refused"),
        (&*hangs, &[], "fail", "no answer within timeout"),
        (&*refuses.url, &[], "warn", "refuses the credentials of the sink (HTTP 403)"),
        (&*refuses.url, &["--post-to-sinks"], "fail", "refuses the credentials of the sink (HTTP 403)"),
    ] {
        let lines = doctor(&sink(url, "timeout = \"500ms\"\n"), flags);
        assert_eq!(lines.len(), 1, "{url}: {lines:#?}");
        assert!(lines[0].starts_with(begins) && lines[0].contains(why), "{why}: {lines:#?}");
    }
}
