//! The configuration read again while the broker runs.

use crate::api::{ctl, token};
use crate::http::{LOCAL, request, serve_with};
use crate::support::passwords::password_file;
use crate::support::process::Process;
use crate::support::{Connect, Kind, Message, PATIENCE, Property, RawClient, Version, now, until};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A broker with a file of its own.
pub struct Configured {
    pub broker: Process,
    pub mqtt: SocketAddr,
    pub admin: SocketAddr,
    pub directory: tempfile::TempDir,
}

impl Configured {
    /// Starts a broker whose file has this text.
    pub fn start(text: &str) -> Configured {
        Configured::start_with(text, |command, _| {
            command.arg("--ephemeral");
        })
    }

    /// As [`Configured::start`], with a store in the directory.
    pub fn start_stored(text: &str) -> Configured {
        Configured::start_with(text, |command, directory| {
            command.arg("--data-dir").arg(directory.join("data"));
        })
    }

    fn start_with(text: &str, data: impl FnOnce(&mut Command, &Path)) -> Configured {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join("homing.toml"), text).expect("a file");
        let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--log-level", "info"]);
        data(&mut command, directory.path());
        command.arg("--config").arg(directory.path().join("homing.toml"));
        command.args(["--set", "admin.addresses=127.0.0.1:0", "--set", "runtime.threads=2"]);
        command.arg("--set").arg(format!("admin.socket={}", directory.path().join("s").display()));
        let (broker, mqtt, admin) = serve_with(&mut command);
        Configured { broker, mqtt, admin, directory }
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("homing.toml")
    }

    pub fn write(&self, text: &str) {
        std::fs::write(self.file(), text).expect("a file");
    }

    /// Runs `homing ctl`. Returns its exit code, and both outputs without the last line break.
    pub fn ctl(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let (code, text) = ctl(&self.directory.path().join("s"), arguments);
        (code, text.trim().to_owned())
    }

    pub fn connect(&self, version: Version, client_id: &str) -> RawClient {
        RawClient::connect(self.mqtt, &Connect::new(version, client_id))
    }

    /// Returns the kinds of the present problems, the worst first.
    pub fn problems(&self) -> Vec<String> {
        let (code, text) = self.ctl(&["--json", "status"]);
        assert_eq!(code, Some(0), "{text}");
        let body: Value = serde_json::from_str(&text).expect("JSON");
        let rows = body["problems"].as_array().expect("problems");
        rows.iter().map(|row| row["kind"].as_str().expect("a kind").to_owned()).collect()
    }

    pub fn metric(&self, name: &str) -> String {
        let (_, metrics) = request(self.admin, "GET", "/metrics", LOCAL);
        let line = metrics.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.rsplit(' ').next().unwrap_or_default().to_owned()
    }
}

#[test]
fn a_dry_run_shows_each_change_with_its_effect_and_changes_nothing() {
    let broker = Configured::start("[redelivery]\ninterval = \"20s\"\n");
    assert_eq!(broker.ctl(&["reload", "--dry-run"]), (Some(0), "nothing would change".to_owned()));
    broker.write("[log]\nlevel = \"debug\"\n[redelivery]\ninterval = \"5s\"\n[expiry]\ntick = \"1s\"\n[keep_alive]\nmaximum = \"1h\"\n");
    let expected = "new      keep_alive.maximum \"unlimited\" -> \"1h\"
restart  expiry.tick \"250ms\" -> \"1s\" (pending)
live     redelivery.interval \"20s\" -> \"5s\"
shadowed log.level: --log-level wins over the file";
    for _ in 0..2 {
        assert_eq!(broker.ctl(&["reload", "--dry-run"]), (Some(0), expected.to_owned()));
    }
    assert_eq!(broker.ctl(&["reload"]), (Some(0), expected.to_owned()));
    // The tick still differs from the one in force.
    let (code, left) = broker.ctl(&["reload"]);
    assert_eq!(
        (code, left.lines().next()),
        (Some(0), Some("restart  expiry.tick \"250ms\" -> \"1s\" (pending)"))
    );
    assert_eq!(broker.metric("homing_config_restart_pending"), "1");
    assert_eq!(broker.metric("homing_config_reloads_total{result=\"done\"}"), "2");
}

