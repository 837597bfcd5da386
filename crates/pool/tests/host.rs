//! Generations of the real PHP host: boots that fail, private boots, deaths, drains. Needs `make -C host` first.

use std::{
    fs,
    future::poll_fn,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use hayate_pool::{
    Connections, Directly, Files, Generation, Health, Launched, Launcher, Mode, Phase, Rewind, Spec, Start,
    Way,
};
use hayate_ring::{Failure, Hub, Ring, layout::*};
use tokio::time::{sleep, timeout};

const HANDLE: &str = "while (hayate_handle_request(function () { echo 'served by ', getmypid(); })) {}";

/// A directory of scripts and an event loop as the front has it. The thread that runs the test stands for the main thread.
fn run<F: Future<Output = ()>>(test: impl FnOnce(PathBuf, Arc<Hub>) -> F) {
    let dir = tempfile::tempdir().unwrap();
    let hub = Hub::new(1).unwrap();
    let (park, unpark) = (Arc::clone(&hub), Arc::clone(&hub));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .on_thread_park(move || park.before_park(0))
        .on_thread_unpark(move || unpark.after_unpark(0))
        .build()
        .unwrap();
    hub.attach(0, runtime.handle());
    runtime.block_on(async {
        let _watch = hub.watch_own(0).unwrap();
        timeout(Duration::from_secs(30), test(dir.path().to_owned(), Arc::clone(&hub)))
            .await
            .expect("it hangs");
    });
}

fn host() -> PathBuf {
    let php = std::env::var("HAYATE_PHP").unwrap_or_else(|_| "8.2".into());
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../host/build/hayate-php{php}"));
    let host = std::env::var_os("HAYATE_HOST").map_or(built, PathBuf::from);
    assert!(host.exists(), "{} is missing: run `make -C host`", host.display());
    host.canonicalize().unwrap()
}

fn spec(dir: &Path, worker: Option<&str>) -> Spec {
    let mode = match worker {
        Some(body) => {
            fs::write(dir.join("worker.php"), format!("<?php {body}")).unwrap();
            Mode::Worker { script: dir.join("worker.php") }
        }
        None => Mode::Classic,
    };
    Spec {
        name: "test".into(),
        document_root: dir.to_owned(),
        cwd: dir.to_owned(),
        mode,
        host: host(),
        workers: 2..=2,
        ini: vec![("xdebug.mode".into(), "off".into())],
        fixed_ini: Vec::new(),
        env: vec![],
        php_ini: None,
        ini_env: Vec::new(),
        max_requests: None,
        max_memory: None,
        request_timeout: Some(Duration::from_secs(20)),
        slow_request: None,
        queue_timeout: Duration::from_secs(10),
        idle_timeout: Duration::from_secs(10),
        boot_timeout: Some(Duration::from_secs(20)),
        rewind: Rewind::Off,
        warmup: Vec::new(),
        compared: Vec::new(),
        rewind_verify: None,
        connections: Connections::Request,
        connection_lifetime: None,
        explain: None,
        development: false,
        no_new_privileges: true,
        way: Way::Configured,
    }
}

/// What a script answers, or why it does not.
async fn get(generation: &Generation, script: &Path) -> Result<String, Failure> {
    let ring: Arc<Ring> = generation.ring();
    let mut slot = ring.admit(100).await.unwrap();
    let path = script.to_str().unwrap().as_bytes();
    for (field, value) in [
        (HY_FIELD_METHOD, &b"GET"[..]),
        (HY_FIELD_TARGET, b"/"),
        (HY_FIELD_QUERY, b""),
        (HY_FIELD_PROTOCOL, b"HTTP/1.1"),
        (HY_FIELD_DOCUMENT_ROOT, b"/"),
        (HY_FIELD_SCRIPT_FILENAME, path),
        (HY_FIELD_SCRIPT_NAME, b"/x.php"),
        (HY_FIELD_PATH_INFO, b""),
        (HY_FIELD_DOCUMENT_URI, b"/x.php"),
        (HY_FIELD_REMOTE_ADDR, b"127.0.0.1"),
        (HY_FIELD_REMOTE_PORT, b"1"),
        (HY_FIELD_SERVER_ADDR, b"127.0.0.1"),
        (HY_FIELD_SERVER_PORT, b"80"),
        (HY_FIELD_SERVER_NAME, b"localhost"),
        (HY_FIELD_SCHEME, b"http"),
        (HY_FIELD_CONTENT_TYPE, b""),
        (HY_FIELD_CONTENT_LENGTH, b""),
        (HY_FIELD_REQUEST_ID, b"1"),
    ] {
        slot.put(field as u16, value).unwrap();
    }
    let mut exchange = slot.submit(false);
    poll_fn(|cx| exchange.poll_head(cx)).await?;
    let mut body = Vec::new();
    while let Some(part) = poll_fn(|cx| exchange.poll_body(cx)).await {
        body.extend_from_slice(&part?);
    }
    Ok(String::from_utf8(body).unwrap())
}

fn script(dir: &Path, name: &str, body: &str) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, format!("<?php {body}")).unwrap();
    path
}

