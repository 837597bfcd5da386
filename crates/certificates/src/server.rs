//! rustls' configuration of the server's side.
//!
//! Tickets of former sessions are encrypted with keys that change every six hours. A client that resumes one is not asked for its
//! certificate again, so whenever it changes whose certificates are wanted, former tickets are worth nothing.

use std::{sync::Arc, time::SystemTime};

use rustls::{
    ServerConfig,
    crypto::aws_lc_rs::{Ticketer, default_provider},
    pki_types::{CertificateDer, UnixTime, pem::PemObject},
    server::{NoServerSessionStorage, ProducesTickets},
    time_provider::TimeProvider,
    version::{TLS12, TLS13},
};
use serde::{Deserialize, Serialize};

use crate::{Pem, Resolver, certificate::pem_fault, resolver::ACME_TLS, verifier::Verifier};

/// The oldest version that a client may speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum MinVersion {
    /// TLS 1.2, with forward secrecy and authenticated encryption only.
    #[default]
    Tls12,
    /// TLS 1.3.
    Tls13,
}

/// Whether clients are asked for a certificate, and by whom it has to be signed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Verify {
    /// They are not.
    #[default]
    Off,
    /// One that is shown has to be good.
    Optional(Pem),
    /// Without a good one there is no connection.
    Required(Pem),
}

/// Why there is no such configuration.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ServerFault {
    /// The certificate authorities of clients.
    #[error("it holds no certificate in PEM ({0})")]
    ClientCa(String),
    /// Everything else.
    #[error("{0}")]
    Other(String),
}

/// Whether this machine's clock is before 1970, which rustls' times cannot say: its own clock panics.
fn is_before_time() -> bool {
    SystemTime::now() < SystemTime::UNIX_EPOCH
}

/// The clock, which is never before 1970.
#[derive(Debug)]
struct Time;

impl TimeProvider for Time {
    fn current_time(&self) -> Option<UnixTime> {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Some(UnixTime::since_unix_epoch(since.unwrap_or_default()))
    }
}

/// Session tickets, of which there are none as long as the clock is before 1970: those who make them ask it themselves.
#[derive(Debug)]
struct Tickets(Arc<dyn ProducesTickets>);

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        self.0.enabled()
    }

    fn lifetime(&self) -> u32 {
        self.0.lifetime()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        if is_before_time() { None } else { self.0.encrypt(plain) }
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        if is_before_time() { None } else { self.0.decrypt(ticket) }
    }
}

/// Makes one. `alpn`: the protocols above, the preferred first.
pub fn server(
    resolver: Arc<Resolver>,
    min: MinVersion,
    verify: &Verify,
    alpn: &[&[u8]],
) -> Result<ServerConfig, ServerFault> {
    let other = |error: rustls::Error| ServerFault::Other(error.to_string());
    let provider = Arc::new(default_provider());
    let versions: &[_] = match min {
        MinVersion::Tls12 => &[&TLS13, &TLS12],
        MinVersion::Tls13 => &[&TLS13],
    };
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)
        .map_err(other)?;
    let builder = match verify {
        Verify::Off => builder.with_no_client_auth(),
        Verify::Optional(ca) | Verify::Required(ca) => {
            let fault = |error: String| ServerFault::ClientCa(error);
            let authorities = CertificateDer::pem_slice_iter(ca.0.as_bytes()).collect::<Result<_, _>>();
            let authorities = authorities.map_err(|error| fault(pem_fault(&error)))?;
            let required = matches!(verify, Verify::Required(_));
            let verifier = Verifier::new(authorities, required, &provider).map_err(fault)?;
            builder.with_client_cert_verifier(Arc::new(verifier))
        }
    };
    let mut config = builder.with_cert_resolver(resolver);
    config.alpn_protocols = alpn.iter().copied().chain([ACME_TLS]).map(<[u8]>::to_vec).collect();
    config.time_provider = Arc::new(Time);
    if !is_before_time() {
        config.ticketer = Arc::new(Tickets(Ticketer::new().map_err(other)?));
    }
    // Sessions live in tickets, which the client keeps; of those that it could not keep the server would have to.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(config)
}
