//! A part's subjects in one row each, all rounds together.

use std::collections::{BTreeMap, BTreeSet};

use hayate_load::Latency;

use super::{Interval, Measurement, Part, Spread, Subject, Usage, figure, ratio, value};
use crate::{
    data::{Kind, Metric, Reference},
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

/// One row for each subject, in the part's order.
pub fn rows(part: &Part) -> Vec<Row<'_>> {
    let baseline = part.baseline.as_ref().and_then(|name| part.subjects.iter().find(|s| s.name == *name));
    part.subjects.iter().map(|subject| row(subject, baseline)).collect()
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
    (0..count).map(|number| part.subjects.iter().filter_map(|s| row(s, number)).collect()).collect()
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
    /// The subjects as steps of a ladder, in the same order.
    pub fn steps(&self) -> Vec<Step> {
        let step = |subject: &Subject| {
            let below = subject.above.and_then(|above| self.subjects.get(above));
            Step {
                spread: Spread::of(subject.measurements.iter().filter_map(|m| value(self.metric, m, None))),
                ratio: below.and_then(|below| ratio(&pairs(subject, below, self.metric))),
            }
        };
        self.subjects.iter().map(step).collect()
    }

    /// Published figures, each with ours if we have it.
    pub fn beside_published(&self) -> Vec<(&Reference, Option<f64>)> {
        let ours = |reference: &Reference| {
            let subject = self.subjects.iter().find(|subject| subject.engine == reference.engine)?;
            let of = |m: &_| value(reference.metric, m, reference.phase.as_deref());
            match &subject.saturation {
                // Published limits are rates.
                Some(saturation) => Some(saturation.limit),
                None => Spread::of(subject.measurements.iter().filter_map(of)).map(|spread| spread.median),
            }
        };
        self.references.iter().map(|reference| (reference, ours(reference))).collect()
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
