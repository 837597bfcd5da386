//! Users with passwords, from an htpasswd file (`htpasswd -B`: bcrypt).
//!
//! To verify a password is made to be slow, so it is done by a thread of its own that is nicer than those that serve: one for all sites,
//! [`WAITING`] passwords wait for it at most, of one address [`PER_CLIENT`], of one network [`PER_NETWORK`]. Who got through is remembered for
//! [`REMEMBERED`], by a keyed hash; passwords are not kept. Addresses from which somebody got through lately are next, as long as they take
//! little; then those whose network, and who themselves, took least of the thread's time. So nobody keeps others out by asking much,
//! whoever has a network full of addresses neither, and who has thousands of networks keeps out strangers only. Who has left is forgotten.
//! A wrong password takes as long as with the dearest hash of its file, and so does an unknown name.

use std::{
    collections::HashMap,
    io,
    net::IpAddr,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use aws_lc_rs::{hmac, rand::SystemRandom};
use base64::{Engine, prelude::BASE64_STANDARD};
use hayate_http::{Head, seconds};
use hayate_panics::caught_now;
use parking_lot::{Condvar, Mutex};
use tokio::{sync::oneshot, time::timeout};

use super::spec::{client_of, network_of};
use crate::reminder::Reminder;

const WAITING: usize = 256;
const PER_CLIENT: usize = 4;
const PER_NETWORK: usize = 32;
/// In seconds; afterwards the password is verified again.
const REMEMBERED: u64 = 300;
/// Users that are remembered, each 40 bytes.
const KNOWN: usize = 8192;
/// Bytes of a name and its password together. bcrypt looks at the first 72 of a password.
const CREDENTIALS: usize = 1024;
/// 2^14 rounds take about a second.
const COST: std::ops::RangeInclusive<u32> = 4..=14;
/// Seconds after which nobody's time counts any more, and addresses whose time is known.
const FORGOTTEN: u64 = 60;
const COUNTED: usize = 4096;
/// Seconds for which an address is preferred once somebody got through from it, and how much of the thread's time it may take so.
const WELCOME: u64 = 24 * 3600;
const PREFERENCE: Duration = Duration::from_secs(5);
/// How long a visitor may wait for its turn.
const PATIENCE: Duration = Duration::from_secs(10);

/// What became of somebody's credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Who {
    /// A user, by this name.
    Known(String),
    /// None of them, or none at all were sent.
    Nobody,
    /// Too many wait for their turn.
    Busy,
}

/// The users of one file.
pub(crate) struct Users {
    /// With their cost.
    hashes: HashMap<String, (String, u32)>,
    /// One that nobody has, of the greatest cost.
    nobody: String,
    cost: u32,
    key: hmac::Key,
    /// Who got through, and until when, in [`seconds`].
    known: Mutex<HashMap<[u8; 32], u64>>,
}

impl Users {
    /// Reads the lines of an htpasswd file as nginx does: a hash ends at the next colon, and of several lines for a name the first counts. An error
    /// says which line is wrong; it shows no hash.
    pub(crate) fn parse(text: &str) -> Result<Users, String> {
        let mut hashes = HashMap::new();
        let mut cost = *COST.start();
        for (i, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let at = i.saturating_add(1);
            let (name, rest) = line
                .split_once(':')
                .ok_or_else(|| format!("line {at} is no name:hash; make it with htpasswd -B"))?;
            if name.is_empty() {
                return Err(format!("line {at} has no name before its colon; make it with htpasswd -B"));
            }
            if hashes.contains_key(name) {
                tracing::warn!("users of basic_auth: line {at} has '{name}' once more; the first one counts");
                continue;
            }
            // What follows is a comment.
            let hash = rest.split_once(':').map_or(rest, |(hash, _)| hash);
            let parts: Option<bcrypt::HashParts> = hash.parse().ok();
            let found = parts.map(|parts| parts.get_cost()).filter(|found| COST.contains(found));
            let Some(found) = found else {
                return Err(format!(
                    "line {at}: what '{name}' has is no bcrypt hash of cost {} to {}; make it with htpasswd -B",
                    COST.start(),
                    COST.end()
                ));
            };
            cost = cost.max(found);
            hashes.insert(name.to_owned(), (hash.to_owned(), found));
        }
        if hashes.is_empty() {
            return Err("it names no user, so that nobody would get through; add one with htpasswd -B".into());
        }
        let nobody = nobody(cost);
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
        let key = key.map_err(|_| "the system has no random numbers".to_owned())?;
        Ok(Users { hashes, nobody, cost, key, known: Mutex::default() })
    }

