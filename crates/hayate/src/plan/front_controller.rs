//! Which script answers what is no file, and why.
//!
//! With a front controller all that is no file goes to it, whatever its name ends in, as nginx has it with
//! `try_files $uri $uri/ /index.php`: applications make `/sitemap.xml` and `/api/v1.2/x` themselves. So an `index.php` is taken for one only
//! where something says that it is; else a missing style sheet would get the application's page, with status 200 and its cookies.

use std::path::Path;

use hayate_pool::Mode;
use serde::{Deserialize, Serialize};

use super::{app::AppResolver, flag, mode::Running};
use crate::{
    config::{self, ConfigError},
    htaccess::{self, Directive},
    of_application,
};

/// See the module's head.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrontController {
    /// Below the document root.
    pub script: Option<String>,
    /// For people: what says so, and how to have it otherwise.
    pub why: String,
}

const INDEX: &str = "index.php";

impl AppResolver<'_> {
    pub(super) fn front_controller(
        &self,
        app: &config::App,
        document_root: &Path,
        running: Option<&Running>,
    ) -> Result<FrontController, ConfigError> {
        let by_flag = self.args.front_controller.as_deref();
        if let Some(script) = by_flag.or(app.front_controller.as_deref()) {
            let why = "as front_controller says".to_owned();
            if script.is_empty() {
                return Ok(FrontController { script: None, why });
            }
            let script = script.trim_start_matches('/');
            let found = match by_flag {
                Some(_) => document_root.join(script).canonicalize().map_err(|error| {
                    flag(format!(
                        "--front-controller: cannot use {script} below {}: {error}",
                        document_root.display()
                    ))
                })?,
                None => self.file("front_controller", &document_root.join(script))?,
            };
            if !found.starts_with(document_root) {
                let why = format!("front_controller: {script} lies outside the document root");
                return Err(if by_flag.is_some() {
                    flag(why)
                } else {
                    self.error("front_controller", why).of_disk()
                });
            }
            if running.is_none() && script.to_ascii_lowercase().contains(".php") {
                let why = format!(
                    "front_controller: {script} does not run with php = \"off\"; write such as index.html"
                );
                return Err(if by_flag.is_some() { flag(why) } else { self.error("front_controller", why) });
            }
            return Ok(FrontController { script: Some(script.to_owned()), why });
        }
        let Some(running) = running else {
            return Ok(FrontController { script: None, why: "as php = \"off\" has it".to_owned() });
        };
        let there = document_root.join(INDEX).is_file();
        if let Mode::Worker { script } = &running.mode {
            let other = || script.strip_prefix(document_root).ok().and_then(Path::to_str).map(str::to_owned);
            let script = if there { Some(INDEX.to_owned()) } else { other() };
            let why = match script {
                Some(_) => "in worker mode the application answers",
                None => "there is no index.php, and the worker script lies outside of the document root",
            };
            return Ok(FrontController { script, why: why.to_owned() });
        }
        if !there {
            return Ok(FrontController { script: None, why: "there is no index.php".to_owned() });
        }
        let framework = running.is_of_framework.then(|| "a recognised framework".to_owned());
        let known = framework.or_else(|| by_name(document_root)).or_else(|| by_files(document_root));
        Ok(match known.map_or_else(|| by_htaccess(document_root), Ok) {
            Ok(what) => FrontController {
                script: Some(INDEX.to_owned()),
                why: format!("{what}; front_controller = \"\" (--front-controller \"\") for 404 instead"),
            },
            Err(what) => FrontController {
                script: None,
                why: format!(
                    "{what}; front_controller = \"{INDEX}\" (--front-controller {INDEX}) has {INDEX} answer"
                ),
            },
        })
    }
}

/// Directories that are called so hold nothing but a front controller and files for visitors.
fn by_name(document_root: &Path) -> Option<String> {
    let name = document_root.file_name()?.to_str()?;
    matches!(name, "public" | "web" | "webroot").then(|| format!("the document root is called {name}"))
}

fn by_files(document_root: &Path) -> Option<String> {
    let has = |files: &[&str]| files.iter().all(|file| document_root.join(file).is_file());
    let known = [
        ("WordPress", &["wp-load.php", "wp-blog-header.php", "wp-includes/version.php"][..]),
        ("Drupal", &["core/lib/Drupal.php"]),
        ("Drupal", &["includes/bootstrap.inc", "misc/drupal.js"]),
    ];
    known.iter().find(|(_, files)| has(files)).map(|(name, _)| format!("this is {name}"))
}

