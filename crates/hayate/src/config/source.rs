//! The text of a configuration file: parsed, checked against the keys that exist, and kept, so that later errors can name a line.

use std::{
    collections::HashSet,
    fs, io,
    io::Read,
    ops::Range,
    path::{Path, PathBuf},
};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    ConfigError, File, OneOrMany, Place,
    known::{check_keys, place_of, schema},
    words,
};

/// A step on the way to a value.
#[derive(Debug, Clone, Copy)]
pub enum Step<'a> {
    /// A key of a table.
    Key(&'a str),
    /// An element of an array.
    At(usize),
}

/// A file with what it includes, or nothing when there are only flags.
#[derive(Debug, Default)]
pub struct Source {
    /// First the file itself.
    parts: Vec<Part>,
    /// Patterns of `include` that no file fits.
    unmatched: Vec<String>,
}

#[derive(Debug)]
struct Part {
    path: PathBuf,
    /// Without symbolic links, if that can be said.
    real: PathBuf,
    text: String,
    /// The number of the first of its applications among all.
    first: usize,
}

impl Part {
    fn directory(&self) -> Option<&Path> {
        let directory = self.path.parent()?;
        Some(if directory.as_os_str().is_empty() { Path::new(".") } else { directory })
    }
}

/// Bytes of a configuration, with what it includes. One with ten thousand applications has a twentieth.
const LONGEST: u64 = 64 << 20;
/// Files that are included.
const MOST_FILES: usize = 256;

/// What may stand in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holds {
    All,
    Applications,
}

fn read(path: &Path, most: u64) -> Result<String, ConfigError> {
    read_at_most(path, most).map_err(|error| {
        let remedy = match error.kind() {
            io::ErrorKind::PermissionDenied => {
                "; it may hold passwords, and who may read it is for its owner to say: run this as root (sudo)"
            }
            _ => "",
        };
        ConfigError::new(
            Place::File(path.to_owned()),
            format!("cannot read the configuration: {error}{remedy}"),
        )
    })
}

fn read_at_most(path: &Path, most: u64) -> io::Result<String> {
    let mut text = String::new();
    fs::File::open(path)?.take(most + 1).read_to_string(&mut text)?;
    if text.len() as u64 > most {
        let most = LONGEST >> 20;
        return Err(io::Error::other(format!(
            "expected {most} MB at most, with all that is included, and found more"
        )));
    }
    Ok(text)
}

impl Source {
    /// Reads and checks a file, and those that it includes.
    pub fn read(path: &Path) -> Result<(Source, File), ConfigError> {
        let text = read(path, LONGEST)?;
        let mut left = LONGEST.saturating_sub(text.len() as u64);
        let (mut source, mut file) = Source::parse(path, text)?;
        let (included, unmatched) = source.included(file.include.take())?;
        source.unmatched = unmatched;
        for path in included {
            // One that nobody writes to would be waited for.
            if path.metadata().is_ok_and(|meta| !meta.is_file() && !meta.is_dir()) {
                return Err(ConfigError::new(
                    Place::File(path),
                    "cannot read the configuration: it is no file",
                ));
            }
            let text = read(&path, left)?;
            left = left.saturating_sub(text.len() as u64);
            let (included, apps) = Source::parse_as(&path, text, Holds::Applications)?;
            source
                .parts
                .extend(included.parts.into_iter().map(|part| Part { first: file.app.len(), ..part }));
            file.app.extend(apps.app);
        }
        Ok((source, file))
    }

