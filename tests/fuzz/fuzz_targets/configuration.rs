//! Any bytes as `homing.toml`. The values that a file changes, written as the program shows them, are
//! a file with the same meaning.
#![no_main]

use homing::config::{ConfigRefusal, Setting, Sources};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::LazyLock;

/// The file of this process. Targets run as one process for each job.
static FILE: LazyLock<PathBuf> =
    LazyLock::new(|| std::env::temp_dir().join(format!("homing-fuzz-{}.toml", std::process::id())));

fn changed(text: &[u8]) -> Result<Vec<(String, String)>, ConfigRefusal> {
    std::fs::write(&*FILE, text).expect("the temporary directory takes the file");
    let loaded = Sources::new().file(&*FILE).load()?;
    Ok(loaded.changed.into_iter().map(|Setting { key, value, .. }| (key, value)).collect())
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let settings = match changed(input) {
        Ok(settings) => settings,
        Err(refusal) => {
            assert!(!refusal.0.is_empty() && !refusal.to_string().is_empty());
            return;
        }
    };
    let mut text = String::new();
    for (key, value) in &settings {
        writeln!(text, "{key} = {value}").expect("a string takes any text");
    }
    let again = changed(text.as_bytes()).unwrap_or_else(|refusal| panic!("{text}\nis refused: {refusal}"));
    assert_eq!(settings, again, "{text}");
});
