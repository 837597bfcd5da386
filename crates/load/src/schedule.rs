//! The plan of an open loop: how many shots, and when each of them is due.
//!
//! A schedule is written as phases in a row, in the words of Yandex Tank:
//! `line(1, 1000, 60s) const(1000, 60s) step(100, 500, 100, 10s)`.
//!
//! Promises: the number of shots is known before the first one is sent; the time of a shot is a function of its number
//! alone, never decreases with it, and lies within its phase. Must never depend on what the server does.

use std::{fmt, time::Duration};

/// Shots a schedule may have: more than a day at a hundred million a second.
const MAX_SHOTS: u128 = 1 << 43;

/// A parsed schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    text: String,
    phases: Vec<Phase>,
}

/// A stretch of a schedule in which the rate is constant or changes evenly. A `step` is several of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phase {
    /// As it would be written: `line(1,1000,60s)`, `const(500,10s)`.
    pub text: String,
    from: Rate,
    to: Rate,
    /// Since the start of the schedule.
    pub start: Duration,
    /// Never zero.
    pub duration: Duration,
    /// Number of its first shot.
    pub first_shot: u64,
    /// Shots due in it; 0 for a pause, `const(0, 10s)`.
    pub shots: u64,
}

/// Millionths of a request per second. Whole numbers, so that `const(0.29, 100s)` is 29 shots and not 28.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rate(u64);

impl Rate {
    fn per_second(self) -> f64 {
        self.0 as f64 / 1e6
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.per_second())
    }
}

impl Phase {
    /// The rate at a moment of the phase, requests per second: `from + (to - from) · t / duration`.
    pub fn rate_at(&self, since_phase_start: Duration) -> f64 {
        let (from, to) = (self.from.per_second(), self.to.per_second());
        from + (to - from) * (since_phase_start.as_secs_f64() / self.duration.as_secs_f64()).clamp(0.0, 1.0)
    }

    /// When the shot with this number is due, since the start of the schedule. `shot` must be one of this phase.
    ///
    /// The rate is `r(t) = a + s·t` with `s = (b - a) / duration`; shot k of the phase is due when the integral of the
    /// rate reaches k: `a·t + s·t²/2 = k`. That is how Yandex Tank (`stepper/load_plan.py`, `Line.ts`) and Pandora
    /// (`core/schedule/line.go`, `lineDoAt`) define `line` and, with s = 0, `const`. It is solved here as
    /// `t = 2k / (a + √(a² + 2sk))`, the same root without their subtraction of nearly equal numbers, which also
    /// holds for s = 0.
    fn due(&self, shot: u64) -> Duration {
        let k = shot.saturating_sub(self.first_shot) as f64;
        if k == 0.0 {
            return self.start;
        }
        let (a, b) = (self.from.per_second(), self.to.per_second());
        let slope = (b - a) / self.duration.as_secs_f64();
        let root = (a * a + 2.0 * slope * k).max(0.0).sqrt();
        let since = Duration::try_from_secs_f64(2.0 * k / (a + root)).unwrap_or(self.duration);
        self.start + since.min(self.duration)
    }
}

/// Shots of a phase: the integral of its rate, `(a + b) / 2 · duration`, rounded down, as Yandex Tank and Pandora count.
fn shots(from: Rate, to: Rate, duration: Duration) -> u128 {
    (u128::from(from.0) + u128::from(to.0)) * duration.as_nanos() / (2 * 1_000_000 * 1_000_000_000)
}

impl Schedule {
    /// Reads a schedule: phases separated by white space (or a comma, or nothing).
    ///
    /// - `const(rate, duration)`: `rate` requests per second; `const(0, 10s)` is a pause.
    /// - `line(from, to, duration)`: the rate changes evenly; up or down.
    /// - `step(from, to, step, duration)`: constant at `from`, then changed by `step` every `duration`, up or down as `to`
    ///   lies, and last at `to` itself, also when `step` does not meet it (as Yandex Tank; Pandora leaves that last one out).
    ///
    /// Rates are decimal numbers to a millionth. Durations are numbers with `ms`, `s`, `m`, `h` or `d`, also in a row
    /// (`1h30m`); without a unit they are seconds.
    ///
    /// # Errors
    /// Names the offending place; so does a schedule without a single shot.
    pub fn parse(text: &str) -> Result<Self, ScheduleError> {
        Parser { text, at: 0 }.schedule()
    }

