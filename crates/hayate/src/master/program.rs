//! A program that takes a process over, by execve(2) itself: what is no program is an error. The standard library's way hands such a file to a shell.

use std::{
    ffi::{CString, OsStr, OsString, c_char},
    io,
    os::unix::ffi::OsStrExt,
    path::Path,
    ptr,
};

/// All that execve(2) wants, made beforehand: after a fork no memory is to be asked for.
pub struct Program {
    path: CString,
    arguments: List,
    environment: List,
}

/// Texts, and where they are, with a null at the end.
struct List {
    /// What the pointers lead to.
    _texts: Vec<CString>,
    pointers: Vec<*const c_char>,
}

// SAFETY: the pointers lead to the list's own texts, which nobody changes.
unsafe impl Send for List {}
// SAFETY: as above.
unsafe impl Sync for List {}

impl List {
    fn of<T: AsRef<OsStr>>(texts: impl IntoIterator<Item = T>) -> io::Result<List> {
        let texts = texts.into_iter().map(text).collect::<io::Result<Vec<_>>>()?;
        let pointers = texts.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect();
        Ok(List { _texts: texts, pointers })
    }
}

fn text(text: impl AsRef<OsStr>) -> io::Result<CString> {
    Ok(CString::new(text.as_ref().as_bytes())?)
}

impl Program {
    /// A program that is called with `arguments`, its name first, in this process' environment without `without` and with `with`.
    pub fn new(
        path: &Path,
        arguments: &[&OsStr],
        without: &[&str],
        with: &[(&str, OsString)],
    ) -> io::Result<Program> {
        let is_kept = |(name, _): &(OsString, OsString)| {
            !without.iter().any(|other| name == *other) && !with.iter().any(|(other, _)| name == *other)
        };
        let with = with.iter().map(|(name, value)| (OsString::from(name), value.clone()));
        let environment = std::env::vars_os().filter(is_kept).chain(with).map(|(mut variable, value)| {
            variable.push("=");
            variable.push(value);
            variable
        });
        Ok(Program {
            path: text(path)?,
            arguments: List::of(arguments)?,
            environment: List::of(environment)?,
        })
    }

    /// Becomes it, with a system call and no more. Returns only when that is not possible.
    pub fn execute(&self) -> io::Error {
        // SAFETY: texts that end with a NUL, lists that end with a null, and all of them live as long as this.
        unsafe {
            libc::execve(
                self.path.as_ptr(),
                self.arguments.pointers.as_ptr(),
                self.environment.pointers.as_ptr(),
            )
        };
        io::Error::last_os_error()
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn what_is_no_program_is_not_given_to_a_shell() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cut short");
        fs::write(&path, b"\x7fELF and no more\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let error = Program::new(&path, &["x".as_ref()], &[], &[]).unwrap().execute();
        assert_eq!(error.raw_os_error(), Some(libc::ENOEXEC));
    }
}
