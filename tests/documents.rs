//! The documents as a test: their links lead somewhere, and the files, functions and topics that
//! they name exist. The functions of a walk stand in the files that the walk names.
//!
//! The tests of the configuration check the names of keys in the same documents. A unit test of
//! `src/broker/sys.rs` checks the `$SYS` topics, and one of `src/broker/events` the events.

use homing::ownership::{EXIT_LOST, EXIT_REFUSED};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Documents outside `docs`.
const OTHERS: [&str; 8] = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "benches/README.md",
    "tests/README.md",
    "tests/conformance/README.md",
    "tests/fuzz/README.md",
];

/// Folders whose files a document names by their path from the root.
const FOLDERS: [&str; 7] = ["crates/", "src/", "tests/", "docs/", "benches/", "examples/", "config/"];

/// Returns the root of the repository.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns each document with its path from the root.
fn documents() -> Vec<(PathBuf, String)> {
    let mut paths: Vec<PathBuf> = OTHERS.map(|path| root().join(path)).into();
    for entry in fs::read_dir(root().join("docs")).expect("docs is a folder") {
        let path = entry.expect("an entry of docs").path();
        // Beside the documents stand their pictures.
        if path.is_file() {
            paths.push(path);
        }
    }
    assert!(paths.len() > OTHERS.len() + 5, "the documents are found");
    paths.into_iter().map(|path| (path.clone(), fs::read_to_string(path).expect("a document"))).collect()
}

/// Returns the text without its fenced code blocks.
fn prose(text: &str) -> String {
    text.split("\n```").step_by(2).collect::<Vec<_>>().join("\n")
}

/// Returns what stands between backticks in one line.
fn code_spans(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2))
}

/// Returns the targets of Markdown links: `[text](target)`.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target)
}

/// Returns the anchor that a heading gets: lower case, words joined by `-`, other signs left out.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// Returns the anchors of a document.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings.map(|line| anchor(line.trim_start_matches('#').trim())).collect()
}

