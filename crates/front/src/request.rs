//! A request's way through the front: who asks, which site, what answers, and what is written down of it.

use std::{future::poll_fn, sync::Arc, task::Poll, time::Instant};

use base64::{Engine, prelude::BASE64_STANDARD};
use hayate_http::{Answer, BodyError, Exchange, Refusal};

use crate::{
    Settings,
    access_log::{Line, kept, kept_text},
    account::Account,
    compress::{compress, has_word, is_private, vary},
    connection::Connection,
    descriptors::Files,
    dynamic::{self, Client, Failed, NoAnswer, no_answer},
    error_pages,
    files::{self, NoFile},
    forwarded,
    meet::{aside, season},
    reply::{Body, Reply, set},
    request_body::{BodyFailure, Keep},
    route,
    route::Found,
    rules::{Dresses, ForWhom},
    shown::Shown,
    site::{Backend, Site},
    snapshot::Snapshot,
    target::Target,
    temp::Owner,
    way::{self, Destination, Way, unless_gone},
};

impl Connection {
    /// Answers one request.
    pub(crate) async fn answer(&self, exchange: &mut Exchange<'_>) {
        let started = Instant::now();
        let (head, peer, thread) = (exchange.head(), self.peer(), &self.thread);
        let snapshot = thread.snapshot();
        let settings = &snapshot.settings;
        let (target, malformed) = match Target::parse(head.target()) {
            Ok(target) => (target, None),
            Err(why) => (Target { whole: head.target(), path: b"", query: None, authority: None }, Some(why)),
        };

        let trusted = settings.trusts(peer.ip);
        let said = if trusted {
            forwarded::read(head, &settings.trusted_proxies, settings.trusted_headers)
        } else {
            forwarded::Forwarded::default()
        };
        let in_place = said.host.as_deref().map(str::as_bytes).or(target.authority);
        let named = in_place.or_else(|| head.get(b"host")).filter(|named| !named.is_empty());
        let read = named.map(|named| self.named.parse(named));
        let host = read.as_ref().and_then(|named| named.host.as_ref());
        let name = host.as_ref().map_or("", |host| &host.name);
        let given = trusted.then(|| head.get(b"x-request-id").and_then(|v| std::str::from_utf8(v).ok()));
        let own;
        let id = match given.flatten() {
            Some(given) if given.len() <= 128 && given.is_ascii() => given,
            _ => {
                own = thread.request_id();
                own.as_str()
            }
        };
        let path = route::normalise(target.path);
        let site = path.as_deref().and_then(|path| snapshot.routes.pick(name, path));
        let visitor = said.client.map(|client| client.addr).or(peer.ip.filter(|_| !trusted));
        // It counts until its answer is written to the connection, and no worker is busy with it.
        let turn = thread.front.turn_for(settings, visitor).map(|held| held.map(Arc::new));
        if let Ok(Some(turn)) = &turn {
            exchange.keep(Box::new(Arc::clone(turn)));
        }
        let client = Client {
            thread,
            snapshot: &snapshot,
            name,
            in_place_of_host: in_place,
            asked: path.as_deref().unwrap_or_default(),
            head,
            peer,
            from: said.client,
            visitor,
            counted: false,
            turn: turn.as_ref().ok().and_then(Option::as_ref),
            https: said.https.unwrap_or(peer.https),
            host: if name.is_empty() { "localhost" } else { name },
            port: said.port.or(host.as_ref().and_then(|host| host.port).filter(|_| said.host.is_some())),
            target,
            path: path.as_deref().unwrap_or_default(),
            id,
            keep: Keep {
                gather: &thread.front.gather,
                answers: &thread.front.answers,
                space: &thread.front.temp,
                owner: Owner::new(said.client.map(|client| client.addr).or(peer.ip), &settings.limits),
                files: Files { all: &thread.front.descriptors, own: &self.files, client: visitor },
                answer_files: &thread.front.answer_files,
                least_rate: settings.limits.body_rate,
            },
            max_body: settings.limits.body_size,
            timeout: None,
        };
        let log = site.and_then(|site| site.access_log.as_ref()).unwrap_or(&settings.access_log);
        let log = log.is_on().then(|| (log.clone(), Box::new(line(&client, site.map(Arc::as_ref)))));
        let metrics = site.map(|site| Arc::clone(&site.metrics));
        let mut account = Account::new(started, exchange.clock(), metrics, log);
        let early = match malformed {
            None if settings.tls.is_some() && path.is_some() && !peer.lacks_tls && turn.is_ok() => {
                let aside = async { Ok(aside(settings, &client, site.is_some()).await) };
                match unless_gone(exchange, aside).await {
                    Ok(aside) => aside,
                    Err(_) => return,
                }
            }
            _ => None,
        };
        let mut dresses = Dresses::default();
        let mut by_script = false;
        let mut reply = match site {
            _ if peer.lacks_tls => {
                let mut reply = Reply::page(400, Some("The plain HTTP request was sent to HTTPS port"));
                reply.close = true;
                Ok(reply)
            }
            _ if turn.is_err() => {
                let mut reply = Reply::page(503, None);
                set(&mut reply.answer, "retry-after", "1");
                Ok(reply)
            }
            _ if malformed.is_some() || (named.is_some() && host.is_none()) => {
                let reason = malformed.unwrap_or("the host is malformed");
                thread.front.metrics.refused();
                tracing::debug!(status = 400, "refused a malformed request: {reason}");
                Err(NoAnswer::Failed(Failed {
                    status: 400,
                    reason: reason.into(),
                    retry_after: false,
                    close: true,
                }))
            }
            // PHP would be told of one, and the log of the other.
            _ if head.all(b"authorization").nth(1).is_some() => {
                Err(no_answer(400, "there is more than one Authorization"))
            }
            _ if path.is_none() => Err(no_answer(400, "the path is malformed")),
            _ if early.is_some() => early.ok_or_else(|| no_answer(500, "")),
            None => Err(no_answer(404, "no application answers to this host and path")),
            Some(site) => match way::find(site, &client, exchange, &mut dresses).await {
                Ok(Way::To(destination)) => {
                    by_script = matches!(destination.found, Found::Script(_));
                    dispatch(settings, destination, &client, exchange, &mut account).await
                }
                Ok(Way::Answer(reply)) => Ok(reply),
                Err(none) => Err(none),
            },
        };
        if let Ok(answer) = &reply
            && let Err(instead) = whole(exchange, answer).await
        {
            reply = Err(instead);
        }
        let mut reply = match reply {
            Ok(reply) => reply,
            Err(NoAnswer::Left) => return,
            Err(NoAnswer::Failed(why)) => {
                // Nor does anybody read it here; what is wrong with it is no news any more.
                let _ = poll_fn(|cx| Poll::Ready(exchange.discard_body(cx))).await;
                failed(&snapshot, &client, site.map(Arc::as_ref), why)
            }
        };
        if let Some(site) = site.filter(|_| reply.is_page) {
            // Few answers are errors, and no other is to be larger for them.
            Box::pin(error_pages::put(site, &client, &mut reply)).await;
        }
        season(settings, &client, &mut reply);
        if !dresses.worn.is_empty() {
            let for_whom = match () {
                // A path that only looks like a file's (`/account/x.css`) may be a page of one visitor's.
                () if by_script || is_private(&reply.answer) => ForWhom::Visitor,
                // What a password, a certificate or a network opens is not for those who share a cache (RFC 9111, 3.5).
                () if dresses.guarded || client.is_known() => ForWhom::Browsers,
                () => ForWhom::All,
            };
            let varies = has_word(&reply.answer, b"vary", &[b"accept-encoding"]);
            dresses.worn.iter().for_each(|dress| dress.put(&mut reply.answer, for_whom));
            if varies {
                vary(&mut reply.answer);
            }
        }
        if let Some(rules) = site.and_then(|site| site.compression.as_ref()) {
            compress(rules, &thread.front.encoders, head, &mut reply).await;
        }
        reply.send(exchange, &mut account).await;
        if let Some(rest) = reply.rest.take() {
            rest.run(exchange).await;
        }
        if let Some(failure) = reply.spoilt() {
            cut_off(&client, site.map(Arc::as_ref), failure);
        }
    }

