//! quinn's streams as this server uses them: what is written waits in the stream's queue, which is sent as fast as the client takes it, so
//! writing never waits; and what was wrong with a client ends its stream or its connection in one place.
//!
//! It promises: what quinn may have of answers counts until it has let go of it, whatever the client confirms meanwhile; it gets no answer in
//! crumbs; and of what clients send as much counts as came and was not read, and nothing while no request is under way. quinn says none of that by
//! itself, so all of it is counted from outside, and bounded by quinn's windows, which are made smaller when memory is short.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::Future,
    io,
    net::IpAddr,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use quinn::{VarInt, WriteError};

use super::{
    code::Code,
    endpoint::SEND_WINDOW,
    seat::{Seat, whose},
};
use crate::{Hold, Holding, Limits, block::Block, clock::seconds};

/// Small pieces of an answer are joined, up to so many bytes: quinn keeps each by itself, and goes through all of them for each that it sends.
const JOINED: usize = 4 << 10;
/// A smaller piece costs quinn more than its bytes: so many more, and the time to pass it by.
const CRUMB: usize = 1 << 10;
const CRUMB_COST: usize = 64;
/// How often the windows of a client may cut a piece in two; more often once for so many bytes that went. Clients open windows by half of what they
/// are.
const CUTS: usize = 64;
const CUT: usize = 256;
/// Bytes of a datagram that are none of a stream's, about, and the most of a datagram.
const FRAMING: u64 = 64;
const DATAGRAM: u64 = 1472;
/// What a request's bytes may differ from what was read of them, for what else came with them.
const PER_REQUEST: u64 = 256;
/// Bytes that are read at once.
pub(super) const PIECE: usize = 8 << 10;
/// Bytes that may come beside those that anybody reads.
const UNREAD: u64 = 8 << 20;
/// Bytes that a client may send for each that is read: who writes bytes one by one has a datagram for each.
const PER_BYTE: u64 = 64;
/// A connection's part of what all may hold, as far as it is with quinn.
const SHARES: usize = 64;
/// What quinn may have of a connection's answers, and what of its requests, when memory is short.
const LEAST_WINDOW: usize = 64 << 10;

/// The window for all that a client sends on a connection, as memory is: so much stands in quinn at most.
pub(super) fn receive_window(limits: &Limits, holding: &Holding) -> usize {
    let most = usize::try_from(limits.window).unwrap_or(usize::MAX).saturating_mul(4);
    holding.ready(most).max(LEAST_WINDOW).min(most)
}

/// Datagrams in a row that a client leaves unanswered, and for how many seconds, before it counts as gone. One that only says what came is not
/// answered, so a few prove nothing; of more, the last ones are those that ask whether it is there (RFC 9002, 6.2.4).
const UNANSWERED: u64 = 4;
const UNANSWERED_FOR: u64 = 15;

/// How a client that was sent something is silent.
#[derive(Debug, Clone, Copy, Default)]
struct Silence {
    /// Datagrams that came, and those that had been sent when the last of them did.
    came: u64,
    sent: u64,
    /// When it had left enough of them unanswered; 0: it has not.
    since: u64,
}

impl Silence {
    /// As it is at this second; whether the client is gone.
    fn goes_on(&mut self, came: u64, sent: u64, now: u64) -> bool {
        if came != self.came {
            *self = Silence { came, sent, since: 0 };
        } else if self.since == 0 && sent.saturating_sub(self.sent) >= UNANSWERED {
            self.since = now;
        }
        self.since != 0 && now.saturating_sub(self.since) >= UNANSWERED_FOR
    }
}

/// What a client did wrong.
#[derive(Debug)]
pub(super) enum Fault {
    /// It concerns one request.
    Stream(Code),
    /// Nothing that comes after it could be trusted.
    Connection(Code),
    /// The head is larger than allowed: it can be answered.
    TooLarge,
    /// The client left, or reset the stream.
    Left(io::Error),
}

