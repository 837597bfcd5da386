//! A request's way through the front: who asks, which site, what answers, and what is written down of it.

use std::{sync::Arc, time::Instant};

use base64::{Engine, prelude::BASE64_STANDARD};
use http::{HeaderValue, Method, Request, Response, StatusCode, Version, header};
use hyper::body::Incoming;

use crate::{
    Front, Settings,
    access_log::Line,
    body::{Body, Finish, Kind},
    connection::Peer,
    date,
    dynamic::{self, Client, NoAnswer},
    files::{self, NoFile},
    forwarded,
    framing::Refusal,
    guard::REFUSED,
    host::Host,
    pages,
    request_body::Keep,
    route,
    route::Found,
    site::Site,
    state::{State, Unfinished},
    target::Target,
    temp::Owner,
    translate,
};

impl Front {
    /// Answers one request. hyper calls this through [`crate::connection`]; one request of a connection at a time.
    pub(crate) async fn answer(
        self: &Arc<Self>,
        peer: &Peer,
        state: Arc<State>,
        request: Request<Incoming>,
    ) -> Response<Body> {
        let started = Instant::now();
        state.serving();
        let settings = self.settings.load_full();
        if request.method().as_str() == REFUSED
            && let Some((refusal, head)) = state.refusal()
        {
            return self.refused(peer, &state, &settings, *refusal, head, started);
        }
        let original = state.next_original();
        let routes = self.routes.load_full();
        let (parts, incoming) = request.into_parts();
        let target = Target::new(&parts.uri, original.as_deref());

        let trusted = match peer.ip {
            Some(ip) => settings.trusted_proxies.iter().any(|net| net.contains(&ip)),
            None => settings.trust_unix,
        };
        let said = if trusted {
            forwarded::read(&parts.headers, &settings.trusted_proxies)
        } else {
            forwarded::Forwarded::default()
        };
        let named = said
            .host
            .as_deref()
            .or(parts.uri.authority().map(|a| a.as_str()))
            .map(str::as_bytes)
            .or_else(|| parts.headers.get(header::HOST).map(HeaderValue::as_bytes))
            .filter(|named| !named.is_empty());
        let host = named.and_then(Host::parse);
        let name = host.as_ref().map_or("", |host| &host.name);
        let given =
            trusted.then(|| parts.headers.get("x-request-id").and_then(|v| v.to_str().ok())).flatten();
        let id = match given {
            Some(given) if given.len() <= 128 => given.to_owned(),
            _ => self.request_id(),
        };
        let path = route::normalise(target.path);
        let site = path.as_deref().and_then(|path| routes.pick(name, path));
        let client = Client {
            peer,
            from: said.client,
            https: said.https.unwrap_or(false),
            host: if name.is_empty() { "localhost" } else { name },
            port: said.port.or(host.as_ref().and_then(|host| host.port).filter(|_| said.host.is_some())),
            target,
            path: path.as_deref().unwrap_or_default(),
            id: &id,
            keep: Keep {
                gather: &self.gather,
                space: &self.temp,
                owner: Owner::new(said.client.map(|client| client.addr).or(peer.ip), &settings.limits),
            },
        };
        let log = settings.access_log.is_on();
        let log = log
            .then(|| (settings.access_log.clone(), Box::new(line(&parts, &client, site.map(Arc::as_ref)))));
        let metrics = site.map(|site| Arc::clone(&site.metrics));
        let mut finish = Finish::new(started, Arc::clone(&state), metrics, log);
        let result = match (&path, site) {
            (None, _) => Err(refusal(StatusCode::BAD_REQUEST, "the path is malformed")),
            _ if named.is_some() && host.is_none() => {
                Err(refusal(StatusCode::BAD_REQUEST, "the host is malformed"))
            }
            (_, None) => Err(refusal(StatusCode::NOT_FOUND, "no application answers to this host and path")),
            (Some(_), Some(site)) => {
                self.dispatch(&settings, site, &client, &parts, incoming, &state, &mut finish).await
            }
        };
        let mut response = result.unwrap_or_else(|none| {
            if none.close {
                state.linger_at_end();
            }
            failed(&settings, &client, &parts, site.map(Arc::as_ref), none)
        });
        response.headers_mut().entry(header::SERVER).or_insert(HeaderValue::from_static("hayate"));
        response.headers_mut().entry(header::DATE).or_insert_with(date::header);
        finish.status = response.status().as_u16();
        response.body_mut().finish(finish);
        response
    }

