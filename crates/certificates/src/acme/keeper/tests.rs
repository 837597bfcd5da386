use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use super::{attending::UNREAD, *};
use crate::{Pem, acme::store::ALLOWANCE, certificate::SHIFT};

mod on_demand;
mod stored;

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
