//! The `homing` command as an operator meets it: what it prints, where, and its exit code. Nothing
//! here needs a running broker.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Output};

/// `homing` in an empty directory with an environment of its own, so that the tree's own file is
/// not read.
fn homing(arguments: &[&str]) -> Command {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("empty");
    std::fs::create_dir_all(&directory).expect("the target directory is ours");
    let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
    command.args(arguments).current_dir(directory).env_clear();
    command
}

struct Outcome {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn run(command: &mut Command) -> Outcome {
    let Output { status, stdout, stderr } = command.output().expect("the binary was built");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    Outcome { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
}

#[test]
fn help_names_the_commands_the_layers_and_examples() {
    let help = run(&mut homing(&["--help"]));
    assert_eq!(help.code, Some(0));
    for needed in [
        "check-config",
        "health",
        "--listen",
        "--data-dir",
        "--set",
        "HOMING_SECTION__KEY",
        "Examples:",
        "Exit codes:",
    ] {
        assert!(help.stdout.contains(needed), "{needed} is missing:\n{}", help.stdout);
    }
}

#[test]
fn check_config_says_that_all_is_at_its_default() {
    let outcome = run(&mut homing(&["check-config"]));
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(outcome.stdout.starts_with("configuration is valid\n"), "{}", outcome.stdout);
    assert!(outcome.stdout.contains("files that it names: can be used\n"), "{}", outcome.stdout);
    assert!(outcome.stdout.contains("built-in defaults"), "{}", outcome.stdout);
    assert!(outcome.stdout.contains("every key has its built-in default"), "{}", outcome.stdout);
}

#[test]
fn check_config_says_where_each_changed_value_came_from() {
    let mut command = homing(&["--set", "limits.in_flight=7", "check-config", "--listen", "127.0.0.1:0"]);
    let outcome =
        run(command.env("HOMING_SYS__PUBLISH_INTERVAL", "off").env("HOMING_SERVICE_HOST", "10.0.0.1"));
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    for needed in [
        "limits.in_flight = 7 (--set)",
        "network.listen = [\"127.0.0.1:0\"] (--listen)",
        "sys.publish_interval = \"off\" (environment variable HOMING_SYS__PUBLISH_INTERVAL)",
    ] {
        assert!(outcome.stdout.contains(needed), "{needed} is missing:\n{}", outcome.stdout);
    }
}

#[test]
fn the_file_in_the_working_directory_is_read_without_being_named() {
    let mut command = homing(&["check-config"]);
    let outcome = run(command.current_dir(env!("CARGO_MANIFEST_DIR")));
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(outcome.stdout.contains("read: built-in defaults, config/homing.toml\n"), "{}", outcome.stdout);
}

#[test]
fn a_file_that_sets_nothing_is_named_all_the_same() {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("sets-nothing.toml");
    std::fs::write(&file, "[limits]\n").expect("the target directory is ours");
    for outcome in [
        run(homing(&["check-config", "--config"]).arg(&file)),
        run(homing(&["check-config"]).env("HOMING_CONFIG", &file)),
    ] {
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        let read = format!("read: built-in defaults, {}\n", file.display());
        assert!(outcome.stdout.contains(&read), "{}", outcome.stdout);
    }
}

#[test]
fn a_refused_configuration_is_exit_code_2_and_starts_nothing() {
    for command in [&["serve"][..], &[], &["check-config"]] {
        let mut arguments = vec!["--set", "limits.paket_size=2 MiB", "--set", "log.format=xml"];
        arguments.extend(command);
        let outcome = run(&mut homing(&arguments));
        assert_eq!(outcome.code, Some(2));
        assert_eq!(outcome.stdout, "");
        assert_eq!(
            outcome.stderr,
            "homing: --set: unknown key limits.paket_size; did you mean limits.packet_size?\n\
             homing: --set: log.format = \"xml\" is not allowed; must be \"auto\" or \"text\" or \"json\" or \"journal\"\n"
        );
    }
}

#[test]
fn a_collector_needs_a_build_that_exports_and_files_that_can_be_read() {
    let check = |key: &str| {
        run(&mut homing(&[
            "--ephemeral",
            "--set",
            "otlp.endpoint=http://127.0.0.1:9",
            "--set",
            key,
            "check-config",
        ]))
    };
    let outcome = check("otlp.headers=missing");
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(2), ""));
    let (reason, valid) = match cfg!(feature = "otlp") {
        true => ("homing: otlp.headers: missing: cannot be read", Some(0)),
        false => {
            ("homing: otlp.endpoint: the export by OTLP needs a build with the cargo feature otlp", Some(2))
        }
    };
    assert!(outcome.stderr.starts_with(reason), "{}", outcome.stderr);
    assert_eq!(check("otlp.timeout=5s").code, valid);
}

