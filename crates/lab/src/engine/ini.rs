//! PHP settings of a run: a directory of ini files that every SAPI reads, since PHP_INI_SCAN_DIR names it.

use std::{fs, os::unix::fs::symlink, path::Path};

use anyhow::{Context, Result, bail};

use crate::{
    data::{Extensions, Settings},
    session::Session,
};

/// Extensions of Debian's that are left out: they slow everything down, and no production server has them.
const LEFT_OUT: [&str; 2] = ["xdebug", "pcov"];

/// Makes `dir` with Debian's list of extensions, `more` extensions, and the settings, later ones winning.
///
/// # Errors
/// An extension is not there, or a file cannot be written.
pub fn write(
    session: &Session,
    dir: &Path,
    whose: Extensions,
    more: &[String],
    settings: &[&Settings],
) -> Result<String> {
    fs::create_dir(dir).with_context(|| dir.display().to_string())?;
    let debian = Path::new("/etc/php").join(&session.php);
    if whose == Extensions::Debian {
        let conf = debian.join("cli/conf.d");
        for entry in fs::read_dir(&conf).with_context(|| conf.display().to_string())?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let extension =
                name.split_once('-').map_or(name.as_str(), |(_, rest)| rest).trim_end_matches(".ini");
            if !LEFT_OUT.contains(&extension) {
                symlink(entry.path(), dir.join(&name))?;
            }
        }
        for extension in more {
            let file = debian.join(format!("mods-available/{extension}.ini"));
            if !file.exists() {
                bail!("PHP extension {extension} is not there: install php{}-{extension}", session.php);
            }
            let link = dir.join(format!("30-{extension}.ini"));
            if !link.exists() {
                symlink(&file, link)?;
            }
        }
    } else if !more.is_empty() {
        bail!("this engine brings its own PHP, to which the extension {} cannot be added", more.join(", "));
    }
    let file = session.lab.root.join("php.ini");
    let mut text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    for settings in settings {
        for (key, value) in *settings {
            text.push_str(&format!("{key} = {}\n", quoted(&value.0)));
        }
    }
    fs::write(dir.join("90-lab.ini"), &text).with_context(|| dir.display().to_string())?;
    Ok(text)
}

/// A value as an ini file has it: quoted unless it is a plain word or number, which may be a constant such as E_ALL.
fn quoted(value: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_./:-".contains(c);
    if !value.is_empty() && value.chars().all(plain) {
        value.to_owned()
    } else {
        format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_quoted_when_they_must_be() {
        assert_eq!(quoted("128M"), "128M");
        assert_eq!(quoted("/srv/preload.php"), "/srv/preload.php");
        assert_eq!(quoted(""), "\"\"");
        assert_eq!(quoted("a;b\"c"), "\"a;b\\\"c\"");
    }
}
