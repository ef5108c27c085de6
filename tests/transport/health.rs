//! `homing health` against listeners of every kind.

use crate::kit::{self, Pki};
use homing::broker::Broker;
use homing::config::{Anonymous, Group, Listener, ListenerProtocol, ListenerTls, ProxyProtocol};
use homing::mqtt::packet::ProtocolVersion;
use homing::named_enum::Named;
use std::process::Command;

/// Runs `homing health` with a file of settings and these arguments. Returns its exit code and all
/// that it wrote.
fn health(settings: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("homing.toml");
    std::fs::write(&file, settings).expect("a writable folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
    command.args(["health", "--config"]).arg(file).args(arguments).current_dir(folder.path());
    let output = command.output().expect("the binary was built");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

fn address(broker: &Broker) -> String {
    broker.addresses()[0].to_string()
}

fn assert_healthy(settings: &str, arguments: &[&str]) {
    let (code, said) = health(settings, arguments);
    assert_eq!(code, Some(0), "{arguments:?}: {said}");
    assert!(said.ends_with("is healthy\n"), "{said}");
}

#[test]
fn a_listener_with_tls_is_checked_with_its_authority_and_its_name() {
    let (pki, strangers) = (Pki::new(), Pki::new());
    let broker = kit::start(vec![Listener { tls: Some(pki.tls()), ..kit::listener() }]);
    let (address, ca, strange) = (address(&broker), pki.text_path("ca.pem"), strangers.text_path("ca.pem"));
    assert_healthy("", &["--address", &address, "--ca", &ca]);
    assert_healthy("", &["--address", &address, "--ca", &ca, "--tls", "--server-name", "localhost"]);
    for (wrong, expected) in [
        (&["--ca", &strange][..], "no TLS: invalid peer certificate: BadSignature"),
        (
            &["--ca", &ca, "--server-name", "other.example"],
            "no TLS: invalid peer certificate: certificate not valid for name",
        ),
        (&["--timeout", "500ms"], "no answer to CONNECT"),
    ] {
        let (code, said) = health("", &[&["--address", &address], wrong].concat());
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains(expected) && said.lines().count() == 1, "{expected}: {said}");
    }
    let (code, said) = health("", &["--address", &address, "--ca", "missing.pem"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("missing.pem: cannot be read"), "{said}");
}

#[test]
fn a_listener_that_requires_a_certificate_is_healthy_when_it_refuses() {
    let pki = Pki::new();
    let tls = pki.mutual_tls();
    let broker = kit::start(vec![Listener { tls: Some(tls), ..kit::listener() }]);
    assert_healthy("", &["--address", &address(&broker), "--ca", &pki.text_path("ca.pem")]);
}

#[test]
fn a_listener_that_needs_a_password_is_healthy_when_it_refuses() {
    let broker = kit::start_with(vec![kit::listener()], |config| {
        config.auth.anonymous = Anonymous::Never;
    });
    assert_healthy("", &["--address", &address(&broker)]);
}

#[test]
fn a_unix_socket_is_checked_by_its_path() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("homing.sock");
    let _broker = kit::start(vec![kit::unix_listener(path.clone())]);
    let address = format!("unix:{}", path.display());
    assert_healthy("", &["--address", &address]);
    assert_healthy(&format!("[[listeners]]\naddress = \"{address}\"\n"), &[]);
}

#[test]
fn a_websocket_is_checked_through_its_upgrade() {
    let pki = Pki::new();
    let websocket = || Listener { protocol: Some(ListenerProtocol::WebSocket), ..kit::listener() };
    let broker =
        kit::start(vec![websocket(), Listener { tls: Some(pki.tls()), ..websocket() }, kit::listener()]);
    let [plain, tls, mqtt] = [0, 1, 2].map(|at: usize| broker.addresses()[at].to_string());
    assert_healthy("", &["--address", &plain, "--websocket-path", "/mqtt"]);
    assert_healthy("", &["--address", &tls, "--ca", &pki.text_path("ca.pem"), "--websocket-path", "/mqtt"]);
    let (code, said) = health("", &["--address", &plain, "--websocket-path", "/other"]);
    assert!(
        code == Some(1) && said.contains("no WebSocket: GET /other was answered with HTTP/1.1 404"),
        "{said}"
    );
    let (code, said) = health("", &["--address", &mqtt, "--websocket-path", "/mqtt"]);
    assert!(code == Some(1) && said.contains("no WebSocket"), "{said}");
}

#[test]
fn the_first_listener_of_the_configuration_says_what_to_use() {
    let pki = Pki::new();
    let listener =
        Listener { protocol: Some(ListenerProtocol::WebSocket), tls: Some(pki.tls()), ..kit::listener() };
    let broker = kit::start(vec![listener]);
    let settings = format!(
        "[[listeners]]\naddress = \"{}\"\nprotocol = \"websocket\"\n[listeners.tls]\n\
         certificates = [{{ certificate = \"server.pem\", key = \"server.key\" }}]\n",
        address(&broker)
    );
    assert_healthy(&settings, &["--ca", &pki.text_path("ca.pem")]);
}

/// Returns the settings of `[[listeners]]` at the first address of a broker.
fn settings(broker: &Broker, keys: &str) -> String {
    format!("[[listeners]]\naddress = \"{}\"\n{keys}", address(broker))
}

#[test]
fn a_listener_that_does_not_want_the_client_is_healthy() {
    let of_listener = |listener: Listener| kit::start(vec![listener]);
    let five = of_listener(Listener { versions: Some(vec![ProtocolVersion::V5]), ..kit::listener() });
    assert_healthy("", &["--address", &address(&five)]);
    let named = of_listener(Listener { client_id: Some("%u-*".into()), ..kit::listener() });
    assert_healthy("", &["--address", &address(&named)]);
}

#[test]
fn a_listener_behind_a_proxy_is_checked_as_the_proxy_does_it() {
    let trusting = |versions: &str, network: &str| Listener {
        proxy_protocol: Some(ProxyProtocol::of_name(versions).expect("a choice of proxy_protocol")),
        trusted_proxies: Some(vec![network.into()]),
        ..kit::listener()
    };
    for (versions, network) in
        [("v1", "127.0.0.0/8"), ("v2", "127.0.0.0/8"), ("any", "0.0.0.0/0"), ("v2", "192.0.2.0/24")]
    {
        let broker = kit::start(vec![trusting(versions, network)]);
        let keys = format!("proxy_protocol = \"{versions}\"\ntrusted_proxies = [\"{network}\"]\n");
        assert_healthy(&settings(&broker, &keys), &[]);
    }
}

#[test]
fn a_listener_with_a_certificate_of_its_own_authority_needs_no_argument() {
    const PAIR: &str =
        "[listeners.tls]\ncertificates = [{ certificate = \"server.pem\", key = \"server.key\" }]\n";
    let pki = Pki::new();
    let own = kit::start(vec![Listener { tls: Some(pki.tls()), ..kit::listener() }]);
    assert_healthy(&settings(&own, PAIR), &[]);
    let mutual = kit::start(vec![Listener { tls: Some(pki.mutual_tls()), ..kit::listener() }]);
    assert_healthy(&settings(&mutual, PAIR), &[]);
    let group = ListenerTls { groups: Some(vec![Group::P384]), ..pki.tls() };
    let other_group = kit::start(vec![Listener { tls: Some(group), ..kit::listener() }]);
    assert_healthy(&settings(&other_group, PAIR), &[]);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tls.sock");
    let _unix = kit::start(vec![Listener { tls: Some(pki.tls()), ..kit::unix_listener(path.clone()) }]);
    assert_healthy(&format!("[[listeners]]\naddress = \"unix:{}\"\n{PAIR}", path.display()), &[]);
    let (code, said) = health("", &["--address", &address(&own), "--tls"]);
    assert!(code == Some(1) && said.contains("no TLS"), "a named broker must have a certificate: {said}");
}

#[test]
fn the_address_that_a_running_broker_wrote_first_is_asked_as_its_own_listener_wants() {
    let pki = Pki::new();
    let tls = Listener { tls: Some(pki.tls()), ..kit::listener() };
    let broker = kit::start(vec![tls, kit::listener()]);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("addresses");
    std::fs::write(&file, format!("{}\n", broker.addresses()[1])).expect("a writable folder");
    let settings = format!(
        "network.addresses_file = \"{}\"\n[[listeners]]\naddress = \"127.0.0.1:0\"\n[listeners.tls]\n\
         certificates = [{{ certificate = \"server.pem\", key = \"server.key\" }}]\n\
         [[listeners]]\naddress = \"127.0.0.1:0\"\n",
        file.display()
    );
    assert_healthy(&settings, &[]);
}
