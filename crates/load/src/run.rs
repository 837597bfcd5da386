//! A load, from its start to its report: the generator's threads, and the end of them.

use std::{
    cell::RefCell,
    io,
    num::NonZero,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{self, Sender},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{runtime::Builder, sync::watch};

use crate::{
    collect::Collector,
    connection::Engine,
    drive::drive,
    expect::Expect,
    plan::{Plan, Until},
    recorder::{Note, Recorder},
    report::{Report, Second},
    request::Requests,
    tls::{Tls, Trust},
    user::Desk,
};

/// Requests for each connection from which on those that the end of a closed loop cuts off are few: less than a tenth.
const FEW: u64 = 10;

/// Descriptors that are not connections: standard streams, timers, event queues.
const OTHER_DESCRIPTORS: u64 = 64;

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Load {
    /// What is sent, and where to.
    pub requests: Requests,
    /// When it is sent.
    pub plan: Plan,
    /// From sending a request to its complete answer, connecting included. A scheduled shot that waits for a connection for
    /// as long is not sent any more. Not counted from the intended start, or a queue would make every shot too late to be
    /// answered, and the load would turn into one of connections that are opened and given up.
    pub timeout: Duration,
    /// Most connections of a schedule at a time; the other forms say themselves how many they have.
    pub max_connections: usize,
    /// Event loops, one thread each; `None`: one per processor that this process may use.
    pub threads: Option<NonZero<usize>>,
    /// A closed loop whose time is over waits for the requests under way if fewer than 10 for each connection were sent, and its
    /// duration is the time until the last answer. Without it they are abandoned, as by wrk; where requests take a good part
    /// of the time, that cuts off the slow ones.
    pub wait_unfinished: bool,
    /// What a good answer is.
    pub expect: Expect,
    /// Each connection keeps the cookies it is given, and sends them back.
    pub cookies: bool,
    /// The HTTP/1.1 client.
    pub engine: Engine,
    /// What is spoken.
    pub version: Version,
    /// Requests that may be under way on one connection at a time; more than 1 only with HTTP/2 and 3. If the server allows fewer
    /// streams, the others wait for one, which is part of their latency.
    pub streams: usize,
    /// Whose certificates are right; for `https://`.
    pub trust: Trust,
    /// New connections resume the sessions of old ones where the server gives tickets, as browsers do. Without it each TLS
    /// handshake is a full one; so it is over HTTP/3.
    pub resume: bool,
}

/// A version of HTTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.1, or 1.0 if the requests say so.
    #[default]
    Http1,
    /// HTTP/2: over TLS by ALPN, else with prior knowledge.
    Http2,
    /// HTTP/3, where the server listens by UDP: at the port of the URL.
    Http3,
}

impl Version {
    /// Its name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Http1 => "HTTP/1.1",
            Self::Http2 => "HTTP/2",
            Self::Http3 => "HTTP/3",
        }
    }

    /// Its name in TLS.
    pub(crate) fn alpn(self) -> &'static [u8] {
        match self {
            Self::Http1 => b"http/1.1",
            Self::Http2 => b"h2",
            Self::Http3 => b"h3",
        }
    }
}

impl Load {
    /// A load with the defaults of `hayate-lab load`: 30 s time-out, at most 1000 connections for a schedule (as Yandex
    /// Tank's phantom), no cookies, 200 to 399 expected.
    pub fn new(requests: Requests, plan: Plan) -> Self {
        Self {
            requests,
            plan,
            timeout: Duration::from_secs(30),
            max_connections: 1000,
            threads: None,
            wait_unfinished: false,
            expect: Expect::default(),
            cookies: false,
            engine: Engine::default(),
            version: Version::default(),
            streams: 1,
            trust: Trust::default(),
            resume: true,
        }
    }

    /// Most connections it may have at a time.
    pub fn connections(&self) -> usize {
        match &self.plan {
            Plan::Scheduled(_) => self.max_connections,
            Plan::Closed { connections, .. } => *connections,
            Plan::Threads { threads, .. } => threads.div_ceil(self.streams.max(1)),
        }
    }
}

