//! One request to the service of a sink: its files, its connection, its answer.

use super::hidden::{hide, without_query};
use super::status::SinkReport;
use crate::auth::file_error::{FileError, LARGEST_SECRET};
use crate::auth::http::headers::HttpHeaders;
use crate::broker::live_files::READ;
use crate::broker::rate_limit::{Rate, RateLimiter};
use crate::clock;
use crate::config::Sink;
use crate::config::http_header::is_value;
use crate::escape;
use crate::file_thread::{FileThread, NotRead};
use crate::host::Names;
use crate::http_client::{HttpStatus, HttpTarget, RequestError, TargetError, TlsFiles};
use crate::mqtt::topic::first_chars;
use crate::net::tls::settings::CertificateFiles;
use crate::sink::answer::{ServiceAnswer, retry_after};
use crate::sink::batch::SinkRequest;
use crate::sink::dispatcher::RequestEnd;
use crate::time::Instant;
use bytes::Bytes;
use hyper::Method;
use hyper::header::{HeaderMap, HeaderName, HeaderValue, LOCATION, RETRY_AFTER};
use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::Mutex;
use tracing::warn;
use zeroize::Zeroizing;

/// Time after which the files of headers are read again. After a failure they are read at once.
const FRESH: Duration = Duration::from_secs(10);

/// Time for the body of an answer, whose status counts already.
const BODY: Duration = Duration::from_secs(1);

/// Characters of a body, and of a Location, that operators see.
const EXCERPT: usize = 200;

/// The log lines about bodies.
const BODY_LINES: Rate = Rate::per_minute(1);

