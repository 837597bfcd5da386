//! Reads the configuration in a process of its own, as the user who started the server: the file may be readable by root alone, looking
//! users up may load code of others, and a slow disk must not hold up the master.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Read, Seek, Write},
    os::{
        fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd},
        unix::{fs::MetadataExt, process::CommandExt},
    },
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, ExitStatus},
    time::{Duration, Instant},
};

use command_fds::{CommandFdExt, FdMapping};
use hayate_certificates::Pair;
use rustix::{
    fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create},
    io::fcntl_getfd,
};
use serde::{Deserialize, Serialize};

use super::{
    children::hear_signals,
    handover::{self, FORMAT, TRIAL, VARIABLE},
    program::Program,
};
use crate::{
    args::ServeArgs,
    plan::{Plan, Strictness},
    privileges::{Identity, keep_to_itself},
};

/// Where the child writes what it has read.
const OUTCOME: i32 = 3;
/// Where it finds the state that it would be left, if it is to take over.
const STATE: i32 = 4;
/// Tells the child of a server that serves the number of its fronts' user; empty: they have none of their own.
const FRONT_USER: &str = "HAYATE_FRONT_USER";

/// What the child has to say. A program of another version may say more.
#[derive(Serialize, Deserialize)]
struct Told {
    /// Whether that program can take over from this one: [`super::handover::FORMAT`].
    format: u32,
    outcome: Outcome,
}

type Outcome = Result<Plan, String>;

/// `hayate load-plan` and `load-first-plan`: what the child does.
pub fn run(args: &ServeArgs, strictness: Strictness) -> ExitCode {
    if let Err(error) = keep_to_itself() {
        crate::tell(&format!("prctl: {error}"));
        return ExitCode::FAILURE;
    }
    let Some(mut file) = outcome_file() else {
        crate::tell(
            "this reads the configuration for `hayate serve`, which starts it, and not by hand; `hayate check` looks at a configuration",
        );
        return ExitCode::from(2);
    };
    // Until there is an outcome, the file says what is being read. Without it the master knows less.
    let mut report = |what: &str| drop(write_anew(&mut file, what.as_bytes()));
    let plan = Plan::load_as(args, strictness, &mut report).map_err(|error| error.to_string());
    let outcome = handover::try_state().and(plan).and_then(|plan| {
        if let Some(why) = plan.serves_others_as_root() {
            return Err(why);
        }
        if let Some(tls) = &plan.tls {
            let user = match std::env::var(FRONT_USER) {
                Ok(kept) => kept.parse().ok(),
                Err(_) => plan.front.as_ref().map(Identity::uid),
            };
            tls.prepare_storage(user)?;
        }
        Ok(plan)
    });
    let told = Told { format: FORMAT, outcome };
    let written = serde_json::to_vec(&told).map_err(io::Error::other);
    let written = written.and_then(|text| write_anew(&mut file, &text));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            crate::tell(&format!("the plan cannot be handed over: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// What the master has opened for the outcome: a file in memory, without a name. Any other is somebody's own, and the plan holds secrets.
fn outcome_file() -> Option<File> {
    // SAFETY: only asked about; an error says that it is not open.
    fcntl_getfd(unsafe { BorrowedFd::borrow_raw(OUTCOME) }).ok()?;
    // SAFETY: it is open; the master has started this process with it, and nobody else here knows of it.
    let file = unsafe { File::from_raw_fd(OUTCOME) };
    file.metadata().is_ok_and(|file| file.is_file() && file.nlink() == 0).then_some(file)
}

fn write_anew(file: &mut File, text: &[u8]) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(text)
}

/// How long a configuration may take to be read. It takes milliseconds, but for a disk or a directory of users that is slow; one that hangs
/// must not leave those who wait for a plan without an answer.
const READING: Duration = Duration::from_secs(60);

/// What a configuration is read for. The numbers are the front's requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The first front.
    Start,
    /// The front that serves.
    Reload(u64),
    /// To see whether the installed program can take over.
    Upgrade(u64),
    /// A front of this program, which has just taken over.
    Successor(u64),
}

/// A configuration that is being read.
pub struct Loading {
    child: Child,
    program: PathBuf,
    file: File,
    /// What for.
    pub purpose: Purpose,
    started: Instant,
}

impl Loading {
    /// Has a program read what these arguments of `serve` name. `front_user`: whom the fronts of a server that serves become. `state`: what the program
    /// is to be left, for it to see whether it can read that.
    pub fn start(
        program: &Path,
        args: &[OsString],
        purpose: Purpose,
        front_user: Option<&Identity>,
        state: Option<File>,
    ) -> io::Result<Loading> {
        let file = File::from(memfd_create("hayate-plan", MemfdFlags::CLOEXEC)?);
        let (how, kept) = match purpose {
            Purpose::Start => ("load-first-plan", None),
            _ => ("load-plan", Some(front_user.map(|user| user.uid().to_string()).unwrap_or_default())),
        };
        let mut arguments: Vec<&OsStr> = vec![program.as_os_str(), how.as_ref()];
        arguments.extend(args.iter().map(OsString::as_os_str));
        let without = ["NOTIFY_SOCKET", VARIABLE, TRIAL, FRONT_USER];
        let user = kept.map(|user| (FRONT_USER, user.into()));
        let trial = state.is_some().then(|| (TRIAL, STATE.to_string().into()));
        let with: Vec<_> = user.into_iter().chain(trial).collect();
        let becomes = Program::new(program, &arguments, &without, &with)?;
        let mut command = Command::new(program);
        let mut mappings =
            vec![FdMapping { parent_fd: file.as_fd().try_clone_to_owned()?, child_fd: OUTCOME }];
        mappings.extend(state.map(|state| FdMapping { parent_fd: state.into(), child_fd: STATE }));
        command.fd_mappings(mappings).map_err(io::Error::other)?;
        // SAFETY: system calls only.
        unsafe {
            command.pre_exec(move || {
                hear_signals()?;
                Err(becomes.execute())
            })
        };
        let child = command.spawn()?;
        Ok(Loading { child, program: program.to_owned(), file, purpose, started: Instant::now() })
    }

    /// The child's process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether the child has ended, without waiting.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap_or_else(|_| Some(ExitStatus::default()))
    }

    /// What it has read, once it has ended.
    pub fn outcome(mut self, status: ExitStatus) -> Outcome {
        let mut text = Vec::new();
        let read = self.file.rewind().and_then(|()| self.file.read_to_end(&mut text));
        // What is installed may be anything.
        let (reader, remedy) = match self.purpose {
            Purpose::Upgrade(_) => (
                format!("{}, which reads the configuration,", self.program.display()),
                "; is it hayate, and whole? Install it again",
            ),
            _ => ("the process that reads the configuration".to_owned(), ""),
        };
        match read {
            Ok(_) if !status.success() => Err(format!("{reader} ended with {status}{remedy}")),
            Ok(_) => match serde_json::from_slice::<serde_json::Value>(&text) {
                // A plan of another version need not be one of this one.
                Ok(told) if told.get("format").is_none_or(|format| *format != FORMAT) => {
                    Err(format!("{} cannot take over from this version; restart", self.program.display()))
                }
                Ok(told) => serde_json::from_value(told.get("outcome").cloned().unwrap_or_default())
                    .unwrap_or_else(|error| Err(format!("{reader} says what is no plan ({error}){remedy}"))),
                Err(error) => Err(format!("{reader} says what is no plan ({error}){remedy}")),
            },
            Err(error) => Err(error.to_string()),
        }
    }

    /// When it is late.
    pub fn due(&self) -> Instant {
        self.started + READING
    }

    /// Ends it, since it is late. Returns what it was about.
    pub fn give_up_late(mut self) -> String {
        let mut what = Vec::new();
        let read = self.file.rewind().and_then(|()| (&self.file).take(1000).read_to_end(&mut what));
        let what = String::from_utf8_lossy(&what).replace(char::is_control, "?");
        self.give_up();
        match read {
            Ok(n) if n > 0 => format!(
                "the configuration was not read within {} s; what hangs is {what}: look at the disks that it names",
                READING.as_secs()
            ),
            _ => format!("the configuration was not read within {} s", READING.as_secs()),
        }
    }

    /// Ends it: another takes its place. It is reaped with the strangers: a disk that hangs may keep it for long.
    pub fn give_up(mut self) {
        let _ = self.child.kill();
    }
}

