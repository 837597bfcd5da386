//! How much is asked for: the form of a load, as files and the command line say it.

use std::{fmt, time::Duration};

use hayate_load::Schedule;
use serde::{Deserialize, Serialize};

/// Requests that a server of unknown speed is expected to answer in a second.
const USUAL: f64 = 1000.0;

/// A load as it is written in a file; [`LoadText::load`] makes sense of it.
#[derive(Clone, Debug, Default, Deserialize, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct LoadText {
    /// Connections that are kept open (closed loop), or the most that a schedule may open
    #[arg(long, short = 'c', value_name = "N")]
    pub connections: Option<u32>,
    /// How long a closed loop lasts, such as 30s
    #[arg(long, short = 'd', value_name = "TIME")]
    pub duration: Option<String>,
    /// How many requests a closed loop sends, instead of a duration
    #[arg(long, short = 'n', value_name = "N")]
    pub requests: Option<u64>,
    /// Open loop: phases in a row, such as "line(1,1000,60s) const(1000,60s) step(100,500,100,10s)"
    #[arg(long, short = 's', value_name = "PHASES")]
    pub schedule: Option<String>,
    /// Virtual users, each with its own connection
    #[arg(long, value_name = "N")]
    pub threads: Option<u32>,
    /// Time over which the virtual users start
    #[arg(long, value_name = "TIME")]
    pub ramp_up: Option<String>,
    /// Requests of each virtual user
    #[arg(long, value_name = "N")]
    pub loops: Option<u64>,
    /// How long to wait for an answer
    #[arg(long, value_name = "TIME")]
    pub timeout: Option<String>,
    /// What the requests go over, instead of plain HTTP/1.1
    #[arg(long, value_enum, value_name = "PROTOCOL")]
    pub over: Option<Over>,
    /// Requests under way at a time on each connection of HTTP/2
    #[arg(long, value_name = "N")]
    pub streams: Option<u32>,
    /// A new connection for each request over TLS, with a handshake of this kind
    #[arg(long, value_enum, value_name = "KIND")]
    pub handshakes: Option<Handshakes>,
}

/// What requests go over, other than plain HTTP/1.1; the engine needs a port named `https`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Over {
    /// HTTP/1.1 over TLS
    Tls,
    /// HTTP/2 over TLS
    H2,
}

/// Which TLS handshakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Handshakes {
    /// All of it, each time
    Full,
    /// Sessions are resumed where the server gives tickets
    Resumed,
}

/// What is spoken; plain HTTP/1.1 unless something is said.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, clap::Args)]
pub struct Protocol {
    /// What the requests go over, instead of plain HTTP/1.1
    #[arg(long, value_enum, value_name = "PROTOCOL")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<Over>,
    /// Requests under way at a time on each connection of HTTP/2
    #[arg(long, value_name = "N")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streams: Option<u32>,
    /// A new connection for each request over TLS, with a handshake of this kind
    #[arg(long, value_enum, value_name = "KIND")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handshakes: Option<Handshakes>,
}

impl Protocol {
    /// What it says on top of another one; another carrier replaces all of that.
    pub fn or(&self, base: &Self) -> Self {
        let base = if self.over.is_some() { &Self::default() } else { base };
        Self {
            over: self.over.or(base.over),
            streams: self.streams.or(base.streams),
            handshakes: self.handshakes.or(base.handshakes),
        }
    }

    /// Requests that a connection may have under way.
    pub fn streams(&self) -> u32 {
        self.streams.unwrap_or(1).max(1)
    }

    /// Whether it makes sense.
    ///
    /// # Errors
    /// What contradicts what.
    pub fn check(&self) -> Result<(), String> {
        let wrong = match self {
            Self { streams: Some(0), .. } => "streams have to be at least 1",
            Self { streams: Some(_), over: None | Some(Over::Tls), .. } => "streams need over = \"h2\"",
            Self { handshakes: Some(_), over: None, .. } => "handshakes need over = \"tls\" or \"h2\"",
            Self { handshakes: Some(_), streams: Some(2..), .. } => {
                "with a connection for each request there are no further streams"
            }
            _ => return Ok(()),
        };
        Err(wrong.to_owned())
    }

