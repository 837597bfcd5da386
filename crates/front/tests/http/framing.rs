//! What the front takes for a request, and what a client sees whose request is refused.

use hayate_front::Limits;

use crate::server::{Server, eventually};

#[test]
fn requests_may_be_pipelined_and_split_anywhere() {
    let server = Server::plain();
    server.write("a.txt", "first");
    server.write("b.txt", "second");
    let both = b"GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\nGET /b.txt HTTP/1.1\r\nHost: a\r\n\r\n";
    for cut in 0..both.len() {
        let mut client = server.connect();
        client.stream.set_nodelay(true).unwrap();
        client.send(&both[..cut]);
        std::thread::sleep(std::time::Duration::from_millis(1));
        client.send(&both[cut..]);
        assert_eq!(client.answer().text(), "first", "cut at {cut}");
        assert_eq!(client.answer().text(), "second", "cut at {cut}");
    }
}

#[test]
fn a_refused_request_is_answered_after_those_before_it_and_closes() {
    let server = Server::plain();
    server.write("a.txt", "first");
    let mut client = server.connect();
    client.send("GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\nGET /a.txt HTTP/1.1\nHost: a\r\n\r\nGET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.answer().text(), "first");
    let refused = client.answer();
    assert_eq!((refused.status, refused.header("connection")), (400, Some("close")));
    assert!(client.is_closed());
    assert_eq!(server.metric("hayate_requests_refused_total"), 1.0);
}

#[test]
fn each_refusal_has_its_status_and_says_nothing_of_the_server() {
    let server =
        Server::start(Limits { head_size: 2000, header_count: 10, uri_length: 500, ..Limits::default() });
    for (status, request) in [
        (400, "GET / HTTP/1.1\nHost: a\r\n\r\n".to_owned()),
        (400, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n".into()),
        (414, format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(600))),
        (431, format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "a".repeat(3000))),
        (431, format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(20))),
        (505, "GET / HTTP/3.0\r\nHost: a\r\n\r\n".into()),
    ] {
        let mut client = server.connect();
        client.send(&request);
        let answer = client.answer();
        assert_eq!(answer.status, status, "{request}");
        assert_eq!(answer.header("server"), Some("hayate"));
        assert!(!answer.text().contains(server.path().to_str().unwrap()));
        assert!(client.is_closed());
    }
}

