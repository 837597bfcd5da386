//! The zygote's process: started by exec with exactly the descriptors it is to have, heard, and reaped.

use std::{cell::Cell, io, os::fd::OwnedFd, process::ExitStatus, sync::Arc, time::Duration};

use hayate_ring::{Hub, Ring};
use rustix::event::{EventfdFlags, eventfd};
use tokio::{
    io::unix::AsyncFd,
    net::unix::pipe::Receiver,
    task::JoinHandle,
    time::{Instant, timeout},
};

use crate::{
    channel::{Channel, Command, Message},
    deaths::DYING,
    launch::{Files, Hold, Launched, Launcher, ProcessEvent, Start},
    log::{self, Tail},
    slow,
    spec::Spec,
};

/// A zygote that runs, or is being started.
pub(crate) struct Host {
    process: Launched,
    channel: Channel,
    /// What its workers wake each of the front's threads with. Its own, and only ever watched: a script can fill them, empty them, and make
    /// them block.
    _events: Vec<AsyncFd<OwnedFd>>,
    log: JoinHandle<()>,
    pub(crate) tail: Tail,
    /// 0 until it is known.
    pub(crate) pid: i32,
    pub(crate) started: Instant,
    /// It has said that it can fork workers.
    pub(crate) ready: bool,
    /// It was ended for what it said; the next one is not started at once.
    pub(crate) distrusted: bool,
    /// Its end, while what it said before is still being read.
    ended: Option<(ExitStatus, Option<String>)>,
    /// How many messages it may still send, and the most; see [`UNASKED`].
    allowance: Cell<u32>,
    most: u32,
}

/// Messages that a zygote may send without having been asked: on its own boot. Each command allows it more ([`Command::answers`]). So what
/// holds its channel, which may be PHP code and what that has started, also after the zygote's death, can neither flood the log nor keep
/// the pool's thread to itself.
const UNASKED: u32 = 64;

/// What happens to a zygote.
pub(crate) enum HostEvent {
    /// It has the number [`Host::pid`].
    Started,
    Message(Message),
    /// It has said more than there is to say, and is not heard any more.
    Babbles,
    /// It is dead; the text says why, when it never ran.
    Died(ExitStatus, Option<String>),
}

impl Host {
    /// Has the host started.
    pub(crate) fn start(
        launcher: &dyn Launcher,
        spec: &Spec,
        start: Start,
        hub: &Hub,
        ring: &Ring,
        classes: &OwnedFd,
    ) -> io::Result<Host> {
        let (channel, theirs) = Channel::pair()?;
        let (reader, writer) = io::pipe()?;
        let reader = Receiver::from_owned_fd(OwnedFd::from(reader))?;
        let (mut events, mut theirs_to_write) = (Vec::new(), Vec::new());
        for thread in 0..hub.threads() {
            let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            theirs_to_write.push(event.try_clone()?);
            events.push(hub.watch(thread, event)?);
        }
        let files = Files {
            control: theirs,
            memory: ring.memory_fd().try_clone_to_owned()?,
            classes: classes.try_clone()?,
            output: writer.into(),
            events: theirs_to_write,
        };
        let process = launcher.launch(spec, start, files)?;
        let tail = Tail::default();
        let log = tokio::spawn(log::read(Arc::from(&*spec.name), reader, tail.clone()));
        Ok(Host {
            process,
            channel,
            _events: events,
            log,
            tail,
            pid: 0,
            started: Instant::now(),
            ready: false,
            distrusted: false,
            ended: None,
            allowance: Cell::new(UNASKED),
            most: (UNASKED + slow::BURST)
                .saturating_add(spec.workers.end().saturating_mul(2 * Command::MOST_ANSWERS)),
        })
    }

    /// The next thing that happens. Cancel-safe.
    pub(crate) async fn event(&mut self) -> HostEvent {
        if let Some((status, why)) = self.ended.clone() {
            // What it said before it died comes first, as far as it was to be heard.
            return match self.channel.try_recv() {
                Ok(Some(message)) if self.may_speak() => HostEvent::Message(message),
                _ => HostEvent::Died(status, why),
            };
        }
        let hears = self.pid != 0 && self.allowance.get() > 0;
        tokio::select! {
            biased;
            // What it says is heard once it is known which process that is.
            message = self.channel.recv(), if hears => match message {
                Some(_) if !self.may_speak() => return HostEvent::Babbles,
                Some(message) => return HostEvent::Message(message),
                None => self.reap().await,
            },
            event = self.process.event() => match event {
                ProcessEvent::Started { pid } => {
                    self.pid = pid;
                    return HostEvent::Started;
                }
                ProcessEvent::Failed(why) => self.ended = Some((ExitStatus::default(), Some(why))),
                ProcessEvent::Ended(status) => self.ended = Some((status, None)),
            },
        }
        Box::pin(self.event()).await
    }

    /// Waits for its end and forgets what it still says. Cancel-safe.
    pub(crate) async fn died(&mut self) {
        while !matches!(self.event().await, HostEvent::Died(..)) {}
    }

    /// A zygote that has closed its end ends at once; one that does not is ended.
    async fn reap(&mut self) {
        while self.ended.is_none() {
            let event = match timeout(Duration::from_millis(500), self.process.event()).await {
                Ok(event) => event,
                Err(_) => {
                    self.kill();
                    // One that is stuck in the kernel is left to itself: nobody listens to it any more.
                    let given_up = ProcessEvent::Ended(ExitStatus::default());
                    timeout(DYING, self.process.event()).await.unwrap_or(given_up)
                }
            };
            match event {
                ProcessEvent::Started { pid } => self.pid = pid,
                ProcessEvent::Failed(why) => self.ended = Some((ExitStatus::default(), Some(why))),
                ProcessEvent::Ended(status) => self.ended = Some((status, None)),
            }
        }
    }

    /// Counts a message. `false`: it was one too many.
    fn may_speak(&self) -> bool {
        let left = self.allowance.get().saturating_sub(1);
        self.allowance.set(left);
        left > 0
    }

    /// Tells the zygote something. An error means that it no longer listens.
    pub(crate) fn send(&self, command: Command) -> io::Result<()> {
        self.channel.send(command)?;
        if self.allowance.get() > 0 {
            self.allowance.set(self.allowance.get().saturating_add(command.answers()).min(self.most));
        }
        Ok(())
    }

    /// Ends the zygote, and by PR_SET_PDEATHSIG its workers.
    pub(crate) fn kill(&self) {
        self.process.kill();
    }

    /// Who may end it and its workers.
    pub(crate) fn hold(&self) -> Arc<dyn Hold> {
        self.process.hold()
    }

    /// Call once it has died: waits a moment for its last lines, which reach us by a pipe of their own.
    pub(crate) async fn last_lines(&mut self) -> Vec<String> {
        if timeout(Duration::from_millis(300), &mut self.log).await.is_err() {
            // A process that PHP started holds the pipe; its lines go on into the log.
        }
        self.tail.lines()
    }
}
