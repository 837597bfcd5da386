//! Looks for what should not lie below a document root: keys, dumps, backups, repositories, and the application's own parts.
//!
//! It warns and refuses nothing, for names are only signs. It reads directories, and of keys the first bytes; it is bounded, and meant for
//! `hayate check` and a thread of its own.

use std::{
    collections::{BTreeSet, VecDeque},
    fmt, fs,
    io::Read,
    mem::take,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
    thread,
};

use hayate_front::rules::Hidden;

use rustix::{
    fs::{Access, access},
    process::geteuid,
};

use crate::{htaccess, of_application, plan::App, privileges::Identity, read_only};

/// Levels below the document root, entries in all, and findings that are listed.
const LEVELS: usize = 12;
const ENTRIES: usize = 50_000;
const LISTED: usize = 8;
/// Directories that are listed: each is to be looked at.
const DIRECTORIES: usize = 40;

/// What was found below one document root.
#[derive(Debug, Default)]
pub struct Secrets {
    root: PathBuf,
    /// Paths below it that visitors can read, and what they are.
    open: Vec<(PathBuf, &'static str)>,
    /// Those that Hayate never sends, but another server would.
    hidden: Vec<(PathBuf, &'static str)>,
    /// Directories that a .htaccess closes and the configuration does not.
    closed: Vec<PathBuf>,
    /// Directories that one restricts in a way that is not read here.
    in_part: Vec<PathBuf>,
    /// Directories in which one keeps scripts from running.
    no_scripts: Vec<PathBuf>,
    /// The document root's own .htaccess closes some by its rules.
    has_rules: bool,
    /// There is more than was looked at.
    unseen: bool,
}

/// Looks below the applications' document roots, in a thread of its own, and writes what it finds to the log.
pub fn warn_of<'a>(apps: impl Iterator<Item = &'a App>) {
    let looks: Vec<_> = apps.map(|app| (app.spec.name.clone(), warnings_of(app))).collect();
    let look = move || {
        for (app, warnings) in looks {
            for warning in warnings() {
                tracing::warn!(app, "{warning}");
            }
        }
    };
    // Without a thread there is no warning, and nothing else is lost.
    let _ = thread::Builder::new().name("secrets".into()).spawn(look);
}

/// What looks at an application's directory and below its document root, and says what it finds.
pub fn warnings_of(app: &App) -> impl FnOnce() -> Vec<String> + Send + use<> {
    let (root, deny, hidden) = (app.spec.document_root.clone(), app.closed(), app.hidden());
    let (known, has_scripts) = (app.kept_out_of(), app.has_scripts());
    let (cwd, seen) = (app.spec.cwd.clone(), app.htaccess_seen.clone());
    let user = app.identity.as_ref().map_or_else(|| geteuid().as_raw(), Identity::uid);
    move || {
        let mut found = look(&root, &deny, &hidden);
        let is_seen = |below: &Path| seen.iter().any(|path| Path::new(path) == Path::new("/").join(below));
        let is_new = |below: &PathBuf| !is_known(below, &known) && !is_seen(below);
        found.has_rules &= !is_seen(Path::new(""));
        found.closed.retain(|below| !is_seen(below));
        found.in_part.retain(is_new);
        found.no_scripts.retain(|below| has_scripts && is_new(below));
        let mut warnings = found.warnings();
        warnings.extend(read_only::warning(&cwd, user).filter(|_| has_scripts));
        warnings
    }
}

/// Device and inode of a directory, by whatever name.
fn identity(directory: &Path) -> Option<(u64, u64)> {
    let known = fs::metadata(directory).ok()?;
    Some((known.dev(), known.ino()))
}

/// Whether somebody has written a rule with this directory in mind: by its path, or as a whole word of a pattern.
fn is_known(below: &Path, rules: &[String]) -> bool {
    let (path, text) = (Path::new("/").join(below), below.to_string_lossy());
    let is_named = |rule: &String| {
        let part_of_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        !text.is_empty()
            && rule.match_indices(&*text).any(|(at, _)| {
                let after = rule.get(at.saturating_add(text.len())..);
                !part_of_word(rule.get(..at).and_then(|before| before.chars().next_back()))
                    && !part_of_word(after.and_then(|after| after.chars().next()))
            })
    };
    rules.iter().any(|rule| path.starts_with(rule) || is_named(rule))
}

/// Looks below a document root, of which the front sends nothing that `hidden` names, and nothing that the application closes itself (`deny`).
pub fn look(root: &Path, deny: &[String], hidden: &Hidden) -> Secrets {
    let is_denied = |below: &Path| deny.iter().any(|path| below.starts_with(path.trim_start_matches('/')));
    let mut of_root = htaccess::read(&root.join(".htaccess"));
    // Those that nobody is sent in any case need nothing.
    let closed: Vec<PathBuf> =
        of_root.directories.iter().filter(|name| !hidden_by_a_dot(name)).map(PathBuf::from).collect();
    let there: Vec<PathBuf> = closed.iter().filter(|below| root.join(below).is_dir()).cloned().collect();
    let has_rules = of_root.by_names;
    let mut found = Secrets { root: root.to_owned(), has_rules, ..Secrets::default() };
    found.closed.extend(there.iter().filter(|below| !is_denied(below)).cloned());
    let (mut left, mut directories) = (ENTRIES, VecDeque::from([(PathBuf::new(), 0)]));
    // A directory that several links lead to is looked at by the first of them, so links that lead back end.
    let mut linked = BTreeSet::from_iter(identity(root));
    // What lies high is seen, however much lies deep.
    'all: while let Some((below, level)) = directories.pop_front() {
        if level > 0 && (is_denied(&below) || there.contains(&below)) {
            continue;
        }
        // Nobody is sent anything from there, and what its .htaccess says cannot be read.
        if access(root.join(&below), Access::EXEC_OK).is_err() {
            continue;
        }
        let said =
            if level > 0 { htaccess::read(&root.join(&below).join(".htaccess")) } else { take(&mut of_root) };
        if level > 0 && said.all {
            found.closed.push(below);
            continue;
        }
        if said.in_part || said.all || level > 0 && (said.by_names || said.runs_instead) {
            found.in_part.push(below.clone());
        }
        if said.no_scripts {
            found.no_scripts.push(below.clone());
        }
        let Ok(entries) = fs::read_dir(root.join(&below)) else { continue };
        for entry in entries.flatten() {
            if left == 0 {
                found.unseen = true;
                break 'all;
            }
            left -= 1;
            let (path, name) = (below.join(entry.file_name()), entry.file_name());
            let Ok(kind) = entry.file_type() else { continue };
            let Some(name) = name.to_str() else {
                // No key of the configuration could name it.
                found.unseen |= !kind.is_file();
                continue;
            };
            let by_link = kind.is_symlink() && entry.path().is_dir();
            let is_dir = kind.is_dir() || by_link;
            let what = if is_dir && (there.contains(&path) || is_denied(&path)) {
                None
            } else if is_dir {
                directory(name, level)
            } else {
                file(name, level).or_else(|| content(name, &entry.path()))
            };
            match what {
                Some(what) if is_hidden(name) || hidden.hides(&in_url(&path)) => {
                    found.hidden.push((path, what))
                }
                Some(what) => found.open.push((path, what)),
                None if by_link && !identity(&entry.path()).is_some_and(|at| linked.insert(at)) => {}
                None if is_dir && level < LEVELS => directories.push_back((path, level + 1)),
                None => found.unseen |= is_dir,
            }
        }
    }
    found.open.sort();
    found.hidden.sort();
    found.closed.sort();
    found.in_part.sort();
    found.no_scripts.sort();
    found.closed.dedup();
    found
}

