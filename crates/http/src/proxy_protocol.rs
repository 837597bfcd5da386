//! The PROXY protocol, versions 1 and 2: what a proxy says of its client before the client's first byte
//! (<https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt>).
//!
//! Whether the peer may say so is the caller's affair. Not one byte beyond the header is read; its length and its time are bounded.

use std::{
    future::poll_fn,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    pin::Pin,
};

use tokio::io::{AsyncRead, ReadBuf};

use crate::{Clock, Io, Limits, Wait};

/// The longest header of version 1 (its specification, 2.1), line end included.
const LONGEST_1: usize = 107;
/// The longest of version 2, with its extensions; those that are known take some 300 bytes.
const LONGEST_2: usize = 4096;
/// No header is shorter: `PROXY UNKNOWN\r\n`.
const SHORTEST: usize = 15;
/// What version 2 begins with.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// Both ends of the connection that the proxy has with its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// The client.
    pub source: SocketAddr,
    /// What the client connected to.
    pub destination: SocketAddr,
}

/// A header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    /// The connection is the proxy's own (a check of health), or of a kind that has no addresses: those of the socket hold.
    Local,
    /// It is a client's.
    Client(Addresses),
}

/// Why there is none.
#[derive(Debug)]
pub enum Error {
    /// The proxy left, or its connection failed.
    Left(io::Error),
    /// What came is no such header.
    Malformed(&'static str),
}

/// What the bytes so far are.
#[derive(Debug, PartialEq, Eq)]
enum Progress {
    /// So many more are certain to be the header's.
    Wants(usize),
    /// More of a line whose end is unknown.
    WantsLine,
    Whole(Header),
}

/// Reads a header, and nothing beyond it. To be dropped when the clock is late.
pub async fn read(io: &mut Io, limits: &Limits, clock: &Clock) -> Result<Header, Error> {
    clock.wait(Wait::Handshake, limits);
    let mut got = Vec::with_capacity(128);
    loop {
        let most = match parse(&got).map_err(Error::Malformed)? {
            Progress::Whole(header) => return Ok(header),
            Progress::Wants(n) => n,
            Progress::WantsLine => {
                // As far as the line is there; without its end all that is there belongs to it.
                let mut seen = [0; LONGEST_1];
                let n = poll_fn(|cx| io.poll_peek(&mut seen, cx)).await.map_err(Error::Left)?;
                let seen = seen.get(..n).unwrap_or_default();
                memchr::memchr(b'\n', seen).map_or(n, |end| end + 1).max(1)
            }
        };
        let from = got.len();
        got.resize(from.saturating_add(most), 0);
        let mut to = ReadBuf::new(got.get_mut(from..).unwrap_or_default());
        poll_fn(|cx| Pin::new(&mut *io).poll_read(cx, &mut to)).await.map_err(Error::Left)?;
        let n = to.filled().len();
        if n == 0 {
            return Err(Error::Left(io::ErrorKind::UnexpectedEof.into()));
        }
        got.truncate(from.saturating_add(n));
    }
}

fn parse(got: &[u8]) -> Result<Progress, &'static str> {
    if got.is_empty() {
        return Ok(Progress::Wants(SHORTEST));
    }
    let begins = |what: &[u8]| got.iter().zip(what).all(|(one, other)| one == other);
    if begins(SIGNATURE) {
        return parse_2(got);
    }
    if !begins(b"PROXY ") {
        return Err("no PROXY header");
    }
    if got.len() < SHORTEST {
        return Ok(Progress::Wants(SHORTEST - got.len()));
    }
    match got.strip_suffix(b"\r\n") {
        _ if got.len() > LONGEST_1 => Err("the PROXY header is too long"),
        Some(line) => parse_1(line).map(Progress::Whole),
        None if got.contains(&b'\n') => Err("the PROXY header's line does not end in CR LF"),
        None if got.len() >= LONGEST_1 => Err("the PROXY header is too long"),
        None => Ok(Progress::WantsLine),
    }
}

fn parse_1(line: &[u8]) -> Result<Header, &'static str> {
    const MALFORMED: &str = "a malformed PROXY header of version 1";
    let line = std::str::from_utf8(line).map_err(|_| MALFORMED)?;
    let mut words = line.split(' ').skip(1);
    let kind = words.next().ok_or(MALFORMED)?;
    if kind == "UNKNOWN" {
        // What follows means nothing (2.1).
        return Ok(Header::Local);
    }
    let mut ip = || -> Result<IpAddr, &'static str> {
        let word = words.next().ok_or(MALFORMED)?;
        match kind {
            "TCP4" => word.parse::<Ipv4Addr>().map(IpAddr::from).map_err(|_| MALFORMED),
            "TCP6" => word.parse::<Ipv6Addr>().map(IpAddr::from).map_err(|_| MALFORMED),
            _ => Err(MALFORMED),
        }
    };
    let (source, destination) = (ip()?, ip()?);
    let mut port = || -> Result<u16, &'static str> {
        let word = words.next().ok_or(MALFORMED)?;
        let plain = word.bytes().all(|b| b.is_ascii_digit()) && (word == "0" || !word.starts_with('0'));
        if plain { word.parse().map_err(|_| MALFORMED) } else { Err(MALFORMED) }
    };
    let (source, destination) = (SocketAddr::new(source, port()?), SocketAddr::new(destination, port()?));
    if words.next().is_some() {
        return Err(MALFORMED);
    }
    Ok(Header::Client(Addresses { source, destination }))
}

