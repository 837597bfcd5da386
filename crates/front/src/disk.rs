//! Work that waits for disks, on threads of its own: a file system that hangs (a network that is gone, a broken disk) must not hold up
//! requests that do not need it.
//!
//! It promises that nobody waits longer than [`PATIENCE`], that one place in the file system occupies [`PER_PLACE`] threads at most, however
//! it hangs, and that all threads are there from the start: a limit on processes that is reached later costs nothing. Where no more requests
//! come, most of them go.

use std::{
    collections::{HashMap, VecDeque},
    fs::File,
    io,
    mem::ManuallyDrop,
    ops::Deref,
    os::fd::{AsFd, BorrowedFd},
    path::{Path, PathBuf},
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll},
    thread,
    time::{Duration, Instant},
};

use hayate_panics::caught_now;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::fs::{AtFlags, StatxFlags, fstat, statx};
use tokio::{
    sync::{Semaphore, SemaphorePermit, oneshot},
    time::Sleep,
};

use crate::{answer_files::Counted, descriptors::Permit, near::Near};

/// Threads that one place may occupy.
pub(crate) const PER_PLACE: usize = 4;
/// What may wait for the threads of one place, on account of answers that are under way.
pub(crate) const WAITING: usize = 1024;
/// Of them blocks of files.
pub(crate) const BLOCKS: usize = WAITING / 2;
/// Lookups of those that begin may wait besides, neither taking the other's room: as many as come at once where a page is read by
/// thousands. None waits longer than [`PATIENCE`], and none is taken where the place hangs.
const NEWCOMERS: usize = 8192;
/// How long one answer of a file system may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// An open file that one of its place's threads closes. That may wait: it frees what a file without a name has held, and a network's file
/// system and FUSE are asked. So no task owns a file by itself, for longer than it looks at it.
pub(crate) struct Opened {
    file: ManuallyDrop<File>,
    /// It is of a local file system, where only the first is to be feared.
    near: bool,
    place: Arc<Place>,
    /// A temporary one counts until it is closed, wherever that is done.
    permit: Option<Permit>,
    /// So does one that an answer is sent from.
    counted: Option<Counted>,
}

impl Opened {
    /// `near`: see [`crate::near`].
    pub(crate) fn new(file: File, near: bool, place: Arc<Place>, permit: Option<Permit>) -> Opened {
        Opened { file: ManuallyDrop::new(file), near, place, permit, counted: None }
    }

    /// It counts until it is closed.
    pub(crate) fn count(&mut self, counted: Counted) {
        self.counted = Some(counted);
    }

    /// It cannot be opened again, for nothing is called by its name any more. By what is known here: no network is asked.
    pub(crate) fn has_no_name(&self) -> bool {
        let how = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        statx(&*self.file, "", how, StatxFlags::NLINK).is_ok_and(|stat| stat.stx_nlink == 0)
    }
}

impl Deref for Opened {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl AsFd for Opened {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: the one place that takes it, and nothing looks at it afterwards.
        let file = unsafe { ManuallyDrop::take(&mut self.file) };
        if !self.near || fstat(&file).is_ok_and(|stat| stat.st_nlink == 0) {
            self.place.close(file, (self.permit.take(), self.counted.take()));
        }
    }
}

pub(crate) type Work = Box<dyn FnOnce() + Send>;

/// The threads. They end with the last clone and the last [`Place`].
#[derive(Clone)]
pub struct Disk(Arc<Pool>);

struct Pool {
    shared: Arc<Shared>,
    places: Mutex<HashMap<PathBuf, Weak<Place>>>,
}

/// What the threads know: not the pool, which ends them.
struct Shared {
    queue: Mutex<Queue>,
    more: Condvar,
    patience: Duration,
}

#[derive(Default)]
struct Queue {
    ready: VecDeque<(Arc<Lane>, Work)>,
    /// Threads that have started and not ended.
    threads: usize,
    /// Of them so many at most wait for work, once little of it is to come; `None`: all do.
    enough: Option<usize>,
    closed: bool,
}

/// The threads' side of a place.
struct Lane {
    path: PathBuf,
    load: Mutex<Load>,
}

#[derive(Default)]
struct Load {
    /// Handed to threads and not finished; [`PER_PLACE`] at most.
    running: usize,
    /// Since when so many run and none has finished.
    full_since: Option<Instant>,
    waiting: VecDeque<Work>,
    /// Lookups of those that begin, of which [`NEWCOMERS`] may wait.
    newcomers: VecDeque<Work>,
    /// What waited and began last was one of these.
    newcomer_last: bool,
    /// Files to be closed.
    closing: VecDeque<Work>,
    /// What began last was one of these.
    closed_last: bool,
    complained: bool,
}

