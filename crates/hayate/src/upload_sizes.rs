//! Sizes of uploads that do not go together: the smallest of them holds, and PHP says nothing of the others.

use std::path::Path;

use crate::{config::Size, of_application};

/// Bytes of an ini file that are looked at.
const LONGEST: u64 = 1 << 20;

/// What PHP takes without an ini file.
const POST: u64 = 8 << 20;
const FILE: u64 = 2 << 20;

/// What there is to say of an application. `files`: the ini files of its PHP, in order; `ini`: its settings, which stand above them; `body`:
/// the greatest body that reaches it, 0: any.
pub fn warnings(files: &[String], ini: &[(String, String)], body: u64) -> Vec<String> {
    let texts: Vec<String> =
        files.iter().filter_map(|file| of_application::read_text(Path::new(file), LONGEST).ok()).collect();
    let setting = |name: &str, default: u64| -> Option<u64> {
        let of_files =
            texts.iter().flat_map(|text| text.lines()).filter_map(|line| of_line(line, name)).next_back();
        let own = ini.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
        own.or(of_files).map_or(Some(default), bytes)
    };
    let mut said = Vec::new();
    let (Some(post), Some(file)) = (setting("post_max_size", POST), setting("upload_max_filesize", FILE))
    else {
        return said;
    };
    // 0 is any.
    if post > 0 && file > post {
        said.push(format!(
            "upload_max_filesize ({}) is more than post_max_size ({}), which is for a whole request with its files: raise that as well",
            words(file),
            words(post)
        ));
    }
    if body > 0 && post > body {
        said.push(format!(
            "post_max_size ({}) is more than a request may have (limits.body_size, {}): raise that as well, or max_body in a rule",
            words(post),
            words(body)
        ));
    }
    said
}

/// The value of a setting in a line of an ini file, if it is that one's.
fn of_line<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (_, value) = line.split_once('=').filter(|(key, _)| key.trim() == name)?;
    Some(value.split(';').next().unwrap_or_default().trim().trim_matches(['"', '\'']))
}

/// As PHP reads it; `None` for what only PHP knows, such as a constant.
fn bytes(value: &str) -> Option<u64> {
    value.parse().ok().map(|Size(bytes)| bytes)
}

fn words(bytes: u64) -> String {
    match bytes {
        _ if bytes > 0 && bytes.is_multiple_of(1 << 30) => format!("{}G", bytes >> 30),
        _ if bytes > 0 && bytes.is_multiple_of(1 << 20) => format!("{}M", bytes >> 20),
        _ if bytes > 0 && bytes.is_multiple_of(1 << 10) => format!("{}K", bytes >> 10),
        _ => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_smallest_of_them_holds() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("php.ini");
        fs::write(&file, "; post_max_size = 1M\n[PHP]\npost_max_size=8M\n  post_max_size = \"64M\" ; now\nupload_max_filesize = 2M\n")
            .unwrap();
        let files = [file.display().to_string()];
        let said = |files: &[String], ini: &[(&str, &str)], body: u64| {
            let ini: Vec<_> =
                ini.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            warnings(files, &ini, body).join("\n")
        };
        let body = 128 << 20;
        assert_eq!(said(&[], &[], body), "");
        assert_eq!(
            said(&[], &[("upload_max_filesize", "200M")], body),
            "upload_max_filesize (200M) is more than post_max_size (8M), which is for a whole request with its files: raise that as well"
        );
        assert_eq!(said(&files, &[("upload_max_filesize", "64M")], body), "");
        assert!(said(&files, &[("upload_max_filesize", "65M")], body).contains("post_max_size (64M)"));
        assert!(
            said(&files, &[], 1 << 20)
                .starts_with("post_max_size (64M) is more than a request may have (limits.body_size, 1M)")
        );
        assert_eq!(said(&files, &[], 0), "");
        assert_eq!(said(&[], &[("post_max_size", "0"), ("upload_max_filesize", "1G")], body), "");
        assert_eq!(said(&[], &[("post_max_size", "SOME"), ("upload_max_filesize", "1G")], body), "");
        // Of two the last counts.
        assert_eq!(said(&[], &[("upload_max_filesize", "1G"), ("upload_max_filesize", "1M")], body), "");
        assert_eq!(said(&["/nowhere".into()], &[], body), "");
    }
}
