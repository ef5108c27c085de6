//! Calls without faults of servers, and the bounds of calls where nobody answers.

use crate::engine_contract::CASES;
use crate::operators::see_a_cluster;
use crate::proxy::Passage;
use crate::servers::{Servers, certificates, own_address, spawn};
use crate::support::{now, until};
use crate::writer;
use homing::cluster::engine::{Append, Engine};
use homing::cluster::nats::{Nats, NatsSettings};
use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

#[test]
fn the_engine_does_what_an_engine_must_do() {
    let servers = Servers::start();
    thread::scope(|scope| {
        for (name, case) in CASES {
            let servers = &servers;
            scope.spawn(move || {
                // Doors stay open as long as the case runs.
                let doors = std::sync::Mutex::new(Vec::new());
                case(&|| {
                    let node = servers.node(name);
                    doors.lock().expect("no panic").push(node.doors);
                    node.engine as Arc<dyn Engine>
                });
            });
        }
    });
}

#[test]
fn settings_and_their_mistakes_are_named_and_operators_see_a_cluster() {
    let servers = Servers::start();
    let with = |monitor: Option<String>, user: Option<&str>| {
        let user = user.map(|user| (user.to_owned(), "guess".to_owned().into()));
        let cluster = "settings".to_owned();
        servers.node_with(NatsSettings { cluster, monitor, user, ..NatsSettings::default() })
    };
    let node = with(Some(servers.monitor(0)), None);
    node.engine.init(64 * 1024 * 1024).expect("made");
    let check = node.engine.check().expect("an answer");
    assert_eq!((check.problems, check.warnings), (Vec::<String>::new(), Vec::<String>::new()));
    let warnings = |monitor: Option<&str>| {
        let node = with(monitor.map(str::to_owned), None);
        node.engine.check().expect("an answer").warnings.join("\n")
    };
    assert!(warnings(None).contains("set cluster.monitor"), "{}", warnings(None));
    let wrong = warnings(Some("https://127.0.0.1:8222"));
    assert!(wrong.contains("it is not http://HOST:PORT"), "{wrong}");
    let nobody = warnings(Some("http://127.0.0.1:9"));
    assert!(nobody.contains("refused"), "{nobody}");
    let intruder = with(None, Some("homing"));
    until("the reason", || {
        let error = intruder.engine.bounds().expect_err("a wrong password").to_string();
        error.to_lowercase().contains("authorization violation").then_some(())
    });
    // On the same servers, which take seconds to start.
    see_a_cluster(&servers);
}

#[test]
fn each_call_ends_in_time_when_no_server_answers() {
    let servers = Servers::start();
    let node = servers.initialized("hang");
    let engine = &*node.engine;
    writer::write_while(engine, |_| {});
    node.doors.iter().for_each(|door| door.set(Passage::Hole));
    let within = |what: &str, seconds: u64, call: &mut dyn FnMut()| {
        let begun = now();
        call();
        // Twice the bound, and a second: the machine is busy.
        let bound = Duration::from_secs(2 * seconds + 1);
        assert!(begun.elapsed() < bound, "{what} took {:?}", begun.elapsed());
    };
    within("append", 1, &mut || assert!(matches!(engine.append(0, &"x".into()), Append::Unknown(_))));
    within("read", 1, &mut || assert!(engine.read(0, 1).is_err()));
    within("bounds", 1, &mut || assert!(engine.bounds().is_err()));
    within("announce", 1, &mut || engine.announce(5));
    within("row", 1, &mut || assert!(engine.row("a").is_err()));
    within("swap_row", 1, &mut || assert!(engine.swap_row("a", 0, "x".into()).is_err()));
    within("remove_row", 10, &mut || assert!(engine.remove_row("a").is_err()));
    within("purge", 1, &mut || assert!(engine.purge(1).is_err()));
    within("check", 1, &mut || assert!(engine.check().is_err()));
    within("init", 1, &mut || assert!(engine.init(1).is_err()));
    within("put_snapshot", 20, &mut || assert!(engine.put_snapshot(1, &mut &b"abc"[..]).is_err()));
    within("get_snapshot", 1, &mut || assert!(engine.get_snapshot(1, &mut Vec::new()).is_err()));
    node.doors.iter().for_each(|door| door.set(Passage::Open));
    writer::write_while(engine, |_| {});
}

#[test]
fn a_node_leaves_a_server_that_hangs_and_one_that_is_slow_is_only_slow() {
    let servers = Servers::start();
    let node = servers.initialized("doors");
    let gap = writer::write_while(&*node.engine, |progress| {
        let first = node.engine.server().expect("a connection").0;
        assert_eq!(first, "n0", "the first in the list is the first");
        node.doors[0].set(Passage::Hole);
        progress.more(20);
        assert_ne!(node.engine.server().expect("a connection").0, first);
        node.doors.iter().for_each(|door| door.set(Passage::Slow(Duration::from_millis(30))));
        progress.more(20);
        node.doors.iter().for_each(|door| door.set(Passage::Closed));
        node.doors[2].set(Passage::Open);
        progress.more(20);
    });
    println!("a server that hangs: {gap:?}");
    assert!(gap < Duration::from_secs(30), "{gap:?}");
}

#[test]
fn a_node_proves_who_it_is_with_a_certificate() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let file = |name: &str| directory.path().join(name);
    let address = SocketAddr::from((own_address(), 4222));
    certificates(directory.path(), &[&address.ip().to_string()], &["server", "node"]);
    let path = |name: &str| file(name).display().to_string();
    let configuration = format!(
        "server_name: alone\nlisten: \"{address}\"\njetstream {{ store_dir: \"{}\" }}\n\
         tls {{ cert_file: \"{}\", key_file: \"{}\", ca_file: \"{}\", verify: true }}\n",
        path("store"),
        path("server.pem"),
        path("server.key"),
        path("ca.pem")
    );
    fs::write(file("conf"), configuration).expect("a file");
    let mut server = spawn(&file("conf"), &file("log"));
    let open = |certificate| {
        let (cluster, servers, ca) =
            ("tls".to_owned(), vec![format!("tls://{address}")], Some(file("ca.pem")));
        Nats::open(NatsSettings { cluster, servers, ca, certificate, ..NatsSettings::default() })
            .expect("settings")
    };
    let known = open(Some((file("node.pem"), file("node.key"))));
    until("a connection", || known.server().filter(|(name, _)| name == "alone"));
    let unknown = open(None);
    let error = unknown.bounds().expect_err("no certificate").to_string();
    assert!(error.contains("no connection"), "{error}");
    server.kill().expect("killed");
    server.wait().expect("its end");
}
