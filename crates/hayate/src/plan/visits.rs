//! The requests that the host makes by itself before there are visitors: warm-up, and those that show what it has left behind.
//!
//! They carry the site's own address, as far as it is known here, and go to the script that the front would choose: an application
//! that keeps the address of its first request must not keep a wrong one. What is not known (a host, the port or the scheme in front
//! of a proxy, a visitor's language and cookies) differs between warm-up and comparison, so that keeping it shows there.

use std::{path::PathBuf, sync::Arc};

use hayate_front::{
    Backend, Disk, Elsewhere, FileId, FileRules, ListenAddr, Place, Reader, Site, SiteMetrics,
    rules::{Around, HIDDEN_FILES, Hidden, Keeper, RuleSpec, Rules},
};
use hayate_pool::Visit;

use super::{App, Port};

/// Paths that no application has, made of words by which an answer that repeats them is known.
const MADE_UP: [&str; 2] = ["/hayate-comparison/kappa", "/hayate-comparison-omega?hayate=psi"];
/// Warm-up paths of which this many are compared at most.
const COMPARED: usize = 3;

/// How visitors reach an application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// As in the Host header, with the port where it is not the scheme's own.
    pub authority: String,
    /// By TLS, which a proxy in front speaks.
    pub https: bool,
    /// The port that visitors use.
    pub port: u16,
}

impl Address {
    fn new(host: &str, https: bool, port: u16) -> Address {
        let own = if https { 443 } else { 80 };
        let authority = if port == own { host.to_owned() } else { format!("{host}:{port}") };
        Address { authority, https, port }
    }
}

impl App {
    /// The user of its scripts, where those may be another than who reads its files. A site without scripts has nobody who makes links but
    /// whoever wrote its files.
    fn reader(&self) -> Option<Reader> {
        let scripts = self.identity.as_ref().filter(|_| !self.is_static)?;
        Reader::new(&self.spec.name, scripts.uid(), scripts.groups())
    }

    /// The application as the front sees it.
    pub fn site(
        &self,
        backend: Backend,
        place: Arc<Place>,
        metrics: Arc<SiteMetrics>,
        keeper: &Keeper,
    ) -> Site {
        let files = Arc::new(FileRules {
            charset: self.charset.clone(),
            denied: self.deny.clone(),
            private: self.private.iter().map(|(device, inode)| FileId::new(*device, *inode)).collect(),
            private_paths: self.private_paths.clone(),
            hidden: self.hidden(),
            reader: self.reader(),
            elsewhere: Elsewhere::default(),
        });
        let around = Around {
            app: &self.spec.name,
            path: &self.path,
            place: &place,
            files: &files,
            index: &self.index,
            front_controller: self.front_controller.script.as_deref(),
        };
        // They were checked with the plan.
        let rules = Rules::new(&self.rules, &around, keeper).unwrap_or_else(|fault| {
            tracing::error!(
                app = self.spec.name,
                rule = fault.rule + 1,
                "all requests get 503: {}: {}",
                fault.key,
                fault.message
            );
            Some(Rules::closed())
        });
        let rules = if self.failed.is_some() { Some(Rules::closed()) } else { rules };
        let roots =
            self.sendfile_roots.as_ref().map(|roots| roots.iter().map(|root| place.beside(root)).collect());
        Site {
            name: self.spec.name.clone(),
            hosts: self.hosts.iter().filter_map(|host| hayate_front::HostPattern::parse(host).ok()).collect(),
            path: self.path.clone(),
            place,
            index: self.index.clone(),
            front_controller: self.front_controller.script.clone(),
            sendfile_roots: roots,
            files,
            compression: self.compression.clone(),
            backend,
            beside: None,
            metrics,
            found: Default::default(),
            rules,
            error_pages: self.error_pages(),
            // Opened by the server.
            access_log: None,
        }
    }