/// `Err` says why not.
fn by_htaccess(document_root: &Path) -> Result<String, String> {
    let none = || "nothing says that index.php answers what is no file".to_owned();
    let path = document_root.join(".htaccess");
    // Nobody writes more than that by hand.
    let text = of_application::read(&path, 256 << 10).map_err(|_| none())?;
    match rewrites(&String::from_utf8_lossy(&text)) {
        Rewrites::Plainly => Ok(".htaccess sends to index.php what is no file".to_owned()),
        Rewrites::WithMore(to) => Err(format!(
            ".htaccess sends what is no file to {to}, with more than its name, which Hayate does not do"
        )),
        Rewrites::Not => Err(none()),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Rewrites {
    /// All that is no file goes to index.php, which finds the path in REQUEST_URI.
    Plainly,
    /// It goes there with a query or a path of its own, without which the script would answer something else.
    WithMore(String),
    Not,
}

/// Looks for Apache's `FallbackResource`, and for a `RewriteRule` whose pattern fits every path.
fn rewrites(text: &str) -> Rewrites {
    let mut found = Rewrites::Not;
    for Directive { name, words } in htaccess::directives(text) {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (all, to) = match (&*name, &words[..]) {
            ("fallbackresource", [to, ..]) => (true, *to),
            ("rewriterule", [pattern, to, ..]) => (
                matches!(
                    *pattern,
                    "." | "^"
                        | ".*"
                        | "^.*"
                        | "^.*$"
                        | "(.*)"
                        | "^(.*)"
                        | "^(.*)$"
                        | ".+"
                        | "^.+$"
                        | "^(.+)$"
                        | "(.+)"
                        | "/"
                        | ".?"
                ),
                *to,
            ),
            _ => continue,
        };
        let to = to.strip_prefix("%{ENV:BASE}").unwrap_or(to);
        let to = to.strip_prefix("./").unwrap_or(to).trim_start_matches('/');
        let Some(more) = to.strip_prefix(INDEX).filter(|_| all) else { continue };
        match more {
            "" | "?%{QUERY_STRING}" => return Rewrites::Plainly,
            _ => found = Rewrites::WithMore(to.to_owned()),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_htaccess_files_say() {
        for text in [
            // WordPress
            "# BEGIN WordPress\n<IfModule mod_rewrite.c>\nRewriteEngine On\nRewriteRule .* - [E=HTTP_AUTHORIZATION:%{HTTP:Authorization}]\n\
             RewriteBase /\nRewriteRule ^index\\.php$ - [L]\nRewriteCond %{REQUEST_FILENAME} !-f\nRewriteCond %{REQUEST_FILENAME} !-d\n\
             RewriteRule . /index.php [L]\n</IfModule>",
            // Symfony
            "RewriteRule ^ %{ENV:BASE}/index.php [L]",
            // Laravel, Drupal
            "    RewriteRule ^ index.php [L]",
            // CakePHP, Joomla, Magento
            "\trewriterule ^(.*)$ index.php [QSA,L]",
            "RewriteRule .* index.php [L]",
            "FallbackResource /index.php",
            "FallbackResource \"./index.php\"",
        ] {
            assert_eq!(rewrites(text), Rewrites::Plainly, "{text}");
        }
        for text in [
            "",
            "Deny from all",
            "# RewriteRule . /index.php [L]",
            "#RewriteRule . /index.php [L]",
            "RewriteRule ^index\\.php$ - [L]",
            "RewriteRule ^wiki/(.*)$ index.php [L]",
            "RewriteRule ^_media/(.*) lib/exe/fetch.php?media=$1 [QSA,L]",
            "RewriteRule . /app.php [L]",
            "RewriteRule . /sub/index.php [L]",
            "RewriteCond %{REQUEST_URI} index.php",
            "FallbackResource disabled",
            "RewriteRule",
        ] {
            assert_eq!(rewrites(text), Rewrites::Not, "{text}");
        }
        for (text, to) in [
            ("RewriteRule ^(.*)$ index.php?url=$1 [QSA,L]", "index.php?url=$1"),
            ("RewriteRule ^(.*)$ /index.php/$1 [L]", "index.php/$1"),
        ] {
            assert_eq!(rewrites(text), Rewrites::WithMore(to.into()), "{text}");
        }
    }
}
