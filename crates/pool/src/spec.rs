//! What a generation is to be: the application, its limits, and the host's command line that follows from them.

use std::{ffi::OsString, ops::RangeInclusive, path::PathBuf, time::Duration};

/// How PHP runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    /// A full request startup and shutdown for each request, as php-fpm.
    Classic,
    /// A script that boots once and then handles requests in a loop.
    Worker {
        /// The script, absolute.
        script: PathBuf,
    },
}

impl Mode {
    /// `classic` or `worker`.
    pub fn name(&self) -> &'static str {
        match self {
            Mode::Classic => "classic",
            Mode::Worker { .. } => "worker",
        }
    }
}

/// One application's processes. All paths are absolute.
#[derive(Debug, Clone)]
pub struct Spec {
    /// The application's name, for the log.
    pub name: String,
    /// What PHP calls `DOCUMENT_ROOT`.
    pub document_root: PathBuf,
    /// The directory the host starts in.
    pub cwd: PathBuf,
    /// How PHP runs.
    pub mode: Mode,
    /// The host binary, for example `hayate-php8.2`.
    pub host: PathBuf,
    /// MIN and MAX; 1 to 1024.
    pub workers: RangeInclusive<u32>,
    /// php.ini settings on top of the files'.
    pub ini: Vec<(String, String)>,
    /// The whole environment of PHP, but for USER and HOME.
    pub env: Vec<(String, String)>,
    /// In place of the distribution's php.ini.
    pub php_ini: Option<PathBuf>,
    /// Requests after which a worker is replaced.
    pub max_requests: Option<u64>,
    /// Private bytes above which a worker is replaced after a request.
    pub max_memory: Option<u64>,
    /// How long PHP may run for one request; the worker is killed then.
    pub request_timeout: Option<Duration>,
    /// How long a request may wait for a worker.
    pub queue_timeout: Duration,
    /// How long a worker above MIN may idle before it is let go.
    pub idle_timeout: Duration,
    /// Development mode of the host.
    pub development: bool,
    /// Sets `PR_SET_NO_NEW_PRIVS` in the host.
    pub no_new_privileges: bool,
    /// The soft limit of open files that PHP gets; the front's own is higher than PHP's use of select() bears. `None`:
    /// inherited.
    pub open_files: Option<u64>,
}

/// Where the application of worker mode boots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Boot {
    /// In the zygote; workers share the booted pages.
    #[default]
    Shared,
    /// In each worker, because the boot opens what processes must not share.
    Private,
}

impl Spec {
    /// The arguments of the host, as `host/options.c` reads them.
    pub(crate) fn arguments(&self, boot: Boot) -> Vec<OsString> {
        let mut args: Vec<OsString> = Vec::new();
        let mut add = |flag: &str, value: OsString| args.extend([flag.into(), value]);
        add("--mode", self.mode.name().into());
        if let Mode::Worker { script } = &self.mode {
            add("--worker", script.into());
            add("--boot", if boot == Boot::Private { "private" } else { "shared" }.into());
        }
        add("--root", (&self.document_root).into());
        add("--cwd", (&self.cwd).into());
        if let Some(file) = &self.php_ini {
            add("--php-ini", file.into());
        }
        for (key, value) in &self.ini {
            add("--ini", format!("{key}={value}").into());
        }
        for (key, value) in &self.env {
            add("--env", format!("{key}={value}").into());
        }
        if let Some(n) = self.max_requests {
            add("--max-requests", n.to_string().into());
        }
        if let Some(bytes) = self.max_memory {
            add("--max-memory", bytes.to_string().into());
        }
        add("--no-new-privileges", u8::from(self.no_new_privileges).to_string().into());
        if self.development {
            args.push("--dev".into());
        }
        args
    }
}
