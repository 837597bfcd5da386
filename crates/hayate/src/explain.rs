//! `hayate explain`: boots an application with one worker, makes a few sample requests, and reports what was seen.
//!
//! Some of it is measured here, from outside: the boot's length, the memory's kinds, how long the samples take, what the worker counts.
//! The rest only the host can know. It is started with `--explain FILE` and appends one JSON object a line to that file, an [`Event`]
//! each, every line by one write(2) to a descriptor that it opens and closes for it (so that no descriptor of its own is among
//! those of the boot). Lines come in the order of what happened: any number of `primed`, one `boot`, any number of `frozen` and `warmup`, one `snapshot`,
//! then a `request` after each rewind (or retirement). Where each worker boots by itself, each writes all of that. What this
//! version does not know is skipped.

mod memory;
mod report;

use std::{
    fs,
    io::{self, Write},
    path::Path,
    process::{Command, ExitCode, Stdio},
    slice::from_ref,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use hayate_front::{ListenAddr, Listener, Thread, TrustedHeaders, runtime};
use hayate_http::Secret;
use hayate_pool::{Directly, Generation, Mode, Rewind, RewindTotals, Spec};
use hayate_ring::Hub;
use http_body_util::{BodyExt, Empty};
use hyper::{Request, body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use tokio::{
    net::UnixStream,
    sync::{mpsc, watch},
    task::spawn_local,
};

use crate::{
    access_logs::AccessLogs,
    args::ExplainArgs,
    config::LogLevel,
    fallback, logging,
    plan::{Address, App, Plan},
    privileges::{self, Identity},
    server::Server,
    terminal,
};
use report::{Report, Sample};

/// How often each sample is requested, by a worker of its own; the report has the medians. The first request shows all
/// pages that are written, the later ones what it costs when the worker knows them.
const REPETITIONS: usize = 7;
/// Nothing is served by QUIC here, so there is nothing to keep secret.
const NO_QUIC: Secret = Secret::new([0; 32]);

/// One line that the host writes. Times are in µs, memory in pages of 4096 bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The boot has reached its first `hayate_handle_request()`.
    Boot {
        /// From PHP's start to there.
        us: u64,
        /// PHP files that were included.
        files: u64,
    },
    /// Something that boot-time code did and whose outcome all requests will see.
    Frozen {
        /// `time`, `random`, `environment`, `file`, `connection` or `thread`.
        kind: String,
        /// The function that was called, the file or the address; no value of a secret.
        what: String,
        /// `file:line` of the first time.
        #[serde(default)]
        at: Option<String>,
        /// How often.
        count: u64,
    },
    /// A warm-up request is over.
    Warmup {
        /// As configured.
        path: String,
        /// The handler's time.
        us: u64,
        /// The answer's status.
        status: u16,
    },
    /// In a recognised project a warm-up request is over, which a process of its own has made in classic mode.
    Primed {
        /// As configured.
        path: String,
        /// From its beginning to its end.
        us: u64,
        /// The answer's status.
        status: u16,
    },
    /// Objects of the boot or of warm-up requests whose destructor runs at the end of each request.
    Destructor {
        /// Their class.
        what: String,
        /// How many.
        count: u64,
    },
    /// With `connections = "warm"`: a connection that is open when a worker is ready.
    Connection {
        /// Path or address of the server.
        peer: String,
        /// `MySQL`, `PostgreSQL`, `Redis` or `unknown`.
        kind: String,
        /// Why it is not kept over rewinds; empty: it is.
        why: String,
    },
    /// The snapshot was taken.
    Snapshot {
        /// `file:line` of the call to `hayate_handle_request()`.
        at: String,
        /// How long it took.
        us: u64,
        /// What stands in the way of better tracking; empty for the best.
        #[serde(default)]
        tracking_why: String,
        /// Its memory, by kind.
        regions: Vec<Region>,
    },
    /// A request was rewound, or was the worker's last.
    Request {
        /// The handler's time.
        us: u64,
        /// In ns: destructors at its end, of its own objects and of the boot's.
        #[serde(default)]
        destructors_ns: u64,
        /// PHP files that it included and that the snapshot does not have.
        #[serde(default)]
        loaded: u64,
        /// Of `enum hy_retired`, when the worker retired instead.
        #[serde(default)]
        retired: Option<u32>,
        /// What was written, largest first.
        causes: Vec<Cause>,
    },
    /// The request before it was the worker's last, which was found out after its rewind.
    Retired {
        /// Of `enum hy_retired`.
        why: u32,
    },
    /// From a newer host.
    #[serde(other)]
    Unknown,
}

/// Memory of the snapshot of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Region {
    /// Such as `PHP heap`, `malloc`, `stack`, `libphp8.2.so`.
    pub kind: String,
    /// Pages that are put back when they were written.
    pub pages: u64,
    /// Pages that held nothing at the snapshot, and are left alone.
    #[serde(default)]
    pub unused: u64,
}

