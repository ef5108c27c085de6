//! The bound of a stop.

use homing::log::stderr;
use std::thread::Builder;
use std::time::Duration;
use tracing::error;

/// Time in which a stop ends by itself: 14 s for the broker, and 9 s for a node of a cluster that ends
/// its lease and stores its last frame and row.
const LONGEST: Duration = Duration::from_secs(25);

/// Ends the process if it has not ended by itself in [`LONGEST`]: a thread that hangs in a call to the
/// system, and for which another one waits, would keep it for ever. Called when a stop begins.
pub(crate) fn bound() {
    let end = || {
        std::thread::sleep(LONGEST);
        error!(
            event = "broker.stop_hangs",
            "a thread hangs, and does not let the process end: exiting without it after {LONGEST:?}"
        );
        stderr::flush();
        std::process::exit(1);
    };
    // Without this thread a stop has no bound, and still ends by itself where nothing hangs.
    let _ = Builder::new().name("homing-stop".into()).spawn(end);
}
