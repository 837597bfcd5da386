//! Reads the configuration in a process of its own, as the user who started the server: the file may be readable by root alone, looking
//! users up may load code of others, and a slow disk must not hold up the master.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read, Seek, Write},
    os::{
        fd::{AsFd, FromRawFd, OwnedFd},
        unix::process::CommandExt,
    },
    process::{Child, Command, ExitCode, ExitStatus},
};

use command_fds::{CommandFdExt, FdMapping};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

use super::{PROGRAM, children::hear_signals};
use crate::{args::ServeArgs, plan::Plan};

/// Where the child writes what it has read.
const OUTCOME: i32 = 3;

type Outcome = Result<Plan, String>;

/// `hayate load-plan`: what the child does.
pub fn run(args: &ServeArgs) -> ExitCode {
    let outcome: Outcome = Plan::load(args).map_err(|error| error.to_string());
    // SAFETY: the master has started this process with this descriptor, and nobody else here knows of it.
    let mut file = unsafe { File::from_raw_fd(OUTCOME) };
    let written =
        serde_json::to_vec(&outcome).map_err(io::Error::other).and_then(|text| file.write_all(&text));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hayate: the plan cannot be handed over: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A configuration that is being read.
pub struct Loading {
    child: Child,
    file: File,
    /// The front's request; `None` for the start.
    pub request: Option<u64>,
}

impl Loading {
    /// Starts to read what these arguments of `serve` name.
    pub fn start(args: &[OsString], request: Option<u64>) -> io::Result<Loading> {
        let file = File::from(memfd_create("hayate-plan", MemfdFlags::CLOEXEC)?);
        let mut command = Command::new(PROGRAM);
        command.arg("load-plan").args(args).env_remove("NOTIFY_SOCKET");
        let mapping = FdMapping { parent_fd: file.as_fd().try_clone_to_owned()?, child_fd: OUTCOME };
        command.fd_mappings(vec![mapping]).map_err(io::Error::other)?;
        // SAFETY: a system call only.
        unsafe { command.pre_exec(hear_signals) };
        Ok(Loading { child: command.spawn()?, file, request })
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
        match read {
            Ok(_) if !status.success() => {
                Err(format!("the process that reads the configuration ended with {status}"))
            }
            Ok(_) => serde_json::from_slice(&text).unwrap_or_else(|error| Err(error.to_string())),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Ends it: another takes its place.
    pub fn give_up(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A plan as a file that nobody can change any more, without what only PHP's processes need to know.
pub fn sealed(plan: &Plan) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create("hayate-plan", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
    file.write_all(&serde_json::to_vec(&plan.without_secrets())?)?;
    fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file.into())
}
