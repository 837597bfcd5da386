//! Both HTTP clients come to the same verdict about the same answer: two implementations that share no code are each
//! other's proof.

mod support;

use std::time::Duration;

use hayate_load::{Engine, Expect, Failure, Plan, Report, Requests, Template, Until};
use support::{BOTH, Reply, Server, ok, report};

const ONE: Plan = Plan::Closed { connections: 1, until: Until::Requests(1) };
const THREE: Plan = Plan::Closed { connections: 1, until: Until::Requests(3) };

/// How the only request of a load ended.
fn verdict(report: &Report) -> Result<(), Failure> {
    let errors: Vec<&str> = report.total.errors.keys().map(String::as_str).collect();
    match errors[..] {
        [] => Ok(()),
        [name] => Err(Failure::from_name(name).expect("a kind of failure")),
        _ => panic!("one request, several failures: {errors:?}"),
    }
}

/// Has both engines ask a server that does this.
fn both(reply: impl Fn() -> Reply + Send + Sync + Clone + 'static, expected: Result<(), Failure>) {
    for engine in BOTH {
        let reply = reply.clone();
        let server = Server::start(move |_| reply());
        let mut load = server.load(ONE);
        load.engine = engine;
        // Only who says nothing is not waited for.
        load.timeout = match expected {
            Err(Failure::Timeout) => Duration::from_millis(400),
            _ => Duration::from_secs(60),
        };
        let report = report(load);
        assert_eq!(verdict(&report), expected, "{engine:?}");
    }
}

fn answer(text: &'static str) -> impl Fn() -> Reply + Send + Sync + Clone {
    move || Reply::AnswerAndClose(text.as_bytes().to_vec())
}

#[test]
fn good_answers_are_good() {
    for text in [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\n\r\n",
        "HTTP/1.0 200 OK\r\n\r\nuntil the end",
        "HTTP/1.1 200 OK\r\n\r\nuntil the end",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nTrailer: x\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab",
        "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab",
    ] {
        println!("{text:?}");
        both(answer(text), Ok(()));
    }
}

#[test]
fn bad_answers_are_named() {
    for (text, failure) in [
        ("", Failure::Closed),
        ("HTTP/1.1 200 O", Failure::Incomplete),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n", Failure::Incomplete),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", Failure::Incomplete),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", Failure::Incomplete),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", Failure::Incomplete),
        ("SSH-2.0-OpenSSH_9.2\r\n\r\n", Failure::Malformed),
        ("HTTP/1.1 2x0 OK\r\n\r\n", Failure::Malformed),
        ("HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\nhello", Failure::Malformed),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nhello\r\n0\r\n\r\n", Failure::Malformed),
        ("HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\nno", Failure::Status),
        ("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", Failure::Status),
    ] {
        println!("{text:?}");
        both(answer(text), Err(failure));
    }
}

