use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use super::{attending::UNREAD, *};
use crate::{Pem, acme::store::ALLOWANCE, certificate::SHIFT};

const HOST: &str = "a.example";
const DAY: i64 = 24 * 3600;
/// A name that is looked after by a panic.
pub(super) const FAULTY: &str = "faulty.example";

/// A keeper of one name whose authority cannot be reached: nobody listens on port 1. Its thread sees the clock `shift` seconds ahead.
fn keeping(storage: &std::path::Path, shift: i64) -> Keeping {
    SHIFT.set(shift);
    let mut keeping = Keeping::new(Resolver::new().0);
    let wanted = Wanted {
        authority: Some(Authority {
            directory: "https://127.0.0.1:1/directory".into(),
            contact: None,
            root: None,
            challenge: super::super::Challenge::Http01,
            profile: None,
            external: None,
            storage: storage.into(),
            on_demand: OnDemand::default(),
        }),
        hosts: vec![HOST.into()],
        ..Wanted::default()
    };
    keeping.adopt(wanted).unwrap();
    keeping
}

/// Does what is due for a name, while nobody wants anything else.
async fn attend(keeping: &mut Keeping, host: &str) {
    let shared = RefCell::new(std::mem::replace(keeping, Keeping::new(Resolver::new().0)));
    Attending::to(&shared, host.into()).unwrap().attend().await;
    *keeping = shared.into_inner();
}

/// Does what is due; how often an order has failed since the last that succeeded.
async fn work(keeping: &mut Keeping) -> u32 {
    while let Some(host) = keeping.due() {
        attend(keeping, &host).await;
    }
    keeping.store.as_ref().unwrap().failed(HOST).times
}

#[tokio::test]
async fn an_order_that_failed_is_tried_again_when_its_pause_is_over_and_not_before() {
    let storage = tempfile::tempdir().unwrap();
    let mut keeping = keeping(storage.path(), 0);
    assert_eq!(work(&mut keeping).await, 1);
    SHIFT.set(50);
    assert_eq!(work(&mut keeping).await, 1);
    assert!(keeping.next().unwrap() <= LOOK);
    SHIFT.set(70);
    assert_eq!(work(&mut keeping).await, 2);
}

#[tokio::test]
async fn a_panic_is_an_order_that_failed_and_others_go_on() {
    let storage = tempfile::tempdir().unwrap();
    let mut keeping = keeping(storage.path(), 0);
    keeping.adopt(Wanted { hosts: vec![FAULTY.into(), HOST.into()], ..keeping.wanted.clone() }).unwrap();
    let store = keeping.store.clone().unwrap();
    let (messages, mut hear) = mpsc::unbounded_channel();
    let (_demand, mut demanded) = mpsc::channel(1);
    let both = async {
        while store.failed(FAULTY).times == 0 || store.failed(HOST).times == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let (reply, answer) = oneshot::channel();
        messages.send(Message::Wanted(Box::default(), reply)).unwrap();
        answer.await.expect("it still hears").unwrap();
    };
    let keeping = RefCell::new(keeping);
    tokio::select! {
        () = run(&keeping, &mut hear, &mut demanded) => panic!("it has ended"),
        done = timeout(Duration::from_secs(60), both) => done.expect("both are tried"),
    }
    assert_eq!(store.failed(FAULTY).times, 1, "not again at once");
}

/// Somebody who accepts connections and says nothing. Its address, and how many have come.
async fn silent() -> (String, Arc<AtomicUsize>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let came = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&came);
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((client, _)) = listener.accept().await {
            kept.push(client);
            count.fetch_add(1, SeqCst);
        }
    });
    (format!("https://{at}/directory"), came)
}

fn pair(host: &str) -> Pair {
    let (made, key) = self_signed(&[host.into()]).unwrap();
    let chain = Pem(crate::client::pem(&made.chain()[0]));
    let [certificate, private] = ["pem", "key"].map(|ending| format!("/{host}.{ending}").into());
    Pair { certificate, private, chain, key: Pem(key.0.clone()) }
}

async fn until(condition: impl Fn() -> bool) {
    let reached = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(60), reached).await.expect("it does not come");
}

