//! `hayate-lab load`: flags and terminal output of the load generator. What it does is in the crate hayate-load.

mod print;
mod progress;

use std::{
    fs,
    io::Read as _,
    num::NonZero,
    path::PathBuf,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::Context as _;
use clap::ValueEnum;
use hayate_load::{
    Engine, Expect, Load, Order, Plan, Report, Requests, Schedule, Statuses, Stop, Template, Trust, Until,
    Version, parse_duration,
};
use http::{HeaderName, HeaderValue, Method};
use regex::bytes::Regex;
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};

use crate::result::{try_file, write_file};
use progress::{Progress, When};

const CLOSED_CONNECTIONS: usize = 10;
const CLOSED_DURATION: Duration = Duration::from_secs(10);

const EXAMPLES: &str = "\
Three forms of load:
  open loop: every request has its moment, and its latency counts from it, whatever the server does
    hayate-lab load http://127.0.0.1:8080/ --schedule 'line(1, 1000, 60s) const(1000, 60s) step(100, 500, 100, 10s)'
  closed loop: each connection sends its next request when it has the last answer (as wrk, ab)
    hayate-lab load http://127.0.0.1:8080/ --connections 100 --duration 30s
    hayate-lab load http://127.0.0.1:8080/ --connections 100 --requests 10000
  virtual users that start one after the other and send so many requests each (as JMeter)
    hayate-lab load http://127.0.0.1:8080/ --threads 500 --ramp-up 1s --loops 200

HTTP/2, HTTP/3, TLS, full handshakes:
    hayate-lab load https://127.0.0.1:8443/ --insecure --http2 --connections 1 --streams 100 --duration 10s
    hayate-lab load https://127.0.0.1:8443/ --insecure --http3 --connections 10 --streams 10 --duration 10s
    hayate-lab load https://127.0.0.1:8443/ --insecure --no-keepalive --no-resumption --connections 20 --duration 10s

Times: 500ms, 30s, 1m30s, 1h; a number alone is seconds.

Exit status: 0 the load ran to its end; 1 nothing came back as expected, or not everything did and --expect-status,
--expect-body or --expect-match was given; 2 it could not be started; 130 interrupted, partial results were printed.";

