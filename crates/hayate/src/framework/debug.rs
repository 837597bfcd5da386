//! Why an application will be in debug or development mode: then it is served in classic mode, so that changes of its code show.

use std::path::Path;

use super::{front_controllers::compact_file, source::compact};
use crate::of_application;

/// Why Mezzio and Laminas MVC will be in development mode.
pub(super) fn laminas_debug(root: &Path) -> Option<String> {
    let development = root.join("config/development.config.php").is_file();
    development.then(|| "there is a config/development.config.php".to_owned())
}

/// The last value that a .env file gives to a variable. `Err`: it depends on others.
pub(super) fn dotenv(path: &Path, key: &str) -> Result<Option<String>, ()> {
    Ok(dotenv_all(path, key)?.pop())
}

/// All values that a .env file gives to a variable, in their order. `Err`: one depends on others.
fn dotenv_all(path: &Path, key: &str) -> Result<Vec<String>, ()> {
    let text = of_application::read_text(path, of_application::MOST).unwrap_or_default();
    let mut found = Vec::new();
    for line in text.lines() {
        let line = line.trim().strip_prefix("export ").unwrap_or(line.trim());
        let Some((name, value)) = line.split_once('=') else { continue };
        if name.trim() != key {
            continue;
        }
        let value = value.trim();
        let value = match value.chars().next() {
            Some(quote @ ('"' | '\'')) => value[1..].split(quote).next().unwrap_or_default(),
            _ => value.split(" #").next().unwrap_or_default().trim(),
        };
        if value.contains('$') {
            return Err(());
        }
        found.push(value.to_owned());
    }
    Ok(found)
}

pub(super) fn is_false(value: &str) -> bool {
    matches!(value.to_ascii_lowercase().as_str(), "" | "0" | "false" | "off" | "no" | "(false)" | "null")
}

/// Why Symfony will be in debug mode. In the order of its Dotenv: environment, .env.local.php, .env and its companions.
pub(super) fn symfony_debug(root: &Path, env: &impl Fn(&str) -> Option<String>) -> Option<String> {
    let unclear = || Some("it is not clear whether it runs in debug mode, .env computes that".to_owned());
    let dumped = of_application::read_text(&root.join(".env.local.php"), of_application::MOST);
    let dumped = dumped.ok().map(|text| compact(&text));
    let Ok(dumped) = dumped.transpose() else { return unclear() };
    let read = |key: &str, files: &[String]| -> Result<Option<String>, ()> {
        if let Some(value) = env(key) {
            return Ok(Some(value));
        }
        if let Some(text) = &dumped {
            let start = format!("'{key}'=>'");
            return Ok(text
                .split_once(&start)
                .and_then(|(_, rest)| Some(rest.split_once('\'')?.0.to_owned())));
        }
        let mut found = None;
        for file in files {
            found = dotenv(&root.join(file), key)?.or(found);
        }
        Ok(found)
    };
    let Ok(name) = read("APP_ENV", &[".env".into(), ".env.local".into()]) else { return unclear() };
    let name = name.unwrap_or_else(|| "dev".into());
    let files = [".env".into(), ".env.local".into(), format!(".env.{name}"), format!(".env.{name}.local")];
    let Ok(debug) = read("APP_DEBUG", &files) else { return unclear() };
    match debug {
        Some(value) if is_false(&value) => None,
        Some(value) => Some(format!("APP_DEBUG is {value}")),
        None if name == "prod" => None,
        None => Some(format!("APP_ENV is {name}")),
    }
}