    /// Answers what was no request. `head`: as much of it as was read.
    pub(crate) async fn refuse(&self, exchange: &mut Exchange<'_>, refusal: Refusal, head: &[u8]) {
        let started = Instant::now();
        tracing::debug!(status = refusal.status, "refused a malformed request: {}", refusal.reason);
        self.thread.front.metrics.refused();
        let log = self.line_of(head);
        let mut account = Account::new(started, exchange.clock(), None, log);
        Reply::page(refusal.status, None).send(exchange, &mut account).await;
    }

    /// The answer when there can be no other.
    pub(crate) fn fault(&self, exchange: &mut Exchange<'_>) {
        exchange.close();
        if exchange.has_begun() {
            return;
        }
        let Reply { answer, body, .. } = *Reply::page(500, None);
        if let Body::Full(page) = body {
            exchange.begin(&answer, hayate_http::Length::Exact(page.len() as u64));
            exchange.send(page);
            exchange.finish();
        }
    }

    /// Writes down a connection that ended in the middle of a head. As nginx has it: 408 when it took too long, 400 when the client left,
    /// and no answer in either case.
    pub(crate) fn log_unfinished(&self, head: &[u8], late: bool) {
        if let Some((log, line)) = self.line_of(head) {
            log.write(&line, if late { 408 } else { 400 }, 0, std::time::Duration::ZERO);
        }
    }

