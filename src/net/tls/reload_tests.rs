//! A reload changes everything or nothing, and says what it changed.

use rcgen::SerialNumber;
use std::path::Path;

use super::*;
use crate::net::tls::settings::{CertificateFiles, ClientCertificates};
use crate::net::tls::test_pki::{Authority, write, write_leaf};

fn listener(dir: &Path, authority: &Authority, name: &str) -> TlsListener {
    let leaf = authority.issue(rcgen::KeyPair::generate().unwrap(), |params| {
        params.serial_number = Some(SerialNumber::from(0xAB));
    });
    let mut settings = TlsSettings::new(vec![write_leaf(dir, name, &leaf)]);
    settings.client_certificates = ClientCertificates::Optional;
    settings.client_ca = Some(write(dir, "ca.pem", &authority.0.pem()));
    settings.crl = vec![write(dir, "ca.crl", &authority.revokes(&[], 2030))];
    TlsListener { name: name.to_owned(), settings, before: None, owner: TlsOwner::Listener }
}

fn loaded(listeners: &[TlsListener]) -> TlsSet {
    TlsSet::load(listeners.to_vec()).unwrap().0
}

fn server(set: &TlsSet, place: usize) -> Arc<TlsServer> {
    Arc::clone(set.servers().nth(place).unwrap())
}

#[test]
fn a_reload_without_changes_keeps_the_servers() {
    let (dir, authority) = (tempfile::tempdir().unwrap(), Authority::new("root"));
    let set = loaded(&["one", "two"].map(|name| listener(dir.path(), &authority, name)));
    let (again, changes) = set.reload().unwrap();
    assert_eq!(changes, []);
    for place in [0, 1] {
        assert!(Arc::ptr_eq(&server(&set, place), &server(&again, place)));
    }
}

#[test]
fn a_reload_reports_the_changes_of_each_listener() {
    let (dir, authority) = (tempfile::tempdir().unwrap(), Authority::new("root"));
    let set = loaded(&["one", "two"].map(|name| listener(dir.path(), &authority, name)));
    let leaf = authority.issue(rcgen::KeyPair::generate().unwrap(), |params| {
        params.serial_number = Some(SerialNumber::from(0xCD));
        params.not_after = rcgen::date_time_ymd(2031, 1, 1);
    });
    write_leaf(dir.path(), "one", &leaf);
    let (newer, changes) = set.reload().unwrap();
    let text = changes[0].what.join("; ");
    assert!(changes[0].listener == "one" && text.starts_with("certificate "), "{text}");
    assert!(text.ends_with("one.pem is new: serial CD, valid until 2031-01-01T00:00:00Z"), "{text}");
    assert_eq!((changes.len(), changes[0].check_clients), (1, false));
    assert!(Arc::ptr_eq(&server(&set, 1), &server(&newer, 1)));

    write(dir.path(), "ca.crl", &authority.revokes(&[7], 2029));
    let (_, changes) = newer.reload().unwrap();
    assert_eq!(changes.len(), 2);
    let lists = format!("the revocation lists changed (tls.crl): {}", dir.path().join("ca.crl").display());
    assert_eq!((&*changes[1].listener, &changes[1].what), ("two", &vec![lists.clone()]));
    assert!(changes.iter().all(|change| change.check_clients));

    write(dir.path(), "ca.pem", &Authority::new("new root").0.pem());
    let mut listeners: Vec<_> = newer.listeners.iter().map(|(listener, _)| listener.clone()).collect();
    for (place, listener) in listeners.iter_mut().enumerate() {
        listener.before = Some(server(&newer, place));
    }
    listeners[1].settings.client_certificates = ClientCertificates::Required;
    let (newest, changes) = TlsSet::load(listeners).unwrap();
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
    let set = loaded(&["one", "two", "three"].map(|name| listener(dir.path(), &authority, name)));
    write(dir.path(), "one.pem", "");
    write(dir.path(), "three.key", "no key");
    let errors = set.reload().unwrap_err();
    let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(lines.len(), 2);
    assert!(lines[0].starts_with("listener one: ") && lines[0].contains("one.pem: the file is empty"));
    assert!(lines[1].starts_with("listener three: ") && lines[1].contains("three.key"));
    assert_eq!(set.iter().count(), 3);
}

#[test]
fn a_change_of_a_file_is_seen_once() {
    let (dir, authority) = (tempfile::tempdir().unwrap(), Authority::new("root"));
    let listeners = [listener(dir.path(), &authority, "one")];
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
    let first = listener(dir.path(), &authority, "one");
    let before = server(&loaded(std::slice::from_ref(&first)), 0);
    let heir = TlsListener { before: Some(Arc::clone(&before)), ..first };
    let closed = TlsListener { owner: TlsOwner::ClosedListener, ..heir.clone() };
    let (both, changes) = TlsSet::load(vec![closed.clone(), heir.clone()]).unwrap();
    assert_eq!(changes, []);
    assert!(both.servers().all(|server| Arc::ptr_eq(server, &before)));
    assert_eq!(both.iter().count(), 1, "one is open");
    std::fs::remove_file(&closed.settings.certificates[0].key).unwrap();
    let kept = loaded(std::slice::from_ref(&closed));
    assert!(Arc::ptr_eq(&server(&kept, 0), &before));
    assert!(TlsSet::load(vec![closed, heir]).is_err(), "an open one needs its files");
}
