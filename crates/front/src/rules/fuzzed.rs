//! Rules against bytes that nobody would write, and paths that nobody would ask for; see hayate-fuzz.

use hayate_fuzz::Random;
use hayate_http::Answer;

use super::{
    condition::{Asked, Condition, Stopped},
    has_dots,
    reading::{BehindHost, Kind, Readings, Scripts},
    spec::RuleSpec,
    target::{Given, Target},
    users::Users,
};
use crate::{route, rules::Hidden};

const REGEXES: [&str; 4] = ["^/(.*)$", "(?P<name>[^/]*)/?$", "(?i)admin", "^/a(/|$)"];

/// One input: half of it is configuration, half a request.
pub(crate) fn one(random: &mut Random, input: &[u8]) {
    let (configured, asked) = input.split_at(random.below(input.len() + 1));
    let text = String::from_utf8_lossy(configured).into_owned();
    let _ = Users::parse(&text);
    let hidden = Hidden::new(&[&text]).unwrap_or_default();
    let path = [b"/", asked].concat();
    if let Some(normal) = route::normalise(&path) {
        let decoded: Vec<u8> = percent_encoding::percent_decode(&path).collect();
        let steps = decoded.split(|b| *b == b'/').any(|part| matches!(part, b"." | b".."));
        assert_eq!(has_dots(&path), steps, "{}", path.escape_ascii());
        let _ = hidden.hides(&normal);
        evaluate(random, text, &normal);
    }
}

/// Whether a rule that restricts what lies below `prefix` concerns a path, which was normalised, of an application with a front controller.
pub(crate) fn is_below(path: &[u8], prefix: &str) -> bool {
    let spec = RuleSpec { path: vec![prefix.to_owned()], ..RuleSpec::default() };
    let known = Scripts::new(Some("index.php"));
    let behind = BehindHost::default();
    // What has too many readings is refused.
    let Some(readings) = Readings::new(path, &behind, &known) else { return true };
    let when = Condition::new(&spec).unwrap_or_else(|(key, why)| panic!("{key}: {why}"));
    when.fit(&Asked { method: b"GET", client: None, addr: None }, &readings, Stopped::default()).some
}

fn evaluate(random: &mut Random, text: String, path: &[u8]) {
    let known = Scripts::new(Some("index.php"));
    let behind = BehindHost::new(path, b"", &known);
    let Some(readings) = Readings::new(path, &behind, &known) else { return };
    let mut all = readings.all();
    assert!(all.next().is_some_and(|first| first.kind == Kind::Asked && first.path == path));
    assert!(all.all(|reading| reading.path.first() == Some(&b'/')));
    let mut spec = RuleSpec { regex: vec![random.pick(&REGEXES).to_string()], ..RuleSpec::default() };
    match random.below(6) {
        0 => spec.regex = vec![text.clone()],
        1 => spec.glob = vec![text.clone()],
        2 => spec.path = vec![text.clone()],
        3 => spec.header = vec![(text.clone(), text.clone())],
        4 => spec.method = vec![text.clone()],
        _ => {}
    }
    let Ok(when) = Condition::new(&spec) else { return };
    let fit = when.fit(&Asked { method: b"GET", client: None, addr: None }, &readings, Stopped::default());
    assert!(fit.some || (!fit.every && fit.asked.is_none()));
    let Some(found) = &fit.asked else { return };
    let query = random.below(2) == 0;
    let given = found.given(
        query.then_some(b"q=1"),
        (b"/asked", Some(b"q=1")),
        "a.test",
        random.pick(&[&b""[..], b"/blog"]),
    );
    check_target(&text, &when, &given);
}

fn check_target(text: &str, when: &Condition, given: &Given<'_>) {
    for text in [text, "/new/$1", "$path", "https://b.test$path?$0", "https://b.test$request_uri", "/$0$0"] {
        let Ok(target) = Target::parse(text, true, |group| when.has_group(group)) else { continue };
        let location = target.location(given);
        let said = location.escape_ascii();
        let mut answer = Answer::new(302);
        assert!(answer.add(b"location", &location).is_ok(), "{said}");
        let local =
            location.starts_with(b"/") && !location.starts_with(b"//") && !location.starts_with(b"/\\");
        assert!(local || location.starts_with(b"http://") || location.starts_with(b"https://"), "{said}");
        if let Some(inner) = target.rewritten(given) {
            assert!(inner.0.starts_with(b"/") && !inner.0.contains(&0), "{said}");
        }
    }
}

#[test]
fn an_expression_takes_linear_time() {
    // What would take an engine with backtracking until the end of the world.
    let regex = super::pattern::regex("^/(a+)+$").unwrap();
    assert!(!regex.is_match(&[&b"/"[..], &vec![b'a'; 60_000], b"!"].concat()));
}
