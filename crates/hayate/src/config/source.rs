//! The text of a configuration file: parsed, checked against the keys that exist, and kept, so that later errors can name a line.

use std::{fs, ops::Range, path::Path, path::PathBuf, sync::LazyLock};

use serde_json::Value;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{ConfigError, File, Place};

/// The JSON schema of hayate.toml, with the doc comments of the keys.
pub fn schema() -> &'static Value {
    static SCHEMA: LazyLock<Value> = LazyLock::new(|| schemars::schema_for!(File).to_value());
    &SCHEMA
}

/// Follows `$ref`, and takes the table out of "a table or nothing".
fn resolve(node: &Value) -> &Value {
    match node.get("$ref").and_then(Value::as_str) {
        Some(reference) => schema().pointer(reference.trim_start_matches('#')).unwrap_or(node),
        None => node,
    }
}

/// A step on the way to a value.
#[derive(Debug, Clone, Copy)]
pub enum Step<'a> {
    /// A key of a table.
    Key(&'a str),
    /// An element of an array.
    At(usize),
}

/// A file, or nothing when there are only flags.
#[derive(Debug, Default)]
pub struct Source {
    file: Option<(PathBuf, String)>,
}

impl Source {
    /// Reads and checks a file.
    pub fn read(path: &Path) -> Result<(Source, File), ConfigError> {
        let text = fs::read_to_string(path).map_err(|error| ConfigError {
            place: Place::File(path.to_owned()),
            message: format!("cannot read the configuration: {error}"),
            of_disk: false,
        })?;
        Source::parse(path, text)
    }

    /// Checks a text as the content of a file.
    pub fn parse(path: &Path, text: String) -> Result<(Source, File), ConfigError> {
        let located = |span: Option<Range<usize>>, message: String| ConfigError {
            place: match span {
                Some(span) => Place::Line(path.to_owned(), line_at(&text, span.start)),
                None => Place::File(path.to_owned()),
            },
            message,
            of_disk: false,
        };
        let table = DeTable::parse(&text).map_err(|error| {
            let mut message = error.message().replace('\n', ", ");
            let app = |span: Range<usize>| text.get(span.end..).is_some_and(|rest| rest.starts_with("]]"));
            if message == "duplicate key" && error.span().is_some_and(app) {
                message += "; what belongs to an application, such as [app.ini] or [[app.rule]], stands below its [[app]]";
            }
            located(error.span(), message)
        })?;
        if let Err((span, message)) = check_keys(table.get_ref(), schema(), "at the top of the file") {
            return Err(located(Some(span), message));
        }
        let file: File = toml::from_str(&text).map_err(|error| {
            let span = error.span();
            let key = span.clone().and_then(|span| key_of(table.get_ref(), &span));
            let message = error.message().replace('\n', ", ");
            located(span, key.map(|key| format!("{key}: {message}")).unwrap_or(message))
        })?;
        drop(table);
        Ok((Source { file: Some((path.to_owned(), text)) }, file))
    }

    /// The file's path.
    pub fn path(&self) -> Option<&Path> {
        Some(&self.file.as_ref()?.0)
    }

    /// The directory that relative paths of the file start from.
    pub fn directory(&self) -> Option<&Path> {
        let directory = self.file.as_ref()?.0.parent()?;
        Some(if directory.as_os_str().is_empty() { Path::new(".") } else { directory })
    }

