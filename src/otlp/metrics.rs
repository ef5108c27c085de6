//! The families of /metrics in the messages of the protocol.
//!
//! The names are those of /metrics, with the units beside them. So Prometheus has the same names by
//! a scrape and by OTLP, and one board and one set of alerts fit both.

use super::attributes::{attribute, scope, text};
use crate::admin::metrics::text::{Family, Kind, Number, Reading, Sample};
use crate::time::histogram::{BUCKETS, Distribution, bound_ms};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics,
    ScopeMetrics, Sum,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use std::time::Duration;

/// The times of all points, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(super) struct PointTimes {
    /// The start of the process, when every counter was 0.
    pub(super) start: u64,
    pub(super) now: u64,
}

/// Returns the request with all families, and the number of its points.
pub(super) fn request(
    families: Vec<Family>,
    times: PointTimes,
    resource: &Resource,
) -> (ExportMetricsServiceRequest, u64) {
    let points = families.iter().map(|family| family.samples.len() as u64).sum();
    let metrics = families.into_iter().map(|family| metric(family, times)).collect();
    let scope_metrics = vec![ScopeMetrics { scope: scope(), metrics, ..ScopeMetrics::default() }];
    let resource = Some(resource.clone());
    let resource_metrics = vec![ResourceMetrics { resource, scope_metrics, ..ResourceMetrics::default() }];
    (ExportMetricsServiceRequest { resource_metrics }, points)
}

fn metric(family: Family, times: PointTimes) -> Metric {
    let Family { kind, name, help, samples } = family;
    let aggregation_temporality = AggregationTemporality::Cumulative.into();
    let data = match kind {
        Kind::Counter => Data::Sum(Sum {
            data_points: numbers(samples, times),
            aggregation_temporality,
            is_monotonic: true,
        }),
        // A gauge has no beginning.
        Kind::Gauge => Data::Gauge(Gauge { data_points: numbers(samples, PointTimes { start: 0, ..times }) }),
        Kind::Histogram => {
            Data::Histogram(Histogram { data_points: distributions(samples, times), aggregation_temporality })
        }
    };
    let unit = unit(&name).to_owned();
    Metric { name, description: help, unit, data: Some(data), ..Metric::default() }
}

/// Returns the unit that a name says, as UCUM writes it; empty for a count.
fn unit(name: &str) -> &'static str {
    let name = name.strip_suffix("_total").unwrap_or(name);
    match name {
        _ if name.ends_with("_seconds") => "s",
        _ if name.ends_with("_bytes") || name.contains("_bytes_") => "By",
        _ if name.ends_with("_ratio") => "1",
        _ => "",
    }
}

fn labels(labels: Vec<(String, String)>) -> Vec<KeyValue> {
    labels.into_iter().map(|(name, value)| attribute(name, text(value))).collect()
}

fn numbers(samples: Vec<Sample>, times: PointTimes) -> Vec<NumberDataPoint> {
    let point = |sample: Sample| {
        let Reading::Single(number) = sample.reading else { return None };
        let value = match number {
            Number::Whole(value) => Value::AsInt(i64::try_from(value).unwrap_or(i64::MAX)),
            Number::Real(value) => Value::AsDouble(value),
        };
        Some(NumberDataPoint {
            attributes: labels(sample.labels),
            start_time_unix_nano: times.start,
            time_unix_nano: times.now,
            value: Some(value),
            ..NumberDataPoint::default()
        })
    };
    samples.into_iter().filter_map(point).collect()
}

fn distributions(samples: Vec<Sample>, times: PointTimes) -> Vec<HistogramDataPoint> {
    let bounds: Vec<f64> =
        (0..BUCKETS).filter_map(bound_ms).map(|ms| Duration::from_millis(ms).as_secs_f64()).collect();
    let point = |sample: Sample| {
        let Reading::Distribution(Distribution { counts, sum }) = sample.reading else { return None };
        Some(HistogramDataPoint {
            attributes: labels(sample.labels),
            start_time_unix_nano: times.start,
            time_unix_nano: times.now,
            count: counts.iter().sum(),
            sum: Some(sum.as_secs_f64()),
            bucket_counts: counts.to_vec(),
            explicit_bounds: bounds.clone(),
            ..HistogramDataPoint::default()
        })
    };
    samples.into_iter().filter_map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::metrics::text::MetricsText;

    fn metrics(text: MetricsText) -> Vec<Metric> {
        let times = PointTimes { start: 1, now: 2 };
        let (request, _) = request(text.into_families(), times, &Resource::default());
        request
            .resource_metrics
            .into_iter()
            .flat_map(|one| one.scope_metrics)
            .flat_map(|one| one.metrics)
            .collect()
    }

    #[test]
    fn a_counter_is_a_monotonic_sum_and_a_gauge_has_no_beginning() {
        let mut text = MetricsText::default();
        text.by(Kind::Counter, "bytes_sent_total", "to", "Bytes.", [("a", 3_u64), ("b", u64::MAX)]);
        text.single(Kind::Gauge, "limit_used_ratio", "Used.", 0.5);
        let [counter, gauge] = &metrics(text)[..] else { panic!("two metrics") };
        assert_eq!((counter.name.as_str(), counter.unit.as_str()), ("homing_bytes_sent_total", "By"));
        let Some(Data::Sum(sum)) = &counter.data else { panic!("{counter:?}") };
        assert!(sum.is_monotonic && sum.aggregation_temporality() == AggregationTemporality::Cumulative);
        let values: Vec<_> = sum.data_points.iter().map(|point| point.value).collect();
        assert_eq!(values, [Some(Value::AsInt(3)), Some(Value::AsInt(i64::MAX))]);
        assert_eq!(sum.data_points[0].attributes, [attribute("to", super::text("a"))]);
        assert_eq!((sum.data_points[0].start_time_unix_nano, sum.data_points[0].time_unix_nano), (1, 2));
        let Some(Data::Gauge(Gauge { data_points })) = &gauge.data else { panic!("{gauge:?}") };
        assert_eq!((gauge.unit.as_str(), data_points[0].start_time_unix_nano), ("1", 0));
        assert_eq!(data_points[0].value, Some(Value::AsDouble(0.5)));
    }

    #[test]
    fn a_histogram_has_one_more_bucket_than_bounds_and_counts_that_do_not_grow() {
        let mut histogram = crate::time::histogram::Histogram::default();
        [0, 1, 1, u64::MAX / 2].into_iter().for_each(|ms| histogram.add(ms));
        let mut text = MetricsText::default();
        text.family(Kind::Histogram, "wait_seconds", "Waits.").histogram(None, &histogram.distribution());
        let [metric] = &metrics(text)[..] else { panic!("one metric") };
        let Some(Data::Histogram(Histogram { data_points, .. })) = &metric.data else { panic!("{metric:?}") };
        let point = &data_points[0];
        assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
        assert_eq!((point.count, point.bucket_counts[0], point.bucket_counts[1]), (4, 1, 2));
        assert_eq!((point.explicit_bounds[0], metric.unit.as_str()), (0.001, "s"));
        assert_eq!(point.bucket_counts.last(), Some(&1));
    }

    #[test]
    fn the_unit_is_that_of_the_name() {
        let names =
            ["homing_store_bytes", "homing_publish_bytes_sent_total", "homing_ack_seconds", "a_ratio"];
        assert_eq!(names.map(unit), ["By", "By", "s", "1"]);
        assert_eq!(["homing_sessions", "homing_packets_sent_total"].map(unit), ["", ""]);
    }
}
