//! `error_pages`: how they are written is looked at by the front's own code, and here whether they are there, so that `hayate check` says so.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use hayate_front::{ErrorPages, LARGEST_ERROR_PAGE};

use super::{App, app::AppResolver};
use crate::config::{ConfigError, Step};

/// As [`ErrorPages::new`] takes them.
fn parsed(pages: &BTreeMap<String, String>) -> Result<ErrorPages, (&str, String)> {
    ErrorPages::new(pages.iter().map(|(status, path)| (&**status, &**path)))
}

impl AppResolver<'_> {
    pub(super) fn error_pages(
        &self,
        pages: BTreeMap<String, String>,
    ) -> Result<BTreeMap<String, String>, ConfigError> {
        match parsed(&pages) {
            Ok(_) => Ok(pages),
            Err((status, why)) => {
                let steps = [Step::Key("app"), Step::At(self.i), Step::Key("error_pages"), Step::Key(status)];
                Err(self.source.error(&steps, format!("error_pages: {why}")))
            }
        }
    }
}

impl App {
    /// Its own pages for errors. They were checked with the plan.
    pub(super) fn error_pages(&self) -> ErrorPages {
        parsed(&self.error_pages).unwrap_or_default()
    }
}

/// What is to be said of those that cannot be sent as they are now: a release may bring them later.
pub(super) fn doubts(pages: &BTreeMap<String, String>, document_root: &Path) -> Vec<String> {
    let files: BTreeSet<&str> = pages.values().map(|path| path.trim_start_matches('/')).collect();
    let doubt = |path| {
        let file = document_root.join(path);
        let why = match fs::metadata(&file) {
            Ok(meta) if !meta.is_file() => "it is no file".to_owned(),
            Ok(meta) if meta.len() > LARGEST_ERROR_PAGE => {
                format!("expected {LARGEST_ERROR_PAGE} bytes at most, found {}", meta.len())
            }
            Ok(_) => return None,
            Err(error) => error.to_string(),
        };
        Some(format!(
            "error_pages: {}: {why}; Hayate's own page is sent until there is such a file below the document root",
            file.display()
        ))
    };
    files.into_iter().filter_map(doubt).collect()
}
