//! The last line of a terminal, which says what is being done and how long all may still take. What else is said takes its
//! place. Without a terminal there is no such line.

use std::{
    io::{IsTerminal, Write},
    sync::Mutex,
    time::{Duration, Instant},
};

use super::number::duration;

static LINE: Mutex<Option<Line>> = Mutex::new(None);

struct Line {
    text: String,
    /// When all may be over.
    end: Instant,
    shown: Instant,
}

/// From now on the line says this, with the seconds that are left.
pub fn working(text: &str, left: f64) {
    if !std::io::stderr().is_terminal() {
        return;
    }
    let now = Instant::now();
    let line = Line { text: text.to_owned(), end: now + Duration::from_secs_f64(left.max(0.0)), shown: now };
    line.show();
    *lock() = Some(line);
}

/// To be called now and then: the time goes on.
pub fn tick() {
    if let Some(line) = &mut *lock()
        && line.shown.elapsed() >= Duration::from_secs(1)
    {
        line.shown = Instant::now();
        line.show();
    }
}

/// Takes the line away.
pub fn clear() {
    if lock().take().is_some() {
        wipe();
    }
}

/// Says something that stays, on standard error.
pub fn say(text: &str) {
    let line = lock();
    if line.is_some() {
        wipe();
    }
    tell(&format!("{text}\n"));
    if let Some(line) = &*line {
        line.show();
    }
}

impl Line {
    fn show(&self) {
        let left = self.end.saturating_duration_since(Instant::now()).as_secs_f64().round();
        let left =
            if left < 1.0 { "nearly done".to_owned() } else { format!("about {} left", duration(left)) };
        tell(&format!("\r\x1b[K{}, {left}", self.text));
    }
}

fn wipe() {
    tell("\r\x1b[K");
}

/// Whoever reads standard error may have gone, and then there is nobody to be told.
fn tell(text: &str) {
    let mut out = std::io::stderr().lock();
    drop(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
}

fn lock() -> std::sync::MutexGuard<'static, Option<Line>> {
    LINE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
