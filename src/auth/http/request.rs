//! The request to the service about a client.

use serde::Serialize;
use std::net::IpAddr;
use zeroize::Zeroizing;

/// A character takes at most six bytes in JSON: `\u0001`.
const ESCAPED: usize = 6;

/// The names of the members, and the longest address.
const FRAME: usize = 128;

/// A client that wants to enter.
#[derive(Clone, Copy)]
pub struct HttpClient<'a> {
    /// The client identifier; empty if the client let the broker choose one.
    pub client_id: &'a str,
    /// The user name that the client sent.
    pub user_name: &'a str,
    /// The password that the client sent; empty without one.
    pub password: &'a [u8],
    /// The client's address; `None` for a Unix socket.
    pub address: Option<IpAddr>,
}

/// The names are those of EMQX's placeholders.
#[derive(Serialize)]
struct Members<'a> {
    clientid: &'a str,
    username: &'a str,
    password: &'a str,
    peerhost: &'a str,
}

impl HttpClient<'_> {
    /// Returns the body of the request: a JSON object of four texts. Returns `None` if the password
    /// is not UTF-8, because JSON cannot hold it. The bytes are overwritten when they are dropped.
    pub fn body(&self) -> Option<Zeroizing<Vec<u8>>> {
        let password = std::str::from_utf8(self.password).ok()?;
        let address = self.address.map(|address| address.to_canonical().to_string()).unwrap_or_default();
        let members =
            Members { clientid: self.client_id, username: self.user_name, password, peerhost: &address };
        let sent = self.client_id.len() + self.user_name.len() + password.len();
        // With this room the buffer never moves, so no copy of the password stays behind.
        let mut body = Zeroizing::new(Vec::with_capacity(FRAME + sent * ESCAPED));
        serde_json::to_writer(&mut *body, &members).ok()?;
        Some(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_an_object_of_four_texts() {
        let client = HttpClient {
            client_id: "pump-7",
            user_name: "ann\"",
            password: b"\x01\n",
            address: "::ffff:192.0.2.1".parse().ok(),
        };
        let expected =
            r#"{"clientid":"pump-7","username":"ann\"","password":"\u0001\n","peerhost":"192.0.2.1"}"#;
        assert_eq!(std::str::from_utf8(&client.body().unwrap()), Ok(expected));
        let local = HttpClient { client_id: "", user_name: "ann", password: b"", address: None };
        let expected = r#"{"clientid":"","username":"ann","password":"","peerhost":""}"#;
        assert_eq!(std::str::from_utf8(&local.body().unwrap()), Ok(expected));
    }

    #[test]
    fn the_buffer_has_room_for_the_longest_form() {
        let password = [1; 1_000];
        let address = "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff".parse().ok();
        let client = HttpClient { client_id: "c", user_name: "ann", password: &password, address };
        let body = client.body().unwrap();
        assert_eq!(body.capacity(), FRAME + 1_004 * ESCAPED, "it has not grown");
    }

    #[test]
    fn a_password_that_is_not_utf8_cannot_be_sent() {
        let client = HttpClient { client_id: "c", user_name: "ann", password: &[0xFF], address: None };
        assert!(client.body().is_none());
    }
}
