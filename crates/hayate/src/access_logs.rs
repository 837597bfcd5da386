//! The access logs of a plan, opened: the server's, and those of applications. What names the same file is one log.

use std::{collections::BTreeMap, io, path::Path};

use hayate_front::{AccessLog, Format};

use crate::{
    config::{AccessLogFormat, AccessLogTo},
    plan::{App, Plan},
};

/// See the module's head.
#[derive(Clone, Default)]
pub struct AccessLogs {
    server: AccessLog,
    all: BTreeMap<AccessLogTo, AccessLog>,
}

fn format(plan: &Plan) -> Format {
    match plan.access_log.1 {
        AccessLogFormat::Combined => Format::Combined,
        AccessLogFormat::Json => Format::Json,
    }
}

impl AccessLogs {
    /// None at all, whatever a plan says.
    pub fn off() -> AccessLogs {
        AccessLogs::default()
    }

    /// Opens those of a plan. Goes on with those of `current` that are the same, if they could be opened anew.
    pub async fn open(plan: &Plan, current: &AccessLogs) -> io::Result<AccessLogs> {
        let format = format(plan);
        let mut all = BTreeMap::new();
        for to in plan.access_logs().map(|(to, _)| to) {
            let path = match to {
                AccessLogTo::Off => continue,
                AccessLogTo::Stdout => None,
                AccessLogTo::File(path) => Some(Path::new(path)),
            };
            if all.contains_key(to) {
                continue;
            }
            let known = current.all.get(to).filter(|known| known.goes_to(path, format));
            let opened = match (known, path) {
                (Some(known), None) => known.clone(),
                (None, None) => AccessLog::stdout(format)?,
                (Some(known), Some(path)) => {
                    // By a thread of its own: that of the log may wait for who reads it, and is told to open it once the reload is through.
                    AccessLog::file(path, format).await?;
                    known.clone()
                }
                (None, Some(path)) => AccessLog::file(path, format).await?,
            };
            all.insert(to.clone(), opened);
        }
        Ok(AccessLogs::of_plan(plan, all))
    }

    /// Those of a front that takes the place of one that served and is gone: it serves, whether or not they can be opened.
    pub fn open_in_time(plan: &Plan) -> io::Result<AccessLogs> {
        let mut all = BTreeMap::new();
        for to in plan.access_logs().map(|(to, _)| to) {
            let opened = match to {
                _ if all.contains_key(to) => continue,
                AccessLogTo::Off => continue,
                AccessLogTo::Stdout => AccessLog::stdout(format(plan))?,
                AccessLogTo::File(path) => AccessLog::file_in_time(path, format(plan))?,
            };
            all.insert(to.clone(), opened);
        }
        Ok(AccessLogs::of_plan(plan, all))
    }

    fn of_plan(plan: &Plan, all: BTreeMap<AccessLogTo, AccessLog>) -> AccessLogs {
        AccessLogs { server: all.get(&plan.access_log.0).cloned().unwrap_or_default(), all }
    }

    /// That of what no application answers, and of all that have none of their own.
    pub fn server(&self) -> &AccessLog {
        &self.server
    }

    /// That of an application; `None`: the server's.
    pub fn of(&self, app: &App) -> Option<AccessLog> {
        app.access_log.as_ref().map(|to| self.all.get(to).cloned().unwrap_or_default())
    }

    /// All of them.
    pub fn all(&self) -> Vec<AccessLog> {
        self.all.values().cloned().collect()
    }
}
