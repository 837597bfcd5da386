//! The thread that sees to it that every name has a certificate, and that none expires.
//!
//! It orders one certificate at a time, and gives each order five minutes. It sleeps until the next one is due; while there are other servers
//! with the same store it looks at the store's files now and then. A panic is an order that failed, or a certificate that cannot be used, never
//! the thread's end.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    io,
    path::PathBuf,
    sync::Arc,
    thread,
    time::{Duration, SystemTime},
};

use hayate_panics::{caught, caught_now};
use instant_acme::{Account, CertificateIdentifier};
use tokio::{
    runtime::Builder,
    sync::{mpsc, oneshot},
    time::{Instant, timeout},
};

use super::{
    Authority, Store,
    demand::Demand,
    order::{self, Trouble, with_fresh_nonces},
    store::Failed,
    vouching::{Verdict, Vouching},
};
use crate::{Certificate, Pair, Resolver, certificate::now, is_name, self_signed};

/// An order's time.
const ORDER: Duration = Duration::from_secs(300);
/// A question's about renewal.
const QUESTION: Duration = Duration::from_secs(60);
/// How often the store is looked at for what other servers have put there.
const LOOK: Duration = Duration::from_secs(60);
/// While another server is about to have a certificate that is missing here.
const LOOK_SOON: Duration = Duration::from_secs(3);
/// How long a stored certificate that cannot be read is looked at again before another one is ordered.
const UNREAD: Duration = Duration::from_secs(600);
/// Before all is begun anew.
const AFTER_A_PANIC: Duration = Duration::from_secs(1);
/// Pauses after failures: the first, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(6 * 3600));
/// How often the authority is asked about renewal, at most and at least, whatever it says itself.
const ASK: (Duration, Duration) = (Duration::from_secs(300), Duration::from_secs(24 * 3600));
/// Names had on demand.
const MOST_ON_DEMAND: usize = 10_000;
/// Of them without a certificate; for another one, the one that nobody has asked for the longest time is forgotten.
const MOST_LENT: usize = 100;
/// Seconds after which whoever said no to the renewal of a certificate is asked again.
const ASK_AGAIN: i64 = 24 * 3600;
/// Seconds after its end from which on nobody seems to want a certificate that was had on demand: it is forgotten until somebody asks for it.
const LEFT: i64 = 30 * 24 * 3600;

/// What there should be.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// From files, the default one first. One that is broken does not take the place of what its files held before.
    pub pairs: Vec<Pair>,
    /// Hosts that get a certificate of our own.
    pub self_signed: Vec<String>,
    /// Whom to ask for others.
    pub authority: Option<Authority>,
    /// For which hosts.
    pub hosts: Vec<String>,
}

enum Message {
    Wanted(Box<Wanted>, oneshot::Sender<()>),
    Challenge(String, oneshot::Sender<Option<String>>),
}

/// The thread's handle. The thread ends with the last of them.
#[derive(Debug, Clone)]
pub struct Keeper {
    messages: mpsc::UnboundedSender<Message>,
}

impl Keeper {
    /// Starts the thread. `demanded` is the other end of the resolver's.
    pub fn start(resolver: Arc<Resolver>, demanded: mpsc::Receiver<String>) -> io::Result<Keeper> {
        let (messages, hear) = mpsc::unbounded_channel();
        thread::Builder::new().name("certificates".into()).spawn(move || {
            let runtime = match Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => {
                    tracing::error!("certificates cannot be renewed: {error}");
                    return;
                }
            };
            runtime.block_on(Keeping::new(resolver).keep(hear, demanded));
        })?;
        Ok(Keeper { messages })
    }

    /// Says what there should be from now on. Once the other end has an answer, all is in force that is there already.
    pub fn want(&self, wanted: Wanted) -> oneshot::Receiver<()> {
        let (reply, answer) = oneshot::channel();
        // An error: the thread could not start, which it has said.
        let _ = self.messages.send(Message::Wanted(Box::new(wanted), reply));
        answer
    }

    /// What the authority is to be told that asks for this token by HTTP; `None`: it is not one of ours.
    pub async fn challenge(&self, token: &str) -> Option<String> {
        let (reply, answer) = oneshot::channel();
        self.messages.send(Message::Challenge(token.to_owned(), reply)).ok()?;
        timeout(Duration::from_secs(10), answer).await.ok()?.ok()?
    }
}

