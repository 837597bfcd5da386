//! Temporary files for bodies whose client is slower than PHP. They have no name: whatever happens, nothing of them stays behind. All
//! work on them is done by [`crate::disk`]'s threads, and there is a limit on what they hold: in all, and for each client.

use std::{collections::HashMap, io, net::IpAddr, os::unix::fs::FileExt, path::PathBuf, sync::Arc};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::{
    Limits,
    descriptors::Permit,
    disk::{Disk, Opened, Place, Running},
    rules::client_of,
};

/// Bytes read at one time.
const BLOCK: u64 = 64 << 10;

/// Bytes of free memory that may be kept for what comes next.
#[cfg(target_env = "gnu")]
const FREE: usize = 4 << 20;

/// Less than one part in so many of what all may use is nobody's fault.
const MUCH: u64 = 256;

/// The directory that TMPDIR names, else /tmp, and how much of it is used.
pub(crate) struct TempSpace {
    place: Arc<Place>,
    used: Mutex<Used>,
}

#[derive(Default)]
struct Used {
    all: u64,
    by_client: HashMap<IpAddr, u64>,
}

/// For whom a file is kept, and how much may be kept: bytes, 0 for no limit.
#[derive(Clone, Copy)]
pub(crate) struct Owner {
    client: Option<IpAddr>,
    all: u64,
    per_client: u64,
}

impl Owner {
    /// `client`: `None` for one without an address, who is limited by what all may use.
    pub(crate) fn new(client: Option<IpAddr>, limits: &Limits) -> Owner {
        Owner {
            client: client.map(client_of),
            all: limits.temp_size,
            per_client: limits.temp_size_per_client,
        }
    }
}

/// A TMPDIR that is set to nothing counts as unset.
fn directory(named: PathBuf) -> PathBuf {
    if named.as_os_str().is_empty() { "/tmp".into() } else { named }
}

impl TempSpace {
    pub(crate) fn new(disk: &Disk) -> Arc<TempSpace> {
        Arc::new(TempSpace { place: disk.place(&directory(std::env::temp_dir())), used: Mutex::default() })
    }

    /// Says so when no temporary file can be made: at the start, and not only with the first large upload.
    pub(crate) async fn check(&self) {
        if let Err(error) = self.make(None).await {
            tracing::error!(
                "no temporary file can be made in {}: {error}. Uploads above {} KB will be answered with 500; name a directory by TMPDIR",
                self.place.path().display(),
                crate::request_body::MEMORY >> 10
            );
        }
    }

    /// Gives free memory back to the system if there is much of it, which takes milliseconds: on another thread.
    pub(crate) fn give_memory_back(&self) {
        #[cfg(target_env = "gnu")]
        self.place.send(Box::new(|| {
            // SAFETY: neither has preconditions; the allocator locks what it looks at.
            unsafe {
                if libc::mallinfo2().fordblks > FREE {
                    libc::malloc_trim(0);
                }
            }
        }));
    }

    async fn make(&self, permit: Option<Permit>) -> io::Result<Opened> {
        let (path, place) = (self.place.path().to_owned(), Arc::clone(&self.place));
        // Whoever leaves meanwhile leaves the file and its permit to the thread.
        self.place.start(move || Ok(Opened::new(tempfile::tempfile_in(path)?, false, place, permit))).await?
    }

    /// Makes an empty file, which counts by `permit`.
    pub(crate) async fn create(self: &Arc<Self>, owner: Owner, permit: Permit) -> io::Result<TempFile> {
        let file = self.make(Some(permit)).await?;
        Ok(TempFile(Arc::new(Inner { file, space: Arc::clone(self), owner, len: Mutex::new(0) })))
    }

    fn take(&self, owner: &Owner, bytes: u64) -> io::Result<()> {
        let full = |what: &str| {
            Err(io::Error::new(io::ErrorKind::QuotaExceeded, format!("limits.{what} is reached")))
        };
        let within = |used: u64, limit: u64| limit == 0 || used.saturating_add(bytes) <= limit;
        let mut used = self.used.lock();
        if !within(used.all, owner.all) {
            return full("temp_size");
        }
        if let Some(client) = owner.client {
            let mine = used.by_client.get(&client).copied().unwrap_or_default();
            if !within(mine, owner.per_client) {
                return full("temp_size_per_client");
            }
            used.by_client.insert(client, mine.saturating_add(bytes));
        }
        used.all = used.all.saturating_add(bytes);
        Ok(())
    }

