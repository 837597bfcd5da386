//! Applications whose scripts run in the workers of another one, as several sites share one pool of php-fpm.
//!
//! What belongs to workers (user, settings, limits, OPcache) is that application's alone; what the front does (hosts, root, rules, files) is each
//! one's own. It never gives an application workers of another user than its keys ask for: those of it that would are refused.

use std::time::Duration;

use hayate_pool::Mode;

use super::{App, app::AppResolver};
use crate::config::{self, ConfigError, Source, Step, nearest};

impl AppResolver<'_> {
    /// What is for workers is in vain where those are another application's.
    pub(super) fn refuse_keys_of_workers(&self, app: &config::App, pool: &str) -> Result<(), ConfigError> {
        let keys = [
            ("mode", app.mode.is_some()),
            ("worker", app.worker.is_some()),
            ("rewind", app.rewind.is_some()),
            ("warmup", app.warmup.is_some()),
            ("rewind_verify", app.rewind_verify.is_some()),
            ("connections", app.connections.is_some()),
            ("connection_lifetime", app.connection_lifetime.is_some()),
            ("boot_timeout", app.boot_timeout.is_some()),
            ("user", app.user.is_some()),
            ("group", app.group.is_some()),
            ("workers", app.workers.is_some()),
            ("php", app.php.is_some()),
            ("php_ini", app.php_ini.is_some()),
            ("php_ini_scan_dir", app.php_ini_scan_dir.is_some()),
            ("max_requests", app.max_requests.is_some()),
            ("max_memory", app.max_memory.is_some()),
            ("request_timeout", app.request_timeout.is_some()),
            ("slow_request", app.slow_request.is_some()),
            ("queue_limit", app.queue_limit.is_some()),
            ("queue_timeout", app.queue_timeout.is_some()),
            ("request_buffering", app.request_buffering.is_some()),
            ("retry", app.retry.is_some()),
            ("idle_timeout", app.idle_timeout.is_some()),
            ("ini", !app.ini.is_empty()),
            ("admin_ini", !app.admin_ini.is_empty()),
            ("inherit_env", app.inherit_env.is_some()),
            ("env", !app.env.is_empty()),
        ];
        let why = format!(
            "the scripts of this application run in the workers of '{pool}' (pool), so it is written there"
        );
        self.refuse(&keys, &why)
    }
}

/// Gives those that name another application in `pool` what they have from it. Where that cannot be served, or not so, because of what lies on the
/// disk, they fail with it, and `failures` is told, if there is somebody to tell.
pub(super) fn share(
    source: &Source,
    apps: &mut [App],
    mut failures: Option<&mut Vec<ConfigError>>,
) -> Result<(), ConfigError> {
    for i in 0..apps.len() {
        let Some((app, pool)) = apps.get(i).and_then(|app| Some((app, app.pool.clone()?))) else { continue };
        let error = |why: String| {
            source.error(&[Step::Key("app"), Step::At(i), Step::Key("pool")], format!("pool: {why}"))
        };
        if app.spec.name == pool {
            return Err(error(format!("'{pool}' is this application itself; leave it out")));
        }
        let timeouts: Vec<Duration> = app.rules.iter().filter_map(|rule| rule.timeout).collect();
        let Some(other) = apps.iter_mut().find(|other| other.spec.name == pool) else {
            return Err(error(format!("no application is called '{pool}'{}", other_names(&pool, i, apps))));
        };
        let outcome = match may_run_others(other) {
            Ok(()) => {
                other.timeouts_of_others.extend(timeouts);
                Ok(())
            }
            Err(Unable { why, of_disk: true }) => Err(error(why).of_disk()),
            Err(Unable { why, of_disk: false }) => Err(error(why)),
        };
        let identity = other.identity.clone();
        let Some(app) = apps.get_mut(i) else { continue };
        // Whether or not it is served: whose files the front reads does not hang on that.
        app.identity = identity;
        match (outcome, &mut failures) {
            (Err(error), Some(failures)) if error.of_disk => {
                if app.failed.is_none() {
                    app.failed = Some(error.to_string());
                    failures.push(error);
                }
            }
            (outcome, _) => outcome?,
        }
    }
    Ok(())
}

/// Why an application's workers run no scripts but its own.
struct Unable {
    why: String,
    /// It may be otherwise when the disk is.
    of_disk: bool,
}

