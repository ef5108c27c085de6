//! Decides from a CONNECT whether a client may enter, or who has to be asked.
//!
//! Anonymous clients and clients with a verified certificate are decided here, at once. A password
//! needs a hash, which takes too long for a shard's thread. So the shard asks the authenticator and
//! handles the CONNECT when the decision has come.

use crate::access::identity::{Identity, IdentitySource};
use crate::mqtt::packet::{Connect, ReasonCode};
use crate::named_enum::{Named, named_enum};
use crate::session::connect::ConnectRefusal;

/// The places from which a connection can come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// The listener is bound to loopback or to a Unix socket, and the peer is local. With PROXY
    /// protocol, the peer is the address in the header.
    Local,
    /// A trusted proxy: the address of its client is not known. Failed logins do not count then,
    /// because they would block everybody behind the proxy.
    Proxy,
    /// Anything else.
    #[default]
    Network,
}

named_enum! {
    /// The connections on which clients without credentials may enter.
    #[derive(Default)]
    pub enum Anonymous {
        /// Connections that cannot come from another machine.
        #[default]
        Loopback = "loopback",
        /// None.
        Never = "never",
        /// All.
        Always = "always",
    }

    /// A way to prove a user name.
    pub enum AuthMethod {
        /// The client's certificate has the name. The handshake has verified it.
        Certificate = "certificate",
        /// The client knows the password. The authenticator decides.
        Password = "password",
        /// The client proves by SCRAM-SHA-256 that it knows the password. Only in 5.0, by AUTH
        /// packets.
        Scram = "scram",
        /// The client has a token that somebody signed. The authenticator decides.
        Jwt = "jwt",
        /// The HTTP service of the operator decides. The authenticator asks it.
        Http = "http",
    }

    /// An Authentication Method of 5.0: a way to prove a user name by an exchange of AUTH packets.
    pub enum EnhancedMethod {
        /// SCRAM-SHA-256 (RFC 7677) without channel binding.
        ScramSha256 = "SCRAM-SHA-256",
    }
}

impl AuthMethod {
    /// The methods in the order in which a broker without `auth.methods` asks them.
    pub const AUTO: [AuthMethod; AuthMethod::ALL.len()] =
        [AuthMethod::Certificate, AuthMethod::Jwt, AuthMethod::Scram, AuthMethod::Password, AuthMethod::Http];

    /// Returns true if the method reads a password file.
    pub const fn reads_passwords(self) -> bool {
        matches!(self, AuthMethod::Password | AuthMethod::Scram)
    }

    /// Returns true if the authenticator decides.
    pub fn asks(self) -> bool {
        self != AuthMethod::Certificate
    }
}

/// The operator's rules about the clients that may enter by one listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthPolicy {
    /// The connections on which clients without credentials may enter.
    pub anonymous: Anonymous,
    /// The methods in their order. The first method that fits the client's credentials decides.
    pub methods: Vec<AuthMethod>,
}

/// The operator's rules about the owners of sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerPolicy {
    /// True if a session can be used only by its owner.
    pub session_owner: bool,
    /// True if a verified user may take over a session without an owner.
    pub adopt_unowned: bool,
}

impl Default for OwnerPolicy {
    fn default() -> OwnerPolicy {
        OwnerPolicy { session_owner: true, adopt_unowned: true }
    }
}

/// The relation of a client to the session of its client identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// The client may use the session.
    Granted,
    /// The session has no owner. The user of the client becomes its owner.
    Adopts,
}

