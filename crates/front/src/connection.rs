//! Connections: accepting, timeouts, and a request's way through the front.
//!
//! Timeouts are coarse on purpose: each connection keeps one deadline in seconds, and one task looks at all of them once a second, while
//! there are connections. An idle front has no wake-ups, and a request costs no timer.

use std::{
    collections::HashMap,
    convert::Infallible,
    io,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use http::{HeaderValue, Method, Request, Response, StatusCode, Version, header};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{Notify, Semaphore, watch},
    task::AbortHandle,
};

use crate::{
    Front, Limits, Settings,
    access_log::Line,
    body::{Body, Finish, Kind},
    dynamic::{self, Client, NoAnswer},
    files, forwarded,
    guard::{Guard, REFUSED, Refusal},
    listen::Listener,
    pages, route,
    route::Target,
    site::Site,
};

/// Seconds since the process began, from 1.
pub(crate) fn seconds() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_secs() + 1
}

/// A deadline in [`seconds`], rounded up: never earlier than asked.
fn after(limit: Duration) -> u64 {
    seconds() + limit.as_secs_f64().ceil().max(1.0) as u64
}

#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Waiting {
    /// For our own answer: no deadline here, workers have theirs.
    Nothing,
    Idle,
    Head,
    Body,
    Linger,
}

/// What a connection waits for, and until when.
pub(crate) struct State {
    waiting: AtomicU8,
    /// For what it waits for; in [`seconds`], 0: none.
    deadline: AtomicU64,
    /// For the client to take bytes, beside all else: an answer's end may be written long after it was handed over. As above.
    write_deadline: AtomicU64,
    /// The guard holds the beginning of a head. While a request is being served no clock runs for the next one.
    head_begun: AtomicBool,
    refusal: OnceLock<Refusal>,
    /// What the client still sends is read and thrown away before closing, so that it can read the answer.
    linger: AtomicBool,
    limits: Limits,
}

impl State {
    fn new(limits: &Limits) -> Arc<State> {
        let state = State {
            waiting: AtomicU8::new(Waiting::Nothing as u8),
            deadline: AtomicU64::new(0),
            write_deadline: AtomicU64::new(0),
            head_begun: AtomicBool::new(false),
            refusal: OnceLock::new(),
            linger: AtomicBool::new(false),
            limits: limits.clone(),
        };
        state.idle();
        Arc::new(state)
    }

    /// Starts a wait unless it is running already.
    fn wait(&self, what: Waiting, limit: Duration) {
        if self.waiting.load(Relaxed) != what as u8 {
            self.waiting.store(what as u8, Relaxed);
            self.deadline.store(after(limit), Relaxed);
        }
    }

    pub(crate) fn serving(&self) {
        self.waiting.store(Waiting::Nothing as u8, Relaxed);
        self.deadline.store(0, Relaxed);
    }

    pub(crate) fn idle(&self) {
        if self.head_begun.load(Relaxed) {
            self.wait(Waiting::Head, self.limits.header_timeout);
        } else {
            self.wait(Waiting::Idle, self.limits.idle_timeout);
        }
    }

    pub(crate) fn head_begins(&self) {
        self.head_begun.store(true, Relaxed);
        if self.waiting.load(Relaxed) == Waiting::Idle as u8 {
            self.idle();
        }
    }

    pub(crate) fn head_ends(&self) {
        self.head_begun.store(false, Relaxed);
    }

    pub(crate) fn body_waits(&self) {
        self.wait(Waiting::Body, self.limits.body_timeout);
    }

    pub(crate) fn lingers(&self) {
        self.wait(Waiting::Linger, Duration::from_secs(2));
    }

    pub(crate) fn wrote(&self, pending: bool) {
        let waits = self.write_deadline.load(Relaxed) != 0;
        if pending != waits {
            self.write_deadline.store(if pending { after(self.limits.write_timeout) } else { 0 }, Relaxed);
        }
    }

    pub(crate) fn refuse(&self, refusal: Refusal) {
        let _ = self.refusal.set(refusal);
        self.linger_at_end();
    }

    pub(crate) fn linger_at_end(&self) {
        self.linger.store(true, Relaxed);
    }

    pub(crate) fn lingers_at_end(&self) -> bool {
        self.linger.load(Relaxed)
    }

    pub(crate) fn is_refused(&self) -> bool {
        self.refusal.get().is_some()
    }

    fn is_late(&self, now: u64) -> bool {
        let passed = |deadline: &AtomicU64| (1..=now).contains(&deadline.load(Relaxed));
        passed(&self.deadline) || passed(&self.write_deadline)
    }
}

