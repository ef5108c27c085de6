//! The server's side of SCRAM-SHA-256 (RFC 5802, RFC 7677): its messages and its checks.
//!
//! ```text
//! client  n,,n=ann,r=CLIENT                                 CONNECT
//! server  r=CLIENTSERVER,s=SALT,i=4096                      AUTH 0x18
//! client  c=biws,r=CLIENTSERVER,p=PROOF                     AUTH 0x18
//! server  v=SIGNATURE                                       CONNACK
//! ```
//!
//! The password is never sent, and the server has only keys that are derived from it. The slow
//! derivation is the client's work, so the server's part costs about 2 us. Channel binding is not
//! offered. The user name is compared as bytes: clients send it in the form that SASLprep gives.

use crate::auth::password::scram::ScramHash;
use crate::named_enum::named_enum;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::fmt;

/// The largest message of a client in bytes. Names and nonces are far shorter.
const LONGEST_MESSAGE: usize = 1_024;

named_enum! {
    /// The reason why an exchange failed, for the log: without any text of the client.
    pub enum ScramError {
        /// The message is too long, or is not UTF-8.
        Text = "the SCRAM message is longer than 1,024 bytes, or is not UTF-8",
        /// The first message does not have the form of the RFC.
        First = "the first SCRAM message does not have the form n,,n=USER,r=NONCE",
        /// The last message does not have the form of the RFC.
        Last = "the last SCRAM message does not have the form c=biws,r=NONCE,p=PROOF",
        /// The client demands channel binding.
        ChannelBinding = "the client demands SCRAM channel binding, which is not offered",
        /// The client wants to act as another user.
        AuthorizationIdentity = "the client sent a SCRAM authorization identity, which is not offered",
        /// The client demands an extension.
        Extension = "the client demands an unknown SCRAM extension",
        /// The user name is empty, or has a control character or a wrong escape.
        Name = "the SCRAM user name is empty, or has a control character or a wrong escape",
        /// The last message belongs to another exchange.
        Nonce = "the SCRAM nonce is not that of the exchange",
        /// The password file has no SCRAM line of the user.
        UnknownUser = "unknown user name, or the user has no $scram-sha-256$ line (homing passwd -H scram)",
        /// The client does not know the password.
        WrongProof = "wrong password (SCRAM)",
        /// The client has proven the empty password, which is refused.
        EmptyPassword = "the user's $scram-sha-256$ line is that of the empty password, which is refused (homing passwd)",
    }
}

/// The first message of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientFirst<'a> {
    user: String,
    nonce: &'a str,
    /// The message without the part about channel binding.
    bare: &'a str,
    /// The part about channel binding, as the last message repeats it.
    binding: &'static str,
}

impl<'a> ClientFirst<'a> {
    /// Reads the first message of a client.
    ///
    /// # Errors
    /// The message is not one of SCRAM, or demands channel binding, an authorization identity or an
    /// extension.
    pub fn parse(message: &'a [u8]) -> Result<ClientFirst<'a>, ScramError> {
        let text = text(message)?;
        let (flag, rest) = text.split_once(',').ok_or(ScramError::First)?;
        let (authorization, bare) = rest.split_once(',').ok_or(ScramError::First)?;
        let binding = match flag {
            "n" => "biws",
            // The client could bind, and saw that this server does not offer it.
            "y" => "eSws",
            _ if flag.starts_with("p=") => return Err(ScramError::ChannelBinding),
            _ => return Err(ScramError::First),
        };
        if !authorization.is_empty() {
            let is_named = authorization.starts_with("a=");
            return Err(if is_named { ScramError::AuthorizationIdentity } else { ScramError::First });
        }
        if bare.starts_with("m=") {
            return Err(ScramError::Extension);
        }
        let mut attributes = bare.split(',');
        let mut next = |name| attributes.next().and_then(|part| part.strip_prefix(name));
        let (Some(user), Some(nonce)) = (next("n="), next("r=")) else { return Err(ScramError::First) };
        if nonce.is_empty() || !nonce.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(ScramError::First);
        }
        Ok(ClientFirst { user: name(user)?, nonce, bare, binding })
    }

    /// Returns the user name, without escapes.
    pub fn user(&self) -> &str {
        &self.user
    }
}

/// An exchange that waits for the client's last message. The value is immutable, so a message is
/// only ever checked against the exchange for which the client made the message.
pub struct ScramExchange {
    user: Box<str>,
    hash: ScramHash,
    keys: ScramKeys,
    /// The bytes of the messages so far, as they are signed.
    signed: Box<str>,
    server_first: Box<str>,
    nonce: Box<str>,
    binding: &'static str,
}

