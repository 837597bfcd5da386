//! What the fuzzers of `fuzz/` and of the tests feed, with what must hold of it. Compiled for them alone.

use std::{cell::RefCell, fs, path::PathBuf, sync::Arc};

use bytes::Bytes;
use hayate_fuzz::Random;
use hayate_http::{Answer, Head, Memory};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::{
    Disk, Limits, TrustedHeaders,
    answer_files::AnswerFiles,
    compress,
    descriptors::{Descriptors, Files, Own},
    disk::Place,
    error_pages::ErrorPages,
    forwarded,
    gather::Gather,
    host::Host,
    request_body::Keep,
    route, rules,
    site::{Backend, FileRules, Lately, Site},
    target::Target,
    temp::{Owner, TempSpace},
    translate,
};

/// Files below a directory of all files, each with who may have it: everybody, whoever a script sends it to, nobody.
const FILES: [(&str, &str); 16] = [
    ("site/index.php", "source"),
    ("site/a.txt", "public"),
    ("site/blog/a.txt", "public"),
    ("site/dir/b c.css", "public"),
    ("site/dir/index.html", "public"),
    ("site/admin/index.php", "source"),
    ("site/admin/x.php", "source"),
    ("site/admin/a.txt", "public"),
    ("site/x.php.bak", "source"),
    ("site/.env", "source"),
    ("site/.git/config", "source"),
    ("site/dump.sql", "source"),
    ("files/big.txt", "public"),
    ("site-old/x.txt", "outside"),
    ("files-old/x.txt", "outside"),
    ("outside.txt", "outside"),
];

struct World {
    base: PathBuf,
    /// What scripts may send beside the site's own files.
    roots: Vec<Arc<Place>>,
    runtime: Runtime,
    plain: Arc<Site>,
    blog: Arc<Site>,
    head: Head,
    gather: Arc<Gather>,
    answers: Memory,
    space: Arc<TempSpace>,
    descriptors: Arc<Descriptors>,
    own: Own,
    answer_files: Arc<AnswerFiles>,
    _base: TempDir,
}

impl World {
    fn new() -> World {
        let dir = tempfile::Builder::new().prefix("hayate-fuzzed").tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        for (name, text) in FILES {
            let file = base.join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        let disk = Disk::start(Disk::THREADS).unwrap();
        let roots = vec![disk.place(&base.join("files"))];
        let site = |path: &str| {
            Arc::new(Site {
                name: "a".into(),
                hosts: Vec::new(),
                path: path.into(),
                place: disk.place(&base.join("site")),
                index: vec!["index.php".into(), "index.html".into()],
                front_controller: Some("index.php".into()),
                sendfile_roots: Some(roots.clone()),
                files: Arc::new(FileRules {
                    hidden: rules::Hidden::new(&rules::HIDDEN_FILES).unwrap(),
                    ..FileRules::default()
                }),
                compression: None,
                backend: Backend::Static,
                beside: None,
                metrics: Arc::default(),
                found: Lately::default(),
                rules: None,
                error_pages: ErrorPages::default(),
                access_log: None,
            })
        };
        let head = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        World {
            plain: site("/"),
            blog: site("/blog"),
            runtime: tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap(),
            head: parse(head).unwrap(),
            gather: Arc::default(),
            answers: Memory::default(),
            space: TempSpace::new(&disk),
            descriptors: Descriptors::new(FILES.len()),
            own: Own::default(),
            answer_files: AnswerFiles::new(FILES.len()),
            roots,
            base,
            _base: dir,
        }
    }

    fn site(&self, which: u8) -> &Arc<Site> {
        if which.is_multiple_of(2) { &self.plain } else { &self.blog }
    }

    fn keep(&self) -> Keep<'_> {
        Keep {
            gather: &self.gather,
            answers: &self.answers,
            space: &self.space,
            owner: Owner::new(None, &Limits::default()),
            files: Files { all: &self.descriptors, own: &self.own, client: None },
            answer_files: &self.answer_files,
            least_rate: 0,
        }
    }
}

fn parse(head: &[u8]) -> Option<Head> {
    Head::parse(head, &hayate_http::Limits::default()).ok()
}

fn with<T>(what: impl FnOnce(&World) -> T) -> T {
    thread_local!(static WORLD: RefCell<Option<World>> = const { RefCell::new(None) });
    WORLD.with(|world| what(world.borrow_mut().get_or_insert_with(World::new)))
}

