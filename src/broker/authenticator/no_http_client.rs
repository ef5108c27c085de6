//! Stands in for the HTTP client in a build without the feature `http-auth`.

use super::http_service::{HttpFailure, HttpReply, HttpSetupError};
use crate::auth::http::headers::HttpHeaders;
use crate::config::ServiceUrl;
use std::convert::Infallible;
use std::fmt;
use std::path::Path;
use zeroize::Zeroizing;

/// A service that cannot be asked. There is no value of this type.
pub(crate) struct HttpTarget(Infallible);

impl HttpTarget {
    /// Refuses the service.
    ///
    /// # Errors
    /// Always: this build has no HTTP client.
    pub(crate) fn new(
        _: ServiceUrl,
        _: Option<&Path>,
        _: &HttpHeaders,
    ) -> Result<HttpTarget, HttpSetupError> {
        Err(HttpSetupError::NotBuilt)
    }

    pub(super) async fn ask(&self, _: Zeroizing<Vec<u8>>) -> Result<HttpReply, HttpFailure> {
        match self.0 {}
    }
}

impl fmt::Display for HttpTarget {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {}
    }
}
