//! Any bytes as `mosquitto.conf`. Its translation is valid TOML, and has no key that Homing does not
//! know. `include_dir` is not followed.
#![no_main]

use homing::config::{Problem, Sources};
use homing::import;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// The file of this process. Targets run as one process for each job.
static FILE: LazyLock<PathBuf> =
    LazyLock::new(|| std::env::temp_dir().join(format!("homing-fuzz-{}.toml", std::process::id())));

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let imported = import::of_text(&String::from_utf8_lossy(input), Path::new("mosquitto.conf"));
    assert!(imported.notes.iter().all(|note| !note.is_empty()));
    let text = imported.toml;
    std::fs::write(&*FILE, &text).expect("the temporary directory takes the file");
    let Err(refusal) = Sources::new().file(&*FILE).load() else { return };
    for problem in refusal.0 {
        let is_ours =
            matches!(problem, Problem::Syntax { .. } | Problem::UnknownKey { .. } | Problem::Internal(_));
        assert!(!is_ours, "{problem}\n{text}");
    }
});
