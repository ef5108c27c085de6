//! The keys of `[auth]`.

use super::paths::path_of;
use crate::config::Anonymous;
use crate::config::choices::JwtFrom;
use crate::config::rule::{ValueType, days, millis, seconds};
use crate::config::service_url::{ServiceUrl, is_service_url};
use crate::config::table::section;
use crate::config::value;
use crate::named_enum::Named;
use crate::session::authentication::AuthMethod;
use std::path::PathBuf;
use std::time::Duration;

section! {
    /// The clients that may connect. Another client gets return code 5, or 0x87 in 5.0. The answer
    /// does not show if the user name exists.
    [auth] Auth {
        /// The connections on which clients without user name and password may enter. "loopback":
        /// the listener is bound to a loopback address or a Unix socket, and the client is on this
        /// machine. "never" and "always" hold for all connections. Without a method, a user name
        /// that a client sends all the same is not verified, and counts unchanged. With a method, a
        /// client with a wrong password never becomes anonymous.
        anonymous: Anonymous = Anonymous::Loopback,
            ValueType::OneOf(Anonymous::NAMES).only(),
            why: "The first steps on one machine need no user. A broker that others can reach lets nobody in by mistake.",
            elsewhere: "mosquitto `allow_anonymous`, FlashMQ `allow_anonymous`, EMQX `authentication`";
        /// The file with the users and the hashes of their passwords, as `homing passwd` and
        /// `mosquitto_passwd` write it. SIGHUP reads it again: users who have left it, or have
        /// another password, are disconnected with 0x87. A file with a mistake changes nothing.
        password_file: String = String::new(),
            ValueType::Path.or("off", "no file"),
            elsewhere: "mosquitto and FlashMQ `password_file`";
        /// The methods of authentication, in their order. The first method that fits the client's
        /// credentials decides. "certificate": the name in the client's verified certificate.
        /// "password": `password_file`. "scram": SCRAM-SHA-256 with the users of `password_file`
        /// who have a $scram-sha-256$ line, for 5.0 clients that name it as Authentication Method.
        /// "jwt": a token, signed with a key of `jwt_keys`. "http": the service at `http_url`. A
        /// user who is not in the password file, a password that is no token, and a client that the
        /// service ignores, are left to the next method.
        methods: Vec<AuthMethod> = Vec::new(),
            ValueType::SomeOf(AuthMethod::NAMES).or("auto", "\"certificate\", with jwt_keys \"jwt\", with password_file \"scram\" and \"password\", and with http_url \"http\""),
            why: "A file that is named is meant to be used.";
        /// The file with the keys of JSON Web Tokens: a JWK Set, in JSON. The key fixes the
        /// algorithm: HS256 to HS512, RS256 to RS512, PS256 to PS512, ES256 to ES512 or EdDSA. A
        /// token needs `exp`, and its connection ends then (5.0: 0xA0). Its claims `acl` and
        /// `is_superuser` are the rules of the session. SIGHUP reads the file again.
        /// docs/logins.md has the details.
        jwt_keys: String = String::new(),
            ValueType::Path.or("off", "no file"),
            elsewhere: "EMQX `authentication` with mechanism `jwt`";
        /// The audience (`aud`) that a token must name. With "off" a token that names one is
        /// refused, because it is meant for somebody else.
        jwt_audience: String = String::new(),
            ValueType::Checked(is_text, "a text").or("off", "tokens without an audience"),
            why: "One issuer may sign tokens for many services.";
        /// The issuer (`iss`) that a token must name.
        jwt_issuer: String = String::new(),
            ValueType::Checked(is_text, "a text").or("off", "any issuer");
        /// The claim with the user name. The user name of CONNECT does not count.
        jwt_user_claim: String = "sub".to_owned(),
            ValueType::Checked(is_text, "the name of a claim").only();
        /// The place of the token in CONNECT.
        jwt_from: JwtFrom = JwtFrom::Password,
            ValueType::OneOf(JwtFrom::NAMES).only(),
            elsewhere: "EMQX `authentication.from`";
        /// The address of an HTTP service that decides about clients with a user name. The broker
        /// sends it a POST at CONNECT, with `clientid`, `username`, `password` and `peerhost` in
        /// JSON. The service answers 204 to let the client in, or 200 and a JSON object: `result`
        /// is "allow", "deny" or "ignore", and `is_superuser`, `acl` and `expire_at` are optional,
        /// as for EMQX. Without such an answer the client is refused with 0x88, and 3 in 3.x.
        /// Redirects are not followed, and answers are not remembered. After five failures in a row
        /// the service is asked again after a second. docs/logins.md has the details.
        http_url: String = String::new(),
            ValueType::Checked(is_service_url, "an address such as \"https://login.example:8443/mqtt\", without a user name in it").or("off", "no service"),
            elsewhere: "EMQX `authentication` with backend `http`";
        /// The authorities that sign the certificate of the service, in PEM or DER. SIGHUP reads
        /// the file again.
        http_ca: String = String::new(),
            ValueType::Path.or("off", "the authorities that the system trusts");
        /// A file with further headers of each request, one `Name: value` on a line. A secret of
        /// the broker belongs there. SIGHUP reads the file again.
        http_headers: String = String::new(),
            ValueType::Path.or("off", "no further headers"),
            elsewhere: "EMQX `authentication.headers`";
        /// The time within which the service has to answer. `timeout` bounds it, too.
        http_timeout: Duration = Duration::ZERO,
            ValueType::Duration(millis(10), seconds(60)).or("auto", "as `timeout`"),
            elsewhere: "EMQX `authentication.request_timeout`";
        /// Threads that check passwords and tokens. With "auto" it is 1 below 4 cores, else a
        /// quarter of the cores. These threads run with lower priority than the threads of
        /// connections.
        workers: usize = 0,
            ValueType::Integer(1, 64).or("auto", "1 below 4 cores, else a quarter of them"),
            why: "A hash may take 40 ms. Logins must not delay the messages of others.";
        /// The time within which a client's credentials are checked. A client whose check would not
        /// fit is refused at once: 5.0 with 0x89, 3.x with return code 3. A check that is not done
        /// in time ends with 0x88 and 3.
        timeout: Duration = Duration::from_secs(5),
            ValueType::Duration(millis(100), seconds(60)).only(),
            why: "Clients usually give up and try again after 10 to 30 seconds.";
        /// The time for which a right password is remembered, so that a returning client costs no
        /// hash. The memory holds no password, ends with the process, and does not outlive a change
        /// of the user's line in `password_file`.
        cache: Duration = Duration::from_secs(600),
            ValueType::Duration(seconds(1), days(1)).or("off", "every password is checked by its hash"),
            why: "After a short loss of the network a fleet returns within minutes.";
        /// Failed logins of one address within a minute. At this number the address is blocked for
        /// five minutes: its logins with a password are refused with 0x8A, and 5 in 3.x, even with
        /// the right one. An IPv6 address counts by its first 64 bits. Its first 48 bits count too,
        /// with 16 times the number. Addresses of this machine are never blocked.
        failures: u32 = 10,
            ValueType::Integer(1, 1_000_000).or("off", "addresses are never blocked"),
            why: "Nobody guesses a good password in 10 trials a minute. Raise it where many clients share one address.";
        /// True if a session belongs to the user who made it. Another user with the same client id
        /// is refused (5.0: 0x85; 3.x: return code 2), whether the session is connected or not, and
        /// with Clean Start, too. A name that nothing verifies owns nothing.
        session_owner: bool = true,
            ValueType::Boolean.only(),
            reload: NewConnections,
            why: "Otherwise each user could read the queue of another user's session, or end it.";
        /// True if a session without an owner belongs to the first user who connects with its
        /// client id. Anonymous clients make such sessions, and so did versions before 0.2. With
        /// false that user is refused in the same way.
        adopt_unowned_sessions: bool = true,
            ValueType::Boolean.only(),
            reload: NewConnections,
            why: "A fleet that gets user names keeps its sessions.";
    }
}

