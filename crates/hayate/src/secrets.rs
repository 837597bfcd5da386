//! Looks for what should not lie below a document root: keys, dumps, backups, repositories, and the application's own parts.
//!
//! It warns and refuses nothing, for names are only signs. It reads directories, and of keys the first bytes; it is bounded, and meant for
//! `hayate check` and a thread of its own.

use std::{
    fmt, fs,
    io::Read,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    thread,
};

use hayate_front::rules::Hidden;

use crate::{of_application, plan::App};

/// Levels below the document root, entries in all, and findings that are listed.
const LEVELS: usize = 4;
const ENTRIES: usize = 50_000;
const LISTED: usize = 8;

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
    /// The document root's own .htaccess closes some by its rules.
    has_rules: bool,
}

/// Looks below the applications' document roots, in a thread of its own, and writes what it finds to the log.
pub fn warn_of(apps: &[App]) {
    let of_app =
        |app: &App| (app.spec.name.clone(), app.spec.document_root.clone(), app.deny.clone(), app.hidden());
    let roots: Vec<_> = apps.iter().map(of_app).collect();
    let look = move || {
        for (app, root, deny, hidden) in roots {
            for warning in look(&root, &deny, &hidden).warnings() {
                tracing::warn!(app, "{warning}");
            }
        }
    };
    // Without a thread there is no warning, and nothing else is lost.
    let _ = thread::Builder::new().name("secrets".into()).spawn(look);
}

/// Looks below a document root, of which the front sends nothing that `hidden` names, and nothing that the application's `deny` closes.
pub fn look(root: &Path, deny: &[String], hidden: &Hidden) -> Secrets {
    let has_rules = closes_by_rules(&root.join(".htaccess"));
    let mut found = Secrets { root: root.to_owned(), has_rules, ..Secrets::default() };
    let (mut left, mut directories) = (ENTRIES, vec![(PathBuf::new(), 0)]);
    while let Some((below, level)) = directories.pop() {
        if deny.iter().any(|path| below == Path::new(path.trim_start_matches('/'))) {
            continue;
        }
        if level > 0 && closed_for_apache(&root.join(&below).join(".htaccess")) {
            found.closed.push(below);
            continue;
        }
        let Ok(entries) = fs::read_dir(root.join(&below)) else { continue };
        for entry in entries.flatten() {
            if left == 0 {
                return found;
            }
            left -= 1;
            let (path, name) = (below.join(entry.file_name()), entry.file_name());
            let Some(name) = name.to_str() else { continue };
            let Ok(kind) = entry.file_type() else { continue };
            let what = if kind.is_dir() {
                directory(name, level)
            } else {
                file(name, level).or_else(|| content(name, &entry.path()))
            };
            match what {
                Some(what) if is_hidden(name) || hidden.hides(&in_url(&path)) => {
                    found.hidden.push((path, what))
                }
                Some(what) => found.open.push((path, what)),
                None if kind.is_dir() && level < LEVELS => directories.push((path, level + 1)),
                None => {}
            }
        }
    }
    found.open.sort();
    found.hidden.sort();
    found.closed.sort();
    found
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

/// Whether a .htaccess closes files or directories to all by rules for their names.
fn closes_by_rules(path: &Path) -> bool {
    let mut start = Vec::new();
    let read = of_application::open(path).and_then(|file| file.take(64 << 10).read_to_end(&mut start));
    let closes = |line: &str| {
        let line = line.trim().to_ascii_lowercase();
        let mut words = line.split_whitespace();
        match words.next() {
            Some("rewriterule") => {
                words.last().and_then(|flags| flags.strip_prefix('[')).is_some_and(|flags| {
                    flags.trim_end_matches(']').split(',').any(|flag| {
                        matches!(flag, "f" | "forbidden" | "g" | "gone")
                            || flag.starts_with("r=4")
                            || flag.starts_with("redirect=4")
                    })
                })
            }
            Some("redirectmatch" | "redirect") => {
                words.next().is_some_and(|status| status.starts_with('4') || status == "gone")
            }
            Some(word) => word.starts_with("<files"),
            None => false,
        }
    };
    read.is_ok() && String::from_utf8_lossy(&start).lines().any(closes)
}

/// Whether a .htaccess closes its whole directory to all: outside of sections, or in one that asks which version of Apache it is.
fn closed_for_apache(path: &Path) -> bool {
    let mut start = Vec::new();
    let read = of_application::open(path).and_then(|file| file.take(16 << 10).read_to_end(&mut start));
    if read.is_err() {
        return false;
    }
    let mut inside_of_files = 0_u32;
    for line in String::from_utf8_lossy(&start).lines() {
        let line = line.trim().to_ascii_lowercase();
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [first, ..] if first.starts_with("</") => inside_of_files = inside_of_files.saturating_sub(1),
            // A section within another is counted, whatever it asks.
            [first, ..]
                if first.starts_with('<')
                    && (inside_of_files > 0
                        || !first.starts_with("<ifmodule") && !first.starts_with("<ifversion")) =>
            {
                inside_of_files += 1;
            }
            ["deny", "from", "all"] | ["require", "all", "denied"] if inside_of_files == 0 => return true,
            _ => {}
        }
    }
    false
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
            let paths: Vec<String> = self.closed.iter().map(|path| format!("/{}", path.display())).collect();
            out.push(format!(
                "a .htaccess below {root} closes directories for Apache, and Hayate reads no .htaccess; unless the application keeps visitors \
                 out by itself: deny = {paths:?}"
            ));
        }
        if self.has_rules {
            out.push(format!(
                "the .htaccess of {root} closes files or directories by rules for their names (RewriteRule with [F], <Files>, RedirectMatch), and \
                 Hayate reads no .htaccess: see which, and write deny = [\"/…\"] for them, or a rule"
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

struct List<'a>(&'a [(PathBuf, &'static str)]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (path, what)) in self.0.iter().take(LISTED).enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}{} ({what})", path.display())?;
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
    fn rules_that_close_by_names_are_told_of() {
        let dir = tempfile::tempdir().unwrap();
        let says = |text: &str| {
            fs::write(dir.path().join(".htaccess"), text).unwrap();
            look(dir.path(), &[], &Hidden::default())
                .warnings()
                .iter()
                .any(|warning| warning.contains("by rules for their names"))
        };
        for closes in [
            "RewriteRule ^bl-content/(databases|pages)/.*$ - [R=404,L]",
            "  rewriterule ^tower - [F]",
            "RewriteRule (^|/)\\. - [L,F]",
            "RedirectMatch 404 /\\.git",
            "<FilesMatch \"\\.db$\">\nRequire all denied\n</FilesMatch>",
        ] {
            assert!(says(closes), "{closes}");
        }
        for not in [
            "",
            "RewriteEngine On\nRewriteCond %{REQUEST_FILENAME} !-f\nRewriteRule ^ index.php [L,QSA]",
            "RewriteRule ^old$ /new [R=301,L]",
            "Redirect 301 /a /b",
            "# RewriteRule ^a - [F]",
        ] {
            assert!(!says(not), "{not}");
        }
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
