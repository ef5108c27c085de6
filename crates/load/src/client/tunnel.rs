//! TLS and WebSocket for the clients: a relay between rumqttc and the broker.
//!
//! rumqttc can do both, but its latest release takes a rustls-webpki with known flaws
//! (RUSTSEC-2026-0049, 0098, 0099, 0104) and a second crypto library for TLS. Its WebSocket takes a
//! second tungstenite and another way to the certificates of the system. So rumqttc connects to a
//! Unix socket of this program, and a task seals and opens what passes. The tunnel costs a pass
//! through the kernel each way, and two more descriptors for each client.

use super::Broken;
use super::frames::{self, BrokerFrame, FrameReader};
use crate::refused::Refused;
use bytes::BytesMut;
use homing_core::mqtt::websocket::{UpgradeProgress, UpgradeResponse, upgrade_request};
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
use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf, copy_bidirectional_with_sizes,
};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;

/// Time for the connection and the handshakes; rumqttc waits as long for CONNACK.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes that a relay holds in each direction.
const BUFFER: usize = 16 * 1024;

/// A stream to the broker, with its layers.
trait TunnelStream: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> TunnelStream for T {}

/// The TLS and WebSocket of all clients of a run. One of both is there.
pub(crate) struct Tunnel {
    tls: Option<(TlsConnector, ServerName<'static>)>,
    /// The path of the WebSocket.
    websocket: Option<String>,
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
    /// Returns the reason why a layer broke the connection, if it did.
    pub(super) fn failure(&self) -> Option<String> {
        self.failure.borrow().clone()
    }
}

impl Tunnel {
    /// Makes the directory for the sockets. `tls` has the name that the certificate of the broker
    /// must have.
    ///
    /// # Errors
    /// The name is no name, or the directory cannot be made.
    pub(crate) fn new(
        tls: Option<(Arc<ClientConfig>, &str)>,
        websocket: Option<String>,
        run: u32,
    ) -> Result<Tunnel, Refused> {
        let tls = match tls {
            Some((config, name)) => {
                let name = ServerName::try_from(name.to_owned()).map_err(|_| {
                    Refused(format!("--server-name must be a DNS name or an IP address, not {name:?}"))
                })?;
                Some((TlsConnector::from(config), name))
            }
            None => None,
        };
        let folder = std::env::temp_dir().join(format!("homing-load-{}-{run:08x}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&folder).map_err(|error| {
            Refused(format!("--tls and --ws need a directory, {}: {error}", folder.display()))
        })?;
        Ok(Tunnel { tls, websocket, folder, opened: AtomicU64::new(0) })
    }

    /// Connects to the broker, and starts a task that relays one client.
    ///
    /// # Errors
    /// The broker cannot be reached, or a handshake fails.
    pub(super) async fn open(&self, host: &str, port: u16) -> Result<Relay, Broken> {
        let stream = match tokio::time::timeout(PATIENCE, self.shake_hands(host, port)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(Broken(error.to_string())),
            Err(_) => {
                let layer = if self.tls.is_some() { "no TLS" } else { "no WebSocket" };
                return Err(Broken(format!("{layer}: the handshake takes too long")));
            }
        };
        let path = self.folder.join(self.opened.fetch_add(1, Ordering::Relaxed).to_string());
        let listener = UnixListener::bind(&path).map_err(|error| Broken(error.to_string()))?;
        let failure = Rc::new(RefCell::new(None));
        let relay = Relay { path: path.display().to_string(), failure: Rc::clone(&failure) };
        let frames = self.websocket.is_some();
        tokio::task::spawn_local(async move {
            let relayed = async {
                let (client, _) = listener.accept().await?;
                // The socket has done its work. The directory goes at the end in any case.
                drop(fs::remove_file(path));
                if frames { relay_frames(client, stream).await } else { relay_bytes(client, stream).await }
            };
            if let Err(error) = relayed.await {
                failure.replace(Some(error.to_string()));
            }
        });
        Ok(relay)
    }

