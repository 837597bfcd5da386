//! The search for an engine's limits: open loops at ever higher rates, until what is asked for is not served any more.
//!
//! A closed loop says first where the limit may be. Steps from a tenth of that upwards show how latency grows; beyond the
//! first rate that is not served two more show whether throughput falls, and two between the last good rate and the first
//! bad one make the limit exact.

use super::{Generator, Trial, TrialEnd, rounds, trial::Ready};
use crate::{
    data::{Load, Protocol},
    engine::Failure,
    machine::Cores,
    output::status,
    result::{Exhausted, Measurement, Saturation, Subject, intended_rate},
    session::Session,
};

/// Rates as shares of what the closed loop reached.
const SHARES: [f64; 9] = [0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.9, 1.0, 1.1];
/// From there on, each rate as a multiple of the last.
const FURTHER: f64 = 1.25;
/// Steps beyond the first rate that is not served.
const BEYOND: usize = 2;
/// Steps between the last good rate and the first bad one.
const BETWEEN: usize = 2;
/// A rate is served if at least this share of it comes back in its time.
const SERVED: f64 = 0.97;
/// A side is exhausted when its processors are busy for at least this share of the time.
const BUSY: f64 = 0.93;

/// How it is searched.
#[derive(Clone, Debug)]
pub struct Search {
    /// Seconds of each step.
    pub step: f64,
    /// Share of right answers below which a rate is not served, percent.
    pub min_ok: f64,
    /// Connections, at most.
    pub connections: u32,
    /// Seconds to wait for an answer.
    pub timeout: f64,
    /// No rate above this one, requests per second.
    pub max_rate: Option<f64>,
    /// What is spoken.
    pub protocol: Protocol,
}

/// Requests under way in the closed loop that begins a search.
const UNDER_WAY: u32 = 100;

impl Search {
    /// The closed loop that begins the search, and stands for the whole of it. With several streams it has fewer connections.
    pub fn load(&self) -> Load {
        let connections = (UNDER_WAY / self.protocol.streams()).clamp(1, self.connections);
        let protocol = self.protocol.clone();
        Load { timeout: Some(self.timeout), protocol, ..Load::closed(connections, self.step) }
    }

    /// Searches one engine's limits.
    pub fn run(&self, trial: Trial<'_>, session: &Session, generator: &mut Generator) -> TrialEnd {
        let name = trial.planned.name.clone();
        let mut end = trial.with(session, generator, |ready, found| self.steps(&name, ready, found));
        end.said = true;
        end
    }

    fn steps(&self, name: &str, ready: &mut Ready<'_>, found: &mut Vec<Measurement>) -> Result<(), Failure> {
        let probe = self.load();
        let reached = ready.measure(&probe)?.load.total.ok_rate;
        status::say(&format!("{name:24} {reached:10.1} req/s in a closed loop of {probe}"));
        let highest = self.max_rate.unwrap_or(f64::INFINITY);
        let start = reached.max(1.0).min(highest);
        let mut rates = SHARES.iter().map(|share| share * start).collect::<Vec<_>>().into_iter();
        let (mut good, mut bad, mut beyond) = (0.0, None, 0);
        let mut last = 0.0;
        while beyond < BEYOND && last < highest && !ready.interrupted() {
            last = rates.next().unwrap_or(last * FURTHER).min(highest);
            if self.step(name, ready, last, found)? {
                // Noise may have failed a rate that is served after all.
                (good, bad, beyond) = (last, None, 0);
            } else {
                bad = bad.or(Some(last));
                beyond += 1;
            }
        }
        if let Some(mut bad) = bad {
            for _ in 0..BETWEEN {
                if ready.interrupted() {
                    break;
                }
                let middle = (good + bad) / 2.0;
                if self.step(name, ready, middle, found)? {
                    good = middle;
                } else {
                    bad = middle;
                }
            }
        }
        Ok(())
    }

    /// One rate; says whether it was served.
    fn step(
        &self,
        name: &str,
        ready: &mut Ready<'_>,
        rate: f64,
        found: &mut Vec<Measurement>,
    ) -> Result<bool, Failure> {
        // At least some tens of shots, or a share of them says nothing.
        let seconds = self.step.max(30.0 / rate);
        // Rates are read to a thousandth.
        let constant =
            Load::constant((rate * 1000.0).ceil() / 1000.0, seconds, self.connections, self.timeout);
        let load = Load { protocol: self.protocol.clone(), ..constant };
        let measurement = ready.measure(&load)?;
        let served = self.served(&measurement);
        let mark = if served { "" } else { "  not served" };
        let short = rounds::in_short(&measurement);
        status::say(&format!("{name:24} {rate:10.1} req/s asked for: {short}{mark}"));
        found.push(measurement);
        Ok(served)
    }

