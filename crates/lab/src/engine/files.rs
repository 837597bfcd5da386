//! An engine's files: the application's copy, and whose they are.

use std::{fs, path::Path};

use anyhow::{Context, Result};

use crate::{
    data::Workload,
    session::{Session, text},
};

/// Copies a workload's application.
pub(super) fn copy_app(workload: &Workload, to: &Path) -> Result<()> {
    workload.folders.iter().try_for_each(|folder| copy(folder, to))
}

/// Copies a folder with all that is in it, links as links, over what is there.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| text(to))?;
    for entry in fs::read_dir(from).with_context(|| text(from))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            copy(&entry.path(), &target)?;
        } else if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(entry.path())?, &target)?;
        } else {
            fs::copy(entry.path(), &target).with_context(|| text(&entry.path()))?;
        }
    }
    Ok(())
}

/// Makes everything below a directory the servers' own.
pub(super) fn give_to_user(session: &Session, path: &Path) -> Result<()> {
    let Some(user) = &session.user else { return Ok(()) };
    std::os::unix::fs::lchown(path, Some(user.uid), Some(user.gid)).with_context(|| text(path))?;
    if path.symlink_metadata()?.is_dir() {
        for entry in fs::read_dir(path)? {
            give_to_user(session, &entry?.path())?;
        }
    }
    Ok(())
}
