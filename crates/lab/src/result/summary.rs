//! A part's subjects in one row each, all rounds together.

use std::collections::{BTreeMap, BTreeSet};

use hayate_load::{Figures, Latency};

use super::{Interval, Measurement, Part, Spread, Subject, Usage, figure, ratio, value};
use crate::{
    data::{Kind, Metric, Reference},
    engine::Failure,
    instructions::Instructions,
};

/// A subject, all its rounds together. Figures are medians over rounds with the range, unless they say otherwise.
#[derive(Clone, Debug)]
pub struct Row<'a> {
    /// Which.
    pub subject: &'a Subject,
    /// Of all requests of all rounds.
    pub latency: Option<Latency>,
    /// Of all requests of all rounds.
    pub ok_percent: Option<f64>,
    /// Requests of all rounds.
    pub requests: u64,
    /// OK requests of all rounds.
    pub ok: u64,
    /// Failed ones by kind.
    pub errors: BTreeMap<String, u64>,
    /// OK requests per second.
    pub rate: Option<Spread>,
    /// The same against the baseline.
    pub rate_ratio: Option<Interval>,
    /// CPU µs per request.
    pub cpu_us: Option<Spread>,
    /// Of that, in user mode.
    pub cpu_user_us: Option<Spread>,
    /// Of that, in the kernel.
    pub cpu_system_us: Option<Spread>,
    /// CPU µs per request against the baseline.
    pub cpu_ratio: Option<Interval>,
    /// Thousands of instructions per request.
    pub instructions: Option<Spread>,
    /// Of those, in user mode.
    pub instructions_user: Option<Spread>,
    /// Of those, in the kernel.
    pub instructions_kernel: Option<Spread>,
    /// Instructions per request against the baseline.
    pub instructions_ratio: Option<Interval>,
    /// CPU in use, in processors.
    pub cpu_median: Option<Spread>,
    /// The highest sample of each round.
    pub cpu_max: Option<Spread>,
    /// MB.
    pub memory_median: Option<Spread>,
    /// The highest sample of each round, MB.
    pub memory_max: Option<Spread>,
    /// Context switches per request.
    pub switches: Option<Spread>,
    /// Of those, the involuntary ones.
    pub involuntary: Option<Spread>,
    /// Processes at the end of the last round.
    pub processes: usize,
    /// CPU µs per request of each service.
    pub services: BTreeMap<String, Spread>,
    /// Seconds until it was ready.
    pub start_up: Option<Spread>,
}

/// One row for each subject, the best first.
pub fn rows(part: &Part) -> Vec<Row<'_>> {
    let baseline = part.baseline();
    part.ranked().into_iter().map(|subject| row(subject, baseline)).collect()
}

impl Subject {
    /// A figure of all rounds, or of a phase in all rounds, with the range of the rounds: a share or a quantile is that of all
    /// requests together, as tables of latency have it; anything else the median.
    pub fn figure(&self, metric: Metric, phase: Option<&str>) -> Option<Spread> {
        let rounds = Spread::of(self.measurements.iter().filter_map(|m| value(metric, m, phase)))?;
        let all = || self.measurements.iter().filter_map(|m| figure::of_phase(m, phase));
        let latency = |of: fn(&Latency) -> Option<f64>| of(&figure::quantiles(all())?);
        let together = match metric {
            Metric::OkPercent => {
                let sum = |of: fn(&Figures) -> u64| all().map(of).sum::<u64>() as f64;
                let requests = sum(|figures| figures.requests);
                (requests > 0.0).then(|| 100.0 * sum(|figures| figures.ok) / requests)
            }
            Metric::P50 => latency(|l| l.p50),
            Metric::P80 => latency(|l| l.p80),
            Metric::P90 => latency(|l| l.p90),
            Metric::P95 => latency(|l| l.p95),
            Metric::P99 => latency(|l| l.p99),
            Metric::Max => latency(|l| l.max),
            Metric::Mean => latency(|l| l.mean),
            Metric::Rate | Metric::CpuUs | Metric::Instructions | Metric::MemoryMax => None,
        };
        Some(match together {
            // A histogram's buckets are a thousandth wide: it may lie that much beside the rounds' own.
            Some(value) => Spread { value, min: rounds.min.min(value), max: rounds.max.max(value) },
            None => rounds,
        })
    }
}

