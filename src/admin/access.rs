//! Permissions of callers: the scopes, and the users of the Unix socket.
//!
//! The process at the other end of the Unix socket is known to the kernel. Root and the broker's
//! own user may do everything there, others may look. All others prove themselves by the file of
//! [credentials](super::credentials).

use crate::named_enum::{Named, named_enum};
use std::net::IpAddr;
use std::str::FromStr;

/// SHA-256 of a token, or of the stored hash of a password.
pub(super) type CredentialFingerprint = [u8; 32];

named_enum! {
    /// The permission of a caller. Each scope includes the scopes before it, but a viewer may not
    /// publish. The names are the words in the file of credentials.
    #[derive(PartialOrd, Ord)]
    pub enum Scope {
        /// May publish messages, and nothing else.
        Publisher = "publisher",
        /// May look.
        Viewer = "viewer",
        /// May act on clients and messages, too.
        Operator = "operator",
        /// May change the broker, too.
        Admin = "admin",
    }
}

impl Scope {
    /// Returns true if a caller with this scope may do what needs the scope `needed`.
    pub fn includes(self, needed: Scope) -> bool {
        self >= needed && (self, needed) != (Scope::Viewer, Scope::Publisher)
    }
}

impl FromStr for Scope {
    type Err = String;

    fn from_str(text: &str) -> Result<Scope, String> {
        Scope::of_name(text)
            .ok_or_else(|| "the scope must be publisher, viewer, operator or admin".to_owned())
    }
}

/// The origin of a request, for the audit log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Origin {
    /// The address of the caller, which a trusted proxy may name; `None` on the Unix socket.
    pub(super) address: Option<IpAddr>,
    /// The number of the request since the start. The answer has it as `X-Request-Id`.
    pub(super) request: u64,
}

/// A caller that has proven itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The name of the token or user, or `uid:1000` on the Unix socket.
    pub name: String,
    /// The permission of the caller.
    pub scope: Scope,
    /// The credential that the caller has shown; `None` on the Unix socket.
    pub(super) credential: Option<CredentialFingerprint>,
    /// The request by which the caller asks.
    pub(super) origin: Origin,
}

impl Caller {
    pub(super) fn with_origin(self, origin: Origin) -> Caller {
        Caller { origin, ..self }
    }

    /// Returns true if both have shown the same credential, or are the same user of the Unix
    /// socket. Limits of a caller count for its credential.
    pub(super) fn is_same(&self, other: &Caller) -> bool {
        (&self.name, self.credential) == (&other.name, other.credential)
    }

    /// Returns true if the caller came by the Unix socket.
    pub(super) fn is_of_socket(&self) -> bool {
        self.credential.is_none()
    }
}

/// The user of the process at the other end of the Unix socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerUser(pub(super) u32);

impl PeerUser {
    pub(super) fn caller(self) -> Caller {
        let own = rustix::process::geteuid().as_raw();
        let scope = if self.0 == 0 || self.0 == own { Scope::Admin } else { Scope::Viewer };
        Caller { name: format!("uid:{}", self.0), scope, credential: None, origin: Origin::default() }
    }
}
