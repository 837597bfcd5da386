//! What the users of a plan can reach: whether the front may write the access log, and PHP enter its application's directory and write where
//! its framework does.
//!
//! It is looked at as that user, by a thread which becomes it: the kernel says what holds, access control lists included. Where only root
//! could do that nothing is said. Nothing is made or opened. It is for `hayate check`: when a server starts, the front and PHP say it
//! themselves.

use std::{
    io,
    os::unix::{ffi::OsStrExt, fs::FileTypeExt},
    path::{Path, PathBuf},
    thread,
};

use hayate_front::ListenAddr;
use hayate_pool::Mode;
use rustix::{
    fs::{Access, access},
    io::Errno,
    process::{Gid, Uid, geteuid},
    thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid},
};

use crate::{
    args::ServeArgs,
    config::{AccessLogTo, Source, Step},
    plan::{App, Plan},
    privileges::{self, Identity},
    terminal,
};

/// What stands in the way.
#[derive(Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// `hayate serve` would not start.
    Fatal(String),
    /// It would, and requests would fail.
    Warning(String),
}

/// What stands in the way of a plan, and where in the configuration that is.
pub fn obstacles(plan: &Plan, args: &ServeArgs) -> Vec<Obstacle> {
    // It was read a moment ago; without it there is no line to name.
    let source = args.config.as_deref().and_then(|path| Source::read(path).ok()).map(|(source, _)| source);
    let source = source.unwrap_or_default();
    let mut found = Vec::new();
    let mut fatal = |steps: &[Step<'_>], by_flag: Option<&str>, why: String| {
        found.push(Obstacle::Fatal(match (by_flag, steps) {
            (Some(flag), _) => format!("{flag}: {why}"),
            (None, [.., Step::Key(key)]) => source.error(steps, format!("{key}: {why}")).to_string(),
            (None, _) => source.error(steps, why).to_string(),
        }));
    };
    for (to, app) in plan.access_logs() {
        if let AccessLogTo::File(path) = to
            && let Some(why) = as_user(plan.front.as_ref(), || cannot_append(path)).flatten()
        {
            let flag = (app.is_none() && args.access_log.is_some()).then_some("--access-log");
            let user = who(plan.front.as_ref());
            let steps = app.map(|i| [Step::Key("app"), Step::At(i), Step::Key("access_log")]);
            let steps = steps.as_ref().map_or(&[Step::Key("access_log")][..], |steps| steps);
            fatal(steps, flag, format!("the front, which runs as {user}, {why}"));
        }
    }
    // What lies in /run is made by systemd when the unit starts, and may not be there yet.
    if let Some(path) =
        plan.pid_file.as_ref().filter(|path| !path.starts_with("/run") && !path.starts_with("/var/run"))
        && let Some(why) = cannot_append(path)
    {
        let flag = args.pid_file.is_some().then_some("--pid-file");
        fatal(&[Step::Key("pid_file")], flag, format!("{} {why}", who(None)));
    }
    if let Some(path) =
        plan.control.as_ref().filter(|path| !path.starts_with("/run") && !path.starts_with("/var/run"))
        && let Some(why) = cannot_listen(path)
    {
        let flag = args.control.is_some().then_some("--control");
        fatal(&[Step::Key("control")], flag, format!("{} {why}", who(None)));
    }
    for (i, app) in plan.configured().enumerate() {
        if app.runs_php()
            && let Some(Some((key, why))) = as_user(app.identity.as_ref(), || cannot_start(app))
        {
            let steps = [Step::Key("app"), Step::At(i), Step::Key(key)];
            let flag = match key {
                "worker" => args.worker.as_ref().map(|_| "--worker"),
                _ => args.root.as_ref().map(|_| "ROOT"),
            };
            fatal(
                &steps,
                flag,
                format!("PHP of '{}', which runs as {}, {why}", app.spec.name, who(app.identity.as_ref())),
            );
        }
    }
    for addr in &plan.listen {
        if let ListenAddr::Unix(path) = addr
            && !path.starts_with("/run")
            && !path.starts_with("/var/run")
            && !path.exists()
            && let Some(why) = cannot_append(path)
        {
            let unless =
                "the server starts only if a service manager hands the socket in, or makes that directory";
            found.push(Obstacle::Warning(format!("listen: {} {why}; {unless}", who(None))));
        }
    }
    for to in plan.access_logs().map(|(to, _)| to) {
        let AccessLogTo::File(path) = to else { continue };
        let Some(what) = is_no_file(path) else { continue };
        found.push(match what {
            "it is a pipe" => Obstacle::Warning(format!(
                "access_log: {} is a pipe: the server starts only while somebody reads it",
                path.display()
            )),
            what => {
                Obstacle::Fatal(format!("access_log: cannot write {}: {what}; name a file", path.display()))
            }
        });
    }
    let storage = plan.tls.as_ref().and_then(|tls| tls.storage_fault(plan.front.as_ref().map(Identity::uid)));
    found.extend(storage.map(Obstacle::Fatal));
    if let Some(path) = &plan.pid_file
        && let Some(what) = is_no_file(path)
    {
        found
            .push(Obstacle::Fatal(format!("pid_file: cannot write {}: {what}; name a file", path.display())));
    }
    if let Some(metrics) = plan.metrics.as_ref().filter(|metrics| plan.listen.contains(metrics)) {
        found.push(Obstacle::Fatal(format!(
            "metrics: {metrics} is an address of listen as well; name another port"
        )));
    }
    for app in plan.configured() {
        for (key, list) in [("ini", &app.spec.ini), ("env", &app.spec.env)] {
            let has_nul = |(name, value): &&(String, String)| name.contains('\0') || value.contains('\0');
            if let Some((name, _)) = list.iter().find(has_nul) {
                found.push(Obstacle::Fatal(format!(
                    "{key} of '{}': {name:?} has a NUL in it, which PHP cannot be given; leave it out",
                    app.spec.name
                )));
            }
        }
    }
    for app in plan.configured() {
        let identity = plan.front.as_ref();
        if let Some(why) = as_user(identity, || cannot_look_into(&app.spec.document_root)).flatten() {
            found.push(Obstacle::Warning(format!(
                "requests to '{}' would get 404 or 403: the front, which runs as {}, {why}",
                app.spec.name,
                who(identity)
            )));
        }
        let enters = || cannot_look_into(&app.spec.document_root);
        if app.has_scripts()
            && let Some(why) = as_user(app.identity.as_ref(), enters).flatten()
        {
            found.push(Obstacle::Warning(format!(
                "requests to '{}' would get 403: PHP, which runs as {}, {why}",
                app.spec.name,
                who(app.identity.as_ref())
            )));
        }
        let scripts = || {
            let served = app.index.iter().map(String::as_str).chain(app.front_controller.script.as_deref());
            let mut files =
                served.filter(|name| name.ends_with(".php")).map(|name| app.spec.document_root.join(name));
            files.find_map(|file| (file.exists() && access(&file, Access::READ_OK).is_err()).then_some(file))
        };
        if app.has_scripts()
            && let Some(file) = as_user(app.identity.as_ref(), scripts).flatten()
        {
            found.push(Obstacle::Warning(format!(
                "requests to '{}' would get 403: PHP, which runs as {}, may not read {}: give that user the right",
                app.spec.name,
                who(app.identity.as_ref()),
                file.display()
            )));
        }
        let closed = || closed_to_writers(&app.spec.cwd);
        if app.has_scripts()
            && let Some(places) = as_user(app.identity.as_ref(), closed).filter(|places| !places.is_empty())
        {
            let user = who(app.identity.as_ref());
            found.push(Obstacle::Warning(format!(
                "PHP of '{}', which runs as {user}, may not write to {}, as the framework of this project needs: give that user these directories \
                 (chown -R), or the right",
                app.spec.name,
                places.iter().map(|place| terminal::path(place)).collect::<Vec<_>>().join(" and ")
            )));
        }
    }
    found
}

