//! What master and front tell each other: a SEQPACKET socket pair, one message in JSON per packet, descriptors beside it.
//!
//! The front faces the network, so the master believes nothing of what it says beyond these types: numbers of plans, applications and
//! zygotes that the master itself gave out.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use hayate_pool::Start;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Descriptors in one packet; the kernel allows 253.
pub const MOST_FILES: usize = 250;
/// Bytes of a packet.
const LONGEST: usize = 64 << 10;
/// Bytes of a reason, so that it fits a packet whatever it holds.
const LONGEST_REASON: usize = 8 << 10;

/// The front's words.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToMaster {
    /// Read the configuration again. Answered by `Plan` or `Refused`.
    Load {
        /// Chosen by the front.
        request: u64,
    },
    /// This plan is served now.
    Adopted {
        /// Its number.
        plan: u64,
    },
    /// This plan will not be served.
    Abandoned {
        /// Its number.
        plan: u64,
    },
    /// Start a zygote; with it come the files of [`hayate_pool::Files::into_list`].
    Launch {
        /// Chosen by the front.
        zygote: u64,
        /// The plan's number.
        plan: u64,
        /// The application's place in it.
        app: usize,
        /// How it boots.
        start: Start,
    },
    /// Kill a zygote.
    Kill {
        /// As launched.
        zygote: u64,
    },
    /// Kill a worker of this zygote; with it comes the worker's pidfd.
    KillWorker {
        /// As launched.
        zygote: u64,
    },
    /// For the service manager.
    Notify(Notice),
    /// The answer to `Ask`.
    Alive,
    /// The same, of a front to which nobody is connected.
    Alone,
    /// This front, whose place another has taken, reads the sockets of HTTP/3 no more.
    LeftQuic,
    /// Why this front cannot serve; it ends next.
    Failed {
        /// For people.
        why: String,
    },
    /// Put the program that is installed now in the place of this one. Answered by `Upgraded`.
    Upgrade {
        /// Chosen by the front.
        request: u64,
    },
    /// Somebody wants the end of the server. All fronts hear of it as of a signal.
    Stop,
}

/// What a service manager wants to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Notice {
    /// Applications have booted and requests are answered.
    Ready,
    /// A reload is under way.
    Reloading,
    /// The end has begun.
    Stopping,
}

/// The master's words.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToFront {
    /// The first message to a front. With it come the plan's file, the control socket if there is one, the socket for metrics if there
    /// is one, and the sockets of the plan's addresses in order.
    Begin {
        /// The plan's number.
        plan: u64,
        /// The master's process.
        master: u32,
        /// The user that the master runs as.
        master_user: u32,
        /// Where the control socket is.
        control: Option<std::path::PathBuf>,
        /// There is a socket for metrics.
        metrics: bool,
        /// A front has served before; a boot that fails does not end the server.
        again: bool,
        /// Another front serves until this one does.
        successor: bool,
        /// What all fronts of this server derive keys of QUIC from.
        secret: [u8; 32],
    },
    /// The answer to `Load`. With it come the plan's file and the sockets of its addresses in order.
    Plan {
        /// As asked.
        request: u64,
        /// The plan's number.
        plan: u64,
    },
    /// The configuration is wrong, or an address cannot be listened on.
    Refused {
        /// As asked.
        request: u64,
        /// Why.
        why: String,
    },
    /// A zygote runs.
    Started {
        /// As launched.
        zygote: u64,
        /// Its process.
        pid: i32,
    },
    /// A zygote could not be started.
    NotStarted {
        /// As launched.
        zygote: u64,
        /// Why.
        why: String,
    },
    /// How an upgrade went.
    Upgraded {
        /// As asked.
        request: u64,
        /// Why it was refused.
        refused: Option<String>,
    },
    /// Another front serves now: finish, and end.
    Replaced,
    /// No front but this one is left.
    Alone,
    /// No front but this one reads the sockets of HTTP/3.
    Quic,
    /// The files of the served plan's certificates have changed. With it comes a file of what they hold now.
    Certificates {
        /// The plan's number.
        plan: u64,
    },
    /// A sign of life is wanted. Answered by `Alive`; a front that does not answer is killed (`pulse.rs`).
    Ask,
    /// A zygote is dead.
    Ended {
        /// As launched.
        zygote: u64,
        /// As wait(2) has it.
        status: i32,
    },
}

