//! Names that are identities, and names that are not.

use rcgen::{CustomExtension, DistinguishedName, DnType, DnValue, KeyPair, SanType};

use super::*;
use crate::net::tls::test_pki::Authority;

thread_local! {
    static AUTHORITY: Authority = Authority::new("test root");
}

fn certificate(subject: &[(DnType, DnValue)], names: &[SanType]) -> CertificateDer<'static> {
    let mut name = DistinguishedName::new();
    for (kind, value) in subject {
        name.push(kind.clone(), value.clone());
    }
    AUTHORITY.with(|authority| {
        let key = KeyPair::generate().unwrap();
        let leaf = authority.issue(key, |params| {
            params.distinguished_name = name;
            params.subject_alt_names = names.to_vec();
        });
        leaf.certificate
    })
}

fn utf8(text: &str) -> DnValue {
    DnValue::Utf8String(text.to_owned())
}

fn cn(text: &str) -> Result<String, NoIdentity> {
    user_name(&certificate(&[(DnType::CommonName, utf8(text))], &[]), CertificateUser::Cn)
}

#[test]
fn the_common_name_is_the_user() {
    assert_eq!(cn("device 7").unwrap(), "device 7");
    assert_eq!(cn("Gerät").unwrap(), "Gerät");
    let printable = DnValue::PrintableString("device".try_into().unwrap());
    let certificate = certificate(&[(DnType::CommonName, printable)], &[]);
    assert_eq!(user_name(&certificate, CertificateUser::Cn).unwrap(), "device");
}

#[test]
fn a_name_that_two_programs_may_read_differently_is_no_identity() {
    for name in ["admin\0.evil.test", "\0", "line\nbreak", "tab\t", "\u{7f}", "c1 \u{85}"] {
        assert_eq!(cn(name), Err(NoIdentity::ControlCharacter), "{name:?}");
    }
    assert_eq!(cn(""), Err(NoIdentity::NotAUserName));
    let bmp = DnValue::BmpString("admin".try_into().unwrap());
    let wide = certificate(&[(DnType::CommonName, bmp)], &[]);
    assert_eq!(user_name(&wide, CertificateUser::Cn), Err(NoIdentity::NotAUserName));
    let none = certificate(&[(DnType::OrganizationName, utf8("org"))], &[]);
    assert_eq!(user_name(&none, CertificateUser::Cn), Err(NoIdentity::Missing));
    let junk = CertificateDer::from(vec![0x30, 3, 1, 1, 1]);
    assert_eq!(user_name(&junk, CertificateUser::Cn), Err(NoIdentity::Unreadable));
    assert_eq!(serial_number(&junk), None);
}

/// rcgen cannot write two common names, so the bytes of another attribute's type are changed.
#[test]
fn a_second_common_name_is_no_identity() {
    let two = certificate(&[(DnType::CommonName, utf8("one")), (DnType::OrganizationName, utf8("two"))], &[]);
    let organization = [0x06, 0x03, 0x55, 0x04, 0x0A];
    let mut der = two.to_vec();
    let at = der.windows(5).rposition(|bytes| bytes == organization).unwrap();
    der[at + 4] = 3;
    assert_eq!(
        user_name(&CertificateDer::from(der), CertificateUser::Cn),
        Err(NoIdentity::SeveralCommonNames)
    );
}

#[test]
fn the_first_alternative_name_of_the_kind_is_the_user() {
    let names = [
        SanType::Rfc822Name("a@devices.test".try_into().unwrap()),
        SanType::DnsName("one.devices.test".try_into().unwrap()),
        SanType::URI("urn:device:7".try_into().unwrap()),
        SanType::DnsName("two.devices.test".try_into().unwrap()),
    ];
    let certificate = certificate(&[(DnType::CommonName, utf8("cn"))], &names);
    let user = |kind| user_name(&certificate, kind).unwrap();
    assert_eq!(user(CertificateUser::SanDns), "one.devices.test");
    assert_eq!(user(CertificateUser::SanUri), "urn:device:7");
    assert_eq!(user(CertificateUser::SanEmail), "a@devices.test");
    assert_eq!(user(CertificateUser::Cn), "cn");
}

#[test]
fn an_alternative_name_with_a_nul_is_no_identity() {
    // SubjectAltName with one dNSName "a\0b".
    let content = vec![0x30, 5, 0x82, 3, b'a', 0, b'b'];
    let certificate = AUTHORITY.with(|authority| {
        authority
            .issue(KeyPair::generate().unwrap(), |params| {
                params.custom_extensions = vec![CustomExtension::from_oid_content(&[2, 5, 29, 17], content)];
            })
            .certificate
    });
    assert_eq!(user_name(&certificate, CertificateUser::SanDns), Err(NoIdentity::ControlCharacter));
    assert_eq!(user_name(&certificate, CertificateUser::SanUri), Err(NoIdentity::Missing));
}

/// The expected texts are those of `openssl x509 -noout -subject -nameopt RFC2253`.
#[test]
fn the_subject_is_written_as_openssl_writes_it() {
    let subject = [
        (DnType::CountryName, DnValue::PrintableString("DE".try_into().unwrap())),
        (DnType::OrganizationName, utf8("A, B + C; \"D\" <E> \\ F=G")),
        (DnType::OrganizationalUnitName, utf8("#1 Gerät ")),
        (DnType::from_oid(&[1, 2, 3, 4]), utf8("x")),
        (DnType::CommonName, utf8(" device")),
    ];
    let certificate = certificate(&subject, &[]);
    assert_eq!(
        user_name(&certificate, CertificateUser::Subject).unwrap(),
        "CN=\\ device,1.2.3.4=#0C0178,OU=\\#1 Ger\\C3\\A4t\\ ,O=A\\, B \\+ C\\; \\\"D\\\" \\<E\\> \\\\ F=G,C=DE"
    );
}

#[test]
fn a_subject_with_a_control_character_is_no_identity() {
    let certificate = certificate(&[(DnType::CommonName, utf8("a\0b"))], &[]);
    assert_eq!(user_name(&certificate, CertificateUser::Subject), Err(NoIdentity::ControlCharacter));
}
