//! PHP as root: said where only this machine is served, refused where others are. php-fpm refuses it everywhere.

use hayate_front::ListenAddr;

use super::Plan;
use crate::privileges::{self, Identity};

/// See [`Plan::runs_php_as_root`].
pub const PHP_AS_ROOT: &str =
    "PHP runs as root; set `user` (--user www-data) unless this is a container of its own";

impl Plan {
    /// Whether any application's PHP is root.
    pub fn runs_php_as_root(&self) -> bool {
        privileges::is_root()
            && self.with_php().any(|app| app.identity.as_ref().is_none_or(Identity::is_root))
    }

    /// Why it is not to be served: PHP would be root for others than this machine, and nobody has said that this is meant.
    pub fn serves_others_as_root(&self) -> Option<String> {
        let app = self.with_php().find(|app| app.identity.is_none())?;
        let address = exposed(&self.listen).filter(|_| privileges::is_root() && !self.development)?;
        Some(format!(
            "PHP of application '{}' would run as root for whoever reaches {address}: say whose it is, such as user = \"www-data\" \
             (--user www-data); in a container of its own user = \"root\" will do",
            app.spec.name
        ))
    }
}

/// The first address that other machines may reach.
fn exposed(listen: &[ListenAddr]) -> Option<&ListenAddr> {
    listen.iter().find(|addr| match addr {
        ListenAddr::Tcp(addr) | ListenAddr::Quic(addr) => !addr.ip().to_canonical().is_loopback(),
        ListenAddr::Unix(_) => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_and_sockets_are_this_machines() {
        let of = |text: &str| ListenAddr::Tcp(text.parse().unwrap());
        let own = [
            of("127.0.0.1:80"),
            of("127.1.2.3:80"),
            of("[::1]:80"),
            of("[::ffff:127.0.0.1]:80"),
            ListenAddr::Unix("/run/x".into()),
        ];
        assert_eq!(exposed(&own), None);
        for text in ["0.0.0.0:80", "[::]:80", "192.0.2.1:80", "10.0.0.1:80"] {
            assert_eq!(exposed(&[of("127.0.0.1:80"), of(text)]), Some(&of(text)));
        }
    }
}
