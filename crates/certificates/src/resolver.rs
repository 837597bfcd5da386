//! Which certificate a client gets, by the name that it asks for. Replaced as a whole, while handshakes go on.
//!
//! The rule is nginx's: the name exactly, else the wildcard that covers it, else the default, which is the first of the configured
//! certificates. Of several for one name the first that the client can verify; ECDSA before RSA, since it costs a tenth.

use std::{collections::HashMap, sync::Arc};

use arc_swap::ArcSwap;
use rustls::{
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use tokio::sync::mpsc;

use crate::Certificate;

/// Bytes of ALPN for a validation of tls-alpn-01.
pub(crate) const ACME_TLS: &[u8] = b"acme-tls/1";
/// Names that may wait to be looked at on demand.
const WANTED: usize = 64;

#[derive(Debug, Default)]
struct Table {
    exact: HashMap<String, Vec<Certificate>>,
    /// By what follows `*.`.
    wildcard: HashMap<String, Vec<Certificate>>,
    default: Vec<Certificate>,
    /// Patterns of names that may be asked for on demand.
    on_demand: Vec<String>,
}

/// See the module.
#[derive(Debug)]
pub struct Resolver {
    table: ArcSwap<Table>,
    /// For validations of tls-alpn-01, by name.
    challenges: ArcSwap<HashMap<String, Arc<CertifiedKey>>>,
    wanted: mpsc::Sender<String>,
}

impl Resolver {
    /// Without any certificate. The other end hears of names that may be had on demand and were asked for.
    pub fn new() -> (Arc<Resolver>, mpsc::Receiver<String>) {
        let (wanted, hear) = mpsc::channel(WANTED);
        let (table, challenges) = (ArcSwap::default(), ArcSwap::default());
        (Arc::new(Resolver { table, challenges, wanted }), hear)
    }

    /// Replaces all certificates. The first is the default.
    pub fn set(&self, certificates: &[Certificate], on_demand: Vec<String>) {
        let mut table = Table { on_demand, ..Table::default() };
        for certificate in certificates {
            for name in certificate.names() {
                let (map, name) = match name.strip_prefix("*.") {
                    Some(parent) => (&mut table.wildcard, parent),
                    None => (&mut table.exact, &name[..]),
                };
                map.entry(name.to_owned()).or_default().push(certificate.clone());
            }
        }
        if let Some(first) = certificates.first() {
            // Its sibling of another kind of key is as good.
            let siblings = certificates.iter().filter(|other| other.names() == first.names());
            table.default = siblings.cloned().collect();
        }
        let lists = table.exact.values_mut().chain(table.wildcard.values_mut());
        lists.chain([&mut table.default]).for_each(|list| list.sort_by_key(|certificate| certificate.rsa));
        self.table.store(Arc::new(table));
    }

    pub(crate) fn set_challenges(&self, challenges: HashMap<String, Arc<CertifiedKey>>) {
        self.challenges.store(Arc::new(challenges));
    }

    /// Whether there is a certificate of this name, not counting the default.
    pub fn covers(&self, host: &str) -> bool {
        !self.table.load().find(host).is_empty()
    }
}

impl Table {
    fn find(&self, host: &str) -> &[Certificate] {
        let wildcard = || self.wildcard.get(host.split_once('.')?.1);
        self.exact.get(host).or_else(wildcard).map(Vec::as_slice).unwrap_or_default()
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().map(|name| name.trim_end_matches('.').to_ascii_lowercase());
        // Only the validation says this one protocol and no other (RFC 8737, 3).
        if hello
            .alpn()
            .is_some_and(|mut offered| offered.next() == Some(ACME_TLS) && offered.next().is_none())
        {
            return self.challenges.load().get(name.as_deref()?).cloned();
        }
        let table = self.table.load();
        let mut found = name.as_deref().map(|name| table.find(name)).unwrap_or_default();
        if found.is_empty() {
            if let Some(name) = name
                && table.on_demand.iter().any(|pattern| crate::matches(pattern, &name))
                && crate::is_name(&name)
            {
                // When too many wait already, its next visitor asks again.
                let _ = self.wanted.try_send(name);
                return None;
            }
            found = &table.default;
        }
        let schemes = hello.signature_schemes();
        let fit = |certificate: &&Certificate| certificate.key.key.choose_scheme(schemes).is_some();
        found.iter().find(fit).or(found.first()).map(|certificate| Arc::clone(&certificate.key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::self_signed;

    #[test]
    fn the_exact_name_then_the_wildcard_then_nothing() {
        let (resolver, _wanted) = Resolver::new();
        let certificate = |names: &[&str]| {
            self_signed(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap().0
        };
        let (first, second) = (certificate(&["a.example", "*.b.example"]), certificate(&["x.b.example"]));
        resolver.set(&[first.clone(), second.clone()], Vec::new());
        let table = resolver.table.load();
        let found = |host: &str| table.find(host).first().map(|found| found.names().to_vec());
        assert_eq!(found("a.example"), Some(first.names().to_vec()));
        assert_eq!(found("y.b.example"), Some(first.names().to_vec()));
        assert_eq!(found("x.b.example"), Some(second.names().to_vec()));
        assert_eq!(found("b.example"), None);
        assert_eq!(found("z.y.b.example"), None);
        assert_eq!(table.default.len(), 1);
        assert!(resolver.covers("a.example") && !resolver.covers("c.example"));
    }
}
