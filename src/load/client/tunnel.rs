//! TLS for the clients: a relay between rumqttc and the broker.
//!
//! rumqttc can do TLS, but its latest release takes a rustls-webpki with known flaws
//! (RUSTSEC-2026-0049, 0098, 0099, 0104) and a second crypto library for it. So rumqttc connects to
//! a Unix socket of this program, and a task seals and opens what passes. The tunnel costs a pass
//! through the kernel each way, and two more descriptors for each client.

use super::Broken;
use crate::load::refused::Refused;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::cell::RefCell;
use std::fmt;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::copy_bidirectional_with_sizes;
use tokio::net::{TcpStream, UnixListener};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Time for the connection and the handshake of TLS; rumqttc waits as long for CONNACK.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes that a relay holds in each direction.
const BUFFER: usize = 16 * 1024;

/// The TLS of all clients of a run.
pub(crate) struct Tunnel {
    connector: TlsConnector,
    name: ServerName<'static>,
    /// A directory that only this user can enter. The directory has a socket for each client that
    /// connects.
    folder: PathBuf,
    opened: AtomicU64,
}

/// The way of one client to the broker.
pub(super) struct Relay {
    /// The Unix socket that takes one connection.
    pub path: String,
    failure: Rc<RefCell<Option<String>>>,
}

impl Relay {
    /// Returns the reason why TLS broke the connection, if it did.
    pub(super) fn failure(&self) -> Option<String> {
        self.failure.borrow().clone()
    }
}

impl Tunnel {
    /// Makes the directory for the sockets. The certificate of the broker must have `name`.
    ///
    /// # Errors
    /// The name is no name, or the directory cannot be made.
    pub(crate) fn new(config: Arc<ClientConfig>, name: &str, run: u32) -> Result<Tunnel, Refused> {
        let name = ServerName::try_from(name.to_owned()).map_err(|_| {
            Refused(format!("--server-name must be a DNS name or an IP address, not {name:?}"))
        })?;
        let folder = std::env::temp_dir().join(format!("homing-load-{}-{run:08x}", std::process::id()));
        DirBuilder::new()
            .mode(0o700)
            .create(&folder)
            .map_err(|error| Refused(format!("--tls needs a directory, {}: {error}", folder.display())))?;
        Ok(Tunnel { connector: TlsConnector::from(config), name, folder, opened: AtomicU64::new(0) })
    }

    /// Connects to the broker, and starts a task that relays one client.
    ///
    /// # Errors
    /// The broker cannot be reached, or the handshake fails.
    pub(super) async fn open(&self, host: &str, port: u16) -> Result<Relay, Broken> {
        let stream = match tokio::time::timeout(PATIENCE, self.shake_hands(host, port)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(Broken(error.to_string())),
            Err(_) => return Err(Broken("no TLS: the handshake takes too long".to_owned())),
        };
        let path = self.folder.join(self.opened.fetch_add(1, Ordering::Relaxed).to_string());
        let listener = UnixListener::bind(&path).map_err(|error| Broken(error.to_string()))?;
        let failure = Rc::new(RefCell::new(None));
        let relay = Relay { path: path.display().to_string(), failure: Rc::clone(&failure) };
        tokio::task::spawn_local(async move {
            if let Err(error) = relay_one(&listener, path, stream).await {
                failure.replace(Some(error.to_string()));
            }
        });
        Ok(relay)
    }

    async fn shake_hands(&self, host: &str, port: u16) -> io::Result<TlsStream<TcpStream>> {
        let socket = TcpStream::connect((host, port)).await?;
        socket.set_nodelay(true)?;
        let no_tls = |error: io::Error| io::Error::other(format!("no TLS: {error}"));
        self.connector.connect(self.name.clone(), socket).await.map_err(no_tls)
    }
}

/// Relays the first connection to `listener` until both sides are closed.
async fn relay_one(
    listener: &UnixListener,
    path: PathBuf,
    mut stream: TlsStream<TcpStream>,
) -> io::Result<()> {
    let (mut client, _) = listener.accept().await?;
    // The socket has done its work. The directory goes at the end in any case.
    drop(fs::remove_file(path));
    copy_bidirectional_with_sizes(&mut client, &mut stream, BUFFER, BUFFER).await?;
    Ok(())
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        // Empty, or with the sockets of clients that did not connect. Nothing depends on it.
        drop(fs::remove_dir_all(&self.folder));
    }
}

impl fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tunnel").field("name", &self.name).finish_non_exhaustive()
    }
}
