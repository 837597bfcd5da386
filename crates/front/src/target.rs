//! The request target, as the client sent it, taken apart. Raw: nothing is decoded, and any visible byte may be in it, as nginx has it.

use crate::host::Host;

/// A target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Target<'a> {
    /// Path, query and all: what PHP calls REQUEST_URI.
    pub(crate) whole: &'a [u8],
    /// What comes with no slash at its beginning is no path (`*`, `host:port`).
    pub(crate) path: &'a [u8],
    /// Without the question mark.
    pub(crate) query: Option<&'a [u8]>,
    /// The host in the absolute form, which is for servers as for proxies; then Host is to be ignored (RFC 9112, 3.2.2).
    pub(crate) authority: Option<&'a [u8]>,
}

impl<'a> Target<'a> {
    /// An error says what is wrong with it.
    pub(crate) fn parse(target: &'a [u8]) -> Result<Target<'a>, &'static str> {
        if target.first() == Some(&b'/') {
            return Ok(Target::origin(target));
        }
        // Seldom seen: *, host:port, and whole URLs to a server that is no proxy.
        let Some(rest) = after_scheme(target) else {
            return match memchr::memmem::find(target, b"://") {
                Some(_) => Err("the request target's scheme is not http"),
                None => Ok(Target::origin(target)),
            };
        };
        let end = rest.iter().position(|b| matches!(b, b'/' | b'?' | b'#')).unwrap_or(rest.len());
        let (authority, whole) = rest.split_at_checked(end).unwrap_or((rest, b""));
        if Host::parse(authority).is_none() {
            return Err("the host in the request target is malformed");
        }
        if whole.first() == Some(&b'#') {
            return Err("a fragment is in the place of the request target's path");
        }
        let mut target = Target::origin(if whole.is_empty() { b"/" } else { whole });
        if target.path.is_empty() {
            target.path = b"/";
        }
        target.authority = Some(authority);
        Ok(target)
    }

    fn origin(whole: &'a [u8]) -> Target<'a> {
        // As nginx has it: a fragment, which no client should send, is in REQUEST_URI and nowhere else.
        let end = memchr::memchr2(b'#', b'?', whole).unwrap_or(whole.len());
        let (path, rest) = whole.split_at_checked(end).unwrap_or((whole, b""));
        let query = match rest {
            [b'?', rest @ ..] => rest.get(..memchr::memchr(b'#', rest).unwrap_or(rest.len())),
            _ => None,
        };
        Target { whole, path, query, authority: None }
    }
}

/// What follows the scheme in an absolute form. Other schemes are for proxies.
fn after_scheme(target: &[u8]) -> Option<&[u8]> {
    [&b"http://"[..], b"https://"].iter().find_map(|scheme| {
        let (begin, rest) = target.split_at_checked(scheme.len())?;
        begin.eq_ignore_ascii_case(scheme).then_some(rest)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_taken_apart_as_nginx_does() {
        let of = |target: &'static [u8]| Target::parse(target).unwrap();
        let want = |whole, path, query| Target { whole, path, query, authority: None };
        assert_eq!(of(b"/a?b=<c>"), want(&b"/a?b=<c>"[..], &b"/a"[..], Some(&b"b=<c>"[..])));
        assert_eq!(of(b"/a<b?"), want(b"/a<b?", b"/a<b", Some(b"")));
        assert_eq!(of(b"/a?b#c?d"), want(b"/a?b#c?d", b"/a", Some(b"b")));
        assert_eq!(of(b"/a#b?c"), want(b"/a#b?c", b"/a", None));
        assert_eq!(of(b"/\xff\"`"), want(b"/\xff\"`", b"/\xff\"`", None));
        let absolute = |target: &'static [u8]| {
            let target = of(target);
            (target.authority.unwrap(), target.whole, target.path, target.query)
        };
        assert_eq!(absolute(b"http://h/a?<"), (&b"h"[..], &b"/a?<"[..], &b"/a"[..], Some(&b"<"[..])));
        assert_eq!(absolute(b"HTTPS://h.test:1"), (&b"h.test:1"[..], &b"/"[..], &b"/"[..], None));
        assert_eq!(absolute(b"http://h?a"), (&b"h"[..], &b"?a"[..], &b"/"[..], Some(&b"a"[..])));
    }

    #[test]
    fn what_no_server_could_serve_is_refused() {
        for target in
            [&b"http://"[..], b"http://h\xff/", b"http://u@h/", b"http://[::1/", b"ftp://h/", b"http://h#a"]
        {
            assert!(Target::parse(target).is_err(), "{target:?}");
        }
        // Those have no path, which whoever routes them sees.
        for target in [&b"*"[..], b"h.test:443", b"foo", b"?a"] {
            assert_ne!(Target::parse(target).unwrap().path.first(), Some(&b'/'), "{target:?}");
        }
    }
}
