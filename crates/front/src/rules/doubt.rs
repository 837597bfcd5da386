//! What is right as a rule and cannot be meant so: conditions that no request fulfils, or none that was thought of, and redirects that lead
//! to themselves. `hayate check` and the log warn of it. It promises to be quick, and rather to say nothing than to doubt what may be meant.

use super::{condition::Condition, pattern, spec::RuleSpec};
use crate::route;

/// What there is to say of a site's rules, which are right. `prefix`: its path, "/" or like "/blog"; `hosts`: its names, as they are written.
pub fn doubts(rules: &[RuleSpec], prefix: &str, hosts: &[String]) -> Vec<String> {
    let mut all = Vec::new();
    for (i, rule) in rules.iter().enumerate() {
        let mut say = |key: &str, why: String| {
            all.push(format!("rule {}: {key}: {why}", i.saturating_add(1)));
        };
        let of_paths = rule.path.iter().filter_map(|text| Some(("path", outside(text, prefix, text)?)));
        of_paths.for_each(|(key, why)| say(key, why));
        for text in &rule.glob {
            if let Some(why) = of_glob(text).or_else(|| outside(text, prefix, text)) {
                say("glob", why);
            }
        }
        for text in &rule.regex {
            if let Some(why) = of_regex(text, text).or_else(|| outside_regex(text, prefix)) {
                say("regex", why);
            }
        }
        for (name, value) in rule.header.iter().filter(|(name, _)| name.eq_ignore_ascii_case("host")) {
            // An address of IPv6 has colons.
            let of_ipv6 = value.contains("\\[") || value.contains("::");
            if !of_ipv6 && !pattern::may_find(value, b"", |b| b != b':') {
                say(
                    "header",
                    format!("{name}: '{value}': a host is compared without scheme and port; leave them out"),
                );
            }
        }
        if let Some(text) =
            rule.redirect.as_deref().filter(|text| leads_back(rule, text, rules.get(..i), prefix, hosts))
        {
            say(
                "redirect",
                format!(
                    "'{text}' leads to a path that the rule is for as well, so browsers are sent there again and again: write a rule with \
                     stop = true for that path before this one"
                ),
            );
        }
    }
    all
}

fn of_glob(text: &str) -> Option<String> {
    if let Some(better) = whole_stars(text) {
        return Some(format!(
            "'{text}': two stars are for any number of directories only as a part of their own, here they stay within one; write {better}"
        ));
    }
    let query = text.split_once('?').and_then(|(_, rest)| rest.split_once('='));
    if query.is_some_and(|(name, _)| !name.is_empty() && !name.contains('/')) {
        return Some(format!(
            "'{text}': a question mark stands for any one character, and a query is no part of the path; leave it out"
        ));
    }
    of_regex(text, &pattern::glob(text).ok()?)
}

/// How a glob is written whose double stars are parts of their own, if they are none.
fn whole_stars(text: &str) -> Option<String> {
    let (before, after) = text.split_once("**")?;
    let begins = before.ends_with(['/', '{', ',', '\\']);
    let ends = after.is_empty() || after.starts_with(['/', '}', ',']);
    if begins && ends {
        return None;
    }
    let start = if begins { before.to_owned() } else { format!("{before}*/") };
    Some(if ends { format!("{start}**{after}") } else { format!("{start}**/*{after}") })
}

/// `text`: as it is written.
fn of_regex(text: &str, regex: &str) -> Option<String> {
    let finds = |but: u8| pattern::may_find(regex, b"/", |b| b != but);
    if finds(0) {
        if !finds(b'?') {
            return Some(format!(
                "'{text}' wants a question mark, and a query is no part of the path; leave it out"
            ));
        }
        return (!finds(b'%') && has_escape(text)).then(|| {
            format!(
                "'{text}' wants a percent sign, and paths are compared decoded: %20 is a space here; write the character that is meant"
            )
        });
    }
    let remedy = match text.strip_prefix('^') {
        Some(rest) if rest.starts_with(|c: char| c.is_alphanumeric()) => format!("write ^/{rest}"),
        _ => "write it so, such as ^/admin".to_owned(),
    };
    Some(format!("'{text}' fits no path, since each begins with a slash; {remedy}"))
}

/// Whether there is a character as URLs have it.
fn has_escape(text: &str) -> bool {
    let is_hex = |b: Option<&u8>| b.is_some_and(u8::is_ascii_hexdigit);
    text.split('%').skip(1).any(|rest| is_hex(rest.as_bytes().first()) && is_hex(rest.as_bytes().get(1)))
}

