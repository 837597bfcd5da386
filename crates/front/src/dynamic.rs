//! Requests that a script answers: their way into the ring, and what becomes of those that get no answer.

use std::{
    future::poll_fn,
    io,
    net::IpAddr,
    os::unix::ffi::OsStrExt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use hayate_ring::{Exchange, Failure, Field, HeadTooLarge, ResponseHead, Ring, Slot};
use http::{HeaderValue, Method, Response, StatusCode, Version, header, request::Parts};
use http_body::Body as _;
use hyper::body::Incoming;

use crate::{
    Settings,
    body::Body,
    connection::Peer,
    route::Script,
    site::{Backend, Site},
    state::State,
    target::Target,
    translate::translate,
};

/// What the front knows of a request besides its head.
pub(crate) struct Client<'a> {
    pub(crate) peer: &'a Peer,
    pub(crate) addr: Option<IpAddr>,
    pub(crate) https: bool,
    pub(crate) host: &'a str,
    pub(crate) port: Option<u16>,
    pub(crate) target: Target<'a>,
    /// The target's path, decoded and normalised.
    pub(crate) path: &'a [u8],
    pub(crate) id: &'a str,
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
        status: StatusCode::from_u16(status).expect("written here"),
        reason: reason.into(),
        retry_after: status == 503,
        close: false,
    }
}

/// The request body on its way into the ring.
pub(crate) struct Pump {
    incoming: Incoming,
    pending: Bytes,
    received: u64,
    limit: u64,
    state: Arc<State>,
}

enum PumpFailure {
    TooLarge,
    Broken,
}

impl Pump {
    /// Moves what can be moved. Ready when the body is over, one way or another.
    fn poll(&mut self, cx: &mut Context<'_>, exchange: &mut Exchange) -> Poll<Result<(), PumpFailure>> {
        loop {
            if !self.pending.is_empty() {
                match exchange.poll_send(cx, &mut self.pending) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Ok(())) => {}
                    // The worker wants no more of it; hyper deals with the rest.
                    Poll::Ready(Err(_closed)) => return Poll::Ready(Ok(())),
                }
            }
            match Pin::new(&mut self.incoming).poll_frame(cx) {
                Poll::Pending => {
                    self.state.body_waits();
                    return Poll::Pending;
                }
                Poll::Ready(None) => {
                    self.state.serving();
                    exchange.end_request(true);
                    return Poll::Ready(Ok(()));
                }
                Poll::Ready(Some(Err(_))) => {
                    exchange.end_request(false);
                    return Poll::Ready(Err(PumpFailure::Broken));
                }
                Poll::Ready(Some(Ok(frame))) => {
                    self.state.serving();
                    if let Ok(data) = frame.into_data() {
                        self.received += data.len() as u64;
                        if self.limit != 0 && self.received > self.limit {
                            exchange.end_request(false);
                            return Poll::Ready(Err(PumpFailure::TooLarge));
                        }
                        self.pending = data;
                    }
                }
            }
        }
    }
}

/// A script that has sent its head and is still sending its body.
pub(crate) struct Running {
    exchange: Exchange,
    pump: Option<Pump>,
}

impl Running {
    pub(crate) fn new(exchange: Exchange, pump: Option<Pump>) -> Running {
        Running { exchange, pump }
    }

    pub(crate) fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if let Some(pump) = &mut self.pump
            && pump.poll(cx, &mut self.exchange).is_ready()
        {
            self.pump = None;
        }
        // An error here makes hyper cut the connection: part of the answer is out, and the client has to see that it is not whole.
        self.exchange.poll_body(cx).map(|item| item.map(|bytes| bytes.map_err(io::Error::other)))
    }
}

/// Whether sending a request twice does what sending it once does (RFC 9110, 9.2.2).
fn is_idempotent(method: &Method) -> bool {
    matches!(
        *method,
        Method::GET | Method::HEAD | Method::OPTIONS | Method::PUT | Method::DELETE | Method::TRACE
    )
}

