//! What is to run: the configuration file and the flags together, checked against the file system.
//!
//! Paths in the file start from the file's directory (`worker` and `document_root` from the application's root), paths in
//! flags from the current directory. Symbolic links are resolved here, once for each generation.

mod addresses;
mod app;
mod as_root;
mod compression;
mod error_pages;
mod exposed;
mod front_controller;
mod limits;
mod logs;
mod mode;
mod ordered;
mod places;
mod pool;
mod published;
mod routes;
mod rules;
mod scripts;
mod tls;
mod tls_keys;
mod vain;
mod visits;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use hayate_front::{Compression, Limits, ListenAddr, TrustedHeaders, rules::RuleSpec};
use hayate_pool::{Mode, Spec};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

pub use self::{
    as_root::PHP_AS_ROOT,
    front_controller::FrontController,
    mode::REWIND_BY_DEFAULT,
    scripts::Scripts,
    tls::{Described, Port, Tls, read as read_pem},
    visits::Address,
};

use self::app::AppResolver;
use crate::{
    args::ServeArgs,
    config::{
        self, AccessLogFormat, AccessLogTo, ConfigError, File, LogFormat, LogLevel, MOST_ERRORS, ModeChoice,
        OneOrMany, Source, Step, Time,
    },
    framework::Recognised,
    privileges::{self, Identity},
};

/// Everything that is to run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    /// Where clients connect.
    pub listen: Vec<ListenAddr>,
    /// How connections of each begin, in the same order.
    #[serde(default)]
    pub ports: Vec<Port>,
    /// TLS, if it is wanted.
    #[serde(default)]
    pub tls: Option<Tls>,
    /// The control socket, when one was asked for.
    pub control: Option<PathBuf>,
    /// Where metrics are served by TCP.
    pub metrics: Option<ListenAddr>,
    /// Where the process id is written.
    pub pid_file: Option<PathBuf>,
    /// Where answered requests are written down, and how.
    pub access_log: (AccessLogTo, AccessLogFormat),
    /// How much is logged.
    pub log_level: LogLevel,
    /// How that looks.
    pub log_format: LogFormat,
    /// Threads that serve connections.
    pub front_threads: u32,
    /// Whom the front becomes.
    pub front: Option<Identity>,
    /// That is another one than the configuration's, until a restart: that of the fronts before.
    #[serde(default)]
    pub front_kept: bool,
    /// Shows reasons on error pages.
    pub development: bool,
    /// Who is believed what he says of visitors.
    pub trusted_proxies: Vec<IpNet>,
    /// Whether peers on unix sockets are.
    pub trust_unix: bool,
    /// In which headers.
    #[serde(default)]
    pub trusted_headers: TrustedHeaders,
    /// Whether clients without TLS may begin with HTTP/2's preface.
    #[serde(default)]
    pub http2_prior_knowledge: bool,
    /// Whether clients of HTTP/1.1 get early hints.
    #[serde(default)]
    pub early_hints_http1: bool,
    /// Which secrets users of applications may read, in words.
    #[serde(default)]
    pub exposed: Vec<String>,
    /// Patterns of `include` that no file fits.
    #[serde(default)]
    pub unmatched: Vec<String>,
    /// How long requests may finish.
    pub drain_timeout: Duration,
    /// What a client may do.
    pub limits: Limits,
    /// The applications.
    pub apps: Vec<App>,
}

