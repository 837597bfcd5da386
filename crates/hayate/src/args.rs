//! The command line. Help, man page and shell completions come from here.

use std::{ffi::OsString, path::PathBuf};

use clap::{
    ArgAction, Args, Parser, Subcommand, ValueHint,
    error::{ContextKind, ContextValue, ErrorKind},
};
use hayate_front::ListenAddr;
use hayate_pool::is_setting;

use crate::config::{
    AccessLogFormat, AccessLogTo, ConnectionsChoice, LogFormat, LogLevel, ModeChoice, RewindChoice, Size,
    Time, Workers,
};

/// Hayate serves PHP applications: HTTP, static files and PHP processes in one command.
#[derive(Debug, Parser)]
#[command(name = "hayate", version, max_term_width = 100)]
#[command(after_help = "Serve the application in this directory on http://127.0.0.1:8080:  hayate serve")]
pub struct Cli {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// What other servers call it, and what does that here.
const OF_OTHERS: [(&[&str], &str); 3] = [
    (&["--port", "-p", "--host", "--bind", "--address", "-S"], "--listen 127.0.0.1:8080 says where"),
    (
        &["--docroot", "--document-root", "--public", "-t"],
        "the directory stands by itself: hayate serve public",
    ),
    (&["--daemon", "-d", "--detach"], "it stays in the foreground; systemd or & keeps it"),
];

/// The command line of this process. One that is wrong ends it, as does a request for help.
pub fn parse() -> Cli {
    read(std::env::args_os()).unwrap_or_else(|error| {
        // clap's own way out says nothing of a disk that is full. An error that cannot be told changes nothing.
        if let Err(unwritten) = error.print()
            && !error.use_stderr()
            && unwritten.kind() != std::io::ErrorKind::BrokenPipe
        {
            crate::unwritten(&unwritten);
        }
        std::process::exit(error.exit_code())
    })
}

fn read(args: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(args).map_err(|mut error| {
        let flag = match error.get(ContextKind::InvalidArg) {
            Some(ContextValue::String(flag)) if error.kind() == ErrorKind::UnknownArgument => flag.clone(),
            _ => return error,
        };
        if let Some((_, does)) = OF_OTHERS.iter().find(|(flags, _)| flags.contains(&&*flag)) {
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![(*does).into()]));
        }
        error
    })
}

/// The sub-commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve an application, or those of a configuration file, until SIGTERM or Ctrl-C
    #[command(after_long_help = SERVE_HELP)]
    Serve(Box<ServeArgs>),
    /// Check a configuration and say what would run, without running it
    ///
    /// Takes what `serve` takes. Exit status 0: it can be served; 1: it can, but --strict takes no warnings; 2: it cannot, and the error
    /// says where and why.
    Check(Box<CheckArgs>),
    /// Boot the applications, make sample requests, and say what each costs and what to change
    ///
    /// Takes what `serve` takes, and listens nowhere. Exit status 1: an application does not boot; 2: the configuration is
    /// wrong.
    Explain(Box<ExplainArgs>),
    /// Read the configuration for the master, which starts this
    #[command(hide = true)]
    LoadPlan(Box<ServeArgs>),
    /// As load-plan, for a server that does not serve yet
    #[command(hide = true)]
    LoadFirstPlan(Box<ServeArgs>),
    /// Be the front of a server; the master starts this
    #[command(hide = true)]
    Front,
    /// Say what a running server does
    ///
    /// Exit status: 0 it runs, 1 none answers, 3 it is still starting.
    Status {
        #[command(flatten)]
        control: ControlArgs,
        /// Print everything, as JSON
        #[arg(long)]
        json: bool,
    },
    /// Read the configuration and start the applications again, without losing a request
    ///
    /// Returns when the new processes serve (exit status 0), or when they or the configuration were refused (1): then
    /// the old ones go on serving. The same as SIGHUP.
    Reload {
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Have the installed program take the place of the running one, without refusing a connection
    ///
    /// For after an installation. The process id stays. Returns when the new program serves (exit status 0), or when it or the
    /// configuration was refused (1): then what served goes on serving.
    Upgrade {
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Finish the requests that are being served, and end
    Stop {
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Print the version
    Version,
    /// Print documentation that is made from the source
    #[command(hide = true)]
    Generate {
        /// What to print
        #[command(subcommand)]
        what: Generate,
    },
}

/// What `hayate generate` prints.
#[derive(Debug, Subcommand)]
pub enum Generate {
    /// The man page
    Man,
    /// Completions for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// The reference of hayate.toml, in Markdown
    Configuration,
    /// The same as a man page
    ManConfiguration,
}

const SERVE_HELP: &str = "\
Signals: SIGTERM, SIGINT and SIGQUIT finish what is being served and end, a second one ends at once;
SIGHUP reloads; SIGUSR1 reopens the access log; SIGUSR2 upgrades, as `hayate upgrade`.

Every flag has its key in the configuration file, and wins over it; flags about PHP apply to every
application of the file.

Exit status: 0 after an orderly end, 1 when it could not start, 2 when the configuration or the
command line is wrong.

Examples:
  hayate serve                                       the application in this directory
  hayate serve /srv/app --worker public/worker.php   worker mode: boot once, then handle requests
  hayate serve --config /etc/hayate/hayate.toml      several applications
  hayate serve --listen :80 --user www-data          as root: open port 80, then run as www-data
  hayate serve --tls shop.example.org --user www-data   ports 80 and 443, certificate by itself
  hayate serve --dev --tls localhost                 https://localhost:8443, self-signed";

/// Where a running server is found.
#[derive(Debug, Args)]
pub struct ControlArgs {
    /// The server's control socket [default: /run/hayate/control.sock as root, else $XDG_RUNTIME_DIR/hayate.sock]
    #[arg(long, value_name = "SOCKET", value_hint = ValueHint::FilePath)]
    pub control: Option<PathBuf>,
}

/// A setting of php.ini or a variable of the environment.
#[derive(Debug, Clone)]
pub struct KeyValue(pub String, pub String);

fn key_value(text: &str) -> Result<KeyValue, String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok(KeyValue(key.trim().into(), value.into())),
        _ => Err("write KEY=VALUE".into()),
    }
}

