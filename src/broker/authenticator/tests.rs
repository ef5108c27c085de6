//! Logins that an authenticator decides, without a broker around it.

use super::*;
use crate::auth::password::PasswordFile;
use crate::auth::password::hash::{HashCost, HashKind, PasswordHash};
use crate::auth::password::pbkdf2::Pbkdf2Hash;
use crate::auth::password::scram::ScramHash;
use crate::login::authentication::{ExchangeStart, ExchangeStep, Secret};
use crate::session::authentication::EnhancedMethod;
use crate::slots::ConnectionId;
use actix::{Actor, Context, Handler, System};
use std::path::Path;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// Returns a request without a connection, which waits as long as `waits` lives.
pub(super) fn request(user: &str, password: &[u8], waits: &Arc<()>) -> AuthRequest {
    AuthRequest {
        connection: ConnectionId::new(0, 0),
        listener: Arc::default(),
        methods: [AuthMethod::Password].into(),
        client_id: "client".into(),
        reach: Reach::Network,
        user_name: Some(user.into()),
        password: Some(Secret::copy_of(password)),
        exchange: None,
        waits: Arc::downgrade(waits),
    }
}

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
    let passwords = Arc::new(file(&[("ann", "right", 1)]).into());
    let checks = Checks { passwords, ..Checks::default() };
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
            client.ask(clock::now(), request("ann", password, &waits), address);
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

/// Returns the last message of a client with this password to the first message of the server.
fn proof_of(password: &[u8], bare: &str, server_first: &str) -> String {
    use aws_lc_rs::digest::{SHA256, digest};
    use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};
    use aws_lc_rs::pbkdf2::{PBKDF2_HMAC_SHA256, derive};
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    let part = |name| server_first.split(',').find_map(|part| part.strip_prefix(name)).unwrap();
    let (nonce, salt) = (part("r="), STANDARD.decode(part("s=")).unwrap());
    let mut salted = [0; 32];
    derive(PBKDF2_HMAC_SHA256, part("i=").parse().unwrap(), &salt, password, &mut salted);
    let keyed = |key: &[u8], text: &[u8]| sign(&Key::new(HMAC_SHA256, key), text).as_ref().to_vec();
    let client_key = keyed(&salted, b"Client Key");
    let unproven = format!("c=biws,r={nonce}");
    let signature =
        keyed(digest(&SHA256, &client_key).as_ref(), format!("{bare},{server_first},{unproven}").as_bytes());
    let proof: Vec<u8> = client_key.iter().zip(&signature).map(|(key, with)| key ^ with).collect();
    format!("{unproven},p={}", STANDARD.encode(proof))
}

#[test]
fn scram_refuses_the_empty_password_as_a_plain_login_does_and_counts_a_failure() {
    System::new().block_on(async {
        let (sender, mut decisions) = unbounded_channel();
        let reply = Decisions(sender).start().recipient();
        let line = |user: &str, password: &[u8]| {
            format!("{user}:{}\n", ScramHash::create(password, &[3; 16]).to_text())
        };
        let text = line("ann", b"") + &line("bob", b"secret");
        let file = PasswordFile::parse(Path::new("passwd"), text.as_bytes()).unwrap();
        let checks = Checks { passwords: Arc::new(Arc::new(file).into()), ..Checks::default() };
        let timeout = Duration::from_secs(60);
        let options = AuthenticatorOptions {
            workers: 1,
            timeout,
            cache: timeout,
            shards: 1,
            failures: 3,
            http_timeout: timeout,
        };
        let authenticator = Authenticator::start(checks, None, options).unwrap();
        let client = AuthClient::new(authenticator.client(reply));
        let waits = Arc::new(());
        let mut login = async |user: &str, password: &[u8]| {
            let bare = format!("n={user},r=nonce");
            let mut request = request(user, b"", &waits);
            request.methods = [AuthMethod::Scram].into();
            let data = format!("n,,{bare}").into_bytes().into();
            request.exchange = Some(ExchangeStart { method: EnhancedMethod::ScramSha256, data });
            client.ask(clock::now(), request, "192.0.2.1".parse().ok());
            let challenge = match decisions.recv().await.unwrap() {
                AuthDecision::Challenge(challenge) => challenge,
                decision => return (decision, 0),
            };
            let first = String::from_utf8(challenge.data.to_vec()).unwrap();
            let last = proof_of(password, &bare, &first);
            let micros = challenge.exchange.answer_us();
            match challenge.exchange.answer(last.as_bytes()) {
                ExchangeStep::Decided { decision, .. } => (decision, micros),
                ExchangeStep::Challenge(_) => panic!("SCRAM has one challenge"),
            }
        };
        let (decision, micros) = login("bob", b"secret").await;
        assert!(matches!(decision, AuthDecision::Allow(_)) && micros > 100, "{decision:?} {micros}");
        let (decision, micros) = login("bob", b"secret").await;
        assert!(matches!(decision, AuthDecision::Allow(_)) && micros == 0, "the line is known: {micros}");
        for _ in 0..3 {
            let (decision, _) = login("ann", b"").await;
            assert!(
                matches!(decision, AuthDecision::Deny(what) if what.contains("the empty password")),
                "{decision:?}"
            );
        }
        assert!(matches!(login("ann", b"").await.0, AuthDecision::Blocked));
    });
}

