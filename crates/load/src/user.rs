//! A virtual user: a connection, cookies, and one request at a time.

use std::{
    cell::RefCell,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    alarm::Limit,
    connection::{Answer, Connection, Farewell, Outcome, Traffic},
    cookies::Jar,
    failure::Failure,
    recorder::Recorder,
    request::Request,
    run::Load,
    tally::Ending,
    tls::Tls,
};

/// How often a request is sent, at most, that the server says it has not looked at.
const ATTEMPTS: usize = 4;

/// What the tasks of one generator thread share.
pub(crate) struct Desk {
    pub(crate) load: Arc<Load>,
    /// For a load over TLS.
    pub(crate) tls: Option<Tls>,
    pub(crate) recorder: RefCell<Recorder>,
    pub(crate) farewell: Farewell,
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
pub(crate) struct User<C: Connection> {
    desk: Rc<Desk>,
    line: Rc<C::Line>,
    connection: Option<C>,
    answer: Answer,
    jar: Option<Jar>,
    limit: Limit,
}

impl<C: Connection> User<C> {
    /// One who shares a connection with the others of a line, if connections are shared.
    pub(crate) fn new(desk: Rc<Desk>, line: Rc<C::Line>) -> Self {
        let answer = Answer::new(desk.load.expect.body.is_some(), desk.load.cookies);
        let jar = desk.load.cookies.then(Jar::default);
        Self { desk, line, connection: None, answer, jar, limit: Limit::new() }
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

        let (failure, traffic) = match self.exchange(request, deadline).await {
            Ok(traffic) => (load.expect.verdict(self.answer.status, &self.answer.body), traffic),
            Err((failure, traffic)) => (Some(failure), traffic),
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

    /// Sends a request until somebody has looked at it, and reads the answer. Says what went over the wire meanwhile.
    async fn exchange(
        &mut self,
        request: &Request,
        deadline: Instant,
    ) -> Result<Traffic, (Failure, Traffic)> {
        let mut traffic = Traffic::default();
        for _ in 0..ATTEMPTS {
            let (mut connection, before) =
                self.connected(deadline).await.map_err(|failure| (failure, traffic))?;
            let cookies = self.jar.as_ref().and_then(|jar| jar.header(request.target.path()));
            let exchange = connection.exchange(request, cookies.as_deref(), &mut self.answer);
            let result = self.limit.within(deadline, exchange).await.unwrap_or(Err(Failure::Timeout));
            traffic = traffic + (connection.traffic() - before);
            match result {
                Ok(Outcome::Answered) => {
                    if self.answer.reusable {
                        self.connection = Some(connection);
                    }
                    return Ok(traffic);
                }
                Ok(Outcome::Unprocessed) => self.answer.reset(),
                Err(failure) => return Err((failure, traffic)),
            }
        }
        Err((Failure::Closed, traffic))
    }

    /// The user's connection, or a new one, and what has gone over it for other requests.
    async fn connected(&mut self, deadline: Instant) -> Result<(C, Traffic), Failure> {
        if let Some(connection) = self.connection.take() {
            let before = connection.traffic();
            return Ok((connection, before));
        }
        let opening = C::open(&self.desk, &self.line);
        let connection =
            self.limit.within(deadline, opening).await.unwrap_or(Err(Failure::ConnectTimeout))?;
        // Its handshake is the first request's.
        Ok((connection, Traffic::default()))
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