/// Why CodeIgniter will be in development mode: the environment or .env says so, whose first value wins that is not empty for PHP.
pub(super) fn codeigniter_debug(root: &Path, env: &impl Fn(&str) -> Option<String>) -> Option<String> {
    let is_empty = |value: &str| value.is_empty() || value == "0";
    let given = env("CI_ENVIRONMENT").filter(|value| !is_empty(value));
    let name = given.map_or_else(
        || {
            let all = dotenv_all(&root.join(".env"), "CI_ENVIRONMENT")?;
            Ok(all.iter().find(|value| !is_empty(value)).or(all.last()).cloned())
        },
        |value| Ok(Some(value)),
    );
    match name {
        Ok(Some(name)) if name == "development" => Some("CI_ENVIRONMENT is development".into()),
        Ok(_) => None,
        Err(()) => Some("it is not clear whether it runs in development mode, .env computes that".into()),
    }
}

/// Why CakePHP will be in debug mode: the last of its configuration files that says something, and the environment where that asks it.
pub(super) fn cakephp_debug(root: &Path, env: &impl Fn(&str) -> Option<String>) -> Option<String> {
    let unclear =
        |file: &str| Some(format!("it is not clear whether it runs in debug mode, {file} computes that"));
    let read = |file: &str| match compact_file(root, file) {
        Ok(text) => Ok(text.replace('"', "'")),
        Err(_) if !root.join(file).exists() => Ok(String::new()),
        Err(_) => Err(()),
    };
    for file in ["config/app_local.php", "config/app.php"] {
        let Ok(text) = read(file) else { return unclear(file) };
        let Some((_, value)) = text.split_once("'debug'=>") else { continue };
        let value = value.get(..80).unwrap_or(value).to_ascii_lowercase();
        let is = |is: &str| value.strip_prefix(is).is_some_and(|rest| rest.starts_with([',', ']', ')']));
        let (by_default, asks) = match () {
            () if is("false") => (false, false),
            () if is("true") => (true, false),
            () if is("filter_var(env('debug',false),filter_validate_boolean)") => (false, true),
            () if is("filter_var(env('debug',true),filter_validate_boolean)") => (true, true),
            () => return unclear(file),
        };
        let given = asks.then(|| env("DEBUG")).flatten();
        // The skeleton has the lines that read a .env, as a comment.
        let reads = || read("config/bootstrap.php").map_or(true, |text| text.contains("Dotenv"));
        let given = match given {
            None if asks && reads() => match dotenv(&root.join("config/.env"), "DEBUG") {
                Ok(value) => value,
                Err(()) => return unclear("config/.env"),
            },
            given => given,
        };
        return match given {
            Some(value) if is_false(&value) => None,
            Some(value) => Some(format!("DEBUG is {value}")),
            None => by_default.then(|| format!("{file} says so")),
        };
    }
    None
}

/// Why Yii may be in debug mode: its front controller sets it, and not to `false`.
pub(super) fn yii_debug(front_controller: &str) -> Option<String> {
    let text = front_controller.replace('"', "'").to_ascii_lowercase();
    let harmless = ["define('yii_debug',false)", "defined('yii_debug')", "const yii_debug=false;"];
    let text = harmless.iter().fold(text, |text, known| text.replace(known, ""));
    let sets = text.contains("'yii_debug'") || text.contains("const yii_debug");
    sets.then(|| "web/index.php defines YII_DEBUG".to_owned())
}

/// Why Laravel will be in debug mode: the environment or .env says so.
pub(super) fn laravel_debug(root: &Path, env: &impl Fn(&str) -> Option<String>) -> Option<String> {
    let named = env("APP_ENV").map(|name| format!(".env.{name}")).filter(|file| root.join(file).is_file());
    let file = root.join(named.unwrap_or_else(|| ".env".into()));
    let read = |key: &str| env(key).map_or_else(|| dotenv(&file, key), |value| Ok(Some(value)));
    let (Ok(debug), Ok(name)) = (read("APP_DEBUG"), read("APP_ENV")) else {
        return Some("it is not clear whether it runs in debug mode, .env computes that".into());
    };
    match debug {
        Some(value) if !is_false(&value) => Some(format!("APP_DEBUG is {value}")),
        _ if name.as_deref() == Some("local") => Some("APP_ENV is local".into()),
        _ => None,
    }
}
