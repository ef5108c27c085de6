//! Any bytes as the messages of a SCRAM client: the first up to a zero byte, the last behind it.
#![no_main]

use homing::auth::password::scram::ScramHash;
use homing::auth::scram::{ClientFirst, ScramExchange, ScramKeys};
use std::sync::LazyLock;

/// A file with this line knows the password `pencil`. The derivation is slow, so it is done once.
static HASH: LazyLock<ScramHash> = LazyLock::new(|| ScramHash::create(b"pencil", &[7; 16]));

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let at = input.iter().position(|byte| *byte == 0).unwrap_or(input.len());
    let (first, last) = input.split_at(at);
    let Ok(first) = ClientFirst::parse(first) else { return };
    assert!(!first.user().is_empty() && !first.user().chars().any(char::is_control));
    let exchange = ScramExchange::begin(first, HASH.clone(), ScramKeys::OfUser, "server");
    assert!(exchange.server_first().contains("server,s="));
    // The right nonce comes with an exchange that the input cannot know, so it is put in.
    let nonce = exchange.server_first().split(',').next().unwrap_or_default().to_owned();
    let last = last.get(1..).unwrap_or_default();
    assert!(exchange.finish(last).is_err(), "nobody knows the password");
    let named = [b"c=biws,", nonce.as_bytes(), b",", last].concat();
    assert!(exchange.finish(&named).is_err(), "nobody knows the password");
});