    /// The text it was made from.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The phases, in order, none of them empty in time; a `step` appears as the constant phases it consists of.
    pub fn phases(&self) -> &[Phase] {
        &self.phases
    }

    /// All shots of all phases.
    pub fn shots(&self) -> u64 {
        self.phases.last().map_or(0, |phase| phase.first_shot + phase.shots)
    }

    /// Time from the start to the end of the last phase.
    pub fn duration(&self) -> Duration {
        self.phases.last().map_or(Duration::ZERO, |phase| phase.start + phase.duration)
    }

    /// The planned rate at a moment, requests per second; 0 after the end.
    pub fn rate_at(&self, time: Duration) -> f64 {
        let phase =
            self.phases.iter().find(|phase| time >= phase.start && time < phase.start + phase.duration);
        phase.map_or(0.0, |phase| phase.rate_at(time - phase.start))
    }

    /// Walks through every `stride`-th shot from `first` on: one generator thread's share.
    pub fn walk(&self, first: u64, stride: u64) -> Walk<'_> {
        Walk { schedule: self, shot: first, stride: stride.max(1), phase: 0 }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A shot that is to be fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shot {
    /// Counted from 0 over the whole schedule.
    pub number: u64,
    /// Index of its phase.
    pub phase: usize,
    /// Since the start of the schedule.
    pub due: Duration,
}

/// Shots in order of time; see [`Schedule::walk`].
#[derive(Clone, Debug)]
pub struct Walk<'a> {
    schedule: &'a Schedule,
    shot: u64,
    stride: u64,
    phase: usize,
}

impl Iterator for Walk<'_> {
    type Item = Shot;

    fn next(&mut self) -> Option<Shot> {
        let phases = &self.schedule.phases;
        while self.shot >= phases.get(self.phase)?.first_shot + phases[self.phase].shots {
            self.phase += 1;
        }
        let shot = Shot { number: self.shot, phase: self.phase, due: phases[self.phase].due(self.shot) };
        self.shot += self.stride;
        Some(shot)
    }
}

/// Reads a time as schedules have them: `30s`, `500ms`, `1h30m`, and seconds without a unit.
///
/// # Errors
/// Names the offending place; more than 31 days is one.
pub fn parse_duration(text: &str) -> Result<Duration, ScheduleError> {
    let mut parser = Parser { text, at: 0 };
    let duration = parser.time()?;
    parser.skip_space();
    if parser.rest().is_empty() { Ok(duration) } else { Err(parser.unexpected("the end of the time")) }
}

/// What is wrong with a schedule, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ScheduleError {
    /// The whole schedule.
    pub text: String,
    /// Where the offending part begins, in bytes.
    pub offset: usize,
    /// Its length in bytes, at least 1; may lie behind the end of the text.
    pub length: usize,
    /// What is wrong, and what would be right.
    pub message: String,
}

/// The message, the schedule, and a line of carets below the offending place.
impl fmt::Display for ScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Columns are characters, not bytes; a tab or line break would move the carets.
        let shown: String = self.text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let before = self.text[..self.offset].chars().count();
        let end = (self.offset + self.length).min(self.text.len());
        let carets = self.text[self.offset..end].chars().count().max(1);
        writeln!(f, "{}", self.message)?;
        writeln!(f, "  {shown}")?;
        write!(f, "  {}{}", " ".repeat(before), "^".repeat(carets))
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

/// A number or name and where it stood.
struct Spanned<T> {
    value: T,
    offset: usize,
    length: usize,
}

impl<'a> Parser<'a> {
    fn schedule(mut self) -> Result<Schedule, ScheduleError> {
        let mut phases: Vec<Phase> = Vec::new();
        loop {
            self.skip_space();
            if !phases.is_empty() && self.eat(',') {
                self.skip_space();
            }
            if self.rest().is_empty() {
                break;
            }
            self.phase(&mut phases)?;
        }
        if phases.is_empty() {
            return Err(self.error(
                0,
                self.text.len(),
                "an empty schedule; write for example const(100, 60s)",
            ));
        }
        let schedule = Schedule { text: self.text.trim().to_owned(), phases };
        if schedule.shots() == 0 {
            return Err(self.error(
                0,
                self.text.len(),
                "a schedule without a single shot: raise a rate or a duration",
            ));
        }
        Ok(schedule)
    }

