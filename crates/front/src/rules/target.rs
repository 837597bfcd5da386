//! Where a rule sends a request: text with `$1`, `$name`, `$path` and the like in it.
//!
//! It promises that nothing of the visitor's decides about the host of a redirect, or puts a line into an answer: what comes from the path
//! is percent-encoded, and stands behind the first slash that the configuration wrote.

use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, percent_encode};
use regex::bytes::Captures;

use super::has_dots;
use crate::route::{self, ESCAPED};

/// What may stand in a query as it is, as a value.
const IN_QUERY: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// What stays as the visitor wrote it: all but what no URL has (RFC 3986, 2).
const RAW: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'<')
    .add(b'>')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// A target, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    /// Of another site: up to the path. Else it is a path of this one.
    origin: Vec<Piece>,
    path: Vec<Piece>,
    query: Query,
    /// In place of path and query: what was asked for, as the visitor wrote it. Only behind a host, so that it names none.
    as_asked: bool,
}

/// What stands for path and query as they were asked for. nginx's word for it.
const AS_ASKED: &str = "$request_uri";

#[derive(Debug, Clone, PartialEq, Eq)]
enum Query {
    /// The visitor's.
    Kept,
    /// This, and the visitor's behind it.
    Of(Vec<Piece>),
    /// This alone.
    Only(Vec<Piece>),
    /// None.
    Dropped,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(Vec<u8>),
    Number(usize),
    Name(String),
    /// The whole path.
    Path,
    /// The host that was asked for.
    Host,
}

/// What a target is filled in from.
pub(crate) struct Given<'a> {
    pub(crate) captures: Option<&'a Captures<'a>>,
    /// Normalised, of the application.
    pub(crate) path: &'a [u8],
    pub(crate) query: Option<&'a [u8]>,
    /// Path and query as they were asked for, before any rule.
    pub(crate) asked: (&'a [u8], Option<&'a [u8]>),
    pub(crate) host: &'a str,
    /// The site's, of which it is a path.
    pub(crate) prefix: &'a [u8],
}

impl Given<'_> {
    fn piece<'p>(&'p self, piece: &'p Piece) -> (&'p [u8], bool) {
        match piece {
            Piece::Text(text) => (text, true),
            Piece::Number(n) => {
                (self.captures.and_then(|found| found.get(*n)).map_or(b"", |m| m.as_bytes()), false)
            }
            Piece::Name(name) => {
                (self.captures.and_then(|found| found.name(name)).map_or(b"", |m| m.as_bytes()), false)
            }
            Piece::Path => (self.path, false),
            Piece::Host => (self.host.as_bytes(), true),
        }
    }

    fn encoded(&self, pieces: &[Piece], set: &'static AsciiSet) -> Vec<u8> {
        let mut out = Vec::new();
        for piece in pieces {
            match self.piece(piece) {
                (text, true) => out.extend_from_slice(text),
                (text, false) => out.extend(percent_encode(text, set).flat_map(str::bytes)),
            }
        }
        out
    }

    fn query(&self, query: &Query) -> Option<Vec<u8>> {
        let own = match query {
            Query::Dropped => return None,
            Query::Kept => return self.query.map(<[u8]>::to_vec),
            Query::Only(pieces) => return Some(self.encoded(pieces, IN_QUERY)),
            Query::Of(pieces) => self.encoded(pieces, IN_QUERY),
        };
        Some(match self.query.filter(|query| !query.is_empty()) {
            Some(query) => [&own, &b"&"[..], query].concat(),
            None => own,
        })
    }
}

impl Target {
    /// Reads one. `captures`: whether there is a group of that name or number in each expression that may have matched. `redirect`: it may
    /// be of another site.
    pub(crate) fn parse(
        text: &str,
        redirect: bool,
        captures: impl Fn(Result<usize, &str>) -> bool,
    ) -> Result<Target, String> {
        let what = if redirect {
            "a path, which begins with a slash, such as /new/$1, or a URL such as https://example.org$path"
        } else {
            "a path, which begins with a slash, such as /index.php?page=$1"
        };
        if text.bytes().any(|b| matches!(b, 0..=b' ' | b'#' | b'\\' | 0x7f)) {
            return Err(format!(
                "'{}' has a character that no target has: a space, a control character, # or \\; write {what}",
                text.escape_debug()
            ));
        }
        let scheme =
            ["https://", "http://"].iter().find_map(|scheme| Some((*scheme, text.strip_prefix(scheme)?)));
        let (origin, rest) = match scheme {
            Some((scheme, rest)) if redirect => {
                let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
                let end = ["$path", AS_ASKED].iter().filter_map(|word| rest.find(word)).fold(end, usize::min);
                let (host, rest) = rest.split_at_checked(end).unwrap_or((rest, ""));
                let origin = pieces(&format!("{scheme}{host}"), &captures)?;
                if host.is_empty()
                    || origin.iter().any(|piece| !matches!(piece, Piece::Text(_) | Piece::Host))
                {
                    return Err(format!(
                        "'{text}': its host must be written out, or be $host, or a visitor could choose it"
                    ));
                }
                (origin, rest)
            }
            _ => (Vec::new(), text),
        };
        if origin.is_empty() && !rest.starts_with('/') && rest != "$path" && !rest.starts_with("$path?") {
            return Err(format!("'{text}' is no target; write {what}"));
        }
        if rest.starts_with("//") {
            return Err(format!(
                "'{text}' begins with two slashes, behind which browsers look for a host; write one"
            ));
        }
        if rest == AS_ASKED && !origin.is_empty() {
            return Ok(Target { origin, path: Vec::new(), query: Query::Dropped, as_asked: true });
        }
        if rest.contains(AS_ASKED) {
            return Err(format!(
                "'{text}': {AS_ASKED} is path and query of a redirect, right behind its host; write https://$host{AS_ASKED}, and $path elsewhere"
            ));
        }
        let (path, query) = match rest.split_once('?') {
            None => (rest, Query::Kept),
            Some((path, "")) => (path, Query::Dropped),
            Some((path, query)) => match query.strip_suffix('?') {
                Some(only) => (path, Query::Only(pieces(only, &captures)?)),
                None => (path, Query::Of(pieces(query, &captures)?)),
            },
        };
        Ok(Target { origin, path: pieces(path, &captures)?, query, as_asked: false })
    }

