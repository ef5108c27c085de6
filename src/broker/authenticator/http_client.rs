//! The HTTP service that decides about logins, as the service that requests go to.

use super::http_service::{HttpFailure, HttpReply, HttpSetupError};
use crate::auth::http::headers::HttpHeaders;
use crate::config::ServiceUrl;
use crate::http_client::{self, RequestError, TargetError, TlsFiles};
use bytes::Bytes;
use std::fmt;
use std::path::Path;
use zeroize::Zeroizing;

/// One service, with its connections.
pub(crate) struct HttpTarget(http_client::HttpTarget);

impl HttpTarget {
    /// Returns the service at `url`. `ca` has the authorities that its certificate may come from;
    /// without it those of the system count. Errors: the authorities cannot be read, or the host is
    /// no name that a certificate can have.
    pub(crate) fn new(
        url: ServiceUrl,
        ca: Option<&Path>,
        headers: &HttpHeaders,
    ) -> Result<HttpTarget, HttpSetupError> {
        let files = TlsFiles { ca, identity: None };
        let target = http_client::HttpTarget::new(url, files, headers, "application/json");
        target.map(HttpTarget).map_err(|error| match error {
            TargetError::Ca(error) => HttpSetupError::Ca(error),
            TargetError::Name => HttpSetupError::Name,
        })
    }

    /// Sends a body, and returns the status and the body of the answer. A request that comes twice
    /// does no harm, because it only asks.
    ///
    /// # Errors
    /// There is no answer, or it is too large. Never times out: the caller bounds the time.
    pub(super) async fn ask(&self, body: Zeroizing<Vec<u8>>) -> Result<HttpReply, HttpFailure> {
        let reply = self.0.ask(Bytes::from_owner(body)).await;
        let reply = reply.map_err(|error| match error {
            RequestError::Tls(_) => HttpFailure::Request(format!("{error} (auth.http_ca)")),
            _ => HttpFailure::Request(error.to_string()),
        })?;
        Ok(HttpReply { status: reply.status, body: reply.body })
    }
}

impl fmt::Display for HttpTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
