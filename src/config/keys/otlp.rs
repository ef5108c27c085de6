//! The keys of `[otlp]`.

use super::paths::path_of;
use crate::config::choices::OtlpSignal;
use crate::config::rule::{ValueType, days, millis, seconds};
use crate::config::service_url::ServiceUrl;
use crate::config::table::section;
use crate::config::value;
use crate::named_enum::Named;
use std::path::PathBuf;
use std::time::Duration;

section! {
    /// The export of metrics, log lines and message traces by OTLP over HTTP with protobuf. OTLP is
    /// the protocol of OpenTelemetry. It needs a build with the cargo feature `otlp`. docs/otlp.md
    /// has the details.
    [otlp] Otlp, scope: Node {
        /// The address of a collector. Metrics go to its path `/v1/metrics`, log lines to
        /// `/v1/logs`, and traces to `/v1/traces`. A collector that is away, slow or hangs delays
        /// nothing: what finds no room is dropped, the oldest first, and counted.
        endpoint: String = String::new(),
            ValueType::Checked(is_endpoint, "the address of a collector that speaks OTLP over HTTP (not gRPC), such as \"http://127.0.0.1:4318\", without a user name, a query and the path of a signal").or("off", "nothing is exported"),
            reload: Live,
            elsewhere: "OTEL_EXPORTER_OTLP_ENDPOINT, EMQX `opentelemetry.exporter.endpoint`";
        /// The signals that are exported. "metrics": those of /metrics. "logs": the lines that
        /// `log.level` lets through. "traces": the way of each message that a trace follows.
        signals: Vec<OtlpSignal> = OtlpSignal::ALL.to_vec(),
            ValueType::SomeOf(OtlpSignal::NAMES).only(),
            reload: Live,
            elsewhere: "EMQX `opentelemetry.metrics.enable`, `logs.enable` and `traces.enable`";
        /// The authorities that sign the certificate of the collector, in PEM or DER. SIGHUP reads
        /// the file again.
        ca: String = String::new(),
            ValueType::Path.or("off", "the authorities that the system trusts"),
            reload: Live,
            elsewhere: "OTEL_EXPORTER_OTLP_CERTIFICATE, EMQX `opentelemetry.exporter.ssl_options.cacertfile`";
        /// A file with further headers of each request, one `Name: value` on a line. A token for
        /// the collector belongs there. SIGHUP reads the file again.
        headers: String = String::new(),
            ValueType::Path.or("off", "no further headers"),
            reload: Live,
            elsewhere: "OTEL_EXPORTER_OTLP_HEADERS, EMQX `opentelemetry.exporter.headers`";
        /// The interval at which the metrics are exported. Log lines and traces go every second.
        interval: Duration = Duration::from_secs(10),
            ValueType::Duration(seconds(1), days(1)).only(),
            reload: Live,
            why: "It is the default of EMQX, too.",
            elsewhere: "OTEL_METRIC_EXPORT_INTERVAL, EMQX `opentelemetry.metrics.interval`";
        /// The time within which the collector has to answer a request.
        timeout: Duration = Duration::from_secs(10),
            ValueType::Duration(millis(100), seconds(60)).only(),
            reload: Live,
            why: "It is the default of the standard.",
            elsewhere: "OTEL_EXPORTER_OTLP_TIMEOUT";
        /// The resource attribute `service.name` of all that is exported.
        service_name: String = "homing".to_owned(),
            ValueType::Checked(value::is_label, "a text of 1 to 256 characters").only(),
            reload: Live,
            elsewhere: "OTEL_SERVICE_NAME";
        /// The resource attribute `service.instance.id`, which tells the brokers of one service
        /// apart. It stays the same over restarts, so that a series of a metric goes on.
        instance_id: String = String::new(),
            ValueType::Checked(value::is_label, "a text of 1 to 256 characters").or("auto", "the name of the machine"),
            reload: Live,
            why: "Set it where two brokers run on one machine.",
            elsewhere: "EMQX: the name of the node";
    }
}

impl Otlp {
    /// Returns the address of the collector; `None` if nothing is exported.
    pub fn collector(&self) -> Option<ServiceUrl> {
        ServiceUrl::parse(&self.endpoint)
    }

    /// Returns true if the signal is exported.
    pub fn exports(&self, signal: OtlpSignal) -> bool {
        !self.endpoint.is_empty() && self.signals.contains(&signal)
    }

    /// Returns the names of the exported signals.
    pub fn signal_names(&self) -> Vec<&'static str> {
        self.signals.iter().map(|signal| signal.name()).collect()
    }

    /// Returns the path of the authorities of the collector; `None` for those of the system.
    pub fn ca_path(&self) -> Option<PathBuf> {
        path_of(&self.ca)
    }

    /// Returns the path of the further headers of requests; `None` without them.
    pub fn headers_path(&self) -> Option<PathBuf> {
        path_of(&self.headers)
    }
}

/// Returns true for the base address of a collector. A query may be a secret, and would end up
/// behind the path of a signal.
fn is_endpoint(value: &config::Value) -> bool {
    let url = value::text(value).and_then(ServiceUrl::parse);
    url.is_some_and(|url| {
        !url.target.contains('?') && !OtlpSignal::ALL.iter().any(|signal| url.target.contains(signal.path()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Sources;

    #[test]
    fn a_bad_endpoint_is_refused_with_what_would_be_right() {
        let refusal = |text: &str| {
            let loaded = Sources::new().assignment(&format!("otlp.endpoint={text}")).load();
            loaded.map(drop).expect_err(text).to_string()
        };
        for text in ["127.0.0.1:4318", "grpc://collector:4317", "http://", "http://collector:4318/v1/metrics"]
        {
            let refusal = refusal(text);
            assert!(refusal.contains(&format!("otlp.endpoint = \"{text}\"")), "{refusal}");
            assert!(refusal.contains("such as \"http://127.0.0.1:4318\""), "{refusal}");
        }
        for text in ["http://ann:secret@collector:4318", "https://collector/?key=secret"] {
            let refusal = refusal(text);
            assert!(refusal.contains("otlp.endpoint") && !refusal.contains("secret"), "{refusal}");
        }
    }

    #[test]
    fn a_collector_may_have_a_path_and_each_signal_is_chosen() {
        let loaded = Sources::new()
            .assignment("otlp.endpoint=https://collector.example/otlp/")
            .assignment("otlp.signals=logs")
            .load()
            .expect("an address");
        let otlp = loaded.config.otlp;
        assert!(otlp.exports(OtlpSignal::Logs) && !otlp.exports(OtlpSignal::Metrics));
        assert_eq!(&*otlp.collector().expect("a collector").target, "/otlp/");
        let off = Otlp::default();
        assert!(off.collector().is_none() && OtlpSignal::ALL.iter().all(|signal| !off.exports(*signal)));
    }
}
