//! `hayate check`: what would run, or what is wrong.

use std::{path::Path, process::ExitCode, time::SystemTime};

use hayate_pool::{Mode, Rewind, releases};
use hayate_ring::layout::HY_LAYOUT_VERSION;

use crate::{
    args::CheckArgs,
    complain, composer,
    config::{nearest, place_of},
    extensions, machine,
    php_probe::{Hosts, Probe},
    php_required,
    plan::{App, Described, PHP_AS_ROOT, Plan},
    reach::{self, Obstacle},
    secrets, terminal, upload_sizes,
};

/// Of lists, in characters.
const WIDTH: usize = 100;

/// Prints the plan; exit status 2 when it cannot be served.
pub fn run(args: &CheckArgs) -> ExitCode {
    let (args, strict) = (&args.serve, args.strict);
    let plan = match Plan::load(args) {
        Ok(plan) => plan,
        Err(error) => {
            complain(format_args!("{error}"));
            return ExitCode::from(2);
        }
    };
    crate::end_with_the_reader();
    let mut warnings = Warnings::default();
    say!("listen        {}", plan.listen_words().join(" "));
    for described in plan.tls.iter().flat_map(|tls| tls.describe(&plan.apps)) {
        match described {
            Described::Line(line) => say!("{line}"),
            Described::Warning(warning) => warnings.tell("", warning),
        }
    }
    plan.doubts_about_orders().into_iter().for_each(|doubt| warnings.tell("", doubt));
    if let Some(metrics) = &plan.metrics {
        say!("metrics       {metrics}");
    }
    let memory = machine::memory_limit().map(|bytes| format!(", {} MB of memory (cgroup)", bytes >> 20));
    let processors = machine::processors();
    let many = if processors == 1 { "" } else { "s" };
    let processes = machine::process_limit().map(|limit| format!(", {limit} processes and threads (cgroup)"));
    say!(
        "may use       {processors} processor{many}{}{}",
        memory.unwrap_or_default(),
        processes.unwrap_or_default()
    );
    if let Some(front) = &plan.front {
        say!("front's user  {}", front.name);
    }
    if plan.runs_php_as_root() {
        warnings.tell("", PHP_AS_ROOT);
    }
    // It may be another user who serves it.
    if let Some(why) = plan.serves_others_as_root() {
        warnings.tell("", format!("{why}; as root it is refused"));
    }
    for vain in plan.vain_addresses() {
        warnings.tell("", vain);
    }
    for exposed in &plan.exposed {
        warnings.tell("", exposed);
    }
    let mut php = Hosts::default();
    let mut unstarted = Vec::new();
    for app in plan.configured() {
        let spec = &app.spec;
        let (min, max) = spec.workers.clone().into_inner();
        say!("\napplication   {}", spec.name);
        let hosts = if app.hosts.is_empty() { "any host".into() } else { app.hosts.join(" ") };
        say!("  answers to  {hosts}, path {}", app.path);
        say!("  serves      {}", terminal::path(&spec.document_root));
        for vain in plan.vain_keys(app) {
            warnings.tell("  ", vain);
        }
        if let Some(identity) = &app.identity {
            let shared = plan.sharing_the_fronts_user().contains(&&*spec.name);
            say!(
                "  user        {}{}",
                identity.name,
                if shared { ", the front's: scripts reach its files" } else { "" }
            );
        }
        if app.is_static {
            say!("  mode        static files: no PHP is started");
            describe_files(app, &mut warnings);
            continue;
        }
        if let Some(pool) = &app.pool {
            say!("  mode        classic, in the workers of '{pool}' (pool)");
            describe_files(app, &mut warnings);
            let of_pool = plan.with_php().find(|other| other.spec.name == *pool);
            if let Some(Ok(probe)) = of_pool.map(|of_pool| php.probe(of_pool)) {
                // What the pool's own settings load is said where it stands.
                for warning in unmet(&spec.cwd, &[], Some(pool), &probe) {
                    warnings.tell("  ", warning);
                }
            }
            continue;
        }
        match (&spec.mode, &app.recognised) {
            (Mode::Classic, _) => say!("  mode        classic"),
            (Mode::Worker { script }, None) => say!("  mode        worker: {}", terminal::path(script)),
            (Mode::Worker { script }, Some(found)) => {
                say!("  mode        worker, recognised {}: {}", found.name(), found.evidence);
                say!("              by {}", terminal::path(script));
                say!("              mode = \"classic\" (--mode classic) serves it as php-fpm would");
            }
        }
        if let Some(remark) = &app.remark {
            say!("              {remark}");
        }
        if let Some(warning) = &app.warning {
            warnings.tell("  ", warning);
        }
        describe_scripts(app, &mut warnings);
        let probe = php.probe(app);
        if matches!(spec.mode, Mode::Worker { .. }) {
            describe_rewind(app, probe.as_ref().ok());
        }
        describe_files(app, &mut warnings);
        match min == max {
            true => say!("  workers     {max}"),
            false => say!("  workers     {min}-{max}"),
        }
        let version = match php.version(&spec.host) {
            Ok(version) => version,
            Err(why) => {
                complain(format_args!("{why}"));
                return ExitCode::from(2);
            }
        };
        if !version.starts_with("PHP ") {
            complain(format_args!(
                "php: {} is no host of Hayate, for --version it says {version:?}; write a version such as 8.2",
                spec.host.display()
            ));
            return ExitCode::from(2);
        }
        // The rest of it is between hayate and its host.
        let layout = version.rsplit_once(", layout ").map_or("", |(_, layout)| layout);
        if layout != HY_LAYOUT_VERSION.to_string() {
            complain(format_args!(
                "php: {} is of another version of Hayate (expected layout {HY_LAYOUT_VERSION} of the shared memory, found {layout:?}): install \
                 both anew",
                spec.host.display()
            ));
            return ExitCode::from(2);
        }
        let built = version.split(", ").next().unwrap_or(&version);
        say!("  php         {built}, {}", terminal::path(&spec.host));
        match &probe {
            Ok(probe) if !is_of_its_branch(built, &probe.php) => {
                let why = format!(
                    "{} was made for {built}, and is run by the library of PHP {}: install Hayate's package for that PHP, or build the host anew",
                    spec.host.display(),
                    probe.php
                );
                unstarted.push((&*spec.name, why));
            }
            Ok(probe) => {
                describe_php(&version, app, probe, &mut warnings);
                let most = greatest_body(plan.limits.body_size, app);
                for warning in upload_sizes::warnings(&probe.ini_files, &spec.ini, most) {
                    warnings.tell("  ", warning);
                }
            }
            Err(why) => unstarted.push((&*spec.name, why.clone())),
        }
    }
    say!("");
    if let Some(why) = machine::too_many_processes(&plan.apps, plan.front_threads) {
        warnings.tell("", why);
    }
    let mut fatal = false;
    for (name, why) in unstarted {
        complain(format_args!("{name}: PHP does not start: {why}"));
        fatal = true;
    }
    for obstacle in reach::obstacles(&plan, args) {
        match obstacle {
            Obstacle::Warning(why) => warnings.tell("", why),
            Obstacle::Fatal(why) => {
                complain(format_args!("{why}"));
                fatal = true;
            }
        }
    }
    if fatal {
        return ExitCode::from(2);
    }
    say!("This can be served.");
    match warnings.0 {
        several @ 1.. if strict => {
            complain(format_args!("warnings above: {several}; --strict takes none"));
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

/// How many there were.
#[derive(Default)]
struct Warnings(usize);

impl Warnings {
    /// Whatever is in it, it is one of ours, and no other line looks like one.
    fn tell(&mut self, indent: &str, warning: impl AsRef<str>) {
        self.0 = self.0.saturating_add(1);
        let title = format!("{indent}warning");
        say!("{title:<13} {}", terminal::within_line(warning.as_ref()));
    }
}

/// What does not go to the application that was recognised.
fn describe_scripts(app: &App, warnings: &mut Warnings) {
    if let Some(scripts) = app.scripts.as_ref().filter(|scripts| !scripts.paths.is_empty()) {
        let words: Vec<String> = scripts.named().split(' ').map(str::to_owned).collect();
        titled("scripts", &wrapped(&words, WIDTH));
        say!("              run in classic mode, each request from the start, by workers of their own");
        say!("              (1-{}); one that is put there later runs after a reload", app.spec.workers.end());
    }
    if let Some(warning) = app.unseen_scripts() {
        warnings.tell("  ", warning);
    }
}

/// What answers where there is no file, and which files should not be there.
fn describe_files(app: &App, warnings: &mut Warnings) {
    say!("  otherwise   {}", app.front_controller.script.as_deref().unwrap_or("404"));
    say!("              {}", app.front_controller.why);
    if let Some(closed) = closed_front_controller(app) {
        warnings.tell("  ", closed);
    }
    if let Some(missing) = composer::not_installed(&app.spec.cwd) {
        warnings.tell("  ", missing);
    }
    for warning in secrets::warnings_of(app)() {
        warnings.tell("  ", warning);
    }
}

/// What is no file is 404 as well where `deny` is for the script that answers it.
fn closed_front_controller(app: &App) -> Option<String> {
    let script = Path::new("/").join(app.front_controller.script.as_deref()?);
    let path = app.deny.iter().find(|path| script.starts_with(path))?;
    Some(format!(
        "deny: \"{path}\" closes the front controller, so all that is no file is 404. To close only what visitors ask for by that name, write a \
         rule with redirect or rewrite; to have none, front_controller = \"\""
    ))
}

/// Whether the PHP that answered is of the branch, such as 8.2, of the one that the host was built for, such as `PHP 8.2.36`.
fn is_of_its_branch(built: &str, php: &str) -> bool {
    let branch = |release: &str| release.rsplit_once('.').map(|(branch, _)| branch.to_owned());
    built.strip_prefix("PHP ").is_some_and(|built| branch(built) == branch(php))
}

/// What the application's PHP is made of. `built` is what its host was built for.
fn describe_php(built: &str, app: &App, probe: &Probe, warnings: &mut Warnings) {
    let php = &*probe.php;
    if !built.starts_with(&format!("PHP {php},")) {
        say!("              PHP {php} is what is installed, and what runs");
    }
    let unknown = unknown_settings(&app.spec.ini, &probe.settings);
    let complaints = probe.complaints.iter().cloned();
    let released = releases::warnings(php, SystemTime::now()).into_iter();
    let unmet = unmet(&app.spec.cwd, &app.spec.ini, None, probe).into_iter();
    for warning in released.chain(complaints).chain(unmet).chain(unknown) {
        warnings.tell("  ", warning);
    }
    let mut lines = by_directory(&probe.ini_files);
    if lines.is_empty() {
        lines.push("none".into());
    }
    titled("ini files", &lines);
    titled("extensions", &wrapped(&probe.extensions, WIDTH));
}

/// What the project in a directory asks for and its PHP is not: by its own files, and by `ini`. `pool`: whose PHP that is.
fn unmet(project: &Path, ini: &[(String, String)], pool: Option<&str>, probe: &Probe) -> Vec<String> {
    let missing = extensions::missing(project, ini, &probe.extensions, &probe.complaints, &probe.php);
    php_required::unmet(project, pool, &probe.php).into_iter().chain(missing).collect()
}

/// Bytes of a request's body that reach an application by some path; 0: any.
fn greatest_body(of_all: u64, app: &App) -> u64 {
    let by_rules = app.rules.iter().filter_map(|rule| rule.max_body);
    // 0 is above all others, and so it stays.
    by_rules.fold(of_all, |most, of_rule| if most == 0 || of_rule == 0 { 0 } else { most.max(of_rule) })
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
        let remedy = match (place_of(name), &near[..]) {
            (Some(place), _) => format!("it is a key of Hayate's: write it {place}, and above [app.ini]"),
            (None, []) => "it is in vain unless the application asks get_cfg_var() for it".to_owned(),
            (None, _) => format!("did you mean {}?", near.join(" or ")),
        };
        format!("ini: neither PHP nor an extension that is loaded knows '{name}'; {remedy}")
    });
    said.collect()
}

fn titled(title: &str, lines: &[String]) {
    for (i, line) in lines.iter().enumerate() {
        say!("  {:<11} {line}", if i == 0 { title } else { "" });
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
    say!("  rewind      {}", spec.rewind.name());
    if spec.rewind == Rewind::Off {
        return;
    }
    let warmup = if app.warmup.is_empty() { "none".into() } else { app.warmup.join(" ") };
    say!("  warm-up     {warmup}");
    if app.hosts.is_empty() && !app.warmup.is_empty() {
        say!(
            "              as localhost: what the application caches of these requests, addresses with the host"
        );
        say!("              perhaps, visitors get; name the site's own in `hosts`");
    }
    let Some(probe) = probe.filter(|_| spec.rewind == Rewind::On) else { return };
    match &*probe.tracking {
        _ if probe.unfit.is_some() => {
            say!("  tracking    none: each request runs in a fork, which is slower")
        }
        "fork" => say!("  tracking    none, so each request runs in a fork, which is slower"),
        name if probe.why.is_empty() => say!("  tracking    {name}, the fastest there is"),
        name => say!("  tracking    {name}, which is slower than uffd"),
    }
    match &probe.unfit {
        Some(unfit) => say!("              {unfit}"),
        None if !probe.why.is_empty() => say!("              {}", probe.why),
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
        let said = unknown_settings(&ini("workers"), &known);
        assert!(
            said[0].ends_with("it is a key of Hayate's: write it below [[app]], and above [app.ini]"),
            "{said:?}"
        );
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
