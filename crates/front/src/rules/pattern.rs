//! Globs and regular expressions for paths, which are any bytes: no byte is outside of what they can match, or it would be a way past them.

use std::collections::HashSet;

use globset::GlobBuilder;
use regex::bytes::{Regex, RegexBuilder};
use regex_automata::{Input, hybrid::dfa::DFA, nfa::thompson, util::syntax};

/// Bytes of memory that one expression may take when it is compiled, and for its cache.
const SIZE: usize = 1 << 20;

/// States of an expression that are looked at before it is left undecided whether it finds anything.
const MOST_STATES: usize = 300;

/// A regular expression, of time linear in what it looks at.
pub(crate) fn regex(text: &str) -> Result<Regex, String> {
    build(RegexBuilder::new(text))
}

/// The same for hosts, which are compared in lower case.
pub(crate) fn regex_of_hosts(text: &str) -> Result<Regex, String> {
    let mut builder = RegexBuilder::new(text);
    builder.case_insensitive(true);
    build(builder)
}

fn build(mut builder: RegexBuilder) -> Result<Regex, String> {
    builder
        // `.` is any byte at all: neither what is no UTF-8 nor a line's end slips by.
        .unicode(false)
        .dot_matches_new_line(true)
        .size_limit(SIZE)
        .dfa_size_limit(SIZE)
        .nest_limit(100)
        .build()
        .map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => "it is too large; write a shorter one".to_owned(),
            // Its first lines draw the place.
            error => {
                let said = error.to_string();
                let last = said.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
                let remedy = match last.starts_with("Unicode") {
                    true => "; paths are compared as bytes, so write (?:ä|ö) in place of [äö]",
                    false => "",
                };
                format!("it is no regular expression: {last}{remedy}")
            }
        })
}

/// Whether an expression may find something in a text that begins so and goes on with such bytes. It does where that would take long to say.
pub(super) fn may_find(text: &str, begins: &[u8], goes_on_with: impl Fn(u8) -> bool) -> bool {
    let syntax = syntax::Config::new().unicode(false).utf8(false).dot_matches_new_line(true).nest_limit(100);
    let nfa = thompson::Config::new().utf8(false).nfa_size_limit(Some(SIZE));
    // It gives up in place of forgetting states.
    let config = DFA::config().cache_capacity(SIZE).minimum_cache_clear_count(Some(0));
    let Ok(dfa) = DFA::builder().configure(config).syntax(syntax).thompson(nfa).build(text) else {
        return true;
    };
    let mut cache = dfa.create_cache();
    let mut finds = || {
        let mut first = dfa.start_state_forward(&mut cache, &Input::new(begins)).ok()?;
        for b in begins {
            first = dfa.next_state(&mut cache, first, *b).ok()?;
        }
        let (mut seen, mut left) = (HashSet::from([first]), vec![first]);
        while let Some(state) = left.pop() {
            if state.is_dead() {
                continue;
            }
            if state.is_match() || dfa.next_eoi_state(&mut cache, state).ok()?.is_match() {
                return Some(true);
            }
            for b in (0..=u8::MAX).filter(|b| goes_on_with(*b)) {
                let next = dfa.next_state(&mut cache, state, b).ok()?;
                if seen.insert(next) {
                    left.push(next);
                }
            }
            if state.is_quit() || seen.len() > MOST_STATES {
                return None;
            }
        }
        Some(false)
    };
    finds().unwrap_or(true)
}

/// The text of a regular expression for a glob: `*` and `?` stay within a component, `**` does not.
pub(crate) fn glob(text: &str) -> Result<String, String> {
    if !text.starts_with('/') {
        return Err(
            "it is for a whole path, and begins with a slash; write such as /files/*.pdf or /**/*.pdf".into(),
        );
    }
    let glob = GlobBuilder::new(text).literal_separator(true).backslash_escape(true).build();
    glob.map(|glob| glob.regex().to_owned()).map_err(|error| format!("it is no glob: {}", error.kind()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn glob_matches(glob_text: &str, path: &[u8]) -> bool {
        regex(&glob(glob_text).unwrap()).unwrap().is_match(path)
    }

    #[test]
    fn globs_know_components() {
        for (text, path, want) in [
            ("/a/*.php", "/a/b.php", true),
            ("/a/*.php", "/a/b/c.php", false),
            ("/a/**/*.php", "/a/b/c.php", true),
            ("/a/**/*.php", "/a/c.php", true),
            ("/a/**", "/a/b/c", true),
            ("/a/**", "/ab", false),
            ("/**/*.{css,js}", "/x.js", true),
            ("/a?c", "/abc", true),
            ("/a?c", "/a/c", false),
            ("/[ab]", "/b", true),
            ("/a.b", "/axb", false),
            ("/a", "/a/", false),
            ("/A", "/a", false),
        ] {
            assert_eq!(glob_matches(text, path.as_bytes()), want, "{text} {path}");
        }
        assert!(glob_matches("/a/*.php", b"/a/\xff\n.php"));
        assert!(glob("a/*").unwrap_err().contains("begins with a slash"));
        assert!(glob("/[a").unwrap_err().starts_with("it is no glob"));
    }

    #[test]
    fn no_byte_slips_by_an_expression() {
        assert!(regex("^/admin/.*$").unwrap().is_match(b"/admin/\xff\n\r"));
        assert!(regex("^/a[^/]$").unwrap().is_match(b"/a\xff"));
        assert!(regex("(a").unwrap_err().starts_with("it is no regular expression: unclosed group"));
        assert!(regex("^/[ä]x$").unwrap_err().ends_with("so write (?:ä|ö) in place of [äö]"));
        assert!(regex("^/(?:ä|ö)x$").unwrap().is_match("/öx".as_bytes()));
        assert!(regex("(?:a{1000}){1000}").unwrap_err().contains("too large"));
    }
}
