//! What the lab prints and writes.

pub mod csv;
pub mod date;
pub mod html;
pub mod markdown;
pub mod number;
pub mod status;
pub mod table;
pub mod text;
pub mod verdict;
