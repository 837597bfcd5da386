//! What an application's `.htaccess` says: Apache reads it, and Hayate does not.
//!
//! So much is read that people can be told what Apache would not send: directories that are closed as a whole, by refusal or since a script
//! answers for all that is in them; whether there are rules that close more by names, or that keep some visitors out; and where scripts
//! do not run. What would be closed as a whole with exceptions, or is not understood, is told of as something to look at. There is no
//! other reader of these files.

use std::{
    io::{ErrorKind, Read},
    path::Path,
};

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
    /// The directory in which it lies, for everybody.
    pub all: bool,
    /// That directory, but for some visitors, files or methods; or in a way that is not understood.
    pub in_part: bool,
    /// Directories below that, whole ones, as they stand in its rules: they need not exist.
    pub directories: Vec<String>,
    /// More, by rules for names or under conditions.
    pub by_names: bool,
    /// A script answers for all that is in the directory.
    pub runs_instead: bool,
    /// PHP's scripts do not run there.
    pub no_scripts: bool,
}

/// The lines of one, in order, without comments.
pub fn directives(text: &str) -> impl Iterator<Item = Directive> {
    // A backslash at its end continues a line.
    let text = text.trim_start_matches('\u{feff}');
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

/// What the one at `path` closes; in a way that is not known, if it cannot be read, or not as a whole.
pub fn read(path: &Path) -> Closes {
    let mut start = Vec::new();
    match of_application::open(path).and_then(|file| file.take(MOST).read_to_end(&mut start)) {
        Ok(read) => {
            let closes = closes(&String::from_utf8_lossy(&start));
            // Nobody knows what the rest says.
            Closes { in_part: closes.in_part || read as u64 == MOST, ..closes }
        }
        Err(error) => Closes { in_part: error.kind() != ErrorKind::NotFound, ..Closes::default() },
    }
}

/// Whether visitors get through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Nobody,
    Everybody,
    /// Some do, or that is not known.
    Some,
}

/// How several `Require` count together.
#[derive(Clone, Copy)]
enum Container {
    Any,
    All,
    None,
}

impl Container {
    /// `None`: nothing is asked for.
    fn of(self, parts: &[Access]) -> Option<Access> {
        let (one, all) = match self {
            _ if parts.is_empty() => return None,
            Container::Any => (Access::Everybody, Access::Nobody),
            Container::All => (Access::Nobody, Access::Everybody),
            Container::None => return Some(Access::Some),
        };
        Some(match parts {
            parts if parts.contains(&one) => one,
            parts if parts.iter().all(|part| *part == all) => all,
            _ => Access::Some,
        })
    }
}

/// `Order`, `Allow` and `Deny`.
#[derive(Default)]
struct Old {
    is_there: bool,
    /// Who is not named does not get through.
    refuses: bool,
    deny: [bool; 2],
    allow: [bool; 2],
}

impl Old {
    fn of(&self) -> Option<Access> {
        let ([deny_all, deny_some], [allow_all, allow_some]) = (self.deny, self.allow);
        let access = match self.refuses {
            true if deny_all || !(allow_all || allow_some) => Access::Nobody,
            true if allow_all && !deny_some => Access::Everybody,
            false if allow_all || !(deny_all || deny_some) => Access::Everybody,
            false if deny_all && !allow_some => Access::Nobody,
            _ => Access::Some,
        };
        self.is_there.then_some(access)
    }
}

/// What a part of the file is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum For {
    /// All files and visitors.
    All,
    /// Files of some names.
    Names,
    /// Whatever a condition or a method says.
    Conditions,
    /// Files that nobody is sent.
    Hidden,
}

/// What such a part says of access.
struct Part {
    of: For,
    requires: Vec<(Container, Vec<Access>)>,
    old: Old,
    satisfy_any: bool,
}

impl Part {
    fn new(of: For) -> Part {
        Part { of, requires: vec![(Container::Any, Vec::new())], old: Old::default(), satisfy_any: false }
    }

    fn require(&mut self, access: Access) {
        if let Some((_, parts)) = self.requires.last_mut() {
            parts.push(access);
        }
    }

