//! Whether a front still moves: it is asked for a sign of life, and one that gives none is to be replaced.
//!
//! Silence is counted in turns of the master, not in time. A machine that was suspended, a virtual machine that was paused and a cgroup that was
//! frozen stop the master as well, whatever the clock says afterwards; that is one turn of silence, and the front has all the others left in
//! which to answer. Nor does a turn count as far as the front waited for a processor in it, as on a machine that has too much to do: that one is
//! slow, not stuck, and its successor would be no quicker.

use std::time::{Duration, Instant};

/// Between an answer and the next question.
const REST: Duration = Duration::from_secs(5);
/// The same at most, once nobody has been connected: each answer that says so doubles it. There is nobody whom a stuck front would keep waiting,
/// and a server that nobody asks for anything is to sleep.
const LONGEST_REST: Duration = Duration::from_secs(60);
/// How long a turn is at least.
const TURN: Duration = Duration::from_secs(1);
/// Turns of silence of one that was stopped by a signal (SIGSTOP), which only a signal can set going again.
const STOPPED: u32 = 5;
/// Turns of silence of one that serves. More than a machine makes it wait that swaps, or a disk on which it reads its own program.
const SERVING: u32 = 20;
/// The same before it has served: it makes the shared memory of each application, of which there may be thousands.
const BOOTING: u32 = 120;

/// Thousandths that a turn counts at least: one that serves is given up after 400 turns, whatever it waits for.
const LEAST: u32 = 50;

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub enum Beat {
    /// Nothing yet.
    Wait,
    /// The front is to be asked.
    Ask,
    /// It has not answered for so long that it is to be killed.
    Silent,
}

/// How a front stands.
#[derive(Debug, Clone, Copy)]
pub enum Bearing {
    /// It has not served yet.
    Booting,
    /// It serves.
    Serving,
    /// A signal has stopped it.
    Stopped,
}

/// The pulse of one front.
#[derive(Debug)]
pub struct Pulse {
    /// The next question, or the end of the turn.
    due: Instant,
    /// Between its last answer and the next question.
    rest: Duration,
    /// Thousandths of a turn without an answer, once one has been asked for.
    silent: Option<u32>,
    /// When it was looked at last, and for how long it had waited for a processor until then, in all.
    looked: (Instant, Option<Duration>),
}

impl Pulse {
    pub fn new(now: Instant) -> Pulse {
        Pulse { due: after(now, REST), rest: REST, silent: None, looked: (now, None) }
    }

    /// When to look again.
    pub fn due(&self) -> Instant {
        self.due
    }

    /// It has given a sign of life. `alone`: and nobody is connected to it.
    pub fn heard(&mut self, now: Instant, alone: bool) {
        let rest = if alone { self.rest.saturating_mul(2).min(LONGEST_REST) } else { REST };
        *self = Pulse { due: after(now, rest), rest, ..Pulse::new(now) };
    }

    /// Looks at it. `waited` says for how long it has waited for a processor since it was started, where that is known.
    pub fn look(&mut self, now: Instant, bearing: Bearing, waited: Option<Duration>) -> Beat {
        // A stop is known at once, by SIGCHLD.
        let at_once = self.silent.is_none() && matches!(bearing, Bearing::Stopped);
        if now < self.due && !at_once {
            return Beat::Wait;
        }
        // From now, not from when it was due: what came between was no turn of this process.
        self.due = after(now, TURN);
        let turn = now.saturating_duration_since(self.looked.0);
        let waiting =
            waited.zip(self.looked.1).map_or(Duration::ZERO, |(now, then)| now.saturating_sub(then));
        self.looked = (now, waited);
        let silent = self.silent.map_or(0, |turns| turns.saturating_add(share_not_waited(turn, waiting)));
        let first = self.silent.replace(silent).is_none();
        let limit = match bearing {
            Bearing::Booting => BOOTING,
            Bearing::Serving => SERVING,
            Bearing::Stopped => STOPPED,
        };
        match silent {
            _ if first => Beat::Ask,
            turns if turns >= limit * 1000 => Beat::Silent,
            _ => Beat::Wait,
        }
    }
}

