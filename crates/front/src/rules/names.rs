//! Names of files that are not for visitors: what editors, version control, package managers and dumps leave in a document root.

use std::sync::LazyLock;

use regex::bytes::Regex;

use super::pattern;

/// What is not sent by default. `vendor/` is no secret as such: Laravel's packages publish their style sheets in `public/vendor`, and
/// applications whose root is the document root load theirs from there. What is never meant for visitors there is PHP (phpunit's
/// eval-stdin.php was a hole in thousands of sites) and Composer's own records.
///
/// What honest sites send is not in it, though guides for other servers close it: `*.log`, `*.ini` (what updaters ask for), `*.conf`, `*.sh`
/// (installers), `*.yml` (OpenAPI, docker-compose.yml to be fetched by curl), `*.dist`, `*.pem` and `*.key` (certificates, Keynote), package.json.
pub const HIDDEN_FILES: [&str; 61] = [
    "*~",
    "#*#",
    "*.bak",
    "*.bck",
    "*.bkp",
    "*.backup",
    "*.old",
    "*.orig",
    "*.save",
    "*.swp",
    "*.swo",
    "*.swn",
    "*.rej",
    "*.db",
    "*.db3",
    "*.db-*",
    "*.dump",
    "*.sql",
    "*.sql.*",
    "*.sqlite",
    "*.sqlite2",
    "*.sqlite3",
    "*.sqlite-*",
    "*.sqlite3-*",
    "dump.rdb",
    "*.inc",
    "*.env",
    "composer.*",
    "auth.json",
    "symfony.lock",
    "yarn.lock",
    "package-lock.json",
    "npm-shrinkwrap.json",
    "pnpm-lock.yaml",
    "*.htpasswd",
    "*.kdbx",
    "*.ppk",
    "*.tfstate",
    "*.tfvars",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    "php.ini",
    "web.config",
    "wp-config.*",
    "phpunit.xml*",
    "access.log",
    "debug.log",
    "dev.log",
    "error.log",
    "error_log",
    "laravel.log",
    "npm-debug.log",
    "php_error*.log",
    "prod.log",
    "yarn-error.log",
    "desktop.ini",
    "/vendor/**/*.php",
    "/vendor/composer/**",
    "/vendor/bin/**",
];

/// Which files are not sent, and not run, whoever asks. Capitals and small letters are the same.
#[derive(Debug, Default, Clone)]
pub struct Hidden(Option<Regex>);

impl Hidden {
    /// Of patterns: one that begins with a slash is for the path from the document root, others for each name in it. An error says which
    /// is wrong and why.
    pub fn new(patterns: &[impl AsRef<str>]) -> Result<Hidden, String> {
        // Compiled once for all sites: it takes ten milliseconds without optimisation, and there may be a thousand of them.
        static DEFAULT: LazyLock<Result<Hidden, String>> = LazyLock::new(|| Hidden::compile(&HIDDEN_FILES));
        if patterns.iter().map(AsRef::as_ref).eq(HIDDEN_FILES) {
            return DEFAULT.clone();
        }
        Hidden::compile(patterns)
    }

    fn compile(patterns: &[impl AsRef<str>]) -> Result<Hidden, String> {
        if patterns.is_empty() {
            return Ok(Hidden::default());
        }
        let mut all = Vec::with_capacity(patterns.len());
        for given in patterns {
            let given = given.as_ref();
            if given.is_empty() || (!given.starts_with('/') && given.contains('/')) {
                return Err(format!(
                    "'{given}' is no pattern for names; write such as *.bak, or /vendor/**/*.php from the document root"
                ));
            }
            let whole = if given.starts_with('/') { given.to_owned() } else { format!("/**/{given}") };
            all.push(pattern::glob(&whole).map_err(|why| format!("'{given}': {why}"))?);
            if !given.starts_with('/') {
                // A directory of that name is not for visitors either.
                all.push(pattern::glob(&format!("{whole}/**")).map_err(|why| format!("'{given}': {why}"))?);
            }
        }
        let all = all.iter().map(|one| format!("(?:{one})")).collect::<Vec<_>>().join("|");
        // Of what a copy was called by another system.
        pattern::regex(&format!("(?i){all}")).map(|all| Hidden(Some(all)))
    }

