//! The answers that documents show are the answers of the broker: each `$ ` line of their `console` blocks is typed
//! into one shell, beside a real broker with mosquitto's clients.
//!
//! Numbers, names that the broker makes and `...` stand for any. A command without an answer in the document is typed and
//! not compared. `HOMING_RENEW=1 cargo test --test program guide` writes answers that differ into the document.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Tries before a difference counts. The shell waits as the document says, and a busy machine may take longer.
const TRIES: usize = 3;

/// A command of a document, with the lines that follow it there and the place of the first of them.
struct Typed {
    command: String,
    answer: Vec<String>,
    line: usize,
}

/// A broker in a folder of its own, with the files of the document. Killed when dropped.
struct Playground {
    folder: tempfile::TempDir,
    broker: Child,
}

impl Drop for Playground {
    fn drop(&mut self) {
        drop(self.broker.kill());
        drop(self.broker.wait());
    }
}

impl Playground {
    /// Writes each block of the document that begins with `# NAME`, and starts the broker with `try.toml` if there is one.
    fn start(text: &str) -> Playground {
        let folder = tempfile::tempdir().expect("a folder");
        for block in text.split("\n```").skip(1).step_by(2) {
            let (_, content) = block.split_once('\n').unwrap_or_default();
            let name = content.lines().next().and_then(|line| line.strip_prefix("# ")).unwrap_or_default();
            if ["try.toml", "acl"].contains(&name) {
                fs::write(folder.path().join(name), content).expect("a file");
            }
        }
        let bin = folder.path().join("bin");
        fs::create_dir(&bin).expect("a folder");
        symlink(env!("CARGO_BIN_EXE_homing"), bin.join("homing")).expect("a link");
        for client in ["mosquitto_pub", "mosquitto_sub"] {
            let script =
                format!("#!/bin/sh\nexec /usr/bin/{client} -p \"$(sed 's/.*://' addresses)\" \"$@\"\n");
            fs::write(bin.join(client), script).expect("a script");
            fs::set_permissions(bin.join(client), fs::Permissions::from_mode(0o755)).expect("executable");
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
        command.args(["--listen", "127.0.0.1:0", "--set", "network.addresses_file=addresses"]);
        if folder.path().join("try.toml").exists() {
            command.args(["--config", "try.toml"]);
        }
        command.current_dir(&folder).env("HOMING_ADMIN__ADDRESSES", "off");
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut broker = command.spawn().expect("the binary was built");
        let lines = BufReader::new(broker.stdout.take().expect("a pipe")).lines();
        assert!(lines.map_while(Result::ok).any(|line| line.contains("listening on")), "it starts");
        Playground { folder, broker }
    }

    /// Types the commands into one shell. Returns the lines that each of them printed.
    fn type_all(&self, typed: &[Typed]) -> Vec<Vec<String>> {
        let mut script = String::from("exec >answers 2>&1\n");
        for Typed { command, .. } in typed {
            script += &format!("printf '\\n@@\\n'\n{}\n", with_present_letter(command));
            script += &awaited(command);
        }
        script += "for one in $(jobs -p); do kill -CONT $one; kill $one; done\n";
        let path =
            format!("{}/bin:{}", self.folder.path().display(), std::env::var("PATH").unwrap_or_default());
        let mut shell = Command::new("bash");
        shell.args(["-c", &script]).current_dir(&self.folder).env("PATH", path).stdin(Stdio::null());
        assert!(shell.status().is_ok(), "bash runs");
        let answers = fs::read(self.folder.path().join("answers")).expect("the answers");
        let lines = |part: &str| part.trim().lines().map(str::to_owned).collect();
        String::from_utf8_lossy(&answers).split("\n@@\n").skip(1).map(lines).collect()
    }
}

/// Returns what waits until the clients that a command leaves in the background have subscribed, as
/// a reader would. Looks at most 100 times at each, because a refused one never has.
fn awaited(command: &str) -> String {
    let background = command.strip_suffix('&').filter(|command| command.contains("mosquitto_sub"));
    let names = background.into_iter().flat_map(|command| command.split(" -i ").skip(1));
    let name = |words: &str| words.split(' ').next().unwrap_or_default().to_owned();
    let look = |name: String| format!("homing ctl --json client {name} 2>&1 | grep -q '\"filter\"'");
    let wait = |look: String| format!("for one in $(seq 100); do if {look}; then break; fi; done\n");
    names.map(name).map(look).map(wait).collect()
}

/// Returns the command with the last dead letter that was printed in place of the one in the document.
fn with_present_letter(command: &str) -> String {
    let letter = "$(grep -ohE '[0-9a-f]{11}-[0-9a-f]+' answers | tail -n 1)";
    let is_letter = |word: &&str| word.len() > 12 && word.as_bytes()[11] == b'-' && word.starts_with("1a");
    command.split(' ').map(|word| if is_letter(&word) { letter } else { word }).collect::<Vec<_>>().join(" ")
}

/// Returns the commands of the `console` blocks.
fn typed(text: &str) -> Vec<Typed> {
    let (mut all, mut is_console): (Vec<Typed>, bool) = (Vec::new(), false);
    for (number, line) in text.lines().enumerate() {
        match line.strip_prefix("$ ") {
            _ if line.starts_with("```") => is_console = line == "```console",
            _ if !is_console => {}
            Some(command) => {
                all.push(Typed { command: command.to_owned(), answer: Vec::new(), line: number + 1 });
            }
            None => all.last_mut().expect("a command comes first").answer.push(line.to_owned()),
        }
    }
    all
}

/// Returns the text without what differs from run to run: each word with a digit is `0`, with the blanks around it.
fn masked(text: &str) -> String {
    let is_word = |c: char| c.is_alphanumeric() || "-.".contains(c);
    let mut out = String::new();
    for word in text.split_inclusive(|c| !is_word(c)) {
        let (body, end) = word.split_at(word.trim_end_matches(|c| !is_word(c)).len());
        let is_varying = body != "..." && body.contains(|c: char| c.is_ascii_digit());
        out += if is_varying { "0" } else { body };
        out += end;
    }
    out.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the lines with those about commits at their end: the disk and a receiver are as quick as
/// they are.
fn commits_last(lines: &[String]) -> String {
    let (commits, others): (Vec<&String>, Vec<&String>) =
        lines.iter().partition(|line| line.contains(" committed "));
    others.into_iter().chain(commits).map(|line| format!("{line}\n")).collect()
}

/// True if the printed lines are those of the document.
fn is_as_shown(shown: &[String], printed: &[String]) -> bool {
    let (shown, printed) = (masked(&commits_last(shown)), masked(&commits_last(printed)));
    let mut rest = printed.as_str();
    for (n, part) in shown.split("...").map(str::trim).enumerate() {
        let Some(at) = rest.find(part).filter(|at| n > 0 || *at == 0) else { return false };
        rest = &rest[at + part.len()..];
    }
    shown.ends_with("...") || rest.is_empty()
}

/// Types a document, or the part of it below a heading.
fn check(document: &str, from: &str, to: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(document);
    let text = fs::read_to_string(&path).expect("the document");
    let begin = text.find(from).expect("the beginning");
    let end = text[begin..].find(to).map_or(text.len(), |end| begin + end);
    let typed = typed(&text[begin..end]);
    assert!(typed.iter().filter(|typed| !typed.answer.is_empty()).count() > 1, "{document} has answers");
    let mut wrong = Vec::new();
    for _ in 0..TRIES {
        let answers = Playground::start(&text[begin..end]).type_all(&typed);
        let pairs = typed.iter().zip(answers).filter(|(typed, _)| !typed.answer.is_empty());
        wrong = pairs.filter(|(typed, printed)| !is_as_shown(&typed.answer, printed)).collect();
        if wrong.is_empty() {
            return;
        }
    }
    if std::env::var_os("HOMING_RENEW").is_some() {
        renew(&path, &text, text[..begin].lines().count(), &wrong);
        return;
    }
    let all: Vec<_> =
        wrong.iter().map(|(t, printed)| format!("$ {}\n{}\n", t.command, printed.join("\n"))).collect();
    panic!(
        "{document} shows other answers to:\n{}\nHOMING_RENEW=1 cargo test --test program guide",
        all.join("\n")
    );
}

/// Writes the printed answers into the document.
fn renew(path: &PathBuf, text: &str, skipped: usize, wrong: &[(&Typed, Vec<String>)]) {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for (typed, printed) in wrong.iter().rev() {
        let first = skipped + typed.line;
        lines.splice(first..first + typed.answer.len(), printed.iter().cloned());
    }
    fs::write(path, lines.join("\n") + "\n").expect("the document is written");
}

#[test]
fn the_guide_shows_what_the_broker_answers() {
    check("docs/my-message-did-not-arrive.md", "## To type along", "## Other answers");
}

#[test]
fn the_three_minutes_of_the_readme_show_what_the_broker_answers() {
    check("README.md", "## From zero to a stuck client", "## Why");
}

#[test]
fn answers_are_compared_without_what_differs_from_run_to_run() {
    let same = |shown: &str, printed: &str| is_as_shown(&[shown.to_owned()], &[printed.to_owned()]);
    assert!(same("sent once 11 s ago", "sent once 7.5 s ago"));
    assert!(same("pump-8  connected   2", "pump-8 connected 14"));
    assert!(same("id homing-4fd1 ... end", "id homing-99a and more end"));
    assert!(same("Until then. ...", "Until then. 3 more wait."));
    assert!(!same("receiver_away", "unacknowledged"));
    assert!(!same("nothing waits for it.", "nothing waits for it. 3 more wait."));
}

/// Returns the commands of the program that a document names, in its prose and in its blocks.
fn named_commands(text: &str) -> Vec<String> {
    let (mut all, mut is_block): (Vec<String>, bool) = (Vec::new(), false);
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_block = !is_block;
        } else if is_block {
            let line = line.trim();
            let line = line.strip_prefix("$ ").unwrap_or(line);
            all.push(line.strip_prefix("sudo -u homing ").unwrap_or(line).to_owned());
        } else {
            all.extend(line.split('`').skip(1).step_by(2).map(str::to_owned));
        }
    }
    all.retain(|line| {
        line.starts_with("homing ") && !line.starts_with("homing 0") && !line.contains("version")
    });
    all
}

