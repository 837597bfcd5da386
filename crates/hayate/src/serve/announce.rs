//! What is said once everything serves.

use std::{path::Path, sync::Arc};

use hayate_pool::{Generation, Mode, Phase};

use crate::{
    config::LogFormat,
    framework::Recognised,
    logging, machine,
    plan::{App, FrontController, Plan},
    terminal,
};

/// Writes to the log what is wrong with the applications' files, or with their number of workers.
pub(super) fn warn_of_projects(plan: &Plan) {
    for app in &plan.apps {
        if let Some(warning) = &app.warning {
            tracing::warn!(app = app.spec.name, "{warning}");
        }
        if let Some(warning) = app.unseen_scripts() {
            tracing::warn!(app = app.spec.name, "{warning}");
        }
    }
    if let Some(why) = machine::too_many_processes(&plan.apps, plan.front_threads) {
        tracing::warn!("{why}");
    }
}

/// Which scripts run beside an application, if some do.
fn scripts_of(app: &App) -> Option<String> {
    let scripts = app.scripts.as_ref().filter(|scripts| !scripts.paths.is_empty())?;
    Some(format!("PHP scripts beside it, in classic mode, each from the start: {}", scripts.named()))
}

/// Says to people what runs and how to end it; a log for programs gets one record instead.
pub(super) fn announce(plan: &Plan, apps: &[Arc<Generation>], control: Option<&Path>) {
    warn_of_projects(plan);
    if plan.log_format == LogFormat::Json {
        let listen = plan.listen_words();
        tracing::info!(version = env!("CARGO_PKG_VERSION"), listen = listen.join(" "), "serving");
        for app in plan.configured() {
            let FrontController { script, why } = &app.front_controller;
            tracing::info!(
                app = app.spec.name,
                "what is no file: {} ({why})",
                script.as_deref().unwrap_or("404")
            );
            if let Some(scripts) = scripts_of(app) {
                tracing::info!(app = app.spec.name, "{scripts}");
            }
        }
        return;
    }
    let mut text = format!("\nHayate {} serves", env!("CARGO_PKG_VERSION"));
    for addr in plan.listen_words() {
        text += &format!(" {addr}");
    }
    text += "\n";
    let mut generations = apps.iter();
    for app in &plan.apps {
        let spec = &app.spec;
        if let Some(why) = &app.failed {
            text += &format!(
                "  {}: NOT SERVED, all requests get 503: {}\n",
                spec.name,
                terminal::within_line(why)
            );
            continue;
        }
        if app.is_static {
            let otherwise = app.front_controller.script.as_deref().unwrap_or("404");
            text +=
                &format!("  {}: {}, static files, no PHP\n", spec.name, terminal::path(&spec.document_root));
            text += &format!("    what is no file: {otherwise}\n");
            continue;
        }
        if let Some(pool) = &app.pool {
            let FrontController { script, why } = &app.front_controller;
            text += &format!(
                "  {}: {}, classic mode, in the workers of {pool}\n    what is no file: {} ({why})\n",
                spec.name,
                terminal::path(&spec.document_root),
                script.as_deref().unwrap_or("404")
            );
            continue;
        }
        let Some(generation) = generations.next() else { continue };
        let status = generation.status();
        let mode = match &spec.mode {
            Mode::Classic => "classic mode".to_owned(),
            Mode::Worker { script } => {
                let what = app.recognised.as_ref().map_or_else(|| terminal::path(script), Recognised::name);
                format!("worker mode, {what}, rewind {}", spec.rewind.name())
            }
        };
        let php = status.php.as_deref().unwrap_or("(not started)");
        let (min, max) = spec.workers.clone().into_inner();
        text += &format!(
            "  {}: {}, {mode}, PHP {php}, {min}-{max} workers\n",
            spec.name,
            terminal::path(&spec.document_root)
        );
        if let Some(recognised) = &app.recognised {
            let evidence = &recognised.evidence;
            text += &format!("    recognised: {evidence}; --mode classic serves it as php-fpm would\n");
        }
        if let Some(remark) = &app.remark {
            text += &format!("    {remark}\n");
        }
        if let Some(why) = status.boot_remark {
            text += &format!("    look at this: {}\n", terminal::within_line(&why));
        }
        if let Some(why) = status.cold_boot {
            text += &format!("    without warm-up requests: {}\n", terminal::within_line(&why));
        }
        let FrontController { script, why } = &app.front_controller;
        match &app.beside {
            Some(other) => text += &format!("    runs PHP scripts beside {other}\n"),
            None => {
                text += &format!("    what is no file: {} ({why})\n", script.as_deref().unwrap_or("404"));
            }
        }
        if let Some(scripts) = scripts_of(app) {
            text += &format!("    {scripts}\n");
        }
        if let Some(why) = status.unavailable {
            text += &format!("    cannot serve yet: {}\n", terminal::within_line(&why));
        } else if status.state == Phase::Booting {
            text += "    boots still; requests wait for it\n";
        }
    }
    text += "Stop with Ctrl-C";
    if let Some(path) = control {
        text += &format!(" or `hayate stop`; control socket {}", path.display());
    }
    logging::print(&terminal::plain(&format!("{text}\n\n")));
}
