//! Starting zygotes: what they are started with, who does it, and what is heard of them.
//!
//! The pool says what it wants through [`Launcher`]. In `hayate serve` the master does it, which alone may choose a user; [`Directly`] is
//! for those who run PHP as themselves. Launching never waits: what becomes of it is told later.

use std::{
    io,
    os::{
        fd::{BorrowedFd, OwnedFd},
        unix::process::CommandExt,
    },
    process::{Child, ExitStatus, Stdio},
    sync::Arc,
};

use command_fds::{CommandFdExt, FdMapping};
use hayate_ring::layout::*;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::mpsc,
};

use crate::{cgroup, spec::Spec};

/// In which way an application runs: as configured, or in one that is slower and as safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Way {
    /// As configured.
    #[default]
    Configured,
    /// As configured, but that a recognised project's requests load the classes that they need: none is there before them.
    ClassesLater,
    /// In worker mode, each request in a fork of the booted process, and with all classes left to requests.
    Fork,
    /// In classic mode.
    Classic,
}

/// How a zygote is to boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Start {
    /// The way.
    pub way: Way,
    /// Each worker boots by itself.
    pub private: bool,
    /// No warm-up requests are made.
    pub cold: bool,
}

/// The descriptors that a zygote works with.
pub struct Files {
    /// Its end of the control channel.
    pub control: OwnedFd,
    /// The ring's memory.
    pub memory: OwnedFd,
    /// Names of classes, from boot to boot.
    pub classes: OwnedFd,
    /// Where it writes what is to be logged.
    pub output: OwnedFd,
    /// An eventfd for each thread of the front, in order.
    pub events: Vec<OwnedFd>,
}

impl Files {
    /// In the order of [`Files::from_list`].
    pub fn into_list(self) -> Vec<OwnedFd> {
        [self.control, self.memory, self.classes, self.output].into_iter().chain(self.events).collect()
    }

    /// From [`Files::into_list`]. `None`: there are too few.
    pub fn from_list(files: Vec<OwnedFd>) -> Option<Files> {
        let mut files = files.into_iter();
        let (control, memory) = (files.next()?, files.next()?);
        let (classes, output) = (files.next()?, files.next()?);
        Some(Files { control, memory, classes, output, events: files.collect() })
    }
}

/// What happens to a zygote's process.
#[derive(Debug)]
pub enum ProcessEvent {
    /// It runs.
    Started {
        /// Its number.
        pid: i32,
    },
    /// It could not be started; the last event.
    Failed(String),
    /// It is dead and reaped; the last event.
    Ended(ExitStatus),
}

/// Power over a zygote's process and its workers.
pub trait Hold: Send + Sync {
    /// Kills the zygote, and by PR_SET_PDEATHSIG its workers.
    fn kill(&self);
    /// Kills one of its workers, of which this is the pidfd.
    fn kill_worker(&self, worker: BorrowedFd<'_>);
}

/// A zygote's process that runs or is about to. Dropping it kills the process.
pub struct Launched {
    events: mpsc::UnboundedReceiver<ProcessEvent>,
    hold: Arc<dyn Hold>,
}

impl Launched {
    /// `events` ends with one of the last events; if it ends without, the process counts as dead.
    pub fn new(events: mpsc::UnboundedReceiver<ProcessEvent>, hold: Arc<dyn Hold>) -> Launched {
        Launched { events, hold }
    }

    /// The next event. Cancel-safe.
    pub(crate) async fn event(&mut self) -> ProcessEvent {
        self.events.recv().await.unwrap_or(ProcessEvent::Ended(ExitStatus::default()))
    }

    pub(crate) fn kill(&self) {
        self.hold.kill();
    }

    pub(crate) fn hold(&self) -> Arc<dyn Hold> {
        Arc::clone(&self.hold)
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        self.hold.kill();
    }
}

/// Who starts the zygotes of one application.
pub trait Launcher: Send + Sync {
    /// Starts one. An error means that nobody could be asked.
    fn launch(&self, spec: &Spec, start: Start, files: Files) -> io::Result<Launched>;
}

/// Starts a zygote as a child of this process. `prepare` is called in the child before it becomes the host, and must keep to what is
/// allowed between fork and exec. Must run on the process' main thread: the kernel ends the host when the thread that started it ends
/// (PR_SET_PDEATHSIG).
pub fn spawn(
    spec: &Spec,
    start: Start,
    files: Files,
    prepare: impl FnMut() -> io::Result<()> + Send + Sync + 'static,
) -> io::Result<Child> {
    let (mut command, options) = spec.command(start)?;
    let mut mappings = vec![options];
    let numbers =
        [(files.control, HY_FD_CONTROL), (files.memory, HY_FD_MEMORY), (files.classes, HY_FD_CLASSES)];
    let numbers = numbers.into_iter().chain(files.events.into_iter().zip(HY_FD_EVENTS..));
    mappings.extend(numbers.map(|(parent_fd, fd)| FdMapping { parent_fd, child_fd: fd as i32 }));
    command.stdin(Stdio::null()).stdout(files.output.try_clone()?).stderr(files.output);
    // SAFETY: the caller promises that `prepare` is fit to run between fork and exec.
    unsafe { command.pre_exec(prepare) };
    command.fd_mappings(mappings).map_err(io::Error::other)?;
    command.spawn().map_err(|error| {
        let why = cgroup::not_started(&error);
        io::Error::new(error.kind(), format!("cannot start {}: {why}", spec.host.display()))
    })
}

/// Starts zygotes as children of this process, as its own user. Needs tokio's runtime on the main thread.
pub struct Directly;

impl Launcher for Directly {
    fn launch(&self, spec: &Spec, start: Start, files: Files) -> io::Result<Launched> {
        let mut child = spawn(spec, start, files, || Ok(()))?;
        let number = Pid::from_raw(child.id() as i32).ok_or(io::ErrorKind::InvalidInput)?;
        let process = pidfd_open(number, PidfdFlags::empty())?;
        // SAFETY: the registration owns the descriptor, and nobody else closes or replaces it.
        let end = unsafe { AsyncFd::register_with_interest(process.try_clone()?, Interest::READABLE) }?;
        let (sender, events) = mpsc::unbounded_channel();
        // Nobody hears it when the receiver is gone.
        let _ = sender.send(ProcessEvent::Started { pid: number.as_raw_nonzero().get() });
        tokio::spawn(async move {
            // It is readable once the process is dead, so the second wait is none.
            let _ = end.readable().await;
            let _ = sender.send(ProcessEvent::Ended(child.wait().unwrap_or_default()));
        });
        Ok(Launched::new(events, Arc::new(Own(process))))
    }
}

/// A child of this process.
pub(crate) struct Own(pub(crate) OwnedFd);

impl Hold for Own {
    fn kill(&self) {
        // It fails only when the process is gone already.
        let _ = pidfd_send_signal(&self.0, Signal::KILL);
    }

    fn kill_worker(&self, worker: BorrowedFd<'_>) {
        let _ = pidfd_send_signal(worker, Signal::KILL);
    }
}
