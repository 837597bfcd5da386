//! A fault of the server's own costs the one request that met it.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use crate::server::{Server, eventually};

#[test]
fn a_panic_ends_one_request_and_is_counted() {
    let broken = Arc::new(AtomicBool::new(true));
    let asked = Arc::clone(&broken);
    // What the pool is asked before each script: as good a place as any.
    let server = Server::with_unavailable(move || {
        assert!(!asked.load(Relaxed), "this panic is part of the test");
        Some("not now".into())
    });
    server.write("a.php", "");
    server.write("a.txt", "file");
    let mut other = server.connect();
    other.send("GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(other.answer().text(), "file");
    for round in 1..=3 {
        let mut client = server.connect();
        client.send("GET /a.php HTTP/1.1\r\nHost: a\r\n\r\n");
        let answer = client.answer();
        assert_eq!((answer.status, answer.header("connection")), (500, Some("close")));
        assert!(client.is_closed());
        eventually("the panic is counted", || server.metric("hayate_panics") == f64::from(round));
    }
    other.send("GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(other.answer().text(), "file");
    broken.store(false, Relaxed);
    assert_eq!(server.ask("GET /a.php", "").status, 503);
    drop(other);
    eventually("no connection is left", || server.front.connections() == 0);
    assert_eq!(server.metric("hayate_requests_in_flight"), 0.0);
    assert_eq!(server.metric("hayate_connections"), 0.0);
    let statuses: Vec<_> =
        server.log_at_the_end().iter().map(|line| line["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [200, 500, 500, 500, 200, 503]);
}

#[test]
fn a_panic_in_what_serves_no_visitor_is_counted_as_well() {
    async fn fails() {
        panic!("this panic is part of the test");
    }
    let server = Server::plain();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert!(runtime.block_on(server.front.caught(fails())).is_err());
    assert_eq!(server.metric("hayate_panics"), 1.0);
}
