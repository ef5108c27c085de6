//! Spans in the messages of the protocol.

use super::attributes::scope;
use crate::log::tap::HasSize;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;

/// Returns the request with these spans.
pub(super) fn request(spans: &[Span], resource: &Resource) -> ExportTraceServiceRequest {
    let scope_spans = vec![ScopeSpans { scope: scope(), spans: spans.to_vec(), ..ScopeSpans::default() }];
    let resource = Some(resource.clone());
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans { resource, scope_spans, ..ResourceSpans::default() }],
    }
}

impl HasSize for Span {
    fn size(&self) -> usize {
        size_of::<Span>() + 2 * self.encoded_len()
    }
}