/// Returns the text of every source file.
fn sources(folder: &Path) -> String {
    let mut all = String::new();
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            all += &sources(&path);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            all += &fs::read_to_string(path).expect("a source file");
        }
    }
    all
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let mut broken = Vec::new();
    for (path, text) in documents() {
        let folder = path.parent().expect("a document is in a folder");
        for target in links(&prose(&text)).filter(|target| !target.starts_with("https://")) {
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let file = if file.is_empty() { path.clone() } else { folder.join(file) };
            let leads = file.exists()
                && (heading.is_empty()
                    || fs::read_to_string(&file).is_ok_and(|text| anchors(&text).contains(heading)));
            if !leads {
                broken.push(format!("{} links to {target}", path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn every_file_that_a_document_names_exists() {
    let mut missing = Vec::new();
    for (path, text) in documents().iter().filter(|(path, _)| !path.ends_with("CHANGELOG.md")) {
        for name in code_spans(&prose(text)) {
            let is_path = FOLDERS.iter().any(|folder| name.starts_with(folder));
            let name = name.split(' ').next().unwrap_or(name);
            if is_path && !name.contains('*') && !root().join(name).exists() {
                missing.push(format!("{} names {name}", path.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn every_function_that_a_document_names_exists() {
    let sources = sources(&root().join("src")) + &sources(&root().join("crates"));
    let mut missing = Vec::new();
    for (path, text) in documents() {
        for span in code_spans(&prose(&text)) {
            // `Type::name()` and `name()` name a function; the type is checked, too.
            let Some(called) = span.strip_suffix("()") else { continue };
            let (owner, name) = called.rsplit_once("::").unwrap_or(("", called));
            let is_owner = ["struct ", "enum ", "trait "].iter().any(|kind| {
                let (head, other) = (format!("{kind}{owner}"), |c: char| !c.is_alphanumeric() && c != '_');
                sources.match_indices(&head).any(|(at, _)| sources[at + head.len()..].starts_with(other))
            });
            let defined = [format!("fn {name}("), format!("fn {name}<")];
            let is_function = defined.iter().any(|head| sources.contains(head));
            if !is_function || !(owner.is_empty() || is_owner) {
                missing.push(format!("{} names {span}", path.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// A line of a list in `walks.md` ends with the file of its function. A line that begins with "the"
/// names something else there.
#[test]
fn every_function_of_a_walk_stands_in_its_file() {
    let text = fs::read_to_string(root().join("docs/walks.md")).expect("the walks");
    let lists = text.split("\n```").skip(1).step_by(2).flat_map(str::lines);
    let steps: Vec<_> = lists.filter(|l| l.ends_with(".rs")).filter_map(|l| l.rsplit_once("  ")).collect();
    assert!(steps.len() > 100, "the lists are found");
    let is_wrong = |(step, file): &(&str, &str)| {
        let called = step.split_whitespace().next().unwrap_or_default().trim_end_matches([':', ',']);
        let name = called.rsplit("::").next().unwrap_or_default();
        let read = |folder| fs::read_to_string(root().join(folder).join(file)).ok();
        let source = read("crates/core/src").or_else(|| read("src")).unwrap_or_default();
        let heads = [format!("fn {name}("), format!("fn {name}<")];
        source.is_empty() || called != "the" && !heads.iter().any(|head| source.contains(head))
    };
    let wrong: Vec<_> = steps.into_iter().filter(is_wrong).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A page of everything is read by nobody. The generated page of the configuration is a reference.
#[test]
fn no_page_is_longer_than_500_lines_and_the_readme_has_140() {
    let too_long = |(path, text): &(PathBuf, String)| match path.file_name().and_then(|name| name.to_str()) {
        Some("configuration.md" | "CHANGELOG.md") => false,
        Some("README.md") => text.lines().count() > 140,
        _ => text.lines().count() > 500,
    };
    let long: Vec<_> = documents().into_iter().filter(too_long).map(|(path, _)| path).collect();
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn every_alert_has_a_first_step() {
    let rules = fs::read_to_string(root().join("config/prometheus/homing-rules.yml")).expect("the rules");
    let page = fs::read_to_string(root().join("docs/monitoring.md")).expect("the page");
    let alerts: Vec<_> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    let rows: Vec<_> =
        page.lines().filter_map(|line| line.strip_prefix("| `Homing")?.split('`').next()).collect();
    assert!(!alerts.is_empty());
    assert_eq!(alerts, rows.iter().map(|row| format!("Homing{row}")).collect::<Vec<_>>());
}

/// Returns the value of a setting in the packaged unit.
fn of_unit(setting: &str) -> Option<String> {
    let unit = fs::read_to_string(root().join("config/systemd/homing.service")).expect("the unit");
    let mut lines = unit.lines();
    lines.find_map(|line| line.strip_prefix(setting)?.strip_prefix('=').map(str::to_owned))
}

#[test]
fn the_unit_starts_a_node_again_that_lost_its_cell_and_none_that_was_refused() {
    // A lost node comes back as a standby, soon and whatever number of times.
    assert_eq!(of_unit("Restart").as_deref(), Some("on-failure"));
    assert_eq!(of_unit("RestartSec").as_deref(), Some("1s"));
    assert_eq!(of_unit("StartLimitIntervalSec").as_deref(), Some("0"));
    let kept_away = of_unit("RestartPreventExitStatus").expect("the setting");
    assert_eq!(kept_away, EXIT_REFUSED.to_string());
    // Neither a clean end nor kept away: so on-failure starts it again.
    assert!(EXIT_LOST != 0 && EXIT_LOST != EXIT_REFUSED && of_unit("SuccessExitStatus").is_none());
    let page = fs::read_to_string(root().join("docs/cluster.md")).expect("the page");
    for text in [format!("(exit code {EXIT_LOST})"), format!("Exit code {EXIT_REFUSED}, a refusal")] {
        assert!(page.contains(&text), "docs/cluster.md says: {text}");
    }
}

/// The places that count a drop, with their number in each file. Each also reports the drop or the
/// refusal, but for retained messages that expire: `docs/dead-letters.md` says that each drop is
/// logged. A new place must report what it counts, or that page must name it.
const COUNTED: [(&str, usize); 6] = [
    ("clients/will_publication.rs", 2),
    ("core.rs", 2),
    // The caller gets the reason.
    ("delivery/operator_publish.rs", 1),
    ("delivery/publish.rs", 1),
    ("inputs.rs", 1),
    ("subscriptions/routes.rs", 1),
];

#[test]
fn every_place_that_counts_a_drop_is_known_to_report_it() {
    let shard = root().join("crates/core/src/shard");
    let places = |text: &str| text.matches("drops.count(").count() + text.matches("drops.add(").count();
    let known: usize = COUNTED.iter().map(|(_, known)| known).sum();
    assert_eq!(places(&sources(&shard)), known, "a place that counts drops is new or gone");
    for (file, known) in COUNTED {
        let text = fs::read_to_string(shard.join(file)).expect("a source file");
        assert_eq!(places(&text), known, "{file}");
    }
}

/// The checks themselves, on texts that break their rules.
#[test]
fn breaches_are_seen() {
    assert_eq!(links("see [a](b.md) and [c](d.md#e)").collect::<Vec<_>>(), ["b.md", "d.md#e"]);
    assert_eq!(code_spans("`a` b `c()`").collect::<Vec<_>>(), ["a", "c()"]);
    assert_eq!(anchor("`limits.memory`, and why"), "limitsmemory-and-why");
    assert_eq!(prose("a\n```sh\nb\n```\nc"), "a\n\nc");
}
