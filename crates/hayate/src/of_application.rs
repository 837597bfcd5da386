//! Reads files that an application may own: its `composer.json`, its `.htaccess`, its `.env`.
//!
//! Who reads them is often root, before anything is served, and what lies at such a name is the application's to choose. So a name that
//! leads to a pipe, a device or a file without end is an error like a missing file, and holds up nobody. Files of applications are opened
//! here only.

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use rustix::fs::OFlags;

/// Bytes of a file of source or settings; above it is something else.
pub const MOST: u64 = 1 << 20;

/// Opens a regular file. Whatever else has its name is an error at once, and is not touched: a terminal does not become the process's own.
pub fn open(path: &Path) -> io::Result<File> {
    let harmless = OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let flags = i32::try_from(harmless.bits()).map_err(io::Error::other)?;
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(other("it is no regular file")) }
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
    use rustix::fs::{CWD, FileType, Mode, mknodat};

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
