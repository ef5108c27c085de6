//! Password files: mosquitto reads those of `homing passwd`, and `homing passwd` reads those of
//! `mosquitto_passwd`.

use crate::broker::{Mosquitto, command};
use crate::support::{Connect, RawClient, V5, V311};
use std::path::Path;
use std::process::Command;

/// mosquitto's answers in a CONNACK to a wrong password: 3.1.1 and 5.0.
const NOT_AUTHORIZED: [u8; 2] = [5, 0x87];

fn succeeds(command: &mut Command) -> bool {
    let output =
        command.output().unwrap_or_else(|error| panic!("{command:?}: {error}; tests/run installs it"));
    print!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    output.status.success()
}

fn homing(arguments: &[&str], file: &Path, names: &[&str]) -> bool {
    let mut homing = Command::new(env!("CARGO_BIN_EXE_homing"));
    succeeds(homing.arg("passwd").args(arguments).arg(file).args(names))
}

fn mosquitto_passwd(arguments: &[&str], file: &Path, names: &[&str]) -> bool {
    succeeds(command("mosquitto_passwd").args(arguments).arg(file).args(names))
}

/// The codes of CONNACK in 3.1.1 and 5.0.
fn login(mosquitto: &Mosquitto, user: &str, password: &str) -> [u8; 2] {
    [V311, V5].map(|version| {
        let mut client = RawClient::open(mosquitto.address, version);
        let connect = Connect::new(version, "client").user_name(user).password(password.as_bytes());
        client.send(&connect.encode());
        client.expect_connack().code
    })
}

#[test]
fn mosquitto_accepts_users_of_homing_passwd() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("passwd");
    assert!(homing(&["-c", "-b", "-H", "pbkdf2"], &file, &["ann", "secret"]));
    assert!(homing(&["-b", "-H", "sha512-pbkdf2", "-I", "101"], &file, &["bob lee", "Passwort ü"]));
    assert!(mosquitto_passwd(&["-b"], &file, &["eve", "third"]));
    let configuration = format!("allow_anonymous false\npassword_file {}\n", file.display());
    let mosquitto = Mosquitto::start(directory.path(), &configuration);
    for (user, password) in [("ann", "secret"), ("bob lee", "Passwort ü"), ("eve", "third")] {
        assert_eq!(login(&mosquitto, user, password), [0, 0], "{user}");
        assert_eq!(login(&mosquitto, user, "wrong"), NOT_AUTHORIZED, "{user}");
    }
}

#[test]
fn homing_accepts_users_of_mosquitto_passwd() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("passwd");
    assert!(mosquitto_passwd(&["-c", "-b"], &file, &["seven", "secret"]));
    assert!(mosquitto_passwd(&["-b", "-H", "sha512"], &file, &["six", "secret"]));
    assert!(homing(&["--check"], &file, &[]));
    for user in ["six", "seven"] {
        assert!(homing(&["--check", "-b"], &file, &[user, "secret"]), "{user}");
        assert!(!homing(&["--check", "-b"], &file, &[user, "Secret"]), "{user}");
    }
    assert!(mosquitto_passwd(&["-D"], &file, &["six"]));
    assert!(!homing(&["--check", "-b"], &file, &["six", "secret"]));
}

/// `mosquitto_passwd -U` hashes a whole file, and so does `homing passwd -U`.
#[test]
fn both_hash_a_file_of_plain_passwords() {
    let directory = tempfile::tempdir().expect("a directory");
    for by_homing in [false, true] {
        let file = directory.path().join("plain");
        std::fs::write(&file, "ann:secret\nbob:hunter2\n").expect("a file");
        assert!(!homing(&["--check"], &file, &[]), "plain passwords are refused");
        match by_homing {
            true => assert!(homing(&["-U", "-H", "pbkdf2"], &file, &[])),
            false => assert!(mosquitto_passwd(&["-U"], &file, &[])),
        }
        assert!(homing(&["--check", "-b"], &file, &["ann", "secret"]));
        let configuration = format!("allow_anonymous false\npassword_file {}\n", file.display());
        let mosquitto = Mosquitto::start(directory.path(), &configuration);
        assert_eq!(login(&mosquitto, "bob", "hunter2"), [0, 0]);
    }
}
