//! The smallest server: what the engine costs by itself. `cargo run --release --example hello 127.0.0.1:8081`

use std::{cell::RefCell, future::poll_fn, rc::Rc};

use bytes::Bytes;
use hayate_http::{Answer, Clock, Exchange, Handler, Io, Length, Limits, Refusal, h1};
use tokio::{net::TcpListener, task::LocalSet};

struct Hello(RefCell<u64>);

impl Handler for Hello {
    async fn handle(&self, exchange: &mut Exchange<'_>) {
        *self.0.borrow_mut() += 1;
        let mut answer = Answer::new(200);
        let _ = answer.add(b"content-type", b"application/json");
        let _ = answer.add(b"server", b"hayate");
        exchange.begin(&answer, Length::Exact(15));
        exchange.send(Bytes::from_static(b"{\"status\":\"OK\"}"));
        exchange.finish();
    }

    async fn refused(&self, exchange: &mut Exchange<'_>, refusal: Refusal, _: &[u8]) {
        exchange.begin(&Answer::new(refusal.status), Length::Exact(0));
        exchange.finish();
        let _ = poll_fn(|cx| exchange.poll_flush(cx)).await;
    }

    fn unfinished(&self, _: &[u8], _: bool) {}
}

fn main() -> std::io::Result<()> {
    let addr = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8081".into());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        let (listener, limits) = (TcpListener::bind(addr).await?, Rc::new(Limits::default()));
        let hello = Rc::new(Hello(RefCell::new(0)));
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let (hello, limits) = (Rc::clone(&hello), Rc::clone(&limits));
            tokio::task::spawn_local(async move {
                h1::serve(Io::Tcp(stream), &*hello, limits, Rc::new(Clock::default())).await;
            });
        }
    })
}