/// A text that fits a packet.
pub fn reason(text: impl Into<String>) -> String {
    let mut text: String = text.into();
    if let Some((at, _)) = text.char_indices().find(|(at, _)| *at > LONGEST_REASON) {
        text.truncate(at);
    }
    text
}

/// Both ends; they do not outlive an exec, and never block.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// Sends one message. `WouldBlock`: later.
pub fn send(wire: impl AsFd, message: &impl Serialize, files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let text = serde_json::to_vec(message)?;
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "more descriptors than a packet holds"));
    }
    sendmsg(wire, &[IoSlice::new(&text)], &mut beside, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
    Ok(())
}

/// A message and the descriptors beside it.
pub type Packet<M> = (M, Vec<OwnedFd>);

/// Receives one message. `None`: the other end is closed. `InvalidData`: it was none of ours, and is gone.
pub fn receive<M: DeserializeOwned>(wire: impl AsFd) -> io::Result<Option<Packet<M>>> {
    let mut text = vec![0; LONGEST];
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let got = recvmsg(wire, &mut [IoSliceMut::new(&mut text)], &mut beside, flags)?;
    let mut files = Vec::new();
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            files.extend(descriptors);
        }
    }
    if got.bytes == 0 {
        return Ok(None);
    }
    let text = text.get(..got.bytes).unwrap_or_default();
    Ok(Some((serde_json::from_slice(text)?, files)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fuzz_what_a_hostile_front_says() {
        let (one, other) = pair().unwrap();
        let text = |message: &ToMaster| serde_json::to_vec(message).unwrap();
        let seeds = [
            text(&ToMaster::KillWorker { zygote: 7 }),
            text(&ToMaster::Load { request: 1 }),
            text(&ToMaster::Adopted { plan: 2 }),
        ];
        let seeds: Vec<&[u8]> = seeds.iter().map(Vec::as_slice).collect();
        let pieces: [&[u8]; 10] =
            [b"{", b"}", b"\"", b":", b",", b"-1", b"1e999", b"null", b"\\u0000", b"18446744073709551616"];
        hayate_fuzz::run("messages to the master", &seeds, &pieces, |random, input| {
            let file = std::fs::File::open("/dev/null").unwrap();
            let files = vec![file.as_fd(); random.below(3)];
            let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
            let mut beside = SendAncillaryBuffer::new(&mut space);
            assert!(files.is_empty() || beside.push(SendAncillaryMessage::ScmRights(&files)));
            sendmsg(&one, &[IoSlice::new(input)], &mut beside, SendFlags::DONTWAIT).unwrap();
            // It is told apart or refused; the wire goes on.
            let _ = receive::<ToMaster>(&other);
        });
    }

    #[test]
    fn a_message_arrives_with_its_descriptors() {
        let (one, other) = pair().unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        send(&one, &ToMaster::KillWorker { zygote: 7 }, &[file.as_fd()]).unwrap();
        let (message, files) = receive::<ToMaster>(&other).unwrap().unwrap();
        assert!(matches!(message, ToMaster::KillWorker { zygote: 7 }) && files.len() == 1);
        assert_eq!(receive::<ToMaster>(&other).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(one);
        // A program that another test has just started may have it for a moment longer.
        let minute = rustix::event::Timespec { tv_sec: 60, tv_nsec: 0 };
        let mut ended = [rustix::event::PollFd::new(&other, rustix::event::PollFlags::IN)];
        assert_eq!(rustix::event::poll(&mut ended, Some(&minute)), Ok(1));
        assert!(receive::<ToMaster>(&other).unwrap().is_none());
    }

    #[test]
    fn nonsense_is_an_error_and_no_more() {
        let (one, other) = pair().unwrap();
        rustix::net::send(&one, b"{\"Launch\":{\"zygote\":-1}}", SendFlags::empty()).unwrap();
        assert!(receive::<ToMaster>(&other).is_err());
        send(&one, &ToMaster::Load { request: 1 }, &[]).unwrap();
        assert!(matches!(receive(&other).unwrap(), Some((ToMaster::Load { request: 1 }, _))));
    }

    #[test]
    fn the_longest_reason_fits() {
        let (one, other) = pair().unwrap();
        // Each of these becomes six bytes of JSON.
        let why = reason("\u{1}".repeat(1 << 20));
        send(&one, &ToFront::NotStarted { zygote: u64::MAX, why: why.clone() }, &[]).unwrap();
        let (message, _) = receive::<ToFront>(&other).unwrap().unwrap();
        assert!(matches!(message, ToFront::NotStarted { why: same, .. } if same == why));
    }
}
