//! What one call of the lab has in common: whose processors, which user, which PHP, where programs are, and whether the
//! user wants it to end.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    env, fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use crate::{
    data::Lab,
    guard::{Guard, orphans},
    machine::{self, Cores, User},
    proc,
    template::Names,
};

/// Flags that all experiments have in common.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct SessionArgs {
    /// Processors of the servers, such as 0-3 [default: one half of them]
    #[arg(long, value_name = "CPUS", help_heading = "Machine")]
    pub server_cores: Option<String>,
    /// Processors of the load generator [default: those that are not the servers']
    #[arg(long, value_name = "CPUS", help_heading = "Machine")]
    pub load_cores: Option<String>,
    /// Processors of databases [default: as the servers]
    #[arg(long, value_name = "CPUS", help_heading = "Machine")]
    pub service_cores: Option<String>,
    /// PHP processes of each engine that does not say otherwise [default: 4 for each processor of the servers]
    #[arg(long, value_name = "N", help_heading = "Machine", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub workers: Option<u32>,
    /// Version of Debian's PHP
    #[arg(long, value_name = "VERSION", help_heading = "Machine", env = "HAYATE_LAB_PHP")]
    pub php: Option<String>,
    /// The hayate command [default: $HAYATE_BIN, beside this program, in the repository, in PATH]
    #[arg(long, value_name = "FILE", help_heading = "Machine", env = "HAYATE_BIN")]
    pub hayate: Option<PathBuf>,
}

/// See the module.
#[derive(Debug)]
pub struct Session {
    /// The data.
    pub lab: Lab,
    /// Whom servers run as, if not as we do.
    pub user: Option<User>,
    /// Who uses which processors.
    pub cores: Cores,
    /// PHP processes of an engine.
    pub workers: u32,
    /// Debian's PHP, such as `8.2`.
    pub php: String,
    /// Where commands are looked up.
    pub path: String,
    /// Parts that no distribution has.
    pub parts: PathBuf,
    /// The command under test; may not exist.
    pub hayate: PathBuf,
    /// Where directories are made.
    pub temporary: PathBuf,
    /// Whether the instructions that engines execute are counted.
    pub instructions: bool,
    interrupted: Arc<AtomicBool>,
    /// What commands said: engines ask the same ones for their versions.
    said: RefCell<HashMap<Vec<String>, String>>,
}