    /// Who a request is from. `client`: for whom it is counted.
    pub(crate) async fn who(self: &Arc<Self>, head: &Head, client: Option<IpAddr>, checker: &Checker) -> Who {
        let mut all = head.all(b"authorization");
        // Two of them may be read differently by whoever comes next.
        let (Some(value), None) = (all.next(), all.next()) else { return Who::Nobody };
        let Some((name, password)) = credentials(value) else { return Who::Nobody };
        let tag = hmac::sign(&self.key, &[name.as_bytes(), b":", &password].concat());
        let Ok(tag) = <[u8; 32]>::try_from(tag.as_ref()) else { return Who::Nobody };
        if self.known.lock().get(&tag).is_some_and(|until| seconds() < *until) {
            return Who::Known(name);
        }
        let (users, asked) = (Arc::clone(self), name.clone());
        let work = move || users.verify(&asked, |hash| bcrypt::verify(&password, hash).unwrap_or(false));
        match checker.check(client, work).await {
            None => Who::Busy,
            Some(false) => Who::Nobody,
            Some(true) => {
                let mut known = self.known.lock();
                let now = seconds();
                if known.len() >= KNOWN {
                    known.retain(|_, until| *until > now);
                }
                if known.len() < KNOWN {
                    known.insert(tag, now.saturating_add(REMEMBERED));
                }
                Who::Known(name)
            }
        }
    }

    /// Whether it is this user, by a function that says whether the password has a hash, and takes its time for that.
    fn verify(&self, name: &str, mut has: impl FnMut(&str) -> bool) -> bool {
        let (hash, cost) =
            self.hashes.get(name).map_or((&self.nobody, self.cost), |(hash, cost)| (hash, *cost));
        if has(hash) {
            return true;
        }
        // The rest of the time: 2^c and 2^c + 2^(c+1) + … + 2^(d-1) are 2^d rounds.
        for cost in cost..self.cost {
            std::hint::black_box(has(&nobody(cost)));
        }
        false
    }
}

/// No password has this hash: its 31 letters are not what any salt and password give.
fn nobody(cost: u32) -> String {
    format!("$2y${cost:02}$abcdefghijklmnopqrstuuabcdefghijklmnopqrstuvwxyzabcde")
}

/// Name and password of basic authentication (RFC 7617).
fn credentials(value: &[u8]) -> Option<(String, Vec<u8>)> {
    let (scheme, rest) = std::str::from_utf8(value).ok()?.split_once(' ')?;
    let encoded = rest.trim();
    if !scheme.eq_ignore_ascii_case("basic") || encoded.len() > CREDENTIALS * 2 {
        return None;
    }
    let whole = BASE64_STANDARD.decode(encoded).ok().filter(|whole| whole.len() <= CREDENTIALS)?;
    let colon = memchr::memchr(b':', &whole)?;
    let (name, password) = whole.split_at_checked(colon)?;
    let name =
        std::str::from_utf8(name).ok().filter(|name| !name.is_empty() && !name.contains(char::is_control))?;
    Some((name.to_owned(), password.get(1..)?.to_vec()))
}

/// For whom a password is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Counted {
    Client(Option<IpAddr>),
    Network(Option<IpAddr>),
}

/// A password that waits for its turn.
struct Waiting {
    client: Option<IpAddr>,
    work: Box<dyn FnOnce() -> bool + Send>,
    reply: oneshot::Sender<bool>,
}

impl Waiting {
    fn network(&self) -> Option<IpAddr> {
        self.client.map(network_of)
    }
}

/// The smaller, the sooner: no preference, the time that its network has had, and it itself.
type Rank = (bool, Duration, Duration);

/// The thread that verifies passwords. There is none until the first site needs it.
#[derive(Default)]
pub struct Checker {
    shared: Arc<Shared>,
    /// When it was last said that too many wait.
    pub(crate) reminder: Reminder,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    more: Condvar,
}

