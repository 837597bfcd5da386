use std::io::Read;

use super::*;

const ALL: [Coding; 3] = [Coding::Zstd, Coding::Brotli, Coding::Gzip];

fn rules() -> Compression {
    Compression {
        codings: vec![(Coding::Zstd, 3), (Coding::Brotli, 4), (Coding::Gzip, 5)],
        min_size: 100,
        memory: 2 << 20,
        types: ["text/*", "application/json", "application/*+json"].map(str::to_owned).to_vec(),
    }
}

fn head(fields: &str) -> Head {
    let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    Head::parse(text.as_bytes(), &hayate_http::Limits::default()).unwrap()
}

fn decode(coding: Coding, bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    match coding {
        Coding::Zstd => drop(zstd::stream::read::Decoder::new(bytes).unwrap().read_to_end(&mut plain)),
        Coding::Brotli => drop(brotli::Decompressor::new(bytes, 4096).read_to_end(&mut plain)),
        Coding::Gzip => drop(flate2::read::GzDecoder::new(bytes).read_to_end(&mut plain)),
    }
    plain
}

#[test]
fn a_client_gets_the_coding_that_it_likes_best() {
    for (said, want) in [
        ("gzip", Some(Coding::Gzip)),
        ("GZIP", Some(Coding::Gzip)),
        ("x-gzip", Some(Coding::Gzip)),
        ("gzip, deflate, br, zstd", Some(Coding::Zstd)),
        ("gzip, deflate, br", Some(Coding::Brotli)),
        ("gzip;q=1.0, br;q=0.9", Some(Coding::Gzip)),
        ("gzip;q=0.8, br;q=0.9, zstd;q=0.001", Some(Coding::Brotli)),
        ("gzip ; q=0.5", Some(Coding::Gzip)),
        ("gzip;Q=0.5", Some(Coding::Gzip)),
        ("*", Some(Coding::Zstd)),
        ("*, zstd;q=0", Some(Coding::Brotli)),
        ("*;q=0.5, gzip", Some(Coding::Gzip)),
        ("identity;q=0, gzip;q=0.1", Some(Coding::Gzip)),
        ("identity, gzip;q=0.5", None),
        ("identity;q=0.5, gzip;q=0.5", Some(Coding::Gzip)),
        ("gzip;q=0", None),
        ("gzip;q=0.000, br;q=0", None),
        ("gzip;q=2", None),
        ("gzip;q=0.1234", None),
        ("gzip;q=-1", None),
        ("gzip;q=nan", None),
        ("gzip;q=", None),
        ("gzip;q=0, gzip", None),
        ("identity", None),
        ("deflate", None),
        ("", None),
        ("*;q=0", None),
        (";;,,;q=1", None),
        ("gzipp, brr", None),
    ] {
        let accept = Accept::of(&head(&format!("Accept-Encoding: {said}\r\n")));
        assert_eq!(accept.best(ALL.into_iter()), want, "{said:?}");
    }
    assert_eq!(Accept::of(&head("")).best(ALL.into_iter()), None);
    let two = head("Accept-Encoding: br;q=0.1\r\nAccept-Encoding: gzip\r\n");
    assert_eq!(Accept::of(&two).best(ALL.into_iter()), Some(Coding::Gzip));
    for (said, refused) in
        [("identity;q=0", true), ("*;q=0", true), ("*;q=0, identity", false), ("gzip", false)]
    {
        let accept = Accept::of(&head(&format!("Accept-Encoding: {said}\r\n")));
        assert_eq!(accept.refuses_identity(), refused, "{said}");
    }
}

#[test]
fn fuzz_what_clients_accept() {
    let seeds: [&[u8]; 4] = [b"gzip, deflate, br;q=0.9", b"*;q=0.5, identity;q=0", b"zstd;q=1.000", b"0.125"];
    let pieces: [&[u8]; 10] = [b",", b";", b"q=", b"0", b"1", b".", b"*", b" ", b"\xff", b"gzip"];
    hayate_fuzz::run("accept-encoding", &seeds, &pieces, |_, input| {
        crate::fuzzed::accepted(input);
        let mut text = b"GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: ".to_vec();
        text.extend_from_slice(input);
        text.extend_from_slice(b"\r\n\r\n");
        let Ok(head) = Head::parse(&text, &hayate_http::Limits::default()) else { return };
        let accept = Accept::of(&head);
        if let Some(coding) = accept.best(ALL.into_iter()) {
            assert!(accept.weight(coding) > 0 && accept.weight(coding) <= 1000);
            assert!(ALL.iter().all(|other| accept.weight(*other) <= accept.weight(coding)));
        }
    });
}

#[test]
fn types() {
    let rules = rules();
    for kind in
        ["text/html", "TEXT/HTML; charset=utf-8", "application/json ;x", "application/ld+json", "text/"]
    {
        assert!(rules.fits(kind.as_bytes()), "{kind}");
    }
    for kind in
        ["image/png", "application/jsonx", "application/+jso", "xtext/html", "", "application/octet-stream"]
    {
        assert!(!rules.fits(kind.as_bytes()), "{kind}");
    }
    assert!(
        !Compression { types: vec!["application/*json".into()], ..rules.clone() }.fits(b"application/js")
    );
}

