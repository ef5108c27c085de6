//! The files that are left of a directory by the shim's account.

use std::path::{Path, PathBuf};

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

    /// The directory as the machine finds it when the power is back: files whose names were synced,
    /// with the content that was.
    pub fn restore(&self) -> PathBuf {
        std::fs::create_dir(&self.restored).expect("created");
        self.restore_names(".", &self.restored);
        self.restored.clone()
    }

    fn restore_names(&self, of: &str, into: &Path) {
        let names = std::fs::read_to_string(self.images.join(format!("{of}.names"))).unwrap_or_default();
        for line in names.lines() {
            let (key, name) = line.split_once(' ').expect("a key and a name");
            let (content, back) = (self.images.join(format!("{key}.data")), into.join(name));
            if name == "log" {
                std::fs::create_dir(&back).expect("created");
                self.restore_names(name, &back);
            } else if content.exists() {
                std::fs::copy(&content, &back).expect("copied");
            } else {
                std::fs::write(&back, []).expect("written");
            }
        }
    }
}