    /// Paths of the document root of which no file is sent to anybody, by `deny` or by a rule.
    pub fn closed(&self) -> Vec<String> {
        let for_all = |rule: &&RuleSpec| {
            let by_path_alone = rule.glob.is_empty() && rule.regex.is_empty() && rule.method.is_empty();
            let of_anybody = rule.header.is_empty() && rule.address.is_empty();
            by_path_alone
                && of_anybody
                && (rule.deny.is_some()
                    || rule.rewrite.is_some()
                    || rule.redirect.is_some()
                    || rule.respond.is_some())
        };
        let by_rules = self.rules.iter().filter(for_all).flat_map(|rule| &rule.path);
        self.deny.iter().chain(by_rules).filter(|path| *path != "/").cloned().collect()
    }

    /// What rules that keep some visitors out are for: paths and patterns, `/` for one that is for all.
    pub fn kept_out_of(&self) -> Vec<String> {
        let keeps_out = |rule: &&RuleSpec| {
            rule.deny.is_some()
                || rule.allow.is_some()
                || rule.basic_auth.is_some()
                || rule.redirect.is_some()
                || rule.respond.is_some()
        };
        let of_rule = |rule: &RuleSpec| {
            let of: Vec<String> =
                [&rule.path, &rule.glob, &rule.regex].into_iter().flatten().cloned().collect();
            if of.is_empty() { vec!["/".into()] } else { of }
        };
        self.deny.iter().cloned().chain(self.rules.iter().filter(keeps_out).flat_map(of_rule)).collect()
    }

    /// Names of files that are not for visitors. They were checked with the plan.
    pub fn hidden(&self) -> Hidden {
        Hidden::new(&self.hidden_files).or_else(|_| Hidden::new(&HIDDEN_FILES)).unwrap_or_default()
    }

    /// The path of a URL of the application: `/` is its front page.
    pub fn target(&self, path: &str) -> String {
        if self.path == "/" { path.to_owned() } else { format!("{}{path}", self.path) }
    }

    /// The script that answers a URL of the application, as the front chooses it; `None`: a file does, or nothing.
    pub fn script(&self, url: &str) -> Option<PathBuf> {
        let place = Disk::without_threads().place(&self.spec.document_root);
        let site = self.site(Backend::Static, place, Arc::default(), &Keeper::default());
        Some(site.script(&self.target(url))?.file)
    }

    /// Where visitors come, as the configuration says: first the best guess, then another address that is as likely, if there is one.
    pub fn addresses(&self, listen: &[(ListenAddr, Port)], behind_proxy: bool) -> (Address, Option<Address>) {
        let names: Vec<String> = self
            .hosts
            .iter()
            .filter(|host| !host.starts_with("*."))
            .map(|host| host.to_ascii_lowercase())
            .collect();
        let below: Vec<&str> = self.hosts.iter().filter_map(|host| host.strip_prefix("*.")).collect();
        let first = match (names.first(), below.first()) {
            (Some(name), _) => name.clone(),
            (None, Some(below)) => format!("www.{below}"),
            (None, None) => "localhost".into(),
        };
        let second = match (names.get(1), below.first()) {
            (Some(name), _) => name.clone(),
            (None, Some(below)) => format!("hayate-comparison.{below}"),
            (None, None) if names.is_empty() => "hayate-comparison.test".into(),
            (None, None) => first.clone(),
        };
        // Where there is TLS visitors come by it.
        let find = |https: bool| {
            listen.iter().find_map(|(addr, port)| match addr {
                ListenAddr::Tcp(addr) if port.tls == https => Some(addr.port()),
                _ => None,
            })
        };
        let (secure, port) = (find(true), find(false));
        let (best, other) = if behind_proxy {
            // It speaks TLS to visitors, most likely, and its port is the scheme's own.
            (Address::new(&first, true, 443), Address::new(&second, false, 80))
        } else if let Some(secure) = secure {
            (Address::new(&first, true, secure), Address::new(&second, true, secure))
        } else {
            // A port may be forwarded to ours.
            (Address::new(&first, false, port.unwrap_or(80)), Address::new(&second, false, 80))
        };
        let other = (other != best).then_some(other);
        (best, other)
    }

