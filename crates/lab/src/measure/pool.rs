//! The services that run, each for all workloads that can share it: from one part of an experiment to the next, as long as
//! that needs them.

use std::path::PathBuf;

use super::Planned;
use crate::{
    data::Command,
    engine::{Failure, Services, Stage},
    output::status,
    session::Session,
};

/// See the module.
#[derive(Default)]
pub struct Pool(Vec<Running>);

struct Running {
    shared: Shared,
    services: Result<Services, Failure>,
}

/// What workloads have to have in common to share services and data: overlays of one base often do.
#[derive(PartialEq)]
struct Shared {
    folder: Option<PathBuf>,
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

impl Pool {
    /// Starts what these subjects need and does not run yet; stops what none of them needs.
    pub fn prepare(&mut self, session: &Session, planned: &[Planned]) {
        let needed = |running: &mut Running| {
            let alive = running.services.as_mut().is_ok_and(|services| services.died().is_none());
            alive && planned.iter().any(|planned| Shared::of(planned) == running.shared)
        };
        let (kept, others) = std::mem::take(&mut self.0)
            .into_iter()
            .map(|mut running| (needed(&mut running), running))
            .partition::<Vec<_>, _>(|(needed, _)| *needed);
        self.0 = kept.into_iter().map(|(_, running)| running).collect();
        Self(others.into_iter().map(|(_, running)| running).collect()).stop();
        for planned in planned {
            let shared = Shared::of(planned);
            let needless = !planned.presence.missing.is_empty() || session.interrupted();
            if needless || self.0.iter().any(|other| other.shared == shared) {
                continue;
            }
            if !shared.services.is_empty() || !shared.prepare.is_empty() {
                status::say(&format!("preparing {}", planned.workload.name));
            }
            let services = Services::start(session, &planned.workload).map_err(|error| {
                status::say(&format!("{error:#}"));
                Failure::new(Stage::Service, format!("{error:#}"))
            });
            self.0.push(Running { shared, services });
        }
    }

    /// The services of a subject; none if nothing was prepared for it.
    pub fn of(&mut self, planned: &Planned) -> Option<&mut Result<Services, Failure>> {
        let shared = Shared::of(planned);
        self.0.iter_mut().find(|running| running.shared == shared).map(|running| &mut running.services)
    }

    /// Name and version of all that run.
    pub fn versions(&self) -> impl Iterator<Item = (String, String)> {
        self.0.iter().filter_map(|running| running.services.as_ref().ok()).flat_map(|s| s.versions.clone())
    }

    /// Ends them in order.
    pub fn stop(self) {
        for services in self.0.into_iter().filter_map(|running| running.services.ok()) {
            for warning in services.stop() {
                status::say(&warning);
            }
        }
    }
}
