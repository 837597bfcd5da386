//! HTTP/2 with the client side of the `h2` crate over a real socket pair.

mod support;

use std::{
    cell::Cell,
    future::{Future, poll_fn},
    io,
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use h2::{
    Reason,
    client::{self, ResponseFuture, SendRequest},
};
use hayate_http::{Clock, Io, Limits, h2 as server, seconds};
use http::{HeaderMap, Request, StatusCode};
use support::{Site, run};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf},
    net::UnixStream,
};

struct Client {
    send: SendRequest<Bytes>,
    site: Rc<Site>,
    clock: Rc<Clock>,
}

async fn connect(limits: Limits) -> Client {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (site, clock) = (Rc::new(Site::default()), Rc::new(Clock::default()));
    let (own, own_clock) = (Rc::clone(&site), Rc::clone(&clock));
    tokio::task::spawn_local(async move {
        server::serve(Io::Unix(theirs), own, Rc::new(limits), own_clock).await
    });
    let (send, connection) = client::handshake(ours).await.unwrap();
    tokio::task::spawn_local(async move {
        let _ = connection.await;
    });
    Client { send: send.ready().await.unwrap(), site, clock }
}

fn request(method: &str, target: &str) -> http::request::Builder {
    Request::builder().method(method).uri(format!("https://shop.test{target}"))
}

async fn read(answer: ResponseFuture) -> Result<(StatusCode, HeaderMap, Vec<u8>), h2::Error> {
    let (parts, mut body) = answer.await?.into_parts();
    let mut all = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece?;
        body.flow_control().release_capacity(piece.len())?;
        all.extend_from_slice(&piece);
    }
    Ok((parts.status, parts.headers, all))
}

impl Client {
    async fn get(&mut self, target: &str) -> Result<(StatusCode, HeaderMap, Vec<u8>), h2::Error> {
        let (answer, _) = self.send.send_request(request("GET", target).body(()).unwrap(), true)?;
        read(answer).await
    }
}

#[test]
fn requests_and_answers() {
    run(|| async {
        let mut client = connect(Limits::default()).await;
        let (status, headers, body) = client.get("/a?b").await.unwrap();
        assert_eq!((status.as_u16(), &body[..]), (200, &b"ok"[..]));
        assert_eq!(
            (headers["content-length"].as_bytes(), headers["x-own-name"].as_bytes()),
            (&b"2"[..], &b"v"[..])
        );
        let (_, headers, body) = client.get("/stream").await.unwrap();
        assert!(body == b"onetwo" && !headers.contains_key("transfer-encoding"));
        let (status, headers, body) = client.get("/empty").await.unwrap();
        assert!(status == 204 && body.is_empty() && !headers.contains_key("content-length"));
        let (answer, _) = client.send.send_request(request("HEAD", "/a").body(()).unwrap(), true).unwrap();
        let (_, headers, body) = read(answer).await.unwrap();
        assert!(headers["content-length"] == "2" && body.is_empty());
        assert_eq!(*client.site.seen.borrow(), ["/a?b", "/stream", "/empty", "/a"]);
    });
}

#[test]
fn a_body_goes_up_with_back_pressure_and_comes_down_again() {
    run(|| async {
        let mut client = connect(Limits { window: 65535, ..Limits::default() }).await;
        let (answer, mut up) =
            client.send.send_request(request("POST", "/echo").body(()).unwrap(), false).unwrap();
        let sending = async move {
            for i in 0..30u8 {
                let mut piece = Bytes::from(vec![i; 100_000]);
                while !piece.is_empty() {
                    up.reserve_capacity(piece.len());
                    let n = std::future::poll_fn(|cx| up.poll_capacity(cx)).await.unwrap().unwrap();
                    up.send_data(piece.split_to(n), false).unwrap();
                }
            }
            up.send_data(Bytes::new(), true).unwrap();
        };
        let (_, answer) = tokio::join!(sending, read(answer));
        let (_, _, body) = answer.unwrap();
        assert!(body.len() == 3_000_000 && body[2_999_999] == 29);
    });
}

