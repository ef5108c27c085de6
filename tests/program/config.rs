//! Configuration as an operator meets it: layers, refusals and the file that documents every key.

use homing::config::{ByteSize, Config, OnExhausted, Problem, QueuePolicy, Sources};
use homing::session::drops::DropReason;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

const SHIPPED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/config/homing.toml");

/// A file of this test's own.
fn file(test: &str, text: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}.toml"));
    std::fs::write(&path, text).expect("the target directory is ours");
    path
}

fn variables(pairs: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
    pairs.iter().map(|(name, value)| (name.into(), value.into())).collect()
}

fn config(sources: Sources) -> Config {
    sources.load().expect("a valid configuration").config
}

fn problems(sources: Sources) -> Vec<String> {
    let refusal = sources.load().expect_err("a refusal");
    refusal.0.iter().map(Problem::to_string).collect()
}

fn only_problem(sources: Sources) -> String {
    let problems = problems(sources);
    assert_eq!(problems.len(), 1, "{problems:?}");
    problems.concat()
}

#[test]
fn nothing_written_is_the_built_in_defaults() {
    let loaded = Sources::new().load().expect("defaults are valid");
    assert_eq!(loaded.config, Config::default());
    assert!(loaded.sources.is_empty());
    assert!(loaded.changed.is_empty());
}

#[test]
fn the_shipped_file_equals_the_built_in_defaults() {
    let loaded = Sources::new().file(SHIPPED).load().expect("the shipped file is valid");
    assert_eq!(loaded.config, Config::default());
    assert!(loaded.changed.is_empty(), "{:?}", loaded.changed);
}

/// Asserts that a file is as the table of keys gives it. `HOMING_RENEW=1` writes the file.
fn is_as_written(path: &str, written: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os("HOMING_RENEW").is_some() {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("the tree is ours");
        std::fs::write(&path, written).expect("the tree is ours");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = found.lines().zip(written.lines()).position(|(found, written)| found != written);
    let line = differs.unwrap_or(found.lines().count().min(written.lines().count())) + 1;
    assert!(
        found == written,
        "{} is not what src/config/keys/ says, from line {line} on. Change the table of keys, not the file, and renew \
         it: HOMING_RENEW=1 cargo test --test program config",
        path.display()
    );
}

#[test]
fn the_shipped_file_is_written_from_the_table_of_keys() {
    is_as_written("config/homing.toml", &homing::config::render::file());
}

#[test]
fn the_document_is_written_from_the_table_of_keys() {
    is_as_written("docs/configuration.md", &homing::config::render::document());
}

#[test]
fn lines_of_the_shipped_file_are_at_most_100_columns_wide() {
    let file = homing::config::render::file();
    let long = file.lines().find(|line| line.chars().count() > 100);
    assert_eq!(long, None);
}

#[test]
fn each_layer_beats_the_one_below() {
    let path = file("layers", "[limits]\nin_flight = 11\nreceive_maximum = 12\nqueue_messages = 13\n");
    let environment =
        || variables(&[("HOMING_LIMITS__RECEIVE_MAXIMUM", "22"), ("HOMING_LIMITS__QUEUE_MESSAGES", "23")]);
    let built_in = Config::default().limits;

    let limits = config(Sources::new().file(&path)).limits;
    assert_eq!((limits.in_flight, limits.receive_maximum, limits.queue_messages), (11, 12, 13));
    assert_eq!(limits.topic_levels, built_in.topic_levels);

    let limits = config(Sources::new().file(&path).environment(environment())).limits;
    assert_eq!((limits.in_flight, limits.receive_maximum, limits.queue_messages), (11, 22, 23));

    let flags = Sources::new().file(&path).environment(environment()).assignment("limits.queue_messages=33");
    let limits = config(flags).limits;
    assert_eq!((limits.in_flight, limits.receive_maximum, limits.queue_messages), (11, 22, 33));
}

#[test]
fn the_winning_source_of_each_changed_key_is_reported() {
    let path = file("origins", "[limits]\nin_flight = 11\nqueue_messages = 13\npacket_size = \"2048 KiB\"\n");
    let loaded = Sources::new()
        .file(&path)
        .environment(variables(&[("HOMING_LIMITS__QUEUE_MESSAGES", "23")]))
        .flag("--log-level", "log.level", "debug")
        .load()
        .expect("valid");
    let changed: Vec<String> = loaded.changed.iter().map(ToString::to_string).collect();
    assert_eq!(
        changed,
        [
            format!("limits.in_flight = 11 ({})", path.display()),
            "limits.queue_messages = 23 (environment variable HOMING_LIMITS__QUEUE_MESSAGES)".to_owned(),
            "log.level = \"debug\" (--log-level)".to_owned(),
        ],
        "packet_size is spelled otherwise but is the default"
    );
    assert_eq!(loaded.sources.len(), 3);
}

#[test]
fn text_from_the_environment_and_flags_takes_the_type_of_its_key() {
    let config = config(
        Sources::new()
            .environment(variables(&[
                ("HOMING_NETWORK__LISTEN", "0.0.0.0:1883, [::1]:0"),
                ("HOMING_KEEP_ALIVE__ALLOW_NEVER", "false"),
                ("HOMING_KEEP_ALIVE__MAXIMUM", "1h"),
                ("HOMING_REDELIVERY__BACKOFF", "3"),
                ("HOMING_REDELIVERY__INTERVAL", "off"),
            ]))
            .assignment("limits.memory=2 GiB")
            .assignment("limits.queue_policy = drop_oldest")
            .assignment("redelivery.on_exhausted=keep"),
    );
    let addresses: Vec<String> = config.network.listen.iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["0.0.0.0:1883", "[::1]:0"]);
    assert_eq!(
        (config.keep_alive.allow_never, config.keep_alive.maximum),
        (false, Duration::from_secs(3600))
    );
    assert_eq!((config.redelivery.backoff, config.redelivery.interval), (3.0, Duration::ZERO));
    assert_eq!(config.redelivery.on_exhausted, OnExhausted::Keep);
    assert_eq!(config.limits.memory, ByteSize::gib(2));
    assert_eq!(config.limits.queue_policy, QueuePolicy::DropOldest);
}

