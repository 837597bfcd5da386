//! A site's rules: what becomes of requests before files and scripts are looked for.
//!
//! They are tried in order, each on the path as the router reads it, without the site's prefix. A rule that fits may refuse, ask for a
//! password, count, and change what follows; one that redirects or refuses is the last. It promises that what restricts holds for every way
//! in which the path can be read (see [`reading`]), that a target with `.` or `..` in it, which PHP sees raw, goes past no rule: it is
//! refused, and that nothing here waits for a disk or takes time beyond the length of the path: passwords have a thread of their own.
//! A site without rules has none of this: [`crate::Site::rules`] is `None`.

mod condition;
mod doubt;
mod dress;
#[cfg(any(test, feature = "fuzzed"))]
#[allow(clippy::panic)]
pub(crate) mod fuzzed;
mod names;
mod pattern;
mod rate;
mod reading;
mod spec;
mod target;
mod then;
mod users;

use std::{
    borrow::Cow,
    collections::HashMap,
    hash::Hash,
    net::IpAddr,
    sync::{Arc, Weak},
    time::Duration,
};

use bytes::Bytes;
use hayate_http::Answer;
use ipnet::IpNet;
use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use smallvec::SmallVec;

use crate::{
    disk::Place,
    dynamic::{Client, NoAnswer, no_answer},
    reply::{Body, Reply, set},
    site::{FileRules, Inside, Site},
};

use self::{
    condition::{Asked, Condition, Fit, Stopped, Wrong, contains},
    rate::{Limiter, TooOften},
    then::Then,
    users::{Checker, Users, Who},
};

pub use self::{
    doubt::doubts,
    names::{HIDDEN_FILES, Hidden},
    spec::{AuthSpec, Fault, HeadersSpec, RateBy, RateSpec, RuleSpec},
};
pub(crate) use self::{
    dress::{Dress, ForWhom},
    names::unpacked,
    reading::{BehindHost, Readings, Scripts},
    spec::client_of,
};

/// The status of an answer that has no body.
const NO_CONTENT: u16 = 204;

/// Rules of one site at most.
const MOST: usize = 1000;

/// What outlives a reload: who asked how often, and who got through by a password.
#[derive(Default)]
pub struct Keeper {
    limiters: Kept<(String, String), Limiter>,
    users: Kept<(String, String), Users>,
    pub(crate) checker: Checker,
}

struct Kept<K, V>(Mutex<HashMap<K, Weak<V>>>);

impl<K, V> Default for Kept<K, V> {
    fn default() -> Kept<K, V> {
        Kept(Mutex::default())
    }
}

impl<K: Eq + Hash, V> Kept<K, V> {
    fn get<E>(&self, key: K, make: impl FnOnce() -> Result<V, E>) -> Result<Arc<V>, E> {
        let mut kept = self.0.lock();
        if let Some(known) = kept.get(&key).and_then(Weak::upgrade) {
            return Ok(known);
        }
        kept.retain(|_, known| known.strong_count() > 0);
        let made = Arc::new(make()?);
        kept.insert(key, Arc::downgrade(&made));
        Ok(made)
    }
}

/// The site that rules are for.
pub struct Around<'a> {
    /// Its name.
    pub app: &'a str,
    /// Its path prefix, "/" or like "/blog".
    pub path: &'a str,
    /// Its document root.
    pub place: &'a Arc<Place>,
    /// What holds for its files.
    pub files: &'a Arc<FileRules>,
    /// Names tried in a directory.
    pub index: &'a [String],
    /// Script below the root that answers what no file answers.
    pub front_controller: Option<&'a str>,
}

/// The rules of a site, checked.
pub struct Rules {
    rules: Vec<Rule>,
    scripts: Scripts,
    prefix: Vec<u8>,
}

struct Rule {
    when: Condition,
    allow: Option<Vec<IpNet>>,
    rate: Option<Arc<Limiter>>,
    auth: Option<(Arc<Users>, String)>,
    max_body: Option<u64>,
    timeout: Option<Duration>,
    dress: Option<Dress>,
    then: Then,
    stop: bool,
}