    /// The files that `include` names, in their order, those of a pattern in that of their names; each once.
    fn included(&self, include: Option<OneOrMany>) -> Result<(Vec<PathBuf>, Vec<String>), ConfigError> {
        let wrong = |why: String| self.error(&[Step::Key("include")], format!("include: {why}"));
        let mut unmatched = Vec::new();
        // As shells have it: what editors leave beside a file begins with a dot.
        let options = glob::MatchOptions { require_literal_leading_dot: true, ..Default::default() };
        let directory = self.directory().unwrap_or(Path::new("."));
        let mut found: Vec<PathBuf> = Vec::new();
        for text in include.into_iter().flat_map(OneOrMany::into_vec) {
            if !text.contains(['*', '?', '[']) {
                found.push(directory.join(text));
                continue;
            }
            // The directory's own name is no pattern, whatever signs are in it.
            let beside = directory.to_str().map(glob::Pattern::escape).ok_or_else(|| {
                wrong(format!(
                    "'{text}': the name of this file's directory is no UTF-8; write paths, and no patterns"
                ))
            })?;
            let pattern = if text.starts_with('/') { text.clone() } else { format!("{beside}/{text}") };
            let before = found.len();
            let paths = glob::glob_with(&pattern, options).map_err(|error| {
                wrong(format!("'{text}' is no pattern: {}; write sites/*.toml", error.msg))
            })?;
            for path in paths.take(MOST_FILES + 1) {
                found.push(path.map_err(|error| wrong(format!("'{text}': {error}")))?);
            }
            if found.len() == before {
                unmatched.push(text);
            }
        }
        if found.len() > MOST_FILES {
            return Err(wrong(format!(
                "expected {MOST_FILES} files at most, found more; put several [[app]] into one"
            )));
        }
        let mut known: HashSet<PathBuf> = self.real_paths().cloned().collect();
        found.retain(|path| path.canonicalize().map_or(true, |real| known.insert(real)));
        Ok((found, unmatched))
    }

    /// Checks a text as the content of a file.
    pub fn parse(path: &Path, text: String) -> Result<(Source, File), ConfigError> {
        Source::parse_as(path, text, Holds::All)
    }

    fn parse_as(path: &Path, text: String, holds: Holds) -> Result<(Source, File), ConfigError> {
        let located = |span: Option<Range<usize>>, message: String| {
            let place = match span {
                Some(span) => Place::Line(path.to_owned(), line_at(&text, span.start)),
                None => Place::File(path.to_owned()),
            };
            ConfigError::new(place, message)
        };
        let table = DeTable::parse(&text).map_err(|error| {
            let mut message = error.message().replace('\n', ", ");
            message.push_str(words::of_toml(&message));
            let app = |span: Range<usize>| text.get(span.end..).is_some_and(|rest| rest.starts_with("]]"));
            if message == "duplicate key" && error.span().is_some_and(app) {
                message += "; what belongs to an application, such as [app.ini] or [[app.rule]], stands below its [[app]]";
            }
            located(error.span(), message)
        })?;
        let mut wrong = Vec::new();
        check_keys(table.get_ref(), schema(), "at the top of the file", &mut wrong);
        if holds == Holds::Applications {
            let others = table.get_ref().iter().filter(|(key, _)| key.get_ref() != "app");
            let known = others.filter(|(key, _)| place_of(key.get_ref()).is_some());
            wrong.extend(known.map(|(key, _)| {
                let why = "stands in the file that includes this one; [[app]] alone stands here";
                (key.span(), format!("'{}' {why}", key.get_ref()))
            }));
        }
        wrong.sort_by_key(|(span, _)| span.start);
        if let Some(error) = ConfigError::all(wrong.into_iter().map(|(span, message)| {
            let message = words::of_tables_alone(&text, &span).unwrap_or(message);
            located(Some(span), message)
        })) {
            return Err(error);
        }
        // It would pass for a table of one key.
        if let Some(span) = date_in(table.get_ref()) {
            return Err(located(
                Some(span),
                "a date, which no key takes: write it as text, in quotes".to_owned(),
            ));
        }
        let file: File = toml::from_str(&text).map_err(|error| {
            let span = error.span();
            let key = span.clone().and_then(|span| key_of(table.get_ref(), &span));
            let message = words::of_serde(key.as_deref(), error.message().replace('\n', ", "));
            located(span, key.map(|key| format!("{key}: {message}")).unwrap_or(message))
        })?;
        drop(table);
        let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let part = Part { path: path.to_owned(), real, text, first: 0 };
        Ok((Source { parts: vec![part], unmatched: Vec::new() }, file))
    }

