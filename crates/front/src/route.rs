//! From a request's path to what answers it.
//!
//! It promises that nothing outside the document root is named by a path (symbolic links inside the root are followed, as
//! nginx does by default, to what the application's own user may read; see [`crate::reader`]), that dotfiles, PHP source and what [`crate::rules::Hidden`] names are never served, and that only a file whose own name ends in `.php` is
//! executed. Scripts that were found are remembered until the end of the second, which saves the busiest requests their system calls.
//! Nothing here waits for a disk; see [`crate::near`].

use std::{
    borrow::Cow,
    fs::File,
    io,
    os::unix::ffi::OsStrExt,
    path::PathBuf,
    sync::{Arc, LazyLock},
};

use hayate_http::seconds;
use hayate_ring::Records;
use memchr::memmem;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use rustix::process::geteuid;

use crate::{
    Backend,
    field::Field,
    near::{Access, Meta, Miss, below, trouble},
    reminder::Reminder,
    rules::unpacked,
    shown::Shown,
    site::{Inside, Site},
};

/// A script to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// Absolute.
    pub file: PathBuf,
    /// Its path in URLs.
    pub name: Vec<u8>,
    /// What follows the script's name in the path.
    pub path_info: Vec<u8>,
    /// It answers because nothing else does: the path says nothing of it.
    pub otherwise: bool,
    /// What workers are told of it, with each request.
    pub(crate) records: Records,
}

impl Script {
    fn new(site: &Site, inside: &[u8], path_info: &[u8], otherwise: bool) -> Script {
        let root = site.place.path();
        let (file, name) = (below(root, inside), [site.prefix(), inside].concat());
        let records = Records::new([
            (Field::DocumentRoot, root.as_os_str().as_bytes()),
            (Field::ScriptFilename, file.as_os_str().as_bytes()),
            (Field::ScriptName, &name),
            (Field::PathInfo, path_info),
            // As nginx sets it once the script is found.
            (Field::DocumentUri, &name),
        ]);
        Script { file, name, path_info: path_info.to_vec(), otherwise, records }
    }
}

impl Site {
    /// The script that answers a request target, path and query, now; `None` when a file does, or nothing. It may wait for the disk: not
    /// for requests.
    pub fn script(&self, target: &str) -> Option<Script> {
        let (path, query) =
            target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query.as_bytes())));
        let mut path = normalise(path.as_bytes())?;
        if let Some(rules) = &self.rules {
            path = Cow::Owned(rules.visit(self.inside(&path)?, query)?);
        }
        match look(self, &path, &Access::Waiting(self.place.path())) {
            Ok(Found::Script(script)) => Some(Script::clone(&script)),
            _ => None,
        }
    }
}

/// A file of a site.
#[derive(Debug)]
pub(crate) struct Named {
    /// Inside of the site's root.
    pub(crate) path: Vec<u8>,
    /// The file itself, if it was at hand.
    pub(crate) opened: Option<(File, Meta)>,
    /// It answers for what is no file, as the front controller of a site of static files.
    pub(crate) otherwise: bool,
}

/// What answers a path.
#[derive(Debug)]
pub(crate) enum Found {
    File(Named),
    Script(Arc<Script>),
    /// A directory named without its slash.
    AddSlash,
    /// A directory in which nobody of ours may look for an index.
    Closed,
    Nothing,
}

impl Found {
    /// The path of the file or script that answers, inside of its site.
    pub(crate) fn inside<'a>(&'a self, site: &Site) -> Option<&'a [u8]> {
        match self {
            Found::File(file) => Some(&file.path),
            Found::Script(script) => site.inside(&script.name).map(Inside::as_bytes),
            Found::AddSlash | Found::Closed | Found::Nothing => None,
        }
    }

    /// Whether it is the front controller, which answers for what is not there.
    pub(crate) fn is_otherwise(&self) -> bool {
        match self {
            Found::File(file) => file.otherwise,
            Found::Script(script) => script.otherwise,
            Found::AddSlash | Found::Closed | Found::Nothing => false,
        }
    }
}

