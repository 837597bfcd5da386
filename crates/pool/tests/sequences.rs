//! What a hostile zygote says, in whatever order: the supervision must not lose its way, nor kill what is not this zygote's, nor leave anything
//! behind. No PHP is needed: a zygote is whoever has the other end of the channel, and this process is that one here.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use hayate_fuzz::Random;
use hayate_pool::{
    Connections, Files, Generation, Hold, Launched, Launcher, Mode, ProcessEvent, Rewind, Spec, Start, Way,
};
use hayate_ring::{Hub, layout::*};
use rustix::{
    net::{RecvFlags, SendFlags, recv, send},
    process::{Signal, pidfd_send_signal},
};
use tokio::{sync::mpsc, time::timeout};

/// The workers that the pool has asked for, and what is made for them.
struct Zygote {
    control: Option<OwnedFd>,
    events: Option<mpsc::UnboundedSender<ProcessEvent>>,
    asked: Vec<u32>,
    pings: Vec<i32>,
    children: Vec<Child>,
}

impl Zygote {
    fn end(&mut self) {
        self.control = None;
        for child in &mut self.children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        self.children.clear();
        if let Some(events) = self.events.take() {
            let _ = events.send(ProcessEvent::Ended(ExitStatus::default()));
        }
    }

    /// Takes what the pool has said.
    fn listen(&mut self) {
        let Some(control) = &self.control else { return };
        let mut packet = [0u8; 64];
        while let Ok((n, _)) = recv(control, &mut packet, RecvFlags::DONTWAIT) {
            let word = |at: usize| u32::from_ne_bytes(packet[at..at + 4].try_into().unwrap());
            match word(0) {
                _ if n == 0 => return,
                HY_MSG_FORK => self.asked.push(word(4)),
                HY_MSG_PING => self.pings.push(word(12) as i32),
                _ => {}
            }
        }
    }
}

/// The zygotes of a generation, and who was not to be killed.
#[derive(Clone)]
struct Hostile(Arc<Mutex<Vec<Zygote>>>);

