//! How long a connection may take, and how it ends.

use std::{
    net::Shutdown,
    time::{Duration, Instant},
};

use hayate_front::Limits;

use crate::server::{PATIENCE, Server, eventually};

const SOON: Duration = Duration::from_secs(1);
const NEVER: Duration = Duration::from_secs(3600);

/// No limit but those a test sets.
fn patient() -> Limits {
    Limits {
        header_timeout: NEVER,
        idle_timeout: NEVER,
        body_timeout: NEVER,
        write_timeout: NEVER,
        ..Limits::default()
    }
}

#[test]
fn an_idle_connection_is_closed() {
    let server = Server::start(Limits { idle_timeout: SOON, ..patient() });
    server.write("a.txt", "first");
    let mut fresh = server.connect();
    let mut used = server.connect();
    used.send("GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(used.answer().text(), "first");
    assert!(fresh.is_closed() && used.is_closed());
    eventually("no connection is left", || server.front.connections() == 0);
}

/// The last bytes of a large answer leave long after the front has handed them over; then the connection is idle like any other.
#[test]
fn a_connection_that_was_blocked_while_writing_is_idle_afterwards() {
    let server = Server::start(Limits { idle_timeout: SOON, ..patient() });
    let size = 32 << 20;
    server.write("large.bin", vec![7; size]);
    let mut client = server.connect();
    client.send("GET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n");
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(client.answer().body.len(), size);
    assert!(client.is_closed());
}

#[test]
fn a_head_that_trickles_in_is_cut_off() {
    let server = Server::start(Limits { header_timeout: SOON, ..patient() });
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n");
    let start = Instant::now();
    while std::io::Write::write_all(&mut client.stream, b"X: y\r\n").is_ok() {
        assert!(start.elapsed() < PATIENCE, "still listening to a head after {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_body_that_stops_is_cut_off_and_its_request_aborted() {
    let server = Server::start(Limits { body_timeout: SOON, ..patient() });
    server.write("a.php", "");
    let mut client = server.connect();
    client.send("POST /a.php HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab");
    assert!(client.is_closed());
    eventually("the ring is empty", || server.ring.active() == 0);
}

#[test]
fn a_client_that_takes_no_bytes_is_cut_off() {
    let server = Server::start(Limits { write_timeout: SOON, ..patient() });
    server.write("large.bin", vec![7; 64 << 20]);
    let mut client = server.connect();
    client.send("GET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("it is being served", || server.front.connections() == 1);
    eventually("it is cut off", || server.front.connections() == 0);
}

/// No limit of the client's holds while it is we who take long; not even when it has begun to send its next request.
#[test]
fn a_long_request_outlives_the_clients_limits() {
    let limits = Limits {
        header_timeout: SOON,
        idle_timeout: SOON,
        body_timeout: SOON,
        write_timeout: SOON,
        ..patient()
    };
    let server = Server::start(limits);
    server.write("a.php", "");
    let mut plain = server.connect();
    plain.send("GET /a.php HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut hasty = server.connect();
    hasty.send("GET /a.php HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("both wait in the ring", || server.ring.active() == 2);
    hasty.send("GET /a.ph");
    let mut bodied = server.connect();
    bodied.send("POST /a.php HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab");
    assert!(plain.is_quiet_for(4 * SOON));
    assert!(hasty.is_quiet_for(Duration::from_millis(1)), "the connection with a begun request was cut off");
    assert!(bodied.is_quiet_for(Duration::from_millis(1)));
}

#[test]
fn a_client_that_leaves_aborts_its_request_and_is_written_down() {
    let server = Server::plain();
    server.write("a.php", "");
    let mut client = server.connect();
    client.send("GET /a.php HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("it waits in the ring", || server.ring.active() == 1);
    assert_eq!(server.metric("hayate_requests_in_flight"), 1.0);
    client.stream.shutdown(Shutdown::Both).unwrap();
    eventually("the ring is empty", || server.ring.active() == 0);
    eventually("nothing is in flight", || server.metric("hayate_requests_in_flight") == 0.0);
    eventually("a line in the log", || !server.log().is_empty());
    assert_eq!(server.log()[0]["status"], 499);
}

#[test]
fn draining_ends_idle_connections_and_waits_for_busy_ones() {
    let mut server = Server::plain();
    server.write("large.bin", vec![7; 32 << 20]);
    server.write("a.txt", "first");
    let mut idle = server.connect();
    idle.send("GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(idle.answer().text(), "first");
    let mut busy = server.connect();
    busy.send("GET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n");
    let head = busy.head();
    server.begin_stop();
    assert!(idle.is_closed());
    let mut taken = 0;
    let mut block = vec![0; 1 << 20];
    loop {
        match std::io::Read::read(&mut busy.stream, &mut block).unwrap() {
            0 => break,
            n => taken += n,
        }
    }
    // The head's read may have taken the beginning of the body with it.
    let length: usize = head.header("content-length").unwrap().parse().unwrap();
    assert!(taken <= length && taken + 65536 >= length, "{taken} of {length}");
    assert!(server.stop());
}
