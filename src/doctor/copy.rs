//! The folder for a copy of the store, as it is before the broker writes to it.

use crate::config::Config;
use crate::file_thread;
use crate::finding::{Check, Finding};
use crate::store::ship::ShipOptions;
use crate::store::sqlite::directory::existing_part;
use rustix::fs::Access;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Returns the finding about `store.ship_to`; `None` without it.
pub fn finding(config: &Config, data: &Path) -> Option<Finding> {
    let to = config.store.copied_to()?;
    let _opened = file_thread::opens(&to);
    let options = ShipOptions { to, interval: config.store.ship_interval };
    if let Err(error) = options.check(data) {
        return Some(Finding::fail(Check::Copy, error.to_string()));
    }
    let shown = options.to.display();
    let usable = fs::read_dir(&options.to)
        .and_then(|_| Ok(rustix::fs::access(&options.to, Access::WRITE_OK | Access::EXEC_OK)?));
    if let Err(error) = usable {
        let text = format!("{shown} cannot be used, so there is no copy of the store: {error}");
        return Some(Finding::warn(Check::Copy, text).advise("Make or mount the folder (store.ship_to)"));
    }
    let device = |path: &Path| fs::metadata(existing_part(path)).ok().map(|folder| folder.dev());
    if device(&options.to) == device(data) {
        let text = format!("{shown} is on the file system of the store: a broken disk takes both");
        return Some(Finding::warn(Check::Copy, text).advise("Use another disk (store.ship_to)"));
    }
    Some(Finding::ok(Check::Copy, format!("the store is copied to {shown}")))
}
