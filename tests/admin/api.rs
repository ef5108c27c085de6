//! The administration: tokens, scopes, clients, and `homing ctl`.

use crate::http::{LOCAL, metric, request};
use crate::support::process::Process;
use crate::support::{Connect, Message, PATIENCE, RawClient, Version, until};
use homing::admin::access::Scope;
use homing::admin::api_paths;
use serde_json::Value;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A store whose database may be 8 MiB behind its log.
pub const SMALL_STORE: [&str; 2] = ["--set", "store.size_limit=64 MiB"];

/// A broker with a file of tokens and a Unix socket, in a directory of its own.
pub struct Administered {
    broker: Process,
    pub mqtt: SocketAddr,
    pub admin: SocketAddr,
    directory: tempfile::TempDir,
    pub viewer: String,
    pub operator: String,
}

impl Administered {
    pub fn start() -> Administered {
        Administered::start_with(&["--ephemeral"])
    }

    /// Starts a broker with these settings, such as `["--set", "limits.in_flight=1"]`. It stores
    /// its sessions, unless they say `--ephemeral`.
    pub fn start_with(arguments: &[&str]) -> Administered {
        let directory = tempfile::tempdir().expect("a directory");
        let tokens = directory.path().join("credentials");
        let (viewer, operator) = (token(&tokens, "viewer"), token(&tokens, "operator"));
        let (broker, mqtt, admin) = serve_in(&directory, arguments);
        Administered { broker, mqtt, admin, directory, viewer, operator }
    }

    /// Ends the broker by SIGKILL, and starts another one on the same directory.
    pub fn kill_and_start(&mut self, arguments: &[&str]) {
        self.broker.kill();
        (self.broker, self.mqtt, self.admin) = serve_in(&self.directory, arguments);
    }

    /// Returns the database of a broker that stores its sessions.
    pub fn database(&self) -> PathBuf {
        self.directory.path().join("data/homing.db")
    }

    /// Has another process lock the database, as `sqlite3` may, and fills the log until no commit
    /// goes on. The lock lasts as long as the connection that is returned. Needs [`SMALL_STORE`].
    pub fn stop_commits(&self) -> rusqlite::Connection {
        let other = rusqlite::Connection::open(self.database()).expect("a database");
        other.busy_timeout(PATIENCE).expect("a time");
        other.execute_batch("BEGIN IMMEDIATE").expect("no write is under way for long");
        let mut publisher = RawClient::connect(self.mqtt, &Connect::new(Version::V311, "filler"));
        let sample = |name: &str| metric(self.admin, name);
        // One commit for each message: one for many could go beyond the mark, and then the store is
        // full and nothing waits. They are half as many again as the database may be behind.
        for n in 0..48 {
            let committed = until("a scrape", || sample("homing_store_records_total"));
            let payload = vec![b'x'; 256 << 10];
            publisher.publish(&Message::new(format!("filler/{n}"), payload).retained());
            let is_stopped = until("a commit, or one that does not go on", || {
                let is_behind = sample("homing_store_unapplied_bytes")? > f64::from(8 << 20);
                if is_behind && sample("homing_store_oldest_uncommitted_seconds")? > 0.5 {
                    return Some(true);
                }
                (sample("homing_store_records_total")? > committed).then_some(false)
            });
            if is_stopped {
                return other;
            }
        }
        panic!("commits go on");
    }

    /// Returns the process of the broker.
    pub fn process(&self) -> &Process {
        &self.broker
    }

    /// Returns what the broker logs, up to the next line with these words.
    pub fn lines_until(&mut self, words: &str) -> Vec<String> {
        self.broker.lines_until(words, |line| line.contains(words)).expect("the broker runs")
    }

    /// Asks with a token. Returns the status and the whole answer.
    pub fn ask(&self, method: &str, path: &str, token: &str) -> (u16, String) {
        let headers = format!("{LOCAL}Authorization: Bearer {token}\r\nContent-Length: 0\r\n");
        request(self.admin, method, path, &headers)
    }