/// One application.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct App {
    /// Host names; empty: any.
    pub hosts: Vec<String>,
    /// Path prefix.
    pub path: String,
    /// Names tried in a directory.
    pub index: Vec<String>,
    /// Script that answers what is no file.
    pub front_controller: FrontController,
    /// From where X-Sendfile may send; `None`: that header means nothing to Hayate.
    pub sendfile_roots: Option<Vec<PathBuf>>,
    /// Paths of the document root that answer nobody.
    pub deny: Vec<String>,
    /// Directories of the document root whose .htaccess is not told of.
    #[serde(default)]
    pub htaccess_seen: Vec<String>,
    /// Encoding that static text files say they have.
    pub charset: Option<String>,
    /// Which of its answers are compressed, if some are.
    #[serde(default)]
    pub compression: Option<Compression>,
    /// Patterns for names of files that are not for visitors.
    #[serde(default)]
    pub hidden_files: Vec<String>,
    /// What becomes of requests before files and scripts are looked for.
    #[serde(default)]
    pub rules: Vec<RuleSpec>,
    /// Where the lines of its requests go, if not into the server's access log.
    #[serde(default)]
    pub access_log: Option<AccessLogTo>,
    /// What is doubtful about its files, in words: looked at with the plan, and not by the front, which a disk that hangs would hold up.
    #[serde(default)]
    pub doubts: Vec<String>,
    /// Pages below the document root for errors that Hayate answers with, by status, or `4xx` and `5xx`.
    #[serde(default)]
    pub error_pages: BTreeMap<String, String>,
    /// Files that are never sent, by whatever name: the configuration, php.ini. Device and inode, from who can read them.
    pub private: Vec<(u64, u64)>,
    /// Where they are, as they were named and as links lead to them.
    #[serde(default)]
    pub private_paths: Vec<PathBuf>,
    /// A site of static files: no PHP is started, and of `spec` only its name and its directories mean anything.
    #[serde(default)]
    pub is_static: bool,
    /// Why it cannot be served as long as this plan is: what lies on the disk is not as the configuration has it. All its requests get 503.
    #[serde(default)]
    pub failed: Option<String>,
    /// Requests that may wait.
    pub queue_limit: usize,
    /// Whether requests with idempotent methods run once more when their worker dies.
    pub retry: bool,
    /// Whether scripts may read bodies while they arrive.
    #[serde(default)]
    pub streams_bodies: bool,
    /// The framework whose boot script runs it.
    pub recognised: Option<Recognised>,
    /// Why a framework's boot script does not, when a framework was seen.
    pub remark: Option<String>,
    /// What is wrong with its files, so that more could not be seen of it.
    #[serde(default)]
    pub warning: Option<String>,
    /// PHP scripts beside its front controller, which run in classic mode, by an application of their own.
    #[serde(default)]
    pub scripts: Option<Scripts>,
    /// It is that application, beside the one of this name: it answers for these scripts and nothing else.
    #[serde(default)]
    pub beside: Option<String>,
    /// Its scripts run in the workers of the application of this name, which answers for user, settings and limits of PHP.
    #[serde(default)]
    pub pool: Option<String>,
    /// How long rules let requests run of applications whose scripts run in its workers.
    #[serde(default)]
    pub timeouts_of_others: Vec<Duration>,
    /// Its own paths that are requested before the snapshot is taken, in order.
    pub warmup: Vec<String>,
    /// Whom its processes become.
    pub identity: Option<Identity>,
    /// Its processes.
    pub spec: Spec,
}

impl App {
    /// How long requests may finish in processes of it that others have taken the place of: nothing presses, so what may run is not cut off, nor is an
    /// answer that its client takes slowly.
    pub fn patience(&self) -> Duration {
        let limits = self.rules.iter().filter_map(|rule| rule.timeout).chain(self.spec.request_timeout);
        let limits = limits.chain(self.timeouts_of_others.iter().copied());
        limits.filter(|limit| *limit < ALWAYS).fold(REPLACED, Duration::max)
    }

    /// Whether there are processes of its own.
    pub fn runs_php(&self) -> bool {
        self.has_scripts() && self.pool.is_none()
    }

    /// Whether scripts of it run, in processes of its own or in those of another application.
    pub fn has_scripts(&self) -> bool {
        !self.is_static && self.failed.is_none()
    }

    /// The application in whose workers its scripts run.
    pub fn pool(&self) -> &str {
        self.pool.as_deref().unwrap_or(&self.spec.name)
    }
}