/// What of a turn it did not wait for a processor in, in thousandths; `LEAST` if that is more, for a wait to have an end.
fn share_not_waited(turn: Duration, waiting: Duration) -> u32 {
    let waited = waiting.as_millis().saturating_mul(1000).checked_div(turn.as_millis()).unwrap_or(0);
    (1000 - u32::try_from(waited).unwrap_or(1000).min(1000)).max(LEAST)
}

fn after(now: Instant, time: Duration) -> Instant {
    now.checked_add(time).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks once in each of these seconds until it is given up.
    fn silent_after(
        pulse: &mut Pulse,
        start: Instant,
        bearing: Bearing,
        seconds: impl Iterator<Item = u64>,
    ) -> Option<u64> {
        seconds
            .into_iter()
            .find(|second| pulse.look(start + Duration::from_secs(*second), bearing, None) == Beat::Silent)
    }

    #[test]
    fn one_that_answers_is_asked_again_and_never_given_up() {
        let start = Instant::now();
        let mut pulse = Pulse::new(start);
        let mut asked = 0;
        for second in 0..1000 {
            let now = start + Duration::from_secs(second);
            match pulse.look(now, Bearing::Serving, None) {
                Beat::Ask => {
                    asked += 1;
                    pulse.heard(now, false);
                }
                beat => assert_eq!(beat, Beat::Wait),
            }
        }
        assert!((190..=200).contains(&asked), "{asked}");
    }

    #[test]
    fn one_to_which_nobody_is_connected_is_asked_less_often_until_somebody_is() {
        let start = Instant::now();
        let mut pulse = Pulse::new(start);
        let asked = |pulse: &mut Pulse, seconds: std::ops::Range<u64>, alone| {
            let mut asked = Vec::new();
            for second in seconds {
                let now = start + Duration::from_secs(second);
                if pulse.look(now, Bearing::Serving, None) == Beat::Ask {
                    pulse.heard(now, alone);
                    asked.push(second);
                }
            }
            asked
        };
        assert_eq!(asked(&mut pulse, 0..200, true), [5, 15, 35, 75, 135, 195]);
        assert_eq!(asked(&mut pulse, 200..271, false), [255, 260, 265, 270]);
    }

    #[test]
    fn one_that_is_silent_is_given_up_the_stopped_one_sooner_the_booting_one_later() {
        let start = Instant::now();
        let given_up = |bearing| silent_after(&mut Pulse::new(start), start, bearing, 0..1000);
        assert_eq!(given_up(Bearing::Stopped), Some(5));
        assert_eq!(given_up(Bearing::Serving), Some(25));
        assert_eq!(given_up(Bearing::Booting), Some(125));
    }

    #[test]
    fn a_jump_of_the_clock_is_one_turn() {
        let start = Instant::now();
        let mut pulse = Pulse::new(start);
        // Suspended for a day between two looks, three times; it would have answered.
        let seconds = (0..8).chain(86_400..86_404).chain(172_800..172_804).chain(259_200..259_208);
        assert_eq!(silent_after(&mut pulse, start, Bearing::Serving, seconds), None);
        pulse.heard(start + Duration::from_secs(259_210), false);
        assert_eq!(pulse.look(start + Duration::from_secs(259_211), Bearing::Serving, None), Beat::Wait);
    }

    #[test]
    fn a_turn_in_which_it_waits_for_a_processor_counts_for_the_rest_of_it() {
        let start = Instant::now();
        let given_up = |waits_a_second: u64| {
            let mut pulse = Pulse::new(start);
            (0..1000u64).find(|second| {
                let waited = Duration::from_millis(waits_a_second * second);
                pulse.look(start + Duration::from_secs(*second), Bearing::Serving, Some(waited))
                    == Beat::Silent
            })
        };
        assert_eq!(given_up(0), Some(25));
        // Of each second it has 200 ms without a wait: it is stuck after 20 s of those.
        assert_eq!(given_up(800), Some(105));
        // It has no processor at all; or the kernel says more than there was.
        assert_eq!((given_up(1000), given_up(5000)), (Some(405), Some(405)));
    }
}
