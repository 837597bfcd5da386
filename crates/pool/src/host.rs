//! The zygote's process: started by exec with exactly the descriptors it is to have, heard, and reaped.

use std::{
    io,
    os::fd::OwnedFd,
    process::{ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use command_fds::{CommandFdExt, FdMapping};
use hayate_ring::{Hub, Ring, layout::*};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use tokio::{
    net::unix::pipe::Receiver,
    process::{Child, Command as Process},
    task::JoinHandle,
    time::{Instant, timeout},
};

use crate::{
    channel::{Channel, Command, Message},
    deaths::DYING,
    log::{self, Tail},
    spec::{Boot, Spec},
};

/// A zygote that runs.
pub(crate) struct Host {
    child: Child,
    channel: Channel,
    log: JoinHandle<()>,
    pub(crate) tail: Tail,
    pub(crate) pid: i32,
    pub(crate) started: Instant,
    /// It has said that it can fork workers.
    pub(crate) ready: bool,
}

/// What happens to a zygote.
pub(crate) enum HostEvent {
    Message(Message),
    Died(ExitStatus),
}

impl Host {
    /// Starts the host. Must run on the process' main thread: the kernel ends the host when the thread that started it ends
    /// (PR_SET_PDEATHSIG).
    pub(crate) fn start(
        spec: &Spec,
        boot: &Boot,
        ring: &Ring,
        classes: &OwnedFd,
        hub: &Hub,
    ) -> io::Result<Host> {
        let (channel, theirs) = Channel::pair()?;
        let (reader, writer) = io::pipe()?;
        let reader = Receiver::from_owned_fd(OwnedFd::from(reader))?;
        let (mut command, options) = spec.command(boot)?;
        command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
        let descriptors = [
            (theirs, HY_FD_CONTROL),
            (ring.memory_fd().try_clone_to_owned()?, HY_FD_MEMORY),
            (hub.event_fd().try_clone_to_owned()?, HY_FD_EVENT),
            (classes.try_clone()?, HY_FD_CLASSES),
        ];
        let mut mappings =
            Vec::from(descriptors.map(|(parent_fd, fd)| FdMapping { parent_fd, child_fd: fd as i32 }));
        mappings.push(options);
        command.fd_mappings(mappings).map_err(io::Error::other)?;
        let child = Process::from(command).kill_on_drop(true).spawn().map_err(|error| {
            io::Error::new(error.kind(), format!("cannot start {}: {error}", spec.host.display()))
        })?;
        let pid = child.id().ok_or_else(|| io::Error::other("the host has no process id"))? as i32;
        if let Some(soft) = spec.open_files {
            limit_open_files(pid, soft);
        }
        let tail = Tail::default();
        let log = tokio::spawn(log::read(Arc::from(&*spec.name), reader, tail.clone()));
        Ok(Host { child, channel, log, tail, pid, started: Instant::now(), ready: false })
    }

    /// The next thing that happens. Cancel-safe.
    pub(crate) async fn event(&mut self) -> HostEvent {
        tokio::select! {
            biased;
            message = self.channel.recv() => match message {
                Some(message) => HostEvent::Message(message),
                None => HostEvent::Died(self.reap().await),
            },
            status = self.child.wait() => match self.channel.try_recv() {
                // What it said before it died comes first.
                Ok(Some(message)) => HostEvent::Message(message),
                _ => HostEvent::Died(status.unwrap_or_default()),
            },
        }
    }

    /// Waits for its end and forgets what it still says. Cancel-safe.
    pub(crate) async fn died(&mut self) {
        while !matches!(self.event().await, HostEvent::Died(_)) {}
    }

    /// A zygote that has closed its end ends at once; one that does not is ended.
    async fn reap(&mut self) -> ExitStatus {
        match timeout(Duration::from_millis(500), self.child.wait()).await {
            Ok(status) => status.unwrap_or_default(),
            Err(_) => {
                self.kill();
                // One that is stuck in the kernel is left to itself: nobody listens to it any more.
                timeout(DYING, self.child.wait())
                    .await
                    .unwrap_or(Ok(ExitStatus::default()))
                    .unwrap_or_default()
            }
        }
    }

    /// Tells the zygote something. An error means that it no longer listens.
    pub(crate) fn send(&self, command: Command) -> io::Result<()> {
        self.channel.send(command)
    }

    /// Ends the zygote, and by PR_SET_PDEATHSIG its workers.
    pub(crate) fn kill(&mut self) {
        // It fails only when the process is gone already.
        let _ = self.child.start_kill();
    }

    /// Call once it has died: waits a moment for its last lines, which reach us by a pipe of their own.
    pub(crate) async fn last_lines(&mut self) -> Vec<String> {
        if timeout(Duration::from_millis(300), &mut self.log).await.is_err() {
            // A process that PHP started holds the pipe; its lines go on into the log.
        }
        self.tail.lines()
    }
}

/// Sets the soft limit of a process that has just been started. It opens no thousand files before this.
fn limit_open_files(pid: i32, soft: u64) {
    let hard = getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit { current: Some(soft), maximum: hard };
    // It fails when the process is dead already, which its end will tell.
    let _ = prlimit(Pid::from_raw(pid), Resource::Nofile, limit);
}
