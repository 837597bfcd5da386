//! Reads files that an application may own: its `composer.json`, its `.htaccess`, its `.env`.
//!
//! Who reads them is often root, before anything is served, and what lies at such a name is the application's to choose. So a name that
//! leads to a pipe, a device or a file without end is an error like a missing file, and holds up nobody. Files of applications are opened
//! here only.

use std::{
    fs::File,
    io::{self, Read},
    os::fd::AsRawFd,
    path::Path,
};

use rustix::fs::{Mode, OFlags};

/// Bytes of a file of source or settings; above it is something else.
pub const MOST: u64 = 1 << 20;

/// Opens a regular file. Whatever else has its name is an error at once, and is not touched: to open a device may do something (a watchdog
/// begins to count), so what is there is looked at first, and opened by what was looked at.
pub fn open(path: &Path) -> io::Result<File> {
    let seen = File::from(rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?);
    if !seen.metadata()?.is_file() {
        return Err(other("it is no regular file"));
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(format!("/proc/self/fd/{}", seen.as_raw_fd()), flags, Mode::empty())?.into())
}

/// All of a regular file of at most `most` bytes; what is larger is an error.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // Judged by what came: a file's size is old when it is known, and some have none (`/proc`).
    let read = open(path)?.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if read as u64 > most { Err(other(&format!("it is larger than {most} bytes"))) } else { Ok(bytes) }
}

/// The same, as text.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    String::from_utf8(read(path, most)?).map_err(|_| other("it is no UTF-8"))
}

fn other(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, mknodat};

    use super::*;

    #[test]
    fn what_is_no_file_is_an_error_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::write(at("small"), "text").unwrap();
        assert_eq!(read_text(&at("small"), 4).unwrap(), "text");
        assert!(read(&at("small"), 3).unwrap_err().to_string().contains("larger than 3"));
        mknodat(CWD, at("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        std::os::unix::fs::symlink("/dev/zero", at("endless")).unwrap();
        std::os::unix::fs::symlink("endless", at("link")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        for name in ["pipe", "endless", "link", "socket", ".", "missing"] {
            assert!(read(&at(name), MOST).is_err(), "{name}");
        }
        // Sparse: what it says of its size does not matter.
        File::create(at("large")).unwrap().set_len(1 << 40).unwrap();
        assert!(read(&at("large"), MOST).is_err());
    }
}
