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
    path::Path,
    process::{Child, Command, ExitCode, ExitStatus},
};

use command_fds::{CommandFdExt, FdMapping};
use hayate_certificates::Pair;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use serde::{Deserialize, Serialize};

use super::{
    children::hear_signals,
    handover::{FORMAT, VARIABLE},
};
use crate::{
    args::ServeArgs,
    plan::Plan,
    privileges::{Identity, keep_to_itself},
};

/// Where the child writes what it has read.
const OUTCOME: i32 = 3;

/// What the child has to say. A program of another version may say more.
#[derive(Serialize, Deserialize)]
struct Told {
    /// Whether that program can take over from this one: [`super::handover::FORMAT`].
    format: u32,
    outcome: Outcome,
}

type Outcome = Result<Plan, String>;

/// `hayate load-plan`: what the child does.
pub fn run(args: &ServeArgs) -> ExitCode {
    if let Err(error) = keep_to_itself() {
        eprintln!("hayate: prctl: {error}");
        return ExitCode::FAILURE;
    }
    let outcome = Plan::load(args).map_err(|error| error.to_string()).and_then(|plan| {
        if let Some(tls) = &plan.tls {
            tls.prepare_storage(plan.front.as_ref().map(Identity::uid))?;
        }
        Ok(plan)
    });
    let told = Told { format: FORMAT, outcome };
    // SAFETY: the master has started this process with this descriptor, and nobody else here knows of it.
    let mut file = unsafe { File::from_raw_fd(OUTCOME) };
    let written = serde_json::to_vec(&told).map_err(io::Error::other).and_then(|text| file.write_all(&text));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hayate: the plan cannot be handed over: {error}");
            ExitCode::FAILURE
        }
    }
}

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
    file: File,
    /// What for.
    pub purpose: Purpose,
}

impl Loading {
    /// Has a program read what these arguments of `serve` name.
    pub fn start(program: &Path, args: &[OsString], purpose: Purpose) -> io::Result<Loading> {
        let file = File::from(memfd_create("hayate-plan", MemfdFlags::CLOEXEC)?);
        let mut command = Command::new(program);
        command.arg("load-plan").args(args).env_remove("NOTIFY_SOCKET").env_remove(VARIABLE);
        let mapping = FdMapping { parent_fd: file.as_fd().try_clone_to_owned()?, child_fd: OUTCOME };
        command.fd_mappings(vec![mapping]).map_err(io::Error::other)?;
        // SAFETY: a system call only.
        unsafe { command.pre_exec(hear_signals) };
        Ok(Loading { child: command.spawn()?, file, purpose })
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
            Ok(_) => match serde_json::from_slice::<serde_json::Value>(&text) {
                // A plan of another version need not be one of this one.
                Ok(told) if told.get("format").is_none_or(|format| *format != FORMAT) => {
                    Err("it cannot take over from this version; restart".into())
                }
                Ok(told) => serde_json::from_value(told.get("outcome").cloned().unwrap_or_default())
                    .unwrap_or_else(|error| Err(error.to_string())),
                Err(error) => Err(error.to_string()),
            },
            Err(error) => Err(error.to_string()),
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
