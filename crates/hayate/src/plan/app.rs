//! One application of the plan: its paths found, its defaults filled in.

use std::{
    collections::BTreeMap,
    env,
    path::{Component, Path, PathBuf},
    thread,
    time::Duration,
};

use hayate_front::HostPattern;
use hayate_pool::{Mode, Spec, Way};

use super::{ALWAYS, App, flag, time};
use crate::{
    args::{KeyValue, ServeArgs},
    config::{self, ConfigError, OneOrMany, RetryChoice, Scalar, Source, Step, Workers},
    php,
    privileges::Identity,
};

/// Resolves the application that is the `i`th in the file.
pub(super) struct AppResolver<'a> {
    pub(super) source: &'a Source,
    pub(super) args: &'a ServeArgs,
    pub(super) i: usize,
    pub(super) development: bool,
    pub(super) no_new_privileges: bool,
    /// Whom PHP becomes unless the application says otherwise.
    pub(super) user: Option<&'a Identity>,
}

impl AppResolver<'_> {
    pub(super) fn error(&self, key: &str, message: impl Into<String>) -> ConfigError {
        self.source.error(&[Step::Key("app"), Step::At(self.i), Step::Key(key)], message)
    }

    fn beside_file(&self, path: &Path) -> PathBuf {
        self.source.directory().unwrap_or(Path::new(".")).join(path)
    }

    fn directory(&self, key: &str, path: &Path) -> Result<PathBuf, ConfigError> {
        let found = path.canonicalize().map_err(|e| {
            self.error(key, format!("{key}: cannot use the directory {}: {e}", path.display()))
        })?;
        match found.is_dir() {
            true => Ok(found),
            false => Err(self.error(key, format!("{key}: {} is no directory", path.display()))),
        }
    }

    pub(super) fn file(&self, key: &str, path: &Path) -> Result<PathBuf, ConfigError> {
        let found = path
            .canonicalize()
            .map_err(|e| self.error(key, format!("{key}: cannot use the file {}: {e}", path.display())))?;
        match found.is_file() {
            true => Ok(found),
            false => Err(self.error(key, format!("{key}: {} is no file", path.display()))),
        }
    }

    fn identity(&self, app: &config::App) -> Result<Option<Identity>, ConfigError> {
        let (key, user) = match (&app.user, &app.group, self.user) {
            (Some(user), _, _) => ("user", user.as_str()),
            (None, Some(_), Some(user)) => ("group", user.name.as_str()),
            (None, Some(_), None) => {
                return Err(self.error("group", "group needs user: name the user to change to as well"));
            }
            (None, None, user) => return Ok(user.cloned()),
        };
        let found = Identity::find(user, app.group.as_deref());
        found.map(Some).map_err(|why| self.error(key, format!("{key}: {why:#}")))
    }

    pub(super) fn resolve(&self, app: config::App) -> Result<App, ConfigError> {
        let args = self.args;
        let root = match (&args.root, &app.root) {
            (Some(root), _) => root.clone(),
            (None, Some(root)) => self.beside_file(root),
            (None, None) => self.beside_file(Path::new("")),
        };
        let given = if root.as_os_str().is_empty() { PathBuf::from(".") } else { root };
        let root = self.directory("root", &given)?;
        let document_root = match &app.document_root {
            Some(path) => self.directory("document_root", &root.join(path))?,
            None if root.join("public/index.php").is_file() => {
                self.directory("root", &root.join("public"))?
            }
            None => root.clone(),
        };
        let identity = self.identity(&app)?;
        let mut env = merged(app.env.clone(), &args.env);
        let running = self.running(&app, &root, &document_root, &env)?;
        if running.recognised.is_some() {
            // For the boot script, which lies elsewhere and takes it out again.
            env.push(("HAYATE_PROJECT".into(), root.to_string_lossy().into_owned()));
        }
        let front_controller = match app.front_controller.as_deref() {
            Some("") => None,
            Some(script) => {
                let script = script.trim_start_matches('/');
                let found = self.file("front_controller", &document_root.join(script))?;
                if !found.starts_with(&document_root) {
                    return Err(self.error(
                        "front_controller",
                        format!("front_controller: {script} lies outside the document root"),
                    ));
                }
                Some(script.to_owned())
            }
            None if document_root.join("index.php").is_file() => Some("index.php".to_owned()),
            None => {
                let script = match &running.mode {
                    Mode::Worker { script } => script.strip_prefix(&document_root).ok(),
                    Mode::Classic => None,
                };
                script.and_then(Path::to_str).map(str::to_owned)
            }
        };
        let path = app.path.unwrap_or_else(|| "/".into());
        if !path.starts_with('/') || (path.len() > 1 && path.ends_with('/')) {
            return Err(self.error(
                "path",
                format!("path: '{path}' must begin with a slash and not end with one; write /blog"),
            ));
        }
        let hosts = app.hosts.map(OneOrMany::into_vec).unwrap_or_default();
        for host in &hosts {
            HostPattern::parse(host).map_err(|why| self.error("hosts", format!("hosts: {why}")))?;
        }
        let host = php::find(args.php.as_deref().or(app.php.as_deref())).map_err(|why| match args.php {
            Some(_) => flag(format!("--php: {why}")),
            None => self.error("php", why),
        })?;
        let php_ini = match (&args.php_ini, &app.php_ini) {
            (Some(file), _) => Some(self.file("php_ini", file)?),
            (None, Some(file)) => Some(self.file("php_ini", &self.beside_file(file))?),
            (None, None) => None,
        };
        let sendfile_roots = app.sendfile_roots.map(|roots| {
            let roots = roots.into_vec().into_iter();
            roots.map(|path| self.directory("sendfile_roots", &self.beside_file(path.as_ref()))).collect()
        });
        let sendfile_roots = sendfile_roots.transpose()?;
        let workers = args.workers.or(app.workers).unwrap_or_else(|| {
            let processors = thread::available_parallelism().map_or(1, |n| n.get() as u32);
            Workers { min: 1, max: (processors * 2).clamp(4, 1024) }
        });
        let name = app.name.unwrap_or_else(|| {
            let last = last_name(&given, &root);
            if self.i == 0 { last } else { format!("{last}-{}", self.i + 1) }
        });
        if name.is_empty() || name.contains(|c: char| c.is_control() || c == '"') {
            return Err(self.error("name", "name: write a word, it stands in logs and metrics"));
        }
        Ok(App {
            hosts,
            path,
            index: app
                .index
                .map(OneOrMany::into_vec)
                .unwrap_or_else(|| vec!["index.php".into(), "index.html".into()]),
            front_controller,
            sendfile_roots,
            queue_limit: args.queue_limit.or(app.queue_limit).unwrap_or(1024),
            retry: app.retry == Some(RetryChoice::Idempotent),
            warmup: running.warmup,
            recognised: running.recognised,
            remark: running.remark,
            identity,
            spec: Spec {
                name,
                mode: running.mode,
                document_root,
                cwd: root,
                host,
                workers: workers.min..=workers.max,
                ini: merged(app.ini, &args.ini),
                env,
                php_ini,
                max_requests: args.max_requests.or(app.max_requests).filter(|n| *n > 0),
                max_memory: args.max_memory.or(app.max_memory).map(|size| size.0).filter(|n| *n > 0),
                request_timeout: time(args.request_timeout.or(app.request_timeout), Duration::from_secs(60)),
                queue_timeout: time(args.queue_timeout.or(app.queue_timeout), Duration::from_secs(30))
                    .unwrap_or(ALWAYS),
                idle_timeout: time(app.idle_timeout, Duration::from_secs(10)).unwrap_or(ALWAYS),
                boot_timeout: time(args.boot_timeout.or(app.boot_timeout), Duration::from_secs(60)),
                rewind: running.rewind,
                warmup: Vec::new(),
                compared: Vec::new(),
                rewind_verify: running.rewind_verify,
                explain: None,
                development: self.development,
                no_new_privileges: self.no_new_privileges,
                way: Way::Configured,
            },
        })
    }
}

/// The last name of a path as it was given, so that `current` stays `current` whatever release it links to.
fn last_name(given: &Path, resolved: &Path) -> String {
    let working = env::var_os("PWD").map(PathBuf::from).filter(|pwd| same(pwd, Path::new(".")));
    // What the shell calls the current directory, which the kernel knows by its real name only.
    let absolute = match working {
        Some(working) => Ok(working.join(given)),
        None => std::path::absolute(given),
    };
    let last = absolute.as_deref().unwrap_or(resolved).components().next_back();
    let name = match last {
        Some(Component::Normal(name)) => Some(name),
        _ => resolved.file_name(),
    };
    name.and_then(|name| name.to_str()).unwrap_or("app").to_owned()
}

fn same(a: &Path, b: &Path) -> bool {
    matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

/// The file's pairs, with the flags' in place of those of the same name.
fn merged(file: BTreeMap<String, Scalar>, flags: &[KeyValue]) -> Vec<(String, String)> {
    let mut pairs: Vec<_> = file.into_iter().map(|(key, value)| (key, value.to_string())).collect();
    for KeyValue(key, value) in flags {
        pairs.retain(|(known, _)| known != key);
        pairs.push((key.clone(), value.clone()));
    }
    pairs
}
