//! HTTP/1 over a real socket pair: what a client sends, byte by byte where that matters, and every byte that comes back.

mod support;

use std::{rc::Rc, time::Duration};

use hayate_http::{Clock, Io, Limits, Wait, h1, seconds};
use support::{Site, run};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    task::JoinHandle,
};

struct Served {
    client: UnixStream,
    site: Rc<Site>,
    clock: Rc<Clock>,
    task: JoinHandle<()>,
}

fn serve() -> Served {
    let (client, server) = UnixStream::pair().unwrap();
    let (site, clock) = (Rc::new(Site::default()), Rc::new(Clock::default()));
    let limits = Rc::new(Limits { head_size: 4096, ..Limits::default() });
    let (own, own_clock) = (Rc::clone(&site), Rc::clone(&clock));
    let task = tokio::task::spawn_local(async move {
        h1::serve(Io::Unix(server), &*own, limits, own_clock).await;
    });
    Served { client, site, clock, task }
}

/// Sends all, says that it was all, and reads to the end.
async fn exchange(served: &mut Served, input: &[u8]) -> String {
    served.client.write_all(input).await.unwrap();
    served.client.shutdown().await.unwrap();
    let mut answer = Vec::new();
    let _ = served.client.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

const OK: &str =
    "HTTP/1.1 200 OK\r\nDate: now\r\nX-Own-Name: v\r\nServer: hayate\r\nContent-Length: 2\r\n\r\nok";

#[test]
fn requests_follow_each_other_on_one_connection() {
    run(|| async {
        let mut served = serve();
        let input = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\nPOST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET /b HTTP/1.1\r\nHost: a\r\n\r\n";
        let echo = OK.replace("Length: 2\r\n\r\nok", "Length: 3\r\n\r\nabc");
        assert_eq!(exchange(&mut served, input).await, format!("{OK}{echo}{OK}"));
        assert_eq!(*served.site.seen.borrow(), ["/a", "/echo", "/b"]);
    });
}

#[test]
fn who_sends_many_requests_at_one_time_lets_others_have_their_turn() {
    const ALL: usize = 1000;
    run(|| async {
        let mut served = serve();
        served.client.write_all(&b"HEAD /a HTTP/1.1\r\nHost: a\r\n\r\n".repeat(ALL)).await.unwrap();
        let (mut answered, mut most, mut read) = (0, 0, vec![0; 1 << 16]);
        while answered < ALL {
            tokio::task::yield_now().await;
            while served.client.try_read(&mut read).is_ok() {}
            let now = served.site.seen.borrow().len();
            (answered, most) = (now, most.max(now - answered));
        }
        // Each write takes one of the 128 that a task may do before others are asked (tokio::task::coop).
        assert!(most <= 128, "{most} of {ALL} in one turn");
    });
}

#[test]
fn a_request_may_come_byte_by_byte() {
    run(|| async {
        let mut served = serve();
        let input = b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x\r\nde\r\n0\r\n\r\nGET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        for b in input {
            served.client.write_all(&[*b]).await.unwrap();
            tokio::task::yield_now().await;
        }
        let mut answer = Vec::new();
        served.client.read_to_end(&mut answer).await.unwrap();
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.contains("Content-Length: 5\r\n\r\nabcde"), "{answer}");
        assert!(answer.ends_with("Connection: close\r\n\r\nok"), "{answer}");
    });
}

