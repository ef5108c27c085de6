//! The authenticator, and the files that it checks logins against.

use super::authenticator::checks::{Checks, TokenCheck, TokenPlace};
use super::authenticator::decided::Decided;
use super::authenticator::http_client::HttpTarget;
use super::authenticator::{AuthClientParts, Authenticator, AuthenticatorOptions};
use super::file_news::{FileKind, FileNews, counted, with_before};
use super::listener_files::{ListenerFiles, ListenerPaths};
use super::listener_plan::ListenerPlan;
use super::start_error::StartError;
use crate::auth::file_digests::FileDigests;
use crate::auth::http::headers::HttpHeaders;
use crate::auth::jwt::keys::TokenKeys;
use crate::auth::jwt::token::{TokenRules, TokenVerifier};
use crate::auth::password::PasswordFile;
use crate::auth::password::decoy_secret::DecoySecret;
use crate::config::{self, Config, ServiceUrl};
use crate::pulse::Pulses;
use actix::Recipient;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tracing::warn;
use zeroize::Zeroizing;

pub(super) struct Logins {
    authenticator: Authenticator,
}

/// The paths of the files that logins are checked against.
struct LoginSources {
    passwords: ListenerPaths,
    keys: Option<PathBuf>,
    http: Option<HttpSource>,
}

/// The HTTP service, with the paths of its files.
struct HttpSource {
    url: ServiceUrl,
    ca: Option<PathBuf>,
    headers: Option<PathBuf>,
}

/// Files that were read, and are not in force yet.
pub(super) struct LoginFiles {
    sources: LoginSources,
    passwords: PasswordFiles,
    keys: Option<TokenKeys>,
    http: Option<HttpTarget>,
}

/// The password files of the broker and of its listeners.
pub(super) type PasswordFiles = ListenerFiles<PasswordFile>;

/// The password files before and after a change.
pub(super) type ChangedPasswords = (Arc<PasswordFiles>, Arc<PasswordFiles>);

impl LoginFiles {
    /// Reads the files for these listeners, and notes their digests. A missing file of a closed
    /// listener keeps its content from `before`. Errors: the mistakes of all files.
    pub(super) fn read(
        config: &Config,
        plan: &ListenerPlan,
        decoys: Option<&DecoySecret>,
        before: &PasswordFiles,
        digests: &FileDigests,
    ) -> Result<LoginFiles, Vec<StartError>> {
        let sources = LoginSources::of(config, plan);
        let passwords = load_passwords(&sources.passwords, decoys, before, digests);
        let load_keys = |path: &Path| {
            let keys = TokenKeys::load(path)?;
            digests.note(path, keys.fingerprint());
            Ok(keys)
        };
        let keys = sources.keys.as_deref().map(load_keys).transpose().map_err(StartError::TokenKeys);
        let http = sources.http.as_ref().map(|http| http.load(digests)).transpose();
        match (passwords, keys, http) {
            (Ok(passwords), Ok(keys), Ok(http)) => Ok(LoginFiles { sources, passwords, keys, http }),
            (passwords, keys, http) => {
                Err([passwords.err(), keys.err(), http.err()].into_iter().flatten().collect())
            }
        }
    }
}

impl Logins {
    /// Starts the authenticator for a number of shards. Errors: the system refuses a thread.
    pub(super) fn start(config: &Config, files: LoginFiles, shards: usize) -> Result<Logins, StartError> {
        let auth = &config.auth;
        if let Some(url) = auth.http_service()
            && !url.is_tls
            && !url.is_local()
        {
            warn!(event = "auth.http_plain", service = %url, "auth.http_url is not https: the passwords of clients can be read on the way to the service");
        }
        let LoginFiles { passwords, keys, http, .. } = files;
        let tokens = keys.map(|keys| token_check(auth, keys));
        let checks = Checks { passwords: Arc::new(passwords), tokens };
        let options = AuthenticatorOptions {
            workers: auth.worker_count(),
            timeout: auth.timeout,
            cache: auth.cache,
            shards,
            failures: auth.failures,
            http_timeout: auth.http_answer_timeout(),
        };
        Ok(Logins { authenticator: Authenticator::start(checks, http, options)? })
    }

    /// Watches its threads.
    pub(super) fn watch(&self, pulses: &Pulses) {
        self.authenticator.watch(pulses);
    }

