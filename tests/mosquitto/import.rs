//! One mosquitto.conf, run by mosquitto, and imported and run by Homing: both let the same clients
//! in, with the same answers.

use crate::broker::{Mosquitto, command};
use crate::support::process::Process;
use crate::support::{Connect, RawClient, V5, V311, Version};
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

/// The user name and the password of a CONNECT.
type Credentials = (Option<&'static str>, Option<&'static str>);

const CREDENTIALS: [Credentials; 6] = [
    (None, None),
    (Some("ann"), Some("secret")),
    (Some("six"), Some("secret")),
    (Some("ann"), Some("Secret")),
    (Some("ann"), None),
    (Some("eve"), Some("secret")),
];

/// Imports the configuration of a mosquitto, and runs Homing with it on free ports. Returns the
/// addresses of the listeners in their order.
pub fn homing(directory: &Path, mosquitto: &Mosquitto) -> (Process, Vec<SocketAddr>) {
    let file = directory.join("imported.conf");
    fs::write(&file, &mosquitto.configuration).expect("a file");
    let mut import = Command::new(env!("CARGO_BIN_EXE_homing"));
    let output = import.arg("import").arg(&file).output().expect("the binary was built");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut toml = String::from_utf8(output.stdout).expect("text");
    for address in &mosquitto.addresses {
        let taken = format!(":{}\"", address.port());
        assert!(toml.contains(&taken), "{toml}");
        toml = toml.replace(&taken, ":0\"");
    }
    let file = directory.join("homing.toml");
    fs::write(&file, toml).expect("a file");
    let mut serve = Command::new(env!("CARGO_BIN_EXE_homing"));
    serve.env("HOMING_ADMIN__ADDRESSES", "off").arg("serve").arg("--config").arg(&file);
    let (mut process, first) = Process::serve(&mut serve);
    let mut addresses = vec![first];
    for _ in 1..mosquitto.addresses.len() {
        addresses.push(process.address().expect("it listens"));
    }
    (process, addresses)
}

/// The bytes of the answer that count: the code of CONNACK, and its properties if it refuses.
fn answer(address: SocketAddr, version: Version, (user, password): Credentials) -> (u8, usize) {
    // Homing gives a session to its user alone, and the one before may not have ended yet.
    let mut connect = Connect::new(version, user.unwrap_or("nobody"));
    if let Some(user) = user {
        connect = connect.user_name(user);
    }
    if let Some(password) = password {
        connect = connect.password(password.as_bytes());
    }
    let mut client = RawClient::open(address, version);
    client.send(&connect.encode());
    let connack = client.expect_connack();
    let properties = if connack.code == 0 { 0 } else { connack.properties.len() };
    (connack.code, properties)
}

#[test]
fn an_imported_configuration_lets_the_same_clients_in() {
    let directory = tempfile::tempdir().expect("a directory");
    let passwd = directory.path().join("passwd");
    for arguments in [&["-c", "-b"][..], &["-b", "-H", "sha512"][..]] {
        let user = if arguments.contains(&"-c") { "ann" } else { "six" };
        let status = command("mosquitto_passwd").args(arguments).arg(&passwd).args([user, "secret"]).status();
        assert!(status.expect("tests/run installs it").success());
    }
    let passwd = format!("password_file {}\n", passwd.display());
    let (mut accepted, mut refused) = (0, 0);
    for configuration in [
        "allow_anonymous true\n".to_owned(),
        "allow_anonymous false\n".to_owned(),
        format!("allow_anonymous true\n{passwd}"),
        format!("allow_anonymous false\n{passwd}"),
        passwd.clone(),
        format!("per_listener_settings true\n{passwd}"),
        "per_listener_settings true\nallow_anonymous true\n".to_owned(),
    ] {
        let mosquitto = Mosquitto::start(directory.path(), &configuration);
        let (_process, addresses) = homing(directory.path(), &mosquitto);
        for credentials in CREDENTIALS {
            for version in [V311, V5] {
                let theirs = answer(mosquitto.address, version, credentials);
                let ours = answer(addresses[0], version, credentials);
                assert_eq!(ours, theirs, "{configuration}{version:?} {credentials:?}");
                *if ours.0 == 0 { &mut accepted } else { &mut refused } += 1;
            }
        }
    }
    assert!(accepted > 10 && refused > 10, "both are tested: {accepted}, {refused}");
}