    /// Whether less than a quarter of what all may use is left, so that others may be refused for what this owner's files hold: no less
    /// than the mean of all clients', or he has no address to be told by.
    pub(crate) fn is_short_for(&self, owner: &Owner) -> bool {
        let used = self.used.lock();
        if owner.all == 0 || used.all <= owner.all / 4 * 3 {
            return false;
        }
        let Some(client) = owner.client else { return true };
        let mine = used.by_client.get(&client).copied().unwrap_or_default();
        // Many who hold hardly anything make the mean small.
        mine >= owner.all / MUCH && mine.saturating_mul(used.by_client.len() as u64) >= used.all
    }

    fn give_back(&self, owner: &Owner, bytes: u64) {
        let mut used = self.used.lock();
        used.all = used.all.saturating_sub(bytes);
        if let Some(client) = owner.client
            && let Some(mine) = used.by_client.get_mut(&client)
        {
            *mine = mine.saturating_sub(bytes);
            if *mine == 0 {
                used.by_client.remove(&client);
            }
        }
    }
}

/// A file without a name.
#[derive(Clone)]
pub(crate) struct TempFile(Arc<Inner>);

struct Inner {
    file: Opened,
    space: Arc<TempSpace>,
    owner: Owner,
    /// Bytes counted in `space`.
    len: Mutex<u64>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.space.give_back(&self.owner, *self.len.lock());
    }
}

/// A read that is going on.
pub(crate) type Reading = Running<io::Result<Bytes>>;

impl TempFile {
    /// Writes all of `bytes` at the end, which is at the offset `at`. An error of kind `QuotaExceeded` when that is more than may be kept.
    pub(crate) async fn write(&self, bytes: Bytes, at: u64) -> io::Result<()> {
        let size = bytes.len() as u64;
        self.0.space.take(&self.0.owner, size)?;
        {
            let mut len = self.0.len.lock();
            *len = len.saturating_add(size);
        }
        let inner = Arc::clone(&self.0);
        self.0.space.place.start(move || inner.file.write_all_at(&bytes, at)).await?
    }

    /// Begins to read some of the `len` bytes at the offset `at`, all of which are there; gives how many it will be.
    pub(crate) fn read(&self, at: u64, len: u64) -> (u64, Reading) {
        let (inner, n) = (Arc::clone(&self.0), len.min(BLOCK));
        let reading = self.0.space.place.start(move || {
            let mut block = vec![0; n as usize];
            inner.file.read_exact_at(&mut block, at)?;
            Ok(Bytes::from(block))
        });
        (n, reading)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_tmpdir_is_none() {
        assert_eq!(directory("".into()), PathBuf::from("/tmp"));
        assert_eq!(directory("/var/tmp".into()), PathBuf::from("/var/tmp"));
    }

    #[tokio::test]
    async fn what_files_hold_is_limited_and_given_back() {
        let space = TempSpace::new(&Disk::start(Disk::THREADS).unwrap());
        let limits = Limits { temp_size: 100, temp_size_per_client: 60, ..Limits::default() };
        let owner = |addr: &str| Owner::new(Some(addr.parse().unwrap()), &limits);
        let write = async |owner, n: usize| {
            let file = space.create(owner, crate::descriptors::permit()).await.unwrap();
            file.write(Bytes::from(vec![7; n]), 0).await.map(|()| file)
        };
        let one = write(owner("192.0.2.1"), 60).await.unwrap();
        assert_eq!(
            one.write(Bytes::from_static(b"x"), 60).await.unwrap_err().kind(),
            io::ErrorKind::QuotaExceeded
        );
        assert!(
            write(owner("192.0.2.1"), 1).await.is_err_and(|e| e.to_string().contains("temp_size_per_client"))
        );
        let two = write(owner("2001:db8::1"), 40).await.unwrap();
        assert!(write(owner("2001:db8:0:1::"), 1).await.is_err_and(|e| e.to_string().contains("temp_size ")));
        assert!(space.is_short_for(&owner("192.0.2.1")), "he holds more than the mean");
        assert!(!space.is_short_for(&owner("2001:db8::1")) && !space.is_short_for(&owner("192.0.2.9")));
        drop(one);
        assert!(write(owner("2001:db8::2"), 21).await.is_err(), "a neighbour is the same client");
        assert!(write(owner("2001:db8::2"), 20).await.is_ok());
        let (n, reading) = two.read(10, 30);
        assert_eq!((n, reading.await.unwrap().unwrap()), (30, Bytes::from(vec![7; 30])));
        drop(two);
        let used = space.used.lock();
        assert!(used.all == 0 && used.by_client.is_empty());
    }
}