    /// Returns the way to the authenticator for one shard. Decisions go to `reply`.
    pub(super) fn client(&self, reply: Recipient<Decided>) -> AuthClientParts {
        self.authenticator.client(reply)
    }

    pub(super) fn passwords(&self) -> Arc<PasswordFiles> {
        Arc::clone(&self.authenticator.checks().passwords)
    }

    /// Puts another content of the password file at a path in force, which may be
    /// `auth.password_file`. Returns the password files before and after.
    pub(super) fn replace_passwords(
        &self,
        path: &Path,
        is_of_broker: bool,
        file: PasswordFile,
    ) -> ChangedPasswords {
        let old = self.authenticator.checks();
        let new = Arc::new(old.passwords.with(path, is_of_broker, &Arc::new(file)));
        self.authenticator.replace(Checks { passwords: Arc::clone(&new), ..Checks::clone(&old) });
        (Arc::clone(&old.passwords), new)
    }

    /// Puts the files in force. `has_changed` says if a path has another content than before.
    /// Returns the password files before and after, and each file.
    pub(super) fn replace(
        &self,
        files: LoginFiles,
        has_changed: &dyn Fn(&Path) -> bool,
    ) -> (Option<ChangedPasswords>, Vec<FileNews>) {
        let old = self.authenticator.checks();
        let mut checks = Checks::clone(&old);
        let mut news = Vec::new();
        let mut changed = None;
        let of_broker = |kind, key, path: &Path, detail| FileNews {
            kind,
            key,
            listener: None,
            path: Some(path.to_owned()),
            is_changed: has_changed(path),
            detail,
        };
        if !files.passwords.is_empty() || !old.passwords.is_empty() {
            let new = Arc::new(files.passwords);
            let (kind, keys) = (FileKind::Passwords, ("auth.password_file", "password_file"));
            let users = |file: &PasswordFile| counted(file.users(), "user");
            let paths = &files.sources.passwords;
            news.extend(paths.news(kind, keys, (&old.passwords, &new), has_changed, &users));
            checks.passwords = Arc::clone(&new);
            changed = Some((Arc::clone(&old.passwords), new));
        }
        if let (Some(check), Some(new)) = (&mut checks.tokens, files.keys) {
            if let Some(path) = &files.sources.keys {
                let keys = |count: usize| counted(count, "key");
                let detail = with_before(keys(new.len()), Some(keys(check.verifier.keys())));
                news.push(of_broker(FileKind::TokenKeys, "auth.jwt_keys", path, detail));
            }
            check.verifier = check.verifier.with_keys(Arc::new(new));
        }
        self.authenticator.replace(checks);
        if let Some(target) = files.http {
            for (key, path) in files.sources.http.iter().flat_map(HttpSource::files) {
                news.push(of_broker(FileKind::HttpService, key, path, String::new()));
            }
            self.authenticator.replace_http(target);
        }
        (changed, news)
    }
}

impl LoginSources {
    fn of(config: &Config, plan: &ListenerPlan) -> LoginSources {
        let auth = &config.auth;
        let closed = plan.closed.iter().filter_map(|old| old.terms.password_file.clone()).collect();
        LoginSources {
            passwords: ListenerPaths::new(
                plan,
                auth.password_path(),
                |one| one.password_file.as_ref(),
                closed,
            ),
            keys: auth.jwt_keys_path(),
            http: HttpSource::of(auth),
        }
    }
}

/// Returns the secret behind the salts of unknown names. Without a data directory, or if the file
/// cannot be used, the salts come from the password file.
pub(super) fn decoy_secret(directory: Option<&Path>) -> Option<DecoySecret> {
    let directory = directory?;
    match DecoySecret::of_directory(directory) {
        Ok(secret) => Some(secret),
        Err(reason) => {
            let directory = directory.display();
            warn!(event = "auth.decoy_secret", %directory, %reason, "scram.secret in the data directory cannot be used: the SCRAM salts of unknown names change with the password file");
            None
        }
    }
}

/// Reads the password files. The salts of unknown names differ between the files, as those of users
/// do. Errors: the first file that cannot be used.
fn load_passwords(
    paths: &ListenerPaths,
    decoys: Option<&DecoySecret>,
    before: &PasswordFiles,
    digests: &FileDigests,
) -> Result<PasswordFiles, StartError> {
    let read = |path: &Path| {
        let file = PasswordFile::parse(path, &digests.read(path)?)?;
        Ok(match decoys {
            Some(secret) if paths.is_of_broker(path) => file.with_decoys(secret),
            Some(secret) => file.with_decoys(&secret.of_file(path)),
            None => file,
        })
    };
    paths.load(read, (StartError::Passwords, StartError::ListenerPasswords), before)
}