    fn flags(&self) -> Vec<String> {
        let mut flags = Vec::new();
        if self.over.is_some() {
            flags.push("--insecure".to_owned());
        }
        if self.over == Some(Over::H2) {
            let streams = self.streams.unwrap_or(1).to_string();
            flags.extend(["--http2".to_owned(), "--streams".to_owned(), streams]);
        }
        match self.handshakes {
            None => {}
            Some(Handshakes::Resumed) => flags.push("--no-keepalive".to_owned()),
            Some(Handshakes::Full) => {
                flags.extend(["--no-keepalive".to_owned(), "--no-resumption".to_owned()]);
            }
        }
        flags
    }
}

/// ` over HTTP/2 with 10 streams each`, after the load.
impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.over, self.streams) {
            (None, _) => {}
            (Some(Over::Tls), _) => f.write_str(" over TLS")?,
            (Some(Over::H2), None | Some(1)) => f.write_str(" over HTTP/2")?,
            (Some(Over::H2), Some(streams)) => write!(f, " over HTTP/2 with {streams} streams each")?,
        }
        match self.handshakes {
            None => Ok(()),
            Some(Handshakes::Full) => f.write_str(", a full handshake for each request"),
            Some(Handshakes::Resumed) => f.write_str(", a resumed handshake for each request"),
        }
    }
}

/// A load that makes sense.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// When the next request is sent.
    #[serde(flatten)]
    pub form: Form,
    /// Seconds to wait for an answer; else the generator's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<f64>,
    /// What is spoken.
    #[serde(flatten)]
    pub protocol: Protocol,
}

/// The three forms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "form", rename_all = "snake_case")]
pub enum Form {
    /// Each connection sends its next request when it has the last answer, for a time.
    Closed {
        /// At least 1.
        connections: u32,
        /// Seconds.
        duration: f64,
    },
    /// The same, until so many are answered.
    Counted {
        /// At least 1.
        connections: u32,
        /// At least 1.
        requests: u64,
    },
    /// Every request has its moment.
    Scheduled {
        /// Valid.
        schedule: String,
        /// The most at a time, if it was said.
        connections: Option<u32>,
        /// Seconds.
        duration: f64,
    },
    /// Virtual users.
    Threads {
        /// At least 1.
        threads: u32,
        /// Seconds.
        ramp_up: f64,
        /// At least 1.
        loops: u64,
    },
}

