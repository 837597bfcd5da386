//! How an application runs: classic or worker mode, by which script, and whether it is rewound.

use std::path::{Path, PathBuf};

use hayate_pool::{Connections, Mode, Rewind};

use super::app::AppResolver;
use crate::{
    config::{self, ConfigError, ModeChoice},
    framework::{self, Finding, Recognised},
};

/// What `rewind` is in worker mode when nobody says.
pub const REWIND_BY_DEFAULT: Rewind = Rewind::On;

/// What is requested before the snapshot when nobody says.
const WARMUP: [&str; 3] = ["/"; 3];

/// How an application runs, and why.
#[derive(Debug, Clone)]
pub struct Running {
    /// Classic, or the worker script.
    pub mode: Mode,
    /// Off in classic mode.
    pub rewind: Rewind,
    /// Paths requested before the snapshot; empty where there is none.
    pub warmup: Vec<String>,
    /// Every so many rewinds all memory is compared.
    pub rewind_verify: Option<u64>,
    /// What becomes of connections that are open when a worker is ready.
    pub connections: Connections,
    /// The framework whose boot script is used.
    pub recognised: Option<Recognised>,
    /// A framework was seen, whether its boot script is used or not.
    pub is_of_framework: bool,
    /// Why a framework's boot script is not used, when a framework was seen.
    pub remark: Option<String>,
    /// What is wrong with the project's files, so that more could not be seen of it.
    pub warning: Option<String>,
}

impl Running {
    /// As php-fpm would.
    pub(super) fn classic() -> Running {
        Running {
            mode: Mode::Classic,
            rewind: Rewind::Off,
            warmup: Vec::new(),
            rewind_verify: None,
            connections: Connections::Request,
            recognised: None,
            is_of_framework: false,
            remark: None,
            warning: None,
        }
    }
}

