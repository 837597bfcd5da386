//! The cookies of one virtual user, as far as a load needs them (RFC 6265): one host, names, values, paths, deletion.
//!
//! Must never hold more than [`LIMIT`] cookies. An expiry in the future is not watched: a load does not last that long.

use std::time::SystemTime;

/// Cookies a user keeps; more are not taken.
const LIMIT: usize = 100;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Cookie {
    name: String,
    value: String,
    path: String,
}

/// Cookies by name and path.
#[derive(Clone, Debug, Default)]
pub(crate) struct Jar(Vec<Cookie>);

impl Jar {
    /// Takes what a `Set-Cookie` header in the answer to a request for `request_path` says.
    pub(crate) fn store(&mut self, set_cookie: &str, request_path: &str) {
        let mut parts = set_cookie.split(';').map(str::trim);
        let Some((name, value)) = parts.next().and_then(|pair| pair.split_once('=')) else {
            return;
        };
        let (name, value) = (name.trim(), value.trim());
        if name.is_empty() || set_cookie.chars().any(char::is_control) {
            return;
        }
        let mut path = default_path(request_path);
        let (mut max_age_over, mut expires_over) = (None, false);
        for attribute in parts {
            let (key, value) = attribute.split_once('=').unwrap_or((attribute, ""));
            match key.trim().to_ascii_lowercase().as_str() {
                "path" if value.starts_with('/') => path = value,
                "max-age" => {
                    max_age_over =
                        value.trim().parse::<i64>().ok().map(|seconds| seconds <= 0).or(max_age_over)
                }
                // PHP writes dashes into the date, which httpdate takes for the old form with two digits of year.
                "expires" => {
                    expires_over = httpdate::parse_http_date(&value.trim().replace('-', " "))
                        .is_ok_and(|when| when <= SystemTime::now())
                }
                // We speak plain HTTP only.
                "secure" => return,
                _ => {}
            }
        }
        self.0.retain(|cookie| cookie.name != name || cookie.path != path);
        if !max_age_over.unwrap_or(expires_over) && self.0.len() < LIMIT {
            self.0.push(Cookie { name: name.to_owned(), value: value.to_owned(), path: path.to_owned() });
        }
    }

    /// The value of a `Cookie` header for a request for `path`; `None` if there is nothing to send.
    pub(crate) fn header(&self, path: &str) -> Option<String> {
        let mut header = String::new();
        for cookie in self.0.iter().filter(|cookie| path_matches(&cookie.path, path)) {
            if !header.is_empty() {
                header.push_str("; ");
            }
            header.push_str(&cookie.name);
            header.push('=');
            header.push_str(&cookie.value);
        }
        (!header.is_empty()).then_some(header)
    }
}

/// RFC 6265, 5.1.4: up to, but not including, the last slash.
fn default_path(request_path: &str) -> &str {
    match request_path.rfind('/') {
        Some(end) if end > 0 => &request_path[..end],
        _ => "/",
    }
}

/// RFC 6265, 5.1.4.
fn path_matches(cookie_path: &str, path: &str) -> bool {
    path.strip_prefix(cookie_path)
        .is_some_and(|rest| rest.is_empty() || cookie_path.ends_with('/') || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_are_kept_replaced_and_deleted() {
        let mut jar = Jar::default();
        assert_eq!(jar.header("/"), None);
        jar.store("PHPSESSID=abc; path=/; HttpOnly", "/login");
        jar.store("lang=de", "/");
        assert_eq!(jar.header("/x").as_deref(), Some("PHPSESSID=abc; lang=de"));
        jar.store("lang=en", "/");
        assert_eq!(jar.header("/x").as_deref(), Some("PHPSESSID=abc; lang=en"));
        jar.store("lang=; Max-Age=0", "/");
        jar.store("PHPSESSID=deleted; expires=Thu, 01-Jan-1970 00:00:01 GMT; Max-Age=0; path=/", "/");
        assert_eq!(jar.header("/"), None);
        jar.store("a=1; expires=Thu, 01-Jan-1970 00:00:01 GMT", "/");
        assert_eq!(jar.header("/"), None, "expired by date alone");
        jar.store("a=1; expires=Thu, 01 Jan 2099 00:00:01 GMT", "/");
        assert_eq!(jar.header("/").as_deref(), Some("a=1"));
    }

    #[test]
    fn paths_are_honoured() {
        let mut jar = Jar::default();
        jar.store("a=1", "/admin/login");
        jar.store("b=2; Path=/blog", "/");
        assert_eq!(jar.header("/admin/users").as_deref(), Some("a=1"));
        assert_eq!(jar.header("/blog").as_deref(), Some("b=2"));
        assert_eq!(jar.header("/blogs"), None);
    }

    #[test]
    fn nonsense_is_ignored() {
        let mut jar = Jar::default();
        for text in ["", "=", "novalue", "=x", "a=b\r\nX: y", "s=1; Secure"] {
            jar.store(text, "/");
        }
        assert_eq!(jar.header("/"), None);
        for i in 0..1000 {
            jar.store(&format!("c{i}=1"), "/");
        }
        assert_eq!(jar.0.len(), LIMIT);
    }
}
