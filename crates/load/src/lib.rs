//! `homing load`: a load tester that works against any MQTT broker. The tester also checks that no
//! message is lost, duplicated or out of order. The MQTT client is rumqttc.
//!
//! Every message carries its publisher, its sequence number and the time at which it was due. So
//! loss, duplicates and disorder are counted, not assumed. The load tester shares no code with the
//! broker but what `homing-core` has of MQTT: names, the rule for topic names, and the headers of
//! WebSocket. TLS and the priority of threads come from the program around it ([`HostProgram`]).
//!
//! | file | concern |
//! |---|---|
//! | `command` | a run from its arguments to its exit code |
//! | `args` | the command line |
//! | `plan` | the meaning of the arguments, or the reason why they are refused |
//! | `pattern` | client ids and topics with variables (pure) |
//! | `credentials` | user names and passwords |
//! | `client` | rumqttc for 3.1.1 and 5.0, behind one interface; TLS and WebSocket |
//! | `verify` | the deliveries: messages sent against messages received (pure) |
//! | `flow` | the closed loop of one publisher (pure) |
//! | `crew` | the threads of a run: start, stop, and the board with their slots of time |
//! | `run` | the state that the clients of one thread share |
//! | `clients`, `subscriber` | the clients as tasks; a subscriber that leaves and returns |
//! | `withhold` | the plan by which acknowledgements are withheld (pure) |
//! | `watch`, `pace`, `clock` | the progress and the end of a run; a precise timer; the clock |
//! | `record`, `process` | latency and rate; CPU and memory of the broker |
//! | `progress`, `csv` | the display and the file during a run |
//! | `report`, `add` | the report at the end; the sum of several reports |
//! | `table`, `plot` | the report for people, and its picture |
//! | `scenario` | one file for each scenario |
//!
//! Each thread has a runtime and clients of its own, and every message stays in one thread. Every
//! queue is bounded by a window. Two things grow with time, up to a limit: one bit for each message
//! behind a gap (`verify::Seen`), and one slot for each quarter of a second.

#![warn(missing_docs, unreachable_pub)]
#![warn(clippy::unwrap_used, reason = "a panic is no report")]

mod add;
mod args;
mod client;
mod clients;
mod clock;
mod command;
mod credentials;
mod crew;
mod csv;
mod flow;
mod pace;
mod pattern;
mod plan;
mod plot;
mod process;
mod progress;
mod record;
mod refused;
mod report;
mod run;
mod scenario;
mod subscriber;
mod table;
mod trouble;
mod verify;
mod watch;
mod withhold;

pub use args::{LoadArguments, one_line};
pub use command::{ClientCertificate, ClientTls, HostProgram, run};