/// What to send, how, and what to print.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct LoadArgs {
    /// Where to send requests to: http://HOST[:PORT][/PATH], or https://
    pub url: String,

    /// Open loop: phases in a row, of line(FROM, TO, TIME), const(RATE, TIME), step(FROM, TO, STEP, TIME)
    ///
    /// Rates are requests per second. A step also stays at TO for its TIME. const(0, 10s) is a pause.
    #[arg(short, long, value_parser = Schedule::parse, help_heading = "Form of the load",
        conflicts_with_all = ["duration", "requests", "threads"])]
    pub schedule: Option<Schedule>,
    /// Connections of a closed loop [default: 10]; with --schedule the most there may be [default: 1000]
    #[arg(short, long, value_name = "N", help_heading = "Form of the load", conflicts_with = "threads")]
    pub connections: Option<NonZero<usize>>,
    /// How long a closed loop goes on [default: 10s]
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration, help_heading = "Form of the load",
        conflicts_with_all = ["requests", "threads"])]
    pub duration: Option<Duration>,
    /// How many requests a closed loop sends in all
    #[arg(
        short = 'n',
        long,
        value_name = "N",
        help_heading = "Form of the load",
        conflicts_with = "threads"
    )]
    pub requests: Option<NonZero<u64>>,
    /// Virtual users, each with a connection of its own
    #[arg(short, long, value_name = "N", help_heading = "Form of the load", requires = "loops")]
    pub threads: Option<NonZero<usize>>,
    /// Time over which the virtual users' starts are spread evenly
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "0", help_heading = "Form of the load",
        requires = "threads")]
    pub ramp_up: Duration,
    /// Requests of each virtual user
    #[arg(short, long, value_name = "N", help_heading = "Form of the load", requires = "threads")]
    pub loops: Option<NonZero<u64>>,

    /// Method [default: GET, with a body POST]
    #[arg(short = 'X', long, help_heading = "Requests")]
    pub method: Option<Method>,
    /// A header, 'Name: value'; may be given several times
    #[arg(short = 'H', long = "header", value_name = "HEADER", value_parser = header, help_heading = "Requests")]
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Body of the requests
    #[arg(short, long, value_name = "TEXT", help_heading = "Requests", conflicts_with = "body_file")]
    pub body: Option<String>,
    /// The same, from a file
    #[arg(long, value_name = "FILE", help_heading = "Requests")]
    pub body_file: Option<PathBuf>,
    /// A file of URLs to take in turn, '-' for standard input: lines of [METHOD] URL or [METHOD] /PATH, # for comments
    #[arg(short, long, value_name = "FILE", help_heading = "Requests")]
    pub urls: Option<PathBuf>,
    /// Take the URLs at random; in the same order each time
    #[arg(long, help_heading = "Requests", requires = "urls")]
    pub random: bool,
    /// Each connection is a visitor who keeps the cookies it is given
    #[arg(long, help_heading = "Requests")]
    pub cookies: bool,
    /// A new connection for each request
    #[arg(long, help_heading = "Requests")]
    pub no_keepalive: bool,

    /// HTTP/2: over https:// by ALPN, over http:// with prior knowledge
    #[arg(long, help_heading = "Protocol", conflicts_with = "client", group = "with_streams")]
    pub http2: bool,
    /// HTTP/3: over QUIC, to the UDP port of an https:// URL; each handshake is a full one
    #[arg(long, help_heading = "Protocol", conflicts_with_all = ["client", "http2"], group = "with_streams")]
    pub http3: bool,
    /// Requests under way at a time on each connection; each stream is as a connection of its own in the three forms of load
    #[arg(long, value_name = "N", default_value = "1", help_heading = "Protocol", requires = "with_streams")]
    pub streams: NonZero<usize>,
    /// Do not check the server's certificate
    #[arg(long, help_heading = "Protocol", conflicts_with = "ca_file")]
    pub insecure: bool,
    /// Authorities to check it by, in PEM form [default: those of this system]
    #[arg(long, value_name = "FILE", help_heading = "Protocol")]
    pub ca_file: Option<PathBuf>,
    /// Make each TLS handshake a full one; with --no-keepalive the rate is that of full handshakes
    #[arg(long, help_heading = "Protocol")]
    pub no_resumption: bool,

    /// Longest time for a request, from sending it to the end of its answer
    ///
    /// A scheduled shot that waits for a free connection for as long is given up, and never sent.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "30s", help_heading = "Answers")]
    pub timeout: Duration,
    /// When the time of a closed loop is over, wait for the requests under way if fewer than 10 for each connection were sent
    ///
    /// Each has its --timeout, and the rate is over the time until the last answer. Otherwise they are given up, as wrk does.
    #[arg(long, help_heading = "Answers", conflicts_with_all = ["schedule", "threads", "requests"])]
    pub wait_unfinished: bool,
    /// Statuses that are right: 200, 2xx, 200-204, and lists of these [default: 200-399]
    #[arg(long, value_name = "STATUS", help_heading = "Answers")]
    pub expect_status: Option<Statuses>,
    /// Text that has to be in the body
    #[arg(long, value_name = "TEXT", help_heading = "Answers", conflicts_with = "expect_match")]
    pub expect_body: Option<String>,
    /// Regular expression that has to match in the body
    #[arg(long, value_name = "REGEX", help_heading = "Answers")]
    pub expect_match: Option<Regex>,

    /// Threads of the generator [default: one per processor it may use, and never more than connections]
    #[arg(long, value_name = "N", help_heading = "Generator")]
    pub generator_threads: Option<NonZero<usize>>,
    /// HTTP/1.1 client of the generator
    #[arg(long, value_enum, default_value_t = Client::Lean, help_heading = "Generator")]
    pub client: Client,

    /// Print the report as JSON, with a figure for each second; or write it to a file, --json=FILE
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, help_heading = "Output")]
    #[expect(clippy::option_option, reason = "clap's form of a flag with an optional value")]
    pub json: Option<Option<PathBuf>>,
    /// Progress on standard error: one line that changes, a line each second, or none
    #[arg(long, value_enum, default_value_t = When::Auto, help_heading = "Output")]
    pub progress: When,
}

/// The generator's HTTP clients.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Client {
    /// Made for this; takes the least CPU time
    Lean,
    /// hyper's
    Hyper,
}

fn header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text.split_once(':').ok_or("a header is 'Name: value'")?;
    let name = name.trim().parse().map_err(|_| format!("'{}' is not a header name", name.trim()))?;
    let value = value.trim().parse().map_err(|_| format!("'{}' cannot be sent in a header", value.trim()))?;
    Ok((name, value))
}

/// Runs the load.
///
/// # Errors
/// Anything that kept it from being started.
pub fn run(args: &LoadArgs) -> anyhow::Result<ExitCode> {
    let load = load(args)?;
    if let Some(Some(file)) = &args.json {
        try_file(file)?;
    }
    let stop = Stop::new();
    let signal = listen_to_signals(&stop)?;
    let mut progress = Progress::new(args.progress, &load.plan);
    let report = hayate_load::run(load, &stop, |second| progress.second(second))?;
    progress.clear();
    output(args, &report)?;
    Ok(exit_code(args, &report, signal.load(Relaxed)))
}

