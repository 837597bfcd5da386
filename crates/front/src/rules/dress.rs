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
    cache_control: Option<String>,
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
            cache_control: spec.cache_control.clone(),
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.set.is_empty() && self.add.is_empty() && self.cache_control.is_none()
    }

    /// Puts it on. What was checked is not malformed. `private`: the answer is for one visitor, so a path that only looks like a file's lets no
    /// cache keep it for others (`/account/x.css`).
    pub(crate) fn put(&self, answer: &mut Answer, private: bool) {
        self.remove.iter().for_each(|name| answer.remove(name.as_bytes()));
        for (name, value) in &self.set {
            let _ = answer.set(name.as_bytes(), value.as_bytes());
        }
        for (name, value) in &self.add {
            let _ = answer.add(name.as_bytes(), value.as_bytes());
        }
        if let Some(value) =
            self.cache_control.as_ref().filter(|_| !private && KEPT.contains(&answer.status()))
        {
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
            dress.put(&mut answer, false);
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
    fn what_frames_the_answer_is_not_for_rules() {
        for name in ["Content-Length", "Transfer-encoding", "connection", "a b", "", "a\r\nb", "Date"] {
            let headers = HeadersSpec { remove: vec![name.into()], ..HeadersSpec::default() };
            assert!(Dress::new(&RuleSpec { headers, ..RuleSpec::default() }).is_err(), "{name}");
        }
        let headers = HeadersSpec { set: pairs(&[("X", "a\r\nY: b")]), ..HeadersSpec::default() };
        assert!(Dress::new(&RuleSpec { headers, ..RuleSpec::default() }).is_err());
    }
}
