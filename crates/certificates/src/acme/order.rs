//! One order: from a name to its certificate. Everything here waits for the network; the caller gives it an end.

use std::{collections::HashMap, io, sync::Arc, time::Duration};

use instant_acme::{
    Account, AccountCredentials, AuthorizationStatus, CertificateIdentifier, ChallengeType, Error,
    ExternalAccountKey, Identifier, NewAccount, NewOrder, OrderStatus, RetryPolicy,
};
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use rustls::{
    crypto::aws_lc_rs::sign::any_supported_type,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    sign::CertifiedKey,
};

use super::{Authority, Challenge, store::Store};
use crate::{Certificate, Resolver};

/// How long the authority may take to look, and to sign.
const PATIENCE: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(500))
    .backoff(1.5)
    .timeout(Duration::from_secs(90));

/// How often an account, or an order, is begun that the authority refuses for its nonces.
const ATTEMPTS: u32 = 4;

/// What to do where something cannot be kept.
pub(super) const STORAGE: &str =
    "acme_storage has to be a directory that the front's user may write to, with room on its disk";

/// Why an order came to nothing, and what to do.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) why: String,
    pub(super) remedy: &'static str,
    /// Not to be tried again before.
    pub(super) pause: Option<Duration>,
    /// The authority knew nothing of the number that was to keep a message from being played twice: a new attempt gets a new one.
    stale_nonce: bool,
    /// It knows nothing of the account.
    pub(super) account_is_gone: bool,
}

impl Trouble {
    /// Something that goes wrong elsewhere.
    pub(super) fn new(why: impl ToString, remedy: &'static str) -> Trouble {
        Trouble { why: why.to_string(), remedy, pause: None, stale_nonce: false, account_is_gone: false }
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        let kind = match &error {
            Error::Api(problem) => problem.r#type.as_deref().unwrap_or_default().rsplit(':').next(),
            _ => None,
        };
        let (remedy, pause) = match kind.unwrap_or_default() {
            "rateLimited" => (
                "the authority's limit is reached: wait, or try with its staging directory (acme_directory)",
                Some(Duration::from_secs(3600)),
            ),
            "externalAccountRequired" => {
                ("set acme_eab_kid and acme_eab_key from your account there", Some(Duration::from_secs(3600)))
            }
            "dns" => ("the name has no address that the authority can see: look at its DNS records", None),
            "connection" => (
                "the authority cannot reach this server: port 80 (http-01) or 443 (tls-alpn-01) must be open",
                None,
            ),
            "unauthorized" | "incorrectResponse" | "tls" => {
                ("another server answers for this name: look at its DNS records, IPv6 included", None)
            }
            // RFC 8555, 7.3.1; and 6.2 for a key that belongs to none.
            "accountDoesNotExist" => {
                ("the authority does not know the account: a new one is made, once in an hour at most", None)
            }
            "caa" => ("a CAA record of the domain forbids this authority", None),
            "rejectedIdentifier" => ("the authority gives no certificate for this name", None),
            "invalidContact" | "unsupportedContact" => {
                ("acme has to be a mail address that can be reached", None)
            }
            _ => match &error {
                Error::Api(_) => ("see the authority's words", None),
                Error::Timeout(_) => ("the authority takes too long", None),
                _ => (
                    "the authority cannot be reached, or is not to be trusted (acme_directory, acme_ca)",
                    None,
                ),
            },
        };
        let stale_nonce = kind.is_some_and(|kind| kind == "badNonce");
        let account_is_gone = kind.is_some_and(|kind| kind == "accountDoesNotExist");
        Trouble { why: words(&error), remedy, pause, stale_nonce, account_is_gone }
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Trouble {
        Trouble::new(error, STORAGE)
    }
}

fn ours(why: impl ToString) -> Trouble {
    Trouble::new(why, "this is a fault of the authority's answer or of Hayate")
}

/// An error with what it comes from, on one line.
fn words(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(deeper) = source {
        let more = deeper.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = deeper.source();
    }
    let mut text = text.replace(['\n', '\r'], " ");
    if let Some((at, _)) = text.char_indices().nth(500) {
        text.truncate(at);
    }
    text
}

/// Begins again what came to nothing for its nonces alone (RFC 8555, 6.5). instant-acme sends each message three times for that; an
/// authority of several servers, of which not all know the same nonces, may refuse all three.
pub(super) async fn with_fresh_nonces<T>(
    mut attempt: impl AsyncFnMut() -> Result<T, Trouble>,
) -> Result<T, Trouble> {
    for _ in 1..ATTEMPTS {
        match attempt().await {
            Err(trouble) if trouble.stale_nonce => {}
            outcome => return outcome,
        }
    }
    attempt().await
}

/// The account at an authority: the stored one, else a new one; and whether it is stored. `store` is locked for it by the caller.
pub(super) async fn account(authority: &Authority, store: &Store) -> Result<(Account, bool), Trouble> {
    let builder = || match &authority.root {
        Some(root) => Account::builder_with_root(store.keep_root(&root.0)?).map_err(Trouble::from),
        None => Account::builder().map_err(Trouble::from),
    };
    if let Some(credentials) = store.account::<AccountCredentials>() {
        return Ok((builder()?.from_credentials(credentials).await?, true));
    }
    // An authority makes ten for one address in three hours (Let's Encrypt), and counts those that nobody kept as well.
    store.has_room()?;
    let contact = authority.contact.as_ref().map(|mail| format!("mailto:{mail}"));
    let contact: Vec<&str> = contact.iter().map(String::as_str).collect();
    let new = NewAccount { contact: &contact, terms_of_service_agreed: true, only_return_existing: false };
    let external = authority.external.as_ref().map(|(id, key)| ExternalAccountKey::new(id.clone(), &key.0));
    let (account, credentials) =
        builder()?.create(&new, authority.directory.clone(), external.as_ref()).await?;
    tracing::info!(authority = authority.directory, "an account was made at the certificate authority");
    let kept = store.keep_account(&credentials).inspect_err(|error| {
        tracing::error!(
            "the account cannot be kept, and is used until this process ends: {error}; {STORAGE}"
        );
    });
    Ok((account, kept.is_ok()))
}

/// Where answers to challenges are shown; taken away when this goes.
struct Shown<'a> {
    store: &'a Store,
    resolver: &'a Resolver,
    tokens: Vec<String>,
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        self.tokens.iter().for_each(|token| self.store.forget_challenge(token));
        self.resolver.set_challenges(HashMap::new());
    }
}

