//! The control channel to a zygote: one `struct hy_message` (host/layout.h) per packet.
//!
//! What arrives was written by a process that has run PHP code, so it is checked before it is believed.

use std::{io, os::fd::OwnedFd, time::Duration};

use hayate_ring::layout::*;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use tokio::io::unix::AsyncFd;

use crate::log;

/// What the pool tells a zygote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command {
    Fork {
        worker: u32,
    },
    /// To be answered with [`Message::Pong`].
    Ping {
        number: i32,
    },
    /// Has the zygote log what a worker is doing.
    Trace {
        worker: u32,
        /// For how long it has run its request.
        ran: Duration,
        /// The request's.
        ticket: u64,
    },
    /// Has PHP end the request of that ticket in a worker that was asked to leave, if it has that one still.
    Unwind {
        worker: u32,
        pid: i32,
        ticket: u64,
    },
    Quit,
}

/// In which way a boot is to be done again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    /// In each worker.
    Private,
    /// Without warm-up requests.
    Cold,
    /// The same, because answers show what those have left behind.
    Differs,
    /// By another generation, whose workers fork for each request.
    Fork,
    /// By another generation, in classic mode.
    Classic,
    /// As it was; in classic mode if that boot says the same.
    OnceMore,
}

/// What a zygote tells the pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Message {
    Ready {
        php: String,
    },
    /// `worker` is `None` when the zygote's own boot failed.
    BootFailed {
        worker: Option<u32>,
        why: String,
    },
    /// The boot is to be done again; the sender ends. Both may be asked for, one after the other.
    BootAgain {
        /// The worker that says so, when it boots by itself.
        worker: Option<u32>,
        how: Again,
        why: String,
    },
    Forked {
        worker: u32,
        pid: i32,
    },
    ForkFailed {
        worker: u32,
        why: String,
    },
    Exited {
        worker: u32,
        pid: i32,
        status: i32,
    },
    /// Something is wrong that does not end the boot.
    Remark {
        why: String,
    },
    WorkerReady {
        worker: u32,
    },
    /// The number is that of the ping.
    Pong {
        number: i32,
    },
    /// What the worker does is in the log, as far as it can be; the ticket's lower bits are those of [`Command::Trace`].
    Traced {
        worker: u32,
        ticket: u32,
    },
}

/// Bytes before `text`.
const HEAD: usize = std::mem::offset_of!(hy_message, text);
const _: () = assert!(HEAD == 20, "the five integers that encode() and parse() know");

impl Command {
    /// The most of [`Command::answers`].
    pub(crate) const MOST_ANSWERS: u32 = 8;

    /// How many messages there may be on account of it, from the zygote and from the worker that it forks: that it runs or does not, remarks
    /// and the failure of its own boot, that it is ready, and its end.
    pub(crate) fn answers(self) -> u32 {
        match self {
            Command::Fork { .. } => Command::MOST_ANSWERS,
            Command::Ping { .. } | Command::Trace { .. } => 1,
            Command::Unwind { .. } | Command::Quit => 0,
        }
    }

    fn encode(self) -> [u8; HEAD] {
        let (kind, worker, pid, value) = match self {
            Command::Fork { worker } => (HY_MSG_FORK, worker, 0, 0),
            Command::Ping { number } => (HY_MSG_PING, 0, 0, number as u32),
            Command::Trace { worker, ran, ticket } => {
                (HY_MSG_TRACE, worker, ticket as u32, ran.as_millis().try_into().unwrap_or(u32::MAX))
            }
            Command::Unwind { worker, pid, ticket } => (HY_MSG_UNWIND, worker, pid as u32, ticket as u32),
            Command::Quit => (HY_MSG_QUIT, 0, 0, 0),
        };
        let words = [kind, worker, pid, value, 0].map(u32::to_ne_bytes);
        let mut bytes = [0; HEAD];
        bytes.iter_mut().zip(words.as_flattened()).for_each(|(to, from)| *to = *from);
        bytes
    }
}

impl Message {
    /// `None` for what no zygote of this version sends.
    fn parse(packet: &[u8]) -> Option<Message> {
        let word = |at: usize| Some(u32::from_ne_bytes(packet.get(at..at + 4)?.try_into().ok()?));
        let (kind, worker, pid, value, len) =
            (word(0)?, word(4)?, word(8)? as i32, word(12)? as i32, word(16)? as usize);
        let text = || {
            let said = String::from_utf8_lossy(packet.get(HEAD..)?.get(..len)?);
            Some(log::shown(said.trim_end()))
        };
        Some(match kind {
            HY_MSG_READY => Message::Ready { php: text()? },
            HY_MSG_BOOT_FAILED => {
                Message::BootFailed { worker: (worker != u32::MAX).then_some(worker), why: text()? }
            }
            HY_MSG_BOOT_AGAIN => Message::BootAgain {
                worker: (worker != u32::MAX).then_some(worker),
                how: match value as u32 {
                    HY_AGAIN_PRIVATE => Again::Private,
                    HY_AGAIN_COLD => Again::Cold,
                    HY_AGAIN_DIFFERS => Again::Differs,
                    HY_AGAIN_FORK => Again::Fork,
                    HY_AGAIN_CLASSIC => Again::Classic,
                    HY_AGAIN_ONCE_MORE => Again::OnceMore,
                    _ => return None,
                },
                why: text()?,
            },
            HY_MSG_FORKED if pid > 1 => Message::Forked { worker, pid },
            HY_MSG_FORK_FAILED => Message::ForkFailed { worker, why: text()? },
            HY_MSG_EXITED => Message::Exited { worker, pid, status: value },
            HY_MSG_REMARK => Message::Remark { why: text()? },
            HY_MSG_WORKER_READY => Message::WorkerReady { worker },
            HY_MSG_PONG => Message::Pong { number: value },
            HY_MSG_TRACED => Message::Traced { worker, ticket: pid as u32 },
            _ => return None,
        })
    }
}

