//! Why something that a client sent was refused.

/// The status to answer, and words for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// 400, 414, 431 or 505.
    pub status: u16,
    /// What was wrong.
    pub reason: &'static str,
}

pub(crate) const fn refuse(status: u16, reason: &'static str) -> Refusal {
    Refusal { status, reason }
}
