//! The keys of tokens: a JWK Set (RFC 7517), or one JWK.

use super::algorithm::{KeyMaterial, VerificationKey, mac, rsa};
use crate::auth::file_error::{FileError, LineErrors};
use crate::auth::password::file::Fingerprint;
use crate::file_thread;
use aws_lc_rs::hmac;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ECDSA_P521_SHA512_FIXED, ED25519, ParsedPublicKey,
    RsaPublicKeyComponents, VerificationAlgorithm,
};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};
use std::fmt;
use std::path::Path;

/// The largest number of keys.
const KEYS: usize = 256;
/// The largest number of keys on which a token without `kid` is tried.
const TRIED: usize = 16;
/// The largest file in bytes.
const FILE: u64 = 1 << 20;

/// The keys of a file. The value does not change: a reload makes another one.
pub struct TokenKeys {
    keys: Vec<NamedKey>,
    fingerprint: Fingerprint,
}

struct NamedKey {
    kid: Option<Box<str>>,
    key: VerificationKey,
}

impl TokenKeys {
    /// Reads a file with a JWK Set.
    ///
    /// # Errors
    /// The file cannot be read, or has mistakes: all of them, each with the number of its key.
    pub fn load(file: &Path) -> Result<TokenKeys, FileError> {
        let opened = file_thread::opens(file);
        let size = std::fs::metadata(file).map_err(|cause| FileError::unreadable(file, cause))?.len();
        drop(opened);
        if size > FILE {
            return Err(FileError::whole(file, "is larger than 1 MiB: this is no JWK Set"));
        }
        TokenKeys::parse(file, &FileError::read(file)?)
    }

    /// Reads the content of such a file. `file` is its name in errors.
    ///
    /// # Errors
    /// All mistakes.
    pub fn parse(file: &Path, content: &[u8]) -> Result<TokenKeys, FileError> {
        let whole = |what: &str| FileError::whole(file, what);
        if content.trim_ascii_start().starts_with(b"-----BEGIN") {
            return Err(whole(
                "is PEM; a JWK Set is expected: {\"keys\": [..]} in JSON (docs/logins.md says how to make one)",
            ));
        }
        let value: Value = serde_json::from_slice(content).map_err(|error| {
            // The text of the error has no part of the file.
            let place = format!("line {}, column {}", error.line(), error.column());
            whole(&format!("is not valid JSON at {place}; a JWK Set is expected: {{\"keys\": [..]}}"))
        })?;
        let one = [&value];
        let listed: Vec<&Value> = match value.get("keys") {
            Some(Value::Array(keys)) => keys.iter().collect(),
            None if value.get("kty").is_some() => one.to_vec(),
            _ => return Err(whole("has no list of keys; a JWK Set is expected: {\"keys\": [..]}")),
        };
        if listed.len() > KEYS {
            return Err(whole("has more than 256 keys"));
        }
        let mut errors = LineErrors::of_keys();
        let mut keys: Vec<NamedKey> = Vec::new();
        for (number, jwk) in (1..).zip(listed) {
            match named_key(jwk) {
                Ok(None) => {}
                Ok(Some(key)) if key.kid.is_some() && keys.iter().any(|other| other.kid == key.kid) => {
                    errors.push(number, "a key before it has the same kid");
                }
                Ok(Some(key)) => keys.push(key),
                Err(what) => errors.push(number, what),
            }
        }
        let is_empty = keys.is_empty();
        let keys = errors.or(file, TokenKeys { keys, fingerprint: Fingerprint::of_bytes(content) })?;
        if is_empty {
            return Err(whole("has no key for signatures"));
        }
        Ok(keys)
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns true if there is no key. Keys of a file are never empty.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns the fingerprint of the file.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Returns the keys that may have signed a token: the key with this `kid`, or the first 16 keys
    /// of the algorithm for a token without one.
    pub(super) fn candidates<'a>(
        &'a self,
        kid: Option<&'a str>,
        alg: &'a str,
    ) -> impl Iterator<Item = &'a VerificationKey> {
        let fits = move |key: &&NamedKey| {
            key.key.name == alg && kid.is_none_or(|kid| key.kid.as_deref() == Some(kid))
        };
        self.keys.iter().filter(fits).map(|key| &key.key).take(TRIED)
    }

    /// Returns true if a key has this `kid`.
    pub(super) fn has(&self, kid: &str) -> bool {
        self.keys.iter().any(|key| key.kid.as_deref() == Some(kid))
    }
}

impl fmt::Debug for TokenKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenKeys").field("keys", &self.keys.len()).finish_non_exhaustive()
    }
}

