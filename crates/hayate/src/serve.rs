//! The front of `hayate serve`, as it decides what happens when. The master (`master/`) has started it, with its sockets and its plan.
//!
//! This is the main thread: what supervises, reads `/proc`, answers commands and scrapes. Connections are served by others
//! ([`hayate_front::Threads`]). A reload starts new generations beside the old, and sends requests to them only when all have booted. Nothing
//! here knows HTTP or processes.

mod announce;
mod commands;
mod ending;
mod falling;
mod listeners;
mod program;
mod reload;

use std::{
    os::fd::{BorrowedFd, FromRawFd, OwnedFd},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, anyhow};
use hayate_front::{Front, Threads};
use hayate_panics::caught;
use hayate_pool::{Generation, cgroup::not_started};
use hayate_ring::Hub;
use rustix::{
    io::{FdFlags, fcntl_setfd},
    process::{Resource, Rlimit, getppid, getrlimit, setrlimit},
};
use tokio::{
    runtime::Builder,
    signal::unix::{Signal, SignalKind, signal},
    sync::{mpsc, watch},
};

use self::{
    announce::announce,
    commands::{Commands, refer, refer_orders, while_starting},
    ending::{EndSignals, end},
    falling::Falling,
    listeners::Listeners,
    reload::{Reload, finished, overdue, reopen_log, replace, start, still_booting, switch},
};
use crate::{
    access_logs::AccessLogs,
    fallback, logging,
    master::{self, Beginning, Client as Master, wire::Notice},
    plan::Plan,
    secrets,
    server::{Order, Server},
};

/// How long applications that have booted wait for others at the start, before they are served without them.
const TOGETHER: Duration = Duration::from_secs(10);
/// How long those who have just connected to a front that is replaced may take to say what they want.
const FIRST_WORDS: Duration = Duration::from_secs(1);
/// How long it keeps connections that idle; not longer than drain_timeout.
const IDLE_GRACE: Duration = Duration::from_secs(10);

/// How long the master may take to hear the last words of a front that cannot serve.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// `hayate front`: runs until the end.
pub fn run() -> ExitCode {
    let (wire, beginning) = match begin() {
        Ok(begun) => begun,
        Err(error) => {
            crate::tell(&format!("{error:#}; `hayate front` is started by `hayate serve`, not by hand"));
            return ExitCode::from(2);
        }
    };
    if let Err(error) = logging::init(beginning.plan.log_level, beginning.plan.log_format) {
        logging::print(&crate::complaint(format_args!("cannot start the log's thread: {error}")));
        return ExitCode::FAILURE;
    }
    let outcome = Hub::new(beginning.plan.front_threads).context("eventfd").and_then(|hub| {
        // What may block for a moment (/proc, scrapes, commands) happens on this thread, and connections are served by others.
        let runtime = Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(4)
            .thread_keep_alive(Duration::from_secs(5))
            .build()
            .context("cannot start the event loop")?;
        let outcome = runtime.block_on(serve(wire, beginning, &hub));
        if let Err(error) = &outcome {
            logging::print(&crate::complaint(format_args!("{error:#}")));
        }
        runtime.block_on(logging::finish());
        // A read from a slow disk must not delay the end.
        runtime.shutdown_background();
        Ok(outcome)
    });
    match outcome {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(_)) => ExitCode::FAILURE,
        Err(error) => {
            logging::print(&crate::complaint(format_args!("{error:#}")));
            logging::finish_blocking();
            ExitCode::FAILURE
        }
    }
}

/// Takes the wire over, and becomes a process that its user's others can neither trace nor look into.
fn begin() -> Result<(OwnedFd, Beginning)> {
    // SAFETY: only asked about; an error says that it is not open.
    fcntl_setfd(unsafe { BorrowedFd::borrow_raw(master::WIRE) }, FdFlags::CLOEXEC)
        .context("there is no master")?;
    // SAFETY: it is open; the master has started this process with it, and nobody else here knows of it.
    let wire = unsafe { OwnedFd::from_raw_fd(master::WIRE) };
    crate::privileges::keep_to_itself()?;
    // Its program is known to the kernel by another name.
    rustix::thread::set_name(c"hayate")?;
    let beginning = master::begin(&wire)?;
    // It may have died before the kernel was told to end this process with it.
    if getppid().is_none_or(|parent| parent.as_raw_nonzero().get() as u32 != beginning.master) {
        anyhow::bail!("the master is gone");
    }
    Ok((wire, beginning))
}

