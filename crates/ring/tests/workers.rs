//! The ring with real workers: processes that run host/ring.c (under the address and undefined-behaviour sanitizers), without
//! PHP. Each request must get exactly one outcome, whatever happens to the workers.

mod support;

use std::{
    process::Child,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use hayate_ring::{Failure, Limits, Ring, Swept};

use support::{Fixture, METHOD, Outcome, answer, ask, end, run_on};

#[test]
fn requests_are_answered_and_workers_leave_when_asked() {
    let fixture = Fixture::new(4, 2);
    let workers = vec![fixture.spawn(0, None), fixture.spawn(1, None)];
    fixture.run(async {
        // More at once than slots: the rest waits in `admit`.
        let asks = (0..200).map(|i| {
            let ring = Arc::clone(&fixture.ring);
            tokio::spawn(async move {
                let path = format!("/{i} ");
                let outcome = ask(&ring, &path, Some(Bytes::from(format!("body {i}")))).await;
                assert_eq!(outcome, Outcome::Whole(format!("/{i} BODY {i}").into_bytes()));
            })
        });
        for ask in asks.collect::<Vec<_>>() {
            ask.await.unwrap();
        }
        assert_eq!(fixture.ring.active(), 0);
    });
    end(workers, &fixture);
}

/// Waits until all slots are free again.
async fn given_back(ring: &Ring) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while ring.active() != 0 {
        assert!(Instant::now() < deadline, "a slot leaks");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn bodies_larger_than_the_rings_pass_both_ways() {
    let fixture = Fixture::new(4, 1);
    let workers = vec![fixture.spawn(0, None)];
    fixture.run(async {
        let body: Vec<u8> = (0..1_000_003u32).map(|i| b'a' + (i % 26) as u8).collect();
        let mut want = b"/".to_vec();
        want.extend(body.to_ascii_uppercase());
        assert_eq!(ask(&fixture.ring, "/", Some(body.into())).await, Outcome::Whole(want));
        let want: Vec<u8> = (0..777_777u32).map(|i| (i % 251) as u8).collect();
        assert_eq!(ask(&fixture.ring, "large 777777", None).await, Outcome::Whole(want));
    });
    end(workers, &fixture);
}

/// As many as may be, and not one more; the body begins after them.
#[test]
fn informational_heads_come_before_the_body() {
    let fixture = Fixture::new(2, 1);
    let workers = vec![fixture.spawn(0, None)];
    fixture.run(async {
        for (asked, come) in [("hints 0", 0), ("hints 5", 5), ("hints 16", 16), ("hints 500", 16)] {
            let mut slot = fixture.ring.admit(10).await.unwrap();
            slot.put(METHOD, asked.as_bytes()).unwrap();
            let mut exchange = slot.submit(false);
            let mut statuses = Vec::new();
            let head = std::future::poll_fn(|cx| {
                let head = exchange.poll_head(cx);
                while let Some(early) = exchange.take_informational().unwrap() {
                    statuses.push(early.status);
                }
                head
            });
            assert_eq!(head.await.unwrap().status, 200);
            assert_eq!(statuses, vec![103; come], "{asked}");
            let body = std::future::poll_fn(|cx| exchange.poll_body(cx)).await.unwrap().unwrap();
            assert_eq!(body, asked.as_bytes());
        }
    });
    end(workers, &fixture);
}

#[test]
fn a_dropped_exchange_frees_the_worker_and_the_slot() {
    let fixture = Fixture::new(2, 1);
    let workers = vec![fixture.spawn(0, None)];
    fixture.run(async {
        for _ in 0..50 {
            // Dropped while the worker is blocked on a full ring.
            let abandoned = ask(&fixture.ring, "large 99999999", None);
            assert!(tokio::time::timeout(Duration::from_millis(3), abandoned).await.is_err());
        }
        assert_eq!(ask(&fixture.ring, "/x", None).await, Outcome::Whole(b"/x".to_vec()));
        // An answer that is whole before its worker is done: the slot comes back once it is.
        for _ in 0..20 {
            assert!(matches!(ask(&fixture.ring, "late /", None).await, Outcome::Whole(_)));
        }
        given_back(&fixture.ring).await;
    });
    end(workers, &fixture);
}

#[test]
fn requests_nobody_takes_time_out_in_the_queue() {
    let fixture = Fixture::new(4, 1);
    fixture.run(async {
        let ring = Arc::clone(&fixture.ring);
        let asked = tokio::spawn(async move { ask(&ring, "/", None).await });
        let limits =
            Limits { queue_timeout: Duration::from_millis(20), request_timeout: None, slow_request: None };
        while !asked.is_finished() {
            tokio::time::sleep(Duration::from_millis(5)).await;
            fixture.ring.sweep(&limits);
        }
        assert_eq!(asked.await.unwrap(), Outcome::Failed(Failure::QueueTimeout));
        assert_eq!(fixture.ring.queued(), 0, "a request that was taken back does not wait any more");
        // More cancelled requests than the queue has cells: the front clears the way itself.
        for _ in 0..100 {
            let cancelled = ask(&fixture.ring, "/", None);
            assert!(tokio::time::timeout(Duration::ZERO, cancelled).await.is_err());
        }
        assert_eq!(fixture.ring.active(), 0);
    });
}

#[test]
fn a_request_that_runs_too_long_names_its_worker_and_waiting_for_the_client_does_not_count() {
    let fixture = Fixture::new(4, 1);
    let workers = vec![fixture.spawn(0, None)];
    fixture.run(async {
        // The worker waits for a body that does not come: blocked on the client, so not overdue.
        let mut slot = fixture.ring.admit(10).await.unwrap();
        slot.put(METHOD, b"/").unwrap();
        let mut exchange = slot.submit(true);
        // Longer than the limit, which is more than it needs until it waits.
        tokio::time::sleep(Duration::from_millis(1500)).await;
        let limits = |ms| Limits {
            queue_timeout: Duration::from_secs(10),
            request_timeout: Some(Duration::from_millis(ms)),
            slow_request: None,
        };
        assert_eq!(fixture.ring.sweep(&limits(1000)), Swept::default());
        exchange.end_request(true);
        assert!(matches!(answer(&mut exchange, None).await, Outcome::Whole(_)));
        drop(exchange);

        // A stopped worker makes no progress of its own.
        rustix::process::kill_process(
            rustix::process::Pid::from_child(&workers[0]),
            rustix::process::Signal::STOP,
        )
        .unwrap();
        let mut slot = fixture.ring.admit(10).await.unwrap();
        slot.put(METHOD, b"/").unwrap();
        let mut exchange = slot.submit(true);
        rustix::process::kill_process(
            rustix::process::Pid::from_child(&workers[0]),
            rustix::process::Signal::CONT,
        )
        .unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        exchange.end_request(true);
        assert!(matches!(answer(&mut exchange, None).await, Outcome::Whole(_)));
    });
    end(workers, &fixture);
}

/// Every step of ring.c, at several of its turns: kill the worker there, and see that the request it held has one outcome and
/// that the others do not notice.
#[test]
fn a_worker_killed_at_any_step_costs_at_most_its_own_request() {
    const STEPS: u32 = 13;
    let mut deaths = 0;
    for step in 1..=STEPS {
        for count in [1, 2, 7] {
            let fixture = Fixture::new(4, 2);
            let mut doomed = fixture.spawn(0, Some((step, count)));
            let steady = fixture.spawn(1, None);
            let (whole, failed, died) = fixture.run(async {
                let asks: Vec<_> = (0..60)
                    .map(|i| {
                        let ring = Arc::clone(&fixture.ring);
                        tokio::spawn(async move {
                            if i % 3 == 0 {
                                tokio::time::sleep(Duration::from_millis(i)).await;
                            }
                            let path = if i % 10 == 5 { "large 20000".into() } else { format!("/{i}") };
                            let body = (i % 4 == 1).then(|| Bytes::from(vec![b'x'; 9000]));
                            ask(&ring, &path, body).await
                        })
                    })
                    .collect();
                let mut died = false;
                let deadline = Instant::now() + Duration::from_secs(30);
                while !asks.iter().all(|ask| ask.is_finished()) {
                    assert!(Instant::now() < deadline, "step {step}, count {count}: a request hangs");
                    if !died && doomed.try_wait().unwrap().is_some() {
                        died = true;
                        assert!(fixture.ring.worker_died(0).lost <= 1);
                    }
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                let (mut whole, mut failed) = (0, 0);
                for ask in asks {
                    match ask.await.unwrap() {
                        Outcome::Whole(_) => whole += 1,
                        Outcome::Failed(Failure::WorkerDied { .. }) => failed += 1,
                        other => panic!("step {step}, count {count}: {other:?}"),
                    }
                }
                if !died && doomed.try_wait().unwrap().is_some() {
                    died = true;
                    fixture.ring.worker_died(0);
                }
                // Nothing leaks: when all is over every slot is free again.
                given_back(&fixture.ring).await;
                (whole, failed, died)
            });
            assert_eq!(whole + failed, 60);
            assert!(failed <= 1, "step {step}, count {count}: {failed} requests lost to one death");
            deaths += u32::from(died);
            if died {
                fixture.ring.quit_worker(1);
                let mut steady = steady;
                assert!(steady.wait().unwrap().success());
            } else {
                end(vec![doomed, steady], &fixture);
            }
        }
    }
    assert!(deaths >= 2 * STEPS, "only {deaths} deaths: the steps are not being passed");
}

/// Two workers killed at random moments again and again while requests keep coming.
#[test]
fn kill_9_at_random_moments_under_load() {
    let fixture = Fixture::new(8, 4);
    let mut workers: Vec<Child> = (0..4).map(|n| fixture.spawn(n, None)).collect();
    let mut seed = 0x9e37_79b9_u64;
    let (whole, failed, kills) = fixture.run(async {
        let load: Vec<_> = (0..16u64)
            .map(|task| {
                let ring = Arc::clone(&fixture.ring);
                tokio::spawn(async move {
                    let (mut whole, mut failed) = (0u64, 0u64);
                    for i in 0..400u64 {
                        let path =
                            if (i + task).is_multiple_of(9) { "large 30000".into() } else { format!("/{i}") };
                        match ask(&ring, &path, (i % 3 == 0).then(|| Bytes::from(vec![b'q'; 6000]))).await {
                            Outcome::Whole(_) => whole += 1,
                            Outcome::Failed(Failure::WorkerDied { .. }) => failed += 1,
                            other => panic!("{other:?}"),
                        }
                    }
                    (whole, failed)
                })
            })
            .collect();
        let mut kills = 0u64;
        let deadline = Instant::now() + Duration::from_secs(60);
        while !load.iter().all(|task| task.is_finished()) {
            assert!(Instant::now() < deadline, "a request hangs");
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let victim = (seed >> 33) as usize % workers.len();
            tokio::time::sleep(Duration::from_micros(500 + (seed >> 40) % 4000)).await;
            workers[victim].kill().unwrap();
            workers[victim].wait().unwrap();
            fixture.ring.worker_died(victim as u32);
            workers[victim] = fixture.spawn(victim as u32, None);
            kills += 1;
        }
        let (mut whole, mut failed) = (0, 0);
        for task in load {
            let (w, f) = task.await.unwrap();
            whole += w;
            failed += f;
        }
        given_back(&fixture.ring).await;
        (whole, failed, kills)
    });
    assert_eq!(whole + failed, 16 * 400);
    assert!(failed <= kills, "{failed} requests lost to {kills} deaths");
    assert!(kills > 20, "only {kills} kills: the load was over too soon to prove anything");
    end(workers, &fixture);
}

/// Threads that share the ring while workers are killed: each request has one outcome, and each thread hears of its own.
#[test]
fn threads_of_the_front_share_workers_that_are_killed() {
    const THREADS: u32 = 3;
    let fixture = Fixture::of_threads(THREADS, 8, 4);
    let mut workers: Vec<Child> = (0..4).map(|n| fixture.spawn(n, None)).collect();
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (hub, ring) = (Arc::clone(&fixture.hub), Arc::clone(&fixture.ring));
            std::thread::spawn(move || {
                run_on(&hub, thread, async {
                    let task = |task: u64| {
                        let ring = Arc::clone(&ring);
                        async move {
                            let (mut whole, mut failed) = (0u64, 0u64);
                            for i in 0..300u64 {
                                let path = if (i + task).is_multiple_of(9) {
                                    "large 30000".into()
                                } else {
                                    format!("/{thread} {task} {i} ")
                                };
                                let body = (i % 3 == 0).then(|| Bytes::from(vec![b'q'; 6000]));
                                let want = path.clone().into_bytes();
                                match ask(&ring, &path, body).await {
                                    Outcome::Whole(got) => {
                                        whole += 1;
                                        assert!(path.starts_with("large") || got.starts_with(&want));
                                    }
                                    Outcome::Failed(Failure::WorkerDied { .. }) => failed += 1,
                                    other => panic!("{other:?}"),
                                }
                                if i % 50 == 0 {
                                    // Now and then the thread sleeps while others do not.
                                    tokio::time::sleep(Duration::from_millis(task)).await;
                                }
                            }
                            (whole, failed)
                        }
                    };
                    let tasks: Vec<_> = (0..4u64).map(|n| tokio::spawn(task(n))).collect();
                    let mut sum = (0, 0);
                    for task in tasks {
                        let (whole, failed) = task.await.unwrap();
                        sum = (sum.0 + whole, sum.1 + failed);
                    }
                    sum
                })
            })
        })
        .collect();
    // As the supervisor does it, on a thread that is none of the front's.
    let (mut seed, mut kills) = (0x9e37_79b9_u64, 0u64);
    let deadline = Instant::now() + Duration::from_secs(60);
    let limits =
        Limits { queue_timeout: Duration::from_secs(100), request_timeout: None, slow_request: None };
    while !threads.iter().all(|thread| thread.is_finished()) {
        assert!(Instant::now() < deadline, "a request hangs");
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let victim = (seed >> 33) as usize % workers.len();
        std::thread::sleep(Duration::from_micros(500 + (seed >> 40) % 4000));
        workers[victim].kill().unwrap();
        workers[victim].wait().unwrap();
        fixture.ring.worker_died(victim as u32);
        assert_eq!(fixture.ring.sweep(&limits), Swept::default());
        workers[victim] = fixture.spawn(victim as u32, None);
        kills += 1;
    }
    let (mut whole, mut failed) = (0, 0);
    for thread in threads {
        let (w, f) = thread.join().unwrap();
        (whole, failed) = (whole + w, failed + f);
    }
    assert_eq!(whole + failed, u64::from(THREADS) * 4 * 300);
    assert!(failed <= kills, "{failed} requests lost to {kills} deaths");
    while fixture.ring.active() > 0 {
        assert!(Instant::now() < deadline, "a slot leaks");
        fixture.ring.sweep(&limits);
        std::thread::sleep(Duration::from_millis(1));
    }
    end(workers, &fixture);
}