#[test]
fn a_missing_file_is_one_line_and_exit_code_2() {
    let outcome = run(&mut homing(&["--config", "no-such.toml"]));
    assert_eq!(outcome.code, Some(2));
    assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
    assert!(
        outcome.stderr.starts_with("homing: no-such.toml: cannot be read: No such file"),
        "{}",
        outcome.stderr
    );
}

#[test]
fn a_data_directory_and_ephemeral_exclude_each_other() {
    let outcome = run(&mut homing(&["--data-dir", "d", "--ephemeral", "check-config"]));
    assert_eq!(outcome.code, Some(2));
    assert!(outcome.stderr.contains("cannot be used with"), "{}", outcome.stderr);
    assert_eq!(run(&mut homing(&["--data-dir", "d", "check-config"])).code, Some(0));
    assert_eq!(run(&mut homing(&["--ephemeral", "check-config"])).code, Some(0));
}

#[test]
fn health_is_exit_code_0_where_a_broker_answers() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    let broker = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        for answer in [&[0x20, 2, 0, 0][..], &[0xD0, 0]] {
            let mut packet = [0; 64];
            assert_ne!(stream.read(&mut packet).expect("a packet"), 0);
            stream.write_all(answer).expect("an answer");
        }
    });
    let outcome = run(&mut homing(&["health", "--address", &address]));
    assert_eq!(outcome.stdout, format!("{address} is healthy\n"));
    assert_eq!(outcome.code, Some(0));
    broker.join().expect("both packets came");
}

#[test]
fn a_broker_that_lets_nobody_in_without_credentials_is_healthy() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    let broker = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let mut packet = [0; 64];
        assert_ne!(stream.read(&mut packet).expect("a packet"), 0);
        stream.write_all(&[0x20, 2, 0, 5]).expect("an answer");
    });
    let outcome = run(&mut homing(&["health", "--address", &address]));
    assert_eq!((outcome.stdout, outcome.code), (format!("{address} is healthy\n"), Some(0)));
    broker.join().expect("CONNECT came");
}

#[test]
fn health_is_exit_code_1_and_one_line_where_nobody_listens() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    drop(listener);
    let outcome = run(&mut homing(&["health", "--listen", &address]));
    assert_eq!(outcome.code, Some(1));
    assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
    assert!(
        outcome.stderr.contains(&format!("{address} is not healthy: cannot connect")),
        "{}",
        outcome.stderr
    );
}

#[test]
fn the_manual_page_has_a_section_for_each_command() {
    let page = run(&mut homing(&["manual"]));
    assert_eq!((page.code, page.stderr.as_str()), (Some(0), ""));
    let help = run(&mut homing(&["--help"])).stdout;
    let commands =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names: Vec<&str> = commands
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    assert!(names.len() >= 9, "{names:?}");
    for name in names {
        let section = format!(".SH \"HOMING {}\"", name.to_uppercase());
        assert!(page.stdout.contains(&section), "{section} is missing");
    }
    let place = |section: &str| page.stdout.find(section);
    assert!(place(".SH EXAMPLES\n").is_some() && place(".SH EXAMPLES\n") < place(".SH OPTIONS\n"));
    for section in [".SH NAME", ".SH SYNOPSIS", ".SH EXAMPLES", ".SH FILES", ".SH ENVIRONMENT", ".SH SIGNALS"]
    {
        assert_eq!(page.stdout.matches(&format!("{section}\n")).count(), 1, "{section}");
    }
}

#[test]
fn the_completions_know_the_commands_and_their_options() {
    for shell in ["bash", "fish", "zsh"] {
        let script = run(&mut homing(&["completions", shell]));
        assert_eq!((script.code, script.stderr.as_str()), (Some(0), ""), "{shell}");
        for word in ["check-config", "inflight", "log-format"] {
            assert!(script.stdout.contains(word), "{shell} does not complete {word}");
        }
    }
    let unknown = run(&mut homing(&["completions", "tcsh"]));
    assert_eq!(unknown.code, Some(2));
    assert!(unknown.stderr.contains("[possible values: bash, fish, zsh]"), "{}", unknown.stderr);
}
