//! Finds the host binary: `hayate-php8.2` beside this program, in ../lib/hayate, or in PATH.

use std::{
    collections::BTreeSet,
    env,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use hayate_pool::releases;

const PREFIX: &str = "hayate-php";

/// Where host binaries are looked for, in this order.
fn places() -> Vec<PathBuf> {
    let mut places = Vec::new();
    if let Ok(this) = env::current_exe().and_then(|path| path.canonicalize())
        && let Some(beside) = this.parent()
    {
        places.push(beside.to_owned());
        places.extend(beside.parent().map(|above| above.join("lib/hayate")));
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
                let missing = format!("there is no {name} beside hayate, in ../lib/hayate or in PATH{others}");
                if releases::branches().all(|branch| branch != version) {
                    let known: Vec<_> = releases::branches().collect();
                    return format!("{missing}; Hayate knows PHP {}", known.join(", "));
                }
                format!(
                    "{missing}; install Hayate's package hayate-php{version} (Debian 12 has PHP 8.2, Debian 13 PHP 8.4), or, where \
                     php{version}-dev and libphp{version}-embed are to be had, build it with `make -C host PHP={version}` and copy \
                     host/build/{name} there"
                )
            })
        }
        None => places()
            .into_iter()
            .find_map(|place| hosts_in(&place).into_iter().max().map(|(_, path)| path))
            .ok_or_else(|| {
                format!(
                    "there is no host ({PREFIX}8.2, {PREFIX}8.4, …) beside hayate, in ../lib/hayate or in PATH; install Hayate's package \
                     for the PHP that is here, hayate-php8.2 on Debian 12 and hayate-php8.4 on Debian 13, or build it with \
                     `make -C host` and copy what is then in host/build there"
                )
            }),
    }
}

/// What the host says of itself, such as `PHP 8.2.35, layout 1`.
pub fn version(host: &Path) -> Result<String, String> {
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
        assert!(find(Some("8.3")).unwrap_err().contains("make -C host PHP=8.3"));
        assert!(find(Some("9.9")).unwrap_err().ends_with("Hayate knows PHP 8.2, 8.3, 8.4, 8.5"));
        assert!(find(Some("nine")).unwrap_err().contains("no PHP version"));
    }
}
