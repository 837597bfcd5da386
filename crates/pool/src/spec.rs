//! What a generation is to be: the application, its limits, and the host's command line that follows from them.

use std::{
    ffi::OsString, fs::File, io, io::Write, ops::RangeInclusive, os::unix::ffi::OsStrExt, path::PathBuf,
    process::Command, time::Duration,
};

use command_fds::{CommandFdExt, FdMapping};
use hayate_ring::layout::HY_FD_OPTIONS;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use serde::{Deserialize, Serialize};

use crate::{
    channel::Again,
    ini,
    launch::{Start, Way},
    rewind::{Connections, Rewind},
};

/// How PHP runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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

/// A request that the host makes by itself, as the front would hand over a visitor's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Visit {
    /// Path and query.
    pub target: String,
    /// As in the Host header.
    pub host: String,
    /// Whether by TLS.
    pub https: bool,
    /// The port that visitors use.
    pub port: u16,
    /// The script that answers, absolute.
    pub script: PathBuf,
    /// Its path in URLs.
    pub script_name: String,
    /// What follows that in the path.
    pub path_info: String,
    /// By somebody who reads another language and has been here before: with `Accept-Language` and a cookie.
    pub another_visitor: bool,
}

impl Visit {
    /// In one argument, as `host/warmup.c` takes it apart.
    fn argument(&self) -> OsString {
        let scheme = if self.https { "https" } else { "http" };
        let visitor = if self.another_visitor { "another" } else { "" };
        let Visit { target, host, port, script_name, path_info, .. } = self;
        // The path of a file last: no other may hold a unit separator.
        let mut argument = OsString::from(format!(
            "{target}\x1f{host}\x1f{scheme}\x1f{port}\x1f{script_name}\x1f{path_info}\x1f{visitor}\x1f"
        ));
        argument.push(&self.script);
        argument
    }
}

/// One application's processes. All paths are absolute.
#[derive(Debug, Clone, Serialize, Deserialize)]
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
    /// Names of those that PHP code may not change.
    #[serde(default)]
    pub fixed_ini: Vec<String>,
    /// The whole environment of PHP, but for USER and HOME.
    pub env: Vec<(String, String)>,
    /// In place of the distribution's php.ini.
    pub php_ini: Option<PathBuf>,
    /// Environment by which PHP finds its ini files (`PHP_INI_SCAN_DIR`, `PHPRC`), and which is gone when it has.
    #[serde(default)]
    pub ini_env: Vec<(String, String)>,
    /// Requests after which a worker is replaced.
    pub max_requests: Option<u64>,
    /// Private bytes above which a worker is replaced after a request.
    pub max_memory: Option<u64>,
    /// How long PHP may run for one request; the worker is killed then.
    pub request_timeout: Option<Duration>,
    /// How long PHP may run for one request until the log says what it is doing; at the latest that is at nine tenths of its timeout.
    pub slow_request: Option<Duration>,
    /// How long a request may wait for a worker.
    pub queue_timeout: Duration,
    /// How long a worker above MIN may idle before it is let go.
    pub idle_timeout: Duration,
    /// How long a boot may take, warm-up included; it is ended then, and counts as failed. `None`: as long as it likes.
    pub boot_timeout: Option<Duration>,
    /// What happens between two requests; `Off` in classic mode.
    pub rewind: Rewind,
    /// What is requested before the snapshot is taken, in order. Of no meaning without rewinding.
    pub warmup: Vec<Visit>,
    /// What is requested to see whether those have left something behind that answers show. Of no meaning without them.
    pub compared: Vec<Visit>,
    /// Compare all memory with the snapshot after every so many rewinds, for debugging.
    pub rewind_verify: Option<u64>,
    /// Of no meaning without rewinding.
    pub connections: Connections,
    /// The age at which a worker that keeps connections is replaced.
    pub connection_lifetime: Option<Duration>,
    /// Where the host is to write what it sees, for `hayate explain`.
    pub explain: Option<PathBuf>,
    /// Development mode of the host.
    pub development: bool,
    /// Sets `PR_SET_NO_NEW_PRIVS` in the host.
    pub no_new_privileges: bool,
    /// The way it runs in.
    pub way: Way,
}

