//! Sites: which application answers a request, and what it is made of.

use std::{
    collections::{BTreeMap, HashSet},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use hayate_ring::Ring;
use parking_lot::Mutex;

use crate::{
    access_log::AccessLog,
    compress::Compression,
    disk::Place,
    error_pages::ErrorPages,
    host::Host,
    metrics::SiteMetrics,
    near::{Found, Meta, Miss, relative},
    punycode,
    reader::Reader,
    route::Script,
    rules::{BehindHost, Hidden, Readings, Rules, Scripts, or_slash, unpacked},
};

/// The sites in force; replaced as a whole.
#[derive(Default)]
pub struct Routes {
    /// In no particular order.
    pub sites: Vec<Arc<Site>>,
    /// Those of [`Site::access_log`], each once; [`crate::Settings::access_log`] may be among them.
    pub access_logs: Vec<AccessLog>,
}

/// One application as the front sees it.
pub struct Site {
    /// For logs and metrics.
    pub name: String,
    /// Host names it answers to; empty: any.
    pub hosts: Vec<HostPattern>,
    /// Path prefix, "/" or like "/blog" (no slash at its end).
    pub path: String,
    /// Document root: absolute, symbolic links resolved. From [`crate::Disk::place`].
    pub place: Arc<Place>,
    /// Names tried in a directory, in order.
    pub index: Vec<String>,
    /// Script below the root that answers what no file answers.
    pub front_controller: Option<String>,
    /// Directories besides the root from which X-Sendfile may send. `None`: X-Sendfile and X-Accel-Redirect are passed on like any other
    /// header, for a proxy in front that acts on them.
    pub sendfile_roots: Option<Vec<Arc<Place>>>,
    /// What holds for its static files.
    pub files: Arc<FileRules>,
    /// Which answers are encoded, if some are.
    pub compression: Option<Compression>,
    /// Who runs the scripts.
    pub backend: Backend,
    /// Scripts that others run.
    pub beside: Option<Beside>,
    /// Where its requests are counted.
    pub metrics: Arc<SiteMetrics>,
    /// Scripts found lately; see [`crate::route`].
    pub found: Lately,
    /// What becomes of requests before that.
    pub rules: Option<Rules>,
    /// In place of Hayate's own pages.
    pub error_pages: ErrorPages,
    /// Where the lines of its requests go; `None`: to [`crate::Settings::access_log`].
    pub access_log: Option<AccessLog>,
}

impl Site {
    /// Whether scripts of the other one run as the same user. What was sent to one customer is not for the next one.
    pub(crate) fn has_the_user_of(&self, other: &Site) -> bool {
        match (&self.files.reader, &other.files.reader) {
            (None, None) => true,
            (Some(one), Some(other)) => one.is_user_of(other),
            _ => false,
        }
    }
}

/// What holds for static files.
#[derive(Debug, Default, Clone)]
pub struct FileRules {
    /// Encoding that text says it has; none: it says nothing, and browsers look into it.
    pub charset: Option<String>,
    /// What is never sent, by whatever name it is found.
    pub private: Vec<FileId>,
    /// Where those are, absolute: what takes their place is not sent either.
    pub private_paths: Vec<PathBuf>,
    /// Paths of the document root that answer no client, with all that is below them: `/data`. X-Accel-Redirect may lead there.
    pub denied: Vec<String>,
    /// Names that are not for visitors.
    pub hidden: Hidden,
    /// Who has to be able to read what a link leads to, outside of the root; `None`: whoever made the link may read what we may.
    pub reader: Option<Reader>,
    /// Found lately.
    pub elsewhere: Elsewhere,
}

/// Files that are where no private one is, by what was opened and not by a name, which can change hands: to ask where a file is costs a
/// tenth of serving it. Copies of rules have one of it.
#[derive(Debug, Default, Clone)]
pub struct Elsewhere(Arc<Found<(FileId, (i64, i64))>>);

impl FileRules {
    /// Whether clients get nothing at a path, which is normalised and inside of the site. What is packed, or put aside by a log's
    /// rotation, is as its content.
    pub(crate) fn denies(&self, path: &[u8]) -> bool {
        let below = |path: &[u8], denied: &String| {
            path.strip_prefix(denied.as_bytes()).is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
        };
        self.denied.iter().any(|denied| below(path, denied) || unpacked(path).any(|path| below(path, denied)))
    }

    /// Whether a file may be sent by this name: neither that of a configuration of ours, nor where a private one was. `path` is below `root`.
    pub(crate) fn may_be_called(&self, root: &Path, path: &[u8]) -> bool {
        let name = path.rsplit(|b| *b == b'/').next().unwrap_or_default();
        let asked = Path::new(relative(path));
        // The end first: it costs next to nothing, and there may be hundreds.
        let private = |private: &PathBuf| {
            private.as_os_str().as_bytes().ends_with(name)
                && private.strip_prefix(root).is_ok_and(|below| below == asked)
        };
        name != b"hayate.toml" && !self.private_paths.iter().any(private)
    }

    /// Whether a file may be sent, whatever it is called: no private one, nor what has taken the place of one since, nor what lies outside
    /// of `root` and is closed to [`FileRules::reader`]. `meta` is of what was opened in the second `began`. `real` says where it is in
    /// truth, since a link of any name may lead there; it is asked after that. [`Miss::Wait`]: only who may wait (`waits`) can say.
    pub(crate) fn may_send(
        &self,
        root: &Path,
        meta: &Meta,
        began: u64,
        waits: bool,
        real: impl FnOnce() -> Option<PathBuf>,
    ) -> Result<(), Miss> {
        if self.private.contains(&meta.id) {
            return Err(Miss::NotThere);
        }
        let key = (meta.id, meta.changed);
        if self.private_paths.is_empty() && self.reader.is_none() || self.elsewhere.0.has(&key) {
            return Ok(());
        }
        let real = real().filter(|real| !self.private_paths.contains(real)).ok_or(Miss::NotThere)?;
        if let Some(reader) = self.reader.as_ref().filter(|_| !real.starts_with(root)) {
            if !waits {
                return Err(Miss::Wait);
            }
            if !reader.may_read(&real, meta.id) {
                return Err(Miss::Forbidden);
            }
        }
        if meta.is_settled() {
            self.elsewhere.0.add(key, began);
        }
        Ok(())
    }
}

/// Which file it is, whatever its name: device and inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileId(u64, u64);

impl FileId {
    /// As stat(2) has them.
    pub fn new(device: u64, inode: u64) -> FileId {
        FileId(device, inode)
    }
}

/// Scripts that were found on disk, kept for the second in which the look-up began.
pub type Lately = Mutex<(u64, BTreeMap<Vec<u8>, Arc<Script>>)>;

/// Who runs a site's scripts.
pub enum Backend {
    /// Workers behind a ring.
    Ring {
        /// The ring.
        ring: Arc<Ring>,
        /// The most requests that may wait.
        queue_limit: usize,
        /// The longest one may wait before it gets a slot; [`hayate_ring::Limits`] has the time after that.
        queue_timeout: Duration,
        /// Whether a request with an idempotent method runs once more when the worker dies that had taken it. A request that no worker had
        /// taken waits for the next one in any case.
        retry: bool,
        /// Whether scripts may read bodies while they arrive, but for those of a POST, which PHP reads to their end before it begins.
        streams_bodies: bool,
        /// Asked before each request: a reason while no worker can start.
        unavailable: Arc<dyn Fn() -> Option<String> + Send + Sync>,
        /// Asked about a request that found no worker: what there is to say of them, if it is not that all have work.
        lacking: Arc<dyn Fn() -> Option<&'static str> + Send + Sync>,
    },
    /// No scripts: static files only.
    Static,
}

/// Scripts of a site that are not for its [`Site::backend`].
pub struct Beside {
    /// Their paths inside of the site.
    pub scripts: HashSet<Vec<u8>>,
    /// Who runs them.
    pub backend: Backend,
}

/// A host name, or all below one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostPattern {
    /// "example.org", in lower case.
    Exact(String),
    /// "*.example.org", kept as ".example.org".
    Below(String),
}

