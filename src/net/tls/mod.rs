//! TLS 1.2 (RFC 5246) and TLS 1.3 (RFC 8446), server side, by rustls.
//!
//! `engine` is the only module that names rustls's connection types, because their API changes in
//! the next version of rustls.

pub mod engine;
#[cfg(test)]
pub(crate) mod test_pki;