/// All open connections.
#[derive(Default)]
pub(crate) struct Connections {
    open: Mutex<HashMap<u64, (Arc<State>, AbortHandle)>>,
    next: AtomicU64,
    changed: Notify,
}

impl Connections {
    pub(crate) fn count(&self) -> usize {
        self.open.lock().expect("no panic while it is held").len()
    }

    fn remove(&self, id: u64) {
        self.open.lock().expect("no panic while it is held").remove(&id);
    }

    fn end_late_ones(&self) {
        let now = seconds();
        // Aborting runs the connection's drops, which come back here: not under the lock.
        let late: Vec<AbortHandle> = {
            let open = self.open.lock().expect("no panic while it is held");
            open.values().filter(|(state, _)| state.is_late(now)).map(|(_, task)| task.clone()).collect()
        };
        for task in late {
            task.abort();
        }
    }
}

/// Both ends of a connection, as text: $_SERVER wants them so.
pub(crate) struct Peer {
    pub(crate) addr: String,
    pub(crate) port: String,
    pub(crate) local_addr: String,
    pub(crate) local_port: String,
    ip: Option<std::net::IpAddr>,
}

impl Front {
    /// Accepts and serves connections until `shutdown` turns true. Runs on [`crate::runtime`]'s thread.
    pub async fn serve(self: Arc<Self>, listener: Listener, mut shutdown: watch::Receiver<bool>) {
        let permits = Arc::new(Semaphore::new(self.settings.load().limits.connections));
        loop {
            let permit = tokio::select! {
                permit = Arc::clone(&permits).acquire_owned() => permit.expect("never closed"),
                _ = shutdown.wait_for(|stop| *stop) => return,
            };
            let accepted = tokio::select! {
                accepted = accept(&listener) => accepted,
                _ = shutdown.wait_for(|stop| *stop) => return,
            };
            match accepted {
                Ok((Stream::Tcp(stream), peer)) => self.spawn(stream, peer, permit),
                Ok((Stream::Unix(stream), peer)) => self.spawn(stream, peer, permit),
                Err(error) if error.raw_os_error() == Some(24) || error.raw_os_error() == Some(23) => {
                    tracing::error!(
                        "no descriptor left for a new connection; raise the limit of open files (LimitNOFILE)"
                    );
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
                // The client was gone before we accepted it.
                Err(_) => {}
            }
        }
    }

    /// Looks for connections past their deadline; runs beside [`Front::serve`] as long as the front does.
    pub async fn watch(self: Arc<Self>) {
        loop {
            if self.connections.count() == 0 {
                self.settings.load().access_log.flush();
                self.connections.changed.notified().await;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            self.connections.end_late_ones();
            self.settings.load().access_log.flush();
        }
    }

    /// Asks all connections to end after their present request, and waits for that at most until the deadline.
    pub async fn drain(&self, deadline: Duration) -> bool {
        let Some(graceful) = self.graceful.lock().expect("no panic while it is held").take() else {
            return true;
        };
        let done = tokio::time::timeout(deadline, graceful.shutdown()).await.is_ok();
        self.settings.load().access_log.flush();
        done
    }

    fn spawn<S>(self: &Arc<Self>, stream: S, peer: Peer, permit: tokio::sync::OwnedSemaphorePermit)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let settings = self.settings.load();
        let limits = &settings.limits;
        let state = State::new(limits);
        let guard = Guard::new(stream, limits, Arc::clone(&state));
        let mut http = hyper::server::conn::http1::Builder::new();
        http.title_case_headers(true)
            .header_read_timeout(None)
            .max_buf_size((limits.head_size + 16384).max(65536));
        if limits.header_count > 100 {
            http.max_headers(limits.header_count + 1);
        }
        let service = {
            let (front, peer, state) = (Arc::clone(self), Arc::new(peer), Arc::clone(&state));
            service_fn(move |request| {
                let (front, peer, state) = (Arc::clone(&front), Arc::clone(&peer), Arc::clone(&state));
                async move { Ok::<_, Infallible>(front.answer(&peer, state, request).await) }
            })
        };
        let connection = http.serve_connection(TokioIo::new(guard), service);
        let Some(connection) =
            self.graceful.lock().expect("no panic while it is held").as_ref().map(|g| g.watch(connection))
        else {
            return;
        };
        let id = self.connections.next.fetch_add(1, Relaxed);
        struct Open(Arc<Front>, u64);
        impl Drop for Open {
            fn drop(&mut self) {
                self.0.connections.remove(self.1);
                self.0.metrics.connected(-1);
            }
        }
        let open = Open(Arc::clone(self), id);
        self.metrics.connected(1);
        let mut all = self.connections.open.lock().expect("no panic while it is held");
        let task = tokio::spawn(async move {
            let _ends = (open, permit);
            // A connection that ends with an error is the client's affair.
            let _ = connection.await;
        });
        all.insert(id, (state, task.abort_handle()));
        if all.len() == 1 {
            self.connections.changed.notify_one();
        }
    }

    async fn answer(
        self: &Arc<Self>,
        peer: &Peer,
        state: Arc<State>,
        request: Request<Incoming>,
    ) -> Response<Body> {
        let started = Instant::now();
        state.serving();
        let settings = self.settings.load_full();
        if request.method().as_str() == REFUSED
            && let Some(refusal) = state.refusal.get()
        {
            return self.refused(&state, *refusal, started);
        }
        let routes = self.routes.load_full();
        let (parts, incoming) = request.into_parts();

        let trusted = match peer.ip {
            Some(ip) => settings.trusted_proxies.iter().any(|net| net.contains(&ip)),
            None => settings.trust_unix,
        };
        let said = if trusted {
            forwarded::read(&parts.headers, &settings.trusted_proxies)
        } else {
            forwarded::Forwarded::default()
        };
        let host = said
            .host
            .as_deref()
            .or(parts.uri.authority().map(|a| a.as_str()))
            .or_else(|| parts.headers.get(header::HOST).and_then(|v| v.to_str().ok()));
        let (name, port) = split_port(host.unwrap_or_default());
        let given =
            trusted.then(|| parts.headers.get("x-request-id").and_then(|v| v.to_str().ok())).flatten();
        let id = match given {
            Some(given) if given.len() <= 128 => given.to_owned(),
            _ => self.request_id(),
        };
        let path = route::normalise(parts.uri.path());
        let site = path.as_deref().and_then(|path| routes.pick(name, path));
        let client = Client {
            peer,
            addr: said.addr,
            https: said.https.unwrap_or(false),
            host: if name.is_empty() { "localhost" } else { name },
            port: said.port.or(if said.host.is_some() { port } else { None }),
            path: path.as_deref().unwrap_or_default(),
            id: &id,
        };
        let log = settings.access_log.is_on();
        let log = log.then(|| (settings.access_log.clone(), Box::new(line(&parts, &client, site))));
        let metrics = site.map(|site| Arc::clone(&site.metrics));
        let mut finish = Finish::new(started, Arc::clone(&state), metrics, log);
        let result = match (&path, site) {
            (None, _) => Err(refusal(StatusCode::BAD_REQUEST, "the path is malformed")),
            (_, None) => Err(refusal(StatusCode::NOT_FOUND, "no application answers to this host and path")),
            (Some(_), Some(site)) => {
                self.dispatch(&settings, site, &client, &parts, incoming, &state, &mut finish).await
            }
        };
        let mut response = result.unwrap_or_else(|none| {
            if none.close {
                state.linger_at_end();
            }
            failed(&settings, &client, &parts, site, none)
        });
        response.headers_mut().entry(header::SERVER).or_insert(HeaderValue::from_static("hayate"));
        finish.status = response.status().as_u16();
        response.body_mut().finish(finish);
        response
    }

    #[allow(clippy::too_many_arguments)]
    async fn dispatch(
        &self,
        settings: &Settings,
        site: &Site,
        client: &Client<'_>,
        parts: &http::request::Parts,
        incoming: Incoming,
        state: &Arc<State>,
        finish: &mut Finish,
    ) -> Result<Response<Body>, NoAnswer> {
        if parts.method == Method::CONNECT || parts.method == Method::TRACE {
            let mut response = page(StatusCode::METHOD_NOT_ALLOWED, None);
            let offered = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
            response.headers_mut().insert(header::ALLOW, offered);
            return Ok(response);
        }
        match route::resolve(site, client.path) {
            Target::Script(script) => {
                let (response, waited) =
                    dynamic::answer(settings, site, client, parts, incoming, &script, state).await?;
                if let Some((_, line)) = &mut finish.log {
                    line.queue_wait = waited;
                }
                Ok(response)
            }
            Target::File(path, meta) => files::serve(&parts.method, &parts.headers, &path, meta)
                .await
                .map_err(|status| refusal(status, "the file cannot be read")),
            Target::AddSlash => {
                let mut location = parts.uri.path().to_owned();
                location.push('/');
                if let Some(query) = parts.uri.query() {
                    location.push('?');
                    location.push_str(query);
                }
                // "//host" would lead elsewhere.
                let location = format!("/{}", location.trim_start_matches('/'));
                let mut response = Response::new(Body::new(Kind::Empty));
                *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
                let value = HeaderValue::try_from(location)
                    .map_err(|_| refusal(StatusCode::BAD_REQUEST, "the path is malformed"))?;
                response.headers_mut().insert(header::LOCATION, value);
                Ok(response)
            }
            Target::NotFound => Err(refusal(StatusCode::NOT_FOUND, "there is no such file")),
        }
    }

    fn refused(&self, state: &Arc<State>, refusal: Refusal, started: Instant) -> Response<Body> {
        tracing::debug!(status = refusal.status, "refused a malformed request: {}", refusal.reason);
        self.metrics.refused();
        let status = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::BAD_REQUEST);
        let mut response = page(status, None);
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        response.headers_mut().insert(header::SERVER, HeaderValue::from_static("hayate"));
        let mut finish = Finish::new(started, Arc::clone(state), None, None);
        finish.status = refusal.status;
        response.body_mut().finish(finish);
        response
    }
}