    fn phase(&mut self, phases: &mut Vec<Phase>) -> Result<(), ScheduleError> {
        let start = self.at;
        let name = self.name()?;
        match name.value {
            "const" => {
                self.open("const(rate, duration)")?;
                let rate = self.rate()?.value;
                self.comma("const(rate, duration)")?;
                let duration = self.duration()?;
                self.close("const(rate, duration)")?;
                self.push(phases, start, rate, rate, duration)
            }
            "line" => {
                self.open("line(from, to, duration)")?;
                let from = self.rate()?.value;
                self.comma("line(from, to, duration)")?;
                let to = self.rate()?.value;
                self.comma("line(from, to, duration)")?;
                let duration = self.duration()?;
                self.close("line(from, to, duration)")?;
                self.push(phases, start, from, to, duration)
            }
            "step" => {
                self.open("step(from, to, step, duration)")?;
                let from = self.rate()?.value;
                self.comma("step(from, to, step, duration)")?;
                let to = self.rate()?.value;
                self.comma("step(from, to, step, duration)")?;
                let step = self.rate()?;
                if step.value.0 == 0 {
                    return Err(self.error(step.offset, step.length, "a step of 0 never arrives"));
                }
                self.comma("step(from, to, step, duration)")?;
                let duration = self.duration()?;
                self.close("step(from, to, step, duration)")?;
                if from.0.abs_diff(to.0) / step.value.0 >= 10_000 {
                    return Err(self.error(
                        step.offset,
                        step.length,
                        "that makes more than 10,000 steps: take a larger step",
                    ));
                }
                for rate in stairs(from, to, step.value) {
                    self.push(phases, start, rate, rate, duration)?;
                }
                Ok(())
            }
            other => {
                let message = format!(
                    "unknown phase '{other}'; there are line(from, to, duration), const(rate, duration) and step(from, to, step, duration)"
                );
                Err(self.error(name.offset, name.length, message))
            }
        }
    }

    fn push(
        &self,
        phases: &mut Vec<Phase>,
        text_start: usize,
        from: Rate,
        to: Rate,
        duration: Duration,
    ) -> Result<(), ScheduleError> {
        let (start, first_shot) = phases
            .last()
            .map_or((Duration::ZERO, 0), |last| (last.start + last.duration, last.first_shot + last.shots));
        let shots = shots(from, to, duration);
        if u128::from(first_shot) + shots > MAX_SHOTS {
            return Err(self.error(
                text_start,
                self.at - text_start,
                "more shots than can be counted: shorten it, or lower the rate",
            ));
        }
        let seconds = format_duration(duration);
        let text = if from == to {
            format!("const({from},{seconds})")
        } else {
            format!("line({from},{to},{seconds})")
        };
        phases.push(Phase { text, from, to, start, duration, first_shot, shots: shots as u64 });
        Ok(())
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip_space(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    fn eat(&mut self, wanted: char) -> bool {
        let found = self.rest().starts_with(wanted);
        if found {
            self.at += wanted.len_utf8();
        }
        found
    }

    fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> Spanned<&'a str> {
        let offset = self.at;
        let rest = self.rest();
        let length = rest.find(|c| !wanted(c)).unwrap_or(rest.len());
        self.at += length;
        Spanned { value: &rest[..length], offset, length }
    }

    fn name(&mut self) -> Result<Spanned<&'a str>, ScheduleError> {
        let name = self.take_while(|c| c.is_alphanumeric() || c == '_' || c == '-');
        if name.length == 0 {
            return Err(self.unexpected("the name of a phase: line, const or step"));
        }
        Ok(name)
    }

    fn open(&mut self, form: &str) -> Result<(), ScheduleError> {
        self.punctuation('(', form)
    }

    fn comma(&mut self, form: &str) -> Result<(), ScheduleError> {
        self.punctuation(',', form)
    }

    fn close(&mut self, form: &str) -> Result<(), ScheduleError> {
        self.punctuation(')', form)
    }

    fn punctuation(&mut self, wanted: char, form: &str) -> Result<(), ScheduleError> {
        self.skip_space();
        if self.eat(wanted) {
            return Ok(());
        }
        Err(self.unexpected(&format!("'{wanted}' as in {form}")))
    }