    fn served(&self, measurement: &Measurement) -> bool {
        let total = &measurement.load.total;
        total.ok_percent.is_some_and(|ok| ok >= self.min_ok)
            && intended_rate(measurement).is_some_and(|rate| total.ok_rate >= SERVED * rate)
    }

    /// What the steps of a subject say; `None` without any.
    pub fn conclude(&self, subject: &Subject, cores: &Cores) -> Option<Saturation> {
        let all = &subject.measurements;
        let best = all.iter().max_by(|a, b| a.load.total.ok_rate.total_cmp(&b.load.total.ok_rate))?;
        let limit = best.load.total.ok_rate;
        // Kleinrock's power ("Power and deterministic rules of thumb for probabilistic problems in computer communications",
        // 1979): throughput over delay. Of the rates that were served: errors are quick.
        let power =
            |m: &Measurement| m.load.total.latency_ok_ms.mean.map_or(0.0, |mean| m.load.total.ok_rate / mean);
        let served = all.iter().filter(|m| self.served(m));
        let knee = served.max_by(|a, b| power(a).total_cmp(&power(b))).and_then(intended_rate);
        // A rate that failed below one that was served failed for another reason than that it was too much.
        let rates =
            |served: bool| all.iter().filter(move |m| self.served(m) == served).filter_map(intended_rate);
        let highest = rates(true).fold(0.0, f64::max);
        let failed_at = rates(false).filter(|rate| *rate > highest).reduce(f64::min);
        let exhausted = match failed_at {
            None => Vec::new(),
            Some(_) => exhausted(subject, best, cores),
        };
        let conclusion = conclusion(failed_at, &exhausted, best, subject);
        Some(Saturation { knee, limit, failed_at, exhausted, conclusion })
    }
}

/// What was used up at the highest throughput.
fn exhausted(subject: &Subject, at: &Measurement, cores: &Cores) -> Vec<Exhausted> {
    let busy = |cpus: &[usize]| {
        let used =
            at.cores.iter().filter(|core| cpus.contains(&core.cpu)).map(|core| core.busy + core.stolen);
        used.sum::<f64>() / cpus.len().max(1) as f64
    };
    let health = &at.load.health;
    let mut found = Vec::new();
    let late = at.load.total.late_generator as f64 / at.load.total.requests.max(1) as f64;
    if health.saturated_seconds > 0 || late > 0.01 {
        found.push(Exhausted::Generator);
    }
    let used = |usage: &crate::result::Usage| usage.cpu_user + usage.cpu_system;
    let services: f64 = at.services.values().map(used).sum();
    if busy(&cores.server) >= BUSY {
        let shared = cores.services.iter().any(|cpu| cores.server.contains(cpu));
        if shared && services > used(&at.server) {
            found.push(Exhausted::ServiceCpu);
        } else {
            found.push(Exhausted::ServerCpu);
        }
    } else if !at.services.is_empty() && busy(&cores.services) >= BUSY {
        found.push(Exhausted::ServiceCpu);
    }
    // Little's law: requests inside the server at a time are rate times time in it.
    let inside = at.load.total.ok_rate
        * at.load.total.service_ms.as_ref().and_then(|s| s.mean).unwrap_or(0.0)
        / 1000.0;
    if found.is_empty() && inside >= 0.9 * f64::from(subject.workers) {
        found.push(Exhausted::Workers);
    }
    if found.is_empty() {
        found.push(Exhausted::Unknown);
    }
    found
}

fn conclusion(
    failed_at: Option<f64>,
    exhausted: &[Exhausted],
    best: &Measurement,
    subject: &Subject,
) -> String {
    if failed_at.is_none() {
        return "every rate that was tried was served: the limit is higher".to_owned();
    }
    let words = exhausted.iter().map(|what| match what {
        Exhausted::ServerCpu => "the servers' processors were busy all the time".to_owned(),
        Exhausted::ServiceCpu => "the database used up its processors".to_owned(),
        Exhausted::Workers => {
            format!("all {} workers were occupied while processors were free", subject.workers)
        }
        Exhausted::Generator => {
            "the generator could not do more, so the server's own limit may be higher".to_owned()
        }
        Exhausted::Unknown => {
            "neither processors nor workers were used up: something else made requests wait".to_owned()
        }
    });
    let mut text = words.collect::<Vec<_>>().join("; ");
    if best.foreign > 0.1 {
        text.push_str(&format!("; but others had {:.0} % of the servers' processors", best.foreign * 100.0));
    }
    if let Some((kind, _)) = best.load.total.errors.iter().max_by_key(|(_, count)| **count) {
        text.push_str(&format!("; errors: {kind}"));
    }
    text
}
