//! What is to run: the configuration file and the flags together, checked against the file system.
//!
//! Paths in the file start from the file's directory (`worker` and `document_root` from the application's root), paths in
//! flags from the current directory. Symbolic links are resolved here, once for each generation.

mod app;
mod compression;
mod front_controller;
mod limits;
mod mode;
mod published;
mod rules;
mod tls;
mod visits;

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    time::Duration,
};

use hayate_front::{Compression, Limits, ListenAddr, rules::RuleSpec};
use hayate_pool::{Mode, Spec};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

pub use self::{
    front_controller::FrontController,
    mode::REWIND_BY_DEFAULT,
    tls::{Port, Tls, read as read_pem},
    visits::Address,
};

use self::app::AppResolver;
use crate::{
    args::ServeArgs,
    config::{
        self, AccessLogFormat, AccessLogTo, ConfigError, File, LogFormat, LogLevel, OneOrMany, Source, Step,
        Time,
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
    /// The user that was named for PHP.
    pub user: Option<String>,
    /// The group that was named for PHP.
    pub group: Option<String>,
    /// Threads that serve connections.
    pub front_threads: u32,
    /// Whom the front becomes.
    pub front: Option<Identity>,
    /// Shows reasons on error pages.
    pub development: bool,
    /// Whose forwarding headers are believed.
    pub trusted_proxies: Vec<IpNet>,
    /// Whether those of peers on unix sockets are.
    pub trust_unix: bool,
    /// Whether clients without TLS may begin with HTTP/2's preface.
    #[serde(default)]
    pub http2_prior_knowledge: bool,
    /// Whether clients of HTTP/1.1 get early hints.
    #[serde(default)]
    pub early_hints_http1: bool,
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
    /// Files that are never sent, by whatever name: the configuration, php.ini. Device and inode, from who can read them.
    pub private: Vec<(u64, u64)>,
    /// Requests that may wait.
    pub queue_limit: usize,
    /// Whether requests with idempotent methods run once more when their worker dies.
    pub retry: bool,
    /// The framework whose boot script runs it.
    pub recognised: Option<Recognised>,
    /// Why a framework's boot script does not, when a framework was seen.
    pub remark: Option<String>,
    /// Its own paths that are requested before the snapshot is taken, in order.
    pub warmup: Vec<String>,
    /// Whom its processes become.
    pub identity: Option<Identity>,
    /// Its processes.
    pub spec: Spec,
}

/// Addresses to listen on: their sockets go from the master to the front in one packet, which holds 253 (SCM_MAX_FD of the kernel).
const MOST_ADDRESSES: usize = 128;

impl Plan {
    /// Reads the file that the flags name, if any, applies the flags, and checks it all.
    pub fn load(args: &ServeArgs) -> Result<Plan, ConfigError> {
        let (source, file) = match &args.config {
            Some(path) => Source::read(path)?,
            None => (Source::default(), File::default()),
        };
        Plan::from(&source, file, args)
    }

    fn from(source: &Source, mut file: File, args: &ServeArgs) -> Result<Plan, ConfigError> {
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
        let metrics = match args.metrics.as_ref().or(file.metrics.as_ref()) {
            None => None,
            Some(text) => Some(text.parse().map_err(|why| match args.metrics {
                Some(_) => flag(format!("--metrics: {why}")),
                None => source.error(&[Step::Key("metrics")], why),
            })?),
        };
        let (mut trusted_proxies, mut trust_unix) = (Vec::new(), false);
        let flags = (!args.trusted_proxies.is_empty()).then(|| OneOrMany::Many(args.trusted_proxies.clone()));
        for text in flags.or(file.trusted_proxies).into_iter().flat_map(OneOrMany::into_vec) {
            if text == "unix" {
                trust_unix = true;
                continue;
            }
            let network =
                text.parse::<IpNet>().ok().or_else(|| text.parse::<std::net::IpAddr>().ok().map(IpNet::from));
            trusted_proxies.push(network.ok_or_else(|| {
                let why = format!("'{text}' is no network; write 10.0.0.0/8, 192.0.2.1, ::1 or unix");
                match args.trusted_proxies.is_empty() {
                    false => flag(format!("--trusted-proxies: {why}")),
                    true => source.error(&[Step::Key("trusted_proxies")], why),
                }
            })?);
        }
        let access_log = args.access_log.clone().or(file.access_log.map(|to| match to {
            AccessLogTo::File(path) => AccessLogTo::File(from_file(&path)),
            other => other,
        }));
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
                let why = "it names no application: add [[app]] with root = \"/srv/app\", or name the directory on the command line";
                return Err(source.error(&[], why));
            }
            file.app.push(config::App::default());
        }
        let compression = compression::resolve(source, &file.compression)?;
        let mut apps = Vec::with_capacity(file.app.len());
        for (i, app) in file.app.into_iter().enumerate() {
            let resolver = AppResolver {
                source,
                args,
                i,
                development,
                no_new_privileges,
                user: shared.as_ref(),
                compression: compression.as_ref(),
            };
            let mut app = resolver.resolve(app)?;
            app.fill_visits(&listen, trust_unix || !trusted_proxies.is_empty());
            apps.push(app);
        }
        check_routes(source, &apps)?;
        let tls = tls::resolve(source, file.tls, args, development, &listen, &apps)?;
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
        let (listen, ports) = listen.into_iter().unzip();
        let front_user = file.front_user.as_deref().or_else(|| {
            let wanted = privileges::is_root() && apps.iter().all(|app| app.identity.is_some());
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
        ];
        if let Some((name, _)) = for_worker_mode.iter().find(|(_, set)| *set)
            && apps.iter().all(|app| app.spec.mode == Mode::Classic)
        {
            let seen = apps.iter().find_map(|app| app.remark.as_deref());
            return Err(flag(format!(
                "{name} is for worker mode, and in classic mode PHP itself starts afresh for each request; name a worker script with \
                 --worker FILE{}",
                seen.map(|why| format!("; {why}")).unwrap_or_default()
            )));
        }

        Ok(Plan {
            listen,
            ports,
            tls,
            control: args.control.clone().or(file.control.map(|path| from_file(&path))),
            metrics,
            pid_file: args.pid_file.clone().or(file.pid_file.map(|path| from_file(&path))),
            access_log: (
                access_log.unwrap_or_default(),
                args.access_log_format.or(file.access_log_format).unwrap_or_default(),
            ),
            log_level: args.log_level.or(file.log_level).unwrap_or_default(),
            log_format: args.log_format.or(file.log_format).unwrap_or_default(),
            user,
            group,
            front_threads: front_threads(source, args.front_threads.or(file.front_threads))?,
            front,
            development,
            trusted_proxies,
            trust_unix,
            early_hints_http1: file.early_hints_http1.unwrap_or(false),
            http2_prior_knowledge: file.http2_prior_knowledge.unwrap_or(false),
            drain_timeout: time(args.drain_timeout.or(file.drain_timeout), Duration::from_secs(30))
                .unwrap_or_default(),
            limits: limits::resolve(source, &file.limits)?,
            apps,
        })
    }
}

