//! Why a stream or a connection ends (RFC 9114, 8.1; RFC 9204, 6).

use quinn::VarInt;

/// A code as it goes over the wire.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Code(u32, &'static str);

impl Code {
    pub(super) const NO_ERROR: Code = Code(0x100, "NO_ERROR");
    pub(super) const INTERNAL_ERROR: Code = Code(0x102, "INTERNAL_ERROR");
    pub(super) const STREAM_CREATION_ERROR: Code = Code(0x103, "STREAM_CREATION_ERROR");
    pub(super) const CLOSED_CRITICAL_STREAM: Code = Code(0x104, "CLOSED_CRITICAL_STREAM");
    pub(super) const FRAME_UNEXPECTED: Code = Code(0x105, "FRAME_UNEXPECTED");
    pub(super) const FRAME_ERROR: Code = Code(0x106, "FRAME_ERROR");
    pub(super) const EXCESSIVE_LOAD: Code = Code(0x107, "EXCESSIVE_LOAD");
    pub(super) const ID_ERROR: Code = Code(0x108, "ID_ERROR");
    pub(super) const SETTINGS_ERROR: Code = Code(0x109, "SETTINGS_ERROR");
    pub(super) const MISSING_SETTINGS: Code = Code(0x10a, "MISSING_SETTINGS");
    pub(super) const REQUEST_REJECTED: Code = Code(0x10b, "REQUEST_REJECTED");
    pub(super) const REQUEST_INCOMPLETE: Code = Code(0x10d, "REQUEST_INCOMPLETE");
    pub(super) const MESSAGE_ERROR: Code = Code(0x10e, "MESSAGE_ERROR");
    pub(super) const QPACK_DECOMPRESSION_FAILED: Code = Code(0x200, "QPACK_DECOMPRESSION_FAILED");
    pub(super) const QPACK_ENCODER_STREAM_ERROR: Code = Code(0x201, "QPACK_ENCODER_STREAM_ERROR");
    pub(super) const QPACK_DECODER_STREAM_ERROR: Code = Code(0x202, "QPACK_DECODER_STREAM_ERROR");

    pub(super) fn number(self) -> VarInt {
        VarInt::from_u32(self.0)
    }

    /// For people who look at connections.
    pub(super) fn name(self) -> &'static str {
        self.1
    }
}

impl std::fmt::Debug for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.1)
    }
}
