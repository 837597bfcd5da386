//! The front's parsers against bytes that nobody would send; see hayate-fuzz.

use hayate_fuzz::Random;

use crate::{access_log, date, files, fuzzed};

/// What bytes of protocols are made of.
const PIECES: [&[u8]; 34] = [
    b"\r\n",
    b"\n",
    b"\r",
    b"\0",
    b" ",
    b"\t",
    b":",
    b";",
    b",",
    b"=",
    b"-",
    b"/",
    b"//",
    b"..",
    b"/../",
    b"%2e",
    b"%",
    b"?",
    b"#",
    b"\"",
    b"\\",
    b"[::1]",
    b"@",
    b"\xff",
    b"0",
    b"00",
    b"18446744073709551615",
    b"-1",
    b"ffffffffffffffff",
    b"Host: a\r\n",
    b"Content-Length: 3\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"HTTP/1.1",
    b"bytes=",
];

fn run(name: &str, seeds: &[&[u8]], one: impl FnMut(&mut Random, &[u8])) {
    hayate_fuzz::run(name, seeds, &PIECES, one);
}

const REQUESTS: [&[u8]; 8] = [
    b"GET / HTTP/1.1\r\nHost: a.test:80\r\n\r\nGET /b?c=<d>#e HTTP/1.0\r\n\r\n",
    b"POST /a.php HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhelloGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nT: v\r\n\r\nGET / HTTP/1.0\r\n\r\n",
    b"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n1\r\nb\r\nA\r\n0123456789\r\n0\r\n\r\n",
    b"\r\nGET http://user@h.test:81/a/../b HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: [::1]:8080\r\nConnection: close\r\n\r\n",
    b"CONNECT h.test:443 HTTP/1.1\r\nHost: h.test\r\n\r\n",
    b"GET /\xff\xfe?\"<>` HTTP/1.1\r\nHost: a\r\nX: \xff\r\n\r\n",
];

#[test]
fn paths_and_targets() {
    let seeds: [&[u8]; 7] = [
        b"/",
        b"/a/./b/../c.php/d",
        b"/%2e%2e/x",
        b"/..%2f..%2fetc/passwd",
        b"//a///b/",
        b"http://h.test/a?b#c",
        b"/a%00b",
    ];
    run("paths and targets", &seeds, |_, input| fuzzed::target(input));
}

#[test]
fn rules_and_what_they_are_for() {
    let seeds: [&[u8]; 9] = [
        b"/new/$1?p=$name/old/a.php/b",
        b"https://b.test$path//evil.test",
        b"^/(a|b)*/index.php/admin",
        b"/**/*.{css,js}/a/b.css",
        b"/admin/%61dmin/",
        b"*.bak/x.bak/..%2fa",
        b"anna:$2y$04$abcdefghijklmnopqrstuuabcdefghijklmnopqrstuvwxyzabcde\n/a",
        b"$$/${1}/$0/\\evil.test",
        b"[a-z&&[^b]]{1,3}(?i)/a.php/b.php/c.php/d.php/e.php/f",
    ];
    run("rules", &seeds, |random, input| {
        let seed = random.any().to_be_bytes();
        fuzzed::rules(&[&seed[..2], input].concat());
    });
}

#[test]
fn files_that_scripts_send() {
    let seeds: [&[u8]; 10] = [
        b"\0/dir/b%20c.css",
        b"\0/a.txt?x",
        b"\x01/blog/a.txt",
        b"\0/admin/../.git/config",
        b"\0/x.php.bak",
        b"\x02/files/big.txt",
        b"\x03/site/admin/x.php",
        b"\x02/site/../files/../outside.txt",
        b"\x02-old/x.txt",
        b"\x02/files/../site-old/x.txt",
    ];
    run("files that scripts send", &seeds, |_, input| fuzzed::sent(input));
}

#[test]
fn ranges_and_dates() {
    let seeds: [&[u8]; 8] = [
        b"bytes=0-4",
        b"bytes=-3",
        b"bytes=9-",
        b"bytes=0-0,2-",
        b"bytes=18446744073709551615-18446744073709551615",
        b"Sun, 06 Nov 1994 08:49:37 GMT",
        b"Sunday, 06-Nov-94 08:49:37 GMT",
        b"Sun Nov  6 08:49:37 1994",
    ];
    run("ranges and dates", &seeds, |random, input| {
        let Ok(text) = std::str::from_utf8(input) else { return };
        let size = [0, 1, 10, 1 << 40, u64::MAX][random.below(5)];
        files::check_range(text, size);
        if let Some(seconds) = date::parse(text) {
            assert_eq!(date::http(seconds).as_deref().and_then(date::parse), Some(seconds), "{text}");
        }
        let _ = date::http(random.any() as i64);
    });
}

#[test]
fn hosts_and_forwarded_headers() {
    let seeds: [&[u8]; 9] = [
        b"a.test:80",
        b"[::1]:8080",
        b"user@a.test",
        b"203.0.113.9, 10.0.0.1",
        b"\xff, 9.9.9.9",
        b"for=192.0.2.1;proto=https;host=\"a:1\"",
        b"for=\"[2001:db8::1]:4711\", for=unknown",
        b"for=\"a\\\"b",
        b"https",
    ];
    run("hosts and forwarded headers", &seeds, |random, input| {
        let seed = random.any().to_be_bytes();
        fuzzed::forwarded(&[&seed[..2], input].concat());
    });
}

#[test]
fn lines_of_refused_heads() {
    run("lines of refused heads", &REQUESTS, |_, input| {
        let line = access_log::Line::of_head(input, String::new(), String::new());
        assert!(line.method.len() + line.target.len() + line.version.len() <= input.len());
    });
}