/// What the streams of a connection share.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) connection: quinn::Connection,
    /// Bytes that the client takes of a head (SETTINGS_MAX_FIELD_SECTION_SIZE).
    pub(super) largest_head: Cell<u64>,
    seat: Arc<Seat>,
    /// From where the client came.
    peer: IpAddr,
    /// Bytes that were read of its streams, and what more of what comes is put up with.
    read: Cell<u64>,
    fair: Cell<u64>,
    /// Bytes and pieces that quinn was given of answers, as far as it has not let go of the answer.
    given: Cell<usize>,
    crumbs: Cell<usize>,
    /// What it has of answers at most: it takes nothing beyond its window, so what it took last says how much it had then.
    most: Cell<usize>,
    window: Cell<usize>,
    answers: RefCell<Hold>,
    /// What came, and was fair, when it was last looked at.
    came: Cell<Came>,
    /// The window for what the client sends, and by how much it was larger: that is over when so much was read.
    receive: Cell<usize>,
    debt: Cell<usize>,
    unread: RefCell<Hold>,
    /// A request is under way. Else quinn has nothing that the client has sent: it was read, or thrown away with its stream.
    serves: Cell<bool>,
    /// Bytes of datagrams that were more than fair and count no more: when no request was under way last, and since; see [`Wire::is_flooded`].
    forgiven: Cell<u64>,
    silence: Cell<Silence>,
    /// How the client broke the protocol.
    broken: Cell<Option<Code>>,
}

/// See [`Wire::look`].
#[derive(Debug, Clone, Copy, Default)]
struct Came {
    bytes: u64,
    datagrams: u64,
    frames: u64,
    fair: u64,
}

impl Wire {
    /// `receive`: its [`receive_window`] as it began.
    pub(super) fn new(
        connection: &quinn::Connection,
        seat: &Arc<Seat>,
        peer: IpAddr,
        holding: &Rc<Holding>,
        receive: usize,
    ) -> Wire {
        Wire {
            connection: connection.clone(),
            largest_head: Cell::new(VarInt::MAX.into_inner()),
            seat: Arc::clone(seat),
            peer: whose(peer),
            read: Cell::new(0),
            fair: Cell::new(0),
            given: Cell::new(0),
            crumbs: Cell::new(0),
            most: Cell::new(SEND_WINDOW),
            window: Cell::new(SEND_WINDOW),
            answers: RefCell::new(Hold::new(holding)),
            came: Cell::default(),
            receive: Cell::new(receive),
            debt: Cell::new(0),
            unread: RefCell::new(Hold::new(holding)),
            serves: Cell::new(false),
            forgiven: Cell::new(0),
            silence: Cell::default(),
            broken: Cell::new(None),
        }
    }

    /// Bytes that the client has confirmed to have; a number to be compared with an earlier one.
    pub(super) fn confirmed(&self) -> u64 {
        self.seat.confirmed()
    }

    /// Whether the client is not any more where it came from, beyond what a network does to an address (RFC 9000, 9).
    pub(super) fn has_moved(&self) -> bool {
        whose(self.connection.remote_address().ip()) != self.peer
    }

    /// quinn was given one piece more, of so many bytes.
    fn gave(&self, bytes: usize) {
        self.most.set(self.window.get());
        self.given.set(self.given.get().saturating_add(bytes));
        self.crumbs.set(self.crumbs.get().saturating_add(usize::from(bytes < CRUMB)));
        self.counts();
    }

    /// quinn has let go of an answer that it was given in so many bytes and crumbs.
    fn took_back(&self, bytes: usize, crumbs: usize) {
        self.given.set(self.given.get().saturating_sub(bytes));
        self.crumbs.set(self.crumbs.get().saturating_sub(crumbs));
        self.counts();
    }

    fn counts(&self) {
        let most = self.most.get();
        let crumbs = self.crumbs.get().saturating_mul(CRUMB_COST).min(most);
        self.answers.borrow_mut().set(self.has().saturating_add(crumbs));
    }

    /// Bytes that quinn has of answers, at most.
    pub(super) fn has(&self) -> usize {
        self.given.get().min(self.most.get())
    }

