//! `hayate check`: what would run, or what is wrong.

use std::process::ExitCode;

use hayate_pool::Mode;

use crate::{args::ServeArgs, php, plan::Plan};

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
    if let Some(user) = &plan.user {
        println!("user          {user}");
    }
    for app in &plan.apps {
        let spec = &app.spec;
        let (min, max) = spec.workers.clone().into_inner();
        println!("\napplication   {}", spec.name);
        let hosts = if app.hosts.is_empty() { "any host".into() } else { app.hosts.join(" ") };
        println!("  answers to  {hosts}, path {}", app.path);
        println!("  serves      {}", spec.document_root.display());
        match &spec.mode {
            Mode::Classic => println!("  mode        classic"),
            Mode::Worker { script } => println!("  mode        worker: {}", script.display()),
        }
        println!("  otherwise   {}", app.front_controller.as_deref().unwrap_or("404 (no front controller)"));
        println!("  workers     {min}-{max}");
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
