//! Pairs statements and tests both ways, by the ids beside each test, and writes `COVERAGE.md` from
//! the pairing.
//!
//! `not_tested.csv` names every statement without a test and says why: those that the lists mark as
//! not testable, and those that do not apply to this broker (`not applicable: ...`).

use crate::SUITES;
use crate::harness::Case;
use crate::support::V311;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// The tests of one version and the statements they are for.
pub struct Suite {
    pub title: &'static str,
    /// As in `not_tested.csv`.
    pub version: &'static str,
    /// The list, as CSV.
    pub statements: &'static str,
    pub cases: &'static [&'static [Case]],
}

struct Statement {
    id: &'static str,
    role: &'static str,
    testable: bool,
    requirement: String,
}

const NOT_APPLICABLE: &str = "not applicable: ";

impl Suite {
    /// In the order of the list.
    fn statements(&self) -> Vec<Statement> {
        let mut rows = self.statements.lines();
        assert_eq!(rows.next(), Some("id,role,testable,topic,requirement"), "{}", self.title);
        let statement = |row: &'static str| {
            let mut cells = row.splitn(5, ',');
            let mut cell = || cells.next().expect("five cells in a row");
            let (id, role, testable, _topic) = (cell(), cell(), cell(), cell());
            Statement { id, role, testable: testable == "yes", requirement: unquoted(cell()) }
        };
        rows.map(statement).collect()
    }

    /// Why statements have no test, by id.
    fn not_tested(&self) -> BTreeMap<&'static str, String> {
        let rows = include_str!("not_tested.csv").lines().skip(1).map(|row| {
            let mut cells = row.splitn(3, ',');
            let mut cell = || cells.next().expect("version, id and reason in a row");
            (cell(), cell(), unquoted(cell()))
        });
        rows.filter(|row| row.0 == self.version).map(|(_, id, reason)| (id, reason)).collect()
    }

    fn cases(&self) -> impl Iterator<Item = &'static Case> {
        self.cases.iter().copied().flatten()
    }

    /// The titles of the tests of each statement.
    fn tests(&self) -> BTreeMap<&'static str, Vec<String>> {
        let mut tests: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for case in self.cases() {
            for id in case.statements {
                tests.entry(*id).or_default().push(case.title());
            }
        }
        tests
    }

    /// Everything that does not pair, in words.
    fn mismatches(&self) -> Vec<String> {
        let (statements, tests, not_tested) = (self.statements(), self.tests(), self.not_tested());
        let mut wrong = Vec::new();
        for statement in &statements {
            let tested = tests.contains_key(statement.id);
            let excuse = not_tested.get(statement.id);
            let complaint = match (statement.testable, tested, excuse) {
                (_, true, Some(_)) => "has a test and stands in not_tested.csv",
                (true, false, None) => "has no test",
                (true, false, Some(reason)) if !reason.starts_with(NOT_APPLICABLE) => {
                    "is testable and excused by something else than being not applicable"
                }
                (false, false, None) => "is not testable, and not_tested.csv does not say why",
                _ => continue,
            };
            wrong.push(format!("{} {} {complaint}", self.title, statement.id));
        }
        let known: BTreeSet<&str> = statements.iter().map(|statement| statement.id).collect();
        let no_such = |id: &str, place: &str| format!("{} has no {id}, which is {place}", self.title);
        for (id, titles) in tests.iter().filter(|(id, _)| !known.contains(*id)) {
            wrong.push(no_such(id, &format!("a statement of {titles:?}")));
        }
        for id in not_tested.keys().filter(|id| !known.contains(*id)) {
            wrong.push(no_such(id, "in not_tested.csv"));
        }
        wrong
    }

    fn write_coverage(&self, out: &mut String) -> std::fmt::Result {
        let (statements, tests, not_tested) = (self.statements(), self.tests(), self.not_tested());
        let tested = statements.iter().filter(|s| tests.contains_key(s.id)).count();
        let not_applicable = statements.iter().filter(|s| s.testable && !tests.contains_key(s.id)).count();
        let not_testable = statements.len() - tested - not_applicable;
        writeln!(out, "\n## {}\n", self.title)?;
        writeln!(
            out,
            "{} statements: {tested} tested, {not_applicable} not applicable, {not_testable} not testable from \
             outside. {} tests.\n",
            statements.len(),
            self.cases().count(),
        )?;
        writeln!(out, "| id | binds | requirement | tests |\n| --- | --- | --- | --- |")?;
        for Statement { id, role, requirement, .. } in &statements {
            let shown = match (tests.get(*id), not_tested.get(id)) {
                (Some(titles), _) => {
                    titles.iter().map(|title| format!("`{title}`")).collect::<Vec<_>>().join("<br>")
                }
                (None, Some(reason)) => format!("none; {reason}"),
                (None, None) => "**none**".to_owned(),
            };
            writeln!(out, "| {id} | {role} | {} | {shown} |", requirement.replace('|', "\\|"))?;
        }
        let unnumbered: Vec<_> = self.cases().filter(|case| case.statements.is_empty()).collect();
        if !unnumbered.is_empty() {
            writeln!(out, "\nRules without a number:\n")?;
            unnumbered.iter().try_for_each(|case| writeln!(out, "- `{}`", case.title()))?;
        }
        Ok(())
    }
}

