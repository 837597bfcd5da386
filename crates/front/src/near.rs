//! Files that can be had without waiting: what the kernel has in its caches, on file systems that need nobody's answer.
//!
//! Handing work to a thread and back costs more than serving a small file. So the serving thread looks for itself where that cannot take
//! long: `openat2` with `RESOLVE_CACHED` finds names without asking a disk, `RESOLVE_NO_XDEV` keeps it on the file system of the root,
//! which was found to be a local one (a network's, and FUSE, may hang in `open` itself), and `RWF_NOWAIT` reads what is in memory. Whatever
//! is not certain is [`Miss::Wait`]: then the same is done once more by [`crate::disk`]'s threads, with [`Access::Waiting`].

use std::{
    borrow::Borrow,
    collections::HashSet,
    ffi::OsStr,
    fs::File,
    hash::Hash,
    io,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::ffi::OsStrExt,
        unix::fs::FileExt,
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use parking_lot::Mutex;
use rustix::{
    fs::{
        AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat, StatxFlags, fstat, fstatfs, open, openat2,
        statx,
    },
    io::Errno,
};

use hayate_http::seconds;

use crate::site::FileId;

/// Magic numbers (statfs(2)) of file systems whose cached files need nobody's answer: ext2 to ext4, XFS, Btrfs, tmpfs, ramfs, overlayfs,
/// F2FS, ZFS, SquashFS, EROFS, bcachefs.
const LOCAL: [u32; 11] = [
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0x0102_1994,
    0x8584_58f6,
    0x794c_7630,
    0xf2f5_2010,
    0x2fc1_2fc1,
    0x7371_7368,
    0xe0f5_e1e2,
    0xca45_1a4e,
];

/// Bytes of a name that any of them takes, but for very old ones.
const NAME: usize = 255;

/// What opens a regular file, and stays harmless where it is something else: a pipe, a terminal.
const READ: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);
const LOOK: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// Why there is no file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Miss {
    NotThere,
    Forbidden,
    /// Nobody can say whether it is there: no descriptor, or no memory, is left to look with, or its disk fails.
    Trouble(Errno),
    /// It is not what it was a moment ago.
    Changed,
    /// Only somebody who may wait can say.
    Wait,
}

/// Why an answer is put off: see [`Miss::Trouble`].
pub(crate) fn trouble(error: Errno) -> io::Error {
    io::Error::other(match error {
        Errno::MFILE | Errno::NFILE | Errno::NOMEM => {
            "no descriptor, or no memory, is left to open a file with; raise the limit of open files (LimitNOFILE)".into()
        }
        _ => format!("the file system fails: {}", io::Error::from(error)),
    })
}

/// What is asked of a file's metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Meta {
    pub(crate) kind: FileType,
    pub(crate) len: u64,
    /// Seconds since 1970; any number.
    pub(crate) modified: i64,
    /// Nanoseconds of that second; any number.
    pub(crate) modified_ns: u32,
    /// When the inode last changed, which it does when it is renamed: seconds since 1970, any number, and nanoseconds.
    pub(crate) changed: (i64, i64),
    pub(crate) id: FileId,
}

impl Meta {
    #[allow(clippy::unnecessary_cast)] // The types differ between architectures.
    pub(crate) fn of(stat: &Stat) -> Meta {
        Meta {
            kind: FileType::from_raw_mode(stat.st_mode),
            len: u64::try_from(stat.st_size).unwrap_or_default(),
            modified: stat.st_mtime as i64,
            modified_ns: stat.st_mtime_nsec as u32,
            changed: (stat.st_ctime as i64, stat.st_ctime_nsec as i64),
            id: FileId::new(stat.st_dev as u64, stat.st_ino as u64),
        }
    }

    /// Whether each further change of the inode shows in `changed`. The kernel's clock for that goes by ticks of some milliseconds.
    pub(crate) fn is_settled(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        self.changed.0.saturating_add(1) < i64::try_from(now).unwrap_or(i64::MAX)
    }