fn row<'a>(subject: &'a Subject, baseline: Option<&Subject>) -> Row<'a> {
    let all = &subject.measurements;
    let spread = |of: &dyn Fn(&Measurement) -> Option<f64>| Spread::of(all.iter().filter_map(of));
    let cpu = |of: fn(&Usage) -> f64| spread(&|m| figure::per_request(&m.load, of(&m.server)));
    let instructions =
        |of: fn(Instructions) -> f64| spread(&|m| figure::thousands(&m.load, of(m.instructions?)));
    let switches =
        |of: fn(&Usage) -> u64| spread(&|m| Some(of(&m.server) as f64 / m.load.total.requests.max(1) as f64));
    let against = |metric: Metric| {
        let baseline = baseline.filter(|baseline| baseline.name != subject.name)?;
        ratio(&pairs(subject, baseline, metric))
    };
    let mut errors = BTreeMap::new();
    for (kind, count) in all.iter().flat_map(|m| &m.load.total.errors) {
        *errors.entry(kind.clone()).or_default() += count;
    }
    let requests = all.iter().map(|m| m.load.total.requests).sum();
    let ok = all.iter().map(|m| m.load.total.ok).sum::<u64>();
    let services: BTreeSet<&String> = all.iter().flat_map(|m| m.services.keys()).collect();
    let services = services.into_iter().filter_map(|name| {
        let of_it = |m: &Measurement| {
            let usage = m.services.get(name)?;
            figure::per_request(&m.load, usage.cpu_user + usage.cpu_system)
        };
        Some((name.clone(), spread(&of_it)?))
    });
    Row {
        subject,
        latency: figure::quantiles(all.iter().map(|m| &m.load.total)),
        ok_percent: (requests > 0).then(|| 100.0 * ok as f64 / requests as f64),
        requests,
        ok,
        errors,
        rate: spread(&|m| value(Metric::Rate, m, None)),
        rate_ratio: against(Metric::Rate),
        cpu_us: spread(&|m| value(Metric::CpuUs, m, None)),
        cpu_user_us: cpu(|usage| usage.cpu_user),
        cpu_system_us: cpu(|usage| usage.cpu_system),
        cpu_ratio: against(Metric::CpuUs),
        instructions: spread(&|m| value(Metric::Instructions, m, None)),
        instructions_user: instructions(|counted| counted.user),
        instructions_kernel: instructions(|counted| counted.kernel),
        instructions_ratio: against(Metric::Instructions),
        cpu_median: spread(&|m| Some(m.server.cpu_median)),
        cpu_max: spread(&|m| Some(m.server.cpu_max)),
        memory_median: spread(&|m| Some(m.server.memory_median as f64 / 1e6)),
        memory_max: spread(&|m| value(Metric::MemoryMax, m, None)),
        switches: switches(|usage| usage.voluntary + usage.involuntary),
        involuntary: switches(|usage| usage.involuntary),
        processes: all.last().map_or(0, |m| m.server.processes),
        services: services.collect(),
        start_up: spread(&|m| Some(m.start_up)),
    }
}

/// A phase of a subject's schedule, all rounds together.
#[derive(Clone, Debug)]
pub struct PhaseRow<'a> {
    /// Which subject.
    pub subject: &'a Subject,
    /// As it would be written: `const(500,10s)`.
    pub phase: &'a str,
    /// Requests of all rounds.
    pub requests: u64,
    /// OK requests of all rounds.
    pub ok: u64,
    /// Of all requests of all rounds.
    pub ok_percent: Option<f64>,
    /// OK shots per second, median over rounds with the range.
    pub rate: Option<Spread>,
    /// Of all requests of all rounds.
    pub latency: Option<Latency>,
}

/// The phases in their order, with a row for each subject; none where no schedule has several, and for searches of limits.
pub fn phases(part: &Part) -> Vec<Vec<PhaseRow<'_>>> {
    let all = part.subjects.iter().flat_map(|subject| &subject.measurements);
    let count = all.map(|m| m.load.phases.len()).max().unwrap_or(0);
    if count < 2 || part.kind == Kind::Saturate {
        return Vec::new();
    }
    let row = |subject, number| phase(subject, number);
    let ranked = part.ranked();
    (0..count).map(|number| ranked.iter().filter_map(|s| row(s, number)).collect()).collect()
}

fn phase(subject: &Subject, number: usize) -> Option<PhaseRow<'_>> {
    let rounds: Vec<_> = subject.measurements.iter().filter_map(|m| m.load.phases.get(number)).collect();
    let figures = || rounds.iter().map(|phase| &phase.figures);
    let requests = figures().map(|figures| figures.requests).sum();
    let ok = figures().map(|figures| figures.ok).sum::<u64>();
    Some(PhaseRow {
        subject,
        phase: &rounds.first()?.phase,
        requests,
        ok,
        ok_percent: (requests > 0).then(|| 100.0 * ok as f64 / requests as f64),
        rate: Spread::of(figures().map(|figures| figures.ok_rate)),
        latency: figure::quantiles(figures()),
    })
}