#[test]
fn bodies_of_unknown_length() {
    run(|| async {
        let head = "HTTP/1.1 200 OK\r\nDate: now\r\nX-Own-Name: v\r\nServer: hayate\r\n";
        let chunks = "Transfer-Encoding: chunked\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n";
        assert_eq!(
            exchange(&mut serve(), b"GET /stream HTTP/1.1\r\nHost: a\r\n\r\n").await,
            format!("{head}{chunks}")
        );
        let old = exchange(&mut serve(), b"GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").await;
        assert_eq!(old, format!("{}Connection: close\r\n\r\nonetwo", head.replace("1.1", "1.0")));
        let none = exchange(&mut serve(), b"HEAD /stream HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!(none, format!("{head}\r\n"));
    });
}

#[test]
fn a_head_for_which_there_is_no_memory_waits_with_the_kernel() {
    run(|| async {
        let mut served = serve();
        served.site.pressed.set(true);
        served.client.write_all(b"GET /a HTTP/1.1\r\nHost: a\r\nX: ").await.unwrap();
        while served.site.held.get() == 0 {
            tokio::task::yield_now().await;
        }
        let held = served.site.held.get();
        served.client.write_all(&[b'x'; 3000]).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(served.site.held.get(), held);
        served.site.pressed.set(false);
        served.site.relieved.notify_one();
        assert_eq!(exchange(&mut served, b"\r\n\r\n").await, OK);
        assert_eq!(served.site.held.get(), 0);
    });
}

#[test]
fn answers_without_a_body_have_none() {
    run(|| async {
        let head = exchange(&mut serve(), b"HEAD /a HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!(head, OK.strip_suffix("ok").unwrap());
        let empty = exchange(&mut serve(), b"GET /empty HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!(empty, "HTTP/1.1 204 No Content\r\nDate: now\r\nX-Own-Name: v\r\nServer: hayate\r\n\r\n");
    });
}

#[test]
fn the_kernel_sends_a_file_in_its_place_and_no_more_than_was_promised() {
    run(|| async {
        let two = |target: &str| {
            format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\nGET /a HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes()
        };
        let whole = exchange(&mut serve(), &two("/file/3000000/3000000/3000001")).await;
        let (head, rest) = whole.split_once("\r\n\r\n<").unwrap();
        assert!(head.ends_with("Content-Length: 3000001"), "{head}");
        assert!(rest.strip_suffix(OK).unwrap().bytes().all(|b| b == b'f'));
        assert_eq!(rest.len(), 3_000_000 + OK.len());
        let long = exchange(&mut serve(), &two("/file/10/10/5")).await;
        assert!(long.ends_with(&format!("Content-Length: 5\r\n\r\n<ffff{OK}")), "{long}");
        let short = exchange(&mut serve(), &two("/file/4/10/11")).await;
        assert!(short.ends_with("Content-Length: 11\r\n\r\n<ffff"), "{short}");
        let head = exchange(&mut serve(), b"HEAD /file/10/10/5 HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert!(head.ends_with("Content-Length: 5\r\n\r\n"), "{head}");
    });
}

#[test]
fn an_answer_that_is_not_whole_cuts_the_connection_and_one_too_long_is_cut_itself() {
    run(|| async {
        let two = |target: &str| {
            format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\nGET /a HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes()
        };
        let short = exchange(&mut serve(), &two("/short")).await;
        assert!(short.ends_with("Content-Length: 10\r\n\r\nless"), "{short}");
        assert_eq!(exchange(&mut serve(), &two("/nothing")).await, "");
        let long = exchange(&mut serve(), &two("/long")).await;
        assert!(long.contains("Content-Length: 4\r\n\r\nmoreHTTP/1.1 200 OK"), "{long}");
    });
}

#[test]
fn a_client_that_waits_is_told_to_send_and_none_is_told_that_does_not() {
    run(|| async {
        let mut served = serve();
        let head = b"POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n";
        served.client.write_all(head).await.unwrap();
        let mut answer = [0; 25];
        served.client.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 100 Continue\r\n\r\n");
        assert!(exchange(&mut served, b"hi").await.ends_with("Content-Length: 2\r\n\r\nhi"));
        // Whoever answers without the body ends the connection: the client may send it or not.
        let refused = exchange(
            &mut serve(),
            b"POST /a HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n",
        )
        .await;
        assert!(refused.ends_with("Connection: close\r\n\r\nok") && !refused.contains("100"), "{refused}");
    });
}

#[test]
fn early_hints_come_before_the_answer_and_not_to_clients_of_1_0() {
    run(|| async {
        let hints = exchange(&mut serve(), b"GET /hints HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert!(
            hints.starts_with(
                "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\nHTTP/1.1 200 OK\r\n"
            ),
            "{hints}"
        );
        let old = exchange(&mut serve(), b"GET /hints HTTP/1.0\r\n\r\n").await;
        assert!(old.starts_with("HTTP/1.0 200 OK\r\n"), "{old}");
    });
}

#[test]
fn what_is_no_request_is_answered_and_the_connection_ends() {
    run(|| async {
        let mut served = serve();
        let answer = exchange(
            &mut served,
            b"GET / HTTP/1.1\r\nHost: a\r\nX : y\r\n\r\nGET /a HTTP/1.1\r\nHost: a\r\n\r\n",
        )
        .await;
        assert!(
            answer.starts_with("HTTP/1.1 400 Bad Request\r\n")
                && answer.ends_with("Connection: close\r\n\r\n!"),
            "{answer}"
        );
        assert_eq!(*served.site.seen.borrow(), ["refused a malformed header name 62"]);
        served.task.await.unwrap();
    });
}

#[test]
fn a_malformed_body_is_the_handlers_to_answer() {
    run(|| async {
        let mut served = serve();
        let input = b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n";
        assert_eq!(exchange(&mut served, input).await, "");
        assert!(
            served.site.seen.borrow()[1].contains("a chunk's size is malformed"),
            "{:?}",
            served.site.seen
        );
    });
}

#[test]
fn a_client_that_ends_its_side_is_asked_for_once_and_gets_its_answer() {
    run(|| async {
        let mut served = serve();
        let answer = exchange(&mut served, b"GET /gone HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!(answer, format!("HTTP/1.1 100 Continue\r\n\r\n{OK}"));
        assert_eq!(*served.site.seen.borrow(), ["/gone", "stayed"]);
    });
}

#[test]
fn a_client_that_is_gone_is_noticed() {
    run(|| async {
        let Served { mut client, site, task, .. } = serve();
        client.write_all(b"GET /gone HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        drop(client);
        task.await.unwrap();
        assert_eq!(*site.seen.borrow(), ["/gone", "gone"]);
    });
}

#[test]
fn who_sends_a_head_slowly_holds_little_memory_which_is_told() {
    run(|| async {
        let mut served = serve();
        served.client.write_all(b"GET /a HTTP/1.1\r\nHost: a\r\nX: ").await.unwrap();
        while served.site.held.get() == 0 {
            tokio::task::yield_now().await;
        }
        assert!(served.site.held.get() < 1024, "{}", served.site.held.get());
        assert_eq!(exchange(&mut served, b"y\r\n\r\n").await, OK);
        assert_eq!(served.site.held.get(), 0);
    });
}

#[test]
fn what_comes_early_counts_with_the_block_that_it_is_in() {
    run(|| async {
        let mut served = serve();
        let moment = || tokio::time::sleep(Duration::from_millis(20));
        served.client.write_all(b"GET /leaves HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        moment().await;
        let head = served.clock.holding().bytes();
        served.client.write_all(b"G").await.unwrap();
        moment().await;
        assert!(served.clock.holding().bytes() >= head + (16 << 10), "{}", served.clock.holding().bytes());
    });
}

#[test]
fn a_body_that_nobody_wanted_leaves_nothing_that_counts() {
    run(|| async {
        let mut served = serve();
        let moment = || tokio::time::sleep(Duration::from_millis(20));
        let head = b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0";
        served.client.write_all(head).await.unwrap();
        moment().await;
        assert!(served.clock.holding().bytes() >= 16 << 10, "the line that is not whole");
        served.client.write_all(b"\r\n\r\n").await.unwrap();
        moment().await;
        assert_eq!(served.clock.holding().bytes(), 0);
        assert_eq!(exchange(&mut served, b"GET /b HTTP/1.1\r\nHost: a\r\n\r\n").await, format!("{OK}{OK}"));
    });
}

#[test]
fn an_idle_connection_that_is_asked_to_end_does_so_at_once() {
    run(|| async {
        let mut served = serve();
        served.client.write_all(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        let mut answer = vec![0; OK.len()];
        served.client.read_exact(&mut answer).await.unwrap();
        served.clock.ask_to_end();
        assert_eq!(served.client.read(&mut [0]).await.unwrap(), 0);
    });
}

#[test]
fn heads_that_are_left_unfinished_are_told() {
    run(|| async {
        let mut served = serve();
        assert_eq!(exchange(&mut served, b"GET /a HT").await, "");
        assert_eq!(*served.site.seen.borrow(), ["unfinished GET /a HT false"]);
        // One that takes too long is dropped by whoever looks at the clocks.
        let mut late = serve();
        late.client.write_all(b"GET /b").await.unwrap();
        while late.clock.waits_for() != Wait::Head {
            tokio::task::yield_now().await;
        }
        assert!(late.clock.becomes_late(seconds() + 60));
        late.task.abort();
        assert!(late.task.await.unwrap_err().is_cancelled());
        assert_eq!(*late.site.seen.borrow(), ["unfinished GET /b true"]);
        // An idle connection ends without a word.
        let mut idle = serve();
        assert_eq!(exchange(&mut idle, b"").await, "");
        assert_eq!(idle.site.seen.borrow().len(), 0);
    });
}

#[test]
fn a_large_answer_waits_for_its_reader() {
    run(|| async {
        let mut served = serve();
        served.client.write_all(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\nGET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(served.clock.becomes_late(seconds() + 100), "the client takes nothing");
        let mut answer = Vec::new();
        served.client.read_to_end(&mut answer).await.unwrap();
        let head = OK.strip_suffix("2\r\n\r\nok").unwrap().len() + "3000000\r\n\r\n".len();
        assert!(
            answer[head..].starts_with(&[b'x'; 3_000_000])
                && answer.ends_with(b"Connection: close\r\n\r\nok")
        );
    });
}

#[test]
fn a_body_that_nobody_wants_is_read_and_ends_the_connection_if_it_is_said_to_be_large() {
    const NEXT: &[u8] = b"GET /b HTTP/1.1\r\nHost: a\r\n\r\n";
    run(|| async {
        let head =
            |how: &str| format!("POST /leaves_its_body HTTP/1.1\r\nHost: a\r\n{how}\r\n\r\n").into_bytes();
        let small = [&head("Content-Length: 1000")[..], &b"x".repeat(1000), NEXT].concat();
        assert_eq!(exchange(&mut serve(), &small).await, format!("{OK}{OK}"));
        let large = [&head("Content-Length: 1000000")[..], &b"x".repeat(1_000_000), NEXT].concat();
        let mut served = serve();
        let (mut read, mut write) = served.client.split();
        let mut answer = Vec::new();
        let (sent, got) = tokio::join!(write.write_all(&large), read.read_to_end(&mut answer));
        let _ = (sent, got);
        let last = OK.replace("\r\n\r\nok", "\r\nConnection: close\r\n\r\nok");
        assert_eq!(String::from_utf8_lossy(&answer), last, "it can be read, and there is no second one");
        // How large it is shows only at its end, and the client was told nothing.
        let chunks = [b"8000\r\n", &b"x".repeat(0x8000)[..], b"\r\n"].concat().repeat(40);
        let head = head("Transfer-Encoding: chunked");
        let in_chunks = [&head[..], &chunks, b"0\r\n\r\n", NEXT].concat();
        assert_eq!(exchange(&mut serve(), &in_chunks).await, format!("{OK}{OK}"));
        let mut served = serve();
        served.client.write_all(&[&head[..], &chunks].concat()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(served.clock.waits_for(), Wait::Linger);
        assert!(served.clock.becomes_late(seconds() + 100), "its end is waited for without end");
    });
}

#[test]
fn a_connection_that_is_asked_to_end_says_so() {
    run(|| async {
        let mut served = serve();
        served.client.write_all(b"GET /a").await.unwrap();
        while served.clock.waits_for() != Wait::Head {
            tokio::task::yield_now().await;
        }
        served.clock.ask_to_end();
        let answer =
            exchange(&mut served, b" HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!(answer, OK.replace("\r\n\r\nok", "\r\nConnection: close\r\n\r\nok"));
    });
}
