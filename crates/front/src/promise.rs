//! The length that a script has said its body will have.
//!
//! It promises what nginx does: the client is told that length, and no other. A longer body is cut to it. A shorter one ends with the
//! connection, so that the client sees that something is missing. Both are logged, for they are faults of the application.

use std::{
    io,
    task::{Context, Poll},
};

use bytes::Bytes;

/// Follows one body.
pub(crate) struct Promise {
    said: u64,
    left: u64,
    /// What was sent before the end has had its chance to reach the client.
    flushed: bool,
    app: String,
    request: String,
}

impl Promise {
    /// `said`: bytes. `app` and `request` are for the log.
    pub(crate) fn new(said: u64, app: &str, request: &str) -> Promise {
        Promise { said, left: said, flushed: false, app: app.to_owned(), request: request.to_owned() }
    }

    /// Whether bytes are missing.
    pub(crate) fn is_open(&self) -> bool {
        self.left > 0
    }

    /// What of the body's next frame is sent. An error ends the connection.
    pub(crate) fn keep(
        &mut self,
        frame: Option<io::Result<Bytes>>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Bytes>>> {
        let (app, request, said) = (&self.app, &self.request, self.said);
        Poll::Ready(match frame {
            Some(Ok(mut bytes)) => {
                if bytes.len() as u64 > self.left {
                    tracing::warn!(
                        app,
                        request,
                        "the script sent more than the {said} bytes of its Content-Length; the rest is left out"
                    );
                    bytes.truncate(usize::try_from(self.left).unwrap_or(usize::MAX));
                }
                self.left -= bytes.len() as u64;
                (!bytes.is_empty()).then_some(Ok(bytes))
            }
            None if self.left > 0 => {
                // hyper writes out what it has only when it has to wait.
                if !self.flushed {
                    self.flushed = true;
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                let missing = self.left;
                tracing::error!(
                    app,
                    request,
                    "the script sent {missing} bytes fewer than the {said} of its Content-Length; the connection is cut, so that the \
                     client sees it"
                );
                self.left = 0;
                Some(Err(io::ErrorKind::UnexpectedEof.into()))
            }
            other => other,
        })
    }
}
