//! Who may ask what: the scopes, the tokens, and the users of the Unix socket.
//!
//! A token is 256 random bits, so its plain SHA-256 in the file is enough: nobody can guess it.
//! The process at the other end of the Unix socket is known to the kernel. Root and the broker's
//! own user may do everything there, others may look.

use crate::auth::file_error::{FileError, LineErrors, entries};
use crate::auth::file_watch::FileWatch;
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use tracing::warn;

/// The beginning of every token, so that a scanner for leaked secrets finds one.
pub const TOKEN_PREFIX: &str = "hmg_";

/// What a caller may do. Each scope may do what those before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// May look.
    Viewer,
    /// May act on clients and messages, too.
    Operator,
    /// May change the broker, too.
    Admin,
}

impl Scope {
    /// Returns the word in the file of tokens.
    pub const fn name(self) -> &'static str {
        match self {
            Scope::Viewer => "viewer",
            Scope::Operator => "operator",
            Scope::Admin => "admin",
        }
    }
}

impl FromStr for Scope {
    type Err = String;

    fn from_str(text: &str) -> Result<Scope, String> {
        let all = [Scope::Viewer, Scope::Operator, Scope::Admin];
        let found = all.into_iter().find(|scope| scope.name() == text);
        found.ok_or_else(|| "the scope must be viewer, operator or admin".to_owned())
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A caller that has proven itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The name of the token, or `uid:1000` on the Unix socket.
    pub name: String,
    /// What the caller may do.
    pub scope: Scope,
    /// The SHA-256 of the token; `None` on the Unix socket.
    pub token: Option<[u8; 32]>,
}

impl Caller {
    /// Returns true if the caller came by the Unix socket.
    pub(super) fn is_of_socket(&self) -> bool {
        self.token.is_none()
    }
}

/// The user of the process at the other end of the Unix socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerUser(pub(super) u32);

impl PeerUser {
    /// Returns the caller.
    pub(super) fn caller(self) -> Caller {
        let own = rustix::process::geteuid().as_raw();
        let scope = if self.0 == 0 || self.0 == own { Scope::Admin } else { Scope::Viewer };
        Caller { name: format!("uid:{}", self.0), scope, token: None }
    }
}

/// The tokens of `admin.tokens_file`.
#[derive(Debug, Default)]
pub struct Tokens(Vec<Token>);

/// The file of tokens. A token that leaves the file is not valid any more.
#[derive(Debug, Default)]
pub(super) struct TokenFile {
    path: Option<PathBuf>,
    last: Mutex<(FileWatch, Arc<Tokens>)>,
}

impl TokenFile {
    /// Reads the file; `None` for no file and no tokens.
    ///
    /// # Errors
    /// As [`Tokens::load`].
    pub(super) fn load(path: Option<PathBuf>) -> Result<TokenFile, FileError> {
        let watch = FileWatch::new(&path);
        let tokens = path.as_deref().map(Tokens::load).transpose()?.unwrap_or_default();
        Ok(TokenFile { path, last: Mutex::new((watch, Arc::new(tokens))) })
    }

    /// Returns the tokens of the file as it is now. A file with a mistake, or a missing one, leaves
    /// the tokens as they were, and is logged once.
    pub(super) fn now(&self) -> Arc<Tokens> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let (watch, tokens) = &mut *last;
        if let Some(path) = self.path.as_deref().filter(|_| watch.has_changed()) {
            match Tokens::load(path) {
                Ok(new) => *tokens = Arc::new(new),
                Err(error) => {
                    warn!(event = "admin.tokens_refused", %error, "admin.tokens_file is not changed, because it has a mistake")
                }
            }
        }
        Arc::clone(tokens)
    }
}

#[derive(Debug)]
struct Token {
    name: String,
    scope: Scope,
    sha256: [u8; 32],
}

impl Tokens {
    /// Reads a file of tokens: `NAME:SCOPE:SHA256` on each line, the digest in hexadecimal digits.
    /// Empty lines and lines that begin with `#` are comments.
    ///
    /// # Errors
    /// The file cannot be read, or lines are not valid.
    pub fn load(file: &Path) -> Result<Tokens, FileError> {
        Tokens::parse(file, &FileError::read(file)?)
    }

