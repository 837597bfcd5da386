//! Addresses to listen on, and listening on them.

use std::{
    fmt, fs, io,
    net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs},
    os::unix::fs::{FileTypeExt, PermissionsExt},
    path::PathBuf,
    str::FromStr,
};

use tokio::net::{TcpListener, TcpSocket, UnixListener};

/// `127.0.0.1:8080`, `[::1]:80`, `:8080` or `8080` (all IPv4 interfaces), `[::]:8080` (all IPv6 interfaces), `localhost:8080`,
/// `unix:/path` or `/path`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ListenAddr {
    /// A TCP port.
    Tcp(SocketAddr),
    /// A unix socket.
    Unix(PathBuf),
}

impl FromStr for ListenAddr {
    type Err = String;
    fn from_str(text: &str) -> Result<ListenAddr, String> {
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
        }
    }
}

/// A socket that accepts connections.
pub enum Listener {
    /// TCP.
    Tcp(TcpListener),
    /// A unix socket; its file is removed when this is dropped.
    Unix(UnixListener, PathBuf),
}

impl Listener {
    /// Binds and listens. The error names the address and what to do.
    pub fn bind(addr: &ListenAddr) -> io::Result<Listener> {
        let explain = |error: io::Error| {
            let remedy = match error.kind() {
                io::ErrorKind::AddrInUse => {
                    "another program listens there; stop it or choose another address"
                }
                io::ErrorKind::PermissionDenied => {
                    "this user may not; choose a port above 1023, start as root with `user` set, or grant CAP_NET_BIND_SERVICE"
                }
                io::ErrorKind::AddrNotAvailable => "this machine has no such address",
                io::ErrorKind::NotFound => "its directory does not exist",
                _ => "see the reason above",
            };
            io::Error::new(error.kind(), format!("cannot listen on {addr}: {error}; {remedy}"))
        };
        match addr {
            ListenAddr::Tcp(socket_addr) => {
                let bind = || {
                    let socket =
                        if socket_addr.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
                    socket.set_reuseaddr(true)?;
                    if socket_addr.is_ipv6() {
                        // As nginx does: "[::]:80" leaves IPv4 to ":80", so that both can be listened to.
                        rustix::net::sockopt::set_ipv6_v6only(&socket, true)?;
                    }
                    socket.bind(*socket_addr)?;
                    // The kernel caps it at net.core.somaxconn.
                    socket.listen(4096)
                };
                bind().map(Listener::Tcp).map_err(explain)
            }
            ListenAddr::Unix(path) => {
                let bind = || {
                    if fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket()) {
                        // A socket that nobody listens on any more refuses connections.
                        if std::os::unix::net::UnixStream::connect(path).is_ok() {
                            return Err(io::ErrorKind::AddrInUse.into());
                        }
                        fs::remove_file(path)?;
                    }
                    let listener = UnixListener::bind(path)?;
                    fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
                    Ok(listener)
                };
                bind().map(|listener| Listener::Unix(listener, path.clone())).map_err(explain)
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Unix(_, path) = self {
            let _ = fs::remove_file(path);
        }
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
    }
}
