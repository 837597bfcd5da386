//! The queue, seen from the front, while no worker looks at it.

use std::{future::poll_fn, sync::Arc, time::Duration};

use hayate_ring::{Config, Exchange, Failure, Hub, Limits, Refused, Ring, Swept};

fn ring() -> (Arc<Ring>, Arc<Hub>) {
    let hub = Hub::new(1).unwrap();
    let config = Config { slots: 8, workers: 1, request_head: 4096, response_head: 1024, body: 4096 };
    (Ring::create(&config, &hub).unwrap(), hub)
}

async fn submit(ring: &Arc<Ring>, limit: usize) -> Option<Exchange> {
    ring.admit(limit).await.ok().map(|slot| slot.submit(false))
}

/// Requests that timed out or whose clients left wait no more, whether or not a worker has walked past their cells.
#[tokio::test(flavor = "current_thread")]
async fn requests_that_gave_up_do_not_count_as_waiting() {
    let (ring, _hub) = ring();
    let mut waiting = [submit(&ring, 2).await.unwrap(), submit(&ring, 2).await.unwrap()];
    assert!(submit(&ring, 2).await.is_none(), "two wait, and two may");

    std::thread::sleep(Duration::from_millis(5));
    ring.sweep(&Limits { queue_timeout: Duration::ZERO, request_timeout: None, slow_request: None });
    for exchange in &mut waiting {
        let outcome = poll_fn(|cx| exchange.poll_head(cx)).await;
        assert_eq!(outcome.map(|head| head.status), Err(Failure::QueueTimeout));
    }
    drop(waiting);
    let next = submit(&ring, 2).await.expect("nobody waits any more");

    // The same when the client leaves.
    let second = submit(&ring, 2).await.expect("one waits");
    drop((next, second));
    let third = submit(&ring, 2).await.expect("nobody waits any more");
    let _fourth = submit(&ring, 2).await.expect("one waits");
    assert!(submit(&ring, 2).await.is_none(), "the limit holds as before");
    drop(third);
}

/// Requests that come and go behind one that waits: the queue wraps around it again and again, and each finds room.
#[tokio::test(flavor = "current_thread")]
async fn a9_1_any_number_of_cancelled_requests_may_lie_behind_one_that_waits() {
    let (ring, _hub) = ring();
    let limits =
        Limits { queue_timeout: Duration::from_secs(100), request_timeout: None, slow_request: None };
    let mut waiting = vec![submit(&ring, 4).await.unwrap()];
    for i in 0..100_000 {
        if i % 40_000 == 270 {
            waiting.push(submit(&ring, 4).await.expect("those that gave up do not count"));
        }
        drop(submit(&ring, 8).await.expect("there is room"));
        if i % 1000 == 0 {
            assert_eq!(ring.sweep(&limits), Swept::default());
            assert_eq!(ring.queued(), waiting.len());
        }
    }
    assert_eq!((ring.queued(), ring.active()), (4, 4));
    assert_eq!(ring.admit(4).await.err(), Some(Refused::QueueFull));
    drop(waiting);
    assert_eq!((ring.queued(), ring.active()), (0, 0));
}

/// What is in a ring when it ends gets its failure, what comes later goes to the successor, and nobody waits for ever.
#[tokio::test(flavor = "current_thread")]
async fn a9_8_a_ring_that_ends_fails_what_it_has_and_hands_over_what_comes() {
    let (ring, hub) = ring();
    let mut queued = submit(&ring, 100).await.unwrap();
    let filled = ring.admit(100).await.unwrap();
    let mut held = Vec::new();
    for _ in 0..6 {
        held.push(submit(&ring, 100).await.unwrap());
    }
    // All eight slots are taken: the next one waits for one.
    let next = ring.create_alike(&hub).unwrap();
    let waiting = tokio::spawn({
        let ring = Arc::clone(&ring);
        async move { ring.admit(100).await.map(|slot| slot.submit(false)) }
    });
    tokio::task::yield_now().await;
    assert_eq!(ring.waiting(), 1);

    ring.hand_over(Some(&next));
    let moved = waiting.await.unwrap().expect("the successor takes it");
    assert_eq!((ring.waiting(), next.queued()), (0, 1));
    assert_eq!(ring.queued(), 7, "what was submitted stays, to be served");

    ring.end();
    let outcome = poll_fn(|cx| queued.poll_head(cx)).await.map(|head| head.status);
    assert_eq!(outcome, Err(Failure::NotTaken));
    let mut late = filled.submit(false);
    let outcome = poll_fn(|cx| late.poll_head(cx)).await.map(|head| head.status);
    assert_eq!(outcome, Err(Failure::NotTaken));
    drop((queued, late, held));
    assert_eq!(ring.active(), 0);
    let again = submit(&ring, 100).await.expect("the successor takes it");
    assert_eq!(next.queued(), 2);
    next.end();
    assert_eq!(next.admit(100).await.err(), Some(Refused::Stopped), "there is nobody after it");
    drop((moved, again));
}

/// However many threads come at once, as many wait as may, in the queue and for a slot together.
#[test]
fn the_limit_is_exact_for_threads_that_come_at_once() {
    const LIMIT: usize = 12;
    const THREADS: usize = 4;
    for _ in 0..100 {
        let (ring, _hub) = ring();
        let start = Arc::new(std::sync::Barrier::new(THREADS));
        let (refused, refusals) = std::sync::mpsc::channel();
        let (end, _) = tokio::sync::broadcast::channel::<()>(1);
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let (ring, start, refused, end) =
                    (Arc::clone(&ring), Arc::clone(&start), refused.clone(), end.clone());
                std::thread::spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                    let mut over = end.subscribe();
                    start.wait();
                    runtime.block_on(async {
                        for _ in 0..16 {
                            let (ring, refused) = (Arc::clone(&ring), refused.clone());
                            tokio::spawn(async move {
                                match ring.admit(LIMIT).await {
                                    Ok(slot) => {
                                        let _waits = slot.submit(false);
                                        std::future::pending::<()>().await;
                                    }
                                    Err(why) => refused.send(why).unwrap(),
                                }
                            });
                        }
                        over.recv().await.unwrap();
                    });
                })
            })
            .collect();
        for _ in 0..16 * THREADS - LIMIT {
            let why = refusals.recv_timeout(Duration::from_secs(20)).expect("more wait than may");
            assert_eq!(why, Refused::QueueFull);
        }
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        while (ring.queued(), ring.waiting()) != (8, LIMIT - 8) {
            assert!(std::time::Instant::now() < deadline, "fewer wait than may");
            std::thread::yield_now();
        }
        assert!(refusals.try_recv().is_err(), "fewer wait than may");
        end.send(()).unwrap();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!((ring.active(), ring.waiting()), (0, 0));
    }
}
