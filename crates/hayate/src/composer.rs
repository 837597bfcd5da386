//! What Composer has written down of a project: its composer.json and its composer.lock.
//!
//! One that is not there says that there is none. One that is there and cannot be read says nothing at all, which is never taken for the
//! first: who reads them says which file it was and why.

use std::{io::ErrorKind, path::Path};

use serde_json::{Value, json};

use crate::{of_application, terminal};

/// Bytes of a composer.lock that are looked at; one with a thousand packages has 3 MB.
const LARGEST: u64 = 8 << 20;

/// One of the two in a project's directory, an object. `None`: there is none. `Err`: file, place and reason.
pub fn read(root: &Path, name: &str) -> Result<Option<Value>, String> {
    let file = root.join(name);
    let bytes = match of_application::read(&file, LARGEST) {
        Ok(bytes) => bytes,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(format!("{} cannot be read: {error}", file.display())),
    };
    match serde_json::from_slice::<Value>(&bytes) {
        // PHP writes a list where there is nothing.
        Ok(value) if value.get("require").is_some_and(|all| !all.is_object() && *all != json!([])) => {
            Err(format!("{}: its \"require\" is no object, {{ … }}", file.display()))
        }
        Ok(value) if value.is_object() => Ok(Some(value)),
        Ok(_) => Err(format!("{} holds no JSON object, {{ … }}", file.display())),
        Err(error) => Err(format!("{} is no JSON: {error}", file.display())),
    }
}

/// Whether a project requires a package, by its composer.json.
pub fn requires(composer: &Value, package: &str) -> bool {
    composer.get("require").and_then(|all| all.get(package)).is_some()
}

/// A project whose packages nobody has installed: where they should be, and the remedy. `None`: they are there, it requires none, or its
/// composer.json says nothing.
pub fn not_installed(root: &Path) -> Option<String> {
    let composer = read(root, "composer.json").ok().flatten()?;
    // PHP itself and extensions have no vendor.
    composer.get("require")?.as_object()?.keys().find(|package| package.contains('/'))?;
    let directory = composer.pointer("/config/vendor-dir").and_then(Value::as_str).unwrap_or("vendor");
    let autoload = root.join(directory).join("autoload.php");
    (!autoload.exists()).then(|| {
        format!(
            "composer.json requires packages, and there is no {}: composer install",
            terminal::word(&autoload.to_string_lossy())
        )
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn packages_that_nobody_has_installed_are_missed() {
        let dir = tempfile::tempdir().unwrap();
        let missed = |composer: &str| {
            fs::write(dir.path().join("composer.json"), composer).unwrap();
            not_installed(dir.path())
        };
        assert_eq!(not_installed(dir.path()), None);
        for none in [
            "{}",
            "[]",
            "{\"require\": {\"php\": \">=8\", \"ext-intl\": \"*\"}}",
            "{\"require-dev\": {\"a/b\": \"*\"}}",
        ] {
            assert_eq!(missed(none), None, "{none}");
        }
        let (some, elsewhere) = (
            "{\"require\": {\"a/b\": \"1\"}}",
            "{\"require\": {\"a/b\": \"1\"}, \"config\": {\"vendor-dir\": \"lib\"}}",
        );
        let said = missed(some).unwrap();
        assert!(said.ends_with("/vendor/autoload.php: composer install"), "{said}");
        fs::create_dir(dir.path().join("vendor")).unwrap();
        fs::write(dir.path().join("vendor/autoload.php"), "").unwrap();
        assert_eq!(missed(some), None);
        assert!(missed(elsewhere).unwrap().contains("/lib/autoload.php"));
    }

    #[test]
    fn what_is_not_there_is_not_what_cannot_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("composer.json");
        assert_eq!(read(dir.path(), "composer.json"), Ok(None));
        assert_eq!(read(&dir.path().join("nowhere"), "composer.json"), Ok(None));
        fs::write(&file, "{\"require\": {\"a/b\": \"*\"}}").unwrap();
        let composer = read(dir.path(), "composer.json").unwrap().unwrap();
        assert!(requires(&composer, "a/b") && !requires(&composer, "c/d"));
        assert_eq!(read(&file, "composer.json"), Ok(None), "a file is no directory");
        fs::write(&file, "{\"require\": []}").unwrap();
        assert!(read(dir.path(), "composer.json").unwrap().is_some());
        for (text, says) in [
            (
                "{\n  \"require\": {\n    \"a/b\": \"*\",\n  }\n}",
                "is no JSON: trailing comma at line 4 column 3",
            ),
            ("", "is no JSON: EOF"),
            ("[]", "holds no JSON object"),
            ("{\"require\": [\"a/b\"]}", "its \"require\" is no object"),
            ("<<<<<<< HEAD", "is no JSON: expected value at line 1"),
        ] {
            fs::write(&file, text).unwrap();
            let why = read(dir.path(), "composer.json").unwrap_err();
            assert!(why.starts_with(&*file.to_string_lossy()) && why.contains(says), "{why}");
        }
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        assert!(
            read(dir.path(), "composer.json").unwrap_err().contains("cannot be read: it is no regular file")
        );
    }
}
