//! What the host and its workers write to standard output and error: record by record into the log, the last lines kept
//! for reports of a failed boot.
//!
//! A record of PHP's own log is one event of one level, with all its lines (a stack trace). What a script writes to
//! standard error by itself is an event for each line.
//!
//! What is over the application's limit (`log_limit.rs`) is dropped, and read slowly, so that whoever writes it waits.

use std::{
    collections::VecDeque,
    ffi::CStr,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use hayate_panics::caught;
use hayate_ring::layout::{
    HY_LOG_ERROR, HY_LOG_LINE_END, HY_LOG_MORE, HY_LOG_OWN, HY_LOG_RECORD, HY_LOG_UNIT,
};
use tokio::{
    io::AsyncReadExt,
    net::unix::pipe::Receiver,
    time::{Instant, sleep},
};
use tracing::Level;

use crate::log_limit::Limit;

/// A longer line is cut into several.
const LONGEST_LINE: usize = 16 << 10;
const TAIL_LINES: usize = 20;
/// A longer record is cut into several.
const LONGEST_RECORD: usize = 128 << 10;
/// Records that wait for their other parts; of more, the oldest is taken as it is (its worker died, most likely).
const UNFINISHED: usize = 32;
/// Bytes that are taken at once, and how long it takes to the next ones while the application is over its limit: 6 MB a second.
const READ: usize = 64 << 10;
const SLOWED: Duration = Duration::from_millis(10);

/// Whether a terminal would do something else with it than show it: control characters, and those by which what is written from right to
/// left changes the order of others (Unicode's bidirectional algorithm, UAX 9, explicit formatting).
pub fn is_acted_upon(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Words that PHP code has chosen as they may be shown in a terminal, of root perhaps: of what a terminal acts upon only the ends of lines
/// and tabs.
pub fn shown(text: &str) -> String {
    let shown = |c: char| if is_acted_upon(c) && !matches!(c, '\n' | '\t') { '?' } else { c };
    text.chars().map(shown).collect()
}

/// The last lines, shared with whoever reports them.
#[derive(Clone, Default)]
pub(crate) struct Tail(Arc<Mutex<VecDeque<String>>>);

impl Tail {
    fn locked(&self) -> MutexGuard<'_, VecDeque<String>> {
        // Lines are whole whatever happened meanwhile.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, line: String) {
        let mut lines = self.locked();
        if lines.len() == TAIL_LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    /// The last lines, oldest first.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.locked().iter().cloned().collect()
    }
}

/// Reads until every process that holds the other end is gone. A panic costs what was being read: without a reader, whoever writes gets
/// SIGPIPE.
pub(crate) async fn read(app: Arc<str>, mut pipe: Receiver, tail: Tail) {
    let mut limit = Limit::new(Arc::clone(&app), Instant::now());
    while caught(read_on(&app, &mut pipe, &tail, &mut limit)).await.is_err() {
        sleep(SLOWED).await;
    }
}

async fn read_on(app: &str, pipe: &mut Receiver, tail: &Tail, limit: &mut Limit) {
    let mut pending = Vec::with_capacity(4096);
    let mut parts = Parts::default();
    loop {
        let n = (&mut *pipe).take(READ as u64).read_buf(&mut pending).await.unwrap_or(0);
        let now = Instant::now();
        let mut over = false;
        let mut line = |line: &[u8]| {
            if let Some(record) = parts.add(line) {
                over |= !log(app, &record, tail, limit, now);
            }
        };
        let mut rest = &pending[..];
        while let Some((whole, after)) = rest.iter().position(|&b| b == b'\n').map(|end| rest.split_at(end)) {
            line(whole);
            rest = after.get(1..).unwrap_or_default();
        }
        let begun = rest.len();
        pending.drain(..pending.len() - begun);
        if pending.len() >= LONGEST_LINE || (n == 0 && !pending.is_empty()) {
            line(&pending);
            pending.clear();
        }
        if n == 0 {
            for record in parts.waiting.drain(..) {
                log(app, &record, tail, limit, now);
            }
            say_dropped(app, limit.take_last_dropped());
            return;
        }
        if over {
            say_dropped(app, limit.take_dropped(now, false));
            sleep(SLOWED).await;
        }
    }
}

/// Logs a record; `false` when the application is over its limit.
fn log(app: &str, record: &Record, tail: &Tail, limit: &mut Limit, now: Instant) -> bool {
    let lines = record.text.iter().filter(|byte| **byte == HY_LOG_LINE_END).count() as u64;
    if !limit.admits(now, record.text.len(), lines.saturating_add(1)) {
        return false;
    }
    say_dropped(app, limit.take_dropped(now, true));
    write(app, record, tail);
    true
}

fn say_dropped(app: &str, lines: Option<u64>) {
    if let Some(lines) = lines {
        tracing::warn!(
            app,
            lines,
            "lines of this application's log were dropped, and what writes them waits: it logs more than the server can take. Log less \
             (error_reporting, log_errors), or to a file of its own (error_log)"
        );
    }
}

/// What belongs together; see HY_LOG_RECORD in host/layout.h.
#[derive(Debug, PartialEq, Eq)]
struct Record {
    /// The request's id.
    request: Option<Vec<u8>>,
    text: Vec<u8>,
}

/// Records of which parts are still to come, oldest first; one at most for each request.
#[derive(Default)]
struct Parts {
    waiting: VecDeque<Record>,
}

impl Parts {
    /// Takes a line. Returns what is complete by it: nothing, the record that it ends, or one that waited too long.
    fn add(&mut self, line: &[u8]) -> Option<Record> {
        let (request, part) = split(line);
        let (part, more) = match part.strip_suffix(&[HY_LOG_MORE]) {
            Some(part) => (part, true),
            None => (part, false),
        };
        let before = self.waiting.iter().position(|record| record.request.as_deref() == request);
        let mut record = match before.and_then(|at| self.waiting.remove(at)) {
            Some(record) => record,
            None => Record { request: request.map(<[u8]>::to_vec), text: Vec::new() },
        };
        record.text.extend(part);
        if !more {
            return Some(record);
        }
        if record.text.len() >= LONGEST_RECORD {
            let request = record.request.clone();
            let whole = mem::replace(&mut record, Record { request, text: Vec::new() });
            self.waiting.push_back(record);
            return Some(whole);
        }
        self.waiting.push_back(record);
        if self.waiting.len() > UNFINISHED { self.waiting.pop_front() } else { None }
    }
}

/// `(request id, text)` of a line.
fn split(line: &[u8]) -> (Option<&[u8]>, &[u8]) {
    if let Some(rest) = line.strip_prefix(&[HY_LOG_RECORD])
        && let Some(at) = rest.iter().position(|&b| b == HY_LOG_UNIT)
    {
        let (request, text) = rest.split_at(at);
        return (Some(request), text.get(1..).unwrap_or_default());
    }
    (None, line)
}

fn write(app: &str, record: &Record, tail: &Tail) {
    let text = String::from_utf8_lossy(&record.text).replace(HY_LOG_LINE_END as char, "\n");
    let text = text.trim_end();
    if text.is_empty() {
        return;
    }
    let request = record.request.as_deref().map(String::from_utf8_lossy);
    let request = request.as_deref();
    match level(text.lines().next().unwrap_or_default()) {
        Level::ERROR => tracing::error!(target: "php", app, request, "{text}"),
        Level::WARN => tracing::warn!(target: "php", app, request, "{text}"),
        _ => tracing::info!(target: "php", app, request, "{text}"),
    }
    text.lines().for_each(|line| tail.push(shown(line)));
}

/// By the words with which the host begins its own lines, and PHP its messages (main/main.c, php_error_cb).
fn level(text: &str) -> Level {
    // The constants are C strings of ASCII.
    let c_text = |text: &'static [u8]| {
        let text = CStr::from_bytes_until_nul(text).unwrap_or_default();
        text.to_str().unwrap_or_default()
    };
    let says = |word: &str| text.contains(word);
    match text.strip_prefix(c_text(HY_LOG_OWN)) {
        Some(rest) if rest.starts_with(c_text(HY_LOG_ERROR)) => Level::ERROR,
        Some(_) => Level::WARN,
        None if says("PHP Fatal error:")
            || says("PHP Parse error:")
            || says("PHP Recoverable fatal error:") =>
        {
            Level::ERROR
        }
        None if says("PHP Warning:") => Level::WARN,
        None => Level::INFO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tagged_line_names_its_request() {
        assert_eq!(split(b"\x1eab12\x1fPHP Warning:  x"), (Some(&b"ab12"[..]), &b"PHP Warning:  x"[..]));
        assert_eq!(split(b"\x1eno unit separator"), (None, &b"\x1eno unit separator"[..]));
        assert_eq!(split(b"plain"), (None, &b"plain"[..]));
    }

    #[test]
    fn parts_of_a_record_are_one_though_others_come_between() {
        let record = |request: Option<&str>, text: &str| {
            Some(Record { request: request.map(|id| id.as_bytes().to_vec()), text: text.into() })
        };
        let mut parts = Parts::default();
        assert_eq!(parts.add(b"\x1ea\x1fone \x1c"), None);
        assert_eq!(parts.add(b"\x1eb\x1fother"), record(Some("b"), "other"));
        assert_eq!(parts.add(b"of nobody \x1c"), None);
        assert_eq!(parts.add(b"\x1ea\x1ftwo \x1c"), None);
        assert_eq!(parts.add(b"\x1ea\x1fthree"), record(Some("a"), "one two three"));
        assert_eq!(parts.add(b"at all"), record(None, "of nobody at all"));
        assert!(parts.waiting.is_empty());
    }

    #[test]
    fn records_that_never_end_cost_little() {
        let mut parts = Parts::default();
        let come = (0..10_000).filter_map(|n| parts.add(format!("\x1e{n}\x1fx\x1c").as_bytes())).count();
        assert_eq!((come, parts.waiting.len()), (10_000 - UNFINISHED, UNFINISHED));
        let mut parts = Parts::default();
        let part = [&[b'x'; 4000][..], &[HY_LOG_MORE]].concat();
        let longest = (0..200).filter_map(|_| parts.add(&part)).map(|record| record.text.len()).max();
        assert!(longest.is_some_and(|len| len < LONGEST_RECORD + part.len()), "{longest:?}");
    }

    #[test]
    fn how_bad_a_line_is() {
        let levels = [
            ("hayate-php: error: The response's headers are larger than 1 bytes", Level::ERROR),
            ("hayate-php: Rewind is not possible here", Level::WARN),
            ("PHP Fatal error:  Uncaught Exception", Level::ERROR),
            ("[21-Nov-2026 10:00:00 UTC] PHP Warning:  Undefined variable $a", Level::WARN),
            ("PHP Deprecated:  x", Level::INFO),
            ("what error_log() was given", Level::INFO),
        ];
        for (text, expected) in levels {
            assert_eq!(level(text), expected, "{text}");
        }
    }

    /// A log that one kind of line is too much for.
    struct Panics;

    impl tracing::Subscriber for Panics {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }
        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
        fn event(&self, event: &tracing::Event<'_>) {
            assert_ne!(*event.metadata().level(), Level::ERROR, "this panic is part of the test");
        }
        fn enter(&self, _: &tracing::span::Id) {}
        fn exit(&self, _: &tracing::span::Id) {}
    }

    #[tokio::test]
    async fn a_panic_costs_lines_and_not_the_reader() {
        use std::io::Write;
        let _panics = tracing::subscriber::set_default(Panics);
        let (reader, mut writer) = std::io::pipe().unwrap();
        let tail = Tail::default();
        let reading =
            tokio::spawn(read("app".into(), Receiver::from_owned_fd(reader.into()).unwrap(), tail.clone()));
        writeln!(writer, "one\nPHP Fatal error:  two").unwrap();
        while tail.lines().is_empty() {
            tokio::task::yield_now().await;
        }
        writeln!(writer, "three").unwrap();
        drop(writer);
        reading.await.unwrap();
        assert_eq!(tail.lines(), ["one", "three"]);
    }

    #[tokio::test]
    async fn lines_are_cut_out_of_the_stream_and_the_last_ones_kept() {
        use std::io::Write;
        let (reader, mut writer) = std::io::pipe().unwrap();
        let tail = Tail::default();
        let reading =
            tokio::spawn(read("app".into(), Receiver::from_owned_fd(reader.into()).unwrap(), tail.clone()));
        for i in 0..30 {
            writeln!(writer, "line {i}").unwrap();
        }
        writer.write_all(b"\nno newline").unwrap();
        drop(writer);
        reading.await.unwrap();
        let lines = tail.lines();
        assert_eq!(lines.len(), TAIL_LINES);
        assert_eq!(lines.first().unwrap(), "line 11");
        assert_eq!(lines.last().unwrap(), "no newline");
    }
}
