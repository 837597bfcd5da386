//! Is an engine there, and which version of it?

use std::path::Path;

use anyhow::Result;

use crate::{data::Engine, proc, session::Session};

/// Whether an engine can run here.
#[derive(Clone, Debug)]
pub struct Presence {
    /// What is missing, in words; empty: it is ready.
    pub missing: Vec<String>,
    /// Versions as far as they could be read, `PHP 8.2.35, nginx 1.22.1`.
    pub version: String,
}

/// Looks whether an engine can run here, and asks for its versions if so.
///
/// # Errors
/// A template of the engine is wrong.
pub fn look_for(session: &Session, engine: &Engine) -> Result<Presence> {
    let mut names = session.names();
    for (key, value) in &engine.variables {
        names.set_in("variables", key, value.0.as_str());
    }
    let place = format!("{}.toml: [detect]", engine.name);
    let mut missing = Vec::new();
    for command in &engine.detect.commands {
        let command = names.render(&place, command)?;
        if proc::find_command(&command, &session.path).is_none() {
            missing.push(format!("command {command}"));
        }
    }
    for file in &engine.detect.files {
        let file = names.render(&place, file)?;
        if !Path::new(&file).exists() {
            missing.push(format!("file {file}"));
        }
    }
    if !engine.detect.php_extensions.is_empty() {
        let list = session.output(&[format!("php{}", session.php), "-m".to_owned()]).unwrap_or_default();
        for extension in &engine.detect.php_extensions {
            if !list.lines().any(|line| line.eq_ignore_ascii_case(extension)) {
                missing.push(format!("PHP extension {extension}"));
            }
        }
    }
    for says in &engine.detect.says {
        let command = names.command(&place, &says.command)?;
        let said = session.output(&command).unwrap_or_default();
        if !said.contains(&says.text) {
            missing.push(format!("'{}' in the output of {}", says.text, command.join(" ")));
        }
    }
    let version = if missing.is_empty() { version(session, engine)? } else { String::new() };
    Ok(Presence { missing, version })
}

fn version(session: &Session, engine: &Engine) -> Result<String> {
    let names = session.names();
    let mut parts = Vec::new();
    for probe in &engine.versions {
        let command = names.command(&format!("{}.toml: [[version]]", engine.name), &probe.command)?;
        let said = session.output(&command).unwrap_or_default();
        let found = regex::Regex::new(&probe.pattern)?.captures(&said).and_then(|groups| groups.get(1));
        parts.push(match found {
            Some(version) => format!("{} {}", probe.name, version.as_str()),
            None => format!("{} (version unknown)", probe.name),
        });
    }
    Ok(parts.join(", "))
}
