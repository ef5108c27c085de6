//! The dates of a listener's certificates and revocation lists, and their log lines.

use std::path::PathBuf;

pub(super) const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// The names and dates of a certificate of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFacts {
    /// The file.
    pub file: PathBuf,
    /// The DNS names, in lower case.
    pub names: Vec<String>,
    /// Begin of the validity, in milliseconds since 1970.
    pub not_before_ms: u64,
    /// End of the validity, in milliseconds since 1970.
    pub not_after_ms: u64,
    /// The serial number in upper-case hexadecimal.
    pub serial: String,
    /// The reason why clients that know only the root cannot verify the certificate; `None` if no
    /// reason is known.
    pub chain_warning: Option<String>,
}

/// The dates of a revocation list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrlFacts {
    /// The file.
    pub file: PathBuf,
    /// The time of the list, in milliseconds since 1970.
    pub this_update_ms: u64,
    /// The time by which the next list comes, in milliseconds since 1970; `None` if the list has no
    /// end.
    pub next_update_ms: Option<u64>,
}

impl CertificateFacts {
    pub(super) fn warning(&self, unix_ms: u64) -> Option<String> {
        let file = self.file.display();
        if unix_ms < self.not_before_ms {
            return Some(format!("{file}: the certificate is valid from {} on", date(self.not_before_ms)));
        }
        if unix_ms > self.not_after_ms {
            let end = date(self.not_after_ms);
            return Some(format!("{file}: the certificate expired on {end}; clients refuse it"));
        }
        self.chain_warning.clone()
    }
}

impl CrlFacts {
    pub(super) fn warning(&self, unix_ms: u64) -> Option<String> {
        let (end, file) = (self.next_update_ms?, self.file.display());
        if unix_ms > end {
            return Some(format!(
                "{file}: the revocation list expired on {}; every client certificate of its issuer is refused",
                date(end)
            ));
        }
        let (left, life) = (end - unix_ms, end.saturating_sub(self.this_update_ms));
        (left <= life / 5).then(|| {
            format!("{file}: the revocation list expires on {}, in {} days", date(end), left / DAY_MS)
        })
    }
}

/// Returns the milliseconds since 1970.
pub(super) fn unix_ms(time: x509_cert::time::Time) -> u64 {
    time.to_unix_duration().as_secs().saturating_mul(1000)
}

/// Returns the date as `2026-11-22T16:00:00Z`, or the seconds since 1970 beyond the year 9999.
pub(super) fn date(unix_ms: u64) -> String {
    let since = std::time::Duration::from_secs(unix_ms / 1000);
    match x509_cert::der::DateTime::from_unix_duration(since) {
        Ok(date) => date.to_string(),
        Err(_) => format!("{} s after 1970", since.as_secs()),
    }
}
