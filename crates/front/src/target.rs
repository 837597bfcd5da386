//! The request target, as the client sent it.
//!
//! nginx takes any visible byte in a target and hands it to PHP as it came; hyper's `Uri` does not take `"`, `<`, `>` and others. So the
//! framing replaces those bytes before hyper sees them, byte for byte, and the original goes to the service beside hyper ([`check`],
//! [`disguise`]). [`Target`] is what the service reads, wherever it came from.

use http::Uri;

use crate::host::Host;

/// The longest target that hyper takes, bytes.
pub(crate) const LONGEST: usize = u16::MAX as usize - 1;

/// Bytes that `Uri` takes in paths and in queries, and that mean nothing to it.
const fn is_plain(b: u8) -> bool {
    matches!(b, b'!' | b'$'..=b';' | b'=' | b'?'..=b'_' | b'a'..=b'~')
}

/// Where the path begins: after the scheme and the authority, if there are any. `None`: there is no path.
fn path_at(target: &[u8]) -> Option<usize> {
    if target.first() == Some(&b'/') {
        return Some(0);
    }
    let host = authority_at(target)?;
    let at = target.get(host..)?.iter().position(|b| matches!(b, b'/' | b'?' | b'#'))?;
    host.checked_add(at)
}

/// Where the authority begins in an absolute form. Other schemes are for proxies.
fn authority_at(target: &[u8]) -> Option<usize> {
    let schemes = [&b"http://"[..], b"https://"];
    let is = |scheme: &&[u8]| target.get(..scheme.len()).is_some_and(|t| t.eq_ignore_ascii_case(scheme));
    schemes.iter().find(|scheme| is(scheme)).map(|scheme| scheme.len())
}

/// Whether a target needs a disguise, or why it is none.
pub(crate) fn check(target: &[u8]) -> Result<bool, &'static str> {
    if target.iter().any(|b| *b <= b' ' || *b == 0x7f) {
        return Err("control characters in the request target");
    }
    let at = path_at(target);
    if at == Some(0) {
        return Ok(!target.iter().all(|b| is_plain(*b)));
    }
    // Seldom seen: *, host:port, and whole URLs to a server that is no proxy. The authority has to please hyper as it stands.
    let at = at.unwrap_or(target.len());
    match authority_at(target) {
        Some(host) if target.get(host..at).and_then(Host::parse).is_none() => {
            return Err("the host in the request target is malformed");
        }
        None if target.windows(3).any(|w| w == b"://") => {
            return Err("the request target's scheme is not http");
        }
        _ => {}
    }
    let disguise = !target.get(at..).unwrap_or_default().iter().all(|b| is_plain(*b));
    if disguise && target.get(at) != Some(&b'/') {
        return Err("the request target has no path");
    }
    let mut seen = target.to_vec();
    disguise_from(&mut seen, at);
    match Uri::try_from(seen) {
        Ok(_) => Ok(disguise),
        Err(_) => Err("the request target is malformed"),
    }
}

/// Replaces what hyper would not take, in a target that [`check`] let pass.
pub(crate) fn disguise(target: &mut [u8]) {
    let at = path_at(target).unwrap_or(target.len());
    disguise_from(target, at);
}

fn disguise_from(target: &mut [u8], at: usize) {
    for b in target.get_mut(at..).unwrap_or_default() {
        if !is_plain(*b) {
            *b = b'!';
        }
    }
}

/// A target in origin form. Raw: nothing is decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Target<'a> {
    /// Path, query and all: what PHP calls REQUEST_URI.
    pub(crate) whole: &'a [u8],
    pub(crate) path: &'a [u8],
    /// Without the question mark.
    pub(crate) query: Option<&'a [u8]>,
}

impl<'a> Target<'a> {
    /// Of what hyper read, or of the original where that was a disguise.
    pub(crate) fn new(uri: &'a Uri, original: Option<&'a [u8]>) -> Target<'a> {
        let Some(original) = original else {
            let whole = uri.path_and_query().map_or("/", |t| t.as_str()).as_bytes();
            return Target { whole, path: uri.path().as_bytes(), query: uri.query().map(str::as_bytes) };
        };
        let whole = path_at(original).and_then(|at| original.get(at..)).unwrap_or_default();
        // As nginx has it: a fragment, which no client should send, is in REQUEST_URI and nowhere else.
        let end = whole.iter().position(|b| *b == b'#').unwrap_or(whole.len());
        let mut parts = whole.get(..end).unwrap_or_default().splitn(2, |b| *b == b'?');
        Target { whole, path: parts.next().unwrap_or_default(), query: parts.next() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_plain_means_nothing_to_hyper() {
        for b in 0..=255 {
            if is_plain(b) && b != b'?' {
                for target in [vec![b'/', b, b'x'], vec![b'/', b'?', b, b'x']] {
                    let uri = Uri::try_from(target.clone());
                    let whole = uri.expect("hyper takes it").path_and_query().unwrap().as_str().to_owned();
                    assert_eq!(whole.as_bytes(), target, "byte {b:#x}");
                }
            }
        }
    }

    #[test]
    fn every_target_that_passes_is_one_for_hyper_and_keeps_its_length() {
        for target in [
            &b"/"[..],
            b"/a?b=<c>\"d\"`e`#f",
            b"/\xff\xfe?\xc3\xa4",
            b"/#?a",
            b"http://h.test/x?y=<z>",
            b"http://h.test",
            b"http://h.test?a=b",
            b"*",
            b"h.test:443",
        ] {
            let disguised = check(target).unwrap();
            let mut seen = target.to_vec();
            disguise(&mut seen);
            assert_eq!(disguised, seen != target);
            let uri = Uri::try_from(seen.clone()).unwrap_or_else(|e| panic!("{target:?}: {e}"));
            assert!(seen.len() == target.len() && !uri.to_string().is_empty());
        }
    }

    #[test]
    fn what_no_server_could_serve_is_refused() {
        for target in [
            &b"a b"[..],
            b"/\x7f",
            b"/\0",
            b"http://",
            b"http://h\xff/",
            b"http://h?a=<b>",
            b"http://u@h/",
            b"ftp://h/",
            b"foo",
            b"?a",
        ] {
            // A lone word is an authority to hyper; the service refuses it, having no path.
            assert!(check(target).is_err() || *target == b"foo"[..], "{target:?}");
        }
    }

    #[test]
    fn the_original_is_taken_apart_as_nginx_does() {
        let uri = Uri::from_static("/x");
        let of = |original: &'static [u8]| Target::new(&uri, Some(original));
        let want = |whole, path, query| Target { whole, path, query };
        assert_eq!(of(b"/a?b=<c>"), want(&b"/a?b=<c>"[..], &b"/a"[..], Some(&b"b=<c>"[..])));
        assert_eq!(of(b"/a<b?"), want(b"/a<b?", b"/a<b", Some(b"")));
        assert_eq!(of(b"/a?b#c?d"), want(b"/a?b#c?d", b"/a", Some(b"b")));
        assert_eq!(of(b"/a#b?c"), want(b"/a#b?c", b"/a", None));
        assert_eq!(of(b"http://h/a?<"), want(b"/a?<", b"/a", Some(b"<")));
        let plain = Uri::from_static("http://h/a?b");
        assert_eq!(Target::new(&plain, None), want(b"/a?b", b"/a", Some(b"b")));
    }
}
