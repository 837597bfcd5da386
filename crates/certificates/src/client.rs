//! What is said of a client's certificate, in nginx's words: `$ssl_client_s_dn` and its kin.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::{Engine, prelude::BASE64_STANDARD};
use rustls::pki_types::CertificateDer;
use x509_parser::{
    objects::{oid_registry, oid2abbrev},
    parse_x509_certificate,
    time::ASN1Time,
    x509::X509Name,
};

/// A client's certificate as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// Subject, as RFC 2253 has it: the most special part first.
    pub subject: String,
    /// Issuer, likewise.
    pub issuer: String,
    /// Serial number, in upper-case hexadecimal digits.
    pub serial: String,
    /// SHA-1 of the certificate, in lower-case hexadecimal digits.
    pub fingerprint: String,
    /// As OpenSSL prints times: `Nov 22 01:41:58 2026 GMT`.
    pub valid_from: String,
    /// Likewise.
    pub valid_to: String,
    /// In PEM.
    pub pem: String,
}

impl ClientCertificate {
    /// `None` if it cannot be understood, although it was verified.
    pub fn new(der: &CertificateDer<'_>) -> Option<ClientCertificate> {
        let (_, parsed) = parse_x509_certificate(der).ok()?;
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02X}")).collect::<String>();
        let serial = parsed.raw_serial();
        let serial = match serial {
            [0, rest @ ..] if !rest.is_empty() => rest,
            all => all,
        };
        let digest = digest(&SHA1_FOR_LEGACY_USE_ONLY, der);
        Some(ClientCertificate {
            subject: name(parsed.subject()),
            issuer: name(parsed.issuer()),
            serial: hex(serial),
            fingerprint: hex(digest.as_ref()).to_ascii_lowercase(),
            valid_from: time(parsed.validity().not_before.timestamp()),
            valid_to: time(parsed.validity().not_after.timestamp()),
            pem: pem(der),
        })
    }
}

/// The most special part first, with RFC 2253's escapes, as OpenSSL's `XN_FLAG_RFC2253` writes it.
fn name(name: &X509Name<'_>) -> String {
    let mut parts = Vec::new();
    for set in name.iter_rdn() {
        let attributes = set.iter().map(|attribute| {
            let kind = attribute.attr_type();
            let kind = oid2abbrev(kind, oid_registry())
                .map_or_else(|_| kind.to_id_string(), |short| short.to_owned());
            // What is no text is of no use to a script.
            let value = attribute.as_str().unwrap_or_default();
            format!("{kind}={}", escape(value))
        });
        parts.push(attributes.collect::<Vec<_>>().join("+"));
    }
    parts.reverse();
    parts.join(",")
}

fn escape(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    let last = value.chars().count().saturating_sub(1);
    for (i, c) in value.chars().enumerate() {
        let edge = (i == 0 && matches!(c, ' ' | '#')) || (i == last && c == ' ');
        match c {
            ',' | '+' | '"' | '\\' | '<' | '>' | ';' => text.extend(['\\', c]),
            _ if edge => text.extend(['\\', c]),
            // Also other bytes that are not printable ASCII, one by one.
            ' '..='~' => text.push(c),
            _ => {
                let mut bytes = [0; 4];
                c.encode_utf8(&mut bytes).bytes().for_each(|byte| text.push_str(&format!("\\{byte:02X}")));
            }
        }
    }
    text
}

fn time(seconds: i64) -> String {
    ASN1Time::from_timestamp(seconds).map_or_else(
        |_| String::new(),
        |time| {
            let time = time.to_datetime();
            let month: String = time.month().to_string().chars().take(3).collect();
            format!(
                "{month} {:>2} {:02}:{:02}:{:02} {} GMT",
                time.day(),
                time.hour(),
                time.minute(),
                time.second(),
                time.year()
            )
        },
    )
}

pub(crate) fn pem(der: &[u8]) -> String {
    let text = BASE64_STANDARD.encode(der);
    let mut pem = String::with_capacity(text.len() + text.len() / 64 + 64);
    pem += "-----BEGIN CERTIFICATE-----\n";
    let mut rest = &text[..];
    while !rest.is_empty() {
        // Base64 is ASCII.
        let (line, more) = rest.split_at_checked(64).unwrap_or((rest, ""));
        pem += line;
        pem += "\n";
        rest = more;
    }
    pem + "-----END CERTIFICATE-----\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_as_openssl_does() {
        assert_eq!(escape("Müller, \"A\" <x>"), "M\\C3\\BCller\\, \\\"A\\\" \\<x\\>");
        assert_eq!(escape(" #a "), "\\ #a\\ ");
        assert_eq!(escape("#a"), "\\#a");
        assert_eq!(time(0), "Jan  1 00:00:00 1970 GMT");
    }

    #[test]
    fn a_certificate_is_described() {
        let (made, _) = crate::self_signed(&["a.example".into()]).unwrap();
        let described = ClientCertificate::new(&made.chain()[0]).unwrap();
        assert_eq!(described.subject, "CN=Hayate\\, self-signed for development");
        assert_eq!(described.fingerprint.len(), 40);
        assert!(described.pem.ends_with("-----END CERTIFICATE-----\n"));
    }
}
