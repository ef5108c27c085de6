//! Client certificates: who gets in, who does not, and who has to leave.

use std::path::PathBuf;

use rcgen::{DnType, ExtendedKeyUsagePurpose, KeyPair, SerialNumber, date_time_ymd};
use rustls::version::{TLS12, TLS13};
use rustls::{AlertDescription, ClientConfig, HandshakeKind};
use tempfile::TempDir;

use super::*;
use crate::clock;
use crate::net::layers::{LayerError, Layers};
use crate::net::tls::config::{AdmittedClient, TlsServer};
use crate::net::tls::identity::NoIdentity;
use crate::net::tls::settings::{ClientCertificates, TlsSettings};
use crate::net::tls::test_pki::{Authority, Failed, Leaf, client, received, shake_hands, write, write_leaf};

/// 1 June 2026, in milliseconds since 1970.
const NOW: u64 = 1_780_272_000_000;
const YEAR_3500: u64 = 48_281_356_800_000;

struct Bench {
    dir: TempDir,
    authority: Authority,
    settings: TlsSettings,
}

fn bench() -> Bench {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("test root");
    let files = write_leaf(dir.path(), "server", &authority.server(&["broker.test"]));
    let mut settings = TlsSettings::new(vec![files]);
    settings.client_certificates = ClientCertificates::Required;
    settings.client_ca = Some(write(dir.path(), "ca.pem", &authority.0.pem()));
    Bench { dir, authority, settings }
}

impl Bench {
    fn load(&self) -> TlsServer {
        TlsServer::load(&self.settings).unwrap()
    }

    fn list(&self, name: &str, text: &str) -> PathBuf {
        write(self.dir.path(), name, text)
    }

    fn config(&self, leaf: Option<&Leaf>) -> ClientConfig {
        self.authority.client_config(&[&TLS12, &TLS13], leaf)
    }

    /// Issues a client's certificate with this serial number.
    fn numbered(&self, serial: u64) -> Leaf {
        self.authority.issue(KeyPair::generate().unwrap(), |params| {
            params.serial_number = Some(SerialNumber::from(serial));
            params.distinguished_name.push(DnType::CommonName, format!("device {serial}"));
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        })
    }

    fn dated(&self, from: i32, until: i32) -> Leaf {
        self.authority.issue(KeyPair::generate().unwrap(), |params| {
            params.not_before = date_time_ymd(from, 1, 1);
            params.not_after = date_time_ymd(until, 1, 1);
            params.distinguished_name.push(DnType::CommonName, "dated");
        })
    }
}

/// Connects a client and lets the server admit it at [`NOW`].
fn connect(
    server: &TlsServer,
    config: ClientConfig,
) -> Result<(AdmittedClient, Option<HandshakeKind>), Failed> {
    let (mut client, mut handshake) = (client(config, "broker.test"), server.handshake().unwrap());
    shake_hands(&mut client, &mut handshake)?;
    let admitted = server.admit(handshake, NOW, &mut Vec::new()).unwrap();
    Ok((admitted, client.handshake_kind()))
}

/// Returns the reason of the server's refusal, with the alert that the client read.
fn refusal(result: Result<(AdmittedClient, Option<HandshakeKind>), Failed>) -> (String, AlertDescription) {
    match result {
        Err(Failed::Server(error, Some(rustls::Error::AlertReceived(alert)))) => match *error {
            LayerError::Tls(error) => (error.to_string(), alert),
            other => panic!("another error: {other:?}"),
        },
        Err(other) => panic!("another error: {other:?}"),
        Ok(_) => panic!("admitted"),
    }
}

#[test]
fn a_client_with_a_certificate_has_its_common_name_as_user() {
    let bench = bench();
    let (admitted, _) = connect(&bench.load(), bench.config(Some(&bench.numbered(0xFF12)))).unwrap();
    assert_eq!(admitted.user.unwrap(), "device 65298");
    assert_eq!(admitted.serial.unwrap(), "FF12");
}

