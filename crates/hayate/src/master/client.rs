//! The front's end of the wire: asks the master for plans and zygotes, and hears what becomes of them.
//!
//! What is said is queued and sent in order by one task, so nobody waits for the master. Its death ends this process (the kernel sees to
//! it as well).

use std::{
    collections::{HashMap, VecDeque},
    fs::File,
    io::{self, Read, Seek},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::process::ExitStatusExt,
    },
    path::PathBuf,
    process::ExitStatus,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use anyhow::{Context, Result, bail};
use hayate_certificates::Pair;
use hayate_front::ListenAddr;
use hayate_http::Secret;
use hayate_panics::caught;
use hayate_pool::{Files, Hold, Launched, Launcher, ProcessEvent, Spec, Start};
use parking_lot::Mutex;
use rustix::process::{Resource, getrlimit};
use serde::de::DeserializeOwned;
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::{Notify, mpsc, oneshot},
};

use super::wire::{self, Notice, ToFront, ToMaster};
use crate::plan::Plan;

type Outgoing = (ToMaster, Vec<OwnedFd>);
type Loading = oneshot::Sender<Result<(u64, Vec<OwnedFd>), String>>;

/// The master, as the front sees it.
pub struct Master {
    outgoing: mpsc::UnboundedSender<Outgoing>,
    /// How many of these are not sent yet; told when none is left.
    unsent: AtomicUsize,
    all_sent: Notify,
    numbers: AtomicU64,
    zygotes: Mutex<HashMap<u64, mpsc::UnboundedSender<ProcessEvent>>>,
    loading: Mutex<HashMap<u64, Loading>>,
    upgrading: Mutex<HashMap<u64, oneshot::Sender<Result<(), String>>>>,
    /// Another front has taken this one's place.
    replaced: Notify,
    /// No other front is left.
    alone: Notify,
    has_quic: Notify,
    /// It is told with each sign of life.
    left_quic: AtomicBool,
    /// Certificates that have changed, with the plan that they belong to.
    certificates: Mutex<Option<(u64, Vec<Pair>)>>,
    certificates_changed: Notify,
    /// The master wants a sign of life.
    asked: Notify,
}

/// What the master hands to a front that it has just started.
pub struct Beginning {
    /// The master's process.
    pub master: u32,
    /// The user that the master runs as.
    pub master_user: u32,
    /// A front has served before.
    pub again: bool,
    /// Another front serves until this one does.
    pub successor: bool,
    /// What all fronts of this server derive keys of QUIC from.
    pub secret: Secret,
    /// The control socket, and where it is.
    pub control: Option<(PathBuf, OwnedFd)>,
    /// The socket for metrics.
    pub metrics: Option<OwnedFd>,
    /// The plan's number in the master.
    number: u64,
    /// What to serve.
    pub plan: Plan,
    sockets: Vec<OwnedFd>,
}

/// Reads the master's first message. Blocks, as the master sends it before it starts this process.
pub fn begin(wire: &OwnedFd) -> Result<Beginning> {
    let Some((message, files)) = wire::receive(wire).context("the master's first message")? else {
        bail!("the master is gone")
    };
    let ToFront::Begin { plan: number, master, master_user, control, metrics, again, successor, secret } =
        message
    else {
        bail!("the master's first message was another one")
    };
    let mut files = VecDeque::from(files);
    let mut next = || files.pop_front().context("the master's first message lacks a descriptor");
    let plan = read_plan(next()?)?;
    let control = control.map(|path| Ok::<_, anyhow::Error>((path, next()?))).transpose()?;
    let metrics = metrics.then(next).transpose()?;
    Ok(Beginning {
        master,
        master_user,
        again,
        successor,
        secret: Secret::new(secret),
        control,
        metrics,
        number,
        plan,
        sockets: files.into(),
    })
}

fn read_plan(file: OwnedFd) -> Result<Plan> {
    read_json(file).context("the plan")
}

/// A plan and the sockets of its addresses. The kernel leaves out the descriptors for which this process has no number left.
fn whole_plan(files: Vec<OwnedFd>) -> Result<(Plan, Vec<OwnedFd>), String> {
    let mut files = files.into_iter();
    let plan = files.next().map(read_plan).transpose().map_err(|error| format!("{error:#}"))?;
    let sockets: Vec<OwnedFd> = files.collect();
    plan.filter(|plan| plan.listen.len() == sockets.len()).map(|plan| (plan, sockets)).ok_or_else(|| {
        let limit = getrlimit(Resource::Nofile).current.map_or("none".into(), |limit| limit.to_string());
        format!(
            "the front has no descriptor left for the new configuration and its sockets: the limit of open files is {limit}; raise it \
             (LimitNOFILE), or try again when fewer clients are connected"
        )
    })
}

