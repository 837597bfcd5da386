//! Addresses to listen on, and listening on them.

use std::{
    fmt, fs, io,
    net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs},
    os::{
        fd::OwnedFd,
        unix::fs::{FileTypeExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    str::FromStr,
};

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};
use serde::{Deserialize, Serialize};
use tokio::net::{TcpListener, UnixListener};

/// `127.0.0.1:8080`, `[::1]:80`, `:8080` or `8080` (all IPv4 interfaces), `[::]:8080` (all IPv6 interfaces), `localhost:8080`,
/// `unix:/path` or `/path`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ListenAddr {
    /// A TCP port.
    Tcp(SocketAddr),
    /// A unix socket.
    Unix(PathBuf),
    /// A UDP port, for HTTP/3. Nobody writes one: it stands beside a TCP port with TLS.
    Quic(SocketAddr),
}

impl FromStr for ListenAddr {
    type Err = String;
    fn from_str(text: &str) -> Result<ListenAddr, String> {
        if text == "unix:" {
            return Err("unix: is followed by a path, such as unix:/run/hayate/web.sock".into());
        }
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(ListenAddr::Unix(path.into()));
        }
        if text.starts_with('/') || text.starts_with("./") {
            return Ok(ListenAddr::Unix(text.into()));
        }
        let any = |port: &str| {
            port.parse::<u16>().ok().map(|port| SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port))
        };
        if let Some(addr) = any(text.strip_prefix(':').unwrap_or(text)) {
            return Ok(ListenAddr::Tcp(addr));
        }
        if let Ok(addr) = text.parse() {
            return Ok(ListenAddr::Tcp(addr));
        }
        match text.to_socket_addrs().ok().and_then(|mut addrs| addrs.next()) {
            Some(addr) => Ok(ListenAddr::Tcp(addr)),
            None => Err(format!(
                "'{text}' is no address to listen on; write 127.0.0.1:8080, [::1]:8080, :8080 or unix:/path/to.sock"
            )),
        }
    }
}

impl fmt::Display for ListenAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenAddr::Tcp(addr) => write!(f, "http://{addr}"),
            ListenAddr::Unix(path) => write!(f, "unix:{}", path.display()),
            ListenAddr::Quic(addr) => write!(f, "udp:{addr}"),
        }
    }
}

/// Bytes of datagrams that wait in the kernel, in each direction.
const UDP_BUFFER: usize = 2 << 20;

/// A socket that accepts connections.
pub enum Listener {
    /// TCP.
    Tcp(TcpListener),
    /// A unix socket.
    Unix(UnixListener),
}

impl ListenAddr {
    /// Whether the kernel lets only one of both listen: one of them is all addresses, that of the other included.
    pub fn overlaps(&self, other: &ListenAddr) -> bool {
        let (one, two) = match (self, other) {
            (ListenAddr::Tcp(one), ListenAddr::Tcp(two)) | (ListenAddr::Quic(one), ListenAddr::Quic(two)) => {
                (one, two)
            }
            _ => return false,
        };
        let any = one.ip().is_unspecified() || two.ip().is_unspecified();
        one != two && any && one.port() == two.port() && one.is_ipv4() == two.is_ipv4()
    }

    /// As [`Display`](fmt::Display), without what is spoken there, which not all know.
    pub fn place(&self) -> String {
        let text = self.to_string();
        text.strip_prefix("http://").map(str::to_owned).unwrap_or(text)
    }

    /// Binds and listens. The error names the address and what to do. The file of a unix socket is the caller's to remove.
    pub fn bind(&self) -> io::Result<OwnedFd> {
        let explain = |error: io::Error| {
            let remedy = match error.kind() {
                io::ErrorKind::AddrInUse if matches!(self, ListenAddr::Quic(_)) => {
                    "another program listens there, or this server had HTTP/3 there and has yet to end its connections; stop that program, try \
                     again in a minute, or choose another address"
                }
                io::ErrorKind::AddrInUse => {
                    "another program listens there; stop it or choose another address"
                }
                io::ErrorKind::AlreadyExists => {
                    "there is a file that is no socket; remove it or choose another path"
                }
                io::ErrorKind::PermissionDenied => {
                    "this user may not; choose a port above 1023, start as root with `user` set, or grant CAP_NET_BIND_SERVICE"
                }
                io::ErrorKind::AddrNotAvailable => "this machine has no such address",
                io::ErrorKind::NotFound => "its directory does not exist",
                _ => "see the reason above",
            };
            io::Error::new(error.kind(), format!("cannot listen on {}: {error}; {remedy}", self.place()))
        };
        match self {
            ListenAddr::Tcp(addr) => bind_tcp(addr).map_err(explain),
            ListenAddr::Unix(path) => bind_unix(path).map_err(explain),
            ListenAddr::Quic(addr) => bind_udp(addr).map_err(explain),
        }
    }
}