#[test]
fn streams_are_answered_side_by_side() {
    run(|| async {
        let mut client = connect(Limits::default()).await;
        // This one waits for its client to go.
        let (waiting, mut up) =
            client.send.send_request(request("POST", "/leaves").body(()).unwrap(), false).unwrap();
        let mut answers = Vec::new();
        for _ in 0..20 {
            client.send = client.send.ready().await.unwrap();
            let (answer, _) =
                client.send.send_request(request("GET", "/large").body(()).unwrap(), true).unwrap();
            // Each has a reader of its own: what nobody takes holds up the whole connection.
            answers.push(tokio::task::spawn_local(read(answer)));
        }
        for answer in answers {
            assert_eq!(answer.await.unwrap().unwrap().2.len(), 3_000_000);
        }
        up.send_reset(Reason::CANCEL);
        assert!(waiting.await.is_err());
        while client.site.seen.borrow().last().unwrap() != "gone" {
            tokio::task::yield_now().await;
        }
    });
}

/// A frame without a length of more than a byte.
fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let mut made = vec![0, 0, payload.len() as u8, kind, flags, 0, 0, 0, stream];
    made.extend_from_slice(payload);
    made
}

#[test]
fn a_frame_of_a_few_bytes_does_not_have_all_streams_look() {
    run(|| async {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let (site, clock) = (Rc::new(Site::default()), Rc::new(Clock::default()));
        let own = (Rc::clone(&site), Rc::clone(&clock));
        tokio::task::spawn_local(async move {
            server::serve(Io::Unix(theirs), own.0, Rc::new(Limits::default()), own.1).await
        });
        let mut begin = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        begin.extend(frame(4, 0, 0, b""));
        // POST, https, and two fields that are said in full; a body is to come.
        for stream in (1..100).step_by(2) {
            begin.extend(frame(1, 4, stream, b"\x83\x87\x04\x07/leaves\x01\x01a"));
        }
        ours.write_all(&begin).await.unwrap();
        let moment = || tokio::time::sleep(Duration::from_millis(10));
        while site.looks.get() < 50 {
            moment().await;
        }
        moment().await;
        let before = site.looks.get();
        for _ in 0..20 {
            // A window of the connection that opens by a byte.
            ours.write_all(&frame(8, 0, 0, b"\0\0\0\x01")).await.unwrap();
            moment().await;
        }
        assert!(site.looks.get() - before <= 50, "{} looks for 260 bytes", site.looks.get() - before);
        // What comes of a body counts.
        let held = clock.holding().bytes();
        for _ in 0..200 {
            ours.write_all(&frame(0, 0, 1, &[b'b'; 200])).await.unwrap();
        }
        while clock.holding().bytes() < held + 200 * 200 - (4 << 10) {
            moment().await;
        }
    });
}

#[test]
fn early_hints_come_before_the_answer() {
    run(|| async {
        let mut client = connect(Limits::default()).await;
        let (mut answer, _) =
            client.send.send_request(request("GET", "/hints").body(()).unwrap(), true).unwrap();
        let hints = std::future::poll_fn(|cx| answer.poll_informational(cx)).await.unwrap().unwrap();
        assert_eq!(
            (hints.status().as_u16(), hints.headers()["link"].to_str().unwrap()),
            (103, "</a.css>; rel=preload")
        );
        assert_eq!(read(answer).await.unwrap().0, 200);
    });
}

#[test]
fn an_answer_that_is_not_whole_is_a_reset_stream() {
    run(|| async {
        let mut client = connect(Limits::default()).await;
        for target in ["/nothing", "/short"] {
            let error = client.get(target).await.unwrap_err();
            assert_eq!(error.reason(), Some(Reason::INTERNAL_ERROR), "{target}");
        }
        // The others on this connection go on.
        assert_eq!(client.get("/a").await.unwrap().2, b"ok");
    });
}

#[test]
fn cookies_are_one_and_a_host_that_contradicts_is_refused() {
    run(|| async {
        let mut client = connect(Limits::default()).await;
        let crumbs = request("GET", "/a").header("cookie", "a=1").header("cookie", "b=2");
        let (answer, _) = client.send.send_request(crumbs.body(()).unwrap(), true).unwrap();
        assert_eq!(read(answer).await.unwrap().0, 200);
        assert_eq!(*client.site.seen.borrow(), ["/a a=1; b=2"]);
        for (host, status) in [("shop.test", 200), ("evil.test", 400)] {
            let other = request("GET", "/b").header("host", host);
            let (answer, _) = client.send.send_request(other.body(()).unwrap(), true).unwrap();
            assert_eq!(read(answer).await.unwrap().0, status, "{host}");
        }
        let long = client.get(&format!("/{}", "x".repeat(9000))).await.unwrap();
        assert_eq!(long.0, 414);
    });
}