#[derive(Default)]
struct Queue {
    /// In order of arrival.
    waiting: Vec<Waiting>,
    /// What each address, and each network, has had of the thread's time, since `began` in [`seconds`].
    spent: HashMap<Counted, Duration>,
    began: u64,
    /// Addresses from which somebody got through, and until when they are preferred, in [`seconds`].
    welcome: HashMap<IpAddr, u64>,
    started: bool,
    closed: bool,
}

impl Queue {
    fn spent(&self, who: Counted) -> Duration {
        self.spent.get(&who).copied().unwrap_or_default()
    }

    fn rank(&self, waiting: &Waiting, now: u64) -> Rank {
        let own = self.spent(Counted::Client(waiting.client));
        let until = waiting.client.and_then(|client| self.welcome.get(&client));
        let preferred = own < PREFERENCE && until.is_some_and(|until| now < *until);
        (!preferred, self.spent(Counted::Network(waiting.network())), own)
    }

    /// Takes one more in, if there is room for it; `false` if not.
    fn push(&mut self, new: Waiting, now: u64) -> bool {
        // Whoever has left waits no more.
        self.waiting.retain(|waiting| !waiting.reply.is_closed());
        let own = self.waiting.iter().filter(|waiting| waiting.client == new.client).count();
        let network = new.network();
        let beside = self.waiting.iter().filter(|waiting| waiting.network() == network).count();
        // Whom nobody knows is nobody's neighbour.
        if !self.started || own >= PER_CLIENT || (new.client.is_some() && beside >= PER_NETWORK) {
            return false;
        }
        if self.waiting.len() >= WAITING {
            // The last of those that have had most makes room, if that is more than this one has had; else of those who wait beside most others.
            let mut of_network = HashMap::<_, usize>::new();
            for waiting in &self.waiting {
                let count = of_network.entry(waiting.network()).or_default();
                *count = count.saturating_add(1);
            }
            let load = |(i, waiting): (usize, &Waiting)| {
                let beside = of_network.get(&waiting.network()).copied().unwrap_or_default();
                (self.rank(waiting, now), beside, i)
            };
            let ours = (self.rank(&new, now), beside.saturating_add(1));
            match self.waiting.iter().enumerate().map(load).max() {
                Some((rank, beside, i)) if (rank, beside) > ours => drop(self.waiting.remove(i)),
                _ => return false,
            }
        }
        self.waiting.push(new);
        true
    }

    /// The next one, who came first of those with the least rank.
    fn pop(&mut self, now: u64) -> Option<Waiting> {
        self.waiting.retain(|waiting| !waiting.reply.is_closed());
        let rank = |(i, waiting): (usize, &Waiting)| (self.rank(waiting, now), i);
        let (_, next) = self.waiting.iter().enumerate().map(rank).min()?;
        Some(self.waiting.remove(next))
    }

    fn took(&mut self, client: Option<IpAddr>, time: Duration, now: u64) {
        if self.began.saturating_add(FORGOTTEN) <= now || self.spent.len() >= 2 * COUNTED {
            self.spent.clear();
            self.began = now;
        }
        for who in [Counted::Client(client), Counted::Network(client.map(network_of))] {
            let spent = self.spent.entry(who).or_default();
            *spent = spent.saturating_add(time);
        }
    }

    /// Somebody got through.
    fn got_through(&mut self, client: Option<IpAddr>, now: u64) {
        let Some(client) = client else { return };
        if !self.welcome.contains_key(&client) {
            // One password is no means to fill this from a network, nor to keep others out of it for a day.
            let network = network_of(client);
            let beside = |other: &IpAddr| network_of(*other) == network;
            let crowded = self.welcome.keys().filter(|other| beside(other)).count() >= PER_NETWORK;
            if crowded || self.welcome.len() >= COUNTED {
                let those = self.welcome.iter().filter(|(other, _)| !crowded || beside(other));
                let oldest = those.min_by_key(|(_, until)| **until).map(|(other, _)| *other);
                oldest.and_then(|oldest| self.welcome.remove(&oldest));
            }
        }
        self.welcome.insert(client, now.saturating_add(WELCOME));
    }
}

impl Checker {
    /// Has the thread there, from now on.
    pub(crate) fn start(&self) -> io::Result<()> {
        let mut queue = self.shared.queue.lock();
        if !queue.started {
            let shared = Arc::clone(&self.shared);
            thread::Builder::new().name("passwords".into()).spawn(move || shared.work())?;
            queue.started = true;
        }
        Ok(())
    }

