//! The sub-commands, one file each.

pub mod engines;
pub mod load;
