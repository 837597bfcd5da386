//! What is stored, cannot be stored or read, and what another authority gave.

use super::{
    on_demand::{lending, orders},
    *,
};

#[tokio::test]
async fn the_renewal_of_a_certificate_waits_for_no_time_of_a_clock_that_was_ahead() {
    let storage = tempfile::tempdir().unwrap();
    let mut keeping = keeping(storage.path(), 0);
    let (made, key) = self_signed(&[HOST.into()]).unwrap();
    let store = keeping.store.clone().unwrap();
    store.keep_certificate(HOST, &crate::client::pem(&made.chain()[0]), &key.0).unwrap();
    // It is good for 90 days: the authority is asked about it, which fails, and no order is made.
    assert_eq!(work(&mut keeping).await, 0);
    let asked = keeping.names[HOST].ask_at;
    assert!(asked > now());
    // Ten years later it is over; then the clock is right again, and what was asked in the future is asked anew.
    SHIFT.set(3650 * DAY);
    assert_eq!(work(&mut keeping).await, 1);
    SHIFT.set(0);
    assert_eq!(work(&mut keeping).await, 1);
    let name = &keeping.names[HOST];
    assert!(name.ask_at <= now() + ASK.1.as_secs() as i64 && name.due <= name.ask_at);
    // After two thirds of its life it is to be renewed.
    SHIFT.set(61 * DAY);
    assert_eq!(work(&mut keeping).await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_certificate_that_cannot_be_read_at_the_start_is_not_ordered_anew() {
    let storage = tempfile::tempdir().unwrap();
    let (made, key) = self_signed(&[HOST.into()]).unwrap();
    let store = keeping(storage.path(), 0).store.clone().unwrap();
    store.keep_certificate(HOST, &crate::client::pem(&made.chain()[0]), &key.0).unwrap();
    let path = storage.path().join("127.0.0.1_1_directory/a.example.pem");
    let aside = path.with_extension("aside");
    // A file that gives an error, also to root.
    std::fs::rename(&path, &aside).unwrap();
    std::fs::create_dir(&path).unwrap();
    let mut keeping = keeping(storage.path(), 0);
    assert_eq!(work(&mut keeping).await, 0, "it may be good");
    SHIFT.set(4);
    assert_eq!((work(&mut keeping).await, keeping.resolver.covers(HOST)), (0, false));
    std::fs::remove_dir(&path).unwrap();
    std::fs::rename(&aside, &path).unwrap();
    SHIFT.set(8);
    assert_eq!((work(&mut keeping).await, keeping.resolver.covers(HOST)), (0, true), "it was");

    // One that was read is no certificate: there is nothing to wait for. And nobody waits for ever.
    std::fs::write(&path, "nothing").unwrap();
    let mut broken = self::keeping(storage.path(), 0);
    assert_eq!(work(&mut broken).await, 1);
    store.note_failed(HOST, None).unwrap();
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    let mut unread = self::keeping(storage.path(), 0);
    assert_eq!(work(&mut unread).await, 0);
    tokio::time::advance(UNREAD).await;
    SHIFT.set(600);
    assert_eq!(work(&mut unread).await, 1);
}

#[tokio::test]
async fn a_certificate_that_could_not_be_read_once_is_read_again() {
    let storage = tempfile::tempdir().unwrap();
    let mut keeping = keeping(storage.path(), 0);
    let store = keeping.store.clone().unwrap();
    let keep = || {
        let (made, key) = self_signed(&[HOST.into()]).unwrap();
        store.keep_certificate(HOST, &crate::client::pem(&made.chain()[0]), &key.0).unwrap();
        made
    };
    keep();
    keeping.look();
    let next = keep();
    let path = storage.path().join("127.0.0.1_1_directory/a.example.pem");
    let aside = path.with_extension("aside");
    let written = SystemTime::now() + Duration::from_secs(10);
    std::fs::File::open(&path).unwrap().set_modified(written).unwrap();
    // What is there instead cannot be read, and is as old.
    std::fs::rename(&path, &aside).unwrap();
    std::fs::create_dir(&path).unwrap();
    std::fs::File::open(&path).unwrap().set_modified(written).unwrap();
    keeping.look();
    assert!(keeping.resolver.covers(HOST), "the one before is served on");
    std::fs::remove_dir(&path).unwrap();
    std::fs::rename(&aside, &path).unwrap();
    keeping.look();
    assert_eq!(keeping.names[HOST].certificate.as_ref().unwrap().chain(), next.chain());
}

#[tokio::test]
async fn what_was_issued_and_cannot_be_read_is_not_ordered_again_at_once() {
    let storage = tempfile::tempdir().unwrap();
    let mut keeping = keeping(storage.path(), 0);
    let store = keeping.store.clone().unwrap();
    std::fs::create_dir(storage.path().join("127.0.0.1_1_directory/a.example.pem")).unwrap();
    keeping.issued(HOST, &store);
    assert_eq!(keeping.due(), None);
    assert_eq!(keeping.names[HOST].due, now() + 60);
}

#[tokio::test]
async fn visitors_who_ask_for_challenges_fill_no_queue() {
    // The thread hangs: nobody hears.
    let (messages, mut hear) = mpsc::unbounded_channel();
    let keeper = Keeper { messages, challenges: Arc::new(Semaphore::new(CHALLENGES)) };
    for token in [&*"!".repeat(8000), "", "a/b", "a b", &"a".repeat(129)] {
        assert_eq!(keeper.challenge(token).await, None);
    }
    let asking: Vec<_> = (0..4 * CHALLENGES)
        .map(|n| {
            let keeper = keeper.clone();
            tokio::spawn(async move { keeper.challenge(&format!("token{n}")).await })
        })
        .collect();
    until(|| keeper.challenges.available_permits() == 0).await;
    // All leave; what was sent stays counted until the thread has seen it.
    asking.iter().for_each(tokio::task::JoinHandle::abort);
    until(|| asking.iter().all(tokio::task::JoinHandle::is_finished)).await;
    assert_eq!(keeper.challenges.available_permits(), 0);
    let mut heard = 0;
    while hear.try_recv().is_ok() {
        heard += 1;
    }
    assert_eq!((heard, keeper.challenges.available_permits()), (CHALLENGES, CHALLENGES));
}

/// A certificate for HOST in the store of `keeping`.
fn keep_certificate(keeping: &Keeping) -> Certificate {
    let (made, key) = self_signed(&[HOST.into()]).unwrap();
    let store = keeping.store.clone().unwrap();
    store.keep_certificate(HOST, &crate::client::pem(&made.chain()[0]), &key.0).unwrap();
    made
}

fn other(keeping: &Keeping, change: impl FnOnce(&mut Authority)) -> Wanted {
    let mut wanted = keeping.wanted.clone();
    change(wanted.authority.as_mut().unwrap());
    wanted
}

#[tokio::test]
async fn another_authority_is_asked_at_once_and_what_the_one_before_gave_is_served_until_it_answers() {
    let storage = tempfile::tempdir().unwrap();
    let mut keeping = keeping(storage.path(), 0);
    let made = keep_certificate(&keeping);
    assert_eq!(work(&mut keeping).await, 0);
    let elsewhere = tempfile::tempdir().unwrap();
    for change in [
        &(|authority: &mut Authority| authority.directory = "https://127.0.0.1:2/directory".into())
            as &dyn Fn(&mut Authority),
        &|authority| authority.storage = elsewhere.path().into(),
    ] {
        let wanted = other(&keeping, change);
        keeping.adopt(wanted.clone()).unwrap();
        assert_eq!((work(&mut keeping).await, keeping.resolver.covers(HOST)), (1, true), "asked, in vain");
        assert_eq!(keeping.names[HOST].certificate.as_ref().unwrap().chain(), made.chain());
        // Not each turn.
        assert_eq!(work(&mut keeping).await, 1);
    }
    // Nor does a restart take it away, where the store is the same.
    let mut restarted = Keeping::new(Resolver::new().0);
    let before = other(&keeping, |authority| {
        (authority.directory, authority.storage) =
            ("https://127.0.0.1:2/directory".into(), storage.path().into());
    });
    restarted.adopt(before).unwrap();
    assert!(restarted.resolver.covers(HOST) && restarted.names[HOST].foreign);
    let next = keep_certificate(&restarted);
    restarted.look();
    assert_eq!(restarted.names[HOST].certificate.as_ref().unwrap().chain(), next.chain());
    assert!(!restarted.names[HOST].foreign);
}

#[tokio::test]
async fn what_else_is_said_of_an_authority_orders_nothing_anew() {
    let storage = tempfile::tempdir().unwrap();
    let mut keeping = keeping(storage.path(), 0);
    keep_certificate(&keeping);
    assert_eq!(work(&mut keeping).await, 0);
    let wanted = other(&keeping, |authority| authority.contact = Some("other@example.org".into()));
    keeping.adopt(wanted).unwrap();
    assert_eq!((work(&mut keeping).await, keeping.resolver.covers(HOST)), (0, true));
    assert!(!keeping.names[HOST].foreign);
}

#[tokio::test]
async fn names_on_demand_keep_what_another_authority_gave_until_it_is_to_be_renewed() {
    let storage = tempfile::tempdir().unwrap();
    let host = "shop.x.example";
    let (made, key) = self_signed(&[host.into()]).unwrap();
    let mut keeping = lending(storage.path(), None, 0..0);
    keeping.names.remove(HOST);
    let store = keeping.store.clone().unwrap();
    store.keep_certificate(host, &crate::client::pem(&made.chain()[0]), &key.0).unwrap();
    keeping.demand(host.into());
    let mut wanted =
        other(&keeping, |authority| authority.directory = "https://127.0.0.1:2/directory".into());
    wanted.hosts.clear();
    keeping.adopt(wanted).unwrap();
    let store = keeping.store.clone().unwrap();
    for (day, attempts) in [(0, 0), (59, 0), (61, 1)] {
        SHIFT.set(day * DAY);
        orders(&mut keeping).await;
        assert_eq!((store.failed(host).times, keeping.resolver.covers(host)), (attempts, true), "day {day}");
    }
}

#[tokio::test]
async fn a_store_that_comes_late_or_goes_is_there_again_without_a_restart() {
    let storage = tempfile::tempdir().unwrap();
    let place = storage.path().join("acme");
    std::fs::write(&place, "no directory").unwrap();
    let mut keeping = keeping(&place, 0);
    assert!(keeping.store.is_none() && keeping.due().is_none());
    assert!(keeping.next().unwrap() <= LOOK, "it looks again");
    std::fs::remove_file(&place).unwrap();
    keeping.looked -= LOOK;
    assert_eq!(work(&mut keeping).await, 1, "an order was made, in vain");
    // Somebody removes it.
    std::fs::remove_dir_all(&place).unwrap();
    keeping.looked -= LOOK;
    keeping.due();
    keep_certificate(&keeping);
    std::fs::remove_dir_all(&place).unwrap();
    let wanted = keeping.wanted.clone();
    keeping.adopt(wanted).unwrap();
    keep_certificate(&keeping);
    // It cannot be made again: it is looked at, or orders fail, each with its pause, and nobody turns in circles.
    std::fs::remove_dir_all(&place).unwrap();
    std::fs::write(&place, "no directory").unwrap();
    keeping.looked -= LOOK;
    keeping.names.get_mut(HOST).unwrap().due = 0;
    let host = keeping.due().unwrap();
    attend(&mut keeping, &host).await;
    assert_eq!(keeping.due(), None);
    assert!(keeping.next().unwrap() >= Duration::from_secs(2), "{:?}", keeping.next());
    // Nor where there never was a store for what is wanted now.
    let other = other(&keeping, |authority| authority.directory = "https://127.0.0.1:2/directory".into());
    keeping.adopt(other).unwrap();
    assert!(keeping.store.is_none() && keeping.due().is_none());
    assert!(keeping.next().unwrap() > Duration::from_secs(50));
}

/// What has to be written into the store of `keeping` for an order cannot be.
fn fill(storage: &std::path::Path) {
    let directory = storage.join("127.0.0.1_1_directory");
    for name in ["a.example.failed/x".to_owned(), format!("room.{}/x", std::process::id())] {
        std::fs::create_dir_all(directory.join(name)).unwrap();
    }
}

#[tokio::test]
async fn where_nothing_can_be_kept_nobody_is_asked_and_the_pauses_grow_all_the_same() {
    let storage = tempfile::tempdir().unwrap();
    let mut keeping = keeping(storage.path(), 0);
    let (directory, came) = silent().await;
    let store = keeping.store.clone().unwrap();
    let wanted = other(&keeping, |authority| authority.directory = directory);
    keeping.wanted = wanted;
    fill(storage.path());
    for (at, due) in [(0, 60), (61, 61 + 120), (182, 182 + 240)] {
        SHIFT.set(at);
        while let Some(host) = keeping.due() {
            timeout(Duration::from_secs(20), attend(&mut keeping, &host))
                .await
                .expect("nobody is waited for");
        }
        assert!((0..5).contains(&(keeping.names[HOST].due - (now() - at + due))), "{at}");
    }
    assert_eq!((came.load(SeqCst), store.failed(HOST).times), (0, 0));
    // Nor does each name that a visitor thinks of have its line in the log.
    let mut lent = lending(storage.path(), None, 0..20);
    lent.names.remove(HOST);
    assert_eq!(orders(&mut lent).await, 1);
}

#[tokio::test]
async fn what_was_issued_and_cannot_be_stored_is_served_and_stored_later() {
    let storage = tempfile::tempdir().unwrap();
    let mut keeping = keeping(storage.path(), 0);
    let store = keeping.store.clone().unwrap();
    let (made, key) = self_signed(&[HOST.into()]).unwrap();
    let pem = crate::client::pem(&made.chain()[0]);
    let path = storage.path().join("127.0.0.1_1_directory/a.example.pem");
    std::fs::create_dir(&path).unwrap();
    let error = store.keep_certificate(HOST, &pem, &key.0).unwrap_err();
    keeping.hold(HOST, (pem, key.0.clone()), &error);
    keeping.issued(HOST, &store);
    assert!(keeping.resolver.covers(HOST));
    assert_eq!(keeping.due(), None, "no other is ordered");
    // Nor where somebody names another directory, as the log tells him to.
    let elsewhere = tempfile::tempdir().unwrap();
    let mut other = Keeping::new(Resolver::new().0);
    other.adopt(self::other(&keeping, |_| ())).unwrap();
    other.hold(HOST, keeping.names[HOST].unkept.clone().unwrap(), &error);
    other.adopt(self::other(&keeping, |authority| authority.storage = elsewhere.path().into())).unwrap();
    assert_eq!(work(&mut other).await, 0);
    assert_eq!(other.store.clone().unwrap().certificate(HOST).unwrap().unwrap().chain(), made.chain());
    SHIFT.set(61);
    assert_eq!((work(&mut keeping).await, keeping.resolver.covers(HOST)), (0, true));
    std::fs::remove_dir(&path).unwrap();
    // What comes back with the store is older, and was to be replaced.
    SHIFT.set(-DAY);
    keep_certificate(&keeping);
    SHIFT.set(61);
    keeping.look();
    assert_eq!(keeping.names[HOST].certificate.as_ref().unwrap().chain(), made.chain());
    SHIFT.set(122);
    assert_eq!(work(&mut keeping).await, 0);
    assert_eq!(store.certificate(HOST).unwrap().unwrap().chain(), made.chain());
    assert!(keeping.names[HOST].unkept.is_none());
}

#[tokio::test]
async fn a_reload_has_what_failed_tried_again_but_not_each_reload() {
    let storage = tempfile::tempdir().unwrap();
    let mut keeping = keeping(storage.path(), 0);
    let store = keeping.store.clone().unwrap();
    let reload = |keeping: &mut Keeping| keeping.adopt(keeping.wanted.clone()).unwrap();
    for (at, times) in [(0, 1), (61, 2), (182, 3), (423, 4), (904, 5)] {
        SHIFT.set(at);
        assert_eq!(work(&mut keeping).await, times);
        reload(&mut keeping);
        assert_eq!(work(&mut keeping).await, times, "it has just failed");
    }
    SHIFT.set(904 + 601);
    reload(&mut keeping);
    assert_eq!(work(&mut keeping).await, 6, "before its pause of 16 minutes is over");
    // Whoever removes the note means now.
    store.note_failed(HOST, None).unwrap();
    reload(&mut keeping);
    assert_eq!(store.failed(HOST).times, 0);
    work(&mut keeping).await;
    assert!(store.failed(HOST).times > 0);
    // So it is in a process that has only read that it failed.
    let mut restarted = self::keeping(storage.path(), 904 + 602);
    let before = work(&mut restarted).await;
    SHIFT.set(904 + 601 + 601);
    reload(&mut restarted);
    assert_eq!(work(&mut restarted).await, before + 1);
}

#[tokio::test]
async fn a_name_whose_orders_fail_comes_after_those_that_have_not_been_tried() {
    let storage = tempfile::tempdir().unwrap();
    let mut keeping = keeping(storage.path(), 0);
    work(&mut keeping).await;
    SHIFT.set(61);
    keeping.adopt(Wanted { hosts: vec![HOST.into(), "z.example".into()], ..keeping.wanted.clone() }).unwrap();
    keeping.names.get_mut("z.example").unwrap().due = now();
    assert_eq!(keeping.due().as_deref(), Some("z.example"));
}