    /// What the work gives; `None`: its turn does not come in time. Dropped before it comes, it is not done.
    async fn check(
        &self,
        client: Option<IpAddr>,
        work: impl FnOnce() -> bool + Send + 'static,
    ) -> Option<bool> {
        let (reply, answer) = oneshot::channel();
        let waiting = Waiting { client: client.map(client_of), work: Box::new(work), reply };
        if !self.shared.queue.lock().push(waiting, seconds()) {
            return None;
        }
        self.shared.more.notify_one();
        timeout(PATIENCE, answer).await.ok()?.ok()
    }
}

impl Drop for Checker {
    fn drop(&mut self) {
        self.shared.queue.lock().closed = true;
        self.shared.more.notify_all();
    }
}

impl Shared {
    fn work(&self) {
        // Of this thread alone, as Linux has it. Without it the serving threads only share the processors with this one.
        let _ = rustix::process::setpriority_process(None, 10);
        loop {
            let mut queue = self.queue.lock();
            let Waiting { client, work, reply } = loop {
                if queue.closed {
                    return;
                }
                match queue.pop(seconds()) {
                    Some(waiting) => break waiting,
                    None => self.more.wait(&mut queue),
                }
            };
            drop(queue);
            let began = Instant::now();
            // Whoever waits for it learns of a panic by the end of its channel, and who has left of nothing.
            let right = caught_now(work);
            let mut queue = self.queue.lock();
            queue.took(client, began.elapsed(), seconds());
            if let Ok(right) = right {
                if right {
                    queue.got_through(client, seconds());
                }
                let _ = reply.send(right);
            }
        }
    }
}

/// The value of WWW-Authenticate.
pub(crate) fn challenge(realm: &str) -> String {
    format!("Basic realm=\"{realm}\", charset=\"UTF-8\"")
}

