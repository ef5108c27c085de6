//! The reasons why a broker does not start.

use super::authenticator::http_service::HttpSetupError;
use super::bind::BindError;
use crate::auth::file_error::FileError;
use crate::store::StoreError;
use std::io;

/// The reason why a broker does not start, in one line that names the address or the configuration
/// key.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The system refuses a listener.
    #[error("{0} (network.listen, --listen, or [[listeners]])")]
    Bind(#[from] BindError),
    /// A listener that was made in code has no address.
    #[error("listener {listener} has no address")]
    NoAddress {
        /// The name of the listener.
        listener: Box<str>,
    },
    /// Files or settings of the TLS of some listeners cannot be used. The text names each listener
    /// with its key of the configuration.
    #[error("{0}")]
    Tls(String),
    /// The system refuses a thread or an event loop.
    #[error("cannot start a thread or its event loop: {0} (runtime.threads sets how many there are)")]
    Thread(#[from] io::Error),
    /// The store cannot be opened or read.
    #[error("the store cannot be used: {0} (store.path, or --data-dir)")]
    Store(#[from] StoreError),
    /// The password file cannot be used.
    #[error("{0} (auth.password_file)")]
    Passwords(FileError),
    /// The password file of a listener cannot be used.
    #[error("{0} (password_file of [[listeners]])")]
    ListenerPasswords(FileError),
    /// The keys of tokens cannot be used.
    #[error("{0} (auth.jwt_keys)")]
    TokenKeys(FileError),
    /// The HTTP service cannot be asked.
    #[error("{0}")]
    HttpService(HttpSetupError),
    /// The headers of requests to the HTTP service cannot be used.
    #[error("{0} (auth.http_headers)")]
    HttpHeaders(FileError),
    /// The ACL file cannot be used.
    #[error("{0} (acl.file)")]
    Acl(FileError),
    /// The ACL file of a listener cannot be used.
    #[error("{0} (acl_file of [[listeners]])")]
    ListenerAcl(FileError),
    /// The file of bans cannot be used.
    #[error("{0} (bans.file)")]
    Bans(FileError),
    /// A thread ended while the broker started. The log has the reason.
    #[error("a thread of the broker ended while it started; the log has the reason")]
    Died,
}
