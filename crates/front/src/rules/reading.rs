//! The ways in which a path can be read. A rule that keeps somebody out has to hold for what PHP and its applications make of a path, too.
//!
//! `/uploads/x.php/y` runs `/uploads/x.php`; and with a front controller `/index.php/admin` is the same page as `/admin`, as is `/index.phpadmin` for those that cut the script's name off (Symfony's and Yii's requests do, and with them
//! Laravel, Lumen and Drupal). A front controller that asks `parse_url()` for the path of REQUEST_URI takes `//x/admin` for the page `/admin` of a
//! host x. So what restricts looks at all of these, and what changes an answer only at what was asked for. `stop` wants all of
//! them to fit, or a name that is made up would lead past the rules that follow. Only where a rule leads on, and nothing more is led elsewhere,
//! it ends them one by one ([`super::condition::Stopped`]).

use std::borrow::Cow;

use smallvec::SmallVec;

use crate::route;

/// What a reading is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// What was asked for, or what the front controller takes for it.
    Asked,
    /// A script that may run, with the rest of the path as PATH_INFO; or what a script may take for the path.
    Script,
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
}

impl Scripts {
    /// A name below a document root.
    pub(crate) fn new(front_controller: Option<&str>) -> Scripts {
        Scripts { front_controller: front_controller.map(|name| [b"/", name.as_bytes()].concat()) }
    }
}

/// The readings of a path that was normalised and begins with a slash.
pub(crate) struct Readings<'a> {
    asked: &'a [u8],
    of_controller: Option<&'a [u8]>,
    glued: Option<Vec<u8>>,
    behind: &'a [Vec<u8>],
    scripts: SmallVec<[&'a [u8]; SCRIPTS]>,
}

/// What [behind a host][BehindHost::new] stands in a raw path, normalised.
#[derive(Debug, Default)]
pub(crate) struct BehindHost(SmallVec<[Vec<u8>; 1]>);

impl BehindHost {
    /// What is left of a raw path, if what follows its first two slashes is taken for a host: `/admin` of `//x/admin`. Also of what stands
    /// behind the site's `prefix` and its front controller, which applications cut off before; and of the path as it is when it is decoded.
    /// Scripts see it as it was sent, also when rules have rewritten it.
    pub(crate) fn new(raw: &[u8], prefix: &[u8], known: &Scripts) -> BehindHost {
        let mut found = SmallVec::new();
        let decoded: Cow<'_, [u8]> = percent_encoding::percent_decode(raw).into();
        if memchr::memmem::find(&decoded, b"//").is_none() {
            return BehindHost(found);
        }
        for path in [raw, &decoded[..]] {
            let inside = path.strip_prefix(prefix).unwrap_or(path);
            let controller = known.front_controller.as_ref().map_or(&b""[..], |name| name);
            let after = inside.strip_prefix(controller).unwrap_or(inside);
            for path in [path, inside, after] {
                let host = path.strip_prefix(b"//").filter(|host| !host.starts_with(b"/"));
                let behind =
                    host.map(|host| memchr::memchr(b'/', host).and_then(|at| host.get(at..)).unwrap_or(b"/"));
                let Some(behind) = behind.and_then(route::normalise) else { continue };
                for path in [behind.strip_prefix(prefix).unwrap_or_default(), &behind] {
                    // And behind that the front controller's name, with or without a slash after it.
                    let rest = path
                        .strip_prefix(controller)
                        .filter(|rest| !controller.is_empty() && !rest.is_empty());
                    let rest = rest.map(|rest| [b"/", rest.strip_prefix(b"/").unwrap_or(rest)].concat());
                    for path in std::iter::once(path.to_vec()).chain(rest) {
                        if path.starts_with(b"/") && !found.contains(&path) {
                            found.push(path);
                        }
                    }
                }
            }
        }
        BehindHost(found)
    }
}