/// Returns the words of a command up to what the shell takes, with a value for each placeholder.
fn words(command: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    let command =
        command.replace("<client id>", "X").replace("$(date +%F)", "1").replace("$(pidof mosquitto)", "1");
    for sign in command.chars() {
        match sign {
            _ if quote == Some(sign) => quote = None,
            '\'' | '"' if quote.is_none() => quote = Some(sign),
            ' ' if quote.is_none() => {
                words.extend(Some(std::mem::take(&mut word)).filter(|word| !word.is_empty()))
            }
            '|' | '>' | '&' | ';' | '#' | '\\' if quote.is_none() => break,
            _ => word.push(sign),
        }
    }
    words.extend(Some(word).filter(|word| !word.is_empty() && word != "..."));
    words
}

#[test]
fn every_command_that_a_document_names_is_one_of_the_program() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pages =
        fs::read_dir(root.join("docs")).expect("a folder").map(|entry| entry.expect("an entry").path());
    let pages = pages.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let (mut wrong, mut count) = (Vec::new(), 0);
    for page in pages.chain([root.join("README.md"), root.join("SECURITY.md")]) {
        for command in named_commands(&fs::read_to_string(&page).expect("a page")) {
            let mut words = words(&command);
            // The name of a kind of argument has no value that would do.
            if words.iter().any(|word| ["COMMAND", "SHELL", "POSITION", "..."].contains(&word.as_str())) {
                continue;
            }
            words.push("--help".to_owned());
            let output =
                Command::new(env!("CARGO_BIN_EXE_homing")).args(&words[1..]).output().expect("it runs");
            count += 1;
            if !output.status.success() {
                let reason =
                    String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or_default().to_owned();
                wrong.push(format!("{}: {command}: {reason}", page.display()));
            }
        }
    }
    assert!(wrong.is_empty() && count > 200, "{count} commands; wrong:\n{}", wrong.join("\n"));
}