/// What a name with letters of its own is over the network, if it is one.
fn of_letters(name: &str) -> Option<String> {
    let ascii = punycode::to_ascii(name).filter(|_| !name.is_ascii())?;
    Host::parse(ascii.as_bytes()).is_some_and(|host| host.port.is_none()).then_some(ascii)
}

impl HostPattern {
    /// Reads "example.org" or "*.example.org".
    pub fn parse(text: &str) -> Result<HostPattern, String> {
        let (below, name) = match text.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        // With a star or a colon in it no request would ever fit.
        let plain =
            |host: &Host<'_>| host.port.is_none() && !name.contains('*') && !name.ends_with(['.', ':']);
        if text == "_" {
            return Err(
                "'_' is nobody's host; an application without hosts answers to all that no other one names"
                    .into(),
            );
        }
        let host = Host::parse(name.as_bytes()).filter(plain);
        match host {
            Some(host) if below => Ok(HostPattern::Below(format!(".{}", host.name))),
            Some(host) => Ok(HostPattern::Exact(host.name.into_owned())),
            None if let Some(ascii) = of_letters(name) => {
                let star = if below { "*." } else { "" };
                Err(format!("'{text}' is no host name as browsers send it; write {star}{ascii}"))
            }
            None => Err(format!(
                "'{text}' is no host name; write example.org or *.example.org, without a port, or [2001:db8::1]"
            )),
        }
    }

