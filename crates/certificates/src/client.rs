//! What is said of a client's certificate, in nginx's words: `$ssl_client_s_dn` and its kin.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::{Engine, prelude::BASE64_STANDARD};
use rustls::pki_types::CertificateDer;
use x509_parser::{parse_x509_certificate, time::ASN1Time};

use crate::distinguished_name;

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
            subject: distinguished_name::text(parsed.subject()),
            issuer: distinguished_name::text(parsed.issuer()),
            serial: hex(serial),
            fingerprint: hex(digest.as_ref()).to_ascii_lowercase(),
            valid_from: time(parsed.validity().not_before.timestamp()),
            valid_to: time(parsed.validity().not_after.timestamp()),
            pem: pem(der),
        })
    }
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
    fn times_are_those_of_openssl() {
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
