//! Rewinding as the pool sees it: how an application asks for it, what workers say of it, and when an application is not fit for it.
//!
//! The rewinding itself is the host's (`host/rewind/`). A worker that cannot be put back to its snapshot with certainty retires after
//! its answer and says why; here that reason gets its words. When it happens again and again the application is declared [`Unfit`],
//! once for each generation; what follows is decided by whoever started the generation.

use std::{collections::VecDeque, time::Duration};

use hayate_ring::{WorkerRecord, layout::*};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// What happens to a worker's process between two requests, in worker mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rewind {
    /// Nothing: the state is kept.
    #[default]
    Off,
    /// It is rewound to the snapshot; where the kernel gives no way to track what was written, as `Fork`.
    On,
    /// Each request runs in a fork of the booted process, which ends with it.
    Fork,
}

impl Rewind {
    /// `off`, `on` or `fork`.
    pub fn name(self) -> &'static str {
        match self {
            Rewind::Off => "off",
            Rewind::On => "on",
            Rewind::Fork => "fork",
        }
    }
}

/// What becomes of connections that are open when a worker is ready to serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Connections {
    /// Nothing: a request opens what it needs, and its end closes it.
    #[default]
    Request,
    /// They stay open over rewinds, and their server is told to forget after each request.
    Warm,
}

impl Connections {
    /// `request` or `warm`.
    pub fn name(self) -> &'static str {
        match self {
            Connections::Request => "request",
            Connections::Warm => "warm",
        }
    }
}

/// Sums over the workers of a generation, living and dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct RewindTotals {
    /// How often a worker was put back.
    pub rewinds: u64,
    /// Time spent on releasing what requests acquired, in ns.
    pub clean_ns: u64,
    /// On finding the pages they wrote, in ns.
    pub scan_ns: u64,
    /// On putting them back, in ns.
    pub copy_ns: u64,
    /// Pages put back that are not in the hot set.
    pub cold_pages: u64,
    /// How often a connection was put back at its server's end.
    pub resets: u64,
    /// What that took, the wait for the server included, in ns.
    pub reset_ns: u64,
}

impl RewindTotals {
    /// Adds what one worker did.
    pub(crate) fn add(&mut self, record: &WorkerRecord) {
        self.add_totals(&RewindTotals {
            rewinds: record.rewinds,
            clean_ns: record.clean_ns,
            scan_ns: record.scan_ns,
            copy_ns: record.copy_ns,
            cold_pages: record.cold_pages,
            resets: record.resets,
            reset_ns: record.reset_ns,
        });
    }

    /// Adds the totals of another generation.
    pub fn add_totals(&mut self, other: &RewindTotals) {
        // Saturating: a worker whose memory PHP code has harmed may say anything.
        let add = |sum: &mut u64, n: u64| *sum = sum.saturating_add(n);
        add(&mut self.rewinds, other.rewinds);
        add(&mut self.clean_ns, other.clean_ns);
        add(&mut self.scan_ns, other.scan_ns);
        add(&mut self.copy_ns, other.copy_ns);
        add(&mut self.cold_pages, other.cold_pages);
        add(&mut self.resets, other.resets);
        add(&mut self.reset_ns, other.reset_ns);
    }
}

/// Rewinding at one moment, for `hayate status` and the metrics.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RewindStatus {
    /// As configured.
    pub rewind: Rewind,
    /// What the workers use: `uffd`, `soft-dirty` or `fork`. `None`: none has said so yet.
    pub tracking: Option<&'static str>,
    /// Pages that are put back after each request without looking; the most of any living worker.
    pub hot_pages: u32,
    /// Connections that living workers keep over rewinds.
    pub warm: u64,
    /// Sums since the generation began.
    #[serde(flatten)]
    pub totals: RewindTotals,
}

/// `enum hy_tracking` in words; `None` while there is none.
pub(crate) fn tracking_name(tracking: u32) -> Option<&'static str> {
    match tracking {
        HY_TRACKING_UFFD => Some("uffd"),
        HY_TRACKING_SOFT_DIRTY => Some("soft-dirty"),
        HY_TRACKING_FORK => Some("fork"),
        _ => None,
    }
}

/// Why a worker retired rather than be rewound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Doubt {
    retired: u32,
    /// As counted in [`crate::Status::restarts`] and in the metrics.
    pub label: &'static str,
    /// What the request did.
    pub what: &'static str,
    /// How the application's owner avoids it.
    pub remedy: &'static str,
}

