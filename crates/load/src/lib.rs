//! A load generator for HTTP/1.1: open loop by a schedule, closed loop, or virtual users with ramp-up and loops.
//!
//! Promises: in an open loop the moment of each shot is fixed beforehand and latency counts from it, so that a stalled
//! server cannot hide (coordinated omission); a shot that is late, and a generator that cannot keep up, are reported.
//! Every request that is sent ends in exactly one way. Must never know what kind of server it talks to.

mod plan;
mod report;
mod schedule;

pub use plan::{Plan, Until};
pub use report::{Figures, Health, Latency, PhaseFigures, PlanReport, Report, Second};
pub use schedule::{Phase, Schedule, ScheduleError, Shot, Walk};
