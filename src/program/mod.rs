//! The parts of the program, without the arguments, which are in `main.rs`.
//!
//! | file | concern |
//! |---|---|
//! | `output` | standard output, standard error and the exit codes |
//! | `settings` | the flags for the configuration, and its layers |
//! | `data` | the data directory |
//! | `banner`, `administration` | the message of the start, and the start of the HTTP interface |
//! | `export` | the start of the export by OTLP |
//! | `serve`, `stop` | the run of the broker, and the bound of its end |
//! | `cluster`, `engine` | the broker as a node of a cluster, and `homing cluster`; what keeps its log |
//! | `control` | `homing ctl` and `homing trace` |
//! | `doctor` | `homing doctor` |
//! | `manual` | the manual page, and the completions of shells |
//! | `commands` | the other commands |

#[cfg(feature = "admin")]
pub(crate) mod administration;
pub(crate) mod banner;
pub(crate) mod cluster;
pub(crate) mod commands;
#[cfg(feature = "admin")]
pub(crate) mod control;
pub(crate) mod data;
pub(crate) mod doctor;
mod engine;
#[cfg(feature = "otlp")]
pub(crate) mod export;
pub(crate) mod manual;
pub(crate) mod output;
pub(crate) mod serve;
pub(crate) mod settings;
mod stop;