/// Every reason of `enum hy_retired` that concerns rewinding.
pub const DOUBTS: [Doubt; 12] = [
    Doubt {
        retired: HY_RETIRED_REWIND_THREADS,
        label: "rewind_threads",
        what: "a thread that the request started still ran at its end",
        remedy: "wait for it before the request ends; with curl, let transfers finish or close their handles; for libraries \
                 that compute in parallel set OMP_NUM_THREADS=1 in the application's environment",
    },
    Doubt {
        retired: HY_RETIRED_REWIND_MAPPINGS,
        label: "rewind_mappings",
        what: "the request changed memory mappings of the boot in a way that cannot be put back",
        remedy: "release and acquire large resources (shared memory, FFI) within the same request",
    },
    Doubt {
        retired: HY_RETIRED_REWIND_DESCRIPTORS,
        label: "rewind_descriptors",
        what: "the request closed or replaced a file that the boot had opened, lost a record lock that the boot held, or wrote \
               to a large temporary file of the boot's",
        remedy: "open the file in the request that uses it, or do not close what the boot has opened; leave no transaction or \
                 half-fetched result open at the boot",
    },
    Doubt {
        retired: HY_RETIRED_REWIND_CONNECTION,
        label: "rewind_connection",
        what: "the request used a connection, or an event loop, that the boot had opened, changed a socket of the boot, or left a \
               connection that is kept so that it cannot be put back",
        remedy: "open database and cache connections lazily, in the request that uses them; of connections that are kept a line of \
                 the log before says what was left: where a server of theirs was away or restarted, nothing need be done",
    },
    Doubt {
        retired: HY_RETIRED_REWIND_CHILD,
        label: "rewind_child",
        what: "the request left a child process behind",
        remedy: "wait for child processes (proc_close), or hand the work to a queue",
    },
    Doubt {
        retired: HY_RETIRED_REWIND_OPCACHE,
        label: "rewind_opcache",
        what: "opcache_reset() was called, or OPcache was full, so the application boots anew, as after `hayate reload`",
        remedy: "call `hayate reload` when code has changed, and opcache_reset() never; give OPcache more room where it is full",
    },
    Doubt {
        retired: HY_RETIRED_REWIND_CLEANUP,
        label: "rewind_cleanup",
        what: "a fatal error struck while the request was being cleaned up",
        remedy: "see the PHP message in the log above; destructors and shutdown functions run then",
    },
    Doubt {
        retired: HY_RETIRED_REWIND_MEMORY,
        label: "rewind_memory",
        what: "the kernel's tracking failed, or the memory was not as in the snapshot",
        remedy: "if it happens again use rewind = \"fork\" and report it, with the extensions that are loaded",
    },
    Doubt {
        retired: HY_RETIRED_REWIND_LIBRARY,
        label: "rewind_library",
        what: "a shared library was loaded or unloaded during the request",
        remedy: "let the boot or a warm-up request use the function that loads it",
    },
    Doubt {
        retired: HY_RETIRED_REWIND_PROCESS,
        label: "rewind_process",
        what: "the request changed what a process is (its priority, limits, process group, session, user or group), wrote to a file of \
               /proc, left a timer running, or made a system call by its number that cannot be taken back",
        remedy: "set it where Hayate is started, or hand the work to another process",
    },
    Doubt {
        retired: HY_RETIRED_FILE_REPLACED,
        label: "file_replaced",
        what: "a SQLite database that the boot had opened was replaced or removed by its name, or a large temporary file of the boot's \
               was removed",
        remedy: "where it happens now and then nothing need be done; else open the database in the request, and let neither the boot \
                 nor requests replace it",
    },
    Doubt {
        retired: HY_RETIRED_CLASS_DECLARED,
        label: "class_declared",
        what: "the request did what is otherwise where a package's class is there before it: it declared one of its own under that \
               name, asked which classes are there, changed where autoloaders look for them, or how files are read",
        remedy: "do so as the application boots, or leave it: requests load their classes by themselves from now on",
    },
];

impl Doubt {
    /// The reason with a number of `enum hy_retired`; `None`: it is about something else.
    pub fn of(retired: u32) -> Option<&'static Doubt> {
        DOUBTS.iter().find(|doubt| doubt.retired == retired)
    }

    /// Nothing is in doubt but the code: the application is to boot anew.
    pub(crate) fn renews(&self) -> bool {
        self.retired == HY_RETIRED_REWIND_OPCACHE
    }

    /// Nothing is wrong but that classes were there before the request.
    fn is_about_classes(&self) -> bool {
        self.retired == HY_RETIRED_CLASS_DECLARED
    }

    /// No request has done it: somebody may have, from outside.
    fn is_from_outside(&self) -> bool {
        self.retired == HY_RETIRED_FILE_REPLACED
    }

    /// Whether the end of a worker that could serve for so long speaks against rewinding. A file that is replaced each night, or every few
    /// minutes, costs less than a slower way would, however few requests come meanwhile.
    pub(crate) fn weighs(&self, served_for: Duration) -> bool {
        !self.is_from_outside() || served_for < YOUNG
    }
}

