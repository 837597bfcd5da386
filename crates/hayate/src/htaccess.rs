//! What an application's `.htaccess` says: Apache reads it, and Hayate does not.
//!
//! So much is read that people can be told what Apache would not send: directories that are closed as a whole, by refusal or since a script
//! answers for all that is in them, and whether there are rules that close more by names. What is not understood closes nothing. There is no
//! other reader of these files.

use std::{io::Read, path::Path};

use crate::of_application;

/// Bytes that are read of one; nobody writes more by hand.
const MOST: u64 = 64 << 10;

/// A line: its first word in small letters, and the others without their quotes. Of `<Files "x">` these are `<files` and `x`.
#[derive(Debug, PartialEq, Eq)]
pub struct Directive {
    /// Such as `rewriterule`.
    pub name: String,
    /// What follows it.
    pub words: Vec<String>,
}

/// What one closes for Apache.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Closes {
    /// The directory in which it lies.
    pub all: bool,
    /// Directories below that, whole ones, as they stand in its rules: they need not exist.
    pub directories: Vec<String>,
    /// More, by rules for names or under conditions.
    pub by_names: bool,
}

/// The lines of one, in order, without comments.
pub fn directives(text: &str) -> impl Iterator<Item = Directive> {
    // A backslash at its end continues a line.
    let joined = text.replace("\\\r\n", " ").replace("\\\n", " ");
    let lines: Vec<Directive> = joined.lines().filter_map(directive).collect();
    lines.into_iter()
}

fn directive(line: &str) -> Option<Directive> {
    let line = line.trim();
    let line = line.strip_suffix('>').filter(|_| line.starts_with('<')).unwrap_or(line);
    let mut words = Vec::new();
    let mut rest = line;
    while !rest.is_empty() {
        let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''));
        let (word, after) = match quote.and_then(|quote| rest.get(1..)?.split_once(quote)) {
            Some((word, after)) => (word, after),
            None => rest.split_once(char::is_whitespace).unwrap_or((rest, "")),
        };
        words.push(word.to_owned());
        rest = after.trim_start();
    }
    let mut words = words.into_iter();
    let name = words.next().filter(|name| !name.starts_with('#'))?.to_ascii_lowercase();
    Some(Directive { name, words: words.collect() })
}

/// What the one at `path` closes; nothing if it cannot be read.
pub fn read(path: &Path) -> Closes {
    let mut start = Vec::new();
    match of_application::open(path).and_then(|file| file.take(MOST).read_to_end(&mut start)) {
        Ok(_) => closes(&String::from_utf8_lossy(&start)),
        Err(_) => Closes::default(),
    }
}

enum Section {
    /// It asks which Apache this is, or is for all files.
    Any,
    /// It is for files of some names.
    Names,
    Other,
}

fn closes(text: &str) -> Closes {
    let mut found = Closes::default();
    let (mut sections, mut conditions) = (Vec::new(), Vec::new());
    for Directive { name, words } in directives(text) {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let small: Vec<String> = words.iter().map(|word| word.to_ascii_lowercase()).collect();
        let small: Vec<&str> = small.iter().map(String::as_str).collect();
        let everywhere = sections.iter().all(|section| matches!(section, Section::Any));
        let of_names = sections.iter().any(|section| matches!(section, Section::Names));
        match (&*name, &small[..]) {
            (end, _) if end.starts_with("</") => drop(sections.pop()),
            ("<ifmodule" | "<ifversion" | "<ifdefine", _) => sections.push(Section::Any),
            ("<files", ["*"]) | ("<filesmatch", ["." | ".*" | "^.*$" | "^"]) => sections.push(Section::Any),
            // Nobody sends those.
            ("<files", [name]) if name.starts_with('.') => sections.push(Section::Other),
            ("<filesmatch", [pattern]) if pattern.starts_with("^\\.") => sections.push(Section::Other),
            ("<files" | "<filesmatch", _) => sections.push(Section::Names),
            (begin, _) if begin.starts_with('<') => sections.push(Section::Other),
            ("deny", ["from", "all"]) | ("require", ["all", "denied"]) if everywhere => found.all = true,
            ("require", ["all", "granted"]) => {}
            ("deny" | "require", _) if of_names => found.by_names = true,
            ("rewritecond", _) => {
                conditions.push(words.get(1).map(|test| (*test).to_owned()).unwrap_or_default())
            }
            ("rewriterule", _) => {
                let rule = Rule::new(&words, &std::mem::take(&mut conditions));
                if everywhere {
                    found.add(&rule);
                } else {
                    found.by_names |= rule.refuses;
                }
            }
            ("redirect" | "redirectmatch", [status, ..]) => {
                found.by_names |= status.starts_with('4') || *status == "gone";
            }
            _ => {}
        }
    }
    found.directories.sort();
    found.directories.dedup();
    found
}

