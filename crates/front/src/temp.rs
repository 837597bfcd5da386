//! Temporary files for bodies whose client is slower than PHP. They have no name: whatever happens, nothing of them stays behind. All
//! work on them is done by the runtime's other threads.

use std::{fs::File, io, os::unix::fs::FileExt, sync::Arc};

use bytes::Bytes;
use tokio::task::{JoinHandle, spawn_blocking};

/// Bytes read at one time.
const BLOCK: u64 = 64 << 10;

/// Says so when no temporary file can be made: at the start, and not only with the first large upload.
pub(crate) async fn check() {
    if let Err(error) = TempFile::create().await {
        tracing::error!(
            "no temporary file can be made in {}: {error}. Uploads above {} KB will be answered with 500; name a directory by TMPDIR",
            std::env::temp_dir().display(),
            crate::request_body::MEMORY >> 10
        );
    }
}

/// A file without a name, in the directory that TMPDIR names, else /tmp.
#[derive(Clone)]
pub(crate) struct TempFile(Arc<File>);

/// A read that is going on.
pub(crate) type Reading = JoinHandle<io::Result<Bytes>>;

impl TempFile {
    pub(crate) async fn create() -> io::Result<TempFile> {
        let file = spawn_blocking(tempfile::tempfile).await.map_err(io::Error::other)?;
        Ok(TempFile(Arc::new(file?)))
    }

    /// Writes all of `bytes` at the offset `at`.
    pub(crate) async fn write(&self, bytes: Bytes, at: u64) -> io::Result<()> {
        let file = Arc::clone(&self.0);
        spawn_blocking(move || file.write_all_at(&bytes, at)).await.map_err(io::Error::other)?
    }

    /// Begins to read some of the `len` bytes at the offset `at`, all of which are there; gives how many it will be.
    pub(crate) fn read(&self, at: u64, len: u64) -> (u64, Reading) {
        let (file, n) = (Arc::clone(&self.0), len.min(BLOCK));
        let reading = spawn_blocking(move || {
            let mut block = vec![0; n as usize];
            file.read_exact_at(&mut block, at)?;
            Ok(Bytes::from(block))
        });
        (n, reading)
    }
}