/// Of a path, or a pattern for one, that begins with the site's own. `written`: as it is.
fn outside(text: &str, prefix: &str, written: &str) -> Option<String> {
    let rest = text.strip_prefix(prefix).filter(|_| prefix != "/")?;
    let inner = if rest.is_empty() { "/" } else { rest };
    inner.starts_with('/').then(|| {
        format!(
            "'{written}': paths are those inside of the application, without its {prefix}, so this one is for {prefix}{text}; write {inner}"
        )
    })
}

fn outside_regex(text: &str, prefix: &str) -> Option<String> {
    let (start, rest) = text.split_once('^').filter(|(start, _)| matches!(*start, "" | "(?i)"))?;
    let rest = rest.strip_prefix(&*regex::escape(prefix)).or_else(|| rest.strip_prefix(prefix));
    let rest = rest.filter(|_| prefix != "/")?;
    // What goes on, or ends there, may be a name inside.
    (rest.starts_with('/') || rest.starts_with("(/")).then(|| {
        format!(
            "'{text}': paths are those inside of the application, without its {prefix}; write {start}^{rest}"
        )
    })
}

/// Whether who follows a redirect is redirected again. `before`: the rules before it.
fn leads_back(
    rule: &RuleSpec,
    target: &str,
    before: Option<&[RuleSpec]>,
    prefix: &str,
    hosts: &[String],
) -> bool {
    // Whoever is asked for something else the next time may not be led back: who posts comes by GET.
    let again = rule.method.is_empty() || rule.method.iter().any(|method| method == "GET");
    if !again || !rule.header.is_empty() {
        return false;
    }
    let Some(path) = own_path(target, prefix, hosts) else { return false };
    let is_for = |rule: &RuleSpec| match &path {
        None => true,
        Some(path) => Condition::new(rule).is_ok_and(|when| when.is_for_path(path)),
    };
    let ends = |rule: &RuleSpec| {
        let leaves = rule.redirect.is_some() || rule.respond.is_some() || rule.deny.is_some();
        (leaves || rule.rewrite.is_some() || rule.stop) && is_for(rule)
    };
    is_for(rule) && !before.unwrap_or_default().iter().any(ends)
}

