//! From the settings and files of a listener to a [`TlsServer`].
//!
//! Nothing here is remembered between two loads: [`TlsServer::load`] reads every file and returns a
//! whole new server, or an error that names the file. A new server has new ticket keys, so a
//! session of the old one cannot be resumed.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustls::crypto::{CryptoProvider, SupportedKxGroup, aws_lc_rs};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use rustls::server::{NoServerSessionStorage, VerifierBuilderError};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{InconsistentKeys, RootCertStore, ServerConfig};
use x509_cert::Certificate;
use x509_cert::certificate::Version;
use x509_cert::crl::CertificateList;
use x509_cert::der::Decode as _;
use zeroize::Zeroizing;

use super::chain;
use super::config_error::{FileProblem, TlsConfigError};
use super::engine::{RECORD_MAX, Tls, TlsHandshake};
use super::facts::{CertificateFacts, CrlFacts, DAY_MS, unix_ms};
use super::identity::{self, NoIdentity};
use super::pem;
use super::resolver::{NamedCertificate, Resolver};
use super::settings::{CertificateFiles, ClientCertificates, Group, MinimumVersion, TlsSettings};
use super::verify::{ChainError, ClientRules, ClientVerifier};
use crate::file_thread;
use crate::net::layers::LayerError;

/// Smallest `record_size`.
pub const RECORD_MIN: usize = 512;

/// Largest file that is read: a revocation list with about a million entries.
const FILE_MAX: u64 = 64 * 1024 * 1024;

/// The TLS side of one listener: all that a handshake needs. Immutable: a reload makes a new value.
#[derive(Debug)]
pub struct TlsServer {
    config: Arc<ServerConfig>,
    clients: Option<Arc<ClientVerifier>>,
    settings: TlsSettings,
    certificates: Vec<CertificateFacts>,
    lists: Vec<CrlFacts>,
    digests: Digests,
    /// The place in the order of all servers that this process has loaded.
    number: u32,
}

/// The number of the server that was loaded last.
static LAST: AtomicU32 = AtomicU32::new(0);

/// A client after its handshake.
#[derive(Debug)]
pub struct AdmittedClient {
    /// The connection for traffic.
    pub tls: Tls,
    /// The user name in the client's certificate.
    pub user: Result<String, NoIdentity>,
    /// The serial number of the client's certificate in upper-case hexadecimal, if there is one.
    pub serial: Option<String>,
}

/// SHA-256 of the files of a server, to tell what a reload changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Digests {
    pub(super) certificates: Vec<[u8; 32]>,
    pub(super) authorities: Option<[u8; 32]>,
    pub(super) lists: Vec<[u8; 32]>,
}

impl TlsServer {
    /// Reads the files of `settings` and returns the TLS side of a listener.
    ///
    /// Dates are not checked: an expired certificate is a warning ([`TlsServer::warnings`]).
    ///
    /// # Errors
    /// A file or setting cannot be used. The error names the first one.
    pub fn load(settings: &TlsSettings) -> Result<TlsServer, TlsConfigError> {
        check_settings(settings)?;
        let provider = provider(&settings.groups);
        let mut digests = Digests::default();
        let (mut named, mut certificates) = (Vec::new(), Vec::new());
        for files in &settings.certificates {
            let (certificate, facts) = load_certificate(files, &provider, &mut digests)?;
            named.push(NamedCertificate { certificate, names: facts.names.clone() });
            certificates.push(facts);
        }
        let authorities = load_authorities(settings, &mut digests)?;
        let (clients, lists) = load_clients(settings, &authorities, &provider, &mut digests)?;
        for (named, facts) in named.iter().zip(&mut certificates) {
            facts.chain_warning = facts
                .chain_warning
                .take()
                .or_else(|| missing_intermediate(settings, facts, &named.certificate.cert, &authorities));
        }
        let config = server_config(settings, provider, Resolver::new(named), clients.clone())?;
        Ok(TlsServer {
            config: Arc::new(config),
            clients,
            settings: settings.clone(),
            certificates,
            lists,
            digests,
            number: LAST.fetch_add(1, Ordering::Relaxed) + 1,
        })
    }

