//! A data directory that is lost altogether comes back from its copy, and a standby takes over.

use crate::support::process::{Homing, Process};
use crate::support::{Connect, Message, V5, now, until};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The time under load.
const LOAD: Duration = Duration::from_millis(2_500);
/// Messages that were acknowledged so long before the end are in the copy, on a busy machine too.
const LAST: Duration = Duration::from_secs(2);

/// Runs a command on a store. Returns what it prints.
fn homing_store(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_homing")).arg("store").args(arguments).output();
    let output = output.expect("the binary was built");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

fn serve(data: &Path, more: &[&str]) -> Homing {
    Homing::serve(&[&["--data-dir", data.to_str().expect("UTF-8")], more].concat())
}

/// Returns the numbers that the session of the reader gets from a broker on this directory.
fn stored_in(data: &Path) -> Vec<u64> {
    let homing = serve(data, &[]);
    let mut reader = homing.connect(&Connect::persistent(V5, "reader"));
    assert!(reader.session_present(), "the session is in the copy");
    let mut publisher = homing.connect(&Connect::new(V5, "publisher"));
    publisher.deliver(&Message::new("t", "end").qos(1));
    let mut numbers = Vec::new();
    loop {
        let publish = reader.expect_publish();
        reader.complete(&publish);
        match std::str::from_utf8(&publish.payload).expect("text") {
            "end" => return numbers,
            number => numbers.push(number.parse().expect("a number")),
        }
    }
}

#[test]
fn a_lost_data_directory_comes_back_from_its_copy_and_a_standby_takes_over() {
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let path = |name: &str| place.path().join(name);
    let (data, to) = (path("data"), path("copy"));
    fs::create_dir(&to).expect("a folder");
    let (standby, restored) = (path("standby"), path("restored"));
    let of = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    let ship_to = format!("store.ship_to={}", of(&to));
    let mut homing = serve(&data, &["--set", &ship_to, "--set", "store.ship_interval=100ms"]);
    let mut reader = homing.connect(&Connect::persistent(V5, "reader"));
    reader.subscribe(&[("t", 1)]);
    reader.disconnect();
    let whole = || {
        fs::read_dir(&to).ok()?.filter_map(Result::ok).find(|folder| {
            let names = fs::read_dir(folder.path()).into_iter().flatten().filter_map(Result::ok);
            names.into_iter().any(|file| file.file_name().to_string_lossy().ends_with(".sha256"))
        })
    };
    until("a whole base", whole);
    let mut follower = Command::new(env!("CARGO_BIN_EXE_homing"));
    follower.args(["store", "replay", &of(&to), "--into", &of(&standby), "--follow"]);
    follower.args(["--set", "store.ship_interval=100ms"]);
    let mut follower = Process::spawn(&mut follower);
    follower.line(" and follows ").expect("it follows");

    let mut publisher = homing.connect(&Connect::new(V5, "publisher"));
    let (began, mut acknowledged) = (now(), Vec::new());
    while now() - began < LOAD {
        let code = publisher.deliver(&Message::new("t", acknowledged.len().to_string()).qos(1));
        assert!(code < 0x80, "{code}");
        acknowledged.push(now());
    }
    homing.process.kill();
    let end = now();
    fs::remove_dir_all(&data).expect("deleted");

    let line = homing_store(&["promote", &of(&standby)]);
    assert!(line.contains("has everything up to position "), "{line}");
    assert_eq!(follower.end().0, Some(0));
    homing_store(&["replay", &of(&to), "--into", &of(&restored)]);
    for directory in [standby, restored] {
        let stored = stored_in(&directory);
        assert!(stored.iter().copied().eq(0..stored.len() as u64), "in order, and none twice");
        let last =
            stored.len().checked_sub(1).map_or(began, |last| acknowledged[last.min(acknowledged.len() - 1)]);
        let missing = if stored.len() < acknowledged.len() { end - last } else { Duration::ZERO };
        println!("{} of {} messages, the last {missing:?} are missing", stored.len(), acknowledged.len());
        assert!(missing < LAST, "{missing:?} of {} messages are missing", acknowledged.len());
    }
}
