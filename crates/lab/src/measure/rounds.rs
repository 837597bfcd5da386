//! Rounds: every engine once, then every engine again, so that what changes on the machine meets all of them alike. Each
//! round begins with another engine.

use anyhow::Result;

use super::{Generator, Planned, Trial, TrialEnd, noise};
use crate::{
    data::{Command, Metric},
    engine::{Failure, Services, Stage},
    result::{Measurement, Results, Subject, value},
    session::Session,
};

/// Is told after each measurement, so that partial results are kept.
pub type Watch<'a> = dyn FnMut(&Results) -> Result<()> + 'a;

/// How one part of an experiment is run.
pub struct Rounds<'a> {
    /// The session.
    pub session: &'a Session,
    /// The generator.
    pub generator: &'a mut Generator,
    /// Is told.
    pub watch: &'a mut Watch<'a>,
}

/// Services that run, for the workloads that share them.
struct Running {
    shared: Shared,
    services: Result<Services, Failure>,
}

/// What workloads have to have in common to share services and data: overlays of one base often do.
#[derive(PartialEq)]
struct Shared {
    folder: Option<std::path::PathBuf>,
    services: Vec<String>,
    prepare: Vec<Command>,
}

impl Shared {
    fn of(planned: &Planned) -> Self {
        let workload = &planned.workload;
        Self {
            folder: workload.folders.first().cloned(),
            services: workload.services.clone(),
            prepare: workload.prepare.clone(),
        }
    }
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
        let (rounds, warm_up) = (results.parts[part].rounds, results.parts[part].warm_up);
        let mut running = self.start_services(results, planned);
        for round in 1..=rounds {
            results.noise.calibrations.push(noise::calibrate(session)?);
            for turn in 0..planned.len() {
                let position = (turn + round as usize - 1) % planned.len();
                let planned = &planned[position];
                let subject = &mut results.parts[part].subjects[position];
                if subject.failure.is_some() || session.interrupted() {
                    continue;
                }
                let shared = Shared::of(planned);
                let Some(running) = running.iter_mut().find(|running| running.shared == shared) else {
                    continue;
                };
                let end = match &mut running.services {
                    Ok(services) => {
                        measure(Trial { planned, services, warm_up, round }, session, self.generator)
                    }
                    Err(failure) => TrialEnd { failure: Some(failure.clone()), ..TrialEnd::default() },
                };
                if session.interrupted() {
                    results.interrupted = true;
                }
                let subject = &mut results.parts[part].subjects[position];
                take(subject, end, round, rounds, session.interrupted());
                results.duration = crate::machine::now() - results.started;
                (self.watch)(results)?;
            }
        }
        if session.interrupted() {
            results.interrupted = true;
        } else {
            results.noise.calibrations.push(noise::calibrate(session)?);
        }
        for running in running {
            if let Ok(services) = running.services {
                for warning in services.stop() {
                    eprintln!("{warning}");
                }
            }
        }
        results.duration = crate::machine::now() - results.started;
        (self.watch)(results)
    }

    fn start_services(&self, results: &mut Results, planned: &[Planned]) -> Vec<Running> {
        let mut running: Vec<Running> = Vec::new();
        for planned in planned {
            let shared = Shared::of(planned);
            let needless = !planned.presence.missing.is_empty() || self.session.interrupted();
            if needless || running.iter().any(|other| other.shared == shared) {
                continue;
            }
            if !shared.services.is_empty() || !shared.prepare.is_empty() {
                eprintln!("preparing {}", planned.workload.name);
            }
            let services = Services::start(self.session, &planned.workload).map_err(|error| {
                eprintln!("{error:#}");
                Failure::new(Stage::Service, format!("{error:#}"))
            });
            if let (Ok(services), Some(part)) = (&services, results.parts.last_mut()) {
                part.services.extend(services.versions.clone());
            }
            running.push(Running { shared, services });
        }
        running
    }
}

/// Takes what a trial found into the subject, and says it.
fn take(subject: &mut Subject, end: TrialEnd, round: u32, rounds: u32, interrupted: bool) {
    if subject.configuration.is_empty() {
        subject.configuration = end.configuration;
    }
    let before = if rounds > 1 { format!("{round}/{rounds}  ") } else { String::new() };
    for measurement in end.measurements.iter().filter(|_| !end.said) {
        eprintln!("{before}{:24} {}", subject.name, in_short(measurement));
    }
    // Half a load is no measurement to be compared, except if it is all there is.
    let whole = |m: &Measurement| !m.load.interrupted;
    let has_other = !subject.measurements.is_empty();
    subject
        .measurements
        .extend(end.measurements.into_iter().filter(|m| whole(m) || (interrupted && !has_other)));
    if let Some(failure) = end.failure.filter(|_| !interrupted) {
        eprintln!("{before}{:24} {}: {}", subject.name, failure.stage.verb(), failure.message);
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
