//! The file of credentials: tokens for programs, and users with passwords for people.
//!
//! A line is `NAME:SCOPE:SECRET`, or `NAME:SCOPE:SECRET:END` for a token that ends at a time, such
//! as `2026-12-25T22:40:00Z`. The secret of a token is the SHA-256 of the token in hexadecimal
//! digits. A token is 256 random bits, so a plain digest is enough: nobody can guess it. The secret
//! of a user is an argon2id hash, because people choose passwords that can be guessed.
//!
//! - `file`: the file while the broker runs.
//! - `edit`: changes of the file.
//! - [`token_command`], [`user_command`]: `homing admin-token` and `homing admin-user`.

pub(super) mod edit;
pub(super) mod file;
pub mod token_command;
pub mod user_command;

use super::access::{Caller, CredentialFingerprint, Origin, Scope};
use crate::auth::file_error::{FileError, LineErrors, entries};
use crate::auth::password::hash::{HashKind, PasswordHash};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

/// The beginning of every token, so that a scanner for leaked secrets finds one.
pub const TOKEN_PREFIX: &str = "hmg_";

/// The credentials of `admin.credentials`.
#[derive(Debug, Default)]
pub struct Credentials(Vec<Credential>);

/// One line of the file.
#[derive(Debug)]
struct Credential {
    name: String,
    scope: Scope,
    secret: CredentialSecret,
    fingerprint: CredentialFingerprint,
    /// The time at which a token ends, in milliseconds since 1970; `None` for never.
    ends: Option<u64>,
}

/// The reason why a token admits nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedToken {
    /// The token is not in the file.
    Unknown,
    /// The token has ended.
    Ended,
}

/// A token or a user of the file, for a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialEntry {
    /// The name.
    pub name: String,
    /// The permission of its holder.
    pub scope: Scope,
    /// True for a user with a password.
    pub is_user: bool,
    /// The time at which a token ends, in milliseconds since 1970; `None` for never.
    pub ends: Option<u64>,
}

/// The proof that a caller must show.
#[derive(Debug)]
enum CredentialSecret {
    /// A token with the fingerprint of the credential.
    Token,
    Password(PasswordHash),
}

impl Credentials {
    /// Reads a file of credentials: `NAME:SCOPE:SECRET` on each line. Empty lines and lines that
    /// begin with `#` are comments.
    ///
    /// # Errors
    /// The file cannot be read, or lines are not valid.
    pub fn load(file: &Path) -> Result<Credentials, FileError> {
        Credentials::parse(file, &FileError::read(file)?)
    }

    /// Reads the content of a file of credentials.
    ///
    /// # Errors
    /// Lines are not valid. All are named.
    pub fn parse(file: &Path, content: &[u8]) -> Result<Credentials, FileError> {
        let (mut all, mut errors) = (Vec::<Credential>::new(), LineErrors::default());
        for (number, line) in entries(content, &mut errors) {
            match Credential::parse(line) {
                Ok(new) if all.iter().any(|other| other.name == new.name) => {
                    errors.push(number, format!("the name {:?} stands twice", new.name));
                }
                Ok(new) => all.push(new),
                Err(what) => errors.push(number, what),
            }
        }
        errors.or(file, Credentials(all))
    }

    /// Returns the numbers of tokens and of users.
    pub fn counts(&self) -> (usize, usize) {
        let users = self.passwords().count();
        (self.0.len() - users, users)
    }

    /// Iterates over all tokens and users, in the order of the file.
    pub fn entries(&self) -> impl Iterator<Item = CredentialEntry> {
        self.0.iter().map(|known| CredentialEntry {
            name: known.name.clone(),
            scope: known.scope,
            is_user: matches!(known.secret, CredentialSecret::Password(_)),
            ends: known.ends,
        })
    }

    /// Returns true if the credential of this caller is still in the file, with its name and scope,
    /// and has not ended at `unix_ms`.
    pub(super) fn has(&self, caller: &Caller, unix_ms: u64) -> bool {
        self.0.iter().any(|known| known.is_of(caller) && !known.has_ended(unix_ms))
    }

    /// Returns the time at which the token of this caller ends, in milliseconds since 1970; `None`
    /// for never.
    pub(super) fn end_of(&self, caller: &Caller) -> Option<u64> {
        self.0.iter().find(|known| known.is_of(caller))?.ends
    }

    /// Returns the caller that has this token at `unix_ms`. Looks at all credentials, so that the
    /// time says nothing about their order.
    ///
    /// # Errors
    /// The token is not known, or has ended.
    pub fn caller_of_token(&self, token: &str, unix_ms: u64) -> Result<Caller, RefusedToken> {
        let given = sha256(token);
        let mut found = Err(RefusedToken::Unknown);
        for known in self.0.iter().filter(|known| matches!(known.secret, CredentialSecret::Token)) {
            if verify_slices_are_equal(&known.fingerprint, &given).is_ok() {
                let has_ended = known.has_ended(unix_ms);
                found = if has_ended { Err(RefusedToken::Ended) } else { Ok(known.caller()) };
            }
        }
        found
    }

