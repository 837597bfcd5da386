//! A running engine.
//!
//! States: nothing → configured (its directory is written) → started (its processes run) → ready (it answers) → checked (it
//! answers rightly) → stopped. Whatever fails ends in a [`Failure`] that says at which stage, with the end of the logs.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use regex::Regex;
use serde::{Deserialize, Serialize};

use super::{
    condition::Condition,
    files::{copy_app, give_to_user},
    http, ini,
    port::Port,
    probe::Probe,
    service::Services,
};
use crate::{
    data::{Change, Engine, FileSource, Proof, Settings, TLS_PORT, Workload},
    guard::{Guard, Signal, Spawn},
    instructions::{Counters, Instructions},
    session::{Session, text},
    template::Names,
};

/// How long an orderly end may take.
const STOP_TIME: Duration = Duration::from_secs(10);
/// Lines of a log that a failure shows.
const LOG_LINES: usize = 20;

/// Where in an engine's life something went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// A part of it is not there.
    Missing,
    /// Its files could not be written.
    Configure,
    /// A process did not start, or ended.
    Start,
    /// It did not answer in time.
    Ready,
    /// It answered wrongly.
    Check,
    /// It did not do under load what it stands for.
    Proof,
    /// It was ready, and a process ended.
    Died,
    /// The load could not be run.
    Load,
    /// A service or the data that the workload needs is not there.
    Service,
}

/// Why an engine was not measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// When.
    pub stage: Stage,
    /// Why.
    pub message: String,
    /// The end of its logs.
    pub log: String,
}

impl Stage {
    /// As a sentence begins: `nginx did not start: …`. Holds for several engines as well, each of them.
    pub fn verb(self) -> &'static str {
        match self {
            Self::Missing => "is missing",
            Self::Configure => "could not be configured",
            Self::Start => "did not start",
            Self::Ready => "did not become ready",
            Self::Check => "answers wrongly",
            Self::Proof => "is not what it says",
            Self::Died => "died",
            Self::Load => "could not be loaded",
            Self::Service => "had no database or data",
        }
    }
}

impl Failure {
    /// A failure without a log.
    pub fn new(stage: Stage, message: impl ToString) -> Self {
        Self { stage, message: message.to_string(), log: String::new() }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Instance {
    /// Holds the processes and the directory.
    pub guard: Guard,
    /// Where it answers, without a path.
    pub url: String,
    /// The same over TLS, if it has a port named [`TLS_PORT`].
    pub tls_url: Option<String>,
    /// The files that configure it, as they were written, and its commands.
    pub configuration: BTreeMap<String, String>,
    /// Its TCP port.
    pub port: u16,
    /// That one and those of its other listeners.
    ports: Vec<Port>,
    /// Its unix socket, for services.
    pub socket: PathBuf,
    /// Time from the first process until it was ready, seconds.
    pub start_up: f64,
    name: String,
    counters: Option<Counters>,
    /// With their commands rendered.
    proofs: Vec<Proof>,
    processes: Vec<Running>,
    logs: Vec<PathBuf>,
    /// What was strange about its start.
    warnings: Vec<String>,
}

#[derive(Debug)]
struct Running {
    name: String,
    pid: i32,
    stop: Signal,
}

/// What an engine is started for.
pub struct Purpose<'a> {
    /// The application; none for a service.
    pub workload: Option<&'a Workload>,
    /// What differs from the engine's files.
    pub change: &'a Change,
    /// The workload's running services and its data.
    pub services: Option<&'a Services>,
    /// Its processors.
    pub cpus: &'a [usize],
}

impl Instance {
    /// Starts an engine, and waits until it is ready; its answers are not checked yet. One that is not ready in time is started
    /// once more, and a warning tells of it.
    ///
    /// # Errors
    /// At which stage it failed, why, and the end of its logs. Nothing of it is left then.
    pub fn start(session: &Session, engine: &Engine, purpose: &Purpose<'_>) -> Result<Self, Failure> {
        let first = match Self::start_once(session, engine, purpose) {
            Err(failure) if failure.stage == Stage::Ready && !session.interrupted() => failure,
            done => return done,
        };
        let mut instance = Self::start_once(session, engine, purpose)?;
        instance.warnings.push(format!("at the first start {}; it was started again", first.message));
        Ok(instance)
    }

