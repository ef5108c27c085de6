//! The flags of `homing ctl` that name the broker, where none runs.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

/// Runs `homing ctl` with these arguments and a variable for the file of the token. Returns the
/// exit code and the standard error.
fn ctl(arguments: &[&str], token_file: Option<&Path>) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
    command.current_dir(env!("CARGO_TARGET_TMPDIR")).env_clear().arg("ctl").args(arguments);
    command.envs(token_file.map(|file| ("HOMING_TOKEN_FILE", file)));
    let output = command.arg("status").output().expect("the binary was built");
    (output.status.code(), String::from_utf8(output.stderr).expect("text"))
}

#[test]
fn a_url_without_a_token_is_refused_with_the_ways_to_name_its_file() {
    let (code, text) = ctl(&["--url", "http://127.0.0.1:1"], None);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("--token-file") && text.contains("HOMING_TOKEN_FILE"), "{text}");
    let (code, text) = ctl(&["--url", "http://127.0.0.1:1"], Some(Path::new("nowhere")));
    assert!(code == Some(2) && text.contains("nowhere: "), "{text}");
}

#[test]
fn a_token_does_not_leave_the_machine_in_the_clear_and_flags_that_contradict_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("token");
    std::fs::write(&file, "hmg_1\n").expect("a file");
    for (arguments, reason) in [
        (&["--url", "http://192.0.2.1:11883"][..], "--allow-plain-http"),
        (&["--url", "broker.example:11883"], "https://HOST:PORT"),
        (&["--url", "https://127.0.0.1:1", "--ca", "nowhere.pem"], "nowhere.pem"),
        (&["--url", "http://127.0.0.1:1", "--socket", "s"], "--socket"),
        (&["--ca", "ca.pem"], "--url"),
    ] {
        let (code, text) = ctl(arguments, Some(&file));
        assert!(code == Some(2) && text.contains(reason), "{arguments:?}: {code:?} {text}");
    }
}

#[test]
fn a_search_needs_one_of_three_flags_and_says_so() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
    let output = command.env_clear().args(["ctl", "where"]).output().expect("the binary was built");
    let text = String::from_utf8(output.stderr).expect("text");
    assert!(text.contains("<--topic <TOPIC>|--publisher <PUBLISHER>|--receiver <RECEIVER>>"), "{text}");
}

#[test]
fn a_broker_that_does_not_run_is_not_reachable() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("token");
    std::fs::write(&file, "hmg_1\n").expect("a file");
    let free = TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("bound");
    let (code, text) = ctl(&["--url", &format!("http://{free}")], Some(&file));
    assert!(code == Some(3) && text.contains(&free.to_string()), "{text}");
    let (code, text) = ctl(&["--socket", "nowhere"], None);
    assert!(code == Some(3) && text.contains("admin.socket"), "{text}");
}