impl Auth {
    /// Returns true if this section names what a method reads or asks.
    pub(crate) fn equips(&self, method: AuthMethod) -> bool {
        match method {
            AuthMethod::Certificate => true,
            AuthMethod::Password | AuthMethod::Scram => self.password_path().is_some(),
            AuthMethod::Jwt => self.jwt_keys_path().is_some(),
            AuthMethod::Http => self.http_service().is_some(),
        }
    }

    /// Returns the path of the password file; `None` without one.
    pub fn password_path(&self) -> Option<PathBuf> {
        path_of(&self.password_file)
    }

    /// Returns the path of the keys of tokens; `None` without one.
    pub fn jwt_keys_path(&self) -> Option<PathBuf> {
        path_of(&self.jwt_keys)
    }

    /// Returns the HTTP service that decides logins; `None` without one.
    pub fn http_service(&self) -> Option<ServiceUrl> {
        ServiceUrl::parse(&self.http_url)
    }

    /// Returns the path of the authorities of the HTTP service; `None` for those of the system.
    pub fn http_ca_path(&self) -> Option<PathBuf> {
        path_of(&self.http_ca)
    }

    /// Returns the path of the further headers of requests; `None` without them.
    pub fn http_headers_path(&self) -> Option<PathBuf> {
        path_of(&self.http_headers)
    }

    /// Returns the time within which the HTTP service has to answer.
    pub fn http_answer_timeout(&self) -> Duration {
        if self.http_timeout.is_zero() { self.timeout } else { self.http_timeout }
    }

    /// Returns the number of threads that check passwords.
    pub fn worker_count(&self) -> usize {
        match self.workers {
            0 => std::thread::available_parallelism().map_or(1, |cores| (cores.get() / 4).max(1)),
            n => n,
        }
    }
}

/// Returns true for a text with at least one character.
fn is_text(value: &config::Value) -> bool {
    value::text(value).is_some_and(|text| !text.is_empty())
}