fn setting(text: &str) -> Result<KeyValue, String> {
    let pair = key_value(text)?;
    match is_setting(&pair.0) {
        true => Ok(pair),
        false => {
            Err(format!("{:?} is no name of a setting of php.ini; write such as memory_limit=256M", pair.0))
        }
    }
}

/// As a browser would send it.
fn path_of_url(text: &str) -> Result<String, String> {
    let wrong = text.chars().find(|c| !c.is_ascii_graphic() || *c == '#');
    match (text.starts_with('/'), wrong) {
        (true, None) => Ok(text.to_owned()),
        (false, _) => Err("a path begins with /, such as /shop?page=2".into()),
        (true, Some(c)) => {
            let mut bytes = [0; 4];
            let written: String =
                c.encode_utf8(&mut bytes).bytes().map(|byte| format!("%{byte:02X}")).collect();
            Err(format!("write {written} for {c:?}, as browsers do"))
        }
    }
}

/// What `explain` takes.
#[derive(Debug, Clone, Args)]
pub struct ExplainArgs {
    #[command(flatten)]
    pub serve: ServeArgs,
    /// Path of the application to request as a sample, `/` being its front page; repeatable [default: /]
    #[arg(long, value_name = "PATH", value_parser = path_of_url)]
    pub url: Vec<String>,
    /// Print everything, as JSON
    #[arg(long)]
    pub json: bool,
    /// Only the applications that run as the user of this one, counted from 0
    #[arg(long, hide = true)]
    pub user_of: Option<usize>,
}

/// What `check` takes.
#[derive(Debug, Args)]
pub struct CheckArgs {
    #[command(flatten)]
    pub serve: ServeArgs,
    /// Fail where there are warnings, too, as an extension that composer.json asks for and that is not there: for builds and pipelines
    #[arg(long)]
    pub strict: bool,
}

/// What `serve`, `check` and `explain` take.
#[derive(Debug, Clone, Args, Default)]
pub struct ServeArgs {
    /// The application's directory; served is its public/ (CakePHP: webroot/, Yii: web/) if that holds an index.php, else itself [default: .]
    #[arg(value_hint = ValueHint::DirPath)]
    pub root: Option<PathBuf>,
    /// Configuration file (TOML), see hayate.toml(5), or docs/configuration.md
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,
    /// Address to listen on: 127.0.0.1:8080, [::1]:80, :80, unix:/path; repeatable [default: 127.0.0.1:8080]
    ///
    /// With --tls it speaks TLS, unless its port is 80, or 8080 beside other addresses.
    #[arg(short, long, value_name = "ADDR")]
    pub listen: Vec<ListenAddr>,
    /// Speak TLS for this host: certificate by ACME, or self-signed with --dev; repeatable
    #[arg(long, value_name = "HOST")]
    pub tls: Vec<String>,

