//! What a rule does last: it ends the rules, or changes the path for those that follow.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    Around, NO_CONTENT,
    condition::{Condition, Wrong},
    spec::RuleSpec,
    target::Target,
};
use crate::{
    error_pages::ErrorPages,
    site::{Backend, Elsewhere, FileRules, Lately, Site},
};

/// Bytes of an answer that stands in a rule.
const MOST_TEXT: usize = 64 << 10;

/// What ends the rules, or changes the path.
pub(super) enum Then {
    Next,
    Deny(u16),
    Redirect(u16, Target),
    Rewrite(Target),
    Alias(Arc<Site>),
    Respond(u16, Bytes),
}

impl Then {
    pub(super) fn new(
        spec: &RuleSpec,
        when: &Condition,
        around: &Around<'_>,
        prefix: &[u8],
    ) -> Result<Then, Wrong> {
        let target = |key, text: &str, redirect| {
            Target::parse(text, redirect, |group| when.has_group(group)).map_err(|why| (key, why))
        };
        if spec.status.is_some() && spec.redirect.is_none() && spec.respond.is_none() {
            let why = "it belongs to redirect and to respond; write deny = 404 to refuse, or respond = \"\" for an answer without more";
            return Err(("status", why.into()));
        }
        if let Some(text) = &spec.respond {
            let status = spec.status.unwrap_or(200);
            if !matches!(status, 200..=204 | 400..=599) {
                let why = format!("{status} is no status of a whole answer; write 200 to 204 or 400 to 599");
                return Err(("status", why));
            }
            if status == NO_CONTENT && !text.is_empty() {
                return Err((
                    "respond",
                    format!("an answer with {status} has no body; write respond = \"\""),
                ));
            }
            if text.len() > MOST_TEXT {
                let why = format!("{} bytes; {MOST_TEXT} are possible, and a file is for more", text.len());
                return Err(("respond", why));
            }
            return Ok(Then::Respond(status, Bytes::copy_from_slice(text.as_bytes())));
        }
        if let Some(text) = &spec.redirect {
            let status = spec.status.unwrap_or(302);
            if !matches!(status, 301 | 302 | 303 | 307 | 308) {
                return Err(("status", format!("{status} is no redirect; write 301, 302, 303, 307 or 308")));
            }
            return Ok(Then::Redirect(status, target("redirect", text, true)?));
        }
        if let Some(text) = &spec.rewrite {
            return Ok(Then::Rewrite(target("rewrite", text, false)?));
        }
        if let Some(status) = spec.deny {
            return match status {
                400..=599 => Ok(Then::Deny(status)),
                _ => Err(("deny", format!("{status} refuses nothing; write 400 to 599, such as 403 or 404"))),
            };
        }
        let Some(directory) = &spec.alias else { return Ok(Then::Next) };
        let Some(below) = when.prefix().filter(|_| spec.glob.is_empty() && spec.regex.is_empty()) else {
            let why = "it needs one path, whose rest is looked for in the directory, and neither glob nor regex; write path = \"/assets\"";
            return Err(("alias", why.into()));
        };
        // What is closed is closed by its path, whatever would serve it.
        let denied = around.files.denied.iter().filter_map(|denied| beneath(denied, below)).collect();
        let path = [prefix, below].concat();
        let path = if path.is_empty() { "/".into() } else { String::from_utf8_lossy(&path).into_owned() };
        Ok(Then::Alias(Arc::new(Site {
            name: around.app.to_owned(),
            hosts: Vec::new(),
            path,
            place: around.place.beside(directory),
            index: around.index.iter().filter(|name| !name.ends_with(".php")).cloned().collect(),
            front_controller: None,
            sendfile_roots: None,
            // What was found to be sent was below the document root.
            files: Arc::new(FileRules {
                denied,
                elsewhere: Elsewhere::default(),
                ..FileRules::clone(around.files)
            }),
            // That of the site holds.
            compression: None,
            backend: Backend::Static,
            beside: None,
            metrics: Arc::default(),
            found: Lately::default(),
            rules: None,
            // Those of the site hold, where it has any.
            error_pages: ErrorPages::default(),
            access_log: None,
        })))
    }
}

/// A path as it is below another one, empty for all that is there; `None`: they have nothing in common. Both are inside of the site.
fn beneath(path: &str, below: &[u8]) -> Option<String> {
    let parts = |path: &[u8], of: &[u8]| {
        let rest = path.strip_prefix(of)?;
        matches!(rest.first(), None | Some(b'/')).then(|| String::from_utf8_lossy(rest).into_owned())
    };
    parts(path.as_bytes(), below).or_else(|| parts(below, path.as_bytes()).map(|_| String::new()))
}
