//! Which certificates of clients are good: those that lead to a configured authority, and those that are configured themselves.
//!
//! webpki takes no authority's certificate for a client's. But `openssl req -x509` makes every certificate one, and whoever names such a
//! certificate in `client_ca` means that very client; OpenSSL, and so nginx, takes it. Nothing else is taken that webpki refuses, and that the
//! client has the key is verified as for all others.

use std::sync::Arc;

use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, RootCertStore,
    SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, UnixTime},
    server::{
        VerifierBuilderError, WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};
use x509_parser::parse_x509_certificate;

/// Why an authority's certificate is none of a client's.
#[derive(Debug, thiserror::Error)]
enum Authority {
    #[error(
        "it is an authority's (CA:TRUE) and not itself in client_ca; sign one of the client's own (CA:FALSE), or name this one"
    )]
    NotNamed,
    #[error(
        "it is in client_ca itself, but not good for a client now: look at its dates, keyUsage (digitalSignature) and extendedKeyUsage (clientAuth)"
    )]
    NotGood,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Verifier {
    webpki: Arc<dyn ClientCertVerifier>,
    named: Vec<CertificateDer<'static>>,
}

impl Verifier {
    /// By these authorities. `required`: without a good certificate there is no connection.
    pub(crate) fn new(
        named: Vec<CertificateDer<'static>>,
        required: bool,
        provider: Arc<CryptoProvider>,
    ) -> Result<Verifier, String> {
        let mut roots = RootCertStore::empty();
        for certificate in &named {
            roots.add(certificate.clone()).map_err(|error| error.to_string())?;
        }
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let builder = if required { builder } else { builder.allow_unauthenticated() };
        let webpki = builder.build().map_err(|error: VerifierBuilderError| error.to_string())?;
        Ok(Verifier { webpki, named })
    }
}

/// Whether webpki has refused a certificate because it is an authority's.
fn is_of_authority(error: &Error) -> bool {
    let Error::InvalidCertificate(CertificateError::Other(OtherError(why))) = error else { return false };
    matches!(why.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity))
}

/// Whether a certificate that is trusted by itself is good for a client at this time, by what OpenSSL looks at.
fn is_good(certificate: &CertificateDer<'_>, now: UnixTime) -> bool {
    let Ok((_, parsed)) = parse_x509_certificate(certificate) else { return false };
    let Ok(now) = i64::try_from(now.as_secs()) else { return false };
    let (Ok(usage), Ok(extended)) = (parsed.key_usage(), parsed.extended_key_usage()) else { return false };
    let validity = parsed.validity();
    (validity.not_before.timestamp()..=validity.not_after.timestamp()).contains(&now)
        && usage.is_none_or(|usage| usage.value.digital_signature() || usage.value.key_agreement())
        && extended.is_none_or(|extended| extended.value.client_auth)
}

impl ClientCertVerifier for Verifier {
    fn offer_client_auth(&self) -> bool {
        self.webpki.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.webpki.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.webpki.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.webpki.verify_client_cert(certificate, intermediates, now);
        if !verified.as_ref().is_err_and(is_of_authority) {
            return verified;
        }
        let why = match self.named.iter().find(|named| named.as_ref() == certificate.as_ref()) {
            Some(named) if is_good(named, now) => return Ok(ClientCertVerified::assertion()),
            Some(_) => Authority::NotGood,
            None => Authority::NotNamed,
        };
        Err(CertificateError::Other(OtherError(Arc::new(why))).into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.webpki.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{
        BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
        date_time_ymd,
    };
    use rustls::crypto::aws_lc_rs::default_provider;

    use super::*;

    /// One that `openssl req -x509` might have made, good in 2020.
    fn made(more: impl FnOnce(&mut CertificateParams)) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2020, 12, 31));
        more(&mut params);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    fn verifies(
        named: &CertificateDer<'static>,
        shown: &CertificateDer<'static>,
        at: i64,
    ) -> Result<(), String> {
        let verifier = Verifier::new(vec![named.clone()], true, Arc::new(default_provider())).unwrap();
        let at = UnixTime::since_unix_epoch(Duration::from_secs(at.unsigned_abs()));
        verifier.verify_client_cert(shown, &[], at).map(|_| ()).map_err(|error| match error {
            Error::InvalidCertificate(CertificateError::Other(OtherError(why))) => why.to_string(),
            other => other.to_string(),
        })
    }

    #[test]
    fn an_authority_is_a_client_only_if_it_is_named_itself_and_good_for_that() {
        let at = |year, month, day| date_time_ymd(year, month, day).unix_timestamp();
        let (one, other) = (made(|_| ()), made(|_| ()));
        assert_eq!(verifies(&one, &one, at(2020, 6, 1)), Ok(()));
        let refused = |named: &CertificateDer<'static>, shown: &CertificateDer<'static>, at: i64| {
            verifies(named, shown, at).unwrap_err()
        };
        // Another one of the same name.
        assert!(refused(&one, &other, at(2020, 6, 1)).contains("not itself in client_ca"));
        assert!(refused(&one, &one, at(2019, 6, 1)).contains("not valid yet"));
        assert!(refused(&one, &one, at(2021, 6, 1)).contains("expired"));
        for usage in [KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign] {
            let signs = made(|params| params.key_usages = vec![usage]);
            assert!(refused(&signs, &signs, at(2020, 6, 1)).contains("keyUsage"));
        }
        let signs = made(|params| params.key_usages = vec![KeyUsagePurpose::DigitalSignature]);
        assert_eq!(verifies(&signs, &signs, at(2020, 6, 1)), Ok(()));
        let of_servers =
            made(|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]);
        assert!(refused(&of_servers, &of_servers, at(2020, 6, 1)).contains("extendedKeyUsage"));
        let of_clients =
            made(|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth]);
        assert_eq!(verifies(&of_clients, &of_clients, at(2020, 6, 1)), Ok(()));
        assert!(!is_good(&one, UnixTime::since_unix_epoch(Duration::from_secs(1))));
    }
}
