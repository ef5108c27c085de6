//! Priorities of the threads of this process for the kernel.
//!
//! Two kinds of threads compete for scarce cores. Threads that move messages work for microseconds
//! and sleep. Threads that admit clients or answer operators compute for milliseconds. Both
//! settings below are requests. A kernel that refuses one, or does not know it, leaves the thread
//! as an equal of the others.

use std::mem::size_of;
use std::time::Duration;

/// The nice value of threads that let clients in or answer operators: a third of the weight of a
/// shard thread. So established traffic goes first while a core is short, and clients can still
/// connect while all cores are busy.
///
/// A higher value, or the policy `SCHED_IDLE`, would starve them: with 19 a busy core gives them
/// 1.5 %, and an argon2 hash of 20 ms takes 1.4 s. Then nearly everybody is refused as "busy"
/// (`auth.timeout`). Such a thread also takes the lock of the login queue, for which shards wait. A
/// thread that is not scheduled for long must not hold it.
const NICE: i32 = 5;

/// The time that a thread of messages wants to work before others have their turn: the shortest
/// that Linux grants.
///
/// The scheduler lets the thread with the earliest end of its slice go first. So a thread with a
/// short slice need not wait until a password is hashed for 3 ms, the usual slice. Its share of the
/// core remains the same.
const SLICE: Duration = Duration::from_micros(100);

/// Lowers the priority of this thread and of those that it starts later. Linux has a priority for
/// each thread.
pub fn yield_to_traffic() {
    let _ = rustix::process::nice(NICE);
}

/// Asks for short slices, so that this thread gets a core soon after it wakes up. Takes effect from
/// Linux 6.12 on. The nice value and the policy of the thread remain.
pub fn wake_soon() {
    let Ok(nice) = rustix::process::nice(0) else { return };
    let attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: 0,
        sched_flags: libc::SCHED_FLAG_KEEP_POLICY as u64,
        sched_nice: nice,
        sched_priority: 0,
        sched_runtime: SLICE.as_nanos() as u64,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the kernel reads the structure, whose first field tells its size, and keeps no
    // pointer to it. 0 names the calling thread. The other 0 is for no flags.
    #[expect(unsafe_code, reason = "neither the standard library nor rustix has this system call")]
    let _ = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}
