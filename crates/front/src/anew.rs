//! What a request is for, where it was configured anew while its body came or it waited for a slot.
//!
//! It promises that no script runs in another release than its own, nor for another customer, and that what closes a page from now on closes it
//! for those as well who asked before. So the request is judged once more, from the beginning, as if it came now; it is not counted again.
//! Headers that rules put on answers are those of when it came.

use std::{sync::Arc, time::Duration};

use hayate_http::Exchange;

use crate::{
    dynamic::{Client, NoAnswer, no_answer},
    reply::Reply,
    request::unless_gone,
    route::{self, Found, Script},
    rules::{Dresses, Verdict},
    site::Site,
    target::Target,
    thread::Held,
};

/// What has become of it.
pub(crate) enum Anew {
    Script(Moved),
    /// What answers is closed, or has moved away, for this client at least.
    Answer(Box<Reply>),
}

/// The script that answers now.
pub(crate) struct Moved {
    pub(crate) site: Arc<Site>,
    pub(crate) script: Arc<Script>,
    path: Vec<u8>,
    query: Option<Vec<u8>>,
    timeout: Option<Duration>,
}

impl Moved {
    /// The request as the rules have it now.
    pub(crate) fn client<'a>(&'a self, before: &Client<'a>) -> Client<'a> {
        let target = Target { query: self.query.as_deref(), ..before.target };
        Client { path: &self.path, target, timeout: self.timeout, ..*before }
    }
}

/// Finds it by what is configured `now`.
pub(crate) async fn routed(
    client: &Client<'_>,
    exchange: &mut Exchange<'_>,
    now: &Held,
) -> Result<Anew, NoAnswer> {
    let gone = || {
        no_answer(
            503,
            "what answered here is not configured any more; it was taken away while this request came",
        )
    };
    let closed = || Ok(Anew::Answer(Reply::page(404, None)));
    let site = now.routes.pick(client.name, client.asked).cloned().ok_or_else(gone)?;
    let inside = site.inside(client.asked).ok_or_else(gone)?;
    // Rules may have changed path and query, which hold no more.
    let query = Target::parse(client.target.whole).ok().and_then(|target| target.query);
    let target = Target { query, ..client.target };
    let mut asked = Client { path: client.asked, target, counted: true, ..*client };
    let (keeper, mut dresses) = (&client.thread.front.keeper, Dresses::new());
    let mut passed = match &site.rules {
        None => None,
        Some(rules) => {
            match unless_gone(exchange, rules.judge(&asked, inside, keeper, &mut dresses)).await? {
                Verdict::Answer(reply) => return Ok(Anew::Answer(reply)),
                // Files answer there, and no script.
                Verdict::Pass(passed) if passed.alias.is_some() => return Err(gone()),
                Verdict::Pass(passed) => Some((rules, passed)),
            }
        }
    };
    let rewritten = passed.as_mut().and_then(|(_, passed)| passed.rewritten.take());
    if let Some((path, query)) = &rewritten {
        asked.path = path;
        asked.target.query = query.as_deref();
    }
    if site.inside(asked.path).is_some_and(|inside| site.denies(asked.target.path, inside)) {
        return closed();
    }
    let found = route::resolve(&site, asked.path).await;
    let found = found.map_err(|error| no_answer(503, format!("{}: {error}", site.place.path().display())))?;
    if found.inside(&site).is_some_and(|served| site.files.denies(served)) {
        return closed();
    }
    let Found::Script(script) = found else { return Err(gone()) };
    if let Some((rules, passed)) = &mut passed
        && script.otherwise
        && let Some(controller) = site.inside(&script.name)
    {
        let judged = rules.judge_again(&asked, controller, keeper, passed);
        if let Some(reply) = unless_gone(exchange, judged).await? {
            return Ok(Anew::Answer(reply));
        }
    }
    let timeout = passed.and_then(|(_, passed)| passed.timeout);
    let (path, query) = (asked.path.to_vec(), asked.target.query.map(<[u8]>::to_vec));
    drop(dresses);
    Ok(Anew::Script(Moved { site, script, path, query, timeout }))
}