/// A request that may go on.
pub(crate) struct Passed<'r> {
    /// Path, with the site's prefix, and query, if they are no more what was asked for.
    pub(crate) rewritten: Option<(Vec<u8>, Option<Vec<u8>>)>,
    /// In place of the site.
    pub(crate) alias: Option<&'r Arc<Site>>,
    pub(crate) limits: RuleLimits,
    /// A `stop` has ended some reading: nobody has more by what follows, for the path may have been written so that another one goes on.
    settled: bool,
    /// How many rules were looked at, and which of them fit: what was asked for, or only another way to read it.
    looked: usize,
    fit: SmallVec<[(usize, bool); 4]>,
}

/// What rules let a request have, where that is not what holds for the site.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct RuleLimits {
    pub(crate) max_body: Option<u64>,
    pub(crate) timeout: Option<Duration>,
}

impl RuleLimits {
    /// Takes those of a rule that fits. Where it is not what was `asked` for that fits, but another way to read it, they are taken only if that
    /// leaves less: nobody gets more by writing a path so that it may mean another one too. `before`: what holds without rules.
    fn take(&mut self, rule: &Rule, asked: bool, before: u64) {
        if asked {
            self.max_body = rule.max_body.or(self.max_body);
            self.timeout = rule.timeout.or(self.timeout);
        } else if let Some(most) = rule.max_body {
            // 0 is any.
            let is = self.max_body.unwrap_or(before);
            if most != 0 && (is == 0 || most < is) {
                self.max_body = Some(most);
            }
        }
    }
}

/// What the rules make of a request.
pub(crate) enum Verdict<'r> {
    Pass(Passed<'r>),
    Answer(Box<Reply>),
}

/// What rules do to the answer.
#[derive(Default)]
pub(crate) struct Dresses<'r> {
    /// In order.
    pub(crate) worn: SmallVec<[&'r Dress; 4]>,
    /// Not everybody gets through.
    pub(crate) guarded: bool,
}

impl Rules {
    /// Checks rules and makes them ready. `None` where there are none.
    pub fn new(specs: &[RuleSpec], around: &Around<'_>, keeper: &Keeper) -> Result<Option<Rules>, Fault> {
        if specs.is_empty() {
            return Ok(None);
        }
        if specs.len() > MOST {
            let message = format!("there are {} rules; write {MOST} at most", specs.len());
            return Err(Fault { rule: MOST, key: "rule", message });
        }
        let prefix = if around.path == "/" { Vec::new() } else { around.path.as_bytes().to_vec() };
        let each = specs.iter().enumerate().map(|(i, spec)| {
            Rule::new(spec, around, &prefix, keeper).map_err(|(key, message)| Fault { rule: i, key, message })
        });
        let scripts = Scripts::new(around.front_controller);
        Ok(Some(Rules { rules: each.collect::<Result<_, _>>()?, scripts, prefix }))
    }

    /// Rules that let nobody through, for a site whose own cannot be had.
    pub fn closed() -> Rules {
        let closed = Rule {
            when: Condition::any(),
            allow: None,
            rate: None,
            auth: None,
            max_body: None,
            timeout: None,
            dress: None,
            then: Then::Deny(503),
            stop: false,
        };
        Rules { rules: vec![closed], scripts: Scripts::default(), prefix: Vec::new() }
    }