/// Whether a realm can stand between quotes.
pub(crate) fn is_realm(realm: &str) -> bool {
    !realm.is_empty() && realm.bytes().all(|b| matches!(b, b' '..=b'~') && !matches!(b, b'"' | b'\\'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of "secret", made by htpasswd -nbBC 4.
    fn file() -> String {
        format!("# staff\n\nanna:{}\n", bcrypt::hash_with_salt("secret", 4, *b"0123456789abcdef").unwrap())
    }

    fn head(authorization: &[&str]) -> Head {
        let lines: String = authorization.iter().map(|value| format!("Authorization: {value}\r\n")).collect();
        let head = format!("GET / HTTP/1.0\r\n{lines}\r\n");
        Head::parse(head.as_bytes(), &hayate_http::Limits::default()).unwrap()
    }

    fn basic(credentials: &str) -> String {
        format!("Basic {}", BASE64_STANDARD.encode(credentials))
    }

    #[tokio::test]
    async fn only_the_password_gets_through() {
        let users = Arc::new(Users::parse(&file()).unwrap());
        assert_eq!(bcrypt::verify("secret", &users.nobody).ok(), Some(false), "it takes as long as a user's");
        let checker = Checker::default();
        checker.start().unwrap();
        let client = Some("192.0.2.1".parse().unwrap());
        let anna = Who::Known("anna".into());
        for (lines, want) in [
            (vec![basic("anna:secret")], anna.clone()),
            (vec![basic("anna:secret")], anna.clone()),
            (vec![basic("anna:secret").replace("Basic", "bAsIc")], anna),
            (vec![basic("anna:secreT")], Who::Nobody),
            (vec![basic("anna:")], Who::Nobody),
            (vec![basic("anna")], Who::Nobody),
            (vec![basic("Anna:secret")], Who::Nobody),
            (vec![basic("nobody:secret")], Who::Nobody),
            (vec![basic(":secret")], Who::Nobody),
            (vec![basic(&format!("anna:{}", "x".repeat(CREDENTIALS)))], Who::Nobody),
            (vec!["Basic !".into()], Who::Nobody),
            (vec!["Bearer x".into()], Who::Nobody),
            (vec![basic("anna:secret"), basic("anna:secret")], Who::Nobody),
            (vec![], Who::Nobody),
        ] {
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            assert_eq!(users.who(&head(&lines), client, &checker).await, want, "{lines:?}");
        }
        assert_eq!(users.known.lock().len(), 1);
    }

    fn waiting(client: &str) -> (Waiting, oneshot::Receiver<bool>) {
        let (reply, answer) = oneshot::channel();
        (Waiting { client: Some(client.parse().unwrap()), work: Box::new(|| true), reply }, answer)
    }

    #[test]
    fn a_network_is_no_more_than_its_share() {
        let mut queue = Queue { started: true, ..Queue::default() };
        let mut answers = Vec::new();
        let mut push = |queue: &mut Queue, client: &str| {
            let (one, answer) = waiting(client);
            answers.push(answer);
            queue.push(one, 1)
        };
        // 120 addresses of one network have as many places as it has.
        let taken = (0..120).filter(|n| push(&mut queue, &format!("198.51.100.{n}"))).count();
        assert_eq!(taken, PER_NETWORK);
        let taken = (0..120).filter(|n| push(&mut queue, &format!("2001:db8:7:{n:x}::1"))).count();
        assert_eq!(taken, PER_NETWORK);
        // What one of them took counts for all.
        let time = Duration::from_millis(500);
        queue.took(Some("198.51.100.200".parse().unwrap()), time, 1);
        queue.took(Some("2001:db8:7:ffff::".parse().unwrap()), time, 1);
        assert!(push(&mut queue, "192.0.2.1"));
        assert_eq!(queue.pop(1).unwrap().client, Some("192.0.2.1".parse().unwrap()));
        // Who fills the queue from many networks does not keep out one from another, and strangers not those who got through before.
        let mut networks = 0u32;
        while queue.waiting.len() < WAITING {
            assert!(push(&mut queue, &format!("10.0.{}.1", networks / 2)), "{networks}");
            networks += 1;
        }
        assert!(push(&mut queue, "203.0.113.9"), "it waits alone in its network");
        queue.took(Some("192.0.2.77".parse().unwrap()), Duration::from_secs(1), 1);
        assert!(!push(&mut queue, "192.0.2.77"), "it has had most");
        queue.got_through(Some("192.0.2.77".parse().unwrap()), 1);
        assert!(push(&mut queue, "192.0.2.77"));
        assert_eq!(queue.pop(1).unwrap().client, Some("192.0.2.77".parse().unwrap()));
        // Not for ever, and not however much it takes.
        queue.took(Some("192.0.2.77".parse().unwrap()), PREFERENCE, 1);
        assert!(push(&mut queue, "192.0.2.77"));
        assert_ne!(queue.pop(1).unwrap().client, Some("192.0.2.77".parse().unwrap()));
    }

    #[test]
    fn one_address_does_not_take_all_turns() {
        let mut queue = Queue { started: true, ..Queue::default() };
        let mut answers = Vec::new();
        let mut push = |queue: &mut Queue, client: &str| {
            let (one, answer) = waiting(client);
            answers.push(answer);
            queue.push(one, 1)
        };
        let all: Vec<bool> = (0..=PER_CLIENT).map(|_| push(&mut queue, "192.0.2.1")).collect();
        assert_eq!(all, [true, true, true, true, false]);
        assert_eq!(queue.pop(1).unwrap().client, Some("192.0.2.1".parse().unwrap()));
        queue.took(Some("192.0.2.1".parse().unwrap()), Duration::from_secs(1), 1);
        // Who comes later and has had nothing is next.
        assert!(push(&mut queue, "192.0.2.2"));
        let order: Vec<_> =
            std::iter::from_fn(|| queue.pop(1)).map(|one| one.client.unwrap().to_string()).collect();
        assert_eq!(order, ["192.0.2.2", "192.0.2.1", "192.0.2.1", "192.0.2.1"]);
    }

    #[test]
    fn a_full_queue_has_room_for_who_has_had_less() {
        let mut queue = Queue { started: true, ..Queue::default() };
        let mut answers = Vec::new();
        for n in 0..WAITING {
            let (one, answer) = waiting(&format!("10.0.{n}.7"));
            assert!(queue.push(one, 1));
            answers.push(answer);
        }
        let (new, _answer) = waiting("10.0.3.8");
        assert!(!queue.push(new, 1), "nobody has had more");
        queue.took(Some("10.0.7.7".parse().unwrap()), Duration::from_millis(1), 1);
        let (new, _answer) = waiting("192.0.2.1");
        assert!(queue.push(new, 1) && queue.waiting.len() == WAITING);
        assert_eq!(answers.remove(7).try_recv(), Err(oneshot::error::TryRecvError::Closed));
        // Those who have left make room as well.
        drop(answers);
        assert_eq!(queue.pop(1).unwrap().client, Some("192.0.2.1".parse().unwrap()));
        assert!(queue.pop(1).is_none() && queue.waiting.is_empty());
        for n in 0..4 * COUNTED as u32 {
            queue.took(Some(std::net::Ipv4Addr::from_bits(n).into()), Duration::from_millis(1), 1);
            assert!(queue.spent.len() <= 2 * COUNTED + 1);
        }
    }

    #[test]
    fn nobody_fills_the_addresses_that_are_preferred() {
        let mut queue = Queue::default();
        let mut welcome = |text: String, now: u64| {
            queue.got_through(Some(text.parse().unwrap()), now);
            queue.welcome.clone()
        };
        let has = |welcome: &HashMap<IpAddr, u64>, text: &str| welcome.contains_key(&text.parse().unwrap());
        welcome("203.0.113.1".into(), 1);
        // Of one network as many as may wait, the latest.
        for n in 0..100 {
            welcome(format!("198.51.100.{n}"), 2 + n);
        }
        let all = welcome("198.51.100.70".into(), 200);
        assert_eq!(all.len(), PER_NETWORK + 1);
        assert!(has(&all, "203.0.113.1") && has(&all, "198.51.100.68") && !has(&all, "198.51.100.67"));
        let all = welcome("198.51.100.200".into(), 201);
        assert!(has(&all, "198.51.100.70") && !has(&all, "198.51.100.68"), "it came again");
        // Of many networks the latest.
        for n in 0..COUNTED {
            queue.got_through(Some(format!("10.{}.{}.1", n / 256, n % 256).parse().unwrap()), 300);
        }
        queue.got_through(Some("192.0.2.1".parse().unwrap()), 301);
        assert_eq!(queue.welcome.len(), COUNTED);
        assert!(has(&queue.welcome, "192.0.2.1") && !has(&queue.welcome, "203.0.113.1"));
    }

    #[test]
    fn a_wrong_password_takes_as_long_as_with_the_dearest_hash() {
        let hash = |cost| bcrypt::hash_with_salt("secret", cost, *b"0123456789abcdef").unwrap();
        let users = Users::parse(&format!("cheap:{}\ndear:{}\n", hash(4), hash(9))).unwrap();
        for (name, right) in [("cheap", true), ("dear", true), ("nobody", false)] {
            assert_eq!(users.verify(name, |hash| bcrypt::verify("secret", hash).unwrap()), right, "{name}");
            let mut rounds = 0;
            let wrong = |hash: &str| {
                rounds += 1 << hash.parse::<bcrypt::HashParts>().unwrap().get_cost();
                bcrypt::verify("x", hash).unwrap()
            };
            assert!(!users.verify(name, wrong), "{name}");
            assert_eq!(rounds, 1 << 9, "{name}");
        }
    }

    #[test]
    fn lines_are_read_as_by_nginx() {
        let comment = format!("{}:Anna of the third floor: since May\n", file().trim_end());
        let plain = |text: &str| Users::parse(text).unwrap().hashes.get("anna").cloned();
        assert_eq!(plain(&comment), plain(&file()));
        // The first of several counts, whatever the others hold.
        let again = format!("{}anna:{}\nanna:x\n", file(), bcrypt::hash("other", 5).unwrap());
        assert_eq!(plain(&again), plain(&file()));
    }

    #[test]
    fn files_that_let_nobody_or_anybody_in_are_refused() {
        for (text, said) in [
            ("", "names no user"),
            ("anna", "line 1 is no name:hash"),
            (":$2y$04$x", "line 1 has no name"),
            ("anna::secret", "line 1: what 'anna' has is no bcrypt hash"),
            ("anna:secret", "line 1: what 'anna' has is no bcrypt hash"),
            ("\nanna:$apr1$x$y", "line 2: "),
            ("anna:$2y$31$abcdefghijklmnopqrstuuabcdefghijklmnopqrstuvwxyzabcde", "of cost 4 to 14"),
        ] {
            let why = Users::parse(text).err().unwrap();
            assert!(why.contains(said) && !why.contains("secret"), "{why}");
        }
        assert!(is_realm("Staff only") && !is_realm("a\"b") && !is_realm("") && !is_realm("a\nb"));
    }
}
