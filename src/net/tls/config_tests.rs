//! Certificates, keys and settings from files, seen by rustls's own client.

use rcgen::{
    CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, PKCS_RSA_SHA256, date_time_ymd,
};
use rustls::client::Resumption;
use rustls::{AlertDescription, ClientConfig, ClientConnection, HandshakeKind, ProtocolVersion};
use tempfile::TempDir;
use x509_cert::der::asn1::OctetStringRef;
use x509_cert::der::{AnyRef, Reader as _, SliceReader};

use super::*;
use crate::net::layers::Layers;
use crate::net::tls::test_pki::{Authority, Failed, client, received, shake_hands, write, write_leaf};

const BOTH: [&rustls::SupportedProtocolVersion; 2] = [&TLS12, &TLS13];

struct Bench {
    dir: TempDir,
    authority: Authority,
    settings: TlsSettings,
}

fn bench() -> Bench {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("test root");
    let files = write_leaf(dir.path(), "server", &authority.server(&["broker.test"]));
    Bench { dir, authority, settings: TlsSettings::new(vec![files]) }
}

impl Bench {
    fn load(&self) -> TlsServer {
        TlsServer::load(&self.settings).unwrap()
    }

    fn connect(&self, config: ClientConfig) -> Result<(ClientConnection, TlsHandshake), Failed> {
        connect(&self.load(), config, "broker.test")
    }

    fn error(&self) -> String {
        let error = TlsServer::load(&self.settings).unwrap_err().to_string();
        error.replace(&format!("{}/", self.dir.path().display()), "")
    }
}

fn connect(
    server: &TlsServer,
    config: ClientConfig,
    name: &str,
) -> Result<(ClientConnection, TlsHandshake), Failed> {
    let (mut client, mut handshake) = (client(config, name), server.handshake().unwrap());
    shake_hands(&mut client, &mut handshake)?;
    Ok((client, handshake))
}

fn alert(failed: Failed) -> AlertDescription {
    match failed {
        Failed::Server(_, Some(rustls::Error::AlertReceived(alert))) => alert,
        other => panic!("no alert: {other:?}"),
    }
}