impl Plan {
    /// The addresses, with how connections of each begin.
    pub fn ports_by_address(&self) -> Vec<(ListenAddr, Port)> {
        let ports = self.ports.iter().copied().chain(std::iter::repeat(Port::default()));
        self.listen.iter().cloned().zip(ports).collect()
    }

    /// The addresses as people write them.
    pub fn listen_words(&self) -> Vec<String> {
        let ports = self.ports_by_address();
        ports
            .iter()
            .map(|(addr, port)| match (addr, port.tls) {
                (ListenAddr::Tcp(addr), true) => format!("https://{addr}"),
                _ => addr.to_string(),
            })
            .collect()
    }

    /// The applications whose PHP runs as the front's user, so that what belongs to the front belongs to their scripts as well.
    pub fn sharing_the_fronts_user(&self) -> Vec<&str> {
        let shares = |app: &&App| match (&self.front, &app.identity) {
            (Some(front), Some(app)) => front.same_user(app),
            (front, app) => front.is_some() == app.is_some(),
        };
        self.apps.iter().filter(shares).map(|app| app.spec.name.as_str()).collect()
    }

    /// Whether any application's PHP is root.
    pub fn runs_php_as_root(&self) -> bool {
        privileges::is_root()
            && self.apps.iter().any(|app| app.identity.as_ref().is_none_or(Identity::is_root))
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
        compare("user", self.user == other.user);
        compare("group", self.group == other.group);
        compare("front_user", self.front == other.front);
        compare("front_threads", self.front_threads == other.front_threads);
        compare("log_level", self.log_level == other.log_level);
        compare("log_format", self.log_format == other.log_format);
        changed
    }
}