impl Session {
    /// Looks around, and from now on takes SIGINT and SIGTERM as the wish to end in order; a second one ends at once.
    ///
    /// # Errors
    /// Flags that make no sense here.
    pub fn new(lab: Lab, args: &SessionArgs) -> Result<Self> {
        let cores = Cores::assign(
            args.server_cores.as_deref(),
            args.load_cores.as_deref(),
            args.service_cores.as_deref(),
        )?;
        orphans::adopt().context("PR_SET_CHILD_SUBREAPER")?;
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            // In this order: the first signal finds the flag unset. What is left behind then is the guards' business.
            signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&interrupted))?;
            signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
        }
        let parts =
            env::var_os("HAYATE_LAB_PARTS").map_or_else(|| PathBuf::from("/opt/hayate-lab"), PathBuf::from);
        let own = env::var("PATH").unwrap_or_default();
        let path = format!(
            "{}/bin:{own}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            parts.display()
        );
        let php = match &args.php {
            Some(version) => version.clone(),
            None => newest_php().unwrap_or_else(|| "8.2".to_owned()),
        };
        let hayate = find_hayate(args.hayate.as_deref(), &lab, &path);
        let processors = u32::try_from(cores.server.len()).unwrap_or(1);
        Ok(Self {
            user: User::unprivileged()?,
            workers: args.workers.unwrap_or(4 * processors),
            cores,
            php,
            path,
            parts,
            hayate,
            temporary: env::temp_dir(),
            instructions: false,
            lab,
            interrupted,
            said: RefCell::default(),
        })
    }

    /// Keeps this process, and what it starts, on the generator's processors.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn pin(&self) -> Result<()> {
        machine::pin_self(&self.cores.load)
    }

    /// Whether the user wants an end.
    pub fn interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// A directory of our own, with its guard.
    ///
    /// # Errors
    /// The guard cannot be started.
    pub fn guard(&self, name: &str) -> Result<Guard> {
        Ok(Guard::new(&self.temporary, name, self.user.as_ref())?)
    }

    /// What templates find everywhere.
    pub fn names(&self) -> Names {
        let mut names = Names::default();
        let (user, group) = User::names(self.user.as_ref());
        names.set("php", self.php.as_str());
        names.set("cores", self.cores.server.len());
        names.set("user", user);
        names.set("group", group);
        names.set("hayate", text(&self.hayate));
        names.set("lab", text(&self.lab.root));
        names.set("repository", text(&self.lab.repository()));
        names.set("parts", text(&self.parts));
        names
    }

    /// The bare environment of servers.
    pub fn environment(&self, dir: &Path) -> BTreeMap<String, String> {
        BTreeMap::from([
            ("PATH".to_owned(), self.path.clone()),
            ("HOME".to_owned(), text(dir)),
            ("TMPDIR".to_owned(), text(dir)),
            ("LANG".to_owned(), "C.UTF-8".to_owned()),
        ])
    }

    /// What a command prints, errors included; it is run once in a session.
    ///
    /// # Errors
    /// It cannot be started, or takes longer than ten seconds.
    pub fn output(&self, command: &[String]) -> Result<String> {
        if let Some(said) = self.said.borrow().get(command) {
            return Ok(said.clone());
        }
        let said = self.run(command)?;
        self.said.borrow_mut().insert(command.to_vec(), said.clone());
        Ok(said)
    }

    /// As [`Session::output`], each time anew.
    ///
    /// # Errors
    /// Likewise.
    pub fn run(&self, command: &[String]) -> Result<String> {
        let [program, arguments @ ..] = command else { bail!("an empty command") };
        let program =
            proc::find_command(program, &self.path).with_context(|| format!("{program}: not found"))?;
        let mut command = std::process::Command::new(&program);
        command
            .args(arguments)
            .env("PATH", &self.path)
            .env("LANG", "C.UTF-8")
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped());
        let mut process = orphans::spawn(&mut command).with_context(|| program.display().to_string())?;
        let read = |stream: Option<Box<dyn std::io::Read + Send>>| {
            std::thread::spawn(move || {
                let mut text = Vec::new();
                if let Some(mut stream) = stream {
                    // Half an output is as good as none here.
                    let _ = stream.read_to_end(&mut text);
                }
                String::from_utf8_lossy(&text).into_owned()
            })
        };
        let output = read(process.stdout.take().map(|stream| Box::new(stream) as _));
        let errors = read(process.stderr.take().map(|stream| Box::new(stream) as _));
        let end = Instant::now() + Duration::from_secs(10);
        while process.try_wait()?.is_none() {
            if Instant::now() > end {
                process.kill()?;
                orphans::wait(&mut process)?;
                bail!("{} {} does not end", program.display(), arguments.join(" "));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        orphans::wait(&mut process)?;
        let joined = output.join().unwrap_or_default() + &errors.join().unwrap_or_default();
        Ok(joined)
    }
}

/// A path as text; the lab makes no others.
pub fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// The highest version of Debian's PHP.
fn newest_php() -> Option<String> {
    let versions = fs::read_dir("/etc/php").ok()?.flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let (major, minor) = name.split_once('.')?;
        let number = (major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?);
        entry.path().join("cli").is_dir().then_some((number, name))
    });
    versions.max().map(|(_, name)| name)
}

fn find_hayate(named: Option<&Path>, lab: &Lab, path: &str) -> PathBuf {
    if let Some(named) = named {
        return fs::canonicalize(named).unwrap_or_else(|_| named.to_owned());
    }
    let beside = env::current_exe().ok().and_then(|program| Some(program.parent()?.join("hayate")));
    let built = lab.repository().join("target/release/hayate");
    let candidates = beside.into_iter().chain([built.clone()]);
    let mut found = candidates.filter(|file| file.is_file());
    found.next().or_else(|| proc::find_command("hayate", path)).unwrap_or(built)
}
