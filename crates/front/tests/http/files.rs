//! Static files and the way to them.

use std::{os::unix::fs::MetadataExt, time::UNIX_EPOCH};

use crate::server::Server;

#[test]
fn a_file_comes_with_type_length_and_validators() {
    let server = Server::plain();
    server.write("a.html", "<p>");
    let answer = server.ask("GET /a.html", "");
    assert_eq!((answer.status, answer.text()), (200, "<p>"));
    assert_eq!(answer.header("content-type"), Some("text/html"));
    assert_eq!(answer.header("accept-ranges"), Some("bytes"));
    assert_eq!(answer.header("server"), Some("hayate"));
    let (tag, date) = (answer.header("etag").unwrap(), answer.header("last-modified").unwrap());
    for condition in [
        format!("If-None-Match: {tag}\r\n"),
        format!("If-None-Match: \"x\", W/{tag}\r\n"),
        "If-None-Match: *\r\n".into(),
        format!("If-Modified-Since: {date}\r\n"),
    ] {
        let again = server.ask("GET /a.html", &condition);
        assert_eq!((again.status, again.header("etag")), (304, Some(tag)), "{condition}");
    }
    // If-None-Match decides alone where both are sent (RFC 9110, 13.2.2).
    let other = format!("If-None-Match: \"x\"\r\nIf-Modified-Since: {date}\r\n");
    assert_eq!(server.ask("GET /a.html", &other).status, 200);
}