    #[allow(clippy::too_many_arguments)]
    async fn dispatch(
        &self,
        settings: &Settings,
        site: &Arc<Site>,
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
        let hangs = |error: std::io::Error| {
            let reason = format!("{}: {error}", site.place.path().display());
            NoAnswer { retry_after: true, ..refusal(StatusCode::SERVICE_UNAVAILABLE, &reason) }
        };
        match route::resolve(site, client.path).await.map_err(hangs)? {
            Found::Script(script) => {
                let (response, waited) =
                    dynamic::answer(settings, site, client, parts, incoming, &script, state).await?;
                if let Some((_, line)) = &mut finish.log {
                    line.queue_wait = waited;
                }
                Ok(response)
            }
            Found::File(file) => {
                let served = files::serve(&parts.method, &parts.headers, site, file).await;
                served.map_err(|no_file| match no_file {
                    NoFile::Status(status) => refusal(status, "the file cannot be read"),
                    NoFile::Hangs(error) => hangs(error),
                })
            }
            Found::AddSlash => {
                let location = route::with_slash(client.path, client.target.query);
                let mut response = Response::new(Body::new(Kind::Empty));
                *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
                let value = HeaderValue::try_from(location)
                    .map_err(|_| refusal(StatusCode::BAD_REQUEST, "the path is malformed"))?;
                response.headers_mut().insert(header::LOCATION, value);
                Ok(response)
            }
            Found::Nothing => Err(refusal(StatusCode::NOT_FOUND, "there is no such file")),
        }
    }

    fn refused(
        &self,
        peer: &Peer,
        state: &Arc<State>,
        settings: &Settings,
        refusal: Refusal,
        head: &[u8],
        started: Instant,
    ) -> Response<Body> {
        tracing::debug!(status = refusal.status, "refused a malformed request: {}", refusal.reason);
        self.metrics.refused();
        let status = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::BAD_REQUEST);
        let mut response = page(status, None);
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        response.headers_mut().insert(header::SERVER, HeaderValue::from_static("hayate"));
        response.headers_mut().insert(header::DATE, date::header());
        let log = settings.access_log.is_on().then(|| {
            let line = Line::of_head(head, self.request_id(), peer.addr.clone());
            (settings.access_log.clone(), Box::new(line))
        });
        let mut finish = Finish::new(started, Arc::clone(state), None, log);
        finish.status = refusal.status;
        response.body_mut().finish(finish);
        response
    }

    /// Writes down a connection that ended in the middle of a head. As nginx has it: 408 when it took too long, 400 when the client left,
    /// and no answer in either case.
    pub(crate) fn log_unfinished(&self, peer: &Peer, unfinished: &Unfinished) {
        let settings = self.settings.load();
        if settings.access_log.is_on() {
            let line = Line::of_head(&unfinished.head, self.request_id(), peer.addr.clone());
            settings.access_log.write(&line, unfinished.status, 0, std::time::Duration::ZERO);
        }
    }
}

/// The answer when there can be no other.
pub(crate) fn fault() -> Response<Body> {
    let mut response = page(StatusCode::INTERNAL_SERVER_ERROR, None);
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response.headers_mut().insert(header::SERVER, HeaderValue::from_static("hayate"));
    response.headers_mut().insert(header::DATE, date::header());
    response
}

fn refusal(status: StatusCode, reason: &str) -> NoAnswer {
    NoAnswer { status, reason: reason.to_owned(), retry_after: false, close: false }
}

fn page(status: StatusCode, detail: Option<&str>) -> Response<Body> {
    let mut response = Response::new(Body::new(Kind::Full(pages::error(status, detail))));
    *response.status_mut() = status;
    translate::html(response.headers_mut());
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
        let path = String::from_utf8_lossy(client.target.path);
        tracing::error!(app, request = client.id, "{} {path}: {}", parts.method, none.reason);
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
    let bytes = |name| parts.headers.get(name).map(|v| v.as_bytes().to_vec());
    Line {
        app: site.map(|site| site.name.clone()).unwrap_or_default(),
        id: client.id.to_owned(),
        remote: client.from.map_or_else(|| client.peer.addr.clone(), |from| from.addr.to_string()),
        user: parts.headers.get(header::AUTHORIZATION).and_then(basic_user),
        method: parts.method.as_str().into(),
        target: client.target.whole.to_vec(),
        version: if parts.version == Version::HTTP_10 { "HTTP/1.0" } else { "HTTP/1.1" }.into(),
        host: client.host.to_owned(),
        referer: bytes(header::REFERER),
        agent: bytes(header::USER_AGENT),
        queue_wait: None,
    }
}

/// The name in an Authorization header, if it is basic authentication. Nobody has looked at the password.
fn basic_user(value: &HeaderValue) -> Option<String> {
    let (scheme, rest) = value.to_str().ok()?.split_once(' ')?;
    let whole = BASE64_STANDARD.decode(scheme.eq_ignore_ascii_case("basic").then_some(rest.trim())?).ok()?;
    let name = whole.split(|b| *b == b':').next().filter(|name| !name.is_empty())?;
    Some(String::from_utf8_lossy(name).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_of_basic_authentication() {
        let user = |value: &str| basic_user(&HeaderValue::try_from(value).unwrap());
        assert_eq!(user("Basic dXNlcjpwYTpzcw==").as_deref(), Some("user"));
        assert_eq!(user("basic OnB3"), None, "no name");
        assert_eq!(user("Basic !"), None);
        assert_eq!(user("Bearer dXNlcjpwYXNz"), None);
    }
}
