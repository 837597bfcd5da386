//! The generator as a process of its own: `hayate-lab load`, pinned to its processors, so that its CPU time is seen apart
//! and a crash of it costs one measurement.

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use hayate_load::Report;

use crate::{
    data::{Change, Load, Workload},
    guard::{Guard, Signal, Spawn},
    output::status,
    session::{Session, text},
};

/// The longest that a load without a known duration may take.
const LONGEST: Duration = Duration::from_secs(600);
/// How long a generator may take to end and to write its report, beyond the time of the load.
const GRACE: Duration = Duration::from_secs(60);

/// Runs loads, one after the other.
pub struct Generator {
    /// Its process is below this one.
    pub guard: Guard,
    program: PathBuf,
}

/// What is loaded.
pub struct Target<'a> {
    /// Without a path.
    pub url: &'a str,
    /// Whose requests are made.
    pub workload: &'a Workload,
    /// What differs.
    pub change: &'a Change,
}

impl Generator {
    /// A generator that does nothing yet.
    ///
    /// # Errors
    /// Its guard cannot be started.
    pub fn new(session: &Session) -> Result<Self> {
        let program = std::env::current_exe().context("the path of this program")?;
        Ok(Self { guard: session.guard("load")?, program })
    }

    /// Makes another guard if somebody killed the old one.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn renew(&mut self, session: &Session) -> Result<()> {
        if self.guard.is_lost() {
            self.guard = session.guard("load")?;
        }
        Ok(())
    }

    /// Runs a load to its end. `watch` is called several times a second; if it says so the load ends early, and what
    /// it found out until then is the result.
    ///
    /// # Errors
    /// The generator ended without a report; with the end of what it said.
    pub fn run(
        &mut self,
        session: &Session,
        target: &Target<'_>,
        load: &Load,
        watch: &mut dyn FnMut() -> bool,
    ) -> Result<Report> {
        let dir = self.guard.dir.clone();
        let (json, log) = (dir.join("report.json"), dir.join("load.log"));
        for old in [&json, &log] {
            if old.exists() {
                fs::remove_file(old).with_context(|| text(old))?;
            }
        }
        let command = self.command(target, load, &json)?;
        let mut env = session.environment(&dir);
        env.insert("NO_COLOR".to_owned(), "1".to_owned());
        let cpus = session.cores.load.clone();
        let spawn = Spawn { command, env, cwd: dir, log: log.clone(), output: None, cpus, as_lab: true };
        let pid = self.guard.spawn(spawn)?;
        let timeout = Duration::from_secs_f64(load.timeout.unwrap_or(30.0));
        let limit =
            load.duration().map_or(LONGEST, |seconds| Duration::from_secs_f64(seconds) + timeout + GRACE);
        let end = Instant::now() + limit;
        let mut told = None;
        let ended = loop {
            if let Some(ended) = self.guard.wait(pid, Duration::from_millis(50)) {
                break ended;
            }
            status::tick();
            match told {
                None if watch() || Instant::now() > end => {
                    self.guard.signal(pid, Signal::Int);
                    told = Some(Instant::now());
                }
                Some(since) if since.elapsed() > GRACE => self.guard.signal(pid, Signal::Kill),
                _ => {}
            }
        };
        let said = || {
            let said = fs::read_to_string(&log).unwrap_or_default();
            let lines: Vec<&str> = said.lines().collect();
            lines[lines.len().saturating_sub(5)..].join("\n")
        };
        let Ok(written) = fs::read_to_string(&json) else {
            bail!("the generator {}: {}", ended.how, said());
        };
        serde_json::from_str(&written)
            .with_context(|| format!("the generator {}, half a report: {}", ended.how, said()))
    }

    fn command(&self, target: &Target<'_>, load: &Load, json: &std::path::Path) -> Result<Vec<String>> {
        let workload = target.workload;
        let paths = match &target.change.path {
            Some(path) => vec![path.clone()],
            None => workload.paths(),
        };
        let first = paths.first().map_or("/", String::as_str);
        let mut command = vec![text(&self.program), "load".to_owned(), format!("{}{first}", target.url)];
        command.extend(load.flags());
        if paths.len() > 1 {
            let list = self.guard.dir.join("urls");
            fs::write(&list, paths.join("\n") + "\n").with_context(|| text(&list))?;
            command.extend(["--urls".to_owned(), text(&list)]);
        }
        if let Some(method) = &workload.method {
            command.extend(["--method".to_owned(), method.clone()]);
        }
        for (name, value) in &workload.headers {
            command.extend(["--header".to_owned(), format!("{name}: {value}")]);
        }
        if workload.cookies {
            command.push("--cookies".to_owned());
        }
        if let Some(body) = &workload.body {
            command.push(format!("--body={body}"));
        }
        let status = workload.expect_status.as_deref().unwrap_or("200");
        command.extend(["--expect-status".to_owned(), status.to_owned()]);
        if let Some(body) = &workload.expect_body {
            command.push(format!("--expect-match={body}"));
        }
        command.extend(["--progress=never".to_owned(), format!("--json={}", text(json))]);
        Ok(command)
    }
}