    fn start_once(session: &Session, engine: &Engine, purpose: &Purpose<'_>) -> Result<Self, Failure> {
        let configure = |error: anyhow::Error| Failure::new(Stage::Configure, format!("{error:#}"));
        let guard = session.guard(&engine.name).map_err(configure)?;
        let port = Port::take().map_err(configure)?;
        let socket = guard.dir.join(format!("{}.sock", engine.name));
        let mut instance = Self {
            url: format!("http://127.0.0.1:{}", port.number),
            tls_url: None,
            configuration: BTreeMap::new(),
            port: port.number,
            ports: vec![port],
            socket,
            start_up: 0.0,
            name: engine.name.clone(),
            counters: None,
            proofs: Vec::new(),
            processes: Vec::new(),
            logs: Vec::new(),
            warnings: Vec::new(),
            guard,
        };
        let prepared = instance.configure(session, engine, purpose).map_err(configure)?;
        if session.instructions && purpose.workload.is_some() {
            // Before it has started anything: what it starts inherits the counters.
            instance.counters = Some(Counters::watch(instance.guard.pid).map_err(configure)?);
        }
        let begin = Instant::now();
        let done = instance.run(session, engine, purpose, &prepared);
        let failed = match done {
            Ok(None) => {
                instance.start_up = begin.elapsed().as_secs_f64();
                return Ok(instance);
            }
            Ok(Some((stage, message))) => Failure::new(stage, message),
            Err(error) => Failure::new(Stage::Start, format!("{error:#}")),
        };
        Err(Failure { log: instance.log(), ..failed })
    }

    /// A directory and nothing that runs.
    pub(super) fn holder(session: &Session) -> Result<Self> {
        let guard = session.guard("data")?;
        let socket = guard.dir.join("none");
        Ok(Self {
            url: String::new(),
            tls_url: None,
            configuration: BTreeMap::new(),
            port: 0,
            ports: Vec::new(),
            socket,
            start_up: 0.0,
            name: "data".to_owned(),
            counters: None,
            proofs: Vec::new(),
            processes: Vec::new(),
            logs: Vec::new(),
            warnings: Vec::new(),
            guard,
        })
    }

    /// Whether the workload's checks hold.
    ///
    /// # Errors
    /// Which does not, with the end of the logs.
    pub fn check(&mut self, workload: &Workload, path: Option<&str>) -> Result<(), Failure> {
        match http::check(&self.url, workload, path) {
            Ok(()) => Ok(()),
            Err(error) => {
                let failure = match self.died() {
                    Some(how) => Failure::new(Stage::Died, how),
                    None => Failure::new(Stage::Check, error),
                };
                Err(Failure { log: self.log(), ..failure })
            }
        }
    }

    /// Whether it did under load what it stands for.
    ///
    /// # Errors
    /// Which proof fails, with what the command said.
    pub fn prove(&self, session: &Session) -> Result<(), Failure> {
        for Proof { title, command, pattern } in &self.proofs {
            let fail = |why: String| Failure::new(Stage::Proof, format!("{title}: {why}"));
            let pattern = Regex::new(pattern).map_err(|error| fail(error.to_string()))?;
            let said = session.run(command).map_err(|error| fail(format!("{error:#}")))?;
            if !pattern.is_match(&said) {
                let why = fail(format!("`{}` says nothing that matches '{pattern}'", command.join(" ")));
                return Err(Failure { log: said, ..why });
            }
        }
        Ok(())
    }

    /// What its processes have executed since the start; none if it is not counted.
    ///
    /// # Errors
    /// The counters cannot be read.
    pub fn instructions(&mut self) -> Result<Option<Instructions>> {
        self.counters.as_mut().map(Counters::read).transpose()
    }

    /// Which of its processes ended by itself, and how; `None` while all live.
    pub fn died(&mut self) -> Option<String> {
        for process in &self.processes {
            if let Some(ended) = self.guard.ended(process.pid) {
                return Some(format!("{} {}", process.name, ended.how));
            }
        }
        None
    }

    /// The end of its logs.
    pub fn log(&self) -> String {
        let mut text = String::new();
        for path in &self.logs {
            let Ok(bytes) = fs::read(path) else { continue };
            let all = String::from_utf8_lossy(&bytes);
            let lines: Vec<&str> = all.lines().collect();
            let end = &lines[lines.len().saturating_sub(LOG_LINES)..];
            if !end.is_empty() {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                text.push_str(&format!("--- {name}\n{}\n", end.join("\n")));
            }
        }
        text
    }

