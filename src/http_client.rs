//! The connections to a configured HTTP service, such as the service for logins or a sink. They use
//! HTTP/1.1 with keep-alive, over TCP or TLS.
//!
//! hyper does the protocol. The few connections are kept here, because a pool of hyper-util brings
//! redirects, HTTP/2 and a dozen crates that nobody needs for one service.

use crate::auth::http::answer::LARGEST_ANSWER;
use crate::auth::http::headers::HttpHeaders;
use crate::clock;
use crate::config::ServiceUrl;
use crate::host::{self, ConnectError, Names};
use crate::net::tls::client::client_config;
use crate::net::tls::config_error::TlsConfigError;
use crate::net::tls::settings::CertificateFiles;
use crate::time::Instant;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio_rustls::TlsConnector;

/// The largest header of an answer in bytes. hyper reads in steps of at least 8 KiB.
const LARGEST_HEADER: usize = 32 << 10;

/// The time after which an unused connection is not used again. Services usually close theirs
/// after 60 seconds and more.
const IDLE: Duration = Duration::from_secs(30);

/// The reasons why a service cannot be asked at all.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// The authorities cannot be used.
    #[error("{0}")]
    Ca(TlsConfigError),
    /// The host, or a header, is not written as HTTP and TLS need it.
    #[error("the host is no name or address that a certificate can have")]
    Name,
}

/// The reason why a request got no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestError {
    #[error("{0}")]
    Connect(#[from] ConnectError),
    #[error("the name is not resolved within timeout")]
    LateName,
    #[error("no TCP connection within timeout")]
    LateConnect,
    #[error("the TLS handshake failed: {0}")]
    Tls(io::Error),
    #[error("the TLS handshake does not end within timeout")]
    LateTls,
    #[error("the connection failed: {0}")]
    Broken(io::Error),
    #[error("its answer is larger than 64 KiB")]
    TooLarge,
    #[error("no answer within timeout")]
    Late,
    #[cfg(feature = "sinks")]
    #[error("its answer did not end in time")]
    SlowBody,
}

/// The answer of a service as it came.
#[cfg(any(feature = "http-auth", feature = "otlp"))]
pub(crate) struct HttpReply {
    pub(crate) status: u16,
    /// The value of Retry-After in seconds, if there is one.
    #[cfg(feature = "otlp")]
    pub(crate) retry_after: Option<u64>,
    pub(crate) body: Bytes,
}

/// An answer whose status counts, whatever becomes of its body.
#[cfg(feature = "sinks")]
pub(crate) struct HttpStatus {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    /// The body, if it came in time and within the bounds.
    pub(crate) body: Result<Bytes, RequestError>,
}

/// The files for TLS to a service.
#[derive(Clone, Copy, Default)]
pub(crate) struct TlsFiles<'a> {
    /// The authorities that its certificate may come from; without it those of the system count.
    pub(crate) ca: Option<&'a Path>,
    /// The certificate of this side.
    pub(crate) identity: Option<&'a CertificateFiles>,
}

/// One side of a connection.
type Sender = SendRequest<Full<Bytes>>;

/// One service, with its connections.
pub(crate) struct HttpTarget {
    url: ServiceUrl,
    headers: HeaderMap,
    /// `None` for plain TCP.
    tls: Option<(TlsConnector, ServerName<'static>)>,
    names: Arc<Names>,
    /// Connections without a request, the last used at the end.
    idle: Mutex<Vec<(Instant, Sender)>>,
}

impl HttpTarget {
    /// Returns the service at `url`, which gets bodies of this type.
    ///
    /// # Errors
    /// The files for TLS cannot be read, or the host is no name that a certificate can have.
    pub(crate) fn new(
        url: ServiceUrl,
        files: TlsFiles<'_>,
        headers: &HttpHeaders,
        content_type: &'static str,
    ) -> Result<HttpTarget, TargetError> {
        let tls = match url.is_tls {
            true => {
                let name = ServerName::try_from(url.host.to_string()).map_err(|_| TargetError::Name)?;
                let mut config = client_config(files.ca, files.identity).map_err(TargetError::Ca)?;
                Arc::make_mut(&mut config).alpn_protocols = vec![b"http/1.1".to_vec()];
                Some((TlsConnector::from(config), name))
            }
            false => None,
        };
        let headers = header_map(&url, headers, content_type).ok_or(TargetError::Name)?;
        Ok(HttpTarget { url, headers, tls, names: Arc::default(), idle: Mutex::default() })
    }

