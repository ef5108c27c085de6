//! Settings, servers, directories and commands that make no sense: each has one line that says what is
//! wrong, and an exit code, and nothing is half done.

use crate::fleet::Fleet;
use crate::servers::{PASSWORD, Servers};
use crate::support::process::Process;
use homing::cluster::engine::{Append, Engine};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::thread;

/// Asks JetStream as an operator with the command `nats` does.
fn ask(server: SocketAddr, subject: &str, body: &Value) -> Value {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let options = async_nats::ConnectOptions::with_user_and_password("homing".into(), PASSWORD.into());
        let client = options.connect(format!("nats://{server}")).await.expect("connected");
        let answer = client.request(subject.to_owned(), body.to_string().into()).await.expect("an answer");
        let answer: Value = serde_json::from_slice(&answer.payload).expect("JSON");
        assert!(answer.get("error").is_none(), "{subject}: {answer}");
        answer
    })
}

/// Changes a setting of a stream, and returns what it was.
fn change(server: SocketAddr, stream: &str, setting: &str, value: Value) -> Value {
    let info = ask(server, &format!("$JS.API.STREAM.INFO.{stream}"), &Value::Null);
    let mut config = info["config"].clone();
    let before = std::mem::replace(&mut config[setting], value);
    ask(server, &format!("$JS.API.STREAM.UPDATE.{stream}"), &config);
    before
}

/// A server of one answer: `answer` makes it from the stream of a client.
fn serve(answer: impl Fn(TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || listener.incoming().flatten().for_each(answer));
    address
}