fn unquoted(cell: &str) -> String {
    match cell.strip_prefix('"').and_then(|cell| cell.strip_suffix('"')) {
        Some(inside) => inside.replace("\"\"", "\""),
        None => cell.to_owned(),
    }
}

#[test]
fn every_statement_has_a_test_and_every_test_its_statement() {
    let wrong: Vec<String> = SUITES.iter().flat_map(Suite::mismatches).collect();
    assert!(wrong.is_empty(), "{} mismatches:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn what_does_not_pair_is_found() {
    const fn case(name: &'static str, statements: &'static [&'static str]) -> Case {
        Case { module: "v0::file", name, version: V311, statements, run: |_| {} }
    }
    const CASES: &[Case] = &[
        case("both", &["MQTT-1.0.0-1", "MQTT-1.0.0-4"]),
        case("no_such_statement", &["MQTT-1.0.0-9"]),
        case("a_rule_without_a_number", &[]),
    ];
    let suite = Suite {
        title: "0",
        version: "0",
        statements: "id,role,testable,topic,requirement\nMQTT-1.0.0-1,both,yes,t,r\nMQTT-1.0.0-2,both,yes,t,r\n\
                     MQTT-1.0.0-3,both,no,t,r\nMQTT-1.0.0-4,both,no,t,\"r, r\"",
        cases: &[CASES],
    };
    let expected = [
        "0 MQTT-1.0.0-2 has no test",
        "0 MQTT-1.0.0-3 is not testable, and not_tested.csv does not say why",
        "0 has no MQTT-1.0.0-9, which is a statement of [\"file::no_such_statement\"]",
    ];
    assert_eq!(suite.mismatches(), expected);
}

#[test]
fn not_tested_names_no_other_version() {
    let rows = include_str!("not_tested.csv").lines().skip(1);
    let mut versions = rows.filter_map(|row| row.split(',').next());
    let known = |version: &str| SUITES.iter().any(|suite| suite.version == version);
    assert_eq!(versions.find(|version| !known(version)), None);
}

#[test]
fn every_test_is_listed_once() {
    let mut seen = BTreeSet::new();
    let cases = SUITES.iter().flat_map(|suite| suite.cases().map(|case| (suite.title, case.title())));
    let twice: Vec<_> = cases.filter(|case| !seen.insert(case.clone())).collect();
    assert!(twice.is_empty(), "{twice:?}");
}

#[test]
fn every_cited_statement_exists() {
    let known: BTreeSet<&str> =
        SUITES.iter().flat_map(Suite::statements).map(|statement| statement.id).collect();
    let mut unknown = Vec::new();
    let mut cited = 0;
    for file in rust_files([
        "crates/core/src",
        "src",
        "tests/broker",
        "tests/conformance",
        "tests/in_memory",
        "tests/simulation",
    ]) {
        let text = std::fs::read_to_string(&file).expect("a source file is UTF-8");
        let after = text.match_indices("[MQTT-").map(|(at, _)| &text[at + 1..]);
        for (id, _) in after.filter_map(|rest| rest.split_once(']')).filter(|(id, _)| id.len() < 20) {
            cited += 1;
            if !known.contains(id) {
                unknown.push(format!("{}: {id}", file.display()));
            }
        }
    }
    assert!(unknown.is_empty(), "no version has these statements: {unknown:#?}");
    assert!(cited > 100, "only {cited} citations were found");
}

/// Every Rust file under these folders of the repository.
fn rust_files(folders: [&str; 6]) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> =
        folders.iter().map(|folder| Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).collect();
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of the repository") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files
}

/// `HOMING_WRITE_COVERAGE=1 cargo test --test conformance coverage` writes it anew.
#[test]
fn coverage_table_is_up_to_date() {
    let mut table = String::from("# Conformance, statement by statement\n\n");
    table.push_str("Made from the lists and the tests beside it by\n");
    table.push_str("`HOMING_WRITE_COVERAGE=1 cargo test --test conformance coverage`; do not edit.\n");
    SUITES.iter().try_for_each(|suite| suite.write_coverage(&mut table)).expect("writing to a string");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance/COVERAGE.md");
    if std::env::var_os("HOMING_WRITE_COVERAGE").is_some() {
        std::fs::write(&path, &table).expect("COVERAGE.md can be written");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == table, "COVERAGE.md is out of date: HOMING_WRITE_COVERAGE=1 writes it anew");
}
