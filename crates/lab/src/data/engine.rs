//! An engine: a server, how to find it, configure it, start it and stop it. Services have the same form.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Result;
use serde::Deserialize;

use super::{
    file::{Settings, Source},
    load::parse_duration,
};
use crate::guard::Signal;

/// The further port at which an engine speaks TLS and HTTP/2.
pub const TLS_PORT: &str = "https";

/// A program and its arguments, each a template.
pub type Command = Vec<String>;

/// An engine, its overlays applied. See lab/README.md for what the fields mean; texts are templates.
#[derive(Clone, Debug)]
pub struct Engine {
    /// The file's name without its ending.
    pub name: String,
    /// As tables show it.
    pub title: String,
    /// One or two sentences.
    pub about: String,
    /// The workload's entry that it serves; empty for a service.
    pub entry: String,
    /// What to do when it is missing.
    pub install: String,
    /// Why it could not be tried where the file was written.
    pub untested: Option<String>,
    /// PHP processes, instead of what the run says.
    pub workers: Option<u32>,
    /// Names of further ports.
    pub ports: Vec<String>,
    /// PHP settings.
    pub ini: Settings,
    /// Whose extensions its PHP loads.
    pub extensions: Extensions,
    /// Environment of all its processes.
    pub env: BTreeMap<String, String>,
    /// What its templates find as `variables`.
    pub variables: Settings,
    /// What has to be there.
    pub detect: Detect,
    /// What the report names.
    pub versions: Vec<VersionProbe>,
    /// Files written before the start, by their path below the engine's directory.
    pub files: BTreeMap<String, FileSource>,
    /// Commands to run to the end before the start.
    pub setup: Vec<Command>,
    /// Processes, in order.
    pub start: Vec<Start>,
    /// A path that answers when the engine is ready, if it is not that of the workload's check.
    pub ready_path: Option<String>,
    /// How long the start may take.
    pub ready_timeout: Duration,
    /// Logs whose end is shown on failure.
    pub logs: Vec<String>,
    /// What has to hold after a load.
    pub proofs: Vec<Proof>,
    /// Where `from` files lie.
    pub folder: PathBuf,
}

/// Whose PHP extensions an engine loads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Extensions {
    /// Those of Debian's PHP.
    #[default]
    Debian,
    /// It brings its own PHP.
    Own,
}

/// What has to be there for an engine to run; everything of it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Detect {
    /// Commands in the lab's PATH.
    #[serde(default)]
    pub commands: Vec<String>,
    /// Files or directories.
    #[serde(default)]
    pub files: Vec<String>,
    /// Extensions of Debian's PHP.
    #[serde(default)]
    pub php_extensions: Vec<String>,
    /// Commands whose output has to have a text.
    #[serde(default)]
    pub says: Vec<Says>,
}

/// A command and what its output has to have.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Says {
    /// The command.
    pub command: Command,
    /// Part of its output.
    pub text: String,
}

/// What shows that an engine did under load what it stands for.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proof {
    /// In a few words, as a failure quotes it.
    pub title: String,
    /// Is run after each load.
    pub command: Command,
    /// Regular expression that its output has to match.
    pub pattern: String,
}

/// How a version is read.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VersionProbe {
    /// Whose version it is.
    pub name: String,
    /// Prints it.
    pub command: Command,
    /// Regular expression; its first group is the version.
    pub pattern: String,
}

/// Where a file's text comes from.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum FileSource {
    /// The text itself.
    Text(String),
    /// A file beside the engine's.
    From(String),
}

/// One process of an engine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// Names its log.
    pub name: String,
    /// Stays in the foreground.
    pub command: Command,
    /// Else the engine's directory.
    pub cwd: Option<String>,
    /// On top of the engine's.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// What to wait for before the next process starts.
    pub ready: Option<ReadyWhen>,
    /// The signal that ends it in order; else TERM.
    #[serde(default)]
    pub stop: StopSignal,
}

/// When a process is ready.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum ReadyWhen {
    /// A unix socket accepts.
    Socket(String),
    /// A TCP port of 127.0.0.1 accepts.
    Port(String),
    /// A file exists.
    File(String),
}