/// Directories of a project that its framework writes to, and this process may not.
fn closed_to_writers(project: &Path) -> Vec<PathBuf> {
    let is_there = |below: &str| project.join(below).exists();
    let written: &[&str] = if is_there("artisan") && is_there("bootstrap/app.php") {
        &[
            "storage",
            "storage/framework/sessions",
            "storage/framework/views",
            "storage/logs",
            "bootstrap/cache",
        ]
    } else if is_there("bin/console") && is_there("src/Kernel.php") && !is_there("var/cache/prod") {
        // What is warmed up before, as in an image that is read-only, needs nothing.
        &["var", "var/cache"]
    } else {
        &[]
    };
    let places = written.iter().map(|below| project.join(below)).filter(|place| place.is_dir());
    // A disk that is read-only is for [`crate::read_only`].
    let is_closed = |place: &PathBuf| access(place, Access::WRITE_OK | Access::EXEC_OK) == Err(Errno::ACCESS);
    places.filter(is_closed).collect()
}

/// For people.
fn who(identity: Option<&Identity>) -> String {
    match identity {
        Some(identity) => format!("{} (uid {})", identity.name, identity.uid()),
        None => format!("uid {} (who started this)", geteuid().as_raw()),
    }
}

/// Looks as a user; `None`: only root could.
fn as_user<T: Send>(identity: Option<&Identity>, look: impl FnOnce() -> T + Send) -> Option<T> {
    let Some(identity) = identity.filter(|identity| identity.uid() != geteuid().as_raw()) else {
        return Some(look());
    };
    if !privileges::is_root() {
        return None;
    }
    let become_it = || -> io::Result<()> {
        let groups: Vec<Gid> = identity.groups().into_iter().map(Gid::from_raw).collect();
        let (uid, gid) =
            (Uid::from_raw(identity.uid()), groups.first().copied().ok_or(io::ErrorKind::NotFound)?);
        // Of this thread alone: the C library would have all threads follow.
        set_thread_groups(&groups)?;
        set_thread_res_gid(gid, gid, gid)?;
        Ok(set_thread_res_uid(uid, uid, uid)?)
    };
    thread::scope(|scope| scope.spawn(|| become_it().ok().map(|()| look())).join().ok().flatten())
}

