//! A script's answer on its way out of the ring: head, body, and the file that it asks to send instead.

use std::{
    borrow::Cow,
    ffi::OsStr,
    future::poll_fn,
    io,
    ops::Range,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use hayate_http::{Answer, Head, phrase};
use hayate_ring::{Exchange as Job, ResponseHead, Ring};

use crate::{
    disk::Place,
    dynamic::Client,
    files::{self, NoFile},
    promise::Promise,
    relay::Relay,
    reply::{Body, Reply, set},
    request_body::{Keep, Pump, Rest},
    route,
    route::{Found, Named},
    shown::Shown,
    site::Site,
};

/// What a file that a script has sent says of itself, as under nginx: its script may have compressed an answer of its own, or named another.
const FILES: [&[u8]; 4] = [b"accept-ranges", b"content-encoding", b"etag", b"last-modified"];
/// Headers that are between two neighbours only (RFC 9110, 7.6.1); the engine writes its own.
const HOP_BY_HOP: [&[u8]; 7] =
    [b"connection", b"transfer-encoding", b"upgrade", b"te", b"trailer", b"keep-alive", b"proxy-connection"];

/// What a header of a script is to the front.
enum Meaning {
    Plain,
    HopByHop,
    ContentType,
    ContentLength,
    /// A path of the site to send.
    AccelRedirect,
    /// A path of the machine to send.
    SendFile,
}

fn meaning(name: &[u8]) -> Meaning {
    // Nearly all are told apart by their length, and the rest by a comparison or two.
    match name.len() {
        // As they are written nearly always.
        12 if matches!(name, b"Content-Type" | b"Content-type") => Meaning::ContentType,
        12 if name.eq_ignore_ascii_case(b"content-type") => Meaning::ContentType,
        14 if name.eq_ignore_ascii_case(b"content-length") => Meaning::ContentLength,
        16 if name.eq_ignore_ascii_case(b"x-accel-redirect") => Meaning::AccelRedirect,
        10 if name.eq_ignore_ascii_case(b"x-sendfile") => Meaning::SendFile,
        2 | 7 | 10 | 16 | 17 if HOP_BY_HOP.iter().any(|hop| name.eq_ignore_ascii_case(hop)) => {
            Meaning::HopByHop
        }
        _ => Meaning::Plain,
    }
}

/// Makes the answer of what the worker wrote.
pub(crate) async fn translate(
    site: &Arc<Site>,
    ring: &Arc<Ring>,
    client: &Client<'_>,
    head: ResponseHead,
    mut job: Job,
    pump: Option<Box<Pump>>,
) -> Box<Reply> {
    // Informational answers are not the script's to give in this way, and one alone would not be an answer.
    let status = if (200..1000).contains(&head.status) { head.status } else { 500 };
    let reason = head.reason().filter(|reason| *reason != phrase(status).as_bytes()).map(<[u8]>::to_vec);
    // What is passed on stays where it was written.
    let (bytes, mut places) = head.into_bytes();
    let mut answer = Answer::of(status, bytes);
    if let Some(reason) = reason {
        // With control characters in it, it is left out.
        let _ = answer.set_reason(&reason);
    }
    let mut file = None;
    let mut length = None;
    // One type, the last one; an empty one means none.
    let mut kind = None;
    while let Some((name, value)) = places.next(answer.bytes()) {
        let part = |range: &Range<usize>| answer.bytes().get(range.clone()).unwrap_or_default();
        let added = match (meaning(part(&name)), &site.sendfile_roots) {
            (Meaning::HopByHop, _) => Ok(()),
            (Meaning::ContentType, _) => {
                kind = Some((name.clone(), value));
                Ok(())
            }
            (Meaning::ContentLength, _) => {
                let value = part(&value);
                let digits = value.iter().all(u8::is_ascii_digit).then(|| std::str::from_utf8(value).ok());
                length = digits.flatten().and_then(|v| v.parse::<u64>().ok());
                Ok(())
            }
            (Meaning::AccelRedirect, Some(roots)) => {
                file = Some((roots, false, value));
                Ok(())
            }
            (Meaning::SendFile, Some(roots)) => {
                file = Some((roots, true, value));
                Ok(())
            }
            _ => answer.add_part(name.clone(), value),
        };
        if added.is_err() {
            dropped(site, client, answer.bytes().get(name).unwrap_or_default());
        }
    }
    if let Some((name, value)) = kind.filter(|(_, value)| !value.is_empty() && status != 304) {
        let part = |range: &Range<usize>| answer.bytes().get(range.clone()).unwrap_or_default();
        let added = match part(&name) {
            b"Content-Type" | b"Content-type" => answer.add_part(name, value),
            // As nginx names it, however the script has written it.
            _ => {
                let value = part(&value).to_vec();
                answer.add(b"Content-Type", &value)
            }
        };
        if added.is_err() {
            dropped(site, client, b"Content-Type");
        }
    }
    if let Some((roots, absolute, path)) = file {
        let path = answer.bytes().get(path).unwrap_or_default().to_vec();
        // What is in a file of its own is not to be held while another one is waited for.
        let rest = rest(job, pump.filter(|pump| !pump.has_file()));
        let from = if absolute { site } else { aliased(site, client, &path) };
        let sent = send_file(from, client.head, client.keep, answer, roots, absolute, &path);
        let mut reply = Box::pin(sent).await;
        reply.rest = rest;
        return reply;
    }
    let without = match status {
        204 | 304 => Some(Body::None),
        // What the script would have sent is unknown, unless it says so.
        _ if client.head.method() == b"HEAD" => Some(length.map_or(Body::Unknown, Body::Left)),
        _ => None,
    };
    if let Some(body) = without {
        let mut reply = Reply::new(answer, body);
        reply.rest = rest(job, pump);
        return reply;
    }
    let whole = match job.remaining() {
        Some(left) => whole(&mut job, left).await,
        None => None,
    };
    let body = match whole {
        Some(bytes) => Body::Full(bytes),
        None => Body::Script(Box::new(Relay::new(Arc::clone(ring), job, pump, client.keep))),
    };
    let mut reply = Reply::new(answer, body);
    reply.promise = match (length, &reply.body) {
        (Some(said), Body::Full(bytes)) if said == bytes.len() as u64 => None,
        (Some(said), _) => Some(Promise::new(said, &site.name, client.id)),
        (None, _) => None,
    };
    reply
}

/// What is left of a request whose answer needs no more of its script.
fn rest(job: Job, pump: Option<Box<Pump>>) -> Option<Box<Rest>> {
    let Some(pump) = pump else {
        job.discard();
        return None;
    };
    Some(Box::new(Rest { pump, job }))
}

/// An answer before the answer; `None` where it would be none.
pub(crate) fn informational(site: &Site, client: &Client<'_>, head: &ResponseHead) -> Option<Answer> {
    // 100 is the engine's own, and nobody changes the protocol here (101).
    let status = (102..200).contains(&head.status).then_some(head.status)?;
    let mut answer = Answer::new(status);
    for (name, value) in head.headers() {
        let is_plain = matches!(meaning(name), Meaning::Plain | Meaning::ContentType);
        if is_plain && answer.add(name, value).is_err() {
            dropped(site, client, name);
        }
    }
    Some(answer)
}

fn dropped(site: &Site, client: &Client<'_>, name: &[u8]) {
    let name = Shown(name);
    tracing::warn!(
        app = site.name,
        request = client.id,
        "the script's response header \"{name}\" was dropped: its name or value is malformed"
    );
}

/// The whole body of a complete answer. `None` should never be: the answer was there.
async fn whole(job: &mut Job, left: u64) -> Option<Bytes> {
    if left == 0 {
        return Some(Bytes::new());
    }
    let first = poll_fn(|cx| job.poll_body(cx)).await?.ok()?;
    (first.len() as u64 == left).then_some(first)
}

/// X-Accel-Redirect (a path of the site) and X-Sendfile (a path of the machine, below the root or a configured directory).
pub(crate) async fn send_file(
    site: &Arc<Site>,
    head: &Head,
    keep: Keep<'_>,
    script: Answer,
    roots: &[Arc<Place>],
    absolute: bool,
    path: &[u8],
) -> Box<Reply> {
    let served = if absolute {
        let path = PathBuf::from(OsStr::from_bytes(path));
        // One that hangs is to occupy its own threads, not those of the document root.
        let place = roots.iter().find(|root| path.starts_with(root.path())).unwrap_or(&site.place);
        let roots: Vec<_> = roots.iter().chain([&site.place]).map(Arc::clone).collect();
        let allowed = move |path: &Path| roots.iter().any(|root| path.starts_with(root.path()));
        files::serve_absolute(head, site, place, path, allowed, keep).await
    } else {
        match inside_site(site, path).await {
            Ok(Some(file)) => files::serve(head, site, file, keep).await,
            Ok(None) => Err(NoFile::Status(404)),
            Err(error) => Err(NoFile::Hangs(error)),
        }
    };
    let path = Shown(path);
    let served = served.map_err(|no_file| match no_file {
        NoFile::Hangs(error) => {
            tracing::error!(app = site.name, "the script asked to send \"{path}\": {error}");
            503
        }
        NoFile::Status(status) => {
            if status == 404 {
                tracing::error!(
                    app = site.name,
                    "the script asked to send \"{path}\", which is no file: X-Accel-Redirect needs a path of the site, X-Sendfile one \
                     below the document root or one of sendfile_roots"
                );
            }
            status
        }
    });
    match served {
        Ok(mut reply) => {
            // The script knows its file better: type, disposition, caching, cookies. But not the bytes, nor what they are called.
            let knows = |name: &[u8]| !FILES.iter().any(|own| name.eq_ignore_ascii_case(own));
            let fields = || script.fields().filter(|(name, _)| knows(name));
            let replaced = fields().filter(|(name, _)| !name.eq_ignore_ascii_case(b"vary"));
            replaced.for_each(|(name, _)| reply.answer.remove(name));
            for (name, value) in fields() {
                // It was fit for one answer.
                let _ = reply.answer.add(name, value);
            }
            reply
        }
        Err(status) => {
            let mut reply = Reply::page(status, None);
            if status == 503 {
                set(&mut reply.answer, "retry-after", "1");
            }
            reply
        }
    }
}

/// What serves a path to which a script leads: the site, or an `alias` of its rules.
fn aliased<'s>(site: &'s Arc<Site>, client: &Client<'_>, path: &[u8]) -> &'s Arc<Site> {
    let alias = site.rules.as_ref().and_then(|rules| rules.alias(client, site.inside(&of_site(path)?)?));
    alias.unwrap_or(site)
}

/// The path that a script has named, without its query.
fn of_site(path: &[u8]) -> Option<Cow<'_, [u8]>> {
    path.split(|b| *b == b'?').next().and_then(route::normalise)
}

/// The file that a path of the site names. One that visitors do not get by its name (`dump.sql`) is the script's to send.
async fn inside_site(site: &Arc<Site>, path: &[u8]) -> io::Result<Option<Named>> {
    let Some(path) = of_site(path) else { return Ok(None) };
    if let Some(file) = route::hidden_file(site, &path) {
        return Ok(Some(file));
    }
    Ok(match route::resolve(site, &path).await? {
        Found::File(file) => Some(file),
        _ => None,
    })
}