    fn matches(&self, host: &str) -> Option<usize> {
        match self {
            HostPattern::Exact(name) => name.eq_ignore_ascii_case(host).then_some(usize::MAX),
            HostPattern::Below(suffix) => {
                let at = host.len().checked_sub(suffix.len())?;
                (at > 0 && host.get(at..)?.eq_ignore_ascii_case(suffix)).then_some(suffix.len())
            }
        }
    }
}

/// A normalised path without its site's prefix: empty, or beginning with a slash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Inside<'a>(&'a [u8]);

impl<'a> Inside<'a> {
    pub(crate) fn as_bytes(self) -> &'a [u8] {
        self.0
    }
}

impl Site {
    /// The part of a normalised path that is inside this site; `None` for one that belongs to another. "/blog" is a prefix of "/blog"
    /// and "/blog/1", and not of "/blogger".
    pub(crate) fn inside<'a>(&self, path: &'a [u8]) -> Option<Inside<'a>> {
        let rest = path.strip_prefix(self.prefix())?;
        matches!(rest.first(), None | Some(b'/')).then_some(Inside(rest))
    }

    /// Whether clients get nothing for a path, in any way in which scripts may read it. `raw` is what was asked for, `inside` what it is now.
    pub(crate) fn denies(&self, raw: &[u8], inside: Inside<'_>) -> bool {
        if self.files.denied.is_empty() {
            return false;
        }
        let known = Scripts::new(self.front_controller.as_deref());
        let behind = BehindHost::new(raw, self.prefix(), &known);
        Readings::new(or_slash(inside), &behind, &known)
            .is_none_or(|readings| readings.all().any(|reading| self.files.denies(reading.path)))
    }

    /// Who runs a script.
    pub(crate) fn runs(&self, script: &Script) -> &Backend {
        let is_beside = |beside: &&Beside| {
            !script.otherwise
                && self.inside(&script.name).is_some_and(|inside| beside.scripts.contains(inside.as_bytes()))
        };
        self.beside.as_ref().filter(is_beside).map_or(&self.backend, |beside| &beside.backend)
    }

    /// The path prefix, empty for "/".
    pub(crate) fn prefix(&self) -> &[u8] {
        if self.path == "/" { b"" } else { self.path.as_bytes() }
    }

    fn rank(&self, host: &str, path: &[u8]) -> Option<(usize, usize)> {
        let by_host = if self.hosts.is_empty() {
            Some(0)
        } else {
            self.hosts.iter().filter_map(|pattern| pattern.matches(host)).max()
        }?;
        self.inside(path).map(|_| (by_host, self.path.len()))
    }
}

