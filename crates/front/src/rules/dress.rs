//! What rules do to the headers of an answer.

use hayate_http::Answer;

use super::{
    condition::{Wrong, header_name},
    spec::RuleSpec,
};

/// Headers that frame the message, or belong to the connection: they are the engine's.
const ENGINES: [&str; 10] = [
    "connection",
    "content-length",
    "date",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "www-authenticate",
];

/// Statuses whose answer may be kept by a cache because of a rule, as nginx has it for `expires`. An error page never is.
const KEPT: [u16; 10] = [200, 201, 204, 206, 301, 302, 303, 304, 307, 308];

/// What one rule does.
#[derive(Debug, Default)]
pub(crate) struct Dress {
    remove: Vec<String>,
    set: Vec<(String, String)>,
    add: Vec<(String, String)>,
    cache_control: Option<Caching>,
}

/// Who may keep an answer because of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ForWhom {
    /// Every cache.
    All,
    /// The browser that asked.
    Browsers,
    /// It is what the answer says itself: it is one visitor's.
    Visitor,
}

/// The values of Cache-Control.
#[derive(Debug)]
struct Caching {
    all: String,
    /// Without what is for shared caches.
    browsers: String,
}

impl Caching {
    fn new(all: &str) -> Caching {
        let parts = || all.split(',').map(str::trim);
        let is = |part: &str, names: &[&str]| {
            let name = part.split('=').next().unwrap_or_default().trim_end();
            names.iter().any(|known| name.eq_ignore_ascii_case(known))
        };
        let kept = parts().filter(|part| !is(part, &["public", "s-maxage", "proxy-revalidate"]));
        let private = (!parts().any(|part| is(part, &["private", "no-store"]))).then_some("private");
        Caching {
            all: all.to_owned(),
            browsers: private.into_iter().chain(kept).collect::<Vec<_>>().join(", "),
        }
    }
}

