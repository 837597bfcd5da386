//! PHP scripts beside the front controller of an application that was recognised: under php-fpm each of them runs when its URL is asked for.
//!
//! The application in worker mode knows nothing of them, so they run in classic mode, by processes of their own: a second application of
//! the plan, to which the front sends these scripts' requests and no others. What lies below the document root as the plan is made counts:
//! what is put there later answers nobody by itself before somebody has asked for a reload.

use std::{
    collections::VecDeque,
    fs,
    os::unix::fs::MetadataExt,
    path::Path,
    rc::Rc,
    time::{Duration, Instant},
};

use hayate_front::rules::Hidden;
use hayate_pool::Way;
use serde::{Deserialize, Serialize};

use super::{App, FrontController};

/// Levels below the document root, entries that are looked at, and scripts that are listed.
const LEVELS: usize = 12;
const ENTRIES: usize = 200_000;
const MOST: usize = 20_000;
/// Bytes of their names: several plans are remembered, and handed from process to process.
const NAMES: usize = 1 << 20;
/// How long disks that are slow are looked at, for all applications, and for each at least, as long as that is no more than `AT_MOST` for all: the
/// master waits for a plan no longer than a minute.
const PATIENCE: Duration = Duration::from_secs(20);
const LEAST: Duration = Duration::from_secs(1);
const AT_MOST: Duration = Duration::from_secs(40);
/// What is the application's: its front controller, and what Octane puts beside it for FrankenPHP to start.
const OWN: [&str; 2] = ["index.php", "frankenphp-worker.php"];
/// Scripts that are named to people.
const NAMED: usize = 5;

/// Scripts of a document root that run by themselves.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scripts {
    /// Their paths as visitors ask for them, inside of the application: `/sub/index.php`.
    pub paths: Vec<String>,
    /// Not all was looked at.
    pub unseen: bool,
}

impl Scripts {
    /// For people: the first of them, with nothing in them that a terminal would obey.
    pub fn named(&self) -> String {
        let named: Vec<String> =
            self.paths.iter().take(NAMED).map(|path| path.escape_debug().to_string()).collect();
        match self.paths.len().saturating_sub(NAMED) {
            0 => named.join(", "),
            more => format!("{} and {more} more", named.join(", ")),
        }
    }
}

/// Finds the scripts beside those of `apps` that have these numbers. Each has its share of the time that is left, whatever lies below another's
/// document root.
pub(super) fn find(apps: &mut [App], recognised: &[usize]) {
    let begun = Instant::now();
    let (until, end) = (begun + PATIENCE, begun + AT_MOST);
    for (n, i) in recognised.iter().enumerate() {
        let others = u32::try_from(recognised.len().saturating_sub(n)).unwrap_or(u32::MAX).max(1);
        let now = Instant::now();
        let share = (until.saturating_duration_since(now) / others).max(LEAST);
        if let Some(app) = apps.get_mut(*i) {
            app.find_scripts((now + share).min(end));
        }
    }
}

impl App {
    /// Finds the scripts that are to run beside it, until that time. What they answer is no warm-up request of the application's.
    fn find_scripts(&mut self, until: Instant) {
        let own = OWN.into_iter().chain(self.front_controller.script.as_deref());
        let own: Vec<String> = own.map(|script| format!("/{script}")).collect();
        let mut found = look(&self.spec.document_root, &self.deny, &self.hidden(), ENTRIES, until);
        found.paths.retain(|path| !own.contains(path));
        if found.paths.is_empty() && !found.unseen {
            return;
        }
        self.scripts = Some(found);
        let warmup = std::mem::take(&mut self.warmup);
        self.warmup = warmup.into_iter().filter(|url| !self.runs_beside(url)).collect();
    }

    /// Whether a URL of the application is answered by one of the scripts beside it.
    pub fn runs_beside(&self, url: &str) -> bool {
        let Some(scripts) = self.scripts.as_ref().filter(|scripts| !scripts.paths.is_empty()) else {
            return false;
        };
        let root = &self.spec.document_root;
        self.script(url).is_some_and(|script| {
            let below = script.strip_prefix(root).ok().and_then(Path::to_str);
            below.is_some_and(|below| scripts.paths.iter().any(|path| path.strip_prefix('/') == Some(below)))
        })
    }

