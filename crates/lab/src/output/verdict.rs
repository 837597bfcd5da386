//! What a part found out, in a few sentences: who is ahead of whom, by how much, and whether the rounds allow to say so.
//!
//! Promises: who is said to be ahead is so by a 95 % confidence interval that leaves "the same" out; else it is said that the rounds
//! do not tell, or are too few; and nobody is who has not one right answer. Yardsticks, which run no application, are never said to be ahead of those that do.

use super::number::{number, percent};
use crate::{
    data::{Kind, Metric},
    result::{Exhausted, Interval, Part, Subject},
};

/// A share of right answers below this one is worth a word, percent.
const RIGHT: f64 = 99.9;
/// Limits that are closer to each other than this were not told apart by one search each.
const SEARCHED_ONCE: f64 = 1.1;

/// How subjects are called: by name, as in tables of the terminal, or by title, as on the page.
pub type Called = fn(&Subject) -> &str;

/// By name.
pub fn by_name(subject: &Subject) -> &str {
    &subject.name
}

/// By title.
pub fn by_title(subject: &Subject) -> &str {
    &subject.title
}

/// The verdict on a part.
pub fn verdict(part: &Part, called: Called) -> String {
    let sentences = match part.kind {
        Kind::Run | Kind::Ladder if nobody_is_right(part) => Vec::new(),
        Kind::Run => run(part, called),
        Kind::Saturate => limits(part, called),
        Kind::Ladder => steps(part, called),
    };
    if !sentences.is_empty() {
        return sentences.join(" ");
    }
    let measured: Vec<&str> =
        part.subjects.iter().filter(|s| !s.measurements.is_empty()).map(called).collect();
    match (&measured[..], part.kind) {
        ([], _) => "Nothing was measured.".to_owned(),
        (_, Kind::Saturate) => format!("No rate that was tried was served: {}.", measured.join(", ")),
        _ if nobody_is_right(part) => {
            format!("Not one answer was right, so nothing compares: {}.", measured.join(", "))
        }
        _ => "Nothing that was measured compares.".to_owned(),
    }
}

/// The share of a subject's answers that were right, percent.
fn right(subject: &Subject) -> f64 {
    subject.figure(Metric::OkPercent, None).map_or(0.0, |spread| spread.value)
}

/// Whether there is no right answer at all, of anybody.
fn nobody_is_right(part: &Part) -> bool {
    part.subjects.iter().all(|subject| right(subject) == 0.0)
}

/// Those that are compared, the best first; yardsticks only among themselves.
fn compared(part: &Part) -> Vec<&Subject> {
    let mut subjects = part.ranked();
    subjects.retain(|subject| !subject.measurements.is_empty());
    if subjects.iter().any(|subject| !subject.yardstick) {
        subjects.retain(|subject| !subject.yardstick);
    }
    subjects
}

fn run(part: &Part, called: Called) -> Vec<String> {
    let metric = part.decisive();
    let compared = compared(part);
    let figure = |subject: &Subject| {
        let value = subject.figure(metric, None).map_or(0.0, |spread| spread.value);
        match metric {
            Metric::P95 => format!("95 % of its answers came within {} ms", number(value)),
            _ => format!("{} requests/s", number(value)),
        }
    };
    let Some((leader, others)) = compared.split_first() else { return Vec::new() };
    let Some((next, further)) = others.split_first() else {
        return vec![format!("{}: {}, with nothing beside it.", called(leader), figure(leader))];
    };
    let rounds = rounds(leader.measurements.len());
    let ratio = |other: &Subject| Part::ratio(leader, other, metric);
    let unclear = |other: &Subject| ratio(other).is_some_and(|r| !r.is_vague() && !r.is_sure());
    let baseline =
        part.baseline().filter(|b| b.name != leader.name && compared.iter().any(|c| c.name == b.name));
    // Where the next one is as good, the others that are count as well.
    let mut said = vec![*next];
    if !metric.more_is_better() && right(leader) >= right(next) + 1.0 {
        let share = |subject: &Subject| percent(Some(right(subject)));
        let (name, figure) = (called(leader), figure(leader));
        let mut sentences = vec![format!(
            "{name} did best: it answered {} % rightly, {} {} %; {figure}.",
            share(leader),
            called(next),
            share(next)
        )];
        sentences.extend(wrong(&compared, called));
        return sentences;
    }
    let mut text = if ratio(next).is_none_or(|r| r.is_vague()) {
        format!("{} did best, but {rounds} too few to say so: {}", called(leader), figure(leader))
    } else if unclear(next) {
        said.extend(further.iter().take_while(|other| unclear(other)));
        let mut names: Vec<&str> =
            std::iter::once(leader).chain(&said).map(|subject| called(subject)).collect();
        let last = names.pop().unwrap_or_default();
        format!(
            "{} and {last} are not told apart by {}: {} had {}",
            names.join(", "),
            by(leader),
            called(leader),
            figure(leader)
        )
    } else {
        format!("{} is ahead, and {rounds} enough to say so: {}", called(leader), figure(leader))
    };
    text.push_str(&format!(", {}", times(ratio(next), metric, called(next))));
    if let Some(baseline) = baseline.filter(|baseline| baseline.name != next.name) {
        text.push_str(&format!(", and {}", times(ratio(baseline), metric, called(baseline))));
    }
    let mut sentences = vec![text + "."];
    if let Some(baseline) = baseline {
        sentences.extend(processor_time(leader, baseline, called));
    }
    if metric == Metric::Rate && leader.measurements.iter().any(|m| m.load.health.saturated_seconds > 0) {
        sentences.push(
            "The generator was busy all the time: rates are lower bounds, processor time compares."
                .to_owned(),
        );
    }
    sentences.extend(wrong(&compared, called));
    sentences
}

