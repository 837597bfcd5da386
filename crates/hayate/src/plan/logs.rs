//! `access_log`, of the server and of applications.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use super::{App, Plan, app::AppResolver, places};
use crate::config::{AccessLogTo, ConfigError, Source};

/// Access logs of applications: each has a thread that writes it, and buffers.
const MOST_LOGS: usize = 256;

impl AppResolver<'_> {
    /// That of an application, if it has one of its own.
    pub(super) fn access_log(&self, to: Option<AccessLogTo>) -> Result<Option<AccessLogTo>, ConfigError> {
        let Some(AccessLogTo::File(path)) = to else { return Ok(to) };
        let path = self.beside_file(&path);
        match places::file_fault(&path) {
            Some(why) => Err(self.error("access_log", format!("access_log: {why}"))),
            None => Ok(Some(AccessLogTo::File(path))),
        }
    }
}

/// Not too many of them.
pub(super) fn check(source: &Source, apps: &[App]) -> Result<(), ConfigError> {
    let logs: BTreeSet<&AccessLogTo> = apps.iter().filter_map(|app| app.access_log.as_ref()).collect();
    if logs.len() <= MOST_LOGS {
        return Ok(());
    }
    let why = format!(
        "access_log: expected {MOST_LOGS} files of applications at most, since each has a thread, found {}; let them share one \
         (access_log_format = \"json\" names the application in each line)",
        logs.len()
    );
    Err(source.error(&[], why))
}

/// Where a log is, or will be, without symbolic links but for its own.
fn place_of(to: &AccessLogTo) -> Option<PathBuf> {
    let AccessLogTo::File(path) = to else { return None };
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Some(directory.canonicalize().ok()?.join(path.file_name()?))
}

/// What lies in a document root is sent to nobody, and spoken of.
pub(super) fn keep_private(apps: &mut [App], of_server: Option<&AccessLogTo>) {
    let of_apps = apps.iter().filter_map(|app| app.access_log.as_ref());
    let places: BTreeSet<PathBuf> = of_server.into_iter().chain(of_apps).filter_map(place_of).collect();
    for app in apps {
        let root = &app.spec.document_root;
        for place in places.iter().filter(|place| place.starts_with(root)) {
            app.private_paths.push(place.clone());
            app.doubts.push(format!(
                "access_log: {} lies in the document root: it is sent to nobody, but what rotation makes of it ({}.1) may be; move it elsewhere",
                place.display(),
                place.file_name().unwrap_or_default().display()
            ));
        }
    }
}

impl Plan {
    /// Where access logs go: the server's (`None`), and those of applications, by their number.
    pub fn access_logs(&self) -> impl Iterator<Item = (&AccessLogTo, Option<usize>)> {
        let of_apps = self.configured().enumerate();
        let of_apps = of_apps.filter_map(|(i, app)| Some((app.access_log.as_ref()?, Some(i))));
        [(&self.access_log.0, None)].into_iter().chain(of_apps)
    }
}