    /// What runs them; `None`: there are none. `taken` says which names others have.
    pub(super) fn beside(&self, taken: impl Fn(&str) -> bool) -> Option<App> {
        self.scripts.as_ref().filter(|scripts| !scripts.paths.is_empty())?;
        let mut spec = self.spec.in_way(Way::Classic);
        spec.way = Way::Configured;
        spec.name = format!("{} scripts", self.spec.name);
        while taken(&spec.name) {
            spec.name.push('\'');
        }
        // Most of the time nobody asks for them.
        spec.workers = 1..=*spec.workers.end();
        Some(App {
            beside: Some(self.spec.name.clone()),
            scripts: None,
            front_controller: FrontController::default(),
            recognised: None,
            remark: None,
            warning: None,
            warmup: Vec::new(),
            spec,
            ..self.clone()
        })
    }

    /// What is to be said of scripts that were not looked for.
    pub fn unseen_scripts(&self) -> Option<String> {
        self.scripts.as_ref().filter(|scripts| scripts.unseen)?;
        Some(format!(
            "not all that lies below {} was looked at (more than {LEVELS} levels, {ENTRIES} entries, {MOST} scripts or 1 MB of \
             their names, a directory that cannot be listed, a link to one above it, a name that is no UTF-8, a disk that is slow): \
             PHP scripts there do not run, the application answers for them. Serve a directory \
             of scripts by an [[app]] of its own (path = \"/blog\"), or all as php-fpm would: mode = \"classic\" (--mode classic)",
            self.spec.document_root.display()
        ))
    }
}

/// A directory that is to be looked at, and which those above it are: a link may lead back to one of them.
struct Directory {
    /// As in a URL, without a slash at its end.
    path: String,
    level: usize,
    within: Option<Rc<Above>>,
}

struct Above {
    id: (u64, u64),
    within: Option<Rc<Above>>,
}

/// The scripts below a document root that the front finds by their names: it follows links, and knows neither what is hidden nor what is denied.
fn look(root: &Path, deny: &[String], hidden: &Hidden, mut left: usize, until: Instant) -> Scripts {
    let mut found = Scripts::default();
    let mut named = 0_usize;
    let mut directories = VecDeque::from([Directory { path: String::new(), level: 0, within: None }]);
    // What lies high is found, however much lies deep.
    'all: while let Some(Directory { path, level, within }) = directories.pop_front() {
        let at = root.join(path.trim_start_matches('/'));
        let Ok(meta) = fs::metadata(&at) else { continue };
        let id = (meta.dev(), meta.ino());
        let mut above = within.as_deref();
        while let Some(one) = above.filter(|one| one.id != id) {
            above = one.within.as_deref();
        }
        // Below a link that leads back there are all scripts once more.
        found.unseen |= above.is_some();
        if above.is_some() || is_composers(&at) {
            continue;
        }
        let within = Some(Rc::new(Above { id, within }));
        let Ok(entries) = fs::read_dir(&at) else {
            found.unseen = true;
            continue;
        };
        for entry in entries.flatten() {
            let full = left == 0 || found.paths.len() >= MOST || named > NAMES;
            if full || left.is_multiple_of(256) && Instant::now() > until {
                found.unseen = true;
                break 'all;
            }
            left -= 1;
            let Ok(kind) = entry.file_type() else { continue };
            let name = entry.file_name();
            let is_script = name.as_encoded_bytes().ends_with(b".php");
            if kind.is_file() && !is_script {
                continue;
            }
            let Some(name) = name.to_str() else {
                found.unseen |= is_script || kind.is_dir();
                continue;
            };
            let path = format!("{path}/{name}");
            let is_denied = deny.iter().any(|denied| Path::new(&path).starts_with(denied));
            if is_denied || name.starts_with('.') && name != ".well-known" {
                continue;
            }
            // As the front does.
            let (is_dir, is_file) = match kind.is_symlink() {
                false => (kind.is_dir(), kind.is_file()),
                true => fs::metadata(entry.path()).map_or((false, false), |at| (at.is_dir(), at.is_file())),
            };
            if is_dir && level < LEVELS {
                directories.push_back(Directory { path, level: level + 1, within: within.clone() });
            } else if is_dir {
                found.unseen = true;
            } else if is_file && is_script && !hidden.hides(path.as_bytes()) {
                named = named.saturating_add(path.len());
                found.paths.push(path);
            }
        }
    }
    found.paths.sort();
    found
}