#[test]
fn the_values_in_force_have_their_sources_and_one_that_waits_for_a_restart_is_pending() {
    let broker = Configured::start("[redelivery]\ninterval = \"20s\"\n[limits]\nqueue_messages = 7\n");
    broker.write("[redelivery]\ninterval = \"5s\"\n[expiry]\ntick = \"1s\"\n");
    let row = |name: &str| {
        let (code, text) = broker.ctl(&["--json", "config"]);
        assert_eq!(code, Some(0), "{text}");
        let body: Value = serde_json::from_str(&text).expect("JSON");
        let rows = body["keys"].as_array().expect("keys");
        rows.iter().find(|row| row["key"] == name).cloned().expect("the key")
    };
    let file = broker.file().display().to_string();
    // Nobody has read the new file yet.
    let limit = row("limits.queue_messages");
    assert_eq!(
        (&limit["value"], &limit["default"], &limit["source"]),
        (&json!("7"), &json!("1000"), &json!(file))
    );
    assert_eq!(row("runtime.threads")["source"], "--set");
    assert_eq!(broker.ctl(&["reload"]).0, Some(0));
    assert_eq!(row("limits.queue_messages")["source"], "built-in default");
    let interval = row("redelivery.interval");
    assert_eq!(
        (&interval["value"], &interval["effect"], &interval["source"]),
        (&json!("\"5s\""), &json!("live"), &json!(file))
    );
    let tick = row("expiry.tick");
    assert_eq!((&tick["value"], &tick["source"]), (&json!("\"250ms\""), &json!("built-in default")));
    assert_eq!((&tick["pending"], &tick["effect"]), (&json!("\"1s\""), &json!("restart")));
    let (code, text) = broker.ctl(&["config", "--changed"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains("expiry.tick") && text.contains("runtime.threads") && !text.contains("keep_alive"),
        "{text}"
    );
}

#[test]
fn the_file_of_credentials_is_another_one_after_a_reload_and_must_be_right() {
    let files = tempfile::tempdir().expect("a directory");
    let [old, new] = ["old", "new"].map(|name| files.path().join(name));
    let [of_old, of_new] = [&old, &new].map(|file| token(file, "viewer"));
    let named = |file: &Path| format!("[admin]\ncredentials = {file:?}\n");
    let broker = Configured::start(&named(&old));
    let status = |token: &str| {
        let headers = format!("{LOCAL}Authorization: Bearer {token}\r\n");
        request(broker.admin, "GET", "/api/v1/me", &headers).0
    };
    assert_eq!((status(&of_old), status(&of_new)), (200, 401));
    broker.write(&named(&files.path().join("missing")));
    let (code, text) = broker.ctl(&["reload"]);
    assert!(code == Some(2) && text.contains("admin.credentials: "), "{text}");
    assert_eq!(status(&of_old), 200);
    broker.write(&named(&new));
    let (code, text) = broker.ctl(&["reload"]);
    assert!(code == Some(0) && text.starts_with("live     admin.credentials"), "{text}");
    assert_eq!((status(&of_old), status(&of_new)), (401, 200));
}

#[test]
fn a_full_store_takes_messages_again_once_a_reload_has_raised_its_limit() {
    let limit = |mib: u32| format!("[store]\nsize_limit = \"{mib} MiB\"\n");
    let broker = Configured::start_stored(&limit(64));
    let mut away = RawClient::connect(broker.mqtt, &Connect::persistent(Version::V5, "away"));
    away.subscribe(&[("t", 1)]);
    away.disconnect();
    let mut publisher = broker.connect(Version::V5, "publisher");
    let large = Message::new("t", "x".repeat(1 << 20)).qos(1);
    let taken = (0..64).take_while(|_| publisher.deliver(&large) < 0x80).count();
    assert!((30..64).contains(&taken), "{taken}");
    assert_eq!(publisher.deliver(&large), 0x97);
    broker.write(&limit(256));
    let (code, text) = broker.ctl(&["reload"]);
    assert!(code == Some(0) && text.starts_with("live     store.size_limit"), "{text}");
    until("room", || (publisher.deliver(&large) < 0x80).then_some(()));
    broker.write(&limit(64));
    assert_eq!(broker.ctl(&["reload"]).0, Some(0));
    until("a full store", || (publisher.deliver(&large) == 0x97).then_some(()));
    assert_eq!(broker.metric("homing_store_full"), "1");
    // While the database is written, the lower limit waits for the next heartbeat, and messages are
    // taken meanwhile.
    broker.write(&limit(1024));
    assert_eq!(broker.ctl(&["reload"]).0, Some(0));
    until("room", || (broker.metric("homing_store_full") == "0").then_some(()));
    assert_eq!(broker.metric("homing_config_restart_pending"), "0");
}

#[test]
fn the_interval_of_the_broker_s_topics_changes_while_it_runs() {
    let broker = Configured::start("[sys]\npublish_interval = \"1d\"\n");
    let mut client = broker.connect(Version::V5, "c");
    client.subscribe(&[("$SYS/broker/uptime", 0)]);
    client.expect_publish();
    broker.write("[sys]\npublish_interval = \"100ms\"\n");
    let (code, text) = broker.ctl(&["reload"]);
    assert!(code == Some(0) && text.starts_with("live     sys.publish_interval"), "{text}");
    // Published at housekeeping, once a second.
    client.expect_publishes(2);
}

#[test]
fn a_file_with_mistakes_changes_nothing_and_every_mistake_is_named() {
    let mut broker = Configured::start("");
    let mut client = broker.connect(Version::V5, "c");
    broker.write("[redelivery]\ninterval = \"5s\"\nintervall = 3\n[limits]\nqueue_messages = 0\n");
    // A check is no reload, so no alert may fire for it.
    assert_eq!(broker.ctl(&["reload", "--dry-run"]).0, Some(2));
    assert_eq!(broker.metric("homing_config_reloads_total{result=\"refused\"}"), "0");
    let (code, text) = broker.ctl(&["reload"]);
    assert_eq!(code, Some(2), "{text}");
    for words in
        ["unknown key redelivery.intervall", "limits.queue_messages = 0 is not allowed", "nothing is changed"]
    {
        assert!(text.contains(words), "{text}");
    }
    broker.broker.line("event=config.reload_refused").expect("a line");
    // Half a file, as an editor leaves it.
    broker.write("[redelivery]\ninterv");
    assert_eq!(broker.ctl(&["reload"]).0, Some(2));
    assert_eq!(broker.metric("homing_config_reloads_total{result=\"refused\"}"), "2");
    assert_eq!(broker.problems(), ["reload_refused"]);
    broker.write("");
    assert_eq!(broker.ctl(&["reload"]), (Some(0), "nothing changed".to_owned()));
    assert_eq!(broker.problems(), [""; 0]);
    broker.write("[runtime]\nthreads = 3\n[expiry]\ntick = \"1s\"\n");
    assert_eq!(broker.ctl(&["reload"]).0, Some(0));
    assert_eq!(broker.problems(), ["restart_pending"]);
    broker.write("[redelivery]\ninterv");
    assert_eq!(broker.ctl(&["reload", "--dry-run"]).0, Some(2));
    assert_eq!(broker.problems(), ["restart_pending"], "a check alone changes nothing");
    client.settle();
}

#[test]
fn the_names_of_the_interface_change_while_it_runs() {
    let broker = Configured::start("");
    let status = || request(broker.admin, "GET", "/healthz", "Host: broker.example\r\n").0;
    assert_eq!(status(), 403);
    broker.write("[admin]\nhosts = [\"broker.example\"]\n");
    let expected = "live     admin.hosts [] -> [\"broker.example\"]".to_owned();
    assert_eq!(broker.ctl(&["reload"]), (Some(0), expected));
    assert_eq!(status(), 200);
}

/// Connects a 5.0 client with the password `p`.
fn login(broker: &Configured, client_id: &str, user: &str) -> RawClient {
    RawClient::connect(broker.mqtt, &Connect::new(Version::V5, client_id).user_name(user).password(b"p"))
}

/// Returns the value of a file in the answer to a reload.
fn file_of<'a>(answer: &'a Value, kind: &str) -> &'a Value {
    let files = answer["files"].as_array().expect("files");
    files.iter().find(|file| file["kind"] == kind).expect("a file of this kind")
}