    /// Returns the user that has this name and password. Takes 20 ms, with the memory that the hash
    /// asks for. An unknown name costs as much as that of the first user, so that the time does not
    /// tell which names exist.
    pub fn caller_of_password(&self, name: &str, password: &[u8]) -> Option<Caller> {
        let mut passwords = self.passwords();
        let Some((user, hash)) = self.passwords().find(|(user, _)| user.name == name) else {
            passwords.next()?.1.verify(password);
            return None;
        };
        hash.verify(password).then(|| user.caller())
    }

    fn passwords(&self) -> impl Iterator<Item = (&Credential, &PasswordHash)> {
        self.0.iter().filter_map(|known| match &known.secret {
            CredentialSecret::Password(hash) => Some((known, hash)),
            CredentialSecret::Token => None,
        })
    }
}

impl Credential {
    fn parse(line: &str) -> Result<Credential, String> {
        let mut fields = line.splitn(3, ':');
        let (Some(name), Some(scope), Some(secret)) = (fields.next(), fields.next(), fields.next()) else {
            return Err(
                "a line is NAME:SCOPE:SECRET; `homing admin-token` and `homing admin-user` write one"
                    .to_owned(),
            );
        };
        if name.is_empty() {
            return Err("the name is empty".to_owned());
        }
        let (name, scope, text) = (name.to_owned(), scope.parse()?, secret.trim());
        // A hash has no colon.
        let (text, end) = text.split_once(':').map_or((text, None), |(text, end)| (text, Some(end)));
        let ends = end.map(|end| {
            read_end(end).ok_or("the end of a token must be a time in UTC, such as 2026-12-25T22:40:00Z")
        });
        let ends = ends.transpose()?;
        let (secret, fingerprint) = if text.starts_with('$') {
            if ends.is_some() {
                return Err("a user has no end; only a token has one".to_owned());
            }
            let hash = PasswordHash::parse(text).map_err(|error| error.to_string())?;
            if hash.cost().kind != HashKind::Argon2 {
                return Err(
                    "the hash of a password must be argon2id; `homing admin-user` makes one".to_owned()
                );
            }
            (CredentialSecret::Password(hash), sha256(text))
        } else {
            let digest = from_hex(text).ok_or(
                "the secret must be the SHA-256 of a token in 64 hexadecimal digits, or an argon2id hash",
            )?;
            (CredentialSecret::Token, digest)
        };
        Ok(Credential { name, scope, secret, fingerprint, ends })
    }

    /// Returns true if the caller has shown this credential, and it has the caller's name and
    /// scope.
    fn is_of(&self, caller: &Caller) -> bool {
        let Caller { name, scope, credential, .. } = caller;
        *credential == Some(self.fingerprint) && self.name == *name && self.scope == *scope
    }

    fn has_ended(&self, unix_ms: u64) -> bool {
        self.ends.is_some_and(|ends| ends <= unix_ms)
    }

    fn caller(&self) -> Caller {
        Caller {
            name: self.name.clone(),
            scope: self.scope,
            credential: Some(self.fingerprint),
            origin: Origin::default(),
        }
    }
}

/// Returns the secret of a token as the file has it.
pub fn secret_of_token(token: &str) -> String {
    sha256(token).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the line of a credential in the file.
pub fn line_of(name: &str, scope: Scope, secret: &str) -> String {
    format!("{name}:{scope}:{secret}")
}

/// Returns a time as the end of a token has it in the file, in UTC and whole seconds.
pub fn end_text(unix_ms: u64) -> String {
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_millis(unix_ms)).to_string()
}

/// Reads the end of a token, in milliseconds since 1970.
fn read_end(text: &str) -> Option<u64> {
    let end = humantime::parse_rfc3339(text).ok()?.duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(end.as_millis()).ok()
}