/// Whether a process runs; one that waits to be reaped by somebody else does not.
fn runs(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap().starts_with(" Z"))
}

fn processes(generation: &Generation) -> Vec<i32> {
    let status = generation.status();
    status.workers.iter().map(|worker| worker.pid).chain(status.zygote).collect()
}

async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what} does not happen");
        sleep(Duration::from_millis(10)).await;
    }
}

#[test]
fn serves_and_ends_without_a_trace() {
    run(|dir, hub| async move {
        let generation = Generation::start(spec(&dir, None), Arc::new(Directly), &hub).unwrap();
        generation.booted().await.unwrap();
        let pids = processes(&generation);
        assert_eq!(pids.len(), 3);
        let body = "echo PHP_SAPI;";
        let answer = get(&generation, &script(&dir, "a.php", body)).await;
        assert_eq!(answer.unwrap(), "hayate");
        generation.drain(Duration::from_secs(5)).await;
        assert!(!pids.iter().any(|pid| runs(*pid)));
        assert_eq!(generation.status().state, Phase::Stopped);
        assert_eq!(generation.status().restarts.get("asked"), Some(&2));
        // Ending twice is no error.
        generation.kill().await;
    });
}

#[test]
fn dropping_it_ends_its_processes() {
    run(|dir, hub| async move {
        let generation = Generation::start(spec(&dir, None), Arc::new(Directly), &hub).unwrap();
        generation.booted().await.unwrap();
        let pids = processes(&generation);
        drop(generation);
        until("their end", || !pids.iter().any(|pid| runs(*pid))).await;
    });
}

#[test]
fn a_drain_lets_requests_finish_and_a_deadline_cuts_them() {
    run(|dir, hub| async move {
        let slow = script(&dir, "slow.php", "usleep(400000); echo 'finished';");
        let forever = script(&dir, "forever.php", "sleep(120); echo 'never';");
        let generation = Generation::start(spec(&dir, None), Arc::new(Directly), &hub).unwrap();
        generation.booted().await.unwrap();
        let ((), answer) = tokio::join!(generation.drain(Duration::from_secs(5)), get(&generation, &slow));
        assert_eq!(answer.unwrap(), "finished");

        let generation = Generation::start(spec(&dir, None), Arc::new(Directly), &hub).unwrap();
        generation.booted().await.unwrap();
        let start = Instant::now();
        let ((), answer) =
            tokio::join!(generation.drain(Duration::from_millis(500)), get(&generation, &forever));
        assert_eq!(answer.unwrap_err(), Failure::WorkerDied { started: false });
        assert!(start.elapsed() < Duration::from_secs(60));
        assert_eq!(generation.ring().active(), 0);
    });
}