/// What is wrong where `/proc/self/fd` is no directory.
pub const NO_PROC: &str = "/proc is not mounted, and neither files nor processes can be looked at without it: mount -t proc proc /proc";

/// Whose faults are a fault of the whole configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strictness {
    /// Everybody's.
    All,
    /// What lies on the disk may be an application's own doing, and then it is the only one that is not served; for the server's start, which
    /// has nothing else that could go on serving. If none is left, it is everybody's.
    EachByItself,
}

/// Addresses to listen on: their sockets go from the master to the front in one packet, which holds 253 (SCM_MAX_FD of the kernel).
const MOST_ADDRESSES: usize = 128;

impl Plan {
    /// Reads the file that the flags name, if any, applies the flags, and checks it all.
    pub fn load(args: &ServeArgs) -> Result<Plan, ConfigError> {
        Plan::load_as(args, Strictness::All, &mut |_| {})
    }

    /// As [`Plan::load`]; `reports` is told what is read next.
    pub fn load_as(
        args: &ServeArgs,
        strictness: Strictness,
        reports: &mut dyn FnMut(&str),
    ) -> Result<Plan, ConfigError> {
        // Files of applications are opened by way of it: without it a project would be taken for another, in silence.
        if !Path::new("/proc/self/fd").is_dir() {
            return Err(flag(NO_PROC));
        }
        reports("the configuration file");
        let (source, file) = match &args.config {
            Some(path) => Source::read(path)?,
            None => (Source::default(), File::default()),
        };
        Plan::from(&source, file, args, strictness, reports)
    }

