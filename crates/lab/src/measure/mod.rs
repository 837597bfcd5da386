//! Experiments at work: the generator, the monitor, one measurement, rounds of them, the search for an engine's limits.

mod account;
mod generator;
mod monitor;
pub mod noise;
mod plan;
mod pool;
mod progress;
mod rounds;
mod saturate;
mod trial;

pub use generator::Generator;
pub use plan::{Planned, Planner};
pub use pool::Pool;
pub use progress::{Progress, about, expected};
pub use rounds::Rounds;
pub use saturate::Search;
pub use trial::{Trial, TrialEnd};