/// Decodes and normalises a path; `None` when it is malformed or leaves the root.
pub(crate) fn normalise(raw: &[u8]) -> Option<Cow<'_, [u8]>> {
    if raw.first() != Some(&b'/') {
        return None;
    }
    if is_normal(raw) {
        return Some(Cow::Borrowed(raw));
    }
    let mut path = Vec::with_capacity(raw.len());
    let mut bytes = raw.iter().copied();
    while let Some(mut b) = bytes.next() {
        if b == b'%' {
            let mut hex = || char::from(bytes.next()?).to_digit(16);
            b = u8::try_from(hex()? * 16 + hex()?).ok()?;
        }
        if b == 0 {
            return None;
        }
        // Slashes are merged, as nginx does.
        if b == b'/' && path.last() == Some(&b'/') {
            continue;
        }
        path.push(b);
    }
    if !path.windows(2).any(|w| w == b"/.") {
        return Some(Cow::Owned(path));
    }
    let mut out: Vec<u8> = Vec::with_capacity(path.len());
    let mut segments = path.strip_prefix(b"/")?.split(|b| *b == b'/').peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        match segment {
            b"." if last => out.push(b'/'),
            b"." => {}
            b".." => {
                let slash = out.iter().rposition(|b| *b == b'/')?;
                out.truncate(slash);
                if last {
                    out.push(b'/');
                }
            }
            _ => {
                out.push(b'/');
                out.extend_from_slice(segment);
            }
        }
    }
    Some(Cow::Owned(out))
}

/// Whether there is nothing to be decoded, merged or resolved in a path that begins with a slash, as in most.
fn is_normal(path: &[u8]) -> bool {
    let mut before = 0;
    path.iter().all(|b| {
        let strange = matches!(b, 0 | b'%') || (before == b'/' && matches!(b, b'/' | b'.'));
        before = *b;
        !strange
    })
}

/// What a URL's path may hold as it is: "unreserved", "sub-delims", ":", "@" and "/" (RFC 3986, 3.3).
pub(crate) const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'!')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b'+')
    .remove(b',')
    .remove(b';')
    .remove(b'=')
    .remove(b':')
    .remove(b'@')
    .remove(b'/');

/// Where a directory is that was named without its slash. `path` is normalised: it begins with one slash and has no backslash that stays
/// one, or browsers would take what follows for a host.
pub(crate) fn with_slash(path: &[u8], query: Option<&[u8]>) -> Vec<u8> {
    let mut location: Vec<u8> = percent_encode(path, ESCAPED).to_string().into_bytes();
    location.push(b'/');
    if let Some(query) = query {
        location.push(b'?');
        location.extend_from_slice(query);
    }
    location
}

/// Whether a segment is a dotfile. `.well-known` is meant for visitors (RFC 8615).
fn hidden(path: &[u8]) -> bool {
    path.split(|b| *b == b'/').any(|segment| segment.first() == Some(&b'.') && segment != b".well-known")
}

/// Whether a file may hold PHP source without being executed: other extensions of PHP, and copies that editors leave.
fn is_source(name: &[u8]) -> bool {
    let extends = |name: &[u8]| {
        let extension = name.rsplit(|b| *b == b'.').next().unwrap_or_default();
        [&b"phtml"[..], b"pht", b"phar", b"phps", b"inc"].iter().any(|of| extension.eq_ignore_ascii_case(of))
    };
    let begins = |at: usize| name.get(at..at + 4).is_some_and(|part| part.eq_ignore_ascii_case(b".php"));
    memchr::memchr_iter(b'.', name).any(begins) || extends(name) || unpacked(name).any(extends)
}

/// The file that a script may send by its path though visitors do not get it: one of `hidden_files`, and no dotfile.
pub(crate) fn hidden_file(site: &Site, path: &[u8]) -> Option<Named> {
    let inside = site.inside(path)?.as_bytes();
    let name = inside.rsplit(|b| *b == b'/').next().unwrap_or_default();
    let may_be = !name.is_empty() && !is_source(name) && !hidden(inside);
    let hides = may_be && site.files.hidden.hides(inside);
    hides.then(|| Named { path: inside.to_vec(), opened: None, otherwise: false })
}

/// Whether a path may be that of something for visitors: neither a dotfile nor PHP's source.
pub(crate) fn is_for_visitors(path: &[u8]) -> bool {
    !hidden(path) && !is_source(path.rsplit(|b| *b == b'/').next().unwrap_or_default())
}

/// Scripts that are remembered of a second at most, and bytes of the path of one.
const FOUND: usize = 1024;
const LONGEST: usize = 512;

