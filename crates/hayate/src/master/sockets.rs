//! What the master holds for as long as the server lives: the listening sockets and the pid file. A front that is started again gets
//! the same sockets, so meanwhile connections wait instead of being refused.

use std::{
    collections::HashMap,
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::{
        fd::{AsFd, AsRawFd, OwnedFd, RawFd},
        unix::{
            fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt},
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, anyhow};
use hayate_front::ListenAddr;
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

use crate::{plan::Plan, privileges::is_root};

/// Where `serve` puts its control socket and the other commands look for it when nobody says otherwise. `None`: this user has no place
/// for it.
pub fn default_control() -> Option<PathBuf> {
    if is_root() {
        return Some(crate::control::SYSTEM_CONTROL.into());
    }
    // Empty or relative it counts as unset (XDG Base Directory Specification).
    let directory =
        std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|directory| directory.is_absolute());
    directory.map(|directory| directory.join("hayate.sock"))
}

/// All of them. Files of unix sockets go with it.
#[derive(Default)]
pub struct Sockets {
    /// What all fronts of this server derive keys of QUIC from, so that clients of one that is gone learn of it from the next.
    secret: [u8; 32],
    /// What the service manager handed in. They stay, whether or not a listener uses them.
    handed_in: HashMap<ListenAddr, OwnedFd>,
    bound: HashMap<ListenAddr, OwnedFd>,
    control: Option<(PathBuf, OwnedFd)>,
    metrics: Option<OwnedFd>,
    pid_file: Option<PidFile>,
}

impl Sockets {
    /// Binds what the first plan says. Errors name what to do.
    pub fn open(plan: &Plan, handed_in: HashMap<ListenAddr, OwnedFd>) -> Result<Sockets> {
        let mut sockets = Sockets::default();
        sockets.secret = random()?;
        sockets.handed_in = handed_in;
        sockets.bind(&plan.listen)?;
        if let Some(addr @ ListenAddr::Tcp(tcp)) = &plan.metrics {
            let socket = sockets.make(addr);
            sockets.metrics = Some(socket.with_context(|| format!("cannot listen on {tcp} for metrics"))?);
        }
        let used = |addr: &ListenAddr| plan.listen.contains(addr) || plan.metrics.as_ref() == Some(addr);
        for addr in sockets.handed_in.keys().filter(|addr| !used(addr)) {
            tracing::warn!(
                "the service manager hands in a socket at {addr}, and no listener has this address: nobody is served there. Name it in \
                 `listen`, or take it out of the socket's unit"
            );
        }
        sockets.control = match (&plan.control, default_control()) {
            (Some(path), _) => Some((path.clone(), bind_control(path)?)),
            (None, None) => None,
            (None, Some(path)) => match bind_control(&path) {
                Ok(socket) => Some((path, socket)),
                Err(error) => {
                    tracing::warn!("{error}; going on without one");
                    None
                }
            },
        };
        sockets.pid_file = plan.pid_file.as_deref().map(PidFile::write).transpose()?;
        Ok(sockets)
    }

    /// The socket of an address: as it was handed in, or bound now.
    fn make(&self, addr: &ListenAddr) -> io::Result<OwnedFd> {
        match self.handed_in.get(addr) {
            Some(socket) => socket.try_clone(),
            None => addr.bind(),
        }
    }

    /// Binds those of the addresses that are not bound. On an error none of them is.
    pub fn bind(&mut self, addresses: &[ListenAddr]) -> io::Result<()> {
        let before: Vec<ListenAddr> = self.bound.keys().cloned().collect();
        for addr in addresses {
            if self.bound.contains_key(addr) {
                continue;
            }
            match self.make(addr) {
                Ok(socket) => drop(self.bound.insert(addr.clone(), socket)),
                Err(error) => {
                    let own = self.bound.keys().find(|own| own.overlaps(addr)).cloned();
                    self.keep(&before, false);
                    return Err(match own {
                        Some(own) if error.kind() == io::ErrorKind::AddrInUse => io::Error::new(
                            error.kind(),
                            format!(
                                "cannot listen on {}: this server listens on {}, and the kernel gives a port to one of them only; choose \
                                 another port, or restart",
                                addr.place(),
                                own.place()
                            ),
                        ),
                        _ => error,
                    });
                }
            }
        }
        Ok(())
    }

    /// Closes those that are not among these, but for those of HTTP/3 if `and_quic`.
    pub fn keep(&mut self, wanted: &[ListenAddr], and_quic: bool) {
        self.bound.retain(|addr, _| {
            let stays = wanted.contains(addr) || and_quic && matches!(addr, ListenAddr::Quic(_));
            if !stays && !self.handed_in.contains_key(addr) {
                remove_file_of(addr);
            }
            stays
        });
    }

    /// See there.
    pub fn secret(&self) -> [u8; 32] {
        self.secret
    }

    /// Copies for a front, in the order of the addresses.
    pub fn of(&self, addresses: &[ListenAddr]) -> io::Result<Vec<OwnedFd>> {
        addresses.iter().filter_map(|addr| self.bound.get(addr)).map(OwnedFd::try_clone).collect()
    }