impl LoadText {
    /// Whether it says how long a load goes on, or how many requests it sends.
    pub fn say_how_long(&self) -> bool {
        self.duration.is_some()
            || self.requests.is_some()
            || self.schedule.is_some()
            || self.threads.is_some()
            || self.loops.is_some()
    }

    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        let Self {
            connections,
            duration,
            requests,
            schedule,
            threads,
            ramp_up,
            loops,
            timeout,
            over,
            streams,
            handshakes,
        } = self;
        connections.is_none()
            && duration.is_none()
            && requests.is_none()
            && schedule.is_none()
            && threads.is_none()
            && ramp_up.is_none()
            && loops.is_none()
            && timeout.is_none()
            && over.is_none()
            && streams.is_none()
            && handshakes.is_none()
    }

    /// What it says on top of another load of the same form; a new form replaces the other.
    pub fn over(&self, base: &Load) -> Result<Load, String> {
        if self.is_empty() {
            return Ok(base.clone());
        }
        let mut text = self.clone();
        if let Some(timeout) = base.timeout {
            text.timeout.get_or_insert_with(|| format!("{}ms", timeout * 1000.0));
        }
        let said = Protocol { over: text.over, streams: text.streams, handshakes: text.handshakes };
        Protocol { over: text.over, streams: text.streams, handshakes: text.handshakes } =
            said.or(&base.protocol);
        if text.schedule.is_none() && text.threads.is_none() {
            match &base.form {
                Form::Closed { connections, duration } => {
                    text.connections.get_or_insert(*connections);
                    if text.requests.is_none() {
                        text.duration.get_or_insert_with(|| format!("{}ms", duration * 1000.0));
                    }
                }
                Form::Counted { connections, requests } => {
                    text.connections.get_or_insert(*connections);
                    if text.duration.is_none() {
                        text.requests.get_or_insert(*requests);
                    }
                }
                Form::Scheduled { schedule, connections, .. }
                    if text.duration.is_none() && text.requests.is_none() =>
                {
                    text.schedule = Some(schedule.clone());
                    text.connections = text.connections.or(*connections);
                }
                Form::Threads { threads, ramp_up, loops }
                    if text.duration.is_none() && text.requests.is_none() =>
                {
                    text.threads = Some(*threads);
                    text.ramp_up.get_or_insert_with(|| format!("{}ms", ramp_up * 1000.0));
                    text.loops.get_or_insert(*loops);
                }
                _ => {}
            }
        }
        text.load()
    }

    /// The load that it describes.
    ///
    /// # Errors
    /// What is missing, contradicts something, or cannot be read; a schedule's error points into it.
    pub fn load(&self) -> Result<Load, String> {
        let at_least_1 = |name: &str, value: u64| {
            if value == 0 { Err(format!("{name} has to be at least 1")) } else { Ok(()) }
        };
        let timeout = self.timeout.as_deref().map(seconds).transpose()?;
        if let Some(connections) = self.connections {
            at_least_1("connections", connections.into())?;
        }
        let form = match (&self.schedule, self.threads) {
            (Some(_), Some(_)) => return Err("a load has either a schedule or threads".to_owned()),
            (Some(text), None) => {
                if self.duration.is_some() || self.requests.is_some() {
                    return Err("a schedule says itself how long it lasts: leave duration and requests out"
                        .to_owned());
                }
                let schedule = Schedule::parse(text).map_err(|error| error.to_string())?;
                Form::Scheduled {
                    schedule: text.clone(),
                    connections: self.connections,
                    duration: schedule.duration().as_secs_f64(),
                }
            }
            (None, Some(threads)) => {
                if self.connections.is_some() || self.duration.is_some() || self.requests.is_some() {
                    let message = "threads have one connection each and end after their loops: leave connections, duration and \
                                   requests out";
                    return Err(message.to_owned());
                }
                let loops = self.loops.ok_or("threads need loops: how many requests each of them sends")?;
                at_least_1("threads", threads.into())?;
                at_least_1("loops", loops)?;
                let ramp_up = self.ramp_up.as_deref().map_or(Ok(0.0), seconds)?;
                Form::Threads { threads, ramp_up, loops }
            }
            (None, None) => {
                if self.ramp_up.is_some() || self.loops.is_some() {
                    return Err("ramp_up and loops belong to threads".to_owned());
                }
                let connections = self.connections.ok_or("connections are missing")?;
                match (&self.duration, self.requests) {
                    (Some(_), Some(_)) => {
                        return Err("a load has either a duration or a number of requests".to_owned());
                    }
                    (Some(duration), None) => {
                        let duration = seconds(duration)?;
                        if duration < 0.1 {
                            return Err("a load lasts at least 100 ms".to_owned());
                        }
                        Form::Closed { connections, duration }
                    }
                    (None, Some(requests)) => {
                        at_least_1("requests", requests)?;
                        Form::Counted { connections, requests }
                    }
                    (None, None) => return Err("a load needs a duration or a number of requests".to_owned()),
                }
            }
        };
        let protocol = Protocol { over: self.over, streams: self.streams, handshakes: self.handshakes };
        protocol.check()?;
        Ok(Load { form, timeout, protocol })
    }
}

impl Load {
    /// A closed loop for a time.
    pub fn closed(connections: u32, duration: f64) -> Self {
        Self { form: Form::Closed { connections, duration }, timeout: None, protocol: Protocol::default() }
    }

    /// An open loop at one rate; times in seconds.
    pub fn constant(rate: f64, duration: f64, connections: u32, timeout: f64) -> Self {
        let schedule = format!("const({rate},{}ms)", (duration * 1000.0).round());
        Self {
            form: Form::Scheduled { schedule, connections: Some(connections), duration },
            timeout: Some(timeout),
            protocol: Protocol::default(),
        }
    }

    /// Whether the server has no say in how many requests come.
    pub fn is_open(&self) -> bool {
        matches!(self.form, Form::Scheduled { .. })
    }

    /// Flags of `hayate-lab load`.
    pub fn flags(&self) -> Vec<String> {
        let ms = |seconds: f64| format!("{}ms", (seconds * 1000.0).round());
        let mut flags = match &self.form {
            Form::Closed { connections, duration } => {
                vec![
                    "--connections".to_owned(),
                    connections.to_string(),
                    "--duration".to_owned(),
                    ms(*duration),
                    "--wait-unfinished".to_owned(),
                ]
            }
            Form::Counted { connections, requests } => {
                vec![
                    "--connections".to_owned(),
                    connections.to_string(),
                    "--requests".to_owned(),
                    requests.to_string(),
                ]
            }
            Form::Scheduled { schedule, connections, .. } => {
                let mut flags = vec!["--schedule".to_owned(), schedule.clone()];
                if let Some(connections) = connections {
                    flags.extend(["--connections".to_owned(), connections.to_string()]);
                }
                flags
            }
            Form::Threads { threads, ramp_up, loops } => vec![
                "--threads".to_owned(),
                threads.to_string(),
                "--ramp-up".to_owned(),
                ms(*ramp_up),
                "--loops".to_owned(),
                loops.to_string(),
            ],
        };
        if let Some(timeout) = self.timeout {
            flags.extend(["--timeout".to_owned(), ms(timeout)]);
        }
        flags.extend(self.protocol.flags());
        flags
    }

