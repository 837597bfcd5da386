//! What answers a request: by its site's rules, and by what lies there.
//!
//! It promises that every request is asked the same in the same order, whether it has just come or was configured anew while it waited
//! ([`crate::anew`]). It runs no script and reads no file.

use std::{borrow::Cow, future::poll_fn, io, pin::pin, sync::Arc, task::Poll};

use hayate_http::Exchange;

use crate::{
    dynamic::{Client, NoAnswer, no_answer},
    reply::{Reply, set},
    route::{self, Found},
    rules::{Dresses, RuleLimits, Rules, Verdict, has_dots, or_slash},
    site::Site,
};

/// Where a request goes.
pub(crate) enum Way<'r> {
    /// Nowhere: a rule answers, or it is closed.
    Answer(Box<Reply>),
    To(Destination<'r>),
}

/// What answers.
pub(crate) struct Destination<'r> {
    /// The site, or what a rule has put in its place.
    pub(crate) site: &'r Arc<Site>,
    pub(crate) found: Found,
    /// `None`: there are no rules.
    pub(crate) ruled: Option<Ruled>,
}

/// What rules have made of a request.
pub(crate) struct Ruled {
    /// Path, with the site's prefix, and query, if they are no more what was asked for.
    rewritten: Option<(Vec<u8>, Option<Vec<u8>>)>,
    limits: RuleLimits,
}

impl Ruled {
    /// The request as what answers it has it.
    pub(crate) fn client<'a>(&'a self, before: &Client<'a>) -> Client<'a> {
        let max_body = self.limits.max_body.unwrap_or(before.max_body);
        let mut client = Client { max_body, timeout: self.limits.timeout, ..*before };
        if let Some((path, query)) = &self.rewritten {
            client.path = path;
            client.target.query = query.as_deref();
        }
        client
    }
}

/// Finds it. What rules do to the answer is put into `dresses`, whatever that will be.
pub(crate) async fn find<'r>(
    site: &'r Arc<Site>,
    client: &Client<'_>,
    exchange: &mut Exchange<'_>,
    dresses: &mut Dresses<'r>,
) -> Result<Way<'r>, NoAnswer> {
    match &site.rules {
        // Few requests meet rules, and no other is to be larger for them.
        Some(rules) => Box::pin(by_rules(rules, site, client, exchange, dresses)).await,
        None => Ok(match lies(site, client).await? {
            Lies::Closed(reply) => Way::Answer(reply),
            Lies::Here(found) => Way::To(Destination { site, found, ruled: None }),
        }),
    }
}

async fn by_rules<'r>(
    rules: &'r Rules,
    site: &'r Arc<Site>,
    client: &Client<'_>,
    exchange: &mut Exchange<'_>,
    dresses: &mut Dresses<'r>,
) -> Result<Way<'r>, NoAnswer> {
    let keeper = &client.thread.front.keeper;
    let inside = site.inside(client.path).ok_or_else(|| no_answer(404, "the path is of another site"))?;
    let mut passed = match unless_gone(exchange, rules.judge(client, inside, keeper, dresses)).await? {
        Verdict::Answer(reply) => return Ok(Way::Answer(reply)),
        Verdict::Pass(passed) => passed,
    };
    let mut ruled = Ruled { rewritten: passed.rewritten.take(), limits: RuleLimits::default() };
    let as_ruled = ruled.client(client);
    let (ruled_by, site) = (site, passed.alias.unwrap_or(site));
    let found = match lies(site, &as_ruled).await? {
        Lies::Closed(reply) => return Ok(Way::Answer(reply)),
        Lies::Here(found) => found,
    };
    if let Some(served) = served_instead(&found, site, &as_ruled, ruled_by) {
        let judged = rules.judge_again(&as_ruled, &served, keeper, &mut passed, dresses);
        if let Some(reply) = unless_gone(exchange, judged).await? {
            return Ok(Way::Answer(reply));
        }
    }
    ruled.limits = passed.limits;
    Ok(Way::To(Destination { site, found, ruled: Some(ruled) }))
}

/// The path inside of the site whose rules hold, `ruled_by`, of what answers in place of what was asked for: the front controller, or the index of
/// a directory. `site` is what it belongs to, which may be an alias.
fn served_instead<'f>(
    found: &'f Found,
    site: &Site,
    client: &Client<'_>,
    ruled_by: &Site,
) -> Option<Cow<'f, [u8]>> {
    let served = found.inside(site)?;
    if found.is_otherwise() {
        return Some(Cow::Borrowed(served));
    }
    let name = served.strip_prefix(or_slash(site.inside(client.path)?))?;
    let directory = or_slash(ruled_by.inside(client.path)?);
    (directory.ends_with(b"/") && !name.is_empty()).then(|| Cow::Owned([directory, name].concat()))
}

/// What lies at a path.
enum Lies {
    Here(Found),
    Closed(Box<Reply>),
}

async fn lies(site: &Arc<Site>, client: &Client<'_>) -> Result<Lies, NoAnswer> {
    if matches!(client.head.method(), b"CONNECT" | b"TRACE") {
        let mut reply = Reply::page(405, None);
        set(&mut reply.answer, "allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
        return Ok(Lies::Closed(reply));
    }
    if site.inside(client.path).is_some_and(|inside| site.denies(client.target.path, inside)) {
        return Ok(Lies::Closed(Reply::page(404, None)));
    }
    // Rules have refused it already.
    if !site.files.denied.is_empty() && has_dots(client.target.path) {
        return Err(no_answer(400, "the path has . or .. in it, which scripts may read otherwise than deny"));
    }
    let found = route::resolve(site, client.path).await.map_err(|error| hangs(site, &error))?;
    // The one place where it is known what answers: an index or the front controller has another name than what was asked for.
    if found.inside(site).is_some_and(|served| site.files.denies(served)) {
        return Ok(Lies::Closed(Reply::page(404, None)));
    }
    Ok(Lies::Here(found))
}

/// The answer while a site's files cannot be looked at.
pub(crate) fn hangs(site: &Site, error: &io::Error) -> NoAnswer {
    no_answer(503, format!("{}: {error}", site.place.path().display()))
}

/// Waits for what others say, as long as the client does: a password may have to wait for its turn.
pub(crate) async fn unless_gone<T>(
    exchange: &mut Exchange<'_>,
    said: impl Future<Output = Result<T, NoAnswer>>,
) -> Result<T, NoAnswer> {
    let mut said = pin!(said);
    poll_fn(|cx| match said.as_mut().poll(cx) {
        Poll::Ready(said) => Poll::Ready(said),
        Poll::Pending => exchange.poll_gone(cx).map(|()| Err(NoAnswer::Left)),
    })
    .await
}
