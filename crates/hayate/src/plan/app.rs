//! One application of the plan: its paths found, its defaults filled in.

use std::{
    collections::BTreeMap,
    env,
    fmt::Display,
    fs,
    os::unix::fs::MetadataExt,
    path::{Component, Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use hayate_front::{
    Compression, Disk, HostPattern,
    rules::{Around, Keeper, Rules},
};
use hayate_pool::{BOOT_SCRIPT_VARIABLES, Connections, Mode, Rewind, Spec, Way, is_setting};

use super::{ALWAYS, App, FrontController, error_pages, flag, mode::Running, published, time};
use crate::{
    args::{KeyValue, ServeArgs},
    config::{self, ConfigError, OneOrMany, RetryChoice, Scalar, Setting, Size, Source, Step},
    framework, machine, php,
    privileges::{self, Identity},
};

/// In place of a version of PHP: none.
const NO_PHP: &str = "off";
/// The directory of an application that is not served; there is none of this name.
const NOWHERE: &str = "/proc/hayate-serves-nothing-here";

/// Resolves the application that is the `i`th in the file.
pub(super) struct AppResolver<'a> {
    pub(super) source: &'a Source,
    pub(super) args: &'a ServeArgs,
    pub(super) i: usize,
    pub(super) development: bool,
    pub(super) no_new_privileges: bool,
    /// Whom PHP becomes unless the application says otherwise.
    pub(super) user: Option<&'a Identity>,
    /// Which answers are compressed unless the application says otherwise.
    pub(super) compression: Option<&'a Compression>,
    /// Where keys of certificates are kept, without symbolic links.
    pub(super) storage: Option<&'a Path>,
}

impl AppResolver<'_> {
    pub(super) fn error(&self, key: &str, message: impl Into<String>) -> ConfigError {
        self.source.error(&[Step::Key("app"), Step::At(self.i), Step::Key(key)], message)
    }

    pub(super) fn beside_file(&self, path: &Path) -> PathBuf {
        self.source.directory_of(self.i).unwrap_or(Path::new(".")).join(path)
    }

    pub(super) fn directory(&self, key: &str, path: &Path) -> Result<PathBuf, ConfigError> {
        let found = path.canonicalize().map_err(|e| {
            self.error(key, format!("{key}: cannot use the directory {}: {e}", path.display())).of_disk()
        })?;
        match found.is_dir() {
            true => Ok(found),
            false => Err(self.error(key, format!("{key}: {} is no directory", path.display())).of_disk()),
        }
    }

    pub(super) fn file(&self, key: &str, path: &Path) -> Result<PathBuf, ConfigError> {
        let found = path.canonicalize().map_err(|e| {
            self.error(key, format!("{key}: cannot use the file {}: {e}", path.display())).of_disk()
        })?;
        match found.is_file() {
            true => Ok(found),
            false => Err(self.error(key, format!("{key}: {} is no file", path.display())).of_disk()),
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

    pub(super) fn may_be_published(
        &self,
        key: &str,
        directory: &Path,
        private: &[PathBuf],
    ) -> Result<(), ConfigError> {
        let by_storage = || published::refusal_by_storage(directory, self.storage?);
        let why = published::refusal(directory, private.iter().chain(self.source.real_paths()));
        match why.or_else(by_storage) {
            None => Ok(()),
            Some(why) if self.source.path().is_none() || self.args.root.is_some() => Err(flag(why)),
            Some(why) => Err(self.error(key, format!("{key}: {why}")).of_disk()),
        }
    }

    fn queue_limit(&self, key: Option<usize>) -> Result<usize, ConfigError> {
        let limit = self.args.queue_limit.or(key).unwrap_or(1024);
        match limit {
            1..=1_000_000 => Ok(limit),
            _ => {
                Err(self.out_of_range("queue_limit", self.args.queue_limit.is_some(), limit, "1 to 1000000"))
            }
        }
    }

    fn max_memory(&self, key: Option<Size>) -> Result<Option<u64>, ConfigError> {
        match self.args.max_memory.or(key) {
            None | Some(Size(0)) => Ok(None),
            Some(Size(size)) if size >= 1 << 20 => Ok(Some(size)),
            Some(Size(size)) => Err(self.out_of_range(
                "max_memory",
                self.args.max_memory.is_some(),
                size,
                "1M or more, or 0 for none",
            )),
        }
    }

    fn out_of_range(&self, key: &str, by_flag: bool, value: impl Display, words: &str) -> ConfigError {
        let why = format!("{value} is out of range; write {words}");
        match by_flag {
            true => flag(format!("--{}: {why}", key.replace('_', "-"))),
            false => self.error(key, format!("{key}: {why}")),
        }
    }

    /// Its directory, as it was named.
    fn root(&self, app: &config::App) -> Result<PathBuf, ConfigError> {
        let root = match (&self.args.root, &app.root) {
            (Some(root), _) => root.clone(),
            (None, Some(root)) => self.beside_file(root),
            (None, None) if self.source.path().is_some() => {
                let why = "root is missing: write the application's directory, such as root = \"/srv/app\" (relative to this file)";
                return Err(self.error("root", why));
            }
            (None, None) => PathBuf::from("."),
        };
        Ok(if root.as_os_str().is_empty() { PathBuf::from(".") } else { root })
    }

    /// Its path and its hosts.
    fn answers_to(&self, app: &config::App) -> Result<(String, Vec<String>), ConfigError> {
        let path = app.path.clone().unwrap_or_else(|| "/".into());
        if path != "/" {
            self.is_path("path", &path, "/blog")?;
        }
        let hosts = app.hosts.clone().map(OneOrMany::into_vec).unwrap_or_default();
        for host in &hosts {
            HostPattern::parse(host).map_err(|why| self.error("hosts", format!("hosts: {why}")))?;
        }
        Ok((path, hosts))
    }

    fn is_path(&self, key: &str, path: &str, such: &str) -> Result<(), ConfigError> {
        let odd = |part: &str| matches!(part, "" | "." | "..") || part.contains(['%', '?', '#', '\\']);
        match path.strip_prefix('/').is_none_or(|parts| parts.split('/').any(odd)) {
            false => Ok(()),
            true => Err(self.error(
                key,
                format!(
                    "{key}: '{path}' must begin with a slash, not end with one, and be written as it is (no %20); write {such}"
                ),
            )),
        }
    }

    /// For logs and metrics. `root` is as it was given, and with links resolved if it can be.
    fn name(&self, app: &config::App, root: (&Path, &Path)) -> Result<String, ConfigError> {
        let name = app.name.clone().unwrap_or_else(|| {
            let last = last_name(root.0, root.1);
            let number = self.source.number_of(self.i);
            if number == 0 { last } else { format!("{last}-{}", number + 1) }
        });
        match name.is_empty() || name.contains(|c: char| c.is_control() || c == '"') {
            true => Err(self.error("name", "name: write a word, it stands in logs and metrics")),
            false => Ok(name),
        }
    }

    fn is_static(&self, app: &config::App) -> bool {
        [&self.args.php, &app.php].into_iter().flatten().any(|php| php == NO_PHP)
    }

    /// In place of one that cannot be resolved: it answers to the same, always with 503.
    pub(super) fn failed(&self, app: &config::App, why: String) -> Result<App, ConfigError> {
        let (path, hosts) = self.answers_to(app)?;
        let given = self.root(app)?;
        let nowhere = PathBuf::from(NOWHERE);
        Ok(App {
            hosts,
            path,
            index: Vec::new(),
            front_controller: FrontController::default(),
            sendfile_roots: None,
            charset: None,
            deny: Vec::new(),
            htaccess_seen: Vec::new(),
            compression: None,
            hidden_files: Vec::new(),
            access_log: self.access_log(app.access_log.clone())?,
            doubts: Vec::new(),
            rules: Vec::new(),
            error_pages: self.error_pages(app.error_pages.clone())?,
            private: Vec::new(),
            private_paths: Vec::new(),
            is_static: self.is_static(app),
            failed: Some(why),
            queue_limit: 1,
            retry: false,
            streams_bodies: false,
            warmup: Vec::new(),
            recognised: None,
            remark: None,
            warning: None,
            scripts: None,
            beside: None,
            pool: app.pool.clone(),
            timeouts_of_others: Vec::new(),
            identity: self.identity(app)?,
            spec: Spec {
                name: self.name(app, (&given, &given))?,
                mode: Mode::Classic,
                document_root: nowhere.clone(),
                cwd: nowhere,
                host: PathBuf::new(),
                workers: 1..=1,
                ini: Vec::new(),
                fixed_ini: Vec::new(),
                env: Vec::new(),
                php_ini: None,
                ini_env: Vec::new(),
                max_requests: None,
                max_memory: None,
                request_timeout: None,
                slow_request: None,
                queue_timeout: ALWAYS,
                idle_timeout: ALWAYS,
                boot_timeout: None,
                rewind: Rewind::Off,
                warmup: Vec::new(),
                compared: Vec::new(),
                rewind_verify: None,
                connections: Connections::Request,
                connection_lifetime: None,
                explain: None,
                development: self.development,
                no_new_privileges: self.no_new_privileges,
                way: Way::Configured,
            },
        })
    }

    pub(super) fn resolve(&self, app: config::App) -> Result<App, ConfigError> {
        let args = self.args;
        let given = self.root(&app)?;
        let root = self.directory("root", &given)?;
        let document_root = match &app.document_root {
            Some(path) => self.directory("document_root", &root.join(path))?,
            None if root.join("public/index.php").is_file() => {
                self.directory("root", &root.join("public"))?
            }
            None => match framework::document_root(&root) {
                Ok(Some(name)) => self.directory("root", &root.join(name))?,
                Ok(None) => root.clone(),
                Err(why) => return Err(self.error("root", format!("root: {why}")).of_disk()),
            },
        };
        let is_static = self.is_static(&app);
        if let Some(pool) = app.pool.as_ref().filter(|_| !is_static) {
            self.refuse_keys_of_workers(&app, pool)?;
        }
        let identity = self.identity(&app)?;
        let php_ini = match (&args.php_ini, &app.php_ini) {
            (Some(file), _) => Some(self.file("php_ini", file)?),
            (None, Some(file)) => Some(self.file("php_ini", &self.beside_file(file))?),
            (None, None) => None,
        };
        let scan_dir = app.php_ini_scan_dir.clone().map(OneOrMany::into_vec);
        let ini_env = self.ini_env(scan_dir, |name| env::var(name).ok())?;
        self.are_settings("ini", &app.ini)?;
        self.are_settings("admin_ini", &app.admin_ini)?;
        // Directories that hold one are not published: these are for links that lead there.
        let mut private: Vec<PathBuf> = self.source.real_paths().cloned().chain(php_ini.clone()).collect();
        let key = if app.document_root.is_some() { "document_root" } else { "root" };
        self.may_be_published(key, &document_root, &private)?;
        let mut env = merged(app.env.clone(), &args.env);
        let patterns = app.inherit_env.clone().map(OneOrMany::into_vec).unwrap_or_default();
        let outside = env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        for (name, value) in self.inherited_env(&patterns, outside)? {
            if !env.iter().any(|(known, _)| *known == name) {
                env.push((name, value));
            }
        }
        let running = match (is_static, &app.pool) {
            (true, _) => {
                self.refuse_keys_of_php(&app)?;
                Running::classic()
            }
            (false, Some(_)) => Running::classic(),
            (false, None) => self.running(&app, &root, &document_root, &env)?,
        };
        if let Some(recognised) = &running.recognised {
            // For the boot script, which lies elsewhere and takes them out again.
            let [project, run] = BOOT_SCRIPT_VARIABLES;
            env.push((project.into(), root.to_string_lossy().into_owned()));
            if let Some(method) = recognised.framework.run() {
                env.push((run.into(), method.into()));
            }
        }
        let front_controller =
            self.front_controller(&app, &document_root, (!is_static).then_some(&running))?;
        let charset = app.charset.clone().filter(|charset| !charset.is_empty());
        let token = |b: u8| b.is_ascii_alphanumeric() || b"-_.:+".contains(&b);
        if charset.as_ref().is_some_and(|charset| !charset.bytes().all(token)) {
            return Err(self.error("charset", "charset: write the name of an encoding, such as utf-8"));
        }
        let (path, hosts) = self.answers_to(&app)?;
        let name = self.name(&app, (&given, &root))?;
        let deny = app.deny.map(OneOrMany::into_vec).unwrap_or_default();
        for path in &deny {
            self.is_path("deny", path, "/data")?;
            if path.contains(['*', '{', '[']) || path.ends_with(char::is_whitespace) {
                let why = format!(
                    "deny: '{path}' looks like a pattern, or has a space at its end, and is a path with all below it; for patterns write an \
                     [[app.rule]] with glob = \"{path}\" and deny = 404"
                );
                return Err(self.error("deny", why));
            }
        }
        let htaccess_seen = app.htaccess_seen.map(OneOrMany::into_vec).unwrap_or_default();
        // Names of directories, not of URLs.
        if let Some(path) = htaccess_seen.iter().find(|path| !path.starts_with('/')) {
            let why =
                format!("'{path}' must begin with a slash; write /lib, or / for the document root's own");
            return Err(self.error("htaccess_seen", format!("htaccess_seen: {why}")));
        }
        let host = match is_static || app.pool.is_some() {
            true => PathBuf::new(),
            false => php::find(args.php.as_deref().or(app.php.as_deref())).map_err(|why| match args.php {
                Some(_) => flag(format!("--php: {why}")),
                None => self.error("php", why),
            })?,
        };
        let sendfile_roots = app.sendfile_roots.map(|roots| {
            let roots = roots.into_vec().into_iter();
            let each = roots.map(|path| {
                let found = self.directory("sendfile_roots", &self.beside_file(path.as_ref()))?;
                self.may_be_published("sendfile_roots", &found, &private)?;
                Ok(found)
            });
            each.collect::<Result<Vec<PathBuf>, ConfigError>>()
        });
        let sendfile_roots = sendfile_roots.transpose()?;
        let workers = args.workers.or(app.workers).unwrap_or_else(machine::workers);
        let index = app.index.map(OneOrMany::into_vec);
        let index = index.unwrap_or_else(|| match is_static {
            true => vec!["index.html".into()],
            false => vec!["index.php".into(), "index.html".into()],
        });
        if let Some(name) =
            index.iter().find(|name| name.is_empty() || name.starts_with('.') || name.contains('/'))
        {
            return Err(
                self.error("index", format!("index: '{name}' is no file's name; write such as index.php"))
            );
        }
        let hidden_files = self.hidden_files(app.hidden_files.clone())?;
        let access_log = self.access_log(app.access_log)?;
        let error_pages = self.error_pages(app.error_pages)?;
        let (rules, of_rules) = self.rules(&app.rule, &private)?;
        let around = Around {
            app: &name,
            path: &path,
            place: &Disk::without_threads().place(&document_root),
            files: &Arc::default(),
            index: &index,
            front_controller: front_controller.script.as_deref(),
        };
        Rules::new(&rules, &around, &Keeper::default()).map_err(|fault| {
            let error = self.in_rule(fault.rule, fault.key, &fault.message);
            if fault.key == "basic_auth" { error.of_disk() } else { error }
        })?;
        private.extend(of_rules);
        Ok(App {
            hosts,
            path,
            index,
            front_controller,
            sendfile_roots,
            charset,
            deny,
            htaccess_seen,
            compression: self.compression.filter(|_| app.compress.unwrap_or(true)).cloned(),
            hidden_files,
            access_log,
            doubts: error_pages::doubts(&error_pages, &document_root),
            rules,
            error_pages,
            private: private
                .iter()
                .filter_map(|file| fs::metadata(file).ok())
                .map(|meta| (meta.dev(), meta.ino()))
                .collect(),
            private_paths: private.iter().flat_map(|file| names_of(file)).collect(),
            is_static,
            failed: None,
            queue_limit: self.queue_limit(app.queue_limit)?,
            retry: app.retry == Some(RetryChoice::Idempotent),
            streams_bodies: app.request_buffering == Some(false),
            warmup: running.warmup,
            recognised: running.recognised,
            remark: running.remark,
            warning: running.warning,
            scripts: None,
            beside: None,
            pool: app.pool,
            timeouts_of_others: Vec::new(),
            identity,
            spec: Spec {
                name,
                mode: running.mode,
                document_root,
                cwd: root,
                host,
                workers: workers.min..=workers.max,
                fixed_ini: app.admin_ini.keys().cloned().collect(),
                // Of several lines the last one counts.
                ini: [settings(app.ini, &args.ini), settings(app.admin_ini, &[])].concat(),
                env,
                php_ini,
                ini_env,
                max_requests: args.max_requests.or(app.max_requests).filter(|n| *n > 0),
                max_memory: self.max_memory(app.max_memory)?,
                request_timeout: time(args.request_timeout.or(app.request_timeout), Duration::from_secs(60)),
                slow_request: args.slow_request.or(app.slow_request).and_then(|time| time.0),
                queue_timeout: time(args.queue_timeout.or(app.queue_timeout), Duration::from_secs(30))
                    .unwrap_or(ALWAYS),
                idle_timeout: time(app.idle_timeout, Duration::from_secs(10)).unwrap_or(ALWAYS),
                boot_timeout: time(args.boot_timeout.or(app.boot_timeout), Duration::from_secs(60)),
                rewind: running.rewind,
                warmup: Vec::new(),
                compared: Vec::new(),
                rewind_verify: running.rewind_verify,
                connections: running.connections,
                connection_lifetime: time(
                    args.connection_lifetime.or(app.connection_lifetime),
                    Duration::from_secs(30 * 60),
                ),
                explain: None,
                development: self.development,
                no_new_privileges: self.no_new_privileges,
                way: Way::Configured,
            },
        })
    }
}

impl AppResolver<'_> {
    /// What is for PHP says that somebody expects some.
    fn refuse_keys_of_php(&self, app: &config::App) -> Result<(), ConfigError> {
        let keys = [
            ("worker", app.worker.is_some() || self.args.worker.is_some()),
            ("mode", app.mode.or(self.args.mode).is_some()),
            ("rewind", app.rewind.is_some()),
            ("warmup", app.warmup.is_some()),
            ("workers", app.workers.is_some()),
            ("pool", app.pool.is_some()),
            ("php_ini", app.php_ini.is_some()),
            ("ini", !app.ini.is_empty()),
            ("admin_ini", !app.admin_ini.is_empty()),
            ("sendfile_roots", app.sendfile_roots.is_some()),
            ("request_buffering", app.request_buffering.is_some()),
        ];
        self.refuse(&keys, &format!("with php = \"{NO_PHP}\" no script runs"))
    }

    /// Refuses the first of these keys that is given, beside another one that makes it vain.
    pub(super) fn refuse(&self, keys: &[(&str, bool)], why: &str) -> Result<(), ConfigError> {
        match keys.iter().find(|(_, given)| *given) {
            None => Ok(()),
            Some((key, _)) => Err(self.error(key, format!("{key}: {why}; leave one of the two out"))),
        }
    }

    /// Of a setting that php.ini holds once, the last of several values would count.
    fn are_settings(&self, table: &str, ini: &BTreeMap<String, Setting>) -> Result<(), ConfigError> {
        let error = |key: &str, why: String| {
            self.source.error(&[Step::Key("app"), Step::At(self.i), Step::Key(table), Step::Key(key)], why)
        };
        if let Some(key) = ini.keys().find(|key| !is_setting(key)) {
            let why =
                format!("{key:?} is no name of a setting of php.ini; write such as \"session.save_path\"");
            return Err(error(key, why));
        }
        let holds_several = |key: &str| key == "extension" || key == "zend_extension" || key.ends_with("[]");
        let is_list = |setting: &Setting| matches!(setting, Setting::Many(_));
        match ini.iter().find(|(key, setting)| is_list(setting) && !holds_several(key)) {
            None => Ok(()),
            Some((key, _)) => Err(error(
                key,
                format!(
                    "{key}: expected one value, found an array; php.ini holds only extension and zend_extension several times"
                ),
            )),
        }
    }

    /// By what PHP finds its ini files: what the file says, else the environment that the server was started in, as with php-fpm.
    fn ini_env(
        &self,
        scan_dir: Option<Vec<String>>,
        inherited: impl Fn(&str) -> Option<String>,
    ) -> Result<Vec<(String, String)>, ConfigError> {
        let mut env = Vec::new();
        let scan_dir = match scan_dir {
            Some(places) => {
                let each = places.iter().map(|place| match place.is_empty() {
                    true => Ok(String::new()),
                    false => {
                        let found = self.directory("php_ini_scan_dir", &self.beside_file(place.as_ref()))?;
                        match found.to_str() {
                            Some(path) if !path.contains(':') => Ok(path.to_owned()),
                            _ => Err(self.error(
                                "php_ini_scan_dir",
                                format!("php_ini_scan_dir: {place} must be UTF-8 and hold no colon, which separates directories"),
                            )),
                        }
                    }
                });
                let places = each.collect::<Result<Vec<String>, ConfigError>>()?;
                // An empty variable has PHP read none. The distribution's alone it reads without one.
                let distributions = !places.is_empty() && places.iter().all(String::is_empty);
                (!distributions).then(|| places.join(":"))
            }
            // Relative to where the server was started: the host starts elsewhere.
            None => inherited("PHP_INI_SCAN_DIR")
                .map(|given| given.split(':').map(absolute).collect::<Vec<String>>().join(":")),
        };
        env.extend(scan_dir.map(|places| ("PHP_INI_SCAN_DIR".into(), places)));
        env.extend(
            inherited("PHPRC")
                .filter(|place| !place.is_empty())
                // PHP looks in each.
                .map(|places| {
                    ("PHPRC".into(), places.split(':').map(absolute).collect::<Vec<_>>().join(":"))
                }),
        );
        Ok(env)
    }
}

impl AppResolver<'_> {
    /// The variables of `given` that `inherit_env` names, in the order of their names.
    fn inherited_env(
        &self,
        patterns: &[String],
        given: impl Iterator<Item = (String, String)>,
    ) -> Result<BTreeMap<String, String>, ConfigError> {
        for pattern in patterns {
            let name = pattern.strip_suffix('*').unwrap_or(pattern);
            if pattern.is_empty() || name.contains(['*', '=']) {
                return Err(self.error(
                    "inherit_env",
                    format!("inherit_env: '{pattern}' is no variable's name; write such as \"DATABASE_URL\" or \"APP_*\""),
                ));
            }
        }
        // What chooses ini files has keys of its own. HOME and USER are the user's, if somebody knows it, as with php-fpm, unless they are named.
        let known = privileges::own_user_is_known();
        let fits = |name: &str| match name {
            "PHP_INI_SCAN_DIR" | "PHPRC" => false,
            _ => patterns.iter().any(|pattern| match pattern.strip_suffix('*') {
                Some(start) => name.starts_with(start) && !(known && matches!(name, "HOME" | "USER")),
                None => pattern.as_str() == name,
            }),
        };
        Ok(given.filter(|(name, _)| fits(name)).collect())
    }
}

