//! Static files: validators, ranges, precompressed siblings.

use std::{
    ffi::OsStr,
    fs::File,
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Response, StatusCode,
    header::{self, HeaderName},
};

use crate::{
    body::{Body, Kind},
    date,
    disk::Place,
    file_body::FileBody,
    near::{Access, Meta, Miss},
    route::Named,
    site::{FileRules, Site},
};

/// Files up to this size are read at once; larger ones in blocks by another thread.
const SMALL: u64 = 64 << 10;

/// By a file's name; `charset` is for text.
fn content_type(path: &Path, charset: Option<&str>) -> Option<HeaderValue> {
    let mime = mime_guess::from_path(path).first()?;
    let text = mime.type_() == mime_guess::mime::TEXT
        || matches!(mime.subtype().as_str(), "javascript" | "xml" | "svg");
    let value = match charset {
        Some(charset) if text => format!("{}; charset={charset}", mime.essence_str()),
        _ => mime.essence_str().to_owned(),
    };
    HeaderValue::try_from(value).ok()
}

/// Whether Accept-Encoding takes a coding (RFC 9110, 12.5.3).
fn accepts(headers: &HeaderMap, coding: &str) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).into_iter().filter_map(|v| v.to_str().ok());
    for item in values.flat_map(|v| v.split(',')) {
        let mut parts = item.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        if name.eq_ignore_ascii_case(coding) {
            let refused = |p: &str| p.strip_prefix("q=").is_some_and(|q| q.parse() == Ok(0.0));
            return !parts.any(refused);
        }
    }
    false
}

/// The siblings of a file that hold it precompressed: which are there, and the one that the client takes.
fn packed(path: &[u8], headers: &HeaderMap, files: &Access<'_>) -> Result<(bool, Option<Packed>), Miss> {
    let (mut any, mut taken) = (false, None);
    for (coding, ending) in [("br", &b".br"[..]), ("gzip", b".gz")] {
        let sibling = [path, ending].concat();
        match files.meta(&sibling) {
            Ok(meta) if meta.is_file() => {
                any = true;
                if taken.is_none() && accepts(headers, coding) {
                    taken = Some(Packed { sibling, coding });
                }
            }
            Err(Miss::Wait) => return Err(Miss::Wait),
            _ => {}
        }
    }
    Ok((any, taken))
}

struct Packed {
    sibling: Vec<u8>,
    coding: &'static str,
}

#[derive(Debug, PartialEq, Eq)]
enum Part {
    Whole,
    From(u64, u64), // first byte, length
    None,
}

/// One range of bytes (RFC 9110, 14.2). Several ranges and malformed ones get the whole file, which is always allowed.
fn range(value: &str, size: u64) -> Part {
    let Some((first, last)) = value.strip_prefix("bytes=").and_then(|v| v.split_once('-')) else {
        return Part::Whole;
    };
    let number = |text: &str| {
        (!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()))
            .then(|| text.parse().unwrap_or(u64::MAX))
    };
    match (first.trim(), last.trim()) {
        ("", last) => match number(last) {
            Some(0) => Part::None,
            Some(_) if size == 0 => Part::None,
            Some(n) => Part::From(size - n.min(size), n.min(size)),
            None => Part::Whole,
        },
        (first, last) => match (number(first), number(last)) {
            (Some(first), _) if last.is_empty() || number(last).is_some_and(|l| l >= first) => {
                if first >= size {
                    return Part::None;
                }
                let end = number(last).map_or(size, |l| l.saturating_add(1).min(size));
                Part::From(first, end - first)
            }
            _ => Part::Whole,
        },
    }
}

/// For the fuzzer: what a range gives lies within the file.
#[cfg(test)]
pub(crate) fn check_range(value: &str, size: u64) {
    if let Part::From(from, len) = range(value, size) {
        assert!(len > 0 && from.checked_add(len).is_some_and(|end| end <= size), "{value} of {size}");
    }
}

fn etag(meta: &Meta) -> String {
    format!("\"{:x}-{:x}\"", meta.modified, meta.len)
}

fn matches(list: &str, etag: &str) -> bool {
    list.trim() == "*" || list.split(',').any(|item| item.trim().trim_start_matches("W/") == etag)
}

/// Why there is no file to send.
pub(crate) enum NoFile {
    Status(StatusCode),
    /// The file system does not answer.
    Hangs(io::Error),
}