    async fn shake_hands(&self, host: &str, port: u16) -> io::Result<Box<dyn TunnelStream>> {
        let socket = TcpStream::connect((host, port)).await?;
        socket.set_nodelay(true)?;
        let mut stream: Box<dyn TunnelStream> = match &self.tls {
            Some((connector, name)) => {
                let no_tls = |error: io::Error| io::Error::other(format!("no TLS: {error}"));
                Box::new(connector.connect(name.clone(), socket).await.map_err(no_tls)?)
            }
            None => Box::new(socket),
        };
        if let Some(path) = &self.websocket {
            let no_websocket = |error: io::Error| io::Error::other(format!("no WebSocket: {error}"));
            upgrade(&mut stream, host, path).await.map_err(no_websocket)?;
        }
        Ok(stream)
    }
}

/// Asks for the WebSocket at `path` of `host`.
///
/// # Errors
/// The stream fails, or the response is not the upgrade of a WebSocket.
async fn upgrade(stream: &mut Box<dyn TunnelStream>, host: &str, path: &str) -> io::Result<()> {
    stream.write_all(upgrade_request(host, path).as_bytes()).await?;
    stream.flush().await?;
    let mut response = UpgradeResponse::default();
    while response.take(stream.read_u8().await?, path).map_err(io::Error::other)?
        == UpgradeProgress::Incomplete
    {}
    Ok(())
}

/// Relays until both sides are closed.
async fn relay_bytes(mut client: UnixStream, mut stream: Box<dyn TunnelStream>) -> io::Result<()> {
    copy_bidirectional_with_sizes(&mut client, &mut stream, BUFFER, BUFFER).await?;
    Ok(())
}

/// Relays the bytes of the client as frames until both sides are closed.
async fn relay_frames(client: UnixStream, stream: Box<dyn TunnelStream>) -> io::Result<()> {
    let (from_client, to_client) = tokio::io::split(client);
    let (from_broker, to_broker) = tokio::io::split(stream);
    // A ping may replace an older one (RFC 6455 5.5.3), so one place is enough.
    let (pings, pinged) = mpsc::channel(1);
    tokio::try_join!(wrap(from_client, to_broker, pinged), unwrap(from_broker, to_client, pings))?;
    Ok(())
}

/// Relays from the client to the broker, and replies to pings.
async fn wrap(
    mut from: ReadHalf<UnixStream>,
    mut to: WriteHalf<Box<dyn TunnelStream>>,
    mut pings: mpsc::Receiver<BytesMut>,
) -> io::Result<()> {
    let (mut bytes, mut frame) = (vec![0; BUFFER], Vec::new());
    loop {
        tokio::select! {
            read = from.read(&mut bytes) => match read? {
                0 => break,
                count => frames::binary(bytes.get(..count).unwrap_or_default(), &mut frame),
            },
            Some(ping) = pings.recv() => frames::pong(&ping, &mut frame),
        }
        to.write_all(&frame).await?;
        to.flush().await?;
    }
    to.write_all(&frames::close()).await?;
    to.shutdown().await
}

/// Relays from the broker to the client.
async fn unwrap(
    mut from: ReadHalf<Box<dyn TunnelStream>>,
    mut to: WriteHalf<UnixStream>,
    pings: mpsc::Sender<BytesMut>,
) -> io::Result<()> {
    let (mut reader, mut input) = (FrameReader::default(), BytesMut::with_capacity(BUFFER));
    loop {
        match reader.next(&mut input)? {
            Some(BrokerFrame::Data(bytes)) => to.write_all(&bytes).await?,
            Some(BrokerFrame::Ping(payload)) => drop(pings.try_send(payload)),
            Some(BrokerFrame::Close) => break,
            None => {
                input.reserve(BUFFER);
                if from.read_buf(&mut input).await? == 0 {
                    break;
                }
            }
        }
    }
    to.shutdown().await
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        // Empty, or with the sockets of clients that did not connect. Nothing depends on it.
        drop(fs::remove_dir_all(&self.folder));
    }
}

impl fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tunnel").field("websocket", &self.websocket).finish_non_exhaustive()
    }
}
