//! `hayate check`: what would run, or what is wrong.

use std::process::ExitCode;

use hayate_pool::{Mode, Rewind};

use crate::{
    args::ServeArgs,
    php,
    plan::{App, Plan},
    secrets,
};

/// Prints the plan; exit status 2 when it cannot be served.
pub fn run(args: &ServeArgs) -> ExitCode {
    let plan = match Plan::load(args) {
        Ok(plan) => plan,
        Err(error) => {
            eprintln!("hayate: {error}");
            return ExitCode::from(2);
        }
    };
    let listen: Vec<String> = plan.listen.iter().map(ToString::to_string).collect();
    println!("listen        {}", listen.join(" "));
    if let Some(metrics) = &plan.metrics {
        println!("metrics       {metrics}");
    }
    if let Some(front) = &plan.front {
        println!("front's user  {}", front.name);
    }
    for app in &plan.apps {
        let spec = &app.spec;
        let (min, max) = spec.workers.clone().into_inner();
        println!("\napplication   {}", spec.name);
        let hosts = if app.hosts.is_empty() { "any host".into() } else { app.hosts.join(" ") };
        println!("  answers to  {hosts}, path {}", app.path);
        println!("  serves      {}", spec.document_root.display());
        if let Some(identity) = &app.identity {
            let shared = plan.sharing_the_fronts_user().contains(&&*spec.name);
            println!(
                "  user        {}{}",
                identity.name,
                if shared { ", the front's: scripts reach its files" } else { "" }
            );
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
        if matches!(spec.mode, Mode::Worker { .. }) {
            describe_rewind(app);
        }
        println!("  otherwise   {}", app.front_controller.script.as_deref().unwrap_or("404"));
        println!("              {}", app.front_controller.why);
        for warning in secrets::look(&spec.document_root).warnings() {
            println!("  warning     {warning}");
        }
        match min == max {
            true => println!("  workers     {max}"),
            false => println!("  workers     {min}-{max}"),
        }
        match php::version(&spec.host) {
            Ok(version) => println!("  php         {version}, {}", spec.host.display()),
            Err(why) => {
                eprintln!("hayate: {why}");
                return ExitCode::from(2);
            }
        }
    }
    println!("\nThis can be served.");
    ExitCode::SUCCESS
}

fn describe_rewind(app: &App) {
    let spec = &app.spec;
    println!("  rewind      {}", spec.rewind.name());
    if spec.rewind == Rewind::Off {
        return;
    }
    let warmup = if app.warmup.is_empty() { "none".into() } else { app.warmup.join(" ") };
    println!("  warm-up     {warmup}");
    let Some(probe) = php::probe(spec).filter(|_| spec.rewind == Rewind::On) else { return };
    match &*probe.tracking {
        _ if probe.unfit.is_some() => {
            println!("  tracking    none: each request runs in a fork, which is slower")
        }
        "fork" => println!("  tracking    none, so each request runs in a fork, which is slower"),
        name if probe.why.is_empty() => println!("  tracking    {name}, the fastest there is"),
        name => println!("  tracking    {name}, which is slower than uffd"),
    }
    match probe.unfit {
        Some(unfit) => println!("              {unfit}"),
        None if !probe.why.is_empty() => println!("              {}", probe.why),
        None => {}
    }
}
