//! The certificates of `client_ca`: which of them may sign for clients, and what is doubtful about them.
//!
//! webpki keeps a name and a key of an authority, and asks no more: neither whether it is one, nor how long, nor for what. It is asked here,
//! since a certificate that is named for one client would let everybody in whom that client signs.

use rustls::pki_types::{CertificateDer, TrustAnchor, UnixTime, pem::PemObject};
use webpki::anchor_from_trusted_cert;
use x509_parser::{certificate::X509Certificate, parse_x509_certificate, time::ASN1Time};

use crate::{Pem, distinguished_name};

/// Warnings about certificates of one file; above it is said how many more there are.
const LISTED: usize = 8;

/// One that may sign for clients while it is valid.
#[derive(Debug)]
pub(crate) struct Authority {
    pub(crate) anchor: TrustAnchor<'static>,
    begins: i64,
    ends: i64,
    below: Option<u32>,
}

impl Authority {
    /// `None` if it may sign for nobody. An error: it is no certificate.
    pub(crate) fn new(der: &CertificateDer<'_>) -> Result<Option<Authority>, String> {
        let (_, parsed) = parse_x509_certificate(der).map_err(|error| error.to_string())?;
        if why_not(&parsed).is_some() {
            return Ok(None);
        }
        let anchor = anchor_from_trusted_cert(der).map_err(|error| error.to_string())?.to_owned();
        let validity = parsed.validity();
        Ok(Some(Authority {
            anchor,
            begins: validity.not_before.timestamp(),
            ends: validity.not_after.timestamp(),
            below: parsed
                .basic_constraints()
                .ok()
                .flatten()
                .and_then(|basic| basic.value.path_len_constraint),
        }))
    }

    /// Whether its time is now.
    pub(crate) fn is_valid(&self, now: UnixTime) -> bool {
        i64::try_from(now.as_secs()).is_ok_and(|now| (self.begins..=self.ends).contains(&now))
    }

    /// Whether there may be so many other authorities between it and a client (pathLenConstraint).
    pub(crate) fn allows(&self, between: usize) -> bool {
        self.below.is_none_or(|below| u32::try_from(between).is_ok_and(|between| between <= below))
    }
}

/// Why a certificate may not sign for clients.
fn why_not(parsed: &X509Certificate<'_>) -> Option<&'static str> {
    let basic = parsed.basic_constraints().ok().flatten();
    if !basic.is_some_and(|basic| basic.value.ca) {
        return Some("is no authority's (no basicConstraints with CA:TRUE)");
    }
    if !may_sign(parsed) {
        return Some("may sign no certificates (its keyUsage lacks keyCertSign)");
    }
    let extended = parsed.extended_key_usage();
    if !extended.is_ok_and(|all| all.is_none_or(|all| all.value.client_auth || all.value.any)) {
        return Some("is not for clients (its extendedKeyUsage lacks clientAuth)");
    }
    None
}

fn may_sign(parsed: &X509Certificate<'_>) -> bool {
    parsed.key_usage().is_ok_and(|usage| usage.is_none_or(|usage| usage.value.key_cert_sign()))
}

/// Whether the keyUsage of one between a client and an authority lets it sign certificates; webpki does not look.
pub(crate) fn may_be_between(der: &CertificateDer<'_>) -> bool {
    parse_x509_certificate(der).is_ok_and(|(_, parsed)| may_sign(&parsed))
}

/// What is doubtful about the certificates of `client_ca`, in words that follow its name, with the remedy.
pub fn doubts(client_ca: &Pem, now: i64) -> Vec<String> {
    let mut doubts = Vec::new();
    let mut more = 0usize;
    let all = CertificateDer::pem_slice_iter(client_ca.0.as_bytes()).filter_map(Result::ok);
    for (der, number) in all.zip(1usize..) {
        let Ok((_, parsed)) = parse_x509_certificate(&der) else { continue };
        let Some(doubt) = doubt(&parsed, now) else { continue };
        if doubts.len() == LISTED {
            more += 1;
            continue;
        }
        doubts.push(format!("certificate {number} ({}) {doubt}", distinguished_name::text(parsed.subject())));
    }
    if more > 0 {
        doubts.push(format!(
            "{more} more certificates are not valid now, or may not sign for clients; look at them with \
             `openssl x509 -noout -text`"
        ));
    }
    doubts
}

fn doubt(parsed: &X509Certificate<'_>, now: i64) -> Option<String> {
    let validity = parsed.validity();
    let text = |time: &ASN1Time| time.to_string();
    if validity.not_after.timestamp() < now {
        let ended = text(&validity.not_after);
        return Some(format!("has expired ({ended}), so it lets nobody in; renew it, or take it out"));
    }
    if validity.not_before.timestamp() > now {
        let begins = text(&validity.not_before);
        return Some(format!(
            "is not valid yet, but from {begins}, so it lets nobody in before; is this machine's clock right?"
        ));
    }
    why_not(parsed).map(|why| {
        format!(
            "{why}, so it lets in only the client that shows this very certificate; if others are meant, name the authority that signs theirs"
        )
    })
}
