//! Field sections (RFC 9204), without a dynamic table: this server announces none, so nothing in one section depends on another, and no stream
//! waits for another one.
//!
//! It promises: what is decoded is no larger than it was allowed to be, and each byte is looked at once. It knows the coding only; which
//! fields make a request is [`super::request`]'s.

use octets::{Octets, OctetsMut};

/// What a field costs besides its name and its value (RFC 9114, 4.2.2).
pub(super) const FIELD_COST: usize = 32;
/// Above any index and any length that can be.
const LARGEST: usize = 1 << 30;

/// Why a section was not decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failed {
    /// It is none, or wants a dynamic table.
    Malformed,
    /// Its fields are larger than allowed.
    TooLarge,
}

/// Gives each field of a section to `each`, in order, as far as they come to `limit` bytes (RFC 9114, 4.2.2).
pub(super) fn decode(section: &[u8], limit: usize, mut each: impl FnMut(&[u8], &[u8])) -> Result<(), Failed> {
    let mut input = section;
    // Required Insert Count, and Base, which may not be negative (4.5.1).
    if integer(&mut input, 8)? != 0 || first(input)? & 0x80 != 0 {
        return Err(Failed::Malformed);
    }
    integer(&mut input, 7)?;
    let mut left = limit;
    while let Some(kind) = input.first() {
        let (name, value);
        let (own_name, own_value);
        if kind & 0xc0 == 0xc0 {
            (name, value) = entry(integer(&mut input, 6)?)?;
        } else if kind & 0xf0 == 0x50 || kind & 0xf0 == 0x70 {
            name = entry(integer(&mut input, 4)?)?.0;
            own_value = string(&mut input, 7)?;
            value = own_value.as_slice();
        } else if kind & 0xe0 == 0x20 {
            own_name = string(&mut input, 3)?;
            own_value = string(&mut input, 7)?;
            (name, value) = (own_name.as_slice(), own_value.as_slice());
        } else {
            // All others refer to a dynamic table.
            return Err(Failed::Malformed);
        }
        let size = name.len().saturating_add(value.len()).saturating_add(FIELD_COST);
        left = left.checked_sub(size).ok_or(Failed::TooLarge)?;
        each(name, value);
    }
    Ok(())
}

/// A section of these fields, whose names are in lower case, and its size (RFC 9114, 4.2.2).
pub(super) fn encode<'a>(fields: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> (Vec<u8>, usize) {
    let (mut section, mut size) = (vec![0, 0], 0usize);
    for (name, value) in fields {
        size = size.saturating_add(name.len()).saturating_add(value.len()).saturating_add(FIELD_COST);
        let named = || TABLE.iter().enumerate().filter(|(_, entry)| entry.0.as_bytes() == name);
        if let Some((index, _)) = named().find(|(_, entry)| entry.1.as_bytes() == value) {
            put_integer(&mut section, 0xc0, 6, index);
            continue;
        }
        match named().next() {
            Some((index, _)) => put_integer(&mut section, 0x50, 4, index),
            None => put_string(&mut section, 0x20, 3, name),
        }
        put_string(&mut section, 0, 7, value);
    }
    (section, size)
}

fn first(input: &[u8]) -> Result<u8, Failed> {
    input.first().copied().ok_or(Failed::Malformed)
}

fn entry(index: usize) -> Result<(&'static [u8], &'static [u8]), Failed> {
    let (name, value) = TABLE.get(index).ok_or(Failed::Malformed)?;
    Ok((name.as_bytes(), value.as_bytes()))
}

/// An integer in the last `bits` bits of a byte, and in those that follow (RFC 7541, 5.1).
fn integer(input: &mut &[u8], bits: u32) -> Result<usize, Failed> {
    let most = (1 << bits) - 1;
    let mut value = usize::from(first(input)?) & most;
    *input = input.get(1..).unwrap_or_default();
    if value < most {
        return Ok(value);
    }
    // Four more bytes hold what is below LARGEST.
    for shift in [0, 7, 14, 21] {
        let byte = first(input)?;
        *input = input.get(1..).unwrap_or_default();
        value += usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return if value < LARGEST { Ok(value) } else { Err(Failed::Malformed) };
        }
    }
    Err(Failed::Malformed)
}

/// A string whose length stands in the last `bits` bits of a byte, and before them whether it is in Huffman's code.
fn string(input: &mut &[u8], bits: u32) -> Result<Vec<u8>, Failed> {
    let coded = first(input)? & 1 << bits != 0;
    let len = integer(input, bits)?;
    let (Some(text), Some(rest)) = (input.get(..len), input.get(len..)) else {
        return Err(Failed::Malformed);
    };
    *input = rest;
    if coded {
        Octets::with_slice(text).get_huffman_decoded().map_err(|_| Failed::Malformed)
    } else {
        Ok(text.to_vec())
    }
}

