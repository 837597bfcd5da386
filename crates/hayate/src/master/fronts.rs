//! The master's side of fronts: starts them, hears them, replaces them, and starts again one that died.

use std::{io, os::fd::OwnedFd, process::ExitStatus, time::Instant};

use hayate_pool::Files;

use super::{
    GRACE_AT_ONCE, GROWN_UP, LEAVING, Master, Next, PAUSES, STOPPING,
    children::Front,
    load::Purpose,
    notify,
    wire::{self, Notice, ToFront, ToMaster},
};
use crate::{logging, plan::Plan};

impl Master {
    /// Sees which fronts have ended.
    pub(super) fn look_at_fronts(&mut self, now: Instant) {
        if let Some(status) = self.front.as_mut().and_then(Front::ended) {
            // What it said last is there.
            self.hear_fronts();
            self.front_ended(status);
        }
        if let Some(status) = self.next.as_mut().and_then(|next| next.front.ended()) {
            self.hear_fronts();
            // Its last word may have been that it serves.
            if let Some(next) = self.next.take() {
                let why = match next.front.failed {
                    _ if self.is_ending() => STOPPING.to_owned(),
                    Some(why) => why,
                    None => format!("the new front ended ({status}); see the log"),
                };
                self.plans.remove(&next.plan);
                self.close_unwanted();
                self.answer_upgrade(next.request, Some(why));
            }
        }
        let before = self.retired.len();
        self.retired.retain_mut(|(front, by)| {
            if *by <= now {
                tracing::error!(pid = front.pid(), "the front that was replaced does not end; it is killed");
                *by = now + GRACE_AT_ONCE;
                front.kill();
            }
            front.ended().is_none()
        });
        if self.retired.len() < before {
            self.close_unwanted();
        }
    }

    pub(super) fn start_successor(&mut self, plan: Plan, request: u64) {
        let number = match self.take_in(plan) {
            Ok((number, _)) => number,
            Err(why) => return self.answer_upgrade(request, Some(why)),
        };
        self.last_front += 1;
        let started = match self.plans.get(&number) {
            Some(plan) => Front::start(self.last_front, (number, plan), &self.sockets, true, true)
                .map_err(|error| format!("cannot start the front: {error:#}")),
            None => Err("it was forgotten".to_owned()),
        };
        match started {
            Ok(front) => self.next = Some(Next { front, plan: number, request }),
            Err(why) => {
                // Nobody is going to serve it, nor to accept at addresses that it alone has.
                self.plans.remove(&number);
                self.close_unwanted();
                self.answer_upgrade(request, Some(why));
            }
        }
    }

    /// The new front serves: the old one finishes and ends.
    pub(super) fn replace_front(&mut self) {
        let Some(next) = self.next.take() else { return };
        self.adopted = next.plan;
        self.watch_keys();
        self.warn_of_new_users();
        // The one before may just have died.
        self.restart_at = None;
        self.answer_upgrade(next.request, None);
        if let Some(mut old) = self.front.replace(next.front) {
            old.say(ToFront::Replaced, Vec::new());
            // It lets go of connections that idle first, and cuts off by itself what is left at the end.
            let by = Instant::now().checked_add(self.time_to_finish().saturating_add(LEAVING));
            self.retired.push((old, by.unwrap_or_else(Instant::now)));
        }
        self.close_unwanted();
    }

    pub(super) fn start_front(&mut self) {
        let Some(plan) = self.plans.get(&self.adopted) else { return };
        self.last_front += 1;
        match Front::start(self.last_front, (self.adopted, plan), &self.sockets, self.served, false) {
            Ok(front) => self.front = Some(front),
            Err(error) => {
                logging::print(&crate::complaint(format_args!("cannot start the front: {error:#}")));
                self.again_or_over(1);
            }
        }
    }

    pub(super) fn front_ended(&mut self, status: ExitStatus) {
        let Some(front) = self.front.take() else { return };
        // Nobody is left who wants what it had asked for.
        if let Some(loading) = self.loading.take() {
            let purpose = loading.purpose;
            loading.give_up();
            if let Purpose::Upgrade(request) | Purpose::Successor(request) = purpose {
                self.answer_upgrade(request, Some("the front that served has ended; try again".into()));
            }
        }
        let next = self.next.as_ref().map(|next| next.plan);
        self.plans.retain(|number, _| *number <= self.adopted || Some(*number) == next);
        self.close_unwanted();
        let code = status.code().and_then(|code| u8::try_from(code).ok());
        if self.end_by.is_some() {
            self.over = Some(code.unwrap_or(1));
            return;
        }
        if self.served || code.is_none() {
            tracing::error!(
                pid = front.pid(),
                "the front ended ({status}), and with it the requests that it was handling"
            );
        }
        if front.started.elapsed() >= GROWN_UP {
            self.pause = PAUSES.0;
        }
        self.again_or_over(code.unwrap_or(1));
    }

