//! Requests that a script answers: their way into the ring, and what becomes of those that get no answer.

use std::{
    future::poll_fn, io::ErrorKind, net::IpAddr, pin::pin, rc::Rc, sync::Arc, task::Poll, time::Duration,
};

use hayate_http::{Exchange, Head, Version};
use hayate_ring::{Exchange as Job, Failure, HeadTooLarge, Refused, ResponseHead, Ring, Slot};

use crate::{
    Settings,
    anew::{self, Anew},
    by_address,
    connection::Peer,
    field::Field,
    forwarded,
    reply::Reply,
    request_body::{BodyFailure, Keep, Leaving, Pump},
    route::Script,
    site::{Backend, Site},
    target::Target,
    thread::{Held, Thread},
    translate::{informational, translate},
};

/// What the front knows of a request.
#[derive(Clone, Copy)]
pub(crate) struct Client<'a> {
    pub(crate) thread: &'a Thread,
    /// What was configured when it came.
    pub(crate) snapshot: &'a Held,
    /// By what its site was chosen then: the host, empty if it names none, and the path, decoded and normalised.
    pub(crate) name: &'a str,
    /// What counts where something else than `Host` names the host: a proxy that is believed, or the target (RFC 9112, 3.2.2).
    pub(crate) in_place_of_host: Option<&'a [u8]>,
    pub(crate) asked: &'a [u8],
    pub(crate) head: &'a Head,
    pub(crate) peer: &'a Peer,
    /// Where a trusted proxy says that the request comes from.
    pub(crate) from: Option<forwarded::Client>,
    /// Who is counted where there is a limit for each; `None`: a proxy of many visitors, or nobody knows.
    pub(crate) visitor: Option<IpAddr>,
    /// Whether rules have counted it, which then judge it once more.
    pub(crate) counted: bool,
    /// What counts it there, as one of its visitor's requests.
    pub(crate) turn: Option<&'a Arc<by_address::Held>>,
    pub(crate) https: bool,
    pub(crate) host: &'a str,
    pub(crate) port: Option<u16>,
    pub(crate) target: Target<'a>,
    /// The same path, or what a rule has made of it.
    pub(crate) path: &'a [u8],
    pub(crate) id: &'a str,
    /// Where bodies wait, and how much of them may.
    pub(crate) keep: Keep<'a>,
    /// The greatest body, in bytes, 0 for any.
    pub(crate) max_body: u64,
    /// How long PHP may run, where that is not what holds for the site.
    pub(crate) timeout: Option<Duration>,
}

impl Client<'_> {
    /// Whether it says who the visitor is: by a password, a token or a certificate.
    pub(crate) fn is_known(&self) -> bool {
        let shown = |(name, value): &(&str, String)| *name == CLIENT_VERIFY && value == VERIFIED;
        self.head.get(b"authorization").is_some() || self.peer.variables.iter().any(shown)
    }

    /// The values of a header, by its name in lower case. Of the host it is what has chosen the site: a host has many spellings (`A.test`,
    /// `a.test.`, `a.test:80`), which are not to lead past a rule.
    pub(crate) fn header<'a>(&'a self, name: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let is_host = name == b"host";
        let host = (is_host && !self.name.is_empty()).then_some(self.name.as_bytes());
        host.into_iter().chain(self.head.all(name).filter(move |_| !is_host))
    }
}

/// What scripts are told of a client's certificate, by nginx's name, and what of one that is good.
pub(crate) const CLIENT_VERIFY: &str = "SSL_CLIENT_VERIFY";
/// See [`CLIENT_VERIFY`].
pub(crate) const VERIFIED: &str = "SUCCESS";

/// Why there is no answer of the script's, or of whoever else was to give one.
pub(crate) enum NoAnswer {
    /// Nobody waits for one.
    Left,
    Failed(Failed),
}

/// What is answered instead.
pub(crate) struct Failed {
    pub(crate) status: u16,
    /// For the log, and in development mode for the page.
    pub(crate) reason: String,
    pub(crate) retry_after: bool,
    /// The connection cannot go on.
    pub(crate) close: bool,
}