/// One name that the authority is asked for.
#[derive(Default)]
struct Name {
    certificate: Option<Certificate>,
    /// When its file was written, as it was read last; and as the log has heard that it cannot be used.
    written: Option<SystemTime>,
    unusable: Option<SystemTime>,
    /// Since when what is stored cannot be read: it may be a good certificate.
    unread: Option<Instant>,
    /// Seconds since the epoch: when it is to be renewed.
    renew_at: i64,
    /// When the authority is asked about that again.
    ask_at: i64,
    /// When something is to be done next.
    due: i64,
    /// It is not configured, but was asked for: of all such names this was the how-manyth, when it was asked for last.
    asked: Option<u64>,
    /// It is named among those that are had on demand.
    named: bool,
}

impl Name {
    /// It has nothing but that somebody has asked for it.
    fn is_lent(&self) -> bool {
        self.asked.is_some() && !self.named && self.certificate.is_none()
    }

    /// Its certificate, this one, ended long ago, and nobody but visitors has ever wanted it.
    fn is_left(&self, certificate: &Certificate) -> bool {
        self.asked.is_some() && !self.named && certificate.remaining() < -LEFT
    }
}

struct Keeping {
    resolver: Arc<Resolver>,
    wanted: Wanted,
    /// From files, with where each is from; and that of our own.
    fixed: Vec<(PathBuf, Certificate)>,
    own: Option<Certificate>,
    store: Option<Store>,
    account: Option<Account>,
    names: BTreeMap<String, Name>,
    demand: Demand,
    /// How often a name was asked for on demand.
    asked: u64,
    /// The clock when it was last looked at: seconds since the epoch.
    seen: i64,
    /// When all files of the store were last looked at.
    looked: Instant,
    vouching: Vouching,
}

impl Keeping {
    fn new(resolver: Arc<Resolver>) -> Keeping {
        Keeping {
            resolver,
            wanted: Wanted::default(),
            fixed: Vec::new(),
            own: None,
            store: None,
            account: None,
            names: BTreeMap::new(),
            demand: Demand::default(),
            asked: 0,
            seen: 0,
            looked: Instant::now(),
            vouching: Vouching::default(),
        }
    }

    /// The thread's work, until nobody wants anything any more.
    async fn keep(
        mut self,
        mut messages: mpsc::UnboundedReceiver<Message>,
        mut demanded: mpsc::Receiver<String>,
    ) {
        while caught(self.run(&mut messages, &mut demanded)).await.is_err() {
            tracing::error!(
                "the certificates in force stay so; what was being done about them is begun anew"
            );
            tokio::time::sleep(AFTER_A_PANIC).await;
        }
    }

