//! From root to the configured user: after the sockets are open, before any PHP starts, for the whole process and for good.

use std::ffi::CString;

use anyhow::{Context, Result, bail};
use nix::unistd::{Group, User, geteuid, initgroups, setgid, setuid};

/// Whether this process may do everything.
pub fn is_root() -> bool {
    geteuid().is_root()
}

/// Whether there is a user of this name.
pub fn is_user(name: &str) -> bool {
    matches!(User::from_name(name), Ok(Some(_)))
}

/// Whether there is a group of this name.
pub fn is_group(name: &str) -> bool {
    matches!(Group::from_name(name), Ok(Some(_)))
}

/// Changes to `user` and `group` when running as root; otherwise only checks that there is nothing to change.
pub fn drop_to(user: Option<&str>, group: Option<&str>) -> Result<()> {
    let Some(name) = user else {
        if is_root() {
            tracing::warn!(
                "PHP runs as root; set `user` (--user www-data) unless this is a container of its own"
            );
        }
        return Ok(());
    };
    let user =
        User::from_name(name)?.with_context(|| format!("user '{name}' does not exist on this system"))?;
    if !is_root() {
        if user.uid == geteuid() {
            return Ok(());
        }
        bail!("only root can change to user '{name}'; start hayate as root or leave `user` out");
    }
    let gid = match group {
        Some(group) => {
            Group::from_name(group)?
                .with_context(|| format!("group '{group}' does not exist on this system"))?
                .gid
        }
        None => user.gid,
    };
    let name = CString::new(name).context("a user's name holds no NUL")?;
    initgroups(&name, gid).context("initgroups")?;
    setgid(gid).context("setgid")?;
    setuid(user.uid).context("setuid")?;
    Ok(())
}
