//! What a request is for, where it was configured anew while its body came or it waited for a slot.
//!
//! It promises that no script runs in another release than its own, nor for another customer, and that what closes a page from now on closes it
//! for those as well who asked before. So the request is judged once more, from the beginning, as if it came now; it is not counted again.
//! Headers that rules put on answers are those of when it came.

use std::sync::Arc;

use hayate_http::Exchange;

use crate::{
    dynamic::{Client, NoAnswer, no_answer},
    reply::Reply,
    route::{Found, Script},
    rules::Dresses,
    site::Site,
    target::Target,
    thread::Held,
    way::{self, Destination, Ruled, Way},
};

/// What has become of it.
pub(crate) enum Anew {
    Script(Moved),
    /// What answers is closed, or has moved away, for this client at least.
    Answer(Box<Reply>),
}

/// The script that answers now.
pub(crate) struct Moved {
    pub(crate) site: Arc<Site>,
    pub(crate) script: Arc<Script>,
    ruled: Option<Ruled>,
    max_body: u64,
}

impl Moved {
    /// The request as the rules have it now.
    pub(crate) fn client<'a>(&'a self, before: &Client<'a>) -> Client<'a> {
        let asked = Client { max_body: self.max_body, ..as_asked(before) };
        self.ruled.as_ref().map_or(asked, |ruled| ruled.client(&asked))
    }
}

/// The request as it came. Rules that hold no more may have changed its path, its query and its time.
fn as_asked<'a>(client: &Client<'a>) -> Client<'a> {
    let query = Target::parse(client.target.whole).ok().and_then(|target| target.query);
    let target = Target { query, ..client.target };
    Client { path: client.asked, target, timeout: None, counted: true, ..*client }
}

/// Finds it by what is configured `now`.
pub(crate) async fn routed(
    client: &Client<'_>,
    exchange: &mut Exchange<'_>,
    now: &Held,
) -> Result<Anew, NoAnswer> {
    let gone = || {
        no_answer(
            503,
            "what answered here is not configured any more; it was taken away while this request came",
        )
    };
    let site = now.routes.pick(client.name, client.asked).ok_or_else(gone)?;
    let max_body = now.settings.limits.body_size;
    match way::find(site, &as_asked(client), exchange, &mut Dresses::default()).await? {
        Way::Answer(reply) => Ok(Anew::Answer(reply)),
        Way::To(Destination { site, found: Found::Script(script), ruled }) => {
            Ok(Anew::Script(Moved { site: Arc::clone(site), script, ruled, max_body }))
        }
        Way::To(_) => Err(gone()),
    }
}
