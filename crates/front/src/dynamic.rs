//! Requests that a script answers: their way into the ring, and what becomes of those that get no answer.

use std::{
    future::poll_fn, io::ErrorKind, os::unix::ffi::OsStrExt, pin::pin, sync::Arc, task::Poll, time::Duration,
};

use hayate_ring::{Exchange, Failure, Field, HeadTooLarge, ResponseHead, Ring, Slot};
use http::{HeaderValue, Method, Response, StatusCode, Version, header, request::Parts};
use hyper::body::Incoming;

use crate::{
    Settings,
    body::Body,
    connection::Peer,
    forwarded,
    request_body::{BodyFailure, Keep, Pump},
    route::Script,
    site::{Backend, Site},
    state::State,
    target::Target,
    translate::translate,
};

/// What the front knows of a request besides its head.
pub(crate) struct Client<'a> {
    pub(crate) peer: &'a Peer,
    /// Where a trusted proxy says that the request comes from.
    pub(crate) from: Option<forwarded::Client>,
    pub(crate) https: bool,
    pub(crate) host: &'a str,
    pub(crate) port: Option<u16>,
    pub(crate) target: Target<'a>,
    /// The target's path, decoded and normalised.
    pub(crate) path: &'a [u8],
    pub(crate) id: &'a str,
    /// Where bodies wait, and how much of them may.
    pub(crate) keep: Keep<'a>,
}

/// Why there is no answer of the script's.
pub(crate) struct NoAnswer {
    pub(crate) status: StatusCode,
    /// For the log, and in development mode for the page.
    pub(crate) reason: String,
    pub(crate) retry_after: bool,
    /// The connection cannot go on.
    pub(crate) close: bool,
}

fn no_answer(status: u16, reason: impl Into<String>) -> NoAnswer {
    NoAnswer {
        status: StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
        reason: reason.into(),
        retry_after: status == 503,
        close: false,
    }
}

/// Whether sending a request twice does what sending it once does (RFC 9110, 9.2.2).
fn is_idempotent(method: &Method) -> bool {
    matches!(
        *method,
        Method::GET | Method::HEAD | Method::OPTIONS | Method::PUT | Method::DELETE | Method::TRACE
    )
}

/// Runs a script. The tuple's second half is how long the request waited for a worker.
pub(crate) async fn answer(
    settings: &Settings,
    site: &Arc<Site>,
    client: &Client<'_>,
    parts: &Parts,
    incoming: Incoming,
    script: &Script,
    state: &Arc<State>,
) -> Result<(Response<Body>, Option<Duration>), NoAnswer> {
    let Backend::Ring { ring, queue_limit, queue_timeout, retry, unavailable } = &site.backend else {
        return Err(no_answer(404, "this site runs no scripts"));
    };
    if let Some(reason) = unavailable() {
        return Err(no_answer(503, reason));
    }
    let limit = settings.limits.body_size;
    let declared =
        parts.headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
    if limit != 0 && declared.is_some_and(|n| n > limit) {
        return Err(spoilt(BodyFailure::TooLarge));
    }
    let mut pump =
        Pump::begin(incoming, &parts.method, state, limit, ring, client.keep).await.map_err(spoilt)?;
    let mut again = *retry && is_idempotent(&parts.method);
    let mut moves = 3;
    let (exchange, head) = loop {
        let mut slot = admit(ring, *queue_limit, *queue_timeout).await?;
        let length = pump.as_ref().and_then(Pump::len);
        fill(&mut slot, site, client, parts, script, length)
            .map_err(|HeadTooLarge| no_answer(431, "the request's head does not fit the shared memory"))?;
        let mut exchange = slot.submit(pump.is_some());
        match head(&mut exchange, &mut pump, state).await {
            Ok(head) => break (exchange, head),
            Err(NoHead::Body(failure)) => return Err(spoilt(failure)),
            Err(NoHead::Failure(Failure::WorkerDied { started: false }))
                if again && pump.as_mut().is_none_or(Pump::again) =>
            {
                // Once only: a request that kills two workers would kill them all.
                again = false;
            }
            // As if it had not been submitted yet. Each time a generation has ended, so a few times are plenty.
            Err(NoHead::Failure(Failure::NotTaken)) if moves > 0 && pump.as_mut().is_none_or(Pump::again) => {
                moves -= 1;
            }
            Err(NoHead::Failure(failure)) => {
                let status = match failure {
                    Failure::WorkerDied { .. } | Failure::Malformed => 502,
                    Failure::RequestTimeout { .. } => 504,
                    Failure::QueueTimeout | Failure::NotTaken => 503,
                };
                return Err(no_answer(status, failure.to_string()));
            }
        }
    };
    let waited = exchange.queue_wait();
    if let Some(waited) = waited {
        site.metrics.queue_wait.observe(waited.as_secs_f64());
    }
    let pump = pump.filter(|pump| !pump.is_done());
    let response = translate(site, ring, client, parts, head, exchange, pump).await;
    Ok((response, waited))
}