fn put_integer(section: &mut Vec<u8>, flags: u8, bits: u32, mut value: usize) {
    let most = (1usize << bits) - 1;
    if value < most {
        section.push(flags | value as u8);
        return;
    }
    section.push(flags | most as u8);
    value -= most;
    while value >= 0x80 {
        section.push(value as u8 | 0x80);
        value >>= 7;
    }
    section.push(value as u8);
}

fn put_string(section: &mut Vec<u8>, flags: u8, bits: u32, text: &[u8]) {
    let coded = octets::huffman_encoding_len::<false>(text).ok().filter(|len| *len < text.len());
    let Some(len) = coded else {
        put_integer(section, flags, bits, text.len());
        section.extend_from_slice(text);
        return;
    };
    let mut code = vec![0; len];
    if OctetsMut::with_slice(&mut code).put_huffman_encoded::<false>(text).is_err() {
        // It has the length that it said; were it not so, the text stands as it is.
        put_integer(section, flags, bits, text.len());
        section.extend_from_slice(text);
        return;
    }
    put_integer(section, flags | 1 << bits, bits, len);
    section.extend_from_slice(&code);
}

/// RFC 9204, appendix A.
#[rustfmt::skip]
const TABLE: [(&str, &str); 99] = [
    (":authority", ""),
    (":path", "/"),
    ("age", "0"),
    ("content-disposition", ""),
    ("content-length", "0"),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("referer", ""),
    ("set-cookie", ""),
    (":method", "CONNECT"),
    (":method", "DELETE"),
    (":method", "GET"),
    (":method", "HEAD"),
    (":method", "OPTIONS"),
    (":method", "POST"),
    (":method", "PUT"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "103"),
    (":status", "200"),
    (":status", "304"),
    (":status", "404"),
    (":status", "503"),
    ("accept", "*/*"),
    ("accept", "application/dns-message"),
    ("accept-encoding", "gzip, deflate, br"),
    ("accept-ranges", "bytes"),
    ("access-control-allow-headers", "cache-control"),
    ("access-control-allow-headers", "content-type"),
    ("access-control-allow-origin", "*"),
    ("cache-control", "max-age=0"),
    ("cache-control", "max-age=2592000"),
    ("cache-control", "max-age=604800"),
    ("cache-control", "no-cache"),
    ("cache-control", "no-store"),
    ("cache-control", "public, max-age=31536000"),
    ("content-encoding", "br"),
    ("content-encoding", "gzip"),
    ("content-type", "application/dns-message"),
    ("content-type", "application/javascript"),
    ("content-type", "application/json"),
    ("content-type", "application/x-www-form-urlencoded"),
    ("content-type", "image/gif"),
    ("content-type", "image/jpeg"),
    ("content-type", "image/png"),
    ("content-type", "text/css"),
    ("content-type", "text/html; charset=utf-8"),
    ("content-type", "text/plain"),
    ("content-type", "text/plain;charset=utf-8"),
    ("range", "bytes=0-"),
    ("strict-transport-security", "max-age=31536000"),
    ("strict-transport-security", "max-age=31536000; includesubdomains"),
    ("strict-transport-security", "max-age=31536000; includesubdomains; preload"),
    ("vary", "accept-encoding"),
    ("vary", "origin"),
    ("x-content-type-options", "nosniff"),
    ("x-xss-protection", "1; mode=block"),
    (":status", "100"),
    (":status", "204"),
    (":status", "206"),
    (":status", "302"),
    (":status", "400"),
    (":status", "403"),
    (":status", "421"),
    (":status", "425"),
    (":status", "500"),
    ("accept-language", ""),
    ("access-control-allow-credentials", "FALSE"),
    ("access-control-allow-credentials", "TRUE"),
    ("access-control-allow-headers", "*"),
    ("access-control-allow-methods", "get"),
    ("access-control-allow-methods", "get, post, options"),
    ("access-control-allow-methods", "options"),
    ("access-control-expose-headers", "content-length"),
    ("access-control-request-headers", "content-type"),
    ("access-control-request-method", "get"),
    ("access-control-request-method", "post"),
    ("alt-svc", "clear"),
    ("authorization", ""),
    ("content-security-policy", "script-src 'none'; object-src 'none'; base-uri 'none'"),
    ("early-data", "1"),
    ("expect-ct", ""),
    ("forwarded", ""),
    ("if-range", ""),
    ("origin", ""),
    ("purpose", "prefetch"),
    ("server", ""),
    ("timing-allow-origin", "*"),
    ("upgrade-insecure-requests", "1"),
    ("user-agent", ""),
    ("x-forwarded-for", ""),
    ("x-frame-options", "deny"),
    ("x-frame-options", "sameorigin"),
];

