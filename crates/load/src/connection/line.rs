//! A connection that several users have at one time, and where they find it: HTTP/2's and HTTP/3's alike.

use std::rc::Rc;

use tokio::sync::Mutex;

use crate::{failure::Failure, user::Desk};

/// A connection as one of its users holds it.
pub(crate) trait Shared: Clone {
    /// Opens a new one.
    async fn open(desk: &Rc<Desk>) -> Result<Self, Failure>;

    /// Whether it takes new requests.
    fn is_useful(&self) -> bool;
}

/// The connection of the users of one line, if there is one. Whoever finds none opens it, and the others wait for that.
pub(crate) struct Line<S>(Mutex<Option<S>>);

impl<S> Default for Line<S> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<S: Shared> Line<S> {
    /// The line's own connection, new if the last one takes no more requests.
    pub(crate) async fn join(&self, desk: &Rc<Desk>) -> Result<S, Failure> {
        let mut current = self.0.lock().await;
        Ok(match current.as_ref().filter(|shared| shared.is_useful()) {
            Some(shared) => shared.clone(),
            None => current.insert(S::open(desk).await?).clone(),
        })
    }
}
