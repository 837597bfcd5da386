//! A workload's databases and its prepared data: started once for all engines, measured apart from them.

use std::{collections::BTreeMap, fs};

use anyhow::{Context, Result, bail};

use super::{
    detect::look_for,
    files::{copy_app, give_to_user},
    instance::{Instance, Purpose},
};
use crate::{
    data::{Change, Workload},
    session::{Session, text},
    template::Names,
};

/// The running services of a workload, and its `data` directory.
#[derive(Debug)]
pub struct Services {
    running: Vec<(String, Instance)>,
    /// Holds `data`, and a copy of the application for `prepare`. Last: it outlives the services.
    data: Instance,
    /// Versions by service.
    pub versions: BTreeMap<String, String>,
}

impl Services {
    /// Starts the services, then runs the workload's `prepare` commands.
    ///
    /// # Errors
    /// A service is missing or did not start, or a command failed; with the end of the log.
    pub fn start(session: &Session, workload: &Workload) -> Result<Self> {
        let mut services =
            Self { running: Vec::new(), data: Instance::holder(session)?, versions: BTreeMap::new() };
        fs::create_dir(services.data.guard.dir.join("data"))?;
        for name in &workload.services {
            let engine = session.lab.service(name)?;
            let presence = look_for(session, &engine)?;
            if !presence.missing.is_empty() {
                let missing = presence.missing.join(", ");
                bail!("service {name} is missing: {missing}; {}", engine.install);
            }
            let change = Change::default();
            let purpose =
                Purpose { workload: None, change: &change, services: None, cpus: &session.cores.services };
            let instance = Instance::start(session, &engine, &purpose).map_err(|failure| {
                anyhow::anyhow!(
                    "service {name} {}: {}\n{}",
                    failure.stage.verb(),
                    failure.message,
                    failure.log
                )
            })?;
            services.versions.insert(name.clone(), presence.version);
            services.running.push((name.clone(), instance));
        }
        services.prepare(session, workload)?;
        Ok(services)
    }

    fn prepare(&mut self, session: &Session, workload: &Workload) -> Result<()> {
        let dir = self.data.guard.dir.clone();
        give_to_user(session, &dir)?;
        if workload.prepare.is_empty() {
            return Ok(());
        }
        let app = dir.join("app");
        copy_app(workload, &app)?;
        let php_ini_dir = dir.join("php.d");
        super::ini::write(session, &php_ini_dir, crate::data::Extensions::Debian, &[], &[&workload.ini])?;
        give_to_user(session, &dir)?;
        let mut names = session.names();
        names.set("dir", text(&dir));
        names.set("app", text(&app));
        names.set("php_ini_dir", text(&php_ini_dir));
        self.name(&mut names);
        let place = format!("{}/workload.toml: prepare", workload.name);
        let mut env = session.environment(&dir);
        env.insert("PHP_INI_SCAN_DIR".to_owned(), text(&php_ini_dir));
        for (key, value) in &workload.env {
            env.insert(key.clone(), names.render(&place, value)?);
        }
        let log = dir.join("prepare.log");
        for command in &workload.prepare {
            let command = names.command(&place, command)?;
            self.data.setup(&command, &env, &app, &log, &session.cores.services, session).with_context(
                || {
                    let said = fs::read_to_string(&log).unwrap_or_default();
                    let lines: Vec<&str> = said.lines().collect();
                    format!(
                        "preparing {}\n{}",
                        workload.name,
                        lines[lines.len().saturating_sub(20)..].join("\n")
                    )
                },
            )?;
        }
        Ok(())
    }

    /// Tells templates where they are.
    pub fn name(&self, names: &mut Names) {
        names.set("data", text(&self.data.guard.dir.join("data")));
        for (name, instance) in &self.running {
            let place = serde_json::json!({
                "port": instance.port,
                "socket": text(&instance.socket),
                "dir": text(&instance.guard.dir),
            });
            names.set_in("services", name, place);
        }
    }

    /// Names and guards, for the monitor.
    pub fn guards(&self) -> Vec<(String, i32)> {
        self.running.iter().map(|(name, instance)| (name.clone(), instance.guard.pid)).collect()
    }

    /// Which service ended by itself, and how.
    pub fn died(&mut self) -> Option<String> {
        self.running
            .iter_mut()
            .find_map(|(name, instance)| Some(format!("service {name}: {}", instance.died()?)))
    }

    /// Ends them in order.
    pub fn stop(self) -> Vec<String> {
        let mut warnings = Vec::new();
        for (_, instance) in self.running.into_iter().rev() {
            warnings.extend(instance.stop());
        }
        drop(self.data);
        warnings
    }
}