#[test]
fn a_reload_names_each_file_that_changed_and_counts_the_clients_that_it_disconnected() {
    let files = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: &str| {
        let path = files.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path.display().to_string()
    };
    let passwords = write("passwords", &password_file(&[("ann", "p"), ("bob", "p"), ("eve", "p")]));
    let (acl, bans) = (write("acl", "pattern readwrite #\n"), write("bans", "client nobody\n"));
    let mut broker = Configured::start(&format!(
        "[auth]\npassword_file = {passwords:?}\n[acl]\nfile = {acl:?}\n[bans]\nfile = {bans:?}\n"
    ));
    let mut clients = ["ann", "bob", "eve"].map(|name| login(&broker, name, name));
    let mut more = [1, 2, 3].map(|number| login(&broker, &format!("bob-{number}"), "bob"));
    let reload = || {
        let (code, text) = broker.ctl(&["--json", "reload"]);
        assert_eq!(code, Some(0), "{text}");
        serde_json::from_str::<Value>(&text).expect("JSON")
    };
    let counts = |passwords: u64, bans: u64| {
        let total = passwords + bans;
        json!({ "total": total, "passwords": passwords, "tls": 0, "bans": bans, "complete": true })
    };
    let answer = reload();
    assert_eq!(answer["disconnected"], counts(0, 0));
    for kind in ["passwords", "acl", "bans"] {
        assert_eq!(file_of(&answer, kind)["changed"], false, "{answer}");
    }
    // One file alone is another one.
    write("passwords", &password_file(&[("ann", "p"), ("eve", "p")]));
    let answer = reload();
    assert_eq!(answer["disconnected"], counts(4, 0));
    let wanted = json!({
        "kind": "passwords",
        "key": "auth.password_file",
        "listener": null,
        "path": passwords,
        "changed": true,
        "detail": "2 users, had 3 users",
    });
    assert_eq!(file_of(&answer, "passwords"), &wanted);
    assert_eq!(file_of(&answer, "acl")["changed"], false);
    for bob in clients[1..2].iter_mut().chain(&mut more) {
        bob.expect_disconnected(0x87);
    }
    write("bans", "client nobody\nclient ann\n");
    write("acl", "pattern readwrite a/#\n");
    let (code, text) = broker.ctl(&["reload"]);
    let lines = [
        format!("same     passwords (auth.password_file, {passwords}): 2 users"),
        format!("changed  acl (acl.file, {acl}): rules for 0 users"),
        format!("changed  bans (bans.file, {bans}): 2 bans, had 1 ban"),
        "clients  1 disconnected (1 by bans)".to_owned(),
    ];
    assert_eq!((code, text), (Some(0), lines.join("\n")));
    clients[0].expect_disconnected(0x98);
    clients[2].settle();
    let line = broker.broker.line("1 client disconnected (1 by bans)").expect("a line");
    assert!(line.contains("event=config.reloaded"), "{line}");
    let changed = format!("bans (bans.file, {bans}) changed: 2 bans, had 1 ban");
    assert!(line.contains(&changed), "{line}");
}