/// The keys of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScramKeys {
    /// The keys of the user.
    OfUser,
    /// Nobody's keys, because there is no such user. The exchange fails at its end.
    MadeUp,
}

impl ScramExchange {
    /// Answers the first message. `hash` has the keys that `keys` speaks of. `server_nonce` is
    /// printable ASCII without commas, and new for each exchange.
    pub fn begin(
        first: ClientFirst<'_>,
        hash: ScramHash,
        keys: ScramKeys,
        server_nonce: &str,
    ) -> ScramExchange {
        let nonce = format!("{}{server_nonce}", first.nonce);
        let salt = STANDARD.encode(hash.salt());
        let server_first = format!("r={nonce},s={salt},i={}", hash.iterations());
        ScramExchange {
            signed: format!("{},{server_first}", first.bare).into(),
            user: first.user.into(),
            hash,
            keys,
            server_first: server_first.into(),
            nonce: nonce.into(),
            binding: first.binding,
        }
    }

    /// Returns the user name that the client wants to prove.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Returns the server's first message.
    pub fn server_first(&self) -> &str {
        &self.server_first
    }

    /// Checks the client's last message, and returns the server's last message. The check takes
    /// equally long for a known and an unknown user.
    ///
    /// # Errors
    /// The message is not one of SCRAM, is of another exchange, or does not prove the password.
    pub fn finish(&self, message: &[u8]) -> Result<String, ScramError> {
        let text = text(message)?;
        let (unproven, proof) = text.rsplit_once(",p=").ok_or(ScramError::Last)?;
        let mut attributes = unproven.split(',');
        let mut next = |name| attributes.next().and_then(|part| part.strip_prefix(name));
        let (Some(binding), Some(nonce)) = (next("c="), next("r=")) else { return Err(ScramError::Last) };
        if binding != self.binding {
            return Err(ScramError::ChannelBinding);
        }
        if nonce != &*self.nonce {
            return Err(ScramError::Nonce);
        }
        let proof = STANDARD.decode(proof).ok().and_then(|proof| proof.try_into().ok());
        let proof: [u8; 32] = proof.ok_or(ScramError::Last)?;
        let signed = format!("{},{unproven}", self.signed);
        let is_proven = self.hash.proves(signed.as_bytes(), &proof);
        let signature = self.hash.server_signature(signed.as_bytes());
        match (is_proven, self.keys) {
            (true, ScramKeys::OfUser) => Ok(format!("v={}", STANDARD.encode(signature))),
            (false, ScramKeys::OfUser) => Err(ScramError::WrongProof),
            (_, ScramKeys::MadeUp) => Err(ScramError::UnknownUser),
        }
    }
}

impl fmt::Debug for ScramExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScramExchange").field("user", &self.user).finish_non_exhaustive()
    }
}

fn text(message: &[u8]) -> Result<&str, ScramError> {
    let text = std::str::from_utf8(message).map_err(|_| ScramError::Text)?;
    if text.len() > LONGEST_MESSAGE { Err(ScramError::Text) } else { Ok(text) }
}

