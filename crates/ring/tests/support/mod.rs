//! A front's event loop and workers that are processes of their own, for the tests of the ring.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::{
    future::poll_fn,
    os::fd::{AsRawFd, RawFd},
    os::unix::process::{CommandExt, ExitStatusExt},
    path::PathBuf,
    process::{Child, Command},
    sync::{Arc, Once},
    time::{Duration, Instant},
};

use bytes::Bytes;
use hayate_ring::{
    Config, Exchange, Failure, Hub, Ring,
    layout::{HY_FD_EVENTS, HY_FD_MEMORY},
};

/// The field that says what these workers are to do.
pub const METHOD: u16 = hayate_ring::layout::HY_FIELD_METHOD as u16;

fn worker_binary() -> PathBuf {
    static BUILD: Once = Once::new();
    let tests = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../host/tests");
    BUILD.call_once(|| {
        let made = Command::new("make").arg("-s").arg("-C").arg(&tests).status().expect("make runs");
        assert!(made.success(), "make -C host/tests failed");
    });
    tests.join("../build/tests/ring_worker")
}

pub struct Fixture {
    pub ring: Arc<Ring>,
    pub hub: Arc<Hub>,
}

impl Fixture {
    pub fn new(slots: u32, workers: u32) -> Fixture {
        Fixture::of_threads(1, slots, workers)
    }

    pub fn of_threads(threads: u32, slots: u32, workers: u32) -> Fixture {
        let hub = Hub::new(threads).unwrap();
        let config = Config { slots, workers, request_head: 4096, response_head: 1024, body: 4096 };
        Fixture { ring: Ring::create(&config, &hub).unwrap(), hub }
    }

    pub fn spawn(&self, number: u32, kill: Option<(u32, u64)>) -> Child {
        Self::spawn_in(&self.ring, &self.hub, number, kill)
    }

    pub fn spawn_in(ring: &Ring, hub: &Hub, number: u32, kill: Option<(u32, u64)>) -> Child {
        let mut command = Command::new(worker_binary());
        command.arg(number.to_string());
        if let Some((step, count)) = kill {
            command.arg(step.to_string()).arg(count.to_string());
        }
        // The ring never allocates; and a process that is killed while it looks for leaks takes its time to die.
        command.env("ASAN_OPTIONS", "detect_leaks=0");
        ring.prepare_worker(number);
        let events = (0..hub.threads()).map(|thread| hub.event_fd(thread).unwrap().as_raw_fd());
        let mut fds: Vec<(RawFd, RawFd)> = events.zip(HY_FD_EVENTS as RawFd..).collect();
        fds.push((ring.memory_fd().as_raw_fd(), HY_FD_MEMORY as RawFd));
        // SAFETY: between fork and exec only dup and dup2 run, which are async-signal-safe, and the allocator, which glibc readies for it.
        unsafe {
            command.pre_exec(move || {
                // Above the targets first, so that no dup2 overwrites the other's source.
                let high: Vec<RawFd> = fds.iter().map(|(fd, _)| fcntl_dup_above(*fd, 100)).collect();
                for (source, (_, target)) in high.iter().zip(&fds) {
                    let source = rustix::fd::BorrowedFd::borrow_raw(*source);
                    let mut to = rustix::fd::FromRawFd::from_raw_fd(*target);
                    rustix::io::dup2(source, &mut to)?;
                    std::mem::forget(to);
                }
                Ok(())
            });
        }
        command.spawn().expect("the worker starts")
    }

    /// Runs a future on an event loop with the hub's hooks, as the front's first thread does.
    pub fn run<T>(&self, future: impl Future<Output = T>) -> T {
        run_on(&self.hub, 0, future)
    }
}

/// The same on any of its threads.
pub fn run_on<T>(hub: &Arc<Hub>, thread: u32, future: impl Future<Output = T>) -> T {
    let (park, unpark) = (Arc::clone(hub), Arc::clone(hub));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .on_thread_park(move || park.before_park(thread))
        .on_thread_unpark(move || unpark.after_unpark(thread))
        .build()
        .unwrap();
    hub.attach(thread, runtime.handle());
    runtime.block_on(async {
        let _event = hub.watch_own(thread).unwrap();
        future.await
    })
}

fn fcntl_dup_above(fd: RawFd, min: RawFd) -> RawFd {
    use rustix::fd::{BorrowedFd, IntoRawFd};
    // SAFETY: the caller's descriptor is open.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    rustix::io::fcntl_dupfd_cloexec(fd, min).expect("a descriptor is free").into_raw_fd()
}

#[derive(Debug, PartialEq)]
pub enum Outcome {
    Whole(Vec<u8>),
    Failed(Failure),
    /// Any other status than 200.
    Refused(u16),
}

pub async fn ask(ring: &Arc<Ring>, path: &str, body: Option<Bytes>) -> Outcome {
    let mut slot = ring.admit(usize::MAX).await.unwrap();
    slot.put(METHOD, path.as_bytes()).unwrap();
    let mut exchange = slot.submit(body.is_some());
    answer(&mut exchange, body).await
}

/// Sends the body and reads the answer at the same time, as the front does.
pub async fn answer(exchange: &mut Exchange, mut body: Option<Bytes>) -> Outcome {
    let mut all = Vec::new();
    let mut head = false;
    poll_fn(|cx| {
        use std::task::Poll::*;
        loop {
            if let Some(bytes) = &mut body
                && exchange.poll_send(cx, bytes).is_ready()
            {
                exchange.end_request(true);
                body = None;
            }
            if !head {
                let got = exchange.poll_head(cx);
                loop {
                    match exchange.take_informational() {
                        Ok(Some(_)) => {}
                        Ok(None) => break,
                        Err(failure) => return Ready(Outcome::Failed(failure)),
                    }
                }
                match got {
                    Pending => return Pending,
                    Ready(Err(failure)) => return Ready(Outcome::Failed(failure)),
                    Ready(Ok(got)) => {
                        if got.status != 200 {
                            return Ready(Outcome::Refused(got.status));
                        }
                        head = true;
                    }
                }
            }
            match exchange.poll_body(cx) {
                Pending => return Pending,
                Ready(None) => return Ready(Outcome::Whole(std::mem::take(&mut all))),
                Ready(Some(Ok(bytes))) => all.extend_from_slice(&bytes),
                Ready(Some(Err(failure))) => return Ready(Outcome::Failed(failure)),
            }
        }
    })
    .await
}

pub fn end(mut workers: Vec<Child>, fixture: &Fixture) {
    for number in 0..workers.len() {
        fixture.ring.quit_worker(number as u32);
    }
    for child in &mut workers {
        let started = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            assert!(started.elapsed() < Duration::from_secs(60), "a worker did not leave when asked");
            std::thread::sleep(Duration::from_millis(2));
        };
        assert!(status.success() || status.signal() == Some(9), "{status}");
    }
}
