//! A script's answer on its way out of the ring: head, body, and the file that it asks to send instead.

use std::{
    ffi::OsStr,
    future::poll_fn,
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use hayate_ring::{Exchange, ResponseHead, Ring};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header, request::Parts};

use crate::{
    body::{Body, Kind},
    dynamic::Client,
    files::{self, NoFile},
    promise::Promise,
    relay::Relay,
    request_body::Pump,
    route,
    route::{Found, Named},
    site::Site,
};

/// Headers that are between two neighbours only (RFC 9110, 7.6.1); hyper writes its own.
fn is_hop_by_hop(name: &HeaderName) -> bool {
    matches!(
        *name,
        header::CONNECTION | header::TRANSFER_ENCODING | header::UPGRADE | header::TE | header::TRAILER
    ) || name == "keep-alive"
        || name == "proxy-connection"
}

/// Makes the answer of what the worker wrote.
pub(crate) async fn translate(
    site: &Arc<Site>,
    ring: &Arc<Ring>,
    client: &Client<'_>,
    parts: &Parts,
    head: ResponseHead,
    mut exchange: Exchange,
    pump: Option<Pump>,
) -> Response<Body> {
    let mut response = Response::new(Body::new(Kind::Empty));
    // hyper sends no informational answers for us, and one alone would not be an answer.
    let status = StatusCode::from_u16(head.status).ok().filter(|status| !status.is_informational());
    let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    *response.status_mut() = status;
    let standard = status.canonical_reason().map(str::as_bytes);
    // A code without a standard phrase gets an empty one, which is what HTTP asks for.
    let reason = head.reason.clone().or(standard.is_none().then(Bytes::new));
    if let Some(reason) = reason
        && standard != Some(&reason[..])
        && let Ok(reason) = hyper::ext::ReasonPhrase::try_from(reason)
    {
        response.extensions_mut().insert(reason);
    }
    let mut file = None;
    let mut length = None;
    let headers = response.headers_mut();
    for (name, value) in head.headers() {
        let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_maybe_shared(value))
        else {
            let name = String::from_utf8_lossy(name);
            tracing::warn!(
                app = site.name,
                request = client.id,
                "the script's response header {name:?} was dropped: its name or value is malformed"
            );
            continue;
        };
        if is_hop_by_hop(&name) {
            continue;
        }
        if name == header::CONTENT_TYPE {
            // One type, the last one; an empty one means none.
            if value.is_empty() {
                headers.remove(name);
            } else {
                headers.insert(name, value);
            }
        } else if name == header::CONTENT_LENGTH {
            let digits = value.to_str().ok().filter(|v| v.bytes().all(|b| b.is_ascii_digit()));
            length = digits.and_then(|v| v.parse::<u64>().ok());
        } else if let Some(roots) = &site.sendfile_roots
            && (name == "x-accel-redirect" || name == "x-sendfile")
        {
            file = Some((roots, name == "x-sendfile", value));
        } else {
            // It takes some 24,000; PHP's part of the shared memory does not hold that many today.
            if headers.try_append(name, value).is_err() {
                tracing::error!(
                    app = site.name,
                    request = client.id,
                    "the script sent more headers than an answer can have"
                );
                break;
            }
        }
    }
    if let Some((roots, absolute, path)) = file {
        exchange.discard();
        return send_file(site, parts, response, roots, absolute, &path).await;
    }
    if status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED {
        if status == StatusCode::NOT_MODIFIED {
            response.headers_mut().remove(header::CONTENT_TYPE);
        }
        exchange.discard();
        return response;
    }
    if parts.method == Method::HEAD {
        // What the script would have sent is unknown, unless it says so.
        if let Some(length) = length {
            response.headers_mut().insert(header::CONTENT_LENGTH, length.into());
        }
        exchange.discard();
        return response;
    }
    let kind = match exchange.remaining() {
        Some(left) => whole(&mut exchange, left).await.map(Kind::Full),
        None => None,
    };
    let kind =
        kind.unwrap_or_else(|| Kind::Script(Relay::start(Arc::clone(ring), exchange, pump, client.keep)));
    *response.body_mut() = match (length, &kind) {
        (Some(said), Kind::Full(bytes)) if said == bytes.len() as u64 => Body::new(kind),
        (Some(said), _) => {
            response.headers_mut().insert(header::CONTENT_LENGTH, said.into());
            Body::promised(kind, Promise::new(said, &site.name, client.id))
        }
        (None, _) => Body::new(kind),
    };
    response
}

/// The whole body of a complete answer. `None` should never be: the answer was there.
async fn whole(exchange: &mut Exchange, left: u64) -> Option<Bytes> {
    if left == 0 {
        return Some(Bytes::new());
    }
    let first = poll_fn(|cx| exchange.poll_body(cx)).await?.ok()?;
    (first.len() as u64 == left).then_some(first)
}

/// X-Accel-Redirect (a path of the site) and X-Sendfile (a path of the machine, below the root or a configured directory).
async fn send_file(
    site: &Arc<Site>,
    parts: &Parts,
    script: Response<Body>,
    roots: &[PathBuf],
    absolute: bool,
    path: &HeaderValue,
) -> Response<Body> {
    let method = if parts.method == Method::HEAD { Method::HEAD } else { Method::GET };
    let served = if absolute {
        let mut roots = roots.to_vec();
        roots.push(site.place.path().to_owned());
        let path = PathBuf::from(OsStr::from_bytes(path.as_bytes()));
        let allowed = move |path: &Path| roots.iter().any(|root| path.starts_with(root));
        files::serve_absolute(&method, &parts.headers, site, path, allowed).await
    } else {
        match inside_site(site, path).await {
            Ok(Some(file)) => files::serve(&method, &parts.headers, site, file).await,
            Ok(None) => Err(NoFile::Status(StatusCode::NOT_FOUND)),
            Err(error) => Err(NoFile::Hangs(error)),
        }
    };
    let served = served.map_err(|no_file| match no_file {
        NoFile::Hangs(error) => {
            tracing::error!(app = site.name, "the script asked to send {path:?}: {error}");
            StatusCode::SERVICE_UNAVAILABLE
        }
        NoFile::Status(status) => {
            if status == StatusCode::NOT_FOUND {
                tracing::error!(
                    app = site.name,
                    "the script asked to send {path:?}, which is not a file of the site; X-Sendfile needs a path below \
                     the document root or one of sendfile_roots"
                );
            }
            status
        }
    });
    match served {
        Ok(mut response) => {
            // The script knows its file better: type, disposition, caching, cookies.
            let mut last: Option<HeaderName> = None;
            let (mut script_parts, _) = script.into_parts();
            for (name, value) in script_parts.headers.drain() {
                match name {
                    Some(name) => {
                        response.headers_mut().insert(name.clone(), value);
                        last = Some(name);
                    }
                    None => {
                        if let Some(name) = &last {
                            response.headers_mut().append(name.clone(), value);
                        }
                    }
                }
            }
            response
        }
        Err(status) => {
            let mut response = Response::new(Body::new(Kind::Full(crate::pages::error(status, None))));
            *response.status_mut() = status;
            html(response.headers_mut());
            response
        }
    }
}

pub(crate) fn html(headers: &mut HeaderMap) {
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
}

/// The file that a path of the site names.
async fn inside_site(site: &Arc<Site>, path: &HeaderValue) -> io::Result<Option<Named>> {
    let path = path.as_bytes().split(|b| *b == b'?').next().and_then(route::normalise);
    let Some(path) = path else { return Ok(None) };
    Ok(match route::resolve(site, &path).await? {
        Found::File(file) => Some(file),
        _ => None,
    })
}