/// Orders a certificate for a name; gives chain and key in PEM, which fit each other and the name.
pub(super) async fn order(
    account: &Account,
    authority: &Authority,
    store: &Store,
    resolver: &Resolver,
    name: &str,
    replaces: Option<CertificateIdentifier<'static>>,
) -> Result<(String, String), Trouble> {
    let identifiers = [Identifier::Dns(name.to_owned())];
    let new = || {
        let new = NewOrder::new(&identifiers);
        match &authority.profile {
            Some(profile) => new.profile(profile),
            None => new,
        }
    };
    let first = match replaces {
        Some(replaced) => account.new_order(&new().replaces(replaced)).await,
        None => account.new_order(&new()).await,
    };
    let mut order = match first {
        // The authority may know nothing of the one before, or have it replaced already (RFC 9773, 5).
        Err(Error::Unsupported(_)) => account.new_order(&new()).await?,
        Err(Error::Api(problem))
            if problem.r#type.as_deref().is_some_and(|kind| {
                kind.ends_with(":alreadyReplaced")
                    || kind.ends_with(":malformed")
                    || kind.ends_with(":conflict")
            }) =>
        {
            account.new_order(&new()).await?
        }
        order => order?,
    };
    let mut shown = Shown { store, resolver, tokens: Vec::new() };
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        match authorization.status {
            AuthorizationStatus::Valid => continue,
            AuthorizationStatus::Pending => {}
            status => return Err(ours(format!("an authorization that is {status:?} cannot be used"))),
        }
        let kind = match authority.challenge {
            Challenge::Http01 => ChallengeType::Http01,
            Challenge::TlsAlpn01 => ChallengeType::TlsAlpn01,
        };
        let Some(mut challenge) = authorization.challenge(kind) else {
            return Err(Trouble::new(
                "the authority does not offer this challenge",
                "choose another one (acme_challenge)",
            ));
        };
        let answer = challenge.key_authorization();
        match authority.challenge {
            Challenge::Http01 => {
                store.keep_challenge(&challenge.token, answer.as_str())?;
                shown.tokens.push(challenge.token.clone());
            }
            Challenge::TlsAlpn01 => {
                let certificate = for_validation(name, answer.digest().as_ref()).map_err(ours)?;
                resolver.set_challenges(HashMap::from([(name.to_owned(), Arc::new(certificate))]));
            }
        }
        challenge.set_ready().await?;
    }
    if order.poll_ready(&PATIENCE).await? != OrderStatus::Ready {
        return Err(refusal(&mut order).await);
    }
    drop(shown);
    let key = KeyPair::generate().map_err(ours)?;
    let mut params = CertificateParams::new(vec![name.to_owned()]).map_err(ours)?;
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(&key).map_err(ours)?;
    order.finalize_csr(request.der()).await?;
    // It is being issued: to begin again would be another certificate, of the few that an authority issues for one name.
    let issued = with_fresh_nonces(async || Ok(order.poll_certificate(&PATIENCE).await?)).await;
    let chain = issued.map_err(|trouble| Trouble { stale_nonce: false, ..trouble })?;
    let key = key.serialize_pem();
    let certificate = Certificate::from_pem(chain.as_bytes(), key.as_bytes()).map_err(ours)?;
    if !certificate.covers(name) {
        return Err(ours("the certificate is for another name"));
    }
    if certificate.remaining() <= 0 {
        return Err(Trouble::new(
            "the certificate that came has expired already, by this machine's clock",
            "see whether that is right (`date`)",
        ));
    }
    Ok((chain, key))
}

