//! What the lab prints and writes.

pub mod table;