    /// Ends it in order, the last process first. Says what went wrong at its start and now, which are warnings: the
    /// measurement is over.
    pub fn stop(mut self) -> Vec<String> {
        let mut warnings = std::mem::take(&mut self.warnings);
        for process in std::mem::take(&mut self.processes).iter().rev() {
            if self.guard.ended(process.pid).is_some() {
                continue;
            }
            self.guard.signal(process.pid, process.stop);
            if self.guard.wait(process.pid, STOP_TIME).is_none() {
                let name = &process.name;
                warnings.push(format!(
                    "{}: {name} did not end within {} s and was killed",
                    self.name,
                    STOP_TIME.as_secs()
                ));
            }
        }
        match self.guard.kill_all() {
            Ok(_) => {}
            Err(error) => warnings.push(format!("{}: {error}", self.name)),
        }
        warnings
    }

    /// Writes everything below its directory, and says how its texts are to be rendered.
    fn configure(&mut self, session: &Session, engine: &Engine, purpose: &Purpose<'_>) -> Result<Prepared> {
        let dir = self.guard.dir.clone();
        let change = purpose.change;
        let file = format!("{}.toml", engine.name);
        let mut names = session.names();
        names.set("dir", text(&dir));
        names.set("port", self.port);
        names.set("socket", text(&self.socket));
        names.set("workers", engine.workers.unwrap_or(session.workers));
        for name in &engine.ports {
            let port = Port::take()?;
            names.set_in("ports", name, port.number);
            if name == TLS_PORT {
                self.tls_url = Some(format!("https://127.0.0.1:{}", port.number));
            }
            self.ports.push(port);
        }
        let php_ini_dir = dir.join("php.d");
        names.set("php_ini_dir", text(&php_ini_dir));
        let mut env = session.environment(&dir);
        env.insert("PHP_INI_SCAN_DIR".to_owned(), text(&php_ini_dir));
        // Servers that give PHP no environment of their own have to list it.
        let mut application = BTreeMap::new();
        names.set("environment", serde_json::json!({}));
        let mut settings: Vec<Settings> = Vec::new();
        if let Some(workload) = purpose.workload {
            let app = dir.join("app");
            copy_app(workload, &app)?;
            names.set("app", text(&app));
            if let Some(services) = purpose.services {
                services.name(&mut names);
            }
            let entries = workload.entries.get(&engine.entry).with_context(|| {
                format!("workload '{}' has no entry '{}' for it", workload.name, engine.entry)
            })?;
            let place = format!("{}/workload.toml: [entry.{}]", workload.name, engine.entry);
            for (key, value) in entries.iter().chain(&change.entry) {
                let value = names.render(&place, &value.0)?;
                names.set_in("entry", key, value);
            }
            settings.push(rendered(&names, &format!("{}/workload.toml: ini", workload.name), &workload.ini)?);
            for (key, value) in &workload.env {
                application.insert(
                    key.clone(),
                    names.render(&format!("{}/workload.toml: env", workload.name), value)?,
                );
            }
        }
        for (key, value) in engine.variables.iter().chain(&change.variables) {
            let value = names.render(&format!("{file}: variables.{key}"), &value.0)?;
            names.set_in("variables", key, value);
        }
        settings.push(rendered(&names, &format!("{file}: ini"), &engine.ini)?);
        settings.push(rendered(&names, "the step's ini", &change.ini)?);
        for (key, value) in engine.env.iter().chain(&change.env) {
            application.insert(key.clone(), names.render(&format!("{file}: env.{key}"), value)?);
        }
        for (key, value) in &application {
            names.set_in("environment", key, value.as_str());
        }
        env.extend(application);
        let ini_text = ini::write(
            session,
            &php_ini_dir,
            engine.extensions,
            &change.extensions,
            &settings.iter().collect::<Vec<_>>(),
        )?;
        self.configuration.insert("php.d/90-lab.ini".to_owned(), ini_text);
        for (path, source) in &engine.files {
            let (place, template) = match source {
                FileSource::Text(template) => (format!("{file}: files.\"{path}\""), template.clone()),
                FileSource::From(from) => {
                    let from = engine.folder.join(from);
                    (text(&from), fs::read_to_string(&from).with_context(|| text(&from))?)
                }
            };
            let content = names.render(&place, &template)?;
            let target = dir.join(path);
            if let Some(folder) = target.parent() {
                fs::create_dir_all(folder)?;
            }
            fs::write(&target, &content).with_context(|| text(&target))?;
            self.configuration.insert(path.clone(), content);
        }
        for log in &engine.logs {
            self.logs.push(PathBuf::from(names.render(&format!("{file}: logs"), log)?));
        }
        give_to_user(session, &dir)?;
        Ok(Prepared { names, env })
    }

