//! The architecture as a test: a module imports only from those before it, and the pure modules know
//! no clock, no chance, no async, no logging and no actor.
//!
//! It reads the sources as text, as a reader would: comments and strings are set aside, and every
//! path that begins at the crate's root is a dependency. Test modules at the end of a file are the
//! file's own business.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The modules from the ground up: each imports only from those before it, and from itself. `true`:
/// the module is pure, and part of the package `homing-core`.
const ORDER: [(&str, bool); 49] = [
    ("escape", true),
    ("named_enum", true),
    ("time", true),
    ("mqtt", true),
    ("bridge", true),
    ("sink", true),
    ("access", true),
    ("ownership", true),
    ("persistence", true),
    ("session", true),
    ("routing", true),
    ("expiry", true),
    ("slots", true),
    ("login", true),
    ("events", true),
    ("peers", true),
    ("durability", true),
    ("shared", true),
    ("letters", true),
    ("shard", true),
    ("operators", true),
    ("schema", true),
    ("framed", false),
    ("clock", false),
    ("scheduling", false),
    ("file_thread", false),
    ("host", false),
    ("pulse", false),
    ("config", false),
    ("log", false),
    ("service", false),
    ("auth", false),
    ("cluster::engine", false),
    ("store", false),
    ("net", false),
    ("http_client", false),
    ("expiry::message", false),
    ("expiry::actor", false),
    ("broker", false),
    ("cluster", false),
    ("finding", false),
    ("admin", false),
    ("otlp", false),
    ("health", false),
    ("doctor", false),
    ("import", false),
    ("load", false),
    ("program", false),
    ("main", false),
];

/// The names that a pure module must not use, each with the reason.
const IMPURE: [(&str, &str); 8] = [
    ("actix", "no actors"),
    ("tokio", "no runtime"),
    ("tokio_util", "no runtime"),
    ("async", "no async"),
    ("tracing", "no logging"),
    ("std::time::Instant", "time is an argument"),
    ("SystemTime", "time is an argument"),
    ("rand", "no chance"),
];

struct Source {
    /// Path below the folder of sources, with `/`.
    path: String,
    /// Its module path, `mqtt::codec::tokio`.
    module: String,
    has_document: bool,
    text: String,
}

impl Source {
    /// Returns its place in [`ORDER`].
    fn place(&self) -> usize {
        place(&self.module).unwrap_or_else(|| panic!("{}: its module has no place in ORDER", self.path))
    }

    fn is_pure(&self) -> bool {
        ORDER[self.place()].1
    }
}

/// Returns the place in [`ORDER`] of a module path, by its longest known prefix.
fn place(module: &str) -> Option<usize> {
    let within = |name: &str| module == name || module.starts_with(&format!("{name}::"));
    let known = ORDER.iter().enumerate().filter(|(_, (name, _))| within(name));
    known.max_by_key(|(_, (name, _))| name.len()).map(|(place, _)| place)
}

/// Returns the folders of sources of the packages, each with the module that its files belong to:
/// the tools are packages of their own, behind a module of one file.
fn roots() -> [(PathBuf, &'static str); 4] {
    [("crates/core/src", ""), ("crates/import/src", "import/"), ("crates/load/src", "load/"), ("src", "")]
        .map(|(folder, module)| (Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), module))
}

fn sources() -> Vec<Source> {
    let mut sources = Vec::new();
    for (root, prefix) in roots() {
        let mut files = Vec::new();
        collect(&root, &mut files);
        files.sort();
        for file in files {
            let path = file.strip_prefix(&root).expect("below the root").to_string_lossy();
            let path = format!("{prefix}{path}");
            let module = path.trim_end_matches(".rs").trim_end_matches("/mod").replace('/', "::");
            let text = fs::read_to_string(&file).expect("a source file");
            sources.push(Source { path, module, has_document: text.starts_with("//!"), text: code(&text) });
        }
    }
    assert!(sources.len() > 10, "the sources are found");
    sources
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// Returns the text without comments and strings. Test modules are part of it: they obey the same
/// order.
fn code(text: &str) -> String {
    let mut code = String::new();
    for line in text.lines() {
        let mut in_string = false;
        let mut before = ' ';
        for (at, c) in line.char_indices() {
            let is_quote = c == '"' && before != '\\' && before != '\'';
            before = c;
            if is_quote {
                in_string = !in_string;
            } else if !in_string {
                if line[at..].starts_with("//") {
                    break;
                }
                code.push(c);
            }
        }
        code.push('\n');
    }
    code
}

/// Module paths of the crate that a file names: `crate::a::b`, also inside braces: `use crate::{a,
/// b::c}`.
fn dependencies(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, _) in text.match_indices("crate::").chain(text.match_indices("homing::")) {
        let whole_word = text[..at].chars().next_back().is_none_or(|c| !is_word(c));
        let path = &text[at..];
        let path = &path[path.find("::").expect("just matched") + 2..];
        if !whole_word {
            continue;
        }
        match path.strip_prefix('{') {
            Some(group) => found.extend(members(group)),
            None => {
                found.insert(leading_path(path));
            }
        }
    }
    found.remove("");
    found
}