    /// Reads the content of a file of tokens.
    ///
    /// # Errors
    /// Lines are not valid. All are named.
    pub fn parse(file: &Path, content: &[u8]) -> Result<Tokens, FileError> {
        let (mut tokens, mut errors) = (Vec::<Token>::new(), LineErrors::default());
        for (number, line) in entries(content, &mut errors) {
            match Token::parse(line) {
                Ok(token) if tokens.iter().any(|other| other.name == token.name) => {
                    errors.push(number, format!("the name {:?} stands twice", token.name));
                }
                Ok(token) => tokens.push(token),
                Err(what) => errors.push(number, what),
            }
        }
        errors.or(file, Tokens(tokens))
    }

    /// Returns true if the token of this caller still stands in the file, with its name and scope.
    pub(super) fn has(&self, caller: &Caller) -> bool {
        let Caller { name, scope, token } = caller;
        let is_it =
            |known: &Token| *token == Some(known.sha256) && known.name == *name && known.scope == *scope;
        self.0.iter().any(is_it)
    }

    /// Returns the caller that has this token. Looks at all tokens, so that the time says nothing
    /// about their order.
    pub fn caller(&self, token: &str) -> Option<Caller> {
        let given = sha256(token);
        let mut found = None;
        for known in &self.0 {
            if verify_slices_are_equal(&known.sha256, &given).is_ok() {
                let (name, token) = (known.name.clone(), Some(known.sha256));
                found = Some(Caller { name, scope: known.scope, token });
            }
        }
        found
    }
}

impl Token {
    fn parse(line: &str) -> Result<Token, String> {
        let mut fields = line.splitn(3, ':');
        let (Some(name), Some(scope), Some(hex)) = (fields.next(), fields.next(), fields.next()) else {
            return Err("a line is NAME:SCOPE:SHA256; `homing admin-token` writes one".to_owned());
        };
        if name.is_empty() {
            return Err("the name is empty".to_owned());
        }
        let sha256 = from_hex(hex.trim()).ok_or("the digest must be 64 hexadecimal digits")?;
        Ok(Token { name: name.to_owned(), scope: scope.parse()?, sha256 })
    }
}

/// Returns the line of a token in the file.
pub fn line_of(name: &str, scope: Scope, token: &str) -> String {
    let hex: String = sha256(token).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{name}:{scope}:{hex}")
}

fn sha256(text: &str) -> [u8; 32] {
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

    #[test]
    fn a_token_gives_the_scope_of_its_line_and_another_token_gives_none() {
        let content = format!("# tokens\n\n{}\n", line_of("grafana", Scope::Viewer, "hmg_secret"));
        let tokens = Tokens::parse(Path::new("tokens"), content.as_bytes()).expect("a valid file");
        let token = Some(sha256("hmg_secret"));
        let caller = Caller { name: "grafana".to_owned(), scope: Scope::Viewer, token };
        assert_eq!(tokens.caller("hmg_secret"), Some(caller));
        assert_eq!(tokens.caller("hmg_secrets"), None);
        assert_eq!(Tokens::default().caller(""), None);
    }

    #[test]
    fn a_caller_is_not_known_any_more_once_its_token_is_replaced() {
        let file = |scope: Scope, token: &str| {
            let line = line_of("grafana", scope, token);
            Tokens::parse(Path::new("tokens"), line.as_bytes()).expect("a valid file")
        };
        let caller = file(Scope::Viewer, "hmg_old").caller("hmg_old").expect("it is known");
        assert!(file(Scope::Viewer, "hmg_old").has(&caller));
        assert!(!file(Scope::Viewer, "hmg_new").has(&caller), "another token of the same name");
        assert!(!file(Scope::Admin, "hmg_old").has(&caller), "another scope");
    }

    #[test]
    fn every_mistake_in_a_file_of_tokens_is_named_with_its_line() {
        let good = line_of("a", Scope::Admin, "hmg_1");
        let content = format!("{good}\n{good}\nb:root:{}\nc:viewer:12\nd\n", "0".repeat(64));
        let error = Tokens::parse(Path::new("tokens"), content.as_bytes()).expect_err("mistakes").to_string();
        let lines: Vec<&str> = error.lines().collect();
        assert_eq!(lines.len(), 4, "{error}");
        assert!(lines[0].starts_with("tokens:2: ") && lines[0].contains("twice"), "{error}");
        assert!(lines[1].contains("viewer, operator or admin") && lines[2].contains("64"), "{error}");
    }
}