/// A status and the reason for it. With 503 clients are asked to come again.
pub(crate) fn no_answer(status: u16, reason: impl Into<String>) -> NoAnswer {
    NoAnswer::Failed(Failed { status, reason: reason.into(), retry_after: status == 503, close: false })
}

/// Whether sending a request twice does what sending it once does (RFC 9110, 9.2.2).
fn is_idempotent(method: &[u8]) -> bool {
    matches!(method, b"GET" | b"HEAD" | b"OPTIONS" | b"PUT" | b"DELETE" | b"TRACE")
}

/// Runs a script. The tuple's second half is how long the request waited for a worker.
pub(crate) async fn answer(
    settings: &Settings,
    site: &Arc<Site>,
    client: &Client<'_>,
    exchange: &mut Exchange<'_>,
    script: &Script,
) -> Result<(Box<Reply>, Option<Duration>), NoAnswer> {
    let Backend::Ring { ring, retry, streams_bodies, unavailable, .. } = site.runs(script) else {
        return Err(no_answer(404, "this site runs no scripts"));
    };
    if let Some(reason) = unavailable() {
        return Err(no_answer(503, reason));
    }
    let limit = client.max_body;
    if limit != 0 && exchange.body_len().is_some_and(|n| n > limit) {
        return Err(spoilt(BodyFailure::TooLarge));
    }
    let streams = *streams_bodies && client.head.method() != b"POST";
    let mut pump =
        Pump::begin(exchange, limit, streams.then_some(ring), client.keep).await.map_err(spoilt)?;
    let mut again = *retry && is_idempotent(client.head.method());
    let mut moves = 3;
    let mut seen = Rc::clone(client.snapshot);
    let mut moved = None;
    let wanted = client.head.version() >= Version::Http2 || settings.early_hints_http1;
    let (job, head, site, ring) = loop {
        let now = client.thread.snapshot();
        if !Rc::ptr_eq(&now, &seen) {
            seen = now;
            // It is seldom, and no request is to be larger for it.
            match Box::pin(anew::routed(client, exchange, &seen)).await? {
                Anew::Script(anew) if !site.has_the_user_of(&anew.site) => {
                    return Err(no_answer(503, "what answers here belongs to another user since it came"));
                }
                Anew::Script(anew) => moved = Some(anew),
                Anew::Answer(reply) => return Ok((reply, None)),
            }
        }
        let as_moved;
        let (site, script, client) = match &moved {
            None => (site, script, client),
            Some(moved) => {
                as_moved = moved.client(client);
                (&moved.site, &*moved.script, &as_moved)
            }
        };
        let Backend::Ring { ring, queue_limit, queue_timeout, unavailable, lacking, .. } = site.runs(script)
        else {
            return Err(no_answer(503, "this site runs no scripts any more"));
        };
        if moved.is_some()
            && client.max_body != 0
            && pump.as_ref().and_then(|pump| pump.len()).is_some_and(|n| n > client.max_body)
        {
            return Err(spoilt(BodyFailure::TooLarge));
        }
        let hints = Hints { site, client, wanted };
        let no_worker = |why: String| match lacking() {
            Some(lacking) => no_answer(503, format!("{why}: {lacking}")),
            None => no_answer(503, why),
        };
        let mut slot = admit(exchange, ring, *queue_limit, *queue_timeout, no_worker).await?;
        // Each time somebody has said what is to be served, so a few times are plenty.
        if moves > 0 && !Rc::ptr_eq(&client.thread.snapshot(), &seen) {
            moves -= 1;
            continue;
        }
        // It may have become so while this was in line.
        if ring.successor().is_none()
            && let Some(reason) = unavailable()
        {
            return Err(no_answer(503, reason));
        }
        let length = pump.as_ref().and_then(|pump| pump.len());
        fill(&mut slot, client, script, length)
            .map_err(|HeadTooLarge| no_answer(431, "the request's head does not fit the shared memory"))?;
        if let Some(timeout) = client.timeout {
            slot.set_timeout(timeout);
        }
        if let Some(turn) = client.turn {
            slot.keep(Arc::clone(turn) as _);
        }
        if pump.as_ref().is_some_and(|pump| pump.is_whole()) {
            slot.set_repeatable();
        }
        let mut job = slot.submit(pump.is_some());
        match head(exchange, &mut job, &mut pump, &hints).await {
            Ok(head) => break (job, head, site, ring),
            Err(NoHead::Left) => return Err(NoAnswer::Left),
            Err(NoHead::Body(failure)) => return Err(spoilt(failure)),
            Err(NoHead::Failure(Failure::WorkerDied { started: false }))
                if again && pump.as_mut().is_none_or(|pump| pump.again()) =>
            {
                // Once only: a request that kills two workers would kill them all.
                again = false;
            }
            // As if it had not been submitted yet. Each time a generation has ended, so a few times are plenty.
            Err(NoHead::Failure(Failure::NotTaken))
                if moves > 0 && pump.as_mut().is_none_or(|pump| pump.again()) =>
            {
                moves -= 1;
            }
            Err(NoHead::Failure(Failure::Unavailable)) => {
                let reason = unavailable().unwrap_or_else(|| Failure::Unavailable.to_string());
                return Err(no_answer(503, reason));
            }
            Err(NoHead::Failure(failure @ Failure::QueueTimeout)) => {
                return Err(no_worker(failure.to_string()));
            }
            Err(NoHead::Failure(failure)) => {
                let status = match failure {
                    Failure::WorkerDied { .. } | Failure::Malformed => 502,
                    Failure::RequestTimeout { .. } => 504,
                    Failure::QueueTimeout | Failure::NotTaken | Failure::Unavailable => 503,
                };
                return Err(no_answer(status, failure.to_string()));
            }
        }
    };
    let waited = job.queue_wait();
    if let Some(waited) = waited {
        site.metrics.queue_wait.observe(waited.as_secs_f64());
    }
    let pump = pump.filter(|pump| !pump.is_done());
    let reply = translate(site, ring, client, head, job, pump).await;
    Ok((reply, waited))
}

