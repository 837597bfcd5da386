//! The thread that sees to it that every name has a certificate, and that none expires.
//!
//! It orders one certificate at a time, and gives each order five minutes ([`attending`]). Meanwhile it hears what there should be, and does it:
//! what needs no authority waits for none. It sleeps until the next name is due; while there are other servers with the same store it looks at
//! the store's files now and then. A panic is an order that failed, or a certificate that cannot be used, never the thread's end.

mod attending;

use std::{
    cell::RefCell,
    cmp::Reverse,
    collections::BTreeMap,
    io,
    path::PathBuf,
    pin::pin,
    sync::Arc,
    thread,
    time::{Duration, SystemTime},
};

use hayate_panics::{caught, caught_now};
use instant_acme::{Account, CertificateIdentifier};
use tokio::{
    runtime::Builder,
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    time::{Instant, timeout},
};

use self::attending::Attending;
use super::{
    Authority, OnDemand, Store, demand::Demand, order::STORAGE, store::is_token, vouching::Vouching,
};
use crate::{Certificate, Pair, Resolver, certificate::now, is_name, self_signed};

/// How often the store is looked at for what other servers have put there.
const LOOK: Duration = Duration::from_secs(60);
/// How often the log hears that it cannot be used.
const COMPLAIN: Duration = Duration::from_secs(3600);
/// Seconds after a failure from which on a reload has the order tried again at once.
const AGAIN: i64 = 600;
/// Before all is begun anew.
const AFTER_A_PANIC: Duration = Duration::from_secs(1);
/// How often the authority is asked about renewal, at most and at least, whatever it says itself.
const ASK: (Duration, Duration) = (Duration::from_secs(300), Duration::from_secs(24 * 3600));
/// Names had on demand.
const MOST_ON_DEMAND: usize = 10_000;
/// Of them without a certificate; for another one, the one that nobody has asked for the longest time is forgotten.
const MOST_LENT: usize = 100;
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

/// Why not all is in force that is there.
type Outcome = Result<(), String>;

enum Message {
    Wanted(Box<Wanted>, oneshot::Sender<Outcome>),
    Challenge(String, oneshot::Sender<Option<String>>, OwnedSemaphorePermit),
}

/// Challenges that the thread may be asked for at one time. Anybody may ask, and the store may hang: others wait with their connections.
const CHALLENGES: usize = 64;

