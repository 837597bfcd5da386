//! One measurement: an engine is started, checked, warmed up, loaded, looked at again, stopped.
//!
//! Promises: no load before the answer was right; what goes wrong ends in a [`Failure`], never in a figure.

use std::collections::BTreeMap;

use super::{
    generator::{Generator, Target},
    monitor::{Monitor, Watched},
    plan::Planned,
};
use crate::{
    data::Load,
    engine::{Failure, Instance, Purpose, Services, Stage},
    instructions::Instructions,
    result::Measurement,
    session::Session,
};

/// What is to be measured.
pub struct Trial<'a> {
    /// The engine with its workload and settings.
    pub planned: &'a Planned,
    /// The workload's services.
    pub services: &'a mut Services,
    /// Seconds of warm-up; 0: none.
    pub warm_up: f64,
    /// From 1.
    pub round: u32,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct TrialEnd {
    /// The engine's files and commands, if it came so far.
    pub configuration: BTreeMap<String, String>,
    /// The measurements that were made.
    pub measurements: Vec<Measurement>,
    /// Why there are no more.
    pub failure: Option<Failure>,
    /// The user has seen the measurements already.
    pub said: bool,
}

/// An engine that is ready to be loaded.
pub struct Ready<'a> {
    trial: Trial<'a>,
    session: &'a Session,
    generator: &'a mut Generator,
    instance: Instance,
}

impl Trial<'_> {
    /// Measures with one load.
    pub fn run(self, session: &Session, generator: &mut Generator) -> TrialEnd {
        let load = self.planned.load.clone();
        self.with(session, generator, |ready, measurements| {
            measurements.push(ready.measure(&load)?);
            Ok(())
        })
    }

    /// Starts the engine, lets `measure` do what it likes with it, and stops it.
    pub fn with(
        self,
        session: &Session,
        generator: &mut Generator,
        measure: impl FnOnce(&mut Ready<'_>, &mut Vec<Measurement>) -> Result<(), Failure>,
    ) -> TrialEnd {
        let mut end = TrialEnd::default();
        let planned = self.planned;
        if let Err(error) = generator.renew(session) {
            let failure = Some(Failure::new(Stage::Load, format!("{error:#}")));
            return TrialEnd { failure, ..end };
        }
        let purpose = Purpose {
            workload: Some(&planned.workload),
            change: &planned.change,
            services: Some(self.services),
            cpus: &session.cores.server,
        };
        let instance = match Instance::start(session, &planned.engine, &purpose) {
            Ok(instance) => instance,
            Err(failure) => return TrialEnd { failure: Some(failure), ..end },
        };
        end.configuration.clone_from(&instance.configuration);
        let mut ready = Ready { trial: self, session, generator, instance };
        let done = ready.prepare().and_then(|()| measure(&mut ready, &mut end.measurements));
        end.failure = done.err();
        let warnings = ready.instance.stop();
        if let Some(last) = end.measurements.last_mut() {
            last.warnings.extend(warnings);
        }
        end
    }
}

impl Ready<'_> {
    /// The workload's checks, then the warm-up, then the checks again: what a warm-up breaks is broken.
    fn prepare(&mut self) -> Result<(), Failure> {
        self.check()?;
        if self.trial.warm_up > 0.0 {
            let connections = self.trial.planned.load.warm_up_connections();
            let load = Load {
                timeout: self.trial.planned.load.timeout,
                protocol: self.trial.planned.load.protocol.clone(),
                ..Load::closed(connections, self.trial.warm_up)
            };
            self.load(&load)?;
            self.check()?;
        }
        Ok(())
    }

    fn check(&mut self) -> Result<(), Failure> {
        let planned = self.trial.planned;
        self.instance.check(&planned.workload, planned.change.path.as_deref())
    }

    fn load(&mut self, load: &Load) -> Result<hayate_load::Report, Failure> {
        let planned = self.trial.planned;
        let url = match load.protocol.over {
            None => self.instance.url.clone(),
            Some(_) => self.instance.tls_url.clone().ok_or_else(|| {
                let name = &planned.engine.name;
                Failure::new(Stage::Load, format!("{name} has no port named 'https': take {name}-tls"))
            })?,
        };
        let target = Target { url: &url, workload: &planned.workload, change: &planned.change };
        let (instance, services, session) = (&mut self.instance, &mut *self.trial.services, self.session);
        let mut died = None;
        let report = self.generator.run(session, &target, load, &mut || {
            died = instance.died().or_else(|| services.died());
            died.is_some() || session.interrupted()
        });
        // It may have died at the very end.
        died = died.or_else(|| self.instance.died()).or_else(|| self.trial.services.died());
        if let Some(how) = died {
            return Err(Failure { stage: Stage::Died, message: how, log: self.instance.log() });
        }
        report.map_err(|error| Failure::new(Stage::Load, format!("{error:#}")))
    }

    /// What the engine has executed since its start, if that is counted.
    fn instructions(&mut self) -> Result<Option<Instructions>, Failure> {
        self.instance.instructions().map_err(|error| Failure::new(Stage::Load, format!("{error:#}")))
    }

    /// Whether the user wants an end.
    pub fn interrupted(&self) -> bool {
        self.session.interrupted()
    }

    /// Runs a load and watches.
    ///
    /// # Errors
    /// A process of the engine or of a service died, or the generator failed.
    pub fn measure(&mut self, load: &Load) -> Result<Measurement, Failure> {
        let monitor = Monitor::start(
            self.instance.guard.pid,
            self.trial.services.guards(),
            self.generator.guard.pid,
            load.duration(),
        );
        let before = self.instructions()?;
        let report = self.load(load);
        let instructions = self.instructions()?.zip(before).map(|(after, before)| after.since(before));
        let watched = monitor.stop().map_err(|error| Failure::new(Stage::Load, error));
        let (report, watched) = (report?, watched?);
        self.instance.prove(self.session)?;
        let mut warnings = Vec::new();
        if let Err(failure) = self.check() {
            warnings.push(format!("after the load it {}: {}", failure.stage.verb(), failure.message));
        }
        let servers = &self.session.cores.server;
        let foreign = foreign(&watched, servers, &self.session.cores);
        let Watched { server, services, cores, mut samples, .. } = watched;
        for sample in &mut samples {
            sample.at -= report.started;
        }
        samples.retain(|sample| sample.at > 0.0 && sample.at < report.duration + 1.0);
        Ok(Measurement {
            round: self.trial.round,
            start_up: self.instance.start_up,
            load: report,
            server,
            instructions,
            services,
            cores,
            foreign,
            samples,
            warnings,
        })
    }
}

/// See [`Measurement::foreign`]; 0 where generator and servers share processors and it cannot be told.
fn foreign(watched: &Watched, servers: &[usize], cores: &crate::machine::Cores) -> f64 {
    if cores.overlap() {
        return 0.0;
    }
    let busy: f64 =
        watched.cores.iter().filter(|core| servers.contains(&core.cpu)).map(|core| core.busy).sum();
    let own = |usage: &crate::result::Usage| (usage.cpu_user + usage.cpu_system) / watched.duration;
    let mut known = own(&watched.server);
    if cores.services.iter().any(|cpu| servers.contains(cpu)) {
        known += watched.services.values().map(own).sum::<f64>();
    }
    ((busy - known) / servers.len() as f64).max(0.0)
}