/// The unit of systemd reloads by `homing ctl reload`, which finds the file of the broker first.
#[test]
fn a_command_reaches_the_broker_while_its_file_has_a_mistake() {
    let broker = Configured::start("");
    broker.write("[redelivery]\nintervall = 3\n");
    let homing = |command: &str, arguments: &[&str]| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_homing"));
        program.arg(command).arg("--config").arg(broker.file()).args(arguments);
        let output = program.output().expect("it runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let socket = broker.directory.path().join("s").display().to_string();
    let (code, text) = homing("ctl", &["--socket", &socket, "status"]);
    assert!(code == Some(0) && text.contains("unknown key redelivery.intervall"), "{text}");
    let named = format!("admin.socket={socket}");
    assert_eq!(homing("ctl", &["--set", &named, "reload"]).0, Some(2));
    assert_eq!(broker.metric("homing_config_reloads_total{result=\"refused\"}"), "1");
    assert_eq!(homing("health", &["--address", &broker.mqtt.to_string()]).0, Some(0));
    assert_eq!(homing("check-config", &[]).0, Some(2));
}

#[test]
fn a_bad_parameter_of_a_reload_is_a_problem_for_a_known_caller_and_says_nothing_to_others() {
    let broker = Configured::start("");
    let path = "/api/v1/config/reload?dry_run=maybe";
    let (status, answer) = request(broker.admin, "POST", path, LOCAL);
    assert!(status == 401 && answer.contains("/api/problems/unauthorized"), "{answer}");
    let mut socket = UnixStream::connect(broker.directory.path().join("s")).expect("it listens");
    write!(socket, "POST {path} HTTP/1.1\r\nConnection: close\r\n{LOCAL}\r\n").expect("it reads");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("text");
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("application/problem+json"), "{answer}");
    assert!(answer.contains("/api/problems/invalid-parameter") && answer.contains("dry_run"), "{answer}");
}