    /// An error about the value at the end of `steps`, or about the nearest thing above it that the file holds.
    pub fn error(&self, steps: &[Step<'_>], message: impl Into<String>) -> ConfigError {
        let place = match &self.file {
            None => Place::CommandLine,
            Some((path, text)) => {
                // It was parsed before.
                match DeTable::parse(text).ok().and_then(|table| span_of(table.get_ref(), steps)) {
                    Some(span) => Place::Line(path.clone(), line_at(text, span.start)),
                    None => Place::File(path.clone()),
                }
            }
        };
        ConfigError { place, message: message.into(), of_disk: false }
    }
}

fn line_at(text: &str, offset: usize) -> usize {
    text[..offset.min(text.len())].matches('\n').count() + 1
}

/// The places where there is a key of this name, in words: whoever has it in a wrong place has only to move it.
fn places_of(name: &str) -> Vec<String> {
    let mut places = Vec::new();
    collect_places(schema(), "", name, &mut places);
    places
}

fn collect_places(table: &Value, path: &str, name: &str, places: &mut Vec<String>) {
    for (key, child) in table.get("properties").and_then(Value::as_object).into_iter().flatten() {
        if key == name && child.get("items").is_none() {
            places.push(match path {
                "" => "at the top of the file, above the first [table]".into(),
                path => format!("below {path}"),
            });
        }
        let above = path.trim_matches(['[', ']']);
        let dotted = if above.is_empty() { key.to_owned() } else { format!("{above}.{key}") };
        let items = child.get("items").map(resolve);
        match items.filter(|items| items.get("properties").is_some()) {
            Some(items) => collect_places(items, &format!("[[{dotted}]]"), name, places),
            None => collect_places(resolve(child), &format!("[{dotted}]"), name, places),
        }
    }
}

/// Finds keys that do not exist.
fn check_keys(table: &DeTable<'_>, schema: &Value, place: &str) -> Result<(), (Range<usize>, String)> {
    // A table of free names (ini, env) has no properties.
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return Ok(()) };
    // In the file's order, which the table has lost: the first mistake is reported first.
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    for (key, value) in entries {
        let name: &str = key.get_ref();
        let Some(known) = properties.get(name) else {
            let distance = |known: &String| strsim::damerau_levenshtein(known, name);
            let least = properties.keys().map(distance).min().filter(|least| *least <= 1 + name.len() / 4);
            // All that are as near: 'workerz' is as likely to be 'workers' as 'worker'.
            let nearest: Vec<String> = (properties.keys())
                .filter(|known| Some(distance(known)) == least)
                .map(|known| format!("'{known}'"))
                .collect();
            let elsewhere = places_of(name);
            let remedy = if !elsewhere.is_empty() {
                format!("it stands {}", elsewhere.join(" or "))
            } else if nearest.is_empty() {
                let keys: Vec<&str> = properties.keys().map(String::as_str).collect();
                format!("the keys here are {}", keys.join(", "))
            } else {
                format!("did you mean {}?", nearest.join(" or "))
            };
            return Err((key.span(), format!("unknown key '{name}' {place}; {remedy}")));
        };
        let inside = format!("in [{name}]");
        match value.get_ref() {
            DeValue::Table(_) if known.get("type").is_some_and(|kind| kind == "array") => {
                let above = place.trim_start_matches("in ").trim_matches(['[', ']']);
                let path = if place.starts_with("in ") { format!("{above}.{name}") } else { name.to_owned() };
                return Err((key.span(), format!("[{path}] may be there several times: write [[{path}]]")));
            }
            DeValue::Table(table) => check_keys(table, resolve(known), &inside)?,
            DeValue::Array(array) => {
                let items = known.get("items").map(resolve).unwrap_or(&Value::Null);
                for item in array.iter() {
                    if let DeValue::Table(table) = item.get_ref() {
                        check_keys(table, items, &format!("in [[{name}]]"))?;
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
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
        assert!(error("[[app]]\n[app.limits]\n").contains("unknown key 'limits' in [[app]]"));
    }

    #[test]
    fn wrong_types_and_values_name_line_and_key() {
        assert_eq!(
            error("[[app]]\nroot = '.'\nworkers = '8-2'\n"),
            "hayate.toml:3: workers: '8-2': the most workers (2) are fewer than the least (8); write 2-8"
        );
        let said = error("development = 'yes'\n");
        assert!(
            said.starts_with("hayate.toml:1: development: ") && said.contains("expected a boolean"),
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
