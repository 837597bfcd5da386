//! The control listener: HTTP on a unix socket that only its owner may use, and its read-only part on TCP.
//!
//! | request | answer |
//! | --- | --- |
//! | `GET /status` | everything, as JSON |
//! | `GET /metrics` | Prometheus' text format |
//! | `GET /healthz` | 200 while the process lives |
//! | `GET /readyz` | 200 when every application can serve, else 503 and the reasons |
//! | `POST /reload` | 200 when the new generation serves, 409 with the reason when it was refused, 503 when the server ends; unix socket only |
//! | `POST /upgrade` | 200 when the installed program serves, 409 with the reason when it was refused, 503 when the server ends; unix socket only |
//! | `POST /stop` | 202; the connection ends with the process; unix socket only |

use std::{convert::Infallible, io, os::fd::OwnedFd, sync::Arc, time::Duration};

use hayate_panics::PAUSE;
use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{ALLOW, CONTENT_TYPE},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, UnixListener},
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
};

use crate::{
    master::STOPPING,
    peer,
    server::{Order, Server},
};

/// Where the socket of root's server is when nobody says otherwise, so that of the service.
pub const SYSTEM_CONTROL: &str = "/run/hayate/control.sock";

/// Connections for metrics by TCP, which every process of the machine can make. Further ones wait.
const MOST_READERS: usize = 32;
/// How long such a one may take for its request.
const READER_PATIENCE: Duration = Duration::from_secs(5);

/// The socket, which the master has made.
pub struct ControlSocket {
    listener: UnixListener,
    owner: u32,
}

impl ControlSocket {
    /// Listens for root and `owner`, the user who started the server.
    pub fn adopt(socket: OwnedFd, owner: u32) -> io::Result<ControlSocket> {
        Ok(ControlSocket { listener: UnixListener::from_std(socket.into())?, owner })
    }

    /// Answers until the process ends.
    pub async fn serve(self, server: Arc<Server>) {
        while server.front.caught(self.accept_all(&server)).await.is_err() {
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn accept_all(&self, server: &Arc<Server>) {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) if peer::may_command(&stream, self.owner, server) => {
                    spawn(stream, Arc::clone(server), None)
                }
                Ok(_) => tracing::warn!("a process that may not command the server has tried to"),
                Err(error) => accept_failed(error).await,
            }
        }
    }
}

/// Answers the read-only part by TCP until the process ends.
pub async fn serve_metrics(listener: TcpListener, server: Arc<Server>) {
    let room = Arc::new(Semaphore::new(MOST_READERS));
    while server.front.caught(accept_readers(&listener, &server, &room)).await.is_err() {
        tokio::time::sleep(PAUSE).await;
    }
}

async fn accept_readers(listener: &TcpListener, server: &Arc<Server>, room: &Arc<Semaphore>) {
    loop {
        // Never closed.
        let Ok(permit) = Arc::clone(room).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => spawn(stream, Arc::clone(server), Some(permit)),
            Err(error) => accept_failed(error).await,
        }
    }
}

async fn accept_failed(error: io::Error) {
    tracing::warn!("control listener: {error}");
    tokio::time::sleep(Duration::from_millis(200)).await;
}

fn spawn<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    server: Arc<Server>,
    reader: Option<OwnedSemaphorePermit>,
) {
    let may_command = reader.is_none();
    tokio::spawn(async move {
        let _reader = reader;
        // A fault ends this connection.
        let _ = server.front.caught(Box::pin(talk(stream, &server, may_command))).await;
    });
}

async fn talk<S: AsyncRead + AsyncWrite + Unpin>(stream: S, server: &Arc<Server>, may_command: bool) {
    let service = service_fn(move |request| {
        let server = Arc::clone(server);
        async move { Ok::<_, Infallible>(answer(&server, request, may_command).await) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new());
    if may_command {
        http.header_read_timeout(Duration::from_secs(30));
        // A client that leaves or talks nonsense is its own business.
        let _ = http.serve_connection(TokioIo::new(stream), service).await;
    } else {
        // One answer for each connection, so that nobody has the metrics gathered all the time.
        http.header_read_timeout(READER_PATIENCE).keep_alive(false);
        let connection = http.serve_connection(TokioIo::new(stream), service);
        let _ = tokio::time::timeout(2 * READER_PATIENCE, connection).await;
    }
}

fn reply(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(kind));
    response
}

fn text(status: StatusCode, body: impl Into<String>) -> Response<Full<Bytes>> {
    let mut body = body.into();
    body.push('\n');
    reply(status, "text/plain; charset=utf-8", body)
}

fn outcome_of(
    outcome: Result<Result<(), String>, oneshot::error::RecvError>,
    done: &str,
) -> Response<Full<Bytes>> {
    match outcome {
        Ok(Ok(())) => text(StatusCode::OK, done),
        Ok(Err(why)) if why != STOPPING => text(StatusCode::CONFLICT, why),
        Ok(Err(_)) | Err(_) => text(StatusCode::SERVICE_UNAVAILABLE, STOPPING),
    }
}

/// `fixed`: keys of which nothing has come.
fn reloaded(fixed: &[&str]) -> String {
    match fixed {
        [] => "reloaded".to_owned(),
        keys => format!("reloaded, but for what takes effect with a restart only: {}", keys.join(", ")),
    }
}

async fn answer(server: &Server, request: Request<Incoming>, may_command: bool) -> Response<Full<Bytes>> {
    let path = request.uri().path();
    let allowed = match path {
        "/metrics" | "/healthz" | "/readyz" => Method::GET,
        "/status" if may_command => Method::GET,
        "/reload" | "/stop" | "/upgrade" if may_command => Method::POST,
        _ => {
            return text(
                StatusCode::NOT_FOUND,
                "there is /metrics, /healthz, /readyz, and on the socket /status, /reload, /upgrade, /stop",
            );
        }
    };
    if request.method() != allowed {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, format!("use {allowed}"));
        if let Ok(allowed) = allowed.as_str().parse() {
            response.headers_mut().insert(ALLOW, allowed);
        }
        return response;
    }
    match path {
        "/metrics" => reply(
            StatusCode::OK,
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
            server.render_metrics().await,
        ),
        "/healthz" => text(StatusCode::OK, "alive"),
        "/readyz" => match server.not_ready() {
            reasons if reasons.is_empty() => text(StatusCode::OK, "ready"),
            // On TCP without the reasons, which are for those who may see the log.
            reasons if may_command => text(StatusCode::SERVICE_UNAVAILABLE, reasons.join("\n")),
            _ => text(StatusCode::SERVICE_UNAVAILABLE, "not ready"),
        },
        "/status" => match serde_json::to_vec_pretty(&server.status().await) {
            Ok(body) => reply(StatusCode::OK, "application/json", body),
            Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        },
        "/reload" => {
            let (done, outcome) = oneshot::channel();
            server.order(Order::Reload(Some(done)));
            let outcome = outcome.await;
            outcome_of(outcome, &reloaded(&server.needs_restart()))
        }
        "/upgrade" => {
            let (done, outcome) = oneshot::channel();
            server.order(Order::Upgrade(done));
            outcome_of(outcome.await, "upgraded")
        }
        _ => {
            server.order(Order::Stop);
            text(StatusCode::ACCEPTED, "stopping")
        }
    }
}
