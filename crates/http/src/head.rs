//! A request's head: the bytes as they came, and where in them each part is.
//!
//! Names of headers are in lower case; nothing else is changed. Every span was made by the parser that read these bytes, and a span that
//! does not fit them gives an empty slice, never a panic.

use std::ops::Range;

use crate::{Limits, Refusal, h1::parse::Parser, refusal::refuse};

/// The version of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    Http11,
    /// HTTP/2
    Http2,
    /// HTTP/3
    Http3,
}

impl Version {
    /// As CGI's SERVER_PROTOCOL has it.
    pub fn name(self) -> &'static str {
        match self {
            Version::Http10 => "HTTP/1.0",
            Version::Http11 => "HTTP/1.1",
            Version::Http2 => "HTTP/2.0",
            Version::Http3 => "HTTP/3.0",
        }
    }
}

/// A part of the head's bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) from: u32,
    pub(crate) to: u32,
}

impl Span {
    /// Heads are far below 4 GiB, which [`crate::Limits`] sees to; beyond that a span is empty.
    pub(crate) fn new(range: Range<usize>) -> Span {
        match (u32::try_from(range.start), u32::try_from(range.end)) {
            (Ok(from), Ok(to)) => Span { from, to },
            _ => Span::default(),
        }
    }

    pub(crate) fn of(self, bytes: &[u8]) -> &[u8] {
        bytes.get(self.from as usize..self.to as usize).unwrap_or_default()
    }
}

/// One header field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field<'a> {
    /// In lower case.
    pub name: &'a [u8],
    /// Without blanks around it.
    pub value: &'a [u8],
}

/// Where the parts of a head are.
#[derive(Debug, Default, Clone)]
pub(crate) struct Spans {
    pub(crate) method: Span,
    pub(crate) target: Span,
    pub(crate) fields: Vec<(Span, Span)>,
}

/// A request's head.
#[derive(Debug, Clone)]
pub struct Head {
    pub(crate) bytes: Vec<u8>,
    pub(crate) spans: Spans,
    pub(crate) version: Version,
}

impl Head {
    /// Of what was no request, or of one of the server's own: it has no method, no target and no fields.
    pub fn empty() -> Head {
        Head { bytes: Vec::new(), spans: Spans::default(), version: Version::Http11 }
    }

    /// Reads a whole head of HTTP/1, with nothing after it.
    pub fn parse(bytes: &[u8], limits: &Limits) -> Result<Head, Refusal> {
        let mut bytes = bytes.to_vec();
        let mut parser = Parser::default();
        match parser.feed(&mut bytes, limits)? {
            Some((len, outline)) if len == bytes.len() => {
                Ok(Head { bytes, spans: parser.spans, version: outline.version })
            }
            _ => Err(refuse(400, "the head is not whole, or there is more")),
        }
    }

    /// A token, as it came: methods are case-sensitive.
    pub fn method(&self) -> &[u8] {
        self.spans.method.of(&self.bytes)
    }

    /// The request target as it came, raw.
    pub fn target(&self) -> &[u8] {
        self.spans.target.of(&self.bytes)
    }

    /// The version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// All fields in the order of the wire.
    pub fn fields(&self) -> impl ExactSizeIterator<Item = Field<'_>> {
        self.spans
            .fields
            .iter()
            .map(|(name, value)| Field { name: name.of(&self.bytes), value: value.of(&self.bytes) })
    }

    /// The values of all fields of this name, which is to be in lower case.
    pub fn all<'a>(&'a self, name: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        self.fields().filter(move |field| field.name == name).map(|field| field.value)
    }

    /// The first value of this name, which is to be in lower case.
    pub fn get<'a>(&'a self, name: &'a [u8]) -> Option<&'a [u8]> {
        self.all(name).next()
    }

    /// Bytes of memory that it takes.
    pub(crate) fn size(&self) -> usize {
        let fields = self.spans.fields.capacity().saturating_mul(size_of::<(Span, Span)>());
        self.bytes.capacity().saturating_add(fields)
    }

    /// Everything, with its line ends: for a log.
    pub fn raw(&self) -> &[u8] {
        &self.bytes
    }
}