/// Parses a user name: `=2C` is a comma, and `=3D` an equals sign.
fn name(escaped: &str) -> Result<String, ScramError> {
    let mut parts = escaped.split('=');
    let mut name = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (sign, rest) = match (part.strip_prefix("2C"), part.strip_prefix("3D")) {
            (Some(rest), _) => (',', rest),
            (_, Some(rest)) => ('=', rest),
            _ => return Err(ScramError::Name),
        };
        name.push(sign);
        name.push_str(rest);
    }
    if name.is_empty() || name.chars().any(char::is_control) { Err(ScramError::Name) } else { Ok(name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7677, section 3.
    const FIRST: &str = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
    const SERVER_NONCE: &str = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
    const LAST: &str = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                        p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";

    fn begun(first: &str, password: &str, keys: ScramKeys) -> ScramExchange {
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let hash = ScramHash::create(password.as_bytes(), &salt);
        ScramExchange::begin(ClientFirst::parse(first.as_bytes()).unwrap(), hash, keys, SERVER_NONCE)
    }

    #[test]
    fn the_messages_are_those_of_rfc_7677() {
        let exchange = begun(FIRST, "pencil", ScramKeys::OfUser);
        assert_eq!(exchange.user(), "user");
        assert_eq!(
            exchange.server_first(),
            "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
        );
        let last = exchange.finish(LAST.as_bytes());
        assert_eq!(last.as_deref(), Ok("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="));
    }

    #[test]
    fn a_wrong_password_and_an_unknown_user_fail_at_the_end() {
        assert_eq!(
            begun(FIRST, "pen", ScramKeys::OfUser).finish(LAST.as_bytes()),
            Err(ScramError::WrongProof)
        );
        for password in ["pen", "pencil"] {
            let made_up = begun(FIRST, password, ScramKeys::MadeUp);
            assert_eq!(made_up.finish(LAST.as_bytes()), Err(ScramError::UnknownUser));
        }
    }

    #[test]
    fn a_last_message_is_bound_to_its_exchange() {
        let exchange = begun(FIRST, "pencil", ScramKeys::OfUser);
        let finish = |text: &str| exchange.finish(text.as_bytes()).unwrap_err();
        assert_eq!(finish(&LAST.replace("c=biws", "c=eSws")), ScramError::ChannelBinding);
        assert_eq!(finish(&LAST.replace("hNlF$k0", "hNlF$k1")), ScramError::Nonce);
        assert_eq!(finish(&LAST.replace("rOprNGfwEbeRWgbNEkqO%", "%")), ScramError::Nonce);
        // The signature covers an extension that was put in.
        assert_eq!(finish(&LAST.replace(",p=", ",x=1,p=")), ScramError::WrongProof);
        let other = begun("y,,n=user,r=rOprNGfwEbeRWgbNEkqO", "pencil", ScramKeys::OfUser);
        assert_eq!(other.finish(LAST.as_bytes()), Err(ScramError::ChannelBinding));
    }

    #[test]
    fn the_first_message_has_a_name_and_a_nonce() {
        let first = |text: &'static str| ClientFirst::parse(text.as_bytes());
        for text in ["n,,n=a,r=b", "y,,n=a,r=b", "n,,n=a,r=b,x=more"] {
            assert_eq!(first(text).unwrap().user(), "a", "{text}");
        }
        assert_eq!(first("n,,n=a=2Cb=3D=2Cc,r=b").unwrap().user(), "a,b=,c");
        assert_eq!(first("n,,n=j\u{fc}rgen,r=b").unwrap().user(), "j\u{fc}rgen");
        for (text, error) in [
            ("", ScramError::First),
            ("n", ScramError::First),
            ("n,,", ScramError::First),
            ("n,,n=a", ScramError::First),
            ("n,,n=a,r=", ScramError::First),
            ("n,,n=a,r=a b", ScramError::First),
            ("n,,r=b,n=a", ScramError::First),
            ("x,,n=a,r=b", ScramError::First),
            ("n,x,n=a,r=b", ScramError::First),
            ("p=tls-unique,,n=a,r=b", ScramError::ChannelBinding),
            ("n,a=root,n=a,r=b", ScramError::AuthorizationIdentity),
            ("n,,m=x,n=a,r=b", ScramError::Extension),
            ("n,,n=,r=b", ScramError::Name),
            ("n,,n=a=2c,r=b", ScramError::Name),
            ("n,,n=a=,r=b", ScramError::Name),
            ("n,,n=a\0,r=b", ScramError::Name),
        ] {
            assert_eq!(first(text), Err(error), "{text}");
        }
        assert_eq!(ClientFirst::parse(b"n,,n=\xff,r=b"), Err(ScramError::Text));
        assert_eq!(ClientFirst::parse(&[b'n'; 1_025]), Err(ScramError::Text));
    }

    #[test]
    fn the_last_message_has_a_proof_of_32_bytes() {
        let exchange = begun(FIRST, "pencil", ScramKeys::OfUser);
        let proof = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        for last in ["", ",p=", "c=biws", "AAAA", "p=AAAA"] {
            assert_eq!(exchange.finish(last.as_bytes()), Err(ScramError::Last), "{last}");
        }
        for wrong in ["", "AAAA", "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ", "?"] {
            let last = LAST.replace(proof, wrong);
            assert_eq!(exchange.finish(last.as_bytes()), Err(ScramError::Last), "{wrong}");
        }
    }

    #[test]
    fn debug_shows_no_key() {
        assert_eq!(
            format!("{:?}", begun(FIRST, "pencil", ScramKeys::OfUser)),
            "ScramExchange { user: \"user\", .. }"
        );
    }
}
