//! JSON Web Tokens (RFC 7519), signed by somebody whom the operator trusts.
//!
//! - [`algorithm`]: the signatures, and their verification.
//! - [`keys`]: the keys of the operator, a JWK Set (RFC 7517).
//! - [`token`]: one token: its key, its signature and its claims.
//!
//! The key fixes the algorithm. A token can only repeat it. So no token can turn a public key into
//! a secret, and there is no `none`. The code uses aws-lc-rs and no JWT library, because the broker
//! needs only the compact serialization: three parts and a signature over the first two.

pub mod algorithm;
pub mod keys;
pub mod token;