fn refusal(status: StatusCode, reason: &str) -> NoAnswer {
    NoAnswer { status, reason: reason.to_owned(), retry_after: false, close: false }
}

fn page(status: StatusCode, detail: Option<&str>) -> Response<Body> {
    let mut response = Response::new(Body::new(Kind::Full(pages::error(status, detail))));
    *response.status_mut() = status;
    dynamic::html(response.headers_mut());
    response
}

fn failed(
    settings: &Settings,
    client: &Client<'_>,
    parts: &http::request::Parts,
    site: Option<&Site>,
    none: NoAnswer,
) -> Response<Body> {
    if none.status.is_server_error() {
        let app = site.map_or("", |site| &site.name);
        tracing::error!(app, request = client.id, "{} {}: {}", parts.method, parts.uri.path(), none.reason);
    }
    let detail = (settings.development && none.status.is_server_error()).then_some(&none.reason[..]);
    let mut response = page(none.status, detail);
    if none.retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    if none.close {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

fn line(parts: &http::request::Parts, client: &Client<'_>, site: Option<&Site>) -> Line {
    let text = |name| parts.headers.get(name).map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned());
    Line {
        app: site.map(|site| site.name.clone()).unwrap_or_default(),
        id: client.id.to_owned(),
        remote: client.addr.map_or_else(|| client.peer.addr.clone(), |addr| addr.to_string()),
        user: None,
        method: parts.method.to_string(),
        target: parts.uri.path_and_query().map_or_else(|| parts.uri.to_string(), |t| t.to_string()),
        version: if parts.version == Version::HTTP_10 { "HTTP/1.0" } else { "HTTP/1.1" },
        host: client.host.to_owned(),
        referer: text(header::REFERER),
        agent: text(header::USER_AGENT),
        queue_wait: None,
    }
}

/// "example.org:8080" → ("example.org", 8080); "[::1]:80" → ("[::1]", 80)
fn split_port(host: &str) -> (&str, Option<u16>) {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => {
            (name, port.parse().ok())
        }
        _ => (host, None),
    }
}