/// Pages that a request wrote, by where they lie.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    /// Such as `objects of the boot: App\Kernel`, or a region's kind.
    pub what: String,
    /// How many.
    pub pages: u64,
}

/// Names of classes and files in one line each, whatever the application has put into them.
fn in_one_line(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::String(text) => *text = terminal::plain(&text.replace('\n', " ")),
        serde_json::Value::Array(values) => values.iter_mut().for_each(in_one_line),
        serde_json::Value::Object(values) => values.values_mut().for_each(in_one_line),
        _ => {}
    }
}

/// Reads what the host wrote. Lines that are no events are left out.
fn events(text: &str) -> Vec<Event> {
    text.lines()
        .filter_map(|line| {
            let mut said = serde_json::from_str(line).ok()?;
            in_one_line(&mut said);
            serde_json::from_value(said).ok()
        })
        .filter(|event| *event != Event::Unknown)
        .collect()
}

/// Prints the report for each application. Exit status 1: it does not boot; 2: the configuration is wrong.
pub fn run(args: &ExplainArgs) -> ExitCode {
    let mut plan = match Plan::load(&args.serve) {
        Ok(plan) => plan,
        Err(error) => {
            crate::complain(format_args!("{error}"));
            return ExitCode::from(2);
        }
    };
    // What runs in the workers of another application runs as that does.
    let pooled = plan.apps.iter().filter_map(|app| {
        let pool = app.pool.as_ref()?;
        Some(format!(
            "{}: its scripts run in the workers of '{pool}' (pool), as that one's do\n",
            app.spec.name
        ))
    });
    let pooled: String = pooled.collect();
    plan.apps.retain(|app| !app.is_static && app.pool.is_none());
    let outcome = match args.user_of {
        None if users(&plan).len() > 1 => explain_each_user(&plan, args),
        _ => explain_all(&plan, args).and_then(|reports| {
            if args.json {
                say(&format!("{}\n", terminal::json(&serde_json::to_string_pretty(&reports)?)))
            } else {
                say(&reports.iter().map(ToString::to_string).collect::<String>())
            }
        }),
    };
    let outcome = match args.json || args.user_of.is_some() {
        true => outcome,
        false => outcome.and_then(|()| say(&pooled)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            crate::complain(format_args!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// The first application of each user, in order.
fn users(plan: &Plan) -> Vec<usize> {
    let mut users: Vec<(usize, Option<&Identity>)> = Vec::new();
    for (i, app) in plan.apps.iter().enumerate() {
        if !users.iter().any(|(_, known)| *known == app.identity.as_ref()) {
            users.push((i, app.identity.as_ref()));
        }
    }
    users.into_iter().map(|(i, _)| i).collect()
}

/// Prints a report. Who reads it may have seen enough: `hayate explain … | head`.
fn say(text: &str) -> Result<()> {
    match io::stdout().write_all(terminal::plain(text).as_bytes()).and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// One process cannot be several users in turn: each has one of its own, which reads the configuration as this one did and becomes that user.
fn explain_each_user(plan: &Plan, args: &ExplainArgs) -> Result<()> {
    let (mut all, mut failed) = (Vec::new(), false);
    // Among the first arguments: behind `--` it would be none.
    let own: Vec<_> = std::env::args_os().skip(1).collect();
    let here = own.iter().position(|arg| arg == "explain").map_or(0, |at| at + 1);
    let (before, after) = own.split_at(here);
    for user in users(plan) {
        let mut command = Command::new("/proc/self/exe");
        command.args(before).args(["--user-of", &user.to_string()]).args(after);
        let said = command.stderr(Stdio::inherit()).output().context("cannot start explain again")?;
        failed |= !said.status.success();
        if !args.json {
            say(&String::from_utf8_lossy(&said.stdout))?;
        } else if said.status.success() {
            all.extend(serde_json::from_slice::<Vec<serde_json::Value>>(&said.stdout)?);
        }
    }
    if args.json {
        say(&format!("{}\n", terminal::json(&serde_json::to_string_pretty(&all)?)))?;
    }
    anyhow::ensure!(!failed, "of several users' applications not all could be explained");
    Ok(())
}

fn explain_all(plan: &Plan, args: &ExplainArgs) -> Result<Vec<Report>> {
    logging::init(LogLevel::Warn, plan.log_format).context("cannot start the log's thread")?;
    // As whoever serves it: what a boot writes (caches, logs) has to be theirs.
    let identity = plan.apps.get(args.user_of.unwrap_or(0)).and_then(|app| app.identity.as_ref());
    let apps = plan.apps.iter().filter(|app| app.identity.as_ref() == identity);
    privileges::drop_to(identity)?;
    let hub = Hub::new(1).context("eventfd")?;
    let (runtime, _watch) = runtime::build(&hub, 0).context("cannot start the event loop")?;
    let dir = tempfile::tempdir().context("a temporary directory")?;
    let urls = if args.url.is_empty() { vec!["/".to_owned()] } else { args.url.clone() };
    let reports = runtime.block_on(async {
        let mut reports = Vec::new();
        for app in apps {
            let urls = urls_of(plan, app, &urls);
            if !urls.is_empty() {
                reports.push(
                    explain(plan, &App { beside: None, ..app.clone() }, &urls, &hub, dir.path()).await?,
                );
            }
        }
        Ok(reports)
    });
    runtime.block_on(logging::finish());
    runtime.shutdown_background();
    reports
}

/// Those of the URLs that an application answers: what runs scripts beside one, theirs.
fn urls_of(plan: &Plan, app: &App, urls: &[String]) -> Vec<String> {
    let with_scripts = match &app.beside {
        None => Some(app),
        Some(name) => plan.configured().find(|app| app.spec.name == *name),
    };
    let runs_beside = |url: &String| with_scripts.is_some_and(|app| app.runs_beside(url));
    urls.iter().filter(|url| runs_beside(url) == app.beside.is_some()).cloned().collect()
}

async fn explain(plan: &Plan, app: &App, urls: &[String], hub: &Arc<Hub>, dir: &Path) -> Result<Report> {
    let file = dir.join("events");
    fs::write(&file, "").context("the temporary directory")?;
    let spec = Spec {
        workers: 1..=1,
        max_requests: Some(REPETITIONS as u64),
        explain: Some(file.clone()),
        ..app.spec.clone()
    };
    let started = Instant::now();
    let mut generation =
        Generation::start(spec.clone(), Arc::new(Directly), hub).context("cannot make the shared memory")?;
    let mut app = App { spec, ..app.clone() };
    let booted = fallback::all_booted([&app].into_iter(), from_ref(&generation), hub).await;
    if let Some(error) = booted.failed.first() {
        generation.kill().await;
        anyhow::bail!("{error}");
    }
    for replacement in booted.slower {
        generation.kill().await;
        (app, generation) = (replacement.app, replacement.new);
        app.remark = replacement.fallback.map(|fallback| fallback.words());
    }
    let boot = started.elapsed();

    let app = App { spec: generation.spec().clone(), ..app.clone() };
    let booted = generation.status();
    let process = booted.zygote.filter(|_| booted.boot == "shared");
    let process = process.or(booted.workers.first().map(|worker| worker.pid));
    let memory = process.map(memory::by_kind).transpose().unwrap_or_default().unwrap_or_default();
    let mut samples = samples(plan, &app, &generation, urls, dir).await?;
    // A worker that has just taken another's place says in a moment how it is tracked.
    let patience = Instant::now() + Duration::from_secs(1);
    let status = loop {
        let status = generation.status();
        if status.rewind.as_ref().is_none_or(|rewind| rewind.tracking.is_some()) || Instant::now() > patience
        {
            break status;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    generation.kill().await;
    let told = events(&String::from_utf8_lossy(&fs::read(&file).unwrap_or_default()));
    remove(&file)?;
    let forks = status.rewind.as_ref().is_some_and(|rewind| rewind.tracking == Some("fork"));
    let not_compared = if !is_own_worker(&app) {
        Vec::new()
    } else if forks || app.spec.rewind == Rewind::Fork {
        vec!["each request runs in a fork, whose CPU time is not the worker's".to_owned()]
    } else {
        compare_with_classic_mode(plan, &app, hub, urls, dir, &mut samples).await?
    };
    let mut report = Report::new(&app, &status, boot, memory, samples, told);
    report.not_compared = not_compared;
    Ok(report)
}

/// Whether somebody has written the worker script, which need not be worth it; one for a framework that Hayate knows is.
fn is_own_worker(app: &App) -> bool {
    matches!(app.spec.mode, Mode::Worker { .. }) && app.recognised.is_none()
}

/// Makes the same requests in classic mode. Returns what cannot be compared, and why.
async fn compare_with_classic_mode(
    plan: &Plan,
    app: &App,
    hub: &Arc<Hub>,
    urls: &[String],
    dir: &Path,
    samples: &mut [Sample],
) -> Result<Vec<String>> {
    let Mode::Worker { script: worker } = &app.spec.mode else { return Ok(Vec::new()) };
    let classic = fallback::in_classic_mode(app).unwrap_or_else(|| fallback::as_scripts(app));
    let mut why = Vec::new();
    let mut runs = |url: &&String| {
        let path = app.target(url);
        match classic.script(url) {
            Some(script) if script != *worker => return true,
            Some(_) => why.push(format!("{path} is the worker script itself")),
            None => why.push(format!(
                "{path} names no script, and there is no front controller but the worker script (front_controller, \
                 --front-controller)"
            )),
        }
        false
    };
    let urls: Vec<String> = urls.iter().filter(&mut runs).cloned().collect();
    if urls.is_empty() {
        return Ok(why);
    }
    let classic = App { spec: Spec { explain: None, ..classic.spec.clone() }, ..classic };
    let generation = Generation::start(classic.spec.clone(), Arc::new(Directly), hub)
        .context("cannot make the shared memory")?;
    let measured = match generation.booted().await {
        Ok(()) => self::samples(plan, &classic, &generation, &urls, dir).await,
        Err(error) => {
            why.push(format!("it does not boot in classic mode: {error}"));
            Ok(Vec::new())
        }
    };
    generation.kill().await;
    for other in measured? {
        let Some(sample) = samples.iter_mut().find(|sample| sample.path == other.path) else { continue };
        if sample.status != other.status {
            why.push(format!(
                "{} is answered with {} by the worker script and with {} in classic mode",
                other.path, sample.status, other.status
            ));
        } else if sample.cpu_us.is_none() || other.cpu_us.is_none() {
            why.push(format!("{}: the worker was replaced after each request, or never at rest", other.path));
        }
        sample.classic_cpu_us = other.cpu_us.filter(|_| other.status == sample.status);
    }
    Ok(why)
}

fn remove(file: &Path) -> io::Result<()> {
    fs::remove_file(file).or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    })
}

/// Makes the sample requests: one application, on a socket that nobody else knows, at the address that it has for visitors.
async fn samples(
    plan: &Plan,
    app: &App,
    generation: &Arc<Generation>,
    urls: &[String],
    dir: &Path,
) -> Result<Vec<Sample>> {
    let (address, _) = app.addresses(&plan.ports_by_address(), plan.is_behind_proxy());
    // The socket stands in for the proxy, if there is one: what it forwards is believed.
    let trusted_headers = TrustedHeaders::default();
    let alone = Plan { apps: vec![app.clone()], trust_unix: true, trusted_headers, ..plan.clone() };
    let (orders, _) = mpsc::unbounded_channel();
    let server = Server::new(&alone, AccessLogs::off(), orders, std::process::id(), NO_QUIC, false)?;
    server.install(&alone, AccessLogs::off(), vec![Arc::clone(generation)], Vec::new());
    let socket = dir.join("http");
    let listener = Listener::bind(&ListenAddr::Unix(socket.clone()))?;
    let (stop, stopped) = watch::channel(false);
    spawn_local(Thread::new(&server.front).serve(listener, stopped));
    let mut samples = Vec::new();
    for url in urls {
        samples.push(sample(generation, &socket, &address, &app.target(url)).await?);
    }
    stop.send_replace(true);
    remove(&socket)?;
    Ok(samples)
}

/// How long a worker that has answered may take to rest: on a busy machine it waits for a processor in between.
const RESTS: Duration = Duration::from_secs(5);

/// CPU time of a process' first thread, in ns, when it rests: it sleeps, and has done nothing for a moment. One that waits for a processor does
/// neither. `None`: it is gone, or does not rest for a while.
async fn cpu_at_rest(process: i32) -> Option<u64> {
    let read = |what: &str| fs::read_to_string(format!("/proc/{process}/{what}")).ok();
    let spent = || -> Option<u64> { read("schedstat")?.split_whitespace().next()?.parse().ok() };
    // What follows the name, which may hold anything (proc_pid_stat(5)).
    let sleeps = || -> Option<bool> { Some(read("stat")?.rsplit_once(") ")?.1.starts_with('S')) };
    let mut last = spent()?;
    let patience = Instant::now() + RESTS;
    while Instant::now() < patience {
        tokio::time::sleep(Duration::from_millis(2)).await;
        let (slept, now) = (sleeps()?, spent()?);
        if slept && now == last {
            return Some(now);
        }
        last = now;
    }
    None
}

/// Requests a path several times, one after the other, and waits for the rewind after each.
async fn sample(generation: &Generation, socket: &Path, address: &Address, path: &str) -> Result<Sample> {
    let rewinds =
        matches!(generation.spec().mode, Mode::Worker { .. }) && generation.spec().rewind != Rewind::Off;
    let totals = || generation.status().rewind.map(|rewind| rewind.totals).unwrap_or_default();
    let ended = || generation.status().restarts.values().sum::<u64>();
    let (mut times, mut costs) = (Vec::new(), Vec::new());
    let (mut last, mut hot_pages, mut cpu) = (Got::default(), 0, Vec::new());
    for _ in 0..REPETITIONS {
        let worker = generation.status().workers.first().map_or(0, |worker| worker.pid);
        let cpu_before = cpu_at_rest(worker).await;
        let (before, ended_before) = (totals(), ended());
        let start = Instant::now();
        last = get(socket, address, path).await?;
        times.push(start.elapsed());
        let patience = Instant::now() + Duration::from_millis(if rewinds { 1000 } else { 0 });
        while totals().rewinds == before.rewinds && ended() == ended_before && Instant::now() < patience {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        costs.push((before, totals()));
        // Of the worker's last request nothing can be read any more.
        if let (Some(before), Some(after)) = (cpu_before, cpu_at_rest(worker).await) {
            cpu.push(after.saturating_sub(before) / 1000);
        }
        hot_pages = hot_pages.max(generation.status().rewind.map_or(0, |rewind| rewind.hot_pages));
        // What fails says so once.
        if last.status >= 500 {
            break;
        }
    }
    let median = |mut of: Vec<u64>| {
        of.sort_unstable();
        of[of.len() / 2]
    };
    let cost = |field: fn(&RewindTotals) -> u64| {
        median(costs.iter().map(|(before, after)| field(after).saturating_sub(field(before))).collect())
    };
    Ok(Sample {
        path: path.to_owned(),
        status: last.status,
        location: last.location,
        bytes: last.bytes,
        us: median(times.iter().map(|time| time.as_micros() as u64).collect()),
        clean_ns: cost(|totals| totals.clean_ns),
        scan_ns: cost(|totals| totals.scan_ns),
        copy_ns: cost(|totals| totals.copy_ns),
        cold_pages: cost(|totals| totals.cold_pages),
        hot_pages,
        php_us: None,
        cpu_us: (cpu.len() > REPETITIONS / 2).then(|| median(cpu)),
        classic_cpu_us: None,
        destructors_ns: 0,
        loaded: 0,
        causes: Vec::new(),
        retired: None,
    })
}

/// An answer.
#[derive(Default)]
struct Got {
    status: u16,
    location: Option<String>,
    bytes: u64,
}

async fn get(socket: &Path, address: &Address, path: &str) -> Result<Got> {
    let stream = UnixStream::connect(socket).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let driver = tokio::spawn(connection);
    let request = Request::get(path)
        .header("host", &address.authority)
        .header("x-forwarded-proto", if address.https { "https" } else { "http" })
        .header("x-forwarded-port", address.port)
        .header("user-agent", "hayate explain")
        .body(Empty::<Bytes>::new())
        .with_context(|| format!("--url {path}"))?;
    let response = sender.send_request(request).await.context("the sample request failed")?;
    let status = response.status().as_u16();
    let location =
        response.headers().get("location").map(|to| String::from_utf8_lossy(to.as_bytes()).into_owned());
    let body = response.into_body().collect().await.context("the sample's answer broke off")?.to_bytes();
    driver.abort();
    Ok(Got { status, location, bytes: body.len() as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_the_host() {
        let text = concat!(
            r#"{"event":"boot","us":81000,"files":212}"#,
            "\n",
            r#"{"event":"frozen","kind":"time","what":"time()","at":"/srv/a.php:3","count":2}"#,
            "\n",
            r#"{"event":"frozen","kind":"connection","what":"tcp 127.0.0.1:6379","count":1}"#,
            "\n",
            r#"{"event":"warmup","path":"/","us":900,"status":200}"#,
            "\n",
            r#"{"event":"primed","path":"/","us":900,"status":404}"#,
            "\n",
            r#"{"event":"snapshot","at":"/srv/worker.php:9","us":700,"regions":[{"kind":"PHP heap","pages":900,"unused":100}]}"#,
            "\n",
            r#"{"event":"request","us":300,"causes":[{"what":"PHP heap","pages":40}]}"#,
            "\n",
            r#"{"event":"connection","peer":"/run/mysqld/mysqld.sock","kind":"MySQL","why":""}"#,
            "\n",
            r#"{"event":"of the future","x":1}"#,
            "\nnonsense\n",
        );
        let events = events(text);
        assert_eq!(events.len(), 8);
        assert_eq!(events[0], Event::Boot { us: 81000, files: 212 });
        assert!(matches!(&events[2], Event::Frozen { at: None, count: 1, .. }));
        assert!(matches!(&events[6], Event::Request { retired: None, causes, .. } if causes[0].pages == 40));
    }
}
