//! Open files that are not connections, and that clients hold: what of an answer is sent from, and what bodies and answers wait in.
//!
//! It promises that there are never so many that accepting, commands, forks and logs find no descriptor; that one client has half of them at
//! most, and one connection fewer. Each counts from before it is opened until it is closed. A connection's own count is asked first, then the
//! client's, then that of all: nobody who has the last waits for another, so nobody waits in a circle.

use std::{cell::OnceCell, net::IpAddr, sync::Arc, time::Duration};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{sleep, timeout},
};

use crate::by_address::{ByAddress, Held, TooMany};

/// Files of answers that one connection has open at one time, if there are enough.
const FILES: usize = 32;
/// One connection has one in so many at most, of each use.
const PART: usize = 8;
/// Fewer are never reckoned with.
const LEAST: usize = 4;
/// More are never needed.
const MOST: usize = 1 << 20;
/// How long a request waits for others' files to be closed. For those of its own connection it may wait longer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it is looked whether a client that had too many has fewer.
const LOOK: Duration = Duration::from_millis(100);

/// What a file is open for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// An answer is sent from it. Those that wait for it hold nothing, so a connection may have many of them.
    Answer,
    /// A body, or what a script has written, waits in it. Who waits for it has data in memory and in windows.
    Temporary,
}

/// All of them.
pub(crate) struct Descriptors {
    free: Arc<Semaphore>,
    all: usize,
    by_client: Arc<ByAddress>,
}

/// What one connection may have open, once it has something open.
#[derive(Default)]
pub(crate) struct Own {
    answers: OnceCell<Arc<Semaphore>>,
    temporary: OnceCell<Arc<Semaphore>>,
}

/// Where a request gets its files from.
#[derive(Clone, Copy)]
pub(crate) struct Files<'a> {
    pub(crate) all: &'a Arc<Descriptors>,
    pub(crate) own: &'a Own,
    /// Who is counted; `None` for a proxy of many clients, or one without an address.
    pub(crate) client: Option<IpAddr>,
}

/// The same for one use, for any thread.
#[derive(Clone)]
pub(crate) struct Share {
    all: Arc<Descriptors>,
    own: Arc<Semaphore>,
    client: Option<IpAddr>,
}

/// Leave to have one file open, for as long as it is held.
pub(crate) struct Permit {
    _all: OwnedSemaphorePermit,
    _client: Option<Held>,
    _own: OwnedSemaphorePermit,
}

impl Descriptors {
    /// `spare`: how many descriptors there are beside those of connections; half of them are handed out.
    pub(crate) fn new(spare: usize) -> Arc<Descriptors> {
        let all = (spare / 2).clamp(LEAST, MOST);
        Arc::new(Descriptors { free: Arc::new(Semaphore::new(all)), all, by_client: Arc::default() })
    }

    /// Whether less than a quarter is left, so that others may be refused for what clients hold.
    pub(crate) fn is_short(&self) -> bool {
        self.free.available_permits() < self.all / 4
    }

    fn for_connection(&self, purpose: Use) -> usize {
        match purpose {
            Use::Answer => (self.all / PART).clamp(1, FILES),
            Use::Temporary => (self.all / PART).max(1),
        }
    }
}

impl Files<'_> {
    pub(crate) fn share(&self, purpose: Use) -> Share {
        let own = match purpose {
            Use::Answer => &self.own.answers,
            Use::Temporary => &self.own.temporary,
        };
        let own = own.get_or_init(|| Arc::new(Semaphore::new(self.all.for_connection(purpose))));
        Share { all: Arc::clone(self.all), own: Arc::clone(own), client: self.client }
    }
}

impl Share {
    /// One more, if it can be had at once.
    pub(crate) fn try_take(&self) -> Option<Permit> {
        let own = Arc::clone(&self.own).try_acquire_owned().ok()?;
        let client = self.of_client().ok()?;
        let all = Arc::clone(&self.all.free).try_acquire_owned().ok()?;
        Some(Permit { _all: all, _client: client, _own: own })
    }

    /// Waits for others of this connection as long as they take, which the limits of slow clients end, and a few seconds for the rest;
    /// `None` when that was in vain.
    pub(crate) async fn take(&self) -> Option<Permit> {
        let own = Arc::clone(&self.own).acquire_owned().await.ok()?;
        let rest = async {
            let client = loop {
                match self.of_client() {
                    Ok(client) => break client,
                    Err(TooMany) => sleep(LOOK).await,
                }
            };
            let all = Arc::clone(&self.all.free).acquire_owned().await.ok()?;
            Some((all, client))
        };
        let (all, client) = timeout(PATIENCE, rest).await.ok()??;
        Some(Permit { _all: all, _client: client, _own: own })
    }

    /// The same where all of it takes a few seconds at most: for those that others may wait for.
    pub(crate) async fn take_soon(&self) -> Option<Permit> {
        if let Some(permit) = self.try_take() {
            return Some(permit);
        }
        Box::pin(timeout(PATIENCE, self.take())).await.ok()?
    }

    /// See [`Descriptors::is_short`].
    pub(crate) fn is_short(&self) -> bool {
        self.all.is_short()
    }

    fn of_client(&self) -> Result<Option<Held>, TooMany> {
        self.client.map(|client| self.all.by_client.take(client, self.all.all / 2)).transpose()
    }
}

/// Leave that nobody else needs.
#[cfg(test)]
pub(crate) fn permit() -> Permit {
    let (all, own) = (Descriptors::new(0), Own::default());
    Files { all: &all, own: &own, client: None }.share(Use::Temporary).try_take().unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_and_a_client_have_a_part_and_each_file_counts_until_it_is_closed() {
        let all = Descriptors::new(64);
        let own: [Own; 6] = std::array::from_fn(|_| Own::default());
        let [one, three, others @ ..] = &own;
        let of = |own, addr: &str| {
            Files { all: &all, own, client: Some(addr.parse().unwrap()) }.share(Use::Answer)
        };
        let mut held: Vec<_> = std::iter::from_fn(|| of(one, "192.0.2.1").try_take()).collect();
        assert_eq!(held.len(), 4);
        for other in others {
            held.extend(std::iter::from_fn(|| of(other, "192.0.2.1").try_take()));
        }
        assert_eq!(held.len(), 16);
        assert!(of(three, "192.0.2.1").try_take().is_none() && of(three, "192.0.2.1").take().await.is_none());
        assert!(of(three, "192.0.2.2").try_take().is_some() && !all.is_short());
        let share = of(one, "192.0.2.1");
        let waits = tokio::spawn(async move { share.take().await.is_some() });
        sleep(PATIENCE * 3).await;
        assert!(!waits.is_finished(), "for its own connection it waits as long as that takes");
        held.remove(0);
        assert!(waits.await.unwrap());
        drop(held);
        assert_eq!(all.free.available_permits(), 32);
    }
}