    fn line_of(&self, head: &[u8]) -> Option<(crate::AccessLog, Box<Line>)> {
        let log = &self.thread.snapshot().settings.access_log;
        log.is_on().then(|| {
            let line =
                Line::of_head(head, self.thread.request_id().as_str().to_owned(), self.peer().addr.clone());
            (log.clone(), Box::new(line))
        })
    }
}

/// An answer as it is, unless what has come of a body that nobody reads shows that the request contradicts itself.
async fn whole(exchange: &mut Exchange<'_>, reply: &Reply) -> Result<(), NoAnswer> {
    if matches!(reply.body, Body::Script(_)) || reply.rest.is_some() {
        return Ok(());
    }
    match poll_fn(|cx| Poll::Ready(exchange.discard_body(cx))).await {
        Ok(()) => Ok(()),
        Err(BodyError::Left(_)) => Err(NoAnswer::Left),
        Err(BodyError::Refused(why)) => Err(no_answer(400, why.reason)),
    }
}

/// Has it answered by what answers there.
async fn dispatch(
    settings: &Settings,
    destination: Destination<'_>,
    client: &Client<'_>,
    exchange: &mut Exchange<'_>,
    account: &mut Account,
) -> Result<Box<Reply>, NoAnswer> {
    let method = client.head.method();
    let Destination { site, found, ruled } = destination;
    let as_ruled = ruled.as_ref().map(|ruled| ruled.client(client));
    let client = as_ruled.as_ref().unwrap_or(client);
    match found {
        Found::Script(script) => {
            let answered = dynamic::answer(settings, site, client, exchange, &script);
            let (reply, waited) = answered.await?;
            if let Some((_, line)) = &mut account.log {
                line.queue_wait = waited;
            }
            Ok(reply)
        }
        Found::File(_) if !matches!(method, b"GET" | b"HEAD") => Ok(only_get()),
        Found::File(file) => {
            files::serve(client.head, site, file, client.keep).await.map_err(|no_file| match no_file {
                NoFile::Status(status) => no_answer(status, "the file cannot be read"),
                NoFile::Hangs(error) => way::hangs(site, &error),
            })
        }
        // As nginx has it.
        Found::AddSlash
            if matches!(site.backend, Backend::Static) && !matches!(method, b"GET" | b"HEAD" | b"POST") =>
        {
            Ok(only_get())
        }
        Found::AddSlash => {
            let mut answer = Answer::new(301);
            let location = route::with_slash(client.path, client.target.query);
            answer.add(b"location", &location).map_err(|_| no_answer(400, "the path is malformed"))?;
            Ok(Reply::new(answer, Body::Left(0)))
        }
        Found::Closed => Err(no_answer(403, "the directory is closed to the front")),
        Found::Nothing => Err(no_answer(404, "there is no such file")),
    }
}