/// Why a file could not be appended to, and what to do; `None`: it could.
fn cannot_listen(path: &Path) -> Option<String> {
    if let Ok(file) = path.symlink_metadata() {
        let why = "there is something that is no socket; move it away, or name another place";
        return (!file.file_type().is_socket()).then(|| format!("cannot make {}: {why}", path.display()));
    }
    // The last directory is made.
    let missing = path.parent().filter(|place| !place.as_os_str().is_empty() && !place.exists());
    cannot_append(missing.unwrap_or(path))
}

fn cannot_append(path: &Path) -> Option<String> {
    // What these are depends on the process that opens them.
    if path.starts_with("/dev") || path.starts_with("/proc") {
        return None;
    }
    let shown = path.display();
    if path.as_os_str().as_bytes().contains(&0) {
        return Some(format!("cannot write {shown:?}: no name of a file has a NUL; leave it out"));
    }
    if path.as_os_str().as_bytes().ends_with(b"/") && !path.is_dir() {
        return Some(format!(
            "cannot write {shown}: it ends in a slash, as only a directory's name does; leave it out"
        ));
    }
    // Where a link leads a file is made.
    let real = end_of_links(path);
    let path = real.as_path();
    if path.is_dir() {
        return Some(format!("cannot write {shown}: it is a directory; name a file in it"));
    }
    let missing = path.symlink_metadata().is_err();
    let (place, rights) = match path.parent() {
        Some(parent) if missing && parent.as_os_str().is_empty() => {
            (Path::new("."), Access::WRITE_OK | Access::EXEC_OK)
        }
        Some(parent) if missing => (parent, Access::WRITE_OK | Access::EXEC_OK),
        _ => (path, Access::WRITE_OK),
    };
    let error = io::Error::from(access(place, rights).err()?);
    let place = place.display();
    Some(match (missing, error.kind()) {
        (true, io::ErrorKind::NotFound) => {
            format!("cannot write {shown}: there is no directory {place}; make it, and give it to that user")
        }
        (true, _) => {
            format!("cannot make {shown}: {place}: {error}; let that user write there, or name another place")
        }
        (false, _) => {
            format!("cannot write {shown}: {error}; let that user write there, or name another file")
        }
    })
}

