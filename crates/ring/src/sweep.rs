//! The regular look at everything: requests that take too long, workers that stand still, and words that cannot be.
//!
//! Any worker may have written anything anywhere in the memory. What contradicts the front's own record and names a worker costs that
//! worker; what names nobody costs the memory, and with it the generation. News that were lost on the way (a doorbell, a sleeper's
//! bit, a wake-up) are found here, so that no wait depends on a word that somebody may have overwritten.

use std::{sync::atomic::Ordering::*, time::Duration};

use crate::{
    exchange::Failure,
    layout::*,
    ring::{Inner, Life, Ring, claim_state, claim_ticket, claim_worker, now},
};

/// When to give a request up; see [`Ring::sweep`].
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The longest a request may wait for a worker, from its submission.
    pub queue_timeout: Duration,
    /// The longest a worker may spend on a request that has no time of its own, time spent waiting for the client not counted.
    pub request_timeout: Option<Duration>,
    /// How long a worker may spend on a request before it is one of [`Swept::slow`]; nine tenths of its timeout at most, so that it is known in time
    /// what a worker did that is killed. `None`: nobody is to know.
    pub slow_request: Option<Duration>,
}

/// Why a worker has to be killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// request_timeout passed.
    RequestTimeout,
    /// It wrote nonsense into the memory.
    Protocol,
    /// It was woken for a request and has not moved since.
    Still,
}

/// A worker that [`Ring::sweep`] wants killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overdue {
    /// Its index.
    pub worker: u32,
    /// Why.
    pub fault: Fault,
    /// Of the request that ran out of its time, with [`Fault::RequestTimeout`]; 0 otherwise. The worker may have ended it by now.
    pub ticket: u64,
}

/// A request that takes long; see [`Limits::slow_request`]. Each is named once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slow {
    /// The index of its worker.
    pub worker: u32,
    /// By which the worker knows it.
    pub ticket: u64,
    /// For how long it has run, time spent waiting for the client not counted.
    pub ran: Duration,
}

/// What [`Ring::sweep`] found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Workers to kill.
    pub overdue: Vec<Overdue>,
    /// How many requests began to take long since the last sweep.
    pub newly_slow: u64,
    /// Requests that take long, those first that have run longest.
    pub slow: Vec<Slow>,
    /// What is wrong with the memory, when nobody knows who did it: none of its workers can be trusted any more.
    pub broken: Option<&'static str>,
}

/// How long a worker may take to move after it was woken, or after what it waited for has come. It needs microseconds; but the
/// machine may be busy.
const STILL: u64 = 10_000_000_000;

/// Slow requests that one sweep names; the others are the next ones'. Each becomes a message to the zygote, whose socket holds some hundred.
const MOST_SLOW: usize = 16;

/// Sweeps that one which has run out of its time may outlive until it has been named: a thousand are named in as many.
const UNNAMED: u8 = 64;

/// Sweeps that it may outlive from then on until somebody has told what it does: a second.
const UNTOLD: u8 = 20;

/// Sweeps come 20 times a second while requests are active. After a longer pause nobody knows what workers did meanwhile.
const PAUSE: u64 = 1_000_000_000;

/// Since when, CLOCK_MONOTONIC ns, each sweep saw that a worker was told to wake up and had not, with the same number of requests served.
#[derive(Default, Clone, Copy)]
pub(crate) struct Stillness {
    since: u64,
    requests: u64,
}

/// What a sweep saw of a slot, for the next one to compare.
#[derive(Default, Clone, Copy)]
pub(crate) struct Look {
    /// Its claim and the words that a worker changes when there is news.
    news: (u64, u32, u64, u64),
    /// The task was woken for these news by a sweep.
    told: bool,
    /// Since when a worker holds it, as the front saw it; CLOCK_MONOTONIC ns, 0: none.
    held_since: u64,
    /// Since when its worker says that it waits for the client, or that it has no request, and neither can be.
    odd_since: u64,
    /// It takes long.
    slow: bool,
    /// It was named as slow.
    named: bool,
    /// What it does was told since, or nobody asks.
    told_of: bool,
    /// Sweeps that it has outlived for not being named; since then, for not being told of.
    outlived: u8,
}

