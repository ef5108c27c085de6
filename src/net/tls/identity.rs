//! The user name in a client's certificate, and its serial number.
//!
//! A name with a NUL or another control character is no identity: a log or a C program would read
//! another name. A subject with two common names is no identity, because two programs may choose
//! different ones.

use rustls::pki_types::CertificateDer;
use thiserror::Error;
use x509_cert::Certificate;
use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::der::{Decode as _, Encode as _, Tag, Tagged as _};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::name::Name;

use super::settings::CertificateUser;

/// MQTT 5.0 3.1.3.5 and 1.5.4: a User Name has at most 65,535 bytes.
const USER_NAME_MAX: usize = 65_535;

const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");

/// The names that OpenSSL writes for types of attributes in a subject. Another type is written as
/// its number, with its value in hexadecimal.
const ATTRIBUTES: [(&str, &str); 23] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.4", "SN"),
    ("2.5.4.5", "serialNumber"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "street"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.12", "title"),
    ("2.5.4.13", "description"),
    ("2.5.4.15", "businessCategory"),
    ("2.5.4.16", "postalAddress"),
    ("2.5.4.17", "postalCode"),
    ("2.5.4.41", "name"),
    ("2.5.4.42", "GN"),
    ("2.5.4.43", "initials"),
    ("2.5.4.44", "generationQualifier"),
    ("2.5.4.46", "dnQualifier"),
    ("2.5.4.65", "pseudonym"),
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
];

/// The reason why a client has no identity by its certificate. The text is for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NoIdentity {
    /// The client sent no certificate.
    #[error("the client sent no certificate")]
    NoCertificate,
    /// The operator does not want names of certificates.
    #[error("names in certificates do not count (tls.certificate_user = \"none\")")]
    NotWanted,
    /// The certificate has no name of the kind that is configured.
    #[error("the certificate has no name of the configured kind (tls.certificate_user)")]
    Missing,
    /// The subject has more than one common name.
    #[error("the subject of the certificate has more than one common name")]
    SeveralCommonNames,
    /// The name has a NUL or another control character.
    #[error("the name in the certificate has a control character")]
    ControlCharacter,
    /// The name is empty, too long for a User Name, or in an encoding that is not supported.
    #[error("the name in the certificate cannot be a User Name: it is empty, too long, or not UTF-8")]
    NotAUserName,
    /// The certificate is not X.509 in DER, or has the same extension twice.
    #[error("the certificate cannot be read")]
    Unreadable,
}

/// Returns the user name in a client's certificate.
///
/// # Errors
/// The certificate gives no identity.
pub fn user_name(certificate: &CertificateDer<'_>, kind: CertificateUser) -> Result<String, NoIdentity> {
    let certificate = Certificate::from_der(certificate).map_err(|_| NoIdentity::Unreadable)?;
    let certificate = certificate.tbs_certificate();
    match kind {
        CertificateUser::None => Err(NoIdentity::NotWanted),
        CertificateUser::Cn => common_name(certificate.subject()),
        CertificateUser::Subject => subject(certificate.subject()),
        CertificateUser::SanDns | CertificateUser::SanUri | CertificateUser::SanEmail => {
            let names = certificate.get_extension::<SubjectAltName>().map_err(|_| NoIdentity::Unreadable)?;
            let (_, names) = names.ok_or(NoIdentity::Missing)?;
            let name = names.0.iter().find_map(|name| match (kind, name) {
                (CertificateUser::SanDns, GeneralName::DnsName(name))
                | (CertificateUser::SanUri, GeneralName::UniformResourceIdentifier(name))
                | (CertificateUser::SanEmail, GeneralName::Rfc822Name(name)) => Some(name.as_str()),
                _ => None,
            });
            checked(name.ok_or(NoIdentity::Missing)?)
        }
    }
}

/// Returns `name` if it can be the user name of a client.
///
/// # Errors
/// The name is empty, longer than 65,535 bytes, or has a control character.
pub fn checked(name: &str) -> Result<String, NoIdentity> {
    if name.chars().any(char::is_control) {
        return Err(NoIdentity::ControlCharacter);
    }
    if name.is_empty() || name.len() > USER_NAME_MAX {
        return Err(NoIdentity::NotAUserName);
    }
    Ok(name.to_owned())
}