    /// Lets the service share its lookups of names with the targets that come before and after it.
    #[cfg(feature = "sinks")]
    pub(crate) fn with_names(self, names: Arc<Names>) -> HttpTarget {
        HttpTarget { names, ..self }
    }

    /// Sends a body to the path of the URL, and returns the status and the body of the answer. An
    /// idle connection may have been closed by the service meanwhile. Then the request is sent
    /// again on a new one, so a request must do no harm if it comes twice.
    ///
    /// # Errors
    /// There is no answer, or it is too large. Never times out: the caller bounds the time.
    #[cfg(any(feature = "http-auth", feature = "otlp"))]
    pub(crate) async fn ask(&self, body: Bytes) -> Result<HttpReply, RequestError> {
        let (response, sender) = self.send(&Method::POST, &HeaderMap::new(), body, None).await?;
        let status = response.status().as_u16();
        #[cfg(feature = "otlp")]
        let retry_after = response
            .headers()
            .get(hyper::header::RETRY_AFTER)
            .and_then(|value| value.to_str().ok()?.parse().ok());
        let body = self.read(response, sender).await?;
        Ok(HttpReply {
            status,
            #[cfg(feature = "otlp")]
            retry_after,
            body,
        })
    }

    /// As [`Self::ask`], with a method and further headers. The status counts as soon as the head
    /// of the answer is there, for which the service has the first time. It has the second one for
    /// the body, because a service that has the request may still be slow to say more.
    ///
    /// # Errors
    /// There is no head of an answer in time.
    #[cfg(feature = "sinks")]
    pub(crate) async fn call(
        &self,
        method: &Method,
        headers: &HeaderMap,
        body: Bytes,
        (head_patience, body_patience): (Duration, Duration),
    ) -> Result<HttpStatus, RequestError> {
        let end = clock::now() + head_patience;
        let (mut response, sender) = self.send(method, headers, body, Some(end)).await?;
        let (status, headers) = (response.status().as_u16(), std::mem::take(response.headers_mut()));
        let body = tokio::time::timeout(body_patience, self.read(response, sender)).await;
        Ok(HttpStatus { status, headers, body: body.unwrap_or(Err(RequestError::SlowBody)) })
    }

    /// Sends a request, and returns the head of the answer with the connection that has its body.
    /// Waits until `end` at most, if there is one.
    async fn send(
        &self,
        method: &Method,
        headers: &HeaderMap,
        body: Bytes,
        end: Option<Instant>,
    ) -> Result<(Response<Incoming>, Sender), RequestError> {
        let request = || self.request(method, headers, body.clone());
        while let Some(mut sender) = self.take_idle() {
            let ready = async { sender.ready().await.map_err(broken) };
            match by(end, RequestError::Late, ready).await {
                Ok(()) => {}
                Err(RequestError::Late) => return Err(RequestError::Late),
                Err(_) => continue,
            }
            let answered = async { sender.send_request(request()).await.map_err(broken) };
            match by(end, RequestError::Late, answered).await {
                Ok(response) => return Ok((response, sender)),
                Err(RequestError::Late) => return Err(RequestError::Late),
                Err(_) => break,
            }
        }
        let mut sender = self.connect(end).await?;
        let answered = async { sender.send_request(request()).await.map_err(broken) };
        let response = by(end, RequestError::Late, answered).await?;
        Ok((response, sender))
    }

