//! The three forms of load, seen from the server: how many requests, on how many connections, when.

mod support;

use std::{
    collections::BTreeSet,
    num::NonZero,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use hayate_load::{Order, Plan, Requests, Schedule, Stop, Template, Until, run};
use support::{Reply, Server, check, ok, report};

fn milliseconds(number: u64) -> Duration {
    Duration::from_millis(number)
}

fn scheduled(text: &str) -> Plan {
    Plan::Scheduled(Schedule::parse(text).expect("a schedule"))
}

/// Answers after a time.
fn slow(time: Duration) -> Server {
    Server::start(move |_| {
        thread::sleep(time);
        ok("x")
    })
}

#[test]
fn a_closed_loop_sends_so_many_requests_on_so_many_connections() {
    for threads in [1, 3] {
        let server = slow(milliseconds(1));
        let mut load = server.load(Plan::Closed { connections: 7, until: Until::Requests(100) });
        load.threads = NonZero::new(threads);
        let report = report(load);
        assert_eq!((report.total.ok, server.seen().len()), (100, 100));
        assert_eq!((report.health.connections_opened, report.health.connections_max), (7, 7));
        assert_eq!(report.health.threads, threads);
        let used: BTreeSet<usize> = server.seen().iter().map(|seen| seen.connection).collect();
        assert_eq!(used.len(), 7, "each connection took part");
    }
}

#[test]
fn a_closed_loop_never_has_more_requests_under_way_than_connections() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let server = {
        let most = Arc::clone(&most);
        Server::start(move |_| {
            most.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
            thread::sleep(milliseconds(2));
            now.fetch_sub(1, SeqCst);
            ok("x")
        })
    };
    report(server.load(Plan::Closed { connections: 5, until: Until::Requests(200) }));
    assert_eq!(most.load(SeqCst), 5);
}

#[test]
fn a_closed_loop_ends_when_its_time_is_over() {
    let server = slow(milliseconds(10));
    let begun = Instant::now();
    let report =
        report(server.load(Plan::Closed { connections: 4, until: Until::Duration(milliseconds(1000)) }));
    assert!((0.99..10.0).contains(&report.duration), "{} s", report.duration);
    assert!(begun.elapsed() < Duration::from_secs(30));
    // No answer takes less than 10 ms, so there cannot be more than 100 on each connection.
    assert!(report.total.ok <= 4 * 101 && report.total.ok > 0);
    assert!(report.total.latency_ms.min >= Some(10.0));
    assert!(report.health.unfinished <= 4);
    assert!(!report.interrupted);
}

#[test]
fn requests_that_take_a_good_part_of_the_time_are_waited_for_if_wanted() {
    let server = slow(milliseconds(400));
    for (patient, threads) in [(false, 1), (true, 1), (true, 2)] {
        let mut load =
            server.load(Plan::Closed { connections: 4, until: Until::Duration(milliseconds(500)) });
        (load.wait_unfinished, load.threads) = (patient, NonZero::new(threads));
        let report = report(load);
        if patient {
            // Nobody is cut off, and nobody begins after the time is over. A late machine may have sent one request each.
            assert_eq!(report.health.unfinished, 0);
            assert!((4..=8).contains(&report.total.ok), "{} requests", report.total.ok);
            assert!(report.duration >= 0.4 * (report.total.ok / 4) as f64);
            assert!((report.total.ok_rate * report.duration - report.total.ok as f64).abs() < 0.01);
        } else {
            assert!(report.total.ok <= 4 && report.health.unfinished > 0);
        }
    }
    // One that never answers ends with its time-out, which is then an error and no gap.
    let silent = Server::start(|_| Reply::Silence);
    let mut load = silent.load(Plan::Closed { connections: 3, until: Until::Duration(milliseconds(100)) });
    (load.wait_unfinished, load.timeout) = (true, milliseconds(300));
    let report = report(load);
    assert_eq!((report.total.requests, report.total.errors.get("timeout")), (3, Some(&3)));
    assert!(report.duration >= 0.3);
}

