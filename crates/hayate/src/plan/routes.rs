//! Which application answers to what: no two to the same.

use std::collections::HashMap;

use super::App;
use crate::config::{ConfigError, Source, Step};

/// Two applications must not be called the same, or answer to the same host and path.
pub(super) fn check(source: &Source, apps: &[App]) -> Result<(), ConfigError> {
    let mut names = HashMap::new();
    let mut routes = HashMap::new();
    for (i, app) in apps.iter().enumerate() {
        if names.insert(&app.spec.name, i).is_some() {
            let why =
                format!("a second application is called '{}'; give each [[app]] its own name", app.spec.name);
            return Err(source.error(&[Step::Key("app"), Step::At(i), Step::Key("name")], why));
        }
        let any = [String::new()];
        let hosts = if app.hosts.is_empty() { &any[..] } else { &app.hosts[..] };
        for host in hosts {
            if let Some(other) = routes.insert((host.to_ascii_lowercase(), &app.path), &app.spec.name) {
                let host = if host.is_empty() { "any host" } else { host };
                let why = format!(
                    "application '{}' answers to {host} and path {} like application '{other}'; give one of them other hosts or another path",
                    app.spec.name, app.path
                );
                let key = if app.hosts.is_empty() { "path" } else { "hosts" };
                return Err(source.error(&[Step::Key("app"), Step::At(i), Step::Key(key)], why));
            }
        }
    }
    Ok(())
}