impl Dress {
    pub(crate) fn new(spec: &RuleSpec) -> Result<Dress, Wrong> {
        let name = |name: &String| {
            let lower = header_name(name).map_err(|why| ("headers", why))?;
            match ENGINES.contains(&&*lower) {
                true => Err((
                    "headers",
                    format!("{name} is written by the server, which knows what it has to say; leave it out"),
                )),
                false => Ok(name.clone()),
            }
        };
        let pair = |(given, value): &(String, String)| match is_value(value) {
            true => Ok((name(given)?, value.clone())),
            false => Err(("headers", format!("{given}: the value has control characters; write one line"))),
        };
        if let Some(value) = spec.cache_control.as_ref().filter(|value| value.is_empty() || !is_value(value))
        {
            let why = format!("'{}' is no value; write such as public, max-age=86400", value.escape_debug());
            return Err(("cache_control", why));
        }
        let no_directive = |part: &str| !part.trim_start().starts_with(|c: char| c.is_ascii_alphabetic());
        if let Some(value) = spec.cache_control.as_ref().filter(|value| value.split(',').any(no_directive)) {
            let why = format!(
                "'{value}' is no directive of a cache; write max-age and seconds, such as max-age=2592000"
            );
            return Err(("cache_control", why));
        }
        if spec.headers.remove.iter().any(|name| name.eq_ignore_ascii_case("server")) {
            return Err((
                "headers",
                "every answer has Server; set it to what you like instead of removing it".into(),
            ));
        }
        Ok(Dress {
            remove: spec.headers.remove.iter().map(name).collect::<Result<_, _>>()?,
            set: spec.headers.set.iter().map(pair).collect::<Result<_, _>>()?,
            add: spec.headers.add.iter().map(pair).collect::<Result<_, _>>()?,
            cache_control: spec.cache_control.as_deref().map(Caching::new),
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.set.is_empty() && self.add.is_empty() && self.cache_control.is_none()
    }

    /// Puts it on. What was checked is not malformed. A path that only looks like a file's lets no cache keep for others what is one visitor's
    /// (`/account/x.css`).
    pub(crate) fn put(&self, answer: &mut Answer, for_whom: ForWhom) {
        self.remove.iter().for_each(|name| answer.remove(name.as_bytes()));
        for (name, value) in &self.set {
            let _ = answer.set(name.as_bytes(), value.as_bytes());
        }
        for (name, value) in &self.add {
            let _ = answer.add(name.as_bytes(), value.as_bytes());
        }
        let value = self.cache_control.as_ref().filter(|_| KEPT.contains(&answer.status()));
        let value = value.and_then(|caching| match for_whom {
            ForWhom::All => Some(&caching.all),
            ForWhom::Browsers => Some(&caching.browsers),
            ForWhom::Visitor => None,
        });
        if let Some(value) = value {
            answer.remove(b"expires");
            answer.remove(b"pragma");
            let _ = answer.set(b"Cache-Control", value.as_bytes());
        }
    }
}

fn is_value(value: &str) -> bool {
    value.bytes().all(|b| b == b'\t' || (b >= b' ' && b != 0x7f))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::spec::HeadersSpec;

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn headers_are_removed_set_and_added() {
        let spec = RuleSpec {
            headers: HeadersSpec {
                set: pairs(&[("X-A", "1")]),
                add: pairs(&[("X-B", "2")]),
                remove: vec!["X-Powered-By".into()],
            },
            cache_control: Some("no-store".into()),
            ..RuleSpec::default()
        };
        let dress = Dress::new(&spec).unwrap();
        let put = |status: u16| {
            let mut answer = Answer::new(status);
            for (name, value) in
                [("x-a", "0"), ("X-A", "9"), ("X-B", "0"), ("X-Powered-By", "x"), ("Expires", "0")]
            {
                answer.add(name.as_bytes(), value.as_bytes()).unwrap();
            }
            dress.put(&mut answer, ForWhom::All);
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            answer.fields().map(|(name, value)| (text(name), text(value))).collect::<Vec<_>>()
        };
        assert_eq!(
            put(200),
            pairs(&[("X-B", "0"), ("X-A", "1"), ("X-B", "2"), ("Cache-Control", "no-store")])
        );
        assert_eq!(put(404), pairs(&[("X-B", "0"), ("Expires", "0"), ("X-A", "1"), ("X-B", "2")]));
    }

    #[test]
    fn what_not_everybody_gets_is_for_no_shared_cache() {
        for (given, browsers) in [
            ("public, max-age=31536000, immutable", "private, max-age=31536000, immutable"),
            ("PUBLIC,s-maxage = 60, max-age=5", "private, max-age=5"),
            ("private, max-age=5", "private, max-age=5"),
            ("no-store", "no-store"),
            ("public", "private"),
        ] {
            assert_eq!(Caching::new(given).browsers, browsers);
            let dress =
                Dress::new(&RuleSpec { cache_control: Some(given.into()), ..RuleSpec::default() }).unwrap();
            for (for_whom, want) in
                [(ForWhom::All, Some(given)), (ForWhom::Browsers, Some(browsers)), (ForWhom::Visitor, None)]
            {
                let mut answer = Answer::new(200);
                dress.put(&mut answer, for_whom);
                assert_eq!(answer.get(b"cache-control"), want.map(str::as_bytes), "{given}");
            }
        }
    }

    #[test]
    fn what_frames_the_answer_is_not_for_rules() {
        for name in ["Content-Length", "Transfer-encoding", "connection", "a b", "", "a\r\nb", "Date"] {
            let headers = HeadersSpec { remove: vec![name.into()], ..HeadersSpec::default() };
            assert!(Dress::new(&RuleSpec { headers, ..RuleSpec::default() }).is_err(), "{name}");
        }
        let headers = HeadersSpec { set: pairs(&[("X", "a\r\nY: b")]), ..HeadersSpec::default() };
        assert!(Dress::new(&RuleSpec { headers, ..RuleSpec::default() }).is_err());
    }
}
