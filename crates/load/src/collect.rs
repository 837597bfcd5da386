//! Puts together what the threads have counted: seconds while the load runs, the report when it is over.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use nix::sys::{
    resource::{UsageWho, getrusage},
    time::TimeValLike,
};

use crate::{
    failure::Failure,
    plan::{Plan, Until},
    recorder::{Note, Slice, Summary},
    report::{Health, PhaseFigures, PlanReport, ProtocolReport, Report, Second},
    run::{Load, Version},
    schedule::Schedule,
    tally::{Tally, Times},
    tls::Tls,
};

/// A thread that is busy for more than this share of a second may have been what limited the load: beyond it, waiting for the
/// thread takes longer than what the thread does.
const SATURATED: f64 = 0.9;
/// Share of shots that the generator may send late before the reader is warned.
const TOLERATED_LATE: f64 = 0.001;

/// See the module.
pub(crate) struct Collector<F> {
    load: Arc<Load>,
    tls: Option<Tls>,
    start: Instant,
    started: SystemTime,
    cpu_before: Cpu,
    observer: F,
    /// Each thread's seconds that are not in the report yet.
    waiting: Vec<VecDeque<Slice>>,
    summaries: Vec<Option<Summary>>,
    seconds: Vec<Second>,
}

impl<F: FnMut(&Second)> Collector<F> {
    pub(crate) fn new(
        load: Arc<Load>,
        tls: Option<Tls>,
        threads: usize,
        start: Instant,
        started: SystemTime,
        observer: F,
    ) -> Self {
        Self {
            load,
            tls,
            start,
            started,
            cpu_before: Cpu::of_this_process(),
            observer,
            waiting: (0..threads).map(|_| VecDeque::new()).collect(),
            summaries: (0..threads).map(|_| None).collect(),
            seconds: Vec::new(),
        }
    }

    pub(crate) fn take(&mut self, thread: usize, note: Note) {
        match note {
            Note::Second(slice) => self.waiting[thread].push_back(*slice),
            Note::End(summary) => self.summaries[thread] = Some(*summary),
        }
        // A second is complete when each thread has sent its part, or has ended before.
        while self.waiting.iter().any(|slices| !slices.is_empty())
            && self
                .waiting
                .iter()
                .zip(&self.summaries)
                .all(|(slices, end)| !slices.is_empty() || end.is_some())
        {
            let slices: Vec<Slice> = self.waiting.iter_mut().filter_map(VecDeque::pop_front).collect();
            let second = self.second(&slices);
            (self.observer)(&second);
            self.seconds.push(second);
        }
    }

    fn second(&self, slices: &[Slice]) -> Second {
        let number = self.seconds.len() as u64;
        let sum = |part: fn(&Slice) -> u64| slices.iter().map(part).sum();
        let (mut times, mut failures) = (Times::new(), crate::tally::Failures::default());
        for slice in slices {
            times.add(&slice.times);
            failures.add(&slice.failures);
        }
        let ok = sum(|slice| slice.ok);
        Second {
            second: number,
            length: slices.iter().map(|slice| slice.length.as_secs_f64()).fold(0.0, f64::max),
            intended_rate: match &self.load.plan {
                Plan::Scheduled(schedule) => Some(planned_rate(schedule, number)),
                Plan::Closed { .. } | Plan::Threads { .. } => None,
            },
            sent: sum(|slice| slice.sent),
            requests: ok + failures.sum(),
            ok,
            errors: failures.by_name(),
            bytes_received: sum(|slice| slice.received),
            connections: sum(|slice| slice.connections),
            backlog: sum(|slice| slice.backlog),
            latency_ms: times.latency(),
            late_waiting: sum(|slice| slice.late_waiting),
            late_generator: sum(|slice| slice.late_generator),
            generator_busy: slices.iter().map(|slice| slice.busy).fold(0.0, f64::max),
        }
    }

