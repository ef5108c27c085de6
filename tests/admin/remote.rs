//! `homing ctl` and `homing trace` over the network: a URL, a token and an authority.

use crate::api::Administered;
use crate::https::Https;
use crate::kit::Pki;
use crate::support::until;
use std::process::Command;

/// Runs a command of `homing` on a URL, with the token in `token_file` in its environment. Returns
/// the exit code and both outputs.
fn run(command: &str, url: &str, token_file: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let mut homing = Command::new(env!("CARGO_BIN_EXE_homing"));
    homing.args([command, "--url", url]).args(arguments).env("HOMING_TOKEN_FILE", token_file);
    let output = homing.output().expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout) + &text(output.stderr))
}

/// A broker with HTTPS, and the files of its operators.
struct Remote {
    https: Https,
    url: String,
    ca: String,
    token: String,
}

impl Remote {
    fn start() -> Remote {
        let https = Https::start();
        https.pki.write("token", &format!("{}\n", https.broker.operator));
        let (ca, token) = (https.pki.text_path("ca.pem"), https.pki.text_path("token"));
        Remote { url: format!("https://localhost:{}", https.broker.admin.port()), ca, token, https }
    }

    fn ctl(&self, arguments: &[&str]) -> (Option<i32>, String) {
        run("ctl", &self.url, &self.token, &[&["--ca", &self.ca], arguments].concat())
    }
}

#[test]
fn ctl_over_https_does_what_the_token_may_and_is_in_the_audit_log_by_its_name() {
    let remote = Remote::start();
    let _client = remote.https.broker.stuck_client("pump-7");
    let (code, text) = remote.ctl(&["status"]);
    assert!(code == Some(0) && text.starts_with("Homing 0."), "{text}");
    let (code, text) = remote.ctl(&["clients", "--prefix", "pump"]);
    assert!(code == Some(0) && text.contains("pump-7"), "{text}");
    assert_eq!(remote.ctl(&["disconnect", "pump-7"]).0, Some(0));
    let (_, audit) = remote.https.broker.ctl(&["audit"]);
    assert!(audit.contains("operator") && audit.contains("disconnect"), "{audit}");
    // The settings are for administrators.
    let (code, text) = remote.ctl(&["reload"]);
    assert!(code == Some(1) && text.contains("admin"), "{text}");
}

#[test]
fn the_file_of_the_token_may_be_named_by_a_flag_and_the_link_of_the_pages_has_the_same_url() {
    let remote = Remote::start();
    let flags = ["--ca", &remote.ca, "--token-file", &remote.token, "dashboard"];
    let (code, text) = run("ctl", &remote.url, "/nowhere", &flags);
    assert!(code == Some(0) && text.starts_with(&format!("{}/login#code=", remote.url)), "{text}");
}

#[test]
fn a_trace_over_https_prints_its_steps() {
    let remote = Remote::start();
    let flags = ["--ca", &remote.ca, "--topic", "pumps/#", "--for", "2s"];
    std::thread::scope(|scope| {
        let trace = scope.spawn(|| run("trace", &remote.url, &remote.token, &flags));
        until("a trace", || {
            let (_, traces) = remote.https.get("/api/v1/traces", &remote.https.broker.operator);
            traces.contains(r#""trace":1"#).then_some(())
        });
        remote.https.broker.publish("pumps/7/set", &["on"], 1);
        let (code, text) = trace.join().expect("it ends");
        assert!(code == Some(0) && text.contains("pumps/7/set"), "{text}");
    });
}

#[test]
fn a_broker_with_another_authority_or_another_name_is_not_reachable() {
    let remote = Remote::start();
    let other = Pki::named("another authority");
    let flags = ["--ca", &other.text_path("ca.pem"), "status"];
    let (code, text) = run("ctl", &remote.url, &remote.token, &flags);
    assert!(code == Some(3) && text.contains("UnknownIssuer") && text.contains("--ca"), "{text}");
    remote.https.pki.server("server", &["broker.example"]);
    assert_eq!(remote.https.broker.ctl(&["reload"]).0, Some(0));
    let (code, text) = remote.ctl(&["status"]);
    assert!(code == Some(3) && text.contains("a name or an address that the certificate has"), "{text}");
}

#[test]
fn a_url_of_the_wrong_scheme_is_not_reachable() {
    let remote = Remote::start();
    let plain = remote.url.replace("https", "http");
    let (code, text) = run("ctl", &plain, &remote.token, &["status"]);
    assert!(code == Some(3) && text.contains("without admin.certificate"), "{text}");
    let broker = Administered::start();
    let url = format!("https://{}", broker.admin);
    let (code, text) = run("ctl", &url, &remote.token, &["--ca", &remote.ca, "status"]);
    assert!(code == Some(3) && text.contains("does not speak TLS"), "{text}");
}

#[test]
fn a_token_that_the_broker_does_not_know_is_refused_also_on_this_machine() {
    let broker = Administered::start();
    let url = format!("http://{}", broker.admin);
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("token");
    let name = file.to_str().expect("UTF-8");
    for (token, code) in [(broker.viewer.as_str(), 0), ("hmg_unknown", 1)] {
        std::fs::write(&file, token).expect("a file");
        let (got, text) = run("ctl", &url, name, &["status"]);
        assert_eq!(got, Some(code), "{text}");
    }
}