    /// Digits with at most one point and six decimals, as millionths.
    fn millionths(&mut self, what: &str) -> Result<Spanned<u64>, ScheduleError> {
        self.skip_space();
        let number = self.take_while(|c| c.is_ascii_digit() || c == '.');
        if number.length == 0 {
            return Err(self.unexpected(what));
        }
        let (whole, fraction) = number.value.split_once('.').unwrap_or((number.value, ""));
        let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
        if (whole.is_empty() && fraction.is_empty()) || !digits(fraction) || fraction.len() > 6 {
            let message = format!("'{}' is not a decimal number with at most 6 decimals", number.value);
            return Err(self.error(number.offset, number.length, message));
        }
        format!("{whole}{fraction:0<6}")
            .parse()
            .ok()
            .filter(|&value: &u64| value <= 1_000_000_000_000_000)
            .map(|value| Spanned { value, offset: number.offset, length: number.length })
            .ok_or_else(|| self.error(number.offset, number.length, "too large a number: at most 1000000000"))
    }

    fn rate(&mut self) -> Result<Spanned<Rate>, ScheduleError> {
        let number = self.millionths("a rate in requests per second")?;
        Ok(Spanned { value: Rate(number.value), offset: number.offset, length: number.length })
    }

    fn duration(&mut self) -> Result<Duration, ScheduleError> {
        self.skip_space();
        let start = self.at;
        let total = self.time()?;
        if total.is_zero() {
            return Err(self.error(start, self.at - start, "a phase that takes no time"));
        }
        Ok(total)
    }

    /// Numbers with units in a row.
    fn time(&mut self) -> Result<Duration, ScheduleError> {
        self.skip_space();
        let start = self.at;
        let mut total = Duration::ZERO;
        loop {
            let number = self.millionths("a duration such as 60s")?;
            let unit = self.take_while(char::is_alphabetic);
            let nanoseconds: u64 = match unit.value {
                "ms" => 1_000_000,
                "" | "s" => 1_000_000_000,
                "m" | "min" => 60_000_000_000,
                "h" => 3_600_000_000_000,
                "d" => 86_400_000_000_000,
                other => {
                    let message = format!("'{other}' is not a unit of time; there are ms, s, m, h and d");
                    return Err(self.error(unit.offset, unit.length, message));
                }
            };
            let part = u128::from(number.value) * u128::from(nanoseconds) / 1_000_000;
            total = total.saturating_add(Duration::from_nanos(u64::try_from(part).unwrap_or(u64::MAX)));
            if !self.rest().starts_with(|c: char| c.is_ascii_digit()) {
                break;
            }
        }
        let length = self.at - start;
        if total > Duration::from_secs(31 * 86_400) {
            return Err(self.error(start, length, "longer than 31 days"));
        }
        Ok(total)
    }

    fn unexpected(&self, wanted: &str) -> ScheduleError {
        match self.rest().chars().next() {
            None => self.error(self.at, 1, format!("the schedule ends where there should be {wanted}")),
            Some(found) => {
                self.error(self.at, found.len_utf8(), format!("'{found}' where there should be {wanted}"))
            }
        }
    }

    fn error(&self, offset: usize, length: usize, message: impl Into<String>) -> ScheduleError {
        ScheduleError { text: self.text.to_owned(), offset, length: length.max(1), message: message.into() }
    }
}

/// The rates of a `step`, in order: `from`, then by `step` towards `to`, and `to` itself.
fn stairs(from: Rate, to: Rate, step: Rate) -> Vec<Rate> {
    let whole = from.0.abs_diff(to.0) / step.0;
    let mut rates: Vec<Rate> = (0..=whole)
        .map(|i| Rate(if to.0 >= from.0 { from.0 + i * step.0 } else { from.0 - i * step.0 }))
        .collect();
    if rates.last() != Some(&to) {
        rates.push(to);
    }
    rates
}