/// How the application of worker mode boots: by default in the zygote, with workers that share the booted pages, and warm.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Boot {
    /// Why it boots in each worker instead.
    pub(crate) private: Option<String>,
    /// Why no warm-up requests are made.
    pub(crate) cold: Option<String>,
    /// What is wrong with it nevertheless.
    pub(crate) remark: Option<String>,
}

/// Variables of recognised applications for the boot script (where the project lies, which method handles a request), which takes them
/// out again.
pub const BOOT_SCRIPT_VARIABLES: [&str; 2] = ["HAYATE_PROJECT", "HAYATE_RUN"];

impl Boot {
    /// Whether the boot has been done in this way already.
    pub(crate) fn was_done(&self, how: Again) -> bool {
        match how {
            Again::Private => self.private.is_some(),
            Again::Cold | Again::Differs => self.cold.is_some(),
            Again::Fork | Again::Classic | Again::OnceMore => false,
        }
    }
}

impl Spec {
    /// The same application in another way.
    pub fn in_way(&self, way: Way) -> Spec {
        let mut spec = Spec { way, ..self.clone() };
        match way {
            Way::Configured | Way::ClassesLater => {}
            Way::Fork => spec.rewind = Rewind::Fork,
            Way::Classic => {
                (spec.mode, spec.rewind) = (Mode::Classic, Rewind::Off);
                spec.warmup.clear();
                spec.compared.clear();
                // For the boot script only, which does not run.
                spec.env.retain(|(name, _)| !BOOT_SCRIPT_VARIABLES.contains(&&**name));
            }
        }
        spec
    }

    /// A command that starts the host, and the descriptor that has to be mapped for it besides those of its work. Every user may
    /// read a command line: it says which process this is, and the rest of the arguments goes through a file without a name.
    pub(crate) fn command(&self, start: Start) -> io::Result<(Command, FdMapping)> {
        self.command_with(self.arguments(start))
    }