/// A ladder's step.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Its figure, in the part's metric.
    pub spread: Option<Spread>,
    /// The same against the step it stands on.
    pub ratio: Option<Interval>,
}

impl Part {
    /// What ratios are taken against.
    pub fn baseline(&self) -> Option<&Subject> {
        let name = self.baseline.as_ref()?;
        self.subjects.iter().find(|subject| subject.name == *name)
    }

    /// Why subjects were not measured, each reason once: data that could not be prepared is nobody's own.
    pub fn failures(&self) -> Vec<(&Failure, Vec<&Subject>)> {
        let mut found: Vec<(&Failure, Vec<&Subject>)> = Vec::new();
        for subject in &self.subjects {
            let Some(failure) = &subject.failure else { continue };
            match found.iter_mut().find(|(other, _)| *other == failure) {
                Some((_, subjects)) => subjects.push(subject),
                None => found.push((failure, vec![subject])),
            }
        }
        found
    }

    /// The figure that decides which subject is ahead. On a schedule all that keep up have the same rate; what differs is how long
    /// their visitors wait.
    pub fn decisive(&self) -> Metric {
        match self.kind {
            Kind::Run if self.subjects.iter().any(|subject| subject.load.is_open()) => Metric::P95,
            Kind::Ladder => self.metric,
            Kind::Run | Kind::Saturate => Metric::Rate,
        }
    }

    /// The subjects in the one order that everything shows them in: the best first, then yardsticks, then what was not measured. A
    /// ladder's steps stay in theirs.
    pub fn ranked(&self) -> Vec<&Subject> {
        let mut subjects: Vec<&Subject> = self.subjects.iter().collect();
        if self.kind == Kind::Ladder {
            return subjects;
        }
        let metric = self.decisive();
        let key = |subject: &Subject| {
            let figure = match &subject.saturation {
                Some(saturation) => Some(saturation.limit),
                None => subject.figure(metric, None).map(|spread| spread.value),
            };
            let ordered = figure.map(|figure| if metric.more_is_better() { -figure } else { figure });
            // Who answers wrongly is not ahead by answering soon; a thousandth decides nothing.
            let ok = subject.figure(Metric::OkPercent, None).map_or(0.0, |spread| spread.value);
            let wrong = if metric.more_is_better() { 0.0 } else { (100.0 - ok).max(0.0).floor() };
            (figure.is_none(), subject.yardstick, wrong, ordered.unwrap_or(f64::INFINITY))
        };
        subjects.sort_by(|a, b| {
            let (a, b) = (key(a), key(b));
            (a.0, a.1).cmp(&(b.0, b.1)).then(a.2.total_cmp(&b.2)).then(a.3.total_cmp(&b.3))
        });
        subjects
    }

    /// How many times the figure of `a` is that of `b`, by the rounds that both have.
    pub fn ratio(a: &Subject, b: &Subject, metric: Metric) -> Option<Interval> {
        ratio(&pairs(a, b, metric))
    }

    /// The subjects as steps of a ladder, in the same order.
    pub fn steps(&self) -> Vec<Step> {
        let step = |subject: &Subject| {
            let below = subject.above.and_then(|above| self.subjects.get(above));
            Step {
                spread: subject.figure(self.metric, None),
                ratio: below.and_then(|below| ratio(&pairs(subject, below, self.metric))),
            }
        };
        self.subjects.iter().map(step).collect()
    }

    /// Published figures, each with ours if we have it; in the order of the subjects, last what has none here.
    pub fn beside_published(&self) -> Vec<(&Reference, Option<f64>)> {
        let ranked = self.ranked();
        let place = |reference: &Reference| {
            let engine = reference.engine.as_ref();
            ranked.iter().position(|subject| Some(&subject.engine) == engine).unwrap_or(usize::MAX)
        };
        let ours = |reference: &Reference| {
            let subject = ranked.get(place(reference))?;
            match &subject.saturation {
                // Published limits are rates.
                Some(saturation) => Some(saturation.limit),
                None => {
                    let phase = reference.phase.as_deref();
                    subject.figure(reference.metric, phase).map(|spread| spread.value)
                }
            }
        };
        let mut references: Vec<_> =
            self.references.iter().map(|reference| (reference, ours(reference))).collect();
        references.sort_by_key(|(reference, _)| place(reference));
        references
    }
}

/// A figure of both in the rounds that both have.
fn pairs(a: &Subject, b: &Subject, metric: Metric) -> Vec<(f64, f64)> {
    let of = |m: &Measurement| value(metric, m, None);
    let pair = |m: &Measurement| {
        let other = b.measurements.iter().find(|other| other.round == m.round)?;
        Some((of(m)?, of(other)?))
    };
    a.measurements.iter().filter_map(pair).collect()
}
