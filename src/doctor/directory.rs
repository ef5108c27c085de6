//! The data directory: its owner and mode, its file system, its room, and the time of a sync.

use crate::clock;
use crate::config::{Config, DurabilityLevel};
use crate::finding::{Check, Finding, SLOW_DISK, size};
use crate::store::sqlite::directory::{
    RESERVE, database_in, lock_in, refuse_emptied, refuse_following, space_in,
};
use crate::store::sqlite::inspect::StoreInspection;
use rustix::process::geteuid;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

/// Syncs that are timed. The middle one counts.
const SYNCS: usize = 9;

/// A slower sync is felt: each acknowledgement of a stored message waits for one.
const SLOW_SYNC: Duration = Duration::from_millis(20);

/// Less room than this is soon gone.
const LITTLE_ROOM: u64 = 1 << 30;

/// Kinds of file systems on which a store is not safe, by the number that statfs(2) reports.
const NETWORK: [(u64, &str); 6] = [
    (0x6969, "NFS"),
    (0x517B, "SMB"),
    (0xFF53_4D42, "CIFS"),
    (0xFE53_4D42, "SMB 2"),
    (0x0102_1997, "9P"),
    (0x5346_414F, "AFS"),
];

/// Kinds of file systems in memory.
const MEMORY: [(u64, &str); 2] = [(0x0102_1994, "tmpfs"), (0x8584_58F6, "ramfs")];

pub(super) fn findings(config: &Config, path: &Path) -> Vec<Finding> {
    let Ok(metadata) = fs::metadata(path) else {
        return vec![Finding::ok(
            Check::Store,
            format!("{} does not exist yet: the broker makes it", path.display()),
        )];
    };
    if !metadata.is_dir() {
        let text = format!("{} is not a directory", path.display());
        return vec![Finding::fail(Check::Store, text).advise("Set store.path to a directory")];
    }
    let mut findings = of_directory(config, path, &metadata);
    findings.extend(sync(config, path));
    findings.push(store(path));
    findings
}

/// Returns the findings about the directory of the broker that runs as this process. Nothing is
/// written: the commits of the broker itself say how long a sync takes.
pub(super) fn findings_in_use(config: &Config, path: &Path) -> Vec<Finding> {
    match fs::metadata(path) {
        Ok(metadata) => of_directory(config, path, &metadata),
        Err(error) => vec![
            Finding::fail(Check::Store, format!("{}: {error}", path.display()))
                .advise("Stop the broker, and bring the directory back from a copy"),
        ],
    }
}

fn of_directory(config: &Config, path: &Path, metadata: &fs::Metadata) -> Vec<Finding> {
    let mut findings = vec![owner(path, metadata.uid(), metadata.mode(), geteuid().as_raw())];
    findings.extend(
        rustix::fs::statfs(path).ok().map(|kind| file_system(path, u64::try_from(kind.f_type).unwrap_or(0))),
    );
    findings.extend(room(config, path));
    findings
}

/// Returns true if a broker holds the lock of this data directory. Takes no lock, because a broker
/// that starts in this moment would be refused.
pub(super) fn is_in_use(path: &Path) -> bool {
    let Ok(lock) = fs::metadata(lock_in(path)) else { return false };
    let Ok(locks) = fs::read_to_string("/proc/locks") else { return false };
    locks.lines().any(|line| is_lock_of(line, lock.ino()))
}

/// A line such as `1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF`: device and inode are the sixth
/// word. The number of the device differs from that of stat(2) on some file systems, so only the
/// inode counts.
fn is_lock_of(line: &str, inode: u64) -> bool {
    let mut words = line.split_whitespace();
    let kind = words.nth(1);
    let place = words.nth(3);
    kind == Some("FLOCK")
        && place.and_then(|place| place.rsplit(':').next()?.parse::<u64>().ok()) == Some(inode)
}

fn owner(path: &Path, owner: u32, mode: u32, user: u32) -> Finding {
    let path = path.display();
    if owner != user && user != 0 {
        return Finding::fail(
            Check::Owner,
            format!("{path} belongs to user {owner}, and this user is {user}"),
        )
        .advise("Change its owner, or run the broker as its owner");
    }
    if mode & 0o077 != 0 {
        return Finding::warn(Check::Owner, format!("others may enter {path} (mode {:03o})", mode & 0o777))
            .advise(format!("chmod 700 {path}"));
    }
    Finding::ok(Check::Owner, format!("{path} is private"))
}