#[tokio::test]
async fn while_an_order_hangs_all_else_is_done_and_the_order_goes_on_as_long_as_it_is_wanted() {
    let storage = tempfile::tempdir().unwrap();
    let mut keeping = keeping(storage.path(), 0);
    let mut wanted = keeping.wanted.clone();
    let (directory, came) = silent().await;
    wanted.authority.as_mut().unwrap().directory = directory;
    keeping.adopt(wanted.clone()).unwrap();
    let (store, resolver) = (keeping.store.clone().unwrap(), Arc::clone(&keeping.resolver));
    let under_way = || store.lock(HOST).unwrap().is_none();
    let (messages, mut hear) = mpsc::unbounded_channel();
    let (demand, mut demanded) = mpsc::channel(1);
    let want = async |wanted: &Wanted| {
        let (reply, answer) = oneshot::channel();
        messages.send(Message::Wanted(Box::new(wanted.clone()), reply)).unwrap();
        timeout(Duration::from_secs(60), answer).await.expect("an answer, before the order's end").unwrap()
    };
    let visit = async {
        until(|| came.load(SeqCst) == 1).await;
        wanted.pairs.push(pair("b.example"));
        wanted.authority.as_mut().unwrap().on_demand.patterns.push("*.x.example".into());
        want(&wanted).await.unwrap();
        assert!(resolver.covers("b.example"));
        // What is broken does not take its place, and is spoken of.
        let broken = Pair { chain: Pem("nothing".into()), ..wanted.pairs[0].clone() };
        let why = want(&Wanted { pairs: vec![broken], ..wanted.clone() }).await.unwrap_err();
        assert!(resolver.covers("b.example") && why.contains("/b.example.pem"), "{why}");
        store.keep_challenge("token", "an answer").unwrap();
        let keeper = Keeper { messages: messages.clone(), challenges: Arc::new(Semaphore::new(1)) };
        for _ in 0..2 {
            assert_eq!(keeper.challenge("token").await.as_deref(), Some("an answer"));
        }
        demand.send("shop.x.example".into()).await.unwrap();
        assert!(under_way() && came.load(SeqCst) == 1, "it goes on, and once");

        // Nobody wants it: it ends, and the next one begins.
        want(&Wanted { hosts: vec!["c.example".into()], ..wanted.clone() }).await.unwrap();
        until(|| !under_way() && came.load(SeqCst) == 2).await;
        assert_eq!(store.failed(HOST).times, 0);
        // Somebody else is asked: so are they.
        want(&wanted).await.unwrap();
        until(|| under_way() && came.load(SeqCst) == 3).await;
        let (directory, others) = silent().await;
        wanted.authority.as_mut().unwrap().directory = directory;
        want(&wanted).await.unwrap();
        until(|| !under_way() && others.load(SeqCst) == 1).await;
        assert_eq!(came.load(SeqCst), 3);
    };
    let keeping = RefCell::new(keeping);
    tokio::select! {
        () = run(&keeping, &mut hear, &mut demanded) => panic!("it has ended"),
        () = visit => {}
    }
}

#[tokio::test]
async fn an_order_that_failed_years_ahead_is_tried_again_when_the_clock_is_right() {
    let storage = tempfile::tempdir().unwrap();
    let mut keeping = keeping(storage.path(), 3650 * DAY);
    assert_eq!(work(&mut keeping).await, 1);
    SHIFT.set(0);
    assert_eq!(work(&mut keeping).await, 2);
    // And no more often than with a clock that was right all the time.
    assert_eq!(work(&mut keeping).await, 2);
}

#[tokio::test]
async fn a_server_that_starts_with_the_right_clock_does_not_wait_for_what_was_noted_years_ahead() {
    let storage = tempfile::tempdir().unwrap();
    assert_eq!(work(&mut keeping(storage.path(), 3650 * DAY)).await, 1);
    assert_eq!(work(&mut keeping(storage.path(), 0)).await, 2);
}

#[tokio::test]
async fn a_clock_that_was_ahead_only_while_an_order_failed_stalls_nothing() {
    let storage = tempfile::tempdir().unwrap();
    let mut keeping = keeping(storage.path(), 0);
    let host = keeping.due().unwrap();
    SHIFT.set(3650 * DAY);
    attend(&mut keeping, &host).await;
    SHIFT.set(0);
    assert_eq!(work(&mut keeping).await, 2);
}

