//! The guard's side: one thread that waits for orders and for the end of processes.

use std::{
    collections::HashSet,
    fs::{self, File, OpenOptions, Permissions},
    io::{self, BufRead, BufReader, Read, Write},
    os::{
        fd::AsFd,
        unix::{fs::PermissionsExt, net::UnixStream, process::CommandExt},
    },
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use nix::{
    errno::Errno,
    sys::{
        signal::{self, kill},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};
use rustix::event::{PollFd, PollFlags, poll};

use super::{
    KILL_TIME,
    protocol::{Event, Order, Signal, Spawn},
    remove,
};
use crate::proc;

/// `hayate-lab guard`, which only the lab itself calls.
#[derive(Debug, clap::Args)]
pub struct GuardArgs {
    /// The directory to make, and to remove in the end
    pub dir: PathBuf,
    /// Whom processes run as, UID:GID
    #[arg(long)]
    pub user: Option<String>,
}

/// What a guard does not heed: it ends with its orders alone.
const IGNORED: [signal::Signal; 4] = [signal::SIGINT, signal::SIGTERM, signal::SIGHUP, signal::SIGPIPE];

/// Waits for orders until there are no more.
///
/// # Errors
/// The directory cannot be made, or the kernel refuses what a guard needs.
pub fn run(args: &GuardArgs) -> Result<ExitCode> {
    let user = match &args.user {
        None => None,
        Some(text) => {
            let (uid, gid) = text.split_once(':').context("--user UID:GID")?;
            Some((uid.parse::<u32>()?, gid.parse::<u32>()?))
        }
    };
    // A session of its own: Ctrl-C at the terminal is for the lab alone.
    nix::unistd::setsid().context("setsid")?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .context("PR_SET_CHILD_SUBREAPER")?;
    for signal in IGNORED {
        // SAFETY: ignoring a signal installs no handler.
        unsafe { signal::signal(signal, signal::SigHandler::SigIgn) }.context("ignoring signals")?;
    }
    raise_descriptor_limit();

    fs::create_dir(&args.dir).with_context(|| args.dir.display().to_string())?;
    fs::set_permissions(&args.dir, Permissions::from_mode(0o755))?;
    if let Some((uid, gid)) = user {
        std::os::unix::fs::chown(&args.dir, Some(uid), Some(gid))?;
    }
    let done = serve(user);
    kill_descendants();
    let removed = remove(&args.dir).with_context(|| args.dir.display().to_string());
    done.and(removed).map(|()| ExitCode::SUCCESS)
}

/// A server with many connections needs more than the usual 1024 descriptors.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If it is refused the limit stays as it was, and the engine says when it is too low.
    let _ = setrlimit(Resource::Nofile, limit);
}

fn serve(user: Option<(u32, u32)>) -> Result<()> {
    let (mut children_ended, handler_end) = UnixStream::pair()?;
    children_ended.set_nonblocking(true)?;
    signal_hook::low_level::pipe::register(signal_hook::consts::SIGCHLD, handler_end)?;
    let mut orders = BufReader::new(io::stdin());
    let mut started: HashSet<i32> = HashSet::new();
    say(&Event::Ready)?;
    loop {
        let stdin = io::stdin();
        let mut descriptors = [
            PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(children_ended.as_fd(), PollFlags::IN),
        ];
        if orders.buffer().is_empty() {
            match poll(&mut descriptors, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error).context("poll"),
            }
        }
        let has_order = !orders.buffer().is_empty() || !descriptors[0].revents().is_empty();
        let mut sink = [0; 64];
        while matches!(children_ended.read(&mut sink), Ok(n) if n > 0) {}
        reap(&mut started)?;
        if has_order {
            let mut line = String::new();
            if orders.read_line(&mut line)? == 0 {
                return Ok(());
            }
            match serde_json::from_str(&line).context("an order")? {
                Order::Spawn(spawn) => match start(&spawn, user) {
                    Ok(pid) => {
                        started.insert(pid);
                        say(&Event::Started { pid })?;
                    }
                    Err(error) => say(&Event::NotStarted { error: format!("{error:#}") })?,
                },
                Order::Signal { pid, signal } => {
                    // One that was reaped may have given its number to a stranger.
                    if started.contains(&pid) {
                        let _ = kill(Pid::from_raw(pid), signal::Signal::from(signal));
                    }
                }
                Order::KillAll => {
                    let count = kill_descendants();
                    started.clear();
                    say(&Event::Killed { count })?;
                }
            }
        }
    }
}

