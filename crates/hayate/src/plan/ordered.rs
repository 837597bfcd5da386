//! Certificates that an authority is to be asked for: why that would come to nothing, as far as it can be told here. Nothing is asked of anybody.

use std::os::unix::fs::MetadataExt;

use hayate_certificates::{acme::Challenge, is_name};

use super::Plan;

/// No public authority gives a certificate for a name below these (RFC 6761, 6762, 7686, 8375, and ICANN's .internal).
const NOBODYS: [&str; 9] =
    ["localhost", "local", "internal", "test", "example", "invalid", "onion", "home.arpa", "lan"];
/// Directories of authorities that are looked at.
const MOST: usize = 64;

impl Plan {
    /// What is to be said of the certificates that are to be ordered; each with a remedy.
    pub fn doubts_about_orders(&self) -> Vec<String> {
        let Some(tls) = &self.tls else { return Vec::new() };
        let Some(authority) = &tls.authority else { return Vec::new() };
        let mut doubts = Vec::new();
        // A proxy may lead there what it is asked on its own port 80.
        if authority.challenge == Challenge::Http01 && self.ports.iter().all(|port| port.tls) {
            doubts.push(
                "the authority looks on port 80, by plain HTTP, and no address of listen speaks it: add \":80\", or set \
                 acme_challenge = \"tls-alpn-01\", for which it looks on port 443"
                    .to_owned(),
            );
        }
        let public = authority.directory.contains(".letsencrypt.org/");
        for host in &tls.hosts {
            let why = if !is_name(host) {
                "it is no name that an authority can be asked for"
            } else if public && !host.contains('.') {
                "a public authority gives none for a name without a dot"
            } else if public && host.contains('_') {
                "a public authority gives none for a name with an underscore"
            } else if public && NOBODYS.iter().any(|end| host.ends_with(&format!(".{end}"))) {
                "a public authority gives none for a name that is nobody's"
            } else {
                continue;
            };
            doubts.push(format!(
                "{host} gets no certificate: {why}; name it in no hosts, or leave it out of acme_hosts"
            ));
        }
        let user = self.front.as_ref().map(crate::privileges::Identity::uid).filter(|user| *user != 0);
        let stored = std::fs::read_dir(&authority.storage).into_iter().flatten().flatten().take(MOST);
        let strange = |path: &std::path::PathBuf| {
            let file = std::fs::symlink_metadata(path).ok();
            file.is_some_and(|file| file.is_dir() && user.is_some_and(|user| file.uid() != user))
        };
        if let Some((path, user)) = stored.map(|entry| entry.path()).find(strange).zip(user) {
            doubts.push(format!(
                "acme_storage: {} belongs to somebody else than the front's user, who keeps certificates there: chown -R {user} {0}",
                path.display()
            ));
        }
        doubts
    }
}
