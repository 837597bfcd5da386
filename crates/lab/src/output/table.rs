//! Tables for the terminal.

use std::fmt;

use comfy_table::{CellAlignment, ContentArrangement, presets::NOTHING};

/// Columns without lines between them; figures to the right.
pub struct Table(comfy_table::Table);

impl Table {
    /// With these heads.
    pub fn new(heads: &[&str]) -> Self {
        let mut table = comfy_table::Table::new();
        table.load_preset(NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_header(heads);
        Self(table)
    }

    /// Columns from this one on hold figures.
    pub fn figures_from(mut self, first: usize) -> Self {
        for column in self.0.column_iter_mut().skip(first) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        self
    }

    /// Adds a row.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.0.add_row(cells);
    }

    /// Adds a row of any length.
    pub fn cells(&mut self, cells: Vec<String>) {
        self.0.add_row(cells);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.lines().map(|line| line.trim_end().to_owned()).collect();
        f.write_str(&lines.join("\n"))
    }
}