/// For another method at a file.
fn only_get() -> Box<Reply> {
    let mut reply = Reply::page(405, None);
    set(&mut reply.answer, "allow", "GET, HEAD");
    reply
}

fn failed(snapshot: &Snapshot, client: &Client<'_>, site: Option<&Site>, why: Failed) -> Box<Reply> {
    let error = why.status >= 500;
    if error {
        let app = site.map_or("", |site| &site.name);
        let (method, path) = (Shown(client.head.method()), Shown(client.target.path));
        tracing::error!(
            app,
            request = client.id,
            status = why.status,
            reason = why.reason,
            "{method} {path}"
        );
    }
    let detail = (snapshot.settings.development && error).then_some(&why.reason[..]);
    let mut reply = Reply::page(why.status, detail);
    if why.retry_after {
        set(&mut reply.answer, "retry-after", "1");
    }
    reply.close = why.close;
    reply
}

/// Tells of an answer that was cut off since its request's body has failed; as elsewhere not of a client that has left.
fn cut_off(client: &Client<'_>, site: Option<&Site>, failure: BodyFailure) {
    let NoAnswer::Failed(why) = dynamic::spoilt(failure) else { return };
    let app = site.map_or("", |site| &site.name);
    let (method, path) = (Shown(client.head.method()), Shown(client.target.path));
    tracing::warn!(
        app,
        request = client.id,
        status = why.status,
        reason = why.reason,
        "{method} {path}: the answer had begun, and was cut off"
    );
}

fn line(client: &Client<'_>, site: Option<&Site>) -> Line {
    let bytes = |name| client.head.get(name).map(|value| kept(value).to_vec());
    Line {
        app: site.map(|site| site.name.clone()).unwrap_or_default(),
        id: client.id.to_owned(),
        remote: client.from.map_or_else(|| client.peer.addr.clone(), |from| from.addr.to_string()),
        user: client.head.get(b"authorization").and_then(basic_user),
        method: kept(client.head.method()).into(),
        target: kept(client.target.whole).to_vec(),
        version: client.head.version().name().into(),
        host: kept_text(client.host).to_owned(),
        referer: bytes(b"referer"),
        agent: bytes(b"user-agent"),
        queue_wait: None,
    }
}

/// Bytes of base64 in which the beginning of a name is looked for: more of it than a line has.
const NAMED: usize = 4 << 10;

/// The name in an Authorization header, if it is basic authentication: as much as is kept of it. Nobody has looked at the password.
fn basic_user(value: &[u8]) -> Option<String> {
    let (scheme, rest) = std::str::from_utf8(value).ok()?.split_once(' ')?;
    let encoded = scheme.eq_ignore_ascii_case("basic").then_some(rest.trim())?;
    let whole = BASE64_STANDARD.decode(encoded.get(..NAMED).unwrap_or(encoded)).ok()?;
    let name = whole.split(|b| *b == b':').next().filter(|name| !name.is_empty())?;
    Some(String::from_utf8_lossy(kept(name)).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_of_basic_authentication() {
        let user = |value: &str| basic_user(value.as_bytes());
        assert_eq!(user("Basic dXNlcjpwYTpzcw==").as_deref(), Some("user"));
        assert_eq!(user("basic OnB3"), None, "no name");
        assert_eq!(user("Basic !"), None);
        assert_eq!(user("Bearer dXNlcjpwYXNz"), None);
        let long = BASE64_STANDARD.encode(format!("{}:password", "u".repeat(20_000)));
        assert_eq!(user(&format!("Basic {long}")).unwrap().len(), 2049, "a byte more than a line has");
        let long = BASE64_STANDARD.encode(format!("user:{}", "p".repeat(20_000)));
        assert_eq!(user(&format!("Basic {long}")).as_deref(), Some("user"));
    }
}