fn hidden_by_a_dot(path: &str) -> bool {
    path.split('/').any(|name| name.starts_with('.'))
}

/// A path below the root as visitors write it.
fn in_url(path: &Path) -> Vec<u8> {
    [b"/", path.as_os_str().as_bytes()].concat()
}

/// What the front never sends, whatever is asked for.
fn is_hidden(name: &str) -> bool {
    name.starts_with('.') || name.to_ascii_lowercase().contains(".php")
}

fn directory(name: &str, level: usize) -> Option<&'static str> {
    match name {
        ".git" | ".svn" | ".hg" => Some("a repository"),
        ".ssh" | ".aws" | ".gnupg" | ".kube" => Some("keys"),
        "vendor" if level == 0 => Some("the application's libraries"),
        "node_modules" if level == 0 => Some("libraries"),
        _ => None,
    }
}

fn file(name: &str, level: usize) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    let ends =
        |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending) && name.len() > ending.len());
    let is_env =
        name == ".env" || name.starts_with(".env.") && !ends(&[".example", ".dist", ".sample", ".test"]);
    let archive = [".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".zst", ".7z", ".rar"];
    match &*name {
        _ if is_env => Some("the application's environment"),
        "hayate.toml" => Some("a configuration"),
        ".htpasswd" | "auth.json" | ".netrc" | ".pgpass" | ".my.cnf" | ".npmrc" => Some("passwords"),
        "credentials.json" | "secrets.json" | "secrets.yml" | "secrets.yaml" | "database.yml"
        | "parameters.yml" => Some("passwords, by its name"),
        "id_rsa" | "id_dsa" | "id_ecdsa" | "id_ed25519" => Some("a private key"),
        "docker-compose.yml" | "docker-compose.yaml" | "compose.yml" | "compose.yaml" => {
            Some("a configuration")
        }
        "composer.json" | "composer.lock" | "symfony.lock" | "package-lock.json" | "yarn.lock"
        | "pnpm-lock.yaml"
            if level == 0 =>
        {
            Some("the application's own, as in a project's directory")
        }
        "access.log" | "debug.log" | "dev.log" | "error.log" | "error_log" | "laravel.log"
        | "npm-debug.log" | "php_errors.log" | "php_error.log" | "prod.log" | "yarn-error.log" => {
            Some("a log")
        }
        "dump.rdb" => Some("a database"),
        // Explorer's, of pictures.
        "thumbs.db" => None,
        _ if ends(&[".htpasswd"]) => Some("passwords"),
        _ if ends(&[".env"]) => Some("an environment"),
        _ if ends(&[".tfstate", ".tfvars"]) => Some("a configuration"),
        _ if ends(&[".sql.gz", ".sql.bz2", ".sql.xz", ".sql.zst", ".sql.zip", ".dump"]) => {
            Some("a dump of a database")
        }
        // Deeper ones are mostly schemas that an application comes with.
        _ if level == 0 && ends(&[".sql"]) => Some("a dump of a database"),
        _ if DATABASES.iter().any(|database| {
            let journals = ["", "-journal", "-wal", "-shm"];
            journals
                .iter()
                .any(|journal| name.strip_suffix(journal).is_some_and(|name| name.ends_with(database)))
        }) =>
        {
            Some("a database")
        }
        _ if ends(&[".p12", ".pfx", ".jks", ".ppk", ".kdbx"]) => Some("keys"),
        _ if ends(&[
            "~", ".bak", ".bck", ".bkp", ".backup", ".old", ".orig", ".save", ".swp", ".swo", ".swn",
        ]) =>
        {
            Some("a backup")
        }
        _ if (name.starts_with("backup") || name.contains("-backup")) && ends(&archive) => Some("a backup"),
        _ if name.starts_with("wp-config.php.") || name.starts_with("wp-config.") && ends(&[".txt"]) => {
            Some("a backup")
        }
        _ => None,
    }
}

