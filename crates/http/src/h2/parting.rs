//! How a connection of HTTP/2 comes to its end: what its client is told, and how long it has to hear of it.

use std::{pin::Pin, task::Context, time::Duration};

use tokio::time::Sleep;

use crate::closing::Until;

/// How long the client of a connection that ends has to say that it has heard of that: no network is slower. Who never says it would keep the
/// connection, and with it what a reload has taken away.
pub(super) const LAST_CALL: Duration = Duration::from_secs(2);

/// How far it is with the end of a connection that was asked to end.
pub(super) enum Parting {
    /// It was not.
    No,
    /// Its client was told, and may have sent requests before it heard of that: until it answers a PING, for which it has so long.
    Told(Pin<Box<Sleep>>),
    /// That time is over. h2 takes requests until the answer comes, so they are refused here.
    Refusing,
    /// It was told which of its requests were taken.
    Over,
}

impl Parting {
    /// Whether no request is taken any more.
    pub(super) fn refuses(&mut self, cx: &mut Context<'_>) -> bool {
        if let Parting::Told(wait) = self
            && wait.as_mut().poll(cx).is_ready()
        {
            *self = Parting::Refusing;
        }
        matches!(self, Parting::Refusing | Parting::Over)
    }
}

/// How a conversation ended.
pub(super) enum End {
    /// All that is due was written.
    Over(Until),
    /// The client takes nothing any more.
    Late,
    /// The client broke the protocol, or its bounds.
    Broken(String),
}

impl End {
    pub(super) fn of(error: &::h2::Error) -> End {
        // What else h2 fails with is that the socket does, or what the client has against us.
        if error.is_go_away() && error.is_library() {
            End::Broken(error.to_string())
        } else {
            End::Over(Until::Closed)
        }
    }
}