impl HttpSource {
    /// Returns the service that the configuration names; `None` without one.
    fn of(auth: &config::Auth) -> Option<HttpSource> {
        let url = auth.http_service()?;
        Some(HttpSource { url, ca: auth.http_ca_path(), headers: auth.http_headers_path() })
    }

    /// Returns the files of the service, each with its key.
    fn files(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let (ca, headers) = (self.ca.as_deref(), self.headers.as_deref());
        [("auth.http_ca", ca), ("auth.http_headers", headers)]
            .into_iter()
            .filter_map(|(key, path)| Some((key, path?)))
    }

    /// Reads the files of the service.
    fn load(&self, digests: &FileDigests) -> Result<HttpTarget, StartError> {
        let load_headers = |path: &Path| HttpHeaders::parse(path, &Zeroizing::new(digests.read(path)?));
        let headers = self.headers.as_deref().map(load_headers).transpose();
        let headers = headers.map_err(StartError::HttpHeaders)?.unwrap_or_default();
        let target = HttpTarget::new(self.url.clone(), self.ca.as_deref(), &headers);
        if let Some(ca) = &self.ca {
            // For its digest alone: rustls has read the file itself, and does not return the
            // content.
            let _ = digests.read(ca);
        }
        target.map_err(StartError::HttpService)
    }
}

fn token_check(auth: &config::Auth, keys: TokenKeys) -> TokenCheck {
    let text = |text: &str| (!text.is_empty()).then(|| text.into());
    let rules = TokenRules {
        user_claim: auth.jwt_user_claim.as_str().into(),
        audience: text(&auth.jwt_audience),
        issuer: text(&auth.jwt_issuer),
    };
    let place = match auth.jwt_from {
        config::JwtFrom::Password => TokenPlace::Password,
        config::JwtFrom::UserName => TokenPlace::UserName,
    };
    TokenCheck { verifier: TokenVerifier::new(Arc::new(keys), rules), place }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::password::hash::PasswordHash;
    use crate::auth::password::scram::ScramHash;
    use crate::config::Listener;

    #[test]
    fn the_salts_of_an_unknown_name_differ_between_files_as_those_of_a_user_do() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, salt: u8| {
            let path = directory.path().join(name);
            let hash = PasswordHash::Scram(ScramHash::create(b"x", &[salt; 16])).to_text();
            std::fs::write(&path, format!("ann:{hash}\n")).unwrap();
            path
        };
        let (broker, one, other) = (file("broker", 1), file("one", 2), file("other", 3));
        let own =
            |file: &Path| Listener { password_file: Some(file.display().to_string()), ..Listener::default() };
        let listeners = vec![own(&one), own(&other), own(&one), own(&broker), Listener::default()];
        let plan = ListenerPlan::at_start(&listeners);
        let paths =
            ListenerPaths::new(&plan, Some(broker.clone()), |one| one.password_file.as_ref(), Vec::new());
        let secret = DecoySecret::of_directory(directory.path()).unwrap();
        let salts = |user: &str| -> Vec<Vec<u8>> {
            let files =
                load_passwords(&paths, Some(&secret), &PasswordFiles::default(), &FileDigests::default())
                    .unwrap();
            let of = |listener: &Listener| files.of(listener.password_file.as_deref().map(Path::new));
            let salt = |listener| of(listener).expect("a file").scram(user).0.salt().to_vec();
            listeners.iter().map(salt).collect()
        };
        let (known, unknown) = (salts("ann"), salts("nobody"));
        let same = |salts: &[Vec<u8>]| -> Vec<usize> {
            let first = |salt: &Vec<u8>| salts.iter().position(|other| other == salt).expect("itself");
            salts.iter().map(first).collect()
        };
        assert_eq!((same(&known), same(&unknown)), (vec![0, 1, 0, 3, 3], vec![0, 1, 0, 3, 3]));
        assert_eq!(salts("nobody"), unknown, "they stay");
        let before = PasswordFile::load(&broker).unwrap().with_decoys(&secret);
        assert_eq!(before.scram("nobody").0.salt(), unknown[4], "the broker's file has the secret itself");
    }
}