impl Disk {
    /// Threads, for all places together, where nothing limits them. They mostly sleep.
    pub const THREADS: usize = 16;
    /// Without this many at the start there is no serving.
    pub const LEAST_THREADS: usize = 2;

    /// Starts so many threads; an error when there is hardly one to be had.
    pub fn start(threads: usize) -> io::Result<Disk> {
        Disk::with_patience(threads, PATIENCE)
    }

    /// For those who only want to know what is where, and serve nothing: whatever is left to a thread never comes.
    pub fn without_threads() -> Disk {
        let shared = Shared { queue: Mutex::default(), more: Condvar::new(), patience: PATIENCE };
        Disk(Arc::new(Pool { shared: Arc::new(shared), places: Mutex::default() }))
    }

    fn with_patience(threads: usize, patience: Duration) -> io::Result<Disk> {
        let shared = Arc::new(Shared { queue: Mutex::default(), more: Condvar::new(), patience });
        for started in 0..threads {
            let of_thread = Arc::clone(&shared);
            // Before it is there, since it may look at once.
            shared.queue.lock().threads += 1;
            let thread = thread::Builder::new().name("disk".into()).spawn(move || of_thread.work());
            match thread {
                Ok(_) => {}
                Err(error) if started >= Disk::LEAST_THREADS => {
                    shared.queue.lock().threads -= 1;
                    tracing::warn!("only {started} of {threads} threads for files could be started: {error}");
                    break;
                }
                Err(error) => {
                    shared.close();
                    return Err(io::Error::new(
                        error.kind(),
                        format!("cannot start threads for files: {error}"),
                    ));
                }
            }
        }
        Ok(Disk(Arc::new(Pool { shared, places: Mutex::default() })))
    }

    /// Has all threads end that have nothing to do, but for as many as one place that hangs leaves one of. For a front that was replaced: what a
    /// slow client still reads may take an hour, and threads count as processes.
    pub(crate) fn dwindle(&self) {
        self.0.shared.queue.lock().enough = Some(PER_PLACE + 1);
        self.0.shared.more.notify_all();
    }