    /// Asks for a listing as a viewer. `path` has a parameter, and `field` has the rows of an answer.
    /// Returns the rows of each page.
    pub fn pages(&self, path: &str, field: &str) -> Vec<Vec<Value>> {
        let (mut pages, mut cursor) = (Vec::new(), String::new());
        loop {
            let (status, answer) = self.ask("GET", &format!("{path}{cursor}"), &self.viewer);
            assert_eq!(status, 200, "{answer}");
            let body = json_of(&answer);
            pages.push(body[field].as_array().expect("rows").clone());
            match body["next"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return pages,
            }
        }
    }

    /// Makes another token, of this scope. The broker reads it within a second.
    pub fn token(&self, scope: &str) -> String {
        token(&self.credentials(), scope)
    }

    /// Returns the path of the Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("s")
    }

    /// Returns the file of tokens and users.
    pub fn credentials(&self) -> PathBuf {
        self.directory.path().join("credentials")
    }

    /// Adds a user of this scope, with the password "sesame", or gives it this scope. The broker
    /// reads the file again at the next request.
    pub fn add_user(&self, name: &str, scope: &str) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
        command.arg("admin-user").arg(self.credentials());
        command.args([name, "--scope", scope, "--stdin"]).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn().expect("it runs");
        child.stdin.take().expect("a pipe").write_all(b"sesame\n").expect("it reads");
        assert!(child.wait().expect("it ends").success());
    }

    /// Runs `homing ctl` on the Unix socket. Returns its exit code and both outputs.
    pub fn ctl(&self, arguments: &[&str]) -> (Option<i32>, String) {
        ctl(&self.socket(), arguments)
    }

    /// Waits until the broker knows that a client is away.
    pub fn await_away(&self, client_id: &str) {
        until("the end of the connection", || {
            self.ctl(&["--json", "client", client_id]).1.contains(r#""state": "away""#).then_some(())
        });
    }

    /// Runs `homing trace` on the Unix socket until it ends. Calls `meanwhile` once the trace runs.
    /// Returns its exit code and its output.
    pub fn trace_command(&self, arguments: &[&str], meanwhile: impl FnOnce()) -> (Option<i32>, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
        command.arg("trace").arg("--socket").arg(self.directory.path().join("s")).args(arguments);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
        until("a trace", || {
            let (_, answer) = self.ask("GET", "/api/v1/traces", &self.operator);
            answer.contains(r#""trace":1"#).then_some(())
        });
        meanwhile();
        let output = child.wait_with_output().expect("it ends");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        (output.status.code(), text(output.stdout) + &text(output.stderr))
    }

    /// Publishes messages at QoS 1 or 2. Waits for their acknowledgements.
    pub fn publish(&self, topic: &str, payloads: &[&str], qos: u8) {
        let mut publisher = RawClient::connect(self.mqtt, &Connect::new(Version::V311, "app"));
        for payload in payloads {
            publisher.deliver(&Message::new(topic, payload).qos(qos));
        }
        publisher.disconnect();
    }

    /// Connects a client that subscribes at QoS 1, and publishes one message to it that it leaves
    /// unacknowledged.
    pub fn stuck_client(&self, client_id: &str) -> RawClient {
        let mut client = RawClient::connect(self.mqtt, &Connect::persistent(Version::V5, client_id));
        client.subscribe(&[("pumps/#", 1)]);
        let mut publisher = RawClient::connect(self.mqtt, &Connect::new(Version::V5, "publisher"));
        publisher.deliver(&Message::new("pumps/7/set", "on").qos(1));
        client.expect_publish();
        client
    }
}

/// Starts a broker that has its tokens, its Unix socket and its store in a directory.
fn serve_in(directory: &tempfile::TempDir, arguments: &[&str]) -> (Process, SocketAddr, SocketAddr) {
    let path = directory.path();
    let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
    command.args(["serve", "--listen", "127.0.0.1:0", "--set", "runtime.threads=3"]).args(arguments);
    if !arguments.contains(&"--ephemeral") {
        command.arg("--data-dir").arg(path.join("data"));
    }
    command.args(["--set", "admin.addresses=127.0.0.1:0"]);
    command.arg("--set").arg(format!("admin.credentials={}", path.join("credentials").display()));
    command.arg("--set").arg(format!("admin.socket={}", path.join("s").display()));
    crate::http::serve_with(&mut command)
}

/// Returns the JSON of an answer; null if its body is none.
pub fn json_of(answer: &str) -> Value {
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    serde_json::from_str(body).unwrap_or(Value::Null)
}

/// Runs `homing ctl` on a socket. Returns its exit code and both outputs.
pub fn ctl(socket: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
    let output = command.arg("ctl").arg("--socket").arg(socket).args(arguments).output().expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout) + &text(output.stderr))
}