#[test]
fn resets_silence_and_a_closed_door_are_named() {
    both(
        || Reply::AnswerAndReset(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nx".to_vec()),
        Err(Failure::Reset),
    );
    both(|| Reply::Silence, Err(Failure::Timeout));
    for engine in BOTH {
        let server = Server::start(|_| ok(""));
        let mut load = server.load(ONE);
        load.engine = engine;
        drop(server);
        assert_eq!(verdict(&report(load)), Err(Failure::Refused), "{engine:?}");
    }
}

#[test]
fn an_answer_that_comes_in_pieces_is_one_answer() {
    for engine in BOTH {
        let server = Server::start(|_| {
            let text: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n";
            Reply::Answer(text.chunks(7).map(<[u8]>::to_vec).collect())
        });
        let mut load = server.load(THREE);
        load.engine = engine;
        load.expect.body = Some(Expect::text("hello world"));
        let report = report(load);
        assert_eq!((report.total.ok, report.health.connections_opened), (3, 1), "{engine:?}");
    }
}

#[test]
fn a_body_that_never_ends_in_time_is_a_time_out() {
    for engine in BOTH {
        let server = Server::start(|_| {
            let mut pieces = vec![b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n".to_vec()];
            pieces.extend(vec![b"x".to_vec(); 500]);
            Reply::Answer(pieces)
        });
        let mut load = server.load(ONE);
        load.engine = engine;
        load.timeout = Duration::from_millis(200);
        let report = report(load);
        assert_eq!(verdict(&report), Err(Failure::Timeout), "{engine:?}");
        let took = report.total.latency_ms.max.expect("a time");
        assert!(took >= 199.0, "{engine:?}: {took} ms");
    }
}

#[test]
fn connections_are_kept_or_not_as_the_server_says() {
    const KEPT: &str = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx";
    const OK_CLOSE: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx";
    const OLD: &str = "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx";
    const OLD_KEPT: &str = "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\nx";
    const UNTIL_CLOSE: &str = "HTTP/1.1 200 OK\r\n\r\nx";
    let keep: fn(&str) -> Reply = |text| text.as_bytes().to_vec().into();
    let close: fn(&str) -> Reply = |text| Reply::AnswerAndClose(text.as_bytes().to_vec());
    for (text, reply, connections) in
        [(KEPT, keep, 1), (OK_CLOSE, keep, 3), (UNTIL_CLOSE, close, 3), (OLD, keep, 3), (OLD_KEPT, keep, 1)]
    {
        for engine in BOTH {
            let server = Server::start(move |_| reply(text));
            let mut load = server.load(THREE);
            load.engine = engine;
            let report = report(load);
            let found = (report.total.ok, report.health.connections_opened);
            assert_eq!(found, (3, connections), "{engine:?} {text:?} {:?}", report.total.errors);
        }
    }
}

#[test]
fn heads_have_no_bodies() {
    for engine in BOTH {
        let server = Server::start(|_| b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n".to_vec());
        let template = Template { method: Some(http::Method::HEAD), ..Template::default() };
        let mut load = server.load(THREE);
        load.requests = Requests::to(&server.url("/"), &template).expect("a URL");
        load.engine = engine;
        let report = report(load);
        assert_eq!((report.total.ok, report.health.connections_opened), (3, 1), "{engine:?}");
    }
}

#[test]
fn what_is_sent_is_the_same_to_the_server() {
    let requests = |engine: Engine| {
        let server = Server::start(|seen| {
            let cookie = format!("visit={}; Path=/", seen.turn);
            format!("HTTP/1.1 200 OK\r\nSet-Cookie: {cookie}\r\nContent-Length: 0\r\n\r\n").into_bytes()
        });
        let template = Template {
            method: Some(http::Method::PUT),
            headers: vec![(http::header::ACCEPT, "text/html".parse().expect("a value"))],
            body: "a=1&b=2".into(),
            keep_alive: true,
        };
        let mut load = server.load(THREE);
        load.requests = Requests::to(&server.url("/path?x=y"), &template).expect("a URL");
        load.engine = engine;
        load.cookies = true;
        let sent = report(load).total.bytes_sent;
        let seen: Vec<_> = server
            .seen()
            .iter()
            .map(|seen| {
                let cookie = seen.header("cookie").map(str::to_owned);
                assert_eq!(seen.line(), "PUT /path?x=y");
                assert_eq!(seen.header("accept"), Some("text/html"));
                assert_eq!(seen.header("host"), Some(server.address.to_string().as_str()));
                assert_eq!(seen.body, b"a=1&b=2");
                cookie
            })
            .collect();
        let bytes: usize = server.seen().iter().map(|seen| seen.head.len() + seen.body.len()).sum();
        assert_eq!(sent, bytes as u64, "bytes are counted as they went over the wire");
        seen
    };
    for engine in BOTH {
        let cookies = requests(engine);
        assert_eq!(cookies, [None, Some("visit=0".to_owned()), Some("visit=1".to_owned())], "{engine:?}");
    }
}

#[test]
fn large_bodies_go_both_ways() {
    let body = "0123456789".repeat(200_000);
    for engine in BOTH {
        let server = Server::start(|seen| ok(std::str::from_utf8(&seen.body).expect("text")));
        let template = Template { body: body.clone().into(), ..Template::default() };
        let mut load = server.load(ONE);
        load.requests = Requests::to(&server.url("/"), &template).expect("a URL");
        load.engine = engine;
        load.expect.body = Some(Expect::text("01234567890123456789"));
        let report = report(load);
        assert_eq!(verdict(&report), Ok(()), "{engine:?}");
        assert!(report.total.bytes_sent > 2_000_000 && report.total.bytes_received > 2_000_000);
    }
}
