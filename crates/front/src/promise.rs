//! The length that a script has said its body will have.
//!
//! The client is told that length, and no other, as nginx does it. A longer body is cut to it, and a shorter one ends with the connection,
//! so that the client sees that something is missing: the engine sees to both. Both are faults of the application, so they are logged here.

/// Follows one body.
pub(crate) struct Promise {
    /// Bytes.
    pub(crate) said: u64,
    app: String,
    request: String,
    warned: bool,
}

impl Promise {
    /// `said`: bytes. `app` and `request` are for the log.
    pub(crate) fn new(said: u64, app: &str, request: &str) -> Promise {
        Promise { said, app: app.to_owned(), request: request.to_owned(), warned: false }
    }

    /// So many bytes were given in all.
    pub(crate) fn given(&mut self, bytes: u64) {
        if bytes > self.said && !std::mem::replace(&mut self.warned, true) {
            tracing::warn!(
                app = self.app,
                request = self.request,
                "the script sent more than the {} bytes of its Content-Length; the rest is left out",
                self.said
            );
        }
    }

    /// The body is over, with so many bytes.
    pub(crate) fn ends(&self, bytes: u64) {
        if let Some(missing @ 1..) = self.said.checked_sub(bytes) {
            tracing::error!(
                app = self.app,
                request = self.request,
                "the script sent {missing} bytes fewer than the {} of its Content-Length; the connection is cut, so that the client sees \
                 it",
                self.said
            );
        }
    }
}