impl From<io::Error> for NoFile {
    fn from(error: io::Error) -> NoFile {
        NoFile::Hangs(error)
    }
}

/// Answers with a file of the site's place.
pub(crate) async fn serve(
    method: &Method,
    headers: &HeaderMap,
    site: &Site,
    file: Named,
) -> Result<Response<Body>, NoFile> {
    let (place, rules) = (&site.place, &site.files);
    if !matches!(*method, Method::GET | Method::HEAD) {
        let mut response = Response::new(Body::new(Kind::Empty));
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        return Ok(response);
    }
    let Named { path, opened } = file;
    let near = place.near().root(place.path());
    let near = near.map(|root| prepare(method, headers, rules, &path, opened, &Access::Now(&root)));
    let prepared = match near {
        Some(Err(Miss::Wait)) | None => {
            let (method, headers, root) = (method.clone(), headers.clone(), Arc::clone(place));
            let rules = Arc::clone(rules);
            let waiting = place.start(move || {
                prepare(&method, &headers, &rules, &path, None, &Access::Waiting(root.path()))
            });
            waiting.await?
        }
        Some(prepared) => prepared,
    };
    finish(prepared, place)
}

/// Answers with a file that a path of the machine names, if `allowed` finds its real path fit.
pub(crate) async fn serve_absolute(
    method: &Method,
    headers: &HeaderMap,
    site: &Site,
    path: PathBuf,
    allowed: impl Fn(&Path) -> bool + Send + 'static,
) -> Result<Response<Body>, NoFile> {
    let (place, rules) = (&site.place, Arc::clone(&site.files));
    let (method, headers) = (method.clone(), headers.clone());
    let prepared = place.start(move || {
        let real = std::fs::canonicalize(path).ok().filter(|path| allowed(path)).ok_or(Miss::NotThere)?;
        prepare(
            &method,
            &headers,
            &rules,
            real.as_os_str().as_bytes(),
            None,
            &Access::Waiting(Path::new("/")),
        )
    });
    finish(prepared.await?, place)
}

/// What is to be sent, before there is a way to send it.
struct Prepared {
    status: StatusCode,
    headers: HeaderMap,
    content: Content,
}

enum Content {
    Empty,
    Small(Bytes),
    Large { file: File, from: u64, len: u64 },
}

fn finish(prepared: Result<Prepared, Miss>, place: &Arc<Place>) -> Result<Response<Body>, NoFile> {
    let prepared = prepared.map_err(|miss| {
        NoFile::Status(match miss {
            Miss::NotThere => StatusCode::NOT_FOUND,
            Miss::Forbidden => StatusCode::FORBIDDEN,
            Miss::Failed | Miss::Wait => StatusCode::INTERNAL_SERVER_ERROR,
        })
    })?;
    if prepared.status == StatusCode::PRECONDITION_FAILED {
        return Err(NoFile::Status(prepared.status));
    }
    let kind = match prepared.content {
        Content::Empty => Kind::Empty,
        Content::Small(bytes) => Kind::Full(bytes),
        Content::Large { file, from, len } => Kind::File(FileBody::new(file, from, len, Arc::clone(place))),
    };
    let mut response = Response::new(Body::new(kind));
    *response.status_mut() = prepared.status;
    *response.headers_mut() = prepared.headers;
    Ok(response)
}