    /// `path` is normalised and begins with a slash. What is packed, or put aside by a log's rotation, is as its content.
    pub fn hides(&self, path: &[u8]) -> bool {
        self.0
            .as_ref()
            .is_some_and(|names| names.is_match(path) || unpacked(path).any(|path| names.is_match(path)))
    }
}

/// What packers and archivers append to a name.
const PACKED: [&str; 16] = [
    "gz", "zip", "bz2", "xz", "zst", "br", "7z", "rar", "tar", "tgz", "tbz2", "txz", "lz4", "lz", "lzma", "z",
];
/// Endings in a row: `x.bak.tar.gz`.
const ENDINGS: usize = 4;

/// A path without the endings that packers and rotations of logs append to names, one after the other: of `/a.inc.1.gz` this is `/a.inc.1` and
/// `/a.inc`.
pub(crate) fn unpacked(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::successors(Some(path), |path| {
        let (rest, ending) = path.split_at_checked(path.iter().rposition(|b| matches!(b, b'.' | b'/'))?)?;
        let (dot, ending) = ending.split_first()?;
        let number = !ending.is_empty() && ending.iter().all(u8::is_ascii_digit);
        let packed = PACKED.iter().any(|known| ending.eq_ignore_ascii_case(known.as_bytes()));
        (*dot == b'.' && (number || packed)).then_some(rest)
    })
    .skip(1)
    .take(ENDINGS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hidden_by_default() {
        let hidden = Hidden::new(&HIDDEN_FILES).unwrap();
        for path in [
            "/dump.sql",
            "/a/dump.sql.gz",
            "/wp-config.txt~",
            "/#index.html#",
            "/a.inc",
            "/composer.json",
            "/x/composer.lock",
            "/vendor/phpunit/phpunit/src/Util/PHP/eval-stdin.php",
            "/vendor/a.php",
            "/vendor/composer/installed.json",
            "/a.bak/x.txt",
            "/index.html.swp",
            "/new\nline.bak",
            "/SITE.SQL",
            "/\u{e9}.sql",
            "/x.bak.zip",
            "/a.inc.gz",
            "/db.sqlite.gz",
            "/db.sqlite.TGZ",
            "/site.old.tar.gz",
            "/debug.log.1",
            "/debug.log.20260101.gz",
            "/conf/staff.htpasswd",
            "/data/app.db",
            "/data/app.db-wal",
            "/app.db.gz",
            "/Thumbs.db",
            "/db.sqlite3-journal",
            "/site.backup",
            "/dump.rdb",
            "/prod.env",
            "/yarn.lock",
            "/wp-config.txt",
            "/wp-config.php",
            "/id_rsa",
            "/terraform.tfstate",
            "/terraform.tfstate.backup",
            "/logs/php_errors.log",
            "/access.log.3.gz",
        ] {
            assert!(hidden.hides(path.as_bytes()), "{path}");
        }
        assert!(hidden.hides(b"/\xff\xfe.bak"));
        for path in [
            "/",
            "/index.php",
            "/vendor/telescope/app.css",
            "/vendor/bootstrap/js/bootstrap.min.js",
            "/a.sqlx",
            "/bak",
            "/mysql",
            "/composer",
            "/x/vendor/a.php",
            "/include.js",
            "/release.tar.gz",
            "/app.js.gz",
            "/style.css.br",
            "/v1.2/x.1",
            "/bak.zip",
            "/.zip",
            "/gz",
            "/chat.log",
            "/update.ini",
            "/install.sh",
            "/openapi.yaml",
            "/docker-compose.yml",
            "/package.json",
            "/server.crt",
            "/slides.key",
            "/ca.pem",
            "/config.xml.dist",
            "/movie.swf",
            "/adb",
            "/env.js",
            "/id_rsa.pub",
            "/wp-config-help.html",
        ] {
            assert!(!hidden.hides(path.as_bytes()), "{path}");
        }
        assert!(!Hidden::default().hides(b"/a.bak"));
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        assert!(Hidden::new(&["a/b"]).unwrap_err().contains("'a/b'"));
        assert!(Hidden::new(&["[a"]).unwrap_err().contains("'[a'"));
        assert!(Hidden::new(&[""]).is_err());
    }
}