/// There is no answer because the request's body is not what it should be.
fn spoilt(failure: BodyFailure) -> NoAnswer {
    let (status, reason) = match failure {
        BodyFailure::TooLarge => (413, "the request's body is larger than body_size".into()),
        BodyFailure::Broken => (400, "the request's body broke off or is malformed".into()),
        BodyFailure::Storage(error)
            if matches!(
                error.kind(),
                ErrorKind::QuotaExceeded | ErrorKind::StorageFull | ErrorKind::TimedOut
            ) =>
        {
            (503, format!("the request's body cannot be kept in a temporary file: {error}"))
        }
        BodyFailure::Storage(error) => {
            (500, format!("the request's body cannot be kept in a temporary file: {error}; see TMPDIR"))
        }
    };
    NoAnswer { close: true, ..no_answer(status, reason) }
}

async fn admit(ring: &Arc<Ring>, limit: usize, timeout: Duration) -> Result<Slot, NoAnswer> {
    let mut admitted = pin!(ring.admit(limit));
    // Nearly always there is a slot, and no need of a timer.
    if let Some(admitted) = poll_fn(|cx| Poll::Ready(ready_now(admitted.as_mut().poll(cx)))).await {
        return admitted.map_err(|full| no_answer(503, full.to_string()));
    }
    match tokio::time::timeout(timeout, admitted).await {
        Ok(Ok(slot)) => Ok(slot),
        Ok(Err(full)) => Err(no_answer(503, full.to_string())),
        Err(_) => Err(no_answer(503, Failure::QueueTimeout.to_string())),
    }
}