impl OwnerPolicy {
    /// Returns whether a client may use, take over or end a session. `owner` is the session's owner
    /// and `user` the user of the client. A user whose name nothing verifies is no owner, and never
    /// equals one.
    ///
    /// # Errors
    /// [`ConnectRefusal`] if the session belongs to another user.
    pub fn check(
        &self,
        owner: Option<&Identity>,
        user: Option<&Identity>,
    ) -> Result<Ownership, ConnectRefusal> {
        let refuse = |what| Err(ConnectRefusal::new(ReasonCode::CLIENT_IDENTIFIER_NOT_VALID, what));
        let user = user.filter(|user| user.is_verified());
        match (owner, user) {
            _ if !self.session_owner => Ok(Ownership::Granted),
            (Some(owner), Some(user)) if owner.is_same_user(user) => Ok(Ownership::Granted),
            (Some(_), _) => refuse("another user owns the session of this client id (auth.session_owner)"),
            (None, None) => Ok(Ownership::Granted),
            (None, Some(_)) if self.adopt_unowned => Ok(Ownership::Adopts),
            (None, Some(_)) => {
                refuse("the session of this client id has no owner (auth.adopt_unowned_sessions)")
            }
        }
    }
}

/// The first decision about a CONNECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstDecision<'a> {
    /// The client may enter without a name.
    Anonymous,
    /// The client may enter with this name.
    Named(&'a str, IdentitySource),
    /// The authenticator decides.
    Asks,
    /// The authenticator begins an exchange of AUTH packets.
    Exchanges(EnhancedMethod),
}

impl AuthPolicy {
    /// Returns whether a client may enter. `certificate_user` is the name in the client's verified
    /// certificate.
    ///
    /// Without a method, nothing can verify a name but a certificate. Then the name that the client
    /// sent counts where anonymous clients may enter, and is marked as unverified. With a method, a
    /// client that sent credentials never becomes anonymous. A client that names an Authentication
    /// Method is authenticated by this method and no other.
    ///
    /// # Errors
    /// [`ConnectRefusal`] if no method fits the client, and it may not enter anonymously. The
    /// refusal has no Reason String, so that it equals that of a wrong password.
    pub fn entry<'a>(
        &self,
        connect: &Connect<'a>,
        reach: Reach,
        certificate_user: Option<&'a str>,
    ) -> Result<FirstDecision<'a>, ConnectRefusal> {
        if let Some(name) = connect.properties.authentication_method {
            return match EnhancedMethod::of_name(name) {
                Some(method) if self.methods.contains(&AuthMethod::Scram) => {
                    Ok(FirstDecision::Exchanges(method))
                }
                // 5.0 [MQTT-4.12.0-1]
                _ => Err(ConnectRefusal::new(
                    ReasonCode::BAD_AUTHENTICATION_METHOD,
                    "this Authentication Method is not offered (auth.methods)",
                )),
            };
        }
        for method in &self.methods {
            match method {
                AuthMethod::Certificate => {
                    if let Some(name) = certificate_user {
                        return Ok(FirstDecision::Named(name, IdentitySource::Certificate));
                    }
                }
                AuthMethod::Password if connect.user_name.is_some() => return Ok(FirstDecision::Asks),
                AuthMethod::Http if has_user_name(connect) => return Ok(FirstDecision::Asks),
                AuthMethod::Jwt if connect.user_name.is_some() || connect.password.is_some() => {
                    return Ok(FirstDecision::Asks);
                }
                AuthMethod::Password | AuthMethod::Scram | AuthMethod::Jwt | AuthMethod::Http => {}
            }
        }
        if self.methods.is_empty()
            && let Some(name) = certificate_user
        {
            return Ok(FirstDecision::Named(name, IdentitySource::Certificate));
        }
        let admits = match self.anonymous {
            Anonymous::Never => false,
            Anonymous::Loopback => reach == Reach::Local,
            Anonymous::Always => true,
        };
        match (connect.user_name, connect.password) {
            (Some(name), _) if admits && self.methods.is_empty() => {
                Ok(FirstDecision::Named(name, IdentitySource::Claim))
            }
            (None, None) if admits => Ok(FirstDecision::Anonymous),
            (None, Some(_)) if admits && self.methods.is_empty() => Ok(FirstDecision::Anonymous),
            _ => Err(self.refusal()),
        }
    }

    /// Returns true if the authenticator may be asked.
    pub fn asks(&self) -> bool {
        self.methods.iter().any(|method| method.asks())
    }

    /// Returns the methods by which the authenticator decides about a CONNECT without an
    /// Authentication Method, in their order. The HTTP service is not asked about a client without
    /// a user name, because it would verify the empty name.
    pub fn asked_methods(&self, connect: &Connect<'_>) -> Box<[AuthMethod]> {
        let asked = |method: &AuthMethod| match method {
            AuthMethod::Http => has_user_name(connect),
            AuthMethod::Scram => false,
            _ => method.asks(),
        };
        self.methods.iter().copied().filter(asked).collect()
    }

    fn refusal(&self) -> ConnectRefusal {
        // As mosquitto: a client whose certificate has no usable name gets "bad user name".
        if self.methods == [AuthMethod::Certificate] {
            return ConnectRefusal::unexplained(
                ReasonCode::BAD_USER_NAME_OR_PASSWORD,
                "the client's certificate has no usable user name",
            );
        }
        let what = if self.methods.is_empty() {
            "anonymous clients may not connect here, and no method of authentication is set: see auth.anonymous \
             and auth.password_file"
        } else {
            "anonymous clients may not connect here (auth.anonymous)"
        };
        ConnectRefusal::unexplained(ReasonCode::NOT_AUTHORIZED, what)
    }
}

