//! A reload changes everything or nothing, and says what it changed.

use rcgen::SerialNumber;
use std::path::Path;

use super::*;
use crate::net::tls::settings::{CertificateFiles, ClientCertificates};
use crate::net::tls::test_pki::{Authority, write, write_leaf};

fn listener(dir: &Path, authority: &Authority, number: u16, name: &str) -> TlsListener {
    let leaf = authority.issue(rcgen::KeyPair::generate().unwrap(), |params| {
        params.serial_number = Some(SerialNumber::from(0xAB));
    });
    let mut settings = TlsSettings::new(vec![write_leaf(dir, name, &leaf)]);
    settings.client_certificates = ClientCertificates::Optional;
    settings.client_ca = Some(write(dir, "ca.pem", &authority.0.pem()));
    settings.crl = vec![write(dir, "ca.crl", &authority.revokes(&[], 2030))];
    TlsListener { number, name: name.to_owned(), settings, heir_of: None, is_closed: false }
}

#[test]
fn a_reload_without_changes_keeps_the_servers() {
    let (dir, authority) = (tempfile::tempdir().unwrap(), Authority::new("root"));
    let listeners = [listener(dir.path(), &authority, 0, "one"), listener(dir.path(), &authority, 1, "two")];
    let set = TlsSet::load(&listeners).unwrap();
    let (again, changes) = set.reload(&listeners).unwrap();
    assert_eq!(changes, []);
    for number in [0, 1] {
        assert!(Arc::ptr_eq(set.get(number).unwrap(), again.get(number).unwrap()));
    }
}

#[test]
fn a_reload_reports_the_changes_of_each_listener() {
    let (dir, authority) = (tempfile::tempdir().unwrap(), Authority::new("root"));
    let mut listeners =
        [listener(dir.path(), &authority, 0, "one"), listener(dir.path(), &authority, 1, "two")];
    let set = TlsSet::load(&listeners).unwrap();
    let leaf = authority.issue(rcgen::KeyPair::generate().unwrap(), |params| {
        params.serial_number = Some(SerialNumber::from(0xCD));
        params.not_after = rcgen::date_time_ymd(2031, 1, 1);
    });
    write_leaf(dir.path(), "one", &leaf);
    let (newer, changes) = set.reload(&listeners).unwrap();
    let text = changes[0].to_string();
    assert!(text.starts_with("listener one: certificate "), "{text}");
    assert!(text.ends_with("one.pem is new: serial CD, valid until 2031-01-01T00:00:00Z"), "{text}");
    assert_eq!((changes.len(), changes[0].check_clients), (1, false));
    assert!(Arc::ptr_eq(set.get(1).unwrap(), newer.get(1).unwrap()));

    write(dir.path(), "ca.crl", &authority.revokes(&[7], 2029));
    let (_, changes) = newer.reload(&listeners).unwrap();
    assert_eq!(changes.len(), 2);
    let lists = format!("the revocation lists changed (tls.crl): {}", dir.path().join("ca.crl").display());
    assert_eq!(changes[1].to_string(), format!("listener two: {lists}"));
    assert!(changes.iter().all(|change| change.check_clients));

    listeners[1].settings.client_certificates = ClientCertificates::Required;
    write(dir.path(), "ca.pem", &Authority::new("new root").0.pem());
    let (newest, changes) = newer.reload(&listeners).unwrap();
    let ca = dir.path().join("ca.pem");
    let authorities =
        format!("the authorities of client certificates changed (tls.client_ca): {}", ca.display());
    assert_eq!(changes[1].what, [authorities, lists, "the TLS settings changed".to_owned()]);
    assert_eq!(newest.crl_days_left(1_861_920_000_000 - 86_400_000), Some(1), "to 1 January 2029");
    assert_eq!(newest.warnings(1_861_920_000_001).len(), 2);
    assert!(newest.warnings(1_861_920_000_001)[0].starts_with("listener one: "));
}

#[test]
fn a_broken_file_changes_nothing_and_every_listener_with_a_problem_is_named() {
    let (dir, authority) = (tempfile::tempdir().unwrap(), Authority::new("root"));
    let listeners = [(0, "one"), (1, "two"), (2, "three")]
        .map(|(number, name)| listener(dir.path(), &authority, number, name));
    let set = TlsSet::load(&listeners).unwrap();
    write(dir.path(), "one.pem", "");
    write(dir.path(), "three.key", "no key");
    let errors = set.reload(&listeners).unwrap_err();
    let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(lines.len(), 2);
    assert!(lines[0].starts_with("listener one: ") && lines[0].contains("one.pem: the file is empty"));
    assert!(lines[1].starts_with("listener three: ") && lines[1].contains("three.key"));
    assert_eq!(set.iter().count(), 3);
}

#[test]
fn a_change_of_a_file_is_seen_once() {
    let (dir, authority) = (tempfile::tempdir().unwrap(), Authority::new("root"));
    let listeners = [listener(dir.path(), &authority, 0, "one")];
    let CertificateFiles { certificate, key, .. } = listeners[0].settings.certificates[0].clone();
    let mut watch = watch(&listeners);
    assert!(!watch.has_changed());
    for file in [&certificate, &key] {
        std::fs::write(file, "longer or shorter than before").unwrap();
        assert!(watch.has_changed());
        assert!(!watch.has_changed());
        std::fs::remove_file(file).unwrap();
        assert!(watch.has_changed());
        assert!(!watch.has_changed());
    }
    // A renewal by rename, as certbot and Kubernetes do it.
    let other = write(dir.path(), "new", "longer or shorter than before");
    std::fs::rename(other, &certificate).unwrap();
    assert!(watch.has_changed());
}

#[test]
fn a_listener_that_took_over_a_socket_takes_over_the_tls_and_the_closed_one_needs_no_files() {
    let (dir, authority) = (tempfile::tempdir().unwrap(), Authority::new("root"));
    let before = listener(dir.path(), &authority, 0, "one");
    let set = TlsSet::load(std::slice::from_ref(&before)).unwrap();
    let heir = TlsListener { number: 1, heir_of: Some(0), ..before.clone() };
    let closed = TlsListener { is_closed: true, ..before };
    let (both, changes) = set.reload(&[closed.clone(), heir.clone()]).unwrap();
    assert_eq!(changes, []);
    assert!(Arc::ptr_eq(both.get(0).unwrap(), both.get(1).unwrap()));
    assert_eq!(both.iter().count(), 1, "one is open");
    std::fs::remove_file(&closed.settings.certificates[0].key).unwrap();
    let (kept, _) = both.reload(std::slice::from_ref(&closed)).unwrap();
    assert!(Arc::ptr_eq(both.get(0).unwrap(), kept.get(0).unwrap()));
    assert!(both.reload(&[closed, heir]).is_err(), "an open one needs its files");
}