impl Routes {
    /// The site for a host (without port) and a normalised path: an exact name before a wildcard before any, then the
    /// longest prefix.
    pub(crate) fn pick(&self, host: &str, path: &[u8]) -> Option<&Arc<Site>> {
        if let [only] = &self.sites[..]
            && only.hosts.is_empty()
            && only.path == "/"
        {
            return Some(only);
        }
        let ranked = self.sites.iter().filter_map(|site| Some((site.rank(host, path)?, site)));
        ranked.max_by_key(|(rank, _)| *rank).map(|(_, site)| site)
    }
}

#[cfg(test)]
mod tests {
    use hayate_http::seconds;

    use super::*;
    use crate::near::Access;

    fn place() -> Arc<Place> {
        static DISK: std::sync::OnceLock<crate::Disk> = std::sync::OnceLock::new();
        DISK.get_or_init(|| crate::Disk::start(crate::Disk::THREADS).unwrap()).place("/".as_ref())
    }

    fn site(name: &str, hosts: &[&str], path: &str) -> Arc<Site> {
        Arc::new(Site {
            name: name.into(),
            hosts: hosts.iter().map(|h| HostPattern::parse(h).unwrap()).collect(),
            path: path.into(),
            place: place(),
            index: vec![],
            front_controller: None,
            sendfile_roots: None,
            files: Arc::default(),
            compression: None,
            backend: Backend::Static,
            beside: None,
            metrics: Arc::default(),
            found: Lately::default(),
            rules: None,
            error_pages: ErrorPages::default(),
            access_log: None,
        })
    }