#[test]
fn many_quick_requests_end_with_their_time() {
    let server = slow(milliseconds(1));
    let mut load = server.load(Plan::Closed { connections: 2, until: Until::Duration(milliseconds(500)) });
    load.wait_unfinished = true;
    let report = report(load);
    assert!(report.total.ok >= 20 && report.duration < 10.0 && report.health.unfinished <= 2);
}

#[test]
fn virtual_users_start_one_after_the_other_and_send_their_loops() {
    let server = slow(milliseconds(1));
    let plan = Plan::Threads { threads: 10, ramp_up: milliseconds(500), loops: 4 };
    let begun = Instant::now();
    let report = report(server.load(plan));
    assert_eq!((report.total.ok, report.health.connections_opened), (40, 10));
    let seen = server.seen();
    let mut starts: Vec<Duration> =
        seen.iter().filter(|seen| seen.turn == 0).map(|seen| seen.at - begun).collect();
    starts.sort_unstable();
    assert_eq!(starts.len(), 10);
    for (user, start) in starts.iter().enumerate() {
        // User i of n starts at i/n of the ramp-up; a loaded machine may be late, but never early.
        assert!(*start >= milliseconds(50 * user as u64), "user {user} started at {start:?}");
    }
    assert!((0..10).all(|user| seen.iter().filter(|seen| seen.connection == user).count() == 4));
}

#[test]
fn a_schedule_sends_its_shots_at_their_moments() {
    let schedule = "const(50, 400ms) const(0, 200ms) line(10, 90, 400ms)";
    for threads in [1, 2] {
        let server = Server::start(|_| ok("x"));
        let mut load = server.load(scheduled(schedule));
        load.threads = NonZero::new(threads);
        let begun = Instant::now();
        let report = report(load);
        let plan = Schedule::parse(schedule).expect("a schedule");
        assert_eq!((plan.shots(), report.total.ok), (40, 40));
        let mut came: Vec<Duration> = server.seen().iter().map(|seen| seen.at - begun).collect();
        came.sort_unstable();
        for (shot, came) in plan.walk(0, 1).zip(came) {
            assert!(came >= shot.due, "shot {} was due at {:?} and came at {came:?}", shot.number, shot.due);
        }
        let by_phase: Vec<u64> = report.phases.iter().map(|phase| phase.figures.requests).collect();
        assert_eq!(by_phase, [20, 0, 20]);
        assert_eq!(report.phases[2].phase, "line(10,90,0.4s)");
        assert!(report.seconds[0].intended_rate.is_some());
    }
}

#[test]
fn a_schedule_opens_connections_as_it_needs_them() {
    // One request at a time, then twenty at a time.
    let server = slow(milliseconds(100));
    let report = report(server.load(scheduled("const(200, 500ms)")));
    let opened = report.health.connections_opened;
    assert!(
        (10..=100).contains(&opened),
        "100 ms at 200/s keep at least 20 connections busy, {opened} were opened"
    );
    assert_eq!(report.total.late_waiting, 0);

    let quick = Server::start(|_| ok("x"));
    let report = support::report(quick.load(scheduled("const(20, 500ms)")));
    assert!(
        report.health.connections_opened <= 4,
        "{} for a server that answers at once",
        report.health.connections_opened
    );
}

#[test]
fn shots_wait_for_a_connection_when_there_may_be_no_more_and_the_wait_counts() {
    // Two connections, 50 ms each: 40 answers a second for 100 shots a second.
    let server = slow(milliseconds(50));
    let mut load = server.load(scheduled("const(100, 1s)"));
    load.max_connections = 2;
    load.threads = NonZero::new(1);
    let report = report(load);
    let total = &report.total;
    assert_eq!((total.ok, report.health.connections_opened), (100, 2));
    // Shot k is due at 10 k ms and cannot be answered before 25 k ms: the last one waits for a second and a half.
    assert!(total.latency_ms.max >= Some(1400.0), "{:?}", total.latency_ms.max);
    let service = total.service_ms.as_ref().expect("a schedule");
    assert!(service.p50 < total.latency_ms.p50, "the wait is no part of the service time");
    assert!(total.late_waiting > 80);
    assert!(report.seconds.iter().any(|second| second.backlog > 10));
    assert!(
        report.warnings.iter().any(|text| text.contains("had to wait for a free connection")),
        "{:?}",
        report.warnings
    );
}

