//! What is never published: directories of the system, homes, and Hayate's own configuration.
//!
//! A document root is open to everybody. One that is wrong is found out here, before it is served, whatever names it.

use std::{
    fs,
    path::{Component, Path, PathBuf},
};

/// Directories with secrets of the machine: neither they nor what holds them is published.
const SECRET: [&str; 16] = [
    "/etc",
    "/root",
    "/home",
    "/boot",
    "/proc",
    "/sys",
    "/dev",
    "/run",
    "/bin",
    "/sbin",
    "/usr/bin",
    "/usr/lib",
    "/var/lib",
    "/var/log",
    "/var/cache",
    "/tmp",
];
/// Nor is anything inside of these.
const SECRET_WITHIN: [&str; 3] = ["/etc", "/proc", "/sys"];

/// Why a directory may not be published, and what to do. `directory` is absolute, without symbolic links; `ours` are files that hold
/// passwords and belong to Hayate.
pub(super) fn refusal<'a>(directory: &Path, mut ours: impl Iterator<Item = &'a PathBuf>) -> Option<String> {
    let shown = directory.display();
    let remedy = "name the directory that is meant for visitors (document_root, or ROOT on the command line)";
    if let Some(file) = ours.find(|file| file.starts_with(directory)) {
        return Some(format!(
            "{shown} holds {}, and all that it holds is for everybody; move that file elsewhere, such as /etc/hayate, or {remedy}",
            file.display()
        ));
    }
    if let Some(secret) = SECRET.iter().find(|secret| Path::new(secret).starts_with(directory)) {
        let what = match Path::new(secret) == directory {
            true => "is a directory of the system".to_owned(),
            false => format!("holds {secret}"),
        };
        return Some(format!("{shown} {what}, and all that it holds would be for everybody; {remedy}"));
    }
    if let Some(secret) = SECRET_WITHIN.iter().find(|secret| directory.starts_with(secret)) {
        return Some(format!("{shown} lies in {secret}, which is not for visitors; {remedy}"));
    }
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let user = home_of(directory, &passwd)?;
    Some(format!(
        "{shown} is the home directory of {user}, and all that it holds would be for everybody; {remedy}"
    ))
}

/// Why a directory may not be published that has to do with `storage`, where keys of certificates are kept; both are absolute, without symbolic
/// links.
pub(super) fn refusal_by_storage(directory: &Path, storage: &Path) -> Option<String> {
    let (shown, stored) = (directory.display(), storage.display());
    let how = match (storage.starts_with(directory), directory.starts_with(storage)) {
        (true, _) => "holds",
        (false, true) => "lies in",
        (false, false) => return None,
    };
    Some(format!(
        "{shown} {how} {stored}, where keys of certificates are kept (acme_storage in [tls]), and all that it holds is for everybody; name another \
         directory for them, such as acme_storage = \"/var/lib/hayate/acme\""
    ))
}

/// Where a path leads of which the last directories may be missing, without symbolic links.
pub(super) fn real(path: &Path) -> PathBuf {
    let found = path.ancestors().find_map(|there| Some((there, there.canonicalize().ok()?)));
    let Some((there, mut real)) = found else { return path.to_owned() };
    for part in path.strip_prefix(there).unwrap_or(Path::new("")).components() {
        match part {
            Component::ParentDir => {
                real.pop();
            }
            part => real.push(part),
        }
    }
    real
}

/// The person whose home a directory is. Accounts of services have the directories that they serve, such as www-data's /var/www.
fn home_of<'a>(directory: &Path, passwd: &'a str) -> Option<&'a str> {
    passwd.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, id, _, _, home, ..] = fields[..] else { return None };
        let person = matches!(id.parse::<u32>().ok()?, 0 | 1000..=59_999);
        let home = Path::new(home).canonicalize().unwrap_or_else(|_| home.into());
        (person && home == directory && home != Path::new("/")).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_the_system_are_refused_and_those_of_applications_are_not() {
        for path in
            ["/", "/etc", "/etc/hayate", "/home", "/root", "/var", "/usr", "/proc/1", "/var/log", "/tmp"]
        {
            let said = refusal(Path::new(path), [].iter()).unwrap_or_else(|| panic!("{path}"));
            assert!(said.starts_with(&format!("{path} ")) && said.contains("document_root"), "{said}");
        }
        for path in [
            "/srv",
            "/var/www",
            "/var/www/html",
            "/usr/share/wordpress",
            "/opt/app",
            "/tmp/x",
            "/var/lib/x/public",
        ] {
            assert_eq!(refusal(Path::new(path), [].iter()), None, "{path}");
        }
    }

    #[test]
    fn a_directory_with_a_configuration_of_ours_is_refused() {
        let ours = [PathBuf::from("/srv/app/hayate.toml")];
        let said = refusal(Path::new("/srv/app"), ours.iter()).unwrap();
        assert!(
            said.starts_with("/srv/app holds /srv/app/hayate.toml") && said.contains("move that file"),
            "{said}"
        );
        assert!(refusal(Path::new("/srv"), ours.iter()).is_some());
        assert_eq!(refusal(Path::new("/srv/app/public"), ours.iter()), None);
        assert_eq!(refusal(Path::new("/srv/ap"), ours.iter()), None);
    }

    #[test]
    fn keys_of_certificates_are_not_published() {
        for (directory, storage) in
            [("/srv/app", "/srv/app/acme"), ("/srv/app", "/srv/app"), ("/srv/app/public", "/srv/app")]
        {
            let said = refusal_by_storage(Path::new(directory), Path::new(storage)).unwrap();
            assert!(said.starts_with(directory) && said.contains("acme_storage = "), "{said}");
        }
        assert_eq!(refusal_by_storage(Path::new("/srv/app/public"), Path::new("/srv/app/acme")), None);
        let dir = tempfile::tempdir().unwrap();
        let there = dir.path().canonicalize().unwrap();
        std::os::unix::fs::symlink(&there, there.join("link")).unwrap();
        assert_eq!(real(&there.join("link/none/acme")), there.join("none/acme"));
        assert_eq!(real(&there.join("none/../acme")), there.join("acme"));
    }

    #[test]
    fn homes_are_those_of_people() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nwww-data:x:33:33::/srv/www:/usr/sbin/nologin\nann:x:1000:1000::/srv/ann:/bin/sh\n\
                      nobody:x:65534:65534::/srv/nobody:/bin/sh\nodd:x:1001\nslash:x:1002:1::/:/bin/sh\n";
        assert_eq!(home_of(Path::new("/srv/ann"), passwd), Some("ann"));
        for other in ["/srv/www", "/srv/nobody", "/srv/ann/site", "/srv", "/"] {
            assert_eq!(home_of(Path::new(other), passwd), None, "{other}");
        }
    }
}
