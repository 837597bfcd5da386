//! Hayate's own pages: short, readable in light and dark, and without paths or versions.

use bytes::Bytes;
fn advice(status: u16) -> &'static str {
    match status {
        400 => "The request could not be understood.",
        401 => "This page asks for a name and a password.",
        403 => "You may not see this.",
        404 => "There is nothing here.",
        405 => "This page does not take that kind of request.",
        408 => "The request took too long to arrive.",
        410 => "What was here is gone for good.",
        412 => "The file is no longer the one you asked for.",
        413 => "What was sent is larger than this server accepts.",
        414 => "The address is longer than this server accepts.",
        416 => "The file has no such part.",
        429 => "There were too many requests from your address. Please try again in a moment.",
        431 => "The request's headers are larger than this server accepts.",
        500 => "The application could not answer.",
        502 => "The application failed while it answered.",
        503 => "The site is busy or starting. Please try again in a moment.",
        504 => "The application took too long.",
        _ => "",
    }
}

/// Text for HTML.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The page for a status. `detail` is shown as it is, escaped: in development mode only.
pub(crate) fn error(status: u16, detail: Option<&str>) -> Bytes {
    let (code, reason) = match hayate_http::phrase(status) {
        "" => (status, "Error"),
        reason => (status, reason),
    };
    // A rule may refuse with any status; of some there is nothing to say but the phrase.
    let advice = match advice(status) {
        "" => String::new(),
        advice => format!("<p>{advice}</p>\n"),
    };
    let detail = detail.map(|d| format!("<pre>{}</pre>", escape(d))).unwrap_or_default();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{code} {reason}</title>\n\
         <style>:root{{color-scheme:light dark}}body{{font:1rem/1.5 system-ui,sans-serif;max-width:38rem;margin:18vh auto;\
         padding:0 1.5rem}}h1{{font-size:1.5rem;font-weight:600}}pre{{white-space:pre-wrap;overflow-wrap:anywhere;\
         font-size:.85rem;border-left:3px solid;padding-left:1rem}}</style>\n</head>\n<body>\n<h1>{code} {reason}</h1>\n\
         {advice}{detail}</body>\n</html>\n"
    )
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_paragraph_is_empty() {
        for status in 400..600 {
            let page = error(status, None);
            assert!(!std::str::from_utf8(&page).unwrap().contains("<p></p>"), "{status}");
        }
        let page = error(429, None);
        assert!(std::str::from_utf8(&page).unwrap().contains("<p>There were too many requests"));
    }

    #[test]
    fn details_are_escaped() {
        let page = error(503, Some("<script>&"));
        let page = std::str::from_utf8(&page).unwrap();
        assert!(page.contains("&lt;script&gt;&amp;") && !page.contains("<script>"));
    }
}
