//! TLS of a load: whom to believe, what to offer, whether sessions are resumed.
//!
//! Promises: a load whose handshakes fail says why, once. Must never reach further than the load's own host.

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, OtherError, RootCertStore,
    SignatureScheme,
    client::{
        Resumption, WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{
        CertificateDer, ServerName, UnixTime,
        pem::{self, PemObject as _},
    },
    server::ParsedCertificate,
};

use crate::run::{LoadError, Version};

/// Sessions that a generator thread remembers, at least. rustls keeps at most eight tickets for one host.
const SESSIONS: usize = 32;

/// How the server's certificate is checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// By the authorities that this system trusts.
    #[default]
    System,
    /// By those in a PEM file.
    File(PathBuf),
    /// Not at all.
    Nobody,
}

/// What a load has seen of TLS, for its report.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Version and cipher suite of its first handshake.
    pub(crate) agreement: OnceLock<String>,
    /// Why its first failed handshake failed.
    pub(crate) failure: OnceLock<String>,
}

/// What a generator thread needs for its handshakes.
#[derive(Clone, Debug)]
pub(crate) struct Tls {
    pub(crate) config: Arc<ClientConfig>,
    pub(crate) name: ServerName<'static>,
    pub(crate) seen: Arc<Seen>,
}

impl Tls {
    /// For connections to `host`.
    pub(crate) fn new(host: &str, trust: &Trust, version: Version, resume: bool) -> Result<Self, LoadError> {
        let wrong = |what: String| LoadError::Tls(what);
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong(error.to_string()))?;
        let builder = match trust {
            Trust::Nobody => {
                builder.dangerous().with_custom_certificate_verifier(Arc::new(Unchecked(provider)))
            }
            Trust::System | Trust::File(_) => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(Verifier::new(authorities(trust)?, provider)?)),
        };
        let mut config = builder.with_no_client_auth();
        config.alpn_protocols = vec![version.alpn().to_vec()];
        config.resumption = if resumes(version, resume) {
            Resumption::in_memory_sessions(SESSIONS)
        } else {
            Resumption::disabled()
        };
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| wrong(format!("'{host}' is neither a host name nor an address")))?;
        Ok(Self { config: Arc::new(config), name, seen: Arc::default() })
    }

    /// The same with a memory for sessions of its own: threads share nothing.
    pub(crate) fn for_thread(&self, version: Version, resume: bool) -> Self {
        let mut config = ClientConfig::clone(&self.config);
        if resumes(version, resume) {
            config.resumption = Resumption::in_memory_sessions(SESSIONS);
        }
        Self { config: Arc::new(config), ..self.clone() }
    }

    pub(crate) fn note_failure(&self, why: &str) {
        let _ = self.seen.failure.set(why.to_owned());
    }

    /// quinn does not say which cipher suite it is.
    pub(crate) fn note_quic(&self) {
        self.seen.agreement.get_or_init(|| "TLSv1_3, by QUIC".to_owned());
    }

    pub(crate) fn note_agreement(&self, session: &ClientConnection) {
        self.seen.agreement.get_or_init(|| {
            let version = session.protocol_version().and_then(|version| version.as_str()).unwrap_or("TLS");
            let cipher = session.negotiated_cipher_suite().and_then(|suite| suite.suite().as_str());
            format!("{version}, {}", cipher.unwrap_or("unknown cipher"))
        });
    }
}

/// See [`crate::connection::http3`].
fn resumes(version: Version, resume: bool) -> bool {
    resume && version != Version::Http3
}

fn authorities(trust: &Trust) -> Result<Vec<CertificateDer<'static>>, LoadError> {
    let Trust::File(file) = trust else {
        return Ok(rustls_native_certs::load_native_certs().certs);
    };
    let wrong = |what: &dyn std::fmt::Display| LoadError::Tls(format!("{}: {what}", file.display()));
    let mut roots = RootCertStore::empty();
    let mut found = Vec::new();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| wrong(&pem_fault(&error)))? {
        let certificate = certificate.map_err(|error| wrong(&pem_fault(&error)))?;
        roots.add(certificate.clone()).map_err(|error| wrong(&error))?;
        found.push(certificate);
    }
    if found.is_empty() {
        return Err(wrong(&"no certificate in PEM form"));
    }
    Ok(found)
}

/// The crate shows lines as the numbers of their bytes.
fn pem_fault(error: &pem::Error) -> String {
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
        other => other.to_string(),
    }
}

/// Believes whom webpki believes, and a server whose certificate is itself one of the authorities': `openssl req -x509` makes each one of an
/// authority, which webpki takes for no server's; curl does.
#[derive(Debug)]
struct Verifier {
    webpki: Arc<WebPkiServerVerifier>,
    named: Vec<CertificateDer<'static>>,
}

/// Shown by rustls, which shows others' errors as Rust does.
#[derive(thiserror::Error)]
#[error(
    "the server's certificate is an authority's (CA:TRUE): name it itself as an authority (--ca-file), or do not check (--insecure)"
)]
struct OfAuthority;

impl std::fmt::Debug for OfAuthority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl Verifier {
    fn new(named: Vec<CertificateDer<'static>>, provider: Arc<CryptoProvider>) -> Result<Self, LoadError> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(named.iter().cloned());
        if roots.is_empty() {
            return Err(LoadError::Tls(
                "this system has no authorities to check certificates by: install ca-certificates, name a \
                 file of them, or do not check"
                    .to_owned(),
            ));
        }
        let webpki = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
        Ok(Self { webpki: webpki.map_err(|error| LoadError::Tls(error.to_string()))?, named })
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified = self.webpki.verify_server_cert(certificate, intermediates, name, ocsp, now);
        if !verified.as_ref().is_err_and(is_of_authority) {
            return verified;
        }
        if !self.named.iter().any(|named| named.as_ref() == certificate.as_ref()) {
            return Err(CertificateError::Other(OtherError(Arc::new(OfAuthority))).into());
        }
        // webpki has looked at its dates before.
        verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.webpki.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.webpki.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.webpki.supported_verify_schemes()
    }
}

/// Whether webpki has refused a certificate because it is an authority's.
fn is_of_authority(error: &rustls::Error) -> bool {
    let rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(why))) = error else {
        return false;
    };
    matches!(why.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity))
}

/// What rustls says, without its own name of what others have said.
pub(crate) fn reason(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(why))) => why.to_string(),
        other => other.to_string(),
    }
}

/// Believes everybody. Signatures are not checked either: the generator's time is for the load.
#[derive(Debug)]
struct Unchecked(Arc<CryptoProvider>);

impl ServerCertVerifier for Unchecked {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