/// Returns the inner key of PKCS#8 with another label: PKCS#1 for RSA, SEC1 for ECDSA.
fn traditional(key: &KeyPair, label: &str) -> String {
    let der = key.serialize_der();
    let mut inner = Vec::new();
    SliceReader::new(&der)
        .unwrap()
        .sequence(|fields| {
            fields.decode::<u8>()?;
            fields.decode::<AnyRef<'_>>()?;
            inner = fields.decode::<&OctetStringRef>()?.as_bytes().to_vec();
            while !fields.is_finished() {
                fields.decode::<AnyRef<'_>>()?;
            }
            Ok::<_, x509_cert::der::Error>(())
        })
        .unwrap();
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(inner);
    let lines: Vec<&str> =
        text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

#[test]
fn keys_of_every_form_and_kind_serve() {
    let mut bench = bench();
    for (algorithm, label) in [
        (&PKCS_ECDSA_P256_SHA256, Some("EC PRIVATE KEY")),
        (&PKCS_RSA_SHA256, Some("RSA PRIVATE KEY")),
        (&PKCS_ED25519, None),
    ] {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let leaf = bench.authority.issue(key, |params| {
            *params = CertificateParams::new(vec!["broker.test".to_owned()]).unwrap();
        });
        bench.settings.certificates = vec![write_leaf(bench.dir.path(), "kind", &leaf)];
        bench.connect(bench.authority.client_config(&BOTH, None)).unwrap();
        if let Some(label) = label {
            write(bench.dir.path(), "kind.key", &traditional(&leaf.key, label));
            bench.connect(bench.authority.client_config(&BOTH, None)).unwrap();
        }
    }
}

#[test]
fn a_chain_with_an_intermediate_serves() {
    let mut bench = bench();
    let intermediate = bench.authority.authority("between");
    let leaf = intermediate.server(&["broker.test"]);
    bench.settings.certificates = vec![write_leaf(bench.dir.path(), "chain", &leaf)];
    assert!(matches!(
        bench.connect(bench.authority.client_config(&BOTH, None)),
        Err(Failed::Client(error)) if matches!(*error, rustls::Error::InvalidCertificate(_))
    ));
    write(bench.dir.path(), "chain.pem", &format!("{}{}", leaf.pem, intermediate.0.pem()));
    bench.connect(bench.authority.client_config(&BOTH, None)).unwrap();
}

#[test]
fn a_chain_is_completed_from_its_authorities_and_the_log_says_if_it_does_not_reach_a_root() {
    let mut bench = bench();
    let intermediate = bench.authority.authority("between");
    let leaf = intermediate.server(&["broker.test"]);
    let both = format!("{}{}", bench.authority.0.pem(), intermediate.0.pem());
    let chain = write(bench.dir.path(), "ca.pem", &both);
    let files = write_leaf(bench.dir.path(), "leaf", &leaf);
    bench.settings.certificates = vec![CertificateFiles { chain: Some(chain), ..files }];
    bench.connect(bench.authority.client_config(&BOTH, None)).unwrap();
    let warnings = |bench: &Bench| {
        let server = TlsServer::load(&bench.settings).unwrap();
        let begin = server.certificates()[0].not_before_ms;
        server.warnings(begin)
    };
    assert_eq!(warnings(&bench), [""; 0]);
    write(bench.dir.path(), "ca.pem", &bench.authority.0.pem());
    let found = warnings(&bench);
    let [warning] = &found[..] else { panic!("{found:?}") };
    assert!(warning.contains("does not reach a root: CN=between is not in "), "{warning}");
    // A file with more than one certificate is the whole chain.
    write(bench.dir.path(), "leaf.pem", &format!("{}{}", leaf.pem, intermediate.0.pem()));
    assert_eq!(warnings(&bench), [""; 0]);
    bench.connect(bench.authority.client_config(&BOTH, None)).unwrap();
}

#[test]
fn an_intermediate_that_stands_only_among_the_authorities_of_clients_is_missed() {
    let mut bench = bench();
    let intermediate = bench.authority.authority("between");
    let leaf = intermediate.server(&["broker.test"]);
    let both = format!("{}{}", bench.authority.0.pem(), intermediate.0.pem());
    let authorities = write(bench.dir.path(), "clients.pem", &both);
    bench.settings.certificates = vec![write_leaf(bench.dir.path(), "leaf", &leaf)];
    bench.settings.client_ca = Some(authorities.clone());
    bench.settings.client_certificates = ClientCertificates::Optional;
    let warnings = |bench: &Bench| {
        let server = bench.load();
        server.warnings(server.certificates()[0].not_before_ms)
    };
    // Clients that know the root cannot verify the broker.
    assert!(bench.connect(bench.authority.client_config(&BOTH, None)).is_err());
    let found = warnings(&bench);
    let [warning] = &found[..] else { panic!("{found:?}") };
    for needed in ["does not send the intermediate certificate CN=between", "clients.pem (client_ca)"] {
        assert!(warning.contains(needed), "{needed}: {warning}");
    }
    // Both ways out.
    let pem = format!("{}{}", leaf.pem, intermediate.0.pem());
    write(bench.dir.path(), "leaf.pem", &pem);
    assert_eq!(warnings(&bench), [""; 0]);
    write(bench.dir.path(), "leaf.pem", &leaf.pem);
    bench.settings.certificates[0].chain = Some(authorities);
    assert_eq!(warnings(&bench), [""; 0]);
    bench.connect(bench.authority.client_config(&BOTH, None)).unwrap();
    // A root of both sides is nothing to send.
    bench.settings.certificates =
        vec![write_leaf(bench.dir.path(), "server", &bench.authority.server(&["broker.test"]))];
    assert_eq!(warnings(&bench), [""; 0]);
}

/// A certificate of version 1, as `openssl x509 -req` without `-extfile` makes one.
const VERSION_1: &str = "\
-----BEGIN CERTIFICATE-----\n\
MIIBGDCBvwIUdHeHvu4OG8YRNeDSA5Cp7K34CnkwCgYIKoZIzj0EAwIwDjEMMAoG\n\
A1UEAwwDb2xkMCAXDTI2MTEyNDEwMzQxNFoYDzIxMjYxMDMxMTAzNDE0WjAOMQww\n\
CgYDVQQDDANvbGQwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAARl09mnu+DuSDxY\n\
kTzHLQRxVGBTgQ92fYOOA8MgcePpgtE8PACGXqm1nQ8rY8YP9ZwKHZ7avOAqYeCV\n\
qjZDZhfZMAoGCCqGSM49BAMCA0gAMEUCIHnzzZWfZao76H4Slg/jLXCTDuH2lYFj\n\
OvmTNSKfdHFjAiEAiZ3KllmMBpi9F2UiPKe+f8lbvaBnJb/urdFCSj9r3BA=\n\
-----END CERTIFICATE-----\n";

#[test]
fn an_error_names_the_file_the_problem_and_the_way_out() {
    let mut bench = bench();
    let dir = bench.dir.path().to_owned();
    let (good_pem, good_key) =
        ["server.pem", "server.key"].map(|name| std::fs::read_to_string(dir.join(name)).unwrap()).into();
    let other_key = KeyPair::generate().unwrap().serialize_pem();
    let encrypted = good_key.replace("BEGIN PRIVATE", "BEGIN ENCRYPTED PRIVATE");
    let legacy =
        "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n-----END RSA PRIVATE KEY-----\n";
    let cut = &good_pem[..good_pem.len() - 30];
    let broken = good_pem.replacen("MII", "!!!", 1).replacen("MIIB", "!!!!", 1);
    for (pem, key, expected) in [
        ("", good_key.as_str(), "server.pem: the file is empty; a certificate"),
        (
            good_key.as_str(),
            &good_key,
            "server.pem: a certificate (-----BEGIN CERTIFICATE-----) is expected; the file has PRIVATE KEY",
        ),
        (cut, &good_key, "server.pem: the PEM text is damaged: a section has no -----END----- line"),
        (&broken, &good_key, "server.pem: the PEM text is damaged: a section is not base64"),
        ("\u{30}junk", &good_key, "server.pem: certificate 1 in it is not a valid X.509 certificate"),
        (VERSION_1, &good_key, "server.pem: certificate 1 in it has version 1 of X.509"),
        (&good_pem, " \n", "server.key: the file is empty; a private key"),
        (
            &good_pem,
            &good_pem,
            "server.key: a private key (-----BEGIN PRIVATE KEY-----) is expected; the file has CERTIFICATE",
        ),
        (
            &good_pem,
            &encrypted,
            "server.key: the private key is encrypted; decrypt it, for example with `openssl pkey",
        ),
        (&good_pem, legacy, "server.key: the private key is encrypted"),
        (&good_pem, &other_key, "server.key: the key does not belong to the first certificate in server.pem"),
        (&good_pem, &format!("{good_key}{other_key}"), "server.key: 2 private keys in it; one is expected"),
        (
            &good_pem,
            "text",
            "server.key: a private key (-----BEGIN PRIVATE KEY-----) is expected; the file has no PEM",
        ),
    ] {
        write(&dir, "server.pem", pem);
        write(&dir, "server.key", key);
        let error = bench.error();
        assert!(error.starts_with(expected), "{error}\nis not\n{expected}");
    }
    std::fs::remove_file(dir.join("server.key")).unwrap();
    write(&dir, "server.pem", &good_pem);
    assert!(bench.error().starts_with("server.key: cannot be read: No such file"), "{}", bench.error());
    bench.settings.certificates.clear();
    assert!(bench.error().starts_with("tls.certificates is empty"));
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    type Change = fn(&mut TlsSettings);
    let changes: [(Change, &str); 7] = [
        (|s| s.groups.clear(), "tls.groups is empty"),
        (|s| s.groups = vec![Group::X25519MlKem768], "tls.groups has only groups of TLS 1.3"),
        (|s| s.record_size = 511, "tls.record_size must be from 512 to 16384"),
        (|s| s.record_size = 16_385, "tls.record_size must be from 512 to 16384"),
        (
            |s| s.client_certificates = ClientCertificates::Required,
            "tls.client_certificates needs tls.client_ca",
        ),
        (|s| s.client_ca = Some("ca.pem".into()), "tls.client_ca has no effect"),
        (|s| s.crl = vec!["ca.crl".into()], "tls.crl has no effect"),
    ];
    for (change, expected) in changes {
        let mut bench = bench();
        change(&mut bench.settings);
        assert!(bench.error().starts_with(expected), "{}", bench.error());
    }
}

#[test]
fn the_server_name_and_the_signature_schemes_pick_the_certificate() {
    let mut bench = bench();
    let dir = bench.dir.path();
    let rsa = |name: &str| {
        let key = KeyPair::generate_for(&PKCS_RSA_SHA256).unwrap();
        bench.authority.issue(key, |params| {
            *params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        })
    };
    let leaves = [
        bench.authority.server(&["*.wild.test"]),
        bench.authority.server(&["one.wild.test", "two.test"]),
        rsa("two.test"),
        bench.authority.server(&["Three.Test"]),
    ];
    bench.settings.certificates =
        leaves.iter().enumerate().map(|(at, leaf)| write_leaf(dir, &format!("c{at}"), leaf)).collect();
    let server = bench.load();
    let picked = |name: &str| {
        let config = bench.authority.client_config(&BOTH, None);
        let (client, _) = connect(&server, config, name).unwrap();
        leaves.iter().position(|leaf| leaf.certificate == client.peer_certificates().unwrap()[0])
    };
    assert_eq!(picked("one.wild.test"), Some(1), "an exact name before a wildcard");
    assert_eq!(picked("other.wild.test"), Some(0));
    assert_eq!(picked("two.test"), Some(1));
    assert_eq!(picked("three.test"), Some(3));
    // An unknown name gets the first certificate; the client refuses it.
    for name in ["unknown.test", "wild.test", "a.b.wild.test"] {
        let config = bench.authority.client_config(&BOTH, None);
        assert!(matches!(connect(&server, config, name), Err(Failed::Client(_))), "{name}");
    }
    // A client that can check RSA signatures only.
    let named: Vec<NamedCertificate> = bench
        .settings
        .certificates
        .iter()
        .map(|files| {
            let (certificate, facts) =
                load_certificate(files, &provider(&Group::DEFAULT), &mut Digests::default()).unwrap();
            NamedCertificate { certificate, names: facts.names }
        })
        .collect();
    let rsa_chain = named[2].certificate.cert.clone();
    let resolver = Resolver::new(named);
    let rsa_only = [rustls::SignatureScheme::RSA_PSS_SHA256];
    for name in [Some("two.test"), Some("one.wild.test"), None] {
        assert_eq!(resolver.choose(name, &rsa_only).unwrap().cert, rsa_chain);
    }
    assert!(resolver.choose(None, &[]).is_none());
}

#[test]
fn versions_and_groups_are_those_of_the_settings() {
    let mut bench = bench();
    for version in BOTH {
        let (client, handshake) = bench.connect(bench.authority.client_config(&[version], None)).unwrap();
        assert_eq!(client.protocol_version(), Some(version.version));
        let is_tls13 = handshake.finish().unwrap().cipher_suite().starts_with("TLS13_");
        assert_eq!(is_tls13, version.version == ProtocolVersion::TLSv1_3);
    }
    let (client, _) = bench.connect(bench.authority.client_config(&BOTH, None)).unwrap();
    let group = client.negotiated_key_exchange_group().unwrap().name();
    assert_eq!(group, rustls::NamedGroup::X25519MLKEM768);
    bench.settings.groups = vec![Group::P384];
    let (client, _) = bench.connect(bench.authority.client_config(&BOTH, None)).unwrap();
    assert_eq!(client.negotiated_key_exchange_group().unwrap().name(), rustls::NamedGroup::secp384r1);
    bench.settings.minimum = MinimumVersion::Tls13;
    let refused = bench.connect(bench.authority.client_config(&[&TLS12], None)).unwrap_err();
    assert_eq!(alert(refused), AlertDescription::ProtocolVersion);
}

#[test]
fn a_client_that_offers_only_other_protocols_is_refused() {
    let mut bench = bench();
    let with = |bench: &Bench, offered: &[&str]| {
        let mut config = bench.authority.client_config(&BOTH, None);
        config.alpn_protocols = offered.iter().map(|name| name.as_bytes().to_vec()).collect();
        bench.connect(config).map(|(client, _)| client.alpn_protocol().map(<[u8]>::to_vec))
    };
    assert_eq!(with(&bench, &[]).unwrap(), None);
    assert_eq!(with(&bench, &["h2", "mqtt"]).unwrap(), Some(b"mqtt".to_vec()));
    assert_eq!(alert(with(&bench, &["h2"]).unwrap_err()), AlertDescription::NoApplicationProtocol);
    bench.settings.alpn.clear();
    assert_eq!(with(&bench, &["h2"]).unwrap(), None);
}

#[test]
fn a_session_is_resumed_with_a_ticket_unless_tickets_are_off_or_the_server_is_new() {
    for version in BOTH {
        let mut bench = bench();
        let kind = |server: &TlsServer, config: &ClientConfig| {
            let (mut client, handshake) = connect(server, config.clone(), "broker.test").unwrap();
            let admitted = server.admit(handshake, 0, &mut Vec::new()).unwrap();
            // The tickets of TLS 1.3 come with the first bytes.
            let (mut layers, mut out) = (Layers::new(Some(admitted.tls), None), Vec::new());
            layers.seal(&[std::io::IoSlice::new(b"CONNACK")], &mut out);
            received(&mut client, &out).unwrap();
            client.handshake_kind().unwrap()
        };
        let mut config = bench.authority.client_config(&[version], None);
        config.resumption = Resumption::in_memory_sessions(4);
        let server = bench.load();
        assert_ne!(kind(&server, &config), HandshakeKind::Resumed);
        assert_eq!(kind(&server, &config), HandshakeKind::Resumed);
        assert_ne!(kind(&bench.load(), &config), HandshakeKind::Resumed);
        bench.settings.tickets = false;
        let server = bench.load();
        assert_ne!(kind(&server, &config), HandshakeKind::Resumed);
        assert_ne!(kind(&server, &config), HandshakeKind::Resumed);
    }
}

#[test]
fn expired_certificates_and_lists_are_warned_of() {
    let mut bench = bench();
    let leaf = bench.authority.issue(KeyPair::generate().unwrap(), |params| {
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
    });
    bench.settings.certificates = vec![write_leaf(bench.dir.path(), "dated", &leaf)];
    bench.settings.client_certificates = ClientCertificates::Optional;
    bench.settings.client_ca = Some(write(bench.dir.path(), "ca.pem", &bench.authority.0.pem()));
    bench.settings.crl = vec![write(bench.dir.path(), "ca.crl", &bench.authority.revokes(&[], 2030))];
    let server = bench.load();
    const DAY: u64 = 24 * 3600 * 1000;
    let (year_2020, year_2021, year_2030) = (1_577_836_800_000, 1_609_459_200_000, 1_893_456_000_000);
    assert_eq!(server.warnings(year_2020), [""; 0]);
    assert!(server.warnings(year_2020 - DAY)[0].ends_with("is valid from 2020-01-01T00:00:00Z on"));
    assert!(server.warnings(year_2021 + DAY)[0].contains("the certificate expired on 2021-01-01T00:00:00Z"));
    assert_eq!(server.warnings(year_2021 + DAY).len(), 1);
    assert_eq!(server.crl_days_left(year_2030 - 3 * DAY), Some(3));
    assert!(
        server.warnings(year_2030 - 300 * DAY)[1].contains("expires on 2030-01-01T00:00:00Z, in 300 days")
    );
    assert!(
        server.warnings(year_2030 + DAY)[1].contains("every client certificate of its issuer is refused")
    );
    assert_eq!(server.crl_days_left(year_2030 + DAY), Some(0));
}