    /// Begins the handshake of one connection.
    ///
    /// # Errors
    /// rustls refuses the configuration. [`TlsServer::load`] has tried it, so this does not happen.
    pub fn handshake(&self) -> Result<TlsHandshake, LayerError> {
        TlsHandshake::new(Arc::clone(&self.config))
    }

    /// Ends a handshake that is done: returns the connection with the identity of its client.
    ///
    /// The chain of a client is verified again, at `unix_ms` milliseconds since 1970, if the client
    /// resumed a session or if a reload came between the begin and the end of its handshake. Call
    /// this on the newest server of the listener.
    ///
    /// # Errors
    /// The chain is not valid any more, or the handshake is not done. `out` has the close_notify.
    pub fn admit(
        &self,
        handshake: TlsHandshake,
        unix_ms: u64,
        out: &mut Vec<u8>,
    ) -> Result<AdmittedClient, ChainError> {
        let is_of_this = handshake.is_of(&self.config);
        let Some(mut tls) = handshake.finish() else { return Err(ChainError::Unfinished) };
        if (tls.is_resumed() || !is_of_this)
            && let Err(error) = self.check(&tls, unix_ms)
        {
            tls.close(out);
            return Err(error);
        }
        tls.admitted_by(self.number);
        let certificate = tls.peer_certificates().first();
        let user = certificate
            .ok_or(NoIdentity::NoCertificate)
            .and_then(|certificate| identity::user_name(certificate, self.settings.certificate_user));
        let serial = certificate.and_then(identity::serial_number);
        Ok(AdmittedClient { tls, user, serial })
    }

    /// Verifies the chain of a connected client with the authorities and revocation lists of this
    /// server, at `unix_ms` milliseconds since 1970. Costs about 50 us for a client with a
    /// certificate.
    ///
    /// # Errors
    /// The chain is not valid any more.
    pub fn check(&self, tls: &Tls, unix_ms: u64) -> Result<(), ChainError> {
        match &self.clients {
            Some(clients) => clients.check(tls.peer_certificates(), unix_ms),
            None => Ok(()),
        }
    }

    /// Returns true if this server or a newer one admitted the client.
    pub fn has_checked(&self, tls: &Tls) -> bool {
        tls.checked_by() >= self.number
    }

    /// Returns the settings that this server was loaded from.
    pub fn settings(&self) -> &TlsSettings {
        &self.settings
    }

    /// Returns the names and dates of the listener's certificates.
    pub fn certificates(&self) -> &[CertificateFacts] {
        &self.certificates
    }

    /// Returns the whole days until the first revocation list ends, at `unix_ms` milliseconds since
    /// 1970: 0 if one has ended, `None` if no list ends.
    pub fn crl_days_left(&self, unix_ms: u64) -> Option<u64> {
        self.lists
            .iter()
            .filter_map(|list| list.next_update_ms)
            .map(|end| end.saturating_sub(unix_ms) / DAY_MS)
            .min()
    }

    /// Returns the whole days until the first certificate of the broker ends, at `unix_ms`
    /// milliseconds since 1970: 0 if one has ended.
    pub fn certificate_days_left(&self, unix_ms: u64) -> Option<u64> {
        let ends = self.certificates.iter().map(|facts| facts.not_after_ms);
        ends.map(|end| end.saturating_sub(unix_ms) / DAY_MS).min()
    }

    /// Returns a line for the log for each certificate that is not valid at `unix_ms` milliseconds
    /// since 1970, and for each revocation list with at most a fifth of its time left.
    pub fn warnings(&self, unix_ms: u64) -> Vec<String> {
        let certificates = self.certificates.iter().filter_map(|facts| facts.warning(unix_ms));
        certificates.chain(self.lists.iter().filter_map(|facts| facts.warning(unix_ms))).collect()
    }

    /// Returns the configuration for rustls.
    pub(super) fn config(&self) -> &ServerConfig {
        &self.config
    }

    pub(super) fn digests(&self) -> &Digests {
        &self.digests
    }
}