#[test]
fn a_list_replaces_the_list_below_it() {
    let path = file("list", "[network]\nlisten = [\"127.0.0.1:1\", \"127.0.0.1:2\", \"127.0.0.1:3\"]\n");
    let environment = variables(&[("HOMING_NETWORK__LISTEN", "127.0.0.1:4")]);
    let addresses = config(Sources::new().file(&path).environment(environment)).network.listen;
    assert_eq!(addresses, ["127.0.0.1:4".parse().expect("an address")]);
}

#[test]
fn of_two_flags_for_one_key_the_later_wins() {
    let flags = Sources::new().assignment("limits.in_flight=1").assignment("limits.in_flight=2");
    assert_eq!(config(flags).limits.in_flight, 2);
}

#[test]
fn variables_without_a_double_underscore_or_the_prefix_are_passed_over() {
    let environment = [
        ("HOMING_SERVICE_HOST", "10.0.0.1"),
        ("HOMING_PORT_1883_TCP", "tcp://10.0.0.1:1883"),
        ("HOMING", "x"),
        ("PATH", "/bin"),
        ("NOT_HOMING_LIMITS__IN_FLIGHT", "many"),
    ];
    assert_eq!(config(Sources::new().environment(variables(&environment))), Config::default());
}

#[test]
fn a_variable_with_the_prefix_that_is_no_key_is_refused_or_named() {
    assert_eq!(
        only_problem(Sources::new().environment(variables(&[("HOMING_AUTH_ANONYMOUS", "never")]))),
        "environment variable HOMING_AUTH_ANONYMOUS: no key has this name; did you mean HOMING_AUTH__ANONYMOUS?"
    );
    let environment = variables(&[("HOMING_VERSION", "1"), ("HOMING_CONFIG", "f"), ("HOMING_PORT", "1883")]);
    let ignored = Sources::new().environment(environment).load().expect("valid").ignored;
    assert_eq!(ignored.len(), 2, "{ignored:?}");
    assert!(ignored[0].starts_with("environment variable HOMING_PORT is ignored: "), "{ignored:?}");
}