#[test]
fn what_makes_no_sense_is_refused_with_a_line_and_nothing_is_half_done() {
    let servers = Servers::start_at_once();
    let doors = servers.doors();
    let server = doors[0].address;
    let mut fleet = Fleet::new(&servers, "refused", &["a", "b"], "");
    let refused = |fleet: &Fleet, node: usize, settings: &[&str], code: i32, words: &[&str]| {
        let (found, said) = fleet.refused(node, settings);
        assert!(
            found == Some(code) && words.iter().all(|word| said.contains(word)),
            "{words:?} {found:?}: {said}"
        );
    };
    let commanded = |fleet: &Fleet, arguments: &[&str], code: i32, words: &str| {
        let (found, said) = fleet.ask(0, arguments);
        assert!(found == code && said.contains(words), "{arguments:?} {found}: {said}");
    };

    // Before there is a cluster.
    refused(&fleet, 0, &[], 2, &["the engine has no cluster \"refused\"", "`homing cluster init`"]);
    commanded(&fleet, &["status"], 1, "has `homing cluster init` been run");
    commanded(&fleet, &["init"], 0, "is made");
    commanded(&fleet, &["init"], 2, "is there already");
    commanded(&fleet, &["reseed"], 2, "is not the store of a node");
    commanded(&fleet, &["drain", "x"], 2, "is not in cluster.nodes");
    commanded(&fleet, &["leave"], 2, "is of no cluster");

    // Settings of the node.
    refused(&fleet, 0, &["store.durability=os"], 2, &["store.durability = \"os\""]);
    refused(&fleet, 0, &["cluster.node=z"], 2, &["cluster.node \"z\""]);
    let guess = fleet.directory.path().join("guess");
    fs::write(&guess, "guess").expect("a file");
    let guess = format!("cluster.nats_password_file={}", guess.display());
    refused(&fleet, 0, &[&guess], 2, &["cluster.nats_password_file"]);
    let (code, said) = fleet.run(0, &["cluster", "status", "--set", &guess]);
    assert!(code == 2 && said.contains("cluster.nats_password_file"), "{code}: {said}");

    // Nobody at the address: the node waits, says so each 10 s, and is healthy.
    let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
    let command = command.arg("serve").arg("--config").arg(&fleet.nodes[0].configuration);
    let mut waits = Process::spawn(command.args(["--set", "cluster.nats=[\"nats://127.0.0.1:9\"]"]));
    for _ in 0..2 {
        let line = waits.line("cluster.engine_away").expect("it waits");
        assert!(line.contains("see cluster.nats"), "{line}");
    }
    assert_eq!((fleet.http(0, "/healthz"), fleet.http(0, "/readyz")), (200, 503));
    waits.signal(Signal::TERM);
    assert_eq!(waits.end().0, Some(0));

    // Servers whose settings may lose frames.
    let lazy = serve(|mut stream| {
        let _ = stream.read(&mut [0; 1024]);
        let _ = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\n{\"config\":{\"max_memory\":1}}");
    });
    let lazy = format!("cluster.monitor=http://{lazy}");
    refused(&fleet, 0, &[&lazy], 2, &["cluster.monitor", "sync_interval: always"]);
    let old = serve(move |client| {
        let mut server = TcpStream::connect(server).expect("connected");
        let (mut from, mut to) =
            (client.try_clone().expect("a socket"), server.try_clone().expect("a socket"));
        thread::spawn(move || std::io::copy(&mut from, &mut to));
        // Its first line has the version.
        let mut hello = [0; 8192];
        let count = server.read(&mut hello).unwrap_or(0);
        let hello = String::from_utf8_lossy(&hello[..count])
            .replace("\"version\":\"2.15.1\"", "\"version\":\"2.10.9\"");
        let mut client = client;
        let _ = client.write_all(hello.as_bytes());
        thread::spawn(move || std::io::copy(&mut server, &mut client));
    });
    let old = format!("cluster.nats=[\"nats://{old}\"]");
    refused(&fleet, 0, &[&old], 2, &["is of version 2.10.9", "2.14.4 or later is needed"]);
    let stream = "HOMING_refused_C0";
    for (setting, wrong, words) in [
        ("max_age", Value::from(3_600_000_000_000_u64), "has max_age 3600000000000, and needs 0"),
        ("discard", Value::from("old"), "has discard old, and needs new"),
        ("num_replicas", Value::from(1), "has num_replicas 1, and needs 3"),
    ] {
        let before = change(server, stream, setting, wrong);
        refused(&fleet, 0, &[], 2, &[stream, words]);
        commanded(&fleet, &["verify"], 1, words);
        change(server, stream, setting, before);
    }

    // A user who may not append: that is no want of room. The node waits until somebody has mended it.
    let mut forbidden = {
        let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
        let command = command.arg("serve").arg("--config").arg(&fleet.nodes[0].configuration);
        Process::spawn(command.args(["--set", "cluster.nats_user=reader"]))
    };
    let line = forbidden.line("cluster.refused").expect("it waits");
    assert!(line.to_lowercase().contains("permissions violation for publish"), "{line}");
    forbidden.signal(Signal::TERM);
    let (_, said) = forbidden.end();
    assert!(!said.iter().any(|line| line.contains("store.full")), "{said:#?}");

    // One node runs.
    fleet.begin(0);
    fleet.await_that("a serves", |fleet| fleet.ask(0, &["status"]).0 == 0);
    commanded(&fleet, &["drain", "a"], 2, "no other node stands by");
    commanded(&fleet, &["reseed"], 2, "has no alarm");
    let (code, said) = fleet.ask(0, &["leave"]);
    assert!(code == 1 && said.contains("is in use by another process"), "{said}");
    refused(&fleet, 1, &["cluster.node=a"], 2, &["another process is the node \"a\"", "cluster.node"]);

    // A directory and a log of another cluster.
    let other = Fleet::new(&servers, "other", &["a", "b"], "");
    commanded(&other, &["init"], 0, "is made");
    let node = servers.node("refused");
    let frame = node.engine.read(0, 1).expect("the first frame").remove(0).1;
    fleet.stop(0);
    let data = format!("store.path={}", fleet.nodes[0].data.display());
    refused(&other, 0, &[&data], 2, &["is of another cluster", "store.path"]);
    let log = servers.node("other");
    while log.engine.append(0, &frame) != Append::Applied(1) {
        let found = log.engine.read(0, 1).expect("an answer");
        if found.first().is_some_and(|(_, found)| *found == frame) {
            break;
        }
    }
    refused(&other, 1, &[], 2, &["of another cluster", "cluster.name"]);
}
