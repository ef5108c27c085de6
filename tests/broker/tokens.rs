//! Clients with JSON Web Tokens, over real sockets.

use crate::support::launch::{TestBroker, on_configured_threads, start_broker};
use crate::support::{Connect, Message, Packet, V5, V311, Version, password_file};
use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use homing::config::{Anonymous, AuthMethod, Config, JwtFrom};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

const SECRET: [u8; 32] = [7; 32];

/// A file that is removed with the value.
struct TestFile(PathBuf);

impl TestFile {
    fn new(text: &str) -> TestFile {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("homing-tokens-{}-{number}", std::process::id()));
        std::fs::write(&path, text).expect("a file for the test");
        TestFile(path)
    }

    fn path(&self) -> String {
        self.0.display().to_string()
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

fn keys(secret: &[u8; 32]) -> String {
    format!(r#"{{"keys":[{{"kty":"oct","kid":"k","k":"{}"}}]}}"#, URL_SAFE_NO_PAD.encode(secret))
}

fn unix_secs() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "a token names the time of the wall clock")]
    let now = SystemTime::now();
    now.duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}

/// Returns a token of Ann that expires after so many seconds. `more` are further claims.
fn token(secret: &[u8; 32], lasts: i64, more: &str) -> String {
    let claims = format!(r#"{{"sub":"ann","exp":{}{more}}}"#, unix_secs() as i64 + lasts);
    let text = format!("{}.{}", URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256"}"#), URL_SAFE_NO_PAD.encode(claims));
    let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), text.as_bytes());
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
}

fn with(version: Version, client_id: &str, token: &str) -> Connect {
    Connect::new(version, client_id).user_name("device").password(token.as_bytes())
}

fn refusal(broker: &TestBroker, connect: &Connect) -> u8 {
    let mut client = broker.open(connect.version);
    client.send(&connect.encode());
    match &client.read_to_end()[..] {
        [Packet::Connack(connack)] => {
            assert_eq!(connack.properties, [], "the client learns no reason");
            connack.code
        }
        other => panic!("one CONNACK and the end: {other:?}"),
    }
}

fn use_keys(file: &TestFile) -> impl Fn(&mut Config) {
    let path = file.path();
    move |config| {
        config.auth.jwt_keys = path.clone();
        config.auth.anonymous = Anonymous::Never;
    }
}

