//! Looks after the files of certificates and keys, which root alone may read: what changes is read again and goes to the front.
//!
//! It is a thread of its own, since a disk may hang. It looks every few seconds, and reads a file only when it has changed. What is no good is spoken
//! of and not handed on: a front that starts later has none from before to go on with.

use std::{
    fs, io,
    os::{fd::OwnedFd, unix::fs::MetadataExt},
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    thread,
    time::Duration,
};

use hayate_certificates::{Pair, Pem};
use hayate_panics::caught_now;
use rustix::event::{EventfdFlags, eventfd};

use crate::plan::read_pem;

/// Between two looks, for a minute after the start and after each change: certificates are often changed twice, and people look whether they
/// are there.
const LOOK: Duration = Duration::from_secs(3);
const SOON: u32 = 20;
/// The same afterwards, for a certificate lasts for weeks, and a server that nobody asks for anything is to sleep.
const LOOK_SELDOM: Duration = Duration::from_secs(30);

/// The thread's handle.
pub struct Keys {
    /// Readable when there is news.
    pub event: OwnedFd,
    watched: Sender<Vec<Pair>>,
    news: Receiver<Vec<Pair>>,
}

/// What tells that a file is another one than before.
type Stamp = Option<(u64, u64, i64, i64, u64)>;

fn stamp(pair: &Pair) -> [Stamp; 2] {
    [&pair.certificate, &pair.private].map(|path| {
        let file = fs::metadata(path).ok()?;
        Some((file.dev(), file.ino(), file.mtime(), file.mtime_nsec(), file.len()))
    })
}

impl Keys {
    /// Starts the thread, which looks at nothing yet.
    pub fn start() -> io::Result<Keys> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (watched, hear) = mpsc::channel();
        let (tell, news) = mpsc::channel();
        let theirs = event.try_clone()?;
        thread::Builder::new().name("keys".into()).spawn(move || look_after(&hear, &tell, &theirs))?;
        Ok(Keys { event, watched, news })
    }

    /// Says which files to look at from now on, and what they held.
    pub fn watch(&self, pairs: Vec<Pair>) {
        // The thread lives as long as this.
        let _ = self.watched.send(pairs);
    }

    /// What has changed since the last call: all pairs, as they are now.
    pub fn news(&self) -> Option<Vec<Pair>> {
        // Only to be readable no more.
        let _ = rustix::io::read(&self.event, &mut [0u8; 8]);
        self.news.try_iter().last()
    }
}

fn look_after(watched: &Receiver<Vec<Pair>>, tell: &Sender<Vec<Pair>>, event: &OwnedFd) {
    let mut pairs: Vec<Pair> = Vec::new();
    let mut stamps: Vec<[Stamp; 2]> = Vec::new();
    let mut quiet = 0u32;
    loop {
        // Nothing to look at, nothing to wake up for.
        let heard = match pairs.is_empty() {
            true => watched.recv().map_err(|_| RecvTimeoutError::Disconnected),
            false => watched.recv_timeout(if quiet < SOON { LOOK } else { LOOK_SELDOM }),
        };
        match heard {
            Ok(now) => {
                // What changed between their reading and now is seen by the comparison of what they hold.
                stamps = vec![[None, None]; now.len()];
                pairs = now;
                quiet = 0;
            }
            Err(RecvTimeoutError::Timeout) => quiet = quiet.saturating_add(1),
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let mut changed = false;
        for (pair, before) in pairs.iter_mut().zip(&mut stamps) {
            let known = *before;
            // A panic costs the look at this pair, and not the thread.
            changed |= caught_now(|| look(pair, before)).unwrap_or(false);
            if *before != known {
                quiet = 0;
            }
        }
        if changed {
            if tell.send(pairs.clone()).is_err() {
                return;
            }
            // It counts; full it is readable as well.
            let _ = rustix::io::write(event, &1u64.to_ne_bytes());
        }
    }
}

/// Reads a pair again if its files are others than before. Whether it holds something else now.
fn look(pair: &mut Pair, before: &mut [Stamp; 2]) -> bool {
    let now = stamp(pair);
    if now == *before {
        return false;
    }
    let read = (read_pem(&pair.certificate), read_pem(&pair.private));
    // Not before: a panic would cost what is new there.
    *before = now;
    match read {
        (Ok(chain), Ok(key)) if chain == pair.chain.0 && key == pair.key.0 => false,
        (Ok(chain), Ok(key)) => {
            let read = Pair { chain: Pem(chain), key: Pem(key), ..pair.clone() };
            match read.parse() {
                Ok(_) => *pair = read,
                Err(why) => {
                    tracing::error!(
                        "a changed certificate cannot be used, the one before is served on: {why}"
                    );
                    return false;
                }
            }
            true
        }
        (Err(why), _) | (_, Err(why)) => {
            tracing::error!("{why}; the certificate that was read before is served on");
            false
        }
    }
}