#[test]
fn head_says_what_get_would_and_other_methods_are_refused() {
    let server = Server::plain();
    server.write("a.txt", "hello");
    server.write("large.bin", vec![0; 200_000]);
    let mut client = server.connect();
    for (path, length) in [("/a.txt", "5"), ("/large.bin", "200000")] {
        client.send(format!("HEAD {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(client.head().header("content-length"), Some(length));
    }
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "TRACE"] {
        let answer = server.ask(&format!("{method} /a.txt"), "");
        assert_eq!((answer.status, answer.header("allow").is_some()), (405, true), "{method}");
    }
}

#[test]
fn ranges_of_small_and_large_files() {
    let server = Server::plain();
    let large: Vec<u8> = (0..300_000u32).map(|i| (i % 251) as u8).collect();
    server.write("large.bin", &large);
    server.write("small.txt", "0123456789");
    let part = |path: &str, range: &str| server.ask(&format!("GET {path}"), &format!("Range: {range}\r\n"));
    let small = part("/small.txt", "bytes=2-4");
    assert_eq!(
        (small.status, small.text(), small.header("content-range")),
        (206, "234", Some("bytes 2-4/10"))
    );
    let middle = part("/large.bin", "bytes=100000-250000");
    assert_eq!((middle.status, &middle.body[..]), (206, &large[100_000..=250_000]));
    let tail = part("/large.bin", "bytes=-70000");
    assert_eq!((tail.status, &tail.body[..]), (206, &large[230_000..]));
    let none = part("/small.txt", "bytes=10-");
    assert_eq!((none.status, none.header("content-range")), (416, Some("bytes */10")));
    let old = server.ask("GET /small.txt", "Range: bytes=2-4\r\nIf-Range: \"old\"\r\n");
    assert_eq!((old.status, old.text()), (200, "0123456789"));
}

#[test]
fn a_packed_sibling_is_sent_to_whom_takes_it() {
    let server = Server::plain();
    server.write("a.css", "plain");
    server.write("a.css.gz", "packed by gzip");
    let packed = server.ask("GET /a.css", "Accept-Encoding: gzip\r\n");
    assert_eq!((packed.text(), packed.header("content-encoding")), ("packed by gzip", Some("gzip")));
    assert_eq!(packed.header("content-type"), Some("text/css"));
    let plain = server.ask("GET /a.css", "Accept-Encoding: gzip;q=0\r\n");
    assert_eq!((plain.text(), plain.header("content-encoding")), ("plain", None));
    assert_eq!(
        (packed.header("vary"), plain.header("vary")),
        (Some("Accept-Encoding"), Some("Accept-Encoding"))
    );
    assert_ne!(packed.header("etag"), plain.header("etag"));
}

#[test]
fn directories_have_a_slash_and_an_index() {
    let server = Server::plain();
    server.write("d/index.html", "index");
    server.write("empty/x.txt", "");
    assert_eq!(server.ask("GET /d/", "").text(), "index");
    let moved = server.ask("GET /d?x=1", "");
    assert_eq!((moved.status, moved.header("location")), (301, Some("/d/?x=1")));
    // A path that a browser would read as another host.
    let moved = server.ask("GET //d", "");
    assert_eq!((moved.status, moved.header("location")), (301, Some("/d/")));
    assert_eq!(server.ask("GET /empty/", "").status, 404);
}

#[test]
fn what_must_not_be_seen_is_not_there() {
    let server = Server::plain();
    for file in
        [".env", ".git/config", "a/.htpasswd", "a.php.bak", "a.php~", "b.phtml", "c.inc", "A.PHP", "d.phar"]
    {
        server.write(file, "secret");
    }
    server.write(".well-known/acme", "token");
    server.write("uploads/x.jpg", "image");
    std::fs::write(server.path().with_extension("outside"), "secret").unwrap();
    let outside = server.path().with_extension("outside").file_name().unwrap().to_str().unwrap().to_owned();
    for path in [
        "/.env",
        "/%2eenv",
        "/.git/config",
        "/a/.htpasswd",
        "/a.php.bak",
        "/a.php~",
        "/b.phtml",
        "/c.inc",
        "/A.PHP",
        "/d.phar",
        "/uploads/x.jpg/y.php",
        "/uploads/x.jpg/",
        "/missing",
    ] {
        let answer = server.ask(&format!("GET {path}"), "");
        assert_eq!(answer.status, 404, "{path}");
        assert!(!answer.text().contains("secret"));
    }
    for path in [
        format!("/../{outside}"),
        format!("/%2e%2e/{outside}"),
        format!("/..%2f{outside}"),
        "/a%00.txt".into(),
    ] {
        assert_eq!(server.ask(&format!("GET {path}"), "").status, 400, "{path}");
    }
    std::fs::remove_file(server.path().with_extension("outside")).unwrap();
    assert_eq!(server.ask("GET /.well-known/acme", "").text(), "token");
}

/// The time of a file is what touch(1) was given; HTTP can write the years 1970 to 9999.
#[test]
fn a_file_from_the_year_10000_has_no_date_and_ends_nothing() {
    let server = Server::plain();
    // Other file systems keep fewer years.
    let memory = tempfile::TempDir::new_in("/dev/shm").unwrap();
    let last = 253_402_300_799i64;
    for (i, seconds) in [last, last + 1, 1 << 33, 0, -1, -(1 << 31)].into_iter().enumerate() {
        let name = format!("{i}.txt");
        let target = memory.path().join(&name);
        std::fs::write(&target, "old or new").unwrap();
        std::os::unix::fs::symlink(&target, server.path().join(&name)).unwrap();
        let file = std::fs::File::open(&target).unwrap();
        let since = std::time::Duration::from_secs(seconds.unsigned_abs());
        let time = if seconds < 0 { UNIX_EPOCH - since } else { UNIX_EPOCH + since };
        file.set_modified(time).unwrap();
        assert_eq!(file.metadata().unwrap().mtime(), seconds);
        let path = format!("GET /{name}");
        for headers in [
            "",
            "If-Modified-Since: Fri, 31 Dec 9999 23:59:59 GMT\r\n",
            "If-Unmodified-Since: Thu, 01 Jan 1970 00:00:00 GMT\r\n",
            "If-Range: Fri, 31 Dec 9999 23:59:59 GMT\r\nRange: bytes=0-2\r\n",
        ] {
            let answer = server.ask(&path, headers);
            assert!([200, 206, 304, 412].contains(&answer.status), "{seconds} {headers}: {}", answer.status);
            if answer.status == 200 {
                let dated = (0..=last).contains(&seconds);
                assert_eq!(answer.header("last-modified").is_some(), dated, "{seconds}");
            }
        }
        let tag = server.ask(&path, "").header("etag").unwrap().to_owned();
        assert_eq!(server.ask(&path, &format!("If-None-Match: {tag}\r\n")).status, 304);
    }
    assert_eq!(server.metric("hayate_panics"), 0.0);
}