    async fn run(
        &mut self,
        messages: &mut mpsc::UnboundedReceiver<Message>,
        demanded: &mut mpsc::Receiver<String>,
    ) {
        loop {
            let next = self.next();
            let sleep = async {
                match next {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                message = messages.recv() => match message {
                    Some(message) => self.hear(message),
                    None => return,
                },
                Some(name) = demanded.recv() => self.demand(name),
                () = sleep => {}
            }
            while let Ok(name) = demanded.try_recv() {
                self.demand(name);
            }
            // The challenge is asked for while the order waits, and settings may change meanwhile.
            let mut later = Vec::new();
            let mut asked = Vec::new();
            if let Some(name) = self.due() {
                let store = self.store.clone();
                let work = self.attend_safely(&name);
                tokio::pin!(work);
                loop {
                    tokio::select! {
                        () = &mut work => break,
                        message = messages.recv() => match message {
                            Some(Message::Challenge(token, reply)) => {
                                // Whoever asked may have left.
                                let _ = reply.send(store.as_ref().and_then(|store| store.challenge(&token)));
                            }
                            Some(message) => later.push(message),
                            None => return,
                        },
                        // Those who ask for more names meanwhile ask again.
                        Some(name) = demanded.recv(), if asked.len() < MOST_LENT => asked.push(name),
                    }
                }
            }
            later.into_iter().for_each(|message| self.hear(message));
            asked.into_iter().for_each(|name| self.demand(name));
        }
    }

    fn hear(&mut self, message: Message) {
        match message {
            Message::Wanted(wanted, reply) => {
                // Whoever asked learns of a panic by the end of the channel, and may have left.
                let _ = caught_now(|| self.adopt(*wanted)).map(|()| reply.send(()));
            }
            Message::Challenge(token, reply) => {
                // Whoever asked may have left.
                let _ = reply.send(self.store.as_ref().and_then(|store| store.challenge(&token)));
            }
        }
    }

    fn adopt(&mut self, wanted: Wanted) {
        if wanted.authority != self.wanted.authority {
            self.account = None;
            self.names.clear();
            self.store = wanted.authority.as_ref().and_then(|authority| {
                let opened = Store::open(&authority.storage, &authority.directory);
                opened
                    .inspect_err(|error| {
                        tracing::error!(
                            "certificates cannot be kept in {}: {error}; make it a directory that the front's user may write to",
                            authority.storage.display()
                        );
                    })
                    .ok()
            });
        }
        self.take_pairs(&wanted.pairs);
        if wanted.self_signed.is_empty() {
            self.own = None;
        } else if wanted.self_signed != self.wanted.self_signed {
            let made = self_signed(&wanted.self_signed);
            self.own = made
                .inspect_err(|why| tracing::error!("no self-signed certificate: {why}"))
                .ok()
                .map(|(own, _)| own);
        }
        self.wanted = wanted;
        self.demand.set(
            &self.wanted.authority.as_ref().map(|authority| authority.on_demand.clone()).unwrap_or_default(),
        );
        let (hosts, demand) = (self.wanted.hosts.clone(), &self.demand);
        self.names.retain(|host, name| hosts.contains(host) || (name.asked.is_some() && demand.allows(host)));
        for host in hosts {
            self.add(host, None);
        }
        if let Some(store) = &self.store {
            // An error is told by the first order that wants to use some of it, and comes to nothing.
            self.demand.used = store.allowance().unwrap_or_default();
        }
        self.list();
        self.looked = Instant::now();
        self.publish();
    }

    /// Takes in what was issued on demand before this process was there: nobody has to ask for it anew.
    fn list(&mut self) {
        let stored = self.store.as_ref().map(Store::names).unwrap_or_default();
        let new = |host: &String| self.demand.allows(host) && !self.names.contains_key(host);
        let room = MOST_ON_DEMAND.saturating_sub(self.on_demand().count());
        let stored: Vec<String> = stored.into_iter().filter(new).take(room).collect();
        for host in stored {
            self.add(host.clone(), Some(0));
            // What cannot be used, and what nobody seems to want, waits for somebody who asks.
            if self.names.get(&host).is_some_and(Name::is_lent) {
                self.names.remove(&host);
            }
        }
    }

    fn on_demand(&self) -> impl Iterator<Item = (&String, &Name)> {
        self.names.iter().filter(|(_, name)| name.asked.is_some())
    }

    fn take_pairs(&mut self, pairs: &[Pair]) {
        let before = std::mem::take(&mut self.fixed);
        for pair in pairs {
            let old = || before.iter().find(|(place, _)| *place == pair.certificate).cloned();
            match caught_now(|| pair.parse()).unwrap_or_else(|_| {
                Err(format!("{}: the server met a fault of its own", pair.certificate.display()))
            }) {
                Ok(certificate) => {
                    if old().is_some_and(|(_, old)| old.chain() != certificate.chain()) {
                        let names = certificate.names().join(" ");
                        tracing::info!(
                            "the certificate of {names} was replaced; good until {}",
                            certificate.end()
                        );
                    }
                    self.fixed.push((pair.certificate.clone(), certificate));
                }
                Err(why) => {
                    let instead = match old() {
                        Some(_) => "the one before is served on",
                        None => "and there is none from before: its hosts get another one's",
                    };
                    tracing::error!("a changed certificate cannot be used, {instead}: {why}");
                    self.fixed.extend(old());
                }
            }
        }
    }

    fn add(&mut self, host: String, asked: Option<u64>) {
        let covered = self.fixed.iter().any(|(_, certificate)| certificate.covers(&host));
        if let Some(known) = self.names.get_mut(&host) {
            known.asked = asked;
            known.named = self.demand.names(&host);
            return;
        }
        if covered || !is_name(&host) {
            return;
        }
        let Some(store) = &self.store else { return };
        let mut name = Name { asked, named: self.demand.names(&host), ..Name::default() };
        name.look(&host, store);
        self.names.insert(host, name);
    }

    /// Somebody has asked for a name that has no certificate.
    fn demand(&mut self, host: String) {
        if !self.demand.allows(&host) {
            return;
        }
        self.asked = self.asked.saturating_add(1);
        if let Some(known) = self.names.get_mut(&host) {
            known.asked = known.asked.map(|_| self.asked);
            return;
        }
        let lent = || self.on_demand().filter(|(_, name)| name.is_lent());
        if lent().count() >= MOST_LENT {
            let longest = lent().min_by_key(|(_, name)| name.asked).map(|(host, _)| host.clone());
            longest.and_then(|longest| self.names.remove(&longest));
        } else if self.on_demand().count() >= MOST_ON_DEMAND {
            return;
        }
        self.add(host.clone(), Some(self.asked));
        // Another server may have got it.
        if self.names.get(&host).is_some_and(|name| name.certificate.is_some()) {
            self.publish();
        }
    }

    /// Asks whether a name that is had on demand may have its certificate; if not, its time is set or it is forgotten.
    async fn is_vouched_for(&mut self, host: &str) -> bool {
        let Some(ask) = self.demand.ask.clone() else { return true };
        let Some(name) = self.names.get(host).filter(|name| name.asked.is_some()) else { return true };
        let (is_lent, ends_soon) = (name.is_lent(), name.certificate.as_ref().is_some_and(ends_soon));
        let pause = match self.vouching.about(host, &ask).await {
            Verdict::Yes => return true,
            // Nobody has said no, and it was vouched for when it was issued.
            Verdict::Unknown(_) if ends_soon => return true,
            Verdict::No if is_lent => {
                self.vouching.refused(host, &ask);
                self.names.remove(host);
                return false;
            }
            Verdict::No => {
                tracing::info!(host, "the certificate is not renewed: {ask} says no");
                ASK_AGAIN
            }
            Verdict::Unknown(pause) => pause,
        };
        if let Some(name) = self.names.get_mut(host) {
            name.due = now().saturating_add(pause);
        }
        false
    }

    /// Puts what there is in force.
    fn publish(&self) {
        let fixed = self.fixed.iter().map(|(_, certificate)| certificate).chain(&self.own);
        let ordered = self.names.values().filter_map(|name| name.certificate.as_ref());
        let all: Vec<Certificate> = fixed.chain(ordered).cloned().collect();
        let on_demand = self.wanted.authority.as_ref().map(|authority| authority.on_demand.patterns.clone());
        self.resolver.set(&all, on_demand.unwrap_or_default());
    }

    /// How long there is nothing to do.
    fn next(&self) -> Option<Duration> {
        let now = now();
        let due = |(host, name): (&String, &Name)| match name.is_lent() {
            true => name.due.max(self.demand.ready_at(host, now)),
            false => name.due,
        };
        let due = self.names.iter().map(due).min()?;
        let left = u64::try_from(due.saturating_sub(now)).unwrap_or_default();
        Some(Duration::from_secs(left).min(LOOK.saturating_sub(self.looked.elapsed())))
    }

    /// Takes in what others have stored, and forgets what nobody seems to want.
    fn look(&mut self) {
        self.looked = Instant::now();
        let Some(store) = &self.store else { return };
        let mut news = false;
        self.names.retain(|host, name| {
            news |= name.look(host, store);
            let left = name.certificate.as_ref().is_some_and(|certificate| name.is_left(certificate));
            news |= left;
            !left
        });
        if news {
            self.publish();
        }
    }

    /// A name for which something is to be done; looks at what others have stored now and then, for it is asked after each name that a visitor
    /// thinks of.
    fn due(&mut self) -> Option<String> {
        let now = now();
        if self.looked.elapsed() >= LOOK {
            self.look();
        }
        // What was to be done at a time of a clock that was set back since may be years away by this one. The clock may have been ahead
        // only while an order failed, between two looks at it: then what is further away than anything says so.
        let back = now < self.seen;
        if back {
            // What seemed to have ended long ago, and was forgotten.
            self.list();
            self.publish();
        }
        let farthest = now.saturating_add(ASK.1.as_secs() as i64);
        for name in self.names.values_mut().filter(|name| back || name.ask_at.max(name.due) > farthest) {
            (name.ask_at, name.due) = (0, 0);
        }
        self.seen = now;
        let is_due = |(host, name): &(&String, &Name)| {
            name.due <= now && (!name.is_lent() || self.demand.ready_at(host, now) <= now)
        };
        // What is configured and what has a certificate to lose comes before what a visitor thought of; of that, what was asked for last,
        // since what has visitors is asked for again and again.
        let order = |name: &Name| match name.asked {
            Some(asked) if name.is_lent() => (Some(Reverse(asked)), 0),
            _ => (None, name.due),
        };
        self.names.iter().filter(is_due).min_by_key(|(_, name)| order(name)).map(|(host, _)| host.clone())
    }

    /// Does what is due for a name. After a panic it is not due again at once: each attempt may be one of those that the authority counts.
    async fn attend_safely(&mut self, host: &str) {
        if caught(self.attend(host)).await.is_err()
            && let Some(store) = self.store.clone()
        {
            let trouble =
                Trouble::new("the server met a fault of its own", "the log has its place; please report it");
            self.failed(host, &store, trouble);
        }
    }

    /// Does what is due for a name.
    async fn attend(&mut self, host: &str) {
        let (Some(store), Some(authority)) = (self.store.clone(), self.wanted.authority.clone()) else {
            return;
        };
        #[cfg(test)]
        assert_ne!(host, tests::FAULTY, "this panic is part of the test");
        let began = now();
        // Another server may have got it.
        if self.names.get_mut(host).is_some_and(|name| name.look(host, &store)) {
            self.publish();
        }
        let missing = self.names.get(host).is_none_or(|name| name.certificate.is_none());
        if !missing {
            self.ask_about_renewal(host, &authority, &store).await;
        }
        let Some(name) = self.names.get_mut(host) else { return };
        if !missing && name.renew_at > began {
            name.due = name.ask_at.min(name.renew_at);
            return;
        }
        // What cannot be read this once would cost one of the few that the authority gives to a name in a week.
        if missing && name.unread.is_some_and(|since| since.elapsed() < UNREAD) {
            name.due = began.saturating_add(LOOK_SOON.as_secs() as i64);
            return;
        }
        if !self.is_vouched_for(host).await {
            return;
        }
        let Some(name) = self.names.get_mut(host) else { return };
        let failed = store.failed(host);
        // One that is further away than any was noted by a clock that was set back since.
        if (1..=PAUSE.1.as_secs() as i64).contains(&failed.until.saturating_sub(began)) {
            name.due = failed.until;
            return;
        }
        let lock = match store.lock(host) {
            Ok(Some(lock)) => lock,
            Ok(None) => {
                // Another server is at it.
                name.due = began.saturating_add(LOOK_SOON.as_secs() as i64);
                return;
            }
            Err(error) => {
                // As below.
                if self.names.get(host).is_some_and(Name::is_lent) {
                    self.demand.is_away(now());
                }
                return self.failed(host, &store, error.into());
            }
        };
        // It may just have been there.
        if name.look(host, &store) && name.renew_at > began {
            return self.publish();
        }
        let outcome = timeout(ORDER, self.order(host, &authority, &store)).await;
        let outcome = outcome.unwrap_or_else(|_| {
            let why = format!("there was no answer within {} s", ORDER.as_secs());
            Err(Trouble::new(why, "the authority cannot be reached, or is busy"))
        });
        match outcome {
            Ok(false) => {
                if let Some(name) = self.names.get_mut(host) {
                    name.due = began.saturating_add(LOOK_SOON.as_secs() as i64);
                }
            }
            Ok(true) => {
                if let Err(error) = store.note_failed(host, None) {
                    tracing::warn!("{error}");
                }
                self.issued(host, &store);
            }
            Err(trouble) => {
                // Each name that visitors think of would be another attempt to find the authority.
                if self.account.is_none() && self.names.get(host).is_some_and(Name::is_lent) {
                    self.demand.is_away(now());
                }
                self.failed(host, &store, trouble);
            }
        }
        drop(lock);
    }

    /// A certificate was issued, and is stored.
    fn issued(&mut self, host: &str, store: &Store) {
        let Some(name) = self.names.get_mut(host) else { return };
        if name.look(host, store) {
            let end = name.certificate.as_ref().map(Certificate::end).unwrap_or_default();
            tracing::info!(host, "a certificate was issued, good until {end}");
            return self.publish();
        }
        // It is looked at again before another one is ordered, which the pause keeps from being soon.
        let why = "what the authority gave cannot be read where it was stored";
        let remedy = "look at acme_storage, and whether too many files are open (LimitNOFILE)";
        self.failed(host, store, Trouble::new(why, remedy));
    }

    async fn account(&mut self, authority: &Authority, store: &Store) -> Result<Account, Trouble> {
        if let Some(account) = &self.account {
            return Ok(account.clone());
        }
        // Several servers make one account.
        let deadline = Instant::now() + QUESTION;
        let _lock = loop {
            match store.lock("account")? {
                Some(lock) => break Some(lock),
                None if Instant::now() > deadline => break None,
                None => tokio::time::sleep(Duration::from_millis(300)).await,
            }
        };
        let account = with_fresh_nonces(async || order::account(authority, store).await).await?;
        self.account = Some(account.clone());
        Ok(account)
    }

    /// Uses one order of what is allowed to the domain of a name; `false`: nothing is left, for another server has used it, or may be about to.
    fn take(&mut self, host: &str, store: &Store) -> io::Result<bool> {
        let Some(_lock) = store.lock("allowance")? else { return Ok(false) };
        self.demand.used = store.allowance()?;
        let now = now();
        if self.demand.ready_at(host, now) > now {
            return Ok(false);
        }
        self.demand.take(host, now);
        store.keep_allowance(&self.demand.used)?;
        Ok(true)
    }

    /// `false`: not now, see [`Keeping::take`].
    async fn order(&mut self, host: &str, authority: &Authority, store: &Store) -> Result<bool, Trouble> {
        let account = self.account(authority, store).await?;
        // Not before: what the authority never heard of costs nothing.
        if self.names.get(host).is_some_and(Name::is_lent) {
            match self.take(host, store) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(error) => {
                    // Each name that visitors think of would be another attempt.
                    self.demand.is_away(now());
                    return Err(error.into());
                }
            }
        }
        let before = self.names.get(host).and_then(|name| name.certificate.as_ref());
        let replaces = before.filter(|before| before.remaining() > 0).and_then(identifier);
        tracing::info!(host, authority = authority.directory, "a certificate is ordered");
        let order =
            async || order::order(&account, authority, store, &self.resolver, host, replaces.clone()).await;
        let (chain, key) = with_fresh_nonces(order).await?;
        store.keep_certificate(host, &chain, &key)?;
        Ok(true)
    }