/// Returns the provider of all cryptography. Only this function names it.
pub(super) fn provider(groups: &[Group]) -> Arc<CryptoProvider> {
    let kx_groups = groups
        .iter()
        .map(|group| -> &'static dyn SupportedKxGroup {
            match group {
                Group::X25519MlKem768 => aws_lc_rs::kx_group::X25519MLKEM768,
                Group::P256MlKem768 => aws_lc_rs::kx_group::SECP256R1MLKEM768,
                Group::X25519 => aws_lc_rs::kx_group::X25519,
                Group::P256 => aws_lc_rs::kx_group::SECP256R1,
                Group::P384 => aws_lc_rs::kx_group::SECP384R1,
            }
        })
        .collect();
    Arc::new(CryptoProvider { kx_groups, ..aws_lc_rs::default_provider() })
}

fn check_settings(settings: &TlsSettings) -> Result<(), TlsConfigError> {
    let has_clients = settings.client_certificates != ClientCertificates::Off;
    let problem = match () {
        () if settings.certificates.is_empty() => {
            "tls.certificates is empty; name at least one { certificate = FILE, key = FILE }"
        }
        () if settings.groups.is_empty() => {
            "tls.groups is empty; name at least one key exchange group, for example \"X25519\""
        }
        () if settings.minimum == MinimumVersion::Tls12
            && settings.groups.iter().all(|group| group.is_hybrid()) =>
        {
            "tls.groups has only groups of TLS 1.3; add \"X25519\" or \"P-256\", or set tls.minimum = \"1.3\""
        }
        () if !(RECORD_MIN..=RECORD_MAX).contains(&settings.record_size) => {
            "tls.record_size must be from 512 to 16384 bytes"
        }
        () if has_clients && settings.client_ca.is_none() => {
            "tls.client_certificates needs tls.client_ca: the authorities that issue the clients' certificates"
        }
        () if !has_clients && settings.client_ca.is_some() => {
            "tls.client_ca has no effect while tls.client_certificates is \"off\"; set \"optional\" or \"required\""
        }
        () if !has_clients && !settings.crl.is_empty() => {
            "tls.crl has no effect while tls.client_certificates is \"off\"; set \"optional\" or \"required\""
        }
        () if settings.alpn.iter().any(|name| name.is_empty() || name.len() > 255) => {
            "a name in tls.alpn must have 1 to 255 bytes"
        }
        () => return Ok(()),
    };
    Err(TlsConfigError::Setting(problem))
}

