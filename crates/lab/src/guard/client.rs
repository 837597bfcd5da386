//! The lab's side of a guard.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel},
    time::{Duration, Instant},
};

use super::{
    orphans,
    protocol::{Event, Order, Signal, Spawn},
    remove,
};
use crate::machine::User;

/// A directory, and processes that end with it.
#[derive(Debug)]
pub struct Guard {
    /// Its directory: empty at first, removed in the end.
    pub dir: PathBuf,
    /// The guard's own process id: all others are its descendants.
    pub pid: i32,
    process: Child,
    orders: Option<ChildStdin>,
    events: Receiver<Event>,
    /// How processes ended.
    ended: HashMap<i32, Ended>,
}

/// How a process ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Its exit status; `None` if a signal ended it.
    pub code: Option<i32>,
    /// In words: `ended with status 1`.
    pub how: String,
}

/// A guard could not do what it was told.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// It could not be started.
    #[error("the guard process of {name} could not be started: {error}")]
    NoGuard {
        /// What it was for.
        name: String,
        /// Why.
        error: String,
    },
    /// It is gone. It does not end by itself: somebody killed it.
    #[error("the guard process is gone; was it killed?")]
    Gone,
    /// A process could not be started.
    #[error("{0}")]
    NotStarted(String),
}

impl Guard {
    /// Starts a guard with a new directory below `temporary`, named after `name`.
    ///
    /// # Errors
    /// The directory or the process cannot be made.
    pub fn new(temporary: &Path, name: &str, user: Option<&User>) -> Result<Self, GuardError> {
        let fail = |error: String| GuardError::NoGuard { name: name.to_owned(), error };
        let random = rustix_random().map_err(|error| fail(error.to_string()))?;
        let dir = temporary.join(format!("hayate-lab-{name}-{random:08x}"));
        let program = std::env::current_exe().map_err(|error| fail(error.to_string()))?;
        let mut command = Command::new(program);
        command.arg("guard").arg(&dir);
        if let Some(user) = user {
            command.arg("--user").arg(format!("{}:{}", user.uid, user.gid));
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = orphans::spawn(&mut command).map_err(|error| fail(error.to_string()))?;
        let orders = process.stdin.take();
        let output = process.stdout.take().ok_or_else(|| fail("no pipe".to_owned()))?;
        let (sender, events) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let Ok(event) = serde_json::from_str(&line) else { break };
                if sender.send(event).is_err() {
                    break;
                }
            }
        });
        let pid = process.id().cast_signed();
        let mut guard = Self { dir, pid, process, orders, events, ended: HashMap::new() };
        match guard.answer() {
            Ok(Event::Ready) => Ok(guard),
            _ => Err(fail("it said why above".to_owned())),
        }
    }

    /// Starts a process and says its id.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn spawn(&mut self, spawn: Spawn) -> Result<i32, GuardError> {
        self.order(&Order::Spawn(spawn))?;
        match self.answer()? {
            Event::Started { pid } => Ok(pid),
            Event::NotStarted { error } => Err(GuardError::NotStarted(error)),
            _ => Err(GuardError::Gone),
        }
    }

    /// Sends a signal to a process that was started here, if it still lives.
    pub fn signal(&mut self, pid: i32, signal: Signal) {
        // A guard that is gone has taken its processes along.
        let _ = self.order(&Order::Signal { pid, signal });
    }

    /// How a process ended; `None` while it lives.
    pub fn ended(&mut self, pid: i32) -> Option<Ended> {
        let lost = self.is_lost();
        self.ended.get(&pid).cloned().or_else(|| lost.then(Ended::lost))
    }

    /// Whether the guard itself has ended, which it does not do before it is dropped: somebody killed it.
    pub fn is_lost(&mut self) -> bool {
        loop {
            match self.events.try_recv() {
                Ok(event) => self.note(event),
                Err(TryRecvError::Empty) => return false,
                Err(TryRecvError::Disconnected) => return true,
            }
        }
    }

    /// Waits for the end of a process; `None` when it lives on after this time.
    pub fn wait(&mut self, pid: i32, time: Duration) -> Option<Ended> {
        let end = Instant::now() + time;
        loop {
            if let Some(ended) = self.ended(pid) {
                return Some(ended);
            }
            match self.events.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(event) => self.note(event),
                Err(RecvTimeoutError::Timeout) => return None,
                Err(RecvTimeoutError::Disconnected) => return Some(Ended::lost()),
            }
        }
    }

    /// Kills whatever still lives; says how many there were.
    ///
    /// # Errors
    /// The guard is gone.
    pub fn kill_all(&mut self) -> Result<usize, GuardError> {
        self.order(&Order::KillAll)?;
        match self.answer()? {
            Event::Killed { count } => Ok(count),
            _ => Err(GuardError::Gone),
        }
    }

    fn order(&mut self, order: &Order) -> Result<(), GuardError> {
        let mut line = serde_json::to_string(order).map_err(|_| GuardError::Gone)?;
        line.push('\n');
        let orders = self.orders.as_mut().ok_or(GuardError::Gone)?;
        orders.write_all(line.as_bytes()).and_then(|()| orders.flush()).map_err(|_| GuardError::Gone)
    }

    /// The next event that is an answer.
    fn answer(&mut self) -> Result<Event, GuardError> {
        loop {
            match self.events.recv().map_err(|_| GuardError::Gone)? {
                event @ Event::Exited { .. } => self.note(event),
                event => return Ok(event),
            }
        }
    }

    fn note(&mut self, event: Event) {
        if let Event::Exited { pid, code, how } = event {
            self.ended.insert(pid, Ended { code, how });
        }
    }
}

impl Ended {
    fn lost() -> Self {
        Self { code: None, how: "was lost together with its guard".to_owned() }
    }
}

impl Drop for Guard {
    /// The guard ends at the end of its orders, and takes everything along; this waits for it. What one leaves behind that
    /// was killed is cleared away here.
    fn drop(&mut self) {
        drop(self.orders.take());
        if !orphans::wait(&mut self.process).is_ok_and(|status| status.success()) {
            orphans::kill();
            if let Err(error) = remove(&self.dir) {
                crate::output::status::say(&format!("{} is left behind: {error}", self.dir.display()));
            }
        }
    }
}

fn rustix_random() -> rustix::io::Result<u32> {
    let mut bytes = [0; 4];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(u32::from_ne_bytes(bytes))
}