fn parse_2(got: &[u8]) -> Result<Progress, &'static str> {
    let Some((head, rest)) = got.split_first_chunk::<16>() else {
        return Ok(Progress::Wants(16 - got.len()));
    };
    let [.., version, family, high, low] = *head;
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length > LONGEST_2 - 16 {
        return Err("the PROXY header is too long");
    }
    if version >> 4 != 2 {
        return Err("a PROXY header of an unknown version");
    }
    if rest.len() < length {
        return Ok(Progress::Wants(length - rest.len()));
    }
    let header = match (version & 15, family) {
        // LOCAL
        (0, _) => Header::Local,
        // PROXY, TCP over IPv4 and IPv6.
        (1, 0x11) => {
            let (ends, ports) = take::<8>(rest)?;
            let (ports, _) = take::<4>(ports)?;
            let [a, b, c, d, e, f, g, h] = *ends;
            ends_of(Ipv4Addr::new(a, b, c, d).into(), Ipv4Addr::new(e, f, g, h).into(), ports)
        }
        (1, 0x21) => {
            let (source, rest) = take::<16>(rest)?;
            let (destination, ports) = take::<16>(rest)?;
            let (ports, _) = take::<4>(ports)?;
            ends_of(Ipv6Addr::from(*source).into(), Ipv6Addr::from(*destination).into(), ports)
        }
        // Unix sockets, datagrams, and what is unspecified: accepted, without addresses (2.2).
        (1, _) if family >> 4 <= 3 && family & 15 <= 2 => Header::Local,
        _ => return Err("a PROXY header of an unknown command or family"),
    };
    Ok(Progress::Whole(header))
}

fn take<const N: usize>(bytes: &[u8]) -> Result<(&[u8; N], &[u8]), &'static str> {
    bytes.split_first_chunk().ok_or("a PROXY header without its addresses")
}

fn ends_of(source: IpAddr, destination: IpAddr, &[a, b, c, d]: &[u8; 4]) -> Header {
    Header::Client(Addresses {
        source: SocketAddr::new(source, u16::from_be_bytes([a, b])),
        destination: SocketAddr::new(destination, u16::from_be_bytes([c, d])),
    })
}

/// Byte by byte as at one time: the same header, which takes the same bytes.
#[cfg(any(test, feature = "fuzzed"))]
#[allow(clippy::panic, clippy::unwrap_used)]
pub(crate) fn fuzzed(input: &[u8]) {
    let outcome = |step: usize| {
        let mut end = 0;
        loop {
            match parse(input.get(..end).unwrap()) {
                Err(_) => return None,
                Ok(Progress::Whole(header)) => return Some((header, end)),
                Ok(Progress::Wants(n)) => {
                    assert!(n > 0 && n <= LONGEST_2);
                    end += n.min(step);
                }
                Ok(Progress::WantsLine) => {
                    let rest = input.get(end..).unwrap_or_default();
                    let line = rest.iter().position(|b| *b == b'\n').map_or(rest.len(), |at| at + 1);
                    end += line.clamp(1, step.max(1)).min(LONGEST_1);
                }
            }
            if end > input.len() {
                return None;
            }
        }
    };
    let (slow, fast) = (outcome(1), outcome(usize::MAX));
    if let (Some(one), Some(other)) = (slow, fast) {
        assert_eq!(one, other);
    }
}

#[cfg(test)]
mod tests {
    use tokio::{io::AsyncReadExt, io::AsyncWriteExt, net::UnixStream};

    use super::*;

    fn client(source: &str, destination: &str) -> Header {
        Header::Client(Addresses {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
        })
    }

    fn two(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = SIGNATURE.to_vec();
        bytes.extend([command, family]);
        bytes.extend(u16::try_from(body.len()).unwrap().to_be_bytes());
        bytes.extend(body);
        bytes
    }