    /// Whether it is the same file with the same content: not its rights, its owner, and its names, with which `changed` changes.
    pub(crate) fn has_the_content_of(&self, other: &Meta) -> bool {
        let content = |meta: &Meta| (meta.id, meta.len, meta.modified, meta.modified_ns);
        content(self) == content(other)
    }

    pub(crate) fn is_file(&self) -> bool {
        self.kind == FileType::RegularFile
    }

    pub(crate) fn is_dir(&self) -> bool {
        self.kind == FileType::Directory
    }
}

/// A root that is open, on a file system of which names have so many bytes at most.
#[derive(Debug)]
pub(crate) struct Root {
    fd: OwnedFd,
    longest: usize,
}

/// A root as far as it can be looked at without waiting.
#[derive(Default)]
pub(crate) struct Near {
    /// The root, opened in this second (see [`seconds`]): another directory may have taken its place since.
    root: Mutex<(u64, Option<Arc<Root>>)>,
    /// The device that the root was on when a thread looked, if that is a local one, plus one; else 0.
    device: AtomicU64,
    /// Bytes that a name may have there.
    longest: AtomicU64,
    /// Files beside which nothing packed lay: three names that are not there cost as much as the file.
    pub(crate) alone: Found<Vec<u8>>,
    /// Stretches of files that are in memory; see [`crate::file_body`].
    pub(crate) warm: Found<(FileId, u64)>,
}

/// Of what something was found in this second (see [`seconds`]).
#[derive(Debug)]
pub(crate) struct Found<K>(Mutex<(u64, HashSet<K>)>);

/// What is remembered of a second at most; the rest is looked up each time.
const FOUND: usize = 1024;

impl<K> Default for Found<K> {
    fn default() -> Found<K> {
        Found(Mutex::new((0, HashSet::new())))
    }
}

impl<K: Hash + Eq> Found<K> {
    pub(crate) fn has<Q: Hash + Eq + ?Sized>(&self, what: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        let found = self.0.lock();
        found.0 == seconds() && found.1.contains(what)
    }

    /// Whether something more can be remembered in this second.
    pub(crate) fn has_room(&self) -> bool {
        let found = self.0.lock();
        found.0 != seconds() || found.1.len() < FOUND
    }

    /// `began`: the second in which the look-up began. What took longer is not remembered: it may have changed since.
    pub(crate) fn add(&self, what: K, began: u64) {
        let mut found = self.0.lock();
        if began != seconds() {
            return;
        }
        if found.0 != began {
            found.0 = began;
            found.1.clear();
        }
        if found.1.len() < FOUND {
            found.1.insert(what);
        }
    }
}

impl Near {
    /// The root, if files below it may be looked at at once.
    pub(crate) fn root(&self, path: &Path) -> Option<Arc<Root>> {
        let device = self.device.load(Relaxed).checked_sub(1)?;
        let mut root = self.root.lock();
        let now = seconds();
        if root.0 != now {
            let opened =
                openat2(CWD, path, LOOK | OFlags::DIRECTORY, Mode::empty(), ResolveFlags::CACHED).ok();
            let same = |fd: &OwnedFd| device_of(fd, AtFlags::STATX_DONT_SYNC) == Some(device);
            let longest = usize::try_from(self.longest.load(Relaxed)).unwrap_or(usize::MAX).max(NAME);
            *root = (now, opened.filter(same).map(|fd| Arc::new(Root { fd, longest })));
        }
        root.1.clone()
    }

    /// Finds out what kind of file system the root is on. May wait.
    pub(crate) fn learn(&self, path: &Path) {
        let learn = || {
            let root = open(path, LOOK | OFlags::DIRECTORY, Mode::empty()).ok()?;
            let system = fstatfs(&root).ok()?;
            if !LOCAL.contains(&(system.f_type as u32)) {
                return None;
            }
            self.longest.store(u64::try_from(system.f_namelen).unwrap_or(u64::MAX), Relaxed);
            device_of(&root, AtFlags::empty())?.checked_add(1)
        };
        self.device.store(learn().unwrap_or(0), Relaxed);
    }
}