    /// A place in the file system that may hang by itself, such as a document root. The same for the same path, so that what hangs is
    /// counted across reloads.
    pub fn place(&self, path: &Path) -> Arc<Place> {
        let mut places = self.0.places.lock();
        if let Some(place) = places.get(path).and_then(Weak::upgrade) {
            return place;
        }
        places.retain(|_, place| place.strong_count() > 0);
        let lane = Arc::new(Lane { path: path.to_owned(), load: Mutex::default() });
        let blocks = Semaphore::new(BLOCKS);
        let place = Arc::new(Place { disk: self.clone(), lane, near: Near::default(), blocks });
        places.insert(path.to_owned(), Arc::downgrade(&place));
        place
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl Shared {
    fn close(&self) {
        self.queue.lock().closed = true;
        self.more.notify_all();
    }

    fn push(&self, lane: Arc<Lane>, work: Work) {
        self.queue.lock().ready.push_back((lane, work));
        self.more.notify_one();
    }

    fn work(&self) {
        loop {
            let mut queue = self.queue.lock();
            let (lane, work) = loop {
                if let Some(next) = queue.ready.pop_front() {
                    break next;
                }
                if queue.closed || queue.enough.is_some_and(|enough| queue.threads > enough) {
                    queue.threads = queue.threads.saturating_sub(1);
                    return;
                }
                self.more.wait(&mut queue);
            };
            drop(queue);
            // Whoever waits for it learns of a panic by the end of its channel.
            let _ = caught_now(work);
            if let Some(next) = lane.finished() {
                self.push(lane, next);
            }
        }
    }
}

impl Lane {
    /// One has finished; the next of this place, if one waits.
    fn finished(&self) -> Option<Work> {
        let mut load = self.load.lock();
        load.full_since = None;
        if std::mem::take(&mut load.complained) {
            tracing::info!("{} answers again", self.path.display());
        }
        // In turn: what frees, or nothing would be freed while there is always something else to do; and what somebody waits for.
        let closes = !std::mem::replace(&mut load.closed_last, false);
        let closing = if closes { load.closing.pop_front() } else { None };
        load.closed_last = closing.is_some();
        let next = closing.or_else(|| load.next_waiting()).or_else(|| load.closing.pop_front());
        match next {
            Some(_) => load.full_since = Some(Instant::now()),
            None => load.running = load.running.saturating_sub(1),
        }
        next
    }
}

impl Load {
    /// What somebody waits for: of what is under way and of what begins in turn.
    fn next_waiting(&mut self) -> Option<Work> {
        let next = match self.newcomer_last {
            true => self.waiting.pop_front().map(|work| (work, false)),
            false => self.newcomers.pop_front().map(|work| (work, true)),
        };
        let other = || self.waiting.pop_front().map(|work| (work, false));
        let (work, newcomer) =
            next.or_else(other).or_else(|| self.newcomers.pop_front().map(|work| (work, true)))?;
        self.newcomer_last = newcomer;
        Some(work)
    }
}

/// See [`Disk::place`].
pub struct Place {
    disk: Disk,
    lane: Arc<Lane>,
    near: Near,
    blocks: Semaphore,
}

impl Place {
    pub(crate) fn path(&self) -> &Path {
        &self.lane.path
    }

    /// Another place, of the same threads.
    pub fn beside(&self, path: &Path) -> Arc<Place> {
        self.disk.place(path)
    }

    pub(crate) fn near(&self) -> &Near {
        &self.near
    }

    /// Waits until a block of an answer may wait for a thread, in order of arrival.
    pub(crate) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        // None: nobody closes it.
        self.blocks.acquire().await.ok()
    }

    /// Has a thread do something that may wait for this place.
    pub(crate) fn start<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Running<T> {
        self.start_as(false, work)
    }

    /// The same for an answer that is to begin: many of those leave room for what is under way, which would else be cut off.
    pub(crate) fn begin<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Running<T> {
        self.start_as(true, work)
    }

    fn start_as<T: Send + 'static>(
        &self,
        newcomer: bool,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Running<T> {
        let (reply, answer) = oneshot::channel();
        let work = Box::new(move || {
            // Whoever wanted it may be gone, as after a long wait.
            if !reply.is_closed() {
                let _ = reply.send(work());
            }
        });
        let taken = self.send_as(newcomer, work);
        Running { answer: taken.then_some(answer), limit: None, patience: self.disk.0.shared.patience }
    }

    /// Has a thread close a file, whenever it can: also of a place that hangs. So many wait at most as files are open. What it counts by goes
    /// when it is closed.
    fn close(&self, file: File, counts: impl Send + 'static) {
        let work: Work = Box::new(move || {
            drop(file);
            drop(counts);
        });
        let mut load = self.lane.load.lock();
        if load.running < PER_PLACE {
            self.hand_over(load, work);
        } else {
            load.closing.push_back(work);
        }
    }

    fn hand_over(&self, mut load: MutexGuard<'_, Load>, work: Work) {
        load.running += 1;
        load.full_since = (load.running == PER_PLACE).then(Instant::now);
        drop(load);
        self.disk.0.shared.push(Arc::clone(&self.lane), work);
    }

    /// Has a thread do something, whenever it can. `false`: this place hangs, or too much waits for it.
    pub(crate) fn send(&self, work: Work) -> bool {
        self.send_as(false, work)
    }

    fn send_as(&self, newcomer: bool, work: Work) -> bool {
        let mut load = self.lane.load.lock();
        if load.running < PER_PLACE {
            self.hand_over(load, work);
            return true;
        }
        let patience = self.disk.0.shared.patience;
        if load.full_since.is_some_and(|since| since.elapsed() > patience) {
            if !std::mem::replace(&mut load.complained, true) {
                tracing::error!(
                    "{} does not answer: all that needs it gets 503, and the rest goes on; is it a file system that hangs?",
                    self.path().display()
                );
            }
            return false;
        }
        let (queue, most) = match newcomer {
            true => (&mut load.newcomers, NEWCOMERS),
            false => (&mut load.waiting, WAITING),
        };
        let room = queue.len() < most;
        if room {
            queue.push_back(work);
        }
        room
    }
}

/// Work that a thread does; an error of kind `TimedOut` when it does not finish in time, or when its place hangs.
pub(crate) struct Running<T> {
    answer: Option<oneshot::Receiver<T>>,
    limit: Option<Pin<Box<Sleep>>>,
    patience: Duration,
}

fn hangs() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the file system does not answer")
}