/// An application whose workers retire again and again because they cannot be rewound, or that is to boot anew.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unfit {
    /// The reason that came last, as in [`Doubt::label`]; `rewind_boot` for what showed before a worker served: an extension that is
    /// known not to bear rewinding, a point that cannot be gone back to; `zygote_silent` for a zygote that answers no
    /// more.
    pub reason: &'static str,
    /// What happened, and how to avoid it, for people.
    pub why: String,
    /// Nothing is wrong with rewinding: the application is to be booted anew, as it is.
    pub renew: bool,
    /// It would be fit if its classes were left to requests.
    pub classes: bool,
    /// A fork for each request would be fit.
    pub fork: bool,
}

impl Unfit {
    /// The zygote says nothing any more; nothing is wrong with the application.
    pub(crate) fn silent(why: String) -> Unfit {
        Unfit { reason: "zygote_silent", why, renew: true, classes: false, fork: true }
    }

    /// What a worker found out that booted by itself beside others; booted anew, the application finds its own way.
    pub(crate) fn declined(why: String) -> Unfit {
        Unfit { reason: "boot_declined", why, renew: true, classes: false, fork: true }
    }

    /// What the host found out before a worker could serve.
    pub(crate) fn at_boot(fork: bool, why: String) -> Unfit {
        let reason = if fork { "rewind_boot" } else { "rewind_threads" };
        Unfit { reason, why, renew: false, classes: false, fork }
    }
}

/// A worker that has served for longer has paid for its boot.
const YOUNG: Duration = Duration::from_secs(30);
/// So many retirements …
const RETIREMENTS: usize = 8;
/// … within so many requests, a fifth of them: a fork for every request is then the cheaper way.
const REQUESTS: u64 = 40;

/// Where workers keep connections, their server may be away for so long, or refuse who comes, before it counts against the application.
const OUTAGE: Duration = Duration::from_secs(300);
/// So long after one that went wrong another one is of the same outage.
const SAME_OUTAGE: Duration = Duration::from_secs(60);

/// Watches how often workers retire for a [`Doubt`].
#[derive(Debug, Default)]
pub(crate) struct Fitness {
    /// The requests that had been served at each of the last retirements.
    at: VecDeque<u64>,
    /// When something from outside was last seen to have ended a worker.
    outside: Option<Instant>,
    /// Since when connections that workers keep have gone wrong, and when one was the last.
    outage: Option<(Instant, Instant)>,
}

impl Fitness {
    /// Whether a worker's end is one more event. A file that is replaced ends all that had opened it, one after the other: that is one.
    pub(crate) fn is_news(&mut self, doubt: &Doubt, forked: Instant, now: Instant) -> bool {
        if !doubt.is_from_outside() {
            return true;
        }
        let news = self.outside.is_none_or(|at| forked >= at);
        if news {
            self.outside = Some(now);
        }
        news
    }

    /// Whether a worker's end may be the doing of a server that is away: workers that could not open what they keep leave requests with what
    /// they have of it.
    pub(crate) fn is_outage(&mut self, doubt: &Doubt, connections: Connections, now: Instant) -> bool {
        if doubt.retired != HY_RETIRED_REWIND_CONNECTION || connections != Connections::Warm {
            return false;
        }
        let known = self.outage.filter(|(_, last)| now.saturating_duration_since(*last) < SAME_OUTAGE);
        let since = known.map_or(now, |(since, _)| since);
        self.outage = Some((since, now));
        now.saturating_duration_since(since) < OUTAGE
    }

