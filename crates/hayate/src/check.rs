//! `hayate check`: what would run, or what is wrong.

use std::{process::ExitCode, time::SystemTime};

use hayate_pool::{Mode, Rewind, releases};

use crate::{
    args::ServeArgs,
    composer,
    config::nearest,
    extensions, machine,
    php::{Hosts, Probe},
    plan::{App, PHP_AS_ROOT, Plan},
    reach::{self, Obstacle},
    secrets,
};

/// Of lists, in characters.
const WIDTH: usize = 100;

/// Prints the plan; exit status 2 when it cannot be served.
pub fn run(args: &ServeArgs) -> ExitCode {
    let plan = match Plan::load(args) {
        Ok(plan) => plan,
        Err(error) => {
            eprintln!("hayate: {error}");
            return ExitCode::from(2);
        }
    };
    crate::end_with_the_reader();
    println!("listen        {}", plan.listen_words().join(" "));
    for line in plan.tls.iter().flat_map(|tls| tls.describe(&plan.apps)) {
        println!("{line}");
    }
    if let Some(metrics) = &plan.metrics {
        println!("metrics       {metrics}");
    }
    let memory = machine::memory_limit().map(|bytes| format!(", {} MB of memory (cgroup)", bytes >> 20));
    let processors = machine::processors();
    let many = if processors == 1 { "" } else { "s" };
    println!("may use       {processors} processor{many}{}", memory.unwrap_or_default());
    if let Some(front) = &plan.front {
        println!("front's user  {}", front.name);
    }
    if plan.runs_php_as_root() {
        println!("warning       {PHP_AS_ROOT}");
    }
    let mut php = Hosts::default();
    for app in &plan.apps {
        let spec = &app.spec;
        let (min, max) = spec.workers.clone().into_inner();
        println!("\napplication   {}", spec.name);
        let hosts = if app.hosts.is_empty() { "any host".into() } else { app.hosts.join(" ") };
        println!("  answers to  {hosts}, path {}", app.path);
        println!("  serves      {}", spec.document_root.display());
        for vain in plan.vain_keys(app) {
            println!("  warning     {vain}");
        }
        if let Some(identity) = &app.identity {
            let shared = plan.sharing_the_fronts_user().contains(&&*spec.name);
            println!(
                "  user        {}{}",
                identity.name,
                if shared { ", the front's: scripts reach its files" } else { "" }
            );
        }
        if app.is_static {
            println!("  mode        static files: no PHP is started");
            describe_files(app);
            continue;
        }
        match (&spec.mode, &app.recognised) {
            (Mode::Classic, _) => println!("  mode        classic"),
            (Mode::Worker { script }, None) => println!("  mode        worker: {}", script.display()),
            (Mode::Worker { script }, Some(found)) => {
                println!("  mode        worker, recognised {}: {}", found.name(), found.evidence);
                println!("              by {}", script.display());
                println!("              mode = \"classic\" (--mode classic) serves it as php-fpm would");
            }
        }
        if let Some(remark) = &app.remark {
            println!("              {remark}");
        }
        if let Some(warning) = &app.warning {
            println!("  warning     {warning}");
        }
        let probe = php.probe(spec);
        if matches!(spec.mode, Mode::Worker { .. }) {
            describe_rewind(app, probe.as_ref());
        }
        describe_files(app);
        match min == max {
            true => println!("  workers     {max}"),
            false => println!("  workers     {min}-{max}"),
        }
        let version = match php.version(&spec.host) {
            Ok(version) => version,
            Err(why) => {
                eprintln!("hayate: {why}");
                return ExitCode::from(2);
            }
        };
        println!("  php         {version}, {}", spec.host.display());
        if let Some(probe) = &probe {
            describe_php(&version, app, probe);
        }
    }
    println!();
    let mut fatal = false;
    for obstacle in reach::obstacles(&plan, args) {
        match obstacle {
            Obstacle::Warning(why) => println!("warning       {why}"),
            Obstacle::Fatal(why) => {
                eprintln!("hayate: {why}");
                fatal = true;
            }
        }
    }
    if fatal {
        return ExitCode::from(2);
    }
    println!("This can be served.");
    ExitCode::SUCCESS
}

/// What answers where there is no file, and which files should not be there.
fn describe_files(app: &App) {
    println!("  otherwise   {}", app.front_controller.script.as_deref().unwrap_or("404"));
    println!("              {}", app.front_controller.why);
    if let Some(missing) = composer::not_installed(&app.spec.cwd) {
        println!("  warning     {missing}");
    }
    for warning in secrets::look(&app.spec.document_root, &app.closed(), &app.hidden()).warnings() {
        println!("  warning     {warning}");
    }
}