/// By default as many as there are processors for this process: by affinity, and by the cgroup's quota.
fn front_threads(source: &Source, wanted: Option<u32>) -> Result<u32, ConfigError> {
    let range = 1..=hayate_ring::Hub::MOST;
    match wanted {
        None => Ok(crate::machine::processors().clamp(*range.start(), *range.end())),
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
    ConfigError { place: config::Place::CommandLine, message: message.into() }
}

/// `None` for off.
fn time(value: Option<Time>, default: Duration) -> Option<Duration> {
    value.map_or(Some(default), |time| time.0)
}

/// No limit at all, for the front, which knows no such thing.
const ALWAYS: Duration = Duration::from_secs(365 * 24 * 3600);

/// Two applications must not be called the same, or answer to the same host and path.
fn check_routes(source: &Source, apps: &[App]) -> Result<(), ConfigError> {
    let mut names = HashMap::new();
    let mut routes = HashMap::new();
    for (i, app) in apps.iter().enumerate() {
        if names.insert(&app.spec.name, i).is_some() {
            let why =
                format!("a second application is called '{}'; give each [[app]] its own name", app.spec.name);
            return Err(source.error(&[Step::Key("app"), Step::At(i), Step::Key("name")], why));
        }
        let any = [String::new()];
        let hosts = if app.hosts.is_empty() { &any[..] } else { &app.hosts[..] };
        for host in hosts {
            if let Some(other) = routes.insert((host.to_ascii_lowercase(), &app.path), &app.spec.name) {
                let host = if host.is_empty() { "any host" } else { host };
                let why = format!(
                    "application '{}' answers to {host} and path {} like application '{other}'; give one of them other hosts or another path",
                    app.spec.name, app.path
                );
                let key = if app.hosts.is_empty() { "path" } else { "hosts" };
                return Err(source.error(&[Step::Key("app"), Step::At(i), Step::Key(key)], why));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use hayate_pool::{Rewind, Visit};

    use crate::{
        args::KeyValue,
        config::{ModeChoice, RewindChoice, Workers},
    };

    /// A directory with `hayate.toml`, `site/public/index.php` and a stand-in for the host binary, which is only looked for here.
    fn fixture() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("site/public")).unwrap();
        fs::write(dir.path().join("site/public/index.php"), "").unwrap();
        fs::write(dir.path().join("site/worker.php"), "").unwrap();
        dir
    }

    #[test]
    fn fuzz_configurations() {
        let dir = fixture();
        let seeds: [&[u8]; 5] = [
            b"[[app]]\nroot = 'site'\nworkers = '2-8'\nhosts = ['a.test', '*.b.test']\npath = '/shop'\n[app.ini]\nmemory_limit = '1G'\n",
            b"drain_timeout = '1m'\naccess_log = '-'\n[limits]\nbody_size = '8M'\nhead_size = 4096\n[[app]]\nroot = 'site'\n",
            b"[[app]]\nname = 'a'\nroot = 'site'\nworker = 'worker.php'\nwarmup = ['/', '/a?b']\nrewind = 'fork'\nboot_timeout = 'off'\n",
            b"trusted_proxies = ['10.0.0.0/8', 'unix']\n[[app]]\nroot = 'site'\nenv = { A = 'b' }\nqueue_timeout = '1.5s'\nmax_memory = '64M'\n",
            b"[[app]]\nroot = 'site'\n[[app]]\nroot = 'site'\npath = '/b'\nsendfile_roots = ['.']\nindex = ['x.php']\n",
        ];
        let pieces: [&[u8]; 22] = [
            b"=",
            b"'",
            b"\"",
            b"[",
            b"]",
            b"[[app]]\n",
            b"{",
            b"}",
            b"\n",
            b",",
            b"/",
            b"..",
            b"\0",
            b"\xff",
            b"-1",
            b"0",
            b"99999999999999999999",
            b"K",
            b"s",
            b"'\xf0\x9f\x90\x98'",
            b"true",
            b"1e400",
        ];
        hayate_fuzz::run("configurations", &seeds, &pieces, |_, input| {
            let Ok(text) = std::str::from_utf8(input) else { return };
            if let Err(why) = plan(dir.path(), text, |_| {}) {
                assert!(!why.is_empty());
            }
        });
    }

    fn plan(dir: &Path, text: &str, change: impl FnOnce(&mut ServeArgs)) -> Result<Plan, String> {
        let mut args = ServeArgs { php: Some("/bin/true".into()), ..ServeArgs::default() };
        change(&mut args);
        let path = dir.join("hayate.toml");
        let (source, file) = Source::parse(&path, text.into()).map_err(|e| e.to_string())?;
        Plan::from(&source, file, &args)
            .map_err(|e| e.to_string().replace(&*path.to_string_lossy(), "hayate.toml"))
    }

    #[test]
    fn defaults() {
        let dir = fixture();
        let plan = plan(dir.path(), "[[app]]\nroot = 'site'\n", |_| {}).unwrap();
        let app = &plan.apps[0];
        let site = dir.path().canonicalize().unwrap().join("site");
        assert_eq!(app.spec.document_root, site.join("public"));
        assert_eq!(app.spec.cwd, site);
        assert_eq!(app.spec.name, "site");
        assert_eq!(app.front_controller.script.as_deref(), Some("index.php"));
        assert!(app.front_controller.why.starts_with("the document root is called public; "));
        assert_eq!(app.spec.mode, Mode::Classic);
        assert_eq!(app.spec.request_timeout, Some(Duration::from_secs(60)));
        assert_eq!(plan.listen, ["127.0.0.1:8080".parse().unwrap()]);
    }

    #[test]
    fn flags_win_over_the_file() {
        let dir = fixture();
        let text = "listen = ':81'\n[[app]]\nroot = 'site'\nworkers = 2\nmax_requests = 3\nrequest_timeout = 'off'\n\
                    [app.ini]\na = 'file'\nb = 'file'\nextension = ['x', 'y']\n";
        let plan = plan(dir.path(), text, |args| {
            args.listen = vec![":82".parse().unwrap()];
            args.workers = Some(Workers { min: 3, max: 4 });
            args.ini = [("b", "flag"), ("zend_extension", "1"), ("zend_extension", "2")]
                .map(|(key, value)| KeyValue(key.into(), value.into()))
                .into();
            args.worker = Some("worker.php".into());
        })
        .unwrap();
        let spec = &plan.apps[0].spec;
        assert_eq!(plan.listen, [":82".parse().unwrap()]);
        assert_eq!(spec.workers, 3..=4);
        assert_eq!(spec.max_requests, Some(3));
        assert_eq!(spec.request_timeout, None);
        let ini: Vec<_> = spec.ini.iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(
            ini,
            ["a=file", "extension=x", "extension=y", "b=flag", "zend_extension=1", "zend_extension=2"]
        );
        assert_eq!(
            spec.mode,
            Mode::Worker { script: dir.path().canonicalize().unwrap().join("site/worker.php") }
        );
    }

    #[test]
    fn what_is_missing_or_contradicts_names_line_and_remedy() {
        let dir = fixture();
        let error = |text: &str| plan(dir.path(), text, |_| {}).unwrap_err();
        let said = error("[[app]]\nname = 'x'\nroot = 'nowhere'\n");
        assert!(said.starts_with("hayate.toml:3: root: cannot use the directory "), "{said}");
        let said = error("[[app]]\nroot = 'site'\nworker = 'missing.php'\n");
        assert!(said.starts_with("hayate.toml:3: worker: cannot use the file "), "{said}");
        let two =
            |second: &str| format!("[[app]]\nname = 'a'\nroot = 'site'\n[[app]]\nroot = 'site'\n{second}");
        let said = error(&two("name = 'b'\n"));
        assert!(
            said.starts_with(
                "hayate.toml:4: application 'b' answers to any host and path / like application 'a'"
            ),
            "{said}"
        );
        let said = error(&two("name = 'a'\npath = '/a'\n"));
        assert!(said.starts_with("hayate.toml:6: a second application is called 'a'"), "{said}");
        let said = error("[[app]]\nroot = 'site'\npath = 'blog/'\n");
        assert!(said.starts_with("hayate.toml:3: path: ") && said.contains("write /blog"), "{said}");
        let said = error("trusted_proxies = ['10.0.0.0/8', 'nonsense']\n");
        assert!(said.starts_with("hayate.toml:1: 'nonsense' is no network"), "{said}");
        let said = error("\nlisten = 'nonsense'\n");
        assert!(said.starts_with("hayate.toml:2: 'nonsense' is no address"), "{said}");
        assert!(error("group = 'staff'\n").starts_with("hayate.toml:1: group needs user"));
        assert!(error("\nuser = 'no-such'\n").starts_with("hayate.toml:2: user 'no-such' does not exist"));
        assert!(
            error("user = 'root'\ngroup = 'no-such'\n")
                .starts_with("hayate.toml:2: group 'no-such' does not exist")
        );
        let said = error("[[app]]\nroot = 'site'\nfront_controller = '../worker.php'\n");
        assert!(said.contains("outside the document root"), "{said}");
        let said = error("[[app]]\nroot = 'site'\nhosts = ['a b']\n");
        assert!(said.starts_with("hayate.toml:3: hosts: 'a b' is no host name"), "{said}");
    }

    #[test]
    fn b11_what_is_published_has_to_be_said_and_is_refused_where_it_holds_secrets() {
        let dir = fixture();
        let error = |text: &str| plan(dir.path(), text, |_| {}).unwrap_err();
        let said = error("listen = ':80'\n");
        assert!(said.starts_with("hayate.toml: it names no application: add [[app]] with root = "), "{said}");
        let said = error("listen = ':80'\n\n[[app]]\nname = 'a'\n");
        assert!(said.starts_with("hayate.toml:3: root is missing: "), "{said}");
        assert!(
            plan(dir.path(), "listen = ':80'\n", |args| args.root = Some(dir.path().join("site"))).is_ok()
        );
        for (keys, key) in [
            ("root = '/etc'", "root"),
            ("root = '/'", "root"),
            ("root = '/root'", "root"),
            ("root = 'site'\ndocument_root = '/var'", "document_root"),
            ("root = 'site'\nsendfile_roots = ['/home']", "sendfile_roots"),
            ("root = 'site'\nsendfile_roots = '/etc/ssl'", "sendfile_roots"),
        ] {
            let said = error(&format!("[[app]]\n{keys}\n"));
            let line = 1 + keys.lines().count();
            assert!(said.starts_with(&format!("hayate.toml:{line}: {key}: /")), "{said}");
            assert!(said.ends_with("(document_root, or ROOT on the command line)"), "{said}");
        }
        // The file itself, by whatever name the directory is called; what is not served may hold it.
        fs::write(dir.path().join("hayate.toml"), "").unwrap();
        std::os::unix::fs::symlink(dir.path(), dir.path().join("site/up")).unwrap();
        for root in [".", "site/..", "site/up"] {
            let said = error(&format!("[[app]]\nroot = '{root}'\n"));
            assert!(said.contains(" holds hayate.toml, ") && said.contains("move that file"), "{said}");
        }
        assert!(plan(dir.path(), "[[app]]\nroot = '.'\ndocument_root = 'site'\n", |_| {}).is_ok());
        fs::write(dir.path().join("site/public/php.ini"), "").unwrap();
        let said = error("[[app]]\nroot = 'site'\nphp_ini = 'site/public/php.ini'\n");
        assert!(said.starts_with("hayate.toml:2: root: ") && said.contains("/php.ini"), "{said}");
        // Without a file as well.
        let flags =
            ServeArgs { php: Some("/bin/true".into()), root: Some("/etc".into()), ..ServeArgs::default() };
        let said = Plan::load(&flags).unwrap_err().to_string();
        assert!(said.starts_with("/etc is a directory of the system"), "{said}");
    }

    #[test]
    fn c16_values_that_make_no_sense_are_refused_with_their_range() {
        let dir = fixture();
        let error = |text: &str| plan(dir.path(), text, |_| {}).unwrap_err();
        for (keys, said) in [
            ("queue_limit = 0", "queue_limit: 0 is out of range; write 1 to 1000000"),
            ("queue_limit = 1000001", "queue_limit: 1000001 is out of range; write 1 to 1000000"),
            ("max_memory = '4K'", "max_memory: 4096 is out of range; write 1M or more, or 0 for none"),
            ("path = '/a//b'", "path: '/a//b' must begin with a slash"),
            ("path = '/a/../b'", "path: '/a/../b' must begin with a slash"),
            ("path = '/a%20b'", "path: '/a%20b' must begin with a slash"),
            ("index = ['../x.php']", "index: '../x.php' is no file's name"),
            ("index = ''", "index: '' is no file's name"),
            ("deny = ['/data', 'conf']", "deny: 'conf' must begin with a slash"),
            ("deny = '/'", "deny: '/' must begin"),
            ("inherit_env = 'A*B'", "inherit_env: 'A*B' is no variable's name"),
            ("inherit_env = ''", "inherit_env: '' is no"),
            ("charset = 'utf 8'", "charset: write the name of an encoding"),
            ("hosts = ['a.test:80']", "hosts: 'a.test:80' is no host name"),
        ] {
            let got = error(&format!("[[app]]\nroot = 'site'\n{keys}\n"));
            assert!(got.starts_with(&format!("hayate.toml:3: {said}")), "{got}");
        }
        assert!(error("listen = []\n").starts_with("hayate.toml:1: listen: write at least one address"));
        let many: Vec<String> = (0..200).map(|n| format!("'127.0.0.1:{}'", 10_000 + n)).collect();
        let got = error(&format!("listen = [{}]\n", many.join(", ")));
        assert!(got.starts_with("hayate.toml:1: listen: 200 addresses; write 128 at most"), "{got}");
        let text = "[[app]]\nroot = 'site'\n";
        let said = plan(dir.path(), text, |args| args.queue_limit = Some(0)).unwrap_err();
        assert_eq!(said, "--queue-limit: 0 is out of range; write 1 to 1000000");
        let spec =
            plan(dir.path(), "[[app]]\nroot = 'site'\nmax_memory = 0\n", |_| {}).unwrap().apps.remove(0).spec;
        assert_eq!(spec.max_memory, None);
    }

    #[test]
    fn d22_an_index_php_is_a_front_controller_where_something_says_so() {
        let dir = fixture();
        let site = dir.path().join("site");
        let put = |name: &str, text: &str| {
            fs::create_dir_all(site.join(name).parent().unwrap()).unwrap();
            fs::write(site.join(name), text).unwrap();
        };
        let found = |keys: &str, change: fn(&mut ServeArgs)| {
            let text = format!("[[app]]\nroot = 'site'\n{keys}\n");
            plan(dir.path(), &text, change).unwrap().apps.remove(0).front_controller
        };
        let index = Some("index.php".to_owned());
        assert_eq!(found("", |_| {}).script, index);
        assert_eq!(found("front_controller = ''", |_| {}).script, None);
        assert_eq!(found("", |args| args.front_controller = Some(String::new())).script, None);
        fs::rename(site.join("public"), site.join("web")).unwrap();
        assert!(found("document_root = 'web'", |_| {}).why.starts_with("the document root is called web; "));
        // An old application in one directory.
        let none = found("", |_| {});
        assert_eq!((none.script, &*none.why), (None, "there is no index.php"));
        put("index.php", "");
        let none = found("", |_| {});
        assert_eq!(none.script, None);
        assert!(
            none.why.contains("nothing says that index.php")
                && none.why.contains("--front-controller index.php")
        );
        assert_eq!(found("front_controller = 'index.php'", |_| {}).script, index);
        assert_eq!(found("", |args| args.front_controller = Some("index.php".into())).script, index);
        assert_eq!(found("worker = 'worker.php'", |_| {}).script, index);
        put(".htaccess", "RewriteRule ^(.*)$ index.php?url=$1 [L]\n");
        let none = found("", |_| {});
        assert!(
            none.script.is_none()
                && none.why.starts_with(".htaccess sends what is no file to index.php?url=$1")
        );
        put(".htaccess", "RewriteRule . /index.php [L]\n");
        assert!(found("", |_| {}).why.starts_with(".htaccess sends to index.php what is no file; "));
        fs::remove_file(site.join(".htaccess")).unwrap();
        for file in ["wp-load.php", "wp-blog-header.php", "wp-includes/version.php"] {
            put(file, "");
        }
        assert_eq!(found("", |_| {}).script, index);
        assert!(found("", |_| {}).why.starts_with("this is WordPress; "));
        let said = plan(dir.path(), "[[app]]\nroot = 'site'\n", |args| {
            args.front_controller = Some("no.php".into())
        });
        assert!(said.unwrap_err().starts_with("--front-controller: cannot use no.php below "));
    }

    #[test]
    fn a_root_is_for_one_application() {
        let dir = fixture();
        let text = "[[app]]\nname='a'\nroot='site'\n[[app]]\nname='b'\nroot='site'\npath='/b'\n";
        assert_eq!(plan(dir.path(), text, |_| {}).unwrap().apps.len(), 2);
        let said = plan(dir.path(), text, |args| args.root = Some(".".into())).unwrap_err();
        assert!(said.starts_with("ROOT, --worker and --front-controller are for one application"), "{said}");
    }

    #[test]
    fn a_name_is_as_given_not_what_a_link_leads_to() {
        let dir = fixture();
        std::os::unix::fs::symlink("site", dir.path().join("current")).unwrap();
        let plan = |root: &str| plan(dir.path(), &format!("[[app]]\nroot = '{root}'\n"), |_| {}).unwrap();
        for root in ["current", "current/", "./current/.", &dir.path().join("current").to_string_lossy()] {
            let spec = &plan(root).apps[0].spec;
            assert_eq!(spec.name, "current", "{root}");
            assert_eq!(spec.document_root, dir.path().canonicalize().unwrap().join("site/public"));
        }
        assert_eq!(plan("current/public/..").apps[0].spec.name, "site");
    }

    #[test]
    fn warm_up_requests_carry_the_sites_own_address() {
        let dir = fixture();
        let text = "listen = ':8081'\n[[app]]\nroot = 'site'\nworker = 'worker.php'\npath = '/blog'\nhosts = ['shop.test']\n\
                    warmup = ['/', '/index.php/a?b=c']\n";
        let spec = plan(dir.path(), text, |_| {}).unwrap().apps.remove(0).spec;
        let [front, info] = &spec.warmup[..] else { panic!("{:?}", spec.warmup) };
        assert_eq!(
            (&*front.target, &*front.host, front.port, front.https),
            ("/blog/", "shop.test:8081", 8081, false)
        );
        assert_eq!((&*front.script_name, &*front.path_info), ("/blog/index.php", ""));
        assert_eq!(front.script, spec.document_root.join("index.php"));
        assert_eq!(info.target, "/blog/index.php/a?b=c");
        assert_eq!((&*info.script_name, &*info.path_info), ("/blog/index.php", "/a"));
        let spec = plan(dir.path(), &format!("trusted_proxies = '::1'\n{text}"), |_| {})
            .unwrap()
            .apps
            .remove(0)
            .spec;
        assert_eq!(
            (&*spec.warmup[0].host, spec.warmup[0].https, spec.warmup[0].port),
            ("shop.test", true, 443)
        );
    }

    #[test]
    fn rewinding_is_for_worker_mode() {
        let dir = fixture();
        let app = |keys: &str| format!("[[app]]\nroot = 'site'\n{keys}\n");
        let spec = |keys: &str, change: fn(&mut ServeArgs)| {
            plan(dir.path(), &app(keys), change).unwrap().apps.remove(0).spec
        };
        let worker = "worker = 'worker.php'\n";
        let default = spec(worker, |_| {});
        assert_eq!(
            (default.rewind, default.boot_timeout),
            (REWIND_BY_DEFAULT, Some(Duration::from_secs(60)))
        );
        let on = spec(&format!("{worker}rewind = 'on'\nrewind_verify = 100"), |_| {});
        assert_eq!((on.rewind, on.warmup.len(), on.rewind_verify), (Rewind::On, 3, Some(100)));
        let targets =
            |visits: &[Visit]| visits.iter().map(|visit| visit.target.clone()).collect::<Vec<_>>().join(" ");
        let made_up = "/hayate-comparison/kappa /hayate-comparison-omega?hayate=psi";
        assert_eq!(targets(&on.compared), format!("/ / {made_up}"), "/ at two addresses");
        let fork = spec(&format!("{worker}rewind = 'on'\nwarmup = ['/a']"), |args| {
            args.rewind = Some(RewindChoice::Fork)
        });
        assert_eq!((fork.rewind, &*targets(&fork.warmup)), (Rewind::Fork, "/a"));
        let none =
            spec(&format!("{worker}rewind = 'on'\nwarmup = ['/a']"), |args| args.warmup = vec!["off".into()]);
        assert!(none.warmup.is_empty() && none.compared.is_empty());
        assert_eq!(spec(worker, |args| args.mode = Some(ModeChoice::Classic)).mode, Mode::Classic);

        let error =
            |keys: &str, change: fn(&mut ServeArgs)| plan(dir.path(), &app(keys), change).unwrap_err();
        let said = error("rewind = 'on'", |_| {});
        assert!(said.starts_with("hayate.toml:3: rewind: this application runs in classic mode"), "{said}");
        let said = error("warmup = ['/']", |_| {});
        assert!(said.starts_with("hayate.toml:3: warmup: "), "{said}");
        let said = error("", |args| args.rewind = Some(RewindChoice::On));
        assert!(said.starts_with("--rewind is for worker mode"), "{said}");
        let said = error("mode = 'worker'", |_| {});
        assert!(said.starts_with("hayate.toml:3: mode: worker mode needs a worker script"), "{said}");
        let said = error(&format!("mode = 'classic'\n{worker}"), |_| {});
        assert!(said.starts_with("hayate.toml:4: worker: "), "{said}");
        let said = error(&format!("{worker}rewind = 'on'\nwarmup = ['products']"), |_| {});
        assert!(said.starts_with("hayate.toml:5: warmup: 'products' is no path"), "{said}");
    }
}