#[test]
fn a_stream_whose_client_takes_nothing_ends_alone() {
    run(|| async {
        let mut client = connect(Limits::default()).await;
        let (answer, _) = client.send.send_request(request("GET", "/large").body(()).unwrap(), true).unwrap();
        let mut stalled = answer.await.unwrap().into_body();
        // Until the window is full and the server waits.
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(!client.clock.becomes_late(seconds() + 62), "the connection itself is not late");
        let mut end = Ok(());
        while let Some(piece) = stalled.data().await {
            if let Err(error) = piece {
                end = Err(error.reason());
                break;
            }
        }
        assert_eq!(end, Err(Some(Reason::INTERNAL_ERROR)));
        // What it was given and never took counts against the connection's window until then.
        drop(stalled);
        assert_eq!(client.get("/a").await.unwrap().2, b"ok");
    });
}

#[test]
fn a_connection_that_is_asked_to_end_finishes_its_streams() {
    run(|| async {
        let mut client = connect(Limits::default()).await;
        let (answer, mut up) =
            client.send.send_request(request("POST", "/echo").body(()).unwrap(), false).unwrap();
        while client.site.seen.borrow().is_empty() {
            tokio::task::yield_now().await;
        }
        client.clock.ask_to_end();
        tokio::time::sleep(Duration::from_millis(20)).await;
        up.send_data(Bytes::from_static(b"still"), true).unwrap();
        assert_eq!(read(answer).await.unwrap().2, b"still");
        assert!(client.get("/a").await.is_err());
    });
}

/// Answers that the client's smaller window has left with h2, all 30,000 bytes of each; the socket has taken what it was offered.
struct Left {
    answers: Vec<ResponseFuture>,
    clock: Rc<Clock>,
    /// To have the client set this window.
    window: Rc<Cell<Option<u32>>>,
    served: tokio::task::JoinHandle<()>,
    _send: SendRequest<Bytes>,
}

