//! Tells the service manager how things are (sd_notify(3)), by a datagram.
//!
//! It promises not to wait: the socket may be anybody's, and one that is not read must not hold up the master. What does not fit is lost, and spoken
//! of. (The crate's own `notify` waits.)

use std::{
    ffi::OsStr,
    io::{self, ErrorKind},
    os::unix::ffi::OsStrExt,
};

use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sendto, socket_with};
use sd_notify::NotifyState;

use super::wire::Notice;

/// Says it, where there is somebody to tell.
pub fn tell(notice: Notice) {
    let Some(place) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let mut states = match notice {
        Notice::Ready => vec![NotifyState::Ready],
        Notice::Reloading => vec![NotifyState::Reloading],
        Notice::Stopping => vec![NotifyState::Stopping],
    };
    if notice == Notice::Reloading {
        states.extend(NotifyState::monotonic_usec_now());
    }
    let text: String = states.iter().map(|state| format!("{state}\n")).collect();
    match send(&place, text.as_bytes()) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::WouldBlock => tracing::warn!(
            "the service manager does not hear {}: nobody reads the socket that NOTIFY_SOCKET names",
            text.trim_end().replace('\n', " ")
        ),
        // Of a manager that is gone, which has left its variable.
        Err(error) => tracing::debug!("the service manager cannot be told: {error}"),
    }
}

fn send(place: &OsStr, text: &[u8]) -> io::Result<()> {
    let to = match place.as_bytes() {
        [b'@', name @ ..] => SocketAddrUnix::new_abstract_name(name)?,
        path => SocketAddrUnix::new(path)?,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
    sendto(&socket, text, SendFlags::NOSIGNAL | SendFlags::DONTWAIT, &to)?;
    Ok(())
}