    /// What becomes of a request. Of the rules that fit, what they do to the answer is put into `dresses`, whatever that will be.
    pub(crate) async fn judge<'r>(
        &'r self,
        client: &Client<'_>,
        inside: Inside<'_>,
        keeper: &Keeper,
        dresses: &mut Dresses<'r>,
    ) -> Result<Verdict<'r>, NoAnswer> {
        if has_dots(client.target.path) {
            return Err(no_answer(
                400,
                "the path has . or .. in it, which scripts may read otherwise than rules",
            ));
        }
        let asked = Asked::of(client);
        let mut passed = Passed {
            rewritten: None,
            alias: None,
            limits: RuleLimits::default(),
            settled: false,
            looked: 0,
            fit: SmallVec::new(),
        };
        let behind = BehindHost::new(client.target.path, &self.prefix, &self.scripts);
        let mut path = Cow::Borrowed(or_slash(inside));
        let mut query = client.target.query.map(Cow::Borrowed);
        let mut rules = self.rules.iter().enumerate();
        let (mut stopped, mut changed) = (false, true);
        while std::mem::take(&mut changed) && !stopped {
            let next = {
                let readings = self.readings(&path, &behind)?;
                let mut next = None;
                for (i, rule) in rules.by_ref() {
                    passed.looked = i.saturating_add(1);
                    // One that a `stop` ends while another goes on may still be led elsewhere: so all restrict it, up to there.
                    let fit = rule.when.fit(&asked, &readings, Stopped::default());
                    if !fit.some {
                        continue;
                    }
                    let whole = fit.asked.is_some() && !passed.settled;
                    passed.fit.push((i, whole));
                    if let Some(reply) = rule.keeps_out(client, &readings, keeper).await? {
                        return Ok(Verdict::Answer(reply));
                    }
                    dresses.guarded |= rule.keeps_some_out();
                    if let Then::Respond(status, text) = &rule.then
                        && (fit.asked.is_some() || refuses(*status))
                    {
                        dresses.worn.extend(&rule.dress);
                        return Ok(Verdict::Answer(respond(*status, text)));
                    }
                    passed.limits.take(rule, whole, client.max_body);
                    passed.settled |= rule.stop;
                    if let Some(found) = &fit.asked {
                        dresses.worn.extend(&rule.dress);
                        let asked = (client.target.path, client.target.query);
                        let given = found.given(query.as_deref(), asked, client.host, &self.prefix);
                        match &rule.then {
                            Then::Next | Then::Deny(_) | Then::Respond(..) => {}
                            Then::Redirect(status, to) => {
                                return redirect(*status, &to.location(&given)).map(Verdict::Answer);
                            }
                            Then::Rewrite(to) => {
                                let new = to.rewritten(&given);
                                let dots =
                                    || no_answer(400, "what a rule makes of the path has . or .. in it");
                                next = Some(new.ok_or_else(dots)?);
                            }
                            Then::Alias(site) => passed.alias = Some(site),
                        }
                    }
                    stopped = rule.stop && fit.every;
                    if stopped || next.is_some() {
                        break;
                    }
                }
                next
            };
            if let Some((new_path, new_query)) = next {
                let kept_out = {
                    let readings = self.readings(&new_path, &behind)?;
                    self.restrict(client, &asked, &readings, keeper, &mut passed, dresses).await?
                };
                if let Some(reply) = kept_out {
                    return Ok(Verdict::Answer(reply));
                }
                passed.rewritten = Some(([&self.prefix[..], &new_path].concat(), new_query.clone()));
                (path, query, changed) = (Cow::Owned(new_path), new_query.map(Cow::Owned), true);
            }
        }
        Ok(Verdict::Pass(passed))
    }

    /// The front controller, or a directory's index, answers, though the path says nothing of it: what restricts it holds for this request as
    /// well, as with nginx, which looks for a location again. `served` is its path, without the site's prefix. An answer is for somebody who does
    /// not get through.
    pub(crate) async fn judge_again<'r>(
        &'r self,
        client: &Client<'_>,
        served: &[u8],
        keeper: &Keeper,
        passed: &mut Passed<'_>,
        dresses: &mut Dresses<'r>,
    ) -> Result<Option<Box<Reply>>, NoAnswer> {
        let behind = BehindHost::default();
        let readings = self.readings(served, &behind)?;
        self.restrict(client, &Asked::of(client), &readings, keeper, passed, dresses).await
    }

    /// The request is now for another path: of the rules that were looked at, and that did not fit already, those that fit this one keep out
    /// whom they keep out, and their limits hold. Otherwise a `rewrite`, or a file that is not there, would lead past them.
    async fn restrict<'r>(
        &'r self,
        client: &Client<'_>,
        asked: &Asked<'_>,
        readings: &Readings<'_>,
        keeper: &Keeper,
        passed: &mut Passed<'_>,
        dresses: &mut Dresses<'r>,
    ) -> Result<Option<Box<Reply>>, NoAnswer> {
        let (mut limits, mut ended, mut stopped) = (RuleLimits::default(), Stopped::default(), false);
        for (i, rule) in self.rules.iter().enumerate().take(passed.looked) {
            let mut is_asked = passed.fit.iter().find(|(fit, _)| *fit == i).map(|(_, asked)| *asked);
            let looks = !stopped && (is_asked.is_none() || rule.stop);
            let fit = if looks { rule.when.fit(asked, readings, ended) } else { Fit::default() };
            let whole = !passed.settled;
            passed.settled |= rule.stop && fit.some;
            stopped |= rule.stop && ended.by(&fit);
            if is_asked.is_none() {
                if !fit.some {
                    continue;
                }
                is_asked = Some(whole);
                passed.fit.push((i, whole));
                if let Some(reply) = rule.keeps_out(client, readings, keeper).await? {
                    return Ok(Some(reply));
                }
                dresses.guarded |= rule.keeps_some_out();
                if let Then::Respond(status, text) = &rule.then
                    && refuses(*status)
                {
                    dresses.worn.extend(&rule.dress);
                    return Ok(Some(respond(*status, text)));
                }
            }
            limits.take(rule, is_asked == Some(true), client.max_body);
        }
        passed.limits = limits;
        Ok(None)
    }

    /// The path for a request of the server's own, with the site's prefix; `None`: a rule leads elsewhere. It comes from nowhere, has no
    /// headers, needs no password and is not counted.
    pub(crate) fn visit(&self, inside: Inside<'_>, query: Option<&[u8]>) -> Option<Vec<u8>> {
        let asked = Asked { method: b"GET", client: None, addr: None };
        let behind = BehindHost::default();
        let mut path = or_slash(inside).to_vec();
        let mut query = query.map(<[u8]>::to_vec);
        let mut rules = self.rules.iter();
        let mut looked = 0_usize;
        let (mut stopped, mut changed) = (false, true);
        while std::mem::take(&mut changed) && !stopped {
            let next = {
                let readings = Readings::new(&path, &behind, &self.scripts)?;
                let mut next = None;
                for rule in rules.by_ref() {
                    looked = looked.saturating_add(1);
                    let fit = rule.when.fit(&asked, &readings, Stopped::default());
                    if fit.some && rule.refuses() {
                        return None;
                    }
                    if let Some(found) = &fit.asked {
                        match &rule.then {
                            Then::Next | Then::Deny(_) => {}
                            Then::Redirect(..) | Then::Alias(_) | Then::Respond(..) => return None,
                            Then::Rewrite(to) => {
                                let given = found.given(query.as_deref(), (b"", None), "", &self.prefix);
                                next = Some(to.rewritten(&given)?);
                            }
                        }
                    }
                    stopped = rule.stop && fit.every;
                    if stopped || next.is_some() {
                        break;
                    }
                }
                next
            };
            if let Some(new) = next {
                (path, query) = new;
                changed = true;
                let readings = Readings::new(&path, &behind, &self.scripts)?;
                let mut ended = Stopped::default();
                for rule in self.rules.iter().take(looked) {
                    let fit = rule.when.fit(&asked, &readings, ended);
                    if fit.some && rule.refuses() {
                        return None;
                    }
                    if rule.stop && ended.by(&fit) {
                        break;
                    }
                }
            }
        }
        Some([&self.prefix[..], &path].concat())
    }

    /// What serves a path in place of the site's document root, where a script leads a client to it: the last `alias` that is for both,
    /// whatever keeps visitors out.
    pub(crate) fn alias(&self, client: &Client<'_>, inside: Inside<'_>) -> Option<&Arc<Site>> {
        let asked = Asked::of(client);
        self.rules.iter().rev().find_map(|rule| match &rule.then {
            Then::Alias(site) if rule.when.is_for(&asked, or_slash(inside)) => Some(site),
            _ => None,
        })
    }

    fn readings<'a>(&self, path: &'a [u8], behind: &'a BehindHost) -> Result<Readings<'a>, NoAnswer> {
        Readings::new(path, behind, &self.scripts)
            .ok_or_else(|| no_answer(400, "the path names too many scripts"))
    }
}

