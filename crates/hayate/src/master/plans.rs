//! What the master is to serve: has configurations read, takes in what comes of that, and tells who asked.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
    path::PathBuf,
    time::Instant,
};

use anyhow::{Context, Result};
use hayate_pool::{cgroup::not_started, with_remedy};

use super::{
    Master, PLANS, PROGRAM, STOPPING,
    children::Front,
    handover::{self, State},
    load::{self, Loading, Purpose},
    sockets::Sockets,
    warn_of_users,
    wire::{self, ToFront},
};
use crate::{complaint, logging, plan::Plan};

impl Master {
    pub(super) fn look_at_loading(&mut self) -> Result<()> {
        let Some(status) = self.loading.as_mut().and_then(Loading::ended) else {
            if let Some(late) = self.loading.take_if(|loading| loading.due() <= Instant::now()) {
                let purpose = late.purpose;
                let why = late.give_up_late();
                if purpose == Purpose::Start {
                    // Not 2: the configuration may be right, and what hangs may come back.
                    self.over = Some(1);
                    logging::print(&complaint(&why));
                }
                self.refuse_for(purpose, why);
            }
            return Ok(());
        };
        let Some(loading) = self.loading.take() else { return Ok(()) };
        let purpose = loading.purpose;
        match (loading.outcome(status), purpose) {
            (Ok(plan), Purpose::Start) => self.begin(plan)?,
            (Err(why), Purpose::Start) => {
                self.over = Some(2);
                logging::print(&complaint(&why));
            }
            (Ok(plan), Purpose::Reload(request)) => match self.take_in(plan) {
                Ok((number, files)) => {
                    if let Some(front) = &mut self.front {
                        front.say(ToFront::Plan { request, plan: number }, files);
                    }
                }
                Err(why) => self.refuse(request, why),
            },
            (Err(why), Purpose::Reload(request)) => self.refuse(request, why),
            (Ok(_), Purpose::Upgrade(request)) => self.become_installed(request),
            (Ok(plan), Purpose::Successor(request)) => self.start_successor(plan, request),
            (Err(why), Purpose::Upgrade(request) | Purpose::Successor(request)) => {
                self.answer_upgrade(request, Some(why));
            }
        }
        Ok(())
    }

    /// The installed program can read the configuration: it takes over, in this process.
    pub(super) fn become_installed(&mut self, request: u64) {
        let (Some(front), Some(plan)) = (&self.front, self.plans.get(&self.adopted)) else { return };
        if self.fronts().any(|front| !front.outgoing.is_empty()) {
            // What waits for them would be lost.
            return self.answer_upgrade(request, Some("a front does not listen to the master".into()));
        }
        let state = self.state(front, plan, request);
        let error = handover::become_program(&self.program, &self.name, &self.args, &state);
        self.answer_upgrade(request, Some(format!("cannot run {}: {error}", self.program.display())));
    }

    /// What a program that takes over from this one is left.
    fn state(&self, front: &Front, plan: &Plan, request: u64) -> State {
        let now = Instant::now();
        let handed = |front: &Front| (front.number, front.pid(), front.wire.as_raw_fd());
        let retired = self.retired.iter();
        let others = self.plans.iter().filter(|(number, _)| **number != self.adopted);
        State {
            sockets: self.sockets.numbers(),
            plan: plan.clone(),
            others: others.map(|(number, plan)| (*number, plan.clone())).collect(),
            reload_waits: self.reload_waits,
            adopted: self.adopted,
            last_plan: self.last_plan,
            front: handed(front),
            retired: retired.map(|(front, by)| (handed(front), by.saturating_duration_since(now))).collect(),
            zygotes: self.zygotes.list(),
            request,
        }
    }

    pub(super) fn answer_upgrade(&mut self, request: u64, refused: Option<String>) {
        match &refused {
            None => tracing::info!("upgraded: a new front serves"),
            Some(why) if self.is_ending() => tracing::info!("the upgrade comes to nothing: {why}"),
            Some(why) => tracing::error!("the upgrade was refused, what served goes on serving: {why}"),
        }
        if let Some(front) = &mut self.front {
            front.say(ToFront::Upgraded { request, refused: refused.map(wire::reason) }, Vec::new());
        }
    }