/// The thread's handle. The thread ends with the last of them.
#[derive(Debug, Clone)]
pub struct Keeper {
    messages: mpsc::UnboundedSender<Message>,
    challenges: Arc<Semaphore>,
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
            runtime.block_on(keep(Keeping::new(resolver), hear, demanded));
        })?;
        Ok(Keeper { messages, challenges: Arc::new(Semaphore::new(CHALLENGES)) })
    }

    /// Says what there should be from now on. Once the other end has an answer, all is in force that is there already, or it says why not. No
    /// order is waited for.
    pub fn want(&self, wanted: Wanted) -> oneshot::Receiver<Result<(), String>> {
        let (reply, answer) = oneshot::channel();
        // An error: the thread could not start, which it has said.
        let _ = self.messages.send(Message::Wanted(Box::new(wanted), reply));
        answer
    }

    /// What the authority is to be told that asks for this token by HTTP; `None`: it is not one of ours.
    pub async fn challenge(&self, token: &str) -> Option<String> {
        if !is_token(token) {
            return None;
        }
        let asked = async {
            let turn = Arc::clone(&self.challenges).acquire_owned().await.ok()?;
            let (reply, answer) = oneshot::channel();
            self.messages.send(Message::Challenge(token.to_owned(), reply, turn)).ok()?;
            answer.await.ok()?
        };
        timeout(Duration::from_secs(10), asked).await.ok()?
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
    /// Its certificate is of another authority, or from another store, and served until the one that is asked now has given one.
    foreign: bool,
    /// Its certificate with its key, in PEM, where it could not be stored yet.
    unkept: Option<(String, String)>,
    /// Orders that failed in a row, as far as this process knows: the store may have no room for their number.
    failures: u32,
    /// An order is made at its next turn, however short ago one has failed.
    at_once: bool,
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

/// The thread's work, until nobody wants anything any more.
async fn keep(
    keeping: Keeping,
    mut messages: mpsc::UnboundedReceiver<Message>,
    mut demanded: mpsc::Receiver<String>,
) {
    let keeping = RefCell::new(keeping);
    while caught(run(&keeping, &mut messages, &mut demanded)).await.is_err() {
        tracing::error!("the certificates in force stay so; what was being done about them is begun anew");
        tokio::time::sleep(AFTER_A_PANIC).await;
    }
}

async fn run(
    keeping: &RefCell<Keeping>,
    messages: &mut mpsc::UnboundedReceiver<Message>,
    demanded: &mut mpsc::Receiver<String>,
) {
    loop {
        let next = keeping.borrow().next();
        let sleep = async {
            match next {
                Some(pause) => tokio::time::sleep(pause).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            message = messages.recv() => match message {
                Some(message) => keeping.borrow_mut().hear(message),
                None => return,
            },
            Some(name) = demanded.recv() => keeping.borrow_mut().demand(name),
            () = sleep => {}
        }
        while let Ok(name) = demanded.try_recv() {
            keeping.borrow_mut().demand(name);
        }
        let Some(attending) = Attending::next(keeping) else { continue };
        let mut asked = Vec::new();
        {
            let mut work = pin!(attending.work());
            loop {
                tokio::select! {
                    () = &mut work => break,
                    message = messages.recv() => match message {
                        Some(message) => keeping.borrow_mut().hear(message),
                        None => return,
                    },
                    // They would take the place of the name that is attended to. Those who ask for more meanwhile ask again.
                    Some(name) = demanded.recv(), if asked.len() < MOST_LENT => asked.push(name),
                }
                if !attending.is_wanted() {
                    attending.gives_up();
                    break;
                }
            }
        }
        asked.into_iter().for_each(|name| keeping.borrow_mut().demand(name));
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
    /// The account is in the store.
    account_is_kept: bool,
    names: BTreeMap<String, Name>,
    demand: Demand,
    /// How often a name was asked for on demand.
    asked: u64,
    /// The clock when it was last looked at: seconds since the epoch.
    seen: i64,
    /// When all files of the store were last looked at.
    looked: Instant,
    /// When the log last heard that the store cannot be used.
    complained: Option<Instant>,
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
            account_is_kept: false,
            names: BTreeMap::new(),
            demand: Demand::default(),
            asked: 0,
            seen: 0,
            looked: Instant::now(),
            complained: None,
            vouching: Vouching::default(),
        }
    }

    fn hear(&mut self, message: Message) {
        match message {
            Message::Wanted(wanted, reply) => {
                // Whoever asked learns of a panic by the end of the channel, and may have left.
                let _ = caught_now(|| self.adopt(*wanted)).map(|outcome| reply.send(outcome));
            }
            Message::Challenge(token, reply, turn) => {
                // Whoever asked may have left.
                if !reply.is_closed() {
                    let _ = reply.send(self.store.as_ref().and_then(|store| store.challenge(&token)));
                }
                drop(turn);
            }
        }
    }

    /// Does what is wanted; the outcome is about what is in files, and that of our own.
    fn adopt(&mut self, wanted: Wanted) -> Outcome {
        let same = match (&wanted.authority, &self.wanted.authority) {
            (Some(one), Some(other)) => is_same(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        if !same {
            (self.account, self.store) = (None, None);
            if wanted.authority.is_none() {
                self.names.clear();
            }
            let place = |wanted: &Wanted| {
                wanted.authority.as_ref().map(|one| (one.directory.clone(), one.root.clone()))
            };
            let elsewhere = place(&wanted) != place(&self.wanted);
            self.names.values_mut().for_each(|name| name.is_asked_in_another_way(elsewhere));
        }
        let mut outcome = self.take_pairs(&wanted.pairs);
        if wanted.self_signed.is_empty() {
            self.own = None;
        } else if wanted.self_signed != self.wanted.self_signed {
            let made =
                self_signed(&wanted.self_signed).map_err(|why| format!("no self-signed certificate: {why}"));
            self.own = made
                .inspect_err(|why| {
                    tracing::error!("{why}");
                    outcome = Err(why.clone());
                })
                .ok()
                .map(|(own, _)| own);
        }
        self.wanted = wanted;
        self.demand.set(
            &self.wanted.authority.as_ref().map(|authority| authority.on_demand.clone()).unwrap_or_default(),
        );
        let (hosts, demand) = (&self.wanted.hosts, &self.demand);
        self.names.retain(|host, name| {
            name.named = demand.names(host);
            hosts.contains(host) || (name.asked.is_some() && demand.allows(host))
        });
        if let Err(why) = self.open() {
            // No reason to refuse what else is wanted: what there is is served on, and it is tried again by itself.
            self.complain(&why);
        }
        self.try_again();
        self.looked = Instant::now();
        self.publish();
        outcome
    }

    /// Opens the store and takes in what it has. What is missing of it is made: it may have been removed, or not been there at the start.
    fn open(&mut self) -> Outcome {
        let Some(authority) = &self.wanted.authority else { return Ok(()) };
        let store = Store::open(&authority.storage, &authority.directory).map_err(|error| {
            let place = authority.storage.display();
            format!("certificates cannot be kept in {place}: {error}; {STORAGE}")
        })?;
        for (host, name) in self.names.iter_mut().filter(|(_, name)| name.foreign) {
            name.look(host, &store);
        }
        // An error is told by the first order that wants to use some of it, and comes to nothing.
        self.demand.used = store.allowance().unwrap_or_default();
        self.store = Some(store);
        for host in self.wanted.hosts.clone() {
            self.add(host, None);
        }
        self.list();
        Ok(())
    }

    fn complain(&mut self, why: &str) {
        tracing::error!("{why}; looked at again each minute");
        self.complained = Some(Instant::now());
    }

    /// Whoever reloads may have repaired why orders failed. Not each time: an authority counts what fails, Let's Encrypt five in an hour.
    fn try_again(&mut self) {
        let (now, Some(store)) = (now(), &self.store) else { return };
        let hosts = &self.wanted.hosts;
        for (host, name) in
            self.names.iter_mut().filter(|(host, name)| name.failures > 0 && hosts.contains(host))
        {
            let noted = store.failed(host);
            // Whose note somebody has removed is to be tried now.
            if noted.times == 0 || !(0..AGAIN).contains(&now.saturating_sub(noted.at)) {
                (name.due, name.at_once) = (0, true);
            }
        }
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

    fn take_pairs(&mut self, pairs: &[Pair]) -> Outcome {
        let (mut outcome, mut lost) = (Ok(()), Vec::new());
        let before = std::mem::take(&mut self.fixed);
        for pair in pairs {
            let old = || before.iter().find(|(place, _)| *place == pair.certificate).cloned();
            match caught_now(|| pair.parse()).unwrap_or_else(|_| {
                Err(format!("{}: the server met a fault of its own", pair.certificate.display()))
            }) {
                Ok(certificate) => {
                    if old().is_some_and(|(_, old)| old.chain() != certificate.chain()) {
                        say_replaced(&certificate);
                    }
                    lost.extend(old().into_iter().flat_map(|(_, old)| old.names().to_vec()));
                    self.fixed.push((pair.certificate.clone(), certificate));
                }
                Err(why) => {
                    let instead = match old() {
                        Some(_) => "the one before is served on",
                        None => "and there is none from before: its hosts get another one's",
                    };
                    tracing::error!("a changed certificate cannot be used, {instead}: {why}");
                    self.fixed.extend(old());
                    outcome = Err(why);
                }
            }
        }
        let is_named =
            |name: &String| self.fixed.iter().any(|(_, one)| one.covers(name) || one.names().contains(name));
        lost.retain(|name| !is_named(name));
        if !lost.is_empty() {
            tracing::warn!(
                "no certificate of the files that changed names {} any more: whoever asks for it gets another host's; put it into one again",
                lost.join(" ")
            );
        }
        outcome
    }

    fn add(&mut self, host: String, asked: Option<u64>) {
        let covered = self.fixed.iter().any(|(_, certificate)| certificate.covers(&host));
        if let Some(known) = self.names.get_mut(&host) {
            known.asked = asked;
            return;
        }
        if covered || !is_name(&host) {
            return;
        }
        let Some(store) = &self.store else { return };
        let mut name = Name { asked, named: self.demand.names(&host), ..Name::default() };
        name.look(&host, store);
        if name.certificate.is_none()
            && name.unread.is_none()
            && let Some(certificate) = store.elsewhere(&host)
        {
            name.renew_at = latest(&certificate);
            (name.certificate, name.foreign) = (Some(certificate), true);
        }
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
        let look = LOOK.saturating_sub(self.looked.elapsed());
        if self.store.is_none() {
            return self.wanted.authority.is_some().then_some(look);
        }
        let due = self.names.iter().map(due).min()?;
        let left = u64::try_from(due.saturating_sub(now)).unwrap_or_default();
        Some(Duration::from_secs(left).min(look))
    }

    /// Takes in what others have stored, and forgets what nobody seems to want.
    fn look(&mut self) {
        self.looked = Instant::now();
        let wanted = self.wanted.authority.is_some();
        if wanted && !self.store.as_ref().is_some_and(Store::is_there) {
            match self.open() {
                Ok(()) => {
                    tracing::info!("the directory for certificates, acme_storage, is there again");
                    self.complained = None;
                    self.publish();
                }
                Err(why) if self.complained.is_none_or(|at| at.elapsed() >= COMPLAIN) => self.complain(&why),
                Err(_) => {}
            }
        }
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
        // Nothing can be done.
        self.store.as_ref()?;
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
        // since what has visitors is asked for again and again. A name whose orders fail may take minutes each time: others come first.
        let order = |name: &Name| match name.asked {
            Some(asked) if name.is_lent() => (Some(Reverse(asked)), 0, 0),
            _ => (None, name.failures, name.due),
        };
        self.names.iter().filter(is_due).min_by_key(|(_, name)| order(name)).map(|(host, _)| host.clone())
    }
}

impl Name {
    /// Another authority is asked from now on, or the same one in another way: what there is is served until that one has given something.
    fn is_asked_in_another_way(&mut self, of_another: bool) {
        // It may be that somebody has made room for what could not be stored.
        if !of_another && self.unkept.is_some() {
            (self.due, self.written) = (0, None);
            return;
        }
        *self = Name {
            certificate: self.certificate.take(),
            renew_at: self.renew_at,
            asked: self.asked,
            named: self.named,
            foreign: true,
            ..Name::default()
        };
    }

    /// Whether what it has is not stored yet, and ends later than this.
    fn has_a_newer_one(&self, stored: &Certificate) -> bool {
        let later = |own: &Certificate| own.remaining() >= stored.remaining();
        self.unkept.is_some() && self.certificate.as_ref().is_some_and(later)
    }

    /// Whether an authority that never gave a certificate for it is to give one now. What visitors have asked for waits until it is to be
    /// renewed: it may be thousands of names.
    fn is_owed(&self) -> bool {
        self.foreign && self.asked.is_none()
    }

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
            // It was to be replaced by what could not be stored.
            Ok(Some(certificate)) if self.has_a_newer_one(&certificate) => false,
            Ok(Some(certificate)) if certificate.covers(host) => {
                self.renew_at = latest(&certificate);
                // The authority is asked about it first.
                (self.ask_at, self.due) = (0, 0);
                (self.certificate, self.unusable, self.unkept) = (Some(certificate), None, None);
                (self.foreign, self.failures) = (false, 0);
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

/// Whether it is the same authority, asked in the same way, whatever else visitors may ask for.
fn is_same(one: &Authority, other: &Authority) -> bool {
    let asked = |authority: &Authority| Authority { on_demand: OnDemand::default(), ..authority.clone() };
    asked(one) == asked(other)
}

fn identifier(certificate: &Certificate) -> Option<CertificateIdentifier<'static>> {
    let own = certificate.chain().first()?;
    CertificateIdentifier::try_from(own).ok().map(CertificateIdentifier::into_owned)
}

/// In the words of `hayate check`.
fn say_replaced(by: &Certificate) {
    let (names, end) = (by.names().join(" "), by.end());
    if by.remaining() <= 0 {
        tracing::warn!("the certificate of {names} was replaced by one that has expired ({end}); renew it");
    } else if let Some(begins) = by.begins() {
        tracing::warn!(
            "the certificate of {names} was replaced by one that is not valid yet, but from {begins}; is this machine's clock right?"
        );
    } else {
        tracing::info!("the certificate of {names} was replaced; good until {end}");
    }
}

#[cfg(test)]
mod tests;
