//! Applications that lie where this server may not write, though their own user owns what is there: systemd's `ProtectHome=` and
//! `ProtectSystem=` do that to whole trees, and the application then fails with "Read-only file system" without a hint at the unit.
//!
//! It looks at the directory and what is directly in it, and nothing else: it blocks as the disk does.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use rustix::fs::{StatVfsMountFlags, statvfs};

use crate::terminal;

/// Entries of a directory that are looked at.
const MOST: usize = 1000;

/// What to do about it. `None`: the file system is writable, or this user owns nothing there, as in an image that is read-only on purpose.
pub fn warning(root: &Path, user: u32) -> Option<String> {
    statvfs(root).ok().filter(|mount| mount.f_flag.contains(StatVfsMountFlags::RDONLY))?;
    let is_own = |path: &Path| fs::symlink_metadata(path).is_ok_and(|meta| meta.uid() == user);
    let below = || fs::read_dir(root).into_iter().flatten().flatten().take(MOST);
    let shown = terminal::path(root);
    // Blanks part what is in a unit.
    let named = if shown.contains(' ') { format!("\"{shown}\"") } else { shown.clone() };
    (is_own(root) || below().any(|entry| is_own(&entry.path()))).then(|| {
        format!(
            "{shown} is read-only for this server, and its user owns files there: uploads, caches and updates there fail. Below systemd it is \
             ProtectHome= or ProtectSystem= of the unit: `systemctl edit hayate`, with ReadWritePaths={named} below [Service]"
        )
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use rustix::process::geteuid;

    use super::*;

    #[test]
    fn what_may_be_written_to_is_no_matter() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(warning(dir.path(), geteuid().as_raw()), None);
        assert_eq!(warning(Path::new("/nowhere"), geteuid().as_raw()), None);
    }

    /// In a mount namespace of its own, if this user may make one.
    #[test]
    fn what_is_mounted_read_only_and_owned_is_told() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("own"), "").unwrap();
        if std::env::var_os("HAYATE_READ_ONLY").is_none() {
            let script = "mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\" && exec \"$1\" --exact read_only::tests::what_is_mounted_read_only_and_owned_is_told";
            let done = Command::new("unshare")
                .args(["--mount", "--map-root-user", "sh", "-c", script])
                .args([dir.path(), &std::env::current_exe().unwrap()])
                .env("HAYATE_READ_ONLY", dir.path())
                .output();
            let Ok(done) = done else { return eprintln!("left out: there is no unshare") };
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            if said.contains("unshare: ") || said.contains("mount: ") {
                return eprintln!("left out: {said}");
            }
            return assert!(done.status.success(), "{said}");
        }
        let mounted = std::env::var("HAYATE_READ_ONLY").unwrap();
        let said = warning(Path::new(&mounted), geteuid().as_raw()).unwrap();
        assert!(said.contains(&format!("ReadWritePaths={mounted} ")), "{said}");
        assert_eq!(warning(Path::new(&mounted), 12345), None);
    }
}