fn may_run_others(other: &App) -> Result<(), Unable> {
    let name = &other.spec.name;
    let unable = |why: String| Err(Unable { why, of_disk: false });
    if let Some(of) = &other.pool {
        return unable(format!(
            "the scripts of '{name}' run in the workers of '{of}' themselves; name an application that has workers of its own"
        ));
    }
    if other.is_static {
        return unable(format!("'{name}' runs no PHP; name an application that does"));
    }
    if other.failed.is_some() {
        return Err(Unable { why: format!("'{name}' is not served"), of_disk: true });
    }
    match other.spec.mode {
        Mode::Classic => Ok(()),
        Mode::Worker { .. } => Err(Unable {
            why: format!(
                "'{name}' boots once (worker mode), so its workers run its own code only; write mode = \"classic\" for '{name}', or leave pool out"
            ),
            of_disk: other.recognised.is_some(),
        }),
    }
}

/// Which name was meant, most likely.
fn other_names(pool: &str, i: usize, apps: &[App]) -> String {
    let others = apps.iter().enumerate().filter(|(j, app)| *j != i && app.pool.is_none());
    let names: Vec<&str> = others.map(|(_, app)| app.spec.name.as_str()).collect();
    match nearest(pool, names.iter().copied())[..] {
        [] if names.is_empty() => String::new(),
        [] => format!("; write the `name` of an [[app]] of this file: {}", names.join(", ")),
        ref near => format!("; did you mean {}?", near.join(" or ")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{
        Strictness,
        tests::{fixture, plan, plan_as},
    };

    fn of_two(first: &str, second: &str) -> String {
        format!(
            "[[app]]\nname = 'one'\nroot = 'site'\nhosts = 'one.test'\n{first}\n[[app]]\nname = 'two'\nroot = 'site'\nhosts = 'two.test'\n{second}\n"
        )
    }

    #[test]
    fn it_has_what_belongs_to_workers_from_there() {
        let dir = fixture();
        let rule = "pool = 'one'\n[[app.rule]]\npath = '/long'\ntimeout = '3h'\n";
        let plan = plan(dir.path(), &of_two("request_timeout = '10s'", rule), |_| {}).unwrap();
        let names = |apps: Vec<&super::App>| apps.iter().map(|app| app.spec.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(plan.with_php().collect()), ["one"]);
        assert_eq!(names(plan.with_scripts().collect()), ["one", "two"]);
        assert_eq!((plan.apps[0].pool(), plan.apps[1].pool()), ("one", "one"));
        // Its long requests run in workers of the other one.
        assert_eq!(plan.apps[0].patience().as_secs(), 3 * 3600);
    }

    #[test]
    fn what_cannot_be_is_refused_with_a_remedy() {
        let dir = fixture();
        let refused =
            |first: &str, second: &str| plan(dir.path(), &of_two(first, second), |args| args.php = None);
        let cases = [
            ("php = '/bin/true'", "pool = 'on'", "no application is called 'on'; did you mean one?"),
            (
                "",
                "pool = 'xyzzy'",
                "no application is called 'xyzzy'; write the `name` of an [[app]] of this file: one",
            ),
            ("php = '/bin/true'", "pool = 'two'", "'two' is this application itself; leave it out"),
            (
                "pool = 'two'",
                "pool = 'one'",
                "the scripts of 'two' run in the workers of 'one' themselves; name an application that",
            ),
            ("php = 'off'", "pool = 'one'", "'one' runs no PHP"),
            (
                "php = '/bin/true'\nworker = 'worker.php'",
                "pool = 'one'",
                "write mode = \"classic\" for 'one'",
            ),
            ("php = '/bin/true'", "pool = 'one'\nworkers = 3", "so it is written there"),
            ("php = '/bin/true'", "pool = 'one'\n[app.ini]\na = 'b'", "so it is written there"),
            ("php = '/bin/true'", "pool = 'one'\nphp = 'off'", "no script runs; leave one of the two out"),
        ];
        for (first, second, words) in cases {
            let first = if first.is_empty() { "php = '/bin/true'" } else { first };
            let said = refused(first, second).unwrap_err();
            assert!(said.contains(words), "{second}: {said}");
        }
    }

    #[test]
    fn it_fails_with_the_one_that_it_names() {
        let dir = fixture();
        let text = of_two("", "pool = 'one'").replacen("root = 'site'", "root = 'gone'", 1)
            + "[[app]]\nname = 'three'\nroot = 'site'\nhosts = 'three.test'\n";
        let plan = plan_as(dir.path(), &text, Strictness::EachByItself, |_| {}).unwrap();
        assert!(plan.apps[1].failed.as_deref().is_some_and(|why| why.ends_with("pool: 'one' is not served")));
        assert_eq!(plan.apps[1].identity, plan.apps[0].identity);
        assert_eq!(plan.with_php().map(|app| &*app.spec.name).collect::<Vec<_>>(), ["three"]);
    }
}
