//! The ways in which a path can be read. A rule that keeps somebody out has to hold for what PHP and its applications make of a path, too.
//!
//! `/uploads/x.php/y` runs `/uploads/x.php`; `/uploads/` may run `/uploads/index.php`; and with a front controller `/index.php/admin` is the
//! same page as `/admin`. Of `//x/admin` PHP's `parse_url()` takes `x` for a host and `/admin` for the path. So what restricts looks at all of these, what changes an answer only at what was asked for, and `stop` wants all of
//! them to fit, or a name that is made up would lead past the rules that follow.

use smallvec::SmallVec;

/// What a reading is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// What was asked for, or what the front controller takes for it.
    Asked,
    /// A script that may run, with the rest of the path as PATH_INFO.
    Script,
    /// A script that may run because a directory was asked for.
    Index,
    /// What is left where a target that begins with two slashes is read as one that names a host.
    BehindHost,
}

/// One way to read a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reading<'a> {
    pub(crate) kind: Kind,
    pub(crate) path: &'a [u8],
}

/// Scripts in one path. No application has so many; more of them are refused, or each would cost another look at all rules.
const SCRIPTS: usize = 4;

/// What an application's paths are read by.
#[derive(Debug, Default, Clone)]
pub(crate) struct Scripts {
    /// Its front controller, with a slash before it: "/index.php".
    pub(crate) front_controller: Option<Vec<u8>>,
    /// Scripts that are tried in a directory.
    pub(crate) index: Vec<Vec<u8>>,
}

/// The readings of a path that was normalised and begins with a slash, and what the indexes of it are called.
pub(crate) struct Readings<'a> {
    asked: &'a [u8],
    indexes: Vec<Vec<u8>>,
    of_controller: Option<&'a [u8]>,
    scripts: SmallVec<[&'a [u8]; SCRIPTS]>,
    behind_host: Option<&'a [u8]>,
}

/// The path behind what may be taken for a host: of `raw`, a target's path as it was sent, which normalised is `path`. Scripts see it as it
/// was sent, also when rules have rewritten it.
pub(crate) fn behind_host<'a>(raw: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(b"/").filter(|_| raw.starts_with(b"//"))?;
    Some(memchr::memchr(b'/', rest).and_then(|at| rest.get(at..)).unwrap_or(b"/"))
}

impl<'a> Readings<'a> {
    /// `None`: there are too many.
    pub(crate) fn new(path: &'a [u8], known: &Scripts) -> Option<Readings<'a>> {
        let mut scripts = SmallVec::new();
        for at in memchr::memmem::find_iter(path, b".php/") {
            if scripts.len() == SCRIPTS {
                return None;
            }
            scripts.extend(path.get(..at.saturating_add(4)));
        }
        let indexes = match path.last() {
            Some(b'/') => known.index.iter().map(|name| [path, &name[..]].concat()).collect(),
            _ => Vec::new(),
        };
        let after = known.front_controller.as_ref().and_then(|controller| path.strip_prefix(&controller[..]));
        let of_controller = after.filter(|rest| rest.first() == Some(&b'/'));
        Some(Readings { asked: path, indexes, of_controller, scripts, behind_host: None })
    }

    /// With what [`behind_host`] has found.
    pub(crate) fn and(self, behind_host: Option<&'a [u8]>) -> Readings<'a> {
        Readings { behind_host, ..self }
    }

    /// All of them; first what was asked for.
    pub(crate) fn all(&self) -> impl Iterator<Item = Reading<'_>> {
        let asked = std::iter::once(self.asked).chain(self.of_controller);
        let asked = asked.map(|path| Reading { kind: Kind::Asked, path });
        let scripts = self.scripts.iter().map(|path| Reading { kind: Kind::Script, path });
        let indexes = self.indexes.iter().map(|path| Reading { kind: Kind::Index, path });
        let behind_host = self.behind_host.iter().map(|path| Reading { kind: Kind::BehindHost, path });
        asked.chain(scripts).chain(indexes).chain(behind_host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readings(path: &str) -> Option<Vec<(Kind, String)>> {
        let known =
            Scripts { front_controller: Some(b"/index.php".to_vec()), index: vec![b"index.php".to_vec()] };
        let readings = Readings::new(path.as_bytes(), &known)?;
        let text = |reading: Reading<'_>| String::from_utf8(reading.path.to_vec()).unwrap();
        Some(readings.all().map(|reading| (reading.kind, text(reading))).collect())
    }

    #[test]
    fn a_path_is_read_as_whoever_answers_reads_it() {
        use Kind::*;
        for (path, want) in [
            ("/a.css", vec![(Asked, "/a.css")]),
            ("/a/", vec![(Asked, "/a/"), (Index, "/a/index.php")]),
            ("/a.php", vec![(Asked, "/a.php")]),
            ("/a.php/x.css", vec![(Asked, "/a.php/x.css"), (Script, "/a.php")]),
            (
                "/index.php/admin",
                vec![(Asked, "/index.php/admin"), (Asked, "/admin"), (Script, "/index.php")],
            ),
            ("/index.phpx", vec![(Asked, "/index.phpx")]),
            ("/a.php/b.php/c", vec![(Asked, "/a.php/b.php/c"), (Script, "/a.php"), (Script, "/a.php/b.php")]),
        ] {
            let want: Vec<_> = want.into_iter().map(|(kind, path)| (kind, path.to_owned())).collect();
            assert_eq!(readings(path), Some(want), "{path}");
        }
        assert_eq!(readings(&"/a.php".repeat(6)), None);
    }

    #[test]
    fn two_slashes_begin_what_may_be_a_host() {
        for (raw, path, want) in [
            ("//x/a/b", "/x/a/b", Some("/a/b")),
            ("//x", "/x", Some("/")),
            ("///x/a", "/x/a", Some("/a")),
            ("/x//a", "/x/a", None),
            ("/%2fx/a", "/x/a", None),
        ] {
            let found = behind_host(raw.as_bytes(), path.as_bytes());
            assert_eq!(found, want.map(str::as_bytes), "{raw}");
        }
        let (path, known) = (&b"/x/a"[..], Scripts::default());
        let readings = Readings::new(path, &known).unwrap().and(behind_host(b"//x/a", path));
        let kinds: Vec<_> = readings.all().map(|reading| reading.kind).collect();
        assert_eq!(kinds, [Kind::Asked, Kind::BehindHost]);
    }
}