fn load(args: &LoadArgs) -> anyhow::Result<Load> {
    let mut load = Load::new(requests(args)?, plan(args));
    load.timeout = args.timeout;
    load.threads = args.generator_threads;
    load.wait_unfinished = args.wait_unfinished;
    load.cookies = args.cookies;
    load.expect = Expect {
        status: args.expect_status.clone().unwrap_or_default(),
        body: args.expect_body.as_deref().map(Expect::text).or_else(|| args.expect_match.clone()),
    };
    load.engine = match args.client {
        Client::Lean => Engine::Lean,
        Client::Hyper => Engine::Hyper,
    };
    load.version = match (args.http2, args.http3) {
        (_, true) => Version::Http3,
        (true, _) => Version::Http2,
        _ => Version::Http1,
    };
    load.streams = args.streams.get();
    load.trust = match &args.ca_file {
        Some(file) => Trust::File(file.clone()),
        None if args.insecure => Trust::Nobody,
        None => Trust::System,
    };
    load.resume = !args.no_resumption;
    if let Some(connections) = args.connections {
        load.max_connections = connections.get();
    }
    Ok(load)
}

fn plan(args: &LoadArgs) -> Plan {
    if let Some(schedule) = &args.schedule {
        return Plan::Scheduled(schedule.clone());
    }
    if let (Some(threads), Some(loops)) = (args.threads, args.loops) {
        return Plan::Threads { threads: threads.get(), ramp_up: args.ramp_up, loops: loops.get() };
    }
    Plan::Closed {
        connections: args.connections.map_or(CLOSED_CONNECTIONS, NonZero::get),
        until: match args.requests {
            Some(requests) => Until::Requests(requests.get()),
            None => Until::Duration(args.duration.unwrap_or(CLOSED_DURATION)),
        },
    }
}

fn requests(args: &LoadArgs) -> anyhow::Result<Requests> {
    let body = match (&args.body, &args.body_file) {
        (Some(text), _) => text.clone().into(),
        (None, Some(file)) => {
            fs::read(file).with_context(|| format!("{}: cannot read the body", file.display()))?.into()
        }
        (None, None) => Default::default(),
    };
    let template = Template {
        method: args.method.clone(),
        headers: args.headers.clone(),
        body,
        keep_alive: !args.no_keepalive,
    };
    let Some(file) = &args.urls else {
        return Ok(Requests::to(&args.url, &template)?);
    };
    let name = file.display().to_string();
    let mut list = String::new();
    if name == "-" {
        std::io::stdin().read_to_string(&mut list).context("cannot read the URLs from standard input")?;
    } else {
        list = fs::read_to_string(file).with_context(|| format!("{name}: cannot read the URLs"))?;
    }
    let order = if args.random { Order::Random } else { Order::Sequential };
    Ok(Requests::from_list(&args.url, &name, &list, order, &template)?)
}

/// The first SIGINT or SIGTERM ends the load and lets its results be printed, a second one ends the program. Returns where
/// the number of the signal will be.
fn listen_to_signals(stop: &Stop) -> anyhow::Result<Arc<AtomicI32>> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot listen to signals")?;
    let received = Arc::new(AtomicI32::new(0));
    let (stop, noted) = (stop.clone(), Arc::clone(&received));
    std::thread::spawn(move || {
        for signal in signals.forever() {
            if noted.swap(signal, Relaxed) != 0 {
                std::process::exit(128 + signal);
            }
            stop.now();
        }
    });
    Ok(received)
}

fn output(args: &LoadArgs, report: &Report) -> anyhow::Result<()> {
    let json = serde_json::to_string_pretty(report)? + "\n";
    // Both are tried: what a load has found out is not to be lost because one of them cannot be written.
    let text = if args.json == Some(None) { &json } else { &print::text(report) };
    let printed = super::report::print(text);
    let kept = args.json.iter().flatten().try_for_each(|file| write_file(file, json.as_bytes()));
    kept.context("the report was not written").and(printed)
}

fn exit_code(args: &LoadArgs, report: &Report, signal: i32) -> ExitCode {
    let total = &report.total;
    let expects = args.expect_status.is_some() || args.expect_body.is_some() || args.expect_match.is_some();
    if report.interrupted {
        return ExitCode::from(u8::try_from(128 + signal).unwrap_or(1));
    }
    let bad = total.ok == 0 || (expects && total.ok < total.requests);
    ExitCode::from(u8::from(bad))
}