impl Ring {
    /// Ends the requests that waited or ran too long, names the workers to kill for it, and says whether the memory is sound. To be
    /// called every so often while [`Ring::active`] is not 0.
    pub fn sweep(&self, limits: &Limits) -> Swept {
        let now = now();
        let mut inner = self.lock();
        let condemned = std::mem::take(&mut inner.condemned);
        let mut overdue: Vec<Overdue> = Vec::new();
        let (mut newly_slow, mut slow) = (0, Vec::new());
        let mut name = |worker, fault, ticket| {
            if !overdue.iter().any(|known| known.worker == worker) {
                overdue.push(Overdue { worker, fault, ticket });
            }
        };
        condemned.into_iter().for_each(|worker| name(worker, Fault::Protocol, 0));
        if !self.memory.constants_are_intact() {
            inner.broken.get_or_insert("its description was overwritten");
        }
        if !self.queue_is_sound(&mut inner) {
            inner.broken.get_or_insert("the queue's head, tail or cells were overwritten");
        }
        for index in inner.slots() {
            let life = inner.entry(index).life;
            if !matches!(life, Life::Live | Life::Orphan) || inner.entry(index).dead {
                continue;
            }
            let words = self.memory.slot(index);
            let seen = words.claim().load(Acquire);
            if words.submitted_at().load(Relaxed) != inner.entry(index).submitted_at
                || words.request_head_len().load(Relaxed) != inner.entry(index).head_len
                || words.bell().load(Relaxed) != inner.entry(index).bell
                || words.aborted().load(Relaxed) != inner.entry(index).aborted
                || (words.request_state().load(Relaxed) == HY_REQUEST_OPEN) != inner.entry(index).open
            {
                inner.broken.get_or_insert("words of a slot that only the front writes were overwritten");
                continue;
            }
            let entry = inner.entry(index);
            let worker = claim_worker(seen);
            let state = claim_state(seen);
            if claim_ticket(seen) != entry.last_ticket || !matches!(state, HY_QUEUED | HY_CLAIMED | HY_DONE) {
                inner.broken.get_or_insert("a claim was overwritten");
                continue;
            }
            match state {
                HY_QUEUED if entry.ticket.is_none() || worker != 0 => {
                    inner.broken.get_or_insert("a request that had been taken waits again");
                }
                HY_QUEUED => {
                    let waited = now.saturating_sub(entry.submitted_at);
                    if waited > nanos(limits.queue_timeout) && self.cancel(&mut inner, index) {
                        self.fail(&mut inner, index, Failure::QueueTimeout);
                    }
                }
                HY_DONE if life == Life::Orphan => {
                    self.free(&mut inner, index);
                    continue;
                }
                // A cancelled one bears worker 0, whether or not there is one.
                HY_DONE if entry.failure.is_some() => {}
                _ if !self.is_alive(worker) => {
                    inner.broken.get_or_insert("a claim names a worker that there is not");
                }
                HY_CLAIMED => {
                    let timeout = entry.timeout.or(limits.request_timeout).map_or(u64::MAX, nanos);
                    let patience = limits.slow_request.map(|patience| nanos(patience).min(timeout / 10 * 9));
                    let mut held = self.judge(&mut inner, index, worker);
                    if let Ok(ran) = held {
                        let look = &mut inner.entry(index).look;
                        let unnamed = !look.named && patience.is_some_and(|patience| ran > patience);
                        if unnamed {
                            newly_slow += u64::from(!std::mem::replace(&mut look.slow, true));
                            let ran = Duration::from_nanos(ran);
                            slow.push((index, Slow { worker, ticket: claim_ticket(seen), ran }));
                        }
                        let may_outlive = match (patience, look.named) {
                            (None, _) => 0,
                            (Some(_), false) => UNNAMED,
                            (Some(_), true) if look.told_of => 0,
                            (Some(_), true) => UNTOLD,
                        };
                        if ran > timeout && look.outlived < may_outlive {
                            look.outlived += 1;
                        } else if ran > timeout {
                            held = Err(Fault::RequestTimeout);
                        }
                    }
                    if let Err(fault) = held {
                        name(
                            worker,
                            fault,
                            if fault == Fault::RequestTimeout { claim_ticket(seen) } else { 0 },
                        );
                        let started = words.response_state().load(Acquire) != HY_RESPONSE_NONE;
                        let failure = match fault {
                            Fault::RequestTimeout => Failure::RequestTimeout { started },
                            _ => Failure::Malformed,
                        };
                        // Before the pool hears of it, which has PHP end the request.
                        self.set_overdue(index, fault == Fault::RequestTimeout);
                        self.fail(&mut inner, index, failure);
                    }
                }
                _ if words.response_state().load(Acquire) != HY_RESPONSE_COMPLETE => {
                    name(worker, Fault::Protocol, 0);
                    self.fail(&mut inner, index, Failure::Malformed);
                }
                _ => {}
            }
            self.tell_again(&mut inner, index);
        }
        self.move_on(&mut inner, now, &mut name);
        // Those that run out of their time before others, and those that hang before a flood of short ones.
        slow.sort_by_key(|(_, slow): &(u32, Slow)| std::cmp::Reverse(slow.ran));
        slow.truncate(MOST_SLOW);
        for (index, _) in &slow {
            let look = &mut inner.entry(*index).look;
            (look.named, look.outlived) = (true, 0);
        }
        let slow = slow.into_iter().map(|(_, slow)| slow).collect();
        let broken = inner.broken;
        self.unlock(inner);
        Swept { overdue, newly_slow, slow, broken }
    }