#[test]
fn a_flag_takes_a_list_and_a_quoted_text_as_the_file_has_them() {
    let addresses = |text: &str| {
        let config = config(Sources::new().assignment(&format!("admin.addresses={text}")));
        config.admin.addresses.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    for text in ["[\"127.0.0.1:1\", \"[::1]:2\"]", "['127.0.0.1:1','[::1]:2']", "127.0.0.1:1,[::1]:2"] {
        assert_eq!(addresses(text), ["127.0.0.1:1", "[::1]:2"], "{text}");
    }
    assert_eq!(addresses("[::1]:2"), ["[::1]:2"]);
    let tables = Sources::new().assignment("listeners=[{ address = \"127.0.0.1:1\", connections = 7 }]");
    assert_eq!(config(tables).listeners[0].connections, Some(7));
    let quoted = config(Sources::new().assignment("store.path=\"/data\"").assignment("log.level='debug'"));
    assert_eq!((quoted.store.path.as_str(), quoted.log.level.as_str()), ("/data", "debug"));
    let hosts = config(Sources::new().assignment("admin.hosts=[]")).admin.hosts;
    assert!(hosts.is_empty(), "{hosts:?}");
    let wrong = only_problem(Sources::new().assignment("admin.addresses=[\"localhost\"]"));
    assert!(
        wrong.starts_with("--set: admin.addresses = [\"localhost\"] is not allowed; must be one or more"),
        "{wrong}"
    );
}

#[test]
fn an_unknown_key_names_its_source_and_the_key_meant() {
    let path = file("unknown", "[limits]\npaket_size = \"2 MiB\"\n");
    assert_eq!(
        only_problem(Sources::new().file(&path)),
        format!("{}: unknown key limits.paket_size; did you mean limits.packet_size?", path.display())
    );
    assert_eq!(
        only_problem(Sources::new().environment(variables(&[("HOMING_LIMIT__IN_FLIGHT", "5")]))),
        "environment variable HOMING_LIMIT__IN_FLIGHT: no key has this name; did you mean HOMING_LIMITS__IN_FLIGHT?"
    );
    assert_eq!(
        only_problem(Sources::new().assignment("packet_size=2 MiB")),
        "--set: unknown key packet_size; did you mean limits.packet_size?"
    );
    assert_eq!(
        only_problem(Sources::new().assignment("sys.interval=2s")),
        "--set: unknown key sys.interval; did you mean sys.publish_interval?"
    );
    assert_eq!(
        only_problem(Sources::new().assignment("expiry.something_else=2")),
        "--set: unknown key expiry.something_else; [expiry] holds tick"
    );
    assert_eq!(
        only_problem(Sources::new().assignment("authentication.password=x")),
        "--set: unknown key authentication.password; the sections are runtime, network, auth, acl, bans, limits, keep_alive, expiry, \
         redelivery, store, cluster, sys, log, admin, otlp, listeners, slo, bridges, sinks"
    );
    let deeper = file("deeper", "[limits.in_flight]\nx = 1\n[nothing]\n");
    assert_eq!(problems(Sources::new().file(deeper)).len(), 2);
}

#[test]
fn a_wrong_type_names_its_source_key_value_and_what_is_allowed() {
    let path = file("types", "[limits]\nin_flight = \"100\"\n");
    assert_eq!(
        only_problem(Sources::new().file(&path)),
        format!(
            "{}: limits.in_flight = \"100\" is not allowed; must be a whole number from 1 to 65535",
            path.display()
        )
    );
    assert_eq!(
        only_problem(Sources::new().environment(variables(&[("HOMING_LIMITS__IN_FLIGHT", "many")]))),
        "environment variable HOMING_LIMITS__IN_FLIGHT: limits.in_flight = \"many\" is not allowed; must be a whole \
         number from 1 to 65535"
    );
    assert_eq!(
        only_problem(Sources::new().flag("--log-format", "log.format", "xml")),
        "--log-format: log.format = \"xml\" is not allowed; must be \"auto\" or \"text\" or \"json\" or \"journal\""
    );
    let section = file("section", "limits = 5\n");
    assert!(
        only_problem(Sources::new().file(section)).contains("limits = 5 is not allowed; must be a section")
    );
}

#[test]
fn a_duration_or_size_without_a_unit_is_refused_with_a_hint() {
    let path = file("units", "[redelivery]\ninterval = 20\n[limits]\npacket_size = 1048576\n");
    let problems = problems(Sources::new().file(path));
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(
        problems
            .iter()
            .any(|p| p.contains("limits.packet_size = 1048576 is not allowed; must be a size with a unit"))
    );
    assert!(
        problems
            .iter()
            .any(|p| p.contains("redelivery.interval = 20 is not allowed; must be a duration with a unit"))
    );
}

#[test]
fn a_zero_is_refused_with_the_word_that_is_meant() {
    for (assignment, problem_text) in [
        (
            "runtime.threads=0",
            "runtime.threads = 0 is not allowed; must be \"auto\" (one thread for each core",
        ),
        ("redelivery.attempts=0", "redelivery.attempts = 0 is not allowed; must be \"unlimited\" ("),
        ("redelivery.interval=0s", "redelivery.interval = \"0s\" is not allowed; must be \"off\" (never"),
        ("sys.publish_interval=0", "sys.publish_interval = \"0\" is not allowed; must be \"off\" ("),
        ("store.size_limit=0 B", "store.size_limit = \"0 B\" is not allowed; must be \"unlimited\" ("),
        ("store.path=", "store.path = \"\" is not allowed; must be \"auto\" (the first of systemd's"),
    ] {
        let problem = only_problem(Sources::new().assignment(assignment));
        assert!(problem.contains(problem_text), "{problem}");
    }
    let rule = only_problem(rules("rule-zero", "[[redelivery.rules]]\ninterval = \"0s\"\n"));
    assert!(rule.contains("rule 1: interval = \"0s\" is not allowed; must be \"off\" ("), "{rule}");
    // Where zero is a plain bound, there is no word for it.
    let plain = config(Sources::new().assignment("limits.session_expiry=0s"));
    assert_eq!(plain.limits.session_expiry, Duration::ZERO);
}

#[test]
fn words_are_the_zero_of_their_field() {
    let words = Sources::new()
        .assignment("runtime.threads=auto")
        .assignment("keep_alive.maximum=unlimited")
        .assignment("redelivery.attempts=unlimited")
        .assignment("store.size_limit=unlimited")
        .assignment("sys.last_disconnects=off")
        .assignment("network.addresses_file=off");
    let config = config(words);
    assert_eq!((config.runtime.threads, config.redelivery.attempts), (0, 0));
    assert_eq!((config.keep_alive.maximum, config.store.size_limit), (Duration::ZERO, ByteSize(0)));
    assert_eq!((config.sys.last_disconnects, config.network.addresses_file.as_str()), (0, ""));
}

#[test]
fn of_the_default_files_the_first_that_exists_is_read() {
    let first = file("first", "[limits]\nin_flight = 1\n");
    let second = file("second", "[limits]\nin_flight = 2\n");
    let missing = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("no-such-default.toml");
    let read = |paths: &[&PathBuf]| {
        let paths: Vec<&str> = paths.iter().map(|path| path.to_str().expect("UTF-8")).collect();
        let loaded = Sources::new().first_file_of(&paths).load().expect("valid");
        (loaded.config.limits.in_flight, loaded.file)
    };
    assert_eq!(read(&[&first, &second]), (1, Some(first.clone())));
    assert_eq!(read(&[&missing, &second]), (2, Some(second.clone())));
    assert_eq!(read(&[&missing]), (100, None));
    assert_eq!(homing::config::DEFAULT_FILES, ["config/homing.toml", "/etc/homing/homing.toml"]);
}

#[test]
fn values_just_outside_their_range_are_refused_and_the_bounds_are_taken() {
    let cases = [
        ("runtime.threads", &["auto", "1", "64"][..], &["-1", "0", "65", "many"][..]),
        ("limits.connections", &["auto", "AUTO", "1"], &["0", "unlimited"]),
        ("limits.retained_messages", &["off", "1"], &["0"]),
        ("limits.delayed_messages", &["off", "1"], &["0"]),
        ("limits.topic_alias_maximum", &["off", "1", "65535"], &["0", "65536"]),
        ("sys.last_disconnects", &["off", "1"], &["0"]),
        ("sys.publish_interval", &["off", "1d"], &["0s", "0"]),
        ("network.addresses_file", &["off", "/run/homing/addresses"], &["", "a\0b"]),
        ("network.listen", &["[::]:0,[::]:0"], &["", "localhost:1883", "1883", "127.0.0.1:1,127.0.0.1:1"]),
        ("network.connect_timeout", &["100ms", "1h"], &["99ms", "3601s", "off"]),
        ("limits.packet_size", &["1 KiB", "255 MiB"], &["1023 B", "256 MiB"]),
        ("limits.session_expiry", &["0s", "4294967294s"], &["4294967295s", "1500ms"]),
        ("keep_alive.maximum", &["unlimited", "1s", "65535s"], &["0s", "65536s", "1500ms", "off"]),
        ("expiry.tick", &["10ms", "10s"], &["9ms", "10001ms", "0s"]),
        ("redelivery.backoff", &["1", "1.0", "10.0"], &["0.99", "10.01", "NaN", "inf", "two"]),
        ("redelivery.jitter", &["0", "1.0"], &["-0.1", "1.1"]),
        ("redelivery.attempts", &["unlimited", "1", "65535"], &["0", "65536", "1000000"]),
        ("redelivery.interval", &["off", "1ms", "5m"], &["0s", "25h"]),
        ("redelivery.ack_timeout", &["off", "1h"], &["0s", "25h"]),
        ("keep_alive.allow_never", &["true"], &["yes", "1", "True"]),
        ("log.level", &["trace", "info,homing=debug"], &["inof", "", "info,homing=lots"]),
        ("redelivery.on_exhausted", &["keep", "dead_letter"], &["drop"]),
        ("redelivery.negative_ack", &["true"], &["on"]),
        (
            "redelivery.dead_letters",
            &["", "expired", "expired, queue_refused"],
            &["exhausted", "all", "expired,expired"],
        ),
        ("store.durability", &["none", "os", "interval", "commit"], &["fsync", "off"]),
        ("store.path", &["auto", "/var/lib/homing"], &["", "a\0b"]),
        ("store.sync_interval", &["10ms", "1h"], &["9ms", "0s", "off"]),
        ("store.size_limit", &["unlimited", "64 MiB"], &["0 B", "63 MiB", "1"]),
    ];
    for (key, allowed, refused) in cases {
        for value in allowed {
            let loaded = Sources::new().assignment(&format!("{key}={value}")).load();
            assert!(loaded.is_ok(), "{key}={value}: {loaded:?}");
        }
        for value in refused {
            let problem = only_problem(Sources::new().assignment(&format!("{key}={value}")));
            assert!(problem.starts_with(&format!("--set: {key} = ")), "{problem}");
            assert!(problem.contains("is not allowed; must be "), "{problem}");
        }
    }
}

fn rules(test: &str, rules: &str) -> Sources {
    Sources::new().file(file(test, rules))
}

#[test]
fn rules_are_read_in_their_order_with_what_each_sets() {
    let text = "[[redelivery.rules]]\nclient_id = \"pump-*\"\ninterval = \"5s\"\nattempts = 7\n[[redelivery.rules]]\n\
                topic = \"a/#\"\non_exhausted = \"dead_letter\"\ndead_letters = [\"expired\"]\nack_timeout = \"off\"\n\
                client_may_override = true\n";
    let loaded = rules("rules", text).load().expect("valid");
    let [first, second] = &loaded.config.redelivery.rules[..] else { panic!("two rules") };
    assert!(first.client_id.as_ref().is_some_and(|glob| glob.matches("pump-9")));
    assert_eq!(
        (first.interval, first.attempts, first.backoff),
        (Some(Duration::from_secs(5)), Some(7), None)
    );
    assert_eq!((second.topic.as_deref(), second.ack_timeout), (Some("a/#"), Some(Duration::ZERO)));
    assert_eq!((second.on_exhausted, second.client_may_override), (Some(OnExhausted::DeadLetter), true));
    assert_eq!(second.dead_letters, Some([DropReason::Expired].into_iter().collect()));
    let changed: Vec<&str> = loaded.changed.iter().map(|setting| setting.key.as_str()).collect();
    assert_eq!(changed, ["redelivery.rules"]);
}

#[test]
fn a_mistake_in_a_rule_names_the_rule_and_the_field() {
    let rule = "[[redelivery.rules]]\nattempts = 1\n[[redelivery.rules]]\n";
    for (fields, problem_text) in [
        ("interval = 5\n", "rule 2: interval = 5 is not allowed; must be a duration with a unit"),
        ("attempts = 1\nclient_id = \"[a\"\n", "rule 2: client_id = \"[a\" is not allowed; must be a glob"),
        ("attempts = 1\nuser_name = 7\n", "rule 2: user_name = 7 is not allowed; must be a glob"),
        ("attempts = 1\ntopic = \"a#\"\n", "rule 2: topic = \"a#\" is not allowed; must be a topic filter"),
        ("attempts = 1\ntopic = \"$share/g/a\"\n", "rule 2: topic = \"$share/g/a\" is not allowed"),
        (
            "on_exhausted = \"drop\"\n",
            "rule 2: on_exhausted = \"drop\" is not allowed; must be \"disconnect\" or",
        ),
        (
            "dead_letters = [\"exhausted\"]\n",
            "rule 2: dead_letters = [\"exhausted\"] is not allowed; must be a list",
        ),
        (
            "topic = \"a\"\nmin_requested = \"1s\"\n",
            "rule 2: min_requested = \"1s\" is not allowed; must be in a rule",
        ),
        (
            "interval = \"1s\"\nclient_may_override = true\n",
            "rule 2: client_may_override = true is not allowed",
        ),
        (
            "interval = \"9s\"\nmax_backoff = \"8s\"\n",
            "rule 2: max_backoff = \"8s\" is not allowed; must be at least",
        ),
        ("topic = \"a\"\n", "rule 2 = {...} is not allowed; must be one that sets something"),
    ] {
        let problem = only_problem(rules("rule-mistake", &format!("{rule}{fields}")));
        assert!(problem.contains(&format!("redelivery.rules, {problem_text}")), "{fields}: {problem}");
    }
    let unknown = only_problem(rules("rule-unknown", &format!("{rule}attempts = 2\nclient = \"a\"\n")));
    assert!(
        unknown.contains("unknown key redelivery.rules, rule 2: client; did you mean client_id?"),
        "{unknown}"
    );
    let flag = only_problem(Sources::new().assignment("redelivery.rules=x"));
    assert!(flag.contains("must be tables in a file, each [[redelivery.rules]]"), "{flag}");
    let many = "[[redelivery.rules]]\nattempts = 1\n".repeat(65);
    assert!(only_problem(rules("rule-many", &many)).contains("64 rules at most; here are 65"));
}

#[test]
fn a_contradiction_names_both_keys_and_where_each_came_from() {
    let path = file("contradiction", "[redelivery]\nmax_backoff = \"10s\"\n");
    assert_eq!(
        only_problem(Sources::new().file(&path)),
        format!(
            "redelivery.max_backoff = \"10s\" ({}) contradicts redelivery.interval = \"15s\" (built-in default); the \
             longest spacing must not be below the first",
            path.display()
        )
    );
    let never = only_problem(Sources::new().assignment("keep_alive.allow_never=false"));
    assert!(
        never.starts_with(
            "keep_alive.allow_never = false (--set) contradicts keep_alive.maximum = \"unlimited\""
        ),
        "{never}"
    );
    let memory = only_problem(Sources::new().assignment("limits.memory=512 KiB"));
    assert!(
        memory.starts_with("limits.memory = \"512 KiB\" (--set) contradicts limits.packet_size"),
        "{memory}"
    );
    assert!(Sources::new().file(&path).assignment("redelivery.interval=5s").load().is_ok());
}

#[test]
fn every_problem_is_reported_at_once() {
    let path = file("many", "[limits]\nin_flight = 0\n[speed]\nludicrous = true\n");
    let sources = Sources::new()
        .file(path)
        .environment(variables(&[("HOMING_SYS__PUBLISH_INTERVAL", "10")]))
        .assignment("log.level")
        .assignment("log.format=xml");
    assert_eq!(problems(sources).len(), 5);
}

#[test]
fn a_mistake_that_a_higher_layer_overrides_is_still_reported() {
    let path = file("overridden", "[limits]\nin_flight = 0\n");
    let problem = only_problem(Sources::new().file(path).assignment("limits.in_flight=5"));
    assert!(problem.contains("limits.in_flight = 0"), "{problem}");
}

#[test]
fn a_missing_file_and_a_file_that_is_not_toml_are_named() {
    let missing = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("no-such.toml");
    let problem = only_problem(Sources::new().file(&missing));
    assert!(
        problem.starts_with(&format!("{}: cannot be read: No such file", missing.display())),
        "{problem}"
    );
    let broken = file("broken", "[limits]\nin_flight = = 5\n");
    let problem = only_problem(Sources::new().file(&broken));
    let place = format!("{}: not valid TOML: line 2, column ", broken.display());
    assert!(problem.starts_with(&place) && problem.contains("expected"), "{problem}");
    assert!(problem.lines().count() == 1 && !problem.contains("in_flight"), "{problem}");
}

#[cfg(unix)]
#[test]
fn a_variable_that_is_not_unicode_is_named() {
    use std::os::unix::ffi::OsStringExt;
    let value = OsString::from_vec(vec![0xFF]);
    let problem = only_problem(Sources::new().environment([("HOMING_LOG__LEVEL".into(), value)]));
    assert!(
        problem.starts_with("environment variable HOMING_LOG__LEVEL: its value is not UTF-8"),
        "{problem}"
    );
}

/// Every key by its dotted path, as the shipped file has them.
fn shipped_keys() -> Vec<String> {
    let text = homing::config::render::file();
    let mut keys = vec!["redelivery.rules".to_owned()];
    let mut section = "";
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']');
        } else if let Some((name, _)) = line.split_once(" = ").filter(|_| !line.starts_with('#')) {
            keys.push(format!("{section}.{name}"));
        }
    }
    keys
}

