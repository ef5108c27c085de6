//! `config/homing.toml` and `docs/configuration.md`, written from the table of keys.

use super::Config;
use super::keys::SECTIONS;
use super::rule::{ValueType, grouped};
use super::table::{Key, KeyScope, Section};
use super::value::written;
use config::ValueKind;
use std::fmt::Write;

/// Columns of a line in the file.
const WIDTH: usize = 100;

const FILE_HEAD: &str = "\
Homing's configuration: every key at its built-in default. All keys are optional. Delete what you do not change.

Layers, each beating the one before: built-in defaults; this file (--config FILE, else HOMING_CONFIG, else config/homing.toml in \
the working directory, else /etc/homing/homing.toml); environment variables HOMING_SECTION__KEY, such as \
HOMING_LIMITS__PACKET_SIZE=\"4 MiB\"; flags, such as --set limits.packet_size=\"4 MiB\". `homing check-config` reports what is wrong \
and what differs from the defaults.

Durations have a unit: ms, s, m, h, d (\"1500ms\", \"20s\", \"1h 30m\"). So have sizes: B, KiB, MiB, GiB, TiB (\"64 KiB\"). An unknown \
key, a value that is not allowed and a contradiction stop the start, with exit code 2. SIGHUP and `homing ctl reload` read all \
layers again; docs/configuration.md names the keys whose change needs a restart.

This file is written from src/config/keys/, as is docs/configuration.md.";

const DOCUMENT_HEAD: &str = "\
# Configuration

Every key of Homing, with its values, its default and the reason for it. All keys are optional. This document and
[`config/homing.toml`](../config/homing.toml) are written from `src/config/keys/`; do not edit them by hand.

## Where values come from

Each layer beats the one before:

1. Built-in defaults.
2. A file. The first of these is read: `--config FILE`; the file that `HOMING_CONFIG` names; `config/homing.toml` in the working
   directory; `/etc/homing/homing.toml`. The start message names the file that was read.
3. Environment variables `HOMING_SECTION__KEY`, such as `HOMING_LIMITS__PACKET_SIZE='4 MiB'`, with two underscores. A variable
   whose name is nearly that of a key is refused. Any other `HOMING_...` that is no key is reported, except those of Kubernetes.
4. Flags: `--set section.key=value` for any key; `--listen`, `--data-dir`, `--ephemeral`, `--log-level` and `--log-format` beat
   `--set`.

In variables and flags a list is written with commas, or as in the file: `--set 'admin.addresses=[\"127.0.0.1:11883\"]'`.

All problems of all layers are reported at once. Each report names the source, the key, the value and what is allowed. A mistake
in a layer is reported even where a higher layer overrides the value. The exit code is 2, and nothing was started.
`homing check-config` does the same check. It lists each value that is not the default, with its source.

## Changes while the broker runs

SIGHUP and `homing ctl reload` read all layers again, and the files that they name ([operations](operations.md#reload)). Each key has its
effect below:

| effect | meaning |
|---|---|
| live | the new value holds at once, for existing connections and sessions, too |
| new connections | the new value holds for connections that begin from now on |
| restart | the old value holds until the next start |

## In a cluster

Each node of a [cluster](cluster.md) has a configuration of its own. `In a cluster` below a key says what the nodes have to have in
common. Pages, metrics and the log name the keys and files in which a node differs; nothing is refused.

| in a cluster | meaning |
|---|---|
| the same on all nodes | each node may serve, with its own value |
| the same content | the path may differ, and the file must not |
| each node's own | not compared |

## How values are written

| kind | written as |
|---|---|
| duration | numbers with units, in quotes: `\"1500ms\"`, `\"20s\"`, `\"1h 30m\"`, `\"7d\"` |
| size | a number with a unit, in quotes: `\"64 KiB\"`, `\"1.5 GiB\"`. KiB, MiB, GiB and TiB are powers of 1,024; kB, MB, GB and TB are powers of 1,000 |
| word | `\"auto\"`, `\"unlimited\"`, `\"off\"`. A key that has such a word does not take a zero |

Ranges include both ends.
";

/// Returns the text of `config/homing.toml`.
pub fn file() -> String {
    let mut text = String::new();
    comment(&mut text, FILE_HEAD);
    for section in SECTIONS {
        if !section.is_list() {
            let _ = write!(text, "\n[{}]\n", section.name);
        }
        for key in section.keys.iter().filter(|key| !is_table(key)) {
            comment(&mut text, &joined(key.help));
            comment(&mut text, &values(key));
            let _ = writeln!(text, "{} = {}", key.name(), default(key));
        }
        for key in section.keys.iter().filter(|key| is_table(key)) {
            text.push('\n');
            comment(&mut text, &joined(key.help));
        }
        example(&mut text, section);
    }
    text
}

/// Returns the text of `docs/configuration.md`.
pub fn document() -> String {
    let mut text = DOCUMENT_HEAD.to_owned();
    for section in SECTIONS {
        if section.is_list() {
            let _ = write!(text, "\n## `[[{}]]`\n\n", section.name);
            list(&mut text, section);
            continue;
        }
        let _ = write!(text, "\n## `[{}]`\n\n", section.name);
        wrapped(&mut text, "", &joined(section.about), WIDTH);
        text.push_str("\n| key | default |\n|---|---|\n");
        for key in section.keys {
            let anchor = key.path.replace('.', "");
            let _ = writeln!(text, "| [`{}`](#{anchor}) | `{}` |", key.name(), default(key));
        }
        for key in section.keys {
            described(&mut text, key);
        }
        if !section.example.is_empty() {
            let _ = write!(text, "\n```toml\n{}```\n", section.example);
        }
    }
    text
}

/// Writes a section that is a list of tables.
fn list(text: &mut String, section: &Section) {
    for key in section.keys {
        wrapped(text, "", &joined(key.help), WIDTH);
        let _ = writeln!(text, "\n- In the file only: there is no environment variable and no flag");
        let effect = key.effect.title();
        let _ = writeln!(text, "- Effect of a change: {effect}, unless the text says otherwise");
        let _ = writeln!(text, "- In a cluster: {}", scope(key));
    }
    let _ = write!(text, "\n```toml\n{}```\n", section.example);
}

fn described(text: &mut String, key: &Key) {
    let _ = write!(text, "\n### `{}`\n\n", key.path);
    wrapped(text, "", &joined(key.help), WIDTH);
    let _ = write!(text, "\n- Values: {}\n", key.rule.span());
    let because = if key.why.is_empty() { String::new() } else { format!(". Why: {}", key.why) };
    let _ = writeln!(text, "- Default: `{}`{because}", default(key));
    let _ = writeln!(text, "- Effect of a change: {}", key.effect.title());
    let _ = writeln!(text, "- In a cluster: {}", scope(key));
    for (name, what) in [("Standard", key.standard), ("Elsewhere", key.elsewhere)] {
        if !what.is_empty() {
            let _ = writeln!(text, "- {name}: {what}");
        }
    }
    if is_table(key) {
        text.push_str("- In the file only: rules have no environment variable and no flag\n");
    } else {
        let variable = key.path.to_uppercase().replace('.', "__");
        let _ = writeln!(text, "- Environment: `HOMING_{variable}`");
    }
}

/// Returns what a key has to be like on the nodes of a cluster, in words.
fn scope(key: &Key) -> &'static str {
    match (key.scope, &key.rule.kind) {
        (KeyScope::Node, _) => "each node's own",
        (KeyScope::Cluster, ValueType::Path) => "the same content",
        (KeyScope::Cluster, ValueType::Tables("listeners", _)) => {
            "the same listeners by name, each with the same keys but `address`, and files with the same content"
        }
        (KeyScope::Cluster, _) => "the same on all nodes",
    }
}

/// Returns the line with the values of a key, its default, and the reason for the default.
fn values(key: &Key) -> String {
    let because = if key.why.is_empty() { String::new() } else { format!(" Why: {}", key.why) };
    format!("Values: {}. Default: {}.{because}", key.rule.span(), default(key))
}

/// Returns the default as one would write it in the file.
fn default(key: &Key) -> String {
    let value = Config::default().value(key);
    match value.kind {
        ValueKind::I64(number) => grouped(number),
        _ => written(&value),
    }
}

/// True for keys that are tables below their section, and not a line in it.
fn is_table(key: &Key) -> bool {
    matches!(key.rule.kind, ValueType::Tables(..))
}

fn example(text: &mut String, section: &Section) {
    if !section.example.is_empty() {
        text.push_str("#\n");
    }
    for line in section.example.lines() {
        let _ = writeln!(text, "{}", format!("# {line}").trim_end());
    }
}

/// Returns the lines of a doc comment as paragraphs, with an empty line between two of them.
pub(super) fn joined(lines: &[&str]) -> String {
    let mut text = String::new();
    for line in lines.iter().map(|line| line.trim()) {
        match line {
            "" => text.push_str("\n\n"),
            line if text.is_empty() || text.ends_with('\n') => text.push_str(line),
            line => {
                text.push(' ');
                text.push_str(line);
            }
        }
    }
    text
}

fn comment(text: &mut String, what: &str) {
    wrapped(text, "# ", what, WIDTH);
}

/// Appends `what` in lines of at most `width` columns; a paragraph ends at an empty line.
fn wrapped(text: &mut String, prefix: &str, what: &str, width: usize) {
    for (number, paragraph) in what.split("\n\n").enumerate() {
        if number > 0 {
            let _ = writeln!(text, "{}", prefix.trim_end());
        }
        let mut line = prefix.to_owned();
        for word in paragraph.split_whitespace() {
            if line.len() > prefix.len() && line.chars().count() + 1 + word.chars().count() > width {
                let _ = writeln!(text, "{line}");
                line = prefix.to_owned();
            }
            if line.len() > prefix.len() {
                line.push(' ');
            }
            line.push_str(word);
        }
        let _ = writeln!(text, "{line}");
    }
}
