//! What the PHP of an application is made of, and how it would be rewound: its host is asked, which starts PHP for it, but runs nothing
//! of the application except what `opcache.preload` names.
//!
//! It runs as the application's user, as when it is served: php.ini, extensions and preloaded files may belong to that user. However
//! much they say and however long they take, this ends, and shows a few lines of it.

use std::{
    collections::HashMap,
    io::{self, Read},
    mem::take,
    os::unix::process::{CommandExt, ExitStatusExt},
    path::Path,
    process::{Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use hayate_pool::{BOOT_SCRIPT_VARIABLES, Mode, Spec};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, setsid, waitid};

use crate::{php, plan::App, privileges, terminal};

/// Of what PHP says as it starts.
const MOST_COMPLAINTS: usize = 16;
/// Of one of them, in characters.
const LONGEST_COMPLAINT: usize = 500;
/// Of what it says on each of standard output and standard error; the rest is read and dropped.
const MOST_SAID: usize = 1 << 20;
/// How long what it has said may be on the way when it has ended.
const REST: Duration = Duration::from_secs(1);
/// How long it may take where `boot_timeout` sets no limit.
const PATIENCE: Duration = Duration::from_secs(60);

/// How an application would be rewound, on this kernel, as its user and with its extensions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// How written pages would be found: `uffd`, the best, `soft-dirty`, or `fork` where there is no way.
    pub tracking: String,
    /// What stands in the way of a better one, and what to do about it; empty for the best.
    pub why: String,
    /// Which extension does not bear it, why, and what to do about it.
    pub unfit: Option<String>,
    /// The PHP that runs, which may be newer than the one that the host was built for.
    pub php: String,
    /// The ini files that were read, in order.
    pub ini_files: Vec<String>,
    /// The extensions that are loaded, built-in ones included.
    pub extensions: Vec<String>,
    /// The names of all settings that it and they know.
    pub settings: Vec<String>,
    /// What PHP finds wrong as it starts: with settings of php.ini, and with extensions that it is to load.
    pub complaints: Vec<String>,
}

/// Hosts that are asked about many applications: once for what they say of all that have the same settings.
#[derive(Default)]
pub struct Hosts<'a> {
    versions: HashMap<&'a Path, Result<String, String>>,
    probes: Vec<(&'a App, Result<Probe, String>)>,
}

impl<'a> Hosts<'a> {
    /// As [`php::version`].
    pub fn version(&mut self, host: &'a Path) -> Result<String, String> {
        self.versions.entry(host).or_insert_with(|| php::version(host)).clone()
    }

    /// How this application would be rewound, and by what PHP. `Err`: why its PHP does not start.
    pub fn probe(&mut self, app: &'a App) -> Result<Probe, String> {
        if let Some((_, probe)) = self.probes.iter().find(|(other, _)| start_alike(other, app)) {
            return probe.clone();
        }
        let probe = probe(app);
        self.probes.push((app, probe.clone()));
        probe
    }
}

/// Whether PHP starts in the same way for both: the application's paths mean nothing to that.
fn start_alike(one: &App, other: &App) -> bool {
    let env = |spec: &'_ Spec| -> Vec<(String, String)> {
        spec.env.iter().filter(|(name, _)| !BOOT_SCRIPT_VARIABLES.contains(&&**name)).cloned().collect()
    };
    let is_worker = |spec: &Spec| matches!(spec.mode, Mode::Worker { .. });
    let (alike, one, other) = (one.identity == other.identity, &one.spec, &other.spec);
    alike
        && one.host == other.host
        && is_worker(one) == is_worker(other)
        && one.rewind == other.rewind
        && one.ini == other.ini
        && one.fixed_ini == other.fixed_ini
        && one.php_ini == other.php_ini
        && one.ini_env == other.ini_env
        && env(one) == env(other)
}

/// Asks the host. `Err`: why PHP does not start.
pub fn probe(app: &App) -> Result<Probe, String> {
    let mut command = app.spec.probe().map_err(|error| error.to_string())?;
    if let Some(identity) = app.identity.as_ref().filter(|_| privileges::is_root()) {
        // SAFETY: assumers are fit to run between fork and exec.
        unsafe { command.pre_exec(identity.assumer()) };
    }
    let limit = app.spec.boot_timeout.unwrap_or(PATIENCE);
    let (ended, out, err) =
        output(command, limit).map_err(|error| format!("cannot run {}: {error}", app.spec.host.display()))?;
    let complaints = complaints(&err);
    let Some(ended) = ended else {
        return Err(format!("it takes longer than {} s (boot_timeout)", limit.as_secs_f64()));
    };
    match parse_probe(&out) {
        Some(probe) if ended.success() => Ok(Probe { complaints, ..probe }),
        _ => Err(why_not(&err, ended)),
    }
}