    fn from(
        source: &Source,
        mut file: File,
        args: &ServeArgs,
        strictness: Strictness,
        reports: &mut dyn FnMut(&str),
    ) -> Result<Plan, ConfigError> {
        let secrets = exposed::Secrets::of(source, &file);
        let for_one = args.root.is_some() || args.worker.is_some() || args.front_controller.is_some();
        if file.app.len() > 1 && for_one {
            return Err(flag(
                "ROOT, --worker and --front-controller are for one application; set root, worker and front_controller in each [[app]] instead",
            ));
        }
        let from_file = |path: &Path| source.directory().unwrap_or(Path::new(".")).join(path);

        let listen = tls::listen(source, file.listen, args, tls::is_wanted(&file.tls, args))?;
        if listen.len() > MOST_ADDRESSES {
            let why = format!("listen: {} addresses; write {MOST_ADDRESSES} at most", listen.len());
            return Err(source.error(&[Step::Key("listen")], why));
        }
        // Of a key that a flag may stand for.
        let wrong = |key: &str, by_flag: bool, why: String| match by_flag {
            true => flag(format!("--{}: {why}", key.replace('_', "-"))),
            false => source.error(&[Step::Key(key)], format!("{key}: {why}")),
        };
        let metrics = args.metrics.as_ref().or(file.metrics.as_ref()).map(|text| metrics(text)).transpose();
        let metrics = metrics.map_err(|why| wrong("metrics", args.metrics.is_some(), why))?;
        let control = args.control.clone().or(file.control.map(|path| from_file(&path)));
        if let Some(why) = control.as_deref().and_then(places::socket_fault) {
            return Err(wrong("control", args.control.is_some(), why));
        }
        let pid_file = args.pid_file.clone().or(file.pid_file.map(|path| from_file(&path)));
        if let Some(why) = pid_file.as_deref().and_then(places::file_fault) {
            return Err(wrong("pid_file", args.pid_file.is_some(), why));
        }
        let (mut trusted_proxies, mut trust_unix) = (Vec::new(), false);
        let flags = (!args.trusted_proxies.is_empty()).then(|| OneOrMany::Many(args.trusted_proxies.clone()));
        for text in flags.or(file.trusted_proxies).into_iter().flat_map(OneOrMany::into_vec) {
            if text == "unix" {
                trust_unix = true;
                continue;
            }
            trusted_proxies.push(rules::network(&text).ok_or_else(|| {
                let why = format!("'{text}' is no network; write 10.0.0.0/8, 192.0.2.1, ::1 or unix");
                match args.trusted_proxies.is_empty() {
                    false => flag(format!("--trusted-proxies: {why}")),
                    true => source.error(&[Step::Key("trusted_proxies")], why),
                }
            })?);
        }
        let by_flag = !args.trusted_headers.is_empty();
        let names = by_flag.then(|| OneOrMany::Many(args.trusted_headers.clone())).or(file.trusted_headers);
        let mut trusted_headers =
            names.as_ref().map_or_else(TrustedHeaders::default, |_| TrustedHeaders::NONE);
        for name in names.into_iter().flat_map(OneOrMany::into_vec) {
            trusted_headers.believe(&name).map_err(|why| match by_flag {
                true => flag(format!("--trusted-headers: {why}")),
                false => source.error(&[Step::Key("trusted_headers")], format!("trusted_headers: {why}")),
            })?;
        }
        let behind_proxy = are_told_of_schemes(&trusted_proxies, trust_unix, trusted_headers);
        let access_log = args.access_log.clone().or(file.access_log.map(|to| match to {
            AccessLogTo::File(path) => AccessLogTo::File(from_file(&path)),
            other => other,
        }));
        if let Some(AccessLogTo::File(path)) = &access_log
            && let Some(why) = places::file_fault(path)
        {
            return Err(wrong("access_log", args.access_log.is_some(), why));
        }
        let user = args.user.clone().or(file.user);
        let group = args.group.clone().or(file.group);
        if group.is_some() && user.is_none() {
            return Err(
                source.error(&[Step::Key("group")], "group needs user: name the user to change to as well")
            );
        }
        let known = [
            ("user", &user, args.user.is_some(), privileges::is_user as fn(&str) -> bool),
            ("group", &group, args.group.is_some(), privileges::is_group),
        ];
        for (key, name, by_flag, exists) in known {
            let Some(name) = name.as_deref().filter(|name| !exists(name)) else { continue };
            let why = format!("{key} '{name}' does not exist on this system");
            return Err(if by_flag {
                flag(format!("--{key}: {why}"))
            } else {
                source.error(&[Step::Key(key)], why)
            });
        }
        let identity = |user: &str, group: Option<&str>, steps: &[Step<'_>]| {
            Identity::find(user, group).map_err(|error| source.error(steps, format!("{error:#}")))
        };
        let shared =
            user.as_deref().map(|user| identity(user, group.as_deref(), &[Step::Key("user")])).transpose()?;
        let development = args.dev || file.development.unwrap_or(false);
        let no_new_privileges = args.no_new_privileges.or(file.no_new_privileges).unwrap_or(true);

        if file.app.is_empty() {
            if source.path().is_some() && args.root.is_none() {
                let why = match source.unmatched() {
                    [] => "it names no application: add [[app]] with root = \"/srv/app\", or name the directory on the command line".into(),
                    [pattern, ..] => format!("it names no application, and no file fits include = \"{pattern}\""),
                };
                return Err(source.error(&[], why));
            }
            file.app.push(config::App::default());
        }
        let compression = compression::resolve(source, &file.compression)?;
        let storage = tls::wants_authority(&file.tls, args, development)
            .then(|| published::real(&tls::storage(source, &file.tls)));
        let mut apps = Vec::with_capacity(file.app.len());
        let (mut failures, mut errors) = (Vec::new(), Vec::new());
        let mut recognised = Vec::new();
        for (i, app) in file.app.into_iter().enumerate() {
            let resolver = AppResolver {
                source,
                args,
                i,
                development,
                no_new_privileges,
                user: shared.as_ref(),
                compression: compression.as_ref(),
                storage: storage.as_deref(),
            };
            let name = app.name.clone().unwrap_or_else(|| format!("number {}", i.saturating_add(1)));
            reports(&format!("application '{name}'"));
            // Who has written it down knows what answers.
            let by_itself = args.mode.or(app.mode) != Some(ModeChoice::Worker);
            let resolved = match (resolver.resolve(app.clone()), strictness) {
                (Err(error), Strictness::EachByItself) if error.of_disk => {
                    let failed = resolver.failed(&app, error.to_string())?;
                    failures.push(error);
                    failed
                }
                // The others are looked at all the same: who repairs a file wants to know all of it.
                (Err(error), _) => {
                    errors.push(error);
                    if errors.len() > MOST_ERRORS {
                        break;
                    }
                    continue;
                }
                (Ok(app), _) => {
                    if app.recognised.is_some() && by_itself {
                        recognised.push(i);
                    }
                    app
                }
            };
            apps.push(resolved);
        }
        if let Some(error) = ConfigError::all(errors) {
            return Err(error);
        }
        pool::share(source, &mut apps, (strictness == Strictness::EachByItself).then_some(&mut failures))?;
        if failures.len() == apps.len()
            && let Some(error) = ConfigError::all(failures)
        {
            return Err(error);
        }
        reports("scripts beside applications");
        scripts::find(&mut apps, &recognised);
        for app in apps.iter_mut().filter(|app| app.failed.is_none()) {
            app.fill_visits(&listen, behind_proxy);
        }
        reports("certificates and users");
        routes::check(source, &apps)?;
        logs::check(source, &apps)?;
        let tls = tls::resolve(source, file.tls, args, development, &listen, &apps)?;
        reports("the rights of files that hold secrets");
        let storage =
            tls.as_ref().and_then(|tls| tls.authority.as_ref()).map(|authority| &*authority.storage);
        // A developer's own files are his own to read.
        let exposed = if development { Vec::new() } else { secrets.warnings(source, &apps, storage) };
        let mut listen = listen;
        if tls.as_ref().is_some_and(|tls| !tls.http3.is_empty()) {
            let beside: Vec<_> =
                tls::quic(&listen).map(|(addr, port)| (ListenAddr::Quic(addr), port)).collect();
            listen.extend(beside);
        }
        if listen.len() > MOST_ADDRESSES {
            let why = format!(
                "listen: {} sockets with those of HTTP/3; {MOST_ADDRESSES} are possible",
                listen.len()
            );
            return Err(source.error(&[Step::Key("listen")], why));
        }
        if let Some(why) = addresses::conflict(&listen) {
            return Err(match args.listen.is_empty() {
                true => source.error(&[Step::Key("listen")], why),
                false => flag(format!("--{why}")),
            });
        }
        logs::keep_private(&mut apps, access_log.as_ref());
        let (listen, ports) = listen.into_iter().unzip();
        let front_user = file.front_user.as_deref().or_else(|| {
            // Whom scripts run as that run in a pool, the pool's application says.
            let is_somebodys = |app: &App| app.is_static || app.identity.is_some() || app.pool.is_some();
            let wanted = privileges::is_root() && apps.iter().all(is_somebodys);
            (wanted && privileges::is_user(FRONT_USER)).then_some(FRONT_USER)
        });
        let mut front = match front_user {
            Some(user) => Some(identity(user, None, &[Step::Key("front_user")])?),
            None => shared,
        };
        if let Some(front) = &mut front {
            apps.iter().filter_map(|app| app.identity.as_ref()).for_each(|app| front.join_group_of(app));
        }
        let for_worker_mode = [
            ("--rewind", args.rewind.is_some()),
            ("--warmup", !args.warmup.is_empty()),
            ("--rewind-verify", args.rewind_verify.is_some()),
            ("--connections", args.connections.is_some()),
            ("--connection-lifetime", args.connection_lifetime.is_some()),
        ];
        if let Some((name, _)) = for_worker_mode.iter().find(|(_, set)| *set)
            && apps.iter().all(|app| app.spec.mode == Mode::Classic)
        {
            let seen = apps.iter().find_map(|app| app.remark.as_deref().or(app.warning.as_deref()));
            return Err(flag(format!(
                "{name} is for worker mode, and in classic mode PHP itself starts afresh for each request; name a worker script with \
                 --worker FILE{}",
                seen.map(|why| format!("; {why}")).unwrap_or_default()
            )));
        }

        // Last, so that an application has the place here that it has in the file.
        let is_taken = |name: &str| apps.iter().any(|app| app.spec.name == name);
        let beside: Vec<App> = apps.iter().filter_map(|app| app.beside(is_taken)).collect();
        apps.extend(beside);

        Ok(Plan {
            listen,
            ports,
            tls,
            control,
            metrics,
            pid_file,
            access_log: (
                access_log.unwrap_or_default(),
                args.access_log_format.or(file.access_log_format).unwrap_or_default(),
            ),
            log_level: args.log_level.or(file.log_level).unwrap_or_default(),
            log_format: args.log_format.or(file.log_format).unwrap_or_default(),
            front_threads: front_threads(source, args.front_threads.or(file.front_threads))?,
            front,
            front_kept: false,
            development,
            trusted_proxies,
            trust_unix,
            trusted_headers,
            early_hints_http1: file.early_hints_http1.unwrap_or(false),
            http2_prior_knowledge: file.http2_prior_knowledge.unwrap_or(false),
            exposed,
            unmatched: source.unmatched().to_vec(),
            drain_timeout: time(args.drain_timeout.or(file.drain_timeout), Duration::from_secs(30))
                .unwrap_or(ALWAYS),
            limits: limits::resolve(source, &file.limits)?,
            apps,
        })
    }
}