#[test]
fn a_client_without_a_certificate_is_refused_only_if_one_is_required() {
    let mut bench = bench();
    let (reason, alert) = refusal(connect(&bench.load(), bench.config(None)));
    assert_eq!(reason, "peer sent no certificates");
    assert_eq!(alert, AlertDescription::CertificateRequired);
    bench.settings.client_certificates = ClientCertificates::Optional;
    let (admitted, _) = connect(&bench.load(), bench.config(None)).unwrap();
    assert_eq!(admitted.user, Err(NoIdentity::NoCertificate));
    // A wrong certificate is refused although none would do.
    let stranger = Authority::new("another root").client("device");
    refusal(connect(&bench.load(), bench.config(Some(&stranger))));
    bench.settings.client_certificates = ClientCertificates::Off;
    bench.settings.client_ca = None;
    let (admitted, _) = connect(&bench.load(), bench.config(Some(&stranger))).unwrap();
    assert_eq!(admitted.user, Err(NoIdentity::NoCertificate));
}

#[test]
fn wrong_certificates_are_refused() {
    let bench = bench();
    let server = bench.load();
    for (leaf, expected, expected_alert) in [
        (Authority::new("another root").client("device"), "UnknownIssuer", AlertDescription::UnknownCA),
        // The same name does not make it the same authority.
        (Authority::new("test root").client("device"), "BadSignature", AlertDescription::DecryptError),
        (bench.dated(2020, 2021), "certificate expired", AlertDescription::CertificateExpired),
        (bench.dated(3000, 3001), "not valid yet", AlertDescription::CertificateExpired),
        (bench.authority.server(&["device"]), "extended key usage", AlertDescription::UnsupportedCertificate),
    ] {
        let (reason, alert) = refusal(connect(&server, bench.config(Some(&leaf))));
        assert!(reason.contains(expected), "{reason} is not {expected}");
        assert_eq!(alert, expected_alert, "{reason}");
    }
}

#[test]
fn an_authority_as_client_is_refused() {
    let bench = bench();
    let between = bench.authority.authority("between");
    let leaf = Leaf {
        certificate: between.0.der().clone(),
        pem: between.0.pem(),
        key: KeyPair::from_pem(&between.0.key().serialize_pem()).unwrap(),
    };
    let (reason, _) = refusal(connect(&bench.load(), bench.config(Some(&leaf))));
    assert!(reason.contains("CaUsedAsEndEntity"), "{reason}");
}

#[test]
fn without_certificate_dates_an_expired_certificate_is_admitted() {
    let mut bench = bench();
    bench.settings.certificate_dates = false;
    let server = bench.load();
    for leaf in [bench.dated(2020, 2021), bench.dated(3000, 3001)] {
        assert_eq!(connect(&server, bench.config(Some(&leaf))).unwrap().0.user.unwrap(), "dated");
    }
    // Everything else still counts.
    let stranger = Authority::new("another root").client("device");
    refusal(connect(&server, bench.config(Some(&stranger))));
}

#[test]
fn without_certificate_dates_an_expired_list_still_refuses() {
    let mut bench = bench();
    bench.settings.certificate_dates = false;
    let (old, new) = (bench.dated(2020, 2021), bench.dated(3000, 3001));
    bench.settings.crl = vec![bench.list("old.crl", &bench.authority.revokes(&[], 2022))];
    for leaf in [&old, &new, &bench.numbered(6)] {
        let (reason, _) = refusal(connect(&bench.load(), bench.config(Some(leaf))));
        assert!(reason.contains("revocation list expired"), "{reason}");
    }
    bench.settings.crl = vec![bench.list("ca.crl", &bench.authority.revokes(&[7], 2900))];
    for leaf in [&old, &new, &bench.numbered(6)] {
        connect(&bench.load(), bench.config(Some(leaf))).unwrap();
    }
    refusal(connect(&bench.load(), bench.config(Some(&bench.numbered(7)))));
}