/// What a program says within a limit of time, and how it ended; `None`: it was killed for taking longer.
fn output(mut command: Command, limit: Duration) -> io::Result<(Option<ExitStatus>, String, String)> {
    // A session of its own: it has nothing to say to this terminal, and what it has started ends with it.
    // SAFETY: setsid() is fit to be called between fork and exec.
    unsafe { command.pre_exec(|| Ok(setsid().map(drop)?)) };
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let by = Instant::now().checked_add(limit);
    let (sender, over) = mpsc::channel();
    let out = child.stdout.take().map(|pipe| keep(pipe, sender.clone()));
    let err = child.stderr.take().map(|pipe| keep(pipe, sender));
    let process =
        i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
    // It is left to be waited for: until then nobody else has its number, by which its group is killed.
    let how = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    let in_time = loop {
        match waitid(WaitId::Pid(process), how)? {
            Some(_) => break true,
            None if by.is_some_and(|by| by <= Instant::now()) => break false,
            None => thread::sleep(Duration::from_millis(2)),
        }
    };
    // It, and what it has started.
    let _ = kill_process_group(process, Signal::KILL);
    let ended = child.wait()?;
    // All of it is in the pipes. Whom it has started may keep them open.
    while let Ok(()) = over.recv_timeout(REST) {}
    let said = |kept: Option<Arc<Mutex<Vec<u8>>>>| {
        let bytes = kept.map(|kept| take(&mut *kept.lock().unwrap_or_else(PoisonError::into_inner)));
        String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()
    };
    Ok((in_time.then_some(ended), said(out), said(err)))
}

/// Reads all that comes of a pipe, keeps the beginning, and says when it is over: to its end, by a thread that this program's end ends.
fn keep(mut pipe: impl Read + Send + 'static, over: Sender<()>) -> Arc<Mutex<Vec<u8>>> {
    let kept = Arc::<Mutex<Vec<u8>>>::default();
    let all = Arc::clone(&kept);
    thread::spawn(move || {
        let mut piece = vec![0; 64 << 10];
        while let Ok(n @ 1..) = pipe.read(&mut piece) {
            let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
            let room = MOST_SAID.saturating_sub(all.len());
            all.extend_from_slice(piece.get(..n.min(room)).unwrap_or_default());
        }
        let _ = over.send(());
    });
    kept
}

/// The message by which PHP's start ended, or how it ended without one.
fn why_not(err: &str, ended: ExitStatus) -> String {
    let fatal = |line: &&str| line.contains("Fatal error:  ") || line.contains("Parse error:  ");
    let last = |line: &&str| !line.trim().is_empty();
    let show = |line: &str| short(line.trim_start_matches("hayate-php: "));
    match (err.lines().find(fatal), err.lines().rev().find(last)) {
        (Some(line), _) => show(line),
        // A crash says nothing itself: what was said last need not be about it.
        (None, Some(line)) if ended.signal().is_some() => {
            format!("it ended with {ended}; what it said last: {}", show(line))
        }
        (None, Some(line)) => show(line),
        (None, None) => format!("it ended with {ended}"),
    }
}

/// A line that may be shown within one of ours.
fn short(line: &str) -> String {
    // The host writes the ends of lines within a record so.
    terminal::cut(&terminal::plain(&line.replace([LINE_END, '\t'], " ")), LONGEST_COMPLAINT).into_owned()
}

/// `HY_LOG_LINE_END` of the host's layout.
const LINE_END: char = hayate_ring::layout::HY_LOG_LINE_END as char;

/// PHP's own messages of a start, such as `PHP Warning:  Module "redis" is already loaded in Unknown on line 0`, or of reading an ini file,
/// `PHP:  syntax error, unexpected '(' in …`: each once, the first few.
fn complaints(said: &str) -> Vec<String> {
    let mut all = Vec::new();
    for line in said.lines() {
        let found = line.strip_prefix("PHP").and_then(|line| line.split_once(":  "));
        let Some((kind, text)) = found.filter(|(kind, _)| kind.is_empty() || kind.starts_with(' ')) else {
            continue;
        };
        let text = text.strip_suffix(" in Unknown on line 0").unwrap_or(text);
        let text = text.strip_prefix("PHP Startup: ").unwrap_or(text);
        let complaint = short(&format!("PHP{kind} as it starts: {text}"));
        if !all.contains(&complaint) {
            all.push(complaint);
        }
        if all.len() == MOST_COMPLAINTS {
            break;
        }
    }
    all
}

