//! What is wrong with a configuration, where, and what to do.

use std::{fmt, path::PathBuf};

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A line of the configuration file.
    Line(PathBuf, usize),
    /// The file as a whole.
    File(PathBuf),
    /// The command line.
    CommandLine,
}

/// How many errors are told at once. Who finds more may stop looking.
pub const MOST_ERRORS: usize = 20;

/// A configuration that cannot be used; the message holds the remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// Where it is wrong.
    pub place: Place,
    /// What is wrong, and what to do.
    pub message: String,
    /// What lies on the disk is at fault, of one application, and may be its own doing: the text could be right.
    pub of_disk: bool,
    /// What else is wrong, in the order of the file.
    also: Vec<ConfigError>,
}

impl ConfigError {
    /// Something of the text itself is wrong.
    pub fn new(place: Place, message: impl Into<String>) -> ConfigError {
        ConfigError { place, message: message.into(), of_disk: false, also: Vec::new() }
    }

    /// All that is wrong as one error; nothing if there is none.
    pub fn all(errors: impl IntoIterator<Item = ConfigError>) -> Option<ConfigError> {
        let mut errors = errors.into_iter();
        let mut first = errors.next()?;
        first.also.extend(errors);
        Some(first)
    }

    /// The same, where what lies on the disk is at fault.
    pub fn of_disk(self) -> ConfigError {
        ConfigError { of_disk: true, ..self }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Line(file, line) => write!(f, "{}:{line}: {}", file.display(), self.message),
            Place::File(file) => write!(f, "{}: {}", file.display(), self.message),
            Place::CommandLine => write!(f, "{}", self.message),
        }?;
        for error in self.also.iter().take(MOST_ERRORS - 1) {
            write!(f, "\n{error}")?;
        }
        if self.also.len() >= MOST_ERRORS { write!(f, "\nand so on") } else { Ok(()) }
    }
}

impl std::error::Error for ConfigError {}
