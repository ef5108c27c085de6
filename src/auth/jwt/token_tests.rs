//! Tokens of every algorithm, and each way in which a token or a file of keys is refused.

use super::*;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, ECDSA_P521_SHA512_FIXED_SIGNING,
    EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384,
    RSA_PKCS1_SHA512, RSA_PSS_SHA256, RSA_PSS_SHA384, RSA_PSS_SHA512, RsaEncoding, RsaKeyPair,
};
use aws_lc_rs::{hmac, rsa};
use serde_json::json;
use std::path::Path;

/// Milliseconds since 1970 in the middle of 2026.
const NOW: u64 = 1_780_000_000_000;
const SECRET: &[u8] = &[7; 64];

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn rules() -> TokenRules {
    TokenRules { user_claim: "sub".into(), audience: None, issuer: None }
}

fn verifier(keys: &[Value]) -> TokenVerifier {
    let text = json!({ "keys": keys }).to_string();
    let keys = TokenKeys::parse(Path::new("jwks.json"), text.as_bytes()).unwrap();
    TokenVerifier::new(Arc::new(keys), rules())
}

fn oct(kid: &str) -> Value {
    json!({"kty": "oct", "kid": kid, "alg": "HS256", "k": encode(SECRET)})
}

fn claims() -> Value {
    json!({"sub": "ann", "exp": NOW / 1000 + 60})
}

fn unsigned(header: &Value, claims: &Value) -> String {
    format!("{}.{}", encode(header.to_string()), encode(claims.to_string()))
}

