//! Engines at work: found, configured, started, checked, stopped.

mod condition;
mod detect;
mod files;
mod http;
mod ini;
mod instance;
mod port;
mod probe;
mod service;

pub use detect::{Presence, look_for};
pub use instance::{Failure, Instance, Purpose, Stage};
pub use service::Services;