    /// Runs set-up and processes until the engine is ready. `Ok(Some(…))` is a failure of the engine's own.
    fn run(
        &mut self,
        session: &Session,
        engine: &Engine,
        purpose: &Purpose<'_>,
        prepared: &Prepared,
    ) -> Result<Option<(Stage, String)>> {
        let dir = self.guard.dir.clone();
        let file = format!("{}.toml", engine.name);
        let end = Instant::now() + engine.ready_timeout;
        let log = dir.join("setup.log");
        for command in &engine.setup {
            let command = prepared.names.command(&format!("{file}: setup"), command)?;
            self.logs.push(log.clone());
            self.setup(&command, &prepared.env, &dir, &log, purpose.cpus, session)?;
        }
        for (number, start) in engine.start.iter().enumerate() {
            let place = format!("{file}: [[start]] {}", start.name);
            let command = prepared.names.command(&place, &start.command)?;
            let mut env = prepared.env.clone();
            for (key, value) in &start.env {
                env.insert(key.clone(), prepared.names.render(&place, value)?);
            }
            let cwd = match &start.cwd {
                Some(cwd) => PathBuf::from(prepared.names.render(&place, cwd)?),
                None => dir.clone(),
            };
            let log = dir.join(format!("{}.log", start.name));
            self.logs.push(log.clone());
            self.configuration.insert(format!("command {}", number + 1), command.join(" "));
            let spawn =
                Spawn { command, env, cwd, log, output: None, cpus: purpose.cpus.to_vec(), as_lab: false };
            let pid = self.guard.spawn(spawn)?;
            self.processes.push(Running { name: start.name.clone(), pid, stop: start.stop.into() });
            if let Some(when) = &start.ready {
                let condition = Condition::render(when, &prepared.names, &place)?;
                if let Some(failure) =
                    self.wait(session, end, engine.ready_timeout, &start.name, || condition.holds())?
                {
                    return Ok(Some(failure));
                }
            }
        }
        for proof in &engine.proofs {
            let command =
                prepared.names.command(&format!("{file}: [[proof]] {}", proof.title), &proof.command)?;
            self.proofs.push(Proof { command, ..proof.clone() });
        }
        if let Some(workload) = purpose.workload {
            let first = workload.checks.first().and_then(|check| check.path.clone());
            let path = engine.ready_path.clone().or(first).or_else(|| purpose.change.path.clone());
            let url = format!("{}{}", self.url, path.unwrap_or_else(|| workload.first_path()));
            let mut probe = Probe::new(url);
            return self.wait(session, end, engine.ready_timeout, &engine.name, || probe.ready());
        }
        Ok(None)
    }

    fn wait(
        &mut self,
        session: &Session,
        end: Instant,
        time: Duration,
        what: &str,
        mut ready: impl FnMut() -> bool,
    ) -> Result<Option<(Stage, String)>> {
        let mut pause = Duration::from_millis(5);
        loop {
            if let Some(how) = self.died() {
                return Ok(Some((Stage::Start, how)));
            }
            if ready() {
                return Ok(None);
            }
            if session.interrupted() {
                bail!("interrupted");
            }
            if Instant::now() > end {
                return Ok(Some((
                    Stage::Ready,
                    format!("{what} does not answer after {} s", time.as_secs_f64()),
                )));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(100));
        }
    }

    /// Runs a command to its end, as the engine's user and with its environment.
    pub(super) fn setup(
        &mut self,
        command: &[String],
        env: &BTreeMap<String, String>,
        cwd: &Path,
        log: &Path,
        cpus: &[usize],
        session: &Session,
    ) -> Result<()> {
        let spawn = Spawn {
            command: command.to_vec(),
            env: env.clone(),
            cwd: cwd.to_owned(),
            log: log.to_owned(),
            output: None,
            cpus: cpus.to_vec(),
            as_lab: false,
        };
        let pid = self.guard.spawn(spawn)?;
        loop {
            if let Some(ended) = self.guard.wait(pid, Duration::from_millis(100)) {
                if ended.code == Some(0) {
                    return Ok(());
                }
                bail!("{} {}", command.join(" "), ended.how);
            }
            if session.interrupted() {
                bail!("interrupted");
            }
        }
    }
}

struct Prepared {
    names: Names,
    env: BTreeMap<String, String>,
}

fn rendered(names: &Names, place: &str, settings: &Settings) -> Result<Settings> {
    settings
        .iter()
        .map(|(key, value)| Ok((key.clone(), crate::data::Scalar(names.render(place, &value.0)?))))
        .collect()
}