/// Where a name leads to, also where nothing is there.
fn end_of_links(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..40 {
        let Ok(target) = path.read_link() else { break };
        path = path.parent().unwrap_or(Path::new("/")).join(target);
    }
    path
}

/// What a log that is no file would do; `None`: nothing.
fn is_no_file(path: &Path) -> Option<&'static str> {
    let kind = path.metadata().ok()?.file_type();
    match kind {
        _ if kind.is_fifo() => Some("it is a pipe"),
        _ if kind.is_socket() => Some("it is a socket"),
        _ => None,
    }
}

/// Why PHP would not start there: which key names it, and what to do.
fn cannot_start(app: &App) -> Option<(&'static str, String)> {
    if let Some(why) = cannot_look_into(&app.spec.cwd) {
        return Some(("root", why));
    }
    let Mode::Worker { script } = &app.spec.mode else { return None };
    let error = io::Error::from(access(script, Access::READ_OK).err()?);
    Some(("worker", format!("cannot read {}: {error}; give that user the right", script.display())))
}

/// Why a directory cannot be entered: the first on the way to it that is closed.
fn cannot_look_into(directory: &Path) -> Option<String> {
    let error = io::Error::from(access(directory, Access::EXEC_OK).err()?);
    let mut ways: Vec<PathBuf> = directory.ancestors().map(Path::to_owned).collect();
    ways.reverse();
    let closed = ways.into_iter().find(|way| access(way, Access::EXEC_OK).is_err()).unwrap_or_default();
    let (shown, closed) = (directory.display(), closed.display());
    Some(format!(
        "cannot enter {shown}: {closed}: {error}; let that user enter {closed} (chmod o+x, or by its group)"
    ))
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt, symlink},
    };

    use super::*;

    #[test]
    fn what_cannot_be_appended_to() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("there"), "").unwrap();
        for fine in ["there", "new"] {
            assert_eq!(cannot_append(&at(fine)), None, "{fine}");
        }
        assert!(!at("new").exists(), "nothing is made");
        assert_eq!(cannot_append(Path::new("/dev/stdout")), None);
        let said = cannot_append(&at("missing/log")).unwrap();
        assert!(said.ends_with("missing; make it, and give it to that user"), "{said}");
        assert!(cannot_append(dir.path()).unwrap().contains("is a directory"));
        assert!(cannot_append(&at("there/log")).is_some());
        assert!(cannot_append(&at("new/")).unwrap().contains("ends in a slash"));
        assert!(cannot_append(&at("a\0b")).unwrap().contains("NUL"));
        for (name, target) in [("dangling", "made.log"), ("second", "dangling"), ("vain", "nowhere/x")] {
            symlink(target, at(name)).unwrap();
        }
        assert_eq!((cannot_append(&at("dangling")), cannot_append(&at("second"))), (None, None));
        assert!(cannot_append(&at("vain")).unwrap().contains("there is no directory"));
        let Ok(nobody) = Identity::find("nobody", None) else { return };
        if !privileges::is_root() {
            assert_eq!(as_user(Some(&nobody), || 1), None, "only root could tell");
            return;
        }
        let as_nobody = |name: &str| as_user(Some(&nobody), || cannot_append(&at(name))).unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        assert!(as_nobody("new").unwrap().contains("Permission denied"));
        assert!(as_nobody("there").unwrap().contains("cannot write"));
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(as_nobody("new"), None);
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        assert!(as_user(Some(&nobody), || cannot_look_into(dir.path())).unwrap().is_some());
        assert!(privileges::is_root(), "only that thread has become another user");
    }
}