    /// The value of Location.
    pub(crate) fn location(&self, given: &Given<'_>) -> Vec<u8> {
        if self.as_asked {
            let (path, query) = given.asked;
            let query = query.map(|query| [b"?", query].concat()).unwrap_or_default();
            // `*`, and what is no path, would be a part of the host.
            let slash: &[u8] = if path.starts_with(b"/") { b"" } else { b"/" };
            let path: Vec<u8> = percent_encode(path, RAW).flat_map(str::bytes).collect();
            let query: Vec<u8> = percent_encode(&query, RAW).flat_map(str::bytes).collect();
            return [&given.encoded(&self.origin, IN_QUERY)[..], slash, &path, &query].concat();
        }
        let whole = [given.prefix, given.path].concat();
        let (mut out, given) = match self.origin.is_empty() {
            true => (given.prefix.to_vec(), given),
            // On another site the prefix means nothing unless the path is the same.
            false => (given.encoded(&self.origin, IN_QUERY), &Given { path: &whole, ..*given }),
        };
        let path = given.encoded(&self.path, ESCAPED);
        if out.is_empty() {
            // "/" and "/evil.test" would make a host of what is a path.
            let slashes = path.iter().take_while(|b| **b == b'/').count();
            out.extend_from_slice(path.get(slashes.saturating_sub(1)..).unwrap_or_default());
        } else {
            out.extend_from_slice(&path);
        }
        if let Some(query) = given.query(&self.query) {
            out.push(b'?');
            out.extend_from_slice(&query);
        }
        out
    }

    /// Another path of the site and another query. `None`: it has `.` or `..` in it, which `^/f(.*)$` finds in `/f../x`: that would lead past
    /// the rules before this one.
    pub(crate) fn rewritten(&self, given: &Given<'_>) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
        let path = given.encoded(&self.path, ESCAPED);
        if has_dots(&path) {
            return None;
        }
        Some((route::normalise(&path)?.into_owned(), given.query(&self.query)))
    }
}