fn ready_now<T>(poll: Poll<T>) -> Option<T> {
    match poll {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

enum NoHead {
    Body(BodyFailure),
    Failure(Failure),
}

async fn head(
    exchange: &mut Exchange,
    pump: &mut Option<Pump>,
    state: &Arc<State>,
) -> Result<ResponseHead, NoHead> {
    let result = poll_fn(|cx| {
        if let Some(pump) = pump
            && !pump.is_done()
            && let Poll::Ready(Err(failure)) = pump.poll(cx, exchange)
        {
            return Poll::Ready(Err(NoHead::Body(failure)));
        }
        exchange.poll_head(cx).map_err(NoHead::Failure)
    })
    .await;
    state.serving();
    result
}

fn fill(
    slot: &mut Slot,
    site: &Site,
    client: &Client<'_>,
    parts: &Parts,
    script: &Script,
    length: Option<u64>,
) -> Result<(), HeadTooLarge> {
    let peer = client.peer;
    slot.put(Field::Method, parts.method.as_str().as_bytes())?;
    slot.put(Field::Target, client.target.whole)?;
    slot.put(Field::Query, client.target.query.unwrap_or_default())?;
    slot.put(Field::Protocol, if parts.version == Version::HTTP_10 { b"HTTP/1.0" } else { b"HTTP/1.1" })?;
    slot.put(Field::DocumentRoot, site.place.path().as_os_str().as_bytes())?;
    slot.put(Field::ScriptFilename, script.file.as_os_str().as_bytes())?;
    slot.put(Field::ScriptName, &script.name)?;
    slot.put(Field::PathInfo, &script.path_info)?;
    // As nginx sets it once the script is found.
    slot.put(Field::DocumentUri, &script.name)?;
    match client.from {
        Some(from) => {
            slot.put(Field::RemoteAddr, from.addr.to_string().as_bytes())?;
            // The peer's belongs to another address.
            let port = from.port.map(|port| port.to_string()).unwrap_or_default();
            slot.put(Field::RemotePort, port.as_bytes())?;
        }
        None => {
            slot.put(Field::RemoteAddr, peer.addr.as_bytes())?;
            slot.put(Field::RemotePort, peer.port.as_bytes())?;
        }
    }
    slot.put(Field::ServerAddr, peer.local_addr.as_bytes())?;
    match client.port {
        Some(port) => slot.put(Field::ServerPort, itoa::Buffer::new().format(port).as_bytes())?,
        None if client.https && client.from.is_some() => slot.put(Field::ServerPort, b"443")?,
        None => slot.put(Field::ServerPort, peer.local_port.as_bytes())?,
    }
    slot.put(Field::ServerName, client.host.as_bytes())?;
    slot.put(Field::Scheme, if client.https { b"https" } else { b"http" })?;
    let header = |name| parts.headers.get(name).map_or(&b""[..], HeaderValue::as_bytes);
    slot.put(Field::ContentType, header(header::CONTENT_TYPE))?;
    match length {
        // Known although the client did not say it: as nginx, which keeps bodies in the same way.
        Some(length) => slot.put(Field::ContentLength, itoa::Buffer::new().format(length).as_bytes())?,
        None => slot.put(Field::ContentLength, header(header::CONTENT_LENGTH))?,
    }
    slot.put(Field::RequestId, client.id.as_bytes())?;
    for (name, value) in passed_on(parts) {
        slot.header(name.as_bytes(), value)?;
    }
    Ok(())
}

/// The headers that scripts see.
fn passed_on(parts: &Parts) -> impl Iterator<Item = (&str, &[u8])> {
    // In the absolute form the target names the host, and Host is to be ignored (RFC 9112, 3.2.2).
    let named = parts.uri.authority().map(|authority| authority.as_str().as_bytes());
    parts.headers.iter().filter_map(move |(name, value)| match (name, named) {
        // As nginx does it: "X_A", "X.A" and "X-A" may become the same variable. And HTTP_PROXY is one that libraries trust (httpoxy).
        _ if !name.as_str().bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') || name == "proxy" => {
            None
        }
        (&header::HOST, Some(host)) => Some((name.as_str(), host)),
        _ => Some((name.as_str(), value.as_bytes())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(target: &str, headers: &[(&str, &str)]) -> Vec<(String, String)> {
        let mut request = http::Request::builder().uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        passed_on(&parts).map(|(name, value)| (name.to_owned(), text(value))).collect()
    }

    #[test]
    fn scripts_do_not_see_headers_that_pass_for_others() {
        let got = seen(
            "/",
            &[
                ("Host", "a"),
                ("X_Forwarded_For", "1"),
                ("X.Forwarded.For", "2"),
                ("Proxy", "evil"),
                ("X-A", "1"),
                ("X-A", "2"),
            ],
        );
        let want = [("host", "a"), ("x-a", "1"), ("x-a", "2")];
        assert_eq!(got, want.map(|(n, v)| (n.to_owned(), v.to_owned())));
    }

    #[test]
    fn the_host_in_an_absolute_target_is_the_host() {
        let want = [("host".to_owned(), "b.test:81".to_owned())];
        assert_eq!(seen("http://b.test:81/x", &[("Host", "a")]), want);
        assert_eq!(seen("/x", &[("Host", "b.test:81")]), want);
    }

    #[test]
    fn only_idempotent_requests_go_to_a_second_worker() {
        assert!(is_idempotent(&Method::GET) && is_idempotent(&Method::PUT) && !is_idempotent(&Method::POST));
    }
}
