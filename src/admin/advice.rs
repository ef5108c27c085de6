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
pub(super) const BRIDGE_DOWN: &str = "homing doctor tries each of its addresses, and says what is refused. What it has to send waits in its queue.";
pub(super) const BRIDGE_STUCK: &str =
    "See what the other broker does: homing ctl inflight '$bridge/NAME' lists what it has not acknowledged.";
pub(super) const BRIDGE_REFUSED: &str = "Change the rules of the broker that refuses it, or the topics of the bridge: homing doctor says which one.";
pub(super) const BRIDGE_SESSION_LOST: &str = "See if the other broker keeps sessions over its restarts, and if another client has the same client id there.";
pub(super) const SINK_DOWN: &str = "homing doctor tries the service. The messages wait in the queue of the sink, and limits.queue_policy decides beyond it.";
pub(super) const SINK_STUCK: &str = "See why the service is slow: homing ctl sinks has its times. A shorter timeout of the sink sends the request again.";
pub(super) const SINK_REFUSED: &str = "Write the new secret into the file of header_files, which is read again with each attempt, or correct headers and reload. Beyond its queue limits.queue_policy decides.";
pub(super) const SINK_FILTERS: &str = "Change the rules of acl_user of the sink in acl.file, or its filters.";
pub(super) const SINK_DEAD_LETTERS: &str =
    "homing ctl dead-letters list has them. Correct the service or the publisher, and publish them again.";