/// Seconds, as short as they are exact: `60s`, `0.25s`.
fn format_duration(duration: Duration) -> String {
    format!("{}s", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Schedule {
        Schedule::parse(text).unwrap_or_else(|error| panic!("{error}"))
    }

    fn times(text: &str) -> Vec<f64> {
        at(text).walk(0, 1).map(|shot| shot.due.as_secs_f64()).collect()
    }

    #[test]
    fn const_is_evenly_spaced() {
        assert_eq!(times("const(4, 1s)"), [0.0, 0.25, 0.5, 0.75]);
        assert_eq!(at("const(0.29, 100s)").shots(), 29, "no loss to binary fractions");
        assert_eq!(at("const(1000, 1m)").shots(), 60_000);
    }

    #[test]
    fn line_fires_when_the_integral_of_the_rate_reaches_the_shot() {
        // r(t) = t on 0..4: the integral is t²/2, so shot k is due at √(2k); there are 8.
        let expected: Vec<f64> = (0..8).map(|k| f64::from(2 * k).sqrt()).collect();
        let times = times("line(0, 4, 4s)");
        assert_eq!(times.len(), 8);
        assert!(times.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-8), "{times:?}");
        assert_eq!(at("line(1, 1000, 60s)").shots(), 30_030);
    }

    #[test]
    fn step_goes_up_or_down_and_ends_at_its_goal() {
        let texts = |text: &str| at(text).phases().iter().map(|phase| phase.text.clone()).collect::<Vec<_>>();
        assert_eq!(texts("step(100,300,100,10s)"), ["const(100,10s)", "const(200,10s)", "const(300,10s)"]);
        assert_eq!(texts("step(30, 10, 10, 500ms)"), ["const(30,0.5s)", "const(20,0.5s)", "const(10,0.5s)"]);
        assert_eq!(texts("step(1, 4, 2, 1)"), ["const(1,1s)", "const(3,1s)", "const(4,1s)"]);
    }

    #[test]
    fn phases_follow_one_another() {
        let schedule = at("const(2, 2s) const(0, 3s), line(2,0,1s)const(1,1s)");
        assert_eq!(schedule.duration(), Duration::from_secs(7));
        assert_eq!(schedule.shots(), 4 + 1 + 1);
        let due: Vec<_> = schedule.walk(0, 1).map(|shot| (shot.phase, shot.due.as_secs_f64())).collect();
        assert_eq!(due, [(0, 0.0), (0, 0.5), (0, 1.0), (0, 1.5), (2, 5.0), (3, 6.0)]);
        assert_eq!(schedule.rate_at(Duration::from_millis(5500)), 1.0);
        assert_eq!(schedule.rate_at(Duration::from_secs(3)), 0.0);
    }

    #[test]
    fn durations_add_up() {
        assert_eq!(at("const(1, 1h30m)").duration(), Duration::from_secs(5400));
        assert_eq!(at("const(1, 27h103m645)").duration(), Duration::from_secs(27 * 3600 + 103 * 60 + 645));
        assert_eq!(at("const(1, 1.5s)").duration(), Duration::from_millis(1500));
    }

    #[test]
    fn times_by_themselves() {
        assert_eq!(parse_duration("0"), Ok(Duration::ZERO));
        assert_eq!(parse_duration(" 1m30s "), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("10s x").expect_err("more").offset, 4);
        assert!(
            parse_duration("").is_err() && parse_duration("-1s").is_err() && parse_duration("40d").is_err()
        );
    }

    #[test]
    fn errors_point_at_the_offending_place() {
        for (text, marked, message) in [
            ("lin(1, 10, 5s)", "lin", "unknown phase 'lin'"),
            ("const(10, 5s) stp(1,2,3,4)", "stp", "unknown phase 'stp'"),
            ("const 10, 5s", "1", "'1' where there should be '('"),
            ("const(10; 5s)", ";", "';' where there should be ','"),
            ("const(-1, 5s)", "-", "a rate in requests per second"),
            ("const(1.2.3, 5s)", "1.2.3", "not a decimal number"),
            ("const(10, 5parsecs)", "parsecs", "not a unit of time"),
            ("const(10, 0s)", "0s", "takes no time"),
            ("step(1, 10, 0, 5s)", "0", "a step of 0"),
            ("step(1, 1000000, 1, 5s)", "1", "more than 10,000 steps"),
            ("line(1, 10)", ")", "')' where there should be ','"),
            ("const(1, 99d)", "99d", "longer than 31 days"),
            ("const(1000000000, 31d)", "const(1000000000, 31d)", "more shots"),
            ("const(9999999999, 1s)", "9999999999", "too large"),
            ("const(0, 10s)", "const(0, 10s)", "without a single shot"),
            ("❤(1)", "❤", "the name of a phase"),
        ] {
            let error = Schedule::parse(text).expect_err(text);
            assert_eq!(&text[error.offset..error.offset + error.length], marked, "{text}: {error}");
            assert!(error.message.contains(message), "{text}: {error}");
        }
        let error = Schedule::parse("const(10, 5s").expect_err("unclosed");
        assert_eq!(
            error.to_string(),
            "the schedule ends where there should be ')' as in const(rate, duration)\n  const(10, 5s\n              ^"
        );
        assert_eq!(
            Schedule::parse("  ").expect_err("empty").message.split(';').next(),
            Some("an empty schedule")
        );
    }
}
