//! Settings of php.ini, as PHP's own parser reads them (`Zend/zend_ini_scanner.l`, `zend_ini_parser.y`).
//!
//! All settings of an application are one text for PHP, and behind a syntax error PHP reads nothing more of it. So a value is written in a way
//! that cannot be one: as it is, where PHP is meant to evaluate it (a word, such as `On` or `E_ALL`; an expression of levels of errors), else in
//! quotes that take everything literally.

/// Expressions may be nested that deep, and be as long: PHP's parser has an end as well.
const DEPTH: usize = 16;
const LONGEST: usize = 500;

/// Words that PHP's parser takes for values wherever they stand.
const VALUES: [&str; 8] = ["true", "on", "yes", "false", "off", "no", "none", "null"];

/// Whether a setting can have this name, `extension` and `a.b[c]` included.
pub fn is_name(name: &str) -> bool {
    let (name, index) = match name.split_once('[') {
        None => (name, None),
        Some((name, rest)) => (name, Some(rest)),
    };
    let plain = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b));
    !name.is_empty()
        && plain(name)
        && !is_value(name)
        && index.is_none_or(|rest| rest.strip_suffix(']').is_some_and(plain))
}

/// A line of the text, without its end.
pub(crate) fn line(name: &str, value: &str) -> String {
    format!("{name}={}", written(value))
}

fn written(value: &str) -> String {
    // Blanks around what PHP evaluates are nobody's wish; around a text they may be.
    let trimmed = value.trim_matches([' ', '\t', '\n', '\r']);
    if is_value(trimmed) || is_expression(trimmed) {
        return trimmed.to_owned();
    }
    let inner = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    // Somebody has written it for PHP's parser already, as for `php -d`.
    if is_word(value) || inner.is_some_and(|inner| !inner.contains(['"', '\\', '\n', '$'])) {
        return value.to_owned();
    }
    // Between apostrophes everything stands for itself, but an apostrophe. What stands side by side is one value.
    let mut out = String::new();
    for (i, part) in value.split('\'').enumerate() {
        if i > 0 {
            out += "\"'\"";
        }
        if !part.is_empty() {
            out += &format!("'{part}'");
        }
    }
    out
}

/// Or nothing. PHP knows constants, and takes other words for themselves.
fn is_word(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

fn is_value(text: &str) -> bool {
    VALUES.iter().any(|value| value.eq_ignore_ascii_case(text))
}

/// Whether it is an expression of levels of errors and numbers, complete. Other words are no operands: they may be a name
/// or a password with one of these signs in it, and `On`, `no` and the like are none for PHP.
fn is_expression(text: &str) -> bool {
    let mut rest = text.as_bytes();
    text.len() <= LONGEST && operand(&mut rest, 0).is_some() && rest.is_empty()
}

fn trim(text: &[u8]) -> &[u8] {
    let blanks = text.iter().take_while(|b| matches!(b, b' ' | b'\t')).count();
    text.get(blanks..).unwrap_or_default()
}

/// Takes one operand with all that follows it by operators. `None`: there is something else.
fn operand(rest: &mut &[u8], depth: usize) -> Option<()> {
    if depth > DEPTH {
        return None;
    }
    loop {
        while let Some(after) = rest.strip_prefix(b"~").or_else(|| rest.strip_prefix(b"!")) {
            *rest = trim(after);
        }
        match rest.strip_prefix(b"(") {
            Some(after) => {
                *rest = trim(after);
                operand(rest, depth.saturating_add(1))?;
                *rest = trim(rest.strip_prefix(b")")?);
            }
            None => {
                let len = rest.iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count();
                let (word, after) = rest.split_at_checked(len)?;
                let is_level = word.strip_prefix(b"E_").is_some_and(|level| {
                    !level.is_empty() && level.iter().all(|b| b.is_ascii_uppercase() || *b == b'_')
                });
                let is_number = !word.is_empty() && word.iter().all(u8::is_ascii_digit);
                if !is_level && !is_number {
                    return None;
                }
                *rest = trim(after);
            }
        }
        match rest.first() {
            Some(b'|' | b'&' | b'^') => *rest = trim(rest.get(1..)?),
            _ => return Some(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_php_evaluates_stays_as_it_is() {
        for value in
            ["", "On", "256M", "1", "E_ALL", "E_ALL & ~E_DEPRECATED", "~(E_NOTICE|E_STRICT) ^ 8", "\"a b\""]
        {
            assert_eq!(written(value), value);
        }
    }

    #[test]
    fn all_else_is_literal() {
        for value in [
            "E_ALL &",
            "(1",
            "1)",
            "~",
            "a b",
            "/a",
            "-1",
            "a;b",
            "${HOME}",
            "\"${HOME}\"",
            "x\n[PATH=/]",
            "E_ALL &\n 1",
            "1\r|2",
            "yes & no",
            "none|1",
            "~on",
            "(no)",
            "R&D",
            "pass^word",
            "E_|1",
            "\"a\\\"",
        ] {
            assert_eq!(written(value), format!("'{value}'"));
        }
        let long = "~".repeat(10_000) + "1";
        assert_eq!(written(&long), format!("'{long}'"));
        assert_eq!(written("it's"), "'it'\"'\"'s'");
        assert_eq!((written(" On\n"), written("\tE_ALL & ~8 ")), ("On".into(), "E_ALL & ~8".into()));
        assert_eq!(written("'"), "\"'\"");
        assert_eq!(written(&"(".repeat(100_000)).len(), 100_002);
    }

    #[test]
    fn names() {
        for name in ["memory_limit", "opcache.jit_buffer-size", "extension[]", "a.b[c_d]"] {
            assert!(is_name(name), "{name}");
        }
        for name in [
            "",
            " memory_limit",
            "a b",
            "a=b",
            "[PATH=/]",
            "a\nb",
            "a[",
            "a[b]c",
            "a[]]",
            "a;",
            "é",
            "on",
            "No",
            "NULL",
        ] {
            assert!(!is_name(name), "{name}");
        }
    }
}