/// The same, where whoever asks for a name below x.example gets a certificate, if `ask` says so.
fn lending(storage: &std::path::Path, ask: Option<&str>, names: std::ops::Range<usize>) -> Keeping {
    let mut keeping = keeping(storage, 0);
    let on_demand =
        OnDemand { patterns: vec!["*.x.example".into()], ask: ask.map(|ask| ask.parse().unwrap()) };
    let mut wanted = keeping.wanted.clone();
    wanted.authority = wanted.authority.map(|authority| Authority { on_demand, ..authority });
    keeping.adopt(wanted).unwrap();
    names.for_each(|n| keeping.demand(format!("{n:03}.x.example")));
    keeping
}

/// Does what is due; how many of the orders were for names that are lent.
async fn orders(keeping: &mut Keeping) -> usize {
    let mut orders = 0;
    while let Some(host) = keeping.due() {
        attend(keeping, &host).await;
        orders += usize::from(host != HOST);
    }
    orders
}

#[tokio::test]
async fn a_renewal_waits_for_no_name_that_visitors_thought_of() {
    let storage = tempfile::tempdir().unwrap();
    let mut keeping = lending(storage.path(), None, 0..50);
    assert_eq!(keeping.due().as_deref(), Some(HOST), "nor does what is configured and has none");
    let (made, key) = self_signed(&[HOST.into()]).unwrap();
    let store = keeping.store.clone().unwrap();
    store.keep_certificate(HOST, &crate::client::pem(&made.chain()[0]), &key.0).unwrap();
    keeping.names.get_mut(HOST).unwrap().due = now() - 10;
    assert_eq!(keeping.due().as_deref(), Some(HOST));
}

#[tokio::test]
async fn visitors_use_up_neither_the_authoritys_limits_nor_all_places() {
    let storage = tempfile::tempdir().unwrap();
    let mut keeping = lending(storage.path(), None, 0..500);
    let waiting = |keeping: &Keeping| keeping.names.values().filter(|name| name.is_lent()).count();
    assert_eq!(waiting(&keeping), MOST_LENT);
    assert!(keeping.names.contains_key("499.x.example") && !keeping.names.contains_key("000.x.example"));
    // The authority is away: it is tried once a minute, whoever asks, and what it never heard of has used up nothing.
    assert_eq!(orders(&mut keeping).await, 1);
    (500..600).for_each(|n| keeping.demand(format!("{n:03}.x.example")));
    assert_eq!(orders(&mut keeping).await, 0);
    assert!(keeping.next().unwrap() <= LOOK);
    SHIFT.set(61);
    assert_eq!(orders(&mut keeping).await, 1);
    assert!(keeping.store.as_ref().unwrap().allowance().unwrap().is_empty());
    // The clock was ahead.
    SHIFT.set(3650 * DAY);
    assert_eq!(orders(&mut keeping).await, 1);
    SHIFT.set(0);
    assert!(keeping.demand.ready_at("a.x.example", now()) <= now() + 60);
}

#[tokio::test]
async fn neither_a_restart_nor_another_server_gives_an_allowance_anew() {
    let storage = tempfile::tempdir().unwrap();
    let mut first = lending(storage.path(), None, 0..1);
    let mut second = lending(storage.path(), None, 0..1);
    let store = first.store.clone().unwrap();
    for n in 0..5 {
        assert!(first.take(&format!("{n}.x.example"), &store).unwrap());
        assert!(second.take(&format!("other{n}.x.example"), &store).unwrap());
    }
    assert!(!first.take("a.x.example", &store).unwrap() && !second.take("a.x.example", &store).unwrap());
    let mut restarted = lending(storage.path(), None, 0..1);
    assert_eq!(orders(&mut restarted).await, 0);
    assert!(!restarted.take("a.x.example", &store).unwrap());
    SHIFT.set(6 * 3600 + 1);
    assert!(restarted.take("a.x.example", &store).unwrap());
    assert!(!first.take("a.x.example", &store).unwrap());
    // Another server is about to use some of it.
    SHIFT.set(3 * DAY);
    let lock = store.lock_own(ALLOWANCE).unwrap();
    assert!(!first.take("a.x.example", &store).unwrap());
    drop(lock);
    assert!(first.take("a.x.example", &store).unwrap());
    std::fs::write(storage.path().join("127.0.0.1_1_directory/allowance.json"), "nonsense").unwrap();
    let error = first.take("a.x.example", &store).unwrap_err().to_string();
    assert!(error.contains("allowance.json") && error.contains("remove it"), "{error}");
}