    fn failed(&mut self, host: &str, store: &Store, trouble: Trouble) {
        // The authority may have forgotten the account.
        self.account = None;
        let times = store.failed(host).times.saturating_add(1);
        let doubled = PAUSE.0.saturating_mul(1 << (times - 1).min(12)).min(PAUSE.1);
        let pause = doubled.max(trouble.pause.unwrap_or_default());
        let until = now().saturating_add(pause.as_secs() as i64);
        if let Err(error) = store.note_failed(host, Some(&Failed { times, until })) {
            tracing::warn!("{error}");
        }
        let Some(name) = self.names.get_mut(host) else { return };
        name.due = until;
        let old = match &name.certificate {
            Some(certificate) if certificate.remaining() > 0 => {
                format!("; the old one is served on, until {}", certificate.end())
            }
            Some(_) => "; the old one has expired".to_owned(),
            None => "; clients of this name cannot connect by TLS".to_owned(),
        };
        let Trouble { why, remedy, .. } = trouble;
        tracing::error!(
            host,
            "no certificate was issued: {why}; {remedy}; tried again in {} s{old}",
            pause.as_secs()
        );
    }

    /// Asks the authority when a certificate should be renewed (ARI), when it is time to ask.
    async fn ask_about_renewal(&mut self, host: &str, authority: &Authority, store: &Store) {
        let now = now();
        let Some(name) = self.names.get(host) else { return };
        if name.ask_at > now {
            return;
        }
        let certificate = name.certificate.clone();
        let asked = async {
            let account = self.account(authority, store).await.ok()?;
            let id = certificate.as_ref().and_then(identifier)?;
            account.renewal_info(&id).await.ok()
        };
        let answer = timeout(QUESTION, asked).await.ok().flatten();
        let Some(name) = self.names.get_mut(host) else { return };
        let Some((info, retry)) = answer else {
            // Not known there, or not now: two thirds of its life hold.
            name.ask_at = now.saturating_add(3600 * 6);
            return;
        };
        name.ask_at = now.saturating_add(retry.clamp(ASK.0, ASK.1).as_secs() as i64);
        let (start, end) =
            (info.suggested_window.start.unix_timestamp(), info.suggested_window.end.unix_timestamp());
        // Everybody at another moment of the window, and the same one whenever it is asked.
        let width = end.saturating_sub(start).max(1);
        let place = host.bytes().fold(7u64, |sum, b| sum.wrapping_mul(31).wrapping_add(b.into()));
        let at = start.saturating_add((place % width.unsigned_abs()) as i64);
        if at <= now {
            tracing::info!(host, "the authority suggests to renew the certificate now");
        }
        // Never later than is wise without its word.
        name.renew_at = at.min(name.certificate.as_ref().map_or(at, latest));
    }
}