/// There is no answer because the request's body is not what it should be.
pub(crate) fn spoilt(failure: BodyFailure) -> NoAnswer {
    let (status, reason) = match failure {
        BodyFailure::TooLarge => {
            (413, "the request's body is larger than body_size, or max_body of a rule".into())
        }
        BodyFailure::Left => return NoAnswer::Left,
        BodyFailure::Malformed(why) => (400, format!("the request's body is malformed: {why}")),
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
    NoAnswer::Failed(Failed { status, reason, retry_after: status == 503, close: true })
}

async fn admit(
    exchange: &mut Exchange<'_>,
    ring: &Arc<Ring>,
    limit: usize,
    timeout: Duration,
    no_worker: impl Fn(String) -> NoAnswer,
) -> Result<Slot, NoAnswer> {
    let mut admitted = pin!(ring.admit(limit));
    // Nearly always there is a slot, and no need of a timer.
    let mut late = None;
    poll_fn(|cx| {
        if let Poll::Ready(admitted) = admitted.as_mut().poll(cx) {
            return Poll::Ready(admitted.map_err(|refused| match refused {
                Refused::QueueFull => no_worker(refused.to_string()),
                Refused::Stopped => no_answer(503, refused.to_string()),
            }));
        }
        let late = late.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        if late.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(no_worker(Failure::QueueTimeout.to_string())));
        }
        exchange.poll_gone(cx).map(|()| Err(NoAnswer::Left))
    })
    .await
}

enum NoHead {
    /// Nobody waits for it.
    Left,
    Body(BodyFailure),
    Failure(Failure),
}

/// What goes before the answer.
struct Hints<'a> {
    site: &'a Site,
    client: &'a Client<'a>,
    /// Whether this client is to get any.
    wanted: bool,
}

impl Hints<'_> {
    /// Whether something is to be flushed.
    fn send(&self, exchange: &mut Exchange<'_>, early: &ResponseHead) -> bool {
        if self.wanted
            && let Some(answer) = informational(self.site, self.client, early)
        {
            exchange.inform(&answer);
        }
        self.wanted
    }
}

