//! The preloaded shim, and the files that are left of a directory by its account.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Built once for a test run, by the C compiler that the broker's allocator needs too.
pub fn shim() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/power_loss/shim.c");
        let built = Path::new(env!("CARGO_TARGET_TMPDIR")).join("power_loss_shim.so");
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

/// A directory, and what the shim keeps of it.
pub struct Images {
    pub directory: PathBuf,
    pub images: PathBuf,
    restored: PathBuf,
}

impl Images {
    pub fn new(work: &Path) -> Images {
        // As the system names it: the shim compares paths.
        let work = work.canonicalize().expect("it is there");
        let images = work.join("images");
        std::fs::create_dir(&images).expect("created");
        Images { directory: work.join("data"), images, restored: work.join("restored") }
    }

    /// The directory as the machine finds it when the power is back: files whose names were synced, with the content that was.
    pub fn restore(&self) -> PathBuf {
        std::fs::create_dir(&self.restored).expect("created");
        for image in std::fs::read_dir(&self.images).expect("a folder") {
            let image = image.expect("an image").path();
            let name = image.file_stem().expect("a name").to_owned();
            if image.extension().is_some_and(|extension| extension == "entry") {
                let (content, back) = (image.with_extension("data"), self.restored.join(&name));
                match content.exists() {
                    true => std::fs::copy(&content, &back).map(drop).expect("copied"),
                    false => std::fs::write(&back, []).expect("written"),
                }
            }
        }
        self.restored.clone()
    }
}