#[test]
fn a_proxy_that_does_not_name_its_clients_is_never_blocked() {
    System::new().block_on(async {
        let (sender, mut decisions) = unbounded_channel();
        let reply = Decisions(sender).start().recipient();
        let (_authenticator, client) = guarded(Duration::ZERO, reply);
        let (waits, proxy) = (Arc::new(()), "192.0.2.1".parse().ok());
        let mut login = async |password: &[u8], reach| {
            let mut request = request("ann", password, &waits);
            request.reach = reach;
            client.ask(clock::now(), request, proxy);
            decisions.recv().await.unwrap()
        };
        for _ in 0..10 {
            assert!(matches!(login(b"wrong", Reach::Proxy).await, AuthDecision::Deny(_)));
        }
        assert!(matches!(login(b"right", Reach::Proxy).await, AuthDecision::Allow(_)));
        for _ in 0..3 {
            assert!(matches!(login(b"wrong", Reach::Network).await, AuthDecision::Deny(_)));
        }
        assert!(matches!(login(b"right", Reach::Network).await, AuthDecision::Blocked));
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
            client.ask(clock::now(), request("ann", b"wrong", &waits), far);
        }
        let mut tried = 0;
        for _ in 0..100 {
            tried += usize::from(matches!(decisions.recv().await.unwrap(), AuthDecision::Deny(_)));
        }
        assert_eq!(tried, 3);
    });
}

/// Returns a login that the HTTP service decides, as the last method.
fn http_job(waits: &Arc<()>, address: Option<IpAddr>, reply: Recipient<Decided>) -> HttpJob {
    let mut request = request("ann", b"guess", waits);
    request.methods = [AuthMethod::Http].into();
    let (bytes, due) = (request.size(), clock::now() + Duration::from_secs(60));
    let job = AuthJob { request, bytes, due, peer: address, address, reply };
    HttpJob { job: Box::new(job), place: ChainPlace { next: 1, ..ChainPlace::START } }
}

#[test]
fn a_login_that_the_http_service_does_not_accept_counts_for_the_block_of_its_address() {
    System::new().block_on(async {
        let (sender, mut decisions) = unbounded_channel();
        let reply = Decisions(sender).start().recipient();
        let (authenticator, client) = guarded(Duration::ZERO, reply.clone());
        let waits = Arc::new(());
        for (answer, address, is_counted) in [
            (HttpAnswer::Deny, "192.0.2.1", true),
            (HttpAnswer::Ignore, "192.0.2.2", true),
            // The service knows the client.
            (HttpAnswer::Expired, "192.0.2.3", false),
        ] {
            let address = address.parse().ok();
            for _ in 0..3 {
                let job = http_job(&waits, address, reply.clone());
                authenticator.inner.http_answered(job, answer.clone());
                assert!(matches!(decisions.recv().await.unwrap(), AuthDecision::Deny(_)), "{answer:?}");
            }
            client.ask(clock::now(), request("ann", b"right", &waits), address);
            let is_blocked = matches!(decisions.recv().await.unwrap(), AuthDecision::Blocked);
            assert_eq!(is_blocked, is_counted, "{answer:?}");
        }
    });
}

#[test]
fn a_login_that_the_http_service_ignores_and_the_next_method_denies_counts_once() {
    System::new().block_on(async {
        let (sender, mut decisions) = unbounded_channel();
        let reply = Decisions(sender).start().recipient();
        let (authenticator, client) = guarded(Duration::ZERO, reply.clone());
        let (waits, far) = (Arc::new(()), "192.0.2.1".parse().ok());
        for _ in 0..2 {
            let mut job = http_job(&waits, far, reply.clone());
            job.job.request.methods = [AuthMethod::Http, AuthMethod::Password].into();
            authenticator.inner.http_answered(job, HttpAnswer::Ignore);
            assert!(matches!(decisions.recv().await.unwrap(), AuthDecision::Deny("wrong password")));
        }
        client.ask(clock::now(), request("ann", b"right", &waits), far);
        let decision = decisions.recv().await.unwrap();
        assert!(matches!(decision, AuthDecision::Allow(_)), "two failures are no three: {decision:?}");
    });
}

#[test]
fn logins_that_a_busy_machine_made_too_slow_enter_again_when_it_is_idle() {
    System::new().block_on(async {
        let (sender, _decisions) = unbounded_channel();
        let reply = Decisions(sender).start().recipient();
        let (waits, due) = (Arc::new(()), clock::now());
        let cost = CheckCost::Hash(HashCost { kind: HashKind::Argon2, estimated_us: 40_000 });
        let mut queue = AuthQueue::default();
        let enters = |queue: &mut AuthQueue| {
            let request = request("ann", b"right", &waits);
            let job = AuthJob { request, bytes: 8, due, peer: None, address: None, reply: reply.clone() };
            queue.push(Box::new(job), ChainPlace::START, &[cost], Duration::from_millis(250), 1).is_ok()
        };
        let decided = |queue: &mut AuthQueue, took: Duration| {
            let share = queue.pop().expect("a login").share();
            queue.done(share, &[(cost, took)]);
        };
        for _ in 0..50 {
            assert!(enters(&mut queue), "nothing is pending");
            decided(&mut queue, Duration::from_secs(4));
        }
        assert!(enters(&mut queue) && !enters(&mut queue), "one login at a time measures");
        decided(&mut queue, Duration::from_secs(4));
        // The load has ended: each login of the idle machine lowers the average.
        let mut logins = 0;
        while !(enters(&mut queue) && enters(&mut queue)) {
            decided(&mut queue, Duration::from_millis(40));
            logins += 1;
            assert!(logins < 50, "logins are refused for ever");
        }
    });
}