    /// A front is started again, unless none has served: then that is the server's end.
    pub(super) fn again_or_over(&mut self, code: u8) {
        if !self.served || self.end_by.is_some() {
            self.over = Some(code);
            return;
        }
        tracing::warn!("the front is started again in {:?}; connections wait", self.pause);
        self.restart_at = Some(Instant::now() + self.pause);
        self.pause = (self.pause * 2).min(PAUSES.1);
    }

    pub(super) fn hear_fronts(&mut self) {
        let numbers: Vec<u64> = self.fronts().map(|front| front.number).collect();
        for number in numbers {
            // What a front says faster than this can wait for the next turn.
            for _ in 0..1000 {
                let Some(front) = self.front_of(number).filter(|front| !front.closed) else { break };
                match wire::receive::<ToMaster>(&front.wire) {
                    Ok(Some((message, files))) => self.hear(number, message, files),
                    Ok(None) => front.closed = true,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    // It has ended before it heard all that it was told.
                    Err(error) if error.kind() == io::ErrorKind::ConnectionReset => front.closed = true,
                    Err(error) => tracing::error!("the front says what makes no sense: {error}"),
                }
            }
        }
    }

    pub(super) fn hear(&mut self, number: u64, message: ToMaster, files: Vec<OwnedFd>) {
        let is_next = self.next.as_ref().is_some_and(|next| next.front.number == number);
        match message {
            ToMaster::Load { request } if self.is_current(number) => {
                if self.upgrade_is_under_way() {
                    // Its front has read the configuration, and would undo the reload.
                    self.refuse(request, "an upgrade is under way; reload once it is done");
                } else {
                    self.load(Purpose::Reload(request));
                }
            }
            ToMaster::Upgrade { request } if self.is_current(number) => {
                if self.upgrade_is_under_way() {
                    self.answer_upgrade(request, Some("another upgrade is under way".into()));
                } else {
                    self.load(Purpose::Upgrade(request));
                }
            }
            // A front that was replaced has nothing to decide any more.
            ToMaster::Load { .. } | ToMaster::Upgrade { .. } => {}
            ToMaster::Failed { why } => {
                if let Some(front) = self.front_of(number) {
                    front.failed = Some(why);
                }
            }
            ToMaster::Adopted { plan } if self.is_current(number) && self.plans.contains_key(&plan) => {
                if std::mem::replace(&mut self.adopted, plan) != plan {
                    self.warn_of_new_users();
                }
                self.watch_keys();
                self.close_unwanted();
            }
            ToMaster::Abandoned { plan } if self.is_current(number) && plan != self.adopted => {
                self.plans.remove(&plan);
                self.close_unwanted();
            }
            ToMaster::Adopted { plan } if self.is_current(number) => {
                tracing::error!(
                    plan,
                    "the front serves a configuration that the master does not know (any more); reload"
                );
            }
            ToMaster::Adopted { .. } | ToMaster::Abandoned { .. } => {}
            ToMaster::Launch { zygote, plan, app, start } => {
                let files = Files::from_list(files);
                let app = self.plans.get(&plan).and_then(|plan| plan.apps.get(app));
                let launched = match (app, files) {
                    (Some(app), Some(files)) => self
                        .zygotes
                        .start(number, zygote, app, start, files)
                        .map_err(|error| error.to_string()),
                    (None, _) => Err("the master has forgotten this configuration; reload".to_owned()),
                    (_, None) => Err("the front sent too few descriptors".to_owned()),
                };
                let answer = match launched {
                    Ok(pid) => ToFront::Started { zygote, pid },
                    Err(why) => ToFront::NotStarted { zygote, why: wire::reason(why) },
                };
                if let Some(front) = self.front_of(number) {
                    front.say(answer, Vec::new());
                }
            }
            ToMaster::Kill { zygote } => self.zygotes.kill(number, zygote),
            ToMaster::KillWorker { zygote } => {
                if let Some(worker) = files.first() {
                    self.zygotes.kill_worker(number, zygote, worker);
                }
            }
            alive @ (ToMaster::Alive | ToMaster::Alone) => {
                if let Some(front) = self.front_of(number) {
                    front.pulse.heard(Instant::now(), matches!(alive, ToMaster::Alone));
                }
            }
            ToMaster::LeftQuic => {
                let retired = self.retired.iter_mut().map(|(front, _)| front);
                retired.filter(|front| front.number == number).for_each(|front| front.left_quic = true);
                self.close_unwanted();
            }
            ToMaster::Notify(Notice::Ready) if is_next => {
                self.replace_front();
                self.front.iter_mut().for_each(Front::is_ready);
                // The one before may have begun a reload, of which nothing comes any more.
                notify::tell(Notice::Ready);
            }
            ToMaster::Notify(notice) if self.is_current(number) => {
                match notice {
                    Notice::Ready => {
                        self.served = true;
                        self.front.iter_mut().for_each(Front::is_ready);
                    }
                    Notice::Reloading => {}
                    // A signal of somebody's own has reached it, and it ends by itself.
                    Notice::Stopping => self.begin_end(Some(number)),
                }
                notify::tell(notice);
            }
            // Also of one whose place another has just taken.
            ToMaster::Stop => self.begin_end(None),
            ToMaster::Notify(_) => {}
        }
    }
}