    /// How long it takes, seconds, if that is known beforehand.
    pub fn duration(&self) -> Option<f64> {
        match &self.form {
            Form::Closed { duration, .. } | Form::Scheduled { duration, .. } => Some(*duration),
            Form::Counted { .. } | Form::Threads { .. } => None,
        }
    }

    /// How long it may take, seconds: where that is up to the server, as long as one that answers [`USUAL`] requests a second
    /// would need.
    pub fn expected(&self) -> f64 {
        match &self.form {
            Form::Closed { duration, .. } | Form::Scheduled { duration, .. } => *duration,
            Form::Counted { requests, .. } => *requests as f64 / USUAL,
            Form::Threads { threads, ramp_up, loops } => {
                ramp_up + f64::from(*threads) * *loops as f64 / USUAL
            }
        }
    }

    /// The same for a shorter time: closed loops end sooner, schedules run faster through their rates, virtual users do fewer
    /// loops.
    pub fn at_most(&self, seconds: f64) -> Self {
        let form = match &self.form {
            Form::Closed { connections, duration } => {
                Form::Closed { connections: *connections, duration: duration.min(seconds) }
            }
            Form::Counted { connections, requests } => Form::Counted {
                connections: *connections,
                requests: (*requests).min(u64::from(*connections) * 10),
            },
            Form::Scheduled { schedule, connections, duration } if *duration > seconds => Form::Scheduled {
                schedule: faster(schedule, seconds / duration),
                connections: *connections,
                duration: seconds,
            },
            Form::Scheduled { .. } => self.form.clone(),
            Form::Threads { threads, ramp_up, loops } => {
                Form::Threads { threads: *threads, ramp_up: *ramp_up, loops: (*loops).min(10) }
            }
        };
        Self { form, timeout: self.timeout, protocol: self.protocol.clone() }
    }

    /// Connections that a warm-up for this load uses.
    pub fn warm_up_connections(&self) -> u32 {
        match &self.form {
            Form::Closed { connections, .. } | Form::Counted { connections, .. } => *connections,
            Form::Scheduled { connections, .. } => connections.unwrap_or(16).min(16),
            Form::Threads { threads, .. } => (*threads).min(100),
        }
    }
}

/// `100 connections for 6 s`.
impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |n: u32| if n == 1 { "" } else { "s" };
        match &self.form {
            Form::Closed { connections, duration } => {
                write!(f, "{connections} connection{} for {duration} s", plural(*connections))
            }
            Form::Counted { connections, requests } => {
                write!(f, "{requests} requests over {connections} connection{}", plural(*connections))
            }
            Form::Scheduled { schedule, .. } => f.write_str(schedule),
            Form::Threads { threads, ramp_up, loops } => {
                write!(f, "{threads} thread{} within {ramp_up} s, {loops} loops each", plural(*threads))
            }
        }?;
        self.protocol.fmt(f)
    }
}

/// A valid schedule with the same rates in a part of the time.
fn faster(schedule: &str, share: f64) -> String {
    let Ok(parsed) = Schedule::parse(schedule) else { return schedule.to_owned() };
    let phases = parsed.phases().iter().map(|phase| {
        let (from, to) = (phase.rate_at(Duration::ZERO), phase.rate_at(phase.duration));
        let ms = (phase.duration.as_secs_f64() * share * 1000.0).max(1.0).round();
        if from == to { format!("const({from},{ms}ms)") } else { format!("line({from},{to},{ms}ms)") }
    });
    phases.collect::<Vec<_>>().join(" ")
}

/// Reads a time such as `30s`, `1m30s`, `500ms`.
///
/// # Errors
/// In one line.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    hayate_load::parse_duration(text)
        .map_err(|_| format!("'{text}' is no duration; write for example 30s, 1m30s or 500ms"))
}