/// What the application's PHP is made of. `built` is what its host was built for.
fn describe_php(built: &str, app: &App, probe: &Probe) {
    let Some(php) = &probe.php else {
        println!("  warning     PHP does not start; hayate serve says why");
        return;
    };
    if !built.starts_with(&format!("PHP {php},")) {
        println!("              PHP {php} is what is installed, and what runs");
    }
    let missing = extensions::missing(&app.spec.cwd, &app.spec.ini, &probe.extensions, php);
    let unknown = unknown_settings(&app.spec.ini, &probe.settings);
    for warning in releases::warnings(php, SystemTime::now()).into_iter().chain(missing).chain(unknown) {
        println!("  warning     {warning}");
    }
    let mut lines = by_directory(&probe.ini_files);
    if lines.is_empty() {
        lines.push("none".into());
    }
    titled("ini files", &lines);
    titled("extensions", &wrapped(&probe.extensions, WIDTH));
}

/// Settings of `[app.ini]` that nobody knows: PHP keeps them for `get_cfg_var()`, and says nothing.
fn unknown_settings(ini: &[(String, String)], known: &[String]) -> Vec<String> {
    let is_unknown = |name: &&str| {
        !known.is_empty()
            && !known.iter().any(|known| known == name)
            && !matches!(*name, "extension" | "zend_extension")
    };
    let unknown = ini.iter().map(|(name, _)| name.as_str()).filter(is_unknown);
    let said = unknown.map(|name| {
        let near = nearest(name, known.iter().map(String::as_str));
        let remedy = match near[..] {
            [] => "it is in vain unless the application asks get_cfg_var() for it".to_owned(),
            _ => format!("did you mean {}?", near.join(" or ")),
        };
        format!("ini: neither PHP nor an extension that is loaded knows '{name}'; {remedy}")
    });
    said.collect()
}

fn titled(title: &str, lines: &[String]) {
    for (i, line) in lines.iter().enumerate() {
        println!("  {:<11} {line}", if i == 0 { title } else { "" });
    }
}

/// Files that follow each other in one directory are named below it, in lines.
fn by_directory(files: &[String]) -> Vec<String> {
    let mut lines = Vec::new();
    let split = |file: &String| -> (String, String) {
        let (directory, name) = file.rsplit_once('/').unwrap_or((".", file));
        (directory.to_owned(), name.to_owned())
    };
    let parts: Vec<_> = files.iter().map(split).collect();
    for group in parts.chunk_by(|a, b| a.0 == b.0) {
        match group {
            [(directory, name)] => lines.push(format!("{directory}/{name}")),
            [(directory, _), ..] => {
                lines.push(format!("{directory}/"));
                let names: Vec<String> = group.iter().map(|(_, name)| name.clone()).collect();
                lines.extend(wrapped(&names, WIDTH - 2).into_iter().map(|line| format!("  {line}")));
            }
            [] => {}
        }
    }
    lines
}

/// Words in lines of at most `width` characters, but for a word that is longer.
fn wrapped(words: &[String], width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        match lines.last_mut().filter(|line| line.chars().count() + 1 + word.chars().count() <= width) {
            Some(line) => *line = format!("{line} {word}"),
            None => lines.push(word.clone()),
        }
    }
    lines
}

fn describe_rewind(app: &App, probe: Option<&Probe>) {
    let spec = &app.spec;
    println!("  rewind      {}", spec.rewind.name());
    if spec.rewind == Rewind::Off {
        return;
    }
    let warmup = if app.warmup.is_empty() { "none".into() } else { app.warmup.join(" ") };
    println!("  warm-up     {warmup}");
    let Some(probe) = probe.filter(|_| spec.rewind == Rewind::On) else { return };
    match &*probe.tracking {
        _ if probe.unfit.is_some() => {
            println!("  tracking    none: each request runs in a fork, which is slower")
        }
        "fork" => println!("  tracking    none, so each request runs in a fork, which is slower"),
        name if probe.why.is_empty() => println!("  tracking    {name}, the fastest there is"),
        name => println!("  tracking    {name}, which is slower than uffd"),
    }
    match &probe.unfit {
        Some(unfit) => println!("              {unfit}"),
        None if !probe.why.is_empty() => println!("              {}", probe.why),
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_nobody_knows_are_named() {
        let known = ["memory_limit", "session.save_path"].map(String::from);
        let ini = |name: &str| vec![(name.to_owned(), "1".to_owned())];
        assert!(unknown_settings(&ini("memory_limit"), &known).is_empty());
        assert!(unknown_settings(&ini("extension"), &known).is_empty());
        assert!(unknown_settings(&ini("memory_limt"), &[]).is_empty(), "a host that does not say");
        let said = unknown_settings(&ini("memory_limt"), &known);
        assert!(said[0].ends_with("knows 'memory_limt'; did you mean memory_limit?"), "{said:?}");
        let said = unknown_settings(&ini("my.own"), &known);
        assert!(said[0].ends_with("get_cfg_var() for it"), "{said:?}");
    }

    #[test]
    fn lists_are_readable() {
        let files =
            ["/etc/php.ini", "/etc/conf.d/a.ini", "/etc/conf.d/b.ini", "/other/c.ini"].map(String::from);
        assert_eq!(by_directory(&files), ["/etc/php.ini", "/etc/conf.d/", "  a.ini b.ini", "/other/c.ini"]);
        assert_eq!(wrapped(&["aa", "bb", "ccccccc", "d"].map(String::from), 5), ["aa bb", "ccccccc", "d"]);
        assert!(by_directory(&[]).is_empty());
    }
}
