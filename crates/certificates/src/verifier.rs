//! Which certificates of clients are good: those that lead to a configured authority, and those that are configured themselves.
//!
//! webpki takes no authority's certificate for a client's. But `openssl req -x509` makes every certificate one, and whoever names such a
//! certificate in `client_ca` means that very client; OpenSSL, and so nginx, takes it. One that is named and is no authority's lets in nobody
//! else. All others are verified by webpki, and by what it does not ask of authorities ([`Authority`]).

use std::{cell::Cell, sync::Arc};

use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, TrustAnchor, UnixTime},
    server::danger::{ClientCertVerified, ClientCertVerifier},
};
use webpki::{EndEntityCert, KeyUsage, VerifiedPath};
use x509_parser::parse_x509_certificate;

use crate::authority::{Authority, may_be_between};

/// Why a client's certificate is refused, beside what webpki says.
#[derive(Debug, Clone, Copy, thiserror::Error)]
enum Refused {
    #[error(
        "it is an authority's (CA:TRUE) and not itself in client_ca; sign one of the client's own (CA:FALSE), or name this one"
    )]
    NotNamed,
    #[error(
        "it is in client_ca itself, but not good for a client now: look at its dates, keyUsage (digitalSignature) and extendedKeyUsage (clientAuth)"
    )]
    NotGood,
    #[error("its keyUsage lacks digitalSignature, so its key may not be used for this; sign one that has it")]
    NoSignature,
    #[error("the authority in client_ca that signed it has expired or is not valid yet; renew that one")]
    AuthorityNotValid,
    #[error(
        "there are more authorities between it and the one in client_ca than that one allows (pathLenConstraint)"
    )]
    TooFar,
    #[error("an authority between it and the one in client_ca may sign no certificates (keyUsage)")]
    Between,
}

impl From<Refused> for Error {
    fn from(why: Refused) -> Error {
        CertificateError::Other(OtherError(Arc::new(why))).into()
    }
}

/// Bytes of the names that clients are told, with their lengths. All extensions of a request for a certificate have 65,535, and rustls panics at
/// more.
const MOST_HINTS: usize = 60_000;

/// See the module.
#[derive(Debug)]
pub(crate) struct Verifier {
    named: Vec<CertificateDer<'static>>,
    authorities: Vec<Authority>,
    /// Theirs, in the same order.
    anchors: Vec<TrustAnchor<'static>>,
    hints: Vec<DistinguishedName>,
    required: bool,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    /// By the certificates of `client_ca`. `required`: without a good certificate there is no connection.
    pub(crate) fn new(
        named: Vec<CertificateDer<'static>>,
        required: bool,
        provider: &CryptoProvider,
    ) -> Result<Verifier, String> {
        if named.is_empty() {
            return Err("there is none".into());
        }
        let mut authorities = Vec::new();
        for certificate in &named {
            authorities.extend(Authority::new(certificate)?);
        }
        let anchors = authorities.iter().map(|authority| authority.anchor.clone()).collect();
        let algorithms = provider.signature_verification_algorithms;
        Ok(Verifier { hints: hints(&named), named, authorities, anchors, required, algorithms })
    }

    /// What webpki does not ask of a way that it has found.
    fn judge(&self, path: &VerifiedPath<'_>, now: UnixTime) -> Result<(), Refused> {
        if !path.intermediate_certificates().all(|between| may_be_between(&between.der())) {
            return Err(Refused::Between);
        }
        let between = path.intermediate_certificates().count();
        let mut why = Refused::AuthorityNotValid;
        // One that was renewed with the same key is there twice.
        for authority in self.authorities.iter().filter(|authority| authority.anchor == *path.anchor()) {
            match (authority.is_valid(now), authority.allows(between)) {
                (true, true) => return Ok(()),
                (true, false) => why = Refused::TooFar,
                (false, _) => {}
            }
        }
        Err(why)
    }
}