fn pieces(text: &str, captures: &impl Fn(Result<usize, &str>) -> bool) -> Result<Vec<Piece>, String> {
    let mut out = Vec::new();
    let mut parts = text.split('$');
    let mut plain = parts.next().unwrap_or_default().as_bytes().to_vec();
    let mut parts = parts.peekable();
    while let Some(part) = parts.next() {
        if part.is_empty() && parts.peek().is_some() {
            // Two of them are one that means nothing.
            plain.push(b'$');
            plain.extend_from_slice(parts.next().unwrap_or_default().as_bytes());
            continue;
        }
        let (name, rest) = match part.strip_prefix('{') {
            Some(inner) => inner.split_once('}').ok_or_else(|| format!("'{text}': ${{ has no }}"))?,
            None => {
                let digits = part.starts_with(|c: char| c.is_ascii_digit());
                let of_name =
                    |c: char| if digits { c.is_ascii_digit() } else { c.is_ascii_alphanumeric() || c == '_' };
                part.split_at(part.find(|c| !of_name(c)).unwrap_or(part.len()))
            }
        };
        let piece = match name {
            "path" => Piece::Path,
            "host" => Piece::Host,
            _ => match name.parse::<usize>() {
                Ok(n) if captures(Ok(n)) => Piece::Number(n),
                Err(_) if captures(Err(name)) => Piece::Name(name.to_owned()),
                _ => {
                    return Err(format!(
                        "'{text}': ${name} is none of $path, $host, {AS_ASKED} and the groups of this rule's regex; write $$ for a dollar"
                    ));
                }
            },
        };
        if !plain.is_empty() {
            out.push(Piece::Text(std::mem::take(&mut plain)));
        }
        out.push(piece);
        plain = rest.as_bytes().to_vec();
    }
    if !plain.is_empty() {
        out.push(Piece::Text(plain));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::pattern;

    fn parse(text: &str, redirect: bool) -> Result<Target, String> {
        Target::parse(text, redirect, |group| matches!(group, Ok(0..=1) | Err("name")))
    }

    fn location(text: &str, regex: &str, path: &str, query: Option<&str>, prefix: &str) -> String {
        let regex = pattern::regex(regex).unwrap();
        let found = regex.captures(path.as_bytes());
        let given = Given {
            captures: found.as_ref(),
            path: path.as_bytes(),
            query: query.map(str::as_bytes),
            asked: (b"/As//%41sked", Some(b"q=%zz")),
            host: "a.test",
            prefix: prefix.as_bytes(),
        };
        String::from_utf8(parse(text, true).unwrap().location(&given)).unwrap()
    }

    #[test]
    fn targets_are_filled_in() {
        let old = "^/old(.*)$";
        for (text, path, query, want) in [
            ("/new$1", "/old/a b", None, "/new/a%20b"),
            ("/new$1", "/old/a", Some("x=1"), "/new/a?x=1"),
            ("/new$1?", "/old/a", Some("x=1"), "/new/a"),
            ("/new?p=$1", "/old/a&b", Some("x=1"), "/new?p=/a%26b&x=1"),
            ("/new?p=$1?", "/old/a", Some("x=1"), "/new?p=/a"),
            ("https://b.test/n?p=1?", "/old/a", Some("x=1"), "https://b.test/n?p=1"),
            ("https://$host$request_uri", "/old/a", Some("x=1"), "https://a.test/As//%41sked?q=%zz"),
            ("https://b.test$path", "/old/a", None, "https://b.test/old/a"),
            ("https://$host/x", "/old", None, "https://a.test/x"),
            ("https://b.test", "/old", Some("q"), "https://b.test?q"),
            ("/${1}b", "/oldx", None, "/xb"),
            ("/$$", "/old", None, "/$"),
        ] {
            assert_eq!(location(text, old, path, query, ""), want, "{text}");
        }
        assert_eq!(location("/new$1", old, "/old/x", None, "/blog"), "/blog/new/x");
        assert_eq!(location("/$name", "^/(?P<name>.*)$", "/x", None, ""), "/x");
    }

    #[test]
    fn no_visitor_chooses_the_host_or_a_line() {
        for path in ["/old/evil.test", "/old//evil.test", "/old/\\evil.test", "/old\r\nSet-Cookie: a=b"] {
            for text in ["/$1", "$path", "/$1/"] {
                let said = location(text, "^/old(.*)$", path, None, "");
                assert!(said.starts_with('/') && !said.starts_with("//"), "{said}");
                assert!(!said.contains(['\r', '\n', '\\', ' ']), "{said}");
            }
        }
        for bad in [
            "https://$1",
            "https://$1.b.test/",
            "https://b.test$1",
            "//b.test",
            "$1",
            "b.test",
            "javascript:x",
            "/a b",
            "/a\n",
            "https://",
            "/\\x",
            "$request_uri",
            "/$request_uri",
            "https://b.test/x$request_uri",
            "https://b.test$request_uri?",
        ] {
            assert!(parse(bad, true).is_err(), "{bad}");
        }
        for bad in ["/$2", "/$nobody", "/${1", "https://b.test/x", "/a#b", "/$request_uri"] {
            assert!(parse(bad, false).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_rewritten_path_stays_in_the_site() {
        let regex = pattern::regex("^/x/(.*)$").unwrap();
        let rewritten = |text: &str, path: &str| {
            let found = regex.captures(path.as_bytes());
            let given = Given {
                captures: found.as_ref(),
                path: path.as_bytes(),
                query: Some(b"v=1"),
                asked: (b"", None),
                host: "",
                prefix: b"/no",
            };
            let target = Target::parse(text, false, |group| matches!(group, Ok(0..=1))).unwrap();
            target.rewritten(&given).map(|(path, query)| {
                (String::from_utf8(path).unwrap(), query.map(|query| String::from_utf8(query).unwrap()))
            })
        };
        let some = |path: &str, query: &str| Some((path.to_owned(), Some(query.to_owned())));
        assert_eq!(rewritten("/index.php?p=$1", "/x/a=b"), some("/index.php", "p=a%3Db&v=1"));
        let only = Some(("/index.php".to_owned(), Some("p=a".to_owned())));
        assert_eq!(rewritten("/index.php?p=$1?", "/x/a"), only);
        assert_eq!(rewritten("/a/$1", "/x/%2e%2e/c"), some("/a/%2e%2e/c", "v=1"));
        for (text, path) in
            [("/.$1", "/x/./y"), ("/a/.$1", "/x/./y"), ("/files/$1", "/x/../secret"), ("/a/$1", "/x/..")]
        {
            assert_eq!(rewritten(text, path), None, "{text}");
        }
        assert_eq!(rewritten("/a/$1", "/x/..b"), some("/a/..b", "v=1"));
    }
}
