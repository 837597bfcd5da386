//! One certificate with its chain and its key, looked at before it is used.

use std::{fmt, sync::Arc, time::SystemTime};

use rustls::{
    SignatureAlgorithm,
    crypto::aws_lc_rs::sign::any_supported_type,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject},
    },
    sign::CertifiedKey,
};
use serde::{Deserialize, Serialize};
use x509_parser::{extensions::GeneralName, parse_x509_certificate, time::ASN1Time};

/// A text in PEM, which may hold a secret: it is not shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pem(pub String);

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PEM of {} bytes", self.0.len())
    }
}

/// Why a certificate cannot be used. The words begin in lower case, to follow a place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Nothing between BEGIN CERTIFICATE and END CERTIFICATE, or nothing that is one.
    #[error("it holds no certificate in PEM ({0})")]
    NoCertificate(String),
    /// The certificate cannot be understood.
    #[error("its first certificate cannot be understood ({0})")]
    Malformed(String),
    /// There is no key, or an encrypted one.
    #[error(
        "it holds no private key in PEM (PKCS#8, PKCS#1 or SEC1, not encrypted): {0}; `openssl pkey -in KEY` writes one"
    )]
    NoKey(String),
    /// There is an encrypted one.
    #[error(
        "its private key is encrypted; expected one that is not: `openssl pkey -in KEY -out PLAIN` writes it, and asks for the passphrase"
    )]
    Encrypted,
    /// Each file is the other.
    #[error(
        "certificate and key are swapped: the file for the certificate holds a private key, and the one for the key a certificate"
    )]
    Swapped,
    /// The key is of a kind that cannot sign.
    #[error(
        "its kind of private key is not supported ({0}); use ECDSA (P-256, P-384), RSA (2048 bits or more) or Ed25519"
    )]
    WrongKey(String),
    /// They are not a pair.
    #[error(
        "the private key is not the certificate's; the first certificate of the file has to be the server's own"
    )]
    NoPair,
    /// The server's own certificate is not the first one.
    #[error(
        "its certificates are in the wrong order: the private key is that of number {0}; the server's own has to come first, then the one that \
         signed it"
    )]
    Order(usize),
    /// Browsers would not take it.
    #[error("the certificate names no host (subjectAltName); clients refuse such a certificate")]
    NoNames,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Certificate {
    pub(crate) key: Arc<CertifiedKey>,
    names: Vec<String>,
    not_before: i64,
    not_after: i64,
    /// RSA, which clients take that take nothing else.
    pub(crate) rsa: bool,
}

impl Certificate {
    /// From a chain, the server's own certificate first, and its key.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Certificate, Fault> {
        let has = |text: &[u8], marker: &[u8]| text.windows(marker.len()).any(|part| part == marker);
        let has_key = |text| has(text, b"PRIVATE KEY-----");
        let has_certificate = |text| has(text, b"-----BEGIN CERTIFICATE-----");
        if !has_certificate(chain) && has_key(chain) && has_certificate(key) && !has_key(key) {
            return Err(Fault::Swapped);
        }
        if has(key, b"-----BEGIN ENCRYPTED PRIVATE KEY-----") || has(key, b"\nProc-Type: 4,ENCRYPTED") {
            return Err(Fault::Encrypted);
        }
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(chain)
            .collect::<Result<_, _>>()
            .map_err(|error| Fault::NoCertificate(pem_fault(&error)))?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| Fault::NoKey(pem_fault(&error)))?;
        Certificate::from_der(chain, &key)
    }

    pub(crate) fn from_der(
        chain: Vec<CertificateDer<'static>>,
        key: &PrivateKeyDer<'_>,
    ) -> Result<Certificate, Fault> {
        let own = chain.first().ok_or_else(|| Fault::NoCertificate("there is none".into()))?;
        let (_, parsed) = parse_x509_certificate(own).map_err(|error| Fault::Malformed(error.to_string()))?;
        let key = any_supported_type(key).map_err(|error| Fault::WrongKey(error.to_string()))?;
        let names = parsed
            .subject_alternative_name()
            .ok()
            .flatten()
            .map(|names| &names.value.general_names[..])
            .unwrap_or_default()
            .iter()
            .filter_map(|name| match name {
                GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
                GeneralName::IPAddress(bytes) => address(bytes),
                _ => None,
            });
        let names: Vec<String> = names.collect();
        let (not_before, not_after) =
            (parsed.validity().not_before.timestamp(), parsed.validity().not_after.timestamp());
        let rsa = key.algorithm() == SignatureAlgorithm::RSA;
        let fits = |one: &CertificateDer<'static>| {
            CertifiedKey::new(vec![one.clone()], Arc::clone(&key)).keys_match().is_ok()
        };
        match chain.iter().position(fits) {
            Some(0) => {}
            Some(before) => return Err(Fault::Order(before.saturating_add(1))),
            None => return Err(Fault::NoPair),
        }
        if names.is_empty() {
            return Err(Fault::NoNames);
        }
        let certified = CertifiedKey::new(chain, key);
        Ok(Certificate { key: Arc::new(certified), names, not_before, not_after, rsa })
    }

    /// Its hosts, in lower case, `*.example.org` included; and its addresses.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Whether it is good for this host, which is in lower case.
    pub fn covers(&self, host: &str) -> bool {
        self.names.iter().any(|name| crate::matches(name, host))
    }

    /// Seconds until it ends; negative when it has.
    pub fn remaining(&self) -> i64 {
        self.not_after.saturating_sub(now())
    }

    /// When it begins, for people; `None` when it has begun.
    pub fn begins(&self) -> Option<String> {
        let text = || {
            ASN1Time::from_timestamp(self.not_before).map_or_else(|_| "never".into(), |time| time.to_string())
        };
        (self.not_before > now()).then(text)
    }

    /// Seconds since the epoch: from when on it is valid, and how long.
    pub fn validity(&self) -> (i64, i64) {
        (self.not_before, self.not_after)
    }

    /// Its end, in words.
    pub fn end(&self) -> String {
        ASN1Time::from_timestamp(self.not_after).map_or_else(|_| "never".into(), |time| time.to_string())
    }

    /// The chain, its own certificate first.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.key.cert
    }
}

