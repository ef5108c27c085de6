//! The keys of `[runtime]`, and the numbers of threads that follow from them.

use crate::config::rule::ValueType;
use crate::config::table::section;

section! {
    /// The threads of the process.
    [runtime] Runtime, scope: Node {
        /// Threads that carry connections and sessions. A session lives on one thread.
        threads: usize = 0,
            ValueType::Integer(1, 64).or("auto", "one thread for each core that this process may use"),
            why: "A second thread on one core only adds switches between threads.",
            elsewhere: "FlashMQ `thread_count`";
        /// Threads that do the handshakes of TLS, WebSocket and the PROXY protocol. These threads
        /// start only if a listener needs them, and have a lower priority than the threads of
        /// connections.
        handshake_threads: usize = 0,
            ValueType::Integer(1, 64).or("auto", "half of `threads`, at least one"),
            why: "A full handshake takes as much CPU time as thousands of messages.";
    }
}

impl Runtime {
    /// Returns the number of handshake threads: as configured or, for "auto", half of the threads.
    pub fn handshake_thread_count(&self) -> usize {
        match self.handshake_threads {
            0 => (self.thread_count() / 2).max(1),
            n => n,
        }
    }

    /// Returns the number of threads to start: as configured or, for "auto", one for each core of
    /// this process.
    pub fn thread_count(&self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            n => n,
        }
    }
}