    /// Fills in the requests that the host makes by itself.
    pub(super) fn fill_visits(&mut self, listen: &[(ListenAddr, Port)], behind_proxy: bool) {
        let (best, other) = self.addresses(listen, behind_proxy);
        let other = other.as_ref().unwrap_or(&best);
        let place = Disk::without_threads().place(&self.spec.document_root);
        let site = self.site(Backend::Static, place, Arc::default(), &Keeper::default());
        self.spec.warmup = self.warmup.iter().map(|path| self.visit(&site, path, &best)).collect();
        let mut compared: Vec<&str> = Vec::new();
        for path in &self.warmup {
            if compared.len() < COMPARED && !compared.contains(&&**path) {
                compared.push(path);
            }
        }
        // What runs the project's own front controller is compared with classic mode, warm-up requests or not.
        let runs = self.recognised.as_ref().is_some_and(|recognised| recognised.framework.run().is_some());
        if runs && compared.is_empty() {
            compared.push("/");
        }
        let Some(first) = compared.first().copied() else { return };
        let mut visits: Vec<Visit> = compared.iter().map(|path| self.visit(&site, path, &best)).collect();
        let by_another = |path| Visit { another_visitor: true, ..self.visit(&site, path, other) };
        visits.extend([by_another(first), self.visit(&site, MADE_UP[0], &best), by_another(MADE_UP[1])]);
        self.spec.compared = visits;
    }

    fn visit(&self, site: &Site, path: &str, address: &Address) -> Visit {
        let target = self.target(path);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (script, script_name, path_info) = match site.script(&target) {
            Some(script) => (script.file, text(&script.name), text(&script.path_info)),
            None => {
                let name = self.front_controller.script.as_deref().unwrap_or("index.php");
                (self.spec.document_root.join(name), self.target(&format!("/{name}")), String::new())
            }
        };
        let host = address.authority.clone();
        let Address { https, port, .. } = *address;
        Visit { target, host, https, port, script, script_name, path_info, another_visitor: false }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn addresses(hosts: &[&str], listen: &str, behind_proxy: bool) -> (String, Option<String>) {
        let mut app = crate::fallback::tests::app(Path::new("/nowhere"), "worker.php", None);
        app.hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
        let url = |address: Address| {
            format!("{}://{}", if address.https { "https" } else { "http" }, address.authority)
        };
        let (best, other) = app.addresses(&[(listen.parse().unwrap(), Port::default())], behind_proxy);
        (url(best), other.map(url))
    }

    #[test]
    fn what_is_not_known_differs_in_the_comparison() {
        let some = |best: &str, other: &str| (best.to_owned(), Some(other.to_owned()));
        let local = "127.0.0.1:8080";
        assert_eq!(addresses(&["shop.test"], ":80", false), ("http://shop.test".into(), None));
        assert_eq!(
            addresses(&["Shop.test"], local, false),
            some("http://shop.test:8080", "http://shop.test")
        );
        assert_eq!(addresses(&["shop.test"], local, true), some("https://shop.test", "http://shop.test"));
        assert_eq!(
            addresses(&["*.shop.test", "a.test"], local, false),
            some("http://a.test:8080", "http://hayate-comparison.shop.test")
        );
        assert_eq!(
            addresses(&["*.shop.test"], ":80", false),
            some("http://www.shop.test", "http://hayate-comparison.shop.test")
        );
        assert_eq!(addresses(&["a.test", "b.test"], ":80", false), some("http://a.test", "http://b.test"));
        assert_eq!(
            addresses(&[], local, false),
            some("http://localhost:8080", "http://hayate-comparison.test")
        );
        assert_eq!(
            addresses(&[], "unix:/run/x", false),
            some("http://localhost", "http://hayate-comparison.test")
        );
    }
}
