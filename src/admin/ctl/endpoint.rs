//! The place at which a command asks the broker: its Unix socket, or a URL with a token.

use super::error::CtlError;
use crate::config::ServiceUrl;
use crate::net::tls::client;
use clap::Args;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Time for a connection, and for each read and each write.
const PATIENCE: Duration = Duration::from_secs(10);

/// Flags that name the broker.
#[derive(Args, Clone, Debug)]
pub struct EndpointArguments {
    /// The Unix socket of the broker [default: admin.socket of the configuration]
    #[arg(long, global = true, value_name = "PATH", conflicts_with = "url")]
    socket: Option<PathBuf>,
    /// The address of the broker's HTTP interface, such as `https://broker.example:11883`; needs a
    /// token
    #[arg(long, global = true, value_name = "URL")]
    url: Option<String>,
    /// The file with the token for --url [default: the file that HOMING_TOKEN_FILE names]
    #[arg(long, global = true, value_name = "FILE", requires = "url")]
    token_file: Option<PathBuf>,
    /// Trust the authorities in this file (PEM) [default: those of the system]
    #[arg(long, global = true, value_name = "FILE", requires = "url")]
    ca: Option<PathBuf>,
    /// Send the token over plain HTTP to another machine, where everybody on the way can read it
    #[arg(long, global = true, requires = "url")]
    allow_plain_http: bool,
}

/// The broker's address and credentials from the environment and the configuration. Flags override
/// them.
#[derive(Clone, Debug, Default)]
pub struct EndpointDefaults {
    /// The Unix socket of the configuration.
    pub socket: Option<PathBuf>,
    /// The file that `HOMING_TOKEN_FILE` names.
    pub token_file: Option<PathBuf>,
}

/// The place at which a command asks the broker.
#[derive(Debug)]
pub struct BrokerEndpoint(EndpointPlace);

#[derive(Debug)]
enum EndpointPlace {
    Socket(PathBuf),
    Url(Box<Remote>),
}

struct Remote {
    url: ServiceUrl,
    /// The trusted authorities, and the name that the certificate must have; `None` for plain HTTP.
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    token: String,
}

/// A stream of bytes of any kind.
pub(super) trait ByteStream: Read + Write {}

impl<S: Read + Write> ByteStream for S {}

impl EndpointArguments {
    /// Returns the place that the flags name, or else the defaults.
    ///
    /// # Errors
    /// The address is missing, the token is missing, or the token would be readable on the way. The
    /// text names the flag that helps.
    pub fn endpoint(&self, defaults: EndpointDefaults) -> Result<BrokerEndpoint, String> {
        let Some(url) = &self.url else {
            let socket = self.socket.clone().or(defaults.socket);
            let socket = socket
                .ok_or("there is no Unix socket: set admin.socket, or name it with --socket, or use --url")?;
            return Ok(BrokerEndpoint::of_socket(&socket));
        };
        let url = parsed(url)?;
        if !(url.is_tls || url.is_local() || self.allow_plain_http) {
            return Err(format!(
                "{url}: everybody on the way could read the token; use https://, or --allow-plain-http in a network that you trust"
            ));
        }
        let file = self.token_file.clone().or(defaults.token_file);
        let file = file.ok_or(
            "--url needs a token: name its file with --token-file or the variable HOMING_TOKEN_FILE",
        )?;
        let token = token_in(&file)?;
        let tls = url.is_tls.then(|| self.tls_for(&url)).transpose()?;
        Ok(BrokerEndpoint(EndpointPlace::Url(Box::new(Remote { url, tls, token }))))
    }

    /// Returns the trusted authorities, and the name that the certificate must have. Errors: the
    /// file of authorities cannot be used, or the host is no name.
    fn tls_for(&self, url: &ServiceUrl) -> Result<(Arc<ClientConfig>, ServerName<'static>), String> {
        let config = client::client_config(self.ca.as_deref(), None).map_err(|error| error.to_string())?;
        let name = ServerName::try_from(url.host.to_string());
        Ok((config, name.map_err(|_| format!("{url}: no certificate can be for {:?}", url.host))?))
    }
}

/// Returns the URL of an interface. Errors: the text is no URL, or has a path.
fn parsed(text: &str) -> Result<ServiceUrl, String> {
    let url = ServiceUrl::parse(text).filter(|url| &*url.target == "/");
    url.ok_or_else(|| format!("--url must be https://HOST:PORT or http://HOST:PORT, not {text:?}"))
}

/// Returns the token in a file: its only line. Errors: the file cannot be read, or has no token.
fn token_in(file: &Path) -> Result<String, String> {
    let name = file.display();
    let text = std::fs::read_to_string(file).map_err(|error| format!("{name}: {error}"))?;
    let token = text.trim();
    match !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Ok(token.to_owned()),
        false => Err(format!("{name}: it must have one token, as `homing admin-token` prints it")),
    }
}

impl BrokerEndpoint {
    pub(crate) fn of_socket(path: &Path) -> BrokerEndpoint {
        BrokerEndpoint(EndpointPlace::Socket(path.to_owned()))
    }

