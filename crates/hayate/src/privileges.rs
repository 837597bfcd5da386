//! Users: looking them up, and becoming one for good.

use std::{ffi::CString, io};

use anyhow::{Context, Result, bail};
use nix::unistd::{Gid, Group, Uid, User, geteuid, getgrouplist, setgid, setgroups, setuid};
use serde::{Deserialize, Serialize};

/// Whether this process may do everything.
pub fn is_root() -> bool {
    geteuid().is_root()
}

/// Makes this process one that others of its user can neither trace nor look into, and whose files in `/proc` (such as `oom_score_adj`)
/// they cannot write. It holds until another program is executed.
pub fn keep_to_itself() -> io::Result<()> {
    Ok(rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?)
}

/// Whether there is a user of this name.
pub fn is_user(name: &str) -> bool {
    matches!(User::from_name(name), Ok(Some(_)))
}

/// Whether the user that this process runs as has a name and a home: in a container it may be a number alone.
pub fn own_user_is_known() -> bool {
    matches!(User::from_uid(geteuid()), Ok(Some(_)))
}

/// Whether there is a group of this name.
pub fn is_group(name: &str) -> bool {
    matches!(Group::from_name(name), Ok(Some(_)))
}

/// Whom a process runs as, in numbers: whoever starts processes must not have to ask a directory of users.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The user's name.
    pub name: String,
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
}

impl Identity {
    /// Looks a user up; `group` is in place of the user's own.
    pub fn find(name: &str, group: Option<&str>) -> Result<Identity> {
        let user =
            User::from_name(name)?.with_context(|| format!("user '{name}' does not exist on this system"))?;
        let gid = match group {
            Some(group) => {
                Group::from_name(group)?
                    .with_context(|| format!("group '{group}' does not exist on this system"))?
                    .gid
            }
            None => user.gid,
        };
        let groups = getgrouplist(&CString::new(name).context("a user's name holds no NUL")?, gid)
            .context("getgrouplist")?;
        Ok(Identity {
            name: name.to_owned(),
            uid: user.uid.as_raw(),
            gid: gid.as_raw(),
            groups: groups.into_iter().map(Gid::as_raw).collect(),
        })
    }

    /// Adds the group of another, so that what it shares with its group can be read.
    pub fn join_group_of(&mut self, other: &Identity) {
        if !self.groups.contains(&other.gid) {
            self.groups.push(other.gid);
        }
    }

    /// Whether both are the same user.
    pub fn same_user(&self, other: &Identity) -> bool {
        self.uid == other.uid
    }

    /// Whether both have the same group as their own.
    pub fn same_group(&self, other: &Identity) -> bool {
        self.gid == other.gid
    }

    /// The user's number.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// The numbers of all its groups, its own first.
    pub fn groups(&self) -> Vec<u32> {
        let others = self.groups.iter().copied().filter(|group| *group != self.gid);
        std::iter::once(self.gid).chain(others).collect()
    }

    /// Whether this is root.
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// An error unless this process may become it, or is it.
    pub fn check(&self) -> Result<()> {
        if !is_root() && self.uid != geteuid().as_raw() {
            let name = &self.name;
            bail!("only root can change to user '{name}'; start hayate as root or leave `user` out");
        }
        Ok(())
    }

    /// A function that becomes it for good if this process is root (otherwise it is it already), fit to be called between fork and
    /// exec: it allocates nothing.
    pub fn assumer(&self) -> impl FnMut() -> io::Result<()> + Send + Sync + 'static {
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        let groups: Vec<Gid> = self.groups.iter().copied().map(Gid::from_raw).collect();
        let root = is_root();
        move || {
            if root {
                setgroups(&groups)?;
                setgid(gid)?;
                setuid(uid)?;
            }
            Ok(())
        }
    }
}

/// Changes to `identity` when running as root; otherwise only checks that there is nothing to change.
pub fn drop_to(identity: Option<&Identity>) -> Result<()> {
    match identity {
        Some(identity) => {
            identity.check()?;
            identity.assumer()().with_context(|| format!("cannot become user '{}'", identity.name))
        }
        None => Ok(()),
    }
}