/// Returns true if a CONNECT has a user name. An empty name does not count: no session and no rule
/// can have it.
fn has_user_name(connect: &Connect<'_>) -> bool {
    connect.user_name.is_some_and(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::connect::tests::connect;
    use AuthMethod::{Certificate, Password, Scram};
    use IdentitySource::Claim;

    fn entry<'a>(
        anonymous: Anonymous,
        methods: &[AuthMethod],
        credentials: (Option<&'a str>, Option<&'a [u8]>),
        reach: Reach,
        certificate: Option<&'a str>,
    ) -> Result<FirstDecision<'a>, u8> {
        let policy = AuthPolicy { anonymous, methods: methods.to_vec() };
        let mut connect = connect(crate::mqtt::packet::ProtocolVersion::V5);
        (connect.user_name, connect.password) = credentials;
        policy.entry(&connect, reach, certificate).map_err(|refusal| {
            assert!(!refusal.is_told);
            refusal.reason.byte()
        })
    }

    const NOBODY: (Option<&str>, Option<&[u8]>) = (None, None);
    const ANN: (Option<&str>, Option<&[u8]>) = (Some("ann"), Some(b"secret"));

    #[test]
    fn anonymous_clients_enter_where_the_operator_lets_them() {
        use Anonymous::{Always, Loopback, Never};
        use Reach::{Local, Network};
        let cases = [
            (Never, Local, false),
            (Never, Network, false),
            (Loopback, Local, true),
            (Loopback, Network, false),
            (Always, Local, true),
            (Always, Network, true),
        ];
        for (rule, reach, enters) in cases {
            for methods in [&[][..], &[Password], &[Certificate, Password]] {
                let expected = if enters { Ok(FirstDecision::Anonymous) } else { Err(0x87) };
                assert_eq!(
                    entry(rule, methods, NOBODY, reach, None),
                    expected,
                    "{rule:?} {reach:?} {methods:?}"
                );
            }
            let claimed = if enters { Ok(FirstDecision::Named("ann", Claim)) } else { Err(0x87) };
            assert_eq!(entry(rule, &[], ANN, reach, None), claimed, "{rule:?} {reach:?}");
        }
    }

    #[test]
    fn credentials_never_become_anonymous() {
        let always =
            |methods, credentials| entry(Anonymous::Always, methods, credentials, Reach::Local, None);
        assert_eq!(always(&[Password], ANN), Ok(FirstDecision::Asks));
        assert_eq!(always(&[Password], (Some("ann"), None)), Ok(FirstDecision::Asks));
        assert_eq!(always(&[Password], (None, Some(b"token"))), Err(0x87));
        assert_eq!(always(&[Certificate], ANN), Err(0x86));
    }

    #[test]
    fn the_service_is_asked_about_clients_with_a_user_name_only() {
        use AuthMethod::{Http, Jwt};
        let methods = vec![Certificate, Jwt, Http, Scram, Password];
        let policy = AuthPolicy { anonymous: Anonymous::Never, methods };
        let asked = |name| {
            let mut connect = connect(crate::mqtt::packet::ProtocolVersion::V5);
            (connect.user_name, connect.password) = (name, Some(b"no token".as_slice()));
            assert_eq!(policy.entry(&connect, Reach::Network, None), Ok(FirstDecision::Asks), "{name:?}");
            policy.asked_methods(&connect)
        };
        assert_eq!(*asked(Some("ann")), [Jwt, Http, Password]);
        for name in [None, Some("")] {
            assert_eq!(*asked(name), [Jwt, Password], "{name:?}");
        }
    }

    // 5.0 [MQTT-4.12.0-1]
    #[test]
    fn an_authentication_method_is_used_if_it_is_offered() {
        let mut connect = connect(crate::mqtt::packet::ProtocolVersion::V5);
        connect.user_name = Some("ann");
        let mut entry = |name, methods: &[AuthMethod]| {
            connect.properties.authentication_method = Some(name);
            let policy = AuthPolicy { anonymous: Anonymous::Always, methods: methods.to_vec() };
            policy.entry(&connect, Reach::Local, Some("cert")).map_err(|refusal| refusal.reason.byte())
        };
        let exchanges = Ok(FirstDecision::Exchanges(EnhancedMethod::ScramSha256));
        assert_eq!(entry("SCRAM-SHA-256", &[Certificate, Password, Scram]), exchanges);
        assert_eq!(entry("SCRAM-SHA-256", &[Certificate, Password]), Err(0x8C));
        for name in ["SCRAM-SHA-1", "SCRAM-SHA-256-PLUS", "scram-sha-256", ""] {
            assert_eq!(entry(name, &[Scram]), Err(0x8C), "{name}");
        }
    }

    #[test]
    fn a_session_is_for_its_owner() {
        let [ann, bob] = ["ann", "bob"].map(|name| Identity::new(name, IdentitySource::Password));
        let (certified, claimed) =
            (Identity::new("ann", IdentitySource::Certificate), Identity::new("ann", Claim));
        let policy = OwnerPolicy::default();
        let check = |policy: OwnerPolicy, owner: Option<&Identity>, user: Option<&Identity>| {
            policy.check(owner, user).map_err(|refusal| refusal.reason.byte())
        };
        for user in [&ann, &certified] {
            assert_eq!(check(policy, Some(&ann), Some(user)), Ok(Ownership::Granted));
        }
        for user in [None, Some(&bob), Some(&claimed)] {
            assert_eq!(check(policy, Some(&ann), user), Err(0x85), "{user:?}");
            let open = OwnerPolicy { session_owner: false, ..policy };
            assert_eq!(check(open, Some(&ann), user), Ok(Ownership::Granted));
        }
        for user in [None, Some(&claimed)] {
            assert_eq!(check(policy, None, user), Ok(Ownership::Granted));
        }
        assert_eq!(check(policy, None, Some(&ann)), Ok(Ownership::Adopts));
        let strict = OwnerPolicy { adopt_unowned: false, ..policy };
        assert_eq!(check(strict, None, Some(&ann)), Err(0x85));
    }

    #[test]
    fn without_a_method_a_certificate_counts_and_a_claim_does_not_beat_it() {
        let named = entry(Anonymous::Never, &[], ANN, Reach::Network, Some("cert"));
        assert_eq!(named, Ok(FirstDecision::Named("cert", IdentitySource::Certificate)));
    }

    #[test]
    fn the_first_method_that_fits_decides() {
        let ask = |methods| entry(Anonymous::Never, methods, ANN, Reach::Network, Some("cert"));
        let certified = Ok(FirstDecision::Named("cert", IdentitySource::Certificate));
        assert_eq!(ask(&[Certificate, Password]), certified);
        assert_eq!(ask(&[Password, Certificate]), Ok(FirstDecision::Asks));
        let unnamed = entry(Anonymous::Never, &[Password, Certificate], NOBODY, Reach::Network, Some("cert"));
        assert_eq!(unnamed, certified);
    }
}