/// Why the authority did not find what it looked for, in its words.
async fn refusal(order: &mut instant_acme::Order) -> Trouble {
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let Ok(mut authorization) = authorization else { continue };
        if authorization.refresh().await.is_err() {
            continue;
        }
        if let Some(problem) = authorization.challenges.iter().find_map(|challenge| challenge.error.clone()) {
            return Error::Api(problem).into();
        }
    }
    ours("the order is invalid")
}

/// The certificate that a validation by tls-alpn-01 looks for (RFC 8737, 3).
fn for_validation(name: &str, digest: &[u8]) -> Result<CertifiedKey, String> {
    let made = || {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(vec![name.to_owned()])?;
        params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
        Ok::<_, rcgen::Error>((params.self_signed(&key)?.der().clone(), key))
    };
    let (certificate, key) = made().map_err(|error| error.to_string())?;
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let key = any_supported_type(&key).map_err(|error| error.to_string())?;
    Ok(CertifiedKey::new(vec![certificate], key))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use instant_acme::Problem;

    use super::*;

    fn refused(kind: &str) -> Trouble {
        let kind = format!("urn:ietf:params:acme:error:{kind}");
        let problem: Problem = serde_json::from_value(serde_json::json!({ "type": kind })).unwrap();
        Error::Api(problem).into()
    }

    #[tokio::test]
    async fn only_what_is_refused_for_its_nonces_is_begun_again_and_not_for_ever() {
        for (kind, good_after, attempts, ends_well) in
            [("badNonce", 2, 3, true), ("badNonce", 9, ATTEMPTS, false), ("rateLimited", 2, 1, false)]
        {
            let made = Cell::new(0);
            let outcome = with_fresh_nonces(async || {
                made.set(made.get() + 1);
                if made.get() > good_after { Ok(()) } else { Err(refused(kind)) }
            });
            assert_eq!((outcome.await.is_ok(), made.get()), (ends_well, attempts), "{kind}");
        }
    }
}