#[tokio::test]
async fn what_others_have_stored_is_not_looked_at_for_each_name_that_a_visitor_thinks_of() {
    let storage = tempfile::tempdir().unwrap();
    let mut keeping = lending(storage.path(), None, 0..0);
    orders(&mut keeping).await;
    let (made, key) = self_signed(&[HOST.into()]).unwrap();
    let store = keeping.store.clone().unwrap();
    store.keep_certificate(HOST, &crate::client::pem(&made.chain()[0]), &key.0).unwrap();
    for n in 0..10 {
        keeping.demand(format!("{n}.x.example"));
        keeping.due();
    }
    assert!(!keeping.resolver.covers(HOST));
    keeping.looked -= LOOK;
    keeping.due();
    assert!(keeping.resolver.covers(HOST));
}

#[tokio::test]
async fn a_certificate_that_ended_long_ago_is_nobodys_until_somebody_asks_for_it() {
    let storage = tempfile::tempdir().unwrap();
    let host = "gone.x.example";
    let (made, key) = self_signed(&[host.into()]).unwrap();
    let mut keeping = lending(storage.path(), None, 0..0);
    let store = keeping.store.clone().unwrap();
    store.keep_certificate(host, &crate::client::pem(&made.chain()[0]), &key.0).unwrap();
    keeping.demand(host.into());
    assert!(keeping.resolver.covers(host));
    SHIFT.set((90 + 29) * DAY);
    keeping.look();
    assert!(keeping.resolver.covers(host));
    SHIFT.set((90 + 31) * DAY);
    keeping.look();
    assert!(!keeping.names.contains_key(host) && !keeping.resolver.covers(host));
    let mut restarted = lending(storage.path(), None, 0..0);
    SHIFT.set((90 + 31) * DAY);
    restarted.names.clear();
    restarted.list();
    assert!(!restarted.names.contains_key(host));
    restarted.demand(host.into());
    assert!(restarted.names[host].is_lent(), "it needs what is allowed to any name");
    // The clock was ahead.
    keeping.due();
    SHIFT.set(0);
    keeping.due();
    assert!(keeping.resolver.covers(host));
}

#[tokio::test]
async fn a_name_that_is_named_waits_for_no_name_that_visitors_thought_of() {
    let storage = tempfile::tempdir().unwrap();
    let mut keeping = lending(storage.path(), None, 0..0);
    let mut wanted = keeping.wanted.clone();
    wanted.hosts.clear();
    wanted.authority.as_mut().unwrap().on_demand.patterns.push("shop.x.example".into());
    keeping.adopt(wanted).unwrap();
    keeping.demand("shop.x.example".into());
    (0..300).for_each(|n| keeping.demand(format!("{n:03}.x.example")));
    assert_eq!(keeping.due().as_deref(), Some("shop.x.example"));
}

#[tokio::test]
async fn what_was_issued_on_demand_is_there_after_a_restart() {
    let storage = tempfile::tempdir().unwrap();
    let host = "shop.x.example";
    let (made, key) = self_signed(&[host.into(), "other.example".into()]).unwrap();
    let before = lending(storage.path(), None, 0..0);
    let store = before.store.clone().unwrap();
    for name in [host, "other.example"] {
        store.keep_certificate(name, &crate::client::pem(&made.chain()[0]), &key.0).unwrap();
    }
    let keeping = lending(storage.path(), None, 0..0);
    assert!(keeping.resolver.covers(host));
    assert!(!keeping.names.contains_key("other.example"), "nobody allows it any more");
}

#[tokio::test]
async fn a_name_with_visitors_comes_before_names_that_nobody_asks_for_again() {
    let storage = tempfile::tempdir().unwrap();
    let mut keeping = lending(storage.path(), None, 0..1);
    keeping.demand("shop.x.example".into());
    (1..99).for_each(|n| keeping.demand(format!("{n:03}.x.example")));
    keeping.demand("shop.x.example".into());
    (99..198).for_each(|n| keeping.demand(format!("{n:03}.x.example")));
    assert!(keeping.names.contains_key("shop.x.example"));
    keeping.demand("shop.x.example".into());
    keeping.names.remove(HOST);
    assert_eq!(keeping.due().as_deref(), Some("shop.x.example"));
}