fn server_config(
    settings: &TlsSettings,
    provider: Arc<CryptoProvider>,
    resolver: Resolver,
    clients: Option<Arc<ClientVerifier>>,
) -> Result<ServerConfig, TlsConfigError> {
    let versions = match settings.minimum {
        MinimumVersion::Tls12 => &[&TLS13, &TLS12][..],
        MinimumVersion::Tls13 => &[&TLS13][..],
    };
    let builder = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .map_err(TlsConfigError::Refused)?;
    let builder = match clients {
        Some(clients) => builder.with_client_cert_verifier(clients),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(Arc::new(resolver));
    config.alpn_protocols = settings.alpn.iter().map(|name| name.clone().into_bytes()).collect();
    config.max_fragment_size = Some(settings.record_size + 5);
    // Tickets carry the state, so the server keeps none. There is no early data (0-RTT): a CONNECT
    // could be replayed (RFC 8446 section 8).
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.max_early_data_size = 0;
    // A ticket carries the client's chain, so one is enough.
    config.send_tls13_tickets = usize::from(settings.tickets);
    if settings.tickets {
        config.ticketer = aws_lc_rs::Ticketer::new().map_err(TlsConfigError::Refused)?;
    }
    Ok(config)
}

pub(super) fn load_certificate(
    files: &CertificateFiles,
    provider: &CryptoProvider,
    digests: &mut Digests,
) -> Result<(Arc<CertifiedKey>, CertificateFacts), TlsConfigError> {
    let bytes = read(&files.certificate)?;
    let at = |problem: FileProblem| at(&files.certificate, problem);
    let mut chain = pem::certificates(&bytes).map_err(|error| at(error.into()))?;
    let (authorities, chain_warning) = complete_chain(files, &mut chain)?;
    let mut parsed = Vec::new();
    for (index, certificate) in chain.iter().enumerate() {
        parsed.push(
            Certificate::from_der(certificate)
                .map_err(|error| at(FileProblem::NotACertificate(index + 1, error.to_string())))?,
        );
    }
    if parsed.first().is_some_and(|leaf| leaf.tbs_certificate().version() == Version::V1) {
        return Err(at(FileProblem::VersionOne));
    }
    let key_bytes = read(&files.key)?;
    let key_at = |problem: FileProblem| self::at(&files.key, problem);
    let key = pem::private_key(&key_bytes).map_err(|error| key_at(error.into()))?;
    let key = provider
        .key_provider
        .load_private_key(key)
        .map_err(|error| key_at(FileProblem::UnusableKey(error.to_string())))?;
    let certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        // A provider that cannot tell the public key of a private key.
        Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => {}
        Err(rustls::Error::InconsistentKeys(_)) => {
            return Err(key_at(FileProblem::KeyOfAnother(files.certificate.clone())));
        }
        Err(error) => return Err(at(FileProblem::NotACertificate(1, error.to_string()))),
    }
    digests.certificates.push(digest(&[&bytes, &key_bytes, &authorities]));
    let Some(leaf) = parsed.first() else {
        return Err(at(FileProblem::NotACertificate(1, "it is missing".to_owned())));
    };
    let validity = leaf.tbs_certificate().validity();
    let names =
        identity::dns_names(leaf).map_err(|error| at(FileProblem::NotACertificate(1, error.to_string())))?;
    let facts = CertificateFacts {
        file: files.certificate.clone(),
        names,
        not_before_ms: unix_ms(validity.not_before),
        not_after_ms: unix_ms(validity.not_after),
        serial: certified.end_entity_cert().ok().and_then(identity::serial_number).unwrap_or_default(),
        chain_warning,
    };
    Ok((Arc::new(certified), facts))
}

/// Completes the chain of a file with one certificate. Returns the bytes of the file with the
/// authorities, and a warning if its certificates do not reach a root. As with OpenSSL, a file with
/// more than one certificate is the whole chain.
fn complete_chain(
    files: &CertificateFiles,
    chain: &mut Vec<CertificateDer<'static>>,
) -> Result<(Zeroizing<Vec<u8>>, Option<String>), TlsConfigError> {
    let Some(file) = &files.chain else { return Ok(Default::default()) };
    let bytes = read(file)?;
    let authorities = pem::certificates(&bytes).map_err(|error| at(file, error.into()))?;
    let [_] = chain[..] else { return Ok((bytes, None)) };
    chain::complete(chain, &authorities);
    let warning = chain::missing_issuer(chain).map(|issuer| {
        format!(
            "{}: its chain does not reach a root: {issuer} is not in {}; clients that do not know that issuer itself refuse the certificate",
            files.certificate.display(),
            file.display()
        )
    });
    Ok((bytes, warning))
}