    /// quinn takes less of answers, the shorter memory is, and never much of all that may be held: it takes at once what it may. The client
    /// may send less, too.
    pub(super) fn go_by(&self, holding: &Holding, limits: &Limits) {
        let most = holding.limit().map_or(SEND_WINDOW, |limit| SEND_WINDOW.min(limit / SHARES));
        let window = holding.ready(most).max(LEAST_WINDOW);
        if self.window.replace(window) != window {
            self.connection.set_send_window(window as u64);
            self.most.set(self.most.get().max(window));
        }
        let (receive, before) = (receive_window(limits, holding), self.receive.get());
        // What the client was allowed before it may still send. quinn would allow it once more if the window grew meanwhile.
        if receive < before || (receive > before && self.debt.get() == 0) {
            self.debt.set(self.debt.get().saturating_add(before.saturating_sub(receive)));
            self.receive.set(receive);
            self.connection.set_receive_window(VarInt::from_u64(receive as u64).unwrap_or(VarInt::MAX));
        }
    }

    pub(super) fn has_read(&self, bytes: usize) {
        self.read.set(self.read.get().saturating_add(bytes as u64));
        // Lost datagrams come twice.
        self.fair.set(self.fair.get().saturating_add(bytes as u64).saturating_add(bytes as u64 / 16));
        self.debt.set(self.debt.get().saturating_sub(bytes));
    }

    /// A request has come as a whole.
    pub(super) fn is_whole(&self) {
        self.fair.set(self.fair.get().saturating_add(PER_REQUEST));
    }

    /// Whether a request is under way now.
    pub(super) fn serves(&self, some: bool) {
        if self.serves.replace(some) && !some {
            let came = self.connection.stats().udp_rx.bytes;
            self.forgiven.set(came.saturating_sub(self.fair_in_all()));
        }
    }

    /// Looks at what has come. What of it was not read stands in quinn, within its window; but of streams that are over nothing does.
    pub(super) fn look(&self) {
        let stats = self.connection.stats();
        let now = Came {
            bytes: stats.udp_rx.bytes,
            datagrams: stats.udp_rx.datagrams,
            frames: stats.frame_rx.stream,
            fair: self.fair.get(),
        };
        let before = self.came.replace(now);
        let framing = now.datagrams.saturating_sub(before.datagrams).saturating_mul(FRAMING);
        let most = now.frames.saturating_sub(before.frames).saturating_mul(DATAGRAM);
        let came = now.bytes.saturating_sub(before.bytes).saturating_sub(framing).min(most);
        let mut unread = self.unread.borrow_mut();
        let left =
            (unread.bytes() as u64).saturating_add(came).saturating_sub(now.fair.saturating_sub(before.fair));
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        if self.serves.get() {
            unread.set(left.min(self.receive.get().saturating_add(self.debt.get())));
        } else {
            // What quinn has thrown away it allows anew, as what was read.
            self.debt.set(self.debt.get().saturating_sub(left));
            unread.set(0);
        }
    }

    /// Bytes in datagrams that what was read, and what was confirmed, may have taken.
    fn fair_in_all(&self) -> u64 {
        self.read.get().saturating_mul(PER_BYTE).saturating_add(self.confirmed())
    }

    /// By how much more has come than was read, or than it takes to confirm what was sent, and was not forgiven.
    fn excess(&self) -> u64 {
        let fair = self.fair_in_all().saturating_add(self.forgiven.get());
        self.connection.stats().udp_rx.bytes.saturating_sub(fair)
    }

    /// A request was answered whose body nobody wanted: quinn has thrown away what came of it, which was a stream's window at most. No more is
    /// forgiven than there is to forgive, so nothing can be saved up.
    pub(super) fn forgives(&self, window: u32) {
        let most = u64::from(window);
        // With what frames it, and what came twice.
        let most = most.saturating_add(most / 8);
        self.forgiven.set(self.forgiven.get().saturating_add(self.excess().min(most)));
    }

    /// Whether far more has come than is fair, since no request was under way: quinn keeps the whole datagram of each byte that waits for those
    /// before it, and counts one.
    pub(super) fn is_flooded(&self) -> bool {
        self.look();
        self.excess() > UNREAD
    }

    /// Whether the client answers nothing of what it is sent: it has vanished, and quinn would go on asking until `idle_timeout`. To be asked
    /// about once a second.
    pub(super) fn is_silent(&self) -> bool {
        let stats = self.connection.stats();
        let mut silence = self.silence.get();
        let gone = silence.goes_on(stats.udp_rx.datagrams, stats.udp_tx.datagrams, seconds());
        self.silence.set(silence);
        gone
    }