impl Name {
    /// Takes in what is stored, if it is new. Whether it was.
    fn look(&mut self, host: &str, store: &Store) -> bool {
        let written = store.written(host);
        if written == self.written && self.certificate.is_some() {
            return false;
        }
        self.written = written;
        let stored = store.certificate(host);
        // A file that was read and makes no sense is another matter.
        let unread = stored.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::InvalidData);
        self.unread = unread.then(|| self.unread.unwrap_or_else(Instant::now));
        match stored {
            Ok(Some(certificate)) if self.is_left(&certificate) => false,
            Ok(Some(certificate)) if certificate.covers(host) => {
                self.renew_at = latest(&certificate);
                // The authority is asked about it first.
                (self.ask_at, self.due) = (0, 0);
                (self.certificate, self.unusable) = (Some(certificate), None);
                true
            }
            Ok(_) => false,
            Err(error) => {
                let served_on = self.certificate.is_some();
                if served_on {
                    // It may be that it could not be read this time: it is looked at again.
                    self.written = None;
                }
                if self.unusable != written {
                    self.unusable = written;
                    let so = if served_on {
                        "the one before is served on, and the file is looked at again"
                    } else if unread {
                        "it is looked at again, for ten minutes, before another one is ordered"
                    } else {
                        "another one is ordered"
                    };
                    tracing::error!(host, "a stored certificate cannot be used: {error}; {so}");
                }
                false
            }
        }
    }
}

/// When a certificate is renewed without the authority's word: after two thirds of its life, or half of a short one.
fn latest(certificate: &Certificate) -> i64 {
    let (from, to) = certificate.validity();
    let life = to.saturating_sub(from);
    let part = if life < 10 * 24 * 3600 { life / 2 } else { life / 3 * 2 };
    from.saturating_add(part)
}

/// Whether it is in the last tenth of its life.
fn ends_soon(certificate: &Certificate) -> bool {
    let (from, to) = certificate.validity();
    (1..=to.saturating_sub(from) / 10).contains(&certificate.remaining())
}

fn identifier(certificate: &Certificate) -> Option<CertificateIdentifier<'static>> {
    let own = certificate.chain().first()?;
    CertificateIdentifier::try_from(own).ok().map(CertificateIdentifier::into_owned)
}

#[cfg(test)]
mod tests;
