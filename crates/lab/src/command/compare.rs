//! `hayate-lab compare`: what changed between two results beyond the noise.
//!
//! Promises: a change is called one only if its 95 % confidence interval over the rounds excludes "the same" and it is larger
//! than the threshold; what cannot be told is said to be so, and fails nothing.

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Result, ensure};
use serde::Serialize;

use super::report::print;
use crate::{
    data::{Kind, Metric},
    output::{
        number::{interval, or_dash, percent},
        table::Table,
    },
    result::{Interval, Part, Results, Saturation, Spread, Subject, ratio_unpaired, value},
};

const NOTES: &str = "\
Compares subjects of the same name in parts of the same title. Rounds of two runs are not paired, so both runs' spread counts
(Welch's t on logarithms); at least two rounds of each are needed. A subject that failed, or answers less often rightly than
before, is a regression however many rounds there are.

Exit status: 0 no regression; 1 a regression; 2 the files cannot be compared.";

/// Which results.
#[derive(Debug, clap::Args)]
#[command(after_long_help = NOTES)]
pub struct CompareArgs {
    /// The JSON of before
    pub a: PathBuf,
    /// The JSON of after
    pub b: PathBuf,
    /// What is compared
    #[arg(long, short, value_delimiter = ',', value_enum,
        default_values_t = [Metric::Rate, Metric::CpuUs, Metric::Instructions, Metric::P50, Metric::P99, Metric::MemoryMax])]
    pub metric: Vec<Metric>,
    /// The least change that matters, percent
    #[arg(long, short, value_name = "PERCENT", default_value_t = 5.0, value_parser = threshold)]
    pub threshold: f64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

fn threshold(text: &str) -> Result<f64, String> {
    let number = text.trim_end_matches('%').trim().parse::<f64>().map_err(|error| error.to_string())?;
    if (0.0..1000.0).contains(&number) { Ok(number) } else { Err("a percentage is 0 or more".to_owned()) }
}

/// What a comparison says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Better,
    Worse,
    Same,
    /// Too few rounds.
    Unknown,
}

impl Verdict {
    fn text(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "WORSE",
            Self::Same => "",
            Self::Unknown => "too few rounds to tell",
        }
    }
}

#[derive(Serialize)]
struct Change {
    part: String,
    subject: String,
    what: String,
    a: Option<f64>,
    b: Option<f64>,
    ratio: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
    verdict: Verdict,
    #[serde(skip)]
    interval: Option<Interval>,
}

