//! Whose turn it is, of those on one thread who agree upon TLS, by TCP or by QUIC.
//!
//! A few handshakes are computed in one turn of the thread. Those who wait for that are taken client by client, one of each at a time, and those of one
//! client in order of arrival. So whoever comes with thousands of handshakes waits behind himself, and others wait for as many clients as there are.

use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, VecDeque},
    future::poll_fn,
    net::IpAddr,
    rc::Rc,
    task::{Poll, Waker},
};

/// Handshakes that are computed in one turn of a thread.
const AT_A_TURN: usize = 4;

/// Whose a handshake is; `None`: nobody knows.
type Client = Option<IpAddr>;

/// See the module.
#[derive(Debug)]
pub struct Handshakes(RefCell<Line>);

impl Default for Handshakes {
    fn default() -> Handshakes {
        let (clients, waiting) = (VecDeque::new(), HashMap::new());
        Handshakes(RefCell::new(Line { free: AT_A_TURN, clients, waiting }))
    }
}

#[derive(Debug)]
struct Line {
    /// Turns that nobody has: then nobody waits.
    free: usize,
    /// Those of whom somebody waits, the next one first.
    clients: VecDeque<Client>,
    /// Who waits, by client and in order of arrival.
    waiting: HashMap<Client, VecDeque<Rc<Place>>>,
}

impl Line {
    /// Takes the next one out who still waits.
    fn next(&mut self) -> Option<Rc<Place>> {
        while let Some(client) = self.clients.pop_front() {
            let Some(places) = self.waiting.get_mut(&client) else { continue };
            let next = std::iter::from_fn(|| places.pop_front()).find(|place| !place.left.get());
            if places.is_empty() {
                self.waiting.remove(&client);
            } else {
                self.clients.push_back(client);
            }
            if next.is_some() {
                return next;
            }
        }
        None
    }
}

/// A place in the line.
#[derive(Debug, Default)]
struct Place {
    /// It is its turn.
    reached: Cell<bool>,
    /// Nobody waits there any more.
    left: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

/// A turn, or the wait for one; it is over when this goes.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    all: &'a Handshakes,
    place: Option<Rc<Place>>,
}

impl Handshakes {
    /// Waits for a turn of this client's. It is to be kept until all others have had theirs (`yield_now`), and never while a client is waited for.
    pub(crate) async fn turn(&self, of: Client) -> Turn<'_> {
        let turn = self.line_up(of);
        if let Some(place) = &turn.place {
            poll_fn(|cx| {
                if place.reached.get() {
                    return Poll::Ready(());
                }
                place.waker.replace(Some(cx.waker().clone()));
                Poll::Pending
            })
            .await;
        }
        turn
    }

    fn line_up(&self, of: Client) -> Turn<'_> {
        let line = &mut *self.0.borrow_mut();
        if let Some(free) = line.free.checked_sub(1) {
            line.free = free;
            return Turn { all: self, place: None };
        }
        let (place, places) = (Rc::<Place>::default(), line.waiting.entry(of).or_default());
        if places.is_empty() {
            line.clients.push_back(of);
        }
        places.push_back(Rc::clone(&place));
        Turn { all: self, place: Some(place) }
    }

    fn pass_on(&self) {
        let next = self.0.borrow_mut().next();
        let Some(next) = next else { return self.0.borrow_mut().free += 1 };
        next.reached.set(true);
        if let Some(waker) = next.waker.take() {
            waker.wake();
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        match &self.place {
            Some(place) if !place.reached.get() => {
                place.left.set(true);
                place.waker.take();
            }
            _ => self.all.pass_on(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn client(number: u8) -> Client {
        Some(Ipv4Addr::new(192, 0, 2, number).into())
    }

    fn is_reached(turn: &Turn<'_>) -> bool {
        turn.place.as_ref().is_none_or(|place| place.reached.get())
    }

    #[test]
    fn clients_have_their_turn_one_after_the_other() {
        let all = Handshakes::default();
        let mut present: Vec<_> = (0..AT_A_TURN).map(|_| all.line_up(client(1))).collect();
        assert!(present.iter().all(is_reached));
        let many: Vec<_> = (0..1000).map(|_| all.line_up(client(1))).collect();
        let (one, other) = (all.line_up(client(2)), all.line_up(None));
        present.pop();
        assert!(is_reached(&many[0]) && !is_reached(&one), "who came first is first");
        present.pop();
        assert!(is_reached(&one) && !is_reached(&other) && !is_reached(&many[1]));
        present.pop();
        assert!(is_reached(&other) && !is_reached(&many[1]));
        present.pop();
        assert!(is_reached(&many[1]) && !is_reached(&many[2]));
    }

    #[test]
    fn who_has_left_holds_up_nobody() {
        let all = Handshakes::default();
        let present: Vec<_> = (0..AT_A_TURN).map(|_| all.line_up(None)).collect();
        let (gone, waits) = (all.line_up(client(1)), all.line_up(client(1)));
        let also_gone = all.line_up(client(2));
        drop((gone, also_gone));
        drop(present);
        assert!(is_reached(&waits));
        // One whose turn it is may leave as well.
        drop(waits);
        let line = all.0.borrow();
        assert_eq!((line.free, line.clients.len(), line.waiting.len()), (AT_A_TURN, 0, 0));
    }
}
