//! Names that visitors ask for, which an endpoint vouches for.

use super::*;

/// The same, where whoever asks for a name below x.example gets a certificate, if `ask` says so.
pub(super) fn lending(
    storage: &std::path::Path,
    ask: Option<&str>,
    names: std::ops::Range<usize>,
) -> Keeping {
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
pub(super) async fn orders(keeping: &mut Keeping) -> usize {
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
pub(super) async fn directory_of_names() -> String {
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