    fn request(&self, method: &Method, headers: &HeaderMap, body: Bytes) -> Request<Full<Bytes>> {
        let is_empty = body.is_empty();
        let mut request = Request::new(Full::new(body));
        request.method_mut().clone_from(method);
        // The configuration has checked the URL. A target that hyper refuses is sent as `/`.
        *request.uri_mut() = self.url.target.parse().unwrap_or_default();
        let all = request.headers_mut();
        all.clone_from(&self.headers);
        for name in headers.keys() {
            all.remove(name);
        }
        all.extend(headers.iter().map(|(name, value)| (name.clone(), value.clone())));
        if is_empty {
            // hyper leaves it out, and some services refuse a POST without it.
            all.insert(CONTENT_LENGTH, HeaderValue::from(0));
        }
        request
    }

    /// Reads the body of an answer, and keeps the connection for the next request.
    async fn read(&self, response: Response<Incoming>, sender: Sender) -> Result<Bytes, RequestError> {
        let body = Limited::new(response.into_body(), LARGEST_ANSWER).collect().await;
        let body = body.map_err(|error| match error.downcast::<hyper::Error>() {
            Ok(error) => broken(*error),
            Err(_) => RequestError::TooLarge,
        })?;
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let now = clock::now();
        idle.retain(|(since, sender)| *since + IDLE > now && !sender.is_closed());
        idle.push((now, sender));
        Ok(body.to_bytes())
    }

    fn take_idle(&self) -> Option<Sender> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, sender) = idle.pop()?;
        if since + IDLE > clock::now() {
            return Some(sender);
        }
        // All others are older.
        idle.clear();
        None
    }

    async fn connect(&self, end: Option<Instant>) -> Result<Sender, RequestError> {
        let found = async { Ok(host::resolve(&self.names, &self.url.host, self.url.port).await?) };
        let addresses = by(end, RequestError::LateName, found).await?;
        let connected = async { Ok(host::connect_to_any(addresses).await?) };
        let (stream, _) = by(end, RequestError::LateConnect, connected).await?;
        match &self.tls {
            Some((connector, name)) => {
                let secured =
                    async { connector.connect(name.clone(), stream).await.map_err(RequestError::Tls) };
                handshake(by(end, RequestError::LateTls, secured).await?).await
            }
            None => handshake(stream).await,
        }
    }
}

impl fmt::Display for HttpTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.url.fmt(f)
    }
}

/// Waits for a step of a request until `end` at most, if there is one; `late` is the error then.
async fn by<T>(
    end: Option<Instant>,
    late: RequestError,
    step: impl Future<Output = Result<T, RequestError>>,
) -> Result<T, RequestError> {
    match end {
        Some(end) => tokio::time::timeout(end.since(clock::now()), step).await.unwrap_or(Err(late)),
        None => step.await,
    }
}

/// Starts HTTP on a stream. The task that carries it ends with the stream, or with its sender.
async fn handshake<S>(stream: S) -> Result<Sender, RequestError>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) =
        Builder::new().max_buf_size(LARGEST_HEADER).handshake(TokioIo::new(stream)).await.map_err(broken)?;
    tokio::spawn(async {
        // The request on this connection gets the error, too.
        drop(connection.await);
    });
    Ok(sender)
}

fn broken(error: hyper::Error) -> RequestError {
    RequestError::Broken(io::Error::other(error))
}

/// Returns all headers of a request; `None` for an invalid header value, which the configuration
/// prevents.
fn header_map(url: &ServiceUrl, headers: &HttpHeaders, content_type: &'static str) -> Option<HeaderMap> {
    let mut map = HeaderMap::new();
    map.insert(HOST, HeaderValue::from_str(&url.authority).ok()?);
    map.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    map.insert(USER_AGENT, HeaderValue::from_static(concat!("homing/", env!("CARGO_PKG_VERSION"))));
    for (name, value) in headers.iter() {
        let mut value = HeaderValue::from_str(value).ok()?;
        value.set_sensitive(true);
        map.append(HeaderName::from_bytes(name.as_bytes()).ok()?, value);
    }
    Some(map)
}
