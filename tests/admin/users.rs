//! Users and rules of clients, and tokens of the interface, that change while the broker runs.

use crate::api::{Administered, ctl, json_of};
use crate::http::{LOCAL, request_with_body};
use crate::support::{Connect, RawClient, Version};
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A broker with a password file and an ACL file.
struct Managed {
    broker: Administered,
    admin: String,
    _directory: tempfile::TempDir,
    passwords: PathBuf,
    acl: PathBuf,
}

impl Managed {
    fn start() -> Managed {
        let directory = tempfile::tempdir().expect("a directory");
        let (passwords, acl) = (directory.path().join("passwd"), directory.path().join("acl"));
        fs::write(&passwords, "# people\n").expect("a file");
        fs::write(&acl, "topic readwrite #\nuser ann\ntopic readwrite #\n").expect("a file");
        fs::set_permissions(&passwords, fs::Permissions::from_mode(0o640)).expect("a file");
        let set = |key: &str, path: &Path| format!("{key}={}", path.display());
        let (password_file, acl_file) = (set("auth.password_file", &passwords), set("acl.file", &acl));
        let arguments = ["--ephemeral", "--set", &password_file, "--set", &acl_file];
        let broker = Administered::start_with(&arguments);
        let admin = broker.token("admin");
        Managed { broker, admin, _directory: directory, passwords, acl }
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let headers = format!("{LOCAL}Authorization: Bearer {}\r\n", self.admin);
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let (status, answer) = request_with_body(self.broker.admin, method, path, &headers, &body);
        (status, json_of(&answer))
    }

    fn set(&self, name: &str, password: &str) -> (u16, Value) {
        self.ask("PUT", &format!("/api/v1/users/{name}"), &json!({ "password": password }))
    }

    fn enters(&self, user: &str, password: &str) -> bool {
        let connect = Connect::new(Version::V5, "pump").user_name(user).password(password.as_bytes());
        let mut client = RawClient::open(self.broker.mqtt, Version::V5);
        client.send(&connect.encode());
        client.expect_connack().code == 0
    }
}

/// Runs `homing ctl` with this standard input. Returns its exit code and both outputs.
fn ctl_with_input(socket: &Path, arguments: &[&str], input: &str) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
    command.arg("ctl").arg("--socket").arg(socket).args(arguments);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it runs");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout) + &text(output.stderr))
}

#[test]
fn a_user_is_written_and_in_force_and_a_removed_one_is_disconnected() {
    let managed = Managed::start();
    assert!(!managed.enters("ann", "sesame"));
    let (status, answer) = managed.set("ann", "sesame");
    assert_eq!((status, &answer["added"]), (200, &json!(true)), "{answer}");
    assert!(managed.enters("ann", "sesame"));
    let text = fs::read_to_string(&managed.passwords).expect("a file");
    assert!(text.starts_with("# people\nann:$"), "comments stay: {text}");
    let mode = fs::metadata(&managed.passwords).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o640, "its group may still read it");
    let connect = Connect::new(Version::V5, "connected").user_name("ann").password(b"sesame");
    let mut client = RawClient::connect(managed.broker.mqtt, &connect);
    let (status, answer) = managed.set("ann", "another");
    assert_eq!((status, &answer["added"]), (200, &json!(false)), "{answer}");
    assert_eq!(answer["disconnected"]["passwords"], 1, "{answer}");
    client.expect_disconnected(0x87);
    assert!(managed.enters("ann", "another") && !managed.enters("ann", "sesame"));
    let (status, answer) = managed.ask("DELETE", "/api/v1/users/ann", &Value::Null);
    assert_eq!(status, 200, "{answer}");
    assert!(!managed.enters("ann", "another"));
    assert_eq!(managed.ask("DELETE", "/api/v1/users/ann", &Value::Null).0, 404);
    assert_eq!(fs::read_to_string(&managed.passwords).expect("a file"), "# people\n");
}

