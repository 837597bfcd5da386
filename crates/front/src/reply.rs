//! An answer before it is sent: its head, and what its body is made of.

use std::{borrow::Cow, future::poll_fn, io};

use bytes::Bytes;
use hayate_http::{Answer, Exchange, Length};

use crate::{
    account::Account,
    compress::Encoding,
    file_body::FileBody,
    pages,
    promise::Promise,
    relay::Relay,
    request_body::{BodyFailure, Rest},
};

/// See the module's head.
pub(crate) struct Reply {
    pub(crate) answer: Answer,
    pub(crate) body: Body,
    /// The length that the script has said, where that is not plainly the body's.
    pub(crate) promise: Option<Promise>,
    /// The body is encoded on its way: a file, or what a script sends.
    pub(crate) encoding: Option<Encoding>,
    /// Of a 304 for a file: the type and the bytes of what the client has.
    pub(crate) same: Option<(Cow<'static, str>, u64)>,
    /// What its script may still read.
    pub(crate) rest: Option<Box<Rest>>,
    /// The connection cannot go on.
    pub(crate) close: bool,
    /// It is a page of ours that says no more than its status: the site's own may take its place.
    pub(crate) is_page: bool,
}

/// What a body is made of.
pub(crate) enum Body {
    /// There is none, and no word of its length.
    None,
    /// It would have so many bytes, which are not sent.
    Left(u64),
    /// Nobody knows how many bytes it would have; they are not sent.
    Unknown,
    Full(Bytes),
    File(FileBody),
    /// A script that is still answering.
    Script(Box<Relay>),
}

impl Reply {
    /// Boxed: it is large, and goes from hand to hand.
    pub(crate) fn new(answer: Answer, body: Body) -> Box<Reply> {
        Box::new(Reply {
            answer,
            body,
            promise: None,
            encoding: None,
            same: None,
            rest: None,
            close: false,
            is_page: false,
        })
    }

    /// One of our own pages. `detail`: see [`pages::error`].
    pub(crate) fn page(status: u16, detail: Option<&str>) -> Box<Reply> {
        let mut answer = Answer::new(status);
        set(&mut answer, "content-type", "text/html; charset=utf-8");
        let mut reply = Reply::new(answer, Body::Full(pages::error(status, detail)));
        reply.is_page = detail.is_none();
        reply
    }

    /// Why its body was cut off, if that was for the request's.
    pub(crate) fn spoilt(&mut self) -> Option<BodyFailure> {
        match &mut self.body {
            Body::Script(relay) => relay.spoilt(),
            _ => None,
        }
    }

    /// Sends it. When this returns and not all was sent, the client is gone, or the answer broke off: what is not finished is cut.
    pub(crate) async fn send(&mut self, exchange: &mut Exchange<'_>, account: &mut Account) {
        if self.close {
            exchange.close();
        }
        account.status = self.answer.status();
        let said = self.promise.as_ref().filter(|_| self.encoding.is_none());
        let said = said.map(|promise| Length::Exact(promise.said));
        let length = match &self.body {
            Body::None => Length::None,
            Body::Left(len) => Length::Exact(*len),
            Body::Full(bytes) => said.unwrap_or(Length::Exact(bytes.len() as u64)),
            Body::File(_) if self.encoding.is_some() => Length::Unknown,
            Body::File(file) => Length::Exact(file.left()),
            Body::Unknown | Body::Script(_) => said.unwrap_or(Length::Unknown),
        };
        if !exchange.begin(&self.answer, length) {
            account.left();
            return;
        }
        match &mut self.body {
            Body::None | Body::Left(_) | Body::Unknown => {}
            Body::Full(bytes) => {
                let len = bytes.len() as u64;
                exchange.send(std::mem::take(bytes));
                account.sent = exchange.sent();
                if let Some(promise) = &mut self.promise {
                    promise.given(len);
                    promise.ends(len);
                }
            }
            Body::File(file) => {
                while file.left() > 0 {
                    let sent = match &mut self.encoding {
                        None => file.send(exchange).await,
                        Some(encoding) => encode(file, encoding, exchange).await,
                    };
                    account.sent = exchange.sent();
                    // The client sees that something is missing.
                    if sent.is_err() {
                        return;
                    }
                }
                if let Some(encoding) = &mut self.encoding {
                    let Ok(end) = encoding.finish() else { return };
                    exchange.send(end);
                    account.sent = exchange.sent();
                }
            }
            Body::Script(relay) => {
                let encoding = self.encoding.take();
                let whole = relay.run(exchange, account, &mut self.promise, encoding).await;
                account.sent = exchange.sent();
                if !whole {
                    self.rest = relay.rest();
                    return;
                }
            }
        }
        exchange.finish();
    }
}

/// Sends the next block of a file encoded.
async fn encode(file: &mut FileBody, encoding: &mut Encoding, exchange: &mut Exchange<'_>) -> io::Result<()> {
    let block = file.next(exchange).await?;
    encoding.send_block(block, exchange).await.map_err(|_| io::ErrorKind::InvalidData)?;
    poll_fn(|cx| exchange.poll_flush(cx)).await
}

/// Puts a field of our own, whose name and value are constants or come from what was checked.
pub(crate) fn set(answer: &mut Answer, name: &str, value: &str) {
    let _ = answer.set(name.as_bytes(), value.as_bytes());
}