/// Whatever a script writes into X-Accel-Redirect or X-Sendfile, no file outside of the site and its `sendfile_roots` is sent, and by the
/// first neither source nor dotfiles.
pub fn sent(input: &[u8]) {
    let [which, path @ ..] = input else { return };
    with(|world| {
        let absolute = which & 2 != 0;
        let path = match absolute {
            true => Bytes::from([world.base.as_os_str().as_encoded_bytes(), path].concat()),
            false => Bytes::copy_from_slice(path),
        };
        let (site, answer) = (world.site(*which), Answer::new(200));
        let sent =
            translate::send_file(site, &world.head, world.keep(), answer, &world.roots, absolute, &path);
        let reply = world.runtime.block_on(sent);
        if reply.answer.status() == 200 {
            let crate::reply::Body::Full(bytes) = &reply.body else { panic!("files here are small") };
            let may_be = |text: &str| bytes == text.as_bytes();
            assert!(may_be("public") || (absolute && may_be("source")), "{}", path.escape_ascii());
        }
    });
}

/// Rules and what they are asked, as in `cargo test`; and no spelling of a path leads past one.
pub fn rules(input: &[u8]) {
    let [one, two, rest @ ..] = input else { return };
    rules::fuzzed::one(&mut Random::new(u64::from(u16::from_be_bytes([*one, *two]))), rest);
    let raw = [b"/", rest].concat();
    with(|world| {
        let site = &world.plain;
        let (Some(path), false) = (route::normalise(&raw), rules::has_dots(&raw)) else { return };
        if rules::fuzzed::is_below(&path, "/admin") {
            return;
        }
        let admin = |path: &[u8]| path == b"/admin" || path.starts_with(b"/admin/");
        let said = raw.escape_ascii();
        match world.runtime.block_on(route::resolve(site, &path)) {
            Ok(route::Found::File(file)) => assert!(!admin(&file.path), "{said}"),
            Ok(route::Found::Script(script)) => {
                assert!(!script.file.starts_with(world.base.join("site/admin")), "{said}");
                assert!(!admin(&script.path_info), "{said}");
            }
            _ => {}
        }
    });
}

/// A weight in Accept-Encoding is what RFC 9110 says it is, and the coding that is taken is one that no other beats.
pub fn accepted(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (whole, digits) = text.split_once('.').unwrap_or((&text, ""));
    let plain = digits.len() <= 3 && digits.bytes().all(|b| b.is_ascii_digit());
    let number = text.parse::<f64>().ok().filter(|n| plain && matches!(whole, "0" | "1") && *n <= 1.0);
    let weight = compress::fuzzed::thousandths(input);
    assert_eq!(weight, number.map(|n| (n * 1000.0).round() as u16), "{text}");
    let value: Vec<u8> =
        input.iter().map(|b| if matches!(b, b'\r' | b'\n' | 0) { b',' } else { *b }).collect();
    let head = [b"GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: ", &value[..], b"\r\n\r\n"].concat();
    if let Some(head) = parse(&head) {
        compress::fuzzed::check(&head);
    }
}

/// A path has no dots and no NUL left, and is no longer than it came; a target is no longer than its parts, and its host is one.
pub fn target(input: &[u8]) {
    if let Some(path) = route::normalise(input) {
        assert_eq!(path.first(), Some(&b'/'));
        assert!(!path.contains(&0) && path.len() <= input.len());
        assert!(path.split(|b| *b == b'/').all(|segment| segment != b".." && segment != b"."));
    }
    if let Ok(target) = Target::parse(input) {
        assert!(target.path.len() + target.query.map_or(0, <[u8]>::len) <= input.len().max(1));
        assert!(target.authority.is_none_or(|host| Host::parse(host).is_some()));
    }
}

/// Hosts, and what proxies say of a client: no line ends them. The first two bytes say which field each line is.
pub fn forwarded(input: &[u8]) {
    const NAMES: [&str; 5] =
        ["x-forwarded-for", "forwarded", "x-forwarded-proto", "x-forwarded-host", "x-forwarded-port"];
    let [one, two, rest @ ..] = input else { return };
    let _ = Host::parse(rest);
    let mut random = Random::new(u64::from(u16::from_be_bytes([*one, *two])));
    let mut head = b"GET / HTTP/1.0\r\n".to_vec();
    for part in rest.split(|b| matches!(b, b'\n' | b'\r')) {
        head.extend([random.pick(&NAMES).as_bytes(), b":", part, b"\r\n"].concat());
    }
    head.extend(b"\r\n");
    if let Some(head) = parse(&head) {
        let trusted = ["10.0.0.0/8".parse().unwrap()];
        let all = TrustedHeaders { x_forwarded_host: true, forwarded: true, ..TrustedHeaders::default() };
        let _ = forwarded::read(&head, &trusted, all);
    }
}
