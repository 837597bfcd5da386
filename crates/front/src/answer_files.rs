//! Large files that answers are sent from. A client may take its time, and may ask for many: so no answer keeps its file open for itself.
//!
//! It promises that no more than so many are kept open, and that no answer waits for another's to be closed: for one more, the one that was
//! read least recently is closed, and is opened again when its turn comes. Each counts until it is closed. Beside those that are kept there are
//! those that are being read at this moment: one by each thread of a place, of which it has four, and one by each thread that serves; what
//! waits for a thread has nothing open. And there are those that wait to be closed by the threads of a place that hangs: while they are as many
//! as may be kept, no more are kept, and each is closed as soon as it was read. What has no name any more, and could not be opened again, is
//! always kept, and closed only where twice as many are kept as may be.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Weak,
        atomic::{
            AtomicBool, AtomicUsize,
            Ordering::{AcqRel, Acquire, Relaxed},
        },
    },
};

use parking_lot::Mutex;

use crate::{disk::Opened, reminder::Reminder};

/// Fewer are never reckoned with.
const LEAST: usize = 4;
/// More are never needed.
const MOST: usize = 1 << 20;
/// Files without a name that are passed over at one time.
const NAMELESS: usize = 16;

/// All of them.
pub(crate) struct AnswerFiles {
    most: usize,
    /// Until they are closed.
    open: Arc<AtomicUsize>,
    /// Of them those in slots.
    kept: Arc<AtomicUsize>,
    /// In the order in which they are looked at; some have been closed, or are of answers that are over.
    queue: Mutex<VecDeque<Weak<Slot>>>,
    /// Answers broke off, for their files had changed.
    pub(crate) broken_off: Reminder,
    /// Answers broke off, for their files could not be opened or read for a while.
    pub(crate) given_up: Reminder,
}

/// Where the file of one answer is, while it is open.
#[derive(Default)]
pub(crate) struct Slot {
    file: Mutex<Option<Kept>>,
    /// It was read since it was looked at.
    read: AtomicBool,
}

struct Kept {
    file: Arc<Opened>,
    _counted: Counted,
}

/// One more, as long as it is there.
pub(crate) struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(among: &Arc<AtomicUsize>) -> Counted {
        among.fetch_add(1, AcqRel);
        Counted(Arc::clone(among))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, AcqRel);
    }
}

impl Slot {
    /// The file, if it is open, to be read from at once.
    pub(crate) fn file(&self) -> Option<Arc<Opened>> {
        self.read.store(true, Relaxed);
        self.file.lock().as_ref().map(|kept| Arc::clone(&kept.file))
    }
}

impl AnswerFiles {
    /// `spare`: how many descriptors there are beside those of connections; a quarter of them may be kept open.
    pub(crate) fn new(spare: usize) -> Arc<AnswerFiles> {
        let most = (spare / 4).clamp(LEAST, MOST);
        Arc::new(AnswerFiles {
            most,
            open: Arc::default(),
            kept: Arc::default(),
            queue: Mutex::default(),
            broken_off: Reminder::default(),
            given_up: Reminder::default(),
        })
    }

    /// Keeps a file open there, until the slot goes or others need more; unless as many as may be kept are only waiting to be closed.
    pub(crate) fn keep(self: &Arc<Self>, slot: &Arc<Slot>, mut file: Opened) -> Arc<Opened> {
        let unclosed = self.open.load(Acquire).saturating_sub(self.kept.load(Acquire));
        file.count(Counted::new(&self.open));
        let file = Arc::new(file);
        if unclosed >= self.most && !file.has_no_name() {
            return file;
        }
        let kept = Kept { file: Arc::clone(&file), _counted: Counted::new(&self.kept) };
        let before = slot.file.lock().replace(kept);
        drop(before);
        self.make_room(slot);
        file
    }

    #[cfg(test)]
    pub(crate) fn open(&self) -> usize {
        self.open.load(Acquire)
    }

    fn make_room(&self, newest: &Arc<Slot>) {
        let (mut closed, mut looked_at, mut nameless) = (Vec::new(), Vec::new(), NAMELESS);
        let mut queue = self.queue.lock();
        // Answers that are over leave their entries behind.
        if queue.len() > 2 * self.most.min(self.kept.load(Acquire)) + 16 {
            queue.retain(|slot| slot.strong_count() > 0);
        }
        let mut looks = 2 * queue.len();
        loop {
            let kept = self.kept.load(Acquire).saturating_sub(closed.len());
            if kept <= self.most || looks == 0 || nameless == 0 {
                break;
            }
            looks -= 1;
            let Some(weak) = queue.pop_front() else { break };
            let Some(slot) = weak.upgrade() else { continue };
            let mut file = slot.file.lock();
            if slot.read.swap(false, Relaxed) {
                queue.push_back(weak);
            } else if kept <= self.most.saturating_mul(2)
                && file.as_ref().is_some_and(|kept| kept.file.has_no_name())
            {
                nameless -= 1;
                queue.push_back(weak);
            } else {
                closed.extend(file.take());
            }
            drop(file);
            // Its answer may have ended meanwhile.
            looked_at.push(slot);
        }
        queue.push_back(Arc::downgrade(newest));
        drop(queue);
        // Closing may ask the file system, or another thread to do so: not under the lock.
        drop((closed, looked_at));
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, path::Path, sync::mpsc};

    use super::*;
    use crate::disk::{Disk, PER_PLACE, Place};

