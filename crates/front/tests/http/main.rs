//! The front from outside: a real [`Front`] on loopback, raw sockets as clients. A library would repair what is being tested.
//!
//! Scripts have no workers here (PHP end to end is the business of the repository's `tests/`), so a request for a script waits in
//! the queue: that is what these tests need to see what the front does while it waits.

mod access_log;
mod connections;
mod files;
mod framing;
mod panics;
mod server;
