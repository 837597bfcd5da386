//! The access log: one line per request, combined or JSON. Lines are gathered and handed to the writer's thread once a second, or when
//! there are many; at a reload, a reopening and the end whatever was gathered is written first. Nothing here waits for a disk.
//!
//! It promises lines of a few kilobytes whatever a client has sent: a header that HTTP/2 names by one byte would else cost a disk kilobytes. A
//! line is made by its own thread; the lock that all threads share is held for copying it.

use std::{
    borrow::Cow,
    cell::RefCell,
    io::{self, Write},
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

use parking_lot::{Mutex, MutexGuard};

use crate::{date, log_writer::LogWriter};

/// How a line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// As Apache and nginx call it.
    Combined,
    /// One JSON object a line.
    Json,
}

/// Where lines go. Clones share one buffer and one thread, which ends with the last of them.
#[derive(Clone, Default)]
pub struct AccessLog(Option<Arc<Inner>>);

struct Inner {
    format: Format,
    writer: LogWriter,
    gathered: Mutex<Gathered>,
}

#[derive(Default)]
struct Gathered {
    buffer: Vec<u8>,
    lines: u64,
}

/// Beyond this many gathered bytes they are handed over without waiting for the second to end.
const GATHER: usize = 64 << 10;
/// Bytes of a line that one thing the client has said may take, as it is written; then comes [`CUT`]. No more than one byte more of it is
/// kept until then, so that it shows that there was more.
const LONGEST: usize = 2 << 10;
/// Says that there was more.
const CUT: &[u8] = b"...";

thread_local! {
    /// Where a line is made.
    static LINE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl AccessLog {
    /// No log.
    pub fn off() -> AccessLog {
        AccessLog(None)
    }

    /// Appends to a file, made if needed. A file system that does not answer is an error after a while.
    pub async fn file(path: &Path, format: Format) -> io::Result<AccessLog> {
        AccessLog::new(LogWriter::file(path).await?, format)
    }

    /// The same for who goes on without it: as long as the file cannot be opened its lines are lost, which the error log says.
    pub fn file_in_time(path: &Path, format: Format) -> io::Result<AccessLog> {
        AccessLog::new(LogWriter::file_in_time(path)?, format)
    }

    /// Standard output.
    pub fn stdout(format: Format) -> io::Result<AccessLog> {
        AccessLog::new(LogWriter::stdout()?, format)
    }

    fn new(writer: LogWriter, format: Format) -> io::Result<AccessLog> {
        Ok(AccessLog(Some(Arc::new(Inner { format, writer, gathered: Mutex::default() }))))
    }

    /// Whether this is a log to that file (`None`: to standard output) in that format: then a reload can go on with it.
    pub fn goes_to(&self, path: Option<&Path>, format: Format) -> bool {
        self.0.as_ref().is_some_and(|inner| inner.writer.path.as_deref() == path && inner.format == format)
    }

    pub(crate) fn is_same(&self, other: &AccessLog) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        }
    }

    /// Whether nothing that it was given is still to be written.
    pub(crate) fn is_idle(&self) -> bool {
        self.0.as_ref().is_none_or(|inner| inner.gathered().lines == 0 && inner.writer.is_idle())
    }

    /// Where it goes, for messages.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.0.as_ref()?.writer.path.as_deref()
    }

    /// Whether anybody but the caller still holds it.
    pub(crate) fn is_shared(&self) -> bool {
        self.0.as_ref().is_some_and(|inner| Arc::strong_count(inner) > 1)
    }

    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Hands over what was gathered. Returns how many lines were lost since the last call.
    pub(crate) fn flush(&self) -> u64 {
        let Some(inner) = &self.0 else { return 0 };
        inner.gathered().hand_over(&inner.writer);
        inner.writer.take_lost()
    }

    /// Hands over what was gathered, and waits until it is written; `false` when that takes longer than `limit`.
    pub(crate) async fn finish(&self, limit: Duration) -> bool {
        let Some(inner) = &self.0 else { return true };
        inner.gathered().hand_over(&inner.writer);
        inner.writer.written(limit).await
    }

    /// Opens the file again once what was gathered is written.
    pub(crate) async fn reopen(&self) -> io::Result<()> {
        let Some(inner) = &self.0 else { return Ok(()) };
        inner.gathered().hand_over(&inner.writer);
        inner.writer.reopen().await
    }

    pub(crate) fn write(&self, line: &Line, status: u16, bytes: u64, took: Duration) {
        let Some(inner) = &self.0 else { return };
        let write = |made: &mut Vec<u8>| {
            made.clear();
            match inner.format {
                Format::Combined => line.combined(made, status, bytes),
                Format::Json => line.json(made, status, bytes, took),
            }
            inner.append(made);
        };
        // At a thread's end there may be no place for it any more.
        if LINE.try_with(|made| write(&mut made.borrow_mut())).is_err() {
            write(&mut Vec::new());
        }
    }
}

