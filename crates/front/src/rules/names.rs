//! Names of files that are not for visitors: what editors, version control, package managers and dumps leave in a document root.

use regex::bytes::Regex;

use super::pattern;

/// What is not sent by default. `vendor/` is no secret as such: Laravel's packages publish their style sheets in `public/vendor`, and
/// applications whose root is the document root load theirs from there. What is never meant for visitors there is PHP (phpunit's
/// eval-stdin.php was a hole in thousands of sites) and Composer's own records.
pub const HIDDEN_FILES: [&str; 29] = [
    "*~",
    "#*#",
    "*.bak",
    "*.old",
    "*.orig",
    "*.save",
    "*.swp",
    "*.swo",
    "*.rej",
    "*.sql",
    "*.sql.*",
    "*.sqlite",
    "*.sqlite3",
    "*.sqlite-*",
    "*.inc",
    "composer.*",
    "auth.json",
    "php.ini",
    "web.config",
    "phpunit.xml*",
    "debug.log",
    "error.log",
    "error_log",
    "laravel.log",
    "Thumbs.db",
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

    /// `path` is normalised and begins with a slash.
    pub fn hides(&self, path: &[u8]) -> bool {
        self.0.as_ref().is_some_and(|names| names.is_match(path))
    }
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
