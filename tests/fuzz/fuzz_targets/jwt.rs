//! Any bytes as a file of keys, as a token, and as the claims of a token whose signature is right. The
//! bytes before the first NUL are the file. A token without a signature of a key is never accepted.
#![no_main]

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use homing::auth::jwt::keys::TokenKeys;
use homing::auth::jwt::token::{TokenRules, TokenVerifier};
use std::path::Path;
use std::sync::Arc;

const NOW: u64 = 1_780_000_000_000;

fn verifier(keys: TokenKeys) -> TokenVerifier {
    let rules = TokenRules { user_claim: "sub".into(), audience: None, issuer: None };
    TokenVerifier::new(Arc::new(keys), rules)
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let middle = input.iter().position(|byte| *byte == 0).unwrap_or(input.len());
    let (file, rest) = input.split_at(middle);
    if let Ok(keys) = TokenKeys::parse(Path::new("jwks.json"), file) {
        let _ = verifier(keys).verify(NOW, rest);
    }
    let secret = [7; 32];
    let text = format!(r#"{{"kty":"oct","k":"{}"}}"#, URL_SAFE_NO_PAD.encode(secret));
    let verifier = verifier(TokenKeys::parse(Path::new("jwks.json"), text.as_bytes()).expect("a key"));
    assert!(verifier.verify(NOW, input).is_err(), "nobody has signed this");
    let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256"}"#);
    let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(input));
    let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &secret), signed.as_bytes());
    let token = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature));
    if let Ok(verified) = verifier.verify(NOW, token.as_bytes()) {
        assert!(!verified.user.is_empty() && verified.remaining_ms > 0);
    }
});