/// `path` is normalised. There is nothing in this site for the path of another. An error: the file system does not answer.
pub(crate) async fn resolve(site: &Arc<Site>, path: &[u8]) -> io::Result<Found> {
    let now = seconds();
    {
        let mut found = site.found.lock();
        if found.0 != now {
            found.0 = now;
            found.1.clear();
        } else if let Some(script) = found.1.get(path) {
            return Ok(Found::Script(Arc::clone(script)));
        }
    }
    let place = &site.place;
    let near = place.near().root(place.path()).map(|root| look(site, path, &Access::Now(&root)));
    let target = match near {
        Some(Ok(found)) => found,
        Some(Err(_)) | None => {
            let (of_thread, owned) = (Arc::clone(site), path.to_vec());
            let looked = place.begin(move || {
                let place = &of_thread.place;
                place.near().learn(place.path());
                look(&of_thread, &owned, &Access::Waiting(place.path()))
            });
            // To say that nothing is there would be wrong.
            looked.await?.map_err(|miss| match miss {
                Miss::Trouble(error) => trouble(error),
                _ => io::ErrorKind::WouldBlock.into(),
            })?
        }
    };
    if let Found::Script(script) = &target
        && path.len() <= LONGEST
    {
        let mut found = site.found.lock();
        // Another second may have begun meanwhile.
        if found.0 == now && found.1.len() < FOUND {
            found.1.insert(path.to_vec(), Arc::clone(script));
        }
    }
    Ok(target)
}

/// What the names of scripts have in them.
static PHP: LazyLock<memmem::Finder<'static>> = LazyLock::new(|| memmem::Finder::new(b".php"));

/// What may not be looked at is answered as if it were not there, as by nginx and php-fpm: the log says that it is, or whoever has set the
/// rights of a release looks for it in vain.
fn tell(site: &Site, at: &[u8], miss: Miss) {
    static CLOSED: Reminder = Reminder::new();
    if miss == Miss::Forbidden
        && let Some(times) = CLOSED.happened()
    {
        let file = below(site.place.path(), at);
        tracing::error!(
            app = site.name,
            "\"{}\" cannot be looked at: the front runs as uid {}, who may not search a directory above it; give that user the right (x). \
             It has happened {times} times since this was last said",
            Shown(file.as_os_str().as_bytes()),
            geteuid().as_raw()
        );
    }
}

