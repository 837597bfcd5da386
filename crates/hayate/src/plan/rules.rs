//! `[[app.rule]]` and `hidden_files`: the files that they name are found and read here, everything else is checked by the front's own code.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use hayate_front::rules::{AuthSpec, HIDDEN_FILES, HeadersSpec, Hidden, RateBy, RateSpec, RuleSpec};
use ipnet::IpNet;

use super::{ALWAYS, app::AppResolver};
use crate::{
    config::{self, ConfigError, OneOrMany, Step, Time},
    of_application,
};

/// Bytes of a file with users.
const USERS: u64 = 1 << 20;

impl AppResolver<'_> {
    /// An error about a key of the rule that is the `rule`th in the file.
    pub(super) fn in_rule(&self, rule: usize, key: &str, why: &str) -> ConfigError {
        let steps = [Step::Key("app"), Step::At(self.i), Step::Key("rule"), Step::At(rule), Step::Key(key)];
        let number = rule.saturating_add(1);
        // Of the whole rule.
        let of = if key == "rule" { String::new() } else { format!("{key}: ") };
        self.source.error(&steps, format!("rule {number}: {of}{why}"))
    }

    pub(super) fn hidden_files(&self, given: Option<OneOrMany>) -> Result<Vec<String>, ConfigError> {
        let given = given.map_or_else(|| vec!["default".into()], OneOrMany::into_vec);
        let each = given.into_iter().flat_map(|name| match &*name {
            "default" => HIDDEN_FILES.map(String::from).to_vec(),
            _ => vec![name],
        });
        let all: Vec<String> = each.collect();
        Hidden::new(&all).map_err(|why| self.error("hidden_files", format!("hidden_files: {why}")))?;
        Ok(all)
    }

    /// The rules, and files of theirs that are never sent.
    pub(super) fn rules(
        &self,
        rules: &[config::Rule],
        private: &[PathBuf],
    ) -> Result<(Vec<RuleSpec>, Vec<PathBuf>), ConfigError> {
        let mut files = Vec::new();
        let each = rules.iter().enumerate().map(|(i, rule)| {
            let rule = rule.clone();
            let wrong = |key: &'static str| move |why: String| self.in_rule(i, key, &why);
            let list = |list: Option<OneOrMany>| list.map(OneOrMany::into_vec).unwrap_or_default();
            let basic_auth = rule.basic_auth.map(|auth| {
                let path = self.beside_file(&auth.users);
                let users = read(&path).map_err(|why| self.in_rule(i, "basic_auth", &why).of_disk())?;
                files.push(path);
                Ok(AuthSpec { realm: auth.realm.unwrap_or_else(|| "restricted".into()), users })
            });
            let alias = rule.alias.map(|directory| {
                let given = self.beside_file(&directory);
                let found = given.canonicalize().ok().filter(|found| found.is_dir());
                let found = found.ok_or_else(|| {
                    self.in_rule(
                        i,
                        "alias",
                        &format!(
                            "{} is no directory that can be used; write that of the files",
                            given.display()
                        ),
                    )
                    .of_disk()
                })?;
                self.may_be_published("alias", &found, private)?;
                Ok(found)
            });
            Ok(RuleSpec {
                path: list(rule.path),
                glob: list(rule.glob),
                regex: list(rule.regex),
                method: list(rule.method),
                header: rule.header.into_iter().collect(),
                address: networks(list(rule.address)).map_err(wrong("address"))?,
                allow: rule
                    .allow
                    .map(|list| networks(list.into_vec()))
                    .transpose()
                    .map_err(wrong("allow"))?,
                rate: rule.rate.map(rate).transpose().map_err(wrong("rate"))?,
                basic_auth: basic_auth.transpose()?,
                max_body: rule.max_body.map(|size| size.0),
                timeout: rule.timeout.map(|Time(time)| time.unwrap_or(ALWAYS)),
                headers: HeadersSpec {
                    set: rule.headers.set.into_iter().collect(),
                    add: rule.headers.add.into_iter().collect(),
                    remove: list(rule.headers.remove),
                },
                cache_control: rule.cache_control,
                rewrite: rule.rewrite,
                redirect: rule.redirect,
                respond: rule.respond,
                status: rule.status,
                deny: rule.deny.map(|config::Refusal(status)| status),
                alias: alias.transpose()?,
                stop: rule.stop,
            })
        });
        let rules = each.collect::<Result<Vec<_>, ConfigError>>()?;
        Ok((rules, files))
    }
}