    /// The file's path.
    pub fn path(&self) -> Option<&Path> {
        self.parts.first().map(|part| &*part.path)
    }

    /// Where it is, and where the files are that it includes.
    pub fn real_paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.parts.iter().map(|part| &part.real)
    }

    /// Patterns of `include` that no file fits.
    pub fn unmatched(&self) -> &[String] {
        &self.unmatched
    }

    /// The directory that relative paths of the file start from.
    pub fn directory(&self) -> Option<&Path> {
        self.parts.first()?.directory()
    }

    /// The file that an application stands in, by the application's number among all.
    fn part_of(&self, app: usize) -> Option<&Part> {
        self.parts.iter().rev().find(|part| part.first <= app)
    }

    /// The path of the file that an application stands in.
    pub fn path_of(&self, app: usize) -> Option<&Path> {
        self.part_of(app).map(|part| &*part.path)
    }

    /// The directory that its relative paths start from.
    pub fn directory_of(&self, app: usize) -> Option<&Path> {
        self.part_of(app)?.directory()
    }

    /// Its number among those of the same file.
    pub fn number_of(&self, app: usize) -> usize {
        app - self.part_of(app).map_or(0, |part| part.first)
    }

    /// An error about the value at the end of `steps`, or about the nearest thing above it that the file holds.
    pub fn error(&self, steps: &[Step<'_>], message: impl Into<String>) -> ConfigError {
        let (part, of_app) = match steps {
            [Step::Key("app"), Step::At(app), ..] => (self.part_of(*app), Some(self.number_of(*app))),
            _ => (self.parts.first(), None),
        };
        let mut steps = steps.to_vec();
        if let (Some(Step::At(app)), Some(number)) = (steps.get_mut(1), of_app) {
            *app = number;
        }
        let place = match part {
            None => Place::CommandLine,
            Some(Part { path, text, .. }) => {
                // It was parsed before.
                match DeTable::parse(text).ok().and_then(|table| span_of(table.get_ref(), &steps)) {
                    Some(span) => Place::Line(path.clone(), line_at(text, span.start)),
                    None => Place::File(path.clone()),
                }
            }
        };
        ConfigError::new(place, message)
    }
}

fn date_in(table: &DeTable<'_>) -> Option<Range<usize>> {
    table.iter().find_map(|(_, value)| date_at(value))
}

fn date_at(value: &Spanned<DeValue<'_>>) -> Option<Range<usize>> {
    match value.get_ref() {
        DeValue::Datetime(_) => Some(value.span()),
        DeValue::Table(table) => date_in(table),
        DeValue::Array(values) => values.iter().find_map(date_at),
        _ => None,
    }
}

fn line_at(text: &str, offset: usize) -> usize {
    text[..offset.min(text.len())].matches('\n').count() + 1
}