impl Closes {
    fn add(&mut self, rule: &Rule<'_>) {
        if rule.is_for_what_is_no_file || !(rule.refuses || rule.runs.is_some()) {
            return;
        }
        if rule.refuses && !rule.has_conditions && is_rest(rule.pattern.trim_start_matches('^')) {
            self.all = true;
        }
        match directories(rule.pattern) {
            Some((names, is_whole)) => {
                // What lies in the directory itself is how that is asked for.
                let inside = |name: &&String| rule.runs.is_some_and(|to| Path::new(to).starts_with(name));
                let names: Vec<String> = names.iter().filter(|name| !inside(name)).cloned().collect();
                self.by_names |= !names.is_empty() && (!is_whole || rule.has_conditions);
                if is_whole && !rule.has_conditions {
                    self.directories.extend(names);
                }
            }
            None => self.by_names |= rule.refuses,
        }
    }
}

/// A `RewriteRule`, as far as it may keep files from being sent.
struct Rule<'a> {
    pattern: &'a str,
    refuses: bool,
    /// The script that answers.
    runs: Option<&'a str>,
    has_conditions: bool,
    is_for_what_is_no_file: bool,
}

impl<'a> Rule<'a> {
    fn new(words: &[&'a str], conditions: &[String]) -> Rule<'a> {
        let word = |at: usize| words.get(at).copied().unwrap_or_default();
        let flags = word(2).trim_matches(['[', ']']).to_ascii_lowercase();
        let flags: Vec<&str> = flags.split(',').map(str::trim).collect();
        let refuses = flags.iter().any(|flag| {
            matches!(*flag, "f" | "forbidden" | "g" | "gone")
                || flag
                    .strip_prefix("redirect=")
                    .or(flag.strip_prefix("r="))
                    .is_some_and(|status| status.starts_with('4'))
        });
        let redirects = flags.iter().any(|flag| matches!(flag.split('=').next(), Some("r" | "redirect")));
        let to = word(1).trim_start_matches("./").trim_start_matches('/');
        // With a query it is a route of the application's.
        let runs = (!redirects && to.to_ascii_lowercase().ends_with(".php") && !to.contains([':', '$', '?']))
            .then_some(to);
        Rule {
            pattern: word(0),
            refuses,
            runs,
            has_conditions: !conditions.is_empty(),
            is_for_what_is_no_file: conditions
                .iter()
                .any(|test| matches!(test.as_str(), "!-f" | "!-s" | "!-F")),
        }
    }
}

/// Whether the end of a pattern fits whatever follows.
fn is_rest(pattern: &str) -> bool {
    matches!(pattern.trim_end_matches('$'), "" | "." | ".*" | "(.*)" | ".+" | "(.+)" | ".?")
}

/// The directories that a pattern such as `^content/(.*)` or `^a/(b|c)/.*\.txt$` is for, and whether it is for all that is in them.
fn directories(pattern: &str) -> Option<(Vec<String>, bool)> {
    let pattern = pattern.strip_prefix('^')?;
    let pattern = pattern.strip_prefix("/?").unwrap_or(pattern).trim_start_matches('/');
    let end = pattern.bytes().position(|b| !(b.is_ascii_alphanumeric() || b"_-/\\.".contains(&b)));
    // A dot that is no letter ends what is certain.
    let dot = pattern
        .match_indices('.')
        .map(|(at, _)| at)
        .find(|at| !pattern.get(..*at).is_some_and(|before| before.ends_with('\\')));
    let end = end.into_iter().chain(dot).min().unwrap_or(pattern.len());
    let slash = pattern.get(..end)?.rfind('/').map_or(0, |at| at.saturating_add(1));
    let (before, rest) = pattern.split_at_checked(slash)?;
    let name = |text: &str| {
        let name = text.replace('\\', "");
        let is_plain = |part: &str| {
            !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b))
        };
        name.split('/').all(is_plain).then_some(name)
    };
    if let Some((names, rest)) =
        rest.strip_prefix("(?:").or(rest.strip_prefix('(')).and_then(|rest| rest.split_once(')'))
        && let Some(rest) =
            rest.strip_prefix("(/|$)").or(rest.strip_prefix("(?:/|$)")).or(rest.strip_prefix('/'))
    {
        let names: Option<Vec<String>> =
            names.split('|').map(|one| name(&format!("{before}{one}"))).collect();
        return Some((names?, is_rest(rest)));
    }
    Some((vec![name(before.strip_suffix('/')?)?], is_rest(rest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closed(text: &str) -> (Vec<String>, bool) {
        let found = closes(text);
        (found.directories, found.by_names)
    }

    #[test]
    fn lines_have_words() {
        let line = |text: &str| directives(text).next();
        let want = |name: &str, words: &[&str]| {
            Some(Directive {
                name: name.into(),
                words: words.iter().map(|word| (*word).to_owned()).collect(),
            })
        };
        assert_eq!(
            line("  RewriteRule \"^a b\" index.php  [L]"),
            want("rewriterule", &["^a b", "index.php", "[L]"])
        );
        assert_eq!(line("<FilesMatch '\\.db$'>"), want("<filesmatch", &["\\.db$"]));
        assert_eq!(line("Require \\\n  all denied"), want("require", &["all", "denied"]));
        assert_eq!(line("# x"), None);
        assert_eq!(line("<Files \"a>"), want("<files", &["\"a"]));
    }

    #[test]
    fn folders_that_a_script_answers_for_are_seen() {
        // Kirby
        let text = "<IfModule mod_rewrite.c>\nRewriteEngine on\n# RewriteBase /mysite\nRewriteRule ^content/(.*) index.php [L]\n\
                    RewriteRule ^site/(.*) index.php [L]\nRewriteRule ^kirby/(.*) index.php [L]\n\
                    RewriteCond %{REQUEST_FILENAME} !-f\nRewriteCond %{REQUEST_FILENAME} !-d\nRewriteRule ^(.*) index.php [L]\n</IfModule>";
        assert_eq!(closed(text), (["content", "kirby", "site"].map(String::from).to_vec(), false));
        for (rule, directories) in [
            ("RewriteRule ^(site|kirby)/(.*) index.php", &["kirby", "site"][..]),
            ("RewriteRule \"^/?(?:app|data\\.d)/\" /index.php [L]", &["app", "data.d"]),
            ("RewriteRule ^a/b/.*$ error.php [L]", &["a/b"]),
            ("RewriteRule ^a/(b|c)(/|$) index.php [L]", &["a/b", "a/c"]),
            // Grav
            ("RewriteRule ^(\\.git|cache|bin|logs)/(.*) error [F]", &[".git", "bin", "cache", "logs"]),
        ] {
            assert_eq!(
                closed(rule),
                (directories.iter().map(|name| (*name).to_owned()).collect(), false),
                "{rule}"
            );
        }
        for some in [
            "RewriteRule ^content/(.*)\\.(txt|md)$ index.php [L]",
            "RewriteCond %{REQUEST_URI} !\\.css$\nRewriteRule ^content/(.*) index.php [L]",
            "RewriteCond %{REQUEST_FILENAME} -f\nRewriteRule ^content/(.*) index.php [L]",
            "RewriteRule ^(system|vendor)/(.*)\\.(txt|xml|md)$ error [F]",
        ] {
            assert_eq!(closed(some), (Vec::new(), true), "{some}");
        }
        for not in [
            "RewriteRule ^(.*)$ index.php [L]",
            "RewriteRule ^ index.php [L]",
            "RewriteRule ^index\\.php$ - [L]",
            "RewriteRule ^blog/(.*)$ index.php?page=$1 [L]",
            "RewriteRule ^api/(.*)$ api/index.php [L]",
            "RewriteRule ^old/(.*)$ /index.php [R=301,L]",
            "RewriteRule ^content/(.*) - [L]",
            "RewriteCond %{REQUEST_FILENAME} !-f\nRewriteRule ^content/(.*) index.php [L]",
            "RewriteCond %{REQUEST_FILENAME} !-f\nRewriteRule ^content/(.*) - [F]",
        ] {
            assert_eq!(closed(not), (Vec::new(), false), "{not}");
        }
    }

    #[test]
    fn rules_for_names() {
        for closing in [
            "RewriteRule ^bl-content/(databases|pages)/.*\\.db$ - [R=404,L]",
            "  rewriterule ^tower - [F]",
            "RewriteRule (^|/)\\. - [L,F]",
            "RedirectMatch 404 /\\.git",
            "<FilesMatch \"\\.db$\">\nRequire all denied\n</FilesMatch>",
            "<Files x.db>\nOrder allow,deny\nDeny from all\n</Files>",
        ] {
            assert_eq!(closed(closing), (Vec::new(), true), "{closing}");
        }
        for not in [
            "",
            "RewriteEngine On\nRewriteCond %{REQUEST_FILENAME} !-f\nRewriteRule ^ index.php [L,QSA]",
            "RewriteRule ^old$ /new [R=301,L]",
            "Redirect 301 /a /b",
            "# RewriteRule ^a - [F]",
            "<FilesMatch \"\\.css$\">\nHeader set X-A b\nRequire all granted\n</FilesMatch>",
            "<Files .htaccess>\nDeny from all\n</Files>",
            "<FilesMatch \"^\\.ht\">\nRequire all denied\n</FilesMatch>",
        ] {
            assert_eq!(closed(not), (Vec::new(), false), "{not}");
        }
    }

    #[test]
    fn whole_directories() {
        for all in [
            "Deny from all",
            "<IfModule mod_authz_core.c>\n    Require all denied\n</IfModule>\n<IfModule !mod_authz_core.c>\nDeny from all",
            "  require all denied\n",
            "<Files x>\n</Files>\nrequire all denied",
            "<Files \"*\">\nDeny from all\n</Files>",
            "<FilesMatch \".*\">\nRequire all denied\n</FilesMatch>",
            "RewriteEngine on\nRewriteRule ^ - [F]",
            "RewriteRule ^(.*)$ - [F,L]",
        ] {
            assert!(closes(all).all, "{all}");
        }
        for not in [
            "<Files *.sql>\nRequire all denied\n</Files>",
            "<Files *.sql>\n<IfModule x>\nRequire all denied\n</IfModule>\nDeny from all\n</Files>",
            "Require all granted\n# Deny from all",
            "<Limit PUT>\nDeny from all\n</Limit>",
            "RewriteCond %{HTTP_HOST} x\nRewriteRule ^ - [F]",
            "RewriteRule ^ index.php",
        ] {
            assert!(!closes(not).all, "{not}");
        }
    }
}
