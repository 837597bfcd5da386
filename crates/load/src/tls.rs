//! TLS of a load: whom to believe, what to offer, whether sessions are resumed.
//!
//! Promises: a load whose handshakes fail says why, once. Must never reach further than the load's own host.

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _},
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
            Trust::System | Trust::File(_) => builder.with_root_certificates(authorities(trust)?),
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

fn authorities(trust: &Trust) -> Result<RootCertStore, LoadError> {
    let mut roots = RootCertStore::empty();
    let Trust::File(file) = trust else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return match roots.is_empty() {
            false => Ok(roots),
            true => Err(LoadError::Tls(
                "this system has no authorities to check certificates by: install ca-certificates, name a \
                 file of them, or do not check"
                    .to_owned(),
            )),
        };
    };
    let wrong = |what: &dyn std::fmt::Display| LoadError::Tls(format!("{}: {what}", file.display()));
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| wrong(&error))? {
        let certificate = certificate.map_err(|error| wrong(&error))?;
        roots.add(certificate).map_err(|error| wrong(&error))?;
    }
    if roots.is_empty() {
        return Err(wrong(&"no certificate in PEM form"));
    }
    Ok(roots)
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