impl From<Signal> for signal::Signal {
    fn from(signal: Signal) -> Self {
        match signal {
            Signal::Term => Self::SIGTERM,
            Signal::Quit => Self::SIGQUIT,
            Signal::Int => Self::SIGINT,
            Signal::Kill => Self::SIGKILL,
        }
    }
}

/// An error means that the lab is gone: its end of the pipe is closed.
fn say(event: &Event) -> Result<()> {
    let mut line = serde_json::to_string(event)?;
    line.push('\n');
    let mut output = io::stdout().lock();
    output.write_all(line.as_bytes())?;
    Ok(output.flush()?)
}

fn start(spawn: &Spawn, user: Option<(u32, u32)>) -> Result<i32> {
    let [program, arguments @ ..] = &spawn.command[..] else { anyhow::bail!("an empty command") };
    let log = append(&spawn.log, user)?;
    let output = match &spawn.output {
        None => log.try_clone()?,
        Some(path) => File::create(path).with_context(|| path.display().to_string())?,
    };
    let path = spawn.env.get("PATH").map_or("", String::as_str);
    let program =
        proc::find_command(program, path).with_context(|| format!("{program}: not found in {path}"))?;
    let mut command = Command::new(&program);
    command
        .args(arguments)
        .env_clear()
        .envs(&spawn.env)
        .current_dir(&spawn.cwd)
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(log)
        .process_group(0);
    if let Some((uid, gid)) = user
        && !spawn.as_lab
    {
        command.uid(uid).gid(gid);
    }
    let cpus = proc::cpu_set(&spawn.cpus)?;
    // SAFETY: between fork and exec only system calls are made, and nothing is allocated. The death signal comes after the
    // change of user, which clears it.
    unsafe {
        command.pre_exec(move || {
            // An ignored signal stays ignored after exec.
            for signal in IGNORED {
                signal::signal(signal, signal::SigHandler::SigDfl)?;
            }
            if let Some(cpus) = &cpus {
                nix::sched::sched_setaffinity(Pid::from_raw(0), cpus)?;
            }
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
            Ok(())
        });
    }
    let child = command.spawn().with_context(|| program.display().to_string())?;
    Ok(i32::try_from(child.id())?)
}

fn append(path: &Path, user: Option<(u32, u32)>) -> Result<File> {
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .with_context(|| path.display().to_string())?;
    if let Some((uid, gid)) = user {
        // Servers open /dev/stderr again as the user they run as.
        std::os::unix::fs::fchown(&file, Some(uid), Some(gid))?;
    }
    Ok(file)
}

/// Takes note of children that have ended, orphans of the servers included.
fn reap(started: &mut HashSet<i32>) -> Result<()> {
    loop {
        let (pid, code, how) = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) => (pid, Some(code), format!("ended with status {code}")),
            Ok(WaitStatus::Signaled(pid, signal, _)) => (pid, None, format!("was ended by {signal}")),
            Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return Ok(()),
            Ok(_) | Err(Errno::EINTR) => continue,
            Err(error) => return Err(error).context("waitpid"),
        };
        if started.remove(&pid.as_raw()) {
            say(&Event::Exited { pid: pid.as_raw(), code, how })?;
        }
    }
}

/// Kills until nothing is left; a process may fork while it is being killed. Says how many there were.
fn kill_descendants() -> usize {
    let me = std::process::id().cast_signed();
    let end = Instant::now() + KILL_TIME;
    let mut killed = HashSet::new();
    loop {
        let alive = proc::descendants(me);
        if alive.is_empty() || Instant::now() > end {
            return killed.len();
        }
        for process in &alive {
            if process.state != 'Z' {
                killed.insert(process.pid);
                let _ = kill(Pid::from_raw(process.pid), signal::SIGKILL);
            }
        }
        // Only direct children can be waited for; the others come here when their parents are dead.
        while matches!(waitpid(None, Some(WaitPidFlag::WNOHANG)), Ok(status) if status != WaitStatus::StillAlive)
        {
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
