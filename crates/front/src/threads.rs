//! The front's threads: each with an event loop, connections and a doorbell of its own. What they share is in [`Front`] and in the ring.
//!
//! It promises: a listening socket is served by one thread, so nobody else is woken for a connection; that thread keeps what it accepts, or hands it
//! to a thread that has clearly fewer, so that long connections do not pile up on one; an idle thread sleeps. Nothing that may block runs
//! here: whoever supervises processes or answers commands does so on another thread.

use std::{
    io,
    os::fd::OwnedFd,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc as blocking,
    },
    thread,
};

use hayate_ring::Hub;
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::spawn_local,
};

use crate::{
    Front, ListenAddr, Listener, Thread,
    connection::{Accepted, Stream},
    gather::HeadNumber,
    round::{Round, Want},
    runtime,
};

/// How many others a thread looks at before it keeps a connection. Two would do for balance; four are as cheap, and all there are on most machines.
const LOOKS: usize = 4;

/// What a thread is told.
pub(crate) enum Order {
    /// Accept connections from this socket until it is switched off.
    Listen(ListenAddr, OwnedFd, watch::Receiver<bool>),
    /// Serve a connection that another thread has accepted.
    Serve(Box<Moved>),
    /// Give up heads that are not whole and began no later than this one, for there is too much memory in them.
    GiveUpHeads(HeadNumber),
    /// Say which connections could be let go.
    Say(Arc<Round>),
    /// Let these go.
    LetGo(Want, Vec<u64>),
    /// Say that this was read.
    Ask(oneshot::Sender<()>),
}

/// One of the connections that there may be, see [`Front::try_admit`]; another one may come when this goes.
pub(crate) struct Admitted(pub(super) Arc<Front>);

impl Drop for Admitted {
    fn drop(&mut self) {
        self.0.disconnected();
    }
}

/// A connection that counts from the moment it is accepted, wherever it is; when this goes, it is over.
pub(crate) struct Counted {
    admitted: Admitted,
    number: usize,
}

impl Counted {
    /// For the thread of that number.
    pub(crate) fn new(admitted: Admitted, number: usize) -> Counted {
        if let Some(member) = admitted.0.crew.get().and_then(|crew| crew.0.get(number)) {
            member.connections.fetch_add(1, Relaxed);
        }
        Counted { admitted, number }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(member) = self.admitted.0.crew.get().and_then(|crew| crew.0.get(self.number)) {
            member.connections.fetch_sub(1, Relaxed);
        }
    }
}

/// A connection on its way from one thread to another; it counts as the second one's.
pub(crate) struct Moved {
    socket: OwnedFd,
    is_tcp: bool,
    accepted: Accepted,
    counted: Counted,
}

impl Moved {
    pub(crate) fn of(stream: Stream, accepted: Accepted, counted: Counted) -> io::Result<Moved> {
        let (socket, is_tcp) = match stream {
            Stream::Tcp(stream) => (stream.into_std()?.into(), true),
            Stream::Unix(stream) => (stream.into_std()?.into(), false),
            // They belong to the socket's thread.
            Stream::Quic(_) => return Err(io::ErrorKind::Unsupported.into()),
        };
        Ok(Moved { socket, is_tcp, accepted, counted })
    }

    pub(crate) fn arrive(self) -> io::Result<(Stream, Accepted, Counted)> {
        let stream = if self.is_tcp {
            Stream::Tcp(tokio::net::TcpStream::from_std(self.socket.into())?)
        } else {
            Stream::Unix(tokio::net::UnixStream::from_std(self.socket.into())?)
        };
        Ok((stream, self.accepted, self.counted))
    }
}

/// All threads, as each of them sees the others.
pub(crate) struct Crew(Box<[Member]>);

/// On a line pair of its own: one thread counts here, the others look.
#[repr(align(128))]
struct Member {
    connections: AtomicUsize,
    orders: mpsc::UnboundedSender<Order>,
}

impl Crew {
    /// How many there are.
    pub(crate) fn size(&self) -> usize {
        self.0.len()
    }

    /// Open connections of a thread.
    pub(crate) fn connections(&self) -> Vec<usize> {
        self.0.iter().map(|member| member.connections.load(Relaxed)).collect()
    }

    /// The thread that is to have a connection which `own` has accepted: itself, unless another one has clearly fewer. `turn` says where to
    /// begin to look.
    pub(crate) fn choose(&self, own: usize, turn: usize) -> usize {
        let count = |number: usize| self.0.get(number).map(|member| member.connections.load(Relaxed));
        let (Some(mine), others) = (count(own), self.0.len().saturating_sub(1)) else { return own };
        let looked = (0..others.min(LOOKS)).map(|i| (own + 1 + (turn + i) % others) % self.0.len());
        let least = looked.filter_map(|number| Some((count(number)?, number))).min();
        match least {
            // A thread that is awake serves a connection at once; another one has to be woken for it.
            Some((fewest, number)) if fewest + mine / 8 < mine => number,
            _ => own,
        }
    }

    /// Tells a thread something; whether that thread lives. If it does not, what it was told is dropped.
    pub(crate) fn tell(&self, number: usize, order: Order) -> bool {
        self.0.get(number).is_some_and(|member| member.orders.send(order).is_ok())
    }