/// A signal that ends a process in order.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum StopSignal {
    /// SIGTERM.
    #[default]
    Term,
    /// SIGQUIT.
    Quit,
    /// SIGINT.
    Int,
    /// SIGKILL, for programs that know no orderly end.
    Kill,
}

impl From<StopSignal> for Signal {
    fn from(signal: StopSignal) -> Self {
        match signal {
            StopSignal::Term => Self::Term,
            StopSignal::Quit => Self::Quit,
            StopSignal::Int => Self::Int,
            StopSignal::Kill => Self::Kill,
        }
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ready {
    path: Option<String>,
    timeout: Option<toml::Spanned<String>>,
}

/// A file as it is written: everything may be missing, since an overlay says only what differs.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct EngineFile {
    title: Option<String>,
    about: Option<String>,
    base: Option<toml::Spanned<String>>,
    entry: Option<String>,
    install: Option<String>,
    untested: Option<String>,
    workers: Option<u32>,
    ports: Option<Vec<String>>,
    #[serde(default)]
    ini: Settings,
    php_extensions: Option<Extensions>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    variables: Settings,
    detect: Option<Detect>,
    version: Option<Vec<VersionProbe>>,
    #[serde(default)]
    files: BTreeMap<String, FileSource>,
    setup: Option<Vec<Command>>,
    start: Option<Vec<Start>>,
    ready: Option<Ready>,
    logs: Option<Vec<String>>,
    proof: Option<Vec<Proof>>,
}

impl EngineFile {
    /// This file on top of its base.
    fn over(self, base: Self) -> Self {
        fn merged<V>(mut base: BTreeMap<String, V>, own: BTreeMap<String, V>) -> BTreeMap<String, V> {
            base.extend(own);
            base
        }
        let (own_ready, base_ready) = (self.ready.unwrap_or_default(), base.ready.unwrap_or_default());
        Self {
            title: self.title.or(base.title),
            about: self.about.or(base.about),
            base: None,
            entry: self.entry.or(base.entry),
            install: self.install.or(base.install),
            // What is true of the base need not be true of the overlay.
            untested: self.untested,
            workers: self.workers.or(base.workers),
            ports: self.ports.or(base.ports),
            ini: merged(base.ini, self.ini),
            php_extensions: self.php_extensions.or(base.php_extensions),
            env: merged(base.env, self.env),
            variables: merged(base.variables, self.variables),
            detect: self.detect.or(base.detect),
            version: self.version.or(base.version),
            files: merged(base.files, self.files),
            setup: self.setup.or(base.setup),
            start: self.start.or(base.start),
            ready: Some(Ready {
                path: own_ready.path.or(base_ready.path),
                timeout: own_ready.timeout.or(base_ready.timeout),
            }),
            logs: self.logs.or(base.logs),
            proof: self.proof.or(base.proof),
        }
    }
}

impl Engine {
    /// Whether it can be loaded over TLS and HTTP/2.
    pub fn speaks_tls(&self) -> bool {
        self.ports.iter().any(|port| port == TLS_PORT)
    }

    /// Whether it answers by itself, with a constant or a file, and never runs the application.
    pub fn runs_nothing(&self) -> bool {
        matches!(self.entry.as_str(), "fixed" | "static")
    }

