//! A load generator for HTTP/1.1, HTTP/2 and HTTP/3, with TLS or without: open loop by a schedule, closed loop, or virtual users with ramp-up and loops.
//!
//! Promises: in an open loop the moment of each shot is fixed beforehand and latency counts from it, so that a stalled
//! server cannot hide (coordinated omission); a shot that is late, and a generator that cannot keep up, are reported.
//! Every request that is sent ends in exactly one way. Must never know what kind of server it talks to.
//!
//! ```no_run
//! use hayate_load::{Load, Plan, Requests, Schedule, Stop, Template, run};
//!
//! let requests = Requests::to("http://127.0.0.1:8080/", &Template::default())?;
//! let plan = Plan::Scheduled(Schedule::parse("line(1, 1000, 60s) const(1000, 60s)")?);
//! let report = run(Load::new(requests, plan), &Stop::new(), |second| println!("{} answers", second.requests))?;
//! println!("{:?} ms", report.total.latency_ms.p99);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Each generator thread has an event loop of its own and shares nothing with the others but the number of the next
//! request; it keeps its figures to itself and hands them over once a second (`recorder`, `collect`).

mod alarm;
mod collect;
mod connection;
mod cookies;
mod drive;
mod expect;
mod failure;
#[cfg(any(test, feature = "fuzzed"))]
#[allow(missing_docs, clippy::all)]
pub mod fuzzed;
mod plan;
mod recorder;
mod report;
mod request;
mod run;
mod schedule;
mod tally;
mod tls;
mod user;

pub use connection::Engine;
pub use expect::{Expect, Statuses, StatusesError};
pub use failure::Failure;
pub use plan::{Plan, Until};
pub use report::{Figures, Health, Latency, PhaseFigures, PlanReport, ProtocolReport, Report, Second};
pub use request::{Order, Request, RequestError, Requests, Template};
pub use run::{Load, LoadError, Stop, Version, run};
pub use schedule::{Phase, Schedule, ScheduleError, Shot, Walk, parse_duration};
pub use tls::Trust;