/// Reads one key. Returns `None` for a key that is not for signatures.
fn named_key(jwk: &Value) -> Result<Option<NamedKey>, String> {
    let jwk = jwk.as_object().ok_or("a key is a JSON object")?;
    let text = |name: &str| jwk.get(name).and_then(Value::as_str);
    if text("use").is_some_and(|use_| use_ != "sig") {
        return Ok(None);
    }
    let alg = match jwk.get("alg") {
        None => None,
        Some(alg) => Some(alg.as_str().ok_or("alg is not a text")?),
    };
    let kid = match jwk.get("kid") {
        None => None,
        Some(kid) => Some(kid.as_str().ok_or("kid is not a text")?.into()),
    };
    let kty = text("kty").ok_or("kty is missing; it is RSA, EC, OKP or oct")?;
    if kty != "oct" && jwk.contains_key("d") {
        return Err("d is there: this is a private key. The broker needs only the public key".to_owned());
    }
    let key = match kty {
        "oct" => secret(jwk, alg)?,
        "RSA" => rsa_key(jwk, alg)?,
        "EC" | "OKP" => curve_key(jwk, kty, alg)?,
        other => return Err(format!("kty is {other:?}; it must be RSA, EC, OKP or oct")),
    };
    Ok(Some(NamedKey { kid, key }))
}

fn secret(jwk: &Map<String, Value>, alg: Option<&str>) -> Result<VerificationKey, String> {
    let alg = alg.unwrap_or("HS256");
    let (name, algorithm, least) =
        mac(alg).ok_or_else(|| format!("alg is {alg:?}; with kty oct it is HS256, HS384 or HS512"))?;
    let secret = zeroize::Zeroizing::new(bytes(jwk, "k")?);
    if secret.len() < least {
        return Err(format!("k has {} bytes; {name} needs {least} at least (RFC 7518)", secret.len()));
    }
    Ok(VerificationKey { name, material: KeyMaterial::Secret(Box::new(hmac::Key::new(algorithm, &secret))) })
}

fn rsa_key(jwk: &Map<String, Value>, alg: Option<&str>) -> Result<VerificationKey, String> {
    let alg = alg.unwrap_or("RS256");
    let (name, parameters) = rsa(alg).ok_or_else(|| {
        format!("alg is {alg:?}; with kty RSA it is RS256, RS384, RS512, PS256, PS384 or PS512")
    })?;
    let (n, e) = (bytes(jwk, "n")?, bytes(jwk, "e")?);
    let bits = n.len() * 8 - n.first().map_or(0, |first| first.leading_zeros() as usize);
    if !(2_048..=8_192).contains(&bits) {
        return Err(format!("n has {bits} bits; 2048 to 8192 are supported"));
    }
    if e.len() > 8 || e.last().is_none_or(|last| last % 2 == 0) || matches!(e[..], [0 | 1]) {
        return Err("e is not a public exponent".to_owned());
    }
    Ok(VerificationKey { name, material: KeyMaterial::Rsa(parameters, RsaPublicKeyComponents { n, e }) })
}

fn curve_key(jwk: &Map<String, Value>, kty: &str, alg: Option<&str>) -> Result<VerificationKey, String> {
    let crv = jwk.get("crv").and_then(Value::as_str).unwrap_or_default();
    let (name, algorithm, size): (_, &'static dyn VerificationAlgorithm, _) = match (kty, crv) {
        ("EC", "P-256") => ("ES256", &ECDSA_P256_SHA256_FIXED, 32),
        ("EC", "P-384") => ("ES384", &ECDSA_P384_SHA384_FIXED, 48),
        ("EC", "P-521") => ("ES512", &ECDSA_P521_SHA512_FIXED, 66),
        ("OKP", "Ed25519") => ("EdDSA", &ED25519, 32),
        _ => {
            return Err(format!("crv is {crv:?}; it must be P-256, P-384 or P-521 (EC), or Ed25519 (OKP)"));
        }
    };
    if let Some(alg) = alg.filter(|alg| *alg != name) {
        return Err(format!("alg is {alg:?}; with crv {crv} it is {name}"));
    }
    let x = bytes(jwk, "x")?;
    let point = match kty {
        "EC" => {
            let y = bytes(jwk, "y")?;
            if x.len() != size || y.len() != size {
                return Err(format!("x and y have {size} bytes each with crv {crv}"));
            }
            // The uncompressed form of a point (SEC 1 section 2.3.3).
            [&[4][..], &x, &y].concat()
        }
        _ if x.len() == size => x,
        _ => return Err(format!("x has {size} bytes with crv {crv}")),
    };
    let key = ParsedPublicKey::new(algorithm, point).map_err(|_| format!("x and y are no point of {crv}"))?;
    Ok(VerificationKey { name, material: KeyMaterial::Curve(key) })
}

fn bytes(jwk: &Map<String, Value>, name: &str) -> Result<Vec<u8>, String> {
    let text = jwk.get(name).and_then(Value::as_str).ok_or_else(|| format!("{name} is missing"))?;
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| format!("{name} is not base64url without ="))?;
    if bytes.is_empty() { Err(format!("{name} is empty")) } else { Ok(bytes) }
}