#[test]
fn a_revoked_certificate_is_refused() {
    let mut bench = bench();
    let (good, revoked) = (bench.numbered(6), bench.numbered(7));
    bench.settings.crl = vec![bench.list("ca.crl", &bench.authority.revokes(&[7], 3000))];
    let server = bench.load();
    connect(&server, bench.config(Some(&good))).unwrap();
    let (reason, alert) = refusal(connect(&server, bench.config(Some(&revoked))));
    assert!(reason.contains("Revoked"), "{reason}");
    assert_eq!(alert, AlertDescription::CertificateRevoked);
}

#[test]
fn a_status_that_nobody_knows_is_a_refusal() {
    let mut bench = bench();
    let leaf = bench.numbered(6);
    let other = Authority::new("another root");
    bench.settings.crl = vec![bench.list("other.crl", &other.revokes(&[], 3000))];
    let (reason, _) = refusal(connect(&bench.load(), bench.config(Some(&leaf))));
    assert!(reason.contains("UnknownRevocationStatus"), "{reason}");
    bench.settings.crl = vec![bench.list("old.crl", &bench.authority.revokes(&[], 2021))];
    let (reason, _) = refusal(connect(&bench.load(), bench.config(Some(&leaf))));
    assert!(reason.contains("revocation list expired"), "{reason}");
}

#[test]
fn the_intermediate_is_looked_up_only_if_the_whole_chain_is() {
    let mut bench = bench();
    let between = bench.authority.authority("between");
    let leaf = between.client("device");
    let mut config = bench.config(None);
    let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let key = provider.key_provider.load_private_key(leaf.private_key()).unwrap();
    let chain = vec![leaf.certificate.clone(), between.0.der().clone()];
    let certified = rustls::sign::CertifiedKey::new(chain, key);
    config.client_auth_cert_resolver = std::sync::Arc::new(rustls::sign::SingleCertAndKey::from(certified));
    bench.settings.crl = vec![bench.list("between.crl", &between.revokes(&[], 3000))];
    assert_eq!(connect(&bench.load(), config.clone()).unwrap().0.user.unwrap(), "device");
    bench.settings.crl_check = CrlCheck::Chain;
    let (reason, _) = refusal(connect(&bench.load(), config.clone()));
    assert!(reason.contains("UnknownRevocationStatus"), "{reason}");
    bench.settings.crl.push(bench.list("ca.crl", &bench.authority.revokes(&[], 3000)));
    connect(&bench.load(), config).unwrap();
}

#[test]
fn damaged_authorities_and_lists_are_named() {
    let mut bench = bench();
    let list = bench.authority.revokes(&[], 3000);
    bench.settings.crl = vec![bench.list("good.crl", &list), bench.list("bad.crl", &bench.authority.0.pem())];
    let error = TlsServer::load(&bench.settings).unwrap_err().to_string();
    assert!(
        error.ends_with(
            "bad.crl: a revocation list (-----BEGIN X509 CRL-----) is expected; the file has CERTIFICATE"
        ),
        "{error}"
    );
    bench.settings.crl[1] = bench.list("junk.crl", "\u{30}junk");
    let error = TlsServer::load(&bench.settings).unwrap_err().to_string();
    assert!(error.contains("junk.crl: is not a valid revocation list"), "{error}");
    bench.settings.client_ca = Some(bench.list("ca.pem", &list));
    let error = TlsServer::load(&bench.settings).unwrap_err().to_string();
    assert!(
        error.ends_with(
            "ca.pem: a certificate (-----BEGIN CERTIFICATE-----) is expected; the file has X509 CRL"
        ),
        "{error}"
    );
}