fn sha256(text: &str) -> CredentialFingerprint {
    let mut out = [0; 32];
    out.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
    out
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    let mut out = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (index, byte) in out.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::password::argon2::Argon2Hash;

    /// A time at which every token without an end admits.
    const NOW: u64 = 1_800_000_000_000;

    fn token_line(name: &str, scope: Scope, token: &str) -> String {
        line_of(name, scope, &secret_of_token(token))
    }

    fn hash_of(password: &str) -> String {
        let hash = Argon2Hash::create(password.as_bytes(), b"0123456789abcdef").expect("a salt of 16 bytes");
        hash.to_text()
    }

    fn parsed(content: &str) -> Credentials {
        Credentials::parse(Path::new("credentials"), content.as_bytes()).expect("a valid file")
    }

    #[test]
    fn a_token_gives_the_scope_of_its_line_and_another_token_gives_none() {
        let line = token_line("grafana", Scope::Viewer, "hmg_secret");
        let file = parsed(&format!("# tokens\n\n{line}\n"));
        let caller = file.caller_of_token("hmg_secret", NOW).expect("it is known");
        assert_eq!((caller.name.as_str(), caller.scope), ("grafana", Scope::Viewer));
        assert_eq!(file.caller_of_token("hmg_secrets", NOW), Err(RefusedToken::Unknown));
        assert_eq!(Credentials::default().caller_of_token("", NOW), Err(RefusedToken::Unknown));
    }

    #[test]
    fn a_user_is_known_by_name_and_password_and_is_no_token() {
        let hash = hash_of("sesame");
        let file = parsed(&line_of("ann", Scope::Operator, &hash));
        let caller = file.caller_of_password("ann", b"sesame").expect("it is known");
        assert_eq!((caller.name.as_str(), caller.scope), ("ann", Scope::Operator));
        assert!(file.has(&caller, NOW));
        assert_eq!(file.caller_of_password("ann", b"Sesame"), None);
        assert_eq!(file.caller_of_password("bob", b"sesame"), None);
        assert_eq!(file.caller_of_token(&hash, NOW), Err(RefusedToken::Unknown));
        assert_eq!(Credentials::default().caller_of_password("ann", b"sesame"), None);
    }

    #[test]
    fn the_name_of_a_token_is_no_user() {
        let file = parsed(&token_line("grafana", Scope::Viewer, "hmg_secret"));
        assert_eq!(file.caller_of_password("grafana", b"hmg_secret"), None);
    }

    #[test]
    fn a_caller_is_not_known_any_more_once_its_secret_or_its_scope_is_replaced() {
        let token = |scope, token| parsed(&token_line("grafana", scope, token));
        let caller = token(Scope::Viewer, "hmg_old").caller_of_token("hmg_old", NOW).expect("it is known");
        assert!(token(Scope::Viewer, "hmg_old").has(&caller, NOW));
        assert!(!token(Scope::Viewer, "hmg_new").has(&caller, NOW), "another token of the same name");
        assert!(!token(Scope::Admin, "hmg_old").has(&caller, NOW), "another scope");
        let user = |password| parsed(&line_of("ann", Scope::Viewer, &hash_of(password)));
        let caller = user("old").caller_of_password("ann", b"old").expect("it is known");
        assert!(user("old").has(&caller, NOW) && !user("new").has(&caller, NOW));
    }

    #[test]
    fn a_token_with_an_end_admits_nobody_from_then_on() {
        let line = token_line("grafana", Scope::Viewer, "hmg_secret");
        let file = parsed(&format!("{line}:{}\n", end_text(NOW)));
        let caller = file.caller_of_token("hmg_secret", NOW - 1).expect("it has not ended");
        assert!(file.has(&caller, NOW - 1) && !file.has(&caller, NOW));
        assert_eq!(file.caller_of_token("hmg_secret", NOW), Err(RefusedToken::Ended));
        assert_eq!(file.entries().map(|entry| entry.ends).collect::<Vec<_>>(), [Some(NOW)]);
        for end in ["", "2026", "2026-13-01T00:00:00Z", "2026-12-25T22:40:00Z:x", "1969-12-31T23:59:59Z"] {
            let content = format!("{line}:{end}");
            assert!(Credentials::parse(Path::new("file"), content.as_bytes()).is_err(), "{end:?}");
        }
        let user = format!("{}:{}", line_of("ann", Scope::Viewer, &hash_of("sesame")), end_text(NOW));
        assert!(Credentials::parse(Path::new("file"), user.as_bytes()).is_err());
    }

    #[test]
    fn every_mistake_in_a_file_is_named_with_its_line() {
        let good = token_line("a", Scope::Admin, "hmg_1");
        let weak = "$6$c2FsdA==$c2FsdA==";
        let content = format!("{good}\n{good}\nb:root:{}\nc:viewer:12\nd\ne:viewer:{weak}\n", "0".repeat(64));
        let error =
            Credentials::parse(Path::new("file"), content.as_bytes()).expect_err("mistakes").to_string();
        let lines: Vec<&str> = error.lines().collect();
        assert_eq!(lines.len(), 5, "{error}");
        assert!(lines[0].starts_with("file:2: ") && lines[0].contains("twice"), "{error}");
        assert!(lines[1].contains("viewer, operator or admin") && lines[2].contains("64"), "{error}");
        assert!(lines[4].starts_with("file:6: "), "{error}");
    }
}
