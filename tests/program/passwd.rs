//! `homing passwd` without another program: arguments, exit codes, and the file that is left.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// The exit code and the output of one command.
struct Outcome {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// Runs `homing passwd` without a terminal, and with `input` as its standard input.
fn passwd(arguments: &[&str], file: &Path, names: &[&str], input: &str) -> Outcome {
    let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
    command.arg("passwd").args(arguments).arg(file).args(names);
    let mut child = command
        .current_dir(env!("CARGO_TARGET_TMPDIR"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary was built");
    // A command that reads no password has closed the pipe.
    drop(child.stdin.take().expect("a pipe").write_all(input.as_bytes()));
    let output = child.wait_with_output().expect("it ends");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    Outcome { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

#[test]
fn a_password_is_set_changed_checked_and_deleted() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("passwd");
    let missing = passwd(&["--stdin"], &file, &["ann"], "secret\n");
    assert_eq!(missing.code, Some(1));
    assert!(missing.stderr.contains("does not exist; -c creates it"), "{}", missing.stderr);

    let created = passwd(&["-c", "--stdin"], &file, &["ann"], "secret\n");
    assert_eq!(created.code, Some(0), "{}", created.stderr);
    assert!(created.stdout.ends_with("added user \"ann\"\n"), "{}", created.stdout);
    assert_eq!(fs::metadata(&file).expect("a file").permissions().mode() & 0o777, 0o600);
    let text = fs::read_to_string(&file).expect("a file");
    assert!(text.starts_with("ann:$argon2id$v=19$m=19456,t=2,p=1$"), "{text}");

    let changed = passwd(&["-b"], &file, &["ann", "other"], "");
    assert!(changed.stdout.ends_with("changed user \"ann\"\n"), "{}", changed.stdout);
    assert!(changed.stderr.ends_with("changes the file and the broker at once\n"), "{}", changed.stderr);
    assert_eq!(passwd(&["--check", "--stdin"], &file, &["ann"], "other").code, Some(0));
    let wrong = passwd(&["--check", "--stdin"], &file, &["ann"], "secret");
    assert_eq!((wrong.code, wrong.stdout.as_str()), (Some(1), ""));
    assert!(!wrong.stderr.contains("secret"), "{}", wrong.stderr);

    assert_eq!(passwd(&["-D"], &file, &["ann"], "").code, Some(0));
    assert_eq!(fs::read_to_string(&file).expect("a file"), "");
    let gone = passwd(&["-D"], &file, &["ann"], "");
    assert_eq!((gone.code, gone.stderr.contains("no user \"ann\"")), (Some(1), true), "{}", gone.stderr);
}

#[test]
fn a_device_gets_a_random_secret() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("passwd");
    let outcome = passwd(&["-c", "--device"], &file, &["pump-7"], "");
    assert_eq!((outcome.code, outcome.stderr.lines().count()), (Some(0), 1), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("after `homing ctl reload`"), "what is left to do: {}", outcome.stderr);
    let secret = outcome.stdout.trim_end();
    assert_eq!(secret.len(), 43, "256 bits in base64: {secret}");
    let text = fs::read_to_string(&file).expect("a file");
    assert!(text.starts_with("pump-7:$scram-sha-256$i=4096$") && !text.contains(secret), "{text}");
    assert_eq!(passwd(&["--check", "--stdin"], &file, &["pump-7"], secret).code, Some(0));
}

#[test]
fn a_file_is_checked_with_all_its_mistakes() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("passwd");
    fs::write(&file, "ann:hunter2\nbob\n").expect("a file");
    let outcome = passwd(&["--check"], &file, &[], "");
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(1), ""));
    for needed in ["passwd:1: user \"ann\": the password is not hashed", "passwd:2: the line has no colon"] {
        assert!(outcome.stderr.contains(needed), "{needed} is missing:\n{}", outcome.stderr);
    }
    // A change leaves the other lines as they are, and warns of them.
    let added = passwd(&["-b", "-H", "scram"], &file, &["eve", "third"], "");
    assert_eq!(added.code, Some(0));
    assert!(added.stderr.contains("passwd:2: the line has no colon"), "{}", added.stderr);
    assert!(fs::read_to_string(&file).expect("a file").starts_with("ann:hunter2\nbob\neve:$scram-sha-256$"));
    // Hashing is done once, and never a second time on its own result.
    assert!(passwd(&["-U", "-H", "pbkdf2"], &file, &[], "").stdout.contains("hashed 1 plain passwords"));
    assert!(passwd(&["-U", "-H", "pbkdf2"], &file, &[], "").stdout.contains("hashed 0 plain passwords"));
}

#[test]
fn arguments_that_do_not_go_together_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("passwd");
    let cases: [(&[&str], &[&str], &str); 10] = [
        (&[], &[], "a user name must follow the file"),
        (&["-b"], &["ann"], "the password must follow the user name"),
        (&[], &["ann", "secret"], "needs -b"),
        (&["-U"], &["ann"], "no user follows it"),
        (&["-I", "5", "-b"], &["ann", "secret"], "-H pbkdf2"),
        (&["-b"], &["a:b", "secret"], "the user name \"a:b\" is not possible"),
        (&["-c", "-D"], &["ann"], "cannot be used with"),
        (&["-H", "sha512", "-b"], &["ann", "secret"], "argon2id, pbkdf2, scram"),
        (&["--device", "--stdin"], &["ann"], "cannot be used with"),
        (&["-H", "pbkdf2", "-I", "0", "-b"], &["ann", "secret"], "1..=10000000"),
    ];
    for (arguments, names, needed) in cases {
        let outcome = passwd(arguments, &file, names, "");
        assert_eq!(outcome.code, Some(2), "{arguments:?} {names:?}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(needed), "{needed} is missing:\n{}", outcome.stderr);
        assert!(!outcome.stderr.contains("secret") || arguments.contains(&"-H"), "{}", outcome.stderr);
    }
    assert!(!file.exists());
}

#[test]
fn passwords_that_clients_cannot_send_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("passwd");
    for (hash, input, needed) in [
        ("argon2id", "\n", "the password is empty"),
        ("scram", "pässword\n", "scram needs a password of ASCII"),
    ] {
        let outcome = passwd(&["-c", "--stdin", "-H", hash], &file, &["ann"], input);
        assert_eq!((outcome.code, outcome.stderr.contains(needed)), (Some(1), true), "{}", outcome.stderr);
    }
    assert!(!file.exists());
}
