//! A site's own pages for the errors that Hayate answers with, in place of [`crate::pages`].
//!
//! They are files of the document root, read when they are wanted as any other file of the site: so a deployment brings its own. Rules, `deny`
//! and `hidden_files` do not hold for them. What a script answers is the script's, whatever its status, and no script is run for an error.
//! Whatever goes wrong here, the answer is the page that there would have been without.

use std::collections::BTreeMap;

use hayate_http::Head;

use crate::{
    dynamic::Client,
    files::{self, NoFile},
    reminder::Reminder,
    reply::{Body, Reply},
    route::{self, Named},
    shown::Shown,
    site::Site,
};

/// Bytes of a page at most: it is read at once, and goes out whole.
pub const LARGEST: u64 = files::SMALL as u64;

/// By status.
#[derive(Debug, Default)]
pub struct ErrorPages {
    one: BTreeMap<u16, Page>,
    /// For 4xx and 5xx, where there is none for the one status.
    each: BTreeMap<u16, Page>,
}

#[derive(Debug)]
struct Page {
    /// Below the document root, with a slash before it.
    path: Vec<u8>,
    /// It could not be sent.
    lacking: Reminder,
}

impl ErrorPages {
    /// Reads them as they are configured: `404` or `5xx`, and a path below the document root, whose first slash may be left out. An error: the
    /// status that is wrong with its page, and why.
    pub fn new<'a>(
        given: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<ErrorPages, (&'a str, String)> {
        let mut pages = ErrorPages::default();
        for (status, path) in given {
            let inside = path.trim_start_matches('/').as_bytes();
            if !is_page(inside) {
                let why = format!(
                    "'{path}' is no page: expected a file below the document root, no dotfile and no script, such as /{status}.html"
                );
                return Err((status, why));
            }
            let (of, key) = match (status, status.parse()) {
                ("4xx", _) => (&mut pages.each, 4),
                ("5xx", _) => (&mut pages.each, 5),
                (_, Ok(one @ 400..=599)) if status.len() == 3 => (&mut pages.one, one),
                _ => {
                    let why = format!("'{status}' is no status of an error; write 400 to 599, 4xx or 5xx");
                    return Err((status, why));
                }
            };
            of.insert(key, Page { path: [b"/", inside].concat(), lacking: Reminder::default() });
        }
        Ok(pages)
    }

    fn find(&self, status: u16) -> Option<&Page> {
        self.one.get(&status).or_else(|| self.each.get(&(status / 100)))
    }
}

/// Whether a path, relative to the document root, is such a page's, whatever lies there.
fn is_page(inside: &[u8]) -> bool {
    let odd = |part: &[u8]| part.is_empty() || part.contains(&0);
    !inside.split(|b| *b == b'/').any(odd) && route::is_for_visitors(inside)
}

/// Puts the site's page for its status into an answer of Hayate's own, if it has one.
pub(crate) async fn put(site: &Site, client: &Client<'_>, reply: &mut Reply) {
    let Some(page) = site.error_pages.find(reply.answer.status()).filter(|_| reply.is_page) else { return };
    let file = Named { path: page.path.clone(), opened: None, otherwise: false };
    // It is not what the client has asked for, so neither ranges nor conditions are about it.
    let served = files::serve(&Head::empty(), site, file, client.keep).await;
    let why = match served {
        Ok(sent) => match (sent.answer.get(b"content-type").map(<[u8]>::to_vec), sent.body) {
            (Some(kind), Body::Full(bytes)) => {
                let _ = reply.answer.set(b"content-type", &kind);
                reply.body = Body::Full(bytes);
                return;
            }
            _ => format!("it has more than {LARGEST} bytes, or there is no memory for it"),
        },
        Err(NoFile::Status(404)) => "it is not there".to_owned(),
        Err(NoFile::Status(_)) => "it may not be read".to_owned(),
        Err(NoFile::Hangs(error)) => error.to_string(),
    };
    if let Some(times) = page.lacking.happened() {
        tracing::warn!(
            app = site.name,
            "error_pages: {} below {}: {why}; {times} errors had Hayate's own page in its place",
            Shown(&page.path),
            site.place.path().display()
        );
    }
}