impl<T> Future for Running<T> {
    type Output = io::Result<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        let this = self.get_mut();
        let Some(answer) = &mut this.answer else { return Poll::Ready(Err(hangs())) };
        if let Poll::Ready(answer) = Pin::new(answer).poll(cx) {
            this.answer = None;
            return Poll::Ready(answer.map_err(|_| io::Error::other("the work on a file failed")));
        }
        let limit = this.limit.get_or_insert_with(|| Box::pin(tokio::time::sleep(this.patience)));
        if limit.as_mut().poll(cx).is_ready() {
            this.answer = None;
            return Poll::Ready(Err(hangs()));
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_place_that_hangs_holds_up_nobody_else_and_recovers() {
        let disk = Disk::with_patience(Disk::THREADS, Duration::from_secs(1)).unwrap();
        let (hanging, fine) = (disk.place(Path::new("/hanging")), disk.place(Path::new("/fine")));
        assert!(Arc::ptr_eq(&hanging, &disk.place(Path::new("/hanging"))));
        let (release, gate) = mpsc::channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        let work = |place: &Place| {
            let gate = Arc::clone(&gate);
            place.start(move || gate.lock().recv().is_ok())
        };
        let stuck: Vec<_> = (0..3 * PER_PLACE).map(|_| tokio::spawn(work(&hanging))).collect();
        assert_eq!(hanging.lane.load.lock().running, PER_PLACE);
        for n in 0..100 {
            assert_eq!(fine.start(move || n).await.unwrap(), n);
        }
        for work in stuck {
            assert_eq!(work.await.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
        }
        // What runs goes on when it can, what waited was given up by those who wanted it.
        drop(release);
        while hanging.lane.load.lock().running > 0 {
            thread::yield_now();
        }
        assert_eq!(hanging.start(|| 7).await.unwrap(), 7);
    }

    #[test]
    fn a_file_is_closed_by_a_thread_of_its_place_even_where_that_hangs() {
        use std::io::Read;

        let disk = Disk::start(Disk::THREADS).unwrap();
        let place = disk.place(Path::new("/hanging"));
        let (release, gate) = mpsc::channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        for _ in 0..PER_PLACE {
            let gate = Arc::clone(&gate);
            assert!(place.send(Box::new(move || {
                let _ = gate.lock().recv();
            })));
        }
        let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let theirs = File::from(std::os::fd::OwnedFd::from(theirs));
        drop(Opened::new(theirs, false, Arc::clone(&place), None));
        ours.set_nonblocking(true).unwrap();
        let open = ours.read(&mut [0]).unwrap_err();
        assert_eq!(open.kind(), io::ErrorKind::WouldBlock, "nobody here has closed it");
        drop(release);
        ours.set_nonblocking(false).unwrap();
        assert_eq!(ours.read(&mut [0]).unwrap(), 0);
    }

    #[tokio::test]
    async fn newcomers_leave_room_for_what_is_under_way_and_take_turns_with_it() {
        let disk = Disk::start(Disk::THREADS).unwrap();
        let place = disk.place(Path::new("/slow"));
        let (release, gate) = mpsc::channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        for _ in 0..PER_PLACE {
            let gate = Arc::clone(&gate);
            assert!(place.send(Box::new(move || {
                let _ = gate.lock().recv();
            })));
        }
        let done = Arc::new(Mutex::new(Vec::new()));
        let work = |which: u32| {
            let done = Arc::clone(&done);
            move || done.lock().push(which)
        };
        let newcomers: Vec<_> = (0..NEWCOMERS + 100).map(|_| place.begin(work(1))).collect();
        let blocks: Vec<_> = (0..BLOCKS).map(|_| place.start(work(2))).collect();
        let taken =
            |running: &[Running<()>]| running.iter().filter(|running| running.answer.is_some()).count();
        assert_eq!((taken(&newcomers), taken(&blocks)), (NEWCOMERS, BLOCKS));
        drop(release);
        for block in blocks {
            block.await.unwrap();
        }
        // Four threads, so they may pass each other by a little.
        let early = done.lock().iter().take(100).filter(|which| **which == 2).count();
        assert!((30..=70).contains(&early), "{early} of 100");
    }

    #[tokio::test]
    async fn threads_that_nobody_needs_any_more_end_and_the_others_work_on() {
        let disk = Disk::with_patience(Disk::THREADS, Duration::from_secs(30)).unwrap();
        let (hanging, fine) = (disk.place(Path::new("/hanging")), disk.place(Path::new("/fine")));
        let (release, gate) = mpsc::channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        let stuck: Vec<_> = (0..PER_PLACE)
            .map(|_| {
                let gate = Arc::clone(&gate);
                hanging.start(move || gate.lock().recv().is_ok())
            })
            .collect();
        let threads = || disk.0.shared.queue.lock().threads;
        assert_eq!(threads(), Disk::THREADS);
        disk.dwindle();
        while threads() > PER_PLACE + 1 {
            thread::yield_now();
        }
        for n in 0..100 {
            assert_eq!(fine.start(move || n).await.unwrap(), n);
        }
        drop(release);
        for stuck in stuck {
            assert!(!stuck.await.unwrap());
        }
        assert_eq!((threads(), hanging.start(|| 7).await.unwrap()), (PER_PLACE + 1, 7));
    }

    #[tokio::test]
    async fn a_panic_costs_the_one_who_asked() {
        let disk = Disk::start(Disk::THREADS).unwrap();
        let place = disk.place(Path::new("/"));
        for _ in 0..3 * Disk::THREADS {
            let failed: io::Result<()> = place.start(|| panic!("this panic is part of the test")).await;
            assert!(failed.is_err());
        }
        assert_eq!(place.start(|| 7).await.unwrap(), 7);
    }
}