    /// Tells all threads.
    pub(crate) fn tell_all(&self, order: impl Fn() -> Order) {
        (0..self.0.len()).for_each(|number| {
            // One that has ended holds nothing.
            self.tell(number, order());
        });
    }

    /// Tells all threads but one.
    pub(crate) fn tell_others(&self, own: usize, order: impl Fn() -> Order) {
        (0..self.0.len()).filter(|number| *number != own).for_each(|number| {
            // One that has ended holds nothing.
            self.tell(number, order());
        });
    }
}

/// The threads, as whoever has started them holds them. They end with the process.
pub struct Threads {
    crew: Arc<Crew>,
    /// Which one gets the next socket.
    next: AtomicUsize,
    died: Option<mpsc::UnboundedReceiver<usize>>,
}

impl Threads {
    /// Starts as many as the hub has. Returns when all of them run, so that rings can be made.
    pub fn start(front: &Arc<Front>, hub: &Arc<Hub>) -> io::Result<Threads> {
        let (died_sender, died) = mpsc::unbounded_channel();
        let (senders, receivers): (Vec<_>, Vec<_>) =
            (0..hub.threads()).map(|_| mpsc::unbounded_channel()).unzip();
        let member = |orders| Member { connections: AtomicUsize::new(0), orders };
        let crew = Arc::new(Crew(senders.into_iter().map(member).collect()));
        // It is set once: a front has one set of threads.
        let _ = front.crew.set(Arc::clone(&crew));
        let (running, started) = blocking::channel();
        for (number, orders) in receivers.into_iter().enumerate() {
            let (front, hub, running) = (Arc::clone(front), Arc::clone(hub), running.clone());
            let end = End { number, died: died_sender.clone() };
            thread::Builder::new().name(format!("front-{number}")).spawn(move || {
                let _end = end;
                run(front, &hub, number, orders, &running);
            })?;
        }
        drop(running);
        for _ in 0..hub.threads() {
            started.recv().map_err(|_| io::Error::other("a thread of the front has ended at once"))??;
        }
        Ok(Threads { crew, next: AtomicUsize::new(0), died: Some(died) })
    }

    /// Accepts connections from a socket that [`ListenAddr::bind`] made, until `shutdown` turns true. The threads take turns with sockets.
    pub fn listen(&self, addr: &ListenAddr, socket: OwnedFd, shutdown: watch::Receiver<bool>) {
        let number = self.next.fetch_add(1, Relaxed) % self.crew.0.len().max(1);
        if !self.crew.tell(number, Order::Listen(addr.clone(), socket, shutdown)) {
            tracing::error!("{addr}: a thread of the front has ended, nobody accepts connections there");
        }
    }

    /// Waits until every thread has come round once. One that does not is stuck, or stopped.
    pub fn come_round(&self) -> impl Future<Output = ()> + Send + use<> {
        let answers: Vec<_> = (0..self.crew.0.len())
            .map(|number| {
                let (reply, answer) = oneshot::channel();
                // One that has ended is spoken of elsewhere.
                self.crew.tell(number, Order::Ask(reply));
                answer
            })
            .collect();
        async {
            for answer in answers {
                if answer.await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        }
    }

    /// Waits until one of them has ended, which none does by itself. To be called once.
    pub fn died(&mut self) -> impl Future<Output = usize> + Send + use<> {
        let died = self.died.take();
        async {
            match died {
                Some(mut died) => match died.recv().await {
                    Some(number) => number,
                    None => std::future::pending().await,
                },
                None => std::future::pending().await,
            }
        }
    }
}

/// Tells of a thread's end, however it comes.
struct End {
    number: usize,
    died: mpsc::UnboundedSender<usize>,
}

impl Drop for End {
    fn drop(&mut self) {
        // Nobody may be left to hear it.
        let _ = self.died.send(self.number);
    }
}

fn run(
    front: Arc<Front>,
    hub: &Arc<Hub>,
    number: usize,
    mut orders: mpsc::UnboundedReceiver<Order>,
    running: &blocking::Sender<io::Result<()>>,
) {
    let built = runtime::build(hub, number as u32);
    let (runtime, _watch) = match built {
        Ok(built) => built,
        Err(error) => return drop(running.send(Err(error))),
    };
    // Whoever started this waits for it.
    let _ = running.send(Ok(()));
    runtime.block_on(async move {
        let thread = Thread::numbered(&front, number);
        spawn_local(Rc::clone(&thread).watch());
        while let Some(order) = orders.recv().await {
            match order {
                Order::Listen(ListenAddr::Quic(addr), socket, shutdown) => {
                    spawn_local(Rc::clone(&thread).serve_quic(addr, socket, shutdown));
                }
                Order::Listen(addr, socket, shutdown) => match Listener::adopt(&addr, socket) {
                    Ok(listener) => drop(spawn_local(Rc::clone(&thread).serve(listener, shutdown))),
                    Err(error) => tracing::error!("{addr}: nobody accepts connections there: {error}"),
                },
                Order::Serve(moved) => thread.take_over(*moved),
                Order::GiveUpHeads(last) => thread.give_up_heads(last),
                Order::Say(round) => thread.say(&round),
                Order::LetGo(want, which) => thread.let_go(want, &which),
                Order::Ask(reply) => drop(reply.send(())),
            }
        }
    });
}