/// A script's chunked body that breaks the framing, at each of its places: 400 and an end, at once.
#[test]
fn a_body_that_breaks_the_framing_is_refused_at_once() {
    let server = Server::plain();
    server.write("a.php", "");
    for wrong in [
        "xyz\r\n",
        "3\nabc",
        "3\r\nabcdef\r\n",
        "3;ext\nabc\r\n",
        "3;e\rxt\r\nabc\r\n",
        "0\r\nbad trailer\r\n\r\n",
        "0\r\nT: v\n\r\n",
        "3\r\nabc\r\nfffffffffffffffff\r\n",
    ] {
        for pieces in [1, wrong.len()] {
            let mut client = server.connect();
            client.stream.set_nodelay(true).unwrap();
            client.send("POST /a.php HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
            for piece in wrong.as_bytes().chunks(wrong.len() / pieces) {
                std::thread::sleep(std::time::Duration::from_millis(2));
                // The server may have closed already.
                let _ = std::io::Write::write_all(&mut client.stream, piece);
            }
            let answer = client.answer();
            assert_eq!((answer.status, answer.header("connection")), (400, Some("close")), "{wrong:?}");
            assert!(client.is_closed());
        }
    }
    eventually("the ring is empty", || server.ring.active() == 0);
}

#[test]
fn a_body_above_the_limit_is_refused_and_the_client_can_read_why() {
    let server = Server::start(Limits { body_size: 10_000, ..Limits::default() });
    server.write("a.php", "");
    // Far more than the sockets' buffers hold: the client has to be listened to while it is refused.
    let body = vec![b'x'; 100 << 20];
    let mut declared = server.connect();
    declared.send(format!("POST /a.php HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len()));
    // A client that reads only when it has sent everything, and is told nonetheless.
    declared.send(&body);
    assert_eq!(declared.answer().status, 413);
    assert!(declared.is_closed());

    let mut chunked = server.connect();
    chunked.send("POST /a.php HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    for _ in 0..6 {
        let _ = std::io::Write::write_all(
            &mut chunked.stream,
            format!("800\r\n{}\r\n", "x".repeat(0x800)).as_bytes(),
        );
    }
    assert_eq!(chunked.answer().status, 413);
    // No worker was asked for a body that was not whole.
    assert_eq!(server.ring.active(), 0);
}

/// A file takes no body, so its answer is there before the body is.
#[test]
fn an_answer_before_the_end_of_the_body_reaches_the_client() {
    let server = Server::plain();
    server.write("a.txt", "first");
    let mut client = server.connect();
    client.send(format!("POST /a.txt HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", 64 << 20));
    client.send(vec![b'x'; 64 << 20]);
    assert_eq!(client.answer().status, 405);
}

#[test]
fn any_visible_byte_may_be_in_a_target() {
    let server = Server::plain();
    server.write("a<b>\"c\"`.txt", "odd");
    server.write("a.txt", "plain");
    let mut client = server.connect();
    for (target, text) in [
        ("/a<b>\"c\"`.txt", "odd"),
        ("/a.txt?<>\"`^|{}", "plain"),
        ("/a%3Cb%3E%22c%22%60.txt", "odd"),
        ("/a.txt#fragment?x", "plain"),
        ("http://h.test/a.txt?<b>", "plain"),
        ("/a.txt", "plain"),
    ] {
        client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(client.answer().text(), text, "{target}");
    }
    // Pipelined, each gets its own.
    client.send("GET /a.txt?\" HTTP/1.1\r\nHost: a\r\n\r\nGET /a.txt HTTP/1.1\r\nHost: a\r\n\r\nGET /a<b>\"c\"`.txt HTTP/1.1\r\nHost: a\r\n\r\n");
    let texts = [0; 3].map(|_| client.answer().text().to_owned());
    assert_eq!(texts, ["plain", "plain", "odd"]);
    let targets: Vec<_> =
        server.log_at_the_end().iter().map(|line| line["target"].as_str().unwrap().to_owned()).collect();
    assert_eq!(targets[..2], ["/a<b>\"c\"`.txt", "/a.txt?<>\"`^|{}"]);
    assert_eq!(targets[6..], ["/a.txt?\"", "/a.txt", "/a<b>\"c\"`.txt"]);
}

/// Whatever is odd about a target, its refusal has a page and a line in the log.
#[test]
fn every_refusal_has_a_page() {
    let server = Server::plain();
    for request in [
        &b"GET http://h\xff/ HTTP/1.1\r\nHost: a\r\n\r\n"[..],
        b"GET http://[::1/ HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET ?a HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET foo HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET http:// HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET * HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551615\r\n\r\n",
    ] {
        let mut client = server.connect();
        client.send(request);
        let answer = client.answer();
        assert_eq!((answer.status, answer.header("server")), (400, Some("hayate")), "{request:?}");
        assert!(answer.text().contains("400 Bad Request"));
    }
    assert_eq!(server.log_at_the_end().len(), 7);
}

#[test]
fn http_1_0_closes_unless_asked_and_expect_is_not_answered_without_need() {
    let server = Server::plain();
    server.write("a.txt", "first");
    let mut client = server.connect();
    client.send("GET /a.txt HTTP/1.0\r\n\r\n");
    assert_eq!(client.answer().text(), "first");
    assert!(client.is_closed());

    let mut client = server.connect();
    client.send("GET /a.txt HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_eq!(client.answer().header("connection"), Some("keep-alive"));
    client.send("GET /a.txt HTTP/1.0\r\n\r\n");
    assert_eq!(client.answer().text(), "first");

    // A file takes no body: the client hears that before it sends one.
    let mut client = server.connect();
    client.send("POST /a.txt HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    assert_eq!(client.answer().status, 405);
    // A script may want it.
    server.write("a.php", "");
    let mut client = server.connect();
    client.send("POST /a.php HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    assert_eq!(client.head().status, 100);
}
