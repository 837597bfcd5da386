//! What TOML's and serde's own words leave out: what to write instead.

use std::ops::Range;

/// What to add to an error of TOML.
pub(super) fn of_toml(message: &str) -> &'static str {
    match () {
        // Most often it is a regular expression.
        () if message.contains("escape") => {
            "; in double quotes a backslash begins an escape: write what has one in single quotes, such as '\\.php$'"
        }
        () if message.starts_with("key with no value") => {
            "; a line is key = value, [table] or [[table]], as TOML has them"
        }
        () => "",
    }
}

/// Why a table that belongs to an application may not stand where there is none above it: `[[app.rule]]`, pasted by itself. `name`: where `app`
/// stands in the text.
pub(super) fn of_tables_alone(text: &str, name: &Range<usize>) -> Option<String> {
    let (before, after) = (text.get(..name.start)?, text.get(name.end..)?);
    let header = after.strip_prefix('.').filter(|_| text.get(name.clone()) == Some("app"))?;
    let opens = if before.ends_with("[[") { "[[" } else { before.ends_with('[').then_some("[")? };
    let key = header.split([']', '\n']).next()?.trim();
    let closes = if opens == "[[" { "]]" } else { "]" };
    Some(format!(
        "{opens}app.{key}{closes} belongs to an application, and there is none above it: write [[app]] with its root = \"…\" first"
    ))
}

/// Serde's words in those of whoever writes a configuration.
pub(super) fn of_serde(key: Option<&str>, message: String) -> String {
    // Whoever switches something on, or writes a number: the text that is wanted.
    let text = match key {
        Some("acme") => "\"admin@example.org\", your mail address for the authority, or \"on\"",
        Some("min_version") => "\"1.2\" or \"1.3\", in quotes",
        Some("verify") => "\"required\", \"optional\" or \"off\"",
        _ => "",
    };
    // What TOML says where one of a few words is wanted.
    if message == "wanted string or table" && !text.is_empty() {
        return format!("expected {text}");
    }
    if let Some(found) = message.strip_prefix("invalid type: ").filter(|_| !text.is_empty()) {
        let found = found.split(", expected ").next().unwrap_or(found);
        return format!("expected {text}, found the {found}");
    }
    if let Some(field) = message.strip_prefix("missing field ") {
        return format!("{field} is missing, which has to be said: write it as well");
    }
    let Some((found, wanted)) = message.rsplit_once(", expected ") else { return message };
    let (what, range) = match wanted {
        "u16" => ("a whole number", " from 0 to 65535"),
        "u32" => ("a whole number", " from 0 to 4294967295"),
        "u64" | "usize" => ("a whole number", " from 0 on"),
        "a boolean" => ("true or false", ""),
        _ => return message,
    };
    let found = ["invalid type: ", "invalid value: "].iter().find_map(|kind| found.strip_prefix(kind));
    match found {
        Some(found) if found.starts_with("string ") => {
            format!("expected {what}, without quotes, found the {found}")
        }
        Some(found) if found.starts_with("integer ") => format!("expected {what}{range}, found the {found}"),
        Some(found) => format!("expected {what}, found the {found}"),
        None => message,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::config::Source;

    fn error(text: &str) -> String {
        Source::parse(Path::new("h.toml"), text.into()).unwrap_err().to_string()
    }

    #[test]
    fn errors_say_what_to_write() {
        let app = "[[app]]\nroot = '.'\n[[app.rule]]\n";
        for (text, want) in [
            ("regex = \"\\.php$\"", "h.toml:4: missing escaped value"),
            ("regex = \"\\.php$\"", "write what has one in single quotes, such as '\\.php$'"),
            ("regex = \"\\d+\"", "write what has one in single quotes"),
            (
                "redirect = '/x'\nstatus = '301'",
                "h.toml:5: status: expected a whole number, without quotes, found the string \"301\"",
            ),
            (
                "stop = 'true'",
                "h.toml:4: stop: expected true or false, without quotes, found the string \"true\"",
            ),
            ("status = 70000", "expected a whole number from 0 to 65535, found the integer `70000`"),
            (
                "rate = { burst = 5 }",
                "h.toml:4: rate: `requests` is missing, which has to be said: write it as well",
            ),
            (
                "rate = { requests = 0.5 }",
                "requests: expected a whole number, found the floating point `0.5`",
            ),
        ] {
            let said = error(&format!("{app}{text}\n"));
            assert!(said.contains(want), "{text}: {said}");
        }
        for (text, want) in [
            (
                "acme = true",
                "h.toml:2: acme: expected \"admin@example.org\", your mail address for the authority, or \"on\", found the boolean `true`",
            ),
            ("min_version = 1.3", "min_version: expected \"1.2\" or \"1.3\", in quotes"),
            ("verify = true", "verify: expected \"required\", \"optional\" or \"off\""),
            (
                "certificates = ['a.pem']",
                "expected a table: write [{ certificate = \"shop.pem\", key = \"shop.key\" }]",
            ),
            (
                "certificates = [{ cert = 'a.pem', key = 'a.key' }]",
                "unknown key 'cert' in [[tls.certificates]]; certificate names",
            ),
        ] {
            let said = error(&format!("[tls]\n{text}\n"));
            assert!(said.contains(want), "{text}: {said}");
        }
        assert!(error(&format!("{app}host = 'b.test'\n")).contains("in [[app.rule]]; header = { host = "));
        assert!(
            error("server {\n").ends_with("a line is key = value, [table] or [[table]], as TOML has them")
        );
        assert!(
            error("[limits]\nheader_count = -1")
                .contains("expected a whole number from 0 on, found the integer `-1`")
        );
    }

    #[test]
    fn what_belongs_to_an_application_says_so() {
        for (text, what) in [
            ("[[app.rule]]\npath = '/x'\ndeny = 403\n", "[[app.rule]]"),
            ("[app.ini]\nmemory_limit = '1M'\n", "[app.ini]"),
        ] {
            let want = format!(
                "h.toml:1: {what} belongs to an application, and there is none above it: write [[app]]"
            );
            let said = error(text);
            assert!(said.starts_with(&want), "{said}");
        }
        assert!(error("[app]\nroot = '.'\n").ends_with("write [[app]]"));
    }
}