/// Makes a token of this scope, with the scope as its name.
pub fn token(file: &PathBuf, scope: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
    let output =
        command.arg("admin-token").arg(file).args([scope, "--scope", scope]).output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

#[test]
fn the_documents_have_every_path_for_programs() {
    let page = include_str!("../../docs/http.md");
    for (method, path, _) in api_paths() {
        let documented = page.lines().filter_map(|line| line.strip_prefix("| ")).any(|line| {
            let (methods, rest) = line.split_once(" `").unwrap_or_default();
            let named = methods.split(", ").any(|one| one == method);
            // One row may stand for two paths: "`/api/v1/clients/{id}/inflight`, `.../queue`".
            let short = path.rsplit_once('/').map(|(_, last)| format!("`.../{last}`"));
            let end = |behind: &str| behind.starts_with(['`', '?']);
            let paths = rest.split(" | ").next().unwrap_or_default();
            let whole = format!("`{paths}").split(&format!("`{path}")).skip(1).any(end);
            named && (whole || short.is_some_and(|short| paths.contains(&short)))
        });
        assert!(documented, "docs/http.md lacks {method} {path}");
    }
}

#[test]
fn every_path_but_health_needs_a_token_of_its_scope() {
    let broker = Administered::start();
    let tokens = [
        (Scope::Publisher, broker.token("publisher")),
        (Scope::Viewer, broker.viewer.clone()),
        (Scope::Operator, broker.operator.clone()),
        (Scope::Admin, broker.token("admin")),
    ];
    let mut open = Vec::new();
    for (method, path, least) in api_paths() {
        let Some(least) = least else {
            open.push(path);
            continue;
        };
        let asked = path.replace("{id}", "x").replace("{mid}", "e1").replace("{number}", "1");
        let headers = format!("{LOCAL}Content-Length: 0\r\n");
        assert_eq!(request(broker.admin, method, &asked, &headers).0, 401, "{method} {path}");
        assert_eq!(broker.ask(method, &asked, "hmg_wrong").0, 401, "{method} {path}");
        for (scope, token) in &tokens {
            let (status, answer) = broker.ask(method, &asked, token);
            if !scope.includes(least) {
                assert_eq!(status, 403, "{method} {path} as {}: {answer}", scope.name());
            } else {
                let is_answered =
                    ![401, 403, 405].contains(&status) && !answer.contains("there is no such path");
                assert!(is_answered, "{method} {path} as {}: {answer}", scope.name());
            }
        }
    }
    assert_eq!(open, ["/healthz", "/readyz", "/metrics", "/api/v1/login"]);
}

#[test]
fn a_client_that_acknowledges_nothing_is_listed_with_its_message_and_the_cause() {
    let broker = Administered::start();
    let _client = broker.stuck_client("pump 7/a");
    let (status, answer) = broker.ask("GET", "/api/v1/clients/pump%207%2Fa", &broker.viewer);
    assert_eq!(status, 200, "{answer}");
    for part in [
        r#""client_id":"pump 7/a""#,
        r#""state":"connected""#,
        r#""cause":"application""#,
        r#""waits_for":"PUBACK""#,
        r#""topic":"pumps/7/set""#,
        r##""subscriptions":[{"filter":"pumps/#","qos":1,"no_local":false,"##,
    ] {
        assert!(answer.contains(part), "{part} in {answer}");
    }
    let (code, text) = broker.ctl(&["client", "pump 7/a"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("the client's host has it"), "{text}");
    let (code, text) = broker.ctl(&["clients", "--stuck", "1ms"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("pump 7/a") && !text.contains("publisher"), "{text}");
}

#[test]
fn a_listing_in_pages_has_each_client_once() {
    let broker = Administered::start();
    let ids: Vec<String> = (0..25).map(|n| format!("client-{n:02}")).collect();
    let _clients: Vec<_> =
        ids.iter().map(|id| RawClient::connect(broker.mqtt, &Connect::new(Version::V311, id))).collect();
    let rows = broker.pages("/api/v1/clients?limit=4&prefix=client-", "clients").concat();
    let mut seen: Vec<&str> = rows.iter().map(|row| row["client_id"].as_str().expect("text")).collect();
    seen.sort_unstable();
    assert_eq!(seen, ids);
    let foreign = broker.ask("GET", "/api/v1/clients?cursor=AAAAAAAAAAAA", &broker.viewer);
    assert_eq!(foreign.0, 400, "{}", foreign.1);
    assert_eq!(broker.ask("GET", "/api/v1/clients?limit=1000000000", &broker.viewer).0, 400);
    assert_eq!(broker.ask("GET", "/api/v1/clients?lmit=1", &broker.viewer).0, 400);
}

#[test]
fn clients_are_listed_by_version_listener_and_the_holder_of_their_message() {
    let broker = Administered::start();
    let _stuck = broker.stuck_client("pump");
    let _old = RawClient::connect(broker.mqtt, &Connect::new(Version::V311, "old"));
    let names = |query: &str| {
        let (status, answer) = broker.ask("GET", &format!("/api/v1/clients?{query}"), &broker.viewer);
        assert_eq!(status, 200, "{answer}");
        let body = json_of(&answer);
        let rows = body["clients"].as_array().cloned().unwrap_or_default();
        let mut names: Vec<String> =
            rows.iter().filter_map(|row| row["client_id"].as_str().map(ToOwned::to_owned)).collect();
        names.sort();
        names.retain(|name| name != "publisher");
        names
    };
    assert_eq!(names("version=3.1.1"), ["old"]);
    assert_eq!(names("version=5.0"), ["pump"]);
    assert_eq!(names("cause=application"), ["pump"]);
    assert_eq!(names("cause=network"), [""; 0]);
    assert_eq!(names(&format!("listener={}", broker.mqtt)), ["old", "pump"]);
    for wrong in ["version=4", "cause=moon", "listener=nowhere"] {
        let (status, answer) = broker.ask("GET", &format!("/api/v1/clients?{wrong}"), &broker.viewer);
        assert!(status == 400 && answer.contains("must be"), "{answer}");
    }
}

#[test]
fn a_caller_learns_its_name_and_scope() {
    let broker = Administered::start();
    let (_, answer) = broker.ask("GET", "/api/v1/me", &broker.operator);
    assert_eq!(json_of(&answer), serde_json::json!({ "name": "operator", "scope": "operator" }));
}

#[test]
fn the_first_clients_by_a_figure_are_listed() {
    let broker = Administered::start();
    for (name, messages) in [("top", 1), ("lamp", 3), ("pump", 2), ("idle", 0)] {
        let mut client = RawClient::connect(broker.mqtt, &Connect::persistent(Version::V5, name));
        client.subscribe(&[(name, 1)]);
        client.disconnect();
        let mut publisher = RawClient::connect(broker.mqtt, &Connect::new(Version::V5, "publisher"));
        (0..messages).for_each(|_| assert_eq!(publisher.deliver(&Message::new(name, "on").qos(1)), 0));
        publisher.disconnect();
    }
    let (code, text) = broker.ctl(&["clients", "--sort", "queued_bytes", "--limit", "2"]);
    assert_eq!(code, Some(0), "{text}");
    let at = |name: &str| text.find(name);
    assert!(at("lamp") < at("pump") && at("lamp").is_some() && at("idle").is_none(), "{text}");
    let (status, answer) = broker.ask("GET", "/api/v1/clients/top", &broker.viewer);
    assert!(status == 200 && answer.contains(r#""client_id":"top""#), "{answer}");
}

#[test]
fn an_operator_disconnects_a_client_and_ends_a_session() {
    let broker = Administered::start();
    let mut client = broker.stuck_client("pump");
    let (code, text) = broker.ctl(&["disconnect", "pump"]);
    assert_eq!((code, text.trim()), (Some(0), "disconnected"));
    client.expect_disconnected(0x98);
    // The session stays, with its message.
    let (_, answer) = broker.ask("GET", "/api/v1/clients/pump", &broker.viewer);
    assert!(answer.contains(r#""state":"away""#) && answer.contains("pumps/7/set"), "{answer}");
    assert_eq!(broker.ask("POST", "/api/v1/clients/pump/disconnect", &broker.operator).0, 409);
    let (code, _) = broker.ctl(&["end", "pump"]);
    assert_eq!(code, Some(0));
    assert_eq!(broker.ask("GET", "/api/v1/clients/pump", &broker.viewer).0, 404);
    let (code, text) = broker.ctl(&["end", "pump"]);
    assert_eq!(code, Some(2));
    assert!(text.contains("no session of this client"), "{text}");
}

#[test]
fn the_log_level_changes_for_a_time_and_hides_no_audit() {
    let mut broker = Administered::start();
    let (code, text) = broker.ctl(&["log-level"]);
    assert_eq!((code, text.trim()), (Some(0), "info"));
    // Redeliveries are at debug.
    let (code, text) = broker.ctl(&["log-level", "debug", "--for", "1s"]);
    assert_eq!((code, text.trim()), (Some(0), "the log level is debug for 1s"));
    assert_eq!(broker.ctl(&["log-level"]).1.trim(), "debug");
    broker.broker.line("event=log.level_restored level=info").expect("it says so");
    assert_eq!(broker.ctl(&["log-level"]).1.trim(), "info");
    assert_eq!(broker.ctl(&["log-level", "error"]).0, Some(0));
    broker.broker.line("action=log_level").expect("an audit line");
    for (level, hold) in [("louder", "1m"), ("debug", "0s"), ("debug", "25h")] {
        let (code, text) = broker.ctl(&["log-level", level, "--for", hold]);
        assert_eq!(code, Some(2), "{text}");
    }
    let path = "/api/v1/log/level";
    assert_eq!(broker.ask("PUT", path, &broker.operator).0, 403);
    assert!(broker.ask("GET", path, &broker.viewer).1.contains(r#"{"level":"error"}"#));
}

#[test]
fn ctl_says_that_nobody_answers() {
    let (code, text) = ctl(Path::new("no-such-socket"), &["status"]);
    assert_eq!(code, Some(3));
    assert!(text.contains("does the broker run"), "{text}");
}

#[test]
fn a_token_that_leaves_the_file_is_refused_at_once() {
    let broker = Administered::start();
    assert_eq!(broker.ask("GET", "/api/v1/overview", &broker.viewer).0, 200);
    let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
    let file = broker.directory.path().join("credentials");
    let output = command.arg("admin-token").arg(file).args(["viewer", "--delete"]).output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(broker.ask("GET", "/api/v1/overview", &broker.viewer).0, 401);
    assert_eq!(broker.ask("GET", "/api/v1/overview", &broker.operator).0, 200);
}

#[test]
fn an_objective_counts_a_delivery_in_the_metrics_the_interface_and_ctl() {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    let objective = "[[slo]]\nname = \"pumps\"\ntopic = \"pumps/#\"\nwithin = \"100ms\"\ntarget = 0.9\n";
    file.write_all(objective.as_bytes()).expect("a write");
    let path = file.path().to_str().expect("text");
    let broker = Administered::start_with(&["--ephemeral", "--config", path]);
    let mut client = RawClient::connect(broker.mqtt, &Connect::new(Version::V5, "pump"));
    client.subscribe(&[("pumps/#", 1)]);
    let mut publisher = RawClient::connect(broker.mqtt, &Connect::new(Version::V5, "publisher"));
    publisher.deliver(&Message::new("pumps/7/set", "on").qos(1));
    client.expect_publish();
    // The client acknowledges nothing. The shards report their figures once a second.
    let answer = until("a late delivery", || {
        let (status, answer) = broker.ask("GET", "/api/v1/slo", &broker.viewer);
        assert_eq!(status, 200, "{answer}");
        answer.contains(r#""late":1"#).then_some(answer)
    });
    assert!(answer.contains(r#""name":"pumps""#) && answer.contains(r#""ratio":0.0"#), "{answer}");
    let (_, metrics) = request(broker.admin, "GET", "/metrics", LOCAL);
    assert!(metrics.contains("homing_slo_deliveries_total{slo=\"pumps\",result=\"late\"} 1\n"), "{metrics}");
    let (code, text) = broker.ctl(&["slo"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("pumps") && text.contains("100ms") && text.contains("90 %"), "{text}");
}

#[test]
fn every_field_of_a_client_can_be_asked_for_and_another_is_refused_with_the_names_of_all() {
    let broker = Administered::start();
    let _client = broker.stuck_client("pump-7");
    let rows = |query: &str| {
        // A page that took too long is short, so the row may be on the next one.
        let pages = broker.pages(&format!("/api/v1/clients?prefix=pump&limit=1000{query}"), "clients");
        pages.concat()[0].as_object().expect("a row").keys().cloned().collect::<Vec<_>>()
    };
    let (status, answer) = broker.ask("GET", "/api/v1/clients?fields=client_id,no_such", &broker.viewer);
    assert_eq!(status, 400, "{answer}");
    let detail = json_of(&answer)["detail"].as_str().map(ToOwned::to_owned).expect("a detail");
    let known = detail.split_once("must be ").expect("the names").1.replace(" or ", ", ");
    let mut known: Vec<&str> = known.split(", ").collect();
    known.sort_unstable();
    let mut all = rows("");
    all.sort_unstable();
    assert_eq!(known, all);
    for field in known {
        assert_eq!(rows(&format!("&fields={field}")), [field]);
    }
    let (status, answer) = broker.ask("GET", "/api/v1/clients?fields=queued,queued", &broker.viewer);
    assert!(status == 400 && answer.contains("fields has queued twice"), "{answer}");
}

#[test]
fn the_overview_has_the_details_that_are_asked_for() {
    let broker = Administered::start();
    broker.publish("pumps/7/set", &["1234", "12345678"], 1);
    let overview = |query: &str| broker.ask("GET", &format!("/api/v1/overview{query}"), &broker.viewer);
    until("a report of every thread", || {
        let body = json_of(&overview("?detail=sizes,kinds").1);
        let (received, kinds) = (&body["sizes"]["received"], &body["kinds"]);
        let is_reported = received["mean_payload_bytes"] == 6 && received["payload_bytes"] == 12;
        let counts = (&kinds["packets_received"]["publish"], &kinds["publishes_received"]["1"]);
        (is_reported && *counts.0 == 2 && *counts.1 == 2).then_some(())
    });
    let plain = json_of(&overview("").1);
    assert!(plain["sizes"].is_null() && plain["kinds"].is_null(), "{plain}");
    let (status, answer) = overview("?detail=size");
    assert!(status == 400 && answer.contains("sizes or kinds"), "{answer}");
    let (status, answer) = overview("?detail=sizes,sizes");
    assert!(status == 400 && answer.contains("detail has sizes twice"), "{answer}");
}