fn device_of(fd: &OwnedFd, flags: AtFlags) -> Option<u64> {
    let stat = statx(fd, "", AtFlags::EMPTY_PATH | flags, StatxFlags::TYPE).ok()?;
    Some(u64::from(stat.stx_dev_major) << 32 | u64::from(stat.stx_dev_minor))
}

/// How files below a root are looked at.
pub(crate) enum Access<'a> {
    /// From the root, at once or not at all.
    Now(&'a Root),
    /// Below this path, however long it takes.
    Waiting(&'a Path),
}

/// The file at a path inside of a root. Component by component: what is no absolute path would else name a neighbour of the root.
pub(crate) fn below(root: &Path, path: &[u8]) -> PathBuf {
    root.join(relative(path))
}

/// The same below the root.
pub(crate) fn relative(path: &[u8]) -> &OsStr {
    let slashes = path.iter().take_while(|b| **b == b'/').count();
    OsStr::from_bytes(path.get(slashes..).unwrap_or_default())
}

impl Access<'_> {
    /// `path` is inside of the root, and normalised.
    pub(crate) fn meta(&self, path: &[u8]) -> Result<Meta, Miss> {
        let stat = match self {
            Access::Now(root) => fstat(now(root, path, LOOK)?).map_err(|_| Miss::Wait)?,
            Access::Waiting(root) => fstat(waiting(root, path, LOOK)?).map_err(miss)?,
        };
        Ok(Meta::of(&stat))
    }

    /// The same, and the file if it is a regular one and comes without asking twice.
    pub(crate) fn find(&self, path: &[u8]) -> Result<(Option<File>, Meta), Miss> {
        let Access::Now(root) = self else { return Ok((None, self.meta(path)?)) };
        let file = now(root, path, READ)?;
        let meta = Meta::of(&fstat(&file).map_err(|_| Miss::Wait)?);
        Ok((meta.is_file().then(|| file.into()), meta))
    }

    /// A regular file for reading. `path` as above.
    pub(crate) fn open(&self, path: &[u8]) -> Result<(File, Meta), Miss> {
        let file = match self {
            Access::Now(root) => now(root, path, READ)?,
            Access::Waiting(root) => waiting(root, path, READ)?,
        };
        let meta = Meta::of(&fstat(&file).map_err(miss)?);
        if meta.is_file() { Ok((file.into(), meta)) } else { Err(Miss::NotThere) }
    }

    /// As many bytes of a small file, or fewer if it has become shorter.
    pub(crate) fn read(&self, file: &File, len: usize) -> Result<Vec<u8>, Miss> {
        let mut all = Vec::with_capacity(len);
        while all.len() < len {
            let (most, at) = (len - all.len(), all.len() as u64);
            let n = match self {
                Access::Now(_) => match read_now(file, &mut all, most, at) {
                    // A local file system that cannot say, as some in memory are.
                    Err(Errno::OPNOTSUPP) => read_waiting(file, &mut all, most, at).map_err(trouble_of)?,
                    n => n.map_err(|_| Miss::Wait)?,
                },
                Access::Waiting(_) => match read_waiting(file, &mut all, most, at) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    n => n.map_err(trouble_of)?,
                },
            };
            if n == 0 {
                break;
            }
        }
        Ok(all)
    }
}