/// The path inside of the site that a redirect leads to: `Some(None)` is that which was asked for, `None` one that nobody knows, or that is
/// another site's.
fn own_path(target: &str, prefix: &str, hosts: &[String]) -> Option<Option<Vec<u8>>> {
    let other = ["https://", "http://"].iter().find_map(|scheme| target.strip_prefix(scheme));
    let path = match other {
        None => target,
        Some(rest) => {
            let end =
                rest.find("$path").into_iter().chain(rest.find("$request_uri")).chain(rest.find(['/', '?']));
            let (host, path) = rest.split_at_checked(end.min().unwrap_or(rest.len()))?;
            if host != "$host" && !hosts.iter().any(|own| own.eq_ignore_ascii_case(host)) {
                return None;
            }
            path
        }
    };
    let path = path.split('?').next().unwrap_or_default();
    if matches!(path, "$path" | "$request_uri") {
        return Some(None);
    }
    if path.contains('$') {
        return None;
    }
    // On another origin, though it be this one, it is a whole one.
    let path = match other {
        Some(_) if prefix != "/" => path.strip_prefix(prefix)?,
        _ => path,
    };
    let path = if path.is_empty() { "/" } else { path };
    Some(Some(route::normalise(path.as_bytes())?.into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(path: &str, glob: &str, regex: &str, redirect: &str) -> RuleSpec {
        let list = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty()).into_iter().collect();
        RuleSpec {
            path: list(path),
            glob: list(glob),
            regex: list(regex),
            redirect: Some(redirect.to_owned()).filter(|text| !text.is_empty()),
            ..RuleSpec::default()
        }
    }

    fn said(rules: &[RuleSpec], prefix: &str) -> String {
        doubts(rules, prefix, &["a.test".into(), "*.a.test".into()]).join("\n")
    }

    #[test]
    fn patterns_that_fit_no_path_are_doubted_and_no_others() {
        for (regex, want) in [
            ("^admin", "rule 1: regex: '^admin' fits no path, since each begins with a slash; write ^/admin"),
            ("^(admin|login)", "fits no path"),
            ("(?i)^wp-login", "fits no path"),
            ("^$", "fits no path"),
            ("^[^/]*$", "fits no path"),
            ("^/index\\.php\\?page=", "wants a question mark, and a query is no part of the path"),
            ("[?]page=1$", "wants a question mark"),
            ("^/a%20b", "wants a percent sign, and paths are compared decoded"),
            ("^/a(%20|%2F)b$", "wants a percent sign"),
            ("^/admin", ""),
            ("admin/?$", ""),
            ("^(/[^/]+)?(/wp-.*)", ""),
            ("^/?admin", ""),
            ("^.admin", ""),
            ("^[^?]*$", ""),
            ("^/x(\\?.*)?$", ""),
            ("^/100%$", ""),
            ("\\.php$", ""),
            ("(?i)\\.(?:bak|sql)$", ""),
            ("\\bphp\\b", ""),
            ("", ""),
        ] {
            let said = said(&[rule("", "", regex, "")], "/");
            assert!(said.contains(want) && said.is_empty() == want.is_empty(), "{regex}: {said}");
        }
        for (glob, want) in [
            (
                "/**.css",
                "two stars are for any number of directories only as a part of their own, here they stay within one; write /**/*.css",
            ),
            ("/a**/b", "write /a*/**/b"),
            ("/index.php?page=*", "a question mark stands for any one character, and a query is no part"),
            ("/a%20b/*", "wants a percent sign"),
            ("/**/*.{css,js}", ""),
            ("/a/**", ""),
            ("/{a/**,b}", ""),
            ("/a?c", ""),
        ] {
            let said = said(&[rule("", glob, "", "")], "/");
            assert!(said.contains(want) && said.is_empty() == want.is_empty(), "{glob}: {said}");
        }
    }

    #[test]
    fn a_host_is_compared_without_its_port() {
        for (value, want) in [
            ("www.shop.test:8080", "a host is compared without scheme and port"),
            ("^https://shop", "a host is compared without scheme and port"),
            ("^(?:www|shop)\\.", ""),
            ("shop(:[0-9]+)?$", ""),
            ("^\\[2001:db8::1\\]$", ""),
        ] {
            let rule = RuleSpec { header: vec![("Host".into(), value.into())], ..RuleSpec::default() };
            let said = said(&[rule], "/");
            assert!(said.contains(want) && said.is_empty() == want.is_empty(), "{value}: {said}");
        }
    }

    #[test]
    fn paths_are_those_inside_of_the_application() {
        let blog = |rule| said(&[rule], "/blog");
        let said = blog(rule("/blog/admin", "", "", ""));
        assert!(said.ends_with("so this one is for /blog/blog/admin; write /admin"), "{said}");
        assert!(blog(rule("/blog", "", "", "")).ends_with("for /blog/blog; write /"));
        assert!(blog(rule("", "/blog/*.php", "", "")).ends_with("write /*.php"));
        assert!(blog(rule("", "", "^/blog/(.*)$", "")).ends_with("without its /blog; write ^/(.*)$"));
        for fine in [rule("/blogs", "", "", ""), rule("/admin", "", "", ""), rule("", "", "^/blogs", "")] {
            assert_eq!(blog(fine), "");
        }
        assert_eq!(super::doubts(&[rule("/blog", "", "", "")], "/", &[]), [""; 0]);
    }

    #[test]
    fn redirects_to_themselves_are_doubted() {
        let loops = |rules: &[RuleSpec], prefix| said(rules, prefix).contains("again and again");
        for (path, regex, to, want) in [
            ("/x", "", "/x", true),
            ("/x", "", "/x/y?z=1", true),
            ("", "", "/x", true),
            ("", "", "https://$host$request_uri", true),
            ("/x", "", "https://a.test$path", true),
            ("", "", "https://A.test/x", true),
            ("", "^/x/(.*)$", "/x/y", true),
            ("/x", "", "/%78", true),
            ("", "", "https://www.a.test$request_uri", false),
            ("", "", "https://b.test$request_uri", false),
            ("/x", "", "/xy", false),
            ("", "^/x/(.*)$", "/x/$1/", false),
            ("", "^/x$", "/x/", false),
        ] {
            assert_eq!(loops(&[rule(path, "", regex, to)], "/"), want, "{path} {regex} {to}");
        }
        assert!(loops(&[rule("/x", "", "", "/x")], "/blog"));
        assert!(loops(&[rule("/x", "", "", "https://a.test/blog/x")], "/blog"));
        assert!(!loops(&[rule("/x", "", "", "https://a.test/x")], "/blog"));
        // What was redirected does not come here again.
        let stop = RuleSpec { stop: true, ..rule("/x", "", "", "") };
        assert!(!loops(&[stop.clone(), rule("", "", "", "/x")], "/"));
        assert!(loops(&[RuleSpec { path: vec!["/y".into()], ..stop }, rule("", "", "", "/x")], "/"));
        let by = |key: &str, value: &str| RuleSpec {
            header: vec![(key.into(), value.into())],
            ..rule("", "", "", "https://$host$request_uri")
        };
        assert!(!loops(&[by("x-forwarded-proto", "http")], "/"));
        let posts = RuleSpec { method: vec!["POST".into()], ..rule("/x", "", "", "/x") };
        assert!(!loops(&[posts], "/"));
    }
}