/// Why a load could not be run. What goes wrong with single requests is in the report instead.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The load makes no sense.
    #[error("{0}")]
    Plan(&'static str),
    /// This process may not open that many connections.
    #[error(
        "{connections} connections need {needed} descriptors, and this process may have {possible}: \
         raise the limit (ulimit -Hn), or take fewer connections"
    )]
    Descriptors {
        /// Connections that the load may have at a time.
        connections: usize,
        /// Descriptors that they and the generator need.
        needed: u64,
        /// The hard limit.
        possible: u64,
    },
    /// The load's TLS cannot be set up.
    #[error("{0}")]
    Tls(String),
    /// The generator could not start or go on.
    #[error("the load generator failed")]
    Generator(#[from] io::Error),
}

/// Ends a load early; clones end the same load.
#[derive(Clone, Debug)]
pub struct Stop(watch::Sender<bool>);

impl Stop {
    /// For a load that is to be started.
    pub fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    /// Ends it; the report will say that it was interrupted.
    pub fn now(&self) {
        self.0.send_replace(true);
    }
}

impl Default for Stop {
    fn default() -> Self {
        Self::new()
    }
}

/// One thread's part of a load.
pub(crate) struct Share {
    pub(crate) thread: usize,
    pub(crate) threads: usize,
    pub(crate) start: Instant,
    /// Requests taken by all threads together, in the forms that count so.
    pub(crate) taken: Arc<AtomicU64>,
}

impl Share {
    /// How many of so many things.
    pub(crate) fn of(&self, things: usize) -> usize {
        things / self.threads + usize::from(self.thread < things % self.threads)
    }
}

/// Runs a load to its end and returns what it found. Blocks; `observer` is called in this thread with each second, in
/// order, some milliseconds after it is over.
///
/// # Errors
/// When the load makes no sense, or the generator cannot be set up. Failed requests are no error.
pub fn run(load: Load, stop: &Stop, observer: impl FnMut(&Second)) -> Result<Report, LoadError> {
    check(&load)?;
    let tls = match load.requests.tls_host() {
        Some(host) => Some(Tls::new(host, &load.trust, load.version, load.resume)?),
        None => None,
    };
    let load = Arc::new(load);
    raise_descriptor_limit(load.connections())?;
    let wanted = load.threads.or(thread::available_parallelism().ok()).map_or(1, NonZero::get);
    let threads = wanted.min(load.connections()).max(1);

    let (to_collector, notes) = mpsc::channel();
    let (started, start) = (SystemTime::now(), Instant::now());
    let taken = Arc::new(AtomicU64::new(0));
    let mut collector = Collector::new(Arc::clone(&load), tls.clone(), threads, start, started, observer);
    thread::scope(|scope| {
        let generators: Vec<_> = (0..threads)
            .map(|thread| {
                let share = Share { thread, threads, start, taken: Arc::clone(&taken) };
                let (load, to_collector) = (Arc::clone(&load), to_collector.clone());
                let tls = tls.as_ref().map(|tls| tls.for_thread(load.version, load.resume));
                thread::Builder::new().name(format!("load-{thread}")).spawn_scoped(scope, move || {
                    let result = generate(load, tls, share, to_collector, stop);
                    if result.is_err() {
                        // The others' part would be taken for the whole.
                        stop.now();
                    }
                    result
                })
            })
            .collect();
        drop(to_collector);
        if generators.iter().any(Result::is_err) {
            stop.now();
        }
        while let Ok((thread, note)) = notes.recv() {
            collector.take(thread, note);
        }
        for generator in generators {
            generator?.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))?;
        }
        Ok::<(), io::Error>(())
    })?;
    Ok(collector.report())
}