    /// The client broke the protocol, which ends the connection.
    pub(super) fn breaks(&self, code: Code) {
        self.broken.set(self.broken.get().or(Some(code)));
        self.close(code, code.name());
    }

    /// How it did, if it did.
    pub(super) fn broken(&self) -> Option<Code> {
        self.broken.get()
    }

    /// Ends it. What waits is dropped; a second end is none.
    pub(super) fn close(&self, code: Code, reason: &str) {
        self.connection.close(code.number(), reason.as_bytes());
    }
}

/// The writing half of a stream, with what waits in it.
pub(super) struct Out {
    stream: quinn::SendStream,
    queue: VecDeque<Block>,
    /// Its end was said, or that there is none.
    over: bool,
    /// Bytes that quinn was given, of a stream that the client does not have, and how many pieces of these were small.
    given: usize,
    crumbs: usize,
    /// Pieces of which quinn took a part only, for want of a window.
    cuts: usize,
    wire: Rc<Wire>,
}

/// What is to go next: whole blocks as they are, small ones joined.
fn piece<'a>(queue: &'a VecDeque<Block>, joined: &'a mut [u8; JOINED]) -> Option<&'a [u8]> {
    let first = queue.front()?;
    if first.len() >= CRUMB || queue.len() == 1 {
        return Some(first);
    }
    let mut len = 0usize;
    for block in queue {
        let room = joined.get_mut(len..).unwrap_or_default();
        let n = room.len().min(block.len());
        if let (Some(to), Some(from)) = (room.get_mut(..n), block.get(..n)) {
            to.copy_from_slice(from);
        }
        len = len.saturating_add(n);
        if n < block.len() {
            break;
        }
    }
    joined.get(..len)
}

/// So many bytes of it have gone.
fn advance(queue: &mut VecDeque<Block>, mut n: usize) {
    while let Some(first) = queue.front_mut() {
        let part = n.min(first.len());
        first.advance(part);
        n = n.saturating_sub(part);
        if !first.is_empty() {
            return;
        }
        queue.pop_front();
    }
}

/// Whether an answer goes in crumbs: so many pieces were cut by the client's windows, of so many bytes in all.
fn is_crumbled(cuts: usize, bytes: usize) -> bool {
    cuts.saturating_sub(CUTS).saturating_mul(CUT) > bytes
}

impl Out {
    pub(super) fn new(stream: quinn::SendStream, wire: &Rc<Wire>) -> Rc<RefCell<Out>> {
        let (queue, wire) = (VecDeque::new(), Rc::clone(wire));
        Rc::new(RefCell::new(Out { stream, queue, over: false, given: 0, crumbs: 0, cuts: 0, wire }))
    }

    /// Adds what is to be sent. Once the end was said, it is dropped.
    pub(super) fn put(&mut self, data: Bytes) {
        if !self.over && !data.is_empty() {
            self.queue.push_back(Block::new(data));
        }
    }

    /// Bytes that wait.
    pub(super) fn waiting(&self) -> usize {
        self.queue.iter().map(|block| block.len()).fold(0, usize::saturating_add)
    }

    /// Bytes of memory that they keep.
    pub(super) fn kept(&self) -> usize {
        self.queue.iter().map(Block::kept).fold(0, usize::saturating_add)
    }

