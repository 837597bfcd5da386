//! Sockets that a service manager hands in (sd_listen_fds(3)): they are used by the listeners that have the same address.
//!
//! It promises: what is taken is a stream socket that listens, or one of UDP (for HTTP/3), and no process that is started gets it by accident. They stay open for as long as
//! the server lives, whoever uses them, since their addresses cannot be bound again; their files are the manager's.

use std::{
    collections::HashMap,
    os::{
        fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd},
        unix::ffi::OsStrExt,
    },
    path::PathBuf,
};

use anyhow::{Context, Result, bail};
use hayate_front::ListenAddr;
use rustix::{
    io::{FdFlags, fcntl_getfd, fcntl_setfd, ioctl_fionbio},
    net::{SocketAddrUnix, SocketType, getsockname, ipproto, sockopt},
};

/// The variables of sd_listen_fds(3). They are this process' own; a program that takes its place by exec must not see them.
pub const VARIABLES: [&str; 4] = ["LISTEN_PID", "LISTEN_PIDFDID", "LISTEN_FDS", "LISTEN_FDNAMES"];
/// More than a server has addresses.
const MOST: usize = 256;

/// Takes what was handed in. To be called once, before anything is started.
pub fn take() -> Result<HashMap<ListenAddr, OwnedFd>> {
    let numbers = sd_notify::listen_fds().context(
        "what LISTEN_PID and LISTEN_FDS say is not so: the first is a process, the second how many descriptors are open from 3 on",
    )?;
    if numbers.len() > MOST {
        bail!("LISTEN_FDS names {} descriptors; at most {MOST} can be handed in", numbers.len());
    }
    let named = numbers.map(|number| {
        let socket = own(number).with_context(|| format!("descriptor {number} of LISTEN_FDS is not open"))?;
        let addr = address(&socket).with_context(|| {
            format!("descriptor {number} of LISTEN_FDS cannot be served: expected a stream socket that listens (ListenStream=, Accept=no), or one of UDP for HTTP/3 (ListenDatagram=)")
        })?;
        Ok((addr, socket))
    });
    named.collect()
}

fn own(number: RawFd) -> rustix::io::Result<OwnedFd> {
    // SAFETY: only asked about; an error says that it is not open.
    let there = unsafe { BorrowedFd::borrow_raw(number) };
    fcntl_getfd(there)?;
    fcntl_setfd(there, FdFlags::CLOEXEC)?;
    // SAFETY: it is open, the manager gave it to this process, and nobody else here knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

fn address(socket: &OwnedFd) -> Result<ListenAddr> {
    let kind = sockopt::socket_type(socket)?;
    // Not what else has datagrams, such as the sockets of ping.
    let udp = kind == SocketType::DGRAM && sockopt::socket_protocol(socket)? == Some(ipproto::UDP);
    if !udp && (kind != SocketType::STREAM || !sockopt::socket_acceptconn(socket)?) {
        bail!("it is another kind of socket");
    }
    ioctl_fionbio(socket, true)?;
    let name = getsockname(socket)?;
    if let Ok(addr) = std::net::SocketAddr::try_from(name.clone()) {
        return Ok(if udp { ListenAddr::Quic(addr) } else { ListenAddr::Tcp(addr) });
    }
    if udp {
        bail!("it has no address of the Internet");
    }
    let name = SocketAddrUnix::try_from(name).ok().context("it has no address that is known here")?;
    let path = name.path().context("it has no path")?;
    Ok(ListenAddr::Unix(PathBuf::from(std::ffi::OsStr::from_bytes(path.to_bytes()))))
}