/// Whether the whole of the request's body, if it has one, is still to come, so that the request can be submitted again. (A pump
/// that is gone may have dropped bytes that the dead worker's exchange would not take.)
fn is_unspent(pump: &Option<Pump>, has_body: bool) -> bool {
    pump.as_ref().map_or(!has_body, |pump| pump.received == 0)
}

/// Runs a script. The tuple's second half is how long the request waited for a worker.
pub(crate) async fn answer(
    settings: &Settings,
    site: &Site,
    client: &Client<'_>,
    parts: &Parts,
    incoming: Incoming,
    script: &Script,
    state: &Arc<State>,
) -> Result<(Response<Body>, Option<Duration>), NoAnswer> {
    let Backend::Ring { ring, queue_limit, queue_timeout, wake, unavailable } = &site.backend else {
        return Err(no_answer(404, "this site runs no scripts"));
    };
    if let Some(reason) = unavailable() {
        return Err(no_answer(503, reason));
    }
    let limit = settings.limits.body_size;
    let declared =
        parts.headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
    if limit != 0 && declared.is_some_and(|n| n > limit) {
        return Err(NoAnswer {
            close: true,
            ..no_answer(413, "the request's body is larger than body_size")
        });
    }
    let mut pump = (!incoming.is_end_stream()).then(|| Pump {
        incoming,
        pending: Bytes::new(),
        received: 0,
        limit,
        state: Arc::clone(state),
    });
    let has_body = pump.is_some();
    let mut again = is_idempotent(&parts.method);
    let (exchange, head) = loop {
        let mut slot = admit(ring, *queue_limit, *queue_timeout).await?;
        fill(&mut slot, site, client, parts, script)
            .map_err(|HeadTooLarge| no_answer(431, "the request's head does not fit the shared memory"))?;
        let mut exchange = slot.submit(pump.is_some());
        wake();
        match head(&mut exchange, &mut pump, state).await {
            Ok(head) => break (exchange, head),
            Err(NoHead::Pump(PumpFailure::TooLarge)) => {
                return Err(NoAnswer {
                    close: true,
                    ..no_answer(413, "the request's body is larger than body_size")
                });
            }
            Err(NoHead::Pump(PumpFailure::Broken)) => {
                return Err(NoAnswer {
                    close: true,
                    ..no_answer(400, "the request's body broke off or is malformed")
                });
            }
            Err(NoHead::Failure(Failure::WorkerDied { started: false }))
                if again && is_unspent(&pump, has_body) =>
            {
                // Once only: a request that kills two workers would kill them all.
                again = false;
            }
            Err(NoHead::Failure(failure)) => {
                let status = match failure {
                    Failure::WorkerDied { .. } | Failure::Malformed => 502,
                    Failure::RequestTimeout { .. } => 504,
                    Failure::QueueTimeout => 503,
                };
                return Err(no_answer(status, failure.to_string()));
            }
        }
    };
    let waited = exchange.queue_wait();
    if let Some(waited) = waited {
        site.metrics.queue_wait.observe(waited.as_secs_f64());
    }
    let response = translate(site, parts, head, exchange, pump).await;
    Ok((response, waited))
}

async fn admit(ring: &Arc<Ring>, limit: usize, timeout: Duration) -> Result<Slot, NoAnswer> {
    match tokio::time::timeout(timeout, ring.admit(limit)).await {
        Ok(Ok(slot)) => Ok(slot),
        Ok(Err(full)) => Err(no_answer(503, full.to_string())),
        Err(_) => Err(no_answer(503, Failure::QueueTimeout.to_string())),
    }
}

enum NoHead {
    Pump(PumpFailure),
    Failure(Failure),
}

