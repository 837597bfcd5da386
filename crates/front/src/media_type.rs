//! A file's media type, by the ending of its name: IANA's, where there is one, else what other servers say.

use std::{borrow::Cow, ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};

/// What goes into Content-Type; `charset` is for text. `None`: nobody knows.
pub(crate) fn of(path: &Path, charset: Option<&str>) -> Option<Cow<'static, str>> {
    let mime = path.extension().and_then(by_extension)?;
    let (kind, subtype) = mime.split_once('/')?;
    let text = kind == "text" || matches!(subtype, "javascript" | "xml" | "svg");
    Some(match charset {
        Some(charset) if text => format!("{mime}; charset={charset}").into(),
        _ => mime.into(),
    })
}

fn by_extension(extension: &OsStr) -> Option<&'static str> {
    let bytes = extension.as_bytes();
    usual(bytes).or_else(|| {
        let lower = bytes.to_ascii_lowercase();
        usual(&lower)
            .or_else(|| corrected(&lower))
            .or_else(|| mime_guess::from_ext(extension.to_str()?).first_raw())
    })
}

/// What nearly all files are: to look among a thousand types costs as much as opening the file.
fn usual(extension: &[u8]) -> Option<&'static str> {
    Some(match extension {
        b"html" => "text/html",
        b"css" => "text/css",
        b"js" => "text/javascript",
        b"txt" => "text/plain",
        b"xml" => "text/xml",
        b"json" => "application/json",
        b"svg" => "image/svg+xml",
        b"png" => "image/png",
        b"jpg" | b"jpeg" => "image/jpeg",
        b"gif" => "image/gif",
        b"webp" => "image/webp",
        b"avif" => "image/avif",
        b"ico" => "image/x-icon",
        // RFC 8081; the list has what it was called before.
        b"woff" => "font/woff",
        b"woff2" => "font/woff2",
        b"pdf" => "application/pdf",
        _ => return None,
    })
}

/// Where the list of mime_guess is wrong, or older than the registry. In lower case.
fn corrected(extension: &[u8]) -> Option<&'static str> {
    Some(match extension {
        // RFC 8081.
        b"otf" => "font/otf",
        // RFC 9239.
        b"mjs" => "text/javascript",
        // RFC 6350.
        b"vcf" => "text/vcard",
        // RFC 8216: what players of HLS look for.
        b"m3u8" => "application/vnd.apple.mpegurl",
        // RFC 3555. The list has DLNA's own, whose packets have time stamps before them.
        b"ts" | b"m2t" => "video/mp2t",
        // RFC 4337.
        b"m4a" | b"m4b" => "audio/mp4",
        // XSL Transformations 2.0, section 2.8, and nginx of Debian 13 (1.26).
        b"xsl" | b"xslt" => "application/xslt+xml",
        // Not registered, but called so by nginx and by browsers.
        b"mid" | b"midi" => "audio/midi",
        // Not registered, but called so by nginx. The list has a player's plugin here.
        b"rpm" => "application/x-redhat-package-manager",
        // As .exe.
        b"dll" => "application/octet-stream",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(extension: &str) -> Option<&'static str> {
        mime_guess::from_ext(extension).first_raw()
    }

    #[test]
    fn usual_types_are_those_of_the_list() {
        for extension in [
            "html", "css", "js", "txt", "xml", "json", "svg", "png", "jpg", "jpeg", "gif", "webp", "avif",
            "ico", "woff2", "pdf",
        ] {
            assert_eq!(usual(extension.as_bytes()), listed(extension), "{extension}");
        }
    }

    /// One that the list has by now can go.
    #[test]
    fn what_is_corrected_is_wrong_in_the_list() {
        let wrong = [
            "otf", "mjs", "vcf", "m3u8", "ts", "m2t", "m4a", "m4b", "xsl", "xslt", "mid", "midi", "rpm",
            "dll",
        ];
        for extension in wrong {
            let right = corrected(extension.as_bytes());
            assert!(right.is_some() && right != listed(extension), "{extension}");
        }
        assert_ne!(usual(b"woff"), listed("woff"));
    }

    #[test]
    fn a_type_is_that_of_the_ending_whatever_its_case() {
        let of = |name: &str, charset| of(Path::new(name), charset).map(Cow::into_owned);
        for (name, wanted) in [
            ("a.otf", Some("font/otf")),
            ("A.OTF", Some("font/otf")),
            ("a.Woff", Some("font/woff")),
            ("a.min.MJS", Some("text/javascript")),
            ("a.ZIP", Some("application/zip")),
            ("a.unheard-of", None),
            ("a.", None),
            ("a", None),
            (".html", None),
        ] {
            assert_eq!(of(name, None).as_deref(), wanted, "{name}");
        }
        assert_eq!(of("a.vcf", Some("utf-8")).as_deref(), Some("text/vcard; charset=utf-8"));
        assert_eq!(of("a.otf", Some("utf-8")).as_deref(), Some("font/otf"));
    }
}
