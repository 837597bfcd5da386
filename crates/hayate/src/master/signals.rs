//! Which signals are the server's, and what keeps all others from ending it.
//!
//! The kernel ends a process at most signals that it has no use for. Timers of others, a wrong number, `kill -s` with what means something to another
//! server: none of that is a reason to cut visitors off. So the master takes in whatever can be taken in, and a front ignores what it does not know.

use nix::sys::signal::{SigHandler, SigSet, Signal, signal};

/// What is not for a descriptor: faults of the program itself, what stops it and has it go on, and what the kernel does nothing about.
const LEFT: [Signal; 13] = [
    Signal::SIGSEGV,
    Signal::SIGBUS,
    Signal::SIGFPE,
    Signal::SIGILL,
    Signal::SIGABRT,
    Signal::SIGSYS,
    Signal::SIGTRAP,
    Signal::SIGTSTP,
    Signal::SIGTTIN,
    Signal::SIGTTOU,
    Signal::SIGCONT,
    Signal::SIGURG,
    Signal::SIGWINCH,
];
/// What a front does not know, and would die of. The signals of real time come on top.
const UNKNOWN: [Signal; 9] = [
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGVTALRM,
    Signal::SIGPROF,
    Signal::SIGIO,
    Signal::SIGPWR,
    Signal::SIGSTKFLT,
    Signal::SIGXCPU,
    Signal::SIGXFSZ,
];

/// Those that the master hears of by its descriptor, those of real time included.
pub fn heard() -> SigSet {
    let mut all = SigSet::all();
    LEFT.into_iter().for_each(|signal| all.remove(signal));
    all
}

/// Ignores what a front does not know; the program that is executed then inherits that. System calls only, fit to be called after a fork.
pub fn ignore_unknown() -> std::io::Result<()> {
    for unknown in UNKNOWN {
        // SAFETY: no handler is installed.
        unsafe { signal(unknown, SigHandler::SigIgn) }?;
    }
    for unknown in libc::SIGRTMIN()..=libc::SIGRTMAX() {
        // SAFETY: as above; nix has no names for these.
        unsafe { libc::signal(unknown, libc::SIG_IGN) };
    }
    Ok(())
}