/// Why a text is not the PEM that was wanted, in words: what the crate says shows lines as the numbers of their bytes.
pub(crate) fn pem_fault(error: &pem::Error) -> String {
    match error {
        pem::Error::MissingSectionEnd { end_marker } => {
            format!(
                "the line '-----END {}-----' is missing",
                String::from_utf8_lossy(end_marker).escape_debug()
            )
        }
        pem::Error::IllegalSectionStart { line } => {
            let line: String = String::from_utf8_lossy(line).trim_end().chars().take(64).collect();
            format!("the line '{}' does not end with '-----'", line.escape_debug())
        }
        pem::Error::NoItemsFound => "there is none".to_owned(),
        other => other.to_string(),
    }
}

fn address(bytes: &[u8]) -> Option<String> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Some(std::net::Ipv4Addr::from(v4).to_string());
    }
    <[u8; 16]>::try_from(bytes).ok().map(|v6| std::net::Ipv6Addr::from(v6).to_string())
}

/// Seconds since the epoch.
pub(crate) fn clock() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(not(test))]
pub(crate) use clock as now;

/// The clock of a test stands still, unless the test moves it: no stall of the machine is taken for a pause that is over.
#[cfg(test)]
pub(crate) fn now() -> i64 {
    static START: std::sync::LazyLock<i64> = std::sync::LazyLock::new(clock);
    START.saturating_add(SHIFT.get())
}

#[cfg(test)]
thread_local! {
    /// By how many seconds a test's thread sees another clock than the others.
    pub(crate) static SHIFT: std::cell::Cell<i64> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::self_signed;

    fn pem(certificate: &Certificate) -> String {
        certificate.chain().iter().map(|der| crate::client::pem(der)).collect()
    }

    #[test]
    fn a_key_of_another_certificate_is_refused() {
        let (one, one_key) = self_signed(&["one.example".into()]).unwrap();
        let (_, other_key) = self_signed(&["other.example".into()]).unwrap();
        let chain = pem(&one);
        assert!(Certificate::from_pem(chain.as_bytes(), one_key.0.as_bytes()).is_ok());
        let fault = Certificate::from_pem(chain.as_bytes(), other_key.0.as_bytes()).unwrap_err();
        assert_eq!(fault, Fault::NoPair);
        assert!(matches!(Certificate::from_pem(b"", one_key.0.as_bytes()), Err(Fault::NoCertificate(_))));
        assert!(matches!(Certificate::from_pem(chain.as_bytes(), b"nothing"), Err(Fault::NoKey(_))));
        assert!(one.remaining() > 0 && one.covers("one.example") && !one.covers("other.example"));
    }

    #[test]
    fn what_is_wrong_is_said_in_words() {
        let (one, key) = self_signed(&["one.example".into()]).unwrap();
        let (other, _) = self_signed(&["other.example".into()]).unwrap();
        let chain = |chain: &str| Certificate::from_pem(chain.as_bytes(), key.0.as_bytes());
        let (one, other) = (pem(&one), pem(&other));
        assert_eq!(chain(&(other.clone() + &one)).unwrap_err(), Fault::Order(2));
        assert_eq!(chain(&(other.clone() + &other)).unwrap_err(), Fault::NoPair);
        assert!(chain(&(one.clone() + &other)).is_ok());
        for (text, said) in [
            (one.replace("-----END", "----END"), "the line '-----END CERTIFICATE-----' is missing"),
            (
                one.replace("CERTIFICATE-----\n", "CERTIFICATE--\n"),
                "the line '-----BEGIN CERTIFICATE--' does not end with",
            ),
        ] {
            let fault = chain(&text).unwrap_err().to_string();
            assert!(fault.contains(said), "{fault}");
        }
        let fault = Certificate::from_pem(one.as_bytes(), b"-----BEGIN PRIVATE KEY-----\n").unwrap_err();
        assert!(fault.to_string().contains("'-----END PRIVATE KEY-----' is missing"), "{fault}");
        assert!(
            Certificate::from_pem(one.as_bytes(), b"x")
                .unwrap_err()
                .to_string()
                .contains("not encrypted): there is none;")
        );
    }

    #[test]
    fn fuzz_pem_files() {
        let (certificate, key) = self_signed(&["a.example".into(), "*.b.example".into()]).unwrap();
        let chain = pem(&certificate);
        let pieces: [&[u8]; 6] = [
            b"-----BEGIN CERTIFICATE-----\n",
            b"-----END CERTIFICATE-----\n",
            b"-----BEGIN EC PRIVATE KEY-----\n",
            b"MIIB",
            b"=",
            b"\n",
        ];
        hayate_fuzz::run("certificates in PEM", &[chain.as_bytes()], &pieces, |_, input| {
            // It is one or it is not; a changed certificate may still be understood.
            let _ = Certificate::from_pem(input, key.0.as_bytes());
        });
        hayate_fuzz::run("keys in PEM", &[key.0.as_bytes()], &pieces, |_, input| {
            let _ = Certificate::from_pem(chain.as_bytes(), input);
        });
    }
}