/// Returns a warning if the next certificate of a chain is an intermediate one that is only among
/// the authorities of clients: the operator has the certificate, and the broker does not send it.
/// As with OpenSSL, `client_ca` completes no chain.
fn missing_intermediate(
    settings: &TlsSettings,
    facts: &CertificateFacts,
    chain: &[CertificateDer<'static>],
    authorities: &[CertificateDer<'static>],
) -> Option<String> {
    let (file, issuer) = (settings.client_ca.as_ref()?, chain::intermediate_among(chain, authorities)?);
    let (own, file) = (facts.file.display(), file.display());
    Some(format!(
        "{own}: the broker does not send the intermediate certificate {issuer}, which stands only in {file} (client_ca); clients that \
         know only the root refuse the certificate; append the intermediate to {own}, or set chain = {:?} beside it",
        file.to_string()
    ))
}

/// Reads the authorities of clients; none without `client_ca`.
fn load_authorities(
    settings: &TlsSettings,
    digests: &mut Digests,
) -> Result<Vec<CertificateDer<'static>>, TlsConfigError> {
    let Some(file) = &settings.client_ca else { return Ok(Vec::new()) };
    let bytes = read(file)?;
    let authorities = pem::certificates(&bytes).map_err(|error| at(file, error.into()))?;
    digests.authorities = Some(digest(&[&bytes]));
    Ok(authorities)
}

type Clients = (Option<Arc<ClientVerifier>>, Vec<CrlFacts>);

fn load_clients(
    settings: &TlsSettings,
    certificates: &[CertificateDer<'static>],
    provider: &Arc<CryptoProvider>,
    digests: &mut Digests,
) -> Result<Clients, TlsConfigError> {
    let Some(file) = &settings.client_ca else { return Ok((None, Vec::new())) };
    let mut authorities = RootCertStore::empty();
    for (index, certificate) in certificates.iter().enumerate() {
        authorities
            .add(certificate.clone())
            .map_err(|error| at(file, FileProblem::NotACertificate(index + 1, error.to_string())))?;
    }
    let authorities = Arc::new(authorities);
    let rules = ClientRules {
        required: settings.client_certificates == ClientCertificates::Required,
        crl_check: settings.crl_check,
        dates: settings.certificate_dates,
    };
    let verifier = |lists: Vec<CertificateRevocationListDer<'static>>| {
        ClientVerifier::new(Arc::clone(&authorities), lists, rules, Arc::clone(provider))
    };
    let (mut lists, mut facts) = (Vec::new(), Vec::new());
    for file in &settings.crl {
        let bytes = read(file)?;
        let of_file = pem::revocation_lists(&bytes).map_err(|error| at(file, error.into()))?;
        let invalid = |reason: String| at(file, FileProblem::NotARevocationList(reason));
        for list in of_file {
            facts.push(list_facts(file, &list).map_err(invalid)?);
            // Each list is checked alone, so that the error can name the file.
            verifier(vec![list.clone()]).map_err(|error| invalid(list_problem(&error)))?;
            lists.push(list);
        }
        digests.lists.push(digest(&[&bytes]));
    }
    let clients =
        verifier(lists).map_err(|error| at(file, FileProblem::NotACertificate(1, error.to_string())))?;
    Ok((Some(Arc::new(clients)), facts))
}

fn list_facts(file: &Path, list: &CertificateRevocationListDer<'_>) -> Result<CrlFacts, String> {
    let list: CertificateList = CertificateList::from_der(list).map_err(|error| error.to_string())?;
    Ok(CrlFacts {
        file: file.to_owned(),
        this_update_ms: unix_ms(list.tbs_cert_list.this_update),
        next_update_ms: list.tbs_cert_list.next_update.map(unix_ms),
    })
}

fn list_problem(error: &VerifierBuilderError) -> String {
    match error {
        VerifierBuilderError::InvalidCrl(error) => format!("{error:?}"),
        error => error.to_string(),
    }
}

/// Reads a whole file. The bytes are overwritten when they are dropped, because some are private
/// keys.
pub(super) fn read(file: &Path) -> Result<Zeroizing<Vec<u8>>, TlsConfigError> {
    let unreadable = |error| at(file, FileProblem::Unreadable(error));
    let mut bytes = Zeroizing::new(Vec::new());
    let _opened = file_thread::opens(file);
    let opened = File::open(file).map_err(unreadable)?;
    opened.take(FILE_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    match bytes.len() as u64 > FILE_MAX {
        true => Err(at(file, FileProblem::TooBig)),
        false => Ok(bytes),
    }
}

pub(super) fn at(file: &Path, problem: FileProblem) -> TlsConfigError {
    TlsConfigError::File { file: file.to_owned(), problem }
}

fn digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut context = ::aws_lc_rs::digest::Context::new(&::aws_lc_rs::digest::SHA256);
    for part in parts {
        context.update(part);
    }
    context.finish().as_ref().try_into().unwrap_or_default()
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