fn within(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

/// The key whose value lies at `span`.
fn key_of(table: &DeTable<'_>, span: &Range<usize>) -> Option<String> {
    fn in_value(name: &str, value: &Spanned<DeValue<'_>>, span: &Range<usize>) -> Option<String> {
        match value.get_ref() {
            DeValue::Table(table) => {
                key_of(table, span).or_else(|| within(&value.span(), span).then(|| name.to_owned()))
            }
            DeValue::Array(array) => array
                .iter()
                .find_map(|item| match item.get_ref() {
                    DeValue::Table(table) => key_of(table, span),
                    _ => None,
                })
                .or_else(|| within(&value.span(), span).then(|| name.to_owned())),
            _ => within(&value.span(), span).then(|| name.to_owned()),
        }
    }
    table.iter().find_map(|(key, value)| in_value(key.get_ref(), value, span))
}

/// Where the value at the end of `steps` begins, or the nearest above it.
fn span_of(table: &DeTable<'_>, steps: &[Step<'_>]) -> Option<Range<usize>> {
    let [Step::Key(name), rest @ ..] = steps else { return None };
    let (key, mut value) = table.iter().find(|(key, _)| key.get_ref() == name)?;
    let mut span = key.span();
    let mut rest = rest;
    while let [step, more @ ..] = rest {
        match (step, value.get_ref()) {
            (Step::At(i), DeValue::Array(array)) => {
                let Some(item) = array.get(*i) else { break };
                (value, span) = (item, item.span());
            }
            (Step::Key(name), DeValue::Table(table)) => {
                let Some((key, inner)) = table.iter().find(|(key, _)| key.get_ref() == name) else { break };
                (value, span) = (inner, key.span());
            }
            _ => break,
        }
        rest = more;
    }
    Some(span)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{
        MOST_ERRORS,
        known::{OF_OTHERS, places},
    };

    fn error(text: &str) -> String {
        Source::parse(Path::new("hayate.toml"), text.into()).unwrap_err().to_string()
    }

    #[test]
    fn every_key_is_read() {
        let text = r#"
            listen = [":80", "unix:/run/x.sock"]
            access_log = "-"
            drain_timeout = "5s"
            [limits]
            body_size = "1G"
            header_timeout = 5
            [[app]]
            name = "a"
            workers = "2-8"
            hosts = "example.org"
            [app.ini]
            memory_limit = "64M"
            display_errors = false
            extension = ["redis", "intl"]
            [app.env]
            APP_ENV = "prod"
            [[app]]
            workers = 3
        "#;
        let (_, file) = Source::parse(Path::new("hayate.toml"), text.into()).unwrap();
        assert_eq!(file.listen.unwrap().into_vec().len(), 2);
        assert_eq!(file.limits.body_size.unwrap().0, 1 << 30);
        assert_eq!(file.app.len(), 2);
        assert_eq!(file.app[0].ini["display_errors"].clone().into_values(), ["0"]);
        assert_eq!(file.app[0].ini["extension"].clone().into_values(), ["redis", "intl"]);
        assert_eq!(file.app[1].workers.unwrap().max, 3);
    }

    #[test]
    fn unknown_keys_name_their_line_and_the_nearest_key() {
        assert_eq!(
            error("listen = ':80'\n\nlimts = 1\n"),
            "hayate.toml:3: unknown key 'limts' at the top of the file; did you mean 'limits'?"
        );
        assert_eq!(
            error("[limits]\nhead_siez = '1K'\n"),
            "hayate.toml:2: unknown key 'head_siez' in [limits]; did you mean 'head_size'?"
        );
        assert_eq!(
            error("[[app]]\nworkerz = 3\n"),
            "hayate.toml:2: unknown key 'workerz' in [[app]]; did you mean 'worker' or 'workers'?"
        );
        assert_eq!(
            error("listen = ':80'\nroot = '/srv/shop'\n"),
            "hayate.toml:2: unknown key 'root' at the top of the file; it stands below [[app]]"
        );
        assert_eq!(
            error("[limits]\nbody_size = '1M'\nlisten = ':80'\n"),
            "hayate.toml:3: unknown key 'listen' in [limits]; it stands at the top of the file, above the first [table]"
        );
        assert_eq!(
            error("[[app]]\nroot = '.'\nbody_size = '1M'\n"),
            "hayate.toml:3: unknown key 'body_size' in [[app]]; it stands below [limits]"
        );
        assert_eq!(
            error("[[app]]\nroot = '.'\nrewrite = '/x'\n"),
            "hayate.toml:3: unknown key 'rewrite' in [[app]]; it stands below [[app.rule]]"
        );
        let said = error("[[app]]\nname = 'a'\n[[app]]\nworker_count = 3\nnonsense = 1\n");
        assert!(said.starts_with("hayate.toml:4: unknown key 'worker_count' in [[app]]; "), "{said}");
        let said = error("[[app]]\nxyzzy = 3\n");
        assert!(said.contains("the keys here are ") && said.contains("document_root"), "{said}");
        assert_eq!(
            error("[[app]]\nroot = '.'\npm.max_children = 5\n"),
            "hayate.toml:3: unknown key 'pm' in [[app]]; workers = \"2-16\" in [[app]] says how many there are"
        );
        for (names, does) in OF_OTHERS {
            let key = does.split(' ').next().unwrap_or_default();
            let known = schema().to_string().contains(&format!("\"{key}\":"));
            assert!(known || key.starts_with('[') || matches!(key, "settings" | "there"), "{key}");
            assert!(!places().iter().any(|(known, _)| names.contains(&&**known)), "{names:?}");
        }
        assert!(error("[[app]]\n[app.limits]\n").contains("unknown key 'limits' in [[app]]"));
    }

    #[test]
    fn all_unknown_keys_are_named_in_the_order_of_the_file() {
        let said = error(
            "[[app]]\nworkerz = 3\n[app.ini]\na.b = 1\n[limits]\nhead_siez = '1K'\n[[app]]\n[app.php]\n",
        );
        let lines: Vec<&str> = said.lines().map(|line| line.split(": ").next().unwrap()).collect();
        assert_eq!(lines, ["hayate.toml:2", "hayate.toml:4", "hayate.toml:6", "hayate.toml:8"], "{said}");
        let many: String = (0..1000).map(|i| format!("unknown{i} = 1\n")).collect();
        let said = error(&many);
        assert_eq!(
            (said.lines().count(), said.lines().last()),
            (MOST_ERRORS + 1, Some("and so on")),
            "{said}"
        );
    }

    #[test]
    fn a_date_is_no_table() {
        for text in [
            "[[app]]\nroot = '.'\nenv = 1979-05-27\n",
            "[[app]]\n[[app.rule]]\nheaders = { set = 1979-05-27T07:32:00Z }\n",
        ] {
            assert_eq!(error(text), "hayate.toml:3: a date, which no key takes: write it as text, in quotes");
        }
    }

    #[test]
    fn no_table_takes_what_it_does_not_know_in_silence() {
        let app = "[[app]]\nroot = '.'\n";
        for (text, want) in [
            (
                "listen = [{ address = ':80', tsl = true }]",
                "unknown key 'tsl' in [[listen]]; did you mean 'tls'?",
            ),
            (
                "listen = { address = ':80', proxi_protocol = true }",
                "in [listen]; did you mean 'proxy_protocol'?",
            ),
            ("[[listen]]\nadress = ':80'", "in [[listen]]; did you mean 'address'?"),
            (
                "[tls]\ncertificates = [{ certificate = 'a', keyy = 'b' }]",
                "in [[tls.certificates]]; did you mean 'key'?",
            ),
            (
                "[[app]]\n[app.inii]\nmemory_limit = '1M'",
                "unknown key 'inii' in [[app]]; did you mean 'ini'?",
            ),
            ("[[app]]\n[app.INI]\nmemory_limit = '1M'", "unknown key 'INI' in [[app]]; did you mean 'ini'?"),
            ("[[app]]\nmemory_limit = '1M'", "settings of php.ini stand below [app.ini]"),
            ("[[app]]\nextension = ['redis']", "settings of php.ini stand below [app.ini]"),
            ("[[app]]\n[app.php]\nmemory_limit = '1M'", "settings of php.ini stand below [app.ini]"),
            ("[[app]]\n[app.php_ini]\nmemory_limit = '1M'", "settings of php.ini stand below [app.ini]"),
            ("[[app]]\n[app.ini]\nsession.save_path = '/x'", "write \"session.save_path\" = …"),
            ("[[app]]\n[app.ini.session]\nsave_path = '/x'", "write \"session.save_path\" = …"),
            (
                "[[app]]\n[app.workers]\nmin = 2",
                "'workers' in [[app]] is a value and no table; write workers = …",
            ),
            (
                "[[app]]\n[[app.rule]]\nbasic_auth = { users = 'x', realms = 'y' }",
                "in [app.rule.basic_auth]; did you mean 'realm'?",
            ),
            (
                "[[app]]\n[[app.rule]]\nrate = { request = 1 }",
                "unknown key 'request' in [app.rule.rate]; did you mean 'requests'?",
            ),
            (
                "[[app]]\n[[app.rule]]\n[app.rule.headers]\nsett = {}",
                "in [app.rule.headers]; did you mean 'set'?",
            ),
            ("[[app]]\nbody_sise = '1M'", "did you mean 'body_size'? It stands below [limits]"),
            (
                "Access_log = '-'",
                "unknown key 'Access_log' at the top of the file; did you mean 'access_log'?",
            ),
        ] {
            let said = error(text);
            assert!(said.contains(want), "{text}: {said}");
        }
        let fine = "listen = [':80', { address = ':443', tls = true }]\n[[app]]\nroot = '.'\nphp_ini_scan_dir = ['a']\n[app.ini]\n'a.b' = 1\n\
                    [[app.rule]]\nheader = { x-y = 'z' }\nrate = { requests = 1 }\ndeny = 403\n[app.rule.headers.set]\nX-A = 'b'\n";
        Source::parse(Path::new("hayate.toml"), fine.into()).unwrap();
        assert!(error(&format!("{app}[app.hosts]\nx = 1")).contains("hosts"));
    }

    #[test]
    fn wrong_types_and_values_name_line_and_key() {
        assert_eq!(
            error("[[app]]\nroot = '.'\nworkers = '8-2'\n"),
            "hayate.toml:3: workers: '8-2': the most workers (2) are fewer than the least (8); write 2-8"
        );
        let said = error("development = 'yes'\n");
        assert!(
            said.starts_with("hayate.toml:1: development: ")
                && said.contains("expected true or false, without quotes"),
            "{said}"
        );
        let said = error("\n[limits]\nbody_size = 'big'\n");
        assert!(said.starts_with("hayate.toml:3: body_size: 'big' is no size"), "{said}");
        let said = error("log_level = 'loud'");
        assert!(said.starts_with("hayate.toml:1: log_level: ") && said.contains("debug"), "{said}");
        let said = error("[[app]]\n\nqueue_limit = -1\n");
        assert!(said.starts_with("hayate.toml:3: queue_limit: "), "{said}");
        let said = error("app = 3");
        assert!(said.starts_with("hayate.toml:1: app: "), "{said}");
    }

    #[test]
    fn broken_toml_names_its_line() {
        assert!(error("listen = ':80'\nname = \n").starts_with("hayate.toml:2: "));
        assert!(error("a = 1\na = 2\n").starts_with("hayate.toml:2: "));
        assert!(!error("a = 1\na = 2\n").contains("[[app]]"));
        let said = error("[[app.rule]]\npath = '/a'\n[[app]]\nroot = '.'\n");
        assert!(said.starts_with("hayate.toml:3: ") && said.ends_with("stands below its [[app]]"), "{said}");
    }

    #[test]
    fn what_may_be_there_several_times_has_two_brackets() {
        let several = |path| format!("[{path}] may be there several times: write [[{path}]]");
        assert_eq!(error("\n[app]\nroot = '.'\n"), format!("hayate.toml:2: {}", several("app")));
        assert_eq!(
            error("[[app]]\n[app.rule]\npath = '/a'\n"),
            format!("hayate.toml:2: {}", several("app.rule"))
        );
    }

    #[test]
    fn later_errors_find_the_line() {
        let text = "listen = ':80'\n[[app]]\nname = 'a'\n[[app]]\nroot = '/nowhere'\n";
        let (source, _) = Source::parse(Path::new("h.toml"), text.into()).unwrap();
        let line = |steps: &[Step<'_>]| source.error(steps, "x").to_string();
        assert_eq!(line(&[Step::Key("app"), Step::At(1), Step::Key("root")]), "h.toml:5: x");
        assert_eq!(line(&[Step::Key("app"), Step::At(1), Step::Key("worker")]), "h.toml:4: x");
        assert_eq!(line(&[Step::Key("pid_file")]), "h.toml: x");
        assert_eq!(Source::default().error(&[Step::Key("listen")], "x").to_string(), "x");
    }
}