    fn command_with(&self, arguments: Vec<OsString>) -> io::Result<(Command, FdMapping)> {
        let mut text = Vec::new();
        for arg in arguments {
            if arg.as_bytes().contains(&0) {
                let why = "a path, a setting of ini or a variable of env holds a NUL; take it out";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
            }
            text.extend_from_slice(arg.as_bytes());
            text.push(0);
        }
        let file = memfd_create("hayate-options", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        let mut file = File::from(file);
        file.write_all(&text)?;
        fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let mut command = Command::new(&self.host);
        command.args(["--mode", self.mode.name(), "--name", &self.name, "--root"]).arg(&self.document_root);
        command.args(["--more", &HY_FD_OPTIONS.to_string()]).env_clear().current_dir("/");
        // A function of a library that a request calls first would be looked up anew by every request: all are looked up at the start. Elsewhere an
        // extension may name what nobody has, as long as it does not call it.
        if matches!(self.mode, Mode::Worker { .. }) && self.rewind != Rewind::Off {
            command.env("LD_BIND_NOW", "1");
        }
        Ok((command, FdMapping { parent_fd: file.into(), child_fd: HY_FD_OPTIONS as i32 }))
    }

    /// The arguments of the host that are not for everybody's eyes, as `host/options.c` reads them.
    fn arguments(&self, start: Start) -> Vec<OsString> {
        let mut args: Vec<OsString> = Vec::new();
        let mut add = |flag: &str, value: OsString| args.extend([flag.into(), value]);
        if let Mode::Worker { script } = &self.mode {
            add("--worker", script.into());
            add("--boot", if start.private { "private" } else { "shared" }.into());
            self.add_rewind(start, &mut add);
        }
        add("--cwd", (&self.cwd).into());
        if let Some(file) = &self.php_ini {
            add("--php-ini", file.into());
        }
        for (key, value) in &self.ini_env {
            add("--ini-env", format!("{key}={value}").into());
        }
        for (key, value) in &self.ini {
            add("--ini", ini::line(key, value).into());
        }
        self.fixed_ini.iter().for_each(|name| add("--fixed-ini", name.into()));
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
        if let Some(file) = &self.explain {
            add("--explain", file.into());
        }
        if self.development {
            args.push("--dev".into());
        }
        args
    }

    /// A command that starts the host only for it to say, on standard output, how this would be rewound.
    pub fn probe(&self) -> io::Result<Command> {
        let (mut command, more) =
            self.command_with([self.arguments(Start::default()), vec!["--probe".into()]].concat())?;
        command.fd_mappings(vec![more]).map_err(io::Error::other)?;
        Ok(command)
    }

    /// Nothing when it is off, which is what the host does by itself.
    fn add_rewind(&self, start: Start, add: &mut impl FnMut(&str, OsString)) {
        match self.rewind {
            Rewind::Off => return,
            Rewind::On => add("--rewind", "auto".into()),
            Rewind::Fork => add("--rewind", "fork".into()),
        }
        if !start.cold {
            self.warmup.iter().for_each(|visit| add("--warmup", visit.argument()));
            self.compared.iter().for_each(|visit| add("--compare", visit.argument()));
        }
        // Who forks for another reason may have been in that way before.
        if matches!(self.way, Way::ClassesLater | Way::Fork) {
            add("--classes", "later".into());
        }
        if let Some(n) = self.rewind_verify {
            add("--rewind-verify", n.to_string().into());
        }
        if self.connections == Connections::Warm {
            add("--connections", self.connections.name().into());
            if let Some(age) = self.connection_lifetime {
                add("--connection-lifetime", age.as_millis().to_string().into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visit(path: &str) -> Visit {
        Visit {
            target: path.into(),
            host: "a.test:81".into(),
            https: false,
            port: 81,
            script: "/a/index.php".into(),
            script_name: "/index.php".into(),
            path_info: String::new(),
            another_visitor: false,
        }
    }

    fn arguments(mode: Mode, rewind: Rewind) -> Vec<String> {
        let spec = Spec {
            name: "a".into(),
            document_root: "/a".into(),
            cwd: "/a".into(),
            mode,
            host: "/bin/true".into(),
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
            queue_timeout: Duration::ZERO,
            idle_timeout: Duration::ZERO,
            boot_timeout: None,
            rewind,
            warmup: vec![visit("/"), visit("/a")],
            compared: vec![visit("/made-up")],
            rewind_verify: Some(100),
            connections: Connections::Request,
            connection_lifetime: None,
            explain: None,
            development: false,
            no_new_privileges: true,
            way: Way::Configured,
        };
        spec.arguments(Start::default()).into_iter().map(|arg| arg.into_string().unwrap()).collect()
    }

    #[test]
    fn rewinding_is_for_worker_mode_and_is_said_only_when_it_is_on() {
        let worker = || Mode::Worker { script: "/a/worker.php".into() };
        let on = arguments(worker(), Rewind::On).join(" ");
        let visit =
            |path: &str| format!("{path}\x1fa.test:81\x1fhttp\x1f81\x1f/index.php\x1f\x1f\x1f/a/index.php");
        let (one, two, other) = (visit("/"), visit("/a"), visit("/made-up"));
        let flags =
            format!("--rewind auto --warmup {one} --warmup {two} --compare {other} --rewind-verify 100");
        assert!(on.contains(&flags), "{on}");
        assert!(arguments(worker(), Rewind::Fork).join(" ").contains("--rewind fork --warmup /"));
        for args in [arguments(worker(), Rewind::Off), arguments(Mode::Classic, Rewind::On)] {
            assert!(!args.iter().any(|arg| arg.contains("rewind") || arg.contains("warmup")), "{args:?}");
        }
    }
}