    /// Opens a stream to the broker. Errors: the system refuses the connection, or the handshake of
    /// TLS fails.
    pub(super) fn open(&self) -> io::Result<Box<dyn ByteStream>> {
        let remote = match &self.0 {
            EndpointPlace::Socket(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                return Ok(Box::new(stream));
            }
            EndpointPlace::Url(remote) => remote,
        };
        let stream = connect(&remote.url)?;
        Ok(match &remote.tls {
            Some((config, name)) => Box::new(client::connect(Arc::clone(config), name.clone(), stream)?),
            None => Box::new(stream),
        })
    }

    /// Returns the headers of a request that say whom it is for, and who asks.
    pub(super) fn headers(&self) -> String {
        match &self.0 {
            EndpointPlace::Socket(_) => "Host: localhost\r\n".to_owned(),
            EndpointPlace::Url(remote) => {
                format!("Host: {}\r\nAuthorization: Bearer {}\r\n", remote.url.authority, remote.token)
            }
        }
    }

    /// Returns the URL of the pages; `None` for a Unix socket, which no browser can open.
    pub(super) fn url(&self) -> Option<String> {
        match &self.0 {
            EndpointPlace::Socket(_) => None,
            EndpointPlace::Url(remote) => Some(remote.url.to_string()),
        }
    }

    /// Returns the error of an unreachable broker, with the suggested fix.
    pub(super) fn not_reachable(&self, cause: io::Error) -> CtlError {
        let advice = match &self.0 {
            EndpointPlace::Socket(_) => "does the broker run, with this admin.socket?",
            EndpointPlace::Url(remote) if remote.tls.is_none() => {
                "does the broker run, with this address in admin.addresses and without admin.certificate?"
            }
            EndpointPlace::Url(_) => {
                client::remedy(&cause).unwrap_or("does the broker run, with this address in admin.addresses?")
            }
        };
        CtlError::NotReachable { endpoint: self.to_string(), cause, advice }
    }
}

/// Connects to the first address of a host that accepts.
fn connect(url: &ServiceUrl) -> io::Result<TcpStream> {
    let mut last = io::Error::other("the name has no address");
    for address in (&*url.host, url.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => {
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

impl fmt::Display for BrokerEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            EndpointPlace::Socket(path) => write!(f, "{}", path.display()),
            EndpointPlace::Url(remote) => f.write_str(remote.url.to_string().trim_end_matches('/')),
        }
    }
}

impl fmt::Debug for Remote {
    /// Leaves out the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("url", &self.url).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the flags with this URL alone.
    fn flags(url: &str) -> EndpointArguments {
        let (socket, token_file, ca) = (None, None, None);
        EndpointArguments { socket, url: Some(url.to_owned()), token_file, ca, allow_plain_http: false }
    }

    /// Returns the endpoint of these flags, with this text in the file of the token.
    fn with_token(flags: &EndpointArguments, token: &str) -> Result<BrokerEndpoint, String> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), token).expect("a file");
        let token_file = Some(file.path().to_owned());
        flags.endpoint(EndpointDefaults { socket: Some("/tmp/s".into()), token_file })
    }

    #[test]
    fn a_token_goes_over_plain_http_to_this_machine_alone_unless_a_flag_allows_it() {
        for url in ["http://localhost:11883", "http://127.0.0.1:11883/", "http://[::1]:11883"] {
            let endpoint = with_token(&flags(url), "hmg_1\n").expect(url);
            assert!(endpoint.headers().ends_with("Authorization: Bearer hmg_1\r\n"), "{url}");
            assert_eq!(endpoint.url().as_deref(), Some(&*format!("{}/", url.trim_end_matches('/'))));
        }
        let elsewhere = flags("http://broker.example:11883");
        let refused = with_token(&elsewhere, "hmg_1").expect_err("refused");
        assert!(refused.contains("--allow-plain-http") && refused.contains("https://"), "{refused}");
        let allows = EndpointArguments { allow_plain_http: true, ..elsewhere };
        let allowed = with_token(&allows, "hmg_1").expect("allowed");
        assert!(allowed.headers().starts_with("Host: broker.example:11883\r\n"));
    }

    #[test]
    fn a_url_without_a_token_is_refused_and_so_is_a_token_that_would_write_a_header() {
        let flags = flags("http://localhost:1");
        let without = flags.endpoint(EndpointDefaults::default()).expect_err("refused");
        assert!(without.contains("HOMING_TOKEN_FILE"), "{without}");
        for token in ["", "\n", "hmg_1\nhmg_2", "hmg_1\r\nX: y", "hmg 1"] {
            let refused = with_token(&flags, token).expect_err("refused");
            assert!(refused.contains("must have one token"), "{token:?}: {refused}");
        }
    }

    #[test]
    fn a_url_has_a_host_and_a_port_and_nothing_else() {
        for url in ["broker.example:11883", "ftp://a:1", "https://a:1/pages", "https://a:1?b=c", "https://"] {
            let refused = with_token(&flags(url), "hmg_1").expect_err(url);
            assert!(refused.contains("https://HOST:PORT"), "{refused}");
        }
    }

    #[test]
    fn the_token_is_not_in_the_debug_text() {
        let endpoint = with_token(&flags("http://localhost:1"), "hmg_secret").expect("an endpoint");
        assert!(!format!("{endpoint:?}").contains("hmg_secret"));
    }
}