fn read_json<T: DeserializeOwned>(file: OwnedFd) -> Result<T> {
    let (mut file, mut text) = (File::from(file), String::new());
    file.rewind()?;
    file.read_to_string(&mut text)?;
    Ok(serde_json::from_str(&text)?)
}

/// A plan of the master's. Dropped without [`Loaded::adopted`], the master forgets it.
pub struct Loaded {
    master: Arc<Master>,
    number: u64,
    /// What to serve.
    pub plan: Plan,
    sockets: Vec<OwnedFd>,
    adopted: bool,
}

impl Loaded {
    /// What listens on the plan's addresses that are not in `known`.
    pub fn sockets(&mut self, known: &[ListenAddr]) -> Vec<(ListenAddr, OwnedFd)> {
        let sockets = std::mem::take(&mut self.sockets);
        let all = self.plan.listen.iter().cloned().zip(sockets);
        all.filter(|(addr, _)| !known.contains(addr)).collect()
    }

    /// Who starts the zygotes of the application at this place of the plan.
    pub fn launcher(&self, app: usize) -> Arc<dyn Launcher> {
        Arc::new(ByMaster { master: Arc::clone(&self.master), plan: self.number, app })
    }

    /// Tells the master that this is served now.
    pub fn adopted(mut self) {
        self.adopted = true;
        self.master.say(ToMaster::Adopted { plan: self.number }, Vec::new());
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        if !self.adopted {
            self.master.say(ToMaster::Abandoned { plan: self.number }, Vec::new());
        }
    }
}

impl Master {
    /// Goes on from [`begin`]. Needs tokio's runtime.
    pub fn new(wire: OwnedFd) -> io::Result<Arc<Master>> {
        // SAFETY: the registration owns the descriptor, and nobody else closes or replaces it.
        let wire = unsafe { AsyncFd::register_with_interest(wire, Interest::READABLE | Interest::WRITABLE) }?;
        let (outgoing, queue) = mpsc::unbounded_channel();
        let master = Arc::new(Master {
            outgoing,
            unsent: AtomicUsize::new(0),
            all_sent: Notify::new(),
            numbers: AtomicU64::new(1),
            zygotes: Mutex::default(),
            loading: Mutex::default(),
            upgrading: Mutex::default(),
            replaced: Notify::new(),
            alone: Notify::new(),
            has_quic: Notify::new(),
            left_quic: AtomicBool::new(false),
            certificates: Mutex::default(),
            certificates_changed: Notify::new(),
            asked: Notify::new(),
        });
        let conversation = converse(Arc::clone(&master), wire, queue);
        tokio::spawn(async {
            if caught(conversation).await.is_err() {
                tracing::error!("without a word to the master there is no serving; this process ends");
                std::process::exit(1);
            }
        });
        Ok(master)
    }

    /// The plan that the front was started with.
    pub fn first(self: &Arc<Master>, beginning: &mut Beginning) -> Loaded {
        Loaded {
            master: Arc::clone(self),
            number: beginning.number,
            plan: beginning.plan.clone(),
            sockets: std::mem::take(&mut beginning.sockets),
            adopted: false,
        }
    }

    /// Has the configuration read again. The error says why it was refused.
    pub async fn load(self: &Arc<Master>) -> Result<Loaded, String> {
        let request = self.numbers.fetch_add(1, Relaxed);
        let (reply, answer) = oneshot::channel();
        self.loading.lock().insert(request, reply);
        self.say(ToMaster::Load { request }, Vec::new());
        let (number, files) = answer.await.unwrap_or_else(|_| Err("the master is gone".into()))?;
        match whole_plan(files) {
            Ok((plan, sockets)) => {
                Ok(Loaded { master: Arc::clone(self), number, plan, sockets, adopted: false })
            }
            Err(why) => {
                self.say(ToMaster::Abandoned { plan: number }, Vec::new());
                Err(why)
            }
        }
    }

    /// Tells the service manager something.
    pub fn notify(&self, notice: Notice) {
        self.say(ToMaster::Notify(notice), Vec::new());
    }

