//! The name, the socket, TLS and WebSocket of another broker.

use super::websocket::WebSocketStream;
use crate::auth::file_error::{FileError, LARGEST_SECRET};
use crate::broker::connection::{FarCodecs, FarSocket};
use crate::config::{Bridge, BridgeAddress};
use crate::file_thread::{FileThread, NotRead};
use crate::framed::upgrade_to_websocket;
use crate::host::{self, ConnectError, Names};
use crate::net::tls::client::client_config;
use crate::net::tls::config_error::TlsConfigError;
use crate::net::tls::settings::CertificateFiles;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use zeroize::Zeroizing;

/// A stream to another broker, with its TLS.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Stream for T {}

/// A connection to another broker.
pub(super) struct Dialled {
    pub(super) stream: Box<dyn Stream>,
    pub(super) peer: SocketAddr,
    /// The socket of the stream.
    pub(super) far: Arc<FarSocket>,
}

/// The reason why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum DialError {
    #[error("{0}")]
    Files(#[from] NotRead),
    #[error("password_file {0}")]
    Password(#[from] FileError),
    #[error("{0}")]
    Tls(#[from] TlsConfigError),
    #[error("{0}")]
    Host(#[from] ConnectError),
    #[error("{0:?} is no name that a certificate can have")]
    ServerName(String),
    #[error("the TLS handshake failed: {0}")]
    Handshake(io::Error),
    #[error("the WebSocket upgrade failed: {0}")]
    Upgrade(io::Error),
}

/// What the files of a bridge say. Read before each attempt, so that a renewed certificate or
/// password counts without a reload.
#[derive(Debug, Default)]
pub(super) struct Secrets {
    /// `None` if the address has no TLS.
    tls: Option<Arc<ClientConfig>>,
    /// `None` without a password.
    password: Option<Zeroizing<Vec<u8>>>,
}

impl Secrets {
    /// Returns the password.
    pub(super) fn password(&self) -> Option<&[u8]> {
        self.password.as_ref().map(|password| password.as_slice())
    }
}

/// Reads the files that an attempt needs, on a thread of their own.
pub(super) async fn read_files(
    bridge: &Bridge,
    address: &BridgeAddress,
    thread: &FileThread,
) -> Result<Secrets, DialError> {
    if !address.is_tls && bridge.password_file.is_none() {
        return Ok(Secrets::default());
    }
    thread.run(reading(bridge, address.is_tls)).await?
}

/// Reads the files of a bridge, and keeps nothing. May hang as long as a file does.
///
/// # Errors
/// What is wrong with a file.
pub fn check_files(bridge: &Bridge) -> Result<(), String> {
    let is_tls = bridge.addresses.iter().flatten().any(|address| address.is_tls);
    reading(bridge, is_tls)().map(drop).map_err(|error| error.to_string())
}

/// Returns what reads the files of a bridge.
fn reading(bridge: &Bridge, is_tls: bool) -> impl FnOnce() -> Result<Secrets, DialError> + Send + use<> {
    let path = |file: &Option<String>| file.as_ref().map(PathBuf::from);
    let (password_file, ca) = (path(&bridge.password_file), path(&bridge.ca));
    let alpn = bridge.alpn.clone().unwrap_or_default();
    let identity = bridge.certificate.as_ref().zip(bridge.key.as_ref()).map(|(certificate, key)| {
        CertificateFiles { certificate: certificate.into(), chain: None, key: key.into() }
    });
    move || {
        let mut tls = is_tls.then(|| client_config(ca.as_deref(), identity.as_ref())).transpose()?;
        if let Some(config) = &mut tls {
            Arc::make_mut(config).alpn_protocols = alpn.into_iter().map(String::into_bytes).collect();
        }
        let password = password_file.map(|file| read_password(&file)).transpose()?;
        Ok(Secrets { tls, password })
    }
}

fn read_password(file: &Path) -> Result<Zeroizing<Vec<u8>>, DialError> {
    let mut password = Zeroizing::new(FileError::read_within(file, LARGEST_SECRET)?);
    for end in [b'\n', b'\r'] {
        if password.last() == Some(&end) {
            password.pop();
        }
    }
    Ok(password)
}

/// Connects to an address, with its TLS and its WebSocket. The caller bounds the time.
pub(super) async fn connect(
    bridge: &Bridge,
    address: &BridgeAddress,
    secrets: &Secrets,
    names: &Names,
) -> Result<Dialled, DialError> {
    let (socket, peer) = host::connect(names, &address.host, address.port).await?;
    let codecs = match (&secrets.tls, &address.websocket_path) {
        (None, None) => FarCodecs::None,
        _ => FarCodecs::Some,
    };
    let far = Arc::new(FarSocket::new(&socket, codecs).map_err(ConnectError::Connect)?);
    let mut stream: Box<dyn Stream> = match secrets.tls.clone() {
        Some(config) => {
            let name = bridge.server_name.as_deref().unwrap_or(&address.host);
            let name =
                ServerName::try_from(name.to_owned()).map_err(|_| DialError::ServerName(name.to_owned()))?;
            let connecting = TlsConnector::from(config).connect(name, socket);
            Box::new(connecting.await.map_err(DialError::Handshake)?)
        }
        None => Box::new(socket),
    };
    if let Some(path) = &address.websocket_path {
        let upgraded = upgrade_to_websocket(&mut stream, &address.authority(), path).await;
        upgraded.map_err(DialError::Upgrade)?;
        stream = Box::new(WebSocketStream::new(stream));
    }
    Ok(Dialled { stream, peer, far })
}
