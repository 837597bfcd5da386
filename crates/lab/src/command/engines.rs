//! `hayate-lab engines`: which are ready, and what the others need.

use std::process::ExitCode;

use anyhow::{Context, Result};
use serde::Serialize;

use super::report::print;
use crate::{
    data::{Change, Engine, Lab},
    engine::{Instance, Purpose, Services, look_for},
    output::{status, table::Table},
    session::{Session, SessionArgs},
};

/// Which engines, and how much is to be found out.
#[derive(Debug, clap::Args)]
pub struct EnginesArgs {
    /// Engines [default: all]
    pub names: Vec<String>,
    /// Start each that is ready on its workloads, check the answers, and stop it
    #[arg(long = "try")]
    pub try_them: bool,
    /// With --try: only these workloads
    #[arg(long, short, value_delimiter = ',', requires = "try_them")]
    pub workload: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    session: SessionArgs,
}

#[derive(Serialize)]
struct Row {
    name: String,
    title: String,
    about: String,
    ready: bool,
    version: String,
    missing: Vec<String>,
    install: String,
    untested: Option<String>,
    workloads: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tried: Vec<Tried>,
}

#[derive(Serialize)]
struct Tried {
    workload: String,
    ok: bool,
    message: String,
}

/// Prints the list. Exit status 1: an engine that was tried did not do what it should.
///
/// # Errors
/// A file of the lab is wrong, or a name unknown.
pub fn run(lab: Lab, args: &EnginesArgs) -> Result<ExitCode> {
    // Everything is read, so that a mistake in any file is found here.
    for name in lab.ladder_names()? {
        lab.ladder(&name)?;
    }
    for name in lab.preset_names()? {
        lab.preset(&name)?;
    }
    let mut workloads = Vec::new();
    for name in lab.workload_names()? {
        let workload = lab.workload(&name)?;
        for service in &workload.services {
            lab.service(service).with_context(|| format!("workload '{name}'"))?;
        }
        workloads.push(workload);
    }
    for name in &args.workload {
        lab.workload(name)?;
    }
    let session = Session::new(lab, &args.session)?;
    let names = if args.names.is_empty() { session.lab.engine_names()? } else { args.names.clone() };
    let mut rows = Vec::new();
    let mut engines = Vec::new();
    for name in &names {
        let engine = session.lab.engine(name)?;
        let presence = look_for(&session, &engine)?;
        rows.push(Row {
            name: name.clone(),
            title: engine.title.clone(),
            about: engine.about.clone(),
            ready: presence.missing.is_empty(),
            version: presence.version,
            missing: presence.missing,
            install: engine.install.clone(),
            untested: engine.untested.clone(),
            workloads: workloads
                .iter()
                .filter(|workload| workload.entries.contains_key(&engine.entry))
                .map(|workload| workload.name.clone())
                .collect(),
            tried: Vec::new(),
        });
        engines.push(engine);
    }
    if args.try_them {
        session.pin()?;
        for workload in &workloads {
            let wanted = args.workload.is_empty() || args.workload.contains(&workload.name);
            let subjects: Vec<usize> = (0..rows.len())
                .filter(|i| rows[*i].ready && rows[*i].workloads.contains(&workload.name))
                .collect();
            if !wanted || subjects.is_empty() || session.interrupted() {
                continue;
            }
            let services = Services::start(&session, workload);
            for subject in subjects {
                if session.interrupted() {
                    break;
                }
                let outcome = match &services {
                    Err(error) => Err(format!("{error:#}")),
                    Ok(services) => try_one(&session, &engines[subject], workload, services),
                };
                let (ok, message) = match outcome {
                    Ok(message) => (true, message),
                    Err(message) => (false, message),
                };
                let mark = if ok { "ok" } else { "FAILED" };
                status::say(&format!("{:24} {:12} {mark:6} {message}", rows[subject].name, workload.name));
                rows[subject].tried.push(Tried { workload: workload.name.clone(), ok, message });
            }
            if let Ok(services) = services {
                for warning in services.stop() {
                    status::say(&warning);
                }
            }
        }
    }
    let failed = rows.iter().flat_map(|row| &row.tried).any(|tried| !tried.ok);
    if args.json {
        print(&format!("{}\n", serde_json::to_string_pretty(&rows)?))?;
    } else {
        print(&listed(&rows))?;
    }
    Ok(if session.interrupted() {
        ExitCode::from(130)
    } else if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn try_one(
    session: &Session,
    engine: &Engine,
    workload: &crate::data::Workload,
    services: &Services,
) -> Result<String, String> {
    let change = Change::default();
    let purpose = Purpose {
        workload: Some(workload),
        change: &change,
        services: Some(services),
        cpus: &session.cores.server,
    };
    let describe = |failure: crate::engine::Failure| {
        format!("{}: {}\n{}", failure.stage.verb(), failure.message, failure.log)
    };
    let mut instance = Instance::start(session, engine, &purpose).map_err(describe)?;
    instance.check(workload, None).map_err(describe)?;
    let start_up = instance.start_up;
    let warnings = instance.stop();
    if warnings.is_empty() {
        Ok(format!("ready after {:.0} ms", start_up * 1000.0))
    } else {
        Err(warnings.join("\n"))
    }
}

fn listed(rows: &[Row]) -> String {
    let mut table = Table::new(&["engine", "", "version", "workloads"]);
    for row in rows {
        let state = if row.ready { "ready" } else { "missing" };
        let version = if row.ready { row.version.clone() } else { row.missing.join(", ") };
        table.row([row.name.clone(), state.to_owned(), version, row.workloads.join(" ")]);
    }
    let mut out = format!("{table}\n");
    let missing: Vec<&Row> = rows.iter().filter(|row| !row.ready).collect();
    if !missing.is_empty() {
        out += "\n";
        for row in missing {
            out += &format!("{}: {}\n", row.name, row.install);
        }
    }
    for row in rows {
        if let Some(why) = &row.untested {
            out += &format!("{} is untested: {why}\n", row.name);
        }
    }
    out
}