/// Whether Composer has made a directory: what lies there is for the application, and nobody asks for it but who tries to get in.
fn is_composers(at: &Path) -> bool {
    at.join("composer/autoload_real.php").is_file() && at.join("autoload.php").is_file()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn soon() -> Instant {
        Instant::now() + PATIENCE
    }

    #[test]
    fn scripts_are_found_as_the_front_finds_them() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("public");
        for file in [
            "public/index.php",
            "public/legacy.php",
            "public/sub/index.php",
            "public/sub/deep/a b.php",
            "public/sub.php/c.php",
            "public/.hidden/x.php",
            "public/.x.php",
            "public/.well-known/y.php",
            "public/a.php.bak",
            "public/A.PHP",
            "public/data/d.php",
            "public/data2/d.php",
            "public/secret.php",
            "public/vendor/autoload.php",
            "public/vendor/composer/autoload_real.php",
            "public/vendor/acme/e.php",
            "public/assets/vendor/connector.php",
            "storage/upload.php",
        ] {
            let path = dir.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "<?php").unwrap();
        }
        symlink("../storage", root.join("storage")).unwrap();
        symlink("nowhere.php", root.join("broken.php")).unwrap();
        symlink("legacy.php", root.join("link.php")).unwrap();
        fs::create_dir(root.join("dir.php")).unwrap();
        let hidden = Hidden::new(&["secret.*".to_owned()]).unwrap();
        let found = look(&root, &["/data".into()], &hidden, ENTRIES, soon());
        let want = [
            "/.well-known/y.php",
            "/assets/vendor/connector.php",
            "/data2/d.php",
            "/index.php",
            "/legacy.php",
            "/link.php",
            "/storage/upload.php",
            "/sub.php/c.php",
            "/sub/deep/a b.php",
            "/sub/index.php",
        ];
        assert_eq!((found.paths, found.unseen), (want.map(String::from).to_vec(), false));
        symlink("..", root.join("sub/back")).unwrap();
        assert!(look(&root, &[], &hidden, ENTRIES, soon()).unseen);
        fs::remove_file(root.join("sub/back")).unwrap();
        assert!(look(&root, &[], &hidden, 5, soon()).unseen);
        assert!(look(&root, &[], &hidden, 256, Instant::now()).unseen);
    }

    #[test]
    fn names_are_limited_in_all() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..5_000 {
            fs::write(dir.path().join(format!("{number:0>240}.php")), "").unwrap();
        }
        let found = look(dir.path(), &[], &Hidden::default(), ENTRIES, soon());
        assert!(found.unseen && (NAMES..NAMES + 300).contains(&found.paths.iter().map(String::len).sum()));
    }

    #[test]
    fn what_is_too_deep_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("a/".repeat(LEVELS + 1));
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("x.php"), "").unwrap();
        let found = look(dir.path(), &[], &Hidden::default(), ENTRIES, soon());
        assert_eq!(found, Scripts { paths: Vec::new(), unseen: true });
    }

    #[test]
    fn what_runs_beside_an_application_is_its_own_but_for_the_mode() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for file in ["index.php", "worker.php", "legacy.php", "sub/index.php"] {
            fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
            fs::write(root.join(file), "").unwrap();
        }
        let mut app = crate::fallback::tests::app(&root, "worker.php", Some("index.php"));
        app.index = vec!["index.php".into()];
        app.warmup = ["/", "/legacy.php?a=b", "/sub/", "/shop"].map(String::from).to_vec();
        app.find_scripts(soon());
        let scripts = app.scripts.clone().unwrap();
        assert_eq!(scripts.named(), "/legacy.php, /sub/index.php, /worker.php");
        assert_eq!(app.warmup, ["/", "/shop"]);
        for (url, beside) in
            [("/legacy.php/a?b", true), ("/index.php/a", false), ("/sub/", true), ("/x", false)]
        {
            assert_eq!(app.runs_beside(url), beside, "{url}");
        }
        let beside = app.beside(|name| name == "a scripts").unwrap();
        assert_eq!((&*beside.spec.name, beside.beside.as_deref()), ("a scripts'", Some("a")));
        assert_eq!(beside.spec.mode, hayate_pool::Mode::Classic);
        assert_eq!(beside.spec.env, [("A".to_owned(), "b".to_owned())]);
        fs::remove_file(root.join("legacy.php")).unwrap();
        fs::remove_file(root.join("worker.php")).unwrap();
        fs::remove_dir_all(root.join("sub")).unwrap();
        let mut alone = crate::fallback::tests::app(&root, "worker.php", Some("index.php"));
        alone.find_scripts(soon());
        assert!(alone.scripts.is_none() && alone.beside(|_| false).is_none());
    }
}