#[test]
fn shots_that_wait_too_long_are_never_sent_and_counted() {
    let server = slow(milliseconds(100));
    let mut load = server.load(scheduled("const(100, 1s)"));
    load.max_connections = 1;
    load.threads = NonZero::new(1);
    load.timeout = milliseconds(300);
    let report = report(load);
    let total = &report.total;
    assert_eq!(total.requests, 100);
    let queued = total.errors["queued"];
    // An answer each 100 ms, for the second that the load lasts and the time that the last shots may wait.
    assert!(total.ok + queued == 100 && (1..=14).contains(&total.ok), "{} OK, {:?}", total.ok, total.errors);
    assert_eq!(server.seen().len() as u64, total.ok, "what was given up was not sent");
    assert!(report.duration < 30.0);
}

#[test]
fn a_connection_that_the_server_closes_while_it_is_idle_costs_no_request() {
    let server = Server::start(|_| {
        // Says that it will keep the connection, and closes it.
        Reply::AnswerAndClose(ok("x"))
    });
    let report = report(server.load(scheduled("const(20, 1s)")));
    assert_eq!((report.total.ok, report.health.connections_opened), (20, 20), "{:?}", report.total.errors);
}

#[test]
fn lists_of_urls_are_sent_in_their_order() {
    let server = Server::start(|_| ok("x"));
    let list = "/a\nPOST /b\n/c?d=e\n";
    let requests =
        Requests::from_list(&server.url("/"), "list", list, Order::Sequential, &Template::default())
            .expect("a list");
    let mut load = server.load(Plan::Closed { connections: 1, until: Until::Requests(7) });
    load.requests = requests;
    report(load);
    let lines: Vec<String> = server.seen().iter().map(|seen| seen.line().to_owned()).collect();
    assert_eq!(lines, ["GET /a", "POST /b", "GET /c?d=e", "GET /a", "POST /b", "GET /c?d=e", "GET /a"]);
}

#[test]
fn each_virtual_user_has_cookies_of_its_own() {
    let server = Server::start(|seen| {
        let cookie = format!("user={}", seen.connection);
        format!("HTTP/1.1 200 OK\r\nSet-Cookie: {cookie}\r\nContent-Length: 0\r\n\r\n").into_bytes()
    });
    let mut load = server.load(Plan::Threads { threads: 6, ramp_up: Duration::ZERO, loops: 3 });
    load.cookies = true;
    report(load);
    for seen in server.seen() {
        let own = format!("user={}", seen.connection);
        assert_eq!(seen.header("cookie"), (seen.turn > 0).then_some(own.as_str()));
    }
}

#[test]
fn an_interrupted_load_keeps_what_it_has() {
    let server = slow(milliseconds(20));
    let stop = Stop::new();
    let plan = scheduled("const(50, 60s)");
    let planned = plan.requests();
    let ender = {
        let stop = stop.clone();
        thread::spawn(move || {
            thread::sleep(milliseconds(600));
            stop.now();
        })
    };
    let report = run(server.load(plan), &stop, |_| {}).expect("a load");
    ender.join().expect("no panic");
    check(&report, planned);
    assert!(report.interrupted);
    assert!(report.total.ok > 0 && report.health.unsent > 1000, "{:?}", report.health);
    assert!(report.duration < 40.0);
}

#[test]
fn a_server_that_is_down_is_not_hammered() {
    let server = Server::start(|_| ok("x"));
    let load = server.load(Plan::Closed { connections: 2, until: Until::Duration(milliseconds(500)) });
    drop(server);
    let report = report(load);
    assert_eq!((report.total.ok, report.total.ok_percent), (0, Some(0.0)));
    // A pause of 10 ms after each refusal, on each connection.
    assert!((1..=2 * 52).contains(&report.total.errors["refused"]), "{:?}", report.total.errors);
}