impl Hostile {
    fn with<T>(&self, f: impl FnOnce(&mut Vec<Zygote>) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

struct Power(Hostile, usize);

impl Hold for Power {
    fn kill(&self) {
        self.0.with(|all| all[self.1].end());
    }

    fn kill_worker(&self, worker: BorrowedFd<'_>) {
        let _ = pidfd_send_signal(worker, Signal::KILL);
    }
}

impl Launcher for Hostile {
    fn launch(&self, _: &Spec, _: Start, files: Files) -> io::Result<Launched> {
        let (events, receiver) = mpsc::unbounded_channel();
        events.send(ProcessEvent::Started { pid: std::process::id() as i32 }).unwrap();
        let number = self.with(|all| {
            let (asked, pings, children) = (Vec::new(), Vec::new(), Vec::new());
            all.push(Zygote { control: Some(files.control), events: Some(events), asked, pings, children });
            all.len() - 1
        });
        Ok(Launched::new(receiver, Arc::new(Power(self.clone(), number))))
    }
}

fn sleeper() -> Child {
    Command::new("sleep").arg("600").stdout(Stdio::null()).spawn().unwrap()
}

/// A process that is not our child: who started it has ended.
fn stranger() -> i32 {
    let said = Command::new("sh").args(["-c", "sleep 600 >/dev/null 2>&1 & echo $!"]).output().unwrap();
    String::from_utf8(said.stdout).unwrap().trim().parse().unwrap()
}

fn lives(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap().starts_with(" Z"))
}

/// One message, most often of those that could come next.
fn say(random: &mut Random, zygote: &mut Zygote, stranger: i32) {
    zygote.listen();
    let kinds = [
        HY_MSG_READY,
        HY_MSG_FORKED,
        HY_MSG_FORKED,
        HY_MSG_WORKER_READY,
        HY_MSG_EXITED,
        HY_MSG_PONG,
        HY_MSG_FORK_FAILED,
        HY_MSG_REMARK,
        HY_MSG_BOOT_FAILED,
        HY_MSG_BOOT_AGAIN,
        HY_MSG_TRACED,
        99,
    ];
    let any = random.below(8) == 0;
    let kind = kinds[random.below(if any { kinds.len() } else { 6 })];
    let worker = match random.below(12) {
        0 => [u32::MAX, 1023, 1024, 5000, 2][random.below(5)],
        _ if !zygote.asked.is_empty() => zygote.asked[random.below(zygote.asked.len())],
        _ => random.below(3) as u32,
    };
    let pid = match random.below(12) {
        0 => [stranger, 1, 0, -1, i32::MAX, std::process::id() as i32][random.below(6)],
        1 if !zygote.children.is_empty() => {
            // One that has ended, and is not reaped or is.
            let at = random.below(zygote.children.len());
            let child = &mut zygote.children[at];
            child.kill().unwrap();
            if random.below(2) == 0 {
                child.wait().unwrap();
            }
            child.id() as i32
        }
        _ if kind == HY_MSG_FORKED => {
            zygote.children.push(sleeper());
            zygote.children.last().unwrap().id() as i32
        }
        _ => zygote.children.last().map_or(77, |child| child.id() as i32),
    };
    let value = match kind {
        HY_MSG_PONG => zygote.pings.last().copied().unwrap_or(3),
        HY_MSG_BOOT_AGAIN => 1 + random.below(6) as i32,
        _ => random.below(300) as i32,
    };
    let text = ["8.2.36", "", "\u{fffd}\n\n", "why"][random.below(4)];
    let len = if random.below(40) == 0 { u32::MAX } else { text.len() as u32 };
    let mut packet: Vec<u8> = [kind, worker, pid as u32, value as u32, len].map(u32::to_ne_bytes).concat();
    packet.extend(text.as_bytes());
    if random.below(60) == 0 {
        packet.truncate(random.below(packet.len()));
    }
    if let Some(control) = &zygote.control {
        // It may be full, or nobody listens any more.
        let _ = send(control.as_fd(), &packet, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }
}

fn spec() -> Spec {
    Spec {
        name: "test".into(),
        document_root: "/".into(),
        cwd: "/".into(),
        mode: Mode::Worker { script: "/worker.php".into() },
        host: "/bin/true".into(),
        workers: 1..=3,
        ini: vec![],
        fixed_ini: Vec::new(),
        env: vec![],
        php_ini: None,
        ini_env: Vec::new(),
        max_requests: None,
        max_memory: None,
        request_timeout: Some(Duration::from_secs(20)),
        slow_request: None,
        queue_timeout: Duration::from_secs(10),
        idle_timeout: Duration::from_secs(10),
        boot_timeout: Some(Duration::from_secs(20)),
        rewind: Rewind::On,
        warmup: Vec::new(),
        compared: Vec::new(),
        rewind_verify: None,
        connections: Connections::Request,
        connection_lifetime: None,
        explain: None,
        development: false,
        no_new_privileges: true,
        way: Way::Configured,
    }
}

/// One zygote after the other, each of which says something or other, or ends. Nothing that it says may be a fault of ours.
async fn sequence(random: &mut Random, hub: &Arc<Hub>, stranger: i32) {
    let hostile = Hostile(Arc::default());
    let generation = Generation::start(spec(), Arc::new(hostile.clone()), hub).unwrap();
    for _ in 0..20 + random.below(120) {
        match random.below(40) {
            0 => hostile.with(|all| all.iter_mut().for_each(Zygote::end)),
            1..=5 => tokio::time::sleep(Duration::from_millis(random.below(8) as u64)).await,
            6 => drop((generation.status(), generation.not_ready(), generation.unavailable())),
            _ => {
                tokio::task::yield_now().await;
                hostile.with(|all| all.last_mut().map(|zygote| say(random, zygote, stranger)));
            }
        }
        assert!(lives(stranger), "a stranger was killed");
    }
    let status = generation.status();
    let said =
        [status.unavailable.clone(), status.boot_error.clone()].map(Option::unwrap_or_default).concat();
    assert!(
        !said.contains("a fault of Hayate's own") && !status.restarts.contains_key("fault"),
        "{status:?}"
    );
    timeout(Duration::from_secs(60), generation.kill()).await.expect("it ends, whatever was said");
    hostile.with(|all| all.iter_mut().for_each(Zygote::end));
}

#[test]
fn fuzz_sequences_of_a_hostile_zygote() {
    let hub = Hub::new(1).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    hub.attach(0, runtime.handle());
    let stranger = stranger();
    // Without seeds, for there is nothing to mutate: each run is one draw after the other.
    let said = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let time = Duration::from_secs(said("FUZZ_SECONDS").unwrap_or(3));
    let seed = said("FUZZ_SEED").unwrap_or_else(|| std::process::id().into());
    eprintln!("FUZZ_SEED={seed}");
    let mut random = Random::new(seed);
    let (begin, mut runs) = (std::time::Instant::now(), 0u64);
    while begin.elapsed() < time || runs < 10 {
        runtime.block_on(sequence(&mut random, &hub, stranger));
        runs += 1;
    }
    println!(
        "fuzz sequences of control messages: {runs} executions in {:?}, FUZZ_SEED={seed}",
        begin.elapsed()
    );
    rustix::process::kill_process(rustix::process::Pid::from_raw(stranger).unwrap(), Signal::KILL).unwrap();
}