/// The paths of a `use` group up to its closing brace; inner groups add nothing to what their
/// prefix says.
fn members(group: &str) -> Vec<String> {
    let (mut depth, mut members, mut start) = (0_usize, Vec::new(), 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                members.push(leading_path(group[start..at].trim_start()));
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                members.push(leading_path(group[start..at].trim_start()));
                start = at + 1;
            }
            _ => {}
        }
    }
    members
}

fn leading_path(text: &str) -> String {
    let end = text.find(|c: char| !is_word(c) && c != ':').unwrap_or(text.len());
    text[..end].trim_end_matches(':').to_owned()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns true if `name` stands in the text as a word or path segment of its own. A declaration of
/// a module of ours with this name does not count.
fn names(text: &str, name: &str) -> bool {
    text.match_indices(name).any(|(at, _)| {
        let before = text[..at].chars().next_back().is_none_or(|c| !is_word(c));
        let after = text[at + name.len()..].chars().next().is_none_or(|c| !is_word(c));
        before && after && !text[..at].ends_with("mod ")
    })
}

#[test]
fn modules_import_only_from_those_before_them() {
    let mut breaches = Vec::new();
    // The tools see `homing-core` alone: Cargo is the wall, and `crate` is not this package there.
    let is_tool = |source: &Source| source.path.starts_with("import/") || source.path.starts_with("load/");
    for source in sources().iter().filter(|source| source.module != "lib" && !is_tool(source)) {
        let own = source.place();
        for dependency in dependencies(&source.text) {
            // Items of the crate's root have no place in the order.
            if place(&dependency).is_some_and(|place| place > own) {
                breaches.push(format!("{} ({}) imports {dependency}", source.path, ORDER[own].0));
            }
        }
    }
    assert!(breaches.is_empty(), "{}", breaches.join("\n"));
}

#[test]
fn the_table_of_modules_is_the_order() {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/architecture.md");
    let document = fs::read_to_string(document).expect("the document");
    let (_, section) = document.split_once("## The module order").expect("the section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let cells =
        section.lines().filter(|line| line.starts_with("| `")).filter_map(|line| line.split('|').nth(1));
    let listed: Vec<&str> = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    assert_eq!(listed, ORDER.map(|(module, _)| module));
}

/// Cargo is the wall around the core: what its manifest does not name, it cannot call.
#[test]
fn the_core_depends_on_nothing_that_does_io() {
    const PURE: [&str; 15] = [
        "arc-swap",
        "base64",
        "bytes",
        "foldhash",
        "globset",
        "hashbrown",
        "humantime",
        "ipnet",
        "serde",
        "serde_json",
        "thiserror",
        "triomphe",
        "utoipa",
        "zeroize",
        "proptest",
    ];
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/core/Cargo.toml");
    let manifest = fs::read_to_string(manifest).expect("the manifest of the core");
    let mut in_dependencies = false;
    let mut named = BTreeSet::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            in_dependencies = line.contains("dependencies");
        } else if let Some((name, _)) =
            line.split_once(['.', ' ', '=']).filter(|_| in_dependencies && !line.starts_with('#'))
        {
            named.insert(name.to_owned());
        }
    }
    assert_eq!(named, PURE.map(str::to_owned).into(), "each with a reason why it does no I/O");
    for source in sources().iter().filter(|source| source.module != "lib") {
        let in_core =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/core/src").join(&source.path).exists();
        assert!(!in_core || source.is_pure(), "{} is in the core", source.path);
    }
}