/// Tokens of `text` that look like a key of one of our sections, or like the variable of one.
fn named_keys<'a>(text: &'a str, keys: &'a [String]) -> impl Iterator<Item = String> + 'a {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    let tokens = text.split(move |c| !is_word(c)).map(|token| token.trim_matches('.'));
    tokens.filter_map(|token| {
        let path = match token.strip_prefix("HOMING_").and_then(|variable| variable.split_once("__")) {
            Some((section, key)) => format!("{section}.{key}").to_ascii_lowercase(),
            None => token.to_owned(),
        };
        let (section, name) = path.split_once('.')?;
        let is_file = ["rs", "toml", "md", "db", "key"].contains(&name);
        let is_section = keys.iter().any(|key| key.starts_with(&format!("{section}.")));
        (is_section && !is_file && !name.contains('.') && !name.is_empty()).then_some(path)
    })
}

#[test]
fn every_key_that_documents_scripts_and_messages_name_exists() {
    let keys = shipped_keys();
    let old = "HOMING_SYS__INTERVAL or `sys.interval`, see store.rs and config.toml";
    assert_eq!(named_keys(old, &keys).collect::<Vec<_>>(), ["sys.interval", "sys.interval"]);
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let mut files: Vec<PathBuf> =
        ["README.md", "CHANGELOG.md", "Dockerfile", "tests/image", "tests/clients/run", "benches/README.md"]
            .map(|name| root.join(name))
            .into();
    let mut folders = vec![root.join("docs"), root.join("src"), root.join("crates/core/src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            // Pictures, and frames of the log that tests read.
            let is_binary =
                path.extension().is_some_and(|extension| extension == "png" || extension == "frames");
            match path.is_dir() {
                true => folders.push(path),
                false if is_binary => {}
                false => files.push(path),
            }
        }
    }
    // Codes of log events look like keys: `store.full`.
    let events = std::fs::read_to_string(root.join("docs/log-events.md")).expect("the list of events");
    let mut named = 0;
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a text");
        let is_code = file.extension().is_some_and(|extension| extension == "rs");
        // Of the code, what stands in quotation marks or in backticks.
        let quoted = text.lines().flat_map(|line| line.split(['"', '`']).skip(1).step_by(2));
        let texts: Vec<&str> = if is_code { quoted.collect() } else { vec![&text] };
        for key in texts.iter().flat_map(|text| named_keys(text, &keys)) {
            if events.contains(&format!("`{key}`")) {
                continue;
            }
            named += 1;
            assert!(keys.contains(&key), "{} names {key}, which is no key", file.display());
        }
    }
    assert!(named > 100, "{named} names of keys are found");
}