/// Answers questions about names for as long as it is kept: yes to those that begin with `0`. Where it listens.
async fn directory_of_names() -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut asked = [0; 1000];
            let n = client.read(&mut asked).await.unwrap();
            let yes = asked[..n].starts_with(b"GET /names?domain=0");
            let odd = asked[..n].starts_with(b"GET /names?domain=odd");
            let status = if yes {
                "200 OK"
            } else if odd {
                "500 Oh"
            } else {
                "404 Not Found"
            };
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
            client.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    format!("http://{at}/names")
}

#[tokio::test]
async fn a_name_that_nobody_vouches_for_is_not_ordered_and_keeps_no_place() {
    let storage = tempfile::tempdir().unwrap();
    let ask = directory_of_names().await;
    let mut keeping = lending(storage.path(), Some(&ask), 90..110);
    orders(&mut keeping).await;
    let store = keeping.store.clone().unwrap();
    assert_eq!(store.failed("099.x.example").times, 1, "ordered, in vain");
    assert_eq!(store.failed("100.x.example").times, 0);
    assert!(keeping.names.contains_key("099.x.example") && !keeping.names.contains_key("100.x.example"));
    assert_eq!(store.failed(HOST).times, 1, "what is configured is not asked about");
}

#[tokio::test]
async fn while_nobody_can_be_asked_nothing_is_ordered_on_demand() {
    let storage = tempfile::tempdir().unwrap();
    let mut keeping = lending(storage.path(), Some("http://127.0.0.1:1/"), 0..3);
    orders(&mut keeping).await;
    let store = keeping.store.clone().unwrap();
    assert_eq!(store.failed("001.x.example").times, 0);
    assert_eq!(keeping.due(), None);
    SHIFT.set(61);
    assert!(keeping.due().is_some(), "asked again a minute later");
}

#[tokio::test]
async fn a_renewal_goes_on_when_nobody_can_be_asked_and_the_certificate_ends_soon() {
    let storage = tempfile::tempdir().unwrap();
    let mut keeping = lending(storage.path(), Some("http://127.0.0.1:1/"), 0..0);
    let host = "shop.x.example";
    let (made, key) = self_signed(&[host.into()]).unwrap();
    let store = keeping.store.clone().unwrap();
    store.keep_certificate(host, &crate::client::pem(&made.chain()[0]), &key.0).unwrap();
    keeping.demand(host.into());
    for (day, attempts) in [(61, 0), (85, 1), (91, 1)] {
        SHIFT.set(day * DAY);
        orders(&mut keeping).await;
        assert_eq!(store.failed(host).times, attempts, "day {day}");
    }
}

#[tokio::test]
async fn an_odd_answer_about_one_name_holds_up_no_other() {
    let storage = tempfile::tempdir().unwrap();
    let ask = directory_of_names().await;
    let mut keeping = lending(storage.path(), Some(&ask), 0..1);
    keeping.demand("odd.x.example".into());
    keeping.names.remove(HOST);
    orders(&mut keeping).await;
    assert_eq!(keeping.store.as_ref().unwrap().failed("000.x.example").times, 1, "ordered, in vain");
    assert!(keeping.names["odd.x.example"].due > now());
}

#[tokio::test]
async fn a_certificate_that_nobody_vouches_for_any_more_is_served_on_and_not_renewed() {
    let storage = tempfile::tempdir().unwrap();
    let ask = directory_of_names().await;
    let mut keeping = lending(storage.path(), Some(&ask), 0..0);
    let host = "gone.x.example";
    let (made, key) = self_signed(&[host.into()]).unwrap();
    let store = keeping.store.clone().unwrap();
    store.keep_certificate(host, &crate::client::pem(&made.chain()[0]), &key.0).unwrap();
    keeping.demand(host.into());
    SHIFT.set(61 * DAY);
    orders(&mut keeping).await;
    assert_eq!(store.failed(host).times, 0);
    let name = &keeping.names[host];
    assert!(name.certificate.is_some() && name.due >= now() + DAY - 60);
}

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