/// A resumed session has no chain on the wire, so only the second look can refuse it.
#[test]
fn a_resumed_client_is_verified_again() {
    for version in [&TLS12, &TLS13] {
        let mut bench = bench();
        let leaf = bench.authority.issue(KeyPair::generate().unwrap(), |params| {
            params.serial_number = Some(SerialNumber::from(7));
            params.not_after = date_time_ymd(3000, 1, 1);
        });
        let config = bench.authority.client_config(&[version], Some(&leaf));
        let server = bench.load();
        let resume = || {
            let (mut client, mut handshake) =
                (client(config.clone(), "broker.test"), server.handshake().unwrap());
            shake_hands(&mut client, &mut handshake).unwrap();
            (client, handshake)
        };
        let (mut first, handshake) = resume();
        let tls = server.admit(handshake, NOW, &mut Vec::new()).unwrap().tls;
        let (mut layers, mut out) = (Layers::new(Some(tls), None), Vec::new());
        layers.seal(&[std::io::IoSlice::new(b"CONNACK")], &mut out);
        received(&mut first, &out).unwrap();

        let (resumed, handshake) = resume();
        assert_eq!(resumed.handshake_kind(), Some(HandshakeKind::Resumed));
        let admitted = server.admit(handshake, NOW, &mut Vec::new()).unwrap();
        assert!(admitted.tls.is_resumed() && admitted.serial.as_deref() == Some("07"));

        // The same ticket when the certificate has expired.
        let (_, handshake) = resume();
        let mut out = Vec::new();
        let error = server.admit(handshake, YEAR_3500, &mut out).unwrap_err();
        assert!(error.to_string().contains("certificate expired"), "{error}");
        assert!(!out.is_empty(), "close_notify");

        // A reload with a new list comes between begin and end of a handshake with the ticket.
        let (_, handshake) = resume();
        bench.settings.crl = vec![bench.list("ca.crl", &bench.authority.revokes(&[7], 3000))];
        let newer = bench.load();
        let error = newer.admit(handshake, NOW, &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("Revoked"), "{error}");
        // And the client that is connected already.
        assert!(matches!(newer.check(&admitted.tls, NOW), Err(ChainError::Refused(_))));
        assert_eq!(server.check(&admitted.tls, NOW), Ok(()));
    }
}

#[test]
fn a_client_without_a_certificate_does_not_survive_a_reload_that_requires_one() {
    let mut bench = bench();
    bench.settings.client_certificates = ClientCertificates::Optional;
    let (admitted, _) = connect(&bench.load(), bench.config(None)).unwrap();
    bench.settings.client_certificates = ClientCertificates::Required;
    assert_eq!(bench.load().check(&admitted.tls, NOW), Err(ChainError::NoCertificate));
}

/// Returns `subjects.len()` intermediates with these subjects. Each claims to be issued by the next
/// subject, and the last one by an authority of the listener. No signature is right.
fn forged(subjects: &[&str]) -> Vec<CertificateDer<'static>> {
    let issuers = subjects.iter().skip(1).copied().chain(["test root"]);
    let forge = |(subject, issuer): (&&str, &str)| Authority::new(issuer).authority(subject);
    subjects.iter().zip(issuers).map(forge).map(|forged| forged.0.der().clone()).collect()
}

#[test]
fn a_chain_of_many_paths_is_refused_before_it_is_verified() {
    let roots = Arc::new(Authority::new("test root").roots());
    let rules = ClientRules { required: true, crl_check: CrlCheck::Leaf, dates: true };
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = ClientVerifier::new(roots, Vec::new(), rules, provider).unwrap();
    let refusal = |subjects: &[&str]| {
        let leaf = Authority::new(subjects[0]).client("guest");
        let chain: Vec<_> = std::iter::once(leaf.certificate.clone()).chain(forged(subjects)).collect();
        let began = clock::nanos();
        let refusal = verifier.check(&chain, NOW).unwrap_err().to_string();
        (refusal, clock::nanos() - began)
    };
    let long = ["a"; 70];
    assert!(refusal(&long).0.contains("more than 8 intermediate certificates"), "{:?}", refusal(&long));
    let twins = refusal(&["a"; 8]).0;
    assert!(twins.contains("more than 2 intermediate certificates have the subject"), "{twins}");
    // The worst that is looked at. It took 100 ms without the bound on twins.
    let (why, took) = refusal(&["a", "a", "a", "b", "c", "d", "e", "f"]);
    assert!(why.contains("BadSignature") || why.contains("UnknownIssuer"), "{why}");
    assert!(took < 200_000_000, "{took} ns");
}