/// `1.33 times (1.20–1.50) as many as php-fpm`.
fn times(ratio: Option<Interval>, metric: Metric, other: &str) -> String {
    let Some(ratio) = ratio else { return format!("where {other} had nothing to compare with") };
    let as_much = if metric.more_is_better() { "as many" } else { "as long" };
    format!("{} {as_much} as {other}", factor(ratio))
}

/// `1.33 times (1.20–1.50)`; without an interval that says nothing.
fn factor(ratio: Interval) -> String {
    match ratio.bounds.filter(|_| !ratio.is_vague()) {
        Some((low, high)) => format!("{} times ({}–{})", number(ratio.value), number(low), number(high)),
        None => format!("{} times", number(ratio.value)),
    }
}

fn processor_time(leader: &Subject, baseline: &Subject, called: Called) -> Option<String> {
    let ratio = Part::ratio(leader, baseline, Metric::CpuUs).filter(|ratio| !ratio.is_vague())?;
    let own = leader.figure(Metric::CpuUs, None)?.value;
    let (own, ratio) = (number(own), factor(ratio));
    let (leader, baseline) = (called(leader), called(baseline));
    Some(format!("A request costs {leader} {own} µs of processor time, {ratio} what it costs {baseline}."))
}

/// Who did not answer rightly.
fn wrong(subjects: &[&Subject], called: Called) -> Option<String> {
    let share = |subject: &&Subject| {
        let ok = subject.figure(Metric::OkPercent, None)?.value;
        (ok < RIGHT).then(|| format!("{} % of {}", percent(Some(ok)), called(subject)))
    };
    let shares: Vec<String> = subjects.iter().filter_map(share).collect();
    (!shares.is_empty()).then(|| format!("Not all answers were right: {}.", shares.join(", ")))
}

/// `five rounds are`, `one round is`.
fn rounds(count: usize) -> String {
    if count == 1 { "one round is".to_owned() } else { format!("{} are", rounds_alone(count)) }
}

fn by(subject: &Subject) -> String {
    rounds_alone(subject.measurements.len())
}

fn rounds_alone(count: usize) -> String {
    const WORDS: [&str; 11] =
        ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"];
    let word = WORDS.get(count).map_or_else(|| count.to_string(), |word| (*word).to_owned());
    format!("{word} round{}", if count == 1 { "" } else { "s" })
}

fn limits(part: &Part, called: Called) -> Vec<String> {
    let limit = |subject: &Subject| subject.saturation.as_ref().map(|saturation| saturation.limit);
    let mut compared = compared(part);
    compared.retain(|subject| limit(subject).is_some_and(|limit| limit > 0.0));
    let Some((leader, others)) = compared.split_first() else { return Vec::new() };
    let own = limit(leader).unwrap_or(0.0);
    let times = |other: &Subject| own / limit(other).unwrap_or(own);
    let many = |other: &Subject| format!("{} times as many as {}", number(times(other)), called(other));
    let mut sentences = Vec::new();
    match others.first() {
        None => sentences.push(format!("{} bears {} requests/s.", called(leader), number(own))),
        Some(next) => {
            let mut text = if times(next) < SEARCHED_ONCE {
                format!("{} and {} bear about the same", called(leader), called(next))
            } else {
                format!("{} bears most", called(leader))
            };
            text.push_str(&format!(": {} requests/s, {}", number(own), many(next)));
            let baseline = part.baseline().filter(|b| b.name != leader.name && b.name != next.name);
            if let Some(baseline) = baseline.filter(|baseline| limit(baseline).is_some()) {
                text.push_str(&format!(", and {}", many(baseline)));
            }
            sentences.push(text + ".");
            sentences.push(
                "Each limit was searched once; what differs by less than a tenth may be noise.".to_owned(),
            );
        }
    }
    if let Some(saturation) = &leader.saturation {
        if saturation.failed_at.is_none() {
            sentences.push("It served every rate that was tried: its limit is higher.".to_owned());
        } else if saturation.exhausted.contains(&Exhausted::Generator) {
            sentences.push("The generator gave way first: its limit may be higher.".to_owned());
        }
    }
    sentences
}

/// The step of a ladder that changes most.
fn steps(part: &Part, called: Called) -> Vec<String> {
    let steps = part.steps();
    let changes = part.subjects.iter().zip(&steps).filter_map(|(subject, step)| {
        let below = subject.above.and_then(|above| part.subjects.get(above))?;
        Some((subject, below, step.ratio?))
    });
    let away = |ratio: &Interval| ratio.value.ln().abs();
    let Some((subject, below, ratio)) = changes.max_by(|a, b| away(&a.2).total_cmp(&away(&b.2))) else {
        return Vec::new();
    };
    let count = subject.measurements.len();
    let allowed = if ratio.is_sure() {
        format!("{} enough to say so", rounds(count))
    } else if ratio.is_vague() {
        format!("{} too few to say more", rounds(count))
    } else {
        format!("{} do not tell it from noise", rounds_alone(count))
    };
    vec![format!(
        "The step that changes most is '{}': {} the {} of '{}'; {allowed}.",
        called(subject),
        factor(ratio),
        part.metric.label(),
        called(below)
    )]
}
