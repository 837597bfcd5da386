//! What HTTP/2 and HTTP/3 keep alike of a request and its answer on one stream.

use std::any::Any;

use bytes::{Buf, Bytes};

use crate::{
    Answer, Length,
    messages::{Opening, opening},
};

/// A request's body, as far as it came.
#[derive(Debug)]
pub(crate) struct Body {
    /// What of it is there and not used.
    pub(crate) piece: Bytes,
    /// Nothing follows the piece.
    pub(crate) over: bool,
    /// Bytes of all of it, once they are known.
    pub(crate) len: Option<u64>,
    /// The client waits to be told to send it.
    pub(crate) expects: bool,
}

impl Body {
    pub(crate) fn is_over(&self) -> bool {
        self.over && self.piece.is_empty()
    }

    /// Says that so many bytes of the piece are used; gives how many there were.
    pub(crate) fn consume(&mut self, n: usize) -> usize {
        let n = n.min(self.piece.len());
        self.piece.advance(n);
        n
    }
}

/// What is dropped when the client has its answer.
#[derive(Default)]
pub(crate) struct Kept(Vec<Box<dyn Any>>);

impl Kept {
    pub(crate) fn put(&mut self, kept: Box<dyn Any>) {
        self.0.push(kept);
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Kept").field(&self.0.len()).finish()
    }
}

/// Where an answer is.
#[derive(Debug, Clone, Copy)]
enum Stage {
    Waiting,
    /// Bytes still promised, `None` when nothing was.
    Sending(Option<u64>),
    /// Nothing more is added.
    Over,
    /// Its head could not be sent: nobody takes any of it.
    Failed,
}

/// How far an answer is.
#[derive(Debug)]
pub(crate) struct Progress {
    stage: Stage,
    /// To a HEAD.
    head_only: bool,
    finished: bool,
    sent: u64,
}

impl Progress {
    pub(crate) fn new(head_only: bool) -> Progress {
        Progress { stage: Stage::Waiting, head_only, finished: false, sent: 0 }
    }

    pub(crate) fn has_begun(&self) -> bool {
        !matches!(self.stage, Stage::Waiting)
    }

    /// Whether nothing more is added to it.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over | Stage::Failed)
    }

    /// Nothing of it can be sent.
    pub(crate) fn fail(&mut self) {
        self.stage = Stage::Failed;
    }

    pub(crate) fn has_failed(&self) -> bool {
        matches!(self.stage, Stage::Failed)
    }

    /// Nothing more is added to it.
    pub(crate) fn end(&mut self) {
        self.stage = Stage::Over;
    }

    /// Begins it. `None`: it was begun already.
    pub(crate) fn begin(&mut self, answer: &Answer, length: Length) -> Option<Opening> {
        if self.has_begun() {
            return None;
        }
        let opening = opening(answer, length, self.head_only);
        self.stage = if opening.ends { Stage::Over } else { Stage::Sending(opening.left) };
        Some(opening)
    }

    /// What of this belongs to the body; empty, if nothing does.
    pub(crate) fn add(&mut self, mut data: Bytes) -> Bytes {
        let Stage::Sending(left) = &mut self.stage else { return Bytes::new() };
        if let Some(left) = left {
            data.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
            *left -= data.len() as u64;
        }
        self.sent = self.sent.saturating_add(data.len() as u64);
        data
    }

    /// Says that the body is whole.
    pub(crate) fn finish(&mut self) {
        self.finished = match &self.stage {
            Stage::Waiting => false,
            // It promised more.
            Stage::Sending(Some(1..)) | Stage::Failed => false,
            _ => true,
        };
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.finished
    }

    /// Bytes of the body so far.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_as_long_as_it_said() {
        let mut progress = Progress::new(false);
        progress.finish();
        assert!(!progress.is_finished(), "it was not begun");
        assert!(progress.add(Bytes::from_static(b"early")).is_empty());
        assert!(progress.begin(&Answer::new(200), Length::Exact(4)).is_some());
        assert!(progress.begin(&Answer::new(500), Length::None).is_none());
        assert_eq!(progress.add(Bytes::from_static(b"abc")), "abc");
        progress.finish();
        assert!(!progress.is_finished(), "it promised more");
        assert_eq!(progress.add(Bytes::from_static(b"def")), "d");
        progress.finish();
        assert!(progress.is_finished() && progress.sent() == 4);
    }

    #[test]
    fn an_answer_whose_head_cannot_be_sent_is_none() {
        let mut progress = Progress::new(false);
        assert!(progress.begin(&Answer::new(200), Length::Unknown).is_some());
        progress.fail();
        assert!(
            progress.has_begun() && progress.is_over() && progress.add(Bytes::from_static(b"a")).is_empty()
        );
        progress.finish();
        assert!(!progress.is_finished());
    }

    #[test]
    fn to_a_head_there_is_no_body() {
        let mut progress = Progress::new(true);
        assert!(progress.begin(&Answer::new(200), Length::Exact(4)).is_some());
        assert!(progress.is_over() && progress.add(Bytes::from_static(b"abcd")).is_empty());
        progress.finish();
        assert!(progress.is_finished() && progress.sent() == 0);
    }
}