async fn head(
    exchange: &mut Exchange<'_>,
    job: &mut Job,
    pump: &mut Option<Box<Pump>>,
    hints: &Hints<'_>,
) -> Result<ResponseHead, NoHead> {
    let (mut informed, mut leaving) = (false, Leaving::default());
    poll_fn(|cx| {
        if let Some(pump) = pump
            && !pump.is_done()
            && let Poll::Ready(Err(failure)) = pump.poll(cx, exchange, job)
        {
            return Poll::Ready(Err(NoHead::Body(failure)));
        }
        let head = job.poll_head(cx);
        while let Some(early) = job.take_informational().map_err(NoHead::Failure)? {
            informed |= hints.send(exchange, &early);
        }
        // If it fails the client has left, which the next line hears.
        let _ = informed.then(|| exchange.poll_flush(cx));
        match head {
            Poll::Pending => leaving.poll(cx, exchange, pump.as_deref(), job).map(|()| Err(NoHead::Left)),
            Poll::Ready(head) => Poll::Ready(head.map_err(NoHead::Failure)),
        }
    })
    .await
}

fn fill(
    slot: &mut Slot,
    client: &Client<'_>,
    script: &Script,
    length: Option<u64>,
) -> Result<(), HeadTooLarge> {
    let (peer, head) = (client.peer, client.head);
    slot.put(Field::Method, head.method())?;
    slot.put(Field::Target, client.target.whole)?;
    slot.put(Field::Query, client.target.query.unwrap_or_default())?;
    slot.put(Field::Protocol, head.version().name().as_bytes())?;
    slot.put_all(&script.records)?;
    if client.from.is_none() && client.port.is_none() && client.https == peer.https {
        slot.put_all(peer.records())?;
    } else {
        fill_ends(slot, client)?;
    }
    slot.put(Field::ServerName, client.host.as_bytes())?;
    slot.put(Field::ContentType, head.get(b"content-type").unwrap_or_default())?;
    match length {
        // Known although the client did not say it: as nginx, which keeps bodies in the same way.
        Some(length) => slot.put(Field::ContentLength, itoa::Buffer::new().format(length).as_bytes())?,
        None => slot.put(Field::ContentLength, head.get(b"content-length").unwrap_or_default())?,
    }
    slot.put(Field::RequestId, client.id.as_bytes())?;
    for (name, value) in &peer.variables {
        slot.variable(name.as_bytes(), value.as_bytes())?;
    }
    for (name, value) in passed_on(head, client.in_place_of_host) {
        slot.header(name, value)?;
    }
    Ok(())
}

/// Both ends of a request that came by a proxy.
fn fill_ends(slot: &mut Slot, client: &Client<'_>) -> Result<(), HeadTooLarge> {
    let peer = client.peer;
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
    slot.put(Field::Scheme, if client.https { b"https" } else { b"http" })
}

/// The headers that scripts see. `named`: see [`Client::in_place_of_host`].
fn passed_on<'a>(
    head: &'a Head,
    named: Option<&'a [u8]>,
) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
    // In lower case, as all names are.
    let plain = |name: &[u8]| name.iter().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-'));
    head.fields().filter_map(move |field| match (field.name, named) {
        // As nginx does it: "X_A", "X.A" and "X-A" may become the same variable. And HTTP_PROXY is one that libraries trust (httpoxy).
        (name, _) if !plain(name) || name == b"proxy" => None,
        (b"host", Some(host)) => Some((field.name, host)),
        _ => Some((field.name, field.value)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(target: &str, headers: &[(&str, &str)]) -> Vec<(String, String)> {
        let fields: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let head = format!("GET {target} HTTP/1.1\r\n{fields}\r\n");
        let head = Head::parse(head.as_bytes(), &hayate_http::Limits::default()).unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let named = Target::parse(head.target()).unwrap().authority;
        passed_on(&head, named).map(|(name, value)| (text(name), text(value))).collect()
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
        assert!(is_idempotent(b"GET") && is_idempotent(b"PUT") && !is_idempotent(b"POST"));
    }
}
