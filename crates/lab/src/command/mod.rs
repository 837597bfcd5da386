//! The sub-commands, one file each.

pub mod load;
