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