    /// Reads `folder/NAME.toml` and the files it is based on.
    pub(super) fn read(folder: &Path, name: &str) -> Result<Self> {
        let source = Source::read(&folder.join(format!("{name}.toml")))?;
        let mut file: EngineFile = source.parse()?;
        let mut chain = vec![name.to_owned()];
        while let Some(base) = file.base.take() {
            let base_name = base.get_ref();
            if chain.contains(base_name) {
                return Err(source.wrong(Some(base.span()), format!("'{base_name}' is based on itself")));
            }
            let path = folder.join(format!("{base_name}.toml"));
            if !path.is_file() {
                return Err(
                    source.wrong(Some(base.span()), format!("there is no '{base_name}' to be based on"))
                );
            }
            chain.push(base_name.clone());
            let mut below: EngineFile = Source::read(&path)?.parse()?;
            let next = below.base.take();
            file = EngineFile { base: None, ..file }.over(below);
            file.base = next;
        }
        let lacks = |key: &str| source.wrong(None, format!("{key} is missing"));
        let ready = file.ready.unwrap_or_default();
        let ready_timeout = match &ready.timeout {
            None => Duration::from_secs(10),
            Some(text) => {
                parse_duration(text.get_ref()).map_err(|error| source.wrong(Some(text.span()), error))?
            }
        };
        let engine = Self {
            name: name.to_owned(),
            title: file.title.unwrap_or_else(|| name.to_owned()),
            about: file.about.unwrap_or_default(),
            entry: file.entry.unwrap_or_default(),
            install: file.install.ok_or_else(|| lacks("install"))?,
            untested: file.untested,
            workers: file.workers,
            ports: file.ports.unwrap_or_default(),
            ini: file.ini,
            extensions: file.php_extensions.unwrap_or_default(),
            env: file.env,
            variables: file.variables,
            detect: file.detect.ok_or_else(|| lacks("[detect]"))?,
            versions: file.version.unwrap_or_default(),
            files: file.files,
            setup: file.setup.unwrap_or_default(),
            start: file.start.ok_or_else(|| lacks("[[start]]"))?,
            ready_path: ready.path,
            ready_timeout,
            logs: file.logs.unwrap_or_default(),
            proofs: file.proof.unwrap_or_default(),
            folder: folder.to_owned(),
        };
        if engine.start.is_empty() {
            return Err(lacks("[[start]]"));
        }
        for probe in &engine.versions {
            let right = regex::Regex::new(&probe.pattern).is_ok_and(|pattern| pattern.captures_len() > 1);
            if !right {
                let message =
                    format!("the pattern of version '{}' is no regular expression with a group", probe.name);
                return Err(source.wrong(None, message));
            }
        }
        for proof in &engine.proofs {
            if let Err(error) = regex::Regex::new(&proof.pattern) {
                return Err(source.wrong(None, format!("the pattern of proof '{}': {error}", proof.title)));
            }
        }
        for command in engine.start.iter().map(|start| &start.command).chain(&engine.setup) {
            if command.is_empty() {
                return Err(source.wrong(None, "a command is empty"));
            }
        }
        for (path, file) in &engine.files {
            if let FileSource::From(from) = file
                && !folder.join(from).is_file()
            {
                return Err(source
                    .wrong(None, format!("files.\"{path}\": there is no {}", folder.join(from).display())));
            }
        }
        Ok(engine)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a directory");
        for (name, text) in files {
            fs::write(folder.path().join(name), text).expect("written");
        }
        folder
    }

    const BASE: &str = r#"
title = "base"
entry = "php"
install = "install it"
ini = { a = 1, b = true }
[detect]
commands = ["sh"]
[[start]]
name = "one"
command = ["sh"]
[ready]
timeout = "3s"
"#;

    #[test]
    fn overlays_merge_tables_and_replace_the_rest() {
        let over = "base = \"base\"\ntitle = \"over\"\nworkers = 80\nini = { b = 0, c = \"x\" }\n[ready]\npath = \"/up\"\n";
        let folder = folder(&[
            ("base.toml", BASE),
            ("over.toml", over),
            ("top.toml", "base = 'over'\nentry = 'worker'\n"),
        ]);
        let engine = Engine::read(folder.path(), "top").expect("valid");
        assert_eq!(
            (engine.title.as_str(), engine.entry.as_str(), engine.workers),
            ("over", "worker", Some(80))
        );
        let ini: Vec<_> = engine.ini.iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(ini, ["a=1", "b=0", "c=x"]);
        assert_eq!(
            (engine.ready_path.as_deref(), engine.ready_timeout),
            (Some("/up"), Duration::from_secs(3))
        );
    }

    #[test]
    fn errors_name_file_and_line() {
        for (text, expected) in [
            ("title = 'x'\ncolour = 'red'\n", ".toml:2: unknown field `colour`"),
            ("title = \n", ".toml:1: "),
            ("\nbase = 'nothing'\n", ".toml:2: there is no 'nothing' to be based on"),
            ("\nbase = 'it'\n", ".toml:2: 'it' is based on itself"),
            ("install = 'x'\n[detect]\n", ".toml: [[start]] is missing"),
            (&BASE.replace("3s", "3 parsecs"), ".toml:12: '3 parsecs' is no duration"),
        ] {
            let folder = folder(&[("it.toml", text)]);
            let error = Engine::read(folder.path(), "it").expect_err(text).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
