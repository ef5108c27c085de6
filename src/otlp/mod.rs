//! The export of metrics, log lines and message traces by OTLP, the protocol of OpenTelemetry, over
//! HTTP with protobuf. Only with the cargo feature `otlp`; without it a configuration that names a
//! collector is refused.
//!
//! One thread of a low priority does it all, and nothing waits for it. Each signal goes its own
//! way, so a collector that takes no traces still gets metrics. Every queue on the way has a bound,
//! and what is lost is counted ([`crate::broker::export_counts`]).
//!
//! The messages of the protocol come from the crate `opentelemetry-proto`. The SDK of OpenTelemetry
//! is not used. The SDK has no instrument for histograms that are counted elsewhere, needs a second
//! list of the metrics, and does not count the records that its queues drop.
//!
//! | file | concern |
//! |---|---|
//! | `exporter` | the thread, its start, its end and its configuration |
//! | `pump` | records from a queue to the collector, with retries |
//! | `collector` | one collector: its address, its files, and a request to it |
//! | `metrics`, `logs`, `spans` | each signal in the messages of the protocol |
//! | `message_spans` | the steps of traced messages become spans; pure |
//! | `attributes` | what the signals have in common |

#[cfg(feature = "otlp")]
mod attributes;
#[cfg(feature = "otlp")]
mod collector;
#[cfg(feature = "otlp")]
mod exporter;
#[cfg(feature = "otlp")]
mod logs;
#[cfg(feature = "otlp")]
mod message_spans;
#[cfg(feature = "otlp")]
mod metrics;
#[cfg(feature = "otlp")]
mod pump;
#[cfg(feature = "otlp")]
mod spans;

use crate::auth::file_error::FileError;
use crate::config::Otlp;
use crate::net::tls::config_error::TlsConfigError;
#[cfg(feature = "otlp")]
pub use exporter::{Exporter, MetricsSource};
use std::io;

/// The reasons why nothing can be exported with a configuration.
#[derive(Debug, thiserror::Error)]
pub enum OtlpError {
    /// The build has no export.
    #[error(
        "the export by OTLP needs a build with the cargo feature otlp: cargo build --release --features otlp"
    )]
    NotBuilt,
    /// The authorities of the collector cannot be used.
    #[error("{0}")]
    Ca(TlsConfigError),
    /// The host is no name that a certificate can have.
    #[error("the host is no name or address that a certificate can have")]
    Name,
    /// The headers cannot be used.
    #[error("{0}")]
    Headers(FileError),
    /// The system refuses the thread or its event loop.
    #[error("the export by OTLP cannot start: {0}")]
    Thread(#[from] io::Error),
}

impl OtlpError {
    /// Returns the key of the configuration that is at fault.
    pub fn key(&self) -> &'static str {
        match self {
            OtlpError::Ca(_) => "otlp.ca",
            OtlpError::Headers(_) => "otlp.headers",
            OtlpError::NotBuilt | OtlpError::Name | OtlpError::Thread(_) => "otlp.endpoint",
        }
    }

    /// Returns the text with the key before it.
    pub fn with_key(&self) -> String {
        format!("{}: {self}", self.key())
    }
}

/// Checks that this build can export with a configuration, and reads the files that it names.
///
/// # Errors
/// The build has no export, or a file cannot be used.
pub fn check(config: &Otlp) -> Result<(), OtlpError> {
    #[cfg(feature = "otlp")]
    return collector::Collector::load(config).map(drop);
    #[cfg(not(feature = "otlp"))]
    match config.collector() {
        Some(_) => Err(OtlpError::NotBuilt),
        None => Ok(()),
    }
}