fn seconds(text: &str) -> Result<f64, String> {
    parse_duration(text).map(|duration| duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(toml: &str) -> LoadText {
        toml::from_str(toml).expect(toml)
    }

    #[test]
    fn forms() {
        let load = text("connections = 100\nduration = '1m30s'").load().expect("closed");
        assert_eq!(load.to_string(), "100 connections for 90 s");
        assert_eq!(load.flags(), ["--connections", "100", "--duration", "90000ms", "--wait-unfinished"]);
        let load = text("schedule = 'const(10, 5s)'").load().expect("open");
        assert_eq!(
            (load.duration(), load.flags()),
            (Some(5.0), vec!["--schedule".into(), "const(10, 5s)".into()])
        );
        let load = text("threads = 5\nramp_up = '500ms'\nloops = 2\ntimeout = '3s'").load().expect("threads");
        assert_eq!(load.flags().join(" "), "--threads 5 --ramp-up 500ms --loops 2 --timeout 3000ms");
    }

    #[test]
    fn protocols() {
        let base = text("connections = 2\nduration = '1s'\nover = 'h2'\nstreams = 10").load().expect("h2");
        assert_eq!(base.to_string(), "2 connections for 1 s over HTTP/2 with 10 streams each");
        assert!(base.flags().join(" ").ends_with("--wait-unfinished --insecure --http2 --streams 10"));
        // A part of a load keeps the rest, a new protocol replaces all of the old one.
        assert_eq!(text("duration = '3s'").over(&base).expect("over").protocol, base.protocol);
        let full = text("over = 'tls'\nhandshakes = 'full'").over(&base).expect("tls");
        assert_eq!(full.to_string(), "2 connections for 1 s over TLS, a full handshake for each request");
        assert!(full.flags().join(" ").ends_with("--insecure --no-keepalive --no-resumption"));
        let json = serde_json::to_string(&base).expect("JSON");
        assert_eq!(serde_json::from_str::<Load>(&json).expect("a load"), base);
        assert_eq!(
            serde_json::to_string(&Load::closed(1, 2.0)).expect("JSON"),
            r#"{"form":"closed","connections":1,"duration":2.0}"#
        );
    }

    #[test]
    fn shorter_loads_ask_for_the_same_rates() {
        let schedule = text("schedule = 'line(1,100,60s) step(10,20,10,30s)'").load().expect("open");
        assert_eq!(
            schedule.at_most(12.0).to_string(),
            "line(1,100,6000ms) const(10,3000ms) const(20,3000ms)"
        );
        assert_eq!(schedule.at_most(500.0), schedule);
        assert_eq!(Load::closed(5, 60.0).at_most(2.0), Load::closed(5, 2.0));
    }

    #[test]
    fn contradictions_are_named() {
        for (toml, message) in [
            ("", "connections are missing"),
            ("connections = 1", "a duration or a number"),
            ("connections = 0\nrequests = 1", "at least 1"),
            ("schedule = 'const(1,1s)'\nthreads = 1", "either a schedule or threads"),
            ("schedule = 'cnst(1,1s)'", "unknown phase 'cnst'"),
            ("threads = 1", "need loops"),
            ("connections = 1\nduration = 'soon'", "'soon' is no duration"),
            ("connections = 1\nduration = '1s'\nloops = 3", "belong to threads"),
            ("connections = 1\nduration = '1s'\nstreams = 3", "streams need over"),
            ("connections = 1\nduration = '1s'\nhandshakes = 'full'", "handshakes need over"),
            (
                "connections = 1\nduration = '1s'\nover = 'h2'\nstreams = 2\nhandshakes = 'full'",
                "no further streams",
            ),
        ] {
            let error = text(toml).load().expect_err(toml);
            assert!(error.contains(message), "{toml}: {error}");
        }
    }

    #[test]
    fn a_part_of_a_load_changes_that_part() {
        let base = text("connections = 100\nduration = '6s'").load().expect("closed");
        assert_eq!(text("connections = 5").over(&base).expect("over").to_string(), "5 connections for 6 s");
        assert_eq!(
            text("requests = 7").over(&base).expect("over").to_string(),
            "7 requests over 100 connections"
        );
        assert_eq!(text("schedule = 'const(1,2s)'").over(&base).expect("over").to_string(), "const(1,2s)");
        assert_eq!(text("").over(&base).expect("over"), base);
    }
}
