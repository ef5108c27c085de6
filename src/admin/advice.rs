//! The advice about each problem of a running broker. The pages and `homing doctor` show the same
//! sentences.

pub(super) use crate::finding::SLOW_DISK;

pub(super) const STORE_FULL: &str =
    "Make room on the disk, or raise store.size_limit and reload the configuration.";
pub(super) const STORE_LATE: &str = "See if the disk hangs, or if another process has homing.db locked: the log lines store.behind and store.locked say so.";
pub(super) const STORE_DAMAGED: &str =
    "homing store check lists all damage; the log lines store.damaged name the clients. Look at the disk.";
pub(super) const STORE_BEHIND: &str =
    "See if the disk is slow, or if another process has homing.db locked: the log line store.locked says so.";
pub(super) const COPY_LATE: &str = "See if the folder at store.ship_to has room and can be written: the log lines store.ship_blocked and store.ship_behind say why not.";
pub(super) const THREAD_HANGS: &str = "See the log, and the dump of SIGUSR1.";
pub(super) const MEMORY: &str =
    "homing ctl clients --sort queued_bytes names the longest queues. Or raise limits.memory and reload.";
pub(super) const DROPS: &str = "homing ctl where --topic TOPIC names the last ones, with the reasons.";
pub(super) const LATE_DEADLINES: &str = "The machine has too little processor time.";
pub(super) const EXPORT_FAILS: &str =
    "See if the collector at otlp.endpoint runs. The broker goes on without it.";
