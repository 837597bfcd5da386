//! `hayate upgrade`: the master becomes the program that is installed now, in the same process. Sockets and children stay; what is
//! known of them goes through a file without a name.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::File,
    io::{self, Read, Seek, Write},
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
    path::Path,
    time::Duration,
};

use anyhow::{Context, Result};
use rustix::{
    fs::{MemfdFlags, memfd_create},
    io::{FdFlags, fcntl_setfd},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{activation, program::Program, sockets::Numbers};
use crate::plan::Plan;

/// To be raised with every change of [`State`], the plan or the wire that an old front or a new program would misread. What a new program cannot
/// read at all is seen without it: [`try_state`].
pub const FORMAT: u32 = 6;
/// Names the descriptor of the state.
pub const VARIABLE: &str = "HAYATE_HANDOVER";
/// Names the descriptor of a state that is only to be read, before anything depends on it.
pub const TRIAL: &str = "HAYATE_HANDOVER_TRIAL";

/// What a master leaves to the one that takes its place.
#[derive(Serialize, Deserialize)]
pub struct State {
    pub sockets: Numbers,
    /// The plan that is served, and its number.
    pub plan: Plan,
    pub adopted: u64,
    /// The others that are remembered: of a reload under way, and of generations that still finish.
    #[serde(default)]
    pub others: BTreeMap<u64, Plan>,
    /// A SIGHUP waits for the end of the upgrade.
    #[serde(default)]
    pub reload_waits: bool,
    pub last_plan: u64,
    /// The front's number, process and wire.
    pub front: (u64, u32, RawFd),
    /// The same of fronts that were replaced, with the time in which they have to end.
    pub retired: Vec<((u64, u32, RawFd), Duration)>,
    /// As [`super::children::Zygotes::list`].
    pub zygotes: Vec<(u64, u64, u32)>,
    /// The front's request, to be answered once another one serves or does not.
    pub request: u64,
}

impl State {
    fn descriptors(&self) -> Vec<RawFd> {
        let mut all = self.sockets.all();
        all.push(self.front.2);
        all.extend(self.retired.iter().map(|(front, _)| front.2));
        all
    }
}

fn keep_open(descriptors: &[RawFd], keep: bool) -> io::Result<()> {
    for descriptor in descriptors {
        // SAFETY: the caller's, and open; only a flag is set.
        let descriptor = unsafe { BorrowedFd::borrow_raw(*descriptor) };
        fcntl_setfd(descriptor, if keep { FdFlags::empty() } else { FdFlags::CLOEXEC })?;
    }
    Ok(())
}

/// Becomes `program`. Returns only when that is not possible; then everything is as before.
pub fn become_program(program: &Path, name: &OsString, args: &[OsString], state: &State) -> io::Error {
    let attempt = || {
        let file = written(state)?;
        let mut descriptors = state.descriptors();
        descriptors.push(file.as_raw_fd());
        let mut arguments = vec![name.as_os_str(), "serve".as_ref()];
        arguments.extend(args.iter().map(OsString::as_os_str));
        let state = (VARIABLE, file.as_raw_fd().to_string().into());
        // Those descriptors are in the state; by these numbers they may be others now.
        let program = Program::new(program, &arguments, &activation::VARIABLES, &[state])?;
        keep_open(&descriptors, true)?;
        let error = program.execute();
        keep_open(&descriptors, false)?;
        Err::<(), _>(error)
    };
    attempt().err().unwrap_or_else(|| io::ErrorKind::Other.into())
}

/// The state as a file without a name.
pub fn written(state: &State) -> io::Result<File> {
    let mut file = File::from(memfd_create("hayate-handover", MemfdFlags::CLOEXEC)?);
    file.write_all(&serde_json::to_vec(state)?)?;
    Ok(file)
}

/// Sees whether this program can read what the master that has started it would leave. Once it has taken that one's place it is too late: an error
/// then is the server's end.
pub fn try_state() -> Result<(), String> {
    match read::<State>(TRIAL) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!(
            "the installed program cannot take over from the one that runs, of which it does not understand {error:#}; restart"
        )),
    }
}

/// What a master before this one has left; `None`: there was none.
pub fn take() -> Result<Option<State>> {
    read(VARIABLE).context("what the master before left")
}

/// What lies in the file whose descriptor a variable names; `None`: it is not set.
fn read<T: DeserializeOwned>(variable: &str) -> Result<Option<T>> {
    let Some(number) = std::env::var_os(variable) else { return Ok(None) };
    let number: RawFd = number
        .to_str()
        .and_then(|text| text.parse().ok())
        .with_context(|| format!("{variable}, which is no number"))?;
    let mut file = File::from(own(number).with_context(|| format!("{variable}, which names no open file"))?);
    let mut text = String::new();
    file.rewind()?;
    file.read_to_string(&mut text)?;
    Ok(Some(serde_json::from_str(&text)?))
}

/// Takes over a descriptor that was kept open for this program.
pub fn own(number: RawFd) -> io::Result<OwnedFd> {
    if number <= 2 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    keep_open(&[number], false)?;
    // SAFETY: it is open, and the state names each descriptor once; nothing else in this program knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