/// Compares and prints.
///
/// # Errors
/// A file cannot be read, or the two have nothing in common.
pub fn run(args: &CompareArgs) -> Result<ExitCode> {
    let (a, b) = (Results::read(&args.a)?, Results::read(&args.b)?);
    let mut changes = Vec::new();
    for part in &a.parts {
        let Some(other) = b.parts.iter().find(|other| other.title == part.title) else { continue };
        for subject in &part.subjects {
            if let Some(after) = other.subjects.iter().find(|after| after.name == subject.name) {
                compare(args, part, subject, after, &mut changes);
            }
        }
    }
    ensure!(
        !changes.is_empty(),
        "{} and {} have no subject in common: they come from other workloads or engines",
        args.a.display(),
        args.b.display()
    );
    let notes = notes(&a, &b);
    if args.json {
        let text = serde_json::to_string_pretty(&serde_json::json!({ "changes": changes, "notes": notes }))?;
        print(&(text + "\n"))?;
    } else {
        print(&text(args, &a, &changes, &notes))?;
    }
    let worse = changes.iter().any(|change| change.verdict == Verdict::Worse);
    Ok(if worse { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn compare(args: &CompareArgs, part: &Part, a: &Subject, b: &Subject, changes: &mut Vec<Change>) {
    let change = |what: &str| Change {
        part: part.title.clone(),
        subject: a.name.clone(),
        what: what.to_owned(),
        a: None,
        b: None,
        ratio: None,
        low: None,
        high: None,
        verdict: Verdict::Same,
        interval: None,
    };
    match (&a.failure, &b.failure) {
        (None, Some(failure)) => {
            let what = format!("{}: {}", failure.stage.verb(), failure.message);
            changes.push(Change { verdict: Verdict::Worse, ..change(&what) });
        }
        (Some(_), None) => changes.push(Change { verdict: Verdict::Better, ..change("works again") }),
        _ => {}
    }
    if part.kind == Kind::Saturate {
        // Its steps are loads of their own. There is one search, so nothing is known about its noise.
        let limits = |of: fn(&Saturation) -> Option<f64>| {
            (a.saturation.as_ref().and_then(of), b.saturation.as_ref().and_then(of))
        };
        for (what, (before, after)) in
            [("limit, requests/s", limits(|s| Some(s.limit))), ("knee, requests/s", limits(|s| s.knee))]
        {
            let ratio = after.zip(before).map(|(after, before)| after / before);
            let interval = ratio.map(|value| Interval { value, bounds: None });
            changes.push(Change {
                a: before,
                b: after,
                ratio,
                interval,
                verdict: Verdict::Unknown,
                ..change(what)
            });
        }
        return;
    }
    let values = |subject: &Subject, metric| {
        subject.measurements.iter().filter_map(|m| value(metric, m, None)).collect::<Vec<_>>()
    };
    if let (Some(before), Some(after)) = (ok_percent(a), ok_percent(b)) {
        // A share needs no rounds: each request is a trial. A tenth of a point is beyond what a restart costs.
        let verdict = match after - before {
            d if d < -0.1 => Verdict::Worse,
            d if d > 0.1 => Verdict::Better,
            _ => Verdict::Same,
        };
        changes.push(Change {
            a: Some(before),
            b: Some(after),
            verdict,
            ..change(Metric::OkPercent.label())
        });
    }
    for metric in args.metric.iter().copied().filter(|metric| *metric != Metric::OkPercent) {
        let (before, after) = (values(a, metric), values(b, metric));
        let Some(interval) = ratio_unpaired(&after, &before) else { continue };
        let median = |values: &[f64]| Spread::of(values.iter().copied()).map(|spread| spread.value);
        changes.push(Change {
            a: median(&before),
            b: median(&after),
            ratio: Some(interval.value),
            low: interval.bounds.map(|bounds| bounds.0),
            high: interval.bounds.map(|bounds| bounds.1),
            verdict: judge(metric, interval, args.threshold),
            interval: Some(interval),
            ..change(metric.label())
        });
    }
}

fn ok_percent(subject: &Subject) -> Option<f64> {
    let sum = |of: fn(&hayate_load::Figures) -> u64| {
        subject.measurements.iter().map(|m| of(&m.load.total)).sum::<u64>()
    };
    let (requests, ok) = (sum(|total| total.requests), sum(|total| total.ok));
    (requests > 0).then(|| 100.0 * ok as f64 / requests as f64)
}

fn judge(metric: Metric, interval: Interval, threshold: f64) -> Verdict {
    let Some((low, high)) = interval.bounds else { return Verdict::Unknown };
    let factor = 1.0 + threshold / 100.0;
    let (more, less) = (low > 1.0 && interval.value > factor, high < 1.0 && interval.value < 1.0 / factor);
    match (more, less, metric.more_is_better()) {
        (true, _, true) | (_, true, false) => Verdict::Better,
        (true, _, false) | (_, true, true) => Verdict::Worse,
        _ => Verdict::Same,
    }
}

/// What makes the two hard to compare.
fn notes(a: &Results, b: &Results) -> Vec<String> {
    let mut notes = Vec::new();
    let mut differs = |what: &str, a: &str, b: &str| {
        if a != b {
            notes.push(format!("{what} differs: {a}, then {b}"));
        }
    };
    differs("The machine", &a.machine.host, &b.machine.host);
    differs("The processor", &a.machine.cpu, &b.machine.cpu);
    differs("The kernel", &a.machine.kernel, &b.machine.kernel);
    differs("The number of workers", &a.workers.to_string(), &b.workers.to_string());
    let cores = |results: &Results| crate::machine::show_cpus(&results.cores.server);
    differs("The servers' processors", &cores(a), &cores(b));
    for part in &a.parts {
        let Some(other) = b.parts.iter().find(|other| other.title == part.title) else { continue };
        for subject in &part.subjects {
            if let Some(after) = other.subjects.iter().find(|after| after.name == subject.name) {
                differs(&format!("{}: the version", subject.name), &subject.version, &after.version);
                differs(
                    &format!("{}: the load", subject.name),
                    &subject.load.to_string(),
                    &after.load.to_string(),
                );
            }
        }
    }
    let speed = |results: &Results| {
        Spread::of(results.noise.calibrations.iter().map(|c| c.server.median_us)).map(|spread| spread.value)
    };
    if let (Some(before), Some(after)) = (speed(a), speed(b)) {
        let change = (after / before - 1.0) * 100.0;
        if change.abs() > 3.0 {
            let way = if change > 0.0 { "slower" } else { "faster" };
            notes.push(format!(
                "The servers' processor itself ran {:.0} % {way} the second time.",
                change.abs()
            ));
        }
    }
    notes
}

fn text(args: &CompareArgs, a: &Results, changes: &[Change], notes: &[String]) -> String {
    let mut table = Table::new(&["", "", "before", "after", "after / before (95 %)", ""]).figures_from(2);
    for change in changes {
        let subject = if a.parts.len() > 1 {
            format!("{}: {}", change.part, change.subject)
        } else {
            change.subject.clone()
        };
        let show = if change.what == Metric::OkPercent.label() { percent } else { or_dash };
        let empty = change.a.is_none();
        table.row([
            subject,
            change.what.clone(),
            if empty { String::new() } else { show(change.a) },
            if empty { String::new() } else { show(change.b) },
            interval(change.interval),
            change.verdict.text().to_owned(),
        ]);
    }
    let count = |verdict| changes.iter().filter(|change| change.verdict == verdict).count();
    let (better, worse, unknown) = (count(Verdict::Better), count(Verdict::Worse), count(Verdict::Unknown));
    let mut out = format!(
        "{table}\n\n{worse} worse, {better} better by more than {} % and beyond the noise",
        args.threshold
    );
    if unknown > 0 {
        out.push_str(&format!(
            "; {unknown} cannot be told: measure at least two rounds each time (--rounds)"
        ));
    }
    out.push_str(".\n");
    for note in notes {
        out.push_str(&format!("- {note}\n"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_sure_and_large_is_a_change() {
        let interval = |value, bounds| Interval { value, bounds };
        let slower = interval(0.8, Some((0.7, 0.9)));
        assert_eq!(judge(Metric::Rate, slower, 5.0), Verdict::Worse);
        assert_eq!(judge(Metric::CpuUs, slower, 5.0), Verdict::Better);
        assert_eq!(judge(Metric::Rate, slower, 30.0), Verdict::Same);
        assert_eq!(judge(Metric::Rate, interval(0.8, Some((0.6, 1.1))), 5.0), Verdict::Same);
        assert_eq!(judge(Metric::P99, interval(1.5, Some((1.2, 1.8))), 5.0), Verdict::Worse);
        assert_eq!(judge(Metric::Rate, interval(0.1, None), 5.0), Verdict::Unknown);
    }
}
