//! What is done for one name that is due: its certificate is ordered, or the authority asked when to renew it.
//!
//! It waits for others, who may be silent for minutes, and the keeper hears meanwhile what there should be. So what the keeper knows is borrowed
//! between waits only, and looked at anew after each. Between two looks the name stays, and so does its authority: where one of them is gone
//! the work is dropped ([`Attending::is_wanted`]), with its locks and the answers to its challenges.

use std::{cell::RefCell, io, time::Duration};

use hayate_panics::caught;
use instant_acme::Account;
use tokio::time::{Instant, timeout};

use super::{ASK, Keeping, Name, STORAGE, ends_soon, identifier, is_same, latest};
use crate::{
    Certificate,
    acme::{
        Authority, Store,
        order::{self, Trouble, with_fresh_nonces},
        store::{ACCOUNT, ALLOWANCE, Failed, Lock},
        vouching::Verdict,
    },
    certificate::now,
};

/// An order's time.
const ORDER: Duration = Duration::from_secs(300);
/// A question's about renewal.
const QUESTION: Duration = Duration::from_secs(60);
/// Between two looks at the store while another server is about to have a certificate that is missing here.
const LOOK_SOON: Duration = Duration::from_secs(3);
/// How long a stored certificate that cannot be read is looked at again before another one is ordered.
pub(super) const UNREAD: Duration = Duration::from_secs(600);
/// Pauses after failures: the first, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(6 * 3600));
/// Seconds until a certificate is looked at again about which nobody can be asked.
const NOT_ASKED: i64 = 6 * 3600;
/// Seconds after which whoever said no to the renewal of a certificate is asked again.
const ASK_AGAIN: i64 = 24 * 3600;

/// See the module.
pub(super) struct Attending<'a> {
    keeping: &'a RefCell<Keeping>,
    host: String,
    authority: Authority,
    store: Store,
}

