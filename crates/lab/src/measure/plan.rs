//! What is to be measured, with everything looked up: engines, workloads, versions.

use anyhow::{Result, bail};

use crate::{
    data::{Change, Engine, Ladder, Load, Workload, suggestions},
    engine::{Failure, Presence, Stage, look_for},
    result::Subject,
    session::Session,
};

/// A subject before it is measured.
#[derive(Clone, Debug)]
pub struct Planned {
    /// Unique in its part.
    pub name: String,
    /// As reports show it.
    pub title: String,
    /// The engine.
    pub engine: Engine,
    /// Whether it is there.
    pub presence: Presence,
    /// The workload.
    pub workload: Workload,
    /// What differs.
    pub change: Change,
    /// How much is asked for.
    pub load: Load,
    /// For a ladder: the position of the subject it stands on.
    pub above: Option<usize>,
    /// What others measured.
    pub reference: Option<f64>,
}

/// Looks things up.
pub struct Planner<'a> {
    session: &'a Session,
}

impl<'a> Planner<'a> {
    /// For this session.
    pub fn new(session: &'a Session) -> Self {
        Self { session }
    }

    /// Engines on one workload under one load. Without names: all that are ready and can serve it; those with TLS
    /// only if the load is over TLS, since the others are the same without.
    ///
    /// # Errors
    /// A name is unknown, or an engine cannot serve the workload.
    pub fn engines(&self, names: &[String], workload: &Workload, load: &Load) -> Result<Vec<Planned>> {
        let lab = &self.session.lab;
        let all = names.is_empty();
        let names = if all { lab.engine_names()? } else { names.to_vec() };
        let mut planned: Vec<Planned> = Vec::new();
        for name in &names {
            let engine = lab.engine(name)?;
            if all && engine.speaks_tls() != load.protocol.over.is_some() {
                continue;
            }
            if !workload.entries.contains_key(&engine.entry) {
                if all {
                    continue;
                }
                let able = self.able(workload)?.join(", ");
                bail!(
                    "engine '{name}' cannot serve workload '{}', which has no entry '{}'; able are {able}",
                    workload.name,
                    engine.entry
                );
            }
            let presence = look_for(self.session, &engine)?;
            if all && !presence.missing.is_empty() || planned.iter().any(|other| other.name == *name) {
                continue;
            }
            planned.push(Planned {
                name: name.clone(),
                title: engine.title.clone(),
                engine,
                presence,
                workload: workload.clone(),
                change: Change::default(),
                load: load.clone(),
                above: None,
                reference: None,
            });
        }
        if planned.is_empty() {
            bail!(
                "no engine that can serve workload '{}' is ready; `hayate-lab engines` says what is missing",
                workload.name
            );
        }
        Ok(planned)
    }

    /// The steps of a ladder. `only`: part of the steps, by title; those they stand on come along.
    ///
    /// # Errors
    /// A name is unknown.
    pub fn ladder(
        &self,
        ladder: &Ladder,
        only: &[String],
        load: impl Fn(&Load) -> Result<Load>,
    ) -> Result<Vec<Planned>> {
        let lab = &self.session.lab;
        let titles: Vec<String> = ladder.steps.iter().map(|step| step.title.clone()).collect();
        let mut wanted = vec![only.is_empty(); titles.len()];
        for name in only {
            let Some(mut position) = titles.iter().position(|title| title == name) else {
                bail!("ladder '{}' has no step '{name}'{}", ladder.name, suggestions(name, &titles));
            };
            wanted[position] = true;
            while let Some(above) = ladder.steps[position].above {
                wanted[above] = true;
                position = above;
            }
        }
        // Positions among the steps that are wanted.
        let mut places = vec![0; titles.len()];
        let mut planned = Vec::new();
        for (position, step) in ladder.steps.iter().enumerate().filter(|(position, _)| wanted[*position]) {
            places[position] = planned.len();
            let engine = lab.engine(&step.engine)?;
            let workload = lab.workload(&step.workload)?;
            let base = step.load.as_ref().unwrap_or_else(|| workload.load());
            planned.push(Planned {
                name: step.title.clone(),
                title: step.title.clone(),
                presence: look_for(self.session, &engine)?,
                engine,
                load: load(base)?,
                workload,
                change: step.change.clone(),
                above: step.above.map(|above| places[above]),
                reference: step.reference,
            });
        }
        Ok(planned)
    }

    fn able(&self, workload: &Workload) -> Result<Vec<String>> {
        let lab = &self.session.lab;
        let mut able = Vec::new();
        for name in lab.engine_names()? {
            if workload.entries.contains_key(&lab.engine(&name)?.entry) {
                able.push(name);
            }
        }
        Ok(able)
    }
}

impl Planned {
    /// The subject, not yet measured; already failed if the engine is missing.
    pub fn subject(&self, session: &Session) -> Subject {
        let missing = &self.presence.missing;
        let failure = (!missing.is_empty()).then(|| {
            let message = format!("{}; {}", missing.join(", "), self.engine.install);
            Failure::new(Stage::Missing, message)
        });
        Subject {
            name: self.name.clone(),
            title: self.title.clone(),
            engine: self.engine.name.clone(),
            about: self.engine.about.clone(),
            version: self.presence.version.clone(),
            workload: self.workload.name.clone(),
            workload_title: self.workload.title.clone(),
            workers: self.engine.workers.unwrap_or(session.workers),
            change: self.change.clone(),
            load: self.load.clone(),
            yardstick: self.engine.runs_nothing(),
            above: self.above,
            reference: self.reference,
            configuration: std::collections::BTreeMap::new(),
            failure,
            measurements: Vec::new(),
            saturation: None,
        }
    }
}