#[test]
fn users_are_listed_by_name_in_pages_without_their_hashes() {
    let managed = Managed::start();
    for name in ["eve", "ann", "bob"] {
        assert_eq!(managed.set(name, "sesame").0, 200);
    }
    let (_, first) = managed.ask("GET", "/api/v1/users?limit=2", &Value::Null);
    let names = |page: &Value| -> Vec<String> {
        let rows = page["users"].as_array().expect("users").iter();
        rows.filter_map(|row| row["name"].as_str().map(ToOwned::to_owned)).collect()
    };
    assert_eq!((names(&first), &first["count"]), (vec!["ann".to_owned(), "bob".to_owned()], &json!(3)));
    let next = format!("/api/v1/users?limit=2&cursor={}", first["next"].as_str().expect("more"));
    let (_, second) = managed.ask("GET", &next, &Value::Null);
    assert_eq!((names(&second), &second["next"]), (vec!["eve".to_owned()], &Value::Null));
    let (_, one) = managed.ask("GET", "/api/v1/users/ann", &Value::Null);
    assert_eq!(one, json!({ "name": "ann", "hash": "argon2id" }));
    assert_eq!(managed.ask("GET", "/api/v1/users/nobody", &Value::Null).0, 404);
    assert_eq!(first["in_force"], true);
    fs::write(&managed.passwords, "").expect("a file");
    assert_eq!(
        managed.ask("GET", "/api/v1/users", &Value::Null).1["in_force"],
        false,
        "nobody read it again"
    );
}

#[test]
fn a_mistake_changes_nothing_and_is_named_with_its_line() {
    let managed = Managed::start();
    fs::write(&managed.passwords, "# people\neve:plain\n").expect("a file");
    let (status, answer) = managed.set("ann", "sesame");
    assert_eq!(status, 422, "{answer}");
    let mistake = answer["mistakes"][0].as_str().expect("a mistake");
    assert!(mistake.contains("passwd:2: ") && !mistake.contains("plain\""), "{mistake}");
    assert_eq!(fs::read_to_string(&managed.passwords).expect("a file"), "# people\neve:plain\n");
    for (path, body) in [
        ("/api/v1/users/a:b", json!({ "password": "x" })),
        ("/api/v1/users/ann", json!({ "password": "" })),
        ("/api/v1/users/ann", json!({ "password": "\u{e9}", "hash": "scram" })),
        ("/api/v1/users/ann", json!({ "password": "x", "hash": "md5" })),
        ("/api/v1/users/ann", json!({})),
    ] {
        assert_eq!(managed.ask("PUT", path, &body).0, 400, "{path} {body}");
    }
}

#[test]
fn without_a_file_the_answer_says_which_key_is_off() {
    let broker = Administered::start();
    for path in ["/api/v1/users", "/api/v1/acl"] {
        let (status, answer) = broker.ask("GET", path, &broker.token("admin"));
        assert!(
            status == 409 && answer.contains("no-file") && answer.contains(" is off"),
            "{path}: {answer}"
        );
    }
    let (code, text) = broker.ctl(&["users", "list"]);
    assert!(code == Some(1) && text.contains("auth.password_file is off"), "{text}");
}

#[test]
fn a_folder_that_the_broker_may_not_write_is_named() {
    let managed = Managed::start();
    let target = managed.passwords.with_file_name("real");
    fs::rename(&managed.passwords, &target).expect("a file");
    std::os::unix::fs::symlink(&target, &managed.passwords).expect("a link");
    let (status, answer) = managed.set("ann", "sesame");
    assert_eq!((status, &answer["type"]), (409, &json!("/api/problems/file-unusable")), "{answer}");
    assert!(answer["detail"].as_str().is_some_and(|text| text.contains("symbolic link")), "{answer}");
}

#[test]
fn the_acl_is_replaced_as_a_whole_if_it_is_the_one_that_was_read() {
    let managed = Managed::start();
    assert_eq!(managed.set("ann", "sesame").0, 200);
    let (_, read) = managed.ask("GET", "/api/v1/acl", &Value::Null);
    assert_eq!(
        (&read["in_force"], read["text"].as_str()),
        (&json!(true), Some("topic readwrite #\nuser ann\ntopic readwrite #\n"))
    );
    let version = read["version"].as_str().expect("a version");
    let connect = Connect::new(Version::V5, "pump").user_name("ann").password(b"sesame");
    let mut client = RawClient::connect(managed.broker.mqtt, &connect);
    assert_eq!(client.subscribe(&[("alarms/#", 1)]), [1]);
    let new = json!({ "text": "user ann\ntopic readwrite homes/#\n" });
    let wrong = json!({ "text": "user ann\ntopic sometimes a b\n" });
    let (status, answer) = managed.ask("PUT", "/api/v1/acl?dry_run=true", &wrong);
    assert_eq!(status, 422);
    assert!(answer["mistakes"][0].as_str().is_some_and(|text| text.contains("acl:2: ")), "{answer}");
    assert_eq!(managed.ask("PUT", "/api/v1/acl?dry_run=true", &new).1["changed"], true);
    assert_eq!(managed.ask("PUT", "/api/v1/acl?version=0123", &new).0, 412);
    assert_eq!(client.subscribe(&[("alarms/#", 1)]), [1], "nothing has changed");
    let (status, answer) = managed.ask("PUT", &format!("/api/v1/acl?version={version}"), &new);
    assert_eq!((status, &answer["changed"]), (200, &json!(true)), "{answer}");
    assert_eq!(client.subscribe(&[("alarms/#", 1)]), [0x87], "it is in force");
    assert_eq!(fs::read_to_string(&managed.acl).expect("a file"), "user ann\ntopic readwrite homes/#\n");
    assert_eq!(managed.ask("PUT", &format!("/api/v1/acl?version={version}"), &new).0, 412);
}

