//! A virtual user: a connection, cookies, and one request at a time.

use std::{
    cell::RefCell,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    alarm::Limit,
    connection::{Answer, Connection, Traffic},
    cookies::Jar,
    failure::Failure,
    recorder::Recorder,
    run::Load,
    tally::Ending,
};

/// What the tasks of one generator thread share.
pub(crate) struct Desk {
    pub(crate) load: Arc<Load>,
    pub(crate) recorder: RefCell<Recorder>,
}

/// A request that is to be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    /// Which of the load's requests.
    pub(crate) number: u64,
    pub(crate) phase: usize,
    /// From when its latency counts.
    pub(crate) origin: Instant,
    /// How long it has been waiting for a free connection.
    pub(crate) waited: Duration,
}

/// See the module.
pub(crate) struct User<C> {
    desk: Rc<Desk>,
    connection: Option<C>,
    answer: Answer,
    jar: Option<Jar>,
    limit: Limit,
}

impl<C: Connection> User<C> {
    pub(crate) fn new(desk: Rc<Desk>) -> Self {
        let answer = Answer::new(desk.load.expect.body.is_some(), desk.load.cookies);
        let jar = desk.load.cookies.then(Jar::default);
        Self { desk, connection: None, answer, jar, limit: Limit::new() }
    }

    /// Sends a request, on a new connection if there is none, and records what became of it. Ends within the load's time
    /// limit, which counts from now (`begun`), to a millisecond. Returns when it was done, and how.
    pub(crate) async fn send(&mut self, job: Job, begun: Instant) -> (Instant, Option<Failure>) {
        let desk = Rc::clone(&self.desk);
        desk.recorder.borrow_mut().begin(job.phase, begun, job.waited);
        let mut in_flight = InFlight { desk: &desk, begun, ended: false };
        let load = &desk.load;
        let deadline = begun + load.timeout;
        let request = load.requests.of_shot(job.number);
        self.answer.reset();

        let mut traffic = Traffic::default();
        let failure = match self.connected(deadline).await {
            Err(failure) => Some(failure),
            Ok(mut connection) => {
                let before = connection.traffic();
                let cookies = self.jar.as_ref().and_then(|jar| jar.header(request.target.path()));
                let exchange = connection.exchange(request, cookies.as_deref(), &mut self.answer);
                let result = self.limit.within(deadline, exchange).await.unwrap_or(Err(Failure::Timeout));
                traffic = connection.traffic() - before;
                if result.is_ok() && self.answer.reusable {
                    self.connection = Some(connection);
                } else {
                    desk.recorder.borrow_mut().closed();
                }
                result.err().or_else(|| load.expect.verdict(self.answer.status, &self.answer.body))
            }
        };
        if let Some(jar) = &mut self.jar {
            for cookie in self.answer.set_cookies.drain(..) {
                jar.store(&cookie, request.target.path());
            }
        }

        let now = Instant::now();
        let complete = matches!(failure, None | Some(Failure::Status | Failure::Body));
        let ending = Ending {
            latency: now.saturating_duration_since(job.origin),
            service: now.saturating_duration_since(begun),
            status: complete.then_some(self.answer.status),
            failure,
            sent: traffic.sent,
            received: traffic.received,
        };
        in_flight.ended = true;
        desk.recorder.borrow_mut().end(job.phase, now, &ending);
        (now, failure)
    }

    /// The user's connection, or a new one.
    async fn connected(&mut self, deadline: Instant) -> Result<C, Failure> {
        if let Some(connection) = self.connection.take() {
            return Ok(connection);
        }
        let opening = C::open(self.desk.load.requests.address());
        let connection =
            self.limit.within(deadline, opening).await.unwrap_or(Err(Failure::ConnectTimeout))?;
        self.desk.recorder.borrow_mut().opened();
        Ok(connection)
    }

    /// Whether the next request has a connection to go on.
    pub(crate) fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// Returns when the idle connection is of no more use; never, if there is none.
    pub(crate) async fn lost_connection(&mut self) {
        match &mut self.connection {
            Some(connection) => connection.ended().await,
            None => std::future::pending().await,
        }
        self.connection = None;
        self.desk.recorder.borrow_mut().closed();
    }
}

/// Notes a request that the end of the load leaves without an answer, when it is dropped before it has ended.
struct InFlight<'a> {
    desk: &'a Desk,
    begun: Instant,
    ended: bool,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.desk.recorder.borrow_mut().abandon(self.begun.elapsed());
        }
    }
}

/// A user who leaves takes the connection along.
impl<C> Drop for User<C> {
    fn drop(&mut self) {
        if self.connection.is_some() {
            self.desk.recorder.borrow_mut().closed();
        }
    }
}
