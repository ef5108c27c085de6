//! Connections to hosts by their names: to other brokers, and to HTTP services.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_blocking};

/// Time after which the next address of a name is tried beside those before it. So an address that
/// answers nothing costs this time, and not the whole patience of the caller.
// RFC 8305 section 5
const STAGGER: Duration = Duration::from_millis(250);

/// The reason why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The system does not know the name.
    #[error("the name cannot be resolved: {0}")]
    Resolve(io::Error),
    /// The system knows no address of the name.
    #[error("the name has no address")]
    NoAddress,
    /// No address accepts the connection. The error is that of the last one.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
}

/// What the system says about a name.
type Found = Result<Vec<SocketAddr>, (io::ErrorKind, String)>;

/// A lookup, which has its result sooner or later.
type Lookup = watch::Receiver<Option<Found>>;

/// The lookups by host and port.
type Lookups = HashMap<(String, u16), Lookup>;

/// The names that one bridge or one service asks for. Each is looked up once at a time: a name
/// server that does not answer holds one thread for a name, however often the owner tries again.
///
/// The C library resolves names, and blocks. Its threads are those of the runtime.
#[derive(Debug, Default)]
pub struct Names(Mutex<Lookups>);

impl Names {
    /// Resolves a name. The next call takes up what this one leaves when it is dropped, so a name
    /// server that is slower than the callers are patient is of use, too.
    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let lookup = |name: &(String, u16)| name.to_socket_addrs().map(Iterator::collect);
        self.resolve_with((host.to_owned(), port), lookup).await
    }

    async fn resolve_with(
        &self,
        name: (String, u16),
        lookup: impl FnOnce(&(String, u16)) -> io::Result<Vec<SocketAddr>> + Send + 'static,
    ) -> io::Result<Vec<SocketAddr>> {
        let mut asked = self.asked(&name, lookup);
        let found = asked.wait_for(Option::is_some).await.map(|found| found.clone());
        let mut all = self.lock();
        if all.get(&name).is_some_and(|current| current.same_channel(&asked)) {
            all.remove(&name);
        }
        match found.ok().flatten() {
            Some(Ok(addresses)) => Ok(addresses),
            Some(Err((kind, text))) => Err(io::Error::new(kind, text)),
            None => Err(io::Error::other("its thread ended without a result")),
        }
    }

    /// Returns the lookup that is under way, or begins one.
    fn asked(
        &self,
        name: &(String, u16),
        lookup: impl FnOnce(&(String, u16)) -> io::Result<Vec<SocketAddr>> + Send + 'static,
    ) -> Lookup {
        let mut all = self.lock();
        if let Some(asked) = all.get(name) {
            return asked.clone();
        }
        let (done, asked) = watch::channel(None);
        all.insert(name.clone(), asked.clone());
        let name = name.clone();
        spawn_blocking(move || {
            let found = lookup(&name).map_err(|error| (error.kind(), error.to_string()));
            done.send_replace(Some(found));
        });
        asked
    }

    fn lock(&self) -> MutexGuard<'_, Lookups> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Connects to the first address of a name, or of an address as text, that accepts. The caller
/// bounds the time.
///
/// # Errors
/// The name has no address, or none accepts.
pub async fn connect(names: &Names, host: &str, port: u16) -> Result<(TcpStream, SocketAddr), ConnectError> {
    connect_to_any(resolve(names, host, port).await?).await
}

/// Returns the addresses of a name, or the one that is written as text. The caller bounds the time.
///
/// # Errors
/// The system does not know the name.
pub async fn resolve(names: &Names, host: &str, port: u16) -> Result<Vec<SocketAddr>, ConnectError> {
    match host.parse() {
        Ok(ip) => Ok(vec![SocketAddr::new(ip, port)]),
        Err(_) => names.resolve(host, port).await.map_err(ConnectError::Resolve),
    }
}

/// Connects to the first of these addresses that accepts. The caller bounds the time.
///
/// # Errors
/// There is no address, or none accepts.
pub async fn connect_to_any(addresses: Vec<SocketAddr>) -> Result<(TcpStream, SocketAddr), ConnectError> {
    let (stream, peer) = first_that_accepts(addresses).await?;
    // Requests and acknowledgements are small, and the other side waits for them.
    stream.set_nodelay(true).map_err(ConnectError::Connect)?;
    Ok((stream, peer))
}