/// The path below a site's prefix; the prefix alone is the site's front page.
pub(crate) fn or_slash(inside: Inside<'_>) -> &[u8] {
    match inside.as_bytes() {
        b"" => b"/",
        path => path,
    }
}

/// Whether a raw path has a component `.` or `..`, however it is written. Browsers take them out before they send it.
pub(crate) fn has_dots(raw: &[u8]) -> bool {
    if !raw.contains(&b'%') && memchr::memmem::find(raw, b"/.").is_none() {
        return false;
    }
    let decoded: Cow<'_, [u8]> = percent_encoding::percent_decode(raw).into();
    decoded.split(|b| *b == b'/').any(|part| matches!(part, b"." | b".."))
}

fn redirect(status: u16, location: &[u8]) -> Result<Box<Reply>, NoAnswer> {
    let mut reply = Reply::page(status, None);
    reply.answer.add(b"location", location).map_err(|_| no_answer(400, "the path is malformed"))?;
    Ok(reply)
}

/// Whether a text of a rule's own keeps visitors out as `deny` does: then it holds for every way to what it is for.
fn refuses(status: u16) -> bool {
    status >= 400
}

/// Text, unless the rule's `headers` say otherwise.
fn respond(status: u16, text: &Bytes) -> Box<Reply> {
    if status == NO_CONTENT {
        return Reply::new(Answer::new(status), Body::None);
    }
    let mut reply = Reply::new(Answer::new(status), Body::Full(text.clone()));
    set(&mut reply.answer, "content-type", "text/plain; charset=utf-8");
    reply
}