    /// Worker script: it boots once, then handles requests by hayate_handle_request(); switches worker mode on
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "PHP")]
    pub worker: Option<PathBuf>,
    /// How PHP runs [default: worker with a worker script or for a recognised framework, else classic]
    #[arg(long, value_name = "classic|worker", help_heading = "PHP")]
    pub mode: Option<ModeChoice>,
    /// Worker mode: rewind the process after each request, keep its state (off), or run each request in a fork
    #[arg(long, value_name = "on|off|fork", help_heading = "PHP")]
    pub rewind: Option<RewindChoice>,
    /// Path to request before the snapshot that processes are rewound to; repeatable; off: none [default: / three times]
    #[arg(long, value_name = "PATH", help_heading = "PHP")]
    pub warmup: Vec<String>,
    /// Compare all memory with the snapshot after every N rewinds, for debugging; 0: never [default: 0]
    #[arg(long, value_name = "N", help_heading = "PHP")]
    pub rewind_verify: Option<u64>,
    /// Worker mode with rewind: keep connections to databases that are open when a worker is ready, or not
    #[arg(long, value_name = "request|warm", help_heading = "PHP")]
    pub connections: Option<ConnectionsChoice>,
    /// With --connections warm: the age at which connections are opened afresh, by another worker, or off [default: 30m]
    #[arg(long, value_name = "TIME", help_heading = "PHP")]
    pub connection_lifetime: Option<Time>,
    /// How long a boot may take, or off [default: 60s]
    #[arg(long, value_name = "TIME", help_heading = "PHP")]
    pub boot_timeout: Option<Time>,
    /// Worker processes: a number, or a least and a most [default: 1 to twice the processors, 4 at least; fewer where the cgroup limits memory or processes]
    #[arg(short = 'n', long, value_name = "N|MIN-MAX", help_heading = "PHP")]
    pub workers: Option<Workers>,
    /// Setting of php.ini; repeatable
    #[arg(short, long, value_name = "KEY=VALUE", value_parser = setting, help_heading = "PHP")]
    pub ini: Vec<KeyValue>,
    /// Environment variable of PHP, which inherits none; repeatable
    #[arg(short, long, value_name = "KEY=VALUE", value_parser = key_value, help_heading = "PHP")]
    pub env: Vec<KeyValue>,
    /// PHP version, such as 8.2, the path of a host binary, or off for static files alone [default: the highest version installed]
    #[arg(long, value_name = "VERSION|PATH|off", help_heading = "PHP")]
    pub php: Option<String>,
    /// php.ini in place of the distribution's
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "PHP")]
    pub php_ini: Option<PathBuf>,
    /// Replace a worker after this many requests; 0: never [default: 0]
    #[arg(long, value_name = "N", help_heading = "PHP")]
    pub max_requests: Option<u64>,
    /// Replace a worker that holds more memory than this after a request; 0: never [default: 0]
    #[arg(long, value_name = "SIZE", help_heading = "PHP")]
    pub max_memory: Option<Size>,
    /// How long PHP may run for one request, or off [default: 60s]
    #[arg(long, value_name = "TIME", help_heading = "PHP")]
    pub request_timeout: Option<Time>,
    /// How long PHP may run for one request until the log says what it is doing, or off [default: off]
    #[arg(long, value_name = "TIME", help_heading = "PHP")]
    pub slow_request: Option<Time>,
    /// Script below the document root that answers what is no file; "": none, 404 [default: see hayate.toml(5)]
    #[arg(long, value_name = "SCRIPT", help_heading = "PHP")]
    pub front_controller: Option<String>,
    /// Requests that may wait for a worker [default: 1024]
    #[arg(long, value_name = "N", help_heading = "PHP")]
    pub queue_limit: Option<usize>,
    /// How long a request may wait for a worker [default: 30s]
    #[arg(long, value_name = "TIME", help_heading = "PHP")]
    pub queue_timeout: Option<Time>,

    /// Access log: off, - for standard output, or a file [default: off]
    #[arg(long, value_name = "off|-|FILE", help_heading = "Logs")]
    pub access_log: Option<AccessLogTo>,
    /// How a line of it looks [default: combined]
    #[arg(long, value_name = "FORMAT", help_heading = "Logs")]
    pub access_log_format: Option<AccessLogFormat>,
    /// How much Hayate logs on standard error [default: info]
    #[arg(long, value_name = "LEVEL", help_heading = "Logs")]
    pub log_level: Option<LogLevel>,
    /// How a line of that looks [default: compact]
    #[arg(long, value_name = "FORMAT", help_heading = "Logs")]
    pub log_format: Option<LogFormat>,

    /// Control socket [default: /run/hayate/control.sock as root, else $XDG_RUNTIME_DIR/hayate.sock]
    #[arg(long, value_name = "SOCKET", value_hint = ValueHint::FilePath, help_heading = "Process")]
    pub control: Option<PathBuf>,
    /// TCP address that answers /metrics, /healthz and /readyz [default: none]
    #[arg(long, value_name = "ADDR", help_heading = "Process")]
    pub metrics: Option<String>,
    /// File to write the process id to
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Process")]
    pub pid_file: Option<PathBuf>,
    /// As root: the user to change to once the sockets are open
    #[arg(long, value_hint = ValueHint::Username, help_heading = "Process")]
    pub user: Option<String>,
    /// The group to change to [default: the user's]
    #[arg(long, help_heading = "Process")]
    pub group: Option<String>,
    /// Development mode: error pages show why, answers carry Server-Timing; a failed first boot does not end the server
    #[arg(long, help_heading = "Process")]
    pub dev: bool,
    /// Forbid PHP and all it starts to gain privileges [default: true]
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, help_heading = "Process")]
    pub no_new_privileges: Option<bool>,
    /// Network of proxies that are believed what they say of their visitors, or unix; repeatable
    #[arg(long, value_name = "NETWORK", help_heading = "Process")]
    pub trusted_proxies: Vec<String>,
    /// Header of theirs that is believed, such as x-forwarded-host; repeatable [default: x-forwarded-for, -proto and -port]
    #[arg(long, value_name = "NAME", help_heading = "Process")]
    pub trusted_headers: Vec<String>,
    /// Threads that serve connections, 1 to 64 [default: processors that the server may use]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64), help_heading = "Process")]
    pub front_threads: Option<u32>,
    /// How long requests may finish when the server ends or reloads [default: 30s]
    #[arg(long, value_name = "TIME", help_heading = "Process")]
    pub drain_timeout: Option<Time>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_are_read() {
        let cli = Cli::try_parse_from([
            "hayate",
            "serve",
            "site",
            "--listen",
            ":80",
            "--listen",
            "unix:/x",
            "--workers",
            "2-4",
            "--ini",
            "a=b=c",
            "--access-log",
            "-",
            "--dev",
            "--no-new-privileges",
            "false",
        ]);
        let Command::Serve(args) = cli.unwrap().command else { panic!() };
        assert_eq!(args.listen.len(), 2);
        assert_eq!(args.workers, Some(Workers { min: 2, max: 4 }));
        assert_eq!((args.ini[0].0.as_str(), args.ini[0].1.as_str()), ("a", "b=c"));
        assert_eq!(args.no_new_privileges, Some(false));
        let wrong = Cli::try_parse_from(["hayate", "serve", "--workers", "4-2"]).unwrap_err();
        assert_eq!(wrong.exit_code(), 2);
        assert!(wrong.to_string().contains("write 2-4"));
    }

    #[test]
    fn flags_of_other_servers_are_told_what_does_that() {
        for (flag, does) in [("--port", "--listen"), ("-t", "hayate serve public"), ("--lisn", "--listen")] {
            let said = read(["hayate", "serve", flag, "1"].map(OsString::from)).unwrap_err().to_string();
            assert!(said.contains(&format!("unexpected argument '{flag}'")) && said.contains(does), "{said}");
            assert!(!said.contains("as a value"), "{said}");
        }
    }

    #[test]
    fn every_flag_of_serve_has_its_key() {
        let keys = crate::config::schema();
        let top = keys["properties"].as_object().unwrap();
        let app = keys["$defs"]["App"]["properties"].as_object().unwrap();
        let command = Cli::command();
        let serve = command.find_subcommand("serve").unwrap();
        let renamed = |name: &str| if name == "dev" { "development".into() } else { name.replace('-', "_") };
        for flag in serve.get_arguments() {
            let name = renamed(flag.get_long().unwrap_or(flag.get_id().as_str()));
            let known = ["config", "help", "version"].contains(&&*name);
            assert!(known || top.contains_key(&name) || app.contains_key(&name), "{name} has no key");
        }
    }
}
