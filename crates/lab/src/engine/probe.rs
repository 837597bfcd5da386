//! Is a server there? It is asked until it answers.
//!
//! A request that is not answered soon is left waiting, and another one is sent beside it: some servers never answer one that
//! comes while they are still getting ready, and others answer the first one late since it fills their caches.

use std::{
    sync::mpsc::{Receiver, Sender, channel},
    time::{Duration, Instant},
};

use super::http;

/// How long the first request is alone; each further one waits twice as long as the one before.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long to wait for an answer at a time.
const WAIT: Duration = Duration::from_millis(50);

/// See the module.
pub(super) struct Probe {
    url: String,
    say: Sender<Option<u16>>,
    answers: Receiver<Option<u16>>,
    waiting: usize,
    asked: Instant,
    patience: Duration,
}

impl Probe {
    pub(super) fn new(url: String) -> Self {
        let (say, answers) = channel();
        Self { url, say, answers, waiting: 0, asked: Instant::now(), patience: PATIENCE }
    }

    /// Whether it has answered by now. Takes some hundredths of a second at most. 502, 503 and 504 say that a part behind the
    /// front is not there yet; what else is wrong with an answer the checks find out.
    pub(super) fn ready(&mut self) -> bool {
        if self.waiting == 0 {
            self.ask();
        } else if self.asked.elapsed() > self.patience {
            self.patience *= 2;
            self.ask();
        }
        if let Ok(status) = self.answers.recv_timeout(WAIT) {
            self.waiting -= 1;
            return status.is_some_and(|status| !matches!(status, 502..=504));
        }
        false
    }

    fn ask(&mut self) {
        let (url, say) = (self.url.clone(), self.say.clone());
        self.asked = Instant::now();
        self.waiting += 1;
        std::thread::spawn(move || {
            // Nobody wants to know any more if another one was answered.
            let _ = say.send(http::status(&url));
        });
    }
}