#[test]
fn pure_modules_are_pure() {
    let mut breaches = Vec::new();
    for source in sources().iter().filter(|source| source.module != "lib" && source.is_pure()) {
        for (name, why) in IMPURE {
            if names(&source.text, name) {
                breaches.push(format!("{} names {name}: {why}", source.path));
            }
        }
    }
    assert!(breaches.is_empty(), "{}", breaches.join("\n"));
}

#[test]
fn one_file_reads_the_clock() {
    let mut readers = Vec::new();
    for source in sources() {
        let reads =
            ["Instant::now", "SystemTime::now", ".elapsed("].iter().any(|call| source.text.contains(call));
        if reads && !source.path.starts_with("load/") {
            readers.push(source.path);
        }
    }
    // The load harness measures a broker from outside, with a clock of its own.
    assert_eq!(readers, ["clock.rs"]);
}

/// A shard's thread has no timer: tokio's wheel, once it is there, reads the clock and is asked for
/// due timers in every turn. Housekeeping is a deadline of the expiry actor.
#[test]
fn shard_threads_have_no_timers() {
    // These run on other threads: the process's first, the expiry actor's, the main thread, the
    // handshake threads, those of the HTTP interface, of the HTTP service, of the bridges and sinks,
    // of the engine of a cluster and of the export, the load tester's and that of the check of health.
    // The main thread and that of the HTTP interface wait for files, and the latter for the store.
    const OTHER_THREADS: [&str; 21] = [
        "admin/",
        "expiry/actor.rs",
        "expiry/actor/",
        "broker/supervisor.rs",
        "broker/bridges/",
        "broker/sinks/",
        "broker/connect_limits.rs",
        "broker/observer.rs",
        "broker/reload.rs",
        "broker/standby.rs",
        "broker/handshake/",
        "broker/authenticator/http_service.rs",
        "cluster/nats/",
        "file_thread.rs",
        "health/",
        "host.rs",
        "http_client.rs",
        "load/",
        "otlp/",
        "program/",
        "store/view.rs",
    ];
    const TIMERS: [&str; 6] =
        ["tokio::time", "actix_rt::time", "actix::clock", "run_later", "run_interval", "notify_later"];
    let mut breaches = Vec::new();
    for source in sources() {
        if OTHER_THREADS.iter().any(|other| source.path.starts_with(other)) {
            continue;
        }
        for timer in TIMERS.iter().filter(|timer| source.text.contains(**timer)) {
            breaches.push(format!("{} names {timer}", source.path));
        }
    }
    assert!(breaches.is_empty(), "{}", breaches.join("\n"));
}

/// A reader sees a room at one glance.
#[test]
fn no_room_of_the_shard_has_more_than_25_entries() {
    fn list(folder: &Path, large: &mut Vec<String>) {
        let entries: Vec<PathBuf> =
            fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
        if entries.len() > 25 {
            large.push(format!("{}: {}", folder.display(), entries.len()));
        }
        entries.iter().filter(|path| path.is_dir()).for_each(|path| list(path, large));
    }
    let mut large = Vec::new();
    list(&roots()[0].0.join("shard"), &mut large);
    assert!(large.is_empty(), "{}", large.join("\n"));
}

/// A silent `else { return };` does not tell an ordinary case from one that cannot happen. What a
/// packet needs is looked up once (`Client`), and each return that is left is an ordinary case.
/// Counted are the lines of the shard with `else { return };`, tests included.
#[test]
fn silent_returns_of_the_shard_stay_few() {
    let silent =
        |source: &Source| source.text.lines().filter(|line| line.contains("else { return };")).count();
    let count: usize = sources().iter().filter(|s| s.module.starts_with("shard")).map(silent).sum();
    assert!(count <= 60, "{count} silent returns");
}

#[test]
fn every_module_says_what_it_is() {
    let mute: Vec<String> =
        sources().into_iter().filter(|source| !source.has_document).map(|source| source.path).collect();
    assert!(mute.is_empty(), "no module documentation: {mute:?}");
}

/// The check itself, on sources that break its rules.
#[test]
fn breaches_are_seen() {
    let text = "use crate::broker::Shard;\nuse crate::{clock, routing::{message, shared}, time::Instant};\n";
    let expected = ["broker::Shard", "clock", "routing", "time::Instant"].map(str::to_owned);
    assert_eq!(dependencies(text), BTreeSet::from(expected));
    assert_eq!(
        code("let a = \"crate::broker\"; // crate::net\nb #[cfg(test)] mod tests { crate::admin }"),
        "let a = ; \nb #[cfg(test)] mod tests { crate::admin }\n"
    );
    assert!(names("use rand::Rng;", "rand") && !names("let operand = brand;", "rand"));
    assert!(names("use tokio::net;", "tokio") && !names("pub mod tokio;", "tokio"));
    assert!(place("expiry::queue") < place("shard::turn") && place("expiry::actor") > place("config"));
    assert_eq!(place("unknown"), None);
}