/// ns of a clock that never goes back.
fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(now.tv_nsec).unwrap_or_default())
}

impl Rule {
    fn new(spec: &RuleSpec, around: &Around<'_>, prefix: &[u8], keeper: &Keeper) -> Result<Rule, Wrong> {
        let when = Condition::new(spec)?;
        let thens = [
            ("redirect", spec.redirect.is_some()),
            ("rewrite", spec.rewrite.is_some()),
            ("deny", spec.deny.is_some()),
            ("alias", spec.alias.is_some()),
            ("respond", spec.respond.is_some()),
        ];
        let mut wanted = thens.iter().filter(|(_, wanted)| *wanted).map(|(key, _)| *key);
        if let (Some(one), Some(other)) = (wanted.next(), wanted.next()) {
            return Err((
                other,
                format!(
                    "a rule does one of redirect, rewrite, deny, alias and respond, and this one has {one} as well; write two rules"
                ),
            ));
        }
        let then = Then::new(spec, &when, around, prefix)?;
        let dress = Dress::new(spec)?;
        let of_rule = serde_json::to_string(spec).unwrap_or_default();
        let rate = spec.rate.as_ref().map(|rate| {
            if !(1..=1_000_000).contains(&rate.requests) || rate.burst > 1_000_000 {
                return Err(("rate", "requests is 1 to 1000000, and burst 0 to 1000000".to_owned()));
            }
            if !(Duration::from_millis(1)..=Duration::from_secs(86_400)).contains(&rate.per) {
                return Err(("rate", "per is out of range; write 1ms to 1d".to_owned()));
            }
            keeper.limiters.get((around.app.to_owned(), of_rule.clone()), || Ok(Limiter::new(rate)))
        });
        let auth = spec.basic_auth.as_ref().map(|auth| {
            if !users::is_realm(&auth.realm) {
                let why =
                    format!("realm: '{}' is no name; write ASCII without quotes", auth.realm.escape_debug());
                return Err(("basic_auth", why));
            }
            let users =
                keeper.users.get((around.app.to_owned(), auth.users.clone()), || Users::parse(&auth.users));
            Ok((users.map_err(|why| ("basic_auth", format!("users: {why}")))?, auth.realm.clone()))
        });
        let rule = Rule {
            when,
            allow: spec.allow.clone(),
            rate: rate.transpose()?,
            auth: auth.transpose()?,
            max_body: spec.max_body,
            timeout: spec.timeout,
            dress: (!dress.is_empty()).then_some(dress),
            then,
            stop: spec.stop,
        };
        if rule.does_nothing() {
            let keys = "allow, rate, basic_auth, max_body, timeout, headers, cache_control, rewrite, redirect, deny, alias, respond or stop";
            return Err(("rule", format!("it says when, and not what: add {keys}")));
        }
        Ok(rule)
    }

    fn does_nothing(&self) -> bool {
        let limits = self.allow.is_none() && self.rate.is_none() && self.auth.is_none();
        let changes = self.max_body.is_none() && self.timeout.is_none() && self.dress.is_none();
        limits && changes && matches!(self.then, Then::Next) && !self.stop
    }

