//! Static files: validators, ranges, precompressed siblings.

use std::{
    fs::Metadata,
    io::Read,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use http::{
    HeaderMap, HeaderValue, Method, Response, StatusCode,
    header::{self, HeaderName},
};
use tokio::io::AsyncSeekExt;

use crate::{
    body::{Body, Kind},
    date,
};

/// Files up to this size are read at once; larger ones in blocks by another thread.
const SMALL: u64 = 64 << 10;

fn content_type(path: &Path) -> Option<HeaderValue> {
    let mime = mime_guess::from_path(path).first()?;
    let text = mime.type_() == mime_guess::mime::TEXT
        || matches!(mime.subtype().as_str(), "javascript" | "xml" | "svg");
    let value = if text && mime.get_param("charset").is_none() {
        format!("{}; charset=utf-8", mime.essence_str())
    } else {
        mime.to_string()
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

/// The precompressed sibling that the client takes, if there is one.
fn packed(path: &Path, headers: &HeaderMap) -> Option<(PathBuf, Metadata, &'static str)> {
    for (coding, ending) in [("br", ".br"), ("gzip", ".gz")] {
        if accepts(headers, coding) {
            let mut sibling = path.as_os_str().to_owned();
            sibling.push(ending);
            if let Ok(meta) = std::fs::metadata(&sibling)
                && meta.is_file()
            {
                return Some((sibling.into(), meta, coding));
            }
        }
    }
    None
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

fn etag(meta: &Metadata) -> String {
    format!("\"{:x}-{:x}\"", meta.mtime(), meta.len())
}

fn matches(list: &str, etag: &str) -> bool {
    list.trim() == "*" || list.split(',').any(|item| item.trim().trim_start_matches("W/") == etag)
}

/// Answers with a file. `meta` is the file's.
pub(crate) async fn serve(
    method: &Method,
    headers: &HeaderMap,
    path: &Path,
    meta: Metadata,
) -> Result<Response<Body>, StatusCode> {
    if !matches!(*method, Method::GET | Method::HEAD) {
        let mut response = Response::new(Body::new(Kind::Empty));
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        return Ok(response);
    }
    let mut response = Response::new(Body::new(Kind::Empty));
    let out = response.headers_mut();
    let unknown = HeaderValue::from_static("application/octet-stream");
    out.insert(header::CONTENT_TYPE, content_type(path).unwrap_or(unknown));
    let (file_path, meta, coding) = match packed(path, headers) {
        Some((sibling, meta, coding)) => (sibling, meta, Some(coding)),
        None => (path.to_owned(), meta, None),
    };
    if let Some(coding) = coding {
        out.insert(header::CONTENT_ENCODING, HeaderValue::from_static(coding));
    }
    if coding.is_some() || has_packed(path) {
        out.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    let modified = meta.mtime();
    let (tag, date) = (etag(&meta), date::http(modified));
    let insert = |out: &mut HeaderMap, name: HeaderName, value: String| {
        if let Ok(value) = HeaderValue::try_from(value) {
            out.insert(name, value);
        }
    };
    insert(out, header::ETAG, tag.clone());
    if let Some(date) = &date {
        insert(out, header::LAST_MODIFIED, date.clone());
    }

    let text = |name: HeaderName| headers.get(name).and_then(|v| v.to_str().ok());
    let since = |name| text(name).and_then(date::parse);
    // RFC 9110, 13.2.2: first whether the client's idea of the file still holds, then whether it has it already.
    let stale = match text(header::IF_MATCH) {
        Some(list) => !matches(list, &tag),
        None => since(header::IF_UNMODIFIED_SINCE).is_some_and(|since| modified > since),
    };
    if stale {
        return Err(StatusCode::PRECONDITION_FAILED);
    }
    let unchanged = match text(header::IF_NONE_MATCH) {
        Some(list) => matches(list, &tag),
        None => since(header::IF_MODIFIED_SINCE).is_some_and(|since| modified <= since),
    };
    if unchanged {
        out.remove(header::CONTENT_TYPE);
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        return Ok(response);
    }
    let size = meta.len();
    out.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    let fresh = text(header::IF_RANGE).is_none_or(|v| v == tag || Some(v) == date.as_deref());
    let part = match text(header::RANGE) {
        Some(value) if fresh => range(value, size),
        _ => Part::Whole,
    };
    let (from, len) = match part {
        Part::Whole => (0, size),
        Part::From(from, len) => {
            insert(out, header::CONTENT_RANGE, format!("bytes {from}-{}/{size}", from + len - 1));
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
            (from, len)
        }
        Part::None => {
            insert(out, header::CONTENT_RANGE, format!("bytes */{size}"));
            out.remove(header::CONTENT_TYPE);
            *response.status_mut() = StatusCode::RANGE_NOT_SATISFIABLE;
            return Ok(response);
        }
    };
    let refused = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::PermissionDenied => StatusCode::FORBIDDEN,
        std::io::ErrorKind::NotFound => StatusCode::NOT_FOUND,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let kind = if method == Method::HEAD {
        insert(response.headers_mut(), header::CONTENT_LENGTH, len.to_string());
        Kind::Empty
    } else if size <= SMALL {
        let mut all = Vec::with_capacity(size as usize);
        std::fs::File::open(&file_path).and_then(|f| f.take(size).read_to_end(&mut all)).map_err(refused)?;
        let all = bytes::Bytes::from(all);
        let end = (from + len).min(all.len() as u64);
        Kind::Full(all.slice(from.min(end) as usize..end as usize))
    } else {
        let mut file = tokio::fs::File::open(&file_path).await.map_err(refused)?;
        file.set_max_buf_size(SMALL as usize);
        if from > 0 {
            file.seek(std::io::SeekFrom::Start(from)).await.map_err(refused)?;
        }
        Kind::File { file, left: len }
    };
    *response.body_mut() = Body::new(kind);
    Ok(response)
}

/// Whether another client could get a packed sibling: then caches must know.
fn has_packed(path: &Path) -> bool {
    [".br", ".gz"].iter().any(|ending| {
        let mut sibling = path.as_os_str().to_owned();
        sibling.push(ending);
        std::fs::metadata(&sibling).is_ok_and(|m| m.is_file())
    })
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