    /// What a worker does with the request of that ticket, which a sweep named as slow, was told, or nobody asks: a sweep may end it
    /// when its time is over. Of the ticket the lower 32 bits will do.
    pub fn told_of(&self, worker: u32, ticket: u32) {
        let mut inner = self.lock();
        for index in inner.slots() {
            let seen = self.memory.slot(index).claim().load(Relaxed);
            let entry = inner.entry(index);
            if claim_worker(seen) == worker && claim_ticket(seen) as u32 == ticket && entry.look.named {
                entry.look.told_of = true;
            }
        }
    }

    pub(crate) fn fail(&self, inner: &mut Inner, index: u32, failure: Failure) {
        let entry = inner.entry(index);
        if entry.life == Life::Live {
            entry.failure.get_or_insert(failure);
            let waker = entry.waker.take();
            inner.woken.extend(waker);
        }
    }

    /// Looks at a slot that a living worker, this one, held a moment ago: by now the claim may say anything. The worker's own times are
    /// believed as far as they can be true. Returns for how long it has run the request, ns, time spent waiting for the client not counted.
    fn judge(&self, inner: &mut Inner, index: u32, worker: u32) -> Result<u64, Fault> {
        let words = self.memory.slot(index);
        let entry = inner.entry(index);
        if entry.look.held_since == 0 {
            entry.look.held_since = now();
        }
        // In this order: a wait that ends meanwhile is counted twice rather than not at all.
        let waits_since = words.blocked_since().load(Acquire);
        let blocked = words.blocked_ns().load(Acquire);
        let claimed_at = words.claimed_at().load(Acquire);
        let now = now();
        let whole = now.saturating_sub(entry.submitted_at);
        if blocked > whole || (waits_since != 0 && !(entry.submitted_at..=now).contains(&waits_since)) {
            return Err(Fault::Protocol);
        }
        let since = match claimed_at {
            at if (entry.submitted_at..=now).contains(&at) => at,
            // Between its claim and its look at the clock; or nonsense.
            _ => entry.look.held_since,
        };
        let waits = waits_since != 0;
        let idles = self.worker_record(worker).state == HY_WORKER_IDLE;
        if idles || (waits && !self.has_to_wait(index, entry.open)) {
            if entry.look.odd_since == 0 {
                entry.look.odd_since = now;
            }
            if waits {
                // Its wake-up may have been lost; once more does no harm.
                self.say_wake(worker);
                inner.stirred.push(worker);
            }
            if now.saturating_sub(inner.entry(index).look.odd_since) > STILL {
                return Err(if idles { Fault::Protocol } else { Fault::Still });
            }
        } else {
            inner.entry(index).look.odd_since = 0;
        }
        let waiting = if waits { now.saturating_sub(waits_since) } else { 0 };
        Ok(now.saturating_sub(since).saturating_sub(blocked).saturating_sub(waiting))
    }

