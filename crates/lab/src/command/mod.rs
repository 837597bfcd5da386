//! The sub-commands, one file each.

pub mod compare;
pub mod engines;
pub mod experiment;
pub mod generate;
pub mod ladder;
pub mod load;
pub mod report;
pub mod reproduce;
pub mod run;
pub mod saturate;
