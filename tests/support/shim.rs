//! A library that stands before the system's own calls in a child process (`LD_PRELOAD`).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Built once for a test run from the `shim.c` of this folder under `tests`, by the C compiler that
/// SQLite needs too.
pub fn shim(folder: &str) -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder).join("shim.c");
        let built = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{folder}_shim.so"));
        let status = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()))
            .args(["-Wall", "-Wextra", "-O1", "-shared", "-fPIC", "-o"])
            .args([&built, &source])
            .arg("-ldl")
            .status()
            .expect("a C compiler");
        assert!(status.success(), "the shim does not compile");
        built
    })
}