    /// Writes as much as quinn takes. Ready: all of it. The number: bytes that it took. Whose windows open by a few bytes, again and again, has
    /// the stream reset.
    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>) -> (Poll<io::Result<()>>, usize) {
        let mut taken = 0usize;
        let mut joined = [0; JOINED];
        while let Some(data) = piece(&self.queue, &mut joined) {
            let len = data.len();
            match Pin::new(&mut self.stream).poll_write(cx, data) {
                Poll::Pending => return (Poll::Pending, taken),
                Poll::Ready(Ok(n)) => {
                    advance(&mut self.queue, n);
                    taken = taken.saturating_add(n);
                    self.given = self.given.saturating_add(n);
                    self.crumbs = self.crumbs.saturating_add(usize::from(n < CRUMB));
                    self.cuts = self.cuts.saturating_add(usize::from(n < len));
                    self.wire.gave(n);
                    if is_crumbled(self.cuts, self.given) {
                        self.reset(Code::EXCESSIVE_LOAD);
                        return (Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())), taken);
                    }
                }
                Poll::Ready(Err(error)) => {
                    let kind = match error {
                        WriteError::Stopped(_) => io::ErrorKind::BrokenPipe,
                        _ => io::ErrorKind::ConnectionReset,
                    };
                    return (Poll::Ready(Err(kind.into())), taken);
                }
            }
        }
        (Poll::Ready(Ok(())), taken)
    }

    /// The client has all of it, or quinn was told to drop it: it counts no more.
    pub(super) fn settle(&mut self) {
        self.wire.took_back(std::mem::take(&mut self.given), std::mem::take(&mut self.crumbs));
    }

    /// Says that nothing more comes.
    pub(super) fn finish(&mut self) {
        if !std::mem::replace(&mut self.over, true) {
            // It fails when the client wants no more.
            let _ = self.stream.finish();
        }
    }

    /// Says that what came is not all.
    pub(super) fn reset(&mut self, code: Code) {
        self.queue.clear();
        if !std::mem::replace(&mut self.over, true) {
            let _ = self.stream.reset(code.number());
            self.settle();
        }
    }

    /// Waits until the client wants no more, or has all of a stream that was finished. `true`: it has all.
    pub(super) fn settled(&self) -> Settled {
        let stopped = self.stream.stopped();
        Box::pin(async move { matches!(stopped.await, Ok(None)) })
    }
}

/// See [`Out::settled`].
pub(super) type Settled = Pin<Box<dyn Future<Output = bool>>>;

impl std::fmt::Debug for Out {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Out")
            .field("waiting", &self.waiting())
            .field("over", &self.over)
            .finish_non_exhaustive()
    }
}

impl Drop for Out {
    fn drop(&mut self) {
        // quinn would finish it, and half an answer would look whole. Of one that was finished quinn would keep what the client has not confirmed,
        // for as long as anything of the connection. It fails when the client has all.
        self.queue.clear();
        let _ = self.stream.reset(Code::INTERNAL_ERROR.number());
        self.settle();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(sizes: &[usize]) -> VecDeque<Block> {
        sizes.iter().enumerate().map(|(i, size)| Block::new(vec![i as u8; *size].into())).collect()
    }

    #[test]
    fn small_pieces_are_joined_and_large_ones_are_not_copied() {
        let mut joined = [0; JOINED];
        let large = queue(&[5000, 1]);
        assert_eq!(piece(&large, &mut joined).unwrap().as_ptr(), large[0].as_ptr());
        assert_eq!(piece(&queue(&[3]), &mut joined).unwrap(), [0; 3]);
        assert!(piece(&queue(&[]), &mut joined).is_none());
        let mut frames = queue(&[3, 10, 3, 9000, 5]);
        let first = piece(&frames, &mut joined).unwrap().to_vec();
        assert_eq!(
            (first.len(), &first[..18]),
            (JOINED, &[0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 3, 3][..])
        );
        advance(&mut frames, 12);
        assert_eq!((frames.len(), piece(&frames, &mut joined).unwrap()[0]), (4, 1));
        advance(&mut frames, 1 + 3 + 9000);
        assert_eq!(piece(&frames, &mut joined).unwrap(), [4; 5]);
        advance(&mut frames, 5);
        assert!(frames.is_empty());
    }

    #[test]
    fn who_leaves_all_unanswered_is_gone_and_who_has_nothing_to_answer_is_not() {
        let mut silence = Silence::default();
        // Its request came, and was acknowledged; the script takes long.
        assert!((100..200).all(|now| !silence.goes_on(7, 8, now)));
        // An answer of many datagrams goes out, and is acknowledged in the next second.
        assert!(!silence.goes_on(7, 60, 200));
        assert!(!silence.goes_on(9, 60, 201));
        // The next one never is; quinn asks again and again.
        assert_eq!((202..300).find(|now| silence.goes_on(9, 61 + now - 202, *now)), Some(205 + 15));
    }

    #[test]
    fn a_window_that_opens_in_crumbs_is_told_from_one_that_is_small() {
        let until = |step: usize| (1..100_000).find(|cuts| is_crumbled(*cuts, cuts * step));
        assert_eq!((until(1), until(100), until(CUT)), (Some(65), Some(106), None));
    }
}
