//! The HTTP service of the operator that decides logins, in the form that EMQX gave it.
//!
//! - [`request`]: the request to the service.
//! - [`answer`]: the answer of the service.
//! - [`headers`]: the file with further headers of the request.
//! - [`breaker`]: the pause after failures.
//!
//! The functions here are pure. `broker::authenticator` has the thread, the connections and the
//! clock.

pub mod answer;
pub mod breaker;
pub mod headers;
pub mod request;