impl Inner {
    fn gathered(&self) -> MutexGuard<'_, Gathered> {
        self.gathered.lock()
    }

    fn append(&self, line: &[u8]) {
        let mut gathered = self.gathered();
        gathered.buffer.extend_from_slice(line);
        gathered.lines += 1;
        if gathered.buffer.len() >= GATHER {
            gathered.hand_over(&self.writer);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.gathered.get_mut().hand_over(&self.writer);
    }
}

impl Gathered {
    fn hand_over(&mut self, writer: &LogWriter) {
        if !self.buffer.is_empty() {
            // The next second will gather about as much.
            let next = Vec::with_capacity(self.buffer.len());
            writer.write(std::mem::replace(&mut self.buffer, next), std::mem::take(&mut self.lines));
        }
    }
}

/// What is known of a request.
#[derive(Default)]
pub(crate) struct Line {
    pub(crate) app: String,
    pub(crate) id: String,
    pub(crate) remote: String,
    pub(crate) user: Option<String>,
    /// The three parts of the request line, as the client sent them; of one that is none, whatever there is.
    pub(crate) method: Vec<u8>,
    pub(crate) target: Vec<u8>,
    pub(crate) version: Vec<u8>,
    pub(crate) host: String,
    pub(crate) referer: Option<Vec<u8>>,
    pub(crate) agent: Option<Vec<u8>>,
    pub(crate) queue_wait: Option<Duration>,
}

/// As much of what a client has said as is kept for its line: a request lives for as long as its script and its reader take.
pub(crate) fn kept(said: &[u8]) -> &[u8] {
    said.get(..=LONGEST).unwrap_or(said)
}

/// The same of text.
pub(crate) fn kept_text(said: &str) -> &str {
    let end = (0..=said.len().min(LONGEST + 1)).rev().find(|at| said.is_char_boundary(*at));
    said.get(..end.unwrap_or_default()).unwrap_or_default()
}

/// Quotes, backslashes and what is not printable ASCII, as nginx escapes them; not more of it than [`LONGEST`].
fn escaped(to: &mut Vec<u8>, text: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let digit = |value: u8| DIGITS.get(usize::from(value & 15)).copied().unwrap_or_default();
    let end = to.len().saturating_add(LONGEST);
    for b in text {
        if to.len() >= end {
            return to.extend_from_slice(CUT);
        }
        if *b == b'"' || *b == b'\\' || !(0x20..0x7f).contains(b) {
            to.extend_from_slice(&[b'\\', b'x', digit(b >> 4), digit(*b)]);
        } else {
            to.push(*b);
        }
    }
}

fn escaped_or_dash(to: &mut Vec<u8>, text: Option<&[u8]>) {
    escaped(to, text.unwrap_or(b"-"));
}

/// As text; not more of it than takes [`LONGEST`] bytes of JSON.
fn lossy(text: &[u8]) -> String {
    let beginning = text.get(..LONGEST).unwrap_or(text);
    let mut said = String::from_utf8_lossy(beginning).into_owned();
    let mut room = LONGEST;
    let beyond = said.char_indices().find(|(_, c)| {
        let takes = match c {
            '"' | '\\' | '\n' | '\r' | '\t' | '\x08' | '\x0c' => 2,
            '\0'..' ' | '\x7f'..='\u{9f}' => 6,
            // What is no UTF-8 takes three bytes for one.
            c => c.len_utf8(),
        };
        let fits = takes <= room;
        room = room.saturating_sub(takes);
        !fits
    });
    let end = beyond.map_or(said.len(), |(at, _)| at);
    if beginning.len() < text.len() || end < said.len() {
        said.truncate(end);
        said.push_str("...");
    }
    said
}

