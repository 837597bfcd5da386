//! A certificate that nobody vouches for, for development.

use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::{Certificate, Pem};

/// For these hosts and addresses, for 90 days; with its key in PEM.
pub fn self_signed(hosts: &[String]) -> Result<(Certificate, Pem), String> {
    let made = || {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(hosts)?;
        let start = time::OffsetDateTime::now_utc() - time::Duration::hours(1);
        params.not_before = start;
        params.not_after = start + time::Duration::days(90);
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "Hayate, self-signed for development");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = params.self_signed(&key)?;
        Ok::<_, rcgen::Error>((certificate.der().clone(), key))
    };
    let (der, key) = made().map_err(|error| error.to_string())?;
    let private = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let certificate = Certificate::from_der(vec![der], &private).map_err(|fault| fault.to_string())?;
    Ok((certificate, Pem(key.serialize_pem())))
}