#[test]
fn a_boot_that_fails_says_why_and_is_tried_again() {
    run(|dir, hub| async move {
        let generation = Generation::start(
            spec(&dir, Some("throw new Exception('no database');")),
            Arc::new(Directly),
            &hub,
        )
        .unwrap();
        let error = generation.booted().await.unwrap_err();
        assert!(error.to_string().contains("no database"), "{error}");
        assert!(generation.unavailable().unwrap().contains("no database"));
        assert_eq!(generation.status().state, Phase::Failing);
        script(&dir, "worker.php", HANDLE);
        let mut health = generation.health();
        health.wait_for(|health| matches!(health, Health::Ready)).await.unwrap();
        assert_eq!(generation.unavailable(), None);
        assert!(get(&generation, &dir.join("worker.php")).await.unwrap().starts_with("served by "));
        generation.kill().await;
    });
}

#[test]
fn a_host_that_is_missing_or_broken_is_a_boot_that_fails() {
    run(|dir, hub| async move {
        for (host, says) in
            [("/nowhere/hayate-php8.2", "cannot start /nowhere/"), ("/bin/false", "exit status: 1")]
        {
            let mut spec = spec(&dir, None);
            spec.host = host.into();
            let generation = Generation::start(spec, Arc::new(Directly), &hub).unwrap();
            let error = generation.booted().await.unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
            generation.kill().await;
        }
    });
}

#[test]
fn a_worker_that_always_dies_young_is_forked_ever_more_rarely() {
    run(|dir, hub| async move {
        // A private boot that kills its process: no message, no request served.
        let body = "$pair = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
            if (file_exists(__DIR__ . '/die')) { posix_kill(getmypid(), 9); }";
        let generation =
            Generation::start(spec(&dir, Some(&format!("{body} {HANDLE}"))), Arc::new(Directly), &hub)
                .unwrap();
        generation.booted().await.unwrap();
        fs::write(dir.join("die"), "").unwrap();
        generation.status().workers.iter().for_each(|worker| kill(worker.pid));
        // Two that were killed, and pairs after 0, 200 and 1000 ms at the earliest.
        let start = Instant::now();
        until("six deaths", || generation.status().restarts.get("signal_9").is_some_and(|n| *n >= 6)).await;
        assert!(start.elapsed() >= Duration::from_millis(300), "{:?}", start.elapsed());
        fs::remove_file(dir.join("die")).unwrap();
        until("the recovery", || {
            let status = generation.status();
            status.workers.iter().filter(|worker| worker.state == hayate_pool::State::Idle).count() == 2
        })
        .await;
        assert!(get(&generation, &dir.join("worker.php")).await.is_ok());
        generation.kill().await;
    });
}

#[test]
fn a_boot_that_cannot_be_shared_happens_in_each_worker() {
    run(|dir, hub| async move {
        let body = format!(
            "if (is_file(__DIR__ . '/broken')) {{ throw new Exception('no database'); }}
            $pair = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0); $boot = getmypid(); {HANDLE}"
        );
        let generation = Generation::start(spec(&dir, Some(&body)), Arc::new(Directly), &hub).unwrap();
        generation.booted().await.unwrap();
        assert_eq!(generation.status().boot, "private");
        assert!(get(&generation, &dir.join("worker.php")).await.unwrap().starts_with("served by "));

        // A worker's own boot may fail as well: others go on, and it is tried again. By a file of its own: OPcache may take the script to be what it
        // was two seconds ago.
        fs::write(dir.join("broken"), "").unwrap();
        let victim = generation.status().workers[0].pid;
        kill(victim);
        until("the failed boot", || {
            generation.status().boot_error.is_some_and(|e| e.contains("no database"))
        })
        .await;
        assert_eq!(generation.unavailable(), None);
        assert!(get(&generation, &dir.join("worker.php")).await.is_ok());
        fs::remove_file(dir.join("broken")).unwrap();
        until("two ready workers", || {
            let status = generation.status();
            status.workers.iter().filter(|worker| worker.state == hayate_pool::State::Idle).count() == 2
        })
        .await;
        let restarts = generation.status().restarts;
        assert!(restarts["signal_9"] == 1 && restarts["boot_failed"] >= 1, "{restarts:?}");
        generation.kill().await;
    });
}

fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[test]
fn a_dead_zygote_takes_its_workers_along_and_is_replaced_in_the_same_ring() {
    run(|dir, hub| async move {
        let slow = script(&dir, "slow.php", "sleep(120); echo 'x';");
        let fast = script(&dir, "fast.php", "echo 'y';");
        let generation = Generation::start(spec(&dir, None), Arc::new(Directly), &hub).unwrap();
        generation.booted().await.unwrap();
        let before = processes(&generation);
        let zygote = generation.status().zygote.unwrap();
        let murder = async {
            until("a worker's taking it", || {
                generation.status().workers.iter().any(|worker| worker.state == hayate_pool::State::Serving)
            })
            .await;
            kill(zygote);
        };
        let (failed, ()) = tokio::join!(get(&generation, &slow), murder);
        assert_eq!(failed.unwrap_err(), Failure::WorkerDied { started: false });
        assert_eq!(get(&generation, &fast).await.unwrap(), "y");
        let status = generation.status();
        assert_eq!((status.zygote_deaths, status.restarts.get("zygote_died")), (1, Some(&2)));
        assert!(!before.iter().any(|pid| runs(*pid)));
        generation.kill().await;
    });
}

/// Launches until it is told to panic.
struct Panics(AtomicBool);

impl Launcher for Panics {
    fn launch(&self, spec: &Spec, start: Start, files: Files) -> io::Result<Launched> {
        assert!(!self.0.load(Relaxed), "this panic is part of the test");
        Directly.launch(spec, start, files)
    }
}

#[test]
fn a_panic_of_the_supervision_costs_a_boot_and_is_told() {
    run(|dir, hub| async move {
        let fast = script(&dir, "fast.php", "echo 'y';");
        let launcher = Arc::new(Panics(AtomicBool::new(false)));
        let generation = Generation::start(spec(&dir, None), launcher.clone(), &hub).unwrap();
        generation.booted().await.unwrap();
        assert_eq!(generation.not_ready(), None);
        let before = processes(&generation);
        launcher.0.store(true, Relaxed);
        kill(generation.status().zygote.unwrap());
        // As long as it panics each time, requests are refused, and whoever asks is told why.
        until("the word that it does not serve", || generation.unavailable().is_some()).await;
        assert!(generation.not_ready().unwrap().contains("a fault of Hayate's own"));
        let refused = get(&generation, &fast).await.unwrap_err();
        assert!(matches!(refused, Failure::Unavailable), "{refused:?}");
        assert!(!before.iter().any(|pid| runs(*pid)));
        assert!(generation.status().workers.is_empty());
        launcher.0.store(false, Relaxed);
        let mut health = generation.health();
        until("the next boot", || generation.not_ready().is_none()).await;
        assert!(matches!(*health.borrow_and_update(), Health::Ready));
        assert_eq!(get(&generation, &fast).await.unwrap(), "y");
        let pids = processes(&generation);
        generation.drain(Duration::from_secs(5)).await;
        assert!(!pids.iter().any(|pid| runs(*pid)));
        assert_eq!(generation.status().state, Phase::Stopped);
    });
}

#[test]
fn a_panic_of_the_first_boot_is_one_that_failed() {
    run(|dir, hub| async move {
        let launcher = Arc::new(Panics(AtomicBool::new(true)));
        let generation = Generation::start(spec(&dir, None), launcher.clone(), &hub).unwrap();
        let error = generation.booted().await.unwrap_err().to_string();
        assert!(error.contains("a fault of Hayate's own"), "{error}");
        launcher.0.store(false, Relaxed);
        let mut health = generation.health();
        health.wait_for(|health| matches!(health, Health::Ready)).await.unwrap();
        assert_eq!(generation.not_ready(), None);
        generation.kill().await;
    });
}

#[test]
fn crashing_workers_are_replaced_and_counted() {
    run(|dir, hub| async move {
        let crash = script(&dir, "crash.php", "posix_kill(getmypid(), 11);");
        let fine = script(&dir, "fine.php", "echo 'fine';");
        let generation = Generation::start(spec(&dir, None), Arc::new(Directly), &hub).unwrap();
        generation.booted().await.unwrap();
        for _ in 0..20 {
            assert_eq!(get(&generation, &crash).await.unwrap_err(), Failure::WorkerDied { started: false });
            assert_eq!(get(&generation, &fine).await.unwrap(), "fine");
        }
        assert_eq!(generation.status().restarts.get("signal_11"), Some(&20));
        generation.kill().await;
    });
}