impl Plan {
    /// The applications as they were configured: without what runs beside them.
    pub fn configured(&self) -> impl Iterator<Item = &App> {
        self.apps.iter().filter(|app| app.beside.is_none())
    }

    /// The applications that run PHP, in order.
    pub fn with_php(&self) -> impl Iterator<Item = &App> {
        self.apps.iter().filter(|app| app.runs_php())
    }

    /// The applications whose scripts run, whether or not in workers of their own.
    pub fn with_scripts(&self) -> impl Iterator<Item = &App> {
        self.apps.iter().filter(|app| app.has_scripts())
    }

    /// The same for a front, and all applications.
    pub fn time_to_finish(&self) -> Duration {
        self.with_php().map(App::patience).fold(self.drain_timeout.max(REPLACED), Duration::max)
    }

    /// The addresses, with how connections of each begin.
    pub fn ports_by_address(&self) -> Vec<(ListenAddr, Port)> {
        let ports = self.ports.iter().copied().chain(std::iter::repeat(Port::default()));
        self.listen.iter().cloned().zip(ports).collect()
    }

    /// Whether visitors come by a proxy that says whether they speak TLS.
    pub fn is_behind_proxy(&self) -> bool {
        are_told_of_schemes(&self.trusted_proxies, self.trust_unix, self.trusted_headers)
    }

