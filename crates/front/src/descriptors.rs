//! Temporary files that clients have open: what bodies and answers wait in.
//!
//! It promises that there are never so many that accepting, commands, forks and logs find no descriptor; that one client has half of them at
//! most, and one connection an eighth. Each counts from before it is opened until it is closed. A connection's own part is asked first, then
//! the client's, then all: nobody who has the last waits for another, so nobody waits in a circle. Each has its turn in the order of asking.

use std::{cell::OnceCell, collections::HashMap, net::IpAddr, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use crate::rules::client_of;

/// One connection has one in so many at most.
const PART: usize = 8;
/// Fewer are never reckoned with.
const LEAST: usize = 4;
/// More are never needed.
const MOST: usize = 1 << 20;
/// How long a request waits for files to be closed.
const PATIENCE: Duration = Duration::from_secs(5);

/// All of them.
pub(crate) struct Descriptors {
    free: Arc<Semaphore>,
    all: usize,
    /// Of clients that have something open, or wait for it.
    by_client: Mutex<HashMap<IpAddr, Arc<Semaphore>>>,
}

/// What one connection may have open, once it has something open.
#[derive(Default)]
pub(crate) struct Own(OnceCell<Arc<Semaphore>>);

/// Where a request gets its files from.
#[derive(Clone, Copy)]
pub(crate) struct Files<'a> {
    pub(crate) all: &'a Arc<Descriptors>,
    pub(crate) own: &'a Own,
    /// Who is counted; `None` for a proxy of many clients, or one without an address.
    pub(crate) client: Option<IpAddr>,
}

/// The same for any thread.
#[derive(Clone)]
pub(crate) struct Share {
    all: Arc<Descriptors>,
    own: Arc<Semaphore>,
    client: Option<IpAddr>,
}

/// Leave to have one file open, for as long as it is held.
pub(crate) struct Permit {
    _all: OwnedSemaphorePermit,
    _client: Option<OfClient>,
    _own: OwnedSemaphorePermit,
}

/// A client's part of them, or one of that.
struct OfClient {
    all: Arc<Descriptors>,
    client: IpAddr,
    /// Given back before the client may be forgotten.
    permit: Option<OwnedSemaphorePermit>,
    part: Option<Arc<Semaphore>>,
}

impl Descriptors {
    /// `spare`: how many descriptors there are beside those of connections; half of them are handed out.
    pub(crate) fn new(spare: usize) -> Arc<Descriptors> {
        let all = (spare / 2).clamp(LEAST, MOST);
        Arc::new(Descriptors { free: Arc::new(Semaphore::new(all)), all, by_client: Mutex::default() })
    }

    fn of(self: &Arc<Self>, client: IpAddr) -> OfClient {
        let client = client_of(client);
        let mut by_client = self.by_client.lock();
        let part = by_client.entry(client).or_insert_with(|| Arc::new(Semaphore::new(self.all / 2)));
        OfClient { all: Arc::clone(self), client, permit: None, part: Some(Arc::clone(part)) }
    }
}

impl Drop for OfClient {
    fn drop(&mut self) {
        self.permit = None;
        self.part = None;
        let mut by_client = self.all.by_client.lock();
        // Nobody else has anything of it.
        if by_client.get(&self.client).is_some_and(|part| Arc::strong_count(part) == 1) {
            by_client.remove(&self.client);
        }
    }
}

impl Files<'_> {
    pub(crate) fn share(&self) -> Share {
        let own = self.own.0.get_or_init(|| Arc::new(Semaphore::new((self.all.all / PART).max(1))));
        Share { all: Arc::clone(self.all), own: Arc::clone(own), client: self.client }
    }
}

impl Share {
    /// One more, if it can be had at once.
    pub(crate) fn try_take(&self) -> Option<Permit> {
        let own = Arc::clone(&self.own).try_acquire_owned().ok()?;
        let mut client = self.client.map(|client| self.all.of(client));
        if let Some(OfClient { permit, part: Some(part), .. }) = &mut client {
            *permit = Some(Arc::clone(part).try_acquire_owned().ok()?);
        }
        let all = Arc::clone(&self.all.free).try_acquire_owned().ok()?;
        Some(Permit { _all: all, _client: client, _own: own })
    }