/// How names of SQLite's databases end.
const DATABASES: [&str; 5] = [".sqlite", ".sqlite2", ".sqlite3", ".db", ".db3"];

/// What a file's beginning says: certificates have the same endings as their keys, schemas the same as dumps.
fn content(name: &str, path: &Path) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    let (signs, what): (&[&[u8]], _) = match name.rsplit_once('.')?.1 {
        "pem" | "key" => (&[b"PRIVATE KEY"], "a private key"),
        "sql" => (
            &[
                b"MySQL dump",
                b"MariaDB dump",
                b"PostgreSQL database dump",
                b"SQL Dump",
                b"PRAGMA foreign_keys=OFF",
            ],
            "a dump of a database",
        ),
        // Names of many things.
        "dat" | "data" | "sdb" | "sq3" | "s3db" | "sl3" => (&[b"SQLite format 3\0"], "a database"),
        _ => return None,
    };
    let mut start = [0; 4096];
    let n = of_application::open(path).and_then(|mut file| file.read(&mut start)).ok()?;
    let start = start.get(..n)?;
    signs.iter().any(|sign| start.windows(sign.len()).any(|window| window == *sign)).then_some(what)
}

impl Secrets {
    /// Sentences for people: one for what visitors can read, one for the rest.
    pub fn warnings(&self) -> Vec<String> {
        let root = self.root.display();
        let mut out = Vec::new();
        if !self.open.is_empty() {
            out.push(format!(
                "visitors can read what is hardly meant for them: {}; move it out of {root}, or set document_root to the directory \
                 that is meant for visitors",
                List(&self.open)
            ));
        }
        if !self.closed.is_empty() {
            let paths: Vec<String> =
                self.closed.iter().take(DIRECTORIES).map(|path| format!("/{}", path.display())).collect();
            let more = match self.closed.len().saturating_sub(DIRECTORIES) {
                0 => String::new(),
                more => format!(", and {more} more"),
            };
            out.push(format!(
                "a .htaccess below {root} closes directories for Apache, and Hayate reads no .htaccess; unless the application keeps visitors \
                 out by itself: deny = {paths:?}{more}"
            ));
        }
        if !self.in_part.is_empty() {
            out.push(format!(
                "the .htaccess of {} below {root} restricts access in a way that Hayate does not read (passwords, addresses, names, conditions): look \
                 at it, and write what it means: deny = [\"/…\"] for a whole directory, or a rule with deny, allow or basic_auth; then {}",
                Directories(&self.in_part),
                Seen(&self.in_part)
            ));
        }
        if !self.no_scripts.is_empty() {
            out.push(format!(
                "the .htaccess of {} below {root} keeps scripts from running for Apache, and Hayate reads no .htaccess: if visitors can put files \
                 there, write a rule with that path, regex = \"(?i)\\\\.(php\\\\d?|phtml|phar)$\" and deny = 403; then {}",
                Directories(&self.no_scripts),
                Seen(&self.no_scripts)
            ));
        }
        if self.has_rules {
            out.push(format!(
                "the .htaccess of {root} closes files or directories by rules for their names (RewriteRule with [F] or to a script, <Files>, RedirectMatch), and \
                 Hayate reads no .htaccess: see which, and write deny = [\"/…\"] for them, or a rule; then htaccess_seen = [\"/\"]"
            ));
        }
        if self.unseen {
            out.push(format!(
                "not all that lies below {root} was looked at (more than {LEVELS} levels, more than {ENTRIES} entries, or names that are no UTF-8), \
                 so a .htaccess or a secret there is not named: look at it yourself"
            ));
        }
        if !self.hidden.is_empty() {
            out.push(format!(
                "below {root} lies what looks like secrets: {}; Hayate never sends these, but they do not belong there",
                List(&self.hidden)
            ));
        }
        out
    }
}

