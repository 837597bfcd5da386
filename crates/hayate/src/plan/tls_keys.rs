//! Keys of `[tls]` that do nothing without another one: whoever wrote them takes something for protected that is not.

use crate::{
    args::ServeArgs,
    config::{Tls, VerifyChoice},
};

/// The first of them, and why it does nothing, with the remedy. Those that say what holds anyway (`http3 = false`) are left alone.
pub(super) fn in_vain(file: &Tls, args: &ServeArgs, tls: bool) -> Option<(&'static str, &'static str)> {
    let authority = [
        ("acme_hosts", file.acme_hosts.is_some()),
        ("acme_directory", file.acme_directory.is_some()),
        ("acme_ca", file.acme_ca.is_some()),
        ("acme_challenge", file.acme_challenge.is_some()),
        ("acme_storage", file.acme_storage.is_some()),
        ("acme_profile", file.acme_profile.is_some()),
        ("acme_eab_kid", file.acme_eab_kid.is_some()),
        ("acme_eab_key", file.acme_eab_key.is_some()),
        ("on_demand", file.on_demand.is_some()),
        ("on_demand_ask", file.on_demand_ask.is_some()),
    ];
    let any = [
        ("hsts", file.hsts.is_some()),
        ("http3", file.http3 == Some(true)),
        ("client_ca", file.client_ca.is_some()),
        ("verify", file.verify.is_some_and(|verify| verify != VerifyChoice::Off)),
        ("min_version", file.min_version.is_some()),
        ("public_port", file.public_port.is_some()),
        ("redirect_http", file.redirect_http == Some(true)),
    ];
    let first = |keys: &[(&'static str, bool)]| keys.iter().find(|(_, given)| *given).map(|(key, _)| *key);
    if !tls {
        let key = first(&any).or_else(|| first(&authority))?;
        return Some((key, "there is no TLS without a certificate; set certificates or acme in [tls]"));
    }
    // A developer's --tls needs no authority, and may stand beside the file of the real server.
    if file.acme.is_none()
        && args.tls.is_empty()
        && let Some(key) = first(&authority)
    {
        let why = "no authority is asked for certificates without acme; set acme = \"admin@example.org\" (or \"on\"), or take this out";
        return Some((key, why));
    }
    (file.client_ca.is_some() && file.verify.is_none()).then_some((
        "client_ca",
        "no client is asked for a certificate without verify; write verify = \"required\" or \"optional\" (or \"off\", if nobody is to be)",
    ))
}

#[cfg(test)]
mod tests {
    use crate::plan::tests::{fixture, plan};

    #[test]
    fn what_is_for_tls_alone_wants_a_certificate() {
        let dir = fixture();
        for (key, line) in [
            ("hsts", "hsts = '1d'"),
            ("http3", "http3 = true"),
            ("client_ca", "client_ca = 'x.pem'"),
            ("public_port", "public_port = 443"),
            ("verify", "verify = 'required'"),
            ("min_version", "min_version = '1.3'"),
            ("redirect_http", "redirect_http = true"),
            ("acme_hosts", "acme_hosts = 'a.example'"),
            ("acme_directory", "acme_directory = 'letsencrypt-staging'"),
            ("acme_ca", "acme_ca = 'x.pem'"),
            ("acme_challenge", "acme_challenge = 'tls-alpn-01'"),
            ("acme_storage", "acme_storage = 'acme'"),
            ("acme_profile", "acme_profile = 'shortlived'"),
            ("acme_eab_kid", "acme_eab_kid = 'a'"),
            ("acme_eab_key", "acme_eab_key = 'x.key'"),
            ("on_demand", "on_demand = 'a.example'"),
            ("on_demand_ask", "on_demand_ask = 'http://127.0.0.1:8000/'"),
        ] {
            let said =
                plan(dir.path(), &format!("[tls]\n{line}\n[[app]]\nroot = 'site'\n"), |_| ()).unwrap_err();
            let want = format!(
                "hayate.toml:2: {key}: there is no TLS without a certificate; set certificates or acme"
            );
            assert!(said.to_string().starts_with(&want), "{said}");
        }
        let harmless = "redirect_http = false\nhttp3 = false\nverify = 'off'";
        assert!(plan(dir.path(), &format!("[tls]\n{harmless}\n[[app]]\nroot = 'site'\n"), |_| ()).is_ok());
    }
}