impl<'a> Readings<'a> {
    /// `None`: there are too many.
    pub(crate) fn new(path: &'a [u8], behind: &'a BehindHost, known: &Scripts) -> Option<Readings<'a>> {
        let mut scripts = SmallVec::new();
        for path in std::iter::once(path).chain(behind.0.iter().map(Vec::as_slice)) {
            for (n, at) in memchr::memmem::find_iter(path, b".php/").enumerate() {
                if n == SCRIPTS {
                    return None;
                }
                scripts.extend(path.get(..at.saturating_add(4)));
            }
        }
        scripts.extend(behind.0.iter().map(Vec::as_slice));
        let after = known.front_controller.as_ref().and_then(|controller| path.strip_prefix(&controller[..]));
        let of_controller = after.filter(|rest| rest.first() == Some(&b'/'));
        let glued = after.filter(|rest| rest.first().is_some_and(|first| *first != b'/'));
        let glued = glued.map(|rest| [b"/", rest].concat());
        Some(Readings { asked: path, of_controller, glued, behind: &behind.0, scripts })
    }

    /// What may be the page that is asked for: what a script makes of the path that cuts off all that it may, and a script that runs. The whole
    /// path, if it is none of these.
    pub(crate) fn pages(&self) -> impl Iterator<Item = &[u8]> {
        let behind = self.behind.iter().map(Vec::as_slice);
        let cut = behind.chain(self.of_controller).chain(self.glued.as_deref());
        cut.chain(self.scripts.iter().copied()).chain([self.asked])
    }

    /// All of them; first what was asked for.
    pub(crate) fn all(&self) -> impl Iterator<Item = Reading<'_>> {
        let asked = std::iter::once(self.asked).chain(self.of_controller);
        let asked = asked.map(|path| Reading { kind: Kind::Asked, path });
        let scripts = self.scripts.iter().copied().chain(self.glued.as_deref());
        let scripts = scripts.map(|path| Reading { kind: Kind::Script, path });
        asked.chain(scripts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readings(path: &str) -> Option<Vec<(Kind, String)>> {
        let known = Scripts::new(Some("index.php"));
        let behind = BehindHost::default();
        let readings = Readings::new(path.as_bytes(), &behind, &known)?;
        let text = |reading: Reading<'_>| String::from_utf8(reading.path.to_vec()).unwrap();
        Some(readings.all().map(|reading| (reading.kind, text(reading))).collect())
    }

    #[test]
    fn all_ways_to_write_a_page_have_one_name() {
        let known = Scripts::new(Some("index.php"));
        for (raw, path) in [
            ("/login", "/login"),
            ("//1/login", "/1/login"),
            ("/index.php/login", "/index.php/login"),
            ("/index.php//2/login", "/index.php/2/login"),
            ("/index.phplogin", "/index.phplogin"),
        ] {
            let behind = BehindHost::new(raw.as_bytes(), b"", &known);
            let readings = Readings::new(path.as_bytes(), &behind, &known).unwrap();
            assert_eq!(readings.pages().next(), Some(&b"/login"[..]), "{raw}");
        }
    }

    #[test]
    fn what_may_be_taken_for_a_host_is_cut_off() {
        let known = Scripts::new(Some("index.php"));
        let behind = |raw: &str, prefix: &str| -> Vec<String> {
            let behind = BehindHost::new(raw.as_bytes(), prefix.as_bytes(), &known);
            behind.0.iter().map(|path| String::from_utf8(path.clone()).unwrap()).collect()
        };
        for (raw, prefix, want) in [
            ("/a/b", "", &[][..]),
            ("/a//b/c", "", &[]),
            ("//a", "", &["/"]),
            ("///a/b", "", &[]),
            ("//x/a", "", &["/a"]),
            ("//x:80/a//b%20c", "", &["/a/b c"]),
            ("//x%2fy/a", "", &["/a", "/y/a"]),
            ("/%2fx/a", "", &["/a"]),
            ("/index.php//x/a", "", &["/a"]),
            ("//x/shop/a", "/shop", &["/a", "/shop/a"]),
            ("/shop//x/a", "/shop", &["/a"]),
            ("/shop/index.php//x/a", "/shop", &["/a"]),
        ] {
            assert_eq!(behind(raw, prefix), want, "{raw} below {prefix:?}");
        }
    }

    #[test]
    fn a_path_is_read_as_whoever_answers_reads_it() {
        use Kind::*;
        for (path, want) in [
            ("/a.css", vec![(Asked, "/a.css")]),
            ("/a/", vec![(Asked, "/a/")]),
            ("/a.php", vec![(Asked, "/a.php")]),
            ("/a.php/x.css", vec![(Asked, "/a.php/x.css"), (Script, "/a.php")]),
            (
                "/index.php/admin",
                vec![(Asked, "/index.php/admin"), (Asked, "/admin"), (Script, "/index.php")],
            ),
            ("/index.phpx", vec![(Asked, "/index.phpx"), (Script, "/x")]),
            ("/index.php", vec![(Asked, "/index.php")]),
            ("/a.php/b.php/c", vec![(Asked, "/a.php/b.php/c"), (Script, "/a.php"), (Script, "/a.php/b.php")]),
        ] {
            let want: Vec<_> = want.into_iter().map(|(kind, path)| (kind, path.to_owned())).collect();
            assert_eq!(readings(path), Some(want), "{path}");
        }
        assert_eq!(readings(&"/a.php".repeat(6)), None);
    }
}