/// Appends some bytes of a file, `most` at most, if they are in memory; how many. The room for them is not zeroed before, which for a file of
/// some pages took as long as reading it.
pub(crate) fn read_now(file: impl AsFd, to: &mut Vec<u8>, most: usize, at: u64) -> Result<usize, Errno> {
    let at = i64::try_from(at).map_err(|_| Errno::INVAL)?;
    to.reserve_exact(most);
    let room = to.spare_capacity_mut();
    let room = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: most.min(room.len()) };
    // SAFETY: the descriptor is open, and the kernel writes no more than `iov_len` bytes from `iov_base` on: room of the vector's own.
    let n = unsafe { libc::preadv2(file.as_fd().as_raw_fd(), &room, 1, at, libc::RWF_NOWAIT) };
    let n = usize::try_from(n)
        .map_err(|_| Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO))?;
    // SAFETY: the kernel has written the first `n` bytes of that room, and it lies within the capacity.
    unsafe { to.set_len(to.len() + n.min(room.iov_len)) };
    Ok(n)
}

/// The same, and may wait.
fn read_waiting(file: &File, to: &mut Vec<u8>, most: usize, at: u64) -> io::Result<usize> {
    let from = to.len();
    to.resize(from + most, 0);
    let n = file.read_at(to.get_mut(from..).unwrap_or_default(), at);
    to.truncate(from + *n.as_ref().unwrap_or(&0));
    n
}

fn now(root: &Root, path: &[u8], flags: OFlags) -> Result<OwnedFd, Miss> {
    let path = relative(path);
    let path = if path.is_empty() { OsStr::new(".") } else { path };
    let how = ResolveFlags::CACHED | ResolveFlags::NO_XDEV | ResolveFlags::NO_MAGICLINKS;
    openat2(&root.fd, path, flags, Mode::empty(), how).map_err(|error| match error {
        Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG => Miss::NotThere,
        _ => match before_too_long(path.as_bytes(), root.longest) {
            // It is in no cache, and cannot be there if what precedes it is on this file system, or is not there itself.
            Some(before) => now(root, before, LOOK).map_or_else(|miss| miss, |_| Miss::NotThere),
            None => Miss::Wait,
        },
    })
}

/// What precedes the first name of a path that has more bytes than `longest`, if one has.
fn before_too_long(path: &[u8], longest: usize) -> Option<&[u8]> {
    let mut at = 0usize;
    for name in path.split(|b| *b == b'/') {
        if name.len() > longest {
            return path.get(..at);
        }
        at = at.saturating_add(name.len()).saturating_add(1);
    }
    None
}

/// Never by way of a link that only the kernel can follow (`/proc/self/fd/7`): applications make links in their roots, and what this
/// process has open is others' memory and logs.
fn waiting(root: &Path, path: &[u8], flags: OFlags) -> Result<OwnedFd, Miss> {
    let path = below(root, path);
    match openat2(CWD, &path, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS) {
        // Before Linux 5.6, and in containers that do not know of it: by the name that such a link shows, as any other link. What has none
        // is not found.
        Err(Errno::NOSYS | Errno::PERM) => {
            let named = path.canonicalize().map_err(|error| miss_of(&error))?;
            open(&named, flags | OFlags::NOFOLLOW, Mode::empty()).map_err(miss)
        }
        file => file.map_err(miss),
    }
}

/// What an error says of a path. Few say that there is no such file: INVAL and ILSEQ are names that a file system cannot have, NXIO is a socket. Whatever
/// else a file system may say, of disks, networks or keys, says nothing of that.
fn miss(error: Errno) -> Miss {
    match error {
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG => Miss::NotThere,
        Errno::INVAL | Errno::ILSEQ | Errno::NXIO => Miss::NotThere,
        Errno::ACCESS | Errno::PERM => Miss::Forbidden,
        _ => Miss::Trouble(error),
    }
}

/// The same of an error of the standard library's.
pub(crate) fn miss_of(error: &std::io::Error) -> Miss {
    miss(Errno::from_io_error(error).unwrap_or(Errno::IO))
}