/// Returns the serial number in upper-case hexadecimal, as `openssl x509 -serial` prints it; `None`
/// if the certificate cannot be read.
pub fn serial_number(certificate: &CertificateDer<'_>) -> Option<String> {
    let certificate = Certificate::from_der(certificate).ok()?;
    let bytes = certificate.tbs_certificate().serial_number().as_bytes();
    // DER puts a zero before a number whose first bit is set.
    let bytes = match bytes {
        [0, rest @ ..] if !rest.is_empty() => rest,
        bytes => bytes,
    };
    Some(hex(bytes))
}

/// Returns the DNS names in the subject alternative names, in lower case; may be empty.
///
/// # Errors
/// The certificate is not X.509 in DER.
pub(super) fn dns_names(certificate: &Certificate) -> Result<Vec<String>, NoIdentity> {
    let names = certificate.tbs_certificate().get_extension::<SubjectAltName>();
    let names = names.map_err(|_| NoIdentity::Unreadable)?;
    let names = names.map(|(_, names)| names.0).unwrap_or_default();
    Ok(names
        .iter()
        .filter_map(|name| match name {
            GeneralName::DnsName(name) => Some(name.as_str().to_ascii_lowercase()),
            _ => None,
        })
        .collect())
}

fn common_name(subject: &Name) -> Result<String, NoIdentity> {
    let mut names = subject.iter().filter(|attribute| attribute.oid == COMMON_NAME);
    let name = names.next().ok_or(NoIdentity::Missing)?;
    if names.next().is_some() {
        return Err(NoIdentity::SeveralCommonNames);
    }
    checked(text(name).ok_or(NoIdentity::NotAUserName)?)
}

/// Returns the text of an attribute, if its type is one of which the bytes are UTF-8.
fn text(attribute: &AttributeTypeAndValue) -> Option<&str> {
    match attribute.value.tag() {
        Tag::Utf8String | Tag::PrintableString | Tag::Ia5String | Tag::NumericString | Tag::VisibleString => {
            std::str::from_utf8(attribute.value.value()).ok()
        }
        // The bytes of a TeletexString are ASCII in every certificate that two programs agree on.
        Tag::TeletexString => {
            std::str::from_utf8(attribute.value.value()).ok().filter(|value| value.is_ascii())
        }
        _ => None,
    }
}

/// Returns the subject as OpenSSL prints it with `XN_FLAG_RFC2253`: the last part first, bytes
/// beyond ASCII as `\XX`.
fn subject(name: &Name) -> Result<String, NoIdentity> {
    let mut whole = String::new();
    let parts: Vec<_> = name.iter_rdn().collect();
    for part in parts.into_iter().rev() {
        if !whole.is_empty() {
            whole.push(',');
        }
        let attributes: Vec<_> = part.iter().collect();
        for (at, attribute) in attributes.into_iter().rev().enumerate() {
            if at > 0 {
                whole.push('+');
            }
            write_attribute(attribute, &mut whole)?;
        }
    }
    checked(&whole)
}

fn write_attribute(attribute: &AttributeTypeAndValue, to: &mut String) -> Result<(), NoIdentity> {
    let number = attribute.oid.to_string();
    let known = ATTRIBUTES.iter().find(|(of, _)| *of == number);
    to.push_str(known.map_or(number.as_str(), |(_, name)| name));
    to.push('=');
    match (known, text(attribute)) {
        (Some(_), Some(value)) => {
            if value.chars().any(char::is_control) {
                return Err(NoIdentity::ControlCharacter);
            }
            escape(value, to);
        }
        _ => {
            to.push('#');
            to.push_str(&hex(&attribute.value.to_der().map_err(|_| NoIdentity::Unreadable)?));
        }
    }
    Ok(())
}

/// Appends a value with the escapes of RFC 2253 section 2.4.
fn escape(value: &str, to: &mut String) {
    let last = value.len().saturating_sub(1);
    for (at, byte) in value.bytes().enumerate() {
        match byte {
            b',' | b'+' | b'"' | b'\\' | b'<' | b'>' | b';' => to.extend(['\\', char::from(byte)]),
            b' ' if at == 0 || at == last => to.push_str("\\ "),
            b'#' if at == 0 => to.push_str("\\#"),
            0x80.. => {
                to.push('\\');
                to.push_str(&hex(&[byte]));
            }
            _ => to.push(char::from(byte)),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

#[cfg(test)]
#[path = "identity_tests.rs"]
mod tests;