    /// The addresses as people write them.
    pub fn listen_words(&self) -> Vec<String> {
        let ports = self.ports_by_address();
        ports.iter().map(|(addr, port)| addresses::in_words(addr, *port, false)).collect()
    }

    /// The applications whose PHP runs as the front's user, so that what belongs to the front belongs to their scripts as well.
    pub fn sharing_the_fronts_user(&self) -> Vec<&str> {
        let shares = |app: &&App| match (&self.front, &app.identity) {
            (Some(front), Some(app)) => front.same_user(app),
            (front, app) => front.is_some() == app.is_some(),
        };
        self.with_scripts()
            .filter(shares)
            .filter(|app| app.beside.is_none())
            .map(|app| app.spec.name.as_str())
            .collect()
    }

    /// Says so in the log, and which secrets are exposed.
    pub fn warn(&self) {
        for vain in self.vain_addresses() {
            tracing::warn!("{vain}");
        }
        for exposed in &self.exposed {
            tracing::warn!("{exposed}");
        }
        for app in self.configured() {
            for vain in self.vain_keys(app) {
                tracing::warn!(app = app.spec.name, "{vain}");
            }
        }
    }

    /// The plan without what only PHP's processes need to know: passwords, mostly.
    pub fn without_secrets(&self) -> Plan {
        let mut plan = self.clone();
        for app in &mut plan.apps {
            app.spec.env.clear();
            app.spec.ini.clear();
        }
        plan
    }