    /// Copies for a front: the control socket and where it is, the one for metrics.
    #[allow(clippy::type_complexity)]
    pub fn besides(&self) -> io::Result<(Option<(PathBuf, OwnedFd)>, Option<OwnedFd>)> {
        let control = match &self.control {
            Some((path, socket)) => Some((path.clone(), socket.try_clone()?)),
            None => None,
        };
        Ok((control, self.metrics.as_ref().map(OwnedFd::try_clone).transpose()?))
    }
}

/// The sockets by their descriptors, for the program that takes this one's place.
#[derive(Serialize, Deserialize)]
pub struct Numbers {
    secret: [u8; 32],
    handed_in: Vec<(ListenAddr, RawFd)>,
    bound: Vec<(ListenAddr, RawFd)>,
    control: Option<(PathBuf, RawFd)>,
    metrics: Option<RawFd>,
    pid_file: Option<PathBuf>,
}

impl Sockets {
    /// The numbers of all descriptors.
    pub fn numbers(&self) -> Numbers {
        let numbers = |sockets: &HashMap<ListenAddr, OwnedFd>| {
            sockets.iter().map(|(addr, socket)| (addr.clone(), socket.as_raw_fd())).collect()
        };
        Numbers {
            secret: self.secret,
            handed_in: numbers(&self.handed_in),
            bound: numbers(&self.bound),
            control: self.control.as_ref().map(|(path, socket)| (path.clone(), socket.as_raw_fd())),
            metrics: self.metrics.as_ref().map(AsRawFd::as_raw_fd),
            pid_file: self.pid_file.as_ref().map(|file| file.path.clone()),
        }
    }
}

impl Numbers {
    /// All of them.
    pub fn all(&self) -> Vec<RawFd> {
        let bound = self.handed_in.iter().chain(&self.bound).map(|(_, socket)| *socket);
        bound.chain(self.control.iter().map(|(_, socket)| *socket)).chain(self.metrics).collect()
    }

    /// Takes the sockets over.
    pub fn adopt(self, own: impl Fn(RawFd) -> io::Result<OwnedFd>) -> Result<Sockets> {
        let adopt = |sockets: Vec<(ListenAddr, RawFd)>| {
            sockets.into_iter().map(|(addr, socket)| Ok((addr, own(socket)?))).collect::<io::Result<_>>()
        };
        Ok(Sockets {
            secret: self.secret,
            handed_in: adopt(self.handed_in)?,
            bound: adopt(self.bound)?,
            control: self
                .control
                .map(|(path, socket)| Ok::<_, io::Error>((path, own(socket)?)))
                .transpose()?,
            metrics: self.metrics.map(own).transpose()?,
            // Its place may have gone since: no reason to end what serves.
            pid_file: self.pid_file.as_deref().and_then(|path| {
                PidFile::write(path)
                    .inspect_err(|error| tracing::warn!("{error:#}; going on without it"))
                    .ok()
            }),
        })
    }
}

fn random() -> Result<[u8; 32]> {
    let mut bytes = [0; 32];
    let n =
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).context("getrandom")?;
    anyhow::ensure!(n == bytes.len(), "getrandom gave {n} bytes of {}", bytes.len());
    Ok(bytes)
}

fn remove_file_of(addr: &ListenAddr) {
    if let ListenAddr::Unix(path) = addr {
        // It may be gone already; the next start removes one that is left.
        let _ = fs::remove_file(path);
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        self.keep(&[], false);
        if let Some((path, _)) = &self.control {
            let _ = fs::remove_file(path);
        }
    }
}

/// Makes the control socket, for its owner only, and its directory if that is missing. Takes the place of one that nobody listens on.
fn bind_control(path: &Path) -> io::Result<OwnedFd> {
    let explain = |error: io::Error| {
        io::Error::new(error.kind(), format!("cannot make the control socket {}: {error}", path.display()))
    };
    if let Some(directory) =
        path.parent().filter(|directory| !directory.as_os_str().is_empty() && !directory.exists())
    {
        fs::create_dir(directory).map_err(explain)?;
    }
    if fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket()) {
        if UnixStream::connect(path).is_ok() {
            let why = "another hayate listens there; give this one a --control of its own";
            return Err(explain(io::Error::new(io::ErrorKind::AddrInUse, why)));
        }
        fs::remove_file(path).map_err(explain)?;
    }
    // So that there is no moment at which others may connect. The master makes no other file meanwhile.
    let before = rustix::process::umask(Mode::RWXG | Mode::RWXO | Mode::XUSR);
    let listener = UnixListener::bind(path);
    rustix::process::umask(before);
    let listener = listener.map_err(explain)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(explain)?;
    listener.set_nonblocking(true).map_err(explain)?;
    listener.as_fd().try_clone_to_owned()
}

/// The file with the process id; goes with the process.
struct PidFile {
    path: PathBuf,
    file: File,
}