#[test]
fn a_request_that_runs_too_long_is_ended() {
    run(|dir, hub| async move {
        let forever = script(&dir, "forever.php", "while (true) { usleep(1000); }");
        let mut spec = spec(&dir, None);
        spec.request_timeout = Some(Duration::from_millis(300));
        let generation = Generation::start(spec, Arc::new(Directly), &hub).unwrap();
        generation.booted().await.unwrap();
        let start = Instant::now();
        assert_eq!(get(&generation, &forever).await.unwrap_err(), Failure::RequestTimeout { started: false });
        assert!(start.elapsed() > Duration::from_millis(250), "{:?}", start.elapsed());
        until("the count", || generation.status().restarts.get("request_timeout") == Some(&1)).await;
        until("the successor", || generation.status().workers.len() == 2).await;
        generation.kill().await;
    });
}

#[test]
fn grows_when_requests_wait_and_shrinks_when_idle() {
    run(|dir, hub| async move {
        let slow = script(&dir, "slow.php", "usleep(1000000); echo getmypid();");
        let mut spec = spec(&dir, None);
        (spec.workers, spec.idle_timeout) = (1..=3, Duration::from_millis(400));
        let generation = Generation::start(spec, Arc::new(Directly), &hub).unwrap();
        generation.booted().await.unwrap();
        let mut pids = Vec::new();
        let (a, b, c, d) = tokio::join!(
            get(&generation, &slow),
            get(&generation, &slow),
            get(&generation, &slow),
            get(&generation, &slow)
        );
        pids.extend([a, b, c, d].map(Result::unwrap));
        pids.sort();
        pids.dedup();
        assert!((2..=3).contains(&pids.len()), "{pids:?}");
        until("the shrinking", || generation.status().workers.len() == 1).await;
        assert_eq!(generation.status().workers[0].index, 0, "the highest go first");
        assert!(get(&generation, &slow).await.is_ok());
        generation.kill().await;
    });
}

#[test]
fn a_boot_that_hangs_is_ended_and_the_error_says_so() {
    run(|dir, hub| async move {
        let mut spec = spec(&dir, Some("error_log('waiting'); sleep(60);"));
        spec.boot_timeout = Some(Duration::from_millis(300));
        let generation = Generation::start(spec, Arc::new(Directly), &hub).unwrap();
        let error = generation.booted().await.unwrap_err();
        let said = error.to_string();
        assert!(said.contains("within 300ms") && said.contains("boot_timeout"), "{said}");
        assert!(generation.unavailable().is_some());
        generation.kill().await;
    });
}

#[test]
fn a_private_boot_that_hangs_is_ended_too() {
    run(|dir, hub| async move {
        // The first boot shows that it cannot be shared; the workers' own boots hang, but for the third.
        let body = "file_put_contents('boots', '.', FILE_APPEND); clearstatcache();
            $pair = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
            if (in_array(filesize('boots'), [2, 3])) { sleep(60); }";
        let mut spec = spec(&dir, Some(&format!("{body} {HANDLE}")));
        spec.workers = 1..=1;
        // Enough for a boot that does not hang, also on a busy machine.
        spec.boot_timeout = Some(Duration::from_secs(3));
        let generation = Generation::start(spec, Arc::new(Directly), &hub).unwrap();
        assert!(generation.booted().await.unwrap_err().to_string().contains("boot_timeout"));
        // Until a worker is ready, requests are turned away.
        let refused = get(&generation, &dir.join("worker.php")).await;
        assert!(matches!(refused, Err(Failure::Unavailable)), "{refused:?}");
        let ready = async {
            while generation.unavailable().is_some() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), ready).await.unwrap();
        let answer = get(&generation, &dir.join("worker.php")).await.unwrap();
        assert!(answer.starts_with("served by "), "{answer}");
        let status = generation.status();
        assert_eq!((status.boot, status.restarts.get("boot_failed")), ("private", Some(&2)));
        generation.kill().await;
    });
}