/// Each change is one of its own: limits, redelivery, Keep Alive, the log.
#[test]
fn new_settings_hold_at_once_and_nobody_is_disconnected() {
    let mut broker = Configured::start("[redelivery]\ninterval = \"off\"\n");
    let mut old = broker.connect(Version::V311, "old");
    old.subscribe(&[("t", 1)]);
    let mut newer = broker.connect(Version::V5, "newer");
    broker.write(
        "[redelivery]\ninterval = \"300ms\"\njitter = 0.0\n[limits]\nconnections = 3\nsubscriptions_per_client = 1\ntopic_levels = 2\n[keep_alive]\nmaximum = \"7s\"\n",
    );
    assert_eq!(broker.ctl(&["reload"]).0, Some(0));
    // The walk over the sessions comes before the next message.
    newer.deliver(&Message::new("t", "again").qos(1));
    let first = old.expect_publish();
    let again = old.expect_publish();
    assert_eq!((first.id, again.id, again.text()), (first.id, first.id, "again"));
    assert!(!first.dup && again.dup);
    old.ack(Kind::Puback, first.id);
    // limits.topic_levels of a client that was there before.
    assert_eq!(newer.deliver(&Message::new("a/b/c", "deep").qos(1)), 0x90);
    // keep_alive.maximum of a new one.
    let third = RawClient::connect(broker.mqtt, &Connect::new(Version::V5, "third").keep_alive(60));
    assert!(third.connack().properties.contains(&Property::ServerKeepAlive(7)), "{:?}", third.connack());
    // limits.connections
    let mut fourth = RawClient::open(broker.mqtt, Version::V5);
    assert_eq!(fourth.expect_closed(), None);
    broker.broker.line("event=connection.refused").expect("a line");
    old.settle();
    newer.settle();
}