/// An answer with these fields and body, as a client gets it that accepts this.
fn answered(status: u16, fields: &[(&str, &str)], body: Body, request: &str) -> Box<Reply> {
    let mut answer = Answer::new(status);
    fields.iter().for_each(|(name, value)| answer.add(name.as_bytes(), value.as_bytes()).unwrap());
    let mut reply = Reply::new(answer, body);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(compress(&rules(), &Arc::default(), &head(request), &mut reply));
    reply
}

fn text() -> Bytes {
    "All work and no play makes Jack a dull boy. ".repeat(5000).into()
}

fn field(reply: &Reply, name: &str) -> Option<String> {
    reply.answer.get(name.as_bytes()).map(|value| String::from_utf8(value.to_vec()).unwrap())
}

#[test]
fn an_encoded_answer_says_so() {
    let fields =
        [("Content-Type", "text/html"), ("ETag", "\"a\""), ("Vary", "Cookie"), ("Accept-Ranges", "bytes")];
    for coding in ALL {
        let request = format!("Accept-Encoding: {}\r\n", coding.name());
        let reply = answered(200, &fields, Body::Full(text()), &request);
        assert_eq!(field(&reply, "content-encoding").as_deref(), Some(coding.name()));
        assert_eq!(field(&reply, "vary").as_deref(), Some("Cookie, Accept-Encoding"));
        assert_eq!(field(&reply, "etag").as_deref(), Some("W/\"a\""));
        assert_eq!(field(&reply, "accept-ranges"), None);
        let Body::Full(bytes) = reply.body else { panic!() };
        assert!(bytes.len() < 5_000, "{}", bytes.len());
        assert_eq!(decode(coding, &bytes), text());
    }
    let plain = answered(200, &fields, Body::Full(text()), "");
    assert_eq!(field(&plain, "vary").as_deref(), Some("Cookie, Accept-Encoding"));
    assert_eq!((field(&plain, "content-encoding"), field(&plain, "etag").as_deref()), (None, Some("\"a\"")));
}

/// What it is, its status, fields and body.
type Case<'a> = (&'a str, u16, &'a [(&'a str, &'a str)], Bytes);

#[test]
fn what_stays_as_it_is() {
    let html = ("Content-Type", "text/html");
    let cases: [Case<'_>; 13] = [
        ("no type", 200, &[], text()),
        ("another type", 200, &[("Content-Type", "image/png")], text()),
        ("small", 200, &[html], Bytes::from_static(b"hello")),
        ("empty", 200, &[html], Bytes::new()),
        ("a part", 206, &[html], text()),
        ("said to be a part", 200, &[html, ("Content-Range", "bytes 0-1/9")], text()),
        ("no content", 204, &[html], Bytes::new()),
        ("encoded", 200, &[html, ("Content-Encoding", "deflate")], text()),
        (
            "no-transform",
            200,
            &[html, ("Cache-Control", "public"), ("cache-control", "a, No-Transform")],
            text(),
        ),
        ("set aside", 200, &[html, ("Content-Encoding", "identity")], text()),
        ("digest", 200, &[html, ("Repr-Digest", "sha-256=:x:")], text()),
        ("md5", 200, &[html, ("Content-MD5", "x")], text()),
        ("no smaller", 200, &[html], noise()),
    ];
    for (what, status, fields, body) in cases {
        let reply = answered(status, fields, Body::Full(body.clone()), "Accept-Encoding: gzip\r\n");
        let Body::Full(bytes) = &reply.body else { panic!() };
        assert_eq!(*bytes, body, "{what}");
        let coding = field(&reply, "content-encoding");
        assert_eq!(coding.as_deref(), (what == "encoded").then_some("deflate"), "{what}");
    }
    let small = answered(
        200,
        &[html],
        Body::Full("hello hello hello hello hello hello".into()),
        "Accept-Encoding: gzip, identity;q=0\r\n",
    );
    assert_eq!(field(&small, "content-encoding").as_deref(), Some("gzip"), "plain is refused");
    for head_only in [Body::Unknown, Body::Left(50)] {
        let reply = answered(200, &[html], head_only, "Accept-Encoding: gzip\r\n");
        assert_eq!(field(&reply, "content-encoding"), None);
    }
}

#[test]
fn a_part_varies_where_the_whole_would() {
    let html = ("Content-Type", "text/html");
    let varies = |fields: &[(&str, &str)]| {
        let part = answered(206, fields, Body::Full(Bytes::from_static(b"01")), "Accept-Encoding: gzip\r\n");
        assert_eq!(field(&part, "content-encoding"), None);
        field(&part, "vary").is_some()
    };
    assert!(varies(&[html, ("Content-Range", "bytes 0-1/40000")]));
    assert!(varies(&[html, ("Content-Range", "bytes 0-1/*")]), "nobody knows how much there is");
    assert!(varies(&[html]));
    assert!(!varies(&[html, ("Content-Range", "bytes 0-1/9")]), "small");
    assert!(!varies(&[("Content-Type", "image/png"), ("Content-Range", "bytes 0-1/40000")]));
    let aside = ("Cache-Control", "no-transform");
    assert!(!varies(&[html, aside, ("Content-Range", "bytes 0-1/40000")]));
}

