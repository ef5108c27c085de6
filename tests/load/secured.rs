//! Clients that enter over TLS, with passwords and certificates.

use crate::{broker_with, command, text};
use homing::broker::Broker;
use homing::config::{
    Anonymous, CertificatePair, ClientCertificates, Listener, ListenerProtocol, ListenerTls,
};
use homing::named_enum::Named;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::process::Command;
use std::thread;

/// A broker that lets in only the user `load` over TLS, and the files of its clients.
struct Secured {
    broker: Broker,
    folder: tempfile::TempDir,
}

impl Secured {
    fn new(client_certificates: &str) -> Secured {
        Secured::with_protocol(client_certificates, None)
    }

    fn with_protocol(client_certificates: &str, protocol: Option<ListenerProtocol>) -> Secured {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = || KeyPair::generate().expect("a key");
        let authority = CertifiedIssuer::self_signed(params, key()).expect("a certificate");
        let write = |name: &str, text: &str| std::fs::write(path(name), text).expect("a folder");
        write("ca.pem", &authority.pem());
        for (name, names) in [("server", vec!["127.0.0.1".to_owned()]), ("client", Vec::new())] {
            let key = key();
            let params = CertificateParams::new(names).expect("names");
            write(&format!("{name}.pem"), &params.signed_by(&key, &authority).expect("a certificate").pem());
            write(&format!("{name}.key"), &key.serialize_pem());
        }
        write("secret", "right\n");
        write("wrong", "wr0ng-password\n");
        let mut passwd = Command::new(env!("CARGO_BIN_EXE_homing"));
        passwd.args(["passwd", "-c", "-b", "-H", "pbkdf2", &path("passwd"), "load", "right"]);
        assert!(passwd.status().expect("the binary was built").success());
        let pair = CertificatePair {
            certificate: Some(path("server.pem")),
            chain: None,
            key: Some(path("server.key")),
        };
        let tls = ListenerTls {
            certificates: Some(vec![pair]),
            client_certificates: Some(ClientCertificates::of_name(client_certificates).expect("a choice")),
            client_ca: (client_certificates != "off").then(|| path("ca.pem")),
            ..ListenerTls::default()
        };
        let broker = broker_with(|config| {
            let address = config.network.listen[0];
            config.network.listen.clear();
            config.listeners = vec![Listener { tls: Some(tls), protocol, ..Listener::plain(address) }];
            config.auth.anonymous = Anonymous::Never;
            config.auth.password_file = path("passwd");
        });
        Secured { broker, folder }
    }

    /// Runs `homing load` in the folder of the files.
    fn load(&self, arguments: &str) -> (Option<i32>, String) {
        let mut command = command(&self.broker, arguments);
        let output = command.current_dir(self.folder.path()).output().expect("the binary was built");
        (output.status.code(), text(&[output.stdout, output.stderr].concat()))
    }
}

#[test]
fn clients_enter_over_tls_with_a_password() {
    let secured = Secured::new("off");
    let entry = "--ca ca.pem --user load --password-file secret";
    // They mostly wait for hashes and for pauses of the scenario, so all at once.
    thread::scope(|scope| {
        for version in ["3.1.1", "5"] {
            for scenario in [
                "throughput --messages 50 --qos 2 --publishers 3",
                "connections --connections 20 --duration 300ms",
                "redelivery --plan crash --publishers 2 --messages 20 --observe 1s --away 50ms",
            ] {
                let secured = &secured;
                scope.spawn(move || {
                    let (code, said) = secured.load(&format!("{scenario} --mqtt {version} {entry}"));
                    assert_eq!(code, Some(0), "{scenario}: {said}");
                });
            }
        }
    });
}

#[test]
fn a_wrong_password_or_authority_is_told_and_no_password_is_shown() {
    let secured = Secured::new("off");
    for (entry, code, expected) in [
        ("--ca ca.pem --user load --password-file wrong", 1, "cannot connect"),
        ("--ca ca.pem --user load", 1, "cannot connect"),
        ("--ca client.pem --user load --password-file secret", 1, "no TLS: invalid peer certificate"),
        ("--ca ca.pem --server-name other.example", 1, "no TLS: invalid peer certificate"),
        ("--ca ca.pem --user load --password-file none", 2, "--password-file none: cannot be read"),
        ("--ca secret", 2, "secret: "),
        ("--ca ca.pem --password-file secret", 2, "--user"),
        ("--cert client.pem", 2, "--key"),
    ] {
        let (got, said) = secured.load(&format!("throughput --messages 1 {entry}"));
        assert_eq!(got, Some(code), "{entry}: {said}");
        assert!(
            said.contains(expected) && !said.contains("wr0ng") && !said.contains("right"),
            "{entry}: {said}"
        );
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn clients_show_their_certificate_and_the_password_may_stand_in_the_environment() {
    let secured = Secured::new("required");
    let mut command = command(&secured.broker, "throughput --messages 5 --ca ca.pem --user load");
    command.args(["--cert", "client.pem", "--key", "client.key"]).env("HOMING_LOAD_PASSWORD", "right");
    let output = command.current_dir(secured.folder.path()).output().expect("the binary was built");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let (code, said) = secured.load("throughput --messages 1 --ca ca.pem --user load --password-file secret");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("CertificateRequired"), "{said}");
}

#[test]
fn websocket_goes_through_tls() {
    let secured = Secured::with_protocol("off", Some(ListenerProtocol::WebSocket));
    let entry = "--ca ca.pem --ws --user load --password-file secret";
    let (code, said) = secured.load(&format!("throughput --messages 50 --qos 1 --payload 24-9000 {entry}"));
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = secured.load(&format!("throughput --messages 1 {entry} --ws-path /other"));
    assert!(
        code == Some(1) && said.contains("no WebSocket: GET /other was answered with HTTP/1.1 404"),
        "{said}"
    );
}
