//! A certificate that nobody vouches for, for development.

use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use time::{Duration, OffsetDateTime};

use crate::{Certificate, Pem, certificate::now};

/// For these hosts and addresses, for 90 days; with its key in PEM.
pub fn self_signed(hosts: &[String]) -> Result<(Certificate, Pem), String> {
    // The clock may be set to years that no certificate can have.
    let start = OffsetDateTime::from_unix_timestamp(now().saturating_sub(3600)).ok();
    let dates = start.and_then(|start| Some((start, start.checked_add(Duration::days(90))?)));
    let (start, end) =
        dates.ok_or("the clock is set to a time that no certificate can be made for; set it right")?;
    let made = || {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(hosts)?;
        params.not_before = start;
        params.not_after = end;
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