    /// The end of a `<RequireAll>` and the like.
    fn leave(&mut self) {
        if self.requires.len() > 1
            && let Some((container, parts)) = self.requires.pop()
            && let Some(access) = container.of(&parts)
        {
            self.require(access);
        }
    }

    fn access(&mut self) -> Option<Access> {
        while self.requires.len() > 1 {
            self.leave();
        }
        let new = self.requires.first().and_then(|(container, parts)| container.of(parts));
        match (new, self.old.of()) {
            (access, None) | (None, access) if access != Some(Access::Nobody) || !self.satisfy_any => access,
            (Some(new), Some(old)) if new == old => Some(new),
            // Mostly one is for this Apache and the other for that one.
            _ => Some(Access::Some),
        }
    }
}

enum Section {
    /// It asks which Apache this is, or is for all files and visitors.
    Same,
    Container,
    Part,
}

/// `<Files x>`, `<Files ~ x>` or `<FilesMatch x>`: what it is for.
fn files(words: &[&str], is_pattern: bool) -> For {
    let (pattern, is_pattern) = match words {
        ["~", pattern] => (*pattern, true),
        [pattern] => (*pattern, is_pattern),
        _ => return For::Names,
    };
    match (pattern.trim_start_matches('^'), is_pattern) {
        ("*", false) => For::All,
        (rest, true) if is_rest(rest) => For::All,
        // Nobody sends those.
        (name, false) if name.starts_with('.') => For::Hidden,
        (_, true) if pattern.starts_with("^\\.") => For::Hidden,
        _ => For::Names,
    }
}

/// `<Limit x>` or `<LimitExcept x>`: what it is for.
fn methods(words: &[&str], except: bool) -> For {
    let has = |method: &str| words.contains(&method) != except;
    if has("get") && has("post") { For::All } else { For::Conditions }
}

fn closes(text: &str) -> Closes {
    let mut found = Closes::default();
    let mut conditions = Vec::new();
    let (mut sections, mut parts, mut ended) = (Vec::new(), vec![Part::new(For::All)], Vec::new());
    for Directive { name, words } in directives(text) {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let small: Vec<String> = words.iter().map(|word| word.to_ascii_lowercase()).collect();
        let small: Vec<&str> = small.iter().map(String::as_str).collect();
        let begins = match &*name {
            "<ifmodule" | "<ifversion" | "<ifdefine" | "<iffile" => Some((Section::Same, None)),
            "<requireall" => Some((Section::Container, Some(Container::All))),
            "<requireany" => Some((Section::Container, Some(Container::Any))),
            "<requirenone" => Some((Section::Container, Some(Container::None))),
            begin if begin.starts_with('<') && !begin.starts_with("</") => Some((Section::Part, None)),
            _ => None,
        };
        let Some(part) = parts.last_mut() else { break };
        if let Some((section, container)) = begins {
            part.requires.extend(container.map(|container| (container, Vec::new())));
            if matches!(section, Section::Part) {
                let of = match &*name {
                    "<files" => files(&small, false),
                    "<filesmatch" => files(&small, true),
                    "<limit" => methods(&small, false),
                    "<limitexcept" => methods(&small, true),
                    _ => For::Conditions,
                };
                let of = of.max(part.of);
                parts.push(Part::new(of));
            }
            sections.push(section);
            continue;
        }
        let of = part.of;
        match (&*name, &small[..]) {
            (end, _) if end.starts_with("</") => match sections.pop() {
                Some(Section::Container) => part.leave(),
                Some(Section::Part) => ended.extend(parts.pop()),
                Some(Section::Same) | None => {}
            },
            ("require", ["all", "denied"]) => part.require(Access::Nobody),
            ("require", ["all", "granted"]) => part.require(Access::Everybody),
            ("require", _) => part.require(Access::Some),
            ("order", [order, ..]) => {
                part.old.is_there = true;
                part.old.refuses = !order.starts_with("deny");
            }
            ("deny" | "allow", ["from", from @ ..]) => {
                part.old.is_there = true;
                let who = if name == "deny" { &mut part.old.deny } else { &mut part.old.allow };
                let all = from.contains(&"all");
                let [of_all, of_some] = who;
                *of_all |= all;
                // No host is called none: it stands for nobody.
                *of_some |= !all && from.iter().any(|from| *from != "none");
            }
            ("satisfy", [how, ..]) => part.satisfy_any = *how == "any",
            ("rewritecond", _) => {
                conditions.push(words.get(1).map(|test| (*test).to_owned()).unwrap_or_default())
            }
            ("rewriterule", _) => {
                let rule = Rule::new(&words, &std::mem::take(&mut conditions));
                if of == For::All {
                    found.add(&rule);
                } else {
                    found.by_names |= rule.refuses;
                }
            }
            ("redirect" | "redirectmatch", [status, what @ ..])
                if status.starts_with('4') || *status == "gone" =>
            {
                let all = name == "redirectmatch"
                    && of == For::All
                    && what.first().is_some_and(|pattern| is_rest(pattern.trim_start_matches('^')));
                found.all |= all;
                found.by_names |= !all;
            }
            _ => found.no_scripts |= of != For::Hidden && is_without_scripts(&name, &small, of),
        }
    }
    parts.reverse();
    let outer = parts.pop();
    ended.extend(parts);
    found.add_parts(outer, ended);
    found.directories.sort();
    found.directories.dedup();
    found
}