impl PidFile {
    fn write(path: &Path) -> Result<PidFile> {
        let write = || {
            // A pipe that nobody reads must not hold up the server.
            let flags = OFlags::NONBLOCK.bits().cast_signed();
            if let Some(pid) = PidFile::others(path) {
                let why = format!(
                    "it is that of another hayate, which runs (process {pid}); give this one a pid file of its own"
                );
                return Err(io::Error::new(io::ErrorKind::AddrInUse, why));
            }
            let file =
                OpenOptions::new().write(true).create(true).truncate(true).custom_flags(flags).open(path)?;
            // Where the disk is full it is there, and goes again.
            let mut made = PidFile { path: path.to_owned(), file };
            writeln!(made.file, "{}", std::process::id())?;
            Ok::<_, io::Error>(made)
        };
        write().map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => anyhow!("cannot write the pid file {}: {error}", path.display()),
            _ => anyhow!("cannot write the pid file {}: {error}; pid_file names a file", path.display()),
        })
    }

    /// The process that has written its number there, if it runs and is a server. (No lock: whoever may read the file could hold one.)
    fn others(path: &Path) -> Option<u32> {
        if !fs::metadata(path).is_ok_and(|file| file.is_file()) {
            return None;
        }
        let mut number = String::new();
        File::open(path).ok()?.take(16).read_to_string(&mut number).ok()?;
        let pid = number.trim().parse().ok().filter(|pid| *pid != std::process::id())?;
        let name = |pid: u32| fs::read_to_string(format!("/proc/{pid}/comm")).ok();
        let words = fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
        // No front of another one's, should a number be that of a process long gone.
        (name(pid)? == name(std::process::id())? && words.split('\0').any(|word| word == "serve"))
            .then_some(pid)
    }

    /// Another server has taken the name, or has written its number there.
    fn is_anothers(&self) -> bool {
        let same = |one: &fs::Metadata, two: &fs::Metadata| (one.dev(), one.ino()) == (two.dev(), two.ino());
        let (Ok(there), Ok(own)) = (fs::metadata(&self.path), self.file.metadata()) else { return true };
        let number = fs::read_to_string(&self.path).unwrap_or_default();
        !same(&there, &own) || !(number.is_empty() || number == format!("{}\n", std::process::id()))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // Who names /dev/null wants no such file, and root could remove it.
        if !self.file.metadata().is_ok_and(|file| file.is_file()) {
            return;
        }
        if self.is_anothers() {
            return;
        }
        // A link is its maker's. The directory may refuse; an empty file says that nobody runs as well.
        let is_link = fs::symlink_metadata(&self.path).is_ok_and(|file| file.is_symlink());
        if is_link || fs::remove_file(&self.path).is_err() {
            let _ = self.file.set_len(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    #[test]
    fn who_has_the_port_is_named_where_it_is_this_server() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let one = ListenAddr::Tcp((Ipv4Addr::LOCALHOST, port).into());
        let all = ListenAddr::Tcp((Ipv4Addr::UNSPECIFIED, port).into());
        let mut sockets = Sockets::default();
        sockets.bind(std::slice::from_ref(&one)).unwrap();
        let error = sockets.bind(std::slice::from_ref(&all)).unwrap_err().to_string();
        assert!(error.contains(&format!("this server listens on {}", one.place())), "{error}");
        assert!(!error.contains("http:"), "{error}");
        sockets.keep(&[], false);
        sockets.bind(&[all]).unwrap();
    }

    #[test]
    fn a_pid_file_of_another_server_stays_and_so_does_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let [path, link, others] = ["pid", "link", "others"].map(|name| dir.path().join(name));
        let own = format!("{}\n", std::process::id());
        drop(PidFile::write(&path).unwrap());
        assert!(!path.exists());
        // A process of this name, as another server is one.
        let program = dir.path().join(fs::read_to_string("/proc/self/comm").unwrap().trim());
        std::os::unix::fs::symlink("/bin/sh", &program).unwrap();
        let mut server = std::process::Command::new(&program)
            .args(["-c", "echo; read x", "serve"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        // `spawn` returns while the kernel still loads the program: it has its name and its words when it says something.
        server.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
        fs::write(&path, format!("{}\n", server.id())).unwrap();
        let error = PidFile::write(&path).err().unwrap().to_string();
        assert!(error.contains(&format!("another hayate, which runs (process {})", server.id())), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{}\n", server.id()));
        server.kill().unwrap();
        server.wait().unwrap();
        // Nobody has this number now.
        drop(PidFile::write(&path).unwrap());
        assert!(!path.exists());
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let file = PidFile::write(&link).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), own);
        drop(file);
        assert!(fs::read_to_string(&path).unwrap().is_empty() && link.is_symlink());
        let file = PidFile::write(&others).unwrap();
        fs::write(&others, "1\n").unwrap();
        drop(file);
        let file = PidFile::write(&path).unwrap();
        fs::rename(&others, &path).unwrap();
        drop(file);
        assert_eq!(fs::read_to_string(&path).unwrap(), "1\n");
        // The device takes nothing, as a full disk.
        assert!(PidFile::write(Path::new("/dev/full")).is_err() && Path::new("/dev/full").exists());
    }
}