/// An error: only somebody who may wait can say, or nobody can.
fn look(site: &Site, path: &[u8], files: &Access<'_>) -> Result<Found, Miss> {
    let Some(inside) = site.inside(path).map(Inside::as_bytes) else { return Ok(Found::Nothing) };
    if inside.is_empty() {
        return Ok(Found::AddSlash);
    }
    let script =
        |at: &[u8], path_info: &[u8]| Ok(Found::Script(Arc::new(Script::new(site, at, path_info, false))));
    let meta = |at: &[u8]| match files.meta(at) {
        Ok(meta) => Ok(Some(meta)),
        Err(miss @ (Miss::Wait | Miss::Trouble(_))) => Err(miss),
        Err(miss) => {
            tell(site, at, miss);
            Ok(None)
        }
    };
    // The first part of the path that is a script, and what follows it.
    for at in PHP.find_iter(inside) {
        let Some((before, after)) = inside.split_at_checked(at + 4) else { break };
        if !matches!(after.first(), None | Some(b'/')) {
            continue;
        }
        // What follows a script is the script's: a file of its own by that name (WebDAV), say.
        if hidden(before) {
            return Ok(Found::Nothing);
        }
        match meta(before)? {
            Some(meta) if meta.is_file() && site.files.hidden.hides(before) => return Ok(Found::Nothing),
            Some(meta) if meta.is_file() => return script(before, after),
            Some(meta) if meta.is_dir() => continue,
            _ => return Ok(Found::Nothing),
        }
    }
    if hidden(inside) {
        return Ok(Found::Nothing);
    }
    let name = inside.rsplit(|b| *b == b'/').next().unwrap_or_default();
    let found = match files.find(inside) {
        Ok(found) => Some(found),
        Err(miss @ (Miss::Wait | Miss::Trouble(_))) => return Err(miss),
        Err(miss) => {
            tell(site, inside, miss);
            None
        }
    };
    match found {
        Some((_, dir)) if dir.is_dir() => {
            let slash = if inside.last() == Some(&b'/') { &b""[..] } else { b"/" };
            for index in &site.index {
                let at = [inside, slash, index.as_bytes()].concat();
                let there = match files.meta(&at) {
                    Ok(meta) => meta.is_file(),
                    Err(miss @ (Miss::Wait | Miss::Trouble(_))) => return Err(miss),
                    Err(miss @ Miss::Forbidden) => {
                        tell(site, &at, miss);
                        return Ok(Found::Closed);
                    }
                    Err(_) => false,
                };
                let is_file = there && !site.files.hidden.hides(&at);
                if is_file && !slash.is_empty() {
                    return Ok(Found::AddSlash);
                }
                if is_file && index.ends_with(".php") {
                    return script(&at, b"");
                }
                if is_file && !is_source(index.as_bytes()) {
                    return Ok(Found::File(Named { path: at, opened: None, otherwise: false }));
                }
            }
            // Where the front controller answers for it, it may redirect to the name without a slash.
            if !slash.is_empty() && site.front_controller.is_none() {
                return Ok(Found::AddSlash);
            }
        }
        // A name that ends in a slash is none of a file.
        Some((file, meta)) if meta.is_file() && !name.is_empty() => {
            let opened = file.map(|file| (file, meta));
            let named = Named { path: inside.to_vec(), opened, otherwise: false };
            let closed = is_source(name) || site.files.hidden.hides(inside);
            return Ok(if closed { Found::Nothing } else { Found::File(named) });
        }
        _ => {}
    }
    match &site.front_controller {
        Some(controller) => {
            let at = [b"/", controller.as_bytes()].concat();
            // A site of static files may have a page for what is no file.
            if matches!(site.backend, Backend::Static) && !is_source(controller.as_bytes()) {
                return Ok(Found::File(Named { path: at, opened: None, otherwise: true }));
            }
            Ok(Found::Script(Arc::new(Script::new(site, &at, b"", true))))
        }
        None => Ok(Found::Nothing),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(raw: &str) -> Option<String> {
        normalise(raw.as_bytes()).map(|p| String::from_utf8_lossy(&p).into_owned())
    }

    #[test]
    fn paths_are_normalised() {
        for (raw, want) in [
            ("/", "/"),
            ("/a/b", "/a/b"),
            ("//a///b/", "/a/b/"),
            ("/a/./b/.", "/a/b/"),
            ("/a/../b", "/b"),
            ("/a/b/..", "/a/"),
            ("/a%2Fb", "/a/b"),
            ("/%2e%2e%61", "/..a"),
            ("/a+b%20c", "/a+b c"),
            ("/.well-known/x", "/.well-known/x"),
            ("/...", "/..."),
        ] {
            assert_eq!(path(raw).as_deref(), Some(want), "{raw}");
        }
    }

    #[test]
    fn paths_that_leave_the_root_or_make_no_sense_are_refused() {
        for raw in
            ["", "a", "/..", "/../a", "/a/../../b", "/%2e%2e/a", "/..%2fa", "/a%00", "/%", "/%2", "/%zz", "*"]
        {
            assert_eq!(path(raw), None, "{raw}");
        }
    }

    #[test]
    fn a_directory_redirect_never_names_a_host() {
        for (raw, want) in [
            ("/a", "/a/"),
            ("//evil.test", "/evil.test/"),
            ("///evil.test//a", "/evil.test/a/"),
            ("/\\evil.test/..%2fa", "/a/"),
            ("/\\evil.test", "/%5Cevil.test/"),
            ("/%5cevil.test/%2e%2e/a", "/a/"),
            ("//evil/..%2fx", "/x/"),
            ("/%2fevil.test", "/evil.test/"),
            ("/.//evil.test", "/evil.test/"),
            ("/a/..//evil.test", "/evil.test/"),
            ("/a%0d%0aX:%20y", "/a%0D%0AX:%20y/"),
            ("/a%3fb%23c%25", "/a%3Fb%23c%25/"),
            ("/\u{e9}'()", "/%C3%A9'()/"),
        ] {
            let path = normalise(raw.as_bytes()).unwrap();
            let location = String::from_utf8(with_slash(&path, None)).unwrap();
            assert_eq!(location, want, "{raw}");
            assert!(!location.starts_with("//") && !location.contains('\\'), "{location}");
        }
        assert_eq!(with_slash(b"/a", Some(b"q=//x")), b"/a/?q=//x");
    }

    #[test]
    fn source_is_recognised_under_its_many_names() {
        for name in [
            "a.php~",
            "a.php.bak",
            "A.PHP",
            "a.php ",
            "a.phtml",
            "a.phar",
            "a.inc",
            ".php5",
            "a.php7",
            "a.inc.gz",
            "a.phtml.1",
        ] {
            assert!(is_source(name.as_bytes()), "{name}");
        }
        for name in
            ["a.txt", "php", "a.phpx.txt".trim_end_matches("x.txt").trim_end_matches("php"), "include.js"]
        {
            assert!(!is_source(name.as_bytes()), "{name}");
        }
    }
}