fn bind_tcp(addr: &SocketAddr) -> io::Result<OwnedFd> {
    let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if addr.is_ipv6() {
        // As nginx does: "[::]:80" leaves IPv4 to ":80", so that both can be listened to.
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    bind(&socket, addr)?;
    // The kernel caps it at net.core.somaxconn.
    listen(&socket, 4096)?;
    Ok(socket)
}

fn bind_udp(addr: &SocketAddr) -> io::Result<OwnedFd> {
    let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::DGRAM, flags, None)?;
    if addr.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    // All connections share the socket's queues. The kernel caps it at net.core.rmem_max, and what it gives is enough to work with.
    let _ = sockopt::set_socket_recv_buffer_size(&socket, UDP_BUFFER);
    let _ = sockopt::set_socket_send_buffer_size(&socket, UDP_BUFFER);
    bind(&socket, addr)?;
    Ok(socket)
}

fn bind_unix(path: &Path) -> io::Result<OwnedFd> {
    if let Ok(there) = fs::symlink_metadata(path) {
        if !there.file_type().is_socket() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        // A socket that nobody listens on any more refuses connections.
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        fs::remove_file(path)?;
    }
    let listener = std::os::unix::net::UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
    listener.set_nonblocking(true)?;
    Ok(listener.into())
}

impl Listener {
    /// Accepts from what [`ListenAddr::bind`] made. Needs a tokio runtime.
    pub fn adopt(addr: &ListenAddr, socket: OwnedFd) -> io::Result<Listener> {
        Ok(match addr {
            ListenAddr::Tcp(_) => Listener::Tcp(TcpListener::from_std(socket.into())?),
            ListenAddr::Unix(_) => Listener::Unix(UnixListener::from_std(socket.into())?),
            // It accepts nothing: see `quic.rs`.
            ListenAddr::Quic(_) => return Err(io::ErrorKind::InvalidInput.into()),
        })
    }

    /// The address that it accepts at.
    pub fn addr(&self) -> Option<ListenAddr> {
        match self {
            Listener::Tcp(listener) => listener.local_addr().ok().map(ListenAddr::Tcp),
            Listener::Unix(listener) => {
                Some(ListenAddr::Unix(listener.local_addr().ok()?.as_pathname()?.to_owned()))
            }
        }
    }

    /// Binds and accepts.
    pub fn bind(addr: &ListenAddr) -> io::Result<Listener> {
        Listener::adopt(addr, addr.bind()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let tcp = |text: &str| ListenAddr::Tcp(text.parse().unwrap());
        assert_eq!("127.0.0.1:80".parse(), Ok(tcp("127.0.0.1:80")));
        assert_eq!(":80".parse(), Ok(tcp("0.0.0.0:80")));
        assert_eq!("8080".parse(), Ok(tcp("0.0.0.0:8080")));
        assert_eq!("[::1]:80".parse(), Ok(tcp("[::1]:80")));
        assert_eq!("unix:/a b".parse(), Ok(ListenAddr::Unix("/a b".into())));
        assert_eq!("/run/x.sock".parse(), Ok(ListenAddr::Unix("/run/x.sock".into())));
        assert!("nonsense".parse::<ListenAddr>().unwrap_err().contains("nonsense"));
        assert!("127.0.0.1:99999".parse::<ListenAddr>().is_err());
        assert!("unix:".parse::<ListenAddr>().unwrap_err().contains("is followed by a path"));
    }

    #[test]
    fn what_is_no_socket_is_not_taken_for_a_server() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "kept").unwrap();
        let error = ListenAddr::Unix(path.clone()).bind().unwrap_err().to_string();
        assert!(
            error.ends_with("there is a file that is no socket; remove it or choose another path"),
            "{error}"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), "kept");
    }
}