#[test]
fn a_token_is_made_listed_and_refused_once_it_is_removed() {
    let broker = Administered::start();
    let admin = broker.token("admin");
    let headers = format!("{LOCAL}Authorization: Bearer {admin}\r\n");
    let ask = |method: &str, path: &str, body: &str| {
        let (status, answer) = request_with_body(broker.admin, method, path, &headers, body);
        (status, json_of(&answer))
    };
    let body = json!({ "name": "telemetry", "scope": "viewer", "expires": "30d" }).to_string();
    let (status, made) = ask("POST", "/api/v1/tokens", &body);
    assert_eq!(status, 201, "{made}");
    let token = made["token"].as_str().expect("a token");
    assert_eq!(broker.ask("GET", "/api/v1/overview", token).0, 200);
    let (_, all) = ask("GET", "/api/v1/tokens", "");
    assert!(!all.to_string().contains(token));
    let row = all["tokens"].as_array().expect("tokens").iter().find(|row| row["name"] == "telemetry");
    assert!(row.is_some_and(|row| row["scope"] == "viewer" && row["ends_unix_ms"].is_u64()), "{all}");
    assert_eq!(ask("DELETE", "/api/v1/tokens/telemetry", "").0, 204);
    assert_eq!(broker.ask("GET", "/api/v1/overview", token).0, 401);
    assert_eq!(ask("DELETE", "/api/v1/tokens/telemetry", "").0, 404);
    for wrong in [json!({ "name": "a:b", "scope": "viewer" }), json!({ "name": "a", "scope": "root" })] {
        assert_eq!(ask("POST", "/api/v1/tokens", &wrong.to_string()).0, 400, "{wrong}");
    }
    let (_, log) = ask("GET", "/api/v1/audit", "");
    assert!(!log.to_string().contains(token), "no secret is in the log");
}

#[test]
fn homing_ctl_manages_users_rules_and_tokens() {
    let managed = Managed::start();
    let socket = managed.broker.socket();
    let (code, text) = ctl_with_input(&socket, &["users", "set", "ann", "--stdin"], "sesame\n");
    assert_eq!((code, text.trim()), (Some(0), "added, and in force; 0 clients disconnected"));
    assert!(managed.enters("ann", "sesame"));
    let (code, secret) = ctl(&socket, &["users", "set", "pump-7", "--device"]);
    assert!(code == Some(0) && managed.enters("pump-7", secret.trim()), "{secret}");
    let (_, text) = ctl(&socket, &["users", "list"]);
    assert!(text.contains("ann     argon2id") && text.contains("pump-7  scram"), "{text}");
    assert_eq!(ctl(&socket, &["users", "remove", "ann"]).0, Some(0));
    assert_eq!(ctl(&socket, &["users", "remove", "ann"]).0, Some(2));
    let (code, text) = ctl_with_input(&socket, &["acl", "check", "-"], "user\n");
    assert!(code == Some(2) && text.contains("acl:1: "), "{text}");
    let (code, text) = ctl_with_input(&socket, &["acl", "set", "-"], "user ann\ntopic read a\n");
    assert_eq!((code, text.trim()), (Some(0), "changed, and in force"));
    assert_eq!(ctl(&socket, &["acl", "show"]).1, "user ann\ntopic read a\n");
    let (code, token) = ctl(&socket, &["tokens", "add", "telemetry", "--scope", "publisher"]);
    assert!(code == Some(0) && token.starts_with("hmg_"), "{token}");
    assert!(ctl(&socket, &["tokens", "list"]).1.contains("publisher  never  telemetry"));
    assert_eq!(ctl(&socket, &["tokens", "remove", "telemetry"]).0, Some(0));
}

