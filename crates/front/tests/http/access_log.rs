//! What is written down, when, and what happens when it cannot be.

use std::{
    fs,
    io::Read,
    os::unix::fs::OpenOptionsExt,
    time::{Duration, Instant},
};

use hayate_front::Limits;
use tempfile::TempDir;

use crate::server::{PATIENCE, Server, eventually};

const SOON: Duration = Duration::from_secs(1);

/// Each request has a line as soon as the front has ended, without a second to gather lines.
#[test]
fn the_end_leaves_no_line_behind() {
    let server = Server::plain();
    server.write("a.txt", "first");
    for _ in 0..50 {
        assert_eq!(server.ask("GET /a.txt", "").status, 200);
    }
    assert_eq!(server.log_at_the_end().len(), 50);
}

/// A request that is cut off at the end is one that the client did not get.
#[test]
fn what_is_cut_off_at_the_end_is_written_down() {
    let server = Server::plain();
    server.write("a.php", "");
    let mut client = server.connect();
    client.send("GET /a.php?cut HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("it waits in the ring", || server.ring.active() == 1);
    let log = server.log_at_the_end();
    assert_eq!((log.len(), log[0]["status"].as_u64()), (1, Some(499)));
    assert_eq!(log[0]["target"], "/a.php?cut");
}

#[test]
fn refusals_are_written_down_with_what_could_be_read() {
    let limits =
        Limits { head_size: 2000, header_count: 10, uri_length: 500, body_size: 10, ..Limits::default() };
    let server = Server::start(limits);
    server.write("a.php", "");
    let long = "a".repeat(600);
    let cases = [
        (400, "GET /lf HTTP/1.1\nHost: a\r\n\r\n".to_owned(), "/lf"),
        (400, "GET /nohost HTTP/1.1\r\nUser-Agent: probe\r\n\r\n".into(), "/nohost"),
        (400, "GET /..%2f.. HTTP/1.1\r\nHost: a\r\nUser-Agent: probe\r\n\r\n".into(), "/..%2f.."),
        (404, "GET /nowhere HTTP/1.1\r\nHost: a\r\nUser-Agent: probe\r\n\r\n".into(), "/nowhere"),
        (405, "TRACE /trace HTTP/1.1\r\nHost: a\r\nUser-Agent: probe\r\n\r\n".into(), "/trace"),
        (
            413,
            "POST /a.php HTTP/1.1\r\nHost: a\r\nUser-Agent: probe\r\nContent-Length: 11\r\n\r\n".into(),
            "/a.php",
        ),
        (414, format!("GET /{long} HTTP/1.1\r\nHost: a\r\nUser-Agent: probe\r\n\r\n"), ""),
        (
            431,
            format!(
                "GET /big HTTP/1.1\r\nHost: a\r\nUser-Agent: probe\r\nX: {long}{long}{long}{long}\r\n\r\n"
            ),
            "/big",
        ),
        (431, format!("GET /many HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(20)), "/many"),
        (505, "GET /future HTTP/3.0\r\nHost: a\r\n\r\n".into(), "/future"),
    ];
    for (status, request, _) in &cases {
        let mut client = server.connect();
        client.send(request);
        assert_eq!(client.answer().status, *status, "{request}");
    }
    let log = server.log_at_the_end();
    assert_eq!(log.len(), cases.len());
    for (line, (status, request, target)) in log.iter().zip(&cases) {
        assert_eq!(line["status"], *status, "{request}");
        assert!(line["bytes"].as_u64().unwrap() > 0 && line["remote"] == "127.0.0.1", "{line}");
        if !target.is_empty() {
            assert_eq!(line["target"], *target);
        }
        if request.contains("User-Agent: probe") {
            assert_eq!(line["user_agent"], "probe", "{line}");
        }
    }
}

/// As nginx has it: no answer, and 408 or 400 in the log. A connection that never began a request is not worth a line.
#[test]
fn heads_and_bodies_that_never_end_are_written_down() {
    let limits = Limits { header_timeout: SOON, idle_timeout: SOON, body_timeout: SOON, ..Limits::default() };
    let server = Server::start(limits);
    server.write("a.php", "");
    let (mut silent, mut line, mut head, mut body, mut left) =
        (server.connect(), server.connect(), server.connect(), server.connect(), server.connect());
    line.send("GET /line");
    head.send("GET /head HTTP/1.1\r\nHost: a\r\nUser-Agent: probe\r\nX-Slow: ");
    body.send("POST /a.php?body HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
    left.send("GET /left HTTP/1.1\r\nHost");
    std::thread::sleep(Duration::from_millis(50));
    left.stream.shutdown(std::net::Shutdown::Both).unwrap();
    assert!(silent.is_closed() && line.is_closed() && head.is_closed() && body.is_closed());
    let mut log = server.log_at_the_end();
    log.sort_by_key(|line| line["target"].to_string());
    let got: Vec<_> =
        log.iter().map(|line| (line["target"].as_str().unwrap(), line["status"].as_u64().unwrap())).collect();
    assert_eq!(got, [("/a.php?body", 408), ("/head", 408), ("/left", 400), ("/line", 408)]);
    assert_eq!(log[1]["user_agent"], "probe");
}

/// A pipe that nobody reads: requests are served as fast as ever, what does not fit is lost and counted, and the end waits a while only.
#[test]
fn a_stalled_log_holds_nobody_up() {
    let logs = TempDir::new().unwrap();
    let path = logs.path().join("access.log");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    let nonblock = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let mut reader = fs::OpenOptions::new().read(true).custom_flags(nonblock).open(&path).unwrap();
    let server = Server::start_with_log(Limits::default(), logs);
    server.write("a.txt", "first");
    let mut client = server.connect();
    // Of each of these a line has 2 KB.
    let long = "x".repeat(4000);
    let request = |i: usize| {
        format!("GET /a.txt?{i}{long} HTTP/1.1\r\nHost: a\r\nReferer: {long}\r\nUser-Agent: {long}\r\n\r\n")
    };
    // 4 MiB of lines wait at most.
    for i in 0..1000 {
        client.send(request(i));
        // Who waited for the log would wait for ever.
        assert_eq!(client.answer().status, 200, "request {i}");
    }
    eventually("lost lines are counted", || server.metric("hayate_access_log_lost_total") > 100.0);
    // The reader comes back: what waited arrives, whole lines only.
    let (mut text, mut block) = (Vec::new(), vec![0; 1 << 20]);
    eventually("what waited arrives", || {
        while let Ok(n @ 1..) = reader.read(&mut block) {
            text.extend_from_slice(&block[..n]);
        }
        text.len() > 3 << 20
    });
    assert!(text.split(|b| *b == b'\n').next().unwrap().starts_with(b"{"));
    // And stalls again, at the end.
    for i in 0..100 {
        client.send(request(i));
        client.answer();
    }
    let stopped = Instant::now();
    assert!(server.stop());
    assert!(stopped.elapsed() < PATIENCE);
}