#[test]
fn an_objective_of_a_reload_counts_and_one_that_stays_keeps_its_counts() {
    let table = |name: &str, topic: &str, target: f64| {
        format!("[[slo]]\nname = \"{name}\"\ntopic = \"{topic}\"\nwithin = \"5s\"\ntarget = {target}\n")
    };
    let broker = Configured::start("");
    let mut pump = broker.connect(Version::V5, "pump");
    pump.subscribe(&[("#", 1)]);
    let mut publisher = broker.connect(Version::V5, "publisher");
    let mut deliver = |topic: &str| {
        publisher.deliver(&Message::new(topic, "on").qos(1));
        let id = pump.expect_publish().id;
        pump.ack(Kind::Puback, id);
        pump.settle();
    };
    let in_time = |name: &str| {
        broker.metric(&format!("homing_slo_deliveries_total{{slo=\"{name}\",result=\"in_time\"}}"))
    };
    deliver("pumps/1");
    broker.write(&table("pumps", "pumps/#", 0.9));
    let (code, text) = broker.ctl(&["reload"]);
    assert!(code == Some(0) && text.starts_with("live     slo "), "{text}");
    deliver("pumps/2");
    until("the first count", || (in_time("pumps") == "1").then_some(()));
    broker.write(&format!("{}{}", table("lamps", "lamps/#", 0.9), table("pumps", "pumps/+", 0.99)));
    assert_eq!(broker.ctl(&["reload"]).0, Some(0));
    deliver("lamps/1");
    deliver("pumps/3");
    until("both counts", || (in_time("pumps") == "2" && in_time("lamps") == "1").then_some(()));
    let (code, text) = broker.ctl(&["slo"]);
    assert!(code == Some(0) && text.contains("99 %"), "{text}");
    broker.write("");
    assert_eq!(broker.ctl(&["reload"]).0, Some(0));
    until("no objective", || in_time("pumps").is_empty().then_some(()));
}

/// A 5.0 client was told Receive Maximum and Topic Alias Maximum in CONNACK.
#[test]
fn what_a_client_was_told_holds_until_it_leaves() {
    let limits = |count| format!("[limits]\nreceive_maximum = {count}\ntopic_alias_maximum = {count}\n");
    let broker = Configured::start(&limits(2));
    let connect = |client_id| broker.connect(Version::V5, client_id);
    let mut both = [connect("old"), connect("old-aliases")];
    broker.write(&limits(1));
    let (code, text) = broker.ctl(&["reload"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.lines().all(|line| line.starts_with("new ")) && text.lines().count() == 2, "{text}");
    for most in [2, 1] {
        let [mut sender, mut aliases] = both;
        for client in [&sender, &aliases] {
            let told = [Property::ReceiveMaximum(most), Property::TopicAliasMaximum(most)];
            assert!(told.iter().all(|limit| client.connack().properties.contains(limit)), "{told:?}");
        }
        for id in 1..=most {
            sender.publish_as(&Message::new("t", "").qos(2), id);
            sender.expect_ack(Kind::Pubrec, id);
        }
        sender.publish_as(&Message::new("t", "").qos(2), most + 1);
        sender.expect_disconnected(0x93);
        let aliased = |alias| Message::new("t", "").qos(1).with(Property::TopicAlias(alias));
        assert_eq!(aliases.deliver(&aliased(most)), 0x10, "nobody has subscribed");
        aliases.publish(&aliased(most + 1));
        aliases.expect_disconnected(0x94);
        both = [connect("new"), connect("new-aliases")];
    }
}

#[test]
fn the_packet_size_that_a_client_was_told_holds_until_it_leaves() {
    let size = |kib: u32| format!("[limits]\npacket_size = \"{kib} KiB\"\n");
    let broker = Configured::start(&size(4));
    let versions = [Version::V311, Version::V5];
    let connect = || versions.map(|version| broker.connect(version, &format!("{version:?}")));
    let mut clients = connect();
    for (told, now_kib) in [(4, 2), (2, 8)] {
        broker.write(&size(now_kib));
        let (code, text) = broker.ctl(&["reload"]);
        assert!(code == Some(0) && text.starts_with("new ") && text.lines().count() == 1, "{text}");
        for mut client in clients {
            let most = Property::MaximumPacketSize(told << 10);
            assert!(client.version() < Version::V5 || client.connack().properties.contains(&most), "{told}");
            let largest = "x".repeat((told << 10) as usize - 100);
            assert!(client.deliver(&Message::new("t", &largest).qos(1)) < 0x80);
            client.publish(&Message::new("t", largest + &"x".repeat(100)));
            client.expect_disconnected(0x95);
        }
        clients = connect();
    }
}

#[test]
fn a_signal_does_the_same_and_reloads_come_one_at_a_time() {
    let mut broker = Configured::start("");
    let mut client = broker.connect(Version::V311, "c");
    broker.write("[limits]\nqueue_messages = 7\n");
    broker.broker.signal(Signal::HUP);
    let line = broker.broker.line("event=config.reloaded").expect("a line");
    assert!(line.contains("limits.queue_messages 1000 -> 7 (live)"), "{line}");
    let (started, admin, socket) = (now(), broker.admin, broker.directory.path().join("s"));
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                for _ in 0..5 {
                    let (status, _) = request(admin, "POST", "/api/v1/config/reload", LOCAL);
                    // Nobody proved who asks, so it costs nothing.
                    assert_eq!(status, 401);
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| (0..5).for_each(|_| assert_eq!(ctl(&socket, &["reload"]).0, Some(0))));
        }
    });
    assert!(now() - started < PATIENCE);
    assert_eq!(broker.metric("homing_config_reloads_total{result=\"done\"}"), "11");
    client.settle();
}