enum Stream {
    Tcp(tokio::net::TcpStream),
    Unix(tokio::net::UnixStream),
}

async fn accept(listener: &Listener) -> io::Result<(Stream, Peer)> {
    match listener {
        Listener::Tcp(listener) => {
            let (stream, addr) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let local = stream.local_addr()?;
            let peer = Peer {
                addr: addr.ip().to_canonical().to_string(),
                port: addr.port().to_string(),
                local_addr: local.ip().to_canonical().to_string(),
                local_port: local.port().to_string(),
                ip: Some(addr.ip().to_canonical()),
            };
            Ok((Stream::Tcp(stream), peer))
        }
        Listener::Unix(listener, _) => {
            let (stream, _) = listener.accept().await?;
            // As nginx says it: applications expect something in place of an address.
            let peer = Peer {
                addr: "unix:".into(),
                port: String::new(),
                local_addr: "unix:".into(),
                local_port: "80".into(),
                ip: None,
            };
            Ok((Stream::Unix(stream), peer))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_late_leaves_the_other_clocks_alone() {
        let state = State::new(&Limits::default());
        state.serving();
        assert!(!state.is_late(u64::MAX));
        // The answer is handed over, its end is written only later.
        state.wrote(true);
        state.idle();
        assert!(state.is_late(seconds() + 61));
        state.wrote(false);
        assert!(!state.is_late(seconds() + 61));
        assert!(state.is_late(u64::MAX), "it is idle now, and not for ever");
    }

    #[test]
    fn the_next_head_has_time_from_the_end_of_the_present_answer() {
        let state = State::new(&Limits::default());
        state.serving();
        state.head_begins();
        assert!(!state.is_late(u64::MAX));
        state.idle();
        assert!(state.is_late(seconds() + 16));
    }
}