/// Of one that was met while a file was read, which was there.
fn trouble_of(error: std::io::Error) -> Miss {
    Miss::Trouble(Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_errors_say_that_nothing_is_there() {
        for error in [
            Errno::NOENT,
            Errno::NOTDIR,
            Errno::LOOP,
            Errno::NAMETOOLONG,
            Errno::INVAL,
            Errno::ILSEQ,
            Errno::NXIO,
        ] {
            assert_eq!(miss(error), Miss::NotThere);
        }
        for error in [Errno::ACCESS, Errno::PERM] {
            assert_eq!(miss(error), Miss::Forbidden);
        }
        // EUCLEAN and EBADMSG are what ext4 and XFS say of themselves when they are broken; NOKEY is fscrypt's.
        for error in [
            Errno::IO,
            Errno::STALE,
            Errno::MFILE,
            Errno::NOMEM,
            Errno::UCLEAN,
            Errno::BADMSG,
            Errno::NODEV,
            Errno::AGAIN,
            Errno::INTR,
            Errno::HOSTUNREACH,
            Errno::NETUNREACH,
            Errno::NOLINK,
            Errno::OVERFLOW,
            Errno::NOKEY,
            Errno::KEYREJECTED,
            Errno::BUSY,
        ] {
            assert_eq!(miss(error), Miss::Trouble(error));
        }
    }

    #[test]
    fn what_is_near_is_what_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("d")).unwrap();
        std::fs::write(root.join("d/a.txt"), "content").unwrap();
        std::os::unix::fs::symlink("d/a.txt", root.join("link")).unwrap();
        std::os::unix::fs::symlink("/proc/self/status", root.join("other")).unwrap();
        let near = Near::default();
        assert!(near.root(&root).is_none(), "nobody has looked yet");
        near.learn(&root);
        let Some(fd) = near.root(&root) else {
            panic!("tests need TMPDIR on a local file system, and Linux 5.12");
        };
        let (now, waiting) = (Access::Now(&fd), Access::Waiting(&root));
        for path in
            [&b"/d/a.txt"[..], b"/link", b"/d", b"/d/", b"", b"/missing", b"/d/a.txt/x", b"/missing/x"]
        {
            let slow = waiting.meta(path);
            // Looked up a moment ago; still, caches may be emptied at any time.
            let fast = now.meta(path);
            assert!(fast == slow || fast == Err(Miss::Wait), "{fast:?} {slow:?}");
        }
        let (long, longer) = ("x".repeat(255), "x".repeat(256));
        for path in [&longer, &format!("d/{longer}/x"), &format!("missing/{longer}"), &"d/".repeat(2048)] {
            let path = format!("/{path}");
            // What precedes it may not be in memory.
            let _ = (waiting.meta(b"/d"), waiting.meta(b"/missing"));
            assert_eq!(now.meta(path.as_bytes()), Err(Miss::NotThere), "it takes nobody's time: {path}");
            assert_eq!(waiting.meta(path.as_bytes()), Err(Miss::NotThere));
        }
        assert_eq!(now.meta(format!("/{long}").as_bytes()), Err(Miss::Wait), "it may be there");
        assert_eq!(now.meta(format!("/other/{longer}").as_bytes()), Err(Miss::Wait), "another file system");
        assert_eq!(now.meta(b"/other"), Err(Miss::Wait), "another file system");
        let memory = rustix::fs::memfd_create("of-others", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&memory);
        std::os::unix::fs::symlink(format!("/proc/self/fd/{number}"), root.join("open")).unwrap();
        assert_eq!(waiting.meta(b"/open"), Err(Miss::NotThere));
        assert_eq!(waiting.open(b"/open").unwrap_err(), Miss::NotThere);
        let (file, meta) = waiting.open(b"/link").unwrap();
        assert_eq!((meta.len, waiting.read(&file, 7).unwrap()), (7, b"content".to_vec()));
        assert_eq!(waiting.open(b"/d").unwrap_err(), Miss::NotThere);
        if let Ok((file, _)) = now.open(b"/d/a.txt") {
            assert!(
                matches!(now.read(&file, 100), Err(Miss::Wait))
                    || now.read(&file, 100).unwrap() == b"content"
            );
        }
    }
}
