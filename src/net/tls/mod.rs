//! TLS 1.2 (RFC 5246) and TLS 1.3 (RFC 8446), by rustls.
//!
//! | module | content |
//! |---|---|
//! | [`settings`] | the settings of one listener, as plain values |
//! | [`config`] | files and settings to a [`config::TlsServer`] |
//! | [`config_error`], [`facts`] | what is wrong with a file, and the dates in it |
//! | `chain` | the chain of a certificate, completed up to its root |
//! | [`pem`] | PEM and DER to certificates, keys and revocation lists |
//! | [`resolver`] | the certificate for a client's ClientHello |
//! | [`verify`] | the chain of a client, in the handshake and after it |
//! | [`identity`] | the user name in a client's certificate |
//! | [`reload`] | the TLS of all listeners, all new or nothing |
//! | [`live`] | certificates that change under an acceptor that stays |
//! | [`engine`] | one connection: handshake, records, alerts |
//! | [`client`] | the client side, for the commands that connect to a broker |
//!
//! `engine` is the only module of the broker that names rustls's connection types, because their
//! API changes in the next version of rustls. [`config`] alone names the crypto provider.

mod chain;
pub mod client;
pub mod config;
pub mod config_error;
pub mod engine;
pub mod facts;
pub mod identity;
pub mod live;
pub mod pem;
pub mod reload;
pub mod resolver;
pub mod settings;
#[cfg(test)]
pub(crate) mod test_pki;
pub mod verify;
