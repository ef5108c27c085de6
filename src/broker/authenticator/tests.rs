//! Logins that an authenticator decides, without a broker around it.

use super::*;
use crate::auth::password::PasswordFile;
use crate::auth::password::hash::PasswordHash;
use crate::auth::password::pbkdf2::Pbkdf2Hash;
use actix::{Actor, Context, Handler, System};
use std::path::Path;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

fn file(lines: &[(&str, &str, u32)]) -> Arc<PasswordFile> {
    let line = |(user, password, iterations): &(&str, &str, u32)| {
        let hash = Pbkdf2Hash::create(password.as_bytes(), *iterations, &[7; 12]);
        format!("{user}:{}\n", PasswordHash::Pbkdf2(hash).to_text())
    };
    let text: String = lines.iter().map(line).collect();
    Arc::new(PasswordFile::parse(Path::new("passwd"), text.as_bytes()).expect("a lawful file"))
}

/// Passes decisions on to the test.
struct Decisions(UnboundedSender<AuthDecision>);

impl Actor for Decisions {
    type Context = Context<Decisions>;
}

impl Handler<Decided> for Decisions {
    type Result = ();

    fn handle(&mut self, decided: Decided, _: &mut Context<Decisions>) {
        drop(self.0.send(decided.decision));
    }
}

/// Starts an authenticator that knows Ann, and blocks an address after three failures. Returns
/// it with a client of it.
fn guarded(cache: Duration, reply: Recipient<Decided>) -> (Authenticator, AuthClient) {
    let timeout = Duration::from_secs(60);
    let options =
        AuthenticatorOptions { workers: 1, timeout, cache, shards: 1, failures: 3, http_timeout: timeout };
    let checks = Checks { passwords: Some(file(&[("ann", "right", 1)])), ..Checks::default() };
    let authenticator = Authenticator::start(checks, None, options).unwrap();
    let client = AuthClient::new(authenticator.client(reply));
    (authenticator, client)
}

#[test]
fn an_address_with_too_many_failures_is_blocked_and_others_are_not() {
    System::new().block_on(async {
        let (sender, mut decisions) = unbounded_channel();
        let reply = Decisions(sender).start().recipient();
        let (_authenticator, client) = guarded(Duration::from_secs(60), reply);
        let [far, other, here] = ["192.0.2.1", "192.0.2.2", "127.0.0.1"].map(|text| text.parse().ok());
        let mut login = async |address, password: &[u8]| {
            let waits = Arc::new(());
            client.ask(clock::now(), AuthRequest::of_test("ann", password, &waits), address);
            decisions.recv().await.unwrap()
        };
        for _ in 0..3 {
            assert!(matches!(login(far, b"wrong").await, AuthDecision::Deny("wrong password")));
        }
        assert!(matches!(login(far, b"wrong").await, AuthDecision::Blocked));
        assert!(matches!(login(far, b"right").await, AuthDecision::Blocked));
        assert!(matches!(login(other, b"right").await, AuthDecision::Allow(_)));
        for _ in 0..5 {
            assert!(matches!(login(here, b"wrong").await, AuthDecision::Deny(_)));
        }
        assert!(matches!(login(here, b"right").await, AuthDecision::Allow(_)));
    });
}

#[test]
fn guesses_that_are_sent_at_once_are_not_all_tried() {
    System::new().block_on(async {
        let (sender, mut decisions) = unbounded_channel();
        let reply = Decisions(sender).start().recipient();
        let (_authenticator, client) = guarded(Duration::ZERO, reply);
        let (waits, far) = (Arc::new(()), "192.0.2.1".parse().ok());
        for _ in 0..100 {
            client.ask(clock::now(), AuthRequest::of_test("ann", b"wrong", &waits), far);
        }
        let mut tried = 0;
        for _ in 0..100 {
            tried += usize::from(matches!(decisions.recv().await.unwrap(), AuthDecision::Deny(_)));
        }
        assert_eq!(tried, 3);
    });
}
