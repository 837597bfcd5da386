//! What workers are told of a request, in the words of CGI.

use hayate_ring::layout::*;

/// A field of a request's head, by its number in the shared memory; `host/layout.h` says what each holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Field {
    Method = HY_FIELD_METHOD as u16,
    Target = HY_FIELD_TARGET as u16,
    Query = HY_FIELD_QUERY as u16,
    Protocol = HY_FIELD_PROTOCOL as u16,
    DocumentRoot = HY_FIELD_DOCUMENT_ROOT as u16,
    ScriptFilename = HY_FIELD_SCRIPT_FILENAME as u16,
    ScriptName = HY_FIELD_SCRIPT_NAME as u16,
    PathInfo = HY_FIELD_PATH_INFO as u16,
    DocumentUri = HY_FIELD_DOCUMENT_URI as u16,
    RemoteAddr = HY_FIELD_REMOTE_ADDR as u16,
    RemotePort = HY_FIELD_REMOTE_PORT as u16,
    ServerAddr = HY_FIELD_SERVER_ADDR as u16,
    ServerPort = HY_FIELD_SERVER_PORT as u16,
    ServerName = HY_FIELD_SERVER_NAME as u16,
    Scheme = HY_FIELD_SCHEME as u16,
    ContentType = HY_FIELD_CONTENT_TYPE as u16,
    ContentLength = HY_FIELD_CONTENT_LENGTH as u16,
    RequestId = HY_FIELD_REQUEST_ID as u16,
}

impl From<Field> for u16 {
    fn from(field: Field) -> u16 {
        field as u16
    }
}
