//! Users with passwords, from an htpasswd file (`htpasswd -B`: bcrypt).
//!
//! To verify a password is made to be slow, so it is done by a thread of its own that is nicer than those that serve: one for all sites,
//! [`WAITING`] passwords wait for it at most, of one address [`PER_CLIENT`]. Who got through is remembered for [`REMEMBERED`], by a keyed
//! hash; passwords are not kept. An unknown name takes as long as a wrong password.

use std::{
    collections::{HashMap, VecDeque},
    io,
    net::IpAddr,
    sync::Arc,
    thread,
    time::Duration,
};

use aws_lc_rs::{hmac, rand::SystemRandom};
use base64::{Engine, prelude::BASE64_STANDARD};
use hayate_http::{Head, seconds};
use parking_lot::{Condvar, Mutex};
use tokio::{sync::oneshot, time::timeout};

use super::spec::client_of;

const WAITING: usize = 256;
const PER_CLIENT: usize = 4;
/// In seconds; afterwards the password is verified again.
const REMEMBERED: u64 = 300;
/// Users that are remembered, each 40 bytes.
const KNOWN: usize = 8192;
/// Bytes of a name and its password together. bcrypt looks at the first 72 of a password.
const CREDENTIALS: usize = 1024;
/// 2^14 rounds take about a second.
const COST: std::ops::RangeInclusive<u32> = 4..=14;
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
    hashes: HashMap<String, String>,
    /// One that nobody has, which takes as long.
    nobody: String,
    key: hmac::Key,
    /// Who got through, and until when, in [`seconds`].
    known: Mutex<HashMap<[u8; 32], u64>>,
}

impl Users {
    /// Reads the lines of an htpasswd file. An error says which line is wrong; it shows no hash.
    pub(crate) fn parse(text: &str) -> Result<Users, String> {
        let mut hashes = HashMap::new();
        let mut cost = *COST.start();
        for (i, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let at = i.saturating_add(1);
            let (name, hash) = line
                .split_once(':')
                .ok_or_else(|| format!("line {at} is no name:hash; make it with htpasswd -B"))?;
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
            if name.is_empty() || hashes.insert(name.to_owned(), hash.to_owned()).is_some() {
                return Err(format!("line {at}: '{name}' is no name, or there twice"));
            }
        }
        if hashes.is_empty() {
            return Err("it names no user, so that nobody would get through; add one with htpasswd -B".into());
        }
        // No password has this hash: its 31 letters are not what any salt and password give.
        let nobody = format!("$2y${cost:02}$abcdefghijklmnopqrstuuabcdefghijklmnopqrstuvwxyzabcde");
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
        let key = key.map_err(|_| "the system has no random numbers".to_owned())?;
        Ok(Users { hashes, nobody, key, known: Mutex::default() })
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
        match checker.check(client, move || users.verify(&asked, &password)).await {
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

    fn verify(&self, name: &str, password: &[u8]) -> bool {
        match self.hashes.get(name) {
            Some(hash) => bcrypt::verify(password, hash).unwrap_or(false),
            None => {
                let _ = std::hint::black_box(bcrypt::verify(password, &self.nobody));
                false
            }
        }
    }
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

type Work = Box<dyn FnOnce() + Send>;

/// The thread that verifies passwords. There is none until the first site needs it.
pub struct Checker(Arc<Shared>);

struct Shared {
    queue: Mutex<Queue>,
    more: Condvar,
}

#[derive(Default)]
struct Queue {
    ready: VecDeque<(Option<IpAddr>, Work)>,
    started: bool,
    closed: bool,
}

impl Default for Checker {
    fn default() -> Checker {
        Checker(Arc::new(Shared { queue: Mutex::default(), more: Condvar::new() }))
    }
}

impl Checker {
    /// Has the thread there, from now on.
    pub(crate) fn start(&self) -> io::Result<()> {
        let mut queue = self.0.queue.lock();
        if !queue.started {
            let shared = Arc::clone(&self.0);
            thread::Builder::new().name("passwords".into()).spawn(move || shared.work())?;
            queue.started = true;
        }
        Ok(())
    }

    /// What the work gives; `None`: its turn does not come in time.
    async fn check(
        &self,
        client: Option<IpAddr>,
        work: impl FnOnce() -> bool + Send + 'static,
    ) -> Option<bool> {
        let client = client.map(client_of);
        let (reply, answer) = oneshot::channel();
        {
            let mut queue = self.0.queue.lock();
            let own = queue.ready.iter().filter(|(other, _)| *other == client).count();
            if !queue.started || queue.ready.len() >= WAITING || own >= PER_CLIENT {
                return None;
            }
            let work = move || {
                // Whoever wanted it may be gone.
                if !reply.is_closed() {
                    let _ = reply.send(work());
                }
            };
            queue.ready.push_back((client, Box::new(work)));
        }
        self.0.more.notify_one();
        timeout(PATIENCE, answer).await.ok()?.ok()
    }
}

impl Drop for Checker {
    fn drop(&mut self) {
        self.0.queue.lock().closed = true;
        self.0.more.notify_all();
    }
}

impl Shared {
    fn work(&self) {
        // Of this thread alone, as Linux has it. Without it the serving threads only share the processors with this one.
        let _ = rustix::process::setpriority_process(None, 10);
        loop {
            let mut queue = self.queue.lock();
            let work = loop {
                if queue.closed {
                    return;
                }
                match queue.ready.pop_front() {
                    Some((_, work)) => break work,
                    None => self.more.wait(&mut queue),
                }
            };
            drop(queue);
            // Whoever waits for it learns of a panic by the end of its channel.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
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

    #[tokio::test]
    async fn one_address_does_not_take_all_turns() {
        let checker = Arc::new(Checker::default());
        // No thread takes anything: what waits, waits.
        checker.0.queue.lock().started = true;
        let wait = |client: &str| {
            let (checker, client) = (Arc::clone(&checker), Some(client.parse().unwrap()));
            tokio::spawn(async move { checker.check(client, || true).await })
        };
        let waiting: Vec<_> = (0..PER_CLIENT).map(|_| wait("192.0.2.1")).collect();
        while checker.0.queue.lock().ready.len() < PER_CLIENT {
            tokio::task::yield_now().await;
        }
        assert_eq!(wait("192.0.2.1").await.unwrap(), None, "its turns are taken");
        let other = wait("192.0.2.2");
        while checker.0.queue.lock().ready.len() == PER_CLIENT {
            tokio::task::yield_now().await;
        }
        checker.0.queue.lock().started = false;
        checker.start().unwrap();
        assert_eq!(other.await.unwrap(), Some(true));
        for one in waiting {
            assert_eq!(one.await.unwrap(), Some(true));
        }
    }

    #[test]
    fn files_that_let_nobody_or_anybody_in_are_refused() {
        for (text, said) in [
            ("", "names no user"),
            ("anna", "line 1 is no name:hash"),
            ("anna:secret", "line 1: what 'anna' has is no bcrypt hash"),
            ("\nanna:$apr1$x$y", "line 2: "),
            ("anna:$2y$31$abcdefghijklmnopqrstuuabcdefghijklmnopqrstuvwxyzabcde", "of cost 4 to 14"),
        ] {
            let why = Users::parse(text).err().unwrap();
            assert!(why.contains(said) && !why.contains("secret"), "{why}");
        }
        let twice = file() + &file();
        assert!(Users::parse(&twice).err().unwrap().contains("there twice"));
        assert!(is_realm("Staff only") && !is_realm("a\"b") && !is_realm("") && !is_realm("a\nb"));
    }
}