async fn serve(wire: OwnedFd, beginning: Beginning, hub: &Arc<Hub>) -> Result<()> {
    let signals = EndSignals::new().context("signals")?;
    let master = Master::new(wire).context("cannot hear the master")?;
    let outcome = serve_for(&master, signals, beginning, hub).await;
    if let Err(error) = &outcome {
        // Who has asked for an upgrade waits for the reason.
        master.failed(&format!("{error:#}"));
        let _ = tokio::time::timeout(LAST_WORDS, master.said()).await;
    }
    outcome
}

async fn serve_for(
    master: &Arc<Master>,
    mut signals: EndSignals,
    mut beginning: Beginning,
    hub: &Arc<Hub>,
) -> Result<()> {
    let mut hang_up = signal(SignalKind::hangup()).context("signals")?;
    let user1 = signal(SignalKind::user_defined1()).context("signals")?;
    raise_open_files();
    let mut first = master.first(&mut beginning);
    let plan = first.plan.clone();
    let bound = first.sockets(&[]);

    let access_logs = if beginning.again && !beginning.successor {
        AccessLogs::open_in_time(&plan)?
    } else {
        let none = AccessLogs::off();
        tokio::select! {
            opened = AccessLogs::open(&plan, &none) => opened?,
            () = signals.recv() => return Ok(()),
        }
    };
    let (orders, mut receiver) = mpsc::unbounded_channel();
    let server = Server::new(
        &plan,
        access_logs.clone(),
        orders,
        beginning.master,
        beginning.secret.clone(),
        beginning.successor || beginning.again,
    )
    .map_err(|error| anyhow!(not_started(&error)))?;
    let mut threads = Threads::start(&server.front, hub)
        .map_err(|error| anyhow!("cannot start the front's threads: {}", not_started(&error)))?;
    tokio::spawn(end_with(threads.died()));
    let threads = Arc::new(threads);
    tokio::spawn(rotate_logs(user1, Arc::clone(&server.front)));
    tokio::spawn(give_signs_of_life(Arc::clone(master), Arc::clone(&server.front), Arc::clone(&threads)));
    let control_path = beginning.control.as_ref().map(|(path, _)| path.clone());
    let mut commands = Commands::default();
    let mut open = Some((beginning.control.take(), beginning.metrics.take()));
    // Until a successor serves, the front that does answers.
    if let Some((control, metrics)) = open.take_if(|_| !beginning.successor) {
        commands.open(&server, control, metrics, beginning.master_user)?;
    }

    let Some(taken) = signals.or(server.take_certificates(&plan)).await else {
        end(&server, None, &[], &mut signals).await;
        return Ok(());
    };
    taken.map_err(anyhow::Error::msg)?;
    let apps = start(&first, hub)?;
    server.install(&plan, access_logs, apps.clone(), Vec::new());
    let mut falling = Falling::default();
    for (app, generation) in plan.with_php().zip(&apps) {
        let boot = fallback::booted(app.clone(), Arc::clone(generation), Arc::clone(hub));
        falling.spawn(generation, boot);
    }
    let mut serving = plan.apps.iter().filter(|app| app.is_static && app.failed.is_none()).count();
    let (mut failed, mut slower) = (Vec::new(), Vec::new());
    // One application does not keep the others down, however long it takes; but a program that takes another's place has to serve all.
    let together = tokio::time::sleep(TOGETHER);
    tokio::pin!(together);
    let mut for_later = Vec::new();
    let is_beside = |generation: &Arc<Generation>| {
        let mut all = plan.with_php().zip(&apps);
        all.any(|(app, other)| app.beside.is_some() && Arc::ptr_eq(other, generation))
    };
    loop {
        tokio::select! {
            biased;
            () = signals.recv() => {
                end(&server, None, &[], &mut signals).await;
                return Ok(());
            }
            Some(order) = receiver.recv() => for_later.extend(while_starting(order, master)),
            outcome = falling.next() => match outcome {
                None => break,
                Some((generation, Ok(replacement))) => {
                    // Scripts beside an application are nothing without it.
                    serving += usize::from(generation.is_some_and(|generation| !is_beside(&generation)));
                    slower.extend(replacement);
                }
                Some((_, Err(why))) => failed.push(why),
            },
            () = &mut together, if serving > 0 && !beginning.successor => {
                tracing::warn!("serving without the applications that still boot: {}", still_booting(&apps));
                break;
            }
        }
    }
    // A server of which nothing serves is none. One that has served before is wanted, whatever it takes; unless another one still serves.
    let goes_on = !beginning.successor && (serving > 0 || plan.development || beginning.again);
    if let Some(why) = failed.first().filter(|_| !goes_on) {
        end(&server, None, &[], &mut signals).await;
        anyhow::bail!("{why}");
    }
    slower.into_iter().for_each(|replacement| replace(&server, replacement));
    for_later.into_iter().for_each(|order| server.order(order));
    tokio::spawn(Arc::clone(&server.front).watch());
    tokio::spawn(async { while caught(logging::floods().say()).await.is_err() {} });
    let mut listeners = Listeners::new(threads);
    bound.into_iter().for_each(|(addr, socket)| listeners.add(addr, socket));
    server.serving();
    if let Some((control, metrics)) = open.take() {
        commands.open(&server, control, metrics, beginning.master_user)?;
    }
    first.adopted();
    drop(apps);
    let (running, apps) = server.running_now();
    announce(&running, &apps, control_path.as_deref());
    secrets::warn_of(running.configured());
    running.warn();
    warn_of_fixed(&running, &plan);
    if running.tls.as_ref().is_some_and(|tls| !tls.http3.is_empty()) {
        tracing::warn!("HTTP/3 is on (http3 in [tls]), which is experimental: see docs/tls.md");
    }
    drop(apps);
    master.notify(Notice::Ready);
    program::forget_start();

    let mut drain_timeout = plan.drain_timeout;
    let mut reload: Option<Reload> = None;
    let (mut replaced, mut alone) = (false, false);
    let (retire, retired) = watch::channel(false);
    loop {
        let due = reload.as_ref().and_then(Reload::due);
        let order = tokio::select! {
            () = signals.recv() => break,
            () = master.replaced() => {
                tracing::info!("another front serves now; this one finishes what it has begun");
                replaced = true;
                break;
            }
            () = master.alone() => {
                alone = true;
                server.is_alone();
                continue;
            }
            () = master.has_quic() => {
                listeners.open_quic();
                continue;
            }
            _ = hang_up.recv() => Order::Reload(None),
            () = overdue(due) => Order::Reload(None),
            Some(order) = receiver.recv() => order,
            Some(outcome) = falling.next() => {
                if let (_, Ok(Some(replacement))) = outcome {
                    replace(&server, replacement);
                }
                continue;
            }
            (_, pairs) = master.certificates() => {
                match signals.or(server.certificates_changed(pairs)).await {
                    Some(()) => continue,
                    None => break,
                }
            }
            outcome = finished(&mut reload) => {
                let (replies, next) = reload.take().map(|done| (done.replies, done.next)).unwrap_or_default();
                let outcome = match outcome {
                    Ok(fresh) => match signals.or(server.take_certificates(&fresh.loaded.plan)).await {
                        Some(taken) => taken.map(|()| fresh),
                        None => break,
                    },
                    Err(why) => Err(why),
                };
                let outcome = outcome.map(|fresh| {
                    drain_timeout = fresh.loaded.plan.drain_timeout;
                    warn_of_fixed(&fresh.loaded.plan, &plan);
                    let fixed = fresh.loaded.plan.fixed_keys_changed(&plan);
                    switch(&server, &mut listeners, fresh);
                    fixed
                });
                match &outcome {
                    Ok(_) => tracing::info!("reloaded"),
                    Err(why) => tracing::error!("the reload was refused, the old generation goes on serving: {why}"),
                }
                if outcome.is_err() {
                    server.watch_again();
                }
                server.reloaded(&outcome);
                let outcome = outcome.map(drop);
                master.notify(Notice::Ready);
                for reply in replies {
                    // Whoever asked may have stopped waiting.
                    let _ = reply.send(outcome.clone());
                }
                if let Some(replies) = next {
                    falling.abort().await;
                    reload = Some(Reload::begin(&server, &listeners, master, hub, (replies, false)));
                }
                continue;
            }
        };
        match order {
            // It comes back as a signal, to this front and to all others.
            Order::Stop => master.stop(),
            // What a reload boots has its chance first.
            Order::FallBack(..) if reload.is_some() => {}
            Order::FallBack(generation, _) if falling.is_under_way(&generation) => {}
            Order::FallBack(generation, unfit) => {
                if let Some(app) = server.app_of(&generation) {
                    let next = if unfit.renew { "" } else { "; trying a slower way that is as safe" };
                    tracing::warn!(app = app.spec.name, "{}{next}", unfit.why);
                    let hub = Arc::clone(hub);
                    let boot = fallback::boot(Arc::clone(&generation), app, unfit, hub);
                    falling.spawn(&generation, async { Ok(boot.await) });
                } else {
                    // It was replaced, and only finishes.
                    generation.not_replaced();
                }
            }
            Order::Upgrade(reply) => {
                let master = Arc::clone(master);
                let mut retired = retired.clone();
                tokio::spawn(async move {
                    let outcome = master.upgrade().await;
                    if outcome.is_ok() {
                        // Who has heard of it asks the new front next, and nobody else may answer.
                        let _ = tokio::time::timeout(FIRST_WORDS, retired.wait_for(|done| *done)).await;
                    }
                    // Whoever asked may have stopped waiting.
                    reply.send(outcome)
                });
            }
            Order::Reload(reply) => {
                falling.abort().await;
                match Reload::give_way(&mut reload, reply).await {
                    Some(wanted) => reload = Some(Reload::begin(&server, &listeners, master, hub, wanted)),
                    None => tracing::info!("a reload comes after the one under way"),
                }
            }
        }
    }
    let waiting = match reload {
        Some(reload) => reload.abort().await,
        None => Vec::new(),
    };
    falling.give_up().await;
    // Of those that a reload was to replace nothing was tried.
    server.stay_unfit();
    // With each signal the next of these holds, and then nothing.
    let mut patience = vec![drain_timeout];
    if replaced {
        waiting.into_iter().for_each(refer);
        tokio::spawn(refer_orders(receiver, Arc::clone(master)));
        commands.close();
        let last_callers = listeners.close_quic();
        let master = Arc::clone(master);
        tokio::spawn(async move {
            last_callers.await;
            master.left_quic();
        });
        // Longer than a moment takes only a thread that hangs.
        let _ = tokio::time::timeout(FIRST_WORDS, listeners.close()).await;
        retire.send_replace(true);
        // A connection that was accepted a moment ago still gets its first answer here, and one that idles its last.
        let leave = async {
            tokio::join!(tokio::time::sleep(FIRST_WORDS), server.front.leave(drain_timeout.min(IDLE_GRACE)))
        };
        // Few requests come any more, and the new front has workers of its own.
        server.stopping().iter().for_each(|generation| generation.dwindle());
        tokio::select! {
            // Where another front serves nothing presses.
            _ = leave => patience.insert(0, server.time_to_finish()),
            () = signals.recv() => {}
        }
    } else {
        // Those who wait for something else hear that it does not come.
        drop((receiver, waiting));
        server.front.will_end();
        master.notify(Notice::Stopping);
    }
    end(&server, Some(listeners), &patience, &mut signals).await;
    if !replaced && !alone {
        // Until the last front has ended there is something to ask, and who has said `hayate stop` waits.
        master.alone().await;
    }
    Ok(())
}

/// Says what of a plan does not hold as long as this server runs, which has begun with another one.
fn warn_of_fixed(plan: &Plan, first: &Plan) {
    for key in plan.fixed_keys_changed(first) {
        tracing::warn!("{key} has changed; that takes effect with a restart only");
    }
}

/// Opens the access log anew with each SIGUSR1, as long as this process lives: what it finishes is written down, too.
async fn rotate_logs(mut user1: Signal, front: Arc<Front>) {
    while user1.recv().await.is_some() {
        reopen_log(Arc::clone(&front)).await;
    }
}

/// One of the front's threads is no more, with all its connections: so is this process, and the master starts another.
async fn end_with(died: impl Future<Output = usize>) {
    let number = died.await;
    tracing::error!("thread {number} of the front has ended; this process ends with it");
    logging::finish().await;
    std::process::exit(70);
}

/// Tells the master that this process lives, as long as all that serve come round.
async fn give_signs_of_life(master: Arc<Master>, front: Arc<Front>, threads: Arc<Threads>) {
    loop {
        master.asked().await;
        threads.come_round().await;
        master.alive(front.connections() == 0);
    }
}

/// Raises the soft limit of open files to the hard one, since each connection is one.
fn raise_open_files() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // Without it there are fewer connections.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
}
