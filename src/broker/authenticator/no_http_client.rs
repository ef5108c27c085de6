//! Stands in for the HTTP client in a build without the feature `http-auth`.

use super::http_service::{HttpFailure, HttpReply, HttpSetupError};
use crate::auth::http::headers::HttpHeaders;
use crate::config::ServiceUrl;
use std::fmt;
use std::path::Path;
use zeroize::Zeroizing;

/// A service that cannot be asked. There is no value of this type.
pub(crate) enum NoHttpTarget {}

/// The name of the type that does ask, in a build with the feature.
pub(crate) use NoHttpTarget as HttpTarget;

impl NoHttpTarget {
    /// Refuses the service. Errors: Always: this build has no HTTP client.
    pub(crate) fn new(
        _: ServiceUrl,
        _: Option<&Path>,
        _: &HttpHeaders,
    ) -> Result<NoHttpTarget, HttpSetupError> {
        Err(HttpSetupError::NotBuilt)
    }

    pub(super) async fn ask(&self, _: Zeroizing<Vec<u8>>) -> Result<HttpReply, HttpFailure> {
        match *self {}
    }
}

impl fmt::Display for NoHttpTarget {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}