    /// The first plan: everything that can be wrong from outside ends the server here.
    pub(super) fn begin(&mut self, plan: Plan) -> Result<()> {
        logging::init(plan.log_level, plan.log_format).context("cannot start the log's thread")?;
        for identity in plan.front.iter().chain(plan.apps.iter().filter_map(|app| app.identity.as_ref())) {
            identity.check()?;
        }
        warn_of_users(&plan);
        for app in &plan.apps {
            if let Some(why) = &app.failed {
                let app = &app.spec.name;
                tracing::error!(
                    app,
                    "it is not served, all its requests get 503: {why}; then `hayate reload`"
                );
            }
        }
        self.sockets = Sockets::open(&plan, std::mem::take(&mut self.handed_in))?;
        self.front_user.clone_from(&plan.front);
        self.last_plan += 1;
        self.adopted = self.last_plan;
        self.plans.insert(self.last_plan, plan);
        self.watch_keys();
        self.start_front();
        Ok(())
    }

    /// Has the configuration read, in place of what is being read.
    pub(super) fn load(&mut self, purpose: Purpose) {
        if self.is_ending() {
            return self.refuse_for(purpose, STOPPING);
        }
        if let Some(before) = self.loading.take() {
            let other = before.purpose;
            before.give_up();
            self.refuse_for(other, "another request took its place");
        }
        let program = match purpose {
            Purpose::Upgrade(_) => self.program.clone(),
            _ => PathBuf::from(PROGRAM),
        };
        let state = match (purpose, &self.front, self.plans.get(&self.adopted)) {
            (Purpose::Upgrade(request), Some(front), Some(plan)) => {
                handover::written(&self.state(front, plan, request)).map(Some)
            }
            _ => Ok(None),
        };
        let started = state
            .and_then(|state| Loading::start(&program, &self.args, purpose, self.front_user.as_ref(), state));
        match started {
            Ok(loading) => self.loading = Some(loading),
            Err(error) => {
                self.refuse_for(purpose, format!("cannot run {}: {}", program.display(), not_started(&error)))
            }
        }
    }

    pub(super) fn refuse_for(&mut self, purpose: Purpose, why: impl Into<String>) {
        match purpose {
            Purpose::Start => {}
            Purpose::Reload(request) => self.refuse(request, why),
            Purpose::Upgrade(request) | Purpose::Successor(request) => {
                self.answer_upgrade(request, Some(why.into()));
            }
        }
    }

    /// Makes ready for a plan: its number, and the files for a front, the plan's own first.
    pub(super) fn take_in(&mut self, mut plan: Plan) -> Result<(u64, Vec<OwnedFd>), String> {
        let identities = plan.front.iter().chain(plan.apps.iter().filter_map(|app| app.identity.as_ref()));
        for identity in identities {
            identity.check().map_err(|error| format!("{error:#}"))?;
        }
        plan.keep_front(self.front_user.as_ref());
        self.sockets.bind(&plan.listen).map_err(|error| error.to_string())?;
        let gather = || Ok::<_, io::Error>((load::sealed(&plan)?, self.sockets.of(&plan.listen)?));
        let gathered = gather();
        if gathered.is_err() {
            // Addresses that it alone has.
            self.close_unwanted();
        }
        let (file, sockets) = gathered.map_err(|error| with_remedy(&error))?;
        self.last_plan += 1;
        let number = self.last_plan;
        self.plans.insert(number, plan);
        while self.plans.len() > PLANS {
            let Some(oldest) = self.plans.keys().find(|number| **number != self.adopted).copied() else {
                break;
            };
            self.plans.remove(&oldest);
        }
        Ok((number, std::iter::once(file).chain(sockets).collect()))
    }

    pub(super) fn refuse(&mut self, request: u64, why: impl Into<String>) {
        if let Some(front) = &mut self.front {
            front.say(ToFront::Refused { request, why: wire::reason(why) }, Vec::new());
        }
    }

    /// Closes the sockets that are neither served nor about to be. Those of HTTP/3 that a front which was replaced still reads stay: they could not be
    /// made anew, were they wanted again.
    pub(super) fn close_unwanted(&mut self) {
        let plans = self.plans.range(self.adopted..);
        let wanted: Vec<_> = plans.flat_map(|(_, plan)| plan.listen.iter().cloned()).collect();
        let held = self.retired.iter().any(|(front, _)| !front.left_quic);
        self.sockets.keep(&wanted, held);
    }
}
