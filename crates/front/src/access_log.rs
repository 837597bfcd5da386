//! The access log: one line per answered request, combined or JSON. Lines are gathered and written once a second, or when there are
//! many; writing goes to a file's page cache or a pipe, and a log that cannot be written is given up, loudly, once.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

/// How a line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// As Apache and nginx call it.
    Combined,
    /// One JSON object a line.
    Json,
}

/// Where lines go. Clones share one buffer.
#[derive(Clone, Default)]
pub struct AccessLog(Option<Arc<Inner>>);

struct Inner {
    format: Format,
    path: Option<PathBuf>,
    out: Mutex<Out>,
}

struct Out {
    to: Box<dyn Write + Send>,
    buffer: Vec<u8>,
    broken: bool,
}

/// Beyond this many gathered bytes they are written without waiting for the second to end.
const GATHER: usize = 64 << 10;

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .map_err(|e| io::Error::new(e.kind(), format!("cannot open the access log {}: {e}", path.display())))
}

impl AccessLog {
    /// No log.
    pub fn off() -> AccessLog {
        AccessLog(None)
    }

    /// Appends to a file, made if needed.
    pub fn file(path: &Path, format: Format) -> io::Result<AccessLog> {
        let to = Box::new(open(path)?);
        Ok(AccessLog::new(Some(path.to_owned()), to, format))
    }

    /// Standard output.
    pub fn stdout(format: Format) -> AccessLog {
        AccessLog::new(None, Box::new(io::stdout()), format)
    }

    fn new(path: Option<PathBuf>, to: Box<dyn Write + Send>, format: Format) -> AccessLog {
        let out = Mutex::new(Out { to, buffer: Vec::new(), broken: false });
        AccessLog(Some(Arc::new(Inner { format, path, out })))
    }

    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Writes what was gathered.
    pub fn flush(&self) {
        if let Some(inner) = &self.0 {
            inner.out.lock().expect("no panic while it is held").flush();
        }
    }

    pub(crate) fn reopen(&self) -> io::Result<()> {
        if let Some(inner) = &self.0
            && let Some(path) = &inner.path
        {
            let fresh = open(path)?;
            let mut out = inner.out.lock().expect("no panic while it is held");
            out.flush();
            out.to = Box::new(fresh);
            out.broken = false;
        }
        Ok(())
    }

    pub(crate) fn write(&self, line: &Line, status: u16, bytes: u64, took: Duration) {
        let Some(inner) = &self.0 else { return };
        let mut out = inner.out.lock().expect("no panic while it is held");
        match inner.format {
            Format::Combined => line.combined(&mut out.buffer, status, bytes),
            Format::Json => line.json(&mut out.buffer, status, bytes, took),
        }
        if out.buffer.len() >= GATHER {
            out.flush();
        }
    }
}

impl Out {
    fn flush(&mut self) {
        if self.buffer.is_empty() {
            return;
        }
        let written = self.to.write_all(&self.buffer).and_then(|()| self.to.flush());
        self.buffer.clear();
        if let Err(error) = written
            && !std::mem::replace(&mut self.broken, true)
        {
            tracing::error!("the access log cannot be written, lines are being lost: {error}");
        }
    }
}

/// What is known when the request arrives.
pub(crate) struct Line {
    pub(crate) app: String,
    pub(crate) id: String,
    pub(crate) remote: String,
    pub(crate) user: Option<String>,
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) version: &'static str,
    pub(crate) host: String,
    pub(crate) referer: Option<String>,
    pub(crate) agent: Option<String>,
    pub(crate) queue_wait: Option<Duration>,
}

/// Quotes, backslashes and what is not printable ASCII, as nginx escapes them.
fn escaped(to: &mut Vec<u8>, text: Option<&str>) {
    let Some(text) = text else {
        to.push(b'-');
        return;
    };
    for b in text.bytes() {
        if b == b'"' || b == b'\\' || !(0x20..0x7f).contains(&b) {
            let _ = write!(to, "\\x{b:02X}");
        } else {
            to.push(b);
        }
    }
}

/// "21/Nov/2026:01:02:03 +0000"
fn clf_time(time: SystemTime) -> String {
    let http = httpdate::fmt_http_date(time); // "Sat, 21 Nov 2026 01:02:03 GMT"
    format!("{}/{}/{}:{} +0000", &http[5..7], &http[8..11], &http[12..16], &http[17..25])
}

impl Line {
    fn combined(&self, to: &mut Vec<u8>, status: u16, bytes: u64) {
        to.extend_from_slice(self.remote.as_bytes());
        to.extend_from_slice(b" - ");
        escaped(to, self.user.as_deref());
        let _ = write!(to, " [{}] \"{} ", clf_time(SystemTime::now()), self.method);
        escaped(to, Some(&self.target));
        let _ = write!(to, " {}\" {status} {bytes} \"", self.version);
        escaped(to, self.referer.as_deref());
        to.extend_from_slice(b"\" \"");
        escaped(to, self.agent.as_deref());
        to.extend_from_slice(b"\"\n");
    }

    fn json(&self, to: &mut Vec<u8>, status: u16, bytes: u64, took: Duration) {
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let object = serde_json::json!({
            "time": time.as_secs_f64(),
            "app": self.app,
            "request_id": self.id,
            "remote": self.remote,
            "user": self.user,
            "method": self.method,
            "host": self.host,
            "target": self.target,
            "version": self.version,
            "status": status,
            "bytes": bytes,
            "duration": took.as_secs_f64(),
            "queue_wait": self.queue_wait.map(|w| w.as_secs_f64()),
            "referer": self.referer,
            "user_agent": self.agent,
        });
        let _ = serde_json::to_writer(&mut *to, &object);
        to.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_combined_line_cannot_be_forged() {
        let line = Line {
            app: "a".into(),
            id: "1".into(),
            remote: "127.0.0.1".into(),
            user: None,
            method: "GET".into(),
            target: "/a\"b\nc".into(),
            version: "HTTP/1.1",
            host: "h".into(),
            referer: None,
            agent: Some("x\\y".into()),
            queue_wait: None,
        };
        let mut to = Vec::new();
        line.combined(&mut to, 200, 5);
        let text = String::from_utf8(to).unwrap();
        assert!(text.starts_with("127.0.0.1 - - ["), "{text}");
        assert!(
            text.ends_with(" +0000] \"GET /a\\x22b\\x0Ac HTTP/1.1\" 200 5 \"-\" \"x\\x5Cy\"\n"),
            "{text}"
        );
    }
}
