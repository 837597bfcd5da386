//! The sub-commands, one file each.

pub mod engines;
pub mod experiment;
pub mod load;
pub mod report;
pub mod run;