/// Certificates as a file that nobody can change any more.
pub fn sealed_pairs(pairs: &[Pair]) -> io::Result<OwnedFd> {
    seal(&serde_json::to_vec(pairs)?)
}

/// A plan as a file that nobody can change any more, without what only PHP's processes need to know.
pub fn sealed(plan: &Plan) -> io::Result<OwnedFd> {
    seal(&serde_json::to_vec(&plan.without_secrets())?)
}

fn seal(bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create("hayate-plan", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
    file.write_all(bytes)?;
    fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt, thread};

    use nix::{
        sys::{
            signal::Signal,
            wait::{WaitStatus, waitpid},
        },
        unistd::Pid,
    };

    use super::*;

    #[test]
    fn what_hangs_is_named_and_its_reader_ended() {
        let dir = tempfile::tempdir().unwrap();
        let reader = dir.path().join("reader");
        fs::write(&reader, "#!/bin/sh\nprintf \"application 'a'\" >&3\nexec sleep 60\n").unwrap();
        fs::set_permissions(&reader, fs::Permissions::from_mode(0o755)).unwrap();
        let loading = Loading::start(&reader, &[], Purpose::Reload(1), None, None).unwrap();
        assert!(loading.due() > Instant::now(), "it is not late yet");
        while loading.file.metadata().unwrap().len() == 0 {
            thread::yield_now();
        }
        let pid = Pid::from_raw(loading.pid() as i32);
        let said = loading.give_up_late();
        assert!(said.contains("what hangs is application 'a'"), "{said}");
        assert_eq!(waitpid(pid, None).unwrap(), WaitStatus::Signaled(pid, Signal::SIGKILL, false));
    }
}