fn networks(list: Vec<String>) -> Result<Vec<IpNet>, String> {
    let one = |text: String| {
        network(&text)
            .ok_or_else(|| format!("'{text}' is no network; write 10.0.0.0/8, 192.0.2.1 or 2001:db8::/32"))
    };
    list.into_iter().map(one).collect()
}

/// A network, or an address as one. Clients of IPv4 are known by their own addresses, so one that is written `::ffff:10.0.0.0/104` is
/// `10.0.0.0/8`.
pub(super) fn network(text: &str) -> Option<IpNet> {
    let network = text.parse().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))?;
    let mapped = match network {
        IpNet::V6(net) => net.addr().to_ipv4_mapped().zip(net.prefix_len().checked_sub(MAPPED)),
        IpNet::V4(_) => None,
    };
    mapped.map_or(Some(network), |(addr, bits)| IpNet::new(addr.into(), bits).ok())
}

/// Bits before an address of IPv4 in one of IPv6 (RFC 4291, 2.5.5.2).
const MAPPED: u8 = 96;

fn rate(rate: config::Rate) -> Result<RateSpec, String> {
    let by = match rate.by.as_deref() {
        None | Some("address") => RateBy::Address,
        Some("path") => RateBy::Path,
        Some("all") => RateBy::All,
        Some(other) => match other.strip_prefix("header:").map(str::trim) {
            Some(name)
                if !name.is_empty() && hyper::header::HeaderName::from_bytes(name.as_bytes()).is_err() =>
            {
                return Err(format!("by: '{name}' is no name of a header, so nobody sends it"));
            }
            Some(name) if !name.is_empty() => RateBy::Header(name.to_ascii_lowercase()),
            _ => return Err(format!("by: '{other}' is none of address, path, all and header:NAME")),
        },
    };
    let per = match rate.per {
        None => Duration::from_secs(1),
        Some(Time(Some(per))) => per,
        Some(Time(None)) => return Err("per: it has to be a time; write 1s".into()),
    };
    Ok(RateSpec { requests: rate.requests, per, burst: rate.burst.unwrap_or(rate.requests), by })
}