fn check(load: &Load) -> Result<(), LoadError> {
    let wrong = match &load.plan {
        _ if load.timeout.is_zero() => "a time-out of 0 leaves no time for an answer",
        Plan::Scheduled(_) if load.max_connections == 0 => "a schedule needs at least one connection",
        Plan::Closed { connections: 0, .. } => "a closed loop needs at least one connection",
        Plan::Closed { until: Until::Requests(0), .. } => "a closed loop needs at least one request",
        Plan::Closed { until: Until::Duration(Duration::ZERO), .. } => "a closed loop needs a duration",
        Plan::Threads { threads: 0, .. } => "there has to be at least one thread",
        Plan::Threads { loops: 0, .. } => "there has to be at least one loop",
        _ if load.streams == 0 => "a connection needs at least one stream",
        _ if load.version == Version::Http3 && load.requests.tls_host().is_none() => {
            "HTTP/3 is always over TLS: load https://"
        }
        _ if load.streams > 1 && load.version == Version::Http1 => {
            "only HTTP/2 and HTTP/3 have several streams on one connection"
        }
        _ if load.streams > 1 && !load.requests.keep_alive() => {
            "a new connection for each request leaves nothing for further streams"
        }
        _ => return Ok(()),
    };
    Err(LoadError::Plan(wrong))
}

/// Makes sure that this process may have as many descriptors as the load may need.
fn raise_descriptor_limit(connections: usize) -> Result<(), LoadError> {
    let needed = connections as u64 + OTHER_DESCRIPTORS;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    if let Some(possible) = maximum.filter(|maximum| *maximum < needed) {
        return Err(LoadError::Descriptors { connections, needed, possible });
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum })
        .map_err(|error| LoadError::Generator(error.into()))
}

/// A generator thread, from its start to its end.
fn generate(
    load: Arc<Load>,
    tls: Option<Tls>,
    share: Share,
    to_collector: Sender<(usize, Note)>,
    stop: &Stop,
) -> io::Result<()> {
    let (phases, open_loop) = match &load.plan {
        Plan::Scheduled(schedule) => (schedule.phases().len(), true),
        Plan::Closed { .. } | Plan::Threads { .. } => (1, false),
    };
    let deadline = match load.plan {
        Plan::Closed { until: Until::Duration(duration), .. } => Some(share.start + duration),
        _ => None,
    };
    let (patient, few) = (load.wait_unfinished, FEW * (load.connections() * load.streams) as u64);
    let planned_end = load.plan.duration().map(|duration| share.start + duration);
    let recorder = Recorder::new(share.thread, share.start, planned_end, phases, open_loop, to_collector);
    let desk = Rc::new(Desk { load, tls, recorder: RefCell::new(recorder), farewell: Default::default() });
    let start = share.start;
    let share = Rc::new(share);
    let mut stopped = stop.0.subscribe();
    let runtime = Builder::new_current_thread().enable_all().build_local(Default::default())?;
    runtime.block_on(async {
        let interrupted = tokio::select! {
            done = drive(&desk, &share) => done.map(|()| false),
            () = over(deadline, || patient && share.taken.load(Relaxed) < few) => Ok(false),
            _ = stopped.wait_for(|stopped| *stopped) => Ok(true),
            () = turn_pages(&desk, start) => Ok(false),
        }?;
        // Tasks that were ended are dropped, and note what they leave unfinished, when the runtime comes round to them.
        while desk.recorder.borrow().in_flight > 0 {
            tokio::task::yield_now().await;
        }
        desk.recorder.borrow_mut().finish(interrupted);
        desk.farewell.say().await;
        Ok(())
    })
}

/// Sends off each second soon after its end, also when there is nothing else to do. Never returns.
async fn turn_pages(desk: &Desk, start: Instant) {
    let mut page = tokio::time::interval_at((start + Duration::from_secs(1)).into(), Duration::from_secs(1));
    loop {
        page.tick().await;
        desk.recorder.borrow_mut().turn(Instant::now());
    }
}

/// Returns when the time is over; never, if there is none, or if what is under way is to be waited for: nothing new is sent
/// then, and the drive ends by itself.
async fn over(deadline: Option<Instant>, wait: impl Fn() -> bool) {
    if let Some(deadline) = deadline {
        tokio::time::sleep_until(deadline.into()).await;
        if !wait() {
            return;
        }
    }
    std::future::pending().await
}