    /// Has the server end: this front and all others.
    pub fn stop(&self) {
        self.say(ToMaster::Stop, Vec::new());
    }

    /// Tells why this front cannot serve.
    pub fn failed(&self, why: &str) {
        self.say(ToMaster::Failed { why: wire::reason(why) }, Vec::new());
    }

    /// Has the program that is installed now take over. Returns once its front serves; the error says why it does not.
    pub async fn upgrade(&self) -> Result<(), String> {
        let request = self.numbers.fetch_add(1, Relaxed);
        let (reply, answer) = oneshot::channel();
        self.upgrading.lock().insert(request, reply);
        self.say(ToMaster::Upgrade { request }, Vec::new());
        answer.await.unwrap_or_else(|_| Err("the master is gone".into()))
    }

    /// Waits for certificates that have changed, and the number of their plan.
    pub async fn certificates(&self) -> (u64, Vec<Pair>) {
        loop {
            if let Some(changed) = self.certificates.lock().take() {
                return changed;
            }
            self.certificates_changed.notified().await;
        }
    }

    /// Waits until the master wants a sign of life.
    pub async fn asked(&self) {
        self.asked.notified().await;
    }

    /// Gives one. `alone`: nobody is connected.
    pub fn alive(&self, alone: bool) {
        self.say(if alone { ToMaster::Alone } else { ToMaster::Alive }, Vec::new());
        // Another program may have taken the master's place since it was said.
        if self.left_quic.load(Relaxed) {
            self.say(ToMaster::LeftQuic, Vec::new());
        }
    }

    /// Says that this front, which was replaced, reads the sockets of HTTP/3 no more.
    pub fn left_quic(&self) {
        self.left_quic.store(true, Relaxed);
        self.say(ToMaster::LeftQuic, Vec::new());
    }

    /// Waits until another front has taken this one's place.
    pub async fn replaced(&self) {
        self.replaced.notified().await;
    }

    /// Waits until no other front is left. It may be said more than once.
    pub async fn alone(&self) {
        self.alone.notified().await;
    }

    /// Waits until no other front reads the sockets of HTTP/3. It may be said more than once.
    pub async fn has_quic(&self) {
        self.has_quic.notified().await;
    }

    /// Waits until the master has been told all that was said so far.
    pub async fn said(&self) {
        loop {
            let sent = self.all_sent.notified();
            if self.unsent.load(Relaxed) == 0 {
                return;
            }
            sent.await;
        }
    }

    fn say(&self, message: ToMaster, files: Vec<OwnedFd>) {
        self.unsent.fetch_add(1, Relaxed);
        // An error means that the master is gone, which ends this process.
        let _ = self.outgoing.send((message, files));
    }

    fn hear(&self, message: ToFront, files: Vec<OwnedFd>) {
        match message {
            ToFront::Begin { .. } => {}
            ToFront::Plan { request, plan } => {
                let unwanted = match self.loading.lock().remove(&request) {
                    Some(reply) => reply.send(Ok((plan, files))).is_err(),
                    None => true,
                };
                if unwanted {
                    self.say(ToMaster::Abandoned { plan }, Vec::new());
                }
            }
            ToFront::Refused { request, why } => {
                if let Some(reply) = self.loading.lock().remove(&request) {
                    // Whoever asked may have stopped waiting.
                    let _ = reply.send(Err(why));
                }
            }
            ToFront::Upgraded { request, refused } => {
                if let Some(reply) = self.upgrading.lock().remove(&request) {
                    // Whoever asked may have stopped waiting.
                    let _ = reply.send(refused.map_or(Ok(()), Err));
                }
            }
            ToFront::Replaced => self.replaced.notify_one(),
            ToFront::Alone => self.alone.notify_one(),
            ToFront::Quic => self.has_quic.notify_one(),
            ToFront::Certificates { plan } => match files.into_iter().next().map(read_json) {
                Some(Ok(pairs)) => {
                    *self.certificates.lock() = Some((plan, pairs));
                    self.certificates_changed.notify_one();
                }
                _ => tracing::error!("the master's message lacks the certificates"),
            },
            ToFront::Ask => self.asked.notify_one(),
            ToFront::Started { zygote, pid } => self.tell(zygote, ProcessEvent::Started { pid }),
            ToFront::NotStarted { zygote, why } => self.tell(zygote, ProcessEvent::Failed(why)),
            ToFront::Ended { zygote, status } => {
                self.tell(zygote, ProcessEvent::Ended(ExitStatus::from_raw(status)))
            }
        }
    }