fn read(path: &Path) -> Result<String, String> {
    of_application::read_text(path, USERS)
        .map_err(|error| format!("users: cannot use the file {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use crate::{args::ServeArgs, plan::Plan};

    fn plan(rules: &str) -> Result<Plan, String> {
        let dir = tempfile::tempdir().unwrap();
        for made in ["site", "files"] {
            fs::create_dir(dir.path().join(made)).unwrap();
        }
        fs::write(dir.path().join("host"), "").unwrap();
        fs::set_permissions(dir.path().join("host"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(
            dir.path().join("users"),
            "anna:$2y$04$zKvuQyLoJkufXBLEEw2tHuDAXemS4DBB5AHAQ5D33cEVu/WXXZqvy\n",
        )
        .unwrap();
        fs::write(dir.path().join("bad"), "anna:secret\n").unwrap();
        let file = dir.path().join("hayate.toml");
        let php = dir.path().join("host");
        fs::write(&file, format!("[[app]]\nroot = 'site'\nphp = '{}'\n{rules}", php.display())).unwrap();
        let args = ServeArgs { config: Some(file), ..ServeArgs::default() };
        let said = Plan::load(&args).map_err(|error| error.to_string());
        said.map_err(|said| said.replace(&format!("{}/", dir.path().display()), ""))
    }

    #[test]
    fn networks_of_ipv4_are_the_same_however_they_are_written() {
        for (text, want) in [
            ("10.0.0.0/8", Some("10.0.0.0/8")),
            ("::ffff:10.0.0.0/104", Some("10.0.0.0/8")),
            ("::ffff:127.0.0.1", Some("127.0.0.1/32")),
            ("::ffff:0:0/96", Some("0.0.0.0/0")),
            ("2001:db8::/32", Some("2001:db8::/32")),
            ("::/0", Some("::/0")),
            ("10.0.0.0/33", None),
            ("x", None),
        ] {
            assert_eq!(super::network(text).map(|net| net.to_string()).as_deref(), want, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_names_line_rule_and_remedy() {
        for (text, want) in [
            ("path = 'admin'\ndeny = 403", "hayate.toml:5: rule 1: path: 'admin' is no path prefix"),
            (
                "path = '/a/*'\ndeny = 403",
                "hayate.toml:5: rule 1: path: '/a/*' has a star in it, and path is a prefix; write glob",
            ),
            (
                "rate = { requests = 1, by = 'header:a b' }",
                "hayate.toml:5: rule 1: rate: by: 'a b' is no name of a header",
            ),
            ("glob = 'x'\ndeny = 403", "hayate.toml:5: rule 1: glob: 'x': it is for a whole path"),
            (
                "regex = '('\ndeny = 403",
                "hayate.toml:5: rule 1: regex: '(': it is no regular expression: unclosed group",
            ),
            (
                "regex = '(?:a{1000}){1000}'\ndeny = 403",
                "rule 1: regex: '(?:a{1000}){1000}': it is too large",
            ),
            (
                "method = 'get'\ndeny = 403",
                "hayate.toml:5: rule 1: method: 'get' is no method; write such as GET",
            ),
            ("header = { 'a b' = 'x' }\ndeny = 403", "hayate.toml:5: rule 1: header: 'a b' is no name"),
            (
                "address = '10.0.0.0/33'\ndeny = 403",
                "hayate.toml:5: rule 1: address: '10.0.0.0/33' is no network",
            ),
            ("allow = ['x']", "hayate.toml:5: rule 1: allow: 'x' is no network"),
            ("deny = 200", "hayate.toml:5: rule 1: deny: 200 refuses nothing"),
            (
                "deny = 403\nredirect = '/x'",
                "rule 1: deny: a rule does one of redirect, rewrite, deny, alias and respond",
            ),
            ("redirect = 'x'", "hayate.toml:5: rule 1: redirect: 'x' is no target"),
            (
                "redirect = '/$1'",
                "hayate.toml:5: rule 1: redirect: '/$1': $1 is none of $path, $host, $request_uri and the groups",
            ),
            ("redirect = '/x'\nstatus = 200", "hayate.toml:6: rule 1: status: 200 is no redirect"),
            ("status = 404", "hayate.toml:5: rule 1: status: it belongs to redirect and to respond"),
            (
                "respond = ''\nstatus = 301",
                "hayate.toml:6: rule 1: status: 301 is no status of a whole answer",
            ),
            ("respond = 'x'\nstatus = 204", "hayate.toml:5: rule 1: respond: an answer with 204 has no body"),
            ("respond = 'x'\ndeny = 403", "hayate.toml:5: rule 1: respond: a rule does one of redirect"),
            ("rewrite = 'https://a/b'", "hayate.toml:5: rule 1: rewrite: 'https://a/b' is no target"),
            ("path = '/f'\nalias = 'nowhere'", "hayate.toml:6: rule 1: alias: nowhere is no directory"),
            ("path = '/f'\nalias = '/etc'", "/etc "),
            ("glob = '/f/*'\nalias = 'files'", "hayate.toml:6: rule 1: alias: it needs one path"),
            ("rate = { requests = 0 }", "hayate.toml:5: rule 1: rate: requests is 1 to 1000000"),
            ("rate = { requests = 1, by = 'name' }", "hayate.toml:5: rule 1: rate: by: 'name' is none of"),
            ("rate = { requests = 1, per = 'off' }", "hayate.toml:5: rule 1: rate: per: it has to be a time"),
            ("rate = { request = 1 }", "request"),
            (
                "basic_auth = { users = 'nobody' }",
                "hayate.toml:5: rule 1: basic_auth: users: cannot use the file nobody",
            ),
            (
                "basic_auth = { users = 'bad' }",
                "hayate.toml:5: rule 1: basic_auth: users: line 1: what 'anna' has is no bcrypt hash",
            ),
            ("basic_auth = { users = 'users', realm = 'a\"b' }", "rule 1: basic_auth: realm: "),
            (
                "headers = { set = { Content-Length = '1' } }",
                "hayate.toml:5: rule 1: headers: Content-Length is written by the server",
            ),
            (
                "headers = { set = { X = \"a\\nb\" } }",
                "hayate.toml:5: rule 1: headers: X: the value has control characters",
            ),
            ("cache_control = ''", "hayate.toml:5: rule 1: cache_control: '' is no value"),
            (
                "cache_control = '30d'",
                "hayate.toml:5: rule 1: cache_control: '30d' is no directive of a cache; write max-age",
            ),
            ("cache_control = 'public, 3600'", "rule 1: cache_control: 'public, 3600' is no directive"),
            (
                "header = { user_agent = 'x' }\ndeny = 403",
                "rule 1: header: user_agent: headers with an underscore in their name are dropped; write user-agent",
            ),
            (
                "redirect = '/x$request_uri'",
                "rule 1: redirect: '/x$request_uri': $request_uri is path and query of a redirect",
            ),
            ("rate = '5r/s'", "expected a table such as { requests = 5"),
            ("basic_auth = 'users'", "expected a table such as { users = \"staff.htpasswd\" }"),
            ("headers = { set = 'x' }", "expected a map"),
            (
                "deny = 'all'",
                "expected a status such as 403; networks that are kept out are the rule's address",
            ),
            ("deny = ['10.0.0.0/8']", "expected a status such as 403"),
            ("max_body = -1", "expected a size: \"128M\", or a whole number of bytes from 0 on"),
            ("timeout = true", "expected a length of time: \"30s\""),
            ("location = '/x'", "[[app.rule]] says for which paths it is by path, glob or regex"),
            ("path = '/x'", "hayate.toml:4: rule 1: it says when, and not what"),
            ("pth = '/x'", "hayate.toml:5: unknown key 'pth' in [[app.rule]]; did you mean 'path'?"),
        ] {
            let said = plan(&format!("[[app.rule]]\n{text}\n")).unwrap_err();
            assert!(said.contains(want), "{text}: {said}");
            assert!(!said.contains("secret"), "{said}");
        }
        let second = plan("[[app.rule]]\ndeny = 403\n[[app.rule]]\ndeny = 1\n").unwrap_err();
        assert!(second.starts_with("hayate.toml:7: rule 2: deny: 1 refuses nothing"), "{second}");
        assert!(
            plan("hidden_files = ['a/b']\n")
                .unwrap_err()
                .starts_with("hayate.toml:4: hidden_files: 'a/b' is no pattern")
        );
    }

    #[test]
    fn rules_reach_the_front_as_they_stand_in_the_file() {
        let text = "hidden_files = ['default', '*.secret']\n[[app.rule]]\npath = '/f'\nalias = 'files'\ntimeout = 'off'\nmax_body = '1G'\n\
                    [[app.rule]]\nbasic_auth = { users = 'users' }\nrate = { requests = 3, by = 'header:X-Key' }\nallow = '::1'\n";
        let app = plan(text).unwrap().apps.remove(0);
        assert!(app.hidden_files.contains(&"*.sql".into()) && app.hidden_files.contains(&"*.secret".into()));
        let [first, second] = &app.rules[..] else { panic!("two rules") };
        assert_eq!(first.max_body, Some(1 << 30));
        assert!(
            first.alias.as_ref().is_some_and(|alias| alias.ends_with("files")) && first.timeout.is_some()
        );
        let rate = second.rate.as_ref().unwrap();
        assert_eq!((rate.requests, rate.burst), (3, 3));
        assert_eq!(rate.by, hayate_front::rules::RateBy::Header("x-key".into()));
        assert_eq!(second.allow, Some(vec!["::1/128".parse().unwrap()]));
        let auth = second.basic_auth.as_ref().unwrap();
        assert!(auth.users.starts_with("anna:") && auth.realm == "restricted");
        // The configuration, and the users.
        assert_eq!(app.private.len(), 2);
        let sent = serde_json::to_string(&app.rules).unwrap();
        assert_eq!(serde_json::from_str::<Vec<hayate_front::rules::RuleSpec>>(&sent).unwrap(), app.rules);
        assert_eq!(plan("").unwrap().apps[0].hidden_files.len(), hayate_front::rules::HIDDEN_FILES.len());
        assert!(plan("hidden_files = []\n").unwrap().apps[0].hidden_files.is_empty());
    }
}