/// JSON without what it may have as it is and terminals act upon: U+007F to U+009F are escaped.
pub fn json_without_controls(json: &str) -> Cow<'_, str> {
    let harms = |c: char| matches!(c, '\x7f'..='\u{9f}');
    if !json.contains(harms) {
        return Cow::Borrowed(json);
    }
    let mut escaped = String::with_capacity(json.len() + 32);
    for c in json.chars() {
        match c {
            c if harms(c) => escaped.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => escaped.push(c),
        }
    }
    Cow::Owned(escaped)
}

impl Line {
    /// What can be read of a head that was refused or is not whole: the request line, and the headers that stand there with their ends.
    pub(crate) fn of_head(head: &[u8], id: String, remote: String) -> Line {
        let head = head.strip_prefix(b"\r\n").unwrap_or(head);
        let mut lines = head.split(|b| *b == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        let request = lines.next().unwrap_or_default();
        let mut line = Line { id, remote, ..Line::default() };
        let (method, rest) = cut(request, request.iter().position(|b| *b == b' '));
        line.method = kept(method).to_vec();
        match rest.iter().rposition(|b| *b == b' ') {
            at @ Some(_) if cut(rest, at).1.starts_with(b"HTTP/") => {
                let (target, version) = cut(rest, at);
                (line.target, line.version) = (kept(target).to_vec(), kept(version).to_vec());
            }
            _ => line.target = kept(rest).to_vec(),
        }
        let mut fields = lines.collect::<Vec<_>>();
        fields.pop(); // what follows the last line's end: nothing, or a line that is not whole
        for field in fields {
            let (name, value) = cut(field, field.iter().position(|b| *b == b':'));
            let value = value.trim_ascii();
            match name.to_ascii_lowercase().as_slice() {
                b"host" => line.host = lossy(value),
                b"referer" => line.referer = Some(kept(value).to_vec()),
                b"user-agent" => line.agent = Some(kept(value).to_vec()),
                _ => {}
            }
        }
        line
    }

    fn combined(&self, to: &mut Vec<u8>, status: u16, bytes: u64) {
        to.extend_from_slice(self.remote.as_bytes());
        to.extend_from_slice(b" - ");
        escaped_or_dash(to, self.user.as_deref().map(str::as_bytes));
        let _ = write!(to, " [{}] \"", date::clf_now());
        for (i, part) in [&self.method, &self.target, &self.version].into_iter().enumerate() {
            if i > 0 && !part.is_empty() {
                to.push(b' ');
            }
            escaped(to, part);
        }
        let _ = write!(to, "\" {status} {bytes} \"");
        escaped_or_dash(to, self.referer.as_deref());
        to.extend_from_slice(b"\" \"");
        escaped_or_dash(to, self.agent.as_deref());
        to.extend_from_slice(b"\"\n");
    }

    fn json(&self, to: &mut Vec<u8>, status: u16, bytes: u64, took: Duration) {
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let object = serde_json::json!({
            "time": time.as_secs_f64(),
            "app": self.app,
            "request_id": self.id,
            "remote": self.remote,
            "user": self.user.as_deref().map(|user| lossy(user.as_bytes())),
            "method": lossy(&self.method),
            "host": lossy(self.host.as_bytes()),
            "target": lossy(&self.target),
            "version": lossy(&self.version),
            "status": status,
            "bytes": bytes,
            "duration": took.as_secs_f64(),
            "queue_wait": self.queue_wait.map(|w| w.as_secs_f64()),
            "referer": self.referer.as_deref().map(lossy),
            "user_agent": self.agent.as_deref().map(lossy),
        });
        let text = object.to_string();
        to.extend_from_slice(json_without_controls(&text).as_bytes());
        to.push(b'\n');
    }
}

/// What stands before the byte at `at` and what after it; all and nothing without one.
fn cut(text: &[u8], at: Option<usize>) -> (&[u8], &[u8]) {
    let (before, from) = at.and_then(|at| text.split_at_checked(at)).unwrap_or((text, b""));
    (before, from.get(1..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn combined(line: &Line) -> String {
        let mut to = Vec::new();
        line.combined(&mut to, 200, 5);
        String::from_utf8(to).unwrap()
    }

    #[test]
    fn a_combined_line_cannot_be_forged() {
        let text = combined(&Line {
            remote: "127.0.0.1".into(),
            method: "GET".into(),
            target: "/a\"b\nc".into(),
            version: "HTTP/1.1".into(),
            agent: Some("x\\y".into()),
            ..Line::default()
        });
        assert!(text.starts_with("127.0.0.1 - - ["), "{text}");
        assert!(
            text.ends_with(" +0000] \"GET /a\\x22b\\x0Ac HTTP/1.1\" 200 5 \"-\" \"x\\x5Cy\"\n"),
            "{text}"
        );
    }

    #[test]
    fn json_has_no_control_characters() {
        let said = "a\u{7f}\u{80}\u{9b}31m\u{9f}\u{a0}\u{e9}\n";
        let line = Line { agent: Some(said.into()), host: said.into(), ..Line::default() };
        let mut json = b"before ".to_vec();
        line.json(&mut json, 200, 5, Duration::ZERO);
        let text = String::from_utf8(json).unwrap();
        let text = text.strip_prefix("before ").unwrap().strip_suffix('\n').unwrap();
        assert!(!text.contains(char::is_control), "{text}");
        let json: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!((json["host"].as_str(), json["user_agent"].as_str()), (Some(said), Some(said)));
    }

    #[test]
    fn what_a_client_says_at_length_is_cut() {
        for (byte, written) in [(b'a', 1), (0xff, 4), (1, 4), (b'"', 4)] {
            let long = vec![byte; 30_000];
            let line = Line {
                remote: "r".into(),
                user: Some("u".repeat(30_000)),
                method: long.clone(),
                target: long.clone(),
                version: "HTTP/1.1".into(),
                host: "h".repeat(30_000),
                referer: Some(long.clone()),
                agent: Some(long),
                ..Line::default()
            };
            let text = combined(&line);
            assert!(text.len() < 6 * LONGEST && text.ends_with("...\"\n"), "{}", text.len());
            let whole = Line { agent: Some(vec![byte; LONGEST / written]), ..Line::default() };
            assert!(!combined(&whole).contains("..."));
            let mut json = Vec::new();
            line.json(&mut json, 200, 5, Duration::ZERO);
            assert!(json.len() < 7 * LONGEST, "{}", json.len());
            let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
            for part in ["user", "method", "host", "target", "referer", "user_agent"] {
                let said = json[part].as_str().unwrap();
                assert!(said.ends_with("...") && said.len() <= LONGEST + 3, "{part}");
            }
        }
        assert_eq!(lossy(&b"a".repeat(LONGEST)).len(), LONGEST);
    }

    #[test]
    fn no_more_is_kept_than_shows_that_there_was_more() {
        let long = "x".repeat(LONGEST + 1);
        let head =
            format!("{0} /{0} HTTP/{0}\r\nReferer: {0}{0}\r\nUser-Agent: {0}\r\nHost: {0}\r\n\r\n", long);
        let line = Line::of_head(head.as_bytes(), String::new(), "r".into());
        let Line { method, target, version, host, referer, agent, .. } = &line;
        for part in [method, target, version, referer.as_ref().unwrap(), agent.as_ref().unwrap()] {
            assert_eq!(part.len(), LONGEST + 1);
        }
        assert!(host.len() <= LONGEST + CUT.len());
        assert_eq!(combined(&line).matches("...").count(), 5);
        assert_eq!(kept_text(&"\u{fc}".repeat(LONGEST)).len(), LONGEST);
        assert_eq!((kept_text("short"), kept(b"short")), ("short", &b"short"[..]));
    }

    #[test]
    fn what_can_be_read_of_a_refused_head_is_written_down() {
        for (head, want) in [
            (&b"GET /a HTTP/9.9\r\nUser-Agent: x\r\n\r\n"[..], "\"GET /a HTTP/9.9\" 200 5 \"-\" \"x\""),
            (b"GET /half HTTP/1.1\r\nReferer: y\r\nUser-Ag", "\"GET /half HTTP/1.1\" 200 5 \"y\" \"-\""),
            (b"GET /halfli", "\"GET /halfli\" 200 5 \"-\" \"-\""),
            (b"\x16\x03\x01 garbage\r\n\r\n", "\"\\x16\\x03\\x01 garbage\" 200 5 \"-\" \"-\""),
            (b"GET /a b HTTP/1.1\nX: y\r\n", "\"GET /a b HTTP/1.1\" 200 5 \"-\" \"-\""),
            (b"", "\"\" 200 5 \"-\" \"-\""),
        ] {
            let text = combined(&Line::of_head(head, String::new(), "r".into()));
            assert!(text.trim_end().ends_with(want), "{text}");
        }
    }
}