    #[test]
    fn the_one_that_was_read_least_recently_is_closed() {
        let files = AnswerFiles::new(0);
        let place = Disk::without_threads().place(Path::new("/"));
        let open = || Opened::new(File::open("/dev/null").unwrap(), true, Arc::clone(&place), None);
        let keep = || {
            let slot = Arc::default();
            files.keep(&slot, open());
            slot
        };
        let slots: Vec<Arc<Slot>> = (0..LEAST).map(|_| keep()).collect();
        assert!(slots.iter().all(|slot| slot.file.lock().is_some()));
        // All but the second are read.
        for slot in slots.iter().enumerate().filter(|(n, _)| *n != 1).map(|(_, slot)| slot) {
            assert!(slot.file().is_some());
        }
        let more = keep();
        let is_open = |slot: &Arc<Slot>| slot.file.lock().is_some();
        assert!(is_open(&more) && !is_open(&slots[1]) && files.open.load(Acquire) == LEAST);
        assert_eq!(slots.iter().filter(|slot| is_open(slot)).count(), LEAST - 1);
        // It comes again.
        files.keep(&slots[1], open());
        assert!(slots[1].file().is_some() && files.open.load(Acquire) == LEAST);
        drop((slots, more));
        assert_eq!(files.open.load(Acquire), 0);
        for _ in 0..1000 {
            keep();
        }
        assert!(files.queue.lock().len() <= 2 * LEAST + 17);
    }

    #[test]
    fn what_has_no_name_stays_open_while_there_are_few_of_those() {
        let files = AnswerFiles::new(0);
        let place = Disk::without_threads().place(Path::new("/"));
        let keep = |file: File| {
            let slot = Arc::default();
            files.keep(&slot, Opened::new(file, true, Arc::clone(&place), None));
            slot
        };
        let is_open = |slot: &Arc<Slot>| slot.file.lock().is_some();
        let nameless: Vec<_> = (0..LEAST).map(|_| keep(tempfile::tempfile().unwrap())).collect();
        let named: Vec<_> = (0..4 * LEAST).map(|_| keep(File::open("/dev/null").unwrap())).collect();
        assert!(nameless.iter().all(is_open));
        assert_eq!(named.iter().filter(|slot| is_open(slot)).count(), 1, "the newest");
        let more: Vec<_> = (0..8 * LEAST).map(|_| keep(tempfile::tempfile().unwrap())).collect();
        assert!(files.kept.load(Acquire) <= 2 * LEAST + 1 && more.last().is_some_and(is_open));
    }

    #[test]
    fn what_is_read_at_this_moment_is_closed_afterwards() {
        let files = AnswerFiles::new(0);
        let place = Disk::without_threads().place(Path::new("/"));
        let slots: Vec<Arc<Slot>> = (0..2 * LEAST).map(|_| Arc::default()).collect();
        let open = |slot: &Arc<Slot>| {
            files.keep(slot, Opened::new(File::open("/dev/zero").unwrap(), true, Arc::clone(&place), None))
        };
        let reading: Vec<_> = slots.iter().map(open).collect();
        let counts = || (files.kept.load(Acquire), files.open.load(Acquire));
        assert_eq!(counts(), (LEAST, 2 * LEAST));
        assert!(
            reading.iter().all(|file| std::os::unix::fs::FileExt::read_at(&***file, &mut [0], 0).is_ok())
        );
        drop(reading);
        assert_eq!(counts(), (LEAST, LEAST));
    }

    #[test]
    fn what_a_place_that_hangs_has_to_close_counts_and_does_not_become_more() {
        let files = AnswerFiles::new(0);
        let disk = Disk::start(Disk::THREADS).unwrap();
        let (hanging, fine) = (disk.place(Path::new("/hanging")), disk.place(Path::new("/fine")));
        let (release, gate) = mpsc::channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        for _ in 0..PER_PLACE {
            let gate = Arc::clone(&gate);
            assert!(hanging.send(Box::new(move || {
                let _ = gate.lock().recv();
            })));
        }
        let keep = |near, place: &Arc<Place>| {
            let slot: Arc<Slot> = Arc::default();
            files.keep(&slot, Opened::new(File::open("/dev/null").unwrap(), near, Arc::clone(place), None));
            slot
        };
        let counts = || (files.kept.load(Acquire), files.open.load(Acquire));
        let stuck: Vec<_> = (0..LEAST).map(|_| keep(false, &hanging)).collect();
        let others: Vec<_> = (0..LEAST).map(|_| keep(true, &fine)).collect();
        assert_eq!(counts(), (LEAST, 2 * LEAST), "those of the place that hangs are not closed");
        let more: Vec<_> = (0..100).map(|_| keep(true, &fine)).collect();
        assert_eq!(counts(), (LEAST, 2 * LEAST));
        assert!(others.iter().all(|slot| slot.file().is_some()), "to close them would not help");
        let nameless = keep_nameless(&files, &fine);
        assert!(nameless.file().is_some(), "it cannot be opened again");
        drop(release);
        while counts().1 > counts().0 {
            std::thread::yield_now();
        }
        assert!(keep(true, &fine).file().is_some());
        drop((stuck, others, more));
    }

    fn keep_nameless(files: &Arc<AnswerFiles>, place: &Arc<Place>) -> Arc<Slot> {
        let slot: Arc<Slot> = Arc::default();
        files.keep(&slot, Opened::new(tempfile::tempfile().unwrap(), true, Arc::clone(place), None));
        slot
    }
}