    /// Gives the front the user that all before it had: what one may write, the next has to be able to write as well. It is in the applications'
    /// groups, as they are now.
    pub fn keep_front(&mut self, before: Option<&Identity>) {
        let same = match (&self.front, before) {
            (Some(front), Some(before)) => front.same_user(before) && front.same_group(before),
            (front, before) => front.is_none() && before.is_none(),
        };
        // Who is not root becomes nobody else.
        if same || !privileges::is_root() {
            return;
        }
        self.front = before.cloned();
        self.front_kept = true;
        if let Some(front) = &mut self.front {
            self.apps.iter().filter_map(|app| app.identity.as_ref()).for_each(|app| front.join_group_of(app));
        }
    }

    /// The keys that differ from `other` and belong to the process, so that a reload cannot change them.
    pub fn fixed_keys_changed(&self, other: &Plan) -> Vec<&'static str> {
        let mut changed = Vec::new();
        let mut compare = |key, same: bool| {
            if !same {
                changed.push(key);
            }
        };
        compare("control", self.control == other.control);
        compare("metrics", self.metrics == other.metrics);
        compare("pid_file", self.pid_file == other.pid_file);
        // The master keeps it; where the front has no user of its own, it has that which the applications had then.
        compare("front_user", !self.front_kept);
        compare("front_threads", self.front_threads == other.front_threads);
        compare("log_level", self.log_level == other.log_level);
        compare("log_format", self.log_format == other.log_format);
        changed
    }
}

fn are_told_of_schemes(proxies: &[IpNet], unix: bool, headers: TrustedHeaders) -> bool {
    (unix || !proxies.is_empty()) && headers.say_the_scheme()
}

/// Where metrics are served beside the control socket.
fn metrics(text: &str) -> Result<ListenAddr, String> {
    match text.parse()? {
        addr @ ListenAddr::Tcp(_) => Ok(addr),
        _ => Err(format!(
            "expected a TCP address such as \"127.0.0.1:9090\", found \"{text}\"; without one /metrics is on the control socket, as it always is"
        )),
    }
}

fn front_threads(source: &Source, wanted: Option<u32>) -> Result<u32, ConfigError> {
    let range = 1..=hayate_ring::Hub::MOST;
    match wanted {
        None => Ok(crate::machine::front_threads()),
        Some(wanted) if range.contains(&wanted) => Ok(wanted),
        Some(wanted) => Err(source.error(
            &[Step::Key("front_threads")],
            format!("front_threads: {wanted} is out of range; write 1 to {}", range.end()),
        )),
    }
}

/// The front's user, if there is one of this name.
const FRONT_USER: &str = "hayate";

fn flag(message: impl Into<String>) -> ConfigError {
    ConfigError::new(config::Place::CommandLine, message)
}

/// `None` for off.
fn time(value: Option<Time>, default: Duration) -> Option<Duration> {
    value.map_or(Some(default), |time| time.0)
}

/// How long requests have at the least where their processes were replaced: somebody has to end those that may run for ever.
const REPLACED: Duration = Duration::from_secs(3600);

/// No limit at all, for the front, which knows no such thing.
const ALWAYS: Duration = Duration::from_secs(365 * 24 * 3600);

#[cfg(test)]
pub(crate) mod tests;