/// The pool's end.
pub(crate) struct Channel {
    socket: AsyncFd<OwnedFd>,
}

impl Channel {
    /// Makes both ends; the second is for the zygote. Needs a tokio runtime.
    pub(crate) fn pair() -> io::Result<(Channel, OwnedFd)> {
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        rustix::io::ioctl_fionbio(&ours, true)?;
        // SAFETY: the registration owns the descriptor, and nobody else closes or replaces it.
        let socket = unsafe { AsyncFd::register(ours) }?;
        Ok((Channel { socket }, theirs))
    }

    /// Never waits: a zygote that lets this many commands lie is stuck, and `WouldBlock` says so.
    pub(crate) fn send(&self, command: Command) -> io::Result<()> {
        rustix::net::send(self.socket.get_ref(), &command.encode(), SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// A message that is there already. `Ok(None)`: the zygote's end is closed, or might as well be: what comes out of it makes no sense.
    pub(crate) fn try_recv(&self) -> io::Result<Option<Message>> {
        let mut packet = [0u8; size_of::<hy_message>()];
        let (n, _) = rustix::net::recv(self.socket.get_ref(), &mut packet, RecvFlags::empty())?;
        let message = packet.get(..n).and_then(Message::parse);
        if message.is_none() && n > 0 {
            tracing::error!("the host sent a control message of {n} bytes that makes no sense; it is ended");
        }
        Ok(message)
    }

    /// The next message; `None` once the zygote's end is closed. Cancel-safe.
    pub(crate) async fn recv(&self) -> Option<Message> {
        loop {
            let mut guard = self.socket.readable().await.ok()?;
            match guard.try_io(|_| self.try_recv()) {
                Ok(Ok(message)) => return message,
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(_)) => return None,
                Err(_would_block) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(kind: u32, worker: u32, pid: i32, value: i32, text: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        for word in [kind, worker, pid as u32, value as u32, text.len() as u32] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(text.as_bytes());
        bytes
    }

    #[test]
    fn messages_are_read_and_nonsense_is_not() {
        let ready = packet(HY_MSG_READY, 0, 9, 0, "8.2.35");
        assert_eq!(Message::parse(&ready), Some(Message::Ready { php: "8.2.35".into() }));
        assert_eq!(
            Message::parse(&packet(HY_MSG_BOOT_FAILED, u32::MAX, 0, 0, "why\n")),
            Some(Message::BootFailed { worker: None, why: "why".into() })
        );
        assert_eq!(
            Message::parse(&packet(HY_MSG_EXITED, 3, 77, 9, "")),
            Some(Message::Exited { worker: 3, pid: 77, status: 9 })
        );
        assert_eq!(Message::parse(&ready[..19]), None);
        assert_eq!(Message::parse(&ready[..22]), None, "text_len beyond the packet");
        let said = Message::parse(&packet(HY_MSG_REMARK, 0, 0, 0, "red: \x1b[31m\u{9b}\x07\n\tat a.php"));
        assert_eq!(said, Some(Message::Remark { why: "red: ?[31m??\n\tat a.php".into() }));
        assert_eq!(Message::parse(&packet(HY_MSG_FORKED, 0, 0, 0, "")), None, "pid 0 is a process group");
        assert_eq!(Message::parse(&packet(99, 0, 0, 0, "")), None);
    }

    #[test]
    fn fuzz_packets_of_a_hostile_zygote() {
        let words: Vec<[u8; 4]> = (0..32u32).chain([u32::MAX, 1 << 31]).map(u32::to_ne_bytes).collect();
        let pieces: Vec<&[u8]> = words.iter().map(|word| &word[..]).chain([&b"\xff\xfe"[..]]).collect();
        let kinds = [
            HY_MSG_READY,
            HY_MSG_BOOT_FAILED,
            HY_MSG_BOOT_AGAIN,
            HY_MSG_FORKED,
            HY_MSG_FORK_FAILED,
            HY_MSG_EXITED,
        ];
        let seeds: Vec<Vec<u8>> = kinds.map(|kind| packet(kind, 1, 77, 1, "8.2.36")).into();
        let seeds: Vec<&[u8]> = seeds.iter().map(Vec::as_slice).collect();
        hayate_fuzz::run("control messages", &seeds, &pieces, |_, input| {
            if let Some(Message::Forked { pid, .. }) = Message::parse(input) {
                assert!(pid > 1, "0 and -1 are groups, and everybody");
            }
        });
    }

    #[tokio::test]
    async fn a_closed_end_is_told_after_what_was_sent_before() {
        let (ours, theirs) = Channel::pair().unwrap();
        ours.send(Command::Fork { worker: 5 }).unwrap();
        let mut got = [0; 64];
        let (n, _) = rustix::net::recv(&theirs, &mut got, RecvFlags::empty()).unwrap();
        assert_eq!(got[..n], packet(HY_MSG_FORK, 5, 0, 0, "")[..]);
        rustix::net::send(&theirs, &packet(HY_MSG_WORKER_READY, 4, 0, 0, ""), SendFlags::empty()).unwrap();
        drop(theirs);
        assert_eq!(ours.recv().await, Some(Message::WorkerReady { worker: 4 }));
        assert_eq!(ours.recv().await, None);
        assert!(ours.send(Command::Quit).is_err());
    }
}