#[test]
fn a_ban_is_in_force_at_once_and_ends_with_its_removal() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("bans");
    fs::write(&file, "# by hand\nuser eve\n").expect("a file");
    let setting = format!("bans.file={}", file.display());
    let broker = Administered::start_with(&["--ephemeral", "--set", &setting]);
    let mut client = RawClient::connect(broker.mqtt, &Connect::new(Version::V5, "test-1"));
    let (code, text) = broker.ctl(&["bans", "add", "client", "test-*", "--for", "1h"]);
    assert_eq!((code, text.trim()), (Some(0), "banned; 1 client disconnected"));
    client.expect_disconnected(0x98);
    let text = fs::read_to_string(&file).expect("a file");
    assert!(text.starts_with("# by hand\nuser eve\nclient test-* until 20"), "{text}");
    let (_, listed) = broker.ctl(&["bans", "list"]);
    assert!(listed.contains("client  20") && listed.contains("user    no end"), "{listed}");
    for wrong in [["client", "[a"], ["address", "x"], ["client", "a until b"], ["user", "a\nuser b"]] {
        let (code, text) = broker.ctl(&["bans", "add", wrong[0], wrong[1]]);
        assert_eq!(code, Some(2), "{wrong:?}: {text}");
    }
    assert_eq!(broker.ctl(&["bans", "remove", "client", "test-*"]).0, Some(0));
    assert_eq!(broker.ctl(&["bans", "remove", "client", "test-*"]).0, Some(2), "it is gone");
    drop(RawClient::connect(broker.mqtt, &Connect::new(Version::V5, "test-1")));
    assert_eq!(fs::read_to_string(&file).expect("a file"), "# by hand\nuser eve\n");
}

#[test]
fn the_files_of_a_listener_are_changed_by_its_name_and_hold_for_it_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    for (file, text) in [("passwd", ""), ("own-passwd", ""), ("own-acl", "topic readwrite #\n")] {
        fs::write(path(file), text).expect("a file");
    }
    let address = std::net::TcpListener::bind(("127.0.0.1", 0)).and_then(|socket| socket.local_addr());
    let address = address.expect("a free port");
    let shown = |name: &str| path(name).display().to_string();
    let listeners = format!(
        "[auth]\npassword_file = {:?}\n[[listeners]]\nname = \"site\"\naddress = \"{address}\"\n\
         password_file = {:?}\nacl_file = {:?}\n",
        shown("passwd"),
        shown("own-passwd"),
        shown("own-acl"),
    );
    let configuration = path("homing.toml");
    fs::write(&configuration, listeners).expect("a file");
    let broker = Administered::start_with(&["--ephemeral", "--config", &configuration.display().to_string()]);
    let run = |arguments: &[&str], input: &str| ctl_with_input(&broker.socket(), arguments, input);
    let enters = |at| {
        let connect = Connect::new(Version::V5, "pump").user_name("ann").password(b"sesame");
        let mut client = RawClient::open(at, Version::V5);
        client.send(&connect.encode());
        client.expect_connack().code == 0
    };
    let (code, text) = run(&["users", "set", "ann", "--listener", "site", "--stdin"], "sesame\n");
    assert_eq!(code, Some(0), "{text}");
    assert!(enters(address) && !enters(broker.mqtt), "it is a user of the listener alone");
    assert!(fs::read_to_string(path("own-passwd")).expect("a file").starts_with("ann:$"));
    assert_eq!(fs::read_to_string(path("passwd")).expect("a file"), "");
    let (_, text) = run(&["users", "list", "--listener", "site"], "");
    assert!(text.contains("ann"), "{text}");
    let (code, text) = run(&["acl", "set", "-", "--listener", "site"], "user ann\ntopic read own/#\n");
    assert_eq!(code, Some(0), "{text}");
    let (_, text) = run(&["acl", "show", "--listener", "site"], "");
    assert!(text.contains("topic read own/#"), "{text}");
    let (code, text) = run(&["acl", "show", "--listener", "sit"], "");
    assert!(code == Some(1) && text.contains("there is no listener sit; the listeners are"), "{text}");
    let (code, text) = run(&["users", "remove", "ann", "--listener", "site"], "");
    assert_eq!(code, Some(0), "{text}");
    assert!(!enters(address));
}
