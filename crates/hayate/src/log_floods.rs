//! How often Hayate says the same thing in its own log. Much of what it says, a visitor can bring about as often as he likes; then the log
//! is to name the trouble, not to be it: neither to fill the disk, nor to crowd out what else there is to say.
//!
//! It promises that each place in the code gets [`BURST`] lines at once for each application, status and reason of an answer, and [`RATE`] a second in the long run; that no
//! place can be forgotten, for it stands where all events pass; and that what was left out is counted and said. What applications log has
//! limits of its own (`pool/src/log_limit.rs`). What is said only at the levels debug and trace has none.

use std::{
    collections::HashMap,
    fmt,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tracing::{
    Event, Level, Metadata, Subscriber,
    callsite::Identifier,
    field::{Field, Visit},
};
use tracing_subscriber::{Layer, layer::Context};

/// Lines at once, and a second.
const BURST: u32 = 200;
const RATE: u32 = 20;
/// Characters of a reason by which kinds are told apart.
const REASON: usize = 100;
/// How often is said what was left out.
const SAID_EVERY: Duration = Duration::from_secs(5);

/// Who says what how often.
pub struct Floods {
    /// By the place in the code, and by what the event says of itself. Those that have said nothing lately are forgotten.
    kinds: Mutex<Option<HashMap<(Identifier, Of), Kind>>>,
    left_out: AtomicU64,
    /// Somebody says what is left out; before that nothing is.
    spoken: AtomicBool,
    /// A line has been said: there may be something to tell of later, and to forget.
    said: Notify,
}

struct Kind {
    /// It may say [`BURST`] lines at once when this has passed. It is moved on by each line: a leaky bucket, as one number.
    empty_at: Instant,
    left_out: u64,
    of: &'static Metadata<'static>,
}

/// What an event says of itself: one place in the code is not one kind of trouble.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Of {
    app: String,
    /// Of the answer; 0: it names none.
    status: u64,
    /// Why there was no other answer; one of a few, which no visitor makes. Its first [`REASON`] characters: an application's own words may be
    /// long, and end differently each time.
    reason: String,
}

impl Visit for Of {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "app" => value.clone_into(&mut self.app),
            "reason" => self.reason = value.chars().take(REASON).collect(),
            _ => {}
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "status" {
            self.status = value;
        }
    }

    fn record_debug(&mut self, _field: &Field, _value: &dyn fmt::Debug) {}
}

impl Floods {
    pub const fn new() -> Floods {
        Floods {
            kinds: Mutex::new(None),
            left_out: AtomicU64::new(0),
            spoken: AtomicBool::new(false),
            said: Notify::const_new(),
        }
    }

    fn admits(&self, of: &'static Metadata<'static>, what: Of, now: Instant) -> bool {
        self.said.notify_one();
        let mut kinds = self.kinds.lock();
        let kind = kinds.get_or_insert_default().entry((of.callsite(), what));
        let kind = kind.or_insert(Kind { empty_at: now, left_out: 0, of });
        let empty_at = kind.empty_at.max(now);
        let each = Duration::from_secs(1) / RATE;
        if empty_at.saturating_duration_since(now) > each * (BURST - 1) {
            kind.left_out = kind.left_out.saturating_add(1);
            self.left_out.fetch_add(1, Relaxed);
            return false;
        }
        kind.empty_at = empty_at + each;
        true
    }

    /// What was left out since it was last asked: how many lines, of what and which place.
    fn take(&self, now: Instant) -> Vec<(u64, Of, &'static Metadata<'static>)> {
        let mut kinds = self.kinds.lock();
        let mut taken = Vec::new();
        if let Some(kinds) = &mut *kinds {
            for ((_, what), kind) in kinds.iter_mut().filter(|(_, kind)| kind.left_out > 0) {
                taken.push((std::mem::take(&mut kind.left_out), what.clone(), kind.of));
            }
            kinds.retain(|_, kind| kind.empty_at > now);
        }
        taken
    }

    /// Says what is left out, for ever. Nothing is before this is called.
    pub async fn say(&self) {
        self.spoken.store(true, Relaxed);
        loop {
            // A server that says nothing sleeps.
            if self.kinds.lock().as_ref().is_none_or(HashMap::is_empty) {
                self.said.notified().await;
            }
            tokio::time::sleep(SAID_EVERY).await;
            for (lines, Of { app, status, reason }, of) in self.take(Instant::now()) {
                let reason = Some(reason).filter(|reason| !reason.is_empty());
                let app = Some(app).filter(|app| !app.is_empty());
                let status = Some(status).filter(|status| *status != 0);
                let place = format!("{}:{}", of.file().unwrap_or_default(), of.line().unwrap_or_default());
                tracing::warn!(
                    app,
                    status,
                    reason,
                    lines,
                    place,
                    "lines of this kind were left out: {RATE} a second are written, and {BURST} at once"
                );
            }
        }
    }

    /// Lines left out since the start.
    pub fn left_out(&self) -> u64 {
        self.left_out.load(Relaxed)
    }
}

/// The layer through which all events pass first. It is no filter of another layer: those do not bear that one says no to an event whose
/// place in the code they have admitted (tracing-subscriber 0.3.23).
pub struct Sparing(pub &'static Floods);

impl<S: Subscriber> Layer<S> for Sparing {
    fn event_enabled(&self, event: &Event<'_>, _cx: Context<'_, S>) -> bool {
        let of = event.metadata();
        if !self.0.spoken.load(Relaxed) || of.target() == "php" || *of.level() > Level::INFO {
            return true;
        }
        let mut what = Of::default();
        event.record(&mut what);
        self.0.admits(of, what, Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use tracing::{Callsite, callsite::DefaultCallsite, field::FieldSet, metadata::Kind};

    use super::*;

    fn place() -> &'static Metadata<'static> {
        static PLACE: DefaultCallsite = {
            static META: Metadata<'static> = Metadata::new(
                "place",
                "test",
                Level::ERROR,
                Some("place.rs"),
                Some(1),
                None,
                FieldSet::new(&[], tracing::callsite::Identifier(&PLACE)),
                Kind::EVENT,
            );
            DefaultCallsite::new(&META)
        };
        PLACE.metadata()
    }

    #[test]
    fn so_many_at_once_then_so_many_a_second_and_each_kind_for_itself() {
        let (floods, start) = (Floods::new(), Instant::now());
        let of = |app: &str, status| Of { app: app.into(), status, reason: "full".into() };
        let at = |ms: u64, app| floods.admits(place(), of(app, 503), start + Duration::from_millis(ms));
        assert_eq!((0..1000).filter(|_| at(0, "a")).count(), BURST as usize);
        assert!(at(0, "b"), "another application");
        assert!(floods.admits(place(), of("a", 502), start), "another kind of trouble");
        let slow = Of { reason: "slow".into(), ..of("a", 503) };
        assert!(floods.admits(place(), slow, start), "the same status for another reason");
        assert_eq!((0..10_000).filter(|ms| at(*ms, "a")).count(), RATE as usize * 10 - 1);
        let taken = floods.take(start + Duration::from_secs(10));
        let taken: Vec<_> = taken.iter().map(|(lines, what, _)| (*lines, what.clone())).collect();
        assert_eq!(taken, [(800 + 9801, of("a", 503))]);
        assert_eq!(floods.left_out(), 10_601);
        assert!(floods.take(start + Duration::from_secs(60)).is_empty());
        assert!(floods.kinds.lock().as_ref().unwrap().is_empty(), "nothing is kept");
        assert_eq!((60_000..60_200).filter(|_| at(60_000, "a")).count(), BURST as usize);
    }
}
