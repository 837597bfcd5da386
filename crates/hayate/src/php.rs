//! Finds the host binary: `hayate-php8.2` beside this program, in ../lib/hayate, or in PATH.

use hayate_pool::{BOOT_SCRIPT_VARIABLES, Mode, Spec};
use std::{
    collections::{BTreeSet, HashMap},
    env,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

const PREFIX: &str = "hayate-php";

/// Where host binaries are looked for, in this order.
fn places() -> Vec<PathBuf> {
    let mut places = Vec::new();
    if let Ok(this) = env::current_exe().and_then(|path| path.canonicalize())
        && let Some(beside) = this.parent()
    {
        places.push(beside.to_owned());
        places.push(beside.join("../lib/hayate"));
    }
    places.extend(env::var_os("PATH").iter().flat_map(env::split_paths).filter(|place| place.is_absolute()));
    places
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

/// `(8, 2)` of `hayate-php8.2`
fn version_of(name: &str) -> Option<(u32, u32)> {
    let (major, minor) = name.strip_prefix(PREFIX)?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The hosts in a place, with their versions.
fn hosts_in(place: &Path) -> Vec<((u32, u32), PathBuf)> {
    let entries = place.read_dir().into_iter().flatten().flatten();
    entries
        .filter_map(|entry| Some((version_of(entry.file_name().to_str()?)?, entry.path())))
        .filter(|(_, path)| is_program(path))
        .collect()
}

/// The versions for which there is a host: `8.2, 8.4`.
fn installed() -> String {
    let versions: BTreeSet<_> =
        places().iter().flat_map(|place| hosts_in(place)).map(|(version, _)| version).collect();
    let names: Vec<String> = versions.iter().map(|(major, minor)| format!("{major}.{minor}")).collect();
    names.join(", ")
}

/// The host for `--php`: a version, a path, or none for the highest version there is. The error says what to do.
pub fn find(wanted: Option<&str>) -> Result<PathBuf, String> {
    match wanted {
        Some(path) if path.contains('/') => {
            let path = PathBuf::from(path);
            match is_program(&path) {
                true => Ok(path.canonicalize().unwrap_or(path)),
                false => Err(format!("{} is no program; write a version such as 8.2, or the path of a host binary", path.display())),
            }
        }
        Some(version) => {
            let name = format!("{PREFIX}{version}");
            if version_of(&name).is_none() {
                return Err(format!("'{version}' is no PHP version; write one such as 8.2, or the path of a host binary"));
            }
            places().into_iter().map(|place| place.join(&name)).find(|path| is_program(path)).ok_or_else(|| {
                let others = match installed() {
                    none if none.is_empty() => String::new(),
                    some => format!(" (of others: {some})"),
                };
                format!(
                    "there is no {name} beside hayate, in ../lib/hayate or in PATH{others}; install Hayate's package for \
                     PHP {version}, or build it with `apt-get install php{version}-dev libphp{version}-embed && make -C host \
                     PHP={version}` and copy host/build/{name} there"
                )
            })
        }
        None => places()
            .into_iter()
            .find_map(|place| hosts_in(&place).into_iter().max().map(|(_, path)| path))
            .ok_or_else(|| {
                format!(
                    "there is no host such as {PREFIX}8.4 beside hayate, in ../lib/hayate or in PATH; install Hayate's package for \
                     the PHP that is here, or build it with `make -C host` and copy host/build/{PREFIX}8.4 there"
                )
            }),
    }
}

/// What the host says of itself, such as `PHP 8.2.35, layout 1`.
fn version(host: &Path) -> Result<String, String> {
    let done = Command::new(host).arg("--version").output();
    match done {
        Ok(done) if done.status.success() => Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned()),
        Ok(done) => Err(format!(
            "{} --version ended with {}: {}",
            host.display(),
            done.status,
            String::from_utf8_lossy(&done.stderr).trim()
        )),
        Err(error) => Err(format!("cannot run {}: {error}", host.display())),
    }
}

/// Of what PHP says as it starts.
const MOST_COMPLAINTS: usize = 16;

/// How an application would be rewound, on this kernel, as this user and with its extensions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// How written pages would be found: `uffd`, the best, `soft-dirty`, or `fork` where there is no way.
    pub tracking: String,
    /// What stands in the way of a better one, and what to do about it; empty for the best.
    pub why: String,
    /// Which extension does not bear it, why, and what to do about it.
    pub unfit: Option<String>,
    /// The PHP that runs, which may be newer than the one that the host was built for.
    pub php: Option<String>,
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
    probes: Vec<(&'a Spec, Option<Probe>)>,
}

impl<'a> Hosts<'a> {
    /// As [`version`].
    pub fn version(&mut self, host: &'a Path) -> Result<String, String> {
        self.versions.entry(host).or_insert_with(|| version(host)).clone()
    }

    /// How this application would be rewound, and by what PHP; `None`: its host does not say.
    pub fn probe(&mut self, spec: &'a Spec) -> Option<Probe> {
        if let Some((_, probe)) = self.probes.iter().find(|(other, _)| start_alike(other, spec)) {
            return probe.clone();
        }
        let probe = probe(spec);
        self.probes.push((spec, probe.clone()));
        probe
    }
}

/// Whether PHP starts in the same way for both: paths mean nothing to that.
fn start_alike(one: &Spec, other: &Spec) -> bool {
    let env = |spec: &'_ Spec| -> Vec<(String, String)> {
        spec.env.iter().filter(|(name, _)| !BOOT_SCRIPT_VARIABLES.contains(&&**name)).cloned().collect()
    };
    let is_worker = |spec: &Spec| matches!(spec.mode, Mode::Worker { .. });
    one.host == other.host
        && is_worker(one) == is_worker(other)
        && one.rewind == other.rewind
        && one.ini == other.ini
        && one.php_ini == other.php_ini
        && one.ini_env == other.ini_env
        && env(one) == env(other)
}

/// Asks the host, which starts PHP for it but runs nothing. `None`: it does not say.
pub fn probe(spec: &Spec) -> Option<Probe> {
    let done = spec.probe().ok()?.output().ok().filter(|done| done.status.success())?;
    let probe = parse_probe(&String::from_utf8_lossy(&done.stdout))?;
    Some(Probe { complaints: complaints(&String::from_utf8_lossy(&done.stderr)), ..probe })
}

/// PHP's own messages of a start, such as `PHP Warning:  Module "redis" is already loaded in Unknown on line 0`: each once, the first few.
fn complaints(said: &str) -> Vec<String> {
    let mut all = Vec::new();
    for line in said.lines() {
        let Some((kind, text)) = line.strip_prefix("PHP ").and_then(|line| line.split_once(":  ")) else {
            continue;
        };
        let text = text.strip_suffix(" in Unknown on line 0").unwrap_or(text);
        let text = text.strip_prefix("PHP Startup: ").unwrap_or(text);
        let complaint = format!("PHP {kind} as it starts: {text}");
        if !all.contains(&complaint) && all.len() < MOST_COMPLAINTS {
            all.push(complaint);
        }
    }
    all
}

/// A line `tracking=NAME`, one `why=TEXT` unless it is the best, one `unsafe=TEXT` if there is such an extension, and, if PHP could
/// start, `php=VERSION` and a line for each `ini=FILE`, `extension=NAME` and `setting=NAME`.
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
        php: find("php="),
        ini_files: all("ini="),
        extensions: all("extension="),
        settings: all("setting="),
        complaints: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_numbers_not_words() {
        assert_eq!(version_of("hayate-php8.2"), Some((8, 2)));
        assert!(version_of("hayate-php8.10") > version_of("hayate-php8.9"));
        assert_eq!(version_of("hayate-php8.2.d"), None);
        assert_eq!(version_of("php8.2"), None);
    }

    #[test]
    fn what_is_missing_is_named_with_its_remedy() {
        assert!(find(Some("/nowhere/php")).unwrap_err().contains("/nowhere/php is no program"));
        assert!(find(Some("9.9")).unwrap_err().contains("make -C host PHP=9.9"));
        assert!(find(Some("nine")).unwrap_err().contains("no PHP version"));
    }

    #[test]
    fn what_php_says_as_it_starts_is_said_once() {
        let twice = "PHP Warning:  PHP Startup: Unable to load 'x' in Unknown on line 0\n";
        let said = format!(
            "{twice}{twice}some library: hello\nPHP Deprecated:  Directive 'y' is deprecated in Unknown on line 0\n"
        );
        assert_eq!(
            complaints(&said),
            [
                "PHP Warning as it starts: Unable to load 'x'",
                "PHP Deprecated as it starts: Directive 'y' is deprecated"
            ]
        );
        let many: String = (0..1000).map(|n| format!("PHP Warning:  {n}\n")).collect();
        assert_eq!(complaints(&many).len(), MOST_COMPLAINTS);
    }

    #[test]
    fn tracking_has_a_name_and_a_reason() {
        let probe = |tracking: &str, why: &str, unfit: Option<&str>| {
            Some(Probe {
                tracking: tracking.into(),
                why: why.into(),
                unfit: unfit.map(str::to_owned),
                php: None,
                ini_files: Vec::new(),
                extensions: Vec::new(),
                settings: Vec::new(),
                complaints: Vec::new(),
            })
        };
        assert_eq!(parse_probe("tracking=uffd\n"), probe("uffd", "", None));
        assert_eq!(
            parse_probe("x\ntracking=fork\nwhy=userfaultfd is forbidden here\nunsafe=grpc\n"),
            probe("fork", "userfaultfd is forbidden here", Some("grpc"))
        );
        assert_eq!(parse_probe("usage"), None);
        let said = parse_probe("tracking=uffd\nphp=8.4.28\nini=/a/php.ini\nini=/a/b c.ini\nextension=Core\n")
            .unwrap();
        assert_eq!(said.php.as_deref(), Some("8.4.28"));
        assert_eq!((said.ini_files.len(), &*said.ini_files[1]), (2, "/a/b c.ini"));
        assert_eq!(said.extensions, ["Core"]);
    }
}