async fn first_that_accepts(addresses: Vec<SocketAddr>) -> Result<(TcpStream, SocketAddr), ConnectError> {
    let mut left = addresses.into_iter();
    let mut attempts = JoinSet::new();
    let mut last = ConnectError::NoAddress;
    loop {
        if let Some(peer) = left.next() {
            attempts.spawn(async move { TcpStream::connect(peer).await.map(|stream| (stream, peer)) });
        }
        tokio::select! {
            ended = attempts.join_next() => match ended {
                Some(Ok(Ok(connected))) => return Ok(connected),
                Some(Ok(Err(error))) => last = ConnectError::Connect(error),
                Some(Err(fault)) => last = ConnectError::Connect(io::Error::other(fault)),
                None => return Err(last),
            },
            () = tokio::time::sleep(STAGGER), if left.len() > 0 => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::sync::mpsc;

    const LONG: Duration = Duration::from_secs(20);

    fn run<T>(work: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime
            .expect("an event loop")
            .block_on(async { tokio::time::timeout(LONG, work).await })
            .expect("in time")
    }

    fn name() -> (String, u16) {
        ("broker.example".to_owned(), 1883)
    }

    /// An address on which connections wait for ever: its queue of connections is full.
    async fn silent()
    -> (SocketAddr, Vec<tokio::task::JoinHandle<io::Result<TcpStream>>>, tokio::net::TcpListener) {
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a free port");
        let listener = socket.listen(0).expect("it listens");
        let address = listener.local_addr().expect("bound");
        let mut waiting = Vec::new();
        loop {
            let mut one = tokio::spawn(TcpStream::connect(address));
            let is_silent = tokio::time::timeout(Duration::from_millis(300), &mut one).await.is_err();
            waiting.push(one);
            if is_silent {
                return (address, waiting, listener);
            }
        }
    }

    #[test]
    fn a_name_server_that_hangs_holds_one_thread_however_often_a_name_is_asked_for() {
        let (names, threads) = (Names::default(), Arc::new(AtomicUsize::new(0)));
        let (release, hangs) = mpsc::channel::<()>();
        let hangs = Arc::new(Mutex::new(hangs));
        let address: SocketAddr = "127.0.0.1:1".parse().expect("an address");
        let ask = || {
            let (threads, hangs) = (Arc::clone(&threads), Arc::clone(&hangs));
            names.resolve_with(name(), move |_| {
                threads.fetch_add(1, Relaxed);
                let _ = hangs.lock().map(|hangs| hangs.recv());
                Ok(vec![address])
            })
        };
        run(async {
            for _ in 0..10 {
                assert!(tokio::time::timeout(Duration::from_millis(1), ask()).await.is_err());
            }
            let (one, other) = tokio::join!(
                tokio::time::timeout(Duration::from_millis(20), ask()),
                tokio::time::timeout(Duration::from_millis(20), ask())
            );
            assert!(one.is_err() && other.is_err());
            assert_eq!(threads.load(Relaxed), 1);
            // Everybody who waits gets the result, and so does the next one alone.
            drop(release);
            let (one, other) = tokio::join!(ask(), ask());
            assert_eq!([one.expect("found"), other.expect("found")], [[address], [address]]);
            assert_eq!(threads.load(Relaxed), 1);
            assert_eq!(ask().await.expect("found"), [address]);
            assert_eq!(threads.load(Relaxed), 2, "an old result is not kept");
        });
    }

    #[test]
    fn a_lookup_that_fails_says_why_and_the_next_one_is_new() {
        let names = Names::default();
        let gone = || io::Error::new(io::ErrorKind::NotFound, "no such name");
        run(async {
            let error = names.resolve_with(name(), move |_| Err(gone())).await.expect_err("a failure");
            assert_eq!(
                (error.kind(), error.to_string()),
                (io::ErrorKind::NotFound, "no such name".to_owned())
            );
            let panics = names.resolve_with(name(), |_| panic!("as the test wants")).await;
            assert!(panics.is_err());
            assert!(names.resolve_with(name(), |_| Ok(Vec::new())).await.is_ok());
        });
    }

    #[test]
    fn an_address_that_does_not_answer_does_not_keep_from_the_next_one() {
        run(async {
            let (silent, _waiting, _listener) = silent().await;
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
            let answers = listener.local_addr().expect("bound");
            let (_, peer) = connect_to_any(vec![silent, answers]).await.expect("one accepts");
            assert_eq!(peer, answers);
        });
    }

    #[test]
    fn the_last_address_that_refuses_says_why() {
        let gone =
            std::net::TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("bound");
        run(async {
            let error = connect_to_any(vec![gone, gone]).await.expect_err("nobody listens");
            assert!(error.to_string().starts_with("cannot connect: Connection refused"), "{error}");
            let error = connect_to_any(Vec::new()).await.expect_err("no address");
            assert!(matches!(error, ConnectError::NoAddress), "{error}");
        });
    }
}