impl Attending<'_> {
    /// For the next name that is due, if one is.
    pub(super) fn next(keeping: &RefCell<Keeping>) -> Option<Attending<'_>> {
        let host = keeping.borrow_mut().due()?;
        Attending::to(keeping, host)
    }

    /// For this one; `None`: there is nobody to ask for it.
    pub(super) fn to(keeping: &RefCell<Keeping>, host: String) -> Option<Attending<'_>> {
        let (authority, store) = {
            let keeping = keeping.borrow();
            (keeping.wanted.authority.clone()?, keeping.store.clone()?)
        };
        Some(Attending { keeping, host, authority, store })
    }

    /// Whether it is still to be done, by the same authority.
    pub(super) fn is_wanted(&self) -> bool {
        let keeping = self.keeping.borrow();
        let same = keeping.wanted.authority.as_ref().is_some_and(|now| is_same(now, &self.authority));
        same && keeping.names.contains_key(&self.host)
    }

    /// Says that it comes to no end.
    pub(super) fn gives_up(&self) {
        tracing::info!(
            host = self.host,
            "what was under way for its certificate is given up: the configuration wants something else now"
        );
    }

    /// After a panic it is not due again at once: each attempt may be one of those that the authority counts.
    pub(super) async fn work(&self) {
        if caught(self.attend()).await.is_err() {
            let trouble =
                Trouble::new("the server met a fault of its own", "the log has its place; please report it");
            self.keeping.borrow_mut().failed(&self.host, &self.store, trouble);
        }
    }

    pub(super) async fn attend(&self) {
        let Attending { keeping, host, store, .. } = self;
        #[cfg(test)]
        assert_ne!(host, super::tests::FAULTY, "this panic is part of the test");
        let began = now();
        if !keeping.borrow_mut().is_kept(host, store, began) {
            return;
        }
        let missing = keeping.borrow_mut().is_missing(host, store);
        if !missing {
            self.ask_about_renewal().await;
        }
        let to_be_ordered = keeping.borrow_mut().is_to_be_ordered(host, missing, began);
        if !to_be_ordered || !self.is_vouched_for().await {
            return;
        }
        let Some(lock) = keeping.borrow_mut().begin(host, store, began) else { return };
        let order = async {
            let outcome = self.order().await;
            if !outcome.as_ref().is_err_and(|trouble| trouble.account_is_gone) {
                return outcome;
            }
            // Once, and not if that was needed within the last hour: a new account, and an order by it.
            if !self.forget_account()? {
                return outcome;
            }
            self.order().await
        };
        let outcome = timeout(ORDER, order).await.unwrap_or_else(|_| {
            let why = format!("there was no answer within {} s", ORDER.as_secs());
            Err(Trouble::new(why, "the authority cannot be reached, or is busy"))
        });
        keeping.borrow_mut().ended(host, store, began, outcome);
        drop(lock);
    }

    /// Asks the authority when a certificate should be renewed (ARI), when it is time to ask.
    async fn ask_about_renewal(&self) {
        let (now, host) = (now(), &self.host);
        let certificate = {
            let keeping = self.keeping.borrow();
            // Of what it has not issued it can say nothing.
            let asked = |name: &&Name| name.ask_at <= now && !name.foreign;
            let Some(name) = keeping.names.get(host).filter(asked) else { return };
            name.certificate.clone()
        };
        let asked = async {
            let account = self.account().await.ok()?;
            let id = certificate.as_ref().and_then(identifier)?;
            account.renewal_info(&id).await.ok()
        };
        let answer = timeout(QUESTION, asked).await.ok().flatten();
        let mut keeping = self.keeping.borrow_mut();
        let Some(name) = keeping.names.get_mut(host) else { return };
        let Some((info, retry)) = answer else {
            // Not known there, or not now: two thirds of its life hold.
            name.ask_at = now.saturating_add(NOT_ASKED);
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

    /// Asks whether a name that is had on demand may have its certificate; if not, its time is set or it is forgotten.
    async fn is_vouched_for(&self) -> bool {
        let host = &self.host;
        let (ask, known) = {
            let keeping = self.keeping.borrow();
            let Some(ask) = keeping.demand.ask.clone() else { return true };
            if keeping.names.get(host).is_none_or(|name| name.asked.is_none()) {
                return true;
            }
            (ask, keeping.vouching.is_silent())
        };
        let verdict = match known {
            Some(silent) => silent,
            None => {
                let word = ask.about(host).await;
                self.keeping.borrow_mut().vouching.hear(host, &ask, word)
            }
        };
        let mut keeping = self.keeping.borrow_mut();
        let Keeping { names, vouching, .. } = &mut *keeping;
        // It may have been configured meanwhile.
        let Some(name) = names.get_mut(host).filter(|name| name.asked.is_some()) else { return true };
        let pause = match verdict {
            Verdict::Yes => return true,
            // Nobody has said no, and it was vouched for when it was issued.
            Verdict::Unknown(_) if name.certificate.as_ref().is_some_and(ends_soon) => return true,
            Verdict::No if name.is_lent() => {
                vouching.refused(host, &ask);
                names.remove(host);
                return false;
            }
            Verdict::No => {
                tracing::info!(host, "the certificate is not renewed: {ask} says no");
                ASK_AGAIN
            }
            Verdict::Unknown(pause) => pause,
        };
        name.due = now().saturating_add(pause);
        false
    }

    async fn account(&self) -> Result<Account, Trouble> {
        let known = self.keeping.borrow().account.clone();
        if let Some(account) = known {
            return Ok(account);
        }
        // Several servers make one account.
        let deadline = Instant::now() + QUESTION;
        let _lock = loop {
            match self.store.lock_own(ACCOUNT)? {
                Some(lock) => break Some(lock),
                None if Instant::now() > deadline => break None,
                None => tokio::time::sleep(Duration::from_millis(300)).await,
            }
        };
        let (account, kept) =
            with_fresh_nonces(async || order::account(&self.authority, &self.store).await).await?;
        let mut keeping = self.keeping.borrow_mut();
        (keeping.account, keeping.account_is_kept) = (Some(account.clone()), kept);
        Ok(account)
    }

    /// The authority does not know the account any more.
    fn forget_account(&self) -> io::Result<bool> {
        match self.keeping.borrow_mut().account.take() {
            Some(account) => {
                let why = "the authority does not know the account any more; another one is made, unless one was within the last hour";
                tracing::warn!(host = self.host, account = account.id(), "{why}");
                self.store.forget_account(account.id())
            }
            None => Ok(true),
        }
    }

    /// `false`: not now, see [`Keeping::take`].
    async fn order(&self) -> Result<bool, Trouble> {
        let Attending { keeping, host, authority, store } = self;
        store.has_room().inspect_err(|_| keeping.borrow_mut().is_in_vain(host))?;
        let account = self.account().await?;
        // Not before: what the authority never heard of costs nothing.
        if !keeping.borrow_mut().may_order(host, store)? {
            return Ok(false);
        }
        let (resolver, replaces) = {
            let keeping = keeping.borrow();
            let before = keeping.names.get(host).and_then(|name| name.certificate.as_ref());
            let own = keeping.names.get(host).is_some_and(|name| !name.foreign);
            let replaces = before.filter(|before| own && before.remaining() > 0).and_then(identifier);
            (keeping.resolver.clone(), replaces)
        };
        tracing::info!(host, authority = authority.directory, "a certificate is ordered");
        let order =
            async || order::order(&account, authority, store, &resolver, host, replaces.clone()).await;
        let (chain, key) = with_fresh_nonces(order).await?;
        if let Err(error) = store.keep_certificate(host, &chain, &key) {
            keeping.borrow_mut().hold(host, (chain, key), &error);
        }
        Ok(true)
    }
}

/// What happens between the waits.
impl Keeping {
    /// Whether what was issued for a name is stored, after another attempt; if not, when the next one is due is noted.
    fn is_kept(&mut self, host: &str, store: &Store, began: i64) -> bool {
        let Some(name) = self.names.get_mut(host) else { return true };
        let Some((chain, key)) = &name.unkept else { return true };
        if store.keep_certificate(host, chain, key).is_err() {
            name.due = began.saturating_add(PAUSE.0.as_secs() as i64);
            return false;
        }
        tracing::info!(host, "the certificate that could not be stored is stored now");
        name.unkept = None;
        true
    }

    /// Serves what was issued and cannot be stored: another one would be one of the few that the authority gives in a week.
    pub(super) fn hold(&mut self, host: &str, (chain, key): (String, String), error: &io::Error) {
        let Some(name) = self.names.get_mut(host) else { return };
        // It was read once already.
        let Ok(certificate) = Certificate::from_pem(chain.as_bytes(), key.as_bytes()) else { return };
        tracing::error!(
            host,
            "the certificate that was issued cannot be stored, and is served from memory: {error}; {STORAGE}"
        );
        (name.renew_at, name.ask_at, name.foreign) = (latest(&certificate), 0, false);
        (name.certificate, name.unkept) = (Some(certificate), Some((chain, key)));
    }

    /// Whether a name has no certificate, after a look at what another server may have got.
    fn is_missing(&mut self, host: &str, store: &Store) -> bool {
        if self.names.get_mut(host).is_some_and(|name| name.look(host, store)) {
            self.publish();
        }
        self.names.get(host).is_none_or(|name| name.certificate.is_none())
    }

    /// Whether it is time for an order; if not, when to look again is noted.
    fn is_to_be_ordered(&mut self, host: &str, missing: bool, began: i64) -> bool {
        let Some(name) = self.names.get_mut(host) else { return false };
        if !missing && name.renew_at > began && !name.is_owed() {
            if name.foreign {
                name.ask_at = began.saturating_add(NOT_ASKED);
            }
            name.due = name.ask_at.min(name.renew_at);
            return false;
        }
        // What cannot be read this once would cost one of the few that the authority gives to a name in a week.
        if missing && name.unread.is_some_and(|since| since.elapsed() < UNREAD) {
            name.due = began.saturating_add(LOOK_SOON.as_secs() as i64);
            return false;
        }
        true
    }

    /// Takes the lock for an order; `None`: there is none to be made now.
    fn begin(&mut self, host: &str, store: &Store, began: i64) -> Option<Lock> {
        let name = self.names.get_mut(host)?;
        let failed = store.failed(host);
        name.failures = name.failures.max(failed.times);
        // One that is further away than any was noted by a clock that was set back since.
        if !name.at_once && (1..=PAUSE.1.as_secs() as i64).contains(&failed.until.saturating_sub(began)) {
            name.due = failed.until;
            return None;
        }
        let lock = match store.lock(host) {
            Ok(Some(lock)) => lock,
            Ok(None) => {
                // Another server is at it.
                name.due = began.saturating_add(LOOK_SOON.as_secs() as i64);
                return None;
            }
            Err(error) => {
                self.is_in_vain(host);
                self.failed(host, store, error.into());
                return None;
            }
        };
        name.at_once = false;
        // It may just have been there.
        if name.look(host, store) && name.renew_at > began {
            self.publish();
            return None;
        }
        Some(lock)
    }

    /// An order has ended.
    fn ended(&mut self, host: &str, store: &Store, began: i64, outcome: Result<bool, Trouble>) {
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
                self.issued(host, store);
            }
            Err(trouble) => {
                if self.account.is_none() {
                    self.is_in_vain(host);
                }
                self.failed(host, store, trouble);
            }
        }
    }

    /// A certificate was issued, and is stored, or held.
    pub(super) fn issued(&mut self, host: &str, store: &Store) {
        let Some(name) = self.names.get_mut(host) else { return };
        if name.unkept.is_some() {
            (name.failures, name.due) = (0, now().saturating_add(PAUSE.0.as_secs() as i64));
            return self.publish();
        }
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

    /// Whether an order may be made at all: of what visitors think of only so many.
    fn may_order(&mut self, host: &str, store: &Store) -> io::Result<bool> {
        if !self.names.get(host).is_some_and(Name::is_lent) {
            return Ok(true);
        }
        self.take(host, store).inspect_err(|_| self.is_in_vain(host))
    }

    /// An order came to nothing for a reason that all share: each name that visitors think of would be another attempt.
    fn is_in_vain(&mut self, host: &str) {
        if self.names.get(host).is_some_and(Name::is_lent) {
            self.demand.is_away(now());
        }
    }

    /// Uses one order of what is allowed to the domain of a name; `false`: nothing is left, for another server has used it, or may be about to.
    pub(super) fn take(&mut self, host: &str, store: &Store) -> io::Result<bool> {
        let Some(_lock) = store.lock_own(ALLOWANCE)? else { return Ok(false) };
        self.demand.used = store.allowance()?;
        let now = now();
        if self.demand.ready_at(host, now) > now {
            return Ok(false);
        }
        self.demand.take(host, now);
        store.keep_allowance(&self.demand.used)?;
        Ok(true)
    }

    fn failed(&mut self, host: &str, store: &Store, trouble: Trouble) {
        // Its places may be others by now. What is nowhere but here stays.
        if self.account_is_kept {
            self.account = None;
        }
        let known = self.names.get(host).map_or(0, |name| name.failures);
        let times = store.failed(host).times.max(known).saturating_add(1);
        let doubled = PAUSE.0.saturating_mul(1 << (times - 1).min(12)).min(PAUSE.1);
        let pause = doubled.max(trouble.pause.unwrap_or_default());
        let at = now();
        let until = at.saturating_add(pause.as_secs() as i64);
        // Where there is no room for it this process knows all the same.
        let noted = store.note_failed(host, Some(&Failed { times, until, at }));
        let anybodys = !self.fixed.is_empty() || self.names.values().any(|name| name.certificate.is_some());
        let gets_anybodys = anybodys && !self.demand.allows(host);
        let Some(name) = self.names.get_mut(host) else { return };
        if let Err(error) = noted {
            tracing::warn!(host, "that its order failed cannot be noted: {error}; {STORAGE}");
        }
        (name.due, name.failures) = (until, times);
        let old = match &name.certificate {
            Some(certificate) if certificate.remaining() > 0 => {
                format!("; the old one is served on, until {}", certificate.end())
            }
            Some(_) => "; the old one has expired".to_owned(),
            None if gets_anybodys => "; clients of this name get another host's certificate".to_owned(),
            None => "; clients of this name cannot connect by TLS".to_owned(),
        };
        let Trouble { why, remedy, .. } = trouble;
        tracing::error!(
            host,
            "no certificate was issued: {why}; {remedy}; tried again in {} s{old}",
            pause.as_secs()
        );
    }
}