/// A line `tracking=NAME`, one `why=TEXT` unless it is the best, one `unsafe=TEXT` if there is such an extension, and, if PHP could
/// start, `php=VERSION` and a line for each `ini=FILE`, `extension=NAME` and `setting=NAME`. `None`: it could not.
fn parse_probe(said: &str) -> Option<Probe> {
    let find =
        |key: &str| said.lines().find_map(|line| line.strip_prefix(key)).map(|text| text.trim().to_owned());
    let all = |key: &str| -> Vec<String> {
        said.lines().filter_map(|line| line.strip_prefix(key)).map(|text| text.trim().to_owned()).collect()
    };
    Some(Probe {
        tracking: find("tracking=")?,
        why: find("why=").unwrap_or_default(),
        unfit: find("unsafe="),
        php: find("php=")?,
        ini_files: all("ini="),
        extensions: all("extension="),
        settings: all("setting="),
        complaints: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn what_php_says_as_it_starts_is_said_once() {
        let twice = "PHP Warning:  PHP Startup: Unable to load 'x'\x1d- y.so in Unknown on line 0\n";
        let said = format!(
            "{twice}{twice}some library: hello\nPHP Deprecated:  Directive 'y' is deprecated in Unknown on line 0\n\
             PHP:  syntax error in /a/php.ini on line 3\nPHPUnit:  x\n"
        );
        assert_eq!(
            complaints(&said),
            [
                "PHP Warning as it starts: Unable to load 'x' - y.so",
                "PHP Deprecated as it starts: Directive 'y' is deprecated",
                "PHP as it starts: syntax error in /a/php.ini on line 3"
            ]
        );
        let many: String = (0..1000).map(|n| format!("PHP Warning:  {n}\n")).collect();
        assert_eq!(complaints(&many).len(), MOST_COMPLAINTS);
        let long = complaints(&format!("PHP Warning:  {}\n", "ä".repeat(100_000)));
        assert_eq!(long.first().unwrap().chars().count(), LONGEST_COMPLAINT + 1);
    }

    #[test]
    fn who_says_too_much_or_takes_too_long_is_cut_short() {
        let minute = Duration::from_secs(60);
        let (ended, out, err) =
            output(sh("head -c 9000000 /dev/zero; echo why >&2; exit 3"), minute).unwrap();
        assert_eq!(ended.unwrap().code(), Some(3));
        assert_eq!((out.len(), &*err), (MOST_SAID, "why\n"));
        assert_eq!(why_not(&err, ended.unwrap()), "why");
        assert_eq!(why_not("", ended.unwrap()), "it ended with exit status: 3");
        for slow in ["sleep 600", "exec >&- 2>&-; sleep 600", "sleep 600 & wait"] {
            let begun = Instant::now();
            let (ended, ..) = output(sh(slow), Duration::from_millis(50)).unwrap();
            assert!(ended.is_none() && begun.elapsed() < minute, "{slow}");
        }
        let (ended, out, _) = output(sh("setsid sleep 5 & echo so"), minute).unwrap();
        assert_eq!((ended.unwrap().code(), &*out), (Some(0), "so\n"));
    }

    #[test]
    fn tracking_has_a_name_and_a_reason() {
        let probe = |tracking: &str, why: &str, unfit: Option<&str>| {
            Some(Probe {
                tracking: tracking.into(),
                why: why.into(),
                unfit: unfit.map(str::to_owned),
                php: "8.4.28".into(),
                ini_files: Vec::new(),
                extensions: Vec::new(),
                settings: Vec::new(),
                complaints: Vec::new(),
            })
        };
        assert_eq!(parse_probe("tracking=uffd\nphp=8.4.28\n"), probe("uffd", "", None));
        assert_eq!(
            parse_probe("x\ntracking=fork\nwhy=userfaultfd is forbidden here\nunsafe=grpc\nphp=8.4.28\n"),
            probe("fork", "userfaultfd is forbidden here", Some("grpc"))
        );
        assert_eq!(parse_probe("usage"), None);
        assert_eq!(parse_probe("tracking=uffd\n"), None);
        let said = parse_probe("tracking=uffd\nphp=8.4.28\nini=/a/php.ini\nini=/a/b c.ini\nextension=Core\n")
            .unwrap();
        assert_eq!((said.ini_files.len(), &*said.ini_files[1]), (2, "/a/b c.ini"));
        assert_eq!(said.extensions, ["Core"]);
    }
}