/// Finding 23: with a known seed, any number of strings that collide can be written down at once.
#[test]
fn no_table_that_clients_strings_go_into_has_a_known_seed() {
    // Their keys are numbers that the broker gives; and `shard_of`, which has to find the same
    // shard in every run.
    const FIXED: [&str; 8] = [
        "store/commit_queue.rs",
        "session/redelivery_rules.rs",
        "durability/gates.rs",
        "shard/clients/connect.rs",
        "shard/recovery/placement.rs",
        "peers/barrier.rs",
        "routing/router.rs",
        "shard/recovery/mod.rs",
    ];
    for Source { path, text, .. } in sources() {
        let allowed = FIXED.contains(&path.as_str()) || path == "store/sqlite/recover.rs";
        assert!(allowed || !text.contains("FixedState"), "{path} has a table with a known seed");
        if text.contains("FixedState") && path != "shard/clients/connect.rs" {
            let strings = text.lines().find(|l| l.contains("FixedState") && l.contains("str>,"));
            assert_eq!(strings, None, "{path}");
        }
    }
}

/// Returns the codes of the log lines in a source, and the lines without a code. The tests of a file
/// stand at its end.
fn log_codes(text: &str) -> (Vec<String>, Vec<String>) {
    let text = ["mod", "pub(crate) mod"].iter().fold(text, |text, module| {
        text.split(&format!("\n#[cfg(test)]\n{module} tests {{")).next().unwrap_or_default()
    });
    let (mut codes, mut without) = (Vec::new(), Vec::new());
    for name in ["error!(", "warn!(", "info!(", "debug!(", "trace!("] {
        for (at, _) in text.match_indices(name) {
            if text[..at].chars().next_back().is_some_and(is_word) {
                continue;
            }
            let mut rest = text[at + name.len()..].trim_start();
            if let Some(target) = rest.strip_prefix("target:") {
                rest = target.split_once(',').map_or("", |(_, rest)| rest).trim_start();
            }
            let code = rest.strip_prefix("event = \"").and_then(|rest| rest.split_once('"'));
            match code {
                Some((code, _)) => codes.push(code.to_owned()),
                None => without.push(format!("{name}{}", rest.lines().next().unwrap_or_default())),
            }
        }
    }
    (codes, without)
}

/// A line of the log begins with its code: `warn!(event = "store.full", ...)`. Operators alert on
/// codes, so docs/log-events.md lists them. The load tester is no broker and writes no log.
#[test]
fn every_log_line_has_a_code_that_the_documents_list() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let document = fs::read_to_string(root.join("docs/log-events.md")).expect("the list of events");
    let rows = document.lines().filter(|line| line.starts_with("| `") && line.matches('|').count() == 4);
    let first = rows.filter_map(|line| line.split('|').nth(1));
    let listed: BTreeSet<String> = first
        .flat_map(|cell| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>())
        .filter(|code| code != "library")
        .collect();
    let (mut written, mut breaches) = (BTreeSet::new(), Vec::new());
    let mut files = Vec::new();
    for (root, _) in roots().iter().filter(|(_, module)| *module != "load/") {
        collect(root, &mut files);
    }
    for file in &files {
        let (codes, without) = log_codes(&fs::read_to_string(file).expect("a source file"));
        written.extend(codes);
        breaches.extend(
            without
                .into_iter()
                .map(|line| format!("{}: {line}: begin the line with event = \"...\"", file.display())),
        );
    }
    breaches.extend(written.difference(&listed).map(|code| format!("docs/log-events.md lacks {code}")));
    breaches.extend(
        listed.difference(&written).map(|code| format!("docs/log-events.md has {code}, the source has not")),
    );
    assert!(breaches.is_empty(), "{}", breaches.join("\n"));
    let parts = |code: &&String| {
        code.split_once('.').is_some_and(|(area, what)| {
            [area, what]
                .iter()
                .all(|part| !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
        })
    };
    assert!(written.iter().all(|code| parts(&code)), "{written:?}");
}