#[test]
fn a_right_token_lets_in_and_all_else_gets_one_answer() {
    let file = TestFile::new(&keys(&SECRET));
    on_configured_threads(use_keys(&file), |broker| {
        for id in ["a", "b", "c"] {
            broker.connect(&with(V5, id, &token(&SECRET, 60, ""))).ping();
            broker.connect(&with(V311, id, &token(&SECRET, 60, ""))).ping();
        }
        let right = token(&SECRET, 60, "");
        let (front, signature) = right.rsplit_once('.').unwrap();
        let claims = front.split_once('.').unwrap().1;
        let none = format!("{}.{claims}.", URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#));
        let kid = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256","kid":"other"}"#);
        for wrong in [
            token(&[8; 32], 60, ""),
            token(&SECRET, -31, ""),
            token(&SECRET, 60, r#","aud":"web""#),
            token(&SECRET, 60, &format!(r#","nbf":{}"#, unix_secs() + 40)),
            token(&SECRET, 60, r#","acl":"everything""#),
            format!("{front}."),
            none,
            format!("{kid}.{claims}.{signature}"),
            "secret".to_owned(),
        ] {
            assert_eq!(refusal(broker, &with(V311, "x", &wrong)), 5, "{wrong}");
            assert_eq!(refusal(broker, &with(V5, "x", &wrong)), 0x87, "{wrong}");
        }
    });
}

#[test]
fn a_connection_ends_when_its_token_expires() {
    let file = TestFile::new(&keys(&SECRET));
    let broker = start_broker(use_keys(&file));
    let short = token(&SECRET, 2, "");
    let mut new = broker.connect(&with(V5, "new", &short).keep_alive(0));
    let mut old = broker.connect(&with(V311, "old", &short).keep_alive(0));
    let Some(Packet::Disconnect(disconnect)) = new.read_to_end().pop() else { panic!("no DISCONNECT") };
    assert_eq!(disconnect.code, 0xA0);
    assert!(old.read_to_end().is_empty());
}

#[test]
fn the_claims_of_a_token_are_the_rules_of_its_session() {
    let file = TestFile::new(&keys(&SECRET));
    let broker = start_broker(use_keys(&file));
    let rules = r#","acl":{"pub":["out/${username}"],"sub":["in/%c"]}"#;
    let mut client = broker.connect(&with(V311, "c", &token(&SECRET, 60, rules)));
    assert_eq!(client.subscribe(&[("in/c", 1), ("out/ann", 1), ("in/d", 1)]), [1, 0x80, 0x80]);
    let mut all = broker.connect(&with(V311, "s", &token(&SECRET, 60, r#","is_superuser":true"#)));
    assert_eq!(all.subscribe(&[("#", 0), ("$homing/clients/#", 0)]), [0, 0]);
    for (topic, payload) in [("out/bob", "no"), ("out/ann", "yes")] {
        client.publish(&Message::new(topic, payload));
    }
    let seen = loop {
        let publish = all.expect_publish();
        if !publish.topic.starts_with('$') {
            break publish;
        }
    };
    assert_eq!(seen.payload, b"yes");
}

#[test]
fn the_user_name_may_be_the_token() {
    let file = TestFile::new(&keys(&SECRET));
    let broker = start_broker(|config| {
        use_keys(&file)(config);
        config.auth.jwt_from = JwtFrom::UserName;
    });
    let connect = Connect::new(V311, "c").user_name(&token(&SECRET, 60, ""));
    broker.connect(&connect).ping();
    assert_eq!(refusal(&broker, &with(V311, "x", &token(&SECRET, 60, ""))), 5);
}

#[test]
fn a_password_that_is_no_token_is_left_to_the_next_method() {
    let file = TestFile::new(&keys(&SECRET));
    let passwords = TestFile::new(&password_file(&[("bob", "secret")]));
    for methods in
        [&[AuthMethod::Jwt, AuthMethod::Password][..], &[AuthMethod::Password, AuthMethod::Jwt], &[]]
    {
        let broker = start_broker(|config| {
            use_keys(&file)(config);
            config.auth.password_file = passwords.path();
            config.auth.methods = methods.to_vec();
        });
        for _ in 0..2 {
            broker.connect(&with(V311, "c", &token(&SECRET, 60, ""))).ping();
            broker.connect(&Connect::new(V311, "d").user_name("bob").password(b"secret")).ping();
        }
        for password in ["Secret", &token(&[8; 32], 60, "")] {
            let connect = Connect::new(V311, "d").user_name("bob").password(password.as_bytes());
            assert_eq!(refusal(&broker, &connect), 5, "{methods:?}");
        }
    }
}

#[test]
fn a_reload_takes_the_new_keys_or_keeps_the_old() {
    let file = TestFile::new(&keys(&SECRET));
    let broker = start_broker(use_keys(&file));
    let TestBroker::InProcess(running) = &broker else { panic!("a broker in this process") };
    let mut stays = broker.connect(&with(V311, "stays", &token(&SECRET, 60, "")));
    std::fs::write(&file.0, "{").unwrap();
    let error = running.reload().unwrap_err();
    assert!(error.contains("is not valid JSON at line 1, column 1"), "{error}");
    broker.connect(&with(V311, "c", &token(&SECRET, 60, ""))).ping();
    std::fs::write(&file.0, keys(&[9; 32])).unwrap();
    let named = format!("token_keys (auth.jwt_keys, {})", file.0.display());
    assert_eq!(running.reload().unwrap(), format!("{named} changed: 1 key; no client disconnected"));
    assert_eq!(refusal(&broker, &with(V311, "c", &token(&SECRET, 60, ""))), 5, "also from the cache");
    broker.connect(&with(V311, "c", &token(&[9; 32], 60, ""))).ping();
    stays.ping();
}