    /// The report, when all threads have ended.
    pub(crate) fn report(self) -> Report {
        let summaries: Vec<&Summary> = self.summaries.iter().flatten().collect();
        let ended = summaries.iter().map(|summary| summary.ended).max().unwrap_or(self.start);
        let duration = ended.saturating_duration_since(self.start);
        let open_loop = matches!(self.load.plan, Plan::Scheduled(_));

        let mut phases: Vec<Tally> = Vec::new();
        let (mut delay, mut unfinished) = (Times::new(), Times::new());
        for summary in &summaries {
            phases.resize_with(summary.phases.len(), || Tally::new(open_loop));
            phases.iter_mut().zip(&summary.phases).for_each(|(mine, theirs)| mine.add(theirs));
            delay.add(&summary.delay);
            unfinished.add(&summary.unfinished);
        }
        let mut total = Tally::new(open_loop);
        phases.iter().for_each(|phase| total.add(phase));
        let total = total.figures(duration);

        let cpu = Cpu::of_this_process();
        let unfinished = unfinished.latency();
        let measured: f64 = self.seconds.iter().map(|second| second.length).sum();
        let busy: f64 = self.seconds.iter().map(|second| second.generator_busy * second.length).sum();
        // The last second is seldom a whole one, and a share of a millisecond says nothing.
        let long = || self.seconds.iter().filter(|second| second.length > 0.5).map(|s| s.generator_busy);
        let health = Health {
            threads: summaries.len(),
            cpu_user: (cpu.user - self.cpu_before.user).max(0.0),
            cpu_system: (cpu.system - self.cpu_before.system).max(0.0),
            busy_mean: if measured > 0.0 { busy / measured } else { 0.0 },
            busy_max: long().fold(0.0, f64::max),
            saturated_seconds: long().filter(|busy| *busy > SATURATED).count() as u64,
            delay_ms: open_loop.then(|| delay.latency()),
            unfinished: unfinished.count,
            unfinished_oldest_ms: unfinished.max,
            unsent: self
                .load
                .plan
                .requests()
                .map_or(0, |all| all.saturating_sub(total.requests + unfinished.count)),
            connections_opened: summaries.iter().map(|summary| summary.opened).sum(),
            connections_max: self.seconds.iter().map(|second| second.connections).max().unwrap_or(0),
            handshakes: summaries.iter().map(|summary| summary.handshakes).sum(),
            handshakes_resumed: summaries.iter().map(|summary| summary.resumed).sum(),
        };
        let mut report = Report {
            format: 1,
            generator: concat!("hayate-load ", env!("CARGO_PKG_VERSION")).to_owned(),
            target: self.load.requests.url().to_owned(),
            protocol: ProtocolReport {
                http: self.load.version.name().to_owned(),
                streams: self.load.streams,
                tls: self.tls.as_ref().and_then(|tls| tls.seen.agreement.get().cloned()),
            },
            plan: plan(&self.load),
            started: self.started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64(),
            duration: duration.as_secs_f64(),
            interrupted: summaries.iter().any(|summary| summary.interrupted),
            total,
            phases: phase_figures(&self.load, &phases),
            seconds: self.seconds,
            health,
            warnings: Vec::new(),
        };
        report.warnings = doubts(&report);
        if let Some(why) = self.tls.as_ref().and_then(|tls| tls.seen.failure.get()) {
            report.warnings.insert(0, format!("the first TLS handshake that failed: {why}"));
        }
        report
    }
}

/// The rate in the middle of a second, or of the part of it that belongs to the schedule.
fn planned_rate(schedule: &Schedule, second: u64) -> f64 {
    let start = Duration::from_secs(second);
    let end = schedule.duration().min(start + Duration::from_secs(1));
    end.checked_sub(start).map_or(0.0, |part| schedule.rate_at(start + part / 2))
}

fn plan(load: &Load) -> PlanReport {
    match &load.plan {
        Plan::Scheduled(schedule) => PlanReport::Scheduled {
            schedule: schedule.text().to_owned(),
            shots: schedule.shots(),
            duration: schedule.duration().as_secs_f64(),
            connections: load.max_connections,
        },
        Plan::Closed { connections, until } => PlanReport::Closed {
            connections: *connections,
            duration: match until {
                Until::Duration(duration) => Some(duration.as_secs_f64()),
                Until::Requests(_) => None,
            },
            requests: load.plan.requests(),
        },
        Plan::Threads { threads, ramp_up, loops } => {
            PlanReport::Threads { threads: *threads, ramp_up: ramp_up.as_secs_f64(), loops: *loops }
        }
    }
}

fn phase_figures(load: &Load, tallies: &[Tally]) -> Vec<PhaseFigures> {
    let Plan::Scheduled(schedule) = &load.plan else {
        return Vec::new();
    };
    let figures = schedule.phases().iter().zip(tallies).map(|(phase, tally)| PhaseFigures {
        phase: phase.text.clone(),
        start: phase.start.as_secs_f64(),
        duration: phase.duration.as_secs_f64(),
        shots: phase.shots,
        figures: tally.figures(phase.duration),
    });
    figures.collect()
}