fn prepare(
    method: &Method,
    headers: &HeaderMap,
    rules: &FileRules,
    path: &[u8],
    opened: Option<(File, Meta)>,
    files: &Access<'_>,
) -> Result<Prepared, Miss> {
    let mut out = HeaderMap::new();
    let answer = |status, headers, content| Ok(Prepared { status, headers, content });
    let (any_packed, packed) = packed(path, headers, files)?;
    let (file, meta) = match (&packed, opened) {
        (Some(packed), _) => files.open(&packed.sibling)?,
        (None, Some(opened)) => opened,
        (None, None) => files.open(path)?,
    };
    if !rules.may_send(path, meta.id) {
        return Err(Miss::NotThere);
    }
    if let Some(packed) = &packed {
        out.insert(header::CONTENT_ENCODING, HeaderValue::from_static(packed.coding));
    }
    if any_packed {
        // Another client could get another one: caches must know.
        out.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    let (tag, date) = (etag(&meta), date::http(meta.modified));
    let insert = |out: &mut HeaderMap, name: HeaderName, value: String| {
        if let Ok(value) = HeaderValue::try_from(value) {
            out.insert(name, value);
        }
    };
    insert(&mut out, header::ETAG, tag.clone());
    if let Some(date) = &date {
        insert(&mut out, header::LAST_MODIFIED, date.clone());
    }

    let text = |name: HeaderName| headers.get(name).and_then(|v| v.to_str().ok());
    let since = |name| text(name).and_then(date::parse);
    // RFC 9110, 13.2.2: first whether the client's idea of the file still holds, then whether it has it already.
    let stale = match text(header::IF_MATCH) {
        Some(list) => !matches(list, &tag),
        None => since(header::IF_UNMODIFIED_SINCE).is_some_and(|since| meta.modified > since),
    };
    if stale {
        return answer(StatusCode::PRECONDITION_FAILED, out, Content::Empty);
    }
    let unchanged = match text(header::IF_NONE_MATCH) {
        Some(list) => matches(list, &tag),
        None => since(header::IF_MODIFIED_SINCE).is_some_and(|since| meta.modified <= since),
    };
    if unchanged {
        return answer(StatusCode::NOT_MODIFIED, out, Content::Empty);
    }
    let size = meta.len;
    out.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    let fresh = text(header::IF_RANGE).is_none_or(|v| v == tag || Some(v) == date.as_deref());
    let part = match text(header::RANGE) {
        Some(value) if fresh => range(value, size),
        _ => Part::Whole,
    };
    let mut status = StatusCode::OK;
    let (from, len) = match part {
        Part::Whole => (0, size),
        Part::From(from, len) => {
            let last = from.saturating_add(len).saturating_sub(1);
            insert(&mut out, header::CONTENT_RANGE, format!("bytes {from}-{last}/{size}"));
            status = StatusCode::PARTIAL_CONTENT;
            (from, len)
        }
        Part::None => {
            insert(&mut out, header::CONTENT_RANGE, format!("bytes */{size}"));
            return answer(StatusCode::RANGE_NOT_SATISFIABLE, out, Content::Empty);
        }
    };
    let unknown = HeaderValue::from_static("application/octet-stream");
    out.insert(
        header::CONTENT_TYPE,
        content_type(Path::new(OsStr::from_bytes(path)), rules.charset.as_deref()).unwrap_or(unknown),
    );
    let content = if method == Method::HEAD {
        insert(&mut out, header::CONTENT_LENGTH, len.to_string());
        Content::Empty
    } else if size <= SMALL {
        let all = Bytes::from(files.read(&file, size as usize)?);
        // It may have become shorter since.
        let end = from.saturating_add(len).min(all.len() as u64);
        Content::Small(all.slice(from.min(end) as usize..end as usize))
    } else {
        Content::Large { file, from, len }
    };
    answer(status, out, content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        for (value, want) in [
            ("bytes=0-4", Part::From(0, 5)),
            ("bytes=9-", Part::From(9, 1)),
            ("bytes=-3", Part::From(7, 3)),
            ("bytes=-30", Part::From(0, 10)),
            ("bytes=5-100", Part::From(5, 5)),
            ("bytes=5-99999999999999999999999", Part::From(5, 5)),
            ("bytes=10-", Part::None),
            ("bytes=-0", Part::None),
            ("bytes=4-2", Part::Whole),
            ("bytes=a-b", Part::Whole),
            ("bytes=0-1,3-4", Part::Whole),
            ("bytes=-", Part::Whole),
            ("lines=0-1", Part::Whole),
        ] {
            assert_eq!(range(value, 10), want, "{value}");
        }
        assert_eq!(range("bytes=-5", 0), Part::None);
    }

    #[test]
    fn codings() {
        let map = |value: &str| {
            let mut map = HeaderMap::new();
            map.insert(header::ACCEPT_ENCODING, value.parse().unwrap());
            map
        };
        assert!(accepts(&map("gzip, br"), "br"));
        assert!(accepts(&map("GZIP;q=0.5"), "gzip"));
        assert!(!accepts(&map("gzip;q=0"), "gzip"));
        assert!(!accepts(&map("gzip;q=0.0, br"), "gzip"));
        assert!(!accepts(&map("identity"), "gzip"));
    }
}