fn file_system(path: &Path, kind: u64) -> Finding {
    let path = path.display();
    let named = |kinds: &[(u64, &'static str)]| {
        kinds.iter().find(|(number, _)| *number == kind).map(|(_, name)| *name)
    };
    if let Some(name) = named(&NETWORK) {
        return Finding::fail(
            Check::FileSystem,
            format!("{path} is on {name}: SQLite's locks and syncs are not safe there"),
        )
        .advise("Use a local disk");
    }
    if let Some(name) = named(&MEMORY) {
        return Finding::warn(
            Check::FileSystem,
            format!("{path} is on {name}, in memory: the store ends with the machine"),
        )
        .advise("Use a disk");
    }
    Finding::ok(Check::FileSystem, "local")
}

fn room(config: &Config, path: &Path) -> Option<Finding> {
    let free = space_in(path).ok()?;
    let used = fs::metadata(database_in(path)).map_or(0, |database| database.len());
    let limit = config.store.size_limit.bytes();
    Some(match () {
        () if free < RESERVE => Finding::fail(
            Check::Room,
            format!("{} are free: the broker accepts nothing that it must store", size(free)),
        )
        .advise("Make room"),
        () if limit > free.saturating_add(used) => Finding::warn(
            Check::Room,
            format!(
                "{} are free, and store.size_limit is {}: the disk is full first",
                size(free),
                size(limit)
            ),
        )
        .advise("Lower the limit, or make room"),
        () if free < LITTLE_ROOM => {
            Finding::warn(Check::Room, format!("{} are free", size(free))).advise("Make room")
        }
        () => Finding::ok(Check::Room, format!("{} are free", size(free))),
    })
}

/// Times a sync of a file in the directory, if the broker syncs before it acknowledges.
fn sync(config: &Config, path: &Path) -> Option<Finding> {
    if config.store.durability != DurabilityLevel::Commit {
        return None;
    }
    let mut times = match time_of_syncs(path) {
        Ok(times) => times,
        Err(error) => {
            let text = format!("{} cannot be written: {error}", path.display());
            return Some(Finding::fail(Check::Sync, text).advise("Check its owner and its mode"));
        }
    };
    times.sort();
    let middle = times[SYNCS / 2];
    let ms = middle.as_secs_f64() * 1000.0;
    Some(match middle > SLOW_SYNC {
        true => Finding::warn(
            Check::Sync,
            format!("{ms:.1} ms: each acknowledgement of a stored message waits so long"),
        )
        .advise(SLOW_DISK),
        false => Finding::ok(Check::Sync, format!("{ms:.1} ms, the middle of {SYNCS}")),
    })
}

fn time_of_syncs(path: &Path) -> io::Result<[Duration; SYNCS]> {
    let file_path = path.join(format!("doctor-{}", std::process::id()));
    let timed = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file_path)?;
        let mut times = [Duration::ZERO; SYNCS];
        for time in &mut times {
            file.write_all(&[0; 4096])?;
            let start = clock::nanos();
            file.sync_data()?;
            *time = Duration::from_nanos(clock::nanos().saturating_sub(start));
        }
        Ok(times)
    };
    let times = timed();
    // The file is missing if it could not be made.
    drop(fs::remove_file(&file_path));
    times
}

fn store(path: &Path) -> Finding {
    if !database_in(path).exists() {
        return Finding::ok(Check::Store, format!("there is none yet in {}", path.display()));
    }
    let owner = fs::read_to_string(lock_in(path)).ok();
    let refusal = refuse_following(path).and_then(|()| refuse_emptied(path, owner.as_deref()));
    match refusal.and_then(|()| StoreInspection::open(path)) {
        Ok(_) => Finding::ok(
            Check::Store,
            format!(
                "this version reads the store in {}; `homing store check` reads all of it",
                path.display()
            ),
        ),
        Err(error) => Finding::fail(Check::Store, error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Severity;

    #[test]
    fn a_network_file_system_is_refused_and_one_in_memory_is_noticed() {
        let severity = |kind| file_system(Path::new("/data"), kind).severity;
        assert_eq!(severity(0x6969), Severity::Fail);
        assert_eq!(severity(0xFF53_4D42), Severity::Fail);
        assert_eq!(severity(0x0102_1994), Severity::Warn);
        // ext4.
        assert_eq!(severity(0xEF53), Severity::Ok);
    }

    #[test]
    fn the_owner_counts_except_for_root_and_so_does_the_mode() {
        let severity = |of, mode, user| owner(Path::new("/data"), of, mode, user).severity;
        assert_eq!(severity(1883, 0o40700, 1000), Severity::Fail);
        assert_eq!(severity(1883, 0o40700, 0), Severity::Ok);
        assert_eq!(severity(1883, 0o40700, 1883), Severity::Ok);
        assert_eq!(severity(1883, 0o40755, 1883), Severity::Warn);
    }

    #[test]
    fn a_lock_is_known_by_its_inode() {
        let line = "1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF";
        assert!(is_lock_of(line, 1234));
        assert!(!is_lock_of(line, 234));
        assert!(!is_lock_of("2: POSIX  ADVISORY  WRITE 4711 fe:00:1234 0 EOF", 1234));
        assert!(!is_lock_of("", 1234));
    }
}
