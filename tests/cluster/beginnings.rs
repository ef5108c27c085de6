//! A cluster over TLS, with an authority of its own and certificates of the nodes. It begins with the
//! store of a broker by itself, and one of its nodes ends as such a broker.

use crate::fleet::{Fleet, expect_all};
use crate::servers::{Servers, certificates};
use crate::support::process::Process;
use crate::support::{Connect, Message, RawClient, V5, until};
use homing::cluster::engine::Engine;
use std::fs;
use std::net::TcpStream;
use std::process::Command;

/// The kind of a Claim in a frame.
const CLAIM: u8 = 1;

#[test]
fn a_cluster_over_tls_begins_with_the_store_of_a_broker_by_itself() {
    let servers = Servers::start_with_tls();
    let path = |name: &str| servers.path(name).display().to_string();
    let tls = |ca: &str| {
        format!(
            "nats_ca = {:?}\nnats_certificate = {:?}\nnats_key = {:?}",
            path(ca),
            path("node.pem"),
            path("node.key")
        )
    };
    let mut fleet = Fleet::new(&servers, "born", &["a", "b"], &tls("ca.pem"));
    let alone = fleet.directory.path().join("alone.toml");
    let (data, address) = (fleet.nodes[0].data.clone(), fleet.nodes[0].address);
    fs::write(
        &alone,
        format!(
            "[network]\nlisten = [\"{address}\"]\n[admin]\naddresses = \"off\"\n[store]\npath = {data:?}\n"
        ),
    )
    .expect("a file");
    let serve_alone = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
        Process::spawn(command.arg("serve").arg("--config").arg(&alone))
    };
    fleet.nodes[0].process = Some(serve_alone());
    let mut subscriber = fleet.connect("subscriber");
    assert_eq!(subscriber.subscribe(&[("plant/#", 1)]), [1]);
    assert!(subscriber.deliver(&Message::new("kept", "retained").qos(1).retained()) < 0x80);
    subscriber.disconnect();
    fleet.publish(0..30);

    let (code, busy) = fleet.ask(0, &["init", "--from-store"]);
    assert!(code == 1 && busy.contains("is in use by another process"), "{busy}");
    fleet.stop(0);
    let (code, without) = fleet.ask(0, &["init"]);
    assert!(code == 2 && without.contains("`homing cluster init --from-store`"), "{without}");
    let (code, made) = fleet.ask(0, &["init", "--from-store"]);
    assert!(code == 0 && made.contains("begins with the sessions and messages of"), "{made}");
    let (code, again) = fleet.ask(0, &["init", "--from-store"]);
    assert!(code == 2 && again.contains("is there already"), "{again}");
    let (code, said) = serve_alone().end();
    let said = said.join("\n");
    assert!(code == Some(1) && said.contains("belongs to a cluster: set the section [cluster]"), "{said}");

    fleet.begin_ended();
    fleet.publish(30..60);
    let mut subscriber = fleet.connect("subscriber");
    assert!(subscriber.session_present());
    expect_all(&mut subscriber, 0..60);
    subscriber.subscribe(&[("kept", 1)]);
    assert_eq!(subscriber.expect_publish().payload, b"retained");
    subscriber.disconnect();

    // The node that serves leaves. Its store names the last frame of its time.
    fleet.await_that("a node that stands by", |fleet| fleet.ask(0, &["status"]).1.contains(" following "));
    let owner = fleet.serving().expect("one serves");
    let name = fleet.nodes[owner].name.clone();
    fleet.await_that("a standby with all frames", |fleet| fleet.ask(owner, &["drain", &name]).0 == 0);
    let (code, said) = fleet.nodes[owner].process.take().expect("it runs").end();
    assert_eq!(code, Some(0), "{said:#?}");
    let (code, left) = fleet.ask(owner, &["leave"]);
    assert_eq!(code, 0, "{left}");
    let position = left.split("as of frame ").nth(1).and_then(|rest| rest.split(':').next());
    let position: u64 = position.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{left}"));
    fleet.await_that("the other node serves", |fleet| fleet.serving().is_some());
    let node = servers.node("born");
    let frames = node.engine.read(position, 1).expect("the frame of the next owner");
    assert_eq!((frames[0].0, frames[0].1[5]), (position + 1, CLAIM), "{left}");
    let (code, back) = fleet.refused(owner, &[]);
    assert!(code == Some(2) && back.contains("has the store of a broker by itself"), "{back}");
    if owner == 0 {
        let _process = serve_alone();
        until("it listens", || TcpStream::connect(address).ok());
        let mut subscriber = RawClient::connect(address, &Connect::persistent(V5, "subscriber"));
        assert!(subscriber.session_present());
        subscriber.ping();
    }

    // Of another authority, without a certificate, and with a file that is missing.
    let other = fleet.directory.path().to_owned();
    certificates(&other, &["127.0.0.1"], &["stranger"]);
    let file = |name: &str| other.join(name).display().to_string();
    let with = |settings: &[&str]| {
        let mut arguments = vec!["cluster", "status"];
        settings.iter().for_each(|setting| arguments.extend(["--set", setting]));
        fleet.run(1, &arguments)
    };
    let (code, unknown) = with(&[&format!("cluster.nats_ca={}", file("ca.pem"))]);
    // Both authorities have the same name here, so rustls says BadSignature or UnknownIssuer.
    assert!(code == 1 && unknown.contains("no connection: IO error: invalid peer certificate"), "{unknown}");
    let certificate = format!("cluster.nats_certificate={}", file("stranger.pem"));
    let (code, stranger) = with(&[&certificate, &format!("cluster.nats_key={}", file("stranger.key"))]);
    assert!(code != 0 && stranger.contains("no connection"), "{stranger}");
    let (code, missing) = with(&[&format!("cluster.nats_ca={}", file("missing.pem"))]);
    assert!(
        code == 2 && missing.contains("cluster.nats_ca") && missing.contains("No such file"),
        "{missing}"
    );
    let (code, empty) = with(&[&format!("cluster.nats_key={}", path("node.pem"))]);
    assert!(
        code == 2
            && empty.contains("cluster.nats_key")
            && empty.contains("a private key (-----BEGIN PRIVATE KEY-----) is expected"),
        "{empty}"
    );
}
