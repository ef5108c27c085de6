//! The priority of the threads that work for clients which are not connected yet.

/// The nice value of these threads: a third of the weight of a shard thread. So established traffic
/// goes first while a core is short, and clients can still connect while all cores are busy.
///
/// A higher value, or the policy `SCHED_IDLE`, would starve them: with 19 a busy core gives them
/// 1.5 %, and an argon2 hash of 20 ms takes 1.4 s. Then nearly everybody is refused as "busy"
/// (`auth.timeout`). Such a thread also takes the lock of the login queue, for which shards wait. A
/// thread that is not scheduled for long must not hold it.
const NICE: i32 = 5;

/// Lowers the priority of this thread. Linux has a priority for each thread. Without the permission
/// to change it, the thread competes with the shards as an equal.
pub(super) fn yield_to_traffic() {
    let _ = rustix::process::nice(NICE);
}
