//! The files that the configuration names.

#[cfg(feature = "admin")]
use crate::admin::credentials::{CredentialEntry, Credentials};
#[cfg(feature = "admin")]
use crate::admin::https;
use crate::auth::http::headers::HttpHeaders;
use crate::auth::jwt::keys::TokenKeys;
use crate::auth::password::file::PasswordFile;
use crate::auth::{acl_file, ban_file};
use crate::broker::all_tls_settings;
#[cfg(feature = "sinks")]
use crate::broker::sinks;
use crate::clock::unix_millis;
use crate::config::{Config, Listener, Sink};
use crate::finding::{Check, Finding};
use crate::net::tls::config::TlsServer;
use crate::net::tls::settings::TlsSettings;
use crate::otlp;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A certificate that ends within so many days is reported.
const DAYS_LEFT: u64 = 14;

/// A token that ends within so many days is reported.
#[cfg(feature = "admin")]
const TOKEN_DAYS_LEFT: u64 = 7;

pub(super) fn findings(config: &Config) -> Vec<Finding> {
    let auth = &config.auth;
    let mut findings = Vec::new();
    let listeners = config.all_listeners();
    for path in paths(auth.password_path(), &listeners, |listener| listener.password_file.as_ref()) {
        let passwords = PasswordFile::load(&path).map(|file| format!("{} users", file.users()));
        findings.extend(read_secret(Check::Passwords, &path, passwords));
    }
    if let Some(path) = auth.jwt_keys_path() {
        let keys = TokenKeys::load(&path).map(|keys| format!("{} keys", keys.len()));
        findings.extend(read_secret(Check::TokenKeys, &path, keys));
    }
    if let Some(path) = auth.http_headers_path() {
        let headers = HttpHeaders::load(&path).map(|headers| format!("{} headers", headers.iter().count()));
        findings.extend(read_secret(Check::HttpHeaders, &path, headers));
    }
    for path in paths(config.acl.path(), &listeners, |listener| listener.acl_file.as_ref()) {
        findings.push(read(Check::Acl, &path, acl_file::load(&path).map(|_| "valid".to_owned())));
        findings.extend(changeable(Check::Acl, &path));
    }
    if let Some(path) = config.bans.path() {
        findings.push(read(Check::Bans, &path, ban_file::load(&path).map(|_| "valid".to_owned())));
        findings.extend(changeable(Check::Bans, &path));
    }
    #[cfg(feature = "admin")]
    if let Some(path) = config.admin.credentials_path() {
        let credentials = Credentials::load(&path);
        findings.extend(credentials.iter().flat_map(Credentials::entries).filter_map(|entry| ending(&entry)));
        let credentials = credentials.map(|file| {
            let (tokens, users) = file.counts();
            format!("{tokens} tokens, {users} users")
        });
        findings.extend(read_secret(Check::AdminCredentials, &path, credentials));
    }
    for (listener, settings) in all_tls_settings(&listeners) {
        findings.extend(certificates(&listener, &settings));
    }
    #[cfg(feature = "admin")]
    if let Some(settings) = https::settings(&config.admin) {
        findings.extend(certificates("admin.certificate", &settings));
    }
    findings.extend(export(config));
    findings.extend(config.sinks.iter().flat_map(sink));
    findings
}

/// Returns the findings about the files of a sink.
#[cfg(feature = "sinks")]
fn sink(sink: &Sink) -> Vec<Finding> {
    let label = sink.label();
    let result = match sinks::check_files(sink) {
        Ok(()) => Finding::ok(Check::Sinks, format!("{label}: its files can be read")),
        Err(error) => Finding::fail(Check::Sinks, format!("{label}: {error}")),
    };
    let values = sink.header_files.iter().flat_map(|table| table.iter()).map(|(_, file)| file);
    let secrets = values.chain(sink.key.as_deref()).filter_map(|file| secret(Check::Sinks, Path::new(file)));
    [result].into_iter().chain(secrets).collect()
}

/// Returns nothing: a build without the feature refuses a configuration with sinks.
#[cfg(not(feature = "sinks"))]
fn sink(_: &Sink) -> Vec<Finding> {
    Vec::new()
}

/// Returns the findings about the export by OTLP and its files; none if nothing is exported.
fn export(config: &Config) -> Vec<Finding> {
    let Some(collector) = config.otlp.collector() else { return Vec::new() };
    let result = match otlp::check(&config.otlp) {
        Ok(()) => {
            Finding::ok(Check::Otlp, format!("{} to {collector}", config.otlp.signal_names().join(", ")))
        }
        Err(error) => Finding::fail(Check::Otlp, error.with_key()),
    };
    let headers = config.otlp.headers_path();
    [result].into_iter().chain(headers.and_then(|path| secret(Check::Otlp, &path))).collect()
}