    /// Whether nobody gets past this rule.
    fn refuses(&self) -> bool {
        match self.then {
            Then::Deny(_) => true,
            Then::Respond(status, _) => refuses(status),
            _ => false,
        }
    }

    /// Whether who gets past this rule has a password, or an address, that others have not.
    fn keeps_some_out(&self) -> bool {
        self.allow.is_some() || self.auth.is_some()
    }

    /// The answer for somebody who does not get past this rule.
    async fn keeps_out(
        &self,
        client: &Client<'_>,
        readings: &Readings<'_>,
        keeper: &Keeper,
    ) -> Result<Option<Box<Reply>>, NoAnswer> {
        if self.allow.as_ref().is_some_and(|networks| !contains(networks, client.says_addr())) {
            return Ok(Some(Reply::page(403, None)));
        }
        if let Some(limiter) = self.rate.as_ref().filter(|_| !client.counted) {
            let now = now();
            // By path it may be any of these, and is counted as each: nobody has a page's requests anew by another way to write it.
            let mut keys: SmallVec<[u128; 4]> = SmallVec::new();
            for page in self.when.pages(readings) {
                let key = key(limiter, client, page);
                if !keys.contains(&key) {
                    keys.push(key);
                }
            }
            if let Some(TooOften(seconds)) = keys.iter().find_map(|key| limiter.admit(*key, now).err()) {
                let mut reply = Reply::page(429, None);
                set(&mut reply.answer, "retry-after", &seconds.to_string());
                return Ok(Some(reply));
            }
        }
        // A refusal needs nobody's password.
        if let Then::Deny(status) = self.then {
            return Ok(Some(Reply::page(status, None)));
        }
        let Some((users, realm)) = &self.auth else { return Ok(None) };
        match Box::pin(users.who(client.head, client.visitor, &keeper.checker)).await {
            Who::Known(_) => Ok(None),
            Who::Nobody => {
                let mut reply = Reply::page(401, None);
                set(&mut reply.answer, "www-authenticate", &users::challenge(realm));
                Ok(Some(reply))
            }
            Who::Busy => {
                if let Some(times) = keeper.checker.reminder.happened() {
                    tracing::warn!(
                        "{times} requests got 503: more passwords wait to be verified than one thread can see to (docs/rules.md)"
                    );
                }
                let mut reply = Reply::page(503, None);
                set(&mut reply.answer, "retry-after", "1");
                Ok(Some(reply))
            }
        }
    }
}

/// By what a request is counted. Nobody goes uncounted: who is without the header counts by address, and of whom a proxy says nothing, as
/// the proxy; all that come by unix sockets so are one.
fn key(limiter: &Limiter, client: &Client<'_>, path: &[u8]) -> u128 {
    let by_address = || match client.visitor.or(client.peer.ip) {
        Some(addr) => limiter.address(addr),
        None => limiter.key(client.peer.addr.as_bytes()),
    };
    match limiter.by() {
        RateBy::Address => by_address(),
        RateBy::Header(name) => match client.header(name.as_bytes()).next() {
            None | Some(b"") => by_address(),
            Some(value) => limiter.key(value),
        },
        RateBy::Path => {
            // What follows a script's name would make a new path of it with each request, as would a host that nobody asks for.
            let end = memchr::memmem::find(path, b".php/").map_or(path.len(), |at| at.saturating_add(4));
            limiter.key(path.get(..end).unwrap_or(path))
        }
        RateBy::All => 0,
    }
}

impl Keeper {
    /// Has ready what the rules of these sites need before they are asked: the thread for passwords.
    pub(crate) fn prepare<'a>(&self, sites: impl Iterator<Item = &'a Arc<Site>>) {
        let needed = sites
            .filter_map(|site| site.rules.as_ref())
            .any(|rules| rules.rules.iter().any(|rule| rule.auth.is_some()));
        if needed && let Err(error) = self.checker.start() {
            tracing::error!(
                "no thread for passwords could be started: {error}; whoever needs one gets 503 until the next reload"
            );
        }
    }
}

impl Client<'_> {
    /// Whose address scripts see.
    fn says_addr(&self) -> Option<IpAddr> {
        self.from.map(|from| from.addr).or(self.peer.ip)
    }
}