    /// Waits for one more for some seconds; `None` when that was in vain.
    pub(crate) async fn take(&self) -> Option<Permit> {
        let taken = async {
            let own = Arc::clone(&self.own).acquire_owned().await.ok()?;
            let mut client = self.client.map(|client| self.all.of(client));
            if let Some(OfClient { permit, part: Some(part), .. }) = &mut client {
                *permit = Some(Arc::clone(part).acquire_owned().await.ok()?);
            }
            let all = Arc::clone(&self.all.free).acquire_owned().await.ok()?;
            Some(Permit { _all: all, _client: client, _own: own })
        };
        Box::pin(timeout(PATIENCE, taken)).await.ok()?
    }

    /// Whether less than a quarter is left of all, and this client has no less than the mean of all clients, or no address to be told by: then
    /// others may be refused for what it holds.
    pub(crate) fn is_short(&self) -> bool {
        let left = self.all.free.available_permits();
        if left >= self.all.all / 4 {
            return false;
        }
        let Some(client) = self.client else { return true };
        let by_client = self.all.by_client.lock();
        let mine = by_client
            .get(&client_of(client))
            .map_or(0, |part| self.all.all / 2 - part.available_permits().min(self.all.all / 2));
        mine.saturating_mul(by_client.len()) >= self.all.all.saturating_sub(left)
    }
}

/// Leave that nobody else needs.
#[cfg(test)]
pub(crate) fn permit() -> Permit {
    let (all, own) = (Descriptors::new(0), Own::default());
    Files { all: &all, own: &own, client: None }.share().try_take().unwrap()
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    fn of(all: &Arc<Descriptors>, own: &Own, client: &str) -> Share {
        Files { all, own, client: Some(client.parse().unwrap()) }.share()
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_and_a_client_have_a_part_and_each_file_counts_until_it_is_closed() {
        let all = Descriptors::new(64);
        let own: [Own; 6] = std::array::from_fn(|_| Own::default());
        let [one, three, others @ ..] = &own;
        let mut held: Vec<_> = std::iter::from_fn(|| of(&all, one, "192.0.2.1").try_take()).collect();
        assert_eq!(held.len(), 4);
        for other in others {
            held.extend(std::iter::from_fn(|| of(&all, other, "192.0.2.1").try_take()));
        }
        assert_eq!(held.len(), 16);
        let share = of(&all, three, "192.0.2.1");
        assert!(share.try_take().is_none() && share.take().await.is_none());
        assert!(of(&all, three, "192.0.2.2").try_take().is_some() && !share.is_short());
        drop(held);
        assert_eq!(all.free.available_permits(), 32);
        assert!(all.by_client.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_comes_before_who_asks_later() {
        let all = Descriptors::new(64);
        let own: [Own; 6] = std::array::from_fn(|_| Own::default());
        let [last, others @ ..] = &own;
        let taken =
            |own: &Own| std::iter::from_fn(|| of(&all, own, "192.0.2.1").try_take()).collect::<Vec<_>>();
        let mut held: Vec<_> = others.iter().flat_map(taken).collect();
        let share = of(&all, last, "192.0.2.1");
        let waits = tokio::spawn(async move { share.take().await.is_some() });
        sleep(PATIENCE / 2).await;
        held.pop();
        // It has not run yet, and the place is its.
        assert!(of(&all, last, "192.0.2.1").try_take().is_none());
        assert!(waits.await.unwrap());
    }

    #[tokio::test]
    async fn when_few_are_left_those_who_have_many_give_way() {
        let all = Descriptors::new(64);
        let own: [Own; 9] = std::array::from_fn(|_| Own::default());
        let [small, others @ ..] = &own;
        let taken = |(n, own): (usize, &Own)| {
            let client = format!("192.0.2.{}", 1 + n / 4);
            std::iter::from_fn(|| of(&all, own, &client).try_take()).collect::<Vec<_>>()
        };
        let mut held: Vec<_> = others.iter().enumerate().flat_map(taken).collect();
        assert_eq!(held.len(), 32);
        held.truncate(30);
        held.extend(of(&all, small, "192.0.2.9").try_take());
        assert!(of(&all, small, "192.0.2.1").is_short() && !of(&all, small, "192.0.2.9").is_short());
    }
}