/// Returns a finding about a token that has ended, or ends soon.
#[cfg(feature = "admin")]
fn ending(CredentialEntry { name, ends, .. }: &CredentialEntry) -> Option<Finding> {
    let left = (*ends)?.saturating_sub(unix_millis());
    let what = match left / 86_400_000 {
        _ if left == 0 => "has ended".to_owned(),
        0 => "ends today".to_owned(),
        days if days < TOKEN_DAYS_LEFT => format!("ends in {days} days"),
        _ => return None,
    };
    Some(
        Finding::warn(Check::AdminCredentials, format!("the token {name:?} {what}"))
            .advise("Make another one with homing admin-token --expires, or delete it"),
    )
}

/// Returns the paths of one kind of file: the broker's, and the listeners' (by `own`). A path that
/// is named several times comes once.
fn paths(
    broker: Option<PathBuf>,
    listeners: &[Listener],
    own: fn(&Listener) -> Option<&String>,
) -> BTreeSet<PathBuf> {
    broker.into_iter().chain(listeners.iter().filter_map(own).map(PathBuf::from)).collect()
}

/// Returns the findings about a file with secrets: its content, and who else may read it.
fn read_secret<E: Display>(
    check: Check,
    path: &Path,
    result: Result<String, E>,
) -> impl Iterator<Item = Finding> {
    [read(check, path, result)].into_iter().chain(secret(check, path))
}

fn read<E: Display>(check: Check, path: &Path, result: Result<String, E>) -> Finding {
    match result {
        Ok(what) => Finding::ok(check, format!("{}: {what}", path.display())),
        // The error names the file.
        Err(error) => Finding::fail(check, error.to_string()),
    }
}

/// Returns a finding if everybody on the machine may change or read a file with secrets.
fn secret(check: Check, path: &Path) -> Option<Finding> {
    changeable(check, path).or_else(|| open_to_all(check, path, 0o005, "read"))
}

/// Returns a finding if everybody on the machine may change a file.
fn changeable(check: Check, path: &Path) -> Option<Finding> {
    open_to_all(check, path, 0o002, "change")
}

fn open_to_all(check: Check, path: &Path, bits: u32, what: &str) -> Option<Finding> {
    let mode = fs::metadata(path).ok()?.permissions().mode();
    (mode & bits != 0).then(|| {
        let shown = path.display();
        let rights = if bits == 0o002 { "w" } else { "rwx" };
        Finding::warn(check, format!("everybody may {what} {shown} (mode {:03o})", mode & 0o777))
            .advise(format!("chmod o-{rights} {shown}"))
    })
}

/// Returns the findings about the certificates of one listener.
fn certificates(listener: &str, settings: &TlsSettings) -> Vec<Finding> {
    let unix_ms = unix_millis();
    let keys = settings.certificates.iter().filter_map(|files| secret(Check::TlsKey, &files.key));
    let mut findings: Vec<Finding> = keys.collect();
    let certificates = settings.certificates.iter();
    let certificates = certificates.flat_map(|files| files.chain.iter().chain([&files.certificate]));
    let trusted = settings.client_ca.iter().chain(&settings.crl);
    findings.extend(certificates.chain(trusted).filter_map(|path| changeable(Check::Tls, path)));
    let server = match TlsServer::load(settings) {
        Ok(server) => server,
        Err(error) => {
            findings.push(Finding::fail(Check::Tls, format!("{listener}: {error}")));
            return findings;
        }
    };
    let days = server.certificate_days_left(unix_ms).unwrap_or(u64::MAX);
    findings.push(match days {
        0 => Finding::fail(
            Check::Tls,
            format!("{listener}: a certificate has ended, or ends today: clients refuse it"),
        )
        .advise("Renew it"),
        1..=DAYS_LEFT => Finding::warn(Check::Tls, format!("{listener}: a certificate ends in {days} days"))
            .advise("Renew it; the broker reads it within a minute"),
        _ => Finding::ok(Check::Tls, format!("{listener}: the first certificate ends in {days} days")),
    });
    let warnings = server.warnings(unix_ms).into_iter();
    findings.extend(warnings.map(|text| Finding::warn(Check::Tls, format!("{listener}: {text}"))));
    findings
}