/// Whether a line keeps PHP's scripts from running.
fn is_without_scripts(name: &str, words: &[&str], of: For) -> bool {
    let of_php = |names: &[&str]| {
        names.iter().any(|name| {
            let name = name.trim_start_matches('.');
            name.starts_with("php") || name == "phtml"
        })
    };
    let is_no_handler = |handler: &str| {
        matches!(handler, "none" | "default-handler" | "cgi-script") || handler.starts_with("text/")
    };
    match (name, words) {
        ("php_flag" | "php_admin_flag" | "php_value" | "php_admin_value", ["engine", value]) => {
            matches!(*value, "off" | "0" | "no" | "false")
        }
        // In a section for names it is mostly one for PHP's.
        ("sethandler", [handler]) => is_no_handler(handler),
        ("forcetype", [kind]) => of == For::All && kind.starts_with("text/"),
        ("removehandler" | "removetype", names) => of_php(names),
        ("addhandler" | "addtype", [handler, names @ ..]) => is_no_handler(handler) && of_php(names),
        _ => false,
    }
}

impl Closes {
    /// What sections say, and what stands outside of them. Apache merges later ones over what was there.
    fn add_parts(&mut self, outer: Option<Part>, sections: Vec<Part>) {
        let mut access = outer.and_then(|mut part| part.access());
        let mut others = Vec::new();
        for mut part in sections {
            match (part.of, part.access()) {
                (For::All, Some(now)) => access = Some(now),
                (For::Names | For::Conditions, Some(now)) => others.push((part.of, now)),
                _ => {}
            }
        }
        match access {
            Some(Access::Nobody) if others.iter().all(|(_, of)| *of == Access::Nobody) => self.all = true,
            Some(Access::Nobody | Access::Some) => self.in_part = true,
            Some(Access::Everybody) | None => {
                let closes =
                    |what: For| others.iter().any(|(of, now)| *of == what && *now != Access::Everybody);
                self.by_names |= closes(For::Names);
                self.in_part |= closes(For::Conditions);
            }
        }
    }

