//! hyper's HTTP/1.1 client, driven within the task that uses it: no second task, no hand-over between tasks.

use std::{
    cell::Cell,
    error::Error,
    future::{Future, poll_fn},
    io,
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderValue, header};
use http_body::Body as _;
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;

use super::{Answer, Connection, Outcome, Traffic, Transport};
use crate::{failure::Failure, request::Request, user::Desk};

type Driver = http1::Connection<TokioIo<Transport>, Full<Bytes>>;

/// See the module.
pub(crate) struct Hyper {
    sender: http1::SendRequest<Full<Bytes>>,
    /// `None` once it has ended.
    driver: Option<Pin<Box<Driver>>>,
    traffic: Rc<Cell<Traffic>>,
}

/// Polls the connection's own future; an end is remembered, its reason reaches the request's future.
fn poll_driver(driver: &mut Option<Pin<Box<Driver>>>, context: &mut Context<'_>) {
    if driver.as_mut().is_some_and(|driver| driver.as_mut().poll(context).is_ready()) {
        *driver = None;
    }
}

impl Connection for Hyper {
    type Line = ();

    async fn open(desk: &Rc<Desk>, _: &Rc<()>) -> Result<Self, Failure> {
        let transport = Transport::open(desk).await?;
        let traffic = transport.meter();
        let (sender, driver) =
            http1::handshake(TokioIo::new(transport)).await.map_err(|_| Failure::Connect)?;
        Ok(Self { sender, driver: Some(Box::pin(driver)), traffic })
    }

    async fn exchange(
        &mut self,
        request: &Request,
        cookies: Option<&str>,
        answer: &mut Answer,
    ) -> Result<Outcome, Failure> {
        let before = self.traffic();
        let outgoing = outgoing(request, cookies);
        let (sender, driver) = (&mut self.sender, &mut self.driver);
        let result: hyper::Result<()> = {
            let mut exchange = pin!(async {
                let (head, mut body) = sender.send_request(outgoing).await?.into_parts();
                answer.status = head.status.as_u16();
                for (name, value) in &head.headers {
                    answer.header(name.as_str(), value.as_bytes());
                }
                while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
                    if let Some(piece) = frame?.data_ref() {
                        answer.push_body(piece);
                    }
                }
                Ok(())
            });
            poll_fn(|context| {
                // First to hand the request over, then to send it and read, then to see what was read.
                if let Poll::Ready(result) = exchange.as_mut().poll(context) {
                    return Poll::Ready(result);
                }
                poll_driver(driver, context);
                exchange.as_mut().poll(context)
            })
            .await
        };
        result.map_err(|error| failure(&error, (self.traffic() - before).received > 0))?;
        // The end of the body is known before the driver has drawn its conclusions from it (keep the connection, or not).
        poll_fn(|context| {
            poll_driver(&mut self.driver, context);
            Poll::Ready(())
        })
        .await;
        answer.reusable = self.driver.is_some() && self.sender.is_ready();
        Ok(Outcome::Answered)
    }

    fn traffic(&self) -> Traffic {
        self.traffic.get()
    }

    async fn ended(&mut self) {
        poll_fn(|context| {
            poll_driver(&mut self.driver, context);
            if self.driver.is_none() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

fn outgoing(request: &Request, cookies: Option<&str>) -> hyper::Request<Full<Bytes>> {
    let mut outgoing = hyper::Request::new(Full::new(request.body.clone()));
    *outgoing.method_mut() = request.method.clone();
    *outgoing.uri_mut() = request.target.clone();
    for (name, value) in &request.headers {
        outgoing.headers_mut().append(name, value.clone());
    }
    if let Some(Ok(cookies)) = cookies.map(HeaderValue::from_str) {
        outgoing.headers_mut().append(header::COOKIE, cookies);
    }
    outgoing
}

/// hyper's error in our words. `begun`: some of the answer had come.
fn failure(error: &hyper::Error, begun: bool) -> Failure {
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(cause) = cause.downcast_ref::<io::Error>() {
            return match cause.kind() {
                io::ErrorKind::UnexpectedEof if begun => Failure::Incomplete,
                io::ErrorKind::UnexpectedEof => Failure::Closed,
                io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => Failure::Malformed,
                _ => Failure::of_exchange(cause),
            };
        }
        source = cause.source();
    }
    if error.is_parse() {
        Failure::Malformed
    } else if begun {
        Failure::Incomplete
    } else {
        Failure::Closed
    }
}