async fn head(
    exchange: &mut Exchange,
    pump: &mut Option<Pump>,
    state: &Arc<State>,
) -> Result<ResponseHead, NoHead> {
    let result = poll_fn(|cx| {
        if let Some(active) = pump {
            match active.poll(cx, exchange) {
                Poll::Pending => {}
                Poll::Ready(Ok(())) => *pump = None,
                Poll::Ready(Err(failure)) => return Poll::Ready(Err(NoHead::Pump(failure))),
            }
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
) -> Result<(), HeadTooLarge> {
    let peer = client.peer;
    slot.put(Field::Method, parts.method.as_str().as_bytes())?;
    slot.put(Field::Target, client.target.whole)?;
    slot.put(Field::Query, client.target.query.unwrap_or_default())?;
    slot.put(Field::Protocol, if parts.version == Version::HTTP_10 { b"HTTP/1.0" } else { b"HTTP/1.1" })?;
    slot.put(Field::DocumentRoot, site.root.as_os_str().as_bytes())?;
    slot.put(Field::ScriptFilename, script.file.as_os_str().as_bytes())?;
    slot.put(Field::ScriptName, &script.name)?;
    slot.put(Field::PathInfo, &script.path_info)?;
    // As nginx sets it once the script is found.
    slot.put(Field::DocumentUri, &script.name)?;
    match client.addr {
        Some(addr) => slot.put(Field::RemoteAddr, addr.to_string().as_bytes())?,
        None => slot.put(Field::RemoteAddr, peer.addr.as_bytes())?,
    }
    slot.put(Field::RemotePort, peer.port.as_bytes())?;
    slot.put(Field::ServerAddr, peer.local_addr.as_bytes())?;
    match client.port {
        Some(port) => slot.put(Field::ServerPort, itoa::Buffer::new().format(port).as_bytes())?,
        None if client.https && client.addr.is_some() => slot.put(Field::ServerPort, b"443")?,
        None => slot.put(Field::ServerPort, peer.local_port.as_bytes())?,
    }
    slot.put(Field::ServerName, client.host.as_bytes())?;
    slot.put(Field::Scheme, if client.https { b"https" } else { b"http" })?;
    let header = |name| parts.headers.get(name).map_or(&b""[..], HeaderValue::as_bytes);
    slot.put(Field::ContentType, header(header::CONTENT_TYPE))?;
    slot.put(Field::ContentLength, header(header::CONTENT_LENGTH))?;
    slot.put(Field::RequestId, client.id.as_bytes())?;
    for (name, value) in passed_on(parts) {
        slot.header(name.as_bytes(), value)?;
    }
    Ok(())
}

/// The headers that scripts see.
fn passed_on(parts: &Parts) -> impl Iterator<Item = (&str, &[u8])> {
    // In the absolute form the target names the host, and Host is to be ignored (RFC 9112, 3.2.2).
    let named = parts.uri.authority().map(|authority| {
        let text = authority.as_str();
        text.rsplit_once('@').map_or(text, |(_user, host)| host).as_bytes()
    });
    parts.headers.iter().filter_map(move |(name, value)| match (name, named) {
        // "X_A" and "X-A" would become the same variable; and HTTP_PROXY is one that libraries trust (httpoxy).
        _ if name.as_str().contains('_') || name == "proxy" => None,
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
            &[("Host", "a"), ("X_Forwarded_For", "1"), ("Proxy", "evil"), ("X-A", "1"), ("X-A", "2")],
        );
        let want = [("host", "a"), ("x-a", "1"), ("x-a", "2")];
        assert_eq!(got, want.map(|(n, v)| (n.to_owned(), v.to_owned())));
    }

    #[test]
    fn the_host_in_an_absolute_target_is_the_host() {
        let want = [("host".to_owned(), "b.test:81".to_owned())];
        assert_eq!(seen("http://b.test:81/x", &[("Host", "a")]), want);
        assert_eq!(seen("http://user@b.test:81/x", &[("Host", "a")]), want);
        assert_eq!(seen("/x", &[("Host", "b.test:81")]), want);
    }

    #[test]
    fn only_idempotent_requests_go_to_a_second_worker_and_only_with_their_whole_body() {
        assert!(is_idempotent(&Method::GET) && is_idempotent(&Method::PUT) && !is_idempotent(&Method::POST));
        assert!(is_unspent(&None, false));
        assert!(!is_unspent(&None, true), "the pump is gone, and what it held with it");
    }
}