#[cfg(test)]
mod tests {
    use super::*;

    type Fields = Vec<(Vec<u8>, Vec<u8>)>;

    fn decoded(section: &[u8], limit: usize) -> Result<Fields, Failed> {
        let mut fields = Vec::new();
        decode(section, limit, |name, value| fields.push((name.to_vec(), value.to_vec())))?;
        Ok(fields)
    }

    fn one(section: &[u8]) -> Result<(String, String), Failed> {
        let mut fields = decoded(section, 1000)?;
        assert_eq!(fields.len(), 1);
        let (name, value) = fields.remove(0);
        Ok((String::from_utf8(name).unwrap(), String::from_utf8(value).unwrap()))
    }

    #[test]
    fn the_examples_of_the_rfc_are_decoded() {
        // B.1; and C.4.1 of RFC 7541 for Huffman's code.
        let said = one(b"\x00\x00\x51\x0b/index.html").unwrap();
        assert_eq!(said, (":path".to_owned(), "/index.html".to_owned()));
        let coded = b"\x00\x00\x50\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff";
        assert_eq!(one(coded).unwrap(), (":authority".to_owned(), "www.example.com".to_owned()));
        assert_eq!(one(b"\x00\x00\xd1").unwrap(), (":method".to_owned(), "GET".to_owned()));
        assert_eq!(
            one(b"\x00\x00\xff\x23").unwrap(),
            ("x-frame-options".to_owned(), "sameorigin".to_owned())
        );
        assert_eq!(one(b"\x00\x00\x23x-a\x01b").unwrap(), ("x-a".to_owned(), "b".to_owned()));
        assert_eq!(decoded(b"\x00\x00", 0), Ok(Vec::new()));
    }

    #[test]
    fn what_is_no_section_is_refused() {
        for section in [
            &b""[..],
            b"\x00",
            // A dynamic table, in each way.
            b"\x01\x00\x80",
            b"\x00\x80\xd1",
            b"\x00\x00\x80",
            b"\x00\x00\x40\x01a",
            b"\x00\x00\x60\x01a",
            b"\x00\x00\x10",
            b"\x00\x00\x00\x01a",
            // Beyond the table; cut; lengths without end; padding of Huffman's that is none.
            b"\x00\x00\xff\x24",
            b"\x00\x00\xff",
            b"\x00\x00\x51",
            b"\x00\x00\x51\x0babc",
            b"\x00\x00\xff\x80\x80\x80\x80\x80\x80\x00",
            b"\x00\x00\x51\x7f\xff\xff\xff\xff\xff\xff\x0f",
            b"\x00\x00\x51\x82\x00\x00",
            b"\x00\x00\x51\x84\xff\xff\xff\xff",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        ] {
            assert_eq!(decoded(section, 1000), Err(Failed::Malformed), "{section:02x?}");
        }
    }

    #[test]
    fn its_size_is_bounded() {
        let (section, size) = encode([(&b"a"[..], &b"1234"[..]), (b"bc", b"")].into_iter());
        assert_eq!(size, 1 + 4 + 32 + 2 + 32);
        assert!(decoded(&section, size).is_ok());
        assert_eq!(decoded(&section, size - 1), Err(Failed::TooLarge));
        // A byte for each field, which would be some 40.
        let bomb = [&[0, 0][..], &[0xd1; 5000]].concat();
        assert_eq!(decoded(&bomb, 32 << 10), Err(Failed::TooLarge));
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let long = "x".repeat(70_000);
        let odd: Vec<u8> = (0..=255).collect();
        let fields: Vec<(&[u8], &[u8])> = vec![
            (b":status", b"200"),
            (b":status", b"418"),
            (b"content-type", b"text/html; charset=utf-8"),
            (b"set-cookie", b"a=b; Path=/"),
            (b"x-own-header-of-some-length", b""),
            (b"x", long.as_bytes()),
            (b"odd", &odd),
        ];
        let (section, size) = encode(fields.iter().copied());
        let back = decoded(&section, size).unwrap();
        let back: Vec<_> = back.iter().map(|(name, value)| (name.as_slice(), value.as_slice())).collect();
        assert_eq!(back, fields);
    }

    #[test]
    fn fuzz_sections() {
        let seeds: [&[u8]; 2] = [
            b"\x00\x00\xd1\xd7\x50\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff\x51\x0b/index.html",
            b"\x00\x00\x23x-a\x01b\x2a\x94\xe7\x01c\xff\x23",
        ];
        let pieces: [&[u8]; 5] = [b"\xff\x80\x80", b"\x50\x8c\xf1", b"\x27\x00a", b"\x7f\xff\x01", b"\xd1"];
        hayate_fuzz::run("field sections", &seeds, &pieces, |_, input| super::super::fuzzed::fields(input));
    }
}