    /// Notes a retirement, after `served` requests of all workers. Says so when there are too many.
    pub(crate) fn retired(&mut self, doubt: &Doubt, served: u64) -> Option<Unfit> {
        self.at.push_back(served);
        if self.at.len() > RETIREMENTS {
            self.at.pop_front();
        }
        let first = *self.at.front()?;
        if doubt.renews() {
            let why = format!("{}. To avoid it: {}", doubt.what, doubt.remedy);
            return Some(Unfit { reason: doubt.label, why, renew: true, classes: false, fork: true });
        }
        if doubt.is_about_classes() {
            let why = format!("{}. To avoid it: {}", doubt.what, doubt.remedy);
            return Some(Unfit { reason: doubt.label, why, renew: false, classes: true, fork: false });
        }
        if self.at.len() < RETIREMENTS || served.saturating_sub(first) > REQUESTS {
            return None;
        }
        Some(Unfit {
            reason: doubt.label,
            why: format!(
                "{RETIREMENTS} workers could not be rewound within {REQUESTS} requests, the last because {}. To avoid it: {}",
                doubt.what, doubt.remedy
            ),
            renew: false,
            classes: false,
            // It shares the boot's connection or file as well, and is no better off with it.
            fork: doubt.retired != HY_RETIRED_REWIND_CONNECTION && !doubt.is_from_outside(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_of_the_layout_has_its_words() {
        for retired in HY_RETIRED_REWIND_THREADS..=HY_RETIRED_REWIND_PROCESS {
            let doubt = Doubt::of(retired).unwrap();
            assert!(doubt.label.starts_with("rewind_"));
        }
        assert_eq!(DOUBTS.len() as u32, HY_RETIRED_REWIND_PROCESS - HY_RETIRED_REWIND_THREADS + 3);
        assert!(Doubt::of(HY_RETIRED_FILE_REPLACED).is_some());
        assert!(Doubt::of(HY_RETIRED_CLASS_DECLARED).is_some());
        assert!(Doubt::of(HY_RETIRED_FATAL).is_none() && Doubt::of(99).is_none());
    }

    #[test]
    fn one_retirement_in_five_requests_is_too_many() {
        let doubt = &DOUBTS[0];
        let mut every_tenth = Fitness::default();
        assert!((1..100).all(|n| every_tenth.retired(doubt, n * 10).is_none()));
        let mut every_fifth = Fitness::default();
        let unfit: Vec<bool> = (1..=9).map(|n| every_fifth.retired(doubt, n * 5).is_some()).collect();
        assert_eq!(unfit.iter().position(|unfit| *unfit), Some(7));
        let mut rare_then_always = Fitness::default();
        assert!((1..=7).all(|n| rare_then_always.retired(doubt, n * 100).is_none()));
        assert!((701..=706).all(|n| rare_then_always.retired(doubt, n).is_none()), "one before was long ago");
        assert_eq!(rare_then_always.retired(doubt, 707).unwrap().reason, "rewind_threads");
    }

    #[test]
    fn a_file_that_is_replaced_is_one_event_and_weighs_for_young_workers_only() {
        let (request, outside) = (&DOUBTS[0], Doubt::of(HY_RETIRED_FILE_REPLACED).unwrap());
        let (start, mut fitness) = (Instant::now(), Fitness::default());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(fitness.is_news(outside, at(0), at(9)));
        assert!(!fitness.is_news(outside, at(1), at(10)) && !fitness.is_news(outside, at(8), at(900)));
        assert!(fitness.is_news(request, at(8), at(901)) && fitness.is_news(request, at(8), at(901)));
        assert!(fitness.is_news(outside, at(11), at(902)) && !fitness.is_news(outside, at(901), at(903)));
        assert!(outside.weighs(YOUNG / 2) && !outside.weighs(YOUNG) && request.weighs(YOUNG));
        let unfit = (1..=8).find_map(|n| fitness.retired(outside, n)).unwrap();
        assert_eq!((unfit.reason, unfit.fork, unfit.renew), ("file_replaced", false, false));
    }

    #[test]
    fn a_server_that_is_away_for_some_minutes_does_not_count_against_the_application() {
        let (doubt, start) = (Doubt::of(HY_RETIRED_REWIND_CONNECTION).unwrap(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut fitness = Fitness::default();
        assert!(!fitness.is_outage(doubt, Connections::Request, at(0)));
        assert!(!fitness.is_outage(&DOUBTS[0], Connections::Warm, at(0)));
        let mut outage = |seconds| fitness.is_outage(doubt, Connections::Warm, at(seconds));
        assert!((0..300).step_by(10).all(&mut outage) && !outage(300) && !outage(330));
        assert!(outage(390) && outage(440), "another one");
    }

    #[test]
    fn opcache_reset_asks_for_a_new_boot_at_once() {
        let doubt = Doubt::of(HY_RETIRED_REWIND_OPCACHE).unwrap();
        assert!(Fitness::default().retired(doubt, 1).unwrap().renew);
    }

    #[test]
    fn totals_do_not_overflow() {
        let mut totals = RewindTotals::default();
        let record = WorkerRecord { rewinds: 2, copy_ns: u64::MAX, ..WorkerRecord::default() };
        totals.add(&record);
        totals.add(&record);
        assert_eq!((totals.rewinds, totals.copy_ns), (4, u64::MAX));
    }
}