/// A name as it may stand on a terminal: whoever may write below a document root has chosen it.
fn shown(path: &Path) -> String {
    // An apostrophe stands for itself, between the quotes of TOML as well.
    path.to_string_lossy().escape_debug().to_string().replace("\\'", "'")
}

struct Directories<'a>(&'a [PathBuf]);

impl fmt::Display for Directories<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, path) in self.0.iter().take(DIRECTORIES).enumerate() {
            write!(f, "{}/{}", if i == 0 { "" } else { ", " }, shown(path))?;
        }
        match self.0.len().saturating_sub(DIRECTORIES) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// The key by which nothing more is said of some.
struct Seen<'a>(&'a [PathBuf]);

impl fmt::Display for Seen<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = self.0.first().map(|path| shown(path)).unwrap_or_default();
        let more = if self.0.len() > 1 { ", …" } else { "" };
        write!(f, "htaccess_seen = [\"/{first}\"{more}]")
    }
}

struct List<'a>(&'a [(PathBuf, &'static str)]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (path, what)) in self.0.iter().take(LISTED).enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}{} ({what})", shown(path))?;
        }
        match self.0.len().saturating_sub(LISTED) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_a_secret_is_found_and_what_does_not_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let open = [
            "backup-2026.tar.gz",
            "config/parameters.yml",
            "store.dat",
            "tls/server.key",
            "vendor/autoload.inc",
        ];
        let hidden = [
            ".env",
            ".env.local",
            ".git/config",
            ".htpasswd",
            "auth.json",
            "composer.json",
            "Site.SQL",
            "db/dump.sql",
            "db/site.sql.gz",
            "id_rsa",
            "prod.env",
            "terraform.tfstate",
            "var/app.db",
            "var/app.db-wal",
            "wp-config.txt",
            "notes.txt~",
            "old.bak",
            "var/data.sqlite",
            "wp-config.php.bak",
            "wp-config.php~",
            "wp-content/debug.log",
        ];
        let fine = [
            "index.php",
            ".env.example",
            ".well-known/x",
            "logo.zip",
            "cacert.pem",
            "sub/composer.json",
            "sub/vendor/x.js",
            "mysql.css",
            "db/schema.sql",
            "old",
            "Thumbs.db",
            "other.dat",
            "a/b/c/d/e/f.sql",
        ];
        for path in open.iter().chain(&hidden).chain(&fine) {
            let text = match path.rsplit('/').next() {
                Some("server.key") => "-----BEGIN PRIVATE KEY-----",
                Some("dump.sql") => "-- MariaDB dump 10.19",
                Some("store.dat") => "SQLite format 3\0",
                _ => "CREATE TABLE x",
            };
            put(path, text);
        }
        let names = Hidden::new(&hayate_front::rules::HIDDEN_FILES).unwrap();
        let found = look(dir.path(), &[], &names);
        let paths = |list: &[(PathBuf, &str)]| {
            list.iter().map(|(path, _)| path.display().to_string()).collect::<Vec<_>>()
        };
        let want = |list: &[&str]| {
            let mut list: Vec<String> = list
                .iter()
                .map(|path| path.replace("vendor/autoload.inc", "vendor").replace(".git/config", ".git"))
                .collect();
            list.sort();
            list
        };
        assert_eq!(paths(&found.open), want(&open));
        assert_eq!(paths(&found.hidden), want(&hidden));
        let said = found.warnings();
        assert!(
            said[0].contains("server.key (a private key), ") && said[0].ends_with("meant for visitors"),
            "{said:?}"
        );
        assert!(said[1].contains(" and 13 more;") && said[1].contains(".git (a repository)"), "{said:?}");
        assert!(
            look(&dir.path().join("sub"), &[], &names).warnings().len() == 2
                && look(Path::new("/nowhere"), &[], &names).warnings().is_empty()
        );
    }

    #[test]
    fn rules_of_the_root_that_close_are_told_of() {
        let dir = tempfile::tempdir().unwrap();
        let says = |text: &str, deny: &[&str]| {
            fs::write(dir.path().join(".htaccess"), text).unwrap();
            let deny: Vec<String> = deny.iter().map(|path| (*path).to_owned()).collect();
            look(dir.path(), &deny, &Hidden::default()).warnings().join("\n")
        };
        let by_names = "by rules for their names";
        assert!(says("RewriteRule ^content/(.*)\\.txt$ index.php [L]", &[]).contains(by_names));
        assert_eq!(says("RewriteRule ^ index.php [L,QSA]", &[]), "");
        // Kirby, of which some folders are not there.
        let kirby =
            "RewriteRule ^content/(.*) index.php [L]\nRewriteRule ^(site|kirby|\\.git)/(.*) index.php [L]\n";
        for name in ["content/page", "site/config", ".git", "vendor"] {
            fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        fs::write(dir.path().join("site/config/accounts.sqlite"), "").unwrap();
        let said = says(kirby, &[]);
        assert!(said.contains(r#"deny = ["/content", "/site"]"#) && !said.contains(by_names), "{said}");
        assert!(!said.contains("accounts.sqlite"), "it is closed with its folder: {said}");
        assert!(says(kirby, &["/site"]).contains(r#"deny = ["/content"]"#));
        assert!(!says(kirby, &["/site", "/content"]).contains(".htaccess"));
        let said = says("RewriteRule ^vendor/ - [F]\n", &[]);
        assert!(said.contains(r#"deny = ["/vendor"]"#) && !said.contains("libraries"), "{said}");
    }

    #[test]
    fn what_was_not_looked_at_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("a/b/c/d/e/f/g");
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join(".htaccess"), "Require all denied").unwrap();
        fs::write(dir.path().join("a/.htaccess"), "# nothing\n".repeat(8000)).unwrap();
        let found = look(dir.path(), &[], &Hidden::default());
        assert_eq!(found.closed, [PathBuf::from("a/b/c/d/e/f/g")]);
        assert_eq!((found.in_part, found.unseen), (vec![PathBuf::from("a")], false));
        fs::create_dir_all(dir.path().join("x/".repeat(LEVELS + 2))).unwrap();
        let found = look(dir.path(), &[], &Hidden::default());
        assert!(
            found.unseen && found.warnings().iter().any(|said| said.starts_with("not all that lies below"))
        );
    }

    #[test]
    fn names_of_files_say_nothing_to_a_terminal() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a\x1b[31m\x07.sql"), "").unwrap();
        fs::write(dir.path().join("b\nThis can be served.sql"), "").unwrap();
        fs::create_dir(dir.path().join("c\x1b[2J")).unwrap();
        fs::write(dir.path().join("c\x1b[2J/.htaccess"), "Require all denied").unwrap();
        let said = look(dir.path(), &[], &Hidden::default()).warnings();
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(!said.iter().flat_map(|said| said.chars()).any(char::is_control), "{said:?}");
    }

    #[test]
    fn directories_behind_links_are_looked_at_once() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let link = |to: &Path, name: &str| std::os::unix::fs::symlink(to, dir.path().join(name)).unwrap();
        fs::write(other.path().join(".htpasswd"), "").unwrap();
        fs::create_dir(other.path().join("closed")).unwrap();
        fs::write(other.path().join("closed/.htaccess"), "Require all denied").unwrap();
        std::os::unix::fs::symlink(other.path(), other.path().join("closed/self")).unwrap();
        link(other.path(), "storage");
        link(dir.path(), "again");
        let found = look(dir.path(), &[], &Hidden::default());
        assert_eq!(found.closed, [PathBuf::from("storage/closed")]);
        let named: Vec<_> = found.open.iter().chain(&found.hidden).map(|(path, _)| path.clone()).collect();
        assert_eq!((named, found.unseen), (vec![PathBuf::from("storage/.htpasswd")], false));
    }

    #[test]
    fn directories_that_a_htaccess_closes_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let closes = [
            ("data", "Deny from all"),
            (
                "conf",
                "<IfModule mod_authz_core.c>\n    Require all denied\n</IfModule>\n<IfModule !mod_authz_core.c>\nDeny from all",
            ),
            ("a/inc", "  require all denied\n"),
            ("after", "<Files x>\n</Files>\nrequire all denied"),
        ];
        let opens = [
            ("files", "<Files *.sql>\nRequire all denied\n</Files>"),
            (
                "nested",
                "<Files *.sql>\n<IfModule x>\nRequire all denied\n</IfModule>\nDeny from all\n</Files>",
            ),
            ("open", "Require all granted\n# Deny from all"),
        ];
        for (path, text) in closes.iter().chain(&opens) {
            fs::create_dir_all(dir.path().join(path)).unwrap();
            fs::write(dir.path().join(path).join(".htaccess"), text).unwrap();
            fs::write(dir.path().join(path).join("dump.sqlite"), "").unwrap();
        }
        fs::write(dir.path().join(".htaccess"), "deny from all").unwrap();
        let found = look(dir.path(), &[], &Hidden::default());
        assert_eq!(found.closed, ["a/inc", "after", "conf", "data"].map(PathBuf::from));
        assert_eq!(found.open.len(), 3, "{found:?}");
        assert!(
            found.warnings()[1].ends_with(r#"deny = ["/a/inc", "/after", "/conf", "/data"]"#),
            "{found:?}"
        );
        let deny = ["/data", "/conf", "/a", "/after"].map(String::from);
        assert!(look(dir.path(), &deny, &Hidden::default()).closed.is_empty());
    }
}