    /// Whether the worker that holds a slot may have to wait for the client: its body (`open`: there may be more) is not there, or its
    /// answer not taken.
    ///
    /// Both positions of the front may move meanwhile, on the thread that the slot belongs to. One that is seen late makes this say yes, which
    /// is right at that moment; one that is seen early makes it say no, of a worker that is just being woken, and whose next
    /// looks have ten seconds to find it moving.
    fn has_to_wait(&self, index: u32, open: bool) -> bool {
        let words = self.memory.slot(index);
        let no_input = open && words.request_tail().load(Acquire) == words.request_taken().load(Acquire);
        let untaken = words.response_tail().load(Acquire).wrapping_sub(self.taken(index));
        words.aborted().load(Relaxed) == 0 && (no_input || untaken >= self.memory.response_body.size as u64)
    }

    /// Wakes the task of an exchange whose news are a sweep old, once: its doorbell may have been overwritten.
    fn tell_again(&self, inner: &mut Inner, index: u32) {
        let words = self.memory.slot(index);
        let news = (
            words.claim().load(Relaxed),
            words.response_state().load(Relaxed),
            words.response_tail().load(Relaxed),
            words.request_taken().load(Relaxed),
        );
        let entry = inner.entry(index);
        if entry.look.news != news {
            (entry.look.news, entry.look.told) = (news, false);
        } else if !entry.look.told && claim_state(news.0) != HY_QUEUED {
            entry.look.told = true;
            let waker = entry.waker.take();
            inner.woken.extend(waker);
        }
    }

    /// When the oldest request has waited since the last sweep although workers idle, whoever was woken for it did not come: wakes
    /// others, and names those that have not moved.
    fn move_on(&self, inner: &mut Inner, now: u64, name: &mut impl FnMut(u32, Fault, u64)) {
        let (waiting, oldest) = Ring::oldest_waiting(inner);
        if waiting == 0 {
            inner.stalled = (0, 0);
        } else if inner.stalled.0 == oldest {
            inner.stalled.1 = inner.stalled.1.saturating_add(1);
            let stirred = &mut inner.stirred;
            let woken = self.choose_sleepers(waiting as u32, |worker| stirred.push(worker));
            if woken == 0 && inner.stalled.1 > 2 {
                // Nobody says that it sleeps. Those that hold no request may sleep all the same.
                let mut busy = [0u64; HY_MASK_WORDS as usize];
                for index in inner.slots() {
                    let seen = self.memory.slot(index).claim().load(Relaxed);
                    if claim_state(seen) == HY_CLAIMED
                        && let Some(word) = busy.get_mut(claim_worker(seen) as usize / 64)
                    {
                        *word |= 1 << (claim_worker(seen) % 64);
                    }
                }
                let holds = |worker: u32| {
                    busy.get(worker as usize / 64).is_some_and(|word| word >> (worker % 64) & 1 != 0)
                };
                let idle = (0..self.workers).filter(|worker| self.is_alive(*worker) && !holds(*worker));
                inner.stirred.extend(idle.inspect(|worker| self.say_wake(*worker)));
            }
        } else {
            inner.stalled = (oldest, 0);
        }
        self.look_for_still(inner, now, name);
    }

    /// Names workers that are told to wake up and do not, as each sweep of the last ten seconds saw. Sweeps alone count: a worker that was
    /// told a moment ago has not moved yet, whenever it was told before.
    fn look_for_still(&self, inner: &mut Inner, now: u64, name: &mut impl FnMut(u32, Fault, u64)) {
        let paused = now.saturating_sub(std::mem::replace(&mut inner.swept_at, now)) > PAUSE;
        for (worker, stillness) in (0..self.workers).zip(&mut inner.stillness) {
            let words = self.memory.worker(worker);
            let told = words.wake().load(Relaxed) == 1 && words.state().load(Relaxed) == HY_WORKER_IDLE;
            let requests = words.requests().load(Relaxed);
            let new = stillness.since == 0 || !self.is_alive(worker);
            if new || paused || !told || stillness.requests != requests {
                *stillness = Stillness { since: now, requests };
            } else if now.saturating_sub(stillness.since) > STILL {
                name(worker, Fault::Still, 0);
            }
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    duration.as_nanos().try_into().unwrap_or(u64::MAX)
}
