//! A front that lies: whatever it says, in whatever order, the master signals nobody but the front's own, and starts what the plan says.

use std::{
    os::fd::OwnedFd,
    process::{Child, Command, Stdio},
    time::Instant,
};

use hayate_fuzz::Random;
use hayate_pool::{Files, Start};
use nix::sys::signal::SigSet;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::{
    children::{Front, Own, Zygotes},
    wire::{Notice, ToMaster},
    *,
};
use crate::fallback::tests::app;

fn sleeper() -> Child {
    Command::new("sleep").arg("600").stdout(Stdio::null()).spawn().unwrap()
}

/// A shell as a zygote: it says what its child, which stands for a worker, is.
fn zygote() -> (Child, i32) {
    use std::io::BufRead;
    let mut shell = Command::new("sh")
        .args(["-c", "sleep 600 >/dev/null & echo $!; wait"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (shell, line.trim().parse().unwrap())
}

fn open(pid: i32) -> OwnedFd {
    pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty()).unwrap()
}

fn has_ended(pidfd: &OwnedFd, timeout: i64) -> bool {
    let timeout = Timespec { tv_sec: timeout, tv_nsec: 0 };
    poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&timeout)).unwrap() > 0
}

fn end(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_worker_is_killed_for_the_front_that_started_its_zygote_and_nobody_else_is() {
    let (shell, worker) = zygote();
    let (other, others) = zygote();
    let stranger = sleeper();
    let zygotes = Zygotes::of(vec![(1, 7, shell.id()), (2, 7, other.id())]);
    let victims = [stranger.id() as i32, others, shell.id() as i32, std::process::id() as i32];
    for victim in victims {
        zygotes.kill_worker(1, 7, &open(victim));
    }
    let worker = open(worker);
    // What is no pidfd, another number, another front's number.
    zygotes.kill_worker(1, 7, &std::fs::File::open("/dev/null").unwrap().into());
    zygotes.kill_worker(1, 8, &worker);
    zygotes.kill_worker(2, 7, &worker);
    for (victim, pidfd) in victims.map(|victim| (victim, open(victim))) {
        assert!(!has_ended(&pidfd, 0), "{victim} was killed");
    }
    assert!(!has_ended(&worker, 0), "it is another front's");
    zygotes.kill_worker(1, 7, &worker);
    assert!(has_ended(&worker, 60), "its own is");
    zygotes.kill_worker(2, 7, &open(others));
    [shell, other, stranger].into_iter().for_each(end);
}

/// A master with one front, number 3, and one that was replaced, number 2. Plan 5 is served, and has one application.
fn master(children: &[&Child; 2]) -> (Master, [OwnedFd; 2]) {
    let plan = Plan { apps: vec![app(Path::new("/"), "worker.php", None)], ..crate::plan::tests::any() };
    let (ours, theirs) = wire::pair().unwrap();
    let (ours_of_old, theirs_of_old) = wire::pair().unwrap();
    let old = Front::of(2, Own::of(children[1].id()), ours_of_old);
    let master = Master {
        name: "hayate".into(),
        program: "/bin/false".into(),
        args: Vec::new(),
        signals: SignalFd::with_flags(&SigSet::empty(), SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
            .unwrap(),
        loading: None,
        plans: BTreeMap::from([(5, plan)]),
        last_plan: 5,
        adopted: 5,
        sockets: Sockets::default(),
        handed_in: HashMap::new(),
        front: Some(Front::of(3, Own::of(children[0].id()), ours)),
        last_front: 3,
        next: None,
        retired: vec![(old, Instant::now() + Duration::from_secs(600))],
        zygotes: Zygotes::default(),
        front_user: None,
        keys: None,
        served: true,
        restart_at: None,
        pause: PAUSES.0,
        reload_waits: false,
        end_by: None,
        asked_by_signal: false,
        over: None,
    };
    (master, [theirs, theirs_of_old])
}

fn message(random: &mut Random) -> ToMaster {
    let (zygote, plan) = (random.below(4) as u64, [0, 4, 5, 6, u64::MAX][random.below(5)]);
    match random.below(24) {
        0 => ToMaster::Adopted { plan },
        1 => ToMaster::Abandoned { plan },
        2..=6 => {
            let app = [0, 0, 0, 1, usize::MAX][random.below(5)];
            ToMaster::Launch {
                zygote,
                plan: if random.below(2) == 0 { 5 } else { plan },
                app,
                start: Start::default(),
            }
        }
        7..=9 => ToMaster::Kill { zygote },
        10..=15 => ToMaster::KillWorker { zygote },
        16 => ToMaster::Notify([Notice::Ready, Notice::Reloading][random.below(2)]),
        17 => ToMaster::Failed { why: "x".repeat(random.below(3)) },
        18 => ToMaster::LeftQuic,
        _ => ToMaster::Alive,
    }
}

#[test]
fn fuzz_sequences_of_a_hostile_front() {
    let children = [sleeper(), sleeper()];
    let (stranger, (shell, worker)) = (sleeper(), zygote());
    let (mut master, wires) = master(&[&children[0], &children[1]]);
    let victims: Vec<OwnedFd> =
        [stranger.id(), shell.id(), worker as u32, children[0].id(), children[1].id()]
            .into_iter()
            .map(|pid| open(pid as i32))
            .collect();
    hayate_fuzz::run("sequences of messages to the master", &[b""], &[b""], |random, _| {
        let number = [3, 3, 3, 2, 1, u64::MAX][random.below(6)];
        let message = message(random);
        let wanted = match message {
            ToMaster::Launch { .. } => [0, 3, 4, 5, 8][random.below(5)],
            _ => random.below(3),
        };
        let any = || match random.below(3) {
            0 => victims[random.below(victims.len())].try_clone().unwrap(),
            1 => std::fs::File::open("/dev/null").unwrap().into(),
            _ => std::fs::File::create("/dev/null").unwrap().into(),
        };
        let files: Vec<OwnedFd> = std::iter::repeat_with(any).take(wanted).collect();
        master.hear(number, message, files);
        // As a turn does.
        master.zygotes.ended();
        for wire in &wires {
            while wire::receive::<wire::ToFront>(wire).is_ok_and(|message| message.is_some()) {}
        }
        assert_eq!((master.adopted, master.plans.len()), (5, 1), "no other plan was ever handed out");
        assert!(victims.iter().all(|victim| !has_ended(victim, 0)), "somebody was killed who is no zygote's");
    });
    master.zygotes.end_all();
    let [one, two] = children;
    [one, two, stranger, shell].into_iter().for_each(end);
    rustix::process::kill_process(Pid::from_raw(worker).unwrap(), rustix::process::Signal::KILL).unwrap();
}

#[test]
fn what_a_front_asks_to_start_is_what_its_plan_says_or_nothing() {
    let children = [sleeper(), sleeper()];
    let (mut master, wires) = master(&[&children[0], &children[1]]);
    let files = || {
        std::iter::repeat_with(|| std::fs::File::create("/dev/null").unwrap().into())
            .take(5)
            .collect::<Vec<OwnedFd>>()
    };
    assert!(Files::from_list(files()).is_some());
    let mut ask = |plan: u64, app: usize, zygote: u64, files: Vec<OwnedFd>| {
        master.hear(3, ToMaster::Launch { zygote, plan, app, start: Start::default() }, files);
        match wire::receive::<wire::ToFront>(&wires[0]).unwrap().unwrap().0 {
            wire::ToFront::Started { .. } => Ok(()),
            wire::ToFront::NotStarted { why, .. } => Err(why),
            other => panic!("{other:?}"),
        }
    };
    assert!(ask(4, 0, 1, files()).unwrap_err().contains("has forgotten this configuration"));
    assert!(ask(5, 1, 1, files()).unwrap_err().contains("has forgotten this configuration"));
    assert!(ask(5, 0, 1, files().split_off(3)).unwrap_err().contains("too few descriptors"));
    assert_eq!(ask(5, 0, 1, files()), Ok(()));
    assert!(ask(5, 0, 1, files()).unwrap_err().contains("twice"));
    master.zygotes.end_all();
    children.into_iter().for_each(end);
}
