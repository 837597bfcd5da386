//! What the lab prints and writes.

pub mod csv;
pub mod number;
pub mod table;
pub mod text;