    /// The header, and what is left of the stream; it comes in pieces of so many bytes.
    fn play(input: &[u8], piece: usize) -> Result<(Header, Vec<u8>), String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (one, mut other) = UnixStream::pair().unwrap();
            let mut io = Io::Unix(one);
            let write = async {
                for bytes in input.chunks(piece) {
                    if other.write_all(bytes).await.is_err() {
                        break;
                    }
                    tokio::task::yield_now().await;
                }
                other
            };
            let read = async {
                let header =
                    read(&mut io, &Limits::default(), &Clock::default()).await.map_err(|error| match error {
                        Error::Malformed(why) => why.to_owned(),
                        Error::Left(_) => "left".to_owned(),
                    });
                (header, io)
            };
            // The end of the stream is the writer's drop.
            let ((header, mut io), _) = tokio::join!(read, async { drop(write.await) });
            let mut rest = Vec::new();
            let header = header?;
            io.read_to_end(&mut rest).await.map_err(|error| error.to_string())?;
            Ok((header, rest))
        })
    }

    #[test]
    fn headers_of_both_versions() {
        let v4 = two(0x21, 0x11, &[192, 0, 2, 1, 198, 51, 100, 7, 0x30, 0x39, 0x01, 0xbb]);
        let mut with_extension = two(0x21, 0x21, &[0; 39]);
        with_extension[16..32].copy_from_slice(&"2001:db8::1".parse::<Ipv6Addr>().unwrap().octets());
        for (header, expected) in [
            (
                b"PROXY TCP4 192.0.2.1 198.51.100.7 12345 443\r\n".to_vec(),
                client("192.0.2.1:12345", "198.51.100.7:443"),
            ),
            (
                b"PROXY TCP6 2001:db8::1 2001:db8::2 1 65535\r\n".to_vec(),
                client("[2001:db8::1]:1", "[2001:db8::2]:65535"),
            ),
            (b"PROXY UNKNOWN\r\n".to_vec(), Header::Local),
            (b"PROXY UNKNOWN whatever this is\r\n".to_vec(), Header::Local),
            (v4, client("192.0.2.1:12345", "198.51.100.7:443")),
            (with_extension, client("[2001:db8::1]:0", "[::]:0")),
            (two(0x20, 0, &[]), Header::Local),
            (two(0x21, 0x31, &[0; 216]), Header::Local),
        ] {
            for piece in [1, 2, 7, 1000] {
                let input = [&header[..], b"GET / HTTP/1.1\r\n\r\n"].concat();
                let played = play(&input, piece).unwrap();
                assert_eq!(played, (expected, b"GET / HTTP/1.1\r\n\r\n".to_vec()), "{header:?} by {piece}");
            }
        }
    }

    #[test]
    fn what_is_no_header_is_refused_at_once() {
        for wrong in [
            &b"GET / HTTP/1.1\r\n\r\n"[..],
            b"PROXY TCP4 192.0.2.1 198.51.100.7 12345\r\n",
            b"PROXY TCP4 192.0.2.1 198.51.100.7 12345 443 1\r\n",
            b"PROXY TCP4 192.0.2.1 198.51.100.7 12345 65536\r\n",
            b"PROXY TCP4 192.0.2.1 198.51.100.7 +1 443\r\n",
            b"PROXY TCP4 192.0.2.1 198.51.100.7 01 443\r\n",
            b"PROXY TCP4 ::1 ::1 1 2\r\n",
            b"PROXY TCP6 1.2.3.4 1.2.3.4 1 2\r\n",
            b"PROXY TCP4 192.0.2.1  198.51.100.7 1 443\r\n",
            b"PROXY TCP4 192.0.2.1 198.51.100.7 1 443\n",
            b"PROXY UDP4 192.0.2.1 198.51.100.7 1 443\r\n",
            &two(0x11, 0x11, &[0; 12]),
            &two(0x22, 0x11, &[0; 12]),
            &two(0x21, 0x11, &[0; 11]),
            &two(0x21, 0x21, &[0; 35]),
            &two(0x21, 0x41, &[0; 36]),
            &two(0x21, 0x11, &[0; 5000]),
            &[b"PROXY UNKNOWN ".repeat(9), b"\r\n".to_vec()].concat(),
        ] {
            let why = play(wrong, 1000).unwrap_err();
            assert!(why != "left", "{wrong:?}: {why}");
        }
        assert_eq!(play(b"PROXY TCP4 1.2.3.4", 4).unwrap_err(), "left");
    }

    #[test]
    fn fuzz_headers() {
        let v2 = two(0x21, 0x11, &[192, 0, 2, 1, 198, 51, 100, 7, 1, 2, 3, 4]);
        let v6 = two(0x21, 0x21, &[7; 50]);
        let seeds: [&[u8]; 4] =
            [b"PROXY TCP4 192.0.2.1 198.51.100.7 12345 443\r\nGET", b"PROXY UNKNOWN\r\n", &v2, &v6];
        let pieces: [&[u8]; 10] =
            [b" ", b"\r\n", b"\n", b"TCP6", b"::", b".", b"0", b"65536", b"\x21", b"\xff\xff"];
        hayate_fuzz::run("PROXY headers", &seeds, &pieces, |_, input| fuzzed(input));
    }
}