/// Connects a 3.1.1 client. Returns its socket with the code of CONNACK, or without one if the broker
/// closes the connection.
pub fn connect_unix(path: &Path, client_id: u8) -> (UnixStream, Option<u8>) {
    let mut stream = UnixStream::connect(path).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let connect = [b"\x10\x0d\0\x04MQTT\x04\x02\0\0\0\x01".as_slice(), &[client_id]].concat();
    // The broker may have closed it already.
    let _ = stream.write_all(&connect);
    let mut connack = [0; 4];
    let code = stream.read_exact(&mut connack).ok().map(|()| connack[3]);
    (stream, code)
}

#[test]
fn limits_of_a_listener_change_for_new_connections() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("l");
    let file = |lines: &str| format!("[[listeners]]\naddress = \"unix:{}\"\n{lines}", path.display());
    let broker = Configured::start(&file("connections = 1\n"));
    let (mut first, code) = connect_unix(&path, b'1');
    assert_eq!(code, Some(0));
    assert_eq!(connect_unix(&path, b'2').1, None, "the listener is full");
    broker.write(&file("connections = 3\nversions = [\"3.1.1\"]\n"));
    let (code, text) = broker.ctl(&["reload"]);
    assert!(code == Some(0) && text.starts_with("new      listeners "), "{text}");
    let (second, code) = connect_unix(&path, b'2');
    assert_eq!(code, Some(0));
    broker.write(&file("connections = 3\nversions = [\"5.0\"]\nmode = \"0600\"\n"));
    let (code, text) = broker.ctl(&["reload"]);
    assert!(code == Some(0) && text.starts_with("restart  listeners "), "{text}");
    let line = format!("restart  listener unix:{} changed: mode, versions (pending)", path.display());
    assert!(text.ends_with(&line), "{text}");
    let (third, code) = connect_unix(&path, b'3');
    assert_eq!(code, Some(0), "the versions wait, as the permissions do");
    drop(third);
    broker.write(&file("connections = 4\nversions = [\"5.0\"]\n"));
    let (code, text) = broker.ctl(&["reload"]);
    assert!(code == Some(0) && text.starts_with("new      listeners "), "{text}");
    assert_eq!(connect_unix(&path, b'4').1, Some(1), "the version is refused");
    first.write_all(&[0xC0, 0]).expect("it is connected");
    first.read_exact(&mut [0; 2]).expect("it is connected");
    drop(second);
}

#[test]
fn new_values_that_contradict_values_until_a_restart_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let listener = format!("[[listeners]]\naddress = \"unix:{}\"\n", directory.path().join("l").display());
    let broker = Configured::start(&format!("{listener}packet_size = \"128 MiB\"\n"));
    // Right by itself, but the larger packets stay allowed until a restart, as the permissions do.
    broker.write(&format!("[limits]\nmemory = \"64 MiB\"\n{listener}mode = \"0600\"\n"));
    let (code, text) = broker.ctl(&["reload"]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("in force until a restart: listeners, listener 1: packet_size"), "{text}");
    assert_eq!(broker.metric("homing_config_reloads_total{result=\"refused\"}"), "1");
}
