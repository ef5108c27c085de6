//! The start of the export by OTLP beside the broker.

use super::administration::AdminPart;
use homing::broker::Broker;
use homing::config::Otlp;
use homing::otlp::{Exporter, OtlpError};
use std::sync::Arc;

/// The export. Dropping the value sends what waits, for a second at most.
pub(crate) struct ExportPart(Arc<Exporter>);

impl ExportPart {
    /// Starts the export, if the configuration names a collector. Call it before everything else,
    /// so that the log lines of a start that fails are exported, too.
    ///
    /// # Errors
    /// A file cannot be used, or the system refuses the thread.
    pub(crate) fn start(config: &Otlp) -> Result<ExportPart, OtlpError> {
        Exporter::start(config).map(|exporter| ExportPart(Arc::new(exporter)))
    }

    /// Notes that clients can connect. The export follows each reload from now on.
    pub(crate) fn started(&self, broker: &Broker, admin: &AdminPart) {
        let observer = broker.observer();
        self.0.started(&observer, admin.metrics(observer.clone()));
        // The watcher may outlive the broker, and must not keep the export from its end.
        let exporter = Arc::downgrade(&self.0);
        broker.watch_settings(Box::new(move |config| {
            if let Some(exporter) = exporter.upgrade() {
                exporter.put_in_force(&config.otlp);
            }
        }));
    }
}
