//! Names of files and sockets that the kernel takes from nobody, so that `hayate check` says what `hayate serve` would.

use std::{
    os::unix::{ffi::OsStrExt, fs::FileTypeExt},
    path::{Path, PathBuf},
};

use hayate_front::ListenAddr;

/// Bytes of a socket's path (`sun_path` of unix(7), without the NUL at its end).
const LONGEST_OF_SOCKETS: usize = 107;
/// Bytes of a file's name without its directories (`NAME_MAX`).
const LONGEST_NAME: usize = 255;

/// Why no socket can be made there, and what to do; `None`: as far as its name goes it can.
pub(super) fn socket_fault(path: &Path) -> Option<String> {
    let name = path.as_os_str().as_bytes();
    if name.contains(&0) {
        return Some(format!("{}: no path has a NUL in it; leave it out", path.display()));
    }
    (name.len() > LONGEST_OF_SOCKETS).then(|| {
        format!(
            "{}: expected a path of {LONGEST_OF_SOCKETS} bytes at most, since the kernel takes no longer one for a socket, found {}; choose a \
             shorter one",
            path.display(),
            name.len()
        )
    })
}

/// Where clients connect: a path as `of` has it and, unless that is too long for a socket, absolute, as a service manager names those that it hands
/// in. An error: none can be made there, and what to do.
pub(super) fn listen(addr: ListenAddr, of: impl Fn(&Path) -> PathBuf) -> Result<ListenAddr, String> {
    let ListenAddr::Unix(path) = addr else { return Ok(addr) };
    let path = of(&path);
    let absolute =
        std::path::absolute(&path).ok().filter(|path| path.as_os_str().len() <= LONGEST_OF_SOCKETS);
    let path = absolute.unwrap_or(path);
    if let Some(why) = socket_fault(&path) {
        return Err(why);
    }
    // What is there and no socket is nobody's to remove.
    if path.symlink_metadata().is_ok_and(|there| !there.file_type().is_socket()) {
        return Err(format!(
            "unix:{}: expected a socket, or nothing, found a file that is none; remove it or choose another path",
            path.display()
        ));
    }
    Ok(ListenAddr::Unix(path))
}

/// Why no file can have that name, and what to do.
pub(super) fn file_fault(path: &Path) -> Option<String> {
    let length = path.file_name().map_or(0, |name| name.len());
    (length > LONGEST_NAME).then(|| {
        format!(
            "{}: expected a name of {LONGEST_NAME} bytes at most, since the kernel takes no longer one for a file, found {length}; choose a \
             shorter one",
            path.display()
        )
    })
}