/// What nothing makes smaller.
fn noise() -> Bytes {
    let mut state = 1u64;
    let next = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    });
    next.take(50_000).collect()
}

#[test]
fn a_tag_is_weak_where_the_client_has_it_so() {
    let not_modified = |asked: &str| {
        field(
            &answered(304, &[("ETag", "\"a\"")], Body::None, &format!("If-None-Match: {asked}\r\n")),
            "etag",
        )
    };
    assert_eq!(not_modified("W/\"b\", W/\"a\"").as_deref(), Some("W/\"a\""));
    assert_eq!(not_modified("\"a\"").as_deref(), Some("\"a\""));
    let html = ("Content-Type", "text/html");
    let tag = |tag| {
        field(&answered(200, &[html, ("ETag", tag)], Body::Full(text()), "Accept-Encoding: br\r\n"), "etag")
    };
    assert_eq!((tag("W/\"a\"").as_deref(), tag("a")), (Some("W/\"a\""), None));
}

#[test]
fn encoders_have_a_limit_together() {
    let memory = Arc::<Memory>::default();
    let shares: Vec<_> = (0..4).map(|_| memory.take(512 << 10, 1 << 20)).collect();
    assert_eq!(shares.iter().map(Option::is_some).collect::<Vec<_>>(), [true, true, false, false]);
    drop(shares);
    assert_eq!(memory.0.load(Relaxed), 0);
    let full = memory.take(1, 1);
    let mut answer = Answer::new(200);
    answer.add(b"Content-Type", b"text/html").unwrap();
    let mut reply = Reply::new(answer, Body::Full(text()));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let rules = Compression { memory: 2 << 20, ..rules() };
    runtime.block_on(compress(&rules, &memory, &head("Accept-Encoding: br\r\n"), &mut reply));
    assert_eq!(
        (field(&reply, "content-encoding"), field(&reply, "vary").as_deref()),
        (None, Some("Accept-Encoding"))
    );
    drop(full);
    runtime.block_on(compress(&rules, &memory, &head("Accept-Encoding: br\r\n"), &mut reply));
    assert_eq!(field(&reply, "content-encoding").as_deref(), Some("br"));
    assert_eq!(memory.0.load(Relaxed), 0);
}

fn started(coding: Coding, left: Option<u64>) -> Encoding {
    let share = Arc::<Memory>::default().take(0, 0).unwrap();
    let encoder = Some(Box::new((Encoder::new(coding, 3, None).unwrap(), share)));
    Encoding { encoder, left, dirty: false, turn: 0, over: 0 }
}

#[test]
fn all_that_was_put_in_can_be_decoded_after_a_flush() {
    for coding in ALL {
        let mut encoding = started(coding, None);
        let (mut encoded, mut plain) = (Vec::new(), Vec::new());
        assert!(encoding.flush().unwrap().is_empty());
        for n in 0..50 {
            let event = format!("data: {n}\n\n");
            plain.extend_from_slice(event.as_bytes());
            encoded.extend_from_slice(&encoding.put(event.into()).unwrap());
            encoded.extend_from_slice(&encoding.flush().unwrap());
            assert!(encoding.flush().unwrap().is_empty(), "there is nothing new");
            assert_eq!(decode(coding, &encoded), plain, "{coding:?}");
        }
        encoded.extend_from_slice(&encoding.finish().unwrap());
        assert!(encoding.finish().is_err());
        assert_eq!(decode(coding, &encoded), plain);
    }
}

#[test]
fn a_length_that_was_said_holds() {
    let new = |left| started(Coding::Gzip, Some(left));
    let mut longer = new(5);
    let mut encoded = longer.put("hello world".into()).unwrap().to_vec();
    encoded.extend_from_slice(&longer.finish().unwrap());
    assert_eq!(decode(Coding::Gzip, &encoded), b"hello");
    let mut shorter = new(12);
    shorter.put("hello world".into()).unwrap();
    assert!(shorter.finish().is_err());
}

#[test]
fn the_answers_of_a_connection_share_its_turn_and_none_is_left_out() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (long, short) = (Bytes::from(vec![b'l'; 500 * CHUNK]), Bytes::from(vec![b's'; 3 * CHUNK]));
    let mut answers: Vec<_> = std::iter::once(&long)
        .chain((0..40).map(|_| &short))
        .map(|body| Some(Box::pin(whole(Coding::Gzip, 1, body))))
        .collect();
    let mut most = 0;
    // The long one is always asked first.
    runtime.block_on(std::future::poll_fn(|cx| {
        runtime::polled();
        for answer in &mut answers {
            if answer.as_mut().is_some_and(|answer| answer.as_mut().poll(cx).is_ready()) {
                *answer = None;
            }
        }
        most = most.max(runtime::encoded());
        if answers.iter().skip(1).all(Option::is_none) {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    }));
    assert!(most <= TURN, "{most}");
    assert!(answers[0].is_some(), "the others have waited for it");
}
