//! What the host and its workers write to standard output and error: line by line into the log, the last lines kept for
//! reports of a failed boot.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use hayate_ring::layout::{HY_LOG_ERROR, HY_LOG_OWN, HY_LOG_RECORD, HY_LOG_UNIT};
use tokio::{io::AsyncReadExt, net::unix::pipe::Receiver};
use tracing::Level;

/// A longer line is cut into several.
const LONGEST_LINE: usize = 16 << 10;
const TAIL_LINES: usize = 20;

/// The last lines, shared with whoever reports them.
#[derive(Clone, Default)]
pub(crate) struct Tail(Arc<Mutex<VecDeque<String>>>);

impl Tail {
    fn push(&self, line: String) {
        let mut lines = self.0.lock().expect("no panic while it is held");
        if lines.len() == TAIL_LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    /// The last lines, oldest first.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.lock().expect("no panic while it is held").iter().cloned().collect()
    }
}

/// Reads until every process that holds the other end is gone.
pub(crate) async fn read(app: Arc<str>, mut pipe: Receiver, tail: Tail) {
    let mut pending = Vec::with_capacity(4096);
    loop {
        let n = pipe.read_buf(&mut pending).await.unwrap_or(0);
        let mut start = 0;
        while let Some(len) = pending[start..].iter().position(|&b| b == b'\n') {
            line(&app, &pending[start..start + len], &tail);
            start += len + 1;
        }
        pending.drain(..start);
        if pending.len() >= LONGEST_LINE || (n == 0 && !pending.is_empty()) {
            line(&app, &pending, &tail);
            pending.clear();
        }
        if n == 0 {
            return;
        }
    }
}

/// `(request id, text)` of a line; see HY_LOG_RECORD in host/layout.h.
fn split(line: &[u8]) -> (Option<String>, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if let Some(rest) = line.strip_prefix(&[HY_LOG_RECORD])
        && let Some(at) = rest.iter().position(|&b| b == HY_LOG_UNIT)
    {
        return (Some(text(&rest[..at])), text(&rest[at + 1..]));
    }
    (None, text(line))
}

fn line(app: &str, line: &[u8], tail: &Tail) {
    let (request, text) = split(line);
    let text = text.trim_end();
    if text.is_empty() {
        return;
    }
    let request = request.as_deref();
    match level(text) {
        Level::ERROR => tracing::error!(target: "php", app, request, "{text}"),
        Level::WARN => tracing::warn!(target: "php", app, request, "{text}"),
        _ => tracing::info!(target: "php", app, request, "{text}"),
    }
    tail.push(text.to_owned());
}

/// By the words with which the host begins its own lines, and PHP its messages (main/main.c, php_error_cb).
fn level(text: &str) -> Level {
    let c_text = |text: &'static [u8]| std::str::from_utf8(&text[..text.len() - 1]).expect("ASCII");
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
        assert_eq!(split(b"\x1eab12\x1fPHP Warning:  x"), (Some("ab12".into()), "PHP Warning:  x".into()));
        assert_eq!(split(b"\x1eno unit separator"), (None, "\x1eno unit separator".into()));
        assert_eq!(split(b"plain"), (None, "plain".into()));
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
