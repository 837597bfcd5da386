//! A TCP port for a server that takes no socket, only a number.
//!
//! It promises that nobody takes the port between the choice and the server's start: it lies below those that the kernel gives to
//! connections and to who asks for any, and while this lives a name among the unix sockets keeps it from other runs. The test suite's
//! `free_port()` uses the same names.

use std::{
    fs, io,
    net::{Ipv4Addr, TcpListener},
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener},
    },
    sync::atomic::{AtomicU16, Ordering},
};

use anyhow::{Result, bail};

/// Below, services have their ports.
const FIRST: u16 = 10240;

/// A port that is ours as long as this lives.
#[derive(Debug)]
pub struct Port {
    /// Its number.
    pub number: u16,
    _name: UnixListener,
}

impl Port {
    /// Takes one that is free on all addresses.
    pub fn take() -> Result<Self> {
        let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
        let end = range.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(32768);
        // A run begins where others, which have other process ids, do not.
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let count = end.max(FIRST + 4096) - FIRST;
        let begin = std::process::id().wrapping_mul(2_654_435_761) % u32::from(count);
        for _ in 0..1000 {
            let step = u32::from(NEXT.fetch_add(1, Ordering::Relaxed));
            let number = FIRST + ((begin + step) % u32::from(count)) as u16;
            let name = SocketAddr::from_abstract_name(format!("hayate-port-{number}"))?;
            let Ok(name) = UnixListener::bind_addr(&name) else { continue };
            if is_free(number)? {
                return Ok(Self { number, _name: name });
            }
        }
        bail!("none of 1000 ports is free");
    }
}

/// On all addresses of IPv4, where the lab's servers listen.
fn is_free(port: u16) -> io::Result<bool> {
    match TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_taken_once() {
        let ports: Vec<Port> = (0..50).map(|_| Port::take().unwrap()).collect();
        for (i, port) in ports.iter().enumerate() {
            assert!(ports[..i].iter().all(|other| other.number != port.number));
            assert!(TcpListener::bind(("127.0.0.1", port.number)).is_ok());
        }
    }
}
