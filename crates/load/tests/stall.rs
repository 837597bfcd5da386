//! Coordinated omission: a server that stalls must show it. The short form of the proof; docs/load.md has the long one.

mod support;

use std::{
    thread,
    time::{Duration, Instant},
};

use hayate_load::{Latency, Plan, Schedule, Until};
use support::{Server, ok, report};

const PERIOD: Duration = Duration::from_millis(1500);
const STALL: Duration = Duration::from_millis(500);

/// Answers at once, but for the last third of each period: what comes then is answered at its end.
fn stalling() -> Server {
    let begun = Instant::now();
    Server::start(move |_| {
        let phase = Duration::from_nanos((begun.elapsed().as_nanos() % PERIOD.as_nanos()) as u64);
        if phase >= PERIOD - STALL {
            thread::sleep(PERIOD - phase);
        }
        ok("x")
    })
}

/// A third of the shots meet a stall, at moments spread evenly over it: the quantile q above 2/3 waits (q - 2/3) / (1/3)
/// of the stall, if the load lasts whole periods.
fn theory(quantile: f64) -> f64 {
    let share = STALL.as_secs_f64() / PERIOD.as_secs_f64();
    STALL.as_secs_f64() * 1000.0 * (quantile - (1.0 - share)) / share
}

fn agrees(latency: &Latency) {
    for (quantile, found) in
        [(0.8, latency.p80), (0.9, latency.p90), (0.95, latency.p95), (0.99, latency.p99)]
    {
        let (found, expected) = (found.expect("figures"), theory(quantile));
        // A busy machine delays; nothing makes an answer come before the stall is over.
        assert!(
            found > expected - 25.0 && found < expected + 2000.0,
            "p{}: {found} ms, by theory {expected} ms",
            quantile * 100.0
        );
    }
}

#[test]
fn an_open_loop_shows_the_stall_as_theory_says() {
    let server = stalling();
    let plan = Plan::Scheduled(Schedule::parse("const(200, 3s)").expect("a schedule"));
    agrees(&report(server.load(plan)).total.latency_ms);
}

#[test]
fn it_does_so_with_few_connections_too() {
    let server = stalling();
    let mut load = server.load(Plan::Scheduled(Schedule::parse("const(200, 3s)").expect("a schedule")));
    load.max_connections = 4;
    let report = report(load);
    agrees(&report.total.latency_ms);
    // What a tool that counts from the actual start would have seen: two stalls of four connections in 600 shots.
    let service = report.total.service_ms.expect("a schedule");
    assert!(service.p95 < Some(100.0), "{:?}", service.p95);
    assert!(report.total.late_waiting > 100);
}

#[test]
fn a_closed_loop_cannot_show_it() {
    let server = stalling();
    let report = report(server.load(Plan::Closed { connections: 4, until: Until::Duration(2 * PERIOD) }));
    // It stops sending while the server stalls: eight slow requests among thousands.
    let latency = report.total.latency_ms;
    assert!(latency.p95 < Some(100.0) && latency.max > Some(400.0), "{latency:?}");
}