/// An empty path, PHP's word for its own directory, stays.
fn absolute(place: &str) -> String {
    std::path::absolute(place).map_or_else(|_| place.to_owned(), |path| path.to_string_lossy().into_owned())
}

/// A file as it is named, in a directory without links, and as links lead to it: another may take the place of either.
fn names_of(file: &Path) -> Vec<PathBuf> {
    let named = file.parent().and_then(|parent| parent.canonicalize().ok()).zip(file.file_name());
    let mut names: Vec<PathBuf> = named.map(|(parent, name)| parent.join(name)).into_iter().collect();
    names.extend(file.canonicalize().ok().filter(|real| !names.contains(real)));
    names
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

/// The file's settings of php.ini, with the flags' in place of those of the same name. Flags of one name stay together: php.ini may
/// name several extensions, and of any other setting the last line counts.
fn settings(file: BTreeMap<String, Setting>, flags: &[KeyValue]) -> Vec<(String, String)> {
    let by_flag = |key: &String| flags.iter().any(|KeyValue(flag, _)| flag == key);
    file.into_iter()
        .filter(|(key, _)| !by_flag(key))
        .flat_map(|(key, setting)| {
            setting.into_values().into_iter().map(move |value| (key.clone(), value)).collect::<Vec<_>>()
        })
        .chain(flags.iter().map(|KeyValue(key, value)| (key.clone(), value.clone())))
        .collect()
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