    #[test]
    fn what_is_denied_is_denied_with_all_below_it() {
        let rules = FileRules { denied: vec!["/data".into(), "/a/b".into()], ..FileRules::default() };
        for path in ["/data", "/data/", "/data/x.php/y", "/a/b", "/a/b/c", "/data.tar.gz", "/a/b.1"] {
            assert!(rules.denies(path.as_bytes()), "{path}");
        }
        for path in ["", "/", "/database", "/x/data", "/a", "/a/", "/a/bc", "/data.css", "/a.gz"] {
            assert!(!rules.denies(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn what_was_found_elsewhere_is_asked_again_when_it_has_been_renamed() {
        let rules = FileRules { private_paths: vec!["/site/users.txt".into()], ..FileRules::default() };
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), "a").unwrap();
        let (_, meta) = Access::Waiting(dir.path()).open(b"/a").unwrap();
        let old = Meta { changed: (1_000_000_000, 5), ..meta };
        let far: fn() -> Option<PathBuf> = || Some(PathBuf::from("/site/a.txt"));
        let near: fn() -> Option<PathBuf> = || Some(PathBuf::from("/site/users.txt"));
        let may_send = |meta: &Meta, began, real: fn() -> Option<PathBuf>| {
            rules.may_send(Path::new("/site"), meta, began, true, real).is_ok()
        };
        // A second may end in between.
        while {
            assert!(may_send(&old, seconds(), far));
            !may_send(&old, seconds(), || None)
        } {}
        assert!(!may_send(&Meta { changed: (1_000_000_000, 6), ..meta }, seconds(), near));
        assert!(!may_send(&Meta { id: FileId::new(0, 0), ..old }, seconds(), near));
        // It may change once more within the same tick of the kernel's clock.
        let fresh = Meta { changed: (i64::MAX, 0), ..meta };
        assert!(may_send(&fresh, seconds(), far) && !may_send(&fresh, seconds(), near));
        // A look-up of an earlier second.
        let other = Meta { changed: (1_000_000_000, 7), ..meta };
        assert!(may_send(&other, 0, far) && !may_send(&other, seconds(), near));
    }

    #[test]
    fn scripts_beside_are_known_by_their_names() {
        let backend = Backend::Static;
        let scripts = [b"/legacy.php".to_vec(), b"/sub/index.php".to_vec()].into();
        let blog = Site {
            beside: Some(Beside { scripts, backend }),
            ..Arc::into_inner(site("a", &[], "/blog")).unwrap()
        };
        let beside = |name: &str, otherwise| {
            let records = hayate_ring::Records::new([(crate::field::Field::ScriptName, name.as_bytes())]);
            let script =
                Script { file: PathBuf::new(), name: name.into(), path_info: Vec::new(), otherwise, records };
            !std::ptr::eq(blog.runs(&script), &blog.backend)
        };
        assert!(beside("/blog/legacy.php", false) && beside("/blog/sub/index.php", false));
        assert!(!beside("/blog/index.php", false) && !beside("/blog/legacy.php", true));
        assert!(!beside("/legacy.php", false) && !beside("/blog/sub/legacy.php", false));
    }

    #[test]
    fn what_a_link_leads_to_is_asked_of_those_who_may_wait() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap().join("a");
        std::fs::write(&real, "a").unwrap();
        std::fs::set_permissions(&real, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let (_, meta) = Access::Waiting(dir.path()).open(b"/a").unwrap();
        let reader = Reader::new("a", 0x7fff_fff0, Vec::new());
        let rules = FileRules { reader, ..FileRules::default() };
        let may_send = |root, waits| rules.may_send(root, &meta, seconds(), waits, || Some(real.clone()));
        let elsewhere = Path::new("/site");
        assert_eq!(may_send(elsewhere, false), Err(Miss::Wait));
        assert_eq!(may_send(elsewhere, true), Err(Miss::Forbidden));
        assert_eq!(may_send(real.parent().unwrap(), false), Ok(()), "below the root");
    }

    #[test]
    fn a_prefix_is_one_of_whole_components() {
        let blog = site("blog", &[], "/blog");
        let inside = |path: &'static [u8]| blog.inside(path).map(Inside::as_bytes);
        assert_eq!(inside(b"/blog"), Some(&b""[..]));
        assert_eq!(inside(b"/blog/"), Some(&b"/"[..]));
        assert_eq!(inside(b"/blog/a"), Some(&b"/a"[..]));
        for other in [&b"/a"[..], b"/", b"", b"/blogger", b"/blog-old/a", b"/blo/-old/x.txt", b"/x/blog"] {
            assert_eq!(inside(other), None, "{}", String::from_utf8_lossy(other));
        }
        assert_eq!(site("any", &[], "/").inside(b"/a").map(Inside::as_bytes), Some(&b"/a"[..]));
    }

    #[test]
    fn the_most_specific_site_wins() {
        let routes = Routes {
            sites: vec![
                site("any", &[], "/"),
                site("blog", &[], "/blog"),
                site("org", &["example.org"], "/"),
                site("below", &["*.example.org"], "/"),
                site("deep", &["*.a.example.org"], "/"),
            ],
            ..Routes::default()
        };
        let pick = |host, path: &str| routes.pick(host, path.as_bytes()).unwrap().name.as_str();
        assert_eq!(pick("x.test", "/"), "any");
        assert_eq!(pick("x.test", "/blog"), "blog");
        assert_eq!(pick("x.test", "/blog/1"), "blog");
        assert_eq!(pick("x.test", "/blogger"), "any");
        assert_eq!(pick("EXAMPLE.org", "/"), "org");
        assert_eq!(pick("www.example.org", "/"), "below");
        assert_eq!(pick("b.a.example.org", "/"), "deep");
        let named = Routes { sites: vec![site("org", &["example.org"], "/")], ..Routes::default() };
        assert!(named.pick("other.test", b"/").is_none());
        for bad in [
            "a b",
            "",
            "*",
            "*.",
            "*.*.org",
            "www.*.org",
            "example.org:80",
            "example.org.",
            "[::1]:80",
            "u@a",
        ] {
            assert!(HostPattern::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(HostPattern::parse("*.Example.org"), Ok(HostPattern::Below(".example.org".into())));
        assert_eq!(HostPattern::parse("[::1]"), Ok(HostPattern::Exact("[::1]".into())));
        assert_eq!(HostPattern::parse("[0::1]"), HostPattern::parse("[::1]"));
    }
}