    fn tell(&self, zygote: u64, event: ProcessEvent) {
        let mut zygotes = self.zygotes.lock();
        let last = !matches!(event, ProcessEvent::Started { .. });
        if let Some(sender) = zygotes.get(&zygote) {
            // Nobody may be left to hear it.
            let _ = sender.send(event);
        }
        if last {
            zygotes.remove(&zygote);
        }
    }
}

async fn converse(master: Arc<Master>, wire: AsyncFd<OwnedFd>, mut queue: mpsc::UnboundedReceiver<Outgoing>) {
    let mut pending: Option<Outgoing> = None;
    loop {
        tokio::select! {
            ready = wire.readable() => {
                let Ok(mut ready) = ready else { return };
                match ready.try_io(|wire| wire::receive::<ToFront>(wire.get_ref())) {
                    Ok(Ok(Some((message, files)))) => master.hear(message, files),
                    Ok(Ok(None)) => {
                        tracing::error!("the master is gone; this process ends");
                        std::process::exit(1);
                    }
                    Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                    Ok(Err(error)) => {
                        tracing::error!("what the master says makes no sense ({error}); this process ends");
                        std::process::exit(1);
                    }
                    Err(_would_block) => {}
                }
            }
            next = queue.recv(), if pending.is_none() => pending = next,
            ready = wire.writable(), if pending.is_some() => {
                let Ok(mut ready) = ready else { return };
                let Some((message, files)) = &pending else { continue };
                let files: Vec<BorrowedFd<'_>> = files.iter().map(AsFd::as_fd).collect();
                if let Ok(outcome) = ready.try_io(|wire| wire::send(wire.get_ref(), message, &files)) {
                    if let Err(error) = outcome {
                        tracing::error!("the master cannot be told: {error}");
                        if let ToMaster::Launch { zygote, .. } = message {
                            master.tell(*zygote, ProcessEvent::Failed(format!("the master cannot be told: {error}")));
                        }
                    }
                    pending = None;
                    if master.unsent.fetch_sub(1, Relaxed) == 1 {
                        master.all_sent.notify_waiters();
                    }
                }
            }
        }
    }
}

/// Starts the zygotes of one application of one plan.
struct ByMaster {
    master: Arc<Master>,
    plan: u64,
    app: usize,
}

impl Launcher for ByMaster {
    fn launch(&self, _: &Spec, start: Start, files: Files) -> io::Result<Launched> {
        let zygote = self.master.numbers.fetch_add(1, Relaxed);
        let (sender, events) = mpsc::unbounded_channel();
        self.master.zygotes.lock().insert(zygote, sender);
        let launch = ToMaster::Launch { zygote, plan: self.plan, app: self.app, start };
        self.master.say(launch, files.into_list());
        Ok(Launched::new(events, Arc::new(Held { master: Arc::clone(&self.master), zygote })))
    }
}

struct Held {
    master: Arc<Master>,
    zygote: u64,
}

impl Hold for Held {
    fn kill(&self) {
        // One that has ended is known to nobody any more.
        if self.master.zygotes.lock().contains_key(&self.zygote) {
            self.master.say(ToMaster::Kill { zygote: self.zygote }, Vec::new());
        }
    }

    fn kill_worker(&self, worker: BorrowedFd<'_>) {
        match worker.try_clone_to_owned() {
            Ok(worker) => self.master.say(ToMaster::KillWorker { zygote: self.zygote }, vec![worker]),
            Err(error) => tracing::error!("no descriptor left to kill a worker with: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn an_answer_of_which_descriptors_are_missing_is_no_plan() {
        let plan = || {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&serde_json::to_vec(&crate::plan::tests::any()).unwrap()).unwrap();
            OwnedFd::from(file)
        };
        let socket = OwnedFd::from(File::open("/dev/null").unwrap());
        let limit = getrlimit(Resource::Nofile).current.unwrap();
        // Neither is one whose sockets are not all there: nobody would be accepted at them.
        for files in [vec![], vec![plan()]] {
            let why = whole_plan(files).unwrap_err();
            assert!(
                why.contains(&format!("the limit of open files is {limit}; raise it (LimitNOFILE)")),
                "{why}"
            );
        }
        let (plan, sockets) = whole_plan(vec![plan(), socket]).unwrap();
        assert_eq!((plan.listen.len(), sockets.len()), (1, 1));
    }
}
