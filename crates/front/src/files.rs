//! Static files: validators, ranges, precompressed siblings.

use std::{
    borrow::Cow,
    ffi::OsStr,
    fs::File,
    io,
    os::{fd::AsRawFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use hayate_http::{Answer, Head, seconds};
use rustix::fs::fstat;

use crate::{
    answer_files::{AnswerFiles, Slot},
    compress::{Accept, Coding},
    date,
    disk::{Opened, Place, Running},
    file_body::{FileBody, Source},
    media_type,
    near::{Access, Meta, Miss, Near, miss_of, trouble},
    reply::{Body, Reply},
    request_body::Keep,
    route::Named,
    site::{FileRules, Site},
};

/// Files up to this size, in bytes, are read at once, while there is memory enough; larger ones in blocks, as the client takes them.
pub(crate) const SMALL: usize = 64 << 10;

/// The siblings of a file that hold it precompressed: which are there, and the one that the client takes.
fn packed(
    path: &[u8],
    head: &Head,
    near: Option<&Near>,
    files: &Access<'_>,
    began: u64,
) -> Result<(bool, Option<Packed>), Miss> {
    if near.is_some_and(|near| near.alone.has(path)) {
        return Ok((false, None));
    }
    // The smallest first.
    let mut there = Vec::new();
    for (coding, ending) in [(Coding::Brotli, &b".br"[..]), (Coding::Zstd, b".zst"), (Coding::Gzip, b".gz")] {
        let sibling = [path, ending].concat();
        match files.meta(&sibling) {
            Ok(meta) if meta.is_file() => there.push(Packed { sibling, coding }),
            Err(miss @ (Miss::Wait | Miss::Trouble(_))) => return Err(miss),
            _ => {}
        }
    }
    if there.is_empty() {
        near.inspect(|near| near.alone.add(path.to_vec(), began));
        return Ok((false, None));
    }
    let best = Accept::of(head).best(there.iter().map(|packed| packed.coding));
    Ok((true, there.into_iter().find(|packed| Some(packed.coding) == best)))
}

struct Packed {
    sibling: Vec<u8>,
    coding: Coding,
}

#[derive(Debug, PartialEq, Eq)]
enum Part {
    Whole,
    From(u64, u64), // first byte, length
    None,
}

/// One range of bytes (RFC 9110, 14.2); units have no case. Several ranges and malformed ones get the whole file, which is always allowed.
fn range(value: &str, size: u64) -> Part {
    let spec = value.split_once('=').filter(|(unit, _)| unit.eq_ignore_ascii_case("bytes"));
    let Some((first, last)) = spec.and_then(|(_, range)| range.split_once('-')) else {
        return Part::Whole;
    };
    let number = |text: &str| {
        (!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()))
            .then(|| text.parse().unwrap_or(u64::MAX))
    };
    match (first.trim(), last.trim()) {
        ("", last) => match number(last) {
            Some(0) => Part::None,
            Some(_) if size == 0 => Part::None,
            Some(n) => Part::From(size - n.min(size), n.min(size)),
            None => Part::Whole,
        },
        (first, last) => match (number(first), number(last)) {
            (Some(first), _) if last.is_empty() || number(last).is_some_and(|l| l >= first) => {
                if first >= size {
                    return Part::None;
                }
                let end = number(last).map_or(size, |l| l.saturating_add(1).min(size));
                Part::From(first, end - first)
            }
            _ => Part::Whole,
        },
    }
}

/// For the fuzzer: what a range gives lies within the file.
#[cfg(test)]
pub(crate) fn check_range(value: &str, size: u64) {
    if let Part::From(from, len) = range(value, size) {
        assert!(len > 0 && from.checked_add(len).is_some_and(|end| end <= size), "{value} of {size}");
    }
}

fn etag(meta: &Meta) -> String {
    // By hand: formatting costs ten times as much.
    let mut tag = String::with_capacity(2 * 16 + 3);
    tag.push('"');
    hexadecimal(&mut tag, meta.modified.cast_unsigned());
    tag.push('-');
    hexadecimal(&mut tag, meta.len);
    tag.push('"');
    tag
}

/// As `{:x}` has it.
fn hexadecimal(to: &mut String, number: u64) {
    let digits = (64 - number.leading_zeros()).div_ceil(4).max(1);
    for i in (0..digits).rev() {
        to.push(char::from_digit((number >> (4 * i)) as u32 & 15, 16).unwrap_or('0'));
    }
}

/// If-None-Match compares weakly: encoded answers have the tag of the file, marked as weak (RFC 9110, 8.8.3.2).
fn matches(list: &str, etag: &str) -> bool {
    list.trim() == "*"
        || list.split(',').map(str::trim).any(|item| item.strip_prefix("W/").unwrap_or(item) == etag)
}

/// If-Match compares strongly: what is weak never fits.
fn matches_strongly(list: &str, etag: &str) -> bool {
    list.trim() == "*" || list.split(',').any(|item| item.trim() == etag)
}

/// Why there is no file to send.
pub(crate) enum NoFile {
    Status(u16),
    /// The file system does not answer, or nothing is left to open a file with.
    Hangs(io::Error),
}

impl From<io::Error> for NoFile {
    fn from(error: io::Error) -> NoFile {
        NoFile::Hangs(error)
    }
}

/// Answers with a file of the site's place.
pub(crate) async fn serve(
    head: &Head,
    site: &Site,
    file: Named,
    keep: Keep<'_>,
) -> Result<Box<Reply>, NoFile> {
    let small = keep.answers.ready(SMALL) as u64;
    let (place, rules) = (&site.place, &site.files);
    let Named { path, opened, .. } = file;
    let near = place.near().root(place.path());
    let near = near.map(|root| {
        prepare(head, rules, At::below(place, &path, small, keep.answer_files), opened, &Access::Now(&root))
    });
    let prepared = match near {
        Some(Err(Miss::Wait)) | None => {
            let answers = Arc::clone(keep.answer_files);
            Box::pin(by_thread(head, site, path.clone(), small, answers)).await?
        }
        Some(prepared) => prepared,
    };
    finish(prepared, place, keep.answer_files)
}

fn by_thread(
    head: &Head,
    site: &Site,
    path: Vec<u8>,
    small: u64,
    answers: Arc<AnswerFiles>,
) -> Running<Result<Prepared, Miss>> {
    let (head, root, rules) = (head.clone(), Arc::clone(&site.place), Arc::clone(&site.files));
    site.place.begin(move || {
        let files = Access::Waiting(root.path());
        prepare(&head, &rules, At::below(&root, &path, small, &answers), None, &files)
    })
}

/// Answers with a file that a path of the machine names, if `allowed` finds its real path fit. `place` is where it seems to be.
pub(crate) async fn serve_absolute(
    head: &Head,
    site: &Site,
    place: &Arc<Place>,
    path: PathBuf,
    allowed: impl Fn(&Path) -> bool + Clone + Send + 'static,
    keep: Keep<'_>,
) -> Result<Box<Reply>, NoFile> {
    let small = keep.answers.ready(SMALL) as u64;
    let (head, rules, home) = (head.clone(), Arc::clone(&site.files), Arc::clone(&site.place));
    let (of_thread, answers) = (Arc::clone(place), Arc::clone(keep.answer_files));
    let prepared = place.begin(move || {
        let real = match std::fs::canonicalize(path) {
            Ok(real) if allowed(&real) => real,
            Err(error) if matches!(miss_of(&error), Miss::Trouble(_)) => return Err(miss_of(&error)),
            // Whoever asks does not learn which.
            _ => return Err(Miss::NotThere),
        };
        let at = At {
            place: &of_thread,
            home: home.path(),
            root: Path::new("/"),
            near: None,
            path: real.as_os_str().as_bytes(),
            small,
            allowed: Some(&allowed),
            answers: &answers,
        };
        prepare(&head, &rules, at, None, &Access::Waiting(Path::new("/")))
    });
    finish(prepared.await?, place, keep.answer_files)
}

/// What is to be sent, before there is a way to send it.
struct Prepared {
    answer: Answer,
    content: Content,
}

enum Content {
    /// None, and no word of its length.
    None,
    /// The client has it: of this type, and so many bytes.
    Same(Cow<'static, str>, u64),
    /// So many bytes, which are not wanted.
    Left(u64),
    Small(Bytes),
    Large {
        slot: Arc<Slot>,
        source: Source,
        from: u64,
        len: u64,
    },
}

fn finish(
    prepared: Result<Prepared, Miss>,
    place: &Arc<Place>,
    files: &Arc<AnswerFiles>,
) -> Result<Box<Reply>, NoFile> {
    let prepared = prepared.map_err(|miss| match miss {
        Miss::NotThere => NoFile::Status(404),
        Miss::Forbidden => NoFile::Status(403),
        Miss::Wait => NoFile::Status(500),
        Miss::Changed => NoFile::Status(503),
        Miss::Trouble(error) => NoFile::Hangs(trouble(error)),
    })?;
    if prepared.answer.status() == PRECONDITION_FAILED {
        return Err(NoFile::Status(PRECONDITION_FAILED));
    }
    let mut same = None;
    let body = match prepared.content {
        Content::None => Body::None,
        Content::Same(kind, size) => {
            same = Some((kind, size));
            Body::None
        }
        Content::Left(len) => Body::Left(len),
        Content::Small(bytes) => Body::Full(bytes),
        Content::Large { slot, source, from, len } => {
            Body::File(FileBody::new(slot, source, from, len, Arc::clone(place), Arc::clone(files)))
        }
    };
    let mut reply = Reply::new(prepared.answer, body);
    reply.same = same;
    Ok(reply)
}

/// Where a file is to be found.
#[derive(Clone, Copy)]
struct At<'a> {
    /// Whose threads it needs.
    place: &'a Arc<Place>,
    root: &'a Path,
    /// The document root.
    home: &'a Path,
    /// What is known of the root.
    near: Option<&'a Near>,
    path: &'a [u8],
    /// Asked of the place of what was opened: a name may have become another file's since, and what is packed has a name of its own.
    allowed: Option<&'a dyn Fn(&Path) -> bool>,
    /// Bytes up to which it is read at once.
    small: u64,
    /// Where it is kept open if it is larger.
    answers: &'a Arc<AnswerFiles>,
}

impl<'a> At<'a> {
    fn below(place: &'a Arc<Place>, path: &'a [u8], small: u64, answers: &'a Arc<AnswerFiles>) -> At<'a> {
        let root = place.path();
        At { place, root, home: root, near: Some(place.near()), path, small, allowed: None, answers }
    }
}

const PRECONDITION_FAILED: u16 = 412;
/// Bytes of a file's fields, nearly always.
const FIELDS: usize = 192;

/// How often a file is read that changes meanwhile.
const TRIES: usize = 3;

/// What is small is sent as it was at one time, with the length and the tag that it had then. What changes all the time, or is not as long
/// as it says (the kernel's own files), is sent as it was read, and nothing is said that a cache could go by.
fn prepare(
    head: &Head,
    rules: &FileRules,
    at: At<'_>,
    mut opened: Option<(File, Meta)>,
    files: &Access<'_>,
) -> Result<Prepared, Miss> {
    let mut tries = (0..TRIES).map(|_| prepare_once(head, rules, at, opened.take(), files, false));
    match tries.find(|tried| !matches!(tried, Err(Miss::Changed))) {
        Some(prepared) => prepared,
        // Once more, later.
        None if matches!(files, Access::Now(_)) => Err(Miss::Wait),
        None => prepare_once(head, rules, at, None, files, true),
    }
}

fn prepare_once(
    head: &Head,
    rules: &FileRules,
    At { place, root, home, near, path, small, allowed, answers }: At<'_>,
    opened: Option<(File, Meta)>,
    files: &Access<'_>,
    changes: bool,
) -> Result<Prepared, Miss> {
    let began = seconds();
    let mut out = Answer::with_room(200, FIELDS);
    let answer = |answer, content| Ok(Prepared { answer, content });
    let (any_packed, packed) = packed(path, head, near, files, began)?;
    let (file, meta) = match (&packed, opened) {
        (Some(packed), _) => files.open(&packed.sibling)?,
        (None, Some(opened)) => opened,
        (None, None) => files.open(path)?,
    };
    let real = || std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok();
    // What is not to be had is not to be had packed either.
    let mut names = [path].into_iter().chain(packed.as_ref().map(|packed| &packed.sibling[..]));
    if !names.all(|name| rules.may_be_called(root, name)) {
        return Err(Miss::NotThere);
    }
    if allowed.is_some_and(|allowed| !real().is_some_and(|real| allowed(&real))) {
        return Err(Miss::NotThere);
    }
    rules.may_send(home, &meta, began, matches!(files, Access::Waiting(_)), real)?;
    if let Some(packed) = &packed {
        insert(&mut out, "content-encoding", packed.coding.name());
    }
    if any_packed {
        // Another client could get another one: caches must know.
        insert(&mut out, "vary", "Accept-Encoding");
    }
    let (tag, date) = (etag(&meta), date::http(meta.modified));
    insert(&mut out, "etag", &tag);
    if let Some(date) = &date {
        insert(&mut out, "last-modified", date);
    }

    let text = |name: &'static str| head.get(name.as_bytes()).and_then(|v| std::str::from_utf8(v).ok());
    let since = |name| text(name).and_then(date::parse);
    // RFC 9110, 13.2.2: first whether the client's idea of the file still holds, then whether it has it already.
    let stale = match text("if-match") {
        Some(list) => !matches_strongly(list, &tag),
        None => since("if-unmodified-since").is_some_and(|since| meta.modified > since),
    };
    if stale {
        out.set_status(PRECONDITION_FAILED);
        return answer(out, Content::None);
    }
    let unchanged = match text("if-none-match") {
        Some(list) => matches(list, &tag),
        None => since("if-modified-since").is_some_and(|since| meta.modified <= since),
    };
    let size = meta.len;
    let kind = media_type::of(Path::new(OsStr::from_bytes(path)), rules.charset.as_deref());
    let kind = kind.unwrap_or("application/octet-stream".into());
    if unchanged {
        out.set_status(304);
        return answer(out, Content::Same(kind, size));
    }
    insert(&mut out, "accept-ranges", "bytes");
    let fresh = text("if-range").is_none_or(|v| v == tag || Some(v) == date.as_deref());
    let part = match text("range") {
        Some(value) if fresh => range(value, size),
        _ => Part::Whole,
    };
    let (from, len) = match part {
        Part::Whole => (0, size),
        Part::From(from, len) => {
            let last = from.saturating_add(len).saturating_sub(1);
            insert(&mut out, "content-range", &format!("bytes {from}-{last}/{size}"));
            out.set_status(206);
            (from, len)
        }
        Part::None => {
            insert(&mut out, "content-range", &format!("bytes */{size}"));
            out.set_status(416);
            return answer(out, Content::Left(0));
        }
    };
    insert(&mut out, "content-type", &kind);
    // For a HEAD as well: whether a small one is encoded shows when that is done.
    let content = if size <= small {
        let all = Bytes::from(files.read(&file, size as usize)?);
        if all.len() as u64 != size || Meta::of(&fstat(&file).map_err(Miss::Trouble)?) != meta {
            if !changes {
                return Err(Miss::Changed);
            }
            out.set_status(200);
            for field in ["etag", "last-modified", "accept-ranges", "content-range"] {
                out.remove(field.as_bytes());
            }
            return answer(out, Content::Small(all));
        }
        let end = from.saturating_add(len).min(size);
        Content::Small(hayate_http::part(&all, from.min(end) as usize..end as usize))
    } else if head.method() == b"HEAD" {
        Content::Left(len)
    } else {
        let near = matches!(files, Access::Now(_));
        let path = packed.as_ref().map_or(path, |packed| &packed.sibling).to_owned();
        let source = Source { root: root.to_owned(), path, meta, near };
        let slot = Arc::default();
        // By whoever has opened it: what waits for its answer to go on is not open beside those that are kept.
        answers.keep(&slot, Opened::new(file, near, Arc::clone(place), None));
        Content::Large { slot, source, from, len }
    };
    answer(out, content)
}

/// Values here are made of numbers and constants, or come from the configuration, which was checked: none is malformed.
fn insert(answer: &mut Answer, name: &str, value: &str) {
    let _ = answer.add(name.as_bytes(), value.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_hexadecimal() {
        for number in [0, 1, 15, 16, 0xabc, 1_795_000_000, u64::MAX, (-1i64).cast_unsigned(), 1 << 63] {
            let mut tag = String::new();
            hexadecimal(&mut tag, number);
            assert_eq!(tag, format!("{number:x}"));
        }
    }

    #[test]
    fn ranges() {
        for (value, want) in [
            ("bytes=0-4", Part::From(0, 5)),
            ("bytes=9-", Part::From(9, 1)),
            ("bytes=-3", Part::From(7, 3)),
            ("bytes=-30", Part::From(0, 10)),
            ("BYTES=0-1", Part::From(0, 2)),
            ("Bytes=-3", Part::From(7, 3)),
            ("bytes=5-100", Part::From(5, 5)),
            ("bytes=5-99999999999999999999999", Part::From(5, 5)),
            ("bytes=10-", Part::None),
            ("bytes=-0", Part::None),
            ("bytes=4-2", Part::Whole),
            ("bytes=a-b", Part::Whole),
            ("bytes=0-1,3-4", Part::Whole),
            ("bytes=-", Part::Whole),
            ("lines=0-1", Part::Whole),
            ("bytes 0-1", Part::Whole),
            ("bytes==0-1", Part::Whole),
        ] {
            assert_eq!(range(value, 10), want, "{value}");
        }
        assert_eq!(range("bytes=-5", 0), Part::None);
    }
}