/// Whose certificates are wanted, for clients to choose among theirs. None if there are too many: then they choose among all.
fn hints(named: &[CertificateDer<'_>]) -> Vec<DistinguishedName> {
    let subject = |der: &CertificateDer<'_>| {
        let (_, parsed) = parse_x509_certificate(der).ok()?;
        Some(DistinguishedName::from(parsed.subject().as_raw().to_vec()))
    };
    let hints: Vec<DistinguishedName> = named.iter().filter_map(subject).collect();
    let bytes: usize = hints.iter().map(|name| name.as_ref().len().saturating_add(2)).sum();
    if bytes > MOST_HINTS { Vec::new() } else { hints }
}

/// What is said of a refusal, by which rustls chooses its alert.
fn words(error: webpki::Error) -> Error {
    match error {
        webpki::Error::BadDer | webpki::Error::BadDerTime | webpki::Error::TrailingData(_) => {
            CertificateError::BadEncoding.into()
        }
        webpki::Error::CertNotValidYet { time, not_before } => {
            CertificateError::NotValidYetContext { time, not_before }.into()
        }
        webpki::Error::CertExpired { time, not_after } => {
            CertificateError::ExpiredContext { time, not_after }.into()
        }
        webpki::Error::UnknownIssuer => CertificateError::UnknownIssuer.into(),
        webpki::Error::InvalidSignatureForPublicKey => CertificateError::BadSignature.into(),
        webpki::Error::RequiredEkuNotFoundContext(_) => CertificateError::InvalidPurpose.into(),
        other => CertificateError::Other(OtherError(Arc::new(other))).into(),
    }
}

/// Whether its key may sign a handshake (RFC 8446, 4.4.2.2).
fn may_sign_handshakes(certificate: &CertificateDer<'_>) -> bool {
    let Ok((_, parsed)) = parse_x509_certificate(certificate) else { return false };
    parsed.key_usage().is_ok_and(|usage| usage.is_none_or(|usage| usage.value.digital_signature()))
}

/// Whether a certificate that is trusted by itself is good for a client at this time.
fn is_good(certificate: &CertificateDer<'_>, now: UnixTime) -> bool {
    let Ok((_, parsed)) = parse_x509_certificate(certificate) else { return false };
    let Ok(now) = i64::try_from(now.as_secs()) else { return false };
    let Ok(extended) = parsed.extended_key_usage() else { return false };
    let validity = parsed.validity();
    (validity.not_before.timestamp()..=validity.not_after.timestamp()).contains(&now)
        && extended.is_none_or(|extended| extended.value.client_auth)
        && may_sign_handshakes(certificate)
}

impl ClientCertVerifier for Verifier {
    fn offer_client_auth(&self) -> bool {
        true
    }

    fn client_auth_mandatory(&self) -> bool {
        self.required
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let named = self.named.iter().any(|named| named.as_ref() == certificate.as_ref());
        if named && is_good(certificate, now) {
            return Ok(ClientCertVerified::assertion());
        }
        let why = Cell::new(None);
        let judge = |path: &VerifiedPath<'_>| {
            // It looks for another way then.
            self.judge(path, now).map_err(|refused| {
                why.set(Some(refused));
                webpki::Error::UnknownIssuer
            })
        };
        let verified = EndEntityCert::try_from(certificate).and_then(|client| {
            let (algorithms, usage) = (self.algorithms.all, KeyUsage::client_auth());
            client
                .verify_for_usage(algorithms, &self.anchors, intermediates, now, usage, None, Some(&judge))
                .map(|_| ())
        });
        match (verified, why.get()) {
            (Ok(()), _) if may_sign_handshakes(certificate) => Ok(ClientCertVerified::assertion()),
            (Ok(()), _) => Err(Refused::NoSignature.into()),
            (Err(webpki::Error::CaUsedAsEndEntity), _) if !named => Err(Refused::NotNamed.into()),
            (Err(webpki::Error::CaUsedAsEndEntity | webpki::Error::UnknownIssuer), _) if named => {
                Err(Refused::NotGood.into())
            }
            (Err(_), Some(why)) => Err(why.into()),
            (Err(error), None) => Err(words(error)),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
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
        let verifier = Verifier::new(vec![named.clone()], true, &default_provider()).unwrap();
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