    fn add(&mut self, rule: &Rule<'_>) {
        if let Some(but) = rule.pattern.strip_prefix('!') {
            // All but what fits.
            self.in_part |= rule.refuses && !but.is_empty();
            return;
        }
        let is_for_all = !rule.has_conditions && is_rest(rule.pattern.trim_start_matches('^'));
        self.runs_instead |= is_for_all && rule.runs.is_some();
        if rule.is_for_what_is_no_file || !(rule.refuses || rule.runs.is_some()) {
            return;
        }
        if rule.refuses && is_for_all {
            self.all = true;
            return;
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
    fn what_is_closed_in_part_or_not_understood_is_to_be_looked_at() {
        for part in [
            "AuthType Basic\nAuthUserFile /srv/.htpasswd\nRequire valid-user",
            "Require ip 10.0.0.0/8",
            "Require local",
            "Require host example.org",
            "Require expr \"%{HTTP_USER_AGENT} != 'x'\"",
            "Order deny,allow\nDeny from all\nAllow from 10.0.0.1",
            "Order allow,deny\nAllow from all\nDeny from 10.0.0.1",
            "Deny from 10.0.0.1",
            "<RequireAll>\nRequire all granted\nRequire not ip 10.0.0.1\n</RequireAll>",
            "<RequireNone>\nRequire ip 10.0.0.1\n</RequireNone>",
            "<If \"%{REQUEST_URI} =~ /./\">\nRequire all denied\n</If>",
            "<Limit PUT>\nDeny from all\n</Limit>",
            "RewriteRule !^nothing$ - [F]",
            "Deny from all\nSatisfy any",
            "<Files *.css>\nRequire all granted\n</Files>\nRequire all denied",
            "Order Deny,Allow\nDeny from all\n<FilesMatch \"^(a|b)\\.js$\">\nAllow from all\n</FilesMatch>",
            "<IfModule x>\nRequire all granted\n</IfModule>\n<IfModule !x>\nDeny from all\n</IfModule>",
        ] {
            let found = closes(part);
            assert!(found.in_part && !found.all, "{part}: {found:?}");
        }
        for open in [
            "Require all granted",
            "Require all denied\nRequire all granted",
            "Order allow,deny\nAllow from all",
            "Order deny,allow",
            "Allow from all",
            "<Files \"*\">\nRequire all granted\n</Files>",
            "Require all denied\n<Files \"*\">\nRequire all granted\n</Files>",
            "<RequireAny>\nRequire all denied\nRequire all granted\n</RequireAny>",
            "<Files .htaccess>\nRequire all denied\n</Files>",
            "AuthType Basic\nAuthName x",
            "RewriteRule !^x$ index.php [L]",
            "Options -Indexes",
        ] {
            assert_eq!(closes(open), Closes::default(), "{open}");
        }
        assert!(closes("RewriteRule ^ /index.php [L]").runs_instead);
        assert!(!closes("RewriteCond %{REQUEST_FILENAME} !-f\nRewriteRule ^ /index.php [L]").runs_instead);
    }

    #[test]
    fn where_scripts_do_not_run() {
        for off in [
            "php_flag engine off",
            "<IfModule mod_php.c>\nphp_admin_flag engine 0\n</IfModule>",
            "SetHandler none",
            "SetHandler default-handler",
            "<FilesMatch \"\\.php$\">\nSetHandler none\n</FilesMatch>",
            "RemoveHandler .php .phtml",
            "RemoveType php",
            "AddHandler cgi-script .php .pl",
            "AddType text/plain .php",
            "ForceType text/plain",
        ] {
            assert!(closes(off).no_scripts, "{off}");
        }
        for on in [
            "php_flag engine on",
            "php_value memory_limit 1G",
            "SetHandler application/x-httpd-php",
            "<FilesMatch \"\\.php$\">\nSetHandler \"proxy:unix:/run/php.sock|fcgi://x\"\n</FilesMatch>",
            "AddType application/x-httpd-php .php",
            "AddType text/css .css",
            "RemoveHandler .cgi",
            "<FilesMatch \"\\.txt$\">\nForceType text/plain\n</FilesMatch>",
        ] {
            assert_eq!(closes(on), Closes::default(), "{on}");
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
            "RewriteRule .* - [NC,R=404]",
            "RedirectMatch 404 .*",
            "Order allow,deny",
            "Allow from none\nDeny from all",
            "Order deny,allow\nDeny from all\nAllow from none",
            "Order mutual-failure",
            "Order allow,deny\nAllow from all\nDeny from all",
            "<Limit GET POST>\nOrder deny,allow\nDeny from all\n</Limit>",
            "<LimitExcept OPTIONS>\nRequire all denied\n</LimitExcept>",
            "<RequireAll>\nRequire all denied\n</RequireAll>",
            "<RequireAny>\nRequire all denied\n</RequireAny>",
            "<RequireAll>\nRequire valid-user\nRequire all denied\n</RequireAll>",
            "<FilesMatch \"^.+$\">\nRequire all denied\n</FilesMatch>",
            "<Files ~ \".*\">\nRequire all denied\n</Files>",
            "\u{feff}Require all denied",
            "\tRequire\tall\tdenied\r\n",
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