/// What a reader has to know before believing a report.
fn doubts(report: &Report) -> Vec<String> {
    let (total, health) = (&report.total, &report.health);
    let mut doubts = Vec::new();
    if health.saturated_seconds > 0 {
        doubts.push(format!(
            "the generator was busy for more than 90 % of the time in {} of {} seconds: the server may be faster than these figures; \
             give the generator more or other processors",
            health.saturated_seconds,
            report.seconds.len()
        ));
    }
    let share = |count: u64| count as f64 / total.requests.max(1) as f64;
    if share(total.late_generator) > TOLERATED_LATE {
        doubts.push(format!(
            "the generator sent {} shots ({:.1} %) more than 1 ms after their moment: it cannot keep up with this schedule, \
             or something else takes its processor; the delay is part of the latencies",
            total.late_generator,
            100.0 * share(total.late_generator)
        ));
    }
    if total.late_waiting > 0 {
        doubts.push(format!(
            "{} shots ({:.1} %) had to wait for a free connection; the wait is part of the latencies, and the server saw \
             less load than the schedule says: allow more connections if your visitors would not wait",
            total.late_waiting,
            100.0 * share(total.late_waiting)
        ));
    }
    if total.errors.contains_key(Failure::Local.name()) {
        doubts.push(
            "this machine ran out of ports, descriptors or memory: these errors are not the server's"
                .to_owned(),
        );
    }
    let broke = |failure: &Failure| total.errors.contains_key(failure.name());
    if report.protocol.http == Version::Http2.name()
        && report.target.starts_with("http://")
        && total.ok == 0
        && [Failure::Malformed, Failure::Reset, Failure::Closed, Failure::Incomplete].iter().any(broke)
    {
        doubts.push(
            "the server may not speak HTTP/2 with prior knowledge, which is what --http2 means for http://: load it without \
             --http2, or by https://, where both sides agree on it"
                .to_owned(),
        );
    }
    if let Some(age) = health.unfinished_oldest_ms
        && age > 1000.0
        && total.latency_ms.p99.is_none_or(|p99| age > p99)
    {
        doubts.push(format!(
            "{} requests had no answer when the load ended, the oldest after {:.1} s; they are in no other figure",
            health.unfinished,
            age / 1000.0
        ));
    }
    doubts
}

/// CPU time of this process, seconds.
struct Cpu {
    user: f64,
    system: f64,
}

impl Cpu {
    fn of_this_process() -> Self {
        getrusage(UsageWho::RUSAGE_SELF).map_or(Self { user: 0.0, system: 0.0 }, |usage| Self {
            user: usage.user_time().num_microseconds() as f64 / 1e6,
            system: usage.system_time().num_microseconds() as f64 / 1e6,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Figures, Latency};

    /// A load of a second in which all went well.
    fn sound() -> Report {
        Report {
            format: 1,
            generator: String::new(),
            target: String::new(),
            protocol: ProtocolReport::default(),
            plan: PlanReport::Scheduled { schedule: String::new(), shots: 0, duration: 1.0, connections: 1 },
            started: 0.0,
            duration: 1.0,
            interrupted: false,
            total: Figures {
                requests: 10_000,
                ok: 10_000,
                latency_ms: Latency { p99: Some(5.0), ..Latency::default() },
                ..Figures::default()
            },
            phases: Vec::new(),
            seconds: vec![Second::default()],
            health: Health::default(),
            warnings: Vec::new(),
        }
    }

    fn doubt(change: impl FnOnce(&mut Report)) -> String {
        let mut report = sound();
        change(&mut report);
        doubts(&report).join("\n")
    }

    #[test]
    fn planned_rates_are_those_of_the_part_of_a_second_that_is_planned() {
        let schedule = Schedule::parse("line(0, 100, 1s) const(50, 300ms)").expect("a schedule");
        assert_eq!([0, 1, 2, 3].map(|second| planned_rate(&schedule, second)), [50.0, 50.0, 0.0, 0.0]);
    }

    #[test]
    fn a_sound_load_is_not_doubted() {
        assert_eq!(doubt(|_| ()), "");
        // Nine shots in ten thousand, and an answer that was on its way at the end, are no reason.
        assert_eq!(doubt(|report| report.total.late_generator = 9), "");
        assert_eq!(doubt(|report| report.health.unfinished_oldest_ms = Some(4.0)), "");
    }

    #[test]
    fn a_reader_is_told_what_makes_figures_doubtful() {
        let told = |text: String, part: &str| assert!(text.contains(part), "{text}");
        told(
            doubt(|report| report.health.saturated_seconds = 1),
            "busy for more than 90 % of the time in 1 of 1 seconds",
        );
        told(
            doubt(|report| report.total.late_generator = 11),
            "the generator sent 11 shots (0.1 %) more than 1 ms after",
        );
        told(
            doubt(|report| report.total.late_waiting = 500),
            "500 shots (5.0 %) had to wait for a free connection",
        );
        told(doubt(|report| report.total.errors = [("local".to_owned(), 1)].into()), "not the server's");
        told(
            doubt(|report| {
                report.health.unfinished = 3;
                report.health.unfinished_oldest_ms = Some(9000.0);
            }),
            "3 requests had no answer when the load ended, the oldest after 9.0 s",
        );
    }
}
