//! The copy of a store as an operator meets it: what is refused, and a directory that follows.

use crate::store::{Outcome, homing_store, opened};
use homing::clock;
use homing::store::Store;
use homing::store::ship::ShipOptions;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// Looks until something is so, for at most half a minute.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = clock::now();
    while !is_so() {
        assert!(clock::now().since(began) < Duration::from_secs(30), "never: {what}");
        std::thread::yield_now();
    }
}

/// A place with the copy of a store in `copy`.
fn copied() -> TempDir {
    let place = tempfile::tempdir().expect("a directory");
    let (data, to) = (place.path().join("data"), place.path().join("copy"));
    fs::create_dir(&to).expect("made");
    let options = ShipOptions { to: to.clone(), interval: Duration::from_millis(5) };
    let mut store = opened(&data, Some(options));
    // What is not shipped yet, a stop ships.
    until("a whole base", || names_in(&to).iter().any(|name| name.ends_with(".sha256")));
    store.tidy().expect("tidied");
    place
}

/// Returns the names of the files of all logs in a folder.
fn names_in(to: &Path) -> Vec<String> {
    let list = |folder: &Path| -> Vec<PathBuf> {
        fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect()
    };
    let files = list(to).into_iter().flat_map(|folder| list(&folder));
    files.map(|path| path.file_name().unwrap_or_default().to_string_lossy().into_owned()).collect()
}

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn is_refused(outcome: &Outcome, words: &str) {
    let Outcome { code, stdout, stderr } = outcome;
    assert_eq!((*code, stdout.as_str(), stderr.lines().count()), (Some(1), "", 1), "{stderr}");
    assert!(stderr.starts_with("homing: ") && stderr.contains(words), "{words}: {stderr}");
}

#[test]
fn a_replay_names_its_position_and_time_and_a_refused_one_leaves_nothing() {
    let place = copied();
    let replay = |more: &[&str]| homing_store(place.path(), &[&["replay"], more].concat());
    let before = fs::read_dir(place.path()).expect("a folder").count();
    fs::create_dir(place.path().join("empty")).expect("made");
    for (arguments, words) in [
        (["copy", "--into", "new", "--until", "yesterday"], "--until must be a position, or a time"),
        (["copy", "--into", "new", "--until", "999999"], "outside of what it has: position "),
        (["copy", "--into", "new", "--until", "1990-01-01T00:00:00Z"], "outside of what it has: position "),
        (["copy", "--into", "data", "--until", "1"], "is there already, and is not empty"),
        (["empty", "--into", "new", "--until", "1"], "there is no copy of a store in it"),
        (["data/homing.db", "--into", "new", "--until", "1"], "Not a directory"),
    ] {
        is_refused(&replay(&arguments), words);
    }
    // A disk that is full in the middle of the base.
    let limited = "trap '' XFSZ; ulimit -f 8; exec \"$0\" store replay copy --into new";
    let mut shell = Command::new("sh");
    shell.current_dir(place.path()).args(["-c", limited, env!("CARGO_BIN_EXE_homing")]);
    let output = shell.output().expect("a shell");
    let line = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), line.lines().count()), (Some(1), 1), "{line}");
    assert!(line.contains("homing.db: File too large"), "{line}");
    assert_eq!(fs::read_dir(place.path()).expect("a folder").count(), before + 1, "only `empty` is new");

    let done = replay(&["copy", "--into", "new"]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.stdout.starts_with("new has everything up to position "), "{}", done.stdout);
    assert!(done.stdout.ends_with("Z)\n"), "{}", done.stdout);
    let check = homing_store(place.path(), &["check", "--data-dir", "new"]);
    assert!(check.stdout.ends_with("the store in new is sound\n"), "{}{}", check.stdout, check.stderr);
}

#[test]
fn no_broker_starts_on_a_directory_that_follows_until_it_is_promoted() {
    let place = copied();
    let mut follower = Command::new(env!("CARGO_BIN_EXE_homing"));
    follower.current_dir(place.path()).stdout(Stdio::null()).env_clear();
    follower.args(["store", "replay", "copy", "--into", "standby", "--follow"]);
    let mut follower = Running(follower.spawn().expect("it starts"));
    until("it follows", || place.path().join("standby/homing.following").exists());
    let dump = homing_store(place.path(), &["dump", "--data-dir", "standby"]);
    assert!(dump.stdout.contains("queue entries      3\n"), "{}{}", dump.stdout, dump.stderr);
    let mut broker = Command::new(env!("CARGO_BIN_EXE_homing"));
    broker.env_clear().env("HOMING_ADMIN__ADDRESSES", "off").current_dir(place.path());
    let output = broker.args(["--listen", "127.0.0.1:0", "--data-dir", "standby"]).output().expect("it runs");
    let line = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), line.lines().count()), (Some(1), 1), "{line}");
    assert!(line.contains("end that with homing store promote standby"), "{line}");
    let promoted = homing_store(place.path(), &["promote", "standby"]);
    assert_eq!((promoted.code, promoted.stderr.as_str()), (Some(0), ""));
    assert!(promoted.stdout.starts_with("standby has everything up to position "), "{}", promoted.stdout);
    assert!(follower.0.wait().expect("its end").success());
    is_refused(&homing_store(place.path(), &["promote", "standby"]), "it follows no copy");
}

#[test]
fn a_folder_in_the_data_directory_is_refused_and_one_on_its_disk_is_noticed() {
    let place = copied();
    let check = |to: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
        command.env_clear().current_dir(place.path()).args(["check-config", "--data-dir", "data", "--set"]);
        let output = command.arg(format!("store.ship_to={to}")).output().expect("it runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, text) = check("data/log");
    assert!(code == Some(2) && text.contains("a copy belongs on another disk (store.ship_to)"), "{text}");
    let (code, text) = check("copy");
    assert!(code == Some(0) && text.contains("is on the file system of the store"), "{text}");
    let (code, text) = check("nowhere");
    assert!(code == Some(0) && text.contains("cannot be used, so there is no copy"), "{text}");
}