async fn left() -> Left {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (site, clock) = (Rc::new(Site::default()), Rc::new(Clock::default()));
    let own_clock = Rc::clone(&clock);
    let limits = Rc::new(Limits::default());
    let served = tokio::task::spawn_local(async move {
        server::serve(Io::Unix(theirs), site, limits, own_clock).await;
    });
    let mut client = client::Builder::new();
    client.initial_window_size(1 << 20).initial_connection_window_size(1 << 24);
    let (mut send, mut connection) = client.handshake::<_, Bytes>(ours).await.unwrap();
    // More than a socket takes: some of it is with the kernel.
    let mut answers = Vec::new();
    for _ in 0..40 {
        answers.push(send.send_request(request("GET", "/page").body(()).unwrap(), true).unwrap().0);
    }
    // They go, and what comes is not read.
    assert!(poll_fn(|cx| Poll::Ready(pin!(&mut connection).poll(cx).is_pending())).await);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(clock.holding().bytes() > 400_000, "{}", clock.holding().bytes());
    let window = Rc::new(Cell::new(Some(0)));
    let own = Rc::clone(&window);
    tokio::task::spawn_local(async move {
        poll_fn(|cx| {
            if let Some(window) = own.take() {
                // What has come holds the word that the present one is known.
                assert!(pin!(&mut connection).poll(cx).is_pending());
                connection.set_initial_window_size(window).unwrap();
            }
            // Whoever sets another one need not wake this.
            cx.waker().wake_by_ref();
            pin!(&mut connection).poll(cx)
        })
        .await
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    Left { answers, clock, window, served, _send: send }
}

#[test]
fn what_a_smaller_window_leaves_with_h2_counts_and_has_an_end() {
    run(|| async {
        let left = left().await;
        let held = left.clock.holding().bytes();
        assert!(held > 400_000, "{held}: h2 has it still");
        // The last second of the time for a client that takes nothing.
        assert!(!left.clock.becomes_late(seconds() + 58));
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(!left.served.is_finished());
        assert!(!left.clock.becomes_late(seconds() + 62), "the connection itself idles");
        left.served.await.unwrap();
        assert_eq!(left.clock.holding().bytes(), 0);
    });
}

#[test]
fn what_a_smaller_window_left_with_h2_comes_once_it_is_large_again() {
    run(|| async {
        let left = left().await;
        left.window.set(Some(1 << 20));
        for answer in left.answers {
            assert_eq!(read(answer).await.unwrap().2.len(), 30_000);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(left.clock.holding().bytes(), 0);
        assert!(!left.clock.becomes_late(seconds() + 62) && !left.served.is_finished());
    });
}

#[test]
fn a_window_of_a_byte_lets_an_answer_through() {
    run(|| async {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (site, clock) = (Rc::new(Site::default()), Rc::new(Clock::default()));
        let limits = Rc::new(Limits::default());
        tokio::task::spawn_local(async move { server::serve(Io::Unix(theirs), site, limits, clock).await });
        let mut client = client::Builder::new();
        let (mut send, connection) = client.initial_window_size(1).handshake::<_, Bytes>(ours).await.unwrap();
        tokio::task::spawn_local(connection);
        for (target, size) in [("/stream", 6), ("/page", 30_000)] {
            let (answer, _) = send.send_request(request("GET", target).body(()).unwrap(), true).unwrap();
            assert_eq!(read(answer).await.unwrap().2.len(), size);
        }
    });
}

/// A client's socket, of which so many bytes are read and no more.
struct Slow {
    io: UnixStream,
    room: Rc<Cell<usize>>,
    /// Looks whether there is more room.
    again: Pin<Box<tokio::time::Sleep>>,
}

impl AsyncRead for Slow {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // Whoever gives it more room need not wake this.
        self.again.as_mut().reset(tokio::time::Instant::now() + Duration::from_millis(1));
        let _ = self.again.as_mut().poll(cx);
        let room = self.room.get().min(to.remaining());
        if room == 0 {
            return Poll::Pending;
        }
        let mut some = vec![0; room];
        let mut some = ReadBuf::new(&mut some);
        let read = Pin::new(&mut self.io).poll_read(cx, &mut some);
        to.put_slice(some.filled());
        self.room.set(self.room.get() - some.filled().len());
        read
    }
}

impl AsyncWrite for Slow {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, from)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[test]
fn small_answers_beside_a_slow_download_count_until_they_are_written() {
    run(|| async {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (site, clock) = (Rc::new(Site::default()), Rc::new(Clock::default()));
        let (own, own_clock) = (Rc::clone(&site), Rc::clone(&clock));
        // What is ready is always more than the socket takes of it at one time.
        let limits = Rc::new(Limits { send_buffer: 100 << 20, ..Limits::default() });
        tokio::task::spawn_local(async move {
            server::serve(Io::Unix(theirs), own, limits, own_clock).await;
        });
        let room = Rc::new(Cell::new(10_000));
        let again = Box::pin(tokio::time::sleep(Duration::ZERO));
        let ours = Slow { io: ours, room: Rc::clone(&room), again };
        let mut client = client::Builder::new();
        client.initial_window_size(1 << 24).initial_connection_window_size(1 << 25);
        let (mut send, connection) = client.handshake::<_, Bytes>(ours).await.unwrap();
        tokio::task::spawn_local(connection);
        let mut ask = |target| send.send_request(request("GET", target).body(()).unwrap(), true).unwrap().0;
        let large: Vec<_> = (0..4).map(|_| ask("/large")).collect();
        tokio::time::sleep(Duration::from_millis(50)).await;
        let small: Vec<_> = (0..10).map(|_| ask("/kept")).collect();
        tokio::time::sleep(Duration::from_millis(50)).await;
        let kept = || Rc::strong_count(&site.kept) - 1;
        assert_eq!(kept(), 10, "nothing is read");
        let mut read = 0;
        while kept() > 0 {
            assert!(read < 2_000_000, "{} still count, and the download is far from its end", kept());
            room.set(room.get() + 8192);
            read += 8192;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drop((large, small));
    });
}
