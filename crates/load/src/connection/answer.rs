//! What is kept of an answer.

/// Most bytes of a body that are kept to be looked at.
const BODY_LIMIT: usize = 64 << 20;

/// One answer; used again for the next, so that it allocates only for what the load asks to see.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// Status code; 0 before the head was read.
    pub(crate) status: u16,
    /// The connection may carry another request.
    pub(crate) reusable: bool,
    /// The body, if `wants_body`.
    pub(crate) body: Vec<u8>,
    /// The values of its Set-Cookie headers, if `wants_cookies`.
    pub(crate) set_cookies: Vec<String>,
    wants_body: bool,
    wants_cookies: bool,
}

impl Answer {
    pub(crate) fn new(wants_body: bool, wants_cookies: bool) -> Self {
        Self { wants_body, wants_cookies, ..Self::default() }
    }

    /// Empties it for the next exchange.
    pub(crate) fn reset(&mut self) {
        (self.status, self.reusable) = (0, false);
        self.body.clear();
        self.set_cookies.clear();
    }

    /// Takes a piece of body.
    pub(crate) fn push_body(&mut self, piece: &[u8]) {
        if self.wants_body {
            let room = BODY_LIMIT - self.body.len();
            self.body.extend_from_slice(&piece[..piece.len().min(room)]);
        }
    }

    /// Takes a header of the answer's head.
    pub(crate) fn header(&mut self, name: &str, value: &[u8]) {
        if self.wants_cookies && name.eq_ignore_ascii_case("set-cookie") {
            self.set_cookies.push(String::from_utf8_lossy(value).into_owned());
        }
    }
}
