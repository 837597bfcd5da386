//! Rounds: every engine once, then every engine again, so that what changes on the machine meets all of them alike. Each
//! round begins with another engine.

use anyhow::Result;

use super::{Generator, Planned, Pool, Progress, Trial, TrialEnd, noise, progress::expected};
use crate::{
    data::Metric,
    engine::Stage,
    output::status,
    result::{Measurement, Results, Subject, value},
    session::Session,
};

/// Is told after each measurement, so that partial results are kept.
pub type Watch<'a> = dyn FnMut(&Results) + 'a;

/// How one part of an experiment is run.
pub struct Rounds<'a> {
    /// The session.
    pub session: &'a Session,
    /// The generator.
    pub generator: &'a mut Generator,
    /// The services.
    pub pool: &'a mut Pool,
    /// Is told what is done.
    pub progress: &'a mut Progress,
    /// Is told.
    pub watch: &'a mut Watch<'a>,
}

impl Rounds<'_> {
    /// Measures the last part of `results`, whose subjects belong to `planned`. `measure` makes the measurements of one
    /// subject in one round.
    ///
    /// # Errors
    /// The lab itself failed: what engines do wrong is in the results.
    pub fn run(
        &mut self,
        results: &mut Results,
        planned: &[Planned],
        mut measure: impl FnMut(Trial<'_>, &Session, &mut Generator) -> TrialEnd,
    ) -> Result<()> {
        let session = self.session;
        let Some(part) = results.parts.len().checked_sub(1) else { return Ok(()) };
        let (kind, rounds, warm_up) = {
            let part = &results.parts[part];
            (part.kind, part.rounds, part.warm_up)
        };
        self.pool.prepare(session, planned);
        results.parts[part].services.extend(self.pool.versions());
        for round in 1..=rounds {
            if session.interrupted() {
                break;
            }
            results.noise.calibrations.push(noise::calibrate(session)?);
            for turn in 0..planned.len() {
                let position = (turn + round as usize - 1) % planned.len();
                let planned = &planned[position];
                let subject = &mut results.parts[part].subjects[position];
                let seconds = expected(kind, &planned.load, warm_up);
                if session.interrupted() || !planned.presence.missing.is_empty() {
                    continue;
                }
                if subject.failure.is_some() {
                    self.progress.without(seconds);
                    continue;
                }
                let end = match self.pool.of(planned) {
                    None => continue,
                    Some(Err(failure)) => {
                        self.progress.without(seconds);
                        TrialEnd { failure: Some(failure.clone()), ..TrialEnd::default() }
                    }
                    Some(Ok(services)) => {
                        let trial = Trial { planned, services, warm_up, round };
                        let generator = &mut *self.generator;
                        self.progress.during(&planned.name, seconds, || measure(trial, session, generator))
                    }
                };
                if session.interrupted() {
                    results.interrupted = true;
                }
                take(subject, end, round, rounds, session.interrupted());
                results.duration = crate::machine::now() - results.started;
                (self.watch)(results);
            }
        }
        if session.interrupted() {
            results.interrupted = true;
        }
        results.duration = crate::machine::now() - results.started;
        (self.watch)(results);
        Ok(())
    }
}

/// Takes what a trial found into the subject, and says it.
fn take(subject: &mut Subject, end: TrialEnd, round: u32, rounds: u32, interrupted: bool) {
    if subject.configuration.is_empty() {
        subject.configuration = end.configuration;
    }
    let before = if rounds > 1 { format!("{round}/{rounds}  ") } else { String::new() };
    for measurement in end.measurements.iter().filter(|_| !end.said) {
        status::say(&format!("{before}{:24} {}", subject.name, in_short(measurement)));
    }
    // Half a load is no measurement to be compared, except if it is all there is.
    let whole = |m: &Measurement| !m.load.interrupted;
    let has_other = !subject.measurements.is_empty();
    subject
        .measurements
        .extend(end.measurements.into_iter().filter(|m| whole(m) || (interrupted && !has_other)));
    if let Some(failure) = end.failure.filter(|_| !interrupted) {
        let (name, stage) = (&subject.name, failure.stage.verb());
        // What could not be prepared for all of them was said when it was tried.
        let why =
            if failure.stage == Stage::Service { String::new() } else { format!(": {}", failure.message) };
        status::say(&format!("{before}{name:24} {stage}{why}"));
        subject.failure = Some(failure);
    }
}

/// A measurement in a line.
pub fn in_short(measurement: &Measurement) -> String {
    let figure = |metric| value(metric, measurement, None);
    let mut text = format!("{:10.1} req/s", figure(Metric::Rate).unwrap_or(0.0));
    if let Some(us) = figure(Metric::CpuUs) {
        text.push_str(&format!("  {us:9.2} µs CPU/request"));
    }
    if let Some(p99) = figure(Metric::P99) {
        text.push_str(&format!("  p99 {p99:8.2} ms"));
    }
    match figure(Metric::OkPercent) {
        Some(ok) if ok < 100.0 => text.push_str(&format!("  {ok:.3} % OK")),
        _ => {}
    }
    text
}