impl AppResolver<'_> {
    /// Chooses mode and script. Flags win over keys: `--mode classic` over the key `worker`, `--worker` over the key `mode`.
    pub(super) fn running(
        &self,
        app: &config::App,
        root: &Path,
        document_root: &Path,
        env: &[(String, String)],
    ) -> Result<Running, ConfigError> {
        let args = self.args;
        let (mode, script) = match (args.mode, &args.worker) {
            (None, None) => (app.mode, app.worker.as_ref()),
            (Some(ModeChoice::Worker), None) => (args.mode, app.worker.as_ref()),
            (mode, script) => (mode, script.as_ref()),
        };
        let rewind = args.rewind.or(app.rewind).map(Rewind::from);
        let (mut recognised, mut remark, mut warning) = (None, None, None);
        let mut is_of_framework = false;
        let script = match (mode, script) {
            (Some(ModeChoice::Classic), Some(_)) => {
                return Err(self.error(
                    "worker",
                    "worker: a worker script is for worker mode; leave it or mode = \"classic\" out",
                ));
            }
            (Some(ModeChoice::Classic), None) => None,
            (_, Some(script)) => Some(self.worker_script(script, root)?),
            (mode, None) => match framework::look(root, document_root, env) {
                Finding::Recognised(found) => {
                    is_of_framework = true;
                    let script = self.boot_script(&found, mode, rewind, &mut remark)?;
                    recognised = script.is_some().then_some(found);
                    script
                }
                Finding::Unsuited(why) => {
                    is_of_framework = true;
                    remark = Some(why);
                    None
                }
                Finding::Unreadable(why) => {
                    warning = Some(why);
                    None
                }
                Finding::Nothing => None,
            },
        };
        let Some(script) = script else {
            let seen = remark.as_deref().or(warning.as_deref());
            if mode == Some(ModeChoice::Worker) {
                let seen = seen.map(|why| format!("; {why}")).unwrap_or_default();
                return Err(self.error(
                    "mode",
                    format!("mode: worker mode needs a worker script: name one, worker = \"FILE\" (--worker FILE){seen}"),
                )
                .of_disk());
            }
            self.refuse_rewind_keys(app, seen).map_err(|error| match mode {
                // Otherwise the application's files have decided it.
                Some(ModeChoice::Classic) => error,
                _ => error.of_disk(),
            })?;
            return Ok(Running { is_of_framework, remark, warning, ..Running::classic() });
        };
        let rewind = rewind.unwrap_or(REWIND_BY_DEFAULT);
        Ok(Running {
            mode: Mode::Worker { script },
            rewind,
            warmup: if rewind == Rewind::Off { Vec::new() } else { self.warmup(app)? },
            rewind_verify: args
                .rewind_verify
                .or(app.rewind_verify)
                .filter(|n| *n > 0 && rewind != Rewind::Off),
            connections: args.connections.or(app.connections).map_or(Connections::Request, Connections::from),
            recognised,
            is_of_framework,
            remark,
            warning,
        })
    }

    fn worker_script(&self, script: &Path, root: &Path) -> Result<PathBuf, ConfigError> {
        // A flag's starts from the current directory, as other flags' do; or from the root, as the key's.
        if self.args.worker.as_deref() == Some(script) && script.is_file() {
            return self.file("worker", script);
        }
        self.file("worker", &root.join(script))
    }

    /// The boot script for a recognised framework, if it is to be used.
    fn boot_script(
        &self,
        found: &Recognised,
        mode: Option<ModeChoice>,
        rewind: Option<Rewind>,
        remark: &mut Option<String>,
    ) -> Result<Option<PathBuf>, ConfigError> {
        let asked = mode == Some(ModeChoice::Worker) || matches!(rewind, Some(Rewind::On | Rewind::Fork));
        if rewind == Some(Rewind::Off) && mode == Some(ModeChoice::Worker) {
            return Err(self.error(
                "rewind",
                format!(
                    "rewind: the boot script that comes with Hayate for {} relies on rewinding; leave rewind = \"off\" out, or name a \
                     worker script that is made for keeping state (worker = \"FILE\")",
                    found.framework
                ),
            ));
        }
        if let Some(debug) = found.debug.as_ref().filter(|_| !asked) {
            *remark = Some(format!(
                "this is a {} project in debug mode ({debug}), so changes of its code take effect at once; elsewhere it runs in worker mode",
                found.framework
            ));
            return Ok(None);
        }
        if rewind == Some(Rewind::Off) {
            *remark = Some(format!(
                "this is a {} project that Hayate can boot once and rewind after each request: leave rewind = \"off\" out",
                found.framework
            ));
            return Ok(None);
        }
        found.boot_script().map(Some).map_err(|why| self.error("mode", why))
    }

    fn warmup(&self, app: &config::App) -> Result<Vec<String>, ConfigError> {
        let paths = match (&self.args.warmup[..], &app.warmup) {
            ([off], _) if off == "off" => Vec::new(),
            ([], Some(paths)) => paths.clone(),
            ([], None) => WARMUP.map(str::to_owned).to_vec(),
            (paths, _) => paths.to_vec(),
        };
        let bad = |path: &&String| {
            !path.starts_with('/') || path.contains(|c: char| c.is_whitespace() || c.is_control())
        };
        match paths.iter().find(bad) {
            None => Ok(paths),
            Some(path) => Err(self.error(
                "warmup",
                format!("warmup: '{path}' is no path; write it as in a URL, such as /products?page=2"),
            )),
        }
    }

    /// Classic mode starts afresh anyway; a key that does nothing would let its owner believe otherwise.
    fn refuse_rewind_keys(&self, app: &config::App, seen: Option<&str>) -> Result<(), ConfigError> {
        let key = [
            ("rewind", app.rewind.is_some()),
            ("warmup", app.warmup.is_some()),
            ("rewind_verify", app.rewind_verify.is_some()),
            ("connections", app.connections.is_some()),
            ("connection_lifetime", app.connection_lifetime.is_some()),
        ];
        let Some((key, _)) = key.into_iter().find(|(_, set)| *set) else { return Ok(()) };
        let seen = seen.map(|why| format!("; {why}")).unwrap_or_default();
        Err(self.error(
            key,
            format!(
                "{key}: this application runs in classic mode, in which PHP itself starts afresh for each request; name a worker script \
                 (worker = \"FILE\") to boot it once and rewind, or leave {key} out{seen}"
            ),
        ))
    }
}
