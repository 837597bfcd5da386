//! The queue's limit, seen from the front, while no worker looks at the queue.

use std::{future::poll_fn, sync::Arc, time::Duration};

use hayate_ring::{Config, Exchange, Failure, Hub, Limits, Ring};

fn ring() -> (Arc<Ring>, Arc<Hub>) {
    let hub = Hub::new().unwrap();
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
    ring.sweep(&Limits { queue_timeout: Duration::ZERO, request_timeout: None });
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