fn signed(header: &Value, claims: &Value, sign: impl FnOnce(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let text = unsigned(header, claims);
    let signature = encode(sign(text.as_bytes()));
    format!("{text}.{signature}").into_bytes()
}

fn mac(algorithm: hmac::Algorithm, secret: &[u8]) -> impl FnOnce(&[u8]) -> Vec<u8> {
    move |text| hmac::sign(&hmac::Key::new(algorithm, secret), text).as_ref().to_vec()
}

fn hs256(claims: &Value) -> Vec<u8> {
    signed(&json!({"alg": "HS256"}), claims, mac(hmac::HMAC_SHA256, SECRET))
}

fn accepts(keys: &[Value], token: &[u8]) -> bool {
    let verifier = verifier(keys);
    let mut broken = token.to_vec();
    let at = token.iter().rposition(|byte| *byte == b'.').unwrap() + 1;
    broken[at] = if broken[at] == b'A' { b'B' } else { b'A' };
    assert_eq!(verifier.verify(NOW, &broken).unwrap_err(), TokenRefusal::Signature);
    verifier.verify(NOW, token).is_ok_and(|token| &*token.user == "ann")
}

#[test]
fn the_token_of_the_standard_is_verified() {
    // RFC 7515 appendix A.1. Its exp is in 2011.
    let key = json!({"kty": "oct", "k":
        "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow"});
    let token = b"eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
    let mut verifier = verifier(&[key]);
    verifier.rules.user_claim = "iss".into();
    assert_eq!(&*verifier.verify(1_300_819_000_000, token).unwrap().user, "joe");
    assert_eq!(verifier.verify(NOW, token).unwrap_err(), TokenRefusal::Expired);
    // RFC 8037 appendix A.4: the signature is right, and the payload is no JSON.
    let key = json!({"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"});
    let token = b"eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc.hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg";
    assert_eq!(self::verifier(&[key]).verify(NOW, token).unwrap_err(), TokenRefusal::Claims);
}

#[test]
fn every_algorithm_with_a_secret_is_verified() {
    for (alg, algorithm) in
        [("HS256", hmac::HMAC_SHA256), ("HS384", hmac::HMAC_SHA384), ("HS512", hmac::HMAC_SHA512)]
    {
        let key = json!({"kty": "oct", "alg": alg, "k": encode(SECRET)});
        assert!(accepts(&[key], &signed(&json!({"alg": alg}), &claims(), mac(algorithm, SECRET))), "{alg}");
    }
}

fn rsa_pair() -> (RsaKeyPair, Value, Value) {
    let pair = RsaKeyPair::generate(rsa::KeySize::Rsa2048).unwrap();
    // PKCS #1 in DER: a header of 9 bytes, the modulus, a header of 2 bytes, the exponent.
    let public = pair.public_key().as_ref();
    let (n, e) = (encode(&public[9..265]), encode(&public[267..]));
    (pair, json!(n), json!(e))
}

#[test]
fn every_algorithm_with_an_rsa_key_is_verified() {
    let (pair, n, e) = rsa_pair();
    let all: [(&str, &'static dyn RsaEncoding); 6] = [
        ("RS256", &RSA_PKCS1_SHA256),
        ("RS384", &RSA_PKCS1_SHA384),
        ("RS512", &RSA_PKCS1_SHA512),
        ("PS256", &RSA_PSS_SHA256),
        ("PS384", &RSA_PSS_SHA384),
        ("PS512", &RSA_PSS_SHA512),
    ];
    for (alg, encoding) in all {
        let key = json!({"kty": "RSA", "alg": alg, "n": n, "e": e});
        let token = signed(&json!({"alg": alg}), &claims(), |text| {
            let mut signature = vec![0; pair.public_modulus_len()];
            pair.sign(encoding, &SystemRandom::new(), text, &mut signature).unwrap();
            signature
        });
        assert!(accepts(&[key], &token), "{alg}");
    }
}

#[test]
fn every_algorithm_with_a_curve_is_verified() {
    let all: [(&str, &str, &'static EcdsaSigningAlgorithm); 3] = [
        ("ES256", "P-256", &ECDSA_P256_SHA256_FIXED_SIGNING),
        ("ES384", "P-384", &ECDSA_P384_SHA384_FIXED_SIGNING),
        ("ES512", "P-521", &ECDSA_P521_SHA512_FIXED_SIGNING),
    ];
    for (alg, crv, algorithm) in all {
        let pair = EcdsaKeyPair::generate(algorithm).unwrap();
        let (x, y) = pair.public_key().as_ref()[1..].split_at(pair.public_key().as_ref().len() / 2);
        let key = json!({"kty": "EC", "crv": crv, "x": encode(x), "y": encode(y)});
        let sign = |text: &[u8]| pair.sign(&SystemRandom::new(), text).unwrap().as_ref().to_vec();
        assert!(accepts(&[key], &signed(&json!({"alg": alg}), &claims(), sign)), "{alg}");
    }
    let pair = Ed25519KeyPair::generate().unwrap();
    let key = json!({"kty": "OKP", "crv": "Ed25519", "x": encode(pair.public_key().as_ref())});
    let sign = |text: &[u8]| pair.sign(text).as_ref().to_vec();
    assert!(accepts(&[key], &signed(&json!({"alg": "EdDSA"}), &claims(), sign)));
}

fn refusal(keys: &[Value], token: &[u8]) -> TokenRefusal {
    verifier(keys).verify(NOW, token).unwrap_err()
}

#[test]
fn no_token_chooses_its_algorithm() {
    let (_, n, e) = rsa_pair();
    let rsa = json!({"kty": "RSA", "alg": "RS256", "kid": "r", "n": n, "e": e});
    for alg in ["none", "None", "NONE", ""] {
        let text = unsigned(&json!({"alg": alg}), &claims());
        for token in [format!("{text}."), format!("{text}.AAAA")] {
            assert_eq!(refusal(&[oct("a")], token.as_bytes()), TokenRefusal::Algorithm, "{alg}");
        }
    }
    let modulus = URL_SAFE_NO_PAD.decode(n.as_str().unwrap()).unwrap();
    for header in [json!({"alg": "HS256"}), json!({"alg": "HS256", "kid": "r"})] {
        let token = signed(&header, &claims(), mac(hmac::HMAC_SHA256, &modulus));
        assert_eq!(refusal(std::slice::from_ref(&rsa), &token), TokenRefusal::Algorithm);
    }
}

#[test]
fn the_kid_selects_the_key() {
    let other = json!({"kty": "oct", "kid": "b", "k": encode([9; 32])});
    let keys = [other, oct("a")];
    let with = |kid: Value, secret: &[u8]| {
        let header = json!({"alg": "HS256", "kid": kid});
        verifier(&keys).verify(NOW, &signed(&header, &claims(), mac(hmac::HMAC_SHA256, secret)))
    };
    assert!(with(json!("a"), SECRET).is_ok() && with(json!("b"), &[9; 32]).is_ok());
    assert_eq!(with(json!("b"), SECRET).unwrap_err(), TokenRefusal::Signature);
    assert_eq!(with(json!("c"), SECRET).unwrap_err(), TokenRefusal::UnknownKey);
    assert_eq!(with(json!(1), SECRET).unwrap_err(), TokenRefusal::UnknownKey);
}

#[test]
fn a_token_without_kid_is_tried_on_sixteen_keys() {
    let mut keys: Vec<Value> =
        (0..15_u8).map(|n| json!({"kty": "oct", "k": encode([n; 32]), "kid": n.to_string()})).collect();
    keys.push(oct("last"));
    assert!(verifier(&keys).verify(NOW, &hs256(&claims())).is_ok());
    keys.insert(0, json!({"kty": "oct", "k": encode([99; 32]), "kid": "first"}));
    assert_eq!(refusal(&keys, &hs256(&claims())), TokenRefusal::Signature);
}

#[test]
fn each_claim_is_checked() {
    use TokenRefusal::{Audience, Claims, Expired, NoExpiry, NoUser, TooEarly};
    let now = NOW / 1000;
    for (claims, refusal) in [
        (json!([]), Claims),
        (json!({"sub": "ann"}), NoExpiry),
        (json!({"sub": "ann", "exp": "2030"}), NoExpiry),
        (json!({"sub": "ann", "exp": null}), NoExpiry),
        (json!({"sub": "ann", "exp": now - 30}), Expired),
        (json!({"sub": "ann", "exp": -1}), Expired),
        (json!({"sub": "ann", "exp": now + 60, "nbf": now + 31}), TooEarly),
        (json!({"sub": "ann", "exp": now + 60, "nbf": "soon"}), TooEarly),
        (json!({"sub": "ann", "exp": now + 60, "aud": "other"}), Audience),
        (json!({"exp": now + 60}), NoUser),
        (json!({"sub": "", "exp": now + 60}), NoUser),
        (json!({"sub": 7, "exp": now + 60}), NoUser),
        (json!({"sub": "a\0", "exp": now + 60}), NoUser),
        (json!({"sub": "ann", "exp": now + 60, "acl": 1}), TokenRefusal::Rules(SessionRulesError::Form)),
    ] {
        assert_eq!(self::refusal(&[oct("a")], &hs256(&claims)), refusal, "{claims}");
    }
    let remaining = |exp: Value| {
        let token = hs256(&json!({"sub": "ann", "exp": exp, "nbf": now + 30}));
        verifier(&[oct("a")]).verify(NOW, &token).unwrap().remaining_ms
    };
    assert_eq!(remaining(json!(now + 60)), 60_000);
    assert_eq!(remaining(json!(now - 10)), 20_000, "the rest of the leeway");
    assert_eq!(remaining(json!(now as f64 + 0.5)), 500);
    assert_eq!(remaining(json!(1e300)), u64::MAX);
}

#[test]
fn audience_and_issuer_are_those_of_the_operator() {
    let mut verifier = verifier(&[oct("a")]);
    verifier.rules.audience = Some("mqtt".into());
    verifier.rules.issuer = Some("us".into());
    let exp = NOW / 1000 + 60;
    let with = |aud: Value, iss: Value| {
        let token = hs256(&json!({"sub": "ann", "exp": exp, "aud": aud, "iss": iss}));
        verifier.verify(NOW, &token).err()
    };
    assert_eq!(with(json!("mqtt"), json!("us")), None);
    assert_eq!(with(json!(["web", "mqtt"]), json!("us")), None);
    for aud in [json!("web"), json!([]), json!(null), json!({"mqtt": 1})] {
        assert_eq!(with(aud, json!("us")), Some(TokenRefusal::Audience));
    }
    for iss in [json!("them"), json!(null), json!(["us"])] {
        assert_eq!(with(json!("mqtt"), iss), Some(TokenRefusal::Issuer));
    }
}

#[test]
fn what_is_no_token_is_left_to_other_methods() {
    let no_header = format!("{}.e30.AAAA", encode("[1]"));
    for text in ["", "secret", "a.b", "a.b.c", "a.b.c.d", "..", "e30.e30.AAAA", &no_header] {
        assert_eq!(refusal(&[oct("a")], text.as_bytes()), TokenRefusal::NoToken, "{text}");
    }
    assert_eq!(refusal(&[oct("a")], &vec![b'.'; 1 << 20]), TokenRefusal::NoToken);
    let large = json!({"sub": "ann", "exp": NOW / 1000 + 60, "x": "x".repeat(1 << 20)});
    assert_eq!(refusal(&[oct("a")], &hs256(&large)), TokenRefusal::TooLarge);
    let critical = signed(
        &json!({"alg": "HS256", "crit": ["b64"], "b64": false}),
        &claims(),
        mac(hmac::HMAC_SHA256, SECRET),
    );
    assert_eq!(refusal(&[oct("a")], &critical), TokenRefusal::Critical);
}

fn mistakes(text: &str) -> String {
    TokenKeys::parse(Path::new("jwks.json"), text.as_bytes()).unwrap_err().to_string()
}

#[test]
fn each_mistake_in_a_file_of_keys_is_named() {
    for (text, what) in [
        ("-----BEGIN PUBLIC KEY-----", "jwks.json: is PEM; a JWK Set is expected"),
        ("{\n x", "jwks.json: is not valid JSON at line 2, column 2"),
        ("[]", "jwks.json: has no list of keys"),
        (r#"{"keys": []}"#, "jwks.json: has no key for signatures"),
        (r#"{"keys": [{"kty": "RSA", "use": "enc"}]}"#, "has no key for signatures"),
    ] {
        assert!(mistakes(text).contains(what), "{text}: {}", mistakes(text));
    }
    let (_, n, e) = rsa_pair();
    let ok = oct("a");
    for (key, what) in [
        (json!(1), "key 2: a key is a JSON object"),
        (json!({"k": "AAAA"}), "kty is missing"),
        (json!({"kty": "DSA"}), "kty is \"DSA\"; it must be RSA, EC, OKP or oct"),
        (ok.clone(), "key 2: a key before it has the same kid"),
        (json!({"kty": "oct", "k": "AAAA"}), "k has 3 bytes; HS256 needs 32 at least"),
        (json!({"kty": "oct", "k": "A=="}), "k is not base64url"),
        (json!({"kty": "oct", "k": encode(SECRET), "alg": "RS256"}), "with kty oct it is HS256"),
        (json!({"kty": "oct", "k": encode(SECRET), "alg": "none"}), "with kty oct it is HS256"),
        (json!({"kty": "RSA", "n": n, "e": e, "alg": "HS256"}), "with kty RSA it is RS256"),
        (json!({"kty": "RSA", "n": "AQAB", "e": e}), "n has 17 bits; 2048 to 8192 are supported"),
        (json!({"kty": "RSA", "n": n, "e": "AQ"}), "e is not a public exponent"),
        (json!({"kty": "RSA", "n": n, "e": e, "d": "AQ"}), "this is a private key"),
        (json!({"kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA"}), "crv is \"secp256k1\""),
        (json!({"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}), "x and y have 32 bytes each"),
        (
            json!({"kty": "EC", "crv": "P-256", "x": encode([1; 32]), "y": encode([1; 32])}),
            "no point of P-256",
        ),
        (json!({"kty": "OKP", "crv": "Ed25519", "x": "AA"}), "x has 32 bytes"),
    ] {
        let text = mistakes(&json!({"keys": [ok, key]}).to_string());
        assert!(text.starts_with("jwks.json: key 2: ") && text.contains(what), "{key}: {text}");
    }
}

#[test]
fn debug_shows_no_key() {
    let text = format!("{:?}", verifier(&[oct("a")]));
    assert!(text.contains("TokenKeys { keys: 1, .. }") && !text.contains(&encode(SECRET)), "{text}");
}
