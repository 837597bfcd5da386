//! A site for the tests: it answers by what the target asks for, and notes what it saw.

use std::{
    cell::{Cell, RefCell},
    future::{Future, poll_fn},
    io::{self, Write},
    os::fd::AsFd,
    rc::Rc,
    task::Poll,
    time::Duration,
};

use bytes::Bytes;
use hayate_http::{Answer, Exchange, Handler, Length, Refusal};
use tokio::{sync::Notify, task::LocalSet, time::timeout};

/// Answers by what the target asks for, and notes what it saw.
#[derive(Default)]
pub struct Site {
    pub seen: RefCell<Vec<String>>,
    pub held: Cell<usize>,
    /// There is no memory for more of heads; and: there is again.
    pub pressed: Cell<bool>,
    pub relieved: Notify,
    /// How often `/leaves` has looked whether its client is gone.
    pub looks: Cell<usize>,
    /// Answers to `/kept` hold a clone, which goes when they count no more.
    pub kept: Rc<()>,
}

async fn flush(exchange: &mut Exchange<'_>) {
    let _ = poll_fn(|cx| exchange.poll_flush(cx)).await;
}

async fn body(exchange: &mut Exchange<'_>) -> Result<Vec<u8>, String> {
    let mut all = Vec::new();
    loop {
        let n = poll_fn(|cx| {
            exchange.poll_body(cx).map(|piece| {
                piece.map(|piece| {
                    all.extend_from_slice(piece);
                    piece.len()
                })
            })
        });
        match n.await {
            Ok(0) => return Ok(all),
            Ok(n) => exchange.consume(n),
            Err(error) => return Err(format!("{error:?}")),
        }
    }
}

fn begin(exchange: &mut Exchange<'_>, status: u16, length: Length) {
    let mut answer = Answer::new(status);
    answer.add(b"date", b"now").unwrap();
    answer.add(b"x-own-name", b"v").unwrap();
    exchange.begin(&answer, length);
}

async fn send_file(exchange: &mut Exchange<'_>, has: usize, part: u64, length: u64) {
    let file = rustix::fs::memfd_create("file", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    std::fs::File::from(file.try_clone().unwrap()).write_all(&vec![b'f'; has]).unwrap();
    begin(exchange, 200, Length::Exact(length));
    exchange.send(Bytes::from_static(b"<"));
    let (mut at, takes) = (0, exchange.takes_files());
    let sent = poll_fn(|cx| exchange.poll_send_file(cx, file.as_fd(), &mut at, part)).await;
    match sent {
        Ok(()) => exchange.finish(),
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {
            assert!(!takes && at == 0);
            exchange.send(vec![b'f'; has].into());
            exchange.finish();
        }
        Err(error) => assert_eq!((error.kind(), at), (io::ErrorKind::UnexpectedEof, has as u64)),
    }
}

impl Handler for Site {
    async fn handle(&self, exchange: &mut Exchange<'_>) {
        let target = String::from_utf8_lossy(exchange.head().target()).into_owned();
        let cookie = exchange.head().get(b"cookie").map(|c| format!(" {}", String::from_utf8_lossy(c)));
        self.seen.borrow_mut().push(format!("{target}{}", cookie.unwrap_or_default()));
        match &target[..] {
            "/echo" => match body(exchange).await {
                Ok(all) => {
                    begin(exchange, 200, Length::Exact(all.len() as u64));
                    exchange.send(all.into());
                    exchange.finish();
                }
                Err(error) => self.seen.borrow_mut().push(error),
            },
            "/stream" => {
                begin(exchange, 200, Length::Unknown);
                for piece in ["one", "", "two"] {
                    exchange.send(Bytes::from_static(piece.as_bytes()));
                    flush(exchange).await;
                }
                exchange.finish();
            }
            "/large" => {
                begin(exchange, 200, Length::Exact(3_000_000));
                for _ in 0..3 {
                    exchange.send(vec![b'x'; 1_000_000].into());
                    flush(exchange).await;
                }
                exchange.finish();
            }
            // As much of it as h2 takes at one time of one stream.
            "/page" => {
                begin(exchange, 200, Length::Exact(30_000));
                exchange.send(vec![b'p'; 30_000].into());
                exchange.finish();
            }
            "/short" => {
                begin(exchange, 200, Length::Exact(10));
                exchange.send(Bytes::from_static(b"less"));
                exchange.finish();
            }
            "/long" => {
                begin(exchange, 200, Length::Exact(4));
                exchange.send(Bytes::from_static(b"more than that"));
                exchange.finish();
            }
            // The kernel sends so many bytes of a file that has so many, as an answer of so many.
            "/file/3000000/3000000/3000001" => send_file(exchange, 3_000_000, 3_000_000, 3_000_001).await,
            "/file/4/10/11" => send_file(exchange, 4, 10, 11).await,
            "/file/10/10/5" => send_file(exchange, 10, 10, 5).await,
            "/kept" => {
                exchange.keep(Box::new(Rc::clone(&self.kept)));
                begin(exchange, 200, Length::Exact(2));
                exchange.send(Bytes::from_static(b"ok"));
                exchange.finish();
            }
            "/nothing" => {}
            "/leaves_its_body" => {
                let _ = poll_fn(|cx| Poll::Ready(exchange.discard_body(cx))).await;
                begin(exchange, 200, Length::Exact(2));
                exchange.send(Bytes::from_static(b"ok"));
                exchange.finish();
            }
            "/empty" => {
                begin(exchange, 204, Length::Exact(7));
                exchange.send(Bytes::from_static(b"nothing"));
                exchange.finish();
            }
            "/hints" => {
                let mut hints = Answer::new(103);
                hints.add(b"link", b"</a.css>; rel=preload").unwrap();
                exchange.inform(&hints);
                begin(exchange, 200, Length::Exact(0));
                exchange.finish();
            }
            "/gone" | "/leaves" => {
                let patience = Duration::from_secs(if target == "/gone" { 1 } else { 3600 });
                let gone = poll_fn(|cx| {
                    self.looks.set(self.looks.get() + 1);
                    exchange.poll_gone(cx)
                });
                let gone = timeout(patience, gone).await;
                self.seen.borrow_mut().push(if gone.is_ok() { "gone" } else { "stayed" }.into());
                begin(exchange, 200, Length::Exact(2));
                exchange.send(Bytes::from_static(b"ok"));
                exchange.finish();
            }
            _ => {
                begin(exchange, 200, Length::Exact(2));
                exchange.send(Bytes::from_static(b"ok"));
                exchange.finish();
            }
        }
    }

    async fn refused(&self, exchange: &mut Exchange<'_>, refusal: Refusal, head: &[u8]) {
        self.seen.borrow_mut().push(format!("refused {} {}", refusal.reason, head.len()));
        begin(exchange, refusal.status, Length::Exact(1));
        exchange.send(Bytes::from_static(b"!"));
        exchange.finish();
    }

    fn holds(&self, bytes: usize) {
        self.held.set(bytes);
    }

    async fn has_room(&self) {
        while self.pressed.get() {
            self.relieved.notified().await;
        }
    }

    fn unfinished(&self, head: &[u8], late: bool) {
        self.seen.borrow_mut().push(format!("unfinished {} {late}", String::from_utf8_lossy(head)));
    }
}

/// Runs a test on one thread, for ten seconds at most.
pub fn run<F: Future>(test: impl FnOnce() -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let local = LocalSet::new();
    local.block_on(&runtime, async { timeout(Duration::from_secs(60), test()).await.expect("it hangs") });
}