/// The reason why there is no request.
#[derive(Debug, thiserror::Error)]
enum ServiceError {
    #[error("{0}")]
    Files(#[from] NotRead),
    #[error("header_files {0}")]
    Header(#[from] FileError),
    #[error("{0}")]
    Target(#[from] TargetError),
    #[error("{0}")]
    Request(#[from] RequestError),
}

/// The service as last read.
struct Known {
    headers: HttpHeaders,
    target: Rc<HttpTarget>,
    read: Instant,
}

/// The service of one sink.
pub(super) struct Service {
    sink: Sink,
    /// `None` for a look by `homing doctor`.
    report: Option<Arc<SinkReport>>,
    files: FileThread,
    /// Those of all targets of this sink, one after the other.
    names: Arc<Names>,
    known: RefCell<Option<Known>>,
    /// True if the last request failed, so that the files are read again.
    failed: Cell<bool>,
    /// The log lines about bodies.
    lines: RefCell<RateLimiter>,
    /// Held by the request that reads the files.
    reading: Mutex<()>,
}

impl Service {
    pub(super) fn new(sink: Sink, report: Option<Arc<SinkReport>>) -> Service {
        Service {
            sink,
            report,
            files: FileThread::new("homing-sink-f", READ),
            names: Arc::default(),
            known: RefCell::default(),
            failed: Cell::default(),
            lines: RefCell::default(),
            reading: Mutex::default(),
        }
    }

    /// Sends a request, and returns what became of it. Takes no longer than the timeout of the sink
    /// and the limits of files.
    pub(super) async fn post(&self, request: SinkRequest) -> RequestEnd {
        match self.attempt(request).await {
            Ok(answer) => RequestEnd::Answered(answer),
            Err(error) => {
                self.failed.set(true);
                RequestEnd::Failed(escape::visible(&error.to_string()))
            }
        }
    }

    async fn attempt(&self, request: SinkRequest) -> Result<ServiceAnswer, ServiceError> {
        let headers = header_map(&request);
        self.call(&Method::POST, &headers, request.body).await
    }

    async fn call(
        &self,
        method: &Method,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<ServiceAnswer, ServiceError> {
        let target = self.target().await?;
        let answer = target.call(method, headers, body, (self.sink.patience(), BODY)).await?;
        Ok(self.read(answer))
    }

    /// Asks the service without a message, and returns its answer, or why there is none. Takes no
    /// longer than [`Self::post`].
    pub(super) async fn look(&self, method: &Method, body: Bytes) -> Result<ServiceAnswer, String> {
        let looked = self.call(method, &HeaderMap::new(), body).await;
        looked.map_err(|error| escape::visible(&error.to_string()))
    }

    fn read(&self, answer: HttpStatus) -> ServiceAnswer {
        let HttpStatus { status, headers, body } = answer;
        let is_accepted = (200..300).contains(&status);
        self.failed.set(!is_accepted);
        let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        let shown = |text: &str| escape::visible(first_chars(&self.hidden(text), EXCERPT));
        if let Err(error) = &body {
            self.tell_of_body(status, error);
        }
        // Nobody reads the body of an answer that accepts.
        let body = body.ok().filter(|_| !is_accepted);
        ServiceAnswer {
            status,
            retry_after: text(RETRY_AFTER).and_then(|value| retry_after(value, clock::unix_millis() / 1_000)),
            location: text(LOCATION).map(|location| shown(&without_query(location))),
            excerpt: body.map(|body| shown(&String::from_utf8_lossy(&body))).unwrap_or_default(),
        }
    }

    /// Returns a text of the service without what the requests have of secrets.
    fn hidden(&self, text: &str) -> String {
        let known = self.known.borrow();
        let values = known.iter().flat_map(|known| known.headers.iter()).map(|(_, value)| value);
        let query = self.sink.url.iter().filter_map(|url| url.target.split_once('?')).map(|(_, query)| query);
        hide(text, values.chain(query))
    }

    fn tell_of_body(&self, status: u16, error: &RequestError) {
        if self.lines.borrow_mut().admit(BODY_LINES, clock::now()) {
            let sink = self.sink.label();
            warn!(
                event = "sink.body_cut",
                sink, status, "the service answers, but its connection is closed: {error}; the status counts"
            );
        }
    }

    /// Returns the service with its present files.
    async fn target(&self) -> Result<Rc<HttpTarget>, ServiceError> {
        // The files are read once for all requests that begin together.
        let _turn = self.reading.lock().await;
        let now = clock::now();
        let is_told =
            self.report.as_ref().is_some_and(|report| report.orders.reads_files.swap(false, Relaxed));
        let (has_failed, has_files) = (self.failed.get() || is_told, self.sink.header_files.is_some());
        let is_tls = self.sink.url.as_ref().is_some_and(|url| url.is_tls);
        let known = self.known.borrow().as_ref().and_then(|known| {
            let is_fresh = match has_failed {
                true => !has_files && !is_tls,
                false => !has_files || known.read + FRESH > now,
            };
            is_fresh.then(|| Rc::clone(&known.target))
        });
        if let Some(target) = known {
            return Ok(target);
        }
        // A certificate may be renewed, so a failure makes a new target with TLS.
        let before = self.known.borrow().as_ref().map(|known| known.headers.clone());
        let before = before.filter(|_| !(has_failed && is_tls));
        let sink = self.sink.clone();
        let read = self.files.run(move || read_files(&sink, before.as_ref())).await??;
        let mut known = self.known.borrow_mut();
        match (read, known.as_mut()) {
            (Some((headers, target)), _) => {
                let target = Rc::new(target.with_names(Arc::clone(&self.names)));
                *known = Some(Known { headers, target: Rc::clone(&target), read: now });
                Ok(target)
            }
            (None, Some(known)) => {
                known.read = now;
                Ok(Rc::clone(&known.target))
            }
            (None, None) => Err(TargetError::Name.into()),
        }
    }
}

/// Reads the files of a sink, and keeps nothing. May hang as long as a file does.
///
/// # Errors
/// What is wrong with a file.
pub fn check_files(sink: &Sink) -> Result<(), String> {
    read_files(sink, None).map(drop).map_err(|error| error.to_string())
}

/// Reads the files of a sink. Returns `None` if its headers are those before.
fn read_files(
    sink: &Sink,
    before: Option<&HttpHeaders>,
) -> Result<Option<(HttpHeaders, HttpTarget)>, ServiceError> {
    let mut headers = HttpHeaders::default();
    for (name, value) in sink.headers.iter().flat_map(|table| table.iter()) {
        headers.push(name, Zeroizing::new(value.to_owned()));
    }
    for (name, file) in sink.header_files.iter().flat_map(|table| table.iter()) {
        headers.push(name, read_value(Path::new(file))?);
    }
    if before == Some(&headers) {
        return Ok(None);
    }
    let ca = sink.ca.as_ref().map(PathBuf::from);
    let identity = sink.certificate.as_ref().zip(sink.key.as_ref()).map(|(certificate, key)| {
        CertificateFiles { certificate: certificate.into(), chain: None, key: key.into() }
    });
    let files = TlsFiles { ca: ca.as_deref(), identity: identity.as_ref() };
    let url = sink.url.clone().ok_or(TargetError::Name)?;
    let target = HttpTarget::new(url, files, &headers, "application/json")?;
    Ok(Some((headers, target)))
}

/// Reads the value of a header: one line.
fn read_value(file: &Path) -> Result<Zeroizing<String>, FileError> {
    let content = Zeroizing::new(FileError::read_within(file, LARGEST_SECRET)?);
    match std::str::from_utf8(&content).map(str::trim) {
        Ok("") => Err(FileError::whole(file, "is empty, and should have the value of the header")),
        Ok(value) if is_value(value) => Ok(Zeroizing::new(value.to_owned())),
        _ => Err(FileError::whole(file, "the value of a header is one line of visible ASCII")),
    }
}

/// Returns the headers of one request. They are visible ASCII, and others would be left out.
fn header_map(request: &SinkRequest) -> HeaderMap {
    let mut map = HeaderMap::new();
    let own = request.headers.iter().map(|(name, value)| (*name, value));
    for (name, value) in own.chain([("idempotency-key", &request.key)]) {
        if let Ok(value) = HeaderValue::from_str(value) {
            map.append(HeaderName::from_static(name), value);
        }
    }
    map
}
