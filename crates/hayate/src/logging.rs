//! Hayate's own log: standard error, for people or as JSON. Whoever logs is never made to wait; see [`LogWriter`].

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    io::{self, IsTerminal, Write},
    panic,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use hayate_front::LogWriter;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing_subscriber::{Layer, filter::LevelFilter, fmt, layer::SubscriberExt, util::SubscriberInitExt};

use crate::{
    config::{LogFormat, LogLevel},
    log_floods::{Floods, Sparing},
    terminal,
};

static WRITER: OnceLock<LogWriter> = OnceLock::new();
static FLOODS: Floods = Floods::new();
/// Lines that were lost, or cut, where there was no thread to write them.
static UNWRITTEN: AtomicU64 = AtomicU64::new(0);

/// How long the end waits for a pipe that nobody reads.
const PATIENCE: Duration = Duration::from_secs(2);

/// Sets the log up. To be called once; an error when its thread cannot be started yet: until it can, whoever logs writes by itself.
pub fn init(level: LogLevel, format: LogFormat) -> io::Result<()> {
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    hayate_pool::set_log_backlog(|| WRITER.get().map_or(0, LogWriter::waiting));
    let is_json = matches!(format, LogFormat::Json);
    let layer = fmt::layer().with_writer(move || Lines { is_json }).with_ansi(io::stderr().is_terminal());
    let layer = match format {
        LogFormat::Compact => layer.compact().boxed(),
        LogFormat::Json => layer.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry().with(layer).with(level).with(Sparing(&FLOODS)).init();
    panic::set_hook(Box::new(|panic| {
        let what = panic.payload();
        let what = what.downcast_ref::<&str>().copied().or(what.downcast_ref::<String>().map(String::as_str));
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let trace = Backtrace::capture();
        let trace = (trace.status() == BacktraceStatus::Captured).then(|| trace.to_string());
        tracing::error!(place, trace, "a fault of Hayate's own: {}", what.unwrap_or("a panic without words"));
    }));
    writer().map(drop)
}

fn writer() -> io::Result<&'static LogWriter> {
    if WRITER.get().is_none() {
        // Two at a time are one too many, which is dropped.
        let _ = WRITER.set(LogWriter::stderr()?);
    }
    WRITER.get().ok_or_else(|| io::Error::other("the log has no writer"))
}

fn write(text: Vec<u8>) {
    match writer() {
        Ok(writer) => writer.write(text, 1),
        Err(_) => write_at_once(&text),
    }
}

/// What can be written without waiting, of a pipe that somebody reads: there is no thread that could wait. The rest is lost.
fn write_at_once(text: &[u8]) {
    let stderr = io::stderr();
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let ready = poll(&mut [PollFd::new(&stderr, PollFlags::OUT)], Some(&now)).is_ok_and(|ready| ready > 0);
    // A pipe that takes anything takes so much.
    let (text, rest) = text.split_at(text.len().min(libc::PIPE_BUF));
    if !ready || stderr.lock().write_all(text).is_err() || !rest.is_empty() {
        UNWRITTEN.fetch_add(1, Relaxed);
    }
}

/// Says something to people, on standard error, as it stands.
pub fn print(text: &str) {
    match WRITER.get() {
        Some(writer) => writer.write(text.as_bytes().to_vec(), 1),
        // Where standard error cannot be written either, there is nobody to be told.
        None => drop(io::stderr().lock().write_all(text.as_bytes())),
    }
}

/// Waits until the log is written, for a short time at most.
pub async fn finish() {
    if let Some(writer) = WRITER.get() {
        writer.written(PATIENCE).await;
    }
}

/// The same for a process without an event loop.
pub fn finish_blocking() {
    // Without a runtime there is no clock to wait by; the last lines may be lost then.
    if let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_time().build() {
        runtime.block_on(finish());
    }
}

/// What [`Floods`] leaves out, to be said now and then for as long as the process serves.
pub fn floods() -> &'static Floods {
    &FLOODS
}

/// Lines of the log that were lost.
pub fn lost() -> u64 {
    UNWRITTEN.load(Relaxed) + WRITER.get().map_or(0, LogWriter::lost)
}

/// Each event comes as a whole. Its lines after the first are indented: whatever a script logs, none passes for an event of its own.
struct Lines {
    is_json: bool,
}

fn indented(event: &[u8]) -> Vec<u8> {
    let mut lines = event.strip_suffix(b"\n").unwrap_or(event).split(|byte| *byte == b'\n');
    let mut text = lines.next().unwrap_or_default().to_vec();
    for line in lines {
        text.extend(b"\n    ");
        text.extend(line);
    }
    // What a terminal would write over the line's beginning.
    text.retain(|byte| *byte != b'\r');
    text.push(b'\n');
    text
}

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match std::str::from_utf8(line) {
            Ok(text) if self.is_json => write(indented(terminal::json(text).as_bytes())),
            _ => write(indented(line)),
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_line_of_an_event_is_at_the_margin() {
        assert_eq!(indented(b"INFO one\n"), b"INFO one\n");
        assert_eq!(
            indented(b"INFO one\nERROR forged\r\n\rlast\n"),
            b"INFO one\n    ERROR forged\n    last\n"
        );
        assert_eq!(indented(b""), b"\n");
    }
}
